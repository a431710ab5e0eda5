package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// stepOf takes one step of o with beta from all terms.
func stepOf(t *testing.T, o Model, d Divergence, beta float64) (Dist, Step) {
	t.Helper()
	st := must(o.NewStepper(context.Background(), nil, d))
	step, err := st.Step(context.Background(), NewEnv(nil, 1), nil, beta)
	if err != nil {
		t.Fatal(err)
	}
	return st.(*objectiveStepper).q.Clone(), step
}

// Many linearisations are the exact step: that of ProximalPoint, or the numeric argmin of f + h + D/β in coordinates in which f is not known to be convex.
func TestInnerIsExactStep(t *testing.T) {
	t.Parallel()
	p := corpus()[0]
	full := Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init}
	diagonal := theoryProblem()
	for _, c := range []struct {
		name string
		o    Objective[*Gaussian]
		d    Divergence
		in   Coordinates
	}{
		{"full, Euclidean", full, Euclidean{}, Cholesky},
		{"full, gradient", full.Linearized(), Euclidean{}, Cholesky},
		{"full, KL", full, KL{}, MeanParams},
		{"diagonal, KL", diagonal, KL{}, MeanParams},
		{"diagonal, KL in (m, V)", diagonal, KL{}, MeanCov},
		{"diagonal, KL in (m, L)", diagonal, KL{}, Cholesky},
		{"diagonal, SymKL", diagonal, SymKL{}, MeanParams},
	} {
		for _, beta := range []float64{0.1, 3} {
			if testing.Short() && (beta < 1 || c.o.Init.NumParams() > 4) {
				continue
			}
			o := inCoords(c.o, c.in)
			last := math.Inf(1)
			var q Dist
			var step Step
			for _, inner := range []int{1, 2, 4, 3000} {
				o.Inner = inner
				q, step = stepOf(t, o, c.d, beta)
				value := -exactELBOOf(t, o, q) + c.d.Value(q, o.Init)/step.Beta
				if inner > 1 && !(value <= last+1e-9) && !(inner == 2) { // one linearisation may go too far
					t.Errorf("%s, beta %v: %v after %d linearisations, %v after fewer", c.name, beta, value, inner, last)
				}
				if n := must(o.F.Setup(o.Init)).N; inner > 1 && (step.more < n || step.more > (2*inner+20)*n) {
					t.Errorf("%s, beta %v: %d more terms for %d linearisations", c.name, beta, step.more, inner)
				}
				last = value
			}
			want := o.Init.Clone()
			h := negELBO{o.F, orZero(o.H)}
			if err := (&Prox{Grad: make([]float64, want.NumParams()), H: h, D: c.d, From: o.Init, Beta: step.Beta}).Numeric(want); err != nil {
				t.Fatal(err)
			}
			checkClose(t, fmt.Sprintf("%s, beta %v", c.name, beta), q.Params(nil), want.Params(nil), 1e-5)
			if c.in != Cholesky {
				continue
			}
			exact, _ := stepOf(t, inCoords(c.o, c.in).ProximalPoint(), c.d, step.Beta)
			checkClose(t, fmt.Sprintf("%s, beta %v, proximal point", c.name, beta), exact.Params(nil), want.Params(nil), 2e-6)
		}
	}
}

func orZero(h Convex) Convex {
	if h == nil {
		return Zero{}
	}
	return h
}

// exactELBOOf is the ELBO of o at q, where f has no noise.
func exactELBOOf[Q Dist](t *testing.T, o Objective[Q], q Dist) float64 {
	t.Helper()
	f, _, err := o.F.Value(context.Background(), nil, q)
	if err != nil {
		t.Fatal(err)
	}
	return -f - orZero(o.H).Value(q)
}

// With an Exp whose expectations are quadrature, too.
func TestInnerFamilies(t *testing.T) {
	shape := must(NewGamma(1, 0.5))
	l := LogLik{N: 1, Dim: 1, LogProb: func(_ int, z []float64) float64 {
		lg, _ := math.Lgamma(z[0])
		return 12.2*(z[0]-1) - 20*lg
	}}
	o := Objective[*Exp]{F: Expect(l, Exact{}), H: KLTo(shape), Init: shape, Inner: 300}
	want := shape.Clone()
	if err := (&Prox{Grad: make([]float64, 2), H: negELBO{o.F, o.H}, D: KL{}, From: shape, Beta: 0.5}).Numeric(want); err != nil {
		t.Fatal(err)
	}
	q, _ := stepOf(t, o, nil, 0.5)
	checkClose(t, "η", q.(*Exp).Natural(nil), want.(*Exp).Natural(nil), 1e-5)
	rising(t, o, Solver{StepSize: ConstantStep(20), MaxIter: 6})
}

// rising runs s on o and checks that the ELBO never falls.
func rising[Q Dist](t *testing.T, o Objective[Q], s Solver) *Result {
	t.Helper()
	s.EvalEvery, s.Converger = 1, Never{}
	res := solve(t, s, o)
	last := math.Inf(-1)
	for _, it := range res.Trace {
		if it.ELBO < last-1e-9*(1+math.Abs(last)) {
			t.Errorf("inner %d: the ELBO falls from %v to %v at step %d", o.Inner, last, it.ELBO, it.K)
		}
		last = it.ELBO
	}
	return res
}

// Over all terms the ELBO rises for any β, where plain steps of that β do not; and long steps are nearer the optimum than as many plain ones.
func TestInnerMonotone(t *testing.T) {
	p := corpus()[1] // counts from a bad start
	best := solve(t, Solver{}, Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init}).ELBO
	for _, beta := range []float64{0.3, 10, 1000} {
		for _, inner := range []int{2, 5, 30} {
			o := Objective[*Gaussian]{F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init, Inner: inner}
			res := rising(t, o, Solver{StepSize: ConstantStep(beta), MaxIter: 12, MaxPasses: 1e6})
			if gap := best - res.ELBO; beta >= 10 && inner == 30 && !(gap < 1e-6) {
				t.Errorf("beta %v, inner %d: %v nats from the optimum", beta, inner, gap)
			}
		}
	}
	logistic := inCoords(Objective[*Gaussian]{F: Expect(corpus()[0].s, nil), H: KLTo(p.prior), Init: NewIsotropic(2, 4)}, Cholesky)
	const beta = 2. // beyond 2α/L
	plain := solve(t, Solver{Divergence: Euclidean{}, StepSize: ConstantStep(beta), MaxIter: 10}, logistic)
	falls := false
	for i, it := range plain.Trace[1:] {
		falls = falls || it.ELBO < plain.Trace[i].ELBO
	}
	if !falls {
		t.Errorf("plain steps of %v do not oscillate", beta)
	}
	logistic.Inner = 4
	if res := rising(t, logistic, Solver{Divergence: Euclidean{}, StepSize: ConstantStep(beta), MaxIter: 10, MaxPasses: 1e6}); !(res.ELBO > plain.ELBO) {
		t.Errorf("ELBO %v, of plain steps %v", res.ELBO, plain.ELBO)
	}
	point := logistic.ProximalPoint()
	point.Inner = 0
	rising(t, point, Solver{Divergence: Euclidean{}, StepSize: ConstantStep(50), MaxIter: 4, MaxPasses: 1e6})
}

// watchedSmooth notes the batches and the first draws of every gradient.
type watchedSmooth struct {
	Smooth
	batches *[][]int
	draws   *[]uint64
}

func (f watchedSmooth) Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (float64, error) {
	*f.batches = append(*f.batches, slices.Clone(batch))
	v, err := f.Smooth.Grad(ctx, env, dst, q, batch)
	*f.draws = append(*f.draws, env.rng().Uint64()) // the same where the draws before are
	return v, err
}

// A step has one batch and one set of draws, another step others; each of its gradients counts as a visit of its terms; one linearisation is a plain step, to the bit; saved runs go
// on to the same bits.
func TestInnerBatches(t *testing.T) {
	p := corpus()[0]
	var batches [][]int
	var draws []uint64
	f := watchedSmooth{Expect(p.s, Pathwise{Samples: 3}), &batches, &draws}
	o := Objective[*Gaussian]{F: f, H: KLTo(p.prior), Init: p.init, Inner: 3}
	s := Solver{StepSize: ConstantStep(0.2), BatchSize: 8, MaxIter: 6, MaxPasses: 1e6, EvalEvery: -1, Converger: Never{}}
	var ends []int
	visited := 0.0
	s.Recorder = RecorderFunc(func(it Iteration) {
		ends = append(ends, len(batches))
		visited = it.Passes
	})
	res := solve(t, s, o)
	if want := float64(8*len(batches)) / 40; math.Abs(visited-want) > 1e-12 || len(batches) < 6*3 {
		t.Errorf("%v passes for %d gradients of 8 of 40 terms", visited, len(batches))
	}
	start := 0
	for k, end := range ends {
		for i := start; i < end; i++ {
			if !slices.Equal(batches[i], batches[start]) || draws[i] != draws[start] {
				t.Errorf("step %d, gradient %d: batch %v, %x, not %v, %x", k, i-start, batches[i], draws[i], batches[start], draws[start])
			}
		}
		if k > 0 && (slices.Equal(batches[start], batches[start-1]) || draws[start] == draws[start-1]) {
			t.Errorf("step %d has the batch or the draws of the last", k)
		}
		start = end
	}
	half := s
	half.MaxIter = 3
	first := solve(t, half, o)
	resumed, err := s.Resume(context.Background(), first)
	if err != nil || resumed.ELBO != res.ELBO || resumed.Passes != res.Passes {
		t.Errorf("resumed: ELBO %v, passes %v, want %v, %v (%v)", resumed.ELBO, resumed.Passes, res.ELBO, res.Passes, err)
	}
	plain := o
	plain.Inner = 0
	want := solve(t, s, plain)
	plain.Inner = 1
	if got := solve(t, s, plain); got.ELBO != want.ELBO || got.Passes != want.Passes || got.Passes != 6*8/40. {
		t.Errorf("one linearisation: %v, %v passes; a plain step: %v, %v", got.ELBO, got.Passes, want.ELBO, want.Passes)
	}
	// The same bits for any number of workers.
	o.F, s.Recorder = Expect(p.s, Pathwise{Samples: 3}), nil
	alone := solve(t, s, o)
	s.Workers = 3
	if got := solve(t, s, o); got.ELBO != alone.ELBO {
		t.Errorf("three workers: ELBO %v, one %v", got.ELBO, alone.ELBO)
	}
}

// Each point at which the proximal point method looks at f is a pass, and an ELBO says how well it is known.
func TestProximalPointPasses(t *testing.T) {
	o := inCoords(theoryProblem(), Cholesky)
	var batches [][]int
	var draws []uint64
	o.F = watchedSmooth{o.F, &batches, &draws}
	res := solve(t, Solver{StepSize: ConstantStep(3), MaxIter: 4, MaxPasses: 1e6}, o.ProximalPoint())
	if res.Passes != float64(len(batches)) || res.K != 4 || res.ClosedForm {
		t.Errorf("%v passes for %d gradients in %d steps", res.Passes, len(batches), res.K)
	}
	plain := theoryProblem()
	best := solve(t, Solver{}, plain)
	free := solve(t, Solver{}, inCoords(plain, Cholesky).ProximalPoint())
	checkNear(t, "ELBO", free.ELBO, best.ELBO, 1e-9)
	if !(free.ELBOErr < 1e-9) || free.Status != Converged {
		t.Errorf("ELBO ± %v, %v", free.ELBOErr, free.Status)
	}
	c := &Certificate{}
	certified(t, Solver{Divergence: Euclidean{}, StepSize: ConstantStep(5), MaxIter: 5}, c, inCoords(plain, Cholesky).ProximalPoint())
	if c.Violations != 0 || c.L != 0 || !(c.MeanGradMap2 <= c.Bound) || c.Steps < 2 {
		t.Errorf("the theory of the proximal point method: %+v", c)
	}
}

// What Inner and ProximalPoint are not for is an error that says so.
func TestInnerErrors(t *testing.T) {
	o := theoryProblem()
	inner := func(n int) Objective[*Gaussian] { o := o; o.Inner = n; return o }
	robust := inCoords(o, Cholesky)
	robust.F = Expect(Sites{X: [][]float64{{1, 0}}, Y: []float64{1}, Lik: StudentT{DF: 3, Scale: 1}}, nil)
	noisy := inCoords(o, Cholesky)
	noisy.F = Expect(o.F.(*expectedTerms).ll, Pathwise{})
	dense := must(toyGP(t, 8, SquaredExp{Scale: 2, Length: 1}, BernoulliLogit{}, 3).Objective())
	for name, c := range map[string]struct {
		o    Objective[*Gaussian]
		d    Divergence
		beta float64
		want string
	}{
		"negative":            {inner(-1), nil, 1, "Inner is -1"},
		"adaptive":            {inner(2).Linearized(), &Adam{}, 1, "one gradient a step"},
		"no step size":        {inner(2), nil, math.Inf(1), "StepSize"},
		"not convex in μ":     {o.ProximalPoint(), nil, 1, "Cholesky"},
		"a GP in μ":           {dense.ProximalPoint(), nil, 1, "Cholesky"},
		"not log-concave":     {robust.ProximalPoint(), nil, 1, "StudentT is not log-concave"},
		"noisy":               {noisy.ProximalPoint(), nil, 1, "without noise"},
		"a theory of one":     {inner(2), nil, 1, ""},
		"a user's convex f":   {Objective[*Gaussian]{F: parabola(1, 1, 1, 1), Init: o.Init}.ProximalPoint(), nil, 1, ""},
		"a GP in (m, L)":      {inCoords(dense, Cholesky).ProximalPoint(), nil, 1, ""},
		"nothing to be moved": {Objective[*Gaussian]{H: o.H, Init: o.Init}.ProximalPoint(), nil, 1, ""},
	} {
		st, err := c.o.NewStepper(context.Background(), nil, c.d)
		if err == nil {
			_, err = st.Step(context.Background(), nil, nil, c.beta)
		}
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), c.want) || !prefixedOnce(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cert := &Certificate{}
	solve(t, Solver{StepSize: ConstantStep(0.5), MaxIter: 2, Recorder: cert}, inner(2))
	if !errors.Is(cert.Err(), ErrParam) {
		t.Errorf("a certificate of inner steps: %v", cert.Err())
	}
}

// A linearisation allocates about what a plain step does.
func TestInnerAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	beta := must(NewBeta(1, 1))
	y := []float64{0.4, 1.3, 2.2}
	l := LogLik{N: len(y), Dim: 1, LogProb: func(n int, z []float64) float64 {
		r := y[n] - math.Log(z[0]/(1-z[0]))
		return -0.5 * r * r
	}}
	p := corpus()[0]
	for name, c := range map[string]problem{
		"Gaussian": {F: Expect(p.s, nil), H: KLTo(p.prior), Init: p.init},
		"Beta":     {F: Expect(l, nil), H: KLTo(beta), Init: beta},
	} {
		allocs := func(inner int) float64 {
			c.Inner = inner
			st := must(c.newStepper(nil))
			env := NewEnv(nil, 1)
			step := func() {
				if _, err := st.Step(context.Background(), env, nil, 0.01); err != nil {
					t.Fatal(err)
				}
			}
			step()
			grads := 0.0
			n := testing.AllocsPerRun(10, func() {
				step()
				grads = float64(st.(*objectiveStepper).visits) / float64(st.Len())
			})
			return n / grads
		}
		value := testing.AllocsPerRun(10, func() {
			c.H.Value(c.Init)
			KL{}.Value(c.Init, c.Init)
		})
		// h and D are evaluated at the target and at the point on the way to it. The last target of a step may promise nothing and is then solved for without a gradient.
		if one, many := allocs(1), allocs(6); many > one+2*value+2 {
			t.Errorf("%s: %v allocations a gradient, %v in a plain step, %v for h and D", name, many, one, value)
		}
	}
}
