package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// fuse makes the functions of a user panic at the call with the given number, from 1; 0 is never.
type fuse struct{ calls, at atomic.Int64 }

var errFuse = errors.New("the fuse has blown")

func (f *fuse) burn() {
	if n := f.calls.Add(1); n == f.at.Load() {
		panic(errFuse)
	}
}

// set begins to count anew.
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
func (fusedKernel) Params() []Param               { return nil }
func (k fusedKernel) WithParams([]float64) Kernel { return k }
func (fusedKernel) Grad(_, x, y []float64) float64 {
	return SquaredExp{Length: 2}.Cov(x, y)
}

// fusedModels are models with functions of a user that call f.
func fusedModels(t testing.TB, f *fuse) map[string]Model {
	s := logisticData(90, 24, 2)
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
		"LogLik, score function": objective(ll, ScoreFunction{Samples: 20}),
		"LogLik, pathwise":       objective(ll, Pathwise{Samples: 10}),
		"Sites, exact":           objective(fused, nil),
		"Sites, score function":  objective(fused, ScoreFunction{Samples: 20}),
		"GP":                     must(NewGP(x, s.Y, SquaredExp{Length: 2}, fusedLik{f}, nil)),
		"GP, score function":     must(NewGP(x, s.Y, SquaredExp{Length: 2}, fusedLik{f}, &GPOptions{Estimator: ScoreFunction{Samples: 20}})),
		"GLM":                    must(NewGLM(x, s.Y, fusedLik{f}, nil)),
		"GLM, score function":    must(NewGLM(x, s.Y, fusedLik{f}, &GLMOptions{Estimator: ScoreFunction{Samples: 20}})),
	}
}

// stateOf returns the numbers of a posterior.
func stateOf(t testing.TB, m Model, st Stepper) []float64 {
	t.Helper()
	switch m := m.(type) {
	case Objective[*Gaussian]:
		return momentsOf(must(m.Posterior(st)))
	case *GP:
		mean, v := must(m.Posterior(st)).Train(nil, nil)
		return append(mean, v...)
	case *GLM:
		p := must(m.Posterior(st))
		return append(p.Mean(nil), p.SD(nil)...)
	}
	t.Fatalf("no state of a %T", m)
	return nil
}

// A panic of a user's function, on a worker or not, is one that the caller can recover; with Solver.Recover it is an
// error that names the datum, and the Result is complete: its λ is that of the steps it counts, to the bit.
func TestRecover(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := &fuse{}
	for name, m := range fusedModels(t, f) {
		s := Solver{MaxPasses: 6, Converger: Never{}}
		if strings.Contains(name, "score") && !strings.HasPrefix(name, "LogLik") {
			s.StepSize, s.BatchSize = ConstantStep(0.5), 8
		}
		f.set(0)
		solve(t, s, m)
		total := f.calls.Load()
		for _, workers := range []int{1, 3} {
			s.Workers = workers
			for _, share := range shorter([]float64{0, 0.03, 0.2, 0.5, 0.8, 0.99}, []float64{0, 0.2, 0.99}) {
				what := fmt.Sprintf("%s, %d workers, call %.0f of %d", name, workers, share*float64(total)+1, total)
				at := int64(share*float64(total)) + 1
				s.Recover = false
				f.set(at)
				func() {
					defer func() {
						r := recover()
						err, _ := r.(error)
						var p *PanicError
						if !errors.As(err, &p) || !errors.Is(err, errFuse) || p.Where == "" || !strings.Contains(string(p.Stack), "burn") {
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
				if !errors.Is(err, ErrPanic) || !errors.Is(err, errFuse) || !errors.As(err, &p) || !prefixedOnce(err) ||
					!strings.Contains(err.Error(), "term ") && !strings.Contains(err.Error(), "row ") || strings.Contains(err.Error(), "goroutine") {
					t.Errorf("%s: error %v", what, err)
					continue
				}
				if res == nil && strings.Contains(err.Error(), "set-up") {
					continue
				}
				if res == nil || res.Status != Failed || res.Stepper == nil || math.IsNaN(res.ELBO) {
					t.Errorf("%s: result %+v", what, res)
					continue
				}
				// The state is that of a run of as many steps.
				f.set(0)
				short := s
				short.MaxIter = res.K
				want := must(short.Start(ctx, m))
				if res.K > 0 {
					want = solve(t, short, m)
				}
				if got, want := stateOf(t, m, res.Stepper), stateOf(t, m, want.Stepper); !slices.Equal(got, want) {
					t.Errorf("%s: after %d steps the state is %v, want %v", what, res.K, got, want)
				}
				// It goes on.
				if _, err := s.Resume(ctx, res); err != nil {
					t.Errorf("%s: resumed: %v", what, err)
				}
			}
		}
	}
}

// A Kernel that panics does so for the caller of whatever asks it: the construction of a model, and predictions.
func TestPanicOfKernel(t *testing.T) {
	f := &fuse{}
	s := logisticData(91, 80, 2)
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
	build := func() *GP { return must(NewGP(x, s.Y, fusedKernel{f}, BernoulliLogit{}, nil)) }
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
	// What the Solver itself calls it makes an error of.
	f.set(calls / 2)
	g2 := func() (g *GP, ok bool) {
		defer func() { ok = recover() == nil }()
		return build(), true
	}
	if g, ok := g2(); ok {
		if _, err := (&Solver{Recover: true}).Run(context.Background(), g); !errors.Is(err, ErrPanic) || !strings.Contains(err.Error(), "row ") {
			t.Errorf("set-up: error %v", err)
		}
	}
}

// A Likelihood that panics in a prediction does so for the caller.
func TestPanicOfLikelihoodInPrediction(t *testing.T) {
	f := &fuse{}
	s := logisticData(92, 30, 2)
	x := mat.NewDense(len(s.Y), 2, nil)
	for i, row := range s.X {
		x.SetRow(i, row)
	}
	post, _, err := must(NewGLM(x, s.Y, fusedLik{f}, nil)).Fit(context.Background(), nil)
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

// TestRecoverLoading: Recover is for every set-up, that of a run which is loaded as well.
func TestRecoverLoading(t *testing.T) {
	res, err := (&Solver{MaxPasses: 1}).Run(t.Context(), toyGP(t, 10, SquaredExp{}, BernoulliLogit{}, 1))
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
	if _, err := s.LoadResult(t.Context(), &file, panicking{}); !errors.Is(err, ErrPanic) || !errors.Is(err, errFuse) {
		t.Errorf("LoadResult: %v", err)
	}
}
