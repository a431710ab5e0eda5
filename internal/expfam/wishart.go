package expfam

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// WishartFamily is the family of Wishart(ν, W) distributions of a D×D matrix Λ. With a = ν/2 and
// B = ½W⁻¹ the density is
//
//	q(Λ) = h(Λ) |Λ|^a exp(−tr BΛ − A(η)),   h = |Λ|^{−(D+1)/2}.
//
// z holds the lower triangle of Λ row by row. η holds a and the lower triangle of −B, with
// off-diagonal elements counted twice.
type WishartFamily struct{ D int }

// wishartWork holds B, its Cholesky factor c and its inverse inv as full D×D matrices, and scratch.
type wishartWork struct{ B, c, inv, s, t, u, v []float64 }

// WishartPool holds scratch memory for the methods of WishartFamily and NormalWishartFamily.
var WishartPool = sync.Pool{New: func() any { return new(wishartWork) }}

// work returns a wishartWork whose B is unpacked from the natural parameters, which hold −B. The
// caller puts it back into WishartPool.
func (f WishartFamily) work(packed []float64) *wishartWork {
	w, d := WishartPool.Get().(*wishartWork), f.D
	for _, m := range []*[]float64{&w.B, &w.c, &w.inv, &w.s, &w.t} {
		*m = dense.Resize(*m, d*d)
	}
	w.u, w.v = dense.Resize(w.u, d), dense.Resize(w.v, d)
	dense.Unpack(w.B, packed, d, -1, -0.5)
	return w
}

// factor stores the Cholesky factor of B in w.c and the inverse of B in w.inv. It reports false
// if B is not positive definite.
func (w *wishartWork) factor(d int) bool {
	copy(w.c, w.B)
	if !dense.Cholesky(w.c, d) {
		return false
	}
	copy(w.inv, w.c)
	dense.Invert(w.inv, d)
	return true
}

// String returns the name of the family.
func (f WishartFamily) String() string { return fmt.Sprintf("Wishart of %d×%d", f.D, f.D) }

// Dim returns the length of z, the number of elements of a lower triangle.
func (f WishartFamily) Dim() int { return f.D * (f.D + 1) / 2 }

// NumParams returns the length of η.
func (f WishartFamily) NumParams() int { return 1 + f.Dim() }

// logGamma returns the logarithm of the multivariate gamma function at a.
func (f WishartFamily) logGamma(a float64) float64 {
	d := float64(f.D)
	v := 0.25 * d * (d - 1) * math.Log(math.Pi)
	for i := range f.D {
		lg, _ := math.Lgamma(a - 0.5*float64(i))
		v += lg
	}
	return v
}

// Digamma returns the derivative of logGamma at a.
func (f WishartFamily) Digamma(a float64) (v float64) {
	for i := range f.D {
		v += special.Digamma(a - 0.5*float64(i))
	}
	return v
}

// trigammaGap returns the second derivative of logGamma at a, minus D/a.
func (f WishartFamily) trigammaGap(a float64) (v float64) {
	for i := range f.D {
		h := 0.5 * float64(i)
		v += special.TrigammaGap(a-h) + h/a/(a-h)
	}
	return v
}

// valid reports whether a is a valid shape.
func (f WishartFamily) valid(a float64) bool { return a > 0.5*float64(f.D-1) }

// LogPartition returns A(η) = log Γ_D(a) − a log|B|. It is +Inf if η is not valid.
func (f WishartFamily) LogPartition(eta []float64) float64 {
	if !f.valid(eta[0]) {
		return math.Inf(1)
	}
	w := f.work(eta[1:])
	defer WishartPool.Put(w)
	copy(w.c, w.B)
	if !dense.Cholesky(w.c, f.D) {
		return math.Inf(1)
	}
	return f.logGamma(eta[0]) - eta[0]*dense.LogDet(w.c, f.D)
}

// Mean stores E[log|Λ|] and E[Λ] = aB⁻¹ in dst.
func (f WishartFamily) Mean(dst, eta []float64) {
	w := f.work(eta[1:])
	defer WishartPool.Put(w)
	w.factor(f.D)
	dst[0] = f.Digamma(eta[0]) - dense.LogDet(w.c, f.D)
	dense.Pack(dst[1:], w.inv, f.D, eta[0], eta[0])
}

// Fisher stores ∇²A(η) in dst.
func (f WishartFamily) Fisher(dst *mat.SymDense, eta []float64) { FisherByColumns(dst, f, eta) }

// trace returns tr ab for symmetric matrices.
func trace(a, b []float64) float64 { return floats.Dot(a, b) }

// sandwich stores c·xyx in dst, for symmetric x and y; it overwrites t.
func sandwich(dst []float64, c float64, x, y, t []float64, d int) {
	dense.MulSquare(t, x, y, d)
	dense.MulSquare(dst, t, x, d)
	floats.Scale(c, dst)
}

// slope returns dE[log|Λ|] and stores dE[Λ] in w.s, for the changes da and dB. dB is in w.s
// before.
func (f WishartFamily) slope(w *wishartWork, a, da float64) float64 {
	log := (f.trigammaGap(a)+float64(f.D)/a)*da - trace(w.inv, w.s)
	sandwich(w.B, -a, w.inv, w.s, w.t, f.D)
	floats.AddScaledTo(w.s, w.B, da, w.inv)
	return log
}

// solve inverts slope: for dE[log|Λ|] and dE[Λ], which is in w.s, it returns da and stores dB in
// w.s.
func (f WishartFamily) solve(w *wishartWork, a, log float64) (da float64) {
	da = (log - trace(w.B, w.s)/a) / f.trigammaGap(a)
	sandwich(w.inv, -1/a, w.B, w.s, w.t, f.D)
	floats.AddScaledTo(w.s, w.inv, da/a, w.B)
	return da
}

// FisherMul stores ∇²A(η)g in dst.
func (f WishartFamily) FisherMul(dst, g, eta []float64) {
	w := f.work(eta[1:])
	defer WishartPool.Put(w)
	w.factor(f.D)
	dense.Unpack(w.s, g[1:], f.D, -1, -0.5)
	dst[0] = f.slope(w, eta[0], g[0])
	dense.Pack(dst[1:], w.s, f.D, 1, 1)
}

// FisherSolve stores ∇²A(η)⁻¹g in dst.
func (f WishartFamily) FisherSolve(dst, g, eta []float64) {
	w := f.work(eta[1:])
	defer WishartPool.Put(w)
	dense.Unpack(w.s, g[1:], f.D, 1, 1)
	dst[0] = f.solve(w, eta[0], g[0])
	dense.Pack(dst[1:], w.s, f.D, -1, -2)
}

// Stat stores T(z) = (log|Λ|, Λ) in dst.
func (f WishartFamily) Stat(dst, z []float64) {
	dst[0] = f.logDet(z)
	copy(dst[1:], z)
}

// logDet returns log|Λ|. It is −Inf if Λ is not positive definite.
func (f WishartFamily) logDet(packed []float64) float64 {
	w := f.work(packed)
	defer WishartPool.Put(w)
	dense.Unpack(w.c, packed, f.D, 1, 1)
	if !dense.Cholesky(w.c, f.D) {
		return math.Inf(-1)
	}
	return dense.LogDet(w.c, f.D)
}

// LogBase returns log h(z) = −½(D+1) log|Λ|, and −Inf if Λ is not positive definite.
func (f WishartFamily) LogBase(z []float64) float64 {
	if log := f.logDet(z); !math.IsInf(log, -1) {
		return -0.5 * float64(f.D+1) * log
	}
	return math.Inf(-1)
}

// Rand stores a draw in z and T(z) in t.
func (f WishartFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	w := f.work(eta[1:])
	defer WishartPool.Put(w)
	t[0] = f.draw(w, eta[0], rng)
	dense.Pack(z, w.B, f.D, 1, 1)
	copy(t[1:], z)
}

// draw returns log|Λ| of a draw Λ by the decomposition of Bartlett (1933). It stores Λ in w.B and
// a root M with Λ = MMᵀ in w.s. With B = CCᵀ the root is C⁻ᵀA/√2, where the lower triangle A has
// roots of χ² variables on its diagonal and normal variables below. w.c holds C and w.t holds A.
func (f WishartFamily) draw(w *wishartWork, a float64, rng *rand.Rand) (logDet float64) {
	d := f.D
	copy(w.c, w.B)
	if !dense.Cholesky(w.c, d) {
		panic("pgsvi: natural parameters of a Wishart distribution are not valid")
	}
	clear(w.t)
	for i := range d {
		lg := logGammaRand(a-0.5*float64(i), rng)
		logDet += lg
		w.t[i*d+i] = math.Sqrt2 * math.Exp(0.5*lg)
		for j := range i {
			w.t[i*d+j] = rng.NormFloat64()
		}
	}
	logDet -= dense.LogDet(w.c, d)
	for i, x := range w.t {
		w.s[i] = x / math.Sqrt2
	}
	dense.Trsm(blas.Left, blas.Trans, 1, dense.LowerTriangle(w.c, d), dense.General(w.s, d, d))
	dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(w.s, d, d), dense.General(w.s, d, d), 0,
		dense.General(w.B, d, d))
	return logDet
}

// Entropy returns −E[log q] in nats. Terms of size a log a are left out because they cancel.
func (f WishartFamily) Entropy(eta []float64) float64 {
	w := f.work(eta[1:])
	defer WishartPool.Put(w)
	w.factor(f.D)
	return f.entropy(w, eta[0])
}

// entropy is Entropy for a factored w.
func (f WishartFamily) entropy(w *wishartWork, a float64) float64 {
	d := float64(f.D)
	h := 0.25*d*(d-1)*math.Log(math.Pi) - 0.5*(d+1)*dense.LogDet(w.c, f.D)
	for i := range f.D {
		half := 0.5 * float64(i)
		x := a - half
		h += 0.5*(d-float64(i))*math.Log(x) + half + special.LogSqrt2Pi + special.Binet(x) +
			(a-0.5*(d+1))*special.DigammaGap(x)
	}
	return h
}

// Divergence returns KL(q‖p), in nats.
func (f WishartFamily) Divergence(eta, etaP []float64) float64 {
	w, p := f.work(eta[1:]), f.work(etaP[1:])
	defer WishartPool.Put(w)
	defer WishartPool.Put(p)
	return f.kl(w, p, eta[0], etaP[0])
}

// kl returns KL(q‖p) = a_p(tr U − D − log|U|) plus the remainders of the Bregman divergences of
// log Γ, where U = (a/a_p)C⁻¹B_pC⁻ᵀ and B = CCᵀ. With U = LLᵀ the first part is a sum of the
// squares below the diagonal of L and of g(L_ii²) with g(u) = u − 1 − log u, so nothing cancels.
func (f WishartFamily) kl(w, p *wishartWork, a, ap float64) float64 {
	d := f.D
	if !w.factor(d) {
		return math.NaN()
	}
	l := dense.LowerTriangle(w.c, d)
	dense.Trsm(blas.Left, blas.NoTrans, 1, l, dense.General(p.B, d, d))
	dense.Trsm(blas.Right, blas.Trans, a/ap, l, dense.General(p.B, d, d))
	if !dense.Cholesky(p.B, d) {
		return math.NaN()
	}
	var kl float64
	for i := range d {
		for _, x := range p.B[i*d : i*d+i] {
			kl += ap * x * x
		}
		x, half := p.B[i*d+i], 0.5*float64(i)
		kl += ap*special.LogGap(x*x) + special.GammaRest(ap-half, a-half)
		// Terms x log x at a_p − i/2 and a − i/2, minus the terms at a_p and a.
		kl += ap*(logLess(ap, half)-logLess(a, half)) - half*math.Log((ap-half)/(a-half))
	}
	return kl
}

// logLess returns log(1 − h/a) for a > h ≥ 0.
func logLess(a, h float64) float64 {
	if h > 0.5*a {
		return math.Log((a - h) / a)
	}
	return math.Log1p(-h / a)
}

// FromMean stores the η with the mean parameters mu in dst. It reports false if mu is not
// attained.
func (f WishartFamily) FromMean(dst, mu []float64) bool {
	w := f.work(mu[1:])
	defer WishartPool.Put(w)
	dense.Unpack(w.B, mu[1:], f.D, 1, 1)
	a, ok := f.shape(w, mu[0])
	dst[0] = a
	dense.Pack(dst[1:], w.inv, f.D, -a, -2*a)
	return ok
}

// shape returns the a with E[log|Λ|] = log for the E[Λ] in w.B, and stores its inverse B/a in
// w.inv. It solves Σ_i log a − ψ(a − i/2) = log|E[Λ]| − E[log|Λ|]. It reports false if no a does.
func (f WishartFamily) shape(w *wishartWork, log float64) (a float64, ok bool) {
	if !w.factor(f.D) {
		return 0, false
	}
	y := dense.LogDet(w.c, f.D) - log
	if !(y > 0) {
		return 0, false
	}
	edge := 0.5 * float64(f.D-1)
	a = edge + math.Exp(root(func(x float64) float64 {
		rest, gap := math.Exp(x), 0.0
		for i := range f.D {
			half := 0.5 * float64(i)
			gap += special.DigammaGap(edge-half+rest) - logLess(edge+rest, half)
		}
		return math.Log(gap / y)
	}))
	return a, f.valid(a) && !math.IsInf(a, 1)
}

// Chart stores log(a − ½(D−1)) and the log-Cholesky factor of B in dst.
func (f WishartFamily) Chart(dst, eta []float64) {
	w := f.work(eta[1:])
	defer WishartPool.Put(w)
	dst[0] = math.Log(eta[0] - 0.5*float64(f.D-1))
	f.chart(dst[1:], w)
}

// chart stores the log-Cholesky factor of B in dst.
func (f WishartFamily) chart(dst []float64, w *wishartWork) {
	copy(w.c, w.B)
	dense.Cholesky(w.c, f.D)
	k := 0
	for i := range f.D {
		k += copy(dst[k:], w.c[i*f.D:i*f.D+i])
		dst[k] = math.Log(w.c[i*f.D+i])
		k++
	}
}

// FromChart stores the η with chart x in dst.
func (f WishartFamily) FromChart(dst, x []float64) {
	w := f.work(x[1:])
	defer WishartPool.Put(w)
	dst[0] = math.Exp(x[0]) + 0.5*float64(f.D-1)
	f.fromChart(w, x[1:])
	dense.Pack(dst[1:], w.B, f.D, -1, -2)
}

// fromChart stores the B with the log-Cholesky factor x in w.B.
func (f WishartFamily) fromChart(w *wishartWork, x []float64) {
	d := f.D
	clear(w.c)
	k := 0
	for i := range d {
		k += copy(w.c[i*d:i*d+i], x[k:])
		w.c[i*d+i] = math.Exp(x[k])
		k++
	}
	dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(w.c, d, d), dense.General(w.c, d, d), 0,
		dense.General(w.B, d, d))
}

// ChartGrad turns the gradient g in η into the gradient in the chart and stores it in dst.
func (f WishartFamily) ChartGrad(dst, g, eta []float64) {
	w := f.work(eta[1:])
	defer WishartPool.Put(w)
	dst[0] = g[0] * (eta[0] - 0.5*float64(f.D-1))
	dense.Unpack(w.s, g[1:], f.D, 1, 1)
	f.chartGrad(dst[1:], w)
}

// chartGrad stores −2SC in dst, the gradient in the Cholesky factor C of B. The gradient in B is
// −S, and S is in w.s.
func (f WishartFamily) chartGrad(dst []float64, w *wishartWork) {
	d := f.D
	clear(w.c)
	for i := range d {
		copy(w.c[i*d:], w.B[i*d:i*d+i+1])
	}
	dense.Cholesky(w.c, d)
	dense.MulSquare(w.t, w.s, w.c, d)
	k := 0
	for i := range d {
		for j := range i + 1 {
			dst[k] = -2 * w.t[i*d+j]
			if i == j {
				dst[k] *= w.c[i*d+i]
			}
			k++
		}
	}
}

// NormalWishartFamily is the family of a mean x and a precision Λ, where Λ has a Wishart distribution
// and x given Λ is N(m, (κΛ)⁻¹). h is (2π|Λ|)^{−D/2}.
type NormalWishartFamily struct{ Wishart WishartFamily }

// NormalWishart holds the parameters of a member except for B.
type NormalWishart struct {
	A, Kappa float64
	M        []float64
}

// String returns the name of the family.
func (f NormalWishartFamily) String() string {
	return fmt.Sprintf("NormalWishart of %d dimensions", f.Wishart.D)
}

// Dim returns the length of z: D for x and a lower triangle for Λ.
func (f NormalWishartFamily) Dim() int { return f.Wishart.D + f.Wishart.Dim() }

// NumParams returns the length of η.
func (f NormalWishartFamily) NumParams() int { return f.Wishart.NumParams() + f.Wishart.D + 1 }

// split returns the parts of a vector that is laid out as η: the coefficients of log|Λ|, Λ, Λx
// and xᵀΛx.
func (f NormalWishartFamily) split(eta []float64) (a float64, lambda, x []float64, s float64) {
	n := f.Wishart.NumParams()
	return eta[0], eta[1:n], eta[n : n+f.Wishart.D], eta[n+f.Wishart.D]
}

// join stores the coefficients of log|Λ| and xᵀΛx in dst, and returns the parts of dst for Λ and
// Λx.
func (f NormalWishartFamily) join(dst []float64, a, s float64) (lambda, x []float64) {
	_, lambda, x, _ = f.split(dst)
	dst[0], dst[len(dst)-1] = a, s
	return lambda, x
}

// Pack stores the natural parameters of x with the matrix b in eta.
func (f NormalWishartFamily) Pack(eta []float64, x NormalWishart, b []float64) {
	lambda, v := f.join(eta, x.A, -0.5*x.Kappa)
	dense.Pack(lambda, b, f.Wishart.D, -1, -2)
	AddOuter(lambda, -0.5*x.Kappa, x.M, x.M)
	for i, m := range x.M {
		v[i] = x.Kappa * m
	}
}

// AddOuter adds c(xyᵀ + yxᵀ)/2 to a packed symmetric matrix whose off-diagonal elements count
// twice.
func AddOuter(packed []float64, c float64, x, y []float64) {
	k := 0
	for i := range x {
		for j := range i {
			packed[k] += c * (x[i]*y[j] + x[j]*y[i])
			k++
		}
		packed[k] += c * x[i] * y[i]
		k++
	}
}

// Unpack returns the parameters of eta, with B in w.B and m in w.u. The caller puts w back into
// WishartPool. It reports false if κ is not positive.
func (f NormalWishartFamily) Unpack(eta []float64) (x NormalWishart, w *wishartWork, ok bool) {
	a, lambda, v, s := f.split(eta)
	w, d := f.Wishart.work(lambda), f.Wishart.D
	x = NormalWishart{A: a, Kappa: -2 * s, M: w.u}
	for i, vi := range v {
		x.M[i] = vi / x.Kappa
	}
	for i := range d {
		for j := range d {
			w.B[i*d+j] -= 0.5 * v[i] * x.M[j]
		}
	}
	return x, w, x.Kappa > 0
}

// LogPartition returns A(η). It is +Inf if η is not valid.
func (f NormalWishartFamily) LogPartition(eta []float64) float64 {
	x, w, ok := f.Unpack(eta)
	defer WishartPool.Put(w)
	copy(w.c, w.B)
	d := f.Wishart.D
	if !ok || !f.Wishart.valid(x.A) || !dense.Cholesky(w.c, d) {
		return math.Inf(1)
	}
	return f.Wishart.logGamma(x.A) - x.A*dense.LogDet(w.c, d) - 0.5*float64(d)*math.Log(x.Kappa)
}

// Mean stores E[log|Λ|], E[Λ], E[Λx] = E[Λ]m and E[xᵀΛx] = mᵀE[Λ]m + D/κ in dst, as η is laid
// out.
func (f NormalWishartFamily) Mean(dst, eta []float64) {
	x, w, _ := f.Unpack(eta)
	defer WishartPool.Put(w)
	d := f.Wishart.D
	w.factor(d)
	floats.Scale(x.A, w.inv) // E[Λ]
	dense.Symv(1, dense.Symmetric(w.inv, d), dense.Vector(x.M), 0, dense.Vector(w.v))
	lambda, v := f.join(dst, f.Wishart.Digamma(x.A)-dense.LogDet(w.c, d),
		float64(d)/x.Kappa+floats.Dot(x.M, w.v))
	dense.Pack(lambda, w.inv, d, 1, 1)
	copy(v, w.v)
}

// Fisher stores ∇²A(η) in dst.
func (f NormalWishartFamily) Fisher(dst *mat.SymDense,
	eta []float64) {
	FisherByColumns(dst, f, eta)
}

// FisherMul stores ∇²A(η)g in dst. It follows a change of η through (a, B, m, κ) to the change of
// μ.
func (f NormalWishartFamily) FisherMul(dst, g, eta []float64) {
	x, w, _ := f.Unpack(eta)
	defer WishartPool.Put(w)
	d := f.Wishart.D
	w.factor(d)
	da, lambda, v, s := f.split(g)
	dKappa := -2 * s
	dm := w.v
	for i, vi := range v {
		dm[i] = (vi - dKappa*x.M[i]) / x.Kappa
	}
	// dB is minus the matrix of g, minus the change of κmmᵀ.
	dense.Unpack(w.s, lambda, d, -1, -0.5)
	for i := range d {
		for j := range d {
			w.s[i*d+j] -= 0.5*dKappa*x.M[i]*x.M[j] + 0.5*x.Kappa*(dm[i]*x.M[j]+x.M[i]*dm[j])
		}
	}
	log := f.Wishart.slope(w, x.A, da) // dE[Λ] is in w.s, B⁻¹ still in w.inv
	change, square := w.t[:d], 0.0     // changes of E[Λx] and E[xᵀΛx]
	for i := range d {
		row, inv := w.s[i*d:(i+1)*d], w.inv[i*d:(i+1)*d]
		along, across := floats.Dot(row, x.M), x.A*floats.Dot(inv, dm)
		change[i] = along + across
		square += x.M[i] * (along + 2*across)
	}
	packed, out := f.join(dst, log, square-float64(d)*dKappa/(x.Kappa*x.Kappa))
	dense.Pack(packed, w.s, d, 1, 1)
	copy(out, change)
}

// FisherSolve stores ∇²A(η)⁻¹g in dst. It takes the way of FisherMul backward.
func (f NormalWishartFamily) FisherSolve(dst, g, eta []float64) {
	x, w, _ := f.Unpack(eta)
	defer WishartPool.Put(w)
	d := f.Wishart.D
	log, lambda, v, s := f.split(g)
	dense.Unpack(w.s, lambda, d, 1, 1) // dE[Λ]
	// E[Λ]dm = dE[Λx] − dE[Λ]m.
	e, square := w.c[:d], 0.0
	for i := range d {
		along := floats.Dot(w.s[i*d:(i+1)*d], x.M)
		e[i] = v[i] - along
		square += x.M[i] * (along + 2*e[i])
	}
	dm := w.v
	for i := range d {
		dm[i] = floats.Dot(w.B[i*d:(i+1)*d], e) / x.A
	}
	dKappa := -x.Kappa * x.Kappa / float64(d) * (s - square)
	da := f.Wishart.solve(w, x.A, log) // dB is in w.s
	packed, out := f.join(dst, da, -0.5*dKappa)
	dense.Pack(packed, w.s, d, -1, -2)
	AddOuter(packed, -0.5*dKappa, x.M, x.M)
	AddOuter(packed, -x.Kappa, x.M, dm)
	for i := range out {
		out[i] = dKappa*x.M[i] + x.Kappa*dm[i]
	}
}

// Stat stores T(z) in dst: log|Λ|, Λ, Λx and xᵀΛx.
func (f NormalWishartFamily) Stat(dst, z []float64) {
	d := f.Wishart.D
	lambda, v := f.join(dst, f.Wishart.logDet(z[d:]), 0)
	copy(lambda, z[d:])
	clear(v)
	k := d
	for i := range d {
		for j := range i {
			v[i] += z[k] * z[j]
			v[j] += z[k] * z[i]
			k++
		}
		v[i] += z[k] * z[i]
		k++
	}
	dst[len(dst)-1] = floats.Dot(v, z[:d])
}

// LogBase returns log h(z), and −Inf if Λ is not positive definite.
func (f NormalWishartFamily) LogBase(z []float64) float64 {
	d := float64(f.Wishart.D)
	if log := f.Wishart.logDet(z[f.Wishart.D:]); !math.IsInf(log, -1) {
		return -0.5 * d * (log + Log2Pi)
	}
	return math.Inf(-1)
}

// Rand stores a draw in z and T(z) in t.
func (f NormalWishartFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	x, w, _ := f.Unpack(eta)
	defer WishartPool.Put(w)
	d := f.Wishart.D
	log := f.Wishart.draw(w, x.A, rng)
	for i := range w.v {
		w.v[i] = rng.NormFloat64() / math.Sqrt(x.Kappa)
	}
	dense.Pack(z[d:], w.B, d, 1, 1)
	// With Λ = MMᵀ and x = m + M⁻ᵀε/√κ, Λx = Λm + Mε/√κ: T(z) needs no inverse.
	lambda, v := f.join(t, log, floats.Dot(w.v, w.v))
	copy(lambda, z[d:])
	for i := range d {
		along, across := floats.Dot(w.B[i*d:(i+1)*d], x.M), floats.Dot(w.s[i*d:(i+1)*d], w.v)
		v[i] = along + across
		t[len(t)-1] += x.M[i] * (along + 2*across)
	}
	// M⁻ᵀ = √2CA⁻ᵀ.
	dense.Trsv(blas.Trans, dense.LowerTriangle(w.t, d), dense.Vector(w.v))
	dense.Trmv(blas.NoTrans, dense.LowerTriangle(w.c, d), dense.Vector(w.v))
	for i := range d {
		z[i] = x.M[i] + math.Sqrt2*w.v[i]
	}
}

// Entropy returns the entropy of Λ plus the mean entropy of x given Λ, in nats.
func (f NormalWishartFamily) Entropy(eta []float64) float64 {
	x, w, _ := f.Unpack(eta)
	defer WishartPool.Put(w)
	w.factor(f.Wishart.D)
	log := f.Wishart.Digamma(x.A) - dense.LogDet(w.c, f.Wishart.D)
	return f.Wishart.entropy(w, x.A) +
		0.5*float64(f.Wishart.D)*(1+Log2Pi-math.Log(x.Kappa)) - 0.5*log
}

// Divergence returns the KL divergence of Λ plus the mean KL divergence of x given Λ, in nats.
func (f NormalWishartFamily) Divergence(eta, etaP []float64) float64 {
	x, w, _ := f.Unpack(eta)
	defer WishartPool.Put(w)
	p, wp, _ := f.Unpack(etaP)
	defer WishartPool.Put(wp)
	d := f.Wishart.D
	kl := f.Wishart.kl(w, wp, x.A, p.A) + 0.5*float64(d)*special.LogGap(p.Kappa/x.Kappa)
	floats.SubTo(w.v, x.M, p.M)
	for i, v := range w.v {
		kl += 0.5 * p.Kappa * x.A * v * floats.Dot(w.inv[i*d:(i+1)*d], w.v)
	}
	return kl
}

// FromMean stores the η with the mean parameters mu in dst. It reports false if mu is not
// attained.
func (f NormalWishartFamily) FromMean(dst, mu []float64) bool {
	log, lambda, v, square := f.split(mu)
	w, d := f.Wishart.work(lambda), f.Wishart.D
	defer WishartPool.Put(w)
	dense.Unpack(w.B, lambda, d, 1, 1)
	a, ok := f.Wishart.shape(w, log)
	if !ok {
		return false
	}
	m := w.u
	copy(m, v)
	dense.Potrs(w.c, m)
	kappa := float64(d) / (square - floats.Dot(m, v))
	floats.Scale(a, w.inv)
	f.Pack(dst, NormalWishart{A: a, Kappa: kappa, M: m}, w.inv)
	return kappa > 0 && !math.IsInf(kappa, 1)
}

// Chart stores log(a − ½(D−1)), the log-Cholesky factor of B, m and log κ in dst, laid out as η.
func (f NormalWishartFamily) Chart(dst, eta []float64) {
	x, w, _ := f.Unpack(eta)
	defer WishartPool.Put(w)
	factor, m := f.join(dst, math.Log(x.A-0.5*float64(f.Wishart.D-1)), math.Log(x.Kappa))
	f.Wishart.chart(factor, w)
	copy(m, x.M)
}

// FromChart stores the η with the given chart in dst.
func (f NormalWishartFamily) FromChart(dst, chart []float64) {
	a, factor, m, log := f.split(chart)
	w := f.Wishart.work(factor)
	defer WishartPool.Put(w)
	f.Wishart.fromChart(w, factor)
	f.Pack(dst, NormalWishart{A: math.Exp(a) + 0.5*float64(f.Wishart.D-1), Kappa: math.Exp(log),
		M: m}, w.B)
}

// ChartGrad turns the gradient g in η into the gradient in the chart and stores it in dst.
func (f NormalWishartFamily) ChartGrad(dst, g, eta []float64) {
	x, w, _ := f.Unpack(eta)
	defer WishartPool.Put(w)
	d := f.Wishart.D
	a, lambda, v, s := f.split(g)
	dense.Unpack(w.s, lambda, d, 1, 1)
	// η = (a, −B − ½κmmᵀ, κm, −½κ). The gradient with respect to the matrix is in w.s.
	slope, dKappa := w.v, -0.5*s+floats.Dot(v, x.M)
	for i := range d {
		along := floats.Dot(w.s[i*d:(i+1)*d], x.M)
		slope[i] = x.Kappa * (v[i] - along)
		dKappa -= 0.5 * x.M[i] * along
	}
	factor, m := f.join(dst, a*(x.A-0.5*float64(d-1)), x.Kappa*dKappa)
	f.Wishart.chartGrad(factor, w)
	copy(m, slope)
}
