package expfam_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// betaFamily is the Beta(a, b) distribution as a user writes it: η = (a, b),
// T = (log z, log(1 − z)) and h = 1/(z(1 − z)).
type betaFamily struct{}

func (betaFamily) Dim() int { return 1 }

func (betaFamily) NumParams() int { return 2 }

func (betaFamily) LogPartition(eta []float64) float64 {
	a, b := eta[0], eta[1]
	if !(a > 0 && b > 0) {
		return math.Inf(1)
	}
	return testkit.LogGamma(a) + testkit.LogGamma(b) - testkit.LogGamma(a+b)
}

func (betaFamily) Mean(dst, eta []float64) {
	both := testkit.Digamma(eta[0] + eta[1])
	dst[0], dst[1] = testkit.Digamma(eta[0])-both, testkit.Digamma(eta[1])-both
}

func (betaFamily) Fisher(dst *mat.SymDense, eta []float64) {
	both := testkit.Trigamma(eta[0] + eta[1])
	dst.SetSym(0, 0, testkit.Trigamma(eta[0])-both)
	dst.SetSym(1, 1, testkit.Trigamma(eta[1])-both)
	dst.SetSym(0, 1, -both)
}

func (betaFamily) Stat(dst, z []float64) { dst[0], dst[1] = math.Log(z[0]), math.Log1p(-z[0]) }

func (betaFamily) LogBase(z []float64) float64 {
	if !(z[0] > 0 && z[0] < 1) {
		return math.Inf(-1)
	}
	return -math.Log(z[0]) - math.Log1p(-z[0])
}

func (f betaFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	z[0] = distuv.Beta{Alpha: eta[0], Beta: eta[1], Src: rng}.Rand()
	f.Stat(t, z)
}

// categories is a distribution over three categories. T shows two of them.
type categories struct{}

func (categories) Dim() int { return 1 }

func (categories) NumParams() int { return 2 }

func (categories) LogPartition(eta []float64) float64 {
	return floats.LogSumExp([]float64{0, eta[0], eta[1]})
}

func (f categories) Mean(dst, eta []float64) {
	a := f.LogPartition(eta)
	dst[0], dst[1] = math.Exp(eta[0]-a), math.Exp(eta[1]-a)
}

func (f categories) Fisher(dst *mat.SymDense, eta []float64) {
	p := make([]float64, 2)
	f.Mean(p, eta)
	dst.SetSym(0, 0, p[0]*(1-p[0]))
	dst.SetSym(1, 1, p[1]*(1-p[1]))
	dst.SetSym(0, 1, -p[0]*p[1])
}

func (categories) Stat(dst, z []float64) {
	clear(dst)
	if k := int(z[0]); k > 0 {
		dst[k-1] = 1
	}
}

func (categories) LogBase([]float64) float64 { return 0 }

func (f categories) Rand(z, t, eta []float64, rng *rand.Rand) {
	defer f.Stat(t, z)
	p := make([]float64, 2)
	f.Mean(p, eta)
	u := rng.Float64()
	switch {
	case u < p[0]:
		z[0] = 1
	case u < p[0]+p[1]:
		z[0] = 2
	default:
		z[0] = 0
	}
}

var (
	betaEtas     = [][]float64{{5, 11}, {2, 2}, {0.8, 3}}
	gammaEtas    = [][]float64{{2, -1}, {0.7, -3}, {40, -0.1}}
	categoryEtas = [][]float64{{0, 0}, {1, -1}, {-2, 0.5}}
)

// Right families pass, with any generator.
func TestCheckFamily(t *testing.T) {
	t.Parallel()
	seeds := uint64(5)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		if err := pgsvi.CheckFamily(betaFamily{}, rng, betaEtas...); err != nil {
			t.Errorf("Beta: %v", err)
		}
		if err := pgsvi.CheckFamily(testkit.GammaFamily{}, rng, gammaEtas...); err != nil {
			t.Errorf("Gamma: %v", err)
		}
		if err := pgsvi.CheckFamily(categories{}, rng, categoryEtas...); err != nil {
			t.Errorf("categories: %v", err)
		}
	}
}

// mutant is a Family with some of its functions replaced.
type mutant struct {
	pgsvi.Family
	partition func(eta []float64) float64
	mean      func(dst, eta []float64)
	fisher    func(dst *mat.SymDense, eta []float64)
	stat      func(dst, z []float64)
	base      func(z []float64) float64
	rand      func(z, t, eta []float64, rng *rand.Rand)
	params    int
}

func (m *mutant) NumParams() int {
	if m.params != 0 {
		return m.params - 1
	}
	return m.Family.NumParams()
}

func (m *mutant) LogPartition(eta []float64) float64 {
	if m.partition != nil {
		return m.partition(eta)
	}
	return m.Family.LogPartition(eta)
}

func (m *mutant) Mean(dst, eta []float64) {
	m.Family.Mean(dst, eta)
	if m.mean != nil {
		m.mean(dst, eta)
	}
}

func (m *mutant) Fisher(dst *mat.SymDense, eta []float64) {
	m.Family.Fisher(dst, eta)
	if m.fisher != nil {
		m.fisher(dst, eta)
	}
}

func (m *mutant) Stat(dst, z []float64) {
	m.Family.Stat(dst, z)
	if m.stat != nil {
		m.stat(dst, z)
	}
}

func (m *mutant) LogBase(z []float64) float64 {
	if m.base != nil {
		return m.base(z)
	}
	return m.Family.LogBase(z)
}

func (m *mutant) Rand(z, t, eta []float64, rng *rand.Rand) {
	if m.rand != nil {
		m.rand(z, t, eta, rng)
		return
	}
	m.Family.Rand(z, t, eta, rng)
	m.Stat(t, z)
}

// mutantChart is testkit.GammaFamily with a wrong chart.
type mutantChart struct {
	testkit.GammaFamily
	from, grad float64
}

func (m mutantChart) FromChart(dst, x []float64) {
	m.GammaFamily.FromChart(dst, x)
	dst[1] *= m.from
}

func (m mutantChart) ChartGrad(dst, g, eta []float64) {
	m.GammaFamily.ChartGrad(dst, g, eta)
	dst[0] *= m.grad
}

// halfFisher has one of the two products with the Fisher information.
type halfFisher struct{ testkit.GammaFamily }

func (halfFisher) FisherMul(dst, g, eta []float64) {}

// wrongEntropy has an Entropy of another signature.
type wrongEntropy struct{ testkit.GammaFamily }

func (wrongEntropy) Entropy(eta []float64) (nats float64, err error) { return 0, nil }

// TestCheckFamilyOptional checks that CheckFamily reports optional methods that would be ignored.
func TestCheckFamilyOptional(t *testing.T) {
	for say, f := range map[string]pgsvi.Family{
		"the method FisherMul is ignored unless the type has FisherMul([]float64, []float64, " +
			"[]float64), FisherSolve([]float64, []float64, []float64)": halfFisher{},
		"the method Entropy is ignored unless the type has Entropy([]float64) float64": wrongEntropy{},
	} {
		err := pgsvi.CheckFamily(f, nil, gammaEtas...)
		if !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), say) {
			t.Errorf("%T: %v", f, err)
		}
	}
}

// Each function, when wrong, is caught and named, and no other is blamed alone.
func TestCheckFamilyMutants(t *testing.T) {
	t.Parallel()
	beta, gamma, cat := betaFamily{}, testkit.GammaFamily{}, categories{}
	for i, c := range []struct {
		name string
		f    pgsvi.Family
		etas [][]float64
		say  string   // at the head of a violation
		not  []string // at the head of none
	}{
		{"A without the joint term", &mutant{Family: beta, partition: func(eta []float64) float64 {
			return testkit.LogGamma(eta[0]) + testkit.LogGamma(eta[1])
		}}, betaEtas, "LogPartition: its slope", []string{"Mean", "Stat", "Fisher"}},
		{"A with a sign wrong", &mutant{Family: gamma, partition: func(eta []float64) float64 {
			return testkit.LogGamma(eta[0]) + eta[0]*math.Log(-eta[1])
		}}, gammaEtas, "LogPartition: its slope", []string{"Mean", "Stat"}},
		{"A off by a constant", &mutant{Family: beta, partition: func(eta []float64) float64 {
			return beta.LogPartition(eta) + 0.5
		}}, betaEtas, "LogBase, or a constant in LogPartition", []string{"Mean", "Stat", "Fisher"}},
		{"A finite outside its set", &mutant{Family: beta, partition: func(eta []float64) float64 {
			return testkit.LogGamma(eta[0]) + testkit.LogGamma(eta[1]) - testkit.LogGamma(
				eta[0]+eta[1])
		}}, betaEtas, "LogPartition is not convex", []string{"Mean", "Stat", "Fisher"}},
		{"A = 0", &mutant{Family: beta, partition: func([]float64) float64 { return 0 }}, betaEtas,
			"LogPartition", []string{"Mean:", "Stat or"}},
		{"A = NaN", &mutant{Family: beta, partition: func([]float64) float64 { return math.NaN() }},
			betaEtas, "LogPartition is NaN", nil},
		{"mean without the joint term", &mutant{Family: beta, mean: func(dst, eta []float64) {
			dst[1] = testkit.Digamma(eta[1])
		}}, betaEtas, "Mean: element 1", []string{"LogPartition", "Stat", "Fisher"}},
		{"mean of another rate", &mutant{Family: gamma, mean: func(dst, _ []float64) {
			dst[1] *= 1.001
		}}, gammaEtas, "Mean: element 1", []string{"LogPartition:", "Fisher", "Stat"}},
		{"A of another rate", &mutant{Family: gamma, partition: func(eta []float64) float64 {
			return testkit.LogGamma(eta[0]) - 1.001*eta[0]*math.Log(-eta[1])
		}}, gammaEtas, "LogPartition: its slope", []string{"Mean", "Fisher", "Stat"}},
		{"mean NaN", &mutant{Family: gamma, mean: func(dst, _ []float64) { dst[1] = math.NaN() }},
			gammaEtas, "Mean", nil},
		{"Fisher twice", &mutant{Family: beta, fisher: func(dst *mat.SymDense, _ []float64) {
			dst.ScaleSym(2, dst)
		}}, betaEtas, "Fisher: element (0, 0)", []string{"Mean", "LogPartition", "Stat"}},
		{"Fisher diagonal", &mutant{Family: gamma, fisher: func(dst *mat.SymDense, _ []float64) {
			dst.SetSym(0, 1, 0)
		}}, gammaEtas, "Fisher: element (0, 1)", []string{"Mean", "LogPartition", "Stat"}},
		{"Fisher and mean wrong", &mutant{Family: beta, mean: func(dst, _ []float64) {
			dst[0]++
		}, fisher: func(dst *mat.SymDense, _ []float64) { dst.SetSym(0, 0, 3) }}, betaEtas,
			"Fisher: element (0, 0)", []string{"LogPartition", "Stat"}},
		{"T in the wrong order", &mutant{Family: beta, stat: func(dst, _ []float64) {
			dst[0], dst[1] = dst[1], dst[0]
		}}, betaEtas, "Stat or Rand", []string{"Mean", "LogPartition", "Fisher"}},
		{"T not in logs", &mutant{Family: gamma, stat: func(dst, z []float64) { dst[0] = z[0] }},
			gammaEtas, "Stat or Rand", []string{"Mean", "LogPartition", "Fisher"}},
		{"T infinite", &mutant{Family: gamma,
			stat: func(dst, _ []float64) { dst[0] = math.Inf(1) }}, gammaEtas, "Rand: T(z)", nil},
		{"T of the draw off",
			&mutant{Family: gamma, rand: func(z, t, eta []float64, rng *rand.Rand) {
				gamma.Rand(z, t, eta, rng)
				t[0] += 1e-6
			}}, gammaEtas, "Rand or Stat: T(z) is", nil},
		{"h = 1", &mutant{Family: beta, base: func([]float64) float64 { return 0 }}, betaEtas,
			"LogBase", []string{"Mean", "LogPartition", "Fisher", "Stat"}},
		{"h of another power", &mutant{Family: gamma, base: func(z []float64) float64 {
			return -2 * math.Log(z[0])
		}}, gammaEtas, "LogBase", []string{"Mean", "LogPartition", "Fisher", "Stat"}},
		{"h of counts", &mutant{Family: cat, base: func(z []float64) float64 {
			return -testkit.LogGamma(z[0] + 1)
		}}, categoryEtas, "LogBase", []string{"Mean", "LogPartition", "Fisher", "Stat"}},
		{"h = 0", &mutant{Family: cat, base: func([]float64) float64 { return math.Inf(-1) }},
			categoryEtas, "LogBase or Rand", nil},
		{"draws of a scale for a rate",
			&mutant{Family: gamma, rand: func(z, t, eta []float64, rng *rand.Rand) {
				z[0] = distuv.Gamma{Alpha: eta[0], Beta: -1 / eta[1], Src: rng}.Rand()
				gamma.Stat(t, z)
			}}, [][]float64{{0.7, -3}, {40, -0.1}}, "Stat or Rand",
			[]string{"Mean", "LogPartition", "Fisher"}},
		{"draws that change eta",
			&mutant{Family: beta, rand: func(z, t, eta []float64, rng *rand.Rand) {
				beta.Rand(z, t, eta, rng)
				eta[0]++
			}}, betaEtas, "Rand, Stat or LogBase changed", nil},
		{"a chart that does not come back", mutantChart{from: 2, grad: 1}, gammaEtas,
			"Chart or FromChart", nil},
		{"a wrong slope of the chart", mutantChart{from: 1, grad: -1}, gammaEtas, "ChartGrad",
			[]string{"Chart or"}},
		{"dependent statistics", dependent{}, [][]float64{{0.3, 0.2}},
			"Fisher is not positive definite", nil},
	} {
		if testing.Short() && i%5 > 0 {
			continue
		}
		err := pgsvi.CheckFamily(c.f, nil, c.etas...)
		if !errors.Is(err, pgsvi.ErrParam) {
			t.Errorf("%s: error %v, want one that wraps ErrParam", c.name, err)
			continue
		}
		found, all := false, err.Error()
		for line := range strings.Lines(all) {
			_, what, ok := strings.Cut(strings.TrimPrefix(line, "pgsvi: "), ": ")
			if !ok || !strings.HasPrefix(line, "pgsvi: ") {
				t.Errorf("%s: %q", c.name, line)
			}
			found = found || strings.HasPrefix(what, c.say)
			for _, s := range c.not {
				if strings.HasPrefix(what, s) && !strings.HasPrefix(c.say, s) {
					t.Errorf("%s: blames %s: %s", c.name, s, line)
				}
			}
		}
		if !found {
			t.Errorf("%s: no violation begins %q:\n%s", c.name, c.say, all)
		}
		if n := strings.Count(all, c.say); len(c.etas) > 1 && c.not != nil && n < 2 {
			t.Errorf("%s: %d of %d etas are named:\n%s", c.name, n, len(c.etas), all)
		}
	}
	for name, c := range map[string]struct {
		err, want error
	}{
		"no family": {pgsvi.CheckFamily(nil, nil, []float64{1, 1}), pgsvi.ErrParam},
		"no eta":    {pgsvi.CheckFamily(beta, nil), pgsvi.ErrEmpty},
		"short eta": {pgsvi.CheckFamily(beta, nil, []float64{1}), pgsvi.ErrShape},
		"no params": {pgsvi.CheckFamily(&mutant{Family: beta, params: 1}, nil, []float64{1, 1}),
			pgsvi.ErrParam},
		"outside": {pgsvi.CheckFamily(beta, nil, []float64{-1, 1}), pgsvi.ErrParam},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: error %v, want %v", name, c.err, c.want)
		}
	}
}

// dependent is a distribution over two categories with a parameter for each.
type dependent struct{ categories }

func (dependent) LogPartition(eta []float64) float64 { return floats.LogSumExp(eta) }

func (f dependent) Mean(dst, eta []float64) {
	p := 1 / (1 + math.Exp(eta[1]-eta[0]))
	dst[0], dst[1] = p, 1-p
}

func (f dependent) Fisher(dst *mat.SymDense, eta []float64) {
	p := 1 / (1 + math.Exp(eta[1]-eta[0]))
	dst.SetSym(0, 0, p*(1-p))
	dst.SetSym(1, 1, p*(1-p))
	dst.SetSym(0, 1, -p*(1-p))
}

func (f dependent) Rand(z, t, eta []float64, rng *rand.Rand) {
	defer f.Stat(t, z)
	z[0] = 2
	if rng.Float64() < 1/(1+math.Exp(eta[1]-eta[0])) {
		z[0] = 1
	}
}

func mustExp(t testing.TB, f pgsvi.Family, eta ...float64) *pgsvi.Exp {
	t.Helper()
	q, err := pgsvi.NewExp(f, eta)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// tosses is f = −E[log p(heads, tails|z)] of a coin with P(head) = z, exactly.
func tosses(heads, tails float64) pgsvi.Smooth {
	return pgsvi.SmoothFunc(1, true,
		func(_ *pgsvi.Env, dst []float64, q pgsvi.Dist, _ []int) (float64, error) {
			e := q.(pgsvi.ExpFamily)
			mu := e.MeanParams(nil)
			e.FromMeanGrad(dst, []float64{-heads, -tails})
			return -heads*mu[0] - tails*mu[1], nil
		})
}

// The posterior of a coin under a conjugate prior, Beta(2, 2) and 3 heads of 12
// tosses, is Beta(5, 11). In mean parameters, where f is linear, one step in closed
// form from anywhere is there; in natural parameters the iteration is.
func TestBetaConjugate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := tosses(3, 9)
	want := []float64{5, 11}
	prior := mustExp(t, betaFamily{}, 2, 2)
	for _, c := range testkit.Few([]pgsvi.Coordinates{pgsvi.MeanParams, pgsvi.Natural}, 1) {
		for _, start := range [][]float64{{2, 2}, {0.3, 40}} {
			o := pgsvi.Objective[*pgsvi.Exp]{F: f, H: pgsvi.KLTo(prior),
				Init: mustExp(t, betaFamily{}, start...).In(c)}
			q, res, err := o.Fit(ctx, nil)
			if err != nil {
				t.Fatalf("%v: %v", c, err)
			}
			if e := floats.Distance(q.Natural(nil), want, math.Inf(1)); !(e <= 1e-3) ||
				q.Coordinates() != c {
				t.Errorf("%v, from %v: Beta%.9g in %v after %d iterations, want Beta%v", c, start,
					q.Natural(nil), q.Coordinates(), res.K, want)
			}
			if c == pgsvi.Natural {
				break // its steps are numeric, and one start is enough
			}
			st, err := o.NewStepper(ctx, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			step, err := st.Step(ctx, nil, nil, math.Inf(1))
			if err != nil {
				t.Fatal(err)
			}
			if q, err = o.Posterior(st); err != nil {
				t.Fatal(err)
			}
			if e := floats.Distance(q.Natural(nil), want, math.Inf(1)); !(e <= 1e-13) ||
				!step.ClosedForm {
				t.Errorf("one step from %v is Beta%.17g, closed %v, want Beta%v in closed form",
					start, q.Natural(nil), step.ClosedForm, want)
			}
			e, err := st.Evaluate(ctx, nil)
			evidence := betaFamily{}.LogPartition(want) - prior.LogPartition()
			if !(math.Abs(e.ELBO-evidence) <= 1e-12) {
				t.Errorf("ELBO %v, log evidence %v: %v", e.ELBO, evidence, err)
			}
		}
	}
}

// The closed forms of an Exp are the numeric steps, in its own chart and in η.
func TestExpProx(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	for _, f := range []struct {
		family      pgsvi.Family
		from, prior []float64
	}{
		{testkit.GammaFamily{}, []float64{3, -2}, []float64{5, -4}},
		{betaFamily{}, []float64{3, 2}, []float64{2, 5}},
		{categories{}, []float64{1, -1}, []float64{-1, 0.5}},
	} {
		from, prior := mustExp(t, f.family, f.from...), mustExp(t, f.family, f.prior...)
		for _, c := range []struct {
			h      pgsvi.Convex
			d      pgsvi.Divergence
			coords pgsvi.Coordinates
			beta   float64
			closed bool
		}{
			{pgsvi.Zero(), pgsvi.KL(), pgsvi.MeanParams, 0.1, true},
			{pgsvi.KLTo(prior), pgsvi.KL(), pgsvi.MeanParams, 0.7, true},
			{pgsvi.KLTo(prior), pgsvi.KL(), pgsvi.MeanParams, math.Inf(1), true},
			{pgsvi.Zero(), pgsvi.ReverseKL(), pgsvi.Natural, 0.1, true},
			{pgsvi.KLTo(prior), pgsvi.KL(), pgsvi.Natural, 0.1, false},
			{pgsvi.KLTo(prior), pgsvi.ReverseKL(), pgsvi.MeanParams, 0.1, false},
		} {
			q0 := from.In(c.coords)
			what := fmt.Sprintf("%T, h = %T, D = %T, %v, β = %v", f.family, c.h, c.d, c.coords,
				c.beta)
			g := []float64{0.1 * rng.NormFloat64(), 0.1 * rng.NormFloat64()}
			q, num := q0.Clone().(*pgsvi.Exp), q0.Clone().(*pgsvi.Exp)
			p := &pgsvi.Prox{Grad: g, H: c.h, D: c.d, From: q0, Beta: c.beta}
			closed, err := p.Solve(q)
			if err != nil || closed != c.closed {
				t.Errorf("%s: closed = %v, %v", what, closed, err)
				continue
			}
			if err := p.Numeric(num); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			a, b := q.Natural(nil), num.Natural(nil)
			if e := floats.Distance(a, b,
				math.Inf(1)); !(e <= 1e-7*(1+floats.Norm(a, math.Inf(1)))) {
				t.Errorf("%s: %v, numerically %v", what, a, b)
			}
			// The step must be stationary: the gradient ∇_λ of its objective vanishes, in terms of η.
			r := c.h.Grad(nil, q)
			floats.Add(r, g)
			floats.AddScaled(r, 1/c.beta, c.d.Grad(nil, q, q0))
			if n := floats.Norm(r, math.Inf(1)); !(n <= 1e-6) {
				t.Errorf("%s: the slope at the step is %v", what, n)
			}
		}
	}
}

// A Gamma posterior from draws alone: the rate of Poisson counts, under its conjugate prior.
func TestGammaFromDraws(t *testing.T) {
	t.Parallel()
	y := []float64{3, 0, 2, 5, 1, 4}
	prior := mustExp(t, testkit.GammaFamily{}, 2, -1)
	ll := pgsvi.LogLik{N: len(y), Dim: 1, LogProb: func(n int, z []float64) float64 {
		return y[n]*math.Log(z[0]) - z[0] - testkit.LogGamma(y[n]+1)
	}}
	o := pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Expect(ll, nil), H: pgsvi.KLTo(prior), Init: prior}
	q, res, err := o.Fit(context.Background(), &pgsvi.Solver{Src: rand.NewPCG(5, 6)})
	if err != nil {
		t.Fatal(err)
	}
	want := mustExp(t, testkit.GammaFamily{}, 2+15, -(1 + 6))
	if kl := q.KL(want); !(kl <= 5e-3) || res.Status != pgsvi.Converged {
		t.Errorf("%v: KL to the posterior %v, Gamma%v", res.Status, kl, q.Natural(nil))
	}
	evidence := want.LogPartition() - prior.LogPartition()
	for _, c := range y {
		evidence -= testkit.LogGamma(c + 1)
	}
	if !(math.Abs(res.ELBO-evidence) <= 5*res.ELBOErr+5e-3) {
		t.Errorf("ELBO %v ± %v, log evidence %v", res.ELBO, res.ELBOErr, evidence)
	}
}

// An invalid η must produce an error and leave q unchanged.
func TestExpInvalid(t *testing.T) {
	t.Parallel()
	q := mustExp(t, testkit.GammaFamily{}, 2, -3)
	inf := math.Inf(1)
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"a shape of 0", q.SetNatural([]float64{0, -3}), pgsvi.ErrNotPosDef},
		{"a negative rate", q.SetNatural([]float64{2, 3}), pgsvi.ErrNotPosDef},
		{"NaN", q.SetNatural([]float64{math.NaN(), -3}), pgsvi.ErrNotFinite},
		{"+Inf", q.SetNatural([]float64{inf, -3}), pgsvi.ErrNotFinite},
		{"a mean that overflows", q.SetNatural([]float64{1e200, -1e-200}), pgsvi.ErrNotFinite},
		{"a mean of the logarithm above the logarithm of the mean",
			q.SetMeanParams([]float64{0, 0.9}), pgsvi.ErrNotPosDef},
		{"a mean of NaN", q.SetMeanParams([]float64{0, math.NaN()}), pgsvi.ErrNotFinite},
		{"a negative mean, as λ", q.SetParams([]float64{-1, -1}), pgsvi.ErrNotPosDef},
		{"a chart that underflows", q.SetChart([]float64{-1e4, 0}), pgsvi.ErrNotPosDef},
	} {
		if !errors.Is(c.err, c.want) || !strings.HasPrefix(c.err.Error(), "pgsvi: ") {
			t.Errorf("%s: error %v, want %v", c.name, c.err, c.want)
		}
		if eta := q.Natural(nil); eta[0] != 2 || eta[1] != -3 {
			t.Fatalf("%s changed q: %v", c.name, eta)
		}
	}
	for name, c := range map[string]struct {
		f    pgsvi.Family
		eta  []float64
		want error
	}{
		"nil family":    {nil, []float64{1}, pgsvi.ErrParam},
		"no parameters": {&mutant{Family: betaFamily{}, params: 1}, nil, pgsvi.ErrEmpty},
		"short eta":     {betaFamily{}, []float64{1}, pgsvi.ErrShape},
		"outside":       {betaFamily{}, []float64{1, -1}, pgsvi.ErrNotPosDef},
		"dependent":     {dependent{}, []float64{0, 0}, pgsvi.ErrNotPosDef},
		"mean not finite": {&mutant{Family: betaFamily{},
			mean: func(dst, _ []float64) { dst[0] = inf }}, []float64{1, 1}, pgsvi.ErrNotFinite},
		"Fisher not finite": {&mutant{Family: betaFamily{},
			fisher: func(dst *mat.SymDense, _ []float64) { dst.SetSym(0, 0, math.NaN()) }},
			[]float64{1, 1}, pgsvi.ErrNotPosDef},
	} {
		if q, err := pgsvi.NewExp(c.f, c.eta); !errors.Is(err, c.want) || q != nil {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
	for name, do := range map[string]func(){
		"moments":         func() { q.In(pgsvi.MeanCov) },
		"another family":  func() { q.KL(mustExp(t, betaFamily{}, 1, 1)) },
		"not of a family": func() { q.KL(pgsvi.NewPoint([]float64{1})) },
		"short λ":         func() { _ = q.SetParams([]float64{1}) },
		"long z":          func() { q.LogProb([]float64{1, 2}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			do()
		}()
	}
	_, err := pgsvi.Objective[*pgsvi.Exp]{F: tosses(1, 1),
		H:    pgsvi.KLTo(mustExp(t, testkit.GammaFamily{}, 1, -1)),
		Init: mustExp(t, betaFamily{}, 1, 1)}.NewStepper(context.Background(), nil, nil)
	if !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("a Gamma prior of a Beta: %v", err)
	}
}

// μ → η over a wide range of members, from a start that is far off.
func TestExpRoundTrips(t *testing.T) {
	t.Parallel()
	for _, shape := range []float64{1e-2, 0.5, 3, 1e3, 1e6} {
		for _, rate := range []float64{1e-4, 1, 1e5} {
			want := mustExp(t, testkit.GammaFamily{}, shape, -rate)
			q := mustExp(t, testkit.GammaFamily{}, 1, -1)
			if err := q.SetMeanParams(want.MeanParams(nil)); err != nil {
				t.Errorf("Gamma(%v, %v): %v", shape, rate, err)
				continue
			}
			for i, x := range q.Natural(nil) {
				// η is known as well as μ is to rounding: of shape, by log mean − mean log ≈
				// 1/(2·shape).
				if w := want.Natural(nil)[i]; !(math.Abs(x-w) <= 1e-13*math.Abs(w)*(1+100*shape)) {
					t.Errorf("Gamma(%v, %v): η_%d = %.17g", shape, rate, i, x)
				}
			}
			if kl := q.KL(want); !(kl <= 1e-9) {
				t.Errorf("Gamma(%v, %v): KL to itself %v", shape, rate, kl)
			}
		}
	}
}

// Several goroutines may compute gradients of an Exp at the same time.
func TestExpConcurrentReaders(t *testing.T) {
	t.Parallel()
	q := mustExp(t, betaFamily{}, 3, 4)
	want := mustExp(t, betaFamily{}, 3, 4).Score(nil, []float64{0.3})
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 100 {
				if got := q.Score(nil, []float64{0.3}); !floats.Equal(got, want) {
					t.Errorf("score %v, want %v", got, want)
				}
			}
		}()
	}
	wg.Wait()
}

// Under noise, valid numeric steps may fail to lower the objective of their draws. The run must then
// continue with other draws, and not fail because shorter steps only round.
func TestNumericStepsUnderNoise(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	// Rényi's divergence of order ½ within a family.
	renyi := pgsvi.DivergenceFunc(func(q, q0 pgsvi.Dist) float64 {
		a, b := q.(*pgsvi.Exp), q0.(*pgsvi.Exp)
		eta := a.Natural(nil)
		floats.Add(eta, b.Natural(nil))
		floats.Scale(0.5, eta)
		return a.LogPartition() + b.LogPartition() - 2*a.Family().LogPartition(eta)
	})
	prior := mustExp(t, testkit.GammaFamily{}, 2, -1)
	waits := []float64{0.3, 1.2, 0.8}
	ll := pgsvi.LogLik{N: len(waits), Dim: 1,
		LogProb: func(n int, z []float64) float64 { return math.Log(z[0]) - z[0]*waits[n] }}
	o := pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Expect(ll,
		pgsvi.ScoreFunctionPlain(200)), H: pgsvi.KLTo(prior),
		Init: prior}
	want := mustExp(t, testkit.GammaFamily{}, 5, -3.3)
	for seed := range testkit.Longer[uint64](2, 1) {
		q, res, err := o.Fit(context.Background(),
			&pgsvi.Solver{Divergence: renyi, MaxPasses: 20, Src: rand.NewPCG(seed, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if kl := q.KL(want); !(kl < 0.5) {
			t.Errorf("seed %d, %v: KL to the posterior %v", seed, res.Status, kl)
		}
	}
}

// If a pair of h and D has a closed form on a family, it must agree with the numeric step. Otherwise
// the slope of the objective must vanish at the numeric step.
func TestFamilyProx(t *testing.T) {
	t.Parallel()
	for _, c := range families {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seeds := testkit.Longer(uint64(6), testkit.Shorter[uint64](3, 1))
			steps := 0
			defer func() {
				if least := 12 * int(seeds); steps < least {
					t.Errorf("%d steps, at least %d", steps, least)
				}
			}()
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 4))
				from, err := c.make(rng, mildSize(rng))
				if err != nil {
					t.Fatal(err)
				}
				prior := from.Clone().(*pgsvi.Exp)
				x := from.Chart(nil)
				for i := range x {
					x[i] += 0.3 * rng.NormFloat64()
				}
				if err := prior.SetChart(x); err != nil {
					t.Fatal(err)
				}
				fisher := fisherOf(from)
				for _, coords := range []pgsvi.Coordinates{pgsvi.MeanParams, pgsvi.Natural} {
					for _, h := range []pgsvi.Convex{pgsvi.Zero(), pgsvi.KLTo(prior)} {
						for _, d := range []pgsvi.Divergence{pgsvi.KL(), pgsvi.ReverseKL(),
							pgsvi.SymKL(), pgsvi.Euclidean()} {
							q0 := from.In(coords)
							what := fmt.Sprintf("seed %d, h = %T, D = %T, %v, from %.4g", seed, h,
								d, coords, from.Natural(nil))
							// A gradient of a tenth of a standard deviation, and a step that is
							// short where D is in the units of λ.
							g, beta := make([]float64, len(x)), 0.5
							for i := range g {
								sd := math.Sqrt(fisher.At(i, i))
								if coords == pgsvi.MeanParams {
									sd = 1 / sd
								}
								g[i] = 0.02 * rng.NormFloat64() * sd
							}
							if d == pgsvi.Euclidean() {
								var most float64
								for i := range x {
									v := fisher.At(i, i)
									if coords == pgsvi.MeanParams {
										v = 1 / v
									}
									most = math.Max(most, v)
								}
								beta = 0.1 / most
							}
							p := &pgsvi.Prox{Grad: g, H: h, D: d, From: q0, Beta: beta}
							q, num := q0.Clone().(*pgsvi.Exp), q0.Clone().(*pgsvi.Exp)
							closed, err := p.Solve(q)
							if coords == pgsvi.Natural && errors.Is(err, pgsvi.ErrNotFinite) {
								// KL(q‖q0) is not convex in η, and of a discrete q bounded: there
								// may be no minimum
								continue
							}
							if err != nil {
								t.Errorf("%s: %v", what, err)
								continue
							}
							steps++
							kl := d == pgsvi.Divergence(pgsvi.KL()) && coords == pgsvi.MeanParams
							zero := h == pgsvi.Zero()
							reverse := d == pgsvi.Divergence(pgsvi.ReverseKL()) &&
								coords == pgsvi.Natural && zero
							euclidean := d == pgsvi.Divergence(pgsvi.Euclidean()) && zero
							if want := kl || reverse || euclidean; closed != want {
								t.Errorf("%s: closed is %v", what, closed)
							}
							if !closed {
								num = q
							} else if err := p.Numeric(num); err != nil {
								t.Errorf("%s: numerically: %v", what, err)
								continue
							}
							eta := q.Natural(nil)
							e := floats.Distance(eta, num.Natural(nil), math.Inf(1)) / floats.Norm(
								eta, math.Inf(1))
							if d := math.Sqrt(2 * q.KL(num)); !(e <= 2e-7) || !(d <= 1e-6) {
								t.Errorf(
									"%s: the closed form is %.3g of η from the numeric step, "+
										"%.3g standard deviations", what, e, d)
							}
							// The slope of the objective there, in terms of x, and the slope at the start.
							slope := func(q *pgsvi.Exp) float64 {
								r := h.Grad(nil, q)
								floats.Add(r, g)
								floats.AddScaled(r, 1/beta, d.Grad(nil, q, q0))
								q.ChartGrad(r, r)
								return floats.Norm(r, math.Inf(1))
							}
							if s, s0 := slope(q), slope(q0); !(s <= 1e-3*s0+1e-7) {
								t.Errorf("%s: the slope at the step is %.3g, at its start %.3g",
									what, s, s0)
							}
						}
					}
				}
			}
		})
	}
}
