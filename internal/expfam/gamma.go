package expfam

import (
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/mat"
)

// logGammaRand returns the logarithm of a draw from Gamma(a, 1) by the method of Marsaglia and Tsang
// (2000). The logarithm does not underflow if a is small.
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
	return math.NaN() // a is not a valid shape
}

// mostGammaDraws limits the proposals for one gamma variate. Each is accepted with a probability of at
// least 0.95.
const mostGammaDraws = 1000

// GammaFamily is the family of Gamma(a, b) distributions with shape a and rate b:
//
//	q(z) = h(z) exp(ηᵀT(z) − A(η)),   η = (a, −b),   T = (log z, z),   h = 1/z.
//
// With h = 1/z the first natural parameter is a instead of a − 1, so a small shape is not near an edge
// of the valid set.
type GammaFamily struct{}

// String returns the name of the family.
func (GammaFamily) String() string { return "Gamma" }

// Dim returns the length of z, 1.
func (GammaFamily) Dim() int { return 1 }

// NumParams returns the length of η, 2.
func (GammaFamily) NumParams() int { return 2 }

// LogPartition returns A(η) = log Γ(a) − a log b. It is +Inf if a ≤ 0 or b ≤ 0.
func (GammaFamily) LogPartition(eta []float64) float64 {
	a, b := eta[0], -eta[1]
	if !(a > 0 && b > 0) {
		return math.Inf(1)
	}
	lg, _ := math.Lgamma(a)
	return lg - a*math.Log(b)
}

// Mean stores E[log z] = ψ(a) − log b and E[z] = a/b in dst.
func (GammaFamily) Mean(dst, eta []float64) {
	a, b := eta[0], -eta[1]
	dst[0], dst[1] = math.Log(a/b)-special.DigammaGap(a), a/b
}

// Fisher stores ∇²A(η) in dst. Its elements are ψ′(a), 1/b and a/b².
func (GammaFamily) Fisher(dst *mat.SymDense, eta []float64) {
	a, b := eta[0], -eta[1]
	dst.SetSym(0, 0, special.Trigamma(a))
	dst.SetSym(0, 1, 1/b)
	dst.SetSym(1, 1, a/b/b)
}

// FisherMul stores ∇²A(η)g in dst.
func (GammaFamily) FisherMul(dst, g, eta []float64) {
	a, b := eta[0], -eta[1]
	dst[0], dst[1] = special.Trigamma(a)*g[0]+g[1]/b, (g[0]+a/b*g[1])/b
}

// FisherSolve stores ∇²A(η)⁻¹g in dst. The determinant contains aψ′(a) − 1, which TrigammaGap
// computes without cancellation.
func (GammaFamily) FisherSolve(dst, g, eta []float64) {
	a, b := eta[0], -eta[1]
	x := (g[0] - b/a*g[1]) / special.TrigammaGap(a)
	dst[0], dst[1] = x, b/a*(b*g[1]-x)
}

// Stat stores T(z) = (log z, z) in dst.
func (GammaFamily) Stat(dst, z []float64) { dst[0], dst[1] = math.Log(z[0]), z[0] }

// LogBase returns log h(z) = −log z, and −Inf if z ≤ 0.
func (GammaFamily) LogBase(z []float64) float64 {
	if !(z[0] > 0) {
		return math.Inf(-1)
	}
	return -math.Log(z[0])
}

// Rand stores a draw in z and T(z) in t.
func (f GammaFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	var aux [1]float64
	f.RandPath(z, t, aux[:], eta, rng)
}

// AuxLen returns the length of aux in RandPath, 1.
func (GammaFamily) AuxLen() int { return 1 }

// RandPath stores a draw in z, T(z) in t, and the logarithm of the draw with rate 1 in aux.
func (GammaFamily) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	aux[0] = logGammaRand(eta[0], rng)
	t[0] = aux[0] - math.Log(-eta[1])
	t[1] = math.Exp(t[0])
	z[0] = t[1]
}

// PathGrad adds the gradient in η of a function of the draw to dst. dl is the gradient of the
// function in z, and c its gradient in T(z).
func (GammaFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	s := special.Times(dl[0]+c[1], z[0]) + c[0] // the slope in log z
	dst[0] += s * special.GammaSlope(eta[0], aux[0])
	dst[1] -= s / eta[1]
}

// Entropy returns a − log b + log Γ(a) + (1 − a)ψ(a), in nats. Terms of size a log a are left out
// because they cancel.
func (GammaFamily) Entropy(eta []float64) float64 {
	a, b := eta[0], -eta[1]
	return 0.5*math.Log(a) - math.Log(b) + special.LogSqrt2Pi + special.Binet(a) +
		(a-1)*special.DigammaGap(a)
}

// Divergence returns KL(q‖p) = a_p·g(a b_p/(a_p b)) plus the remainder of the Bregman divergence
// of log Γ, where g(u) = u − 1 − log u. No difference of large numbers occurs.
func (GammaFamily) Divergence(eta, etaP []float64) float64 {
	a, ap := eta[0], etaP[0]
	return ap*special.LogGap(a/ap*(etaP[1]/eta[1])) + special.GammaRest(ap, a)
}

// FromMean stores the η with the mean parameters mu in dst. It solves log a − ψ(a) = log μ_1 −
// μ_0. It reports false if mu is not attained.
func (GammaFamily) FromMean(dst, mu []float64) bool {
	y := math.Log(mu[1]) - mu[0]
	if !(mu[1] > 0 && y > 0) {
		return false
	}
	a := special.InvDigammaGap(y)
	dst[0], dst[1] = a, -a/mu[1]
	return true
}

// Chart stores (log a, log b) in dst.
func (GammaFamily) Chart(dst, eta []float64) {
	dst[0], dst[1] = math.Log(eta[0]),
		math.Log(-eta[1])
}

// FromChart stores the η with chart x in dst.
func (GammaFamily) FromChart(dst, x []float64) { dst[0], dst[1] = math.Exp(x[0]), -math.Exp(x[1]) }

// ChartGrad turns the gradient g in η into the gradient in the chart and stores it in dst.
func (GammaFamily) ChartGrad(dst, g, eta []float64) { dst[0], dst[1] = g[0]*eta[0], g[1]*eta[1] }

// InverseGammaFamily is the family of z whose inverse has a Gamma(a, b) distribution.
type InverseGammaFamily struct{ GammaFamily }

// String returns the name of the family.
func (InverseGammaFamily) String() string { return "InverseGamma" }

// Stat stores T(z) = (−log z, 1/z) in dst.
func (InverseGammaFamily) Stat(dst, z []float64) { dst[0], dst[1] = -math.Log(z[0]), 1/z[0] }

// Rand stores a draw in z and T(z) in t.
func (f InverseGammaFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	var aux [1]float64
	f.RandPath(z, t, aux[:], eta, rng)
}

// RandPath stores a draw in z, T(z) in t, and the logarithm of the gamma draw with rate 1 in aux.
func (f InverseGammaFamily) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	f.GammaFamily.RandPath(z, t, aux, eta, rng)
	z[0] = math.Exp(-t[0])
}

// PathGrad adds the gradient in η of a function of the draw to dst. dl is the gradient of the
// function in z, and c its gradient in T(z).
func (InverseGammaFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	s := special.Times(-dl[0], z[0]) + special.Times(c[1], 1/z[0]) + c[0] // the slope in −log z
	dst[0] += s * special.GammaSlope(eta[0], aux[0])
	dst[1] -= s / eta[1]
}

// Entropy returns the entropy of z: the entropy of 1/z plus E[2 log z].
func (f InverseGammaFamily) Entropy(eta []float64) float64 {
	var mu [2]float64
	f.Mean(mu[:], eta)
	return f.GammaFamily.Entropy(eta) - 2*mu[0]
}

// Line supports quadrature over z. It stores T(z) − μ in t for the z with log z = u + log a/b,
// and returns z and the log density of u.
func (GammaFamily) Line(t []float64, u float64, eta []float64) (z, log float64) {
	a, b := eta[0], -eta[1]
	t[0], t[1] = u+special.DigammaGap(a), a/b*math.Expm1(u)
	return a / b * math.Exp(u),
		0.5*math.Log(a) - special.LogSqrt2Pi - special.Binet(a) - a*special.ExpRest(u)
}

// Width returns the scale 1/√a of u in Line.
func (GammaFamily) Width(eta []float64) float64 { return 1 / math.Sqrt(eta[0]) }

// Line supports quadrature over z. It stores T(z) − μ in t for the z with −log z = u + log a/b,
// and returns z and the log density of u.
func (f InverseGammaFamily) Line(t []float64, u float64, eta []float64) (z, log float64) {
	z, log = f.GammaFamily.Line(t, u, eta)
	return 1 / z, log
}
