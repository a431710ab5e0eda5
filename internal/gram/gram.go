// Package gram computes the covariances of rows under a kernel, and sums of their derivatives.
// The GPs of the root package use it through their kernels.
//
// The problem is speed: N rows have N²/2 pairs, and a kernel is cheap. A job therefore divides
// the pairs into tiles (tile.go) whose intermediate results fit into the cache, and the workers
// take one tile at a time. No result depends on the number of workers.
//
//	gram.go       Kernel and the jobs: Symmetric, Cross and Grad
//	tile.go       tiles, and their squared distances by products of matrices
//	iso.go        kernels that are functions of a squared distance
//	periodic.go   the periodic kernel
//	pairs.go      one set of rows under many kernels
package gram

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Noisy holds the optional methods of pgsvi.Kernel for kernels with noise.
type Noisy interface {
	SelfCov(x []float64) float64
	GradSelf(dst, x []float64) float64
}

// Kernel is a covariance function k(x, x′) with NumParams parameters θ. Derivatives are with
// respect to θ.
type Kernel interface {
	// Cov returns k(x, y) without noise. It panics if x or y does not have the columns of the
	// kernel.
	Cov(x, y []float64) float64
	// Noisy reports whether a row has noise of its own. Self returns the variance of a row
	// including the noise.
	Noisy() bool
	Self(x []float64) float64
	// Fill stores the covariances of the pairs of t in dst, row after row.
	Fill(dst []float64, t *Tile)

	NumParams() int
	// GradSelf stores the derivatives of Self.
	GradSelf(dst, x []float64)
	// Pull adds Σ_ij w_ij ∂k(x_i, y_j)/∂θ over the pairs of t to dst. PullRows adds the sum over
	// j to row i of dst.
	Pull(dst, w []float64, t *Tile)
	PullRows(dst, w []float64, t *Tile)
}

// job is one sum or matrix, shared by its workers.
type job struct {
	k      Kernel
	x, y   blas64.General
	sym    bool           // y is x, and the job computes only pairs i ≤ j
	both   bool           // store these pairs in both triangles
	r2     []float64      // the squared distances of x and y, or nil
	out    blas64.General // the covariances, or empty
	w      mat.Symmetric  // the weights of a sum, or nil
	part   []float64      // the sum over each tile, tasks × np
	np     int
	centre []float64 // the column means of x
	loop   parallel.Loop
}

var jobs = sync.Pool{New: func() any { return new(job) }}

// newJob returns a job. It panics in the caller's goroutine if a worker would panic.
func newJob(h *parallel.Halt, k Kernel, x, y blas64.General) *job {
	j := jobs.Get().(*job)
	j.k, j.x, j.y, j.loop.Halt = k, x, y, h
	k.Cov(Row(x, 0), Row(y, 0))
	j.centre = dense.Resize(j.centre, x.Cols)
	clear(j.centre)
	for i := range x.Rows {
		for d, v := range Row(x, i) {
			j.centre[d] += v
		}
	}
	for d := range j.centre {
		j.centre[d] /= float64(x.Rows)
	}
	return j
}

func (j *job) free() {
	*j = job{part: j.part, centre: j.centre}
	jobs.Put(j)
}

// Symmetric fills the upper triangle of dst with the covariances of the rows of x, noise
// included. There must be at least one row. The result is invalid if h has stopped.
func Symmetric(h *parallel.Halt, dst blas64.General, k Kernel, x blas64.General) {
	j := newJob(h, k, x, x)
	j.out = dst
	j.symmetric()
}

// symmetric fills the upper triangle, and the lower triangle if j.both is set. It frees j.
func (j *job) symmetric() {
	j.sym = true
	j.run()
	if j.k.Noisy() {
		for i := range j.x.Rows {
			j.out.Data[i*j.out.Stride+i] = j.k.Self(Row(j.x, i))
		}
	}
	j.free()
}

// Cross stores the covariances of the rows of x and y in dst, without noise. Neither may be
// empty. The result is invalid if h has stopped.
func Cross(h *parallel.Halt, dst blas64.General, k Kernel, x, y blas64.General) {
	j := newJob(h, k, x, y)
	j.out = dst
	j.run()
	j.free()
}

// Grad stores Σ_ij w_ij ∂K_ij/∂θ over all pairs of rows of x, noise included, in dst.
func Grad(h *parallel.Halt, dst []float64, k Kernel, x blas64.General, w mat.Symmetric) {
	newJob(h, k, x, x).pull(dst, w)
}

// pull stores Σ_ij w_ij ∂K_ij/∂θ in dst and frees j.
func (j *job) pull(dst []float64, w mat.Symmetric) {
	np := len(dst)
	j.sym, j.w, j.np = true, w, np
	j.part = dense.Resize(j.part, j.tasks()*np)
	clear(j.part)
	j.run()
	clear(dst)
	for t := range j.tasks() {
		for p, v := range j.part[t*np : (t+1)*np] {
			dst[p] += v
		}
	}
	self := j.part[:np]
	for i := range j.x.Rows {
		j.k.GradSelf(self, Row(j.x, i))
		wii := w.At(i, i)
		for p, v := range self {
			dst[p] += wii * v
		}
	}
	j.free()
}

// cols returns the number of columns of tiles, and tasks the number of tiles.
func (j *job) cols() int { return (j.y.Rows + Cols - 1) / Cols }

func (j *job) tasks() int { return (j.x.Rows + Rows - 1) / Rows * j.cols() }

// run distributes the tiles among the workers.
func (j *job) run() { j.loop.Run(j.tasks(), 1, runtime.GOMAXPROCS(0), j) }

// Do implements parallel.Task. A task is a tile.
func (j *job) Do(_, task, _ int) {
	i0, j0 := task/j.cols()*Rows, task%j.cols()*Cols
	defer parallel.At(nil, func(i int) string { return fmt.Sprintf("covariances of row %d", i0+i) })
	i1, j1 := min(i0+Rows, j.x.Rows), min(j0+Cols, j.y.Rows)
	if j.sym {
		j0 = max(j0, i0)
	}
	if j0 >= j1 {
		return
	}
	t := Take()
	t.X, t.Y, t.Centre = Slice(j.x, i0, i1), Slice(j.y, j0, j1), j.centre
	t.known(j.r2, j.y.Rows, i0, j0)
	buf := t.Get(t.Len())
	if j.w == nil {
		j.k.Fill(buf, t)
		j.store(buf, i0, i1, j0, j1)
	} else {
		weights(buf, j.w, i0, i1, j0, j1)
		j.k.Pull(j.part[task*j.np:(task+1)*j.np], buf, t)
	}
	t.Free()
}

// store copies the covariances of a tile to the output of the job.
func (j *job) store(buf []float64, i0, i1, j0, j1 int) {
	for i := i0; i < i1; i++ {
		lo := j0
		if j.sym {
			lo = max(lo, i)
		}
		if lo < j1 {
			row := j.out.Data[i*j.out.Stride+lo : i*j.out.Stride+j1]
			copy(row, buf[(i-i0)*(j1-j0)+lo-j0:])
		}
	}
	if !j.both {
		return
	}
	for c := j0; c < j1; c++ {
		row := j.out.Data[c*j.out.Stride:]
		for i := i0; i < min(i1, c); i++ {
			row[i] = buf[(i-i0)*(j1-j0)+c-j0]
		}
	}
}

// weights stores the weights of the pairs i < j of a tile. They count twice.
func weights(dst []float64, w mat.Symmetric, i0, i1, j0, j1 int) {
	clear(dst)
	m := j1 - j0
	if s, ok := w.(*Weights); ok {
		s.tile(dst, i0, i1, j0, j1)
		return
	}
	for i := i0; i < i1; i++ {
		for j := max(i+1, j0); j < j1; j++ {
			dst[(i-i0)*m+j-j0] = 2 * w.At(i, j)
		}
	}
}

// Weights are the weights ½(W − aaᵀ) of N rows. Only the lower triangle of W is stored.
type Weights struct {
	N    int
	W, A []float64
}

// SymmetricDim implements mat.Symmetric.
func (s *Weights) SymmetricDim() int { return s.N }

// Dims implements mat.Matrix.
func (s *Weights) Dims() (r, c int) { return s.N, s.N }

// T implements mat.Matrix.
func (s *Weights) T() mat.Matrix { return s }

// At implements mat.Matrix.
func (s *Weights) At(i, j int) float64 {
	return 0.5 * (dense.SymmetricAt(s.W, s.N, i, j) - s.A[i]*s.A[j])
}

// tile stores twice the weights of the pairs i < j with i0 ≤ i < i1 and j0 ≤ j < j1 in dst, row
// by row. On entry dst is zero.
func (s *Weights) tile(dst []float64, i0, i1, j0, j1 int) {
	m := j1 - j0
	for j := j0; j < j1; j++ {
		row, aj := s.W[j*s.N:], s.A[j]
		for i := i0; i < min(i1, j); i++ {
			dst[(i-i0)*m+j-j0] = row[i] - s.A[i]*aj
		}
	}
}
