package pgsvi

import (
	"errors"
	"fmt"
	"math"
)

// Kernel is an immutable covariance function k(x, x′): symmetric, and positive
// semi-definite on any finite set of points, which is checked for pairs of
// points only.
//
// The kernels of this package are plain values whose fields are on the natural
// scale; a field that is zero counts as 1, so the zero value of each is the
// unit kernel. Slices inside a kernel (Lengths, Scales, the elements of Sum and
// Product) belong to the kernel once it is in use and must not be changed.
// Every kernel is safe for concurrent use.
//
// A type of one's own needs these five methods and nothing else; Gram, CrossCov,
// PriorVar and GramGrad then call them pair by pair, from several goroutines; a
// panic of Cov there is not recovered, except at the first pair.
// Optional second interfaces are Noisy, and methods Validate() error and
// ValidateDim(d int) error, which ValidateKernel finds.
type Kernel interface {
	// Cov returns k(x, x′). It panics if x and y differ in length, or do not
	// have the length of the kernel's per-dimension parameters.
	Cov(x, y []float64) float64
	// NumParams returns P, the number of hyper-parameters.
	NumParams() int
	// Params stores the logarithms of the P hyper-parameters in dst and returns
	// it; nil allocates. It panics if dst is neither nil nor of length P.
	Params(dst []float64) []float64
	// WithParams returns a copy of the kernel with the logarithmic
	// hyper-parameters p, in the order of Params; p is not kept. It panics if
	// len(p) ≠ P.
	WithParams(p []float64) Kernel
	// GradParams returns k(x, x′) and stores ∂k/∂log θ_p in dst. It panics
	// where Cov does, and if len(dst) ≠ P.
	GradParams(dst, x, y []float64) float64
}

// Noisy is the second interface of kernels with a part, such as White, that
// counts only where a training datum meets itself. Gram and GramGrad use it for
// the diagonal; Cov, CrossCov and PriorVar leave that part out, even where two
// rows are equal, because they speak of the noise-free latent function.
type Noisy interface {
	Kernel
	// SelfCov returns the diagonal entry of the training Gram matrix at x.
	SelfCov(x []float64) float64
	// GradSelf returns SelfCov(x) and stores its derivatives with respect to
	// the log-parameters in dst, of length NumParams.
	GradSelf(dst, x []float64) float64
}

// ValidateKernel reports every violation in k at once, for data of dimension d:
// a nil kernel, a parameter that is negative, NaN or infinite, an empty Sum or
// Product (all wrapping ErrParam), and per-dimension parameters whose number is
// not d (wrapping ErrShape). A negative d leaves the dimension unchecked. A
// kernel without Validate and ValidateDim is taken to be valid.
func ValidateKernel(k Kernel, d int) error {
	if k == nil {
		return fmt.Errorf("pgsvi: kernel is nil: %w", ErrParam)
	}
	if v, ok := k.(interface{ ValidateDim(d int) error }); ok {
		return v.ValidateDim(d)
	}
	if v, ok := k.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// kernelCheck joins the violations of the named positive parameters (zero is
// the default) and of a per-dimension list, which may be nil.
func kernelCheck(kind string, d int, list string, per []float64, named ...any) error {
	var errs []error
	check := func(name string, v float64) {
		if !(v >= 0) || math.IsInf(v, 1) {
			errs = append(errs, fmt.Errorf("pgsvi: %s.%s is %v, want a positive number, or 0 for 1: %w", kind, name, v, ErrParam))
		}
	}
	for i := 0; i < len(named); i += 2 {
		check(named[i].(string), named[i+1].(float64))
	}
	for i, v := range per {
		check(fmt.Sprintf("%s[%d]", list, i), v)
	}
	if per != nil && (len(per) == 0 || d >= 0 && len(per) != d) {
		want := "one per dimension"
		if d >= 0 {
			want = fmt.Sprintf("%d, one per dimension", d)
		}
		errs = append(errs, fmt.Errorf("pgsvi: %s.%s has length %d, want %s: %w", kind, list, len(per), want, ErrShape))
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

// Sum is k(x, x′) = Σ_i k_i(x, x′), the covariance function of a sum of
// independent functions. Its parameters are those of its terms, in order. It
// must not be empty.
type Sum []Kernel

// Cov implements Kernel.
func (k Sum) Cov(x, y []float64) float64 {
	kernelLen(y, len(x))
	var val float64
	for _, term := range k {
		val += term.Cov(x, y)
	}
	return val
}

// NumParams implements Kernel.
func (k Sum) NumParams() int { return kernelListNum(k) }

// Params implements Kernel.
func (k Sum) Params(dst []float64) []float64 { return kernelListParams(dst, k) }

// WithParams implements Kernel.
func (k Sum) WithParams(p []float64) Kernel { return Sum(kernelListWith(k, p)) }

// GradParams implements Kernel.
func (k Sum) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, k.NumParams())
	var val float64
	for _, term := range k {
		n := term.NumParams()
		val += term.GradParams(dst[:n:n], x, y)
		dst = dst[n:]
	}
	return val
}

// SelfCov implements Noisy: the sum of the terms' own diagonals.
func (k Sum) SelfCov(x []float64) float64 {
	var val float64
	for _, term := range k {
		val += kernelSelf(term, x)
	}
	return val
}

// GradSelf implements Noisy.
func (k Sum) GradSelf(dst, x []float64) float64 {
	kernelLen(dst, k.NumParams())
	var val float64
	for _, term := range k {
		n := term.NumParams()
		val += kernelGradSelf(term, dst[:n:n], x, x)
		dst = dst[n:]
	}
	return val
}

// Validate reports every violation at once; see ValidateKernel.
func (k Sum) Validate() error { return k.ValidateDim(-1) }

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k Sum) ValidateDim(d int) error { return kernelListCheck("Sum", k, d) }

// Product is k(x, x′) = Π_i k_i(x, x′), which is again a covariance function
// (Schur 1911). Its parameters are those of its factors, in order. It must not
// be empty.
type Product []Kernel

// Cov implements Kernel.
func (k Product) Cov(x, y []float64) float64 {
	kernelLen(y, len(x))
	val := 1.0
	for _, factor := range k {
		val *= factor.Cov(x, y)
	}
	return val
}

// NumParams implements Kernel.
func (k Product) NumParams() int { return kernelListNum(k) }

// Params implements Kernel.
func (k Product) Params(dst []float64) []float64 { return kernelListParams(dst, k) }

// WithParams implements Kernel.
func (k Product) WithParams(p []float64) Kernel { return Product(kernelListWith(k, p)) }

// GradParams implements Kernel.
func (k Product) GradParams(dst, x, y []float64) float64 {
	return k.grad(dst, x, y, Kernel.GradParams)
}

// SelfCov implements Noisy: the product of the factors' own diagonals.
func (k Product) SelfCov(x []float64) float64 {
	val := 1.0
	for _, factor := range k {
		val *= kernelSelf(factor, x)
	}
	return val
}

// GradSelf implements Noisy.
func (k Product) GradSelf(dst, x []float64) float64 {
	return k.grad(dst, x, x, kernelGradSelf)
}

// grad is the product rule without a division: each factor's derivatives are
// multiplied by the factors before it and those after it.
func (k Product) grad(dst, x, y []float64, grad func(f Kernel, dst, x, y []float64) float64) float64 {
	kernelLen(dst, k.NumParams())
	val, end := 1.0, 0
	for _, factor := range k {
		n := factor.NumParams()
		own := dst[end : end+n : end+n]
		v := grad(factor, own, x, y)
		for p := range own {
			own[p] *= val
		}
		for p := range end {
			dst[p] *= v
		}
		val *= v
		end += n
	}
	return val
}

// Validate reports every violation at once; see ValidateKernel.
func (k Product) Validate() error { return k.ValidateDim(-1) }

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k Product) ValidateDim(d int) error { return kernelListCheck("Product", k, d) }

func kernelListNum(list []Kernel) int {
	n := 0
	for _, k := range list {
		n += k.NumParams()
	}
	return n
}

func kernelListParams(dst []float64, list []Kernel) []float64 {
	dst = kernelDst(dst, kernelListNum(list))
	rest := dst
	for _, k := range list {
		n := k.NumParams()
		k.Params(rest[:n:n])
		rest = rest[n:]
	}
	return dst
}

func kernelListWith(list []Kernel, p []float64) []Kernel {
	kernelLen(p, kernelListNum(list))
	out := make([]Kernel, len(list))
	for i, k := range list {
		n := k.NumParams()
		out[i] = k.WithParams(p[:n:n])
		p = p[n:]
	}
	return out
}

func kernelListCheck(kind string, list []Kernel, d int) error {
	if len(list) == 0 {
		return fmt.Errorf("pgsvi: %s of no kernels: %w", kind, ErrParam)
	}
	var errs []error
	for i, k := range list {
		if err := ValidateKernel(k, d); err != nil {
			errs = append(errs, fmt.Errorf("pgsvi: %s[%d]: %w", kind, i, err))
		}
	}
	return errors.Join(errs...)
}

// kernelSelf returns the diagonal entry of the training Gram matrix at x.
func kernelSelf(k Kernel, x []float64) float64 {
	if n, ok := k.(Noisy); ok {
		return n.SelfCov(x)
	}
	return k.Cov(x, x)
}

// kernelGradSelf is GradParams of that entry; the second x is not looked at.
func kernelGradSelf(k Kernel, dst, x, _ []float64) float64 {
	if n, ok := k.(Noisy); ok {
		return n.GradSelf(dst, x)
	}
	return k.GradParams(dst, x, x)
}

// Linear is the covariance function of linear regression without an intercept
// (add a Constant for one),
//
//	k(x, x′) = Σ_d s_d² x_d x′_d,
//
// with s_d = Scale, or s_d = Scales[d] where Scales is not nil; Scale is then
// ignored. s_d is the prior standard deviation of the weight of feature d. Zero
// fields and entries mean 1. The parameters are log Scale, or log Scales.
type Linear struct {
	Scale  float64
	Scales []float64
}

// scale returns s_d.
func (k Linear) scale(d int) float64 {
	if k.Scales == nil {
		return kernelOne(k.Scale)
	}
	return kernelOne(k.Scales[d])
}

// check panics where x, y and Scales disagree.
func (k Linear) check(x, y []float64) {
	kernelLen(y, len(x))
	if k.Scales != nil {
		kernelLen(k.Scales, len(x))
	}
}

// Cov implements Kernel.
func (k Linear) Cov(x, y []float64) float64 {
	k.check(x, y)
	var sum float64
	for d, v := range x {
		s := k.scale(d)
		sum += (s * v) * (s * y[d])
	}
	return sum
}

// NumParams implements Kernel.
func (k Linear) NumParams() int {
	if k.Scales != nil {
		return len(k.Scales)
	}
	return 1
}

// Params implements Kernel.
func (k Linear) Params(dst []float64) []float64 {
	dst = kernelDst(dst, k.NumParams())
	if k.Scales == nil {
		dst[0] = math.Log(kernelOne(k.Scale))
	}
	for d, s := range k.Scales {
		dst[d] = math.Log(kernelOne(s))
	}
	return dst
}

// WithParams implements Kernel.
func (k Linear) WithParams(p []float64) Kernel {
	kernelLen(p, k.NumParams())
	if k.Scales == nil {
		return Linear{Scale: math.Exp(p[0])}
	}
	scales := make([]float64, len(p))
	for d, v := range p {
		scales[d] = math.Exp(v)
	}
	return Linear{Scale: k.Scale, Scales: scales}
}

// GradParams implements Kernel.
func (k Linear) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, k.NumParams())
	val := k.Cov(x, y)
	if k.Scales == nil {
		dst[0] = 2 * val
		return val
	}
	for d, v := range x {
		s := k.scale(d)
		dst[d] = 2 * (s * v) * (s * y[d])
	}
	return val
}

// Validate reports every violation at once; see ValidateKernel.
func (k Linear) Validate() error { return k.ValidateDim(-1) }

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k Linear) ValidateDim(d int) error {
	return kernelCheck("Linear", d, "Scales", k.Scales, "Scale", k.Scale)
}

// Constant is k(x, x′) = Scale², the covariance function of an unknown offset
// with standard deviation Scale; zero means 1. Its parameter is log Scale.
type Constant struct {
	Scale float64
}

// Cov implements Kernel.
func (k Constant) Cov(x, y []float64) float64 {
	kernelLen(y, len(x))
	s := kernelOne(k.Scale)
	return s * s
}

// NumParams implements Kernel.
func (k Constant) NumParams() int { return 1 }

// Params implements Kernel.
func (k Constant) Params(dst []float64) []float64 {
	dst = kernelDst(dst, 1)
	dst[0] = math.Log(kernelOne(k.Scale))
	return dst
}

// WithParams implements Kernel.
func (k Constant) WithParams(p []float64) Kernel {
	kernelLen(p, 1)
	return Constant{Scale: math.Exp(p[0])}
}

// GradParams implements Kernel.
func (k Constant) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, 1)
	val := k.Cov(x, y)
	dst[0] = 2 * val
	return val
}

// Validate reports every violation at once; see ValidateKernel.
func (k Constant) Validate() error { return k.ValidateDim(-1) }

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k Constant) ValidateDim(d int) error {
	return kernelCheck("Constant", d, "", nil, "Scale", k.Scale)
}

// White is independent noise with standard deviation Scale; zero means 1. Its
// parameter is log Scale.
//
// It tells data by their index, not by their position: it adds Scale² to the
// diagonal of a training Gram matrix, through Noisy, and is zero everywhere
// else: for two training rows that happen to be equal, between training and
// test rows, and in the prior variance at new points. Predictions are therefore
// those of the noise-free latent function. Within a Product it restricts the
// other factors to the diagonal.
type White struct {
	Scale float64
}

// Cov implements Kernel; it is always 0.
func (k White) Cov(x, y []float64) float64 {
	kernelLen(y, len(x))
	return 0
}

// NumParams implements Kernel.
func (k White) NumParams() int { return 1 }

// Params implements Kernel.
func (k White) Params(dst []float64) []float64 { return Constant(k).Params(dst) }

// WithParams implements Kernel.
func (k White) WithParams(p []float64) Kernel {
	kernelLen(p, 1)
	return White{Scale: math.Exp(p[0])}
}

// GradParams implements Kernel; it stores 0 and returns 0.
func (k White) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, 1)
	dst[0] = 0
	return k.Cov(x, y)
}

// SelfCov implements Noisy: Scale².
func (k White) SelfCov(x []float64) float64 { return Constant(k).Cov(x, x) }

// GradSelf implements Noisy.
func (k White) GradSelf(dst, x []float64) float64 { return Constant(k).GradParams(dst, x, x) }

// Validate reports every violation at once; see ValidateKernel.
func (k White) Validate() error { return k.ValidateDim(-1) }

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k White) ValidateDim(d int) error {
	return kernelCheck("White", d, "", nil, "Scale", k.Scale)
}
