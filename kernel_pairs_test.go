package pgsvi

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// Covariances, their derivatives and the products of these are the same with the distances of the rows kept, for every kernel and for lengths
// far below and above them, among rows that are equal, all but equal, or far from the origin.
func TestRowPairs(t *testing.T) {
	t.Parallel()
	n := 70
	for _, d := range []int{6, 1, 40}[:shorter(3, 1)] {
		x := kernelPoints(90, n, d, 1)
		copy(x.RawRowView(3), x.RawRowView(1))
		copy(x.RawRowView(69), x.RawRowView(1))
		x.Set(69, 0, x.At(69, 0)+1e-7)
		for i := range n {
			x.Set(i, 0, x.At(i, 0)+1e3*float64(i%2))
		}
		rng := testRand(92)
		s := &siteWeights{n: n, w: make([]float64, n*n), a: make([]float64, n)}
		w := mat.NewSymDense(n, nil)
		for i := range n {
			s.a[i] = rng.NormFloat64()
			for j := range i + 1 {
				s.w[i*n+j] = rng.NormFloat64()
				w.SetSym(i, j, 0.5*(s.w[i*n+j]-s.a[i]*s.a[j]))
			}
		}
		pairs, plain := pairsOf(x), &rowPairs{x: x}
		if pairs.r2[3*n+1] != 0 || pairs.r2[69*n+1] == 0 || pairs.r2[69*n+1] != pairs.r2[n+69] {
			t.Errorf("D=%d: distances of equal rows and of near ones are %v, %v and %v", d, pairs.r2[3*n+1], pairs.r2[69*n+1], pairs.r2[n+69])
		}
		cases := kernelCases(d)
		for _, l := range []float64{1e-8, 1e-2, 30, 1e5} {
			cases = append(cases, kernelCase{name: "short or long", k: SquaredExp{Length: l}}, kernelCase{name: "rough", k: Matern12{Length: l}})
		}
		for _, c := range cases {
			want, got := Gram(nil, c.k, x), make([]float64, n*n)
			pairs.gram(nil, got, c.k)
			for i, v := range got {
				if k := want.At(i/n, i%n); math.Abs(v-k) > 1e-11*math.Sqrt(want.At(i/n, i/n)*want.At(i%n, i%n)) {
					t.Fatalf("%s, D=%d: covariance %d, %d is %v, want %v", c.name, d, i/n, i%n, v, k)
				}
			}
			np, size := numParams(c.k), 1.0
			grad, all := GramGrad(nil, c.k, x, w), pairs.slopes(nil, c.k, s)
			u, kept := gramGradMul(nil, nil, c.k, plain, s.a), gramGradMul(nil, nil, c.k, pairs, s.a)
			for _, v := range u {
				size = max(size, math.Abs(v))
			}
			for p := range np {
				if math.Abs(grad[p]-all[p]) > 1e-9*(size*float64(n)+math.Abs(grad[p])) {
					t.Errorf("%s, D=%d: derivative %d is %v, want %v", c.name, d, p, all[p], grad[p])
				}
			}
			for i, v := range kept {
				if math.Abs(v-u[i]) > 1e-9*size {
					t.Fatalf("%s, D=%d: product %d of parameter %d is %v, want %v", c.name, d, i/np, i%np, v, u[i])
				}
			}
		}
	}
	if p := pairsOf(mat.NewDense(2, 1, []float64{-1e200, 1e200})); p.r2 != nil {
		t.Errorf("distances that overflow are kept: %v", p.r2)
	}
}
