//go:build (!amd64 && !arm64) || purego

package fma

// force has nothing to choose from.
func force(bool) func() { return func() {} }
