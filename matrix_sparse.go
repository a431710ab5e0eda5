package pgsvi

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

// Row is one datum of a generalised linear model as it arrives from a reader
// or a stream: y ~ p(y|η), η = Offset + Σ_i Val[i]·w[Ind[i]]. A Row and its
// slices belong to whoever made it and are valid until the next one, unless the
// maker says otherwise.
type Row struct {
	Ind    []int     // column of each value, strictly increasing, from 0; nil for a dense row
	Val    []float64 // values: those at Ind, or one for each column if Ind is nil
	Y      float64   // the response
	Offset float64   // added to the linear predictor
	Weight float64   // multiplies the log-likelihood of the row; 0 means 1, and a negative weight is an error
}

// Sparse is a matrix of sparse rows: for each row the columns and values of
// its non-zeros (compressed sparse rows). It is a mat.Matrix. The zero value has
// neither rows nor columns and is ready for Append. It is safe for concurrent
// use as long as nothing is appended.
type Sparse struct {
	cols int
	ptr  []int // row i is ind[ptr[i]:ptr[i+1]]; empty if there are no rows
	ind  []int32
	val  []float64
}

// NewSparse returns a matrix with no rows and the given number of columns. It
// panics if cols is negative or above math.MaxInt32.
func NewSparse(cols int) *Sparse {
	if cols < 0 || cols > math.MaxInt32 {
		panic(fmt.Sprintf("pgsvi: Sparse with %d columns", cols))
	}
	return &Sparse{cols: cols}
}

// SparseOf returns the non-zeros of x, as a new matrix of the same size.
func SparseOf(x mat.Matrix) *Sparse {
	rows, cols := x.Dims()
	s := NewSparse(cols)
	s.ptr = append(s.ptr, 0)
	for i := range rows {
		for j := range cols {
			if v := x.At(i, j); v != 0 {
				s.ind, s.val = append(s.ind, int32(j)), append(s.val, v)
			}
		}
		s.ptr = append(s.ptr, len(s.ind))
	}
	return s
}

// Append adds a row with the values val at the columns ind, which need not be
// in order; both are copied. A nil ind means a dense row. Columns beyond those of
// the matrix widen it, even for values of 0, which are not kept. The error, upon
// which nothing has been added, names the row; it wraps ErrShape if the lengths
// disagree or a column is negative, not below math.MaxInt32 or given twice, and
// ErrNotFinite if a value is NaN or infinite.
func (s *Sparse) Append(ind []int, val []float64) error {
	row := s.rows()
	if ind != nil && len(ind) != len(val) {
		return fmt.Errorf("pgsvi: row %d has %d columns and %d values: %w", row, len(ind), len(val), ErrShape)
	}
	if k, ok := dense.AllFinite(val); !ok {
		return fmt.Errorf("pgsvi: row %d, column %d is %v: %w", row, columnOf(ind, k), val[k], ErrNotFinite)
	}
	sorted := true
	for k, j := range ind {
		if j < 0 || j >= math.MaxInt32 {
			return fmt.Errorf("pgsvi: row %d has column %d: %w", row, j, ErrShape)
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
	if len(s.ptr) == 0 {
		s.ptr = append(s.ptr, 0)
	}
	s.ind, s.val = slices.Grow(s.ind, len(val)), slices.Grow(s.val, len(val))
	for k, v := range val {
		j := columnOf(ind, k)
		s.cols = max(s.cols, j+1)
		if v != 0 {
			s.ind, s.val = append(s.ind, int32(j)), append(s.val, v)
		}
	}
	s.ptr = append(s.ptr, len(s.ind))
	return nil
}

// columnOf returns the column of the k-th value of a row; see Row.Ind.
func columnOf(ind []int, k int) int {
	if ind == nil {
		return k
	}
	return ind[k]
}

func (s *Sparse) rows() int { return max(0, len(s.ptr)-1) }

// Dims returns the numbers of rows and columns.
func (s *Sparse) Dims() (rows, cols int) { return s.rows(), s.cols }

// NNZ returns the number of values kept.
func (s *Sparse) NNZ() int { return len(s.ind) }

// Row returns the columns, in increasing order, and the values of row i. They
// are views that must not be changed.
func (s *Sparse) Row(i int) (ind []int32, val []float64) {
	lo, hi := s.ptr[i], s.ptr[i+1]
	return s.ind[lo:hi:hi], s.val[lo:hi:hi]
}

// withOnes returns the rows that s has now, if intercept with a last column of ones.
func (s *Sparse) withOnes(intercept bool) *Sparse {
	t := &Sparse{cols: s.cols, ptr: s.ptr, ind: s.ind, val: s.val}
	if len(t.ptr) == 0 {
		t.ptr = []int{0}
	}
	if !intercept {
		return t
	}
	rows := s.rows()
	t = &Sparse{cols: s.cols + 1, ptr: make([]int, 1, rows+1), ind: make([]int32, 0, len(s.ind)+rows), val: make([]float64, 0, len(s.val)+rows)}
	for i := range rows {
		ind, val := s.Row(i)
		t.ind, t.val = append(append(t.ind, ind...), int32(s.cols)), append(append(t.val, val...), 1)
		t.ptr = append(t.ptr, len(t.ind))
	}
	return t
}

// At returns the value at row i and column j, in O(log) of the non-zeros of the row.
func (s *Sparse) At(i, j int) float64 {
	if j < 0 || j >= s.cols {
		panic(mat.ErrColAccess)
	}
	if i < 0 || i >= s.rows() {
		panic(mat.ErrRowAccess)
	}
	ind, val := s.Row(i)
	if k := sort.Search(len(ind), func(k int) bool { return int(ind[k]) >= j }); k < len(ind) && int(ind[k]) == j {
		return val[k]
	}
	return 0
}

// T returns the transpose, as a view.
func (s *Sparse) T() mat.Matrix { return mat.Transpose{Matrix: s} }

// Rows returns the rows of x with the responses y, for whatever takes an
// iterator of rows; a nil y means responses of 0. It panics if y is neither nil
// nor as long as x has rows. The slices of a Row are valid until the next one.
func Rows(x mat.Matrix, y []float64) iter.Seq2[Row, error] {
	n, d := x.Dims()
	if y != nil && len(y) != n {
		panic(fmt.Sprintf("pgsvi: x has %d rows, y has %d", n, len(y)))
	}
	return func(yield func(Row, error) bool) {
		var row Row
		s, sparse := x.(*Sparse)
		if !sparse {
			row.Val = make([]float64, d)
		}
		for i := range n {
			if sparse {
				ind, val := s.Row(i)
				row.Ind, row.Val = dense.Resize(row.Ind, len(ind)), val
				for k, j := range ind {
					row.Ind[k] = int(j)
				}
				if row.Ind == nil {
					row.Ind = []int{}
				}
			} else {
				mat.Row(row.Val, i, x)
			}
			if y != nil {
				row.Y = y[i]
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// valid reports whether s is a matrix of so many rows.
func (s *Sparse) valid(rows int) bool {
	n := len(s.ind)
	if len(s.ptr) != rows+1 || len(s.val) != n || s.ptr[0] != 0 || s.ptr[rows] != n || !slices.IsSorted(s.ptr) {
		return false
	}
	for i := range rows {
		ind, _ := s.Row(i)
		for k, j := range ind {
			if j < 0 || int(j) >= s.cols || k > 0 && j <= ind[k-1] {
				return false
			}
		}
	}
	return true
}
