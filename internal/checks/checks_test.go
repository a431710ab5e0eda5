package checks

import (
	"testing"

	. "github.com/pgsvi/pgsvi"
)

// quantile returns a quantile of the response if the latent value is N(m, v).
func quantile(t testing.TB, l Likelihood, prob, m, v float64) float64 {
	t.Helper()
	q, err := NewPrediction(l, []float64{m}, []float64{v}).Quantile(nil, prob)
	if err != nil {
		t.Fatal(err)
	}
	return q[0]
}

// responderOnly hides all methods except LogProb and the methods of Responder.
type responderOnly struct{ Responder }
