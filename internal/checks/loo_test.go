package checks

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

func mustLOO(t *testing.T, l *LOO, err error) *LOO {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range l.Pointwise {
		if s := p + l.PointErr[i] + l.Leverage[i] + l.Influence[i]; math.IsNaN(s) ||
			math.IsInf(s, 0) || l.PointErr[i] < 0 || l.Influence[i] < 0 {
			t.Fatalf("observation %d: %v ± %v, leverage %v, influence %v", i, p, l.PointErr[i],
				l.Leverage[i], l.Influence[i])
		}
	}
	if !(math.Abs(floats.Sum(l.Leverage)-l.Parameters) < 1e-9) || !(l.SE > 0) || !(l.Err >= 0) {
		t.Fatalf("%v", l)
	}
	return l
}

// TestLOOGaussian checks that, under Gaussian noise, cavities equal the posteriors without one
// observation, and leverage equals the diagonal of the hat matrix, up to rounding. The noise is
// weak or strong, some rows are equal, and rows have arbitrary weights.
func TestLOOGaussian(t *testing.T) {
	t.Parallel()
	ctx, rng := context.Background(), testkit.Rand(1)
	const n = 15
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range y {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64()})
		y[i] = math.Sin(2*x.At(i, 0)) + 0.3*rng.NormFloat64()
	}
	x.SetRow(3, x.RawRowView(4))
	kernel := Matern52{Length: 1.5}
	for _, noise := range []float64{10, 0.1, 1e-6} {
		lik := GaussianNoise{Var: noise}
		fit := func(x *mat.Dense, y []float64) (*GP, *GPPosterior) {
			return fittedGP(t, x, y, kernel, lik, nil)
		}
		g, post := fit(x, y)
		l, err := g.LOO(ctx, post)
		mustLOO(t, l, err)
		tol := 1e-10 * math.Max(1, 1e-4/noise) // the condition of K + σ²I is about 1/σ²
		k := Gram(nil, kernel, x)
		for i := range n {
			k.SetSym(i, i, k.At(i, i)+noise)
		}
		var inv mat.Dense
		if err := inv.Inverse(k); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			rest, yRest := testkit.LeaveOut(x, y, i)
			_, p := fit(rest, yRest)
			want := p.At(testkit.RowOf(x, i)).LogProb(nil, y[i:i+1])[0]
			if !(math.Abs(l.Pointwise[i]-want) <= tol*(1+math.Abs(want))) {
				t.Errorf("noise %v, row %d: %v, refitted %v", noise, i, l.Pointwise[i], want)
			}
			if hat := 1 - noise*inv.At(i, i); !(math.Abs(l.Leverage[i]-hat) <= tol) {
				t.Errorf("noise %v, row %d: leverage %v, want %v", noise, i, l.Leverage[i], hat)
			}
			// At some points, compare both joint posteriors, whose divergence is the influence.
			a, b := gpJoint(t, post, x), gpJoint(t, p, x)
			if kl := a.KL(b); noise == 10 && !(math.Abs(l.Influence[i]-kl) <= 1e-6) {
				t.Errorf("noise %v, row %d: influence %v, want %v", noise, i, l.Influence[i], kl)
			}
		}
		if !(l.Err <= 100*n*tol) {
			t.Errorf("noise %v: error %v", noise, l.Err)
		}
	}

	// In a GLM, a row of weight 3 counts as three rows, and LOO leaves out one of them. It leaves
	// out a row of weight ½ as a whole.
	weights := []float64{1, 3, 0.5, 0, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1}
	for _, opt := range []GLMOptions{{Intercept: true}, {Covariance: DiagonalCovariance}} {
		fit := func(w []float64) (*GLM, *GLMPosterior) {
			opt := opt
			opt.Weights = w
			return fittedGLM(t, x, y, GaussianNoise{Var: 0.5}, &opt)
		}
		g, post := fit(weights)
		l, err := g.LOO(ctx, post)
		mustLOO(t, l, err)
		if len(l.Pointwise) != n-1 {
			t.Fatalf("%d rows", len(l.Pointwise))
		}
		var sum float64
		for i, k := 0, 0; i < n; i++ {
			if weights[i] == 0 {
				continue
			}
			w := slices.Clone(weights)
			w[i] = math.Max(0, w[i]-1)
			_, p := fit(w)
			want := p.At(testkit.RowOf(x, i)).LogProb(nil, y[i:i+1])[0]
			tol := 1e-9
			if opt.Covariance == DiagonalCovariance {
				tol = 1e-6 // accuracy of the fits
			}
			if !(math.Abs(l.Pointwise[k]-want) <= tol) {
				t.Errorf("%v, row %d: %v, refitted %v", opt.Covariance, i, l.Pointwise[k], want)
			}
			sum += weights[i] * l.Pointwise[k]
			k++
		}
		if !(math.Abs(l.ELPD-sum) < 1e-9) {
			t.Errorf("elpd %v, want %v", l.ELPD, sum)
		}
	}
}

// gpJoint returns the joint posterior at x, with noise that makes it positive definite.
func gpJoint(t *testing.T, p *GPPosterior, x *mat.Dense) *Gaussian {
	mean, cov, err := p.Joint(x)
	if err != nil {
		t.Fatal(err)
	}
	for i := range mean {
		cov.SetSym(i, i, cov.At(i, i)+1e-8)
	}
	g, err := NewGaussian(mean, cov)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestLOORefits compares the cavities with fits without each row. PointErr must bound the
// differences.
func TestLOORefits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, c := range map[string]struct {
		kernel Kernel
		jitter float64
	}{
		"ionosphere": {SquaredExp{Scale: math.Exp(2.5), Length: math.Exp(1)}, 1e-2},
		"sonar":      {SquaredExp{Scale: math.Exp(6), Length: math.Exp(-1)}, 1e-4},
	} {
		x, y, _, _ := testkit.UCI(t, "../..", name)
		rows := testkit.Longer(len(y), 40)
		_, d := x.Dims()
		x, y = mat.DenseCopyOf(x.Slice(0, rows, 0, d)), y[:rows]
		gp := func(x mat.Matrix, y []float64) *GP {
			g, err := NewGP(x, y, c.kernel, BernoulliLogit{}, &GPOptions{Jitter: c.jitter})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		glm := func(x mat.Matrix, y []float64, cov Covariance) *GLM {
			g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Intercept: true, Covariance: cov})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		models := map[string]func(x mat.Matrix, y []float64, loo bool) (*LOO, interface {
			At(x mat.Matrix) *Prediction
		}){
			"GP": func(x mat.Matrix, y []float64, loo bool) (l *LOO, _ interface {
				At(x mat.Matrix) *Prediction
			}) {
				g := gp(x, y)
				p, _, err := g.Fit(ctx, nil)
				if err == nil && loo {
					l, err = g.LOO(ctx, p)
				}
				if err != nil {
					t.Fatal(err)
				}
				return l, p
			},
		}
		for _, cov := range []Covariance{FullCovariance, DiagonalCovariance} {
			models[cov.String()] = func(x mat.Matrix, y []float64, loo bool) (l *LOO, _ interface {
				At(x mat.Matrix) *Prediction
			}) {
				g := glm(x, y, cov)
				p, _, err := g.Fit(ctx, nil)
				if err == nil && loo {
					l, err = g.LOO(ctx, p)
				}
				if err != nil {
					t.Fatal(err)
				}
				return l, p
			}
		}
		for model, f := range models {
			l, post := f(x, y, true)
			mustLOO(t, l, nil)
			inSample := post.At(x).LogProb(nil, y)
			var sum, estimate, optimism float64
			for _, i := range testkit.Influential(l.Influence) {
				rest, yRest := testkit.LeaveOut(x, y, i)
				_, p := f(rest, yRest, false)
				want := p.At(testkit.RowOf(x, i)).LogProb(nil, y[i:i+1])[0]
				diff := math.Abs(l.Pointwise[i] - want)
				if !(diff <= 2.5*l.PointErr[i]+0.02) {
					t.Errorf("%s %s, row %d of influence %.3g: %.5f ± %.2g, refitted %.5f", name,
						model, i, l.Influence[i], l.Pointwise[i], l.PointErr[i], want)
				}
				sum, estimate, optimism = sum+diff, estimate+l.PointErr[i],
					optimism+math.Abs(inSample[i]-want)
			}
			t.Logf("%s %s: %v; of 20 rows off by %.2g, estimated %.2g; in sample %.2g", name, model,
				l, sum, estimate, optimism)
			if !(sum <= 1.2*estimate) || !(sum < 0.1*optimism) {
				t.Errorf("%s %s: off by %.3g, estimated %.3g, in sample %.3g", name, model, sum,
					estimate, optimism)
			}
		}
	}
}

// looPosterior lists the methods of a posterior that the checks of LOO use.
type looPosterior interface {
	At(x mat.Matrix) *Prediction
}

// looKinds lists forms of the approximation, with the smallest and largest number of columns for
// each.
var looKinds = []struct {
	name     string
	min, max int
}{{"full", 2, 9}, {"diagonal", 2, 9}, {"low-rank", 6, 11}, {"GP", 1, 4}, {"sparse GP", 1, 4},
	{"wide", 10, 59}, {"wide diagonal", 10, 59}}

// looRows draws rows with correlated columns, and responses from the given likelihood.
func looRows(lik Likelihood, n, d int, rng *rand.Rand) (x *mat.Dense, y []float64) {
	x, y = mat.NewDense(n, d, nil), make([]float64, n)
	for i := range y {
		var eta float64
		for j, common := 0, rng.NormFloat64(); j < d; j++ {
			x.Set(i, j, 0.8*rng.NormFloat64()+0.6*common)
			eta += 1.2 * math.Sin(x.At(i, j)+float64(j)) / math.Sqrt(float64(d))
		}
		switch lik.(type) {
		case BernoulliLogit, BernoulliProbit:
			y[i] = testkit.PlusMinus(eta+rng.NormFloat64() > 0)
		case Poisson, NegativeBinomial:
			y[i] = math.Floor(math.Exp(eta) * 2 * rng.Float64())
		case Gamma:
			y[i] = math.Exp(eta) * (rng.ExpFloat64() + rng.ExpFloat64()) / 2
		default:
			y[i] = eta + 0.5*rng.NormFloat64()
		}
	}
	return x, y
}

// looCase draws rows and returns a function that fits one of looKinds. The function also leaves
// out each row if loo is true.
func looCase(t *testing.T, seed int) (kind string, x *mat.Dense, y []float64,
	fit func(x *mat.Dense, y []float64, loo bool) (*LOO, looPosterior)) {
	liks := []Likelihood{BernoulliLogit{}, Poisson{}, BernoulliProbit{}, GaussianNoise{Var: 0.3},
		Laplace{Scale: 0.5}, Gamma{Shape: 2}, NegativeBinomial{Shape: 2}}
	rng, ctx := testkit.Rand(uint64(seed)), context.Background()
	of, lik := looKinds[seed%len(looKinds)], liks[seed/len(looKinds)%len(liks)]
	d := of.min + rng.IntN(of.max-of.min+1)
	x, y = looRows(lik, 15+rng.IntN(20), d, rng)
	opt := &GLMOptions{Intercept: true, PriorSD: 0.5 + 2*rng.Float64(), InterceptSD: 3,
		Covariance: FullCovariance}
	switch of.name {
	case "diagonal", "wide diagonal":
		opt.Covariance = DiagonalCovariance
	case "low-rank":
		opt.Covariance, opt.Rank = LowRankCovariance, 3
	}
	kernel := SquaredExp{Scale: 0.5 + 2*rng.Float64(), Length: 0.5 + 2*rng.Float64()}
	z := mat.NewDense(8, d, nil)
	for i := range z.RawMatrix().Data {
		z.RawMatrix().Data[i] = rng.NormFloat64()
	}
	return of.name, x, y, func(x *mat.Dense, y []float64, loo bool) (l *LOO, p looPosterior) {
		var err error
		switch of.name {
		case "GP":
			g, q := fittedGP(t, x, y, kernel, lik, nil)
			p = q
			if loo {
				l, err = g.LOO(ctx, q)
			}
		case "sparse GP":
			g, fail := NewSparseGP(x, y, kernel, lik, &SparseGPOptions{Inducing: z})
			if fail != nil {
				t.Fatal(fail)
			}
			q, _, fail := g.Fit(ctx, nil)
			if p, err = q, fail; loo && err == nil {
				l, err = g.LOO(ctx, q)
			}
		default:
			g, q := fittedGLM(t, x, y, lik, opt)
			p = q
			if loo {
				l, err = g.LOO(ctx, q)
			}
		}
		if err != nil {
			t.Fatalf("seed %d, %s: %v", seed, of.name, err)
		}
		return l, p
	}
}

// TestLOOPointErr compares each left-out row of random models with a fit without the row. At most
// 1% of the rows that move q by less than a nat may be off by more than PointErr. ELPD may be off
// by more than Err in 5% of the models, and must not lie on one side of the refits.
func TestLOOPointErr(t *testing.T) {
	t.Parallel()
	var rows, exceeded, fits, above, below, beyond int
	for seed := range testkit.Longer(126, 28) {
		kind, x, y, fit := looCase(t, 9000+seed)
		l, _ := fit(x, y, true)
		var refitted float64
		for i := range y {
			rest, yRest := testkit.LeaveOut(x, y, i)
			_, q := fit(rest, yRest, false)
			want := q.At(testkit.RowOf(x, i)).LogProb(nil, y[i:i+1])[0]
			refitted += want
			if l.Influence[i] >= 1 {
				continue
			}
			rows++
			diff := math.Abs(l.Pointwise[i] - want)
			if !(diff <= l.PointErr[i]+1e-5*(1+math.Abs(want))) { // error of the fits
				exceeded++
				t.Logf("seed %d, %s, row %d of influence %.2g: off by %.2g ± %.2g", seed, kind, i,
					l.Influence[i], diff, l.PointErr[i])
			}
		}
		fits++
		const rounding = 1e-4
		switch diff := l.ELPD - refitted; {
		case diff > rounding:
			above++
		case diff < -rounding:
			below++
		}
		if diff := math.Abs(l.ELPD - refitted); !(diff <= l.Err+rounding) {
			beyond++
			t.Logf("seed %d, %s: ELPD is off by %.2g, Err is %.2g", seed, kind, diff, l.Err)
		}
	}
	t.Logf("%d of %d rows are off by more than PointErr, ELPD in %d of %d fits by more than Err; it "+
		"is above the refits in %d and below in %d", exceeded, rows, beyond, fits, above, below)
	if exceeded*100 > rows {
		t.Errorf("%d of %d rows are off by more than PointErr", exceeded, rows)
	}
	if beyond*20 > fits {
		t.Errorf("ELPD is off by more than Err in %d of %d fits", beyond, fits)
	}
	// A fair coin exceeds three standard deviations in one of 370 runs.
	excess, differ := math.Abs(float64(above-below)), float64(above+below)
	if excess > 3*math.Sqrt(differ) {
		t.Errorf("ELPD is above the refits in %d fits and below in %d", above, below)
	}
}

// TestLOOSkewed compares LOO with fits without each row for Poisson counts with offsets, for a
// Student's t with outliers, whose γ may be negative, and for a sparse GP.
func TestLOOSkewed(t *testing.T) {
	t.Parallel()
	ctx, rng := context.Background(), testkit.Rand(3)
	const n = 20
	x, y, offset := mat.NewDense(n, 2, nil), make([]float64, n), make([]float64, n)
	for i := range y {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64()})
		offset[i] = rng.Float64()
		y[i] = math.Floor(math.Exp(offset[i]+x.At(i, 0)) + rng.Float64())
	}
	prior, err := NewMeanField([]float64{0.5, -0.5}, []float64{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	fit := func(x mat.Matrix, y, offset []float64) (*GLM, *GLMPosterior) {
		return fittedGLM(t, x, y, Poisson{}, &GLMOptions{Prior: prior, Offset: offset})
	}
	g, post := fit(x, y, offset)
	l, err := g.LOO(ctx, post)
	mustLOO(t, l, err)
	for i := range n {
		rest, yRest := testkit.LeaveOut(x, y, i)
		_, p := fit(rest, yRest, slices.Delete(slices.Clone(offset), i, i+1))
		want := p.At(testkit.RowOf(x, i)).Offset(offset[i:i+1]).LogProb(nil, y[i:i+1])[0]
		if diff := math.Abs(l.Pointwise[i] - want); !(diff <= l.PointErr[i]+1e-4) {
			t.Errorf("Poisson, row %d: %.5f ± %.2g, refitted %.5f", i, l.Pointwise[i],
				l.PointErr[i], want)
		}
	}
	// The objectives of the model and of Sites must agree.
	o, err := g.Objective()
	if err != nil {
		t.Fatal(err)
	}
	q, _, err := o.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	by, err := o.LOO(ctx, nil, q, 0)
	mustLOO(t, by, err)
	if !(math.Abs(by.ELPD-l.ELPD) < 1e-4) || !(math.Abs(by.Parameters-l.Parameters) < 1e-4) {
		t.Errorf("by the objective %v, by the model %v", by, l)
	}

	for i := range y {
		y[i] = x.At(i, 0) + 0.3*rng.NormFloat64()
	}
	y[3] += 8
	gp := func(x mat.Matrix, y []float64) (*GP, *GPPosterior) {
		return fittedGP(t, x, y, SquaredExp{Length: 2, Scale: 2}, StudentT{DF: 3, Scale: 0.5}, nil)
	}
	gg, gPost := gp(x, y)
	l, err = gg.LOO(ctx, gPost)
	mustLOO(t, l, err)
	if !(l.Leverage[3] < 0.05) || !(l.Pointwise[3] < -5) {
		t.Errorf("outlier: leverage %v, log-probability %v", l.Leverage[3], l.Pointwise[3])
	}
	var sum, estimate float64
	for i := range n {
		rest, yRest := testkit.LeaveOut(x, y, i)
		_, p := gp(rest, yRest)
		want := p.At(testkit.RowOf(x, i)).LogProb(nil, y[i:i+1])[0]
		sum, estimate = sum+math.Abs(l.Pointwise[i]-want), estimate+l.PointErr[i]
	}
	if !(sum <= 1.2*estimate+1e-3) || !(sum < 1) {
		t.Errorf("Student: off by %v, estimated %v", sum, estimate)
	}

	sparse, err := NewSparseGP(x, y, SquaredExp{Length: 2, Scale: 2}, GaussianNoise{Var: 0.5}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sPost, _, err := sparse.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	exact, err := NewGP(x, y, SquaredExp{Length: 2, Scale: 2}, GaussianNoise{Var: 0.5}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ePost, _, err := exact.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err = exact.LOO(ctx, ePost)
	mustLOO(t, l, err)
	ls, err := sparse.LOO(ctx, sPost)
	mustLOO(t, ls, err)
	if !(math.Abs(ls.ELPD-l.ELPD) < 1e-3) || !(math.Abs(ls.Parameters-l.Parameters) < 1e-3) {
		t.Errorf("sparse %v, exact %v", ls, l)
	}
}

// TestLOODraws compares LOO by draws with quadrature for arbitrary terms, and with the cavities
// if the terms are sites.
func TestLOODraws(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	data := []float64{3, 1, 2, 7, 0}
	ll := LogLik{N: len(data), Dim: 1, LogProb: func(n int, z []float64) float64 {
		return Poisson{}.LogProb(data[n], math.Log(z[0]))
	}}
	prior, err := NewGamma(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	o := Objective[*Exp]{F: Expect(ll, nil), H: KLTo(prior), Init: prior}
	q, err := NewGamma(15, 6) // the posterior
	if err != nil {
		t.Fatal(err)
	}
	const many = 8000
	l, err := o.LOO(ctx, nil, q, many)
	mustLOO(t, l, err)
	var elpd float64
	for n, y := range data {
		// The posterior without observation n is a Gamma with shape a and rate b, and its
		// prediction is negative binomial.
		a, b := 15-y, 5.0
		lg := func(x float64) float64 { v, _ := math.Lgamma(x); return v }
		want := lg(a+y) - lg(a) - lg(y+1) + a*math.Log(b/(b+1)) - y*math.Log(b+1)
		elpd += want
		if !(math.Abs(l.Pointwise[n]-want) <= 4.5*l.PointErr[n]) || !(l.KHat[n] <= l.Limit) {
			t.Errorf("term %d: %v ± %.2g with k̂ = %v, want %v", n, l.Pointwise[n], l.PointErr[n],
				l.KHat[n], want)
		}
		without, err := NewGamma(a, b)
		if err != nil {
			t.Fatal(err)
		}
		if kl := q.KL(without); !(math.Abs(l.Influence[n]-kl) <= 0.02+4.5*l.PointErr[n]) {
			t.Errorf("term %d: influence %v, want %v", n, l.Influence[n], kl)
		}
	}
	if !(math.Abs(l.ELPD-elpd) <= 5*l.Err) {
		t.Errorf("elpd %v ± %v, want %v", l.ELPD, l.Err, elpd)
	}
	if l.Cavity != nil || !(l.Parameters > 0.2 && l.Parameters < 3) {
		t.Errorf("%v", l)
	}
	again, err := o.LOO(ctx, NewEnv(nil, 3), q, many)
	if err != nil || again.ELPD != l.ELPD || !slices.Equal(again.KHat, l.KHat) {
		t.Errorf("other bits with 3 workers: %v, %v", again, err)
	}

	rng := testkit.Rand(4)
	s := Sites{Lik: BernoulliLogit{}}
	for range 30 {
		x := []float64{rng.NormFloat64(), rng.NormFloat64()}
		s.X, s.Y = append(s.X, x), append(s.Y, testkit.PlusMinus(x[0]+rng.NormFloat64() > 0))
	}
	g := Objective[*Gaussian]{F: Expect(s, nil), H: KLTo(NewIsotropic(2, 4)),
		Init: NewIsotropic(2, 1)}
	gq, _, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	cavity, err := g.LOO(ctx, nil, gq, 0)
	mustLOO(t, cavity, err)
	g.F = Expect(LogLik{N: 30, Dim: 2, LogProb: func(n int, z []float64) float64 {
		return s.Lik.LogProb(s.Y[n], floats.Dot(s.X[n], z))
	}}, nil)
	draws, err := g.LOO(ctx, nil, gq, 5000)
	mustLOO(t, draws, err)
	for n, want := range draws.Pointwise {
		// q differs from the posterior, and the draws correct this. The difference is 0.02 nats.
		if !(math.Abs(cavity.Pointwise[n]-want) <= cavity.PointErr[n]+4.5*draws.PointErr[n]+0.02) {
			t.Errorf("site %d: %v by its cavity, %v ± %v by draws", n, cavity.Pointwise[n], want,
				draws.PointErr[n])
		}
	}
	if cavity.KHat != nil ||
		!(math.Abs(cavity.Parameters-draws.Parameters) < 0.3*cavity.Parameters) ||
		!(math.Abs(cavity.ELPD-draws.ELPD) < 0.1) {
		t.Errorf("by cavities %v, by draws %v", cavity, draws)
	}
}

// TestLOOErrors checks the errors for arguments that do not match, and that a single observation
// has no standard error.
func TestLOOErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := mat.NewDense(3, 1, []float64{0, 1, 2}), []float64{1, -1, 1}
	gp, err := NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	gPost, _, err := gp.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	glm, err := NewGLM(x, y, GaussianNoise{Var: 0.01}, nil)
	if err != nil {
		t.Fatal(err)
	}
	none, err := NewGLM(NewSparse(1), nil, GaussianNoise{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	nPost, _, err := none.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	one, err := NewGLM(mat.NewDense(1, 1, []float64{1}), []float64{2}, GaussianNoise{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	oPost, _, err := one.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := one.LOO(ctx, oPost)
	if err != nil || !math.IsInf(l.SE, 1) ||
		!(math.Abs(l.ELPD-GaussianNoise{Var: 2}.LogProb(2, 0)) < 1e-9) {
		t.Errorf("one observation: %v, %v", l, err)
	}
	sparse, err := NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := NewIsotropic(1, 1)
	nan := Expect(LogLik{N: 1, Dim: 1, LogProb: func(int, []float64) float64 { return math.NaN() }},
		nil)
	nowhere := Expect(LogLik{N: 1, Dim: 1,
		LogProb: func(int, []float64) float64 { return math.Inf(-1) }}, nil)
	big := Expect(LogLik{N: min(1<<40, math.MaxInt), Dim: 1,
		LogProb: func(int, []float64) float64 { return 0 }}, nil)
	done, cancel := context.WithCancel(ctx)
	cancel()
	for name, c := range map[string]struct {
		want error
		f    func() (*LOO, error)
	}{
		"nil GP posterior":  {ErrParam, func() (*LOO, error) { return gp.LOO(ctx, nil) }},
		"nil GLM posterior": {ErrParam, func() (*LOO, error) { return glm.LOO(ctx, nil) }},
		"nil sparse":        {ErrParam, func() (*LOO, error) { return sparse.LOO(ctx, nil) }},
		"no rows":           {ErrEmpty, func() (*LOO, error) { return none.LOO(ctx, nPost) }},
		"rows not seen":     {ErrNotPosDef, func() (*LOO, error) { return glm.LOO(ctx, nPost) }},
		"canceled GP": {context.Canceled,
			func() (*LOO, error) { return gp.LOO(done, gPost) }},
		"canceled GLM": {context.Canceled,
			func() (*LOO, error) { return one.LOO(done, oPost) }},
		"canceled draws": {context.Canceled, func() (*LOO, error) {
			return Objective[*Gaussian]{F: nan, H: KLTo(q)}.LOO(done, nil, q, 0)
		}},
		"nil q": {ErrParam, func() (*LOO, error) {
			return Objective[*Gaussian]{F: nan, H: KLTo(q)}.LOO(ctx, nil, nil, 0)
		}},
		"no prior": {ErrParam,
			func() (*LOO, error) { return Objective[*Gaussian]{F: nan}.LOO(ctx, nil, q, 0) }},
		"few draws": {ErrParam, func() (*LOO, error) {
			return Objective[*Gaussian]{F: nan, H: KLTo(q)}.LOO(ctx, nil, q, 3)
		}},
		"NaN": {ErrNotFinite, func() (*LOO, error) {
			return Objective[*Gaussian]{F: nan, H: KLTo(q)}.LOO(ctx, nil, q, 0)
		}},
		"nowhere": {ErrNotFinite, func() (*LOO, error) {
			return Objective[*Gaussian]{F: nowhere, H: KLTo(q)}.LOO(ctx, nil, q, 0)
		}},
		"memory": {ErrMemory, func() (*LOO, error) {
			return Objective[*Gaussian]{F: big, H: KLTo(q)}.LOO(ctx, nil, q, 0)
		}},
	} {
		l, err := c.f()
		if l != nil || !errors.Is(err, c.want) || !testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v, %v", name, l, err)
		}
	}
}

// TestLOOUnresolved checks a row with a column that no other row has, under a wide prior. LOO
// cannot leave out this row, and the results of all other rows equal a fit without it.
func TestLOOUnresolved(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const n = 30
	rng := testkit.Rand(5)
	x, y := mat.NewDense(n, 3, nil), make([]float64, n)
	for i := range n {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64(), 0})
		y[i] = x.At(i, 0) + 0.3*rng.NormFloat64()
	}
	const own = 7
	x.Set(own, 2, 1)
	for _, c := range []Covariance{FullCovariance, DiagonalCovariance} {
		glm, err := NewGLM(x, y, GaussianNoise{Var: 0.01}, &GLMOptions{PriorSD: 1e7, Covariance: c})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := glm.LOO(ctx, post)
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		if !slices.Equal(l.Unresolved, []int{own}) || !math.IsInf(l.PointErr[own], 1) ||
			l.Pointwise[own] != 0 || !strings.Contains(l.String(), "over 29 observations, excluding 1 ") {
			t.Errorf("%v: unresolved %v, %v ± %v: %v", c, l.Unresolved, l.Pointwise[own],
				l.PointErr[own], l)
		}
		if c == DiagonalCovariance {
			continue // its variances of the other weights are lower with the row
		}
		rows := mat.NewDense(n-1, 2, nil)
		var rest []float64
		for i := range n {
			if i != own {
				rows.SetRow(len(rest), []float64{x.At(i, 0), x.At(i, 1)})
				rest = append(rest, y[i])
			}
		}
		if glm, err = NewGLM(rows, rest, GaussianNoise{Var: 0.01},
			&GLMOptions{PriorSD: 1e7, Covariance: c}); err != nil {
			t.Fatal(err)
		}
		if post, _, err = glm.Fit(ctx, nil); err != nil {
			t.Fatal(err)
		}
		want, err := glm.LOO(ctx, post)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(l.ELPD-want.ELPD) > 1e-6 || math.Abs(l.SE-want.SE) > 1e-6 ||
			math.Abs(l.Err-want.Err) > 1e-6 || len(want.Unresolved) != 0 {
			t.Errorf("%v: %v, without the row %v", c, l, want)
		}
	}
}

// TestLOOLeverageNearOne checks rows whose leverage is 1 to within the error of q. LOO must
// report these rows as unresolved and be right about the other rows. One of the five rows has a
// precision that exceeds the precision of its linear predictor by a fraction of 4e-6.
func TestLOOLeverageNearOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const n, cols = 5, 5
	x := mat.NewDense(n, cols, []float64{
		0, 0, 0, 0, 216092,
		1, 0, 1000, 0, 684,
		128, 1000, 0, 0, 17704,
		2187, 0, 0, 0, 24237,
		16384, 0, 0, -1, 40583,
	})
	y := []float64{
		0.7088732488405526, 0.25404379916063546, 15.728389104954125,
		0.3774218896778846, 0.5996419132119983,
	}
	fit := func(weights []float64) (*GLM, *GLMPosterior) {
		opt := &GLMOptions{Intercept: true, PriorSD: 10, InterceptSD: 1000, Weights: weights}
		return fittedGLM(t, x, y, Gamma{Shape: 1}, opt)
	}
	g, p := fit(nil)
	l, err := g.LOO(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Unresolved) == 0 || len(l.Unresolved) == n {
		t.Fatalf("unresolved: %v", l.Unresolved)
	}
	for i := range n {
		if slices.Contains(l.Unresolved, i) {
			if !(math.Abs(1-l.Leverage[i]) < 1e-5) {
				t.Errorf("row %d of leverage %v is unresolved", i, l.Leverage[i])
			}
			continue
		}
		weights := []float64{1, 1, 1, 1, 1}
		weights[i] = 0
		_, without := fit(weights)
		want := without.At(x).LogProb(nil, y)[i]
		if math.Abs(l.Pointwise[i]-want) > 0.01 {
			t.Errorf("row %d: log p is %v, of a fit without it %v", i, l.Pointwise[i], want)
		}
	}
}

// TestLOONoneLeftMessage checks the message of an error that names the first of all rows. It must
// not have two commas in a row.
func TestLOONoneLeftMessage(t *testing.T) {
	ctx := context.Background()
	x := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	g, err := NewGLM(x, []float64{1, 2}, GaussianNoise{Var: 1e-6}, &GLMOptions{PriorSD: 1e7})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.LOO(ctx, p)
	if !errors.Is(err, ErrNotPosDef) || strings.Contains(err.Error(), ",,") ||
		!strings.Contains(err.Error(), "row 0, with response 1, as all others") {
		t.Error(err)
	}
}

// TestLearnedPosterior checks that a model rejects the posterior of another kernel or noise, such as
// the posterior that its Learn returned, and that the learned model accepts that posterior.
func TestLearnedPosterior(t *testing.T) {
	ctx := context.Background()
	x, y := mat.NewDense(12, 1, nil), make([]float64, 12)
	for i := range y {
		x.Set(i, 0, float64(i)/2)
		y[i] = 3*math.Sin(float64(i)/2) + 0.1*math.Cos(float64(i*i))
	}
	g, err := NewGP(x, y, SquaredExp{}, GaussianNoise{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	learned, post, _, err := g.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSparseGP(x, y, SquaredExp{}, GaussianNoise{}, &SparseGPOptions{Rank: 6})
	if err != nil {
		t.Fatal(err)
	}
	learnedSparse, postSparse, _, err := s.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	learnedNoise, postNoise, _, err := g.Learn(ctx, nil, &LearnOptions{
		Fixed: []string{"SquaredExp.Scale", "SquaredExp.Length"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.LOO(ctx, postNoise); !errors.Is(err, ErrParam) ||
		!strings.Contains(err.Error(), "likelihood") {
		t.Errorf("LOO accepts the posterior of another noise: %v", err)
	}
	if _, err := learnedNoise.LOO(ctx, postNoise); err != nil {
		t.Error(err)
	}
	gp := func(g *GP) []error {
		_, one := g.LOO(ctx, post)
		_, two := g.PSIS(ctx, nil, post, 100)
		_, three := g.PredictiveCheck(ctx, nil, post, 10, nil)
		return []error{one, two, three}
	}
	sparse := func(s *SparseGP) []error {
		_, one := s.LOO(ctx, postSparse)
		_, two := s.PredictiveCheck(ctx, nil, postSparse, 10, nil)
		return []error{one, two}
	}
	for i, err := range append(gp(g), sparse(s)...) {
		if !errors.Is(err, ErrParam) || !testkit.PrefixedOnce(err) ||
			!strings.Contains(err.Error(), "use the model that Learn returned") {
			t.Errorf("check %d accepts the posterior of another kernel: %v", i, err)
		}
	}
	for i, err := range append(gp(learned), sparse(learnedSparse)...) {
		if err != nil {
			t.Errorf("check %d of a learned model: %v", i, err)
		}
	}
}

// TestLOOLogNormal checks that LOO of uncensored durations is the LOO of Gaussian noise at their
// logarithms, which is exact. A censored duration moves the sites of the others.
func TestLOOLogNormal(t *testing.T) {
	t.Parallel()
	ctx, rng := context.Background(), testkit.Rand(2)
	const n, scale = 40, 0.7
	x, y, logs := mat.NewDense(n, 2, nil), make([]float64, n), make([]float64, n)
	for i := range y {
		x.SetRow(i, []float64{1, rng.NormFloat64()})
		logs[i] = 1 + x.At(i, 1) + scale*rng.NormFloat64()
		y[i] = math.Exp(logs[i])
	}
	g, post := fittedGLM(t, x, y, LogNormal{Scale: scale}, nil)
	l, err := g.LOO(ctx, post)
	mustLOO(t, l, err)
	g, post = fittedGLM(t, x, logs, GaussianNoise{Var: scale * scale}, nil)
	want, err := g.LOO(ctx, post)
	mustLOO(t, want, err)
	for i, p := range l.Pointwise {
		if d := p - (want.Pointwise[i] - logs[i]); !(math.Abs(d) < 1e-9) {
			t.Errorf("row %d: off by %v nats", i, d)
		}
	}
	if l.Err != 0 {
		t.Errorf("error %v without censored durations", l.Err)
	}
	y[3] = -y[3]
	g, post = fittedGLM(t, x, y, LogNormal{Scale: scale}, nil)
	if l, err = g.LOO(ctx, post); err != nil || !(l.Err > 0) {
		t.Errorf("with a censored duration: %v, %v", l, err)
	}
}
