package normal

// This file has the functions of Family for a diagonal covariance. Element i of z has the variance
// v = −1/(2η_{d+i}) and the mean m = vη_i.

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/expfam"
)

// diagonal holds η, the vector part before the diagonal of the matrix part.
type diagonal []float64

// at returns the mean and the variance of element i of d.
func (eta diagonal) at(i, d int) (m, v float64) {
	v = -0.5 / eta[d+i]
	return eta[i] * v, v
}

// isValid reports whether m and v are the mean and variance of a Gaussian.
func isValid(m, v float64) bool {
	return v > 0 && !math.IsInf(v, 0) && !math.IsInf(1/v, 0) && !math.IsNaN(m) && !math.IsInf(m, 0)
}

func (eta diagonal) logPartition() (a float64) {
	d := len(eta) / 2
	for i := range d {
		m, v := eta.at(i, d)
		if !isValid(m, v) {
			return math.Inf(1)
		}
		a += m*m/v + math.Log(v) + expfam.Log2Pi
	}
	return 0.5 * a
}

// mean stores μ in dst and reports whether η is valid.
func (eta diagonal) mean(dst []float64) bool {
	d := len(eta) / 2
	for i := range d {
		m, v := eta.at(i, d)
		if !isValid(m, v) {
			return false
		}
		dst[i], dst[d+i] = m, v+m*m
	}
	return true
}

func (eta diagonal) fisherMul(dst, g []float64) {
	d := len(eta) / 2
	for i := range d {
		m, v := eta.at(i, d)
		b := g[d+i]
		a := g[i] + 2*b*m
		dst[i], dst[d+i] = v*a, 2*v*(m*a+v*b)
	}
}

func (eta diagonal) fisherSolve(dst, g []float64) {
	d := len(eta) / 2
	for i := range d {
		m, v := eta.at(i, d)
		a := g[i] / v
		b := (g[d+i]/(2*v) - m*a) / v
		dst[i], dst[d+i] = a-2*b*m, b
	}
}

func (eta diagonal) logDetV() (s float64) {
	d := len(eta) / 2
	for i := range d {
		_, v := eta.at(i, d)
		s += math.Log(v)
	}
	return s
}

func (eta diagonal) transform(eps []float64) {
	d := len(eta) / 2
	for i, e := range eps {
		m, v := eta.at(i, d)
		eps[i] = m + math.Sqrt(v)*e
	}
}

// kl returns KL(q‖p) = ½ Σ_i (r − 1 − log r + δ²/v_p) with r = v/v_p and δ = m − m_p. The rounding
// error of a summand is proportional to log r, which is small if q and p are close.
func (eta diagonal) kl(etaP diagonal) (kl float64) {
	d := len(eta) / 2
	for i := range d {
		m, v := eta.at(i, d)
		mp, vp := etaP.at(i, d)
		r := v / vp
		kl += r - 1 - math.Log(r) + (m-mp)*(m-mp)/vp
	}
	return 0.5 * kl
}

func fromMeanDiagonal(dst, mu []float64) bool {
	d := len(mu) / 2
	for i := range d {
		m := mu[i]
		v := mu[d+i] - m*m
		if !isValid(m, v) {
			return false
		}
		dst[i], dst[d+i] = m/v, -0.5/v
	}
	return true
}

// chart stores the means and ½ log v in dst.
func (eta diagonal) chart(dst []float64) {
	d := len(eta) / 2
	for i := range d {
		m, v := eta.at(i, d)
		dst[i], dst[d+i] = m, 0.5*math.Log(v)
	}
}

func fromChartDiagonal(dst, x []float64) bool {
	d := len(x) / 2
	for i := range d {
		m, v := x[i], math.Exp(2*x[d+i])
		if !isValid(m, v) {
			return false
		}
		dst[i], dst[d+i] = m/v, -0.5/v
	}
	return true
}

func (eta diagonal) chartGrad(dst, g []float64) {
	d := len(eta) / 2
	for i := range d {
		m, v := eta.at(i, d)
		a := g[i] / v
		dst[i], dst[d+i] = a, g[d+i]/v-2*m*a
	}
}

func (eta diagonal) pathGrad(dst, dl, c, z, aux []float64) {
	d := len(eta) / 2
	for i, x := range z {
		m, v := eta.at(i, d)
		a := dl[i] + c[i] + 2*c[d+i]*x
		b := 0.5 * a * aux[i] / math.Sqrt(v)
		dst[i] += v * a
		dst[d+i] += 2 * v * (m*a + v*b)
	}
}
