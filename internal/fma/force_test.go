//go:build (amd64 || arm64) && !purego

package fma

// force chooses the path, and returns what takes the choice back.
func force(on bool) func() {
	was := vectors
	vectors = on
	return func() { vectors = was }
}
