package mixture

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Component is a NormalWishart(m, κ, ν, W) distribution in the coordinates of a space.
type Component struct {
	Kappa, DF float64
	M         []float64
	C         []float64 // lower Cholesky factor of W⁻¹

	expected float64 // E[log π] + ½E[log|Λ|] − ½D(log 2π + 1/κ)
	student  float64 // log of the predictive density at m, times E[π]
}

// Components holds the components of a mixture whose weights have the distribution π ~
// Dirichlet(Alpha).
type Components struct {
	Space Space
	Alpha []float64
	Each  []Component
}

// Prepare computes the constants of the densities. Call it after setting the fields.
func (p *Components) Prepare() {
	d := len(p.Space.Mean)
	f, dim, total := expfam.WishartFamily{D: d}, float64(d), floats.Sum(p.Alpha)
	for k := range p.Each {
		c := &p.Each[k]
		logW := -dense.LogDet(c.C, d)
		c.expected = 0.5 * (f.Digamma(0.5*c.DF) + dim*math.Ln2 + logW -
			dim*(expfam.Log2Pi+1/c.Kappa))
		if len(p.Alpha) > 1 {
			c.expected += special.Digamma(p.Alpha[k]) - special.Digamma(total)
		}
		free := c.DF + 1 - dim
		c.student = math.Log(p.Alpha[k]/total) + special.LogGammaRise(0.5*free, 0.5*dim) +
			0.5*(logW+dim*math.Log(c.Kappa/(1+c.Kappa)/math.Pi)) - p.Space.LogDet
	}
}

// square returns (z − m)ᵀW(z − m). It overwrites u.
func (c *Component) square(u, z, m []float64) float64 {
	floats.SubTo(u, z, m)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(c.C, len(u)), dense.Vector(u))
	return floats.Dot(u, u)
}

// each calls do for each component with s² (z − m)ᵀW(z − m) and s. The scale s is 1 unless the
// square of the row would overflow.
func (p *Components) each(x []float64, do func(k int, c *Component, square float64, s scale)) {
	z, m, u := make([]float64, len(x)), make([]float64, len(x)), make([]float64, len(x))
	p.Space.To(z, x)
	s := scale{1, 1}
	if !(floats.Norm(z, math.Inf(1)) <= farRow) {
		s = p.scaled(z, x)
	}
	for k := range p.Each {
		c := &p.Each[k]
		floats.ScaleTo(m, s[0], c.M)
		floats.Scale(s[1], m)
		do(k, c, c.square(u, z, m), s)
	}
}

// scale is a product of two factors. Each alone may be too small for a float64.
type scale [2]float64

func (s scale) far() bool { return s != scale{1, 1} }

// farRow is the distance, in prior standard deviations, above which a row is scaled. Its square
// is far from overflow for every factor C.
const farRow = 1e100

// shrink is the first factor of a scale, which keeps the coordinates of every row in range.
const shrink = 1e-200

// scaled stores s·z for the row x in z, with the largest element 1, and returns s.
func (p *Components) scaled(z, x []float64) scale {
	shrunk := Space{Mean: make([]float64, len(x)), L: p.Space.L}
	floats.ScaleTo(shrunk.Mean, shrink, p.Space.Mean)
	floats.ScaleTo(z, shrink, x)
	shrunk.To(z, z)
	s := scale{shrink, 1 / floats.Norm(z, math.Inf(1))}
	floats.Scale(s[1], z)
	return s
}

// Responsibilities stores r_k ∝ exp(E[log π_k] + E[log N(x|m_k, Λ_k⁻¹)]) in dst. A row so far
// away that squares overflow belongs to the nearest component.
func (p *Components) Responsibilities(dst, x []float64) {
	var s scale
	nearest := math.Inf(1)
	p.each(x, func(k int, c *Component, square float64, by scale) {
		dst[k], s = 0.5*c.DF*square, by
		nearest = min(nearest, dst[k])
	})
	for k := range p.Each {
		if s.far() { // squares may overflow, but their differences do not
			dst[k] = (dst[k] - nearest) / s[0] / s[1] / s[0] / s[1]
		}
		dst[k] = p.Each[k].expected - dst[k]
	}
	log := floats.LogSumExp(dst)
	for k, l := range dst {
		dst[k] = math.Exp(l - log)
	}
}

// LogProb returns the log predictive density log Σ_k E[π_k] St(x | m_k, …) (Bishop, 2006, equation
// 10.81).
func (p *Components) LogProb(x []float64) float64 {
	log := make([]float64, len(p.Each))
	p.each(x, func(k int, c *Component, square float64, s scale) {
		weighted := c.Kappa / (1 + c.Kappa) * square
		rise := math.Log1p(weighted)
		if s.far() { // the 1 in Log1p is negligible
			rise = math.Log(weighted) - 2*(math.Log(s[0])+math.Log(s[1]))
		}
		log[k] = c.student - 0.5*(c.DF+1)*rise
	})
	return floats.LogSumExp(log)
}

// Mean stores the mean of m_k, in the coordinates of the rows, in dst.
func (p *Components) Mean(dst []float64, k int) {
	copy(dst, p.Each[k].M)
	dense.Trmv(blas.NoTrans, dense.LowerTriangle(p.Space.L, len(dst)), dense.Vector(dst))
	floats.Add(dst, p.Space.Mean)
}

// Cov returns the inverse of E[Λ_k] = νW, in the coordinates of the rows.
func (p *Components) Cov(k int) *mat.SymDense {
	c, d := p.Each[k], len(p.Space.Mean)
	l := dense.General(append([]float64(nil), c.C...), d, d)
	for i := range d {
		clear(l.Data[i*d+i+1 : (i+1)*d])
	}
	blas64.Trmm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(p.Space.L, d), l)
	out := mat.NewSymDense(d, nil)
	blas64.Syrk(blas.NoTrans, 1/c.DF, l, 0, out.RawSymmetric())
	return out
}
