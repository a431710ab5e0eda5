package pgsvi

import (
	"fmt"
	"math"
	"sync"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file holds the posterior of a GLM that is a mixture over hyperparameters: over covariances of
// groups (glm_groups_integrate.go) or by LearnOptions.Integrate (learn_integrate.go).

// weightMixture is the posterior of the weights over several hyperparameters.
type weightMixture struct {
	Mixture *gauss.Mixture
	mean    []float64   // mean of q, at the best hyperparameters
	means   [][]float64 // means of the components
	// liks and priors belong to the components. They are nil if only covariances of groups differ.
	liks   []Likelihood
	priors []*gauss.Prior
	// logMass is the logarithm of the integral over the covariances of groups.
	logMass float64

	once  sync.Once
	parts []latents // components of the posterior, once a prediction needs them
}

// setMeans sets the means of the components. The mean of the mixture is mean.
func (m *weightMixture) setMeans(mean []float64) {
	for _, d := range m.Mixture.Shift {
		m.means = append(m.means, floats.AddTo(make([]float64, len(mean)), mean, d))
	}
}

// setMixture makes the mixture the posterior. It keeps the present mean and covariance as the moments
// of q.
func (p *GLMPosterior) setMixture(prob []float64, means [][]float64, of []gauss.Cov) {
	m, mean := gauss.NewMixture(p.cov, prob, means, of)
	p.mixture = &weightMixture{Mixture: m, mean: p.mean}
	p.mean = mean
	p.mixture.setMeans(mean)
}

// ownMean returns the mean of q. Without integration it is the mean of the weights.
func (p *GLMPosterior) ownMean() []float64 {
	if p.mixture != nil {
		return p.mixture.mean
	}
	return p.mean
}

// components implements latents.
func (p *GLMPosterior) components() (prob []float64, parts []latents) {
	if p.mixture == nil {
		return nil, nil
	}
	m := p.mixture
	m.once.Do(func() {
		for k := range m.means {
			m.parts = append(m.parts, p.component(k))
		}
	})
	return m.Mixture.Prob, m.parts
}

// component returns component k of the mixture of p, for predictions.
func (p *GLMPosterior) component(k int) *GLMPosterior {
	m := p.mixture
	part := &GLMPosterior{names: p.names, opt: p.opt, lik: p.lik, mean: m.means[k],
		cov: m.Mixture.Of[k], prior: p.prior}
	if m.liks != nil {
		part.lik, part.prior = m.liks[k], m.priors[k]
	}
	part.setSpread(p.spread)
	return part
}

// latentMixed is latent for the mixture of p, for a Softmax.
func (p *GLMPosterior) latentMixed(m, v []float64, x mat.Matrix) {
	all := &mixedPosteriors[*GLMPosterior]{prob: p.mixture.Mixture.Prob}
	for k := range p.mixture.means {
		all.parts = append(all.parts, p.component(k))
	}
	all.latent(m, v, x)
}

// mixtureQuantiles stores the quantile of each weight at level prob in dst.
func (p *GLMPosterior) mixtureQuantiles(dst []float64, prob float64) {
	weights := p.mixture.Mixture.Prob
	sds := make([][]float64, len(weights))
	of, own := make([]float64, len(weights)), make([]float64, len(weights))
	for k := range sds {
		sds[k] = p.component(k).SD(nil)
	}
	for j := range dst {
		for k, m := range p.mixture.means {
			of[k], own[k] = m[j], sds[k][j]
		}
		dst[j] = normalMixQuantile(weights, of, own, prob)
	}
}

// checkProbs returns an error unless prob holds probabilities whose sum is 1.
func checkProbs(prob []float64) error {
	total := 0.0
	for _, x := range prob {
		if !(x >= 0) {
			return fmt.Errorf("the probability of a component is %v: %w", x, ErrParam)
		}
		total += x
	}
	if !(math.Abs(total-1) < 1e-6) {
		return fmt.Errorf("the probabilities of the components sum to %v: %w", total, ErrParam)
	}
	return nil
}

// savedMixed is the JSON form of a weightMixture whose components have priors and likelihoods of
// their own.
type savedMixed struct {
	Prob  save.List[float64]   `json:"probabilities"`
	Mean  save.List[float64]   `json:"mean"` // the mean of q
	Parts save.List[savedPart] `json:"parts"`
}

// savedPart is a component of a savedMixed.
type savedPart struct {
	Likelihood save.Value         `json:"likelihood"`
	Mean       save.List[float64] `json:"mean"`
	Cov        savedCov           `json:"covariance"`
	Prior      gauss.SavedPrior   `json:"prior"`
}

// saveMixed returns the saved form of the mixture of p, or nil if saveGrid saves it.
func (p *GLMPosterior) saveMixed() (*savedMixed, error) {
	m := p.mixture
	if m == nil || m.priors == nil {
		return nil, nil
	}
	s := &savedMixed{Prob: m.Mixture.Prob, Mean: m.mean}
	for k, mean := range m.means {
		part := savedPart{Mean: mean, Prior: m.priors[k].Save()}
		var err error
		if part.Cov, err = p.saveCov(m.Mixture.Of[k]); err != nil {
			return nil, err
		}
		if part.Likelihood, err = saveValue(m.liks[k]); err != nil {
			return nil, err
		}
		s.Parts = append(s.Parts, part)
	}
	return s, nil
}

// load sets the mixture of p, whose prior, mean and covariance must be loaded.
func (s *savedMixed) load(p *GLMPosterior) error {
	if s == nil {
		return nil
	}
	n, d := len(s.Parts), len(p.mean)
	if n == 0 || len(s.Prob) != n || len(s.Mean) != d {
		return fmt.Errorf("%d components do not fit %d probabilities and %d means: %w", n,
			len(s.Prob), len(s.Mean), ErrShape)
	}
	if err := checkProbs(s.Prob); err != nil {
		return err
	}
	m := &weightMixture{Mixture: &gauss.Mixture{Cov: p.cov, Prob: s.Prob}, mean: s.Mean}
	for k := range s.Parts {
		if err := s.Parts[k].load(p, m); err != nil {
			return fmt.Errorf("component %d: %w", k, err)
		}
	}
	for _, mean := range m.means {
		m.Mixture.Shift = append(m.Mixture.Shift, floats.SubTo(make([]float64, d), mean, p.mean))
	}
	p.mixture = m
	return nil
}

// load appends the component to m, a mixture of p.
func (s *savedPart) load(p *GLMPosterior, m *weightMixture) error {
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return err
	}
	k, d := latentsOf(p.lik), len(p.names)
	if latentsOf(lik) != k || typeName(lik) != typeName(p.lik) || len(s.Mean) != len(p.mean) ||
		len(s.Prior.Mean) != d || k > 1 && float64(len(s.Cov.Classes)) != float64(k)*lowerSize(d) {
		return fmt.Errorf("a %s with %d means does not fit a %s with %d: %w", typeName(lik),
			len(s.Mean), typeName(p.lik), len(p.mean), ErrShape)
	}
	prior, err := s.Prior.Load()
	if err != nil {
		return err
	}
	cov, err := s.Cov.load(prior)
	if err != nil {
		return err
	}
	m.liks, m.priors = append(m.liks, lik), append(m.priors, prior)
	m.means, m.Mixture.Of = append(m.means, s.Mean), append(m.Mixture.Of, cov)
	return nil
}

// setLearnedMixture makes the posterior the mixture of parts under several hyperparameters. A part
// may be a mixture over covariances of groups.
func (p *GLMPosterior) setLearnedMixture(probs []float64, parts []*GLMPosterior) {
	var prob []float64
	var means [][]float64
	var of []gauss.Cov
	var liks []Likelihood
	mix := &weightMixture{}
	add := func(q *GLMPosterior, pr float64, mean []float64, cov gauss.Cov) {
		prior := q.prior
		if a, ok := cov.(*gauss.Arrow); ok {
			prior = a.PriorOf(prior)
		}
		prob, means, of = append(prob, pr), append(means, mean), append(of, cov)
		liks, mix.priors = append(liks, q.lik), append(mix.priors, prior)
	}
	for k, q := range parts {
		if q.mixture == nil {
			add(q, probs[k], q.mean, q.cov)
			continue
		}
		for j, w := range q.mixture.Mixture.Prob {
			add(q, probs[k]*w, q.mixture.means[j], q.mixture.Mixture.Of[j])
		}
	}
	p.mean = p.ownMean()
	p.setMixture(prob, means, of)
	p.mixture.liks, p.mixture.priors = liks, mix.priors
	p.setSpread(nil)
}
