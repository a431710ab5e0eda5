//go:build (!amd64 && !arm64) || purego

package fma

// available returns the only path.
func available() []string { return []string{"Go"} }

// force does nothing, because there is only one path.
func force(string) func() { return func() {} }
