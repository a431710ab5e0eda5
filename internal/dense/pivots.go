package dense

import (
	"container/heap"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

const (
	pivotBatch = 64  // most rows to update at a time while looking for a pivot
	pivotBlock = 32  // all rows are updated after this number of columns
	pivotRows  = 256 // number of rows per goroutine in such an update
)

// Pivots is a Cholesky factorization K ≈ FFᵀ with complete pivoting, which stops after some
// columns (Fine and Scheinberg 2001). It computes elements of the symmetric N×N matrix K only
// when it needs them. Package sparse calls it to choose inducing inputs.
//
// The residuals K_ii − |F_i|² fall from column to column, so an earlier residual is an upper
// bound. To find the next pivot, it suffices to update the rows with the largest bounds (lazy
// evaluation, Minoux 1978). The other rows follow in blocks of columns, as products of matrices.
//
// The result has the same bits as a loop over all rows for each column, on any number of cores.
// With from = q − q mod pivotBlock, column q of row i is (k_iq − Σ_{c<from} f_ic f_qc −
// Σ_{from≤c<q} f_ic f_qc)/f_qq. The first sum is in the order of fma.Gemm. The second sum
// consists of fused multiplications and additions, one after the other.
type Pivots struct {
	Halt *parallel.Halt
	Rank int // largest number of columns
	// Columns stores K_pi in dst, with a row for each p of pivots and a column for each i of
	// rows. The bits of an element must not depend on the other arguments. Several goroutines
	// call Columns.
	Columns func(dst []float64, pivots, rows []int)
	// Enough reports whether the residuals left of all rows are small enough to stop. Nil means
	// never.
	Enough func(left []float64) bool
	// A residual of at most Negligible·K_ii counts as zero, because it is only rounding. A
	// residual below −NotPosDef·K_ii is an error.
	Negligible, NotPosDef float64
}

// A PivotError reports an element that is not finite, or that no positive semidefinite matrix can
// have.
type PivotError struct {
	Row, Pivot int
	Cov, Left  float64 // K_ij, and the residual of K_ii after it
	Rank       int     // columns before it
}

func (e *PivotError) Error() string {
	return fmt.Sprintf("element %d, %d is %v and leaves %v of the diagonal after %d columns",
		e.Pivot, e.Row, e.Cov, e.Left, e.Rank)
}

// Factor returns the pivots and the rows of F, an N×len(pivots) matrix, for the matrix with
// diagonal diag. Row p_j of F equals row j of the Cholesky factor of the pivots up to column j,
// and contains rounding errors after it. F has fewer columns than Rank if all residuals are zero
// or Enough returns true. The error is a *PivotError, or the error of Halt.
func (o *Pivots) Factor(diag []float64) (pivots []int, f []float64, err error) {
	n, rank := len(diag), min(o.Rank, len(diag))
	s := &pivoting{Pivots: o, rank: rank, diag: diag, left: slices.Clone(diag),
		f: make([]float64, n*rank), age: make([]int, n), rows: make([]int, n),
		last:   make([]float64, pivotBlock*rank),
		recent: make([][]float64, runtime.GOMAXPROCS(0))}
	for i := range s.rows {
		s.rows[i] = i
	}
	s.queue = slices.Clone(s.rows)
	heap.Init(s)
	if o.Enough != nil {
		s.then = slices.Clone(diag)
	}
	m := -1
	for m < 0 && len(s.pivots) < rank {
		p, err := s.largest()
		if err != nil {
			return nil, nil, err
		}
		if s.left[p] == 0 {
			break
		}
		j := len(s.pivots)
		s.f[p*rank+j], s.left[p], s.age[p] = math.Sqrt(s.left[p]), 0, j+1
		s.pivots = append(s.pivots, p)
		copy(s.last[j%pivotBlock*rank:], s.f[p*rank:p*rank+j+1])
		heap.Fix(s, 0)
		if (j+1)%pivotBlock == 0 {
			if err := s.all(); err != nil {
				return nil, nil, err
			}
			m = s.enough()
		}
	}
	if m < 0 {
		if err := s.all(); err != nil {
			return nil, nil, err
		}
		if m = s.enough(); m < 0 {
			m = len(s.pivots)
		}
	}
	w := max(1, m)
	for i := range n { // shorten the rows to their final length
		copy(s.f[i*w:(i+1)*w], s.f[i*rank:i*rank+w])
	}
	f = s.f[:n*w]
	if 2*w < rank {
		f = slices.Clone(f) // release the rest of the memory
	}
	return s.pivots[:m], f, nil
}

// pivoting is a factorization in progress. It is a heap of rows. The row with the largest known
// residual is on top, and the first row wins a tie.
type pivoting struct {
	*Pivots
	rank   int
	pivots []int
	diag   []float64
	left   []float64 // residuals
	age    []int     // number of columns of F that a row has and that its residual includes
	f      []float64 // N×rank
	last   []float64 // rows of F of the pivots since the last multiple of pivotBlock
	rows   []int     // 0 … N−1
	queue  []int
	batch  []int
	packed []float64   // rows of F for batch
	recent [][]float64 // for each goroutine, the columns of F that it computes
	then   []float64   // residuals after the first known columns, for Enough
	known  int
}

func (s *pivoting) Len() int { return len(s.queue) }

func (s *pivoting) Less(a, b int) bool {
	i, j := s.queue[a], s.queue[b]
	return s.left[i] > s.left[j] || s.left[i] == s.left[j] && i < j
}

func (s *pivoting) Swap(a, b int) { s.queue[a], s.queue[b] = s.queue[b], s.queue[a] }

func (s *pivoting) Push(x any) { s.queue = append(s.queue, x.(int)) }

func (s *pivoting) Pop() any {
	last := len(s.queue) - 1
	i := s.queue[last]
	s.queue = s.queue[:last]
	return i
}

// largest returns the row with the largest residual.
func (s *pivoting) largest() (int, error) {
	j := len(s.pivots)
	touched := 0
	for size := 1; s.age[s.queue[0]] < j; size = min(2*size, pivotBatch) {
		if touched > len(s.rows)/8 { // a full update is as fast
			if err := s.all(); err != nil {
				return 0, err
			}
			break
		}
		s.batch = s.batch[:0]
		for len(s.batch) < size && len(s.queue) > 0 && s.age[s.queue[0]] < j {
			s.batch = append(s.batch, heap.Pop(s).(int))
		}
		touched += len(s.batch)
		s.packed = Resize(s.packed, len(s.batch)*s.rank)
		for a, i := range s.batch {
			copy(s.packed[a*s.rank:], s.f[i*s.rank:i*s.rank+j])
		}
		if err := s.update(s.batch, s.packed, &s.recent[0]); err != nil {
			return 0, err
		}
		for a, i := range s.batch {
			copy(s.f[i*s.rank:i*s.rank+j], s.packed[a*s.rank:])
			heap.Push(s, i)
		}
		if err := s.Halt.Err(); err != nil {
			return 0, err
		}
	}
	return s.queue[0], nil
}

// all updates all rows.
func (s *pivoting) all() error {
	n := len(s.rows)
	errs := make([]error, (n+pivotRows-1)/pivotRows)
	loop := parallel.Loop{Halt: s.Halt}
	loop.Run(n, pivotRows, len(s.recent), parallel.Func(func(worker, lo, hi int) {
		errs[lo/pivotRows] = s.update(s.rows[lo:hi], s.f[lo*s.rank:hi*s.rank], &s.recent[worker])
	}))
	for _, err := range append(errs, s.Halt.Err()) {
		if err != nil {
			return err
		}
	}
	heap.Init(s)
	return nil
}

// update updates the given rows and their rows of F, which follow each other in f. It resizes
// scratch.
func (s *pivoting) update(rows []int, f []float64, scratch *[]float64) error {
	n, j := len(rows), len(s.pivots)
	first := j
	for _, i := range rows {
		first = min(first, s.age[i])
	}
	if first == j {
		return nil
	}
	// Row c−from of g is column c of F, for c ≥ from.
	from := first - first%pivotBlock
	*scratch = Resize(*scratch, (j-from)*n)
	g := *scratch
	for c := from; c < first; c++ {
		for a := range rows {
			g[(c-from)*n+a] = f[a*s.rank+c]
		}
	}
	g, known := g[(first-from)*n:], g
	s.Columns(g, s.pivots[first:j], rows)
	for e, cov := range g {
		if i, q := rows[e%n], first+e/n; s.age[i] <= q && (math.IsNaN(cov) || math.IsInf(cov, 0)) {
			return &PivotError{Row: i, Pivot: s.pivots[q], Cov: cov, Left: math.NaN(), Rank: q}
		}
	}
	l := fma.Of(s.last, pivotBlock, s.rank, s.rank)
	fma.Gemm(fma.Run{Workers: 1}, -1, l.Slice(first-from, 0, j-first, from),
		fma.Of(f, n, s.rank, s.rank).Slice(0, 0, n, from).T(), fma.Of(g, j-first, n, n))
	for q := first; q < j; q++ {
		fp, fq := s.last[(q-from)*s.rank:][:q+1], known[(q-from)*n:][:n]
		for c := from; c < q; c++ {
			fma.Axpy(-fp[c], known[(c-from)*n:][:n], fq)
		}
		fma.Divide(fq, fp[q])
		for a, i := range rows {
			if s.age[i] > q {
				fq[a] = s.f[i*s.rank+q] // for a pivot it is a square root
				continue
			}
			l := s.left[i] - float64(fq[a]*fq[a])
			if l < -s.NotPosDef*s.diag[i] || math.IsNaN(l) {
				var cov [1]float64
				s.Columns(cov[:], s.pivots[q:q+1], rows[a:a+1])
				return &PivotError{Row: i, Pivot: s.pivots[q], Cov: cov[0], Left: l, Rank: q}
			}
			s.left[i], s.age[i] = s.rest(l, i), q+1
		}
	}
	fma.Transpose(fma.Of(f, n, s.rank, s.rank).Slice(0, first, n, j-first),
		fma.Of(g, j-first, n, n))
	return nil
}

// rest returns the residual l of row i, or 0 if l is only rounding.
func (s *pivoting) rest(l float64, i int) float64 {
	if l <= s.Negligible*s.diag[i] {
		return 0
	}
	return l
}

// enough returns the number of columns after which Enough returned true, or −1 if it never did.
// All rows must be up to date.
func (s *pivoting) enough() int {
	if s.Enough == nil {
		return -1
	}
	if !s.Enough(s.left) { // earlier columns left more
		copy(s.then, s.left)
		s.known = len(s.pivots)
		return -1
	}
	for ; s.known < len(s.pivots); s.known++ {
		if s.Enough(s.then) {
			return s.known
		}
		for i, l := range s.then {
			x := s.f[i*s.rank+s.known]
			s.then[i] = s.rest(l-float64(x*x), i)
		}
		s.then[s.pivots[s.known]] = 0
	}
	return -1
}
