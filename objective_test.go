package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/descent"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

func randomGaussian(rng *rand.Rand, d int, c Coordinates) *Gaussian {
	return must(NewGaussian(normals(rng, d), randomCov(rng, d))).In(c)
}

func randomMeanField(rng *rand.Rand, d int, c Coordinates) *Gaussian {
	v := normals(rng, d)
	for i := range v {
		v[i] = math.Exp(0.5 * v[i])
	}
	return must(NewMeanField(normals(rng, d), v)).In(c)
}

// onlyExpFamily hides that a distribution is Gaussian.
type onlyExpFamily struct{ ExpFamily }

func (e onlyExpFamily) KL(p Dist) float64 { return e.ExpFamily.KL(p.(onlyExpFamily).ExpFamily) }

func (e onlyExpFamily) naturalOf(p ExpFamily) []float64 {
	if o, ok := p.(onlyExpFamily); ok {
		return e.ExpFamily.naturalOf(o.ExpFamily)
	}
	return nil
}

func (e onlyExpFamily) Clone() Dist { return onlyExpFamily{e.ExpFamily.Clone().(ExpFamily)} }

// TestKLGradientsAnyFamily checks that the gradient of KL accepts any ExpFamily and not only the
// Gaussians of the package.
func TestKLGradientsAnyFamily(t *testing.T) {
	rng := testRand(21)
	for _, c := range []Coordinates{MeanParams, MeanCov, Natural, Cholesky, LogCholesky} {
		for _, d := range []int{1, 3} {
			for name, draw := range map[string]func(*rand.Rand, int, Coordinates) *Gaussian{
				"full": randomGaussian, "diagonal": randomMeanField} {
				q, p := draw(rng, d, c), draw(rng, d, c)
				checkClose(t, fmt.Sprintf("%s, %v, %d", name, c, d),
					klGrad(nil, onlyExpFamily{q}, onlyExpFamily{p}), klGrad(nil, q, p), 1e-11)
			}
		}
	}
}

// TestNaturalOf checks that a Gaussian has the natural parameters of another family if it belongs
// to it. A diagonal Gaussian belongs to the full family, but not the other way round.
func TestNaturalOf(t *testing.T) {
	rng := testRand(10)
	for _, d := range []int{1, 3} {
		g, p := randomGaussian(rng, d, MeanCov), randomMeanField(rng, d, Natural)
		if p.naturalOf(g) != nil || g.naturalOf(NewIsotropic(d+1, 1)) != nil ||
			p.naturalOf(NewIsotropicMeanField(d+1, 1)) != nil {
			t.Error("naturalOf takes another family or dimension")
		}
		full := must(NewGaussian(p.Mean(nil), p.Cov())).In(Natural)
		checkClose(t, "natural parameters", full.naturalOf(p), full.Natural(nil), 1e-13)
		if p.naturalOf(full) != nil || full.setState(p) || p.setState(full) {
			t.Error("a full Gaussian passes for a diagonal one")
		}
		if p.In(Cholesky).full() != nil {
			t.Error("a diagonal Gaussian has a matrix")
		}
	}
}

// TestDiagonalMetric checks Euclidean in another metric. Its gradient must match its value, its
// step with L1 must be the soft threshold of each element, and an invalid scale must be an error.
func TestDiagonalMetric(t *testing.T) {
	rng := testRand(20)
	d := diagonalMetric{[]float64{0.5, 1.5, 2.5}}
	for range 20 {
		q, q0 := NewPoint(normals(rng, 3)), NewPoint(normals(rng, 3))
		g := numGrad(func(x []float64) float64 { return d.Value(NewPoint(x), q0) },
			q.Params(nil))
		checkClose(t, "gradient", d.Grad(nil, q, q0), g, 1e-8)
		if v := d.Value(q, q0); !(v > 0) || d.Value(q, q) != 0 {
			t.Errorf("D is %v, of equal arguments %v", v, d.Value(q, q))
		}
		const weight, beta = 0.4, 0.7
		grad := normals(rng, 3)
		p := &Prox{Grad: grad, H: L1(weight, 3), D: d, From: q0, Beta: beta}
		if closed, err := d.Prox(q, p); err != nil || !closed {
			t.Fatal(closed, err)
		}
		for i, z := range q.Params(nil) {
			rate := beta / d.Scale[i]
			to := q0.Params(nil)[i] - rate*grad[i]
			want := math.Copysign(math.Max(0, math.Abs(to)-rate*weight), to)
			checkNear(t, "soft threshold", z, want, 1e-14)
		}
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, scale := range [][]float64{{1, 0, 1}, {1, inf, 1}, {1, 1, nan}} {
		if err := (diagonalMetric{scale}).Check(NewPoint(make([]float64, 3))); !errors.Is(err,
			ErrParam) || !prefixedOnce(err) {
			t.Errorf("%v: %v", scale, err)
		}
	}
	if err := d.Check(NewPoint([]float64{0})); !errors.Is(err, ErrShape) || !prefixedOnce(err) {
		t.Errorf("a scale of another length: %v", err)
	}
}

// TestCertificateConcludes checks the bound of the theorem with constants of the prototype's
// stochastic runs.
func TestCertificateConcludes(t *testing.T) {
	var truth struct {
		Data map[string]struct {
			C0, Alpha, L, Beta    float64
			M, T                  int
			Bound, MeanG2, Sigma2 float64
		}
	}
	readTruthJSON(t, "theory_prototype.json", &truth)
	const start = 10 // arbitrary, because the bound is on differences
	for _, name := range []string{"Euclidean, (m, sd) stochastic",
		"KL, mean parameters stochastic"} {
		want, ok := truth.Data[name]
		if !ok {
			t.Fatalf("no %s in the truth", name)
		}
		steps, m := float64(want.T), float64(want.M)
		c := Certificate{Alpha: want.Alpha, L: want.L, start: start,
			Optimum: truth.Data["Euclidean, (m, v)"].C0 - start}
		c.sums = descent.Sums{Beta: steps * want.Beta, Beta2: steps * want.Beta * want.Beta,
			Map1: steps * want.Beta * want.MeanG2,
			Map2: steps * want.Beta * want.Beta * want.MeanG2, Noisy: want.T,
			Terms:       want.T * want.M,
			BetaOfNoise: steps * want.Beta, BetaByTerm: steps * want.Beta / m,
			Noise: steps * want.Beta * want.Sigma2}
		c.conclude()
		checkNear(t, name+", bound", c.Bound, want.Bound, 1e-12)
		checkNear(t, name+", mean", c.MeanGradMap2, want.MeanG2, 1e-12)
		checkNear(t, name+", sigma²", c.Sigma2, want.Sigma2, 1e-12)
	}
}

// randomIntercepts is a logistic regression with 2 slopes, a log-sd and 20 intercepts, written as a
// user would write it.
func randomIntercepts(rng *rand.Rand) LogLik {
	const groups, each = 20, 8
	n := groups * each
	x, y, b := make([][2]float64, n), make([]float64, n), make([]float64, groups)
	for g := range b {
		b[g] = 0.8 * rng.NormFloat64()
	}
	for i := range n {
		x[i] = [2]float64{rng.NormFloat64(), rng.NormFloat64()}
		y[i] = plusMinus(rng.Float64() < 1/(1+math.Exp(-(x[i][0]-0.5*x[i][1]+b[i/each]))))
	}
	eta := func(i int, z []float64) float64 {
		return z[0]*x[i][0] + z[1]*x[i][1] + math.Exp(z[2])*z[3+i/each]
	}
	return LogLik{N: n, Dim: 3 + groups, LogProb: func(i int, z []float64) float64 {
		return BernoulliLogit{}.LogProb(y[i], eta(i, z))
	}, Grad: func(dst []float64, i int, z []float64) {
		d, _ := BernoulliLogit{}.Derivs(y[i], eta(i, z))
		sd := math.Exp(z[2])
		dst[0] += d * x[i][0]
		dst[1] += d * x[i][1]
		dst[2] += d * sd * z[3+i/each]
		dst[3+i/each] += d * sd
	}}
}

// TestRandomIntercepts checks that a LogLik of 23 dimensions reaches the goal of the zero Solver,
// and that evaluations take at most a fifth of the work.
func TestRandomIntercepts(t *testing.T) {
	t.Parallel()
	long(t)
	ll := randomIntercepts(testRand(3))
	reached := map[bool][]float64{}
	for name, c := range map[string]struct {
		e        Estimator
		diagonal bool
		batch    int
	}{
		"score function":           {nil, false, 0},
		"score function, diagonal": {nil, true, 0},
		"pathwise":                 {Pathwise(100), false, 0},
		"pathwise, diagonal":       {Pathwise(0), true, 0},
		"pathwise, batches":        {Pathwise(100), false, 60},
	} {
		prior := NewIsotropic(23, 1)
		if c.diagonal {
			prior = NewIsotropicMeanField(23, 1)
		}
		res := solve(t, Solver{BatchSize: c.batch},
			Objective[*Gaussian]{F: Expect(ll, c.e), H: KLTo(prior), Init: prior})
		s := res.Stepper.(*objectiveStepper)
		t.Logf("%s: %v after %v passes, ELBO %v ± %.2g, gap %.2g, goal %.2g; work %.3g, "+
			"evaluations %.3g, checks %.3g", name, res.Status, res.Passes, res.ELBO, res.ELBOErr,
			res.Gap, res.Goal, s.Spent, s.Valued, s.Verified)
		if res.Status != Converged {
			t.Errorf("%s: %v after %v passes, gap %v, goal %v", name, res.Status, res.Passes,
				res.Gap, res.Goal)
		}
		if !(s.Valued <= 0.2*(s.Valued+s.Spent)) {
			t.Errorf("%s: evaluations take %v of %v", name, s.Valued, s.Valued+s.Spent)
		}
		for i, least := 0, math.Inf(1); i < len(res.Trace); i++ { // no saw-tooth
			if gap := res.Trace[i].Gap; gap > 1.5*least {
				t.Errorf("%s: after %v passes the gap rises from %v to %v", name,
					res.Trace[i].Passes, least, gap)
			} else {
				least = min(least, gap)
			}
		}
		reached[c.diagonal] = append(reached[c.diagonal], res.ELBO)
	}
	for diagonal, elbos := range reached {
		if least, most := slices.Min(elbos), slices.Max(elbos); !(most-least < 0.2) {
			t.Errorf("diagonal %v: ELBOs %v of one problem", diagonal, elbos)
		}
	}
}

// TestCountedWork checks that the counted work equals the actual work.
func TestCountedWork(t *testing.T) {
	calls := 0
	s := logisticData(94, 30, 2)
	ll := asLogLik(s, false)
	logProb := ll.LogProb
	ll.LogProb = func(n int, z []float64) float64 {
		calls++
		return logProb(n, z)
	}
	prior := NewIsotropic(2, 4)
	res := solve(t, Solver{},
		Objective[*Gaussian]{F: Expect(ll, ScoreFunction(20)), H: KLTo(prior),
			Init: prior})
	st := res.Stepper.(*objectiveStepper)
	evaluations := float64(len(res.Trace) * leastDraws * 30)
	if got := st.Spent + st.Verified + evaluations; got != float64(calls) {
		t.Errorf("%v + %v + %v log-likelihoods counted, %d called", st.Spent, st.Verified,
			evaluations, calls)
	}
}

// TestInnerAllocations checks that a linearization allocates about as much as a plain step.
func TestInnerAllocations(t *testing.T) {
	if testkit.Race {
		t.Skip("the race detector allocates")
	}
	beta := must(NewBeta(1, 1))
	y := []float64{0.4, 1.3, 2.2}
	l := LogLik{N: len(y), Dim: 1, LogProb: func(n int, z []float64) float64 {
		r := y[n] - math.Log(z[0]/(1-z[0]))
		return -0.5 * r * r
	}}
	prior := NewIsotropic(2, 4)
	for name, c := range map[string]problem{
		"Gaussian": {F: Expect(logisticData(75, 40, 2), nil), H: KLTo(prior), Init: prior},
		"Beta":     {F: Expect(l, nil), H: KLTo(beta), Init: beta},
	} {
		allocs := func(inner int) float64 {
			c.Inner = inner
			st := must(c.newStepper(nil))
			env := NewEnv(nil, 1)
			step := func() {
				if _, err := st.Step(context.Background(), env, nil, 0.01); err != nil {
					t.Fatal(err)
				}
			}
			step()
			grads := 0.0
			n := testing.AllocsPerRun(10, func() {
				step()
				grads = float64(st.(*objectiveStepper).Visits) / float64(st.Len())
			})
			return n / grads
		}
		value := testing.AllocsPerRun(10, func() {
			c.H.Value(c.Init)
			KL().Value(c.Init, c.Init)
		})
		// h and D are evaluated at the target and at the point on the way to it. The last target of
		// a step may have a negligible predicted gain, and is then solved for without a gradient.
		if one, many := allocs(1), allocs(6); many > one+2*value+2 {
			t.Errorf("%s: %v allocations a gradient, %v in a plain step, %v for h and D", name,
				many, one, value)
		}
	}
}

// TestCholeskyIsLazy checks that V and V⁻¹ of a Gaussian that was set by its factor are computed
// when they are first read, by any number of readers, and match the factor.
func TestCholeskyIsLazy(t *testing.T) {
	rng := testRand(9)
	for _, c := range []Coordinates{Cholesky, LogCholesky} {
		const d = 70 // more than a panel
		a := mat.NewSymDense(d, nil)
		x := mat.NewDense(d, d, normals(rng, d*d))
		a.SymOuterK(1, x)
		for i := range d {
			a.SetSym(i, i, a.At(i, i)+d)
		}
		want := must(NewGaussian(normals(rng, d), a))
		q := NewIsotropic(d, 1).In(c)
		if err := q.SetParams(want.In(c).Params(nil)); err != nil {
			t.Fatal(err)
		}
		p := randomMeanField(rng, d, MeanCov)
		lazy := q.Clone().(*Gaussian)
		checkClose(t, "variances", lazy.Var(nil), want.Var(nil), 1e-12)
		checkClose(t, "∇KL to full", KLTo(want).Grad(nil, lazy), KLTo(want).Grad(nil, q), 1e-12)
		if lazy.full().Filled() {
			t.Error("V was computed without need")
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if !mat.EqualApprox(lazy.Cov(), a, 1e-10) ||
					!mat.EqualApprox(lazy.precisionMatrix(), want.precisionMatrix(), 1e-10) {
					t.Errorf("%v: V or V⁻¹ is off", c)
				}
			})
		}
		wg.Wait()
		if !slices.Equal(lazy.Var(nil), q.Var(nil)) {
			t.Errorf("%v: the variances depend on when they are read", c)
		}
		checkNear(t, "KL", lazy.KL(p), want.KL(p), 1e-11)
		// compare with the gradient computed from (m, V)
		gm, gv := make([]float64, d), make([]float64, d*d)
		m := want.In(MeanCov)
		m.form.ToMomentGrad(gm, gv, KLTo(p).Grad(nil, m))
		checkClose(t, "∇KL to diagonal", KLTo(p).Grad(nil, lazy),
			lazy.form.FromMomentGrad(nil, gm, gv), 1e-11)
		value := KLTo(p).(valuer).valueGrad(make([]float64, lazy.NumParams()), lazy)
		checkNear(t, "value with the gradient", value, want.KL(p), 1e-11)
	}
}

// quadrature returns E_q[l] by quadrature and a bound on its error, and stores its gradient in g.
func quadrature(q *Exp, l LogLikelihood, g []float64) (v, bound float64, err error) {
	return integral(nil, q, l.Batch(nil)).Quadrature(g)
}

// TestQuadrature checks that quadrature and sums compute E[cᵀT(z)] = cᵀμ, and its gradient c in μ,
// for narrow and wide distributions.
func TestQuadrature(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, size := range []float64{0.2, 1, 30, 1e4, 1e9} {
		for name, q := range map[string]*Exp{
			"Gamma": must(NewGamma(size, 3)), "InverseGamma": must(NewInverseGamma(size, 0.1)),
			"Beta": must(NewBeta(size, 0.7*size)), "skew Beta": must(NewBeta(size, 0.3)),
			"Bernoulli":   must(NewBernoulli(1 / (1 + size))),
			"Categorical": must(NewCategorical([]float64{1, size, 2, 3})),
			"Poisson":     must(NewPoisson(math.Min(size, 1e6))),
		} {
			n := q.NumParams()
			c, stat, g := make([]float64, n), make([]float64, n), make([]float64, n)
			mu, fisher := q.MeanParams(nil), mat.NewSymDense(n, nil)
			q.Family().Fisher(fisher, q.Natural(nil))
			var want, scale float64
			for i := range c {
				c[i] = rng.NormFloat64()
				if i == 1 && (name == "Beta" || name == "skew Beta") {
					c[i] = 0 // near z = 1 a float64 cannot represent the logarithm of 1 − z
				}
				want += c[i] * mu[i]
				scale += math.Abs(c[i]) * (math.Abs(mu[i]) + math.Sqrt(fisher.At(i, i)))
			}
			l := LogLik{N: 1, Dim: 1, LogProb: func(_ int, z []float64) float64 {
				q.Family().Stat(stat, z)
				sum := 0.0
				for i, x := range stat {
					if c[i] != 0 {
						sum += c[i] * x
					}
				}
				return sum
			}}
			v, bound, err := quadrature(q, l, g)
			if err != nil {
				t.Errorf("%s of %v: %v", name, size, err)
				continue
			}
			const tol = 1e-10
			if !(math.Abs(v-want) <= tol*scale+bound+2e-16) { // z itself is rounded
				t.Errorf("%s of %v: %.15g ± %.2g, want %.15g", name, size, v, bound, want)
			}
			floats.Sub(g, c)
			var inEta mat.VecDense
			inEta.MulVec(fisher, mat.NewVecDense(n, g))
			for i, e := range inEta.RawVector().Data {
				if !(math.Abs(e) <= tol*scale*math.Sqrt(fisher.At(i, i))+1e-12) {
					t.Errorf("%s of %v: the gradient in η is off by %.3g in element %d", name, size,
						e, i)
				}
			}
		}
	}
	// Values that are not finite are named, and functions that are too rough are rejected.
	q := must(NewGamma(2, 1))
	for _, c := range []struct {
		f    func(z float64) float64
		want error
	}{
		{func(z float64) float64 { return math.Log(z - 1) }, ErrNotFinite},
		{func(z float64) float64 {
			return math.Floor(1e4*z) - 1e4*z +
				1e6*math.Mod(math.Floor(1e7*z), 2)
		}, ErrNoEstimator},
	} {
		l := LogLik{N: 1, Dim: 1, LogProb: func(_ int, z []float64) float64 { return c.f(z[0]) }}
		if _, _, err := quadrature(q, l, make([]float64, 2)); !errors.Is(err, c.want) {
			t.Errorf("error %v, want %v", err, c.want)
		}
	}
}

// asLogLik writes the same terms as a user would, with or without the gradient.
func asLogLik(s Sites, grad bool) LogLik {
	l := LogLik{N: len(s.Y), Dim: len(s.X[0]), LogProb: func(n int, z []float64) float64 {
		return s.Lik.LogProb(s.Y[n], floats.Dot(s.X[n], z))
	}}
	if grad {
		l.Grad = func(dst []float64, n int, z []float64) {
			d1, _ := s.Lik.(Differentiable).Derivs(s.Y[n], floats.Dot(s.X[n], z))
			floats.AddScaled(dst, d1, s.X[n])
		}
	}
	return l
}

func solve(t *testing.T, s Solver, m Model) *Result {
	t.Helper()
	res, err := s.Run(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// logisticData is a small data set with labels −1 and +1.
func logisticData(seed uint64, n, d int) Sites {
	rng := testRand(seed)
	s := Sites{X: dense.NewRows(n, d), Y: make([]float64, n), Lik: BernoulliLogit{}}
	for i, x := range s.X {
		copy(x, normals(rng, d))
		s.Y[i] = 1
		if x[0]-0.5+rng.NormFloat64() < 0 {
			s.Y[i] = -1
		}
	}
	return s
}

// loadIris reads the iris data.
func loadIris(t testing.TB) (x *mat.Dense, species []float64) {
	t.Helper()
	return readCSV(t, open(t, filepath.Join("testdata", "iris", "iris.csv")))
}
