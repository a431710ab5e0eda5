//go:build !unix

package cputime

import "time"

var start = time.Now()

// Seconds returns the seconds since the program began, because the processor time is not known on
// this system.
func Seconds() float64 { return time.Since(start).Seconds() }
