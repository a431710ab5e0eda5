package learn

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// TestMoves compares powers of ratios with their definition, bounds included.
func TestMoves(t *testing.T) {
	near := []float64{1, 2, 1e-300, 1, 1, 3}
	others := [][]float64{{1.5, 2, 1e300, 1e-200, 1e-200, 3.3}, {0.5, 2.1, 1e300, 1, 1e-200, 2.9}}
	c := []float64{0.7, -0.4}
	got := []float64{1, 1, 2, 1, 1, 5}
	want := slices.Clone(got)
	for i := range want {
		l := c[0]*(math.Log(others[0][i])-math.Log(near[i])) +
			c[1]*(math.Log(others[1][i])-math.Log(near[i]))
		want[i] *= math.Exp(min(max(l, -mostSecant), mostSecant))
	}
	moves(got, near, c, func(j int) []float64 { return others[j] })
	if !floats.EqualApprox(got, want, 1e-13) {
		t.Errorf("moved to %v, want %v", got, want)
	}
}
