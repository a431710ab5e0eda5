package pgsvi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
)

// rowBuffer collects rows. They are sparse if the first one is, or as form says.
type rowBuffer struct {
	x                 design.Matrix
	sp                design.Rows
	y, offset, weight []float64
	plain             bool // no offset and no weight so far
	form              rowForm
}

// rowForm is how a rowBuffer keeps its rows.
type rowForm int

const (
	asFirst rowForm = iota // as the first one comes
	asDense
	asSparse
)

func (t *rowBuffer) reset(d int) {
	t.x = design.Matrix{Cols: d, Dense: t.x.Dense[:0]}
	t.sp.Cols, t.sp.Ind, t.sp.Val, t.sp.Ptr = d, t.sp.Ind[:0], t.sp.Val[:0], append(t.sp.Ptr[:0], 0)
	t.y, t.offset, t.weight, t.plain = t.y[:0], t.offset[:0], t.weight[:0], true
}

func (t *rowBuffer) rows() int { return len(t.y) }

func (t *rowBuffer) add(row Row, intercept bool) {
	if len(t.y) == 0 && (t.form == asSparse || t.form == asFirst && row.Ind != nil) {
		t.x.Sparse = &t.sp
	}
	d := t.x.Cols
	if t.x.Sparse != nil {
		for k, v := range row.Val {
			if v != 0 {
				t.sp.Ind, t.sp.Val = append(t.sp.Ind, int32(columnOf(row.Ind, k))), append(t.sp.Val, v)
			}
		}
		if intercept {
			t.sp.Ind, t.sp.Val = append(t.sp.Ind, int32(d-1)), append(t.sp.Val, 1)
		}
		t.sp.Ptr = append(t.sp.Ptr, len(t.sp.Ind))
	} else {
		lo := len(t.x.Dense)
		t.x.Dense = slices.Grow(t.x.Dense, d)[:lo+d]
		x := t.x.Dense[lo:]
		if row.Ind == nil {
			copy(x, row.Val)
		} else {
			clear(x)
			for k, j := range row.Ind {
				x[j] = row.Val[k]
			}
		}
		if intercept {
			x[d-1] = 1
		}
	}
	w := row.Weight
	if w == 0 {
		w = 1
	}
	t.y, t.offset, t.weight = append(t.y, row.Y), append(t.offset, row.Offset), append(t.weight, w)
	t.plain = t.plain && row.Offset == 0 && w == 1
}

// copyRow appends row i of o.
func (t *rowBuffer) copyRow(o *rowBuffer, i int) {
	if len(t.y) == 0 && o.x.Sparse != nil {
		t.x.Sparse = &t.sp
	}
	ind, val := o.x.Row(i)
	switch {
	case t.x.Sparse == nil:
		lo, d := len(t.x.Dense), t.x.Cols
		t.x.Dense = slices.Grow(t.x.Dense, d)[:lo+d]
		o.x.Dense1(t.x.Dense[lo:], i)
	case o.x.Sparse != nil:
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
	t.y, t.offset, t.weight = append(t.y, o.y[i]), append(t.offset, o.offset[i]), append(t.weight, o.weight[i])
	t.plain = t.plain && o.offset[i] == 0 && o.weight[i] == 1
}

// moveRow moves row i to place n ≤ i, whose row is given up, as are those after it but for i.
func (t *rowBuffer) moveRow(n, i int) {
	t.y[n], t.offset[n], t.weight[n] = t.y[i], t.offset[i], t.weight[i]
	if t.x.Sparse == nil {
		d := t.x.Cols
		copy(t.x.Dense[n*d:(n+1)*d], t.x.Dense[i*d:(i+1)*d])
		return
	}
	lo, hi, at := t.sp.Ptr[i], t.sp.Ptr[i+1], t.sp.Ptr[n]
	copy(t.sp.Val[at:], t.sp.Val[lo:hi])
	copy(t.sp.Ind[at:], t.sp.Ind[lo:hi])
	t.sp.Ptr[n+1] = at + hi - lo
}

// truncate gives up all rows but the first n.
func (t *rowBuffer) truncate(n int) {
	t.y, t.offset, t.weight = t.y[:n], t.offset[:n], t.weight[:n]
	if t.x.Sparse == nil {
		t.x.Dense = t.x.Dense[:n*t.x.Cols]
		return
	}
	t.sp.Ptr = t.sp.Ptr[:n+1]
	t.sp.Ind, t.sp.Val = t.sp.Ind[:t.sp.Ptr[n]], t.sp.Val[:t.sp.Ptr[n]]
}

func (t *rowBuffer) clone() rowBuffer {
	c := rowBuffer{x: design.Matrix{Rows: t.x.Rows, Cols: t.x.Cols, Dense: slices.Clone(t.x.Dense)}, plain: t.plain}
	c.sp = design.Rows{Cols: t.sp.Cols, Ptr: slices.Clone(t.sp.Ptr), Ind: slices.Clone(t.sp.Ind), Val: slices.Clone(t.sp.Val)}
	c.y, c.offset, c.weight = slices.Clone(t.y), slices.Clone(t.offset), slices.Clone(t.weight)
	if t.x.Sparse != nil {
		c.x.Sparse = &c.sp
	}
	return c
}

// design returns the rows, valid until the next change.
func (t *rowBuffer) design() *design.Matrix {
	t.x.Rows = len(t.y)
	return &t.x
}

// save returns the rows as they are saved.
func (t *rowBuffer) save() savedBuffer {
	return savedBuffer{t.design().Save(), t.y, t.offset, t.weight}
}

// terms returns the terms of the rows, the first of which is number first of the stream.
func (t *rowBuffer) terms(lik Likelihood, first int) *term.Terms {
	r := &term.Terms{Lik: viewOf(lik), Y: t.y, First: first}
	if !t.plain {
		r.Offset, r.Weight = t.offset, t.weight
	}
	return r
}

// savedBuffer is a rowBuffer.
type savedBuffer struct {
	design.SavedRows
	Y      save.List[float64] `json:"y"`
	Offset save.List[float64] `json:"offset"`
	Weight save.List[float64] `json:"weight"`
}

// load takes over saved rows of responses that lik has.
func (t *rowBuffer) load(s *savedBuffer, lik Likelihood) error {
	n, d := len(s.Y), t.x.Cols
	if len(s.Offset) != n || len(s.Weight) != n {
		return fmt.Errorf("%d rows with %d offsets and %d weights: %w", n, len(s.Offset), len(s.Weight), ErrShape)
	}
	x, err := s.SavedRows.Load(n, d)
	if err != nil {
		return err
	}
	for i, y := range s.Y {
		if err := checkLabel(lik, y); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		if w := s.Weight[i]; !(w > 0) {
			return fmt.Errorf("row %d has weight %v: %w", i, w, ErrParam)
		}
		t.plain = t.plain && s.Offset[i] == 0 && s.Weight[i] == 1
	}
	t.y, t.offset, t.weight = s.Y, s.Offset, s.Weight
	if x.Sparse != nil {
		t.sp = *x.Sparse
		t.x.Sparse = &t.sp
		return nil
	}
	t.x.Dense = x.Dense
	return nil
}

// newRowBuffer returns a buffer for rows of d values.
func newRowBuffer(d int) *rowBuffer {
	t := &rowBuffer{}
	t.reset(d)
	return t
}

// rows returns copies of the rows, of d values, or nil for nil.
func (s *seenRows) rows(d int) *rowBuffer {
	if s == nil {
		return nil
	}
	n := len(s.y)
	all := &rowBuffer{x: *s.x, y: s.y, offset: s.offset, weight: s.weight}
	if all.offset == nil {
		all.offset = make([]float64, n)
	}
	if all.weight == nil {
		all.weight = slices.Repeat([]float64{1}, n)
	}
	t := newRowBuffer(d)
	for i := range n {
		t.copyRow(all, i)
	}
	return t
}

// without returns a copy of the rows of t without those of gone, and whether these are all there.
func (t *rowBuffer) without(gone *rowBuffer) (rest *rowBuffer, found bool) {
	t.design()
	gone.design()
	seed := maphash.MakeSeed()
	where := make(map[uint64][]int)
	var key, other []byte
	for i := range t.rows() {
		key = t.key(key[:0], i)
		h := maphash.Bytes(seed, key)
		where[h] = append(where[h], i)
	}
	out := make([]bool, t.rows())
	for i := range gone.rows() {
		key = gone.key(key[:0], i)
		at := where[maphash.Bytes(seed, key)]
		k := slices.IndexFunc(at, func(j int) bool {
			other = t.key(other[:0], j)
			return !out[j] && bytes.Equal(key, other) && sameOffset(t.offset[j], gone.offset[i])
		})
		if k < 0 {
			return nil, false
		}
		out[at[k]] = true
	}
	rest = newRowBuffer(t.x.Cols)
	for i, o := range out {
		if !o {
			rest.copyRow(t, i)
		}
	}
	return rest, true
}

// key appends what row i of t is, but for its offset.
func (t *rowBuffer) key(dst []byte, i int) []byte {
	number := func(x float64) {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(x+0)) // −0 is 0
	}
	ind, val := t.x.Row(i)
	for k, v := range val {
		if v == 0 {
			continue
		}
		j := k
		if ind != nil {
			j = int(ind[k])
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(j))
		number(v)
	}
	number(t.y[i])
	number(t.weight[i])
	return dst
}

// sameOffset reports whether two offsets differ by rounding alone.
func sameOffset(a, b float64) bool {
	return math.Abs(a-b) <= 1e-12*max(math.Abs(a), math.Abs(b))
}

// seenRows are the rows of a GLM, which has them too.
type seenRows struct {
	x                 *design.Matrix // with the column of the intercept
	y, offset, weight []float64      // of the last two nil is none, and ones
}
