// Package docs holds what the examples about documents share: corpora to read, and the score to
// beat.
package docs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// Read returns the bag of words in a file, in the lda-c format of Blei or the docword format of
// UCI, gzipped or not, with the vocabulary of another, one word a line; without a name the
// documentation of the Go standard library.
func Read(corpus, vocabulary string) (*pgsvi.Corpus, error) {
	if corpus == "" {
		return goDocumentation()
	}
	text, err := os.ReadFile(corpus)
	if err != nil {
		return nil, err
	}
	var vocab []string
	if vocabulary != "" {
		f, err := os.Open(vocabulary)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if vocab, err = data.ReadVocab(f); err != nil {
			return nil, fmt.Errorf("%s: %w", vocabulary, err)
		}
	}
	// A file is what can be read as it; docword begins with three numbers, each on a line of its
	// own.
	c, err := data.ReadUCI(bytes.NewReader(text))
	if err != nil {
		var e error
		if c, e = data.ReadLDAC(bytes.NewReader(text), len(vocab)); e != nil {
			return nil, fmt.Errorf("%s is neither docword (%w) nor lda-c (%w)", corpus, err, e)
		}
	}
	if vocab != nil {
		if len(vocab) != c.Terms {
			return nil, fmt.Errorf("%s has %d words, %s %d", vocabulary, len(vocab), corpus, c.Terms)
		}
		c.Vocab = vocab
	}
	return c, nil
}

// Unigram returns the score of the frequencies of the words in train, smoothed as
// the topics are, in nats for each word of the second halves of test.
func Unigram(train, test *pgsvi.Corpus) float64 {
	freq, total := train.TermFreq(), train.Tokens()
	var nats, n float64
	for _, d := range test.Docs {
		_, second := d.Halves()
		for i, v := range second.Words {
			nats -= second.Counts[i] * math.Log(0.99*freq[v]/total+0.01/float64(train.Terms))
			n += second.Counts[i]
		}
	}
	return nats / n
}

// Save writes a posterior to a new file.
func Save(path string, post interface{ Save(w io.Writer) error }) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	if err := post.Save(w); err != nil {
		return err
	}
	return w.Flush()
}
