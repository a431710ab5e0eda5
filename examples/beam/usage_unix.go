//go:build unix

package main

import (
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// usage returns the processor time in seconds that this process has used, and the largest memory
// that was resident, in units of 10⁶ bytes, NaN where the system does not say. On a runner with
// workers of its own they have used their own.
func usage() (seconds, peak float64) {
	seconds, peak = math.NaN(), math.NaN()
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		seconds = float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	status, err := os.ReadFile("/proc/self/status")
	_, after, found := strings.Cut(string(status), "VmHWM:")
	if err != nil || !found {
		return seconds, peak
	}
	if kib, err := strconv.ParseFloat(strings.Fields(after)[0], 64); err == nil {
		peak = kib * 1024 / 1e6
	}
	return seconds, peak
}
