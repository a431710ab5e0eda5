package learn_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// view shows a log-concave likelihood of the root to the sites.
type view struct {
	pgsvi.Likelihood
	noise float64
	real  bool
}

func (l view) Expect(y, m, v float64) term.Expectation {
	return term.Expectation(pgsvi.ExpectLogProb(l.Likelihood, y, m, v))
}

func (l view) Noise() float64 { return l.noise }

func (l view) Real() bool { return l.real }

func (view) Concave() bool                                        { return true }
func (view) Each() *term.Many                                     { return nil }
func (view) Rated() func(y float64) (sign, origin, slope float64) { return nil }
func (view) Identify(*save.Digest)                                {}

// scaleProblem is a random GP or GLM of a log-concave likelihood.
type scaleProblem struct {
	name  string
	best  func(at float64) float64           // the greatest ELBO at a log s²
	state func(at float64) *learn.ScaleState // what a random state there says
	draw  func() float64
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
		{view{pgsvi.BernoulliLogit{}, 0, false}, func() float64 { return sign(rng.IntN(2) == 0) }},
		{view{pgsvi.BernoulliProbit{}, 0, false}, func() float64 { return sign(rng.IntN(3) == 0) }},
		{view{pgsvi.Poisson{}, 0, false}, func() float64 { return float64(rng.IntN(6)) }},
		{view{pgsvi.GaussianNoise{Var: 0.3}, 0.3, true}, rng.NormFloat64},
		{view{pgsvi.Ordinal{Cuts: []float64{-1, 0.5}}, 0, false},
			func() float64 { return float64(rng.IntN(3)) }},
		{view{pgsvi.Gamma{Shape: 2}, 0, false},
			func() float64 { return math.Exp(rng.NormFloat64()) }},
		{view{pgsvi.Laplace{Scale: 0.5}, 0, true}, rng.NormFloat64},
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
		p.name = fmt.Sprintf("GP %T, %d×%d", c.lik.Likelihood, n, d)
		k := make([]float64, n*n)
		for i := range n {
			for j := range n {
				k[i*n+j] = pgsvi.Matern32{Length: 1.5}.Cov(x.RawRowView(i), x.RawRowView(j))
			}
		}
		l := learn.NewLatent(learn.NewGramScale(terms, k), nil, n)
		l.Use(term.Crew{Workers: 1})
		at := func(at, slack float64) float64 {
			e, err := l.Evaluate([]float64{at}, slack, math.Inf(1), false)
			if err != nil || math.IsInf(e.F, 0) {
				t.Fatalf("seed %d, %s at %v: %v, %v", seed, p.name, at, e.F, err)
			}
			return -e.F
		}
		p.best = func(x float64) float64 { return at(x, 1e-10) }
		p.state = func(x float64) *learn.ScaleState {
			return l.RandomState(rng, noise, x,
				at(x, 1))
		}
		return p
	}
	p.name = fmt.Sprintf("GLM %T, %d×%d", c.lik.Likelihood, n, d)
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
	w := learn.NewWeights(learn.NewBlockPrior(lin, cols, nil, false, nil), false)
	w.Use(term.Crew{Workers: 1})
	p.best = func(x float64) float64 {
		elbo, err := w.BestAt(x)
		if err != nil {
			t.Fatalf("seed %d, %s at %v: %v", seed, p.name, x, err)
		}
		return elbo
	}
	p.state = func(x float64) *learn.ScaleState {
		s, err := w.RandomState(rng, noise, x)
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

// TestLearnSingularFar: equal rows that disagree, far under the prior, have an ELBO. Ways along
// which the mean hardly bends lead to an a that a singular K does not see, and of which rounding
// leaves nothing.
func TestLearnSingularFar(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{7, 174, 236} {
		randomScaleProblem(t, seed).best(7.5)
	}
}

// TestScaleStates: what any state says of all scales is true, 0 violations in 10,000 states. Near
// its own scale, and at the optimum, it is tight.
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
			if !s.Known() {
				continue
			}
			known++
			if s.Over(x, x) < s.ELBO() {
				t.Errorf("seed %d, %s: bound %v below the ELBO %v of the state itself",
					seed, p.name, s.Over(x, x), s.ELBO())
			}
			for i, a := range at {
				h := 0.5 * math.Abs(math.Sin(float64(i)))
				u, wide, least := s.Over(a, a), s.Over(a-h, a+0.1),
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

// asked is a context that is done once it has been asked so many times.
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

// TestEigenvaluesHearCancel: what a certificate takes eigenvalues of asks for every column whether
// they are still wanted, and says nothing where they are not.
func TestEigenvaluesHearCancel(t *testing.T) {
	t.Parallel()
	const n = 40
	rng := rand.New(rand.NewPCG(3, 11))
	var b mat.SymDense
	x := mat.NewDense(n, n, nil)
	x.Apply(func(int, int, float64) float64 { return rng.NormFloat64() }, x)
	b.SymOuterK(1, x)
	eigenvalues := func(asks int64) (*learn.ScaleState, int64) {
		ctx := &asked{context.Background(), asks, 0, make(chan struct{})}
		var h parallel.Halt
		h.Watch(ctx)
		s := learn.Eigenvalues(&h, mat.DenseCopyOf(&b).RawMatrix().Data, n)
		return s, ctx.count
	}
	s, all := eigenvalues(math.MaxInt64)
	if all < n || !s.Known() {
		t.Errorf("asked %d times for %d columns, known %t", all, n, s.Known())
	}
	for k := range all {
		if s, more := eigenvalues(k); more != k+1 || s.Known() {
			t.Errorf("done at ask %d: asked %d times, known %t", k, more, s.Known())
		}
	}
}
