package fma

import "math"

// Plain loops solve small problems, because panels would cost more than they save. The bits are
// the same.
const (
	plainProducts = 1500 // largest number of products in a matrix product or a solution
	plainRows     = 14   // largest number of rows of a factor
)

// chains returns up to four sums over k products each. The sums are independent, so a processor
// computes them at the same time. All sums use the same left factors, which start at i with step
// iStep. The right factors start at j with step jStep, and those for the next sum are apart
// numbers further.
func chains(n, k int, a []float64, i, iStep int, b []float64, j, jStep, apart int) (s [4]float64) {
	if n < 4 {
		for c := range n {
			x, at, from := 0.0, i, j+c*apart
			for range k {
				x = math.FMA(a[at], b[from], x)
				at, from = at+iStep, from+jStep
			}
			s[c] = x
		}
		return s
	}
	var s0, s1, s2, s3 float64
	for range k {
		x := a[i]
		s0, s1 = math.FMA(x, b[j], s0), math.FMA(x, b[j+apart], s1)
		s2, s3 = math.FMA(x, b[j+2*apart], s2), math.FMA(x, b[j+3*apart], s3)
		i, j = i+iStep, j+jStep
	}
	return [4]float64{s0, s1, s2, s3}
}

// plain computes run by plain loops.
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
		for j := 0; j < n; j += 4 {
			m := min(4, n-j)
			x := c.Data[c.Off+i*c.Row+j:][:m]
			for at := first; at < k; at += Block {
				h, ia, jb := min(Block, k-at), a.Off+i*a.Row+at*a.Col, b.Off+at*b.Row+j*b.Col
				var s [4]float64
				if p.weight == nil {
					s = chains(m, h, a.Data, ia, a.Col, b.Data, jb, b.Row, b.Col)
				} else {
					for q, w := range p.weight[at : at+h] {
						for r := range m {
							s[r] = math.FMA(a.Data[ia+q*a.Col], b.Data[jb+q*b.Row+r*b.Col]*w, s[r])
						}
					}
				}
				for r := range x {
					x[r] = math.FMA(p.alpha, s[r], x[r])
				}
			}
		}
	}
}

// plainTrsm computes Trsm for a lower triangular matrix with at most Block rows. If b is the
// identity, it reads and writes only the lower triangle of b.
func plainTrsm(l, b Matrix, identity bool) {
	step := 4
	if identity {
		step = 1 // because columns begin at the diagonal
	}
	for j := 0; j < b.Cols; j += step {
		first, m := 0, min(step, b.Cols-j)
		if identity {
			first = j
		}
		for i := first; i < b.Rows; i++ {
			at, row := b.Off+i*b.Row+j*b.Col, l.Off+i*l.Row
			s := chains(m, i-first, l.Data, row+first*l.Col, l.Col, b.Data,
				b.Off+first*b.Row+j*b.Col, b.Row, b.Col)
			d := l.Data[row+i*l.Col]
			for r := range m {
				x := &b.Data[at+r*b.Col]
				*x = (*x - s[r]) / d
			}
		}
	}
}

// plainCholesky computes Cholesky for at most Block rows.
func plainCholesky(a Matrix) bool {
	for j := range a.Rows {
		own := a.Off + j*a.Row
		for i := j; i < a.Rows; i += 4 {
			m, at := min(4, a.Rows-i), a.Off+i*a.Row
			s := chains(m, j, a.Data, own, 1, a.Data, at, 1, a.Row)
			for r := range m {
				x := &a.Data[at+r*a.Row+j]
				*x -= s[r]
				if i+r > j {
					*x /= a.Data[own+j]
				} else if !(*x > 0) || math.IsInf(*x, 1) {
					return false
				} else {
					*x = math.Sqrt(*x)
				}
			}
		}
	}
	return true
}

// plainInvert computes Invert for at most plainRows rows, or InvertLower if both is false.
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
