package pgsvi

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/mat"
)

// Row is an observation of a generalized linear model, from a reader or a stream: y ~ p(y|η) with η
// = Offset + Σ_i Val[i]·w[Ind[i]]. A Row and its slices belong to their producer. They are valid
// until the next Row, unless the producer documents otherwise.
type Row struct {
	Ind    []int     // column of each value, strictly increasing, from 0; nil for a dense row
	Val    []float64 // values at the columns Ind, or of all columns if Ind is nil
	Y      float64   // the response
	Offset float64   // added to the linear predictor
	// Weight multiplies the log-likelihood of the row. Zero means 1, and a negative weight is an
	// error.
	Weight float64
}

// weightOf returns the weight of row, which is 1 if Weight is 0.
func weightOf(row *Row) float64 {
	if row.Weight == 0 {
		return 1
	}
	return row.Weight
}

// denseRow stores the values of row in dst.
func denseRow(dst []float64, row *Row) {
	if row.Ind == nil {
		copy(dst, row.Val)
		return
	}
	clear(dst)
	for k, j := range row.Ind {
		dst[j] = row.Val[k]
	}
}

// Sparse is a matrix of sparse rows (CSR), each with the columns and values of its non-zeros. It is
// a mat.Matrix. The zero value has neither rows nor columns and is ready for Append. A Sparse is
// safe for concurrent use unless rows are being appended.
type Sparse struct {
	x      design.Rows
	shared uint32 // 1 if a GLM shares the rows
}

// NewSparse returns a matrix with no rows and the given number of columns. It panics if cols is
// negative or above math.MaxInt32.
func NewSparse(cols int) *Sparse {
	if cols < 0 || cols > math.MaxInt32 {
		panic(fmt.Sprintf("pgsvi: NewSparse with %d columns; use 0 to math.MaxInt32", cols))
	}
	return &Sparse{x: design.Rows{Cols: cols}}
}

// SparseOf returns the non-zeros of x as a new matrix of the same size. It panics if x is nil or a
// nil pointer.
func SparseOf(x mat.Matrix) *Sparse {
	if err := checkMatrix("x", x); err != nil {
		panic(err.Error())
	}
	rows, cols := x.Dims()
	s := NewSparse(cols)
	s.x.Ptr = append(s.x.Ptr, 0)
	for _, row := range denseRows(x, 0, rows) {
		for j, v := range row {
			if v != 0 {
				s.x.Ind, s.x.Val = append(s.x.Ind, int32(j)), append(s.x.Val, v)
			}
		}
		s.x.Ptr = append(s.x.Ptr, len(s.x.Ind))
	}
	return s
}

// Append adds a row with the values val at the columns ind, in any order, and copies both. A nil
// ind means a dense row. Append does not store zeros, but it widens the matrix to the largest
// column, even if the value there is 0. On error the matrix is unchanged. The error names the row.
// It wraps ErrShape if the lengths disagree, or if a column is negative, not below math.MaxInt32 or
// given twice. It wraps ErrNotFinite if a value is NaN or infinite.
func (s *Sparse) Append(ind []int, val []float64) error {
	row := s.rows()
	if ind != nil && len(ind) != len(val) {
		return fmt.Errorf("pgsvi: row %d has %d columns and %d values: %w", row, len(ind), len(val),
			ErrShape)
	}
	if k, ok := dense.AllFinite(val); !ok {
		return fmt.Errorf("pgsvi: row %d, column %d is %v: %w", row, dense.Index(ind, k), val[k],
			ErrNotFinite)
	}
	sorted := true
	for k, j := range ind {
		if j < 0 || j >= math.MaxInt32 {
			return fmt.Errorf("pgsvi: row %d has column %d; columns are 0 to %d: %w", row, j,
				math.MaxInt32-1, ErrShape)
		}
		sorted = sorted && (k == 0 || ind[k-1] < j)
	}
	if !sorted {
		order := make([]int, len(ind))
		for k := range order {
			order[k] = k
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(ind[a], ind[b]) })
		i2, v2 := make([]int, len(ind)), make([]float64, len(ind))
		for k, o := range order {
			i2[k], v2[k] = ind[o], val[o]
			if k > 0 && i2[k-1] == i2[k] {
				return fmt.Errorf("pgsvi: row %d has column %d twice: %w", row, i2[k], ErrShape)
			}
		}
		ind, val = i2, v2
	}
	if len(s.x.Ptr) == 0 {
		s.x.Ptr = append(s.x.Ptr, 0)
	}
	s.x.Ind, s.x.Val = slices.Grow(s.x.Ind, len(val)), slices.Grow(s.x.Val, len(val))
	for k, v := range val {
		j := dense.Index(ind, k)
		s.x.Cols = max(s.x.Cols, j+1)
		if v != 0 {
			s.x.Ind, s.x.Val = append(s.x.Ind, int32(j)), append(s.x.Val, v)
		}
	}
	s.x.Ptr = append(s.x.Ptr, len(s.x.Ind))
	return nil
}

// Reset removes all rows, but keeps the columns. It also keeps the memory for new rows, unless a GLM
// shares the rows.
func (s *Sparse) Reset() {
	if atomic.SwapUint32(&s.shared, 0) == 1 {
		s.x = design.Rows{Cols: s.x.Cols}
	}
	s.x.Ptr, s.x.Ind, s.x.Val = s.x.Ptr[:0], s.x.Ind[:0], s.x.Val[:0]
}

func (s *Sparse) rows() int { return s.x.Rows() }

// Dims returns the numbers of rows and columns.
func (s *Sparse) Dims() (rows, cols int) { return s.rows(), s.x.Cols }

// NNZ returns the number of stored values.
func (s *Sparse) NNZ() int { return len(s.x.Ind) }

// Row returns the columns of row i, in increasing order, and their values. Both are views and must
// not be changed.
func (s *Sparse) Row(i int) (ind []int32, val []float64) {
	return s.x.Row(i)
}

// At returns the value at row i and column j in O(log k) time for a row of k non-zeros. It panics
// if i or j is out of range.
func (s *Sparse) At(i, j int) float64 {
	if j < 0 || j >= s.x.Cols {
		panic(mat.ErrColAccess)
	}
	if i < 0 || i >= s.rows() {
		panic(mat.ErrRowAccess)
	}
	ind, val := s.Row(i)
	if k := sort.Search(len(ind), func(k int) bool { return int(ind[k]) >= j }); k < len(ind) &&
		int(ind[k]) == j {
		return val[k]
	}
	return 0
}

// T returns the transpose of s as a view.
func (s *Sparse) T() mat.Matrix { return mat.Transpose{Matrix: s} }

// Rows returns an iterator over the rows of x with the responses y. A nil y means that all
// responses are 0. Rows panics if y is not nil and its length is not the number of rows. If x is
// nil or a nil pointer, the iterator yields only an error that wraps ErrEmpty.
//
// The slices of a Row are valid until the next Row. They must not be changed, because they are the
// rows of x itself if x has RawRowView, as *mat.Dense does. Other matrices are read in blocks of
// rows.
func Rows(x mat.Matrix, y []float64) iter.Seq2[Row, error] {
	if err := checkMatrix("x", x); err != nil {
		return func(yield func(Row, error) bool) { yield(Row{}, err) }
	}
	n, _ := x.Dims()
	if y != nil && len(y) != n {
		panic(fmt.Sprintf("pgsvi: x has %d rows, but y has %d", n, len(y)))
	}
	return func(yield func(Row, error) bool) {
		var row Row
		each := func(i int) bool {
			if y != nil {
				row.Y = y[i]
			}
			return yield(row, nil)
		}
		s, sparse := x.(*Sparse)
		if !sparse {
			for i, values := range denseRows(x, 0, n) {
				if row.Val = values; !each(i) {
					return
				}
			}
			return
		}
		row.Ind = []int{}
		for i := range n {
			ind, val := s.Row(i)
			row.Ind, row.Val = dense.Resize(row.Ind, len(ind)), val
			for k, j := range ind {
				row.Ind[k] = int(j)
			}
			if !each(i) {
				return
			}
		}
	}
}

// SelectRows returns copies of the rows of x at index, in that order, and of the same elements of
// y. The matrix is a *Sparse if x is one, and otherwise a *mat.Dense. A nil y gives nil. An empty
// index gives a *Sparse without rows. SelectRows panics if an index is out of range.
func SelectRows(x mat.Matrix, y []float64, index []int) (mat.Matrix, []float64) {
	_, cols := x.Dims()
	var ys []float64
	if y != nil {
		ys = make([]float64, len(index))
		for k, i := range index {
			ys[k] = y[i]
		}
	}
	if s, ok := x.(*Sparse); ok {
		part := newDesign(s, false).Sub(index).Sparse
		return &Sparse{x: *part}, ys
	}
	if len(index) == 0 {
		return NewSparse(cols), ys
	}
	dst := mat.NewDense(len(index), cols, nil)
	for k, i := range index {
		copyRows(dst.RawRowView(k), cols, x, i, i+1)
	}
	return dst, ys
}

// rowsAtOnce is the number of rows that are read together from a matrix that does not store rows.
// It is the fastest by trial, and reads eight cache lines per column from a matrix that stores
// columns.
const rowsAtOnce = 64

// denseRows returns the rows lo … hi−1 of x with their indices. They are views if x stores rows,
// and otherwise valid until the next row.
func denseRows(x mat.Matrix, lo, hi int) iter.Seq2[int, []float64] {
	return func(yield func(int, []float64) bool) {
		_, cols := x.Dims()
		view, inPlace := x.(mat.RawRowViewer)
		var scratch []float64
		if !inPlace {
			scratch = make([]float64, min(rowsAtOnce, hi-lo)*cols)
		}
		for i := lo; i < hi; i++ {
			var row []float64
			if at := (i - lo) % rowsAtOnce; inPlace {
				row = view.RawRowView(i)
			} else {
				if at == 0 {
					copyRows(scratch, cols, x, i, min(i+rowsAtOnce, hi))
				}
				row = scratch[at*cols : (at+1)*cols]
			}
			if !yield(i, row) {
				return
			}
		}
	}
}

// copyRows stores rows lo … hi−1 of x in dst, stride numbers apart. It copies memory if x stores
// rows, triangles, or rows as its columns, and calls At for any other matrix.
func copyRows(dst []float64, stride int, x mat.Matrix, lo, hi int) {
	_, cols := x.Dims()
	row := func(i int) []float64 { return dst[(i-lo)*stride:][:cols] }
	switch own := x.(type) {
	case mat.RawRowViewer:
		for i := lo; i < hi; i++ {
			copy(row(i), own.RawRowView(i))
		}
	case *Sparse:
		for i := lo; i < hi; i++ {
			to := row(i)
			clear(to)
			ind, val := own.Row(i)
			for k, j := range ind {
				to[j] = val[k]
			}
		}
	case *mat.SymDense: // the upper triangle
		s := own.RawSymmetric()
		copyColumns(dst, stride, func(i int) []float64 { return s.Data[i*s.Stride:][:s.N] }, lo, hi,
			min(hi, s.N))
		for i := lo; i < hi; i++ {
			copy(row(i)[i:], s.Data[i*s.Stride+i:])
		}
	case *mat.TriDense:
		t := own.RawTriangular()
		for i := lo; i < hi; i++ {
			to, from := row(i), t.Data[i*t.Stride:]
			if clear(to); t.Uplo == blas.Upper {
				copy(to[i:], from[i:])
			} else {
				copy(to[:i+1], from)
			}
		}
	case mat.Transpose:
		if rows, ok := own.Matrix.(mat.RawRowViewer); ok {
			copyColumns(dst, stride, rows.RawRowView, lo, hi, cols)
		} else {
			copyByElement(row, x, lo, hi)
		}
	default:
		copyByElement(row, x, lo, hi)
	}
}

func copyByElement(row func(int) []float64, x mat.Matrix, lo, hi int) {
	for i := lo; i < hi; i++ {
		to := row(i)
		for j := range to {
			to[j] = x.At(i, j)
		}
	}
}

// copyColumns stores elements lo … hi−1 of the first n columns as rows of dst, stride numbers
// apart. It copies several rows at a time, because they share cache lines of a column.
func copyColumns(dst []float64, stride int, column func(int) []float64, lo, hi, n int) {
	for i := lo; i < hi; i += rowsAtOnce {
		to, end := dst[(i-lo)*stride:], min(i+rowsAtOnce, hi)
		for j := range n {
			for k, v := range column(j)[i:end] {
				to[k*stride+j] = v
			}
		}
	}
}

// newDesign returns a copy of x, with a last column of ones if intercept is set. It shares the rows
// of a Sparse, because they do not change.
func newDesign(x mat.Matrix, intercept bool) *design.Matrix {
	if s, ok := x.(*Sparse); ok {
		return design.NewSparse(s.x.WithOnes(intercept))
	}
	rows, _ := x.Dims()
	return designOf(x, 0, rows, intercept)
}

// designOf returns copies of rows lo … hi−1 of x as dense rows.
func designOf(x mat.Matrix, lo, hi int, intercept bool) *design.Matrix {
	_, cols := x.Dims()
	g := &design.Matrix{Rows: hi - lo, Cols: cols + design.B2i(intercept)}
	g.Dense = make([]float64, g.Rows*g.Cols)
	workers := 1
	// Other types need not be safe for concurrent use
	if ownType(x) && len(g.Dense) >= design.SharedProducts {
		workers = runtime.GOMAXPROCS(0)
	}
	parallel.For(g.Rows, design.CopiedRows, workers, func(_, from, to int) {
		part := g.Dense[from*g.Cols:]
		copyRows(part, g.Cols, x, lo+from, lo+to)
		if intercept {
			for i := range to - from {
				part[i*g.Cols+cols] = 1
			}
		}
	})
	return g
}

// ownType reports whether x has a type of gonum or of this package.
func ownType(x mat.Matrix) bool {
	switch x := x.(type) {
	case *mat.Dense, *mat.SymDense, *mat.TriDense, *Sparse:
		return true
	case mat.Transpose:
		return ownType(x.Matrix)
	}
	return false
}
