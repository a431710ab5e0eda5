// Package linear tests generalised linear models: their fits, covariances, posteriors, streams and
// rows of any number, and the matrices that they take.
package linear
