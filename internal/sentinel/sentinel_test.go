package sentinel

import (
	"errors"
	"io"
	"testing"
)

// TestWrap checks that an error prints only its message, and wraps its sentinel and the errors of
// the message.
func TestWrap(t *testing.T) {
	err := Wrap(ErrNotFinite, "found %q, want a number: %w", "forty", io.EOF)
	if got, want := err.Error(), `found "forty", want a number: EOF`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !errors.Is(err, ErrNotFinite) || !errors.Is(err, io.EOF) || errors.Is(err, ErrParam) {
		t.Error("it wraps other errors")
	}
	if got := Plain(err); got != err.Error() {
		t.Errorf("Plain: %s", got)
	}
}
