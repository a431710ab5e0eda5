package loo

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// This file leaves out observations under a posterior that is integrated over hyperparameters θ. The
// posterior has the probabilities w_k ∝ p(θ_k) p(y|θ_k) at a few points θ_k, and at each point the
// predictions p_k(y_n|y_−n) come from a Gaussian as usual. Because p(y|θ_k) is
// p(y_−n|θ_k) p_k(y_n|y_−n), the points have other probabilities without observation n:
//
//	w_k^−n = c w_k / p_k(y_n|y_−n),   p(y_n|y_−n) = Σ_k w_k^−n p_k(y_n|y_−n) = c,
//	1/c = Σ_k w_k / p_k(y_n|y_−n).
//
// This is exact if each p_k is, and if the points still cover the posterior of θ without the
// observation. The root package calls Mix for LOO and LOOGroup of a GLM.

// Mix combines the results of the points of a mixture with probabilities prob. It returns the
// probabilities of the points without each observation, row by row. An observation of weight below 1
// has the factor p_k raised to its weight, which is right to first order. A nil weight means 1.
func Mix(prob []float64, parts []*Result, weight []float64) (r *Result, without []float64) {
	n, k := len(parts[0].Pointwise), len(parts)
	r = newResult(n, len(parts[0].M))
	without = make([]float64, n*k)
	for i := range n {
		own := without[i*k : (i+1)*k]
		if mixedUnresolved(parts, i) {
			copy(own, prob)
			r.PointErr[i] = math.Inf(1)
			r.Unresolved = append(r.Unresolved, i)
		} else {
			power := 1.0
			if weight != nil {
				power = math.Min(1, weight[i])
			}
			r.mix(prob, parts, i, power, own)
		}
		for j, p := range parts {
			r.Leverage[i] += prob[j] * p.Leverage[i]
		}
		if size := len(r.M) / n; size > 0 {
			for l := i * size; l < (i+1)*size; l++ {
				r.M[l], r.V[l] = mixedMoments(own, parts, l)
			}
		}
	}
	for j, p := range parts {
		r.Err += prob[j] * p.Err
	}
	r.add(weight)
	return r, without
}

// mixedUnresolved reports whether one of the parts cannot leave out observation i.
func mixedUnresolved(parts []*Result, i int) bool {
	for _, p := range parts {
		if p.unresolved(i) {
			return true
		}
	}
	return false
}

// mix sets the prediction of observation i, and stores the probabilities of the parts without it. The
// Influence is the divergence of the posterior of θ and the weights together.
func (r *Result) mix(prob []float64, parts []*Result, i int, power float64, without []float64) {
	for j, p := range parts {
		without[j] = math.Log(prob[j]) - power*p.Pointwise[i]
	}
	total := floats.LogSumExp(without)
	logs := make([]float64, len(parts))
	for j, p := range parts {
		without[j] -= total
		logs[j] = without[j] + p.Pointwise[i]
		if prob[j] > 0 {
			r.Influence[i] += prob[j] * (p.Influence[i] + math.Log(prob[j]) - without[j])
		}
		without[j] = math.Exp(without[j])
		r.PointErr[i] += without[j] * p.PointErr[i]
	}
	r.Pointwise[i] = floats.LogSumExp(logs)
}

// mixedMoments returns the mean and the variance of latent value l of the mixture of the parts.
func mixedMoments(prob []float64, parts []*Result, l int) (m, v float64) {
	for j, p := range parts {
		m += prob[j] * p.M[l]
	}
	for j, p := range parts {
		d := p.M[l] - m
		v += prob[j] * (p.V[l] + d*d)
	}
	return m, v
}
