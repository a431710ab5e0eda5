package pgsvi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/goals"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// counter is a Stepper whose λ is the number of its steps. Its ELBO is −1/k.
type counter struct {
	n       int
	k       int
	gap     float64
	gradMap float64
	fail    error // returned by step failAt
	failAt  int
	noELBO  error
	batches [][]int
	betas   []float64
	evals   []int // the steps after which Evaluate was called
	workers int
	onStep  func()
	plan    Plan
}

func newCounter(n int) *counter { return &counter{n: n, gap: math.NaN(), gradMap: math.NaN()} }

func (c *counter) Len() int { return c.n }

func (c *counter) Plan() Plan { return c.plan }

func (c *counter) Step(_ context.Context, env *Env, batch []int, beta float64) (Step, error) {
	if c.fail != nil && c.k+1 == c.failAt {
		return Step{}, c.fail
	}
	if c.onStep != nil {
		c.onStep()
	}
	c.k++
	c.batches = append(c.batches, slices.Clone(batch))
	c.betas = append(c.betas, beta)
	c.workers = env.Workers()
	return Step{Beta: beta, GradMap: goals.NeverZero(c.gradMap)}, nil
}

func (c *counter) Evaluate(context.Context, *Env) (Evaluation, error) {
	c.evals = append(c.evals, c.k)
	if c.noELBO != nil {
		return Evaluation{}, c.noELBO
	}
	return Evaluation{ELBO: -1 / float64(max(1, c.k)), Gap: c.gap}, nil
}

// asModel makes a Model of a Stepper.
type asModel struct {
	st  Stepper
	err error
}

func (m asModel) NewStepper(context.Context, *Env, Divergence) (Stepper, error) {
	return m.st,
		m.err
}

// order is a Sampler that returns fixed batches.
type order iter.Seq[[]int]

func (o order) Batches(int, int, *rand.Rand) iter.Seq[[]int] { return iter.Seq[[]int](o) }

func always(batch ...int) order {
	return func(yield func([]int) bool) {
		for yield(batch) {
		}
	}
}

// Every way for a run to end, with the state reached.
func TestStatus(t *testing.T) {
	canceled, cancel := context.WithCancelCause(context.Background())
	why := errors.New("the user left")
	cancel(why)
	done, stop := context.WithCancel(context.Background())
	stop()
	late, end := context.WithTimeout(context.Background(), 0)
	defer end()
	once := order(slices.Values([][]int{{0}, {1}, {2}}))
	for _, c := range []struct {
		name   string
		ctx    context.Context
		s      Solver
		st     func(*counter)
		want   Status
		k      int
		errs   []error
		inText string
	}{
		{name: "converged", s: Solver{Converger: GapBelow(1, 0)},
			st: func(c *counter) { c.gap = 0.5 }, want: Converged, k: 1},
		{name: "default, gap", st: func(c *counter) { c.gap = 1e-11 }, want: Converged, k: 1},
		{name: "pass limit", s: Solver{MaxPasses: 7, Converger: Never()}, want: PassLimit, k: 7},
		{name: "pass limit within a pass",
			s: Solver{MaxPasses: 1.5, BatchSize: 1, Converger: Never()}, want: PassLimit, k: 6},
		{name: "default pass limit", s: Solver{Converger: Never()}, want: PassLimit, k: 1000},
		{name: "iteration limit", s: Solver{MaxIter: 3, Converger: Never()}, want: IterationLimit,
			k: 3},
		{name: "time limit", s: Solver{Converger: Deadline(0)}, want: TimeLimit, k: 1},
		{name: "exhausted", s: Solver{Sampler: once, Converger: Never()}, want: Exhausted, k: 3},
		{name: "canceled", ctx: done, want: Canceled, errs: []error{context.Canceled},
			inText: "after 0 iterations"},
		{name: "canceled with a cause", ctx: canceled, want: Canceled, errs: []error{why}},
		{name: "context deadline", ctx: late, want: Canceled,
			errs: []error{context.DeadlineExceeded}},
		{name: "failed step", s: Solver{StepSize: ConstantStep(2), Converger: Never()},
			st: func(c *counter) { c.fail, c.failAt = kit.ErrUser, 4 }, want: Failed, k: 3,
			errs: []error{kit.ErrUser}, inText: "iteration 4, beta 2:"},
		{name: "failed ELBO", s: Solver{Converger: Never()}, st: func(c *counter) {
			c.noELBO = kit.ErrUser
		}, want: Failed, k: 1, errs: []error{kit.ErrUser}, inText: "ELBO at iteration 1"},
		{name: "failed ELBO at the end", s: Solver{EvalEvery: -1, Converger: GradientMap(1)},
			st: func(c *counter) { c.noELBO, c.gradMap = kit.ErrUser, 0 }, want: Failed, k: 1,
			errs: []error{kit.ErrUser}, inText: "ELBO at iteration 1"},
		{name: "empty batch", s: Solver{Sampler: always()}, want: Failed, errs: []error{ErrEmpty}},
		{name: "batch above range", s: Solver{Sampler: always(0, 4)}, want: Failed,
			errs: []error{ErrShape}, inText: "returned term 4;"},
		{name: "batch below range", s: Solver{Sampler: always(-1)}, want: Failed,
			errs: []error{ErrShape}, inText: "term -1"},
		{name: "negative step size", s: Solver{StepSize: stepFunc(func(k int) float64 {
			return 2 - float64(k)
		})}, want: Failed, k: 2, errs: []error{ErrParam}, inText: "iteration 2"},
		{name: "NaN step size", s: Solver{StepSize: stepFunc(func(int) float64 {
			return math.NaN()
		})}, want: Failed, errs: []error{ErrParam}, inText: "NaN"},
		{name: "no terms", st: func(c *counter) { c.n = 0 }, want: Failed, errs: []error{ErrEmpty}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := newCounter(4)
			if c.st != nil {
				c.st(st)
			}
			ctx := c.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			res, err := c.s.Run(ctx, asModel{st: st})
			if res == nil {
				t.Fatal("no result", err)
			}
			if res.Status != c.want || res.K != c.k || st.k != c.k {
				t.Errorf("%v after %d iterations, want %v after %d (%v)", res.Status, res.K, c.want,
					c.k, err)
			}
			if (err != nil) != (c.errs != nil) {
				t.Errorf("error %v", err)
			}
			for _, want := range c.errs {
				if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "pgsvi: ") ||
					!strings.Contains(err.Error(), c.inText) {
					t.Errorf("error %q, want %v with %q", err, want, c.inText)
				}
			}
			if res.Stepper != Stepper(st) {
				t.Error("the result does not hold the Stepper")
			}
			if st.noELBO == nil && res.ELBO != -1/float64(max(1, c.k)) {
				t.Errorf("ELBO %v is not that of the state reached", res.ELBO)
			}
			if st.noELBO != nil && !math.IsNaN(res.ELBO) {
				t.Errorf("ELBO %v, want NaN", res.ELBO)
			}
		})
	}
	for s, want := range map[Status]string{Converged: "converged", Canceled: "canceled",
		Failed: "failed", 77: "Status(77)", -1: "Status(-1)"} {
		if s.String() != want {
			t.Errorf("Status %d is %q, want %q", int(s), s, want)
		}
	}
}

type stepFunc func(k int) float64

func (f stepFunc) StepSize(k int) float64 { return f(k) }

// A run that is canceled half-way keeps what it has, and can be resumed.
func TestCancelAndResume(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	st := newCounter(4)
	st.onStep = func() {
		if st.k == 4 {
			cancel()
		}
	}
	s := Solver{Converger: Never(), MaxPasses: 10}
	res, err := s.Run(ctx, asModel{st: st})
	if !errors.Is(err, context.Canceled) || res.Status != Canceled || res.K != 5 ||
		res.ELBO != -0.2 || len(res.Trace) != 5 {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err = s.Resume(context.Background(), res)
	if err != nil || res.K != 10 || st.k != 10 || res.Status != PassLimit || len(res.Trace) != 10 {
		t.Errorf("resumed to %d iterations, %d steps taken, %v, %v", res.K, st.k, res.Status, err)
	}
}

// Set-up errors return no result; Validate reports all violations at once.
func TestSolverValidate(t *testing.T) {
	if res, err := new(Solver).Run(context.Background(), nil); !errors.Is(err, ErrParam) ||
		res != nil {
		t.Errorf("nil Model: %v, %v", res, err)
	}
	if res, err := new(Solver).Run(context.Background(), asModel{err: kit.ErrUser}); !errors.Is(err,
		kit.ErrUser) || res != nil {
		t.Errorf("failing Model: %v, %v", res, err)
	}
	bad := Solver{
		StepSize: ConstantStep(0), BatchSize: -1, MaxPasses: math.NaN(), MaxIter: -2, Workers: -3,
		Converger: AnyOf(ELBOChange(-1, 0), ELBOChange(0, -4)),
	}
	_, err := bad.Run(context.Background(), asModel{st: newCounter(1)})
	if !errors.Is(err, ErrParam) {
		t.Fatal(err)
	}
	for _, s := range []string{"ConstantStep 0", "BatchSize is -1", "MaxPasses is NaN",
		"MaxIter is -2", "Workers is -3", "ELBOChange(-1, 0)", "ELBOChange(0, -4)"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q is not reported in\n%v", s, err)
		}
	}
	st := newCounter(1)
	if res, e := bad.Run(context.Background(), asModel{st: st}); res != nil || e == nil ||
		st.k != 0 {
		t.Errorf("an invalid Solver ran: %v, %v", res, e)
	}
	if _, e := new(Solver).Resume(context.Background(), &Result{}); !errors.Is(e, ErrParam) {
		t.Errorf("a Result without a Stepper: %v", e)
	}
	if _, e := bad.Resume(context.Background(), &Result{Stepper: st}); e == nil ||
		e.Error() != err.Error() {
		t.Errorf("Resume: %v", e)
	}
	check := func(s Schedule) error { return s.(interface{ Validate() error }).Validate() }
	for _, r := range []Schedule{RobbinsMonro(-1, 0, 0), RobbinsMonro(0, -1, 0),
		RobbinsMonro(0, 0, 1.1), RobbinsMonro(0, 0, -0.1), RobbinsMonro(math.NaN(), 0, 0),
		RobbinsMonro(0, math.Inf(1), 0)} {
		if err := check(r); !errors.Is(err, ErrParam) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := check(RobbinsMonro(0, 0, 0)); err != nil {
		t.Error(err)
	}
}

// Values that a Stepper leaves at zero are unknown. A gap of zero must not end a run.
func TestZeroIsUnknown(t *testing.T) {
	res, err := (&Solver{MaxPasses: 4}).Run(context.Background(), asModel{st: frugal{}})
	if err != nil || res.Status != PassLimit || res.K != 4 {
		t.Errorf("%v after %d iterations, %v", res.Status, res.K, err)
	}
	if !math.IsInf(res.Gap, 1) || !math.IsInf(res.GapBound, 1) {
		t.Errorf("the gap is %v, the bound %v", res.Gap, res.GapBound)
	}
	for name, x := range map[string]float64{
		"error": res.ELBOErr, "beta": res.Beta, "gradient map": res.GradMap} {
		if !math.IsNaN(x) {
			t.Errorf("the %s is %v", name, x)
		}
	}
}

// frugal is a Stepper with the required methods only.
type frugal struct{}

func (frugal) Len() int { return 3 }

func (frugal) Plan() Plan { return Plan{} }

func (frugal) Step(context.Context, *Env, []int, float64) (Step, error) { return Step{}, nil }

func (frugal) Evaluate(context.Context, *Env) (Evaluation,
	error) {
	return Evaluation{ELBO: -1}, nil
}

// Whoever looks on does not change a run: neither its bits nor the gap that it reports.
func TestLookingOnChangesNothing(t *testing.T) {
	glm := kit.ToyGLM("toy", 60, 4, BernoulliLogit{}, 1, nil)
	g, err := NewGLM(glm.X, glm.Y, glm.Lik, glm.Opt)
	if err != nil {
		t.Fatal(err)
	}
	prior := NewIsotropic(2, 4)
	o := Objective[*Gaussian]{F: Expect(kit.LogisticData(75, 40, 2), ScoreFunction(30)),
		H: KLTo(prior), Init: prior}
	gp := kit.ToyGP(t, 70, SquaredExp{Scale: 2, Length: 1}, Poisson{}, 3)
	ctm := kit.MustCTM(t, kit.ToyCorpus(40, 4), 3, nil)
	for name, c := range map[string]struct {
		m    Model
		look func(Stepper) error
	}{
		"GP":        {gp, func(st Stepper) error { _, err := gp.Posterior(st); return err }},
		"GLM":       {g, func(st Stepper) error { _, err := g.Posterior(st); return err }},
		"CTM":       {ctm, func(st Stepper) error { _, err := ctm.Posterior(st); return err }},
		"Objective": {o, func(st Stepper) error { _, err := o.Posterior(st); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			s := Solver{MaxPasses: 8, Converger: Never()}
			alone, err := s.Run(context.Background(), c.m)
			if err != nil {
				t.Fatal(err)
			}
			s.Record = func(it Iteration) {
				if err := c.look(it.State); err != nil {
					t.Error(err)
				}
			}
			watched, err := s.Run(context.Background(), c.m)
			if err != nil {
				t.Fatal(err)
			}
			if len(alone.Trace) != len(watched.Trace) {
				t.Fatalf("%d evaluations, watched %d", len(alone.Trace), len(watched.Trace))
			}
			for i, it := range alone.Trace {
				was := watched.Trace[i]
				it.Elapsed, was.Elapsed = 0, 0
				if fmt.Sprintf("%x %x %x", it.ELBO, it.Gap, it.GradMap) != fmt.Sprintf("%x %x %x",
					was.ELBO, was.Gap, was.GradMap) {
					t.Errorf("pass %v: %+v, watched %+v", it.Passes, it, was)
				}
			}
			// Evaluations by hand, as often as one likes, are the same.
			e, err := watched.Stepper.Evaluate(context.Background(), nil)
			for range 3 {
				again, e2 := watched.Stepper.Evaluate(context.Background(), nil)
				if again != e || err != nil || e2 != nil {
					t.Errorf("evaluated again: %+v, %+v (%v, %v)", e, again, err, e2)
				}
			}
		})
	}
}

// When the ELBO is evaluated; where it is not it is NaN, and the result has it
// in any case.
func TestEvalEvery(t *testing.T) {
	for _, c := range []struct {
		every int
		want  []int
	}{
		{0, []int{3, 6, 9, 11}}, // once a pass of three batches, and at the end
		{1, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{4, []int{4, 8, 11}},
		{11, []int{11}},
		{-1, []int{11}},
	} {
		st := newCounter(5)
		var shown []int
		s := Solver{BatchSize: 2, EvalEvery: c.every, MaxIter: 11, Converger: Never(),
			Record: func(it Iteration) {
				if evaluated := !math.IsNaN(it.ELBO); evaluated {
					shown = append(shown, it.K)
					if it.ELBO != -1/float64(it.K) {
						t.Errorf("iteration %d has ELBO %v", it.K, it.ELBO)
					}
				} else if !math.IsInf(it.Gap, 1) || !math.IsInf(it.GapBound, 1) {
					t.Errorf("iteration %d has a gap and no ELBO", it.K)
				}
			}}
		st.gap = 3
		s.Sampler = Reshuffle()
		res, err := s.Run(context.Background(), asModel{st: st})
		if err != nil {
			t.Fatal(err)
		}
		var trace []int
		for _, it := range res.Trace {
			trace = append(trace, it.K)
			if it.State != nil {
				t.Error("a Trace holds a Stepper")
			}
		}
		if !slices.Equal(shown, c.want) || !slices.Equal(trace, c.want) ||
			!slices.Equal(st.evals, c.want) {
			t.Errorf("EvalEvery %d: shown at %v, traced at %v, evaluated at %v, want %v", c.every,
				shown, trace, st.evals, c.want)
		}
		if res.ELBO != -1./11 || res.Gap != 3 {
			t.Errorf("EvalEvery %d: ELBO %v, gap %v", c.every, res.ELBO, res.Gap)
		}
	}
}

// Passes count terms, shorter last batches included; batch sizes are clipped.
func TestPassesAndBatches(t *testing.T) {
	st := newCounter(5)
	s := Solver{BatchSize: 2, MaxPasses: 2, StepSize: RobbinsMonro(0, 0, 0), Converger: Never(),
		Workers: 3}
	var passes []float64
	for it, err := range s.Steps(context.Background(), &Result{Stepper: st}) {
		if err != nil {
			t.Fatal(err)
		}
		passes = append(passes, it.Passes)
		if it.K != len(passes) || it.Beta != math.Pow(float64(it.K), -0.6) ||
			it.State != Stepper(st) || it.Elapsed < 0 {
			t.Errorf("iteration %+v", it)
		}
	}
	testkit.CheckClose(t, "passes", passes, []float64{0.4, 0.8, 1, 1.4, 1.8, 2}, 1e-15)
	for i, size := range []int{2, 2, 1, 2, 2, 1} {
		if len(st.batches[i]) != size {
			t.Errorf("batch %d is %v", i, st.batches[i])
		}
	}
	if st.workers != 3 {
		t.Errorf("%d workers", st.workers)
	}
	st = newCounter(5)
	if _, err := (&Solver{BatchSize: 99, MaxIter: 1}).Run(context.Background(),
		asModel{st: st}); err != nil || len(st.batches[0]) != 5 || !math.IsInf(st.betas[0], 1) ||
		st.workers != 1 {
		t.Errorf("batch %v, β %v, %d workers, %v", st.batches[0], st.betas[0], st.workers, err)
	}
	// The caller may stop by breaking out.
	for range (&Solver{}).Steps(context.Background(), &Result{Stepper: st}) {
		break
	}
	if st.k != 2 {
		t.Errorf("%d steps after one more", st.k)
	}
}

// The Plan of a Stepper must apply to all options that the Solver does not set.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name    string
		s       Solver
		size    int
		inOrder bool
	}{
		{"zero Solver", Solver{}, 2, true},
		{"own batch size", Solver{BatchSize: 3}, 3, true},
		{"own sampler", Solver{Sampler: always(9)}, 1, false},
		{"own steps", Solver{StepSize: ConstantStep(1)}, 10, true}, // all, which need no shuffling
		{"own steps and size", Solver{StepSize: ConstantStep(1), BatchSize: 9}, 9, false},
	} {
		st := newCounter(10)
		st.plan = Plan{Batch: 2, Sampler: InOrder()}
		c.s.MaxIter = 1
		if _, err := c.s.Run(context.Background(), asModel{st: st}); err != nil {
			t.Fatal(err)
		}
		b := st.batches[0]
		if len(b) != c.size ||
			slices.Equal(b, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}[:c.size]) != c.inOrder {
			t.Errorf("%s: batch %v", c.name, b)
		}
	}
}

func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		s    Schedule
		want [3]float64 // k = 0, 1, 9
	}{
		{ConstantStep(0.3), [3]float64{0.3, 0.3, 0.3}},
		{RobbinsMonro(0, 0, 0), [3]float64{1, math.Pow(2, -0.6), math.Pow(10, -0.6)}},
		{RobbinsMonro(2, 3, 1), [3]float64{2, 1.5, 0.5}},
	} {
		for i, k := range []int{0, 1, 9} {
			if got := c.s.StepSize(k); got != c.want[i] && !(math.Abs(got-c.want[i]) < 1e-15) {
				t.Errorf("%+v: β_%d = %v, want %v", c.s, k, got, c.want[i])
			}
		}
	}
}

// take returns the first n batches.
func take(s iter.Seq[[]int], n int) (bs [][]int) {
	for b := range s {
		if bs = append(bs, slices.Clone(b)); len(bs) == n {
			break
		}
	}
	return bs
}

func TestSamplers(t *testing.T) {
	const n, size, perPass = 11, 4, 3
	for i, s := range []Sampler{Reshuffle(), InOrder(), ShuffleOnce()} {
		bs := take(s.Batches(n, size, testkit.Rand(80)), 4*perPass)
		var passes [][]int
		for i := 0; i < len(bs); i += perPass {
			pass := slices.Concat(bs[i : i+perPass]...)
			passes = append(passes, pass)
			sorted := slices.Clone(pass)
			slices.Sort(sorted)
			if len(pass) != n || len(slices.Compact(sorted)) != n || len(bs[i]) != size {
				t.Errorf("%T: pass %d is %v", s, i/perPass, bs[i:i+perPass])
			}
		}
		same := slices.Equal(passes[0], passes[1]) && slices.Equal(passes[0], passes[2])
		if same == (i == 0) {
			t.Errorf("%T: passes %v", s, passes)
		}
		if slices.IsSorted(passes[0]) != (i == 1) {
			t.Errorf("%T: first pass %v", s, passes[0])
		}
		if again := take(s.Batches(n, size, testkit.Rand(80)), 4*perPass); !slices.EqualFunc(bs,
			again,
			slices.Equal) {
			t.Errorf("%T: the same seed gives other batches", s)
		}
	}
	// Two runs with one ShuffleOnce are two shuffles.
	a := take(ShuffleOnce().Batches(n, n, testkit.Rand(80)), 1)
	if b := take(ShuffleOnce().Batches(n, n, testkit.Rand(81)), 1); slices.Equal(a[0], b[0]) {
		t.Error("ShuffleOnce repeats itself over runs")
	}
	if b := take(Reshuffle().Batches(n, n+1, testkit.Rand(80)), 2); !slices.IsSorted(b[1]) ||
		len(b[1]) != n {
		t.Errorf("all terms are shuffled: %v", b[1])
	}
	for _, s := range []Sampler{Reshuffle(), InOrder(), ShuffleOnce(), WithReplacement()} {
		for range s.Batches(0, 3, testkit.Rand(1)) {
			t.Fatalf("%T: a batch of no terms", s)
		}
	}
}

// Draws with replacement and the places of a shuffle are uniform: χ² within 4
// standard deviations.
func TestSamplersUniform(t *testing.T) {
	const n, draws = 10, 20000
	chi2 := func(name string, count []int) {
		t.Helper()
		var x float64
		for _, c := range count {
			e := float64(draws) / n
			x += (float64(c) - e) * (float64(c) - e) / e
		}
		if math.Abs(x-(n-1)) > 4*math.Sqrt(2*(n-1)) {
			t.Errorf("%s: χ² = %.1f with %d degrees of freedom, counts %v", name, x, n-1, count)
		}
	}
	count := make([]int, n)
	repeats := 0
	for _, b := range take(WithReplacement().Batches(n, 4, testkit.Rand(82)), draws/4) {
		for _, i := range b {
			count[i]++
		}
		if b[0] == b[1] {
			repeats++
		}
	}
	chi2("WithReplacement", count)
	if p := float64(repeats) * 4 / draws; math.Abs(p-0.1) > 4*math.Sqrt(0.09*4/draws) {
		t.Errorf("two draws of a batch agree with probability %v, want 0.1", p)
	}
	count = make([]int, n)
	for i, b := range take(Reshuffle().Batches(n, 1, testkit.Rand(83)), draws*n) {
		if i%n == 0 { // the first place of a pass
			count[b[0]]++
		}
	}
	chi2("Reshuffle", count)
}

// The rolling median forgets the first steps and ignores outliers; what was
// not evaluated does not count.
func TestELBOChange(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name  string
		rule  Converger
		elbos []float64
		stop  int // the index at which it stops; −1 for never
	}{
		{"constant", ELBOChange(0, 3), []float64{5, 5, 5, 5, 5}, 3},
		{"default window of 10", ELBOChange(0, 0), []float64{5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5},
			10},
		{"not evaluated", ELBOChange(0, 2), []float64{5, nan, 5, nan, nan, 5}, 5},
		{"an outlier", ELBOChange(0, 3), []float64{5, 5, 9, 5, 5, 5, 5}, 5},
		{"the first step", ELBOChange(0, 3), []float64{-1e6, -3, -3, -3}, 3},
		{"still rising", ELBOChange(0, 3), []float64{1, 2, 3, 4, 5, 6}, -1},
		{"relative to the ELBO", ELBOChange(1e-3, 1), []float64{1e6, 1e6 + 900}, 1},
		{"absolute below 1", ELBOChange(1e-3, 1), []float64{1e-6, 2e-6}, 1},
		{"not below Tol", ELBOChange(0.5, 1), []float64{1, 0.5}, -1},
	} {
		for run := range 2 { // Init starts afresh
			c.rule.Init()
			stop := -1
			for i, e := range c.elbos {
				if c.rule.Converged(evaluated(e, math.NaN())) == Converged {
					stop = i
					break
				}
			}
			if stop != c.stop {
				t.Errorf("%s, run %d: stops at %d, want %d", c.name, run, stop, c.stop)
			}
		}
	}
}

// evaluated is an Iteration with an ELBO and a gap.
func evaluated(elbo, gap float64) Iteration {
	return Iteration{Evaluation: Evaluation{ELBO: elbo, Gap: gap, GapBound: math.NaN(),
		Goal: 1e-10}}
}

func proved(elbo, gap, bound float64, over Scope) Iteration {
	it := evaluated(elbo, gap)
	it.GapBound, it.Scope = bound, over
	return it
}

func TestStopRules(t *testing.T) {
	nan := math.NaN()
	at := func(elbo, gap, gradMap float64, d time.Duration) Iteration {
		it := evaluated(elbo, gap)
		it.K, it.GradMap, it.Elapsed = 1, gradMap, d
		return it
	}
	for _, c := range []struct {
		name string
		rule Converger
		it   Iteration
		want Status
	}{
		{"gradient map below", GradientMap(0.1), at(nan, nan, 0.1, 0), Converged},
		{"gradient map above", GradientMap(0.1), at(nan, nan, 0.11, 0), NotTerminated},
		{"gradient map unknown", GradientMap(0.1), at(nan, nan, nan, 0), NotTerminated},
		{"gap below", GapBelow(1e-3, 0), at(-5, 1e-3, nan, 0), Converged},
		{"gap above", GapBelow(1e-3, 0), at(-5, 2e-3, nan, 0), NotTerminated},
		{"gap relative", GapBelow(0, 1e-3), at(-5, 4e-3, nan, 0), Converged},
		{"gap unknown", GapBelow(1, 0), at(-5, nan, nan, 0), NotTerminated},
		{"before the deadline", Deadline(time.Second), at(nan, nan, nan, time.Second-1),
			NotTerminated},
		{"after the deadline", Deadline(time.Second), at(nan, nan, nan, time.Second), TimeLimit},
		{"never", Never(), at(0, 0, 0, time.Hour), NotTerminated},
		{"any of none", AnyOf(), at(0, 0, 0, 0), NotTerminated},
		{"any of, the first", AnyOf(Deadline(0), GapBelow(1, 0)), at(0, 0, 0, 0), TimeLimit},
		{"any of, the second", AnyOf(Never(), GapBelow(1, 0)), at(0, 0, 0, 0), Converged},
		{"default, gap", DefaultConverger(), at(-5, 1e-10, nan, 0), Converged},
		{"default, gap too large", DefaultConverger(), at(-5, 2e-10, nan, 0), NotTerminated},
		{"default, proof", DefaultConverger(), proved(-5, 1, 1e-10, OverQ), Converged},
		{"default, proof over a larger family", DefaultConverger(),
			proved(-5, 1, 1e-10, OverLargerFamily), Converged},
		{"default, proof over a block", DefaultConverger(), proved(-5, 1, 1e-10, OverBlock),
			NotTerminated},
		{"default, proof to come", DefaultConverger(), proved(-5, 1e-10, 1e-9, OverQ),
			NotTerminated},
		{"default, no proof to come", DefaultConverger(), proved(-5, 1e-10, math.Inf(1), OverQ),
			Converged},
		{"default, loss of the family", DefaultConverger(), proved(-5, 1e-10, 1, OverLargerFamily),
			Converged},
		{"default, infinite ELBO", DefaultConverger(), proved(math.Inf(-1), 0, 0, OverQ),
			NotTerminated},
	} {
		c.rule.Init()
		if got := c.rule.Converged(c.it); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	// A proof that rounding keeps from its goal is given up once it falls no more, and not before.
	for _, c := range []struct {
		bounds []float64
		want   Status
	}{
		{[]float64{4e-9, 1.9e-9, 9e-10}, NotTerminated},
		{[]float64{4e-9, 3.9e-9}, Converged},
		{[]float64{4e-3, 3.9e-3}, NotTerminated},
	} {
		d, got := DefaultConverger(), NotTerminated
		d.Init()
		for _, bound := range c.bounds {
			got = d.Converged(proved(-5, 1e-10, bound, OverQ))
		}
		if got != c.want {
			t.Errorf("bounds %v: %v, want %v", c.bounds, got, c.want)
		}
	}
	// Without a gap the default is the median of the changes; with one it is not.
	for _, gap := range []float64{nan, 1} {
		d, stopped := DefaultConverger(), false
		d.Init()
		for range 20 {
			stopped = stopped || d.Converged(at(-5, gap, nan, 0)) == Converged
		}
		if stopped != math.IsNaN(gap) {
			t.Errorf("default with gap %v and a constant ELBO: stopped = %v", gap, stopped)
		}
	}
	// Every rule of AnyOf sees every iteration, after its own Init.
	var calls []string
	spy := func(name string, s Status) Converger { return spyRule{name, s, &calls} }
	any := AnyOf(spy("a", Converged), spy("b", TimeLimit))
	any.Init()
	any.Converged(Iteration{})
	if got := strings.Join(calls, " "); got != "init a init b a b" {
		t.Errorf("calls %q", got)
	}
}

type spyRule struct {
	name   string
	status Status
	calls  *[]string
}

func (s spyRule) Init() { *s.calls = append(*s.calls, "init "+s.name) }

func (s spyRule) Converged(Iteration) Status {
	*s.calls = append(*s.calls,
		s.name)
	return s.status
}

func TestTee(t *testing.T) {
	var got []string
	rec := func(name string) func(Iteration) {
		return func(it Iteration) { got = append(got, fmt.Sprint(name, it.K)) }
	}
	s := Solver{MaxIter: 2, Converger: Never(), Record: Tee(rec("a"), rec("b"))}
	if _, err := s.Run(context.Background(), asModel{st: newCounter(1)}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a1", "b1", "a2", "b2"}; !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
}

// Progress writes one line over and over, not more often than every, keeps the
// last known ELBO, and clears the line in the end.
func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p, done := Progress(&b, time.Second)
	done()
	if b.Len() > 0 {
		t.Errorf("done before the first line writes %q", b.String())
	}
	for _, it := range []Iteration{
		{K: 1, Passes: 0.5, Evaluation: Evaluation{ELBO: -123.456, Gap: 0.25}, Elapsed: 0},
		{K: 2, Passes: 1, Evaluation: Evaluation{ELBO: -1, Gap: 3}, Elapsed: time.Second / 2},
		{K: 3, Passes: 1.5, Evaluation: nowhereEvaluated(), Elapsed: 3 * time.Second},
	} {
		p(it)
	}
	first := "iteration 1, pass 0.50, ELBO -123.456, gap 0.2, 0s"
	third := "iteration 3, pass 1.50, ELBO -1, gap 3, 3s"
	pad := strings.Repeat(" ", len(first)-len(third))
	if got, want := b.String(), "\r"+first+"\r"+third+pad; got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	b.Reset()
	done()
	if got, want := b.String(), "\r"+strings.Repeat(" ", len(first))+"\r"; got != want {
		t.Errorf("done writes %q, want %q", got, want)
	}
	b.Reset()
	p(Iteration{K: 1, Evaluation: nowhereEvaluated()}) // a second run
	if strings.Contains(b.String(), "ELBO") {          // not yet known
		t.Errorf("a new run shows %q", b.String())
	}
}

// TestELBOWithoutGenerator checks that every Stepper treats a nil rng as one with a fixed seed.
func TestELBOWithoutGenerator(t *testing.T) {
	gp := kit.ToyGP(t, 12, SquaredExp{}, BernoulliLogit{}, 1)
	noisy := Objective[*Gaussian]{F: Expect(
		LogLik{N: 3, Dim: 2, LogProb: func(n int, z []float64) float64 {
			return -math.Pow(z[0]-float64(n), 2) - math.Abs(z[1])
		}}, ScoreFunction(10)), H: KLTo(NewIsotropic(2, 1)), Init: NewIsotropic(2, 1)}
	ctm, err := NewCTM(kit.ToyCorpus(6, 1), 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	models := map[string]Model{"GP": gp, "Objective": noisy, "CTM": ctm}
	for _, cov := range []Covariance{FullCovariance, DiagonalCovariance} {
		c := kit.ToyGLM("toy", 10, 3, BernoulliLogit{}, 1, &GLMOptions{Covariance: cov})
		if models[fmt.Sprint("GLM, ", cov)], err = NewGLM(c.X, c.Y, c.Lik, c.Opt); err != nil {
			t.Fatal(err)
		}
	}
	for name, m := range models {
		var elbo [2]float64
		for i := range elbo {
			st, err := m.NewStepper(context.Background(), nil, nil)
			if err != nil {
				t.Fatal(name, err)
			}
			if elbo[i], err = kit.ElboOf(st, nil); err != nil {
				t.Fatal(name, err)
			}
		}
		if elbo[0] != elbo[1] {
			t.Errorf("%s: %v and %v", name, elbo[0], elbo[1])
		}
	}
}

// TestResultString checks that a Result prints its status and, if known, the ELBO, its error and
// the gap.
func TestResultString(t *testing.T) {
	t.Parallel()
	it := Iteration{K: 12, Passes: 4, Elapsed: 95_402_325,
		Evaluation: Evaluation{ELBO: -10724.996145047564, ELBOErr: 2.1e-9, Gap: 2.4e-10,
			GapBound: 2.72e-9, Scope: OverQ}}
	estimate, random, failed := it, it, it
	estimate.ELBOErr, estimate.GapBound = 0, math.Inf(1)
	random.ELBOErr, random.Random, random.Gap, random.GapBound = 0.03, true, math.NaN(), math.NaN()
	random.Passes, failed.Evaluation = 1, nowhereEvaluated()
	wide := estimate
	wide.ELBOErr, wide.Gap = 31, 5213
	for _, c := range []struct {
		r    Result
		want string
	}{
		{Result{}, "not terminated, 0 passes, 0s"},
		{Result{Status: Converged, Iteration: it},
			"converged, 4 passes, 95ms, ELBO -10724.99615 ± 2e-09, proved to be within 3e-09 " +
				"nats of its maximum over q"},
		{Result{Status: PassLimit, Iteration: estimate},
			"pass limit, 4 passes, 95ms, ELBO -10724.99615, estimated to be within 2e-10 nats " +
				"of its maximum"},
		{Result{Status: Canceled, Iteration: random},
			"canceled, 1 pass, 95ms, ELBO -10724.99615 ± 0.03"},
		{Result{Status: Canceled, Iteration: wide},
			"canceled, 4 passes, 95ms, ELBO -10724.99615 ± 30, estimated to be within 5000 nats " +
				"of its maximum"},
		{Result{Status: Failed, Iteration: failed}, "failed, 4 passes, 95ms"},
		{Result{Warnings: []string{"one", "two"}},
			"not terminated, 0 passes, 0s\nwarning: one\nwarning: two"},
	} {
		if got := c.r.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// nowhereEvaluated is the Evaluation of a step that was not evaluated.
func nowhereEvaluated() Evaluation {
	nan := math.NaN()
	return Evaluation{ELBO: nan, ELBOErr: nan, Gap: nan, GapBound: nan}
}
