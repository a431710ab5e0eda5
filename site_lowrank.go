package pgsvi

import (
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// lowRankFamily is the family of V with V⁻¹ = P = diag(d) + UUᵀ. Its coordinates
// are log e and U, d_j = e_j + leastUnique·(UUᵀ)_jj. What minimises ½(tr(AV) + log|P|) is the maximum-likelihood
// factor analysis of A in the place of a sample covariance.
type lowRankFamily struct {
	cur, try *lowRankCov
	e, etry  []float64 // of cur and try
	w, aw    []float64 // VU and AVU
	k        []float64 // UᵀVU
	kc       []float64 // the Cholesky factor of what stands for it in F
	metric   []float64 // F⁻¹ of log e
	t        []float64
	product  []float64
	scratch  []float64
}

// leastUnique is the least part of P_jj, nearly, that is d_j's: diag(d)⁻¹ − ZZᵀ loses as many digits.
const leastUnique = 1e-6

func newLowRankFamily(prec []float64, rank int) *lowRankFamily {
	n := len(prec)
	f := &lowRankFamily{cur: newLowRankCov(n, rank), try: newLowRankCov(n, rank)}
	copy(f.cur.d, prec)
	f.e, f.etry = append([]float64(nil), prec...), make([]float64, n)
	f.w, f.aw, f.k, f.kc = make([]float64, n*rank), make([]float64, n*rank), make([]float64, rank*rank), make([]float64, rank*rank)
	f.metric, f.t, f.product = make([]float64, n), make([]float64, rank), make([]float64, rank*rank)
	f.cur.factor()
	return f
}

func (f *lowRankFamily) size() int { return len(f.cur.d) * (1 + f.cur.rank) }

// gradient is, with W = VU, B = WᵀAW and K = UᵀVU,
//
//	∂/∂U = V(P − A)VU = W − V AW,   V AW = diag(d)⁻¹(AW − UB),
//	∂/∂d_j = ½(V − VAV)_jj,   d_j²(VAV)_jj = A_jj − 2(U AWᵀ)_jj + (UBUᵀ)_jj,
//
// the first with d held fixed. The Fisher information of log e is near ½e_j²V_jj², and that of U maps δ to VδK
// plus a term of the same size.
func (f *lowRankFamily) gradient(g []float64, a *weightHessian) {
	c := f.cur
	n, k := len(c.d), c.rank
	copy(f.w, c.z)
	blas64.Trsm(blas.Right, blas.NoTrans, 1, dense.LowerTriangle(c.l, k), dense.General(f.w, n, k))
	a.mul(f.aw, f.w, k)
	b := f.product
	selfProduct(b, f.w, f.aw, k)
	selfProduct(f.k, f.w, c.u, k)
	gu := g[n:]
	for j, d := range c.d {
		u, w, aw := c.u[j*k:(j+1)*k], f.w[j*k:(j+1)*k], f.aw[j*k:(j+1)*k]
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

// natural applies F⁻¹: 2/(e_jV_jj)² to log e, and g ↦ Pg(K + 0.4I)⁻¹ to U: weak factors are not to run away.
func (f *lowRankFamily) natural(g []float64) {
	c := f.cur
	n, k := len(c.d), c.rank
	for j, m := range f.metric {
		g[j] = math.Max(-3, math.Min(3, g[j]*m))
	}
	gu := g[n:]
	blas64.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(f.kc, k), dense.General(gu, n, k))
	blas64.Trsm(blas.Right, blas.NoTrans, 1, dense.LowerTriangle(f.kc, k), dense.General(gu, n, k))
	selfProduct(f.product, c.u, gu, k)
	for j, d := range c.d {
		row := gu[j*k : (j+1)*k]
		floats.Scale(d, row)
		for i, x := range c.u[j*k : (j+1)*k] {
			floats.AddScaled(row, x, f.product[i*k:(i+1)*k])
		}
	}
}

// begun reports whether U ≠ 0: at 0 it has no gradient.
func (f *lowRankFamily) begun() bool {
	for _, u := range f.cur.u {
		if u != 0 {
			return true
		}
	}
	return false
}

// begin moves to the factors of A that there are with D = diag(A), and what they leave as e.
func (f *lowRankFamily) begin(dst []float64, a *weightHessian) {
	clear(dst)
	n, r := len(f.cur.d), f.cur.rank
	// Below 1 there is no factor; a small one can still grow.
	f.leading(dst[n:], a, a.diag, 1.01, false)
	for j, v := range a.diag {
		u := dst[n+j*r : n+(j+1)*r]
		dst[j] = math.Log(math.Max(v-floats.Dot(u, u), 0.05*v) / f.e[j])
	}
	floats.Sub(dst[n:], f.cur.u)
}

// renew moves to the best U given d: gradients may have led to eigenvectors other than
// the leading ones, which are stationary, too.
func (f *lowRankFamily) renew(dst []float64, a *weightHessian) bool {
	clear(dst)
	n := len(f.cur.d)
	f.leading(dst[n:], a, f.cur.d, 1, true)
	floats.Sub(dst[n:], f.cur.u)
	return true
}

// leading stores in u what minimises ½(tr(AV) + log|V⁻¹|) given d: d^½Q(Λ − I)₊^½ with
// the leading eigenvalues and vectors of d^−½Ad^−½ (Lawley and Maxwell, 1971), eigenvalues
// being at least the given one. They are found by a
// few steps of subspace iteration from random vectors (Halko, Martinsson and Tropp, 2011).
func (f *lowRankFamily) leading(u []float64, a *weightHessian, d []float64, least float64, warm bool) {
	n, r := len(d), f.cur.rank
	k := min(n, r+8)
	rng := rand.New(rand.NewPCG(seed1, seed2))
	q, y := make([]float64, n*k), make([]float64, n*k)
	for j := range n {
		row := q[j*k : (j+1)*k]
		for b := range row {
			row[b] = rng.NormFloat64()
		}
		if warm { // nearly those of the current U
			copy(row[:r], f.cur.u[j*r:(j+1)*r])
			floats.Scale(1/math.Sqrt(d[j]), row[:r])
		}
	}
	scale := func(x []float64) {
		for j, v := range d {
			floats.Scale(1/math.Sqrt(v), x[j*k:(j+1)*k])
		}
	}
	l := make([]float64, k*k)
	orthonormal := func(x []float64) bool {
		for range 2 { // by Cholesky factors, twice for their rounding
			selfProduct(l, x, x, k)
			var trace float64
			for i := range k {
				trace += l[i*k+i]
			}
			for i := range k {
				l[i*k+i] += 1e-14 * trace
			}
			if !dense.Cholesky(l, k) {
				return false
			}
			blas64.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(l, k), dense.General(x, n, k))
		}
		return true
	}
	const steps = 4
	for step := range steps + 1 {
		if !orthonormal(q) {
			return
		}
		scratch := append(f.scratch[:0], q...)
		f.scratch = scratch
		scale(scratch)
		a.mul(y, scratch, k)
		scale(y)
		if step < steps {
			q, y = y, q
		}
	}
	selfProduct(l, q, y, k)
	var eig mat.EigenSym
	if !eig.Factorize(dense.FullSym(l, k), true) {
		return
	}
	var vec mat.Dense
	eig.VectorsTo(&vec)
	values := eig.Values(nil)
	for j, v := range d {
		for b := range r {
			var x float64
			for i := range k {
				x += q[j*k+i] * vec.At(i, k-1-b)
			}
			u[j*r+b] = x * math.Sqrt(v*(math.Max(values[k-1-b], least)-1))
		}
	}
}

func (f *lowRankFamily) move(t float64, delta []float64) {
	c, n := f.try, len(f.cur.d)
	k := c.rank
	copy(c.u, f.cur.u)
	if t != 0 {
		floats.AddScaled(c.u, t, delta[n:])
	}
	for j, e := range f.e {
		if t != 0 {
			e *= math.Exp(t * delta[j])
		}
		u := c.u[j*k : (j+1)*k]
		least := leastUnique * floats.Dot(u, u)
		e = math.Max(e, 1e-20*least) // where it has no effect
		f.etry[j], c.d[j] = e, e+least
	}
	if !c.factor() {
		c.logDet = math.NaN()
	}
}

func (f *lowRankFamily) secant(dst []float64) {
	n := len(f.e)
	for j, e := range f.e {
		dst[j] = math.Log(e / f.etry[j])
	}
	floats.SubTo(dst[n:], f.cur.u, f.try.u)
}

func (f *lowRankFamily) variances(v []float64, x *design) {
	for i := range v {
		ind, val := x.row(i)
		v[i] = f.try.variance(ind, val, f.t)
	}
}

func (f *lowRankFamily) divergence(p *weightPrior) float64 {
	c := f.try
	n, k := len(c.d), c.rank
	kl := c.logDet - p.logDet() - float64(n)
	if p.full == nil {
		for j, d := range c.d {
			z := c.z[j*k : (j+1)*k]
			kl += p.prec[j] * (1/d - floats.Dot(z, z))
		}
		return 0.5 * kl
	}
	p.mul(f.aw, c.z, k)
	for j, d := range c.d {
		kl += p.full.p[j*n+j] / d
	}
	return 0.5 * (kl - floats.Dot(f.aw, c.z))
}

func (f *lowRankFamily) accept() {
	f.cur, f.try = f.try, f.cur
	f.e, f.etry = f.etry, f.e
}

func (f *lowRankFamily) precondition(dst, r []float64, _ *weightHessian) { f.cur.solve(dst, r, f.t) }

func (f *lowRankFamily) cov() weightCov {
	c := newLowRankCov(len(f.cur.d), f.cur.rank)
	copy(c.d, f.cur.d)
	copy(c.u, f.cur.u)
	c.factor()
	return c
}
