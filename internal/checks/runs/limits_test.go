package runs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/cputime"
)

// panicOf returns the error that f panics with, nil if it does not panic with one.
func panicOf(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

// manyRows returns a model's n inputs with one column, and their labels.
func manyRows(n int) (*mat.Dense, []float64) {
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, float64(i))
		y[i] = testkit.PlusMinus(i%2 == 0)
	}
	return x, y
}

// emptyRows returns n rows of cols columns without values, and their labels.
func emptyRows(t *testing.T, n, cols int) (*Sparse, []float64) {
	t.Helper()
	x := NewSparse(cols)
	for range n {
		if err := x.Append([]int{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return x, make([]float64, n)
}

// hugeGPFile is a file of 600 kB with a GPPosterior of 60,000 rows.
func hugeGPFile(t *testing.T, n int) string {
	zeros := "[" + strings.Repeat("0,", n-1) + "0]"
	return testkit.FileOf(t, testkit.Kind("GPPosterior"),
		fmt.Sprintf(`{"rows":%d,"cols":1,"kernel":{"type":"pgsvi.SquaredExp","value":{}},"likelihood":{"type":"pgsvi.BernoulliLogit","value":{}},"x":%s,"gamma":%s,"a":%s,"m":%s,"v":%s}`, n, zeros, zeros, zeros, zeros, zeros))
}

// TestMemory checks that a model which would need too much memory returns an error before it
// allocates. The error names the need and the remedy. Functions without an error result panic
// with the same error.
func TestMemory(t *testing.T) {
	ctx := context.Background()
	x, y := manyRows(200000)
	mid, midY := manyRows(11000)
	small, smallY := kit.SavedData(20, 2, BernoulliLogit{}, 1)
	file := hugeGPFile(t, 60000)
	dual, dualY := emptyRows(t, 20000, 1000000)
	primal, primalY := emptyRows(t, 30000, 20000)
	wide, wideY := emptyRows(t, 1, math.MaxInt32)
	gp := kit.ToyGP(t, 5, SquaredExp{}, BernoulliLogit{}, 1)
	gpPost, _ := kit.MustFit(t, gp, nil)
	diag, err := NewGLM(NewSparse(100000), nil, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	diagPost, _ := kit.FitGLM(t, diag, nil)
	ctm, _ := kit.FitCTM(t, kit.SmallCorpus(), 2, nil, &Solver{MaxPasses: 1})
	manyDocs := &Corpus{Terms: 5, Docs: make([]Document, 2000000)}
	manyDocs.Docs[7] = Document{Words: []int{1}, Counts: []float64{1}}
	ll := LogLik{N: 3, Dim: 1000, LogProb: func(int, []float64) float64 { return 0 }}
	objective := func(e Estimator) error {
		_, err := (&Solver{}).Run(ctx,
			Objective[*Gaussian]{F: Expect(ll, e), H: KLTo(NewIsotropicMeanField(1000, 1)),
				Init: NewIsotropicMeanField(1000, 1)})
		return err
	}
	for name, c := range map[string]struct {
		f    func() error
		says string
	}{
		"NewGP": {func() error {
			_, err := NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil)
			return err
		}, "a GP of 200000 rows, with 8 matrices of 320 GB each, needs 2.56 TB of memory, and " +
			"the limit is 8 GB; use NewSparseGP, or raise GPOptions.MaxMemory"},
		"GP, its own limit": {func() error {
			_, err := NewGP(small, smallY, SquaredExp{}, BernoulliLogit{},
				&GPOptions{MaxMemory: 1000})
			return err
		}, "needs 25.6 kB of memory, and the limit is 1 kB"},
		"Load": {func() error { _, err := Load[*GPPosterior](strings.NewReader(file)); return err },
			"60000 rows, with 8 matrices of 28.8 GB each"},
		"GP.Objective": {func() error {
			g, err := NewGP(mid, midY, SquaredExp{}, BernoulliLogit{}, nil)
			if err != nil {
				return err
			}
			_, err = g.Objective()
			return err
		}, "a full covariance of 11000 dimensions needs 23.2 GB"},
		"GPPosterior.Joint": {func() error {
			_, _, err := gpPost.Joint(mat.NewDense(200000, 2, nil))
			return err
		}, "the joint posterior at 200000 rows needs 640 GB"},
		"GPPosterior.Rand": {func() error {
			return gpPost.Rand(mat.NewDense(1, 200000, nil), mat.NewDense(200000, 2, nil),
				rand.New(rand.NewPCG(1, 1)))
		}, "200000 rows"},
		"NewGP, a matrix that is small": {func() error {
			_, err := NewGP(mat.NewDiagDense(100000, nil), make([]float64, 100000), SquaredExp{},
				nil, nil)
			return err
		}, "a copy of x, 100000×100000, needs 80 GB"},
		"NewSparseGP, inducing inputs that are small": {func() error {
			_, err := NewSparseGP(small, smallY, SquaredExp{}, BernoulliLogit{},
				&SparseGPOptions{Rank: 1, Inducing: mat.NewDiagDense(100000, nil)})
			return err
		}, "needs 80 GB"},
		"NewGLM, a matrix that is small": {func() error {
			_, err := NewGLM(mat.NewDiagDense(100000, nil), make([]float64, 100000), nil,
				&GLMOptions{Covariance: DiagonalCovariance})
			return err
		}, "needs 80 GB"},
		"NewSparseGP": {func() error {
			_, err := NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{},
				&SparseGPOptions{Rank: math.MaxInt})
			return err
		}, "a SparseGP of 200000 rows and up to 200000 inducing inputs needs 7.52 TB"},
		"NewSparseGP, inducing": {func() error {
			_, err := NewSparseGP(small, smallY, SquaredExp{}, BernoulliLogit{},
				&SparseGPOptions{Inducing: mat.NewDense(100000, 2, nil)})
			return err
		}, "up to 100000 inducing inputs"},
		"GLM, dual": {func() error {
			_, err := NewGLM(dual, dualY, nil, &GLMOptions{Covariance: FullCovariance})
			return err
		}, "a GLM of 20000 rows and 1000000 weights with a full covariance needs 25.9 GB"},
		"GLM, primal": {func() error {
			_, err := NewGLM(primal, primalY, nil, &GLMOptions{Covariance: FullCovariance})
			return err
		}, "20000 weights with a full covariance needs 70.4 GB"},
		"GLM, low rank": {func() error {
			_, err := NewGLM(dual, dualY, nil,
				&GLMOptions{Covariance: LowRankCovariance, Rank: 1e9})
			return err
		}, "a low-rank covariance needs 224 TB"},
		"GLM, the largest index": {func() error {
			_,
				err := NewGLM(wide, wideY, nil, nil)
			return err
		},
			"2147483647 weights"},
		"GLM, the largest index, diagonal": {func() error {
			_, err := NewGLM(wide, wideY, nil, &GLMOptions{Covariance: DiagonalCovariance})
			return err
		},
			"hash the features to fewer columns, or raise GLMOptions.MaxMemory"},
		"GLM.Objective": {func() error {
			g, err := NewGLM(dual, dualY, nil, &GLMOptions{Covariance: DiagonalCovariance})
			if err != nil {
				return err
			}
			_, err = g.Objective()
			return err
		}, "20000 dense rows of 1000000 columns needs 160 GB"},
		"GLMPosterior.Stream": {func() error { _, err := diagPost.Stream(); return err },
			"a stream of 100000 weights needs 1.76 TB"},
		"GLMPosterior.Update": {func() error {
			_, err := kit.WithoutRows(t, diagPost).Update(ctx, Rows(small, smallY))
			return err
		}, "a stream of 100000 weights"},
		"GLMPosterior.Cov": {func() error { return panicOf(func() { diagPost.Cov() }) },
			"the covariance of 100000 weights needs 160 GB"},
		"GLMPosterior.Corr": {func() error { return panicOf(func() { diagPost.Corr() }) },
			"use SD or RandWeights"},
		"NewGLMStream": {func() error {
			_, err := NewGLMStream(1000000, nil, nil)
			return err
		}, "a stream of 1000000 weights needs 176 TB"},
		"NewGLMStream, most": {func() error {
			_, err := NewGLMStream(math.MaxInt32, nil, nil)
			return err
		}, "a stream of 2147483647 weights"},
		"NewCTM, terms": {func() error {
			c := *kit.SmallCorpus()
			c.Terms = 2e9
			_, err := NewCTM(&c, 10, nil)
			return err
		}, "a CTM of 10 topics and 2000000000 terms needs 1.28 TB"},
		"NewCTM, topics": {func() error {
			_,
				err := NewCTM(kit.SmallCorpus(), 1e6, nil)
			return err
		}, "a CTM of 1000000 topics"},
		"NewCTM, documents": {func() error { _, err := NewCTM(manyDocs, 100, nil); return err },
			"with q(z) of 2000000 documents needs 165 GB"},
		"NewCTM, samples": {func() error {
			_, err := NewCTM(kit.SmallCorpus(), 10000, &CTMOptions{Samples: 100000})
			return err
		}, "a CTM of 10000 topics"},
		"NewCTMStream": {func() error { _, err := NewCTMStream(2e9, 10, nil); return err },
			"2000000000 terms"},
		"HeldOut": {func() error {
			_, err := ctm.HeldOut(kit.SmallCorpus(),
				&HeldOutOptions{Draws: 1e7, ByWord: true, Workers: 1e9})
			return err
		}, ""},
		"Gram": {func() error {
			return panicOf(func() { Gram(nil, SquaredExp{}, x) })
		}, "the covariance of 200000 rows needs 320 GB of memory, and the limit is 8 GB; pass " +
			"Gram a matrix"},
		"CrossCov": {func() error {
			return panicOf(func() { CrossCov(nil, SquaredExp{}, x, mid) })
		}, "the covariance of 200000 and 11000 rows needs 17.6 GB"},
		"NewGaussian": {func() error {
			_, err := NewGaussian(nil, mat.NewDiagDense(1000000, nil))
			return err
		}, "a full covariance of 1000000 dimensions needs 48 TB"},
		"NewIsotropic": {func() error { return panicOf(func() { NewIsotropic(math.MaxInt, 1) }) },
			"use a mean field"},
		"ScoreFunction": {func() error { return objective(ScoreFunction(1e7)) },
			"an estimate from 10000000 draws of 1000 dimensions needs 240 GB"},
		"Pathwise": {func() error { return objective(Pathwise(math.MaxInt)) },
			"use fewer samples"},
		"GaussHermite": {func() error {
			_,
				err := GaussHermite(math.MaxInt).SetupSites(BernoulliLogit{})
			return err
		},
			"use fewer nodes"},
	} {
		if name == "HeldOut" { // whose draws fit under the default
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(200 << 20))
			if err := c.f(); !errors.Is(err, ErrMemory) {
				t.Errorf("%s: %v", name, err)
			}
			debug.SetMemoryLimit(math.MaxInt64)
			continue
		}
		var err error
		n := testkit.Allocated(func() { err = c.f() })
		if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), c.says) ||
			!testkit.PrefixedOnce(err) || !strings.HasSuffix(err.Error(), ErrMemory.Error()) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if n > 64<<20 {
			t.Errorf("%s: %d MB allocated", name, n>>20)
		}
	}
}

// TestMaxMemory checks that the option raises and lowers the limit, and that the limit of the
// runtime applies without the option.
func TestMaxMemory(t *testing.T) {
	x, y := manyRows(20000)
	if _, err := NewGP(x, y, SquaredExp{}, BernoulliLogit{},
		&GPOptions{MaxMemory: 1 << 40}); err != nil {
		t.Error(err)
	}
	gp := func() error { _, err := NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil); return err }
	if err := gp(); !errors.Is(err, ErrMemory) {
		t.Error(err)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 40))
	if err := gp(); err != nil {
		t.Errorf("with a limit of 1 TB: %v", err)
	}
	few, fewY := kit.SavedData(20, 2, BernoulliLogit{}, 1)
	for name, err := range map[string]error{
		"GP": second(NewGP(few, fewY, SquaredExp{}, nil, &GPOptions{MaxMemory: 1000})),
		"SparseGP": second(NewSparseGP(few, fewY, SquaredExp{}, nil,
			&SparseGPOptions{MaxMemory: 1000})),
		"GLM":       second(NewGLM(few, fewY, nil, &GLMOptions{MaxMemory: 100})),
		"GLMStream": second(NewGLMStream(2, nil, &GLMOptions{MaxMemory: 100})),
		"CTM":       second(NewCTM(kit.SmallCorpus(), 2, &CTMOptions{MaxMemory: 100})),
	} {
		if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "MaxMemory") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"GP": second(NewGP(few, fewY, SquaredExp{}, nil, &GPOptions{MaxMemory: -1})),
		"SparseGP": second(NewSparseGP(few, fewY, SquaredExp{}, nil,
			&SparseGPOptions{MaxMemory: -1})),
		"GLM":       second(NewGLM(few, fewY, nil, &GLMOptions{MaxMemory: -1})),
		"GLMStream": second(NewGLMStream(2, nil, &GLMOptions{MaxMemory: -1})),
		"CTM":       second(NewCTM(kit.SmallCorpus(), 2, &CTMOptions{MaxMemory: -1})),
	} {
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "MaxMemory") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestMemoryEstimates checks that a model allocates no more memory than its estimate, and that
// the estimate is not many times too high.
func TestMemoryEstimates(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for some seconds")
	}
	ctx := context.Background()
	x, y := kit.SavedData(800, 2, BernoulliLogit{}, 1)
	fat, fatY := kit.SavedData(600, 1000, BernoulliLogit{}, 1)
	tall, tallY := kit.SavedData(1200, 500, BernoulliLogit{}, 1)
	wide, wideY := emptyRows(t, 2, 300000)
	few, fewY := kit.TextLabels(500, 30000)
	corpus := kit.SmallCorpus()
	corpus.Terms = 200000
	for name, c := range map[string]struct {
		asked error // error of a model that may use almost no memory
		run   func() error
	}{
		"GP": {second(NewGP(x, y, SquaredExp{}, BernoulliLogit{}, &GPOptions{MaxMemory: 1e6})),
			func() error {
				g, err := NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil)
				if err == nil {
					_, _, err = g.Fit(ctx, &Solver{MaxPasses: 3})
				}
				return err
			}},
		"GLM, primal": {second(NewGLM(tall, tallY, BernoulliLogit{}, &GLMOptions{MaxMemory: 1})),
			func() error {
				g, err := NewGLM(tall, tallY, BernoulliLogit{}, nil)
				if err == nil {
					_, _, err = g.Fit(ctx, &Solver{MaxPasses: 2})
				}
				return err
			}},
		"GLM, dual": {second(NewGLM(fat, fatY, BernoulliLogit{}, &GLMOptions{MaxMemory: 1})),
			func() error {
				g, err := NewGLM(fat, fatY, BernoulliLogit{}, nil)
				if err == nil {
					_, _, err = g.Fit(ctx, &Solver{MaxPasses: 2})
				}
				return err
			}},
		"GLM, diagonal": {second(
			NewGLM(wide, wideY, nil, &GLMOptions{MaxMemory: 1, Covariance: DiagonalCovariance})),
			func() error {
				g, err := NewGLM(wide, wideY, nil, &GLMOptions{Covariance: DiagonalCovariance})
				if err == nil {
					_, _, err = g.Fit(ctx, &Solver{MaxPasses: 2})
				}
				return err
			}},
		"GLM, low rank": {second(
			NewGLM(few, fewY, BernoulliLogit{},
				&GLMOptions{MaxMemory: 1, Covariance: LowRankCovariance})), func() error {
			g, err := NewGLM(few, fewY, BernoulliLogit{},
				&GLMOptions{Covariance: LowRankCovariance})
			if err == nil {
				_, _, err = g.Fit(ctx, &Solver{MaxPasses: 6})
			}
			return err
		}},
		"CTM": {second(NewCTM(corpus, 10, &CTMOptions{MaxMemory: 1})), func() error {
			m, err := NewCTM(corpus, 10, nil)
			if err == nil {
				_, _, err = m.Fit(ctx, &Solver{MaxPasses: 2})
			}
			return err
		}},
		"CTM, anchors": {second(NewCTM(corpus, 10, &CTMOptions{MaxMemory: 1, Start: StartAnchors})),
			func() error {
				m, err := NewCTM(corpus, 10, &CTMOptions{Start: StartAnchors})
				if err == nil {
					_, _, err = m.Fit(ctx, &Solver{MaxPasses: 2})
				}
				return err
			}},
	} {
		asked := sizeIn(t, c.asked)
		peak, err := peakOf(c.run)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if peak > 1.3*asked || peak < asked/8 {
			t.Errorf("%s: takes %.1f MB, and asks for %.1f", name, peak/1e6, asked/1e6)
		}
	}
}

// sizeIn returns the number of bytes in a memory error.
func sizeIn(t *testing.T, err error) float64 {
	t.Helper()
	var size float64
	var unit string
	_, text, _ := strings.Cut(err.Error(), "needs ")
	if _, scanErr := fmt.Sscanf(text, "%g %s of", &size, &unit); scanErr != nil {
		t.Fatalf("%v: %v", err, scanErr)
	}
	return size * map[string]float64{"MB": 1e6, "GB": 1e9}[unit]
}

// peakOf returns the most bytes of live memory that the collector finds while f runs, above those
// before.
func peakOf(f func() error) (peak float64, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(5)) // so that what is found is not garbage
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	read := func() float64 { metrics.Read(live); return float64(live[0].Value.Uint64()) }
	debug.FreeOSMemory()
	before := read()
	done := make(chan error)
	go func() { done <- f() }()
	for {
		select {
		case err := <-done:
			return peak - before, err
		default:
			peak = math.Max(peak, read())
			time.Sleep(20 * time.Microsecond) // f needs the processor more
		}
	}
}

// cancelData makes random data for cancelCases.
type cancelData struct{ testing.TB }

func (cancelData) table(n, d int) (*mat.Dense, []float64) {
	rng := testkit.Rand(64)
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		row := x.RawRowView(i)
		for j := range row {
			row[j] = rng.NormFloat64()
		}
		y[i] = testkit.PlusMinus(row[0]+rng.NormFloat64() > 0)
	}
	return x, y
}

func (t cancelData) sparse(n, d, nnz int) (*Sparse, []float64) {
	rng := testkit.Rand(65)
	x, y := NewSparse(d), make([]float64, n)
	ind, val := make([]int, nnz), make([]float64, nnz)
	for i := range n {
		for k := range ind {
			ind[k], val[k] = k*(d/nnz)+rng.IntN(d/nnz), 1
		}
		if err := x.Append(ind, val); err != nil {
			t.Fatal(err)
		}
		y[i] = testkit.PlusMinus(ind[0]%2 == 0)
	}
	return x, y
}

func (cancelData) corpus(docs, terms int) *Corpus {
	rng := testkit.Rand(66)
	c := &Corpus{Terms: terms}
	for range docs {
		var doc Document
		for v := rng.IntN(20); v < terms; v += 1 + rng.IntN(30) {
			doc.Words, doc.Counts = append(doc.Words, v), append(doc.Counts, float64(1+rng.IntN(5)))
		}
		c.Docs = append(c.Docs, doc)
	}
	return c
}

// mostLate is the longest accepted delay of an answer. The goal is 0.2 s, but slow machines need
// longer: on some of them the first use of 100 MB takes half a second.
const mostLate = 2 * time.Second

// watchedContext measures the longest time between two checks of the context, and how long the
// function takes to end once the context is done. It uses processor time, which other processes do
// not change.
type watchedContext struct {
	context.Context
	mu       sync.Mutex
	last     float64
	longest  float64 // between two checks
	doneAt   float64
	doneTime time.Time
}

func watch(ctx context.Context) *watchedContext {
	w := &watchedContext{Context: ctx, last: cputime.Seconds()}
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.doneAt, w.doneTime = cputime.Seconds(), time.Now()
	})
	return w
}

func (w *watchedContext) Done() <-chan struct{} { w.look(); return w.Context.Done() }

func (w *watchedContext) Err() error { w.look(); return w.Context.Err() }

func (w *watchedContext) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := cputime.Seconds()
	w.longest = math.Max(w.longest, now-w.last)
	w.last = now
}

// ended returns the delay of the end, in processor time and on the clock, and the longest time
// between two checks.
func (w *watchedContext) ended() (late, wall, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	if !w.doneTime.IsZero() {
		late, wall = seconds(cputime.Seconds()-w.doneAt), time.Since(w.doneTime)
	}
	return late, wall, seconds(w.longest)
}

// A cancelCase takes long. It is called repeatedly, each time with a context that is soon done.
type cancelCase struct {
	name  string
	ready func() error // called before; nil for nothing to do
	run   func(ctx context.Context) error
}

// rowsOf returns n rows of x.
func rowsOf(x *mat.Dense, y []float64, n int) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for i := range n {
			if !yield(Row{Y: y[i%len(y)], Val: x.RawRowView(i % len(y))}, nil) {
				return
			}
		}
	}
}

// documentsOf returns the documents of c.
func documentsOf(c *Corpus) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for _, d := range c.Docs {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// cancelCases returns the functions that can be canceled, of sizes at which a step takes seconds,
// or of small sizes.
func cancelCases(t *testing.T) (cases []cancelCase) {
	size := func(full, short int) int {
		if !testkit.IsLong() {
			return short
		}
		return full
	}
	data := cancelData{t}
	add := func(name string, run func(ctx context.Context) error) {
		cases = append(cases, cancelCase{name: name, run: run})
	}
	setUp := func(name string, s Solver, m Model) {
		add(name+", set-up", func(ctx context.Context) error {
			_, err := s.Start(ctx, m)
			return err
		})
	}
	steps := func(name string, s Solver, m Model) {
		var res *Result
		cases = append(cases, cancelCase{name, func() (err error) {
			if res == nil || res.Status != NotTerminated && res.Status != Canceled {
				res, err = s.Start(context.Background(), m)
			}
			return err
		}, func(ctx context.Context) (err error) {
			res, err = s.Resume(ctx, res)
			return err
		}})
	}
	both := func(name string, s Solver, m Model) {
		setUp(name, s, m)
		steps(name, s, m)
	}

	x, y := data.table(size(2500, 500), 3)
	n := len(y)
	gp := testkit.Must(NewGP(x, y, Matern12{}, BernoulliLogit{}, nil))
	both("GP", Solver{}, gp)
	steps("GP, all terms", Solver{BatchSize: n}, gp)
	steps("GP, step size", Solver{StepSize: ConstantStep(0.5), BatchSize: n}, gp)
	x, y = data.table(size(1500, 300), 3)
	both("GP, another divergence", Solver{Divergence: SymKL()},
		testkit.Must(NewGP(x, y, Matern12{}, BernoulliLogit{}, nil)))

	x, y = data.table(size(5000, 1000), size(1000, 150))
	glm := func(o GLMOptions) *GLM { return testkit.Must(NewGLM(x, y, BernoulliLogit{}, &o)) }
	both("GLM", Solver{}, glm(GLMOptions{}))
	steps("GLM, all rows", Solver{BatchSize: len(y)}, glm(GLMOptions{}))
	steps("GLM, step size", Solver{StepSize: ConstantStep(0.1), BatchSize: 500}, glm(GLMOptions{}))
	steps("GLM, low rank", Solver{}, glm(GLMOptions{Covariance: LowRankCovariance}))
	steps("GLM, diagonal", Solver{}, glm(GLMOptions{Covariance: DiagonalCovariance}))
	both("GLM, full prior", Solver{}, glm(GLMOptions{Prior: NewIsotropic(x.RawMatrix().Cols, 1)}))
	x, y = data.table(size(1500, 300), size(300, 60))
	steps("GLM, another divergence", Solver{Divergence: ReverseKL()}, glm(GLMOptions{}))
	for i := range y {
		x.Set(i, 1, x.At(i, 0)+1e-9*x.At(i, 1))
	}
	steps("GLM, twice the digits", Solver{}, glm(GLMOptions{PriorSD: 1e6}))
	x, y = data.table(size(1500, 300), size(1600, 400))
	both("GLM, dual", Solver{}, glm(GLMOptions{}))
	steps("GLM, dual, all rows", Solver{BatchSize: len(y)}, glm(GLMOptions{}))
	for i := range y {
		x.Set(i, 0, 1e9+x.At(i, 0))
	}
	both("GLM, dual, far from zero", Solver{}, glm(GLMOptions{}))

	x, y = data.table(size(2000, 300), 10)
	for i := range y {
		y[i] = float64(i % 300)
	}
	both("GLM, 300 classes", Solver{}, testkit.Must(NewGLM(x, y, Softmax{Classes: 300}, nil)))

	z, y := data.sparse(size(32561, 4000), 123, 14)
	both("GLM, sparse", Solver{}, testkit.Must(NewGLM(z, y, BernoulliLogit{}, nil)))
	z, y = data.sparse(size(20000, 2000), size(50000, 3000), 60)
	for _, c := range []Covariance{LowRankCovariance, DiagonalCovariance} {
		both("GLM, sparse and wide, "+c.String(), Solver{},
			testkit.Must(NewGLM(z, y, BernoulliLogit{}, &GLMOptions{Covariance: c})))
	}

	x, y = data.table(size(30000, 3000), 5)
	add("SparseGP, inducing inputs", func(ctx context.Context) error {
		_, err := NewSparseGPContext(ctx, x, y, SquaredExp{}, BernoulliLogit{}, nil)
		return err
	})
	add("SparseGP, inducing inputs from a list", func(ctx context.Context) error {
		_, err := NewSparseGPContext(ctx, x, y, SquaredExp{}, BernoulliLogit{},
			&SparseGPOptions{Inducing: x.Slice(0, size(1000, 200), 0, 5)})
		return err
	})
	both("SparseGP", Solver{},
		testkit.Must(NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{},
			&SparseGPOptions{Rank: size(100, 40)})))

	c, topics := data.corpus(size(600, 280), size(3000, 500)), size(50, 12)
	for _, e := range []CTMExpectation{CTMQuasi, CTMMeanField, CTMDelta, CTMLaplace} {
		steps("CTM, "+e.String(), Solver{}, testkit.Must(NewCTM(c, topics,
			&CTMOptions{Expectation: e})))
	}
	for _, start := range []TopicStart{StartKMeans, StartAnchors} {
		setUp("CTM, "+start.String(), Solver{}, testkit.Must(NewCTM(c, topics,
			&CTMOptions{Start: start})))
	}
	add("CTM stream", func(ctx context.Context) error {
		return testkit.Must(NewCTMStream(c.Terms, topics, nil)).AddAll(ctx, documentsOf(c))
	})

	d := size(200, 50)
	ox, oy := data.table(size(4000, 500), d)
	rows := make([][]float64, len(oy))
	for i := range rows {
		rows[i] = ox.RawRowView(i)
	}
	sites := Sites{X: rows, Y: oy, Lik: BernoulliLogit{}}
	for name, m := range map[string]Objective[*Gaussian]{
		"exact": {F: Expect(sites, nil),
			Init: NewIsotropic(d, 1)},
		"log-Cholesky": {F: Expect(sites, nil),
			Init: NewIsotropic(d, 1).In(LogCholesky)},
		"Pathwise": {F: Expect(sites, Pathwise(0)),
			Init: NewIsotropic(d, 1)},
		"ScoreFunction": {F: Expect(sites, ScoreFunction(0)),
			Init: NewIsotropic(d, 1)},
		"of a GLM": testkit.Must(testkit.Must(NewGLM(ox, oy, BernoulliLogit{}, nil)).Objective()),
	} {
		if m.H == nil {
			m.H = KLTo(NewIsotropic(d, 1))
		}
		both("Objective, "+name, Solver{}, m)
	}

	d = size(400, 80)
	sx, sy := data.table(3*d, d)
	add("GLM stream", func(ctx context.Context) error {
		return testkit.Must(NewGLMStream(d, BernoulliLogit{}, nil)).AddAll(ctx, rowsOf(sx, sy,
			20*d))
	})
	seen := testkit.Must(NewGLMStream(d, BernoulliLogit{}, nil))
	if err := seen.AddAll(context.Background(), rowsOf(sx, sy, 2*d)); err != nil {
		t.Fatal(err)
	}
	post := testkit.Must(seen.Posterior())
	add("GLM posterior, update", func(ctx context.Context) error {
		_, err := post.Update(ctx, rowsOf(sx, sy, 2*d))
		return err
	})
	add("GLM posterior, removal", func(ctx context.Context) error {
		_, err := post.Remove(ctx, rowsOf(sx, sy, d/4))
		return err
	})
	return cases
}

// TestCancelAnswers checks that everything that takes a context ends soon after the context is
// done, at any size, and leaves no goroutine. It does not run in parallel, so that it has the
// processor time for itself.
func TestCancelAnswers(t *testing.T) {
	usersMoment(t)
	delays := []time.Duration{10, 250, 600}
	if !testkit.IsLong() {
		delays = []time.Duration{1, 10}
	}
	before := runtime.NumGoroutine()
	for i, c := range cancelCases(t) {
		for j, after := range delays {
			if !testkit.IsLong() && j != i%len(delays) {
				continue // each is canceled once
			}
			if c.ready != nil {
				if err := c.ready(); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
			}
			if testkit.IsLong() {
				// this case must not collect the garbage of the earlier cases
				debug.FreeOSMemory()
			}
			inner, cancel := context.WithTimeout(context.Background(), after*time.Millisecond)
			ctx := watch(inner)
			err := c.run(ctx)
			late, wall, longest := ctx.ended()
			cancel()
			t.Logf("%s, canceled after %v: late by %v of the processor, %v on the clock; %v "+
				"without a question", c.name, after*time.Millisecond,
				late.Round(time.Millisecond), wall.Round(time.Millisecond),
				longest.Round(time.Millisecond))
			if err != nil && !(errors.Is(err, context.DeadlineExceeded) &&
				testkit.PrefixedOnce(err)) {
				t.Errorf("%s: %v", c.name, err)
			}
			if max(late, longest) > mostLate {
				t.Errorf("%s: late by %v, %v without a question", c.name, late, longest)
			}
		}
	}
	goroutinesEnd(t, before)
}

// goroutinesEnd waits until there are no more goroutines than before.
func goroutinesEnd(t *testing.T, before int) {
	t.Helper()
	for range 3000 { // half a minute, for busy machines
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
}

// TestCancelPosterior checks that a cancellation is also noticed while the posterior of a run is
// computed, and that the run is returned.
func TestCancelPosterior(t *testing.T) {
	usersMoment(t)
	n := testkit.Longer(2500, testkit.Shorter(1500, 600))
	data := cancelData{t}
	x, y := data.table(n, 3)
	testCancelPosterior(t, "GP", testkit.Must(NewGP(x, y, Matern12{}, GaussianNoise{}, nil)))
	x, y = data.table(n/2, n/2+10)
	testCancelPosterior(t, "GLM", testkit.Must(NewGLM(x, y, BernoulliLogit{}, nil)))
}

// fitter is a model with its own Fit.
type fitter[P any] interface {
	Fit(ctx context.Context, s *Solver) (P, *Result, error)
	Posterior(st Stepper) (P, error)
}

func testCancelPosterior[P any](t *testing.T, name string, m fitter[*P]) {
	t.Helper()
	inner, cancel := context.WithCancel(context.Background())
	ctx := watch(inner)
	s := &Solver{MaxIter: 1, Record: func(Iteration) { // cancels while the posterior is computed
		time.AfterFunc(5*time.Millisecond, cancel)
	}}
	p, res, err := m.Fit(ctx, s)
	late, wall, _ := ctx.ended()
	t.Logf("%s: late by %v of the processor, %v on the clock; a posterior: %t, %v", name,
		late.Round(time.Millisecond), wall.Round(time.Millisecond), p != nil, err)
	if res == nil || res.K != 1 || p == nil && err == nil ||
		err != nil && !(errors.Is(err, context.Canceled) && testkit.PrefixedOnce(err)) {
		t.Fatalf("%s: %t, %v, %v", name, p != nil, res, err)
	}
	if late > mostLate {
		t.Errorf("%s: late by %v", name, late)
	}
	if _, err = m.Posterior(res.Stepper); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}
