package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/descent"
)

// betweenSteps is an Adaptive divergence between two given distributions. It is Euclidean without
// the closed form, because the step has another metric.
type betweenSteps struct{}

// Value implements Divergence.
func (betweenSteps) Value(q, q0 Dist) float64 { return euclidean{}.Value(q, q0) }

// Grad implements Divergence.
func (betweenSteps) Grad(dst []float64, q, q0 Dist) []float64 {
	return euclidean{}.Grad(dst, q, q0)
}

// adaptive is Euclidean in a running metric, which kind selects.
type adaptive struct {
	betweenSteps
	kind    string
	epsilon float64
	decays  [2]float64
	decayed int // number of decays in use
}

var _ Adaptive = adaptive{}

func (a adaptive) String() string { return a.kind }

// Check returns an error wrapping ErrParam unless the decays are in [0, 1) and ε is finite and not
// negative.
func (a adaptive) Check(Dist) error {
	ok, decays := a.epsilon >= 0 && !math.IsInf(a.epsilon, 0), a.decays[:a.decayed]
	for _, rho := range decays {
		ok = ok && rho >= 0 && rho < 1
	}
	if !ok {
		return fmt.Errorf("pgsvi: %s has decays %v and epsilon %v; it needs decays in [0, 1) and "+
			"a finite epsilon of at least 0: %w", a.kind, decays, a.epsilon, ErrParam)
	}
	return nil
}

// Start implements Adaptive.
func (a adaptive) Start(n int) Metric {
	switch a.kind {
	case "AdaGrad":
		return descent.AdaGrad(n, a.epsilon)
	case "RMSprop":
		return descent.RMSprop(n, a.decays[0], a.epsilon)
	case "Adadelta":
		return descent.Adadelta(n, a.decays[0], a.epsilon)
	}
	return descent.Adam(n, a.decays[0], a.decays[1], a.epsilon)
}

// AdaGrad returns the Adaptive divergence
//
//	s_k = √(ε + Σ_{j≤k} g_j²)
//
// for each element (Duchi, Hazan and Singer, 2011, but with ε inside the root, as in RMSprop and
// Adadelta). A zero epsilon, ε, means 1e-8.
func AdaGrad(epsilon float64) Adaptive {
	return adaptive{kind: "AdaGrad", epsilon: orDefault(epsilon, 1e-8)}
}

// RMSprop returns the Adaptive divergence
//
//	e_k = ρe_{k−1} + (1−ρ)g_k²,   s_k = √(ε + e_k)
//
// for each element, with e_{−1} = 0 (Tieleman and Hinton, 2012, lecture 6.5, who have no ε). A zero
// decay, ρ, means 0.9, and a zero epsilon, ε, means 1e-8.
func RMSprop(decay, epsilon float64) Adaptive {
	return adaptive{kind: "RMSprop", epsilon: orDefault(epsilon, 1e-8),
		decays: [2]float64{orDefault(decay, 0.9)}, decayed: 1}
}

// Adadelta returns the Adaptive divergence
//
//	e_k = ρe_{k−1} + (1−ρ)g_k²,   s_k = √(ε + e_k)/√(ε + d_{k−1})
//	d_k = ρd_{k−1} + (1−ρ)(β_k g_k/s_k)²
//
// for each element, with e_{−1} = d_{−1} = 0 (Zeiler, 2012, where β = 1). The d accumulates steps
// with their β_k. Each step is a multiple of the root of the last d, so a β above 1 compounds. A
// zero decay, ρ, means 0.95, and a zero epsilon, ε, means 1e-6.
func Adadelta(decay, epsilon float64) Adaptive {
	return adaptive{kind: "Adadelta", epsilon: orDefault(epsilon, 1e-6),
		decays: [2]float64{orDefault(decay, 0.95)}, decayed: 1}
}

// Adam returns the Adaptive divergence with momentum
//
//	ḡ_k = ρ_μ ḡ_{k−1} + (1−ρ_μ)g_k,   e_k = ρ_s e_{k−1} + (1−ρ_s)g_k²,
//	s_k = ε + √(e_k/(1−ρ_s^{k+1})),   g ← ḡ_k/(1−ρ_μ^{k+1})
//
// for each element, with ḡ_{−1} = e_{−1} = 0 (Kingma and Ba, 2015, whose β₁ is ρ_μ, whose β₂ is
// ρ_s, and whose α is the β of the step). A zero mean, ρ_μ, means 0.9. A zero square, ρ_s, means
// 0.999, and a zero epsilon, ε, means 1e-8.
func Adam(mean, square, epsilon float64) Adaptive {
	decays := [2]float64{orDefault(mean, 0.9), orDefault(square, 0.999)}
	return adaptive{kind: "Adam", epsilon: orDefault(epsilon, 1e-8), decays: decays, decayed: 2}
}
