//go:build !unix

package main

import "math"

// usage returns NaN, because this system does not report CPU time and memory.
func usage() (seconds, peak float64) { return math.NaN(), math.NaN() }
