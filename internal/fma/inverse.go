package fma

import "github.com/pgsvi/pgsvi/internal/parallel"

// InvertLower replaces L by L⁻¹ and reports whether it did so to the end. The rows of L lie in
// memory one after the other, and the other triangle is not read. The bits are those of Trsm for
// the identity.
func InvertLower(r Run, l Matrix) bool {
	shapes(l.Rows == l.Cols && l.Col == 1)
	n := l.Rows
	if n <= plainRows && !r.Halt.Stopped() {
		plainInvert(l, false)
		return true
	}
	w := pool.Get().(*work)
	defer pool.Put(w)
	w.x = room(w.x, Block*(n+Block)) // as much as the last rows take
	for i := 0; i < n; i += Block {
		if r.Halt.Stopped() {
			return false
		}
		h := min(Block, n-i)
		// −L_i·M of the rows M of L⁻¹ that are there, a block of columns at a time.
		row, diagonal := Of(w.x, h, i, max(1, i)), Of(w.x[h*i:], Block, Block, Block)
		move(r, row, l.Slice(i, 0, h, i))
		for j := 0; j < i; j += Block {
			target, next := l.Slice(i, j, h, Block), j+Block
			moveLower(diagonal, l.Slice(j, j, Block, Block), false)
			if !gemm(r, -1, row.Slice(0, j, h, Block), diagonal, target) ||
				!gemm(r, -1, row.Slice(0, next, h, i-next), l.Slice(next, j, i-next, Block),
					target) {
				return false
			}
		}
		own := l.Slice(i, i, h, h)
		w.t.set(own)
		if i > 0 && !w.t.solveColumns(r, l.Slice(i, 0, h, i)) {
			return false
		}
		w.t.solve(own, own, nil, true)
	}
	return true
}

// Invert replaces the lower triangle L by the lower triangle of (LLᵀ)⁻¹ = L⁻ᵀL⁻¹, and reports
// whether it completed. The rows of L must be contiguous. It does not read the upper triangle.
func Invert(r Run, l Matrix) bool {
	shapes(l.Rows == l.Cols && l.Col == 1)
	if l.Rows <= plainRows && !r.Halt.Stopped() {
		plainInvert(l, true)
		return true
	}
	return InvertLower(r, l) && SquareLower(r, l)
}

// SquareLower replaces the lower triangle L by the lower triangle of LᵀL, and reports whether it
// completed. The rows of L must be contiguous. It does not read the upper triangle.
func SquareLower(r Run, l Matrix) bool {
	shapes(l.Rows == l.Cols && l.Col == 1)
	w := pool.Get().(*work)
	defer pool.Put(w)
	n := l.Rows
	w.x = room(w.x, min(Block, n)*(n+min(Block, n)))
	for i := 0; i < n; i += Block {
		if r.Halt.Stopped() {
			return false
		}
		h, rest := min(Block, n-i), max(0, n-i-Block)
		row, diagonal := Of(w.x, h, i, max(1, i)), Of(w.x[h*i:], h, h, h)
		left, own := l.Slice(i, 0, h, i), l.Slice(i, i, h, h)
		move(r, row, left)
		moveLower(diagonal, own, true)
		p := product{alpha: 1, a: diagonal.T(), b: diagonal, c: own, lower: true, upper: true}
		if !p.run(r) || !gemm(r, 1, diagonal.T(), row, left) {
			return false
		}
		if rest > 0 {
			below := l.Slice(i+h, i, rest, h)
			p := product{alpha: 1, a: below.T(), b: below, c: own, lower: true}
			if !p.run(r) || !gemm(r, 1, below.T(), l.Slice(i+h, 0, rest, i), left) {
				return false
			}
		}
	}
	return true
}

// movedRows is the number of rows that a goroutine moves at a time.
const movedRows = 32

// move copies src to dst and makes it 0.
func move(r Run, dst, src Matrix) {
	if workers := r.sharing(src.Rows * src.Cols); workers > 1 {
		parallel.For(src.Rows, movedRows, workers,
			func(_, lo, hi int) { moveRows(dst, src, lo, hi) })
		return
	}
	moveRows(dst, src, 0, src.Rows)
}

// moveRows is move for rows lo … hi−1.
func moveRows(dst, src Matrix, lo, hi int) {
	for i := lo; i < hi; i++ {
		s := src.Data[src.Off+i*src.Row:][:src.Cols]
		copy(dst.Data[dst.Off+i*dst.Row:], s)
		clear(s)
	}
}

// moveLower copies the lower triangle of src to dst and clears the upper triangle of dst. If
// erase is true, it also clears the lower triangle of src.
func moveLower(dst, src Matrix, erase bool) {
	for i := range src.Rows {
		s, d := src.Data[src.Off+i*src.Row:][:i+1], dst.Data[dst.Off+i*dst.Row:][:dst.Cols]
		clear(d[copy(d, s):])
		if erase {
			clear(s)
		}
	}
}
