package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Kernel is an immutable covariance function k(x, x′): symmetric, and positive
// semi-definite on any finite set of points, which is checked for pairs of
// points only.
//
// The kernels of this package are plain values whose fields are on the natural
// scale. A field that is zero counts as 1, so the zero value of each is the unit
// kernel. Slices inside a kernel (Lengths, Scales, the elements of Sum and
// Product) belong to the kernel once it is in use and must not be changed. Every
// kernel is safe for concurrent use.
//
// A function of a scaled distance is a Profile, from which Iso makes a kernel
// that is as fast as Matern52. Any other type needs these four methods and
// nothing else; Gram, CrossCov, PriorVar and GramGrad then call them pair by
// pair, from several goroutines; a panic of Cov there is not recovered, except at
// the first pair. Noisy and Dimensional are optional.
type Kernel interface {
	// Cov returns k(x, x′). It panics if x and y differ in length, or do not
	// have the length of the kernel's per-dimension parameters.
	Cov(x, y []float64) float64
	// Params returns the hyper-parameters in a fixed order, with their names and
	// ranges. A field that is zero and counts as a default is given as that
	// default. The slice is the caller's. Models refuse a kernel with a
	// parameter outside its range.
	Params() []Param
	// WithParams returns a copy of the kernel with the values of its
	// hyper-parameters, in the order of Params; values is not kept. It panics if
	// there are more or fewer.
	WithParams(values []float64) Kernel
	// Grad returns k(x, x′) and stores its derivatives in the hyper-parameters θ
	// in dst: ∂k/∂log θ where Min ≥ 0, and ∂k/∂θ elsewhere. It panics where Cov
	// does, and if dst is not as long as Params.
	Grad(dst, x, y []float64) float64
}

// Noisy is the second interface of kernels with a part, such as White, that
// counts only where a training datum meets itself. Gram and GramGrad use it for
// the diagonal; Cov, CrossCov and PriorVar leave that part out, even where two
// rows are equal, because they speak of the noise-free latent function.
type Noisy interface {
	Kernel
	// SelfCov returns the diagonal entry of the training Gram matrix at x.
	SelfCov(x []float64) float64
	// GradSelf returns SelfCov(x) and stores its derivatives in dst, as Grad does.
	GradSelf(dst, x []float64) float64
}

// Dimensional is the second interface of kernels whose parameters fix the number
// of columns of the data. Models refuse data with another number.
type Dimensional interface {
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
		if f, ok := k.(Dimensional); ok && f.Dim() != 0 && f.Dim() != d {
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
