package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
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
		return fmt.Errorf("pgsvi: %s is nil: %w", strings.TrimSuffix(path+"Kernel", ".Kernel"),
			ErrParam)
	}
	name := path + kernelName(k)
	parts, composite := kernelParts(k)
	if !composite {
		err := checkParams(name, k.Params())
		if f, ok := k.(dimensional); ok && f.Dim() != 0 && f.Dim() != d {
			err = errors.Join(err,
				fmt.Errorf("pgsvi: %s is for %d columns, the data have %d: %w", name, f.Dim(), d,
					ErrShape))
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

// kernelDst returns dst, or a new slice of length n if dst is nil.
func kernelDst(dst []float64, n int) []float64 {
	if dst == nil {
		return make([]float64, n)
	}
	gram.MustLen(dst, n)
	return dst
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

// kernelView shows internal packages a Kernel.
type kernelView struct{ Kernel }

var _ gram.Kernel = kernelView{}

// Noisy implements gram.Kernel.
func (k kernelView) Noisy() bool {
	_, ok := k.Kernel.(Noisy)
	return ok
}

// Self implements gram.Kernel.
func (k kernelView) Self(x []float64) float64 { return kernelSelf(k.Kernel, x) }

// GradSelf implements gram.Kernel.
func (k kernelView) GradSelf(dst, x []float64) { kernelGradSelf(k.Kernel, dst, x, x) }

// NumParams implements gram.Kernel.
func (k kernelView) NumParams() int { return numParams(k.Kernel) }

// Fill implements gram.Kernel.
func (k kernelView) Fill(dst []float64, t *gram.Tile) { kernelFill(k.Kernel, dst, t) }

// Pull implements gram.Kernel.
func (k kernelView) Pull(dst, w []float64, t *gram.Tile) { kernelPull(k.Kernel, dst, w, t) }

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
	if stationary := math.Abs(k.Cov(away, away)-v) <= 1e-9*v; !stationary ||
		!(k.Cov(x, away) <= 1e-9*v) {
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
		return []Param{{name, gram.One(one), 0, math.Inf(1)}}
	}
	params := make([]Param, len(list))
	for d, v := range list {
		params[d] = Param{fmt.Sprintf("%s[%d]", name, d), gram.One(v), 0, math.Inf(1)}
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
		mustMemory(0, memory.Bytes(1, n, n), fmt.Sprintf("the covariance of %d rows", n),
			"give Gram a matrix to store it in, or raise the limit (GOMEMLIMIT)")
		dst.ReuseAsSym(n)
	}
	out := dst.RawSymmetric()
	kernelNotEmpty(n)
	kernelSize(out.N, out.N, n, n)
	all := blas64.General{Rows: out.N, Cols: out.N, Stride: out.Stride, Data: out.Data}
	gram.Symmetric(nil, all, kernelView{k}, x.RawMatrix())
	return dst
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
	n, _ := x.Dims()
	m, _ := y.Dims()
	if dst == nil {
		dst = new(mat.Dense)
	}
	if dst.IsEmpty() {
		kernelNotEmpty(min(n, m))
		mustMemory(0, memory.Bytes(1, n, m), fmt.Sprintf("the covariance of %d and %d rows", n, m),
			"take fewer rows at a time, or raise the limit (GOMEMLIMIT)")
		dst.ReuseAs(n, m)
	}
	out := dst.RawMatrix()
	kernelNotEmpty(min(n, m))
	kernelSize(out.Rows, out.Cols, n, m)
	gram.Cross(nil, out, kernelView{k}, x.RawMatrix(), y.RawMatrix())
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
		row := gram.Row(raw, i)
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
	kernelNotEmpty(n)
	gram.Grad(nil, dst, kernelView{k}, x.RawMatrix(), w)
	return dst
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

// tiled is a kernel that is computed a tile at a time.
type tiled interface {
	native
	// fill stores the covariances of the tile in dst, row after row.
	fill(dst []float64, t *gram.Tile)
	// pull adds Σ w ∂k/∂θ, with derivatives as in Grad, over the pairs of the tile
	// to dst.
	pull(dst, w []float64, t *gram.Tile)
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
func kernelFill(k Kernel, dst []float64, t *gram.Tile) {
	mark := t.Mark()
	if own, ok := asTiled(k); ok {
		own.fill(dst, t)
	} else {
		fillPairs(k, dst, t)
	}
	t.Release(mark)
}

// fillPairs is fill, pair by pair.
func fillPairs(k Kernel, dst []float64, t *gram.Tile) {
	var i int
	defer parallel.At(&i, nil)
	for i = range t.X.Rows {
		for j := range t.Y.Rows {
			dst[i*t.Y.Rows+j] = k.Cov(gram.Row(t.X, i), gram.Row(t.Y, j))
		}
	}
}

// kernelPull adds Σ w ∂k/∂θ over the pairs of the tile to dst.
func kernelPull(k Kernel, dst, w []float64, t *gram.Tile) {
	mark := t.Mark()
	if own, ok := asTiled(k); ok {
		own.pull(dst, w, t)
	} else {
		pullPairs(k, dst, w, t)
	}
	t.Release(mark)
}

// pullPairs is pull, pair by pair.
func pullPairs[K Kernel](k K, dst, w []float64, t *gram.Tile) {
	grad := t.Get(len(dst))
	for i := range t.X.Rows {
		for j := range t.Y.Rows {
			wij := w[i*t.Y.Rows+j]
			if wij == 0 {
				continue
			}
			k.Grad(grad, gram.Row(t.X, i), gram.Row(t.Y, j))
			for p, v := range grad {
				dst[p] += wij * v
			}
		}
	}
}

// Constant is the kernel k(x, x′) = Scale² of an unknown offset with standard deviation Scale;
// zero means 1. Its parameter is Scale.
type Constant struct {
	Scale float64
}

// Cov implements Kernel.
func (k Constant) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	s := gram.One(k.Scale)
	return s * s
}

// Params implements Kernel.
func (k Constant) Params() []Param { return scaleParams("Scale", k.Scale, nil) }

// WithParams implements Kernel.
func (k Constant) WithParams(values []float64) Kernel {
	gram.MustLen(values, 1)
	return Constant{Scale: values[0]}
}

// Grad implements Kernel.
func (k Constant) Grad(dst, x, y []float64) float64 {
	gram.MustLen(dst, 1)
	val := k.Cov(x, y)
	dst[0] = 2 * val
	return val
}

// features implements featured.
func (k Constant) features(dst, _ []float64) []float64 { return append(dst, gram.One(k.Scale)) }

// basis implements featured.
func (Constant) basis(d int) []float64 { return make([]float64, d) }

func (Constant) is(k Kernel) bool { return isType[Constant](k) }

func (Constant) numParams() int { return 1 }

func (k Constant) fill(dst []float64, _ *gram.Tile) {
	s := gram.One(k.Scale)
	for i := range dst {
		dst[i] = s * s
	}
}

func (k Constant) pull(dst, w []float64, t *gram.Tile) { pullPairs(k, dst, w, t) }
