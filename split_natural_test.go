package pgsvi

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestNaturalPriorIsKLTo checks that NaturalPrior of the natural parameters of a distribution is KLTo
// minus A(η_p): values, gradients, and the closed step of every row of the table of Prox.
func TestNaturalPriorIsKLTo(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	full, diagonal := randomGaussian(rng, 3, MeanParams), randomMeanField(rng, 3, MeanParams)
	for _, c := range []struct {
		prior, q ExpFamily
		d        Divergence
	}{
		{full, randomGaussian(rng, 3, MeanParams), KL()},
		{full, randomGaussian(rng, 3, MeanCov), KL()},
		{full, randomGaussian(rng, 3, Cholesky), Euclidean()},
		{full, randomGaussian(rng, 3, LogCholesky), Euclidean()},
		{full, randomGaussian(rng, 3, Natural), ReverseKL()},
		{diagonal, randomMeanField(rng, 3, MeanParams), KL()},
		{diagonal, randomMeanField(rng, 3, MeanCov), KL()},
		{diagonal, randomMeanField(rng, 3, Cholesky), Euclidean()},
		{must(NewGamma(2, 3)), must(NewGamma(1, 0.7)), KL()},
		{must(NewDirichlet([]float64{1, 2, 3})), must(NewDirichlet([]float64{2, 2, 0.4})), KL()},
	} {
		kl, natural := KLTo(c.prior), NaturalPrior(c.prior.Natural(nil))
		if err := natural.Check(c.q); err != nil {
			t.Fatal(err)
		}
		want := kl.Value(c.q) - c.prior.LogPartition()
		if v := natural.Value(c.q); !(math.Abs(v-want) < 1e-10*(1+math.Abs(want))) {
			t.Errorf("%s: value %v, want %v", distName(c.q), v, want)
		}
		g, gradient := natural.Grad(nil, c.q), kl.Grad(nil, c.q)
		if !floats.EqualApprox(g, gradient, 1e-9*(1+floats.Norm(gradient, 2))) {
			t.Errorf("%s: gradient %v, want %v", distName(c.q), g, gradient)
		}
		for i := range g {
			g[i] = 0.01 * rng.NormFloat64()
		}
		for _, beta := range []float64{0.3, 1000, math.Inf(1)} {
			a, b := c.q.Clone(), c.q.Clone()
			p := Prox{Grad: g, H: kl, D: c.d, From: c.q, Beta: beta}
			known, err := p.ask(a)
			p.H = natural
			also, err2 := p.ask(b)
			if known != also || (err == nil) != (err2 == nil) ||
				!floats.EqualApprox(a.Params(nil), b.Params(nil), 1e-8) {
				t.Errorf("%s in %v, β = %v: %v %v %v, want %v %v %v", distName(c.q),
					c.q.Coordinates(), beta, also, err2, b.Params(nil), known, err, a.Params(nil))
			}
		}
	}
}

// TestNaturalPriorFit checks that the Stepper chooses the same steps for NaturalPrior as for KLTo, on
// all rows and on mini-batches, and reports the same gaps and bounds.
func TestNaturalPriorFit(t *testing.T) {
	t.Parallel()
	f := Expect(logisticData(1, 60, 4), nil)
	mixture := must(NewMixture(drawClusters(), 2, nil))
	same := func(name string, a, b *Result, offset float64) {
		t.Helper()
		near := func(x, y float64) bool { return x == y || math.Abs(x-y) < 1e-6*(1+math.Abs(x)) }
		if a.Status != b.Status || a.Passes != b.Passes || !near(a.ELBO, b.ELBO+offset) ||
			!near(a.GapBound, b.GapBound) || b.Gap > 2*a.Gap+1e-9 {
			t.Errorf("%s: %v (%v), want %v (%v)", name, b, b.GapBound, a, a.GapBound)
		}
	}
	for _, q := range []*Gaussian{NewIsotropic(4, 2), NewIsotropicMeanField(4, 2),
		NewIsotropic(4, 2).In(MeanCov), NewIsotropicMeanField(4, 2).In(MeanCov)} {
		for _, s := range []Solver{{}, {BatchSize: 12}, {StepSize: ConstantStep(1)}} {
			one, two := s, s
			a := solve(t, one, Objective[*Gaussian]{F: f, H: KLTo(q), Init: q})
			b := solve(t, two, Objective[*Gaussian]{F: f, H: NaturalPrior(q.Natural(nil)), Init: q})
			same(distName(q)+" in "+q.Coordinates().String(), a, b, -q.LogPartition())
		}
	}
	prior := mixture.prior
	a := solve(t, Solver{}, problemModel{problem{F: Conjugate(mixture), H: KLTo(prior), Init: prior}})
	b := solve(t, Solver{}, problemModel{problem{F: Conjugate(mixture),
		H: NaturalPrior(prior.Natural(nil)), Init: prior}})
	same("mixture", a, b, -prior.LogPartition())
	if !(a.GapBound < 1e-3) {
		t.Errorf("the bound of the mixture is %v", a.GapBound)
	}
}

// problemModel is a problem as a Model.
type problemModel struct{ problem }

func (m problemModel) NewStepper(_ context.Context, _ *Env, d Divergence) (Stepper, error) {
	return m.newStepper(d)
}

// drawClusters returns 40 points around two centers.
func drawClusters() *mat.Dense {
	rng := rand.New(rand.NewPCG(3, 3))
	x := mat.NewDense(40, 1, nil)
	for i := range 40 {
		x.Set(i, 0, float64(6*(i%2))+rng.NormFloat64())
	}
	return x
}

// TestNaturalPriorWalk fits a random walk, whose precision is singular, to noisy values. The optimum
// is known: precision P + I/σ² and mean (P + I/σ²)⁻¹y/σ².
func TestNaturalPriorWalk(t *testing.T) {
	t.Parallel()
	const n, noise, drift = 20, 0.5, 0.3
	rng := rand.New(rand.NewPCG(4, 4))
	eta := make([]float64, n+n*(n+1)/2)
	at := func(i, j int) *float64 { return &eta[n+i*(i+1)/2+j] }
	for i := 1; i < n; i++ { // −½(z_i − z_{i−1})²/drift²
		*at(i, i) -= 0.5 / (drift * drift)
		*at(i-1, i-1) -= 0.5 / (drift * drift)
		*at(i, i-1) += 1 / (drift * drift)
	}
	s := Sites{Lik: GaussianNoise{Var: noise * noise}}
	precision, pull := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for i := range n {
		x := make([]float64, n)
		x[i] = 1
		s.X, s.Y = append(s.X, x), append(s.Y, rng.NormFloat64())
		for j := range i {
			precision.SetSym(i, j, -*at(i, j))
		}
		precision.SetSym(i, i, -2**at(i, i)+1/(noise*noise))
		pull.SetVec(i, s.Y[i]/(noise*noise))
	}
	var want mat.VecDense
	if err := want.SolveVec(precision, pull); err != nil {
		t.Fatal(err)
	}
	for _, q := range []*Gaussian{NewIsotropic(n, 1), NewIsotropic(n, 1).In(MeanCov),
		NewIsotropic(n, 1).In(Cholesky)} {
		o := Objective[*Gaussian]{F: Expect(s, nil), H: NaturalPrior(eta), Init: q}
		got, res, err := o.Fit(context.Background(), nil)
		if err != nil || res.Status != Converged {
			t.Errorf("%v: %v, %v", q.Coordinates(), res, err)
			continue
		}
		if e := floats.Distance(got.Mean(nil), want.RawVector().Data, 2); !(e < 1e-3) {
			t.Errorf("%v: the mean is off by %v", q.Coordinates(), e)
		}
		if c := q.Coordinates(); c == MeanParams && !(res.Passes <= 4) {
			t.Errorf("%v passes to the closed minimum", res.Passes)
		}
		if _, err := o.PSIS(context.Background(), nil, got, 100); !errors.Is(err, ErrParam) {
			t.Errorf("PSIS under a prior without an integral: %v", err)
		}
	}
	if err := NaturalPrior([]float64{1}).Check(NewIsotropic(2, 1)); !errors.Is(err, ErrShape) {
		t.Errorf("one natural parameter for five: %v", err)
	}
	if err := NaturalPrior([]float64{1, math.NaN()}).Check(NewIsotropic(1, 1)); !errors.Is(err,
		ErrNotFinite) {
		t.Errorf("NaN: %v", err)
	}
	if err := NaturalPrior(nil).Check(NewPoint([]float64{1})); !errors.Is(err, ErrShape) {
		t.Errorf("a point: %v", err)
	}
}

// TestLaplaceValue compares LaplacePrior with an integral over a grid.
func TestLaplaceValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ m, s, mean, b float64 }{
		{0, 1, 0, 1}, {3, 0.2, 1, 2}, {-1, 5, 0.5, 0.1}, {2, 1e-3, 2, 3}, {100, 0.1, 0, 1},
	} {
		q := must(NewMeanField([]float64{c.m}, []float64{c.s * c.s}))
		h := LaplacePrior([]float64{c.mean}, c.b)
		const step = 1e-4
		var want float64
		for u := -12.0; u <= 12; u += step {
			z := c.m + c.s*u
			p := math.Exp(-u*u/2) / math.Sqrt(2*math.Pi)
			want += step * p * (q.LogProb([]float64{z}) + math.Abs(z-c.mean)/c.b +
				math.Log(2*c.b))
		}
		if v := h.Value(q); !(math.Abs(v-want) < 1e-6*(1+math.Abs(want))) || !(v >= 0) {
			t.Errorf("%+v: %v, want %v", c, v, want)
		}
	}
	for _, c := range []struct {
		h    Convex
		want error
	}{
		{LaplacePrior(nil), ErrShape}, {LaplacePrior(nil, 1, 1), ErrShape},
		{LaplacePrior([]float64{1}, 1), ErrShape}, {LaplacePrior(nil, 0), ErrParam},
		{LaplacePrior(nil, math.Inf(1)), ErrParam}, {LaplacePrior(nil, math.NaN()), ErrParam},
		{LaplacePrior([]float64{0, math.NaN(), 0}, 1), ErrNotFinite},
	} {
		if err := c.h.Check(NewIsotropic(3, 1)); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.h, err, c.want)
		}
	}
	if err := LaplacePrior(nil, 1).Check(must(NewGamma(1, 1))); !errors.Is(err, ErrShape) {
		t.Errorf("a Gamma: %v", err)
	}
}

// ionosphereSites returns the training rows of ionosphere with an intercept.
func ionosphereSites(t testing.TB) Sites {
	data := loadUCI(t, "ionosphere")
	s := Sites{Y: data.y, Lik: BernoulliLogit{}}
	for i := range data.y {
		s.X = append(s.X, append([]float64{1}, data.x.RawRowView(i)...))
	}
	return s
}

// TestLaplaceFit checks that the zero Solver reaches the optimum of a Bayesian lasso on real data,
// for weak and strong priors, in every coordinates and with numeric steps of a given size.
func TestLaplaceFit(t *testing.T) {
	t.Parallel()
	s := ionosphereSites(t)
	f, d := Expect(s, nil), len(s.X[0])
	for _, b := range []float64{0.01, 0.1, 1} {
		for _, start := range []*Gaussian{NewIsotropic(d, 1), NewIsotropicMeanField(d, 1)} {
			best := math.NaN()
			for _, c := range []Coordinates{MeanParams, MeanCov, Cholesky} {
				if c == Cholesky && start.isDiagonal() {
					continue // KLTo takes as many passes there
				}
				o := Objective[*Gaussian]{F: f, H: LaplacePrior(nil, b), Init: start.In(c)}
				res := solve(t, Solver{MaxPasses: 150}, o)
				if c == MeanParams {
					best = res.ELBO
				}
				if res.Status != Converged || !(math.Abs(res.ELBO-best) < 1e-4) {
					t.Errorf("b = %v, %v, diagonal %t: %v, want %v", b, c, start.isDiagonal(), res,
						best)
				}
			}
			if b < 1 {
				continue
			}
			o := Objective[*Gaussian]{F: f, H: LaplacePrior(nil, b), Init: start}
			numeric := solve(t, Solver{StepSize: ConstantStep(4), MaxPasses: 20}, o)
			if !(numeric.ELBO <= best+1e-6) || !start.isDiagonal() && !(numeric.ELBO > best-1e-3) {
				t.Errorf("numeric steps, diagonal %t: %v, want %v", start.isDiagonal(), numeric, best)
			}
		}
	}
	o := Objective[*Gaussian]{F: f, H: LaplacePrior(nil, 0.1), Init: NewIsotropic(d, 1)}
	all, some := solve(t, Solver{}, o), solve(t, Solver{BatchSize: 50}, o)
	if !(some.ELBO > all.ELBO-0.1) {
		t.Errorf("mini-batches: %v, want %v", some, all)
	}
}

// TestSumOf checks that values and gradients add, and which sums keep closed steps: two entropies,
// and parts that are linear in λ.
func TestSumOf(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	q, p1, p2 := randomGaussian(rng, 2, MeanParams), randomGaussian(rng, 2, MeanParams),
		randomGaussian(rng, 2, MeanParams)
	slopes := []float64{0.1, -0.2, 0.3, 0, 0.2}
	linear := ownConvex{func(q Dist) float64 { return floats.Dot(slopes, q.Params(nil)) },
		func(dst []float64, q Dist) []float64 {
			dst = q.Params(dst)
			copy(dst, slopes)
			return dst
		}, nil}
	if h := SumOf(nil, Zero()); !isZero(h) {
		t.Errorf("an empty sum is %v", h)
	}
	if h := SumOf(Zero(), L1(2, 0), nil); h != L1(2, 0) {
		t.Errorf("a sum of one part is %v", h)
	}
	parts := []Convex{KLTo(p1), KLTo(p2), L1(0.3, 2), linear}
	h := SumOf(SumOf(parts[:2]...), SumOf(parts[2:]...))
	var v float64
	g := make([]float64, 5)
	for _, part := range parts {
		v += part.Value(q)
		floats.Add(g, part.Grad(nil, q))
	}
	if got := h.Value(q); !(math.Abs(got-v) < 1e-12*(1+math.Abs(v))) ||
		!floats.EqualApprox(h.Grad(nil, q), g, 1e-12) {
		t.Errorf("%v: %v %v, want %v %v", h, got, h.Grad(nil, q), v, g)
	}
	if err := SumOf(KLTo(p1), L1(-1, 0)).Check(q); !errors.Is(err, ErrParam) {
		t.Errorf("a part with a negative weight: %v", err)
	}
	for i := range g {
		g[i] = 0.1 * rng.NormFloat64()
	}
	for _, c := range []struct {
		h     Convex
		d     Divergence
		in    Coordinates
		known bool
	}{
		{SumOf(KLTo(p1), KLTo(p2)), KL(), MeanParams, true},
		{SumOf(KLTo(p1), KLTo(p2), NaturalPrior(nil)), KL(), MeanCov, true},
		{SumOf(KLTo(p1), KLTo(p2)), Euclidean(), Cholesky, true},
		{SumOf(KLTo(p1), linear), KL(), MeanParams, true},
		{SumOf(linear, NaturalPrior(p1.Natural(nil))), KL(), MeanCov, true},
		{SumOf(linear, KLTo(p1)), Euclidean(), Cholesky, true},
		{SumOf(linear, L1(0.3, 0)), Euclidean(), MeanCov, true},
		{SumOf(KLTo(p1), squares()), KL(), MeanParams, false},
		{SumOf(LaplacePrior(nil, 1), KLTo(p1)), KL(), MeanParams, false},
		{SumOf(KLTo(p1), linear), ReverseKL(), MeanParams, false},
	} {
		from := q.In(c.in)
		p := Prox{Grad: g, H: c.h, D: c.d, From: from, Beta: 0.7}
		closed, numeric := from.Clone(), from.Clone()
		known, err := p.Solve(closed)
		if err != nil || known != c.known {
			t.Errorf("%v with %s in %v: closed %t, error %v", c.h, spell(c.d), c.in, known, err)
			continue
		}
		if err := p.Numeric(numeric); err != nil {
			t.Fatal(err)
		}
		if !floats.EqualApprox(closed.Params(nil), numeric.Params(nil), 1e-5) {
			t.Errorf("%v with %s in %v: %v, want %v", c.h, spell(c.d), c.in, closed.Params(nil),
				numeric.Params(nil))
		}
	}
}
