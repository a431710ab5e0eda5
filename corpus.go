package pgsvi

import (
	"fmt"
	"math"
	"strconv"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// Document is a bag of words: which words of the vocabulary occur in it, and
// how often. The zero value is a document without words.
type Document struct {
	Words  []int     // indices into the vocabulary, from 0, strictly increasing
	Counts []float64 // how often each occurs, positive
}

// Tokens returns the number of words of d, each counted as often as it occurs.
func (d Document) Tokens() (n float64) {
	for _, c := range d.Counts {
		n += c
	}
	return n
}

// Halves deals the tokens of d out to two new documents, for scores of how well
// one half predicts the other. The tokens are taken in the order of Words, each
// word as often as it is counted; those at even positions, from 0, go to first
// and the others to second. Counts must be whole numbers; Halves panics at one
// that is not.
func (d Document) Halves() (first, second Document) {
	first, second, err := d.halves()
	if err != nil {
		panic(err.Error())
	}
	return first, second
}

// halves is Halves with an error, wrapping ErrParam, at a count that is not whole.
func (d Document) halves() (first, second Document, err error) {
	odd := false // whether the next token goes to second
	for k, w := range d.Words {
		n := d.Counts[k]
		if n != math.Floor(n) {
			return first, second, fmt.Errorf("pgsvi: word %d has count %v, and cannot be dealt token by token: %w", w, n, ErrParam)
		}
		less, more := math.Floor(n/2), math.Ceil(n/2)
		if odd {
			less, more = more, less
		}
		if more > 0 {
			first.Words, first.Counts = append(first.Words, w), append(first.Counts, more)
		}
		if less > 0 {
			second.Words, second.Counts = append(second.Words, w), append(second.Counts, less)
		}
		odd = odd != (math.Mod(n, 2) == 1)
	}
	return first, second, nil
}

// Corpus is a collection of documents over one vocabulary. The zero value has
// neither documents nor words. It is safe for concurrent use as long as nothing
// in it is changed.
//
// The methods that count take a corpus that is in order, as Validate has it, and
// may panic if it is not.
type Corpus struct {
	Docs  []Document
	Terms int      // size of the vocabulary
	Vocab []string // its words, or nil if they are not known
}

// Validate returns an error, with the index of the document, wrapping ErrShape if
// lengths disagree, or words are out of range or not increasing, and ErrNotFinite
// or ErrParam if a count is not a positive finite number, and ErrEmpty if c is nil.
func (c *Corpus) Validate() error {
	if c == nil {
		return fmt.Errorf("pgsvi: a nil *Corpus: %w", ErrEmpty)
	}
	if c.Terms < 0 || c.Vocab != nil && len(c.Vocab) != c.Terms {
		return fmt.Errorf("pgsvi: a vocabulary of %d terms has %d names: %w", c.Terms, len(c.Vocab), ErrShape)
	}
	for i, d := range c.Docs {
		if err := d.check(c.Terms); err != nil {
			return fmt.Errorf("pgsvi: document %d %w", i, err)
		}
	}
	return nil
}

// fits returns what is wrong with c for a model of so many terms.
func (c *Corpus) fits(terms int) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Terms != terms {
		return fmt.Errorf("pgsvi: the corpus has %d terms, the model %d: %w", c.Terms, terms, ErrShape)
	}
	return nil
}

// check returns what is wrong with d as a document over a vocabulary of so many terms. The caller
// says of which document.
func (d Document) check(terms int) error {
	if len(d.Words) != len(d.Counts) {
		return fmt.Errorf("has %d words and %d counts: %w", len(d.Words), len(d.Counts), ErrShape)
	}
	if k, ok := dense.AllFinite(d.Counts); !ok {
		return fmt.Errorf("has word %d with count %v: %w", d.Words[k], d.Counts[k], ErrNotFinite)
	}
	for k, w := range d.Words {
		if w < 0 || w >= terms || k > 0 && w <= d.Words[k-1] {
			return fmt.Errorf("has word %d; words must increase and be below %d: %w", w, terms, ErrShape)
		}
		if !(d.Counts[k] > 0) {
			return fmt.Errorf("has word %d with count %v: %w", w, d.Counts[k], ErrParam)
		}
	}
	return nil
}

// Tokens returns the number of words in all documents, each counted as often as
// it occurs.
func (c *Corpus) Tokens() (n float64) {
	for _, d := range c.Docs {
		n += d.Tokens()
	}
	return n
}

// DocFreq returns, for each word of the vocabulary, the number of documents that
// it occurs in.
func (c *Corpus) DocFreq() []int {
	freq := make([]int, c.Terms)
	for _, d := range c.Docs {
		for _, w := range d.Words {
			freq[w]++
		}
	}
	return freq
}

// TermFreq returns, for each word of the vocabulary, how often it occurs in all
// documents.
func (c *Corpus) TermFreq() []float64 {
	freq := make([]float64, c.Terms)
	for _, d := range c.Docs {
		for k, w := range d.Words {
			freq[w] += d.Counts[k]
		}
	}
	return freq
}

// Word returns the word with index i, or i in decimal if the vocabulary is not
// known. It panics if Vocab is not nil and has no word i.
func (c *Corpus) Word(i int) string {
	if c.Vocab == nil {
		return strconv.Itoa(i)
	}
	return c.Vocab[i]
}

// Subset returns the corpus of the documents at index, in its order; a document
// may occur more than once. Documents and vocabulary are shared with c. It
// panics if an index is not that of a document.
func (c *Corpus) Subset(index []int) *Corpus {
	docs := make([]Document, len(index))
	for at, i := range index {
		docs[at] = c.Docs[i]
	}
	return &Corpus{Docs: docs, Terms: c.Terms, Vocab: c.Vocab}
}

// EvenOdd returns the documents with an even index, from 0, and those with an odd
// one: the split into training and test set that held-out scores of this package
// are given for. Documents and vocabulary are shared with c.
func (c *Corpus) EvenOdd() (even, odd *Corpus) {
	even = &Corpus{Terms: c.Terms, Vocab: c.Vocab}
	odd = &Corpus{Terms: c.Terms, Vocab: c.Vocab}
	for i, d := range c.Docs {
		part := even
		if i%2 == 1 {
			part = odd
		}
		part.Docs = append(part.Docs, d)
	}
	return even, odd
}

func countTokens(docs []Document) (n float64) {
	for _, d := range docs {
		n += d.Tokens()
	}
	return n
}
