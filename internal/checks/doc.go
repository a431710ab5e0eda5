// Package checks holds tests that use the public API like a user. They cover the ways to check
// and to explain a fit (LOO, PSIS, scores, comparisons, intervals, predictive checks, effects),
// learned hyperparameters, softmax models, and mixtures. The tests of each model are in the
// packages below this one.
package checks
