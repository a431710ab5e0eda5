package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Gaussian is the normal distribution N(m, V) over R^d. Its covariance is full, or diagonal if it
// comes from NewMeanField or NewIsotropicMeanField. A diagonal covariance takes O(d) storage and
// time.
//
// The λ of a full V has length d + d(d+1)/2. It holds the d elements of the vector part and then
// the lower triangle of the matrix part row by row, with element (i, j), j ≤ i, at d + i(i+1)/2 +
// j. A symmetric matrix stores each element once. A derivative with respect to an off-diagonal
// element therefore counts both of its places, and the natural parameter of z_i z_j, j < i, is
// −(V⁻¹)_ij. In the coordinates Cholesky and LogCholesky the matrix part is L itself.
//
// The λ of a diagonal V has length 2d. It holds the vector part and then the diagonal: (m, v + m²)
// in the coordinates MeanParams, (m, v) in MeanCov, (m/v, −1/(2v)) in Natural, (m, √v) in Cholesky
// and (m, ½ log v) in LogCholesky. KL accepts a full and a diagonal Gaussian together, and each can
// be the prior of the other.
type Gaussian struct{ form normal.Form }

// NewGaussian returns N(mean, cov) in the coordinates MeanParams. A nil mean means zero. It copies
// its arguments. The error wraps ErrShape, ErrEmpty, ErrNotFinite or ErrNotPosDef, or ErrMemory if
// the covariance would exceed the memory limit.
func NewGaussian(mean []float64, cov mat.Symmetric) (*Gaussian, error) {
	if isNil(cov) || cov.SymmetricDim() == 0 {
		return nil, fmt.Errorf("pgsvi: the covariance of NewGaussian is nil or empty: %w", ErrEmpty)
	}
	d := cov.SymmetricDim()
	if err := checkFull(d); err != nil {
		return nil, err
	}
	if mean == nil {
		mean = make([]float64, d)
	}
	if len(mean) != d {
		return nil, fmt.Errorf("pgsvi: mean has %d elements, but the covariance is %d×%d: %w",
			len(mean), d, d, ErrShape)
	}
	g := normal.NewFull(d)
	m, v := g.Next()
	copy(m, mean)
	for i := range d {
		for j := range d {
			v[i*d+j] = cov.At(i, j)
		}
	}
	if err := g.CommitMoments(); err != nil {
		return nil, err
	}
	return &Gaussian{g}, nil
}

// NewIsotropic returns N(0, variance·I) over R^dim with a full covariance, in the coordinates
// MeanParams. It panics if dim < 1 or if variance is not positive and finite. It panics with an
// error that wraps ErrMemory if the covariance would exceed the memory limit.
func NewIsotropic(dim int, variance float64) *Gaussian {
	checkIsotropic(dim, variance)
	if err := checkFull(dim); err != nil {
		panic(err)
	}
	g := normal.NewFull(dim)
	_, v := g.Next()
	for i := range dim {
		v[i*dim+i] = variance
	}
	if err := g.CommitMoments(); err != nil {
		panic(err)
	}
	return &Gaussian{g}
}

// gaussianMatrices is the number of D×D matrices in a full Gaussian and its next state, each with
// V, V⁻¹ and a factor.
const gaussianMatrices = 6

// checkFull returns an error if a full covariance of d dimensions exceeds the memory limit.
func checkFull(d int) error {
	return checkMemory(0, memory.Bytes(gaussianMatrices, d, d),
		fmt.Sprintf("a full covariance of %d dimensions", d),
		"use a mean field (NewMeanField, NewIsotropicMeanField), or raise the limit "+
			"(GOMEMLIMIT)")
}

// NewMeanField returns N(mean, diag(variance)), whose V stays diagonal, in the coordinates
// MeanParams. A nil mean means zero. It copies its arguments. The error wraps ErrShape, ErrEmpty,
// ErrNotFinite or ErrNotPosDef.
func NewMeanField(mean, variance []float64) (*Gaussian, error) {
	d := len(variance)
	if d == 0 {
		return nil, fmt.Errorf("pgsvi: NewMeanField has no variances; it needs at least one: %w",
			ErrEmpty)
	}
	if mean == nil {
		mean = make([]float64, d)
	}
	if len(mean) != d {
		return nil, fmt.Errorf("pgsvi: mean has %d elements, but variance has %d: %w", len(mean), d,
			ErrShape)
	}
	q := normal.NewDiagonal(make([]float64, d), make([]float64, d)).In(normal.MeanCov)
	if err := q.SetParams(append(append([]float64(nil), mean...), variance...)); err != nil {
		return nil, err
	}
	return &Gaussian{q.In(normal.MeanParams)}, nil
}

// NewIsotropicMeanField returns N(0, variance·I) over R^dim with a diagonal covariance, in the
// coordinates MeanParams. It panics if dim < 1 or if variance is not positive and finite.
func NewIsotropicMeanField(dim int, variance float64) *Gaussian {
	checkIsotropic(dim, variance)
	v := make([]float64, dim)
	for i := range v {
		v[i] = variance
	}
	return &Gaussian{normal.NewDiagonal(make([]float64, dim), v)}
}

// formed is a *Gaussian or a type that embeds one.
type formed interface{ gaussianForm() normal.Form }

func (g *Gaussian) gaussianForm() normal.Form { return g.form }

// formOf returns the form of q, or nil if q is not Gaussian.
func formOf(q Dist) normal.Form {
	if g, ok := q.(formed); ok {
		return g.gaussianForm()
	}
	return nil
}

// full returns the form of a full covariance, or nil if g is diagonal.
func (g *Gaussian) full() *normal.Full {
	f, _ := g.form.(*normal.Full)
	return f
}

// factorOf returns the form of a full Gaussian whose λ is (m, L), in which gradients need neither V
// nor V⁻¹. It returns nil for any other q.
func factorOf(q Dist) *normal.Full {
	g, ok := q.(*Gaussian)
	if !ok {
		return nil
	}
	if f := g.full(); f != nil && f.HasFactor() {
		return f
	}
	return nil
}

// inflation returns max_i V_ii/(1/(V⁻¹)_ii), the largest ratio of a marginal to a conditional
// variance. It is the factor by which V magnifies the rounding of V⁻¹.
func (g *Gaussian) inflation() float64 {
	most := 1.0
	for i := range g.Dim() {
		most = math.Max(most, g.form.CovAt(i, i)*g.form.PrecisionAt(i, i))
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
	return &Gaussian{g.form.In(normal.Coords(c))}
}

// Coordinates returns the meaning of λ.
func (g *Gaussian) Coordinates() Coordinates { return Coordinates(g.form.Coords()) }

// Dim returns d.
func (g *Gaussian) Dim() int { return g.form.Dim() }

// NumParams returns d + d(d+1)/2, or 2d if V is diagonal.
func (g *Gaussian) NumParams() int { return g.form.NumParams() }

// String returns the mean and the standard deviations, such as "Gaussian, mean (1, 0.2), sd (0.3, 2)".
// It shows at most six elements of each.
func (g *Gaussian) String() string {
	sd := g.Var(nil)
	for i, v := range sd {
		sd[i] = math.Sqrt(v)
	}
	return "Gaussian, mean " + shortList(g.form.Mean()) + ", sd " + shortList(sd)
}

// Mean stores m in dst; nil allocates.
func (g *Gaussian) Mean(dst []float64) []float64 {
	dst = dense.Dest(dst, g.Dim())
	copy(dst, g.form.Mean())
	return dst
}

// Var stores the diagonal of V in dst; nil allocates.
func (g *Gaussian) Var(dst []float64) []float64 {
	dst = dense.Dest(dst, g.Dim())
	for i := range dst {
		dst[i] = g.form.CovAt(i, i)
	}
	return dst
}

// Cov returns a copy of V.
func (g *Gaussian) Cov() *mat.SymDense {
	if f := g.full(); f != nil {
		return mat.NewSymDense(g.Dim(), append([]float64(nil), f.Cov()...))
	}
	return g.diagonalMatrix(g.form.CovAt)
}

// precisionMatrix returns a copy of V⁻¹.
func (g *Gaussian) precisionMatrix() *mat.SymDense {
	if f := g.full(); f != nil {
		return mat.NewSymDense(g.Dim(), append([]float64(nil), f.Prec()...))
	}
	return g.diagonalMatrix(g.form.PrecisionAt)
}

func (g *Gaussian) diagonalMatrix(at func(i, j int) float64) *mat.SymDense {
	s := mat.NewSymDense(g.Dim(), nil)
	for i := range g.Dim() {
		s.SetSym(i, i, at(i, i))
	}
	return s
}

// Params implements Dist.
func (g *Gaussian) Params(dst []float64) []float64 { return g.form.Params(dst) }

// SetParams implements Dist.
func (g *Gaussian) SetParams(lambda []float64) error { return g.form.SetParams(lambda) }

// LogProb implements Dist.
func (g *Gaussian) LogProb(z []float64) float64 { return g.form.LogProb(z) }

// Score implements Dist.
func (g *Gaussian) Score(dst, z []float64) []float64 { return g.form.Score(dst, z) }

// Rand implements Dist. It returns m + Lε.
func (g *Gaussian) Rand(dst []float64, rng *rand.Rand) []float64 {
	dst = dense.Dest(dst, g.Dim())
	for i := range dst {
		dst[i] = rng.NormFloat64()
	}
	g.form.Transform(dst)
	return dst
}

// use implements halting. Only computations with a full covariance take long.
func (g *Gaussian) use(h *parallel.Halt) {
	if full := g.full(); full != nil {
		full.Watch(h)
	}
}

// Clone implements Dist.
func (g *Gaussian) Clone() Dist { return g.In(g.Coordinates()) }

// Chart implements Charted. The chart is λ in the coordinates LogCholesky.
func (g *Gaussian) Chart(dst []float64) []float64 { return g.form.Chart(dst) }

// SetChart implements Charted.
func (g *Gaussian) SetChart(x []float64) error { return g.form.SetChart(x) }

// ChartGrad implements Charted.
func (g *Gaussian) ChartGrad(dst, grad []float64) []float64 { return g.form.ChartGrad(dst, grad) }

// Natural implements ExpFamily.
func (g *Gaussian) Natural(dst []float64) []float64 { return g.form.Natural(dst) }

// SetNatural implements ExpFamily.
func (g *Gaussian) SetNatural(eta []float64) error { return g.form.SetNatural(eta) }

// MeanParams implements ExpFamily. It stores (m, V + mmᵀ), whereas Mean stores only m.
func (g *Gaussian) MeanParams(dst []float64) []float64 { return g.form.MeanParams(dst) }

// SetMeanParams implements ExpFamily.
func (g *Gaussian) SetMeanParams(mu []float64) error { return g.form.SetMeanParams(mu) }

// LogPartition returns A(η) = ½(mᵀV⁻¹m + log|V| + d log 2π).
func (g *Gaussian) LogPartition() float64 { return g.form.LogPartition() }

// MeanGrad implements ExpFamily.
func (g *Gaussian) MeanGrad(dst, grad []float64) []float64 { return g.form.MeanGrad(dst, grad) }

// FromMeanGrad implements ExpFamily.
func (g *Gaussian) FromMeanGrad(dst, grad []float64) []float64 {
	return g.form.FromMeanGrad(dst, grad)
}

// FromNaturalGrad implements ExpFamily.
func (g *Gaussian) FromNaturalGrad(dst, grad []float64) []float64 {
	return g.form.FromNaturalGrad(dst, grad)
}

// KL returns KL(q‖p) = ½(tr(PV) − d + (m − μ)ᵀP(m − μ) + log|P⁻¹|/|V|) in nats, where p = N(μ,
// P⁻¹). It panics unless p is a Gaussian of the same dimension, full or diagonal.
func (g *Gaussian) KL(p Dist) float64 { return normal.KL(g.form, p.(*Gaussian).form) }

// naturalOf treats a diagonal Gaussian as a full one.
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
	return ok && g.form.SetForm(o.form)
}

func checkIsotropic(dim int, variance float64) {
	if dim < 1 {
		panic(fmt.Sprintf("pgsvi: dimension %d must be at least 1", dim))
	}
	if !(variance > 0) || math.IsInf(variance, 0) || math.IsInf(1/variance, 0) {
		panic(fmt.Sprintf("pgsvi: variance %v must be positive and finite", variance))
	}
}

// klGrad stores ∇_λ KL(q‖p) in dst.
func klGrad(dst []float64, q ExpFamily, p Dist) []float64 {
	if n, ok := q.(*Gaussian); ok {
		return normal.KLGrad(dst, n.form, p.(*Gaussian).form)
	}
	// ∇_μ KL(q‖p) = η − η_p.
	g := q.Natural(nil)
	floats.Sub(g, p.(ExpFamily).Natural(nil))
	return q.FromMeanGrad(dst, g)
}

func (g *Gaussian) state(c *save.Coder) { g.form.Save(c) }
