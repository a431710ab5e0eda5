package learn

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file begins a search with sites that are held. The sites of many rows hardly depend on the
// prior of the weights. With sites R = XᵀΓX and b, a prior N(0, Λ0⁻¹) of the weights less their prior
// mean, and P = R + Λ0,
//
//	−ELBO(θ) = ½log|P| − ½log|Λ0| − ½bᵀP⁻¹b + const
//
// is exact at the θ of the sites, and nearly so elsewhere. It takes no pass over the rows. A search of
// its own finds where that is least, and the search of all rows then tries that θ first, with the
// curvature of this function. After that it continues as usual, to the same tolerance.
//
// Under Gaussian noise, sites are in proportion to the inverse of its variance, so −ELBO(θ) with held
// sites is exact at every θ, also if the variance is learned. Run.Step calls foresee.

const (
	heldRows  = 4    // least number of rows per weight
	heldSteps = 100  // most evaluations of the function
	heldGoal  = 0.01 // part of the goal of the search of all rows, because evaluations are cheap
)

// Hold implements Held for a full covariance. The parameters of the likelihood are not learned, or the
// likelihood is Gaussian with its noise learned.
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

// heldSites are the sites R and b. If the variance of the noise is learned, R, b and the sum of squares
// Σ w_n y_n²/noise belong to the noise, and sites at another variance are in proportion.
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
	if h.noise == 0 {
		h.prior.Gradient(&x, prec, mean, variance, factor, nil)
		return x
	}
	x.F += 0.5 * (part*h.square - h.weight*math.Log(part))
	noise := h.noisy(part*h.square, fit, prec, mean, variance)
	h.prior.Gradient(&x, prec, mean, variance, factor, []rounds.Tilted{noise})
	return x
}

// noisy returns the slope and the information of the log variance of the noise. The residual of the
// responses has XᵀΓ(y − Xm) = Λ0m, and its square is the sum of squares less bᵀP⁻¹b and mᵀΛ0m.
func (h *heldSites) noisy(square, fit float64, prec, mean, variance []float64) rounds.Tilted {
	pull := make([]float64, h.d)
	free, own := 0.0, 0.0 // the trace of VR, and mᵀΛ0m
	for j, a := range prec {
		pull[j] = -a * mean[j]
		free += 1 - a*variance[j]
		own += a * mean[j] * mean[j]
	}
	return rounds.Tilted{Slope: 0.5 * (square + free - h.weight - fit - own), Pull: pull,
		Shared: []float64{square - fit - own}}
}

// foresee proposes the minimum with held sites to the search, which is at its first point.
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
