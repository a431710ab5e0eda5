// Package likelihoods tests every likelihood: its support, derivatives, expectations, responses and
// parameters, and the predictions that it makes.
package likelihoods
