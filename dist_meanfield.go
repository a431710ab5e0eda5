package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// MeanField is the Gaussian N(m, diag(v)) over R^d. Its λ has length 2d: the d
// elements of the vector part, then those of the diagonal part. In the
// coordinates MeanParams λ = (m, v + m²), in Moments (m, v), in Natural (m/v, −1/(2v)),
// in Cholesky (m, √v) and in LogCholesky (m, ½ log v).
type MeanField struct {
	coords Coordinates
	m, v   []float64
}

// NewMeanField returns N(mean, diag(variance)) in the coordinates MeanParams.
// A nil mean means zero. The arguments are copied. It returns an error wrapping
// ErrShape, ErrEmpty, ErrNotFinite or ErrNotPosDef.
func NewMeanField(mean, variance []float64) (*MeanField, error) {
	d := len(variance)
	if d == 0 {
		return nil, fmt.Errorf("pgsvi: %w: NewMeanField needs variances", ErrEmpty)
	}
	if mean == nil {
		mean = make([]float64, d)
	}
	if len(mean) != d {
		return nil, fmt.Errorf("pgsvi: %w: mean has %d elements, variance has %d", ErrShape, len(mean), d)
	}
	q := &MeanField{coords: Moments, m: make([]float64, d), v: make([]float64, d)}
	if err := q.SetParams(append(append([]float64(nil), mean...), variance...)); err != nil {
		return nil, err
	}
	q.coords = MeanParams
	return q, nil
}

// NewIsotropicMeanField returns N(0, variance·I) over R^dim with a diagonal
// covariance, in the coordinates MeanParams. It panics if dim < 1 or variance
// is not positive and finite.
func NewIsotropicMeanField(dim int, variance float64) *MeanField {
	checkIsotropic(dim, variance)
	q := &MeanField{m: make([]float64, dim), v: make([]float64, dim)}
	for i := range q.v {
		q.v[i] = variance
	}
	return q
}

// In returns a copy of q whose λ is expressed in the coordinates c.
func (q *MeanField) In(c Coordinates) *MeanField {
	if c < MeanParams || c > LogCholesky {
		panic("pgsvi: invalid Coordinates")
	}
	return &MeanField{coords: c, m: append([]float64(nil), q.m...), v: append([]float64(nil), q.v...)}
}

// Coordinates returns the meaning of λ.
func (q *MeanField) Coordinates() Coordinates { return q.coords }

// Dim returns d.
func (q *MeanField) Dim() int { return len(q.m) }

// NumParams returns 2d.
func (q *MeanField) NumParams() int { return 2 * len(q.m) }

// Clone implements Dist.
func (q *MeanField) Clone() Dist { return q.In(q.coords) }

// MeanTo stores m in dst; nil allocates.
func (q *MeanField) MeanTo(dst []float64) []float64 {
	dst = dense.Dest(dst, len(q.m))
	copy(dst, q.m)
	return dst
}

// VarTo stores v in dst; nil allocates.
func (q *MeanField) VarTo(dst []float64) []float64 {
	dst = dense.Dest(dst, len(q.v))
	copy(dst, q.v)
	return dst
}

// Params implements Dist.
func (q *MeanField) Params(dst []float64) []float64 { return q.paramsIn(q.coords, dst) }

func (q *MeanField) paramsIn(c Coordinates, dst []float64) []float64 {
	dst = dense.Dest(dst, q.NumParams())
	d := len(q.m)
	for i, m := range q.m {
		v := q.v[i]
		switch c {
		case Moments:
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

// SetParams implements Dist.
func (q *MeanField) SetParams(lambda []float64) error { return q.setParamsIn(q.coords, lambda) }

func (q *MeanField) setParamsIn(c Coordinates, p []float64) error {
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
			return fmt.Errorf("pgsvi: %w: the variance of dimension %d underflows", ErrNotFinite, i)
		}
		if math.IsNaN(m+v) || math.IsInf(m, 0) || math.IsInf(v, 0) {
			return fmt.Errorf("pgsvi: %w: dimension %d would have mean %v and variance %v", ErrNotFinite, i, m, v)
		}
		if !(v > 0) || math.IsInf(1/v, 0) {
			return fmt.Errorf("pgsvi: %w: dimension %d would have variance %v", ErrNotPosDef, i, v)
		}
	}
	for i := range d {
		q.m[i], q.v[i] = moments(i)
	}
	return nil
}

// Natural implements ExpFamily.
func (q *MeanField) Natural(dst []float64) []float64 { return q.paramsIn(Natural, dst) }

// SetNatural implements ExpFamily.
func (q *MeanField) SetNatural(eta []float64) error { return q.setParamsIn(Natural, eta) }

// MeanParams implements ExpFamily: it stores the mean parameters (m, v + m²). MeanTo is m alone.
func (q *MeanField) MeanParams(dst []float64) []float64 { return q.paramsIn(MeanParams, dst) }

// SetMeanParams implements ExpFamily.
func (q *MeanField) SetMeanParams(mu []float64) error { return q.setParamsIn(MeanParams, mu) }

// LogPartition returns A(η) = ½ Σ_i (m_i²/v_i + log 2πv_i).
func (q *MeanField) LogPartition() float64 {
	var s float64
	for i, m := range q.m {
		s += m*m/q.v[i] + math.Log(q.v[i]) + log2Pi
	}
	return 0.5 * s
}

// LogProb implements Dist.
func (q *MeanField) LogProb(z []float64) float64 {
	if len(z) != len(q.m) {
		panic("pgsvi: z has the wrong length")
	}
	var s float64
	for i, m := range q.m {
		s += (z[i]-m)*(z[i]-m)/q.v[i] + math.Log(q.v[i]) + log2Pi
	}
	return -0.5 * s
}

// Score implements Dist.
func (q *MeanField) Score(dst, z []float64) []float64 {
	d := len(q.m)
	dst = dense.Dest(dst, 2*d)
	for i, m := range q.m {
		u := (z[i] - m) / q.v[i]
		dst[i], dst[d+i] = u, 0.5*(u*u-1/q.v[i])
	}
	return q.fromMomentGrad(dst, dst[:d], dst[d:])
}

// Rand implements Dist.
func (q *MeanField) Rand(dst []float64, rng *rand.Rand) []float64 {
	dst = dense.Dest(dst, len(q.m))
	for i := range dst {
		dst[i] = rng.NormFloat64()
	}
	q.transform(dst)
	return dst
}

// MeanGrad implements ExpFamily.
func (q *MeanField) MeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, q.coords, MeanParams)
}

// FromMeanGrad implements ExpFamily.
func (q *MeanField) FromMeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, MeanParams, q.coords)
}

// FromNaturalGrad implements ExpFamily.
func (q *MeanField) FromNaturalGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, Natural, q.coords)
}

func (q *MeanField) convertGrad(dst, grad []float64, from, to Coordinates) []float64 {
	d := len(q.m)
	dst = dense.Dest(dst, 2*d)
	q.toMomentGradIn(from, dst[:d], dst[d:], grad)
	return q.fromMomentGradIn(to, dst, dst[:d], dst[d:])
}

func (q *MeanField) naturalOf(p ExpFamily) []float64 {
	if o, ok := p.(*MeanField); ok && o.Dim() == q.Dim() {
		return o.Natural(nil)
	}
	return nil
}

// KL returns KL(q‖p) in nats; p is a MeanField or Gaussian of the same dimension.
func (q *MeanField) KL(p Dist) float64 { return gaussianKL(q, p.(normal)) }

// Chart implements Charted by the coordinates LogCholesky.
func (q *MeanField) Chart(dst []float64) []float64 { return q.paramsIn(LogCholesky, dst) }

// SetChart implements Charted.
func (q *MeanField) SetChart(x []float64) error { return q.setParamsIn(LogCholesky, x) }

// ChartGrad implements Charted.
func (q *MeanField) ChartGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, q.coords, LogCholesky)
}

// fromMomentGrad stores in dst the gradient ∇_λ of a function whose gradients
// with respect to m and v are gm and gv; dst may be their concatenation.
func (q *MeanField) fromMomentGrad(dst, gm, gv []float64) []float64 {
	return q.fromMomentGradIn(q.coords, dst, gm, gv)
}

func (q *MeanField) fromMomentGradIn(c Coordinates, dst, gm, gv []float64) []float64 {
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
func (q *MeanField) toMomentGrad(gm, gv, grad []float64) {
	q.toMomentGradIn(q.coords, gm, gv, grad)
}

func (q *MeanField) toMomentGradIn(c Coordinates, gm, gv, grad []float64) {
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

func (q *MeanField) setState(p Dist) bool {
	o, ok := p.(*MeanField)
	if !ok || len(o.m) != len(q.m) {
		return false
	}
	copy(q.m, o.m)
	copy(q.v, o.v)
	return true
}

func (q *MeanField) setPrecision(m, p []float64) error {
	x := append([]float64(nil), m...)
	for _, pi := range p {
		x = append(x, 1/pi)
	}
	return q.setParamsIn(Moments, x)
}

func (q *MeanField) meanAt(i int) float64 { return q.m[i] }

func (q *MeanField) covAt(i, j int) float64 {
	if i != j {
		return 0
	}
	return q.v[i]
}

func (q *MeanField) precisionAt(i, j int) float64 {
	if i != j {
		return 0
	}
	return 1 / q.v[i]
}

func (q *MeanField) mulPrecision(dst, x []float64) {
	for i, v := range q.v {
		dst[i] = x[i] / v
	}
}

func (q *MeanField) logDetV() float64 {
	var s float64
	for _, v := range q.v {
		s += math.Log(v)
	}
	return s
}

func (q *MeanField) numGradV() int { return len(q.v) }

func (q *MeanField) marginal(x []float64) (m, v float64) {
	for i, xi := range x {
		m += q.m[i] * xi
		v += q.v[i] * xi * xi
	}
	return m, v
}

func (q *MeanField) addOuter(gv []float64, c float64, u, w []float64) {
	for i := range gv {
		gv[i] += c * u[i] * w[i]
	}
}

func (q *MeanField) addPrecision(gv []float64, c float64) {
	for i, v := range q.v {
		gv[i] += c / v
	}
}

func (q *MeanField) transform(eps []float64) {
	for i, v := range q.v {
		eps[i] = q.m[i] + math.Sqrt(v)*eps[i]
	}
}

func (q *MeanField) standardize(dst, eps []float64) {
	for i, v := range q.v {
		dst[i] = eps[i] / math.Sqrt(v)
	}
}
