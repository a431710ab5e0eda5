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

// ReadCorpus leaves out words that occur in fewer documents than rareWord, or in more than the
// share commonWord of the documents.
const rareWord, commonWord = 3, 0.5

// ReadCorpus reads the corpus at a path. A folder has one text per file, and a file that ends in
// .txt has one text per line. Other files are Matrix Market (.mtx), UCI (docword…) or lda-c. All
// files may be packed by gzip, except for .txt files. ReadCorpus removes the roff markup of manual
// pages in a folder. Texts should be English. Words in fewer than 3 documents or in more than half
// of the documents are left out; use CorpusBuilder for other limits.
//
// vocab is the file of words, one per line, for a corpus with numbers in place of words. If it is
// "", the corpus has no vocabulary. The errors are errors of the readers, and wrap ErrEmpty if
// there is no document.
func ReadCorpus(path, vocab string) (*pgsvi.Corpus, error) {
	return ReadCorpusContext(context.Background(), path, vocab)
}

// ReadCorpusContext is like ReadCorpus, but ends when the context is done. The error then wraps
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
		return c, named("read as lda-c, because the name does not end in .txt (one text per line) "+
			"or .mtx", err)
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
			"pgsvi: %s has %d words, but %s needs %d", filepath.Base(vocab),
			len(c.Vocab),
			filepath.Base(path), c.Terms)
	}
	c.Terms = len(c.Vocab)
	return c, nil
}

// openAnd opens a file and calls read. Errors name the file.
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

// longLine is the largest number of bytes in a document.
const longLine = 1 << 28

// readLines reads a corpus with one text per line.
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

// readFolder reads a corpus with one text per file.
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
		return "", sentinel.Wrap(pgsvi.ErrMemory, "pgsvi: the text is larger than %d MB",
			longLine>>20)
	}
	return withoutRoff(string(text)), nil
}

// builtCorpus returns the corpus of a builder, or an error if it has no documents.
func builtCorpus(b *CorpusBuilder) (*pgsvi.Corpus, error) {
	c, _ := b.Corpus()
	if c == nil || len(c.Docs) == 0 {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the corpus has no documents; give it a "+
			"folder with one text per file, or a file that ends in .txt with one text per line")
	}
	return c, nil
}
