// Package trust tests the library on random problems in any units. It compares fits with slow
// references that share only the definitions with the library, and with fits of the same problem
// in another form. Like a user, it calls only the public API.
//
//	trust_test.go	the subjects: models, random problems, and other forms of them
//	seeds_test.go	the references of all subjects, the checks, and TestSeeds
//	reference_test.go	a slow solver in twice the precision of float64
//	expect_test.go	reference expectations and arithmetic; models with local factors
//	outcomes_test.go	zero-inflated counts, durations and proportions
//	classes_test.go	softmax models
//	sparse_test.go	sparse GPs with all rows as inducing inputs
//	update_test.go	posteriors with rows added or removed; LOO and PSIS
package trust
