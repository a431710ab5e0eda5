package data

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
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
// there is no document, or if all words of the texts are left out.
func ReadCorpus(path, vocab string) (*pgsvi.Corpus, error) {
	return ReadCorpusContext(context.Background(), path, vocab)
}

// ReadCorpusContext is like ReadCorpus, but ends when the context is done. The error then wraps
// ctx.Err() and context.Cause(ctx).
func ReadCorpusContext(ctx context.Context, path, vocab string) (*pgsvi.Corpus, error) {
	b := CorpusBuilder{MinDocs: rareWord, MaxDocs: commonWord}
	if text, err := b.read(ctx, path); text || err != nil {
		if err != nil {
			return nil, err
		}
		c, _, err := builtCorpus(&b)
		if err == nil && c.Terms == 0 {
			return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: %s has %s, but no word occurs in at "+
				"least %d of them and in at most half; give it more texts, or use CorpusBuilder "+
				"with other limits", filepath.Base(path), plural(len(c.Docs), "document"), rareWord)
		}
		return c, err
	}
	c, err := readNumbers(ctx, path)
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

// ReadDocuments reads new documents for a topic model whose topics have the given number of terms. The
// path is the same as for ReadCorpus. vocab is the vocabulary of the model, as LDAPosterior.Vocab
// and CTMPosterior.Vocab return it. Words of a text that are not in vocab are left out. The names of
// the documents are the names of the files of a folder, the numbers of the lines of a .txt file, or
// the numbers of the documents from 1.
//
// The error wraps ErrParam if the documents are texts and vocab is nil, and ErrShape if a corpus of
// numbers has more terms than the model. Otherwise it is an error of ReadCorpusContext.
func ReadDocuments(ctx context.Context, path string, terms int, vocab []string) (
	c *pgsvi.Corpus, names []string, err error) {
	b := CorpusBuilder{Vocab: vocab}
	text, err := b.read(ctx, path)
	switch {
	case err != nil:
		return nil, nil, err
	case text && vocab == nil:
		return nil, nil, sentinel.Wrap(pgsvi.ErrParam, "pgsvi: %s has texts, but the model was fitted "+
			"without a vocabulary; fit it to texts, or use a corpus of word numbers",
			filepath.Base(path))
	case text:
		return builtCorpus(&b)
	}
	if c, err = readNumbers(ctx, path); err != nil {
		return nil, nil, err
	}
	if c.Terms > terms {
		return nil, nil, sentinel.Wrap(pgsvi.ErrShape, "pgsvi: %s has %d terms, but the model has "+
			"%d; number the words as in training", filepath.Base(path), c.Terms, terms)
	}
	c.Terms, c.Vocab = terms, vocab
	for i := range c.Docs {
		names = append(names, strconv.Itoa(i+1))
	}
	return c, names, nil
}

// read adds the texts at a path, if it is a folder or a file that ends in .txt. Otherwise it
// returns false.
func (b *CorpusBuilder) read(ctx context.Context, path string) (text bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("pgsvi: %w", err)
	}
	base := strings.TrimSuffix(filepath.Base(path), ".gz")
	switch {
	case info.IsDir():
		return true, b.readFolder(ctx, path)
	case strings.HasSuffix(base, ".txt") && !strings.HasPrefix(base, "docword"):
		_, err = openAnd(ctx, path, func(r io.Reader) (struct{}, error) {
			return struct{}{}, b.readLines(r)
		})
		return true, err
	}
	return false, nil
}

// readNumbers reads a corpus with numbers in place of words.
func readNumbers(ctx context.Context, path string) (*pgsvi.Corpus, error) {
	base := strings.TrimSuffix(filepath.Base(path), ".gz")
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
	return openAnd(ctx, path, read)
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

// readLines adds the texts of r, one per line.
func (b *CorpusBuilder) readLines(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longLine)
	for n := 1; lines.Scan(); n++ {
		if text := strings.TrimSpace(lines.Text()); text != "" {
			b.Add(strconv.Itoa(n), text)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("pgsvi: %w", err)
	}
	return nil
}

// readFolder adds the texts of a folder, one per file.
func (b *CorpusBuilder) readFolder(ctx context.Context, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("pgsvi: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		text, err := openAnd(ctx, filepath.Join(folder, e.Name()), readText)
		if err != nil {
			return err
		}
		b.Add(e.Name(), text)
	}
	return nil
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

// builtCorpus returns the corpus of a builder and the names of its documents, or an error if it has
// no documents.
func builtCorpus(b *CorpusBuilder) (c *pgsvi.Corpus, names []string, err error) {
	if c, names = b.Corpus(); len(c.Docs) == 0 {
		return nil, nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the corpus has no documents; give it "+
			"a folder with one text per file, or a file that ends in .txt with one text per line")
	}
	return c, names, nil
}
