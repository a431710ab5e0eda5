package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/mat"
)

// scaleProblem is a random GP or, with x, a GLM of a log-concave likelihood.
type scaleProblem struct {
	name  string
	best  func(at float64) float64     // the greatest ELBO at a log s²
	state func(at float64) *scaleState // what a random state there says
	draw  func() float64
}

// randomScaleProblem returns the problem of a seed.
func randomScaleProblem(t *testing.T, seed uint64) *scaleProblem {
	rng := testRand(seed)
	liks := []struct {
		lik Likelihood
		y   func() float64
	}{
		{BernoulliLogit{}, func() float64 { return plusMinus(rng.IntN(2) == 0) }},
		{BernoulliProbit{}, func() float64 { return plusMinus(rng.IntN(3) == 0) }},
		{Poisson{}, func() float64 { return float64(rng.IntN(6)) }},
		{GaussianNoise{Var: 0.3}, rng.NormFloat64},
		{Ordinal{Cuts: []float64{-1, 0.5}}, func() float64 { return float64(rng.IntN(3)) }},
		{Gamma{Shape: 2}, func() float64 { return math.Exp(rng.NormFloat64()) }},
		{Laplace{Scale: 0.5}, rng.NormFloat64},
	}
	c := liks[rng.IntN(len(liks))]
	n, d := 1+rng.IntN(8), 1+rng.IntN(4)
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		for j := range d {
			x.Set(i, j, rng.NormFloat64())
		}
		if i > 0 && rng.IntN(4) == 0 {
			x.SetRow(i, x.RawRowView(i-1))
		}
		y[i] = c.y()
	}
	p := &scaleProblem{draw: func() float64 { return 2 * (math.Log(0.05) + rng.Float64()*math.Log(1000)) }}
	noise := math.Exp(2*rng.NormFloat64() - 2)
	if rng.IntN(2) == 0 {
		gp := mustGP(t, x, y, Matern32{Length: 1.5}, c.lik)
		k, err := gp.gram()
		if err != nil {
			t.Fatal(err)
		}
		p.name = fmt.Sprintf("GP %T, %d×%d", c.lik, n, d)
		l := &siteLearning{prior: &gramScale{gp.terms, k, 0}, n: n}
		l.use(crew{1, nil})
		at := func(at, slack float64) float64 {
			e, err := l.evaluate([]float64{at}, slack, math.Inf(1), false)
			if err != nil || math.IsInf(e.f, 0) {
				t.Fatalf("seed %d, %s at %v: %v, %v", seed, p.name, at, e.f, err)
			}
			return -e.f
		}
		p.best = func(x float64) float64 { return at(x, 1e-10) }
		p.state = func(x float64) *scaleState {
			elbo := at(x, 1)
			q := &l.prob
			for i, g := range q.cur.gamma {
				q.try.gamma[i] = g * math.Exp(noise*rng.NormFloat64())
				q.try.c[i] = q.cur.c[i] + noise*rng.NormFloat64()
			}
			if q.eval() && q.try.value < -elbo+1e6 {
				q.cur, q.try = q.try, q.cur
			}
			return l.scaleState(x)
		}
		return p
	}
	g, err := NewGLM(x, y, c.lik, &GLMOptions{Intercept: rng.IntN(2) == 0, PriorSD: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.name = fmt.Sprintf("GLM %T, %d×%d", c.lik, n, d)
	prior := newScaledPrior(&g.linearModel, d, nil, false, 1)
	w := &weightLearning{prior: prior}
	w.use(crew{1, nil})
	p.best = func(x float64) float64 {
		q, err := w.fitFull(prior.scaled(1, x), []float64{x}, 1e-10)
		if err != nil {
			t.Fatalf("seed %d, %s at %v: %v", seed, p.name, x, err)
		}
		return -q.f
	}
	p.state = func(x float64) *scaleState {
		lin := prior.scaled(1, x)
		alg, err := newWeightAlgebra(lin, w.workers)
		if err != nil {
			t.Fatal(err)
		}
		for i := range alg.gamma {
			alg.gamma[i], alg.a[i] = math.Exp(noise*rng.NormFloat64()-1), noise*rng.NormFloat64()
		}
		if err := alg.settle(); err != nil {
			t.Fatalf("seed %d, %s at %v: %v", seed, p.name, x, err)
		}
		q, err := alg.fit()
		if err != nil { // expectations overflow
			return &scaleState{offset: math.Inf(1)}
		}
		s, err := w.scaleState(q, x)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return p
}

// Equal rows that disagree, far under the prior, have an ELBO: ways along which the mean hardly bends lead to an a that a singular K does not see, and of
// which rounding leaves nothing.
func TestLearnSingularFar(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{7, 174, 236} {
		randomScaleProblem(t, seed).best(7.5)
	}
}

// What any state says of all scales is true: 0 violations in 10,000 states. Near its own scale, and at the optimum, it is tight.
func TestScaleStates(t *testing.T) {
	t.Parallel()
	const scales, each = 6, 20
	known := 0
	for seed := range uint64(shorter(500, 10)) {
		p := randomScaleProblem(t, seed)
		var at, best [scales]float64
		for i := range at {
			at[i] = p.draw()
			best[i] = p.best(at[i])
		}
		for range each {
			x := p.draw()
			s := p.state(x)
			if math.IsInf(s.offset, 0) {
				continue
			}
			known++
			if s.over(x, x) < s.elbo {
				t.Errorf("seed %d, %s: bound %v below the ELBO %v of the state itself", seed, p.name, s.over(x, x), s.elbo)
			}
			for i, a := range at {
				h := 0.5 * math.Abs(math.Sin(float64(i)))
				if u, wide := s.over(a, a), s.over(a-h, a+0.1); !(u >= best[i]-1e-9*(1+math.Abs(best[i]))) || !(wide >= best[i]-1e-9*(1+math.Abs(best[i]))) {
					t.Errorf("seed %d, %s: bounds %v and %v at %v from a state at %v, and an ELBO of %v", seed, p.name, u, wide, a, x, best[i])
				}
			}
		}
	}
	if all := shorter(500, 10) * each; known < all*9/10 {
		t.Errorf("%d of %d states say something", known, all)
	}
}

// The scales of a GP and of a GLM are certified over [0.05, 50] to 0.1 nats in at most twenty steps; the proof holds at scales that were not tried.
func TestCertifyScale(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	check := func(name string, c *ScaleCertificate, err error, elbo func(scale float64) float64) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%s: %+v", name, *c)
		if c.Steps > 20 || !(c.Bound <= 0.1) || c.Scope != OverQAndScale {
			t.Errorf("%s: %+v", name, *c)
		}
		if got := elbo(c.Scale); math.Abs(got-c.ELBO) > 0.01 {
			t.Errorf("%s: ELBO %v at %v, %v said", name, got, c.Scale, c.ELBO)
		}
		for _, s := range []float64{0.05, 0.3, 0.9 * c.Scale, 1.2 * c.Scale, 9, 50} {
			if got := elbo(s); got > c.ELBO+c.Bound {
				t.Errorf("%s: ELBO %v at %v, above %v + %v", name, got, s, c.ELBO, c.Bound)
			}
		}
	}
	for i, c := range gpCases[:shorter(2, 1)] {
		d := c.load(t)
		x, y := d.x, d.y
		if testing.Short() {
			x, y = mat.DenseCopyOf(x.Slice(0, 40, 0, 34)), y[:40]
		}
		length := math.Exp([]float64{1, -1}[i])
		gp := mustGP(t, x, y, SquaredExp{Length: length}, BernoulliLogit{})
		cert, err := gp.CertifyScale(ctx, 0.05, 50, 0.1)
		check("GP, "+c.name, cert, err, func(s float64) float64 {
			_, res, err := mustGP(t, x, y, SquaredExp{Scale: s, Length: length}, BernoulliLogit{}).Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			return res.ELBO
		})
		glm := func(s float64) *GLM {
			g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Intercept: i == 0, Autoscale: i == 1, PriorSD: s})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		cert, err = glm(2).CertifyScale(ctx, 0.05, 50, 0.1)
		check("GLM, "+c.name, cert, err, func(s float64) float64 {
			_, res, err := glm(s).Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			return res.ELBO
		})
	}
}

// The scale that is certified is one that multiplies all covariances: of a Product that of a factor, and not of a term of one.
func TestCertifyScaleComposite(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := mat.NewDense(6, 1, []float64{1, 1.5, 2, 4, 4.5, 6}), []float64{1, 1, -1, 1, -1, -1}
	sum := Sum{SquaredExp{Scale: 2}, Matern12{Length: 2}}
	for _, with := range []func(s float64) Kernel{
		func(s float64) Kernel { return Product{sum, Matern52{Scale: s, Length: 3}} },
		func(s float64) Kernel { return Product{Constant{Scale: s}, sum} },
	} {
		c, err := mustGP(t, x, y, with(1), BernoulliLogit{}).CertifyScale(ctx, 0.05, 50, 0.1)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []float64{c.Scale, 0.1, 10} {
			_, res, err := mustGP(t, x, y, with(s), BernoulliLogit{}).Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := res.ELBO - c.ELBO; d > c.Bound || s == c.Scale && d < -0.01 {
				t.Errorf("%T: ELBO %v at scale %v, %v and a bound of %v said", with(1), res.ELBO, s, c.ELBO, c.Bound)
			}
		}
	}
	if _, err := mustGP(t, x, y, Product{sum, sum}, BernoulliLogit{}).CertifyScale(ctx, 0.05, 50, 0.1); !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "Product{Constant{}, k}") {
		t.Errorf("a Product of Sums: %v", err)
	}
}

func TestCertifyScaleErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := mat.NewDense(3, 1, []float64{1, 2, 4}), []float64{1, -1, 1}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for _, c := range []struct {
		k        Kernel
		lik      Likelihood
		jitter   float64
		lo, hi   float64
		ctx      context.Context
		is       error
		says     string
		alsoGLMs bool
	}{
		{SquaredExp{}, BernoulliLogit{}, 0, 1, 0.5, ctx, ErrParam, "the scales from 1 to 0.5", true},
		{SquaredExp{}, BernoulliLogit{}, 0, 0, 1, ctx, ErrParam, "the scales from 0 to 1", true},
		{SquaredExp{}, StudentT{}, 0, 0.1, 1, ctx, ErrParam, "StudentT is not", true},
		{Linear{}, BernoulliLogit{}, 0, 0.1, 1, ctx, ErrParam, "no scale", false},
		{Sum{SquaredExp{}, White{}}, BernoulliLogit{}, 0, 0.1, 1, ctx, ErrParam, "no scale", false},
		{SquaredExp{}, BernoulliLogit{}, 0.1, 0.1, 1, ctx, ErrParam, "jitter of 0.1", false},
		{SquaredExp{}, BernoulliLogit{}, 0, 0.1, 1, canceled, context.Canceled, "", true},
	} {
		gp, err := NewGP(x, y, c.k, c.lik, &GPOptions{Jitter: c.jitter})
		if err != nil {
			t.Fatal(err)
		}
		_, err = gp.CertifyScale(c.ctx, c.lo, c.hi, 0.1)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !prefixedOnce(err) {
			t.Errorf("GP: %v, want %q", err, c.says)
		}
		if !c.alsoGLMs {
			continue
		}
		g, err := NewGLM(x, y, c.lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.CertifyScale(c.ctx, c.lo, c.hi, 0.1)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !prefixedOnce(err) {
			t.Errorf("GLM: %v, want %q", err, c.says)
		}
	}
	g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Covariance: DiagonalCovariance})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.CertifyScale(ctx, 0.1, 1, 0.1); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
}

func ExampleGP_CertifyScale() {
	x, y := mat.NewDense(6, 1, []float64{1, 2, 3, 6, 7, 8}), []float64{1, 1, 1, -1, -1, 1}
	gp, err := NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil)
	if err != nil {
		panic(err)
	}
	c, err := gp.CertifyScale(context.Background(), 0.05, 50, 0.1)
	if err != nil {
		panic(err)
	}
	fmt.Printf("no scale has an ELBO above %.2f + 0.1\n", c.ELBO)
	// Output:
	// no scale has an ELBO above -3.77 + 0.1
}

// What CertifyScale takes eigenvalues of asks for every column whether they are still wanted, and
// CertifyScale ends with the error of its context wherever that is done.
func TestCertifyScaleHearsCancel(t *testing.T) {
	t.Parallel()
	const n = 40
	rng := testRand(3)
	var b mat.SymDense
	b.SymOuterK(1, mat.NewDense(n, n, normals(rng, n*n)))
	eigenvalues := func(asks int64) (s *scaleState, asked int64) {
		ctx := newAsked(asks)
		var h parallel.Halt
		h.Watch(ctx)
		s = &scaleState{p: make([]float64, n)}
		s.eigenvalues(&h, mat.DenseCopyOf(&b).RawMatrix().Data)
		return s, ctx.asked.Load()
	}
	s, asked := eigenvalues(math.MaxInt64)
	if asked < n || s.offset != 0 {
		t.Errorf("asked %d times for %d columns, offset %v", asked, n, s.offset)
	}
	for k := range asked {
		if s, more := eigenvalues(k); more != k+1 || !math.IsInf(s.offset, 1) {
			t.Errorf("done at ask %d: asked %d times, offset %v", k, more, s.offset)
		}
	}
	x, y := mat.NewDense(n, 2, normals(rng, 2*n)), make([]float64, n)
	for i := range y {
		y[i] = math.Copysign(1, x.At(i, 0)+rng.NormFloat64())
	}
	gp := mustGP(t, x, y, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{})
	glm, err := NewGLM(x, y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(ctx context.Context) (*ScaleCertificate, error){
		"GP":  func(ctx context.Context) (*ScaleCertificate, error) { return gp.CertifyScale(ctx, 0.05, 50, 0.1) },
		"GLM": func(ctx context.Context) (*ScaleCertificate, error) { return glm.CertifyScale(ctx, 0.05, 50, 0.1) },
	} {
		whole := newAsked(math.MaxInt64)
		if _, err := f(whole); err != nil {
			t.Fatal(err)
		}
		total := whole.asked.Load()
		for k := int64(0); k < total; k += 1 + total/20 {
			ctx := newAsked(k)
			_, err := f(ctx)
			if err == nil || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%s, done at ask %d of %d: %v", name, k, total, err)
			}
			if more := ctx.asked.Load() - k; more > 100 {
				t.Errorf("%s, done at ask %d of %d: asked %d times more", name, k, total, more)
			}
		}
	}
}
