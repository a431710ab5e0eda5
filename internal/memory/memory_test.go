package memory

import (
	"errors"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// TestLimit checks the order of the limits: the caller's, the runtime's, the default.
func TestLimit(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	if got := Limit(0); got != Default {
		t.Errorf("limit %v, want %v", got, float64(Default))
	}
	debug.SetMemoryLimit(3 << 30)
	if got := Limit(0); got != 3<<30 {
		t.Errorf("limit %v with that of the runtime", got)
	}
	if got := Limit(5); got != 5 {
		t.Errorf("limit %v, want 5", got)
	}
}

// TestCheck checks that the error names the need, the limit and the remedy.
func TestCheck(t *testing.T) {
	t.Parallel()
	if err := Check(1000, 1000, "x", "y"); err != nil {
		t.Error(err)
	}
	for _, need := range []float64{1001, 1e300, math.Inf(1), math.NaN()} {
		err := Check(1000, need, "a GP", "use less")
		want := "a GP needs " + Size(need) + " of memory, and the limit is 1 kB; use less: " +
			sentinel.ErrMemory.Error()
		if !errors.Is(err, sentinel.ErrMemory) || err.Error() != want {
			t.Errorf("%v: %v", need, err)
		}
	}
	for bytes, want := range map[float64]string{0: "0 bytes", 999: "999 bytes", 1000: "1 kB",
		8e9: "8 GB", 3.2e11: "320 GB", 1.6e19: "16 EB"} {
		if got := Size(bytes); got != want {
			t.Errorf("%v bytes are %q, want %q", bytes, got, want)
		}
	}
}

// TestBudget checks that kept bytes add up, with an allowance for slices that grow.
func TestBudget(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	b := NewBudget("a file", "read less")
	n := 0
	for b.Keep(1<<20) == nil {
		n++
	}
	if n < 400 || n > 512 {
		t.Errorf("%d MB kept under a limit of 1024", n)
	}
	if err := b.Keep(0); err == nil || !strings.Contains(err.Error(), "a file needs") {
		t.Error(err)
	}
}

// TestPeak checks that this process has used some memory.
func TestPeak(t *testing.T) {
	if mb := Peak() / 1e6; !(mb > 1 && mb < 1e6) {
		t.Errorf("%v MB", mb)
	}
}
