package learn

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/search"
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
// curvature of this function. The search goes on as usual, so its end does not depend on this file.
//
// Run.Step calls foresee.

const (
	heldRows  = 4   // least number of rows per weight
	heldSteps = 100 // most evaluations of the function
)

// Hold implements Held, for a full covariance if no parameter of the likelihood is learned.
func (l *Weights) Hold() func(theta []float64) search.Point {
	s := l.last
	if l.diagonal || s == nil || s.Run.Double || len(l.prior.space.likelihoods()) > 0 ||
		len(s.Lin.Prior.Each) > 0 || s.N < heldRows*s.Lin.X.Cols {
		return nil
	}
	d, prec := s.Lin.X.Cols, slices.Clone(s.Lin.Prior.Prec)
	p, b := slices.Clone(s.Run.P), make([]float64, d)
	dense.Symv(1, dense.Symmetric(p, d), dense.Vector(s.Run.Mean), 0, dense.Vector(b))
	return func(theta []float64) search.Point {
		x := search.Point{F: math.Inf(1)}
		lin, err := l.prior.At(theta)
		if err != nil {
			return x
		}
		factor, mean, variance := slices.Clone(p), slices.Clone(b), make([]float64, d)
		logDet := 0.0
		for j, a := range lin.Prior.Prec {
			factor[j*d+j] += a - prec[j]
			logDet -= math.Log(a)
		}
		if !dense.Cholesky(factor, d) {
			return x
		}
		lower := dense.LowerTriangle(factor, d)
		dense.Trsv(blas.NoTrans, lower, dense.Vector(mean))
		x.F = 0.5 * (logDet + dense.LogDet(factor, d) - floats.Dot(mean, mean))
		dense.Trsv(blas.Trans, lower, dense.Vector(mean))
		inverse := slices.Clone(factor)
		dense.InvertLower(l.workers.Halt, inverse, d)
		for i := range d {
			for j, v := range inverse[i*d : i*d+i+1] {
				variance[j] += v * v
			}
		}
		l.prior.Gradient(&x, lin.Prior.Prec, mean, variance, factor, nil)
		return x
	}
}

// foresee tells the search, which is at its first point, where the sites of that point would end it.
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
	by := search.Search{Prec: s.Search.Prec, Lo: s.Search.Lo, Hi: s.Search.Hi, Goal: s.Search.Goal,
		Exact: s.Search.Exact, Longest: s.Search.Longest, Part0: s.Search.Part0}
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
