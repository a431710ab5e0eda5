package learn

import (
	"slices"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// softmax returns the Point of the best q of s at θ, a contrast mean field, and remembers its sites.
// It takes steps until the next one predicts a gain of at most slack nats. Each evaluation of s
// costs the given units of work. slopes adds derivatives to the Point if its value is at most most;
// see wanted.
func (l *fitter) softmax(s *site.BaseAlgebra, theta []float64, slack, most, work float64,
	slopes func(x *search.Point) error) (x search.Point, err error) {
	defer func() { l.units += work * float64(s.Batch.Evaluations) }()
	if at := l.foreseen(theta); at != nil {
		s.StartAt(at.gamma, at.a, at.m)
	} else if _, err = s.Ascend(); err != nil {
		return x, err
	}
	if x.Slack, err = s.Approach(slack, learnSteps); err != nil {
		return x, err
	}
	q := &s.Batch.Cur
	l.remember(theta, q.Gamma, q.A, q.M)
	if x.F = q.Value; wanted(x.F, most) {
		err = slopes(&x)
	}
	return x, err
}

// Classes is the Model of a GLM with K scores. The hyperparameters are the standard deviations of
// the weights, shared by all classes or separate for each, and the covariances of the effects of
// groups (effects.go), whose −log p(Σ) is part of the value. Its Work counts passes over the rows.
type Classes struct {
	fitter
	prior *BlockPrior
}

// NewClasses returns the Model of a GLM with the given prior.
func NewClasses(prior *BlockPrior) *Classes {
	l := &Classes{fitter: fitter{n: prior.base.Terms.Elements()}, prior: prior}
	l.fit = l.fitAt
	return l
}

// Digest implements Model.
func (l *Classes) Digest(d *save.Digest) {
	l.prior.Digest(d)
	d.Text("classes")
}

// fitAt implements fitter.fit.
func (l *Classes) fitAt(theta []float64, slack, most float64) (x search.Point, err error) {
	lin, err := l.prior.At(theta)
	if err != nil {
		return x, errNoValue
	}
	prior, params := search.Point{}, []float64(nil)
	if l.prior.effects != nil {
		params, _, _ = l.prior.space.At(l.prior.base.Terms, theta) // has worked for the model
		l.prior.addPriors(&prior, params)
	}
	s, err := site.NewSoftmaxAlgebra(lin, l.workers)
	if err != nil {
		return x, err
	}
	x, err = l.softmax(&s.BaseAlgebra, theta, slack, most-prior.F, 1,
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
// It stores the information of the means, ½ Σ_c r_ciᵀ(Λ_c⁻¹ − V_c)r_cj for the r of Pull, which is
// 2Λ_cE_bμ_c for a block b.
func (l *Classes) slopes(x *search.Point, s *site.SoftmaxAlgebra, lin *site.LinearModel,
	theta, params []float64) error {
	mean, cov, err := s.Weights()
	if err != nil {
		return err
	}
	d, k, nf, classes := len(lin.Names), lin.Terms.K, len(l.prior.space.Coords), cov.(*gauss.Contrasts).Of
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
		}
	}
	pull, err := l.prior.Pull(theta, mean)
	if err != nil {
		return err
	}
	own, left := make([]float64, d), make([]float64, d)
	for c, class := range classes {
		for i, ri := range pull {
			class.Mul(left, ri[c*d:(c+1)*d])
			if lin.Prior.Each == nil {
				lin.Prior.Solve(own, ri[c*d:(c+1)*d])
			} else {
				floats.DivTo(own, ri[c*d:(c+1)*d], prec[c*d:(c+1)*d])
			}
			floats.SubTo(left, own, left)
			for j, rj := range pull[:i+1] {
				x.Info.SetSym(i, j, x.Info.At(i, j)+0.5*floats.Dot(left, rj[c*d:(c+1)*d]))
			}
		}
	}
	for b := range nf {
		x.Info.SetSym(b, b, max(x.Info.At(b, b), 0))
	}
	if params == nil {
		return nil
	}
	l.prior.effectSlopes(x, lin, theta, mean, pull, classes)
	l.prior.addPriors(x, params)
	l.prior.settle(x, params, k)
	return nil
}

var _ Sited = (*Classes)(nil)
