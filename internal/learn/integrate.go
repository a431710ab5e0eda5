package learn

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/cubature"
	"github.com/pgsvi/pgsvi/internal/search"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file integrates over hyperparameters after a search. Their posterior density is proportional
// to exp(ELBO(θ)) p(θ), where ELBO(θ) is the ELBO of the best q at θ (Rue, Martino and Chopin,
// 2009, section 3, with the ELBO in place of their Laplace approximation). The priors are densities
// of θ. The density is 0 outside the bounds of a coordinate.

// IntegrateSlack is the gap, in nats, to which q is fitted at each θ of an integration. The means
// of q then have an error of about a thousandth of a standard deviation.
const IntegrateSlack = 1e-6

// Most is the largest number of coordinates over which Integrate integrates.
const Most = cubature.Most

// skewedRows is the number of rows up to which the density of θ may be far from a Gaussian. Fits are
// then cheap.
const skewedRows = 200

// MostPoints returns the usual number of points of an integration over coordinates of a model with n
// rows.
func MostPoints(coords, n int) int {
	switch {
	case coords > cubature.MostLattice:
		return len(cubature.Composite(coords))
	case n <= skewedRows:
		return finePoints[coords]
	}
	return coarsePoints[coords]
}

// finePoints and coarsePoints hold the usual number of points of a lattice, by the number of
// coordinates.
var (
	finePoints   = [...]int{0, 13, 110, 400}
	coarsePoints = [...]int{0, 11, 37, 81}
)

// Integrate integrates over the given coordinates of s around the best θ, in increasing order. There may
// be at most Most of them. The other coordinates follow by the regression on these that the curvature
// implies. At point k of the rule, if it is within the bounds, Integrate calls fit, which returns −ELBO
// there. F is +Inf if θ has no q. The θ of the rule have only the given coordinates.
func (s *Run) Integrate(over []int, fit func(k int, theta []float64) (search.Point, error)) (
	*cubature.Rule, error) {
	lo, hi := s.Search.Lo, s.Search.Hi
	next := 0
	follow := s.follow(over)
	density := func(at []float64) (float64, error) {
		k := next
		next++
		theta := follow(at)
		for _, i := range over {
			if t := theta[i]; !(t >= lo[i] && t <= hi[i]) {
				return math.Inf(-1), nil
			}
		}
		x, err := fit(k, theta)
		return -x.F - s.space.Penalty(theta, nil), err
	}
	factor, deviations := s.Factor(), s.Deviations()
	var rows [][]float64
	var sd, mode []float64
	for _, i := range over {
		if factor != nil {
			rows = append(rows, factor[i])
		}
		sd, mode = append(sd, deviations[i]), append(mode, s.Best.Theta[i])
	}
	axes := cubature.Axes(rows, sd)
	if len(mode) <= cubature.MostLattice {
		return cubature.Lattice(mode, axes, s.n <= skewedRows, density)
	}
	return cubature.Design(mode, axes, density)
}

// follow returns the function from the given coordinates to a θ, in which the other coordinates have
// their means given these, within their bounds.
func (s *Run) follow(over []int) func(at []float64) []float64 {
	var slope mat.Dense // covariance of all coordinates with these, times the inverse of their covariance
	if factor := s.Factor(); factor != nil && len(over) < len(factor) {
		n := len(factor)
		all, own := mat.NewDense(n, len(over), nil), mat.NewSymDense(len(over), nil)
		for j, c := range over {
			for i := range n {
				all.Set(i, j, floats.Dot(factor[i], factor[c]))
			}
			for k, d := range over[:j+1] {
				own.SetSym(j, k, floats.Dot(factor[c], factor[d]))
			}
		}
		if inv := inverse(own); inv != nil {
			slope.Mul(all, inv)
		}
	}
	return func(at []float64) []float64 {
		theta := slices.Clone(s.Best.Theta)
		for j, c := range over {
			if move := at[j] - s.Best.Theta[c]; !slope.IsEmpty() {
				for i := range theta {
					theta[i] += slope.At(i, j) * move
				}
			}
		}
		for i := range theta {
			theta[i] = max(s.Search.Lo[i], min(s.Search.Hi[i], theta[i]))
		}
		for j, c := range over {
			theta[c] = at[j]
		}
		return theta
	}
}

// Refit fits q at θ to IntegrateSlack and makes it the final q, from which Sited.Begin starts.
func (s *Run) Refit(theta []float64) (search.Point, error) {
	x, err := s.Model.Evaluate(theta, IntegrateSlack, math.Inf(1), false)
	if err == nil && !math.IsInf(x.F, 1) {
		s.Model.Keep(true)
	}
	return x, err
}

// Spans returns the mean, the standard deviation and an interval with the given normal quantile z on
// both sides for each coordinate under r. The interval has the first terms of the expansion of
// Cornish and Fisher (1938), which includes the skewness.
func Spans(r *cubature.Rule, z float64) (mean, sd, lo, hi []float64) {
	n := len(r.Theta[0])
	mean, sd, lo, hi = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		moment := func(power float64) (m float64) {
			for k, p := range r.Prob {
				if p > 0 {
					m += p * math.Pow(r.Theta[k][i]-mean[i], power)
				}
			}
			return m
		}
		mean[i] = moment(1)
		sd[i] = math.Sqrt(moment(2))
		skew := 0.0
		if sd[i] > 0 {
			skew = max(-1, min(1, moment(3)/(sd[i]*sd[i]*sd[i])))
		}
		lo[i] = mean[i] + sd[i]*(-z+(z*z-1)*skew/6)
		hi[i] = mean[i] + sd[i]*(z+(z*z-1)*skew/6)
	}
	return mean, sd, lo, hi
}
