package fma

import "math"

// Cholesky replaces the lower triangle of A by L with A = LLᵀ. It reports whether A is positive
// definite and finite and the computation completed. The rows of A must be contiguous. It does
// not read the upper triangle.
func Cholesky(r Run, a Matrix) bool {
	shapes(a.Rows == a.Cols && a.Col == 1)
	n := a.Rows
	if n <= plainRows && !r.Halt.Stopped() {
		return plainCholesky(a)
	}
	w := pool.Get().(*work)
	defer pool.Put(w)
	for i := 0; i < n; i += Block {
		h := min(Block, n-i)
		if r.Halt.Stopped() || !w.factor(a.Slice(i, i, h, h)) {
			return false
		}
		if rest := n - i - h; rest > 0 {
			below := a.Slice(i+h, i, rest, h)
			p := product{alpha: -1, a: below, b: below.T(), c: a.Slice(i+h, i+h, rest, rest),
				lower: true}
			if !w.t.solveColumns(r, below.T()) || !p.run(r) {
				return false
			}
		}
	}
	return true
}

// factor is like Cholesky, for at most Block rows. It leaves the packed triangle in w.t.
func (w *work) factor(a Matrix) bool {
	n := a.Rows
	height := up(n, rows)
	// group returns rows i … i+columns−1 of A as the columns of a panel
	group := func(i int) []float64 { return w.x[i*height:] }
	w.x = room(w.x, up(n, columns)*height)
	w.t.resize(n)
	for i := 0; i < n; i += columns {
		packLower(group(i), a, i, height)
	}
	for j := 0; j < n; j += rows {
		left, d := w.t.panel(j)
		first := j / columns * columns
		own, lane, h := group(first), j-first, min(rows, n-j)
		if j > 0 {
			pathCopyNarrow(j, left, own[lane:], columns)
		}
		if !w.diagonal(j, left, d, own, lane, h) {
			return false
		}
		pathTrsmPanels(up(n-first, columns)/columns, columns*height, j, left, own, own[j*columns:],
			d)
		for i := range h {
			for s := range i + 1 {
				own[(j+s)*columns+lane+i] = d[i*rows+s]
			}
		}
	}
	for i := 0; i < n; i += columns {
		x, m := group(i), min(columns, n-i)
		unpack(a.Slice(i, 0, m, i+1).T(), x)
		for s := 1; s < m; s++ {
			for j := i + 1; j <= i+s; j++ {
				*a.at(i+s, j) = x[j*columns+s]
			}
		}
	}
	return true
}

// diagonal factorizes the tile of rows that starts at row j, and stores its part of L in d. The
// columns of own[lane:] hold the rows of the tile, and left holds the part of L left of the tile.
func (w *work) diagonal(j int, left, d, own []float64, lane, h int) bool {
	clear(w.tile[:])
	pathGemm(j, left, own, w.tile[:], 0, columns, 1)
	clear(d)
	for r := range rows {
		d[r*rows+r] = 1
	}
	for i := range h {
		for s := range i + 1 {
			sum := w.tile[s*columns+lane+i]
			for k := range s {
				sum = math.FMA(d[i*rows+k], d[s*rows+k], sum)
			}
			x := own[(j+s)*columns+lane+i] - sum
			if s < i {
				d[i*rows+s] = x / d[s*rows+s]
				continue
			}
			if !(x > 0) || math.IsInf(x, 1) {
				return false
			}
			d[i*rows+i] = math.Sqrt(x)
		}
	}
	return true
}
