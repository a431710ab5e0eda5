package pgsvi

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// Match the errors below with errors.Is. Every error of the package wraps one of them and begins
// with "pgsvi: ". The message names the place, such as the row, the iteration or the step size, the
// problem, and the remedy.
var (
	// ErrShape reports lengths or dimensions that disagree.
	ErrShape = sentinel.ErrShape
	// ErrEmpty reports data without rows or a distribution without dimensions.
	ErrEmpty = sentinel.ErrEmpty
	// ErrLabel reports a response outside the support of the likelihood.
	ErrLabel = sentinel.ErrLabel
	// ErrNotFinite reports a NaN or an infinity in the data or in a computed quantity.
	ErrNotFinite = sentinel.ErrNotFinite
	// ErrNotPosDef reports a matrix that is not positive definite but must be.
	ErrNotPosDef = sentinel.ErrNotPosDef
	// ErrParam reports an option or parameter outside its documented range.
	ErrParam = sentinel.ErrParam
	// ErrNoProx reports a convex term and a divergence whose proximal step has neither a closed
	// form nor a numeric method.
	ErrNoProx = sentinel.ErrNoProx
	// ErrNoEstimator reports an estimator that cannot handle the integrand or the family.
	ErrNoEstimator = sentinel.ErrNoEstimator
	// ErrFile reports a file that Load cannot read because it is of another type, was written by a
	// newer release, is truncated or damaged, or holds invalid values. The message names the type
	// and the remedy.
	ErrFile = sentinel.ErrFile
	// ErrMemory reports a model, a result or a file that needs more memory than allowed. The check
	// comes before the allocation, because a Go program cannot recover from running out of memory.
	// The message states the amount needed and an alternative.
	//
	// The limit is MaxMemory of the options, if they have that field and it is not 0. Otherwise it
	// is the memory limit of the Go runtime (GOMEMLIMIT or debug.SetMemoryLimit), if set. The
	// default is 8 GB on every machine.
	ErrMemory = sentinel.ErrMemory
	// ErrPanic reports a panic in a function of the caller, if Solver.Recover is set.
	ErrPanic = sentinel.ErrPanic
	// ErrDiverged reports that the iteration reached an infinite ELBO.
	ErrDiverged = sentinel.ErrDiverged
)

// prefixed adds "pgsvi: " to an error of an internal package before it leaves the library. The
// Solver adds it to the errors of steps.
func prefixed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgsvi: %w", sentinel.Bare(err))
}

// prefixedEach adds "pgsvi: " to each error and joins them. It skips nil errors.
func prefixedEach(errs []error) error {
	for i, err := range errs {
		errs[i] = prefixed(err)
	}
	return errors.Join(errs...)
}

// isNil reports whether an interface is nil or holds a nil pointer.
func isNil(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// checkNil returns an error that wraps ErrParam if x is nil or a nil pointer, whose methods may
// panic. The error calls x by the given name.
func checkNil(name string, x any) error {
	switch {
	case x == nil:
		return fmt.Errorf("pgsvi: %s is nil: %w", name, ErrParam)
	case isNil(x):
		return fmt.Errorf("pgsvi: %s is a nil %T; pass a pointer to a value: %w", name, x, ErrParam)
	}
	return nil
}

// absent reports whether x is nil, a nil pointer such as (*mat.Dense)(nil), or the transpose of a
// nil pointer. Methods of such a matrix panic.
func absent(x mat.Matrix) bool {
	if isNil(x) {
		return true
	}
	t, ok := x.(mat.Untransposer)
	return ok && isNil(t.Untranspose())
}

// checkMatrix returns an error that names x if x is absent.
func checkMatrix(name string, x mat.Matrix) error {
	if absent(x) {
		return fmt.Errorf("pgsvi: %s is a nil matrix: %w", name, ErrEmpty)
	}
	return nil
}

// givenOption reports whether the option x is set. It returns an error if x is a nil pointer.
func givenOption(name string, x mat.Matrix) (bool, error) {
	if x != nil && absent(x) {
		return false, fmt.Errorf("pgsvi: %s is a nil %T; leave it out, or give a matrix: %w", name,
			x, ErrParam)
	}
	return x != nil, nil
}

// spell returns v.String() if v has that method, and otherwise the type of v.
func spell(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", v)
}
