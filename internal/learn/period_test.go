package learn

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi/internal/testkit"
)

// periodicDraw returns n points of cycles periods of length 5, and a draw of a periodic Gaussian
// process of the given length scale at them, with noise of variance 0.01.
func periodicDraw(rng *rand.Rand, n int, cycles, length float64) (x *mat.Dense, y []float64) {
	v := harmonicVariances(length)
	x, y = mat.NewDense(n, 1, nil), make([]float64, n)
	a := make([]float64, 2*len(v))
	for i := range a {
		a[i] = rng.NormFloat64()
	}
	for i := range n {
		t := 5 * cycles * rng.Float64()
		x.Set(i, 0, t)
		for h, s := range v {
			sin, cos := math.Sincos(2 * math.Pi * float64(h) * t / 5)
			y[i] += math.Sqrt(s) * (a[2*h]*cos + a[2*h+1]*sin)
		}
		y[i] += 0.1 * rng.NormFloat64()
	}
	return x, y
}

// TestPeriodHarmonics checks that Period finds the period of a periodic function instead of a
// harmonic.
func TestPeriodHarmonics(t *testing.T) {
	for _, c := range []struct {
		cycles      float64
		series, bad int // the number of series, and of those that may be wrong
	}{{4, 80, 2}, {12, 80, 2}, {1.4, 30, 3}} {
		rng := rand.New(rand.NewPCG(7, uint64(100*c.cycles)))
		wrong, series := 0, testkit.Longer(4*c.series, c.series)
		for range series {
			length := math.Exp(math.Log(0.4) + rng.Float64()*math.Log(1.2/0.4))
			x, y := periodicDraw(rng, 100, c.cycles, length)
			tolerance := 0.05
			if c.cycles < 2 {
				tolerance = 0.15
			}
			if p := Period(x, y, nil, false, nil); math.Abs(math.Log(p/5)) > tolerance {
				wrong++
			}
		}
		t.Logf("%v cycles: %d of %d wrong", c.cycles, wrong, series)
		if wrong*c.series > c.bad*series {
			t.Errorf("%v cycles: %d of %d periods are wrong", c.cycles, wrong, series)
		}
	}
}

// TestPeriodTrend checks that a trend of a hundred times the size of the season, and a pure sine,
// do not move the period.
func TestPeriodTrend(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	wrong := 0
	for range 30 {
		x, y := periodicDraw(rng, 120, 8, 0.7)
		for i := range y {
			u := x.At(i, 0) / 40
			y[i] += 100*u + 30*u*u
		}
		if p := Period(x, y, nil, false, nil); math.Abs(math.Log(p/5)) > 0.05 {
			wrong++
		}
	}
	if wrong > 1 {
		t.Errorf("%d of 30 periods beside a trend are wrong", wrong)
	}
	for range 30 {
		x, y := mat.NewDense(100, 1, nil), make([]float64, 100)
		for i := range y {
			x.Set(i, 0, 40*rng.Float64())
			y[i] = math.Sin(2*math.Pi*x.At(i, 0)/3) + 0.2*rng.NormFloat64()
		}
		if p := Period(x, y, nil, false, nil); math.Abs(math.Log(p/3)) > 0.03 {
			t.Errorf("the period of a sine is %v, want 3", p)
		}
	}
}
