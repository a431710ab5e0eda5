package pgsvi

import (
	"math"
)

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
