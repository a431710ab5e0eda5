//go:build !unix

package main

import (
	"math"
	"runtime"
)

// cores returns the number of goroutines that can run at once.
func cores() int { return runtime.GOMAXPROCS(0) }

// cpuSeconds is not known here.
func cpuSeconds() float64 { return math.NaN() }
