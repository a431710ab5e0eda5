// Package parallel shares loops between goroutines.
package parallel

import (
	"context"
	"fmt"
	"runtime/debug"
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

// Panic is a panic of a Task on another goroutine than the caller's, or one that At has named.
type Panic struct {
	Value any    // what it was called with
	Stack []byte // of the goroutine that panicked
	Where string // what it was about, "" if that is not known
	index int    // of the element, −1 if that is not known
}

// Error makes a Panic an error, whose text has the stack.
func (p *Panic) Error() string {
	if p.Where != "" {
		return fmt.Sprintf("%s: %v\n%s", p.Where, p.Value, p.Stack)
	}
	return fmt.Sprintf("%v\n%s", p.Value, p.Stack)
}

// Unwrap returns Value where that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Caught returns the Panic of a value that was recovered, by the deferred function that calls it.
func Caught(r any) *Panic {
	if p, ok := r.(*Panic); ok {
		return p
	}
	return &Panic{Value: r, Stack: debug.Stack(), index: -1}
}

// At is deferred by loops that call functions of others: a panic goes on as a *Panic that says
// where it was. i is the element that the loop is at, and where describes an element. One of them
// may be nil: an inner loop may know the number of the element alone, and an outer one how to
// describe it.
func At(i *int, where func(i int) string) {
	r := recover()
	if r == nil {
		return
	}
	p := Caught(r)
	if p.index < 0 && i != nil {
		p.index = *i
	}
	if p.Where == "" && p.index >= 0 && where != nil {
		p.Where = where(p.index)
	}
	panic(p)
}

// A Loop runs one loop at a time. Kept for further loops, it allocates no memory but that of
// goroutines.
type Loop struct {
	Halt     *Halt // once it has stopped no further range is begun
	n, chunk int
	task     Task
	next     atomic.Int64
	workers  atomic.Int64 // that have begun, besides the caller
	left     atomic.Int64 // goroutines that have not come to an end
	wg       sync.WaitGroup
	caught   atomic.Pointer[Panic]
}

// Run has t do ranges of at most chunk that make up 0 … n−1, in any order. There are as many
// goroutines as workers; the caller's is one of them. With one worker or one range it makes the
// calls itself, in order. A panic of t on whatever goroutine is one of the caller's, with a *Panic
// where there are several, and ends the loop.
func (l *Loop) Run(n, chunk, workers int, t Task) {
	if workers = min(workers, (n+chunk-1)/chunk); workers <= 1 {
		for lo := 0; lo < n && !l.Halt.Stopped(); lo += chunk {
			t.Do(0, lo, min(n, lo+chunk))
		}
		return
	}
	l.n, l.chunk, l.task = n, chunk, t
	l.next.Store(0)
	l.workers.Store(0)
	l.caught.Store(nil)
	l.left.Store(int64(workers))
	l.wg.Add(workers)
	for range workers - 1 {
		help(l)
	}
	l.work(0)
	soon(func() bool { return l.left.Load() == 0 })
	l.wg.Wait()
	l.task = nil
	if p := l.caught.Load(); p != nil {
		panic(p)
	}
}

func (l *Loop) work(worker int) {
	defer func() {
		if r := recover(); r != nil {
			l.caught.CompareAndSwap(nil, Caught(r))
			l.next.Store(int64(l.n)) // the others come to an end
		}
		if worker > 0 {
			idle.Add(1)
		}
		l.left.Add(-1)
		l.wg.Done()
	}()
	for { // l.next reaches l.n
		hi := int(l.next.Add(int64(l.chunk)))
		if hi-l.chunk >= l.n || l.Halt.Stopped() {
			return
		}
		l.task.Do(worker, hi-l.chunk, min(l.n, hi))
	}
}

// For is Run for a loop that comes once.
func For(n, chunk, workers int, f Func) { new(Loop).Run(n, chunk, workers, f) }

// Vectors calls f for chunks of the elements 0 … n−1 of vectors, which f adds or sums, on as many
// goroutines as h lends if the vectors are long. The chunks depend on n alone, and chunk k has the
// elements from k·VectorChunk on.
func Vectors(n int, h *Halt, f func(lo, hi int)) {
	workers := 1
	if n >= vectorsShared {
		workers = h.Workers()
	}
	if workers <= 1 {
		for lo := 0; lo < n; lo += VectorChunk {
			f(lo, min(lo+VectorChunk, n))
		}
		return
	}
	For(n, VectorChunk, workers, func(_, lo, hi int) { f(lo, hi) })
}

// VectorChunks returns the number of chunks of Vectors.
func VectorChunks(n int) int { return (n + VectorChunk - 1) / VectorChunk }

// VectorChunk is the number of elements that Vectors takes together: a handful of vectors of that
// length are in the cache. Fewer than vectorsShared elements take no longer than it does to wake
// another goroutine.
const (
	VectorChunk   = 4096
	vectorsShared = 1 << 15
)

// Each calls f for 0 … n−1, from as many goroutines as there are workers. It returns the error of
// the smallest index that failed, for any number of workers. Once f has failed, no greater index is
// begun; once ctx is done none is, and its cause is returned.
func Each(ctx context.Context, n, workers int, f func(worker, i int) error) error {
	var failed atomic.Int64 // the least index that failed
	failed.Store(int64(n))
	errs := make([]error, n)
	For(n, 1, workers, func(worker, i, _ int) {
		if int64(i) > failed.Load() || ctx.Err() != nil {
			return
		}
		if errs[i] = f(worker, i); errs[i] == nil {
			return
		}
		for least := failed.Load(); int64(i) < least; least = failed.Load() {
			if failed.CompareAndSwap(least, int64(i)) {
				return
			}
		}
	})
	if i := int(failed.Load()); i < n {
		return errs[i]
	}
	return context.Cause(ctx)
}
