package fma

// triangle holds the panels of a lower triangular matrix. For each tile of rows it holds the part
// left of the diagonal tile, and the diagonal tile.
type triangle struct{ left, diagonal []float64 }

// panel returns both parts of the tile of rows that starts at row i.
func (t *triangle) panel(i int) (left, diagonal []float64) {
	return t.left[i*(i-rows)/2:], t.diagonal[i*rows : (i+rows)*rows]
}

// resize allocates memory for n rows.
func (t *triangle) resize(n int) {
	n = up(n, rows)
	t.left, t.diagonal = room(t.left, n*(n-rows)/2), room(t.diagonal, n*rows)
}

// set packs the lower triangle of l.
func (t *triangle) set(l Matrix) {
	n := l.Rows
	t.resize(n)
	for i := 0; i < n; i += rows {
		left, d := t.panel(i)
		h := min(rows, n-i)
		pack(left, l.Slice(i, 0, h, i).T(), i, rows)
		clear(d)
		for r := range rows {
			d[r*rows+r] = 1
		}
		for r := range h {
			for s := range r + 1 {
				d[r*rows+s] = *l.at(i+r, i+s)
			}
		}
	}
}

// solve stores T⁻¹b in x, which may be b, unless x is empty. It stores the sums of squares of the
// columns in square unless square is nil. If identity is true, x is the identity with at most
// Block rows. Then the result is also lower triangular, and only this triangle is read and
// written.
func (t *triangle) solve(x, b Matrix, square []float64, identity bool) {
	w := pool.Get().(*work)
	defer pool.Put(w)
	n, most := b.Rows, 1
	if vectors512 && !identity {
		most = 2
	}
	apart := up(n, rows) * columns // length of a panel of w.x
	w.x = room(w.x, most*apart)
	for p := range most {
		clear(w.x[p*apart+n*columns : (p+1)*apart])
	}
	for j := 0; j < b.Cols; j += most * columns {
		first, end := 0, min(j+most*columns, b.Cols)
		for q := j; q < end; q += columns {
			panel, m := w.x[(q-j)/columns*apart:], min(columns, end-q)
			if identity {
				first = j
				clear(panel[j*columns : n*columns])
				for i := range m {
					panel[(j+i)*columns+i] = 1
				}
			} else {
				pack(panel, b.Slice(0, q, n, m), n, columns)
			}
		}
		panels := up(end-j, columns) / columns
		for i := first; i < n; i += rows {
			left, d := t.panel(i)
			at := first
			for ; at+Block <= i; at += Block {
				pathGemmPanels(panels, Block, left[at*rows:], w.x[at*columns:], apart, w.x,
					i*columns, apart, columns, -1)
			}
			pathTrsmPanels(panels, apart, i-at, left[at*rows:], w.x[at*columns:], w.x[i*columns:],
				d)
		}
		for q := j; q < end; q += columns {
			panel, m := w.x[(q-j)/columns*apart:], min(columns, end-q)
			if square != nil {
				pathSquares(n, panel, w.tile[:columns])
				copy(square[q:q+m], w.tile[:])
			}
			if identity {
				for i := j; i < n; i++ {
					copy(x.Data[x.Off+i*x.Row+j:], panel[i*columns:][:min(m, i-j+1)])
				}
			} else if !x.empty() {
				unpack(x.Slice(0, q, n, m), panel)
			}
		}
	}
}

// solveColumns applies solve to all columns of x.
func (t *triangle) solveColumns(r Run, x Matrix) bool {
	if part := r.parts(x.Cols, x.Rows*x.Rows/2*x.Cols, columns); part > 0 {
		j := jobs.Get().(*job)
		j.kind, j.t, j.x, j.lo, j.n = columnsOfX, t, x, 0, x.Cols
		return r.split(j, min(part, share))
	}
	for j := 0; j < x.Cols; j += share {
		if r.Halt.Stopped() {
			return false
		}
		part := x.Slice(0, j, x.Rows, min(share, x.Cols-j))
		t.solve(part, part, nil, false)
	}
	return true
}

// Trsm replaces B by L⁻¹B, or by U⁻¹B if upper is true, and reports whether it completed. It
// reads only one triangle of the matrix. The blocks of its sums are counted from the first row of
// L or from the last row of U. B must not share memory with the matrix.
func Trsm(r Run, l, b Matrix, upper bool) bool {
	shapes(l.Rows == l.Cols && l.Rows == b.Rows)
	distinct(b, l)
	if upper {
		l, b = l.reverse().T().reverse().T(), b.reverse()
	}
	n := b.Rows
	if n*n*b.Cols <= plainProducts && n <= Block && !r.Halt.Stopped() {
		plainTrsm(l, b, false)
		return true
	}
	w := pool.Get().(*work)
	defer pool.Put(w)
	for i := 0; i < n; i += Block {
		h := min(Block, n-i)
		w.t.set(l.Slice(i, i, h, h))
		x, rest := b.Slice(i, 0, h, b.Cols), n-i-h
		if !w.t.solveColumns(r, x) || rest > 0 && !gemm(r, -1, l.Slice(i+h, i, rest, h), x,
			b.Slice(i+h, 0, rest, b.Cols)) {
			return false
		}
	}
	return true
}

// Lower holds a lower triangular matrix that is packed once for many solutions. The zero value
// has no rows. A Lower reuses its memory.
type Lower struct {
	n int
	t triangle
}

// Set packs the lower triangle of a into l. It does not keep a.
func (l *Lower) Set(a Matrix) {
	shapes(a.Rows == a.Cols)
	l.n = a.Rows
	l.t.set(a)
}

// Solve stores L⁻¹B in X, with the same bits as Trsm, unless X is empty. X must be B, or must not
// share memory with B. Unless squares is nil, Solve stores the sums of squares of the columns in
// it, where each sum is computed by fused operations in order.
func (l *Lower) Solve(x, b Matrix, squares []float64) {
	shapes(b.Rows == l.n && (x.empty() || x.Rows == b.Rows && x.Cols == b.Cols) &&
		(squares == nil || len(squares) == b.Cols))
	l.t.solve(x, b, squares, false)
}
