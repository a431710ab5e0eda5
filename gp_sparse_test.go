package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/sparse"
	"gonum.org/v1/gonum/mat"
)

func mustSparse(t testing.TB, g *SparseGP, err error) *SparseGP {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func fitSparse(t testing.TB, g *SparseGP, s *Solver) (*SparseGPPosterior, *Result) {
	t.Helper()
	post, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != Converged {
		t.Errorf("%v after %d iterations, gap %g", res.Status, res.K, res.Gap)
	}
	return post, res
}

// TestSiteCurvature checks that a unit of variance costs as much as the curvature at the row.
func TestSiteCurvature(t *testing.T) {
	for _, c := range []struct {
		l           Likelihood
		y, v        float64
		least, most float64
	}{
		{GaussianNoise{Var: 1e-6}, 3, 1e6, 1e6, 1e6}, {BernoulliLogit{}, 1, 1, 0.15, 0.25},
		{BernoulliLogit{}, 1, 1e12, 0.05, 0.25}, {Poisson{}, 1e6, 100, 0.9e6, 1.1e6},
		{Poisson{}, 0, 1e4, 0, 1}, {Poisson{}, 7, 1e12, 5, 9}, {Gamma{Shape: 3}, 1e-3, 1e4, 2, 3.1},
		{Laplace{}, 0, 1e6, 0.1, 10},
		{StudentT{}, 1e6, 1, 0, 1.3}, {Poisson{}, 3, 0, 0, 0},
	} {
		if g := sparse.Curvature(viewOf(c.l), c.y, c.v); !(g >= c.least*(1-1e-9) && g <= c.most*(1+
			1e-9)) {
			t.Errorf("%#v at %v, prior %v: %v, want %v to %v", c.l, c.y, c.v, g, c.least, c.most)
		}
	}
}

// TestSparseRawBeside checks that a linear trend in raw units does not hide the function next to
// it. The ELBO must equal the ELBO of the same model with its weights in units that suit float64.
func TestSparseRawBeside(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	data, labels := toyRows(60, BernoulliLogit{}, 5)
	y := labels
	raw := mat.NewDense(60, 3, nil)
	rng := testRand(3)
	for i := range y {
		raw.SetRow(i, []float64{data.At(i, 0), data.At(i, 1), 1e9 * rng.NormFloat64()})
	}
	tame := mat.DenseCopyOf(raw)
	for i := range y {
		tame.Set(i, 2, 1e-3*raw.At(i, 2))
	}
	model := func(column, length float64) Kernel {
		return Sum{SquaredExp{Scale: 2, Lengths: []float64{1, 1, length}},
			Linear{Scales: []float64{0.5, 0.5, column}}, Constant{Scale: 2}}
	}
	want, err := NewSparseGP(tame, y, model(1e3, 1e10), BernoulliLogit{},
		&SparseGPOptions{Inducing: tame})
	want = mustSparse(t, want, err)
	wide, err := NewSparseGP(raw, y, model(1, 1e13), BernoulliLogit{},
		&SparseGPOptions{Inducing: raw})
	wide = mustSparse(t, wide, err)
	rows, err := NewSparseGPRows(ctx, Rows(raw, y), 3, model(1, 1e13), BernoulliLogit{},
		&SparseGPOptions{Inducing: raw})
	rows = mustSparse(t, rows, err)
	_, best := fitSparse(t, want, &Solver{Goal: 1e-6})
	for i, g := range []*SparseGP{wide, rows} {
		if g.z.Wholes() != 4 {
			t.Fatalf("model %d sees %d weights whole", i, g.z.Wholes())
		}
		_, res := fitSparse(t, g, nil)
		if short := best.ELBO - res.ELBO; math.Abs(short) > res.GapBound+1e-5 {
			t.Errorf("model %d: ELBO %.8f, want %.8f: %.3g nats, bound %.2g", i, res.ELBO,
				best.ELBO, short, res.GapBound)
		}
	}
}

// TestSparseJitterBound checks that the bound of a model whose inducing inputs have a jitter
// includes the cost of the jitter.
func TestSparseJitterBound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, noise := range []float64{1e-2, 1e-5, 1e-7} {
		gp := toyGP(t, 60, SquaredExp{Scale: 3, Length: 2}, GaussianNoise{Var: noise}, 7)
		data, _ := toyRows(60, GaussianNoise{Var: noise}, 7)
		z := data.Slice(0, 40, 0, 2).(*mat.Dense)
		plain := streamed(t, gp, z)
		_, want := fitSparse(t, plain, nil)
		g := streamed(t, gp, z)
		v := sparse.Undivided(kernelOf(SquaredExp{Scale: 3, Length: 2}))
		if err := g.settle(nil, v.Factored(nil, mat.DenseCopyOf(z))); err != nil {
			t.Fatal(err)
		}
		_, res, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		short := want.ELBO - res.ELBO
		t.Logf("noise %g: %.3g nats short, bound %.3g", noise, short, res.GapBound)
		if short > res.GapBound+res.ELBOErr+want.ELBOErr+1e-9 ||
			short > 1e-3 && !(res.GapBound < 1e4*short) {
			t.Errorf("noise %g: %.3g nats short, bound %.3g", noise, short, res.GapBound)
		}
	}
}

// toyGP returns a small model with labels that suit the likelihood.
func toyGP(t testing.TB, n int, k Kernel, lik Likelihood, seed uint64) *GP {
	t.Helper()
	return toyGPWith(t, n, k, lik, seed, nil)
}

func toyGPWith(t testing.TB, n int, k Kernel, lik Likelihood, seed uint64, opt *GPOptions) *GP {
	t.Helper()
	x, y := toyRows(n, lik, seed)
	gp, err := NewGP(x, y, k, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

// toyRows returns the rows and labels of toyGP.
func toyRows(n int, lik Likelihood, seed uint64) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		a, b := 2*rng.NormFloat64(), 2*rng.NormFloat64()
		x.SetRow(i, []float64{a, b})
		f := 2 * math.Sin(a) * math.Cos(b)
		switch lik.(type) {
		case Poisson:
			y[i] = math.Floor(math.Exp(f) + 2*rng.Float64())
		case BernoulliLogit, BernoulliProbit:
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

func mustFit(t testing.TB, gp *GP, s *Solver) (*GPPosterior, *Result) {
	t.Helper()
	post, res, err := gp.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return post, res
}

// unitRows returns the rows of an identity matrix.
func unitRows(d int) *mat.Dense {
	x := mat.NewDense(d, d, nil)
	for j := range d {
		x.Set(j, j, 1)
	}
	return x
}

// TestPartFar checks the parts of a Sum if float64 cannot represent the covariance, so that the
// posterior is over weights.
func TestPartFar(t *testing.T) {
	t.Parallel()
	n, rng := 30, testRand(22)
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, 1e7+rng.NormFloat64())
		y[i] = 4 + 2*(x.At(i, 0)-1e7) + 0.1*rng.NormFloat64()
	}
	ctx := context.Background()
	p, _, err := mustGP(t, x, y, Sum{Constant{Scale: 1e8}, Linear{Scale: 10}},
		GaussianNoise{Var: 0.01}).Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.weights == nil {
		t.Fatal("the posterior is not over weights")
	}
	slope, v := p.Part(1, unitRows(1)).Latent(nil, nil)
	offset, _ := p.Part(0, unitRows(1)).Latent(nil, nil)
	if sd := math.Sqrt(v[0]); math.Abs(slope[0]-2) > 5*sd || sd > 0.03 || sd < 0.01 ||
		math.Abs(offset[0]+1e7*slope[0]-4) > 0.1 {
		t.Errorf("slope %v ± %v, offset %v", slope[0], sd, offset[0])
	}
}
