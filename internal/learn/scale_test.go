package learn

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// view is a log-concave likelihood, as the sites see it.
type view struct {
	name  string
	noise float64
	real  bool
	// logProb returns log p(y|η) and its derivatives, and expect their expectations under
	// η ~ N(m, v); nil is quadrature of a smooth logProb.
	logProb func(y, eta float64) (f, d1, d2 float64)
	expect  func(y, m, v float64) (f, d1, d2 float64)
}

func (l view) LogProb(y, eta float64) float64 {
	f, _, _ := l.logProb(y, eta)
	return f
}

func (l view) Expect(y, m, v float64) term.Expectation {
	if v == 0 {
		f, d1, d2 := l.logProb(y, m)
		return term.Expectation{Value: f, D1: d1, D2: d2, Err: 1e-15 * math.Abs(f)}
	}
	if l.expect != nil {
		f, d1, d2 := l.expect(y, m, v)
		return term.Expectation{Value: f, D1: d1, D2: d2, Err: 1e-15 * math.Abs(f)}
	}
	cuts := []float64{-12, -6, -3, -1, 0, 1, 3, 6, 12}
	t := expect.Adaptive(func(u float64) [3]float64 {
		f, d1, d2 := l.logProb(y, m+math.Sqrt(v)*u)
		p := special.NormalPDF(u)
		return [3]float64{p * f, p * d1, p * d2}
	}, cuts, 1e-14)
	return term.Expectation{Value: t.Sum[0], D1: t.Sum[1], D2: t.Sum[2], Err: t.Err[0]}
}

func (l view) Noise() float64 { return l.noise }

func (l view) Real() bool { return l.real }

func (view) Concave() bool                                        { return true }
func (view) SelfBounded() bool                                    { return false }
func (view) Bounded() bool                                        { return false }
func (view) Each() *term.Many                                     { return nil }
func (view) Rated() func(y float64) (sign, origin, slope float64) { return nil }
func (view) Identify(*save.Digest)                                {}

// softplus returns E[log(1 + e^η)] under N(m, v), with its derivatives in m.
func softplus(m, v float64) (f, d1, d2 float64) {
	f, d1, d2, scale := expect.SoftplusExpect(math.Abs(m), v)
	c := math.Exp(scale)
	if f, d1, d2 = c*f, c*d1, c*d2; m > 0 {
		return m + f, 1 - d1, d2
	}
	return f, d1, d2
}

// logit is p(y|η) = 1/(1 + e^(−yη)).
var logit = exact("logit", 0, false, func(y, m, v float64) (f, d1, d2 float64) {
	f, d1, d2 = softplus(-y*m, v)
	return -f, y * d1, -d2
})

// probit is p(y|η) = Φ(yη), by quadrature.
var probit = view{name: "probit", logProb: func(y, eta float64) (f, d1, d2 float64) {
	f, d1, d2 = special.NormalLogCDF(y * eta)
	return f, y * d1, d2
}}

var poisson = exact("Poisson", 0, false, func(y, m, v float64) (f, d1, d2 float64) {
	g, _ := math.Lgamma(y + 1)
	e := math.Exp(m + v/2)
	return y*m - e - g, y - e, -e
})

var gaussian = exact("Gaussian", 0.3, true, func(y, m, v float64) (f, d1, d2 float64) {
	const noise = 0.3
	return -0.5 * ((y-m)*(y-m)/noise + v/noise + math.Log(2*math.Pi*noise)), (y - m) / noise,
		-1 / noise
})

// ordinal has three levels, with cuts at −1 and 0.5: the middle one has
// log p = log(1 − e^(−1.5)) − log(1 + e^(η−0.5)) − log(1 + e^(−1−η)).
var ordinal = exact("ordinal", 0, false, func(y, m, v float64) (f, d1, d2 float64) {
	f0, a0, b0 := softplus(m+1, v)
	f1, a1, b1 := softplus(0.5-m, v)
	switch y {
	case 0:
		return -f0, -a0, -b0
	case 2:
		return -f1, a1, -b1
	}
	f0, a0, b0 = softplus(-1-m, v)
	f1, a1, b1 = softplus(m-0.5, v)
	return math.Log(-math.Expm1(-1.5)) - f0 - f1, a0 - a1, -b0 - b1
})

// gamma has shape 2 and mean e^η.
var gamma = exact("gamma", 0, false, func(y, m, v float64) (f, d1, d2 float64) {
	e := 2 * y * math.Exp(v/2-m)
	return 2*math.Log(2) + math.Log(y) - 2*m - e, e - 2, -e
})

// laplace has scale ½: log p = −2|y − η|.
var laplace = exact("Laplace", 0, true, func(y, m, v float64) (f, d1, d2 float64) {
	if v == 0 {
		return -2 * math.Abs(y-m), math.Copysign(2, y-m), 0
	}
	s := math.Sqrt(v)
	u := (y - m) / s
	p := special.NormalPDF(u)
	return -2 * s * (2*p + u*math.Erf(u/math.Sqrt2)), 2 * math.Erf(u/math.Sqrt2), -4 * p / s
})

// exact is a likelihood whose expectations have closed forms.
func exact(name string, noise float64, real bool,
	of func(y, m, v float64) (f, d1, d2 float64)) view {
	return view{name, noise, real,
		func(y, eta float64) (f, d1, d2 float64) { return of(y, eta, 0) }, of}
}

// known reports whether the state gives a bound for other scales.
func (s *scaleState) known() bool { return !math.IsInf(s.offset, 0) }

// eigenvaluesOf returns the state of the eigenvalues of b, n×n.
func eigenvaluesOf(h *parallel.Halt, b []float64, n int) *scaleState {
	s := &scaleState{p: make([]float64, n)}
	s.eigenvalues(h, b)
	return s
}

// randomState returns the bound of a q near the last one, with noise on its sites.
func (l *Latent) randomState(rng *rand.Rand, noise, at, elbo float64) *scaleState {
	q := &l.prob
	for i, g := range q.Cur.Gamma {
		q.Try.Gamma[i] = g * math.Exp(noise*rng.NormFloat64())
		q.Try.C[i] = q.Cur.C[i] + noise*rng.NormFloat64()
	}
	if q.Eval() && q.Try.Value < -elbo+1e6 {
		q.Cur, q.Try = q.Try, q.Cur
	}
	return l.scaleState(at)
}

// bestAt returns the greatest ELBO at log s², which is 0 in the base of the prior.
func (l *Weights) bestAt(at float64) (float64, error) {
	q, err := l.fitFull(l.prior.scaled(1, at), []float64{at}, 1e-10)
	if err != nil {
		return 0, err
	}
	return -q.f, nil
}

// randomState returns the bound of a q with random sites.
func (l *Weights) randomState(rng *rand.Rand, noise, at float64) (*scaleState, error) {
	alg, err := site.NewWeightAlgebra(l.prior.scaled(1, at), l.workers)
	if err != nil {
		return nil, err
	}
	for i := range alg.Gamma {
		alg.Gamma[i], alg.A[i] = math.Exp(noise*rng.NormFloat64()-1), noise*rng.NormFloat64()
	}
	if err := alg.Settle(); err != nil {
		return nil, err
	}
	q, err := fitOf(alg)
	if err != nil { // expectations overflow
		return &scaleState{offset: math.Inf(1)}, nil
	}
	return l.scaleState(q, at)
}

// scaleProblem is a random GP or GLM of a log-concave likelihood.
type scaleProblem struct {
	name  string
	best  func(at float64) float64     // the greatest ELBO at a log s²
	state func(at float64) *scaleState // returns the bound of a random state at a scale
	draw  func() float64
}

// matern32 is the Matérn kernel of ν = 3/2 and length 1.5.
func matern32(a, b []float64) float64 {
	r := math.Sqrt(3) * floats.Distance(a, b, 2) / 1.5
	return (1 + r) * math.Exp(-r)
}

// randomScaleProblem returns the problem of a seed.
func randomScaleProblem(t *testing.T, seed uint64) *scaleProblem {
	rng := rand.New(rand.NewPCG(seed, 11))
	sign := func(positive bool) float64 {
		if positive {
			return 1
		}
		return -1
	}
	liks := []struct {
		lik view
		y   func() float64
	}{
		{logit, func() float64 { return sign(rng.IntN(2) == 0) }},
		{probit, func() float64 { return sign(rng.IntN(3) == 0) }},
		{poisson, func() float64 { return float64(rng.IntN(6)) }},
		{gaussian, rng.NormFloat64},
		{ordinal, func() float64 { return float64(rng.IntN(3)) }},
		{gamma, func() float64 { return math.Exp(rng.NormFloat64()) }},
		{laplace, rng.NormFloat64},
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
	terms := &term.Terms{Lik: c.lik, Y: y}
	p := &scaleProblem{draw: func() float64 {
		return 2 * (math.Log(0.05) + rng.Float64()*math.Log(1000))
	}}
	noise := math.Exp(2*rng.NormFloat64() - 2)
	if rng.IntN(2) == 0 {
		p.name = fmt.Sprintf("GP %s, %d×%d", c.lik.name, n, d)
		k := make([]float64, n*n)
		for i := range n {
			for j := range n {
				k[i*n+j] = matern32(x.RawRowView(i), x.RawRowView(j))
			}
		}
		l := NewLatent(&gramScale{terms, k, 0}, nil, n)
		l.Use(term.Crew{Workers: 1})
		at := func(at, slack float64) float64 {
			e, err := l.Evaluate([]float64{at}, slack, math.Inf(1), false)
			if err != nil || math.IsInf(e.F, 0) {
				t.Fatalf("seed %d, %s at %v: %v, %v", seed, p.name, at, e.F, err)
			}
			return -e.F
		}
		p.best = func(x float64) float64 { return at(x, 1e-10) }
		p.state = func(x float64) *scaleState {
			return l.randomState(rng, noise, x,
				at(x, 1))
		}
		return p
	}
	p.name = fmt.Sprintf("GLM %s, %d×%d", c.lik.name, n, d)
	lin := &site.LinearModel{Terms: terms}
	cols, prec := d, []float64(nil)
	for range d {
		prec = append(prec, 1)
	}
	if rng.IntN(2) == 0 { // an intercept
		d++
		prec = append(prec, 0.01)
	}
	lin.X = &design.Matrix{Rows: n, Cols: d}
	for i := range n {
		lin.X.Dense = append(lin.X.Dense, x.RawRowView(i)...)
		if d > cols {
			lin.X.Dense = append(lin.X.Dense, 1)
		}
	}
	lin.Names, lin.Prior = make([]string, d), gauss.Prior{Mean: make([]float64, d), Prec: prec}
	w := NewWeights(NewBlockPrior(lin, cols, nil, false, nil), false)
	w.Use(term.Crew{Workers: 1})
	p.best = func(x float64) float64 {
		elbo, err := w.bestAt(x)
		if err != nil {
			t.Fatalf("seed %d, %s at %v: %v", seed, p.name, x, err)
		}
		return elbo
	}
	p.state = func(x float64) *scaleState {
		s, err := w.randomState(rng, noise, x)
		if err != nil {
			t.Fatalf("seed %d, %s at %v: %v", seed, p.name, x, err)
		}
		return s
	}
	return p
}

// problems is the number of random problems.
func problems() uint64 {
	if testing.Short() {
		return 10
	}
	return 500
}

// TestLearnSingularFar checks that equal rows with different responses, far outside the prior,
// have an ELBO. Directions in which the mean has almost no curvature lead to an a that a singular
// K does not see and that rounding destroys.
func TestLearnSingularFar(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{7, 174, 236} {
		randomScaleProblem(t, seed).best(7.5)
	}
}

// TestScaleStates checks the bounds of 10,000 states for all scales. None may be violated, and
// they must be tight near their own scale and at the optimum.
func TestScaleStates(t *testing.T) {
	t.Parallel()
	const scales, each = 6, 20
	known := 0
	for seed := range problems() {
		p := randomScaleProblem(t, seed)
		var at, best [scales]float64
		for i := range at {
			at[i] = p.draw()
			best[i] = p.best(at[i])
		}
		for range each {
			x := p.draw()
			s := p.state(x)
			if !s.known() {
				continue
			}
			known++
			if s.over(x, x) < s.elbo {
				t.Errorf("seed %d, %s: bound %v below the ELBO %v of the state itself",
					seed, p.name, s.over(x, x), s.elbo)
			}
			for i, a := range at {
				h := 0.5 * math.Abs(math.Sin(float64(i)))
				u, wide, least := s.over(a, a), s.over(a-h, a+0.1),
					best[i]-1e-9*(1+math.Abs(best[i]))
				if !(u >= least) || !(wide >= least) {
					t.Errorf(
						"seed %d, %s: bounds %v and %v at %v from a state at %v, and an ELBO of %v",
						seed, p.name, u, wide, a, x, best[i])
				}
			}
		}
	}
	if all := int(problems()) * each; known < all*9/10 {
		t.Errorf("%d of %d states say something", known, all)
	}
}

// asked is a context that is done after the given number of checks.
type asked struct {
	context.Context
	left, count int64
	done        chan struct{}
}

func (c *asked) Done() <-chan struct{} { return c.done }

func (c *asked) Err() error {
	c.count++
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestEigenvaluesCancel checks that the eigenvalues of a certificate check for cancellation at
// every column, and that a canceled state gives no bound.
func TestEigenvaluesCancel(t *testing.T) {
	t.Parallel()
	const n = 40
	rng := rand.New(rand.NewPCG(3, 11))
	var b mat.SymDense
	x := mat.NewDense(n, n, nil)
	x.Apply(func(int, int, float64) float64 { return rng.NormFloat64() }, x)
	b.SymOuterK(1, x)
	eigenvalues := func(asks int64) (*scaleState, int64) {
		ctx := &asked{context.Background(), asks, 0, make(chan struct{})}
		var h parallel.Halt
		h.Watch(ctx)
		s := eigenvaluesOf(&h, mat.DenseCopyOf(&b).RawMatrix().Data, n)
		return s, ctx.count
	}
	s, all := eigenvalues(math.MaxInt64)
	if all < n || !s.known() {
		t.Errorf("asked %d times for %d columns, known %t", all, n, s.known())
	}
	for k := range all {
		if s, more := eigenvalues(k); more != k+1 || s.known() {
			t.Errorf("done at ask %d: asked %d times, known %t", k, more, s.known())
		}
	}
}
