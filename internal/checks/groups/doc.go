// Package groups tests mixed models, which are GLMs with grouping factors:
//
//	groups_test.go		fits at given covariances, compared with dense priors
//	learn_test.go		learned covariances
//	integrate_test.go	posteriors integrated over covariances
//	learn_integrate_test.go	posteriors integrated over other hyperparameters, also of GPs
//	posterior_test.go	predictions, updates, summaries, files and errors
//	classes_test.go		Softmax models with groups
//	rows_test.go		fits that read their rows in passes
//	levels_test.go		new levels
//	loo_test.go		leaving out a level
//	random_test.go		random models
package groups
