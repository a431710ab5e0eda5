package parallel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestForVisitsEveryIndexOnce(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 3, 17} {
		for _, n := range []int{0, 1, 2, 7, 64, 65} {
			for _, chunk := range []int{1, 3, 8} {
				times := make([]atomic.Int32, n)
				For(n, chunk, workers, func(worker, lo, hi int) {
					if worker < 0 || worker >= workers || hi-lo > chunk {
						t.Errorf("worker %d of %d does %d … %d", worker, workers, lo, hi)
					}
					for i := lo; i < hi; i++ {
						times[i].Add(1)
					}
				})
				for i := range times {
					if k := times[i].Load(); k != 1 {
						t.Errorf("%d workers, chunks of %d: %d of %d was done %d times", workers,
							chunk, i, n, k)
					}
				}
			}
		}
	}
}

// TestVectors checks that chunks begin at multiples of VectorChunk and have each element once, for
// any number of goroutines.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 3} {
		for _, n := range []int{0, 1, VectorChunk, VectorChunk + 1, vectorsShared + 5} {
			var h Halt
			h.Lend(workers)
			times, chunks := make([]atomic.Int32, n), atomic.Int32{}
			Vectors(n, &h, func(lo, hi int) {
				if lo%VectorChunk != 0 || hi != min(n, lo+VectorChunk) {
					t.Errorf("a chunk of %d elements is %d … %d", n, lo, hi)
				}
				chunks.Add(1)
				for i := lo; i < hi; i++ {
					times[i].Add(1)
				}
			})
			want := (n + VectorChunk - 1) / VectorChunk
			if k := int(chunks.Load()); k != want {
				t.Errorf("%d elements have %d chunks, want %d", n, k, want)
			}
			for i := range times {
				if k := times[i].Load(); k != 1 {
					t.Fatalf("%d workers: element %d of %d came %d times", workers, i, n, k)
				}
			}
		}
	}
}

// Helpers that are handed from loop to loop, inner ones among them, at whatever moment they are
// about to end, miss no index and do none twice; and they end.
func TestHelpersAreHandedOn(t *testing.T) {
	var seen atomic.Bool
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var outer Loop
			rng := rand.New(rand.NewPCG(uint64(g), 0))
			for round := range 200 {
				var sum atomic.Int64
				outer.Run(6, 1, 3, Func(func(_, i, _ int) {
					if round%50 == 0 && i == 0 && helping() > 0 {
						seen.Store(true)
					}
					For(10, 3, 2, func(_, lo, hi int) {
						for j := lo; j < hi; j++ {
							sum.Add(int64(10*i + j))
						}
					})
				}))
				if got := sum.Load(); got != 59*60/2 {
					t.Errorf("round %d: the sum is %d", round, got)
				}
				if round%10 == 0 {
					// they end, or are about to
					time.Sleep(time.Duration(rng.Int64N(int64(2 * linger))))
				}
			}
		})
	}
	wg.Wait()
	if !seen.Load() {
		t.Error("no helpers are seen where there are some")
	}
	for end := time.Now().Add(10 * time.Second); helping() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d helpers are left", helping())
		}
	}
	if n := idle.Load(); n != 0 {
		t.Errorf("%d helpers are idle, and have ended", n)
	}
}

// TestHelpersAreIdleInTime checks that a helper is idle before the caller can see that it has
// finished its part of a loop.
func TestHelpersAreIdleInTime(t *testing.T) {
	for _, fails := range []bool{false, true} {
		l := Loop{n: 1, chunk: 1, task: Func(func(_, _, _ int) {
			if fails {
				panic("a loop that fails")
			}
		})}
		l.left.Store(1)
		l.wg.Add(1)
		before := idle.Load()
		l.work(1)
		if l.wg.Wait(); l.left.Load() != 0 || idle.Load() != before+1 || !take() {
			t.Errorf("fails %v: %d are left, and %d idle, not one", fails, l.left.Load(),
				idle.Load()-before)
		}
	}
	before := started.Load()
	For(4, 1, 3, func(_, _, _ int) {})
	if n := started.Load() - before; n > 2 {
		t.Errorf("%d helpers are begun for two", n)
	}
}

// helping returns the number of helpers that have not ended.
func helping() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]),
		"created by github.com/pgsvi/pgsvi/internal/parallel.help ")
}

func TestPanicReachesTheCaller(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4} {
		func() {
			defer func() {
				r := recover()
				if p, ok := r.(*Panic); workers > 1 &&
					(!ok || p.Value != "of the body" ||
						!strings.Contains(p.Error(), "for_test.go")) {
					t.Errorf("%d workers: recovered %v", workers, r)
				} else if workers == 1 && r != "of the body" {
					t.Errorf("1 worker: recovered %v", r)
				}
			}()
			var l Loop
			l.Run(100, 1, workers, Func(func(_, i, _ int) {
				if i == 40 {
					panic("of the body")
				}
			}))
			t.Errorf("%d workers: no panic", workers)
		}()
	}
	// A Loop can be used again.
	var l Loop
	func() {
		defer func() { _ = recover() }()
		l.Run(4, 1, 2, Func(func(_, _, _ int) { panic(1) }))
	}()
	var sum atomic.Int64
	l.Run(10, 1, 2, Func(func(_, i, _ int) { sum.Add(int64(i)) }))
	if sum.Load() != 45 {
		t.Errorf("after a panic the sum is %d", sum.Load())
	}
}

func TestEachReturnsTheLeastError(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 8} {
		for range 50 {
			err := Each(context.Background(), 200, workers, func(_, i int) error {
				if i%60 == 59 {
					return fmt.Errorf("index %d", i)
				}
				return nil
			})
			if err == nil || err.Error() != "index 59" {
				t.Fatalf("%d workers: %v", workers, err)
			}
		}
	}
}

func TestEachEndsWithTheContext(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	for _, workers := range []int{1, 3} {
		ctx, cancel := context.WithCancelCause(context.Background())
		var done atomic.Int32
		err := Each(ctx, 1000, workers, func(_, i int) error {
			switch n := done.Add(1); {
			case n == 10:
				cancel(why)
			case n > 10:
				<-ctx.Done()
			}
			return nil
		})
		if !errors.Is(err, why) || done.Load() > 9+int32(workers) {
			t.Errorf("%d workers: %v after %d", workers, err, done.Load())
		}
	}
}
