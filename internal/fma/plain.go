package fma

import "math"

// Small problems are solved by plain loops, as panels cost more than they save. The bits are the same.
const (
	plainProducts = 1500 // products of a matrix product or a solution
	plainRows     = 14   // rows of a factor
)

// chain goes on with s over k products, whose factors lie in steps from i and j on.
func chain(s float64, k int, a []float64, i, iStep int, b []float64, j, jStep int) float64 {
	for range k {
		s = math.FMA(a[i], b[j], s)
		i, j = i+iStep, j+jStep
	}
	return s
}

// plain is run.
func (p product) plain() {
	a, b, c, k := p.a, p.b, p.c, p.a.Cols
	for i := range c.Rows {
		n := c.Cols
		if p.lower {
			n = min(n, i+1)
		}
		first := 0
		if p.upper {
			first = i
		}
		for j := range n {
			x := &c.Data[c.Off+i*c.Row+j]
			for at := first; at < k; at += Block {
				h, ia, jb := min(Block, k-at), a.Off+i*a.Row+at*a.Col, b.Off+at*b.Row+j*b.Col
				s := 0.0
				if p.weight == nil {
					s = chain(0, h, a.Data, ia, a.Col, b.Data, jb, b.Row)
				} else {
					for q, w := range p.weight[at : at+h] {
						s = math.FMA(a.Data[ia+q*a.Col], b.Data[jb+q*b.Row]*w, s)
					}
				}
				*x = math.FMA(p.alpha, s, *x)
			}
		}
	}
}

// plainTrsm is Trsm for a lower triangular matrix of at most Block rows. Where b is the identity only its lower triangle is
// written and read.
func plainTrsm(l, b Matrix, identity bool) {
	for j := range b.Cols {
		first := 0
		if identity {
			first = j
		}
		for i := first; i < b.Rows; i++ {
			at, row := b.Off+i*b.Row+j*b.Col, l.Off+i*l.Row
			s := chain(0, i-first, l.Data, row+first*l.Col, l.Col, b.Data, b.Off+first*b.Row+j*b.Col, b.Row)
			b.Data[at] = (b.Data[at] - s) / l.Data[row+i*l.Col]
		}
	}
}

// plainCholesky is Cholesky for at most Block rows.
func plainCholesky(a Matrix) bool {
	for i := range a.Rows {
		row := a.Off + i*a.Row
		for j := range i {
			at := a.Off + j*a.Row
			a.Data[row+j] = (a.Data[row+j] - chain(0, j, a.Data, row, 1, a.Data, at, 1)) / a.Data[at+j]
		}
		x := a.Data[row+i] - chain(0, i, a.Data, row, 1, a.Data, row, 1)
		if !(x > 0) || math.IsInf(x, 1) {
			return false
		}
		a.Data[row+i] = math.Sqrt(x)
	}
	return true
}

// plainInvert is Invert for at most plainRows rows.
func plainInvert(l Matrix, both bool) {
	var memory [plainRows * plainRows]float64
	m := Of(memory[:], l.Rows, l.Cols, plainRows)
	for i := range m.Rows {
		*m.at(i, i) = 1
	}
	plainTrsm(l, m, true)
	for i := range m.Rows {
		copy(l.Data[l.Off+i*l.Row:][:i+1], memory[i*plainRows:])
		if both {
			clear(l.Data[l.Off+i*l.Row:][:i+1])
		}
	}
	if both {
		product{alpha: 1, a: m.T(), b: m, c: l, lower: true, upper: true}.plain()
	}
}
