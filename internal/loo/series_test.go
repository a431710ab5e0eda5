package loo

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// rowwise is a likelihood that computes many rows together.
type rowwise struct {
	noise
	rows func(y []float64) logprob.Rows
}

func (l rowwise) LogProbs(y []float64) logprob.Rows  { return l.rows(y) }
func (l rowwise) LogProbSum(y []float64) logprob.Sum { return nil }

// counts returns the Poisson log-probabilities of labels, as counts 0 and 1.
func counts(y []float64) logprob.Rows {
	c := make([]float64, len(y))
	for i, label := range y {
		c[i] = (label + 1) / 2
	}
	return logprob.Poisson(c, make([]float64, len(y)), 1)
}

// seriesModel returns a model of n rows with weights and offsets, and the V of rows whose curvature
// is 0.2.
func seriesModel(rows func(y []float64) logprob.Rows, n, d int) (*site.LinearModel, *gauss.Full) {
	rng := rand.New(rand.NewPCG(11, 12))
	x, y := make([]float64, n*d), make([]float64, n)
	t := &term.Terms{Lik: rowwise{1, rows}, Y: y, Offset: make([]float64, n),
		Weight: make([]float64, n)}
	full := &gauss.Gaussian{}
	full.Resize(d)
	for j := range d {
		full.P[j*d+j] = 1
	}
	for i := range y {
		row := x[i*d : (i+1)*d]
		for j := range row {
			row[j] = rng.NormFloat64()
		}
		row[0] = 1
		if i == 0 {
			clear(row) // every draw predicts the mean
		}
		y[i] = math.Copysign(1, rng.NormFloat64())
		t.Offset[i], t.Weight[i] = rng.NormFloat64(), 0.5+rng.Float64()
		for j, a := range row {
			floats.AddScaled(full.P[j*d:(j+1)*d], 0.2*a, row)
		}
	}
	if !full.Factor() {
		panic("no precision")
	}
	l := &site.LinearModel{Terms: t, X: &design.Matrix{Rows: n, Cols: d, Dense: x},
		Prior: gauss.Prior{Mean: make([]float64, d), Prec: make([]float64, d)}}
	return l, &gauss.Full{S: full}
}

// TestSeries compares the series with the sum over rows, at draws of q.
func TestSeries(t *testing.T) {
	for _, c := range []struct {
		name string
		rows func(y []float64) logprob.Rows
		n, d int
		tol  float64
	}{
		{"logit", logprob.Logit, 30000, 4, 1e-5},
		{"probit", logprob.Probit, 60000, 4, 1e-5},
		{"counts", counts, 60000, 2, 1e-5},
		{"one weight", logprob.Logit, 2000, 1, 1e-5},
		{"Gaussian", gaussian, 700, 12, 1e-9},
	} {
		l, cov := seriesModel(c.rows, c.n, c.d)
		s := newSeries(t.Context(), l, l.Terms.Density(), make([]float64, c.n), cov)
		if s == nil {
			t.Errorf("%s: there is no series", c.name)
			continue
		}
		rows := rowTerms{x: l.X, terms: l.Terms.Density(), at: make([]float64, c.n)}
		rng := rand.New(rand.NewPCG(13, 14))
		near, worst := 0, 0.0
		for range 64 {
			delta, want := make([]float64, c.d), []float64{0}
			if err := cov.Draw(delta, rng); err != nil {
				t.Fatal(err)
			}
			if err := rows.add(delta, want, new(excessWork)); err != nil {
				t.Fatal(err)
			}
			if got, ok := s.value(delta, new(seriesWork)); ok {
				near++
				worst = math.Max(worst, math.Abs(got-want[0]))
			}
		}
		if !(worst <= c.tol) || near < 60 {
			t.Errorf("%s: %d of 64 draws are near, off by up to %.2g", c.name, near, worst)
		}
	}
}

// TestSeriesFar checks that draws beyond the radius of a series are summed over the rows.
func TestSeriesFar(t *testing.T) {
	const d, n = 2, 20000
	l, cov := seriesModel(logprob.Logit, n, d)
	j := &weightDensity{mean: make([]float64, d),
		rows: rowTerms{x: l.X, terms: l.Terms.Density(), at: make([]float64, n)}}
	if j.series = newSeries(t.Context(), l, j.rows.terms, j.rows.at, cov); j.series == nil {
		t.Fatal("there is no series")
	}
	z, got, want := []float64{0.01, 0, 3, -2, 0, 0}, make([]float64, 3), make([]float64, 3)
	if err := j.addTerms(z, got, new(excessWork)); err != nil {
		t.Fatal(err)
	}
	if err := j.rows.add(z, want, new(excessWork)); err != nil {
		t.Fatal(err)
	}
	if !floats.EqualApprox(got, want, 1e-5) {
		t.Errorf("log-likelihoods are %v, want %v", got, want)
	}
}

// TestSeriesNone checks that newSeries returns nil if a polynomial is not accurate enough.
func TestSeriesNone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		rows func(y []float64) logprob.Rows
		n, d int
	}{
		{"few rows", t.Context(), logprob.Logit, 500, 4},
		{"many weights", t.Context(), gaussian, 500, mostSeries + 1},
		{"kinks", t.Context(), kinks, 20000, 4},
		{"no density", t.Context(), impossible, 20000, 4},
		{"canceled", ctx, logprob.Logit, 30000, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, cov := seriesModel(c.rows, c.n, c.d)
			if newSeries(c.ctx, l, l.Terms.Density(), make([]float64, c.n), cov) != nil {
				t.Error("there is a series")
			}
		})
	}
}
