// Package linear tests generalized linear models: their fits, covariances, posteriors, streams,
// rows from files, and matrices.
package linear
