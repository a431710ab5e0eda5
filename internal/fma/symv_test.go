package fma

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// TestSymvBlocks checks products with large matrices and with their inverses against sums over the
// same blocks, on any number of goroutines.
func TestSymvBlocks(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(8, 8))
		for _, n := range []int{blockedFrom - 1, blockedFrom, blockedFrom + vectorBlock + 3} {
			a, l := layouts(rng, n, n, rng.NormFloat64)[0], triangular(rng, n)
			rows, left := a.all(), l.all()
			x, y := make([]float64, n), make([]float64, n)
			for i := range n {
				x[i], y[i] = rng.NormFloat64(), rng.NormFloat64()
			}
			block := vectorBlock
			if n < blockedFrom {
				block = n
			}
			product := slices.Clone(y)
			solved := slices.Clone(x)
			for lo := 0; lo < n; lo += block {
				hi := min(lo+block, n)
				z := make([]float64, hi)
				if block == n {
					z = product
				}
				for i := lo; i < hi; i++ {
					row := rows[i]
					axpy(-2*x[i], row[:i], z)
					z[i] = math.FMA(-2, dot(row[:i+1], x[:i+1]), z[i])
				}
				if block < n {
					axpy(1, z, product)
				}
				for i := lo; i < hi; i++ {
					row := left[i]
					if block < n {
						solved[i] -= dot(row[:lo], solved[:lo])
					}
					solved[i] = (solved[i] - dot(row[lo:i], solved[lo:i])) / row[i]
				}
			}
			back := slices.Clone(x)
			for i := n - 1; i >= 0; i-- {
				row := left[i]
				back[i] /= row[i]
				axpy(-back[i], row[:i], back)
			}
			var h parallel.Halt
			h.Lend(2)
			for _, r := range []Run{{}, {Workers: 3}, {Halt: &h}} {
				name := fmt.Sprintf("%d rows, %d workers", n, r.workers())
				got := slices.Clone(y)
				Symv(r, -2, a, x, got)
				same(t, name+", symv", got, product)
				copy(got, x)
				Trsv(r, l, got, false)
				same(t, name+", trsv", got, solved)
				copy(got, x)
				Trsv(r, l, got, true)
				same(t, name+", transposed trsv", got, back)
			}
		}
	})
}
