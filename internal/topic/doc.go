// Package topic has the engines of topic models. A correlated topic model (CTM) is in Steps, which
// visits documents: it opens the E-step of each (estep.go), adds what that says of the topics to
// their statistics (statistics.go), and ends with the M-step. What was reached is a Fitted, which
// infers the topics of other documents. Dirichlet is the E-step of latent Dirichlet allocation
// (LDA); its topics are steps of an Objective. The proportions that an LDA reports for a document
// come from propagation.go and marginal.go instead, which are more accurate than the E-step. Both
// models start from a Start, and their held-out scores are in score.go, words of topics in
// words.go.
//
// Errors wrap sentinels and do not name the library.
package topic

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Doc is a bag of words. Words are indices into the vocabulary, from 0, strictly increasing, and
// Counts says how often each occurs.
type Doc struct {
	Words  []int
	Counts []float64
}

// Tokens returns the number of words of d, each counted as often as it occurs.
func (d Doc) Tokens() (n float64) {
	for _, c := range d.Counts {
		n += c
	}
	return n
}

// Clone returns a copy of d.
func (d Doc) Clone() Doc { return Doc{slices.Clone(d.Words), slices.Clone(d.Counts)} }

// Tokens returns the number of words in all documents, each counted as often as it occurs.
func Tokens(docs []Doc) (n float64) {
	for _, d := range docs {
		n += d.Tokens()
	}
	return n
}

// Halves deals the tokens of d out to two new documents: those at even positions, from 0, go to
// first and the others to second. The error wraps ErrParam at a count that is not whole.
func (d Doc) Halves() (first, second Doc, err error) {
	odd := false // whether the next token goes to second
	for k, w := range d.Words {
		n := d.Counts[k]
		if n != math.Floor(n) {
			return first, second,
				fmt.Errorf("word %d has count %v, and cannot be dealt token by token: %w",
					w, n, sentinel.ErrParam)
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

// Check returns what is wrong with d as a document over a vocabulary of so many terms. The caller
// says of which document.
func (d Doc) Check(terms int) error {
	if len(d.Words) != len(d.Counts) {
		return fmt.Errorf("has %d words and %d counts: %w",
			len(d.Words), len(d.Counts), sentinel.ErrShape)
	}
	if k, ok := dense.AllFinite(d.Counts); !ok {
		return fmt.Errorf("has word %d with count %v: %w",
			d.Words[k], d.Counts[k], sentinel.ErrNotFinite)
	}
	for k, w := range d.Words {
		if w < 0 || w >= terms || k > 0 && w <= d.Words[k-1] {
			return fmt.Errorf("has word %d; words must increase and be below %d: %w",
				w, terms, sentinel.ErrShape)
		}
		if !(d.Counts[k] > 0) {
			return fmt.Errorf("has word %d with count %v: %w", w, d.Counts[k], sentinel.ErrParam)
		}
	}
	return nil
}
