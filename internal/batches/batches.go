// Package batches returns the orders in which the terms of a model are visited, and random draws
// of terms.
package batches

import (
	"iter"
	"math/rand/v2"
)

// Passes cuts an order of the n terms into batches, calling arrange before each pass.
func Passes(n, size int, arrange func(order []int)) iter.Seq[[]int] {
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

// ShuffledOnce visits every term exactly once a pass, in an order drawn at the start and kept.
func ShuffledOnce(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	drawn := false
	return Passes(n, size, func(order []int) {
		if !drawn {
			rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
			drawn = true
		}
	})
}

// Approach visits every term once, in an order drawn at the start, and then takes all terms
// together. Its blocks grow with the number of terms visited, from First to Most ≥ First. Once
// Enough are visited, the others are one block, so that only the first blocks are drawn at random.
// 0 means that all are visited by blocks that grow.
// Blocks of another size than First are those of ShuffledOnce.
type Approach struct{ First, Most, Enough int }

func (a Approach) Batches(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	if size != a.First {
		return ShuffledOnce(n, size, rng)
	}
	return func(yield func([]int) bool) {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		if size < n {
			if a.Enough > 0 {
				drawFirst(order, min(n, 2*a.Enough+size), rng)
			} else {
				rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
			}
			// Each block in order, so that rows are near each other in memory: the terms go to
			// their blocks from the first to the last.
			block, ends := make([]int, n), []int{}
			for lo := 0; lo < n; {
				hi := min(n, lo+max(size, min(lo, a.Most)))
				if a.Enough > 0 && lo >= a.Enough {
					hi = n
				}
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

// drawFirst makes the first k numbers of order a random draw of all of them, by the first k steps
// of a shuffle (Fisher and Yates, 1938).
func drawFirst(order []int, k int, rng *rand.Rand) {
	for i := range k {
		j := i + rng.IntN(len(order)-i)
		order[i], order[j] = order[j], order[i]
	}
}

// Pick draws an index with probability in proportion to its weight.
func Pick(weight []float64, rng *rand.Rand) int {
	var sum float64
	for _, w := range weight {
		sum += w
	}
	u := rng.Float64() * sum
	for i, w := range weight {
		if u -= w; u < 0 {
			return i
		}
	}
	return rng.IntN(len(weight))
}
