package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

// Env holds the random numbers and workers of a call to a Stepper. A nil Env has a fixed seed and
// one worker.
type Env struct {
	// Rng is the source of all randomness of the call. Nil means a fixed seed.
	Rng     *rand.Rand
	workers int     // Solver.Workers
	goal    float64 // Solver.Goal
	batch   int     // Solver.BatchSize
}

// NewEnv returns an Env for callers that drive a Stepper themselves. A nil src means a fixed seed.
// A number of workers below one means one.
func NewEnv(src rand.Source, workers int) *Env {
	if src == nil {
		src = rand.NewPCG(seed1, seed2)
	}
	return &Env{Rng: rand.New(src), workers: max(1, workers)}
}

// Workers returns the number of goroutines for functions that may be unsafe for concurrent use. It
// is Solver.Workers, or 1 if that is zero.
func (e *Env) Workers() int {
	if e == nil {
		return 1
	}
	return max(1, e.workers)
}

// cores returns the number of goroutines for functions that are safe for concurrent use. It is
// Solver.Workers, or the number of processors if that is zero.
func (e *Env) cores() int {
	if e == nil {
		return 1
	}
	return cmp.Or(e.workers, runtime.GOMAXPROCS(0))
}

// within returns Solver.Goal, in nats, or 0.
func (e *Env) within() float64 {
	if e == nil {
		return 0
	}
	return e.goal
}

// size returns Solver.BatchSize, or 0.
func (e *Env) size() int {
	if e == nil {
		return 0
	}
	return e.batch
}

// Each calls f for 0 … n−1 on the workers, and each worker runs one call at a time. It returns the
// error of the smallest index that failed, for any number of workers. After a failure, or once ctx
// is done, no further index starts. If ctx is done, Each returns its cause. A panic of f reaches
// the caller.
func (e *Env) Each(ctx context.Context, n int, f func(worker, i int) error) error {
	return parallel.Each(ctx, n, e.Workers(), f)
}

// PanicError is a panic in a function of the caller, such as LogLik.LogProb or a Likelihood. With
// Solver.Recover, the error of a run contains it for errors.As. Without Recover, the caller
// recovers a PanicError if the panic was on another goroutine or during the work on a known term,
// and the argument of panic otherwise.
//
// Value is the argument of panic, Stack is the stack of the goroutine, and Where names the term or
// is "". A PanicError unwraps to Value if that is an error.
type PanicError = parallel.Panic

// recovered is a PanicError whose text omits the stack.
type recovered struct{ p *PanicError }

func (e recovered) Error() string {
	if e.p.Where == "" {
		return fmt.Sprintf("%v: %v", e.p.Value, ErrPanic)
	}
	return fmt.Sprintf("%s: %v: %v", e.p.Where, e.p.Value, ErrPanic)
}

func (e recovered) Unwrap() []error { return []error{ErrPanic, e.p} }

// rng returns e.Rng, or a generator with a fixed seed.
func (e *Env) rng() *rand.Rand {
	if e == nil || e.Rng == nil {
		return rand.New(rand.NewPCG(seed1, seed2))
	}
	return e.Rng
}

// The seed of everything for which the caller gives no source of randomness.
const seed1, seed2 = 0x5eed, 0xe1b0

// ctxEvery is the number of terms between two checks of a context.
const ctxEvery = 16

// checkMemory returns an error that wraps ErrMemory if what needs more bytes than the limit most,
// or than the limit of ErrMemory if most is 0. Call it before allocating. The text instead is the
// remedy in the message.
func checkMemory(most int64, need float64, what, instead string) error {
	return prefixed(memory.Check(most, need, what, instead))
}

// mustMemory panics with the error of checkMemory, for functions that return no error. A caller can
// recover from a panic, but not from running out of memory.
func mustMemory(most int64, need float64, what, instead string) {
	if err := checkMemory(most, need, what, instead); err != nil {
		panic(err)
	}
}
