package parallel

import (
	"context"
	"time"
)

// LastMoment is the time that a run may take after its context is done: for its last evaluation
// and its posterior. Tests make it longer, so that they do not depend on the load of the machine.
var LastMoment = 50 * time.Millisecond

// A Halt tells long computations that their result is not wanted any more: they then end
// soon, with results that are of no use. A nil Halt, and one that watches nothing, never does.
// Once it has stopped it stays so until it watches something else. It also says on how many
// goroutines they may be.
type Halt struct {
	ctx     context.Context
	workers int
}

// Watch makes h stop when ctx is done. No computation may be under way.
func (h *Halt) Watch(ctx context.Context) { h.ctx = ctx }

// Lend lets computations be on so many goroutines, until Forget.
func (h *Halt) Lend(workers int) { h.workers = workers }

// Forget ends Watch and Lend.
func (h *Halt) Forget() { *h = Halt{} }

// Workers returns the number of goroutines, the caller's among them: 1 unless others are lent.
func (h *Halt) Workers() int {
	if h == nil {
		return 1
	}
	return max(1, h.workers)
}

// Stopped reports whether results are not wanted any more.
func (h *Halt) Stopped() bool { return h != nil && h.ctx != nil && h.ctx.Err() != nil }

// Err returns the cause where h has stopped.
func (h *Halt) Err() error {
	if h.Stopped() {
		return context.Cause(h.ctx)
	}
	return nil
}

// Context returns what h watches.
func (h *Halt) Context() context.Context {
	if h == nil || h.ctx == nil {
		return context.Background()
	}
	return h.ctx
}
