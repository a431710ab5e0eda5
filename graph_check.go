package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/graph"
	"github.com/pgsvi/pgsvi/internal/normal"
)

// CheckFactor tests a factor of your own at each of the given members of the Objective of its
// Graph, such as Init and a fit. Without members it uses the starts of the blocks. In up to 100
// rows, it checks the following:
//
//   - value is finite, depends only on its arguments and does not change them, and grad agrees with
//     differences.
//   - Without a grad, value is affine in the moments of each term.
//   - Terms of a row are independent, or value is a sum of functions of them.
//   - In ten of these rows, value is at most the mean of log f over draws from q, where log f is
//     value at known numbers. A value above the mean is neither E_q[log f] nor a lower bound,
//     for example because it uses E[u]² instead of E[u²], or log E[u] instead of E[log u].
//
// A constant that is missing or wrong cannot be found, because log f need not be normalized. It
// shifts the ELBO and leaves q unchanged. A value that is far below the mean is a poor bound, and
// is not an error. The parts of a MixtureFactor or ChainFactor are tested one by one.
//
// The error joins one mistake for each factor and member, and names the row, the term and the
// moment. It wraps ErrParam, or ErrPanic if a function panics, and ErrShape if a member belongs to
// another Graph.
func CheckFactor(f Factor, qs ...*Exp) error {
	if f.err != nil {
		return f.err
	}
	if f.factor == nil {
		return fmt.Errorf("pgsvi: the Factor of CheckFactor is empty; make it with NewFactor: %w",
			ErrParam)
	}
	var blocks *graphBlocks
	for _, t := range f.terms {
		if t.layout == nil {
			continue
		}
		if blocks != nil && t.layout != blocks {
			return fmt.Errorf("pgsvi: factor %s: term %s belongs to another Graph than the "+
				"terms before "+
				"it: %w", f.name(), t.name, ErrParam)
		}
		blocks = t.layout
	}
	if blocks == nil {
		blocks = new(graphBlocks)
	} else if len(qs) == 0 {
		q, err := blocks.product(func(b *graphBlock) []ExpFamily { return b.start })
		if err != nil {
			return err
		}
		qs = []*Exp{q}
	}
	var errs []error
	for i, q := range qs {
		if q == nil || q.NumParams() != blocks.Params {
			errs = append(errs, fmt.Errorf("pgsvi: member %d does not have the blocks of the "+
				"Graph: %w", i,
				ErrShape))
			continue
		}
		errs = append(errs, prefixed(graph.Test(f.factor, q.MeanParams(nil), blocks.draws(q))))
	}
	return errors.Join(errs...)
}

// draws returns a function that draws the statistics of copies from q, with a fixed seed.
func (l *graphBlocks) draws(q *Exp) graph.Draw {
	rng := rand.New(rand.NewPCG(seed1, seed2))
	eta, mu, z := q.Natural(nil), q.MeanParams(nil), []float64(nil)
	return func(t []float64, starts []int) {
		for _, s := range starts {
			b, i := l.At(s)
			if b.Stacked {
				m, v := mu[s], mu[s+b.Copies]-mu[s]*mu[s]
				x := m + math.Sqrt(math.Max(0, v))*rng.NormFloat64()
				t[s], t[s+b.Copies] = x, x*x
				continue
			}
			f := familyAt(l.find(b).start[i])
			if d := f.Dim(); len(z) < d {
				z = make([]float64, d)
			}
			f.Rand(z[:f.Dim()], t[s:s+b.Params], eta[s:s+b.Params], rng)
		}
	}
}

// find returns the distributions of b.
func (l *graphBlocks) find(b *graph.Block) *graphBlock {
	for i := range l.list {
		if l.list[i].Block == b {
			return &l.list[i]
		}
	}
	return nil
}

// familyAt returns the Family of q.
func familyAt(q ExpFamily) Family {
	if e, ok := q.(*Exp); ok {
		return e.at.F
	}
	g := q.(*Gaussian)
	return normal.Family{D: g.Dim(), Diagonal: g.isDiagonal()}
}
