package pgsvi

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// sparseLabels returns n sparse rows of about per features of d, and labels of a logit model.
func sparseLabels(n, d, per int) (*Sparse, []float64) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	x, y, w := NewSparse(d), make([]float64, n), make([]float64, d)
	for j := range w {
		w[j] = 2 * rng.NormFloat64()
	}
	for i := range y {
		var ind []int
		var val []float64
		eta := 0.0
		for j := range d {
			if rng.Float64() < float64(per)/float64(d) {
				v := (0.3 + rng.Float64()) / math.Sqrt(float64(per))
				ind, val = append(ind, j), append(val, v)
				eta += v * w[j]
			}
		}
		x.Append(ind, val)
		y[i] = label(rng, eta)
	}
	return x, y
}

// textLabels is sparseLabels with features as frequent as the words of a text.
func textLabels(n, d int) (*Sparse, []float64) {
	rng := rand.New(rand.NewPCG(4, 2))
	zipf := rand.NewZipf(rng, 1.1, 8, uint64(d-1))
	x, y, w := NewSparse(d), make([]float64, n), make([]float64, d)
	for j := range w {
		w[j] = rng.NormFloat64()
	}
	for i := range y {
		count := map[int]float64{}
		for range 60 + rng.IntN(80) {
			count[int(zipf.Uint64())]++
		}
		var ind []int
		for j := range count {
			ind = append(ind, j)
		}
		slices.Sort(ind)
		val, square := make([]float64, len(ind)), 0.0
		for k, j := range ind {
			val[k] = 1 + math.Log(count[j])
			square += val[k] * val[k]
		}
		eta := 0.0
		for k, j := range ind {
			val[k] *= 3 / math.Sqrt(square)
			eta += val[k] * w[j]
		}
		x.Append(ind, val)
		y[i] = label(rng, eta/2)
	}
	return x, y
}

// label returns 1 with probability 1/(1 + e^(−2η)), and −1 otherwise.
func label(rng *rand.Rand, eta float64) float64 {
	if rng.Float64() < 1/(1+math.Exp(-2*eta)) {
		return 1
	}
	return -1
}

// TestLowRankBoundHolds checks that no full covariance has an ELBO above ELBO + GapBound.
func TestLowRankBoundHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, d, per int }{{100, 150, 20}, {150, 1000, 40}, {800, 850, 20}} {
		x, y := sparseLabels(c.n, c.d, c.per)
		_, full := structuredFit(t, mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: FullCovariance}), nil)
		for _, goal := range []float64{0, 0.01} {
			g := mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance, Rank: 5})
			_, res := structuredFit(t, g, &Solver{Goal: goal})
			short := full.ELBO - res.ELBO
			if res.Scope != OverLargerFamily || !(short <= res.GapBound) || !(res.GapBound < 3*short+1e-3) {
				t.Errorf("%v, goal %v: %v nats below a full covariance, proved within %v (%v)", c, goal, short, res.GapBound, res.Scope)
			}
		}
	}
}

// TestLowRankPasses checks that a fit ends within 20 passes, near the ELBO of a run with a small goal.
func TestLowRankPasses(t *testing.T) {
	t.Parallel()
	type shape struct{ n, d, per int }
	shapes := []shape{{300, 700, 30}, {500, 200, 25}}
	if !testing.Short() {
		shapes = append(shapes, shape{1000, 3000, 60}, shape{2000, 800, 50})
	}
	for _, c := range shapes {
		x, y := sparseLabels(c.n, c.d, c.per)
		g := mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance, Rank: 20})
		_, res := structuredFit(t, g, nil)
		_, best := structuredFit(t, g, &Solver{Goal: 1e-4})
		t.Logf("%v: %v; %v", c, res, best)
		if most := 1e-3 * (1 + 1e-3*float64(c.n)); res.Passes > 20 || best.ELBO-res.ELBO > most {
			t.Errorf("%v: %v passes, %v nats below a run of %v passes", c, res.Passes, best.ELBO-res.ELBO, best.Passes)
		}
	}
}

// TestLowRankText checks the same of rows like those of texts, which take seconds.
func TestLowRankText(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	x, y := textLabels(20000, 50000)
	g := mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance, Rank: 20})
	_, res := structuredFit(t, g, nil)
	t.Log(res)
	if res.Passes > 20 || !math.IsInf(res.GapBound, 1) {
		t.Errorf("%v passes, proved within %v", res.Passes, res.GapBound)
	}
}
