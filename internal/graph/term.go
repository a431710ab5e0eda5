package graph

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// known is a number per row that is not random.
type known struct{ x, log []float64 }

// Known returns the term of the numbers x, which it does not copy.
func Known(x []float64) Term {
	k := &known{x: x, log: make([]float64, len(x))}
	for i, v := range x {
		k.log[i] = math.Log(v)
	}
	return k
}

// IsKnown reports whether t is a term of known numbers.
func IsKnown(t Term) bool {
	_, ok := t.(*known)
	return ok
}

func (k *known) Rows() int { return len(k.x) }

func (k *known) Operands() []Term { return nil }

func (k *known) Touch(int, func(int)) {}

func (k *known) Moments(m *Moments, _ []float64, rows []int) {
	for i, r := range rows {
		x := k.x[r]
		m.Mean[i], m.Square[i], m.Log[i] = x, x*x, k.log[r]
	}
}

func (k *known) Pull(_, _ []float64, _ []int, _, _ *Moments) {}

// vectors is a copy of a Gaussian block in each row, or one copy for all rows.
type vectors struct {
	block *Block
	start []int32
}

// newVectors returns the given copies of b.
func newVectors(b *Block, copies []int) vectors {
	v := vectors{b, make([]int32, len(copies))}
	for i, c := range copies {
		v.start[i] = int32(b.Start(c))
	}
	return v
}

// at returns the index in μ at which the copy of a row begins.
func (v *vectors) at(row int) int {
	if len(v.start) == 1 {
		row = 0
	}
	return int(v.start[row])
}

// spread reports whether the second moments of different elements are not in μ.
func (v *vectors) spread() bool { return v.block.Diagonal || v.block.Stacked }

// dot is xᵀz in each row, of a Gaussian z.
type dot struct {
	vectors
	x      [][]float64
	sparse [][]int32 // indices of the elements that are not 0; nil if x is dense
}

// Dot returns the term xᵀz of the rows of x and the given copies of a Gaussian block: one for
// each row, or one for all. It does not copy x.
func Dot(b *Block, copies []int, x [][]float64) Term {
	d := &dot{vectors: newVectors(b, copies), x: x}
	filled := 0
	for _, r := range x {
		for _, v := range r {
			if v != 0 {
				filled++
			}
		}
	}
	if sparseShare*filled >= len(x)*b.Dim {
		return d
	}
	for _, r := range x {
		var at []int32
		for i, v := range r {
			if v != 0 {
				at = append(at, int32(i))
			}
		}
		d.sparse = append(d.sparse, at)
	}
	return d
}

// sparseShare is the inverse of the largest share of elements of a sparse x that are not 0.
const sparseShare = 4

func (t *dot) Rows() int { return len(t.x) }

func (t *dot) Operands() []Term { return nil }

func (t *dot) Touch(row int, see func(int)) { see(t.at(row)) }

func (t *dot) Moments(m *Moments, mu []float64, rows []int) {
	for i, r := range rows {
		u := mu[t.at(r):]
		switch {
		case t.spread():
			m.Mean[i], m.Square[i] = t.diagonal(u, t.x[r])
		case t.sparse != nil:
			m.Mean[i], m.Square[i] = t.few(u, t.x[r], t.sparse[r])
		default:
			m.Mean[i], m.Square[i] = full(u, t.x[r])
		}
	}
}

// full returns the moments of xᵀz for a z with mean u[:d] and the packed lower triangle of
// E[zzᵀ].
func full(u, x []float64) (mean, square float64) {
	s := u[len(x):]
	for i, xi := range x {
		mean += xi * u[i]
		row := s[:i]
		var h float64
		if i >= longRow {
			h = floats.Dot(x[:i], row)
		} else {
			for j, v := range row {
				h += x[j] * v
			}
		}
		square += xi * (2*h + xi*s[i])
		s = s[i+1:]
	}
	return mean, square
}

// longRow is the length from which vector instructions are faster than a loop.
const longRow = 12

// few is full for an x whose elements are 0 except at the given indices.
func (t *dot) few(u, x []float64, at []int32) (mean, square float64) {
	for a, i := range at {
		xi := x[i]
		mean += xi * u[i]
		s := u[t.block.Dim+int(i)*int(i+1)/2:]
		var h float64
		for _, j := range at[:a] {
			h += x[j] * s[j]
		}
		square += xi * (2*h + xi*s[i])
	}
	return mean, square
}

// diagonal is full for a z with independent elements.
func (t *dot) diagonal(u, x []float64) (mean, square float64) {
	var v float64
	for i, xi := range x {
		mean += xi * u[i]
		v += xi * xi * (u[t.block.square(i)] - u[i]*u[i])
	}
	return mean, mean*mean + v
}

func (t *dot) Pull(dst, mu []float64, rows []int, m, d *Moments) {
	for i, r := range rows {
		s := t.at(r)
		u, x, g, h := dst[s:], t.x[r], d.Mean[i], d.Square[i]
		switch {
		case t.spread():
			for k, v := range x {
				u[k] += v * (g + 2*h*(m.Mean[i]-v*mu[s+k]))
				u[t.block.square(k)] += v * v * h
			}
		case t.sparse != nil:
			for a, k := range t.sparse[r] {
				u[k] += x[k] * g
				s := u[t.block.Dim+int(k)*int(k+1)/2:]
				for _, j := range t.sparse[r][:a] {
					s[j] += 2 * h * x[k] * x[j]
				}
				s[k] += x[k] * x[k] * h
			}
		default:
			pullFull(u, x, g, h)
		}
	}
}

// pullFull adds g and h times the derivatives of mean and square of full to u.
func pullFull(u, x []float64, g, h float64) {
	s := u[len(x):]
	for k, v := range x {
		u[k] += v * g
		f, row := 2*v*h, s[:k]
		if k >= longRow {
			floats.AddScaled(row, f, x[:k])
		} else {
			for j := range row {
				row[j] += f * x[j]
			}
		}
		s[k] += v * v * h
		s = s[k+1:]
	}
}

// inner is aᵀb of independent Gaussian vectors a and b with full covariances. E[(aᵀb)²] is
// tr(E[aaᵀ] E[bbᵀ]).
type inner struct {
	a, b vectors
	rows int
}

// Inner returns the term aᵀb of copies of two Gaussian blocks of the same dimension.
func Inner(a *Block, copiesA []int, b *Block, copiesB []int) Term {
	return &inner{newVectors(a, copiesA), newVectors(b, copiesB), max(len(copiesA), len(copiesB))}
}

func (t *inner) Rows() int { return t.rows }

func (t *inner) Operands() []Term { return nil }

func (t *inner) Touch(row int, see func(int)) {
	see(t.a.at(row))
	see(t.b.at(row))
}

func (t *inner) Moments(m *Moments, mu []float64, rows []int) {
	d := t.a.block.Dim
	size := d + d*(d+1)/2
	for i, r := range rows {
		p, q := t.a.at(r), t.b.at(r)
		u, v := mu[p:p+size], mu[q:q+size]
		var mean, square float64
		for k, x := range u[:d] {
			mean += x * v[k]
		}
		for k, at := 0, d; k < d; k++ {
			for end := at + k; at < end; at++ {
				square += 2 * u[at] * v[at]
			}
			square += u[at] * v[at]
			at++
		}
		m.Mean[i], m.Square[i] = mean, square
	}
}

func (t *inner) Pull(dst, mu []float64, rows []int, _, d *Moments) {
	dim := t.a.block.Dim
	size := dim + dim*(dim+1)/2
	for i, r := range rows {
		p, q := t.a.at(r), t.b.at(r)
		u, v, du, dv := mu[p:p+size], mu[q:q+size], dst[p:p+size], dst[q:q+size]
		g, h := d.Mean[i], d.Square[i]
		for k := range dim {
			du[k] += g * v[k]
			dv[k] += g * u[k]
		}
		for k, at := 0, dim; k < dim; k++ {
			for end := at + k; at < end; at++ {
				du[at] += 2 * h * v[at]
				dv[at] += 2 * h * u[at]
			}
			du[at] += h * v[at]
			dv[at] += h * u[at]
			at++
		}
	}
}

// pair is a term of two independent terms.
type pair struct {
	a, b    Term
	rows    int
	product bool // a·b, otherwise a + b
}

// Plus returns a + b. One of them may have a single row.
func Plus(a, b Term) Term { return &pair{a, b, max(a.Rows(), b.Rows()), false} }

// Times returns a·b. One of them may have a single row.
func Times(a, b Term) Term { return &pair{a, b, max(a.Rows(), b.Rows()), true} }

func (t *pair) Rows() int { return t.rows }

func (t *pair) Operands() []Term { return []Term{t.a, t.b} }

func (t *pair) Touch(row int, see func(int)) {
	touch(t.a, row, see)
	touch(t.b, row, see)
}

func (t *pair) Moments(m *Moments, mu []float64, rows []int) {
	a, b := m.parts[0], m.parts[1]
	load(t.a, a, mu, rows)
	load(t.b, b, mu, rows)
	for i := range rows {
		if t.product {
			m.Mean[i] = a.Mean[i] * b.Mean[i]
			m.Square[i] = a.Square[i] * b.Square[i]
			m.Log[i] = a.Log[i] + b.Log[i]
			continue
		}
		m.Mean[i] = a.Mean[i] + b.Mean[i]
		m.Square[i] = a.Square[i] + 2*a.Mean[i]*b.Mean[i] + b.Square[i]
	}
}

func (t *pair) Pull(dst, mu []float64, rows []int, m, d *Moments) {
	a, b := m.parts[0], m.parts[1]
	da, db := d.parts[0], d.parts[1]
	for i := range rows {
		g, h := d.Mean[i], d.Square[i]
		if t.product {
			da.Mean[i], db.Mean[i] = times(g, b.Mean[i]), times(g, a.Mean[i])
			da.Square[i], db.Square[i] = times(h, b.Square[i]), times(h, a.Square[i])
			da.Log[i], db.Log[i] = d.Log[i], d.Log[i]
			continue
		}
		da.Mean[i], db.Mean[i] = g+2*times(h, b.Mean[i]), g+2*times(h, a.Mean[i])
		da.Square[i], db.Square[i] = h, h
		da.Log[i], db.Log[i] = 0, 0
	}
	unload(t.a, dst, mu, rows, a, da)
	unload(t.b, dst, mu, rows, b, db)
}

// times returns a·b, and 0 if a is 0 and b is unknown.
func times(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return a * b
}
