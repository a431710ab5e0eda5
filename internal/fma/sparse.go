package fma

import "math"

// Sparse holds rows without their zeros. Row i has the columns Ind[Ptr[i]:Ptr[i+1]] and the
// corresponding values in Val. A nil Val stands for ones, and gives the same bits as values of 1.
// The columns of a row must increase, be at least 0 and be less than Cols. No function checks
// this, so invalid columns read or write memory outside of a row or matrix.
type Sparse struct {
	Cols int
	Ptr  []int
	Ind  []int32
	Val  []float64
}

// rows returns the Ptr of n rows from lo on, and panics if there are fewer rows.
func (s *Sparse) rows(lo, n int) []int {
	ptr := s.Ptr[lo : lo+n+1]
	shapes(ptr[n] <= len(s.Ind) && (s.Val == nil || ptr[n] <= len(s.Val)))
	return ptr
}

// Mul stores the products of w with the rows from lo on in dst. Element l of a row goes to the
// sum s_(l mod 4) by s ← fma(x, w, s), and the result is (s_0 + s_2) + (s_1 + s_3).
func (s *Sparse) Mul(dst, w []float64, lo int) {
	shapes(len(w) >= s.Cols)
	if len(dst) > 0 {
		pathSparseMul(s, s.rows(lo, len(dst)), dst, w)
	}
}

// AddMulT adds Xᵀu to dst, where X consists of len(u) rows from lo on. It adds one row after the
// other by y ← fma(u, x, y), and leaves out rows with u = 0.
func (s *Sparse) AddMulT(dst, u []float64, lo int) {
	shapes(len(dst) >= s.Cols)
	if len(u) > 0 {
		pathSparseMulT(s, s.rows(lo, len(u)), dst, u)
	}
}

// Quad returns v = xᵀAx for row i and a symmetric Cols×Cols matrix A, and the part diag of v from
// the diagonal. It reads the lower triangle of A. For each element k of the row in order, s is
// the sum of a_kl x_l over the earlier elements l in order, by fused operations. With e = x_k
// a_kk, the new values are v ← fma(x_k, fma(2, s, e), v) and diag ← fma(x_k, e, diag).
func (s *Sparse) Quad(a []float64, i int) (v, diag float64) {
	shapes(len(a) >= s.Cols*s.Cols)
	ptr := s.rows(i, 1)
	if ptr[0] == ptr[1] {
		return 0, 0
	}
	return pathSparseQuad(s, ptr[0], ptr[1], a)
}

// AddOuter adds wxxᵀ to the lower triangle of the Cols×Cols matrix p, where x is row i: p_kl ←
// fma(w·x_k, x_l, p_kl).
func (s *Sparse) AddOuter(p []float64, w float64, i int) {
	shapes(len(p) >= s.Cols*s.Cols)
	if ptr := s.rows(i, 1); ptr[0] < ptr[1] {
		pathSparseOuter(s, ptr[0], ptr[1], p, w)
	}
}

// at returns the value of element k.
func (s *Sparse) at(k int) float64 {
	if s.Val == nil {
		return 1
	}
	return s.Val[k]
}

func sparseMul(x *Sparse, ptr []int, dst, w []float64) {
	for i := range dst {
		var s [4]float64
		for k := ptr[i]; k < ptr[i+1]; k++ {
			l := (k - ptr[i]) % 4
			s[l] = math.FMA(x.at(k), w[x.Ind[k]], s[l])
		}
		dst[i] = (s[0] + s[2]) + (s[1] + s[3])
	}
}

func sparseMulT(x *Sparse, ptr []int, dst, u []float64) {
	for i, ui := range u {
		if ui == 0 {
			continue
		}
		for k := ptr[i]; k < ptr[i+1]; k++ {
			j := x.Ind[k]
			dst[j] = math.FMA(ui, x.at(k), dst[j])
		}
	}
}

func sparseQuad(x *Sparse, lo, hi int, a []float64) (v, diag float64) {
	for k := lo; k < hi; k++ {
		row := a[int(x.Ind[k])*x.Cols:][:x.Ind[k]+1]
		var s float64
		for l := lo; l < k; l++ {
			s = math.FMA(x.at(l), row[x.Ind[l]], s)
		}
		xk := x.at(k)
		e := xk * row[x.Ind[k]]
		v, diag = math.FMA(xk, math.FMA(2, s, e), v), math.FMA(xk, e, diag)
	}
	return v, diag
}

func sparseOuter(x *Sparse, lo, hi int, p []float64, w float64) {
	for k := lo; k < hi; k++ {
		row, wx := p[int(x.Ind[k])*x.Cols:][:x.Ind[k]+1], w*x.at(k)
		for l := lo; l <= k; l++ {
			j := x.Ind[l]
			row[j] = math.FMA(wx, x.at(l), row[j])
		}
	}
}
