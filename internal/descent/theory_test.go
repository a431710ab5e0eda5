package descent

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// λ_R must have the weights of the theorem for any order of step sizes, with few states in memory.
func TestRandomIterateWeights(t *testing.T) {
	betas := []float64{0.3, 0.1, 0.3, 0.5, 0.2, 0.05, 0.4, 0.45, 0.01, 0.25}
	const alpha, l, draws = 1.0, 3.0, 20000
	for _, noisy := range []int{0, 1} {
		falling := func(a, b float64) int { return cmp.Compare(b, a) }
		for _, order := range []func(a, b float64) int{nil, cmp.Compare[float64], falling} {
			beta := slices.Clone(betas)
			a := alpha
			if noisy > 0 {
				a /= 2
				for k := range beta {
					beta[k] *= 0.6 // at most 2α'/L
				}
			}
			if order != nil {
				slices.SortFunc(beta, order)
			}
			drawn, sum, most := make([]float64, len(beta)), 0.0, 0
			for _, b := range beta {
				sum += a*b - l*b*b/2
			}
			rng := rand.New(rand.NewPCG(3, 4))
			for range draws {
				var c Iterates[int]
				for k, b := range beta {
					c.Keep(func() int { return k }, b, rng.ExpFloat64())
				}
				most = max(most, len(c))
				k, ok := c.Draw((&Sums{Noisy: noisy}).Strength(alpha), l)
				if !ok {
					t.Fatal("nothing is drawn")
				}
				drawn[k]++
			}
			for k, b := range beta {
				p := (a*b - l*b*b/2) / sum
				if z := (drawn[k] - draws*p) / math.Sqrt(draws*p*(1-p)); math.Abs(z) > 4.5 {
					t.Errorf("step %d of size %v: drawn %v times of %d, want %v", k, b, drawn[k],
						draws, draws*p)
				}
			}
			if order == nil && most == len(beta) {
				t.Error("no state is ever forgotten")
			}
		}
	}
	var equal Iterates[int]
	rng := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		equal.Keep(func() int { return 0 }, 0.1, rng.ExpFloat64())
	}
	if len(equal) != 1 {
		t.Errorf("%d states of equal steps in memory", len(equal))
	}
}

// For equal steps the bounds must match propositions 2 and 3, and the noise must match the noise of
// the gradients.
func TestSums(t *testing.T) {
	const alpha, l, c0, steps, m, terms = 0.8, 5.0, 3.0, 10, 4, 20
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 1e-12*math.Abs(want)) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	var exact Sums
	for k := range steps {
		near("the gradient map", exact.Add(alpha/l, 0.5*float64(k+1)), 0.5*float64(k+
			1)/(alpha/l*alpha/l))
	}
	mean, bound, floor := exact.Bounds(alpha, l, c0)
	near("the mean", mean, 0.5*5.5/(alpha/l*alpha/l))
	near("Proposition 2", bound, 2*l*c0/(alpha*alpha*steps))
	near("its floor", floor, 0)
	if _, bound, _ := exact.Bounds(alpha, 3*l, c0); !math.IsInf(bound, 1) {
		t.Errorf("the bound is %v where steps are too long", bound)
	}

	var noisy Sums
	const strength = alpha / 2
	for range steps {
		noisy.Add(strength/l, 1)
		noisy.AddNoise(strength/l, m, terms, []float64{3, 1}, []float64{1, 2}, []float64{2, -1},
			nil)
	}
	sigma2 := float64(m * ((3-1)*(3-2) + (1-2)*(1+1)))
	near("σ²", noisy.Noise/noisy.BetaOfNoise, sigma2)
	_, bound, floor = noisy.Bounds(alpha, l, c0)
	near("Proposition 3", bound, 2*l*c0/(strength*strength*steps)+sigma2/(m*alpha*strength))
	near("its floor", floor, sigma2/(m*alpha*strength))
	near("the score of εᵀu", noisy.Unbiased(), math.Sqrt(steps))
	noisy.Values.Add(1)
	noisy.Values.Add(-20)
	near("the greater score", noisy.Unbiased(), math.Sqrt(steps))
}

// Slope must accept right gradients and reject wrong ones for long and short steps. It must accept
// any gradient of a random function and of a function that is undefined along the step.
func TestSlope(t *testing.T) {
	for _, bend := range []float64{0.1, 10, 1e3} {
		f := func(t float64) (float64, bool) { return 2 + math.Sin(bend*t) + 3*t, true }
		right := bend + 3
		if s, ok := Slope(f, 2, right, 1e-8, 1e-12, false); s != right || !ok {
			t.Errorf("bend %v: %v agrees %v, want %v", bend, s, ok, right)
		}
		if s, ok := Slope(f, 2, 1.1*right, 1e-8, 1e-12, false); math.Abs(s-right) > 1e-3*right ||
			ok {
			t.Errorf("bend %v: a wrong slope gives %v and agrees %v, want %v", bend, s, ok, right)
		}
	}
	f := func(float64) (float64, bool) { return 0, false }
	if s, ok := Slope(f, 2, 7, 0, 0, false); s != 7 || !ok {
		t.Errorf("undefined: %v, %v", s, ok)
	}
	line := func(t float64) (float64, bool) { return 1 + 4*t, true }
	if s, ok := Slope(line, 1, 7, 0, 0, true); math.Abs(s-4) > 1e-10 || !ok {
		t.Errorf("random: %v, %v", s, ok)
	}
}
