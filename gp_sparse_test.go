package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/testkit"
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

type badStepper struct{ Stepper }

// TestSparseGPPrior checks that predictions far from the data equal the prior.
func TestSparseGPPrior(t *testing.T) {
	k := SquaredExp{Scale: 1.5}
	data, labels := toyRows(50, BernoulliLogit{}, 4)
	g, err := NewSparseGP(data, labels, k, BernoulliLogit{}, &SparseGPOptions{Rank: 10})
	g = mustSparse(t, g, err)
	post, _ := fitSparse(t, g, nil)
	far := mat.NewDense(4, 2, []float64{1e3, 1e3, -1e6, 0, math.NaN(), 0, 0, math.Inf(1)})
	m, v := post.At(far).Latent(nil, nil)
	for i := range m {
		if math.Abs(m[i]) > 1e-12 || math.Abs(v[i]-2.25) > 1e-12 {
			t.Errorf("row %d is %g ± %g, want 0 ± 2.25", i, m[i], v[i])
		}
	}
	for i, p := range post.At(far).Prob(nil, 1) {
		if math.Abs(p-0.5) > 1e-12 {
			t.Errorf("row %d: P = %v", i, p)
		}
	}
	if post.Len() != 50 || post.Cols() != 2 || post.z.Rank() != 10 {
		t.Errorf("posterior of %d rows, %d columns, rank %d", post.Len(), post.Cols(),
			post.z.Rank())
	}
	if m, v := post.At(&mat.Dense{}).Latent(nil, nil); len(m)+len(v) != 0 {
		t.Errorf("no rows give %v, %v", m, v)
	}
	mustPanic(t, "bad shape", func() { post.At(mat.NewDense(1, 3, nil)).Latent(nil, nil) })
	mustPanic(t, "bad shape",
		func() { post.At(mat.NewDense(1, 2, nil)).Latent(make([]float64, 2), nil) })
	mustPanic(t, "bad shape",
		func() { post.At(mat.NewDense(1, 2, nil)).LogProb(nil, []float64{1, 1}) })
}

// TestSparseGPSingular checks duplicate rows, covariances of low rank, a kernel without variance,
// and a single row.
func TestSparseGPSingular(t *testing.T) {
	data, labels := toyRows(30, BernoulliLogit{}, 6)
	twice := mat.NewDense(60, 2, nil)
	twice.Stack(data, data)
	y := append(slices.Clone(labels), labels...)
	for _, c := range []struct {
		k    Kernel
		rank int
	}{{Matern32{}, 30}, {Linear{}, 2}, {Sum{Linear{}, Constant{}}, 3}, {Constant{}, 1}} {
		dense, err := NewGP(twice, y, c.k, BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, want := mustFit(t, dense, nil)
		chosen, err := NewSparseGP(twice, y, c.k, nil, nil)
		if chosen = mustSparse(t, chosen, err); likOf(chosen.lin.Terms) != (GaussianNoise{}) {
			t.Error("nil likelihood is not GaussianNoise")
		}
		chosen, err = NewSparseGP(twice, y, c.k, BernoulliLogit{}, nil)
		chosen = mustSparse(t, chosen, err)
		given, err := NewSparseGP(twice, y, c.k, BernoulliLogit{},
			&SparseGPOptions{Inducing: twice})
		given = mustSparse(t, given, err)
		for _, g := range []*SparseGP{chosen, given} {
			if g.Rank() != c.rank {
				t.Errorf("%v: rank %d, want %d", c.k, g.Rank(), c.rank)
			}
			if _, res := fitSparse(t, g, nil); !(math.Abs(res.ELBO-want.ELBO) < 1e-7) {
				t.Errorf("%v: ELBO %v, want %v", c.k, res.ELBO, want.ELBO)
			}
		}
	}
	// one row, with and without prior variance
	for _, k := range []Kernel{SquaredExp{Scale: 2}, Linear{}} {
		x := mat.NewDense(1, 1, nil)
		gp, err := NewGP(x, []float64{1}, k, BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		dense, want := mustFit(t, gp, nil)
		g, err := NewSparseGP(x, []float64{1}, k, BernoulliLogit{}, nil)
		post, res := fitSparse(t, mustSparse(t, g, err), nil)
		if !(math.Abs(res.ELBO-want.ELBO) < 1e-9) {
			t.Errorf("%v: ELBO %v of one row, want %v", k, res.ELBO, want.ELBO)
		}
		at := mat.NewDense(2, 1, []float64{0, 3})
		m, v := post.At(at).Latent(nil, nil)
		wm, wv := dense.At(at).Latent(nil, nil)
		for i := range m {
			if !(math.Abs(m[i]-wm[i])+math.Abs(v[i]-wv[i]) < 1e-5) {
				t.Errorf("%v: %g ± %g, want %g ± %g", k, m[i], v[i], wm[i], wv[i])
			}
		}
	}
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

// TestSparseGPSameBits checks that the number of cores and the batches of predictions change no
// bit.
func TestSparseGPSameBits(t *testing.T) {
	k := SquaredExp{Scale: 1.5}
	data, labels := toyRows(700, BernoulliLogit{}, 9)
	var want string
	for _, procs := range []int{1, 2, 7} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			g, err := NewSparseGP(data, labels, k, BernoulliLogit{}, &SparseGPOptions{Rank: 40})
			post, res := fitSparse(t, mustSparse(t, g, err), nil)
			m, v := post.At(data).Latent(nil, nil)
			h, err := NewSparseGP(data, labels, k, BernoulliLogit{},
				&SparseGPOptions{Inducing: data.Slice(0, 30, 0, 2)})
			got := fmt.Sprint(res.ELBO, m, v, mustSparse(t, h, err).lin.X.Dense)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("other bits with %d procs", procs)
			}
			for _, lo := range []int{0, 1, 130, 699} {
				pm, pv := slices.Repeat([]float64{7}, 700-lo), slices.Repeat([]float64{7}, 700-lo)
				post.At(data.Slice(lo, 700, 0, 2)).Latent(pm, pv)
				if !slices.Equal(pm, m[lo:]) || !slices.Equal(pv, v[lo:]) {
					t.Errorf("other bits from row %d on", lo)
				}
			}
		}()
	}
}

// TestSaveSparseGP checks that a loaded posterior has the same bits, and that a damaged file is an
// error.
func TestSaveSparseGP(t *testing.T) {
	k := Sum{SquaredExp{Scale: 2, Lengths: []float64{1, 2}}, Linear{}}
	data, labels := toyRows(40, StudentT{DF: 4, Scale: 0.3}, 12)
	g, err := NewSparseGP(data, labels, k, StudentT{DF: 4, Scale: 0.3}, &SparseGPOptions{Rank: 15})
	post, _ := fitSparse(t, mustSparse(t, g, err), nil)
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load[*SparseGPPosterior](bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := loaded.Save(&again); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
		t.Errorf("saved again it differs (%v)", err)
	}
	data.Set(0, 0, math.NaN())
	m, v := post.At(data).Latent(nil, nil)
	lm, lv := loaded.At(data).Latent(nil, nil)
	if fmt.Sprint(m, v, post.Len()) != fmt.Sprint(lm, lv, loaded.Len()) {
		t.Error("loaded posterior predicts differently")
	}
	for _, c := range []struct {
		old, new string
		want     error
	}{
		{`{"rows"`, `"rows"`, ErrFile},
		{`"rank":15`, `"rank":14`, ErrShape},
		{`"l":[`, `"l":[1,`, ErrShape},
		{`"mean":[`, `"mean":[1,`, ErrShape},
		{`"mean":[`, `"mean":[1e999,`, ErrFile},
		{`"maxPrior":`, `"maxPrior":-`, ErrParam},
		{`"l":[`, `"l":[-`, ErrNotPosDef},
		{`"precision":[`, `"precision":[-`, ErrNotPosDef},
		{"pgsvi.Linear", "pgsvi.Linearly", ErrParam},
		{"pgsvi.StudentT", "pgsvi.SquaredExp", ErrParam},
	} {
		s := changed(t, testkit.Kind("SparseGPPosterior"), file.String(), c.old, c.new)
		if _, err := Load[*SparseGPPosterior](strings.NewReader(s)); !errors.Is(err, c.want) ||
			!errors.Is(err, ErrFile) || !prefixedOnce(err) {
			t.Errorf("%s for %s: %v, want %v", c.new, c.old, err, c.want)
		}
	}
}

// rawClassifier returns rows with a column of time stamps near t0 and two columns of unit size,
// which alone determine y.
func rawClassifier(n int, t0 float64) (x *mat.Dense, y []float64) {
	rng := testRand(1)
	x, y = mat.NewDense(n, 3, nil), make([]float64, n)
	for i := range y {
		x.SetRow(i, []float64{t0 + 1e-2*t0*rng.Float64(), rng.NormFloat64(), rng.NormFloat64()})
		y[i] = plusMinus(2*x.At(i, 1)-x.At(i, 2)+0.5*rng.NormFloat64() > 0)
	}
	return x, y
}

// TestSparseRawColumns checks that a column of any size does not affect the other columns. The ELBO
// must be the ELBO of the dense GP, within the proved bound.
func TestSparseRawColumns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, t0 := range few([]float64{1.7e9, 1e6, 0, 1e3, 1e8}, 2) {
		for _, k := range []Kernel{
			Linear{Scale: 2.5}, Linear{Scales: []float64{1, 2, 3}},
			Sum{Linear{Scale: 2.5}, Constant{Scale: 3}},
			Product{Constant{Scale: 2}, Linear{Scale: 1.5}},
		} {
			for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.1}} {
				x, y := rawClassifier(80, t0)
				linear := k
				if isType[Product](k) { // whose features the dense GP does not know
					linear = Linear{Scale: 3}
				}
				gp, err := NewGP(x, y, linear, lik, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, dense := mustFit(t, gp, nil)
				kept, err := NewSparseGP(x, y, k, lik, nil)
				kept = mustSparse(t, kept, err)
				given, err := NewSparseGP(x, y, k, lik, &SparseGPOptions{Inducing: x})
				given = mustSparse(t, given, err)
				rows, err := NewSparseGPRows(ctx, Rows(x, y), 3, k, lik, nil)
				rows = mustSparse(t, rows, err)
				for i, g := range []*SparseGP{kept, given, rows} {
					post, res, err := g.Fit(ctx, nil)
					if err != nil {
						t.Fatalf("%v, t0 %g, model %d: %v", k, t0, i, err)
					}
					short := dense.ELBO - res.ELBO
					slack := 1e-6 + dense.ELBOErr + dense.GapBound + res.ELBOErr
					if short > res.GapBound+slack || short < -slack || g.Residual() != 0 {
						t.Errorf(
							"%v, %T, t0 %g, model %d of rank %d: %.3g nats short, bound %.2g, "+
								"residual %g", k, lik, t0, i, g.Rank(), short, res.GapBound,
							g.Residual())
					}
					if m, _ := post.At(x).Latent(nil, nil); t0 == 1.7e9 {
						right := 0
						for n, at := range m {
							if at*y[n] > 0 {
								right++
							}
						}
						if right < 64 {
							t.Errorf("%v, %T, model %d: %d of 80 rows are on the right side", k,
								lik, i, right)
						}
					}
				}
			}
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

// TestSparseRowsUnits checks that a model that reads its rows in every pass has the ELBO of a model
// that keeps its features, at the same inducing inputs, within the proved bound, in any units.
func TestSparseRowsUnits(t *testing.T) {
	t.Parallel()
	for _, scale := range []float64{1e-3, 1, 1e4, 1e5} {
		for _, k := range []Kernel{Linear{}, SquaredExp{Scale: 3, Length: 3 * scale},
			Matern52{Scale: 1e3, Length: 10 * scale},
			Sum{Linear{Scale: 1 / scale}, SquaredExp{Length: scale}}} {
			for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 1e-4}} {
				data, labels := toyRows(shorter(150, 60), lik, 7)
				data.Scale(scale, data)
				gp := must(NewGP(data, labels, k, lik, nil))
				s, err := NewSparseGP(data, labels, k, lik, nil)
				s = mustSparse(t, s, err)
				z := s.Inducing()
				kept, err := NewSparseGP(data, labels, k, lik, &SparseGPOptions{Inducing: z})
				kept = mustSparse(t, kept, err)
				_, want := fitSparse(t, kept, nil)
				_, res := fitSparse(t, streamed(t, gp, z), nil)
				short := want.ELBO - res.ELBO
				// plus the rounding of the features
				slack := 1e-9 + 1e-10*math.Abs(want.ELBO) + want.ELBOErr + res.ELBOErr +
					want.GapBound
				if short > res.GapBound+slack {
					t.Errorf("%v, %T, units %g: %.3g nats short, bound %.2g", k, lik, scale, short,
						res.GapBound)
				}
			}
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
		case BernoulliLogit, BernoulliProbit, logProbOnly:
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

// logProbOnly is a custom likelihood, the logit, without any optional method.
type logProbOnly struct{}

func (logProbOnly) LogProb(y, eta float64) float64 {
	if x := y * eta; x < 0 {
		return x - math.Log1p(math.Exp(x))
	}
	return -math.Log1p(math.Exp(-y * eta))
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
