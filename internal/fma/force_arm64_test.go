//go:build !purego

package fma

// available are the paths that this processor has.
func available() []string { return []string{"Go", "NEON"} }

// force chooses the path, and returns what takes the choice back.
func force(path string) func() {
	was := vectors
	vectors = path != "Go"
	return func() { vectors = was }
}
