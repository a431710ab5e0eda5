package dense

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// diagonallyDominant returns a positive definite n×n matrix.
func diagonallyDominant(rng *rand.Rand, n int) []float64 {
	c := make([]float64, n*n)
	for i := range n {
		for j := range i {
			c[i*n+j] = rng.NormFloat64() / float64(n)
			c[j*n+i] = c[i*n+j]
		}
		c[i*n+i] = 2 + rng.Float64()
	}
	return c
}

// randomChanges returns the expansion of p positive and q negative changes of n variables.
func randomChanges(rng *rand.Rand, n, p, q int, h *parallel.Halt) *Expansion {
	x := &Expansion{cols: n, halt: h, xp: make([]float64, p*n), xn: make([]float64, q*n)}
	for _, part := range [2][]float64{x.xp, x.xn} {
		for i := range part {
			part[i] = rng.NormFloat64()
		}
	}
	return x
}

// TestDelayed checks that rows of a covariance with delayed changes agree with the rows after the
// changes, and with the result of Apply. The bits must be the same for any number of goroutines
// and if Apply is halted midway.
func TestDelayed(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 8))
	for _, n := range []int{1, 7, 40, 193, 700} {
		c := diagonallyDominant(rng, n)
		want := slices.Clone(c)
		var changes []*Expansion
		for k := range 3 {
			x := randomChanges(rng, n, 5*k, 12-6*k, nil)
			x.SubCov(want)
			changes = append(changes, x)
		}
		var at []int
		for i := range n {
			if rng.IntN(n) < 20 {
				at = append(at, i)
			}
		}
		var first [2][]float64
		for _, workers := range []int{1, 2, 5} {
			h := new(parallel.Halt)
			h.Lend(workers)
			var d Delayed
			for _, x := range changes {
				d.Add(x)
			}
			if d.Rank() != 33 {
				t.Fatalf("rank %d, want 33", d.Rank())
			}
			rows, now := make([]float64, len(at)*n), slices.Clone(c)
			d.Rows(h, rows, now, n, at)
			if !slices.Equal(now, c) {
				t.Fatalf("n = %d: C is written to", n)
			}
			for a, i := range at {
				for j := range n {
					if w := SymmetricAt(want, n, i,
						j); !(math.Abs(rows[a*n+j]-w) <= 1e-11*(1+math.Abs(w))) {
						t.Fatalf("n = %d, %d workers: V[%d, %d] is %v, want %v", n, workers, i, j,
							rows[a*n+j], w)
					}
				}
			}
			if workers == 2 { // halted before it begins, and then continued
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				h.Watch(ctx)
				if d.Apply(h, now) {
					t.Fatal("changes are made though the halt has stopped")
				}
				h.Watch(t.Context())
			}
			if !d.Apply(h, now) || d.Rank() != 0 || d.Begun() {
				t.Fatalf("n = %d: changes are left", n)
			}
			for i := range n {
				for j := range i + 1 {
					if w := want[i*n+j]; !(math.Abs(now[i*n+j]-w) <= 1e-11*(1+math.Abs(w))) {
						t.Fatalf("n = %d, %d workers: V[%d, %d] is %v, want %v", n, workers, i, j,
							now[i*n+j], w)
					}
				}
			}
			for k, bits := range [2][]float64{rows, now} {
				if first[k] == nil {
					first[k] = bits
				} else if !slices.Equal(first[k], bits) {
					t.Errorf("n = %d, %d workers: other bits", n, workers)
				}
			}
			// After Apply there are no changes, so Rows must return rows of C.
			d.Rows(h, rows, now, n, at)
			for a, i := range at {
				for j := range n {
					if rows[a*n+j] != SymmetricAt(now, n, i, j) {
						t.Fatalf("n = %d: row %d is not that of C", n, i)
					}
				}
			}
		}
	}
}

// TestSharedRows checks that sharing work because of its size does not change the bits, for
// factors, expansions and copies of more numbers than copiedShared.
func TestSharedRows(t *testing.T) {
	t.Parallel()
	const n = 600
	rng := rand.New(rand.NewPCG(6, 9))
	c, delta := diagonallyDominant(rng, n), make([]float64, n)
	for _, few := range []int{0, 3} { // 0 leaves no changes
		for i := range delta {
			if delta[i] = rng.ExpFloat64(); i < few {
				delta[i] = 0
			}
		}
		var first []float64
		for _, workers := range []int{1, 2, 7} {
			h := new(parallel.Halt)
			h.Lend(workers)
			f := SiteFactor{Halt: h}
			if !f.Factor(c, n, delta) {
				t.Fatal("no factor")
			}
			var x Expansion
			f.Expand(&x, c, n)
			v := make([]float64, n*n)
			f.Covariance(v, &x)
			if bits := slices.Concat(f.Lp, x.xp, v); first == nil {
				first = bits
			} else if !slices.Equal(first, bits) {
				t.Errorf("%d workers, %d changes of none: other bits", workers, few)
			}
		}
	}
}
