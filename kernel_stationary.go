package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/special"
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

// tiles returns k as what is computed a tile at a time.
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

// tiles returns k as what is computed a tile at a time.
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
