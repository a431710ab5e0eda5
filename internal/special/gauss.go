package special

import "math"

const (
	GaussInvSqrt2Pi = 0.39894228040143267794 // 1/√(2π)
	gaussSqrt2Pi    = 2.50662827463100050242 // √(2π)
	LogSqrt2Pi      = 0.91893853320467274178 // log √(2π)
	Eps             = 0x1p-52                // distance from 1 to the next number
	pdfReach        = 39                     // NormalPDF is 0 beyond this
	gapReach        = 1e8                    // c(t) is 1/t to double precision beyond this
)

// NormalPDF returns φ(t) = exp(−t²/2)/√(2π). It corrects for the rounding of t², which is
// the largest error in the tails.
func NormalPDF(t float64) float64 {
	if math.Abs(t) > pdfReach {
		return 0
	}
	q := float64(t * t)
	return NormalPDFOf(t, q, math.Exp(-q/2))
}

// NormalPDFOf returns φ(t) for |t| ≤ 39, given q, which is t² rounded, and e = exp(−q/2).
func NormalPDFOf(t, q, e float64) float64 {
	return GaussInvSqrt2Pi * e * (1 - math.FMA(t, t, -q)/2)
}

// GaussGap returns c(t) = φ(t)/Φ(−t) − t for t ≥ 0, the difference between the hazard of the
// Gaussian and its asymptote t. The gap falls from √(2/π) at 0 and is about 1/t for large t.
// GaussGap subtracts nothing, so all functions of a Gaussian tail follow from it with an error of
// a few units in the last place:
//
//	Φ(−t) = φ(t)/(t+c)   φ(t) − tΦ(−t) = φ(t) c/(t+c)   (log Φ)''(−t) = −c(t+c)
//
// (t+4) c(t) is a polynomial in (t−4)/(t+4), which interpolates at 96 Chebyshev points and is cut
// at degree 27. Its relative error is 1.4e−17 before rounding. Shepherd and Laframboise (1981)
// use the same variable to expand erfc.
func GaussGap(t float64) float64 {
	if t > gapReach {
		return 1 / t
	}
	r := 1 / (t + 4)
	y := (t - 4) * r
	z := y * y
	w := z * z
	// Four chains in y⁴ run faster than a single chain in y.
	a := math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w,
		2.556914380818790487e-7, 8.114172816411628416e-6), 1.048875487098567467e-4),
		5.948559918031811479e-4),
		-4.488589890605868534e-3), -1.382244914791536557e-1), 1.804857155915768566)
	b := math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w,
		-1.352941308199480866e-7, -1.126747164379847836e-6), 2.559841071823939637e-5),
		6.654957847153116697e-4),
		7.961411150203151847e-3), 3.3703667653515472e-2), -1.182204501519279238)
	c := math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w,
		-2.071114283078506995e-8, -1.690563459242757849e-6), -3.170859414881325736e-5),
		-2.892918027857523183e-4),
		-3.735859695220014291e-4), 3.165652748977748726e-2), 4.019567038062352753e-1)
	d := math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w, math.FMA(w,
		1.480415402256354445e-8, 5.605918542801534571e-7), -1.456518782761558669e-6),
		-1.503312905080569083e-4),
		-2.485792242193540159e-3), -2.080045431159896098e-2), 6.751792792276658551e-2)
	return r * math.FMA(z, math.FMA(y, d, c), math.FMA(y, b, a))
}

// NormalTail returns Φ(−t), the probability that a standard Gaussian variable exceeds t.
func NormalTail(t float64) float64 {
	if t < 0 {
		return 1 - NormalTail(-t)
	}
	return NormalPDF(t) / (t + GaussGap(t))
}

// NormalLogTail returns log Φ(−t) in nats. It also works if Φ(−t) underflows.
func NormalLogTail(t float64) float64 {
	if t < 0 {
		return math.Log1p(-NormalTail(-t))
	}
	return -t*t/2 - math.Log(gaussSqrt2Pi*(t+GaussGap(t)))
}

// Mills returns Mills' ratio Φ(−t)/φ(t). It overflows below t = −37.6.
func Mills(t float64) float64 {
	if t < 0 {
		return NormalTail(t) / NormalPDF(t)
	}
	return 1 / (t + GaussGap(t))
}

// NormalLoss returns E[max(0, u−t)] = φ(t) − tΦ(−t) for u ~ N(0, 1).
func NormalLoss(t float64) float64 {
	if t < 0 {
		return NormalLoss(-t) - t
	}
	c := GaussGap(t)
	return NormalPDF(t) * c / (t + c)
}

// NormalLogCDF returns log Φ(x) and its first two derivatives, the inverse Mills ratio λ = φ/Φ
// and −λ(λ+x) < 0. Each has full relative accuracy.
func NormalLogCDF(x float64) (g, d1, d2 float64) {
	if x < 0 {
		c := GaussGap(-x)
		h := c - x
		return -x*x/2 - math.Log(gaussSqrt2Pi*h), h, -c * h
	}
	p := NormalPDF(x)
	q := p / (x + GaussGap(x))
	h := p / (1 - q)
	return math.Log1p(-q), h, -h * (h + x)
}
