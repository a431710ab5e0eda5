package pgsvi

import "fmt"

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

// Corpus is a collection of documents over one vocabulary.
type Corpus struct {
	Docs  []Document
	Terms int      // size of the vocabulary
	Vocab []string // its words, or nil if they are not known
}

// Validate returns an error, with the index of the document, wrapping ErrShape if
// lengths disagree, or words are out of range or not increasing, and ErrNotFinite or ErrParam if a count is not
// a positive finite number.
func (c *Corpus) Validate() error {
	if c.Terms < 0 || c.Vocab != nil && len(c.Vocab) != c.Terms {
		return fmt.Errorf("pgsvi: %w: a vocabulary of %d terms has %d names", ErrShape, c.Terms, len(c.Vocab))
	}
	for i, d := range c.Docs {
		if len(d.Words) != len(d.Counts) {
			return fmt.Errorf("pgsvi: %w: document %d has %d words and %d counts", ErrShape, i, len(d.Words), len(d.Counts))
		}
		if k, ok := allFinite(d.Counts); !ok {
			return fmt.Errorf("pgsvi: %w: document %d, word %d has count %v", ErrNotFinite, i, d.Words[k], d.Counts[k])
		}
		for k, w := range d.Words {
			if w < 0 || w >= c.Terms || k > 0 && w <= d.Words[k-1] {
				return fmt.Errorf("pgsvi: %w: document %d has word %d; words must increase and be below %d", ErrShape, i, w, c.Terms)
			}
			if !(d.Counts[k] > 0) {
				return fmt.Errorf("pgsvi: %w: document %d, word %d has count %v", ErrParam, i, w, d.Counts[k])
			}
		}
	}
	return nil
}
