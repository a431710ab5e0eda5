package testkit

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file makes random rows that the tests of several packages share.

// Wiggly returns n labels for rows of the unit cube, whose log odds are a sum of waves. It is
// similar to a draw from a squared exponential with this length scale.
func Wiggly(n, d int, length float64) (*mat.Dense, []float64) {
	const waves = 100
	rng := rand.New(rand.NewPCG(7, 8))
	freq, shift, size := mat.NewDense(waves, d, nil), make([]float64, waves), make([]float64, waves)
	for k := range waves {
		for j := range d {
			freq.Set(k, j, rng.NormFloat64()/length)
		}
		shift[k] = 2 * math.Pi * rng.Float64()
		size[k] = 3 * math.Sqrt(2.0/waves) * rng.NormFloat64()
	}
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		for j := range d {
			x.Set(i, j, rng.Float64())
		}
		odds := 0.0
		for k := range waves {
			odds += size[k] * math.Cos(floats.Dot(freq.RawRowView(k), x.RawRowView(i))+shift[k])
		}
		if y[i] = -1; rng.Float64() < 1/(1+math.Exp(-odds)) {
			y[i] = 1
		}
	}
	return x, y
}

// LongRows returns more rows than a sample holds, with one column.
func LongRows(n int) (*mat.Dense, []float64) {
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	rng := Rand(3)
	for i := range n {
		v := 6 * rng.Float64()
		x.Set(i, 0, v)
		y[i] = PlusMinus(rng.Float64() < 1/(1+math.Exp(-2*math.Sin(2*v))))
	}
	return x, y
}

// RawClassifier returns rows with a column of time stamps near t0 and two columns of unit size,
// which alone determine y.
func RawClassifier(n int, t0 float64) (x *mat.Dense, y []float64) {
	rng := Rand(1)
	x, y = mat.NewDense(n, 3, nil), make([]float64, n)
	for i := range y {
		x.SetRow(i, []float64{t0 + 1e-2*t0*rng.Float64(), rng.NormFloat64(), rng.NormFloat64()})
		y[i] = PlusMinus(2*x.At(i, 1)-x.At(i, 2)+0.5*rng.NormFloat64() > 0)
	}
	return x, y
}

func RandomSparse(rng *rand.Rand, n, d int, filled float64) *mat.Dense {
	x := mat.NewDense(n, d, nil)
	for i := range n {
		for j := range d {
			if rng.Float64() < filled {
				x.Set(i, j, rng.NormFloat64())
			}
		}
	}
	return x
}
