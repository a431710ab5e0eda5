package objective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// TestLogLikelihoodBatches checks that a batch is the sum of its terms times N/len(batch), that
// nil stands for all terms, and that the gradient is the gradient of the value.
func TestLogLikelihoodBatches(t *testing.T) {
	s := kit.LogisticData(40, 7, 3)
	z := []float64{0.3, -0.8, 1.1}
	terms := make([]float64, 7)
	for n := range terms {
		terms[n] = s.Lik.LogProb(s.Y[n], floats.Dot(s.X[n], z))
	}
	for name, l := range map[string]LogLikelihood{"Sites": s, "LogLik": kit.AsLogLik(s, true)} {
		if err := l.Validate(); err != nil || l.Len() != 7 {
			t.Errorf("%s: Len is %d, %v", name, l.Len(), err)
		}
		for _, c := range []struct {
			batch []int
			want  float64
		}{
			{nil, floats.Sum(terms)},
			{[]int{0, 1, 2, 3, 4, 5, 6}, floats.Sum(terms)},
			{[]int{4}, 7 * terms[4]},
			{[]int{5, 2, 5}, 7. / 3 * (2*terms[5] + terms[2])},
		} {
			b := l.Batch(c.batch)
			what := fmt.Sprint(name, c.batch)
			testkit.CheckNear(t, what, b.LogProb(z), c.want, 1e-14)
			g := []float64{9, 9, 9}
			if !b.GradLogProb(g, z) || b.Dim() != 3 {
				t.Fatalf("%s: no gradient, or dimension %d", what, b.Dim())
			}
			testkit.CheckClose(t, what+": gradient", g, testkit.NumGrad(b.LogProb, z), 1e-9)
		}
	}
	b := s.Batch([]int{6, 1}).(siteBatch)
	_, x, y, w := b.Site(1)
	if b.Len() != 2 || &x[0] != &s.X[1][0] || y != s.Y[1] || w != 3.5 || b.Likelihood() != s.Lik {
		t.Errorf("site 1 of the batch {6, 1} is %v, %v, %v", x, y, w)
	}
	g := []float64{9, 9, 9}
	if kit.AsLogLik(s, false).Batch(nil).GradLogProb(g, z) || g[0] != 9 {
		t.Error("a gradient that is not known was stored")
	}
	s.Lik = Laplace{}
	if s.Batch(nil).GradLogProb(g, z) || g[0] != 9 {
		t.Error("a gradient of a kink was stored")
	}
}

// TestObjectiveSetupErrors checks that invalid settings are errors at set-up, with the right
// sentinel and a text that names the problem.
func TestObjectiveSetupErrors(t *testing.T) {
	good := func() Sites { return kit.LogisticData(41, 4, 2) }
	ll := kit.AsLogLik(good(), false)
	with := func(change func(*Sites)) Smooth {
		s := good()
		change(&s)
		return Expect(s, nil)
	}
	nan, inf := math.NaN(), math.Inf(1)
	q := NewIsotropic(2, 1)
	h := KLTo(q)
	for _, c := range []struct {
		name string
		o    Objective[Dist]
		d    Divergence
		want error
		say  string
	}{
		{"no Init", Objective[Dist]{F: Expect(ll, nil), H: h}, nil, ErrParam, "Init"},
		{"typed nil Init", Objective[Dist]{F: Expect(ll, nil), H: h, Init: (*Gaussian)(nil)}, nil,
			ErrParam, "Init"},
		{"nil log-likelihood", Objective[Dist]{F: Expect(nil, nil), H: h, Init: q}, nil, ErrEmpty,
			"log-likelihood"},
		{"no terms", Objective[Dist]{F: Expect(LogLik{Dim: 2, LogProb: ll.LogProb}, nil), H: h,
			Init: q}, nil, ErrEmpty, "N = 0"},
		{"negative N", Objective[Dist]{F: Expect(LogLik{N: -1, Dim: 2, LogProb: ll.LogProb}, nil),
			H: h, Init: q}, nil, ErrEmpty, "-1"},
		{"no LogProb", Objective[Dist]{F: Expect(LogLik{N: 3, Dim: 2}, nil), H: h, Init: q}, nil,
			ErrParam, "LogProb"},
		{"no Dim", Objective[Dist]{F: Expect(LogLik{N: 3, LogProb: ll.LogProb}, nil), H: h,
			Init: q}, nil, ErrEmpty, "Dim"},
		{"other dimension", Objective[Dist]{F: Expect(ll, nil), H: h, Init: NewIsotropic(3, 1)},
			nil, ErrShape, "3"},
		{"prior of other dimension",
			Objective[Dist]{F: Expect(ll, nil), H: KLTo(NewIsotropic(3, 1)), Init: q}, nil,
			ErrShape, "3"},
		{"prior of a Point",
			Objective[Dist]{F: lineFit{{1, 1}}, H: h, Init: NewPoint([]float64{1, 1})}, Euclidean(),
			ErrShape, "Point"},
		{"no rows", Objective[Dist]{F: with(func(s *Sites) { s.Y = nil }), H: h, Init: q}, nil,
			ErrEmpty, "one row"},
		{"no columns", Objective[Dist]{F: with(func(s *Sites) { s.X[0] = nil }), H: h, Init: q},
			nil, ErrEmpty, "column"},
		{"rows and labels", Objective[Dist]{F: with(func(s *Sites) {
			s.Y = s.Y[:3]
		}), H: h, Init: q}, nil, ErrShape, "4 rows, but 3 responses"},
		{"ragged", Objective[Dist]{F: with(func(s *Sites) { s.X[2] = s.X[2][:1] }), H: h, Init: q},
			nil, ErrShape, "row 2"},
		{"NaN in X", Objective[Dist]{F: with(func(s *Sites) { s.X[3][1] = nan }), H: h, Init: q},
			nil, ErrNotFinite, "row 3, column 1"},
		{"Inf in Y", Objective[Dist]{F: with(func(s *Sites) { s.Y[1] = inf }), H: h, Init: q}, nil,
			ErrNotFinite, "row 1"},
		{"label", Objective[Dist]{F: with(func(s *Sites) { s.Y[2] = 0 }), H: h, Init: q}, nil,
			ErrLabel, "row 2"},
		{"no likelihood", Objective[Dist]{F: with(func(s *Sites) { s.Lik = nil }), H: h, Init: q},
			nil, ErrParam, "Likelihood"},
		{"likelihood's parameter", Objective[Dist]{F: with(func(s *Sites) {
			s.Lik = GaussianNoise{Var: -1}
		}), H: h, Init: q}, nil, ErrParam, "Var"},
		{"L1 weight", Objective[Dist]{F: lineFit{{1}}, H: L1(-1, 0), Init: NewPoint([]float64{0})},
			Euclidean(), ErrParam, "weight"},
		{"L1 weight NaN",
			Objective[Dist]{F: lineFit{{1}}, H: L1(nan, 0), Init: NewPoint([]float64{0})},
			Euclidean(), ErrParam, "weight"},
		{"L1 count", Objective[Dist]{F: lineFit{{1}}, H: L1(1, 2), Init: NewPoint([]float64{0})},
			Euclidean(), ErrShape, "count"},
		{"no potential", Objective[Dist]{F: lineFit{{1}}, Init: NewPoint([]float64{0})},
			Bregman(nil), ErrParam, "Potential"},
		{"Exact with LogLik", Objective[Dist]{F: Expect(ll, Exact()), H: h, Init: q}, nil,
			ErrNoEstimator, "ScoreFunction"},
		{"GaussHermite with LogLik", Objective[Dist]{F: Expect(ll, GaussHermite(0)), H: h, Init: q},
			nil, ErrNoEstimator, "Sites"},
		{"GaussHermite nodes", Objective[Dist]{F: with(func(*Sites) {}), H: h, Init: q}, nil, nil,
			""},
		{"negative nodes",
			Objective[Dist]{F: Expect(good(), GaussHermite(-1)), H: h, Init: q}, nil,
			ErrParam, "nodes"},
		{"Pathwise without gradient", Objective[Dist]{F: Expect(ll, Pathwise(0)), H: h, Init: q},
			nil, ErrNoEstimator, "LogLik.Grad"},
		{"Pathwise with a kink",
			Objective[Dist]{F: Expect(Sites{X: good().X, Y: good().Y, Lik: Laplace{}}, Pathwise(0)),
				H: h, Init: q}, nil, ErrNoEstimator, "Laplace"},
		{"Pathwise samples",
			Objective[Dist]{F: Expect(good(), Pathwise(-1)), H: h, Init: q}, nil, ErrParam,
			"samples"},
		{"one sample", Objective[Dist]{F: Expect(ll, ScoreFunction(1)), H: h, Init: q},
			nil, ErrParam, "samples"},
		{"negative samples",
			Objective[Dist]{F: Expect(ll, ScoreFunctionPlain(-1)), H: h, Init: q}, nil, ErrParam,
			"samples"},
		{"Exact at a Point",
			Objective[Dist]{F: Expect(good(), nil), Init: NewPoint([]float64{0, 0})}, Euclidean(),
			ErrNoEstimator, "Point"},
		{"score function at a Point",
			Objective[Dist]{F: Expect(ll, nil), Init: NewPoint([]float64{0, 0})}, Euclidean(),
			ErrNoEstimator, "Point"},
		{"Pathwise at a Point",
			Objective[Dist]{F: Expect(good(), Pathwise(0)), Init: NewPoint([]float64{0, 0})},
			Euclidean(), ErrNoEstimator, "Point"},
	} {
		_, err := c.o.NewStepper(context.Background(), nil, c.d)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		} else if err != nil &&
			(!strings.Contains(err.Error(), c.say) || !strings.HasPrefix(err.Error(), "pgsvi: ")) {
			t.Errorf("%s: error %q lacks %q", c.name, err, c.say)
		}
	}
}

// TestObjectiveOfOneType checks that an Objective has a single type of distribution. It rejects a
// missing Init and states of another type.
func TestObjectiveOfOneType(t *testing.T) {
	ctx, q := context.Background(), NewIsotropic(1, 1)
	o := Objective[*Gaussian]{F: Expect(kit.LogisticData(41, 4, 1), nil), H: KLTo(q)}
	if q, res, err := o.Fit(ctx, nil); q != nil || res != nil || !errors.Is(err, ErrParam) {
		t.Errorf("nil Init: %v, %v, %v", q, res, err)
	}
	o.Init = q
	fitted, res, err := o.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := o.Posterior(res.Stepper)
	if err != nil {
		t.Fatal(err)
	}
	testkit.CheckClose(t, "posterior", momentsOf(again), momentsOf(fitted), 0)
	if _, err := (Objective[*Point]{}).Posterior(res.Stepper); !errors.Is(err, ErrParam) ||
		!strings.Contains(err.Error(), "*pgsvi.Gaussian") {
		t.Errorf("a state over a Gaussian for one over a Point: %v", err)
	}
}

// TestKLToCopies checks that KLTo copies the prior.
func TestKLToCopies(t *testing.T) {
	p := NewIsotropicMeanField(1, 2)
	h := KLTo(p)
	q := NewIsotropic(1, 1)
	want := h.Value(q)
	if err := p.SetMeanParams([]float64{5, 26}); err != nil {
		t.Fatal(err)
	}
	testkit.CheckNear(t, "KLTo", h.Value(q), want, 0)
	testkit.CheckNear(t, "KL", want, 0.5*(0.5-1+math.Log(2)), 1e-15)
	z := Zero()
	if g := z.Grad([]float64{1, 2}, q); z.Value(q) != 0 || g[0] != 0 || g[1] != 0 {
		t.Error("Zero is not zero")
	}
}

// TestExpectDefault checks that a nil estimator is Exact for Sites and ScoreFunction otherwise.
func TestExpectDefault(t *testing.T) {
	s := kit.LogisticData(42, 3, 2)
	q := NewIsotropic(2, 1)
	for _, c := range []struct {
		l    LogLikelihood
		e    Estimator
		same bool
	}{{s, Exact(), true}, {kit.AsLogLik(s, true), ScoreFunction(0), true},
		{s, ScoreFunction(0), false}} {
		a, b := make([]float64, 5), make([]float64, 5)
		f := Expect(c.l, nil)
		v, err := f.Grad(context.Background(), &Env{Rng: testkit.Rand(1)}, a, q, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.e.Grad(context.Background(), &Env{Rng: testkit.Rand(1)}, b, nil, q,
			c.l.Batch(nil))
		if err != nil {
			t.Fatal(err)
		}
		floats.Scale(-1, b)
		if same := slices.Equal(a, b) && v == -w; same != c.same {
			t.Errorf("Expect(%T, nil) equal to %T: %v, want %v", c.l, c.e, same, c.same)
		}
	}
}

// TestMiniBatchesAverage checks that the values and gradients of the mini-batches of a pass,
// weighted by their sizes, average to the value and gradient of all terms. If the batches share
// draws, this also holds for the noisy estimators.
func TestMiniBatchesAverage(t *testing.T) {
	s := kit.LogisticData(43, 11, 3)
	for name, f := range map[string]Smooth{
		"Exact":            Expect(s, Exact()),
		"GaussHermite":     Expect(s, GaussHermite(0)),
		"Pathwise":         Expect(s, Pathwise(5)),
		"Pathwise, LogLik": Expect(kit.AsLogLik(s, true), Pathwise(5)),
		"ScoreFunction":    Expect(kit.AsLogLik(s, false), ScoreFunction(5)),
		"NoBaseline":       Expect(s, ScoreFunctionPlain(5)),
		"user":             lineFit(s.X),
	} {
		for _, fam := range testFamilies() {
			if fam.dim != 3 {
				continue
			}
			var q Dist = fam.rand(testkit.Rand(44))
			if name == "user" {
				q = NewPoint([]float64{1, 2, 3})
			}
			grad := func(batch []int) ([]float64, float64) {
				g := make([]float64, q.NumParams())
				v, err := f.Grad(context.Background(), &Env{Rng: testkit.Rand(45)}, g, q, batch)
				if err != nil {
					t.Fatal(name, err)
				}
				return g, v
			}
			want, value := grad(nil)
			sum, total, seen := make([]float64, q.NumParams()), 0.0, 0
			for batch := range (Reshuffle()).Batches(11, 4, testkit.Rand(46)) {
				g, v := grad(batch)
				w := float64(len(batch)) / 11
				floats.AddScaled(sum, w, g)
				total += w * v
				if seen += len(batch); seen == 11 {
					break
				}
			}
			testkit.CheckClose(t, name+", "+fam.name, sum, want, 1e-12)
			testkit.CheckNear(t, name+", "+fam.name+": value", total, value, 1e-12)
		}
	}
}

// TestExpectValue checks f over all terms. It must be exact for Sites under every estimator, and
// within 4 standard errors for a LogLik. The reported standard errors must be correct.
func TestExpectValue(t *testing.T) {
	s := kit.LogisticData(47, 9, 2)
	q := testkit.Must(NewGaussian([]float64{0.5, -0.5}, testkit.RandomCov(testkit.Rand(48), 2)))
	g := make([]float64, 5)
	exact, err := Expect(s, nil).Grad(context.Background(), nil, g, q, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, stderr, err := Expect(s, ScoreFunction(0)).Value(context.Background(),
		&Env{Rng: testkit.Rand(1)},
		q)
	if err != nil || stderr > 1e-9 {
		t.Errorf("Sites: standard error %v, %v", stderr, err)
	}
	testkit.CheckNear(t, "Sites", v, exact, 1e-13)
	var chi2, n float64
	for seed := range uint64(60) {
		v, stderr, err := Expect(kit.AsLogLik(s, false), nil).Value(context.Background(),
			&Env{Rng: testkit.Rand(seed)}, q)
		if err != nil {
			t.Fatal(err)
		}
		z := (v - exact) / stderr
		chi2 += z * z
		n++
	}
	// χ²(60) is within 60 ± 4√120.
	if !(math.Abs(chi2-n) < 4*math.Sqrt(2*n)) {
		t.Errorf("standardized errors have mean square %v, want 1", chi2/n)
	}
}

// TestExpectNotFinite checks the error for a log-likelihood that is not finite under q.
func TestExpectNotFinite(t *testing.T) {
	half := LogLik{N: 1, Dim: 1,
		LogProb: func(_ int, z []float64) float64 { return math.Log(z[0]) }}
	_, err := Expect(half, nil).Grad(context.Background(), &Env{Rng: testkit.Rand(1)},
		make([]float64, 2), NewIsotropic(1, 1), nil)
	if !errors.Is(err, ErrNotFinite) {
		t.Errorf("LogLik: %v", err)
	}
	s := Sites{X: [][]float64{{1}}, Y: []float64{1}, Lik: halfLine{}}
	for _, e := range []Estimator{Exact(), GaussHermite(0), ScoreFunction(0)} {
		_, err := Expect(s, e).Grad(context.Background(), &Env{Rng: testkit.Rand(1)},
			make([]float64, 2), NewIsotropic(1, 1), nil)
		if !errors.Is(err, ErrNotFinite) {
			t.Errorf("Sites with %T: %v", e, err)
		}
	}
}

// halfLine is a likelihood that is zero for η ≤ 0.
type halfLine struct{}

func (halfLine) LogProb(_, eta float64) float64 {
	if eta <= 0 {
		return math.Inf(-1)
	}
	return -eta
}

// counts is a ConjugateModel without local variables. It has x_n ~ Poisson(z) and q(z) from the
// Gamma family with T(z) = (log z, z).
type counts struct {
	x    []float64
	fail map[int]error // errors of Local by term
}

func (c counts) Len() int { return len(c.x) }

func (c counts) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	if err := c.fail[n]; err != nil {
		return 0, err
	}
	dst[0] += weight * c.x[n]
	dst[1] -= weight
	lg, _ := math.Lgamma(c.x[n] + 1)
	return c.x[n]*mu[0] - mu[1] - lg, nil
}

// newCounts returns 40 counts and the Gamma prior.
func newCounts(t testing.TB) (counts, *Exp) {
	t.Helper()
	var c counts
	for n := range 40 {
		c.x = append(c.x, float64((n*n+3*n)%7))
	}
	prior, err := NewGamma(2, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	return c, prior
}

func TestConjugateExact(t *testing.T) {
	c, prior := newCounts(t)
	sum := floats.Sum(c.x)
	for _, coords := range []Coordinates{MeanParams, Natural} {
		o := Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior.In(coords)}
		q, res, err := o.Fit(context.Background(), nil)
		if err != nil {
			t.Fatalf("%v: %v", coords, err)
		}
		// The posterior is Gamma(2 + Σx, 0.5 + N), and the ELBO is the evidence.
		a, b := 2+sum, 0.5+40
		lg := func(x float64) float64 { l, _ := math.Lgamma(x); return l }
		evidence := 2*math.Log(0.5) - lg(2) - a*math.Log(b) + lg(a)
		for _, x := range c.x {
			evidence -= lg(x + 1)
		}
		if math.Abs(res.ELBO-evidence) > 1e-9 {
			t.Errorf("%v: ELBO %v, evidence %v", coords, res.ELBO, evidence)
		}
		if mean := q.Natural(nil); coords == MeanParams &&
			(math.Abs(mean[0]-prior.Natural(nil)[0]-sum) > 1e-9 || res.K != 1 && res.K > 3) {
			t.Errorf("natural parameters %v after %d steps", mean, res.K)
		}
		if coords == MeanParams && (res.Status != Converged || res.Scope != OverBlock ||
			!(res.GapBound < 1e-9)) {
			t.Errorf("%v, gap %v %v", res.Status, res.GapBound, res.Scope)
		}
	}
}

// TestConjugateFractions checks that a step with the batch B and the fraction ρ is η ← (1−ρ)η +
// ρ(η_p + N/M Σ_B t), and that its GapBound is KL(q‖q*).
func TestConjugateFractions(t *testing.T) {
	c, prior := newCounts(t)
	o := Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior}
	ctx := context.Background()
	for _, step := range []Schedule{FractionStep(3, 0.6), nil} {
		eta, etaP := prior.Natural(nil), prior.Natural(nil)
		rho := func(k int) float64 { return math.Pow(float64(3+k), -0.6) }
		if step == nil { // the schedule of the Stepper
			rho = func(k int) float64 { return math.Pow(float64(10+k), -0.7) }
		}
		s := &Solver{StepSize: step, BatchSize: 6, Sampler: InOrder(), MaxPasses: 3, EvalEvery: 1,
			Converger: Never()}
		k, at := 0, 0
		s.Record = func(it Iteration) {
			batch := c.x[at:min(40, at+6)]
			at = (at + len(batch)) % 40
			w := 40 / float64(len(batch))
			target := []float64{etaP[0] + w*floats.Sum(batch), etaP[1] - 40}
			for i, x := range target {
				eta[i] += rho(k) * (x - eta[i])
			}
			q, err := o.Posterior(it.State)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range q.Natural(nil) {
				if math.Abs(x-eta[i]) > 1e-10*(1+math.Abs(x)) {
					t.Errorf("step %d: natural parameter %d is %v, want %v", k, i, x, eta[i])
				}
			}
			best := prior.Clone().(*Exp)
			if err := best.SetNatural(
				[]float64{etaP[0] + floats.Sum(c.x), etaP[1] - 40}); err != nil {
				t.Fatal(err)
			}
			if want := q.KL(best); it.Scope != OverBlock ||
				math.Abs(it.GapBound-want) > 1e-9*(1+want) {
				t.Errorf("step %d: bound %v %v, want %v", k, it.GapBound, it.Scope, want)
			}
			if want := rho(k) / (1 - rho(k)); math.Abs(it.Beta-want) > 1e-12*want {
				t.Errorf("step %d: step size %v, want %v", k, it.Beta, want)
			}
			k++
		}
		if _, err := s.Run(ctx, o); err != nil || k != 21 {
			t.Fatalf("%v after %d steps", err, k)
		}
	}
}

func TestConjugateErrors(t *testing.T) {
	c, prior := newCounts(t)
	failing := errors.New("out of tea")
	c.fail = map[int]error{17: failing, 23: errors.New("later")}
	var none *counts
	for _, e := range []struct {
		name string
		o    Objective[*Exp]
		want error
		say  string
	}{
		{"nil", Objective[*Exp]{F: Conjugate(nil), Init: prior}, ErrParam,
			"ConjugateModel of Conjugate is nil"},
		{"nil pointer", Objective[*Exp]{F: Conjugate(none), Init: prior}, ErrParam,
			"ConjugateModel of Conjugate is nil"},
		{"empty", Objective[*Exp]{F: Conjugate(counts{}), Init: prior}, ErrEmpty, "0 terms"},
		{"failing", Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior}, failing,
			"term 17"},
		{"not finite", Objective[*Exp]{F: Conjugate(counts{x: []float64{1, math.NaN()}}),
			H: KLTo(prior), Init: prior}, ErrNotFinite, "term 1"},
	} {
		for _, workers := range []int{1, 4} {
			_, _, err := e.o.Fit(context.Background(), &Solver{Workers: workers})
			if !errors.Is(err, e.want) || !strings.Contains(err.Error(), e.say) ||
				strings.Count(err.Error(), "pgsvi: ") != 1 {
				t.Errorf("%s: %v, want %q, %v", e.name, err, e.say, e.want)
			}
		}
	}
	point := Objective[*Point]{F: Conjugate(c), Init: NewPoint([]float64{1, 2})}
	if _, _, err := point.Fit(context.Background(), nil); !errors.Is(err, ErrShape) {
		t.Errorf("a point: %v", err)
	}
	c.fail = nil
	ctx, cancel := context.WithCancel(context.Background())
	o := Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior}
	s := &Solver{BatchSize: 4, MaxPasses: 50, Record: func(it Iteration) {
		if it.K == 7 {
			cancel()
		}
	}}
	if _, res, err := o.Fit(ctx, s); !errors.Is(err, context.Canceled) || res.Status != Canceled ||
		res.K != 7 {
		t.Errorf("canceled: %v, %v after %d", err, res.Status, res.K)
	}
}

// TestConjugateSameBits checks that the bits do not depend on the number of workers, nor on
// saving and loading the run.
func TestConjugateSameBits(t *testing.T) {
	c, prior := newCounts(t)
	c.x = slices.Repeat(c.x, 10)
	for n := range c.x {
		c.x[n] = math.Floor(c.x[n] * (1 + 0.01*float64(n)))
	}
	o := Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior}
	ctx := context.Background()
	var want []float64
	for _, workers := range []int{1, 2, 7} {
		for _, resumed := range []bool{false, true} {
			s := &Solver{BatchSize: 90, MaxPasses: 4, Workers: workers, Converger: Never()}
			var res *Result
			var err error
			if resumed {
				half := *s
				half.MaxIter = 7
				if res, err = half.Run(ctx, o); err != nil {
					t.Fatal(err)
				}
				var file bytes.Buffer
				if err := res.Save(&file); err != nil {
					t.Fatal(err)
				}
				if res, err = s.LoadResult(ctx, &file, o); err != nil {
					t.Fatal(err)
				}
				res, err = s.Resume(ctx, res)
			} else {
				res, err = s.Run(ctx, o)
			}
			if err != nil {
				t.Fatal(err)
			}
			q, err := o.Posterior(res.Stepper)
			if err != nil {
				t.Fatal(err)
			}
			got := append(q.Natural(nil), res.ELBO, res.GapBound)
			if want == nil {
				want = got
			} else if !slices.Equal(got, want) {
				t.Errorf("%d workers, resumed %v: %v, want %v", workers, resumed, got, want)
			}
		}
	}
}

// TestConjugateAllocs checks that after the first gradient no allocation grows with the number of
// terms.
func TestConjugateAllocs(t *testing.T) {
	if testkit.Race {
		t.Skip("counts of allocations are others with the race detector")
	}
	c, prior := newCounts(t)
	c.x = slices.Repeat(c.x, 50)
	f, dst := Conjugate(c), make([]float64, 2)
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := f.Grad(ctx, nil, dst, prior, nil); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("%v allocations", n)
	}
}

func TestFractionStep(t *testing.T) {
	for _, c := range []struct {
		s    Schedule
		k    int
		want float64
	}{
		{FractionStep(0, 0), 0, 1 / (math.Pow(10, 0.7) - 1)},
		{FractionStep(0, 0), 90, 1 / (math.Pow(100, 0.7) - 1)},
		{FractionStep(1, 1), 0, math.Inf(1)},
		{FractionStep(1, 1), 3, 1.0 / 3},
		{FractionStep(64, 0.5), 36, 1.0 / 9},
	} {
		if got := c.s.StepSize(c.k); !(got == c.want || math.Abs(got-c.want) <= 1e-14*c.want) {
			t.Errorf("%+v at %d: %v, want %v", c.s, c.k, got, c.want)
		}
		if err := c.s.(interface{ Validate() error }).Validate(); err != nil {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
	for _, s := range []Schedule{FractionStep(0.5, 0), FractionStep(-1, 0),
		FractionStep(math.Inf(1), 0), FractionStep(math.NaN(), 0), FractionStep(0, -0.1),
		FractionStep(0, 1.1), FractionStep(0, math.NaN())} {
		if err := s.(interface{ Validate() error }).Validate(); !errors.Is(err, ErrParam) {
			t.Errorf("%+v: %v", s, err)
		}
		_, prior := newCounts(t)
		o := Objective[*Exp]{H: KLTo(prior), Init: prior}
		if _, _, err := o.Fit(context.Background(), &Solver{StepSize: s}); !errors.Is(err,
			ErrParam) {
			t.Errorf("%+v in a Solver: %v", s, err)
		}
	}
}

// TestConjugateCertificate checks that a Certificate does not depend on the evaluations of the
// run. It must also work with a random start. Since f is concave in μ, no step of coordinate
// ascent violates the bounds.
func TestConjugateCertificate(t *testing.T) {
	x, _ := kit.LoadIris(t)
	m, err := NewMixture(x, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	var numbers [2]string
	for i, every := range []int{1, -1} {
		for _, batch := range []int{0, 50} {
			c := &Certificate{}
			s := &Solver{StepSize: ConstantStep(0.5), BatchSize: batch, MaxPasses: 4,
				EvalEvery: every, Record: c.Record, Converger: Never()}
			if _, err := s.Run(context.Background(), m); err != nil || c.Err() != nil {
				t.Fatal(err, c.Err())
			}
			if batch == 0 && (c.Steps != 4 || c.Violations != 0 || c.L > 1e-9 || c.RelL > 1e-9) {
				t.Errorf("%d steps, %d violations, L %v, relative %v", c.Steps, c.Violations, c.L,
					c.RelL)
			}
			numbers[i] += fmt.Sprintln(c.Steps, c.Violations, c.Alpha, c.L, c.RelL, c.MinGradMap2,
				c.Sigma2, c.TotalD)
		}
	}
	if numbers[0] != numbers[1] {
		t.Errorf("with evaluations\n%s, without\n%s", numbers[0], numbers[1])
	}
}

// TestObjectiveMixed checks that exact steps reach the optimum of the GLM under wide priors, with
// few rows and nearly equal columns. Steps to the targets alone would take hundreds or thousands
// of passes.
func TestObjectiveMixed(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(31, 2))
	for _, lik := range []Likelihood{Poisson{}, BernoulliProbit{}, BernoulliLogit{},
		Exponential{}} {
		for n := 1; n <= 4; n++ {
			const d = 3
			x, y := mat.NewDense(n, d, nil), make([]float64, n)
			for i := range n {
				for j := range d {
					x.Set(i, j, rng.NormFloat64())
				}
				x.Set(i, 2, x.At(i, 1)*(1+1e-6*rng.NormFloat64()))
				y[i] = float64(1 + i)
				if kit.FactsOf(lik).Support == SignLabels {
					y[i] = float64(1 - 2*(i%2))
				}
			}
			g := kit.MustGLM(t, x, y, lik, GLMOptions{PriorSD: 30})
			_, want, err := g.Fit(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			o, err := g.Objective()
			if err != nil {
				t.Fatal(err)
			}
			_, res, err := o.Fit(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%T, %d rows: %v after %v passes", lik, n, res.Status, res.Passes)
			if res.Status != Converged || res.Passes > 60 ||
				math.Abs(res.ELBO-want.ELBO) > 1e-8*(1+math.Abs(want.ELBO)) {
				t.Errorf("%T, %d rows: %v after %v passes at ELBO %v, gap %v; the GLM has %v", lik,
					n, res.Status, res.Passes, res.ELBO, res.Gap, want.ELBO)
			}
		}
	}
}

// TestMixtureResume checks that a run that is saved and loaded continues with the same bits, for
// any start.
func TestMixtureResume(t *testing.T) {
	x, _ := kit.LoadIris(t)
	m, err := NewMixture(x, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	kit.SameResumed(t, m, 3, 3)
}

// TestMixtureLocal checks that the gradient that Local adds is the gradient of its value.
func TestMixtureLocal(t *testing.T) {
	x, _ := kit.LoadIris(t)
	m, err := NewMixture(x, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := kit.Reached[*Exp](st)
	mu := q.MeanParams(nil)
	g := make([]float64, len(mu))
	if _, err := m.Local(g, mu, 77, 2); err != nil {
		t.Fatal(err)
	}
	kit.CheckLocalGrad(t, m, g, mu, 77, 2)
}
