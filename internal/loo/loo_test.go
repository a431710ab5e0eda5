package loo

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/psis"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// noise is the likelihood N(y|η, s2).
type noise float64

func (s noise) LogProb(y, eta float64) float64 {
	return -0.5*(y-eta)*(y-eta)/float64(s) - 0.5*math.Log(2*math.Pi*float64(s))
}

func (s noise) Expect(y, m, v float64) term.Expectation {
	s2 := float64(s)
	return term.Expectation{Value: s.LogProb(y, m) - 0.5*v/s2, D1: (y - m) / s2, D2: -1 / s2}
}

func (noise) Concave() bool     { return true }
func (noise) SelfBounded() bool { return true }
func (noise) Bounded() bool     { return true }
func (noise) Real() bool        { return true }

func (noise) Each() *term.Many                                     { return nil }
func (noise) Rated() func(y float64) (sign, origin, slope float64) { return nil }
func (noise) Identify(*save.Digest)                                {}

// likelihood returns s for cavities.
func (s noise) likelihood() Likelihood {
	return Likelihood{
		LogProb:   func(y, m, v float64) float64 { return noise(float64(s)+v).LogProb(y, m) },
		Quadratic: true,
	}
}

// The tests have two latent values with the prior N(0, K), K = [1 c; c 1], and one response for
// each.
const (
	c  = 0.6
	s2 = noise(2)
)

var y = []float64{1.2, -0.4}

// posterior returns the mean and the covariance of the two, and N(m, v) of y_0 given y_1.
func posterior() (mean, cov []float64, m, v float64) {
	a := 1 + float64(s2)
	det := a*a - c*c
	w := []float64{(a*y[0] - c*y[1]) / det, (a*y[1] - c*y[0]) / det}
	mean = []float64{w[0] + c*w[1], c*w[0] + w[1]}
	on, off := 1-(a-2*c*c+a*c*c)/det, c-(2*a*c-c-c*c*c)/det
	return mean, []float64{on, off, off, on}, c * y[1] / a, 1 - c*c/a
}

// sites returns the posterior as sites. The gradients a have the relative error off.
func sites(t *testing.T, off float64) *Posterior {
	t.Helper()
	mean, _, _, _ := posterior()
	gamma, a := make([]float64, 2), make([]float64, 2)
	for i := range a {
		gamma[i], a[i] = 1/float64(s2), (y[i]-mean[i])/float64(s2)*(1+off)
	}
	d, err := NewPosterior(nil, &term.Terms{Lik: s2, Y: y}, []float64{1, c, c, 1}, mean, gamma, a)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// near reports an error if a number is off by more than tol.
func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestLeaveOut checks that with Gaussian noise cavities are the posteriors without an
// observation.
func TestLeaveOut(t *testing.T) {
	d := sites(t, 0)
	r, err := d.LeaveOut(t.Context(), s2.likelihood())
	if err != nil {
		t.Fatal(err)
	}
	_, cov, m, v := posterior()
	near(t, "mean", r.M[0], m, 1e-14)
	near(t, "variance", r.V[0], v, 1e-14)
	near(t, "log p(y_0|y_1)", r.Pointwise[0], noise(float64(s2)+v).LogProb(y[0], m), 1e-13)
	near(t, "leverage", r.Leverage[0], cov[0]/float64(s2), 1e-14)
	near(t, "parameters", r.Parameters, 2*cov[0]/float64(s2), 1e-14)
	near(t, "ELPD", r.ELPD, r.Pointwise[0]+r.Pointwise[1], 1e-14)
	near(t, "error", r.Err, 0, 1e-13)
	if len(r.Unresolved) != 0 {
		t.Errorf("unresolved: %v", r.Unresolved)
	}
	d.gamma[1] *= 2
	d.left[1] = 1 - d.gamma[1]*d.v[3]*4
	if _, err := d.LeaveOut(t.Context(), s2.likelihood()); !errors.Is(err, sentinel.ErrNotPosDef) {
		t.Errorf("more precision than there is: %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sites(t, 0).LeaveOut(done, s2.likelihood()); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestLeaveOutQuadratic checks that each observation is predicted once if the other sites do not
// depend on it, and that the prediction has no error then. Other likelihoods need more.
func TestLeaveOutQuadratic(t *testing.T) {
	for _, quadratic := range []bool{true, false} {
		calls := make([]int, len(y)) // one worker predicts each observation
		lik := s2.likelihood()
		lik.Quadratic = quadratic
		of := lik.LogProb
		lik.LogProb = func(yi, m, v float64) float64 {
			calls[slices.Index(y, yi)]++
			return of(yi, m, v)
		}
		r, err := sites(t, 0).LeaveOut(t.Context(), lik)
		if err != nil {
			t.Fatal(err)
		}
		if once := slices.Equal(calls, []int{1, 1}); once != quadratic {
			t.Errorf("quadratic: %v, calls: %v", quadratic, calls)
		}
		if quadratic && (r.Err != 0 || r.PointErr[0] != 0 || r.PointErr[1] != 0) {
			t.Errorf("errors %v and %v of exact predictions", r.Err, r.PointErr)
		}
	}
}

// TestSamplers checks that draws of sites have the weights of the posterior. All weights are
// equal if q is the posterior, and the evidence is N(y|0, K + s²I).
func TestSamplers(t *testing.T) {
	plan := psis.Plan{Dim: 2, Draws: 500, Workers: 2, Rng: rand.New(rand.NewPCG(3, 4))}
	p, err := psis.Run(t.Context(), plan, sites(t, 0).Samplers())
	if err != nil {
		t.Fatal(err)
	}
	a := 1 + float64(s2)
	det := a*a - c*c
	want := -0.5*(a*y[0]*y[0]-2*c*y[0]*y[1]+a*y[1]*y[1])/det - 0.5*math.Log(det) - math.Log(
		2*math.Pi)
	near(t, "k̂", p.KHat, 0, 0)
	near(t, "log evidence", p.LogZ, want, 1e-12)
	mean, cov, _, _ := posterior()
	near(t, "mean", p.Mean[1], mean[1], 4.5*p.MeanErr[1])
	near(t, "sd", p.SD[1], math.Sqrt(cov[3]), 4.5*p.SDErr[1])
	if p, err := psis.Run(t.Context(), plan, sites(t, 0.2).Samplers()); err != nil || p.KHat == 0 {
		t.Errorf("of other sites: %+v, %v", p, err)
	}
}

// TestDraws checks draws of the posterior against its cavities.
func TestDraws(t *testing.T) {
	want, err := sites(t, 0).LeaveOut(t.Context(), s2.likelihood())
	if err != nil {
		t.Fatal(err)
	}
	mean, cov, _, _ := posterior()
	l0 := math.Sqrt(cov[0])
	l1 := cov[1] / l0
	l2 := math.Sqrt(cov[3] - l1*l1)
	samplers := func() Sampler {
		return func(z, logp []float64, rng *rand.Rand) (float64, error) {
			e0, e1 := rng.NormFloat64(), rng.NormFloat64()
			z[0], z[1] = mean[0]+l0*e0, mean[1]+l1*e0+l2*e1
			for i := range logp {
				logp[i] = s2.LogProb(y[i], z[i])
			}
			return 0, nil // q is the posterior
		}
	}
	plan := func(draws, workers int) psis.Plan {
		return psis.Plan{Dim: 2, Draws: draws, Workers: workers, Rng: rand.New(rand.NewPCG(1, 2))}
	}
	r, err := Draws(t.Context(), plan(4000, 3), 2, samplers)
	if err != nil {
		t.Fatal(err)
	}
	for i := range y {
		near(t, "log p(y_n|y_−n)", r.Pointwise[i], want.Pointwise[i], 4.5*r.PointErr[i])
		near(t, "influence", r.Influence[i], want.Influence[i],
			0.1*want.Influence[i]+4.5*r.PointErr[i])
		if !(r.KHat[i] < r.Limit) {
			t.Errorf("k̂ = %v, limit %v", r.KHat[i], r.Limit)
		}
	}
	one, err := Draws(t.Context(), plan(4000, 1), 2, samplers)
	if err != nil || one.ELPD != r.ELPD || one.Leverage[1] != r.Leverage[1] {
		t.Errorf("with one worker: %+v, %v", one, err)
	}
	if _, err := Draws(t.Context(), plan(3, 1), 2, samplers); !errors.Is(err, sentinel.ErrParam) {
		t.Errorf("few draws: %v", err)
	}
	_, err = Draws(t.Context(), plan(0, 1), min(1<<40, math.MaxInt), samplers)
	if !errors.Is(err, sentinel.ErrMemory) {
		t.Errorf("many terms: %v", err)
	}
}

// TestSplit compares the known observations with all observations in order.
func TestSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for range 200 {
		n := 1 + rng.IntN(40)
		l := &Result{PointErr: make([]float64, n), Influence: make([]float64, n)}
		var want []int
		for i := range n {
			l.Influence[i] = float64(rng.IntN(8)) // with ties
			if rng.IntN(5) == 0 {
				l.Unresolved = append(l.Unresolved, i)
			} else {
				want = append(want, i)
			}
		}
		if rng.IntN(10) == 0 {
			l.Influence[0] = math.NaN()
		}
		slices.SortStableFunc(want, func(a, b int) int {
			return cmp.Compare(l.Influence[b], l.Influence[a])
		})
		most := 1 + rng.IntN(n+2)
		known, rest := l.split(most)
		if most = min(most, len(want)); !slices.Equal(known, want[:most]) {
			t.Fatalf("%d of influences %v are %v, want %v", most, l.Influence, known, want[:most])
		}
		slices.Sort(want[most:])
		if slices.Sort(rest); !slices.Equal(rest, want[most:]) {
			t.Fatalf("the rest is %v, want %v", rest, want[most:])
		}
	}
}

// TestAffords checks that expensive expectations reduce the number of removals with a response, and
// that expectations without a cost, or next to many products, do not.
func TestAffords(t *testing.T) {
	var c cavities
	const cost = 2000 // ns, so the budget takes 0.13 s
	for _, size := range []int{100, 500, 2048} {
		index := make([]int, size)
		free := c.affords(index, Likelihood{})
		if want := budget / (size * size); free != want {
			t.Errorf("%d rows: %d removals, want %d", size, free, want)
		}
		if cheap := c.affords(index, Likelihood{Cost: size / 8}); cheap != free {
			t.Errorf("%d rows: %d removals at a low cost, want %d", size, cheap, free)
		}
		removals := c.affords(index, Likelihood{Cost: cost})
		if total := removals * answerRounds * size * cost; total > budget || total < budget/2 {
			t.Errorf("%d rows: expectations take %d of %d", size, total, budget)
		}
	}
}
