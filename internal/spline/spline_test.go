package spline

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

func values(n int, seed uint64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := make([]float64, n)
	for i := range x {
		x[i] = 3 + 2*rng.NormFloat64()
	}
	return x
}

// periodOf is that of New where x has one.
func periodOf(x []float64, periodic bool) float64 {
	if periodic {
		return Period(x)
	}
	return 0
}

// TestMoments checks that columns have mean 0 and variances that add up to 1.
func TestMoments(t *testing.T) {
	for _, periodic := range []bool{false, true} {
		for _, k := range []int{4, 5, 12, 21, 200} {
			x := values(500, uint64(k))
			c, err := New(x, k, periodOf(x, periodic))
			if err != nil {
				t.Fatal(err)
			}
			row, sum, square := make([]float64, c.Cols()), make([]float64, c.Cols()), 0.
			for _, v := range x {
				c.Put(row, v)
				for j, f := range row {
					sum[j] += f / 500
					square += f * f / 500
				}
			}
			for j, s := range sum {
				if math.Abs(s) > 1e-12 {
					t.Errorf("k %d, periodic %v: mean of column %d is %v", k, periodic, j, s)
				}
			}
			if math.Abs(square-1) > 1e-10 {
				t.Errorf("k %d, periodic %v: variances add up to %v", k, periodic, square)
			}
			if err := c.Check(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPenalty checks that the squared weights of a curve are its squared second differences: the
// coefficients a = M z have Da = z, or ‖Da‖ = ‖z‖ where they are circular.
func TestPenalty(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range []int{4, 5, 8, 21} {
		for _, periodic := range []bool{false, true} {
			m := differences(k)
			if periodic {
				m = circular(k)
			}
			cols := len(m) / k
			z := mat.NewVecDense(cols, nil)
			for j := range cols {
				z.SetVec(j, rng.NormFloat64())
			}
			var a mat.VecDense
			a.MulVec(mat.NewDense(k, cols, m), z)
			var got float64
			for r := range k {
				if !periodic && r >= k-2 {
					break
				}
				d := a.AtVec(r) - 2*a.AtVec((r+1)%k) + a.AtVec((r+2)%k)
				got += d * d
			}
			if want := mat.Dot(z, z); math.Abs(got-want) > 1e-9*want {
				t.Errorf("k %d, periodic %v: ‖Da‖² is %v, ‖z‖² %v", k, periodic, got, want)
			}
		}
	}
}

// TestShape checks by differences that curves have a continuous second derivative everywhere, are
// straight beyond the data, and that periodic ones come round.
func TestShape(t *testing.T) {
	x := values(300, 7)
	for _, periodic := range []bool{false, true} {
		c, err := New(x, 12, periodOf(x, periodic))
		if err != nil {
			t.Fatal(err)
		}
		at := func(v float64, j int) float64 {
			row := make([]float64, c.Cols())
			c.Put(row, v)
			return row[j]
		}
		const h = 1e-3
		for j := range c.Cols() {
			second := func(v float64) float64 {
				return (at(v-h, j) - 2*at(v, j) + at(v+h, j)) / (h * h)
			}
			span := c.Hi - c.Lo
			jump := 0.
			for v := c.Lo + 0.01*span; v < c.Hi-0.01*span; v += span / 5000 {
				jump = max(jump, math.Abs(second(v+span/5000)-second(v)))
			}
			if jump > 0.5 {
				t.Errorf("periodic %v, column %d: second derivative jumps by %v", periodic, j, jump)
			}
			if periodic {
				for _, v := range []float64{c.Lo + 0.3, c.Lo + 0.9*span} {
					if a, b := at(v, j), at(v+7*span, j); math.Abs(a-b) > 1e-9 {
						t.Errorf("column %d: %v at %v and %v seven periods on", j, a, v, b)
					}
				}
				if a, b := at(c.Lo, j), at(c.Hi-1e-12, j); math.Abs(a-b) > 1e-9 {
					t.Errorf("column %d: %v and %v at the ends", j, a, b)
				}
				continue
			}
			for _, v := range []float64{c.Lo - 5, c.Hi + 5} {
				if s := second(v); math.Abs(s) > 1e-5 {
					t.Errorf("column %d: second derivative %v at %v", j, s, v)
				}
			}
			for _, v := range []float64{c.Lo, c.Hi} {
				if s := (at(v+h, j) - at(v, j)) - (at(v, j) - at(v-h, j)); math.Abs(s) > 1e-4 {
					t.Errorf("column %d: slope jumps by %v at %v", j, s/h, v)
				}
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, x := range [][]float64{nil, {1, 2, 3, 3, 2}, {1, 1, 1, 1, 1, 1}} {
		if _, err := New(x, 20, 0); !errors.Is(err, sentinel.ErrParam) {
			t.Errorf("%v: %v", x, err)
		}
	}
	if _, err := New([]float64{1, 2, math.NaN(), 4, 5}, 20, 0); !errors.Is(err,
		sentinel.ErrNotFinite) {
		t.Error(err)
	}
	if _, err := New([]float64{-1e308, 2, 3, 4, 1e308}, 20, 0); !errors.Is(err,
		sentinel.ErrParam) {
		t.Error(err)
	}
	if err := (&Curve{K: 5, Lo: 0, Hi: 1, Map: make([]float64, 4),
		Mean: make([]float64, 1)}).Check(); !errors.Is(err, sentinel.ErrFile) {
		t.Error(err)
	}
	c, err := New([]float64{1, 2, 3, 4, 5, 5}, 20, 0)
	if err != nil || c.K != 5 {
		t.Errorf("%d functions for five values, %v", c.K, err)
	}
}

// TestPeriod checks that curves repeat after the period that is given, or that whole numbers count
// through.
func TestPeriod(t *testing.T) {
	months, hours := []float64{}, []float64{}
	for i := range 60 {
		months, hours = append(months, float64(i%12+1)), append(hours, 0.4*float64(i))
	}
	for _, c := range []struct {
		x            []float64
		period, want float64
	}{{months, Period(months), 12}, {hours, Period(hours), 0.4 * 59}, {hours, 24, 24},
		{hours, 6, 6}} {
		curve, err := New(c.x, 8, c.period)
		if err != nil {
			t.Fatal(err)
		}
		a, b, far := make([]float64, curve.Cols()), make([]float64, curve.Cols()), 0.
		for _, x := range c.x {
			curve.Put(a, x)
			curve.Put(b, x+3*c.want)
			for j := range a {
				far = max(far, math.Abs(a[j]-b[j]))
			}
		}
		if !(far < 1e-12) {
			t.Errorf("period %v: columns differ by %v after it", c.want, far)
		}
		curve.Put(a, c.x[0])
		curve.Put(b, c.x[0]+c.want/2)
		if floats.Distance(a, b, 2) < 0.1 {
			t.Errorf("period %v: the curve is the same after half of it", c.want)
		}
	}
	// Five days at noon are one value of the day.
	if _, err := New([]float64{0, 24, 48, 72, 96}, 8, 24); !errors.Is(err, sentinel.ErrParam) {
		t.Error(err)
	}
}
