package diff

import (
	"math"
	"testing"
)

// TestGradient checks the gradient of x² log y, also next to the edge of the domain at y = 0.
func TestGradient(t *testing.T) {
	x := []float64{3, 2}
	f := func(x []float64) (float64, bool) { return x[0] * x[0] * math.Log(x[1]), x[1] > 0 }
	g := Gradient(nil, x, f)
	for i, want := range []float64{6 * math.Log(2), 4.5} {
		if math.Abs(g[i]-want) > 1e-11*math.Abs(want) {
			t.Errorf("element %d: %v, want %v", i, g[i], want)
		}
	}
	if x[0] != 3 || x[1] != 2 {
		t.Errorf("x was left at %v", x)
	}
	if g := Gradient(nil, []float64{1, 1e-8}, f); math.Abs(g[1]-1e8) > 0.1e8 {
		t.Errorf("%v near the edge, want 1e8", g[1])
	}
	if g := Gradient(nil, []float64{-1},
		func([]float64) (float64, bool) { return 0, false }); !math.IsNaN(g[0]) {
		t.Errorf("%v where nothing is defined", g)
	}
}
