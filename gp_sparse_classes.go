package pgsvi

import (
	"context"
	"fmt"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"gonum.org/v1/gonum/mat"
)

// newSparseClassPosterior is newSparseGPPosterior for a Softmax, whose classes have a mean one after
// the other.
func newSparseClassPosterior(z *sparse.Inducing, lik Likelihood, mean []float64, q *gauss.Contrasts, maxPrior float64, rows int) *SparseGPPosterior {
	p := newSparseGPPosterior(z, lik, mean, nil, maxPrior, rows)
	m := z.Rank()
	for c, of := range q.Of {
		p.classes = append(p.classes, newSparseGPPosterior(z, lik, mean[c*m:(c+1)*m], of.S, maxPrior, rows))
	}
	return p
}

// contrasts returns the covariance of a Softmax.
func (p *SparseGPPosterior) contrasts() *gauss.Contrasts {
	q := &gauss.Contrasts{}
	for _, of := range p.classes {
		q.Of = append(q.Of, &gauss.Full{S: of.q})
	}
	return q
}

// latentClasses is latent of a block for the scores of a Softmax.
func (p *SparseGPPosterior) latentClasses(w *sparse.Work, m, v []float64, x mat.Matrix, lo int) {
	k := len(p.classes)
	n := len(m) / k
	mc, vc := latentSlices(n)
	left := make([]float64, n)
	p.unexplained(w, left, x, lo)
	var f mat.Dense
	for c, of := range p.classes {
		f.CloneFrom(w.F)
		copy(vc, left)
		sparse.Explain(mc, vc, f.RawMatrix(), of.mean, of.q.L)
		p.unknown(w, mc, vc)
		for i := range n {
			m[i*k+c], v[i*k+c] = mc[i], vc[i]
		}
	}
}

// learnedRows is how many rows the kernel of a SparseGP of classes is learned from.
const learnedRows = 500

// sparseClassLearner is the Learner of a SparseGP of classes: that of the GP of some of its rows.
type sparseClassLearner struct {
	*gpLearner
	g *SparseGP
}

// newSparseClassLearner returns the Learner of g, which learns from every n-th of its rows.
func newSparseClassLearner(g *SparseGP, opt *LearnOptions) (*sparseClassLearner, error) {
	n := g.Len()
	index := make([]int, min(n, learnedRows))
	for i := range index {
		index[i] = i * n / len(index)
	}
	x, y := SelectRows(g.x, g.terms.Y, index)
	some, err := newGP(x, y, kernelIn(g.z.Kernel), g.lik, nil)
	if err != nil {
		return nil, err
	}
	l, err := newGPLearner(some, opt)
	if err != nil {
		return nil, err
	}
	return &sparseClassLearner{l, g}, nil
}

// Learned implements Learner.
func (l *sparseClassLearner) Learned(ctx context.Context, s *Solver, res *Result) (
	*SparseGP, *SparseGPPosterior, *Learned, error) {
	st, err := l.space.searchOf(res)
	if err != nil {
		return nil, nil, nil, err
	}
	k, _, lik, err := l.space.at(st.run.Best.Theta)
	if err != nil {
		return nil, nil, nil, err
	}
	learned := st.report(res, l)
	if n, of := l.gp.Len(), l.g.Len(); n < of {
		learned.Warnings = append(learned.Warnings,
			fmt.Sprintf("learned from %d of %d rows, as a SparseGP of classes does", n, of))
	}
	last, stop := shortlyAfter(ctx)
	defer stop()
	var h parallel.Halt
	h.Watch(last)
	g, err := newSparseGPUntil(&h, l.g.x, l.g.terms.Y, k, lik, &l.g.opt)
	if err != nil {
		return nil, nil, learned, l.g.canceled(&h, err)
	}
	if !st.run.Done || ctx.Err() != nil {
		post, _, err := g.Fit(last, nil)
		return g, post, learned, err
	}
	run := Solver{Goal: search.StopPart * st.run.Search.Goal}
	if s != nil {
		run.Workers, run.Recover, run.Converger = s.Workers, s.Recover, s.Converger
	}
	post, fit, err := g.Fit(ctx, &run)
	if learned.Fit = fit; fit != nil {
		fit.Warnings = learned.Warnings
	}
	return g, post, learned, err
}

var _ Learner[*SparseGP, *SparseGPPosterior] = (*sparseClassLearner)(nil)
