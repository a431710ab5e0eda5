package objective

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// regressions is a mixture of regressions through the origin, y_n ~ N(w_k x_n, 1/τ_k) with equal
// weights. Over q(w_1) q(τ_1) … its log-likelihood is bilinear: E[τ_k] multiplies E[w_k] and
// E[w_k²]. One component is a regression with an unknown precision.
type regressions struct {
	x, y []float64
	k    int
}

func (r regressions) Len() int { return len(r.y) }

// logProb returns E[log N(y_n|w x_n, 1/τ)] for the statistics (w, w², log τ, τ).
func (r regressions) logProb(mu []float64, n int) float64 {
	x, y := r.x[n], r.y[n]
	return (mu[2]-math.Log(2*math.Pi))/2 - mu[3]*(y*y-2*x*y*mu[0]+x*x*mu[1])/2
}

func (r regressions) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	log, most, sum := make([]float64, r.k), math.Inf(-1), 0.0
	for k := range log {
		log[k] = r.logProb(mu[4*k:], n) - math.Log(float64(r.k))
		most = max(most, log[k])
	}
	for _, l := range log {
		sum += math.Exp(l - most)
	}
	x, y, value := r.x[n], r.y[n], most+math.Log(sum)
	for k := range log {
		m, d, p := mu[4*k:], dst[4*k:], weight*math.Exp(log[k]-value)
		d[0] += p * m[3] * x * y
		d[1] -= p * m[3] * x * x / 2
		d[2] += p / 2
		d[3] -= p * (y*y - 2*x*y*m[0] + x*x*m[1]) / 2
	}
	return value, nil
}

// at returns q with random parts, or with equal parts if rng is nil.
func (r regressions) at(rng *rand.Rand) *Exp {
	var parts []ExpFamily
	for range r.k {
		m, v, shape, rate := 0.0, 4.0, 1.0, 1.0
		if rng != nil {
			m, v = 3*rng.NormFloat64(), math.Exp(rng.NormFloat64()-2)
			shape, rate = math.Exp(2+rng.NormFloat64()), math.Exp(2+rng.NormFloat64())
		}
		parts = append(parts, testkit.Must(NewMeanField([]float64{m}, []float64{v})),
			testkit.Must(NewGamma(shape, rate)))
	}
	return testkit.Must(ProductOf(parts...))
}

func (r regressions) fit(t *testing.T, init *Exp, s *Solver) *Result {
	t.Helper()
	o := Objective[*Exp]{F: Conjugate(r), H: KLTo(r.at(nil)), Init: init}
	_, res, err := o.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func newRegressions(seed uint64) regressions {
	rng := rand.New(rand.NewPCG(seed, 41))
	r := regressions{k: 1 + int(seed%3)}
	for range 10 + rng.IntN(60) {
		k := float64(rng.IntN(r.k))
		x := rng.NormFloat64()
		r.x = append(r.x, x)
		r.y = append(r.y, (2*k-1)*x*float64(1+seed%4)/2+rng.NormFloat64()*math.Exp(-float64(seed%5)))
	}
	return r
}

// TestConjugateProduct fits mixtures of regressions, whose statistics multiply each other. It
// starts from equal parts, which are a saddle, and from random parts. No GapBound may be below
// the gain of another start, and no finite Gap may be far below what the run itself gains later.
func TestConjugateProduct(t *testing.T) {
	t.Parallel()
	saddles, estimates := 0, 0
	for seed := range uint64(testkit.Longer(200, testkit.Shorter(24, 12))) {
		r := newRegressions(seed)
		rng := rand.New(rand.NewPCG(seed, 42))
		runs := []*Result{r.fit(t, r.at(nil), &Solver{MaxPasses: 3000})}
		best := runs[0].ELBO
		for range 8 {
			res := r.fit(t, r.at(rng), &Solver{MaxPasses: 3000})
			runs, best = append(runs, res), max(best, res.ELBO)
		}
		for i, res := range runs {
			for _, it := range append(res.Trace, res.Iteration) {
				if !(it.GapBound >= best-it.ELBO-1e-9) {
					t.Errorf("seed %d, run %d, step %d: bound %v %v, and %v can be gained", seed, i,
						it.K, it.GapBound, it.Scope, best-it.ELBO)
				}
				left := res.ELBO - it.ELBO
				if !math.IsInf(it.Gap, 1) && left > 1e-9 {
					estimates++
					if it.Gap < left/3 {
						t.Errorf("seed %d, run %d, step %d: gap %v, and the run gains %v", seed, i,
							it.K, it.Gap, left)
					}
				}
			}
		}
		if left := best - runs[0].ELBO; r.k > 1 && left > 1 {
			saddles++
			if res := runs[0]; res.Gap < left || res.Status == Converged {
				t.Errorf("seed %d: %v at a saddle %v below the best", seed, res, left)
			}
		}
	}
	if saddles == 0 || estimates == 0 {
		t.Errorf("%d saddles and %d estimates", saddles, estimates)
	}
	t.Logf("%d saddles, %d estimates", saddles, estimates)
}

// crossed is a ConjugateModel that multiplies two means instead of using E[z_0 z_1].
type crossed struct{}

func (crossed) Len() int { return 1 }

func (crossed) Local(dst, mu []float64, _ int, weight float64) (float64, error) {
	dst[0] += weight * mu[1] / 2
	dst[1] += weight * mu[0] / 2
	return mu[0] * mu[1] / 2, nil
}

// TestConjugateNotConvex checks that a run has no GapBound if the values of Local contradict a
// linear log p, although q has a single part.
func TestConjugateNotConvex(t *testing.T) {
	t.Parallel()
	init := NewIsotropic(2, 1)
	if err := init.SetNatural(append([]float64{2, -1}, init.Natural(nil)[2:]...)); err != nil {
		t.Fatal(err)
	}
	o := Objective[*Gaussian]{F: Conjugate(crossed{}), H: KLTo(NewIsotropic(2, 1)), Init: init}
	_, res, err := o.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range append(res.Trace, res.Iteration) {
		if it.Scope != Unproved || !math.IsInf(it.GapBound, 1) {
			t.Errorf("step %d: bound %v %v", it.K, it.GapBound, it.Scope)
		}
	}
}
