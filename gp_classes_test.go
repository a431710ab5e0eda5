package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/score"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// irisPart returns every second row of iris.
func irisPart(t testing.TB) (*mat.Dense, []float64) {
	x, y := irisClasses(t)
	var index []int
	for i := 0; i < len(y); i += 2 {
		index = append(index, i)
	}
	part, labels := SelectRows(x, y, index)
	return part.(*mat.Dense), labels
}

func TestClassesGP(t *testing.T) {
	x, y := irisPart(t)
	kernel := SquaredExp{Scale: 3, Length: 2}
	g, err := NewGP(x, y, kernel, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	post, res, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != Converged || !math.IsInf(res.GapBound, 1) {
		t.Errorf("%v", res)
	}
	if res.Passes > 12 { // with those of the prior and of the means alone, 14
		t.Errorf("%v passes", res.Passes)
	}
	if want := -23.9827; !(res.ELBO > want-0.01) { // of 60 passes
		t.Errorf("ELBO %v, want %v", res.ELBO, want)
	}
	// At the rows the prediction is the posterior there.
	p := post.At(x)
	m, v := p.Latent(nil, nil)
	tm, tv := post.Train(nil, nil)
	for i := range m {
		if !(math.Abs(m[i]-tm[i]) < 1e-6) || !(math.Abs(v[i]-tv[i]) < 1e-6) {
			t.Fatalf("score %d: %v, %v at the row, %v, %v of the fit", i, m[i], v[i], tm[i], tv[i])
		}
	}
	s, err := p.Scores(y)
	if err != nil {
		t.Fatal(err)
	}
	if right, _ := s.Value("accuracy"); !(right > 0.95) {
		t.Error(s)
	}
	var buf bytes.Buffer
	if err := post.Save(&buf); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load[*GPPosterior](&buf)
	if err != nil {
		t.Fatal(err)
	}
	if !mat.Equal(loaded.At(x).Probs(), p.Probs()) {
		t.Error("loaded, it predicts otherwise")
	}
	// Resumed, and permuted.
	other := make([]float64, len(y))
	for i, c := range y {
		other[i] = math.Mod(c+1, 3)
	}
	h, err := NewGP(x, other, kernel, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, permuted, err := h.Fit(ctx, nil)
	if err != nil || !(math.Abs(permuted.ELBO-res.ELBO) < 1e-8) {
		t.Errorf("other classes: %v, want %v; %v", permuted.ELBO, res.ELBO, err)
	}
	_, part, err := g.Fit(ctx, &Solver{MaxPasses: 4, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	buf.Reset()
	if err := part.Save(&buf); err != nil {
		t.Fatal(err)
	}
	solver := &Solver{}
	again, err := solver.LoadResult(ctx, &buf, g)
	if err != nil {
		t.Fatal(err)
	}
	if again, err = solver.Resume(ctx, again); err != nil || again.ELBO != res.ELBO {
		t.Errorf("resumed: %v, want %v; %v", again.ELBO, res.ELBO, err)
	}
	for name, f := range map[string]func() error{
		"PSIS":            func() error { _, err := g.PSIS(ctx, nil, post, 0); return err },
		"LOO":             func() error { _, err := g.LOO(ctx, post); return err },
		"PredictiveCheck": func() error { _, err := g.PredictiveCheck(ctx, nil, post, 0); return err },
		"Objective":       func() error { _, err := g.Objective(); return err },
		"CertifyScale":    func() error { _, err := g.CertifyScale(ctx, 0.1, 10, 1); return err },
		"Learn":           func() error { _, _, _, err := g.Learn(ctx, nil, nil); return err },
		"SparseGP":        func() error { _, err := NewSparseGP(x, y, kernel, Softmax{}, nil); return err },
		"Joint":           func() error { _, _, err := post.Joint(x); return err },
		"Rand":            func() error { return post.Rand(mat.NewDense(1, len(y), nil), x, nil) },
	} {
		if err := f(); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := g.Fit(ctx, &Solver{Divergence: Euclidean()}); !errors.Is(err, ErrNoProx) {
		t.Errorf("another divergence: %v", err)
	}
	if _, err := NewGP(x, y, kernel, Softmax{Classes: 1e9}, nil); !errors.Is(err, ErrMemory) {
		t.Errorf("too many classes: %v", err)
	}
}

// Two classes are BernoulliLogit of the difference of their functions.
func TestClassesGPTwo(t *testing.T) {
	x, y := irisPart(t)
	two, sign := make([]float64, len(y)), make([]float64, len(y))
	for i, c := range y {
		two[i], sign[i] = score.Indicator(c == 1), plusMinus(c == 1)
	}
	fit := func(y []float64, scale float64, lik Likelihood) (*GPPosterior, float64) {
		g, err := NewGP(x, y, SquaredExp{Scale: scale, Length: 2}, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(context.Background(), &Solver{Goal: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		return post, res.ELBO
	}
	a, got := fit(two, 2, Softmax{})
	b, want := fit(sign, 2*math.Sqrt2, BernoulliLogit{})
	if !(math.Abs(got-want) < 1e-6) {
		t.Errorf("ELBO %v, want %v", got, want)
	}
	pa, pb := a.Prob(nil, 1, x), b.Prob(nil, 1, x)
	if !floats.EqualApprox(pa, pb, 1e-5) {
		t.Errorf("probabilities %v, want %v", pa, pb)
	}
}
