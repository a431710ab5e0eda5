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

// inTurn runs f as the benchmark b, with unit after each run, and returns the
// median times of both, in nanoseconds. Time and allocations of b are those of f alone.
func inTurn(b *testing.B, unit func() time.Duration, f func()) (each, floor float64) {
	b.Helper()
	b.ReportAllocs()
	var fs, units []time.Duration
	for b.Loop() {
		start := time.Now()
		f()
		d := time.Since(start)
		b.StopTimer()
		fs, units = append(fs, d), append(units, unit())
		b.StartTimer()
	}
	return median(fs), median(units)
}
