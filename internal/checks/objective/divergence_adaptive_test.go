package objective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/variate"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// adaptives returns the adaptive divergences, with step sizes at which they move by comparable
// lengths.
func adaptives() map[string]struct {
	d    Divergence
	beta float64
} {
	return map[string]struct {
		d    Divergence
		beta float64
	}{
		"AdaGrad":  {AdaGrad(0), 0.3},
		"RMSprop":  {RMSprop(0, 0), 0.05},
		"Adadelta": {Adadelta(0, 1e-4), 1},
		"Adam":     {Adam(0, 0, 0), 0.05},
	}
}

// bowl is the Smooth ½ Σ_i c_i (z_i − 1)² over a Point.
type bowl []float64

func (b bowl) Setup(Dist) (n int, exact bool, err error) {
	return 1, true, nil
}

func (b bowl) Value(ctx context.Context, env *Env, q Dist) (float64, float64, error) {
	return valueByGrad(ctx, env, b, q)
}

func (b bowl) Grad(_ context.Context, _ *Env, dst []float64, q Dist, _ []int) (float64, error) {
	var v float64
	for i, z := range q.Params(nil) {
		dst[i] = b[i] * (z - 1)
		v += 0.5 * b[i] * (z - 1) * (z - 1)
	}
	return v, nil
}

// TestAdaptiveUpdates compares three steps of every method on a quadratic with its published
// update rule, written out element by element.
func TestAdaptiveUpdates(t *testing.T) {
	sq := func(x float64) float64 { return x * x }
	grad := func(c, z float64) float64 { return c * (z - 1) }
	for _, c := range []struct {
		name string
		d    Divergence
		beta float64
		want func(c, z float64) float64 // returns z after three steps
	}{
		{"AdaGrad", AdaGrad(0.01), 0.7, func(c, z float64) float64 {
			a := grad(c, z)
			z -= 0.7 * a / math.Sqrt(sq(a)+0.01)
			b := grad(c, z)
			z -= 0.7 * b / math.Sqrt(sq(a)+sq(b)+0.01)
			e := grad(c, z)
			return z - 0.7*e/math.Sqrt(sq(a)+sq(b)+sq(e)+0.01)
		}},
		{"RMSprop", RMSprop(0.8, 0.02), 0.3, func(c, z float64) float64 {
			a := grad(c, z)
			z -= 0.3 * a / math.Sqrt(0.2*sq(a)+0.02)
			b := grad(c, z)
			z -= 0.3 * b / math.Sqrt(0.16*sq(a)+0.2*sq(b)+0.02)
			e := grad(c, z)
			return z - 0.3*e/math.Sqrt(0.128*sq(a)+0.16*sq(b)+0.2*sq(e)+0.02)
		}},
		{"Adadelta", Adadelta(0.75, 0.05), 1, func(c, z float64) float64 {
			a := grad(c, z)
			da := math.Sqrt(0.05) / math.Sqrt(0.25*sq(a)+0.05) * a
			z -= da
			b := grad(c, z)
			db := math.Sqrt(0.25*sq(da)+0.05) / math.Sqrt(0.1875*sq(a)+0.25*sq(b)+0.05) * b
			z -= db
			e := grad(c, z)
			return z - math.Sqrt(0.1875*sq(da)+0.25*sq(db)+0.05)/math.Sqrt(
				0.140625*sq(a)+0.1875*sq(b)+0.25*sq(e)+0.05)*e
		}},
		{"Adadelta, half a step", Adadelta(0.75, 0.05), 0.5, func(c, z float64) float64 {
			a := grad(c, z)
			da := 0.5 * math.Sqrt(0.05) / math.Sqrt(0.25*sq(a)+0.05) * a
			z -= da
			b := grad(c, z)
			db := 0.5 * math.Sqrt(0.25*sq(da)+0.05) / math.Sqrt(0.1875*sq(a)+0.25*sq(b)+0.05) * b
			z -= db
			e := grad(c, z)
			return z - 0.5*math.Sqrt(0.1875*sq(da)+0.25*sq(db)+0.05)/math.Sqrt(
				0.140625*sq(a)+0.1875*sq(b)+0.25*sq(e)+0.05)*e
		}},
		{"Adam", Adam(0.6, 0.8, 0.03), 0.4, func(c, z float64) float64 {
			a := grad(c, z)
			z -= 0.4 * a / (math.Abs(a) + 0.03)
			b := grad(c, z)
			z -= 0.4 * (0.24*a + 0.4*b) / 0.64 / (math.Sqrt((0.16*sq(a)+0.2*sq(b))/0.36) + 0.03)
			e := grad(c, z)
			return z - 0.4*(0.144*a+0.24*b+0.4*e)/0.784/(math.Sqrt((0.128*sq(a)+0.16*sq(b)+0.2*sq(e))/0.488)+0.03)
		}},
		{"Euclidean", Euclidean(), 0.4, func(c, z float64) float64 {
			return 1 + (z-1)*math.Pow(1-0.4*c, 3)
		}},
	} {
		f, start := bowl{0.3, 2, 0.9}, []float64{-2, 3, 0.5}
		o := Objective[*Point]{F: f, Init: NewPoint(start)}
		res := kit.Solve(t, Solver{Divergence: c.d, StepSize: ConstantStep(c.beta), MaxIter: 3}, o)
		want := make([]float64, len(f))
		for i := range f {
			want[i] = c.want(f[i], start[i])
		}
		testkit.CheckClose(t, c.name, qOf[Dist](res).Params(nil), want, 1e-14)
		if !res.ClosedForm {
			t.Errorf("%s: not a closed form", c.name)
		}
	}
}

// TestAdaptiveDefaults checks that a zero field is equal to its documented default, and differs
// from other values.
func TestAdaptiveDefaults(t *testing.T) {
	run := func(d Divergence) []float64 {
		return qOf[Dist](
			kit.Solve(t, Solver{Divergence: d, StepSize: ConstantStep(0.2), MaxIter: 5},
				Objective[*Point]{F: bowl{1e-3, 2}, Init: NewPoint([]float64{3, -2})})).Params(nil)
	}
	for _, c := range []struct{ zero, same, other Divergence }{
		{AdaGrad(0), AdaGrad(1e-8), AdaGrad(1e-6)},
		{RMSprop(0, 0), RMSprop(0.9, 1e-8), RMSprop(0.8, 0)},
		{RMSprop(0, 0), RMSprop(0.9, 0), RMSprop(0, 1e-6)},
		{Adadelta(0, 0), Adadelta(0.95, 1e-6), Adadelta(0.9, 0)},
		{Adadelta(0, 0), Adadelta(0.95, 0), Adadelta(0, 1e-8)},
		{Adam(0, 0, 0), Adam(0.9, 0.999, 1e-8), Adam(0.8, 0, 0)},
		{Adam(0, 0, 0), Adam(0.9, 0, 0), Adam(0, 0.99, 0)},
		{Adam(0, 0, 0), Adam(0, 0.999, 0), Adam(0, 0, 1e-6)},
	} {
		zero := run(c.zero)
		if !slices.Equal(zero, run(c.same)) {
			t.Errorf("%+v is not %+v", c.zero, c.same)
		}
		if slices.Equal(zero, run(c.other)) {
			t.Errorf("%+v is %+v", c.zero, c.other)
		}
	}
}

// TestAdaptiveCheck checks that Check, NewStepper and Run reject invalid parameters.
func TestAdaptiveCheck(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, d := range []Divergence{
		AdaGrad(-1), AdaGrad(nan), AdaGrad(inf),
		RMSprop(1, 0), RMSprop(-0.1, 0), RMSprop(nan, 0), RMSprop(0, -1),
		Adadelta(1, 0), Adadelta(0, inf),
		Adaptive(nil), Adam(1, 0, 0), Adam(0, 1, 0), Adam(0, -1, 0), Adam(nan, 0, 0), Adam(0, 0, -1e-9),
	} {
		o := Objective[*Point]{F: bowl{1, 2, 3}, Init: NewPoint(make([]float64, 3))}
		_, err := o.NewStepper(context.Background(), nil, d)
		_, ofRun := (&Solver{Divergence: d}).Run(context.Background(), o)
		for _, err := range []error{d.Check(o.Init), err, ofRun} {
			if !errors.Is(err, ErrParam) || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%+v: %v", d, err)
			}
		}
	}
	// Between two distributions, all adaptive divergences are Euclidean and pass its check.
	for name, a := range adaptives() {
		if alpha, err := CheckDivergence(a.d, NewPoint([]float64{1, 2}), NewPoint([]float64{0, 5}),
			NewPoint([]float64{-3, 1})); err != nil || math.Abs(alpha-1) > 1e-9 {
			t.Errorf("%s: %v, %v", name, alpha, err)
		}
	}
}

// TestAdaptiveGP checks that every method comes close to the optimum of a GP with exact gradients
// and decreasing steps, in both coordinates and with its own step sizes. With mini-batches it
// comes less close.
func TestAdaptiveGP(t *testing.T) {
	t.Parallel()
	gp := kit.ToyGPWith(t, 12, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{}, 3,
		&GPOptions{Jitter: 0.1})
	_, best := kit.MustFit(t, gp, nil)
	o, err := gp.Objective()
	if err != nil {
		t.Fatal(err)
	}
	ds := map[string]struct {
		d    Divergence
		beta float64
	}{"Euclidean": {Euclidean(), 0.05}}
	for name, a := range adaptives() {
		ds[name] = struct {
			d    Divergence
			beta float64
		}{a.d, a.beta}
	}
	for name, c := range ds {
		for _, coords := range testkit.Longer([]Coordinates{Cholesky, LogCholesky},
			[]Coordinates{LogCholesky}) {
			for what, s := range map[string]Solver{
				"all":    {StepSize: RobbinsMonro(c.beta, 100, 0.9), MaxIter: 4000},
				"batch":  {StepSize: RobbinsMonro(c.beta, 100, 0.9), MaxPasses: 2000, BatchSize: 4},
				"chosen": {MaxIter: 4000},
			} {
				if testing.Short() && what == "batch" {
					continue
				}
				s.Divergence, s.EvalEvery, s.Converger = c.d, -1, Never()
				res := kit.Solve(t, s, inCoords(o.Linearized(), coords))
				loss := best.ELBO - res.ELBO
				t.Logf("%s, %v, %s: %.2g nats below", name, coords, what, loss)
				most := map[string]float64{"all": 2e-3, "batch": 5e-3, "chosen": 1e-8}[what]
				if !(loss > -1e-9 && loss < most) {
					t.Errorf("%s, %v, %s: %.3g nats below the optimum, want %g", name, coords, what,
						loss, most)
				}
				if q := qOf[*Gaussian](res); q.Coordinates() != coords {
					t.Errorf("%s: the result is in %v", name, q.Coordinates())
				}
			}
		}
	}
}

// TestAdaptiveModels checks that a GLM runs an adaptive divergence on Objective.Linearized in
// log-Cholesky coordinates. A GP rejects it at set-up, because its state consists of sites.
func TestAdaptiveModels(t *testing.T) {
	x, y := testkit.StructuredData(40, 3, 5)
	for _, cov := range []Covariance{FullCovariance, DiagonalCovariance} {
		g := kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: cov})
		_, best := kit.StructuredFit(t, g, nil)
		s := Solver{Divergence: Adam(0, 0, 0), StepSize: RobbinsMonro(0.05, 300, 0), MaxIter: 3000,
			Converger: Never(), EvalEvery: -1}
		_, res, err := g.Fit(context.Background(), &s)
		if err != nil {
			t.Fatal(err)
		}
		if loss := best.ELBO - res.ELBO; !(math.Abs(loss) < 1e-5) {
			t.Errorf("%v: %.3g nats below the optimum", cov, loss)
		}
		o := testkit.Must(g.Objective())
		if again := kit.Solve(t, s, inCoords(o.Linearized(), LogCholesky)); again.ELBO != res.ELBO {
			t.Errorf("%v: ELBO %v, of the Objective %v", cov, res.ELBO, again.ELBO)
		}
	}
	low, err := NewSparseGP(x, y, SquaredExp{Scale: 2}, BernoulliLogit{}, &SparseGPOptions{Rank: 4})
	if err != nil {
		t.Fatal(err)
	}
	_, best, err := low.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, res, err := low.Fit(context.Background(),
		&Solver{Divergence: Adam(0, 0, 0), StepSize: RobbinsMonro(0.05, 300, 0), MaxIter: 3000,
			Converger: Never(), EvalEvery: -1})
	if err != nil || !(math.Abs(best.ELBO-res.ELBO) < 1e-5) {
		t.Errorf("low rank: %.3g nats below the optimum (%v)", best.ELBO-res.ELBO, err)
	}
	gp := kit.ToyGP(t, 5, SquaredExp{}, BernoulliLogit{}, 3)
	if _, res, err := gp.Fit(context.Background(), &Solver{Divergence: Adam(0, 0, 0)}); !errors.Is(
		err, ErrNoProx) || res != nil || !strings.Contains(err.Error(), "GP.Objective") {
		t.Errorf("GP.Fit: %v", err)
	}
}

// TestAdaptiveSameBits checks that a seed gives the same bits for any number of workers, with or
// without evaluations during the run, and other bits for another seed.
func TestAdaptiveSameBits(t *testing.T) {
	gp := kit.ToyGPWith(t, 15, SquaredExp{Scale: 2}, BernoulliLogit{}, 3,
		&GPOptions{Jitter: 0.01, Estimator: ScoreFunction(50)})
	o, err := gp.Objective()
	if err != nil {
		t.Fatal(err)
	}
	run := func(d Divergence, seed uint64, workers, every int) []float64 {
		s := Solver{Divergence: d, StepSize: ConstantStep(0.01), BatchSize: 4, MaxPasses: 5,
			Workers: workers, EvalEvery: every,
			Src: rand.NewPCG(seed, 1), Converger: Never()}
		return qOf[Dist](kit.Solve(t, s, inCoords(o.Linearized(), LogCholesky))).Params(nil)
	}
	for name, a := range adaptives() {
		want := run(a.d, 1, 1, 0)
		if !slices.Equal(run(a.d, 1, 2, 0), want) || !slices.Equal(run(a.d, 1, 7, 1), want) ||
			!slices.Equal(run(a.d, 1, 1, -1), want) {
			t.Errorf("%s: the same seed gave other bits", name)
		}
		if slices.Equal(run(a.d, 2, 1, 0), want) {
			t.Errorf("%s: another seed gave the same bits", name)
		}
	}
}

// TestAdaptiveResume checks that Resume continues with the metric that the run has reached.
func TestAdaptiveResume(t *testing.T) {
	o := Objective[*Point]{F: bowl{0.5, 3}, Init: NewPoint([]float64{4, -1})}
	s := Solver{Divergence: Adam(0, 0, 0), StepSize: ConstantStep(0.1), MaxIter: 7,
		Converger: Never()}
	whole := kit.Solve(t, s, o)
	s.MaxIter = 3
	part := kit.Solve(t, s, o)
	s.MaxIter = 7
	rest, err := s.Resume(context.Background(), part)
	if err != nil || !slices.Equal(qOf[Dist](rest).Params(nil), qOf[Dist](whole).Params(nil)) {
		t.Errorf("%v, in two parts %v (%v)", qOf[Dist](whole).Params(nil),
			qOf[Dist](rest).Params(nil), err)
	}
}

// TestAdaptiveProx checks that a step with h ≠ 0 is proximal in the metric of the step. L1 has a
// closed form, and a prior that is not linearized needs a numeric step.
func TestAdaptiveProx(t *testing.T) {
	f, start := bowl{0.3, 2, 0.9}, []float64{-2, 3, 0.01}
	o := Objective[*Point]{F: f, H: L1(0.4, 0), Init: NewPoint(start)}
	res := kit.Solve(t, Solver{Divergence: AdaGrad(0), StepSize: ConstantStep(0.5), MaxIter: 1}, o)
	for i, z := range start {
		g := f[i] * (z - 1)
		s := math.Sqrt(g*g + 1e-8)
		want := z - 0.5*g/s
		want = math.Copysign(math.Max(0, math.Abs(want)-0.5*0.4/s), want)
		testkit.CheckNear(t, "soft threshold", qOf[Dist](res).Params(nil)[i], want, 1e-14)
	}
	if !res.ClosedForm {
		t.Error("L1: not a closed form")
	}
	gp := kit.ToyGPWith(t, 4, SquaredExp{}, BernoulliLogit{}, 3, &GPOptions{Jitter: 0.1})
	p := inCoords(testkit.Must(gp.Objective()), LogCholesky)
	res = kit.Solve(t, Solver{Divergence: AdaGrad(0), StepSize: ConstantStep(0.05), MaxIter: 1}, p)
	g := make([]float64, p.Init.NumParams())
	if _, err := p.F.Grad(context.Background(), nil, g, p.Init, nil); err != nil {
		t.Fatal(err)
	}
	slope := p.H.Grad(nil, qOf[Dist](res))
	for i, now := range qOf[Dist](res).Params(nil) {
		slope[i] += g[i] + math.Sqrt(g[i]*g[i]+1e-8)*(now-p.Init.Params(nil)[i])/0.05
	}
	testkit.CheckClose(t, "optimality of the step with KLTo", slope, make([]float64, len(g)), 1e-6)
	if res.ClosedForm {
		t.Error("KLTo: a closed form")
	}
}

// TestLinearized checks that Linearized has the same objective and gradient, and that its steps
// with the Euclidean divergence are gradient descent on the whole objective.
func TestLinearized(t *testing.T) {
	p := corpus()[0]
	for _, c := range allCoordinates {
		o := Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior),
			Init: nearby(p.prior, randomGaussian(testkit.Rand(4), p.prior.Dim(), c), 0.3).In(c)}
		l := o.Linearized()
		g := make([]float64, o.Init.NumParams())
		v, err := o.F.Grad(context.Background(), nil, g, o.Init, nil)
		if err != nil {
			t.Fatal(err)
		}
		floats.Add(g, o.H.Grad(nil, o.Init))
		v += o.H.Value(o.Init)
		h := make([]float64, len(g))
		lv, err := l.F.Grad(context.Background(), nil, h, o.Init, nil)
		if err != nil {
			t.Fatal(err)
		}
		testkit.CheckClose(t, fmt.Sprintf("gradient, %v", c), h, g, 1e-13)
		testkit.CheckNear(t, "value", lv, v, 1e-13)
		lv, _, err = l.F.Value(context.Background(), nil, o.Init)
		if err != nil {
			t.Fatal(err)
		}
		testkit.CheckNear(t, "Value", lv, v, 1e-13)
		st, err := l.NewStepper(context.Background(), nil, Euclidean())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Step(context.Background(), nil, nil, 1e-3); err != nil {
			t.Fatal(err)
		}
		want := o.Init.Params(nil)
		floats.AddScaled(want, -1e-3, g)
		testkit.CheckClose(t, "gradient descent", kit.Reached[*Gaussian](st).Params(nil), want,
			1e-12)
	}
	// Errors of the parts appear at set-up, and a missing part counts as zero.
	o := Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(NewIsotropic(5, 1)), Init: p.prior}
	if _, err := o.Linearized().NewStepper(context.Background(), nil, nil); !errors.Is(err,
		ErrShape) {
		t.Errorf("a prior of another dimension: %v", err)
	}
	if o := (Objective[*Point]{F: bowl{1}, Init: NewPoint([]float64{2})}); o.Linearized().F.(bowl)[0] != 1 {
		t.Error("without h, Linearized changed f")
	}
	res := kit.Solve(t, Solver{Divergence: Euclidean(), StepSize: ConstantStep(0.2), MaxIter: 1},
		Objective[*Gaussian]{H: negELBO{f: Expect(p.s, nil), h: KLTo(p.prior)},
			Init: p.prior}.Linearized())
	if math.IsNaN(res.ELBO) {
		t.Error("without f, the ELBO is NaN")
	}
}

// TestCholeskyCrossesZero takes a gradient step in the coordinates Cholesky that would cross a
// zero on the diagonal of L, and checks that it is shortened. SetParams must reject such a λ and
// change nothing.
func TestCholeskyCrossesZero(t *testing.T) {
	g := testkit.Must(NewGaussian([]float64{1, 2},
		mat.NewSymDense(2, []float64{1, 0.5, 0.5, 2}))).In(
		Cholesky)
	before := g.Params(nil)
	for _, bad := range []float64{0, -1.2} {
		p := slices.Clone(before)
		p[2] = bad // L_00
		if err := g.SetParams(p); !errors.Is(err, ErrNotPosDef) ||
			!slices.Equal(g.Params(nil), before) {
			t.Errorf("L_00 = %v: %v, now %v", bad, err, g.Params(nil))
		}
	}
	// f = 50 z² pulls the scale from 1 to 0, because ∂f/∂L = 100 L.
	s := Sites{X: [][]float64{{10}}, Y: []float64{0}, Lik: GaussianNoise{Var: 1}}
	for name, q := range map[string]*Gaussian{"Gaussian": NewIsotropic(1, 1).In(Cholesky),
		"MeanField": NewIsotropicMeanField(1, 1).In(Cholesky)} {
		st := testkit.Must(
			Objective[*Gaussian]{F: Expect(s, nil), Init: q}.NewStepper(context.Background(),
				nil, Euclidean()))
		if _, err := st.Step(context.Background(), nil, nil, 0.015); err != nil {
			t.Fatal(err)
		}
		// The full step fails because 1 − 0.015·100 < 0, and half of it leads to 1 − 0.0075·100 =
		// ¼.
		testkit.CheckClose(t, name, kit.Reached[*Gaussian](st).Params(nil), []float64{0, 0.25},
			1e-12)
	}
}

// TestSiteSmooth checks that the terms of GP.Objective equal the terms of Expect with unit rows,
// for every family and all coordinates. Batches and the score function must be unbiased.
func TestSiteSmooth(t *testing.T) {
	rng := testkit.Rand(12)
	const n = 3
	y := []float64{1, -1, 1}
	x := dense.NewRows(n, n)
	for i := range x {
		x[i][i] = 1
	}
	// smooth returns f of a GP with these responses, which does not depend on the kernel.
	smooth := func(lik Likelihood, e SiteEstimator) Smooth {
		gp := testkit.Must(NewGP(mat.NewDense(n, 1, []float64{1, 2, 3}), y, SquaredExp{}, lik,
			&GPOptions{Estimator: e, Jitter: 0.1}))
		return testkit.Must(gp.Objective()).F
	}
	f := smooth(BernoulliLogit{}, nil)
	slow := Expect(Sites{X: x, Y: y, Lik: BernoulliLogit{}}, nil)
	for _, c := range testFamilies() {
		if c.dim != n {
			if _, _, err := f.Setup(c.rand(rng)); !errors.Is(err, ErrShape) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		q := c.rand(rng)
		got, want := make([]float64, q.NumParams()), make([]float64, q.NumParams())
		for _, batch := range [][]int{nil, {1}, {2, 0}, {0, 0}} {
			v, err := f.Grad(context.Background(), nil, got, q, batch)
			w, err2 := slow.Grad(context.Background(), nil, want, q, batch)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			testkit.CheckClose(t, fmt.Sprintf("%s, %v", c.name, batch), got, want, 1e-12)
			testkit.CheckNear(t, "value", v, w, 1e-13)
		}
		v, _, err := f.Value(context.Background(), nil, q)
		w, _, err2 := slow.Value(context.Background(), nil, q)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		testkit.CheckNear(t, "Value", v, w, 1e-13)

		noisy := smooth(BernoulliLogit{}, ScoreFunction(10))
		acc := variate.NewMoments(make([]float64, len(got)), nil)
		for i := range 4000 {
			if _, err := noisy.Grad(context.Background(), &Env{Rng: rng}, want, q,
				[]int{i % n}); err != nil {
				t.Fatal(err)
			}
			acc.Add(want)
		}
		acc.Finish()
		if _, err := f.Grad(context.Background(), nil, got, q, nil); err != nil {
			t.Fatal(err)
		}
		for i, g := range got {
			if e := math.Abs(acc.Mean[i] - g); e > 5*math.Sqrt(acc.M2[i])+1e-12 {
				t.Errorf("%s: element %d of the mean of the score function is off by %.3g", c.name,
					i, e)
			}
		}
	}
	bad := smooth(spiky{}, nil)
	if _, err := bad.Grad(context.Background(), nil, make([]float64, 9), NewIsotropic(n, 1),
		[]int{2}); !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "row 2") {
		t.Errorf("a NaN: %v", err)
	}
}

// spiky is a log-likelihood that is NaN.
type spiky struct{}

func (spiky) LogProb(_, _ float64) float64 { return math.NaN() }

// heavyBall is a metric that a user might write. It has momentum but no running scale.
type heavyBall struct{ v []float64 }

func (h *heavyBall) Next(s, g []float64, _ float64) {
	for i := range g {
		s[i] = 1
		h.v[i] = 0.5*h.v[i] + g[i]
		g[i] = h.v[i]
	}
}

func TestAdaptiveOfTheUser(t *testing.T) {
	balls := Adaptive(func(n int) Metric { return &heavyBall{make([]float64, n)} })
	res := kit.Solve(t, Solver{Divergence: balls, StepSize: ConstantStep(0.4),
		MaxIter: 2}, Objective[*Point]{F: bowl{1}, Init: NewPoint([]float64{2})})
	// With g = 1, z = 2 − 0.4. Then g = 0.6 and v = 1.1, so z = 1.6 − 0.44.
	testkit.CheckClose(t, "heavy ball", qOf[Dist](res).Params(nil), []float64{1.16}, 1e-14)
	// With its own step sizes, the Stepper drops a direction that leads uphill, and uses the
	// gradient instead.
	st := testkit.Must(Objective[*Point]{F: bowl{1, 30},
		Init: NewPoint([]float64{2, -5})}.NewStepper(
		context.Background(), nil, Adaptive(func(int) Metric { return uphill{} })))
	before := testkit.Must(kit.ElboOf(st, testkit.Rand(1)))
	if _, err := st.Step(context.Background(), &Env{Rng: testkit.Rand(1)}, nil,
		math.Inf(1)); err != nil {
		t.Fatal(err)
	}
	if after := testkit.Must(kit.ElboOf(st, testkit.Rand(1))); !(after > before+1) {
		t.Errorf("ELBO %v after %v", after, before)
	}
}

// uphill reverses every gradient.
type uphill struct{}

func (uphill) Next(s, g []float64, _ float64) {
	for i := range g {
		s[i] = 1
		g[i] = -g[i]
	}
}

// TestMulLower checks the lower triangle of the product, which must have the same bits for any
// number of processors.
func TestMulLower(t *testing.T) {
	rng := testkit.Rand(14)
	for _, d := range []int{1, 63, 64, 300} {
		// the upper triangle of l must not count
		a, l := testkit.Normals(rng, d*d), testkit.Normals(rng, d*d)
		got := make([]float64, d*(d+1)/2)
		dense.MulLower(got, a, l, d)
		var want []float64
		for i := range d {
			for j := range i + 1 {
				var s float64
				for k := j; k < d; k++ {
					s += a[i*d+k] * l[k*d+j]
				}
				want = append(want, s)
			}
		}
		testkit.CheckClose(t, fmt.Sprint("d = ", d), got, want, 1e-12)
		before := runtime.GOMAXPROCS(1)
		one := make([]float64, len(got))
		dense.MulLower(one, a, l, d)
		runtime.GOMAXPROCS(4)
		dense.MulLower(got, a, l, d)
		runtime.GOMAXPROCS(before)
		if !slices.Equal(one, got) {
			t.Errorf("d = %d: the bits depend on GOMAXPROCS", d)
		}
	}
}
