// Package parallel runs loops on several goroutines.
//
// A Loop cuts 0 … n−1 into ranges, which several goroutines take one after another. Results must
// not depend on which goroutine takes which range; packages that add numbers store partial sums
// by range and add them in order. A Halt cancels a loop and limits its goroutines.
// helpers.go keeps idle goroutines awake between the many short loops of a fit.
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
	// Do runs the body for lo … hi−1. Calls with the same worker do not overlap.
	Do(worker, lo, hi int)
}

// Func is a function that implements Task.
type Func func(worker, lo, hi int)

// Do implements Task.
func (f Func) Do(worker, lo, hi int) { f(worker, lo, hi) }

// Panic is the panic of a Task on another goroutine, or one that At has described.
type Panic struct {
	Value any    // the argument of panic
	Stack []byte // stack of the goroutine that panicked
	Where string // description of the element; empty if unknown
	index int    // index of the element; −1 if unknown
}

// Error returns the value of the panic and its stack.
func (p *Panic) Error() string {
	if p.Where != "" {
		return fmt.Sprintf("%s: %v\n%s", p.Where, p.Value, p.Stack)
	}
	return fmt.Sprintf("%v\n%s", p.Value, p.Stack)
}

// Unwrap returns Value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Caught returns the Panic for a recovered value. A deferred function calls it.
func Caught(r any) *Panic {
	if p, ok := r.(*Panic); ok {
		return p
	}
	return &Panic{Value: r, Stack: debug.Stack(), index: -1}
}

// At describes a panic. Loops that call functions of others defer it, so that the panic continues
// as a *Panic that names the element. i is the index of the element, and where describes an
// element. One of them may be nil: an inner loop may know only the index, and an outer loop only
// the description.
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

// A Loop runs one loop at a time. If it is reused, it allocates no memory except for goroutines.
type Loop struct {
	Halt     *Halt // ends the loop before its next range
	n, chunk int
	task     Task
	next     atomic.Int64
	workers  atomic.Int64 // workers that have begun, except the caller
	left     atomic.Int64 // goroutines that have not ended
	wg       sync.WaitGroup
	caught   atomic.Pointer[Panic]
}

// Run calls t for ranges of at most chunk indices that make up 0 … n−1, in any order. It uses up
// to workers goroutines, one of which is the caller's. With one worker or one range it makes the
// calls itself, in order. If t panics on any goroutine, the loop ends and the caller panics, with
// a *Panic if there are several goroutines.
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
			l.next.Store(int64(l.n)) // ends the other workers
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

// For runs a loop once.
func For(n, chunk, workers int, f Func) { new(Loop).Run(n, chunk, workers, f) }

// Vectors calls f for chunks of the elements 0 … n−1 of vectors, which f adds or sums. If the vectors
// are long, it uses the goroutines that h lends. The chunks depend only on n, and chunk k begins at
// element k·VectorChunk.
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

// VectorChunk is the number of elements in a chunk of Vectors, so that a few vectors of this length
// fit in the cache. Vectors of fewer than vectorsShared elements take less time than waking another
// goroutine.
const (
	VectorChunk   = 4096
	vectorsShared = 1 << 15
)

// Each calls f for 0 … n−1 on the given number of goroutines. It returns the error of the
// smallest index that failed, for any number of workers. After a failure no larger index begins.
// After ctx is done no index begins, and Each returns the cause.
func Each(ctx context.Context, n, workers int, f func(worker, i int) error) error {
	var failed atomic.Int64 // the smallest index that failed
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
