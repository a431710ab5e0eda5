package data

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestUpdateLevels checks that Update learns new levels as distinct levels, in one call or several,
// that it adds rows to known levels by name, and that saved predictors contain the levels.
func TestUpdateLevels(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 2))
	rows := func(effects map[string]float64, names ...string) string {
		var b strings.Builder
		b.WriteString("y,x,g,h\n")
		for i := range 6 * len(names) {
			g := names[i%len(names)]
			x := rng.NormFloat64()
			fmt.Fprintf(&b, "%.3f,%.3f,%s,h%d\n", effects[g]+x+0.3*rng.NormFloat64(), x, g, i%4)
		}
		return b.String()
	}
	effects := map[string]float64{"a": -2, "b": 1, "c": 0, "d": 2, "e": -1, "up": 3, "down": -3, "z": 1}
	first := rows(effects, "a", "b", "c", "d", "e")
	more := []string{rows(effects, "up", "a", "down"), rows(effects, "down", "z")}
	for _, f := range []string{"y ~ x + (1 | g)", "y ~ x + (1 + x | g)", "y ~ x + (1 | h) + (1 | g)",
		"y ~ x + (1 | h/g)"} {
		_, p := mustFit(t, mustModel(t, tableOf(t, first), f), nil)
		predict := func(p *Predictor, g string) float64 {
			t.Helper()
			a, err := p.Predict(map[string]any{"x": 0, "g": g, "h": "h0"})
			if err != nil {
				t.Fatal(err)
			}
			if known := g != "new"; known == slices.ContainsFunc(a.Notes, func(n string) bool {
				return strings.Contains(n, "new")
			}) && !strings.Contains(f, "/") {
				t.Errorf("%s: %s has the notes %q", f, g, a.Notes)
			}
			return a.Mean
		}
		before := predict(p, "b")
		q := p
		for _, text := range more {
			var err error
			if q, err = q.Update(context.Background(), tableOf(t, text)); err != nil {
				t.Fatal(err)
			}
		}
		one, err := p.Update(context.Background(),
			tableOf(t, more[0]+strings.TrimPrefix(more[1], "y,x,g,h\n")))
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := q.Save(&file); err != nil {
			t.Fatal(err)
		}
		loaded, err := LoadPredictor(&file)
		if err != nil {
			t.Fatal(err)
		}
		for g, effect := range effects {
			if got := predict(q, g); !(math.Abs(got-effect) < 0.8) && !strings.Contains(f, "/") {
				t.Errorf("%s: the mean of level %s is %v, want about %v", f, g, got, effect)
			} else if x := predict(one, g); !(math.Abs(got-x) < 1e-6) {
				t.Errorf("%s: the mean of level %s is %v after two updates, and %v after one", f, g, got, x)
			} else if x := predict(loaded, g); got != x {
				t.Errorf("%s: the mean of level %s is %v, and %v after loading", f, g, got, x)
			}
		}
		if got := predict(q, "new"); !(math.Abs(got) < 2) {
			t.Errorf("%s: the mean of a new level is %v", f, got)
		}
		if after := predict(p, "b"); after != before {
			t.Errorf("%s: Update changed its predictor", f)
		}
	}
}

// TestWholeLevels checks that a group finds a whole number that is written with decimals, as pandas
// writes the numbers of a column with empty cells, unless both spellings are levels.
func TestWholeLevels(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 3))
	for _, c := range []struct {
		levels []string
		ask    string
		known  bool
	}{
		{[]string{"308", "309", "310"}, "309.0", true},
		{[]string{"308.0", "309.0", "310.0"}, "309", true},
		{[]string{"308", "309", "310"}, "309,00", true},
		{[]string{"308", "309", "310"}, "309.5", false},
		{[]string{"308", "309", "309.00"}, "309.0", false},
		{[]string{"a", "b", "v1"}, "v1.0", false},
	} {
		var b strings.Builder
		b.WriteString("y;g\n")
		for i := range 60 {
			fmt.Fprintf(&b, "%.3f;%s\n", float64(i%3)+rng.NormFloat64(), c.levels[i%3])
		}
		_, p := mustFit(t, mustModel(t, tableOf(t, b.String()), "y ~ 1 + (1 | g)"), nil)
		a, err := p.Predict(map[string]any{"g": c.ask})
		if err != nil {
			t.Fatal(err)
		}
		if known := len(a.Notes) == 0; known != c.known {
			t.Errorf("levels %q: %s has the notes %q", c.levels, c.ask, a.Notes)
		}
		q, err := p.Update(context.Background(), tableOf(t, "y;g\n2.25;"+c.ask+"\n1.75;"+c.ask+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if a, err = q.Predict(map[string]any{"g": c.ask}); err != nil || len(a.Notes) > 0 {
			t.Errorf("levels %q: after Update, %s has the notes %q, error %v", c.levels, c.ask, a.Notes, err)
		}
	}
}
