package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
)

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
		s += m*m/q.v[i] + math.Log(q.v[i]) + log2Pi
	}
	return 0.5 * s
}

func (q *diagonalGaussian) LogProb(z []float64) float64 {
	if len(z) != len(q.m) {
		panic("pgsvi: z has the wrong length")
	}
	var s float64
	for i, m := range q.m {
		s += (z[i]-m)*(z[i]-m)/q.v[i] + math.Log(q.v[i]) + log2Pi
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
