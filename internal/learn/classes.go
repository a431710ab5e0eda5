package learn

import (
	"errors"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// softmaxModel holds the code that all models with K latent values per term share. q is a
// contrast mean field, improved by steps until the next one predicts a small gain.
type softmaxModel struct {
	memory
	workers term.Crew
	units   float64
}

// Use implements Model.
func (l *softmaxModel) Use(c term.Crew) { l.workers = c }

// Work implements Model.
func (l *softmaxModel) Work() float64 { return l.units }

// point returns the Point of the best q of s at θ. Each evaluation of s costs the given units of
// work, and err is the error of creating s. If −ELBO is at most most, slopes completes the Point.
func (l *softmaxModel) point(s *site.BaseAlgebra, err error, theta []float64, slack, most, work float64,
	slopes func(x *search.Point) error) (search.Point, error) {
	none, x := search.Point{F: math.Inf(1)}, search.Point{}
	if err == nil {
		x.Slack, err = l.settle(s, theta, slack)
		l.units += work * float64(s.Batch.Evaluations)
	}
	if err == nil {
		x.F = s.Batch.Cur.Value
		if x.F <= most && !math.IsInf(x.F, 0) {
			err = slopes(&x)
		}
	}
	switch halted := l.workers.Halt.Err(); {
	case halted != nil:
		return none, halted
	case errors.Is(err, sentinel.ErrNotFinite), errors.Is(err, sentinel.ErrNotPosDef):
		return none, nil // out of range
	case err != nil:
		return none, err
	case math.IsNaN(x.F), math.IsInf(x.F, 0):
		return none, nil
	}
	if _, ok := dense.AllFinite(x.Grad); !ok {
		return none, nil
	}
	if x.Info != nil && math.IsNaN(floats.Sum(x.Info.RawSymmetric().Data)) {
		return none, nil
	}
	return x, nil
}

// The steps end if slowSteps steps gain less than the fraction slowPart of the rest.
const (
	slowSteps = 6
	slowPart  = 0.2
)

// settle moves s to the best q at θ, within the given number of nats, and returns the number of
// nats that may be left.
func (l *softmaxModel) settle(s *site.BaseAlgebra, theta []float64, slack float64) (gap float64, err error) {
	if len(l.past) > 0 {
		at := sites{gamma: make([]float64, s.N), a: make([]float64, s.N), m: make([]float64, s.N)}
		l.extrapolate(at.gamma, at.a, at.m, theta)
		s.StartAt(at.gamma, at.a, at.m)
	} else if _, err = s.Ascend(); err != nil {
		return 0, err
	}
	var past [slowSteps]float64
	for i := range learnSteps {
		if err = s.Refresh(); err != nil {
			return 0, err
		}
		if gap, err = s.Promise(); err != nil {
			return 0, err
		}
		before, now := &past[i%slowSteps], s.Batch.Cur.Value
		if gap <= slack || i >= slowSteps && *before-now < slowPart*gap {
			break
		}
		*before = now
		if _, err = s.Ascend(); err != nil {
			return 0, err
		}
		if s.Distance == 0 {
			break
		}
	}
	q := &s.Batch.Cur
	l.found = sites{slices.Clone(theta), slices.Clone(q.Gamma), slices.Clone(q.A),
		slices.Clone(q.M)}
	return gap, nil
}

// Classes is the Model of a GLM with K scores. The hyperparameters are the standard deviations of
// the weights, shared by all classes or separate for each, and the covariances of the effects of
// groups (effects.go), whose −log p(Σ) is part of the value. Its Work counts passes over the rows.
type Classes struct {
	softmaxModel
	prior *BlockPrior
}

// NewClasses returns the Model of a GLM with the given prior.
func NewClasses(prior *BlockPrior) *Classes { return &Classes{prior: prior} }

// Digest implements Model.
func (l *Classes) Digest(d *save.Digest) {
	l.prior.Digest(d)
	d.Text("classes")
}

// State implements Model.
func (l *Classes) State(c *save.Coder, n int) {
	l.memory.state(c, n, l.prior.base.Terms.Elements())
	c.Float(&l.units)
}

// Evaluate implements Model.
func (l *Classes) Evaluate(theta []float64, slack, most float64, slopes bool) (
	search.Point, error) {
	lin, err := l.prior.At(theta)
	if err != nil {
		return search.Point{F: math.Inf(1)}, nil // out of range
	}
	if !slopes {
		most = math.Inf(-1)
	}
	prior, params := search.Point{}, []float64(nil)
	if l.prior.effects != nil {
		params, _, _ = l.prior.space.At(l.prior.base.Terms, theta) // has worked for the model
		l.prior.addPriors(&prior, params)
	}
	s, err := site.NewSoftmaxAlgebra(lin, l.workers)
	x, err := l.point(&s.BaseAlgebra, err, theta, slack, most-prior.F, 1,
		func(x *search.Point) error { return l.slopes(x, s, lin, theta, params) })
	if params != nil && x.Grad == nil {
		l.prior.addPriors(&x, params)
	}
	return x, err
}

// slopes stores the gradient in x by the envelope theorem. With r_cj = λ_cj/Σ_eλ_ej, and means
// with Σ_c Λ_cμ_c = 0,
//
//	∂ELBO/∂log s_b = Σ_{cj∈b} [λ_cj((1 − 2r_cj)V_cjj + Σ_e r_ej²V_ejj + μ_cj²) − 1 + r_cj].
//
// It stores the information of the means, 2 Σ_c μ_cᵀE_b(Λ_c − Λ_cV_cΛ_c)E_dμ_c for blocks b and
// d.
func (l *Classes) slopes(x *search.Point, s *site.SoftmaxAlgebra, lin *site.LinearModel,
	theta, params []float64) error {
	mean, cov, err := s.Weights()
	if err != nil {
		return err
	}
	d, k, nf := len(lin.Names), lin.Terms.K, len(l.prior.space.Coords)
	of, prec := l.prior.columns(), lin.Prior.Classes(k)
	if len(of) == d {
		of = slices.Repeat(of, k)
	}
	share, v, common := make([]float64, k*d), make([]float64, k*d), make([]float64, d)
	total, shift := make([]float64, d), make([]float64, d)
	for i, p := range prec {
		total[i%d] += p
		shift[i%d] += p * mean[i]
	}
	classes := cov.(*gauss.Contrasts).Of
	for c, class := range classes {
		class.Diag(v[c*d : (c+1)*d])
	}
	for i, p := range prec {
		share[i] = p / total[i%d]
		mean[i] -= shift[i%d] / total[i%d]
		common[i%d] += share[i] * share[i] * v[i]
	}
	x.Grad, x.Info = make([]float64, nf), mat.NewSymDense(nf, nil)
	for i, b := range of {
		if b >= 0 {
			own := (1-2*share[i])*v[i] + common[i%d] + mean[i]*mean[i]
			x.Grad[b] += 1 - share[i] - prec[i]*own
			x.Info.SetSym(b, b, x.Info.At(b, b)+2*prec[i]*mean[i]*mean[i])
		}
	}
	r, vr := make([]float64, d), make([]float64, d)
	for c, class := range classes {
		at, lm := of[c*d:(c+1)*d], make([]float64, d)
		for j := range lm {
			lm[j] = prec[c*d+j] * mean[c*d+j]
		}
		for b := range nf {
			for j, to := range at {
				if r[j] = 0; to == b {
					r[j] = lm[j]
				}
			}
			class.Mul(vr, r)
			for j, e := range at {
				if e >= 0 && e <= b {
					x.Info.SetSym(b, e, x.Info.At(b, e)-2*lm[j]*vr[j])
				}
			}
		}
	}
	for b := range nf {
		x.Info.SetSym(b, b, max(x.Info.At(b, b), 0))
	}
	if params == nil {
		return nil
	}
	if err := l.prior.effectSlopes(x, lin, theta, mean, cov.(*gauss.Contrasts)); err != nil {
		return err
	}
	l.prior.addPriors(x, params)
	return nil
}

var _ Sited = (*Classes)(nil)
