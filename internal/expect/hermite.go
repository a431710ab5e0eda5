package expect

import (
	"math"
	"sync"

	"gonum.org/v1/gonum/integrate/quad"
)

// A Rule is a quadrature rule with E[f] ≈ Σ_i W_i f(X_i).
type Rule struct{ X, W []float64 }

// hermite caches the rules by their number of nodes.
var hermite sync.Map

// Hermite returns the Gauss-Hermite rule with n nodes for the expectation under N(0, 1). Callers
// share the rule and must not change it.
func Hermite(n int) Rule {
	if r, ok := hermite.Load(n); ok {
		return r.(Rule)
	}
	r := Rule{make([]float64, n), make([]float64, n)}
	quad.Hermite{}.FixedLocations(r.X, r.W, math.Inf(-1), math.Inf(1))
	for i := range r.X {
		// The rule of gonum is for ∫ e^{−x²} f(x) dx.
		r.W[i] /= math.Sqrt(math.Pi)
		r.X[i] *= math.Sqrt2
	}
	hermite.Store(n, r)
	return r
}
