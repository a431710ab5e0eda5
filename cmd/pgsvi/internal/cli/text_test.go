package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// TestPSISWarning checks that a large khat with a small effective sample size comes with a remedy.
func TestPSISWarning(t *testing.T) {
	for _, c := range []struct {
		khat, ess     float64
		warns, remedy bool
	}{
		{0, 2199.999, false, false},
		{0.69, 300, false, false},
		{0.88, 2199.999, true, false},
		{0.88, 300, true, true},
	} {
		got := psisWarning(&pgsvi.PSIS{KHat: c.khat, ESS: c.ess, Draws: 2200})
		if got != "" != c.warns || strings.Contains(got, "use more rows") != c.remedy {
			t.Errorf("khat %v, effective sample size %v: %q", c.khat, c.ess, got)
		}
	}
}

// TestText checks that the escaped runes do not depend on how a text is split into writes.
func TestText(t *testing.T) {
	const text = "Größe\t身長\x1b[31m\u009b👩\xff\xf0\x9f\n"
	const want = "Größe\t身長\\x1b[31m\\u009b👩\\xff\\xf0\\x9f\n"
	for step := 1; step <= len(text); step++ {
		var out bytes.Buffer
		w := &Text{W: &out}
		for at := 0; at < len(text); at += step {
			part := text[at:min(at+step, len(text))]
			if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := w.Flush(); err != nil || out.String() != want {
			t.Errorf("writes of %d bytes: %q, want %q", step, out.String(), want)
		}
	}
	var out bytes.Buffer
	w := &Text{W: &out}
	w.Write([]byte("cut \xe8\xba"))
	if w.Flush(); out.String() != `cut \xe8\xba` {
		t.Errorf("a text that ends within a rune: %q", out.String())
	}
}

// failing is a writer that fails after its first write.
type failing struct{ writes int }

func (f *failing) Write(b []byte) (int, error) {
	if f.writes++; f.writes > 1 {
		return 0, fmt.Errorf("write %d", f.writes)
	}
	return len(b), nil
}

// TestTextError checks that a Text keeps the first error.
func TestTextError(t *testing.T) {
	w := &Text{W: &failing{}}
	for range 3 {
		fmt.Fprint(w, "x")
	}
	if err := w.Flush(); err == nil || err.Error() != "write 2" || !errors.Is(w.Err, err) {
		t.Error(err)
	}
}

// TestUntil checks that a long write ends when the context is done.
func TestUntil(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var out bytes.Buffer
	w := Until(ctx, writerFunc(func(b []byte) (int, error) {
		if out.Len() > 0 {
			cancel()
		}
		return out.Write(b)
	}))
	n, err := w.Write(make([]byte, 5*untilBlock+1))
	if n != 2*untilBlock || out.Len() != n || !errors.Is(err, context.Canceled) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
