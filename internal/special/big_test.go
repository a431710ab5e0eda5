package special_test

import (
	"math"
	"math/big"
	"sync"
)

// This file computes reference values with more than a hundred digits, by slow and simple
// methods. A big.Float has neither subnormal numbers nor overflow, so the references also hold in
// the tails.

const prec = 400 // bits

func num(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }

func add(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(prec).Add(x, y) }
func sub(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(prec).Sub(x, y) }
func mul(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(prec).Mul(x, y) }
func quo(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(prec).Quo(x, y) }

func float(x *big.Float) float64 { f, _ := x.Float64(); return f }

// bigExp returns e^x by its series at x/2^k, squared k times.
func bigExp(x *big.Float) *big.Float {
	k := max(0, x.MantExp(nil)+8)
	r := new(big.Float).SetMantExp(x, -k)
	sum, term := num(1), num(1)
	for n := 1.0; term.Sign() != 0 && term.MantExp(nil) > -prec-20; n++ {
		term = quo(mul(term, r), num(n))
		sum = add(sum, term)
	}
	for range k {
		sum = mul(sum, sum)
	}
	return sum
}

// bigLog returns log x = 2 artanh((m−1)/(m+1)) + e log 2 for x = m 2^e.
func bigLog(x *big.Float) *big.Float {
	m := new(big.Float).SetPrec(prec)
	e := x.MantExp(m) // in [½, 1)
	y := twiceArtanh(quo(sub(m, num(1)), add(m, num(1))))
	return add(y, mul(num(float64(e)), ln2()))
}

func twiceArtanh(y *big.Float) *big.Float {
	y2, power, sum := mul(y, y), new(big.Float).Copy(y), new(big.Float).Copy(y)
	for k := 3.0; power.Sign() != 0 && power.MantExp(nil) > -prec-20; k += 2 {
		power = mul(power, y2)
		sum = add(sum, quo(power, num(k)))
	}
	return mul(sum, num(2))
}

var ln2 = sync.OnceValue(func() *big.Float { return twiceArtanh(quo(num(1), num(3))) })

// bigPi computes π by Machin's formula.
var bigPi = sync.OnceValue(func() *big.Float {
	arctan := func(n float64) *big.Float { // returns arctan(1/n)
		sum, power, sign := num(0), quo(num(1), num(n)), 1.0
		for k := 1.0; power.MantExp(nil) > -prec-20; k += 2 {
			sum = add(sum, quo(power, num(sign*k)))
			power, sign = quo(power, num(n*n)), -sign
		}
		return sum
	}
	return mul(num(4), sub(mul(num(4), arctan(5)), arctan(239)))
})

var logSqrt2Pi = sync.OnceValue(
	func() *big.Float { return quo(bigLog(mul(num(2), bigPi())), num(2)) })

// bigStirling returns log Γ(x) − (x−½) log x + x − log √(2π) for x ≥ 60 by its series. There,
// twenty Bernoulli numbers give fifty digits.
func bigStirling(x *big.Float) *big.Float {
	bernoulli := [][2]float64{{1, 6}, {-1, 30}, {1, 42}, {-1, 30}, {5, 66}, {-691, 2730}, {7, 6},
		{-3617, 510},
		{43867, 798}, {-174611, 330}, {854513, 138}, {-236364091, 2730}, {8553103, 6}}
	sum, power := num(0), new(big.Float).Copy(x)
	for k, b := range bernoulli {
		n := 2 * float64(k+1)
		sum = add(sum, quo(num(b[0]), mul(num(b[1]*n*(n-1)), power)))
		power = mul(power, mul(x, x))
	}
	return sum
}

// bigLogGamma returns log Γ(x) for x > 0 to forty digits, from Stirling's series at x + 80.
func bigLogGamma(x *big.Float) *big.Float {
	product := num(1)
	for x = new(big.Float).Copy(x); x.Cmp(num(80)) < 0; x = add(x, num(1)) {
		product = mul(product, x)
	}
	y := mul(sub(x, num(0.5)), bigLog(x))
	y = add(sub(y, x), add(logSqrt2Pi(), bigStirling(x)))
	return sub(y, bigLog(product))
}

// bigPDF returns e^{−t²/2}/√(2π).
func bigPDF(t float64) *big.Float {
	return bigExp(sub(quo(mul(num(t), num(t)), num(-2)), logSqrt2Pi()))
}

// bigGap returns φ(t)/Φ(−t) − t for t ≥ 0. Above 1 it uses the continued fraction 1/(t + 2/(t +
// 3/(t + …))) (Laplace 1805), and below 1 the series Φ(t) = ½ + φ(t) Σ_k t^{2k+1}/(2k+1)!!.
func bigGap(t float64) *big.Float {
	x := num(t)
	if t < 1 {
		sum, term := num(0), x
		for k := 3.0; term.Sign() != 0 && term.MantExp(nil) > -prec; k += 2 {
			sum = add(sum, term)
			term = quo(mul(term, mul(x, x)), num(k))
		}
		p := bigPDF(t)
		return sub(quo(p, sub(num(0.5), mul(p, sum))), x)
	}
	y := new(big.Float).SetPrec(100).Copy(x)
	for k := math.Ceil(400 + 2000/(t*t)); k > 0; k-- {
		y.Quo(big.NewFloat(k), y)
		y.Add(y, x)
	}
	return sub(y, x)
}

// apart returns |got − want|/|want|, or 0 if both round to zero as float64.
func apart(got float64, want *big.Float) float64 {
	if w := float(want); got == w {
		return 0
	}
	if want.Sign() == 0 || math.IsNaN(got) || math.IsInf(got, 0) {
		return math.Inf(1)
	}
	return math.Abs(float(quo(sub(num(got), want), want)))
}
