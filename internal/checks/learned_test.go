package checks

import (
	"context"
	"math"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// coverageCases holds the likelihoods to learn and the likelihoods that the responses come from.
var coverageCases = []struct {
	name      string
	lik, from Likelihood
	intercept float64
}{
	{"Gaussian", GaussianNoise{}, GaussianNoise{Var: 1}, 0},
	{"StudentT", StudentT{}, StudentT{DF: 4, Scale: 1}, 0},
	{"Laplace", Laplace{}, Laplace{Scale: 1}, 0},
	{"Gamma", Gamma{}, Gamma{Shape: 2}, 1},
	{"Exponential", Exponential{}, Exponential{}, 1},
	{"Weibull", Weibull{}, Weibull{Shape: 1.5}, 1},
	{"LogNormal", LogNormal{}, LogNormal{Scale: 0.8}, 1},
	{"Poisson", Poisson{}, Poisson{}, 1},
	{"NegativeBinomial", NegativeBinomial{}, NegativeBinomial{Shape: 2}, 1},
	{"ZeroInflated", ZeroInflated{}, ZeroInflated{Zero: 0.3}, 1},
	{"ZeroInflated Shape", ZeroInflated{Shape: 1}, ZeroInflated{Zero: 0.3, Shape: 2}, 1},
	{"Hurdle", Hurdle{}, Hurdle{Zero: 0.4}, 1},
	{"Hurdle Shape", Hurdle{Shape: 1}, Hurdle{Zero: 0.4, Shape: 2}, 1},
	{"logit", BernoulliLogit{}, BernoulliLogit{}, 0},
	{"probit", BernoulliProbit{}, BernoulliProbit{}, 0},
	{"Binomial", Binomial{Trials: 5}, Binomial{Trials: 5}, 0},
	{"BetaBinomial", BetaBinomial{Trials: 8}, BetaBinomial{Trials: 8, Precision: 4}, 0},
	{"Beta", Beta{}, Beta{Precision: 6}, 0},
	{"Ordinal", Ordinal{Cuts: []float64{-1, 0, 1}}, Ordinal{Cuts: []float64{-1.5, 0, 1}}, 0},
}

// drawn returns a response from lik with the latent value η.
func drawn(t *testing.T, lik Likelihood, eta, level float64) float64 {
	t.Helper()
	y, err := NewPrediction(lik, []float64{eta}, []float64{0}).Quantile(nil, level)
	if err != nil {
		t.Fatal(err)
	}
	return y[0]
}

// covered counts intervals, and intervals that contain the truth.
type covered struct{ in, all float64 }

func (c *covered) add(lo, hi, truth float64) {
	c.all++
	if lo <= truth && truth <= hi {
		c.in++
	}
}

func (c *covered) share() float64 { return c.in / c.all }

// TestLearnedCoverage checks that 90% intervals of weights, means and probabilities cover about
// 90% if the prior and the likelihood are learned from few rows. If predictions ignored the error
// of the learned values, means of a Hurdle would cover 74% and probabilities of a
// NegativeBinomial 71%.
func TestLearnedCoverage(t *testing.T) {
	least := map[int]float64{60: testkit.Longer(0.855, 0.78), 30: 0.84}
	for _, n := range testkit.Longer([]int{60, 30}, []int{60}) {
		for _, c := range testkit.Longer(coverageCases, coverageCases[8:13]) {
			var weights, means, probs covered
			for seed := range testkit.Longer(uint64(300), 25) {
				learnedCoverage(t, n, testkit.Seeds(300)+seed, c.lik, c.from, c.intercept, &weights,
					&means, &probs)
			}
			t.Logf("%s, %d rows: weights %.3f, means %.3f, probabilities %.3f", c.name, n,
				weights.share(), means.share(), probs.share())
			for what, of := range map[string]covered{"weights": weights, "means": means,
				"probabilities": probs} {
				if of.share() < least[n] || of.share() > 0.99 {
					t.Errorf("%s, %d rows: 90%% intervals of %s cover %.3f of %v", c.name, n, what,
						of.share(), of.all)
				}
			}
		}
	}
}

// TestLearnedHeavyTails learns the degrees of freedom of a StudentT, which may be 1 or less
// within their uncertainty. There the distribution has no mean. For all larger values its mean is
// η.
func TestLearnedHeavyTails(t *testing.T) {
	var weights, means, probs covered
	learnedCoverage(t, 60, 512, StudentT{}, StudentT{DF: 4, Scale: 1}, 0, &weights, &means, &probs)
	if means.all != 5 {
		t.Errorf("%v intervals of 5 means", means.all)
	}
}

// learnedCoverage draws weights and responses, and counts the intervals of a fit.
func learnedCoverage(t *testing.T, n int, seed uint64, lik, from Likelihood, intercept float64,
	weights, means, probs *covered) {
	t.Helper()
	const z90 = 1.6448536269514722
	rng := testkit.Rand(seed)
	x, xnew := testkit.NormalMatrix(rng, n, 3), testkit.NormalMatrix(rng, 5, 3)
	w := testkit.Normals(rng, 3)
	for j := range w {
		w[j] *= 0.7
	}
	_, ordinal := lik.(Ordinal) // has cut points instead of an intercept
	if !ordinal {
		intercept += 0.7 * rng.NormFloat64()
	}
	eta := func(x mat.Matrix) []float64 {
		e := testkit.Predictors(x, w)
		for i := range e {
			e[i] += intercept
		}
		return e
	}
	y := eta(x)
	for i, e := range y {
		y[i] = drawn(t, from, e, rng.Float64())
		if _, ok := lik.(Beta); ok {
			y[i] = min(max(y[i], 1e-6), 1-1e-6)
		}
	}
	g := kit.MustGLM(t, x, y, lik, GLMOptions{Intercept: !ordinal})
	_, post, _, err := g.Learn(context.Background(), nil, nil)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	mean, sd := post.Mean(nil), post.SD(nil)
	for j, truth := range w {
		weights.add(mean[j]-z90*sd[j], mean[j]+z90*sd[j], truth)
	}
	p, etas := post.At(xnew), eta(xnew)
	lo, hi, err := p.MeanInterval(nil, nil, 0.9)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for i, e := range etas {
		m, _ := from.(Responder).Moments(e)
		means.add(lo[i], hi[i], m)
	}
	var responses []float64
	switch kit.FactsOf(lik).Support {
	case SignLabels:
		responses = []float64{1}
	case Counts:
		responses = []float64{0, 1, 2}
	}
	for _, y := range responses {
		lo, hi, err := p.ProbInterval(nil, nil, y, 0.9)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, e := range etas {
			probs.add(lo[i], hi[i], math.Exp(from.LogProb(y, e)))
		}
	}
}

// learnedModel fits a model with the given hyperparameters. It returns means and variances of
// predictions, and the objective of Learn.
type learnedModel func(values []float64) (m, v []float64, f float64)

// move returns the value of p after a step of h in its coordinate θ.
func move(p Param, h float64) float64 {
	switch lower, upper := !math.IsInf(p.Min, -1), !math.IsInf(p.Max, 1); {
	case lower && upper:
		t := math.Log(p.Value-p.Min) - math.Log(p.Max-p.Value) + h
		return p.Min + (p.Max-p.Min)/(1+math.Exp(-t))
	case lower:
		return p.Min + (p.Value-p.Min)*math.Exp(h)
	}
	return p.Value + h
}

// checkSpread compares variances of predictions after Learn with the formula. The derivatives and
// the curvature in the formula come from differences of fits. If wider is true, variances also
// change with the hyperparameters.
func checkSpread(t *testing.T, name string, learned *Learned, got []float64, fit learnedModel,
	wider bool) {
	t.Helper()
	const h = 0.02
	var free []int
	at := make([]float64, len(learned.Params))
	for i, p := range learned.Params {
		if at[i] = p.Value; !p.Fixed {
			free = append(free, i)
		}
	}
	k := len(free)
	moved := func(a, b int, ha, hb float64) []float64 {
		steps := make([]float64, len(at))
		steps[free[a]] += ha
		steps[free[b]] += hb
		values := slices.Clone(at)
		for i, s := range steps {
			if s != 0 {
				values[i] = move(learned.Params[i].Param, s)
			}
		}
		return values
	}
	penalty := func(i int, h float64) float64 {
		p := learned.Params[free[i]]
		theta := math.Log(p.Value - p.Min)
		if !math.IsInf(p.Max, 1) {
			theta -= math.Log(p.Max - p.Value)
		}
		return 0.5 * math.Pow((theta+h-p.Prior.Mean)/p.Prior.SD, 2)
	}
	hess := mat.NewSymDense(k, nil)
	for i := range k {
		for j := range i + 1 {
			f := func(a, b float64) float64 {
				_, _, f := fit(moved(i, j, a*h, b*h))
				if i == j {
					return f + penalty(i, (a+b)*h)
				}
				return f
			}
			hess.SetSym(i, j, (f(1, 1)-f(1, -1)-f(-1, 1)+f(-1, -1))/(4*h*h))
		}
	}
	var sigma mat.Dense
	if err := sigma.Inverse(hess); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	d, c := mat.NewDense(len(got), k, nil), mat.NewDense(len(got), k, nil)
	for i := range k {
		mu, vu, _ := fit(moved(i, i, h/2, 0))
		md, vd, _ := fit(moved(i, i, -h/2, 0))
		for r := range got {
			d.Set(r, i, (mu[r]-md[r])/h)
			c.Set(r, i, math.Log(vu[r]/vd[r])/h)
		}
	}
	_, v, _ := fit(at)
	for r := range got {
		quad := func(x *mat.Dense) float64 { return mat.Inner(x.RowView(r), &sigma, x.RowView(r)) }
		want := v[r] + quad(d)
		if wider {
			want = v[r]*math.Exp(quad(c)/2) + quad(d)
		}
		// The formula ignores how the variances of latent values change the means.
		if tol := 0.25*(want-v[r]) + 5e-3*v[r]; !(math.Abs(got[r]-want) < tol) {
			t.Errorf("%s: variance %d is %v, want %v, and %v without the uncertainty of what is learned",
				name, r, got[r], want, v[r])
		}
	}
	for i, at := range free {
		want := math.Sqrt(sigma.At(i, i))
		if sd := learned.Params[at].SD; !(math.Abs(sd-want) < 0.06*want) {
			t.Errorf("%s: the sd of %s is %v, want %v", name, learned.Params[at].Name, sd, want)
		}
	}
}

// TestLearnedSpread checks the variances of weights and latent values against the formulas of
// GLMPosterior and GPPosterior.At, using differences of fits.
func TestLearnedSpread(t *testing.T) {
	ctx := context.Background()
	rng := testkit.Rand(4)
	const n = 40
	x := testkit.NormalMatrix(rng, n, 3)
	w := []float64{0.8, -0.4, 0.2}
	likelihood := func(lik Likelihood, values []float64) Likelihood {
		if p, ok := lik.(Parametric); ok && len(values) > 0 {
			return p.WithParams(values)
		}
		return lik
	}
	for name, c := range map[string]struct {
		lik, from Likelihood
		cov       Covariance
		cols      int
	}{
		"GLM":          {GaussianNoise{}, GaussianNoise{Var: 0.5}, FullCovariance, 3},
		"GLM Hurdle":   {Hurdle{}, Hurdle{Zero: 0.3}, FullCovariance, 3},
		"GLM diagonal": {Gamma{}, Gamma{Shape: 2}, DiagonalCovariance, 3},
	} {
		y := testkit.Predictors(x, w)
		for i, e := range y {
			y[i] = drawn(t, c.from, e+0.5, rng.Float64())
		}
		opt := GLMOptions{Intercept: true, Covariance: c.cov}
		_, post, learned, err := kit.MustGLM(t, x, y, c.lik, opt).Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := post.SD(nil)
		for j, s := range got {
			got[j] = s * s
		}
		m, v, few := make([]float64, 1), make([]float64, 1), x.Slice(0, 1, 0, 3)
		if n := testing.AllocsPerRun(100, func() { post.Latent(m, v, few) }); n > 0 {
			t.Errorf("%s: the prediction of a row allocates %v times", name, n)
		}
		checkSpread(t, name, learned, got, func(values []float64) (m, v []float64, f float64) {
			at := opt
			at.PriorSD = values[0]
			p, res := kit.FitGLM(t, kit.MustGLM(t, x, y, likelihood(c.lik, values[1:]), at), nil)
			v = p.SD(nil)
			if c.cov == DiagonalCovariance { // all columns are common, so they have their linear responses
				at.Covariance = FullCovariance
				full, _ := kit.FitGLM(t, kit.MustGLM(t, x, y, likelihood(c.lik, values[1:]), at), nil)
				v = full.SD(nil)
			}
			for j, s := range v {
				v[j] = s * s
			}
			return p.Mean(nil), v, -res.ELBO
		}, false)
	}
	one, news := mat.NewDense(n, 1, nil), mat.NewDense(3, 1, []float64{-1, 2.5, 11})
	for i := range n {
		one.Set(i, 0, 10*rng.Float64())
	}
	for name, c := range map[string]struct{ lik, from Likelihood }{
		"GP":         {GaussianNoise{}, GaussianNoise{Var: 0.2}},
		"GP Poisson": {Poisson{}, Poisson{}},
	} {
		y := make([]float64, n)
		for i := range y {
			y[i] = drawn(t, c.from, 1+math.Sin(one.At(i, 0)), rng.Float64())
		}
		_, post, learned, err := kit.MustGP(t, one, y, SquaredExp{}, c.lik).Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, got := post.At(news).Latent(nil, nil)
		checkSpread(t, name, learned, got, func(values []float64) (m, v []float64, f float64) {
			k := SquaredExp{Scale: values[0], Length: values[1]}
			lik := likelihood(c.lik, values[2:])
			p, res := kit.MustFit(t, kit.MustGP(t, one, y, k, lik), nil)
			m, v = p.At(news).Latent(nil, nil)
			return m, v, -res.ELBO
		}, true)
	}
}
