package pgsvi

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// rawClassifier returns rows with a column of time stamps about t0 beside two of unit size, which
// alone tell of y.
func rawClassifier(n int, t0 float64) (x *mat.Dense, y []float64) {
	rng := testRand(1)
	x, y = mat.NewDense(n, 3, nil), make([]float64, n)
	for i := range y {
		x.SetRow(i, []float64{t0 + 1e-2*t0*rng.Float64(), rng.NormFloat64(), rng.NormFloat64()})
		y[i] = plusMinus(2*x.At(i, 1)-x.At(i, 2)+0.5*rng.NormFloat64() > 0)
	}
	return x, y
}

// TestSparseRawColumns checks that a column of any size takes nothing from the others: the ELBO is
// that of the dense GP, within the proved bound.
func TestSparseRawColumns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, t0 := range few([]float64{1.7e9, 1e6, 0, 1e3, 1e8}, 2) {
		for _, k := range []Kernel{
			Linear{Scale: 2.5}, Linear{Scales: []float64{1, 2, 3}}, Sum{Linear{Scale: 2.5}, Constant{Scale: 3}},
			Product{Constant{Scale: 2}, Linear{Scale: 1.5}},
		} {
			for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.1}} {
				x, y := rawClassifier(80, t0)
				linear := k
				if isType[Product](k) { // of which the dense GP does not know the features
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
						t.Errorf("%v, %T, t0 %g, model %d of rank %d: %.3g nats short, bound %.2g, residual %g", k, lik, t0, i, g.Rank(), short, res.GapBound, g.Residual())
					}
					if m, _ := post.At(x).Latent(nil, nil); t0 == 1.7e9 {
						right := 0
						for n, at := range m {
							if at*y[n] > 0 {
								right++
							}
						}
						if right < 64 {
							t.Errorf("%v, %T, model %d: %d of 80 rows are on the right side", k, lik, i, right)
						}
					}
				}
			}
		}
	}
}

// TestSparseRawBeside checks that a linear trend in raw units hides nothing of the function beside
// it: the ELBO is that of the same model with its weights in other units, by which float64 knows
// it.
func TestSparseRawBeside(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	gp := toyGP(t, 60, SquaredExp{}, BernoulliLogit{}, 5)
	y := gp.terms.Y
	raw := mat.NewDense(60, 3, nil)
	rng := testRand(3)
	for i := range y {
		raw.SetRow(i, []float64{gp.x.At(i, 0), gp.x.At(i, 1), 1e9 * rng.NormFloat64()})
	}
	tame := mat.DenseCopyOf(raw)
	for i := range y {
		tame.Set(i, 2, 1e-3*raw.At(i, 2))
	}
	model := func(column, length float64) Kernel {
		return Sum{SquaredExp{Scale: 2, Lengths: []float64{1, 1, length}}, Linear{Scales: []float64{0.5, 0.5, column}}, Constant{Scale: 2}}
	}
	want, err := NewSparseGP(tame, y, model(1e3, 1e10), BernoulliLogit{}, &SparseGPOptions{Inducing: tame})
	want = mustSparse(t, want, err)
	wide, err := NewSparseGP(raw, y, model(1, 1e13), BernoulliLogit{}, &SparseGPOptions{Inducing: raw})
	wide = mustSparse(t, wide, err)
	rows, err := NewSparseGPRows(ctx, Rows(raw, y), 3, model(1, 1e13), BernoulliLogit{}, &SparseGPOptions{Inducing: raw})
	rows = mustSparse(t, rows, err)
	_, best := fitSparse(t, want, &Solver{Goal: 1e-6})
	for i, g := range []*SparseGP{wide, rows} {
		if g.z.Wholes() != 4 {
			t.Fatalf("model %d sees %d weights whole", i, g.z.Wholes())
		}
		_, res := fitSparse(t, g, nil)
		if short := best.ELBO - res.ELBO; math.Abs(short) > res.GapBound+1e-5 {
			t.Errorf("model %d: ELBO %.8f, want %.8f: %.3g nats, bound %.2g", i, res.ELBO, best.ELBO, short, res.GapBound)
		}
	}
}

// TestSparseRowsUnits checks that a model that goes through its rows has the ELBO of one that keeps
// its features, at the same inducing inputs, within the bound that it proves, whatever the units
// are.
func TestSparseRowsUnits(t *testing.T) {
	t.Parallel()
	for _, scale := range []float64{1e-3, 1, 1e4, 1e5} {
		for _, k := range []Kernel{Linear{}, SquaredExp{Scale: 3, Length: 3 * scale}, Matern52{Scale: 1e3, Length: 10 * scale}, Sum{Linear{Scale: 1 / scale}, SquaredExp{Length: scale}}} {
			for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 1e-4}} {
				gp := toyGP(t, shorter(150, 60), k, lik, 7)
				gp.x.Scale(scale, gp.x)
				s, err := NewSparseGP(gp.x, gp.terms.Y, k, lik, nil)
				s = mustSparse(t, s, err)
				z := s.Inducing()
				kept, err := NewSparseGP(gp.x, gp.terms.Y, k, lik, &SparseGPOptions{Inducing: z})
				kept = mustSparse(t, kept, err)
				_, want := fitSparse(t, kept, nil)
				_, res := fitSparse(t, streamed(t, gp, z), nil)
				short := want.ELBO - res.ELBO
				// and what features round
				slack := 1e-9 + 1e-10*math.Abs(want.ELBO) + want.ELBOErr + res.ELBOErr + want.GapBound
				if short > res.GapBound+slack {
					t.Errorf("%v, %T, units %g: %.3g nats short, bound %.2g", k, lik, scale, short, res.GapBound)
				}
			}
		}
	}
}

// TestSparseJitterBound checks that the bound of a model whose inducing inputs have a jitter counts
// what that costs.
func TestSparseJitterBound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, noise := range []float64{1e-2, 1e-5, 1e-7} {
		gp := toyGP(t, 60, SquaredExp{Scale: 3, Length: 2}, GaussianNoise{Var: noise}, 7)
		z := gp.x.Slice(0, 40, 0, 2).(*mat.Dense)
		plain := streamed(t, gp, z)
		_, want := fitSparse(t, plain, nil)
		g := streamed(t, gp, z)
		v := sparse.Undivided(kernelOf(gp.kernel))
		if err := g.settle(nil, v.Factored(nil, mat.DenseCopyOf(z))); err != nil {
			t.Fatal(err)
		}
		_, res, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		short := want.ELBO - res.ELBO
		t.Logf("noise %g: %.3g nats short, bound %.3g", noise, short, res.GapBound)
		if short > res.GapBound+res.ELBOErr+want.ELBOErr+1e-9 || short > 1e-3 && !(res.GapBound < 1e4*short) {
			t.Errorf("noise %g: %.3g nats short, bound %.3g", noise, short, res.GapBound)
		}
	}
}

// dividedCases are kernels with terms that are seen whole.
func dividedCases() []Kernel {
	return []Kernel{
		Linear{Scales: []float64{0.7, 1.4}},
		Sum{Linear{Scale: 0.8}, Constant{Scale: 0.5}, White{Scale: 0.2}},
		Sum{SquaredExp{Scale: 1.2, Length: 0.8}, Linear{Scale: 0.8}, Sum{Constant{Scale: 1.5}, Matern52{Length: 2}}, White{Scale: 0.2}},
	}
}

// TestDividedGradient checks the derivatives in hyper-parameters where terms are seen whole, and
// those in inducing inputs, against differences.
func TestDividedGradient(t *testing.T) {
	t.Parallel()
	for _, k := range dividedCases() {
		for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.3}} {
			gp := toyGP(t, shorter(50, 20), k, lik, 4)
			g := streamed(t, gp, gp.x.Slice(0, 5, 0, 2))
			l, err := learnerAs[*sparseGPLearner](g.Learner(nil))
			if err != nil {
				t.Fatal(err)
			}
			z := mat.DenseCopyOf(gp.x.Slice(0, 5, 0, 2))
			m := sparse.NewLearning(l.rows, l.sees(), divided(k, 2), 0, fitFeatures)
			m.Fixed, m.Stages = z, []int{l.rows.N}
			m.Use(term.Crew{Workers: 1, Halt: nil})
			theta := make([]float64, len(l.space.free))
			for i, at := range l.space.free {
				c := &l.space.coords[at]
				theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
			}
			at := func(theta []float64, slopes bool) search.Point {
				x, err := m.Evaluate(theta, 1e-12, math.Inf(1), slopes)
				if err != nil || math.IsInf(x.F, 0) {
					t.Fatalf("%v: at %v: %v, %v", k, theta, x.F, err)
				}
				return x
			}
			x := at(theta, true)
			m.Keep(false)
			for i := range theta {
				const h = 1e-3
				up, down := slices.Clone(theta), slices.Clone(theta)
				up[i] += h
				down[i] -= h
				want := (at(up, false).F - at(down, false).F) / (2 * h)
				if math.Abs(x.Grad[i]-want) > 1e-4*(1+floats.Norm(x.Grad, 2)) {
					t.Errorf("%v, %T: derivative %d is %v, by differences %v", k, lik, i, x.Grad[i], want)
				}
			}
			var e mat.EigenSym
			if !e.Factorize(x.Info, false) || e.Values(nil)[0] < -1e-6*e.Values(nil)[len(theta)-1] {
				t.Errorf("%v: the average information is not positive semidefinite", k)
			}
			v := divided(k, 2)
			if !v.Open {
				continue
			}
			move := sparse.NewMove(g.rows, viewOf(lik), fitFeatures, term.Crew{Workers: 1}, v)
			q := gauss.Unit(v.Wholes() + 5)
			p, err := move.At(z, q)
			if err != nil || p == nil {
				t.Fatalf("%v: %v", k, err)
			}
			for i := range p.Grad {
				const h = 1e-3
				elbo := func(h float64) float64 {
					to := mat.DenseCopyOf(z)
					to.Set(i/2, i%2, z.At(i/2, i%2)+h)
					x, err := move.At(to, gauss.Unit(v.Wholes()+5))
					if err != nil || x == nil {
						t.Fatalf("%v: %v", k, err)
					}
					return x.ELBO
				}
				if want := (elbo(h) - elbo(-h)) / (2 * h) * move.Unit[i%2]; math.Abs(
					p.Grad[i]-want) > 2e-2*(0.1+floats.Norm(p.Grad, math.Inf(1))) {
					t.Errorf("%v, %T: derivative in element %d is %v, by differences %v", k, lik, i,
						p.Grad[i], want)
				}
			}
		}
	}
}

// TestDividedPosterior checks a posterior whose kernel has terms that are seen whole: with all rows
// as inducing inputs it is that of the dense GP, and so are its terms; a file has the same bits;
// other inducing inputs and rows seen later change what they should.
func TestDividedPosterior(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, k := range dividedCases() {
		if sum, ok := k.(Sum); ok { // noise is no part of q
			k = sum[:len(sum)-1]
		}
		gp := toyGP(t, 30, k, BernoulliLogit{}, 6)
		want, dense := mustFit(t, gp, &Solver{Goal: 1e-9})
		fit := func(gp *GP) *SparseGPPosterior {
			g := &SparseGP{lik: likOf(gp.terms), x: gp.x, terms: gp.terms}
			if err := g.keepAmong(nil, divided(k, 2), gp.x, gp.Len()); err != nil {
				t.Fatal(err)
			}
			p, res := fitSparse(t, g, &Solver{Goal: 1e-9})
			if gp.Len() == 30 && math.Abs(res.ELBO-dense.ELBO) > 1e-6 {
				t.Errorf("%v: ELBO %v, want %v", k, res.ELBO, dense.ELBO)
			}
			return p
		}
		p := fit(gp)
		at := mat.NewDense(4, 2, []float64{0, 0, 1, -1, 3, 2, 40, -40})
		same := func(name string, a, b *Prediction, tol float64) {
			t.Helper()
			m, v := a.Latent(nil, nil)
			wm, wv := b.Latent(nil, nil)
			for i := range m {
				if math.Abs(m[i]-wm[i]) > tol*(1+math.Abs(wm[i])) || math.Abs(v[i]-wv[i]) > tol*(1+wv[i]) {
					t.Errorf("%v, %s: row %d is %g ± %g, want %g ± %g", k, name, i, m[i], v[i], wm[i], wv[i])
				}
			}
		}
		same("posterior", p.At(at), want.At(at), 1e-5)
		if sum, ok := k.(Sum); ok {
			for i := range sum {
				same(fmt.Sprint("term ", i), p.Part(i, at), want.Part(i, at), 1e-5)
			}
		}
		var file bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		loaded, err := Load[*SparseGPPosterior](&file)
		if err != nil {
			t.Fatal(err)
		}
		same("file", loaded.At(at), p.At(at), 0)
		first := *gp
		first.x, first.terms = gp.x.Slice(0, 15, 0, 2).(*mat.Dense), gp.terms.Sub(slices.Collect(func(yield func(int) bool) {
			for i := range 15 {
				if !yield(i) {
					return
				}
			}
		}))
		half := fit(&first)
		other, err := half.WithInducing(gp.x)
		if err != nil {
			t.Fatal(err)
		}
		same("more inducing inputs", other.At(at), half.At(at), 1e-5)
		all, err := other.Update(ctx, Rows(gp.x.Slice(15, 30, 0, 2), gp.terms.Y[15:]))
		if err != nil {
			t.Fatal(err)
		}
		near := at.Slice(0, 3, 0, 2) // far away the order of rows shows
		same("rows later", all.At(near), want.At(near), 0.1)
	}
}

// TestSparseLearnRaw checks that hyper-parameters are learned beside a column in raw units: the
// ELBO is that of the dense GP at what is learned.
func TestSparseLearnRaw(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := rawClassifier(60, 1e6)
	k := Sum{Linear{Scales: []float64{1e-6, 1, 1}}, Constant{}}
	kept, err := NewSparseGP(x, y, k, BernoulliLogit{}, nil)
	kept = mustSparse(t, kept, err)
	rows, err := NewSparseGPRows(ctx, Rows(x, y), 3, k, BernoulliLogit{}, nil)
	rows = mustSparse(t, rows, err)
	for i, g := range []*SparseGP{kept, rows} {
		learned, _, l, err := g.Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		gp, err := NewGP(x, y, kernelIn(learned.z.Kernel), BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, want := mustFit(t, gp, nil)
		if short := want.ELBO - l.Fit.ELBO; math.Abs(short) > l.Fit.GapBound+1e-6 {
			t.Errorf("model %d: %.3g nats short of the dense GP, bound %.2g", i, short, l.Fit.GapBound)
		}
		if moved, err := learned.MoveInducing(ctx, 2); err != nil || moved != learned {
			t.Errorf("model %d: inducing inputs of none are moved: %v", i, err)
		}
	}
}
