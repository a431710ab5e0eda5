package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file frees a softmax model of two classes that is stuck. A model of two classes with one
// prior is a logit model of the difference z = η_1 − η_0, with half of the prior precision. Some
// kinds of steps need one latent value and cannot be taken in two scores. Weights of rows that
// differ by factors of 10⁸, or columns under a wide prior, therefore leave the scores far from the
// optimum. SoftmaxAlgebra.Ascend solves the logit and returns to the scores.

const (
	logitPasses = 8    // passes between two attempts while steps are slow
	logitGain   = 1e-3 // a run is stuck if its step gains less than this part of its predicted gain
)

// difference is the likelihood of z for a term.Several of two latent values.
type difference struct{ term.Softmax }

// Expect implements term.Likelihood.
func (l difference) Expect(y, m, v float64) term.Expectation {
	var d1, d2 [2]float64
	value, err := l.ExpectSoftmax(y, 0, []float64{-m / 2, m / 2}, []float64{v / 2, v / 2}, d1[:],
		d2[:])
	return term.Expectation{Value: value, D1: 0.5 * (d1[1] - d1[0]), D2: d2[1], Err: err}
}

// LogProb implements term.Likelihood.
func (l difference) LogProb(y, eta float64) float64 { return l.Expect(y, eta, 0).Value }

// Ascend implements Algebra. With two classes it tries the solution of the logit if the last step
// gained almost nothing of its predicted gain, or if steps are slow.
func (s *SoftmaxAlgebra) Ascend() (passes int, err error) {
	a, t := s.mover, s.Terms
	if a.k != 2 || a.gauge != nil || t.Extra != nil || t.Blur != nil {
		return s.BaseAlgebra.Ascend()
	}
	known := s.Fresh && s.Batched
	if known && (a.stuck || s.Progress.Slow && s.Progress.Passes%logitPasses == 0) {
		if passes, ok, err := s.logit(); ok || err != nil {
			return passes, err
		}
	}
	before := math.Inf(-1)
	if known {
		before = s.elbo()
	}
	passes, err = s.BaseAlgebra.Ascend()
	if err == nil {
		a.stuck = a.gap > contrastGoal && s.elbo()-before < logitGain*a.gap
	}
	return passes, err
}

// logit moves to the sites of the best logit and returns true if that raises the ELBO. Otherwise
// the state is unchanged, and also after an error, which comes from the crew.
func (s *SoftmaxAlgebra) logit() (passes int, ok bool, err error) {
	a, t := s.mover, s.Terms
	d := a.x.Cols
	l := &LinearModel{X: a.x, Names: make([]string, d),
		Prior: gauss.Prior{Mean: make([]float64, d), Prec: make([]float64, d)},
		Terms: &term.Terms{Lik: difference{t.Lik.(term.Softmax)}, Y: t.Y, Weight: t.Weight,
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
	if err != nil { // the crew has stopped, or the logit has no solution
		return 0, false, s.Workers.Halt.Err()
	}
	x, p := &term.Marginals{}, &s.Batch
	x.Resize(s.N)
	for i, m := range z.M {
		x.M[2*i], x.M[2*i+1], x.V[2*i], x.V[2*i+1] = -m/2, m/2, z.V[i]/2, z.V[i]/2
	}
	if t.Expect(x, nil, s.Workers) != nil {
		return 0, false, s.Workers.Halt.Err()
	}
	p.toTargets(x, x.Tg)
	if !p.Eval() || !(p.Try.Value < p.Cur.Value) || !p.Accept() {
		return 0, false, s.Workers.Halt.Err()
	}
	p.t = 1
	p.mix.Reset()
	s.free, s.Proof = false, Proof{}
	s.follow(&p.Cur)
	a.stuck, a.trend = false, trend{} // the jump is no part of the trend
	return max(1, best.Passes), true, nil
}
