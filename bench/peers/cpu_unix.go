//go:build unix

package main

import "syscall"

// cpu returns the CPU seconds of this process.
func cpu() (float64, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, err
}
