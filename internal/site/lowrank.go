package site

import (
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file holds the low-rank family of covariances, V⁻¹ = diag(d) + UUᵀ, and the linear algebra
// of FactoredAlgebra (factored.go): products with the Hessian of the mean, conjugate gradients and
// the history of L-BFGS. The diagonal family is in factored_diag.go.

// lowRankFamily is the family of V with V⁻¹ = P = diag(d) + UUᵀ. Its coordinates are log e and U,
// with d_j = e_j + leastUnique·(UUᵀ)_jj. The minimum of ½(tr(AV) + log|P|) is the
// maximum-likelihood factor analysis with A in the place of the sample covariance.
type lowRankFamily struct {
	cur, try *gauss.LowRank
	e, etry  []float64 // e of cur and of try
	w, aw    []float64 // VU and AVU
	k        []float64 // UᵀVU
	kc       []float64 // Cholesky factor of the matrix that replaces K in F
	metric   []float64 // F⁻¹ of log e
	t        []float64
	product  []float64
	scratch  []float64
}

// leastUnique is about the smallest fraction of P_jj that belongs to d_j, because diag(d)⁻¹ − ZZᵀ
// loses digits in proportion to it.
const leastUnique = 1e-6

// NewLowRankFamily returns the family of the given rank. Its V is the inverse of diag(prec).
func NewLowRankFamily(prec []float64, rank int) *lowRankFamily {
	n := len(prec)
	f := &lowRankFamily{cur: gauss.NewLowRank(n, rank), try: gauss.NewLowRank(n, rank)}
	copy(f.cur.D, prec)
	f.e, f.etry = append([]float64(nil), prec...), make([]float64, n)
	f.w, f.aw, f.k, f.kc = make([]float64, n*rank), make([]float64, n*rank),
		make([]float64, rank*rank), make([]float64, rank*rank)
	f.metric, f.t, f.product = make([]float64, n), make([]float64, rank), make([]float64, rank*rank)
	f.cur.Factor()
	return f
}

// Size implements covFamily.
func (f *lowRankFamily) Size() int { return len(f.cur.D) * (1 + f.cur.Rank) }

// Gradient implements covFamily. With W = VU, B = WᵀAW and K = UᵀVU it is
//
//	∂/∂U = V(P − A)VU = W − V AW,   V AW = diag(d)⁻¹(AW − UB),
//	∂/∂d_j = ½(V − VAV)_jj,   d_j²(VAV)_jj = A_jj − 2(U AWᵀ)_jj + (UBUᵀ)_jj,
//
// the first with d held fixed. The Fisher information of log e is near ½e_j²V_jj². The Fisher
// information of U maps δ to VδK plus a term of the same size.
func (f *lowRankFamily) Gradient(g []float64, a *WeightHessian) {
	c := f.cur
	n, k := len(c.D), c.Rank
	copy(f.w, c.Z)
	dense.Trsm(blas.Right, blas.NoTrans, 1, dense.LowerTriangle(c.L, k), dense.General(f.w, n, k))
	a.Mul(f.aw, f.w, k)
	b := f.product
	gauss.SelfProduct(b, f.w, f.aw, k)
	gauss.SelfProduct(f.k, f.w, c.U, k)
	gu := g[n:]
	for j, d := range c.D {
		u, w, aw := c.U[j*k:(j+1)*k], f.w[j*k:(j+1)*k], f.aw[j*k:(j+1)*k]
		clear(f.t)
		for i, x := range u {
			floats.AddScaled(f.t, x, b[i*k:(i+1)*k])
		}
		own := math.Max(0, 1-floats.Dot(u, w)) // d_jV_jj
		gd := 0.5 * (own - (a.diag[j]-2*floats.Dot(u, aw)+floats.Dot(u, f.t))/d) / d
		g[j] = gd * f.e[j]
		own = math.Max(own*f.e[j]/d, 0.03)
		f.metric[j] = 2 / (own * own)
		row := gu[j*k : (j+1)*k]
		for i := range row {
			row[i] = w[i] - (aw[i]-f.t[i])/d + 2*leastUnique*gd*u[i]
		}
	}
	copy(f.kc, f.k)
	for i := range k {
		f.kc[i*k+i] += 0.4
	}
	dense.Cholesky(f.kc, k)
}

// natural applies F⁻¹: 2/(e_jV_jj)² to log e, and g ↦ Pg(K + 0.4I)⁻¹ to U. The 0.4 keeps weak
// factors from running away.
func (f *lowRankFamily) natural(g []float64) {
	c := f.cur
	n, k := len(c.D), c.Rank
	for j, m := range f.metric {
		g[j] = math.Max(-3, math.Min(3, g[j]*m))
	}
	gu := g[n:]
	dense.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(f.kc, k), dense.General(gu, n, k))
	dense.Trsm(blas.Right, blas.NoTrans, 1, dense.LowerTriangle(f.kc, k), dense.General(gu, n, k))
	gauss.SelfProduct(f.product, c.U, gu, k)
	for j, d := range c.D {
		row := gu[j*k : (j+1)*k]
		floats.Scale(d, row)
		for i, x := range c.U[j*k : (j+1)*k] {
			floats.AddScaled(row, x, f.product[i*k:(i+1)*k])
		}
	}
}

// begun reports whether U ≠ 0. At 0 its gradient is zero.
func (f *lowRankFamily) begun() bool {
	for _, u := range f.cur.U {
		if u != 0 {
			return true
		}
	}
	return false
}

// begin moves to the factors of A with D = diag(A), and to the e that they leave.
func (f *lowRankFamily) begin(dst []float64, a *WeightHessian) {
	// Below 1 there is no factor; a small one can still grow.
	f.factors(dst, a, a.diag, 1.01, false)
}

// renew moves to the best U given d, and to the e that it leaves of diag(A). Gradients may have
// led to eigenvectors other than the leading ones, which are also stationary.
func (f *lowRankFamily) renew(dst []float64, a *WeightHessian) bool {
	f.factors(dst, a, f.cur.D, 1, true)
	return true
}

// factors stores in dst the move to the U of leading and to the e that it leaves of diag(A).
func (f *lowRankFamily) factors(dst []float64, a *WeightHessian, d []float64, least float64,
	warm bool) {
	clear(dst)
	n, r := len(d), f.cur.Rank
	f.leading(dst[n:], a, d, least, warm)
	for j, v := range a.diag {
		u := dst[n+j*r : n+(j+1)*r]
		dst[j] = math.Log(math.Max(v-floats.Dot(u, u), 0.05*v) / f.e[j])
	}
	floats.Sub(dst[n:], f.cur.U)
}

// The Krylov space of leading begins with krylovExtra vectors more than factors, and has
// krylovBlocks blocks.
const (
	krylovExtra  = 8
	krylovBlocks = 5
)

// leading stores the minimizer of ½(tr(AV) + log|V⁻¹|) given d in u. It is d^½Q(Λ − I)₊^½ with
// the leading eigenvalues and vectors of S = d^−½Ad^−½, where eigenvalues below least are
// replaced by least (Lawley and Maxwell, 1971). Ritz vectors approximate them. The block Krylov
// space starts from random vectors and, if warm is set, from the current U (Musco and Musco,
// 2015). It uses all blocks instead of the last block alone, because the leading part of a flat
// spectrum is spread over all of them.
func (f *lowRankFamily) leading(u []float64, a *WeightHessian, d []float64, least float64,
	warm bool) {
	n, r := len(d), f.cur.Rank
	k := min(n, r+krylovExtra)
	q := make([]float64, n*k)
	f.scratch = dense.Resize(f.scratch, n*k)
	rng := rand.New(rand.NewPCG(leadingSeed1, leadingSeed2))
	for j := range n {
		row := q[j*k : (j+1)*k]
		for b := range row {
			row[b] = rng.NormFloat64()
		}
		if warm { // approximately the current U
			copy(row[:r], f.cur.U[j*r:(j+1)*r])
			floats.Scale(1/math.Sqrt(d[j]), row[:r])
		}
	}
	values, vectors := dense.Leading(a.halt, q, k, r, krylovBlocks, func(y, x []float64) {
		for j, v := range d {
			floats.ScaleTo(f.scratch[j*k:(j+1)*k], 1/math.Sqrt(v), x[j*k:(j+1)*k])
		}
		a.Mul(y, f.scratch, k)
		for j, v := range d {
			floats.Scale(1/math.Sqrt(v), y[j*k:(j+1)*k])
		}
	})
	for i, v := range values {
		values[i] = math.Sqrt(math.Max(v, least) - 1)
	}
	for j, v := range d {
		floats.MulTo(u[j*r:(j+1)*r], vectors[j*r:(j+1)*r], values)
		floats.Scale(math.Sqrt(v), u[j*r:(j+1)*r])
	}
}

// Move implements covFamily.
func (f *lowRankFamily) Move(t float64, delta []float64) {
	c, n := f.try, len(f.cur.D)
	k := c.Rank
	copy(c.U, f.cur.U)
	if t != 0 {
		floats.AddScaled(c.U, t, delta[n:])
	}
	for j, e := range f.e {
		if t != 0 {
			e *= math.Exp(t * delta[j])
		}
		u := c.U[j*k : (j+1)*k]
		least := leastUnique * floats.Dot(u, u)
		e = math.Max(e, 1e-20*least) // too small to have an effect
		f.etry[j], c.D[j] = e, e+least
	}
	if !c.Factor() {
		c.LogDet = math.NaN()
	}
}

// secant implements covFamily.
func (f *lowRankFamily) secant(dst []float64) {
	n := len(f.e)
	for j, e := range f.e {
		dst[j] = math.Log(e / f.etry[j])
	}
	floats.SubTo(dst[n:], f.cur.U, f.try.U)
}

// Variances implements covFamily.
func (f *lowRankFamily) Variances(v []float64, x *design.Matrix, s *design.Work) {
	f.try.VariancesOn(v, x, nil, s)
}

// Divergence implements covFamily.
func (f *lowRankFamily) Divergence(p *gauss.Prior) float64 {
	c := f.try
	n, k := len(c.D), c.Rank
	kl := c.LogDet - p.LogDet() - float64(n)
	if p.Full == nil {
		for j, d := range c.D {
			z := c.Z[j*k : (j+1)*k]
			kl += p.Prec[j] * (1/d - floats.Dot(z, z))
		}
		return 0.5 * kl
	}
	p.Mul(f.aw, c.Z, k)
	for j, d := range c.D {
		kl += p.Full.P[j*n+j] / d
	}
	return 0.5 * (kl - floats.Dot(f.aw, c.Z))
}

// Accept implements covFamily.
func (f *lowRankFamily) Accept() {
	f.cur, f.try = f.try, f.cur
	f.e, f.etry = f.etry, f.e
}

// precondition implements covFamily.
func (f *lowRankFamily) precondition(dst, r []float64,
	_ *WeightHessian) {
	f.cur.Solve(dst, r, f.t)
}

// cov implements covFamily.
func (f *lowRankFamily) cov() gauss.Cov {
	c := gauss.NewLowRank(len(f.cur.D), f.cur.Rank)
	copy(c.D, f.cur.D)
	copy(c.U, f.cur.U)
	c.Factor()
	return c
}

// covFamily is a family of covariances V. It stores a current V and a candidate V that a step
// tries. FactoredAlgebra moves it and accepts the candidate.
type covFamily interface {
	// Size returns the number of coordinates φ.
	Size() int
	// Gradient stores the gradient of ½(tr(AV) + log|V⁻¹|) in φ in g.
	Gradient(g []float64, a *WeightHessian)
	// natural replaces g by F⁻¹g, where F is close to the Fisher information in φ.
	natural(g []float64)
	// begin stores in dst a move toward argmin ½(tr(AV) + log|V⁻¹|) from any distance. A is
	// positive definite.
	begin(dst []float64, a *WeightHessian)
	// begun reports whether the gradient at the current V is a useful direction.
	begun() bool
	// renew stores in dst a move to a V that gradients may not reach, with the same ½(tr(AV) +
	// log|V⁻¹|) or less. It returns false if the family has no such move.
	renew(dst []float64, a *WeightHessian) bool
	// Move makes φ + tδ the candidate, or the nearest valid V.
	Move(t float64, delta []float64)
	// secant stores the current φ minus the φ of the candidate, which was current before.
	secant(dst []float64)
	// Variances stores x_nᵀVx_n of the candidate. The numbers are invalid if s.Halt has stopped.
	Variances(v []float64, x *design.Matrix, s *design.Work)
	// Divergence returns ½(tr(Λ0V) − D + log|V⁻¹| − log|Λ0|) of the candidate.
	Divergence(p *gauss.Prior) float64
	// Accept exchanges the current V and the candidate.
	Accept()
	// precondition stores M⁻¹r in dst, where M is close to A.
	precondition(dst, r []float64, a *WeightHessian)
	// cov returns a copy of the current V.
	cov() gauss.Cov
	// state writes or reads the current V.
	state(c *save.Coder)
}

// WeightHessian is the Hessian A = Λ0 + Xᵀ diag(w) X of the mean. It multiplies by A without
// storing A, and factors A only if that pays.
type WeightHessian struct {
	X     *design.Matrix
	Prior *gauss.Prior
	w     []float64
	diag  []float64 // the diagonal of A
	buf   []float64
	work  design.Work
	halt  *parallel.Halt // products are invalid once it has stopped

	chol         []float64 // the factor of direct
	unit, row    []float64 // units of the rows of chol, and scratch
	tried, Exact bool      // Direct was called at these weights; it found a factor
	Dual         bool      // the factor is over the rows
}

// Set sets the weights and computes the diagonal. It keeps w.
func (a *WeightHessian) Set(w []float64) {
	a.w, a.diag, a.tried, a.Exact = w, dense.Resize(a.diag, a.X.Cols), false, false
	a.Prior.DiagTo(a.diag)
	a.X.AddSquares(a.diag, w, nil, a.scratch())
}

// Mul stores Az in dst. Both are cols×k.
func (a *WeightHessian) Mul(dst, z []float64, k int) {
	a.Prior.Mul(dst, z, k)
	a.X.AddGramMul(dst[:a.X.Cols*k], z, k, a.w, a.scratch())
}

// scratch returns the memory for products with the rows.
func (a *WeightHessian) scratch() *design.Work {
	a.work.Halt = a.halt
	return &a.work
}

// Direct factors A, or a matrix over the rows that replaces it. It factors over the weights if
// that takes at most directFew multiplications, because the factor then has more digits. It gives
// up if the factor takes more than directMost multiplications, or more memory than both the rows
// and directSmall numbers.
const (
	directFew   = 1e7
	directMost  = 1e9
	directSmall = 1e6
)

// factorWork returns the multiplications and the size of a factor, and whether the factor is over
// the rows.
func (a *WeightHessian) factorWork() (work, size float64, dual bool) {
	n, d, per := float64(a.X.Rows), float64(a.X.Cols), float64(a.X.PerRow())
	work, size = n*per*per/2+d*d*d/3, d*d
	if rows := n*n*per + n*n*n/3; work > directFew && rows < work && a.Prior.Full == nil {
		work, size, dual = rows, n*n, true
	}
	return work, size, dual
}

// directWork returns factorWork for a factor of acceptable size, and +Inf multiplications if the
// factor is too large.
func (a *WeightHessian) directWork() (work float64, dual bool) {
	work, size, dual := a.factorWork()
	if work > directMost || size > max(directSmall, float64(a.X.Rows)*float64(a.X.PerRow())) {
		work = math.Inf(1)
	}
	return work, dual
}

// due reports whether the given number of products with A is as much work as a factor of A. At
// that point a factor pays: the total work is at most twice the least possible, however many
// products would have followed.
func (a *WeightHessian) due(products int) bool {
	work, _ := a.directWork()
	return 2*float64(products)*float64(a.X.Rows)*float64(a.X.PerRow()) >= work
}

// Direct computes the factor for Solve, and returns false if it is too large or does not exist.
// It factors A in units of its diagonal. If there are many weights and few rows under a diagonal
// prior, it factors I + W^½XΛ0⁻¹XᵀW^½, which has fewer digits.
func (a *WeightHessian) Direct() bool {
	if a.tried {
		return a.Exact
	}
	a.tried = true
	n, d := a.X.Rows, a.X.Cols
	m := d
	work, dual := a.directWork()
	if a.Dual = dual; math.IsInf(work, 1) {
		return false
	}
	if dual {
		m = n
	}
	a.chol, a.unit, a.buf = dense.Resize(a.chol, m*m), dense.Resize(a.unit, m),
		dense.Resize(a.buf, d)
	clear(a.chol)
	if a.Dual {
		a.row = dense.Resize(a.row, d)
		for i, w := range a.w {
			if w < 0 || a.halt.Stopped() {
				return false
			}
			a.unit[i] = math.Sqrt(w)
			a.X.Dense1(a.buf, i)
			for j, p := range a.Prior.Prec {
				a.row[j] = a.unit[i] * a.buf[j] / p
			}
			a.X.Mul(a.chol[i*n:(i+1)*n], a.row, nil)
		}
		for i := range n {
			floats.Mul(a.chol[i*n:(i+1)*n], a.unit)
			a.chol[i*n+i]++
		}
	} else {
		for j, v := range a.diag {
			a.unit[j] = 1 / math.Sqrt(v)
		}
		if a.X.AddGram(a.chol, a.w, nil, a.scratch()); a.halt.Stopped() {
			return false
		}
		p := a.Prior.Full
		for j, u := range a.unit {
			row := a.chol[j*d : j*d+j+1]
			for k, v := range a.unit[:j] {
				if p != nil {
					row[k] += p.P[j*d+k]
				}
				row[k] *= u * v
			}
			row[j] = 1 + 4*float64(d)*dense.Epsilon
		}
	}
	a.Exact = dense.CholeskyUntil(a.halt, a.chol, m)
	return a.Exact
}

// Solve stores A⁻¹r in dst, by the factor of Direct.
func (a *WeightHessian) Solve(dst, r []float64) {
	if !a.Dual {
		floats.MulTo(dst, r, a.unit)
		dense.Potrs(a.chol, dst)
		floats.Mul(dst, a.unit)
		return
	}
	a.Prior.Solve(dst, r)
	a.buf = dense.Resize(a.buf, a.X.Rows)
	a.X.Mul(a.buf, dst, nil)
	floats.Mul(a.buf, a.unit)
	dense.Potrs(a.chol, a.buf)
	floats.Mul(a.buf, a.unit)
	copy(dst, r)
	floats.Scale(-1, a.buf)
	a.X.AddMulTOn(dst, a.buf, nil, a.scratch())
	a.Prior.Solve(dst, dst)
}

// conjugateGradients minimizes ½δᵀAδ − gᵀδ (Hestenes and Stiefel, 1952).
type conjugateGradients struct {
	r, z, p, q []float64
	Iterations int // over all calls of solve
}

// maxCG bounds the iterations of conjugate gradients. When a factor of A is due, it becomes their
// metric, because almost equal columns otherwise need very many iterations. Columns far from zero
// are almost equal to an intercept. A low-rank V is close to A⁻¹ and is as good a metric for
// lowRankCG iterations at least. A proof never uses the factor. It needs a residual that is small
// in units of the prior, and rounding in the metric of A may leave any residual there.
const (
	maxCG     = 1000
	lowRankCG = 50
)

// solve stores the minimizer in delta. The remaining residual r has a predicted gain ½rᵀM⁻¹r
// below tol, or below the part min(0.01, ρ) of its first value ρ. A Newton step to that accuracy
// keeps the quadratic convergence of an exact step (Dembo, Eisenstat and Steihaug, 1982).
//
// The preconditioner M may be far above A in directions that columns almost share. If proof is
// set, the residual is measured by the prior instead, ½rᵀΛ0⁻¹r ≥ ½rᵀA⁻¹r, until that is below
// tol.
func (c *conjugateGradients) solve(delta []float64, a *WeightHessian, g []float64, m covFamily,
	tol float64, proof bool) {
	dense.ResizeAll(len(g), &c.r, &c.z, &c.p, &c.q)
	clear(delta)
	copy(c.r, g)
	m.precondition(c.z, c.r, a)
	copy(c.p, c.z)
	rho := floats.Dot(c.r, c.z)
	enough := math.Max(tol, math.Min(1e-2, 0.5*rho)*0.5*rho)
	direct, lost, least := false, false, 0
	if _, ok := m.(*lowRankFamily); ok {
		least = lowRankCG
	}
	for k := 0; k < maxCG && rho > 0 && !a.halt.Stopped() &&
		(k == 0 || !proof && 0.5*rho > enough || proof && c.unseen(a) > tol); k++ {
		c.Iterations++
		a.Mul(c.q, c.p, 1)
		curve := floats.Dot(c.p, c.q)
		if !(curve > 0) || math.IsInf(curve, 0) {
			break
		}
		step := rho / curve
		floats.AddScaled(delta, step, c.p)
		floats.AddScaled(c.r, -step, c.q)
		next, was := 0.0, direct
		if direct = !proof && !lost && k >= least && a.due(k+1) && a.Direct(); direct {
			a.Solve(c.z, c.r)
			next = floats.Dot(c.r, c.z)
			direct = next > 0
			lost = !direct // rounding hides the metric
		}
		if !direct {
			m.precondition(c.z, c.r, a)
			next = floats.Dot(c.r, c.z)
		}
		if direct != was {
			copy(c.p, c.z) // start again in the new metric
		} else {
			floats.AddScaledTo(c.p, c.z, next/rho, c.p)
		}
		rho = next
	}
}

// unseen returns ½rᵀΛ0⁻¹r of the last residual r. It bounds the gain that the step missed.
func (c *conjugateGradients) unseen(a *WeightHessian) float64 {
	a.Prior.Solve(c.q, c.r)
	return 0.5 * floats.Dot(c.q, c.r)
}

// secants stores the last steps of an iteration and the changes of the gradient along them.
// L-BFGS turns another inverse Hessian H into its own with them: unfold, H and fold are applied
// to a gradient in turn.
type secants struct {
	pairs []*secant // oldest first
	open  bool      // the last pair lacks the new gradient
}

// secant is a step s with the change y of the gradient along it.
type secant struct {
	s, y    []float64
	sy, alp float64
}

const secantDepth = 8

// len returns the number of pairs.
func (h *secants) len() int { return len(h.pairs) }

// Reset drops all pairs.
func (h *secants) Reset() { h.pairs, h.open = h.pairs[:0], false }

// next returns the memory for a step and for the gradient before it.
func (h *secants) next(n int) *secant {
	switch {
	case len(h.pairs) == secantDepth || h.open && len(h.pairs) > 0:
		at := 0
		if h.open {
			at = len(h.pairs) - 1
		}
		p := h.pairs[at]
		copy(h.pairs[at:], h.pairs[at+1:])
		h.pairs[len(h.pairs)-1] = p
	case len(h.pairs) < cap(h.pairs):
		h.pairs = h.pairs[:len(h.pairs)+1]
	default:
		h.pairs = append(h.pairs, nil)
	}
	p := &h.pairs[len(h.pairs)-1]
	if *p == nil {
		*p = &secant{s: make([]float64, n), y: make([]float64, n)}
	}
	h.open = true
	return *p
}

// complete adds the gradient after the step to the last pair. A pair without positive curvature
// is dropped.
func (h *secants) complete(g []float64) {
	if !h.open {
		return
	}
	h.open = false
	p := h.pairs[len(h.pairs)-1]
	floats.SubTo(p.y, g, p.y)
	p.sy = floats.Dot(p.s, p.y)
	if !(p.sy > 0) || math.IsInf(1/p.sy, 0) {
		h.pairs = h.pairs[:len(h.pairs)-1]
	}
}

// unfold stores the first half of the two-loop recursion of L-BFGS for the gradient g in dst.
func (h *secants) unfold(dst, g []float64) {
	copy(dst, g)
	for k := len(h.pairs) - 1; k >= 0; k-- {
		p := h.pairs[k]
		p.alp = floats.Dot(p.s, dst) / p.sy
		floats.AddScaled(dst, -p.alp, p.y)
	}
}

// fold applies the second half of the recursion to dst.
func (h *secants) fold(dst []float64) {
	for _, p := range h.pairs {
		floats.AddScaled(dst, p.alp-floats.Dot(p.y, dst)/p.sy, p.s)
	}
}

// state writes or reads the pairs, whose vectors have n numbers.
func (h *secants) state(c *save.Coder, n int) {
	size := len(h.pairs)
	c.Int(&size)
	c.Bool(&h.open)
	c.Check(size <= secantDepth, "%d secants, of at most %d", size, secantDepth)
	if c.Err() != nil {
		return
	}
	if c.Reading() {
		h.pairs = nil
		for range size {
			h.pairs = append(h.pairs, &secant{})
		}
	}
	for _, p := range h.pairs {
		c.Floats(n, &p.s, &p.y)
		c.Float(&p.sy)
	}
}

// state implements covFamily.
func (f *lowRankFamily) state(c *save.Coder) {
	n, k := len(f.cur.D), f.cur.Rank
	c.Floats(n, &f.cur.D, &f.e)
	c.Floats(n*k, &f.cur.U)
	if c.Reading() {
		c.Check(f.cur.Factor(), "its covariance overflows")
	}
}

// leading uses this seed.
const leadingSeed1, leadingSeed2 = 0x5eed, 0xe1b0
