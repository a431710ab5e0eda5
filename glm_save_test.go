package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

// savedData are rows with responses that lik can have.
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
		switch factsOf(lik).Support {
		case SignLabels:
			y[i] = plusMinus(y[i] > 0)
		case Counts:
			y[i] = math.Floor(3 * math.Abs(y[i]))
		}
	}
	return x, y
}

// TestSaveGLM: a loaded posterior gives the same bits, in predictions, in draws
// and when it is updated, for every form of covariance.
func TestSaveGLM(t *testing.T) {
	full, err := NewGaussian([]float64{1, 0, -1, 0.3}, mat.NewSymDense(4, []float64{2, 0.3, 0, 0.1, 0.3, 1, 0.2, 0, 0, 0.2, 1, 0, 0.1, 0, 0, 3}))
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
		cov        weightCov
	}{
		{"primal", 30, 3, false, BernoulliLogit{}, GLMOptions{Intercept: true, PriorSD: 3}, &fullCov{}},
		{"sparse, offset, names", 30, 3, true, Poisson{Exposure: 2}, GLMOptions{Offset: offset, Names: []string{"a", "b=ü", `"`}}, &fullCov{}},
		{"full prior", 30, 3, false, StudentT{DF: 3}, GLMOptions{Intercept: true, Prior: full}, &fullCov{}},
		{"full prior, no rows", 0, 4, false, nil, GLMOptions{Prior: full}, &fullCov{}},
		{"no rows", 0, 4, false, GaussianNoise{Var: 0.3}, GLMOptions{Autoscale: true}, diagCov{}},
		{"dual to primal", 5, 20, false, BernoulliProbit{}, GLMOptions{}, &fullCov{}},
		{"dual", 6, 30, false, BernoulliLogit{}, GLMOptions{Intercept: true, Autoscale: true}, &dualCov{}},
		{"dual, sparse", 6, 30, true, StudentT{DF: 2, Scale: 0.1}, GLMOptions{Intercept: true}, &dualCov{}},
		{"diagonal", 30, 3, true, BernoulliLogit{}, GLMOptions{Intercept: true, Covariance: DiagonalCovariance}, diagCov{}},
		{"low rank", 30, 5, false, BernoulliLogit{}, GLMOptions{Intercept: true, Covariance: LowRankCovariance, Rank: 2}, &lowRankCov{}},
		{"dual, full prior", 3, 4, true, nil, GLMOptions{Prior: full}, &dualCov{}},
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
		if _, dual := c.cov.(*dualCov); dual {
			post.cov = dualOf(t, g, res)
		}
		if got, want := fmt.Sprintf("%T", post.cov), fmt.Sprintf("%T", c.cov); got != want {
			t.Errorf("%s: covariance is a %s, want %s", c.name, got, want)
		}
		loaded := saveAndLoad(t, c.name, post)
		if loaded == nil {
			continue
		}
		want, got := savedBehaviour(t, post, rows, y), savedBehaviour(t, loaded, rows, y)
		if want != got {
			t.Errorf("%s: loaded posterior behaves differently", c.name)
		}
	}
}

// dualOf returns the covariance that a posterior of many more weights has.
func dualOf(t *testing.T, g *GLM, res *Result) weightCov {
	t.Helper()
	gamma := algOf[*dualAlgebra](res.Stepper).cur.gamma
	c := &dualCov{x: g.x, gamma: gamma, prior: &g.prior, fac: new(dense.Sites)}
	if !c.fac.Factor(g.gram(), len(gamma), gamma) {
		t.Fatal("no covariance")
	}
	return c
}

// TestSaveGLMStream: so does that of a stream, and of rows removed.
func TestSaveGLMStream(t *testing.T) {
	x, y := savedData(5000, 3, BernoulliLogit{}, 2)
	s, err := NewGLMStream(3, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddAll(context.Background(), Rows(x, y)); err != nil {
		t.Fatal(err)
	}
	post, err := s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	less, err := post.Remove(context.Background(), Rows(x.Slice(0, 10, 0, 3), y[:10]))
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*GLMPosterior{"stream": post, "removed": less} {
		loaded := saveAndLoad(t, name, p)
		if loaded == nil {
			continue
		}
		few, yf := x.Slice(0, 40, 0, 3), y[:40]
		if savedBehaviour(t, p, few, yf) != savedBehaviour(t, loaded, few, yf) {
			t.Errorf("%s: loaded posterior behaves differently", name)
		}
	}
}

// saveAndLoad returns what comes back, nil if it is not what went out.
func saveAndLoad(t *testing.T, name string, p *GLMPosterior) *GLMPosterior {
	t.Helper()
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	loaded, err := LoadGLMPosterior(bytes.NewReader(file.Bytes()))
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

// savedBehaviour is what p answers, as text to the last bit.
func savedBehaviour(t *testing.T, p *GLMPosterior, x mat.Matrix, y []float64) string {
	t.Helper()
	m, v := p.At(x).Latent(nil, nil)
	draw := mat.NewDense(2, p.Dim(), nil)
	err := p.RandWeights(draw, rand.New(rand.NewPCG(3, 0)))
	out := fmt.Sprint(m, v, p.At(x).LogProb(nil, y), p.SD(nil), p.Len(), p.Cols(), draw.RawMatrix().Data, err, p.Summary())
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
	p.cov = newLowRankCov(2, 1)
	p.cov.(*lowRankCov).d[0], p.cov.(*lowRankCov).d[1] = 1, 1
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
			text = fileOf(t, glmFile, text)
		} else {
			text = changed(t, glmFile, text, c.old, c.new)
		}
		if _, err := LoadGLMPosterior(strings.NewReader(text)); !errors.Is(err, c.want) || !errors.Is(err, ErrFile) || !prefixedOnce(err) {
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
	if err := p.Save(new(bytes.Buffer)); !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "see Register") {
		t.Errorf("unregistered likelihood: %v", err)
	}
}
