package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/mat"
)

// NewGamma returns the Gamma distribution of a shape a > 0 and a rate b > 0,
//
//	q(z) = b^a/Γ(a) z^{a−1} e^{−bz},   η = (a, −b),   T(z) = (log z, z),   μ = (ψ(a) − log b, a/b),
//
// in the coordinates MeanParams. It has paths, quadrature and a chart (log a, log b). It returns an error
// wrapping ErrParam if a parameter is not positive and finite, or ErrNotFinite if μ overflows.
func NewGamma(shape, rate float64) (*Exp, error) {
	return newPositive(gammaFamily{}, []string{"shape", "rate"}, []float64{shape, rate}, []float64{shape, -rate})
}

// NewInverseGamma returns the distribution of 1/x, x ~ Gamma(a, b), with the shape a > 0 and the scale b > 0,
//
//	q(z) = b^a/Γ(a) z^{−a−1} e^{−b/z},   η = (a, −b),   T(z) = (−log z, 1/z),   μ = (ψ(a) − log b, a/b),
//
// in the coordinates MeanParams: the prior of a variance. It has what NewGamma has, and its errors.
func NewInverseGamma(shape, scale float64) (*Exp, error) {
	return newPositive(inverseGammaFamily{}, []string{"shape", "scale"}, []float64{shape, scale}, []float64{shape, -scale})
}

// newPositive returns the member of f with the natural parameters eta, if the parameters, which errors name, are all positive and
// finite. A single name of several is that of each of them, by number.
func newPositive(f namedFamily, names []string, params, eta []float64) (*Exp, error) {
	for i, x := range params {
		if x > 0 && !math.IsInf(x, 1) {
			continue
		}
		name := names[min(i, len(names)-1)]
		if len(names) < len(params) {
			name = fmt.Sprintf("%s %d", name, i)
		}
		return nil, fmt.Errorf("pgsvi: %s of %s is %v; it must be positive and finite: %w", name, f, x, ErrParam)
	}
	return NewExp(f, eta)
}

// logGammaRand returns the logarithm of a draw from Gamma(a, 1) (Marsaglia and Tsang, 2000), which does not underflow.
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

// mostGammaDraws bounds the proposals of a gamma variate. Each is accepted with probability 0.95 or more.
const mostGammaDraws = 1000

// gammaFamily is the Gamma family, of h = 1/z, with which η is not near an edge at a shape near 0.
type gammaFamily struct{}

func (gammaFamily) String() string { return "Gamma" }

func (gammaFamily) Dim() int { return 1 }

func (gammaFamily) NumParams() int { return 2 }

func (gammaFamily) LogPartition(eta []float64) float64 {
	a, b := eta[0], -eta[1]
	if !(a > 0 && b > 0) {
		return math.Inf(1)
	}
	lg, _ := math.Lgamma(a)
	return lg - a*math.Log(b)
}

func (gammaFamily) Mean(dst, eta []float64) {
	a, b := eta[0], -eta[1]
	dst[0], dst[1] = math.Log(a/b)-special.DigammaGap(a), a/b
}

func (gammaFamily) Fisher(dst *mat.SymDense, eta []float64) {
	a, b := eta[0], -eta[1]
	dst.SetSym(0, 0, special.Trigamma(a))
	dst.SetSym(0, 1, 1/b)
	dst.SetSym(1, 1, a/b/b)
}

func (gammaFamily) FisherMul(dst, g, eta []float64) {
	a, b := eta[0], -eta[1]
	dst[0], dst[1] = special.Trigamma(a)*g[0]+g[1]/b, (g[0]+a/b*g[1])/b
}

// FisherSolve: aψ′(a) − 1, of which the determinant is made, is not taken from a difference.
func (gammaFamily) FisherSolve(dst, g, eta []float64) {
	a, b := eta[0], -eta[1]
	x := (g[0] - b/a*g[1]) / special.TrigammaGap(a)
	dst[0], dst[1] = x, b/a*(b*g[1]-x)
}

func (gammaFamily) Stat(dst, z []float64) { dst[0], dst[1] = math.Log(z[0]), z[0] }

func (gammaFamily) LogBase(z []float64) float64 {
	if !(z[0] > 0) {
		return math.Inf(-1)
	}
	return -math.Log(z[0])
}

func (f gammaFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	var aux [1]float64
	f.RandPath(z, t, aux[:], eta, rng)
}

func (gammaFamily) AuxLen() int { return 1 }

// RandPath stores the logarithm of the draw at rate 1 in aux.
func (gammaFamily) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	aux[0] = logGammaRand(eta[0], rng)
	t[0] = aux[0] - math.Log(-eta[1])
	t[1] = math.Exp(t[0])
	z[0] = t[1]
}

func (gammaFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	s := special.Times(dl[0]+c[1], z[0]) + c[0] // the slope in log z
	dst[0] += s * special.GammaSlope(eta[0], aux[0])
	dst[1] -= s / eta[1]
}

func (gammaFamily) Entropy(eta []float64) float64 {
	a, b := eta[0], -eta[1]
	return 0.5*math.Log(a) - math.Log(b) + special.LogSqrt2Pi + special.Binet(a) + (a-1)*special.DigammaGap(a)
}

// divergence is a_p·g(a b_p/(a_p b)) and the rest of the Bregman divergence of log Γ, with g(u) = u − 1 − log u.
func (gammaFamily) divergence(eta, etaP []float64) float64 {
	a, ap := eta[0], etaP[0]
	return ap*special.LogGap(a/ap*(etaP[1]/eta[1])) + special.GammaRest(ap, a)
}

// fromMean solves log a − ψ(a) = log μ_1 − μ_0.
func (gammaFamily) fromMean(dst, mu []float64) bool {
	y := math.Log(mu[1]) - mu[0]
	if !(mu[1] > 0 && y > 0) {
		return false
	}
	a := special.InvDigammaGap(y)
	dst[0], dst[1] = a, -a/mu[1]
	return true
}

func (gammaFamily) Chart(dst, eta []float64) { dst[0], dst[1] = math.Log(eta[0]), math.Log(-eta[1]) }

func (gammaFamily) FromChart(dst, x []float64) { dst[0], dst[1] = math.Exp(x[0]), -math.Exp(x[1]) }

func (gammaFamily) ChartGrad(dst, g, eta []float64) { dst[0], dst[1] = g[0]*eta[0], g[1]*eta[1] }

// inverseGammaFamily is the Gamma family of 1/z.
type inverseGammaFamily struct{ gammaFamily }

func (inverseGammaFamily) String() string { return "InverseGamma" }

func (inverseGammaFamily) Stat(dst, z []float64) { dst[0], dst[1] = -math.Log(z[0]), 1/z[0] }

func (f inverseGammaFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	var aux [1]float64
	f.RandPath(z, t, aux[:], eta, rng)
}

func (f inverseGammaFamily) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	f.gammaFamily.RandPath(z, t, aux, eta, rng)
	z[0] = math.Exp(-t[0])
}

func (inverseGammaFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	s := special.Times(-dl[0], z[0]) + special.Times(c[1], 1/z[0]) + c[0] // the slope in −log z
	dst[0] += s * special.GammaSlope(eta[0], aux[0])
	dst[1] -= s / eta[1]
}

// Entropy is that of 1/z and E[2 log z].
func (f inverseGammaFamily) Entropy(eta []float64) float64 {
	var mu [2]float64
	f.Mean(mu[:], eta)
	return f.gammaFamily.Entropy(eta) - 2*mu[0]
}

// line: u is log z less its mode log a/b.
func (gammaFamily) line(t []float64, u float64, eta []float64) (z, log float64) {
	a, b := eta[0], -eta[1]
	t[0], t[1] = u+special.DigammaGap(a), a/b*math.Expm1(u)
	return a / b * math.Exp(u), 0.5*math.Log(a) - special.LogSqrt2Pi - special.Binet(a) - a*special.ExpRest(u)
}

func (gammaFamily) width(eta []float64) float64 { return 1 / math.Sqrt(eta[0]) }

func (f inverseGammaFamily) line(t []float64, u float64, eta []float64) (z, log float64) {
	z, log = f.gammaFamily.line(t, u, eta)
	return 1 / z, log
}
