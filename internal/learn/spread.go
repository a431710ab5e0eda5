package learn

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file carries the uncertainty of learned hyperparameters into the posterior of the weights.
// The search ends at θ̂ with a covariance Σ = LLᵀ of θ, by the Laplace approximation, so that θ =
// θ̂ + Lz with z ~ N(0, I). At θ̂ the mean m of q satisfies
//
//	Xᵀα(Xm, θ) = Λ(θ)m,   α_n = ∂E/∂m_n,
//
// for zero prior means, and the derivative of this equation is
//
//	(Λ + XᵀΓX) dm = Xᵀ(∂α/∂θ_i) − (∂Λ/∂θ_i)m,   Γ = −∂α/∂m,
//
// where the dependence of α on the variances is left out. A full V is the inverse of that matrix.
// The columns of dm·L are what gauss.Spread adds to V. glmLearner calls this after the final fit.

// Factor returns the rows of L, one for each coordinate, where Σ = LLᵀ is the covariance of θ by
// the curvature of the search at its best θ. It is nil if Σ is not positive definite. Settled
// coordinates and the given known ones have rows of zeros.
func (s *Run) Factor(known ...int) [][]float64 {
	var chol mat.Cholesky
	cov := s.covariance(known...)
	if cov == nil || !chol.Factorize(cov) {
		return nil
	}
	var l mat.TriDense
	chol.LTo(&l)
	rows := make([][]float64, len(s.space.Coords))
	for i := range rows {
		rows[i] = make([]float64, len(rows))
		if s.settled(i) || slices.Contains(known, i) {
			continue
		}
		for k := range i + 1 {
			rows[i][k] = l.At(i, k)
		}
	}
	return rows
}

// Turn returns the derivative of α, the derivatives of the expectations in the latent means, with
// respect to free coordinate i, a parameter of the likelihood. It uses differences at the latent
// means m and variances v. A row whose expectation fails has 0.
func (s *Space) Turn(t *term.Terms, m, v []float64, c term.Crew, theta []float64, i int) []float64 {
	up, down := s.tilted(t, m, v, c, theta, i, LikelihoodStep),
		s.tilted(t, m, v, c, theta, i, -LikelihoodStep)
	turn := make([]float64, len(m))
	for n := range turn {
		d := (up.D1[n] - down.D1[n]) / (2 * LikelihoodStep)
		if !math.IsNaN(d) && !math.IsInf(d, 0) {
			turn[n] = d
		}
	}
	return turn
}

// Pull returns Xᵀ(∂α/∂θ_i) − (∂Λ/∂θ_i)m for each free coordinate that is a standard deviation of
// the prior at θ, and zeros for the parameters of the likelihood: there the caller adds Xᵀ Turn.
func (p *BlockPrior) Pull(theta, mean []float64) (pull [][]float64, err error) {
	lin, err := p.At(theta)
	if err != nil {
		return nil, err
	}
	prec := lin.Prior.Each
	if prec == nil {
		prec = lin.Prior.Prec
	}
	pull = p.pull(prec, mean)
	if p.effects != nil {
		p.pullEffects(pull, lin, theta, mean, lin.Terms.K)
	}
	return pull, nil
}

// pull is Pull for the precisions prec, without effects.
func (p *BlockPrior) pull(prec, mean []float64) (pull [][]float64) {
	pull = make([][]float64, len(p.space.Coords))
	for i := range pull {
		pull[i] = make([]float64, len(mean))
	}
	cols := p.columns()
	for j, m := range mean {
		if i := cols[j%len(cols)]; i >= 0 { // Λ is in proportion to 1/s²
			pull[i][j] = 2 * prec[j%len(prec)] * m
		}
	}
	return pull
}

// Curved is the matrix Λ + XᵀΓX of a diagonal q, whose V is not its inverse.
type Curved struct {
	X        *design.Matrix
	Prec     []float64 // Λ
	Gamma    []float64 // the diagonal of Γ; negative elements count as 0
	Variance []float64 // V, which preconditions
}

// The conjugate gradients of Curved.
const (
	curvedSteps = 50
	curvedTol   = 1e-3 // the residual relative to the right-hand side
)

// mul stores (Λ + XᵀΓX)x in dst.
func (c *Curved) mul(dst, x, eta []float64) {
	c.X.Mul(eta, x, nil)
	for n, g := range c.Gamma {
		eta[n] *= max(g, 0)
	}
	for j, l := range c.Prec {
		dst[j] = l * x[j]
	}
	c.X.AddMulT(dst, eta, nil)
}

// Solve stores (Λ + XᵀΓX)⁻¹b in dst by conjugate gradients.
func (c *Curved) Solve(dst, b []float64) {
	c.solve(dst, b, curvedTol, min(len(b), curvedSteps))
}

// solve is Solve with at most the given number of steps. It reports whether the norm of the residual
// is at most tol times the norm of b.
func (c *Curved) solve(dst, b []float64, tol float64, steps int) bool {
	d := len(b)
	r, z, p, ap := make([]float64, d), make([]float64, d), make([]float64, d), make([]float64, d)
	eta := make([]float64, c.X.Rows)
	clear(dst)
	copy(r, b)
	floats.MulTo(z, c.Variance, r)
	copy(p, z)
	rz, enough := floats.Dot(r, z), tol*floats.Norm(b, 2)
	for range steps {
		if !(floats.Norm(r, 2) > enough) {
			break
		}
		c.mul(ap, p, eta)
		step := rz / floats.Dot(p, ap)
		floats.AddScaled(dst, step, p)
		floats.AddScaled(r, -step, ap)
		floats.MulTo(z, c.Variance, r)
		next := floats.Dot(r, z)
		floats.Scale(next/rz, p)
		floats.Add(p, z)
		rz = next
	}
	return floats.Norm(r, 2) <= enough
}

// SpreadOf returns the columns of dm·L for the derivatives dm of the mean in each coordinate and
// the rows of L. It is nil if a number is not finite.
func SpreadOf(dm, l [][]float64) (a [][]float64) {
	for k := range l {
		col := make([]float64, len(dm[0]))
		for i, d := range dm {
			floats.AddScaled(col, l[i][k], d)
		}
		if s := floats.Sum(col); math.IsNaN(s) || math.IsInf(s, 0) {
			return nil
		}
		a = append(a, col)
	}
	return a
}
