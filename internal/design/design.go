// Package design stores the rows of a linear model, dense or compressed, and computes their
// products: Xw, Xᵀu, XᵀΓX and variances of xᵀw. It works in float64 or with twice the digits, and
// has the same bits on any number of cores. GLMs and sparse GPs spend most of their time here.
package design

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// Rows is a compressed matrix: for each row, the columns and values of its non-zeros. If WithOnes
// added a column, Ptr, Ind and Val are nil; see ones.go.
type Rows struct {
	Cols int
	Ptr  []int // row i is Ind[Ptr[i]:Ptr[i+1]]; empty if there are no rows
	Ind  []int32
	Val  []float64
	ones *onesColumn
}

// Rows returns the number of rows.
func (s *Rows) Rows() int {
	if s.ones != nil {
		s = s.ones.rest
	}
	return max(0, len(s.Ptr)-1)
}

// Row returns the columns, in increasing order, and the values of row i. They are views.
func (s *Rows) Row(i int) (ind []int32, val []float64) {
	if s.ones != nil {
		s = s.stored()
	}
	lo, hi := s.Ptr[i], s.Ptr[i+1]
	return s.Ind[lo:hi:hi], s.Val[lo:hi:hi]
}

// valid reports whether s is a matrix of the given number of rows.
func (s *Rows) valid(rows int) bool {
	n := len(s.Ind)
	if len(s.Ptr) != rows+1 || len(s.Val) != n || s.Ptr[0] != 0 || s.Ptr[rows] != n ||
		!slices.IsSorted(s.Ptr) {
		return false
	}
	for i := range rows {
		ind, _ := s.Row(i)
		for k, j := range ind {
			if j < 0 || int(j) >= s.Cols || k > 0 && j <= ind[k-1] {
				return false
			}
		}
	}
	return true
}

// CopiedRows is the number of rows that are copied together.
const CopiedRows = 4096

// Matrix is a design matrix X, rows×cols, dense or sparse. A list of indices selects rows; nil
// means all of them, in order. Methods only read the matrix. They write to the scratch memory in
// their arguments, so goroutines can share a Matrix.
type Matrix struct {
	Rows, Cols int
	Dense      []float64 // row by row, or nil
	Sparse     *Rows
	// every value of the sparse rows is 1, as for indicators
	Unit bool

	core *core // the columns that most sparse rows have, or nil
}

// Gather copies the dense rows at index to dst.
func (g *Matrix) Gather(dst []float64, index []int) {
	d := g.Cols
	for k, i := range index {
		copy(dst[k*d:(k+1)*d], g.Dense[i*d:(i+1)*d])
	}
}

// Check returns an error if a value is not finite.
func (g *Matrix) Check() error {
	if g.Sparse != nil {
		return nil // checked by Append
	}
	chunk, workers := CopiedRows*max(1, g.Cols), 1
	if len(g.Dense) >= SharedProducts {
		workers = runtime.GOMAXPROCS(0)
	}
	return parallel.Each(context.Background(), (len(g.Dense)+chunk-1)/chunk, workers,
		func(_, i int) error {
			part := g.Dense[i*chunk : min((i+1)*chunk, len(g.Dense))]
			if k, ok := dense.AllFinite(part); !ok {
				k += i * chunk
				return fmt.Errorf("pgsvi: row %d, column %d of x is %v: %w", k/g.Cols, k%g.Cols,
					g.Dense[k], sentinel.ErrNotFinite)
			}
			return nil
		})
}

// Sub returns the rows at index, as a copy.
func (g *Matrix) Sub(index []int) *Matrix {
	s := &Matrix{Rows: len(index), Cols: g.Cols, Unit: g.Unit, core: g.core}
	if g.Sparse != nil {
		t := &Rows{Cols: g.Cols}
		t.Ptr = []int{0}
		for _, i := range index {
			ind, val := g.Sparse.Row(i)
			t.Ind, t.Val = append(t.Ind, ind...), append(t.Val, val...)
			t.Ptr = append(t.Ptr, len(t.Ind))
		}
		s.Sparse = t
		return s
	}
	s.Dense = make([]float64, len(index)*g.Cols)
	g.Gather(s.Dense, index)
	return s
}

// nearPart is how many numbers the rows of a part have that stay in the cache of a core, next to the
// vectors that are computed from them.
const nearPart = 1 << 15

// NearRows returns the number of rows of the parts in which a pass over dense rows finds them in the
// cache. Sparse rows are all in one part.
func (g *Matrix) NearRows() int {
	if g.Sparse != nil {
		return max(1, g.Rows)
	}
	return max(Chunk, nearPart/max(1, g.Cols)&^(Chunk-1))
}

// Part returns a view of the dense rows lo … hi−1, or of all sparse rows.
func (g *Matrix) Part(lo, hi int) *Matrix {
	if g.Sparse != nil {
		return g
	}
	return &Matrix{Rows: hi - lo, Cols: g.Cols, Dense: g.Dense[lo*g.Cols : hi*g.Cols]}
}

// Means returns the mean of each column over rows of the given weights. Nil weights are 1.
func (g *Matrix) Means(weights []float64) []float64 {
	n, d, size, sum := g.Rows, g.Cols, g.NearRows(), float64(g.Rows)
	if weights != nil {
		sum = floats.Sum(weights)
	}
	var h parallel.Halt
	if n*g.PerRow() >= SharedProducts {
		h.Lend(runtime.GOMAXPROCS(0))
	}
	parts := make([]float64, (n+size-1)/size*d)
	parallel.For(n, size, h.Workers(), func(_, lo, hi int) {
		share := make([]float64, hi-lo)
		for i := range share {
			share[i] = 1 / sum
			if weights != nil {
				share[i] = weights[lo+i] / sum
			}
		}
		g.Part(lo, hi).addMulTOnce(parts[lo/size*d:][:d], share)
	})
	if n == 0 {
		return make([]float64, d)
	}
	means := parts[:d:d]
	for lo := d; lo < len(parts); lo += d {
		floats.Add(means, parts[lo:lo+d])
	}
	return means
}

// ColumnVariances returns the variance of each column over rows of the given weights, exactly 0 if
// the column does not vary. Nil weights are 1.
func (g *Matrix) ColumnVariances(weights []float64) []float64 {
	v, _ := g.ColumnSpreads(weights)
	return v
}

// ColumnSpreads returns ColumnVariances, and the largest distance of a value from the mean.
func (g *Matrix) ColumnSpreads(weights []float64) (v, reach []float64) {
	mean, v := make([]float64, g.Cols), make([]float64, g.Cols)
	lo, hi, count := make([]float64, g.Cols), make([]float64, g.Cols), make([]int, g.Cols)
	present := make([]float64, g.Cols) // the weight of the rows that a sparse matrix keeps
	n, w := float64(g.Rows), 1.
	var b RowBuffer
	if weights != nil {
		n = floats.Sum(weights)
	}
	for i := range g.Rows {
		ind, val := g.RowIn(&b, i)
		if weights != nil {
			w = weights[i]
		}
		for k, x := range val {
			j := dense.Index(ind, k)
			if count[j] == 0 {
				lo[j], hi[j] = x, x
			}
			count[j]++
			present[j] += w
			mean[j] += w * x / n
			lo[j], hi[j] = min(lo[j], x), max(hi[j], x)
		}
	}
	for i := range g.Rows {
		ind, val := g.RowIn(&b, i)
		if weights != nil {
			w = weights[i]
		}
		for k, x := range val {
			j := dense.Index(ind, k)
			v[j] += w * (x - mean[j]) * (x - mean[j]) / n
		}
	}
	for j, c := range count { // the zeros that a sparse matrix leaves out
		if c < g.Rows {
			lo[j], hi[j] = math.Min(lo[j], 0), math.Max(hi[j], 0)
			v[j] += (n - present[j]) / n * mean[j] * mean[j]
		}
		if lo[j] == hi[j] {
			v[j] = 0
		}
		lo[j] = math.Max(hi[j]-mean[j], mean[j]-lo[j])
	}
	return v, lo
}

// Ranges returns the least and the largest value of each column over every n-th row, where n is
// every.
func (g *Matrix) Ranges(every int) (lo, hi []float64) {
	lo, hi = slices.Repeat([]float64{math.Inf(1)}, g.Cols), slices.Repeat([]float64{math.Inf(-1)},
		g.Cols)
	rows, count := 0, make([]int, g.Cols)
	var b RowBuffer
	for i := 0; i < g.Rows; i, rows = i+every, rows+1 {
		ind, val := g.RowIn(&b, i)
		if ind == nil {
			lo, hi := lo[:len(val)], hi[:len(val)]
			for j, x := range val {
				if x < lo[j] {
					lo[j] = x
				}
				if x > hi[j] {
					hi[j] = x
				}
			}
			continue
		}
		for k, j := range ind {
			lo[j], hi[j] = min(lo[j], val[k]), max(hi[j], val[k])
			count[j]++
		}
	}
	for j, c := range count {
		if g.Sparse != nil && c < rows {
			lo[j], hi[j] = min(lo[j], 0), max(hi[j], 0)
		}
	}
	return lo, hi
}

// Row returns the columns and values of row i. The columns are nil if the matrix is dense.
func (g *Matrix) Row(i int) (ind []int32, val []float64) {
	if g.Sparse != nil {
		return g.Sparse.Row(i)
	}
	return nil, g.Dense[i*g.Cols : (i+1)*g.Cols]
}

// compressed returns the sparse rows for a product.
func (g *Matrix) compressed() fma.Sparse {
	s := g.Sparse.stored()
	x := fma.Sparse{Cols: g.Cols, Ptr: s.Ptr, Ind: s.Ind, Val: s.Val}
	if g.Unit {
		x.Val = nil
	}
	return x
}

// Mul stores Xw in dst.
func (g *Matrix) Mul(dst, w []float64, index []int) { g.mulPart(dst, w, index, 0, len(dst)) }

// MulOn is Mul on as many goroutines as h lends.
func (g *Matrix) MulOn(h *parallel.Halt, dst, w []float64, index []int) {
	if !g.Shared(h, len(dst)*g.PerRow()) {
		g.Mul(dst, w, index)
		return
	}
	parallel.For(len(dst), Chunk, h.Workers(),
		func(_, lo, hi int) { g.mulPart(dst, w, index, lo, hi) })
}

// mulPart is Mul for elements lo … hi−1 of dst.
func (g *Matrix) mulPart(dst, w []float64, index []int, lo, hi int) {
	switch {
	case g.Sparse == nil && index == nil && g.Cols > 0:
		fma.Dots(dst[lo:hi], fma.Of(g.Dense[lo*g.Cols:hi*g.Cols], hi-lo, g.Cols, g.Cols), w)
		return
	case g.Sparse == nil:
		for a := lo; a < hi; a++ {
			dst[a] = dense.DotRow(g.Dense, g.Cols, dense.Index(index, a), w)
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

// SharedProducts is the number of products from which goroutines share rows. Fewer products take
// no longer than waking a goroutine.
const SharedProducts = 1 << 18

// Shared reports whether the goroutines that h lends should share the given number of products.
func (g *Matrix) Shared(h *parallel.Halt, products int) bool {
	return h.Workers() > 1 && products >= SharedProducts
}

// PerRow returns the average number of stored values per row.
func (g *Matrix) PerRow() int {
	if g.Sparse == nil {
		return g.Cols
	}
	return g.Sparse.Values() / max(1, g.Rows)
}

// MulRows stores WX_Bᵀ in dst, for the rows lo … hi−1 of x and the weights W, row by row.
func (g *Matrix) MulRows(dst, w []float64, lo, hi int, s *Work) {
	n, d, draws := hi-lo, g.Cols, len(w)/g.Cols
	switch {
	case g.Sparse == nil:
		dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(w, draws, d),
			dense.General(g.Dense[lo*d:hi*d], n, d), 0, dense.General(dst, draws, n))
	case g.core != nil:
		g.mulCoreRows(dst, w, lo, hi, s)
	default:
		x := g.compressed()
		for i := range draws {
			x.Mul(dst[i*n:(i+1)*n], w[i*d:(i+1)*d], lo)
		}
	}
}

// MulDouble stores Xw in dst, computed with twice the digits.
func (g *Matrix) MulDouble(dst []float64, w dense.Double, index []int) {
	for a := range dst {
		ind, val := g.Row(dense.Index(index, a))
		if g.Sparse == nil {
			dst[a] = w.Dot(val)
			continue
		}
		dst[a] = w.DotAt(ind, val)
	}
}

// AddMulT adds Xᵀu to dst.
func (g *Matrix) AddMulT(dst, u []float64, index []int) {
	if g.Sparse != nil || index == nil {
		g.addMulTPart(dst, u, index, 0, len(u), nil)
		return
	}
	for a, ua := range u {
		if ua != 0 {
			_, row := g.Row(index[a])
			dense.Axpy(ua, dense.Vector(row), dense.Vector(dst))
		}
	}
}

// Sums over rows are computed in chunks, and the sums of the chunks are added in order, so the
// bits do not depend on which goroutine takes a chunk. A chunk of Xᵀu has about sumProducts
// products, and never fewer rows than columns. A chunk of XᵀΓX has at least gramRows rows, and
// gramColumns rows per column, so adding its D² numbers costs almost nothing.
const (
	sumProducts = 1 << 16
	gramRows    = 4096
	gramColumns = 16
)

// sumRows returns the number of rows in a chunk of Xᵀu.
func (g *Matrix) sumRows() int { return max(Chunk, sumProducts/max(1, g.PerRow()), g.Cols) }

// A rowSum is a sum over rows. It has the function that adds elements lo … hi−1 of u, and the
// function that adds the sum of a chunk to the sums before.
type rowSum struct {
	part func(g *Matrix, dst, u []float64, index []int, lo, hi int, s *Work)
	add  func(dst, sum []float64, cols int)
}

var (
	sumMulT = rowSum{(*Matrix).addMulTPart,
		func(dst, sum []float64, _ int) { fma.Axpy(1, sum, dst) }}
	sumSquares = rowSum{(*Matrix).addSquaresPart, sumMulT.add}
	sumGramMul = rowSum{(*Matrix).addGramMulPart, sumMulT.add}
	sumMulGram = rowSum{(*Matrix).mulGramPart, sumMulT.add}
	sumGram    = rowSum{(*Matrix).addGramPart, addLower}
)

// addSum adds r to dst in chunks of the given number of rows. It uses as many goroutines as
// s.Halt lends, if the given number of products pays for them.
func (g *Matrix) addSum(r *rowSum, dst, u []float64, index []int, chunk, products int, s *Work) {
	n, size := len(u), len(dst)
	if n <= chunk {
		r.part(g, dst, u, index, 0, n, s)
		return
	}
	if !g.Shared(s.Halt, products) {
		s.Sums = dense.Resize(s.Sums, size)
		for lo := 0; lo < n; lo += chunk {
			clear(s.Sums)
			r.part(g, s.Sums, u, index, lo, min(lo+chunk, n), s)
			r.add(dst, s.Sums, g.Cols)
		}
		return
	}
	s.Sums = dense.Resize(s.Sums, (n+chunk-1)/chunk*size)
	sums := s.Sums
	clear(sums)
	s.Split(n, chunk, func(lo, hi int,
		s *Work) {
		r.part(g, sums[lo/chunk*size:][:size], u, index, lo, hi, s)
	})
	for ; len(sums) > 0; sums = sums[size:] {
		r.add(dst, sums[:size], g.Cols)
	}
}

// AddMulTOn is AddMulT on as many goroutines as s.Halt lends.
func (g *Matrix) AddMulTOn(dst, u []float64, index []int, s *Work) {
	g.addSum(&sumMulT, dst, u, index, g.sumRows(), len(u)*g.PerRow(), s)
}

// addMulTPart is AddMulT for elements lo … hi−1 of u. Dense rows at an index are gathered in s,
// which has no other use here.
func (g *Matrix) addMulTPart(dst, u []float64, index []int, lo, hi int, s *Work) {
	d := g.Cols
	if g.Sparse == nil {
		for a := lo; a < hi; a += Chunk {
			end := min(a+Chunk, hi)
			rows := fma.Matrix{}
			if index == nil {
				rows = fma.Of(g.Dense[a*d:end*d], end-a, d, max(1, d))
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

// AddMulTDouble is AddMulTOn with twice the digits.
func (g *Matrix) AddMulTDouble(dst dense.Double, u []float64, index []int, s *Work) {
	n, d, chunk := len(u), g.Cols, g.sumRows()
	if n <= chunk {
		g.addMulTDoublePart(dst, u, index, 0, n)
		return
	}
	s.double.Resize((n + chunk - 1) / chunk * d)
	s.double.Clear()
	sums := s.double
	part := func(lo, hi int, _ *Work) {
		from := lo / chunk * d
		g.addMulTDoublePart(sums.Slice(from, from+d), u, index, lo, hi)
	}
	if g.Shared(s.Halt, n*g.PerRow()) {
		s.Split(n, chunk, part)
	} else {
		for lo := 0; lo < n; lo += chunk {
			part(lo, min(lo+chunk, n), s)
		}
	}
	for at := 0; at < len(sums.Hi); at += d {
		dst.AddDouble(1, sums.Slice(at, at+d))
	}
}

// addMulTDoublePart is AddMulTDouble for elements lo … hi−1 of u.
func (g *Matrix) addMulTDoublePart(dst dense.Double, u []float64, index []int, lo, hi int) {
	for a := lo; a < hi; a++ {
		ind, val := g.Row(dense.Index(index, a))
		if g.Sparse == nil {
			dst.AddScaled(u[a], val)
			continue
		}
		if g.Unit {
			dst.AddEach(ind, u[a])
			continue
		}
		for k, j := range ind {
			dst.AddAt(int(j), u[a], val[k])
		}
	}
}

// Chunk is the number of rows that are processed together.
const Chunk = 256

// AddGram adds Xᵀ diag(w) X to the lower triangle of p, cols×cols, on as many goroutines as
// s.Halt lends. The weights may have any sign.
func (g *Matrix) AddGram(p, w []float64, index []int, s *Work) {
	per := g.PerRow()
	g.addSum(&sumGram, p, w, index, max(gramRows, gramColumns*g.Cols), len(w)*per*per/2, s)
}

// addLower adds the lower triangle of a to the lower triangle of p. Both are d×d.
func addLower(p, a []float64, d int) {
	for i := range d {
		fma.Axpy(1, a[i*d:i*d+i+1], p[i*d:i*d+i+1])
	}
}

// addGramPart is AddGram for elements lo … hi−1 of w.
func (g *Matrix) addGramPart(p, w []float64, index []int, lo, hi int, s *Work) {
	d := g.Cols
	if g.core != nil && hi-lo >= Chunk {
		g.addCoreGram(p, w, index, lo, hi, s)
		return
	}
	if g.Sparse != nil {
		x := g.compressed()
		for a := lo; a < hi; a++ {
			if w[a] == 0 {
				continue
			}
			if a%Chunk == 0 && s.Halt.Stopped() {
				return
			}
			x.AddOuter(p, w[a], dense.Index(index, a))
		}
		return
	}
	// Both factors are multiplied by √|w|, instead of one factor by w. The matrix of a row is
	// then exactly positive semidefinite, and subtracting the row later removes exactly that
	// matrix.
	var root [Chunk]float64
	var rows [Chunk]int
	c := fma.Of(p, d, d, max(1, d))
	for _, sign := range [2]float64{1, -1} {
		for a := lo; a < hi && !s.Halt.Stopped(); {
			n := 0
			for ; a < hi && n < Chunk; a++ {
				if sign*w[a] > 0 {
					root[n], rows[n] = math.Sqrt(sign*w[a]), dense.Index(index, a)
					n++
				}
			}
			if n > 0 {
				s.panels.SetScaled(g.part(rows[:n], index == nil, &s.buf), root[:n])
				s.panels.Syrk(fma.Run{Halt: s.Halt}, sign, c, 0, d)
			}
		}
	}
}

// part returns the dense rows with the given numbers. They are a view if the numbers are
// consecutive, and else a copy in buf.
func (g *Matrix) part(rows []int, increase bool, buf *[]float64) fma.Matrix {
	d, n := g.Cols, len(rows)
	if first := rows[0]; increase && rows[n-1]-first == n-1 {
		return fma.Of(g.Dense[first*d:], n, d, max(1, d))
	}
	*buf = dense.Resize(*buf, n*d)
	g.Gather(*buf, rows)
	return fma.Of(*buf, n, d, max(1, d))
}

// Work is the scratch memory of products with a design. Products are invalid if its Halt has
// stopped.
type Work struct {
	buf    []float64
	double dense.Double // a row
	Halt   *parallel.Halt
	// Rows counts the rows added to matrices XᵀΓX so far, N per complete matrix. With many
	// weights these cost most of the time.
	Rows   int
	others []Work    // scratch of goroutines that share rows
	Sums   []float64 // sums of chunks of rows
	z      []float64 // Z of products XᵀWXZ, with k columns
	k      int
	eta    []float64  // Xz
	scaled []float64  // WXz of a few rows
	lower  fma.Lower  // L for variances of dense rows
	panels fma.Panels // a few of these rows

	core    coreWork
	inverse coreInverse
}

// Split calls do for the chunks of n rows. The goroutines that s.Halt lends share them, each with
// its own scratch.
func (s *Work) Split(n, chunk int, do func(lo, hi int, s *Work)) {
	workers := s.Halt.Workers()
	if len(s.others) < workers {
		s.others = make([]Work, workers)
	}
	var alone parallel.Halt // lends no goroutine
	alone.Watch(s.Halt.Context())
	for i := range s.others {
		s.others[i].Halt, s.others[i].z, s.others[i].k, s.others[i].eta = &alone, s.z, s.k, s.eta
	}
	loop := parallel.Loop{Halt: s.Halt}
	loop.Run(n, chunk, workers,
		parallel.Func(func(worker, lo, hi int) { do(lo, hi, &s.others[worker]) }))
}

// varianceRows is the number of dense rows whose variances are computed together.
const varianceRows = 192

// Variances stores x_nᵀ(LLᵀ)⁻¹x_n in dst. L and inv = (LLᵀ)⁻¹ are cols×cols. Only sparse rows use
// inv, which is full. The goroutines that s.Halt lends share chunks of rows.
func (g *Matrix) Variances(dst, l, inv []float64, index []int, s *Work) {
	if g.core != nil && len(dst) >= Chunk {
		g.coreVariances(dst, l, inv, index, s)
		return
	}
	chunk := Chunk
	if g.Sparse == nil {
		chunk = varianceRows
		s.lower.Set(fma.Of(l, g.Cols, g.Cols, g.Cols))
	}
	if per := g.PerRow(); len(dst) <= chunk || !g.Shared(s.Halt, len(dst)*per*per/2) {
		for lo := 0; lo < len(dst); lo += chunk {
			g.variancesPart(dst, l, inv, index, lo, min(lo+chunk, len(dst)), &s.lower, s)
		}
		return
	}
	s.Split(len(dst), chunk,
		func(lo, hi int, t *Work) { g.variancesPart(dst, l, inv, index, lo, hi, &s.lower, t) })
}

// variancesPart is Variances for elements lo … hi−1 of dst, which are a chunk. Dense rows use
// lower, which is L.
func (g *Matrix) variancesPart(dst, l, inv []float64, index []int, lo, hi int, lower *fma.Lower,
	s *Work) {
	d := g.Cols
	if s.Halt.Stopped() {
		return
	}
	if g.Sparse != nil {
		x := g.compressed()
		for a := lo; a < hi; a++ {
			i := dense.Index(index, a)
			v, size := x.Quad(inv, i)
			if !(v > cancelled*size) {
				ind, val := g.Sparse.Row(i)
				v = g.solvedVariance(l, ind, val, &s.buf)
			}
			dst[a] = v
		}
		return
	}
	var rows fma.Matrix
	if index == nil {
		rows = fma.Of(g.Dense[lo*d:hi*d], hi-lo, d, d)
	} else {
		rows = g.part(index[lo:hi], false, &s.buf)
	}
	lower.Solve(fma.Matrix{}, rows.T(), dst[lo:hi])
}

// VariancesDouble is Variances for an L with twice the digits.
func (g *Matrix) VariancesDouble(dst []float64, l dense.Double, inv []float64, index []int,
	s *Work) {
	s.double.Resize(g.Cols)
	for a := range dst {
		if s.Halt.Stopped() {
			return
		}
		i := dense.Index(index, a)
		if g.Sparse != nil {
			x := g.compressed()
			if v, size := x.Quad(inv, i); v > cancelled*size {
				dst[a] = v
				continue
			}
		}
		g.Dense1(s.double.Hi, i)
		clear(s.double.Lo)
		l.Trsv(s.double)
		z := dense.Vector(s.double.Hi)
		dst[a] = dense.Dot(z, z)
	}
}

// A variance of a sparse row from V has lost too many digits if it is smaller than this part of
// the sum of the variances of its weights.
const cancelled = 1e-6

// solvedVariance returns ‖L⁻¹x‖² for a sparse x.
func (g *Matrix) solvedVariance(l []float64, ind []int32, val []float64, buf *[]float64) float64 {
	if len(ind) == 0 {
		return 0
	}
	d, first := g.Cols, int(ind[0])
	n := d - first
	*buf = dense.Resize(*buf, n)
	x := *buf
	clear(x)
	for k, j := range ind {
		x[int(j)-first] = val[k]
	}
	dense.Trsv(blas.NoTrans,
		blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Data: l[first*d+first:],
			Stride: d}, dense.Vector(x))
	return dense.Dot(dense.Vector(x), dense.Vector(x))
}

// QuadDiag stores x_nᵀ diag(v) x_n in dst.
func (g *Matrix) QuadDiag(dst, v []float64,
	index []int) {
	g.QuadDiagPart(dst, v, index, 0, len(dst))
}

// QuadDiagOn is QuadDiag on as many goroutines as h lends.
func (g *Matrix) QuadDiagOn(h *parallel.Halt, dst, v []float64, index []int) {
	if !g.Shared(h, len(dst)*g.PerRow()) {
		g.QuadDiag(dst, v, index)
		return
	}
	parallel.For(len(dst), Chunk, h.Workers(),
		func(_, lo, hi int) { g.QuadDiagPart(dst, v, index, lo, hi) })
}

// QuadDiagPart is QuadDiag for elements lo … hi−1 of dst.
func (g *Matrix) QuadDiagPart(dst, v []float64, index []int, lo, hi int) {
	if g.Unit { // the squares of ones
		g.mulPart(dst, v, index, lo, hi)
		return
	}
	if g.Sparse == nil && index == nil && g.Cols > 0 {
		x := fma.Of(g.Dense[lo*g.Cols:hi*g.Cols], hi-lo, g.Cols, g.Cols)
		fma.DotsSquares(dst[lo:hi], x, v)
		return
	}
	for a := lo; a < hi; a++ {
		ind, val := g.Row(dense.Index(index, a))
		if g.Sparse == nil {
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

// Dense1 stores row i in dst.
func (g *Matrix) Dense1(dst []float64, i int) {
	ind, val := g.Row(i)
	if g.Sparse == nil {
		copy(dst, val)
		return
	}
	clear(dst)
	for k, j := range ind {
		dst[j] = val[k]
	}
}

func B2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// AddSquares adds Σ_n w_n x_nj² to dst, on as many goroutines as s.Halt lends.
func (g *Matrix) AddSquares(dst, w []float64, index []int, s *Work) {
	g.addSum(&sumSquares, dst, w, index, g.sumRows(), len(w)*g.PerRow(), s)
}

// addSquaresPart is AddSquares for elements lo … hi−1 of w.
func (g *Matrix) addSquaresPart(dst, w []float64, index []int, lo, hi int, s *Work) {
	if g.Unit {
		g.addMulTPart(dst, w, index, lo, hi, s)
		return
	}
	for a := lo; a < hi; a++ {
		ind, val := g.Row(dense.Index(index, a))
		if g.Sparse == nil {
			fma.AxpySquares(w[a], val, dst)
		}
		for k, j := range ind {
			dst[j] += w[a] * val[k] * val[k]
		}
	}
}

// mostSums is the largest number of sums of chunks of a product XᵀWXZ. Each is as large as Z.
const mostSums = 64

// AddGramMul adds XᵀWXZ to dst, with W = diag(w), on as many goroutines as s.Halt lends. Z and
// dst are cols×k.
func (g *Matrix) AddGramMul(dst, z []float64, k int, w []float64, s *Work) {
	n := len(w)
	chunk := max(g.sumRows(), (n+mostSums-1)/mostSums)
	s.z, s.k = z, k
	g.addSum(&sumGramMul, dst, w, nil, chunk, 2*n*g.PerRow()*k, s)
	s.z = nil
}

// addGramMulPart is AddGramMul for elements lo … hi−1 of w and the Z of s. It takes a few rows at
// a time, because it reads them twice and they are then still in the cache.
func (g *Matrix) addGramMulPart(dst, w []float64, _ []int, lo, hi int, s *Work) {
	for ; lo < hi && !s.Halt.Stopped(); lo += Chunk {
		g.addGramMulRows(dst, w[lo:min(lo+Chunk, hi)], lo, s)
	}
}

// addGramMulRows is AddGramMul for len(w) rows from lo on.
func (g *Matrix) addGramMulRows(dst, w []float64, lo int, s *Work) {
	z, k, n, d := s.z, s.k, len(w), g.Cols
	s.buf = dense.Resize(s.buf, n*k)
	t := s.buf // XZ
	if k == 1 {
		g.mulGramRows(dst, t, t, w, nil, lo, s)
		return
	}
	clear(t)
	g.AddProducts(t, z, k, nil, lo, lo+n, s)
	for i, wi := range w {
		fma.Scale(wi, t[i*k:(i+1)*k])
	}
	if g.Sparse == nil {
		x := fma.Of(g.Dense[lo*d:(lo+n)*d], n, d, max(1, d))
		fma.Gemm(fma.Run{Workers: 1}, 1, x.T(), fma.Of(t, n, k, k), fma.Of(dst, d, k, k))
		return
	}
	for i := range n {
		ind, val := g.Sparse.Row(lo + i)
		for l, j := range ind {
			fma.Axpy(val[l], t[i*k:(i+1)*k], dst[int(j)*k:(int(j)+1)*k])
		}
	}
}

// MulGram stores Xz in eta and adds XᵀWXz to dst, with W = diag(w), on as many goroutines as
// s.Halt lends. It reads each row once.
func (g *Matrix) MulGram(dst, eta, z, w []float64, index []int, s *Work) {
	s.z, s.eta = z, eta
	g.addSum(&sumMulGram, dst, w, index, g.sumRows(), 2*len(w)*g.PerRow(), s)
	s.z, s.eta = nil, nil
}

// nearNumbers is how many numbers of rows fit into the nearest cache between two reads.
const nearNumbers = 1 << 11

// mulGramPart is MulGram for elements lo … hi−1 of w and the eta and z of s.
func (g *Matrix) mulGramPart(dst, w []float64, index []int, lo, hi int, s *Work) {
	few := min(Chunk, max(8, nearNumbers/max(1, g.PerRow())&^7))
	for ; lo < hi && !s.Halt.Stopped(); lo += few {
		end := min(lo+few, hi)
		s.scaled = dense.Resize(s.scaled, end-lo)
		g.mulGramRows(dst, s.eta[lo:end], s.scaled, w[lo:end], index, lo, s)
	}
}

// mulGramRows is MulGram for len(w) rows from lo on, among the rows at index. It stores WXz in t,
// which may be eta.
func (g *Matrix) mulGramRows(dst, eta, t, w []float64, index []int, lo int, s *Work) {
	n, d := len(w), g.Cols
	switch {
	case g.Sparse == nil:
		var x fma.Matrix
		if index == nil {
			x = fma.Of(g.Dense[lo*d:(lo+n)*d], n, d, max(1, d))
		} else {
			x = g.part(index[lo:lo+n], false, &s.buf)
		}
		fma.Dots(eta, x, s.z)
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

// AddProducts adds X_BZ to dst, where B are the rows lo … hi−1 of the rows at index and Z is
// cols×k. Dense rows at an index are gathered in s.buf.
func (g *Matrix) AddProducts(dst, z []float64, k int, index []int, lo, hi int, s *Work) {
	n, d := hi-lo, g.Cols
	if g.Sparse == nil {
		x := fma.Of(g.Dense, g.Rows, d, max(1, d))
		if index == nil {
			x = x.Slice(lo, 0, n, d)
		} else {
			x = g.part(index[lo:hi], false, &s.buf)
		}
		fma.Gemm(fma.Run{Workers: 1}, 1, x, fma.Of(z, d, k, k), fma.Of(dst, n, k, k))
		return
	}
	for a := lo; a < hi; a++ {
		ind, val := g.Sparse.Row(dense.Index(index, a))
		t := dst[(a-lo)*k : (a-lo+1)*k]
		for l, j := range ind {
			fma.Axpy(val[l], z[int(j)*k:(int(j)+1)*k], t)
		}
	}
}

// SavedRows is the saved form of a design.
type SavedRows struct {
	Dense save.List[float64] `json:"dense,omitempty"` // dense rows, row by row, or
	Ptr   save.List[int]     `json:"ptr,omitempty"`   // sparse rows
	Ind   save.List[int32]   `json:"ind,omitempty"`
	Val   save.List[float64] `json:"val,omitempty"`
}

// Save returns the saved form of x.
func (x *Matrix) Save() SavedRows {
	if x.Sparse != nil {
		s := x.Sparse.stored()
		end := s.Ptr[x.Rows]
		return SavedRows{Ptr: s.Ptr[:x.Rows+1], Ind: s.Ind[:end], Val: s.Val[:end]}
	}
	return SavedRows{Dense: x.Dense}
}

// Load returns the design. The error wraps sentinel.ErrShape if it does not have the given
// numbers of rows and columns.
func (s *SavedRows) Load(rows, cols int) (*Matrix, error) {
	x := &Matrix{Rows: rows, Cols: cols, Dense: s.Dense}
	good := len(s.Dense)%cols == 0 && len(s.Dense)/cols == rows
	if s.Ptr != nil {
		x.Sparse, x.Dense = &Rows{Cols: cols, Ptr: s.Ptr, Ind: s.Ind, Val: s.Val}, nil
		if good = x.Sparse.valid(rows); good {
			x.core = x.Sparse.core(rows)
		}
	}
	if !good {
		return nil, fmt.Errorf("the data are not %d rows of %d columns: %w", rows, cols,
			sentinel.ErrShape)
	}
	return x, nil
}
