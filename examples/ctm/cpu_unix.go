//go:build unix

package main

import (
	"runtime"
	"syscall"
)

// cores returns the number of goroutines that can run at once.
func cores() int { return runtime.GOMAXPROCS(0) }

// cpuSeconds returns the processor time that the program has used.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}
