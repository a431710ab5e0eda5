package accel_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/accel"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// affine is the map x → Gx + b.
type affine struct {
	g *mat.Dense
	b []float64
}

// newAffine draws a map on n variables, symmetric with eigenvalues from lo to hi.
func newAffine(rng *rand.Rand, n int, lo, hi float64) affine {
	a := mat.NewDense(n, n, nil)
	a.Apply(func(_, _ int, _ float64) float64 { return rng.NormFloat64() }, a)
	var qr mat.QR
	qr.Factorize(a)
	var q, g mat.Dense
	qr.QTo(&q)
	d := mat.NewDiagDense(n, nil)
	for i := range n {
		d.SetDiag(i, lo+(hi-lo)*float64(i)/float64(max(1, n-1)))
	}
	g.Product(&q, d, q.T())
	f := affine{&g, make([]float64, n)}
	for i := range f.b {
		f.b[i] = rng.NormFloat64()
	}
	return f
}

func (f affine) residual(dst, x []float64) {
	v := mat.NewVecDense(len(x), dst)
	v.MulVec(f.g, mat.NewVecDense(len(x), x))
	floats.Add(dst, f.b)
	floats.Sub(dst, x)
}

func ones(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 1
	}
	return w
}

// A linear map of n ≤ 4 variables has its fixed point after n+1 evaluations, whether it
// contracts or not.
func TestAndersonLinear(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	var a accel.Anderson
	for n := 1; n <= 4; n++ {
		for _, r := range [][2]float64{{-0.9, 0.9}, {0.5, 0.99}, {-3, -1.5}, {1.5, 3}} {
			f := newAffine(rng, n, r[0], r[1])
			a.Reset()
			z, res := make([]float64, n), make([]float64, n)
			for step := range n + 1 {
				f.residual(res, z)
				x, y := a.Next(n, false)
				copy(x, z)
				copy(y, res)
				ok := a.Mix(z, ones(n))
				if ok != (step > 0) {
					t.Fatalf("n = %d: Mix says %v at step %d", n, ok, step)
				}
				if !ok {
					floats.Add(z, res)
				}
			}
			f.residual(res, z)
			// the normal equations lose half of the digits
			if e := floats.Norm(res, 2); !(e < 1e-4) {
				t.Errorf("n = %d, eigenvalues in %v: the residual is %.2g after %d steps", n, r, e,
					n+1)
			}
		}
	}
}

// The mixture is that of least weighted residual, by least squares on the differences.
func TestAndersonLeastSquares(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	const n = 9
	var a accel.Anderson
	var xs, rs [][]float64
	for step := range 12 {
		x, r := a.Next(n, false)
		w := make([]float64, n)
		for i := range n {
			x[i], r[i], w[i] = rng.NormFloat64(), rng.NormFloat64(), math.Exp(rng.NormFloat64())
		}
		xs, rs = append(xs, append([]float64(nil), x...)), append(rs, append([]float64(nil), r...))
		k := min(step, 4)
		got := make([]float64, n)
		if ok := a.Mix(got, w); ok != (k > 0) {
			t.Fatalf("Mix says %v with %d differences", ok, k)
		}
		if k == 0 {
			continue
		}
		lhs, rhs := mat.NewDense(n, k, nil), mat.NewVecDense(n, nil)
		for i := range n {
			rhs.SetVec(i, w[i]*r[i])
			for j := range k {
				lhs.Set(i, j, w[i]*(r[i]-rs[step-1-j][i]))
			}
		}
		var theta mat.VecDense
		if err := theta.SolveVec(lhs, rhs); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			want := x[i] + r[i]
			for j := range k {
				want -= theta.AtVec(j) * (x[i] + r[i] - xs[step-1-j][i] - rs[step-1-j][i])
			}
			if !(math.Abs(got[i]-want) < 1e-9*(1+math.Abs(want))) {
				t.Errorf("step %d: element %d is %v, want %v", step, i, got[i], want)
			}
		}
	}
}

// Hard maps: slow and oscillating ones with more variables than are remembered.
func TestAndersonHard(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	for _, r := range [][2]float64{{0, 0.999}, {-0.999, 0.9}} {
		const n, steps = 30, 300
		f := newAffine(rng, n, r[0], r[1])
		var a accel.Anderson
		z, res := make([]float64, n), make([]float64, n)
		plain, pres := make([]float64, n), make([]float64, n)
		f.residual(res, z)
		first, worst := floats.Norm(res, 2), 0.0
		for range steps {
			f.residual(res, z)
			worst = max(worst, floats.Norm(res, 2))
			x, y := a.Next(n, false)
			copy(x, z)
			copy(y, res)
			if !a.Mix(z, ones(n)) {
				floats.AddTo(z, x, y)
			}
			f.residual(pres, plain)
			floats.Add(plain, pres)
		}
		f.residual(res, z)
		f.residual(pres, plain)
		e, p := floats.Norm(res, 2), floats.Norm(pres, 2)
		if !(worst < 3*first) || !(e < 1e-6*first) || !(e < 1e-3*p) {
			t.Errorf("eigenvalues in %v: residual %.2g, at most %.2g, from %.2g; %.2g without "+
				"mixing", r, e, worst, first, p)
		}
	}
}

// Nothing to mix: equal residuals, residuals that are not finite, other sizes after Reset.
func TestAndersonEdges(t *testing.T) {
	t.Parallel()
	var a accel.Anderson
	fill := func(n int, x, r float64) {
		p, q := a.Next(n, false)
		if len(p) != n || len(q) != n {
			t.Fatalf("Next(%d) has lengths %d and %d", n, len(p), len(q))
		}
		for i := range p {
			p[i], q[i] = x, r*float64(i+1)
		}
	}
	dst := make([]float64, 7)
	if a.Mix(dst, ones(7)) {
		t.Error("a mixture of nothing")
	}
	fill(3, 1, 1)
	fill(3, 2, 1)
	if a.Mix(dst[:3], ones(3)) {
		t.Error("a mixture of equal residuals")
	}
	fill(3, 2, math.NaN())
	if a.Mix(dst[:3], ones(3)) {
		t.Error("a mixture of NaN")
	}
	a.Reset()
	fill(7, 1, 1)
	fill(7, 2, 0.5)
	if !a.Mix(dst, ones(7)) || math.Abs(dst[6]-3) > 1e-9 { // x falls by r/2 … to 3 where r is 0
		t.Errorf("after Reset: %v", dst)
	}
}

// In a metric of the caller's: more iterates of a linear map than dimensions, whose differences are
// dependent, are mixed to its fixed point, and one in which there is no product to none.
func TestAndersonMixIn(t *testing.T) {
	t.Parallel()
	double := func(dst, d []float64) bool {
		for i, v := range d {
			dst[i] = 2 * v
		}
		return true
	}
	for n := 1; n <= 3; n++ {
		var a accel.Anderson
		for k := range 5 {
			x, r := a.Next(n, false)
			for i := range n {
				rate := 0.9 - 0.2*float64(i)
				x[i] = 1 + math.Pow(rate, float64(k))
				r[i] = (rate - 1) * (x[i] - 1)
			}
		}
		dst := make([]float64, n)
		if !a.MixIn(dst, double) {
			t.Errorf("%d dimensions: no mixture", n)
		}
		for _, v := range dst {
			if math.Abs(v-1) > 1e-6 {
				t.Errorf("%d dimensions: %v, not the fixed point 1", n, dst)
			}
		}
		if a.MixIn(dst, func(_, _ []float64) bool { return false }) {
			t.Errorf("%d dimensions: a mixture in no metric", n)
		}
	}
}

// The storage is reused, after Reset too. Not parallel, for it counts allocations.
func TestAndersonAllocs(t *testing.T) {
	var a accel.Anderson
	dst := make([]float64, 7)
	for range 5 {
		a.Next(7, false)
	}
	if n := testing.AllocsPerRun(20, func() { a.Next(7, false); a.Mix(dst, dst) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	a.Reset()
	if n := testing.AllocsPerRun(1, func() { a.Next(5, false) }); n != 0 {
		t.Errorf("%v allocations after Reset", n)
	}
}

func TestLBFGS(t *testing.T) {
	t.Parallel()
	rosenbrock := func(x []float64) (f float64) {
		for i := range len(x) - 1 {
			a, b := x[i+1]-x[i]*x[i], 1-x[i]
			f += 100*a*a + b*b
		}
		return f
	}
	slope := func(dst, x []float64) {
		clear(dst)
		for i := range len(x) - 1 {
			a, b := x[i+1]-x[i]*x[i], 1-x[i]
			dst[i] -= 400*a*x[i] + 2*b
			dst[i+1] += 200 * a
		}
	}
	for _, x0 := range [][]float64{{-1.2, 1}, {3, -4}, {0.5, 2, -1, 0.3, 1, 1.5, 0, 2}, {1, 1}} {
		start := append([]float64(nil), x0...)
		x, ok := accel.LBFGS(rosenbrock, slope, x0)
		if !ok || !floats.EqualApprox(x, ones(len(x0)), 1e-8) {
			t.Errorf("Rosenbrock's function from %v: %v, %v", x0, x, ok)
		}
		if !floats.Equal(x0, start) {
			t.Errorf("x0 is written to: %v", x0)
		}
	}
	// A quadratic of condition 1e6 in twelve variables.
	quad := func(x []float64) (f float64) {
		for i, v := range x {
			d := v - float64(i)
			f += math.Pow(10, float64(i)/2) * d * d / 2
		}
		return f
	}
	quadSlope := func(dst, x []float64) {
		for i, v := range x {
			dst[i] = math.Pow(10, float64(i)/2) * (v - float64(i))
		}
	}
	x, ok := accel.LBFGS(quad, quadSlope, make([]float64, 13))
	for i, v := range x {
		if !ok || !(math.Abs(v-float64(i)) < 1e-7) {
			t.Errorf("quadratic: element %d is %v", i, v)
		}
	}
	// Σ x − log x, infinite for x ≤ 0: the line search runs into the wall.
	wall := func(x []float64) (f float64) {
		for _, v := range x {
			if v <= 0 {
				return math.Inf(1)
			}
			f += v - math.Log(v)
		}
		return f
	}
	wallSlope := func(dst, x []float64) {
		for i, v := range x {
			dst[i] = 1 - 1/v
		}
	}
	if x, ok := accel.LBFGS(wall, wallSlope, []float64{1e-3, 50}); !ok ||
		!floats.EqualApprox(x, ones(2), 1e-7) {
		t.Errorf("barrier: %v, %v", x, ok)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		f := func([]float64) float64 { return bad }
		if x, ok := accel.LBFGS(f, slope, []float64{1, 2}); ok || x != nil {
			t.Errorf("start of value %v: %v, %v", bad, x, ok)
		}
	}
	// A gradient that is wrong: the start is the best point there is.
	if x, ok := accel.LBFGS(quad, func(dst, x []float64) {
		quadSlope(dst, x)
		floats.Scale(-1, dst)
	}, []float64{3, 3}); !ok || !(quad(x) <= quad([]float64{3, 3})) {
		t.Errorf("a gradient of the wrong sign: %v, %v", x, ok)
	}
}

func TestMinimize1(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	count := 0
	check := func(name string, guess, tol, want, within float64, most int,
		f func(float64) float64) {
		t.Helper()
		count = 0
		got := accel.Minimize1(guess, tol, func(x float64) float64 {
			if x < 0 || x > 1 {
				t.Errorf("%s: evaluated at %v", name, x)
			}
			count++
			return f(x)
		})
		if !(math.Abs(got-want) <= within) || count > most {
			t.Errorf("%s from %v: %v after %d evaluations, want %v", name, guess, got, count, want)
		}
	}
	for range 300 {
		c, guess, tol := rng.Float64(), rng.Float64(), math.Pow(10, -1-4*rng.Float64())
		near := 3*tol*c + 3e-8
		check("quadratic", guess, tol, c, near, 30,
			func(x float64) float64 { return 7 + (x-c)*(x-c) })
		check("absolute value", guess, tol, c, near, 60,
			func(x float64) float64 { return math.Abs(x - c) })
		check("barrier", guess, tol, c, near, 60,
			func(x float64) float64 { return x - c*math.Log(x) })
		check("infinite on one side", guess, tol, c, near, 60, func(x float64) float64 {
			if x < c/2 {
				return math.Inf(1)
			}
			return (x - c) * (x - c)
		})
	}
	// Minima at the ends, of which 0 is found exactly.
	for _, guess := range []float64{0, 1e-9, 0.3, 0.999, 1} {
		check("increasing", guess, 1e-3, 0, 0, 103, func(x float64) float64 { return x })
		check("decreasing", guess, 1e-3, 1, 3e-3, 60, func(x float64) float64 { return -x })
		check("√x", guess, 1e-3, 0, 0, 103, math.Sqrt)
	}
	check("NaN at the guess", 0.5, 1e-3, 0, 0, 103, func(x float64) float64 {
		if x == 0.5 {
			return math.NaN()
		}
		return x
	})
}

func TestRoot(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	check := func(name string, lo, hi, want float64, most int, f func(float64) float64) {
		t.Helper()
		count := 0
		got := accel.Root(func(x float64) float64 {
			count++
			if x < math.Min(lo, hi) || x > math.Max(lo, hi) {
				t.Errorf("%s: evaluated at %v", name, x)
			}
			return f(x)
		}, lo, hi, 1e-300)
		if !(math.Abs(got-want) <= 4e-13*math.Abs(want)+1e-290) || count > most {
			t.Errorf("%s on [%v, %v]: %v after %d evaluations, want %v", name, lo, hi, got, count,
				want)
		}
	}
	for range 300 {
		c := 20*rng.Float64() - 10
		lo, hi := c-10*rng.Float64()-0.1, c+10*rng.Float64()+0.1
		if rng.IntN(2) == 0 {
			lo, hi = hi, lo
		}
		check("line", lo, hi, c, 20, func(x float64) float64 { return 3 * (x - c) })
		check("exponential", lo, hi, c, 80, func(x float64) float64 { return math.Expm1(c - x) })
		check("sigmoid", lo, hi, c, 80, func(x float64) float64 { return math.Tanh(5 * (x - c)) })
		check("step", lo, hi, c, 80, func(x float64) float64 { return math.Copysign(1, x-c) })
		check("cube", lo, hi, c, 150,
			func(x float64) float64 { return (x - c) * (x - c) * (x - c) })
	}
	check("root at zero", -1, 3, 0, 3200, func(x float64) float64 { return x * math.Exp(x) })
	check("huge values", 1e-200, 1e200, 1, 1500, func(x float64) float64 { return 1e300 * (x - 1) })
	// A flat side, and a huge value at the other end.
	check("cliff", -39, 2, -18.32, 500, func(x float64) float64 {
		if x > -18.32 {
			return 1e300 * (x + 18.32)
		}
		return -1e-3 + 1e-9*(x+18.32)
	})
	// A zero at either end, where the function may have either sign elsewhere.
	for _, sign := range []float64{-1, 1} {
		check("zero at lo", 2, 5, 2, 2, func(x float64) float64 { return sign * (x - 2) })
		check("zero at hi", 2, 5, 5, 2, func(x float64) float64 { return sign * (x - 5) })
	}
	// NaN must not keep it.
	accel.Root(func(float64) float64 { return math.NaN() }, 0, 1, 0)
}

// TestAscent: the direction takes the last fall of the gradient to the move that made it, and as
// many independent steps as there are dimensions to the maximum of a quadratic function.
func TestAscent(t *testing.T) {
	scale := []float64{1, 30, 0.02}
	grad := func(x []float64) []float64 {
		g := make([]float64, len(x))
		for i, v := range x {
			g[i] = scale[i] * (float64(i) - v)
		}
		return g
	}
	if g := grad([]float64{3, 2, 1}); !slices.Equal(accel.Ascent(g, nil, nil), g) {
		t.Error("without steps it is not the gradient")
	}
	x := []float64{3, -2, 7}
	var moves, turns [][]float64
	for range 40 {
		g := grad(x)
		d := accel.Ascent(g, moves, turns)
		var up, bend float64
		for i, v := range d {
			up += v * g[i]
			bend += v * v * scale[i]
		}
		if up < 1e-30 {
			break
		}
		for i := range d {
			d[i] *= up / bend // to the maximum along it
			x[i] += d[i]
		}
		turn := g
		for i, v := range grad(x) {
			turn[i] -= v
		}
		moves, turns = append(moves, d), append(turns, turn)
		for i, v := range accel.Ascent(turn, moves, turns) {
			if math.Abs(v-d[i]) > 1e-9*(1+math.Abs(d[i])) {
				t.Fatalf("after %d steps the last turn leads to %v, want the move %v", len(moves),
					v, d[i])
			}
		}
	}
	for i, v := range x {
		if math.Abs(v-float64(i)) > 1e-9 {
			t.Errorf("element %d of the maximum is %v after %d steps", i, v, len(moves))
		}
	}
	if len(moves) > len(scale)+1 {
		t.Errorf("%d steps to the maximum of a quadratic function of %d variables", len(moves),
			len(scale))
	}
}

// Mix is MixIn of a diagonal metric, to the bit, however many iterates there are.
func TestAndersonMix(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for _, n := range []int{1, 3, 40} { // the first with dependent differences
		var a accel.Anderson
		w, got, want := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range w {
			w[i] = math.Exp(rng.NormFloat64())
		}
		for iterates := range 8 {
			x, r := a.Next(n, false)
			for i := range x {
				x[i], r[i] = rng.NormFloat64(), rng.NormFloat64()
			}
			ok := a.Mix(got, w)
			mixed := a.MixIn(want, func(dst, d []float64) bool {
				for i, v := range d {
					dst[i] = w[i] * w[i] * v
				}
				return true
			})
			if ok != mixed || ok != (iterates > 0) || ok && !slices.Equal(got, want) {
				t.Errorf("%d iterates of %d: %v %v, want %v %v", iterates+1, n, ok, got, mixed,
					want)
			}
		}
	}
}
