package pgsvi

var _ = builtin{
	"pgsvi.Linear":   Linear{},
	"pgsvi.Constant": Constant{},
	"pgsvi.White":    White{},
}.register()

// featured is a kernel k(x, x′) = φ(x)ᵀφ(x′) of few features: a linear model in them, with weights N(0, I).
type featured interface {
	Kernel
	// features appends φ(x) to dst.
	features(dst, x []float64) []float64
	// basis returns inputs of d columns, one after the other, at each of which one feature alone is not zero, its own.
	basis(d int) []float64
}

// Linear is the covariance function of linear regression without an intercept
// (add a Constant for one),
//
//	k(x, x′) = Σ_d s_d² x_d x′_d,
//
// with s_d = Scale, or s_d = Scales[d] where there are Scales; Scale is then
// ignored. s_d is the prior standard deviation of the weight of feature d. Zero
// fields and entries mean 1. The parameters are Scale, or Scale[d] for each of
// Scales.
//
// In a Sum with a Constant it is the linear trend of a Gaussian process, β_0 + βᵀx with β ~ N(0, diag(s_0², …, s_D²)) integrated out: far from the data predictions follow
// it. GP.Learn learns its scales with the rest, and GPPosterior.Part tells the coefficients.
type Linear struct {
	Scale  float64
	Scales []float64
}

// scale returns s_d.
func (k Linear) scale(d int) float64 {
	if len(k.Scales) == 0 {
		return kernelOne(k.Scale)
	}
	return kernelOne(k.Scales[d])
}

// Cov implements Kernel.
func (k Linear) Cov(x, y []float64) float64 {
	kernelLen(y, len(x))
	if len(k.Scales) > 0 {
		kernelLen(k.Scales, len(x))
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
	kernelLen(values, k.numParams())
	k.Scale, k.Scales = withScales(k.Scale, k.Scales, values)
	return k
}

// Grad implements Kernel.
func (k Linear) Grad(dst, x, y []float64) float64 {
	kernelLen(dst, k.numParams())
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

// Dim implements Dimensional: the number of Scales.
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
func (k Linear) fill(dst []float64, t *kernelTile) {
	n, m, dim := t.x.Rows, t.y.Rows, t.x.Cols
	a, bt := t.get(n*dim), t.get(dim*m)
	for i := range n {
		for d, v := range kernelRow(t.x, i) {
			a[i*dim+d] = k.scale(d) * v
		}
	}
	for j := range m {
		for d, v := range kernelRow(t.y, j) {
			bt[d*m+j] = k.scale(d) * v
		}
	}
	kernelGemm(1, dst, a, bt, n, m, dim)
}

func (k Linear) pull(dst, w []float64, t *kernelTile) { pullPairs(k, dst, w, t) }

// Constant is k(x, x′) = Scale², the covariance function of an unknown offset
// with standard deviation Scale; zero means 1. Its parameter is Scale.
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

// White is independent noise with standard deviation Scale; zero means 1. Its
// parameter is Scale.
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

// Params implements Kernel.
func (k White) Params() []Param { return Constant(k).Params() }

// WithParams implements Kernel.
func (k White) WithParams(values []float64) Kernel {
	kernelLen(values, 1)
	return White{Scale: values[0]}
}

// Grad implements Kernel; it stores 0 and returns 0.
func (k White) Grad(dst, x, y []float64) float64 {
	kernelLen(dst, 1)
	dst[0] = 0
	return k.Cov(x, y)
}

// SelfCov implements Noisy: Scale².
func (k White) SelfCov(x []float64) float64 { return Constant(k).Cov(x, x) }

// GradSelf implements Noisy.
func (k White) GradSelf(dst, x []float64) float64 { return Constant(k).Grad(dst, x, x) }

func (White) is(k Kernel) bool { return isType[White](k) }

func (White) numParams() int { return 1 }

func (White) fill(dst []float64, _ *kernelTile) { clear(dst) }

func (White) pull(_, _ []float64, _ *kernelTile) {}
