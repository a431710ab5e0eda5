package design

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// coreRows returns rows that have most of the common columns and one or two of the few other
// columns. The common columns lie on both sides of the others.
func coreRows(rng *rand.Rand, rows, common, few int) *Rows {
	s := &Rows{Cols: common + few, Ptr: []int{0}}
	for range rows {
		first := rng.IntN(few)
		second := first + rng.IntN(few-first)
		for j := range s.Cols {
			other := j - common/2
			if other < 0 || other >= few {
				if rng.IntN(10) == 0 {
					continue
				}
			} else if other != first && other != second {
				continue
			}
			s.Ind, s.Val = append(s.Ind, int32(j)), append(s.Val, rng.NormFloat64())
		}
		s.Ptr = append(s.Ptr, len(s.Ind))
	}
	return s
}

// dense returns the same matrix without zeros left out.
func (g *Matrix) dense() *Matrix {
	x := &Matrix{Rows: g.Rows, Cols: g.Cols, Dense: make([]float64, g.Rows*g.Cols)}
	for i := range g.Rows {
		g.Dense1(x.Dense[i*g.Cols:(i+1)*g.Cols], i)
	}
	return x
}

// TestCore compares the products of rows with a core, in order and at an index, with the products
// of a dense matrix. Their bits must not depend on the number of goroutines.
func TestCore(t *testing.T) {
	t.Parallel()
	const rows, common, few, draws = 9000, 12, 30, 5
	rng := rand.New(rand.NewPCG(3, 4))
	g := NewSparse(coreRows(rng, rows, common, few))
	if g.core == nil || len(g.core.cols) != common {
		t.Fatalf("the core is %+v", g.core)
	}
	x, d := g.dense(), g.Cols
	weight := make([]float64, rows)
	for i := range weight {
		weight[i] = max(-1, rng.NormFloat64()) // some of −1
	}
	v, l := make([]float64, d*d), make([]float64, d*d)
	x.AddGram(v, slices.Repeat([]float64{1}, rows), nil, new(Work))
	copy(l, v)
	if !dense.Cholesky(l, d) {
		t.Fatal("no factor")
	}
	inv := slices.Clone(l)
	dense.InvertLower(nil, inv, d)
	dense.SquareLower(nil, inv, d)
	w := make([]float64, draws*d)
	for i := range w {
		w[i] = rng.NormFloat64()
	}
	for _, index := range [][]int{nil, rng.Perm(rows)} {
		gram, variances := make([]float64, d*d), make([]float64, rows)
		x.AddGram(gram, weight, index, new(Work))
		x.Variances(variances, l, nil, index, new(Work))
		var bits [2][]float64
		for workers := 1; workers <= 3; workers++ {
			var h parallel.Halt
			h.Lend(workers)
			s, p, u := &Work{Halt: &h}, make([]float64, d*d), make([]float64, rows)
			g.AddGram(p, weight, index, s)
			g.Variances(u, l, inv, index, s)
			if workers == 1 {
				bits = [2][]float64{p, u}
			}
			if !slices.Equal(p, bits[0]) || !slices.Equal(u, bits[1]) {
				t.Errorf("%d goroutines have other bits than one", workers)
			}
		}
		for i := range d {
			for j := range i + 1 {
				if a, b := bits[0][i*d+j], gram[i*d+j]; !(math.Abs(a-b) <= 1e-9) {
					t.Fatalf("XᵀWX has %v at (%d, %d), want %v", a, i, j, b)
				}
			}
		}
		if !floats.EqualApprox(bits[1], variances, 1e-12) {
			t.Error("variances differ from those of a dense matrix")
		}
	}
	got, want := make([]float64, draws*400), make([]float64, draws*400)
	g.MulRows(got, w, 100, 500, new(Work))
	x.MulRows(want, w, 100, 500, new(Work))
	if !floats.EqualApprox(got, want, 1e-12) {
		t.Error("products differ from those of a dense matrix")
	}
}

// TestCoreCanceled checks the variances of rows whose predictors are known far better than their
// weights. Sums over V would have no correct digit.
func TestCoreCanceled(t *testing.T) {
	t.Parallel()
	const rows, common, few, ratio = 600, 10, 20, 0.7
	rng := rand.New(rand.NewPCG(5, 6))
	s := coreRows(rng, rows, common, few)
	for k, j := range s.Ind { // nearly multiples of each other
		if j == 1 && k > 0 && s.Ind[k-1] == 0 {
			s.Val[k] = ratio * s.Val[k-1] * (1 + 1e-7*rng.Float64())
		}
	}
	g := NewSparse(s)
	x, d := g.dense(), g.Cols
	l := make([]float64, d*d)
	for i := range d {
		l[i*d+i] = 1e3
	}
	l[0], l[d], l[d+1] = 1e6, ratio*1e6, 1e-6 // only one sum of two weights is known
	inv := slices.Clone(l)
	dense.InvertLower(nil, inv, d)
	dense.SquareLower(nil, inv, d)
	got, want := make([]float64, rows), make([]float64, rows)
	g.Variances(got, l, inv, nil, new(Work))
	x.Variances(want, l, nil, nil, new(Work))
	for i, v := range got {
		if !(math.Abs(v-want[i]) <= 1e-6*want[i]) {
			t.Fatalf("the variance of row %d is %v, want %v", i, v, want[i])
		}
	}
}

// TestNoCore checks that few rows, few common columns, very many or only ones have no core.
func TestNoCore(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	for _, c := range []struct{ rows, common, few int }{
		{rows: Chunk - 1, common: 12, few: 30},
		{rows: 1000, common: leastCore - 1, few: 300},
		{rows: 1000, common: mostCore + 1, few: 30},
	} {
		if g := NewSparse(coreRows(rng, c.rows, c.common, c.few)); g.core != nil {
			t.Errorf("%+v: the core has columns %v", c, g.core.cols)
		}
	}
	ones := coreRows(rng, 1000, 12, 30)
	for k := range ones.Val {
		ones.Val[k] = 1
	}
	if g := NewSparse(ones); !g.Unit || g.core != nil {
		t.Errorf("ones: Unit is %t, and the core is %+v", g.Unit, g.core)
	}
}
