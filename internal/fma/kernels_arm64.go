//go:build !purego

package fma

// gemmNEON implements gemmTile.
//
//go:noescape
func gemmNEON(k int, a, b, c *float64, ldc int, alpha float64)

// dotNEON stores the sums of dot over the first n numbers, where n is a multiple of 4.
//
//go:noescape
func dotNEON(n int, x, y *float64, sum *[16]float64)

// axpyNEON implements axpy if n is a multiple of 2.
//
//go:noescape
func axpyNEON(n int, a float64, x, y *float64)

// axpy4NEON implements axpy4 if n is a multiple of 2.
//
//go:noescape
func axpy4NEON(n int, a *[4]float64, x *float64, ld int, y *float64)
