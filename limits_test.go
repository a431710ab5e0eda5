package pgsvi

import (
	"bytes"
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

	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// allocated returns how many bytes f allocates in all, which is more than it has at any one time.
// Others' memory would count, so the tests that use it do not run in parallel.
func allocated(f func()) uint64 {
	bytes := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(bytes)
	before := bytes[0].Value.Uint64()
	f()
	metrics.Read(bytes)
	return bytes[0].Value.Uint64() - before
}

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
		y[i] = plusMinus(i%2 == 0)
	}
	return x, y
}

// emptyRows returns n rows without a value and of so many columns, and their labels.
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
	return fileOf(t, gpFile,
		fmt.Sprintf(`{"rows":%d,"cols":1,"kernel":{"type":"pgsvi.SquaredExp","value":{}},"likelihood":{"type":"pgsvi.BernoulliLogit","value":{}},"x":%s,"gamma":%s,"a":%s,"m":%s,"v":%s}`, n, zeros, zeros, zeros, zeros, zeros))
}

// TestMemory: what would need more memory than there may be is an error before it is taken, which
// says how much that is and what to do, and names what does not return an error in a panic that can
// be panicOf from.
func TestMemory(t *testing.T) {
	ctx := context.Background()
	x, y := manyRows(200000)
	mid, midY := manyRows(11000)
	small, smallY := savedData(20, 2, BernoulliLogit{}, 1)
	file := hugeGPFile(t, 60000)
	dual, dualY := emptyRows(t, 20000, 1000000)
	primal, primalY := emptyRows(t, 30000, 20000)
	wide, wideY := emptyRows(t, 1, math.MaxInt32)
	gp := toyGP(t, 5, SquaredExp{}, BernoulliLogit{}, 1)
	gpPost, _ := mustFit(t, gp, nil)
	diag, err := NewGLM(NewSparse(100000), nil, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	diagPost, _ := fitGLM(t, diag, nil)
	ctm, _ := fitCTM(t, smallCorpus(), 2, nil, &Solver{MaxPasses: 1})
	manyDocs := &Corpus{Terms: 5, Docs: make([]Document, 2000000)}
	manyDocs.Docs[7] = Document{[]int{1}, []float64{1}}
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
			_, err := diagPost.withoutRows().Update(ctx, Rows(small, smallY))
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
			c := *smallCorpus()
			c.Terms = 2e9
			_, err := NewCTM(&c, 10, nil)
			return err
		}, "a CTM of 10 topics and 2000000000 terms needs 1.28 TB"},
		"NewCTM, topics": {func() error {
			_,
				err := NewCTM(smallCorpus(), 1e6, nil)
			return err
		}, "a CTM of 1000000 topics"},
		"NewCTM, documents": {func() error { _, err := NewCTM(manyDocs, 100, nil); return err },
			"with q(z) of 2000000 documents needs 165 GB"},
		"NewCTM, samples": {func() error {
			_, err := NewCTM(smallCorpus(), 10000, &CTMOptions{Samples: 100000})
			return err
		}, "a CTM of 10000 topics"},
		"NewCTMStream": {func() error { _, err := NewCTMStream(2e9, 10, nil); return err },
			"2000000000 terms"},
		"HeldOut": {func() error {
			_, err := ctm.HeldOut(smallCorpus(),
				&HeldOutOptions{Draws: 1e7, ByWord: true, Workers: 1e9})
			return err
		}, ""},
		"Gram": {func() error {
			return panicOf(func() { Gram(nil, SquaredExp{}, x) })
		}, "the covariance of 200000 rows needs 320 GB of memory, and the limit is 8 GB; give " +
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
		"ScoreFunction": {func() error { return objective(ScoreFunction{Samples: 1e7}) },
			"an estimate from 10000000 draws of 1000 dimensions needs 240 GB"},
		"Pathwise": {func() error { return Pathwise{Samples: math.MaxInt}.validate() },
			"take fewer Samples"},
		"GaussHermite": {func() error { return GaussHermite{Nodes: math.MaxInt}.validate() },
			"take fewer Nodes"},
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
		n := allocated(func() { err = c.f() })
		if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), c.says) ||
			!prefixedOnce(err) || !strings.HasSuffix(err.Error(), ErrMemory.Error()) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if n > 64<<20 {
			t.Errorf("%s: %d MB allocated", name, n>>20)
		}
	}
}

// TestMaxMemory: the option raises the limit and lowers it, and so does that of the runtime where
// there is no option.
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
	few, fewY := savedData(20, 2, BernoulliLogit{}, 1)
	for name, err := range map[string]error{
		"GP": second(NewGP(few, fewY, SquaredExp{}, nil, &GPOptions{MaxMemory: 1000})),
		"SparseGP": second(NewSparseGP(few, fewY, SquaredExp{}, nil,
			&SparseGPOptions{MaxMemory: 1000})),
		"GLM":       second(NewGLM(few, fewY, nil, &GLMOptions{MaxMemory: 100})),
		"GLMStream": second(NewGLMStream(2, nil, &GLMOptions{MaxMemory: 100})),
		"CTM":       second(NewCTM(smallCorpus(), 2, &CTMOptions{MaxMemory: 100})),
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
		"CTM":       second(NewCTM(smallCorpus(), 2, &CTMOptions{MaxMemory: -1})),
	} {
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "MaxMemory") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestMemoryEstimates: a model takes no more memory than it asks for, nor does it ask for many
// times what it takes.
func TestMemoryEstimates(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for some seconds")
	}
	ctx := context.Background()
	x, y := savedData(800, 2, BernoulliLogit{}, 1)
	fat, fatY := savedData(600, 1000, BernoulliLogit{}, 1)
	tall, tallY := savedData(1200, 500, BernoulliLogit{}, 1)
	wide, wideY := emptyRows(t, 2, 300000)
	few, fewY := textLabels(500, 30000)
	corpus := smallCorpus()
	corpus.Terms = 200000
	for name, c := range map[string]struct {
		asked error // of a model that may take next to no memory
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

// sizeIn returns the bytes that an error of memory says are needed.
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

// mostLate is how late an answer may be. The goal is 0.2 s; the test allows for machines that are
// slow: on some the first touch of 100 MB takes half a second.
const mostLate = 2 * time.Second

// watchedContext measures how long no one asks it whether it is done, and how long its user takes
// to end once it is. Time is that of the processor, which other processes do not change.
type watchedContext struct {
	context.Context
	mu       sync.Mutex
	last     float64
	longest  float64 // between two questions
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

// ended returns how late the end is, in time of the processor and on the clock, and the longest
// time without a question.
func (w *watchedContext) ended() (late, wall, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	if !w.doneTime.IsZero() {
		late, wall = seconds(cputime.Seconds()-w.doneAt), time.Since(w.doneTime)
	}
	return late, wall, seconds(w.longest)
}

// A cancelCase takes long, and is called again and again, each time with a context that is soon
// done.
type cancelCase struct {
	name  string
	ready func() error // called before; nil for nothing to do
	run   func(ctx context.Context) error
}

// cancelData makes random data for cancelCases.
type cancelData struct{ testing.TB }

func (cancelData) table(n, d int) (*mat.Dense, []float64) {
	rng := testRand(64)
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		row := x.RawRowView(i)
		for j := range row {
			row[j] = rng.NormFloat64()
		}
		y[i] = plusMinus(row[0]+rng.NormFloat64() > 0)
	}
	return x, y
}

func (t cancelData) sparse(n, d, nnz int) (*Sparse, []float64) {
	rng := testRand(65)
	x, y := NewSparse(d), make([]float64, n)
	ind, val := make([]int, nnz), make([]float64, nnz)
	for i := range n {
		for k := range ind {
			ind[k], val[k] = k*(d/nnz)+rng.IntN(d/nnz), 1
		}
		if err := x.Append(ind, val); err != nil {
			t.Fatal(err)
		}
		y[i] = plusMinus(ind[0]%2 == 0)
	}
	return x, y
}

func (cancelData) corpus(docs, terms int) *Corpus {
	rng := testRand(66)
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

// rowsOf returns so many rows of x.
func rowsOf(x *mat.Dense, y []float64, n int) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for i := range n {
			if !yield(Row{Y: y[i%len(y)], Val: x.RawRowView(i % len(y))}, nil) {
				return
			}
		}
	}
}

// documentsOf returns those of c.
func documentsOf(c *Corpus) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for _, d := range c.Docs {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// cancelCases returns what can be canceled, of sizes at which a step takes seconds, or of short
// ones.
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
	gp := must(NewGP(x, y, Matern12{}, BernoulliLogit{}, nil))
	both("GP", Solver{}, gp)
	steps("GP, all terms", Solver{BatchSize: n}, gp)
	steps("GP, step size", Solver{StepSize: ConstantStep(0.5), BatchSize: n}, gp)
	x, y = data.table(size(1500, 300), 3)
	both("GP, another divergence", Solver{Divergence: SymKL()},
		must(NewGP(x, y, Matern12{}, BernoulliLogit{}, nil)))

	x, y = data.table(size(5000, 1000), size(1000, 150))
	glm := func(o GLMOptions) *GLM { return must(NewGLM(x, y, BernoulliLogit{}, &o)) }
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

	z, y := data.sparse(size(32561, 4000), 123, 14)
	both("GLM, sparse", Solver{}, must(NewGLM(z, y, BernoulliLogit{}, nil)))
	z, y = data.sparse(size(20000, 2000), size(50000, 3000), 60)
	for _, c := range []Covariance{LowRankCovariance, DiagonalCovariance} {
		both("GLM, sparse and wide, "+c.String(), Solver{},
			must(NewGLM(z, y, BernoulliLogit{}, &GLMOptions{Covariance: c})))
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
		must(NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{},
			&SparseGPOptions{Rank: size(100, 40)})))

	c, topics := data.corpus(size(600, 280), size(3000, 500)), size(50, 12)
	for _, e := range []CTMExpectation{CTMQuasi, CTMMeanField, CTMDelta, CTMLaplace} {
		steps("CTM, "+e.String(), Solver{}, must(NewCTM(c, topics, &CTMOptions{Expectation: e})))
	}
	for _, start := range []TopicStart{StartKMeans, StartAnchors} {
		setUp("CTM, "+start.String(), Solver{}, must(NewCTM(c, topics, &CTMOptions{Start: start})))
	}
	add("CTM stream", func(ctx context.Context) error {
		return must(NewCTMStream(c.Terms, topics, nil)).AddAll(ctx, documentsOf(c))
	})

	d := size(200, 50)
	ox, oy := data.table(size(4000, 500), d)
	rows := make([][]float64, len(oy))
	for i := range rows {
		rows[i] = ox.RawRowView(i)
	}
	for name, m := range map[string]Objective[*Gaussian]{
		"exact": {F: Expect(Sites{rows, oy, BernoulliLogit{}}, nil),
			Init: NewIsotropic(d, 1)},
		"log-Cholesky": {F: Expect(Sites{rows, oy, BernoulliLogit{}}, nil),
			Init: NewIsotropic(d, 1).In(LogCholesky)},
		"Pathwise": {F: Expect(Sites{rows, oy, BernoulliLogit{}}, Pathwise{}),
			Init: NewIsotropic(d, 1)},
		"ScoreFunction": {F: Expect(Sites{rows, oy, BernoulliLogit{}}, ScoreFunction{}),
			Init: NewIsotropic(d, 1)},
		"of a GLM": must(must(NewGLM(ox, oy, BernoulliLogit{}, nil)).Objective()),
	} {
		if m.H == nil {
			m.H = KLTo(NewIsotropic(d, 1))
		}
		both("Objective, "+name, Solver{}, m)
	}

	d = size(400, 80)
	sx, sy := data.table(3*d, d)
	add("GLM stream", func(ctx context.Context) error {
		return must(NewGLMStream(d, BernoulliLogit{}, nil)).AddAll(ctx, rowsOf(sx, sy, 20*d))
	})
	seen := must(NewGLMStream(d, BernoulliLogit{}, nil))
	if err := seen.AddAll(context.Background(), rowsOf(sx, sy, 2*d)); err != nil {
		t.Fatal(err)
	}
	post := must(seen.Posterior())
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

// TestCancelAnswers: whatever takes a context ends soon after that is done, at any size, and leaves
// no goroutine. It is not parallel, so that the time of the processor is its own.
func TestCancelAnswers(t *testing.T) {
	usersMoment(t)
	delays := []time.Duration{10, 250, 600}
	if !testkit.IsLong() {
		delays = []time.Duration{1, 30}
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
				// what the cases before have left is not for this one to collect and clear
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
			if err != nil && !(errors.Is(err, context.DeadlineExceeded) && prefixedOnce(err)) {
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
	for range 3000 { // half a minute, for machines that are busy
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
}

// cancelAtEnd cancels a run a moment after its last step, while its posterior is made.
type cancelAtEnd struct{ cancel context.CancelFunc }

func (c cancelAtEnd) Record(it Iteration) { time.AfterFunc(5*time.Millisecond, c.cancel) }

// TestCancelPosterior: a context that is done when the posterior of a run is made is answered, too;
// the run is there.
func TestCancelPosterior(t *testing.T) {
	usersMoment(t)
	n := 2500
	if testing.Short() {
		n = 600
	}
	data := cancelData{t}
	x, y := data.table(n, 3)
	testCancelPosterior(t, "GP", must(NewGP(x, y, Matern12{}, GaussianNoise{}, nil)))
	x, y = data.table(n/2, n/2+10)
	testCancelPosterior(t, "GLM", must(NewGLM(x, y, BernoulliLogit{}, nil)))
}

func testCancelPosterior[P any](t *testing.T, name string, m poster[*P]) {
	t.Helper()
	inner, cancel := context.WithCancel(context.Background())
	ctx := watch(inner)
	s := &Solver{MaxIter: 1, Recorder: cancelAtEnd{cancel}}
	p, res, err := fitModel(ctx, s, m)
	late, wall, _ := ctx.ended()
	t.Logf("%s: late by %v of the processor, %v on the clock; a posterior: %t, %v", name,
		late.Round(time.Millisecond), wall.Round(time.Millisecond), p != nil, err)
	if res == nil || res.K != 1 || p == nil && err == nil ||
		err != nil && !(errors.Is(err, context.Canceled) && prefixedOnce(err)) {
		t.Fatalf("%s: %t, %v, %v", name, p != nil, res, err)
	}
	if late > mostLate {
		t.Errorf("%s: late by %v", name, late)
	}
	if _, err = m.Posterior(res.Stepper); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestStreamCanceled: a stream that is canceled wherever it looks at its context goes on to the
// bits of one that was not.
func TestStreamCanceled(t *testing.T) {
	t.Parallel()
	times := 60
	if testing.Short() {
		times = 12
	}
	data := cancelData{t}
	x, y := data.table(200, 5)
	y[50] = math.NaN() // is left out
	canceledStream(t, "GLM", times, func() *GLMStream {
		s := must(NewGLMStream(5, BernoulliLogit{}, nil))
		learnInBlocks(s, 16)
		return s
	}, func(i int) Row { return Row{Y: y[i], Val: x.RawRowView(i)} }, 200)
	c := data.corpus(300, 60)
	canceledStream(t, "CTM", times/2, func() *CTMStream { return must(NewCTMStream(60, 3, nil)) },
		func(i int) Document { return c.Docs[i] }, 300)
}

// canceledStream compares streams of n items that are canceled now and then with one that is not.
func canceledStream[R, P any](t *testing.T, name string, times int, start func() *Stream[R, P],
	item func(int) R, n int) {
	t.Helper()
	rng := testRand(67)
	from := func(i int) iter.Seq2[R, error] {
		return func(yield func(R, error) bool) {
			for ; i < n; i++ {
				if !yield(item(i), nil) {
					return
				}
			}
		}
	}
	// all adds all items under contexts that ctx makes.
	all := func(s *Stream[R, P], ctx func() context.Context) (canceled int) {
		for {
			err := s.AddAll(ctx(), from(s.engine.given()))
			switch {
			case err == nil:
				return canceled
			case errors.Is(err, context.Canceled):
				canceled++
				if rng.IntN(4) == 0 { // asking changes nothing
					if _, err := s.Posterior(); err != nil && !errors.Is(err, ErrEmpty) {
						t.Fatal(err)
					}
				}
			case !errors.Is(err, ErrNotFinite):
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	bits := func(s *Stream[R, P]) string {
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	whole, asked := start(), testkit.NewAsked(math.MaxInt64)
	all(whole, func() context.Context { return asked })
	want, total := bits(whole), 0
	for range times {
		s := start()
		total += all(s, func() context.Context { return testkit.NewAsked(rng.Int64N(asked.Asked.Load())) })
		if bits(s) != want {
			t.Fatalf("%s: another stream", name)
		}
	}
	if total < times/2 {
		t.Errorf("%s: %d cancellations of %d", name, total, times)
	}
	t.Logf("%s: %d cancellations", name, total)
}
