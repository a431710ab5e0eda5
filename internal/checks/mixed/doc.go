// Package mixed holds tests of mixed models that use the public API like a user. They measure the
// uncertainty that a posterior reports: calibration over simulated data sets, and leave-one-out
// cross-validation.
package mixed
