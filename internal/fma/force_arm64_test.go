//go:build !purego

package fma

// available returns the paths that this processor has.
func available() []string { return []string{"Go", "NEON"} }

// force selects a path, and returns a function that restores the previous selection.
func force(path string) func() {
	was := vectors
	vectors = path != "Go"
	return func() { vectors = was }
}
