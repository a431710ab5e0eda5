package expect_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mathext"
)

// trapezoid returns E[f(η)] and E|f(η)| for η ~ N(m, s²). It sums over 40 standard deviations on
// either side with a step of at most wide, in compensated sums. The error is about exp(a²/2s² −
// 2πa/step) for an f that is analytic within a of the real line.
func trapezoid(f func(x float64) [3]float64, m, s, wide float64) (e [3]float64, abs float64) {
	h := math.Min(wide, s/8)
	n := int(40 * s / h)
	var lost [3]float64
	for i := -n; i <= n; i++ {
		x := h * float64(i)
		p := special.NormalPDF(x/s) * h / s
		if p == 0 {
			continue
		}
		y := f(m + x)
		for k := range y {
			v := p*y[k] - lost[k]
			t := e[k] + v
			lost[k] = (t - e[k]) - v
			e[k] = t
		}
		abs += p * math.Abs(y[0])
	}
	return e, abs
}

func softplus(x float64) [3]float64 {
	f0, f1, f2 := expect.SoftplusAt(x)
	return [3]float64{f0, f1, f2}
}

func TestSoftplusAt(t *testing.T) {
	t.Parallel()
	for _, x := range []float64{0, 1e-300, 1e-9, 0.3, 1, 5, 36, 40, 700} {
		f0, f1, f2 := expect.SoftplusAt(x)
		g0, g1, g2 := expect.SoftplusAt(-x)
		near := func(name string, got, want float64) {
			if !(math.Abs(got-want) <= 4e-16*math.Abs(want)) {
				t.Errorf("x = %v: %s is %v, want %v", x, name, got, want)
			}
		}
		near("log(1+e^−x)", f0, math.Log1p(math.Exp(-x)))
		near("its reflection", g0, f0+x)
		near("σ(−x)", f1, math.Exp(-x)/(1+math.Exp(-x)))
		near("σ(x)", g1, 1/(1+math.Exp(-x)))
		near("σ(x)σ(−x)", f2, f1*g1)
		near("its reflection", g2, f2)
	}
	for _, x := range []float64{800, math.Inf(1)} {
		f0, f1, f2 := expect.SoftplusAt(x)
		g0, g1, g2 := expect.SoftplusAt(-x)
		if f0 != 0 || f1 != 0 || f2 != 0 || g0 != x || g1 != 1 || g2 != 0 {
			t.Errorf("x = ±%v: %v %v %v, %v %v %v", x, f0, f1, f2, g0, g1, g2)
		}
	}
}

// TestSoftplusExpect checks the three expectations to a relative error of 1e−13 on both sides of
// every change of method.
func TestSoftplusExpect(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	type pair struct{ m, s float64 }
	var cs []pair
	for _, s := range []float64{0.035, 0.11, 0.18, 0.26, 0.33, 0.42, 1.5, 10} {
		for _, near := range []float64{1 - 1e-9, 1 + 1e-9} {
			for _, m := range []float64{0, 0.5, 2, 5, 20, 50} {
				cs = append(cs, pair{m, s * near})
			}
		}
	}
	for range testkit.Longer(1500, testkit.Shorter(500, 150)) {
		cs = append(cs, pair{50 * rng.Float64(), math.Pow(10, -3+3.6*rng.Float64())},
			pair{5 * rng.Float64(), math.Pow(10, -2+2*rng.Float64())})
	}
	for range testkit.Longer(60, testkit.Shorter(30, 10)) { // wide
		s := math.Pow(10, 1+rng.Float64())
		cs = append(cs, pair{50 * rng.Float64(), s}, pair{s * 8 * rng.Float64(), s})
	}
	for _, s := range []float64{6, 8, 9.99, 10.1, 20} {
		for k := 1.0; k < 12; k++ {
			cs = append(cs, pair{s * k, s}, pair{s*s + s*(4+k/2), s})
		}
	}
	for _, s := range []float64{0.01, 0.3, 0.8, 1.4, 2} { // one exponential is not enough yet
		cs = append(cs, pair{30.1 + 1.5*s*s, s}, pair{20 + 1.5*s*s, s})
	}
	for _, s := range []float64{0.05, 0.7, 3} { // both sides of the log-normal tail
		for _, off := range []float64{-1e-9, 1e-9, 1} {
			cs = append(cs, pair{s*s + 8.5*s + off, s}, pair{38 + 1.5*s*s + off, s})
		}
	}
	worst := [3]float64{}
	for _, c := range cs {
		f0, f1, f2, scale := expect.SoftplusExpect(c.m, c.s*c.s)
		want, _ := trapezoid(softplus, c.m, c.s, 0.125)
		for k, f := range []float64{f0, f1, f2} {
			e := math.Abs(f*math.Exp(scale)/want[k] - 1)
			worst[k] = max(worst[k], e)
			if !(e < 1e-13) {
				t.Errorf("m = %v, s = %v: F%d is off by %.2g", c.m, c.s, k, e)
			}
		}
	}
	t.Logf("worst relative errors %.2g", worst)
}

// TestSoftplusExpectEdges checks a point mass, tails below the smallest number, and the identity
// ∂F0/∂v = F2/2.
func TestSoftplusExpectEdges(t *testing.T) {
	t.Parallel()
	f0, f1, f2, scale := expect.SoftplusExpect(3, 0)
	if g0, g1, g2 := expect.SoftplusAt(3); f0 != g0 || f1 != g1 || f2 != g2 || scale != 0 {
		t.Error("a point mass")
	}
	f0, f1, f2, scale = expect.SoftplusExpect(1e4, 1)
	if f0 != 1 || f1 != 1 || f2 != 1 || scale != 0.5-1e4 {
		t.Errorf("a tail: %v %v %v e^%v", f0, f1, f2, scale)
	}
	// If a wide Gaussian is far out, the hinge alone is s L(m/s), to a relative error of 1/m².
	m, s := 4e6, 1e5
	f0, f1, _, scale = expect.SoftplusExpect(m, s*s)
	if got, want := math.Log(f1)+scale, special.NormalLogTail(m/s); !(math.Abs(got-want) < 1e-6) {
		t.Errorf("log F1 is %v, want %v", got, want)
	}
	if got, want := f1/f0,
		special.Mills(m/s)/(1-m/s*special.Mills(m/s))/s; !(math.Abs(got/want-1) < 1e-6) {
		t.Errorf("F1/F0 is %v, want %v", got, want)
	}
	for _, c := range [][2]float64{{1, 0.01}, {2, 1}, {10, 30}, {3, 200}, {60, 200}} {
		m, v := c[0], c[1]
		h := 1e-3 * v
		hi, _, _, _ := expect.SoftplusExpect(m, v+h)
		lo, _, _, _ := expect.SoftplusExpect(m, v-h)
		_, _, f2, _ := expect.SoftplusExpect(m, v)
		if got := (hi - lo) / h; !(math.Abs(got/f2-1) < 1e-5) {
			t.Errorf("m = %v, v = %v: 2∂F0/∂v is %v, F2 is %v", m, v, got, f2)
		}
	}
}

func TestValid(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range [][2]float64{{0, 0}, {-1e300, 1e300}, {math.MaxFloat64, 5e-324}} {
		if !expect.Valid(c[0], c[1]) {
			t.Errorf("N(%v, %v) is refused", c[0], c[1])
		}
	}
	for _, c := range [][2]float64{{nan, 1}, {0, nan}, {inf, 1}, {-inf, 1}, {0, inf},
		{0, -5e-324}} {
		if expect.Valid(c[0], c[1]) {
			t.Errorf("N(%v, %v) is taken", c[0], c[1])
		}
	}
}

// TestCentred checks Centred on −log(1+x²), which is singular at ±i, and on log Φ. The reference
// is the trapezoidal rule. For wide Gaussians it applies after the substitution x = sinh u, which
// moves the singularities to ±iπ/2.
func TestCentred(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	student := func(x float64) (g, d1, d2 float64) {
		q := 1 + x*x
		return -math.Log1p(x * x), -2 * x / q, 2 * (x*x - 1) / q / q
	}
	const c, d = 0.75, 0.5 // singularities at c ± id
	moved := func(x float64) (float64, float64, float64) {
		g, d1, d2 := student((x - c) / d)
		return g, d1 / d, d2 / d / d
	}
	for range 400 {
		s, m := math.Pow(10, -3+5*rng.Float64()), 100*rng.Float64()-50
		if rng.IntN(2) == 0 {
			m = c + 3*s*rng.NormFloat64()
		}
		got, abs := expect.Centred(moved, m, s, m-9*s, m+9*s, s, c, d)
		f := func(x float64) [3]float64 { g, d1, d2 := moved(x); return [3]float64{g, d1, d2} }
		var want [3]float64
		var size float64
		if s < d {
			want, size = trapezoid(f, m, s, 0.05)
		} else {
			end := math.Asinh((math.Abs(m-c) + 12*s) / d)
			h := math.Min(0.02, s/(12*math.Hypot(m-c, d)))
			for i := math.Floor(-end / h); i*h <= end; i++ {
				u := i * h
				x := c + d*math.Sinh(u)
				p := special.NormalPDF((x-m)/s) / s * d * math.Cosh(u) * h
				y := f(x)
				for k := range y {
					want[k] += p * y[k]
				}
				size += p * math.Abs(y[0])
			}
		}
		if !(math.Abs(got[0]-want[0]) < 1e-13*size+1e-16) ||
			!(math.Abs(abs-size) < 2e-13*size+1e-16) {
			t.Errorf("m = %v, s = %v: %v of %v, want %v of %v", m, s, got[0], abs, want[0], size)
		}
		if !(math.Abs(got[1]-want[1]) < 1e-11) || !(math.Abs(got[2]-want[2]) < 1e-11) {
			t.Errorf("m = %v, s = %v: derivatives %v and %v, want %v and %v", m, s, got[1], got[2],
				want[1], want[2])
		}
	}
	for range 200 {
		s, m := math.Pow(10, -3+3.3*rng.Float64()), 6*rng.Float64()-6
		got, _ := expect.Centred(special.NormalLogCDF, m, s, m-9*s, math.Min(m+9*s, 9.5), s, 1.9159,
			2.8163)
		want, _ := trapezoid(func(x float64) [3]float64 {
			g, d1, d2 := special.NormalLogCDF(x)
			return [3]float64{g, d1, d2}
		}, m, s, 0.1)
		for k := range want {
			if !(math.Abs(got[k]-want[k]) < 1e-12*(math.Abs(want[k])+1e-3)) {
				t.Errorf("log Φ, m = %v, s = %v: %v, want %v", m, s, got, want)
			}
		}
	}
}

// TestAdaptive compares Adaptive with integrals in closed form. The error must be within Err, and
// Err must be within tol if there are enough panels.
func TestAdaptive(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 1500 {
		a, b := -math.Pow(10, 2*rng.Float64()-1), math.Pow(10, 2*rng.Float64()-1)
		c, w := 2*rng.Float64()-1, math.Pow(10, -2+2*rng.Float64())
		r := 0.5 + 2*rng.Float64()
		f := func(x float64) [3]float64 {
			z := (x - c) / w
			return [3]float64{1 / (1 + z*z), math.Exp(-z * z / 2), math.Cos(r * x)}
		}
		sd := w * math.Sqrt(math.Pi/2)
		want := [3]float64{
			w * (math.Atan((b-c)/w) - math.Atan((a-c)/w)),
			sd * (math.Erf((b-c)/w/math.Sqrt2) - math.Erf((a-c)/w/math.Sqrt2)),
			(math.Sin(r*b) - math.Sin(r*a)) / r,
		}
		cuts := []float64{a, a, math.Max(a, math.Min(b, c)), b}
		tol := math.Pow(10, -13+9*rng.Float64())
		got := expect.Adaptive(f, cuts, tol)
		size := [3]float64{w * math.Pi, 2 * sd, b - a}
		for k := range want {
			e := math.Abs(got.Sum[k] - want[k])
			if !(e <= got.Err[k]+4e-15*size[k]) {
				t.Errorf("[%v, %v] about %v ± %v to %.2g: integral %d is %v ± %.2g, want %v", a, b,
					c, w, tol, k, got.Sum[k], got.Err[k], want[k])
			}
			if !(got.Err[k] <= (tol+2e-15)*size[k]) {
				t.Errorf("[%v, %v] about %v ± %v to %.2g: the bound of integral %d is %.2g", a, b,
					c, w, tol, k, got.Err[k])
			}
		}
	}
	// Adaptive bisects at corners and jumps, and its bound is only an estimate there.
	for range 200 {
		c := rng.Float64()
		got := expect.Adaptive(func(x float64) [3]float64 {
			return [3]float64{math.Abs(x - c), math.Sqrt(math.Abs(x - c)), math.Copysign(1, x-c)}
		}, []float64{0, 1}, 1e-8)
		want := [3]float64{(c*c + (1-c)*(1-c)) / 2, (math.Pow(c, 1.5) + math.Pow(1-c, 1.5)) / 1.5,
			1 - 2*c}
		for k := range want {
			if e := math.Abs(got.Sum[k] - want[k]); !(e < 3e-7) || !(got.Err[k] < 2e-8) {
				t.Errorf("c = %v: integral %d is off by %.2g, with a bound of %.2g", c, k, e,
					got.Err[k])
			}
		}
	}
	if got := expect.Adaptive(func(float64) [3]float64 { return [3]float64{1, 1, 1} },
		[]float64{2, 2}, 1e-9); got.Sum != [3]float64{} {
		t.Errorf("over nothing: %v", got.Sum)
	}
}

// TestAdaptiveRounding integrates functions with rounding errors above the tolerance. Bisections cannot
// reduce them, so few are made, and the integral is as accurate as the function.
func TestAdaptiveRounding(t *testing.T) {
	t.Parallel()
	for _, size := range []float64{1, 1e5, 1e7, 1e9, 1e11} {
		calls := 0
		got := expect.Adaptive(func(x float64) [3]float64 {
			calls++
			return [3]float64{math.Exp(size + x - size - x - x*x/2), math.Exp(-x * x / 2)}
		}, []float64{-9, -3, 0, 3, 9}, 1e-13)
		noise := size * special.Eps
		for k, want := range [3]float64{math.Sqrt(2 * math.Pi), math.Sqrt(2 * math.Pi), 0} {
			if e := math.Abs(got.Sum[k] - want); !(e <= 2*noise+1e-14) {
				t.Errorf("size %v: integral %d is off by %.2g", size, k, e)
			}
		}
		if calls > 2500 { // without the test of roundoff, 5,292
			t.Errorf("size %v: %d calls", size, calls)
		}
	}
}

// TestReach checks that Reach extends as far out as grow requires, and that it cuts at 0, at y and
// around both.
func TestReach(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	var buf [64]float64
	for range 500 {
		y, m, s := float64(rng.IntN(3)), 20*rng.Float64()-10, math.Pow(10, -3+5*rng.Float64())
		k := 17 * rng.Float64()
		side := float64(2*rng.IntN(2) - 1)
		// the expectation is e^{k²/2} and comes from u close to ±k
		grow := func(u float64) float64 { return math.Exp(side * k * u) }
		cuts := expect.Reach(buf[:0], grow, 1, y, m, s)
		if !slices.IsSorted(cuts) || cuts[0] > -9 || cuts[len(cuts)-1] < 9 ||
			math.Max(side*cuts[0], side*cuts[len(cuts)-1]) < k+7 {
			t.Fatalf("k = %v: cuts %v", k, cuts)
		}
		if len(cuts) > len(buf) {
			t.Errorf("%d cuts", len(cuts))
		}
		for _, c := range []float64{0, y} {
			if u := (c - m) / s; u > -9 && u < 9 && !slices.Contains(cuts, u) {
				t.Errorf("m = %v, s = %v: no cut at η = %v", m, s, c)
			}
			for _, d := range []float64{1, -8} {
				u := (c + d - m) / s
				near := func(v float64) bool { return math.Abs(u-v) < 1e-9*(1+math.Abs(u)) }
				if u > -9 && u < 9 && math.Abs(d)/s < 3 && !slices.ContainsFunc(cuts, near) {
					t.Errorf("m = %v, s = %v: no cut at η = %v", m, s, c+d)
				}
			}
		}
		got := expect.Adaptive(func(u float64) [3]float64 {
			p := special.NormalPDF(u)
			return [3]float64{p * grow(u), p, p * u * u}
		}, cuts, 1e-13)
		for i, want := range []float64{math.Exp(k * k / 2), 1, 1} {
			if !(math.Abs(got.Sum[i]-want) < 1e-12*want) {
				t.Errorf("k = %v: expectation %d is %v, want %v", k, i, got.Sum[i], want)
			}
		}
	}
	if cuts := expect.Reach(nil, func(u float64) float64 { return math.Exp(-25 * u) }, 1, 0, 0,
		1e-3); cuts[0] > -33 || cuts[len(cuts)-1] != 9 {
		t.Errorf("growth to the left: %v", cuts)
	}
}

// TestMode compares modes and integrals with closed forms, for Gaussians, gamma and beta
// variables on the log scale, and double exponentials.
func TestMode(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	var k expect.Mode
	inf := math.Inf(1)
	check := func(name string, f func(x float64) float64, marks [2]float64, unit, mode, width,
		want float64) {
		t.Helper()
		logI, bound := k.Integrate(f, marks, unit)
		// Rounding x causes errors, and so does rounding f if its terms at the mode are as large
		// as e^x.
		round := special.Eps * (4*math.Abs(mode)/width + 2/width/width + 10*(1+math.Abs(want)))
		if e := math.Abs(logI - want); !(e <= bound+round) || !(bound < 1e-11*(1+math.Abs(want))) {
			t.Errorf("%s: %v ± %.2g, want %v (%.2g)", name, logI, bound, want, e)
		}
		if !(math.Abs(k.Mode-mode) < 1e-6*width+2e-8*math.Abs(mode)) {
			t.Errorf("%s: mode %v, want %v", name, k.Mode, mode)
		}
		if !(k.Width > 0.3*width) || !(k.Width < 3.5*width) {
			t.Errorf("%s: width %v, want about %v", name, k.Width, width)
		}
	}
	for range 400 {
		c, s := 100*rng.NormFloat64(), math.Pow(10, -2+4*rng.Float64())
		top := 200 * rng.NormFloat64()
		gauss := func(x float64) float64 { z := (x - c) / s; return top - z*z/2 }
		marks := [2]float64{c + s*rng.NormFloat64(), math.NaN()}
		check("Gaussian", gauss, marks, s, c, s*math.Sqrt2, top+math.Log(s)+special.LogSqrt2Pi)
		m := k.Moments(gauss, func(x float64) float64 { return (x - c) / s })
		scale := s * math.Sqrt(2*math.Pi) * math.Exp(top)
		if !(math.Abs(m[0]/scale-1) < 1e-11) || !(math.Abs(m[1]/scale) < 1e-11) ||
			!(math.Abs(m[2]/scale-1) < 1e-11) {
			t.Errorf("moments about %v ± %v: %v of %v", c, s, m, scale)
		}
		b := math.Pow(10, -1+2*rng.Float64())
		check("Laplace", func(x float64) float64 { return -math.Abs(x-c) / b }, [2]float64{c, 0}, b,
			c, b, math.Log(2*b))
		a := math.Pow(10, -0.5+3*rng.Float64())
		lg, _ := math.Lgamma(a)
		check("log-gamma", func(x float64) float64 { return a*x - math.Exp(x) },
			[2]float64{math.Log(a), 0}, 1/math.Sqrt(a),
			math.Log(a), math.Sqrt(2/a), lg)
		p, q := 0.5+20*rng.Float64(), 0.5+20*rng.Float64()
		check("log-beta", func(x float64) float64 {
			lo, _, _ := expect.SoftplusAt(x)
			hi, _, _ := expect.SoftplusAt(-x)
			return -p*lo - q*hi
		}, [2]float64{0, inf}, 1, math.Log(p/q), math.Sqrt(2/p+2/q), mathext.Lbeta(p, q))
	}
	// These cases have no mass at all, and half of a Gaussian.
	if l, b := k.Integrate(func(float64) float64 { return -inf }, [2]float64{}, 1); !math.IsInf(l,
		-1) || b != 0 {
		t.Errorf("the integral of nothing: %v ± %v", l, b)
	}
	if m := k.Moments(func(float64) float64 { return -inf }, math.Sin); !math.IsNaN(m[0]) {
		t.Errorf("its moments: %v", m)
	}
	half := func(x float64) float64 { return -x * x / 2 }
	k.Find(half, [2]float64{0.5, 0}, 1)
	k.Clip(0.5)
	for i, want := range []float64{special.NormalTail(-0.5), -special.NormalPDF(0.5),
		special.NormalTail(-0.5) - 0.5*special.NormalPDF(0.5)} {
		got := k.Moments(half, func(x float64) float64 { return x })[i] * special.GaussInvSqrt2Pi
		if !(math.Abs(got-want) < 1e-12) {
			t.Errorf("clipped moment %d is %v, want %v", i, got, want)
		}
	}
	// Here the support ends, so NaN counts as −∞.
	if l, _ := k.Integrate(func(x float64) float64 {
		if x < 0 {
			return math.NaN()
		}
		return -x
	}, [2]float64{0, 1}, 1); !(math.Abs(l) < 1e-12) {
		t.Errorf("an exponential: log integral %v", l)
	}
}
