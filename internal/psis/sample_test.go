package psis

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// normals returns samplers of dim independent N(0, s2), weighted towards N(0, 1).
func normals(dim int, s2 float64) func() Sampler {
	return func() Sampler {
		return func(z, r []float64, rng *rand.Rand) error {
			for i := range z {
				z[i] = math.Sqrt(s2) * rng.NormFloat64()
			}
			for s := range r {
				r[s] = 0
				for _, x := range z[s*dim : (s+1)*dim] {
					r[s] += -x*x/2 + x*x/(2*s2) + math.Log(s2)/2
				}
			}
			return nil
		}
	}
}

// plan returns that of so many draws of dim elements.
func plan(dim, draws, workers int) Plan {
	return Plan{Dim: dim, Draws: draws, Workers: workers, Rng: rand.New(rand.NewPCG(1, 2))}
}

// TestRunFar checks that q that is too narrow has the k̂ that is known, 1 − s².
func TestRunFar(t *testing.T) {
	for _, s2 := range []float64{0.1, 0.5} {
		p, err := Run(t.Context(), plan(1, 20000, 1), normals(1, s2))
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(p.KHat-(1-s2)) > 0.12 {
			t.Errorf("s² = %v: k̂ = %v, want %v", s2, p.KHat, 1-s2)
		}
	}
}

// TestRunMoments checks evidence and moments against N(0, 1), within four and a half standard
// errors, and that they have the same bits for any number of workers.
func TestRunMoments(t *testing.T) {
	p, err := Run(t.Context(), plan(2, 0, 1), normals(2, 1.5))
	if err != nil {
		t.Fatal(err)
	}
	if p.Draws != 2200 || !(p.KHat < p.Limit) || !(p.ESS > 1000 && p.ESS < 2200) {
		t.Errorf("%d draws, k̂ = %v, worth %v", p.Draws, p.KHat, p.ESS)
	}
	if !(math.Abs(p.LogZ) < 4.5*p.LogZErr) {
		t.Errorf("log Z = %v ± %v, want 0", p.LogZ, p.LogZErr)
	}
	for j := range 2 {
		if !(math.Abs(p.Mean[j]) < 4.5*p.MeanErr[j]) || !(math.Abs(p.SD[j]-1) < 4.5*p.SDErr[j]) {
			t.Errorf("element %d: %v ± %v, sd %v ± %v", j, p.Mean[j], p.MeanErr[j], p.SD[j],
				p.SDErr[j])
		}
	}
	o, err := Run(t.Context(), plan(2, 0, 3), normals(2, 1.5))
	if err != nil || o.LogZ != p.LogZ || !slices.Equal(o.Mean, p.Mean) ||
		!slices.Equal(o.SDErr, p.SDErr) {
		t.Errorf("with three workers: %+v, %v", o, err)
	}
}

// TestRunErrors checks what Run refuses.
func TestRunErrors(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("failed")
	value := func(x, r float64, err error) func() Sampler {
		return func() Sampler {
			return func(z, w []float64, rng *rand.Rand) error {
				for i := range z {
					z[i] = x
				}
				for i := range w {
					w[i] = r
				}
				return err
			}
		}
	}
	for name, c := range map[string]struct {
		ctx      context.Context
		draws    int
		samplers func() Sampler
		want     error
	}{
		"few draws":    {t.Context(), 24, normals(1, 1), sentinel.ErrParam},
		"negative":     {t.Context(), -1, normals(1, 1), sentinel.ErrParam},
		"too many":     {t.Context(), min(1<<50, math.MaxInt), normals(1, 1), sentinel.ErrMemory},
		"nowhere":      {t.Context(), 100, value(0, math.Inf(-1), nil), sentinel.ErrNotFinite},
		"not a number": {t.Context(), 100, value(math.NaN(), 0, nil), sentinel.ErrNotFinite},
		"sampler":      {t.Context(), 100, value(0, 0, failed), failed},
		"canceled":     {done, 100, normals(1, 1), context.Canceled},
	} {
		if p, err := Run(c.ctx, plan(1, c.draws, 2), c.samplers); p != nil ||
			!errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

// TestRunAgain checks k̂ of a q that is nearly p in few dimensions, whose weights are skewed a
// little: it is below 0.65 for any seed, by the draws that are taken where 2200 say otherwise.
func TestRunAgain(t *testing.T) {
	const dim = 3
	skewed := func() Sampler {
		return func(z, r []float64, rng *rand.Rand) error {
			for i := range z {
				z[i] = rng.NormFloat64()
			}
			for s := range r {
				r[s] = 0
				for _, x := range z[s*dim : (s+1)*dim] { // Hermite polynomials
					r[s] += 0.02*(x*x*x-3*x) + 0.003*(x*x*x*x-6*x*x+3)
				}
			}
			return nil
		}
	}
	again := 0
	for seed := range uint64(20) {
		p := Plan{Dim: dim, Workers: 1, Rng: rand.New(rand.NewPCG(seed, 2))}
		r, err := Run(t.Context(), p, skewed)
		if err != nil || !(r.KHat > 0 && r.KHat < 0.65) {
			t.Errorf("seed %d: k̂ %v of %d draws, %v", seed, r.KHat, r.Draws, err)
		}
		if r.Draws == moreDraws {
			again++
		}
	}
	if again == 0 {
		t.Error("no k̂ was taken again")
	}
	for seed := range uint64(20) { // of many rows it is not
		p := Plan{Dim: dim, Terms: moreTerms + 1, Workers: 1, Rng: rand.New(rand.NewPCG(seed, 2))}
		if r, err := Run(t.Context(), p, skewed); err != nil || r.Draws != defaultDraws {
			t.Fatalf("%d draws of many rows, %v", r.Draws, err)
		}
	}
}
