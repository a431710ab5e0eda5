// Package expfam implements exponential families
//
//	q(z) = h(z) exp(ηᵀT(z) − A(η))
//
// and their members. A Family is a set of functions of the natural parameters η: the log-partition
// function A, the mean parameters μ = ∇A, the Fisher information ∇²A, draws and coordinates. A Member
// is one distribution of a Family, with conversions between η and μ.
//
// Functions avoid the cancellation of large terms, so that KL divergences near 0 and shapes between
// 1e-6 and 1e9 keep their digits. The methods use only builtin types and matrices, so the types also
// implement the interfaces of other packages.
//
//	member.go      Member: a valid η with its μ and A(η)
//	product.go     independent parts as one family
//	gamma.go       Gamma and inverse Gamma
//	dirichlet.go   Dirichlet and Beta
//	discrete.go    categorical and Poisson
//	wishart.go     Wishart and normal-Wishart
package expfam

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Log2Pi is log 2π.
const Log2Pi = 1.8378770664093454835606594728112352797227949472755668

// fisherMultiplier is a family with products of its Fisher information.
type fisherMultiplier interface {
	FisherMul(dst, g, eta []float64)
}

// FisherByColumns stores the Fisher information of f in dst. It multiplies unit vectors.
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

// root returns the x at which the decreasing function f is 0. It doubles its steps from x = 0 until it
// has a bracket, and then takes secants and halves.
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

// First returns the first elements of x for an error message.
func First(x []float64) []float64 { return x[:min(6, len(x))] }
