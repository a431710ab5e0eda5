package bench

import (
	"slices"
	"testing"
	"time"
)

// median returns the median of ds.
func median(ds []time.Duration) float64 {
	slices.Sort(ds)
	return float64(ds[len(ds)/2])
}

// inTurn runs f as the benchmark b, in turn with unit, and returns the median times
// of both, in nanoseconds. Time and allocations of b are those of f alone.
func inTurn(b *testing.B, unit func() time.Duration, f func()) (each, floor float64) {
	b.Helper()
	b.ReportAllocs()
	var fs, units []time.Duration
	for b.Loop() {
		start := time.Now()
		f()
		d := time.Since(start)
		b.StopTimer()
		fs, units = append(fs, d), append(units, lasting(d, unit))
		b.StartTimer()
	}
	return median(fs), median(units)
}

// lasting repeats unit until that has taken d, and returns the mean time. On a machine
// that does other things as well what is short is seldom interrupted and what is long
// always is, so that the ratio is that of the work only where both last as long.
func lasting(d time.Duration, unit func() time.Duration) time.Duration {
	total, n := unit(), 1
	for total < d {
		total += unit()
		n++
	}
	return total / time.Duration(n)
}
