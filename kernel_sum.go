package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/gram"
)

var (
	_ = registerParts[Sum]("pgsvi.Sum")
	_ = registerParts[Product]("pgsvi.Product")
)

// registerParts is Register of a composite kernel.
func registerParts[K Sum | Product](name string) struct{} {
	parts := func(v any) (parts []any) {
		for _, k := range v.(K) {
			parts = append(parts, k)
		}
		return parts
	}
	join := func(parts []any) (any, error) {
		ks := make(K, len(parts))
		for i, p := range parts {
			k, ok := p.(Kernel)
			if !ok {
				return nil, fmt.Errorf("part %d of %s is a %T and no Kernel", i, name, p)
			}
			ks[i] = k
		}
		return ks, nil
	}
	registerComposite(name, K(nil), parts, join)
	return struct{}{}
}

// Sum is the kernel k(x, x′) = Σ_i k_i(x, x′), the covariance function of a sum of independent
// functions, such as a trend and a season. Its parameters are those of its terms, in order. It
// must not be empty.
type Sum []Kernel

// Cov implements Kernel.
func (k Sum) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	var val float64
	for _, term := range k {
		val += term.Cov(x, y)
	}
	return val
}

// Params implements Kernel.
func (k Sum) Params() []Param { return partParams(k) }

// WithParams implements Kernel.
func (k Sum) WithParams(values []float64) Kernel { return Sum(partsWith(k, values)) }

// Grad implements Kernel.
func (k Sum) Grad(dst, x, y []float64) float64 { return k.grad(dst, x, y, Kernel.Grad) }

// SelfCov implements Noisy: the sum of the terms' own diagonals.
func (k Sum) SelfCov(x []float64) float64 {
	var val float64
	for _, term := range k {
		val += kernelSelf(term, x)
	}
	return val
}

// GradSelf implements Noisy.
func (k Sum) GradSelf(dst, x []float64) float64 { return k.grad(dst, x, x, kernelGradSelf) }

// Dim returns that of the first term that fixes it.
func (k Sum) Dim() int { return partsDim(k) }

func (k Sum) grad(dst, x, y []float64, grad func(term Kernel, dst, x, y []float64) float64) float64 {
	gram.MustLen(dst, k.numParams())
	var val float64
	for _, term := range k {
		n := numParams(term)
		val += grad(term, dst[:n:n], x, y)
		dst = dst[n:]
	}
	return val
}

func (Sum) is(k Kernel) bool { return isType[Sum](k) }

func (k Sum) numParams() int { return partsNum(k) }

func (k Sum) parts() []Kernel { return k }

func (k Sum) fill(dst []float64, t *gram.Tile) {
	clear(dst)
	buf := t.Get(len(dst))
	for _, term := range k {
		kernelFill(term, buf, t)
		for i, v := range buf {
			dst[i] += v
		}
	}
}

func (k Sum) pull(dst, w []float64, t *gram.Tile) {
	for _, term := range k {
		n := numParams(term)
		kernelPull(term, dst[:n:n], w, t)
		dst = dst[n:]
	}
}

// Product is the kernel k(x, x′) = Π_i k_i(x, x′), again a covariance function (Schur 1911). Its
// parameters are those of its factors, in order. It must not be empty.
type Product []Kernel

// Cov implements Kernel.
func (k Product) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	val := 1.0
	for _, factor := range k {
		val *= factor.Cov(x, y)
	}
	return val
}

// Params implements Kernel.
func (k Product) Params() []Param { return partParams(k) }

// WithParams implements Kernel.
func (k Product) WithParams(values []float64) Kernel { return Product(partsWith(k, values)) }

// Grad implements Kernel.
func (k Product) Grad(dst, x, y []float64) float64 { return k.grad(dst, x, y, Kernel.Grad) }

// SelfCov implements Noisy: the product of the factors' own diagonals.
func (k Product) SelfCov(x []float64) float64 {
	val := 1.0
	for _, factor := range k {
		val *= kernelSelf(factor, x)
	}
	return val
}

// GradSelf implements Noisy.
func (k Product) GradSelf(dst, x []float64) float64 { return k.grad(dst, x, x, kernelGradSelf) }

// Dim returns that of the first factor that fixes it.
func (k Product) Dim() int { return partsDim(k) }

// grad is the product rule without a division: each factor's derivatives are
// multiplied by the factors before it and those after it.
func (k Product) grad(dst, x, y []float64, grad func(factor Kernel, dst, x, y []float64) float64) float64 {
	gram.MustLen(dst, k.numParams())
	val, end := 1.0, 0
	for _, factor := range k {
		n := numParams(factor)
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

func (Product) is(k Kernel) bool { return isType[Product](k) }

func (k Product) numParams() int { return partsNum(k) }

func (k Product) parts() []Kernel { return k }

func (k Product) fill(dst []float64, t *gram.Tile) {
	for i := range dst {
		dst[i] = 1
	}
	buf := t.Get(len(dst))
	for _, factor := range k {
		kernelFill(factor, buf, t)
		for i, v := range buf {
			dst[i] *= v
		}
	}
}

func (k Product) pull(dst, w []float64, t *gram.Tile) {
	buf, val := t.Get(len(w)), t.Get(len(w))
	for f, factor := range k {
		k.timesOthers(buf, w, val, f, t)
		n := numParams(factor)
		kernelPull(factor, dst[:n:n], buf, t)
		dst = dst[n:]
	}
}

// timesOthers stores in dst the weights w times every factor of the tile but factor f, with val to
// work in.
func (k Product) timesOthers(dst, w, val []float64, f int, t *gram.Tile) {
	copy(dst, w)
	for g, other := range k {
		if g == f {
			continue
		}
		kernelFill(other, val, t)
		for i, v := range val {
			dst[i] *= v
		}
	}
}

func partParams(parts []Kernel) []Param {
	var all []Param
	for i, k := range parts {
		of := fmt.Sprintf("[%d].%s", i, kernelName(k))
		for _, p := range k.Params() {
			p.Name = paramName(of, p.Name)
			all = append(all, p)
		}
	}
	return all
}

func partsWith(parts []Kernel, values []float64) []Kernel {
	gram.MustLen(values, partsNum(parts))
	out := make([]Kernel, len(parts))
	for i, k := range parts {
		n := numParams(k)
		out[i] = k.WithParams(values[:n:n])
		values = values[n:]
	}
	return out
}

func partsNum(parts []Kernel) int {
	n := 0
	for _, k := range parts {
		n += numParams(k)
	}
	return n
}

func partsDim(parts []Kernel) int {
	for _, k := range parts {
		if f, ok := k.(dimensional); ok && f.Dim() != 0 {
			return f.Dim()
		}
	}
	return 0
}

var _ = builtin{
	"pgsvi.Linear":   Linear{},
	"pgsvi.Constant": Constant{},
	"pgsvi.White":    White{},
}.register()

// featured is a kernel k(x, x′) = φ(x)ᵀφ(x′) of few features: a linear model in them, with weights
// N(0, I).
type featured interface {
	Kernel
	// features appends φ(x) to dst.
	features(dst, x []float64) []float64
	// basis returns inputs of d columns, one after the other, at each of which one feature alone is
	// not zero, its own.
	basis(d int) []float64
}

// Linear is the kernel of linear regression without an intercept (add a Constant for one),
//
//	k(x, x′) = Σ_d s_d² x_d x′_d,
//
// with s_d = Scale, or s_d = Scales[d] if Scales is set; Scale is then ignored. s_d is the prior
// standard deviation of the weight of feature d. Zero fields and entries mean 1. The parameters
// are Scale, or Scale[d] for each of Scales.
//
// In a Sum with a Constant it is the linear trend β_0 + βᵀx of a Gaussian process, with β ~ N(0,
// diag(s_0², …, s_D²)) integrated out. Predictions far from the data follow the trend. GP.Learn
// learns its scales, and GPPosterior.Part returns its coefficients.
type Linear struct {
	Scale  float64
	Scales []float64
}

// scale returns s_d.
func (k Linear) scale(d int) float64 {
	if len(k.Scales) == 0 {
		return gram.One(k.Scale)
	}
	return gram.One(k.Scales[d])
}

// Cov implements Kernel.
func (k Linear) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	if len(k.Scales) > 0 {
		gram.MustLen(k.Scales, len(x))
	}
	var sum float64
	for d, v := range x {
		s := k.scale(d)
		sum += (s * v) * (s * y[d])
	}
	return sum
}

// Params implements Kernel.
func (k Linear) Params() []Param { return scaleParams("Scale", k.Scale, k.Scales) }

// WithParams implements Kernel.
func (k Linear) WithParams(values []float64) Kernel {
	gram.MustLen(values, k.numParams())
	k.Scale, k.Scales = withScales(k.Scale, k.Scales, values)
	return k
}

// Grad implements Kernel.
func (k Linear) Grad(dst, x, y []float64) float64 {
	gram.MustLen(dst, k.numParams())
	val := k.Cov(x, y)
	if len(k.Scales) == 0 {
		dst[0] = 2 * val
		return val
	}
	for d, v := range x {
		s := k.scale(d)
		dst[d] = 2 * (s * v) * (s * y[d])
	}
	return val
}

// Dim returns the number of Scales.
func (k Linear) Dim() int { return len(k.Scales) }

// features implements featured.
func (k Linear) features(dst, x []float64) []float64 {
	for d, v := range x {
		dst = append(dst, k.scale(d)*v)
	}
	return dst
}

// basis implements featured.
func (Linear) basis(d int) []float64 {
	at := make([]float64, d*d)
	for j := range d {
		at[j*d+j] = 1
	}
	return at
}

func (Linear) is(k Kernel) bool { return isType[Linear](k) }

func (k Linear) numParams() int { return max(1, len(k.Scales)) }

// fill stores the covariances in the order of Cov.
func (k Linear) fill(dst []float64, t *gram.Tile) {
	gram.Products(dst, t, k.scale)
}

func (k Linear) pull(dst, w []float64, t *gram.Tile) { pullPairs(k, dst, w, t) }

// White is the kernel of independent noise with standard deviation Scale; zero means 1. Its
// parameter is Scale.
//
// It adds Scale² to the diagonal of the training Gram matrix, through Noisy, and is zero
// everywhere else: between equal training rows, between training and test rows, and in the prior
// variance at new points. Predictions are therefore those of the noise-free latent function.
// Within a Product it restricts the other factors to the diagonal.
type White struct {
	Scale float64
}

// Cov implements Kernel; it is always 0.
func (k White) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	return 0
}

// Params implements Kernel.
func (k White) Params() []Param { return Constant(k).Params() }

// WithParams implements Kernel.
func (k White) WithParams(values []float64) Kernel {
	gram.MustLen(values, 1)
	return White{Scale: values[0]}
}

// Grad implements Kernel; it stores 0 and returns 0.
func (k White) Grad(dst, x, y []float64) float64 {
	gram.MustLen(dst, 1)
	dst[0] = 0
	return k.Cov(x, y)
}

// SelfCov implements Noisy: Scale².
func (k White) SelfCov(x []float64) float64 { return Constant(k).Cov(x, x) }

// GradSelf implements Noisy.
func (k White) GradSelf(dst, x []float64) float64 { return Constant(k).Grad(dst, x, x) }

func (White) is(k Kernel) bool { return isType[White](k) }

func (White) numParams() int { return 1 }

func (White) fill(dst []float64, _ *gram.Tile) { clear(dst) }

func (White) pull(_, _ []float64, _ *gram.Tile) {}
