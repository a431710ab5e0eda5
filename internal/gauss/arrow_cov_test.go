package gauss

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"gonum.org/v1/gonum/floats"
)

// crossedArrow returns the Arrow of random rows with an intercept, a number and two crossed factors of
// the given numbers of levels, and the rows. Level 0 of the first factor meets every level of the other.
func crossedArrow(t *testing.T, n, a, b int) (*Arrow, *design.Matrix) {
	rng := rand.New(rand.NewPCG(1, 2))
	prior := &Prior{Mean: make([]float64, 2+a+b), Prec: make([]float64, 2+a+b)}
	prior.Prec[0], prior.Prec[1] = 0.01, 0.1
	prior.SetBlock(Block{First: 2, Levels: a, Q: 1, L: []float64{0.8}})
	prior.SetBlock(Block{First: 2 + a, Levels: b, Q: 1, L: []float64{0.5}})
	x := &design.Rows{Ptr: []int{0}}
	levels := make([][2]int, n)
	for i := range n {
		g, h := rng.IntN(a), rng.IntN(b)
		if i < b {
			g, h = 0, i
		}
		levels[i] = [2]int{g, h}
		x.Ind = append(x.Ind, 0, 1, int32(2+g), int32(2+a+h))
		x.Val = append(x.Val, 1, rng.NormFloat64(), 1, 1)
		x.Ptr = append(x.Ptr, len(x.Ind))
	}
	c := &Arrow{ArrowShape: NewArrowShape(prior), L: [][]float64{{0.8}, {0.5}}}
	c.Pat = make([][]int32, a)
	for _, l := range levels {
		c.Pat[l[0]] = append(c.Pat[l[0]], int32(2+l[1]))
	}
	for g := range c.Pat {
		slices.Sort(c.Pat[g])
		c.Pat[g] = slices.Compact(c.Pat[g])
	}
	c.SetPtr()
	m := len(c.Border)
	c.Sums = Sums{make([]float64, m*m), make([]float64, c.Ptr[a]), make([]float64, a)}
	for i, l := range levels {
		z, h := x.Val[4*i+1], 2+l[1]
		k, _ := slices.BinarySearch(c.Pat[l[0]], int32(h))
		for _, add := range []struct {
			to []float64
			at int
			x  float64
		}{{c.Sums.A, 0, 1}, {c.Sums.A, m, z}, {c.Sums.A, m + 1, z * z}, {c.Sums.A, h * m, 1},
			{c.Sums.A, h*m + 1, z}, {c.Sums.A, h*m + h, 1}, {c.Sums.B, c.Ptr[l[0]], 1},
			{c.Sums.B, c.Ptr[l[0]] + 1, z}, {c.Sums.B, c.Ptr[l[0]] + 2 + k, 1}, {c.Sums.D, l[0], 1}} {
			add.to[add.at] += 0.25 * add.x
		}
	}
	if !c.Factor(nil) {
		t.Fatal("not positive definite")
	}
	return c, &design.Matrix{Rows: n, Cols: 2 + a + b, Sparse: x}
}

// TestArrowVariances compares the variances of rows with the products of the rows with the covariance.
// The bits do not depend on the other rows, their order, or the number of processors.
func TestArrowVariances(t *testing.T) {
	const n = 6000
	c, x := crossedArrow(t, n, 620, mostNear+40)
	one := make([]float64, n)
	row, product := make([]float64, x.Cols), make([]float64, x.Cols)
	for i := range n {
		c.Variances(one[i:i+1], x, []int{i})
		if i%37 != 0 {
			continue
		}
		x.Dense1(row, i)
		c.Mul(product, row)
		if want := floats.Dot(row, product); math.Abs(one[i]-want) > 1e-12*want {
			t.Errorf("row %d: variance %v, want %v", i, one[i], want)
		}
	}
	backward := make([]int, n)
	for i := range backward {
		backward[i] = n - 1 - i
	}
	for _, procs := range []int{1, 2, 7} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		all, turned := make([]float64, n), make([]float64, n)
		c.Variances(all, x, nil)
		c.Variances(turned, x, backward)
		for i, want := range one {
			if all[i] != want || turned[n-1-i] != want {
				t.Fatalf("%d processors, row %d: variances %v and %v, want %v", procs, i, all[i],
					turned[n-1-i], want)
			}
		}
	}
}
