package groups

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// noisyWaves draws n rows of a noisy sine.
func noisyWaves(n int, seed uint64) (x *mat.Dense, y []float64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	x, y = mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, 4*rng.Float64())
		y[i] = math.Sin(2*x.At(i, 0)) + 0.4*rng.NormFloat64()
	}
	return x, y
}

// fineMix is a mixture of N(m, v) with unnormalized log weights, for the latent value in one row.
type fineMix struct{ log, m, v []float64 }

func (f *fineMix) add(log, m, v float64) {
	f.log, f.m, f.v = append(f.log, log), append(f.m, m), append(f.v, v)
}

// weights returns the normalized weights.
func (f *fineMix) weights() []float64 {
	w := make([]float64, len(f.log))
	total := floats.LogSumExp(f.log)
	for i, l := range f.log {
		w[i] = math.Exp(l - total)
	}
	return w
}

// moments returns mean and standard deviation.
func (f *fineMix) moments() (mean, sd float64) {
	var square float64
	for i, w := range f.weights() {
		mean += w * f.m[i]
		square += w * (f.v[i] + f.m[i]*f.m[i])
	}
	return mean, math.Sqrt(square - mean*mean)
}

// quantile returns the quantile at level p by bisection.
func (f *fineMix) quantile(p float64) float64 {
	w := f.weights()
	lo, hi := -100.0, 100.0
	for range 60 {
		mid := (lo + hi) / 2
		sum := 0.0
		for i := range w {
			sum += w[i] * special.NormalTail((f.m[i]-mid)/math.Sqrt(f.v[i]))
		}
		if sum < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// fineAxis returns n + 1 values of θ = log p within reach posterior standard deviations of p, and their log
// prior.
func fineAxis(p *LearnedParam, sd, reach float64, n int) (theta, log []float64) {
	if p.Fixed {
		return []float64{math.Log(p.Value)}, []float64{0}
	}
	for i := range n + 1 {
		t := math.Log(p.Value) + reach*sd*(2*float64(i)/float64(n)-1)
		d := (t - p.Prior.Mean) / p.Prior.SD
		theta, log = append(theta, t), append(log, -0.5*d*d)
	}
	return theta, log
}

// TestIntegrateGP compares an integrated GP regression with dense numeric integration over two and
// three hyperparameters, for which the posterior and the evidence have closed forms.
func TestIntegrateGP(t *testing.T) {
	for name, c := range map[string]struct {
		n, fine int
		fixed   []string
		tol     float64 // largest error of predictions, in standard deviations
	}{
		"noise given": {15, 60, []string{"GaussianNoise.Var"}, 2e-3},
		"three":       {20, 24, nil, 1e-2},
	} {
		x, y := noisyWaves(c.n, 3)
		g, err := NewGP(x, y, SquaredExp{}, GaussianNoise{Var: 0.2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, plain, err := g.Learn(context.Background(), nil, &LearnOptions{Fixed: c.fixed})
		if err != nil {
			t.Fatal(err)
		}
		_, post, learned, err := g.Learn(context.Background(), nil,
			&LearnOptions{Integrate: true, Fixed: c.fixed})
		if err != nil {
			t.Fatal(err)
		}
		at := mat.NewDense(4, 1, []float64{0.4, 1.7, 3.9, 5})
		fine, thetas := fineGP(x, y, plain.Params, at, c.fine)
		pred := post.At(at)
		m, v := pred.Latent(nil, nil)
		lo, hi, err := pred.MeanInterval(nil, nil, 0.9)
		if err != nil {
			t.Fatal(err)
		}
		var dm, ds, dq float64
		for i := range fine {
			mean, sd := fine[i].moments()
			dm = max(dm, math.Abs(m[i]-mean)/sd)
			ds = max(ds, math.Abs(math.Log(math.Sqrt(v[i])/sd)))
			for k, q := range []float64{lo[i], hi[i]} {
				dq = max(dq, math.Abs(q-fine[i].quantile(0.05+0.9*float64(k)))/sd)
			}
		}
		var di float64
		for j, p := range learned.Params {
			if p.Fixed {
				continue
			}
			_, sd := thetas[j].moments()
			di = max(di, math.Abs(math.Log(p.Lo)-thetas[j].quantile(0.025))/sd,
				math.Abs(math.Log(p.Hi)-thetas[j].quantile(0.975))/sd)
		}
		t.Logf("%s: %d points; off by %.1e (mean), %.1e (sd), %.1e (quantiles), %.1e (intervals of θ) "+
			"standard deviations", name, learned.Points, dm, ds, dq, di)
		if max(dm, ds, dq) > c.tol {
			t.Errorf("%s: predictions differ by %.2g standard deviations", name, max(dm, ds, dq))
		}
		if di > 0.2 {
			t.Errorf("%s: intervals of hyperparameters differ by %.2g standard deviations", name, di)
		}
	}
}

// fineGP returns the mixtures of the latent values in the rows of at, and of the hyperparameters θ,
// over a fine grid around the values of three parameters: scale, length scale and noise.
func fineGP(x *mat.Dense, y []float64, params []LearnedParam, at *mat.Dense, n int) (rows,
	thetas []fineMix) {
	const reach = 9
	var axis, prior [3][]float64
	for j := range params {
		axis[j], prior[j] = fineAxis(&params[j], params[j].SD, reach, n)
	}
	rows, thetas = make([]fineMix, at.RawMatrix().Rows), make([]fineMix, 3)
	size := len(y)
	k, cross := mat.NewSymDense(size, nil), mat.NewVecDense(size, nil)
	obs := mat.NewVecDense(size, y)
	for i, scale := range axis[0] {
		for j, length := range axis[1] {
			kernel := SquaredExp{Scale: math.Exp(scale), Length: math.Exp(length)}
			for l, noise := range axis[2] {
				for a := range size {
					for b := range a + 1 {
						k.SetSym(a, b, kernel.Cov(x.RawRowView(a), x.RawRowView(b)))
					}
					k.SetSym(a, a, k.At(a, a)+math.Exp(noise))
				}
				var chol mat.Cholesky
				var alpha, sol mat.VecDense
				if !chol.Factorize(k) || chol.SolveVecTo(&alpha, obs) != nil {
					continue
				}
				log := -0.5*mat.Dot(obs, &alpha) - 0.5*chol.LogDet() + prior[0][i] + prior[1][j] +
					prior[2][l]
				for r := range rows {
					row := at.RawRowView(r)
					for a := range size {
						cross.SetVec(a, kernel.Cov(x.RawRowView(a), row))
					}
					_ = chol.SolveVecTo(&sol, cross)
					rows[r].add(log, mat.Dot(cross, &alpha),
						kernel.Cov(row, row)-mat.Dot(cross, &sol))
				}
				for p, theta := range []float64{scale, length, noise} {
					step := axis[p][len(axis[p])-1] - axis[p][0]
					step /= float64(max(1, len(axis[p])-1))
					thetas[p].add(log, theta, step*step/12+1e-9)
				}
			}
		}
	}
	return rows, thetas
}

// fineGLM returns the mixture of the latent values in the rows of at over a fine grid of the prior
// standard deviation of the weights, by fits at each of them.
func fineGLM(t *testing.T, x mat.Matrix, y []float64, lik Likelihood, p *LearnedParam, at *mat.Dense,
	n int) (rows []fineMix, theta fineMix) {
	t.Helper()
	axis, prior := fineAxis(p, p.SD, 8, n)
	rows = make([]fineMix, at.RawMatrix().Rows)
	for i, v := range axis {
		g, err := NewGLM(x, y, lik, &GLMOptions{Intercept: true, PriorSD: math.Exp(v)})
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(context.Background(), &Solver{Goal: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		m, s := post.Latent(nil, nil, at)
		for r := range rows {
			rows[r].add(res.ELBO+prior[i], m[r], s[r])
		}
		step := axis[1] - axis[0]
		theta.add(res.ELBO+prior[i], v, step*step/12)
	}
	return rows, theta
}

// manyWeights draws n labels, counts or numbers from a GLM with d weights.
func manyWeights(lik Likelihood, n, d int, seed uint64) (x *mat.Dense, y []float64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	x = mat.NewDense(n, d, nil)
	for i := range n {
		eta := 0.3
		for j := range d {
			x.Set(i, j, rng.NormFloat64())
			eta += 0.5 * x.At(i, j) * float64(1-2*(j%2))
		}
		y = append(y, mixedResponse(lik, eta, rng))
	}
	return x, y
}

// TestIntegrateGLM compares an integrated GLM with dense numeric integration over the prior standard
// deviation of its weights.
func TestIntegrateGLM(t *testing.T) {
	for name, c := range map[string]struct {
		lik  Likelihood
		n, d int
		tol  float64 // largest error of predictions, in standard deviations
	}{
		"logit":        {BernoulliLogit{}, 40, 5, 1e-3},
		"Poisson":      {Poisson{}, 30, 3, 1e-3},
		"dual":         {BernoulliLogit{}, 20, 30, 1e-2},
		"more rows":    {BernoulliLogit{}, 300, 4, 1e-3},
		"one weight":   {BernoulliLogit{}, 12, 1, 1e-3},
		"two rows":     {BernoulliLogit{}, 2, 1, 3e-3},
		"noise, fixed": {GaussianNoise{Var: 0.5}, 15, 4, 1e-3},
	} {
		x, y := manyWeights(c.lik, c.n, c.d, 4)
		g, err := NewGLM(x, y, c.lik, &GLMOptions{Intercept: true})
		if err != nil {
			t.Fatal(err)
		}
		fixed := []string{}
		if name == "noise, fixed" {
			fixed = append(fixed, "GaussianNoise.Var")
		}
		_, _, plain, err := g.Learn(context.Background(), nil, &LearnOptions{Fixed: fixed})
		if err != nil {
			t.Fatal(err)
		}
		_, post, learned, err := g.Learn(context.Background(), nil,
			&LearnOptions{Integrate: true, Fixed: fixed})
		if err != nil {
			t.Fatal(err)
		}
		at, _ := manyWeights(c.lik, 4, c.d, 5)
		rows, theta := fineGLM(t, x, y, c.lik, &plain.Params[0], at, 80)
		m, v := post.Latent(nil, nil, at)
		var dm, ds float64
		for i := range rows {
			mean, sd := rows[i].moments()
			dm = max(dm, math.Abs(m[i]-mean)/sd)
			ds = max(ds, math.Abs(math.Log(math.Sqrt(v[i])/sd)))
		}
		_, sd := theta.moments()
		p := learned.Params[0]
		di := max(math.Abs(math.Log(p.Lo)-theta.quantile(0.025))/sd,
			math.Abs(math.Log(p.Hi)-theta.quantile(0.975))/sd)
		t.Logf("%s: %d points; off by %.1e (mean), %.1e (sd), %.1e (interval of θ) standard "+
			"deviations", name, learned.Points, dm, ds, di)
		if max(dm, ds) > c.tol || di > 0.1 {
			t.Errorf("%s: off by %.2g (mean), %.2g (sd) and %.2g (interval of θ) standard deviations",
				name, dm, ds, di)
		}
	}
}

// predictor is a posterior that predicts rows of Cols columns.
type predictor interface {
	Cols() int
	At(x mat.Matrix) *Prediction
}

// integratedModel is a model with integrated hyperparameters.
type integratedModel struct {
	name string
	cols int
	// fit returns a posterior that can be saved, and a copy that was saved and loaded.
	fit func(s *Solver) (post, loaded predictor, learned *Learned, err error)
}

// savedCopy returns the posterior and a copy that was saved and loaded.
func savedCopy[P interface {
	predictor
	Save(w io.Writer) error
}](p P, learned *Learned, err error, load func(r io.Reader) (P, error)) (post, loaded predictor,
	l *Learned, e error) {
	if err != nil {
		return nil, nil, learned, err
	}
	var b bytes.Buffer
	if err := p.Save(&b); err != nil {
		return nil, nil, learned, err
	}
	q, err := load(&b)
	return p, q, learned, err
}

// integratedModels returns models with the given number of rows.
func integratedModels(t *testing.T, n int, seed uint64) (all []integratedModel) {
	t.Helper()
	ctx := context.Background()
	opt := &LearnOptions{Integrate: true}
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	for _, lik := range []Likelihood{GaussianNoise{}, BernoulliLogit{}, Poisson{},
		NegativeBinomial{}, Softmax{Classes: 3}} {
		of := lik
		if lik == (Softmax{Classes: 3}) {
			of = Binomial{Trials: 2}
		}
		x, y := manyWeights(of, n, 2, seed)
		glm, err := NewGLM(x, y, lik, &GLMOptions{Intercept: true})
		must(err)
		all = append(all, integratedModel{"GLM " + testkit.TypeName(lik), 2,
			func(s *Solver) (predictor, predictor, *Learned, error) {
				_, p, l, err := glm.Learn(ctx, s, opt)
				return savedCopy(p, l, err, Load[*GLMPosterior])
			}})
		if _, counts := lik.(NegativeBinomial); counts {
			continue
		}
		gp, err := NewGP(x, y, SquaredExp{}, lik, nil)
		must(err)
		all = append(all, integratedModel{"GP " + testkit.TypeName(lik), 2,
			func(s *Solver) (predictor, predictor, *Learned, error) {
				_, p, l, err := gp.Learn(ctx, s, opt)
				return savedCopy(p, l, err, Load[*GPPosterior])
			}})
	}
	x, y := manyWeights(GaussianNoise{}, 3*n, 2, seed)
	sparse, err := NewSparseGP(x, y, SquaredExp{}, GaussianNoise{}, &SparseGPOptions{Rank: n})
	must(err)
	all = append(all, integratedModel{"SparseGP", 2,
		func(s *Solver) (predictor, predictor, *Learned, error) {
			_, p, l, err := sparse.Learn(ctx, s, opt)
			return savedCopy(p, l, err, Load[*SparseGPPosterior])
		}})
	c := newOneGroup(GaussianNoise{}, 6, 0.7, seed)
	grouped, err := NewGLM(c.x, c.y, GaussianNoise{}, &GLMOptions{Intercept: true,
		Groups: []Group{{First: 1, Levels: 7}}})
	must(err)
	return append(all, integratedModel{"groups", 8,
		func(s *Solver) (predictor, predictor, *Learned, error) {
			_, p, l, err := grouped.Learn(ctx, s, opt)
			return savedCopy(p, l, err, Load[*GLMPosterior])
		}})
}

// predictions returns numbers of each kind that p predicts in a few rows.
func predictions(t *testing.T, p predictor) (all []float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 1))
	x := mat.NewDense(3, p.Cols(), nil)
	for i := range 3 {
		for j := range p.Cols() {
			x.Set(i, j, rng.NormFloat64())
		}
	}
	q := p.At(x)
	m, v := q.Latent(nil, nil)
	y := []float64{1, 1, 1}
	all = slices.Concat(m, v, q.Prob(nil, 1), q.LogProb(nil, y), q.Row(1).Prob(nil, 1))
	if s := kit.FactsOf(q.Likelihood()).Support; s == Counts || s == SignLabels {
		lo, hi, err := q.ProbInterval(nil, nil, 1, 0.9)
		if err != nil {
			t.Error(err)
		}
		all = slices.Concat(all, lo, hi, q.ProbSD(nil, 1))
	}
	if _, several := q.Likelihood().(Softmax); several {
		return all
	}
	mean, variance, err := q.Moments(nil, nil)
	lo, hi, err2 := q.Interval(nil, nil, 0.9)
	low, high, err3 := q.MeanInterval(nil, nil, 0.9)
	if err := errors.Join(err, err2, err3, q.Err()); err != nil {
		t.Error(err)
	}
	for i := range mean {
		if !(lo[i] <= hi[i] && low[i] <= high[i] && variance[i] >= 0) {
			t.Errorf("row %d: variance %v, mean from %v to %v, interval %v to %v", i, variance[i],
				low[i], high[i], lo[i], hi[i])
		}
	}
	return slices.Concat(all, mean, variance, lo, hi, low, high)
}

// TestIntegrateModels checks that every model integrates, that its predictions are finite, that a saved
// posterior has the same bits, and that workers and GOMAXPROCS do not change them.
func TestIntegrateModels(t *testing.T) {
	n, short := 25, map[string]bool{"GLM GaussianNoise": true, "GLM Softmax": true, "groups": true,
		"GP BernoulliLogit": true, "SparseGP": true}
	if testing.Short() {
		n = 8
	}
	for _, c := range integratedModels(t, n, 1) {
		if testing.Short() && !short[c.name] {
			continue
		}
		post, loaded, learned, err := c.fit(nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if learned.Points < 5 {
			t.Errorf("%s: %d points", c.name, learned.Points)
		}
		t.Logf("%s: %d points, warnings %q", c.name, learned.Points, learned.Warnings)
		want := predictions(t, post)
		if j, ok := dense.AllFinite(want); !ok {
			t.Errorf("%s: prediction %d is %v", c.name, j, want[j])
		}
		if got := predictions(t, loaded); !slices.Equal(got, want) {
			t.Errorf("%s: a loaded posterior predicts\n%v, want\n%v", c.name, got, want)
		}
		before := runtime.GOMAXPROCS(5)
		other, _, _, err := c.fit(&Solver{Workers: 3})
		if err == nil && !slices.Equal(predictions(t, other), want) {
			t.Errorf("%s: more workers change predictions", c.name)
		}
		runtime.GOMAXPROCS(before)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestIntegrateEdges checks hyperparameters at an edge: responses without signal, without noise, or
// equal, few rows, and densities without priors.
func TestIntegrateEdges(t *testing.T) {
	ctx := context.Background()
	seeds := uint64(24)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 8))
		n := 1 + rng.IntN(12)
		x, y := mat.NewDense(n, 1, nil), make([]float64, n)
		labels := make([]float64, n)
		size := math.Pow(10, float64(rng.IntN(9)-4))
		for i := range n {
			x.Set(i, 0, rng.NormFloat64())
			labels[i] = 1
			switch seed % 4 {
			case 0: // equal responses
				y[i] = size
			case 1: // no noise
				y[i] = size * x.At(i, 0)
			case 2: // no signal
				y[i] = size * rng.NormFloat64()
				labels[i] = float64(1 - 2*rng.IntN(2))
			default: // separable
				y[i] = size * math.Copysign(1, x.At(i, 0))
				labels[i] = math.Copysign(1, x.At(i, 0))
			}
		}
		opt := &LearnOptions{Integrate: true, NoPrior: seed%3 == 0}
		for k, lik := range []Likelihood{GaussianNoise{}, BernoulliLogit{}} {
			of := [][]float64{y, labels}[k]
			g, err := NewGP(x, of, SquaredExp{}, lik, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, p, _, err := g.Learn(ctx, nil, opt); err == nil {
				if j, ok := dense.AllFinite(predictions(t, p)); !ok {
					t.Errorf("seed %d: GP %T: prediction %d is not finite", seed, lik, j)
				}
			} else if !errors.Is(err, ErrDiverged) {
				t.Errorf("seed %d: GP %T: %v", seed, lik, err)
			}
			m, err := NewGLM(x, of, lik, &GLMOptions{Intercept: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, p, _, err := m.Learn(ctx, nil, opt); err == nil {
				if j, ok := dense.AllFinite(predictions(t, p)); !ok {
					t.Errorf("seed %d: GLM %T: prediction %d is not finite", seed, lik, j)
				}
			} else if !errors.Is(err, ErrDiverged) {
				t.Errorf("seed %d: GLM %T: %v", seed, lik, err)
			}
		}
	}
}

// TestIntegrateRefused checks the errors of models that cannot be integrated, and their texts.
func TestIntegrateRefused(t *testing.T) {
	x, y := manyWeights(GaussianNoise{}, 30, 12, 1)
	opt := &LearnOptions{Integrate: true}
	gp, err := NewGP(x, y, SquaredExp{Lengths: make([]float64, 12)}, GaussianNoise{}, nil)
	if err == nil {
		_, err = gp.Learner(opt)
	}
	if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "at most 10") {
		t.Errorf("14 hyperparameters: %v", err)
	}
	if _, err = gp.Learner(&LearnOptions{Integrate: true,
		Fixed: []string{"SquaredExp.Length"}}); err != nil {
		t.Error(err)
	}
}
