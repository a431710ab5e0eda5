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
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// A Kernel is an immutable covariance function k(x, x′). It must be symmetric and positive
// semidefinite on any finite set of points; models check only pairs of points.
//
// The kernels of this package are plain structs whose fields are on the natural scale. A zero field
// means 1, so the zero value of each kernel is the unit kernel. Slices inside a kernel (Lengths,
// Scales, the elements of Sum and Product) must not change once the kernel is in use. Every kernel
// is safe for concurrent use.
//
// To define a function of a scaled distance, implement a Profile: Iso turns it into a kernel that
// is as fast as Matern52. Any other type needs only these four methods. Gram, CrossCov, PriorVar
// and GramGrad then call them for each pair of rows, from several goroutines. They recover a panic
// of Cov only at the first pair.
//
// These methods are optional:
//
//	Dim() int                          // number of columns of the data; 0 means any
//	SelfCov(x []float64) float64       // diagonal element of the training Gram matrix at x
//	GradSelf(dst, x []float64) float64 // the same, and stores its derivatives in dst, like Grad
//
// Models return an error if the data do not have Dim columns. A kernel with noise, such as White,
// has both SelfCov and GradSelf. The noise is a part of the covariance between a training row and
// itself only, so Gram and GramGrad use SelfCov for the diagonal. Cov, CrossCov and PriorVar leave
// the noise out, even for equal rows, because they describe the latent function without noise.
type Kernel interface {
	// Cov returns k(x, x′). It panics if x and y have different lengths, or a length that does not
	// match the per-dimension parameters of the kernel.
	Cov(x, y []float64) float64
	// Params returns the hyperparameters in a fixed order, with their names and ranges. If a zero
	// field means a default, Params returns the default. The caller owns the slice. Models return
	// an error for a parameter outside its range.
	Params() []Param
	// WithParams returns a copy of the kernel with the given values of its hyperparameters, in the
	// order of Params. It does not keep values. It panics if their number is wrong.
	WithParams(values []float64) Kernel
	// Grad returns k(x, x′) and stores its derivatives with respect to the hyperparameters θ in
	// dst: ∂k/∂log θ if Min ≥ 0, and ∂k/∂θ otherwise. It panics in the same cases as Cov, and if
	// dst and Params have different lengths.
	Grad(dst, x, y []float64) float64
}

// dimensional is an optional interface of kernels whose parameters fix the number of columns.
type dimensional interface {
	Kernel
	// Dim returns the number of columns, or 0 if any number is valid.
	Dim() int
}

// kernelName returns the name of k for messages and parameter names: its registered name without
// the package. If k is not registered, an Iso is named after its Profile, and any other kernel
// after its type.
func kernelName(k Kernel) string {
	name, registered := savedTypes.Name(k)
	if !registered {
		name = fmt.Sprintf("%T", k)
		own, _ := asNative(k)
		if p, ok := own.(profiled); ok {
			name = p.profileName()
		}
	}
	name, _, _ = strings.Cut(name, "[") // parameters of a generic type
	return name[strings.LastIndex(name, ".")+1:]
}

// checkKernel reports every fault of k for data with d columns. The error wraps ErrParam for a nil
// kernel, a parameter out of range, and an empty Sum or Product. It wraps ErrShape for parameters
// that need another number of columns.
func checkKernel(k Kernel, d int) error { return checkKernelPart("", k, d) }

// checkKernelPart is checkKernel for a part of a kernel, with the path to it, such as "Sum[1].".
func checkKernelPart(path string, k Kernel, d int) error {
	if err := checkNil(strings.TrimSuffix(path+"Kernel", ".Kernel"), k); err != nil {
		return err
	}
	name := path + kernelName(k)
	if of, ok := asColumned(k); ok {
		if err := of.check(name, d); err != nil {
			return err
		}
		return checkKernelPart(name+".", of.inner(), of.width(d))
	}
	parts, composite := kernelParts(k)
	if !composite {
		err := checkParams(name, k.Params())
		if f, ok := k.(dimensional); ok && f.Dim() != 0 && f.Dim() != d {
			err = errors.Join(err,
				fmt.Errorf("pgsvi: %s is for %d columns, but the data have %d: %w",
					name, f.Dim(), d,
					ErrShape))
		}
		return err
	}
	if len(parts) == 0 {
		return fmt.Errorf("pgsvi: %s is empty; it needs at least one kernel: %w", name, ErrParam)
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

// numParams returns the number of parameters of k. It does not allocate for kernels of this
// package.
func numParams(k Kernel) int {
	if t, ok := asNative(k); ok {
		return t.numParams()
	}
	return len(k.Params())
}

// kernelSelf returns the diagonal element of the training Gram matrix at x.
func kernelSelf(k Kernel, x []float64) float64 {
	if n, ok := k.(gram.Noisy); ok {
		return n.SelfCov(x)
	}
	return k.Cov(x, x)
}

// kernelGradSelf is Grad of that diagonal element, and ignores the second x.
func kernelGradSelf(k Kernel, dst, x, _ []float64) float64 {
	if n, ok := k.(gram.Noisy); ok {
		return n.GradSelf(dst, x)
	}
	return k.Grad(dst, x, x)
}

// kernelView adapts a Kernel for internal packages.
type kernelView struct{ Kernel }

var _ gram.Kernel = kernelView{}

// Noisy implements gram.Kernel.
func (k kernelView) Noisy() bool {
	_, ok := k.Kernel.(gram.Noisy)
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

// native is implemented by the kernels of this package.
type native interface {
	Kernel
	// is reports whether k has exactly this type. A custom type that embeds such a kernel, and has
	// a Cov of its own, also has the unexported methods.
	is(k Kernel) bool
	// numParams returns the length of Params.
	numParams() int
}

// asNative returns k as a kernel of this package. It returns false if k only embeds such a kernel.
func asNative(k Kernel) (own native, ok bool) {
	if own, ok = k.(native); ok && own.is(k) {
		return own, true
	}
	return nil, false
}

// isType reports whether k is a K or a pointer to a K.
func isType[K Kernel](k Kernel) bool {
	switch any(k).(type) {
	case K, *K:
		return true
	}
	return false
}

// columned is a kernel of this package that applies another kernel to some of the columns: an On.
type columned interface {
	// check returns an error for columns outside the d columns of the data. name is the path to the
	// kernel.
	check(name string, d int) error
	// width returns the number of columns that inner gets if the data have d columns.
	width(d int) int
	// inner returns the kernel that is applied.
	inner() Kernel
}

// asColumned returns k as a columned kernel if it is one.
func asColumned(k Kernel) (of columned, ok bool) {
	if own, native := asNative(k); native {
		of, ok = own.(columned)
	}
	return of, ok
}

// profiled is implemented by every Iso, for any Profile.
type profiled interface {
	// profileName returns the type of the Profile.
	profileName() string
}

// composite is a kernel made of other kernels: a Sum or a Product.
type composite interface{ parts() []Kernel }

// kernelParts returns the parts of a composite kernel. It returns false for any other kernel.
func kernelParts(k Kernel) (parts []Kernel, ok bool) {
	own, _ := asNative(k)
	c, ok := own.(composite)
	if !ok {
		return nil, false
	}
	return c.parts(), true
}

// farAway is a distance, in units of 1 + |x|, far above any length scale.
const farAway = 1e12

// vanishingSD returns the standard deviation at x of a kernel that is stationary and vanishes at a
// distance in all tests. It returns +Inf for other kernels, and also for custom
// kernels because they may be undefined far away.
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
	if of, ok := asColumned(k); ok {
		return allNative(of.inner())
	}
	if parts, ok := kernelParts(k); ok {
		return !slices.ContainsFunc(parts, func(part Kernel) bool { return !allNative(part) })
	}
	_, ok := asNative(k)
	return ok
}

// scaleParams returns the parameter of one scale, or the parameters of a list with one scale per
// column if list is set.
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

// withScales returns the fields of scaleParams with the first elements of values.
func withScales(one float64, list, values []float64) (float64, []float64) {
	if len(list) == 0 {
		return values[0], nil
	}
	return one, append([]float64(nil), values[:len(list)]...)
}

// Gram stores the training covariance (kernel matrix) K(X, X), N×N for the N rows of x, in dst and
// returns it. A nil dst allocates and an empty dst is resized. Only the upper triangle is written.
// The diagonal includes the noise of kernels such as White.
//
// Every element agrees with k.Cov to a relative error of about 1e-12. Equal rows give exactly the
// diagonal element without noise. The result does not depend on GOMAXPROCS. Rows that are not
// finite give elements that are NaN or 0.
//
// Gram panics if x is empty, if dst has another size, or if k.Cov panics. It panics with an error
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
			"pass Gram a matrix, or raise the limit (GOMEMLIMIT)")
		dst.ReuseAsSym(n)
	}
	out := dst.RawSymmetric()
	kernelNotEmpty(n)
	kernelSize(out.N, out.N, n, n)
	all := blas64.General{Rows: out.N, Cols: out.N, Stride: out.Stride, Data: out.Data}
	gram.Symmetric(nil, all, kernelView{k}, x.RawMatrix())
	return dst
}

// CrossCov stores the cross-covariance K(X, Y), N×M for the N rows of x and the M rows of y, in dst
// and returns it. A nil dst allocates and an empty dst is resized. If x holds the training rows,
// the columns of the result suit a triangular solve from the left. Noise is left out; see Kernel.
//
// The accuracy is the same as for Gram. Each element depends only on x and its own row of y, and
// has the same bits for any batch of rows. CrossCov panics if x or y is empty, if they have
// different numbers of columns, if dst has another size, or if k.Cov panics. It panics with an
// error that wraps ErrMemory if it would allocate more than the limit. dst must not share memory
// with x or y.
func CrossCov(dst *mat.Dense, k Kernel, x, y *mat.Dense) *mat.Dense {
	n, _ := x.Dims()
	m, _ := y.Dims()
	if dst == nil {
		dst = new(mat.Dense)
	}
	if dst.IsEmpty() {
		kernelNotEmpty(min(n, m))
		mustMemory(0, memory.Bytes(1, n, m), fmt.Sprintf("the covariance of %d and %d rows", n, m),
			"use fewer rows at a time, or raise the limit (GOMEMLIMIT)")
		dst.ReuseAs(n, m)
	}
	out := dst.RawMatrix()
	kernelNotEmpty(min(n, m))
	kernelSize(out.Rows, out.Cols, n, m)
	gram.Cross(nil, out, kernelView{k}, x.RawMatrix(), y.RawMatrix())
	return dst
}

// PriorVar stores the prior variances of the latent function, k(x_i, x_i) without noise, in dst and
// returns it. A nil dst allocates. PriorVar panics if dst does not have one element per row, or if
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

// GramGrad stores Σ_ij w_ij ∂K_ij/∂θ_p, for the training Gram matrix K including noise, in dst of
// length P and returns it. A nil dst allocates. The derivatives are with respect to log θ_p if its
// Min ≥ 0, as in Kernel.Grad. The sum is over all N² pairs. If w = ∂f/∂K, counting both triangles,
// the result is the gradient of f with respect to the P parameters, computed in one pass over the
// pairs without storing the derivatives.
//
// The order of the sum does not depend on GOMAXPROCS. GramGrad panics if x is empty, if w is not
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
		panic("pgsvi: the matrix of a kernel has no rows")
	}
}

func kernelSize(r, c, n, m int) {
	if r != n || c != m {
		panic(fmt.Sprintf("pgsvi: the matrix of a kernel is %d×%d; it must be %d×%d", r, c, n, m))
	}
}

// tiled is a kernel that computes one tile of the Gram matrix at a time.
type tiled interface {
	native
	// fill stores the covariances of the tile in dst, row by row.
	fill(dst []float64, t *gram.Tile)
	// pull adds Σ w ∂k/∂θ over the pairs of the tile to dst, with derivatives as in Grad.
	pull(dst, w []float64, t *gram.Tile)
}

// asTiled returns k as a tiled kernel. It returns false if k only embeds one.
func asTiled(k Kernel) (own tiled, ok bool) {
	if n, ok := asNative(k); ok {
		own, ok = n.(tiled)
		return own, ok
	}
	return nil, false
}

// kernelFill stores the covariances of the tile in dst, row by row.
func kernelFill(k Kernel, dst []float64, t *gram.Tile) {
	mark := t.Mark()
	if own, ok := asTiled(k); ok {
		own.fill(dst, t)
	} else {
		fillPairs(k, dst, t)
	}
	t.Release(mark)
}

// fillPairs is fill with one call of Cov per pair.
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

// pullPairs is pull with one call of Grad per pair.
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

// Constant is the kernel k(x, x′) = Scale² of an unknown offset with standard deviation Scale; zero
// means 1. Its parameter is Scale.
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

var _ = builtin{
	"pgsvi.SquaredExp":        SquaredExp{},
	"pgsvi.Matern12":          Matern12{},
	"pgsvi.Matern32":          Matern32{},
	"pgsvi.Matern52":          Matern52{},
	"pgsvi.RationalQuadratic": RationalQuadratic{},
	"pgsvi.Periodic":          Periodic{},
}.register()

// A Profile is the function ρ(r²), with ρ(0) = 1, of an isotropic kernel; see Iso. Its methods
// process many squared distances per call, and are called from several goroutines.
//
// A Profile with a parameter θ, such as the Profile of RationalQuadratic, has three more methods:
//
//	Shape() Param                     // θ; returns a default instead of zero
//	WithShape(value float64) Profile  // a Profile of the same type with that value
//	GradShape(dst, r2, rho []float64) // stores ∂ρ/∂θ, or ∂ρ/∂log θ if Min ≥ 0, given r² and ρ(r²)
type Profile interface {
	// Values replaces every r² with ρ(r²). Each result depends only on its r², and has the same
	// bits at any index.
	Values(r2 []float64)
	// Slopes stores −2ρ′(r²) in dst, given r² and ρ(r²). The derivative of the kernel with respect
	// to log ℓ_d is Scale² times this times (x_d − x′_d)²/ℓ_d². If it grows without bound as r²
	// approaches 0, it must be 0 at r² = 0.
	Slopes(dst, r2, rho []float64)
}

// shapedProfile is a Profile with a parameter; see Profile.
type shapedProfile interface {
	Profile
	Shape() Param
	WithShape(value float64) Profile
	GradShape(dst, r2, rho []float64)
}

// Iso is the stationary isotropic kernel of a Profile ρ,
//
//	k(x, x′) = Scale² ρ(r²),  r² = Σ_d (x_d − x′_d)²/ℓ_d².
//
// ℓ_d is Length, or Lengths[d] if Lengths is set (automatic relevance determination, ARD; Neal
// 1996). Lengths replaces Length. Scale is the standard deviation of the latent function. Zero
// fields and elements mean 1. The parameters are Scale, then Length, or Length[d] for each of
// Lengths, then the Shape of the Profile if it has one.
//
// To define your own kernel, write a Profile and name the type, as in the example. It is as fast as
// the kernels of this package. Register it to save models that use it.
type Iso[P Profile] struct {
	Scale, Length float64
	Lengths       []float64
	Profile       P `json:",omitzero"`
}

// SquaredExp is the squared exponential (Gaussian, RBF) covariance function, Scale² exp(−r²/2). Iso
// describes its fields.
type SquaredExp = Iso[squaredExp]

// Matern12 is the Matérn covariance function with ν = 1/2, the exponential or Ornstein–Uhlenbeck
// kernel, Scale² exp(−r) (Matérn 1960). Iso describes its fields.
type Matern12 = Iso[matern12]

// Matern32 is the Matérn covariance function with ν = 3/2, Scale² (1 + √3 r) exp(−√3 r) (Matérn
// 1960). Iso describes its fields.
type Matern32 = Iso[matern32]

// Matern52 is the Matérn covariance function with ν = 5/2, Scale² (1 + √5 r + 5r²/3) exp(−√5 r)
// (Matérn 1960). Iso describes its fields.
type Matern52 = Iso[matern52]

// RationalQuadratic is Scale² (1 + r²/(2α))^(−α), a scale mixture of squared exponentials
// (Rasmussen & Williams 2006, eq. 4.19). Iso describes its fields. α is a field of the Profile, and
// zero means 1:
//
//	k := RationalQuadratic{Length: 2}
//	k.Profile.Alpha = 0.5
type RationalQuadratic = Iso[rational]

// Cov implements Kernel.
func (k Iso[P]) Cov(x, y []float64) float64 {
	t := gram.Take()
	own, val := k.tiles(), t.Get(1)
	val[0] = own.Lengths.Dist2(x, y)
	own.Values(val)
	cov := val[0]
	t.Free()
	return cov
}

// Params implements Kernel.
func (k Iso[P]) Params() []Param {
	params := append(scaleParams("Scale", k.Scale, nil),
		scaleParams("Length", k.Length, k.Lengths)...)
	if s, ok := any(k.Profile).(shapedProfile); ok {
		params = append(params, s.Shape())
	}
	return params
}

// WithParams implements Kernel.
func (k Iso[P]) WithParams(values []float64) Kernel {
	n := k.numParams()
	gram.MustLen(values, n)
	k.Scale = values[0]
	k.Length, k.Lengths = withScales(k.Length, k.Lengths, values[1:])
	if s, ok := any(k.Profile).(shapedProfile); ok {
		k.Profile = s.WithShape(values[n-1]).(P)
	}
	return k
}

// Grad implements Kernel.
func (k Iso[P]) Grad(dst, x, y []float64) float64 {
	gram.MustLen(dst, k.numParams())
	t := gram.Take()
	own, r2, rho, slope := k.tiles(), t.Get(1), t.Get(1), t.Get(1)
	r2[0] = own.Lengths.Dist2(x, y)
	rho[0] = r2[0]
	k.Profile.Values(rho)
	k.Profile.Slopes(slope, r2, rho)
	s2 := own.Variance
	val, g := s2*rho[0], s2*slope[0]
	dst[0] = 2 * val
	if len(k.Lengths) == 0 {
		dst[1] = g * r2[0]
	}
	for d, l := range k.Lengths {
		u := (x[d] - y[d]) / gram.One(l)
		dst[1+d] = g * u * u
	}
	if s, ok := gram.ShapeOf(k.Profile, t); ok {
		s.GradShape(slope, r2, rho)
		dst[len(dst)-1] = s2 * slope[0]
	}
	t.Free()
	return val
}

// Dim returns the number of Lengths.
func (k Iso[P]) Dim() int { return len(k.Lengths) }

// tiles returns k in the form that computes one tile at a time.
func (k Iso[P]) tiles() gram.Iso[P] {
	s := gram.One(k.Scale)
	return gram.Iso[P]{
		Lengths:  gram.Lengths{One: gram.One(k.Length), Each: k.Lengths},
		Variance: s * s,
		Profile:  k.Profile,
	}
}

func (Iso[P]) is(k Kernel) bool { return isType[Iso[P]](k) }

func (k Iso[P]) profileName() string { return fmt.Sprintf("%T", k.Profile) }

func (k Iso[P]) numParams() int {
	n := 1 + max(1, len(k.Lengths))
	var p P
	if _, ok := any(p).(shapedProfile); ok {
		n++
	}
	return n
}

func (k Iso[P]) fill(dst []float64, t *gram.Tile) { k.tiles().Fill(dst, t) }

func (k Iso[P]) pull(dst, w []float64, t *gram.Tile) { k.tiles().Pull(dst, w, t) }

func (k Iso[P]) pullRows(dst, w []float64, t *gram.Tile) { k.tiles().PullRows(dst, w, t) }

func (k Iso[P]) pullInputs(dst, w []float64, t *gram.Tile, _ []float64) {
	k.tiles().PullInputs(dst, w, t)
}

// squaredExp is exp(−r²/2).
type squaredExp struct{}

func (squaredExp) Values(r2 []float64) { special.ExpRate(r2, -0.5) }

func (squaredExp) Slopes(dst, _, rho []float64) { copy(dst, rho) }

// matern12 is exp(−r).
type matern12 struct{}

func (matern12) Values(r2 []float64) {
	for i, x := range r2 {
		r2[i] = math.Sqrt(x)
	}
	special.ExpRate(r2, -1)
}

func (matern12) Slopes(dst, r2, rho []float64) {
	for i, x := range r2 {
		if x == 0 {
			dst[i] = 0 // ρ has a kink here, but slope · (x − x′)² tends to 0
		} else {
			dst[i] = rho[i] / math.Sqrt(x)
		}
	}
}

// matern32 is (1 + a) exp(−a) with a = √3 r.
type matern32 struct{}

func (matern32) Values(r2 []float64) { PolyExp(r2, 3, 1, 1) }

func (matern32) Slopes(dst, r2, rho []float64) {
	for i, x := range r2 {
		dst[i] = 3 * rho[i] / (1 + math.Sqrt(3*x))
	}
}

// matern52 is (1 + a + a²/3) exp(−a) with a = √5 r.
type matern52 struct{}

func (matern52) Values(r2 []float64) { PolyExp(r2, 5, 1, 1, 1.0/3) }

func (matern52) Slopes(dst, r2, rho []float64) {
	for i, x := range r2 {
		a := math.Sqrt(5 * x)
		dst[i] = 5. / 3 * (1 + a) * rho[i] / (1 + a + a*a/3)
	}
}

// PolyExp replaces every r² with p(a) exp(−a), where a = √(c r²) and p is the polynomial p(a) =
// p[0] + p[1] a + p[2] a² + …. The Profile of a Matérn kernel of half-integer ν has c = 2ν and
// degree ν − ½. The relative error is about 1e-15, and PolyExp is faster than a loop over math.Exp.
func PolyExp(r2 []float64, c float64, p ...float64) { special.PolyExp(r2, c, p) }

// rational is the Profile (1 + r²/(2 Alpha))^(−Alpha) of RationalQuadratic, which has a parameter.
// A zero Alpha means 1.
type rational struct{ Alpha float64 }

// Values implements Profile.
func (p rational) Values(r2 []float64) {
	alpha := gram.One(p.Alpha)
	if alpha == 1 {
		for i, x := range r2 {
			r2[i] = 1 / (1 + x/2)
		}
		return
	}
	for i, x := range r2 {
		r2[i] = math.Log1p(x / (2 * alpha))
	}
	special.ExpRate(r2, -alpha)
}

// Slopes implements Profile.
func (p rational) Slopes(dst, r2, rho []float64) {
	for i, x := range r2 {
		dst[i] = rho[i] / (1 + x/(2*gram.One(p.Alpha)))
	}
}

// Shape returns Alpha.
func (p rational) Shape() Param { return Param{"Alpha", gram.One(p.Alpha), 0, math.Inf(1)} }

func (p rational) WithShape(value float64) Profile { return rational{value} }

func (p rational) GradShape(dst, r2, rho []float64) {
	alpha := gram.One(p.Alpha)
	for i, x := range r2 {
		u := x / (2 * alpha)
		dst[i] = alpha * rho[i] * (u/(1+u) - math.Log1p(u))
	}
}

// Periodic is the periodic covariance function (MacKay 1998)
//
//	k(x, x′) = Scale² exp(−(2/Length²) Σ_d sin²(π(x_d − x′_d)/Period)).
//
// Zero fields mean 1. The parameters are Scale, Length and Period.
type Periodic struct {
	Scale, Length, Period float64
}

// Cov implements Kernel.
func (k Periodic) Cov(x, y []float64) float64 { return k.tiles().Cov(x, y) }

// Params implements Kernel.
func (k Periodic) Params() []Param {
	inf := math.Inf(1)
	return []Param{
		{"Scale", gram.One(k.Scale), 0, inf},
		{"Length", gram.One(k.Length), 0, inf},
		{"Period", gram.One(k.Period), 0, inf},
	}
}

// WithParams implements Kernel.
func (k Periodic) WithParams(values []float64) Kernel {
	gram.MustLen(values, 3)
	return Periodic{Scale: values[0], Length: values[1], Period: values[2]}
}

// Grad implements Kernel.
func (k Periodic) Grad(dst, x, y []float64) float64 {
	gram.MustLen(dst, 3)
	return k.tiles().Grad(dst, x, y)
}

// tiles returns k in the form that computes one tile at a time.
func (k Periodic) tiles() gram.Periodic {
	return gram.Periodic{
		Scale:  gram.One(k.Scale),
		Length: gram.One(k.Length),
		Period: gram.One(k.Period),
	}
}

func (Periodic) is(k Kernel) bool { return isType[Periodic](k) }

func (Periodic) numParams() int { return 3 }

func (k Periodic) fill(dst []float64, t *gram.Tile) { k.tiles().Fill(dst, t) }

func (k Periodic) pull(dst, w []float64, t *gram.Tile) { k.tiles().Pull(dst, w, t) }
