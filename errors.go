package pgsvi

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// The sentinels below are matched with errors.Is. Every error of the package
// wraps one of them, is prefixed "pgsvi: ", and names what it is about: the
// index of the datum, the iteration, the step size, and what to do.
var (
	// ErrShape reports lengths or dimensions that disagree.
	ErrShape = sentinel.ErrShape
	// ErrEmpty reports a data set without rows or a distribution without dimensions.
	ErrEmpty = sentinel.ErrEmpty
	// ErrLabel reports a response outside the support of the likelihood.
	ErrLabel = sentinel.ErrLabel
	// ErrNotFinite reports a NaN or an infinity in the data or in a computed quantity.
	ErrNotFinite = sentinel.ErrNotFinite
	// ErrNotPosDef reports a matrix that had to be positive definite and is not.
	ErrNotPosDef = sentinel.ErrNotPosDef
	// ErrParam reports an option or parameter outside its documented range.
	ErrParam = sentinel.ErrParam
	// ErrNoProx reports a pair of convex term and divergence for which the
	// proximal step has neither a closed form nor a numeric fallback.
	ErrNoProx = sentinel.ErrNoProx
	// ErrNoEstimator reports an estimator that cannot handle the integrand or the family.
	ErrNoEstimator = sentinel.ErrNoEstimator
	// ErrFile reports a file that a Load function cannot read: one of another kind or of a newer
	// release, one that is cut short or damaged, or one whose contents make no value of the
	// kind. The message names the kind and says what to do.
	ErrFile = sentinel.ErrFile
	// ErrMemory reports a model, a result or a file that needs more memory than it may have, before
	// any of it is taken: out of memory is the one failure that a program does not survive. The
	// message says how much, and what to use instead. The limit is MaxMemory of the options where
	// there are such and it is not 0. Otherwise it is the memory limit of the Go runtime
	// (GOMEMLIMIT, or debug.SetMemoryLimit), if one is set, and 8 GB if not: the same on every
	// machine, so that what fits does not depend on where it was tried.
	ErrMemory = sentinel.ErrMemory
	// ErrPanic reports a panic of a function of the caller's, where Solver.Recover is set.
	ErrPanic = sentinel.ErrPanic
	// ErrDiverged reports that the iteration left the region where the ELBO is finite.
	ErrDiverged = sentinel.ErrDiverged
)

// prefixed adds the name of the package to an error of the engines, which have none, where it
// leaves the package; the Solver does so for its steps.
func prefixed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgsvi: %w", bare{err})
}

// prefixedEach joins errors of the engines, nil ones left out, each with the name of the package.
func prefixedEach(errs []error) error {
	for i, err := range errs {
		errs[i] = prefixed(err)
	}
	return errors.Join(errs...)
}

// bare is an error without the name of the package in front, for those who wrap it and put that
// there.
type bare struct{ error }

func (b bare) Error() string { return strings.TrimPrefix(b.error.Error(), "pgsvi: ") }

func (b bare) Unwrap() error { return b.error }

// isNil reports whether an interface holds nothing, or a nil pointer.
func isNil(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// absent reports whether x is nil, a nil pointer such as a (*mat.Dense)(nil), or
// the transpose of one: its methods panic.
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
		return false, fmt.Errorf("pgsvi: %s is a nil %T; leave it out, or give a matrix: %w", name, x, ErrParam)
	}
	return x != nil, nil
}

// spell is what an error calls v: as v calls itself, or by its type.
func spell(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", v)
}
