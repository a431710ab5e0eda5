package fma

import "math"

// A Node is a node x > 0 of a symmetric quadrature rule and its weight. The node −x has the same
// weight.
type Node [2]float64

// Softplus stores sums over the nodes of a rule in f0, for each finite m and s ≥ 0,
//
//	f0 = Σ w {g(m − sx) + g(m + sx)},   g(η) = log(1 + e^−η),
//
// and the same sums of −g′ = σ(−η) and g″ = σ(η)σ(−η) in f1 and f2. The sums are in the order of
// the nodes. It panics if a slice is shorter than m. Package expect calls it for the logit.
func Softplus(rule []Node, f0, f1, f2, m, s []float64) {
	n := len(m)
	pathSoftplus(rule, f0[:n], f1[:n], f2[:n], m, s[:n])
}

// softplus implements Softplus in Go.
func softplus(rule []Node, f0, f1, f2, m, s []float64) {
	for i := range m {
		var y0, y1, y2 float64
		for _, n := range rule {
			x := float64(s[i] * n[0]) // the conversions prevent fused operations
			a, b := m[i]-x, m[i]+x
			e := [2]float64{-math.Abs(a), -math.Abs(b)}
			exp(e[:])
			f := [1]float64{e[0] + e[1] + float64(e[0]*e[1])}
			log1p(f[:])
			// A single division serves both nodes of a pair.
			r := 1 / ((1 + e[0]) * (1 + e[1]))
			ra, rb := r*(1+e[1]), r*(1+e[0])
			ga, gb := float64(e[0]*ra), float64(e[1]*rb)
			y2 += float64(n[1] * (float64(ga*ra) + float64(gb*rb)))
			if a < 0 {
				f[0], ga = f[0]-a, ra
			}
			if b < 0 {
				f[0], gb = f[0]-b, rb
			}
			y0 += float64(n[1] * f[0])
			y1 += float64(n[1] * (ga + gb))
		}
		f0[i], f1[i], f2[i] = y0, y1, y2
	}
}
