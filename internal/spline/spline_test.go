package spline

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

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

// periodOf returns the period for New if the curve is periodic, and 0 otherwise.
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
			c, err := New(x, nil, k, periodOf(x, periodic))
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
			if n := testing.AllocsPerRun(10, func() { c.Put(row, 3.3) }); n > 0 {
				t.Errorf("k %d, periodic %v: Put allocates %v times", k, periodic, n)
			}
		}
	}
}

// TestPenalty checks that ‖z‖² is the roughness of the curve with weights z, up to the factor
// that scale divides by. The roughness is the integral of f″² over each interval times the cube
// of the local width, and all curves of a Curve have the same factor. Features must not be
// correlated with x, because straight lines have no penalty.
func TestPenalty(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range []int{4, 5, 8, 21, 100, 500} {
		x := values(2000, uint64(k))
		c, err := New(x, nil, k, 0)
		if err != nil {
			t.Fatal(err)
		}
		if c.K != k || c.Cols() != k-2 {
			t.Errorf("k %d: %d functions, %d columns", k, c.K, c.Cols())
		}
		var first float64
		for range 5 {
			z := normals(rng, c.Cols())
			ratio := roughness(c, z) / floats.Dot(z, z)
			if first == 0 {
				first = ratio
			}
			if !(math.Abs(ratio/first-1) < 1e-8) {
				t.Errorf("k %d: roughness is %v ‖z‖² of one curve, %v ‖z‖² of another", k, first,
					ratio)
			}
		}
		row, with := make([]float64, c.Cols()), make([]float64, c.Cols())
		mean, sd := stat.PopMeanStdDev(x, nil)
		for _, v := range x {
			c.Put(row, v)
			floats.AddScaled(with, (v-mean)/sd/float64(len(x)), row)
		}
		if far := floats.Norm(with, math.Inf(1)); far > 1e-12 {
			t.Errorf("k %d: a feature has covariance %v with x", k, far)
		}
	}
}

// TestPenaltyPlain checks that all factors are equal if the knots are equidistant.
func TestPenaltyPlain(t *testing.T) {
	x := make([]float64, 35)
	for i := range x {
		x[i] = 7 + 0.5*float64(i)
	}
	c, err := New(x, nil, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	h, factor := c.widths()
	for j := range h {
		if math.Abs(h[j]-1) > 1e-12 || math.Abs(factor[j]-1) > 1e-12 {
			t.Errorf("interval %d has width %v and factor %v, want 1", j, h[j], factor[j])
		}
	}
}

// roughness integrates f″² over each interval by Gauss's rule with two points, which is exact
// because f is cubic. It returns the sum of the integrals times the cubes of the local widths.
func roughness(c *Curve, z []float64) (sum float64) {
	row := make([]float64, c.Cols())
	f := func(x float64) float64 {
		c.Put(row, x)
		return floats.Dot(row, z)
	}
	n := len(c.Knots) - 1
	for j := range n {
		lo, hi := max(j-2, 0), min(j+3, n)
		local := 1.
		for i := lo; i < hi; i++ {
			local *= math.Pow(c.Knots[i+1]-c.Knots[i], 1/float64(hi-lo))
		}
		h := c.Knots[j+1] - c.Knots[j]
		d := 0.2 * h
		for _, s := range []float64{-1, 1} {
			x := c.Knots[j] + h/2 + s*h/math.Sqrt(12)
			second := (f(x-d) - 2*f(x) + f(x+d)) / (d * d)
			sum += local * local * local * h / 2 * second * second
		}
	}
	return sum
}

func normals(rng *rand.Rand, n int) []float64 {
	z := make([]float64, n)
	for i := range z {
		z[i] = rng.NormFloat64()
	}
	return z
}

// TestPenaltyPeriodic checks that the squared weights of a periodic curve are its squared circular
// second differences.
func TestPenaltyPeriodic(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range []int{4, 5, 8, 21} {
		z := mat.NewVecDense(k-1, normals(rng, k-1))
		var a mat.VecDense
		a.MulVec(mat.NewDense(k, k-1, circular(k)), z)
		var got float64
		for r := range k {
			d := a.AtVec(r) - 2*a.AtVec((r+1)%k) + a.AtVec((r+2)%k)
			got += d * d
		}
		if want := mat.Dot(z, z); math.Abs(got-want) > 1e-9*want {
			t.Errorf("k %d: ‖Da‖² is %v, ‖z‖² %v", k, got, want)
		}
	}
}

// TestKnots checks that the knots are quantiles of the distinct values 0, …, 12, 1000 at five
// equally spaced ranks. Repeated rows and rows of weight 0 change nothing.
func TestKnots(t *testing.T) {
	x, w := []float64{}, []float64{}
	add := func(v, weight float64) { x, w = append(x, v), append(w, weight) }
	add(1000, 2)
	add(math.NaN(), 0)
	add(-50, 0)
	for v := range 13 {
		for range v%3 + 1 {
			add(float64(v), 0.5)
		}
	}
	c, err := New(x, w, 7, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{0, 3.25, 6.5, 9.75, 1000}; !floats.EqualApprox(c.Knots, want, 1e-12) {
		t.Errorf("knots %v, want %v", c.Knots, want)
	}
	if c.Lo != 0 || c.Hi != 1000 {
		t.Errorf("from %v to %v, want 0 to 1000", c.Lo, c.Hi)
	}
	// With many knots, the outer intervals are cut at a fifth of their ranks.
	x = nil
	for v := range 141 {
		x = append(x, float64(v))
	}
	if c, err = New(x, nil, 12, 0); err != nil {
		t.Fatal(err)
	}
	if want := []float64{0, 4, 20, 40, 60, 80, 100, 120, 136, 140}; !floats.EqualApprox(c.Knots,
		want, 1e-12) {
		t.Errorf("knots %v, want %v", c.Knots, want)
	}
	// These cases have one knot per value, and values so close that rounding could merge them.
	for _, x := range [][]float64{
		{0, 1, 2, 5, 8, 9, 100},
		{1, 1 + 0x1p-52, 1 + 0x2p-52, 1 + 0x3p-52, 1 + 0x4p-52, 1 + 0x5p-52, 2, 3},
		{0, 1e-16, 1, 2, 3, 3 + 1e-15, 4, 1e16},
	} {
		for k := 4; k <= 8; k++ {
			c, err := New(x, nil, k, 0)
			if err != nil {
				t.Errorf("%v: %v", x, err)
				continue
			}
			if err := c.Check(); err != nil || c.K > k {
				t.Errorf("%v: %d functions, want at most %d; %v", x, c.K, k, err)
			}
		}
	}
}

// kernel returns the covariances of the curve at pairs of points, if the weights have variance 1.
func kernel(c *Curve, x []float64) []float64 {
	m := mat.NewDense(len(x), c.Cols(), nil)
	for i, v := range x {
		c.Put(m.RawRowView(i), v)
	}
	var k mat.Dense
	k.Mul(m, m.T())
	return k.RawMatrix().Data
}

// TestUnits checks that shifting, scaling or reversing x does not change the covariances.
func TestUnits(t *testing.T) {
	points := []float64{-20, -4, -1, 0, 0.3, 2, 3, 4.5, 9, 40}
	for _, k := range []int{4, 9, 20, 100} {
		x := values(1000, 5)
		c, err := New(x, nil, k, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := kernel(c, points)
		for _, unit := range []struct{ scale, shift float64 }{{1, 100}, {1e6, 0}, {1e-8, 1e-6},
			{-3, 2}, {1e200, 0}} {
			moved := func(x []float64) []float64 {
				y := make([]float64, len(x))
				for i, v := range x {
					y[i] = unit.scale*v + unit.shift
				}
				return y
			}
			d, err := New(moved(x), nil, k, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := kernel(d, moved(points)); !near(got, want, 1e-9) {
				t.Errorf("k %d: %v x + %v changes covariances by %v", k, unit.scale, unit.shift,
					floats.Distance(got, want, math.Inf(1)))
			}
		}
	}
}

// near reports whether a and b differ by at most tol times 1 + |b|.
func near(a, b []float64, tol float64) bool {
	for i, v := range b {
		if !(math.Abs(a[i]-v) <= tol*(1+math.Abs(v))) {
			return false
		}
	}
	return true
}

// TestWeights checks that a row of weight 3 counts as three equal rows and a row of weight 0 is
// ignored, in any order of the rows and any unit of the weights.
func TestWeights(t *testing.T) {
	points := []float64{-5, -1, 0, 1, 2.5, 4, 8, 20}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, periodic := range []bool{false, true} {
		period := 0.
		if periodic {
			period = 7
		}
		var x, w, repeated []float64
		for i, v := range values(200, 9) {
			weight := float64(i % 4)
			if x, w = append(x, v), append(w, 5e307*weight); weight == 0 {
				x[i] *= 100
			}
			for range int(weight) {
				repeated = append(repeated, v)
			}
		}
		low := slices.Index(x, slices.Min(repeated))
		x[0], x[low], w[0], w[low] = x[low], x[0], w[low], w[0]
		c, err := New(x, w, 12, period)
		if err != nil {
			t.Fatal(err)
		}
		rng.Shuffle(len(repeated), func(i, j int) {
			repeated[i], repeated[j] = repeated[j], repeated[i]
		})
		d, err := New(repeated, nil, 12, period)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := kernel(c, points), kernel(d, points); !near(got, want, 1e-11) {
			t.Errorf("periodic %v: weights and equal rows differ by %v", periodic,
				floats.Distance(got, want, math.Inf(1)))
		}
	}
}

// TestSkewed checks that a fit finds a curve with noise of variance 0.01 even if x has an outlier
// of 1000 standard deviations or a lognormal distribution. The ridge minimizes the score of
// generalized cross-validation, n‖y - Hy‖²/(n - tr H)².
func TestSkewed(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 7))
	const n = 5000
	for name, problem := range map[string]struct {
		x     func() float64
		curve func(x float64) float64
	}{
		"outlier": {func() float64 { return 10*rng.Float64() - 5 }, math.Sin},
		"lognormal": {func() float64 { return math.Exp(rng.NormFloat64()) },
			func(x float64) float64 { return math.Sin(2 * math.Log(x)) }},
	} {
		x, y := make([]float64, n), make([]float64, n)
		for i := range x {
			x[i] = problem.x()
			if name == "outlier" && i == 77 {
				x[i] = 1000 * 10 / math.Sqrt(12)
			}
			y[i] = problem.curve(x[i]) + 0.1*rng.NormFloat64()
		}
		c, err := New(x, nil, 20, 0)
		if err != nil {
			t.Fatal(err)
		}
		if variance := ridgeResidual(c, x, y); !(math.Abs(variance-0.01) < 0.0015) {
			t.Errorf("%s: residual variance %v, want about 0.01", name, variance)
		}
	}
}

// ridgeResidual returns the residual variance of y after a ridge regression on the features of c.
// The regression also has a constant and a straight line without a penalty.
func ridgeResidual(c *Curve, x, y []float64) float64 {
	n, p := len(x), c.Cols()+2
	f := mat.NewDense(n, p, nil)
	mean, sd := stat.PopMeanStdDev(x, nil)
	for i, v := range x {
		row := f.RawRowView(i)
		row[0], row[1] = 1, (v-mean)/sd
		c.Put(row[2:], v)
	}
	var gram mat.SymDense
	gram.SymOuterK(1, f.T())
	var fy mat.VecDense
	fy.MulVec(f.T(), mat.NewVecDense(n, y))
	best, variance := math.Inf(1), math.NaN()
	for ridge := 1e-6; ridge < 1e6; ridge *= 4 {
		penalized := mat.NewSymDense(p, nil)
		penalized.CopySym(&gram)
		for j := 2; j < p; j++ {
			penalized.SetSym(j, j, penalized.At(j, j)+ridge)
		}
		var chol mat.Cholesky
		if !chol.Factorize(penalized) {
			continue
		}
		var weights, fit mat.VecDense
		var hat mat.Dense
		if chol.SolveVecTo(&weights, &fy) != nil || chol.SolveTo(&hat, &gram) != nil {
			continue
		}
		fit.MulVec(f, &weights)
		rest := floats.Distance(y, fit.RawVector().Data, 2)
		free := float64(n) - mat.Trace(&hat)
		if score := rest * rest / (free * free); score < best {
			best, variance = score, rest*rest/float64(n)
		}
	}
	return variance
}

// TestShape checks by differences that the second derivative of a curve is linear between knots
// and continuous at the knots, that curves are straight beyond the data, and that periodic curves
// repeat.
func TestShape(t *testing.T) {
	x := values(300, 7)
	for _, periodic := range []bool{false, true} {
		c, err := New(x, nil, 12, periodOf(x, periodic))
		if err != nil {
			t.Fatal(err)
		}
		at := func(v float64, j int) float64 {
			row := make([]float64, c.Cols())
			c.Put(row, v)
			return row[j]
		}
		span := c.Hi - c.Lo
		knots := c.Knots
		for j := 0; periodic && j <= c.K; j++ {
			knots = append(knots, c.Lo+float64(j)/float64(c.K)*span)
		}
		const h = 1e-3
		for j := range c.Cols() {
			second := func(v, h float64) float64 {
				return (at(v-h, j) - 2*at(v, j) + at(v+h, j)) / (h * h)
			}
			// Differences within an interval give the limits of the second derivative at its
			// ends.
			last, most := math.NaN(), 0.
			var jumps []float64
			for i, lo := range knots[:len(knots)-1] {
				w := knots[i+1] - lo
				a, b, m := second(lo+w/4, w/5), second(lo+3*w/4, w/5), second(lo+w/2, w/5)
				if math.Abs(a+b-2*m) > 1e-8*(1+math.Abs(a)+math.Abs(b)) {
					t.Errorf("periodic %v, column %d: second derivatives %v, %v, %v in interval %d",
						periodic, j, a, m, b, i)
				}
				if i > 0 {
					jumps = append(jumps, math.Abs(a-(b-a)/2-last))
				}
				last, most = b+(b-a)/2, max(most, math.Abs(m))
			}
			if jump := slices.Max(jumps); jump > 1e-8*(1+most) {
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
				if s := second(v, h); math.Abs(s) > 1e-5 {
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
		if _, err := New(x, nil, 20, 0); !errors.Is(err, sentinel.ErrParam) {
			t.Errorf("%v: %v", x, err)
		}
	}
	if _, err := New([]float64{1, 2, math.NaN(), 4, 5}, nil, 20, 0); !errors.Is(err,
		sentinel.ErrNotFinite) {
		t.Error(err)
	}
	if _, err := New([]float64{-1e308, 2, 3, 4, 1e308}, nil, 20, 0); !errors.Is(err,
		sentinel.ErrParam) {
		t.Error(err)
	}
	if _, err := New([]float64{1, 2, 3, 4, 5}, []float64{1, 1, 1, 1}, 20, 0); !errors.Is(err,
		sentinel.ErrShape) {
		t.Error(err)
	}
	for _, w := range [][]float64{{1, 1, 1, 1, -1}, {1, 1, 1, math.Inf(1), 1},
		{1, math.NaN(), 1, 1, 1}, {1, 1, 1, 0, 0}, {0, 0, 0, 0, 0}} {
		if _, err := New([]float64{1, 2, 3, 4, 5}, w, 20, 0); !errors.Is(err, sentinel.ErrParam) {
			t.Errorf("weights %v: %v", w, err)
		}
	}
	c, err := New([]float64{1, 2, 3, 4, 5, 5}, nil, 20, 0)
	if err != nil || c.K != 5 {
		t.Errorf("%d functions for five values, %v", c.K, err)
	}
}

// TestCheck checks that Check rejects curves that New cannot have made, and that JSON stores a
// curve exactly.
func TestCheck(t *testing.T) {
	for _, period := range []float64{0, 10} {
		c, err := New(values(50, 3), nil, 6, period)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var read *Curve
		if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(c, read) {
			t.Errorf("stored %s, read %v, %v", text, read, err)
		}
		for i, change := range []func(c *Curve){
			func(c *Curve) { c.K = 7 },
			func(c *Curve) { c.Hi = c.Lo },
			func(c *Curve) { c.Hi = math.Inf(1) },
			func(c *Curve) { c.Periodic = !c.Periodic },
			func(c *Curve) { c.Map = c.Map[1:] },
			func(c *Curve) { c.Map[3] = math.Inf(1) },
			func(c *Curve) { c.Mean[0] = math.NaN() },
			func(c *Curve) { c.Mean = nil },
			func(c *Curve) { c.Knots = append(c.Knots, c.Hi) },
			func(c *Curve) { c.Knots[0]-- },
			func(c *Curve) { c.Knots[3]++ },
			func(c *Curve) { c.Knots[1] = c.Knots[2] },
			func(c *Curve) { c.Knots[2] = math.NaN() },
		} {
			if period != 0 && i >= 9 {
				break // periodic curves have no knots
			}
			var bad *Curve
			if err := json.Unmarshal(text, &bad); err != nil {
				t.Fatal(err)
			}
			if change(bad); !errors.Is(bad.Check(), sentinel.ErrFile) {
				t.Errorf("period %v, change %d: %v", period, i, bad.Check())
			}
		}
	}
}

// TestPeriod checks that curves repeat after the given period, and after the count of whole
// numbers if no period is given.
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
		curve, err := New(c.x, nil, 8, c.period)
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
	// Five days at noon have the same time of day.
	if _, err := New([]float64{0, 24, 48, 72, 96}, nil, 8, 24); !errors.Is(err, sentinel.ErrParam) {
		t.Error(err)
	}
}
