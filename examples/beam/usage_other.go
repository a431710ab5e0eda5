//go:build !unix

package main

import "math"

// usage returns processor time and memory, which are not known here.
func usage() (seconds, peak float64) { return math.NaN(), math.NaN() }
