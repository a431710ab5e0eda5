package pgsvi

import (
	"fmt"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// This file holds the part of h that has closed steps: a negative entropy plus a term that is
// linear in the mean parameters,
//
//	h = −H(q) − η_pᵀμ + c,   argmin gᵀμ + h + KL(q‖q_0)/β:  η = rη_0 + (1−r)(η_p − g),  r = 1/(1+β).
//
// KLTo, NaturalPrior and sums of them have this form and share one implementation of the step. KL
// and Euclidean call it, and the Stepper of an Objective reads η_p to choose its own step sizes and
// to bound the gap.

// entropic is an h = −H(q) − η_pᵀμ + c, such as KL(q‖p). Without a base measure that depends on z,
// H is the entropy.
type entropic interface {
	Convex
	// target returns η_p as natural parameters in the family of q, or nil if h does not have this
	// form there. The caller must not change it.
	target(q ExpFamily) []float64
	// gaussian returns the same as a prior of the Gaussian q, diagonal or full, or nil if h has no
	// such form.
	gaussian(q normal.Form) normal.Prior
}

// targetOf returns η_p if h is entropic at q, and otherwise nil.
func targetOf(h Convex, q Dist) []float64 {
	x, ok := h.(entropic)
	e, family := q.(ExpFamily)
	if !ok || !family {
		return nil
	}
	return x.target(e)
}

// NaturalPrior returns h(λ) = −H(q) − ηᵀμ, in nats, for a prior given by its natural parameters eta
// in the family of q. It is KL(q‖p) minus the constant A(η) if a member p of the family has these
// natural parameters. It also accepts priors whose density has no finite integral. A nil eta is
// zero, so h is then the negative entropy, the flat prior. For a Gaussian q with full covariance, a
// prior precision P and mean m are eta = (Pm, −½P) in the layout of Gaussian.Natural, in which an
// off-diagonal element counts twice and is −P_ij. P may be singular, such as the precision of a
// random walk. NaturalPrior copies eta.
//
// H is relative to the base measure of the family: −H(q) = ηᵀμ − A(η) at the η of q. The steps have
// the closed forms of KLTo in the table of Prox. In mean parameters with KL the step is
//
//	η ← rη + (1−r)(η_p − ∇_μ f),   r = 1/(1+β)
//
// (Khan et al., 2016, equation 9). The step with β = +Inf exists if η_p − ∇_μ f belongs to a
// distribution, so the data must determine what the prior does not. h is convex in MeanParams and,
// for a Gaussian whose P is positive semidefinite, in MeanCov and Cholesky (A2).
//
// Check returns an error that wraps ErrShape if q is not an ExpFamily or has another number of
// parameters, and ErrNotFinite if an element is not finite.
func NaturalPrior(eta []float64) Convex { return naturalPrior{slices.Clone(eta)} }

type naturalPrior struct{ eta []float64 } // nil is zero

func (naturalPrior) String() string { return "NaturalPrior" }

// Check implements Convex.
func (h naturalPrior) Check(q Dist) error {
	if _, ok := q.(ExpFamily); !ok {
		return fmt.Errorf("pgsvi: NaturalPrior needs an ExpFamily, but q is a %T: %w", q, ErrShape)
	}
	if h.eta != nil && len(h.eta) != q.NumParams() {
		return fmt.Errorf("pgsvi: NaturalPrior has %d natural parameters, but the %s has %d: %w",
			len(h.eta), distName(q), q.NumParams(), ErrShape)
	}
	if i, ok := dense.AllFinite(h.eta); !ok {
		return fmt.Errorf("pgsvi: element %d of the natural parameters of NaturalPrior is %v; it "+
			"must be finite: %w", i, h.eta[i], ErrNotFinite)
	}
	return nil
}

// Value implements Convex. For a Gaussian, (η − η_p)ᵀμ − A(η) would lose digits.
func (h naturalPrior) Value(q Dist) float64 {
	e := q.(ExpFamily)
	form := formOf(q)
	if form == nil {
		return floats.Dot(h.less(e), e.MeanParams(nil)) - e.LogPartition()
	}
	v := normal.NegEntropy(form)
	if h.eta != nil {
		v -= floats.Dot(h.eta, e.MeanParams(nil))
	}
	return v
}

// Grad implements Convex. In mean parameters it is η − η_p.
func (h naturalPrior) Grad(dst []float64, q Dist) []float64 {
	if form := formOf(q); form != nil {
		return normal.PriorGrad(dst, form, h.gaussian(form))
	}
	e := q.(ExpFamily)
	return e.FromMeanGrad(dst, h.less(e))
}

// less returns η − η_p.
func (h naturalPrior) less(q ExpFamily) []float64 {
	d := q.Natural(nil)
	if h.eta != nil {
		floats.Sub(d, h.eta)
	}
	return d
}

// target implements entropic.
func (h naturalPrior) target(q ExpFamily) []float64 {
	if h.eta == nil {
		return make([]float64, q.NumParams())
	}
	return h.eta
}

// gaussian implements entropic.
func (h naturalPrior) gaussian(q normal.Form) normal.Prior {
	eta := h.eta
	if eta == nil {
		eta = make([]float64, q.NumParams())
	}
	return normal.Unnormalized(q, eta)
}

func (h naturalPrior) digest(d *save.Digest) { d.Float(h.eta...) }
