package special

import (
	"math"
	"sync"

	"gonum.org/v1/gonum/integrate/quad"

	"github.com/pgsvi/pgsvi/internal/fma"
)

// asymptoticLeast is the smallest argument at which the asymptotic series of the digamma and
// trigamma functions are accurate to rounding. The first term that they leave out is below 1e−17
// of the sum.
const asymptoticLeast = 10

// digammaSeries holds the coefficients of log y − ψ(y) − 1/(2y) in powers of 1/y² with
// alternating signs, from the first power on (Abramowitz and Stegun 1964, 6.3.18). trigammaSeries
// holds the coefficients of y(ψ′(y) − 1/y − 1/(2y²)) (6.4.12).
var (
	digammaSeries = [...]float64{1.0 / 12, 1.0 / 120, 1.0 / 252, 1.0 / 240, 1.0 / 132,
		691.0 / 32760, 1.0 / 12, 3617.0 / 8160}
	trigammaSeries = [...]float64{1.0 / 6, 1.0 / 30, 1.0 / 42, 1.0 / 30, 5.0 / 66, 691.0 / 2730,
		7.0 / 6, 3617.0 / 510}
)

// series returns the sum of a series at z = 1/y², and the divided difference of the series
// between z and w.
func series(c *[8]float64, z, w float64) (sum, slope float64) {
	for k := len(c) - 1; k >= 0; k-- {
		slope = -w*slope - sum
		sum = c[k] - z*sum
	}
	return z * sum, sum + w*slope
}

// digammaTail returns log y − ψ(y) − 1/(2y) for y ≥ asymptoticLeast.
func digammaTail(y float64) float64 {
	z := 1 / (y * y)
	sum := 0.0
	for k := len(digammaSeries) - 1; k >= 0; k-- {
		sum = digammaSeries[k] - z*sum
	}
	return z * sum
}

// reciprocals returns Σ 1/(x+k) over k = 0 … n−1, and y = x + n. It chooses the smallest n for
// which the series apply at y.
func reciprocals(x float64) (sum, y float64) {
	num, den := 0.0, 1.0
	for y = x; y < asymptoticLeast; y++ {
		num, den = num*y+den, den*y
	}
	return num / den, y
}

// Digamma returns ψ(x), the derivative of log Γ(x), for x > 0. Its error is a few units of 1e−16
// (|ψ(x)| + 1).
func Digamma(x float64) float64 {
	sum, y := reciprocals(x)
	return math.Log(y) - 0.5/y - digammaTail(y) - sum
}

// Digammas stores ψ(x_k) in dst, which may be x. It is as accurate as Digamma and takes two
// thirds of the time.
func Digammas(dst, x []float64) {
	var rest [64]float64 // log y − ψ(x)
	for len(x) > 0 {
		n := min(len(x), len(rest))
		for k, a := range x[:n] {
			sum, y := reciprocals(a)
			rest[k], dst[k] = 0.5/y+digammaTail(y)+sum, y-1
		}
		fma.Log1p(dst[:n])
		for k, r := range rest[:n] {
			dst[k] -= r
		}
		dst, x = dst[n:], x[n:]
	}
}

// DigammaGap returns log x − ψ(x) for x > 0 to full relative accuracy. The result is about 1/(2x)
// for large x and about 1/x for small x.
func DigammaGap(x float64) float64 {
	sum, y := reciprocals(x)
	if y == x {
		return 0.5/x + digammaTail(x)
	}
	return sum - math.Log1p((y-x)/x) + 0.5/y + digammaTail(y)
}

// Trigamma returns ψ′(x) for x > 0 to full relative accuracy.
func Trigamma(x float64) float64 {
	if math.IsInf(x, 1) {
		return 0
	}
	return 1/x + TrigammaGap(x)
}

// TrigammaGap returns ψ′(x) − 1/x for x > 0 to full relative accuracy (Abramowitz and Stegun
// 1964, 6.4.12). The result is about 1/(2x²) for large x.
func TrigammaGap(x float64) float64 {
	var sum float64
	y := x
	for ; y < asymptoticLeast; y++ {
		sum += 1 / (y * y * (y + 1)) // 1/y² − 1/y + 1/(y+1)
	}
	z := 1 / (y * y)
	tail := 0.0
	for k := len(trigammaSeries) - 1; k >= 0; k-- {
		tail = trigammaSeries[k] - z*tail
	}
	return sum + z*(0.5+tail/y)
}

// DigammaRise returns ψ(x+d) − ψ(x) for x > 0 and d ≥ 0, to full relative accuracy.
func DigammaRise(x, d float64) float64 {
	var sum float64
	y := x
	for ; y < asymptoticLeast; y++ {
		sum += d / y / (y + d)
	}
	e := y + d
	_, slope := series(&digammaSeries, 1/(y*y), 1/(e*e))
	return sum + math.Log1p(d/y) + d/y/e*(0.5+(1/y+1/e)*slope)
}

// TrigammaFall returns ψ′(x) − ψ′(x+d) for x > 0 and d ≥ 0, to full relative accuracy.
func TrigammaFall(x, d float64) float64 {
	var sum float64
	y := x
	fall := func(y, e float64) float64 { return d / y / e * (1/y + 1/e) } // fall of 1/y²
	for ; y < asymptoticLeast; y++ {
		sum += fall(y, y+d)
	}
	// This is the fall of s(z)/y, with the series s and z = 1/y²: s(z)(1/y − 1/e) + (s(z) −
	// s(w))/e.
	e := y + d
	s, slope := series(&trigammaSeries, 1/(y*y), 1/(e*e))
	return sum + d/y/e*(1+s) + fall(y, e)*(0.5+slope/e)
}

// inverseSteps limits the Newton steps of an inverse. Six steps are enough from the starts below.
const inverseSteps = 20

// InvDigamma returns the x > 0 with ψ(x) = y. It starts from the asymptotes of ψ at both ends
// (Minka 2000, appendix C) and takes Newton steps in log x, because ψ is concave and nearly
// straight in log x.
func InvDigamma(y float64) float64 {
	x := math.Exp(y) + 0.5
	if y < -2.22 {
		x = 1 / (digammaOfOne - y)
	}
	for range inverseSteps {
		step := (Digamma(x) - y) / (x * Trigamma(x))
		x *= math.Exp(-step)
		if !(math.Abs(step) > 4e-16) {
			break
		}
	}
	return x
}

// digammaOfOne is ψ(1), the negative of Euler's constant.
const digammaOfOne = -0.57721566490153286060651209008240243104215933593992

// InvDigammaGap returns the x > 0 with log x − ψ(x) = y, for y > 0. This is the shape of a gamma
// distribution whose log mean exceeds the mean of its logarithm by y. It starts like Minka (2002)
// and takes Newton steps of the log gap in log x, because that function is nearly straight.
func InvDigammaGap(y float64) float64 {
	x := 0.5 / y
	if y > 0.01 {
		x = (3 - y + math.Sqrt((y-3)*(y-3)+24*y)) / (12 * y)
	}
	for range inverseSteps {
		gap := DigammaGap(x)
		// d gap / d log x = 1 − x ψ′(x).
		step := gap * math.Log(gap/y) / (x * TrigammaGap(x))
		x *= math.Exp(step)
		if !(math.Abs(step) > 4e-16) {
			break
		}
	}
	return x
}

// Binet returns log Γ(x) − (x−½) log x + x − log √(2π) for x > 0, which is Binet's function. It
// is positive, about 1/(12x) for large x, and about −½ log x for small x.
func Binet(x float64) float64 {
	if x >= stirlingLeast {
		return Stirling(x)
	}
	g, _ := math.Lgamma(x)
	return g - Times(x-0.5, math.Log(x)) + x - LogSqrt2Pi
}

// LogGammaRise returns log Γ(x+d)/Γ(x) for x > 0 and d ≥ 0, without subtracting large logarithms.
func LogGammaRise(x, d float64) float64 {
	if x < stirlingLeast {
		g, _ := math.Lgamma(x)
		if x+d < stirlingLeast {
			h, _ := math.Lgamma(x + d)
			return h - g
		}
		return (x+d-0.5)*math.Log(x+d) - (x + d) + LogSqrt2Pi + Stirling(x+d) - g
	}
	return d*math.Log(x+d) + (x-0.5)*math.Log1p(d/x) - d + Stirling(x+d) - Stirling(x)
}

// LogGap returns r − 1 − log r for r > 0 to full relative accuracy. The result is not negative.
func LogGap(r float64) float64 {
	e := r - 1
	if math.Abs(e) > 0.1 {
		return e - math.Log(r)
	}
	sum := 0.0
	for k := 17.0; k >= 2; k-- { // Σ (−e)^k/k
		sum = 1/k - e*sum
	}
	return e * e * sum
}

// GammaRest returns λ(x) − λ(y) − (x−y)λ′(y) with λ(x) = log Γ(x) − x log x + x, for x, y > 0.
// This is the Bregman divergence of log Γ from y to x, minus the Bregman divergence of x log x −
// x. It is not negative.
func GammaRest(x, y float64) float64 {
	if x == y {
		return 0
	}
	r := x / y
	if y < asymptoticLeast {
		return Binet(x) - Binet(y) - 0.5*math.Log(r) + (x-y)*DigammaGap(y)
	}
	return 0.5*LogGap(r) + Binet(x) - Binet(y) + (x-y)*digammaTail(y)
}

// These constants select the methods of GammaSlope and their sizes.
const (
	slopeSeries = 30  // the series is short below this shape
	slopeBeyond = 10  // if terms cancel, the series is tried up to z = shape + slopeBeyond
	slopeLoss   = 0.1 // fraction of the series that must remain after cancellation
	slopeNodes  = 16  // nodes per panel, accurate to 1e−18 over 13 e-folds
	// slopePanels is the number of panels from the draw to the end of the density, for large
	// shapes.
	slopePanels = 4
	slopeFolds  = 40  // an exponential vanishes after this number of e-folds
	slopeFlat   = -37 // e^−z is 1 below this log z
	slopeMild   = -3  // e^−z is nearly 1 below this log z
	slopeWidth  = 4   // width of the panels between slopeFlat and slopeMild
	slopeLast   = 6   // number of panels after slopeMild or the draw
)

// slopeRule computes the Gauss-Legendre rule on [0, 1].
var slopeRule = sync.OnceValue(func() *[2][slopeNodes]float64 {
	r := new([2][slopeNodes]float64)
	quad.Legendre{}.FixedLocations(r[0][:], r[1][:], 0, 1)
	return r
})

// GammaSlope returns ∂ log z/∂a at the given quantile of log z, for z ~ Gamma(a, 1). It is the
// implicit derivative of a draw (Figurnov, Mohamed and Mnih 2018),
//
//	−(∂P(a, z)/∂a)/(z p(z|a)) = −∫_{−∞}^0 e^{φ(u)}(u + c) du = ∫_0^∞ e^{φ(u)}(u + c) du,
//	φ(u) = au − z(e^u − 1),   c = log z − ψ(a).
//
// It computes the first integral if c is negative and the second integral otherwise, so nothing
// cancels. If the first integral is a short series, it may also serve for positive c, which loses
// at most one digit. The result is positive.
func GammaSlope(a, logz float64) float64 {
	z, c := math.Exp(logz), logz-Digamma(a)
	if a < slopeSeries && (c < 0 || z < a+slopeBeyond) {
		// The series of the integral is ∫ e^φ du = Σ z^k/(a)_{k+1}, and its derivative in a is
		// the integral of u e^φ.
		term, harmonic := 1/a, 1/a
		sum, weighted := term, term*harmonic
		for k := 1.0; term > 1e-18*sum; k++ {
			term *= z / (a + k)
			harmonic += 1 / (a + k)
			sum += term
			weighted += term * harmonic
		}
		if s := weighted - c*sum; c < 0 || s > slopeLoss*weighted {
			return s
		}
	}
	if a >= slopeSeries {
		// Find the end u where φ is −slopeFolds. Because φ is concave, Newton's method converges
		// from the outside.
		end := 2 * math.Copysign(math.Sqrt(2*slopeFolds/z), c)
		for range 8 {
			if over := (a-z)*end - z*ExpRest(end) + slopeFolds; over < 0 {
				end -= over / (a - z*math.Exp(end))
			} else {
				end *= 2
			}
		}
		return panels(func(u float64) float64 { return math.Exp((a-z)*u-z*ExpRest(u)) * (u + c) },
			0, end, slopePanels)
	}
	// Let v = log z + u. In the three intervals of v, e^−z is 1, then nearly 1, and then it falls
	// to 0. The exponent au is at most 1 in the middle, and e^−z outweighs it at the end.
	ends := [4]float64{logz, math.Max(logz, slopeFlat), math.Max(logz, slopeMild),
		math.Log(z + 2*a + slopeFolds)}
	var sum float64
	for i, n := range [3]float64{1, math.Ceil((ends[2] - ends[1]) / slopeWidth), slopeLast} {
		sum += panels(func(u float64) float64 { return math.Exp(a*u-math.Exp(logz+u)+z) * (u + c) },
			ends[i]-logz, ends[i+1]-logz, n)
	}
	return sum
}

// ExpRest returns e^u − 1 − u to full relative accuracy. The result is not negative.
func ExpRest(u float64) float64 {
	if math.Abs(u) > 0.1 {
		return math.Expm1(u) - u
	}
	sum := 1.0
	for k := 12.0; k >= 3; k-- {
		sum = 1 + u/k*sum
	}
	return 0.5 * u * u * sum
}

// panels integrates f from lo to hi with n panels.
func panels(f func(u float64) float64, lo, hi, n float64) float64 {
	r := slopeRule()
	if n == 0 || lo == hi {
		return 0
	}
	h := (hi - lo) / n
	var sum float64
	for i := range int(n) {
		for j, x := range r[0] {
			sum += r[1][j] * f(lo+h*(float64(i)+x))
		}
	}
	return h * sum
}
