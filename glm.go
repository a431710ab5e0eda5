package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

// GLM is a generalised linear model: responses y_n ~ p(y_n|η_n) of linear
// predictors η_n = o_n + x_nᵀw, with weights w ~ N(μ0, Λ0⁻¹). It is a Model; the
// posterior approximation q(w) = N(m, V) maximises the ELBO
//
//	Σ_n w_n E_q[log p(y_n|η_n)] − KL(q‖N(μ0, Λ0⁻¹))   (nats).
//
// A GLM is immutable and may be shared between goroutines.
type GLM struct {
	linear
	opt GLMOptions
}

// GLMOptions are the options of a GLM. The zero value, and a nil pointer, mean
// no intercept, prior N(0, I), and a covariance as full as can be afforded.
type GLMOptions struct {
	// Intercept adds a weight whose feature is 1 in every row. It is the last.
	Intercept bool
	// PriorSD is the prior standard deviation of the weights, independent and of
	// mean 0. Zero means 1. It is in units of η per unit of the feature: features
	// of very different scales want Autoscale.
	PriorSD float64
	// InterceptSD is that of the intercept. Zero means 10.
	InterceptSD float64
	// Autoscale divides PriorSD by the standard deviation of each column of x, so
	// that the posterior does not depend on the units of the features. Columns
	// that do not vary are left alone. A stream does not know its columns and refuses it.
	Autoscale bool
	// Prior is a prior over all weights, the intercept last, that takes the place of
	// PriorSD, InterceptSD and Autoscale. Nil means these.
	Prior *Gaussian
	// Offset is o_n, one for each row; nil means 0. For counts of different
	// exposures it is the logarithm of the exposure.
	Offset []float64
	// Weights multiply the log-likelihoods of the rows; nil means 1. A row of
	// weight 0 is as if it were not there. k successes in n trials are a row with
	// y = +1 and weight k and one with y = −1 and weight n − k.
	Weights []float64
	// Names are those of the columns of x; nil means x1, x2, …
	Names []string
	// Covariance is the family of V.
	Covariance Covariance
	// Rank is that of LowRankCovariance. Zero means 20.
	Rank int
	// Estimator estimates the gradients of steps with a given Solver.StepSize.
	// Nil means Exact. Steps of a nil Solver are always exact.
	// Steps with noise go less far where rows of negative γ would take more than nine
	// tenths of the precision of the prior in some direction; see GPOptions.Estimator.
	Estimator SiteEstimator
	// MeanUpdate is the update of m in steps with a given step size.
	MeanUpdate MeanUpdate
}

// What AutoCovariance chooses by: D² or N² numbers are 128 MB at the first, and a low-rank covariance of the default rank
// is as much at the second.
const (
	fullLimit    = 4000
	lowRankLimit = 100000
)

// NewGLM returns the model of responses y at the rows of x under likelihood lik.
// The data are copied; of a *Sparse its present rows are kept, which Append leaves
// as they are. Nil lik means GaussianNoise{}, nil opt the zero GLMOptions. No rows at
// all are data, too: their posterior is the prior.
//
// It returns an error, with the index of the datum, wrapping ErrEmpty if there is
// no weight, ErrShape if lengths disagree, ErrNotFinite if a value is NaN or
// infinite, ErrLabel if a response is outside the support of lik, ErrNotPosDef
// if the precision of the prior is, to rounding, not positive definite, and
// ErrParam if an option or a parameter of lik is out of range.
func NewGLM(x mat.Matrix, y []float64, lik Likelihood, opt *GLMOptions) (*GLM, error) {
	if d, ok := x.(*mat.Dense); x == nil || ok && d == nil {
		return nil, fmt.Errorf("pgsvi: nil x; for no rows use NewSparse(columns): %w", ErrEmpty)
	}
	if s, ok := x.(*Sparse); ok && s == nil {
		return nil, fmt.Errorf("pgsvi: nil x; for no rows use NewSparse(columns): %w", ErrEmpty)
	}
	g, err := newGLM(lik, opt)
	if err != nil {
		return nil, err
	}
	n, cols := x.Dims()
	if n != len(y) {
		return nil, fmt.Errorf("pgsvi: x has %d rows, y has %d responses: %w", n, len(y), ErrShape)
	}
	for _, v := range []struct {
		name string
		x    []float64
	}{{"Offset", g.opt.Offset}, {"Weights", g.opt.Weights}} {
		if v.x != nil && len(v.x) != n {
			return nil, fmt.Errorf("pgsvi: x has %d rows, GLMOptions.%s has %d elements: %w", n, v.name, len(v.x), ErrShape)
		}
		if i, ok := dense.AllFinite(v.x); !ok {
			return nil, fmt.Errorf("pgsvi: GLMOptions.%s[%d] is %v: %w", v.name, i, v.x[i], ErrNotFinite)
		}
	}
	for i, w := range g.opt.Weights {
		if w < 0 {
			return nil, fmt.Errorf("pgsvi: GLMOptions.Weights[%d] is %v: %w", i, w, ErrParam)
		}
	}
	g.x = newDesign(x, g.opt.Intercept)
	if err := g.x.check(); err != nil {
		return nil, err
	}
	if g.terms, err = newTerms(g.terms.lik, slices.Clone(y)); err != nil {
		return nil, err
	}
	if err := g.setNames(cols); err != nil {
		return nil, err
	}
	g.terms.offset, g.terms.weight = slices.Clone(g.opt.Offset), slices.Clone(g.opt.Weights)
	g.opt.Offset, g.opt.Weights = nil, nil
	g.dropWeightless()
	if err := g.setPrior(); err != nil {
		return nil, err
	}
	g.addPriorMean()
	return g, nil
}

// newGLM returns a GLM without data, whose options are checked as far as that goes.
func newGLM(lik Likelihood, opt *GLMOptions) (*GLM, error) {
	g := &GLM{linear: linear{terms: &terms{}}}
	if opt != nil {
		g.opt = *opt
	}
	o := &g.opt
	if lik == nil {
		lik = GaussianNoise{}
	}
	g.terms.lik = lik
	var errs []error
	positive := func(name string, x float64) {
		if !(x >= 0) || math.IsInf(x, 0) {
			errs = append(errs, fmt.Errorf("pgsvi: GLMOptions.%s is %v: %w", name, x, ErrParam))
		}
	}
	positive("PriorSD", o.PriorSD)
	positive("InterceptSD", o.InterceptSD)
	positive("Rank", float64(o.Rank))
	if o.Covariance < AutoCovariance || o.Covariance > DiagonalCovariance {
		errs = append(errs, fmt.Errorf("pgsvi: GLMOptions.Covariance is %d: %w", o.Covariance, ErrParam))
	}
	if o.MeanUpdate < MainText || o.MeanUpdate > Appendix {
		errs = append(errs, fmt.Errorf("pgsvi: GLMOptions.MeanUpdate is %d: %w", o.MeanUpdate, ErrParam))
	}
	errs = append(errs, checkLikelihood(lik))
	return g, errors.Join(errs...)
}

// setNames names the weights of cols features and the intercept.
func (g *GLM) setNames(cols int) error {
	if cols+b2i(g.opt.Intercept) == 0 {
		return fmt.Errorf("pgsvi: a GLM needs at least one column or an intercept: %w", ErrEmpty)
	}
	names := slices.Clone(g.opt.Names)
	if names == nil {
		names = make([]string, cols)
		for j := range names {
			names[j] = fmt.Sprintf("x%d", j+1)
		}
	}
	if len(names) != cols {
		return fmt.Errorf("pgsvi: x has %d columns, GLMOptions.Names has %d: %w", cols, len(names), ErrShape)
	}
	if g.opt.Intercept {
		names = append(names, "(Intercept)")
	}
	g.names = names
	return nil
}

// setPrior makes the prior that the options ask for; g.x is used by Autoscale alone.
func (g *GLM) setPrior() error {
	d, o := len(g.names), &g.opt
	p := &g.prior
	q := o.Prior
	if q != nil && q.Dim() != d {
		return fmt.Errorf("pgsvi: GLMOptions.Prior has %d dimensions, the model %d weights: %w", q.Dim(), d, ErrShape)
	}
	switch {
	case q != nil && q.isDiagonal():
		p.mean, p.prec = q.Mean(nil), q.Var(nil)
		for j, v := range p.prec {
			p.prec[j] = 1 / v
		}
	case q != nil:
		p.mean, p.full = q.Mean(nil), &weightState{}
		p.full.resize(d)
		prec := q.precisionMatrix()
		for i := range d {
			for j := range i + 1 {
				p.full.p[i*d+j] = prec.At(i, j)
			}
		}
		if !p.full.factor() {
			return fmt.Errorf("pgsvi: precision of the prior: %w", ErrNotPosDef)
		}
	default:
		sd, intercept := o.PriorSD, o.InterceptSD
		if sd == 0 {
			sd = 1
		}
		if intercept == 0 {
			intercept = 10
		}
		p.mean, p.prec = make([]float64, d), make([]float64, d)
		for j := range p.prec {
			p.prec[j] = 1 / (sd * sd)
		}
		if o.Autoscale {
			for j, v := range g.x.columnVariances() {
				if v > 0 {
					p.prec[j] *= v
				}
			}
		}
		if o.Intercept {
			p.prec[d-1] = 1 / (intercept * intercept)
		}
	}
	for j, l := range p.prec {
		if !(l > 0) || math.IsInf(l, 0) {
			return fmt.Errorf("pgsvi: prior precision of weight %d (%s) is %v: %w", j, g.names[j], l, ErrNotPosDef)
		}
	}
	return nil
}

// dropWeightless removes the rows of weight 0.
func (g *GLM) dropWeightless() {
	t := g.terms
	if t.weight == nil {
		return
	}
	var keep []int
	for i, w := range t.weight {
		if w > 0 {
			keep = append(keep, i)
		}
	}
	if len(keep) == len(t.weight) {
		return
	}
	g.x = g.x.sub(keep)
	for _, s := range []*[]float64{&t.y, &t.offset, &t.weight} {
		if *s == nil {
			continue
		}
		for k, i := range keep {
			(*s)[k] = (*s)[i]
		}
		*s = (*s)[:len(keep)]
	}
	t.row = keep
}

// addPriorMean makes the terms functions of Xᵀ(w − μ0).
func (g *GLM) addPriorMean() {
	zero := true
	for _, m := range g.prior.mean {
		zero = zero && m == 0
	}
	if zero {
		return
	}
	t := g.terms
	o := make([]float64, g.x.rows)
	g.x.mul(o, g.prior.mean, nil)
	for i := range t.offset {
		o[i] += t.offset[i]
	}
	t.offset = o
}

// Len returns N, the number of rows of positive weight.
func (g *GLM) Len() int { return g.x.rows }

// dim returns D, the number of weights, that of the intercept included.
func (g *GLM) dim() int { return len(g.names) }

// covariance returns the family of V: that of the options, or what AutoCovariance chooses.
func (g *GLM) covariance() Covariance {
	d := g.dim()
	switch {
	case g.opt.Covariance != AutoCovariance:
		return g.opt.Covariance
	case min(g.Len(), d) <= fullLimit:
		return FullCovariance
	case d <= lowRankLimit:
		return LowRankCovariance
	}
	return DiagonalCovariance
}
