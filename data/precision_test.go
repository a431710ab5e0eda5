package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// preciseRows returns a table whose noise has the variance 4/w, where w is multiplied by unit.
func preciseRows(unit float64) string {
	rng := rand.New(rand.NewPCG(11, 12))
	u := make([]float64, 20)
	for i := range u {
		u[i] = 0.7 * rng.NormFloat64()
	}
	var b strings.Builder
	b.WriteString("x,g,w,y\n")
	for i := range 200 {
		x, w := rng.NormFloat64(), []float64{1, 5, 20, 60}[rng.IntN(4)]
		y := 9 + 0.5*x + u[i%20] + 2/math.Sqrt(w)*rng.NormFloat64()
		fmt.Fprintf(&b, "%v,g%d,%v,%v\n", x, i%20, w*unit, y)
	}
	return b.String()
}

// fitPrecise fits a formula to rows with Gaussian noise and without priors of hyperparameters.
func fitPrecise(t *testing.T, rows, text string) (*Model, *pgsvi.GLMPosterior, *pgsvi.Result) {
	t.Helper()
	m := mustModel(t, tableOf(t, rows), text)
	glm, err := m.GLM(pgsvi.GaussianNoise{}, &pgsvi.GLMOptions{PriorSD: 1e4, InterceptSD: 1e4,
		Learn: &pgsvi.LearnOptions{NoPrior: true}})
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := glm.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m, post, res
}

// TestPrecisionRegression compares the fit of a regression with weighted least squares in closed
// form.
func TestPrecisionRegression(t *testing.T) {
	m, post, _ := fitPrecise(t, preciseRows(1), "y ~ x + precision(w)")
	n := len(m.Y)
	rows, y := mat.NewDense(n, 2, nil), mat.NewDense(n, 1, nil)
	for i, w := range m.Precision {
		rows.SetRow(i, []float64{math.Sqrt(w), math.Sqrt(w) * m.X.At(i, 0)})
		y.Set(i, 0, math.Sqrt(w)*m.Y[i])
	}
	var gram, cov, b, r mat.Dense
	gram.Mul(rows.T(), rows)
	if err := cov.Inverse(&gram); err != nil {
		t.Fatal(err)
	}
	b.Mul(rows.T(), y)
	b.Mul(&cov, &b)
	r.Mul(rows, &b)
	r.Sub(&r, y)
	sigma := mat.Norm(&r, 2) / math.Sqrt(float64(n-2))
	s := m.Summary(post)
	if got := s.Residual; math.Abs(got.SD/sigma-1) > 1e-4 || got.Name != "residual at w = 1" {
		t.Errorf("%v, want the sd %v", got, sigma)
	}
	mean, sd := post.Mean(nil), post.SD(nil)
	for i, j := range []int{1, 0} { // the intercept is the last weight
		want := sigma * math.Sqrt(cov.At(i, i))
		if math.Abs(mean[j]-b.At(i, 0)) > 1e-4*want || math.Abs(sd[j]/want-1) > 1e-4 {
			t.Errorf("weight %d: %v ± %v, want %v ± %v", j, mean[j], sd[j], b.At(i, 0), want)
		}
	}
}

// TestPrecisionUnit checks that the unit of the precisions does not matter, that equal precisions do
// not matter, and that predictions have the noise of their row, also from a file.
func TestPrecisionUnit(t *testing.T) {
	const text = "y ~ x + (1 | g)"
	m, post, res := fitPrecise(t, preciseRows(1), text+" + precision(w)")
	other, same, sameRes := fitPrecise(t, preciseRows(1000), text+" + precision(w)")
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 1e-7*math.Abs(want)) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("ELBO", sameRes.ELBO, res.ELBO)
	for i, want := range post.SD(nil) {
		near("sd", same.SD(nil)[i], want)
	}
	sd := m.Summary(post).Residual.SD
	near("residual", other.Summary(same).Residual.SD, sd*math.Sqrt(1000))
	near("sd of groups", other.Summary(same).Groups[0].SD, m.Summary(post).Groups[0].SD)

	_, plain, _ := fitPrecise(t, preciseRows(1), text)
	_, equal, _ := fitPrecise(t, preciseRows(1), text+" + precision(I(0*w + 7))")
	for i, want := range plain.SD(nil) {
		near("sd with equal precisions", equal.SD(nil)[i], want)
	}

	p, err := m.Predictor(post)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadPredictor(&file)
	if err != nil {
		t.Fatal(err)
	}
	latent := func(row map[string]any) (half, latent float64) {
		t.Helper()
		a, err := loaded.Predict(row)
		if err != nil {
			t.Fatal(err)
		}
		return (a.Hi - a.Lo) / 2, (a.MeanHi - a.MeanLo) / 2
	}
	const normal95 = 1.6448536269514722
	for _, w := range []float64{1, 20, m.design.Precision} {
		row := map[string]any{"x": 0.3, "g": "g4", "w": w}
		half, mean := latent(row)
		near(fmt.Sprintf("noise at w = %v", w), math.Sqrt(half*half-mean*mean)/normal95,
			sd/math.Sqrt(w))
	}
	half, _ := latent(map[string]any{"x": 0.3, "g": "g4"})
	want, _ := latent(map[string]any{"x": 0.3, "g": "g4", "w": m.design.Precision})
	near("a row without precision", half, want)
	if _, err := loaded.Predict(map[string]any{"x": 0.3, "g": "g4", "w": -1}); !errors.Is(err,
		pgsvi.ErrParam) || !strings.Contains(err.Error(), `"w"`) {
		t.Errorf("a negative precision: %v", err)
	}

	// New rows count relative to the precision of the training rows.
	once, err := loaded.Update(t.Context(), tableOf(t, "x,g,w,y\n0.3,g4,40,12\n"))
	if err != nil {
		t.Fatal(err)
	}
	twice, err := loaded.Update(t.Context(), tableOf(t, "x,g,w,y\n0.3,g4,20,12\n0.3,g4,20,12\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, errA := once.Predict(map[string]any{"x": 0.3, "g": "g4"})
	b, errB := twice.Predict(map[string]any{"x": 0.3, "g": "g4"})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	near("an update", a.Mean, b.Mean)
}

// TestPrecisionScore checks that the scores of rows use the noise of each row, as the log probability
// of each answer does, and that other precisions have other scores.
func TestPrecisionScore(t *testing.T) {
	m, post, _ := fitPrecise(t, preciseRows(1), "y ~ x + precision(w)")
	p, err := m.Predictor(post)
	if err != nil {
		t.Fatal(err)
	}
	sum, n := 0., 0
	for a, err := range p.Table(tableOf(t, preciseRows(1)), 0.9) {
		if err != nil {
			t.Fatal(err)
		}
		sum, n = sum-a.LogProb, n+1
	}
	loss := func(rows string) float64 {
		s, err := p.Score(tableOf(t, rows))
		if err != nil {
			t.Fatal(err)
		}
		v, ok := s.Value("log loss")
		if !ok {
			t.Fatalf("scores %v", s.Names)
		}
		return v
	}
	if got, want := loss(preciseRows(1)), sum/float64(n); math.Abs(got-want) > 1e-9 {
		t.Errorf("log loss %v, want %v", got, want)
	}
	if right, wrong := loss(preciseRows(1)), loss(preciseRows(4)); !(right < wrong-0.1) {
		t.Errorf("log loss %v with the right precisions, and %v with four times as much", right, wrong)
	}
}

// TestPrecisionErrors checks the errors about precisions.
func TestPrecisionErrors(t *testing.T) {
	const head = "x,w,y,k\n1,5,1.5,1\n2,6,0.5,0\n3,2,1.25,2\n4,1,2.5,1\n"
	if _, err := tableOf(t, head+"5,0,1.5,1\n").Model("y ~ x + precision(w)"); !errors.Is(err,
		pgsvi.ErrParam) || !strings.Contains(err.Error(), "line 6") {
		t.Errorf("a precision of 0: %v", err)
	}
	m := mustModel(t, tableOf(t, head), "k ~ x + precision(w)")
	if _, err := m.GLM(pgsvi.Poisson{}, nil); !errors.Is(err, pgsvi.ErrParam) ||
		!strings.Contains(err.Error(), "weight(w)") {
		t.Errorf("counts: %v", err)
	}
	if _, err := m.FitGP(context.Background(), pgsvi.SquaredExp{}, pgsvi.GaussianNoise{}, nil,
		nil); !errors.Is(err, pgsvi.ErrParam) {
		t.Errorf("a Gaussian process: %v", err)
	}
}

// TestPrecisionRoot checks that the mean of y in a model of √y and its interval include the noise of
// the row.
func TestPrecisionRoot(t *testing.T) {
	m, post, _ := fitPrecise(t, preciseRows(1), "sqrt(y) ~ x + precision(w)")
	p, err := m.Predictor(post)
	if err != nil {
		t.Fatal(err)
	}
	sd := m.Summary(post).Residual.SD
	at := func(w float64) *Answer {
		a, err := p.Predict(map[string]any{"x": 0.3, "w": w})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, b, want := at(2), at(8), sd*sd*(1./2-1./8)
	for name, got := range map[string]float64{"means": a.Mean - b.Mean, "lower ends": a.MeanLo - b.MeanLo,
		"upper ends": a.MeanHi - b.MeanHi} {
		if math.Abs(got/want-1) > 1e-6 {
			t.Errorf("the %s differ by %v, want %v", name, got, want)
		}
	}
}
