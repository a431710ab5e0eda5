package gp

import (
	"context"
	"errors"
	"math"
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
			{Param: positive("Linear.Scale", 2), SD: math.Log(2) / 1.959963984540054,
				Prior: Prior{Mean: math.Log(3), SD: math.Log(10) / 1.959963984540054, Shared: 0}},
			{Param: positive("Matern52.Length", 4), Fixed: true, SD: 1,
				Prior: Prior{Mean: 0, SD: 1, Shared: 0}},
			{Param: Param{Name: "Ordinal.Cuts[0]", Value: -1, Min: math.Inf(-1), Max: math.Inf(1)},
				SD: 0.5 / 1.959963984540054, AtBound: true},
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
