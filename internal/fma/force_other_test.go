//go:build (!amd64 && !arm64) || purego

package fma

// available says that there is one path.
func available() []string { return []string{"Go"} }

// force has nothing to choose from.
func force(string) func() { return func() {} }
