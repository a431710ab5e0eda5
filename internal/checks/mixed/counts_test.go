package mixed

import (
	"context"
	"math"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestHugeCounts fits slopes to counts of about 1e9. Their sites are so precise that the rounding of
// log Z exceeds the goal, which must not keep the fit from converging. Such counts
// determine the effects, so the standard deviations must be the root mean squares of the effects.
func TestHugeCounts(t *testing.T) {
	for seed := range uint64(2) {
		hugeCounts(t, seed)
	}
}

// hugeCounts is TestHugeCounts for a seed.
func hugeCounts(t *testing.T, seed uint64) {
	const rows, levels = 5000, 300
	rng := testkit.Rand(seed)
	effects := make([]float64, 2*levels)
	for i := range effects {
		effects[i] = 0.3 * rng.NormFloat64()
	}
	x, y := NewSparse(1+2*levels), make([]float64, rows)
	for i := range y {
		g, z := i%levels, rng.NormFloat64()
		x.Append([]int{0, 1 + 2*g, 2 + 2*g}, []float64{z, 1, z})
		mean := 1e9 * math.Exp(0.3*z+effects[2*g]+effects[2*g+1]*z)
		y[i] = math.Floor(math.Max(0, mean+math.Sqrt(mean)*rng.NormFloat64()))
	}
	g, err := NewGLM(x, y, Poisson{}, &GLMOptions{Intercept: true, InterceptSD: 30,
		Groups: []Group{{First: 1, Levels: levels, Effects: []string{"(Intercept)", "x"},
			NoPrior: true}}})
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != Converged {
		t.Errorf("seed %d: the status is %v after %v passes", seed, res.Status, res.Passes)
	}
	for k, e := range p.Groups()[0].Effects {
		var square float64
		for g := range levels {
			square += effects[2*g+k] * effects[2*g+k]
		}
		if want := math.Sqrt(square / levels); !(math.Abs(e.SD-want) <= 0.05*want) {
			t.Errorf("seed %d: the standard deviation of %s is %v, want %v", seed, e.Name, e.SD, want)
		}
	}
}
