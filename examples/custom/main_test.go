package main

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// TestFit: the posterior agrees with importance sampling as well as its gap says that it should.
func TestFit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(1+seed, 0))
		at, y := generate(100, rng)
		q, res, ll, err := fit(context.Background(), at, y)
		if err != nil {
			t.Fatal(err)
		}
		check := importance(ll, prior, q, 20000, rng)
		var worst float64
		mean, variance := q.Mean(nil), q.Var(nil)
		for i := range mean {
			worst = math.Max(worst, math.Abs(mean[i]-check.mean[i])/check.sd[i])
			worst = math.Max(worst, math.Abs(math.Sqrt(variance[i])/check.sd[i]-1))
		}
		t.Logf("%v, gap %.4f nats, within %.3f sd, %.0f effective draws of %d, %v", res.Status, res.Gap, worst, check.effective, check.draws, res.Elapsed)
		if res.Status != pgsvi.Converged || !(res.Gap <= 0.006) || !(worst <= 0.15) || check.effective < 10000 {
			t.Errorf("seed %d: %v, gap %v nats, within %v sd, %v effective draws", 1+seed, res.Status, res.Gap, worst, check.effective)
		}
	}
}
