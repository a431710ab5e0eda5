package design

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"gonum.org/v1/gonum/blas"
)

// This file computes the products of sparse rows that share many columns. The rows of a formula
// with a smooth curve and a random intercept have the columns of the curve in common, and each row
// has one of many indicators besides. The common columns, C, are the core, and the others, R, are
// the rest. With X = [C R]
//
//	XᵀWX = [CᵀWC CᵀWR; RᵀWC RᵀWR],   xᵀVx = cᵀV_CC c + 2 rᵀV_RC c + rᵀV_RR r,   XW = C W_C + R W_R,
//
// where the products of C alone are products of dense matrices and the products of R take a few
// operations per row. AddGram, Variances and MulRows in design.go call this file.

const (
	leastCore = 8   // columns
	mostCore  = 256 // columns, which bounds the memory for RᵀWC
	coreShare = 2   // a column is in the core if at least 1/coreShare of the rows have it
)

// core lists the columns that most sparse rows have.
type core struct {
	cols []int   // increasing
	slot []int32 // the place of each column of the matrix in cols, or −1
}

// NewSparse returns the matrix of the given rows.
func NewSparse(s *Rows) *Matrix {
	g := &Matrix{Rows: s.Rows(), Cols: s.Cols, Sparse: s, Unit: true}
	rest := s
	if s.ones != nil {
		rest = s.ones.rest
	}
	for _, v := range rest.Val {
		if v != 1 {
			g.Unit = false
			break
		}
	}
	g.core = s.core(g.Rows)
	if g.Unit { // products of ones need no multiplication
		g.core = nil
	}
	return g
}

// core returns the core of the first n rows. It returns nil if there are few rows, or if the core would
// have few columns or very many.
func (s *Rows) core(n int) *core {
	if n < max(s.Cols, Chunk) || s.Values() < leastCore*n/coreShare {
		return nil
	}
	count, rest := make([]int, s.Cols), s
	if s.ones != nil {
		rest = s.ones.rest
		count[rest.Cols] = n
	}
	for _, j := range rest.Ind[rest.Ptr[0]:rest.Ptr[n]] {
		count[j]++
	}
	c := &core{slot: make([]int32, s.Cols)}
	for j, rows := range count {
		c.slot[j] = -1
		if coreShare*rows >= n {
			c.slot[j] = int32(len(c.cols))
			c.cols = append(c.cols, j)
		}
	}
	if len(c.cols) < leastCore || len(c.cols) > mostCore {
		return nil
	}
	return c
}

// coreWork is scratch memory for some rows, and for products with a core of F columns.
type coreWork struct {
	c     []float64 // C, row by row
	rest  Rows      // R, with the columns of X
	gram  []float64 // CᵀWC, F×F
	cross []float64 // RᵀWC, Cols×F
	t     []float64 // C V_CC or W_C

	panels fma.Panels
}

// divide stores C and R of n rows in w: the rows from lo on, or the rows at index from lo on.
func (g *Matrix) divide(w *coreWork, index []int, lo, n int) {
	f, slot := len(g.core.cols), g.core.slot
	w.c = dense.Resize(w.c, n*f)
	clear(w.c)
	w.rest.Cols, w.rest.Ptr = g.Cols, append(w.rest.Ptr[:0], 0)
	w.rest.Ind, w.rest.Val = w.rest.Ind[:0], w.rest.Val[:0]
	for a := range n {
		ind, val := g.Sparse.Row(dense.Index(index, lo+a))
		c := w.c[a*f : (a+1)*f]
		for k, j := range ind {
			if at := slot[j]; at >= 0 {
				c[at] = val[k]
			} else {
				w.rest.Ind, w.rest.Val = append(w.rest.Ind, j), append(w.rest.Val, val[k])
			}
		}
		w.rest.Ptr = append(w.rest.Ptr, len(w.rest.Ind))
	}
}

// addCoreGram is addGramPart for a matrix with a core. Rows are also multiplied by √|w|.
func (g *Matrix) addCoreGram(p, weight []float64, index []int, lo, hi int, s *Work) {
	f, w := len(g.core.cols), &s.core
	w.gram, w.cross = dense.Resize(w.gram, f*f), dense.Resize(w.cross, g.Cols*f)
	clear(w.gram)
	clear(w.cross)
	var root [Chunk]float64
	var rows [Chunk]int
	for _, sign := range [2]float64{1, -1} {
		for a := lo; a < hi && !s.Halt.Stopped(); {
			n := 0
			for ; a < hi && n < Chunk; a++ {
				if sign*weight[a] > 0 {
					root[n], rows[n] = math.Sqrt(sign*weight[a]), dense.Index(index, a)
					n++
				}
			}
			if n == 0 {
				continue
			}
			g.divide(w, rows[:n], 0, n)
			for i, r := range root[:n] {
				fma.Scale(r, w.c[i*f:(i+1)*f])
				_, val := w.rest.Row(i)
				fma.Scale(r, val)
			}
			w.panels.Set(fma.Of(w.c, n, f, f))
			w.panels.Syrk(fma.Run{Workers: 1}, sign, fma.Of(w.gram, f, f, f), 0, f)
			g.addRest(p, sign, n, w)
		}
	}
	g.addCore(p, w)
}

// addRest adds RᵀC of n rows, times sign, to w.cross and RᵀR to p.
func (g *Matrix) addRest(p []float64, sign float64, n int, w *coreWork) {
	f := len(g.core.cols)
	for i := range n {
		ind, val := w.rest.Row(i)
		c := w.c[i*f : (i+1)*f]
		for k, j := range ind {
			x, row := sign*val[k], p[int(j)*g.Cols:]
			fma.Axpy(x, c, w.cross[int(j)*f:][:f])
			for l, to := range ind[:k+1] {
				row[to] = math.FMA(x, val[l], row[to])
			}
		}
	}
}

// addCore adds CᵀWC and RᵀWC to the lower triangle of p.
func (g *Matrix) addCore(p []float64, w *coreWork) {
	d, f := g.Cols, len(g.core.cols)
	for i, col := range g.core.cols {
		for k, to := range g.core.cols[:i+1] {
			p[col*d+to] += w.gram[i*f+k]
		}
	}
	for j, at := range g.core.slot {
		if at >= 0 {
			continue
		}
		for k, col := range g.core.cols {
			p[max(j, col)*d+min(j, col)] += w.cross[j*f+k]
		}
	}
}

// coreInverse holds the parts of V = (LLᵀ)⁻¹ that variances need.
type coreInverse struct {
	core []float64 // V_CC, F×F
	rest []float64 // V_RC, Cols×F, of all columns
	diag []float64 // the diagonal of V_CC
}

// coreVariances is Variances for a matrix with a core.
func (g *Matrix) coreVariances(dst, l, inv []float64, index []int, s *Work) {
	d, f, v := g.Cols, len(g.core.cols), &s.inverse
	v.core, v.rest = dense.Resize(v.core, f*f), dense.Resize(v.rest, d*f)
	v.diag = dense.Resize(v.diag, f)
	for j := range d {
		for k, col := range g.core.cols {
			v.rest[j*f+k] = dense.SymmetricAt(inv, d, j, col)
		}
		if at := int(g.core.slot[j]); at >= 0 {
			copy(v.core[at*f:(at+1)*f], v.rest[j*f:])
			v.diag[at] = inv[j*d+j]
		}
	}
	part := func(lo, hi int, t *Work) {
		if !s.Halt.Stopped() {
			g.coreVariancesPart(dst[lo:hi], l, inv, index, lo, v, t)
		}
	}
	if !g.Shared(s.Halt, len(dst)*f*f) {
		for lo := 0; lo < len(dst); lo += Chunk {
			part(lo, min(lo+Chunk, len(dst)), s)
		}
		return
	}
	s.Split(len(dst), Chunk, part)
}

// coreVariancesPart is coreVariances for len(dst) rows from lo on.
func (g *Matrix) coreVariancesPart(dst, l, inv []float64, index []int, lo int, v *coreInverse,
	s *Work) {
	n, d, f, w := len(dst), g.Cols, len(g.core.cols), &s.core
	g.divide(w, index, lo, n)
	w.t = dense.Resize(w.t, n*f)
	clear(w.t)
	fma.Gemm(fma.Run{Workers: 1}, 1, fma.Of(w.c, n, f, f), fma.Of(v.core, f, f, f),
		fma.Of(w.t, n, f, f))
	for i := range dst {
		c := w.c[i*f : (i+1)*f]
		sum, size := fma.Dot(w.t[i*f:(i+1)*f], c), fma.DotSquares(c, v.diag)
		ind, val := w.rest.Row(i)
		for k, j := range ind {
			x, row := val[k], inv[int(j)*d:]
			half := fma.Dot(v.rest[int(j)*f:][:f], c)
			for m, other := range ind[:k] {
				half = math.FMA(val[m], row[other], half)
			}
			own := x * row[j]
			sum, size = math.FMA(x, math.FMA(2, half, own), sum), math.FMA(x, own, size)
		}
		if !(sum > cancelled*size) {
			ind, val := g.Sparse.Row(dense.Index(index, lo+i))
			sum = g.solvedVariance(l, ind, val, &s.buf)
		}
		dst[i] = sum
	}
}

// mulCoreRows is MulRows for a matrix with a core.
func (g *Matrix) mulCoreRows(dst, w []float64, lo, hi int, s *Work) {
	n, d, f, draws := hi-lo, g.Cols, len(g.core.cols), len(w)/g.Cols
	g.divide(&s.core, nil, lo, n)
	rest := fma.Sparse{Cols: d, Ptr: s.core.rest.Ptr, Ind: s.core.rest.Ind, Val: s.core.rest.Val}
	t := dense.Resize(s.core.t, draws*f)
	s.core.t = t
	for i := range draws {
		row := w[i*d : (i+1)*d]
		rest.Mul(dst[i*n:(i+1)*n], row, 0)
		for k, j := range g.core.cols {
			t[i*f+k] = row[j]
		}
	}
	dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(t, draws, f),
		dense.General(s.core.c, n, f), 1, dense.General(dst, draws, n))
}
