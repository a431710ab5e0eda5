package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// LaplacePrior returns h(λ) = KL(q‖p), in nats, for a Gaussian q and independent Laplace priors,
//
//	p(z) = Π_j exp(−|z_j − m_j|/b_j)/(2b_j),   h = Σ_j E|z_j − m_j|/b_j + log 2b_j − H(q)
//	E|z| = 2sφ(m/s) + m(2Φ(m/s) − 1)   for z ~ N(m, s²),
//
// the prior of the Bayesian lasso (Park and Casella, 2008, equation 3, without their scaling by the
// noise). The variance of a Laplace prior is 2b². A nil mean is zero, and a single scale is the
// scale of all z_j. LaplacePrior copies its arguments.
//
// h is defined for a diagonal and a full q in any coordinates. It is convex (A2) in Cholesky, and
// strictly so. For a diagonal q with standard deviations s it is convex in MeanParams where all s_j
// ≤ √(π/2)·b_j, and in MeanCov where all s_j ≤ √(2π)·b_j. The optimal s_j are at most √(π/2)·b_j if
// the likelihood is log-concave. It is not convex in Natural.
//
// Steps of a given size are numeric. Without a step size, the divergence KL and the coordinates
// MeanParams or MeanCov give closed steps: the Stepper then linearizes E|z_j − m_j| together with f,
// keeps −H exact, and accepts a step only if the ELBO does not fall.
//
// Check returns an error that wraps ErrShape if q is not a Gaussian or if a number of elements does
// not fit, ErrNotFinite if an element of mean is not finite, and ErrParam unless every scale is
// positive and finite.
func LaplacePrior(mean []float64, scale ...float64) Convex {
	return laplacePrior{slices.Clone(mean), slices.Clone(scale)}
}

type laplacePrior struct{ mean, scale []float64 }

// laplaceTerm is the part of a laplacePrior without the entropy.
type laplaceTerm struct{ laplacePrior }

func (laplacePrior) String() string { return "LaplacePrior" }

// Check implements Convex.
func (h laplacePrior) Check(q Dist) error {
	if _, ok := q.(*Gaussian); !ok {
		return fmt.Errorf("pgsvi: LaplacePrior needs a Gaussian, but q is a %s: %w", distName(q),
			ErrShape)
	}
	d := q.Dim()
	if h.mean != nil && len(h.mean) != d {
		return fmt.Errorf("pgsvi: LaplacePrior has %d means, but q has dimension %d; give one mean "+
			"per dimension, or nil for zero: %w", len(h.mean), d, ErrShape)
	}
	if n := len(h.scale); n != 1 && n != d {
		return fmt.Errorf("pgsvi: LaplacePrior has %d scales, but q has dimension %d; give one "+
			"scale, or one per dimension: %w", n, d, ErrShape)
	}
	if j, ok := dense.AllFinite(h.mean); !ok {
		return fmt.Errorf("pgsvi: mean %d of LaplacePrior is %v; it must be finite: %w", j,
			h.mean[j], ErrNotFinite)
	}
	for j, b := range h.scale {
		if !(b > 0) || math.IsInf(b, 1) || math.IsInf(1/b, 1) {
			return fmt.Errorf("pgsvi: scale %d of LaplacePrior is %v; it must be positive and "+
				"finite: %w", j, b, ErrParam)
		}
	}
	return nil
}

// absolute returns E|z_j − m_j|/b_j + log 2b_j and its derivatives with respect to the mean and the
// variance of z_j.
func (h laplacePrior) absolute(q *Gaussian, j int) (e, dm, dv float64) {
	m, s, b := q.form.MeanAt(j), math.Sqrt(q.form.CovAt(j, j)), h.scale[min(j, len(h.scale)-1)]
	if h.mean != nil {
		m -= h.mean[j]
	}
	u := m / s
	phi, erf := math.Exp(-u*u/2)/math.Sqrt(2*math.Pi), math.Erf(u/math.Sqrt2)
	return (2*s*phi+m*erf)/b + math.Log(2*b), erf / b, phi / (s * b)
}

// Value implements Convex.
func (h laplacePrior) Value(q Dist) float64 {
	return laplaceTerm{h}.Value(q) + naturalPrior{}.Value(q)
}

// Grad implements Convex.
func (h laplacePrior) Grad(dst []float64, q Dist) []float64 {
	dst = laplaceTerm{h}.Grad(dst, q)
	floats.Add(dst, naturalPrior{}.Grad(nil, q))
	return dst
}

// Value implements Convex.
func (h laplaceTerm) Value(q Dist) (v float64) {
	g := q.(*Gaussian)
	for j := range g.Dim() {
		e, _, _ := h.absolute(g, j)
		v += e
	}
	return v
}

// Grad implements Convex.
func (h laplaceTerm) Grad(dst []float64, q Dist) []float64 {
	g := q.(*Gaussian)
	d := g.Dim()
	gm, gv := make([]float64, d), make([]float64, g.form.NumGradV())
	for j := range d {
		var dv float64
		_, gm[j], dv = h.absolute(g, j)
		if g.isDiagonal() {
			gv[j] = dv
		} else {
			gv[j*d+j] = dv
		}
	}
	return g.form.FromMomentGrad(dst, gm, gv)
}

func (h laplacePrior) digest(d *save.Digest) {
	d.Float(h.mean...)
	d.Float(h.scale...)
}

// entropyOf splits h into an entropic part, which has closed steps, and a smooth rest. The rest is
// nil if h has no such parts or is entropic itself.
func entropyOf(h Convex) (e entropic, rest Convex) {
	if l, ok := h.(laplacePrior); ok {
		return naturalPrior{}, laplaceTerm{l}
	}
	return nil, nil
}
