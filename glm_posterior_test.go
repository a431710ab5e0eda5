package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// savedData returns rows with responses that lik allows.
func savedData(rows, cols int, lik Likelihood, seed uint64) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	x, y := mat.NewDense(rows, cols, nil), make([]float64, rows)
	for i := range rows {
		for j := range cols {
			if rng.IntN(3) > 0 {
				x.Set(i, j, rng.NormFloat64())
			}
		}
		y[i] = rng.NormFloat64()
		switch testFacts(lik).Support {
		case SignLabels:
			y[i] = plusMinus(y[i] > 0)
		case Counts:
			y[i] = math.Floor(3 * math.Abs(y[i]))
		}
	}
	return x, y
}

// TestSaveGLM checks that a loaded posterior has the same bits in predictions, in draws and after
// updates, for every form of the covariance.
func TestSaveGLM(t *testing.T) {
	full, err := NewGaussian([]float64{1, 0, -1, 0.3},
		mat.NewSymDense(4, []float64{2, 0.3, 0, 0.1, 0.3, 1, 0.2, 0, 0, 0.2, 1, 0, 0.1, 0, 0, 3}))
	if err != nil {
		t.Fatal(err)
	}
	offset := make([]float64, 30)
	for i := range offset {
		offset[i] = 0.1 * float64(i)
	}
	for _, c := range []struct {
		name       string
		rows, cols int
		sparse     bool
		lik        Likelihood
		opt        GLMOptions
		cov        gauss.Cov
	}{
		{"primal", 30, 3, false, BernoulliLogit{}, GLMOptions{Intercept: true, PriorSD: 3},
			&gauss.Full{}},
		{"sparse, offset, names", 30, 3, true, Poisson{Exposure: 2},
			GLMOptions{Offset: offset, Names: []string{"a", "b=ü", `"`}}, &gauss.Full{}},
		{"full prior", 30, 3, false, StudentT{DF: 3}, GLMOptions{Intercept: true, Prior: full},
			&gauss.Full{}},
		{"full prior, no rows", 0, 4, false, nil, GLMOptions{Prior: full}, &gauss.Full{}},
		{"no rows", 0, 4, false, GaussianNoise{Var: 0.3}, GLMOptions{Autoscale: true},
			gauss.Diagonal{}},
		{"dual to primal", 5, 20, false, BernoulliProbit{}, GLMOptions{}, &gauss.Full{}},
		{"dual", 6, 30, false, BernoulliLogit{}, GLMOptions{Intercept: true, Autoscale: true},
			&gauss.Dual{}},
		{"dual, sparse", 6, 30, true, StudentT{DF: 2, Scale: 0.1}, GLMOptions{Intercept: true},
			&gauss.Dual{}},
		{"diagonal", 30, 3, true, BernoulliLogit{},
			GLMOptions{Intercept: true, Covariance: DiagonalCovariance}, gauss.Diagonal{}},
		{"low rank", 30, 5, false, BernoulliLogit{},
			GLMOptions{Intercept: true, Covariance: LowRankCovariance, Rank: 2}, &gauss.LowRank{}},
		{"dual, full prior", 3, 4, true, nil, GLMOptions{Prior: full}, &gauss.Dual{}},
	} {
		x, y := savedData(max(1, c.rows), c.cols, c.lik, 1)
		var rows mat.Matrix = x
		if c.sparse {
			rows = SparseOf(x)
		}
		var g *GLM
		if c.rows == 0 {
			g, err = NewGLM(NewSparse(c.cols), nil, c.lik, &c.opt)
		} else {
			g, err = NewGLM(rows, y, c.lik, &c.opt)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		post, res, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if _, dual := c.cov.(*gauss.Dual); dual {
			post.cov = dualOf(t, g, res)
		}
		if got, want := fmt.Sprintf("%T", post.cov), fmt.Sprintf("%T", c.cov); got != want {
			t.Errorf("%s: covariance is a %s, want %s", c.name, got, want)
		}
		loaded := saveAndLoad(t, c.name, post.WithRows())
		if loaded == nil {
			continue
		}
		want, got := savedResults(t, post, rows, y), savedResults(t, loaded, rows, y)
		if want != got {
			t.Errorf("%s: loaded posterior behaves differently", c.name)
		}
	}
}

// dualOf returns the covariance of a posterior with many more weights than rows.
func dualOf(t *testing.T, g *GLM, res *Result) gauss.Cov {
	t.Helper()
	gamma := algOf[*site.DualAlgebra](res.Stepper).Cur.Gamma
	c := &gauss.Dual{X: g.lin.X, Gamma: gamma, Prior: &g.lin.Prior, Fac: new(dense.SiteFactor)}
	if !c.Fac.Factor(g.lin.Gram(), len(gamma), gamma) {
		t.Fatal("no covariance")
	}
	return c
}

// saveAndLoad returns the loaded posterior, or nil if it differs from the saved one.
func saveAndLoad(t *testing.T, name string, p *GLMPosterior) *GLMPosterior {
	t.Helper()
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	loaded, err := Load[*GLMPosterior](bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	var again bytes.Buffer
	if err := loaded.Save(&again); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
		t.Errorf("%s: saved again it differs (%v)", name, err)
	}
	return loaded
}

// savedResults returns the results of p as text with all bits.
func savedResults(t *testing.T, p *GLMPosterior, x mat.Matrix, y []float64) string {
	t.Helper()
	m, v := p.At(x).Latent(nil, nil)
	draw := mat.NewDense(2, p.Dim(), nil)
	err := p.RandWeights(draw, rand.New(rand.NewPCG(3, 0)))
	out := fmt.Sprint(m, v, p.At(x).LogProb(nil, y), p.SD(nil), p.Len(), p.Cols(),
		draw.RawMatrix().Data, err, p.Summary())
	more, err := p.Update(context.Background(), Rows(x, y))
	if err != nil {
		t.Errorf("update: %v", err)
		return out
	}
	return out + fmt.Sprint(more.Mean(nil), more.SD(nil), more.Len())
}

func TestSaveGLMErrors(t *testing.T) {
	x, y := savedData(30, 2, nil, 4)
	fit := func(x mat.Matrix, y []float64, lik Likelihood, dual bool) (*GLMPosterior, string) {
		g, err := NewGLM(x, y, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, res, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if dual {
			p.cov = dualOf(t, g, res)
		}
		var file bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		return p, file.String()
	}
	p, full := fit(x, y, StudentT{}, false)
	_, empty := fit(NewSparse(2), nil, nil, false)
	xd, yd := mat.NewDense(2, 3, []float64{1, 2, 0, 3, 0, 4}), []float64{1, -1}
	_, dual := fit(xd, yd, nil, true)
	_, sparse := fit(SparseOf(xd), yd, nil, true)
	p.cov = gauss.NewLowRank(2, 1)
	p.cov.(*gauss.LowRank).D[0], p.cov.(*gauss.LowRank).D[1] = 1, 1
	var low bytes.Buffer
	if err := p.Save(&low); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text, old, new string
		want                 error
	}{
		{"empty", "", "", "", ErrFile},
		{"not JSON", "neg_elbo=89", "", "", ErrFile},
		{"other JSON", `{"format": "CSV"}`, "", "", ErrShape},
		{"names", full, `["x1",`, `["x0","x1",`, ErrShape},
		{"mean", full, `"mean":[`, `"mean":[0,`, ErrShape},
		{"prior mean", full, `"prior":{"mean":[0,`, `"prior":{"mean":[`, ErrShape},
		{"rows", full, `"rows":30`, `"rows":-1`, ErrShape},
		{"likelihood", full, `pgsvi.StudentT`, `pgsvi.SquaredExp`, ErrParam},
		{"unknown likelihood", full, `pgsvi.StudentT`, `pgsvi.Cauchy`, ErrParam},
		{"likelihood value", full, `"DF":0`, `"DF":-1`, ErrParam},
		{"no covariance", full, `"precision"`, `"precise"`, ErrShape},
		{"precision", full, `"precision":[`, `"precision":[1,`, ErrShape},
		{"not definite", full, `"precision":[`, `"precision":[-`, ErrNotPosDef},
		{"too large", full, `"precision":[`, `"precision":[1e9`, ErrFile},
		{"prior", full, `"diagonal":[1`, `"diagonal":[-1`, ErrNotPosDef},
		{"no prior", full, `"diagonal"`, `"diag"`, ErrShape},
		{"variance", empty, `"variances":[1`, `"variances":[0`, ErrNotPosDef},
		{"variances", empty, `"variances":[1`, `"variances":[1,1`, ErrShape},
		{"rank", low.String(), `"rank":1`, `"rank":2`, ErrShape},
		{"unique", low.String(), `"d":[1,1`, `"d":[1,0`, ErrNotPosDef},
		{"factors", low.String(), `"u":[0,0`, `"u":[1e200,0`, ErrNotPosDef},
		{"gamma", dual, `"gamma":[1,1`, `"gamma":[1`, ErrShape},
		{"indefinite gamma", dual, `"gamma":[1`, `"gamma":[-1`, ErrNotPosDef},
		{"dense", dual, `"dense":[`, `"dense":[1,`, ErrShape},
		{"no data", dual, `"dense"`, `"denser"`, ErrShape},
		{"rows of sparse", sparse, `"ptr":[0,`, `"ptr":[0,0,`, ErrShape},
		{"order of rows", sparse, `"ptr":[0,`, `"ptr":[0,9999,`, ErrShape},
		{"beginning of rows", sparse, `"ptr":[0,`, `"ptr":[1,`, ErrShape},
		{"columns", sparse, `"ind":[0,1`, `"ind":[-1,1`, ErrShape},
		{"order of columns", sparse, `"ind":[0,1`, `"ind":[1,0`, ErrShape},
		{"column beyond", sparse, `,2],"val"`, `,3],"val"`, ErrShape},
		{"values", sparse, `"val":[`, `"val":[1,`, ErrShape},
	} {
		text := c.text
		if c.old == "" {
			text = fileOf(t, testkit.Kind("GLMPosterior"), text)
		} else {
			text = changed(t, testkit.Kind("GLMPosterior"), text, c.old, c.new)
		}
		if _, err := Load[*GLMPosterior](strings.NewReader(text)); !errors.Is(err, c.want) ||
			!errors.Is(err, ErrFile) || !prefixedOnce(err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := p.Save(fullDisk(10)); err != errFullDisk {
		t.Errorf("full disk: %v", err)
	}
	p.names[0] = "caf\xe9"
	if err := p.Save(new(bytes.Buffer)); !errors.Is(err, ErrParam) || !prefixedOnce(err) {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
	mean := p.mean[0]
	p.names[0], p.mean[0] = "x1", math.Inf(1)
	if err := p.Save(new(bytes.Buffer)); !errors.Is(err, ErrNotFinite) || !prefixedOnce(err) {
		t.Errorf("an infinite mean: %v", err)
	}
	p.mean[0], p.lik = mean, unregistered{}
	if err := p.Save(new(bytes.Buffer)); !errors.Is(err, ErrParam) ||
		!strings.Contains(err.Error(), "see Register") {
		t.Errorf("unregistered likelihood: %v", err)
	}
}

// summaryPosterior returns a posterior with the given means and standard deviations.
func summaryPosterior(names []string, mean, sd []float64, intercept bool,
	lik Likelihood) *GLMPosterior {
	v := make(gauss.Diagonal, len(sd))
	for j, s := range sd {
		v[j] = s * s
	}
	return &GLMPosterior{names: names, opt: GLMOptions{Intercept: intercept}, lik: lik, mean: mean,
		cov: v, rows: 7}
}

func TestSummaryText(t *testing.T) {
	p := summaryPosterior([]string{"größe", "b", "tiny", "large", "(Intercept)"},
		[]float64{-12.345678, 0.1, 3e-12, 123456789, 1}, []float64{0.5, 1, 1e-12, 25000, 0.0123456},
		true, NegativeBinomial{Shape: 2.5})
	got := p.Summary().String()
	want := `NegativeBinomial{Shape:2.5}, 7 rows, 5 weights, diagonal covariance
                          mean             sd               2.5%              97.5%
(Intercept)          1.00000        0.01235            0.97580            1.02420   *
größe              -12.3457         0.5000           -13.3257           -11.3657    *
b                    0.100          1.000             -1.860              2.060
tiny                 3.000e-12      1.000e-12          1.040e-12          4.960e-12 *
large        123456789          25000          123407790          123505788         *
* zero is outside the interval from 2.5% to 97.5%
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestSummarySure(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   bool
	}{{1, 2, true}, {-2, -1, true}, {-1, 1, false}, {0, 1, false},
		{math.NaN(), math.NaN(), false}} {
		if got := (Effect{Lo: c.lo, Hi: c.hi}).sure(); got != c.want {
			t.Errorf("[%v, %v]: %v", c.lo, c.hi, got)
		}
	}
}

// glmLearnCase is a small GLM with hyperparameters of every type.
type glmLearnCase struct {
	name string
	lik  Likelihood
	wide bool // more weights than rows
	opt  GLMOptions
	y    func(f, u float64) float64
}

func glmLearnCases() []glmLearnCase {
	y := map[string]func(f, u float64) float64{}
	for _, c := range learnCases() {
		y[c.name] = c.y
	}
	blocks := GLMOptions{Intercept: true, Blocks: []int{0, 1, 1, 0, 2}}
	each := GLMOptions{Blocks: []int{0, 1, 2, 3, 4}, Autoscale: true}
	var wide GLMOptions
	for j := range 60 {
		wide.Blocks = append(wide.Blocks, j%2)
	}
	diagonal := blocks
	diagonal.Covariance = DiagonalCovariance
	weights := make([]float64, 40)
	for i := range weights {
		weights[i] = float64(i%3) * 0.7
	}
	return []glmLearnCase{
		{name: "logit", lik: BernoulliLogit{}, opt: GLMOptions{Intercept: true}, y: y["logit"]},
		{name: "logit, blocks", lik: BernoulliLogit{}, opt: blocks, y: y["logit"]},
		{name: "probit, ARD", lik: BernoulliProbit{}, opt: each, y: y["logit"]},
		{name: "Poisson, weights and offset", lik: Poisson{},
			opt: GLMOptions{Weights: weights, Offset: weights, Blocks: blocks.Blocks},
			y:   y["Poisson, sum"]},
		{name: "Gaussian", lik: GaussianNoise{Var: 0.2}, opt: blocks, y: y["Laplace"]},
		{name: "Student", lik: StudentT{DF: 4, Scale: 0.3}, opt: blocks, y: y["Laplace"]},
		{name: "negative binomial", lik: NegativeBinomial{Shape: 2}, opt: blocks,
			y: y["negative binomial"]},
		{name: "ordinal", lik: Ordinal{Cuts: []float64{-0.7, 0.2, 1.1}},
			opt: GLMOptions{Autoscale: true}, y: y["ordinal"]},
		{name: "logit, wide", lik: BernoulliLogit{}, wide: true, opt: wide, y: y["logit"]},
		{name: "Gaussian, wide", lik: GaussianNoise{Var: 0.2}, wide: true,
			opt: GLMOptions{Intercept: true}, y: y["Laplace"]},
		{name: "Student, wide", lik: StudentT{DF: 4, Scale: 0.3}, wide: true, opt: wide,
			y: y["Laplace"]},
		{name: "logit, diagonal", lik: BernoulliLogit{}, opt: diagonal, y: y["logit"]},
		{name: "gamma, diagonal", lik: Gamma{Shape: 2}, opt: diagonal, y: y["gamma"]},
		{name: "Student, diagonal", lik: StudentT{DF: 4, Scale: 0.3}, opt: diagonal,
			y: y["Laplace"]},
	}
}

// model returns the model of n rows, and a few of its rows are equal.
func (c glmLearnCase) model(t testing.TB, n int) *GLM {
	t.Helper()
	rng, d := testRand(23), 5
	if c.wide {
		d = 60
	}
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		for j := range d {
			x.Set(i, j, rng.NormFloat64()/(1+float64(j%3)))
		}
		if i%7 == 6 {
			x.SetRow(i, x.RawRowView(i-1))
		}
		y[i] = c.y(x.At(i, 0)-0.5*x.At(i, 2), rng.Float64())
	}
	if c.opt.Weights != nil {
		c.opt.Weights, c.opt.Offset = c.opt.Weights[:n], c.opt.Offset[:n]
	}
	g, err := NewGLM(x, y, c.lik, &c.opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGLMLearnGradient checks the gradient at the best q against differences of the best ELBO, and
// that ELBO against a fit.
func TestGLMLearnGradient(t *testing.T) {
	t.Parallel()
	for _, c := range glmLearnCases() {
		g := c.model(t, shorter(40, 12))
		l, err := learnerAs[*glmLearner](g.Learner(nil))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m, err := l.learning(term.Crew{Workers: 1, Halt: nil})
		if err != nil {
			t.Fatal(err)
		}
		if _, dual := m.(*learn.Latent); dual != (c.wide) {
			t.Errorf("%s: %T", c.name, m)
		}
		m.Use(term.Crew{Workers: 1, Halt: nil})
		theta := make([]float64, len(l.space.free))
		for i, at := range l.space.free {
			c := &l.space.coords[at]
			theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
		}
		at := func(theta []float64) search.Point {
			x, err := m.Evaluate(theta, 1e-12, math.Inf(1), true)
			if err != nil || math.IsInf(x.F, 0) {
				t.Fatalf("%s: at %v: %v, %v", c.name, theta, x.F, err)
			}
			return x
		}
		x := at(theta)
		m.Keep(false)
		lin, err := l.scale.At(theta)
		if err != nil {
			t.Fatal(err)
		}
		fitted := &GLM{lin: *lin, opt: g.opt}
		if _, res, err := fitted.Fit(context.Background(), nil); err != nil ||
			math.Abs(res.ELBO+x.F) > 1e-6 {
			t.Errorf("%s: −ELBO %v, of a fit %v, %v", c.name, x.F, -res.ELBO, err)
		}
		checkSlopes(t, c.name, l.space, at, theta, x, 1e-3, 1e-5)
	}
}

// TestGLMLearn checks that GLMOptions.Learn and GLM.Learn agree, and that no parameters nearby are
// better than the learned ones.
func TestGLMLearn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for i, c := range glmLearnCases() {
		if i%shorter(1, 3) > 0 {
			continue
		}
		g := c.model(t, shorter(40, 12))
		best, post, l, err := g.Learn(ctx, nil, nil)
		if err != nil || l.Fit == nil {
			t.Errorf("%s: %v, %+v", c.name, err, l)
			continue
		}
		if math.Abs(-l.Fit.ELBO-l.LogPrior-l.Objective) > 1e-4 {
			t.Errorf("%s: ELBO %v and log prior %v, objective %v", c.name, l.Fit.ELBO, l.LogPrior,
				l.Objective)
		}
		learner, err := learnerAs[*glmLearner](g.Learner(nil))
		if err != nil {
			t.Fatal(err)
		}
		theta := make([]float64, len(learner.space.free))
		for i, at := range learner.space.free {
			theta[i] = learner.space.coords[at].theta(l.Params[at].Value)
		}
		m, err := learner.learning(term.Crew{Workers: 1, Halt: nil})
		if err != nil {
			t.Fatal(err)
		}
		m.Use(term.Crew{Workers: 1, Halt: nil})
		for i := range theta {
			for _, h := range []float64{-0.1, 0.1} {
				at := slices.Clone(theta)
				at[i] += h
				x, err := m.Evaluate(at, 1e-6, math.Inf(1), false)
				if f := x.F + learner.space.Penalty(at, nil); err != nil || f < l.Objective-1e-4 {
					t.Errorf("%s: objective %v, %+v further in %s %v, %v", c.name, l.Objective, h,
						l.Params[learner.space.free[i]].Name, f, err)
				}
			}
		}
		opt := c.opt
		opt.Learn = &LearnOptions{}
		c.opt = opt
		again, res, err := c.model(t, shorter(40, 12)).Fit(ctx, nil)
		if err != nil || res.ELBO != l.Fit.ELBO || !slices.Equal(again.Mean(nil), post.Mean(nil)) {
			t.Errorf("%s: by Fit: %v, %v", c.name, res.ELBO-l.Fit.ELBO, err)
		}
		if p, res, err := best.Fit(ctx, nil); err != nil || p == nil ||
			math.Abs(res.ELBO-l.Fit.ELBO) > 1e-4 {
			t.Errorf("%s: fitted anew %v, want %v, %v", c.name, res.ELBO, l.Fit.ELBO, err)
		}
		if c.opt.Covariance != DiagonalCovariance {
			if _, err := best.LOO(ctx, post); err != nil {
				t.Errorf("%s: LOO: %v", c.name, err)
			}
		}
	}
}

// TestGLMLearnResume checks that a search that is canceled, saved and loaded ends with the same
// bits as an uninterrupted search, for any number of workers.
func TestGLMLearnResume(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, c := range []glmLearnCase{glmLearnCases()[1], glmLearnCases()[5], glmLearnCases()[10],
		glmLearnCases()[12]}[:shorter(4, 2)] {
		g, opt := c.model(t, shorter(40, 12)), &LearnOptions{Restarts: 1}
		l, err := learnerAs[*glmLearner](g.Learner(opt))
		if err != nil {
			t.Fatal(err)
		}
		_, want, all, err := g.Learn(ctx, nil, opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{1, 2, all.Evaluations - 1} {
			stopped, cancel := context.WithCancel(ctx)
			s := &Solver{Workers: 3, Record: func(it Iteration) {
				if it.K == at {
					cancel()
				}
			}}
			res, err := s.Run(stopped, l)
			if !errors.Is(err, context.Canceled) || res.K != at {
				t.Fatalf("%s: canceled after %d: %v", c.name, at, err)
			}
			var file bytes.Buffer
			if err := res.Save(&file); err != nil {
				t.Fatal(err)
			}
			s = &Solver{}
			if res, err = s.LoadResult(ctx, &file, l); err != nil {
				t.Fatal(err)
			}
			if res, err = s.Resume(ctx, res); err != nil {
				t.Fatal(err)
			}
			_, post, got, err := l.Learned(ctx, s, res)
			if err != nil {
				t.Fatal(err)
			}
			if got.Objective != all.Objective || got.Evaluations != all.Evaluations ||
				!slices.Equal(got.Starts, all.Starts) ||
				!slices.Equal(post.Mean(nil), want.Mean(nil)) {
				t.Errorf("%s: resumed after %d: objective %v in %d evaluations, want %v in %d",
					c.name, at, got.Objective, got.Evaluations, all.Objective, all.Evaluations)
			}
		}
	}
}

// TestWarnUnitsManyRows checks that a warning for many rows depends on all rows, although a few are
// checked first.
func TestWarnUnitsManyRows(t *testing.T) {
	t.Parallel()
	const n = 5000
	rng := testRand(6)
	for _, c := range []struct {
		unit, once float64 // sd of the second column, and a value in one of its rows
		warned     bool
	}{{1, 1, false}, {1e-3, 1e-3, true}, {1e-3, 1, false}} {
		x, y := mat.NewDense(n, 2, nil), make([]float64, n)
		for i := range n {
			x.SetRow(i, []float64{rng.NormFloat64(), c.unit * rng.NormFloat64()})
			y[i] = plusMinus(rng.IntN(2) == 0)
		}
		x.Set(1, 1, c.once)
		g, err := NewGLM(x, y, BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if w := g.warnings(); (len(w) > 0) != c.warned {
			t.Errorf("%+v: %q", c, w)
		}
	}
}

// TestWarnIntercept checks that a GLM warns of real responses that the prior of its intercept
// excludes.
func TestWarnIntercept(t *testing.T) {
	t.Parallel()
	const n = 20
	x, rng := mat.NewDense(n, 1, nil), testRand(8)
	y, offset := make([]float64, n), make([]float64, n)
	for i := range n {
		x.Set(i, 0, rng.NormFloat64())
		y[i], offset[i] = 24000+3000*rng.NormFloat64(), 24000
	}
	for _, c := range []struct {
		lik    Likelihood
		opt    GLMOptions
		warned bool
	}{
		{GaussianNoise{}, GLMOptions{Intercept: true}, true},
		{StudentT{Scale: 1e3}, GLMOptions{Intercept: true}, true},
		{GaussianNoise{}, GLMOptions{Intercept: true, InterceptSD: 1e4}, false},
		{GaussianNoise{}, GLMOptions{Intercept: true, Offset: offset}, false},
		{GaussianNoise{}, GLMOptions{}, false},
		{Gamma{}, GLMOptions{Intercept: true}, false},
	} {
		g, err := NewGLM(x, y, c.lik, &c.opt)
		if err != nil {
			t.Fatal(err)
		}
		w := g.warnings()
		if (len(w) > 0) != c.warned || c.warned && !strings.Contains(w[0], "InterceptSD") {
			t.Errorf("%T, %+v: %q", c.lik, c.opt, w)
		}
	}
}

// TestWarnData checks that data sets whose columns share a unit have no warnings.
func TestWarnData(t *testing.T) {
	t.Parallel()
	check := func(name string, x mat.Matrix, y []float64) {
		t.Helper()
		for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{}} {
			for _, intercept := range []bool{false, true} {
				g, err := NewGLM(x, y, lik, &GLMOptions{Intercept: intercept})
				if err != nil {
					t.Fatal(name, err)
				}
				if w := g.warnings(); len(w) > 0 {
					t.Errorf("%s: %q", name, w)
				}
			}
			if x, ok := x.(*mat.Dense); ok {
				if w := mustGP(t, x, y, SquaredExp{}, lik).farFrom0(true); len(w) > 0 {
					t.Errorf("%s: %q", name, w)
				}
			}
		}
	}
	for _, name := range []string{"sonar", "ionosphere"} {
		s := loadUCI(t, name)
		check(name, s.x, s.y)
	}
	dir := sharedData(t)
	for _, digits := range [][2]float64{{3, 5}, {2, 4}} {
		s := loadUSPS(t, digits[0], digits[1])
		check("USPS", s.x, s.y)
	}
	x, y := readLIBSVM(t, open(t, filepath.Join(dir, "a9a", "a9a.gz")), 123)
	check("a9a", x, y)
	digits, labels := readCSV(t, open(t, filepath.Join(dir, "digits", "digits_train.csv.gz")))
	for i, d := range labels {
		labels[i] = plusMinus(d == 3)
	}
	check("digits", digits, labels)
}

func TestGLMLearnErrors(t *testing.T) {
	t.Parallel()
	ctx, c := context.Background(), glmLearnCases()[1]
	x, y := mat.NewDense(3, 2, []float64{1, 2, 3, 4, 5, 7}), []float64{1, -1, 1}
	prior, err := NewMeanField([]float64{0, 0}, []float64{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		opt  GLMOptions
		is   error
		says string
	}{
		{GLMOptions{Blocks: []int{0}}, ErrShape, "Blocks has 1 elements"},
		{GLMOptions{Blocks: []int{0, 2}}, ErrParam, "Blocks[1] is 2"},
		{GLMOptions{Blocks: []int{1, 1}}, ErrParam, "no column in block 0"},
		{GLMOptions{Prior: prior}, ErrParam, "Prior is set"},
		{GLMOptions{Covariance: LowRankCovariance, Rank: 1}, ErrParam, "low-rank"},
		{GLMOptions{Learn: &LearnOptions{Fixed: []string{"PriorSD"}}}, ErrParam,
			`name "PriorSD", which is not a parameter; use one of GLM.PriorSD`},
		{GLMOptions{Learn: &LearnOptions{Fixed: []string{"GLM.PriorSD"}}}, ErrParam,
			"no hyperparameter is left"},
		{GLMOptions{Blocks: []int{0, 1},
			Learn: &LearnOptions{Bounds: map[string][2]float64{"GLM.PriorSD[1]": {-1, 1}}}},
			ErrParam, "within its range"},
	} {
		if e.opt.Learn == nil {
			e.opt.Learn = &LearnOptions{}
		}
		g, err := NewGLM(x, y, BernoulliLogit{}, &e.opt)
		if err == nil {
			_, _, err = g.Fit(ctx, nil)
		}
		if !errors.Is(err, e.is) || !strings.Contains(err.Error(), e.says) || !prefixedOnce(err) {
			t.Errorf("%+v: %v", e.opt, err)
		}
	}
	empty, err := NewGLM(NewSparse(2), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := empty.Learn(ctx, nil, nil); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
	if _, err := NewGLMStream(2, nil, &GLMOptions{Learn: &LearnOptions{}}); !errors.Is(err,
		ErrParam) {
		t.Error(err)
	}
	g := c.model(t, 12)
	if _, _, _, err := g.Learn(ctx, &Solver{Divergence: Euclidean()}, nil); !errors.Is(err,
		ErrNoProx) {
		t.Error(err)
	}
	l, err := learnerAs[*glmLearner](g.Learner(nil))
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&Solver{MaxIter: 1}).Run(ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := l.Learned(ctx, nil, res); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	stopped, cancel := context.WithCancel(ctx)
	best, post, got, err := g.Learn(stopped, &Solver{Record: func(it Iteration) {
		if it.K == 2 {
			cancel()
		}
	}}, nil)
	if !errors.Is(err, context.Canceled) || best == nil || post == nil || got.Fit != nil ||
		got.Search.Status != Canceled {
		t.Errorf("%v, %v, %v, %+v", best, post, err, got)
	}
}

// TestGLMLearnHarness checks that learning ends with a posterior and its objective for any data.
func TestGLMLearnHarness(t *testing.T) {
	t.Parallel()
	rng := testRand(7)
	for trial := range shorter(120, 14) {
		c := glmLearnCases()[trial%len(glmLearnCases())]
		n, d := 1+rng.IntN(40), 1+rng.IntN(6)
		if c.wide {
			d = n + rng.IntN(20)
		}
		x, y := mat.NewDense(n, d, nil), make([]float64, n)
		units := make([]float64, d)
		for j := range units {
			units[j] = math.Exp(6 * rng.NormFloat64())
		}
		for i := range n {
			for j := range d {
				if x.Set(i, j, units[j]*rng.NormFloat64()); j > 0 && trial%3 == 2 {
					x.Set(i, j, x.At(i, 0)*float64(j)) // collinear
				}
			}
			if i > 0 && rng.IntN(3) == 0 {
				x.SetRow(i, x.RawRowView(i-1))
			}
			y[i] = c.y(rng.NormFloat64(), rng.Float64())
			if trial%4 == 3 {
				y[i] = y[0]
			}
		}
		opt := GLMOptions{Intercept: trial%2 == 0, Autoscale: trial%5 == 0,
			Covariance: c.opt.Covariance}
		if trial%3 > 0 {
			for j := range d {
				opt.Blocks = append(opt.Blocks, j%(1+trial%7%d))
			}
		}
		g, err := NewGLM(x, y, c.lik, &opt)
		if err != nil {
			t.Fatal(err)
		}
		_, post, l, err := g.Learn(context.Background(), nil, &LearnOptions{NoPrior: trial%5 == 4})
		if err != nil {
			t.Errorf("trial %d, %s, %d×%d: %v", trial, c.name, n, d, err)
			continue
		}
		if l.Fit == nil {
			t.Errorf("trial %d, %s, %d×%d: the search ended %v after %d evaluations", trial, c.name,
				n, d, l.Search.Status, l.Evaluations)
			continue
		}
		if _, ok := dense.AllFinite(append(post.Mean(nil), post.SD(nil)...)); !ok ||
			!(math.Abs(l.Objective+l.LogPrior+l.Fit.ELBO) < 1e-3*(1+math.Abs(l.Objective))) {
			t.Errorf("trial %d, %s, %d×%d: objective %v, ELBO %v", trial, c.name, n, d, l.Objective,
				l.Fit.ELBO)
		}
		for _, p := range l.Params {
			if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) || math.IsNaN(p.SD) {
				t.Errorf("trial %d, %s: %+v", trial, c.name, p)
			}
		}
	}
}

// TestResponseLoad checks files whose linear responses do not fit the weights.
func TestResponseLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cov  gauss.Cov
		s    savedResponse
		want error
	}{
		{gauss.Diagonal{1, 2}, savedResponse{Of: []int{1}, A: []float64{3, 4}}, nil},
		{gauss.Diagonal{1, 2}, savedResponse{}, ErrShape},
		{gauss.Diagonal{1, 2}, savedResponse{Of: []int{1}, A: []float64{3}}, ErrShape},
		{gauss.Diagonal{1, 2}, savedResponse{Of: []int{2}, A: []float64{3, 4}}, ErrShape},
		{gauss.Diagonal{1, 2}, savedResponse{Of: []int{-1}, A: []float64{3, 4}}, ErrShape},
		{gauss.Diagonal{1, 2}, savedResponse{Of: []int{1}, A: []float64{3, math.NaN()}}, ErrNotFinite},
		{gauss.NewLowRank(2, 1), savedResponse{Of: []int{1}, A: []float64{3, 4}}, ErrShape},
	} {
		p := &GLMPosterior{cov: c.cov, mean: make([]float64, 2)}
		if err := c.s.load(p); !errors.Is(err, c.want) {
			t.Errorf("%+v: error %v, want %v", c.s, err, c.want)
		} else if c.want == nil && !slices.Equal(p.SD(nil), []float64{math.Sqrt(10), 4}) {
			t.Errorf("%+v: sds %v", c.s, p.SD(nil))
		}
	}
}
