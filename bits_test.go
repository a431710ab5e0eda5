package pgsvi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"hash"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"
	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi"
)

// bitsFile holds the hash and the name of each fit of TestFitBits. A commit that only moves code
// leaves it unchanged. A commit that changes results rewrites it and mentions that in its message:
//
//	go test -run FitBits -bits testdata/bits.txt .
const bitsFile = "testdata/bits.txt"

var writeBits = flag.String("bits", "",
	"the file to which TestFitBits writes its hashes, in place of comparing them")

// fitBits is the hash of the results of a fit.
type fitBits struct{ hash.Hash }

func (b fitBits) add(xs ...float64) {
	for _, x := range xs {
		if math.IsNaN(x) {
			x = math.NaN() // one of many NaNs
		}
		b.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
	}
}

func (b fitBits) matrix(m mat.Matrix) {
	rows, cols := m.Dims()
	for i := range rows {
		for j := range cols {
			b.add(m.At(i, j))
		}
	}
}

func (b fitBits) evaluation(e pgsvi.Evaluation) { b.add(e.ELBO, e.ELBOErr, e.Gap, e.GapBound) }

func (b fitBits) result(r *pgsvi.Result) {
	for _, it := range r.Trace {
		b.evaluation(it.Evaluation)
		b.add(float64(it.K), it.Passes, it.GradMap)
	}
	b.evaluation(r.Evaluation)
	b.add(r.Passes, float64(r.Status))
}

func (b fitBits) learned(l *pgsvi.Learned) {
	b.add(l.Objective, float64(l.Evaluations))
	b.add(l.LogPrior, l.Passes)
	b.result(l.Fit)
	for _, p := range l.Params {
		b.add(p.Value, p.SD)
	}
}

func (b fitBits) prediction(p *pgsvi.Prediction) error {
	m, v := p.Latent(nil, nil)
	mean, variance, err := p.Moments(nil, nil)
	for _, x := range [][]float64{m, v, mean, variance} {
		b.add(x...)
	}
	return err
}

func (b fitBits) saved(p interface{ Save(io.Writer) error }) error {
	return p.Save(b)
}

// resumed saves the run r of s on m and continues it.
func (b fitBits) resumed(r *pgsvi.Result, m pgsvi.Model, of *pgsvi.Solver) error {
	var file bytes.Buffer
	if err := r.Save(&file); err != nil {
		return err
	}
	var s pgsvi.Solver
	if of != nil {
		s = *of
	}
	s.MaxPasses, s.Goal = r.Passes+2, 1e-13
	back, err := s.LoadResult(context.Background(), &file, m)
	if err != nil {
		return err
	}
	if back, err = s.Resume(context.Background(), back); err == nil {
		b.result(back)
	}
	return err
}

// bitsData holds random rows, and several types of responses to a linear predictor.
type bitsData struct {
	x                     *mat.Dense
	at                    *mat.Dense // the first rows, to predict
	offset, weight        []float64  // some weights are 0
	sign, count, real, up []float64
}

func newBitsData(n, d int, seed uint64, scale float64) *bitsData {
	rng := rand.New(rand.NewPCG(seed, 77))
	c := &bitsData{x: mat.NewDense(n, d, nil)}
	beta := make([]float64, d)
	for j := range beta {
		beta[j] = rng.NormFloat64() * scale / math.Sqrt(float64(d))
	}
	for i := range n {
		eta := 0.0
		for j := range d {
			v := rng.NormFloat64()
			c.x.Set(i, j, v)
			eta += v * beta[j]
		}
		sign, count, noise := 1.0, 0.0, 0.3*rng.NormFloat64()
		if rng.Float64() > 1/(1+math.Exp(-eta)) {
			sign = -1
		}
		for p := rng.Float64(); p > math.Exp(-math.Exp(eta)); p *= rng.Float64() {
			count++
		}
		if i%17 == 0 {
			noise += 5
		}
		c.sign, c.count = append(c.sign, sign), append(c.count, count)
		c.real, c.up = append(c.real, eta+noise), append(c.up, math.Exp(eta)*rng.ExpFloat64())
		c.offset, c.weight = append(c.offset, 0.3*rng.NormFloat64()),
			append(c.weight, float64(rng.IntN(3)))
	}
	c.at = mat.DenseCopyOf(c.x.Slice(0, min(n, 20), 0, d))
	return c
}

// fits returns the fits of TestFitBits by name.
func fits() map[string]func(b fitBits) error {
	ctx, all := context.Background(), map[string]func(b fitBits) error{}
	se := pgsvi.SquaredExp{Scale: 2, Length: 1.5}
	logit, student := pgsvi.BernoulliLogit{}, pgsvi.StudentT{DF: 4, Scale: 0.5}

	gp := func(name string, c *bitsData, y []float64, k pgsvi.Kernel, l pgsvi.Likelihood,
		o *pgsvi.GPOptions, s *pgsvi.Solver) {
		all["gp "+name] = func(b fitBits) error {
			m, err := pgsvi.NewGP(c.x, y, k, l, o)
			if err != nil {
				return err
			}
			p, r, err := m.Fit(ctx, s)
			if err != nil {
				return err
			}
			mean, variance := p.Train(nil, nil)
			gamma, sites := p.Sites(nil, nil)
			for _, x := range [][]float64{mean, variance, gamma, sites} {
				b.add(x...)
			}
			b.result(r)
			if err := b.prediction(p.At(c.at)); err != nil {
				return err
			}
			if err := b.saved(p); err != nil {
				return err
			}
			return b.resumed(r, m, s)
		}
	}
	small, wide := newBitsData(120, 2, 1, 1), newBitsData(120, 3, 2, 2)
	count := make([]float64, len(small.count)) // 0 to 3
	for i, y := range small.count {
		count[i] = min(y, 3)
	}
	for name, l := range map[string]struct {
		y []float64
		l pgsvi.Likelihood
	}{
		"probit":            {small.sign, pgsvi.BernoulliProbit{}},
		"poisson":           {small.count, pgsvi.Poisson{}},
		"binomial":          {count, pgsvi.Binomial{Trials: 3}},
		"negative binomial": {small.count, pgsvi.NegativeBinomial{Shape: 2}},
		"gamma":             {small.up, pgsvi.Gamma{Shape: 2}},
		"exponential":       {small.up, pgsvi.Exponential{}},
		"gaussian":          {small.real, pgsvi.GaussianNoise{Var: 0.1}},
		"laplace":           {small.real, pgsvi.Laplace{Scale: 0.3}},
		"student":           {small.real, student},
		"ordinal":           {count, pgsvi.Ordinal{Cuts: []float64{-1, 0, 1.5}}},
	} {
		gp(name, small, l.y, se, l.l, nil, nil)
	}
	for name, k := range map[string]pgsvi.Kernel{
		"matern12":           pgsvi.Matern12{Scale: 2},
		"matern32":           pgsvi.Matern32{Scale: 2},
		"matern52":           pgsvi.Matern52{Scale: 2, Lengths: []float64{1, 2, 3}},
		"rational quadratic": pgsvi.RationalQuadratic{Scale: 2},
		"periodic":           pgsvi.Periodic{Scale: 2, Period: 3},
		"linear":             pgsvi.Linear{Scale: 1e4},
		"sum":                pgsvi.Sum{se, pgsvi.Constant{Scale: 3}, pgsvi.White{Scale: 0.3}},
		"product":            pgsvi.Product{se, pgsvi.Linear{}},
	} {
		gp(name, wide, wide.sign, k, logit, nil, nil)
	}
	gp("poisson of a wide prior", small, small.count, pgsvi.SquaredExp{Scale: 100}, pgsvi.Poisson{},
		nil, nil)
	gp("steps of all terms", wide, wide.sign, se, logit, nil, &pgsvi.Solver{BatchSize: 120})
	gp("steps of the paper", wide, wide.sign, se, logit, nil,
		&pgsvi.Solver{StepSize: pgsvi.ConstantStep(0.5), BatchSize: 20, MaxPasses: 10})
	gp("steps of the appendix", small, small.real, se, student,
		&pgsvi.GPOptions{Coordinates: pgsvi.MeanCov},
		&pgsvi.Solver{StepSize: pgsvi.ConstantStep(0.3), MaxPasses: 10})
	gp("steps of draws", wide, wide.sign, se, logit,
		&pgsvi.GPOptions{Estimator: pgsvi.Pathwise(20)},
		&pgsvi.Solver{StepSize: pgsvi.ConstantStep(0.2), BatchSize: 30, MaxPasses: 4})
	gp("symmetric KL", small, small.sign, se, logit, &pgsvi.GPOptions{Jitter: 0.01},
		&pgsvi.Solver{Divergence: pgsvi.SymKL(), MaxPasses: 4})
	large := newBitsData(700, 3, 3, 2)
	gp("700 rows", large, large.sign, se, logit, nil, nil)

	glm := func(name string, c *bitsData, x mat.Matrix, y []float64, l pgsvi.Likelihood,
		o *pgsvi.GLMOptions, s *pgsvi.Solver) {
		all["glm "+name] = func(b fitBits) error {
			m, err := pgsvi.NewGLM(x, y, l, o)
			if err != nil {
				return err
			}
			p, r, err := m.Fit(ctx, s)
			if err != nil {
				return err
			}
			b.add(p.Mean(nil)...)
			b.add(p.SD(nil)...)
			b.result(r)
			rows, cols := x.Dims()
			if err := b.prediction(
				p.At(mat.DenseCopyOf(x).Slice(0, min(rows, 10), 0, cols))); err != nil {
				return err
			}
			if err := b.saved(p); err != nil || o != nil && o.Learn != nil {
				return err
			}
			return b.resumed(r, m, s)
		}
	}
	c := newBitsData(800, 8, 11, 2)
	glm("logit", c, c.x, c.sign, logit, &pgsvi.GLMOptions{Intercept: true}, nil)
	glm("autoscale", c, c.x, c.sign, logit,
		&pgsvi.GLMOptions{Intercept: true, Autoscale: true, PriorSD: 2}, nil)
	glm("sparse rows", c, pgsvi.SparseOf(c.x), c.sign, logit, nil, nil)
	c = newBitsData(600, 6, 12, 1)
	glm("poisson, weights, offsets", c, c.x, c.count, pgsvi.Poisson{},
		&pgsvi.GLMOptions{Intercept: true, Offset: c.offset, Weights: c.weight}, nil)
	c = newBitsData(300, 80, 14, 2)
	glm("80 columns", c, c.x, c.sign, logit, nil, nil)
	glm("80 columns, student", c, c.x, c.real, student, &pgsvi.GLMOptions{Offset: c.offset}, nil)
	c = newBitsData(400, 5, 15, 1)
	glm("steps of the paper", c, c.x, c.sign, logit, nil,
		&pgsvi.Solver{StepSize: pgsvi.ConstantStep(0.5), BatchSize: 50, MaxPasses: 6})
	glm("steps of the appendix", c, c.x, c.sign, logit,
		&pgsvi.GLMOptions{Coordinates: pgsvi.MeanCov},
		&pgsvi.Solver{StepSize: pgsvi.ConstantStep(0.4), MaxPasses: 6})
	c = newBitsData(60, 200, 16, 2)
	glm("dual, weights, offsets", c, c.x, c.sign, logit,
		&pgsvi.GLMOptions{Offset: c.offset, Weights: c.weight}, nil)
	glm("dual, poisson", c, c.x, c.count, pgsvi.Poisson{}, &pgsvi.GLMOptions{PriorSD: 0.3}, nil)
	c = newBitsData(40, 120, 18, 1)
	far := mat.DenseCopyOf(c.x)
	far.Apply(func(_, _ int, v float64) float64 { return 1e6 + v }, far)
	glm("columns far from zero", c, far, c.sign, logit, nil, nil)
	c = newBitsData(300, 25, 19, 1)
	glm("diagonal", c, c.x, c.sign, logit, &pgsvi.GLMOptions{Covariance: pgsvi.DiagonalCovariance},
		nil)
	glm("diagonal, poisson, weights, offsets", c, c.x, c.count, pgsvi.Poisson{},
		&pgsvi.GLMOptions{Covariance: pgsvi.DiagonalCovariance, Offset: c.offset,
			Weights: c.weight}, nil)
	glm("low rank", c, c.x, c.sign, logit,
		&pgsvi.GLMOptions{Covariance: pgsvi.LowRankCovariance, Rank: 5}, nil)
	c = newBitsData(300, 12, 36, 1)
	glm("learned", c, c.x, c.count, pgsvi.Poisson{},
		&pgsvi.GLMOptions{Learn: &pgsvi.LearnOptions{}}, nil)
	glm("blocks learned", c, c.x, c.sign, logit,
		&pgsvi.GLMOptions{Blocks: []int{0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
			Learn: &pgsvi.LearnOptions{}}, nil)
	c = newBitsData(50, 120, 37, 1)
	glm("dual, learned", c, c.x, c.sign, logit, &pgsvi.GLMOptions{Learn: &pgsvi.LearnOptions{}},
		nil)

	rows := newBitsData(600, 4, 40, 1)
	all["glm stream"] = func(b fitBits) error {
		s, err := pgsvi.NewGLMStream(4, logit, &pgsvi.GLMOptions{Intercept: true})
		if err != nil {
			return err
		}
		if err := s.AddAll(ctx, pgsvi.Rows(rows.x, rows.sign)); err != nil {
			return err
		}
		p, err := s.Posterior()
		if err != nil {
			return err
		}
		b.add(p.Mean(nil)...)
		b.matrix(p.Cov())
		if p, err = p.Remove(ctx,
			pgsvi.Rows(rows.x.Slice(0, 50, 0, 4), rows.sign[:50])); err != nil {
			return err
		}
		b.add(p.Mean(nil)...)
		return b.saved(s)
	}

	spread := newBitsData(500, 2, 39, 2)
	sparse := func(name string, y []float64, l pgsvi.Likelihood,
		of func() (*pgsvi.SparseGP, error)) {
		all["sparse gp"+name] = func(b fitBits) error {
			m, err := of()
			if err != nil {
				return err
			}
			p, r, err := m.Fit(ctx, nil)
			if err != nil {
				return err
			}
			b.result(r)
			b.matrix(m.Inducing())
			if err := b.prediction(p.At(spread.at)); err != nil {
				return err
			}
			if err := b.saved(p); err != nil {
				return err
			}
			return b.resumed(r, m, nil)
		}
	}
	sparse("", spread.sign, logit, func() (*pgsvi.SparseGP, error) {
		return pgsvi.NewSparseGP(spread.x, spread.sign, se, logit, &pgsvi.SparseGPOptions{Rank: 40})
	})
	sparse(" of rows", spread.count, pgsvi.Poisson{}, func() (*pgsvi.SparseGP, error) {
		return pgsvi.NewSparseGPRows(ctx, pgsvi.Rows(spread.x, spread.count), 2, se,
			pgsvi.Poisson{}, &pgsvi.SparseGPOptions{Rank: 30})
	})
	kinds := make([]float64, len(spread.count)) // three classes
	for i, y := range spread.count {
		kinds[i] = min(y, 2)
	}
	several := func(name string, fit func() (*pgsvi.Prediction, *pgsvi.Result, error)) {
		all["classes, "+name] = func(b fitBits) error {
			p, r, err := fit()
			if err != nil {
				return err
			}
			b.result(r)
			m, v := p.Latent(nil, nil)
			b.add(m...)
			b.add(v...)
			b.matrix(p.Probs())
			return nil
		}
	}
	several("glm", func() (*pgsvi.Prediction, *pgsvi.Result, error) {
		m, err := pgsvi.NewGLM(spread.x, kinds, pgsvi.Softmax{}, &pgsvi.GLMOptions{Intercept: true,
			PriorSD: 2})
		if err != nil {
			return nil, nil, err
		}
		q, r, err := m.Fit(ctx, nil)
		return q.At(spread.at), r, err
	})
	several("gp", func() (*pgsvi.Prediction, *pgsvi.Result, error) {
		x, y := pgsvi.SelectRows(spread.x, kinds, []int{1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233,
			377})
		m, err := pgsvi.NewGP(x, y, se, pgsvi.Softmax{Classes: 3}, nil)
		if err != nil {
			return nil, nil, err
		}
		q, r, err := m.Fit(ctx, nil)
		return q.At(spread.at), r, err
	})
	several("sparse gp", func() (*pgsvi.Prediction, *pgsvi.Result, error) {
		m, err := pgsvi.NewSparseGP(spread.x, kinds, se, pgsvi.Softmax{},
			&pgsvi.SparseGPOptions{Rank: 20})
		if err != nil {
			return nil, nil, err
		}
		q, r, err := m.Fit(ctx, nil)
		return q.At(spread.at), r, err
	})
	all["sparse gp learned"] = func(b fitBits) error {
		m, err := pgsvi.NewSparseGP(spread.x, spread.real, pgsvi.SquaredExp{},
			pgsvi.GaussianNoise{}, &pgsvi.SparseGPOptions{Rank: 20})
		if err != nil {
			return err
		}
		_, p, l, err := m.Learn(ctx, nil, nil)
		if err != nil {
			return err
		}
		b.learned(l)
		return b.prediction(p.At(spread.at))
	}
	for name, l := range map[string]struct {
		y []float64
		l pgsvi.Likelihood
		k pgsvi.Kernel
	}{
		"":         {small.sign, logit, pgsvi.SquaredExp{}},
		" lengths": {small.sign, logit, pgsvi.Matern52{Lengths: make([]float64, 2)}},
		" noise":   {small.real, pgsvi.GaussianNoise{}, pgsvi.SquaredExp{}},
		" of counts": {small.count, pgsvi.NegativeBinomial{},
			pgsvi.Sum{pgsvi.SquaredExp{}, pgsvi.Constant{}}},
	} {
		all["gp learned"+name] = func(b fitBits) error {
			m, err := pgsvi.NewGP(small.x, l.y, l.k, l.l, nil)
			if err != nil {
				return err
			}
			_, p, learned, err := m.Learn(ctx, nil, nil)
			if err != nil {
				return err
			}
			b.learned(learned)
			return b.prediction(p.At(small.at))
		}
	}
	all["glm checked"] = func(b fitBits) error {
		m, err := pgsvi.NewGLM(small.x, small.real, pgsvi.GaussianNoise{}, nil)
		if err != nil {
			return err
		}
		p, _, err := m.Fit(ctx, nil)
		if err != nil {
			return err
		}
		psis, err := m.PSIS(ctx, nil, p, 0)
		if err != nil {
			return err
		}
		b.add(psis.LogZ, psis.ESS)
		b.add(psis.Mean...)
		return nil
	}
	all["gp checked"] = func(b fitBits) error {
		m, err := pgsvi.NewGP(small.x, small.count, se, pgsvi.Poisson{}, nil)
		if err != nil {
			return err
		}
		p, _, err := m.Fit(ctx, nil)
		if err != nil {
			return err
		}
		loo, err := m.LOO(ctx, p)
		if err != nil {
			return err
		}
		psis, err := m.PSIS(ctx, nil, p, 0)
		if err != nil {
			return err
		}
		b.add(loo.ELPD, loo.SE, psis.KHat)
		return nil
	}

	corpus := bitsCorpus()
	all["ctm"] = func(b fitBits) error {
		m, err := pgsvi.NewCTM(corpus, 3, nil)
		if err != nil {
			return err
		}
		p, r, err := m.Fit(ctx, &pgsvi.Solver{MaxPasses: 6})
		if err != nil {
			return err
		}
		b.result(r)
		b.matrix(p.Topics())
		b.matrix(p.Sigma())
		return b.saved(p)
	}
	all["ctm stream"] = func(b fitBits) error {
		s, err := pgsvi.NewCTMStream(corpus.Terms, 3, nil)
		if err != nil {
			return err
		}
		for _, d := range corpus.Docs {
			if err := s.Add(d); err != nil {
				return err
			}
		}
		p, err := s.Posterior()
		if err != nil {
			return err
		}
		b.matrix(p.Topics())
		return b.saved(s)
	}
	all["lda"] = func(b fitBits) error {
		m, err := pgsvi.NewLDA(corpus, 3, nil)
		if err != nil {
			return err
		}
		p, r, err := m.Fit(ctx, &pgsvi.Solver{MaxPasses: 20})
		if err != nil {
			return err
		}
		b.result(r)
		b.matrix(p.Lambda())
		return b.saved(p)
	}
	all["mixture"] = func(b fitBits) error {
		m, err := pgsvi.NewMixture(spread.x, 3, nil)
		if err != nil {
			return err
		}
		p, r, err := m.Fit(ctx, nil)
		if err != nil {
			return err
		}
		b.result(r)
		b.matrix(p.Means())
		return b.saved(p)
	}

	objective := func(name string, in pgsvi.Coordinates, s *pgsvi.Solver, l pgsvi.LogLikelihood,
		e pgsvi.Estimator, h pgsvi.Convex) {
		all["objective "+name] = func(b fitBits) error {
			o := pgsvi.Objective[*pgsvi.Gaussian]{F: pgsvi.Expect(l, e), H: h,
				Init: pgsvi.NewIsotropic(3, 0.5).In(in)}
			q, r, err := o.Fit(ctx, s)
			if err != nil {
				return err
			}
			b.result(r)
			b.add(q.Params(nil)...)
			return b.resumed(r, o, s)
		}
	}
	few := newBitsData(40, 3, 50, 1)
	terms := pgsvi.Sites{Y: few.sign, Lik: logit}
	for n := range few.sign {
		terms.X = append(terms.X, few.x.RawRowView(n))
	}
	black := pgsvi.LogLik{N: 40, Dim: 3, LogProb: func(n int, z []float64) float64 {
		eta := 0.0
		for j, w := range z {
			eta += w * few.x.At(n, j)
		}
		return logit.LogProb(few.sign[n], eta)
	}}
	prior := pgsvi.KLTo(pgsvi.NewIsotropic(3, 1))
	objective("exact", pgsvi.MeanParams, nil, terms, nil, prior)
	objective("draws", pgsvi.Cholesky, &pgsvi.Solver{BatchSize: 10, MaxPasses: 5}, black,
		pgsvi.ScoreFunction(50), prior)
	for name, s := range map[string]*pgsvi.Solver{
		"euclidean":  {Divergence: pgsvi.Euclidean()},
		"kl":         {Divergence: pgsvi.KL()},
		"reverse kl": {Divergence: pgsvi.ReverseKL()},
		"symkl":      {Divergence: pgsvi.SymKL()},
		"bregman":    {Divergence: pgsvi.Bregman(halfSquare{})},
		"adam":       {Divergence: pgsvi.Adam(0, 0, 0), BatchSize: 10},
		"function": {Divergence: pgsvi.DivergenceFunc(func(q, q0 pgsvi.Dist) float64 {
			d := 0.0
			x, x0 := q.Params(nil), q0.Params(nil)
			for i := range x {
				d += (x[i] - x0[i]) * (x[i] - x0[i])
			}
			return d
		})},
	} {
		s.StepSize, s.MaxPasses = pgsvi.ConstantStep(0.02), 5
		objective(name, pgsvi.MeanCov, s, terms, nil, prior)
	}
	all["objective of a gamma"] = func(b fitBits) error {
		q, err := pgsvi.NewGamma(2, 1)
		if err != nil {
			return err
		}
		l := pgsvi.LogLik{N: 40, Dim: 1, LogProb: func(n int, z []float64) float64 {
			return few.count[n]*math.Log(z[0]) - z[0]
		}}
		o := pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Expect(l, nil), H: pgsvi.KLTo(q), Init: q}
		got, r, err := o.Fit(ctx, nil)
		if err != nil {
			return err
		}
		b.result(r)
		b.add(got.Params(nil)...)
		return nil
	}
	return all
}

// halfSquare is the potential ½‖λ‖².
type halfSquare struct{}

func (halfSquare) Value(lambda []float64) float64 {
	sum := 0.0
	for _, x := range lambda {
		sum += x * x / 2
	}
	return sum
}
func (halfSquare) Grad(dst, lambda []float64) []float64 { return append(dst[:0], lambda...) }
func (halfSquare) InvGrad(dst, y []float64) []float64   { return append(dst[:0], y...) }

// bitsCorpus has 60 documents of three topics over 30 terms.
func bitsCorpus() *pgsvi.Corpus {
	rng := rand.New(rand.NewPCG(60, 77))
	c := &pgsvi.Corpus{Terms: 30}
	for range 60 {
		counts := make([]float64, c.Terms)
		topic := rng.IntN(3)
		for range 40 {
			if rng.IntN(4) == 0 {
				topic = rng.IntN(3)
			}
			counts[10*topic+rng.IntN(10)]++
		}
		var d pgsvi.Document
		for w, n := range counts {
			if n > 0 {
				d.Words, d.Counts = append(d.Words, w), append(d.Counts, n)
			}
		}
		c.Docs = append(c.Docs, d)
	}
	return c
}

// TestFitBits checks that a small fit of every type has the bits in bitsFile. It hashes steps,
// result, predictions, the saved file, and a run that is saved and resumed.
func TestFitBits(t *testing.T) {
	if runtime.GOARCH != "amd64" || !cpu.X86.HasFMA {
		t.Skipf("the bits of %s are those of amd64 with FMA: math.Exp has others elsewhere",
			bitsFile)
	}
	t.Parallel()
	want := map[string]string{}
	if *writeBits == "" {
		f, err := os.Open(bitsFile)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for in := bufio.NewScanner(f); in.Scan(); {
			bits, name, _ := strings.Cut(in.Text(), " ")
			want[name] = bits
		}
	}
	var lines strings.Builder
	all := fits()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := fitBits{sha256.New()}
		if err := all[name](b); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		bits := fmt.Sprintf("%x", b.Sum(nil)[:16])
		fmt.Fprintf(&lines, "%s %s\n", bits, name)
		if *writeBits == "" && bits != want[name] {
			t.Errorf("%s: bits are %s, want %s", name, bits, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s has a line in %s, and there is no such fit", name, bitsFile)
	}
	if *writeBits != "" && !t.Failed() {
		if err := os.WriteFile(*writeBits, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
