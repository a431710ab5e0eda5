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

// Env gives a Stepper the random numbers and workers for a call. A nil Env has a fixed seed and
// one worker.
type Env struct {
	// Rng is the source of all randomness of the call. Nil means a fixed seed.
	Rng     *rand.Rand
	workers int     // Solver.Workers
	goal    float64 // Solver.Goal
}

// NewEnv returns an Env for callers that drive a Stepper themselves. A nil src means a fixed
// seed. Fewer than one worker means one.
func NewEnv(src rand.Source, workers int) *Env {
	if src == nil {
		src = rand.NewPCG(seed1, seed2)
	}
	return &Env{Rng: rand.New(src), workers: max(1, workers)}
}

// Workers returns the number of goroutines for functions that may be unsafe for concurrent use:
// Solver.Workers, or 1 if that is zero.
func (e *Env) Workers() int {
	if e == nil {
		return 1
	}
	return max(1, e.workers)
}

// cores returns the number of goroutines for what is safe for concurrent use: as many as there are
// processors where the Solver does not say.
func (e *Env) cores() int {
	if e == nil {
		return 1
	}
	return cmp.Or(e.workers, runtime.GOMAXPROCS(0))
}

// within returns the gap that is asked for, in nats, or 0.
func (e *Env) within() float64 {
	if e == nil {
		return 0
	}
	return e.goal
}

// Each calls f for 0 … n−1 on the workers, one call at a time on each. It returns the error of
// the smallest index that failed, for any number of workers. After a failure, or once ctx is
// done, no further index starts. If ctx is done it returns the cause. A panic of f reaches the
// caller.
func (e *Env) Each(ctx context.Context, n int, f func(worker, i int) error) error {
	return parallel.Each(ctx, n, e.Workers(), f)
}

// PanicError is a panic in a function of the caller, such as LogLik.LogProb or a Likelihood. With
// Solver.Recover the error of a run contains it, for errors.As. Without it, the caller recovers a
// PanicError if the panic was on another goroutine or about a datum, and the value itself
// otherwise.
//
// Value is the argument of panic, Stack the stack of the goroutine, and Where names the datum, or
// is "". It unwraps to Value if that is an error.
type PanicError = parallel.Panic

// recovered is the error of a PanicError, without the stack in its text.
type recovered struct{ p *PanicError }

func (e recovered) Error() string {
	if e.p.Where == "" {
		return fmt.Sprintf("%v: %v", e.p.Value, ErrPanic)
	}
	return fmt.Sprintf("%s: %v: %v", e.p.Where, e.p.Value, ErrPanic)
}

func (e recovered) Unwrap() []error { return []error{ErrPanic, e.p} }

// rng returns the generator of e.
func (e *Env) rng() *rand.Rand {
	if e == nil || e.Rng == nil {
		return rand.New(rand.NewPCG(seed1, seed2))
	}
	return e.Rng
}

// The seed of whatever has no source of randomness of the caller's.
const seed1, seed2 = 0x5eed, 0xe1b0

// ctxEvery is the number of terms between two looks at a context.
const ctxEvery = 16

// checkMemory returns an error that wraps ErrMemory if what needs more bytes than the limit:
// most, or the one at ErrMemory if most is 0. Call it before taking the memory. Instead says what
// to do.
func checkMemory(most int64, need float64, what, instead string) error {
	return prefixed(memory.Check(most, need, what, instead))
}

// mustMemory is checkMemory for functions without an error: it panics with it. A caller can
// recover from that, unlike from running out of memory.
func mustMemory(most int64, need float64, what, instead string) {
	if err := checkMemory(most, need, what, instead); err != nil {
		panic(err)
	}
}
