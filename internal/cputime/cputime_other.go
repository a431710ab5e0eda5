//go:build !unix

package cputime

import "time"

var start = time.Now()

// Seconds returns the seconds since the program began: processor time is not known here.
func Seconds() float64 { return time.Since(start).Seconds() }
