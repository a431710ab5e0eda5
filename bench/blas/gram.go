package blas

import (
	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Gram returns a function that adds XᵀX to its own matrix. It is the floor for regressions on the
// rows of x, a *pgsvi.Sparse or *mat.Dense. Dense rows are added in blocks and laid out as columns
// in advance, which is the fastest way for Syrk.
func Gram(x mat.Matrix) func() {
	n, d := x.Dims()
	c := blas64.Symmetric{Uplo: blas.Lower, N: d, Data: make([]float64, d*d), Stride: d}
	if s, ok := x.(*pgsvi.Sparse); ok {
		return func() {
			for i := range n {
				ind, val := s.Row(i)
				for k, j := range ind {
					row := c.Data[int(j)*d : int(j)*d+int(j)+1]
					for l, m := range ind[:k+1] {
						row[m] += val[k] * val[l]
					}
				}
			}
		}
	}
	var chunks []blas64.General
	for lo := 0; lo < n; lo += 256 {
		chunks = append(chunks,
			mat.DenseCopyOf(x.(*mat.Dense).Slice(lo, min(lo+256, n), 0, d).T()).RawMatrix())
	}
	return func() {
		for _, x := range chunks {
			dense.Syrk(blas.NoTrans, 1, x, 1, c)
		}
	}
}
