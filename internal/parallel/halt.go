package parallel

import "context"

// A Halt tells long computations that their result is not wanted any more: they then end
// soon, with results that are of no use. A nil Halt, and one that watches nothing, never does.
// Once it has stopped it stays so until it watches something else.
type Halt struct{ ctx context.Context }

// Watch makes h stop when ctx is done. No computation may be under way.
func (h *Halt) Watch(ctx context.Context) { h.ctx = ctx }

// Forget ends Watch.
func (h *Halt) Forget() { h.ctx = nil }

// Stopped reports whether results are not wanted any more.
func (h *Halt) Stopped() bool { return h != nil && h.ctx != nil && h.ctx.Err() != nil }

// Err returns the cause where h has stopped.
func (h *Halt) Err() error {
	if h.Stopped() {
		return context.Cause(h.ctx)
	}
	return nil
}
