package fma

// These are the numbers of rows and columns that are packed at a time. blockRows·Block numbers
// fit into a second-level cache of 256 KB or more, and blockColumns·Block numbers into a
// third-level cache.
const (
	blockRows    = 96
	blockColumns = 1008
)

// Gemm adds α·AB to C, and reports whether it completed. C must not share memory with A or B.
func Gemm(r Run, alpha float64, a, b, c Matrix) bool {
	shapes(a.Rows == c.Rows && b.Cols == c.Cols && a.Cols == b.Rows)
	distinct(c, a, b)
	return gemm(r, alpha, a, b, c)
}

func gemm(r Run, alpha float64, a, b, c Matrix) bool {
	if c.Row == 1 || c.Row == -1 { // Cᵀ += αBᵀAᵀ
		a, b, c = b.T(), a.T(), c.T()
	}
	if c.Col == -1 { // columns in reverse order
		b, c = b.T().reverse().T(), c.T().reverse().T()
	}
	return product{alpha: alpha, a: a, b: b, c: c}.run(r)
}

// Syrk adds α·AAᵀ to the lower triangle of C, and reports whether it completed. C must not share
// memory with A, and its rows must be contiguous.
func Syrk(r Run, alpha float64, a, c Matrix) bool {
	shapes(a.Rows == c.Rows && a.Rows == c.Cols && c.Col == 1)
	distinct(c, a)
	return product{alpha: alpha, a: a, b: a.T(), c: c, lower: true}.run(r)
}

// Gram adds Xᵀ diag(w) X to the lower triangle of C, and reports whether it completed. The
// factors in a sum are x_ki and the rounded product w_k·x_kj, for j ≤ i. C must not share memory
// with X, and its rows must be contiguous.
func Gram(r Run, w []float64, x, c Matrix) bool {
	shapes(x.Cols == c.Rows && x.Cols == c.Cols && c.Col == 1 && len(w) == x.Rows)
	distinct(c, x)
	return product{alpha: 1, a: x.T(), b: x, c: c, lower: true, weight: w}.run(r)
}

// product represents C += α·AB, or α·A diag(weight) B. The rows of C are contiguous.
type product struct {
	alpha   float64
	a, b, c Matrix
	lower   bool      // only elements j ≤ i; B is Aᵀ
	weight  []float64 // nil means 1
	// upper means that A has at most Block columns and zeros below its diagonal. The sums leave
	// out tiles of zeros.
	upper bool
}

func (p product) run(r Run) bool {
	if p.c.empty() || p.a.Cols == 0 {
		return true
	}
	if p.c.Rows*p.c.Cols*p.a.Cols <= plainProducts && !r.Halt.Stopped() {
		p.plain()
		return true
	}
	products := p.c.Rows * p.c.Cols * p.a.Cols
	if p.lower {
		products /= 2
	}
	if part := r.parts(p.c.Rows, products, rows); part > 0 {
		j := jobs.Get().(*job)
		j.kind, j.product, j.lo, j.n = rowsOfProduct, p, 0, p.c.Rows
		return r.split(j, part)
	}
	return p.part(r, 0, p.c.Rows)
}

// part computes rows lo … hi−1 of run.
func (p product) part(r Run, lo, hi int) bool {
	w := pool.Get().(*work)
	defer pool.Put(w)
	n, k := p.c.Cols, p.a.Cols
	if p.lower {
		n = min(n, hi)
	}
	kk := min(k, Block)
	w.a = room(w.a, up(min(hi-lo, blockRows), rows)*kk)
	w.b = room(w.b, up(min(n, blockColumns), columns)*kk)
	for j := 0; j < n; j += blockColumns {
		nn := min(blockColumns, n-j)
		for at := 0; at < k; at += Block {
			kk := min(Block, k-at)
			for q := 0; q < nn; q += columns {
				panel := w.b[q*kk : (q+columns)*kk]
				pack(panel, p.b.Slice(at, j+q, kk, min(columns, nn-q)), kk, columns)
				if p.weight != nil {
					pathWeigh(kk, panel, p.weight[at:])
				}
			}
			for i := lo; i < hi; i += blockRows {
				mm := min(blockRows, hi-i)
				if p.lower && i+mm <= j {
					continue
				}
				if r.Halt.Stopped() {
					return false
				}
				for q := 0; q < mm; q += rows {
					if own := i + q - j; p.lower && p.weight == nil && own >= 0 && own < nn {
						leftOf(w.a[q*kk:], w.b, own, kk)
					} else {
						pack(w.a[q*kk:], p.a.Slice(i+q, at, min(rows, mm-q), kk).T(), kk, rows)
					}
				}
				p.tiles(w, w.a, w.b, i, j, mm, nn, kk)
			}
		}
	}
	return true
}

// tiles adds the product of the panels in left and right to the m×n part of C that starts at
// (row, col).
func (p *product) tiles(w *work, left, right []float64, row, col, m, n, k int) {
	high, wide := rows, columns
	if vectors512 {
		high, wide = 2*rows, 2*columns
	}
	for j := 0; j < n; j += wide {
		for i := 0; i < m; i += high {
			if vectors512 && i+high <= m && j+wide <= n && !p.upper &&
				(!p.lower || row+i >= col+j+wide-1) {
				pathGemmPairs(k, left[i*k:], right[j*k:], p.c.Data, p.c.Off+(row+i)*p.c.Row+col+j,
					p.c.Row, p.alpha)
				continue
			}
			for q := j; q < min(j+wide, n); q += columns {
				for r := i; r < min(i+high, m); r += rows {
					p.tile(w, k, left[r*k:], right[q*k:], row+r, col+q, min(rows, m-r),
						min(columns, n-q))
				}
			}
		}
	}
}

// tile adds the product of two panels to the h×wide part of C that starts at (first, from).
func (p *product) tile(w *work, k int, a, b []float64, first, from, h, wide int) {
	if p.lower && first+h <= from {
		return
	}
	if p.upper {
		skip := min(first, k)
		a, b, k = a[skip*rows:], b[skip*columns:], k-skip
	}
	if h == rows && wide == columns && (!p.lower || first >= from+columns-1) {
		pathGemm(k, a, b, p.c.Data, p.c.Off+first*p.c.Row+from, p.c.Row, p.alpha)
	} else {
		p.edge(w, k, a, b, first, from, h, wide)
	}
}

// edge is like tile, for a tile at the edge of C or on its diagonal. The product has only h×wide
// elements, or only its lower triangle counts.
func (p *product) edge(w *work, k int, a, b []float64, first, left, h, wide int) {
	for out := range 2 {
		for i := range h {
			wide := wide
			if p.lower {
				wide = min(wide, first+i-left+1)
			}
			if wide <= 0 {
				continue
			}
			c := p.c.Data[p.c.Off+(first+i)*p.c.Row+left:][:wide]
			if t := w.tile[i*columns:][:wide]; out == 0 {
				copy(t, c)
			} else {
				copy(c, t)
			}
		}
		if out == 0 {
			pathGemm(k, a, b, w.tile[:], 0, columns, p.alpha)
		}
	}
}
