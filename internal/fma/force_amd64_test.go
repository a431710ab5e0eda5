//go:build !purego

package fma

// available returns the paths that this processor has.
func available() []string {
	switch {
	case vectors512:
		return []string{"Go", "AVX2", "AVX512"}
	case vectors:
		return []string{"Go", "AVX2"}
	}
	return []string{"Go"}
}

// force selects a path, and returns a function that restores the previous selection.
func force(path string) func() {
	was, was512 := vectors, vectors512
	vectors, vectors512 = path != "Go", path == "AVX512"
	return func() { vectors, vectors512 = was, was512 }
}
