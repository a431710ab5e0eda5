package pgsvi

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// ScaleCertificate is a proof that no scale s of the prior within an interval is much better than one that was tried: that of the kernel of
// a GP, see GP.CertifyScale, or the prior standard deviation of the weights of a GLM, see GLM.CertifyScale.
//
// Let f_n = −E[log p(y_n|·)] be convex in mean and standard deviation, which it is where p is log-concave, with gradients α_n = ∂f_n/∂m_n and γ_n = 2∂f_n/∂v_n at a Gaussian
// N(m, V), any one. The prior has precision P_b + P/s², of which P_b does not depend on s, and N(m, V) is written at s = 1. With Γ the sum of the γ_n, as a matrix, and
// a that of the α_n, as a vector, of which a_b and a_u are the parts that P_b and P are of, every y > 0 gives a bound at every s (n dimensions, n_u those of P):
//
//	ELBO(q, s) ≤ −Σf_n + tr ΓV + mᵀa + ½a_bᵀP_b⁻¹a_b + ½s²a_uᵀP⁻¹a_u + ½tr P_bV + y²/(2s²)·tr PV − n/2 − log|P_b + Γ + yP/s²| − ½log|V| + ½log|P_b + P/s²|.
//
// For y = s^2θ all but log|P_b + Γ + yP/s²| is convex in log s, which lies below its chord, and that concave, which lies below its tangent, so that the bound of an interval
// is at its ends. θ is the best of ½, ¾ and 1, and of the states at all scales tried the best counts, interval by interval.
type ScaleCertificate struct {
	// Lo and Hi are the ends of the interval.
	Lo, Hi float64
	// Scale is the best scale tried.
	Scale float64
	// ELBO is what the q at Scale has, in nats: that of the model with that scale, fitted to within a small part of Bound.
	ELBO float64
	// Bound is proved: no Gaussian q has an ELBO more than so many nats above ELBO, at any scale from Lo to Hi, with all else as it is.
	// It includes what rounding may do to it.
	Bound float64
	// Scope is OverQAndScale.
	Scope Scope
	// Steps is the number of scales at which a q was found.
	Steps int
}

const (
	scaleSlack  = 0.02 // of the bound asked for, that a q may be below its best
	scaleCells  = 64   // intervals to begin with
	scaleRefine = 0.7  // of the bound asked for, below which a cell is divided before another scale is tried
	scaleWidth  = 1e-4 // of log s², below which it is not
	scaleSteps  = 100  // most scales tried
)

// scaleThetas are the exponents θ of y.
var scaleThetas = [...]float64{0.5, 0.75, 1}

// scaleState is what a state says of all scales, relative to its own: with x = log s² less that of the state, the bound is
//
//	offset − ½n_u x − Σ log(p_j + q_j e^((θ−1)x)) + rise·e^x + trace·e^((2θ−1)x).
type scaleState struct {
	at, elbo                  float64 // log s² of the state, and its ELBO
	offset, half, rise, trace float64 // half is ½n_u
	p, q                      []float64
}

// over returns the bound of the interval from lo to hi of log s².
func (s *scaleState) over(lo, hi float64) float64 {
	best := math.Inf(1)
	for _, theta := range scaleThetas {
		mid := 0.5*(lo+hi) - s.at
		z := math.Exp((theta - 1) * mid)
		value, slope := 0.0, 0.0
		for j, p := range s.p {
			d := p + s.q[j]*z
			value -= math.Log(d)
			slope -= (theta - 1) * s.q[j] * z / d
		}
		end := func(x float64) float64 {
			return s.offset + value + slope*(x-mid) - s.half*x + s.rise*math.Exp(x) + s.trace*math.Exp((2*theta-1)*x)
		}
		if b := max(end(lo-s.at), end(hi-s.at)); b < best { // NaN bounds nothing
			best = b
		}
	}
	return best
}

// certify proves the bound of scales from lo to hi, of the q that find returns at log s², first at that of the model.
func certify(h *parallel.Halt, lo, hi, within, first float64, find func(at float64) (*scaleState, error)) (*ScaleCertificate, error) {
	c := &ScaleCertificate{Lo: lo, Hi: hi, ELBO: math.Inf(-1), Scope: OverQAndScale}
	if !(lo > 0) || !(lo < hi) || math.IsInf(hi, 1) || !(within > 0) {
		return nil, fmt.Errorf("pgsvi: the scales from %v to %v, to be certified to %v nats; the interval must be of positive numbers, in order, and the bound positive: %w", lo, hi, within, ErrParam)
	}
	type cell struct{ lo, hi, bound float64 }
	var cells []cell
	var states []*scaleState
	least, most := 2*math.Log(lo), 2*math.Log(hi)
	for i := range scaleCells {
		at := func(i int) float64 { return least + (most-least)*float64(i)/scaleCells }
		cells = append(cells, cell{at(i), at(i + 1), math.Inf(1)})
	}
	over := func(lo, hi float64) float64 {
		b := math.Inf(1)
		for _, s := range states {
			b = min(b, s.over(lo, hi))
		}
		return b
	}
	next := min(max(2*math.Log(first), least), most)
	for { // ends after scaleSteps
		s, err := find(next)
		if err != nil {
			return nil, err
		}
		states = append(states, s)
		if c.Steps++; s.elbo > c.ELBO {
			c.ELBO, c.Scale = s.elbo, math.Exp(0.5*next)
		}
		for i := range cells {
			cells[i].bound = min(cells[i].bound, s.over(cells[i].lo, cells[i].hi))
		}
		for { // ends where a cell is as narrow as scaleWidth
			if err := h.Err(); err != nil {
				return nil, fmt.Errorf("pgsvi: %w", bare{err})
			}
			worst := 0
			for i := range cells {
				if cells[i].bound > cells[worst].bound {
					worst = i
				}
			}
			w := &cells[worst]
			c.Bound = max(w.bound-c.ELBO, 0)
			next = 0.5 * (w.lo + w.hi)
			if c.Bound <= within {
				return c, nil
			}
			if w.hi-w.lo < scaleWidth || over(next, next)-c.ELBO > scaleRefine*within {
				break
			}
			right := cell{next, w.hi, over(next, w.hi)}
			w.hi, w.bound = next, over(w.lo, next)
			cells = slices.Insert(cells, worst+1, right)
		}
		if c.Steps == scaleSteps {
			return c, nil
		}
	}
}

// notConcave is the error of a proof for a likelihood that is not log-concave.
func notConcave(lik Likelihood) error {
	return fmt.Errorf("pgsvi: scales are certified for log-concave likelihoods, which %s is not: %w", typeName(lik), ErrParam)
}

// gramScale is the latentPrior of K in proportion to s², as a function of log s².
type gramScale struct {
	terms *siteTerms
	k     []float64
	at    float64 // log s² of k
}

func (p *gramScale) digest(*save.Digest) {}

// covariance implements latentPrior.
func (p *gramScale) covariance(_ *parallel.Halt, dst, theta []float64) (*siteTerms, bool) {
	floats.ScaleTo(dst, math.Exp(theta[0]-p.at), p.k)
	_, ok := dense.AllFinite(dst)
	return p.terms, ok
}

// slopes implements latentPrior: none are asked for.
func (p *gramScale) slopes(*parallel.Halt, []float64, []float64, []float64, []float64) {}

// certifyGram certifies the scale s of a prior covariance of the latent values of terms in proportion to s², which is k at first.
func certifyGram(ctx context.Context, terms *siteTerms, k []float64, first, lo, hi, within float64) (*ScaleCertificate, error) {
	if !terms.concave() {
		return nil, notConcave(terms.lik)
	}
	var halt parallel.Halt
	halt.Watch(ctx)
	defer halt.Forget()
	l := &siteLearning{prior: &gramScale{terms, k, 2 * math.Log(first)}, n: terms.len()}
	l.use(crew{1, &halt})
	return certify(&halt, lo, hi, within, first, func(at float64) (*scaleState, error) {
		x, err := l.evaluate([]float64{at}, scaleSlack*within, math.Inf(1), false)
		if err != nil {
			return nil, fmt.Errorf("pgsvi: %w", bare{err})
		}
		if math.IsInf(x.f, 1) {
			return nil, fmt.Errorf("pgsvi: the ELBO at the scale %v: %w", math.Exp(0.5*at), ErrNotFinite)
		}
		l.keep(true)
		s := l.scaleState(at)
		if err := halt.Err(); err != nil {
			return nil, fmt.Errorf("pgsvi: %w", bare{err})
		}
		return s, nil
	})
}

// scaleState returns what the current q says of all scales, P being K⁻¹, n_u = n, and p_j the eigenvalues of Γ^½KΓ^½.
func (l *siteLearning) scaleState(at float64) *scaleState {
	q, n := &l.prob.cur, l.n
	s := &scaleState{at: at, elbo: -q.value, half: 0.5 * float64(n), p: make([]float64, n), q: make([]float64, n)}
	if !q.certain {
		s.offset = math.Inf(1)
		return s
	}
	root, ka := make([]float64, n), make([]float64, n)
	s.offset = 0.5*q.logDet - s.half
	size := math.Abs(q.logDet) + s.half
	dense.Symv(1, dense.Symmetric(l.k, n), dense.Vector(q.d1), 0, dense.Vector(ka))
	s.trace = s.half
	for i, v := range q.v {
		s.q[i], root[i] = 1, math.Sqrt(max(q.tg[i], 0))
		s.offset += q.e[i] + q.tg[i]*v - q.d1[i]*q.m[i]
		s.rise += 0.5 * q.d1[i] * ka[i]
		s.trace -= 0.5 * q.gamma[i] * v
		size += math.Abs(q.e[i]) + q.tg[i]*v + math.Abs(q.d1[i]*q.m[i]) + math.Abs(q.gamma[i])*v
	}
	b := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			b[i*n+j] = root[i] * l.k[i*n+j] * root[j]
		}
	}
	s.eigenvalues(l.workers.halt, b)
	s.finish(size, q.err)
	return s
}

// eigenvalues stores those of b, the lower triangle of a positive semidefinite matrix, in p, each
// less what rounding may have added. It overwrites b. Where h stops the state says nothing.
func (s *scaleState) eigenvalues(h *parallel.Halt, b []float64) {
	n := len(s.p)
	if !dense.Eigenvalues(h, s.p, b, n) {
		s.offset = math.Inf(1)
		return
	}
	rounding := 4 * dense.Epsilon * float64(n) * s.p[n-1]
	for j, p := range s.p {
		s.p[j] = max(p-rounding, 0)
	}
}

// finish adds to the bound what rounding may do to terms of the given size, and the error of the expectations.
func (s *scaleState) finish(size, err float64) {
	s.trace, s.rise = max(s.trace, 0), max(s.rise, 0)
	s.offset += err + dense.Epsilon*float64(len(s.p))*(size+s.rise)
}

// certifyWeights certifies the standard deviation of all weights in the blocks of prior, which is first in its base.
func certifyWeights(ctx context.Context, prior *scaledPrior, first, lo, hi, within float64) (*ScaleCertificate, error) {
	if terms := prior.base.terms; !terms.concave() {
		return nil, notConcave(terms.lik)
	}
	var halt parallel.Halt
	halt.Watch(ctx)
	defer halt.Forget()
	w := &weightLearning{prior: prior}
	w.use(crew{1, &halt})
	return certify(&halt, lo, hi, within, first, func(x float64) (*scaleState, error) {
		q, err := w.fitFull(prior.scaled(first, x), []float64{x}, scaleSlack*within)
		if halted := halt.Err(); halted != nil {
			err = halted
		}
		if err != nil {
			return nil, fmt.Errorf("pgsvi: at the scale %v, %w", math.Exp(0.5*x), bare{err})
		}
		w.keep(true)
		s, err := w.scaleState(q, x)
		if halted := halt.Err(); halted != nil {
			err = halted
		}
		if err != nil {
			return nil, fmt.Errorf("pgsvi: at the scale %v, %w", math.Exp(0.5*x), bare{err})
		}
		return s, nil
	})
}

// scaled returns the model with the precisions of all weights in blocks, which are those at the scale first, at log s² instead.
func (p *scaledPrior) scaled(first, at float64) *linearModel {
	lin := *p.base
	lin.prior.prec = slices.Clone(p.base.prior.prec)
	for j, b := range p.block {
		if b >= 0 {
			lin.prior.prec[j] *= math.Exp(2*math.Log(first) - at)
		}
	}
	return &lin
}

// scaleState returns what q says of all scales. With M = P_b + Γ + P = LLᵀ and ν_j the eigenvalues of L⁻¹PL⁻ᵀ it is |P_b + Γ + zP| = |M|Π(1 − ν_j + ν_jz).
func (l *weightLearning) scaleState(q *weightFit, at float64) (*scaleState, error) {
	d, rows := len(q.mean), q.rows
	s := &scaleState{at: at, elbo: -q.f, p: make([]float64, d), q: make([]float64, d)}
	prior, err := q.lin.prior.stateUntil(l.workers.halt)
	if err != nil {
		return nil, err
	}
	m := &weightState{halt: l.workers.halt}
	if !rows.certain || !m.add(prior, q.lin.x, rows.tg, nil, &designWork{halt: l.workers.halt}) || m.double {
		s.offset = math.Inf(1) // it says nothing
		return s, nil
	}
	s.offset = 0.5*q.logDet + 0.5*prior.logDet - m.logDet - 0.5*float64(d)
	size := math.Abs(q.logDet) + math.Abs(prior.logDet) + math.Abs(m.logDet)
	for i, v := range rows.v {
		s.offset += rows.e[i] + rows.tg[i]*v - rows.d1[i]*rows.m[i]
		size += math.Abs(rows.e[i]) + rows.tg[i]*v + math.Abs(rows.d1[i]*rows.m[i])
	}
	a, root := make([]float64, d), make([]float64, d*d)
	q.lin.x.addMulT(a, rows.d1, nil)
	for j, p := range q.lin.prior.prec {
		own, gain := 0.5*p*q.variance[j], 0.5*a[j]*a[j]/p
		if l.prior.block[j] < 0 {
			s.offset += own + gain
			size += own + gain
			continue
		}
		s.half += 0.5
		s.trace += own
		s.rise += gain
		root[j*d+j] = math.Sqrt(p)
	}
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(m.l, d), dense.General(root, d, d))
	b := make([]float64, d*d)
	dense.Syrk(blas.NoTrans, 1, dense.General(root, d, d), 0, dense.Symmetric(b, d))
	s.eigenvalues(l.workers.halt, b)
	rounding := dense.Epsilon / leastPivot * float64(d)
	for j, v := range s.p {
		s.p[j], s.q[j] = max(1-v-rounding, 0), max(v-rounding, 0)
	}
	s.finish(size, rows.err)
	return s, nil
}
