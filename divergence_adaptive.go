package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/save"
)

// betweenSteps is what an Adaptive divergence is between two given distributions. It is Euclidean
// without its closed form, which is that of another metric.
type betweenSteps struct{}

// Value implements Divergence.
func (betweenSteps) Value(q, q0 Dist) float64 { return euclidean{}.Value(q, q0) }

// Grad implements Divergence.
func (betweenSteps) Grad(dst []float64, q, q0 Dist) []float64 { return euclidean{}.Grad(dst, q, q0) }

// AdaGrad is the Adaptive divergence
//
//	s_k = √(ε + Σ_{j≤k} g_j²)
//
// element by element (Duchi, Hazan and Singer, 2011, with ε inside the root, as
// RMSprop and Adadelta have it). A zero epsilon, ε, means 1e-8.
func AdaGrad(epsilon float64) Adaptive { return adaGradDivergence{Epsilon: epsilon} }

type adaGradDivergence struct {
	betweenSteps
	Epsilon float64 // ε; zero means 1e-8
}

func (adaGradDivergence) String() string { return "AdaGrad" }

// Check returns an error wrapping ErrParam if Epsilon is negative or not finite.
func (a adaGradDivergence) Check(Dist) error {
	return checkAdaptive("AdaGrad", a.Epsilon)
}

// Start implements Adaptive.
func (a adaGradDivergence) Start(n int) Metric {
	return &rootMeanSquare{old: 1, now: 1, eps: orDefault(a.Epsilon, 1e-8), square: make([]float64, n)}
}

// RMSprop is the Adaptive divergence
//
//	e_k = ρe_{k−1} + (1−ρ)g_k²,   s_k = √(ε + e_k)
//
// element by element, e_{−1} = 0 (Tieleman and Hinton, 2012, lecture 6.5, who have
// no ε). A zero decay, ρ, means 0.9 and a zero epsilon, ε, 1e-8.
func RMSprop(decay, epsilon float64) Adaptive {
	return rmsPropDivergence{Decay: decay, Epsilon: epsilon}
}

type rmsPropDivergence struct {
	betweenSteps
	Decay   float64 // ρ; zero means 0.9
	Epsilon float64 // ε; zero means 1e-8
}

func (rmsPropDivergence) String() string { return "RMSprop" }

// Check returns an error wrapping ErrParam unless Decay is in [0, 1) and
// Epsilon is finite and not negative.
func (r rmsPropDivergence) Check(Dist) error {
	return checkAdaptive("RMSprop", r.Epsilon, r.Decay)
}

// Start implements Adaptive.
func (r rmsPropDivergence) Start(n int) Metric {
	rho := orDefault(r.Decay, 0.9)
	return &rootMeanSquare{old: rho, now: 1 - rho, eps: orDefault(r.Epsilon, 1e-8), square: make([]float64, n)}
}

// rootMeanSquare is the metric of AdaGrad and RMSprop.
type rootMeanSquare struct {
	old, now, eps float64
	square        []float64
}

func (r *rootMeanSquare) Next(s, g []float64, _ float64) {
	for i, x := range g {
		r.square[i] = r.old*r.square[i] + r.now*x*x
		s[i] = math.Sqrt(r.square[i] + r.eps)
	}
}

// Adadelta is the Adaptive divergence
//
//	e_k = ρe_{k−1} + (1−ρ)g_k²,   s_k = √(ε + e_k)/√(ε + d_{k−1})
//	d_k = ρd_{k−1} + (1−ρ)(β_k g_k/s_k)²
//
// element by element, e_{−1} = d_{−1} = 0 (Zeiler, 2012, where β = 1). d accumulates the steps
// with their β_k; as each step is a multiple of the root of the last d, a β above 1 compounds. A
// zero decay, ρ, means 0.95 and a zero epsilon, ε, 1e-6.
func Adadelta(decay, epsilon float64) Adaptive {
	return adadeltaDivergence{Decay: decay, Epsilon: epsilon}
}

type adadeltaDivergence struct {
	betweenSteps
	Decay   float64 // ρ; zero means 0.95
	Epsilon float64 // ε; zero means 1e-6
}

func (adadeltaDivergence) String() string { return "Adadelta" }

// Check returns an error wrapping ErrParam unless Decay is in [0, 1) and
// Epsilon is finite and not negative.
func (a adadeltaDivergence) Check(Dist) error {
	return checkAdaptive("Adadelta", a.Epsilon, a.Decay)
}

// Start implements Adaptive.
func (a adadeltaDivergence) Start(n int) Metric {
	return &adadelta{rho: orDefault(a.Decay, 0.95), eps: orDefault(a.Epsilon, 1e-6), square: make([]float64, n), step: make([]float64, n)}
}

type adadelta struct {
	rho, eps     float64
	square, step []float64 // e and d
}

func (a *adadelta) Next(s, g []float64, beta float64) {
	for i, x := range g {
		a.square[i] = a.rho*a.square[i] + (1-a.rho)*x*x
		s[i] = math.Sqrt(a.square[i]+a.eps) / math.Sqrt(a.step[i]+a.eps)
		x *= beta / s[i]
		a.step[i] = a.rho*a.step[i] + (1-a.rho)*x*x
	}
}

// Adam is the Adaptive divergence with momentum
//
//	ḡ_k = ρ_μ ḡ_{k−1} + (1−ρ_μ)g_k,   e_k = ρ_s e_{k−1} + (1−ρ_s)g_k²,
//	s_k = ε + √(e_k/(1−ρ_s^{k+1})),   g ← ḡ_k/(1−ρ_μ^{k+1})
//
// element by element, ḡ_{−1} = e_{−1} = 0 (Kingma and Ba, 2015, where ρ_μ is β₁,
// ρ_s is β₂ and the β of the step is α). A zero mean, ρ_μ, means 0.9, a zero square,
// ρ_s, 0.999 and a zero epsilon, ε, 1e-8.
func Adam(mean, square, epsilon float64) Adaptive {
	return adamDivergence{Mean: mean, Square: square, Epsilon: epsilon}
}

type adamDivergence struct {
	betweenSteps
	Mean    float64 // ρ_μ; zero means 0.9
	Square  float64 // ρ_s; zero means 0.999
	Epsilon float64 // ε; zero means 1e-8
}

func (adamDivergence) String() string { return "Adam" }

// Check returns an error wrapping ErrParam unless Mean and Square are in
// [0, 1) and Epsilon is finite and not negative.
func (a adamDivergence) Check(Dist) error {
	return checkAdaptive("Adam", a.Epsilon, a.Mean, a.Square)
}

// Start implements Adaptive.
func (a adamDivergence) Start(n int) Metric {
	return &adam{
		rhoMean: orDefault(a.Mean, 0.9), rhoSquare: orDefault(a.Square, 0.999), eps: orDefault(a.Epsilon, 1e-8),
		powMean: 1, powSquare: 1, mean: make([]float64, n), square: make([]float64, n),
	}
}

type adam struct {
	rhoMean, rhoSquare, eps float64
	powMean, powSquare      float64 // ρ to the power of the number of steps
	mean, square            []float64
}

func (a *adam) Next(s, g []float64, _ float64) {
	a.powMean *= a.rhoMean
	a.powSquare *= a.rhoSquare
	for i, x := range g {
		a.mean[i] = a.rhoMean*a.mean[i] + (1-a.rhoMean)*x
		a.square[i] = a.rhoSquare*a.square[i] + (1-a.rhoSquare)*x*x
		s[i] = a.eps + math.Sqrt(a.square[i]/(1-a.powSquare))
		g[i] = a.mean[i] / (1 - a.powMean)
	}
}

func checkAdaptive(name string, eps float64, decays ...float64) error {
	ok := eps >= 0 && !math.IsInf(eps, 0)
	for _, rho := range decays {
		ok = ok && rho >= 0 && rho < 1
	}
	if !ok {
		return fmt.Errorf("pgsvi: %s with decays %v and Epsilon %v needs decays in [0, 1) and a finite Epsilon >= 0: %w", name, decays, eps, ErrParam)
	}
	return nil
}

func (r *rootMeanSquare) state(c *save.State) { c.Floats(len(r.square), &r.square) }

func (a *adadelta) state(c *save.State) { c.Floats(len(a.square), &a.square, &a.step) }

func (a *adam) state(c *save.State) {
	c.Float(&a.powMean, &a.powSquare)
	c.Floats(len(a.mean), &a.mean, &a.square)
}
