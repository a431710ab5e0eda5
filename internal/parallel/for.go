// Package parallel shares loops between goroutines.
package parallel

import (
	"sync"
	"sync/atomic"
)

// A Task is the body of a loop.
type Task interface {
	// Do does lo … hi−1. Calls with the same worker follow one another.
	Do(worker, lo, hi int)
}

// Func is a Task.
type Func func(worker, lo, hi int)

// Do implements Task.
func (f Func) Do(worker, lo, hi int) { f(worker, lo, hi) }

// A Loop runs one loop at a time; it can be part of what is used again and again,
// for which no memory is then allocated but that of goroutines.
type Loop struct {
	next atomic.Int64
	wg   sync.WaitGroup
}

// Run makes t do ranges of at most chunk that make up 0 … n−1, in any order, from as
// many goroutines as there are workers, the caller's among them. With one worker or
// one range it makes the calls itself, in order.
func (l *Loop) Run(n, chunk, workers int, t Task) {
	if workers = min(workers, (n+chunk-1)/chunk); workers <= 1 {
		for lo := 0; lo < n; lo += chunk {
			t.Do(0, lo, min(n, lo+chunk))
		}
		return
	}
	l.next.Store(0)
	for w := range workers - 1 {
		l.wg.Add(1)
		go l.work(w+1, n, chunk, t)
	}
	l.wg.Add(1)
	l.work(0, n, chunk, t)
	l.wg.Wait()
}

func (l *Loop) work(worker, n, chunk int, t Task) {
	defer l.wg.Done()
	for {
		hi := int(l.next.Add(int64(chunk)))
		if hi-chunk >= n {
			return
		}
		t.Do(worker, hi-chunk, min(n, hi))
	}
}

// For is Run for a loop that comes once.
func For(n, chunk, workers int, f Func) { new(Loop).Run(n, chunk, workers, f) }
