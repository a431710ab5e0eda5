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

// normals returns samplers of dim independent N(0, s2), with weights for N(0, 1).
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

// plan returns a plan of the given number of draws and dimension.
func plan(dim, draws, workers int) Plan {
	return Plan{Dim: dim, Draws: draws, Workers: workers, Rng: rand.New(rand.NewPCG(1, 2))}
}

// TestRunFar checks that a q that is too narrow has the known k̂, 1 − s².
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

// TestRunErrors checks the arguments that Run rejects.
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

// TestRunAgain checks k̂ of a q near p in few dimensions with slightly skewed weights. It is
// below 0.65 for every seed, because Run makes more draws if 2200 draws give more.
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
	for seed := range uint64(20) { // with many rows Run does not repeat
		p := Plan{Dim: dim, Terms: moreTerms + 1, Workers: 1, Rng: rand.New(rand.NewPCG(seed, 2))}
		if r, err := Run(t.Context(), p, skewed); err != nil || r.Draws != defaultDraws {
			t.Fatalf("%d draws of many rows, %v", r.Draws, err)
		}
	}
}

// tailed returns samplers of dim independent N(0, 1) whose log-weights are log of w, a function of
// the first element and of a uniform random value.
func tailed(dim int, w func(z, u float64) float64) func() Sampler {
	return func() Sampler {
		return func(z, r []float64, rng *rand.Rand) error {
			for i := range z {
				z[i] = rng.NormFloat64()
			}
			for s := range r {
				r[s] = math.Log(w(z[s*dim], rng.Float64()))
			}
			return nil
		}
	}
}

// TestRunFew checks that nearly equal weights need few draws, and that the moments are then as
// accurate as moments of all draws.
func TestRunFew(t *testing.T) {
	const dim = 2
	wide := tailed(dim, func(z, _ float64) float64 { return 1 + 1e-3*(z*z-1) })
	var means, deviations float64
	for seed := range uint64(20) {
		run := func(draws, workers int) *Result {
			p, err := Run(t.Context(), Plan{Dim: dim, Draws: draws, Terms: 1e5, Workers: workers,
				Rng: rand.New(rand.NewPCG(seed, 3))}, wide)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		few, all := run(0, 1), run(defaultDraws, 1)
		if few.Draws > 2*firstDraws || few.KHat > 0 || few.Limit != Limit(few.Draws) ||
			!(few.ESS <= float64(few.Draws) && few.ESS > 0.99*float64(few.Draws)) {
			t.Errorf("seed %d: %d draws, k̂ = %v of %v, worth %v", seed, few.Draws, few.KHat,
				few.Limit, few.ESS)
		}
		if few.LogZErr < all.LogZErr || !(math.Abs(few.LogZ) < 5*few.LogZErr) {
			t.Errorf("seed %d: log Z = %v ± %v, want 0", seed, few.LogZ, few.LogZErr)
		}
		for j, sd := range []float64{math.Sqrt(1.002), 1} { // E[z²(1 + 10⁻³(z² − 1))] = 1.002
			if few.MeanErr[j] > 1.05*all.MeanErr[j] || few.SDErr[j] > 1.05*all.SDErr[j] ||
				few.MeanErr[j] < 0.9*all.MeanErr[j] || few.SDErr[j] < 0.9*all.SDErr[j] {
				t.Errorf("seed %d: errors %v, %v, want %v, %v", seed, few.MeanErr[j],
					few.SDErr[j], all.MeanErr[j], all.SDErr[j])
			}
			means += math.Pow(few.Mean[j]/few.MeanErr[j], 2) / (20 * dim)
			deviations += math.Pow((few.SD[j]-sd)/few.SDErr[j], 2) / (20 * dim)
		}
		if three := run(0, 3); three.LogZ != few.LogZ || !slices.Equal(three.SD, few.SD) ||
			!slices.Equal(three.MeanErr, few.MeanErr) {
			t.Errorf("seed %d: with three workers: %+v", seed, three)
		}
	}
	// 40 squares of nearly standard normal errors
	if !(means > 0.3 && means < 2.2) || !(deviations > 0.3 && deviations < 2.2) {
		t.Errorf("squared errors of the means are %v, and of the deviations %v, want 1", means,
			deviations)
	}
}

// TestRunFewHeavy checks that few draws do not pass an approximation that 2200 draws reject: weights
// that are nearly equal except for a tail without a variance.
func TestRunFewHeavy(t *testing.T) {
	rejected, passed, stopped := 0, 0, 0
	for _, k := range []float64{0.8, 1, 1.2} {
		for _, size := range []float64{1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 0.1} {
			for seed := range uint64(12) {
				heavy := tailed(1, func(_, u float64) float64 { return 1 + size*quantile(u, k, 1) })
				p := Plan{Dim: 1, Terms: 1e5, Workers: 1, Rng: rand.New(rand.NewPCG(seed, 4))}
				few, err := Run(t.Context(), p, heavy)
				if err != nil {
					t.Fatal(err)
				}
				p.Draws, p.Rng = defaultDraws, rand.New(rand.NewPCG(seed, 4))
				all, err := Run(t.Context(), p, heavy)
				if err != nil {
					t.Fatal(err)
				}
				if few.Draws < defaultDraws {
					stopped++
				}
				if all.KHat > all.Limit {
					rejected++
					if few.KHat <= few.Limit {
						passed++
					}
				}
			}
		}
	}
	if rejected < 100 || passed > rejected/33 {
		t.Errorf("%d of %d rejected approximations pass (%d stop early)", passed, rejected, stopped)
	}
}
