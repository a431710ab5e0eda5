package runs

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
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"io"
	"os"
	"path/filepath"
	"syscall"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// TestSolverOfWorkersAlone checks that in every model a zero Solver, and a Solver with only
// Workers set, run like a nil Solver.
func TestSolverOfWorkersAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 8))
	draw := func(n, d int) (*mat.Dense, []float64) {
		x, y := mat.NewDense(n, d, nil), make([]float64, n)
		for i := range y {
			for j := range d {
				x.Set(i, j, rng.NormFloat64())
			}
			y[i] = 1 - 2*float64(i%2)
		}
		return x, y
	}
	// Enough for linear algebra and expectations to be shared, but in short tests of the GP.
	x, y := draw(testkit.Shorter(560, 40), 2)
	wide, labels := draw(560, 110)
	c := &Corpus{Terms: 12}
	for range 40 {
		d := Document{}
		for v := rng.IntN(3); v < c.Terms; v += 1 + rng.IntN(3) {
			d.Words, d.Counts = append(d.Words, v), append(d.Counts, float64(1+rng.IntN(4)))
		}
		c.Docs = append(c.Docs, d)
	}
	fits := map[string]func(s *Solver) (*Result, error){
		"GP": func(s *Solver) (*Result, error) {
			m, err := NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"SparseGP": func(s *Solver) (*Result, error) {
			m, err := NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{}, &SparseGPOptions{Rank: 5})
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"GLM": func(s *Solver) (*Result, error) {
			m, err := NewGLM(wide, labels, BernoulliLogit{}, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"CTM": func(s *Solver) (*Result, error) {
			m, err := NewCTM(c, 3, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"Mixture": func(s *Solver) (*Result, error) {
			m, err := NewMixture(wide.Slice(0, 200, 0, 3), 4, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
		"LDA": func(s *Solver) (*Result, error) {
			m, err := NewLDA(c, 3, nil)
			if err != nil {
				return nil, err
			}
			_, res, err := m.Fit(ctx, s)
			return res, err
		},
	}
	for name, fit := range fits {
		var want *Result
		for _, s := range testkit.Few([]*Solver{nil, {Workers: 3}, {}, {Workers: 1}}, 2) {
			res, err := fit(s)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if want == nil {
				want = res
			}
			if res.Passes != want.Passes || res.K != want.K || res.Status != want.Status ||
				math.Float64bits(res.ELBO) != math.Float64bits(want.ELBO) {
				t.Errorf("%s with %+v: %v passes, ELBO %v, %v; with nil %v, %v, %v", name, s,
					res.Passes, res.ELBO, res.Status, want.Passes, want.ELBO, want.Status)
			}
		}
	}
}

// TestFunctionsOneAtATime checks that functions which need not be safe for concurrent use are
// called by one goroutine at a time, and by several only if Workers allows it.
func TestFunctionsOneAtATime(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	prior := NewIsotropic(2, 1)
	for _, workers := range []int{0, 1, 3} {
		var inside, most atomic.Int64
		ll := LogLik{N: 30, Dim: 2, LogProb: func(n int, z []float64) float64 {
			if now := inside.Add(1); now > most.Load() {
				most.Store(now)
			}
			runtime.Gosched()
			inside.Add(-1)
			return -0.5 * (z[0] - float64(n%3)) * (z[0] - z[1])
		}}
		m := Objective[*Gaussian]{F: Expect(ll, nil), H: KLTo(prior), Init: prior}
		if _, _, err := m.Fit(context.Background(),
			&Solver{Workers: workers, MaxIter: 3}); err != nil {
			t.Fatal(err)
		}
		if n := most.Load(); workers < 2 && n > 1 || workers > 1 && n < 2 {
			t.Errorf("%d workers: %d calls at once", workers, n)
		}
	}
}

// longModel is a model with little data, and the predictions of its posteriors.
type longModel struct {
	name   string
	model  Model
	solver Solver
	ask    func(st Stepper) (func() []float64, error) // predicts by the posterior at st
}

// asking is longModel.ask of a model and the predictions of its posteriors.
// modelOf is a Model of posteriors of one type.
type modelOf[P any] interface {
	Model
	Posterior(st Stepper) (P, error)
}

func asking[P any](m modelOf[P], predict func(P) []float64) func(st Stepper) (func() []float64,
	error) {
	return func(st Stepper) (func() []float64, error) {
		p, err := m.Posterior(st)
		return func() []float64 { return predict(p) }, err
	}
}

func longModels(t testing.TB) []longModel {
	data := cancelData{t}
	x, y := data.table(24, 3)
	z, _ := data.table(7, 3)
	all := func(p *Prediction) []float64 {
		mean, variance := p.Latent(nil, nil)
		return append(append(p.Prob(nil, 1), mean...), variance...)
	}
	gp := testkit.Must(NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil))
	sparse := testkit.Must(NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{},
		&SparseGPOptions{Rank: 6}))
	glm := testkit.Must(NewGLM(x, y, BernoulliLogit{}, nil))
	dual := testkit.Must(NewGLM(mat.DenseCopyOf(x.T()), []float64{1, -1, 1}, BernoulliLogit{}, nil))
	lowRank := testkit.Must(NewGLM(x, y, BernoulliLogit{},
		&GLMOptions{Covariance: LowRankCovariance, Rank: 2}))
	corpus := savedCorpus()
	ctm := testkit.Must(NewCTM(corpus, 2, nil))
	rows := make([][]float64, len(y))
	for i := range rows {
		rows[i] = x.RawRowView(i)
	}
	objective := func(e Estimator, q *Gaussian) Objective[*Gaussian] {
		return Objective[*Gaussian]{F: Expect(Sites{X: rows, Y: y, Lik: BernoulliLogit{}}, e),
			H: KLTo(NewIsotropic(3, 1)), Init: q}
	}
	gaussian := func(q *Gaussian) []float64 {
		return append(q.Params(nil), q.LogProb([]float64{1, 2, 3}), q.LogPartition(),
			q.KL(NewIsotropic(3, 2)))
	}
	exact, sampled := objective(nil, NewIsotropic(3, 1).In(LogCholesky)),
		objective(Pathwise(0), NewIsotropic(3, 1))
	glmAt := func(p *GLMPosterior) []float64 { return all(p.At(z)) }
	return []longModel{
		{"GP", gp, Solver{}, asking(gp, func(p *GPPosterior) []float64 { return all(p.At(z)) })},
		{"SparseGP", sparse, Solver{},
			asking(sparse, func(p *SparseGPPosterior) []float64 { return all(p.At(z)) })},
		{"GLM", glm, Solver{}, asking(glm, glmAt)},
		{"GLM, step size", glm, Solver{StepSize: RobbinsMonro(0.3, 0, 0), BatchSize: 5},
			asking(glm, glmAt)},
		{"GLM, dual", dual, Solver{}, asking(dual, func(p *GLMPosterior) []float64 {
			return all(p.At(mat.NewDense(1, 24, y)))
		})},
		{"GLM, low rank", lowRank, Solver{}, asking(lowRank, glmAt)},
		{"CTM", ctm, Solver{}, asking(ctm, func(p *CTMPosterior) []float64 {
			return testkit.Must(p.Infer(corpus.Docs[0])).LogitMean(nil)
		})},
		{"Objective", exact, Solver{}, asking(exact, gaussian)},
		{"Objective, sampled", sampled, Solver{BatchSize: 6}, asking(sampled, gaussian)},
	}
}

// TestPredictionWhileFitting checks that many goroutines can predict from the posteriors of a run
// while it continues, with the results that they give after it has ended.
func TestPredictionWhileFitting(t *testing.T) {
	t.Parallel()
	for _, m := range longModels(t) {
		var last atomic.Pointer[func() []float64]
		var over atomic.Bool
		var wg sync.WaitGroup
		fail := make(chan string, 3)
		for range 3 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for !over.Load() {
					ask := last.Load()
					if ask == nil {
						runtime.Gosched()
						continue
					}
					if a, b := (*ask)(), (*ask)(); !floats.Same(a, b) {
						select {
						case fail <- fmt.Sprintf("%v and %v", a, b):
						default:
						}
					}
				}
			}()
		}
		s := m.solver
		s.Workers, s.MaxPasses, s.Converger = 2, 12, Never()
		res, err := s.Start(context.Background(), m.model)
		if err != nil {
			t.Fatal(err)
		}
		var asks []func() []float64
		var said [][]float64
		for it, err := range s.Steps(context.Background(), res) {
			if err != nil {
				t.Fatalf("%s: %v", m.name, err)
			}
			ask, err := m.ask(it.State)
			if err != nil {
				t.Fatalf("%s: %v", m.name, err)
			}
			last.Store(&ask)
			asks, said = append(asks, ask), append(said, ask())
		}
		over.Store(true)
		wg.Wait()
		close(fail)
		for what := range fail {
			t.Errorf("%s: %s", m.name, what)
		}
		for i, ask := range asks {
			if !floats.Same(ask(), said[i]) {
				t.Errorf("%s: the posterior of step %d has changed with the run", m.name, i+1)
				break
			}
		}
	}
}

// leftOver is the memory that a run may keep of thousands of passes: what is rounded, and caches.
const leftOver = 48 << 10

// TestMemoryFlat checks that after 10,000 passes a run uses no more memory than after 1,000,
// except for its Trace, for any context.
func TestMemoryFlat(t *testing.T) {
	testkit.NotShort(t)
	early, late := testkit.Longer(1000.0, 60), testkit.Longer(10000.0, 300)
	heap := func() uint64 {
		var m runtime.MemStats
		for range 2 { // a second time for pools
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, m := range longModels(t) {
		for _, every := range []int{-1, 1} {
			s := m.solver
			s.Converger, s.EvalEvery, s.MaxPasses = Never(), every, late
			res, err := s.Start(ctx, m.model)
			if err != nil {
				t.Fatal(err)
			}
			var before, traced uint64
			trace := func() uint64 {
				return uint64(cap(res.Trace)) * uint64(
					unsafe.Sizeof(Iteration{}))
			}
			for it, err := range s.Steps(ctx, res) {
				if err != nil {
					t.Fatalf("%s, pass %v: %v", m.name, it.Passes, err)
				}
				if before == 0 && it.Passes >= early {
					before, traced = heap(), trace()
				}
				if it.Passes >= late/4 && every == 1 {
					break // evaluations take their time
				}
			}
			grown := int64(heap()-before) - int64(trace()-traced)
			t.Logf("%s, evaluated every %d: %d kB, and %d kB more after %.0f passes, less %d kB "+
				"of Trace", m.name, every, before>>10, grown>>10, res.Passes, (trace()-traced)>>10)
			if before == 0 || grown > leftOver {
				t.Errorf("%s: %d bytes more", m.name, grown)
			}
			runtime.KeepAlive(res)
		}
	}
}

// fuse makes the functions of a user panic at the call with the given number, from 1; 0 is never.
type fuse struct{ calls, at atomic.Int64 }

var errFuse = errors.New("the fuse has blown")

func (f *fuse) burn() {
	if n := f.calls.Add(1); n == f.at.Load() {
		panic(errFuse)
	}
}

// set starts the count again.
func (f *fuse) set(at int64) {
	f.calls.Store(0)
	f.at.Store(at)
}

// fusedLik is a Likelihood of a user, fusedKernel a Kernel.
type fusedLik struct{ f *fuse }

func (l fusedLik) LogProb(y, eta float64) float64 {
	l.f.burn()
	return BernoulliLogit{}.LogProb(y, eta)
}

type fusedKernel struct{ f *fuse }

func (k fusedKernel) Cov(x, y []float64) float64 {
	k.f.burn()
	return SquaredExp{Length: 2}.Cov(x, y)
}

func (fusedKernel) Params() []Param { return nil }

func (k fusedKernel) WithParams([]float64) Kernel { return k }

func (fusedKernel) Grad(_, x, y []float64) float64 {
	return SquaredExp{Length: 2}.Cov(x, y)
}

// fusedModels are models with functions of a user that call f.
func fusedModels(t testing.TB, f *fuse) map[string]Model {
	s := kit.LogisticData(90, 24, 2)
	x := mat.NewDense(len(s.Y), 2, nil)
	for i, row := range s.X {
		x.SetRow(i, row)
	}
	ll := LogLik{N: len(s.Y), Dim: 2, LogProb: func(n int, z []float64) float64 {
		f.burn()
		return BernoulliLogit{}.LogProb(s.Y[n], s.X[n][0]*z[0]+s.X[n][1]*z[1])
	}, Grad: func(dst []float64, n int, z []float64) {
		f.burn()
		d, _ := BernoulliLogit{}.Derivs(s.Y[n], s.X[n][0]*z[0]+s.X[n][1]*z[1])
		dst[0] += d * s.X[n][0]
		dst[1] += d * s.X[n][1]
	}}
	fused := s
	fused.Lik = fusedLik{f}
	prior := NewIsotropic(2, 4)
	objective := func(l LogLikelihood, e Estimator) Model {
		return Objective[*Gaussian]{F: Expect(l, e), H: KLTo(prior), Init: prior}
	}
	return map[string]Model{
		"LogLik, score function": objective(ll, ScoreFunction(20)),
		"LogLik, pathwise":       objective(ll, Pathwise(10)),
		"Sites, exact":           objective(fused, nil),
		"Sites, score function":  objective(fused, ScoreFunction(20)),
		"GP": testkit.Must(NewGP(x, s.Y, SquaredExp{Length: 2}, fusedLik{f},
			nil)),
		"GP, score function": testkit.Must(NewGP(x, s.Y, SquaredExp{Length: 2}, fusedLik{f},
			&GPOptions{Estimator: ScoreFunction(20)})),
		"GLM": testkit.Must(NewGLM(x, s.Y, fusedLik{f}, nil)),
		"GLM, score function": testkit.Must(
			NewGLM(x, s.Y, fusedLik{f}, &GLMOptions{Estimator: ScoreFunction(20)})),
	}
}

// stateOf returns the numbers of a posterior.
func stateOf(t testing.TB, m Model, st Stepper) []float64 {
	t.Helper()
	switch m := m.(type) {
	case Objective[*Gaussian]:
		q := testkit.Must(m.Posterior(st))
		return append(q.Mean(nil), q.Cov().RawSymmetric().Data...)
	case *GP:
		mean, v := testkit.Must(m.Posterior(st)).Train(nil, nil)
		return append(mean, v...)
	case *GLM:
		p := testkit.Must(m.Posterior(st))
		return append(p.Mean(nil), p.SD(nil)...)
	}
	t.Fatalf("no state of a %T", m)
	return nil
}

// A panic of a user's function must reach the caller's recover, from any worker. With
// Solver.Recover it must be an error that names the observation, with a complete Result: its λ
// must match the number of steps, to the bit.
func TestRecover(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := &fuse{}
	for name, m := range fusedModels(t, f) {
		s := Solver{MaxPasses: 6, Converger: Never()}
		if strings.Contains(name, "score") && !strings.HasPrefix(name, "LogLik") {
			s.StepSize, s.BatchSize = ConstantStep(0.5), 8
		}
		f.set(0)
		kit.Solve(t, s, m)
		total := f.calls.Load()
		for i, workers := range []int{1, 3} {
			s.Workers = workers
			for _, share := range testkit.Shorter([]float64{0, 0.03, 0.2, 0.5, 0.8, 0.99},
				[][]float64{{0.99}, {0.2}}[i]) {
				what := fmt.Sprintf("%s, %d workers, call %.0f of %d", name, workers,
					share*float64(total)+1, total)
				at := int64(share*float64(total)) + 1
				s.Recover = false
				f.set(at)
				func() {
					defer func() {
						r := recover()
						err, _ := r.(error)
						var p *PanicError
						if !errors.As(err, &p) || !errors.Is(err, errFuse) || p.Where == "" ||
							!strings.Contains(string(p.Stack), "burn") {
							t.Errorf("%s: recovered %v", what, r)
						}
					}()
					_, _ = s.Run(ctx, m)
					t.Errorf("%s: no panic", what)
				}()
				s.Recover = true
				f.set(at)
				res, err := s.Run(ctx, m)
				var p *PanicError
				if !errors.Is(err, ErrPanic) || !errors.Is(err, errFuse) || !errors.As(err, &p) ||
					!testkit.PrefixedOnce(err) ||
					!strings.Contains(err.Error(), "term ") && !strings.Contains(err.Error(),
						"row ") || strings.Contains(err.Error(), "goroutine") {
					t.Errorf("%s: error %v", what, err)
					continue
				}
				if res == nil && strings.Contains(err.Error(), "set-up") {
					continue
				}
				if res == nil || res.Status != Failed || res.Stepper == nil ||
					math.IsNaN(res.ELBO) {
					t.Errorf("%s: result %+v", what, res)
					continue
				}
				// The state must match a run of the same number of steps.
				f.set(0)
				short := s
				short.MaxIter = res.K
				want := testkit.Must(short.Start(ctx, m))
				if res.K > 0 {
					want = kit.Solve(t, short, m)
				}
				if got, want := stateOf(t, m, res.Stepper),
					stateOf(t, m, want.Stepper); !slices.Equal(got, want) {
					t.Errorf("%s: after %d steps the state is %v, want %v", what, res.K, got, want)
				}
				// The run must continue.
				if _, err := s.Resume(ctx, res); err != nil {
					t.Errorf("%s: resumed: %v", what, err)
				}
			}
		}
	}
}

// A Kernel that panics does so for the caller of whatever asks it: the construction of a model, and
// predictions.
func TestPanicOfKernel(t *testing.T) {
	f := &fuse{}
	s := kit.LogisticData(91, 80, 2)
	x := mat.NewDense(len(s.Y), 2, nil)
	for i, row := range s.X {
		x.SetRow(i, row)
	}
	caught := func(what string, call func()) {
		t.Helper()
		for _, at := range []int64{1, 300} {
			f.set(at)
			func() {
				defer func() {
					if err, _ := recover().(error); !errors.Is(err, errFuse) {
						t.Errorf("%s: recovered %v", what, err)
					}
				}()
				call()
				t.Errorf("%s: no panic", what)
			}()
		}
	}
	build := func() *GP {
		return testkit.Must(NewGP(x, s.Y, fusedKernel{f}, BernoulliLogit{},
			nil))
	}
	f.set(0)
	g := build()
	post, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := f.calls.Load()
	f.set(0)
	want := post.Prob(nil, 1, x)
	caught("construction and fit", func() {
		if _, _, err := build().Fit(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
	caught("prediction", func() { post.Prob(nil, 1, x) })
	f.set(0)
	if !slices.Equal(post.Prob(nil, 1, x), want) {
		t.Error("a panic has changed the posterior")
	}
	// A panic in a call by the Solver itself must become an error.
	f.set(calls / 2)
	g2 := func() (g *GP, ok bool) {
		defer func() { ok = recover() == nil }()
		return build(), true
	}
	if g, ok := g2(); ok {
		if _, err := (&Solver{Recover: true}).Run(context.Background(), g); !errors.Is(err,
			ErrPanic) || !strings.Contains(err.Error(), "row ") {
			t.Errorf("set-up: error %v", err)
		}
	}
}

// A Likelihood that panics in a prediction does so for the caller.
func TestPanicOfLikelihoodInPrediction(t *testing.T) {
	f := &fuse{}
	s := kit.LogisticData(92, 30, 2)
	x := mat.NewDense(len(s.Y), 2, nil)
	for i, row := range s.X {
		x.SetRow(i, row)
	}
	post, _, err := testkit.Must(NewGLM(x, s.Y, fusedLik{f}, nil)).Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	f.set(100)
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, errFuse) {
			t.Errorf("recovered %v", err)
		}
	}()
	post.Prob(nil, 1, x)
	t.Error("no panic")
}

// panicking is a Model whose set-up panics.
type panicking struct{}

func (panicking) NewStepper(context.Context, *Env, Divergence) (Stepper, error) { panic(errFuse) }

// TestRecoverLoading checks that Recover covers every set-up, including the set-up of a loaded
// run.
func TestRecoverLoading(t *testing.T) {
	res, err := (&Solver{MaxPasses: 1}).Run(t.Context(),
		kit.ToyGP(t, 10, SquaredExp{}, BernoulliLogit{}, 1))
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := res.Save(&file); err != nil {
		t.Fatal(err)
	}
	s := &Solver{Recover: true}
	if _, err := s.Start(t.Context(), panicking{}); !errors.Is(err, ErrPanic) {
		t.Errorf("Start: %v", err)
	}
	if _, err := s.LoadResult(t.Context(), &file, panicking{}); !errors.Is(err, ErrPanic) ||
		!errors.Is(err, errFuse) {
		t.Errorf("LoadResult: %v", err)
	}
}

// Runs of GLMs with a given step size have a Gap and a GapBound at every evaluation, which hold
// against a run without one, whatever the covariance is, with all rows in a step or some.
func TestGivenStepSizeHasGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	x, y := mat.NewDense(120, 4, nil), make([]float64, 120)
	for i := range y {
		for j := range 4 {
			x.Set(i, j, rng.NormFloat64())
		}
		y[i] = float64(2*rng.IntN(2) - 1)
	}
	for _, covariance := range []Covariance{FullCovariance, DiagonalCovariance} {
		g := testkit.Must(
			NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Covariance: covariance, PriorSD: 2}))
		_, best, err := g.Fit(context.Background(), nil)
		if err != nil || best.GapBound > 1e-6 {
			t.Fatal(best, err)
		}
		for _, size := range []int{0, 30} {
			var last Iteration
			_, r, err := g.Fit(context.Background(),
				&Solver{StepSize: ConstantStep(0.05), BatchSize: size, MaxPasses: 300, EvalEvery: 1,
					Record: func(it Iteration) {
						if math.IsNaN(it.ELBO) {
							return
						}
						last = it
						left := best.ELBO - it.ELBO
						if math.IsNaN(it.Gap) || !(it.GapBound >= left-1e-9) ||
							math.IsInf(it.GapBound, 1) || it.Scope != OverQ {
							t.Errorf(
								"%v, batches of %d, iteration %d: gap %v, bound %v of %v, %v "+
									"nats below "+
									"the best", covariance, size, it.K, it.Gap, it.GapBound,
								it.Scope, left)
						}
					}})
			if err != nil {
				t.Fatal(err)
			}
			if size == 0 && !(r.Status == Converged && last.GapBound < 0.01) {
				t.Errorf("%v: %v, bound %v", covariance, r, last.GapBound)
			}
		}
	}
}

// Steps with a given size reach the optimum where exponentials under the prior are beyond use.
func TestGivenStepSizeUnderWidePriors(t *testing.T) {
	for _, lik := range []Likelihood{Poisson{}, Exponential{}} {
		for _, covariance := range []Covariance{FullCovariance, DiagonalCovariance} {
			for _, rows := range []int{4, 30} { // fewer rows than weights, and more
				rng := rand.New(rand.NewPCG(3, 1))
				x, y := mat.NewDense(rows, 5, nil), make([]float64, rows)
				for i := range y {
					for j := range 5 {
						x.Set(i, j, rng.NormFloat64())
					}
					y[i] = float64(1 + rng.IntN(4))
				}
				g := testkit.Must(
					NewGLM(x, y, lik, &GLMOptions{PriorSD: 6, Covariance: covariance}))
				_, best, err := g.Fit(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				_, r, err := g.Fit(context.Background(),
					&Solver{StepSize: ConstantStep(0.1), MaxPasses: 2000})
				if err != nil || !(best.ELBO-r.ELBO <= 0.01) {
					t.Errorf("%v, %v, %d rows: ELBO %v, want %v; %v", testkit.TypeName(lik),
						covariance,
						rows, r.ELBO, best.ELBO, err)
				}
			}
		}
	}
}

// TestCheckpoint checks that the file holds the run. If it cannot be written, the old file must
// stay and the run must end.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := interruptedRuns(t)[0]
	want, k := r.uninterrupted(t)
	path := filepath.Join(t.TempDir(), "run")
	s := r.solver
	s.Checkpoint = Checkpoint{Path: path, Passes: 1}
	written := map[string]bool{}
	s.Record = func(it Iteration) {
		if data, err := os.ReadFile(path); err == nil {
			written[string(data)] = true
		}
	}
	res, err := s.Run(ctx, r.model)
	if err != nil {
		t.Fatal(err)
	}
	if got := bitsOf(t, res); got != want {
		t.Error("checkpoints change the run")
	}
	if len(written) < 2 || len(written) > k/2 {
		t.Errorf("%d checkpoints in %d passes and %d steps", len(written), int(res.Passes), k)
	}
	last, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var now bytes.Buffer
	if err := res.Save(&now); err != nil || !bytes.Equal(last, now.Bytes()) {
		t.Errorf("the last checkpoint is not that of the end: %v", err)
	}
	end, err := s.LoadResult(ctx, bytes.NewReader(last), r.model)
	if err != nil || end.Status != res.Status || bitsOf(t, end) != want {
		t.Errorf("the end is read as %v, %v", end, err)
	}
	if end, err = s.Resume(ctx, end); err != nil || end.K != res.K || end.Status != Converged {
		t.Errorf("a run that was at its end goes on: %d, %v, %v", end.K, end.Status, err)
	}

	// Something that is not a file must not be replaced, and a missing folder must not be
	// created.
	for _, bad := range []string{filepath.Dir(path), filepath.Join(path, "run"),
		filepath.Join(t.TempDir(), "none", "run")} {
		s.Checkpoint = Checkpoint{Path: bad, Passes: 1}
		res, err := s.Run(ctx, r.model)
		if err == nil || !testkit.PrefixedOnce(err) || res.Status != Failed ||
			math.IsNaN(res.ELBO) || res.Passes > 2 {
			t.Errorf("%s: %v, %v", bad, res, err)
		}
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, last) {
		t.Errorf("the checkpoint has changed: %v", err)
	}
	for _, c := range []Checkpoint{{Every: -1}, {Passes: -1}, {Passes: math.NaN()}} {
		if _, err := (&Solver{Checkpoint: c}).Run(ctx, r.model); !errors.Is(err, ErrParam) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := res.Save(testkit.FailingWriter{}); err != io.ErrClosedPipe {
		t.Errorf("a writer that fails: %v", err)
	}
	if full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil {
		defer full.Close()
		if err := res.Save(full); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a full disk: %v", err)
		}
	}
}
