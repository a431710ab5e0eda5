package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Two classes of one prior are the logit of the difference z = η_1 − η_0, with half of the prior
// precision. Steps of two scores have none of the kinds that need one latent value, so weights of
// rows that differ by factors of 10⁸, or columns under a wide prior, leave them far from the
// optimum, where a step gains next to nothing. This file solves the logit and returns to the scores.

const (
	logitPasses = 8    // between two attempts while steps are slow
	logitGain   = 1e-3 // the part of its promise that a step gains at least, or is stuck
)

// difference is the Likelihood of z of a Several of two latent values.
type difference struct{ term.Several }

func (l difference) Expect(y, m, v float64) term.Expectation {
	var d1, d2 [2]float64
	value, err := l.ExpectSeveral(y, 0, []float64{-m / 2, m / 2}, []float64{v / 2, v / 2}, d1[:],
		d2[:])
	return term.Expectation{Value: value, D1: 0.5 * (d1[1] - d1[0]), D2: d2[1], Err: err}
}

func (l difference) LogProb(y, eta float64) float64 { return l.Expect(y, eta, 0).Value }

// Ascend implements Algebra. Where steps of two classes are slow, or gain next to nothing of what
// they promise, it tries the solution of the logit.
func (s *ContrastAlgebra) Ascend() (passes int, err error) {
	a, t, before := s.mover, s.Terms, math.Inf(-1)
	if s.Fresh {
		before = s.elbo()
	}
	passes, err = s.Sites.Ascend()
	if err != nil || a.k != 2 || a.gauge != nil || t.Extra != nil || t.Blur != nil || !s.Fresh {
		return passes, err
	}
	stuck := a.gap > contrastGoal && s.elbo()-before < logitGain*a.gap
	if !stuck && !(s.Progress.Slow && s.Progress.Passes%logitPasses == 0) {
		return passes, nil
	}
	more, err := s.logit()
	return passes + more, err
}

// logit goes to the sites of the best logit if the ELBO is greater there. The error is that of the
// crew, and the state then as it was.
func (s *ContrastAlgebra) logit() (passes int, err error) {
	a, t := s.mover, s.Terms
	d := a.x.Cols
	l := &LinearModel{X: a.x, Names: make([]string, d),
		Prior: gauss.Prior{Mean: make([]float64, d), Prec: make([]float64, d)},
		Terms: &term.Terms{Lik: difference{t.Lik.(term.Several)}, Y: t.Y, Weight: t.Weight,
			Row: t.Row, First: t.First}}
	for j := range d {
		l.Prior.Prec[j] = 0.5 * a.prec[j]
	}
	for i := 0; i < len(t.Offset); i += 2 {
		l.Terms.Offset = append(l.Terms.Offset, t.Offset[i+1]-t.Offset[i])
	}
	alg, best, err := l.best(s.Workers)
	z := &term.Estimates{}
	if err == nil {
		err = alg.Marginals(z, nil)
	}
	if err != nil { // of the crew, or of a logit that has no answer where the scores have
		return 0, s.Workers.Halt.Err()
	}
	x, old, before := &term.State{}, &term.State{}, s.elbo()
	x.Resize(s.N)
	old.CopyFrom(&s.Cur)
	for i, m := range z.M {
		x.M[2*i], x.M[2*i+1], x.V[2*i], x.V[2*i+1] = -m/2, m/2, z.V[i]/2, z.V[i]/2
	}
	if err := t.Expect(x, nil, s.Workers); err != nil {
		return best.Passes, s.Workers.Halt.Err()
	}
	s.StartAt(x.Tg, x.D1, x.M)
	if err = s.Refresh(); err != nil || !(s.elbo() > before) {
		s.StartAt(old.Gamma, old.A, old.M)
		if err := s.Refresh(); err != nil {
			return best.Passes, err
		}
	} else {
		a.trend = trend{} // which the jump is no part of
	}
	return best.Passes, s.Workers.Halt.Err()
}
