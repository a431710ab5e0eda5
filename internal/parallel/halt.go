package parallel

import (
	"context"
	"time"
)

// LastMoment is the time that a run may take after its context is done, for the last evaluation
// and the posterior. Tests make it longer, so that they do not depend on the load of the machine.
var LastMoment = 50 * time.Millisecond

// A Halt cancels long computations. They then end soon, with undefined results. A nil Halt never
// stops, nor does one that watches nothing. A Halt that has stopped stays stopped until it
// watches another context. It also holds the number of goroutines that computations may use.
type Halt struct {
	ctx     context.Context
	workers int
}

// Watch stops h when ctx is done. No computation may be running.
func (h *Halt) Watch(ctx context.Context) { h.ctx = ctx }

// Lend allows computations to use the given number of goroutines until Forget.
func (h *Halt) Lend(workers int) { h.workers = workers }

// Forget ends Watch and Lend.
func (h *Halt) Forget() { *h = Halt{} }

// Workers returns the number of goroutines that a computation may use, including the caller's. It
// is 1 unless Lend allows more.
func (h *Halt) Workers() int {
	if h == nil {
		return 1
	}
	return max(1, h.workers)
}

// Stopped reports whether results are no longer wanted.
func (h *Halt) Stopped() bool { return h != nil && h.ctx != nil && h.ctx.Err() != nil }

// Err returns the cause if h has stopped, and nil otherwise.
func (h *Halt) Err() error {
	if h.Stopped() {
		return context.Cause(h.ctx)
	}
	return nil
}

// Context returns the context that h watches.
func (h *Halt) Context() context.Context {
	if h == nil || h.ctx == nil {
		return context.Background()
	}
	return h.ctx
}
