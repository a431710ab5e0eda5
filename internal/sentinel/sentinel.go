// Package sentinel declares the sentinel errors of the module. The root package exports them
// under names of its own.
package sentinel

import "errors"

// What each of them reports is said at the name that the root package gives it.
var (
	ErrShape       = errors.New("shapes disagree")
	ErrEmpty       = errors.New("no data")
	ErrLabel       = errors.New("label outside the support of the likelihood")
	ErrNotFinite   = errors.New("not finite")
	ErrNotPosDef   = errors.New("not positive definite")
	ErrParam       = errors.New("parameter out of range")
	ErrNoProx      = errors.New("no proximal step")
	ErrNoEstimator = errors.New("estimator does not apply")
	ErrFile        = errors.New("damaged or foreign file")
	ErrMemory      = errors.New("more memory than allowed")
	ErrPanic       = errors.New("panic in a function that was called")
	ErrDiverged    = errors.New("diverged")
)
