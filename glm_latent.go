package pgsvi

import (
	"runtime"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/mat"
)

// This file computes the latent moments of a GLMPosterior at new rows: few rows without allocations,
// many rows in parallel blocks, and all parts of a mixture together.

// latent implements latents.
func (p *GLMPosterior) latent(m, v []float64, x mat.Matrix) {
	if latentsOf(p.lik) > 1 {
		if p.mixture != nil {
			p.latentMixed(m, v, x)
		} else {
			p.latentClasses(m, v, x)
		}
		return
	}
	if p.mixture != nil {
		p.latentMixture(m, v, x)
		return
	}
	if n := len(m); n > fewRows || !p.latentFew(m, v, x, n) {
		p.latentBlocks(m, v, x, n)
	}
}

// fewRows is the largest number of rows that are predicted without blocks.
const fewRows = 16

// fewWork holds a design of a few rows.
type fewWork struct {
	design.Matrix
	sparse design.Rows
}

var fewWorks = sync.Pool{New: func() any { return new(fewWork) }}

// latentFew is latent for n rows, which are few. For a mixture it stores the moments of each part. It
// reports whether the rows are in memory.
func (p *GLMPosterior) latentFew(m, v []float64, x mat.Matrix, n int) bool {
	w := fewWorks.Get().(*fewWork)
	defer fewWorks.Put(w)
	cols := p.Cols()
	w.Rows, w.Cols, w.Sparse, w.Unit = n, p.Dim(), nil, false
	w.Dense = w.Dense[:0]
	switch x := x.(type) {
	case *mat.Dense:
		for i := range n {
			w.Dense = append(w.Dense, x.RawRowView(i)...)
			if p.opt.Intercept {
				w.Dense = append(w.Dense, 1)
			}
		}
	case *Sparse:
		s := &w.sparse
		s.Cols, s.Ptr, s.Ind, s.Val = w.Cols, append(s.Ptr[:0], 0), s.Ind[:0], s.Val[:0]
		w.Unit = true
		for i := range n {
			ind, val := x.Row(i)
			s.Ind, s.Val = append(s.Ind, ind...), append(s.Val, val...)
			if p.opt.Intercept {
				s.Ind, s.Val = append(s.Ind, int32(cols)), append(s.Val, 1)
			}
			s.Ptr = append(s.Ptr, len(s.Ind))
		}
		for _, one := range s.Val {
			w.Unit = w.Unit && one == 1
		}
		w.Sparse = s
	default:
		return false
	}
	p.rowMoments(m, v, n, 0, n, &w.Matrix, nil)
	return true
}

// latentBlocks is latentFew for any number of rows, which it processes in blocks.
func (p *GLMPosterior) latentBlocks(m, v []float64, x mat.Matrix, n int) {
	const block = 4 * predictBlock
	rows := p.designs(x)
	parallel.For(n, block, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		g, index := rows(lo, hi)
		p.rowMoments(m, v, n, lo, hi, g, index)
	})
}

// designs returns a function that returns rows lo … hi−1 of x as rows of a design: all rows of it, or
// the rows in index.
func (p *GLMPosterior) designs(x mat.Matrix) func(lo, hi int) (g *design.Matrix, index []int) {
	s, sparse := x.(*Sparse)
	if !sparse {
		return func(lo, hi int) (*design.Matrix, []int) {
			return designOf(x, lo, hi, p.opt.Intercept), nil
		}
	}
	all := newDesign(s, p.opt.Intercept)
	return func(lo, hi int) (*design.Matrix, []int) {
		index := make([]int, hi-lo)
		for i := range index {
			index[i] = lo + i
		}
		return all, index
	}
}

// rowMoments stores the latent moments of rows lo … hi−1 in the slices of n rows, for each component
// of the mixture of p, or for p itself if it has no mixture. The index selects the rows of g.
func (p *GLMPosterior) rowMoments(m, v []float64, n, lo, hi int, g *design.Matrix, index []int) {
	for from := 0; from < len(m); from += n {
		mean, cov := p.mean, p.wide()
		if mix := p.mixture; mix != nil {
			k := from / n
			mean, cov = mix.means[k], mix.Mixture.Of[k]
			if p.spread != nil {
				_, parts := p.components()
				cov = parts[k].(*GLMPosterior).wide()
			}
		}
		of, vary := m[from+lo:from+hi], v[from+lo:from+hi]
		g.Mul(of, mean, index)
		cov.Variances(vary, g, index)
		finiteOrNaN(of, vary)
	}
}

// latentClasses is latent for the scores of a Softmax.
func (p *GLMPosterior) latentClasses(m, v []float64, x mat.Matrix) {
	k, cov, wide := latentsOf(p.lik), p.cov.(*gauss.Contrasts), p.wide()
	rows := p.designs(x)
	parallel.For(len(m)/k, predictBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		g, index := rows(lo, hi)
		cov.Means(m[lo*k:hi*k], p.mean, g, index)
		wide.Variances(v[lo*k:hi*k], g, index)
		finiteOrNaN(m[lo*k:hi*k], v[lo*k:hi*k])
	})
}

// latentSpread implements spreadLatents.
func (p *GLMPosterior) latentSpread(m, v []float64, x mat.Matrix) *paramSpread {
	p.latent(m, v, x)
	return p.spreadAt(x, len(m))
}

// spreadAt returns the uncertainty of the learned parameters of the likelihood in the given number
// of rows of x, or nil.
func (p *GLMPosterior) spreadAt(x mat.Matrix, rows int) *paramSpread {
	if p.spread == nil || p.spread.params == nil || latentsOf(p.lik) > 1 {
		return nil
	}
	k := len(p.spread.weights)
	s := &paramSpread{p.spread.params, make([]float64, rows*k)}
	g, col := newDesign(x, p.opt.Intercept), make([]float64, rows)
	for j, a := range p.spread.weights {
		g.Mul(col, a, nil)
		for i, v := range col {
			s.along[i*k+j] = v
		}
	}
	return s
}

// partWork holds the moments of the components of a mixture.
type partWork struct{ m, v []float64 }

var partWorks = sync.Pool{New: func() any { return new(partWork) }}

// latentMixture is latent for the mixture of p, with one latent value per row.
func (p *GLMPosterior) latentMixture(m, v []float64, x mat.Matrix) {
	w := partWorks.Get().(*partWork)
	defer partWorks.Put(w)
	prob := p.mixture.Mixture.Prob
	dense.ResizeAll(len(m)*len(prob), &w.m, &w.v)
	if n := len(m); n > fewRows || !p.latentFew(w.m, w.v, x, n) {
		p.latentBlocks(w.m, w.v, x, n)
	}
	mixRows(m, v, prob, w.m, w.v)
}

// latentMixed is latent for the mixture of p, for a Softmax.
func (p *GLMPosterior) latentMixed(m, v []float64, x mat.Matrix) {
	all := &mixedPosteriors[*GLMPosterior]{prob: p.mixture.Mixture.Prob}
	for k := range p.mixture.means {
		all.parts = append(all.parts, p.component(k))
	}
	all.latent(m, v, x)
}

// partsAt implements latents.
func (p *GLMPosterior) partsAt(x mat.Matrix, mean, variance []float64) *predictionMix {
	if p.mixture == nil || latentsOf(p.lik) > 1 {
		return nil
	}
	prob, parts := p.components()
	n := len(mean)
	m := &predictionMix{prob: prob}
	m.m, m.v = latentSlices(len(prob) * n)
	if n > fewRows || !p.latentFew(m.m, m.v, x, n) {
		p.latentBlocks(m.m, m.v, x, n)
	}
	mixRows(mean, variance, prob, m.m, m.v)
	m.split(parts, p.spreadAt(x, n), n)
	if p.mixture.liks != nil {
		m.m, m.v = nil, nil
	}
	return m
}
