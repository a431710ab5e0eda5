//go:build !race

package testkit

// Race reports whether the race detector is on, because it allocates memory.
const Race = false
