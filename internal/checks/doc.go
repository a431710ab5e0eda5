// Package checks holds tests of what the library says of its own answers: LOO, PSIS, scores,
// comparisons and intervals. They use the library as its users do.
package checks
