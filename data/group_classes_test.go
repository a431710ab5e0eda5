package data

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// classesTable returns rows of an outcome with three classes in 40 groups, and the intercepts of the
// groups by class. The slopes of x have the standard deviation 0.3, and x is about 5.
func classesTable() (string, [][]float64) {
	rng := rand.New(rand.NewPCG(12, 0))
	const groups, classes = 40, 3
	u, v := make([][]float64, groups), make([][]float64, groups)
	for g := range u {
		for range classes {
			u[g] = append(u[g], 0.9*rng.NormFloat64())
			v[g] = append(v[g], 0.3*rng.NormFloat64())
		}
	}
	var b strings.Builder
	b.WriteString("y,x,g\n")
	for range 1600 {
		x, g := 5+rng.NormFloat64(), rng.IntN(groups)
		best, y := math.Inf(-1), 0
		for c := range classes {
			eta := 0.5*float64(c)*(x-5) + u[g][c] + v[g][c]*(x-5) - math.Log(rng.ExpFloat64())
			if eta > best {
				best, y = eta, c
			}
		}
		fmt.Fprintf(&b, "%c,%.4f,s%02d\n", 'p'+y, x, g)
	}
	return b.String(), u
}

// TestClassesGroups checks formulas with groups for an outcome with three classes: the standard
// deviations in the summary, the effects by level and class, and the predictions of known and new
// levels from a saved predictor.
func TestClassesGroups(t *testing.T) {
	t.Parallel()
	table, u := classesTable()
	for _, effects := range []string{"(1 | g)", "(1 + x | g)"} {
		m := mustModel(t, tableOf(t, table), "y ~ x + "+effects)
		post, p := mustFit(t, m, nil)
		s := m.Summary(post)
		if len(s.Rows) != 6 || !strings.HasPrefix(s.Rows[3].Name, "class=q · x") {
			t.Errorf("%s: the summary is\n%v", effects, s)
		}
		correlated := effects == "(1 + x | g)"
		for j, c := range s.Groups {
			want := []float64{0.9, 0.3}[j]
			if j == 0 && correlated { // the intercept is at x = 0
				want = math.Hypot(0.9, 5*0.3)
			}
			if !(math.Abs(c.SD-want) < 0.4*want) || !(c.Lo < c.SD) || !(c.SD < c.Hi) || c.Levels != 40 {
				t.Errorf("%s: %+v, want about %v", effects, c, want)
			}
			if (c.Corr != nil) != (j == 1 && correlated) {
				t.Errorf("%s: correlations %v", effects, c.Corr)
			}
		}
		all, err := m.GroupEffects(post)
		if err != nil {
			t.Fatal(err)
		}
		e, q := all[0], len(all[0].Effects)
		if rows, cols := e.Mean.Dims(); rows != 40 || cols != 3*q || e.LevelNames[7] != "s07" ||
			fmt.Sprint(e.Classes) != "[class=p class=q class=r]" {
			t.Errorf("%s: %d×%d effects of %v, classes %v", effects, rows, cols, e.LevelNames,
				e.Classes)
		}
		inside := 0
		for g := range u {
			mean := floats.Sum(u[g]) / 3
			sum := 0.0
			for c := range 3 {
				m, sd := e.Mean.At(g, c*q), e.SD.At(g, c*q)
				if correlated { // the effect at x = 5
					m += 5 * e.Mean.At(g, c*q+1)
				} else if math.Abs(m-(u[g][c]-mean)) < 1.645*sd {
					inside++
				}
				sum += m
				if !(math.Abs(m-(u[g][c]-mean)) < 2) || !(sd > 0) {
					t.Errorf("%s: effect of %s on class %d is %v ± %v, want about %v", effects,
						e.LevelNames[g], c, m, sd, u[g][c]-mean)
				}
			}
			if !(math.Abs(sum) < 1e-9) {
				t.Errorf("%s: the effects of %s sum to %v", effects, e.LevelNames[g], sum)
			}
		}
		if !correlated && !(inside > 96 && inside < 119) {
			t.Errorf("%s: %d of 120 intervals of 90%% contain the effect", effects, inside)
		}
		var file bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		loaded, err := LoadPredictor(&file)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range []string{"s07", "s99"} {
			row := map[string]any{"x": 5.5, "g": g}
			a, err := p.Predict(row)
			if err != nil {
				t.Fatal(err)
			}
			b, err := loaded.Predict(row)
			if err != nil {
				t.Fatal(err)
			}
			if !floats.Equal(a.Probs, b.Probs) || !(math.Abs(floats.Sum(a.Probs)-1) < 1e-9) {
				t.Errorf("%s: %s has the probabilities %v, loaded %v", effects, g, a.Probs, b.Probs)
			}
			if (g == "s99") != (len(a.Notes) > 0) {
				t.Errorf("%s: %s has the notes %q", effects, g, a.Notes)
			}
		}
	}
}
