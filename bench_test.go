package pgsvi_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// The benchmarks of this file fit whole models with a nil Solver, each under the name that people
// search for. They report the number of rows, the passes over them, and the nats that the fit may
// still be below the best ELBO ("nats-left"). These nats are proved (Result.GapBound) if the model
// is a GLM, a GP or a sparse GP with a log-concave likelihood, and estimated (Result.Gap) otherwise.
//
//	go test -run '^$' -bench . -benchtime 1x .

// fitted runs fit in the loop of b and reports the last result.
func fitted(b *testing.B, rows int, fit func(context.Context) (*pgsvi.Result, error)) {
	b.Helper()
	var res *pgsvi.Result
	for b.Loop() {
		var err error
		if res, err = fit(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	left := res.Gap
	if !math.IsInf(res.GapBound, 0) && !math.IsNaN(res.GapBound) {
		left = res.GapBound
	}
	report(b, rows, res.Passes, left)
}

// report reports the metrics of a fit.
func report(b *testing.B, rows int, passes, left float64) {
	b.ReportMetric(float64(rows), "rows")
	b.ReportMetric(passes, "passes")
	b.ReportMetric(left, "nats-left")
}

// benchRows returns n rows of a constant and d-1 standard normal features, and the linear
// predictor of each row.
func benchRows(n, d int) (x *mat.Dense, eta []float64, rng *rand.Rand) {
	rng = rand.New(rand.NewPCG(1, 2))
	x, eta = mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		row := x.RawRowView(i)
		row[0] = 1
		for j := 1; j < d; j++ {
			row[j] = rng.NormFloat64()
			eta[i] += row[j] / math.Sqrt(float64(j))
		}
	}
	return x, eta, rng
}

func benchGLM(b *testing.B, x mat.Matrix, y []float64, lik pgsvi.Likelihood) {
	m, err := pgsvi.NewGLM(x, y, lik, nil)
	if err != nil {
		b.Fatal(err)
	}
	fitted(b, len(y), func(ctx context.Context) (*pgsvi.Result, error) {
		_, res, err := m.Fit(ctx, nil)
		return res, err
	})
}

func BenchmarkLogisticRegression(b *testing.B) {
	x, eta, rng := benchRows(10000, 20)
	for i, v := range eta {
		eta[i] = math.Copysign(1, 1/(1+math.Exp(-v))-rng.Float64())
	}
	benchGLM(b, x, eta, pgsvi.BernoulliLogit{})
}

func BenchmarkPoissonRegression(b *testing.B) {
	x, eta, rng := benchRows(10000, 20)
	for i, v := range eta {
		eta[i] = math.Floor(math.Exp(0.3*v) + rng.Float64())
	}
	benchGLM(b, x, eta, pgsvi.Poisson{})
}

func BenchmarkLinearRegression(b *testing.B) {
	x, y, rng := benchRows(10000, 20)
	for i := range y {
		y[i] += rng.NormFloat64()
	}
	benchGLM(b, x, y, pgsvi.GaussianNoise{})
}

// BenchmarkRobustRegression has the heavy tails of Student's t, which is not log-concave.
func BenchmarkRobustRegression(b *testing.B) {
	x, y, rng := benchRows(10000, 20)
	for i := range y {
		y[i] += rng.NormFloat64() / math.Sqrt(rng.ExpFloat64())
	}
	benchGLM(b, x, y, pgsvi.StudentT{Scale: 1, DF: 4})
}

func BenchmarkSoftmaxRegression(b *testing.B) {
	x, eta, rng := benchRows(2000, 10)
	for i, v := range eta {
		eta[i] = math.Max(0, math.Min(2, math.Floor(v+rng.NormFloat64()+1.5)))
	}
	benchGLM(b, x, eta, pgsvi.Softmax{Classes: 3})
}

// ionosphereGP is the GP classifier of the paper for ionosphere, with the expectations of e.
func ionosphereGP(b *testing.B, e pgsvi.SiteEstimator) *pgsvi.GP {
	x, y, _, _ := testkit.UCI(b, ".", "ionosphere")
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: math.Exp(2.5), Length: math.E},
		pgsvi.BernoulliLogit{}, &pgsvi.GPOptions{Jitter: 0.01, Estimator: e})
	if err != nil {
		b.Fatal(err)
	}
	return gp
}

func BenchmarkGPClassification(b *testing.B) {
	gp := ionosphereGP(b, nil)
	fitted(b, gp.Len(), func(ctx context.Context) (*pgsvi.Result, error) {
		_, res, err := gp.Fit(ctx, nil)
		return res, err
	})
}

// BenchmarkPGSVI runs ten passes of PG-SVI as published on the same model: the score function with
// 500 draws, mini-batches of 5 rows and a constant step size. It compares its ELBO with the best.
func BenchmarkPGSVI(b *testing.B) {
	ctx, exact := context.Background(), ionosphereGP(b, nil)
	_, best, err := exact.Fit(ctx, nil)
	if err != nil {
		b.Fatal(err)
	}
	gp := ionosphereGP(b, pgsvi.ScoreFunctionPlain(500))
	n := gp.Len()
	var res *pgsvi.Result
	for b.Loop() {
		if _, res, err = gp.Fit(ctx, kit.PgSVI(n, 2, 5)); err != nil {
			b.Fatal(err)
		}
	}
	report(b, n, res.Passes, best.ELBO-res.ELBO)
}

// BenchmarkGPRegression learns the scale, the length scale and the noise. Its passes are evaluations
// of the hyperparameters.
func BenchmarkGPRegression(b *testing.B) {
	x, eta, rng := benchRows(300, 3)
	for i, v := range eta {
		eta[i] = math.Sin(v) + 0.1*rng.NormFloat64()
	}
	gp, err := pgsvi.NewGP(x.Slice(0, 300, 1, 3), eta, pgsvi.SquaredExp{}, pgsvi.GaussianNoise{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	fitted(b, gp.Len(), func(ctx context.Context) (*pgsvi.Result, error) {
		_, _, learned, err := gp.Learn(ctx, nil, nil)
		if err != nil {
			return nil, err
		}
		return learned.Search, nil
	})
}

func BenchmarkSparseGP(b *testing.B) {
	x, eta, rng := benchRows(5000, 3)
	for i, v := range eta {
		eta[i] = math.Copysign(1, 1/(1+math.Exp(-3*math.Sin(v)))-rng.Float64())
	}
	gp, err := pgsvi.NewSparseGP(x.Slice(0, 5000, 1, 3), eta, pgsvi.SquaredExp{Scale: 2, Length: 1},
		pgsvi.BernoulliLogit{}, &pgsvi.SparseGPOptions{Rank: 100})
	if err != nil {
		b.Fatal(err)
	}
	fitted(b, gp.Len(), func(ctx context.Context) (*pgsvi.Result, error) {
		_, res, err := gp.Fit(ctx, nil)
		return res, err
	})
}

func BenchmarkCTM(b *testing.B) {
	c := bitsCorpus()
	ctm, err := pgsvi.NewCTM(c, 3, nil)
	if err != nil {
		b.Fatal(err)
	}
	fitted(b, len(c.Docs), func(ctx context.Context) (*pgsvi.Result, error) {
		_, res, err := ctm.Fit(ctx, nil)
		return res, err
	})
}

func BenchmarkLDA(b *testing.B) {
	c := bitsCorpus()
	lda, err := pgsvi.NewLDA(c, 3, nil)
	if err != nil {
		b.Fatal(err)
	}
	fitted(b, len(c.Docs), func(ctx context.Context) (*pgsvi.Result, error) {
		_, res, err := lda.Fit(ctx, nil)
		return res, err
	})
}

func BenchmarkGaussianMixture(b *testing.B) {
	x, _, rng := benchRows(2000, 4)
	for i := range 2000 {
		row := x.RawRowView(i)
		row[0] = rng.NormFloat64()
		row[i%4] += 3
	}
	m, err := pgsvi.NewMixture(x, 4, nil)
	if err != nil {
		b.Fatal(err)
	}
	fitted(b, 2000, func(ctx context.Context) (*pgsvi.Result, error) {
		_, res, err := m.Fit(ctx, nil)
		return res, err
	})
}

// BenchmarkOwnModel fits a logistic regression that is written as a split (f, h): terms with
// exact expectations, and the KL divergence to the prior.
func BenchmarkOwnModel(b *testing.B) {
	x, eta, rng := benchRows(2000, 10)
	for i, v := range eta {
		eta[i] = math.Copysign(1, 1/(1+math.Exp(-v))-rng.Float64())
	}
	rows := make([][]float64, len(eta))
	for i := range rows {
		rows[i] = x.RawRowView(i)
	}
	prior := pgsvi.NewIsotropic(10, 1)
	m := pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(pgsvi.Sites{X: rows, Y: eta, Lik: pgsvi.BernoulliLogit{}}, nil),
		H:    pgsvi.KLTo(prior),
		Init: prior,
	}
	fitted(b, len(rows), func(ctx context.Context) (*pgsvi.Result, error) {
		_, res, err := m.Fit(ctx, nil)
		return res, err
	})
}
