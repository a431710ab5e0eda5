package fma

// Panels are a matrix that is packed once for products with many others. The zero value has no numbers. Storage is used again.
type Panels struct {
	rows, cols int
	data       []float64 // blocks of Block rows, and in each the panels of columns one after the other
}

// Set makes p the numbers of b, which it does not keep.
func (p *Panels) Set(b Matrix) {
	p.rows, p.cols = b.Rows, b.Cols
	p.data = room(p.data, b.Rows*up(b.Cols, columns))
	for at := 0; at < b.Rows; at += Block {
		k, block := min(Block, b.Rows-at), p.block(at)
		for j := 0; j < b.Cols; j += columns {
			pack(block[j*k:(j+columns)*k], b.Slice(at, j, k, min(columns, b.Cols-j)), k, columns)
		}
	}
}

// block returns the panels of the rows from the given one on.
func (p *Panels) block(at int) []float64 {
	wide := up(p.cols, columns)
	return p.data[at*wide : min(at+Block, p.rows)*wide]
}

// Mul adds AB to C, to the bits of Gemm, B being the matrix of p. C may not share memory with A, and its rows lie in memory one
// after the other.
func (p *Panels) Mul(a, c Matrix) {
	shapes(a.Rows == c.Rows && p.cols == c.Cols && a.Cols == p.rows && c.Col == 1)
	distinct(c, a)
	w := pool.Get().(*work)
	defer pool.Put(w)
	q := product{alpha: 1, c: c}
	w.a = room(w.a, min(p.rows, Block)*rows)
	for at := 0; at < p.rows; at += Block {
		k := min(Block, p.rows-at)
		for i := 0; i < c.Rows; i += rows {
			h := min(rows, c.Rows-i)
			pack(w.a, a.Slice(i, at, h, k).T(), k, rows)
			q.tiles(w, w.a, p.block(at), i, 0, h, c.Cols, k)
		}
	}
}

// GramStride returns the distance of the rows of what Gram adds to, and GramLen how many numbers that has.
func (p *Panels) GramStride() int { return up(p.cols, columns) }

// GramLen is told of at GramStride.
func (p *Panels) GramLen() int { return up(p.cols, rows) * p.GramStride() }

// Gram adds Bᵀ diag(weight) B to the lower triangle of c, B being the matrix of p. The factors of a sum are w_k·b_ki, rounded, and b_kj,
// for j ≤ i. What it leaves beside the triangle is of no use.
func (p *Panels) Gram(weight, c []float64) {
	stride := p.GramStride()
	shapes(len(c) == p.GramLen() && len(weight) == p.rows)
	w := pool.Get().(*work)
	defer pool.Put(w)
	w.a = room(w.a, min(p.rows, Block)*rows)
	for at := 0; at < p.rows; at += Block {
		k, block := min(Block, p.rows-at), p.block(at)
		for i := 0; i < p.cols; i += rows {
			last := i / columns * columns
			pathWeighRows(k, w.a, block[last*k+i-last:], weight[at:])
			for j := 0; j <= last; j += columns {
				pathGemm(k, w.a, block[j*k:], c, i*stride+j, stride, 1)
			}
		}
	}
}
