package objective

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// theoryProblem returns the logistic regression of theory_prototype.json, which has N = 20, D = 2
// and a diagonal q.
func theoryProblem() Objective[*Gaussian] {
	prior := NewIsotropicMeanField(2, 1)
	return Objective[*Gaussian]{F: Expect(theorySites(), nil), H: KLTo(prior), Init: prior}
}

// theorySites returns the terms of theoryProblem.
func theorySites() Sites {
	rng := rand.New(rand.NewPCG(11, 12))
	s := Sites{X: dense.NewRows(20, 2), Y: make([]float64, 20), Lik: BernoulliLogit{}}
	for n, x := range s.X {
		x[0], x[1] = rng.NormFloat64(), rng.NormFloat64()
		s.Y[n] = testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(x[1]-x[0])))
	}
	return s
}

// certified runs s on m with a Certificate, which must not report an error.
func certified(t *testing.T, s Solver, c *Certificate, m Model) *Result {
	t.Helper()
	s.Record, s.Converger, s.EvalEvery = Tee(c.Record, recordOrNone(s.Record)), Never(),
		cmp.Or(s.EvalEvery, -1)
	res := kit.Solve(t, s, m)
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	return res
}

func recordOrNone(r func(Iteration)) func(Iteration) {
	if r == nil {
		return func(Iteration) {}
	}
	return r
}

// TestCertificateTruth computes the constants of the prototype again, and the bound of the
// theorem from its constants.
func TestCertificateTruth(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(testkit.SharedData(t), "../truth/theory_prototype.json"))
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		C0, Alpha, L, RelL, Beta float64
		M, T                     int
		Bound, MeanG2, Sigma2    float64
	}
	var truth struct{ Data map[string]row }
	if err := json.Unmarshal(b, &truth); err != nil {
		t.Fatal(err)
	}
	o := theoryProblem()
	_, best, err := o.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		d      Divergence
		in     Coordinates
		within float64 // relative tolerance of L, because numeric steps do not end exactly
	}{
		"Euclidean, (m, sd)":         {Euclidean(), Cholesky, 1e-8},
		"Euclidean, (m, sd), 1.98/L": {Euclidean(), Cholesky, 1e-8},
		"Euclidean, (m, v)":          {Euclidean(), MeanCov, 1e-8},
		"KL, (m, sd)":                {KL(), Cholesky, 1e-5},
		"KL, (m, v)":                 {KL(), MeanCov, 1e-8},
		"KL, mean parameters":        {KL(), MeanParams, 1e-8},
		"ReverseKL, mean parameters": {ReverseKL(), MeanParams, 1e-5},
		"SymKL, mean parameters":     {SymKL(), MeanParams, 1e-5},
	} {
		want, ok := truth.Data[name]
		if !ok {
			t.Fatalf("no %s in the truth", name)
		}
		cert := &Certificate{Optimum: best.ELBO}
		certified(t, Solver{Divergence: c.d, StepSize: ConstantStep(want.Beta), MaxIter: 60}, cert,
			inCoords(o, c.in))
		testkit.CheckNear(t, name+", C0", cert.C0, want.C0, 1e-9)
		testkit.CheckNear(t, name+", alpha", cert.Alpha, want.Alpha, 1e-8)
		testkit.CheckNear(t, name+", L", cert.L, want.L, c.within)
		testkit.CheckNear(t, name+", L relative to D", cert.RelL, want.RelL, c.within)
		if cert.Violations != 0 || cert.TooLong != 0 || !(cert.TotalD <= cert.C0) ||
			!(cert.MeanGradMap2 <= cert.Bound) {
			t.Errorf("%s: %+v", name, cert)
		}
	}
}

// TestCertificateBounds takes exact steps on random problems. Every step must gain at least the
// proved decrease. The bounds of Proposition 2 must hold after every step, for the gain so far
// and for the optimum.
func TestCertificateBounds(t *testing.T) {
	t.Parallel()
	tight := 0.0
	for seed := range uint64(testkit.Shorter(200, 20)) {
		rng := testkit.Rand(1000 + seed)
		s := kit.LogisticData(2000+seed, 5+rng.IntN(6), 2)
		if seed%3 == 1 {
			s.Lik = BernoulliProbit{}
		}
		prior := NewIsotropicMeanField(2, math.Exp(rng.NormFloat64()))
		var c struct {
			d  Divergence
			in Coordinates
		}
		switch seed % 4 {
		case 0:
			c.d, c.in = Euclidean(), Cholesky
		case 1:
			c.d, c.in = KL(), MeanCov
		case 2:
			c.d, c.in = KL(), MeanParams
		case 3:
			c.d, c.in = Euclidean(), Cholesky
		}
		full := Objective[*Gaussian]{F: Expect(s, nil), H: KLTo(prior), Init: prior}
		if seed%4 == 3 { // gradient descent on all of F
			full = full.Linearized()
		}
		o := inCoords(full, c.in)
		// L is not known in advance for these steps, so halve the step until it is short enough.
		_, best, err := Objective[*Gaussian]{F: Expect(s, nil), H: KLTo(prior),
			Init: prior}.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		start := elboAtStart(t, o)
		beta := math.Exp(rng.NormFloat64())
		for ok := false; !ok; beta /= 2 {
			cert := &Certificate{}
			ok = true
			var worst []string
			look := func(it Iteration) {
				if cert.Steps < it.K { // the step was not checked
					return
				}
				c := cert
				if c.Violations > 0 || !(c.C0 <= start+best.ELBO+1e-9) ||
					!(c.MinGradMap2 <= c.Bound*(1+1e-9)) || !(c.MeanGradMap2 <= c.Bound*(1+1e-9)) ||
					beta <= 1/math.Max(0, c.RelL) && !(c.TotalD <= c.C0+1e-9) {
					worst = append(worst, fmt.Sprintf("step %d: %+v", it.K, c))
				}
				tight = math.Max(tight, cert.MeanGradMap2/cert.Bound)
			}
			certified(t,
				Solver{Divergence: c.d, StepSize: ConstantStep(beta), MaxIter: 8, Record: look},
				cert, o)
			if cert.TooLong > 0 || beta > cert.MaxStep || math.IsInf(cert.Bound, 1) {
				ok = false
				continue
			}
			for _, w := range worst {
				t.Errorf("seed %d, beta %v: %s", seed, beta, w)
			}
		}
	}
	if tight < 0.3 {
		t.Errorf("the bounds are %v times what they bound, at best: too loose to have been tested",
			1/tight)
	}
}

// parabola returns f(z) = ½ Σ_i a_i z_i² at a Point. Its L is the largest a_i.
func parabola(a ...float64) Smooth {
	return SmoothFunc(1, true, func(_ *Env, dst []float64, q Dist, _ []int) (float64, error) {
		z, v := q.Params(nil), 0.0
		for i, x := range z {
			dst[i] = a[i] * x
			v += 0.5 * a[i] * x * x
		}
		return v, nil
	})
}

// TestCertificateTooLong checks Proposition 1 at β = α/L. Beyond 2α/L the proposition fails, and
// every step counts as a violation that its length explains.
func TestCertificateTooLong(t *testing.T) {
	const l, c0 = 8, 0.5 * (3 + 8)
	for _, c := range []struct {
		beta  float64
		holds bool
	}{{1. / l, true}, {1.9 / l, true}, {2.1 / l, false}, {3. / l, false}} {
		cert, broken := &Certificate{}, false
		look := func(it Iteration) {
			broken = broken || c.beta != 1.9/l && it.GradMap*it.GradMap > 2*l*c0/float64(it.K)
		}
		certified(t, Solver{Divergence: Euclidean(), StepSize: ConstantStep(c.beta), MaxIter: 20,
			Record: look}, cert,
			Objective[*Point]{F: parabola(3, 8), Init: NewPoint([]float64{1, 1})})
		if c.holds {
			if cert.Violations != 0 || cert.TooLong != 0 || !(cert.MinGradMap2 <= cert.Bound) ||
				broken {
				t.Errorf("beta %v: %+v, Proposition 1 broken %t", c.beta, cert, broken)
			}
			// both are equal if the path follows the steepest direction to the end
			if !(cert.MaxStep >= 2./l*(1-1e-7)) {
				t.Errorf("beta %v: MaxStep %v", c.beta, cert.MaxStep)
			}
			continue
		}
		if cert.Violations == 0 || cert.Violations > cert.TooLong || !math.IsInf(cert.Bound, 1) ||
			!broken {
			t.Errorf("beta %v: %+v, Proposition 1 broken %t", c.beta, cert, broken)
		}
	}
}

// scaledGrad is f with its gradient multiplied by a wrong factor.
type scaledGrad struct {
	Smooth
	factor float64
}

func (f scaledGrad) Grad(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (float64, error) {
	v, err := f.Smooth.Grad(ctx, env, dst, q, batch)
	floats.Scale(f.factor, dst)
	return v, err
}

// farProx has a closed form that goes too far.
type farProx struct{ Divergence }

func (farProx) Prox(q Dist, p *Prox) (bool, error) {
	far := *p
	far.D, far.Beta = KL(), p.Beta*4
	return KL().(proxer).Prox(q, &far)
}

// TestCertificateWrong checks that a wrong gradient or a wrong proximal step is a violation even
// if the steps are short enough, and so is an h that is not convex in the coordinates.
func TestCertificateWrong(t *testing.T) {
	o := theoryProblem()
	short := Solver{StepSize: ConstantStep(0.02), MaxIter: 8}
	for _, c := range []struct {
		name   string
		factor float64
		batch  int
		wrong  bool
	}{{"right", 1, 0, false}, {"right, batches", 1, 5, false}, {"sign", -1, 0, true},
		{"twice", 2, 0, true}, {"half", 0.5, 0, true},
		{"a little", 1.0001, 0, true}, {"sign, batches", -1, 5, true},
		{"half, batches", 0.5, 5, true}} {
		bad := o
		bad.F = scaledGrad{o.F, c.factor}
		s, cert := short, &Certificate{}
		s.BatchSize = c.batch
		certified(t, s, cert, bad)
		if (cert.Violations > 0) != c.wrong || cert.Steps == 0 || cert.TooLong > 0 {
			t.Errorf("%s: %d violations in %d steps, %d too long", c.name, cert.Violations,
				cert.Steps, cert.TooLong)
		}
	}
	s, cert := short, &Certificate{}
	s.StepSize, s.Divergence = ConstantStep(1), farProx{SymKL()}
	certified(t, s, cert, o)
	if cert.Violations == 0 {
		t.Errorf("a wrong proximal step: %+v", cert)
	}
	// −|z|² is concave. A user's closed form may compute its exact steps, but these do not fall
	// by the amount that is proved for a convex h.
	cert = &Certificate{}
	certified(t, Solver{Divergence: Euclidean(), StepSize: ConstantStep(0.1), MaxIter: 5}, cert,
		Objective[*Point]{H: dome{}, Init: NewPoint([]float64{1})})
	if cert.Violations == 0 {
		t.Errorf("a concave h: %+v", cert)
	}
}

// dome is h(z) = −|z|². Its Prox treats it as convex.
type dome struct{}

func (dome) Check(Dist) error { return nil }

func (dome) Value(q Dist) float64 { z := q.Params(nil); return -floats.Dot(z, z) }

func (dome) Grad(dst []float64, q Dist) []float64 {
	dst = q.Params(dst)
	floats.Scale(-2, dst)
	return dst
}

func (dome) Prox(q Dist, p *Prox) (bool, error) {
	z := p.From.Params(nil)
	floats.Scale(1/(1+2*p.Beta), z) // the step of +|z|², which climbs
	return true, q.SetParams(z)
}

// TestCertificateNoise checks the theorem for 200 seeds and after every step, with σ² for batches
// with replacement. It also compares σ² with the noise of the terms.
func TestCertificateNoise(t *testing.T) {
	t.Parallel()
	o := theoryProblem()
	const m, steps = 2, 15
	seeds := testkit.Shorter(200, 12)
	_, best, err := o.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		d    Divergence
		in   Coordinates
		beta float64
	}{{Euclidean(), Cholesky, 0.084}, {KL(), MeanParams, 0.02}} {
		alpha, l, z, z2 := math.Inf(1), 0.0, 0.0, 0.0
		var sigma2, truth, gradMap2 [steps]float64
		for seed := range seeds {
			cert := &Certificate{}
			before := o.Init.In(c.in)
			look := func(it Iteration) {
				k := it.K - 1
				gradMap2[k] += it.GradMap * it.GradMap / float64(seeds)
				sigma2[k] += cert.Sigma2 / float64(seeds)
				truth[k] += termNoise(t, o.F, before, 20) / float64(seeds)
				before = kit.Reached[*Gaussian](it.State)
			}
			certified(t, Solver{Divergence: c.d, StepSize: ConstantStep(c.beta), BatchSize: m,
				Sampler: WithReplacement(), MaxIter: steps,
				Src: rand.NewPCG(uint64(seed), 1), Record: look}, cert, inCoords(o, c.in))
			if cert.Violations > 0 || cert.Steps != steps {
				t.Errorf("%T: %+v", c.d, cert)
			}
			alpha, l = math.Min(alpha, cert.Alpha), math.Max(l, cert.L)
			z, z2 = z+cert.UnbiasedZ, z2+cert.UnbiasedZ*cert.UnbiasedZ
			if cert.BatchSize(3) != 3*m || cert.BatchSize(100) != 20 {
				t.Errorf("batches of %d and %d", cert.BatchSize(3), cert.BatchSize(100))
			}
			testkit.CheckNear(t, "floor", cert.Floor,
				cert.Sigma2/(m*2*cert.Alpha)/(cert.Alpha/2-cert.L*c.beta/2), 1e-12)
		}
		n := float64(seeds)
		if math.Abs(z) > 4*math.Sqrt(n) || !(math.Abs(z2/n-1) < testkit.Shorter(0.5, 1)) {
			t.Errorf("%T: z has mean %v, mean square %v", c.d, z/n, z2/n)
		}
		var sumMap, sumNoise float64
		for k := range steps {
			sumMap, sumNoise = sumMap+gradMap2[k], sumNoise+truth[k]
			done := float64(k + 1)
			if e := math.Abs(sigma2[k]*done/sumNoise - 1); k > 10 &&
				!(e < testkit.Shorter(0.1, 0.4)) {
				t.Errorf("%T, step %d: σ² %v, of the terms %v", c.d, k, sigma2[k], sumNoise/done)
			}
			bound := (best.ELBO + 1e-9 + elboAtStart(t, o) +
				done*c.beta*sumNoise/done/(2*m*alpha)) / (done * (alpha*c.beta/2 - l*c.beta*c.beta/2))
			if !(sumMap/done <= bound) || l*c.beta > alpha {
				t.Errorf("%T, step %d: mean %v above its bound %v", c.d, k, sumMap/done, bound)
			}
		}
	}
}

// elboAtStart returns −ELBO at the start.
func elboAtStart(t *testing.T, o Objective[*Gaussian]) float64 {
	t.Helper()
	st := testkit.Must(o.NewStepper(context.Background(), nil, nil))
	e, err := st.Evaluate(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return -e.ELBO
}

// termNoise returns (1/N) Σ_n ‖N∇f_n − ∇f‖² at q.
func termNoise(t *testing.T, f Smooth, q Dist, n int) (v float64) {
	t.Helper()
	g, all := make([]float64, q.NumParams()), make([]float64, q.NumParams())
	if _, err := f.Grad(context.Background(), nil, all, q, nil); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := f.Grad(context.Background(), nil, g, q, []int{i}); err != nil {
			t.Fatal(err)
		}
		d := floats.Distance(g, all, 2)
		v += d * d / float64(n)
	}
	return v
}

// unscaled is a Smooth whose gradients of batches lack the factor N/M.
type unscaled struct{ Smooth }

func (f unscaled) Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (float64,
	error) {
	v, err := f.Smooth.Grad(ctx, env, dst, q, batch)
	if batch != nil {
		floats.Scale(float64(len(batch))/20, dst)
	}
	return v, err
}

// TestCertificateUnbiased checks that UnbiasedZ detects a missing factor N/M and a wrong gradient
// of a log-likelihood along paths, but does not react to noise.
func TestCertificateUnbiased(t *testing.T) {
	t.Parallel()
	o := theoryProblem()
	sites := theorySites()
	draws := Objective[*Gaussian]{H: o.H, Init: o.Init}
	for _, c := range []struct {
		name   string
		f      Smooth
		batch  int
		biased bool
	}{
		{"batches", o.F, 5, false},
		{"without N/M", unscaled{o.F}, 5, true},
		{"draws", Expect(kit.AsLogLik(sites, false), ScoreFunction(100)), 0, false},
		{"paths, batches", Expect(kit.AsLogLik(sites, true), Pathwise(4)), 10, false},
		{"half the gradient along paths",
			scaledGrad{Expect(kit.AsLogLik(sites, true), Pathwise(60)), 0.5}, 0, true},
	} {
		if sampled := c.name == "draws" || c.name == "paths, batches"; testing.Short() && sampled {
			continue
		}
		draws.F = c.f
		cert := &Certificate{}
		certified(t, Solver{StepSize: ConstantStep(0.02), BatchSize: c.batch,
			Sampler: WithReplacement(), MaxIter: testkit.Shorter(30, 24)}, cert, draws)
		if biased := math.Abs(cert.UnbiasedZ) > 4; biased != c.biased || !(cert.Sigma2 > 0) {
			t.Errorf("%s: z = %v, σ² %v", c.name, cert.UnbiasedZ, cert.Sigma2)
		}
	}
}

// TestCertificateSamplers simulates UnbiasedZ over many seeds. It must be standard normal for
// batches with and without replacement, of equal or unequal sizes, whether every step is checked
// or only some steps.
func TestCertificateSamplers(t *testing.T) {
	t.Parallel()
	seeds := testkit.Longer(1000, testkit.Shorter(300, 150))
	for _, c := range []struct {
		name         string
		sampler      Sampler
		batch, every int
		beta         float64
	}{
		{"with replacement", WithReplacement(), 4, 0, 0.05},
		{"reshuffled", Reshuffle(), 4, 0, 0.05},
		{"reshuffled, long steps", Reshuffle(), 4, 0, 0.3},
		{"reshuffled, uneven", Reshuffle(), 3, 0, 0.05},
		{"reshuffled, one term", Reshuffle(), 1, 3, 0.05},
	} {
		var sum, squares, beyond float64
		for seed := range seeds {
			cert := &Certificate{Every: c.every}
			certified(t, Solver{StepSize: ConstantStep(c.beta), BatchSize: c.batch,
				Sampler: c.sampler, MaxIter: 60, Src: rand.NewPCG(uint64(seed), 9)}, cert,
				theoryProblem())
			z := cert.UnbiasedZ
			sum, squares = sum+z, squares+z*z
			if math.Abs(z) > 1.96 {
				beyond++
			}
		}
		n := float64(seeds)
		mean, sd := sum/n, math.Sqrt(squares/n-sum*sum/(n*n))
		t.Logf("%s: mean %.3f, sd %.3f, %.3f beyond 1.96", c.name, mean, sd, beyond/n)
		if math.Abs(mean) > 4/math.Sqrt(n) || math.Abs(sd-1) > 4/math.Sqrt(2*n) ||
			math.Abs(beyond/n-0.05) > 4*math.Sqrt(0.05*0.95/n) {
			t.Errorf("%s: z has mean %v, sd %v and is beyond 1.96 in %v", c.name, mean, sd,
				beyond/n)
		}
	}
}

// TestCertificateDraws checks σ² of an estimator that draws. The state hardly moves, so σ² can be
// compared with the noise of many repeated gradients. The noise of the reference gradient must
// not count.
func TestCertificateDraws(t *testing.T) {
	if testing.Short() {
		t.Skip("values from draws")
	}
	t.Parallel()
	o := theoryProblem()
	o.F = Expect(kit.AsLogLik(theorySites(), false), ScoreFunction(30))
	c := &Certificate{}
	certified(t, Solver{StepSize: ConstantStep(1e-4), MaxIter: 60}, c, o)
	const many = 2000
	env, sum, squares := NewEnv(rand.NewPCG(5, 5), 1), make([]float64, 4), 0.0
	for range many {
		g := make([]float64, 4)
		if _, err := o.F.Grad(context.Background(), env, g, o.Init, nil); err != nil {
			t.Fatal(err)
		}
		floats.Add(sum, g)
		squares += floats.Dot(g, g)
	}
	floats.Scale(1./many, sum)
	if want := 20 * (squares/many - floats.Dot(sum, sum)); c.Steps != 60 ||
		!(math.Abs(c.Sigma2/want-1) < 0.4) {
		t.Errorf("σ² is %v after %d steps, want %v", c.Sigma2, c.Steps, want)
	}
}

// TestCertificateRecords checks that a Certificate does not change the run, can check only some
// steps, starts again with a new run, and reports what it cannot check.
func TestCertificateRecords(t *testing.T) {
	o := theoryProblem()
	s := Solver{StepSize: ConstantStep(0.3), BatchSize: 5, MaxIter: 12, Converger: Never()}
	alone := kit.Solve(t, s, o)
	c := &Certificate{Every: 3}
	s.Record = c.Record
	for range 2 {
		if watched := kit.Solve(t, s, o); watched.ELBO != alone.ELBO {
			t.Errorf("watched: ELBO %v, alone %v", watched.ELBO, alone.ELBO)
		}
		if c.Steps != 4 || c.Violations != 0 || c.Err() != nil {
			t.Errorf("%+v", c)
		}
	}
	half := s
	half.MaxIter = 6
	late := &Certificate{}
	first := kit.Solve(t, half, o)
	s.Record = late.Record
	if _, err := s.Resume(context.Background(), first); err != nil || late.Steps != 6 ||
		!(late.Alpha > 0) || !(late.MinGradMap2 > 0) || math.IsNaN(late.Bound) {
		t.Errorf("of a run that is resumed: %+v (%v)", late, err)
	}
	s.Record, s.StepSize = c.Record, nil
	if kit.Solve(t, s, o); c.Steps != 0 || !math.IsNaN(c.Bound) || c.Err() != nil {
		t.Errorf("steps of the Stepper's own: %+v", c)
	}
	// A mixture does not start at its prior, its evaluations also need gradients, and its f is
	// concave.
	x := mat.NewDense(60, 1, testkit.Normals(testkit.Rand(8), 60))
	for n := range 30 {
		x.Set(n, 0, x.At(n, 0)+6)
	}
	for _, batch := range []int{0, 10} {
		c := &Certificate{}
		certified(t, Solver{StepSize: FractionStep(1, 0.7), BatchSize: batch, MaxIter: 24,
			EvalEvery: 1}, c, testkit.Must(NewMixture(x, 3, nil)))
		if c.Violations != 0 || c.L != 0 || c.Steps < 10 || (batch > 0) != (c.Sigma2 > 0) ||
			math.Abs(c.UnbiasedZ) > 4 || batch == 0 && !(c.TotalD <= c.C0) {
			t.Errorf("a mixture, batches of %d: %+v", batch, c)
		}
	}
	gp := kit.ToyGP(t, 20, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{}, 3)
	if kit.Solve(t, s, gp); !errors.Is(c.Err(), ErrParam) || !testkit.PrefixedOnce(c.Err()) {
		t.Errorf("a GP: %v", c.Err())
	}
	dense := testkit.Must(gp.Objective())
	c.Every = 0
	certified(t, Solver{StepSize: ConstantStep(0.5), MaxIter: 3}, c, dense)
	if c.Steps != 3 || c.Violations != 0 {
		t.Errorf("the Objective of a GP: %+v", c)
	}
}

// TestCertificateInnocent checks that correct gradients, correct steps and a convex h cause no
// violations except for steps that are too long. This must hold for all divergences, coordinates
// and step sizes, and for data in any units. A step that overflows counts as too long.
func TestCertificateInnocent(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testkit.Shorter(9, 4)) {
		rng := testkit.Rand(seed)
		d := 1 + rng.IntN(3)
		s := kit.LogisticData(seed+5000, 5+rng.IntN(10), d)
		s.Lik = []Likelihood{BernoulliLogit{}, BernoulliProbit{}, StudentT{DF: 3, Scale: 0.5},
			Laplace{Scale: 0.5}, GaussianNoise{Var: 0.3}}[rng.IntN(5)]
		scale := math.Exp(1.5 * rng.NormFloat64())
		for _, x := range s.X {
			floats.Scale(scale, x)
		}
		prior := NewIsotropic(d, math.Exp(1.5*rng.NormFloat64()))
		if rng.IntN(2) == 0 {
			prior = NewIsotropicMeanField(d, math.Exp(1.5*rng.NormFloat64()))
		}
		const adaGrad = 2 // its index
		for i, div := range []Divergence{KL(), Euclidean(), AdaGrad(0), ReverseKL(), SymKL()} {
			if testing.Short() && i > 2 {
				break
			}
			for _, in := range []Coordinates{MeanParams, MeanCov, Cholesky} {
				if testing.Short() && i == 0 && in == Cholesky {
					continue // needs numeric steps
				}
				o := inCoords(Objective[*Gaussian]{F: Expect(s, nil), H: KLTo(prior), Init: prior},
					in)
				if i == adaGrad || rng.IntN(2) == 0 {
					o = o.Linearized()
				}
				c := &Certificate{}
				run := Solver{Divergence: div,
					StepSize:  ConstantStep(math.Exp(2*rng.NormFloat64() - 1.5)),
					BatchSize: 3 * rng.IntN(2),
					MaxIter:   6, Record: c.Record, Converger: Never(), EvalEvery: -1}
				_, err := run.Run(context.Background(), o) // may end in an overflow
				if c.Violations > c.TooLong || c.Err() != nil {
					t.Errorf("seed %d, %T in %v: %d violations, %d steps too long, of %d (%v, %v)",
						seed, div, in, c.Violations, c.TooLong, c.Steps, err, c.Err())
				}
			}
		}
	}
	far := Objective[*Gaussian]{F: Expect(Sites{X: [][]float64{{1}}, Y: []float64{3},
		Lik: Poisson{}}, nil), H: KLTo(NewIsotropic(1, 100)), Init: NewIsotropic(1, 4).In(Cholesky)}
	c := &Certificate{}
	run := Solver{Divergence: Euclidean(), StepSize: ConstantStep(1e4), MaxIter: 3,
		Record: c.Record, EvalEvery: -1}
	if _, err := run.Run(context.Background(), far.Linearized()); c.Err() != nil ||
		c.Violations == 0 || c.Violations > c.TooLong || !math.IsInf(c.L, 1) {
		t.Errorf("a step without a bound: %+v (%v)", c, err)
	}
}

// TestRandomIterateIsOfThePath checks that λ_R is a copy of a state from which a step started. It
// must be nil before a run and if steps are too long.
func TestRandomIterateIsOfThePath(t *testing.T) {
	o := inCoords(theoryProblem(), MeanParams)
	if q := (&Certificate{}).RandomIterate(); q != nil {
		t.Errorf("%v before a run", q)
	}
	seen := map[int]bool{}
	for seed := range uint64(40) {
		path := []Dist{o.Init.Clone()}
		keep := func(it Iteration) {
			path = append(path,
				kit.Reached[*Gaussian](it.State))
		}
		cert := &Certificate{Src: rand.NewPCG(seed, 1)}
		certified(t, Solver{Divergence: KL(), StepSize: ConstantStep(0.02), MaxIter: 8,
			Record: keep}, cert, o)
		r := cert.RandomIterate()
		k := slices.IndexFunc(path,
			func(q Dist) bool { return slices.Equal(q.Params(nil), r.Params(nil)) })
		if k < 0 || k == len(path)-1 {
			t.Fatalf("seed %d: λ_R is state %d of the path", seed, k)
		}
		seen[k] = true
		if err := r.SetParams(path[len(path)-1].Params(nil)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(cert.RandomIterate().Params(nil), path[k].Params(nil)) {
			t.Error("a change of what was returned changes the Certificate")
		}
	}
	if len(seen) < 6 {
		t.Errorf("40 seeds draw %d of 8 states", len(seen))
	}
	long := &Certificate{}
	certified(t, Solver{Divergence: Euclidean(), StepSize: ConstantStep(2), MaxIter: 8}, long,
		inCoords(theoryProblem(), MeanCov))
	if long.TooLong == 0 || long.RandomIterate() != nil {
		t.Errorf("%d steps too long, λ_R is %v", long.TooLong, long.RandomIterate())
	}
}
