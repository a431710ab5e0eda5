package objective

import (
	"math"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// TestNoEntropy checks the warning for an Objective whose q shrinks to a point, and the remedy that
// it names: with a log joint density and NaturalPrior(nil), q is the posterior.
func TestNoEntropy(t *testing.T) {
	y := []float64{1.2, 0.4, 2.2, 1.6}
	joint := LogLik{N: len(y), Dim: 1, LogProb: func(n int, z []float64) float64 {
		return -(y[n]-z[0])*(y[n]-z[0])/2 - z[0]*z[0]/float64(2*len(y))
	}}
	f, init := Expect(joint, nil), NewIsotropic(1, 1)
	const says = "set H to KLTo(prior), or to NaturalPrior(nil)"
	for _, h := range []Convex{nil, Zero()} {
		res := kit.Solve(t, Solver{MaxPasses: 3}, Objective[*Gaussian]{F: f, H: h, Init: init})
		if strings.Count(res.String(), says) != 1 {
			t.Errorf("H = %v: %v", h, res)
		}
	}
	q, res, err := Objective[*Gaussian]{F: f, H: NaturalPrior(nil), Init: init}.Fit(t.Context(), nil)
	if err != nil || res.Status != Converged || len(res.Warnings) > 0 {
		t.Fatalf("the log joint: %v, error %v", res, err)
	}
	// Posterior precision 4 + 1, mean Σ y/5.
	if m, v := q.Mean(nil)[0], q.Cov().At(0, 0); math.Abs(m-5.4/5) > 1e-3 || math.Abs(v-0.2) > 1e-3 {
		t.Errorf("mean %v, variance %v, want 1.08, 0.2", m, v)
	}
	for name, o := range map[string]Objective[*Gaussian]{
		"a prior":    {F: f, H: KLTo(NewIsotropic(1, 100)), Init: init},
		"linearized": Objective[*Gaussian]{F: f, H: KLTo(NewIsotropic(1, 100)), Init: init}.Linearized(),
	} {
		if res := kit.Solve(t, Solver{MaxPasses: 3}, o); strings.Contains(res.String(), says) {
			t.Errorf("%s: %v", name, res)
		}
	}
}
