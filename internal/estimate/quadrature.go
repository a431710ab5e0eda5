package estimate

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// lineFamily is a continuous Family of one dimension. It has a coordinate u ∈ R in which its
// density is log-concave, has its mode at 0, and decays at least exponentially on both sides.
type lineFamily interface {
	// Line stores T(z) − μ at u in t, and returns z and the log density of u.
	Line(t []float64, u float64, eta []float64) (z, log float64)
	// Width returns a number as large as the width of the density at its mode.
	Width(eta []float64) float64
}

// sumFamily is a discrete Family of one dimension.
type sumFamily interface {
	// Each calls add for every z whose probability p matters in float64.
	Each(eta []float64, add func(z, p float64))
}

const (
	lineFolds = 60 // a density ends this many e-folds below its mode
	// doublings of the width on the way there; the quadrature has twice as many panels
	mostFolds = 60
	lineTol   = 1e-13 // relative accuracy of the integrals
)

// LineWorst is the relative error above which an integral is useless.
const LineWorst = 1e-6

// HasQuadrature reports whether Quadrature works for members of f.
func HasQuadrature(f expfam.Family) bool {
	switch f.(type) {
	case sumFamily, lineFamily:
		return true
	}
	return false
}

// Quadrature returns E_q[l] with a bound on its error for a q of one dimension, and stores ∇_μ
// E_q[l] in dst. The error wraps ErrNotFinite if l is not finite, and ErrNoEstimator if l is too
// rough.
func (e *Integral) Quadrature(dst []float64) (value, bound float64, err error) {
	q := e.Member
	z, n := make([]float64, 1), q.NumParams()
	t := make([]float64, n)
	logProb := func(x float64) float64 {
		z[0] = x
		v := e.L.LogProb(z)
		if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			err = e.bad([]float64{x}, v, false)
		}
		return v
	}
	clear(dst)
	if f, ok := q.F.(sumFamily); ok {
		var abs float64
		f.Each(q.Eta, func(x, p float64) {
			v := logProb(x)
			value += p * v
			abs += p * math.Abs(v)
		})
		f.Each(q.Eta, func(x, p float64) { // subtract the mean of the values
			v := logProb(x)
			q.F.Stat(t, z)
			for i, ti := range t {
				dst[i] += p * (v - value) * (ti - q.Mu[i])
			}
		})
		q.FisherSolve(dst)
		return value, 1e-15 * abs, err
	}
	f := q.F.(lineFamily)
	cuts := []float64{0}
	h := math.Min(1, f.Width(q.Eta))
	for range mostFolds {
		cuts = append(cuts, h)
		if _, log := f.Line(t, h, q.Eta); !(log > -lineFolds) {
			break
		}
		h *= 2
	}
	h = -cuts[1]
	for range mostFolds {
		cuts = slices.Insert(cuts, 0, h)
		if _, log := f.Line(t, h, q.Eta); !(log > -lineFolds) {
			break
		}
		h *= 2
	}
	mode, _ := f.Line(t, 0, q.Eta)
	first := logProb(mode) // subtract the value at the mode
	sum := expect.Adaptive(func(u float64) (r [3]float64) {
		x, log := f.Line(t, u, q.Eta)
		if log < -2*lineFolds {
			return r
		}
		r[0] = math.Exp(log) * (logProb(x) - first)
		for i, ti := range t {
			r[1+i] = r[0] * ti
		}
		return r
	}, cuts, lineTol)
	if err != nil {
		return math.NaN(), math.NaN(), err
	}
	copy(dst, sum.Sum[1:])
	for i, off := range sum.Err[1 : 1+n] {
		if off > LineWorst*math.Sqrt(q.FisherAt(i)) {
			return math.NaN(), math.NaN(),
				fmt.Errorf("pgsvi: the log-likelihood is too rough for quadrature: element %d of "+
					"its gradient is %.3g ± %.2g; use ScoreFunction: %w", i, dst[i], off,
					sentinel.ErrNoEstimator)
		}
	}
	q.FisherSolve(dst)
	return first + sum.Sum[0], sum.Err[0] + 1e-15*math.Abs(first), nil
}
