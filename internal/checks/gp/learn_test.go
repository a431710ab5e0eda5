package gp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// The scales of a GP and of a GLM must be certified over [0.05, 50] to 0.1 nats in at most twenty
// steps. The proof must also hold at scales that were not tried.
func TestCertifyScale(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	check := func(name string, scale float64, c Iteration, err error,
		elbo func(scale float64) float64) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%s: %v, %+v", name, scale, c)
		if c.K > 20 || !(c.GapBound <= 0.1) || c.Scope != OverQAndScale {
			t.Errorf("%s: %+v", name, c)
		}
		if got := elbo(scale); math.Abs(got-c.ELBO) > 0.01 {
			t.Errorf("%s: ELBO %v at %v, %v said", name, got, scale, c.ELBO)
		}
		for _, s := range []float64{0.05, 0.3, 0.9 * scale, 1.2 * scale, 9, 50} {
			if got := elbo(s); got > c.ELBO+c.GapBound {
				t.Errorf("%s: ELBO %v at %v, above %v + %v", name, got, s, c.ELBO, c.GapBound)
			}
		}
	}
	for i, c := range gpCases[:testkit.Longer(2, 1)] {
		d := c.load(t)
		x, y := d.x, d.y
		if !testkit.IsLong() {
			x, y = mat.DenseCopyOf(x.Slice(0, 40, 0, 34)), y[:40]
		}
		length := math.Exp([]float64{1, -1}[i])
		gp := kit.MustGP(t, x, y, SquaredExp{Length: length}, BernoulliLogit{})
		scale, cert, err := gp.CertifyScale(ctx, 0.05, 50, 0.1)
		check("GP, "+c.name, scale, cert, err, func(s float64) float64 {
			_, res, err := kit.MustGP(t, x, y, SquaredExp{Scale: s, Length: length},
				BernoulliLogit{}).Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			return res.ELBO
		})
		glm := func(s float64) *GLM {
			g, err := NewGLM(x, y, BernoulliLogit{},
				&GLMOptions{Intercept: i == 0, Autoscale: i == 1, PriorSD: s})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		scale, cert, err = glm(2).CertifyScale(ctx, 0.05, 50, 0.1)
		check("GLM, "+c.name, scale, cert, err, func(s float64) float64 {
			_, res, err := glm(s).Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			return res.ELBO
		})
	}
}

// CertifyScale must use a scale that multiplies all covariances: of a Product the scale of a
// factor, but not the scale of a term of one.
func TestCertifyScaleComposite(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := mat.NewDense(6, 1, []float64{1, 1.5, 2, 4, 4.5, 6}), []float64{1, 1, -1, 1, -1, -1}
	sum := Sum{SquaredExp{Scale: 2}, Matern12{Length: 2}}
	for _, with := range []func(s float64) Kernel{
		func(s float64) Kernel { return Product{sum, Matern52{Scale: s, Length: 3}} },
		func(s float64) Kernel { return Product{Constant{Scale: s}, sum} },
	} {
		scale, c, err := kit.MustGP(t, x, y, with(1), BernoulliLogit{}).CertifyScale(ctx, 0.05, 50,
			0.1)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []float64{scale, 0.1, 10} {
			_, res, err := kit.MustGP(t, x, y, with(s), BernoulliLogit{}).Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := res.ELBO - c.ELBO; d > c.GapBound || s == scale && d < -0.01 {
				t.Errorf("%T: ELBO %v at scale %v, %v and a bound of %v said", with(1), res.ELBO, s,
					c.ELBO, c.GapBound)
			}
		}
	}
	if _, _, err := kit.MustGP(t, x, y, Product{sum, sum}, BernoulliLogit{}).CertifyScale(ctx, 0.05,
		50, 0.1); !errors.Is(err, ErrParam) ||
		!strings.Contains(err.Error(), "Product{Constant{}, k}") {
		t.Errorf("a Product of Sums: %v", err)
	}
}

func TestCertifyScaleErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := mat.NewDense(3, 1, []float64{1, 2, 4}), []float64{1, -1, 1}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for _, c := range []struct {
		k        Kernel
		lik      Likelihood
		jitter   float64
		lo, hi   float64
		ctx      context.Context
		is       error
		says     string
		alsoGLMs bool
	}{
		{SquaredExp{}, BernoulliLogit{}, 0, 1, 0.5, ctx, ErrParam, "the scales from 1 to 0.5",
			true},
		{SquaredExp{}, BernoulliLogit{}, 0, 0, 1, ctx, ErrParam, "the scales from 0 to 1", true},
		{SquaredExp{}, StudentT{}, 0, 0.1, 1, ctx, ErrParam, "likelihood, not StudentT", true},
		{Linear{}, BernoulliLogit{}, 0, 0.1, 1, ctx, ErrParam, "no scale", false},
		{Sum{SquaredExp{}, White{}}, BernoulliLogit{}, 0, 0.1, 1, ctx, ErrParam, "no scale", false},
		{SquaredExp{}, BernoulliLogit{}, 0.1, 0.1, 1, ctx, ErrParam, "jitter 0.1", false},
		{SquaredExp{}, BernoulliLogit{}, 0, 0.1, 1, canceled, context.Canceled, "", true},
	} {
		gp, err := NewGP(x, y, c.k, c.lik, &GPOptions{Jitter: c.jitter})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = gp.CertifyScale(c.ctx, c.lo, c.hi, 0.1)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("GP: %v, want %q", err, c.says)
		}
		if !c.alsoGLMs {
			continue
		}
		g, err := NewGLM(x, y, c.lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = g.CertifyScale(c.ctx, c.lo, c.hi, 0.1)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("GLM: %v, want %q", err, c.says)
		}
	}
	g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Covariance: DiagonalCovariance})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.CertifyScale(ctx, 0.1, 1, 0.1); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
}

// CertifyScale must return the error of its context whenever that is canceled.
func TestCertifyScaleHearsCancel(t *testing.T) {
	t.Parallel()
	const n = 40
	rng := testkit.Rand(3)
	x, y := mat.NewDense(n, 2, testkit.Normals(rng, 2*n)), make([]float64, n)
	for i := range y {
		y[i] = math.Copysign(1, x.At(i, 0)+rng.NormFloat64())
	}
	gp := kit.MustGP(t, x, y, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{})
	glm, err := NewGLM(x, y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(ctx context.Context) error{
		"GP": func(ctx context.Context) error {
			_, _, err := gp.CertifyScale(ctx, 0.05, 50, 0.1)
			return err
		},
		"GLM": func(ctx context.Context) error {
			_, _, err := glm.CertifyScale(ctx, 0.05, 50, 0.1)
			return err
		},
	} {
		whole := testkit.NewAsked(math.MaxInt64)
		if err := f(whole); err != nil {
			t.Fatal(err)
		}
		total := whole.Asked.Load()
		for k := int64(0); k < total; k += 1 + total/20 {
			ctx := testkit.NewAsked(k)
			err := f(ctx)
			if err == nil || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%s, done at ask %d of %d: %v", name, k, total, err)
			}
			if more := ctx.Asked.Load() - k; more > 100 {
				t.Errorf("%s, done at ask %d of %d: asked %d times more", name, k, total, more)
			}
		}
	}
}

// A search that has converged must be at a stationary point: small downhill steps from there,
// fitted separately, gain nothing. The problems have large counts among zeros, equal labels and
// distant starts, whose slopes change by orders of magnitude.
func TestLearnEndsStationary(t *testing.T) {
	t.Parallel()
	at := func(i int, v, rest float64) func(int) float64 {
		return func(j int) float64 {
			if i == j {
				return v
			}
			return rest
		}
	}
	zero := at(-1, 0, 0)
	for _, c := range testkit.Few([]struct {
		name          string
		y             func(i int) float64
		lik           Likelihood
		scale, length float64 // values of the start; 0 means the default
		n             int
		bare          bool // no priors
	}{
		{"zeros, start 1000", zero, Poisson{}, 1000, 3, 30, false},
		{"zeros, one row", zero, Poisson{}, 2112, 0, 1, true},
		{"one 1000, start 1", at(7, 1000, 0), Poisson{}, 1, 3, 30, true},
		{"one 1000, start 1000", at(7, 1000, 0), Poisson{}, 1000, 3, 30, false},
		{"one 10", at(7, 10, 0), Poisson{}, 0, 0, 60, false},
		{"one 100", at(7, 100, 0), Poisson{}, 0, 0, 60, false},
		{"one 1000", at(7, 1000, 0), Poisson{}, 0, 0, 60, false},
		{"all labels +1", at(-1, 0, 1), BernoulliLogit{}, 100, 3, 30, true},
		{"one 1e6 among ones", at(7, 1e6, 1), Exponential{}, 100, 3, 26, true},
	}, 3) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x, y := mat.NewDense(c.n, 1, nil), make([]float64, c.n)
			for i := range y {
				x.Set(i, 0, float64(i))
				y[i] = c.y(i)
			}
			opt := &LearnOptions{NoPrior: c.bare}
			if c.length > 0 {
				opt.Fixed = []string{"SquaredExp.Length"}
			}
			ctx := context.Background()
			_, _, l, err := kit.MustGP(t, x, y, SquaredExp{Scale: c.scale, Length: c.length},
				c.lik).Learn(ctx, nil, opt)
			if err != nil {
				t.Fatal(err)
			}
			objective := func(theta []float64) float64 {
				_, r, err := kit.MustGP(t, x, y,
					SquaredExp{Scale: math.Exp(theta[0]), Length: math.Exp(theta[1])},
					c.lik).Fit(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				f := -r.ELBO
				for i, p := range l.Params {
					if p.Prior.SD > 0 {
						d := (theta[i] - p.Prior.Mean) / p.Prior.SD
						f += 0.5 * d * d
					}
				}
				return f
			}
			theta := []float64{math.Log(l.Params[0].Value), math.Log(l.Params[1].Value)}
			f := objective(theta)
			if math.Abs(f-l.Objective) > 1e-3 {
				t.Errorf("objective %v, by a fit %v", l.Objective, f)
			}
			least := f
			for i := range l.Params {
				if l.Params[i].Fixed {
					continue
				}
				for _, h := range []float64{-0.2, -0.05, 0.05, 0.2} {
					v := theta[i]
					theta[i] = v + h
					least = min(least, objective(theta))
					theta[i] = v
				}
			}
			if l.Search.Status != Converged || f-least > 0.01 {
				t.Errorf(
					"%v after %d evaluations, at %v ± %.2g with %v, and %.3g nats lower nearby",
					l.Search.Status, l.Evaluations, l.Params[0].Value, l.Params[0].SD, f,
					f-least)
			}
		})
	}
}

// A constant column must be recognized whatever its value is. 0.1 is not a float64, so the mean
// of equal values may differ from it.
func TestLearnConstantColumn(t *testing.T) {
	const n = 50
	rng := testkit.Rand(29)
	y := make([]float64, n)
	x := [2]*mat.Dense{mat.NewDense(n, 2, nil), mat.NewDense(n, 2, nil)}
	for i := range n {
		v := rng.NormFloat64()
		y[i] = v + 0.3*rng.NormFloat64()
		x[0].SetRow(i, []float64{v, 0})
		x[1].SetRow(i, []float64{v, 0.1})
	}
	for _, k := range []Kernel{Sum{Linear{}, Constant{}}, SquaredExp{Lengths: make([]float64, 2)},
		Linear{Scales: make([]float64, 2)}} {
		var priors [2][]Prior
		for i, x := range x {
			gp, err := NewGP(x, y, k, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _, l, err := gp.Learn(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range l.Params {
				priors[i] = append(priors[i], p.Prior)
			}
		}
		if !slices.Equal(priors[0], priors[1]) {
			t.Errorf("%s: beside a column of zeros %v, of 0.1 %v", testkit.TypeName(k), priors[0],
				priors[1])
		}
	}
	var glms [2]*GLMPosterior
	for i, x := range x {
		for r := range n {
			x.Set(r, 1, 0.3*float64(i)) // 3·0.1 is worse still
		}
		glm, err := NewGLM(x, y, nil, &GLMOptions{Autoscale: true})
		if err != nil {
			t.Fatal(err)
		}
		if glms[i], _, err = glm.Fit(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if sd := glms[1].SD(nil)[1]; !(sd > 0.1 && sd < 1) {
		t.Errorf("the weight of a constant column has a standard deviation of %v under a prior of 1", sd)
	}
}

// A search from the default start must find the better of two optima: the season of a trend,
// although its length scale is far below the median distance, and the noise of data that a short
// length scale would explain without noise.
func TestLearnBasins(t *testing.T) {
	rng := testkit.Rand(31)
	const n = 120
	time, season := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		at := float64(i) / 12
		time.Set(i, 0, at)
		season[i] = 50 + at + 8*math.Sin(2*math.Pi*at) + rng.NormFloat64()
	}
	// Three quarters of the rows of speeds and stopping distances of cars (Ezekiel, 1930).
	speed := []float64{4, 4, 7, 8, 9, 10, 10, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15,
		16, 17, 17, 17, 18, 18, 18, 19, 19, 20, 20, 20, 20, 23, 24, 24, 24, 25}
	stop := []float64{2, 10, 4, 16, 10, 18, 34, 17, 28, 20, 24, 28, 34, 34, 46, 36, 60, 80, 26, 54,
		32, 32, 40, 50, 56, 76, 84, 46, 68, 32, 52, 56, 64, 54, 70, 92, 120, 85}
	speeds := mat.NewDense(len(speed), 1, speed)
	for _, c := range []struct {
		name  string
		x     *mat.Dense
		y     []float64
		k, at Kernel
		noise float64
	}{
		{"trend and season", time, season, Sum{SquaredExp{}, Linear{}, Constant{}},
			Sum{SquaredExp{Scale: 6, Length: 0.4}, Linear{}, Constant{}}, 1},
		{"season far from 0", time, season, SquaredExp{}, SquaredExp{Scale: 50, Length: 0.4}, 1},
		{"two parts alike", time, season, Sum{SquaredExp{}, SquaredExp{}},
			Sum{SquaredExp{Scale: 50, Length: 20}, SquaredExp{Scale: 6, Length: 0.4}}, 1},
		{"cars", speeds, stop, SquaredExp{Lengths: []float64{0}},
			SquaredExp{Scale: 50, Lengths: []float64{15}}, 250},
		{"cars with an offset", speeds, stop, Sum{SquaredExp{}, Constant{}},
			Sum{SquaredExp{Scale: 50, Length: 15}, Constant{}}, 250},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var elbo [2]float64
			for i, k := range []Kernel{c.k, c.at} {
				lik := GaussianNoise{}
				if i == 1 {
					lik.Var = c.noise
				}
				gp, err := NewGP(c.x, c.y, k, lik, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _, l, err := gp.Learn(context.Background(), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				elbo[i] = l.Fit.ELBO
			}
			if elbo[0] < elbo[1]-2 { // the priors differ
				t.Errorf("an ELBO of %.2f, where %.2f is to be had from another start", elbo[0],
					elbo[1])
			}
		})
	}
}

// A start without an ELBO, such as for responses whose squares overflow, must be an error that
// contains the remedy.
func TestLearnStartsWithoutELBO(t *testing.T) {
	const n = 20
	x, small := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, float64(i))
		small[i] = 1e-200 * float64(i%7)
	}
	for _, c := range []struct {
		name string
		y    []float64
		k    Kernel
		lik  Likelihood
	}{
		{"small, Student", small, SquaredExp{}, StudentT{}},
		{"small, Gaussian", small, SquaredExp{}, GaussianNoise{}},
	} {
		gp, err := NewGP(x, c.y, c.k, c.lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, l, err := gp.Learn(context.Background(), nil, nil)
		if err == nil || !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "rescale") {
			t.Errorf("%s: %v %+v", c.name, err, l)
		}
		sparse, err := NewSparseGP(x, c.y, c.k, c.lik, nil)
		if err != nil {
			continue
		}
		if _, _, l, err = sparse.Learn(context.Background(), nil, nil); err == nil ||
			!errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "rescale") {
			t.Errorf("%s, sparse: %v %+v", c.name, err, l)
		}
		glm, err := NewGLM(x, c.y, c.lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, l, err = glm.Learn(context.Background(), nil, nil); err == nil {
			t.Errorf("%s, GLM: %+v", c.name, l)
		}
	}
}

// TestLearnedString checks the table of learned parameters: intervals in the units of the
// parameters, fixed parameters, parameters at a bound, and warnings.
func TestLearnedString(t *testing.T) {
	t.Parallel()
	positive := func(name string,
		v float64) Param {
		return Param{Name: name, Value: v, Min: 0, Max: math.Inf(1)}
	}
	l := &Learned{
		Objective: 12.5, Evaluations: 7, Warnings: []string{"of a kind"},
		Params: []LearnedParam{
			{Param: positive("Linear.Scale", 2), SD: math.Log(2) / 1.959963984540054, Lo: 1, Hi: 4,
				Prior: Prior{Mean: math.Log(3), SD: math.Log(10) / 1.959963984540054, Shared: 0}},
			{Param: positive("Matern52.Length", 4), Fixed: true, SD: 1,
				Prior: Prior{Mean: 0, SD: 1, Shared: 0}},
			{Param: Param{Name: "Ordinal.Cuts[0]", Value: -1, Min: math.Inf(-1), Max: math.Inf(1)},
				SD: 0.5 / 1.959963984540054, Lo: -1.5, Hi: -0.5, AtBound: true},
		},
	}
	want := `3 parameters, 7 evaluations, objective 12.5 nats
                 value  2.5%  97.5%  prior 2.5%  97.5%
Linear.Scale     2      1     4      0.3         30
Matern52.Length  4                                      fixed
Ordinal.Cuts[0]  -1     -1.5  -0.5                      at its bound
warning: of a kind
`
	lines := strings.Split(l.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	one := (&Learned{Evaluations: 1, Params: l.Params[:1]}).String()
	if !strings.HasPrefix(one, "1 parameter, 1 evaluation, ") {
		t.Errorf("%q of one", one)
	}
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Regression with much noise must be learned by one search of few factorizations, for any default
// noise.
func TestLearnNoiseFew(t *testing.T) {
	t.Parallel()
	const n = 150
	rng := testkit.Rand(4)
	for _, noise := range []float64{0.05, 0.3, 1, 2} {
		x, y := mat.NewDense(n, 6, nil), make([]float64, n)
		for i := range n {
			for j := range 6 {
				x.Set(i, j, rng.NormFloat64())
			}
			y[i] = math.Sin(x.At(i, 0)+0.5*x.At(i, 1)) + noise*rng.NormFloat64()
		}
		_, _, l, err := kit.MustGP(t, x, y, SquaredExp{},
			GaussianNoise{}).Learn(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Starts) > 1 || l.Evaluations > 12 || l.Cholesky > 42 {
			t.Errorf("noise %v: %d searches, %d evaluations, %v factorisations", noise,
				len(l.Starts), l.Evaluations, l.Cholesky)
		}
	}
}

// The noise of a Student-t must be followed down to a thousandth of the responses. At the first
// noise all residuals look like outliers.
func TestLearnNoiseStudent(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		const n = 60
		rng := testkit.Rand(40 + seed)
		x, y := mat.NewDense(n, 1, nil), make([]float64, n)
		for i := range n {
			x.Set(i, 0, 2*rng.NormFloat64())
			y[i] = math.Sin(2*x.At(i, 0)) + 1e-3*rng.NormFloat64()
		}
		var l [2]*Learned
		for i, gp := range []*GP{kit.MustGP(t, x, y, SquaredExp{}, StudentT{}),
			kit.MustGP(t, x, y, SquaredExp{Scale: 2.5, Length: 1.4},
				StudentT{DF: 8, Scale: 1e-3})} {
			var err error
			if _, _, l[i], err = gp.Learn(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if l[0].Objective > l[1].Objective+0.01 || l[0].Evaluations > 30 || len(l[0].Warnings) > 0 {
			t.Errorf("%v in %d evaluations, %v from near the optimum: %v", l[0].Objective,
				l[0].Evaluations, l[1].Objective, l[0].Warnings)
		}
	}
}

// An unset Period must start at the period of the responses, in any unit, with a trend, and with
// missing rows.
func TestLearnPeriod(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	const n = 120
	for i, c := range []struct {
		period, from, noise float64
		k                   Kernel
	}{
		{1, 1960, 0.3, Sum{SquaredExp{}, Periodic{}}},
		{365.25, 0, 0.3, Sum{SquaredExp{}, Product{SquaredExp{}, Periodic{}}}},
		{0.02, -3, 1, Sum{SquaredExp{}, Linear{}, Constant{}, Periodic{}}},
	} {
		rng := testkit.Rand(60 + uint64(i))
		x, y := mat.NewDense(n, 1, nil), make([]float64, n)
		at := 0.0
		for i := range n {
			at += c.period / 12 * float64(1+rng.IntN(2))
			x.Set(i, 0, c.from+at)
			u := at / c.period
			y[i] = 300 + u + 0.02*u*u + 3*math.Sin(2*math.Pi*u) + math.Cos(4*math.Pi*u) +
				c.noise*rng.NormFloat64()
		}
		if got := learn.Period(x, y, nil, true, nil); math.Abs(math.Log(got/c.period)) > 0.02 {
			t.Errorf("a period of %v is taken to be %v", c.period, got)
		}
		gp := kit.MustGP(t, x, y, c.k, GaussianNoise{})
		_, p, l, err := gp.Learn(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range l.Params {
			if strings.HasSuffix(p.Name, "Period") && math.Abs(math.Log(p.Value/c.period)) > 0.02 {
				t.Errorf("%v: %s is %v, want %v", c.k, p.Name, p.Value, c.period)
			}
		}
		next := mat.NewDense(1, 1, []float64{c.from + at + c.period/4})
		u := (at + c.period/4) / c.period
		want := 300 + u + 0.02*u*u + 3*math.Sin(2*math.Pi*u) + math.Cos(4*math.Pi*u)
		if m, v := p.At(next).Latent(nil, nil); math.Abs(m[0]-want) > 4*math.Sqrt(v[0])+c.noise ||
			math.Sqrt(v[0]) > 3*c.noise {
			t.Errorf("%v: a forecast of %v ± %v, want %v", c.k, m[0], math.Sqrt(v[0]), want)
		}
	}
	for what, x := range map[string]*mat.Dense{"two columns": mat.NewDense(20, 2,
		make([]float64, 40)), "equal rows": mat.NewDense(20, 1, make([]float64, 20)),
		"two rows": mat.NewDense(2, 1, []float64{0, 1})} {
		if p := learn.Period(x, make([]float64, x.RawMatrix().Rows), nil, true, nil); p != 0 {
			t.Errorf("%s: a period of %v", what, p)
		}
	}
}

// learnCase is a small model with hyperparameters of every type.
type learnCase struct {
	name string
	k    Kernel
	lik  Likelihood
	y    func(f, u float64) float64 // as a function of a latent value and a uniform number
}

func learnCases() []learnCase {
	sign := func(f, u float64) float64 { return testkit.PlusMinus(u < 1/(1+math.Exp(-2*f))) }
	count := func(f, u float64) float64 { return math.Floor(math.Exp(f) + 2*u) }
	plain := func(f, u float64) float64 { return f + u - 0.5 }
	return []learnCase{
		{"logit", SquaredExp{Scale: 1.5, Length: 0.8}, BernoulliLogit{}, sign},
		{"probit ARD", Matern52{Scale: 1.5, Lengths: []float64{0.8, 1.4}}, BernoulliProbit{}, sign},
		{"Poisson, sum",
			Sum{SquaredExp{Scale: 1, Length: 0.8}, Constant{Scale: 0.5}, White{Scale: 0.3}},
			Poisson{}, count},
		{"Gaussian, product", Sum{Product{SquaredExp{Scale: 1, Length: 2}, Periodic{Period: 1.7}},
			Linear{Scales: []float64{0.4, 0.2}}}, GaussianNoise{Var: 0.2}, plain},
		{"Gaussian, rational", rationalQuadratic(1, 1.2, 0.7), GaussianNoise{Var: 0.2}, plain},
		{"negative binomial", Matern32{Scale: 1, Length: 1}, NegativeBinomial{Shape: 2}, count},
		{"gamma", Matern52{Scale: 1, Length: 1}, Gamma{Shape: 2},
			func(f, u float64) float64 { return math.Exp(f) * (0.5 + u) }},
		{"Laplace", SquaredExp{Scale: 1, Length: 1}, Laplace{Scale: 0.3}, plain},
		{"Student", SquaredExp{Scale: 1, Length: 1}, StudentT{DF: 4, Scale: 0.3}, plain},
		{"ordinal", SquaredExp{Scale: 1, Length: 1}, Ordinal{Cuts: []float64{-0.7, 0.2, 1.1}},
			func(f, u float64) float64 { return math.Min(3, math.Max(0, math.Floor(f+u+1))) }},
		{"no derivatives", underived{SquaredExp{Scale: 1.5, Length: 0.8}}, BernoulliLogit{}, sign},
		{"ranges", ranged{SquaredExp{Scale: 1.5, Length: 0.8}, [2]float64{0.5, 1.7},
			[2]float64{math.Inf(-1), 0.9}, true}, rangedShape{NegativeBinomial{Shape: 2}}, count},
		{"ranges, differences",
			ranged{SquaredExp{Scale: 1.5, Length: 0.8}, [2]float64{-1, 1.7},
				[2]float64{0.3, math.Inf(1)}, false}, BernoulliLogit{}, sign},
	}
}

// model returns the model of n rows with duplicates.
func (c learnCase) model(t testing.TB, n int) *GP {
	t.Helper()
	rng := testkit.Rand(17)
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		x.SetRow(i, []float64{2 * rng.NormFloat64(), rng.NormFloat64()})
		if i%7 == 6 {
			x.SetRow(i, x.RawRowView(i-1))
		}
		y[i] = c.y(math.Sin(2*x.At(i, 0))+0.5*x.At(i, 1), rng.Float64())
	}
	gp, err := NewGP(x, y, c.k, c.lik, &GPOptions{Jitter: 1e-8})
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

// ranged is a SquaredExp whose Scale and Length have the given Min and Max, with or without
// derivatives. Its values are NaN outside its ranges.
type ranged struct {
	SquaredExp
	scale, length [2]float64
	derived       bool
}

func (k ranged) Params() []Param {
	p := k.SquaredExp.Params()
	p[0].Min, p[0].Max, p[1].Min, p[1].Max = k.scale[0], k.scale[1], k.length[0], k.length[1]
	return p
}

func (k ranged) WithParams(v []float64) Kernel {
	k.SquaredExp = k.SquaredExp.WithParams(v).(SquaredExp)
	return k
}

func (k ranged) Cov(x, y []float64) float64 {
	for _, p := range k.Params() {
		if !(p.Value >= p.Min && p.Value <= p.Max) {
			return math.NaN()
		}
	}
	return k.SquaredExp.Cov(x, y)
}

func (k ranged) Grad(dst, x, y []float64) float64 {
	v := k.SquaredExp.Grad(dst, x, y)
	for i, p := range k.Params() {
		if !k.derived {
			dst[i] = math.NaN()
		} else if p.Min < 0 {
			dst[i] /= p.Value
		}
	}
	return v
}

// rangedShape is a NegativeBinomial with a Shape from 0 to 3.
type rangedShape struct{ NegativeBinomial }

func (b rangedShape) Params() []Param {
	p := b.NegativeBinomial.Params()
	p[0].Max = 3
	return p
}

func (b rangedShape) WithParams(v []float64) Likelihood {
	return rangedShape{b.NegativeBinomial.WithParams(v).(NegativeBinomial)}
}

// TestLearnTruth checks that learning reaches the objective of the reference values to 0.01 nats,
// within the given numbers of evaluations and factorizations.
func TestLearnTruth(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("seconds")
	}
	iso := func(load func(t testing.TB) split) func(t *testing.T) *GP {
		return func(t *testing.T) *GP {
			d := load(t)
			return kit.MustGP(t, d.x, d.y, SquaredExp{}, BernoulliLogit{})
		}
	}
	uci := func(name string) func(t *testing.T) *GP {
		return iso(func(t testing.TB) split { return loadUCI(t, name) })
	}
	usps35 := iso(func(t testing.TB) split { return loadUSPS(t, 3, 5) })
	student := func(t *testing.T) *GP {
		ref := testkit.ReadTruth(t, "studentt_data.csv")
		return kit.MustGP(t, mat.NewDense(len(ref[0]), 1, ref[0]), ref[1], SquaredExp{},
			StudentT{DF: 4})
	}
	fixed := []string{"StudentT.DF"}
	for _, c := range []struct {
		name string
		gp   func(t *testing.T) *GP
		opt  *LearnOptions
		f    float64
		most [2]float64
	}{
		{"ionosphere", uci("ionosphere"), nil, 84.80843258805, [2]float64{10, 60}},
		{"sonar", uci("sonar"), nil, 60.50124586620, [2]float64{10, 60}},
		{"usps35", usps35, nil, 110.68124021581, [2]float64{10, 60}},
		{"ionosphere, ELBO", uci("ionosphere"), &LearnOptions{NoPrior: true}, 84.64786060760864,
			[2]float64{12, 60}},
		{"sonar, ELBO", uci("sonar"), &LearnOptions{NoPrior: true}, 59.98269523919856,
			[2]float64{14, 72}},
		{"Student", student, &LearnOptions{Fixed: fixed}, 152.385441607631, [2]float64{10, 60}},
		{"Student, ELBO", student, &LearnOptions{Fixed: fixed, NoPrior: true}, 152.23760941560684,
			[2]float64{10, 60}},
		{"ionosphere, ARD", func(t *testing.T) *GP {
			d := loadUCI(t, "ionosphere")
			return kit.MustGP(t, d.x, d.y, SquaredExp{Lengths: make([]float64, 34)},
				BernoulliLogit{})
		}, &LearnOptions{Prior: map[string]Prior{"SquaredExp.Scale": {Mean: 1, SD: 1.5},
			"SquaredExp.Length": {Mean: 1.4, SD: 0.5, Shared: 1}}}, 78.08536699428831,
			[2]float64{12, 80}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkLearned(t, c.gp(t), c.opt, c.f, c.most)
		})
	}
	t.Run("CO2", func(t *testing.T) {
		t.Parallel()
		gp, opt, f := co2(t)
		l := checkLearned(t, gp, opt, f, [2]float64{16, 60})
		for _, p := range l.Params {
			held := p.Name == "Sum[1].Product[1].Periodic.Scale" ||
				p.Name == "Sum[1].Product[1].Periodic.Period"
			if p.Fixed != held || held && p.Value != 1 {
				t.Errorf("%s: fixed %v, %v", p.Name, p.Fixed, p.Value)
			}
		}
	})
}

// co2 returns the components of the CO₂ on Mauna Loa before 1988, their priors and the best
// objective.
func co2(t testing.TB) (*GP, *LearnOptions, float64) {
	t.Helper()
	var truth struct {
		Objective float64   `json:"objective"`
		Mean      float64   `json:"y_mean"`
		Centre    []float64 `json:"prior_centre"`
	}
	testkit.ReadTruthJSON(t, "hyper_co2_map.json", &truth)
	ref := testkit.ReadTruth(t, "co2.csv")
	var x, y []float64
	for i, v := range ref[0] {
		if v < 1988 {
			x, y = append(x, v-1959), append(y, ref[1][i]-truth.Mean)
		}
	}
	e := func(i int) float64 { return math.Exp(truth.Centre[i]) }
	gp := kit.MustGP(t, mat.NewDense(len(x), 1, x), y, Sum{
		SquaredExp{Scale: e(0), Length: e(1)},
		Product{SquaredExp{Scale: e(2), Length: e(3)}, Periodic{Length: e(4), Period: 1}},
		rationalQuadratic(e(5), e(6), e(7)),
		SquaredExp{Scale: e(8), Length: e(9)},
	}, GaussianNoise{Var: math.Exp(2 * truth.Centre[10])})
	c := truth.Centre
	return gp, &LearnOptions{Fixed: []string{"Sum[1].Product[1].Periodic.Period"},
		Prior: map[string]Prior{
			"Sum[1].Product[1].Periodic.Length": {Mean: c[4], SD: 2},
			"Sum[2].RationalQuadratic.Alpha":    {Mean: c[7], SD: 2},
			"GaussianNoise.Var":                 {Mean: 2 * c[10], SD: 4},
		}}, -truth.Objective
}

// checkLearned learns gp and checks that the objective is f.
func checkLearned(t *testing.T, gp *GP, opt *LearnOptions, f float64, most [2]float64) *Learned {
	t.Helper()
	ctx := context.Background()
	l, err := gp.Learner(opt)
	if err != nil {
		t.Fatal(err)
	}
	evaluations, work := math.Inf(1), math.Inf(1)
	s := &Solver{Record: func(it Iteration) {
		if run := kit.RunOf(it.State); run.Best.F < f+0.01 && math.IsInf(evaluations, 1) {
			evaluations, work = float64(run.Count), run.Model.Work()
		}
	}}
	res, err := s.Run(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	s.Record = nil
	_, post, got, err := l.Learned(ctx, s, res)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("to 0.01 nats %v evaluations, %v factorisations; in all %d, %v; objective %.9f, %.2g "+
		"over; %v; warnings %q", evaluations, work, got.Evaluations, got.Cholesky, got.Objective,
		got.Objective-f, got.Fit.Status, got.Warnings)
	for _, p := range got.Params {
		t.Logf("%s %.6g (θ %.6f ± %.3f) prior %v", p.Name, p.Value, math.Log(p.Value), p.SD,
			p.Prior)
	}
	if !(got.Objective < f+1e-3) {
		t.Errorf("objective %.9f, want %.9f", got.Objective, f)
	}
	if evaluations > most[0] || work > most[1] {
		t.Errorf("%v evaluations and %v factorizations to 0.01 nats, at most %v", evaluations, work,
			most)
	}
	if math.Abs(-got.Fit.ELBO-got.LogPrior-got.Objective) > 1e-4 {
		t.Errorf("ELBO %v and log prior %v, objective %v", got.Fit.ELBO, got.LogPrior,
			got.Objective)
	}
	if post == nil {
		t.Error("no posterior")
	}
	return got
}

// TestLearnStarts checks that every search from thirty random starts finds the optimum under the
// default priors.
func TestLearnStarts(t *testing.T) {
	t.Parallel()
	for _, name := range testkit.Few([]string{"ionosphere", "sonar"}, 1) {
		d := loadUCI(t, name)
		_, cols := d.x.Dims()
		n := testkit.Shorter(100, 30)
		gp := kit.MustGP(t, mat.DenseCopyOf(d.x.Slice(0, n, 0, cols)), d.y[:n], SquaredExp{},
			BernoulliLogit{})
		_, _, l, err := gp.Learn(context.Background(), nil,
			&LearnOptions{Restarts: testkit.Shorter(30, 5)})
		if err != nil {
			t.Fatal(err)
		}
		for k, f := range l.Starts {
			if !(f < l.Objective+1e-3) {
				t.Errorf("%s: start %d ended with %v, the best with %v", name, k, f,
					l.Objective)
			}
		}
		if len(l.Warnings) > 0 {
			t.Errorf("%s: %q", name, l.Warnings)
		}
	}
}

// TestLearnCanceled checks that a search that ends early returns the best GP and posterior so far.
func TestLearnCanceled(t *testing.T) {
	t.Parallel()
	gp := learnCases()[0].model(t, 12)
	ctx, cancel := context.WithCancel(context.Background())
	s := &Solver{Record: func(it Iteration) {
		if it.K == 5 {
			cancel()
		}
	}}
	best, post, l, err := gp.Learn(ctx, s, nil)
	if !errors.Is(err, context.Canceled) || best == nil || post == nil || l.Fit != nil ||
		l.Search.Status != Canceled {
		t.Errorf("%v, %v, %v, %+v", best, post, err, l)
	}
	if _, _, _, err := gp.Learn(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestLearnErrors(t *testing.T) {
	t.Parallel()
	c := learnCases()[0]
	gp, ctx := c.model(t, 12), context.Background()
	for _, e := range []struct {
		opt  LearnOptions
		says string
	}{
		{LearnOptions{Fixed: []string{"Length"}},
			`name "Length", which is not a parameter; use one of SquaredExp.Scale, SquaredExp.Length`},
		{LearnOptions{Fixed: []string{"SquaredExp.Length", "SquaredExp.Scale"}},
			"no hyperparameter is left"},
		{LearnOptions{Prior: map[string]Prior{"SquaredExp.Scale": {}}}, "SD must be positive"},
		{LearnOptions{Prior: map[string]Prior{"x": {SD: 1}}}, `name "x"`},
		{LearnOptions{Bounds: map[string][2]float64{"SquaredExp.Scale": {2, 1}}},
			"Bounds of SquaredExp.Scale"},
		{LearnOptions{Bounds: map[string][2]float64{"SquaredExp.Scale": {-2, 1}}},
			"within its range, from 0 to +Inf"},
		{LearnOptions{Restarts: -1}, "Restarts is -1"},
		{LearnOptions{Restarts: 1 << 30}, "at most 1000"},
		{LearnOptions{Tol: math.NaN()}, "Tol NaN"},
	} {
		_, _, _, err := gp.Learn(ctx, nil, &e.opt)
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), e.says) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%+v: %v", e.opt, err)
		}
	}
	if _, _, _, err := gp.Learn(ctx, &Solver{Divergence: Euclidean()}, nil); !errors.Is(err,
		ErrNoProx) {
		t.Error(err)
	}
	l, err := gp.Learner(nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&Solver{MaxIter: 1}).Run(ctx, gp)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := l.Learned(ctx, nil, res); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	if _, err := (&Solver{StepSize: ConstantStep(1)}).Run(ctx, l); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
}

// TestLearnWarnings checks the warnings for a parameter that ends at its bound and for a parameter
// that is learned by differences.
func TestLearnWarnings(t *testing.T) {
	t.Parallel()
	gp := learnCases()[10].model(t, 16)
	_, _, l, err := gp.Learn(context.Background(), nil,
		&LearnOptions{Bounds: map[string][2]float64{"underived.Scale": {1e-3, 0.2}}})
	if err != nil {
		t.Fatal(err)
	}
	if !l.Params[0].AtBound || !l.Params[0].Differences || math.Abs(l.Params[0].Value-0.2) > 1e-6 ||
		len(l.Warnings) != 1 ||
		!strings.Contains(l.Warnings[0], "underived.Scale ended at its bound 0.2") {
		t.Errorf("%+v", l)
	}
}

// TestLearnNoiseOfBadFit checks that the scale of Laplace noise is learned even if the model fits
// badly, so that most residuals are many standard deviations of their latent value from zero.
func TestLearnNoiseOfBadFit(t *testing.T) {
	const n = 60
	rng := testkit.Rand(23)
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, float64(i)/10)
		y[i] = 50*math.Sin(3*x.At(i, 0)) + 5*rng.NormFloat64()
	}
	k := Sum{Linear{}, Constant{}}
	gp, err := NewGP(x, y, k, Laplace{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	glm, err := NewGLM(x, y, Laplace{}, &GLMOptions{Intercept: true, InterceptSD: 50})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	_, _, of, err := gp.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, ofGLM, err := glm.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*Learned{"GP": of, "GLM": ofGLM} {
		p := l.Params[len(l.Params)-1]
		if b := p.Value; !(b > 25 && b < 45) { // the mean absolute response is 32
			t.Errorf("%s: a scale of %v, with objective %v after %d evaluations %v", name, b,
				l.Objective, l.Evaluations, l.Warnings)
		}
		if l.Evaluations > 25 {
			t.Errorf("%s: %d evaluations", name, l.Evaluations)
		}
	}
}

// TestLearnUnit checks that the answer does not depend on the unit of the responses, and that the
// search converges, also if all responses are equal or there is only one.
func TestLearnUnit(t *testing.T) {
	ctx, next := context.Background(), mat.NewDense(1, 1, []float64{1})
	// each function learns from y at x, and returns the mean and the variance of the latent value
	// at 1
	models := map[string]func(x *mat.Dense, y []float64, lik Likelihood) (l *Learned, m,
		v []float64,
		err error){
		"GP": func(x *mat.Dense, y []float64, lik Likelihood) (*Learned, []float64, []float64,
			error) {
			_, p, l, err := kit.MustGP(t, x, y, SquaredExp{}, lik).Learn(ctx, nil, nil)
			m, v := p.At(next).Latent(nil, nil)
			return l, m, v, err
		},
		"SparseGP": func(x *mat.Dense, y []float64, lik Likelihood) (*Learned, []float64, []float64,
			error) {
			g, err := NewSparseGP(x, y, SquaredExp{}, lik, nil)
			_, p, l, err := kit.MustSparse(t, g, err).Learn(ctx, nil, nil)
			m, v := p.At(next).Latent(nil, nil)
			return l, m, v, err
		},
		"GLM": func(x *mat.Dense, y []float64, lik Likelihood) (*Learned, []float64, []float64,
			error) {
			g, err := NewGLM(x, y, lik, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, p, l, err := g.Learn(ctx, nil, nil)
			m, v := p.Latent(nil, nil, next)
			return l, m, v, err
		},
	}
	for model, learned := range models {
		for _, lik := range []Likelihood{GaussianNoise{}, Laplace{}, StudentT{}} {
			for _, n := range []int{1, 2, 4, 30, 31} { // equal responses except for 31 rows
				var want [2]float64
				for _, unit := range []float64{1, 1e-6, 1e-3, -1, 1e3, 1e6} {
					x, y := mat.NewDense(n, 1, nil), make([]float64, n)
					for i := range y {
						x.Set(i, 0, float64(1+i))
						y[i] = 5 * unit
						if n == 31 {
							y[i] += unit * math.Sin(float64(i)) / 4
						}
					}
					name := fmt.Sprintf("%s, %T, %d rows, unit %v", model, lik, n, unit)
					l, m, v, err := learned(x, y, lik)
					if err != nil || l.Search.Status != Converged {
						t.Errorf("%s: %v, %v, %v", name, l, l.Search.Status, err)
					}
					got := [2]float64{m[0] / unit, math.Sqrt(v[0]) / math.Abs(unit)}
					if unit == 1 {
						want = got
					}
					for k := range got {
						if !(math.Abs(got[k]-want[k]) <= 5e-3*math.Abs(want[k])) {
							t.Errorf("%s: %v, want %v", name, got, want)
						}
					}
				}
				if model != "GLM" && !(math.Abs(want[0]-5) < 0.5) {
					t.Errorf("%s, %T, %d rows of 5: %v", model, lik, n, want)
				}
			}
		}
	}
}

// TestLearnOn checks that a kernel of some columns is learned as if there were no other columns,
// and that periods are found among several columns.
func TestLearnOn(t *testing.T) {
	ctx, rng := context.Background(), testkit.Rand(47)
	n := 120
	x, y := mat.NewDense(n, 3, nil), make([]float64, n)
	for i := range n {
		day, place := 60*rng.Float64(), 4*rng.Float64()
		x.SetRow(i, []float64{1000 * rng.Float64(), day, place})
		u := 2 * math.Pi * day / 5
		y[i] = math.Sin(u) + 0.7*math.Cos(2*u) + 0.5*math.Sin(2*place) + 0.1*rng.NormFloat64()
	}
	learned := func(x *mat.Dense, k Kernel, lik Likelihood) *Learned {
		_, _, l, err := kit.MustGP(t, x, y, k, lik).Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	part := func(columns ...int) *mat.Dense {
		p := mat.NewDense(n, len(columns), nil)
		for to, from := range columns {
			p.SetCol(to, mat.Col(nil, from, x))
		}
		return p
	}
	for _, c := range []struct {
		k       Kernel
		columns []int
	}{
		{SquaredExp{}, []int{2}},
		{Matern32{Lengths: make([]float64, 2)}, []int{2, 1}},
		{Sum{Linear{}, Constant{}, SquaredExp{}}, []int{2}},
		{Linear{Scales: make([]float64, 2)}, []int{0, 2}},
		{Periodic{}, []int{1}},
	} {
		want := learned(part(c.columns...), c.k, GaussianNoise{})
		got := learned(x, On{Kernel: c.k, Columns: c.columns}, GaussianNoise{})
		if math.Abs(got.Objective-want.Objective) > 1e-3 {
			t.Errorf("%v of %v: the objective is %v, want %v", c.k, c.columns, got, want)
		}
		for i, p := range got.Params {
			if math.Abs(p.Value-want.Params[i].Value) > 0.02*want.Params[i].Value {
				t.Errorf("%v of %v: %s is %v, want %v", c.k, c.columns, p.Name, p.Value,
					want.Params[i].Value)
			}
		}
	}
	for name, k := range map[string]Kernel{
		"On.Periodic.Period": On{Kernel: Periodic{}, Columns: []int{1}},
		"Sum[0].On.Periodic.Period": Sum{On{Kernel: Periodic{}, Columns: []int{1}},
			On{Kernel: Matern32{}, Columns: []int{2}}},
		"On.Sum[1].On.Periodic.Period": On{Kernel: Sum{On{Kernel: SquaredExp{}, Columns: []int{0}},
			On{Kernel: Periodic{}, Columns: []int{1}}}, Columns: []int{2, 1}},
	} {
		found := false
		for _, p := range learned(x, k, GaussianNoise{}).Params {
			if p.Name == name {
				found = true
				if math.Abs(p.Value-5) > 0.1 {
					t.Errorf("%s is %v, want 5", name, p.Value)
				}
			}
		}
		if !found {
			t.Errorf("no parameter %s", name)
		}
	}
	// both columns have the period of a Periodic without On
	for i := range n {
		a, b := 30*rng.Float64(), 30*rng.Float64()
		x.SetRow(i, []float64{a, b, 0})
		y[i] = math.Sin(2*math.Pi*a/5) + math.Cos(2*math.Pi*b/5) + 0.1*rng.NormFloat64()
	}
	l := learned(part(0, 1), Periodic{}, GaussianNoise{})
	if p := l.Params[2]; math.Abs(p.Value-5) > 0.1 {
		t.Errorf("of two columns %s is %v, want 5", p.Name, p.Value)
	}
}

// TestLearnPeriodWarnings checks that a wrong period gets a warning with a better period, that rows
// with few cycles get a warning, and that right periods get no warning.
func TestLearnPeriodWarnings(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	truth := Periodic{Length: 0.8, Period: 5}
	// season returns the value of and the warning for the period that k learns from a draw of the
	// truth. times multiplies the truth and next is added to it unless they are nil.
	season := func(seed uint64, cycles float64, truth, k Kernel, lik Likelihood, sparse bool) (
		period float64, warning string) {
		rng := testkit.Rand(seed)
		x := mat.NewDense(150, 1, nil)
		for i := range 150 {
			x.Set(i, 0, 5*cycles*rng.Float64())
		}
		y := drawGP(rng, truth, x, 0.1)
		for i, v := range y {
			if _, ok := lik.(BernoulliLogit); ok {
				y[i] = testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(-5*v)))
			}
		}
		var l *Learned
		var err error
		if sparse {
			g, e := NewSparseGP(x, y, k, lik, nil)
			_, _, l, err = kit.MustSparse(t, g, e).Learn(ctx, nil, nil)
		} else {
			_, _, l, err = kit.MustGP(t, x, y, k, lik).Learn(ctx, nil, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range l.Warnings {
			if strings.Contains(w, "Period") {
				warning += w
			}
		}
		for _, p := range l.Params {
			if strings.HasSuffix(p.Name, "Period") {
				period = p.Value
			}
		}
		return period, warning
	}
	better := regexp.MustCompile(`Period is .*, but the responses are more likely to have a period ` +
		`of (4\.9|5|5\.0)[0-9]*, by about .* nats; set it to that value before learning`)
	for _, c := range []struct {
		given  float64
		sparse bool
	}{{2.5, false}, {9, false}, {10, false}, {40, false}, {0.3, true}, {15, true}} {
		p, said := season(51, 8, truth, Periodic{Period: c.given}, GaussianNoise{}, c.sparse)
		if math.Abs(math.Log(p/5)) > 0.05 && !better.MatchString(said) {
			t.Errorf("a period of %v that began at %v: %q", p, c.given, said)
		}
		if math.Abs(math.Log(p/c.given)) > 0.5 {
			t.Errorf("a period of %v that began at %v", p, c.given)
		}
	}
	smooth := SquaredExp{Length: 12}
	for name, c := range map[string]struct {
		truth, k Kernel
		lik      Likelihood
		sparse   bool
	}{
		"season": {truth, Periodic{}, GaussianNoise{}, false},
		"next to a trend": {Sum{smooth, truth}, Sum{SquaredExp{}, Periodic{}}, GaussianNoise{},
			false},
		"that changes": {Product{smooth, truth}, Product{SquaredExp{}, Periodic{}}, GaussianNoise{},
			false},
		"sparse": {truth, Periodic{}, GaussianNoise{}, true},
		"labels": {truth, Periodic{}, BernoulliLogit{}, false},
		"next to a season": {Sum{truth, Periodic{Period: 11}}, Sum{Periodic{Period: 11},
			Periodic{}},
			GaussianNoise{}, false},
	} {
		if p, said := season(54, 8, c.truth, c.k, c.lik, c.sparse); math.Abs(p-5) > 0.15 ||
			said != "" {
			t.Errorf("%s: a period of %v, %q", name, p, said)
		}
	}
	if p, said := season(53, 1.4, truth, Periodic{}, GaussianNoise{},
		false); !strings.Contains(said,
		"set it if it is known, or add rows") {
		t.Errorf("of 1.4 cycles a period of %v, %q", p, said)
	}
}

// TestLearnSeasons checks that two Periodic kernels with unset periods start at, and learn, the two
// seasons of the responses.
func TestLearnSeasons(t *testing.T) {
	t.Parallel()
	const n, day, week = 150, 1.0, 7.0
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	rng := rand.New(rand.NewPCG(2, 3))
	for i := range y {
		v := 5 * week * rng.Float64()
		x.Set(i, 0, v)
		y[i] = math.Sin(2*math.Pi*v/day) + 0.5*math.Cos(4*math.Pi*v/day) +
			math.Cos(2*math.Pi*v/week) + 0.1*rng.NormFloat64()
	}
	_, _, l, err := kit.MustGP(t, x, y, Sum{Periodic{}, Periodic{}}, GaussianNoise{}).Learn(
		context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, p := range l.Params {
		if strings.HasSuffix(p.Name, ".Period") {
			got = append(got, p.Value)
		}
	}
	slices.Sort(got)
	if len(got) != 2 || math.Abs(got[0]/day-1) > 0.01 || math.Abs(got[1]/week-1) > 0.01 {
		t.Errorf("the periods are %v, want %v and %v; warnings %q", got, day, week, l.Warnings)
	}
}
