package objective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"github.com/pgsvi/pgsvi/internal/variate"
	"gonum.org/v1/gonum/floats"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// siteBatch has the sites of an Integrand of Sites.Batch.
type siteBatch interface {
	Integrand
	Len() int
	Site(i int) (term int, x []float64, y, weight float64)
	Likelihood() Likelihood
}

// exactGrad returns the gradient of E_q[l] by differences of the exact expectation in the
// parameters, which need no derivatives.
func exactGrad(q *Gaussian, l siteBatch) []float64 {
	return paramGrad(q, func(p Dist) float64 { return exactValue(p.(*Gaussian), l) })
}

func exactValue(q *Gaussian, l siteBatch) (v float64) {
	for i := range l.Len() {
		_, x, y, w := l.Site(i)
		m, s2 := marginal(q, x)
		v += w * ExpectLogProb(l.Likelihood(), y, m, s2).Value
	}
	return v
}

// TestDeterministicEstimators checks that Exact and GaussHermite return the gradient of the exact
// expectation, for every family and all coordinates, on a mini-batch and on all terms.
func TestDeterministicEstimators(t *testing.T) {
	rng := testkit.Rand(50)
	for _, f := range testFamilies() {
		q := f.rand(rng)
		for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.5}, Poisson{}} {
			s := kit.LogisticData(51, 5, f.dim)
			s.Lik = lik
			if _, ok := lik.(Poisson); ok {
				s.Y = []float64{0, 1, 3, 0, 2}
			}
			for _, x := range s.X {
				floats.Scale(0.4, x) // GaussHermite needs a small standard deviation
			}
			for _, batch := range [][]int{nil, {3, 1}} {
				l := s.Batch(batch).(siteBatch)
				want, value := exactGrad(q, l), exactValue(q, l)
				for _, e := range []Estimator{Exact(), GaussHermite(100)} {
					what := fmt.Sprintf("%T, %s, %T, batch %v", e, f.name, lik, batch)
					g, v2, variance := make([]float64, len(want)), make([]float64, len(want)),
						make([]float64, len(want))
					v, err := e.Grad(context.Background(), nil, g, nil, q, l)
					if err != nil {
						t.Fatal(what, err)
					}
					testkit.CheckNear(t, what+": value", v, value, 1e-7)
					testkit.CheckClose(t, what, g, want, 1e-7)
					variance[0] = 9
					if _, err := e.Grad(context.Background(), &Env{Rng: nil}, v2, variance, q,
						l); err != nil || floats.Norm(variance, 1) != 0 {
						t.Errorf("%s: variance %v, %v", what, variance, err)
					}
					testkit.CheckClose(t, what+": GradVar", v2, g, 0)
				}
			}
		}
	}
}

// TestGaussHermiteError checks that GaussHermite converges to Exact if the standard deviation is
// small. At a standard deviation of 8 and with 20 nodes, it must be off by 1.8e-2 nats as
// documented.
func TestGaussHermiteError(t *testing.T) {
	at := func(nodes int, sd float64) float64 {
		var worst float64
		one, e := []float64{1}, make([]float64, 1)
		for m := -2.0; m <= 2; m += 0.25 {
			if err := (GaussHermite(nodes)).EstimateSites(e, make([]float64, 1),
				make([]float64, 1), BernoulliLogit{}, one, []float64{m}, []float64{sd * sd},
				nil); err != nil {
				t.Fatal(err)
			}
			worst = math.Max(worst,
				math.Abs(e[0]-ExpectLogProb(BernoulliLogit{}, 1, m, sd*sd).Value))
		}
		return worst
	}
	for _, c := range []struct {
		nodes    int
		sd       float64
		min, max float64
	}{
		{10, 0.5, 0, 1e-9}, {20, 0.5, 0, 1e-13}, {20, 1, 0, 1e-8}, {40, 1, 0, 1e-11},
		{0, 8, 1.6e-2, 2.0e-2}, {20, 8, 1.6e-2, 2.0e-2},
	} {
		if e := at(c.nodes, c.sd); !(e >= c.min && e <= c.max) {
			t.Errorf("%d nodes, sd %v: error %.3g, want it in [%v, %v]", c.nodes, c.sd, e, c.min,
				c.max)
		}
	}
}

// noisyEstimators returns the sampling estimators with 20 draws each, and log-likelihoods that
// they apply to.
func noisyEstimators(s Sites) map[string]struct {
	e Estimator
	l LogLikelihood
} {
	type pair = struct {
		e Estimator
		l LogLikelihood
	}
	return map[string]pair{
		"LeaveOneOut": {ScoreFunctionLeaveOneOut(20),
			kit.AsLogLik(s, false)},
		"Quadratic":        {ScoreFunction(100), kit.AsLogLik(s, false)},
		"NoBaseline":       {ScoreFunctionPlain(20), s},
		"Pathwise, Sites":  {Pathwise(20), s},
		"Pathwise, LogLik": {Pathwise(20), kit.AsLogLik(s, true)},
	}
}

// TestSamplingEstimators checks that the mean of each sampling estimator over 1e5 draws is the
// exact gradient and value within 4 standard errors (4.5 for the worst of many elements). The
// reported variance must be right within a quarter, and Leave-one-out must have a lower variance
// than no baseline.
func TestSamplingEstimators(t *testing.T) {
	t.Parallel()
	const samples, draws = 20, 60_000
	total := draws
	if !testkit.IsLong() {
		total = 20_000
	}
	for i, f := range testFamilies() {
		if f.dim == 1 || testing.Short() && i%3 > 0 {
			continue
		}
		s := kit.LogisticData(53, 6, f.dim)
		variances := map[string]float64{}
		for name, c := range noisyEstimators(s) {
			what := name + ", " + f.name
			rng := testkit.Rand(54)
			samples := samples
			if name == "Quadratic" {
				samples = 100 // enough for a fit
			}
			reps := total / samples
			q := f.rand(rng)
			batch := []int{0, 2, 5}
			l := c.l.Batch(batch)
			want, value := exactGrad(q, s.Batch(batch).(siteBatch)),
				exactValue(q, s.Batch(batch).(siteBatch))
			n := len(want)
			mean, m2 := make([]float64, n+1), make([]float64, n+1)
			acc := variate.NewMoments(mean, m2)
			reported := make([]float64, n)
			g, variance := make([]float64, n), make([]float64, n)
			for range reps {
				v, err := c.e.Grad(context.Background(), &Env{Rng: rng}, g, variance, q, l)
				if err != nil {
					t.Fatal(what, err)
				}
				floats.AddScaled(reported, 1/float64(reps), variance)
				acc.Add(append(append([]float64(nil), g...), v))
			}
			acc.Finish() // m2 now holds the squared standard error of the mean
			var worst float64
			for i, w := range append(want, value) {
				worst = math.Max(worst, math.Abs(mean[i]-w)/math.Sqrt(m2[i]))
			}
			if !(worst < 4.5) {
				t.Errorf("%s: %.2f standard errors off:\n got  %.5g\n want %.5g", what, worst, mean,
					append(want, value))
			}
			for i, r := range reported {
				empirical := m2[i] * float64(reps)
				variances[name] += empirical
				factor := 1.25
				if name == "Quadratic" {
					factor = 1.6 // fewer repetitions; the report treats the fit as given
				}
				if r < empirical/factor || r > empirical*factor {
					t.Errorf("%s: element %d has variance %.3g, reported as %.3g", what, i,
						empirical, r)
				}
			}
			// Grad and GradVar must return the same estimate.
			a, b := make([]float64, n), make([]float64, n)
			va, err := c.e.Grad(context.Background(), &Env{Rng: testkit.Rand(55)}, a, nil, q, l)
			if err != nil {
				t.Fatal(what, err)
			}
			vb, _ := c.e.Grad(context.Background(), &Env{Rng: testkit.Rand(55)}, b, variance, q, l)
			testkit.CheckClose(t, what+": Grad and GradVar", a, b, 1e-11)
			testkit.CheckNear(t, what+": Grad and GradVar", va, vb, 1e-12)
		}
		if a, b := variances["LeaveOneOut"], variances["NoBaseline"]; !(a < 0.5*b) {
			t.Errorf("%s: variance %.3g with leave-one-out, %.3g without a baseline", f.name, a, b)
		}
		// LeaveOneOut has five times as many draws.
		if a, b := variances["Quadratic"], variances["LeaveOneOut"]/5; !(a < 0.5*b) {
			t.Errorf("%s: variance %.3g with the quadratic baseline, %.3g with leave-one-out "+
				"and as many draws", f.name, a, b)
		}
		if a, b := variances["Pathwise, Sites"], variances["LeaveOneOut"]; !(a < 0.5*b) {
			t.Errorf("%s: variance %.3g pathwise, %.3g with the score function", f.name, a, b)
		}
	}
}

// TestVarianceOfOneDraw checks the variance of a single draw, which is unknown and must not be
// reported as zero.
func TestVarianceOfOneDraw(t *testing.T) {
	s := kit.LogisticData(56, 3, 1)
	q := NewIsotropic(1, 1)
	for _, e := range []Estimator{ScoreFunctionPlain(1), Pathwise(1)} {
		g, v := make([]float64, 2), make([]float64, 2)
		if _, err := e.Grad(context.Background(), &Env{Rng: testkit.Rand(1)}, g, v, q,
			s.Batch(nil)); err != nil {
			t.Fatal(err)
		}
		if v[0] == 0 {
			t.Errorf("%T with one draw reports variance %v", e, v)
		}
	}
}

// anyFamily hides that a distribution is Gaussian.
type anyFamily struct{ ExpFamily }

// TestScoreFunctionAnyFamily checks that the score function works for any family, because it uses
// only Score.
func TestScoreFunctionAnyFamily(t *testing.T) {
	q := randomGaussian(testkit.Rand(57), 2, MeanCov)
	l := kit.LogisticData(58, 4, 2).Batch(nil)
	for _, e := range []Estimator{ScoreFunction(7), ScoreFunctionPlain(7)} {
		a, b := make([]float64, 5), make([]float64, 5)
		if _, err := e.Grad(context.Background(), &Env{Rng: testkit.Rand(59)}, a, nil, q,
			l); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Grad(context.Background(), &Env{Rng: testkit.Rand(59)}, b, nil, anyFamily{q},
			l); err != nil {
			t.Fatal(err)
		}
		testkit.CheckClose(t, fmt.Sprintf("%+v", e), b, a, 1e-12)
	}
}

// TestLeaveOneOut checks that the baseline of each value is the mean of the other values, which
// is unbiased. The mean of all values would shrink the gradient by 1 − 1/S.
func TestLeaveOneOut(t *testing.T) {
	q := randomMeanField(testkit.Rand(64), 2, MeanParams)
	l := kit.LogisticData(65, 4, 2).Batch(nil)
	const n = 3
	z, v := dense.NewRows(n, 2), make([]float64, n)
	rng := testkit.Rand(66)
	for i := range z {
		v[i] = l.LogProb(q.Rand(z[i], rng))
	}
	want := make([]float64, 4)
	for i := range z {
		others := (v[(i+1)%n] + v[(i+2)%n]) / 2
		floats.AddScaled(want, (v[i]-others)/n, q.Score(nil, z[i]))
	}
	got := make([]float64, 4)
	value, err := ScoreFunction(n).Grad(context.Background(), &Env{Rng: testkit.Rand(66)},
		got,
		nil, q, l)
	if err != nil {
		t.Fatal(err)
	}
	testkit.CheckClose(t, "gradient", got, want, 1e-13)
	testkit.CheckNear(t, "value", value, floats.Sum(v)/n, 1e-14)
}

// TestEstimateSites checks that EstimateSites agrees with Grad for each site. With x = 1 and q =
// N(m, v), ∇_m = D1 and ∇_v = ½ D2, from the same draws if the estimator draws.
func TestEstimateSites(t *testing.T) {
	const m, v = 0.4, 1.7
	q := testkit.Must(NewMeanField([]float64{m}, []float64{v})).In(MeanCov)
	for _, est := range []Estimator{Exact(), GaussHermite(9), ScoreFunction(11),
		ScoreFunctionPlain(11), Pathwise(3)} {
		for _, lik := range []Likelihood{BernoulliLogit{}, StudentT{}} {
			s := Sites{X: [][]float64{{1}}, Y: []float64{1}, Lik: lik}
			g := make([]float64, 2)
			value, err := est.Grad(context.Background(), &Env{Rng: testkit.Rand(60)}, g, nil, q,
				s.Batch(nil))
			if err != nil {
				t.Fatal(err)
			}
			e, d1, d2 := make([]float64, 1), make([]float64, 1), make([]float64, 1)
			if err := est.(SiteEstimator).EstimateSites(e, d1, d2, lik, s.Y, []float64{m},
				[]float64{v}, testkit.Rand(60)); err != nil {
				t.Fatal(err)
			}
			testkit.CheckClose(t, fmt.Sprintf("%+v, %T", est, lik), []float64{e[0], d1[0], d2[0]},
				[]float64{value, g[0], 2 * g[1]}, 1e-13)
		}
	}
}

// TestDiagonalIsFull checks that diagonal and full q give the same gradient if V is diagonal.
func TestDiagonalIsFull(t *testing.T) {
	rng := testkit.Rand(61)
	s := kit.LogisticData(62, 5, 3)
	for _, c := range allCoordinates {
		q := randomMeanField(rng, 3, c)
		full := toDense(q)
		for name, p := range noisyEstimators(s) {
			if name == "Quadratic" {
				continue // only for the full q it fits products of draws
			}
			a, b := make([]float64, 6), make([]float64, 9)
			va, err := p.e.Grad(context.Background(), &Env{Rng: testkit.Rand(63)}, a, nil, q,
				p.l.Batch(nil))
			if err != nil {
				t.Fatal(err)
			}
			vb, _ := p.e.Grad(context.Background(), &Env{Rng: testkit.Rand(63)}, b, nil, full,
				p.l.Batch(nil))
			diag := []float64{b[0], b[1], b[2], b[3], b[5], b[8]}
			if c == MeanParams { // ∂/∂m_i at fixed V + mmᵀ depends on the off-diagonal elements
				m := q.Mean(nil)
				diag[0] += b[4]*m[1] + b[6]*m[2]
				diag[1] += b[4]*m[0] + b[7]*m[2]
				diag[2] += b[6]*m[0] + b[7]*m[1]
			}
			if c == Natural {
				continue // every natural parameter depends on them
			}
			testkit.CheckClose(t, fmt.Sprintf("%s, %v", name, c), a, diag, 1e-10)
			testkit.CheckNear(t, name, va, vb, 1e-12)
		}
	}
}

// document is the log-likelihood of word counts given topic proportions, with its gradient.
func document(y []float64, topics [][]float64, dim int) LogLik {
	word := func(v int, z []float64) (p float64) {
		for k, b := range topics {
			if k < len(z) {
				p += z[k] * b[v]
			} else {
				p += (1 - z[0]) * b[v]
			}
		}
		return p
	}
	return LogLik{N: 1, Dim: dim, LogProb: func(_ int, z []float64) (l float64) {
		for v, c := range y {
			if c > 0 {
				l += c * math.Log(word(v, z))
			}
		}
		return l
	}, Grad: func(dst []float64, _ int, z []float64) {
		for v, c := range y {
			p := word(v, z)
			for k := range dst {
				d := topics[k][v]
				if len(dst) < len(topics) {
					d -= topics[1][v]
				}
				dst[k] += c * d / p
			}
		}
	}}
}

// lawless is a problem in one dimension, or of a document, with the optimum of its ELBO.
type lawless struct {
	name     string
	prior    *Exp
	a, b     float64 // parameters of the optimum
	elbo     float64
	l        LogLik
	score    float64 // noise of a draw at the optimum, by scores with a baseline
	fitted   float64 // with a regression on T
	implicit float64 // along paths
	both     float64 // along paths, with the regression
}

// nonconjugate returns the problems of nonconjugate_1d, computed by mpmath with eighteen digits
// or more.
func nonconjugate() []lawless {
	const logs = 12.193990113264
	y := []float64{0.4, 1.3, 2.2, 0.9, 1.6}
	topics := [][]float64{{.6, .3, .1}, {.1, .3, .6}}
	return []lawless{
		{"shape of a Gamma", testkit.Must(NewGamma(1, 0.5)), 57.8413913900728, 25.1874785566863,
			10.6470446753954, LogLik{N: 1, Dim: 1, LogProb: func(_ int, z []float64) float64 {
				lg, _ := math.Lgamma(z[0])
				return (z[0]-1)*logs - 20*lg
			}, Grad: func(dst []float64, _ int,
				z []float64) {
				dst[0] += logs - 20*special.Digamma(z[0])
			}}, 9.3, 0.09, 2, 0.024},
		{"logit-normal", testkit.Must(NewBeta(1, 1)), 23.3540586049920867, 7.54112618127484251,
			-7.19361678891311276,
			LogLik{N: len(y), Dim: 1, LogProb: func(n int, z []float64) float64 {
				r := y[n] - math.Log(z[0]/(1-z[0]))
				return -0.5 * (r*r + expfam.Log2Pi)
			}, Grad: func(dst []float64, n int, z []float64) {
				dst[0] += (y[n] - math.Log(z[0]/(1-z[0]))) / (z[0] * (1 - z[0]))
			}}, 9.6, 0.48, 2.3, 0.13},
		{"document (5, 2, 1)", testkit.Must(NewBeta(1, 1)), 3.746831072165, 1.120458237564,
			-8.256318212003,
			document([]float64{5, 2, 1}, topics, 1), 11, 0.45, 2.5, 0.2},
		{"document (50, 2, 1)", testkit.Must(NewBeta(0.3, 0.3)), 37.58721603438, 0.3005429960985,
			-32.0320868951, document([]float64{50, 2, 1}, topics, 1), 14, 0.02, 4, 0.02},
		{"document (30, 0, 0)", testkit.Must(NewBeta(0.3, 0.3)), 25.04118412714, 0.2996008528535,
			-16.98606861054, document([]float64{30, 0, 0}, topics, 1), 14, 0.02, 4, 0.02},
	}
}

func (p lawless) objective(e Estimator) Objective[*Exp] {
	return Objective[*Exp]{F: Expect(p.l, e), H: KLTo(p.prior), Init: p.prior}
}

func (p lawless) best(t *testing.T) *Exp {
	t.Helper()
	eta := []float64{p.a, p.b}
	if p.prior.Natural(nil)[1] < 0 {
		eta[1] = -p.b
	}
	q := p.prior.Clone().(*Exp)
	if err := q.SetNatural(eta); err != nil {
		t.Fatal(err)
	}
	return q
}

// TestNonconjugate checks that quadrature finds the ELBO of the references, with slope zero at
// their optimum. The nil Solver must reach the optimum with quadrature, without derivatives, and
// along paths.
func TestNonconjugate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, p := range nonconjugate() {
		q := p.best(t)
		elbo := func(q *Exp) (v, bound float64) {
			f, bound, err := Expect(p.l, nil).Value(ctx, nil, q)
			if err != nil {
				t.Fatalf("%s: %v", p.name, err)
			}
			return -f - q.KL(p.prior), bound
		}
		v, bound := elbo(q)
		if !(math.Abs(v-p.elbo) <= 1e-11*math.Abs(p.elbo)+bound) {
			t.Errorf("%s: ELBO %.14g ± %.2g, want %.14g", p.name, v, bound, p.elbo)
		}
		for i, slope := range testkit.NumGrad(func(eta []float64) float64 {
			at := q.Clone().(*Exp)
			if err := at.SetNatural(eta); err != nil {
				t.Fatal(err)
			}
			v, _ := elbo(at)
			return v
		}, q.Natural(nil)) {
			if !(math.Abs(slope) <= 1e-7*(1+math.Abs(p.elbo))) {
				t.Errorf("%s: slope %.3g in element %d of η", p.name, slope, i)
			}
		}
		for name, e := range map[string]Estimator{"exact": Exact(), "nil": nil,
			"paths": Pathwise(0)} {
			most, near := 11.0, 1e-3
			if name == "exact" {
				near = 1e-8
			}
			for seed := range testkit.Shorter[uint64](5, 2) {
				q, res, err := p.objective(e).Fit(ctx, &Solver{Src: rand.NewPCG(seed, 1)})
				if err != nil {
					t.Errorf("%s, %s: %v", p.name, name, err)
					continue
				}
				if name == "paths" {
					near = 4e-3 // twice its goal for one dimension, because it takes 20 draws
				}
				if loss := p.elbo - res.ELBO; !(math.Abs(loss) <= near) ||
					res.Status != Converged || !(q.KL(p.best(t)) <= 2*near) {
					t.Errorf("%s, %s, seed %d: %v at ELBO %.9g, %.3g below the best", p.name, name,
						seed, res.Status, res.ELBO, loss)
				}
				if !(res.Passes <= most) && seed == 0 {
					t.Errorf("%s, %s: %v passes", p.name, name, res.Passes)
				}
			}
		}
	}
}

// TestNoise checks that the noise of a draw has not grown for any estimator. It is measured at
// the optimum in the metric of the Fisher information.
func TestNoise(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	repeats := 400
	if !testkit.IsLong() {
		repeats = 100
	}
	noise := func(name string, q *Exp, l LogLik, e Estimator, want float64) {
		t.Helper()
		v, n, err := Noise(ctx, nil, e, q, l.Batch(nil), repeats)
		if err != nil || n == 0 {
			t.Errorf("%s, %+v: %d draws, %v", name, e, n, err)
			return
		}
		// The factor 1.4 is four standard errors of a χ² with this number of repeats.
		if v *= float64(n); !(v <= 1.4*want+1e-12) {
			t.Errorf("%s, %T %+v: noise of a draw %.4g, want %.4g", name, e, e, v, want)
		}
	}
	for _, p := range nonconjugate() {
		q := p.best(t)
		for _, coords := range []Coordinates{MeanParams, Natural} {
			if !testkit.IsLong() && coords == Natural {
				continue
			}
			noise(p.name, q.In(coords), p.l, ScoreFunctionLeaveOneOut(100),
				p.score)
			noise(p.name, q.In(coords), p.l, ScoreFunction(100), p.fitted)
			noise(p.name, q.In(coords), p.l, Pathwise(8), p.implicit)
			noise(p.name, q.In(coords), p.l, Pathwise(100), p.both)
		}
		if v, n, err := Noise(ctx, nil, Exact(), q, p.l.Batch(nil), 2); v != 0 || n != 0 ||
			err != nil {
			t.Errorf("%s: quadrature has noise %v of %d draws, %v", p.name, v, n, err)
		}
	}
	// A conjugate term leaves no noise.
	rate := LogLik{N: 1, Dim: 1, LogProb: func(_ int, z []float64) float64 {
		return 15*math.Log(z[0]) - 6*z[0]
	}, Grad: func(dst []float64, _ int, z []float64) { dst[0] += 15/z[0] - 6 }}
	q := testkit.Must(NewGamma(17, 7))
	noise("a rate", q, rate, ScoreFunction(100), 0)
	noise("a rate", q, rate, Pathwise(0), 0)
	// This is a document with ten topics.
	l, q := tenTopics()
	if !testkit.IsLong() {
		repeats = 40
	}
	noise("ten topics", q, l, ScoreFunctionLeaveOneOut(100), 80)
	noise("ten topics", q, l, Pathwise(8), 7)
	if !testing.Short() {
		noise("ten topics", q, l, ScoreFunction(400), 14)
		noise("ten topics", q, l, Pathwise(400), 1.1)
	}
	if _, _, err := Noise(ctx, nil, Exact(), q, l.Batch(nil), 0); !errors.Is(err, ErrNoEstimator) {
		t.Errorf("quadrature over a Dirichlet: %v", err)
	}
	if _, _, err := Noise(ctx, nil, Exact(), q, l.Batch(nil), 1); !errors.Is(err, ErrParam) {
		t.Errorf("one repeat: %v", err)
	}
}

// tenTopics returns a document of 100 words in ten topics, and a Dirichlet close to its optimum.
func tenTopics() (LogLik, *Exp) {
	rng := rand.New(rand.NewPCG(3, 4))
	topics, y := make([][]float64, 10), make([]float64, 40)
	for k := range topics {
		topics[k] = make([]float64, len(y))
		for v := range topics[k] {
			topics[k][v] = rng.ExpFloat64() * rng.ExpFloat64()
		}
		floats.Scale(1/floats.Sum(topics[k]), topics[k])
	}
	for range 100 {
		k, u := rng.IntN(3), rng.Float64()
		for v, p := range topics[k] {
			if u -= p; u < 0 {
				y[v]++
				break
			}
		}
	}
	return document(y, topics, 10),
		testkit.Must(NewDirichlet([]float64{30, 30, 30, 1, 1, 1, 1, 1, 1, 1}))
}

// TestFamilyEstimatorsUnbiased checks that all estimators have the same mean.
func TestFamilyEstimatorsUnbiased(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	check := func(name string, q *Exp, l LogLik, e Estimator, want []float64, seed uint64) {
		t.Helper()
		env := &Env{Rng: rand.New(rand.NewPCG(seed, 9))}
		n := len(want)
		repeats := testkit.Longer(300, 100)
		g, variance := make([]float64, n), make([]float64, n)
		acc, said := variate.NewMoments(make([]float64, n), nil), make([]float64, n)
		for range repeats {
			if _, err := e.Grad(ctx, env, g, variance, q, l.Batch(nil)); err != nil {
				t.Fatal(err)
			}
			acc.Add(g)
			floats.AddScaled(said, 1/float64(repeats), variance)
		}
		acc.Finish()
		for i, m := range acc.Mean {
			if se := math.Sqrt(acc.M2[i]); !(math.Abs(m-want[i]) <= 5*se+
				1e-9*(1+math.Abs(want[i]))) {
				t.Errorf("%s, %T %+v: element %d has the mean %.6g ± %.2g, want %.6g", name, e, e,
					i, m, se, want[i])
			}
			if v := acc.M2[i] * float64(repeats); !(v <= 2*said[i]+1e-18) ||
				!(said[i] <= 2.5*v+1e-18) {
				t.Errorf("%s, %T %+v: element %d has variance %.4g, reported as %.4g", name, e, e,
					i, v, said[i])
			}
		}
	}
	for i, p := range nonconjugate()[:testkit.Shorter(3, 2)] {
		for _, coords := range []Coordinates{MeanParams, Natural} {
			q := p.best(t).In(coords)
			want := make([]float64, 2)
			if _, err := (Exact()).Grad(ctx, nil, want, nil, q, p.l.Batch(nil)); err != nil {
				t.Fatal(err)
			}
			for _, e := range []Estimator{ScoreFunction(60), ScoreFunctionLeaveOneOut(60),
				Pathwise(8), Pathwise(60)} {
				check(fmt.Sprintf("%s, %v", p.name, coords), q, p.l, e, want, uint64(i))
			}
		}
	}
	if testing.Short() {
		return
	}
	l, q := tenTopics()
	want, g := make([]float64, 10), make([]float64, 10)
	env := &Env{Rng: rand.New(rand.NewPCG(1, 2))}
	const many = 60
	for range many {
		if _, err := (Pathwise(1000)).Grad(ctx, env, g, nil, q, l.Batch(nil)); err != nil {
			t.Fatal(err)
		}
		floats.AddScaled(want, 1./many, g)
	}
	check("ten topics", q, l, ScoreFunction(100), want, 1)
	check("ten topics", q, l, Pathwise(100), want, 2)
}

// TestTenTopics fits a Dirichlet with ten parts, with gradients.
func TestTenTopics(t *testing.T) {
	t.Parallel()
	l, _ := tenTopics()
	prior := testkit.Must(NewDirichlet([]float64{.5, .5, .5, .5, .5, .5, .5, .5, .5, .5}))
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		o := Objective[*Exp]{F: Expect(l, Pathwise(0)), H: KLTo(prior), Init: prior}
		q, res, err := o.Fit(context.Background(), &Solver{Src: rand.NewPCG(seed, 2)})
		if err != nil {
			t.Fatal(err)
		}
		best, far, err := o.Fit(context.Background(),
			&Solver{Src: rand.NewPCG(seed, 3), Converger: Never(), MaxPasses: 100, EvalEvery: -1})
		if err != nil {
			t.Fatal(err)
		}
		if kl := q.KL(best); res.Status != Converged || !(res.Passes <= 60) || !(kl <= 0.04) {
			t.Errorf("seed %d: %v after %v passes, ELBO %.6g ± %.2g; after %v %.6g ± %.2g; KL %.3g",
				seed, res.Status, res.Passes, res.ELBO, res.ELBOErr, far.Passes, far.ELBO,
				far.ELBOErr, kl)
		}
	}
}

// TestStepsKeepOffTheEdge checks a step that is shortened to stay in the set of natural
// parameters. It must stay away from the edge by a tenth of the distance of its start, because
// halving alone could end arbitrarily close to the edge.
func TestStepsKeepOffTheEdge(t *testing.T) {
	prior := testkit.Must(NewBeta(0.3, 0.3))
	for name, noise := range map[string]bool{"exact": false, "noisy": true} {
		// The target is (5.3, −0.2999999), so the halfway point is only 5e-8 inside.
		f := SmoothFunc(1, !noise, func(_ *Env, dst []float64, q Dist, _ []int) (float64, error) {
			e := q.(*Exp)
			c := []float64{-5, 0.5999999}
			e.FromMeanGrad(dst, c)
			return floats.Dot(c, e.MeanParams(nil)), nil
		})
		o := Objective[*Exp]{F: f, H: KLTo(prior), Init: prior}
		st, err := o.NewStepper(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k := range 3 {
			from := testkit.Must(o.Posterior(st)).Natural(nil)[1]
			if _, err := st.Step(context.Background(), nil, nil, math.Inf(1)); err != nil {
				t.Fatal(err)
			}
			if b := testkit.Must(o.Posterior(st)).Natural(nil)[1]; !(b >= 0.0999*from) {
				t.Errorf("%s, step %d: from b = %.4g to %.4g", name, k, from, b)
			}
		}
	}
}
