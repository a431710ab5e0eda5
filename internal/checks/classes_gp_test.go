package checks

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/score"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// endsAlike checks that a fit of m that is saved after four passes and resumed ends like res.
func endsAlike(t *testing.T, m Model, res *Result) {
	t.Helper()
	ctx := context.Background()
	part, err := (&Solver{MaxPasses: 4, Workers: 2}).Run(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := part.Save(&buf); err != nil {
		t.Fatal(err)
	}
	solver := &Solver{}
	again, err := solver.LoadResult(ctx, &buf, m)
	if err != nil {
		t.Fatal(err)
	}
	if again, err = solver.Resume(ctx, again); err != nil || again.ELBO != res.ELBO {
		t.Errorf("resumed: %v, want %v; %v", again.ELBO, res.ELBO, err)
	}
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
	if res.Passes > 12 { // 14 with steps of the prior and of the means only
		t.Errorf("%v passes", res.Passes)
	}
	if want := -23.9827; !(res.ELBO > want-0.01) { // reached in 60 passes
		t.Errorf("ELBO %v, want %v", res.ELBO, want)
	}
	// At the training rows, the prediction is the posterior of their latent values.
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
	// The fit must not change if it is resumed or the classes are permuted.
	other := nextClass(y)
	h, err := NewGP(x, other, kernel, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, permuted, err := h.Fit(ctx, nil)
	if err != nil || !(math.Abs(permuted.ELBO-res.ELBO) < 1e-8) {
		t.Errorf("other classes: %v, want %v; %v", permuted.ELBO, res.ELBO, err)
	}
	endsAlike(t, g, res)
	for name, f := range map[string]func() error{
		"PSIS":         func() error { _, err := g.PSIS(ctx, nil, post, 0); return err },
		"Objective":    func() error { _, err := g.Objective(); return err },
		"CertifyScale": func() error { _, _, err := g.CertifyScale(ctx, 0.1, 10, 1); return err },
		"Joint":        func() error { _, _, err := post.Joint(x); return err },
		"Rand":         func() error { return post.Rand(mat.NewDense(1, len(y), nil), x, nil) },
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

// TestClassesGPTwo checks that two classes equal BernoulliLogit with the difference of their
// functions.
func TestClassesGPTwo(t *testing.T) {
	x, y := irisPart(t)
	two, sign := make([]float64, len(y)), make([]float64, len(y))
	for i, c := range y {
		two[i], sign[i] = score.Indicator(c == 1), testkit.PlusMinus(c == 1)
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

// TestSparseClassesExact checks that a SparseGP with a Linear kernel equals a GLM, and that two
// classes equal a logit with twice the prior variance.
func TestSparseClassesExact(t *testing.T) {
	testkit.NotShort(t)
	x, y := testkit.Longer(irisClasses, irisPart)(t)
	ctx := context.Background()
	fit := func(y []float64, k Kernel, lik Likelihood) (*SparseGP, *SparseGPPosterior, *Result) {
		g, err := NewSparseGP(x, y, k, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, res, err := g.Fit(ctx, &Solver{Goal: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		return g, q, res
	}
	g, q, res := fit(y, Linear{Scale: 1.5}, Softmax{})
	glm, err := NewGLM(x, y, Softmax{}, &GLMOptions{PriorSD: 1.5})
	if err != nil {
		t.Fatal(err)
	}
	of, want, err := glm.Fit(ctx, &Solver{Goal: 1e-8})
	if err != nil {
		t.Fatal(err)
	}
	if !(math.Abs(res.ELBO-want.ELBO) < 1e-6) || !(res.GapBound < 0.5) || res.Status != Converged {
		t.Errorf("%v, of the GLM %v", res, want)
	}
	if got, want := q.At(x).Probs(), of.At(x).Probs(); !mat.EqualApprox(got, want, 1e-5) {
		t.Error("the GLM predicts otherwise")
	}
	a, err := g.LOO(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	b, err := glm.LOO(ctx, of)
	if err != nil || !(math.Abs(a.ELPD-b.ELPD) < 1e-3) ||
		!(math.Abs(a.Parameters-b.Parameters) < 1e-4) {
		t.Errorf("%v, of the GLM %v; %v", a, b, err)
	}
	two, sign := make([]float64, len(y)), make([]float64, len(y))
	for i, c := range y {
		two[i], sign[i] = score.Indicator(c == 1), testkit.PlusMinus(c == 1)
	}
	_, p, soft := fit(two, SquaredExp{Scale: 1, Length: 2}, Softmax{})
	_, l, logit := fit(sign, SquaredExp{Scale: math.Sqrt2, Length: 2}, BernoulliLogit{})
	if !(math.Abs(soft.ELBO-logit.ELBO) < 1e-6) {
		t.Errorf("two classes: ELBO %v, of the logit %v", soft.ELBO, logit.ELBO)
	}
	if !floats.EqualApprox(p.Prob(nil, 1, x), l.Prob(nil, 1, x), 1e-5) {
		t.Error("two classes: the logit predicts otherwise")
	}
}

// TestSparseClasses compares a SparseGP of classes with the GP. It also saves, loads and resumes
// the fit, permutes the classes, and predicts in parts.
func TestSparseClasses(t *testing.T) {
	x, y := testkit.Longer(irisClasses, irisPart)(t)
	ctx := context.Background()
	kernel := Sum{SquaredExp{Scale: 3, Length: 2}, Constant{Scale: 1}}
	g, err := NewSparseGP(x, y, kernel, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, res, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	dense, err := NewGP(x, y, kernel, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	of, want, err := dense.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The SparseGP has free precisions, but the precisions of the GP are sites.
	if !(res.ELBO > want.ELBO-0.01 && res.ELBO < want.ELBO+0.1) || res.Status != Converged {
		t.Errorf("rank %d: %v, of the GP %v", g.Rank(), res, want)
	}
	p := q.At(x)
	if !mat.EqualApprox(p.Probs(), of.At(x).Probs(), 0.01) {
		t.Error("the GP predicts otherwise")
	}
	var buf bytes.Buffer
	if err := q.Save(&buf); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load[*SparseGPPosterior](&buf)
	if err != nil {
		t.Fatal(err)
	}
	if !mat.Equal(loaded.At(x).Probs(), p.Probs()) {
		t.Error("loaded, it predicts otherwise")
	}
	m, _ := p.Latent(nil, nil)
	one, _ := q.Part(0, x).Latent(nil, nil)
	two, _ := q.Part(1, x).Latent(nil, nil)
	for i := range m {
		if !(math.Abs(m[i]-one[i]-two[i]) < 1e-8) {
			t.Fatalf("score %d is %v, of its parts %v and %v", i, m[i], one[i], two[i])
		}
	}
	other := nextClass(y)
	h, err := NewSparseGP(x, other, kernel, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, permuted, err := h.Fit(ctx, nil)
	if err != nil || !(math.Abs(permuted.ELBO-res.ELBO) < 1e-5) {
		t.Errorf("other classes: %v, want %v; %v", permuted.ELBO, res.ELBO, err)
	}
	endsAlike(t, g, res)
	for name, f := range map[string]func() error{
		"MoveInducing": func() error { _, err := g.MoveInducing(ctx, 1); return err },
		"Update":       func() error { _, err := q.Update(ctx, Rows(x, y)); return err },
		"WithInducing": func() error { _, err := q.WithInducing(q.Inducing()); return err },
		"rows": func() error {
			_, err := NewSparseGPRows(ctx, Rows(x, y), 4, kernel, Softmax{Classes: 3}, nil)
			return err
		},
	} {
		if err := f(); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v", name, err)
		}
	}
	few := &SparseGPOptions{MaxMemory: 1e6}
	if _, err := NewSparseGP(x, y, kernel, Softmax{Classes: 50}, few); !errors.Is(err, ErrMemory) {
		t.Errorf("memory: %v", err)
	}
}

// TestSparseClassesLearn checks that a SparseGP of classes learns the same as the GP of its rows.
// It uses all rows because there are few.
func TestSparseClassesLearn(t *testing.T) {
	testkit.NotShort(t)
	x, y := irisPart(t)
	ctx := context.Background()
	g, err := NewSparseGP(x, y, SquaredExp{}, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g, q, l, err := g.Learn(ctx, nil, nil)
	if err != nil || l.Fit == nil || len(l.Warnings) > 0 {
		t.Fatalf("%v, %v", l, err)
	}
	dense, err := NewGP(x, y, SquaredExp{}, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, of, want, err := dense.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range l.Params {
		if p.Value != want.Params[i].Value || p.Value == 0 {
			t.Errorf("%v, of the GP %v", p, want.Params[i])
		}
	}
	if !(math.Abs(l.Fit.ELBO-want.Fit.ELBO) < 0.1) || !mat.EqualApprox(q.At(x).Probs(),
		of.At(x).Probs(), 0.02) {
		t.Errorf("rank %d: %v, of the GP %v", g.Rank(), l.Fit, want.Fit)
	}
}

// TestSparseClassesLearnSome checks that Learn uses a sample of the rows if there are too many
// for a softmax GP, and that the result reports the sample.
func TestSparseClassesLearnSome(t *testing.T) {
	testkit.NotShort(t)
	ctx := context.Background()
	var xs, ys = mat.NewDense(600, 1, nil), make([]float64, 600)
	for i := range ys {
		xs.Set(i, 0, float64(i)/100)
		ys[i] = math.Floor(math.Mod(float64(i)/100, 3))
	}
	many, err := NewSparseGP(xs, ys, SquaredExp{}, Softmax{}, &SparseGPOptions{Rank: 15})
	if err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithCancel(ctx)
	stop := func(it Iteration) {
		if it.K == 3 {
			cancel()
		}
	}
	model, post, l, err := many.Learn(done, &Solver{Record: stop}, nil)
	if !errors.Is(err, context.Canceled) || post == nil || model.Len() != 600 || l.Fit != nil {
		t.Fatalf("%v, %v", l, err)
	}
	if !strings.Contains(l.String(), "500 of 600 rows") {
		t.Error(l)
	}
}

// TestClassGPLearnBest checks that no scale and length scale near the learned values has a better
// objective by more than the tolerance. The learned kernel must also predict new rows better than
// the initial kernel.
func TestClassGPLearnBest(t *testing.T) {
	t.Parallel()
	x, y := loadIris(t)
	n, _ := x.Dims()
	var train, test []int
	for i := range n {
		if i%3 == 2 {
			test = append(test, i)
		} else {
			train = append(train, i)
		}
	}
	tx, ty := testkit.SelectRows(x, y, train)
	vx, vy := testkit.SelectRows(x, y, test)
	g, err := NewGP(tx, ty, SquaredExp{}, Softmax{Classes: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, post, l, err := g.Learn(context.Background(), nil, nil)
	if err != nil || l.Search.Status != Converged {
		t.Fatal(l, err)
	}
	bits := func(p *GPPosterior) (sum float64) {
		at := p.At(vx)
		for c := range 3 {
			for i, v := range at.Prob(nil, float64(c)) {
				if vy[i] == float64(c) {
					sum -= math.Log2(v) / float64(len(vy))
				}
			}
		}
		return sum
	}
	plain, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if is, was := bits(post), bits(plain); !(is < was) {
		t.Errorf("%v bits a row after learning, %v before", is, was)
	}
	k := SquaredExp{Scale: l.Params[0].Value, Length: l.Params[1].Value}
	for _, f := range testkit.Few([][2]float64{
		{1.3, 1}, {1, 1 / 1.2}, {1 / 1.3, 1}, {1, 1.2}, {1.5, 1.2}, {1 / 1.5, 1 / 1.2},
	}, 2) {
		at := SquaredExp{Scale: k.Scale * f[0], Length: k.Length * f[1]}
		near, err := NewGP(tx, ty, at, Softmax{Classes: 3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, res, err := near.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f := -res.ELBO + l.Objective + l.Fit.ELBO // approximately, because priors are wide
		if f < l.Objective-0.3 {
			t.Errorf("%+v: objective about %v, below the %v of %+v", at, f, l.Objective, k)
		}
	}
}
