// Package objective tests pgsvi.Objective and its parts:
//
//	split_objective_test.go	runs of an Objective: convergence, noise, errors, resuming
//	split_test.go		the terms f and h of an Objective, and conjugate models
//	split_far_test.go	far starts, and several linearizations in one step
//	prox_test.go		proximal steps
//	dist_test.go		distributions and their coordinates
//	divergence_test.go	divergences, and divergence_adaptive_test.go for adaptive ones
//	estimator_test.go	estimators of expectations
//	coupled_test.go		conjugate models whose statistics multiply each other
//	solver_certificate_test.go	certificates of runs
package objective
