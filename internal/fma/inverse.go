package fma

// InvertLower replaces L by L⁻¹, and reports whether it completed. The rows of L must be
// contiguous. It does not read the upper triangle. The bits are the same as from Trsm for the
// identity.
func InvertLower(r Run, l Matrix) bool {
	shapes(l.Rows == l.Cols && l.Col == 1)
	n := l.Rows
	if n <= plainRows && !r.Halt.Stopped() {
		plainInvert(l, false)
		return true
	}
	w := pool.Get().(*work)
	defer pool.Put(w)
	for i := 0; i < n; i += Block {
		if r.Halt.Stopped() {
			return false
		}
		h := min(Block, n-i)
		// Compute −L_i·M for the rows M of L⁻¹ that are known, a block of columns at a time.
		w.x = room(w.x, h*i+Block*Block)
		row, diagonal := Of(w.x, h, i, max(1, i)), Of(w.x[h*i:], Block, Block, Block)
		for j := 0; j < i; j += Block {
			target := l.Slice(i, j, h, Block)
			move(row.Slice(0, j, h, Block), target)
		}
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
	for i := 0; i < n; i += Block {
		if r.Halt.Stopped() {
			return false
		}
		h, rest := min(Block, n-i), max(0, n-i-Block)
		w.x = room(w.x, h*i+h*h)
		row, diagonal := Of(w.x, h, i, max(1, i)), Of(w.x[h*i:], h, h, h)
		left, own := l.Slice(i, 0, h, i), l.Slice(i, i, h, h)
		move(row, left)
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

// move copies src to dst and clears src.
func move(dst, src Matrix) {
	for i := range src.Rows {
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
