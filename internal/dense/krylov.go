package dense

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Leading returns the r largest Ritz values of a symmetric positive semidefinite n×n matrix S in
// decreasing order, and their vectors as an n×r matrix. The space is the block Krylov space of q,
// Sq, S²q, … with the given number of blocks, where q has k ≥ r columns (Musco and Musco 2015).
// The function mul stores Sx in dst, both n×k. Leading overwrites q. If the space has fewer than
// r dimensions, the other values and vectors are 0. The results are invalid if h has stopped.
// Package site calls it for approximations of low rank.
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

// krylov is a space of orthonormal n×k blocks. Some columns may be 0.
type krylov struct {
	n, k   int
	halt   *parallel.Halt
	blocks [][]float64
	buf    []float64 // n×k
	cross  []float64 // k×k
}

// add drops directions of a new block that are only rounding errors. The square of such a
// direction is less than krylovFew times the largest square, which is the rounding error of
// products of columns. Or it is less than krylovNone times the square of the block before
// projection, which is the rounding error of the projection.
const (
	krylovFew  = 1e-13
	krylovNone = 1e-26
)

// add orthonormalizes the columns of q against s and appends them as a block, which uses the
// memory of q. It reports whether any new direction remains.
func (s *krylov) add(q []float64) bool {
	var least float64
	for _, x := range q {
		least += krylovNone * x * x
	}
	if math.IsNaN(least) || math.IsInf(least, 0) {
		return false
	}
	for range 2 { // again, to remove rounding errors of the first time
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

// product stores aᵀb in cross.
func (s *krylov) product(a, b []float64) {
	clear(s.cross)
	s.gemm(blas.Trans, 1, a, General(b, s.n, s.k), General(s.cross, s.k, s.k))
}

// gemm adds αAB to c, where A is the block a or its transpose.
func (s *krylov) gemm(t blas.Transpose, alpha float64, a []float64, b, c blas64.General) {
	block := view(t, General(a, s.n, s.k))
	fma.Gemm(fma.Run{Halt: s.halt}, alpha, block, view(blas.NoTrans, b), view(blas.NoTrans, c))
}
