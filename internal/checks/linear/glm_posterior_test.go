package linear

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// TestSummaryRows checks that the rows describe the posterior for every kind of covariance, that
// the intercept comes first, and that all of many rows are printed.
func TestSummaryRows(t *testing.T) {
	for _, c := range []struct {
		name       string
		rows, cols int
		intercept  bool
		family     Covariance
		want       Covariance
	}{
		{"primal", 100, 30, true, AutoCovariance, FullCovariance},
		{"dual to primal", 20, 60, false, AutoCovariance, FullCovariance},
		{"dual", 2, 2001, true, AutoCovariance, FullCovariance},
		{"low rank", 100, 60, true, LowRankCovariance, LowRankCovariance},
		{"diagonal", 100, 60, false, DiagonalCovariance, DiagonalCovariance},
	} {
		x, y := make([]float64, 0, c.rows*c.cols), make([]float64, c.rows)
		for i := range c.rows {
			for j := range c.cols {
				x = append(x, math.Sin(float64(i*i+3*j*i+7*j)))
			}
			y[i] = testkit.PlusMinus(math.Sin(float64(5*i*i)) > 0)
		}
		g, err := NewGLM(mat.NewDense(c.rows, c.cols, x), y, BernoulliLogit{},
			&GLMOptions{Intercept: c.intercept, Covariance: c.family})
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := p.Summary()
		if s.Covariance != c.want || s.Data != c.rows || s.Weights != p.Dim() ||
			len(s.Rows) != p.Dim() || s.Likelihood != "BernoulliLogit" {
			t.Errorf("%s: %v covariance, %d rows, %d weights, %d rows of the table, %s", c.name,
				s.Covariance, s.Data, s.Weights, len(s.Rows), s.Likelihood)
		}
		if lines := strings.Count(s.String(), "\n"); lines != p.Dim()+3 {
			t.Errorf("%s: %d lines for %d weights", c.name, lines, p.Dim())
		}
		mean, sd := p.Mean(nil), p.SD(nil)
		for k, r := range s.Rows {
			j := k
			if c.intercept {
				j = (k + p.Cols()) % p.Dim()
			}
			if r.Name != p.Names()[j] || r.Mean != mean[j] || r.SD != sd[j] ||
				math.Abs(r.Hi-mean[j]-1.959963984540054*sd[j]) > 1e-12 ||
				math.Abs(r.Lo+r.Hi-2*mean[j]) > 1e-12 {
				t.Fatalf("%s: row %d is %+v, want %s: %v, %v", c.name, k, r, p.Names()[j], mean[j],
					sd[j])
			}
		}
	}
}

// Columns of very different units under one PriorSD must have a warning, in fits and in learned
// models, and Autoscale must remove it. Columns in one unit must have none, whatever their values
// are.
func TestWarnUnits(t *testing.T) {
	t.Parallel()
	ctx, rng, n := context.Background(), testkit.Rand(5), 120
	column := map[string]func() float64{
		"unit":     rng.NormFloat64,
		"thousand": func() float64 { return 1000 * rng.NormFloat64() },
		"constant": func() float64 { return 7 },
		"year":     func() float64 { return 1900 + 100*rng.Float64() },
		"tails":    func() float64 { return math.Exp(2 * rng.NormFloat64()) },
		"rare":     func() float64 { return float64(design.B2i(rng.IntN(n/2) == 0)) },
		"rare, standardised": func() float64 {
			const p = 1e-3
			return (float64(design.B2i(rng.Float64() < p)) - p) / math.Sqrt(p*(1-p))
		},
	}
	for _, c := range []struct {
		columns []string
		opt     GLMOptions
		warned  bool
	}{
		{[]string{"unit", "thousand"}, GLMOptions{}, true},
		{[]string{"rare", "constant", "thousand"}, GLMOptions{Intercept: true}, true},
		{[]string{"unit", "thousand"}, GLMOptions{Autoscale: true, Intercept: true}, false},
		{[]string{"unit", "thousand"}, GLMOptions{Blocks: []int{0, 1}}, false},
		{[]string{"thousand"}, GLMOptions{Intercept: true}, false},
		{[]string{"unit", "unit", "constant"}, GLMOptions{Intercept: true}, false},
		{[]string{"unit", "tails", "rare", "year"}, GLMOptions{Intercept: true}, false},
		{[]string{"unit", "rare, standardised", "constant"}, GLMOptions{}, false},
	} {
		x, y := mat.NewDense(n, len(c.columns), nil), make([]float64, n)
		for i := range n {
			for j, name := range c.columns {
				x.Set(i, j, column[name]())
			}
			y[i] = 1000 + rng.NormFloat64()
		}
		g, err := NewGLM(x, y, GaussianNoise{}, &c.opt)
		if err != nil {
			t.Fatal(err)
		}
		_, res, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, l, err := g.Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for what, got := range map[string][]string{"Fit": res.Warnings, "Learn": l.Warnings,
			"Learned.Fit": l.Fit.Warnings, "Learned.Search": l.Search.Warnings} {
			if warned := strings.Contains(strings.Join(got, ""),
				"Autoscale: true"); warned != c.warned {
				t.Errorf("%v %+v: %s: %q", c.columns, c.opt, what, got)
			}
		}
	}
}

// TestSaveGLMStream checks the same for the posterior of a stream, and after removing rows.
func TestSaveGLMStream(t *testing.T) {
	x, y := kit.SavedData(5000, 3, BernoulliLogit{}, 2)
	s, err := NewGLMStream(3, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddAll(context.Background(), Rows(x, y)); err != nil {
		t.Fatal(err)
	}
	post, err := s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	less, err := post.Remove(context.Background(), Rows(x.Slice(0, 10, 0, 3), y[:10]))
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*GLMPosterior{"stream": post, "removed": less} {
		loaded := saveAndLoad(t, name, p)
		if loaded == nil {
			continue
		}
		few, yf := x.Slice(0, 40, 0, 3), y[:40]
		if savedResults(t, p, few, yf) != savedResults(t, loaded, few, yf) {
			t.Errorf("%s: loaded posterior behaves differently", name)
		}
	}
}

// saveAndLoad returns the loaded posterior, or nil if it differs from the saved one.
func saveAndLoad(t *testing.T, name string, p *GLMPosterior) *GLMPosterior {
	t.Helper()
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	loaded, err := Load[*GLMPosterior](bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	var again bytes.Buffer
	if err := loaded.Save(&again); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
		t.Errorf("%s: saved again it differs (%v)", name, err)
	}
	return loaded
}

// savedResults returns the results of p as text with all bits.
func savedResults(t *testing.T, p *GLMPosterior, x mat.Matrix, y []float64) string {
	t.Helper()
	m, v := p.At(x).Latent(nil, nil)
	draw := mat.NewDense(2, p.Dim(), nil)
	err := p.RandWeights(draw, rand.New(rand.NewPCG(3, 0)))
	out := fmt.Sprint(m, v, p.At(x).LogProb(nil, y), p.SD(nil), p.Len(), p.Cols(),
		draw.RawMatrix().Data, err, p.Summary())
	more, err := p.Update(context.Background(), Rows(x, y))
	if err != nil {
		t.Errorf("update: %v", err)
		return out
	}
	return out + fmt.Sprint(more.Mean(nil), more.SD(nil), more.Len())
}
