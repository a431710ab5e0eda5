package pgsvi

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// autoStep leaves the length of every step to the Stepper: a nil Solver.StepSize.
type autoStep struct{}

// StepSize returns +Inf.
func (autoStep) StepSize(int) float64 { return math.Inf(1) }

// ConstantStep is the schedule β_k = β. The zero value is invalid.
type ConstantStep float64

// StepSize returns c.
func (c ConstantStep) StepSize(int) float64 { return float64(c) }

// Validate returns an error wrapping ErrParam unless c is positive.
func (c ConstantStep) Validate() error {
	if !(c > 0) {
		return fmt.Errorf("pgsvi: ConstantStep %v must be positive: %w", float64(c), ErrParam)
	}
	return nil
}

// RobbinsMonro is the schedule β_k = Scale·(1 + k/Delay)^−Power (Robbins and
// Monro, 1951), whose sum diverges while the sum of its squares converges for
// ½ < Power ≤ 1. Zero fields mean Scale 1, Delay 1 and Power 0.6.
type RobbinsMonro struct{ Scale, Delay, Power float64 }

// StepSize returns β_k.
func (r RobbinsMonro) StepSize(k int) float64 {
	return orOne(r.Scale) * math.Pow(1+float64(k)/orOne(r.Delay), -r.power())
}

func (r RobbinsMonro) power() float64 {
	if r.Power == 0 {
		return 0.6
	}
	return r.Power
}

// Validate returns an error wrapping ErrParam unless Scale and Delay are
// positive or zero and Power is in [0, 1].
func (r RobbinsMonro) Validate() error {
	if !(r.Scale >= 0) || !(r.Delay >= 0) || !(r.Power >= 0 && r.Power <= 1) || math.IsInf(r.Scale, 0) || math.IsInf(r.Delay, 0) {
		return fmt.Errorf("pgsvi: %+v needs Scale and Delay >= 0 and Power in [0, 1]: %w", r, ErrParam)
	}
	return nil
}

// FractionStep is the schedule β_k = ρ_k/(1−ρ_k) with
//
//	ρ_k = (Delay + k)^−Power,
//
// in which a step with h = KLTo and D = KL goes the fraction ρ_k of the way to its target in natural parameters (Hoffman et al., 2013,
// equation 26, where Delay is τ and Power κ; k counts from 0). It converges for ½ < Power ≤ 1. Where ρ_k = 1, as it is at Delay 1 and k = 0, β_k is +Inf and
// the step is that of the Stepper. Zero fields mean Delay 10 and Power 0.7.
type FractionStep struct{ Delay, Power float64 }

// What zero fields of a FractionStep mean: values within the range that Hoffman, Blei and Bach (2010) found best on three corpora.
const (
	fractionDelay = 10
	fractionPower = 0.7
)

// StepSize returns β_k.
func (s FractionStep) StepSize(k int) float64 {
	rho := math.Pow(orDefault(s.Delay, fractionDelay)+float64(k), -orDefault(s.Power, fractionPower))
	return rho / (1 - rho)
}

// Validate returns an error wrapping ErrParam unless Delay is at least 1 and finite, or zero, and Power in [0, 1].
func (s FractionStep) Validate() error {
	var errs []error
	if s.Delay != 0 && !(s.Delay >= 1 && s.Delay <= math.MaxFloat64) {
		errs = append(errs, fmt.Errorf("pgsvi: FractionStep.Delay is %v; it must be at least 1, or 0: %w", s.Delay, ErrParam))
	}
	if !(s.Power >= 0 && s.Power <= 1) {
		errs = append(errs, fmt.Errorf("pgsvi: FractionStep.Power is %v; it must be in [0, 1]: %w", s.Power, ErrParam))
	}
	return errors.Join(errs...)
}

func orOne(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}

// Reshuffle visits every term exactly once a pass, in an order drawn anew for
// each pass, but that of a batch of all terms. The last batch of a pass is shorter where size does not divide n.
type Reshuffle struct{}

// Batches implements Sampler.
func (Reshuffle) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	if size >= n {
		return InOrder{}.Batches(n, size, rng)
	}
	return passes(n, size, func(order []int) {
		rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	})
}

// InOrder visits the terms in the order of their indices, pass after pass.
type InOrder struct{}

// Batches implements Sampler.
func (InOrder) Batches(n, size int, _ *rand.Rand) iter.Seq[[]int] {
	return passes(n, size, func([]int) {})
}

// passes cuts an order of the n terms into batches, calling arrange before each pass.
func passes(n, size int, arrange func(order []int)) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		if n < 1 || size < 1 {
			return
		}
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		for { // the caller ends it
			arrange(order)
			for i := 0; i < n; i += size {
				if !yield(order[i:min(i+size, n)]) {
					return
				}
			}
		}
	}
}

// thenAll is Reshuffle for some passes of batches of its own size, and takes all terms together
// from then on. Batches of another size are those of Reshuffle.
type thenAll struct{ size, passes int }

// Batches implements Sampler.
func (a thenAll) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	few := Reshuffle{}.Batches(n, size, rng)
	if size != a.size || size >= n {
		return few
	}
	return func(yield func([]int) bool) {
		left := a.passes * n
		for batch := range few {
			if !yield(batch) {
				return
			}
			if left -= len(batch); left <= 0 {
				break
			}
		}
		InOrder{}.Batches(n, n, rng)(yield)
	}
}

// WithReplacement draws every term of every batch independently and uniformly.
type WithReplacement struct{}

// Batches implements Sampler.
func (WithReplacement) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		if n < 1 || size < 1 {
			return
		}
		batch := make([]int, size)
		for { // the caller ends it
			for i := range batch {
				batch[i] = rng.IntN(n)
			}
			if !yield(batch) {
				return
			}
		}
	}
}

// allTerms tells a batch of all terms from one with repetitions. It holds scratch memory.
type allTerms struct{ seen []bool }

// all reports whether batch has each of the n terms once, in any order; nil has.
func (t *allTerms) all(batch []int, n int) bool {
	if batch == nil {
		return true
	}
	if len(batch) != n {
		return false
	}
	t.seen = dense.Resize(t.seen, n)
	clear(t.seen)
	for _, i := range batch {
		if t.seen[i] {
			return false
		}
		t.seen[i] = true
	}
	return true
}

// checkBatch returns an error if batch is empty or has an index outside 0 … n−1.
func checkBatch(batch []int, n int) error {
	if len(batch) == 0 {
		return fmt.Errorf("pgsvi: the Sampler gave an empty batch: %w", ErrEmpty)
	}
	for _, i := range batch {
		if i < 0 || i >= n {
			return fmt.Errorf("pgsvi: batch has term %d of %d: %w", i, n, ErrShape)
		}
	}
	return nil
}

// ShuffleOnce visits every term exactly once a pass, in an order drawn at the
// start of the run and kept: the same batches pass after pass. It is what block
// sweeps want.
type ShuffleOnce struct{}

// Batches implements Sampler.
func (ShuffleOnce) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	drawn := false
	return passes(n, size, func(order []int) {
		if !drawn {
			rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
			drawn = true
		}
	})
}

// approach visits every term once in blocks that grow with the number of terms
// visited, in an order drawn at the start, and from then on takes all terms
// together. Blocks of another size than its own are those of ShuffleOnce.
type approach struct{ first int }

func (a approach) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	if size != a.first {
		return ShuffleOnce{}.Batches(n, size, rng)
	}
	return func(yield func([]int) bool) {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		if size < n {
			rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
			// Each block in order, so that rows are near each other in memory: the terms go to their blocks from the first to the last.
			block, ends := make([]int, n), []int{}
			for lo := 0; lo < n; {
				hi := min(n, lo+max(size, lo))
				for _, i := range order[lo:hi] {
					block[i] = len(ends)
				}
				ends = append(ends, lo)
				lo = hi
			}
			for i, b := range block {
				order[ends[b]] = i
				ends[b]++
			}
			lo := 0
			for _, hi := range ends {
				if !yield(order[lo:hi]) {
					return
				}
				lo = hi
			}
			for i := range order {
				order[i] = i
			}
		}
		for yield(order) {
		}
	}
}

// orDefault returns x, or def where it is zero.
func orDefault(x, def float64) float64 {
	if x == 0 {
		return def
	}
	return x
}
