package dense

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// haltCases are calls of n×n matrices that can be halted, beside the plain ones of BLAS and LAPACK.
func haltCases(n int, rng *rand.Rand) map[string][2]func(h *parallel.Halt) []float64 {
	cols := n/2 + 3
	x, l := make([]float64, n*cols), make([]float64, n*n)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	for i := range n {
		for j := range i {
			l[i*n+j] = rng.NormFloat64() / float64(n)
		}
		l[i*n+i] = 1 + rng.Float64()
	}
	return map[string][2]func(h *parallel.Halt) []float64{
		"xxᵀ": {func(h *parallel.Halt) []float64 {
			c := slices.Clone(l)
			AddProduct(h, c, n, -1, General(x, n, cols))
			return c
		}, func(*parallel.Halt) []float64 {
			c := slices.Clone(l)
			blas64.Syrk(blas.NoTrans, -1, General(x, n, cols), 1, Symmetric(c, n))
			return c
		}},
		"xᵀx": {func(h *parallel.Halt) []float64 {
			c := make([]float64, cols*cols)
			(&Expansion{cols: cols, halt: h}).addGram(c, 1, x)
			return c
		}, func(*parallel.Halt) []float64 {
			c := make([]float64, cols*cols)
			blas64.Syrk(blas.Trans, 1, General(x, n, cols), 1, Symmetric(c, cols))
			return c
		}},
		"L⁻¹x": {func(h *parallel.Halt) []float64 {
			b := slices.Clone(x)
			solveLower(h, l, n, General(b, n, cols))
			return b
		}, func(*parallel.Halt) []float64 {
			b := slices.Clone(x)
			blas64.Trsm(blas.Left, blas.NoTrans, 1, LowerTriangle(l, n), General(b, n, cols))
			return b
		}},
		"L⁻¹": {func(h *parallel.Halt) []float64 {
			c := slices.Clone(l)
			InvertLower(h, c, n)
			return c
		}, func(*parallel.Halt) []float64 {
			c := slices.Clone(l)
			lapack64.Trtri(LowerTriangle(c, n))
			return c
		}},
		"(LLᵀ)⁻¹": {func(h *parallel.Halt) []float64 {
			c := slices.Clone(l)
			InvertUntil(h, c, n)
			return c
		}, func(*parallel.Halt) []float64 {
			c := slices.Clone(l)
			lapack64.Potri(LowerTriangle(c, n))
			return c
		}},
	}
}

// Calls that can be halted have the bits of those that cannot.
func TestHaltBits(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	for _, n := range []int{1, 2, 63, 64, 65, 130, 260} {
		for name, f := range haltCases(n, rng) {
			if a, b := f[0](nil), f[1](nil); !slices.Equal(a, b) {
				t.Errorf("%s of size %d: other bits", name, n)
			}
		}
	}
}

// Once halted, calls end at once, and a factor is none.
func TestHalted(t *testing.T) {
	t.Parallel()
	n := 1500
	if testing.Short() {
		n = 600
	}
	ctx, cancel := context.WithCancel(context.Background())
	var h parallel.Halt
	h.Watch(ctx)
	cancel()
	for name, f := range haltCases(n, rand.New(rand.NewPCG(3, 3))) {
		start := time.Now()
		f[0](&h)
		halted := time.Since(start)
		start = time.Now()
		f[0](nil)
		if whole := time.Since(start); halted > whole/2 {
			t.Errorf("%s: %v halted, %v to its end", name, halted, whole)
		}
	}
	unit := make([]float64, n*n)
	for i := range n {
		unit[i*n+i] = 1
	}
	if CholeskyUntil(&h, unit, n) {
		t.Error("a factor although halted")
	}
}
