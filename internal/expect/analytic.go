package expect

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/special"
)

// A Bend is a function g that bends between two straight lines. The log-probabilities of
// zero-inflated counts and of beta-distributed responses are such functions. They are analytic
// about the real line, but their expectations have no closed form.
type Bend struct {
	// At returns g, g′ and g″. The function g must be analytic for |Im x| < Strip.
	At    func(x float64) (g, d1, d2 float64)
	Strip float64
	// g″ is negligible outside of Lo and Hi. The slope of g left of Lo is Slope.
	Lo, Hi, Slope float64
	// Flat reports that the slope is 0 on both sides.
	Flat bool
}

const (
	// analyticReach is the number of standard deviations that count on either side. φ(9) = 1e−18.
	analyticReach = 9
	// analyticErr is the relative error of the rules, which was checked against another
	// quadrature.
	analyticErr = 1e-13
	// bendErr is the error of the integral over the bend, relative to the sum of absolute values.
	// bendRest is more than the part of the integral outside of Lo and Hi.
	bendErr  = 1e-14
	bendRest = 1e-17
	// e^−analyticDeep is the error of a trapezoidal rule.
	analyticDeep = 37
)

// Expect returns the expectations of g, g′ and g″ under N(m, s²), and a bound on the error of the
// first.
//
// Up to s = 0.9 Strip, it uses the Gauss-Hermite rules and the trapezoidal rule of Centred. For
// wider Gaussians, integration by parts turns the expectation into an integral over the bend. The
// trapezoidal rule computes this integral at a cost that does not depend on s. With η ~ N(m, s²)
// and the slope B on the left,
//
//	E[g(η)] = g(Lo) + B(m − Lo) + ∫ g″(t) E[max(0, η − t)] dt
//	        = g(Lo) + ∫ g′(t) P(η > t) dt   for a flat g,
//
// and the derivatives in m follow from these formulas. The errors of both rules fall
// geometrically because g is analytic about the real line (Trefethen and Weideman 2014). The
// bound is 1e−13 of E|g(η)|, or 1e−14 of the sum of the absolute values of all terms.
func (b Bend) Expect(m, s float64) (e [3]float64, bound float64) {
	if s == 0 {
		e[0], e[1], e[2] = b.At(m)
		return e, 4 * special.Eps * math.Abs(e[0])
	}
	if s <= 0.9*b.Strip {
		// Singularities may lie anywhere on the lines at ±i Strip, so none is closer than m ± i
		// Strip.
		var abs float64
		e, abs = Centred(b.At, m, s, m-analyticReach*s, m+analyticReach*s, s, m, b.Strip)
		return e, analyticErr * abs
	}
	step := 2 * math.Pi * b.Strip / (analyticDeep + b.Strip*b.Strip/(2*s*s))
	g, _, _ := b.At(b.Lo)
	e[0], e[1] = g+b.Slope*(m-b.Lo), b.Slope
	abs := math.Abs(g) + math.Abs(b.Slope)*(math.Abs(m)+math.Abs(b.Lo))
	for t := b.Lo; t <= b.Hi; t += step {
		u := (t - m) / s
		above, density := special.NormalTail(u), special.NormalPDF(u)/s
		if above == 0 {
			break
		}
		_, d1, d2 := b.At(t)
		var part float64
		if b.Flat {
			d1 *= step
			part = d1 * above
			e[1] += d1 * density
			e[2] += d1 * density * u / s
		} else {
			d2 *= step
			loss := s * special.NormalLoss(math.Abs(u))
			if u < 0 {
				loss += m - t
			}
			part = d2 * loss
			e[1] += d2 * above
			e[2] += d2 * density
		}
		e[0] += part
		abs += math.Abs(part)
	}
	if math.IsNaN(e[0]) { // the sums overflowed
		return [3]float64{math.Inf(-1), e[1], e[2]}, math.Inf(1)
	}
	return e, bendErr*abs + bendRest
}
