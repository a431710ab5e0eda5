package learn

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file begins a search with fixed sites, because the sites of many rows hardly depend on the
// prior of the weights. Let the sites be R = XᵀΓX and b, let N(0, Λ0⁻¹) be the prior of the weights
// minus their prior mean, and let P = R + Λ0. Then
//
//	−ELBO(θ) = ½log|P| − ½log|Λ0| − ½bᵀP⁻¹b + const
//
// is exact at the θ of the sites and a close approximation elsewhere, without a pass over the rows.
// foresee minimizes it by a search of its own. The search over all rows then tries that minimum first,
// with the curvature of this function, and continues to the same tolerance as without it.
//
// Under Gaussian noise, sites are proportional to the inverse of the noise variance. So −ELBO(θ) with
// fixed sites is exact at every θ, even if the variance is learned. Run.Step calls foresee.

const (
	heldRows  = 4    // least number of rows per weight
	heldSteps = 100  // most evaluations of the function
	heldGoal  = 0.01 // goal of this search, relative to the goal of the search over all rows
)

// Hold implements Held. It returns nil unless the covariance is full, and either the likelihood has no
// parameters to learn or it is Gaussian.
func (l *Weights) Hold() func(theta []float64) search.Point {
	s := l.last
	if l.diagonal || s == nil || s.Run.Double || len(s.Lin.Prior.Each) > 0 ||
		s.N < heldRows*s.Lin.X.Cols {
		return nil
	}
	h := &heldSites{prior: l.prior, workers: l.workers, d: s.Lin.X.Cols}
	if of := len(l.prior.space.likelihoods()); of > 0 {
		if h.noise = s.Lin.Terms.Noise(); of > 1 || !(h.noise > 0) {
			return nil
		}
		h.data(s.Lin.Terms)
	}
	h.p, h.b = slices.Clone(s.Run.P), make([]float64, h.d)
	dense.Symv(1, dense.Symmetric(h.p, h.d), dense.Vector(s.Run.Mean), 0, dense.Vector(h.b))
	for j, a := range s.Lin.Prior.Prec {
		h.p[j*h.d+j] -= a
	}
	return h.at
}

// heldSites are the sites R and b. If the noise variance is learned, R, b and the sum of squares
// Σ w_n y_n²/noise are those at the variance noise, and are rescaled for another variance.
type heldSites struct {
	prior   *BlockPrior
	workers term.Crew
	d       int
	p, b    []float64 // R, lower triangle, and b

	noise          float64 // 0 if it is not learned
	square, weight float64 // the sum of squares, and Σ w_n
}

// data computes the sums over the responses.
func (h *heldSites) data(t *term.Terms) {
	for n := range t.Len() {
		y, o, w, _ := t.Term(n)
		h.square += w * (y - o) * (y - o) / h.noise
		h.weight += w
	}
}

// at returns −ELBO at θ.
func (h *heldSites) at(theta []float64) search.Point {
	x := search.Point{F: math.Inf(1)}
	lin, err := h.prior.At(theta)
	if err != nil {
		return x
	}
	d, prec, part := h.d, lin.Prior.Prec, 1.0
	if h.noise > 0 {
		part = h.noise / lin.Terms.Noise()
	}
	factor, mean, variance := slices.Clone(h.p), slices.Clone(h.b), make([]float64, d)
	floats.Scale(part, factor)
	floats.Scale(part, mean)
	logDet := 0.0
	for j, a := range prec {
		factor[j*d+j] += a
		logDet -= math.Log(a)
	}
	if !dense.Cholesky(factor, d) {
		return x
	}
	lower := dense.LowerTriangle(factor, d)
	dense.Trsv(blas.NoTrans, lower, dense.Vector(mean))
	fit := floats.Dot(mean, mean) // bᵀP⁻¹b
	x.F = 0.5 * (logDet + dense.LogDet(factor, d) - fit)
	dense.Trsv(blas.Trans, lower, dense.Vector(mean))
	inverse := slices.Clone(factor)
	dense.InvertLower(h.workers.Halt, inverse, d)
	for i := range d {
		for j, v := range inverse[i*d : i*d+i+1] {
			variance[j] += v * v
		}
	}
	var lik []rounds.Tilted
	if h.noise > 0 {
		x.F += 0.5 * (part*h.square - h.weight*math.Log(part))
		lik = append(lik, h.noisy(part*h.square, fit, prec, mean, variance))
	}
	h.prior.Gradient(&x, prec, mean, variance, &gauss.Full{S: &gauss.Gaussian{L: factor}}, lik)
	return x
}

// noisy returns the slope and the information of the log noise variance. At the mean m,
// XᵀΓ(y − Xm) = Λ0m, and the residual sum of squares is the sum of squares minus bᵀP⁻¹b and mᵀΛ0m.
func (h *heldSites) noisy(square, fit float64, prec, mean, variance []float64) rounds.Tilted {
	pull := make([]float64, h.d)
	free, own := 0.0, 0.0 // tr(VR) and mᵀΛ0m
	for j, a := range prec {
		pull[j] = -a * mean[j]
		free += 1 - a*variance[j]
		own += a * mean[j] * mean[j]
	}
	return rounds.Tilted{Slope: 0.5 * (square + free - h.weight - fit - own), Pull: pull,
		Shared: []float64{square - fit - own}}
}

// foresee proposes the minimum with fixed sites as the second point of the search.
func (s *Run) foresee() {
	m, ok := s.Model.(Held)
	if !ok || len(s.space.Coords) > bendMost {
		return
	}
	hold := m.Hold()
	if hold == nil {
		return
	}
	f := func(theta []float64) search.Point {
		x := hold(theta)
		x.Theta = slices.Clone(theta)
		x.Prior = s.space.Penalty(theta, x.Grad)
		x.F += x.Prior
		return x
	}
	by := search.Search{Prec: s.Search.Prec, Lo: s.Search.Lo, Hi: s.Search.Hi,
		Goal: heldGoal * s.Search.Goal, Exact: s.Search.Exact, Longest: s.Search.Longest,
		Part0: s.Search.Part0}
	by.Begin(s.Search.Cur.Theta)
	x := f(by.Next)
	top := x.F
	for range heldSteps {
		if by.Tell(x); by.Done {
			break
		}
		x = f(by.Next)
	}
	end := &by.Cur
	if !(top-end.F > s.Search.Goal) {
		return
	}
	var bends [][]float64
	for i := range end.Theta {
		theta := slices.Clone(end.Theta)
		theta[i] += s.bendAt(end, i)
		if x = f(theta); x.Grad == nil {
			return
		}
		bends = append(bends, x.Grad)
	}
	if b := s.curvature(end, bends); inverse(b) != nil {
		s.Search.Propose(end.Theta, top-end.F, b)
	}
}
