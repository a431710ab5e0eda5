package fma

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sparseRows returns rows with the given numbers of elements and cols columns, whose values are
// random or ones.
func sparseRows(rng *rand.Rand, cols int, counts []int, ones bool) *Sparse {
	s := &Sparse{Cols: cols, Ptr: []int{0}}
	for _, n := range counts {
		at := rng.Perm(cols)[:n]
		in := make([]bool, cols)
		for _, j := range at {
			in[j] = true
		}
		for j, in := range in {
			if in {
				s.Ind, s.Val = append(s.Ind, int32(j)), append(s.Val, rng.NormFloat64())
			}
		}
		s.Ptr = append(s.Ptr, len(s.Ind))
	}
	if ones {
		s.Val = nil
	}
	return s
}

// TestSparse compares products with sparse rows with the same dense rows and with the definition
// of the sums. On each path, rows of ones must have the same bits as values of 1.
func TestSparse(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	draw := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		return x
	}
	for _, ones := range []bool{false, true} {
		counts := make([]int, 80)
		for i := range counts {
			counts[i] = i % 40 // all lengths, with an empty row first and another one later
		}
		const cols = 53
		x := sparseRows(rng, cols, counts, ones)
		withOnes := *x
		if ones {
			withOnes.Val = make([]float64, len(x.Ind))
			for i := range withOnes.Val {
				withOnes.Val[i] = 1
			}
		}
		w, u, a, y := draw(cols), draw(len(counts)), draw(cols*cols), draw(cols)
		u[3], u[7] = 0, math.Copysign(0, -1)
		for i := range a {
			if i%cols > i/cols {
				a[i] = math.NaN() // the other triangle
			}
		}
		type results struct{ mul, mulT, quad, diag, outer []float64 }
		compute := func(x *Sparse) (r results) {
			n := len(counts)
			r.mul, r.quad, r.diag = make([]float64, n), make([]float64, n), make([]float64, n)
			x.Mul(r.mul[:n-3], w, 0)
			for i := n - 3; i < n; i++ {
				x.Mul(r.mul[i:i+1], w, i)
			}
			r.mulT, r.outer = append(r.mulT, y...), append(r.outer, a...)
			x.AddMulT(r.mulT, u[:9], 0)
			x.AddMulT(r.mulT, u[9:], 9)
			for i := range n {
				r.quad[i], r.diag[i] = x.Quad(a, i)
				x.AddOuter(r.outer, u[i], i)
			}
			return r
		}
		undo := force("Go")
		want := compute(&withOnes)
		undo()
		paths(t, func(t *testing.T) {
			for _, x := range []*Sparse{x, &withOnes} {
				got := compute(x)
				same(t, "mul", got.mul, want.mul)
				same(t, "mulT", got.mulT, want.mulT)
				same(t, "quad", got.quad, want.quad)
				same(t, "diag", got.diag, want.diag)
				same(t, "outer", got.outer, want.outer)
			}
		})

		// Dense rows must give the same results.
		sum, outer := append([]float64(nil), y...), append([]float64(nil), a...)
		for i, n := range counts {
			row := make([]float64, cols)
			for k := x.Ptr[i]; k < x.Ptr[i]+n; k++ {
				row[x.Ind[k]] = x.at(k)
			}
			var mul, quad, diag float64
			for j, xj := range row {
				mul += xj * w[j]
				sum[j] += u[i] * xj
				for k := range j + 1 {
					both := row[j] * row[k]
					outer[j*cols+k] += u[i] * both
					if k < j {
						quad += 2 * both * a[j*cols+k]
					} else {
						diag += both * a[j*cols+k]
					}
				}
			}
			for _, c := range [][2]float64{{want.mul[i], mul}, {want.quad[i], quad + diag},
				{want.diag[i], diag}} {
				if !(math.Abs(c[0]-c[1]) <= 1e-12*(1+math.Abs(c[1]))) {
					t.Fatalf("row %d: %v, want %v", i, c[0], c[1])
				}
			}
		}
		for j := range cols {
			if !(math.Abs(sum[j]-want.mulT[j]) <= 1e-12*(1+math.Abs(sum[j]))) {
				t.Fatalf("column %d: %v, want %v", j, want.mulT[j], sum[j])
			}
			for k := range j + 1 {
				if g := outer[j*cols+k]; !(math.Abs(g-want.outer[j*cols+k]) <= 1e-12*(1+math.Abs(g))) {
					t.Fatalf("element %d, %d: %v, want %v", j, k, want.outer[j*cols+k], g)
				}
			}
		}
	}
}
