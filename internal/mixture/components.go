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
	student  float64 // log of the density of the prediction, with its share of E[π], at m
}

// Components are those of a mixture with the weights π ~ Dirichlet(Alpha).
type Components struct {
	Space Space
	Alpha []float64
	Each  []Component
}

// Prepare computes what the densities need, once the fields are set.
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

// square returns (z − m)ᵀW(z − m); it overwrites u.
func (c *Component) square(u, z []float64) float64 {
	floats.SubTo(u, z, c.M)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(c.C, len(u)), dense.Vector(u))
	return floats.Dot(u, u)
}

// each calls do for each component with (z − m)ᵀW(z − m).
func (p *Components) each(x []float64, do func(k int, c *Component, square float64)) {
	z, u := make([]float64, len(x)), make([]float64, len(x))
	p.Space.To(z, x)
	for k := range p.Each {
		c := &p.Each[k]
		do(k, c, c.square(u, z))
	}
}

// Responsibilities stores r_k ∝ exp(E[log π_k] + E[log N(x|m_k, Λ_k⁻¹)]) in dst.
func (p *Components) Responsibilities(dst, x []float64) {
	p.each(x, func(k int, c *Component, square float64) { dst[k] = c.expected - 0.5*c.DF*square })
	log := floats.LogSumExp(dst)
	for k, l := range dst {
		dst[k] = math.Exp(l - log)
	}
}

// LogProb returns the log predictive density log Σ_k E[π_k] St(x | m_k, …) (Bishop, 2006, equation
// 10.81).
func (p *Components) LogProb(x []float64) float64 {
	log := make([]float64, len(p.Each))
	p.each(x, func(k int, c *Component, square float64) {
		log[k] = c.student - 0.5*(c.DF+1)*math.Log1p(c.Kappa/(1+c.Kappa)*square)
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
