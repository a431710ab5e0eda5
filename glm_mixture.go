package pgsvi

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
)

// This file holds the posterior of a GLM that is a mixture over hyperparameters: over covariances of
// groups (glm_groups_integrate.go) or by LearnOptions.Integrate (learn_integrate.go).

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

// componentOf returns component k of the mixture of p, for checks against the rows of its GLM.
func (p *GLMPosterior) componentOf(k int) *GLMPosterior {
	part := p.component(k)
	part.groups, part.spread = p.groups, nil
	if a, ok := part.cov.(*gauss.Arrow); ok {
		part.prior = a.PriorOf(part.prior)
	}
	return part
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
