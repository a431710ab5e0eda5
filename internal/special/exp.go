package special

import (
	"math"
	"math/big"
)

// expZero is a number whose exp(−x) is 0.
const expZero = 800

// PolyExp replaces every r² ≥ 0 by p(a) exp(−a), a = √(c r²), for the polynomial p(a) = Σ_k
// p[k] aᵏ. At r² = +Inf the result is 0.
func PolyExp(r2 []float64, c float64, p []float64) {
	var a [64]float64
	var low [3]float64
	tail := p[copy(low[:], p):]
	for len(r2) > 0 {
		r := r2[:min(len(a), len(r2))]
		r2 = r2[len(r):]
		for i, v := range r {
			a[i] = min(math.Sqrt(c*v), expZero) // avoids 0·∞
		}
		copy(r, a[:])
		ExpRate(r, -1)
		if len(tail) == 0 {
			for i, e := range r {
				r[i] = (low[0] + low[1]*a[i] + low[2]*(a[i]*a[i])) * e
			}
			continue
		}
		for i, e := range r {
			x, high := a[i], 0.0
			for k := len(tail) - 1; k >= 0; k-- {
				high = high*x + tail[k]
			}
			r[i] = (low[0] + low[1]*x + (x*x)*(low[2]+x*high)) * e
		}
	}
}

// expBits sets the size of the table behind ExpRate.
const expBits = 7

// expTable holds 2^(i/128) as a rounded value and what it lacks.
var expTable = func() (table [1 << expBits][2]float64) {
	root := big.NewFloat(2).SetPrec(160)
	for range expBits {
		root.Sqrt(root)
	}
	v := big.NewFloat(1).SetPrec(160)
	for i := range table {
		table[i][0], _ = v.Float64()
		rest := new(big.Float).SetPrec(160).Sub(v, big.NewFloat(table[i][0]))
		table[i][1], _ = rest.Float64()
		v.Mul(v, root)
	}
	return table
}()

// expLeast is the exponent above which ExpRate stays clear of subnormal numbers.
const expLeast = -700

// ExpRate replaces every v by exp(rate·v), for rate·v ≤ 0: exp(x) =
// 2^(n/128) e^ρ with |ρ| ≤ ln 2/256, the first factor from a table and the second
// from its series (after Tang 1989). For x > −700 the result is within 0.6 units in the
// last place, where that of package math may be off by twenty. exp(0) is 1.
func ExpRate(v []float64, rate float64) {
	const (
		size  = 1 << expBits
		magic = 0x1.8p52              // adding it leaves the nearest integer in the low bits
		hi    = 0x1.62e42fep-1 / size // short enough for n·hi to be exact
		lo    = 0x1.f473de6af278ece600fcbdp-30 / size
	)
	for i, x := range v {
		x *= rate
		if !(x > expLeast) {
			v[i] = math.Exp(x) // NaN, 0, or close to it
			continue
		}
		t := x*(size/math.Ln2) + magic
		n := int64(math.Float64bits(t)) << 13 >> 13
		f := t - magic
		r := (x - f*hi) - f*lo
		p := r + r*r*(0.5+r*(1./6+r*(1./24+r*(1./120))))
		s := &expTable[n&(size-1)]
		y := s[0] + (s[1] + s[0]*p)
		v[i] = math.Float64frombits(math.Float64bits(y) + uint64(n>>expBits)<<52)
	}
}
