package logprob

import (
	"math"
	"sync"

	"github.com/pgsvi/pgsvi/internal/fma"
)

// This file computes log p of responses in (0, 1) with a beta distribution. Its gamma functions depend
// on η and the precision φ, but not on the response. They are an even function of η, so a table of
// polynomials replaces them.

// The table has cells of length 1/betaCells up to |η| = betaEnd. The gamma functions are analytic for
// |Im η| < π, so a polynomial of degree betaDegree through Chebyshev points has an error of about
// 50^−11 in each cell.
const (
	betaCells  = 4
	betaEnd    = 8
	betaDegree = 10
)

// betaCancel is the least size of log p relative to its terms, so that the error is at most about 1e−12.
const betaCancel = 1e-3

// BetaMost is the largest precision for which Beta is accurate. Above it, the terms of size φ would
// cancel.
const BetaMost = 1000

type betaTable [betaEnd * betaCells][betaDegree + 1]float64

// newBetaTable returns the polynomials of f, in the distance from the center of each cell, in units of
// half its length.
func newBetaTable(f func(eta float64) float64) *betaTable {
	const n = betaDegree + 1
	table := new(betaTable)
	for cell := range table {
		var value [n]float64
		for i := range value {
			t := math.Cos(math.Pi * (float64(i) + 0.5) / n)
			value[i] = f((float64(cell) + 0.5 + t/2) / betaCells)
		}
		// a and b are the coefficients of the Chebyshev polynomials T_j and T_{j−1}.
		var a, b [n]float64
		a[0] = 1
		for j := range n {
			c := 0.0
			for i, v := range value {
				c += v * math.Cos(math.Pi*float64(j)*(float64(i)+0.5)/n)
			}
			if c *= 2.0 / n; j == 0 {
				c /= 2
			}
			for i, x := range a {
				table[cell][i] += c * x
			}
			var next [n]float64
			for i := range n - 1 {
				next[i+1] = 2 * a[i]
			}
			if j == 0 {
				next[1] = 1
			}
			for i, x := range b {
				next[i] -= x
			}
			a, b = next, a
		}
	}
	return table
}

// Beta returns own + level(η) − φ(σ(η)(η − λ) − log(1+e^η)), with the own of each row and the log odds λ
// of its response. The function level is even and analytic for |Im η| < π. It is called when rows are
// computed for the first time. The function exact returns the same for one row. Beta calls it if |η| is
// large, or if the terms cancel.
func Beta(phi float64, own, odds []float64, level func(eta float64) float64,
	exact func(row int, eta float64) float64) Rows {
	of := sync.OnceValue(func() *betaTable { return newBetaTable(level) })
	return func(eta []float64, first int) {
		var e, l buffer
		table, n := of(), len(eta)
		for i, x := range eta {
			e[i] = -math.Abs(x)
		}
		fma.Exp(e[:n])
		copy(l[:n], e[:n])
		fma.Log1p(l[:n])
		for i, x := range eta {
			a := math.Abs(x)
			if !(a < betaEnd) {
				eta[i] = exact(first+i, x)
				continue
			}
			cell := int(a * betaCells)
			c, t := &table[cell], 2*betaCells*a-float64(2*cell+1)
			sum := c[betaDegree]
			for j := betaDegree - 1; j >= 0; j-- {
				sum = c[j] + float64(sum*t)
			}
			part := 1 / (1 + e[i])
			if x < 0 {
				part *= e[i]
			}
			rest := float64(phi * (float64(part*(x-odds[first+i])) - (l[i] + max(x, 0))))
			p := own[first+i] + sum - rest
			if !(math.Abs(p) > betaCancel*(math.Abs(own[first+i])+math.Abs(rest))) {
				p = exact(first+i, x)
			}
			eta[i] = p
		}
	}
}
