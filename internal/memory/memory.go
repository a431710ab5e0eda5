// Package memory checks whether a model, a file or an option needs more memory than allowed.
// Callers check before they allocate, because a Go process that runs out of memory ends without a
// chance to report an error.
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

// Default is the limit in bytes if nobody has set one. It is the same on every machine, so that
// whether a model fits does not depend on the machine, and a fraction of the memory that machines
// usually have.
const Default = 8e9

// Limit returns the number of bytes that may be used: most if it is positive, and otherwise the
// memory limit of the Go runtime (GOMEMLIMIT, debug.SetMemoryLimit), or Default if there is no
// such limit.
func Limit(most int64) float64 {
	if most > 0 {
		return float64(most)
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return float64(limit)
	}
	return Default
}

// Check returns an error that wraps ErrMemory if need exceeds Limit(most). The message names the
// purpose of the memory (what) and the remedy (instead). need is a float64 because products of
// sizes may overflow an int.
func Check(most int64, need float64, what, instead string) error {
	if limit := Limit(most); !(need <= limit) {
		return fmt.Errorf("%s needs %s of memory, and the limit is %s; %s: %w",
			what, Size(need), Size(limit), instead, sentinel.ErrMemory)
	}
	return nil
}

// Bytes returns the memory of n matrices of rows × cols numbers. It returns a float64 because
// products of sizes may overflow an int.
func Bytes(matrices float64, rows, cols int) float64 {
	return 8 * matrices * float64(rows) * float64(cols)
}

// Size formats a number of bytes in decimal units.
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

// growth is the peak memory of a long slice while it grows, in units of its size. The old and the
// new array, which is a quarter longer, exist at the same time.
const growth = 2.25

// A Budget limits the memory for a file of unknown size while it is read.
type Budget struct {
	what, instead string
	kept, most    float64
}

// NewBudget returns a budget of Limit(0). Error messages name the purpose of the memory (what)
// and the remedy (instead).
func NewBudget(what, instead string) *Budget {
	return &Budget{what: what, instead: instead, most: Limit(0) / growth}
}

// Keep counts bytes that are kept from now on. It returns an error if the total exceeds the
// budget.
func (b *Budget) Keep(bytes int) error {
	if b.kept += float64(bytes); b.kept > b.most {
		return Check(0, growth*b.kept, b.what, b.instead)
	}
	return nil
}

// Column is the number of bytes that the smallest linear model keeps for a column. It has a
// diagonal covariance, the name of the column, and a dozen vectors for prior, mean, variance and
// gradient.
const Column = 120

// Peak returns the largest resident memory of this process so far, in bytes. On systems without
// /proc it returns the memory that the Go runtime obtained from the system, which is less.
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
