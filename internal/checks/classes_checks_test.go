package checks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestClassesPSIS checks the evidence and the moments of the posterior against a quadrature over
// the weights of three classes. The data have one column, and the classes have different priors
// or the same prior.
func TestClassesPSIS(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	const n = 12
	x, y, weights := mat.NewDense(n, 1, nil), make([]float64, n), make([]float64, n)
	offset := make([]float64, 3*n)
	for i := range y {
		x.Set(i, 0, rng.NormFloat64())
		y[i], weights[i] = float64(rng.IntN(3)), float64(1+i%2)
	}
	for i := range offset {
		offset[i] = 0.5 * rng.NormFloat64()
	}
	rule := expect.Hermite(25)
	for _, sds := range testkit.Few([][]float64{{0.3, 1, 2}, {1, 1, 1}}, 1) {
		g, err := NewGLM(x, y, Softmax{Classes: 3}, &GLMOptions{Prior: eachPrior(t, 1, sds...),
			Weights: weights, Offset: offset})
		if err != nil {
			t.Fatal(err)
		}
		q, res, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.PSIS(t.Context(), nil, q, 20000)
		if err != nil {
			t.Fatal(err)
		}
		total, mean, square := 0.0, make([]float64, 3), make([]float64, 3)
		for i, a := range rule.X {
			for j, b := range rule.X {
				for k, c := range rule.X {
					w := []float64{a * sds[0], b * sds[1], c * sds[2]}
					logp := 0.0
					for r, label := range y {
						eta := make([]float64, 3)
						for e := range eta {
							eta[e] = offset[3*r+e] + x.At(r, 0)*w[e]
						}
						logp += weights[r] * (eta[int(label)] - floats.LogSumExp(eta))
					}
					f := rule.W[i] * rule.W[j] * rule.W[k] * math.Exp(logp)
					total += f
					center := floats.Sum(w) / 3
					for e := range w {
						mean[e] += f * (w[e] - center)
						square[e] += f * (w[e] - center) * (w[e] - center)
					}
				}
			}
		}
		if want := math.Log(total); !(math.Abs(p.LogZ-want) < 5*p.LogZErr+1e-3) ||
			!(res.ELBO < want) || !(p.KHat < 0.5) {
			t.Errorf("%v, want an evidence of %v, above the ELBO %v", p, want, res.ELBO)
		}
		for e := range mean {
			m := mean[e] / total
			sd := math.Sqrt(square[e]/total - m*m)
			if !(math.Abs(p.Mean[e]-m) < 5*p.MeanErr[e]) || !(math.Abs(p.SD[e]-sd) < 5*p.SDErr[e]) {
				t.Errorf("class %d: %v ± %v, want %v ± %v", e, p.Mean[e], p.SD[e], m, sd)
			}
		}
	}
}

// TestClassesGPPredictiveCheck checks that GPs draw each class of each row as often as its
// probability predicts.
func TestClassesGPPredictiveCheck(t *testing.T) {
	x, y := irisPart(t)
	ctx := context.Background()
	last := map[string]func([]float64) float64{
		"last": func(y []float64) float64 { return y[len(y)-1] }}
	const draws = 4000
	kernel := SquaredExp{Scale: 3, Length: 2}
	judge := func(name string, c *PredictiveCheck, probs *mat.Dense) {
		t.Helper()
		for k := range 3 {
			col := mat.Col(nil, k, probs)
			want := floats.Sum(col) / float64(len(y))
			if c.Names[k] != fmt.Sprintf("share of class=%d", k) ||
				!(math.Abs(c.Mean[k]-want) < 0.003) ||
				!(c.Lo[k] < c.Observed[k] && c.Observed[k] < c.Hi[k]) {
				t.Errorf("%s, class %d: %v, want a mean of %v", name, k, c, want)
			}
		}
		p := probs.RawRowView(len(y) - 1)
		if want := p[1] + 2*p[2]; len(c.Names) != 4 || !(math.Abs(c.Mean[3]-want) < 0.04) {
			t.Errorf("%s: %v, want a mean of %v", name, c, want)
		}
	}
	g, err := NewGP(x, y, kernel, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, _, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.PredictiveCheck(ctx, nil, q, draws, last)
	if err != nil {
		t.Fatal(err)
	}
	judge("GP", c, q.At(x).Probs())
	// A few inducing inputs leave much of each row's variance to the row itself.
	s, err := NewSparseGP(x, y, kernel, Softmax{}, &SparseGPOptions{Rank: 5})
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := s.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = s.PredictiveCheck(ctx, nil, r, draws, last); err != nil {
		t.Fatal(err)
	}
	judge("sparse GP", c, r.At(x).Probs())
	four, err := NewGP(x, y, kernel, Softmax{Classes: 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := four.PredictiveCheck(ctx, nil, q, 10, nil); !errors.Is(err, ErrParam) ||
		!strings.Contains(err.Error(), "3 classes, but the model has 4") {
		t.Errorf("of other classes: %v", err)
	}
	if _, err := g.PSIS(ctx, nil, q, 0); !errors.Is(err, ErrParam) ||
		!strings.Contains(err.Error(), "LOO and PredictiveCheck") {
		t.Errorf("PSIS: %v", err)
	}
}

// TestClassesExplain checks that contributions add up to the log odds of two classes, and that
// their standard deviations match draws.
func TestClassesExplain(t *testing.T) {
	x, y := irisClasses(t)
	post, _ := fitClasses(t, x, y, Softmax{}, &GLMOptions{Intercept: true,
		ClassNames: []string{"setosa", "versicolor", "virginica"}}, nil)
	row, base := x.RawRowView(100), x.RawRowView(3)
	e, err := post.Explain(row, &EffectOptions{Base: base, Classes: []int{0, 2}})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := post.At(x).Latent(nil, nil)
	odds := func(i int) float64 { return m[3*i] - m[3*i+2] }
	if !(math.Abs(e.Value-odds(100)) < 1e-9) || !(math.Abs(e.Base-odds(3)) < 1e-9) {
		t.Errorf("from %v to %v, want from %v to %v", e.Base, e.Value, odds(3), odds(100))
	}
	const draws = 20000
	w := mat.NewDense(draws, post.Dim(), nil)
	if err := post.RandWeights(w, rand.New(rand.NewPCG(1, 1))); err != nil {
		t.Fatal(err)
	}
	names := post.Names()
	for _, r := range e.Rows {
		j := 0
		for !strings.HasSuffix(names[j], " · "+r.Name) {
			j++
		}
		sum, square := 0.0, 0.0
		for i := range draws {
			d := (row[j] - base[j]) * (w.At(i, j) - w.At(i, 10+j))
			sum, square = sum+d/draws, square+d*d/draws
		}
		sd := math.Sqrt(square - sum*sum)
		if !(math.Abs(r.Mean-sum) < 5*sd/math.Sqrt(draws)) || !(math.Abs(r.SD-sd) < 0.03*sd) {
			t.Errorf("%s: %v ± %v, of draws %v ± %v", r.Name, r.Mean, r.SD, sum, sd)
		}
	}
	// Without options, Explain compares the most probable class with the second.
	if e, err = post.Explain(row, nil); err != nil ||
		!strings.Contains(e.String(), "log odds of class=virginica against class=versicolor") ||
		!strings.Contains(e.String(), "odds ×") {
		t.Errorf("%v; %v", e, err)
	}
	for _, classes := range [][]int{{1}, {1, 1}, {0, 3}, {-1, 0}, {}} {
		if _, err := post.Explain(row, &EffectOptions{Classes: classes}); !errors.Is(err,
			ErrParam) {
			t.Errorf("classes %v: %v", classes, err)
		}
	}
}
