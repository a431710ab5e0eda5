package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Gaussian is the normal distribution N(m, V) over R^d with a full covariance. From NewMeanField
// and NewIsotropicMeanField it has a diagonal covariance, with storage and time of order d.
//
// For a full V its λ has length d + d(d+1)/2: first the d elements of the vector part, then the
// lower triangle of the matrix part row by row (element (i, j), j ≤ i, at d + i(i+1)/2 + j). Each
// element of a symmetric matrix is stored once. A derivative by an off-diagonal element therefore
// counts both of its places, and the natural parameter that belongs to z_i z_j, j < i, is
// −(V⁻¹)_ij. In the coordinates Cholesky and LogCholesky the matrix part is L itself.
//
// For a diagonal V its λ has length 2d, the vector part and then the diagonal: (m, v + m²) in the
// coordinates MeanParams, (m, v) in MeanCov, (m/v, −1/(2v)) in Natural, (m, √v) in Cholesky and
// (m, ½ log v) in LogCholesky. KL is defined between both kinds, and each may be the prior of the
// other.
type Gaussian struct{ normalForm }

// NewGaussian returns N(mean, cov) in the coordinates MeanParams. A nil mean means zero. The
// arguments are copied. The error wraps ErrShape, ErrEmpty, ErrNotFinite or ErrNotPosDef, and
// ErrMemory if the covariance would take more than the limit.
func NewGaussian(mean []float64, cov mat.Symmetric) (*Gaussian, error) {
	if isNil(cov) || cov.SymmetricDim() == 0 {
		return nil, fmt.Errorf("pgsvi: NewGaussian needs a covariance: %w", ErrEmpty)
	}
	d := cov.SymmetricDim()
	if err := checkFull(d); err != nil {
		return nil, err
	}
	if mean == nil {
		mean = make([]float64, d)
	}
	if len(mean) != d {
		return nil, fmt.Errorf("pgsvi: mean has %d elements, covariance is %d×%d: %w", len(mean), d, d, ErrShape)
	}
	g := newFullGaussian(d)
	copy(g.next.m, mean)
	for i := range d {
		for j := range d {
			g.next.v[i*d+j] = cov.At(i, j)
		}
	}
	if err := g.commitMoments(); err != nil {
		return nil, err
	}
	return &Gaussian{g}, nil
}

// NewIsotropic returns N(0, variance·I) over R^dim with a full covariance, in the coordinates
// MeanParams. It panics if dim < 1 or variance is not positive and finite, and with an error that
// wraps ErrMemory if the covariance would take more than the limit.
func NewIsotropic(dim int, variance float64) *Gaussian {
	checkIsotropic(dim, variance)
	if err := checkFull(dim); err != nil {
		panic(err)
	}
	g := newFullGaussian(dim)
	for i := range dim {
		g.next.v[i*dim+i] = variance
	}
	if err := g.commitMoments(); err != nil {
		panic(err)
	}
	return &Gaussian{g}
}

// gaussianMatrices is the number of D×D matrices of a full Gaussian: V, V⁻¹ and a factor, now and
// next.
const gaussianMatrices = 6

// checkFull returns an error if a full covariance of d dimensions takes more memory than it may.
func checkFull(d int) error {
	return checkMemory(0, memory.Bytes(gaussianMatrices, d, d), fmt.Sprintf("a full covariance of %d dimensions", d), "use a mean field (NewMeanField, NewIsotropicMeanField), or raise the limit (GOMEMLIMIT)")
}

// NewMeanField returns N(mean, diag(variance)), whose V stays diagonal, in the
// coordinates MeanParams.
// A nil mean means zero. The arguments are copied. It returns an error wrapping
// ErrShape, ErrEmpty, ErrNotFinite or ErrNotPosDef.
func NewMeanField(mean, variance []float64) (*Gaussian, error) {
	d := len(variance)
	if d == 0 {
		return nil, fmt.Errorf("pgsvi: NewMeanField needs variances: %w", ErrEmpty)
	}
	if mean == nil {
		mean = make([]float64, d)
	}
	if len(mean) != d {
		return nil, fmt.Errorf("pgsvi: mean has %d elements, variance has %d: %w", len(mean), d, ErrShape)
	}
	q := &diagonalGaussian{coords: MeanCov, m: make([]float64, d), v: make([]float64, d)}
	if err := q.SetParams(append(append([]float64(nil), mean...), variance...)); err != nil {
		return nil, err
	}
	q.coords = MeanParams
	return &Gaussian{q}, nil
}

// NewIsotropicMeanField returns N(0, variance·I) over R^dim with a diagonal
// covariance, in the coordinates MeanParams. It panics if dim < 1 or variance
// is not positive and finite.
func NewIsotropicMeanField(dim int, variance float64) *Gaussian {
	checkIsotropic(dim, variance)
	q := &diagonalGaussian{m: make([]float64, dim), v: make([]float64, dim)}
	for i := range q.v {
		q.v[i] = variance
	}
	return &Gaussian{q}
}

// full returns the form of a full covariance, nil if g is diagonal.
func (g *Gaussian) full() *fullGaussian {
	f, _ := g.normalForm.(*fullGaussian)
	return f
}

// factorOf returns the form of a full Gaussian whose λ is (m, L), in which
// gradients need neither V nor V⁻¹; nil for any other q.
func factorOf(q Dist) *fullGaussian {
	g, ok := q.(*Gaussian)
	if !ok {
		return nil
	}
	if f := g.full(); f != nil && f.hasFactor() {
		return f
	}
	return nil
}

// inflation returns max_i V_ii/(1/(V⁻¹)_ii), how much of a variance is that in common with other
// dimensions: the rounding of V⁻¹ is so many times as much in V.
func (g *Gaussian) inflation() float64 {
	most := 1.0
	for i := range g.Dim() {
		most = math.Max(most, g.covAt(i, i)*g.precisionAt(i, i))
	}
	return most
}

// isDiagonal reports whether V stays diagonal.
func (g *Gaussian) isDiagonal() bool { return g.full() == nil }

// In returns a copy of g with λ in the coordinates c. It panics if c is unknown.
func (g *Gaussian) In(c Coordinates) *Gaussian {
	if c < MeanParams || c > LogCholesky {
		panic("pgsvi: invalid Coordinates")
	}
	return &Gaussian{g.in(c)}
}

// Coordinates returns the meaning of λ.
func (g *Gaussian) Coordinates() Coordinates { return g.normalForm.Coordinates() }

// Dim returns d.
func (g *Gaussian) Dim() int { return g.normalForm.Dim() }

// NumParams returns d + d(d+1)/2, or 2d if V is diagonal.
func (g *Gaussian) NumParams() int { return g.normalForm.NumParams() }

// Mean stores m in dst; nil allocates.
func (g *Gaussian) Mean(dst []float64) []float64 {
	dst = dense.Dest(dst, g.Dim())
	copy(dst, g.mean())
	return dst
}

// Var stores the diagonal of V in dst; nil allocates.
func (g *Gaussian) Var(dst []float64) []float64 {
	dst = dense.Dest(dst, g.Dim())
	for i := range dst {
		dst[i] = g.covAt(i, i)
	}
	return dst
}

// Cov returns a copy of V.
func (g *Gaussian) Cov() *mat.SymDense {
	if f := g.full(); f != nil {
		return mat.NewSymDense(f.d, append([]float64(nil), f.cov()...))
	}
	return g.diagonalMatrix(g.covAt)
}

// precisionMatrix returns a copy of V⁻¹.
func (g *Gaussian) precisionMatrix() *mat.SymDense {
	if f := g.full(); f != nil {
		return mat.NewSymDense(f.d, append([]float64(nil), f.prec()...))
	}
	return g.diagonalMatrix(g.precisionAt)
}

func (g *Gaussian) diagonalMatrix(at func(i, j int) float64) *mat.SymDense {
	s := mat.NewSymDense(g.Dim(), nil)
	for i := range g.Dim() {
		s.SetSym(i, i, at(i, i))
	}
	return s
}

// Params implements Dist.
func (g *Gaussian) Params(dst []float64) []float64 { return g.normalForm.Params(dst) }

// SetParams implements Dist.
func (g *Gaussian) SetParams(lambda []float64) error { return g.normalForm.SetParams(lambda) }

// LogProb implements Dist.
func (g *Gaussian) LogProb(z []float64) float64 { return g.normalForm.LogProb(z) }

// Score implements Dist.
func (g *Gaussian) Score(dst, z []float64) []float64 { return g.normalForm.Score(dst, z) }

// Rand implements Dist: m + Lε.
func (g *Gaussian) Rand(dst []float64, rng *rand.Rand) []float64 {
	dst = dense.Dest(dst, g.Dim())
	for i := range dst {
		dst[i] = rng.NormFloat64()
	}
	g.transform(dst)
	return dst
}

// use implements halting: what takes long is a full covariance.
func (g *Gaussian) use(h *parallel.Halt) {
	if full, ok := g.normalForm.(*fullGaussian); ok {
		full.halt = h
	}
}

// Clone implements Dist.
func (g *Gaussian) Clone() Dist { return g.In(g.Coordinates()) }

// Chart implements Charted by the coordinates LogCholesky.
func (g *Gaussian) Chart(dst []float64) []float64 { return g.normalForm.Chart(dst) }

// SetChart implements Charted.
func (g *Gaussian) SetChart(x []float64) error { return g.normalForm.SetChart(x) }

// ChartGrad implements Charted.
func (g *Gaussian) ChartGrad(dst, grad []float64) []float64 { return g.normalForm.ChartGrad(dst, grad) }

// Natural implements ExpFamily.
func (g *Gaussian) Natural(dst []float64) []float64 { return g.normalForm.Natural(dst) }

// SetNatural implements ExpFamily.
func (g *Gaussian) SetNatural(eta []float64) error { return g.normalForm.SetNatural(eta) }

// MeanParams implements ExpFamily: it stores the mean parameters (m, V + mmᵀ). Mean is m alone.
func (g *Gaussian) MeanParams(dst []float64) []float64 { return g.normalForm.MeanParams(dst) }

// SetMeanParams implements ExpFamily.
func (g *Gaussian) SetMeanParams(mu []float64) error { return g.normalForm.SetMeanParams(mu) }

// LogPartition returns A(η) = ½(mᵀV⁻¹m + log|V| + d log 2π).
func (g *Gaussian) LogPartition() float64 { return g.normalForm.LogPartition() }

// MeanGrad implements ExpFamily.
func (g *Gaussian) MeanGrad(dst, grad []float64) []float64 { return g.normalForm.MeanGrad(dst, grad) }

// FromMeanGrad implements ExpFamily.
func (g *Gaussian) FromMeanGrad(dst, grad []float64) []float64 {
	return g.normalForm.FromMeanGrad(dst, grad)
}

// FromNaturalGrad implements ExpFamily.
func (g *Gaussian) FromNaturalGrad(dst, grad []float64) []float64 {
	return g.normalForm.FromNaturalGrad(dst, grad)
}

// KL returns KL(q‖p) = ½(tr(PV) − d + (m − μ)ᵀP(m − μ) + log|P⁻¹|/|V|) in nats, where P and μ are
// those of p, a Gaussian of the same dimension, full or diagonal. It panics if p is not one.
func (g *Gaussian) KL(p Dist) float64 { return gaussianKL(g.normalForm, p.(*Gaussian).normalForm) }

// naturalOf takes a diagonal Gaussian for the full one that it is.
func (g *Gaussian) naturalOf(p ExpFamily) []float64 {
	o, ok := p.(*Gaussian)
	switch {
	case !ok || o.Dim() != g.Dim():
		return nil
	case o.isDiagonal() == g.isDiagonal():
		return o.Natural(nil)
	case g.isDiagonal():
		return nil
	}
	d := g.Dim()
	eta := make([]float64, g.NumParams())
	small := o.Natural(nil)
	copy(eta, small[:d])
	for i, x := range small[d:] {
		eta[d+i*(i+3)/2] = x
	}
	return eta
}

func (g *Gaussian) setState(p Dist) bool {
	o, ok := p.(*Gaussian)
	return ok && g.setForm(o.normalForm)
}

func checkIsotropic(dim int, variance float64) {
	if dim < 1 {
		panic(fmt.Sprintf("pgsvi: dimension %d must be at least 1", dim))
	}
	if !(variance > 0) || math.IsInf(variance, 0) || math.IsInf(1/variance, 0) {
		panic(fmt.Sprintf("pgsvi: variance %v must be positive and finite", variance))
	}
}

func gaussianKL(q, p normalForm) float64 {
	d := q.Dim()
	if p.Dim() != d {
		panic("pgsvi: KL between distributions of different dimensions")
	}
	if g, ok := q.(*fullGaussian); ok && g.hasFactor() {
		return g.factorKL(make([]float64, g.NumParams()), p)
	}
	diff, w := make([]float64, d), make([]float64, d)
	var trace float64
	// of one of the two matrices only the diagonal counts
	diagonal := q.numGradV() == d || p.numGradV() == d
	for i := range d {
		diff[i] = q.meanAt(i) - p.meanAt(i)
		if diagonal {
			trace += p.precisionAt(i, i) * q.covAt(i, i)
			continue
		}
		for j := range d {
			trace += p.precisionAt(i, j) * q.covAt(i, j)
		}
	}
	p.mulPrecision(w, diff)
	kl := 0.5 * (trace - float64(d) + dense.Dot(dense.Vector(diff), dense.Vector(w)) + p.logDetV() - q.logDetV())
	return math.Max(0, kl)
}

// klGrad stores ∇_λ KL(q‖p) in dst.
func klGrad(dst []float64, q ExpFamily, p Dist) []float64 {
	if n, ok := q.(*Gaussian); ok {
		return gaussianKLGrad(dst, n.normalForm, p.(*Gaussian).normalForm)
	}
	// ∇_μ KL(q‖p) = η − η_p.
	g := q.Natural(nil)
	floats.Sub(g, p.(ExpFamily).Natural(nil))
	return q.FromMeanGrad(dst, g)
}

// gaussianKLGrad is klGrad for Gaussians, either of which may be diagonal: with
// P and μ those of p, ∇_m = P(m − μ) and ∇_V = ½(P − V⁻¹).
func gaussianKLGrad(dst []float64, q, p normalForm) []float64 {
	if g, ok := q.(*fullGaussian); ok && g.hasFactor() {
		dst = dense.Dest(dst, g.NumParams())
		g.factorKL(dst, p)
		return dst
	}
	d := q.Dim()
	diff, gm, gv := make([]float64, d), make([]float64, d), make([]float64, q.numGradV())
	for i := range d {
		diff[i] = q.meanAt(i) - p.meanAt(i)
	}
	p.mulPrecision(gm, diff)
	halfPrecision(gv, p, d)
	q.addPrecision(gv, -0.5)
	return q.fromMomentGrad(dst, gm, gv)
}

// halfPrecision stores ½P in gv, all of it or the diagonal, as len(gv) says.
func halfPrecision(gv []float64, p normalForm, d int) {
	for i := range d {
		if len(gv) == d {
			gv[i] = 0.5 * p.precisionAt(i, i)
			continue
		}
		for j := range d {
			gv[i*d+j] = 0.5 * p.precisionAt(i, j)
		}
	}
}

// klProxMoments is the step under KL in the coordinates (m, V).
func klProxMoments(q normalForm, g []float64, prior ExpFamily, n0 normalForm, beta float64) (bool, error) {
	d := q.Dim()
	gm, gv := make([]float64, d), make([]float64, q.numGradV())
	q.toMomentGrad(gm, gv, g)
	m, p := make([]float64, d), make([]float64, q.numGradV())
	for i := range m {
		m[i] = n0.meanAt(i)
	}
	if prior == nil {
		// V₊⁻¹ = V⁻¹ + 2βG, m₊ = m − βVg.
		n0.addPrecision(p, 1)
		floats.AddScaled(p, 2*beta, gv)
		for i := range m {
			for j := range d {
				m[i] -= beta * n0.covAt(i, j) * gm[j]
			}
		}
		return true, q.setPrecision(m, p)
	}
	gp, ok := prior.(*Gaussian)
	if _, diagonal := q.(*diagonalGaussian); !ok || diagonal && !gp.isDiagonal() {
		return false, nil // of a full prior a diagonal q has no closed form
	}
	pr := gp.normalForm
	r := 1 / (1 + beta)
	// The step of the mean solves [(1−r)P + rV⁻¹] δ = P(m − μ) + g.
	diff, rhs := make([]float64, d), make([]float64, d)
	for i := range d {
		diff[i] = m[i] - pr.meanAt(i)
	}
	pr.mulPrecision(rhs, diff)
	floats.Add(rhs, gm)
	halfPrecision(p, pr, d)
	floats.Scale(2*(1-r), p)
	n0.addPrecision(p, r)
	if err := q.setPrecision(make([]float64, d), p); err != nil {
		return true, err
	}
	for i := range m {
		for j := range d {
			m[i] -= (1 - r) * q.covAt(i, j) * rhs[j]
		}
	}
	floats.AddScaled(p, 2*(1-r), gv)
	return true, q.setPrecision(m, p)
}

func (g *Gaussian) state(c *save.State) { g.normalForm.state(c) }

// diagonalGaussian is N(m, diag(v)).
type diagonalGaussian struct {
	coords Coordinates
	m, v   []float64
}

func (q *diagonalGaussian) in(c Coordinates) normalForm {
	return &diagonalGaussian{coords: c, m: append([]float64(nil), q.m...), v: append([]float64(nil), q.v...)}
}

func (q *diagonalGaussian) Coordinates() Coordinates { return q.coords }

func (q *diagonalGaussian) Dim() int { return len(q.m) }

func (q *diagonalGaussian) NumParams() int { return 2 * len(q.m) }

func (q *diagonalGaussian) Params(dst []float64) []float64 { return q.paramsIn(q.coords, dst) }

func (q *diagonalGaussian) paramsIn(c Coordinates, dst []float64) []float64 {
	dst = dense.Dest(dst, q.NumParams())
	d := len(q.m)
	for i, m := range q.m {
		v := q.v[i]
		switch c {
		case MeanCov:
			dst[i], dst[d+i] = m, v
		case MeanParams:
			dst[i], dst[d+i] = m, v+m*m
		case Natural:
			dst[i], dst[d+i] = m/v, -0.5/v
		case Cholesky:
			dst[i], dst[d+i] = m, math.Sqrt(v)
		case LogCholesky:
			dst[i], dst[d+i] = m, 0.5*math.Log(v)
		}
	}
	return dst
}

func (q *diagonalGaussian) SetParams(lambda []float64) error { return q.setParamsIn(q.coords, lambda) }

func (q *diagonalGaussian) setParamsIn(c Coordinates, p []float64) error {
	if len(p) != q.NumParams() {
		panic("pgsvi: λ has the wrong length")
	}
	d := len(q.m)
	moments := func(i int) (m, v float64) {
		switch c {
		case MeanParams:
			return p[i], p[d+i] - p[i]*p[i]
		case Natural:
			v = -0.5 / p[d+i]
			return p[i] * v, v
		case Cholesky:
			return p[i], math.Copysign(p[d+i]*p[d+i], p[d+i])
		case LogCholesky:
			return p[i], math.Exp(2 * p[d+i])
		}
		return p[i], p[d+i]
	}
	for i := range d {
		m, v := moments(i)
		if c == LogCholesky && (v == 0 || math.IsInf(1/v, 0)) {
			return fmt.Errorf("pgsvi: the variance of dimension %d underflows: %w", i, ErrNotFinite)
		}
		if math.IsNaN(m+v) || math.IsInf(m, 0) || math.IsInf(v, 0) {
			return fmt.Errorf("pgsvi: dimension %d would have mean %v and variance %v: %w", i, m, v, ErrNotFinite)
		}
		if !(v > 0) || math.IsInf(1/v, 0) {
			return fmt.Errorf("pgsvi: dimension %d would have variance %v: %w", i, v, ErrNotPosDef)
		}
	}
	for i := range d {
		q.m[i], q.v[i] = moments(i)
	}
	return nil
}

func (q *diagonalGaussian) Natural(dst []float64) []float64 { return q.paramsIn(Natural, dst) }

func (q *diagonalGaussian) SetNatural(eta []float64) error { return q.setParamsIn(Natural, eta) }

func (q *diagonalGaussian) MeanParams(dst []float64) []float64 { return q.paramsIn(MeanParams, dst) }

func (q *diagonalGaussian) SetMeanParams(mu []float64) error { return q.setParamsIn(MeanParams, mu) }

// LogPartition returns A(η) = ½ Σ_i (m_i²/v_i + log 2πv_i).
func (q *diagonalGaussian) LogPartition() float64 {
	var s float64
	for i, m := range q.m {
		s += m*m/q.v[i] + math.Log(q.v[i]) + expfam.Log2Pi
	}
	return 0.5 * s
}

func (q *diagonalGaussian) LogProb(z []float64) float64 {
	if len(z) != len(q.m) {
		panic("pgsvi: z has the wrong length")
	}
	var s float64
	for i, m := range q.m {
		s += (z[i]-m)*(z[i]-m)/q.v[i] + math.Log(q.v[i]) + expfam.Log2Pi
	}
	return -0.5 * s
}

func (q *diagonalGaussian) Score(dst, z []float64) []float64 {
	d := len(q.m)
	dst = dense.Dest(dst, 2*d)
	for i, m := range q.m {
		u := (z[i] - m) / q.v[i]
		dst[i], dst[d+i] = u, 0.5*(u*u-1/q.v[i])
	}
	return q.fromMomentGrad(dst, dst[:d], dst[d:])
}

func (q *diagonalGaussian) MeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, q.coords, MeanParams)
}

func (q *diagonalGaussian) FromMeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, MeanParams, q.coords)
}

func (q *diagonalGaussian) FromNaturalGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, Natural, q.coords)
}

func (q *diagonalGaussian) convertGrad(dst, grad []float64, from, to Coordinates) []float64 {
	d := len(q.m)
	dst = dense.Dest(dst, 2*d)
	q.toMomentGradIn(from, dst[:d], dst[d:], grad)
	return q.fromMomentGradIn(to, dst, dst[:d], dst[d:])
}

func (q *diagonalGaussian) Chart(dst []float64) []float64 { return q.paramsIn(LogCholesky, dst) }

func (q *diagonalGaussian) SetChart(x []float64) error { return q.setParamsIn(LogCholesky, x) }

func (q *diagonalGaussian) ChartGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, q.coords, LogCholesky)
}

// fromMomentGrad stores in dst the gradient ∇_λ of a function whose gradients
// with respect to m and v are gm and gv; dst may be their concatenation.
func (q *diagonalGaussian) fromMomentGrad(dst, gm, gv []float64) []float64 {
	return q.fromMomentGradIn(q.coords, dst, gm, gv)
}

func (q *diagonalGaussian) fromMomentGradIn(c Coordinates, dst, gm, gv []float64) []float64 {
	d := len(q.m)
	dst = dense.Dest(dst, 2*d)
	for i, m := range q.m {
		a, b, v := gm[i], gv[i], q.v[i]
		switch c {
		case MeanParams: // v = M − m²
			a -= 2 * b * m
		case Natural: // m = vη₁, v = −1/(2η₂)
			a, b = v*a, 2*v*(m*a+v*b)
		case Cholesky:
			b *= 2 * math.Sqrt(v)
		case LogCholesky:
			b *= 2 * v
		}
		dst[i], dst[d+i] = a, b
	}
	return dst
}

// toMomentGrad is the inverse of fromMomentGrad; gm and gv may be the halves of grad.
func (q *diagonalGaussian) toMomentGrad(gm, gv, grad []float64) {
	q.toMomentGradIn(q.coords, gm, gv, grad)
}

func (q *diagonalGaussian) toMomentGradIn(c Coordinates, gm, gv, grad []float64) {
	d := len(q.m)
	for i, m := range q.m {
		a, b, v := grad[i], grad[d+i], q.v[i]
		switch c {
		case MeanParams:
			a += 2 * b * m
		case Natural:
			a /= v
			b = (b/(2*v) - m*a) / v
		case Cholesky:
			b /= 2 * math.Sqrt(v)
		case LogCholesky:
			b /= 2 * v
		}
		gm[i], gv[i] = a, b
	}
}

func (q *diagonalGaussian) setForm(p normalForm) bool {
	o, ok := p.(*diagonalGaussian)
	if !ok || len(o.m) != len(q.m) {
		return false
	}
	copy(q.m, o.m)
	copy(q.v, o.v)
	return true
}

func (q *diagonalGaussian) setPrecision(m, p []float64) error {
	x := append([]float64(nil), m...)
	for _, pi := range p {
		x = append(x, 1/pi)
	}
	return q.setParamsIn(MeanCov, x)
}

func (q *diagonalGaussian) mean() []float64 { return q.m }

func (q *diagonalGaussian) meanAt(i int) float64 { return q.m[i] }

func (q *diagonalGaussian) covAt(i, j int) float64 {
	if i != j {
		return 0
	}
	return q.v[i]
}

func (q *diagonalGaussian) precisionAt(i, j int) float64 {
	if i != j {
		return 0
	}
	return 1 / q.v[i]
}

func (q *diagonalGaussian) mulPrecision(dst, x []float64) {
	for i, v := range q.v {
		dst[i] = x[i] / v
	}
}

func (q *diagonalGaussian) logDetV() float64 {
	var s float64
	for _, v := range q.v {
		s += math.Log(v)
	}
	return s
}

func (q *diagonalGaussian) numGradV() int { return len(q.v) }

func (q *diagonalGaussian) marginal(x []float64) (m, v float64) {
	for i, xi := range x {
		m += q.m[i] * xi
		v += q.v[i] * xi * xi
	}
	return m, v
}

func (q *diagonalGaussian) addOuter(gv []float64, c float64, u, w []float64) {
	for i := range gv {
		gv[i] += c * u[i] * w[i]
	}
}

func (q *diagonalGaussian) addPrecision(gv []float64, c float64) {
	for i, v := range q.v {
		gv[i] += c / v
	}
}

func (q *diagonalGaussian) transform(eps []float64) {
	for i, v := range q.v {
		eps[i] = q.m[i] + math.Sqrt(v)*eps[i]
	}
}

func (q *diagonalGaussian) standardize(dst, eps []float64) {
	for i, v := range q.v {
		dst[i] = eps[i] / math.Sqrt(v)
	}
}

func (q *diagonalGaussian) state(c *save.State) { c.Floats(len(q.m), &q.m, &q.v) }
