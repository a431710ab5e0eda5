package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/special"
)

func init() { Register("pgsvi.Periodic", Periodic{}) }

// Periodic is the periodic covariance function (MacKay 1998)
//
//	k(x, x′) = Scale² exp(−(2/Length²) Σ_d sin²(π(x_d − x′_d)/Period)).
//
// Zero fields mean 1. The parameters are Scale, Length and Period.
type Periodic struct {
	Scale, Length, Period float64
}

// Cov implements Kernel.
func (k Periodic) Cov(x, y []float64) float64 { return k.value(k.dist2(x, y)) }

// Params implements Kernel.
func (k Periodic) Params() []Param {
	inf := math.Inf(1)
	return []Param{
		{"Scale", kernelOne(k.Scale), 0, inf},
		{"Length", kernelOne(k.Length), 0, inf},
		{"Period", kernelOne(k.Period), 0, inf},
	}
}

// WithParams implements Kernel.
func (k Periodic) WithParams(values []float64) Kernel {
	kernelLen(values, 3)
	return Periodic{Scale: values[0], Length: values[1], Period: values[2]}
}

// Grad implements Kernel.
func (k Periodic) Grad(dst, x, y []float64) float64 {
	kernelLen(dst, 3)
	r2 := k.dist2(x, y)
	val := k.value(r2)
	dst[0], dst[1], dst[2] = 2*val, val*r2, val*k.gradPeriod(x, y)
	return val
}

// value returns k, given r².
func (k Periodic) value(r2 float64) float64 {
	v := [1]float64{r2}
	k.values(v[:])
	return v[0]
}

// values replaces every r² by k.
func (k Periodic) values(r2 []float64) {
	special.ExpRate(r2, -0.5)
	s := kernelOne(k.Scale)
	scaleBy(r2, s*s)
}

// gradPeriod returns ∂log k/∂log Period.
func (k Periodic) gradPeriod(x, y []float64) float64 {
	p, l := kernelOne(k.Period), kernelOne(k.Length)
	var sum float64
	for d, v := range x {
		sum += math.Sin(2*math.Pi/p*(math.Remainder(v, p)-math.Remainder(y[d], p))) * (v - y[d])
	}
	return 2 * math.Pi / p * sum / (l * l)
}

// dist2 returns (4/Length²) Σ_d sin²(π(x_d − x′_d)/Period).
func (k Periodic) dist2(x, y []float64) float64 {
	kernelLen(y, len(x))
	p := kernelOne(k.Period)
	var sum float64
	for d, v := range x {
		// The remainders are exact, so that far periods cost no accuracy.
		s := math.Sin(math.Pi / p * (math.Remainder(v, p) - math.Remainder(y[d], p)))
		sum += s * s
	}
	l := kernelOne(k.Length)
	return 4 * sum / (l * l)
}

// features: r² is the squared distance of points on D circles.
func (k Periodic) features(d int) int { return 2 * d }

func (k Periodic) embed(dst []float64, inc int, x, _ []float64) {
	p, l := kernelOne(k.Period), kernelOne(k.Length)
	for d, v := range x {
		sin, cos := math.Sincos(2 * math.Pi / p * math.Remainder(v, p))
		dst[2*d*inc], dst[(2*d+1)*inc] = cos/l, sin/l
	}
}

func (Periodic) is(k Kernel) bool { return isType[Periodic](k) }

func (Periodic) numParams() int { return 3 }

func (k Periodic) fill(dst []float64, t *kernelTile) {
	fillDist2(k, dst, t)
	k.values(dst)
}

func (k Periodic) pull(dst, w []float64, t *kernelTile) {
	r2, val := t.get(len(w)), t.get(len(w))
	fillDist2(k, r2, t)
	copy(val, r2)
	k.values(val)
	var dScale, dLength, dPeriod float64
	for i := range t.x.Rows {
		x := kernelRow(t.x, i)
		for j := range t.y.Rows {
			at := i*t.y.Rows + j
			if w[at] == 0 {
				continue
			}
			g := w[at] * val[at]
			dScale += g
			dLength += g * r2[at]
			dPeriod += g * k.gradPeriod(x, kernelRow(t.y, j))
		}
	}
	dst[0] += 2 * dScale
	dst[1] += dLength
	dst[2] += dPeriod
}
