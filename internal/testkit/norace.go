//go:build !race

package testkit

// Race reports whether the race detector is on: it allocates.
const Race = false
