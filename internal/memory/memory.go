// Package memory checks whether a model, a file or an option would need more memory than allowed.
// Callers check before they allocate, because a Go process that runs out of memory ends.
package memory

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Default is the limit in bytes where nobody has set one. It is the same on every machine, so that
// what fits does not depend on where it was tried; it is a share of what the memory of today's
// machines is.
const Default = 8e9

// Limit returns how many bytes may be asked for: most if that is positive. Otherwise it is the
// memory limit of the Go runtime (GOMEMLIMIT, debug.SetMemoryLimit), or Default if there is none.
func Limit(most int64) float64 {
	if most > 0 {
		return float64(most)
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return float64(limit)
	}
	return Default
}

// Check returns an error that wraps ErrMemory if need is more than Limit(most). What says what
// needs the memory, and instead what to do. The need is a float64, in which no product of sizes
// overflows.
func Check(most int64, need float64, what, instead string) error {
	if limit := Limit(most); !(need <= limit) {
		return fmt.Errorf("%s needs %s of memory, and the limit is %s; %s: %w",
			what, Size(need), Size(limit), instead, sentinel.ErrMemory)
	}
	return nil
}

// Bytes returns the memory of so many matrices of rows × cols numbers, in float64 as products of
// sizes overflow.
func Bytes(matrices float64, rows, cols int) float64 {
	return 8 * matrices * float64(rows) * float64(cols)
}

// Size returns a number of bytes as text, in decimal units.
func Size(bytes float64) string {
	for _, u := range []struct {
		one  float64
		name string
	}{{1e18, "EB"}, {1e15, "PB"}, {1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if bytes >= u.one {
			return fmt.Sprintf("%.3g %s", bytes/u.one, u.name)
		}
	}
	return fmt.Sprintf("%.0f bytes", bytes)
}

// growth is how much memory there is at once, in units of what is kept, while a long slice grows:
// it and the next one, which is a quarter longer.
const growth = 2.25

// A Budget is of what is kept of a file while it is read, whose size is not known before.
type Budget struct {
	what, instead string
	kept, most    float64
}

// NewBudget returns a budget of Limit(0) for what; instead is what to do where that is too little.
func NewBudget(what, instead string) *Budget {
	return &Budget{what: what, instead: instead, most: Limit(0) / growth}
}

// Keep counts so many more bytes that are kept, and returns an error if all of them
// are more than the budget.
func (b *Budget) Keep(bytes int) error {
	if b.kept += float64(bytes); b.kept > b.most {
		return Check(0, growth*b.kept, b.what, b.instead)
	}
	return nil
}

// Column is how many bytes the smallest linear model, one with a diagonal covariance, keeps of a
// column. These are its name, and a dozen vectors of prior, mean, variance and gradient.
const Column = 120

// Peak returns the largest memory of this process that was resident, in bytes. Where there
// is no /proc it is what the Go runtime has from the system, which is less.
func Peak() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if _, after, found := strings.Cut(string(status), "VmHWM:"); err == nil && found {
		var kb float64
		if _, err := fmt.Sscan(after, &kb); err == nil {
			return kb * 1024
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys)
}
