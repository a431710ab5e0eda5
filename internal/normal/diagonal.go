package normal

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Diagonal is N(m, diag(v)), a Gaussian with independent elements.
type Diagonal struct {
	coords Coords
	m, v   []float64
}

// NewDiagonal returns N(mean, diag(variance)) in the coordinates MeanParams. It keeps both slices and
// does not check them.
func NewDiagonal(mean, variance []float64) *Diagonal { return &Diagonal{m: mean, v: variance} }

// In returns a copy in the coordinates c.
func (q *Diagonal) In(c Coords) Form {
	return &Diagonal{coords: c, m: append([]float64(nil), q.m...),
		v: append([]float64(nil), q.v...)}
}

// Coords returns the meaning of λ.
func (q *Diagonal) Coords() Coords { return q.coords }

// Dim returns the dimension of z.
func (q *Diagonal) Dim() int { return len(q.m) }

// NumParams returns the length of λ.
func (q *Diagonal) NumParams() int { return 2 * len(q.m) }

// Params stores λ in dst and returns it. A nil dst allocates.
func (q *Diagonal) Params(dst []float64) []float64 { return q.paramsIn(q.coords, dst) }

// paramsIn is Params in the coordinates c.
func (q *Diagonal) paramsIn(c Coords, dst []float64) []float64 {
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

// SetParams sets λ. If the result is not a Gaussian, it changes nothing and the error wraps
// sentinel.ErrNotPosDef or sentinel.ErrNotFinite.
func (q *Diagonal) SetParams(lambda []float64) error { return q.setParamsIn(q.coords, lambda) }

// setParamsIn is SetParams in the coordinates c.
func (q *Diagonal) setParamsIn(c Coords, p []float64) error {
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
			return fmt.Errorf("pgsvi: the variance of dimension %d underflows: %w", i,
				sentinel.ErrNotFinite)
		}
		if math.IsNaN(m+v) || math.IsInf(m, 0) || math.IsInf(v, 0) {
			return fmt.Errorf("pgsvi: dimension %d would have mean %v and variance %v: %w", i, m, v,
				sentinel.ErrNotFinite)
		}
		if !(v > 0) || math.IsInf(1/v, 0) {
			return fmt.Errorf("pgsvi: dimension %d would have variance %v: %w", i, v,
				sentinel.ErrNotPosDef)
		}
	}
	for i := range d {
		q.m[i], q.v[i] = moments(i)
	}
	return nil
}

// Natural stores η = (V⁻¹m, −½V⁻¹) in dst. A nil dst allocates.
func (q *Diagonal) Natural(dst []float64) []float64 { return q.paramsIn(Natural, dst) }

// SetNatural sets η. Its errors are the errors of SetParams.
func (q *Diagonal) SetNatural(eta []float64) error { return q.setParamsIn(Natural, eta) }

// MeanParams stores μ = (m, V + mmᵀ) in dst. A nil dst allocates.
func (q *Diagonal) MeanParams(dst []float64) []float64 { return q.paramsIn(MeanParams, dst) }

// SetMeanParams sets μ. Its errors are the errors of SetParams.
func (q *Diagonal) SetMeanParams(mu []float64) error { return q.setParamsIn(MeanParams, mu) }

// LogPartition returns A(η) = ½ Σ_i (m_i²/v_i + log 2πv_i).
func (q *Diagonal) LogPartition() float64 {
	var s float64
	for i, m := range q.m {
		s += m*m/q.v[i] + math.Log(q.v[i]) + expfam.Log2Pi
	}
	return 0.5 * s
}

// LogProb returns log q(z) in nats. It panics if z has another length than the mean.
func (q *Diagonal) LogProb(z []float64) float64 {
	if len(z) != len(q.m) {
		panic("pgsvi: z has the wrong length")
	}
	var s float64
	for i, m := range q.m {
		s += (z[i]-m)*(z[i]-m)/q.v[i] + math.Log(q.v[i]) + expfam.Log2Pi
	}
	return -0.5 * s
}

// Score stores ∇_λ log q(z) in dst. A nil dst allocates.
func (q *Diagonal) Score(dst, z []float64) []float64 {
	d := len(q.m)
	dst = dense.Dest(dst, 2*d)
	for i, m := range q.m {
		u := (z[i] - m) / q.v[i]
		dst[i], dst[d+i] = u, 0.5*(u*u-1/q.v[i])
	}
	return q.FromMomentGrad(dst, dst[:d], dst[d:])
}

// MeanGrad turns a gradient in λ into the gradient in μ and stores it in dst. A nil dst
// allocates.
func (q *Diagonal) MeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, q.coords, MeanParams)
}

// FromMeanGrad turns a gradient in μ into the gradient in λ and stores it in dst. A nil dst
// allocates.
func (q *Diagonal) FromMeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, MeanParams, q.coords)
}

// FromNaturalGrad turns a gradient in η into the gradient in λ and stores it in dst. A nil dst
// allocates.
func (q *Diagonal) FromNaturalGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, Natural, q.coords)
}

// convertGrad turns a gradient in the coordinates from into the gradient in the coordinates to.
func (q *Diagonal) convertGrad(dst, grad []float64, from, to Coords) []float64 {
	d := len(q.m)
	dst = dense.Dest(dst, 2*d)
	q.toMomentGradIn(from, dst[:d], dst[d:], grad)
	return q.fromMomentGradIn(to, dst, dst[:d], dst[d:])
}

// Chart stores (m, L) with log L_ii in dst. These coordinates are unconstrained.
func (q *Diagonal) Chart(dst []float64) []float64 { return q.paramsIn(LogCholesky, dst) }

// SetChart sets (m, L) with log L_ii. Its errors are the errors of SetParams.
func (q *Diagonal) SetChart(x []float64) error { return q.setParamsIn(LogCholesky, x) }

// ChartGrad turns a gradient in λ into the gradient in the chart and stores it in dst.
func (q *Diagonal) ChartGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, q.coords, LogCholesky)
}

// FromMomentGrad stores the gradient ∇_λ of a function in dst. gm and gv are its gradients in m
// and v. dst may be their concatenation, and a nil dst allocates.
func (q *Diagonal) FromMomentGrad(dst, gm, gv []float64) []float64 {
	return q.fromMomentGradIn(q.coords, dst, gm, gv)
}

// fromMomentGradIn is FromMomentGrad in the coordinates c.
func (q *Diagonal) fromMomentGradIn(c Coords, dst, gm, gv []float64) []float64 {
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

// ToMomentGrad inverts FromMomentGrad. gm and gv may be the halves of grad.
func (q *Diagonal) ToMomentGrad(gm, gv, grad []float64) {
	q.toMomentGradIn(q.coords, gm, gv, grad)
}

// toMomentGradIn is ToMomentGrad in the coordinates c.
func (q *Diagonal) toMomentGradIn(c Coords, gm, gv, grad []float64) {
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

// SetForm copies the distribution p to q, to the bit. It reports false and changes nothing if p
// is of another kind or dimension.
func (q *Diagonal) SetForm(p Form) bool {
	o, ok := p.(*Diagonal)
	if !ok || len(o.m) != len(q.m) {
		return false
	}
	copy(q.m, o.m)
	copy(q.v, o.v)
	return true
}

// SetPrecision sets q to N(m, V) with V⁻¹ = p. Its errors are the errors of SetParams.
func (q *Diagonal) SetPrecision(m, p []float64) error {
	x := append([]float64(nil), m...)
	for _, pi := range p {
		x = append(x, 1/pi)
	}
	return q.setParamsIn(MeanCov, x)
}

// Mean returns m, not a copy.
func (q *Diagonal) Mean() []float64 { return q.m }

// MeanAt returns m_i.
func (q *Diagonal) MeanAt(i int) float64 { return q.m[i] }

// CovAt returns V_ij.
func (q *Diagonal) CovAt(i, j int) float64 {
	if i != j {
		return 0
	}
	return q.v[i]
}

// PrecisionAt returns (V⁻¹)_ij.
func (q *Diagonal) PrecisionAt(i, j int) float64 {
	if i != j {
		return 0
	}
	return 1 / q.v[i]
}

// MulPrecision stores V⁻¹x in dst.
func (q *Diagonal) MulPrecision(dst, x []float64) {
	for i, v := range q.v {
		dst[i] = x[i] / v
	}
}

// Pull implements Prior.
func (q *Diagonal) Pull(dst, m []float64) { pull(q, dst, m) }

// LogDetV returns log|V|.
func (q *Diagonal) LogDetV() float64 {
	var s float64
	for _, v := range q.v {
		s += math.Log(v)
	}
	return s
}

// NumGradV returns the length of a gradient in V, the dimension.
func (q *Diagonal) NumGradV() int { return len(q.v) }

// Marginal returns the mean and the variance of xᵀz.
func (q *Diagonal) Marginal(x []float64) (m, v float64) {
	for i, xi := range x {
		m += q.m[i] * xi
		v += q.v[i] * xi * xi
	}
	return m, v
}

// AddOuter adds the diagonal of c·uwᵀ to the gradient gv in V.
func (q *Diagonal) AddOuter(gv []float64, c float64, u, w []float64) {
	for i := range gv {
		gv[i] += c * u[i] * w[i]
	}
}

// AddPrecision adds c·V⁻¹ to the gradient gv in V.
func (q *Diagonal) AddPrecision(gv []float64, c float64) {
	for i, v := range q.v {
		gv[i] += c / v
	}
}

// Transform replaces a standard normal eps by the draw m + √v·eps.
func (q *Diagonal) Transform(eps []float64) {
	for i, v := range q.v {
		eps[i] = q.m[i] + math.Sqrt(v)*eps[i]
	}
}

// Standardize stores V⁻¹(z − m) in dst for the draw z that Transform makes of eps.
func (q *Diagonal) Standardize(dst, eps []float64) {
	for i, v := range q.v {
		dst[i] = eps[i] / math.Sqrt(v)
	}
}

// Save writes or reads the distribution, without its coordinates.
func (q *Diagonal) Save(c *save.Coder) { c.Floats(len(q.m), &q.m, &q.v) }
