//go:build unix

package cputime

import "syscall"

// Seconds returns the processor time, in seconds, that all threads of this process have used.
func Seconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
