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

// Env is what a Solver lends a Stepper for the time of a call: randomness and
// workers. A nil Env has a fixed seed and one worker.
type Env struct {
	// Rng is the source of all randomness of the call. Nil means one of a fixed seed.
	Rng     *rand.Rand
	workers int     // Solver.Workers
	goal    float64 // Solver.Goal
}

// NewEnv returns an Env for those who drive a Stepper by hand. A nil src means a
// fixed seed, and less than one worker one.
func NewEnv(src rand.Source, workers int) *Env {
	if src == nil {
		src = rand.NewPCG(seed1, seed2)
	}
	return &Env{Rng: rand.New(src), workers: max(1, workers)}
}

// Workers returns the number of goroutines that the call may use for functions that need not be
// safe for concurrent use: Solver.Workers, or 1 where that is zero.
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

// Each calls f for 0 … n−1 from the workers, each of which has one call at a time, and
// returns the error of the least index that failed, whatever the number of workers. Once f
// has failed, or ctx is done, no further index is begun; in the latter case it
// returns the cause. A panic of f reaches the caller.
func (e *Env) Each(ctx context.Context, n int, f func(worker, i int) error) error {
	return parallel.Each(ctx, n, e.Workers(), f)
}

// PanicError is the panic of a function that this package called, such as LogLik.LogProb or a
// Likelihood. With Solver.Recover the error of a run holds it, for errors.As. Otherwise it is what
// the caller recovers where the panic was on another goroutine or about a datum; in other cases the
// caller recovers the value itself.
//
// Value is what panic was called with, Stack that of the goroutine, and Where names
// the datum, "" if it was about none. It unwraps to a Value that is an error.
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

// checkMemory returns an error that wraps ErrMemory if what needs more bytes than the limit, which
// is most where that is not 0; see ErrMemory. It is asked before they are. Instead says what to do.
func checkMemory(most int64, need float64, what, instead string) error {
	return prefixed(memory.Check(most, need, what, instead))
}

// mustMemory is checkMemory for those who return no error: it panics with it, which a caller can
// recover from, and not from being out of memory.
func mustMemory(most int64, need float64, what, instead string) {
	if err := checkMemory(most, need, what, instead); err != nil {
		panic(err)
	}
}
