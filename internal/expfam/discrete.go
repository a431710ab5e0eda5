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

// CategoricalFamily is the family over k categories.
type CategoricalFamily struct{ K int }

func (f CategoricalFamily) String() string {
	if f.K == 2 {
		return "Bernoulli"
	}
	return fmt.Sprintf("Categorical of %d", f.K)
}

func (f CategoricalFamily) Dim() int { return 1 }

func (f CategoricalFamily) NumParams() int { return f.K - 1 }

// LogPartition returns log(1 + Σ e^η).
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

func (f CategoricalFamily) Mean(dst, eta []float64) {
	a := f.LogPartition(eta)
	for k, x := range eta {
		dst[k] = math.Exp(x - a)
	}
}

func (f CategoricalFamily) Fisher(dst *mat.SymDense, eta []float64) { FisherByColumns(dst, f, eta) }

// FisherMul: the Fisher information is diag(p) − ppᵀ. Values of g are less that of the likeliest
// category, near which their mean is.
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

// FisherSolve: its inverse is diag(1/p) + 11ᵀ/p_0.
func (f CategoricalFamily) FisherSolve(dst, g, eta []float64) {
	a := f.LogPartition(eta)
	sum := floats.Sum(g) * math.Exp(a)
	for k, x := range eta {
		dst[k] = g[k]*math.Exp(a-x) + sum
	}
}

func (f CategoricalFamily) Stat(dst, z []float64) {
	clear(dst)
	if k := int(z[0]); k > 0 {
		dst[k-1] = 1
	}
}

func (f CategoricalFamily) LogBase(z []float64) float64 {
	if z[0] != math.Floor(z[0]) || z[0] < 0 || z[0] >= float64(f.K) {
		return math.Inf(-1)
	}
	return 0
}

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

func (f CategoricalFamily) Entropy(eta []float64) float64 {
	a := f.LogPartition(eta)
	h := a * math.Exp(-a)
	for _, x := range eta {
		h += (a - x) * math.Exp(x-a)
	}
	return h
}

// Divergence is Σ p(e^x − 1 − x), x = log p_prior/p.
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

// Each calls add for every category.
func (f CategoricalFamily) Each(eta []float64, add func(z, p float64)) {
	a := f.LogPartition(eta)
	add(0, math.Exp(-a))
	for k, x := range eta {
		add(float64(k+1), math.Exp(x-a))
	}
}

// PoissonFamily is the Poisson family, of h = 1/z!.
type PoissonFamily struct{}

func (PoissonFamily) String() string { return "Poisson" }

func (PoissonFamily) Dim() int { return 1 }

func (PoissonFamily) NumParams() int { return 1 }

func (PoissonFamily) LogPartition(eta []float64) float64 { return math.Exp(eta[0]) }

func (PoissonFamily) Mean(dst, eta []float64) { dst[0] = math.Exp(eta[0]) }

func (PoissonFamily) Fisher(dst *mat.SymDense, eta []float64) { dst.SetSym(0, 0, math.Exp(eta[0])) }

func (PoissonFamily) Stat(dst, z []float64) { dst[0] = z[0] }

func (PoissonFamily) LogBase(z []float64) float64 {
	if z[0] != math.Floor(z[0]) || z[0] < 0 {
		return math.Inf(-1)
	}
	lg, _ := math.Lgamma(z[0] + 1)
	return -lg
}

func (PoissonFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	z[0] = distuv.Poisson{Lambda: math.Exp(eta[0]), Src: rng}.Rand()
	t[0] = z[0]
}

// poissonSeries is the rate from which the entropy is its asymptotic series: to 1e−17.
const poissonSeries = 1e4

// Entropy is λ(1 − log λ) + E[log z!], by the sum or, at large rates, the series of Evans and
// Boersma (1988).
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

// Divergence is λ(e^x − 1 − x), x = log λ_prior/λ.
func (PoissonFamily) Divergence(eta, etaP []float64) float64 {
	return math.Exp(eta[0]) * special.ExpRest(etaP[0]-eta[0])
}

func (PoissonFamily) FromMean(dst, mu []float64) bool {
	dst[0] = math.Log(mu[0])
	return mu[0] > 0
}

// Each calls add for every z that has a probability p, from the mode outwards.
func (PoissonFamily) Each(eta []float64, add func(z, p float64)) {
	rate := math.Exp(eta[0])
	mode := math.Floor(rate)
	// Loader (2000): the probability of the mode without large numbers.
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
