package special_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/special"
)

// tails returns points t ≥ 0, from the smallest number up to values whose φ underflows.
func tails() []float64 {
	ts := []float64{0, 5e-324, 1e-300, 1e-20, 1e-8, 0.5, 1, 2, 3, 4, 5, 8, 26, 37.5, 38.4, 38.5,
		38.6, 39, 40, 1e3}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 150 {
		ts = append(ts, 38*rng.Float64(), math.Exp(14*rng.Float64()-10))
	}
	return ts
}

func TestGaussGap(t *testing.T) {
	t.Parallel()
	worst := 0.0
	for _, x := range append(tails(), 1.1e5, 2e5, 3e6, 9.9e7, 1.1e8) {
		worst = max(worst, apart(special.GaussGap(x), bigGap(x)))
	}
	if !(worst < 4*special.Eps) {
		t.Errorf("relative error %.2g", worst)
	}
	if c := special.GaussGap(1e300); c != 1e-300 {
		t.Errorf("c(1e300) = %v", c)
	}
	if c := special.GaussGap(math.MaxFloat64); !(c > 0) {
		t.Errorf("c at the largest number = %v", c)
	}
}

// TestNormalTails checks the tail functions to a few units in the last place, or to a few
// subnormal units if they underflow.
func TestNormalTails(t *testing.T) {
	t.Parallel()
	one := num(1)
	for _, x := range tails() {
		p, c := bigPDF(x), bigGap(x)
		h := add(num(x), c) // hazard φ(t)/Φ(−t)
		q := quo(p, h)
		upper := sub(one, q)
		loss := mul(p, quo(c, h))
		hazard := quo(p, upper)
		logUpper := mul(q, sub(quo(q, num(-2)), one)) // log(1−q), because 1−q may round to 1
		if q.MantExp(nil) > -100 {
			logUpper = bigLog(upper)
		}
		g0, g1, g2 := special.NormalLogCDF(-x)
		k0, k1, k2 := special.NormalLogCDF(x)
		for _, v := range []struct {
			name string
			got  float64
			want *big.Float
		}{
			{"φ(t)", special.NormalPDF(x), p},
			{"φ(−t)", special.NormalPDF(-x), p},
			{"Φ(−t)", special.NormalTail(x), q},
			{"Φ(t)", special.NormalTail(-x), upper},
			{"log Φ(−t)", special.NormalLogTail(x), bigLog(q)},
			{"log Φ(t)", special.NormalLogTail(-x), logUpper},
			{"Mills(t)", special.Mills(x), quo(one, h)},
			{"loss(t)", special.NormalLoss(x), loss},
			{"loss(−t)", special.NormalLoss(-x), add(num(x), loss)},
			{"log Φ at −t", g0, bigLog(q)},
			{"its slope", g1, h},
			{"its curvature", g2, mul(num(-1), mul(c, h))},
			{"log Φ at t", k0, logUpper},
			{"its slope", k1, hazard},
			{"its curvature", k2, mul(num(-1), mul(hazard, add(hazard, num(x))))},
		} {
			e := apart(v.got, v.want)
			if w := math.Abs(float(v.want)); w < 1e-305 {
				e = math.Abs(v.got-float(v.want)) / 2e-321 * special.Eps // a few subnormal units
			}
			if !(e < 8*special.Eps) {
				t.Errorf("t = %v: %s is %v, want %v (%.2g)", x, v.name, v.got, float(v.want), e)
			}
		}
		if x < 37.5 {
			if e := apart(special.Mills(-x), quo(upper, p)); !(e < 8*special.Eps) {
				t.Errorf("Mills(%v) is off by %.2g", -x, e)
			}
		}
	}
	if special.NormalPDF(40) != 0 || special.NormalTail(40) != 0 || special.NormalTail(-40) != 1 ||
		special.NormalLoss(-1e300) != 1e300 {
		t.Error("far tails")
	}
	if !math.IsInf(special.Mills(-40), 1) {
		t.Errorf("Mills(−40) = %v", special.Mills(-40))
	}
}

func TestConstants(t *testing.T) {
	t.Parallel()
	if special.GaussInvSqrt2Pi != float(bigExp(mul(num(-1), logSqrt2Pi()))) ||
		special.LogSqrt2Pi != float(logSqrt2Pi()) {
		t.Error("1/√(2π) or log √(2π)")
	}
	if special.Eps != math.Nextafter(1, 2)-1 {
		t.Error("Eps is not the distance from 1 to the next number")
	}
}
