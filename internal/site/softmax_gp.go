package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file fits softmax models whose K latent values are functions with a dense covariance: GPs.
// contrastGP is the base of the engine for them, and SoftmaxGP its Algebra. softmax_gp_newton.go
// takes Newton's steps of the precisions. The softmax GPs of the root package and of package learn
// use SoftmaxGP.

// softmaxGPBase is the base of K functions with covariance C at the terms. Only contrasts count; see
// contrast. For the contrasts V_c = (C⁻¹ + Γ_c)⁻¹ follows from the sites directly, and
//
//	log|C|/|V| = Σ_c log|I + CΓ_c| − log|I + C ΣΓ_c/K| + Σγv/K,
//
// so there is nothing to solve. But then the best γ is not the curvature h = E π(1 − π), because
// the gradient of the ELBO in γ_c is
//
//	½[(V_c∘V_c)(h_c − (1 − 1/K)γ_c) + (diag V_S − v_c)/K],   V_S = (C⁻¹ + ΣΓ_c/K)⁻¹.
type softmaxGPBase struct {
	n, k int
	c    []float64 // both triangles
	crew term.Crew
	of   *BaseAlgebra

	fac      dense.SiteFactor
	exp      dense.Expansion
	cur, try softmaxGPState
	moved    bool // cur is the current state
	resumed  bool
	col, out []float64
	scaled   []float64 // n² of scratch

	h                coupling
	r, z, p, q, s, e []float64
	mean, precision  float64 // predicted gains of the aim, in nats

	step  gpNewton
	trend trend
	sure  float64 // predicted gain of Newton's step of the precisions, in nats; 0 means unknown
}

// softmaxGPState is the result of Cover.
type softmaxGPState struct {
	v        []float64 // V_c of all classes, full
	common   []float64 // diag V_S
	gamma    []float64
	lagrange []float64 // L of Σ_c V_c
}

// SoftmaxGPMatrices returns how many N×N matrices a contrast mean field of K functions has.
func SoftmaxGPMatrices(k int) float64 { return float64(3*k + 11) }

// Prior implements Base.
func (a *softmaxGPBase) Prior() (s term.Marginals) {
	s.Resize(a.n * a.k)
	for _, x := range [][]float64{s.Gamma, s.A, s.M, s.E, s.Tg, s.D1} {
		clear(x)
	}
	for i := range s.V {
		n := i / a.k
		s.V[i] = a.c[n*a.n+n]
	}
	return s
}

// Cover implements Mover.
func (a *softmaxGPBase) Cover(v, delta []float64) (logDet float64, ok bool) {
	n, k, t := a.n, a.k, &a.try
	dense.ResizeAll(n, &a.col, &a.out)
	dense.ResizeAll(n, &t.common)
	t.v, t.lagrange = dense.Resize(t.v, k*n*n), dense.Resize(t.lagrange, n*n)
	t.gamma = append(t.gamma[:0], delta...)
	a.fac.Halt = a.crew.Halt
	clear(t.lagrange)
	for c := range k {
		if !a.fac.Factor(a.c, n, classOf(a.col, delta, c)) {
			return 0, false
		}
		logDet += a.fac.LogDet
		a.fac.Expand(&a.exp, a.c, n)
		vc := t.class(c, n)
		a.fac.Covariance(vc, &a.exp)
		dense.FillUpper(vc, n)
		floats.Add(t.lagrange, vc)
		for i := range n {
			x := vc[i*n+i]
			v[i*k+c] = x
			logDet += delta[i*k+c] * x / float64(k)
		}
	}
	for i := range a.col {
		a.col[i] = floats.Sum(delta[i*k:(i+1)*k]) / float64(k)
	}
	if !a.fac.Factor(a.c, n, a.col) {
		return 0, false
	}
	logDet -= a.fac.LogDet
	a.fac.Expand(&a.exp, a.c, n)
	ok = a.fac.Variances(t.common, &a.exp) && (dense.Cholesky(t.lagrange, n) || t.ridge(n))
	return logDet, ok && !math.IsNaN(logDet) && !a.crew.Halt.Stopped()
}

// Equal rows make Σ_c V_c singular. Its factor is then the factor of the sum with leastRidge of
// its largest element added to the diagonal, or more up to mostRidge.
const (
	leastRidge = 1e-14
	mostRidge  = 1e-8
)

// ridge factors Σ_c V_c after adding to its diagonal. It returns false if even mostRidge is too
// little.
func (t *softmaxGPState) ridge(n int) bool {
	for part := leastRidge; part <= mostRidge; part *= 10 {
		clear(t.lagrange)
		for c := range len(t.v) / (n * n) {
			floats.Add(t.lagrange, t.class(c, n))
		}
		most := 0.0
		for i := range n {
			most = math.Max(most, t.lagrange[i*n+i])
		}
		for i := range n {
			t.lagrange[i*n+i] += part * most
		}
		if dense.Cholesky(t.lagrange, n) {
			return true
		}
	}
	return false
}

// class returns V_c.
func (t *softmaxGPState) class(c, n int) []float64 { return t.v[c*n*n : (c+1)*n*n] }

// times stores V_c x_c of all classes in dst.
func (a *softmaxGPBase) times(t *softmaxGPState, dst, x []float64) {
	for c := range a.k {
		dense.Symv(1, dense.Symmetric(t.class(c, a.n), a.n), dense.Vector(classOf(a.col, x, c)), 0,
			dense.Vector(a.out))
		for i, y := range a.out {
			dst[i*a.k+c] = y
		}
	}
}

// restrict stores V_c(r_c − λ) of all classes in z, where λ makes their sum over classes 0, and
// subtracts λ from r.
func (a *softmaxGPBase) restrict(t *softmaxGPState, z, r []float64) {
	a.times(t, z, r)
	sum := make([]float64, a.n)
	for i := range sum {
		sum[i] = floats.Sum(z[i*a.k : (i+1)*a.k])
	}
	dense.Potrs(t.lagrange, sum)
	for i, l := range sum {
		floats.AddConst(-l, r[i*a.k:(i+1)*a.k])
	}
	a.times(t, z, r)
}

// Move implements Mover.
func (a *softmaxGPBase) Move(d, delta, u []float64) (square float64) {
	a.restrict(&a.try, d, u)
	a.contrasts(d, u, delta)
	return floats.Dot(u, d)
}

// contrasts completes the r of restrict to C⁻¹z = r − Γz. The common part of all classes is only
// rounding in z if ΣV_c is nearly singular, and may be large in r. It is removed from both,
// because neither has a common part.
func (a *softmaxGPBase) contrasts(z, r, gamma []float64) {
	for i, x := range z {
		r[i] -= gamma[i] * x
	}
	for i := 0; i < len(z); i += a.k {
		for _, x := range [][]float64{z[i : i+a.k], r[i : i+a.k]} {
			floats.AddConst(-floats.Sum(x)/float64(a.k), x)
		}
	}
}

// Accept implements Mover.
func (a *softmaxGPBase) Accept() {
	a.cur, a.try = a.try, a.cur
	a.moved, a.sure = true, 0
}

// use, restart, start, follow, stale, settled, save and resume implement keeper.
func (a *softmaxGPBase) use(c term.Crew)            { a.crew = c }
func (a *softmaxGPBase) restart()                   { a.moved = false }
func (a *softmaxGPBase) start()                     {}
func (a *softmaxGPBase) follow() (distance float64) { return math.NaN() }
func (a *softmaxGPBase) stale()                     {}
func (a *softmaxGPBase) settled() bool              { return true }

func (a *softmaxGPBase) save(c *save.Coder) {
	moved := a.moved
	c.Float(&a.sure)
	a.trend.state(c)
	if c.Bool(&moved); c.Reading() {
		a.resumed = moved
	}
}

func (a *softmaxGPBase) resume(gamma []float64) {
	if !a.resumed {
		return
	}
	a.resumed = false
	if _, ok := a.Cover(make([]float64, len(gamma)), gamma); ok {
		sure := a.sure // Accept clears it
		a.Accept()
		a.sure = sure
	}
}

// ready, prove and decrement implement prover. There is no proof, and the predicted gain is the
// gain of aim. If that may meet a goal, Newton's step computes the gain that the precisions still
// have.
func (a *softmaxGPBase) ready() (bool, error) { return true, nil }

func (a *softmaxGPBase) prove(within float64) (Proof, error) {
	p := Proof{made: true, bound: math.Inf(1)}
	a.sure = 0
	if gap := a.decrement(); gap <= max(within, contrastGPGoal, contrastGPGoalRow*float64(a.n)) {
		if sure, ok := a.newton(&a.of.Batch.Cur.Marginals); ok {
			a.sure = sure
		}
	}
	return p, a.crew.Halt.Err()
}

func (a *softmaxGPBase) decrement() float64 {
	if p := &a.of.Batch; a.of.Batched && a.moved && p.aim() {
		return a.mean + max(a.sure, a.precision)
	}
	return math.Inf(1)
}

// The aim of the precisions takes gpPrecisions conjugate gradients, and changes a precision by a
// factor of at least e^−gpLess and at most 1 + gpMore. A precision of at most gpBound of its
// prior precision that should decrease is at its bound and stays. Most precisions are at their
// bound under a wide prior, and would predict a gain that they cannot reach.
const (
	gpPrecisions = 3
	gpLess       = 3
	gpMore       = 20
	gpBound      = 1e-2
)

// aim implements aimer. The step of the means is the step of contrast.aim, with C⁻¹ in place of
// Λ. The γ are Newton's, with the Hessian −½(1 − 1/K) V_c∘V_c.
func (a *softmaxGPBase) aim(dst, step, gamma []float64, s *term.Marginals) bool {
	if !a.moved {
		return false
	}
	t := &a.cur
	dense.ResizeAll(a.n*a.k, &a.r, &a.z, &a.p, &a.q, &a.s, &a.e)
	dense.ResizeAll(a.n, &a.col, &a.out)
	a.h.set(s.Tg, a.k)
	// (C⁻¹ + H)δ = α̂ − a, with q = C⁻¹p for each direction p.
	floats.SubTo(a.r, s.D1, s.A)
	clear(step)
	copy(a.q, a.r)
	a.restrict(t, a.p, a.q)
	a.contrasts(a.p, a.q, t.gamma)
	rho := floats.Dot(a.r, a.p)
	a.mean = 0
	for first, tries := rho, 0; rho > 0 && tries < aimSolves && !a.crew.Halt.Stopped(); tries++ {
		copy(a.e, a.p)
		a.h.times(a.e)
		floats.Add(a.e, a.q)
		curve := floats.Dot(a.p, a.e)
		if !(curve > 0) {
			return false
		}
		length := rho / curve
		a.mean += 0.5 * length * rho
		floats.AddScaled(step, length, a.p)
		floats.AddScaled(a.r, -length, a.e)
		copy(a.s, a.r)
		a.restrict(t, a.z, a.s)
		a.contrasts(a.z, a.s, t.gamma)
		next := floats.Dot(a.r, a.z)
		if !(next > aimReduction*aimReduction*first) {
			break
		}
		for i, x := range a.z {
			a.p[i] = x + next/rho*a.p[i]
			a.q[i] = a.s[i] + next/rho*a.q[i]
		}
		rho = next
	}
	copy(a.e, step)
	a.h.times(a.e)
	floats.SubTo(dst, s.D1, a.e)
	a.precision = 0
	for c := range a.k {
		a.precise(gamma, s, c)
	}
	return true
}

// fine implements finer, by Newton's step of the precisions.
func (a *softmaxGPBase) fine(gamma []float64, s *term.Marginals) bool {
	if _, ok := a.newton(s); !ok {
		return false
	}
	for c := range a.k {
		for i := range a.n {
			gamma[i*a.k+c] = a.cur.gamma[i*a.k+c] * math.Exp(a.step.y[c*a.n+i])
		}
	}
	return true
}

// precise stores the γ to aim at of class c in gamma, and adds their predicted gain to
// a.precision.
func (a *softmaxGPBase) precise(gamma []float64, s *term.Marginals, c int) {
	n, k, t := a.n, a.k, &a.cur
	v, part := t.class(c, n), 1-1/float64(k)
	r, z, p, q, x := a.r[:n], a.z[:n], a.p[:n], a.q[:n], a.e[:n]
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
	scaled := func() { // by the diagonal of V∘V
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
		bound[i] = r[i] <= 0 && t.gamma[i*k+c]*a.c[i*n+i] <= gpBound
	}
	scaled()
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
		a.precision += 0.25 * l * rho / part
		floats.AddScaled(x, l, p)
		floats.AddScaled(r, -l, q)
		scaled()
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
	_ Base   = (*softmaxGPBase)(nil)
	_ keeper = (*softmaxGPBase)(nil)
	_ prover = (*softmaxGPBase)(nil)
	_ aimer  = (*softmaxGPBase)(nil)
	_ finer  = (*softmaxGPBase)(nil)
)

// SoftmaxGP is the Algebra of K functions with a dense covariance, by contrast mean field.
type SoftmaxGP struct{ BaseAlgebra }

// NewSoftmaxGP returns the prior of terms of K latent values, each with covariance c in both
// triangles.
func NewSoftmaxGP(t *term.Terms, c []float64, workers term.Crew) (*SoftmaxGP, error) {
	s := &SoftmaxGP{}
	a := &softmaxGPBase{n: t.Len(), k: t.K, c: c, of: &s.BaseAlgebra}
	return s, s.begin(t, a, workers)
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
	a := s.on.(*softmaxGPBase)
	n, k, part := a.n, a.k, 1-1/float64(a.k)
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
		v := a.cur.class(c, n)
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
	for i := range gamma {
		gamma[i] = floats.Sum(s.Cur.Gamma[i*k:(i+1)*k]) / float64(k)
	}
	if !a.fac.Factor(a.c, n, gamma) {
		return false
	}
	a.fac.Expand(&a.exp, a.c, n)
	a.fac.Covariance(own, &a.exp) // (C⁻¹ + Γ̄)⁻¹
	dense.FillUpper(own, n)
	for i, g := range gamma {
		for j, x := range own[i*n : (i+1)*n] {
			w[i*n+j] += g * x * gamma[j]
		}
		w[i*n+i] -= g
	}
	return true
}

// Covariance returns the prior covariance, both triangles.
func (s *SoftmaxGP) Covariance() []float64 { return s.on.(*softmaxGPBase).c }

// The gap at which the precisions are good enough is contrastGPGoalRow nats per row, but at least
// contrastGPGoal nats. V∘V is nearly singular, and its flat directions take many passes.
const (
	contrastGPGoalRow = 3e-5
	contrastGPGoal    = 1e-3
)

// Evaluate implements Algebra.
func (s *SoftmaxGP) Evaluate(within float64) (siteEvaluation, error) {
	e, err := s.BaseAlgebra.Evaluate(within)
	e.Gap = max(e.Gap, s.on.(*softmaxGPBase).trend.left(e.ELBO))
	e.Goal = max(contrastGPGoal, contrastGPGoalRow*float64(s.Terms.Len()))
	return e, err
}
