package loo

import (
	"context"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/psis"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// These densities of labels as real numbers have a kink, heavy tails, or a Gaussian shape.
func kinks(y []float64) logprob.Rows    { return logprob.Laplace(y, 1, 0) }
func heavy(y []float64) logprob.Rows    { return logprob.Student(y, 4, 0.5, 0) }
func gaussian(y []float64) logprob.Rows { return logprob.Gaussian(y, 0.8, 0) }

// impossible returns a density that is 0.
func impossible([]float64) logprob.Rows {
	return func(eta []float64, _ int) { floats.AddConst(math.Inf(-1), eta) }
}

// TestSample compares the sums of a sample with sums over all rows, at draws of q. The root mean square
// of the error is a mean over samples, so the one of a sample may be larger by a fifth.
func TestSample(t *testing.T) {
	for _, c := range []struct {
		name    string
		rows    func(y []float64) logprob.Rows
		n, d    int
		sampled [2]int // the least and the largest number of rows in the sample
		tol     float64
	}{
		{"logit", logprob.Logit, 60000, 14, [2]int{300, 60000 / 32}, sampleError},
		{"counts", counts, 60000, 3, [2]int{500, 60000 / 32}, sampleError},
		{"kinks", kinks, 60000, 4, [2]int{1000, 3000}, sampleError},
		{"Student t", heavy, 60000, 3, [2]int{3000, 12000}, sampleError},
		{"Gaussian", gaussian, 2000, 20, [2]int{0, 0}, 1e-9},
	} {
		l, cov := seriesModel(c.rows, c.n, c.d)
		all := rowTerms{x: l.X, terms: l.Terms.Density(), at: make([]float64, c.n)}
		some := newSample(t.Context(), l, &all, cov)
		if some == nil {
			t.Errorf("%s: there is no sample", c.name)
			continue
		}
		const draws = 128
		z, rng := make([]float64, draws*c.d), psis.Generator(13, 14)
		var got, want [draws]float64
		for s := range draws {
			delta := z[s*c.d : (s+1)*c.d]
			if err := cov.Draw(delta, rng); err != nil {
				t.Fatal(err)
			}
			got[s] = some.value(delta)
		}
		for _, err := range []error{some.rows.add(z, got[:], new(excessWork)),
			all.add(z, want[:], new(excessWork))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		off := floats.Distance(got[:], want[:], 2) / math.Sqrt(draws)
		if n := len(some.rows.at); !(off <= 1.2*c.tol) || n < c.sampled[0] || n > c.sampled[1] {
			t.Errorf("%s: %d rows have a root mean square error of %.2g, want %d to %d and %.2g",
				c.name, n, off, c.sampled[0], c.sampled[1], c.tol)
		}
	}
}

// TestProjection checks the polynomial of a quadratic term, and the σ of a cubic term.
func TestProjection(t *testing.T) {
	cubic := func(y []float64) logprob.Rows {
		return func(eta []float64, first int) {
			for i, x := range eta {
				eta[i] = 2 + 3*x - 0.5*x*x + y[first+i]*x*x*x
			}
		}
	}
	const v = 0.25
	y := []float64{0, 1, 0}
	rows := rowTerms{at: []float64{0.3, 0, 0.3},
		terms: (&term.Terms{Lik: rowwise{1, cubic}, Y: y}).Density()}
	p := &projection{c: []float64{v, v, 0}, a: make([]float64, 3), b: make([]float64, 3),
		sigma: make([]float64, 3)}
	p.project(&rows, 0, 3)
	// The row of variance 0 has its value alone. And t³ = 3vt + v^1.5 √6 He₃(t/√v)/√6.
	for i, want := range [][4]float64{{2 + 0.9 - 0.045, 3 - 0.3, -0.5, 0},
		{2, 3 + 3*v, -0.5, math.Sqrt(6 * v * v * v)}, {2 + 0.9 - 0.045, 0, 0, 0}} {
		got := []float64{p.a[i], p.b[i], p.c[i], p.sigma[i]}
		if !floats.EqualApprox(got, want[:], 1e-12) {
			t.Errorf("row %d has %.6g, want %.6g", i, got, want)
		}
	}
}

// TestSampleSize checks that the expected error is the largest allowed error.
func TestSampleSize(t *testing.T) {
	for name, sigma := range map[string][]float64{
		"equal": {2e-3, 2e-3, 2e-3, 2e-3, 2e-3, 2e-3, 2e-3, 2e-3, 2e-3, 2e-3},
		"one":   {5, 1e-3, 1e-3, 1e-3, 1e-3, 0, 0, 0},
	} {
		size := (&projection{sigma: sigma}).size(sampleError)
		var e float64
		for _, s := range sigma {
			if s > 0 {
				e += s * s * max(0, size/s-1)
			}
		}
		if root := math.Sqrt(e); !(root > 0.98*sampleError && root <= sampleError) {
			t.Errorf("%s: the error is %.4g, want %.4g", name, root, sampleError)
		}
	}
	for name, sigma := range map[string][]float64{
		"none": {0, 0}, "tiny": {1e-320, 0}, "not finite": {1, math.Inf(1)}, "NaN": {math.NaN(), 0},
		"large": {1, 1, 1},
	} {
		index, _ := (&projection{sigma: sigma}).choose()
		if none := name == "none" || name == "tiny"; len(index) > 0 || (index != nil) != none {
			t.Errorf("%s: the sample is %v", name, index)
		}
	}
}

// TestSampleNone checks that newSample returns nil if a sample would not be accurate or would not
// pay.
func TestSampleNone(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	diagonal := gauss.Diagonal{1, 1, 1, 1}
	none := func(ctx context.Context, name string, rows func(y []float64) logprob.Rows, n, d int,
		cov gauss.Cov) {
		l, full := seriesModel(rows, n, d)
		if cov == nil {
			cov = full
		}
		at := &rowTerms{x: l.X, terms: l.Terms.Density(), at: make([]float64, n)}
		if newSample(ctx, l, at, cov) != nil {
			t.Errorf("%s: there is a sample", name)
		}
	}
	none(t.Context(), "few rows", logprob.Logit, 500, 14, nil)
	none(t.Context(), "many columns", gaussian, 500, sampledPerRow+1, nil)
	none(t.Context(), "no density", impossible, 2000, 4, nil)
	none(t.Context(), "diagonal", gaussian, 500, 4, diagonal)
	none(canceled, "canceled", gaussian, 500, 4, nil)
}
