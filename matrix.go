package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"sort"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
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

// SparseOf returns the non-zeros of x, as a new matrix of the same size. It panics if x is nil
// or a nil pointer.
func SparseOf(x mat.Matrix) *Sparse {
	if err := checkMatrix("x", x); err != nil {
		panic(err.Error())
	}
	rows, cols := x.Dims()
	s := NewSparse(cols)
	s.ptr = append(s.ptr, 0)
	for _, row := range denseRows(x, 0, rows) {
		for j, v := range row {
			if v != 0 {
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
// nor as long as x has rows. A nil x, or a nil pointer, gives an error wrapping ErrEmpty in
// place of rows. The slices of a Row are valid until the next one. They
// must not be changed: of a matrix with RawRowView, as *mat.Dense, they are its own rows. Of another, some rows are read ahead.
func Rows(x mat.Matrix, y []float64) iter.Seq2[Row, error] {
	if err := checkMatrix("x", x); err != nil {
		return func(yield func(Row, error) bool) { yield(Row{}, err) }
	}
	n, _ := x.Dims()
	if y != nil && len(y) != n {
		panic(fmt.Sprintf("pgsvi: x has %d rows, y has %d", n, len(y)))
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

// rowsAtOnce is the number of rows that are read together where a matrix does not have them in memory: of what has columns there, eight lines of each, which
// took 2.7 ms for 1000×1000 numbers where 8 rows took 3.3 and number by number 7.
const rowsAtOnce = 64

// denseRows returns rows lo … hi−1 of x and their places. They are views of x where it has rows in memory, and else valid until the next one.
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

// copyRows stores rows lo … hi−1 of x in dst, stride numbers apart: of what has rows in memory, triangles, or rows that are the columns of x, as they
// lie there, and of any other matrix by At.
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
		copyColumns(dst, stride, func(i int) []float64 { return s.Data[i*s.Stride:][:s.N] }, lo, hi, min(hi, s.N))
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

// copyColumns stores elements lo … hi−1 of the first n columns as rows of dst, stride numbers apart, some of them at a time as columns share lines.
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

// design is a design matrix X, rows×cols, dense or sparse. Rows are named by a
// list of indices; nil means all of them, in order. Methods only read it, but
// for the scratch memory that they are given.
type design struct {
	rows, cols int
	dense      []float64 // row by row, or
	sparse     *Sparse
	unit       bool // every value of sparse rows is known to be 1, as of features that are there or not
}

// newDesign returns x with, if intercept, a last column of ones. It copies, but
// for the rows of a Sparse, which do not change.
func newDesign(x mat.Matrix, intercept bool) *design {
	if s, ok := x.(*Sparse); ok {
		rows, _ := s.Dims()
		own := s.withOnes(intercept)
		return &design{rows: rows, cols: own.cols, sparse: own, unit: !slices.ContainsFunc(own.val, func(v float64) bool { return v != 1 })}
	}
	rows, _ := x.Dims()
	return designOf(x, 0, rows, intercept)
}

// designOf returns copies of rows lo … hi−1 of x, which become dense.
func designOf(x mat.Matrix, lo, hi int, intercept bool) *design {
	_, cols := x.Dims()
	g := &design{rows: hi - lo, cols: cols + b2i(intercept)}
	g.dense = make([]float64, g.rows*g.cols)
	workers := 1
	if ownType(x) && len(g.dense) >= sharedProducts { // others need not be safe for concurrent use
		workers = runtime.GOMAXPROCS(0)
	}
	parallel.For(g.rows, copiedRows, workers, func(_, from, to int) {
		part := g.dense[from*g.cols:]
		copyRows(part, g.cols, x, lo+from, lo+to)
		if intercept {
			for i := range to - from {
				part[i*g.cols+cols] = 1
			}
		}
	})
	return g
}

// copiedRows is the number of rows that are copied together.
const copiedRows = 4096

// ownType reports whether x is a matrix of gonum or of this package, and no type of a caller's.
func ownType(x mat.Matrix) bool {
	switch x := x.(type) {
	case *mat.Dense, *mat.SymDense, *mat.TriDense, *Sparse:
		return true
	case mat.Transpose:
		return ownType(x.Matrix)
	}
	return false
}

// gather copies the dense rows at index to dst.
func (g *design) gather(dst []float64, index []int) {
	d := g.cols
	for k, i := range index {
		copy(dst[k*d:(k+1)*d], g.dense[i*d:(i+1)*d])
	}
}

// check returns an error if a value is not finite.
func (g *design) check() error {
	if g.sparse != nil {
		return nil // checked by Append
	}
	chunk, workers := copiedRows*max(1, g.cols), 1
	if len(g.dense) >= sharedProducts {
		workers = runtime.GOMAXPROCS(0)
	}
	return parallel.Each(context.Background(), (len(g.dense)+chunk-1)/chunk, workers, func(_, i int) error {
		part := g.dense[i*chunk : min((i+1)*chunk, len(g.dense))]
		if k, ok := dense.AllFinite(part); !ok {
			k += i * chunk
			return fmt.Errorf("pgsvi: row %d, column %d of x is %v: %w", k/g.cols, k%g.cols, g.dense[k], ErrNotFinite)
		}
		return nil
	})
}

// sub returns the rows at index, as a copy.
func (g *design) sub(index []int) *design {
	s := &design{rows: len(index), cols: g.cols, unit: g.unit}
	if g.sparse != nil {
		t := NewSparse(g.cols)
		t.ptr = append(t.ptr, 0)
		for _, i := range index {
			ind, val := g.sparse.Row(i)
			t.ind, t.val = append(t.ind, ind...), append(t.val, val...)
			t.ptr = append(t.ptr, len(t.ind))
		}
		s.sparse = t
		return s
	}
	s.dense = make([]float64, len(index)*g.cols)
	g.gather(s.dense, index)
	return s
}

// columnVariances returns the variance of each column, exactly 0 where it does not vary.
func (g *design) columnVariances() []float64 {
	mean, v := make([]float64, g.cols), make([]float64, g.cols)
	lo, hi, count := make([]float64, g.cols), make([]float64, g.cols), make([]int, g.cols)
	n := float64(g.rows)
	g.each(func(j int, x float64) {
		if count[j] == 0 {
			lo[j], hi[j] = x, x
		}
		count[j]++
		mean[j] += x / n
		lo[j], hi[j] = math.Min(lo[j], x), math.Max(hi[j], x)
	})
	g.each(func(j int, x float64) { v[j] += (x - mean[j]) * (x - mean[j]) / n })
	for j, c := range count { // the zeros that a sparse matrix leaves out
		if c < g.rows {
			lo[j], hi[j] = math.Min(lo[j], 0), math.Max(hi[j], 0)
			v[j] += (n - float64(c)) / n * mean[j] * mean[j]
		}
		if lo[j] == hi[j] {
			v[j] = 0
		}
	}
	return v
}

// each calls f with every value kept and its column.
func (g *design) each(f func(j int, x float64)) {
	if g.sparse != nil {
		s := g.sparse
		for k := s.ptr[0]; k < s.ptr[g.rows]; k++ {
			f(int(s.ind[k]), s.val[k])
		}
		return
	}
	for k, x := range g.dense {
		f(k%g.cols, x)
	}
}

// row returns the columns, nil if dense, and the values of row i.
func (g *design) row(i int) (ind []int32, val []float64) {
	if g.sparse != nil {
		return g.sparse.Row(i)
	}
	return nil, g.dense[i*g.cols : (i+1)*g.cols]
}

// compressed returns the sparse rows as they lie in memory.
func (g *design) compressed() fma.Sparse {
	s := g.sparse
	x := fma.Sparse{Cols: g.cols, Ptr: s.ptr, Ind: s.ind, Val: s.val}
	if g.unit {
		x.Val = nil
	}
	return x
}

// mul stores Xw in dst.
func (g *design) mul(dst, w []float64, index []int) { g.mulPart(dst, w, index, 0, len(dst)) }

// mulOn is mul, on as many goroutines as h lends.
func (g *design) mulOn(h *parallel.Halt, dst, w []float64, index []int) {
	if !g.shared(h, len(dst)*g.perRow()) {
		g.mul(dst, w, index)
		return
	}
	parallel.For(len(dst), designChunk, h.Workers(), func(_, lo, hi int) { g.mulPart(dst, w, index, lo, hi) })
}

// mulPart is mul for elements lo … hi−1 of dst.
func (g *design) mulPart(dst, w []float64, index []int, lo, hi int) {
	if g.sparse == nil {
		for a := lo; a < hi; a++ {
			dst[a] = dense.DotRow(g.dense, g.cols, dense.Index(index, a), w)
		}
		return
	}
	x := g.compressed()
	if index == nil {
		x.Mul(dst[lo:hi], w, lo)
		return
	}
	for a := lo; a < hi; a++ {
		x.Mul(dst[a:a+1], w, index[a])
	}
}

// sharedProducts is from how many products on rows are shared between goroutines: fewer take no longer than it does to wake another.
const sharedProducts = 1 << 18

// shared reports whether so many products are to be shared between the goroutines that h lends.
func (g *design) shared(h *parallel.Halt, products int) bool {
	return h.Workers() > 1 && products >= sharedProducts
}

// perRow returns how many numbers a row has, on average.
func (g *design) perRow() int {
	if g.sparse == nil {
		return g.cols
	}
	return len(g.sparse.ind) / max(1, g.rows)
}

// mulRows stores WX_Bᵀ in dst, for the rows lo … hi−1 of x and the weights W, row by row.
func (g *design) mulRows(dst, w []float64, lo, hi int) {
	draws := len(w) / g.cols
	if g.sparse == nil {
		dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(w, draws, g.cols), dense.General(g.dense[lo*g.cols:hi*g.cols], hi-lo, g.cols), 0, dense.General(dst, draws, hi-lo))
		return
	}
	for i := lo; i < hi; i++ {
		ind, val := g.row(i)
		for s := range draws {
			var sum float64
			for k, j := range ind {
				sum += val[k] * w[s*g.cols+int(j)]
			}
			dst[s*(hi-lo)+i-lo] = sum
		}
	}
}

// mulDouble stores Xw in dst, computed in twice the digits.
func (g *design) mulDouble(dst []float64, w dense.Double, index []int) {
	for a := range dst {
		ind, val := g.row(dense.Index(index, a))
		if g.sparse == nil {
			dst[a] = w.Dot(val)
			continue
		}
		dst[a] = w.DotAt(ind, val)
	}
}

// addMulT adds Xᵀu to dst.
func (g *design) addMulT(dst, u []float64, index []int) {
	if g.sparse != nil || index == nil {
		g.addMulTPart(dst, u, index, 0, len(u), nil)
		return
	}
	for a, ua := range u {
		if ua != 0 {
			_, row := g.row(index[a])
			dense.Axpy(ua, dense.Vector(row), dense.Vector(dst))
		}
	}
}

// Sums over rows are taken in chunks of so many products, of more rows than there are columns, and the sums of the chunks added in order: the bits do not depend
// on who took which. Products XᵀΓX are taken in larger ones, of so many rows and so many for each column, beside which a sum of D² numbers costs nothing.
const (
	sumProducts = 1 << 16
	gramRows    = 4096
	gramColumns = 16
)

// sumRows returns the number of rows whose sums Xᵀu are taken together.
func (g *design) sumRows() int { return max(designChunk, sumProducts/max(1, g.perRow()), g.cols) }

// A rowSum is a sum over rows: what it adds of elements lo … hi−1 of u, and how the sum of a chunk is added to those before.
type rowSum struct {
	part func(g *design, dst, u []float64, index []int, lo, hi int, s *designWork)
	add  func(dst, sum []float64, cols int)
}

var (
	sumMulT    = rowSum{(*design).addMulTPart, func(dst, sum []float64, _ int) { fma.Axpy(1, sum, dst) }}
	sumSquares = rowSum{(*design).addSquaresPart, sumMulT.add}
	sumGramMul = rowSum{(*design).addGramMulPart, sumMulT.add}
	sumMulGram = rowSum{(*design).mulGramPart, sumMulT.add}
	sumGram    = rowSum{(*design).addGramPart, addLower}
)

// addSum adds r to dst in chunks of so many rows, on as many goroutines as s.halt lends where so many products are worth it.
func (g *design) addSum(r *rowSum, dst, u []float64, index []int, chunk, products int, s *designWork) {
	n, size := len(u), len(dst)
	if n <= chunk {
		r.part(g, dst, u, index, 0, n, s)
		return
	}
	if !g.shared(s.halt, products) {
		s.sums = dense.Resize(s.sums, size)
		for lo := 0; lo < n; lo += chunk {
			clear(s.sums)
			r.part(g, s.sums, u, index, lo, min(lo+chunk, n), s)
			r.add(dst, s.sums, g.cols)
		}
		return
	}
	s.sums = dense.Resize(s.sums, (n+chunk-1)/chunk*size)
	sums := s.sums
	clear(sums)
	s.split(n, chunk, func(lo, hi int, s *designWork) { r.part(g, sums[lo/chunk*size:][:size], u, index, lo, hi, s) })
	for ; len(sums) > 0; sums = sums[size:] {
		r.add(dst, sums[:size], g.cols)
	}
}

// addMulTOn is addMulT, on as many goroutines as s.halt lends.
func (g *design) addMulTOn(dst, u []float64, index []int, s *designWork) {
	g.addSum(&sumMulT, dst, u, index, g.sumRows(), len(u)*g.perRow(), s)
}

// addMulTPart is addMulT for elements lo … hi−1 of u. Dense rows at an index are gathered in s, which is not used otherwise.
func (g *design) addMulTPart(dst, u []float64, index []int, lo, hi int, s *designWork) {
	d := g.cols
	if g.sparse == nil {
		for a := lo; a < hi; a += designChunk {
			end := min(a+designChunk, hi)
			rows := fma.Matrix{}
			if index == nil {
				rows = fma.Of(g.dense[a*d:end*d], end-a, d, max(1, d))
			} else {
				rows = g.part(index[a:end], false, &s.buf)
			}
			fma.Gemv(1, rows, true, u[a:end], dst)
		}
		return
	}
	x := g.compressed()
	if index == nil {
		x.AddMulT(dst, u[lo:hi], lo)
		return
	}
	for a := lo; a < hi; a++ {
		x.AddMulT(dst, u[a:a+1], index[a])
	}
}

// addMulTDouble is addMulTOn in twice the digits.
func (g *design) addMulTDouble(dst dense.Double, u []float64, index []int, s *designWork) {
	n, d, chunk := len(u), g.cols, g.sumRows()
	if n <= chunk {
		g.addMulTDoublePart(dst, u, index, 0, n)
		return
	}
	s.double.Resize((n + chunk - 1) / chunk * d)
	s.double.Clear()
	sums := s.double
	part := func(lo, hi int, _ *designWork) {
		from := lo / chunk * d
		g.addMulTDoublePart(sums.Slice(from, from+d), u, index, lo, hi)
	}
	if g.shared(s.halt, n*g.perRow()) {
		s.split(n, chunk, part)
	} else {
		for lo := 0; lo < n; lo += chunk {
			part(lo, min(lo+chunk, n), s)
		}
	}
	for at := 0; at < len(sums.Hi); at += d {
		dst.AddDouble(1, sums.Slice(at, at+d))
	}
}

// addMulTDoublePart is addMulTDouble for elements lo … hi−1 of u.
func (g *design) addMulTDoublePart(dst dense.Double, u []float64, index []int, lo, hi int) {
	for a := lo; a < hi; a++ {
		ind, val := g.row(dense.Index(index, a))
		if g.sparse == nil {
			dst.AddScaled(u[a], val)
			continue
		}
		if g.unit {
			dst.AddEach(ind, u[a])
			continue
		}
		for k, j := range ind {
			dst.AddAt(int(j), u[a], val[k])
		}
	}
}

// designChunk is the number of rows that are treated together.
const designChunk = 256

// addGram adds Xᵀ diag(w) X to the lower triangle of p, cols×cols, on as many goroutines as s.halt lends. The weights
// may have any sign.
func (g *design) addGram(p, w []float64, index []int, s *designWork) {
	per := g.perRow()
	g.addSum(&sumGram, p, w, index, max(gramRows, gramColumns*g.cols), len(w)*per*per/2, s)
}

// addLower adds the lower triangle of a to that of p, both d×d.
func addLower(p, a []float64, d int) {
	for i := range d {
		fma.Axpy(1, a[i*d:i*d+i+1], p[i*d:i*d+i+1])
	}
}

// addGramPart is addGram for elements lo … hi−1 of w.
func (g *design) addGramPart(p, w []float64, index []int, lo, hi int, s *designWork) {
	d := g.cols
	if g.sparse != nil {
		x := g.compressed()
		for a := lo; a < hi; a++ {
			if w[a] == 0 {
				continue
			}
			if a%designChunk == 0 && s.halt.Stopped() {
				return
			}
			x.AddOuter(p, w[a], dense.Index(index, a))
		}
		return
	}
	// Of x√w, and not of x and wx, the matrix of a row is positive semidefinite to the last bit: as much is left when it is taken out again.
	var root [designChunk]float64
	var rows [designChunk]int
	c := fma.Of(p, d, d, max(1, d))
	for _, sign := range [2]float64{1, -1} {
		for a := lo; a < hi && !s.halt.Stopped(); {
			n := 0
			for ; a < hi && n < designChunk; a++ {
				if sign*w[a] > 0 {
					root[n], rows[n] = math.Sqrt(sign*w[a]), dense.Index(index, a)
					n++
				}
			}
			if n > 0 {
				s.panels.SetScaled(g.part(rows[:n], index == nil, &s.buf), root[:n])
				s.panels.Syrk(fma.Run{Halt: s.halt}, sign, c, 0, d)
			}
		}
	}
}

// part returns the dense rows of the given numbers: where they lie, if they increase and have no gaps, or else in buf.
func (g *design) part(rows []int, increase bool, buf *[]float64) fma.Matrix {
	d, n := g.cols, len(rows)
	if first := rows[0]; increase && rows[n-1]-first == n-1 {
		return fma.Of(g.dense[first*d:], n, d, max(1, d))
	}
	*buf = dense.Resize(*buf, n*d)
	g.gather(*buf, rows)
	return fma.Of(*buf, n, d, max(1, d))
}

// designWork is the scratch memory of products with a design, which where they are halted are of no use.
type designWork struct {
	buf    []float64
	double dense.Double // a row
	halt   *parallel.Halt
	rows   int          // added to matrices XᵀΓX so far, N for each that is whole: what costs most where there are many weights
	others []designWork // of goroutines that share rows
	sums   []float64    // of chunks of rows
	z      []float64    // of products XᵀWXZ, of k columns
	k      int
	eta    []float64  // Xz
	scaled []float64  // WXz of a few rows
	lower  fma.Lower  // L of variances of dense rows
	panels fma.Panels // some of these rows
}

// split does the chunks of n rows, shared between the goroutines that s.halt lends, each with scratch of its own.
func (s *designWork) split(n, chunk int, do func(lo, hi int, s *designWork)) {
	workers := s.halt.Workers()
	if len(s.others) < workers {
		s.others = make([]designWork, workers)
	}
	var alone parallel.Halt // of which no goroutine has others
	alone.Watch(s.halt.Context())
	for i := range s.others {
		s.others[i].halt, s.others[i].z, s.others[i].k, s.others[i].eta = &alone, s.z, s.k, s.eta
	}
	loop := parallel.Loop{Halt: s.halt}
	loop.Run(n, chunk, workers, parallel.Func(func(worker, lo, hi int) { do(lo, hi, &s.others[worker]) }))
}

// varianceRows is the number of dense rows whose variances are taken together.
const varianceRows = 48

// variances stores x_nᵀ(LLᵀ)⁻¹x_n in dst, L and inv = (LLᵀ)⁻¹ being cols×cols;
// inv, full, is used for sparse rows only. Chunks of rows are shared between the goroutines that s.halt lends.
func (g *design) variances(dst, l, inv []float64, index []int, s *designWork) {
	chunk := designChunk
	if g.sparse == nil {
		chunk = varianceRows
		s.lower.Set(fma.Of(l, g.cols, g.cols, g.cols))
	}
	if per := g.perRow(); len(dst) <= chunk || !g.shared(s.halt, len(dst)*per*per/2) {
		for lo := 0; lo < len(dst); lo += chunk {
			g.variancesPart(dst, l, inv, index, lo, min(lo+chunk, len(dst)), &s.lower, s)
		}
		return
	}
	s.split(len(dst), chunk, func(lo, hi int, t *designWork) { g.variancesPart(dst, l, inv, index, lo, hi, &s.lower, t) })
}

// variancesPart is variances for elements lo … hi−1 of dst, a chunk; of dense rows lower is L.
func (g *design) variancesPart(dst, l, inv []float64, index []int, lo, hi int, lower *fma.Lower, s *designWork) {
	d := g.cols
	if s.halt.Stopped() {
		return
	}
	if g.sparse != nil {
		x := g.compressed()
		for a := lo; a < hi; a++ {
			i := dense.Index(index, a)
			v, size := x.Quad(inv, i)
			if !(v > cancelled*size) {
				ind, val := g.sparse.Row(i)
				v = g.solvedVariance(l, ind, val, &s.buf)
			}
			dst[a] = v
		}
		return
	}
	var rows fma.Matrix
	if index == nil {
		rows = fma.Of(g.dense[lo*d:hi*d], hi-lo, d, d)
	} else {
		rows = g.part(index[lo:hi], false, &s.buf)
	}
	lower.Solve(fma.Matrix{}, rows.T(), dst[lo:hi])
}

// variancesDouble is variances for an L of twice the digits.
func (g *design) variancesDouble(dst []float64, l dense.Double, inv []float64, index []int, s *designWork) {
	s.double.Resize(g.cols)
	for a := range dst {
		if s.halt.Stopped() {
			return
		}
		i := dense.Index(index, a)
		if g.sparse != nil {
			x := g.compressed()
			if v, size := x.Quad(inv, i); v > cancelled*size {
				dst[a] = v
				continue
			}
		}
		g.dense1(s.double.Hi, i)
		clear(s.double.Lo)
		l.Trsv(s.double)
		z := dense.Vector(s.double.Hi)
		dst[a] = dense.Dot(z, z)
	}
}

// A variance of a sparse row that is smaller than this part of what the variances
// of its weights add up to has lost too many digits to be found from V.
const cancelled = 1e-6

// solvedVariance returns ‖L⁻¹x‖² for a sparse x.
func (g *design) solvedVariance(l []float64, ind []int32, val []float64, buf *[]float64) float64 {
	if len(ind) == 0 {
		return 0
	}
	d, first := g.cols, int(ind[0])
	n := d - first
	*buf = dense.Resize(*buf, n)
	x := *buf
	clear(x)
	for k, j := range ind {
		x[int(j)-first] = val[k]
	}
	dense.Trsv(blas.NoTrans, blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Data: l[first*d+first:], Stride: d}, dense.Vector(x))
	return dense.Dot(dense.Vector(x), dense.Vector(x))
}

// quadDiag stores x_nᵀ diag(v) x_n in dst.
func (g *design) quadDiag(dst, v []float64, index []int) { g.quadDiagPart(dst, v, index, 0, len(dst)) }

// quadDiagOn is quadDiag, on as many goroutines as h lends.
func (g *design) quadDiagOn(h *parallel.Halt, dst, v []float64, index []int) {
	if !g.shared(h, len(dst)*g.perRow()) {
		g.quadDiag(dst, v, index)
		return
	}
	parallel.For(len(dst), designChunk, h.Workers(), func(_, lo, hi int) { g.quadDiagPart(dst, v, index, lo, hi) })
}

// quadDiagPart is quadDiag for elements lo … hi−1 of dst.
func (g *design) quadDiagPart(dst, v []float64, index []int, lo, hi int) {
	if g.unit { // the squares of ones
		g.mulPart(dst, v, index, lo, hi)
		return
	}
	for a := lo; a < hi; a++ {
		ind, val := g.row(dense.Index(index, a))
		if g.sparse == nil {
			dst[a] = fma.DotSquares(val, v)
			continue
		}
		var s float64
		for k, j := range ind {
			s += val[k] * val[k] * v[j]
		}
		dst[a] = s
	}
}

// dense1 stores row i in dst.
func (g *design) dense1(dst []float64, i int) {
	ind, val := g.row(i)
	if g.sparse == nil {
		copy(dst, val)
		return
	}
	clear(dst)
	for k, j := range ind {
		dst[j] = val[k]
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// addSquares adds Σ_n w_n x_nj² to dst, on as many goroutines as s.halt lends.
func (g *design) addSquares(dst, w []float64, index []int, s *designWork) {
	g.addSum(&sumSquares, dst, w, index, g.sumRows(), len(w)*g.perRow(), s)
}

// addSquaresPart is addSquares for elements lo … hi−1 of w.
func (g *design) addSquaresPart(dst, w []float64, index []int, lo, hi int, s *designWork) {
	if g.unit {
		g.addMulTPart(dst, w, index, lo, hi, s)
		return
	}
	for a := lo; a < hi; a++ {
		ind, val := g.row(dense.Index(index, a))
		if g.sparse == nil {
			fma.AxpySquares(w[a], val, dst)
		}
		for k, j := range ind {
			dst[j] += w[a] * val[k] * val[k]
		}
	}
}

// mostSums is how many sums of chunks a product XᵀWXZ takes at most: each has the size of Z.
const mostSums = 64

// addGramMul adds XᵀWXZ to dst, W = diag(w), and Z and dst being cols×k, on as many goroutines as s.halt lends.
func (g *design) addGramMul(dst, z []float64, k int, w []float64, s *designWork) {
	n := len(w)
	chunk := max(g.sumRows(), (n+mostSums-1)/mostSums)
	s.z, s.k = z, k
	g.addSum(&sumGramMul, dst, w, nil, chunk, 2*n*g.perRow()*k, s)
	s.z = nil
}

// addGramMulPart is addGramMul for elements lo … hi−1 of w, and the Z of s: of a few rows at a time, so that those that are read are read again from the nearest memory.
func (g *design) addGramMulPart(dst, w []float64, _ []int, lo, hi int, s *designWork) {
	for ; lo < hi && !s.halt.Stopped(); lo += designChunk {
		g.addGramMulRows(dst, w[lo:min(lo+designChunk, hi)], lo, s)
	}
}

// addGramMulRows is addGramMul for the rows from lo on, as many as w has.
func (g *design) addGramMulRows(dst, w []float64, lo int, s *designWork) {
	z, k, n, d := s.z, s.k, len(w), g.cols
	s.buf = dense.Resize(s.buf, n*k)
	t := s.buf // XZ
	if k == 1 {
		g.mulGramRows(dst, t, t, w, nil, lo, s)
		return
	}
	clear(t)
	g.addProducts(t, z, k, nil, lo, lo+n, s)
	for i, wi := range w {
		fma.Scale(wi, t[i*k:(i+1)*k])
	}
	if g.sparse == nil {
		x := fma.Of(g.dense[lo*d:(lo+n)*d], n, d, max(1, d))
		fma.Gemm(fma.Run{Workers: 1}, 1, x.T(), fma.Of(t, n, k, k), fma.Of(dst, d, k, k))
		return
	}
	for i := range n {
		ind, val := g.sparse.Row(lo + i)
		for l, j := range ind {
			fma.Axpy(val[l], t[i*k:(i+1)*k], dst[int(j)*k:(int(j)+1)*k])
		}
	}
}

// mulGram stores Xz in eta and adds XᵀWXz to dst, W = diag(w), on as many goroutines as s.halt lends. Each row is read once.
func (g *design) mulGram(dst, eta, z, w []float64, index []int, s *designWork) {
	s.z, s.eta = z, eta
	g.addSum(&sumMulGram, dst, w, index, g.sumRows(), 2*len(w)*g.perRow(), s)
	s.z, s.eta = nil, nil
}

// nearNumbers is how many numbers of rows are read twice from near memory.
const nearNumbers = 1 << 15

// mulGramPart is mulGram for elements lo … hi−1 of w, the eta and the z of s.
func (g *design) mulGramPart(dst, w []float64, index []int, lo, hi int, s *designWork) {
	few := min(designChunk, max(8, nearNumbers/max(1, g.perRow())&^7))
	for ; lo < hi && !s.halt.Stopped(); lo += few {
		end := min(lo+few, hi)
		s.scaled = dense.Resize(s.scaled, end-lo)
		g.mulGramRows(dst, s.eta[lo:end], s.scaled, w[lo:end], index, lo, s)
	}
}

// mulGramRows is mulGram for the rows from lo on, as many as w has, of those at index. WXz is stored in t, which may be eta.
func (g *design) mulGramRows(dst, eta, t, w []float64, index []int, lo int, s *designWork) {
	n, d := len(w), g.cols
	switch {
	case g.sparse == nil:
		var x fma.Matrix
		if index == nil {
			x = fma.Of(g.dense[lo*d:(lo+n)*d], n, d, max(1, d))
		} else {
			x = g.part(index[lo:lo+n], false, &s.buf)
		}
		clear(eta)
		fma.Gemv(1, x, false, s.z, eta)
		floats.MulTo(t, eta, w)
		fma.Gemv(1, x, true, t, dst)
	case index == nil:
		x := g.compressed()
		x.Mul(eta, s.z, lo)
		floats.MulTo(t, eta, w)
		x.AddMulT(dst, t, lo)
	default:
		x := g.compressed()
		for a, i := range index[lo : lo+n] {
			x.Mul(eta[a:a+1], s.z, i)
			t[a] = eta[a] * w[a]
			x.AddMulT(dst, t[a:a+1], i)
		}
	}
}

// addProducts adds X_BZ to dst, of the rows lo … hi−1 of those at index, Z being cols×k. Dense rows at an index are gathered in s.buf.
func (g *design) addProducts(dst, z []float64, k int, index []int, lo, hi int, s *designWork) {
	n, d := hi-lo, g.cols
	if g.sparse == nil {
		x := fma.Of(g.dense, g.rows, d, max(1, d))
		if index == nil {
			x = x.Slice(lo, 0, n, d)
		} else {
			x = g.part(index[lo:hi], false, &s.buf)
		}
		fma.Gemm(fma.Run{Workers: 1}, 1, x, fma.Of(z, d, k, k), fma.Of(dst, n, k, k))
		return
	}
	for a := lo; a < hi; a++ {
		ind, val := g.sparse.Row(dense.Index(index, a))
		t := dst[(a-lo)*k : (a-lo+1)*k]
		for l, j := range ind {
			fma.Axpy(val[l], z[int(j)*k:(int(j)+1)*k], t)
		}
	}
}

// savedRows is a design.
type savedRows struct {
	Dense save.List[float64] `json:"dense,omitempty"` // X row by row, or
	Ptr   save.List[int]     `json:"ptr,omitempty"`   // its sparse rows
	Ind   save.List[int32]   `json:"ind,omitempty"`
	Val   save.List[float64] `json:"val,omitempty"`
}

// save returns the rows of x as they are saved.
func (x *design) save() savedRows {
	if s := x.sparse; s != nil {
		end := s.ptr[x.rows]
		return savedRows{Ptr: s.ptr[:x.rows+1], Ind: s.ind[:end], Val: s.val[:end]}
	}
	return savedRows{Dense: x.dense}
}

// load returns so many rows of so many columns.
func (s *savedRows) load(rows, cols int) (*design, error) {
	x := &design{rows: rows, cols: cols, dense: s.Dense}
	good := len(s.Dense)%cols == 0 && len(s.Dense)/cols == rows
	if s.Ptr != nil {
		x.sparse, x.dense = &Sparse{cols, s.Ptr, s.Ind, s.Val}, nil
		good = x.sparse.valid(rows)
	}
	if !good {
		return nil, fmt.Errorf("the data are not %d rows of %d columns: %w", rows, cols, ErrShape)
	}
	return x, nil
}
