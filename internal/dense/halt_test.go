package dense

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// A haltCase is a call that can be halted and changes c, together with the same call of BLAS or
// LAPACK in gonum.
type haltCase struct {
	name string
	c    []float64
	own  func(h *parallel.Halt, c []float64)
	want func(c []float64)
}

func haltCases(n int, rng *rand.Rand) []haltCase {
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
	return []haltCase{
		{"xxᵀ", l, func(h *parallel.Halt,
			c []float64) {
			AddProduct(h, c, n, -1, General(x, n, cols))
		},
			func(c []float64) {
				blas64.Syrk(blas.NoTrans, -1, General(x, n, cols), 1,
					Symmetric(c, n))
			}},
		{"xᵀx", make([]float64, cols*cols), func(h *parallel.Halt, c []float64) {
			(&Expansion{cols: cols, halt: h}).addGram(c, 1, x)
		},
			func(c []float64) {
				blas64.Syrk(blas.Trans, 1, General(x, n, cols), 1,
					Symmetric(c, cols))
			}},
		{"−xᵀx by rows", make([]float64, cols*cols), func(h *parallel.Halt, c []float64) {
			(&Expansion{cols: cols, halt: h, xp: x}).SubCov(c)
		},
			func(c []float64) {
				blas64.Syrk(blas.Trans, -1, General(x, n, cols), 1,
					Symmetric(c, cols))
			}},
		{"L⁻¹x", x, func(h *parallel.Halt, c []float64) { (&SiteFactor{Halt: h}).trsm(l, n, c, cols) },
			func(c []float64) {
				blas64.Trsm(blas.Left, blas.NoTrans, 1, LowerTriangle(l, n), General(c, n, cols))
			}},
		{"L⁻¹", l, func(h *parallel.Halt, c []float64) { InvertLower(h, c, n) },
			func(c []float64) { lapack64.Trtri(LowerTriangle(c, n)) }},
		{"(LLᵀ)⁻¹", l, func(h *parallel.Halt, c []float64) { InvertUntil(h, c, n) },
			func(c []float64) { lapack64.Potri(LowerTriangle(c, n)) }},
	}
}

// TestHaltBits checks that calls that could be halted but are not have the same bits as calls
// without a Halt, and agree with BLAS and LAPACK.
func TestHaltBits(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	var h parallel.Halt
	h.Watch(t.Context())
	for _, n := range []int{1, 2, 63, 64, 65, 130, 260, 420} {
		for _, k := range haltCases(n, rng) {
			a, b, want := slices.Clone(k.c), slices.Clone(k.c), slices.Clone(k.c)
			k.own(nil, a)
			k.own(&h, b)
			k.want(want)
			if !slices.Equal(a, b) {
				t.Errorf("%s of size %d: other bits", k.name, n)
			}
			for i, x := range a {
				if !(math.Abs(x-want[i]) <= 1e-13*float64(n)) {
					t.Fatalf("%s of size %d: number %d is %v, want %v", k.name, n, i, x, want[i])
				}
			}
		}
	}
}

// TestHalted checks that calls do nothing once they are halted, and do not return a factor.
func TestHalted(t *testing.T) {
	t.Parallel()
	const n = 300
	ctx, cancel := context.WithCancel(context.Background())
	var h parallel.Halt
	h.Watch(ctx)
	cancel()
	for _, k := range haltCases(n, rand.New(rand.NewPCG(3, 3))) {
		c := slices.Clone(k.c)
		if k.own(&h, c); !slices.Equal(c, k.c) {
			t.Errorf("%s does not stop", k.name)
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
