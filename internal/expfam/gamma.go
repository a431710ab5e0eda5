package expfam

import (
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/mat"
)

// logGammaRand returns the logarithm of a draw from Gamma(a, 1) (Marsaglia and Tsang, 2000), which
// does not underflow.
func logGammaRand(a float64, rng *rand.Rand) float64 {
	var boost float64
	if a < 1 {
		boost = -rng.ExpFloat64() / a // log U^{1/a}
		a++
	}
	d := a - 1./3
	c := 1 / math.Sqrt(9*d)
	for range mostGammaDraws {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if logV := math.Log(v); -rng.ExpFloat64() < 0.5*x*x+d*(1-v+logV) {
			return math.Log(d) + logV + boost
		}
	}
	return math.NaN() // a is no shape
}

// mostGammaDraws bounds the proposals of a gamma variate. Each is accepted with probability 0.95 or
// more.
const mostGammaDraws = 1000

// GammaFamily is the Gamma family, of h = 1/z, with which η is not near an edge at a shape near 0.
type GammaFamily struct{}

func (GammaFamily) String() string { return "Gamma" }

func (GammaFamily) Dim() int { return 1 }

func (GammaFamily) NumParams() int { return 2 }

func (GammaFamily) LogPartition(eta []float64) float64 {
	a, b := eta[0], -eta[1]
	if !(a > 0 && b > 0) {
		return math.Inf(1)
	}
	lg, _ := math.Lgamma(a)
	return lg - a*math.Log(b)
}

func (GammaFamily) Mean(dst, eta []float64) {
	a, b := eta[0], -eta[1]
	dst[0], dst[1] = math.Log(a/b)-special.DigammaGap(a), a/b
}

func (GammaFamily) Fisher(dst *mat.SymDense, eta []float64) {
	a, b := eta[0], -eta[1]
	dst.SetSym(0, 0, special.Trigamma(a))
	dst.SetSym(0, 1, 1/b)
	dst.SetSym(1, 1, a/b/b)
}

func (GammaFamily) FisherMul(dst, g, eta []float64) {
	a, b := eta[0], -eta[1]
	dst[0], dst[1] = special.Trigamma(a)*g[0]+g[1]/b, (g[0]+a/b*g[1])/b
}

// FisherSolve: aψ′(a) − 1, of which the determinant is made, is not taken from a difference.
func (GammaFamily) FisherSolve(dst, g, eta []float64) {
	a, b := eta[0], -eta[1]
	x := (g[0] - b/a*g[1]) / special.TrigammaGap(a)
	dst[0], dst[1] = x, b/a*(b*g[1]-x)
}

func (GammaFamily) Stat(dst, z []float64) { dst[0], dst[1] = math.Log(z[0]), z[0] }

func (GammaFamily) LogBase(z []float64) float64 {
	if !(z[0] > 0) {
		return math.Inf(-1)
	}
	return -math.Log(z[0])
}

func (f GammaFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	var aux [1]float64
	f.RandPath(z, t, aux[:], eta, rng)
}

func (GammaFamily) AuxLen() int { return 1 }

// RandPath stores the logarithm of the draw at rate 1 in aux.
func (GammaFamily) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	aux[0] = logGammaRand(eta[0], rng)
	t[0] = aux[0] - math.Log(-eta[1])
	t[1] = math.Exp(t[0])
	z[0] = t[1]
}

func (GammaFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	s := special.Times(dl[0]+c[1], z[0]) + c[0] // the slope in log z
	dst[0] += s * special.GammaSlope(eta[0], aux[0])
	dst[1] -= s / eta[1]
}

func (GammaFamily) Entropy(eta []float64) float64 {
	a, b := eta[0], -eta[1]
	return 0.5*math.Log(a) - math.Log(b) + special.LogSqrt2Pi + special.Binet(a) +
		(a-1)*special.DigammaGap(a)
}

// Divergence is a_p·g(a b_p/(a_p b)) and the rest of the Bregman divergence of log Γ, with g(u) = u
// − 1 − log u.
func (GammaFamily) Divergence(eta, etaP []float64) float64 {
	a, ap := eta[0], etaP[0]
	return ap*special.LogGap(a/ap*(etaP[1]/eta[1])) + special.GammaRest(ap, a)
}

// FromMean solves log a − ψ(a) = log μ_1 − μ_0.
func (GammaFamily) FromMean(dst, mu []float64) bool {
	y := math.Log(mu[1]) - mu[0]
	if !(mu[1] > 0 && y > 0) {
		return false
	}
	a := special.InvDigammaGap(y)
	dst[0], dst[1] = a, -a/mu[1]
	return true
}

func (GammaFamily) Chart(dst, eta []float64) {
	dst[0], dst[1] = math.Log(eta[0]),
		math.Log(-eta[1])
}

func (GammaFamily) FromChart(dst, x []float64) { dst[0], dst[1] = math.Exp(x[0]), -math.Exp(x[1]) }

func (GammaFamily) ChartGrad(dst, g, eta []float64) { dst[0], dst[1] = g[0]*eta[0], g[1]*eta[1] }

// InverseGammaFamily is the Gamma family of 1/z.
type InverseGammaFamily struct{ GammaFamily }

func (InverseGammaFamily) String() string { return "InverseGamma" }

func (InverseGammaFamily) Stat(dst, z []float64) { dst[0], dst[1] = -math.Log(z[0]), 1/z[0] }

func (f InverseGammaFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	var aux [1]float64
	f.RandPath(z, t, aux[:], eta, rng)
}

func (f InverseGammaFamily) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	f.GammaFamily.RandPath(z, t, aux, eta, rng)
	z[0] = math.Exp(-t[0])
}

func (InverseGammaFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	s := special.Times(-dl[0], z[0]) + special.Times(c[1], 1/z[0]) + c[0] // the slope in −log z
	dst[0] += s * special.GammaSlope(eta[0], aux[0])
	dst[1] -= s / eta[1]
}

// Entropy is that of 1/z and E[2 log z].
func (f InverseGammaFamily) Entropy(eta []float64) float64 {
	var mu [2]float64
	f.Mean(mu[:], eta)
	return f.GammaFamily.Entropy(eta) - 2*mu[0]
}

// Line: u is log z less its mode log a/b.
func (GammaFamily) Line(t []float64, u float64, eta []float64) (z, log float64) {
	a, b := eta[0], -eta[1]
	t[0], t[1] = u+special.DigammaGap(a), a/b*math.Expm1(u)
	return a / b * math.Exp(u),
		0.5*math.Log(a) - special.LogSqrt2Pi - special.Binet(a) - a*special.ExpRest(u)
}

func (GammaFamily) Width(eta []float64) float64 { return 1 / math.Sqrt(eta[0]) }

func (f InverseGammaFamily) Line(t []float64, u float64, eta []float64) (z, log float64) {
	z, log = f.GammaFamily.Line(t, u, eta)
	return 1 / z, log
}
