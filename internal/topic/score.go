package topic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// Scoring is how held-out documents are scored, with Draws of z for each, in antithetic pairs, and
// the share Smoothing of the uniform distribution in each topic. ByWord scores the tokens of a
// word together.
type Scoring struct {
	Draws     int
	Smoothing float64
	ByWord    bool
	Workers   int
}

// HeldOut is how well the second halves of documents are predicted from their first halves: −log
// probability per token, in nats.
type HeldOut struct {
	PerToken       float64   // over all tokens; NaN without tokens
	InVocab        float64   // over tokens whose word occurs in the training data
	Tokens         float64   // how many tokens PerToken is over
	TokensInVocab  float64   // and InVocab
	DocumentScores []float64 // Σ over the tokens of each document
}

// score scores the documents. loss stores the loss in nats of each word of the second half of a
// document, given the first half; each worker makes one call at a time. seen marks the words of
// the training data. There is an error for each document that cannot be scored, and nil for the
// others.
func (o Scoring) score(
	docs []Doc, seen []bool,
	loss func(worker int, nats []float64, first, second Doc) error,
) (*HeldOut, []error) {
	n := len(docs)
	h := &HeldOut{DocumentScores: make([]float64, n)}
	in, tokens, tokensIn := make([]float64, n), make([]float64, n), make([]float64, n)
	errs := make([]error, n)
	parallel.For(n, 1, o.Workers, func(worker, i, _ int) {
		first, second, err := docs[i].Halves()
		nats := make([]float64, len(second.Words))
		if err == nil {
			err = loss(worker, nats, first, second)
		}
		if err != nil {
			errs[i] = fmt.Errorf("document %d: %w", i, err)
			return
		}
		for j, v := range second.Words {
			h.DocumentScores[i] += nats[j]
			tokens[i] += second.Counts[j]
			if seen[v] {
				in[i] += nats[j]
				tokensIn[i] += second.Counts[j]
			}
		}
	})
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil, errs
	}
	for i, s := range h.DocumentScores {
		h.PerToken += s
		h.InVocab += in[i]
		h.Tokens += tokens[i]
		h.TokensInVocab += tokensIn[i]
	}
	h.PerToken /= h.Tokens
	h.InVocab /= h.TokensInVocab
	return h, nil
}

// smoothed returns −y log((1−s)p + s/V), the nats of y tokens of a word of probability p, mixed
// with the uniform distribution.
func (o Scoring) smoothed(p, y float64, terms int) float64 {
	return -y * math.Log((1-o.Smoothing)*p+o.Smoothing/float64(terms))
}

// logMeanPower returns the logarithm of the mean of (a πᵀx + b)^y over the rows π of pi.
func logMeanPower(pi, x []float64, a, b, y float64) float64 {
	k := len(x)
	top, sum := math.Inf(-1), 0.0 // Σ is e^top·sum, lest small probabilities underflow
	for i := 0; i < len(pi); i += k {
		l := y * math.Log(a*floats.Dot(pi[i:i+k], x)+b)
		if l > top {
			sum *= math.Exp(top - l)
			top = l
		}
		sum += math.Exp(l - top)
	}
	return top + math.Log(sum*float64(k)/float64(len(pi)))
}

// HeldOut scores documents by inference from their first halves. seen marks the words of the
// training data. The points of the expectation over q are drawn from rng. There is an error for
// each document that fails.
func (f *Fitted) HeldOut(o Scoring, docs []Doc, seen []bool, rng *rand.Rand) (*HeldOut, []error) {
	eps := make([]float64, (o.Draws+1)/2*f.K)
	for i := range eps {
		eps[i] = rng.NormFloat64()
	}
	type scratch struct {
		*work
		mean, all, pi []float64
	}
	works := make([]scratch, o.Workers)
	return o.score(docs, seen, func(worker int, nats []float64, first, second Doc) error {
		w := &works[worker]
		if w.work == nil {
			*w = scratch{f.inferrer(), make([]float64, f.K), make([]float64, 3*f.K), nil}
		}
		if err := f.infer(w.work, first, o.Smoothing); err != nil {
			return err
		}
		q := w.logits(0)
		q.expectedSoftmax(w.mean, eps, w.all)
		if o.ByWord {
			w.pi = dense.Resize(w.pi, 2*len(eps))
			q.softmaxes(w.pi, eps, w.all)
		}
		for j, v := range second.Words {
			beta, y := f.Beta[v*f.K:(v+1)*f.K], second.Counts[j]
			if o.ByWord && y > 1 {
				nats[j] = -logMeanPower(w.pi, beta, 1-o.Smoothing, o.Smoothing/float64(f.Terms), y)
				continue
			}
			nats[j] = o.smoothed(floats.Dot(w.mean, beta), y, f.Terms)
		}
		return nil
	})
}
