package design

import "sync"

// This file holds sparse rows with an intercept, which is a last column of ones. A copy of the rows
// with this column takes more memory than the rows themselves, so WithOnes makes no copy. The base
// of mixed models reads each row once, by RowIn, and keeps its own form of the rows. Other models
// need products, and the first product makes the copy (stored).

// onesColumn is the last column of some Rows, whose other columns are rest.
type onesColumn struct {
	rest *Rows
	once sync.Once
	all  *Rows // the rows with the column, once they are needed
}

// WithOnes returns the present rows of s. If intercept is set, they have a last column of ones.
func (s *Rows) WithOnes(intercept bool) *Rows {
	t := &Rows{Cols: s.Cols, Ptr: s.Ptr, Ind: s.Ind, Val: s.Val, ones: s.ones}
	if len(t.Ptr) == 0 && t.ones == nil {
		t.Ptr = []int{0}
	}
	if intercept {
		t = &Rows{Cols: s.Cols + 1, ones: &onesColumn{rest: t.stored()}}
	}
	return t
}

// stored returns s with all columns in Ptr, Ind and Val. Goroutines may call it at the same time.
func (s *Rows) stored() *Rows {
	o := s.ones
	if o == nil {
		return s
	}
	o.once.Do(func() {
		rows, n := o.rest.Rows(), s.Values()
		t := &Rows{Cols: s.Cols, Ptr: make([]int, 1, rows+1), Ind: make([]int32, 0, n),
			Val: make([]float64, 0, n)}
		for i := range rows {
			ind, val := o.rest.Row(i)
			t.Ind, t.Val = append(append(t.Ind, ind...), int32(o.rest.Cols)),
				append(append(t.Val, val...), 1)
			t.Ptr = append(t.Ptr, len(t.Ind))
		}
		o.all = t
	})
	return o.all
}

// Values returns the number of values of all rows.
func (s *Rows) Values() int {
	if s.ones != nil {
		return len(s.ones.rest.Ind) + s.ones.rest.Rows()
	}
	return len(s.Ind)
}

// RowBuffer is scratch memory for RowIn. The zero value is ready to use.
type RowBuffer struct {
	ind []int32
	val []float64
}

// RowIn is Row for callers that only read rows and need no products. It makes no copy of all rows, but
// may store the row in b, and the result is then valid until the next call with b.
func (g *Matrix) RowIn(b *RowBuffer, i int) (ind []int32, val []float64) {
	if g.Sparse == nil || g.Sparse.ones == nil {
		return g.Row(i)
	}
	rest := g.Sparse.ones.rest
	ind, val = rest.Row(i)
	b.ind = append(append(b.ind[:0], ind...), int32(rest.Cols))
	b.val = append(append(b.val[:0], val...), 1)
	return b.ind, b.val
}

// addMulTOnce is AddMulT for all rows. It has the same bits, and makes no copy of them.
func (g *Matrix) addMulTOnce(dst, u []float64) {
	if g.Sparse == nil || g.Sparse.ones == nil {
		g.AddMulT(dst, u, nil)
		return
	}
	rest := g.Sparse.ones.rest
	part := Matrix{Rows: g.Rows, Cols: rest.Cols, Sparse: rest, Unit: g.Unit}
	part.AddMulT(dst[:rest.Cols], u, nil)
	for _, x := range u {
		dst[rest.Cols] += x
	}
}
