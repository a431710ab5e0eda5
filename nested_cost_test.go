package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// ownLikelihood is a likelihood of a user's own that counts its calls.
type ownLikelihood struct {
	log   func(y, eta float64) float64
	facts Facts
	calls *atomic.Int64
}

func (c ownLikelihood) LogProb(y, eta float64) float64 { c.calls.Add(1); return c.log(y, eta) }
func (c ownLikelihood) Facts() Facts                   { return c.facts }

// zeroInflated is the log-probability of a count that is 0 with probability 0.3, and else Poisson(exp(η)).
func zeroInflated(y, eta float64) float64 {
	lg, _ := math.Lgamma(y + 1)
	p := y*eta - math.Exp(eta) - lg
	if y == 0 {
		return math.Log(0.3 + 0.7*math.Exp(p))
	}
	return math.Log(0.7) + p
}

func zeroInflatedRows(n, d int) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(5, 6))
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		eta := 0.7
		for j := range d {
			a := rng.NormFloat64()
			x.Set(i, j, a)
			eta += a * []float64{0.5, -0.3, 0.1, 0, 0.2}[j]
		}
		if rng.Float64() > 0.3 {
			y[i] = distuv.Poisson{Lambda: math.Exp(eta), Src: rng}.Rand()
		}
	}
	return x, y
}

// narrowBump is the log density of N(η, 1), with a part of 0.3 that is N(η + 1, 0.01²).
func narrowBump(y, eta float64) float64 {
	r, q := y-eta, (y-eta-1)/0.01
	a, b := math.Log(0.7)-0.5*r*r, math.Log(0.3/0.01)-0.5*q*q
	m := max(a, b)
	return m + math.Log(math.Exp(a-m)+math.Exp(b-m))
}

// accurate takes all of its expectations by ExpectLogProb, and counts them.
type accurate struct{ ownLikelihood }

func (a accurate) ExpectLogProb(y, m, v float64) Expectation {
	a.calls.Add(1)
	return ExpectLogProb(a.ownLikelihood, y, m, v)
}

func (a accurate) LogProb(y, eta float64) float64 { return a.log(y, eta) }

func accurateOf(log func(y, eta float64) float64, facts Facts) accurate {
	return accurate{ownLikelihood{log, facts, new(atomic.Int64)}}
}

// A fit of a smooth likelihood that has LogProb alone takes at most 60 calls of it for an expectation, to the same ELBO as
// with accurate expectations, and to the same bits on any number of workers.
func TestOwnLikelihoodCost(t *testing.T) {
	x, y := zeroInflatedRows(200, 3)
	facts := Facts{Support: Counts}
	exact := accurateOf(zeroInflated, facts)
	fits := map[string]func(lik Likelihood, workers int) *Result{
		"GLM": func(lik Likelihood, workers int) *Result {
			_, r, err := must(NewGLM(x, y, lik, &GLMOptions{Intercept: true})).Fit(context.Background(), &Solver{Workers: workers})
			return mustResult(t, r, err)
		},
		"GP": func(lik Likelihood, workers int) *Result {
			gp := must(NewGP(x.Slice(0, 80, 0, 3), y[:80], SquaredExp{Scale: 0.3, Length: 3}, lik, nil))
			_, r, err := gp.Fit(context.Background(), &Solver{Workers: workers})
			return mustResult(t, r, err)
		},
	}
	for name, fit := range fits {
		exact.calls.Store(0)
		want := fit(exact, 1)
		own := ownLikelihood{zeroInflated, facts, new(atomic.Int64)}
		got := fit(own, 1)
		mean := float64(own.calls.Load()) / float64(exact.calls.Load())
		if !(mean <= 60) {
			t.Errorf("%s: %.1f calls an expectation", name, mean)
		}
		if !(math.Abs(got.ELBO-want.ELBO) <= 1e-9) {
			t.Errorf("%s: ELBO %v, want %v", name, got.ELBO, want.ELBO)
		}
		for _, workers := range []int{2, 5} {
			if again := fit(own, workers); again.ELBO != got.ELBO || again.Passes != got.Passes {
				t.Errorf("%s: ELBO %v on %d workers, %v on one", name, again.ELBO, workers, got.ELBO)
			}
		}
	}
}

func mustResult(t *testing.T, r *Result, err error) *Result {
	t.Helper()
	if err != nil || r.Status != Converged {
		t.Fatal(r, err)
	}
	return r
}

// A bump that is narrower than the nodes are apart is found by the checks, and the run begun anew with accurate expectations.
func TestNestedRuleFindsNarrowBumps(t *testing.T) {
	if testing.Short() {
		t.Skip("takes accurate expectations of a bump")
	}
	rng := rand.New(rand.NewPCG(5, 6))
	n := 150
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		a, b := rng.NormFloat64(), rng.NormFloat64()
		x.SetRow(i, []float64{a, b})
		y[i] = 0.5*a - 0.3*b + rng.NormFloat64()
	}
	fit := func(lik Likelihood, s *Solver) *Result {
		_, r, err := must(NewGLM(x, y, lik, nil)).Fit(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	bump := ownLikelihood{narrowBump, Facts{}, new(atomic.Int64)}
	want := fit(accurateOf(narrowBump, Facts{}), nil)
	got := fit(bump, nil)
	if !(math.Abs(got.ELBO-want.ELBO) <= 1e-9) {
		t.Errorf("ELBO %v, want %v", got.ELBO, want.ELBO)
	}
	if !got.Stepper.(*siteStepper).terms.nested.off {
		t.Error("the nested rule is on at the end")
	}
	// A run that is saved and goes on knows that the rule has failed.
	state, err := got.Stepper.(*siteStepper).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	st := must(must(NewGLM(x, y, bump, nil)).NewStepper(context.Background(), nil, nil)).(*siteStepper)
	st.terms.nested.off = false
	if err := st.UnmarshalBinary(state); err != nil || !st.terms.nested.off {
		t.Errorf("read from the state of a run: the rule is off: %v, error %v", st.terms.nested.off, err)
	}
}

// Facts.Rough takes every expectation as ExpectLogProb does, to the last bit.
func TestRoughIsAccurate(t *testing.T) {
	x, y := zeroInflatedRows(100, 2)
	var elbo [2]float64
	for i, lik := range []Likelihood{
		accurateOf(zeroInflated, Facts{Support: Counts}),
		ownLikelihood{zeroInflated, Facts{Support: Counts, Rough: true}, new(atomic.Int64)},
	} {
		_, r, err := must(NewGLM(x, y, lik, nil)).Fit(context.Background(), nil)
		elbo[i] = mustResult(t, r, err).ELBO
	}
	if elbo[0] != elbo[1] {
		t.Errorf("ELBO %v, want %v", elbo[1], elbo[0])
	}
}
