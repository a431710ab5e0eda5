// Package sparse is the engine of sparse Gaussian processes.
//
// # Inducing values
//
// A latent function f with covariance k is represented by M values with covariance LLᵀ. A row x
// has the features L⁻¹k(Z, x): with weights w ~ N(0, I), its latent value is f(x) = L⁻¹k(Z, x)ᵀw
// + ε. Inducing holds these values. A Division states which terms of k are represented whole, by
// one value per weight; the rest of k is represented by its values at inducing inputs Z. Inducing
// inputs are chosen by how much each row would lose without them (Choose, Sample, SampleSpread),
// moved along the gradient of the ELBO (Move), or given (Among).
//
// # Passes
//
// If the features of all rows fit into memory, the model is the linear model of Inducing.Linear,
// which package site fits. Otherwise a Pass reads Rows, which may be in memory or not, in blocks,
// and computes the features of each block. It returns a Look: the exact ELBO of a state, the end
// of its natural step, and the predicted gain of that step. An Ascent takes these steps. Learning
// searches for hyperparameters, with an Ascent at each of them.
//
// # Interfaces
//
// The root package supplies the covariance function as a Kernel, the log-likelihood as a
// Likelihood, and a Fit, which fits a linear model in memory. Passes start from such a fit to a
// sample.
//
// # Files
//
//	inducing.go   divisions, inducing values and their features
//	choose.go     the choice of inducing inputs
//	move.go       moves of inducing inputs
//	rows.go       rows that are read several times, and their sample
//	pass.go       one pass over the rows
//	look.go       the result of a pass
//	ascent.go     natural-gradient steps
//	slopes.go     derivatives in hyperparameters and inducing inputs
//	learning.go   the search for hyperparameters
//	online.go     updates of a posterior with new rows
package sparse
