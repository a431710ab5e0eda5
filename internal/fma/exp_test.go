package fma

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

const precision = 140 // bits of the reference values

func large(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }

// bigExp returns e^x by its series at x/2¹⁶.
func bigExp(x float64) *big.Float {
	const halvings = 16
	r := new(big.Float).SetMantExp(large(x), -halvings)
	sum, term := large(1), large(1)
	for n := 1.0; term.Sign() != 0 && term.MantExp(nil) > -precision-20; n++ {
		term.Quo(term.Mul(term, r), large(n))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigLog1p returns log(1+x). It takes a step of Newton's method from the result of package math,
// with the next term.
func bigLog1p(x float64) *big.Float {
	y := math.Log1p(x)
	// log(1+x) = y + log(1+d) with d = (1+x)e^−y − 1, which is a few units of 2⁻⁵³.
	d := new(big.Float).Mul(new(big.Float).Add(large(1), large(x)), bigExp(-y))
	d.Sub(d, large(1))
	second := new(big.Float).Mul(d, d)
	return d.Sub(d, second.Quo(second, large(2))).Add(d, large(y))
}

// ulps returns the error of got in units in the last place of want. A unit is at least the
// smallest positive number.
func ulps(got float64, want *big.Float) float64 {
	unit := math.Ldexp(1, max(want.MantExp(nil)-53, -1074))
	e, _ := new(big.Float).Sub(large(got), want).Float64()
	return math.Abs(e) / unit
}

// elementary lists Exp and Log1p with their references and ranges.
var elementary = []struct {
	name  string
	f     func(x []float64)
	exact func(x float64) *big.Float
	plain func(x float64) float64
	draw  func(rng *rand.Rand) float64
}{
	{"exp", Exp, bigExp, math.Exp, func(rng *rand.Rand) float64 {
		switch rng.IntN(4) {
		case 0:
			return 1454*rng.Float64() - 745 // includes subnormal results
		case 1:
			return math.Ldexp(rng.NormFloat64(), -rng.IntN(60))
		case 2:
			return math.Nextafter((float64(rng.IntN(2000))-1000)*math.Ln2/2,
				float64(rng.IntN(3)-1)*1000)
		}
		return 20 * rng.NormFloat64()
	}},
	{"log1p", Log1p, bigLog1p, math.Log1p, func(rng *rand.Rand) float64 {
		switch rng.IntN(4) {
		case 0:
			return math.Ldexp(rng.Float64(), rng.IntN(1020)-60)
		case 1:
			return -rng.Float64()
		case 2:
			return rng.NormFloat64() * 1e-3
		}
		return 3 * rng.Float64()
	}},
}

func TestElementary(t *testing.T) {
	trials := 20000
	if testing.Short() {
		trials = 1500
	}
	for _, c := range elementary {
		rng := rand.New(rand.NewPCG(1, 2))
		var worst, at float64
		x := make([]float64, 0, trials)
		for len(x) < trials {
			v := c.draw(rng)
			if c.name == "exp" && v > 709.78 || c.name == "log1p" && v <= -1 {
				continue
			}
			x = append(x, v)
		}
		y := append([]float64(nil), x...)
		c.f(y)
		for i, v := range x {
			if e := ulps(y[i], c.exact(v)); e > worst {
				worst, at = e, v
			}
		}
		t.Logf("%s is within %.3f units in the last place, at %v", c.name, worst, at)
		if !(worst < 1.01) {
			t.Errorf("%s is off by %.3f units in the last place at %v", c.name, worst, at)
		}
	}
}

// TestElementaryEdges checks NaN, infinities, numbers that are too large or too small, and
// numbers whose sign matters.
func TestElementaryEdges(t *testing.T) {
	edges := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(),
		math.Float64frombits(0xfff8000000000001), 5e-324, -5e-324, 0x1p-1022, -0x1p-1022,
		1e-300, 1e-17, -1e-17, 709.782712893384, 709.7827128933841, 710, 1e5, math.MaxFloat64,
		-math.MaxFloat64, -745.1332191019411, -745.1332191019412, -745.2, -746, -1e5, -1, -2,
		math.Nextafter(-1, 0), math.Nextafter(-1, -2), 0x1p52, 0x1p53, 0x1p1000}
	paths(t, func(t *testing.T) {
		for _, c := range elementary {
			for n := 1; n < 10; n++ { // each number in any lane, next to others
				for _, x := range edges {
					for at := range n {
						v := make([]float64, n)
						v[at] = x
						c.f(v)
						want := c.plain(x)
						if got := v[at]; !(got == want && math.Signbit(got) == math.Signbit(want)) &&
							!(got != got && want != want) &&
							!(math.Abs(got-want) <= 1e-15*math.Abs(want)+5e-324) {
							t.Fatalf("%s(%v) = %v, want %v", c.name, x, got, want)
						}
						for i, y := range v {
							if i != at && y != c.plain(0) {
								t.Fatalf("%s: %v next to %v", c.name, y, x)
							}
						}
					}
				}
			}
		}
	})
	for _, c := range elementary {
		c.f(nil)
	}
}

// TestElementarySame checks that all paths have the same bits for random bit patterns.
func TestElementarySame(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range elementary {
		x := make([]float64, 100003)
		for i := range x {
			if x[i] = c.draw(rng); i%2 == 0 {
				x[i] = math.Float64frombits(rng.Uint64())
			}
		}
		want := slices.Clone(x)
		func() {
			defer force("Go")()
			c.f(want)
		}()
		paths(t, func(t *testing.T) {
			got := slices.Clone(x)
			c.f(got)
			same(t, c.name, got, want)
		})
	}
}

func BenchmarkElementary(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, c := range elementary {
		b.Run(c.name, func(b *testing.B) {
			x, y := make([]float64, 1024), make([]float64, 1024)
			for i := range x {
				x[i] = rng.Float64()
			}
			b.SetBytes(8 << 10)
			for b.Loop() {
				copy(y, x)
				c.f(y)
			}
		})
	}
}

// TestSoftplusSame checks that all paths have the same bits in every lane.
func TestSoftplusSame(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 203} {
		for nodes := range 9 {
			rule := make([]Node, nodes)
			for i := range rule {
				rule[i] = Node{6 * rng.Float64(), rng.Float64()}
			}
			m, s := make([]float64, n), make([]float64, n)
			for i := range m {
				m[i], s[i] = 10*rng.NormFloat64(), math.Ldexp(rng.Float64(), -rng.IntN(60))
				switch rng.IntN(6) {
				case 0:
					m[i] *= 100
				case 1:
					m[i] = 0
				case 2:
					s[i] = 0
				}
			}
			sums := func(path string) (f [3][]float64) {
				defer force(path)()
				for k := range f {
					f[k] = make([]float64, n)
				}
				Softplus(rule, f[0], f[1], f[2], m, s)
				return f
			}
			got := sums("Go")
			for _, path := range available() {
				for k, y := range sums(path) {
					same(t, "softplus by "+path, y, got[k])
				}
			}
			for i, x := range m { // compare with package math
				var y [3]float64
				for _, r := range rule {
					for _, eta := range [2]float64{x - s[i]*r[0], x + s[i]*r[0]} {
						p, q := 1/(1+math.Exp(eta)), 1/(1+math.Exp(-eta))
						y[0] += r[1] * (math.Max(-eta, 0) + math.Log1p(math.Exp(-math.Abs(eta))))
						y[1] += r[1] * p
						y[2] += r[1] * p * q
					}
				}
				for k, w := range y {
					if e := math.Abs(got[k][i] - w); !(e <= 1e-13*w) && e > 1e-15 {
						t.Fatalf("element %d of sum %d at m = %v, s = %v: %v, want %v", i, k, x,
							s[i], got[k][i], w)
					}
				}
			}
		}
	}
}
