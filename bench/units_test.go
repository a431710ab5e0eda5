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

// inTurn runs the benchmark of f in turn with unit, and returns the median times of both in
// nanoseconds. The time and allocations that b reports are for f alone.
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

// lasting repeats unit until that has taken d, and returns the mean time. On a busy machine, a
// short call is seldom interrupted and a long call always is. So the ratio of two times depends
// only on the code if both last equally long.
func lasting(d time.Duration, unit func() time.Duration) time.Duration {
	total, n := unit(), 1
	for total < d {
		total += unit()
		n++
	}
	return total / time.Duration(n)
}
