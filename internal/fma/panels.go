package fma

import "cmp"

// Panels holds a matrix that is packed once for products with many others. The zero value is
// empty. A Panels reuses its memory.
type Panels struct {
	rows, cols int
	// data holds blocks of Block rows. Each block holds its panels of columns, one after the
	// other.
	data []float64
}

// Set packs the numbers of b into p. It does not keep b.
func (p *Panels) Set(b Matrix) { p.SetScaled(b, nil) }

// SetScaled is like Set, but multiplies the rows by the elements of w unless w is nil.
func (p *Panels) SetScaled(b Matrix, w []float64) {
	shapes(w == nil || len(w) == b.Rows)
	p.rows, p.cols = b.Rows, b.Cols
	p.data = room(p.data, b.Rows*up(b.Cols, columns))
	for at := 0; at < b.Rows; at += Block {
		k, block := min(Block, b.Rows-at), p.block(at)
		for j := 0; j < b.Cols; j += columns {
			panel := block[j*k : (j+columns)*k]
			pack(panel, b.Slice(at, j, k, min(columns, b.Cols-j)), k, columns)
			if w != nil {
				pathWeigh(k, panel, w[at:])
			}
		}
	}
}

// block returns the panels of the block of rows that starts at the given row.
func (p *Panels) block(at int) []float64 {
	wide := up(p.cols, columns)
	return p.data[at*wide : min(at+Block, p.rows)*wide]
}

// Stride returns the distance between the rows of a result. A result has space for a multiple of
// four rows, and its additional rows and columns are undefined.
func (p *Panels) Stride() int { return up(p.cols, columns) }

// Len returns the length of a result with n rows.
func (p *Panels) Len(n int) int { return up(n, rows) * p.Stride() }

// Mul adds AB to C, where B is the matrix of p. The bits are the same as from Gemm.
func (p *Panels) Mul(a Matrix, c []float64) {
	shapes(len(c) == p.Len(a.Rows) && a.Cols == p.rows)
	w := pool.Get().(*work)
	defer pool.Put(w)
	w.a = room(w.a, min(p.rows, Block)*rows)
	for at := 0; at < p.rows; at += Block {
		k := min(Block, p.rows-at)
		for i := 0; i < a.Rows; i += rows {
			pack(w.a, a.Slice(i, at, min(rows, a.Rows-i), k).T(), k, rows)
			p.tiles(k, w.a, p.block(at), c[i*p.Stride():], p.cols)
		}
	}
}

// Gram adds Bᵀ diag(weight) B to the lower triangle of C, where B is the matrix of p. The factors
// in a sum are the rounded product w_k·b_ki and b_kj, for j ≤ i. The part above the diagonal is
// undefined.
func (p *Panels) Gram(weight, c []float64) {
	shapes(len(c) == p.Len(p.cols) && len(weight) == p.rows)
	w := pool.Get().(*work)
	defer pool.Put(w)
	w.a = room(w.a, min(p.rows, Block)*rows)
	for at := 0; at < p.rows; at += Block {
		k, block := min(Block, p.rows-at), p.block(at)
		for i := 0; i < p.cols; i += rows {
			last := i / columns * columns
			pathWeighRows(k, w.a, block[last*k+i-last:], weight[at:])
			p.tiles(k, w.a, block, c[i*p.Stride():], last+1)
		}
	}
}

// Syrk adds α·BᵀB to rows lo … hi−1 of the lower triangle of C, where B is the matrix of p. The
// bits are the same as from the function Syrk. It always completes. The rows of C must be
// contiguous, and lo must be a multiple of 4.
func (p *Panels) Syrk(r Run, alpha float64, c Matrix, lo, hi int) {
	shapes(c.Rows == p.cols && c.Cols == p.cols && c.Col == 1 && lo%rows == 0 && hi <= c.Rows)
	if hi <= lo {
		return
	}
	r.Workers, r.Halt = cmp.Or(r.Workers, r.Halt.Workers()), nil
	if part := r.parts(hi-lo, (hi-lo)*(lo+hi)/2*p.rows, rows); part > 0 {
		j := jobs.Get().(*job)
		j.kind, j.panels, j.product, j.lo, j.n = rowsOfPanels, p, product{alpha: alpha, c: c}, lo,
			hi-lo
		r.split(j, part)
	} else {
		p.syrk(alpha, c, lo, hi)
	}
}

// syrk runs Syrk on a single goroutine.
func (p *Panels) syrk(alpha float64, c Matrix, lo, hi int) {
	w := pool.Get().(*work)
	defer pool.Put(w)
	q := product{alpha: alpha, c: c, lower: true}
	for at := 0; at < p.rows; at += Block {
		k, block := min(Block, p.rows-at), p.block(at)
		w.a = room(w.a, up(min(hi-lo, blockRows), rows)*k)
		for i := lo; i < hi; i += blockRows {
			m := min(blockRows, hi-i)
			for r := i; r < i+m; r += rows {
				leftOf(w.a[(r-i)*k:], block, r, k)
			}
			q.tiles(w, w.a, block, i, 0, m, i+m, k)
		}
	}
}

// leftOf stores columns i … i+rows−1 of panels with k rows as a panel of rows. All these columns
// must be in the same panel.
func leftOf(dst, panels []float64, i, k int) {
	first := i / columns * columns
	pathCopyNarrow(k, dst, panels[first*k+i-first:], columns)
}

// tiles adds the product of a panel of rows and the panels of a block, up to column n, to four
// rows of a result.
func (p *Panels) tiles(k int, a, block, c []float64, n int) {
	pathGemmPanels(up(n, columns)/columns, k, a, block, columns*k, c, 0, columns, p.Stride(), 1)
}
