package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/special"
)

// kernelScaled holds what the stationary kernels share: a signal standard
// deviation s, and the lengths in r² = Σ_d (x_d − x′_d)²/ℓ_d².
type kernelScaled struct {
	Scale, Length float64
	Lengths       []float64
}

func (k kernelScaled) numParams() int {
	if k.Lengths != nil {
		return 1 + len(k.Lengths)
	}
	return 2
}

// params fills the head of dst.
func (k kernelScaled) params(dst []float64) []float64 {
	dst[0] = math.Log(kernelOne(k.Scale))
	if k.Lengths == nil {
		dst[1] = math.Log(kernelOne(k.Length))
	}
	for d, l := range k.Lengths {
		dst[1+d] = math.Log(kernelOne(l))
	}
	return dst
}

// withParams reads the head of p.
func (k kernelScaled) withParams(p []float64) kernelScaled {
	k.Scale = math.Exp(p[0])
	if k.Lengths == nil {
		k.Length = math.Exp(p[1])
		return k
	}
	k.Lengths = make([]float64, len(k.Lengths))
	for d := range k.Lengths {
		k.Lengths[d] = math.Exp(p[1+d])
	}
	return k
}

// variance returns s².
func (k kernelScaled) variance() float64 {
	s := kernelOne(k.Scale)
	return s * s
}

// dist2 returns r² by differences: free of cancellation, and exactly zero for
// equal arguments.
func (k kernelScaled) dist2(x, y []float64) float64 {
	kernelLen(y, len(x))
	var r2 float64
	if k.Lengths == nil {
		for d, v := range x {
			t := v - y[d]
			r2 += t * t
		}
		l := kernelOne(k.Length)
		return r2 / (l * l)
	}
	kernelLen(k.Lengths, len(x))
	for d, v := range x {
		t := (v - y[d]) / kernelOne(k.Lengths[d])
		r2 += t * t
	}
	return r2
}

// features returns the number of coordinates in which r² is a plain squared
// distance, or 0 where dist2 is faster than the detour over them.
func (k kernelScaled) features(d int) int {
	if d <= 4 {
		return 0
	}
	return d
}

// embed stores the coordinates of x, taken from centre, in every inc-th element
// of dst.
func (k kernelScaled) embed(dst []float64, inc int, x, centre []float64) {
	centre = centre[:len(x)]
	if k.Lengths == nil {
		l := 1 / kernelOne(k.Length)
		for d, v := range x {
			dst[d*inc] = (v - centre[d]) * l
		}
		return
	}
	for d, v := range x {
		dst[d*inc] = (v - centre[d]) / kernelOne(k.Lengths[d])
	}
}

// grad stores the derivatives with respect to log s and log ℓ in the head of
// dst, given r², k and g = −2 dk/dr².
func (k kernelScaled) grad(dst, x, y []float64, r2, val, g float64) {
	dst[0] = 2 * val
	if k.Lengths == nil {
		dst[1] = g * r2
		return
	}
	for d, v := range x {
		t := (v - y[d]) / kernelOne(k.Lengths[d])
		dst[1+d] = g * t * t
	}
}

// kernelRadial is a kernel that is a profile of a squared distance r².
type kernelRadial interface {
	Kernel
	scaled() kernelScaled
	dist2(x, y []float64) float64
	features(d int) int
	embed(dst []float64, inc int, x, centre []float64)
	// values replaces every r² by k.
	values(r2 []float64)
	// slope returns −2 dk/dr², given r² and k.
	slope(r2, val float64) float64
	// shape returns the derivative with respect to the log-parameter behind the
	// lengths; ok is false if there is none.
	shape(x, y []float64, r2, val float64) (grad float64, ok bool)
}

// SquaredExp is the squared exponential (Gaussian, RBF) covariance function
//
//	k(x, x′) = Scale² exp(−r²/2),  r² = Σ_d (x_d − x′_d)²/ℓ_d²
//
// with ℓ_d = Length, or ℓ_d = Lengths[d] where Lengths is not nil ("automatic
// relevance determination", Neal 1996); Length is then ignored. Scale is the
// standard deviation of the latent function. Zero fields and entries mean 1.
// The parameters are log Scale and log Length, or log Scale and log Lengths.
type SquaredExp struct {
	Scale, Length float64
	Lengths       []float64
}

// Cov implements Kernel.
func (k SquaredExp) Cov(x, y []float64) float64 {
	v := [1]float64{k.dist2(x, y)}
	k.values(v[:])
	return v[0]
}

// NumParams implements Kernel.
func (k SquaredExp) NumParams() int { return k.scaled().numParams() }

// Params implements Kernel.
func (k SquaredExp) Params(dst []float64) []float64 {
	return k.scaled().params(kernelDst(dst, k.NumParams()))
}

// WithParams implements Kernel.
func (k SquaredExp) WithParams(p []float64) Kernel {
	kernelLen(p, k.NumParams())
	return SquaredExp(k.scaled().withParams(p))
}

// GradParams implements Kernel.
func (k SquaredExp) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, k.NumParams())
	r2, val := k.dist2(x, y), k.Cov(x, y)
	k.scaled().grad(dst, x, y, r2, val, k.slope(r2, val))
	return val
}

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k SquaredExp) ValidateDim(d int) error {
	return kernelCheck("SquaredExp", d, "Lengths", k.Lengths, "Scale", k.Scale, "Length", k.Length)
}

// Validate reports every violation at once; see ValidateKernel.
func (k SquaredExp) Validate() error { return k.ValidateDim(-1) }

func (k SquaredExp) scaled() kernelScaled { return kernelScaled(k) }

func (k SquaredExp) shape(_, _ []float64, _, _ float64) (float64, bool) { return 0, false }

func (k SquaredExp) dist2(x, y []float64) float64 { return k.scaled().dist2(x, y) }

func (k SquaredExp) features(d int) int { return k.scaled().features(d) }

func (k SquaredExp) embed(dst []float64, inc int, x, centre []float64) {
	k.scaled().embed(dst, inc, x, centre)
}

func (k SquaredExp) values(r2 []float64) {
	special.ExpScaled(r2, -0.5, k.scaled().variance())
}

func (k SquaredExp) slope(r2, val float64) float64 {
	return val
}

// Matern12 is the Matérn covariance function with ν = 1/2, the exponential or
// Ornstein–Uhlenbeck kernel, k = Scale² exp(−r) (Matérn 1960). Fields,
// parameters and r are those of SquaredExp.
type Matern12 struct {
	Scale, Length float64
	Lengths       []float64
}

// Cov implements Kernel.
func (k Matern12) Cov(x, y []float64) float64 {
	v := [1]float64{k.dist2(x, y)}
	k.values(v[:])
	return v[0]
}

// NumParams implements Kernel.
func (k Matern12) NumParams() int { return k.scaled().numParams() }

// Params implements Kernel.
func (k Matern12) Params(dst []float64) []float64 {
	return k.scaled().params(kernelDst(dst, k.NumParams()))
}

// WithParams implements Kernel.
func (k Matern12) WithParams(p []float64) Kernel {
	kernelLen(p, k.NumParams())
	return Matern12(k.scaled().withParams(p))
}

// GradParams implements Kernel.
func (k Matern12) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, k.NumParams())
	r2, val := k.dist2(x, y), k.Cov(x, y)
	k.scaled().grad(dst, x, y, r2, val, k.slope(r2, val))
	return val
}

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k Matern12) ValidateDim(d int) error {
	return kernelCheck("Matern12", d, "Lengths", k.Lengths, "Scale", k.Scale, "Length", k.Length)
}

// Validate reports every violation at once; see ValidateKernel.
func (k Matern12) Validate() error { return k.ValidateDim(-1) }

func (k Matern12) scaled() kernelScaled { return kernelScaled(k) }

func (k Matern12) shape(_, _ []float64, _, _ float64) (float64, bool) { return 0, false }

func (k Matern12) dist2(x, y []float64) float64 { return k.scaled().dist2(x, y) }

func (k Matern12) features(d int) int { return k.scaled().features(d) }

func (k Matern12) embed(dst []float64, inc int, x, centre []float64) {
	k.scaled().embed(dst, inc, x, centre)
}

func (k Matern12) values(r2 []float64) {
	for i, r := range r2 {
		r2[i] = math.Sqrt(r)
	}
	special.ExpScaled(r2, -1, k.scaled().variance())
}

func (k Matern12) slope(r2, val float64) float64 {
	if r2 == 0 {
		return 0 // k has a kink here, but slope·(x − x′)² tends to 0
	}
	return val / math.Sqrt(r2)
}

// Matern32 is the Matérn covariance function with ν = 3/2,
// k = Scale² (1 + √3 r) exp(−√3 r) (Matérn 1960). Fields, parameters and r are
// those of SquaredExp.
type Matern32 struct {
	Scale, Length float64
	Lengths       []float64
}

// Cov implements Kernel.
func (k Matern32) Cov(x, y []float64) float64 {
	v := [1]float64{k.dist2(x, y)}
	k.values(v[:])
	return v[0]
}

// NumParams implements Kernel.
func (k Matern32) NumParams() int { return k.scaled().numParams() }

// Params implements Kernel.
func (k Matern32) Params(dst []float64) []float64 {
	return k.scaled().params(kernelDst(dst, k.NumParams()))
}

// WithParams implements Kernel.
func (k Matern32) WithParams(p []float64) Kernel {
	kernelLen(p, k.NumParams())
	return Matern32(k.scaled().withParams(p))
}

// GradParams implements Kernel.
func (k Matern32) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, k.NumParams())
	r2, val := k.dist2(x, y), k.Cov(x, y)
	k.scaled().grad(dst, x, y, r2, val, k.slope(r2, val))
	return val
}

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k Matern32) ValidateDim(d int) error {
	return kernelCheck("Matern32", d, "Lengths", k.Lengths, "Scale", k.Scale, "Length", k.Length)
}

// Validate reports every violation at once; see ValidateKernel.
func (k Matern32) Validate() error { return k.ValidateDim(-1) }

func (k Matern32) scaled() kernelScaled { return kernelScaled(k) }

func (k Matern32) shape(_, _ []float64, _, _ float64) (float64, bool) { return 0, false }

func (k Matern32) dist2(x, y []float64) float64 { return k.scaled().dist2(x, y) }

func (k Matern32) features(d int) int { return k.scaled().features(d) }

func (k Matern32) embed(dst []float64, inc int, x, centre []float64) {
	k.scaled().embed(dst, inc, x, centre)
}

func (k Matern32) values(r2 []float64) {
	special.PolyExp(r2, 3, k.scaled().variance(), 0)
}

func (k Matern32) slope(r2, val float64) float64 {
	return 3 * val / (1 + math.Sqrt(3*r2))
}

// Matern52 is the Matérn covariance function with ν = 5/2,
// k = Scale² (1 + √5 r + 5r²/3) exp(−√5 r) (Matérn 1960). Fields, parameters
// and r are those of SquaredExp.
type Matern52 struct {
	Scale, Length float64
	Lengths       []float64
}

// Cov implements Kernel.
func (k Matern52) Cov(x, y []float64) float64 {
	v := [1]float64{k.dist2(x, y)}
	k.values(v[:])
	return v[0]
}

// NumParams implements Kernel.
func (k Matern52) NumParams() int { return k.scaled().numParams() }

// Params implements Kernel.
func (k Matern52) Params(dst []float64) []float64 {
	return k.scaled().params(kernelDst(dst, k.NumParams()))
}

// WithParams implements Kernel.
func (k Matern52) WithParams(p []float64) Kernel {
	kernelLen(p, k.NumParams())
	return Matern52(k.scaled().withParams(p))
}

// GradParams implements Kernel.
func (k Matern52) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, k.NumParams())
	r2, val := k.dist2(x, y), k.Cov(x, y)
	k.scaled().grad(dst, x, y, r2, val, k.slope(r2, val))
	return val
}

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k Matern52) ValidateDim(d int) error {
	return kernelCheck("Matern52", d, "Lengths", k.Lengths, "Scale", k.Scale, "Length", k.Length)
}

// Validate reports every violation at once; see ValidateKernel.
func (k Matern52) Validate() error { return k.ValidateDim(-1) }

func (k Matern52) scaled() kernelScaled { return kernelScaled(k) }

func (k Matern52) shape(_, _ []float64, _, _ float64) (float64, bool) { return 0, false }

func (k Matern52) dist2(x, y []float64) float64 { return k.scaled().dist2(x, y) }

func (k Matern52) features(d int) int { return k.scaled().features(d) }

func (k Matern52) embed(dst []float64, inc int, x, centre []float64) {
	k.scaled().embed(dst, inc, x, centre)
}

func (k Matern52) values(r2 []float64) {
	special.PolyExp(r2, 5, k.scaled().variance(), 1.0/3)
}

func (k Matern52) slope(r2, val float64) float64 {
	a := math.Sqrt(5 * r2)
	return 5. / 3 * (1 + a) * val / (1 + a + a*a/3)
}

// RationalQuadratic is k = Scale² (1 + r²/(2 Alpha))^(−Alpha), a scale mixture
// of squared exponentials (Rasmussen & Williams 2006, eq. 4.19). Fields and r
// are those of SquaredExp; a zero Alpha means 1. log Alpha is the last parameter.
type RationalQuadratic struct {
	Scale, Length float64
	Lengths       []float64
	Alpha         float64
}

// Cov implements Kernel.
func (k RationalQuadratic) Cov(x, y []float64) float64 {
	v := [1]float64{k.dist2(x, y)}
	k.values(v[:])
	return v[0]
}

// NumParams implements Kernel.
func (k RationalQuadratic) NumParams() int { return k.scaled().numParams() + 1 }

// Params implements Kernel.
func (k RationalQuadratic) Params(dst []float64) []float64 {
	dst = k.scaled().params(kernelDst(dst, k.NumParams()))
	dst[len(dst)-1] = math.Log(kernelOne(k.Alpha))
	return dst
}

// WithParams implements Kernel.
func (k RationalQuadratic) WithParams(p []float64) Kernel {
	kernelLen(p, k.NumParams())
	s := k.scaled().withParams(p)
	return RationalQuadratic{Scale: s.Scale, Length: s.Length, Lengths: s.Lengths, Alpha: math.Exp(p[len(p)-1])}
}

// GradParams implements Kernel.
func (k RationalQuadratic) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, k.NumParams())
	r2, val := k.dist2(x, y), k.Cov(x, y)
	k.scaled().grad(dst, x, y, r2, val, k.slope(r2, val))
	dst[len(dst)-1], _ = k.shape(x, y, r2, val)
	return val
}

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k RationalQuadratic) ValidateDim(d int) error {
	return kernelCheck("RationalQuadratic", d, "Lengths", k.Lengths, "Scale", k.Scale, "Length", k.Length, "Alpha", k.Alpha)
}

// Validate reports every violation at once; see ValidateKernel.
func (k RationalQuadratic) Validate() error { return k.ValidateDim(-1) }

func (k RationalQuadratic) scaled() kernelScaled {
	return kernelScaled{k.Scale, k.Length, k.Lengths}
}

func (k RationalQuadratic) shape(_, _ []float64, r2, val float64) (float64, bool) {
	alpha := kernelOne(k.Alpha)
	u := r2 / (2 * alpha)
	return alpha * val * (u/(1+u) - math.Log1p(u)), true
}

func (k RationalQuadratic) dist2(x, y []float64) float64 { return k.scaled().dist2(x, y) }

func (k RationalQuadratic) features(d int) int { return k.scaled().features(d) }

func (k RationalQuadratic) embed(dst []float64, inc int, x, centre []float64) {
	k.scaled().embed(dst, inc, x, centre)
}

func (k RationalQuadratic) values(r2 []float64) {
	s2, alpha := k.scaled().variance(), kernelOne(k.Alpha)
	if alpha == 1 {
		for i, r := range r2 {
			r2[i] = s2 / (1 + r/2)
		}
		return
	}
	for i, r := range r2 {
		r2[i] = math.Log1p(r / (2 * alpha))
	}
	special.ExpScaled(r2, -alpha, s2)
}

func (k RationalQuadratic) slope(r2, val float64) float64 {
	return val / (1 + r2/(2*kernelOne(k.Alpha)))
}

// Periodic is the periodic covariance function (MacKay 1998)
//
//	k(x, x′) = Scale² exp(−(2/Length²) Σ_d sin²(π(x_d − x′_d)/Period)).
//
// Zero fields mean 1. The parameters are log Scale, log Length and log Period.
type Periodic struct {
	Scale, Length, Period float64
}

// Cov implements Kernel.
func (k Periodic) Cov(x, y []float64) float64 {
	v := [1]float64{k.dist2(x, y)}
	k.values(v[:])
	return v[0]
}

// NumParams implements Kernel.
func (k Periodic) NumParams() int { return k.scaled().numParams() + 1 }

// Params implements Kernel.
func (k Periodic) Params(dst []float64) []float64 {
	dst = k.scaled().params(kernelDst(dst, k.NumParams()))
	dst[len(dst)-1] = math.Log(kernelOne(k.Period))
	return dst
}

// WithParams implements Kernel.
func (k Periodic) WithParams(p []float64) Kernel {
	kernelLen(p, k.NumParams())
	s := k.scaled().withParams(p)
	return Periodic{Scale: s.Scale, Length: s.Length, Period: math.Exp(p[len(p)-1])}
}

// GradParams implements Kernel.
func (k Periodic) GradParams(dst, x, y []float64) float64 {
	kernelLen(dst, k.NumParams())
	r2, val := k.dist2(x, y), k.Cov(x, y)
	k.scaled().grad(dst, x, y, r2, val, k.slope(r2, val))
	dst[len(dst)-1], _ = k.shape(x, y, r2, val)
	return val
}

// ValidateDim is Validate for data of dimension d; see ValidateKernel.
func (k Periodic) ValidateDim(d int) error {
	return kernelCheck("Periodic", d, "Lengths", nil, "Scale", k.Scale, "Length", k.Length, "Period", k.Period)
}

// Validate reports every violation at once; see ValidateKernel.
func (k Periodic) Validate() error { return k.ValidateDim(-1) }

func (k Periodic) scaled() kernelScaled { return kernelScaled{Scale: k.Scale, Length: k.Length} }

// dist2 returns (4/Length²) Σ_d sin²(π(x_d − x′_d)/Period).
func (k Periodic) dist2(x, y []float64) float64 {
	kernelLen(y, len(x))
	p := kernelOne(k.Period)
	var sum float64
	for d, v := range x {
		// The remainders are exact, so that far periods cost no accuracy.
		s := math.Sin(math.Pi / p * (math.Remainder(v, p) - math.Remainder(y[d], p)))
		sum += s * s
	}
	l := kernelOne(k.Length)
	return 4 * sum / (l * l)
}

// features: r² is the squared distance of points on D circles.
func (k Periodic) features(d int) int { return 2 * d }

func (k Periodic) embed(dst []float64, inc int, x, _ []float64) {
	p, l := kernelOne(k.Period), kernelOne(k.Length)
	for d, v := range x {
		sin, cos := math.Sincos(2 * math.Pi / p * math.Remainder(v, p))
		dst[2*d*inc], dst[(2*d+1)*inc] = cos/l, sin/l
	}
}

func (k Periodic) shape(x, y []float64, r2, val float64) (float64, bool) {
	p, l := kernelOne(k.Period), kernelOne(k.Length)
	var sum float64
	for d, v := range x {
		sum += math.Sin(2*math.Pi/p*(math.Remainder(v, p)-math.Remainder(y[d], p))) * (v - y[d])
	}
	return 2 * math.Pi / p * val * sum / (l * l), true
}

func (k Periodic) values(r2 []float64) {
	SquaredExp{Scale: k.Scale}.values(r2)
}

func (k Periodic) slope(r2, val float64) float64 {
	return val
}
