// Package expfam implements exponential families of one or more dimensions: log-partition
// functions, mean parameters, Fisher information, coordinates and draws. Its types use builtin
// types and matrices only, so that they satisfy the interfaces of other packages.
package expfam

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Log2Pi is log 2π.
const Log2Pi = 1.8378770664093454835606594728112352797227949472755668

// fisherMultiplier is a family that knows products with its Fisher information.
type fisherMultiplier interface {
	FisherMul(dst, g, eta []float64)
}

// FisherByColumns stores the Fisher information of f in dst, from products with unit vectors.
func FisherByColumns(dst *mat.SymDense, f fisherMultiplier, eta []float64) {
	n := len(eta)
	g, col := make([]float64, n), make([]float64, n)
	for i := range n {
		clear(g)
		g[i] = 1
		f.FisherMul(col, g, eta)
		for j := range i + 1 {
			dst.SetSym(j, i, col[j])
		}
	}
}

// root returns the x at which f falls through 0, looked for from x = 0 by steps that double until
// there is a bracket, and then by secants within it, or halves.
func root(f func(x float64) float64) float64 {
	lo, hi, step := 0.0, 0.0, 1.0
	flo := f(lo)
	fhi := flo
	for flo < 0 && lo > -700 {
		hi, fhi = lo, flo
		lo -= step
		step *= 2
		flo = f(lo)
	}
	for fhi > 0 && hi < 700 {
		lo, flo = hi, fhi
		hi += step
		step *= 2
		fhi = f(hi)
	}
	for i := 0; i < 200 && hi-lo > 4e-16*(math.Abs(lo)+1e-3) && flo != 0 && fhi != 0; i++ {
		x := 0.5 * (lo + hi)
		if i%3 != 2 {
			x = lo + (hi-lo)*flo/(flo-fhi)
			x = math.Max(lo+1e-3*(hi-lo), math.Min(x, hi-1e-3*(hi-lo)))
		}
		if v := f(x); v > 0 {
			lo, flo = x, v
		} else {
			hi, fhi = x, v
		}
	}
	if fhi == 0 {
		return hi
	}
	return lo
}

// First returns the first elements of x, which are enough for an error.
func First(x []float64) []float64 { return x[:min(6, len(x))] }
