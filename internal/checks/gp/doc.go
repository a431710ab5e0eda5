// Package gp tests Gaussian processes, dense and sparse, the learning of their hyperparameters,
// and what the engine of sites does for them and for GLMs: steps, proofs, wide priors.
package gp
