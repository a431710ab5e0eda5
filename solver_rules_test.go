package pgsvi

import (
	"math"
	"testing"
)

// TestStallUnproved checks the status of a run that no step improves. The estimate decides if no
// bound can be proved, and otherwise the bound decides.
func TestStallUnproved(t *testing.T) {
	for _, c := range []struct {
		e    Evaluation
		want Status
	}{
		{Evaluation{ELBO: -5, Gap: 1e-9, Goal: 1e-10}, Converged},
		{Evaluation{ELBO: -5, Gap: 1e-3, Goal: 1e-10}, Stalled},
		{Evaluation{ELBO: -5, Gap: math.NaN(), Goal: 1e-10}, Stalled},
		{Evaluation{ELBO: -5, Gap: 1e-9, Goal: 1e-10, Scope: OverQ, GapBound: 1}, Stalled},
		{Evaluation{ELBO: -5, Gap: 1e-9, Goal: 1e-10, Scope: OverQ, GapBound: 1e-3}, Converged},
	} {
		var s stall
		s.Init()
		got := NotTerminated
		for range 12 {
			if got = s.Converged(Iteration{Evaluation: c.e}); got != NotTerminated {
				break
			}
		}
		if got != c.want {
			t.Errorf("%+v: %v, want %v", c.e, got, c.want)
		}
	}
}
