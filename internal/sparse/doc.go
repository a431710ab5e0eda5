// Package sparse is the engine of sparse Gaussian processes: what they see of a prior, and passes
// over rows of any number.
//
// # Inducing values
//
// A latent function f with covariance k is seen through M values, with covariance LLᵀ. A row x has
// the features L⁻¹k(Z, x): with weights w ~ N(0, I) its latent value is f(x) = L⁻¹k(Z, x)ᵀw + ε. An
// Inducing has these values. A Division says which terms of k are seen whole, by one value a
// weight, and what is left is seen at inducing inputs Z. They are chosen by what each row loses
// (Choose, Sample, SampleSpread), moved up the slope of the ELBO (Move), or given (Among).
//
// # Passes
//
// Where the features of all rows fit into memory, the model is the linear model of Inducing.Linear.
// Otherwise a Pass goes through Rows, in memory or not, in blocks whose features it makes anew, and
// returns a Look: the exact ELBO of a state, where the natural step leads and what that promises.
// An Ascent takes these steps. Learning searches for hyper-parameters by ascents.
//
// # What is asked of others
//
// A covariance function is a Kernel, a log-likelihood a Likelihood, and the fit of a linear model
// in memory, from which passes start, a Fit.
package sparse
