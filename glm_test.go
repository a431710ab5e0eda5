package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// glmCase is a data set with a known likelihood.
type glmCase struct {
	Name string
	X    *mat.Dense
	Y    []float64
	Lik  Likelihood
	Opt  *GLMOptions
}

// responses draws y_n ~ p(y|η_n) for a few likelihoods.
func responses(rng *rand.Rand, lik Likelihood, eta []float64) []float64 {
	y := make([]float64, len(eta))
	for i, e := range eta {
		switch l := lik.(type) {
		case BernoulliLogit, BernoulliProbit:
			y[i] = 1
			if rng.Float64() > 1/(1+math.Exp(-e)) {
				y[i] = -1
			}
		case Poisson:
			y[i] = distuv.Poisson{Lambda: math.Exp(e), Src: rng}.Rand()
		case NegativeBinomial, Binomial:
			y[i] = math.Floor(3 * rng.Float64())
		case Gamma, Exponential:
			y[i] = math.Exp(e) * rng.ExpFloat64()
		case Ordinal:
			y[i] = float64(rng.IntN(len(l.Cuts) + 1))
		case StudentT:
			y[i] = e + rng.NormFloat64()
			if i%7 == 0 {
				y[i] += 8
			}
		default:
			y[i] = e + rng.NormFloat64()
		}
	}
	return y
}

func toyGLM(name string, n, d int, lik Likelihood, seed uint64, opt *GLMOptions) glmCase {
	rng := rand.New(rand.NewPCG(seed, 7))
	x := normalMatrix(rng, n, d)
	w := make([]float64, d)
	for j := range w {
		w[j] = rng.NormFloat64() / math.Sqrt(float64(d))
	}
	return glmCase{name, x, responses(rng, lik, testkit.Predictors(x, w)), lik, opt}
}

// glmCorpus returns data sets that every covariance must handle.
func glmCorpus() []glmCase {
	cases := []glmCase{
		toyGLM("logit", 120, 6, BernoulliLogit{}, 1, &GLMOptions{Intercept: true}),
		toyGLM("probit", 90, 4, BernoulliProbit{}, 2, nil),
		toyGLM("poisson", 80, 5, Poisson{}, 3, &GLMOptions{PriorSD: 2}),
		toyGLM("student", 100, 3, StudentT{DF: 3, Scale: 0.7}, 4, &GLMOptions{Intercept: true}),
		toyGLM("gaussian", 60, 8, GaussianNoise{Var: 0.5}, 5, nil),
		toyGLM("negative binomial", 70, 3, NegativeBinomial{Shape: 2}, 6, nil),
		toyGLM("binomial", 70, 3, Binomial{Trials: 4}, 7, nil),
		toyGLM("gamma", 70, 3, Gamma{Shape: 2}, 8, nil),
		toyGLM("exponential", 70, 3, Exponential{}, 9, nil),
		toyGLM("ordinal", 70, 3, Ordinal{Cuts: []float64{-1, 1}}, 10, nil),
		toyGLM("laplace", 70, 3, Laplace{}, 11, nil),
		toyGLM("more weights than rows", 20, 35, BernoulliLogit{}, 12, nil),
		toyGLM("one row", 1, 3, BernoulliLogit{}, 13, nil),
		toyGLM("wide prior", 100, 5, Poisson{}, 14, &GLMOptions{PriorSD: 1000, Intercept: true}),
		toyGLM("narrow prior", 100, 5, BernoulliLogit{}, 15, &GLMOptions{PriorSD: 1e-3}),
		toyGLM("blocks", 1500, 3, BernoulliLogit{}, 16, nil),
	}
	sep := toyGLM("separable", 60, 2, BernoulliLogit{}, 17, &GLMOptions{PriorSD: 100})
	for i := range sep.Y {
		sep.Y[i] = math.Copysign(1, sep.X.At(i, 0))
	}
	col := toyGLM("collinear", 80, 4, BernoulliLogit{}, 18, nil)
	zero := toyGLM("zero rows", 80, 3, Poisson{}, 19, nil)
	big := toyGLM("counts of 1e6", 50, 2, Poisson{}, 20, &GLMOptions{Intercept: true})
	for i := range 80 {
		col.X.Set(i, 3, 2*col.X.At(i, 0))
		if i%3 == 0 {
			zero.X.SetRow(i, []float64{0, 0, 0})
		}
	}
	for i := range big.Y {
		big.Y[i] = math.Floor(1e6 * math.Exp(0.1*big.X.At(i, 0)))
	}
	weighted := toyGLM("weights and offsets", 90, 4, Poisson{}, 21,
		&GLMOptions{Intercept: true, Offset: make([]float64, 90), Weights: make([]float64, 90)})
	for i := range 90 {
		weighted.Opt.Offset[i], weighted.Opt.Weights[i] = 0.3*float64(i%5), float64(i%4)/2
	}
	mean, err := NewMeanField([]float64{1, -2, 0.5, 3}, []float64{1, 0.1, 2, 0.5})
	if err != nil {
		panic(err)
	}
	shifted := toyGLM("prior mean", 70, 4, BernoulliLogit{}, 22, &GLMOptions{Prior: mean})
	return append(cases, sep, col, zero, big, weighted, shifted)
}

func (c glmCase) Glm(t testing.TB, x mat.Matrix) *GLM {
	t.Helper()
	g, err := NewGLM(x, c.Y, c.Lik, c.Opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func fitGLM(t testing.TB, g *GLM, s *Solver) (*GLMPosterior, *Result) {
	t.Helper()
	p, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

// apart returns the largest difference of the means, in standard deviations of q, and of the
// logarithms of the standard deviations.
func apart(p, q *GLMPosterior) (mean, sd float64) {
	m0, s0, m, s := q.Mean(nil), q.SD(nil), p.Mean(nil), p.SD(nil)
	for j := range m {
		mean = math.Max(mean, math.Abs(m[j]-m0[j])/s0[j])
		sd = math.Max(sd, math.Abs(math.Log(s[j]/s0[j])))
	}
	return mean, sd
}

// checkApart fails if p and q are further apart than tol.
func checkApart(t testing.TB, what string, p, q *GLMPosterior, tol float64) {
	t.Helper()
	if m, s := apart(p, q); !(m <= tol && s <= tol) {
		t.Errorf("%s: means %.3g, sds %.3g apart, want %.0e", what, m, s, tol)
	}
}

// TestClassesLearnSlope compares the slope of the best ELBO of several classes in the prior scale
// with differences.
func TestClassesLearnSlope(t *testing.T) {
	notShort(t)
	x, y := loadIris(t)
	for i := range y { // no plane separates the classes
		if i%7 == 0 {
			y[i] = math.Mod(y[i]+1, 3)
		}
	}
	at := func(sd float64) float64 {
		g := mustGLM(t, x, y, Softmax{}, GLMOptions{Intercept: true, PriorSD: sd})
		_, res := fitGLM(t, g, &Solver{Goal: 1e-9})
		return res.ELBO
	}
	l, err := mustGLM(t, x, y, Softmax{}, GLMOptions{Intercept: true}).Learner(
		&LearnOptions{NoPrior: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.(*glmLearner).learning(term.Crew{})
	if err != nil {
		t.Fatal(err)
	}
	const h = 1e-3
	p, err := m.Evaluate([]float64{0.5}, 1e-10, math.Inf(1), true)
	if err != nil {
		t.Fatal(err)
	}
	want := -(at(math.Exp(0.5+h)) - at(math.Exp(0.5-h))) / (2 * h)
	if !(math.Abs(p.Grad[0]-want) < 1e-4*math.Abs(want)) || !(p.Info.At(0, 0) > 0) {
		t.Errorf("a slope of %v and an information of %v, want a slope of %v", p.Grad[0],
			p.Info.At(0, 0), want)
	}
	// One block per class, except for one column that two classes share.
	each := GLMOptions{Intercept: true, Blocks: []int{0, 0, 0, 3, 1, 1, 1, 3, 2, 2, 2, 2}}
	l, err = mustGLM(t, x, y, Softmax{}, each).Learner(&LearnOptions{NoPrior: true})
	if err != nil {
		t.Fatal(err)
	}
	if m, err = l.(*glmLearner).learning(term.Crew{}); err != nil {
		t.Fatal(err)
	}
	value := func(theta []float64) float64 {
		p, err := m.Evaluate(theta, 1e-10, math.Inf(-1), false)
		if err != nil {
			t.Fatal(err)
		}
		return p.F
	}
	theta := []float64{0.5, -1, 1.5, 0.3}
	if p, err = m.Evaluate(theta, 1e-10, math.Inf(1), true); err != nil {
		t.Fatal(err)
	}
	for i, got := range p.Grad {
		up, down := slices.Clone(theta), slices.Clone(theta)
		up[i] += 10 * h
		down[i] -= 10 * h
		want := (value(up) - value(down)) / (20 * h)
		if !(math.Abs(got-want) < 3e-4*(1+math.Abs(want))) || !(p.Info.At(i, i) > 0) {
			t.Errorf("block %d: a slope of %v and an information of %v, want a slope of %v", i, got,
				p.Info.At(i, i), want)
		}
	}
}
