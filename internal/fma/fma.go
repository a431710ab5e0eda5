// Package fma is linear algebra on float64, of dense matrices and of sparse rows, in one order of
// arithmetic. Results have the same bits on every processor, by every path through the code and for
// any number of goroutines.
//
// An element of a product of matrices is summed over k from 0 on in blocks of Block. The sum of a
// block begins with 0 and takes one product at a time by fused multiplication and addition, s ←
// fma(a_ik, b_kj, s). One more adds it to its element, c_ij ← fma(α, s, c_ij). Solutions and
// factors are sums of that kind with α = −1, and a division or a square root at the end. An inner
// product has sixteen partial sums, see Dot, and one with a sparse row four, see Sparse.Mul.
//
// On amd64 with AVX2 and FMA the inner loops are assembly, which gen writes. With AVX-512,
// products, solutions and elementary functions use its longer vectors. On arm64, products and inner
// products use NEON. Elsewhere, and with the build tag purego, they are Go with math.FMA. NaN and
// infinities follow IEEE 754: no product is left out because a factor is 0. The exception are the
// zeros that a triangular matrix has by its shape, whose memory is not read.
package fma

//go:generate go run -C gen . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg fma

import (
	"sync"
	"unsafe"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// Block is the number of products that are summed before their sum is added to an element.
const Block = 256

// A Matrix is a view of numbers: element (i, j) is Data[Off + i·Row + j·Col]. Row or Col is 1 or
// −1.
type Matrix struct {
	Data       []float64
	Off        int
	Rows, Cols int
	Row, Col   int // steps
}

// Of returns rows×cols numbers, row by row, the rows stride apart. It does not copy, and panics if
// the rows do not fit into stride or into data.
func Of(data []float64, rows, cols, stride int) Matrix {
	if rows < 0 || cols < 0 || stride < max(1, cols) || rows > 0 && cols > 0 && (rows-1)*stride+
		cols > len(data) {
		panic("fma: a matrix is larger than its data")
	}
	return Matrix{data, 0, rows, cols, stride, 1}
}

// T returns the transpose.
func (m Matrix) T() Matrix { return Matrix{m.Data, m.Off, m.Cols, m.Rows, m.Col, m.Row} }

// Slice returns the rows×cols part from row i and column j on.
func (m Matrix) Slice(i, j, rows, cols int) Matrix {
	if i < 0 || j < 0 || rows < 0 || cols < 0 || i+rows > m.Rows || j+cols > m.Cols {
		panic("fma: a part is larger than its matrix")
	}
	return Matrix{m.Data, m.Off + i*m.Row + j*m.Col, rows, cols, m.Row, m.Col}
}

// reverse returns m with its rows in reverse order.
func (m Matrix) reverse() Matrix {
	return Matrix{m.Data, m.Off + max(0, m.Rows-1)*m.Row, m.Rows, m.Cols, -m.Row, m.Col}
}

func (m Matrix) at(i, j int) *float64 { return &m.Data[m.Off+i*m.Row+j*m.Col] }

func (m Matrix) empty() bool { return m.Rows == 0 || m.Cols == 0 }

// span returns the first address of m and the one after its last, and the distance of its longer
// steps in numbers.
func (m Matrix) span() (lo, hi uintptr, stride int) {
	first, last := m.Off, m.Off
	for _, d := range [2]int{(m.Rows - 1) * m.Row, (m.Cols - 1) * m.Col} {
		first, last = first+min(0, d), last+max(0, d)
	}
	return uintptr(unsafe.Pointer(&m.Data[first])), uintptr(unsafe.Pointer(&m.Data[last])) + 8,
		max(m.Row, -m.Row, m.Col, -m.Col)
}

// overlap reports whether a and b share memory. Of matrices of different strides it says so where
// their ranges meet.
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
	// Both are columns c … c+w−1 of memory in rows of s: a column may be shared, and a row.
	base := min(aLo, bLo)
	width := func(m Matrix) int {
		if s == 1 || m.Col == s || m.Col == -s {
			return m.Rows
		}
		return m.Cols
	}
	aCol, bCol := int(aLo-base)/8%s, int(bLo-base)/8%s
	if aCol+width(a) > s || bCol+width(b) > s { // a row goes on into the next
		return true
	}
	return aCol < bCol+width(b) && bCol < aCol+width(a)
}

// distinct panics where the numbers that are written are among those that are read.
func distinct(c Matrix, others ...Matrix) {
	for _, m := range others {
		if overlap(c, m) {
			panic("fma: the result shares memory with what it is made of")
		}
	}
}

func shapes(ok bool) {
	if !ok {
		panic("fma: matrices of other shapes")
	}
}

// A Run says until when a computation goes on, and on how many goroutines. Its zero value goes on
// to the end, on the caller's alone.
type Run struct {
	Halt    *parallel.Halt // once it has stopped, results are of no use
	Workers int            // zero: as many as Halt lends
}

// How work is shared between goroutines: not where there are fewer products than some 10 µs take,
// as another that looks for work takes it within one or two; in parts of at most mostShare rows, or
// share columns to solve for, and three for each goroutine, so that they end together; and of at
// least leastShare, as each packs all of the other factor.
const (
	sharedProducts = 1 << 18
	mostShare      = 384
	share          = 192
	leastShare     = 48
)

// parts returns the length of the parts in which n rows or columns, with so many products in all,
// are shared between goroutines, a multiple of to; 0 if they are not.
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

// A job is what goroutines share. Its memory is used again.
type job struct {
	loop    parallel.Loop
	run     Run
	kind    kind
	lo, n   int // rows lo … lo+n−1, or n columns,
	part    int // so many at a time
	product product
	panels  *Panels
	t       *triangle
	x       Matrix
}

type kind int

const (
	rowsOfProduct kind = iota // of product
	rowsOfPanels              // of the square of panels, which go to product.c
	columnsOfX                // which t is solved for
)

var jobs = sync.Pool{New: func() any { return new(job) }}

// split does j in parts of the given length, and reports whether it did all of them.
func (r Run) split(j *job, part int) bool {
	j.run, j.part, j.loop.Halt = r, part, r.Halt
	j.loop.Run(j.n, part, max(r.Workers, r.Halt.Workers()), j)
	j.loop.Halt, j.run, j.product, j.panels, j.t, j.x = nil, Run{}, product{}, nil, nil, Matrix{}
	jobs.Put(j)
	return !r.Halt.Stopped()
}

// Do implements parallel.Task. The last rows come first: of a triangle they are the longest.
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

// work is memory for packed panels.
type work struct {
	a, b []float64
	t    triangle
	x    []float64
	tile [rows * columns]float64
}

var pool = sync.Pool{New: func() any { return new(work) }}

// room returns a slice of length n, s where that is large enough.
func room(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	return s[:n]
}

// up returns n rounded up to a multiple of to.
func up(n, to int) int { return (n + to - 1) / to * to }
