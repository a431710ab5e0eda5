package expect

import (
	"math"
	"math/big"
	"testing"
)

// TestNestedDegrees checks that each nested rule is exact for the moments of N(0, 1) up to its
// degree, but not for the next even moment.
func TestNestedDegrees(t *testing.T) {
	for r, want := range []struct{ nodes, degree int }{{9, 15}, {19, 29}, {35, 51}} {
		rule := genzKeister[r]
		if n := 2*len(rule) - 1; n != want.nodes {
			t.Errorf("rule %d has %d nodes, want %d", r, n, want.nodes)
		}
		for k, n := range rule {
			if r > 0 && k < len(genzKeister[r-1]) && n.x != genzKeister[r-1][k].x {
				t.Errorf("node %d of rule %d is %v, and %v in the rule before", k, r, n.x,
					genzKeister[r-1][k].x)
			}
		}
		moment := 1.0 // E[u^d] = 1·3·5…(d−1), and odd moments are 0 by symmetry
		for d := 0; d <= want.degree+1; d += 2 {
			sum := new(big.Float).SetPrec(200)
			for _, n := range rule {
				x := new(big.Float).SetPrec(200).SetFloat64(n.w)
				for range d {
					x.Mul(x, big.NewFloat(n.x))
				}
				if sum.Add(sum, x); n.x != 0 {
					sum.Add(sum, x)
				}
			}
			got, _ := sum.Float64()
			// Nodes are rounded, so x^d has d times their relative error.
			exact := math.Abs(got/moment-1) <= float64(10+d)*1e-16
			if exact != (d <= want.degree) {
				t.Errorf("rule of %d nodes: E[u^%d] = %v, want %v", want.nodes, d, got, moment)
			}
			moment *= float64(d + 1)
		}
	}
}

// TestNestedAgrees checks that Nested uses as few nodes as possible, and reports false if they
// are not enough.
func TestNestedAgrees(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     func(u float64) float64
		want  float64
		ok    bool
		calls int
	}{
		{"a polynomial of degree 12", func(u float64) float64 { return math.Pow(u, 12) }, 10395,
			true, 19},
		{"exp", func(u float64) float64 { return math.Exp(0.3 * u) }, math.Exp(0.045), true, 19},
		{"a steeper exp", func(u float64) float64 { return math.Exp(1.2 * u) }, math.Exp(0.72),
			true, 35},
		{"a kink", math.Abs, math.Sqrt(2 / math.Pi), false, 35},
		{"a layer", func(u float64) float64 { return math.Tanh(20*u) * u }, math.NaN(), false, 35},
		{"no value far out", func(u float64) float64 { return math.Log(u + 3) }, math.NaN(), false,
			9},
	} {
		calls := 0
		s, ok := Nested(func(u float64) ([3]float64, bool) {
			calls++
			y := c.f(u)
			return [3]float64{y, -y, 2 * y}, !math.IsNaN(y)
		}, 1e-10)
		if ok != c.ok || calls > c.calls || ok && calls != c.calls {
			t.Errorf("%s: ok %v after %d values, want %v after %d", c.name, ok, calls, c.ok,
				c.calls)
		}
		for k, w := range []float64{c.want, -c.want, 2 * c.want} {
			if ok && !(math.Abs(s.Sum[k]-w) <= s.Err[k] && s.Err[k] <= 1e-8*math.Abs(w)) {
				t.Errorf("%s: component %d is %v ± %.2g, want %v", c.name, k, s.Sum[k], s.Err[k], w)
			}
		}
	}
}
