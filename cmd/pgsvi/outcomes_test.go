package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// TestOutcomes compares fits of each kind of outcome with fits of the library on the same matrix,
// with fixed and with learned parameters.
func TestOutcomes(t *testing.T) {
	n := testkit.Shorter(60, 30)
	rng := rand.New(rand.NewPCG(4, 4))
	x, columns := mat.NewDense(n, 1, nil), map[string][]float64{}
	var b strings.Builder
	b.WriteString("x,days,died,cured,treated,visits,share\n")
	for i := range n {
		v := math.Round(100*rng.Float64()) / 50
		x.Set(i, 0, v)
		days, died := math.Round(1e3*math.Exp(2-v)*rng.ExpFloat64())/1e3+1e-3, 1.
		if days > 4 {
			days, died = 4, 0
		}
		treated, visits := float64(1+rng.IntN(9)), float64(rng.IntN(6)*rng.IntN(2))
		cured := math.Floor(treated * rng.Float64())
		share := math.Round(1e3*rng.Float64())/1002 + 1e-3
		row := []float64{days, died, cured, treated, visits, share}
		fmt.Fprint(&b, v)
		for j, name := range []string{"days", "died", "cured", "treated", "visits", "share"} {
			columns[name] = append(columns[name], row[j])
			fmt.Fprintf(&b, ",%v", row[j])
		}
		b.WriteByte('\n')
	}
	dir := t.TempDir()
	path, model := write(t, dir, "outcomes.csv", b.String()), filepath.Join(dir, "m.pgsvi")
	durations, err := pgsvi.Survival(columns["days"], columns["died"])
	if err != nil {
		t.Fatal(err)
	}
	successes, err := pgsvi.Successes(columns["cured"], columns["treated"])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range testkit.Few([]struct {
		outcome, name string
		y             []float64
		lik           pgsvi.Likelihood
	}{
		{"survival(days, died)", "", durations, pgsvi.Weibull{}},
		{"cured / treated", "betabinomial", successes, pgsvi.BetaBinomial{}},
		{"survival(days, died)", "lognormal", durations, pgsvi.LogNormal{}},
		{"visits", "zinb", columns["visits"], pgsvi.ZeroInflated{Shape: 1}},
		{"visits", "hurdle", columns["visits"], pgsvi.Hurdle{}},
		{"share", "beta", columns["share"], pgsvi.Beta{}},
		{"survival(days, died)", "weibull", durations, pgsvi.Weibull{}},
		{"days", "weibull", columns["days"], pgsvi.Weibull{}},
		{"visits", "zip", columns["visits"], pgsvi.ZeroInflated{}},
		{"visits", "hurdlenb", columns["visits"], pgsvi.Hurdle{Shape: 1}},
	}[:testkit.Longer(10, 6)], 2) {
		glm, err := pgsvi.NewGLM(x, c.y, c.lik, &pgsvi.GLMOptions{
			Intercept: true, PriorSD: 1, InterceptSD: 10, Covariance: pgsvi.FullCovariance})
		if err != nil {
			t.Fatal(err)
		}
		_, res, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, learned, err := glm.Learn(context.Background(), nil,
			&pgsvi.LearnOptions{Fixed: []string{"GLM.PriorSD"}})
		if err != nil {
			t.Fatal(err)
		}
		var fitted string // what the fit that learns has printed
		for _, learn := range []string{"-learn=false", "-learn=true"} {
			want := res.ELBO
			if learn == "-learn=true" {
				want = learned.Fit.ELBO
			}
			status, out, stderr := run(t, "fit", "-formula", c.outcome+" ~ x", "-likelihood",
				c.name,
				learn, "-standardize=false",
				"-prior-sd", "1", "-intercept-sd", "10", "-o", model, path)
			if status != 0 {
				t.Fatalf("%s, %s: %s", c.outcome, c.name, stderr)
			}
			fitted = out
			lines := strings.Split(strings.TrimSpace(out), "\n")
			last := lines[len(lines)-1]
			if got := value(t, last, "neg_elbo"); math.Abs(got+want) > 1e-8*math.Abs(want) ||
				value(t, last, "rows") != float64(n) {
				t.Errorf("%s, %s, %s: neg_elbo=%.12g, want %.12g", c.outcome, c.name, learn, got,
					-want)
			}
		}
		for _, p := range learned.Params {
			if p.Fixed {
				continue
			}
			if got := value(t, fitted, p.Name); math.Abs(got-p.Value) > 1e-6*p.Value {
				t.Errorf("%s, %s: %s=%v, want %v", c.outcome, c.name, p.Name, got, p.Value)
			}
		}
		status, out, stderr := run(t, "predict", "-score", model, path)
		if status != 0 || strings.Count(out, "\n") != n+1 || !(value(t, stderr, "bits") < 10) ||
			value(t, stderr, "errors") != 0 {
			t.Errorf("%s, %s: predict: %d, %s\n%s", c.outcome, c.name, status, stderr, out)
		}
	}
}
