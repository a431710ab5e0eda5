package pgsvi

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

// NewWishart returns the Wishart distribution of ν > d − 1 degrees of freedom and a scale W over d×d precision matrices Λ,
//
//	q(Λ) ∝ |Λ|^{(ν−d−1)/2} exp(−½ tr W⁻¹Λ),   E[Λ] = νW,
//
// in the coordinates MeanParams. A z is the lower triangle of Λ, row by row: element (i, j), j ≤ i, at i(i+1)/2 + j. With that
// order T(z) = (log|Λ|, Λ) and η = (ν/2, −½W⁻¹), in which an element off the diagonal counts twice and is −(W⁻¹)_ij. It has a chart,
// the logarithm of ν − d + 1 and the log-Cholesky factor of ½W⁻¹. Scale is copied. It returns an error wrapping
// ErrEmpty if scale is nil or has no dimensions, ErrParam if df is not above d − 1 and finite, or ErrNotPosDef if scale is not
// positive definite.
func NewWishart(df float64, scale mat.Symmetric) (*Exp, error) {
	b, d, err := wishartParams("Wishart", df, scale)
	if err != nil {
		return nil, err
	}
	f := wishartFamily{d}
	eta := make([]float64, f.NumParams())
	eta[0] = df / 2
	dense.Pack(eta[1:], b, d, -1, -2)
	return NewExp(f, eta)
}

// NewNormalWishart returns the distribution of a mean x and a precision matrix Λ, x ~ N(m, (κΛ)⁻¹) and Λ ~ Wishart(ν, W):
// the conjugate prior of a Gaussian. A z is x, of d elements, then the lower triangle of Λ as for NewWishart, and
//
//	T(z) = (log|Λ|, Λ, Λx, xᵀΛx),   η = (ν/2, −½(W⁻¹ + κmmᵀ), κm, −½κ)
//
// with the matrix as for NewWishart, in the coordinates MeanParams. Center the data, so that κmmᵀ does not hide W⁻¹. It
// has a chart: that of the Wishart distribution, m and log κ. The arguments are copied; a nil mean means
// zero. It returns an error wrapping ErrShape if mean and scale disagree, ErrParam if kappa is not positive and finite, and
// those of NewWishart.
func NewNormalWishart(mean []float64, kappa, df float64, scale mat.Symmetric) (*Exp, error) {
	b, d, err := wishartParams("NormalWishart", df, scale)
	if err != nil {
		return nil, err
	}
	if mean == nil {
		mean = make([]float64, d)
	}
	if len(mean) != d {
		return nil, fmt.Errorf("pgsvi: mean of NormalWishart has %d elements, scale is %d×%d: %w", len(mean), d, d, ErrShape)
	}
	if !(kappa > 0) || math.IsInf(kappa, 1) {
		return nil, fmt.Errorf("pgsvi: kappa of NormalWishart is %v; it must be positive and finite: %w", kappa, ErrParam)
	}
	f := normalWishartFamily{wishartFamily{d}}
	eta := make([]float64, f.NumParams())
	x := normalWishart{a: df / 2, kappa: kappa, m: mean}
	f.pack(eta, x, b)
	return NewExp(f, eta)
}

// wishartParams returns ½W⁻¹, in full.
func wishartParams(name string, df float64, scale mat.Symmetric) (b []float64, d int, err error) {
	if isNil(scale) || scale.SymmetricDim() == 0 {
		return nil, 0, fmt.Errorf("pgsvi: %s needs a scale matrix: %w", name, ErrEmpty)
	}
	d = scale.SymmetricDim()
	if !(df > float64(d-1)) || math.IsInf(df, 1) {
		return nil, 0, fmt.Errorf("pgsvi: df of %s is %v; of %d×%d matrices it must be above %d and finite: %w", name, df, d, d, d-1, ErrParam)
	}
	b = make([]float64, d*d)
	for i := range d {
		for j := range d {
			b[i*d+j] = scale.At(i, j)
		}
	}
	if !dense.Cholesky(b, d) {
		return nil, 0, fmt.Errorf("pgsvi: scale of %s: %w", name, ErrNotPosDef)
	}
	dense.Invert(b, d)
	floats.Scale(0.5, b)
	return b, d, nil
}

// wishartFamily is the family over d×d matrices: with a = ν/2 and B = ½W⁻¹ it has the density |Λ|^a e^{−tr BΛ} and h = |Λ|^{−(d+1)/2}.
type wishartFamily struct{ d int }

// wishartWork is B with its Cholesky factor and its inverse, in full, and scratch.
type wishartWork struct{ b, c, inv, s, t, u, v []float64 }

var wishartPool = sync.Pool{New: func() any { return new(wishartWork) }}

// work returns a wishartWork with B from the packed −B of natural parameters; the caller puts it back.
func (f wishartFamily) work(packed []float64) *wishartWork {
	w, d := wishartPool.Get().(*wishartWork), f.d
	for _, m := range []*[]float64{&w.b, &w.c, &w.inv, &w.s, &w.t} {
		*m = dense.Resize(*m, d*d)
	}
	w.u, w.v = dense.Resize(w.u, d), dense.Resize(w.v, d)
	dense.Unpack(w.b, packed, d, -1, -0.5)
	return w
}

// factor reports whether B is positive definite; its Cholesky factor is then in w.c, and its inverse in w.inv.
func (w *wishartWork) factor(d int) bool {
	copy(w.c, w.b)
	if !dense.Cholesky(w.c, d) {
		return false
	}
	copy(w.inv, w.c)
	dense.Invert(w.inv, d)
	return true
}

func (f wishartFamily) String() string { return fmt.Sprintf("Wishart of %d×%d", f.d, f.d) }

func (f wishartFamily) Dim() int { return f.d * (f.d + 1) / 2 }

func (f wishartFamily) NumParams() int { return 1 + f.Dim() }

// logGamma returns the logarithm of the multivariate gamma function at a, and digamma, trigammaGap its derivative and the
// excess of its second derivative over d/a.
func (f wishartFamily) logGamma(a float64) float64 {
	d := float64(f.d)
	v := 0.25 * d * (d - 1) * math.Log(math.Pi)
	for i := range f.d {
		lg, _ := math.Lgamma(a - 0.5*float64(i))
		v += lg
	}
	return v
}

func (f wishartFamily) digamma(a float64) (v float64) {
	for i := range f.d {
		v += special.Digamma(a - 0.5*float64(i))
	}
	return v
}

func (f wishartFamily) trigammaGap(a float64) (v float64) {
	for i := range f.d {
		h := 0.5 * float64(i)
		v += special.TrigammaGap(a-h) + h/a/(a-h)
	}
	return v
}

// valid reports whether a is one.
func (f wishartFamily) valid(a float64) bool { return a > 0.5*float64(f.d-1) }

func (f wishartFamily) LogPartition(eta []float64) float64 {
	if !f.valid(eta[0]) {
		return math.Inf(1)
	}
	w := f.work(eta[1:])
	defer wishartPool.Put(w)
	copy(w.c, w.b)
	if !dense.Cholesky(w.c, f.d) {
		return math.Inf(1)
	}
	return f.logGamma(eta[0]) - eta[0]*dense.LogDet(w.c, f.d)
}

func (f wishartFamily) Mean(dst, eta []float64) {
	w := f.work(eta[1:])
	defer wishartPool.Put(w)
	w.factor(f.d)
	dst[0] = f.digamma(eta[0]) - dense.LogDet(w.c, f.d)
	dense.Pack(dst[1:], w.inv, f.d, eta[0], eta[0])
}

func (f wishartFamily) Fisher(dst *mat.SymDense, eta []float64) { fisherByColumns(dst, f, eta) }

// trace returns tr ab for symmetric matrices.
func trace(a, b []float64) float64 { return floats.Dot(a, b) }

// sandwich stores c·xyx in dst, for symmetric x and y; it overwrites t.
func sandwich(dst []float64, c float64, x, y, t []float64, d int) {
	dense.MulSquare(t, x, y, d)
	dense.MulSquare(dst, t, x, d)
	floats.Scale(c, dst)
}

// slope returns d E[log|Λ|], and stores dE[Λ] in w.s, for da and dB in w.s.
func (f wishartFamily) slope(w *wishartWork, a, da float64) float64 {
	log := (f.trigammaGap(a)+float64(f.d)/a)*da - trace(w.inv, w.s)
	sandwich(w.b, -a, w.inv, w.s, w.t, f.d)
	floats.AddScaledTo(w.s, w.b, da, w.inv)
	return log
}

// solve is the inverse of slope: it returns da, and stores dB in w.s, for d E[log|Λ|] and dE[Λ] in w.s.
func (f wishartFamily) solve(w *wishartWork, a, log float64) (da float64) {
	da = (log - trace(w.b, w.s)/a) / f.trigammaGap(a)
	sandwich(w.inv, -1/a, w.b, w.s, w.t, f.d)
	floats.AddScaledTo(w.s, w.inv, da/a, w.b)
	return da
}

func (f wishartFamily) FisherMul(dst, g, eta []float64) {
	w := f.work(eta[1:])
	defer wishartPool.Put(w)
	w.factor(f.d)
	dense.Unpack(w.s, g[1:], f.d, -1, -0.5)
	dst[0] = f.slope(w, eta[0], g[0])
	dense.Pack(dst[1:], w.s, f.d, 1, 1)
}

func (f wishartFamily) FisherSolve(dst, g, eta []float64) {
	w := f.work(eta[1:])
	defer wishartPool.Put(w)
	dense.Unpack(w.s, g[1:], f.d, 1, 1)
	dst[0] = f.solve(w, eta[0], g[0])
	dense.Pack(dst[1:], w.s, f.d, -1, -2)
}

func (f wishartFamily) Stat(dst, z []float64) {
	dst[0] = f.logDet(z)
	copy(dst[1:], z)
}

// logDet returns log|Λ|, −Inf where Λ is not positive definite.
func (f wishartFamily) logDet(packed []float64) float64 {
	w := f.work(packed)
	defer wishartPool.Put(w)
	dense.Unpack(w.c, packed, f.d, 1, 1)
	if !dense.Cholesky(w.c, f.d) {
		return math.Inf(-1)
	}
	return dense.LogDet(w.c, f.d)
}

func (f wishartFamily) LogBase(z []float64) float64 {
	if log := f.logDet(z); !math.IsInf(log, -1) {
		return -0.5 * float64(f.d+1) * log
	}
	return math.Inf(-1)
}

func (f wishartFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	w := f.work(eta[1:])
	defer wishartPool.Put(w)
	t[0] = f.draw(w, eta[0], rng)
	dense.Pack(z, w.b, f.d, 1, 1)
	copy(t[1:], z)
}

// draw stores a draw of Λ in w.b, and its root M, Λ = MMᵀ, in w.s by the decomposition of Bartlett (1933), and returns
// log|Λ|: with B = CCᵀ, C in w.c, it is C⁻ᵀA/√2, A in w.t with roots of χ²-variables on its diagonal and normal ones below.
func (f wishartFamily) draw(w *wishartWork, a float64, rng *rand.Rand) (logDet float64) {
	d := f.d
	copy(w.c, w.b)
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
	dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(w.s, d, d), dense.General(w.s, d, d), 0, dense.General(w.b, d, d))
	return logDet
}

// Entropy is −E[log q], in which a log a has been left out where it cancels.
func (f wishartFamily) Entropy(eta []float64) float64 {
	w := f.work(eta[1:])
	defer wishartPool.Put(w)
	w.factor(f.d)
	return f.entropy(w, eta[0])
}

func (f wishartFamily) entropy(w *wishartWork, a float64) float64 {
	d := float64(f.d)
	h := 0.25*d*(d-1)*math.Log(math.Pi) - 0.5*(d+1)*dense.LogDet(w.c, f.d)
	for i := range f.d {
		half := 0.5 * float64(i)
		x := a - half
		h += 0.5*(d-float64(i))*math.Log(x) + half + special.LogSqrt2Pi + special.Binet(x) + (a-0.5*(d+1))*special.DigammaGap(x)
	}
	return h
}

func (f wishartFamily) divergence(eta, etaP []float64) float64 {
	w, p := f.work(eta[1:]), f.work(etaP[1:])
	defer wishartPool.Put(w)
	defer wishartPool.Put(p)
	return f.kl(w, p, eta[0], etaP[0])
}

// kl is a_p(tr U − d − log|U|), U = (a/a_p)C⁻¹B_pC⁻ᵀ with B = CCᵀ, with the rests of the Bregman divergences of log Γ. With U = LLᵀ
// the former is a sum of squares and of g(L_ii²), g(u) = u − 1 − log u.
func (f wishartFamily) kl(w, p *wishartWork, a, ap float64) float64 {
	d := f.d
	if !w.factor(d) {
		return math.NaN()
	}
	l := dense.LowerTriangle(w.c, d)
	dense.Trsm(blas.Left, blas.NoTrans, 1, l, dense.General(p.b, d, d))
	dense.Trsm(blas.Right, blas.Trans, a/ap, l, dense.General(p.b, d, d))
	if !dense.Cholesky(p.b, d) {
		return math.NaN()
	}
	var kl float64
	for i := range d {
		for _, x := range p.b[i*d : i*d+i] {
			kl += ap * x * x
		}
		x, half := p.b[i*d+i], 0.5*float64(i)
		kl += ap*special.LogGap(x*x) + special.GammaRest(ap-half, a-half)
		// x log x of a_p − i/2 and a − i/2, less that of a_p and a.
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

func (f wishartFamily) fromMean(dst, mu []float64) bool {
	w := f.work(mu[1:])
	defer wishartPool.Put(w)
	dense.Unpack(w.b, mu[1:], f.d, 1, 1)
	a, ok := f.shape(w, mu[0])
	dst[0] = a
	dense.Pack(dst[1:], w.inv, f.d, -a, -2*a)
	return ok
}

// shape returns the a with E[log|Λ|] = log and E[Λ] in w.b, whose inverse B/a it stores in w.inv, and reports whether they are
// attained. It solves Σ_i log a − ψ(a − i/2) = log|E[Λ]| − E[log|Λ|].
func (f wishartFamily) shape(w *wishartWork, log float64) (a float64, ok bool) {
	if !w.factor(f.d) {
		return 0, false
	}
	y := dense.LogDet(w.c, f.d) - log
	if !(y > 0) {
		return 0, false
	}
	edge := 0.5 * float64(f.d-1)
	a = edge + math.Exp(root(func(x float64) float64 {
		rest, gap := math.Exp(x), 0.0
		for i := range f.d {
			half := 0.5 * float64(i)
			gap += special.DigammaGap(edge-half+rest) - logLess(edge+rest, half)
		}
		return math.Log(gap / y)
	}))
	return a, f.valid(a) && !math.IsInf(a, 1)
}

func (f wishartFamily) Chart(dst, eta []float64) {
	w := f.work(eta[1:])
	defer wishartPool.Put(w)
	dst[0] = math.Log(eta[0] - 0.5*float64(f.d-1))
	f.chart(dst[1:], w)
}

// chart stores the log-Cholesky factor of B.
func (f wishartFamily) chart(dst []float64, w *wishartWork) {
	copy(w.c, w.b)
	dense.Cholesky(w.c, f.d)
	k := 0
	for i := range f.d {
		k += copy(dst[k:], w.c[i*f.d:i*f.d+i])
		dst[k] = math.Log(w.c[i*f.d+i])
		k++
	}
}

func (f wishartFamily) FromChart(dst, x []float64) {
	w := f.work(x[1:])
	defer wishartPool.Put(w)
	dst[0] = math.Exp(x[0]) + 0.5*float64(f.d-1)
	f.fromChart(w, x[1:])
	dense.Pack(dst[1:], w.b, f.d, -1, -2)
}

// fromChart stores B in w.b.
func (f wishartFamily) fromChart(w *wishartWork, x []float64) {
	d := f.d
	clear(w.c)
	k := 0
	for i := range d {
		k += copy(w.c[i*d:i*d+i], x[k:])
		w.c[i*d+i] = math.Exp(x[k])
		k++
	}
	dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(w.c, d, d), dense.General(w.c, d, d), 0, dense.General(w.b, d, d))
}

func (f wishartFamily) ChartGrad(dst, g, eta []float64) {
	w := f.work(eta[1:])
	defer wishartPool.Put(w)
	dst[0] = g[0] * (eta[0] - 0.5*float64(f.d-1))
	dense.Unpack(w.s, g[1:], f.d, 1, 1)
	f.chartGrad(dst[1:], w)
}

// chartGrad stores the gradient with respect to the factor C of B of a function with the gradient −S with respect to B, S in
// w.s: −2SC.
func (f wishartFamily) chartGrad(dst []float64, w *wishartWork) {
	d := f.d
	clear(w.c)
	for i := range d {
		copy(w.c[i*d:], w.b[i*d:i*d+i+1])
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

// normalWishartFamily is the family of a mean and a precision, with h = (2π|Λ|)^{−d/2}.
type normalWishartFamily struct{ wishart wishartFamily }

// normalWishart is a member but for B.
type normalWishart struct {
	a, kappa float64
	m        []float64
}

func (f normalWishartFamily) String() string {
	return fmt.Sprintf("NormalWishart of %d dimensions", f.wishart.d)
}

func (f normalWishartFamily) Dim() int { return f.wishart.d + f.wishart.Dim() }

func (f normalWishartFamily) NumParams() int { return f.wishart.NumParams() + f.wishart.d + 1 }

// split returns the parts of a vector of the form of η: log|Λ|, Λ, Λx, xᵀΛx.
func (f normalWishartFamily) split(eta []float64) (a float64, lambda, x []float64, s float64) {
	n := f.wishart.NumParams()
	return eta[0], eta[1:n], eta[n : n+f.wishart.d], eta[n+f.wishart.d]
}

// join stores the parts but for Λ.
func (f normalWishartFamily) join(dst []float64, a, s float64) (lambda, x []float64) {
	_, lambda, x, _ = f.split(dst)
	dst[0], dst[len(dst)-1] = a, s
	return lambda, x
}

// pack stores the natural parameters of x and B.
func (f normalWishartFamily) pack(eta []float64, x normalWishart, b []float64) {
	lambda, v := f.join(eta, x.a, -0.5*x.kappa)
	dense.Pack(lambda, b, f.wishart.d, -1, -2)
	addOuter(lambda, -0.5*x.kappa, x.m, x.m)
	for i, m := range x.m {
		v[i] = x.kappa * m
	}
}

// addOuter adds c(xyᵀ + yxᵀ)/2 to a packed symmetric matrix whose elements off the diagonal count twice.
func addOuter(packed []float64, c float64, x, y []float64) {
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

// unpack returns the member with B in w.b and m in w.u; the caller puts w back. It reports whether κ is valid.
func (f normalWishartFamily) unpack(eta []float64) (x normalWishart, w *wishartWork, ok bool) {
	a, lambda, v, s := f.split(eta)
	w, d := f.wishart.work(lambda), f.wishart.d
	x = normalWishart{a: a, kappa: -2 * s, m: w.u}
	for i, vi := range v {
		x.m[i] = vi / x.kappa
	}
	for i := range d {
		for j := range d {
			w.b[i*d+j] -= 0.5 * v[i] * x.m[j]
		}
	}
	return x, w, x.kappa > 0
}

func (f normalWishartFamily) LogPartition(eta []float64) float64 {
	x, w, ok := f.unpack(eta)
	defer wishartPool.Put(w)
	copy(w.c, w.b)
	d := f.wishart.d
	if !ok || !f.wishart.valid(x.a) || !dense.Cholesky(w.c, d) {
		return math.Inf(1)
	}
	return f.wishart.logGamma(x.a) - x.a*dense.LogDet(w.c, d) - 0.5*float64(d)*math.Log(x.kappa)
}

func (f normalWishartFamily) Mean(dst, eta []float64) {
	x, w, _ := f.unpack(eta)
	defer wishartPool.Put(w)
	d := f.wishart.d
	w.factor(d)
	floats.Scale(x.a, w.inv) // E[Λ]
	dense.Symv(1, dense.Symmetric(w.inv, d), dense.Vector(x.m), 0, dense.Vector(w.v))
	lambda, v := f.join(dst, f.wishart.digamma(x.a)-dense.LogDet(w.c, d), float64(d)/x.kappa+floats.Dot(x.m, w.v))
	dense.Pack(lambda, w.inv, d, 1, 1)
	copy(v, w.v)
}

func (f normalWishartFamily) Fisher(dst *mat.SymDense, eta []float64) { fisherByColumns(dst, f, eta) }

// FisherMul follows a change of η through (a, B, m, κ) to that of μ.
func (f normalWishartFamily) FisherMul(dst, g, eta []float64) {
	x, w, _ := f.unpack(eta)
	defer wishartPool.Put(w)
	d := f.wishart.d
	w.factor(d)
	da, lambda, v, s := f.split(g)
	dKappa := -2 * s
	dm := w.v
	for i, vi := range v {
		dm[i] = (vi - dKappa*x.m[i]) / x.kappa
	}
	// dB is minus the matrix of g, less what comes of κmmᵀ.
	dense.Unpack(w.s, lambda, d, -1, -0.5)
	for i := range d {
		for j := range d {
			w.s[i*d+j] -= 0.5*dKappa*x.m[i]*x.m[j] + 0.5*x.kappa*(dm[i]*x.m[j]+x.m[i]*dm[j])
		}
	}
	log := f.wishart.slope(w, x.a, da) // dE[Λ] is in w.s, B⁻¹ still in w.inv
	change, square := w.t[:d], 0.0     // of E[Λx] and E[xᵀΛx]
	for i := range d {
		row, inv := w.s[i*d:(i+1)*d], w.inv[i*d:(i+1)*d]
		along, across := floats.Dot(row, x.m), x.a*floats.Dot(inv, dm)
		change[i] = along + across
		square += x.m[i] * (along + 2*across)
	}
	packed, out := f.join(dst, log, square-float64(d)*dKappa/(x.kappa*x.kappa))
	dense.Pack(packed, w.s, d, 1, 1)
	copy(out, change)
}

// FisherSolve is the way back of FisherMul.
func (f normalWishartFamily) FisherSolve(dst, g, eta []float64) {
	x, w, _ := f.unpack(eta)
	defer wishartPool.Put(w)
	d := f.wishart.d
	log, lambda, v, s := f.split(g)
	dense.Unpack(w.s, lambda, d, 1, 1) // dE[Λ]
	// E[Λ]dm = dE[Λx] − dE[Λ]m.
	e, square := w.c[:d], 0.0
	for i := range d {
		along := floats.Dot(w.s[i*d:(i+1)*d], x.m)
		e[i] = v[i] - along
		square += x.m[i] * (along + 2*e[i])
	}
	dm := w.v
	for i := range d {
		dm[i] = floats.Dot(w.b[i*d:(i+1)*d], e) / x.a
	}
	dKappa := -x.kappa * x.kappa / float64(d) * (s - square)
	da := f.wishart.solve(w, x.a, log) // dB is in w.s
	packed, out := f.join(dst, da, -0.5*dKappa)
	dense.Pack(packed, w.s, d, -1, -2)
	addOuter(packed, -0.5*dKappa, x.m, x.m)
	addOuter(packed, -x.kappa, x.m, dm)
	for i := range out {
		out[i] = dKappa*x.m[i] + x.kappa*dm[i]
	}
}

func (f normalWishartFamily) Stat(dst, z []float64) {
	d := f.wishart.d
	lambda, v := f.join(dst, f.wishart.logDet(z[d:]), 0)
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

func (f normalWishartFamily) LogBase(z []float64) float64 {
	d := float64(f.wishart.d)
	if log := f.wishart.logDet(z[f.wishart.d:]); !math.IsInf(log, -1) {
		return -0.5 * d * (log + log2Pi)
	}
	return math.Inf(-1)
}

func (f normalWishartFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	x, w, _ := f.unpack(eta)
	defer wishartPool.Put(w)
	d := f.wishart.d
	log := f.wishart.draw(w, x.a, rng)
	for i := range w.v {
		w.v[i] = rng.NormFloat64() / math.Sqrt(x.kappa)
	}
	dense.Pack(z[d:], w.b, d, 1, 1)
	// With Λ = MMᵀ and x = m + M⁻ᵀε/√κ, Λx = Λm + Mε/√κ: T(z) needs no inverse.
	lambda, v := f.join(t, log, floats.Dot(w.v, w.v))
	copy(lambda, z[d:])
	for i := range d {
		along, across := floats.Dot(w.b[i*d:(i+1)*d], x.m), floats.Dot(w.s[i*d:(i+1)*d], w.v)
		v[i] = along + across
		t[len(t)-1] += x.m[i] * (along + 2*across)
	}
	// M⁻ᵀ = √2CA⁻ᵀ.
	dense.Trsv(blas.Trans, dense.LowerTriangle(w.t, d), dense.Vector(w.v))
	dense.Trmv(blas.NoTrans, dense.LowerTriangle(w.c, d), dense.Vector(w.v))
	for i := range d {
		z[i] = x.m[i] + math.Sqrt2*w.v[i]
	}
}

// Entropy is that of Λ and the mean of that of x given Λ.
func (f normalWishartFamily) Entropy(eta []float64) float64 {
	x, w, _ := f.unpack(eta)
	defer wishartPool.Put(w)
	w.factor(f.wishart.d)
	log := f.wishart.digamma(x.a) - dense.LogDet(w.c, f.wishart.d)
	return f.wishart.entropy(w, x.a) + 0.5*float64(f.wishart.d)*(1+log2Pi-math.Log(x.kappa)) - 0.5*log
}

// divergence is that of Λ and the mean of that of x given Λ.
func (f normalWishartFamily) divergence(eta, etaP []float64) float64 {
	x, w, _ := f.unpack(eta)
	defer wishartPool.Put(w)
	p, wp, _ := f.unpack(etaP)
	defer wishartPool.Put(wp)
	d := f.wishart.d
	kl := f.wishart.kl(w, wp, x.a, p.a) + 0.5*float64(d)*special.LogGap(p.kappa/x.kappa)
	floats.SubTo(w.v, x.m, p.m)
	for i, v := range w.v {
		kl += 0.5 * p.kappa * x.a * v * floats.Dot(w.inv[i*d:(i+1)*d], w.v)
	}
	return kl
}

func (f normalWishartFamily) fromMean(dst, mu []float64) bool {
	log, lambda, v, square := f.split(mu)
	w, d := f.wishart.work(lambda), f.wishart.d
	defer wishartPool.Put(w)
	dense.Unpack(w.b, lambda, d, 1, 1)
	a, ok := f.wishart.shape(w, log)
	if !ok {
		return false
	}
	m := w.u
	copy(m, v)
	dense.Potrs(w.c, m)
	kappa := float64(d) / (square - floats.Dot(m, v))
	floats.Scale(a, w.inv)
	f.pack(dst, normalWishart{a: a, kappa: kappa, m: m}, w.inv)
	return kappa > 0 && !math.IsInf(kappa, 1)
}

func (f normalWishartFamily) Chart(dst, eta []float64) {
	x, w, _ := f.unpack(eta)
	defer wishartPool.Put(w)
	factor, m := f.join(dst, math.Log(x.a-0.5*float64(f.wishart.d-1)), math.Log(x.kappa))
	f.wishart.chart(factor, w)
	copy(m, x.m)
}

func (f normalWishartFamily) FromChart(dst, chart []float64) {
	a, factor, m, log := f.split(chart)
	w := f.wishart.work(factor)
	defer wishartPool.Put(w)
	f.wishart.fromChart(w, factor)
	f.pack(dst, normalWishart{a: math.Exp(a) + 0.5*float64(f.wishart.d-1), kappa: math.Exp(log), m: m}, w.b)
}

func (f normalWishartFamily) ChartGrad(dst, g, eta []float64) {
	x, w, _ := f.unpack(eta)
	defer wishartPool.Put(w)
	d := f.wishart.d
	a, lambda, v, s := f.split(g)
	dense.Unpack(w.s, lambda, d, 1, 1)
	// η = (a, −B − ½κmmᵀ, κm, −½κ), of which the gradient with respect to the matrix is in w.s.
	slope, dKappa := w.v, -0.5*s+floats.Dot(v, x.m)
	for i := range d {
		along := floats.Dot(w.s[i*d:(i+1)*d], x.m)
		slope[i] = x.kappa * (v[i] - along)
		dKappa -= 0.5 * x.m[i] * along
	}
	factor, m := f.join(dst, a*(x.a-0.5*float64(d-1)), x.kappa*dKappa)
	f.wishart.chartGrad(factor, w)
	copy(m, slope)
}
