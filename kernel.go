package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Kernel is an immutable covariance function k(x, x′). It must be symmetric and positive
// semi-definite on any finite set of points; only pairs of points are checked.
//
// The kernels of this package are plain values whose fields are on the natural scale. A zero
// field means 1, so that the zero value of each is the unit kernel. Slices inside a kernel
// (Lengths, Scales, the elements of Sum and Product) must not be changed once the kernel is in
// use. Every kernel is safe for concurrent use.
//
// To write a function of a scaled distance, implement a Profile; Iso makes a kernel of it that is
// as fast as Matern52. Any other type needs only these four methods. Gram, CrossCov, PriorVar and
// GramGrad then call them pair by pair, from several goroutines. A panic of Cov there is not
// recovered, except at the first pair. Noisy is optional. So is a method Dim() int for a kernel
// whose parameters fix the number of columns of the data: models return an error for data with
// another number, unless Dim is 0.
type Kernel interface {
	// Cov returns k(x, x′). It panics if x and y differ in length, or do not
	// have the length of the kernel's per-dimension parameters.
	Cov(x, y []float64) float64
	// Params returns the hyper-parameters in a fixed order, with their names and ranges. A zero
	// field that means a default is returned as that default. The caller owns the slice. Models
	// return an error for a parameter outside its range.
	Params() []Param
	// WithParams returns a copy of the kernel with the given values of its hyper-parameters, in
	// the order of Params. It does not keep values. It panics if their number is wrong.
	WithParams(values []float64) Kernel
	// Grad returns k(x, x′) and stores its derivatives by the hyper-parameters θ in dst: ∂k/∂log
	// θ if Min ≥ 0, and ∂k/∂θ otherwise. It panics where Cov does, and if dst is not as long as
	// Params.
	Grad(dst, x, y []float64) float64
}

// Noisy is an optional interface of kernels with noise, such as White: a part that counts only
// between a training datum and itself. Gram and GramGrad use it for the diagonal. Cov, CrossCov
// and PriorVar leave that part out, even for equal rows, as they describe the noise-free latent
// function.
type Noisy interface {
	Kernel
	// SelfCov returns the diagonal entry of the training Gram matrix at x.
	SelfCov(x []float64) float64
	// GradSelf returns SelfCov(x) and stores its derivatives in dst, as Grad does.
	GradSelf(dst, x []float64) float64
}

// dimensional is an optional interface of kernels whose parameters fix the number of columns.
type dimensional interface {
	Kernel
	// Dim returns the number of columns, or 0 if any number will do.
	Dim() int
}

// kernelName is the name of k in messages and in the names of parameters: what it
// is registered as, without the package. Without a name, an Iso is named after its
// Profile, and any other kernel after its type.
func kernelName(k Kernel) string {
	name, registered := savedTypes.Name(k)
	if !registered {
		name = fmt.Sprintf("%T", k)
		own, _ := asNative(k)
		if p, ok := own.(profiled); ok {
			name = p.profileName()
		}
	}
	name, _, _ = strings.Cut(name, "[") // the parameters of a generic type
	return name[strings.LastIndex(name, ".")+1:]
}

// checkKernel reports every violation in k at once, for data of d columns: a nil
// kernel, a parameter out of range, an empty Sum or Product (wrapping ErrParam),
// and parameters for another number of columns (wrapping ErrShape).
func checkKernel(k Kernel, d int) error { return checkKernelPart("", k, d) }

// checkKernelPart is checkKernel of a part, with the path to it, such as "Sum[1].".
func checkKernelPart(path string, k Kernel, d int) error {
	if k == nil {
		return fmt.Errorf("pgsvi: %s is nil: %w", strings.TrimSuffix(path+"Kernel", ".Kernel"), ErrParam)
	}
	name := path + kernelName(k)
	parts, composite := kernelParts(k)
	if !composite {
		err := checkParams(name, k.Params())
		if f, ok := k.(dimensional); ok && f.Dim() != 0 && f.Dim() != d {
			err = errors.Join(err, fmt.Errorf("pgsvi: %s is for %d columns, the data have %d: %w", name, f.Dim(), d, ErrShape))
		}
		return err
	}
	if len(parts) == 0 {
		return fmt.Errorf("pgsvi: %s of no kernels: %w", name, ErrParam)
	}
	var errs []error
	for i, part := range parts {
		errs = append(errs, checkKernelPart(fmt.Sprintf("%s[%d].", name, i), part, d))
	}
	return errors.Join(errs...)
}

// kernelOne returns v, or 1 where v is the zero default.
func kernelOne(v float64) float64 {
	if v == 0 {
		return 1
	}
	return v
}

// kernelDst returns dst, or a new slice of length n if dst is nil.
func kernelDst(dst []float64, n int) []float64 {
	if dst == nil {
		return make([]float64, n)
	}
	kernelLen(dst, n)
	return dst
}

func kernelLen(s []float64, n int) {
	if len(s) != n {
		panic(fmt.Sprintf("pgsvi: kernel: slice of length %d, want %d", len(s), n))
	}
}

// numParams returns the number of parameters of k, without a list of them where
// it is a kernel of this package.
func numParams(k Kernel) int {
	if t, ok := asNative(k); ok {
		return t.numParams()
	}
	return len(k.Params())
}

// kernelSelf returns the diagonal entry of the training Gram matrix at x.
func kernelSelf(k Kernel, x []float64) float64 {
	if n, ok := k.(Noisy); ok {
		return n.SelfCov(x)
	}
	return k.Cov(x, x)
}

// kernelGradSelf is Grad of that entry; the second x is not looked at.
func kernelGradSelf(k Kernel, dst, x, _ []float64) float64 {
	if n, ok := k.(Noisy); ok {
		return n.GradSelf(dst, x)
	}
	return k.Grad(dst, x, x)
}

// native is a kernel of this package.
type native interface {
	Kernel
	// is reports whether k is of this very type. A user's type that embeds one of
	// these, and has a Cov of its own, has the unexported methods, too.
	is(k Kernel) bool
	// numParams is the length of Params.
	numParams() int
}

// asNative returns k as a kernel of this package, unless it only embeds one.
func asNative(k Kernel) (own native, ok bool) {
	if own, ok = k.(native); ok && own.is(k) {
		return own, true
	}
	return nil, false
}

// isType reports whether k is a K or a pointer to one.
func isType[K Kernel](k Kernel) bool {
	switch any(k).(type) {
	case K, *K:
		return true
	}
	return false
}

// profiled is an Iso, whatever its Profile.
type profiled interface {
	// profileName is the type of the Profile.
	profileName() string
}

// composite is a kernel made of others: a Sum or a Product.
type composite interface{ parts() []Kernel }

// kernelParts returns the parts of a composite kernel; ok is false for any other.
func kernelParts(k Kernel) (parts []Kernel, ok bool) {
	own, _ := asNative(k)
	c, ok := own.(composite)
	if !ok {
		return nil, false
	}
	return c.parts(), true
}

// farAway is a distance, in units of 1 + |x|, far above any length.
const farAway = 1e12

// vanishingSD returns the standard deviation at x of a kernel that is stationary and goes to 0
// with the distance, as far as tests show, and +Inf for others. It returns +Inf for a caller's
// own kernel, which may be undefined far away.
func vanishingSD(k Kernel, x []float64) float64 {
	away := slices.Clone(x)
	for i, v := range x {
		away[i] = v + farAway*(1+math.Abs(v))
	}
	v := k.Cov(x, x)
	if !allNative(k) || !(v > 0) {
		return math.Inf(1)
	}
	if stationary := math.Abs(k.Cov(away, away)-v) <= 1e-9*v; !stationary || !(k.Cov(x, away) <= 1e-9*v) {
		return math.Inf(1)
	}
	return math.Sqrt(v)
}

// allNative reports whether k and its parts are kernels of this package.
func allNative(k Kernel) bool {
	if parts, ok := kernelParts(k); ok {
		return !slices.ContainsFunc(parts, func(part Kernel) bool { return !allNative(part) })
	}
	_, ok := asNative(k)
	return ok
}

// scaleParams are the parameters of one scale, or of a list of them, one per
// column, that replaces it.
func scaleParams(name string, one float64, list []float64) []Param {
	if len(list) == 0 {
		return []Param{{name, kernelOne(one), 0, math.Inf(1)}}
	}
	params := make([]Param, len(list))
	for d, v := range list {
		params[d] = Param{fmt.Sprintf("%s[%d]", name, d), kernelOne(v), 0, math.Inf(1)}
	}
	return params
}

// withScales are the fields of scaleParams with the first of values.
func withScales(one float64, list, values []float64) (float64, []float64) {
	if len(list) == 0 {
		return values[0], nil
	}
	return one, append([]float64(nil), values[:len(list)]...)
}

// Gram stores the training covariance (kernel matrix) K(X, X), N×N for the N rows of x, in dst
// and returns it. A nil dst allocates and an empty one is resized. Only the upper triangle is
// written. The diagonal includes the noise of kernels that are Noisy.
//
// Every entry agrees with k.Cov to a relative error of about 1e-12. Equal rows give exactly the
// entry of the diagonal without noise. The result does not depend on GOMAXPROCS. Rows that are
// not finite give entries that are NaN or 0.
//
// It panics if x is empty, if dst has another size, or if k.Cov panics. It panics with an error
// that wraps ErrMemory if it would allocate more than the limit; allocate dst yourself to avoid
// that.
func Gram(dst *mat.SymDense, k Kernel, x *mat.Dense) *mat.SymDense {
	n, _ := x.Dims()
	if dst == nil {
		dst = new(mat.SymDense)
	}
	if dst.IsEmpty() {
		kernelNotEmpty(n)
		mustMemory(0, memory.Bytes(1, n, n), fmt.Sprintf("the covariance of %d rows", n), "give Gram a matrix to store it in, or raise the limit (GOMEMLIMIT)")
		dst.ReuseAsSym(n)
	}
	out := dst.RawSymmetric()
	kernelSize(out.N, out.N, n, n)
	j := kernelNewJob(k, x, x)
	j.out = blas64.General{Rows: out.N, Cols: out.N, Stride: out.Stride, Data: out.Data}
	j.gram(nil)
	return dst
}

// gram fills the upper triangle, and if j.both the lower one, with the covariances of the rows, and
// gives j back.
func (j *kernelJob) gram(h *parallel.Halt) {
	j.sym, j.loop.Halt = true, h
	j.run()
	if _, ok := j.k.(Noisy); ok {
		for i := range j.x.Rows {
			j.out.Data[i*j.out.Stride+i] = kernelSelf(j.k, kernelRow(j.x, i))
		}
	}
	j.free()
}

// CrossCov stores the cross-covariance K(X, Y), N×M for the N rows of x and the M rows of y, in
// dst and returns it. A nil dst allocates and an empty one is resized. With the training rows as
// x, the columns of the result suit a triangular solve from the left. Noise is left out; see
// Noisy.
//
// The accuracy is that of Gram. An entry depends only on x and its own row of y, to the last bit,
// so that predictions may be split into batches. It panics if x or y is empty, if their numbers
// of columns differ, if dst has another size, or if k.Cov panics. It panics with an error that
// wraps ErrMemory if it would allocate more than the limit. dst must not share memory with x or
// y.
func CrossCov(dst *mat.Dense, k Kernel, x, y *mat.Dense) *mat.Dense {
	return crossCovUntil(nil, dst, k, x, y)
}

// crossCovUntil is CrossCov, which is of no use where h has stopped.
func crossCovUntil(h *parallel.Halt, dst *mat.Dense, k Kernel, x, y *mat.Dense) *mat.Dense {
	n, _ := x.Dims()
	m, _ := y.Dims()
	if dst == nil {
		dst = new(mat.Dense)
	}
	if dst.IsEmpty() {
		kernelNotEmpty(min(n, m))
		mustMemory(0, memory.Bytes(1, n, m), fmt.Sprintf("the covariance of %d and %d rows", n, m), "take fewer rows at a time, or raise the limit (GOMEMLIMIT)")
		dst.ReuseAs(n, m)
	}
	j := kernelNewJob(k, x, y)
	j.out = dst.RawMatrix()
	j.loop.Halt = h
	kernelSize(j.out.Rows, j.out.Cols, n, m)
	j.run()
	j.free()
	return dst
}

// PriorVar stores the prior variances of the latent function, k(x_i, x_i) without noise, in dst
// and returns it; nil allocates. It panics if the length of dst is not the number of rows, or if
// k.Cov panics.
func PriorVar(dst []float64, k Kernel, x *mat.Dense) []float64 {
	n, _ := x.Dims()
	dst = kernelDst(dst, n)
	raw := x.RawMatrix()
	for i := range dst {
		row := kernelRow(raw, i)
		dst[i] = k.Cov(row, row)
	}
	return dst
}

// GramGrad stores Σ_ij w_ij ∂K_ij/∂θ_p for the training Gram matrix K, including noise, in dst of
// length P and returns it; nil allocates. As in Kernel.Grad, the derivatives are in log θ_p if
// its Min ≥ 0. The sum is over all N² pairs. With w = ∂f/∂K, counting both triangles, it is the
// gradient of f by the P parameters, in one pass over the pairs and without storing the
// derivatives.
//
// The sum has an order that does not depend on GOMAXPROCS. It panics if x is empty, if w is not
// N×N, if dst is neither nil nor of length P, or if k.Grad panics.
func GramGrad(dst []float64, k Kernel, x *mat.Dense, w mat.Symmetric) []float64 {
	np := numParams(k)
	dst = kernelDst(dst, np)
	n, _ := x.Dims()
	kernelSize(w.SymmetricDim(), w.SymmetricDim(), n, n)
	j := kernelNewJob(k, x, x)
	j.pullAll(dst, w)
	return dst
}

// pullAll stores Σ_ij w_ij ∂K_ij/∂θ_p in dst, and gives j back.
func (j *kernelJob) pullAll(dst []float64, w mat.Symmetric) {
	np, k := len(dst), j.k
	j.sym, j.w, j.np = true, w, np
	j.part = kernelGrow(j.part, j.tasks()*np)
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
		row := kernelRow(j.x, i)
		kernelGradSelf(k, self, row, row)
		wii := w.At(i, i)
		for p, v := range self {
			dst[p] += wii * v
		}
	}
	j.free()
}

func kernelNotEmpty(n int) {
	if n == 0 {
		panic("pgsvi: kernel: matrix without rows")
	}
}

func kernelSize(r, c, n, m int) {
	if r != n || c != m {
		panic(fmt.Sprintf("pgsvi: kernel: %d×%d matrix, want %d×%d", r, c, n, m))
	}
}

func kernelRow(x blas64.General, i int) []float64 {
	return x.Data[i*x.Stride : i*x.Stride+x.Cols]
}

func kernelGrow(s []float64, n int) []float64 {
	return slices.Grow(s[:0], n)[:n]
}

// Covariances are computed in tiles of at most kernelRows × kernelCols pairs, so
// that all of a tile's intermediate results stay in the cache. No entry depends
// on the tile it is in.
const (
	kernelRows = 64
	kernelCols = 128
)

// kernelJob is one call of Gram, CrossCov or GramGrad, shared by its workers.
type kernelJob struct {
	k      Kernel
	x, y   blas64.General
	sym    bool           // y is x, and only pairs i ≤ j are wanted,
	both   bool           // each of which is stored in both triangles
	r2     []float64      // the squared distances of x and y, if they are at hand
	out    blas64.General // the covariances, or
	w      mat.Symmetric  // the weights, and
	part   []float64      // the sum over each tile, tasks × np
	np     int
	centre []float64 // the column means of x
	loop   parallel.Loop
}

var (
	kernelJobs  = sync.Pool{New: func() any { return new(kernelJob) }}
	kernelTiles = sync.Pool{New: func() any { return new(kernelTile) }}
)

// kernelNewJob checks what can make a worker panic, in the caller's goroutine.
func kernelNewJob(k Kernel, x, y *mat.Dense) *kernelJob {
	j := kernelJobs.Get().(*kernelJob)
	j.k, j.x, j.y = k, x.RawMatrix(), y.RawMatrix()
	kernelNotEmpty(min(j.x.Rows, j.y.Rows))
	k.Cov(kernelRow(j.x, 0), kernelRow(j.y, 0))
	j.centre = kernelGrow(j.centre, j.x.Cols)
	clear(j.centre)
	for i := range j.x.Rows {
		for d, v := range kernelRow(j.x, i) {
			j.centre[d] += v
		}
	}
	for d := range j.centre {
		j.centre[d] /= float64(j.x.Rows)
	}
	return j
}

func (j *kernelJob) free() {
	*j = kernelJob{part: j.part, centre: j.centre}
	kernelJobs.Put(j)
}

// cols returns the number of columns of tiles, tasks the number of tiles.
func (j *kernelJob) cols() int { return (j.y.Rows + kernelCols - 1) / kernelCols }

func (j *kernelJob) tasks() int { return (j.x.Rows + kernelRows - 1) / kernelRows * j.cols() }

// run deals the tiles out to the workers.
func (j *kernelJob) run() {
	j.loop.Run(j.tasks(), 1, runtime.GOMAXPROCS(0), j)
}

// Do implements parallel.Task: one tile.
func (j *kernelJob) Do(_, task, _ int) {
	t := kernelTiles.Get().(*kernelTile)
	t.centre = j.centre
	i0, j0 := task/j.cols()*kernelRows, task%j.cols()*kernelCols
	defer parallel.At(nil, func(i int) string { return fmt.Sprintf("covariances of row %d", i0+i) })
	i1, j1 := min(i0+kernelRows, j.x.Rows), min(j0+kernelCols, j.y.Rows)
	if j.sym {
		j0 = max(j0, i0)
	}
	if j0 < j1 {
		t.x, t.y = kernelSlice(j.x, i0, i1), kernelSlice(j.y, j0, j1)
		t.known(j.r2, j.y.Rows, i0, j0)
		buf := t.get(t.len())
		if j.w == nil {
			kernelFill(j.k, buf, t)
			for i := i0; i < i1; i++ {
				lo := j0
				if j.sym {
					lo = max(lo, i)
				}
				if lo < j1 {
					copy(j.out.Data[i*j.out.Stride+lo:i*j.out.Stride+j1], buf[(i-i0)*(j1-j0)+lo-j0:])
				}
			}
			if j.both {
				for c := j0; c < j1; c++ {
					row := j.out.Data[c*j.out.Stride:]
					for i := i0; i < min(i1, c); i++ {
						row[i] = buf[(i-i0)*(j1-j0)+c-j0]
					}
				}
			}
		} else {
			kernelWeights(buf, j.w, i0, i1, j0, j1)
			kernelPull(j.k, j.part[task*j.np:(task+1)*j.np], buf, t)
		}
	}
	t.x, t.y, t.centre = blas64.General{}, blas64.General{}, nil
	t.known(nil, 0, 0, 0)
	t.free()
}

func kernelSlice(x blas64.General, lo, hi int) blas64.General {
	x.Data = x.Data[lo*x.Stride : (hi-1)*x.Stride+x.Cols]
	x.Rows = hi - lo
	return x
}

// tiledWeights are weights that are collected a tile at a time.
type tiledWeights interface {
	mat.Symmetric
	// tile stores twice the weights of the pairs i < j with i0 ≤ i < i1 and j0 ≤ j < j1 in dst,
	// which is clear, row after row.
	tile(dst []float64, i0, i1, j0, j1 int)
}

// kernelWeights collects the weights of the pairs i < j, which count twice.
func kernelWeights(dst []float64, w mat.Symmetric, i0, i1, j0, j1 int) {
	clear(dst)
	m := j1 - j0
	if tw, ok := w.(tiledWeights); ok {
		tw.tile(dst, i0, i1, j0, j1)
		return
	}
	for i := i0; i < i1; i++ {
		for j := max(i+1, j0); j < j1; j++ {
			dst[(i-i0)*m+j-j0] = 2 * w.At(i, j)
		}
	}
}

// kernelTile is one tile: some rows of X, some rows of Y, and scratch memory
// that is handed out like a stack.
type kernelTile struct {
	x, y blas64.General
	r2   blas64.General // the squared distances of its pairs, if they are at hand
	// of coordinates in which products of matrices make distances; nil for differences
	centre  []float64
	bufs    [][]float64
	top     int
	profile any // the memory of shapeOf
}

func (t *kernelTile) len() int { return t.x.Rows * t.y.Rows }

// free gives the tile back.
func (t *kernelTile) free() {
	t.top = 0
	kernelTiles.Put(t)
}

// get returns scratch with unspecified contents; resetting top gives it back.
func (t *kernelTile) get(n int) []float64 {
	if t.top == len(t.bufs) {
		t.bufs = append(t.bufs, nil)
	}
	t.bufs[t.top] = kernelGrow(t.bufs[t.top], n)
	t.top++
	return t.bufs[t.top-1]
}

// known tells the tile of the squared distances r2 of its pairs, the rows of which have so many
// columns and of which the first is (i, j).
func (t *kernelTile) known(r2 []float64, cols, i, j int) {
	if t.r2 = (blas64.General{}); r2 != nil {
		t.r2 = blas64.General{Rows: t.x.Rows, Cols: t.y.Rows, Stride: cols, Data: r2[i*cols+j:]}
	}
}

// tiled is a kernel that is computed a tile at a time.
type tiled interface {
	native
	// fill stores the covariances of the tile in dst, row after row.
	fill(dst []float64, t *kernelTile)
	// pull adds Σ w ∂k/∂θ, with derivatives as in Grad, over the pairs of the tile
	// to dst.
	pull(dst, w []float64, t *kernelTile)
}

// asTiled returns k as a tiled kernel, unless it only embeds one.
func asTiled(k Kernel) (own tiled, ok bool) {
	if n, ok := asNative(k); ok {
		own, ok = n.(tiled)
		return own, ok
	}
	return nil, false
}

// kernelFill stores the covariances of the tile in dst, row after row.
func kernelFill(k Kernel, dst []float64, t *kernelTile) {
	mark := t.top
	if own, ok := asTiled(k); ok {
		own.fill(dst, t)
	} else {
		fillPairs(k, dst, t)
	}
	t.top = mark
}

// fillPairs is fill, pair by pair.
func fillPairs(k Kernel, dst []float64, t *kernelTile) {
	var i int
	defer parallel.At(&i, nil)
	for i = range t.x.Rows {
		for j := range t.y.Rows {
			dst[i*t.y.Rows+j] = k.Cov(kernelRow(t.x, i), kernelRow(t.y, j))
		}
	}
}

// kernelPull adds Σ w ∂k/∂θ over the pairs of the tile to dst.
func kernelPull(k Kernel, dst, w []float64, t *kernelTile) {
	mark := t.top
	if own, ok := asTiled(k); ok {
		own.pull(dst, w, t)
	} else {
		pullPairs(k, dst, w, t)
	}
	t.top = mark
}

// pullPairs is pull, pair by pair.
func pullPairs[K Kernel](k K, dst, w []float64, t *kernelTile) {
	grad := t.get(len(dst))
	for i := range t.x.Rows {
		for j := range t.y.Rows {
			wij := w[i*t.y.Rows+j]
			if wij == 0 {
				continue
			}
			k.Grad(grad, kernelRow(t.x, i), kernelRow(t.y, j))
			for p, v := range grad {
				dst[p] += wij * v
			}
		}
	}
}

// tileMetric is a squared distance r².
type tileMetric interface {
	// dist2 returns r² by differences: free of cancellation, and exactly zero for
	// equal arguments.
	dist2(x, y []float64) float64
	// features returns the number of coordinates in which r² is a plain squared
	// distance, or 0 where dist2 is faster than the detour over them.
	features(d int) int
	// embed stores the coordinates of x, which may be taken from centre, in every
	// inc-th element of dst.
	embed(dst []float64, inc int, x, centre []float64)
	// columns stores the dist2 of x to the points whose d-th coordinates are those in the d-th part
	// of yt, one for each of dst, to the same bits. It reports whether that is faster than one pair
	// at a time, and otherwise does nothing.
	columns(dst, x, yt []float64) bool
}

// fillDist2 stores r² of every pair of the tile in dst.
//
// It is |a|² + |b|² − 2aᵀb in coordinates a, b relative to the mean of X, one
// matrix product; where cancellation or large coordinates would show in k it is
// computed anew, by differences. With u = 2⁻⁵³ the rounding error ε of the former
// stays below (2√D + 8) u (|a|² + |b|²) unless errors conspire, and the relative
// error of k below 0.6 ε max(1, 1/r), whichever the profile.
func fillDist2[M tileMetric](k M, dst []float64, t *kernelTile) {
	n, m := t.x.Rows, t.y.Rows
	dim := k.features(t.x.Cols)
	if dim == 0 || t.centre == nil {
		cols := t.x.Cols
		yt := t.get(cols * m)
		for j := range m {
			for d, v := range kernelRow(t.y, j) {
				yt[d*m+j] = v
			}
		}
		ok := true
		for i := 0; i < n && ok; i++ {
			ok = k.columns(dst[i*m:(i+1)*m], kernelRow(t.x, i), yt)
		}
		if t.top--; ok {
			return
		}
	}
	if dim == 0 {
		for i := range n {
			for j := range m {
				dst[i*m+j] = k.dist2(kernelRow(t.x, i), kernelRow(t.y, j))
			}
		}
		return
	}
	mark := t.top
	na, nb := fillProducts(k, dst, t, dim)
	const tol = 1.5e-12
	c := (2*math.Sqrt(float64(dim)) + 8) * 0x1p-53 / tol
	for i := range n {
		row := dst[i*m : (i+1)*m]
		for j, ab := range row {
			norms := na[i] + nb[j]
			r2 := norms + ab
			// ε ≤ tol and ε ≤ tol·r, with ε = tol·c·norms; NaN fails.
			if c*norms <= 1 && r2 > norms*(1e-6+c*c*norms) {
				row[j] = r2
			} else {
				row[j] = k.dist2(kernelRow(t.x, i), kernelRow(t.y, j))
			}
		}
	}
	t.top = mark
}

// fillProducts stores −2aᵀb of every pair of the tile in dst, in coordinates of so many features,
// and returns all |a|² and all |b|², in memory of the tile.
func fillProducts[M tileMetric](k M, dst []float64, t *kernelTile, dim int) (na, nb []float64) {
	n, m := t.x.Rows, t.y.Rows
	a, bt, na, nb := t.get(n*dim), t.get(dim*m), t.get(n), t.get(m)
	for i := range n {
		row := a[i*dim : (i+1)*dim]
		k.embed(row, 1, kernelRow(t.x, i), t.centre)
		na[i] = 0
		for _, v := range row {
			na[i] += v * v
		}
	}
	for j := range m {
		k.embed(bt[j:], m, kernelRow(t.y, j), t.centre)
	}
	clear(nb)
	for d := range dim {
		for j, v := range bt[d*m : (d+1)*m] {
			nb[j] += v * v
		}
	}
	// The sum over the features is taken in one order whatever n and m are, so that an entry has
	// the same bits in every tile.
	dense.Gemm(blas.NoTrans, blas.NoTrans, -2, dense.General(a, n, dim), dense.General(bt, dim, m), 0, dense.General(dst, n, m))
	return na, nb
}

// kernelGemm stores α A Bᵀ in dst, n×m, given A, n×dim, and B transposed. In this form gonum sums
// over the features in order whatever n and m are, and rounds each product as Cov does, so that an
// entry has the bits of Cov in every tile. At the size of a tile Gemm is serial.
func kernelGemm(alpha float64, dst, a, bt []float64, n, m, dim int) {
	blas64.Gemm(blas.NoTrans, blas.NoTrans, alpha,
		blas64.General{Rows: n, Cols: dim, Stride: dim, Data: a},
		blas64.General{Rows: dim, Cols: m, Stride: m, Data: bt},
		0, blas64.General{Rows: n, Cols: m, Stride: m, Data: dst})
}

// Constant is the kernel k(x, x′) = Scale² of an unknown offset with standard deviation Scale;
// zero means 1. Its parameter is Scale.
type Constant struct {
	Scale float64
}

// Cov implements Kernel.
func (k Constant) Cov(x, y []float64) float64 {
	kernelLen(y, len(x))
	s := kernelOne(k.Scale)
	return s * s
}

// Params implements Kernel.
func (k Constant) Params() []Param { return scaleParams("Scale", k.Scale, nil) }

// WithParams implements Kernel.
func (k Constant) WithParams(values []float64) Kernel {
	kernelLen(values, 1)
	return Constant{Scale: values[0]}
}

// Grad implements Kernel.
func (k Constant) Grad(dst, x, y []float64) float64 {
	kernelLen(dst, 1)
	val := k.Cov(x, y)
	dst[0] = 2 * val
	return val
}

// features implements featured.
func (k Constant) features(dst, _ []float64) []float64 { return append(dst, kernelOne(k.Scale)) }

// basis implements featured.
func (Constant) basis(d int) []float64 { return make([]float64, d) }

func (Constant) is(k Kernel) bool { return isType[Constant](k) }

func (Constant) numParams() int { return 1 }

func (k Constant) fill(dst []float64, _ *kernelTile) {
	s := kernelOne(k.Scale)
	for i := range dst {
		dst[i] = s * s
	}
}

func (k Constant) pull(dst, w []float64, t *kernelTile) { pullPairs(k, dst, w, t) }
