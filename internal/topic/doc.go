// Package topic holds the engines of topic models.
//
// Steps is the engine of the correlated topic model (CTM). It visits documents: each visit is an
// E-step (estep.go), whose expected counts go into the statistics of the topics (statistics.go),
// and a step ends with the M-step. The result is a Fitted, which infers the topics of other
// documents. Sweeps (sweep.go) are the same for documents on many machines.
//
// Dirichlet is the E-step of latent Dirichlet allocation (LDA). The topics of an LDA are
// parameters of a pgsvi.Objective. The reported proportions of a document come from expectation
// propagation (propagation.go) and from marginal.go, which are more accurate than the E-step.
//
// Both models begin with a Start (start.go, partition.go). score.go scores held-out documents,
// and words.go lists the top words of topics.
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

// Doc is a bag of words. Words holds strictly increasing indices into the vocabulary, from 0, and
// Counts the number of times that each occurs.
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

// Check returns an error if d is not a valid document over a vocabulary of the given size. The
// caller adds the number of the document.
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
