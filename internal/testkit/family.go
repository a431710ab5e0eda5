package testkit

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat/distuv"
)

// Trigamma returns ψ′(x).
func Trigamma(x float64) float64 { return mathext.Zeta(2, x) }

// Digamma returns ψ(x) with an error of 1e-15. The error of mathext.Digamma is 1e-10.
func Digamma(x float64) float64 {
	var v float64
	for ; x < 12; x++ {
		v -= 1 / x
	}
	y := 1 / (x * x)
	return v + math.Log(x) - 0.5/x - y*(1./12-y*(1./120-y*(1./252-y*(1./240-y*(1./132-y*691./32760)))))
}

// LogGamma returns log Γ(x).
func LogGamma(x float64) float64 {
	v, _ := math.Lgamma(x)
	return v
}

// GammaFamily is a Gamma distribution with a shape and a rate, as a user would write it. It has a
// chart: η = (shape, −rate), T = (log z, z), h = 1/z and x = (log shape, log rate).
type GammaFamily struct{}

func (GammaFamily) Dim() int { return 1 }

func (GammaFamily) NumParams() int { return 2 }

func (GammaFamily) LogPartition(eta []float64) float64 {
	shape, rate := eta[0], -eta[1]
	if !(shape > 0 && rate > 0) {
		return math.Inf(1)
	}
	return LogGamma(shape) - shape*math.Log(rate)
}

func (GammaFamily) Mean(dst, eta []float64) {
	shape, rate := eta[0], -eta[1]
	dst[0], dst[1] = Digamma(shape)-math.Log(rate), shape/rate
}

func (GammaFamily) Fisher(dst *mat.SymDense, eta []float64) {
	shape, rate := eta[0], -eta[1]
	dst.SetSym(0, 0, Trigamma(shape))
	dst.SetSym(0, 1, 1/rate)
	dst.SetSym(1, 1, shape/(rate*rate))
}

func (GammaFamily) Stat(dst, z []float64) { dst[0], dst[1] = math.Log(z[0]), z[0] }

func (GammaFamily) LogBase(z []float64) float64 {
	if !(z[0] > 0) {
		return math.Inf(-1)
	}
	return -math.Log(z[0])
}

func (f GammaFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	z[0] = distuv.Gamma{Alpha: eta[0], Beta: -eta[1], Src: rng}.Rand()
	f.Stat(t, z)
}

func (GammaFamily) Chart(dst, eta []float64) {
	dst[0], dst[1] = math.Log(eta[0]),
		math.Log(-eta[1])
}

func (GammaFamily) FromChart(dst, x []float64) { dst[0], dst[1] = math.Exp(x[0]), -math.Exp(x[1]) }

func (GammaFamily) ChartGrad(dst, g, eta []float64) { dst[0], dst[1] = g[0]*eta[0], g[1]*eta[1] }
