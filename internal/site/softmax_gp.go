package site

import (
	"errors"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file fits softmax GPs. A GP of K classes is a linear softmax model in the pivoted factor of
// its covariance, C = XXᵀ, with weights w_c ~ N(0, I); see NewFactorModel. softmaxGPBase is the
// base of softmax.go with precisions that come from sites, and SoftmaxGP is its Algebra.
// softmax_gp_newton.go takes Newton's steps of the precisions. The softmax GPs of the root package
// and of package learn use SoftmaxGP. Read softmax.go first.

// softmaxGPBase is a softmaxBase whose precisions are Λ plus the sites of a class,
//
//	P_c = Λ + XᵀΓ_cX,   so that   V_c = XP_c⁻¹Xᵀ = (C⁻¹ + Γ_c)⁻¹
//
// at the rows. The family of softmaxBase also has all other P_c. Its ELBO is greater, but a step
// takes ten times as long if there are as many weights as rows. With these P_c the formula of
// softmaxBase becomes
//
//	log|C|/|V| = Σ_c log|I + CΓ_c| − log|I + C ΣΓ_c/K| + Σγv/K.
//
// The best γ is not the curvature h = E π(1 − π), because the gradient of the ELBO in γ_c is
//
//	½[(V_c∘V_c)(h_c − (1 − 1/K)γ_c) + (diag V_S − v_c)/K],   V_S = (C⁻¹ + ΣΓ_c/K)⁻¹.
//
// softmaxBase takes all other steps.
type softmaxGPBase struct {
	softmaxBase
	priorVar   []float64 // diagonal of C
	now, trial softmaxGPState
	v          []float64 // V_c of all classes in the state now, full
	matrices   []float64 // N² numbers per class: XL_c⁻ᵀ of the last Cover, or gpNewton.own
	root       []float64 // XL⁻ᵀ for the last factor of common

	col, out []float64
	gain     float64 // predicted gain of the precisions in the aim, in nats
	step     gpNewton
}

// softmaxGPState is the part of the result of Cover that softmaxState lacks.
type softmaxGPState struct {
	gamma  []float64
	common []float64 // diag V_S
}

// SoftmaxGPMatrices returns how many N×N matrices a softmax GP of K classes and its posterior have
// at most, as measured. Singular covariances need fewer.
func SoftmaxGPMatrices(k int) float64 { return float64(5*k + 10) }

// A residual variance of a row counts as zero if it is at most factorRounding of its variance. A
// residual below −factorIndefinite of the variance is no rounding error.
const (
	factorRounding   = 1e-14
	factorIndefinite = 1e-6
)

// NewFactorModel returns the linear model of functions with the covariance c, both triangles, at
// the terms t. Its rows are the rows of the pivoted Cholesky factor of c, so it has fewer weights
// than rows if c is singular. Its weights have the prior N(0, I). The error wraps
// sentinel.ErrNotPosDef or sentinel.ErrNotFinite, or is the error of h.
func NewFactorModel(t *term.Terms, c []float64, h *parallel.Halt) (*LinearModel, error) {
	n := t.Len()
	diag := make([]float64, n)
	for i := range diag {
		diag[i] = c[i*n+i]
	}
	pivots := dense.Pivots{Halt: h, Rank: n, Negligible: factorRounding,
		NotPosDef: factorIndefinite, Columns: func(dst []float64, pivots, rows []int) {
			for a, p := range pivots {
				for b, i := range rows {
					dst[a*len(rows)+b] = c[p*n+i]
				}
			}
		}}
	chosen, x, err := pivots.Factor(diag)
	var at *dense.PivotError
	switch {
	case errors.As(err, &at) && (math.IsNaN(at.Cov) || math.IsInf(at.Cov, 0)):
		return nil, fmt.Errorf("covariance of rows %d and %d is %v: %w", at.Pivot, at.Row, at.Cov,
			sentinel.ErrNotFinite)
	case at != nil:
		return nil, fmt.Errorf("covariance of the rows: %w: %w", at, sentinel.ErrNotPosDef)
	case err != nil:
		return nil, err
	}
	d := max(1, len(chosen)) // if all covariances are 0, one feature that is 0
	l := &LinearModel{Terms: t, X: &design.Matrix{Rows: n, Cols: d, Dense: x},
		Prior: gauss.Prior{Mean: make([]float64, d), Prec: make([]float64, d)},
		Names: make([]string, d)}
	for j := range d {
		l.Prior.Prec[j], l.Names[j] = 1, fmt.Sprintf("pivot %d", j)
	}
	return l, nil
}

// Prior implements Base.
func (a *softmaxGPBase) Prior() (s term.Marginals) {
	n := a.x.Rows
	dense.ResizeAll(n, &a.priorVar, &a.col, &a.out)
	w := &a.step
	dense.ResizeAll(n*a.k, &w.r, &w.z, &w.p, &w.q, &w.x)
	a.reach(a.priorVar, 0)
	return a.softmaxBase.Prior()
}

// Cover implements Mover.
func (a *softmaxGPBase) Cover(v, delta []float64) (logDet float64, ok bool) {
	n, d, k, t := a.x.Rows, a.x.Cols, a.k, &a.try
	dense.ResizeAll(k*d*d, &t.q)
	dense.ResizeAll(d*d, &t.lagrange)
	dense.ResizeAll(k*n*n, &a.matrices)
	dense.ResizeAll(n, &a.trial.common)
	a.trial.gamma = append(a.trial.gamma[:0], delta...)
	if !a.each(func(c int, s *softmaxWork) bool {
		q, z := a.class(t.q, c), a.rows(c)
		if !a.factor(q, c, delta, s) {
			return false
		}
		sum := dense.LogDet(q, d)
		a.solveRows(z, q)
		for i := range n {
			x := floats.Dot(z[i*d:(i+1)*d], z[i*d:(i+1)*d])
			v[i*k+c] = x
			sum += delta[i*k+c] * x / float64(k)
		}
		dense.Invert(q, d)
		a.values[c] = sum
		return true
	}) {
		return 0, false
	}
	if !a.common(delta) {
		return 0, false
	}
	logDet = floats.Sum(a.values) - dense.LogDet(a.sum, d)
	for i := range n {
		a.trial.common[i] = floats.Dot(a.root[i*d:(i+1)*d], a.root[i*d:(i+1)*d])
	}
	return logDet, a.lagrange(t) && !math.IsNaN(logDet) && !a.crew.Halt.Stopped()
}

// rows returns the place of XL_c⁻ᵀ in matrices.
func (a *softmaxGPBase) rows(c int) []float64 {
	n := a.x.Rows
	return a.matrices[c*n*n : c*n*n+n*a.x.Cols]
}

// solveRows stores XL⁻ᵀ in z.
func (a *softmaxGPBase) solveRows(z, l []float64) {
	n, d := a.x.Rows, a.x.Cols
	copy(z, a.x.Dense)
	dense.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(l, d), dense.General(z, n, d))
}

// common computes the factor of Λ + XᵀΓ̄X in sum and root, where Γ̄ is the mean over the classes
// of gamma. It returns false if there is no factor.
func (a *softmaxGPBase) common(gamma []float64) bool {
	n, d, k := a.x.Rows, a.x.Cols, a.k
	dense.ResizeAll(d*d, &a.sum)
	dense.ResizeAll(n*d, &a.root)
	for i := range a.col {
		a.col[i] = floats.Sum(gamma[i*k:(i+1)*k]) / float64(k)
	}
	clear(a.sum)
	a.x.AddGram(a.sum, a.col, nil, &design.Work{Halt: a.crew.Halt})
	for j, l := range a.prec[:d] {
		a.sum[j*d+j] += l
	}
	if !dense.CholeskyUntil(a.crew.Halt, a.sum, d) {
		return false
	}
	a.solveRows(a.root, a.sum)
	return true
}

// square stores both triangles of zzᵀ in dst, for the rows z of XL⁻ᵀ.
func (a *softmaxGPBase) square(dst, z []float64) {
	n := a.x.Rows
	clear(dst)
	dense.AddProduct(a.crew.Halt, dst, n, 1, dense.General(z, n, a.x.Cols))
	dense.FillUpper(dst, n)
}

// covariance returns V_c of the state now.
func (a *softmaxGPBase) covariance(c int) []float64 {
	nn := a.x.Rows * a.x.Rows
	return a.v[c*nn : (c+1)*nn]
}

// Move implements Mover. Only contrasts count, so it removes the common part of all classes from u,
// which predictions at other rows would keep.
func (a *softmaxGPBase) Move(d, delta, u []float64) (square float64) {
	square = a.softmaxBase.Move(d, delta, u)
	for i := 0; i < len(u); i += a.k {
		floats.AddConst(-floats.Sum(u[i:i+a.k])/float64(a.k), u[i:i+a.k])
	}
	return square
}

// Accept implements Mover.
func (a *softmaxGPBase) Accept() {
	a.softmaxBase.Accept()
	a.warm = false // there are no P to start from
	a.now, a.trial = a.trial, a.now
	a.v = dense.Resize(a.v, a.k*a.x.Rows*a.x.Rows)
	for c := range a.k {
		a.square(a.covariance(c), a.rows(c))
	}
}

// resume implements keeper.
func (a *softmaxGPBase) resume(gamma []float64) {
	if !a.resumed {
		return
	}
	a.resumed = false
	sure, weight := a.sure, a.cur.weight // Accept replaces them
	if _, ok := a.Cover(make([]float64, len(gamma)), gamma); ok {
		a.Accept()
		a.sure, a.cur.weight = sure, weight
	}
}

// prove implements prover. There is no proof. If the predicted gain may meet a goal, Newton's step
// computes the gain that the precisions still have, unless the aim has already taken that step.
func (a *softmaxGPBase) prove(within float64) (Proof, error) {
	p := Proof{made: true, bound: math.Inf(1)}
	a.sure = 0
	gap := a.decrement()
	if !a.sharp && gap <= max(within, softmaxGPGoal(a.x.Rows)) {
		if sure, ok := a.gammaStep(&a.of.Batch.Cur.Marginals); ok {
			a.sure, a.sharp = sure, sure > gpSharp*gap
			if a.sharp && !a.step.cut {
				a.targets(a.of.Batch.tg)
			}
		}
	}
	return p, a.crew.Halt.Err()
}

// decrement implements prover.
func (a *softmaxGPBase) decrement() float64 {
	if p := &a.of.Batch; a.of.Batched && a.moved && p.aim() {
		return a.aims.promise + max(a.sure, a.gain)
	}
	return math.Inf(1)
}

// The aim of the precisions takes gpPrecisions conjugate gradients, and changes a precision by a
// factor of at least e^−gpLess and at most 1 + gpMore. A precision that should decrease, but is at
// most gpBound times its prior precision, is at its bound and stays. Most precisions are at their
// bound under a wide prior, and would predict a gain that they cannot reach.
//
// If Newton's step predicts gpSharp times the gain, the precisions are flat, and their aim is
// Newton's step from then on.
const (
	gpPrecisions = 3
	gpLess       = 3
	gpMore       = 20
	gpBound      = 1e-2
	gpSharp      = 3 // relative to the gap without Newton's step
)

// aim implements aimer. The step of the means is the step of softmaxBase. The γ are Newton's, with
// the Hessian −½(1 − 1/K) V_c∘V_c.
func (a *softmaxGPBase) aim(dst, step, gamma []float64, s *term.Marginals) bool {
	if !a.softmaxBase.aim(dst, step, gamma, s) {
		return false
	}
	a.gain = 0
	promise, ok := 0.0, false
	if a.sharp {
		promise, ok = a.gammaStep(s)
	}
	if ok && !a.step.cut {
		a.targets(gamma)
	} else {
		for c := range a.k {
			a.precise(gamma, s, c)
		}
	}
	a.gain = max(a.gain, promise)
	return true
}

// targets stores the precisions after the last gammaStep in gamma.
func (a *softmaxGPBase) targets(gamma []float64) {
	for c := range a.k {
		for i := range a.x.Rows {
			gamma[i*a.k+c] = a.now.gamma[i*a.k+c] * math.Exp(a.step.y[c*a.x.Rows+i])
		}
	}
}

// fine implements finer. It swaps Newton's step for the steps of precise, or the reverse.
func (a *softmaxGPBase) fine(gamma []float64, s *term.Marginals) bool {
	if a.sharp {
		a.sharp, a.gain = false, 0
		for c := range a.k {
			a.precise(gamma, s, c)
		}
		return true
	}
	_, ok := a.gammaStep(s)
	if ok {
		a.targets(gamma)
	}
	return ok
}

// precise stores the γ to aim at of class c in gamma, and adds their predicted gain to gain.
func (a *softmaxGPBase) precise(gamma []float64, s *term.Marginals, c int) {
	n, k, t, w := a.x.Rows, a.k, &a.now, &a.step
	v, part := a.covariance(c), 1-1/float64(k)
	r, z, p, q, x := w.r[:n], w.z[:n], w.p[:n], w.q[:n], w.x[:n]
	square := func(dst, x []float64) { // (V∘V)x
		for i := range dst {
			var y float64
			for j, w := range v[i*n : (i+1)*n] {
				y += w * w * x[j]
			}
			dst[i] = y
		}
	}
	bound := make([]bool, n)
	rescale := func() { // by the diagonal of V∘V
		for i, y := range r {
			d := v[i*n+i]
			if z[i] = 0; d > 0 && !bound[i] {
				z[i] = y / (d * d)
			}
		}
	}
	for i := range z {
		z[i] = s.Tg[i*k+c] - part*t.gamma[i*k+c]
	}
	square(r, z)
	for i := range r {
		r[i] += (t.common[i] - v[i*n+i]) / float64(k)
		bound[i] = r[i] <= 0 && t.gamma[i*k+c]*a.priorVar[i] <= gpBound
	}
	rescale()
	copy(p, z)
	clear(x)
	rho := floats.Dot(r, z)
	for range gpPrecisions {
		square(q, p)
		curve := floats.Dot(p, q)
		if !(curve > 0) {
			break
		}
		l := rho / curve
		a.gain += 0.25 * l * rho / part
		floats.AddScaled(x, l, p)
		floats.AddScaled(r, -l, q)
		rescale()
		next := floats.Dot(r, z)
		for i := range p {
			p[i] = z[i] + next/rho*p[i]
		}
		rho = next
	}
	for i, y := range x {
		g := t.gamma[i*k+c]
		change := y / part / g // as a factor, which keeps γ positive
		switch {
		case !(g > 0):
		case change > 0:
			gamma[i*k+c] = g * (1 + min(change, gpMore))
		default:
			gamma[i*k+c] = g * math.Exp(max(change, -gpLess))
		}
	}
}

var (
	_ Base    = (*softmaxGPBase)(nil)
	_ keeper  = (*softmaxGPBase)(nil)
	_ prover  = (*softmaxGPBase)(nil)
	_ aimer   = (*softmaxGPBase)(nil)
	_ finer   = (*softmaxGPBase)(nil)
	_ reacher = (*softmaxGPBase)(nil)
	_ moder   = (*softmaxGPBase)(nil)
)

// SoftmaxGP is the Algebra of K functions with a dense covariance, by contrast mean field.
type SoftmaxGP struct {
	BaseAlgebra
	mover *softmaxGPBase
	c     []float64
}

// NewSoftmaxGP returns the prior of terms of K latent values, each with covariance c in both
// triangles. It returns the errors of NewFactorModel.
func NewSoftmaxGP(t *term.Terms, c []float64, workers term.Crew) (*SoftmaxGP, error) {
	s := &SoftmaxGP{c: c}
	l, err := NewFactorModel(t, c, workers.Halt)
	if err != nil {
		return s, err
	}
	s.mover = &softmaxGPBase{softmaxBase: *newSoftmaxBase(l)}
	s.mover.of, s.mover.size = &s.BaseAlgebra, 0
	return s, s.begin(t, s.mover, workers)
}

// Slopes stores both triangles of W in w. The derivative of the negative ELBO is
//
//	∂(−ELBO)/∂θ = ½ Σ_ij W_ij ∂C_ij/∂θ
//
// at the current sites and means, which is the total derivative if these are optimal. With V_c as
// a function of C, B_c = I − Γ_cV_c and Γ̄ = ΣΓ_c/K,
//
//	W = Σ_c [Γ_cB_cᵀ + B_c(H_c − (1 − 1/K)Γ_c)B_cᵀ − a_ca_cᵀ] − (C + Γ̄⁻¹)⁻¹.
//
// For each class it calls class with the lower triangle of (C + Γ_c⁻¹)⁻¹ = Γ_cB_cᵀ, and with a_c.
// Both are valid only during the call. It returns false if the crew has halted or a matrix has no
// factor.
func (s *SoftmaxGP) Slopes(w []float64, class func(w, a []float64)) bool {
	a := s.mover
	n, k, part := a.x.Rows, a.k, 1-1/float64(a.k)
	if !a.moved {
		if _, ok := a.Cover(make([]float64, n*k), s.Cur.Gamma); !ok {
			return false
		}
		a.Accept()
	}
	clear(w)
	own, scaled, square := make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)
	gamma, curve, slope := make([]float64, n), make([]float64, n), make([]float64, n)
	for c := range k {
		v := a.covariance(c)
		classOf(gamma, s.Cur.Gamma, c)
		classOf(curve, s.Cur.Tg, c)
		classOf(slope, s.Cur.A, c)
		for i, g := range gamma {
			curve[i] -= part * g
			for j, x := range v[i*n : (i+1)*n] {
				own[i*n+j] = -g * x * gamma[j]
				scaled[i*n+j] = x * curve[i]
			}
			own[i*n+i] += g
		}
		class(own, slope)
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(v, n, n),
			dense.General(scaled, n, n), 0, dense.General(square, n, n))
		for i, g := range gamma {
			for j, x := range v[i*n : (i+1)*n] {
				w[i*n+j] += own[i*n+j] + g*square[i*n+j]*gamma[j] -
					g*x*curve[j] - curve[i]*x*gamma[j] - slope[i]*slope[j]
			}
			w[i*n+i] += curve[i]
		}
		if a.crew.Halt.Stopped() {
			return false
		}
	}
	if !a.common(s.Cur.Gamma) {
		return false
	}
	a.square(own, a.root) // (C⁻¹ + Γ̄)⁻¹
	gamma = a.col
	for i, g := range gamma {
		for j, x := range own[i*n : (i+1)*n] {
			w[i*n+j] += g * x * gamma[j]
		}
		w[i*n+i] -= g
	}
	return true
}

// Covariance returns the prior covariance, both triangles.
func (s *SoftmaxGP) Covariance() []float64 { return s.c }

// softmaxGPGoal returns the gap, in nats, at which the precisions of n rows are good enough. V∘V is
// nearly singular, and its flat directions take many passes.
func softmaxGPGoal(n int) float64 { return max(1e-3, 3e-5*float64(n)) }

// Evaluate implements Algebra.
func (s *SoftmaxGP) Evaluate(within float64) (siteEvaluation, error) {
	e, err := s.BaseAlgebra.Evaluate(within)
	e.Gap = max(e.Gap, s.mover.trend.left(e.ELBO))
	e.Goal = softmaxGPGoal(s.Terms.Len())
	return e, err
}
