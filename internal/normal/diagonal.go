package normal

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Diagonal is N(m, diag(v)).
type Diagonal struct {
	coords Coords
	m, v   []float64
}

// NewDiagonal returns N(mean, diag(variance)), whose slices it keeps, in the coordinates
// MeanParams. They are to be valid.
func NewDiagonal(mean, variance []float64) *Diagonal { return &Diagonal{m: mean, v: variance} }

func (q *Diagonal) In(c Coords) Form {
	return &Diagonal{coords: c, m: append([]float64(nil), q.m...),
		v: append([]float64(nil), q.v...)}
}

func (q *Diagonal) Coords() Coords { return q.coords }

func (q *Diagonal) Dim() int { return len(q.m) }

func (q *Diagonal) NumParams() int { return 2 * len(q.m) }

func (q *Diagonal) Params(dst []float64) []float64 { return q.paramsIn(q.coords, dst) }

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

func (q *Diagonal) SetParams(lambda []float64) error { return q.setParamsIn(q.coords, lambda) }

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

func (q *Diagonal) Natural(dst []float64) []float64 { return q.paramsIn(Natural, dst) }

func (q *Diagonal) SetNatural(eta []float64) error { return q.setParamsIn(Natural, eta) }

func (q *Diagonal) MeanParams(dst []float64) []float64 { return q.paramsIn(MeanParams, dst) }

func (q *Diagonal) SetMeanParams(mu []float64) error { return q.setParamsIn(MeanParams, mu) }

// LogPartition returns A(η) = ½ Σ_i (m_i²/v_i + log 2πv_i).
func (q *Diagonal) LogPartition() float64 {
	var s float64
	for i, m := range q.m {
		s += m*m/q.v[i] + math.Log(q.v[i]) + expfam.Log2Pi
	}
	return 0.5 * s
}

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

func (q *Diagonal) Score(dst, z []float64) []float64 {
	d := len(q.m)
	dst = dense.Dest(dst, 2*d)
	for i, m := range q.m {
		u := (z[i] - m) / q.v[i]
		dst[i], dst[d+i] = u, 0.5*(u*u-1/q.v[i])
	}
	return q.FromMomentGrad(dst, dst[:d], dst[d:])
}

func (q *Diagonal) MeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, q.coords, MeanParams)
}

func (q *Diagonal) FromMeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, MeanParams, q.coords)
}

func (q *Diagonal) FromNaturalGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, Natural, q.coords)
}

func (q *Diagonal) convertGrad(dst, grad []float64, from, to Coords) []float64 {
	d := len(q.m)
	dst = dense.Dest(dst, 2*d)
	q.toMomentGradIn(from, dst[:d], dst[d:], grad)
	return q.fromMomentGradIn(to, dst, dst[:d], dst[d:])
}

func (q *Diagonal) Chart(dst []float64) []float64 { return q.paramsIn(LogCholesky, dst) }

func (q *Diagonal) SetChart(x []float64) error { return q.setParamsIn(LogCholesky, x) }

func (q *Diagonal) ChartGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, q.coords, LogCholesky)
}

// FromMomentGrad stores in dst the gradient ∇_λ of a function whose gradients
// with respect to m and v are gm and gv; dst may be their concatenation.
func (q *Diagonal) FromMomentGrad(dst, gm, gv []float64) []float64 {
	return q.fromMomentGradIn(q.coords, dst, gm, gv)
}

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

// ToMomentGrad is the inverse of FromMomentGrad; gm and gv may be the halves of grad.
func (q *Diagonal) ToMomentGrad(gm, gv, grad []float64) {
	q.toMomentGradIn(q.coords, gm, gv, grad)
}

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

func (q *Diagonal) SetForm(p Form) bool {
	o, ok := p.(*Diagonal)
	if !ok || len(o.m) != len(q.m) {
		return false
	}
	copy(q.m, o.m)
	copy(q.v, o.v)
	return true
}

func (q *Diagonal) SetPrecision(m, p []float64) error {
	x := append([]float64(nil), m...)
	for _, pi := range p {
		x = append(x, 1/pi)
	}
	return q.setParamsIn(MeanCov, x)
}

func (q *Diagonal) Mean() []float64 { return q.m }

func (q *Diagonal) MeanAt(i int) float64 { return q.m[i] }

func (q *Diagonal) CovAt(i, j int) float64 {
	if i != j {
		return 0
	}
	return q.v[i]
}

func (q *Diagonal) PrecisionAt(i, j int) float64 {
	if i != j {
		return 0
	}
	return 1 / q.v[i]
}

func (q *Diagonal) MulPrecision(dst, x []float64) {
	for i, v := range q.v {
		dst[i] = x[i] / v
	}
}

func (q *Diagonal) LogDetV() float64 {
	var s float64
	for _, v := range q.v {
		s += math.Log(v)
	}
	return s
}

func (q *Diagonal) NumGradV() int { return len(q.v) }

func (q *Diagonal) Marginal(x []float64) (m, v float64) {
	for i, xi := range x {
		m += q.m[i] * xi
		v += q.v[i] * xi * xi
	}
	return m, v
}

func (q *Diagonal) AddOuter(gv []float64, c float64, u, w []float64) {
	for i := range gv {
		gv[i] += c * u[i] * w[i]
	}
}

func (q *Diagonal) AddPrecision(gv []float64, c float64) {
	for i, v := range q.v {
		gv[i] += c / v
	}
}

func (q *Diagonal) Transform(eps []float64) {
	for i, v := range q.v {
		eps[i] = q.m[i] + math.Sqrt(v)*eps[i]
	}
}

func (q *Diagonal) Standardize(dst, eps []float64) {
	for i, v := range q.v {
		dst[i] = eps[i] / math.Sqrt(v)
	}
}

func (q *Diagonal) Save(c *save.State) { c.Floats(len(q.m), &q.m, &q.v) }
