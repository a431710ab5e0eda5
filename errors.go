package pgsvi

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// The sentinels below are matched with errors.Is. Every error of the package
// wraps one of them, is prefixed "pgsvi: ", and names what it is about: the
// index of the datum, the iteration, the step size, and what to do.
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
	// ErrFile reports a file that Load cannot read: of another kind, of a newer release,
	// truncated, damaged, or with invalid contents. The message names the kind and says what to
	// do.
	ErrFile = sentinel.ErrFile
	// ErrMemory reports a model, a result or a file that needs more memory than allowed. The
	// check comes before any memory is taken, as a Go program cannot recover from running out of
	// it. The message says how much is needed and what to use instead.
	//
	// The limit is MaxMemory of the options, if there is one and it is not 0. Otherwise it is the
	// memory limit of the Go runtime (GOMEMLIMIT, or debug.SetMemoryLimit), if set. The default
	// is 8 GB on every machine.
	ErrMemory = sentinel.ErrMemory
	// ErrPanic reports a panic in a function of the caller, if Solver.Recover is set.
	ErrPanic = sentinel.ErrPanic
	// ErrDiverged reports that the iteration reached an infinite ELBO.
	ErrDiverged = sentinel.ErrDiverged
)

// prefixed adds "pgsvi: " to an error of an internal package that leaves the library. The Solver
// does so for its steps.
func prefixed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgsvi: %w", sentinel.Bare(err))
}

// prefixedEach joins errors of the engines, nil ones left out, each with the name of the package.
func prefixedEach(errs []error) error {
	for i, err := range errs {
		errs[i] = prefixed(err)
	}
	return errors.Join(errs...)
}

// isNil reports whether an interface holds nothing, or a nil pointer.
func isNil(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// absent reports whether x is nil, a nil pointer such as a (*mat.Dense)(nil), or the transpose of
// one. Their methods panic.
func absent(x mat.Matrix) bool {
	if isNil(x) {
		return true
	}
	t, ok := x.(mat.Untransposer)
	return ok && isNil(t.Untranspose())
}

// checkMatrix returns an error, which calls x by the name, if x is absent.
func checkMatrix(name string, x mat.Matrix) error {
	if absent(x) {
		return fmt.Errorf("pgsvi: %s is a nil matrix: %w", name, ErrEmpty)
	}
	return nil
}

// givenOption reports whether the option x is set. A nil pointer is neither: it is an error.
func givenOption(name string, x mat.Matrix) (bool, error) {
	if x != nil && absent(x) {
		return false, fmt.Errorf("pgsvi: %s is a nil %T; leave it out, or give a matrix: %w", name,
			x, ErrParam)
	}
	return x != nil, nil
}

// spell names v in an error: by its String method, or else by its type.
func spell(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", v)
}
