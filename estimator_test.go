package pgsvi

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// exactGrad is the gradient of E_q[l] by differences of the exact expectation,
// which are taken in the parameters and know nothing of gradients.
func exactGrad(q *Gaussian, l SiteIntegrand) []float64 {
	return paramGrad(q, func(p Dist) float64 { return exactValue(p.(*Gaussian), l) })
}

func exactValue(q *Gaussian, l SiteIntegrand) (v float64) {
	for i := range l.Len() {
		_, x, y, w := l.Site(i)
		m, s2 := q.marginal(x)
		v += w * ExpectLogProb(l.Likelihood(), y, m, s2).Value
	}
	return v
}

// Exact and GaussHermite give the gradient of the exact expectation, for every
// family and all coordinates, on a mini-batch and on all terms.
func TestDeterministicEstimators(t *testing.T) {
	rng := testRand(50)
	for _, f := range testFamilies() {
		q := f.rand(rng)
		for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.5}, Poisson{}} {
			s := logisticData(51, 5, f.dim)
			s.Lik = lik
			if _, ok := lik.(Poisson); ok {
				s.Y = []float64{0, 1, 3, 0, 2}
			}
			for _, x := range s.X {
				floats.Scale(0.4, x) // GaussHermite needs a small standard deviation
			}
			for _, batch := range [][]int{nil, {3, 1}} {
				l := s.Batch(batch).(SiteIntegrand)
				want, value := exactGrad(q, l), exactValue(q, l)
				for _, e := range []Estimator{Exact{}, GaussHermite{Nodes: 100}} {
					what := fmt.Sprintf("%T, %s, %T, batch %v", e, f.name, lik, batch)
					g, v2, variance := make([]float64, len(want)), make([]float64, len(want)), make([]float64, len(want))
					v, err := e.Grad(context.Background(), nil, g, nil, q, l)
					if err != nil {
						t.Fatal(what, err)
					}
					checkNear(t, what+": value", v, value, 1e-7)
					checkClose(t, what, g, want, 1e-7)
					variance[0] = 9
					if _, err := e.Grad(context.Background(), &Env{Rng: nil}, v2, variance, q, l); err != nil || floats.Norm(variance, 1) != 0 {
						t.Errorf("%s: variance %v, %v", what, variance, err)
					}
					checkClose(t, what+": GradVar", v2, g, 0)
				}
			}
		}
	}
}

// Gauss–Hermite converges to Exact where the standard deviation is small and,
// as documented, is 1.8e-2 nats off at standard deviation 8 with 20 nodes.
func TestGaussHermiteError(t *testing.T) {
	at := func(nodes int, sd float64) float64 {
		var worst float64
		r := GaussHermite{Nodes: nodes}.rule()
		for m := -2.0; m <= 2; m += 0.25 {
			e := r.expect(BernoulliLogit{}, 1, m, sd*sd)
			worst = math.Max(worst, math.Abs(e.Value-ExpectLogProb(BernoulliLogit{}, 1, m, sd*sd).Value))
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
			t.Errorf("%d nodes, sd %v: error %.3g, want it in [%v, %v]", c.nodes, c.sd, e, c.min, c.max)
		}
	}
}

// noisyEstimators are the sampling estimators with 20 draws each, and the
// log-likelihoods they apply to.
func noisyEstimators(s Sites) map[string]struct {
	e Estimator
	l LogLikelihood
} {
	type pair = struct {
		e Estimator
		l LogLikelihood
	}
	return map[string]pair{
		"LeaveOneOut":      {ScoreFunction{Samples: 20, Baseline: LeaveOneOut}, asLogLik(s, false)},
		"Quadratic":        {ScoreFunction{Samples: 100}, asLogLik(s, false)},
		"NoBaseline":       {ScoreFunction{Samples: 20, Baseline: NoBaseline}, s},
		"Pathwise, Sites":  {Pathwise{Samples: 20}, s},
		"Pathwise, LogLik": {Pathwise{Samples: 20}, asLogLik(s, true)},
	}
}

// Each sampling estimator, over 1e5 draws in total, has the exact gradient and
// value as its mean within 4 standard errors (4.5 for the worst of the many
// elements), and reports its variance within a quarter. Leave-one-out has
// less variance than none.
func TestSamplingEstimators(t *testing.T) {
	t.Parallel()
	const samples, draws = 20, 60_000
	total := draws
	if testing.Short() {
		total = 20_000
	}
	for _, f := range testFamilies() {
		if f.dim == 1 {
			continue
		}
		s := logisticData(53, 6, f.dim)
		variances := map[string]float64{}
		for name, c := range noisyEstimators(s) {
			what := name + ", " + f.name
			rng := testRand(54)
			samples := samples
			if name == "Quadratic" {
				samples = 100 // enough for a fit
			}
			reps := total / samples
			q := f.rand(rng)
			batch := []int{0, 2, 5}
			l := c.l.Batch(batch)
			want, value := exactGrad(q, s.Batch(batch).(SiteIntegrand)), exactValue(q, s.Batch(batch).(SiteIntegrand))
			n := len(want)
			mean, m2 := make([]float64, n+1), make([]float64, n+1)
			acc := newMoments(mean, m2)
			reported := make([]float64, n)
			g, variance := make([]float64, n), make([]float64, n)
			for range reps {
				v, err := c.e.Grad(context.Background(), &Env{Rng: rng}, g, variance, q, l)
				if err != nil {
					t.Fatal(what, err)
				}
				floats.AddScaled(reported, 1/float64(reps), variance)
				acc.add(append(append([]float64(nil), g...), v))
			}
			acc.finish() // m2 is now the squared standard error of mean
			var worst float64
			for i, w := range append(want, value) {
				worst = math.Max(worst, math.Abs(mean[i]-w)/math.Sqrt(m2[i]))
			}
			if !(worst < 4.5) {
				t.Errorf("%s: %.2f standard errors off:\n got  %.5g\n want %.5g", what, worst, mean, append(want, value))
			}
			for i, r := range reported {
				empirical := m2[i] * float64(reps)
				variances[name] += empirical
				factor := 1.25
				if name == "Quadratic" {
					factor = 1.6 // fewer repetitions, and the report takes the fit as given
				}
				if r < empirical/factor || r > empirical*factor {
					t.Errorf("%s: element %d has variance %.3g, reported as %.3g", what, i, empirical, r)
				}
			}
			// Grad and GradVar are the same estimate.
			a, b := make([]float64, n), make([]float64, n)
			va, err := c.e.Grad(context.Background(), &Env{Rng: testRand(55)}, a, nil, q, l)
			if err != nil {
				t.Fatal(what, err)
			}
			vb, _ := c.e.Grad(context.Background(), &Env{Rng: testRand(55)}, b, variance, q, l)
			checkClose(t, what+": Grad and GradVar", a, b, 1e-11)
			checkNear(t, what+": Grad and GradVar", va, vb, 1e-12)
		}
		if a, b := variances["LeaveOneOut"], variances["NoBaseline"]; !(a < 0.5*b) {
			t.Errorf("%s: variance %.3g with leave-one-out, %.3g without a baseline", f.name, a, b)
		}
		if a, b := variances["Quadratic"], variances["LeaveOneOut"]/5; !(a < 0.5*b) { // five times the draws
			t.Errorf("%s: variance %.3g with the quadratic baseline, %.3g with leave-one-out and as many draws", f.name, a, b)
		}
		if a, b := variances["Pathwise, Sites"], variances["LeaveOneOut"]; !(a < 0.5*b) {
			t.Errorf("%s: variance %.3g pathwise, %.3g with the score function", f.name, a, b)
		}
	}
}

// One draw tells nothing of the variance, and must not claim that there is none.
func TestVarianceOfOneDraw(t *testing.T) {
	s := logisticData(56, 3, 1)
	q := NewIsotropic(1, 1)
	for _, e := range []Estimator{ScoreFunction{Samples: 1, Baseline: NoBaseline}, Pathwise{Samples: 1}} {
		g, v := make([]float64, 2), make([]float64, 2)
		if _, err := e.Grad(context.Background(), &Env{Rng: testRand(1)}, g, v, q, s.Batch(nil)); err != nil {
			t.Fatal(err)
		}
		if v[0] == 0 {
			t.Errorf("%T with one draw reports variance %v", e, v)
		}
	}
}

// The score function applies to any family, by way of Score alone.
func TestScoreFunctionAnyFamily(t *testing.T) {
	q := randomGaussian(testRand(57), 2, MeanCov)
	l := logisticData(58, 4, 2).Batch(nil)
	for _, e := range []ScoreFunction{{Samples: 7}, {Samples: 7, Baseline: NoBaseline}} {
		a, b := make([]float64, 5), make([]float64, 5)
		if _, err := e.Grad(context.Background(), &Env{Rng: testRand(59)}, a, nil, q, l); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Grad(context.Background(), &Env{Rng: testRand(59)}, b, nil, onlyExpFamily{q}, l); err != nil {
			t.Fatal(err)
		}
		checkClose(t, fmt.Sprintf("%+v", e), b, a, 1e-12)
	}
}

// The baseline of each value is the mean of the others, which is unbiased; the
// mean of all, the near miss, shrinks the gradient by 1 − 1/S.
func TestLeaveOneOut(t *testing.T) {
	q := randomMeanField(testRand(64), 2, MeanParams)
	l := logisticData(65, 4, 2).Batch(nil)
	const n = 3
	z, v := dense.NewRows(n, 2), make([]float64, n)
	rng := testRand(66)
	for i := range z {
		v[i] = l.LogProb(q.Rand(z[i], rng))
	}
	want := make([]float64, 4)
	for i := range z {
		others := (v[(i+1)%n] + v[(i+2)%n]) / 2
		floats.AddScaled(want, (v[i]-others)/n, q.Score(nil, z[i]))
	}
	got := make([]float64, 4)
	value, err := ScoreFunction{Samples: n}.Grad(context.Background(), &Env{Rng: testRand(66)}, got, nil, q, l)
	if err != nil {
		t.Fatal(err)
	}
	checkClose(t, "gradient", got, want, 1e-13)
	checkNear(t, "value", value, floats.Sum(v)/n, 1e-14)
}

// EstimateSites is Grad, one site at a time: with x = 1 and q = N(m, v),
// ∇_m = D1 and ∇_v = ½ D2, from the same draws where there are any.
func TestEstimateSites(t *testing.T) {
	const m, v = 0.4, 1.7
	q := must(NewMeanField([]float64{m}, []float64{v})).In(MeanCov)
	for _, est := range []Estimator{Exact{}, GaussHermite{Nodes: 9}, ScoreFunction{Samples: 11}, ScoreFunction{Samples: 11, Baseline: NoBaseline}, Pathwise{Samples: 3}} {
		for _, lik := range []Likelihood{BernoulliLogit{}, StudentT{}} {
			s := Sites{X: [][]float64{{1}}, Y: []float64{1}, Lik: lik}
			g := make([]float64, 2)
			value, err := est.Grad(context.Background(), &Env{Rng: testRand(60)}, g, nil, q, s.Batch(nil))
			if err != nil {
				t.Fatal(err)
			}
			e, d1, d2 := make([]float64, 1), make([]float64, 1), make([]float64, 1)
			if err := est.(SiteEstimator).EstimateSites(e, d1, d2, lik, s.Y, []float64{m}, []float64{v}, testRand(60)); err != nil {
				t.Fatal(err)
			}
			checkClose(t, fmt.Sprintf("%+v, %T", est, lik), []float64{e[0], d1[0], d2[0]}, []float64{value, g[0], 2 * g[1]}, 1e-13)
		}
	}
}

// Diagonal and full q give the same gradient where V is diagonal.
func TestDiagonalIsFull(t *testing.T) {
	rng := testRand(61)
	s := logisticData(62, 5, 3)
	for _, c := range allCoordinates {
		q := randomMeanField(rng, 3, c)
		full := toDense(q)
		for name, p := range noisyEstimators(s) {
			if name == "Quadratic" {
				continue // fits the products of draws for the full q only
			}
			a, b := make([]float64, 6), make([]float64, 9)
			va, err := p.e.Grad(context.Background(), &Env{Rng: testRand(63)}, a, nil, q, p.l.Batch(nil))
			if err != nil {
				t.Fatal(err)
			}
			vb, _ := p.e.Grad(context.Background(), &Env{Rng: testRand(63)}, b, nil, full, p.l.Batch(nil))
			diag := []float64{b[0], b[1], b[2], b[3], b[5], b[8]}
			if c == MeanParams { // ∂/∂m_i at fixed V + mmᵀ sees the off-diagonal elements
				gm, gv := make([]float64, 3), make([]float64, 9)
				full.toMomentGrad(gm, gv, b)
				diag = q.fromMomentGrad(nil, gm, []float64{gv[0], gv[4], gv[8]})
			}
			if c == Natural {
				continue // so does every natural parameter
			}
			checkClose(t, fmt.Sprintf("%s, %v", name, c), a, diag, 1e-10)
			checkNear(t, name, va, vb, 1e-12)
		}
	}
}
