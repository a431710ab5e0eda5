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

// TestLimitWarning checks that a run without options that ends far from the optimum warns of it, and
// that the remedy converges.
func TestLimitWarning(t *testing.T) {
	l := LogLik{N: 100, Dim: 1, LogProb: func(n int, z []float64) float64 {
		r := 2 + math.Sin(float64(n)) - z[0]
		return -r * r / 2
	}}
	o := Objective[*Gaussian]{F: Expect(l, ScoreFunction(0)), H: KLTo(NewIsotropic(1, 100)),
		Init: NewIsotropic(1, 1)}
	best := kit.Solve(t, Solver{}, o)
	if best.Status != Converged || len(best.Warnings) > 0 {
		t.Errorf("KL: %v", best)
	}
	for name, d := range map[string]Divergence{"Adam": Adam(0, 0, 0), "AdaGrad": AdaGrad(0)} {
		s := Solver{Divergence: d}
		res := kit.Solve(t, s, o.Linearized())
		if res.Status != PassLimit || !(best.ELBO > res.ELBO+1) || len(res.Warnings) != 1 ||
			!strings.Contains(res.Warnings[0], "limit of passes") {
			t.Errorf("%s: %v, best %v", name, res, best)
		}
		s.MaxPasses = 10
		if res := kit.Solve(t, s, o.Linearized()); len(res.Warnings) > 0 {
			t.Errorf("%s with a limit: %v", name, res)
		}
	}
}
