// Package batches chooses the order in which a fit reads the terms of a model. The root package
// uses the orders for mini-batches, and package site uses Approach for the first pass. Packages
// mixture and topic draw their starts with Pick.
package batches

import (
	"iter"
	"math/rand/v2"
)

// Passes cuts n terms into batches of the given size. It calls arrange before each pass to set
// the order of the terms.
func Passes(n, size int, arrange func(order []int)) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		if n < 1 || size < 1 {
			return
		}
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		for { // until the caller stops
			arrange(order)
			for i := 0; i < n; i += size {
				if !yield(order[i:min(i+size, n)]) {
					return
				}
			}
		}
	}
}

// ShuffledOnce yields every term exactly once per pass, in an order that is drawn at the start.
func ShuffledOnce(n, size int, rng *rand.Rand) iter.Seq[[]int] {
	drawn := false
	return Passes(n, size, func(order []int) {
		if !drawn {
			rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
			drawn = true
		}
	})
}

// An Approach yields every term once, in random order, and then all terms together in each pass.
// The blocks of the first pass grow with the number of terms before them, from First to Most,
// where Most is at least First. Once Enough terms are done, the remaining terms form one block,
// so only the first blocks are random. If Enough is 0, the blocks keep growing. If Batches is
// called with another size than First, it works like ShuffledOnce.
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
			// Sort each block, so that its rows are close to each other in memory. A counting
			// sort distributes the terms over the blocks in ascending order.
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

// drawFirst moves a random draw of k numbers to the front of order, by the first k steps of a
// shuffle (Fisher and Yates 1938).
func drawFirst(order []int, k int, rng *rand.Rand) {
	for i := range k {
		j := i + rng.IntN(len(order)-i)
		order[i], order[j] = order[j], order[i]
	}
}

// Pick draws an index with probability proportional to its weight.
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
