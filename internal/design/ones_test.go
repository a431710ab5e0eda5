package design

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// onesRows returns n rows of d columns, without and with a last column of ones that is stored. Some rows
// are empty.
func onesRows(n, d int, unit bool) (rest, all *Rows) {
	rng := rand.New(rand.NewPCG(3, 4))
	rest, all = &Rows{Cols: d, Ptr: []int{0}}, &Rows{Cols: d + 1, Ptr: []int{0}}
	for i := range n {
		for j := range d {
			if i%7 == 3 || j > 9 && rng.IntN(4) > 0 {
				continue
			}
			v := 1.0
			if !unit {
				v = rng.NormFloat64()
			}
			rest.Ind, rest.Val = append(rest.Ind, int32(j)), append(rest.Val, v)
			all.Ind, all.Val = append(all.Ind, int32(j)), append(all.Val, v)
		}
		all.Ind, all.Val = append(all.Ind, int32(d)), append(all.Val, 1)
		rest.Ptr, all.Ptr = append(rest.Ptr, len(rest.Ind)), append(all.Ptr, len(all.Ind))
	}
	return rest, all
}

// TestWithOnes compares rows with a column of ones that is not stored with rows that store it. Only a
// product may copy the rows, and rows that are appended later must not count.
func TestWithOnes(t *testing.T) {
	for _, unit := range []bool{false, true} {
		const n, d = 3000, 14
		rest, all := onesRows(n, d, unit)
		x, want := NewSparse(rest.WithOnes(true)), NewSparse(all)
		rest.Ind, rest.Val = append(rest.Ind, 2), append(rest.Val, 5)
		rest.Ptr = append(rest.Ptr, len(rest.Ind))

		if x.Rows != n || x.Cols != d+1 || x.Sparse.Rows() != n || x.Unit != unit ||
			x.PerRow() != want.PerRow() || x.Sparse.Values() != len(all.Ind) {
			t.Fatalf("%d×%d, unit %v, %d values per row", x.Rows, x.Cols, x.Unit, x.PerRow())
		}
		if unit != (x.core == nil) || !unit && !slices.Equal(x.core.cols, want.core.cols) {
			t.Error("the core differs")
		}
		weights := make([]float64, n)
		for i := range weights {
			weights[i] = float64(i % 5)
		}
		for _, w := range [][]float64{nil, weights} {
			if a, b := x.Means(w), want.Means(w); !slices.Equal(a, b) {
				t.Errorf("means %v, want %v", a, b)
			}
			v, reach := x.ColumnSpreads(w)
			if v2, reach2 := want.ColumnSpreads(w); !slices.Equal(v, v2) || !slices.Equal(reach, reach2) {
				t.Errorf("variances %v, want %v", v, v2)
			}
		}
		lo, hi := x.Ranges(3)
		if lo2, hi2 := want.Ranges(3); !slices.Equal(lo, lo2) || !slices.Equal(hi, hi2) {
			t.Errorf("ranges %v to %v, want %v to %v", lo, hi, lo2, hi2)
		}
		var b RowBuffer
		for i := range n {
			ind, val := x.RowIn(&b, i)
			if ind2, val2 := want.Row(i); !slices.Equal(ind, ind2) || !slices.Equal(val, val2) {
				t.Fatalf("row %d is %v %v, want %v %v", i, ind, val, ind2, val2)
			}
		}
		if x.Sparse.ones.all != nil {
			t.Error("reading the rows copied them")
		}

		twice := x.Sparse.WithOnes(true)
		var each sync.WaitGroup
		for range 4 {
			each.Go(func() {
				product := make([]float64, n)
				x.Mul(product, want.Means(nil), nil)
				expect := make([]float64, n)
				if want.Mul(expect, want.Means(nil), nil); !slices.Equal(product, expect) {
					t.Error("a product differs")
				}
			})
		}
		each.Wait()
		if s := x.Sparse.stored(); !slices.Equal(s.Ptr, all.Ptr) || !slices.Equal(s.Ind, all.Ind) ||
			!slices.Equal(s.Val, all.Val) || !s.valid(n) {
			t.Error("the stored rows differ")
		}
		saved := x.Save()
		if loaded, err := saved.Load(n, d+1); err != nil || !slices.Equal(loaded.Sparse.Val, all.Val) {
			t.Errorf("loaded %v", err)
		}
		if ind, val := twice.Row(0); ind[len(ind)-1] != d+1 || val[len(ind)-2] != 1 {
			t.Errorf("two columns of ones give %v %v", ind, val)
		}
	}
	if none := NewSparse((&Rows{Cols: 2}).WithOnes(true)); none.Rows != 0 || none.Cols != 3 ||
		none.PerRow() != 0 || len(none.Means(nil)) != 3 || none.Save().Ptr == nil {
		t.Error("a matrix without rows")
	}
}
