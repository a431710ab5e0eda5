//go:build !unix

package main

import "time"

var start = time.Now()

// cpu returns the seconds since the start, where those of the CPU are not known: the
// times of this library are then wall time, while those of the scripts are CPU time.
func cpu() (float64, error) { return time.Since(start).Seconds(), nil }
