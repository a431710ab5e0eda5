package dense

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Leading returns the r largest Ritz values of a symmetric positive semidefinite n×n matrix S, the
// largest first, and their vectors, n×r. The space is the block Krylov space of q, Sq, S²q, … with
// that number of blocks, where q has k ≥ r columns (Musco and Musco, 2015). mul stores Sx in dst,
// both n×k. q is overwritten. Values and vectors are 0 where the space has fewer, and of no use
// where h has stopped.
func Leading(h *parallel.Halt, q []float64, k, r, blocks int, mul func(dst, x []float64)) (
	values, vectors []float64) {

	n := len(q) / k
	space := krylov{n: n, k: k, halt: h, buf: make([]float64, n*k), cross: make([]float64, k*k)}
	ritz := mat.NewSymDense(k*blocks, nil)
	for b := 0; b < blocks && space.add(q); b++ {
		y := make([]float64, n*k)
		mul(y, space.blocks[b])
		if _, ok := AllFinite(y); !ok || h.Stopped() {
			return make([]float64, r), make([]float64, n*r)
		}
		for c, x := range space.blocks {
			space.product(y, x)
			for i := range k {
				for j := range k {
					if c*k+j <= b*k+i {
						ritz.SetSym(b*k+i, c*k+j, space.cross[i*k+j])
					}
				}
			}
		}
		q = y
	}
	m := k * len(space.blocks)
	values, vectors = make([]float64, r), make([]float64, n*r)
	var eig mat.EigenSym
	var of mat.Dense
	if h.Stopped() || m == 0 || !eig.Factorize(ritz.SliceSym(0, m), true) {
		return values, vectors
	}
	eig.VectorsTo(&of)
	all := eig.Values(nil)
	part := make([]float64, k*r)
	for c := range r {
		values[c] = all[m-1-c]
	}
	for b, q := range space.blocks {
		for i := range k {
			for c := range r {
				part[i*r+c] = of.At(b*k+i, m-1-c)
			}
		}
		space.gemm(blas.NoTrans, 1, q, General(part, k, r), General(vectors, n, r))
	}
	return values, vectors
}

// krylov is a space of orthonormal blocks, n×k. Columns may be 0.
type krylov struct {
	n, k   int
	halt   *parallel.Halt
	blocks [][]float64
	buf    []float64 // n×k
	cross  []float64 // k×k
}

// Of what a block adds, directions are left out whose squares are less than these parts of the
// largest among them, which is rounding of products of columns, and of what the block was, which is
// rounding of what the others have taken of it.
const (
	krylovFew  = 1e-13
	krylovNone = 1e-26
)

// add makes the columns of q that are new a block of s, whose memory q is from then on, and reports
// whether there are any.
func (s *krylov) add(q []float64) bool {
	var least float64
	for _, x := range q {
		least += krylovNone * x * x
	}
	if math.IsNaN(least) || math.IsInf(least, 0) {
		return false
	}
	for range 2 { // the second time for what rounding has left of the others
		for _, x := range s.blocks {
			s.product(x, q)
			s.gemm(blas.NoTrans, -1, x, General(s.cross, s.k, s.k), General(q, s.n, s.k))
		}
		s.product(q, q)
		var eig mat.EigenSym
		if s.halt.Stopped() || !eig.Factorize(mat.NewSymDense(s.k, s.cross), true) {
			return false
		}
		var of mat.Dense
		eig.VectorsTo(&of)
		values := eig.Values(nil)
		if least = max(least, krylovFew*values[s.k-1]); !(values[s.k-1] > least) {
			return false
		}
		for j, v := range values {
			scale := 0.0
			if v > least {
				scale = 1 / math.Sqrt(v)
			}
			for i := range s.k {
				s.cross[i*s.k+j] = scale * of.At(i, j)
			}
		}
		clear(s.buf)
		s.gemm(blas.NoTrans, 1, q, General(s.cross, s.k, s.k), General(s.buf, s.n, s.k))
		copy(q, s.buf)
		least = 0
	}
	s.blocks = append(s.blocks, q)
	return true
}

// product makes cross aᵀb.
func (s *krylov) product(a, b []float64) {
	clear(s.cross)
	s.gemm(blas.Trans, 1, a, General(b, s.n, s.k), General(s.cross, s.k, s.k))
}

// gemm adds αAB to c, A being the block a or its transpose.
func (s *krylov) gemm(t blas.Transpose, alpha float64, a []float64, b, c blas64.General) {
	block := view(t, General(a, s.n, s.k))
	fma.Gemm(fma.Run{Halt: s.halt}, alpha, block, view(blas.NoTrans, b), view(blas.NoTrans, c))
}
