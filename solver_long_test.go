package pgsvi

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// longModel is a model of few data, with what its posteriors say of new ones.
type longModel struct {
	name   string
	model  Model
	solver Solver
	ask    func(st State) (func() []float64, error) // predicts by the posterior at st
}

// asking is longModel.ask of a model and the predictions of its posteriors.
func asking[P any](m poster[P], predict func(P) []float64) func(st State) (func() []float64, error) {
	return func(st State) (func() []float64, error) {
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
	gp := must(NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil))
	sparse := must(NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{}, &SparseGPOptions{Rank: 6}))
	glm := must(NewGLM(x, y, BernoulliLogit{}, nil))
	dual := must(NewGLM(mat.DenseCopyOf(x.T()), []float64{1, -1, 1}, BernoulliLogit{}, nil))
	lowRank := must(NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Covariance: LowRankCovariance, Rank: 2}))
	corpus := savedCorpus()
	ctm := must(NewCTM(corpus, 2, nil))
	rows := make([][]float64, len(y))
	for i := range rows {
		rows[i] = x.RawRowView(i)
	}
	objective := func(e Estimator, q *Gaussian) Objective[*Gaussian] {
		return Objective[*Gaussian]{F: Expect(Sites{rows, y, BernoulliLogit{}}, e), H: KLTo(NewIsotropic(3, 1)), Init: q}
	}
	gaussian := func(q *Gaussian) []float64 {
		return append(q.Params(nil), q.LogProb([]float64{1, 2, 3}), q.LogPartition(), q.KL(NewIsotropic(3, 2)))
	}
	exact, sampled := objective(nil, NewIsotropic(3, 1).In(LogCholesky)), objective(Pathwise{}, NewIsotropic(3, 1))
	glmAt := func(p *GLMPosterior) []float64 { return all(p.At(z)) }
	return []longModel{
		{"GP", gp, Solver{}, asking(gp, func(p *GPPosterior) []float64 { return all(p.At(z)) })},
		{"SparseGP", sparse, Solver{}, asking(sparse, func(p *SparseGPPosterior) []float64 { return all(p.At(z)) })},
		{"GLM", glm, Solver{}, asking(glm, glmAt)},
		{"GLM, step size", glm, Solver{StepSize: RobbinsMonro{Scale: 0.3}, BatchSize: 5}, asking(glm, glmAt)},
		{"GLM, dual", dual, Solver{}, asking(dual, func(p *GLMPosterior) []float64 { return all(p.At(mat.NewDense(1, 24, y))) })},
		{"GLM, low rank", lowRank, Solver{}, asking(lowRank, glmAt)},
		{"CTM", ctm, Solver{}, asking(ctm, func(p *CTMPosterior) []float64 { return must(p.Infer(corpus.Docs[0])).Mean(nil) })},
		{"Objective", exact, Solver{}, asking(exact, gaussian)},
		{"Objective, sampled", sampled, Solver{BatchSize: 6}, asking(sampled, gaussian)},
	}
}

// TestPredictionWhileFitting: posteriors of a run answer any number of goroutines while the run goes on, and say what they say
// when it has ended.
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
		s.Workers, s.MaxPasses, s.Converger = 2, 12, Never{}
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

// TestMemoryFlat: after 10,000 passes a run has no more memory than after 1,000, but for its Trace, whatever context it has.
func TestMemoryFlat(t *testing.T) {
	early, late := 1000.0, 10000.0
	if testing.Short() {
		early, late = 60, 300
	}
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
			s.Converger, s.EvalEvery, s.MaxPasses = Never{}, every, late
			res, err := s.Start(ctx, m.model)
			if err != nil {
				t.Fatal(err)
			}
			var before, traced uint64
			trace := func() uint64 { return uint64(cap(res.Trace)) * uint64(unsafe.Sizeof(Iteration{})) }
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
			t.Logf("%s, evaluated every %d: %d kB, and %d kB more after %.0f passes, less %d kB of Trace", m.name, every, before>>10, grown>>10, res.Passes, (trace()-traced)>>10)
			if before == 0 || grown > leftOver {
				t.Errorf("%s: %d bytes more", m.name, grown)
			}
			runtime.KeepAlive(res)
		}
	}
}
