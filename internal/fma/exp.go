package fma

import "math"

// Exp replaces each x by e^x, with an error of at most one unit in the last place. With the
// integer n nearest to x/log 2, it computes 2ⁿe^r with |r| ≤ ½ log 2. There e^r = 1 + r + r²p(r),
// where p is the polynomial of degree 9 that minimizes the largest relative error, 4e-18.
func Exp(x []float64) { pathExp(x) }

// Log1p replaces each x by log(1 + x), with an error of at most one unit in the last place. With
// 1 + x = 2ᵏ(1 + f) and ½√2 ≤ 1 + f < √2, it computes k log 2 + 2 artanh s for s = f/(2+f), and
// corrects the rounding of 1 + x. The polynomial comes from log1p of FreeBSD (Ng 1993).
func Log1p(x []float64) { pathLog1p(x) }

// These are the constants of Exp and Log1p.
const (
	expLeast, expMost = -746, 710 // e^x is 0 or +Inf beyond these
	// adding expMagic leaves the nearest integer in the low bits
	expMagic  = 0x1.8p52
	logTwo    = math.Ln2              // rounded
	logTwoLow = 0x1.abc9e3b39803fp-56 // log 2 minus logTwo
	logE      = math.Log2E

	exponent   = 52               // position of the first exponent bit
	exponentAt = 1023             // exponent of 1
	belowOne   = 0x3fe6a09e << 32 // ½√2 with zeros in the lower half
	oneBits    = exponentAt << exponent
	integers   = 0x1p52          // all numbers from here on are integers, in their low bits
	log1pTiny  = 0x1p-54         // log(1 + x) is x below this
	log1pHigh  = 0x1.62e42feep-1 // log 2, short enough that k·log1pHigh is exact
	log1pLow   = 0x1.a39ef35793c76p-33
)

var (
	expPoly = [10]float64{0x1.000000000000ap-1, 0x1.55555555554fap-3, 0x1.555555555087cp-5,
		0x1.1111111127be6p-7, 0x1.6c16c1842a109p-10,
		0x1.a01a012a57804p-13, 0x1.a0199a0c6a6efp-16, 0x1.71df2552b5058p-19, 0x1.28ad72c9d4e2cp-22,
		0x1.ad7f6e40e0c63p-26}
	log1pPoly = [7]float64{6.666666666666735130e-01, 3.999999999940941908e-01,
		2.857142874366239149e-01, 2.222219843214978396e-01,
		1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01}
)

// exp implements Exp in Go.
func exp(v []float64) {
	for i, x := range v {
		if x < expLeast {
			x = expLeast
		}
		if x > expMost {
			x = expMost
		}
		t := math.FMA(x, logE, expMagic)
		f := t - expMagic
		r := math.FMA(-f, logTwoLow, math.FMA(-f, logTwo, x))
		p := expPoly[9]
		for k := 8; k >= 0; k-- {
			p = math.FMA(p, r, expPoly[k])
		}
		y := 1 + math.FMA(r*r, p, r)
		// Multiply by 2ⁿ in two factors, because 2ⁿ may overflow.
		n := int32(math.Float64bits(t))
		half := n >> 1
		y *= math.Float64frombits(uint64(half+exponentAt) << exponent)
		y *= math.Float64frombits(uint64(n-half+exponentAt) << exponent)
		v[i] = y
	}
}

// log1p implements Log1p in Go.
func log1p(v []float64) {
	for i, x := range v {
		u := 1 + x
		// c is the rounding error of u, relative to u.
		back := u - 1
		c := ((1 - (u - back)) + (x - back)) / u
		bits := math.Float64bits(u) + (oneBits - belowOne)
		biased := bits >> exponent
		k := math.Float64frombits(biased|math.Float64bits(integers)) - (integers + exponentAt)
		f := math.Float64frombits(bits&(1<<exponent-1)+belowOne) - 1
		if k == 0 {
			f, c = x, 0
		}
		s := f / (2 + f)
		z := s * s
		w := z * z
		p := &log1pPoly
		odd := math.FMA(w, math.FMA(w, math.FMA(w, p[6], p[4]), p[2]), p[0])
		even := math.FMA(w, math.FMA(w, p[5], p[3]), p[1])
		half := float64(0.5 * f * f) // must not be fused with later operations
		y := math.FMA(s, half+math.FMA(w, even, float64(z*odd)), math.FMA(k, log1pLow, c))
		y = math.FMA(k, log1pHigh, (y-half)+f)
		switch {
		case x > math.MaxFloat64 || math.Abs(x) < log1pTiny:
			y = x
		case x == -1:
			y = math.Inf(-1)
		case !(x > -1): // includes NaN
			y = math.NaN()
		}
		v[i] = y
	}
}
