package data

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// ordinalTable returns rows of an outcome with four ordered levels in 30 groups. The intercepts and
// the slopes of x of the groups have the standard deviations sd and slope.
func ordinalTable(sd, slope float64) string {
	rng := rand.New(rand.NewPCG(3, 0))
	u, v := make([]float64, 30), make([]float64, 30)
	for g := range u {
		u[g], v[g] = sd*rng.NormFloat64(), slope*rng.NormFloat64()
	}
	var b strings.Builder
	b.WriteString("y,x,g\n")
	for range 1200 {
		x, g, p := rng.NormFloat64(), rng.IntN(len(u)), rng.Float64()
		eta := (0.7+v[g])*x + u[g] + math.Log(p/(1-p))
		y := 1
		for _, cut := range []float64{-1, 0.5, 2} {
			if eta > cut {
				y++
			}
		}
		fmt.Fprintf(&b, "%d,%.4f,s%02d\n", y, x, g)
	}
	return b.String()
}

// TestOrdinalGroups checks that outcomes with ordered levels support groups with and without
// correlated slopes: the learned standard deviations, effects by level, and predictions of known and
// new levels.
func TestOrdinalGroups(t *testing.T) {
	t.Parallel()
	table := ordinalTable(0.9, 0.4)
	for _, effects := range []string{"(1 | g)", "(1 + x || g)", "(1 + x | g)"} {
		m := mustModel(t, tableOf(t, table), "y ~ x + "+effects, Outcome("y").Ordered("1", "2", "3", "4"))
		post, p := mustFit(t, m, nil)
		for j, c := range m.Summary(post).Groups {
			if want := []float64{0.9, 0.4}[j]; !(math.Abs(c.SD-want) < 0.35*want) || !(c.Lo < c.SD) ||
				!(c.SD < c.Hi) || c.Levels != 30 {
				t.Errorf("%s: %+v, want about %v", effects, c, want)
			}
		}
		all, err := m.GroupEffects(post)
		if err != nil {
			t.Fatal(err)
		}
		e := all[0]
		if rows, cols := e.Mean.Dims(); rows != 30 || cols != len(e.Effects) ||
			e.LevelNames[7] != "s07" {
			t.Errorf("%s: %d×%d effects of %v", effects, rows, cols, e.LevelNames)
		}
		var width [2]float64
		for i, g := range []string{"s07", "s99"} {
			a, err := p.Predict(map[string]any{"x": 0.5, "g": g})
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Probs) != 4 || !(math.Abs(floats.Sum(a.Probs)-1) < 1e-9) {
				t.Errorf("%s: %s has the probabilities %v", effects, g, a.Probs)
			}
			width[i] = a.Hi - a.Lo
			if known := len(a.Notes) == 0; known != (i == 0) {
				t.Errorf("%s: %s has the notes %q", effects, g, a.Notes)
			}
		}
		if !(width[1] > 1.5*width[0]) {
			t.Errorf("%s: intervals of the widths %v for a known and a new level", effects, width)
		}
	}
}
