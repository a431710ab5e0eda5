package fma

import "math"

// Geometric returns sums over the three rows t_k of a table, k = 0, 1, 2, which have equal
// lengths,
//
//	Σ_i w_i t_k[up+i] + (−1)ᵏ Σ_i w′_i t_k[down+i],   0 ≤ i < 4n.
//
// The ratios of the weights form a geometric progression, like the ratios of Gaussian densities
// at equally spaced points. The slices w and r hold the first four w_i and their ratios to the
// next four, and then the same for w′. Each group of four ratios is q times the previous group.
//
// Each sum has four fused partial sums, where term i goes to number i mod 4. Geometric adds the
// partial sums of both kinds, and then returns (s_0 + s_2) + (s_1 + s_3). It panics if a row is
// too short. Package expect calls it for the logit.
func Geometric(n int, w, r *[8]float64, q float64, table []float64, up,
	down int) (sums [3]float64) {
	wide := len(table) / 3
	if n < 0 || min(up, down) < 0 || max(up, down)+4*n > wide {
		panic("fma: a table is too short")
	}
	pathGeometric(n, w, r, q, table, wide, up, down, &sums)
	return sums
}

// geometric implements Geometric in Go.
func geometric(n int, w, r *[8]float64, q float64, table []float64, wide, up, down int,
	sums *[3]float64) {
	var s [3][8]float64
	a, b := *w, *r
	for ; n > 0; n, up, down = n-1, up+4, down+4 {
		for k := range s {
			t, u := (*[4]float64)(table[k*wide+up:]), (*[4]float64)(table[k*wide+down:])
			p := &s[k]
			p[0], p[1], p[2], p[3] = math.FMA(a[0], t[0], p[0]), math.FMA(a[1], t[1], p[1]),
				math.FMA(a[2], t[2], p[2]), math.FMA(a[3], t[3], p[3])
			p[4], p[5], p[6], p[7] = math.FMA(a[4], u[0], p[4]), math.FMA(a[5], u[1], p[5]),
				math.FMA(a[6], u[2], p[6]), math.FMA(a[7], u[3], p[7])
		}
		for i := range a {
			a[i] *= b[i]
			b[i] *= q
		}
	}
	for k := range s {
		p := &s[k]
		for i := range 4 {
			if k == 1 {
				p[i] -= p[4+i]
			} else {
				p[i] += p[4+i]
			}
		}
		sums[k] = (p[0] + p[2]) + (p[1] + p[3])
	}
}
