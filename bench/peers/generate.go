package main

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
)

// generate returns n rows with d features and responses of a logistic regression.
func generate(n, d int) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	w := make([]float64, d)
	for j := range w {
		w[j] = 0.3 * rng.NormFloat64()
	}
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range y {
		row := x.RawRowView(i)
		var eta float64
		for j := range row {
			row[j] = rng.NormFloat64()
			eta += row[j] * w[j]
		}
		y[i] = label(rng, eta)
	}
	return x, y
}

// correlated returns n rows with d features and responses of a logistic regression. Each feature
// has correlation 0.8 with the previous feature.
func correlated(n, d int) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(1, 1))
	x, eta := neighbours(rng, n, d)
	y := make([]float64, n)
	for i := range y {
		y[i] = label(rng, 2*eta[i])
	}
	return x, y
}

// exposed returns rows as correlated does, and counts with mean e·exp(η/2) for exposures e.
func exposed(n, d int) (x *mat.Dense, y, exposure []float64) {
	rng := rand.New(rand.NewPCG(2, 1))
	x, eta := neighbours(rng, n, d)
	y, exposure = make([]float64, n), make([]float64, n)
	for i := range y {
		exposure[i] = math.Exp(rng.NormFloat64() / 2)
		// count the events of a Poisson process until time 1
		for t := rng.ExpFloat64(); t < exposure[i]*math.Exp(eta[i]/2); t += rng.ExpFloat64() {
			y[i]++
		}
	}
	return x, y, exposure
}

// neighbours returns the rows of correlated, and their products with weights of variance 1/d.
func neighbours(rng *rand.Rand, n, d int) (x *mat.Dense, eta []float64) {
	const correlation = 0.8
	w := make([]float64, d)
	for j := range w {
		w[j] = rng.NormFloat64() / math.Sqrt(float64(d))
	}
	x, eta = mat.NewDense(n, d, nil), make([]float64, n)
	for i := range eta {
		row := x.RawRowView(i)
		for j := range row {
			row[j] = rng.NormFloat64()
			if j > 0 {
				row[j] = correlation*row[j-1] + math.Sqrt(1-correlation*correlation)*row[j]
			}
			eta[i] += row[j] * w[j]
		}
	}
	return x, eta
}

// A field is roughly a draw from a Gaussian process with a squared-exponential kernel: a sum of
// waves on the unit cube.
type field struct {
	cols          int
	scale, length float64
}

// sample returns n points of the cube, and a response to f, the value of the field, at each point.
func (q field) sample(n int, response func(rng *rand.Rand, f float64) float64) (*mat.Dense,
	[]float64) {
	const waves = 200
	rng := rand.New(rand.NewPCG(3, 5))
	frequency := mat.NewDense(waves, q.cols, nil)
	var shift, size [waves]float64
	for k := range waves {
		for j := range q.cols {
			frequency.Set(k, j, rng.NormFloat64()/q.length)
		}
		shift[k] = 2 * math.Pi * rng.Float64()
		size[k] = q.scale * math.Sqrt(2.0/waves) * rng.NormFloat64()
	}
	x, y := mat.NewDense(n, q.cols, nil), make([]float64, n)
	for i := range y {
		row := x.RawRowView(i)
		for j := range row {
			row[j] = rng.Float64()
		}
		f := 0.0
		for k := range waves {
			phase := shift[k]
			for j, v := range frequency.RawRowView(k) {
				phase += v * row[j]
			}
			f += size[k] * math.Cos(phase)
		}
		y[i] = response(rng, f)
	}
	return x, y
}

// label returns 1 with log odds f, and otherwise -1.
func label(rng *rand.Rand, f float64) float64 {
	if rng.Float64() < 1/(1+math.Exp(-f)) {
		return 1
	}
	return -1
}
