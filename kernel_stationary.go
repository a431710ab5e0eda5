package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

var _ = builtin{
	"pgsvi.SquaredExp":        SquaredExp{},
	"pgsvi.Matern12":          Matern12{},
	"pgsvi.Matern32":          Matern32{},
	"pgsvi.Matern52":          Matern52{},
	"pgsvi.RationalQuadratic": RationalQuadratic{},
	"pgsvi.Periodic":          Periodic{},
}.register()

// Profile is the function ρ(r²), with ρ(0) = 1, of an isotropic kernel; see Iso. Its methods get
// many squared distances at a time, and are called from several goroutines.
//
// A Profile with a parameter θ of its own, such as that of RationalQuadratic, has three more
// methods:
//
//	Shape() Param                     // θ; a default is not given as zero
//	WithShape(value float64) Profile  // a Profile of the same type with that value
//	GradShape(dst, r2, rho []float64) // stores ∂ρ/∂θ, or ∂ρ/∂log θ if Min ≥ 0, given r² and ρ(r²)
type Profile interface {
	// Values replaces every r² by ρ(r²). Each result depends only on its own r², to the last bit,
	// and not on its place in the slice.
	Values(r2 []float64)
	// Slopes stores −2ρ′(r²) in dst, given r² and ρ(r²). Scale² times this times (x_d −
	// x′_d)²/ℓ_d² is the derivative of the kernel by log ℓ_d. Where it grows without bound
	// towards r² = 0, it must be 0 at r² = 0.
	Slopes(dst, r2, rho []float64)
}

// shapedProfile is a Profile with a parameter of its own; see Profile.
type shapedProfile interface {
	Profile
	Shape() Param
	WithShape(value float64) Profile
	GradShape(dst, r2, rho []float64)
}

// Iso is the stationary isotropic kernel of a Profile ρ,
//
//	k(x, x′) = Scale² ρ(r²),  r² = Σ_d (x_d − x′_d)²/ℓ_d²,
//
// with ℓ_d = Length, or ℓ_d = Lengths[d] if Lengths is set ("automatic relevance determination",
// ARD; Neal 1996); Length is then ignored. Scale is the standard deviation of the latent
// function. Zero fields and entries mean 1. The parameters are Scale, then Length, or Length[d]
// for each of Lengths, then the Shape of the Profile, if it has one.
//
// To define a kernel of your own, write a Profile and name the type, as in the example. It is as
// fast as those of this package. Register gives it the name for saving.
type Iso[P Profile] struct {
	Scale, Length float64
	Lengths       []float64
	Profile       P `json:",omitzero"`
}

// SquaredExp is the squared exponential (Gaussian, RBF) covariance function,
// Scale² exp(−r²/2). Its fields are those of Iso.
type SquaredExp = Iso[squaredExp]

// Matern12 is the Matérn covariance function with ν = 1/2, the exponential or
// Ornstein–Uhlenbeck kernel, Scale² exp(−r) (Matérn 1960). Its fields are those
// of Iso.
type Matern12 = Iso[matern12]

// Matern32 is the Matérn covariance function with ν = 3/2,
// Scale² (1 + √3 r) exp(−√3 r) (Matérn 1960). Its fields are those of Iso.
type Matern32 = Iso[matern32]

// Matern52 is the Matérn covariance function with ν = 5/2,
// Scale² (1 + √5 r + 5r²/3) exp(−√5 r) (Matérn 1960). Its fields are those of Iso.
type Matern52 = Iso[matern52]

// RationalQuadratic is Scale² (1 + r²/(2α))^(−α), a scale mixture of squared
// exponentials (Rasmussen & Williams 2006, eq. 4.19). Its fields are those of
// Iso; α is in the Profile, and zero means 1:
//
//	k := RationalQuadratic{Length: 2}
//	k.Profile.Alpha = 0.5
type RationalQuadratic = Iso[rational]

// Cov implements Kernel.
func (k Iso[P]) Cov(x, y []float64) float64 {
	t := kernelTiles.Get().(*kernelTile)
	val := t.get(1)
	val[0] = k.lengths().dist2(x, y)
	k.values(val)
	cov := val[0]
	t.free()
	return cov
}

// Params implements Kernel.
func (k Iso[P]) Params() []Param {
	params := append(scaleParams("Scale", k.Scale, nil), scaleParams("Length", k.Length, k.Lengths)...)
	if s, ok := any(k.Profile).(shapedProfile); ok {
		params = append(params, s.Shape())
	}
	return params
}

// WithParams implements Kernel.
func (k Iso[P]) WithParams(values []float64) Kernel {
	n := k.numParams()
	kernelLen(values, n)
	k.Scale = values[0]
	k.Length, k.Lengths = withScales(k.Length, k.Lengths, values[1:])
	if s, ok := any(k.Profile).(shapedProfile); ok {
		k.Profile = s.WithShape(values[n-1]).(P)
	}
	return k
}

// Grad implements Kernel.
func (k Iso[P]) Grad(dst, x, y []float64) float64 {
	kernelLen(dst, k.numParams())
	t := kernelTiles.Get().(*kernelTile)
	r2, rho, slope := t.get(1), t.get(1), t.get(1)
	r2[0] = k.lengths().dist2(x, y)
	rho[0] = r2[0]
	k.Profile.Values(rho)
	k.Profile.Slopes(slope, r2, rho)
	s2 := k.variance()
	val, g := s2*rho[0], s2*slope[0]
	dst[0] = 2 * val
	if len(k.Lengths) == 0 {
		dst[1] = g * r2[0]
	}
	for d, l := range k.Lengths {
		u := (x[d] - y[d]) / kernelOne(l)
		dst[1+d] = g * u * u
	}
	if s, ok := shapeOf(k.Profile, &t.profile); ok {
		s.GradShape(slope, r2, rho)
		dst[len(dst)-1] = s2 * slope[0]
	}
	t.free()
	return val
}

// Dim returns the number of Lengths.
func (k Iso[P]) Dim() int { return len(k.Lengths) }

func (k Iso[P]) lengths() lengthScales { return lengthScales{kernelOne(k.Length), k.Lengths} }

func (k Iso[P]) variance() float64 {
	s := kernelOne(k.Scale)
	return s * s
}

// values replaces every r² by k.
func (k Iso[P]) values(r2 []float64) {
	k.Profile.Values(r2)
	scaleBy(r2, k.variance())
}

func scaleBy(v []float64, by float64) {
	if by == 1 {
		return
	}
	fma.Scale(by, v)
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

func (k Iso[P]) fill(dst []float64, t *kernelTile) {
	k.lengths().fill(dst, t)
	k.values(dst)
}

func (k Iso[P]) pull(dst, w []float64, t *kernelTile) {
	r2, rho, slope := t.get(len(w)), t.get(len(w)), t.get(len(w))
	k.lengths().fill(r2, t)
	copy(rho, r2)
	k.Profile.Values(rho)
	k.Profile.Slopes(slope, r2, rho)
	s2 := k.variance()
	k.lengths().pull(dst, w, r2, rho, slope, s2, t)
	if s, ok := shapeOf(k.Profile, &t.profile); ok {
		var dShape float64
		for m := t.y.Rows; len(w) > 0; w, r2, rho, slope = w[m:], r2[m:], rho[m:], slope[m:] {
			lo := 0 // the pairs left of the diagonal have no weight
			for lo < m && w[lo] == 0 {
				lo++
			}
			s.GradShape(slope[lo:m], r2[lo:m], rho[lo:m])
			for i, wi := range w[lo:m] {
				if wi != 0 {
					dShape += wi * slope[lo+i]
				}
			}
		}
		dst[len(dst)-1] += s2 * dShape
	}
}

// shapeOf returns p as a shapedProfile, if it is one, in memory that box keeps
// between calls.
func shapeOf[P Profile](p P, box *any) (s shapedProfile, ok bool) {
	if _, ok := any(p).(shapedProfile); !ok {
		return nil, false
	}
	b, ok := (*box).(*P)
	if !ok {
		b = new(P)
		*box = b
	}
	*b = p
	if s, ok = any(b).(shapedProfile); !ok {
		s, ok = any(p).(shapedProfile) // P is a pointer
	}
	return s, ok
}

// lengthScales is r² = Σ_d (x_d − x′_d)²/ℓ_d², with ℓ_d = one, or each[d] where
// there are any.
type lengthScales struct {
	one  float64
	each []float64
}

func (l lengthScales) dist2(x, y []float64) float64 {
	kernelLen(y, len(x))
	var r2 float64
	if len(l.each) == 0 {
		for d, v := range x {
			t := v - y[d]
			r2 += float64(t * t) // not fused, on any processor
		}
		return r2 / (l.one * l.one)
	}
	kernelLen(l.each, len(x))
	for d, v := range x {
		t := (v - y[d]) / kernelOne(l.each[d])
		r2 += float64(t * t)
	}
	return r2
}

// fill is fillDist2, but for one length where the distances are at hand.
func (l lengthScales) fill(dst []float64, t *kernelTile) {
	if len(l.each) > 0 || t.r2.Data == nil {
		fillDist2(l, dst, t)
		return
	}
	s, m := l.one*l.one, t.y.Rows
	for i := range t.x.Rows {
		row := dst[i*m : (i+1)*m]
		copy(row, t.r2.Data[i*t.r2.Stride:])
		fma.Divide(row, s)
	}
}

// columns implements tileMetric.
func (l lengthScales) columns(dst, x, yt []float64) bool {
	clear(dst)
	if len(l.each) == 0 {
		for d, v := range x {
			fma.AddSquares(dst, v, yt[d*len(dst):(d+1)*len(dst)])
		}
		fma.Divide(dst, l.one*l.one)
		return true
	}
	kernelLen(l.each, len(x))
	for d, v := range x {
		fma.AddSquaresOver(dst, v, yt[d*len(dst):(d+1)*len(dst)], kernelOne(l.each[d]))
	}
	return true
}

// Up to so many columns differences are faster than products of matrices: with one length for all,
// and with one for each, which takes a division a column.
const (
	differencesOfOne  = 12
	differencesOfEach = 4
)

func (l lengthScales) features(d int) int {
	if d <= differencesOfEach || len(l.each) == 0 && d <= differencesOfOne {
		return 0
	}
	return d
}

func (l lengthScales) embed(dst []float64, inc int, x, centre []float64) {
	centre = centre[:len(x)]
	if len(l.each) == 0 {
		inverse := 1 / l.one
		for d, v := range x {
			dst[d*inc] = (v - centre[d]) * inverse
		}
		return
	}
	for d, v := range x {
		dst[d*inc] = (v - centre[d]) / kernelOne(l.each[d])
	}
}

// pull adds Σ w ∂(s2 ρ)/∂θ over the pairs of the tile to dst, for θ = log s, with
// s2 = s², and the logarithms of the lengths. It overwrites slope.
func (l lengthScales) pull(dst, w, r2, rho, slope []float64, s2 float64, t *kernelTile) {
	var dScale, dLength float64
	for i, wi := range w {
		g := 0.0
		if wi != 0 {
			g = wi * slope[i]
			dScale += wi * rho[i]
			dLength += g * r2[i]
		}
		slope[i] = g
	}
	dst[0] += 2 * s2 * dScale
	if len(l.each) == 0 {
		dst[1] += s2 * dLength
		return
	}
	sum := t.get(len(l.each))
	clear(sum)
	for i := range t.x.Rows {
		addSquaredDiffs(sum, slope[i*t.y.Rows:(i+1)*t.y.Rows], kernelRow(t.x, i), t.y)
	}
	for d, v := range sum {
		l := kernelOne(l.each[d])
		dst[1+d] += s2 * v / (l * l)
	}
}

// addSquaredDiffs adds Σ_j g_j (x_d − y_jd)² to each sum_d.
func addSquaredDiffs(sum, g, x []float64, y blas64.General) {
	for j, gj := range g {
		if gj == 0 {
			continue
		}
		row, sum := kernelRow(y, j)[:len(x)], sum[:len(x)]
		for d, v := range x {
			u := v - row[d]
			sum[d] += gj * (u * u)
		}
	}
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

// PolyExp replaces every r² by p(a) exp(−a), with a = √(c r²) and the polynomial
// p(a) = p[0] + p[1] a + p[2] a² + …: the Profile of a Matérn kernel of half-integer
// ν has c = 2ν and degree ν − ½. Its relative error is about 1e-15, and it is
// faster than a loop over math.Exp.
func PolyExp(r2 []float64, c float64, p ...float64) { special.PolyExp(r2, c, p) }

// rational is the shaped Profile (1 + r²/(2 Alpha))^(−Alpha) of RationalQuadratic.
// A zero Alpha means 1.
type rational struct{ Alpha float64 }

// Values implements Profile.
func (p rational) Values(r2 []float64) {
	alpha := kernelOne(p.Alpha)
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
		dst[i] = rho[i] / (1 + x/(2*kernelOne(p.Alpha)))
	}
}

// Shape returns Alpha.
func (p rational) Shape() Param { return Param{"Alpha", kernelOne(p.Alpha), 0, math.Inf(1)} }

func (p rational) WithShape(value float64) Profile { return rational{value} }

func (p rational) GradShape(dst, r2, rho []float64) {
	alpha := kernelOne(p.Alpha)
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
func (k Periodic) Cov(x, y []float64) float64 { return k.value(k.dist2(x, y)) }

// Params implements Kernel.
func (k Periodic) Params() []Param {
	inf := math.Inf(1)
	return []Param{
		{"Scale", kernelOne(k.Scale), 0, inf},
		{"Length", kernelOne(k.Length), 0, inf},
		{"Period", kernelOne(k.Period), 0, inf},
	}
}

// WithParams implements Kernel.
func (k Periodic) WithParams(values []float64) Kernel {
	kernelLen(values, 3)
	return Periodic{Scale: values[0], Length: values[1], Period: values[2]}
}

// Grad implements Kernel.
func (k Periodic) Grad(dst, x, y []float64) float64 {
	kernelLen(dst, 3)
	r2 := k.dist2(x, y)
	val := k.value(r2)
	dst[0], dst[1], dst[2] = 2*val, val*r2, val*k.gradPeriod(x, y)
	return val
}

// value returns k, given r².
func (k Periodic) value(r2 float64) float64 {
	v := [1]float64{r2}
	k.values(v[:])
	return v[0]
}

// values replaces every r² by k.
func (k Periodic) values(r2 []float64) {
	special.ExpRate(r2, -0.5)
	s := kernelOne(k.Scale)
	scaleBy(r2, s*s)
}

// gradPeriod returns ∂log k/∂log Period.
func (k Periodic) gradPeriod(x, y []float64) float64 {
	p, l := kernelOne(k.Period), kernelOne(k.Length)
	var sum float64
	for d, v := range x {
		sum += math.Sin(2*math.Pi/p*(math.Remainder(v, p)-math.Remainder(y[d], p))) * (v - y[d])
	}
	return 2 * math.Pi / p * sum / (l * l)
}

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

// columns implements tileMetric.
func (Periodic) columns(dst, x, yt []float64) bool { return false }

func (k Periodic) embed(dst []float64, inc int, x, _ []float64) {
	p, l := kernelOne(k.Period), kernelOne(k.Length)
	for d, v := range x {
		sin, cos := math.Sincos(2 * math.Pi / p * math.Remainder(v, p))
		dst[2*d*inc], dst[(2*d+1)*inc] = cos/l, sin/l
	}
}

func (Periodic) is(k Kernel) bool { return isType[Periodic](k) }

func (Periodic) numParams() int { return 3 }

func (k Periodic) fill(dst []float64, t *kernelTile) {
	fillDist2(k, dst, t)
	k.values(dst)
}

func (k Periodic) pull(dst, w []float64, t *kernelTile) {
	r2, val := t.get(len(w)), t.get(len(w))
	fillDist2(k, r2, t)
	copy(val, r2)
	k.values(val)
	var dScale, dLength, dPeriod float64
	for i := range t.x.Rows {
		x := kernelRow(t.x, i)
		for j := range t.y.Rows {
			at := i*t.y.Rows + j
			if w[at] == 0 {
				continue
			}
			g := w[at] * val[at]
			dScale += g
			dLength += g * r2[at]
			dPeriod += g * k.gradPeriod(x, kernelRow(t.y, j))
		}
	}
	dst[0] += 2 * dScale
	dst[1] += dLength
	dst[2] += dPeriod
}

// rowPairs are all pairs of rows of x, whose covariances are wanted under one kernel after the
// other. Kernels of one length are functions of the distances of the rows over it, which do not
// change.
type rowPairs struct {
	x  *mat.Dense
	r2 []float64 // |x_i − x_j|², both triangles; nil if they are not kept
}

// pairsOf returns the pairs of the rows of x with their distances, which overflow leaves out.
func pairsOf(x *mat.Dense) *rowPairs {
	p := &rowPairs{x: x}
	n, _ := x.Dims()
	r2 := make([]float64, n*n)
	j := kernelNewJob(distances{}, x, x)
	j.both, j.out = true, dense.General(r2, n, n)
	j.gram(nil)
	if _, ok := dense.AllFinite(r2); ok {
		p.r2 = r2
	}
	return p
}

// gram stores the training covariance under k, both triangles, in dst, which is of no use where h
// has stopped. See Gram.
func (p *rowPairs) gram(h *parallel.Halt, dst []float64, k Kernel) {
	n, _ := p.x.Dims()
	j := kernelNewJob(k, p.x, p.x)
	j.both, j.r2, j.out = true, p.r2, dense.General(dst, n, n)
	j.gram(h)
}

// slopes returns Σ_ij w_ij ∂K_ij/∂θ_p for the parameters of k, as GramGrad does.
func (p *rowPairs) slopes(h *parallel.Halt, k Kernel, w mat.Symmetric) []float64 {
	dst := make([]float64, numParams(k))
	j := kernelNewJob(k, p.x, p.x)
	j.r2, j.loop.Halt = p.r2, h
	j.pullAll(dst, w)
	return dst
}

// siteWeights are the weights ½(W − aaᵀ) of n rows, of which the lower triangle of W is at hand.
type siteWeights struct {
	n    int
	w, a []float64
}

// SymmetricDim implements mat.Symmetric.
func (s *siteWeights) SymmetricDim() int { return s.n }

// Dims implements mat.Matrix.
func (s *siteWeights) Dims() (r, c int) { return s.n, s.n }

// T implements mat.Matrix.
func (s *siteWeights) T() mat.Matrix { return s }

// At implements mat.Matrix.
func (s *siteWeights) At(i, j int) float64 {
	return 0.5 * (dense.SymmetricAt(s.w, s.n, i, j) - s.a[i]*s.a[j])
}

// tile implements tiledWeights.
func (s *siteWeights) tile(dst []float64, i0, i1, j0, j1 int) {
	m := j1 - j0
	for j := j0; j < j1; j++ {
		row, aj := s.w[j*s.n:], s.a[j]
		for i := i0; i < min(i1, j); i++ {
			dst[(i-i0)*m+j-j0] = row[i] - s.a[i]*aj
		}
	}
}

// distances is a native kernel in name only: the squared distance of its arguments.
type distances struct{ Constant }

func (distances) is(k Kernel) bool { return isType[distances](k) }

// Cov implements Kernel.
func (distances) Cov(x, y []float64) float64 { return lengthScales{one: 1}.dist2(x, y) }

// differencePart is the part of |a|² + |b|² below which |a − b|² is computed by differences: the
// product of the matrices has some 2√D + 8 roundings of the former in it, and of what is left so
// few that covariances have twelve digits, whatever the length.
const differencePart = 1e-3

// fill implements tiled.
func (distances) fill(dst []float64, t *kernelTile) {
	l := lengthScales{one: 1}
	n, m, dim := t.x.Rows, t.y.Rows, l.features(t.x.Cols)
	if dim == 0 {
		fillDist2(l, dst, t)
		return
	}
	mark := t.top
	na, nb := fillProducts(l, dst, t, dim)
	for i := range n {
		row := dst[i*m : (i+1)*m]
		for j, ab := range row {
			norms := na[i] + nb[j]
			if r2 := norms + ab; r2 > differencePart*norms {
				row[j] = r2
			} else {
				row[j] = l.dist2(kernelRow(t.x, i), kernelRow(t.y, j))
			}
		}
	}
	t.top = mark
}

// pull implements tiled; there are no derivatives.
func (distances) pull(_, _ []float64, _ *kernelTile) {}
