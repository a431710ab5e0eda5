// Package sentinel declares the sentinel errors of the module, and wraps and prints errors. All
// packages of the module use it, and the root package exports the errors under its own names.
package sentinel

import (
	"errors"
	"fmt"
	"strings"
)

// The root package documents each of these errors.
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

// Plain returns the text of err for people. It leaves out the name of the module and the texts of
// sentinels, which are for programs: the sentinels about data and options, and the given others.
func Plain(err error, others ...error) string {
	text := strings.TrimPrefix(err.Error(), "pgsvi: ")
	data := []error{ErrShape, ErrEmpty, ErrLabel, ErrNotFinite, ErrParam, ErrFile, ErrMemory}
	for _, s := range append(data, others...) {
		text = strings.ReplaceAll(text, ": "+s.Error(), "")
	}
	return text
}

// Bare returns err without the prefix "pgsvi: ", for callers that add the prefix themselves.
func Bare(err error) error { return bare{err} }

type bare struct{ error }

func (b bare) Error() string { return strings.TrimPrefix(b.error.Error(), "pgsvi: ") }

func (b bare) Unwrap() error { return b.error }

// Wrap returns an error with the text of fmt.Errorf(format, args...). The error also wraps the
// sentinel s, but does not print it because the text of a sentinel may contradict the message:
// "forty" is not a number, and ErrNotFinite reads "not finite".
func Wrap(s error, format string, args ...any) error {
	return &wrapped{fmt.Errorf(format, args...), s}
}

type wrapped struct{ message, sentinel error }

func (w *wrapped) Error() string { return w.message.Error() }

func (w *wrapped) Unwrap() []error { return []error{w.message, w.sentinel} }
