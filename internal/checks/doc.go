// Package checks holds tests that use the library as its users do: of what it says of its own
// answers (LOO, PSIS, scores, comparisons, intervals, predictive checks, effects), of models of
// several classes, and of mixtures.
package checks
