package expfam

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// CategoricalFamily is the family of distributions over the categories 0 … K−1. η_k is the log odds
// of category k against category 0, for k = 1 … K−1.
type CategoricalFamily struct{ K int }

// String returns the name of the family.
func (f CategoricalFamily) String() string {
	if f.K == 2 {
		return "Bernoulli"
	}
	return fmt.Sprintf("Categorical of %d", f.K)
}

// Dim returns the length of z, 1.
func (f CategoricalFamily) Dim() int { return 1 }

// NumParams returns the length of η, K − 1.
func (f CategoricalFamily) NumParams() int { return f.K - 1 }

// LogPartition returns A(η) = log(1 + Σ e^η).
func (f CategoricalFamily) LogPartition(eta []float64) float64 {
	most := math.Max(0, floats.Max(eta))
	sum := math.Exp(-most)
	if most == 0 {
		sum = 0
	}
	for _, x := range eta {
		sum += math.Exp(x - most)
	}
	if most == 0 {
		return math.Log1p(sum)
	}
	return most + math.Log(sum)
}

// Mean stores the probabilities p_k = e^{η_k − A} of the categories 1 … K−1 in dst.
func (f CategoricalFamily) Mean(dst, eta []float64) {
	a := f.LogPartition(eta)
	for k, x := range eta {
		dst[k] = math.Exp(x - a)
	}
}

// Fisher stores ∇²A(η) = diag(p) − ppᵀ in dst.
func (f CategoricalFamily) Fisher(dst *mat.SymDense, eta []float64) { FisherByColumns(dst, f, eta) }

// FisherMul stores ∇²A(η)g in dst. It subtracts the g of the likeliest category first, to which the
// mean of g is close.
func (f CategoricalFamily) FisherMul(dst, g, eta []float64) {
	a := f.LogPartition(eta)
	var at float64
	if k := floats.MaxIdx(eta); eta[k] > 0 {
		at = g[k]
	}
	mean := -math.Exp(-a) * at
	for k, x := range eta {
		mean += math.Exp(x-a) * (g[k] - at)
	}
	for k, x := range eta {
		dst[k] = math.Exp(x-a) * (g[k] - at - mean)
	}
}

// FisherSolve stores ∇²A(η)⁻¹g = (diag(1/p) + 11ᵀ/p_0)g in dst.
func (f CategoricalFamily) FisherSolve(dst, g, eta []float64) {
	a := f.LogPartition(eta)
	sum := floats.Sum(g) * math.Exp(a)
	for k, x := range eta {
		dst[k] = g[k]*math.Exp(a-x) + sum
	}
}

// Stat stores T(z) in dst: the indicators of the categories 1 … K−1.
func (f CategoricalFamily) Stat(dst, z []float64) {
	clear(dst)
	if k := int(z[0]); k > 0 {
		dst[k-1] = 1
	}
}

// LogBase returns log h(z) = 0, and −Inf if z is not one of 0 … K−1.
func (f CategoricalFamily) LogBase(z []float64) float64 {
	if z[0] != math.Floor(z[0]) || z[0] < 0 || z[0] >= float64(f.K) {
		return math.Inf(-1)
	}
	return 0
}

// Rand stores a draw in z and T(z) in t.
func (f CategoricalFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	a, u := f.LogPartition(eta), rng.Float64()
	z[0] = 0
	clear(t)
	for k, x := range eta {
		if u -= math.Exp(x - a); u < 0 {
			z[0], t[k] = float64(k+1), 1
			return
		}
	}
}

// Entropy returns −Σ p log p, in nats.
func (f CategoricalFamily) Entropy(eta []float64) float64 {
	a := f.LogPartition(eta)
	h := a * math.Exp(-a)
	for _, x := range eta {
		h += (a - x) * math.Exp(x-a)
	}
	return h
}

// Divergence returns KL(q‖p) = Σ q(e^x − 1 − x) with x = log p/q, in nats. All terms are
// positive.
func (f CategoricalFamily) Divergence(eta, etaP []float64) float64 {
	a, aP := f.LogPartition(eta), f.LogPartition(etaP)
	term := func(log, logP float64) float64 {
		if x := logP - log; x < 1 {
			return math.Exp(log) * special.ExpRest(x)
		}
		return math.Exp(logP) - math.Exp(log)*(1+logP-log)
	}
	kl := term(-a, -aP)
	for k, x := range eta {
		kl += term(x-a, etaP[k]-aP)
	}
	return kl
}

// FromMean stores the η with the probabilities mu in dst. It reports false unless all K
// probabilities are positive.
func (f CategoricalFamily) FromMean(dst, mu []float64) bool {
	rest := 1 - floats.Sum(mu)
	if !(rest > 0) || !(floats.Min(mu) > 0) {
		return false
	}
	for k, p := range mu {
		dst[k] = math.Log(p / rest)
	}
	return true
}

// Each calls add for every category with its probability.
func (f CategoricalFamily) Each(eta []float64, add func(z, p float64)) {
	a := f.LogPartition(eta)
	add(0, math.Exp(-a))
	for k, x := range eta {
		add(float64(k+1), math.Exp(x-a))
	}
}

// PoissonFamily is the family of Poisson(λ) distributions, with η = log λ, T = z and h = 1/z!.
type PoissonFamily struct{}

// String returns the name of the family.
func (PoissonFamily) String() string { return "Poisson" }

// Dim returns the length of z, 1.
func (PoissonFamily) Dim() int { return 1 }

// NumParams returns the length of η, 1.
func (PoissonFamily) NumParams() int { return 1 }

// LogPartition returns A(η) = λ = e^η.
func (PoissonFamily) LogPartition(eta []float64) float64 { return math.Exp(eta[0]) }

// Mean stores λ in dst.
func (PoissonFamily) Mean(dst, eta []float64) { dst[0] = math.Exp(eta[0]) }

// Fisher stores ∇²A(η) = λ in dst.
func (PoissonFamily) Fisher(dst *mat.SymDense, eta []float64) { dst.SetSym(0, 0, math.Exp(eta[0])) }

// Stat stores T(z) = z in dst.
func (PoissonFamily) Stat(dst, z []float64) { dst[0] = z[0] }

// LogBase returns log h(z) = −log z!, and −Inf if z is not a count.
func (PoissonFamily) LogBase(z []float64) float64 {
	if z[0] != math.Floor(z[0]) || z[0] < 0 {
		return math.Inf(-1)
	}
	lg, _ := math.Lgamma(z[0] + 1)
	return -lg
}

// Rand stores a draw in z and T(z) in t.
func (PoissonFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	z[0] = distuv.Poisson{Lambda: math.Exp(eta[0]), Src: rng}.Rand()
	t[0] = z[0]
}

// poissonSeries is the rate above which the asymptotic series of the entropy has an error below 1e−17.
const poissonSeries = 1e4

// Entropy returns λ(1 − log λ) + E[log z!], in nats, as a sum or, for large rates, by the series
// of Evans and Boersma (1988).
func (f PoissonFamily) Entropy(eta []float64) float64 {
	rate := math.Exp(eta[0])
	if rate > poissonSeries {
		return 0.5*(1+eta[0]) + special.LogSqrt2Pi - (1+(0.5+19/(30*rate))/rate)/(12*rate)
	}
	h := rate - rate*eta[0]
	f.Each(eta, func(z, p float64) {
		h -= p * f.LogBase([]float64{z})
	})
	return h
}

// Divergence returns KL(q‖p) = λ(e^x − 1 − x) with x = log λ_p/λ, in nats.
func (PoissonFamily) Divergence(eta, etaP []float64) float64 {
	return math.Exp(eta[0]) * special.ExpRest(etaP[0]-eta[0])
}

// FromMean stores η = log μ in dst. It reports false unless μ > 0.
func (PoissonFamily) FromMean(dst, mu []float64) bool {
	dst[0] = math.Log(mu[0])
	return mu[0] > 0
}

// Each calls add for every z whose probability p matters, from the mode outward.
func (PoissonFamily) Each(eta []float64, add func(z, p float64)) {
	rate := math.Exp(eta[0])
	mode := math.Floor(rate)
	// Loader (2000) computes the probability of the mode without large numbers.
	top := math.Exp(-rate)
	if mode > 0 {
		top = math.Exp(-mode*special.LogGap(rate/mode)-special.Binet(
			mode)-special.LogSqrt2Pi) / math.Sqrt(mode)
	}
	for z, p := mode, top; p > 1e-19*top; z++ {
		add(z, p)
		p *= rate / (z + 1)
	}
	for z, p := mode-1, top*mode/rate; z >= 0 && p > 1e-19*top; z-- {
		add(z, p)
		p *= z / rate
	}
}
