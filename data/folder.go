package data

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Words of texts that ReadCorpus leaves out: those of fewer documents than rareWord, and of more
// than this share of them.
const rareWord, commonWord = 3, 0.5

// ReadCorpus reads the corpus at a path, by its kind: a folder has a text in each file, packed by
// gzip or not, and a file ending in .txt a text in each line. Other files are Matrix Market (.mtx),
// UCI (docword…) or lda-c, and may be packed by gzip. Texts of a folder that are manual pages lose
// their roff markup. Of texts, in English, words of fewer than 3
// documents and of more than half of them are left out; CorpusBuilder has the choice.
//
// vocab is the file of the words, one a line, of a corpus that has numbers for words. "" means
// none. The errors are those of the readers of each kind, and wrap ErrEmpty if there is no
// document.
func ReadCorpus(path, vocab string) (*pgsvi.Corpus, error) {
	return ReadCorpusContext(context.Background(), path, vocab)
}

// ReadCorpusContext is ReadCorpus, which ends when the context is done. The error then wraps
// ctx.Err() and context.Cause(ctx).
func ReadCorpusContext(ctx context.Context, path, vocab string) (*pgsvi.Corpus, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	base := strings.TrimSuffix(filepath.Base(path), ".gz")
	switch {
	case info.IsDir():
		return readFolder(ctx, path)
	case strings.HasSuffix(base, ".txt") && !strings.HasPrefix(base, "docword"):
		return openAnd(ctx, path, readLines)
	}
	read := func(r io.Reader) (*pgsvi.Corpus, error) {
		c, err := ReadLDAC(r, 0)
		return c, named("read as lda-c, as its name ends neither in .txt (a text a line) nor in "+
			".mtx", err)
	}
	switch {
	case strings.HasSuffix(base, ".mtx"):
		read = ReadMatrixMarket
	case strings.HasPrefix(base, "docword"):
		read = ReadUCI
	}
	c, err := openAnd(ctx, path, read)
	if err != nil || vocab == "" {
		return c, err
	}
	if c.Vocab, err = openAnd(ctx, vocab, ReadVocab); err != nil {
		return nil, err
	}
	if c.Terms > len(c.Vocab) {
		return nil, sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: %s has %d words, and %s word %d", filepath.Base(vocab),
			len(c.Vocab),
			filepath.Base(path), c.Terms)
	}
	c.Terms = len(c.Vocab)
	return c, nil
}

// openAnd reads a file.
func openAnd[T any](ctx context.Context, path string, read func(io.Reader) (T, error)) (
	v T, err error) {
	f, err := openContext(ctx, path)
	if err != nil {
		return v, fmt.Errorf("pgsvi: %w", err)
	}
	defer f.Close()
	if v, err = read(waiting(ctx, f)); err != nil {
		err = named(filepath.Base(path), err)
	}
	return v, err
}

// longLine is how many bytes a document of a file of texts may have.
const longLine = 1 << 28

// readLines reads a corpus of a text a line.
func readLines(r io.Reader) (*pgsvi.Corpus, error) {
	b := CorpusBuilder{MinDocs: rareWord, MaxDocs: commonWord}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longLine)
	for lines.Scan() {
		if text := strings.TrimSpace(lines.Text()); text != "" {
			b.Add("", text)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	return builtCorpus(&b)
}

// readFolder reads a corpus of a text a file.
func readFolder(ctx context.Context, folder string) (*pgsvi.Corpus, error) {
	b := CorpusBuilder{MinDocs: rareWord, MaxDocs: commonWord}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		text, err := openAnd(ctx, filepath.Join(folder, e.Name()), readText)
		if err != nil {
			return nil, err
		}
		b.Add(e.Name(), text)
	}
	return builtCorpus(&b)
}

// readText reads a text, which may be packed by gzip.
func readText(r io.Reader) (string, error) {
	in, err := gunzip(r)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(in, longLine+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("pgsvi: %w", err)
	case len(text) > longLine:
		return "", sentinel.Wrap(pgsvi.ErrMemory, "pgsvi: a text of more than %d MB", longLine>>20)
	}
	return withoutRoff(string(text)), nil
}

// builtCorpus returns the corpus of a builder, or an error if it has no document.
func builtCorpus(b *CorpusBuilder) (*pgsvi.Corpus, error) {
	c, _ := b.Corpus()
	if c == nil || len(c.Docs) == 0 {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: a corpus without documents")
	}
	return c, nil
}
