// Package fma implements linear algebra and elementary functions on float64 with a fixed order of
// arithmetic. Results have the same bits on every processor, on every path through the code, and
// for any number of goroutines. Package dense and the inner loops of the engines build on it, so
// that a seed gives the same fit everywhere.
//
// Each element of a product of matrices is a sum over k in blocks of Block. The sum of a block
// starts at 0 and adds one product at a time by fused multiplication and addition, s ← fma(a_ik,
// b_kj, s). Another fused operation adds the sum to the element, c_ij ← fma(α, s, c_ij).
// Solutions and factors are such sums with α = −1, followed by a division or a square root. An
// inner product has sixteen partial sums (see Dot), and an inner product with a sparse row has
// four (see Sparse.Mul).
//
// On amd64 with AVX2 and FMA, the inner loops are in assembly, which gen generates. With AVX-512,
// products, solutions and elementary functions use its longer vectors. On arm64, products and
// inner products use NEON. On other processors, and with the build tag purego, the loops are in
// Go and call math.FMA.
//
// NaN and infinities follow IEEE 754, because no product is left out if a factor is 0. The only
// exceptions are the elements that are 0 because a matrix is triangular, whose memory is not
// read.
//
//	gemm.go, panels.go	products of matrices
//	trsm.go, cholesky.go, inverse.go	solutions, factors and inverses
//	vector.go, sparse.go	vectors and sparse rows
//	exp.go, softplus.go, gumbel.go, geometric.go	elementary functions and sums of likelihoods
//	tile.go, pack.go, plain.go	inner loops in Go, packing, and loops for small problems
//	path_*.go, kernels_*.go	the choice of the inner loops, and those in assembly
package fma

//go:generate go run -C gen . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg fma

import (
	"sync"
	"unsafe"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// Block is the number of products that are summed before the sum is added to an element.
const Block = 256

// A Matrix is a view of numbers, whose element (i, j) is Data[Off + i·Row + j·Col]. Row or Col is
// 1 or −1.
type Matrix struct {
	Data       []float64
	Off        int
	Rows, Cols int
	Row, Col   int // steps
}

// Of returns a view of rows×cols numbers, row by row, where consecutive rows start stride numbers
// apart. It panics if the rows do not fit into stride or into data.
func Of(data []float64, rows, cols, stride int) Matrix {
	if rows < 0 || cols < 0 || stride < max(1, cols) || rows > 0 && cols > 0 && (rows-1)*stride+
		cols > len(data) {
		panic("fma: a matrix is larger than its data")
	}
	return Matrix{data, 0, rows, cols, stride, 1}
}

// T returns the transpose, which shares the memory of m.
func (m Matrix) T() Matrix { return Matrix{m.Data, m.Off, m.Cols, m.Rows, m.Col, m.Row} }

// Slice returns the rows×cols part of m that starts at row i and column j.
func (m Matrix) Slice(i, j, rows, cols int) Matrix {
	if i < 0 || j < 0 || rows < 0 || cols < 0 || i+rows > m.Rows || j+cols > m.Cols {
		panic("fma: a part is larger than its matrix")
	}
	return Matrix{m.Data, m.Off + i*m.Row + j*m.Col, rows, cols, m.Row, m.Col}
}

// reverse returns a view of m with its rows in reverse order.
func (m Matrix) reverse() Matrix {
	return Matrix{m.Data, m.Off + max(0, m.Rows-1)*m.Row, m.Rows, m.Cols, -m.Row, m.Col}
}

func (m Matrix) at(i, j int) *float64 { return &m.Data[m.Off+i*m.Row+j*m.Col] }

func (m Matrix) empty() bool { return m.Rows == 0 || m.Cols == 0 }

// span returns the first address of m, the address after its last number, and the longer of its
// two steps, counted in numbers.
func (m Matrix) span() (lo, hi uintptr, stride int) {
	first, last := m.Off, m.Off
	for _, d := range [2]int{(m.Rows - 1) * m.Row, (m.Cols - 1) * m.Col} {
		first, last = first+min(0, d), last+max(0, d)
	}
	return uintptr(unsafe.Pointer(&m.Data[first])), uintptr(unsafe.Pointer(&m.Data[last])) + 8,
		max(m.Row, -m.Row, m.Col, -m.Col)
}

// overlap reports whether a and b share memory. If their strides differ, it reports whether their
// address ranges overlap.
func overlap(a, b Matrix) bool {
	if a.empty() || b.empty() {
		return false
	}
	aLo, aHi, s := a.span()
	bLo, bHi, t := b.span()
	if aHi <= bLo || bHi <= aLo {
		return false
	}
	if s != t || aLo%8 != bLo%8 {
		return true
	}
	// Both are columns c … c+w−1 of the same memory with rows of length s, so they overlap if
	// they share a column.
	base := min(aLo, bLo)
	width := func(m Matrix) int {
		if s == 1 || m.Col == s || m.Col == -s {
			return m.Rows
		}
		return m.Cols
	}
	aCol, bCol := int(aLo-base)/8%s, int(bLo-base)/8%s
	if aCol+width(a) > s || bCol+width(b) > s { // a row wraps around
		return true
	}
	return aCol < bCol+width(b) && bCol < aCol+width(a)
}

// distinct panics if c shares memory with any of the others.
func distinct(c Matrix, others ...Matrix) {
	for _, m := range others {
		if overlap(c, m) {
			panic("fma: the result shares memory with an operand")
		}
	}
}

func shapes(ok bool) {
	if !ok {
		panic("fma: matrices of other shapes")
	}
}

// A Run controls when a computation stops and how many goroutines it uses. With the zero value,
// it runs to the end on the goroutine of the caller.
type Run struct {
	Halt    *parallel.Halt // after it has stopped, results are invalid
	Workers int            // 0 means as many as Halt lends
}

// These constants control how goroutines share work. Problems with fewer than sharedProducts
// products take about 10 µs and are not shared, because another goroutine needs one or two
// microseconds to join. Parts have at most mostShare rows, or share columns to solve for, and
// there are three parts per goroutine, so that all end at about the same time. A part has at
// least leastShare rows, because each part packs all of the other factor.
const (
	sharedProducts = 1 << 18
	mostShare      = 384
	share          = 192
	leastShare     = 48
)

// parts returns the number of rows or columns in each part if n rows or columns, with the given
// number of products in total, are shared between goroutines. It is a multiple of to. It is 0 if
// they are not shared.
func (r Run) parts(n, products, to int) int {
	workers := r.workers()
	if workers < 2 || products < sharedProducts {
		return 0
	}
	if part := max(leastShare, min(mostShare, up((n+3*workers-1)/(3*workers), to))); part < n {
		return part
	}
	return 0
}

// A job is a computation that goroutines share. Jobs are pooled.
type job struct {
	loop    parallel.Loop
	run     Run
	kind    kind
	lo, n   int // rows lo … lo+n−1, or n columns
	part    int // rows or columns at a time
	product product
	panels  *Panels
	t       *triangle
	x       Matrix
}

type kind int

const (
	rowsOfProduct kind = iota // rows of the field product
	rowsOfPanels              // rows of the square of panels, added to product.c
	columnsOfX                // columns of x, solved with t
)

var jobs = sync.Pool{New: func() any { return new(job) }}

// split runs j in parts of the given length, and reports whether it completed all of them.
func (r Run) split(j *job, part int) bool {
	j.run, j.part, j.loop.Halt = r, part, r.Halt
	j.loop.Run(j.n, part, max(r.Workers, r.Halt.Workers()), j)
	j.loop.Halt, j.run, j.product, j.panels, j.t, j.x = nil, Run{}, product{}, nil, nil, Matrix{}
	jobs.Put(j)
	return !r.Halt.Stopped()
}

// Do implements parallel.Task. It starts with the last rows, because they are the longest rows of
// a triangle.
func (j *job) Do(_, lo, hi int) {
	from := (j.n - 1 - lo) / j.part * j.part
	to := j.lo + min(from+j.part, j.n)
	from += j.lo
	switch j.kind {
	case rowsOfProduct:
		j.product.part(j.run, from, to)
	case rowsOfPanels:
		j.panels.syrk(j.product.alpha, j.product.c, from, to)
	case columnsOfX:
		part := j.x.Slice(0, lo, j.x.Rows, hi-lo)
		j.t.solve(part, part, nil, false)
	}
}

// work holds memory for packed panels.
type work struct {
	a, b []float64
	t    triangle
	x    []float64
	tile [rows * columns]float64
}

var pool = sync.Pool{New: func() any { return new(work) }}

// room returns a slice of length n, which reuses s if it is large enough.
func room(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	return s[:n]
}

// up returns n rounded up to a multiple of to.
func up(n, to int) int { return (n + to - 1) / to * to }
