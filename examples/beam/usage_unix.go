//go:build unix

package main

import (
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// usage returns the CPU seconds of this process and its peak resident memory in units of 10⁶ bytes.
// Both are NaN if the system does not report them. They do not include worker processes.
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
