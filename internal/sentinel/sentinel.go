// Package sentinel declares the sentinel errors of the module. The root package exports them
// under names of its own.
package sentinel

import (
	"errors"
	"fmt"
	"strings"
)

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

// Plain returns the text of an error for people: without the name of the module, and without what
// is for programs, the texts of the sentinels of data and options and those of others.
func Plain(err error, others ...error) string {
	text := strings.TrimPrefix(err.Error(), "pgsvi: ")
	data := []error{ErrShape, ErrEmpty, ErrLabel, ErrNotFinite, ErrParam, ErrFile, ErrMemory}
	for _, s := range append(data, others...) {
		text = strings.ReplaceAll(text, ": "+s.Error(), "")
	}
	return text
}

// Bare returns err without the prefix "pgsvi: ", for callers that add it.
func Bare(err error) error { return bare{err} }

type bare struct{ error }

func (b bare) Error() string { return strings.TrimPrefix(b.error.Error(), "pgsvi: ") }

func (b bare) Unwrap() error { return b.error }

// Wrap returns an error with the text that fmt.Errorf makes of format and args. It also wraps the
// sentinel s, but does not print it, because the text of a sentinel may contradict the message:
// "forty" is no number, and ErrNotFinite reads "not finite".
func Wrap(s error, format string, args ...any) error {
	return &wrapped{fmt.Errorf(format, args...), s}
}

type wrapped struct{ message, sentinel error }

func (w *wrapped) Error() string { return w.message.Error() }

func (w *wrapped) Unwrap() []error { return []error{w.message, w.sentinel} }
