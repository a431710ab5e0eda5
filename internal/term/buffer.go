package term

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Buffer collects rows of a linear model with their terms. The rows are sparse if the first one
// is, or as Form specifies.
type Buffer struct {
	X                 design.Matrix
	Y, Offset, Weight []float64
	Form              Form
	sp                design.Rows
	plain             bool // no offset and no weight so far
}

// Form is how a Buffer keeps its rows.
type Form int

const (
	AsFirst Form = iota // as the first one comes
	AsDense
	AsSparse
)

// Reset gives up all rows, and makes t one of rows of d values.
func (t *Buffer) Reset(d int) {
	t.X = design.Matrix{Cols: d, Dense: t.X.Dense[:0]}
	t.sp.Cols, t.sp.Ind, t.sp.Val, t.sp.Ptr = d, t.sp.Ind[:0], t.sp.Val[:0], append(t.sp.Ptr[:0], 0)
	t.Y, t.Offset, t.Weight, t.plain = t.Y[:0], t.Offset[:0], t.Weight[:0], true
}

// Rows returns the number of rows.
func (t *Buffer) Rows() int { return len(t.Y) }

// Add appends a row of values val in the columns ind, in all of them if ind is nil, and a 1 for an
// intercept. A weight of 0 is 1.
func (t *Buffer) Add(ind []int, val []float64, y, offset, weight float64, intercept bool) {
	if len(t.Y) == 0 && (t.Form == AsSparse || t.Form == AsFirst && ind != nil) {
		t.X.Sparse = &t.sp
	}
	d := t.X.Cols
	if t.X.Sparse != nil {
		for k, v := range val {
			if v == 0 {
				continue
			}
			k = dense.Index(ind, k)
			t.sp.Ind, t.sp.Val = append(t.sp.Ind, int32(k)), append(t.sp.Val, v)
		}
		if intercept {
			t.sp.Ind, t.sp.Val = append(t.sp.Ind, int32(d-1)), append(t.sp.Val, 1)
		}
		t.sp.Ptr = append(t.sp.Ptr, len(t.sp.Ind))
	} else {
		lo := len(t.X.Dense)
		t.X.Dense = slices.Grow(t.X.Dense, d)[:lo+d]
		x := t.X.Dense[lo:]
		if ind == nil {
			copy(x, val)
		} else {
			clear(x)
			for k, j := range ind {
				x[j] = val[k]
			}
		}
		if intercept {
			x[d-1] = 1
		}
	}
	if weight == 0 {
		weight = 1
	}
	t.Y, t.Offset, t.Weight = append(t.Y, y), append(t.Offset, offset), append(t.Weight, weight)
	t.plain = t.plain && offset == 0 && weight == 1
}

// CopyRow appends row i of o.
func (t *Buffer) CopyRow(o *Buffer, i int) {
	if len(t.Y) == 0 && o.X.Sparse != nil {
		t.X.Sparse = &t.sp
	}
	ind, val := o.X.Row(i)
	switch {
	case t.X.Sparse == nil:
		lo, d := len(t.X.Dense), t.X.Cols
		t.X.Dense = slices.Grow(t.X.Dense, d)[:lo+d]
		o.X.Dense1(t.X.Dense[lo:], i)
	case o.X.Sparse != nil:
		t.sp.Ind, t.sp.Val = append(t.sp.Ind, ind...), append(t.sp.Val, val...)
		t.sp.Ptr = append(t.sp.Ptr, len(t.sp.Ind))
	default:
		for j, v := range val {
			if v != 0 {
				t.sp.Ind, t.sp.Val = append(t.sp.Ind, int32(j)), append(t.sp.Val, v)
			}
		}
		t.sp.Ptr = append(t.sp.Ptr, len(t.sp.Ind))
	}
	t.Y, t.Offset = append(t.Y, o.Y[i]), append(t.Offset, o.Offset[i])
	t.Weight = append(t.Weight, o.Weight[i])
	t.plain = t.plain && o.Offset[i] == 0 && o.Weight[i] == 1
}

// MoveRow moves row i to place n ≤ i. The caller gives up the row at n and all rows after it
// except i.
func (t *Buffer) MoveRow(n, i int) {
	t.Y[n], t.Offset[n], t.Weight[n] = t.Y[i], t.Offset[i], t.Weight[i]
	if t.X.Sparse == nil {
		d := t.X.Cols
		copy(t.X.Dense[n*d:(n+1)*d], t.X.Dense[i*d:(i+1)*d])
		return
	}
	lo, hi, at := t.sp.Ptr[i], t.sp.Ptr[i+1], t.sp.Ptr[n]
	copy(t.sp.Val[at:], t.sp.Val[lo:hi])
	copy(t.sp.Ind[at:], t.sp.Ind[lo:hi])
	t.sp.Ptr[n+1] = at + hi - lo
}

// Truncate gives up all rows but the first n.
func (t *Buffer) Truncate(n int) {
	t.Y, t.Offset, t.Weight = t.Y[:n], t.Offset[:n], t.Weight[:n]
	if t.X.Sparse == nil {
		t.X.Dense = t.X.Dense[:n*t.X.Cols]
		return
	}
	t.sp.Ptr = t.sp.Ptr[:n+1]
	t.sp.Ind, t.sp.Val = t.sp.Ind[:t.sp.Ptr[n]], t.sp.Val[:t.sp.Ptr[n]]
}

// Clone returns a copy.
func (t *Buffer) Clone() Buffer {
	c := Buffer{plain: t.plain}
	c.X = design.Matrix{Rows: t.X.Rows, Cols: t.X.Cols, Dense: slices.Clone(t.X.Dense)}
	c.sp = design.Rows{Cols: t.sp.Cols, Ptr: slices.Clone(t.sp.Ptr),
		Ind: slices.Clone(t.sp.Ind), Val: slices.Clone(t.sp.Val)}
	c.Y, c.Offset, c.Weight = slices.Clone(t.Y), slices.Clone(t.Offset), slices.Clone(t.Weight)
	if t.X.Sparse != nil {
		c.X.Sparse = &c.sp
	}
	return c
}

// Design returns the rows, valid until the next change.
func (t *Buffer) Design() *design.Matrix {
	t.X.Rows = len(t.Y)
	return &t.X
}

// SetUnit notes whether all values of rows that are sparse are 1.
func (t *Buffer) SetUnit() {
	if t.X.Sparse != nil {
		t.X.Unit = !slices.ContainsFunc(t.sp.Val, func(v float64) bool { return v != 1 })
	}
}

// Save returns the rows as they are saved.
func (t *Buffer) Save() SavedBuffer {
	return SavedBuffer{t.Design().Save(), t.Y, t.Offset, t.Weight}
}

// Terms returns the terms of the rows. first is the number, in the stream, of the first row.
func (t *Buffer) Terms(lik Likelihood, first int) *Terms {
	r := &Terms{Lik: lik, Y: t.Y, First: first}
	if !t.plain {
		r.Offset, r.Weight = t.Offset, t.Weight
	}
	return r
}

// SavedBuffer is a Buffer.
type SavedBuffer struct {
	design.SavedRows
	Y      save.List[float64] `json:"y"`
	Offset save.List[float64] `json:"offset"`
	Weight save.List[float64] `json:"weight"`
}

// Load takes over saved rows, of responses that pass the check.
func (t *Buffer) Load(s *SavedBuffer, check func(y float64) error) error {
	n, d := len(s.Y), t.X.Cols
	if len(s.Offset) != n || len(s.Weight) != n {
		return fmt.Errorf("%d rows with %d offsets and %d weights: %w",
			n, len(s.Offset), len(s.Weight), sentinel.ErrShape)
	}
	x, err := s.SavedRows.Load(n, d)
	if err != nil {
		return err
	}
	for i, y := range s.Y {
		if err := check(y); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		if w := s.Weight[i]; !(w > 0) {
			return fmt.Errorf("row %d has weight %v: %w", i, w, sentinel.ErrParam)
		}
		t.plain = t.plain && s.Offset[i] == 0 && s.Weight[i] == 1
	}
	t.Y, t.Offset, t.Weight = s.Y, s.Offset, s.Weight
	if x.Sparse != nil {
		t.sp = *x.Sparse
		t.X.Sparse = &t.sp
		return nil
	}
	t.X.Dense = x.Dense
	return nil
}

// NewBuffer returns a buffer for rows of d values.
func NewBuffer(d int) *Buffer {
	t := &Buffer{}
	t.Reset(d)
	return t
}

// CopyOf returns a Buffer of copies of rows of d values; nil offset and weight mean 0 and 1.
func CopyOf(x *design.Matrix, y, offset, weight []float64, d int) *Buffer {
	n := len(y)
	all := &Buffer{X: *x, Y: y, Offset: offset, Weight: weight}
	if offset == nil {
		all.Offset = make([]float64, n)
	}
	if weight == nil {
		all.Weight = slices.Repeat([]float64{1}, n)
	}
	t := NewBuffer(d)
	for i := range n {
		t.CopyRow(all, i)
	}
	return t
}

// Without returns a copy of the rows of t without the rows of gone. found is false if t lacks one
// of them.
func (t *Buffer) Without(gone *Buffer) (rest *Buffer, found bool) {
	t.Design()
	gone.Design()
	seed := maphash.MakeSeed()
	where := make(map[uint64][]int)
	var key, other []byte
	for i := range t.Rows() {
		key = t.key(key[:0], i)
		h := maphash.Bytes(seed, key)
		where[h] = append(where[h], i)
	}
	out := make([]bool, t.Rows())
	for i := range gone.Rows() {
		key = gone.key(key[:0], i)
		at := where[maphash.Bytes(seed, key)]
		k := slices.IndexFunc(at, func(j int) bool {
			other = t.key(other[:0], j)
			return !out[j] && bytes.Equal(key, other) && sameOffset(t.Offset[j], gone.Offset[i])
		})
		if k < 0 {
			return nil, false
		}
		out[at[k]] = true
	}
	rest = NewBuffer(t.X.Cols)
	for i, o := range out {
		if !o {
			rest.CopyRow(t, i)
		}
	}
	return rest, true
}

// key appends the content of row i of t, except its offset.
func (t *Buffer) key(dst []byte, i int) []byte {
	number := func(x float64) {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(x+0)) // −0 is 0
	}
	ind, val := t.X.Row(i)
	for k, v := range val {
		if v == 0 {
			continue
		}
		j := dense.Index(ind, k)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(j))
		number(v)
	}
	number(t.Y[i])
	number(t.Weight[i])
	return dst
}

// sameOffset reports whether two offsets differ by rounding alone.
func sameOffset(a, b float64) bool {
	return math.Abs(a-b) <= 1e-12*max(math.Abs(a), math.Abs(b))
}
