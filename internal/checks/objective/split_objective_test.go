package objective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/estimate"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// lineFit is a Smooth as a user would write it, f(z) = ½ Σ_n (x_nᵀz − 1)² at a Point.
type lineFit [][]float64

func (f lineFit) Setup(Dist) (n int, exact bool, err error) {
	return len(f), true, nil
}

func (f lineFit) Value(ctx context.Context, env *Env, q Dist) (float64, float64, error) {
	return valueByGrad(ctx, env, f, q)
}

func (f lineFit) Grad(_ context.Context, _ *Env, dst []float64, q Dist, batch []int) (float64,
	error) {
	b := estimate.NewBatch(batch, len(f))
	z := q.Params(nil)
	clear(dst)
	var v float64
	for i := range b.N {
		x := f[b.Index(i)]
		r := floats.Dot(x, z) - 1
		v += 0.5 * b.Scale * r * r
		floats.AddScaled(dst, b.Scale*r, x)
	}
	return v, nil
}

// valueByGrad computes the Value of a Smooth from its Grad.
func valueByGrad(ctx context.Context, env *Env, f Smooth, q Dist) (float64, float64, error) {
	v, err := f.Grad(ctx, env, make([]float64, q.NumParams()), q, nil)
	return v, math.NaN(), err
}

// logEvidence integrates the joint density by the trapezoidal rule on a grid whose center and
// scale come from q.
func logEvidence(p toyProblem, q *Gaussian) float64 {
	l := p.s.Batch(nil)
	var chol mat.Cholesky
	if !chol.Factorize(q.Cov()) {
		return math.NaN()
	}
	var root mat.TriDense
	chol.LTo(&root)
	var logs []float64
	const half, step = 12.0, 0.16
	u := make([]float64, q.Dim())
	var walk func(j int)
	walk = func(j int) {
		if j == q.Dim() {
			z := q.Mean(nil)
			at := mat.NewVecDense(len(z), z)
			var far mat.VecDense
			far.MulVec(&root, mat.NewVecDense(len(u), u))
			at.AddVec(at, &far)
			logs = append(logs, l.LogProb(z)+p.prior.LogProb(z))
			return
		}
		for u[j] = -half; u[j] <= half; u[j] += step {
			walk(j + 1)
		}
	}
	walk(0)
	return floats.LogSumExp(logs) + float64(q.Dim())*math.Log(step) + 0.5*chol.LogDet()
}

// predictedGain returns the predicted gain at q, KL(q*‖q), where q* minimizes the linearized f
// plus h. It is zero only at the optimum.
func predictedGain(t *testing.T, p toyProblem, q *Gaussian) float64 {
	t.Helper()
	f := Expect(p.s, Exact())
	g := make([]float64, q.NumParams())
	if _, err := f.Grad(context.Background(), nil, g, q, nil); err != nil {
		t.Fatal(err)
	}
	eta := p.prior.Natural(nil)
	if isDiagonal(q) && !isDiagonal(p.prior) { // the prior is isotropic
		d := q.Dim()
		eta = make([]float64, 2*d)
		for i := range d {
			eta[i], eta[d+i] = meanAt(p.prior, i)*precision(p.prior).At(i, i),
				-0.5*precision(p.prior).At(i, i)
		}
	}
	floats.Sub(eta, q.MeanGrad(nil, g))
	best := q.Clone().(*Gaussian)
	if err := best.SetNatural(eta); err != nil {
		t.Fatal(err)
	}
	return best.KL(q)
}

func exactELBO(p toyProblem, q *Gaussian) float64 {
	return exactValue(q, p.s.Batch(nil).(siteBatch)) - q.KL(p.prior)
}

// TestZeroSolver runs the zero Solver on every problem and family. It must converge to a
// stationary point. The ELBO must never fall, must have the right value, and must be below the
// log evidence. The reported gap must not be too small.
func TestZeroSolver(t *testing.T) {
	t.Parallel()
	for i, p := range corpus() {
		d := p.prior.Dim()
		diag := testkit.Must(NewMeanField(p.init.Mean(nil), p.init.Var(nil)))
		diagPrior := testkit.Must(NewMeanField(p.prior.Mean(nil), p.prior.Var(nil)))
		z := math.NaN() // log evidence, which takes longer than a run
		for j, c := range []struct {
			name  string
			q     *Gaussian
			prior ExpFamily
		}{
			{"full, mean parameters", p.init, p.prior},
			{"full, moments", p.init.In(MeanCov), p.prior},
			{"full, diagonal prior", p.init, diagPrior},
			{"diagonal, mean parameters", diag, diagPrior},
			{"diagonal, moments", diag.In(MeanCov), diagPrior},
		} {
			if testing.Short() && (i+j)%6 > 0 {
				continue
			}
			t.Run(p.name+"/"+c.name, func(t *testing.T) {
				m := Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(c.prior), Init: c.q}
				before := momentsOf(c.q)
				res := kit.Solve(t, Solver{}, m)
				q := qOf[*Gaussian](res)
				// With a wide prior, the update of the appendix is a badly conditioned descent
				// and may end at the limit.
				slow := c.q.Coordinates() == MeanCov && p.name == "not log-concave"
				if res.Status != Converged && !slow || !res.ClosedForm {
					t.Errorf("status %v after %d iterations, gap %v, closed form %v", res.Status,
						res.K, res.Gap, res.ClosedForm)
				}
				if !slices.Equal(momentsOf(c.q), before) {
					t.Error("the run changed Init")
				}
				testkit.CheckNear(t, "ELBO", res.ELBO, exactELBO(p, q), 1e-12)
				last := exactELBO(p, c.q)
				for _, it := range res.Trace {
					if it.ELBO < last-1e-9*math.Max(1, math.Abs(last)) {
						t.Errorf("iteration %d: the ELBO falls from %v to %v", it.K, last, it.ELBO)
					}
					last = it.ELBO
				}
				if e := predictedGain(t, p, q); !(e < 1e-8) && !(slow && e < 1e-6) {
					t.Errorf("not stationary: %v nats to gain", e)
				}
				long := kit.Solve(t,
					Solver{Converger: AnyOf(GapBelow(1e-14, 0)), MaxPasses: float64(res.K + 100)},
					m)
				if e := long.ELBO - res.ELBO; !(e < 5*res.Gap+1e-9*math.Max(1, math.Abs(res.ELBO))) {
					t.Errorf("gap reported as %.3g is %.3g", res.Gap, e)
				}
				if math.IsNaN(z) {
					z = logEvidence(p, toDense(q))
				}
				if !(res.ELBO <= z+1e-9) {
					t.Errorf("ELBO %v above the log evidence %v", res.ELBO, z)
				}
				if d == 1 && z-res.ELBO > 0.5 {
					t.Errorf("ELBO %v far below the log evidence %v", res.ELBO, z)
				}
			})
		}
	}
}

// TestConjugateEvidence checks that one iteration reaches the optimum with a Gaussian likelihood,
// where the ELBO is the log evidence.
func TestConjugateEvidence(t *testing.T) {
	p := corpus()[2]
	p.s.Lik = GaussianNoise{Var: 0.7}
	res := kit.Solve(t, Solver{MaxIter: 1},
		Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init})
	testkit.CheckNear(t, "ELBO", res.ELBO, logEvidence(p, qOf[*Gaussian](res)), 1e-11)
	next := kit.Solve(t, Solver{},
		Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: qOf[*Gaussian](res)})
	testkit.CheckNear(t, "a step at the optimum", next.Trace[0].ELBO, res.ELBO, 1e-11)
	if next.K != 1 || next.Status != Converged {
		t.Errorf("from the optimum: %v after %d iterations", next.Status, next.K)
	}
}

// TestNoisyGradients runs noisy gradients with full passes and with mini-batches. The averaged
// iterates must end within a few thousandths of a nat of the optimum, and the reported gap must
// cover the distance.
func TestNoisyGradients(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("several seconds")
	}
	for _, p := range []toyProblem{corpus()[0], corpus()[1], corpus()[2], corpus()[9]} {
		best := kit.Solve(t, Solver{},
			Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init}).ELBO
		batch := max(1, len(p.s.Y)/5)
		for _, c := range []struct {
			name string
			f    Smooth
			m    int
		}{
			{"score function, all", Expect(kit.AsLogLik(p.s, false), ScoreFunction(200)),
				0},
			{"score function, batches",
				Expect(kit.AsLogLik(p.s, false), ScoreFunction(200)),
				batch},
			{"pathwise, batches", Expect(p.s, Pathwise(0)), batch},
			{"exact, batches", Expect(p.s, Exact()), batch},
		} {
			name := p.name + ", " + c.name
			res := kit.Solve(t, Solver{BatchSize: c.m},
				Objective[*Gaussian]{F: c.f, H: KLTo(p.prior), Init: p.init})
			gap := best - exactELBO(p, qOf[*Gaussian](res))
			t.Logf("%-50s %v, %5d iterations, gap %.2g reported as %.2g, ELBO ± %.2g", name,
				res.Status, res.K, gap, res.Gap, res.ELBOErr)
			if !(gap < 1e-2) {
				t.Errorf("%s: %v nats from the optimum", name, gap)
			}
			// Draws without a control variate are so noisy that they may take longer.
			if res.Status != Converged &&
				!(res.Status == PassLimit && c.name == "pathwise, batches" && res.Gap < 0.1) {
				t.Errorf("%s: %v after %d iterations", name, res.Status, res.K)
			}
			if !(gap < 10*res.Gap+1e-9) {
				t.Errorf("%s: gap reported as %.3g is %.3g", name, res.Gap, gap)
			}
		}
	}
}

// TestNoiseAboveOneNat checks that averaging starts even if the noise of a full step is worth
// many nats, and that the reported gap is not too small.
func TestNoiseAboveOneNat(t *testing.T) {
	const d = 10
	p := toyProblem{s: kit.LogisticData(68, 300, d), prior: NewIsotropic(d, 25)}
	init := NewIsotropic(d, 0.1)
	best := kit.Solve(t, Solver{},
		Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: init}).ELBO
	for name, f := range map[string]Smooth{"exact": Expect(p.s, nil),
		"pathwise": Expect(p.s, Pathwise(0))} {
		res := kit.Solve(t, Solver{BatchSize: 15, MaxPasses: 40},
			Objective[*Gaussian]{F: f, H: KLTo(p.prior), Init: init})
		gap := best - exactELBO(p, qOf[*Gaussian](res))
		t.Logf("%s: gap %.2g reported as %.2g", name, gap, res.Gap)
		if !(gap < 0.1) || !(gap < 3*res.Gap) {
			t.Errorf("%s: gap %v, reported as %v", name, gap, res.Gap)
		}
	}
}

// TestDivergencesSameOptimum checks that every pair of divergence and coordinates leads to the
// same optimum.
func TestDivergencesSameOptimum(t *testing.T) {
	t.Parallel()
	p := corpus()[0]
	want := kit.Solve(t, Solver{},
		Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init}).ELBO
	for name, d := range testDivergences() {
		for _, c := range allCoordinates {
			if testing.Short() && (name == "DivergenceFunc" || c == Natural) {
				continue
			}
			if c == Natural && (name == "Euclidean" || name == "Bregman") {
				continue // so badly conditioned that 300 passes are not enough
			}
			res := kit.Solve(t, Solver{Divergence: d, MaxPasses: 300},
				Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init.In(c)})
			t.Logf("%s, %v: %v after %d iterations, %.2g below", name, c, res.Status, res.K,
				want-res.ELBO)
			if !(math.Abs(want-res.ELBO) < 1e-4) {
				t.Errorf("%s, %v: ELBO %v, want %v (%v after %d iterations)", name, c, res.ELBO,
					want, res.Status, res.K)
			}
			if wantClosed := slices.Contains(closedForms[name+"/KLTo"],
				c); res.ClosedForm != wantClosed {
				t.Errorf("%s, %v: ClosedForm is %v", name, c, res.ClosedForm)
			}
		}
	}
}

// negELBO is the whole negative ELBO as a Convex that a user might write.
type negELBO struct {
	f Smooth
	h Convex
}

func (negELBO) Check(Dist) error { return nil }

func (o negELBO) Value(q Dist) float64 {
	v, err := o.f.Grad(context.Background(), nil, make([]float64, q.NumParams()), q, nil)
	if err != nil {
		return math.NaN()
	}
	return v + o.h.Value(q)
}

func (o negELBO) Grad(dst []float64, q Dist) []float64 {
	dst = o.h.Grad(dst, q)
	g := make([]float64, q.NumParams())
	if _, err := o.f.Grad(context.Background(), nil, g, q, nil); err != nil {
		g[0] = math.NaN()
	}
	floats.Add(dst, g)
	return dst
}

// TestTrustRegion checks the trust-region method, which has f = 0, the negative ELBO as h, and D
// = KL.
func TestTrustRegion(t *testing.T) {
	p := corpus()[0]
	h := negELBO{Expect(p.s, nil), KLTo(p.prior)}
	want := kit.Solve(t, Solver{}, Objective[*Gaussian]{F: h.f, H: h.h, Init: p.init})
	res := kit.Solve(t, Solver{}, Objective[*Gaussian]{H: h, Init: p.init})
	testkit.CheckNear(t, "ELBO", res.ELBO, want.ELBO, 1e-6)
	if res.Status != Converged || res.ClosedForm || !(res.Gap <= res.Goal) {
		t.Errorf("%v, closed form %v, gap %v", res.Status, res.ClosedForm, res.Gap)
	}
	// With a fixed β, the optimality equation of the exact step must hold.
	st := testkit.Must(Objective[*Gaussian]{H: h, Init: p.init}.NewStepper(context.Background(),
		nil, nil))
	if _, err := st.Step(context.Background(), &Env{Rng: testkit.Rand(1)}, nil, 0.3); err != nil {
		t.Fatal(err)
	}
	q := kit.Reached[*Gaussian](st)
	testkit.CheckClose(t, "optimality", proxGrad(q, make([]float64, 5), h, KL(), p.init, 0.3),
		make([]float64, 5), 1e-6)
}

// lassoOracle solves ½‖Xz − 1‖² + w‖z‖₁ by coordinate descent.
func lassoOracle(x [][]float64, w float64) []float64 {
	z := make([]float64, len(x[0]))
	for range 5000 {
		for j := range z {
			var a, b float64
			for _, row := range x {
				a += row[j] * row[j]
				b += row[j] * (1 - floats.Dot(row, z) + row[j]*z[j])
			}
			z[j] = math.Copysign(math.Max(0, math.Abs(b)-w), b) / a
		}
	}
	return z
}

// TestISTA solves the lasso by ISTA, with a fixed step size and with its own.
func TestISTA(t *testing.T) {
	f := lineFit(kit.LogisticData(76, 20, 6).X)
	const w = 2.5
	want := lassoOracle(f, w)
	if slices.Index(want, 0) < 0 || floats.Norm(want, 1) == 0 {
		t.Fatalf("the problem is trivial: %v", want)
	}
	o := Objective[*Point]{F: f, H: L1(w, 0), Init: NewPoint(make([]float64, 6))}
	for name, s := range map[string]Solver{
		"fixed step": {StepSize: ConstantStep(0.02), Converger: GradientMap(1e-11)},
		// values alone determine the steps, and they are flat here
		"own step": {Converger: GradientMap(1e-5)},
	} {
		s.Divergence = Euclidean()
		res := kit.Solve(t, s, o)
		if res.Status != Converged || !res.ClosedForm {
			t.Errorf("%s: %v after %d iterations", name, res.Status, res.K)
		}
		got := qOf[Dist](res).Params(nil)
		tol := 1e-10
		if s.StepSize == nil {
			tol = 1e-6
		}
		testkit.CheckClose(t, name, got, want, tol)
		for i := range got {
			if (got[i] == 0) != (want[i] == 0) {
				t.Errorf("%s: zeros of %v, want those of %v", name, got, want)
			}
		}
	}
}

// TestGradientDescent checks that gradient descent on a quadratic has the iterates of the
// textbook.
func TestGradientDescent(t *testing.T) {
	f := lineFit{{1, 0}, {0, 2}}
	z := []float64{3, -1}
	const beta = 0.1
	s := Solver{Divergence: Euclidean(), StepSize: ConstantStep(beta), MaxIter: 50}
	st := testkit.Must(Objective[*Point]{F: f, Init: NewPoint(z)}.NewStepper(context.Background(),
		nil,
		s.Divergence))
	for it, err := range s.Steps(context.Background(), &Result{Stepper: st}) {
		if err != nil {
			t.Fatal(err)
		}
		g := []float64{z[0] - 1, 2 * (2*z[1] - 1)}
		floats.AddScaled(z, -beta, g)
		testkit.CheckClose(t, fmt.Sprint("iterate ", it.K),
			kit.Reached[*Point](it.State).Params(nil),
			z, 1e-14)
		testkit.CheckNear(t, "gradient map", it.GradMap, floats.Norm(g, 2), 1e-13)
	}
}

// TestMirrorDescent checks that mirror descent with the negative entropy stays in the positive
// orthant and finds the optimum there. Gradient descent would leave the orthant.
func TestMirrorDescent(t *testing.T) {
	f := lineFit{{1, 1}, {1, -1}, {0.5, 0.2}} // the optimum is interior
	want := lassoOracle(f, 0)
	edge := lineFit{{1, 0}, {0.2, -1}} // the constraint z_2 ≥ 0 is active
	for _, s := range []Solver{{}, {StepSize: ConstantStep(0.2)}} {
		s.Divergence, s.MaxPasses = Bregman(NegEntropy()), 5000
		s.Converger = GradientMap(1e-12)
		res := kit.Solve(t, s, Objective[*Point]{F: f, Init: NewPoint([]float64{5, 5})})
		tol := 1e-9
		if s.StepSize == nil {
			tol = 1e-6 // values alone are flat at the optimum
		}
		testkit.CheckClose(t, "interior", qOf[Dist](res).Params(nil), want, tol)
		s.Record = func(it Iteration) {
			if z := kit.Reached[*Point](it.State).Params(nil); !(z[0] > 0 && z[1] >= 0) {
				t.Fatalf("iteration %d left the orthant: %v", it.K, z)
			}
		}
		res = kit.Solve(t, s, Objective[*Point]{F: edge, Init: NewPoint([]float64{1, 1})})
		testkit.CheckClose(t, "edge", qOf[Dist](res).Params(nil), []float64{1.2 / 1.04, 0}, 1e-6)
	}
}

// TestMiniBatchPoint takes mini-batch steps of a Point with a deterministic Smooth. The batches
// cause noise, and the run must end at the optimum of all terms instead of the last batch.
func TestMiniBatchPoint(t *testing.T) {
	f := lineFit(kit.LogisticData(77, 60, 2).X)
	want := lassoOracle(f, 0)
	st := testkit.Must(Objective[*Point]{F: f, Init: NewPoint([]float64{2, 2})}.NewStepper(
		context.Background(), nil, Euclidean()))
	best, _ := f.Grad(context.Background(), nil, make([]float64, 2), NewPoint(want), nil)
	res, err := (&Solver{BatchSize: 5, MaxPasses: 200, Converger: Never()}).Resume(
		context.Background(), &Result{Stepper: st})
	if err != nil {
		t.Fatal(err)
	}
	if e := -res.ELBO - best; !(e >= -1e-9 && e < 0.02*best) {
		t.Errorf("f is %v above its minimum %v", e, best)
	}
}

// TestGradMapOfShortenedStep checks that a step that was shortened reports its own gradient map.
func TestGradMapOfShortenedStep(t *testing.T) {
	// Gradient descent in (m, v) from v = 1 with ∂f/∂v = ½·10 leaves v > 0 for β ≥ 0.2.
	s := Sites{X: [][]float64{{math.Sqrt(10)}}, Y: []float64{0}, Lik: GaussianNoise{Var: 1}}
	st := testkit.Must(Objective[*Gaussian]{F: Expect(s, nil),
		Init: NewIsotropic(1, 1).In(MeanCov)}.NewStepper(context.Background(), nil, Euclidean()))
	step, err := st.Step(context.Background(), &Env{Rng: testkit.Rand(1)}, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if v := covAt(kit.Reached[*Gaussian](st), 0, 0); !(v > 0 && v < 1) {
		t.Fatalf("variance %v", v)
	}
	testkit.CheckNear(t, "gradient map", step.GradMap, 5, 1e-12)
}

// TestFixedStepAfterAveraging checks that a fixed step after a run with averaging continues from
// the average.
func TestFixedStepAfterAveraging(t *testing.T) {
	p := corpus()[0]
	s := Solver{BatchSize: 8, MaxPasses: 3}
	o := Objective[*Gaussian]{F: Expect(p.s, Pathwise(0)), H: KLTo(p.prior), Init: p.init}
	res := kit.Solve(t, s, o)
	g := make([]float64, 5)
	q := qOf[Dist](res)
	st := res.Stepper
	// The reference is one proximal step from the average, with the same draws.
	if _, err := o.F.Grad(context.Background(), &Env{Rng: testkit.Rand(3)}, g, q,
		[]int{1, 2}); err != nil {
		t.Fatal(err)
	}
	want := q.Clone()
	if _, err := solveProx(want, g, KLTo(p.prior), KL(), q, 0.1); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Step(context.Background(), &Env{Rng: testkit.Rand(3)}, []int{1, 2},
		0.1); err != nil {
		t.Fatal(err)
	}
	testkit.CheckClose(t, "state", momentsOf(kit.Reached[*Gaussian](st)),
		momentsOf(want.(*Gaussian)), 1e-12)
}

// TestStepBatches checks that a nil batch stands for all terms, and that a batch of N terms drawn
// with replacement does not.
func TestStepBatches(t *testing.T) {
	p := corpus()[0]
	o := Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init}
	all := make([]int, len(p.s.Y))
	for i := range all {
		all[i] = i
	}
	states := make([][]float64, 2)
	for i, batch := range [][]int{nil, all} {
		st := testkit.Must(o.NewStepper(context.Background(), nil, nil))
		for range 5 {
			if _, err := st.Step(context.Background(), &Env{Rng: testkit.Rand(1)}, batch,
				math.Inf(1)); err != nil {
				t.Fatal(err)
			}
		}
		states[i] = momentsOf(kit.Reached[*Gaussian](st))
	}
	testkit.CheckClose(t, "nil batch", states[0], states[1], 1e-12)
	best := kit.Solve(t, Solver{}, o).ELBO
	res := kit.Solve(t, Solver{Sampler: WithReplacement()}, o)
	if e := best - res.ELBO; !(e < 1e-2 && e < 10*res.Gap) {
		t.Errorf("with replacement: gap %v reported as %v", e, res.Gap)
	}
}

// failing is a Smooth that fails at the given call.
type failing struct {
	Smooth
	at, calls int
}

func (f *failing) Value(ctx context.Context, env *Env, q Dist) (float64, float64, error) {
	return valueByGrad(ctx, env, f, q)
}

func (f *failing) Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (float64,
	error) {
	if f.calls++; f.calls >= f.at {
		clear(dst)
		return 0, kit.ErrUser
	}
	return f.Smooth.Grad(ctx, env, dst, q, batch)
}

// TestSmoothError checks that the error of a Smooth is wrapped with the iteration and β, and
// returned with the last good state.
func TestSmoothError(t *testing.T) {
	p := corpus()[0]
	f := &failing{Smooth: lineFitAsSmooth(p.s), at: 5} // each step and each ELBO is a call
	res, err := (&Solver{StepSize: ConstantStep(0.25), Converger: Never()}).Run(
		context.Background(), Objective[*Gaussian]{F: f, H: KLTo(p.prior), Init: p.init})
	if !errors.Is(err, kit.ErrUser) || !strings.Contains(err.Error(), "iteration 3") ||
		!strings.Contains(err.Error(), "beta 0.25") || !testkit.PrefixedOnce(err) {
		t.Errorf("error %v", err)
	}
	if res == nil || res.Status != Failed || res.K != 2 || qOf[Dist](res) == nil {
		t.Fatalf("result %+v", res)
	}
	want := kit.Solve(t, Solver{StepSize: ConstantStep(0.25), MaxIter: 2},
		Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init})
	testkit.CheckClose(t, "state", momentsOf(qOf[*Gaussian](res)), momentsOf(qOf[*Gaussian](want)),
		0)
}

// lineFitAsSmooth returns a Smooth that does not declare itself exact, and computes its values by
// Grad.
func lineFitAsSmooth(s Sites) Smooth {
	f := Expect(s, nil)
	return SmoothFunc(s.Len(), false,
		func(env *Env, dst []float64, q Dist, batch []int) (float64, error) {
			return f.Grad(context.Background(), env, dst, q, batch)
		})
}

// TestWorkersAndSeeds checks that a seed gives the same bits for any number of workers and other
// bits for another seed, and that a nil source is a fixed seed.
func TestWorkersAndSeeds(t *testing.T) {
	s := kit.LogisticData(78, 50, 3)
	for name, e := range map[string]Estimator{"score function": ScoreFunction(40),
		"pathwise": Pathwise(10)} {
		run := func(workers int, src rand.Source) *Result {
			return kit.Solve(t, Solver{BatchSize: 7, MaxPasses: 4, Workers: workers, Src: src},
				Objective[*Gaussian]{F: Expect(kit.AsLogLik(s, true), e),
					H:    KLTo(NewIsotropic(3, 4)),
					Init: NewIsotropic(3, 0.1)})
		}
		bits := func(r *Result) []uint64 {
			x := append(momentsOf(qOf[*Gaussian](r)), r.ELBO, r.ELBOErr, r.Gap)
			for _, it := range r.Trace {
				x = append(x, it.ELBO)
			}
			var b []uint64
			for _, v := range x {
				b = append(b, math.Float64bits(v))
			}
			return b
		}
		want := bits(run(1, rand.NewPCG(1, 2)))
		for _, workers := range []int{0, 2, 7} {
			if !slices.Equal(bits(run(workers, rand.NewPCG(1, 2))), want) {
				t.Errorf("%s: %d workers give other bits", name, workers)
			}
		}
		if slices.Equal(bits(run(1, rand.NewPCG(1, 3))), want) {
			t.Errorf("%s: another seed gives the same bits", name)
		}
		if !slices.Equal(bits(run(1, nil)), bits(run(2, nil))) {
			t.Errorf("%s: a nil source is not a fixed seed", name)
		}
	}
}

// TestSharedModel runs a Model concurrently, with shared f and prior.
func TestSharedModel(t *testing.T) {
	s := kit.LogisticData(79, 20, 2)
	o := Objective[*Gaussian]{F: Expect(kit.AsLogLik(s, false), ScoreFunction(10)),
		H: KLTo(NewIsotropic(2, 4).In(MeanCov)), Init: NewIsotropic(2, 1)}
	run := func(workers int) []float64 {
		res, err := (&Solver{BatchSize: 5, MaxPasses: 5, Workers: workers}).Run(
			context.Background(), o)
		if err != nil {
			t.Error(err)
			return nil
		}
		return append(momentsOf(qOf[*Gaussian](res)), res.ELBO)
	}
	want := run(1)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if !slices.Equal(run(1+i%2), want) {
				t.Error("concurrent runs of one model disturb each other")
			}
		})
	}
	wg.Wait()
}

// TestResume checks that a run in two parts has the same bits as a run in one part.
func TestResume(t *testing.T) {
	p := corpus()[3]
	ctx := context.Background()
	for name, s := range map[string]Solver{
		"own steps":         {},
		"fixed steps":       {StepSize: ConstantStep(0.5)},
		"batches":           {BatchSize: 5},
		"noisy own steps":   {BatchSize: 5},
		"noisy fixed steps": {StepSize: ConstantStep(0.1), BatchSize: 3},
	} {
		s.Converger = Never()
		var est Estimator
		if strings.HasPrefix(name, "noisy") {
			est = ScoreFunction(20)
		}
		o := Objective[*Gaussian]{F: Expect(p.s, est), H: KLTo(p.prior), Init: p.init}
		s.MaxPasses = 6
		want := kit.Solve(t, s, o)
		s.MaxPasses = 2
		first := kit.Solve(t, s, o)
		s.MaxPasses = 6
		res, err := s.Resume(ctx, first)
		if err != nil {
			t.Fatal(err)
		}
		testkit.CheckClose(t, name, momentsOf(qOf[*Gaussian](res)), momentsOf(qOf[*Gaussian](want)),
			0)
		testkit.CheckNear(t, name+": ELBO", res.ELBO, want.ELBO, 0)
		if res.K != want.K || res.Passes != want.Passes || len(res.Trace) != len(want.Trace) {
			t.Errorf("%s: %d iterations, %v passes and a Trace of %d, want %d, %v and %d", name,
				res.K, res.Passes, len(res.Trace), want.K, want.Passes, len(want.Trace))
		}
	}
}

// TestInfiniteELBO checks that a likelihood that is zero at points with mass under q is an error,
// and not an ELBO of −Inf.
func TestInfiniteELBO(t *testing.T) {
	s := Sites{X: [][]float64{{1}}, Y: []float64{1}, Lik: halfLine{}}
	q := NewIsotropic(1, 1)
	for _, e := range []Estimator{nil, ScoreFunction(0)} {
		res, err := new(Solver).Run(context.Background(),
			Objective[*Gaussian]{F: Expect(s, e), H: KLTo(q), Init: q})
		if !errors.Is(err, ErrNotFinite) || res == nil || res.Status != Failed {
			t.Errorf("%T: error %v, result %+v", e, err, res)
		}
	}
}

// spoilt is a Smooth that returns NaN without an error.
type spoilt struct {
	Smooth
	value, grad bool
}

func (s spoilt) Setup(q Dist) (n int, exact bool, err error) {
	n, _, err = s.Smooth.Setup(q)
	return n, true, err
}

func (s spoilt) Value(ctx context.Context, env *Env, q Dist) (float64, float64, error) {
	return valueByGrad(ctx, env, s, q)
}

func (s spoilt) Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (float64,
	error) {
	v, err := s.Smooth.Grad(ctx, env, dst, q, batch)
	if s.value {
		v = math.NaN()
	}
	if s.grad {
		dst[0] = math.NaN()
	}
	return v, err
}

// TestNotFinite checks that NaN from any function of a user ends the run with an error, and that
// the state stays valid. A step size that makes the iteration explode must have the same effect.
func TestNotFinite(t *testing.T) {
	p := corpus()[0]
	good := lineFitAsSmooth(p.s)
	blowUp := Objective[*Point]{F: lineFit{{10, 0}, {0, 1}}, Init: NewPoint([]float64{1, 1})}
	for _, c := range []struct {
		name string
		s    Solver
		o    Model
		want error
	}{
		{"value", Solver{}, Objective[*Gaussian]{F: spoilt{good, true, false}, H: KLTo(p.prior),
			Init: p.init}, ErrNotFinite},
		{"value, fixed step", Solver{StepSize: ConstantStep(1)},
			Objective[*Gaussian]{F: spoilt{good, true, false}, H: KLTo(p.prior), Init: p.init},
			ErrDiverged},
		{"gradient", Solver{}, Objective[*Gaussian]{F: spoilt{good, false, true}, H: KLTo(p.prior),
			Init: p.init}, ErrNotFinite},
		{"gradient, fixed step", Solver{StepSize: ConstantStep(1)},
			Objective[*Gaussian]{F: spoilt{good, false, true}, H: KLTo(p.prior), Init: p.init},
			ErrNotFinite},
		{"exploding descent", Solver{StepSize: ConstantStep(1), Divergence: Euclidean()}, blowUp,
			ErrDiverged},
	} {
		res, err := c.s.Run(context.Background(), c.o)
		if !errors.Is(err, c.want) || !testkit.PrefixedOnce(err) || res.Status != Failed {
			t.Errorf("%s: %v, error %v, want %v", c.name, res.Status, err, c.want)
			continue
		}
		if i, ok := dense.AllFinite(qOf[Dist](res).Params(nil)); !ok {
			t.Errorf("%s: element %d of λ is not finite", c.name, i)
		}
	}
}

// TestGaussHermiteRun checks that a run with a quadrature estimator is deterministic, and as
// accurate as the estimator.
func TestGaussHermiteRun(t *testing.T) {
	p := corpus()[0]
	o := Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init}
	want := kit.Solve(t, Solver{}, o)
	o.F = Expect(p.s, GaussHermite(60))
	res := kit.Solve(t, Solver{}, o)
	testkit.CheckNear(t, "ELBO", res.ELBO, want.ELBO, 1e-9)
	if res.Status != Converged || res.K > 2*want.K {
		t.Errorf("%v after %d iterations, exactly after %d", res.Status, res.K, want.K)
	}
}

// TestELBOErr checks ELBOErr. It is the certified error for Sites, a standard error for a LogLik,
// and unknown for a user's Smooth.
func TestELBOErr(t *testing.T) {
	p := corpus()[0]
	run := func(f Smooth) *Result {
		return kit.Solve(t, Solver{MaxIter: 3},
			Objective[*Gaussian]{F: f, H: KLTo(p.prior), Init: p.init})
	}
	if e := run(Expect(p.s, nil)).ELBOErr; !(e > 0 && e < 1e-9) {
		t.Errorf("Sites: ELBOErr is %v", e)
	}
	if e := run(lineFitAsSmooth(p.s)).ELBOErr; !math.IsNaN(e) {
		t.Errorf("user's Smooth: ELBOErr is %v", e)
	}
	r := run(Expect(kit.AsLogLik(p.s, false), nil))
	if e := math.Abs(r.ELBO-exactELBO(p, qOf[*Gaussian](r))) / r.ELBOErr; !(e < 4) {
		t.Errorf("LogLik: ELBO is %v standard errors off", e)
	}
}

// TestObjectiveStepSizeTaken checks that the step size of an Iteration is the actual step size,
// which may be smaller than requested.
func TestObjectiveStepSizeTaken(t *testing.T) {
	// Let f = 40·v in (m, V). The matrix V⁻¹ + 2βG stays positive for any β, but V − βg in
	// Euclidean steps does not.
	f := SmoothFunc(1, true, func(_ *Env, dst []float64, q Dist, _ []int) (float64, error) {
		clear(dst)
		dst[1] = 40
		return 40 * q.Params(nil)[1], nil
	})
	o := Objective[*Gaussian]{F: f, Init: NewIsotropicMeanField(1, 1).In(MeanCov)}
	res := kit.Solve(t, Solver{Divergence: Euclidean(), StepSize: ConstantStep(0.1), MaxIter: 1}, o)
	if v := qOf[*Gaussian](res).Params(nil)[1]; res.Beta != 0.1/8 && res.Beta != 0.1/4 ||
		math.Abs(1-v-40*res.Beta) > 1e-12 {
		t.Errorf("β = %v reported for a step from 1 to %v by 40β", res.Beta, v)
	}
}

// TestGoalErrorUnknown checks that a run has a goal even if f does not report the error of its
// value.
func TestGoalErrorUnknown(t *testing.T) {
	f := SmoothFunc(1, true, func(_ *Env, dst []float64, _ Dist, _ []int) (float64, error) {
		clear(dst)
		return 0, nil
	})
	prior := NewIsotropic(2, 3)
	_, res, err := Objective[*Gaussian]{F: f, H: KLTo(prior), Init: NewIsotropic(2, 1)}.Fit(
		t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != Converged || !(res.Goal > 0) || math.Abs(res.ELBO) > 1e-12 {
		t.Errorf("%v at ELBO %v, error %v, goal %v", res.Status, res.ELBO, res.ELBOErr, res.Goal)
	}
}

// toyProblem is a Bayesian model with one or two parameters, whose evidence can be integrated.
type toyProblem struct {
	name  string
	s     Sites
	prior *Gaussian
	init  *Gaussian // nil means the prior
}

func corpus() []toyProblem {
	normalAt := func(m, v float64) *Gaussian {
		return testkit.Must(
			NewGaussian([]float64{m, -m}, mat.NewSymDense(2, []float64{v, 0, 0, v})))
	}
	counts := kit.LogisticData(70, 30, 2)
	counts.Lik = Poisson{}
	for i, x := range counts.X {
		counts.Y[i] = math.Round(math.Exp(0.8*x[0] + 0.5))
	}
	robust := kit.LogisticData(71, 25, 2)
	robust.Lik = StudentT{DF: 2, Scale: 0.3}
	for i, x := range robust.X {
		robust.Y[i] = x[0] - x[1]
		if i%5 == 0 {
			robust.Y[i] += 8 // outliers
		}
	}
	kink := robust
	kink.Lik = Laplace{Scale: 0.5}
	probit := kit.LogisticData(72, 30, 2)
	probit.Lik = BernoulliProbit{}
	scaled := kit.LogisticData(73, 40, 2)
	for _, x := range scaled.X {
		x[0] *= 1e3
		x[1] *= 1e-3
	}
	separable := kit.LogisticData(74, 20, 2)
	for i, x := range separable.X {
		separable.Y[i] = math.Copysign(1, x[0])
	}
	one := Sites{X: [][]float64{{1}}, Y: []float64{1}, Lik: BernoulliLogit{}}
	ps := []toyProblem{
		{"logistic", kit.LogisticData(75, 40, 2), NewIsotropic(2, 4), nil},
		{"Poisson from a bad start", counts, NewIsotropic(2, 10), normalAt(4, 3)},
		{"not log-concave", robust, NewIsotropic(2, 4), nil},
		{"kink", kink, NewIsotropic(2, 4), nil},
		{"probit", probit, NewIsotropic(2, 1), nil},
		{"badly scaled", scaled, NewIsotropic(2, 1), nil},
		{"badly scaled, wide prior", scaled, NewIsotropic(2, 1e4), nil},
		{"separable", separable, NewIsotropic(2, 100), nil},
		{"prior far away", kit.LogisticData(75, 40, 2), normalAt(30, 1), nil},
		{"one parameter, N = 1", one, NewIsotropic(1, 9), nil},
		{"N = 1", Sites{X: [][]float64{{1, -2}}, Y: []float64{3}, Lik: Poisson{}},
			NewIsotropic(2, 1), nil},
	}
	for i, p := range ps {
		if p.init == nil {
			ps[i].init = p.prior
		}
	}
	return ps
}
