// Package kit holds helpers for the tests of the packages below internal/checks: models, fits and
// data that use the public API. Helpers that do not depend on the library are in
// internal/testkit.
package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/batches"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/pgsvi/pgsvi"
)

// Root returns the path of a file of the module, relative to a package below internal/checks.
func Root(path ...string) string { return filepath.Join("../../..", filepath.Join(path...)) }

// StructuredFit fits g and returns the posterior and the result. It fails the test unless the fit
// converges with an ELBO that never falls.
func StructuredFit(t testing.TB, g *pgsvi.GLM, s *pgsvi.Solver) (*pgsvi.GLMPosterior,
	*pgsvi.Result) {
	t.Helper()
	p, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != pgsvi.Converged {
		t.Errorf("%v after %v passes, gap %v of %v", res.Status, res.Passes, res.Gap, res.ELBO)
	}
	for k := 1; k < len(res.Trace); k++ {
		if a, b := res.Trace[k-1].ELBO, res.Trace[k].ELBO; b < a-1e-13*math.Abs(a) {
			t.Errorf("ELBO fell from %v to %v at iteration %d", a, b, k+1)
		}
	}
	return p, res
}

func MustGLM(t testing.TB, x mat.Matrix, y []float64, lik pgsvi.Likelihood,
	opt pgsvi.GLMOptions) *pgsvi.GLM {
	t.Helper()
	g, err := pgsvi.NewGLM(x, y, lik, &opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ToyGP returns a small model with labels that the likelihood allows.
func ToyGP(t testing.TB, n int, k pgsvi.Kernel, lik pgsvi.Likelihood, seed uint64) *pgsvi.GP {
	t.Helper()
	return ToyGPWith(t, n, k, lik, seed, nil)
}

func ToyGPWith(t testing.TB, n int, k pgsvi.Kernel, lik pgsvi.Likelihood, seed uint64,
	opt *pgsvi.GPOptions) *pgsvi.GP {
	t.Helper()
	x, y := ToyRows(n, lik, seed)
	gp, err := pgsvi.NewGP(x, y, k, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

// LogProbOnly is a logit likelihood as a user would write it, with only the method LogProb.
type LogProbOnly struct{}

func (LogProbOnly) LogProb(y, eta float64) float64 {
	if x := y * eta; x < 0 {
		return x - math.Log1p(math.Exp(x))
	}
	return -math.Log1p(math.Exp(-y * eta))
}

func MustFit(t testing.TB, gp *pgsvi.GP, s *pgsvi.Solver) (*pgsvi.GPPosterior, *pgsvi.Result) {
	t.Helper()
	post, res, err := gp.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return post, res
}

// SmallCorpus returns a corpus with an empty document and a word that never occurs.
func SmallCorpus() *pgsvi.Corpus {
	return &pgsvi.Corpus{Terms: 5, Docs: []pgsvi.Document{
		{Words: []int{0, 2}, Counts: []float64{3, 1}},
		{},
		{Words: []int{0, 1, 4}, Counts: []float64{2, 12, 1}},
	}}
}

// Reached returns a copy of q(z|λ) at a state of an Objective.
func Reached[Q pgsvi.Dist](st pgsvi.Stepper) Q {
	q, err := pgsvi.Objective[Q]{}.Posterior(st)
	if err != nil {
		panic(err)
	}
	return q
}

// ElboOf evaluates the ELBO of a state. If rng is nil, it uses a generator with a fixed seed.
func ElboOf(st pgsvi.Stepper, rng *rand.Rand) (float64, error) {
	e, err := st.Evaluate(context.Background(), &pgsvi.Env{Rng: rng})
	return e.ELBO, err
}

// FactsOf returns the Facts of a likelihood.
func FactsOf(l pgsvi.Likelihood) pgsvi.Facts {
	if f, ok := l.(pgsvi.Factual); ok {
		return f.Facts()
	}
	return pgsvi.Facts{}
}

func Solve(t *testing.T, s pgsvi.Solver, m pgsvi.Model) *pgsvi.Result {
	t.Helper()
	res, err := s.Run(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

var ErrUser = errors.New("the disk is full")

// LogisticData returns a small data set with labels −1 and +1.
func LogisticData(seed uint64, n, d int) pgsvi.Sites {
	rng := testkit.Rand(seed)
	s := pgsvi.Sites{X: dense.NewRows(n, d), Y: make([]float64, n), Lik: pgsvi.BernoulliLogit{}}
	for i, x := range s.X {
		copy(x, testkit.Normals(rng, d))
		s.Y[i] = 1
		if x[0]-0.5+rng.NormFloat64() < 0 {
			s.Y[i] = -1
		}
	}
	return s
}

// AsLogLik writes the same terms as a user would, with or without the gradient.
func AsLogLik(s pgsvi.Sites, grad bool) pgsvi.LogLik {
	l := pgsvi.LogLik{N: len(s.Y), Dim: len(s.X[0]), LogProb: func(n int, z []float64) float64 {
		return s.Lik.LogProb(s.Y[n], floats.Dot(s.X[n], z))
	}}
	if grad {
		l.Grad = func(dst []float64, n int, z []float64) {
			d1, _ := s.Lik.(pgsvi.Differentiable).Derivs(s.Y[n], floats.Dot(s.X[n], z))
			floats.AddScaled(dst, d1, s.X[n])
		}
	}
	return l
}

// LoadIris reads the iris data.
func LoadIris(t testing.TB) (x *mat.Dense, species []float64) {
	t.Helper()
	return testkit.ReadCSV(t, testkit.Open(t, Root("testdata", "iris", "iris.csv")))
}

// SameResumed compares a run of m with a run that is saved after the given number of steps and
// loaded.
func SameResumed(t *testing.T, m pgsvi.Model, steps int, passes float64) {
	t.Helper()
	ctx := context.Background()
	solver := func() *pgsvi.Solver {
		return &pgsvi.Solver{Src: rand.NewPCG(8, 9),
			MaxPasses: passes}
	}
	want, err := solver().Run(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	half := solver()
	half.MaxIter = steps - 1
	res, err := half.Run(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := res.Save(&file); err != nil {
		t.Fatal(err)
	}
	if res, err = solver().LoadResult(ctx, &file, m); err != nil {
		t.Fatal(err)
	}
	if res, err = solver().Resume(ctx, res); err != nil {
		t.Fatal(err)
	}
	if res.K != want.K || res.ELBO != want.ELBO ||
		!slices.Equal(Reached[*pgsvi.Exp](res.Stepper).Params(nil),
			Reached[*pgsvi.Exp](want.Stepper).Params(nil)) {
		t.Errorf("resumed after %d of %d steps: ELBO %v, want %v", steps-1, want.K, res.ELBO,
			want.ELBO)
	}
}

// CheckLocalGrad compares a gradient times weight with differences of Local.
func CheckLocalGrad(t *testing.T, m pgsvi.ConjugateModel, g, mu []float64, n int, weight float64) {
	t.Helper()
	at := slices.Clone(mu)
	scratch := make([]float64, len(mu))
	value := func(i int, v float64) float64 {
		at[i] = v
		l, err := m.Local(scratch, at, n, 1)
		if err != nil {
			t.Fatal(err)
		}
		at[i] = mu[i]
		return l
	}
	for i := range mu {
		h := 1e-5 * max(1, math.Abs(mu[i]))
		want := weight * (value(i, mu[i]+h) - value(i, mu[i]-h)) / (2 * h)
		if math.Abs(g[i]-want) > 1e-6*(1+math.Abs(want)) {
			t.Errorf("element %d of the gradient is %v, by differences %v", i, g[i], want)
		}
	}
}

// ToyRows returns the rows and labels of ToyGP.
func ToyRows(n int, lik pgsvi.Likelihood, seed uint64) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		a, b := 2*rng.NormFloat64(), 2*rng.NormFloat64()
		x.SetRow(i, []float64{a, b})
		f := 2 * math.Sin(a) * math.Cos(b)
		switch lik.(type) {
		case pgsvi.Poisson:
			y[i] = math.Floor(math.Exp(f) + 2*rng.Float64())
		case pgsvi.BernoulliLogit, pgsvi.BernoulliProbit, LogProbOnly:
			y[i] = 1
			if rng.Float64() > 1/(1+math.Exp(-f)) {
				y[i] = -1
			}
		default:
			y[i] = f + 0.2*rng.NormFloat64()
			if i%9 == 4 {
				y[i] += 6 // an outlier
			}
		}
	}
	return x, y
}

// PredictedLogProb returns the log probability of y if the latent value is N(m, v).
func PredictedLogProb(l pgsvi.Likelihood, y, m, v float64) float64 {
	return pgsvi.NewPrediction(l, []float64{m}, []float64{v}).LogProb(nil, []float64{y})[0]
}

// PredictedMoments returns the mean and variance of y if the latent value is N(m, v).
func PredictedMoments(l pgsvi.Likelihood, m, v float64) (mean, variance float64, err error) {
	ms, vs, err := pgsvi.NewPrediction(l, []float64{m}, []float64{v}).Moments(nil, nil)
	if err != nil {
		return math.NaN(), math.NaN(), err
	}
	return ms[0], vs[0], nil
}

// PredictedQuantile returns a quantile of y if the latent value is N(m, v).
func PredictedQuantile(l pgsvi.Likelihood, prob, m, v float64) (float64, error) {
	q, err := pgsvi.NewPrediction(l, []float64{m}, []float64{v}).Quantile(nil, prob)
	if err != nil {
		return math.NaN(), err
	}
	return q[0], nil
}

// Awkward returns values of the parameters that need all digits of float64.
func Awkward(params []pgsvi.Param) []float64 {
	values := make([]float64, len(params))
	for i, p := range params {
		values[i] = math.Nextafter(1.1*p.Value, math.Inf(1))
	}
	return values
}

// SaveGPs saves and loads posteriors of a GP and a sparse GP with 8 rows.
func SaveGPs(t *testing.T, name string, k pgsvi.Kernel, lik pgsvi.Likelihood, x *mat.Dense,
	y []float64) {
	t.Helper()
	gp, err := pgsvi.NewGP(x, y, k, lik, &pgsvi.GPOptions{Jitter: 1e-3})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	post, _, err := gp.Fit(t.Context(), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	testkit.SamePredictions(t, name, post, pgsvi.Load[*pgsvi.GPPosterior], x, y)
	sparse, err := pgsvi.NewSparseGP(x, y, k, lik, &pgsvi.SparseGPOptions{Rank: 4})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	sparsePost, _, err := sparse.Fit(t.Context(), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	testkit.SamePredictions(t, "sparse, "+name, sparsePost, pgsvi.Load[*pgsvi.SparseGPPosterior], x, y)
}

// WithoutRows returns p as Load returns it from a file without rows.
func WithoutRows(t testing.TB, p *pgsvi.GLMPosterior) *pgsvi.GLMPosterior {
	t.Helper()
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Fatal(err)
	}
	p, err := pgsvi.Load[*pgsvi.GLMPosterior](&file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func MustGP(t testing.TB, x mat.Matrix, y []float64, k pgsvi.Kernel,
	lik pgsvi.Likelihood) *pgsvi.GP {
	t.Helper()
	gp, err := pgsvi.NewGP(x, y, k, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

func MustSparse(t testing.TB, g *pgsvi.SparseGP, err error) *pgsvi.SparseGP {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func FitSparse(t testing.TB, g *pgsvi.SparseGP, s *pgsvi.Solver) (*pgsvi.SparseGPPosterior,
	*pgsvi.Result) {
	t.Helper()
	post, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != pgsvi.Converged {
		t.Errorf("%v after %d iterations, gap %g", res.Status, res.K, res.Gap)
	}
	return post, res
}

// UnitRows returns the rows of an identity matrix.
func UnitRows(d int) *mat.Dense {
	x := mat.NewDense(d, d, nil)
	for j := range d {
		x.Set(j, j, 1)
	}
	return x
}

// PgSVI returns the Solver of PG-SVI as published, for n observations. It has the constant step
// size β = betaN/n and reshuffled mini-batches of the given size, and runs for 10 passes.
func PgSVI(n int, betaN float64, batch int) *pgsvi.Solver {
	return &pgsvi.Solver{StepSize: pgsvi.ConstantStep(betaN / float64(n)), BatchSize: batch,
		MaxPasses: 10}
}

// AlgOf returns the algebra of a state by sites.
func AlgOf[A site.Algebra](st pgsvi.Stepper) A { return st.(Engined).Algebra().(A) }

// Engined is a Stepper by sites.
type Engined interface {
	Algebra() site.Algebra
	SetAlgebra(a site.Algebra)
}

// RunOf returns the search of a state of a Learner.
func RunOf(st pgsvi.Stepper) *learn.Run { return st.(searching).Run() }

type searching interface{ Run() *learn.Run }

// linear is an Algebra of a linear model.
type linear interface {
	site.Algebra
	Linear() *site.LinearModel
}

// LinearOf returns the rows, the prior and the terms of g.
func LinearOf(t testing.TB, g *pgsvi.GLM) *site.LinearModel {
	t.Helper()
	return AlgOf[linear](MustStepper(t, g)).Linear()
}

// DesignOf returns the rows of x as a GLM without an intercept stores them.
func DesignOf(t testing.TB, x mat.Matrix) *design.Matrix {
	t.Helper()
	n, _ := x.Dims()
	g := MustGLM(t, x, make([]float64, n), pgsvi.GaussianNoise{}, pgsvi.GLMOptions{})
	return LinearOf(t, g).X
}

// OverWeights returns a Stepper of g over its weights, even if g would choose another algebra.
func OverWeights(t testing.TB, g *pgsvi.GLM) pgsvi.Stepper {
	t.Helper()
	return stepperOver(t, g, func(lin *site.LinearModel) (site.Algebra, error) {
		return site.NewWeightAlgebra(lin, term.Crew{})
	})
}

// OverRows returns a Stepper of g over its linear predictors, even if g would choose another
// algebra.
func OverRows(t testing.TB, g *pgsvi.GLM) pgsvi.Stepper {
	t.Helper()
	return stepperOver(t, g, func(lin *site.LinearModel) (site.Algebra, error) {
		return site.NewDualAlgebra(lin, lin.Gram(), term.Crew{})
	})
}

func stepperOver(t testing.TB, g *pgsvi.GLM,
	algebra func(*site.LinearModel) (site.Algebra, error)) pgsvi.Stepper {
	t.Helper()
	st := MustStepper(t, g)
	alg, err := algebra(AlgOf[linear](st).Linear())
	if err != nil {
		t.Fatal(err)
	}
	st.(Engined).SetAlgebra(alg)
	return st
}

func MustStepper(t testing.TB, m pgsvi.Model) pgsvi.Stepper {
	t.Helper()
	st, err := m.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// SortedDoc returns the document with the given counts.
func SortedDoc(count map[int]float64) pgsvi.Document {
	var d pgsvi.Document
	for v := range count {
		d.Words = append(d.Words, v)
	}
	slices.Sort(d.Words)
	for _, v := range d.Words {
		d.Counts = append(d.Counts, count[v])
	}
	return d
}

func MustCTM(t testing.TB, c *pgsvi.Corpus, k int, opt *pgsvi.CTMOptions) *pgsvi.CTM {
	t.Helper()
	m, err := pgsvi.NewCTM(c, k, opt)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ToyCorpus(docs int, seed uint64) *pgsvi.Corpus {
	rng := rand.New(rand.NewPCG(seed, 3))
	c := &pgsvi.Corpus{Terms: 60}
	for range docs {
		count := map[int]float64{}
		at := 20 * rng.IntN(3)
		for range 1 + rng.IntN(40) {
			count[at+rng.IntN(20)]++
		}
		c.Docs = append(c.Docs, SortedDoc(count))
	}
	return c
}

func FitCTM(t testing.TB, c *pgsvi.Corpus, k int, opt *pgsvi.CTMOptions,
	s *pgsvi.Solver) (*pgsvi.CTMPosterior, *pgsvi.Result) {
	t.Helper()
	m, err := pgsvi.NewCTM(c, k, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := m.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

func Documents(c *pgsvi.Corpus) iter.Seq2[pgsvi.Document, error] {
	return func(yield func(pgsvi.Document, error) bool) {
		for _, d := range c.Docs {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// SavedData returns random rows with responses that lik allows.
func SavedData(rows, cols int, lik pgsvi.Likelihood, seed uint64) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	x, y := mat.NewDense(rows, cols, nil), make([]float64, rows)
	for i := range rows {
		for j := range cols {
			if rng.IntN(3) > 0 {
				x.Set(i, j, rng.NormFloat64())
			}
		}
		y[i] = rng.NormFloat64()
		switch FactsOf(lik).Support {
		case pgsvi.SignLabels:
			y[i] = testkit.PlusMinus(y[i] > 0)
		case pgsvi.Counts:
			y[i] = math.Floor(3 * math.Abs(y[i]))
		}
	}
	return x, y
}

// GlmCase is a data set with a likelihood.
type GlmCase struct {
	Name string
	X    *mat.Dense
	Y    []float64
	Lik  pgsvi.Likelihood
	Opt  *pgsvi.GLMOptions
}

// Responses draws y_n ~ p(y|η_n) for some likelihoods.
func Responses(rng *rand.Rand, lik pgsvi.Likelihood, eta []float64) []float64 {
	y := make([]float64, len(eta))
	for i, e := range eta {
		switch l := lik.(type) {
		case pgsvi.BernoulliLogit, pgsvi.BernoulliProbit, LogProbOnly:
			y[i] = 1
			if rng.Float64() > 1/(1+math.Exp(-e)) {
				y[i] = -1
			}
		case pgsvi.Poisson:
			y[i] = distuv.Poisson{Lambda: math.Exp(e), Src: rng}.Rand()
		case pgsvi.NegativeBinomial, pgsvi.Binomial:
			y[i] = math.Floor(3 * rng.Float64())
		case pgsvi.Gamma, pgsvi.Exponential:
			y[i] = math.Exp(e) * rng.ExpFloat64()
		case pgsvi.Ordinal:
			y[i] = float64(rng.IntN(len(l.Cuts) + 1))
		case pgsvi.StudentT:
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

func ToyGLM(name string, n, d int, lik pgsvi.Likelihood, seed uint64,
	opt *pgsvi.GLMOptions) GlmCase {
	rng := rand.New(rand.NewPCG(seed, 7))
	x := testkit.NormalMatrix(rng, n, d)
	w := make([]float64, d)
	for j := range w {
		w[j] = rng.NormFloat64() / math.Sqrt(float64(d))
	}
	return GlmCase{name, x, Responses(rng, lik, testkit.Predictors(x, w)), lik, opt}
}

func (c GlmCase) Glm(t testing.TB, x mat.Matrix) *pgsvi.GLM {
	t.Helper()
	g, err := pgsvi.NewGLM(x, c.Y, c.Lik, c.Opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func FitGLM(t testing.TB, g *pgsvi.GLM, s *pgsvi.Solver) (*pgsvi.GLMPosterior, *pgsvi.Result) {
	t.Helper()
	p, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

// TextLabels returns rows with features that are as frequent as the words of a text, and labels
// for them.
func TextLabels(n, d int) (*pgsvi.Sparse, []float64) {
	rng := rand.New(rand.NewPCG(4, 2))
	zipf := rand.NewZipf(rng, 1.1, 8, uint64(d-1))
	x, y, w := pgsvi.NewSparse(d), make([]float64, n), make([]float64, d)
	for j := range w {
		w[j] = rng.NormFloat64()
	}
	for i := range y {
		count := map[int]float64{}
		for range 60 + rng.IntN(80) {
			count[int(zipf.Uint64())]++
		}
		var ind []int
		for j := range count {
			ind = append(ind, j)
		}
		slices.Sort(ind)
		val, square := make([]float64, len(ind)), 0.0
		for k, j := range ind {
			val[k] = 1 + math.Log(count[j])
			square += val[k] * val[k]
		}
		eta := 0.0
		for k, j := range ind {
			val[k] *= 3 / math.Sqrt(square)
			eta += val[k] * w[j]
		}
		x.Append(ind, val)
		y[i] = testkit.Label(rng, eta/2)
	}
	return x, y
}

// SyntheticCTM draws a corpus from known topics and Σ.
func SyntheticCTM(docs, k, terms, length int, corr *mat.SymDense, seed uint64) (*pgsvi.Corpus,
	[][]float64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	topics := dense.NewRows(k, terms)
	for _, row := range topics {
		var sum float64
		for v := range row {
			row[v] = math.Exp(2 * rng.NormFloat64())
			sum += row[v]
		}
		for v := range row {
			row[v] /= sum
		}
	}
	var chol mat.Cholesky
	if !chol.Factorize(corr) {
		panic("corr")
	}
	var l mat.TriDense
	chol.LTo(&l)
	c := &pgsvi.Corpus{Terms: terms}
	z, pi := make([]float64, k), make([]float64, k)
	for range docs {
		eps := make([]float64, k)
		for j := range eps {
			eps[j] = 1.5 * rng.NormFloat64()
		}
		for i := range z {
			z[i] = 0
			for j := range i + 1 {
				z[i] += l.At(i, j) * eps[j]
			}
		}
		sum := floats.LogSumExp(z)
		for j, x := range z {
			pi[j] = math.Exp(x - sum)
		}
		count := map[int]float64{}
		for range length {
			count[batches.Pick(topics[batches.Pick(pi, rng)], rng)]++
		}
		c.Docs = append(c.Docs, SortedDoc(count))
	}
	return c, topics
}

func Correlated() *mat.SymDense {
	return mat.NewSymDense(5, []float64{
		1, .7, 0, -.4, 0,
		.7, 1, 0, -.4, 0,
		0, 0, 1, 0, -.5,
		-.4, -.4, 0, 1, 0,
		0, 0, -.5, 0, 1,
	})
}

// Travel returns s after saving and loading it.
func Travel[R any](t testing.TB, s *pgsvi.Shard[R]) *pgsvi.Shard[R] {
	t.Helper()
	b, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	u := &pgsvi.Shard[R]{}
	if err := u.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	return u
}

// RoundOf returns a round of r on the given number of shards, with blocks assigned and merged at
// random.
func RoundOf[R, P any](t testing.TB, r *pgsvi.Rounds[R, P], blocks [][]R, shards int,
	rng *rand.Rand) *pgsvi.Shard[R] {
	t.Helper()
	all := make([]*pgsvi.Shard[R], shards)
	for i := range all {
		all[i] = Travel(t, r.Shard())
	}
	for _, b := range rng.Perm(len(blocks)) {
		if err := all[rng.IntN(shards)].Add(context.Background(), uint64(b),
			testkit.Each(blocks[b])); err != nil {
			t.Fatal(err)
		}
	}
	for len(all) > 1 { // any two
		i := rng.IntN(len(all) - 1)
		j := i + 1 + rng.IntN(len(all)-i-1)
		if rng.IntN(2) == 0 {
			all[i], all[j] = all[j], all[i]
		}
		if err := all[i].Merge(Travel(t, all[j])); err != nil {
			t.Fatal(err)
		}
		all = append(all[:j], all[j+1:]...)
	}
	return Travel(t, all[0])
}

// Resumed adds the items to a stream that is saved, loaded and read at the given places on the way.
// It returns the result of this stream, and the result of an uninterrupted stream.
func Resumed[R, P any](t *testing.T, fresh func() *pgsvi.Stream[R, P],
	load func(io.Reader) (*pgsvi.Stream[R, P], error), items []R, at []int,
	say func(P) string) (got,
	want string) {
	t.Helper()
	one, two := fresh(), fresh()
	for i, item := range items {
		for _, n := range at {
			if n != i {
				continue
			}
			two = testkit.Again(t, fmt.Sprintf("after %d items", i), two, load)
			if _, err := two.Posterior(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(one.Add(item), two.Add(item)); err != nil {
			t.Fatal(err)
		}
	}
	if one.Len() != two.Len() {
		t.Errorf("%d items, and %d without loading", two.Len(), one.Len())
	}
	a, err := one.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	b, err := testkit.Again(t, "at the end", two, load).Posterior()
	if err != nil {
		t.Fatal(err)
	}
	return say(b), say(a)
}

// StreamRows returns the model of the rows with inducing inputs z, which reads its rows in every
// pass.
func StreamRows(t testing.TB, x *mat.Dense, y []float64, k pgsvi.Kernel, lik pgsvi.Likelihood,
	z mat.Matrix) *pgsvi.SparseGP {
	t.Helper()
	_, d := x.Dims()
	g, err := pgsvi.NewSparseGPRows(context.Background(), pgsvi.Rows(x, y), d, k, lik,
		&pgsvi.SparseGPOptions{Inducing: z})
	return MustSparse(t, g, err)
}

// RowStream is a stream of a GLM.
type RowStream = pgsvi.Stream[pgsvi.Row, *pgsvi.GLMPosterior]

func NewStream(t testing.TB, cols int, lik pgsvi.Likelihood, opt *pgsvi.GLMOptions) *RowStream {
	t.Helper()
	s, err := pgsvi.NewGLMStream(cols, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func StreamPosterior(t testing.TB, s *RowStream) *pgsvi.GLMPosterior {
	t.Helper()
	p, err := s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ResumedSearch returns the posterior of a search that was saved after iter steps and resumed. It checks
// that the saved search has a posterior without a fit, and a warning.
func ResumedSearch(t *testing.T, g *pgsvi.GLM, search *pgsvi.LearnOptions, iter int) *pgsvi.GLMPosterior {
	t.Helper()
	ctx := t.Context()
	l := testkit.Must(g.Learner(search))
	res := testkit.Must((&pgsvi.Solver{MaxIter: iter}).Run(ctx, l))
	if p := res.Stepper.Plan(); p.Batch != 1 || fmt.Sprintf("%T", p.Sampler) != "pgsvi.everyRow" {
		t.Error("a search lists the numbers of all rows")
	}
	_, early, part, err := l.Learned(ctx, nil, res)
	if err != nil || early == nil || part.Fit != nil || len(part.Warnings) == 0 {
		t.Fatalf("after %d steps: %v, %v", iter, part, err)
	}
	var b bytes.Buffer
	if err := res.Save(&b); err != nil {
		t.Fatal(err)
	}
	s := &pgsvi.Solver{}
	if res, err = s.LoadResult(ctx, &b, l); err == nil {
		res, err = s.Resume(ctx, res)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, again, _, err := l.Learned(ctx, s, res)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// FitRounds fits by rounds of r on the given number of shards until the number of rounds and the last
// iteration satisfy done. The state travels as bytes between rounds. FitRounds returns the posterior
// and the last iteration.
func FitRounds[R, P any](t testing.TB, r *pgsvi.Rounds[R, P], blocks [][]R, shards int,
	done func(rounds int, it pgsvi.Iteration) bool) (post P, it pgsvi.Iteration) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(shards), 9))
	for k := 1; ; k++ {
		var err error
		if it, err = r.Step(RoundOf(t, r, blocks, shards, rng)); err != nil {
			t.Fatal(err)
		}
		b, err := r.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		r = &pgsvi.Rounds[R, P]{}
		if err := r.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if done(k, it) {
			return testkit.Must(r.Posterior()), it
		}
	}
}
