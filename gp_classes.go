package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// classPosterior is Posterior for a Softmax.
func (g *GP) classPosterior(st State) (*GPPosterior, error) {
	s, ok := st.(*siteStepper)
	if !ok || !s.terms.Of(g.terms) {
		return nil, fmt.Errorf("pgsvi: a %T is not a state of this GP: %w", st, ErrParam)
	}
	alg := s.alg.(*site.ContrastGP)
	if err := alg.Refresh(); err != nil {
		return nil, prefixed(err)
	}
	return newClassPosterior(g, alg.Covariance(), &alg.Cur, alg.Workers.Halt)
}

// newClassPosterior is newGPPosterior for a Softmax: a posterior for each class.
func newClassPosterior(g *GP, k []float64, q *term.State, h *parallel.Halt) (*GPPosterior, error) {
	n, classes := g.Len(), g.terms.K
	p := &GPPosterior{x: g.x, kernel: g.kernel, lik: likOf(g.terms), jitter: g.opt.Jitter}
	p.gamma, p.a = append(p.gamma, q.Gamma...), append(p.a, q.A...)
	p.m, p.v = append(p.m, q.M...), append(p.v, q.V...)
	for c := range classes {
		of := &term.State{}
		of.Resize(n)
		for i := range n {
			of.Gamma[i], of.A[i] = q.Gamma[i*classes+c], q.A[i*classes+c]
			of.M[i], of.V[i] = q.M[i*classes+c], q.V[i*classes+c]
		}
		one, terms := *g, *g.terms
		terms.K, one.terms = 1, &terms
		each, err := newGPPosterior(&one, k, of, nil, h)
		if err != nil {
			return nil, err
		}
		p.classes = append(p.classes, each)
	}
	p.maxPrior = p.classes[0].maxPrior
	return p, nil
}

// classPart is Part for a Softmax.
func (p *GPPosterior) classPart(i int, x mat.Matrix) *Prediction {
	part := *p
	part.classes = nil
	for _, of := range p.classes {
		part.classes = append(part.classes, of.part(i))
	}
	q := predictAt(&part, x)
	return &q
}

// latentClasses is latent for the scores of a Softmax.
func (p *GPPosterior) latentClasses(m, v []float64, x mat.Matrix) {
	k := len(p.classes)
	mc, vc := latentSlices(len(m) / k)
	for c, of := range p.classes {
		of.latent(mc, vc, x)
		for i := range mc {
			m[i*k+c], v[i*k+c] = mc[i], vc[i]
		}
	}
}
