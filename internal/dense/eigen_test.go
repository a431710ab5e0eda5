package dense

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestEigenvalues compares eigenvalues with gonum, up to rounding of the largest. The sizes are
// close to multiples of a panel, and the matrices may be singular, consist of blocks, or have
// units of 1e±150.
func TestEigenvalues(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for _, n := range []int{1, 2, 3, 31, 32, 33, 64, 100} {
		for kind := range 4 {
			a := make([]float64, n*n)
			rank := []int{n, max(1, n/3), n, n}[kind]
			for range rank {
				x := make([]float64, n)
				for i := range x {
					if kind != 2 || rng.IntN(4) == 0 {
						x[i] = rng.NormFloat64()
					}
				}
				Syr(rng.NormFloat64(), Vector(x), Symmetric(a, n))
			}
			// Gonum fails for blocks that are tiny.
			most := max(floats.Max(a), -floats.Min(a)) * float64(n)
			shifted := mat.NewSymDense(n, slices.Clone(a))
			for i := range n {
				for j := range i {
					shifted.SetSym(i, j, a[i*n+j])
				}
				shifted.SetSym(i, i, a[i*n+i]+most)
			}
			var e mat.EigenSym
			if !e.Factorize(shifted, false) {
				t.Fatal("no eigenvalues of gonum")
			}
			unit := []float64{1, 1, 1e-150, 1e150}[kind]
			floats.Scale(unit, a)
			want, got := e.Values(nil), make([]float64, n)
			if !Eigenvalues(nil, got, a, n) {
				t.Fatalf("n = %d, kind %d: not found", n, kind)
			}
			for i, w := range want {
				if w = (w - most) * unit; !(math.Abs(got[i]-w) <= 1e-15*float64(n)*most*unit) {
					t.Fatalf("n = %d, kind %d: eigenvalue %d is %v, want %v", n, kind, i, got[i], w)
				}
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var h parallel.Halt
	h.Watch(ctx)
	cancel()
	if Eigenvalues(&h, make([]float64, 3), make([]float64, 9), 3) {
		t.Error("eigenvalues although halted")
	}
}

func BenchmarkEigenvalues(b *testing.B) {
	const n = 2000
	rng := rand.New(rand.NewPCG(1, 9))
	x := make([]float64, n*n)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	a, dst := make([]float64, n*n), make([]float64, n)
	for b.Loop() {
		copy(a, x)
		if !Eigenvalues(nil, dst, a, n) {
			b.Fatal("not found")
		}
	}
}
