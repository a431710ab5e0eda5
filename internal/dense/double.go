package dense

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// Epsilon is the relative rounding error of float64, 2⁻⁵³.
const Epsilon = 1.1e-16

// A Double is a slice of numbers with 106 bits. Each number is the sum Hi + Lo of two float64
// (Dekker 1971; for inner products Ogita, Rump and Oishi 2005). It can hold matrices that would
// be singular in float64. As elsewhere in this package, a matrix is n×n, row by row, and only its
// lower triangle is read. Packages design, gauss, loo and site use it for data in raw units.
type Double struct{ Hi, Lo []float64 }

// Resize sets the length of d to n. The contents are unspecified.
func (d *Double) Resize(n int) { d.Hi, d.Lo = Resize(d.Hi, n), Resize(d.Lo, n) }

// Clear sets all elements of d to zero.
func (d Double) Clear() {
	clear(d.Hi)
	clear(d.Lo)
}

// Slice returns elements lo … hi−1 of d. It does not copy.
func (d Double) Slice(lo, hi int) Double { return Double{d.Hi[lo:hi], d.Lo[lo:hi]} }

// twoSum returns a + b and its rounding error.
func twoSum(a, b float64) (s, e float64) {
	s = a + b
	t := s - a
	return s, (a - (s - t)) + (b - t)
}

// twoProduct returns ab and its rounding error. Here and below, products are converted to
// float64, because compilers such as the one for arm64 would otherwise fuse a product with the
// sum that follows. The error would then belong to another product.
func twoProduct(a, b float64) (p, e float64) {
	p = float64(a * b)
	return p, math.FMA(a, b, -p)
}

// Product returns xy and its rounding error.
func Product(x, y float64) (hi, lo float64) { return twoProduct(x, y) }

// quotient returns (ah + al)/(bh + bl).
func quotient(ah, al, bh, bl float64) (h, l float64) {
	q := ah / bh
	p, e := twoProduct(q, bh)
	return twoSum(q, ((ah-p)-e+al-q*bl)/bh)
}

// Round stores the numbers rounded to float64 in Hi, and the remainders in Lo.
func (d Double) Round() {
	for i, h := range d.Hi {
		d.Hi[i], d.Lo[i] = twoSum(h, d.Lo[i])
	}
}

// AddScaled adds c·x to d.
func (d Double) AddScaled(c float64, x []float64) {
	hi, lo := d.Hi[:len(x)], d.Lo[:len(x)]
	for i, v := range x {
		p, e := twoProduct(c, v)
		s, t := twoSum(hi[i], p)
		hi[i], lo[i] = s, lo[i]+(e+t)
	}
}

// AddDouble adds c·x to d.
func (d Double) AddDouble(c float64, x Double) {
	d.AddScaled(c, x.Hi)
	for i, v := range x.Lo {
		d.Lo[i] += c * v
	}
}

// AddAt adds c·x to element i.
func (d Double) AddAt(i int, c, x float64) {
	p, e := twoProduct(c, x)
	s, t := twoSum(d.Hi[i], p)
	d.Hi[i], d.Lo[i] = s, d.Lo[i]+(e+t)
}

// AddEach adds c to the elements with the indices ind.
func (d Double) AddEach(ind []int32, c float64) {
	lo := d.Lo[:len(d.Hi)]
	for _, i := range ind {
		s, t := twoSum(d.Hi[i], c)
		d.Hi[i], lo[i] = s, lo[i]+t
	}
}

// addDouble adds (ch + cl)·x to d.
func (d Double) addDouble(ch, cl float64, x []float64) {
	hi, lo := d.Hi[:len(x)], d.Lo[:len(x)]
	for i, v := range x {
		p := float64(ch * v)
		e := math.FMA(ch, v, -p) + cl*v
		s, t := twoSum(hi[i], p)
		hi[i], lo[i] = s, lo[i]+(e+t)
	}
}

// Dot returns the inner product of d and x, rounded to float64.
func (d Double) Dot(x []float64) float64 {
	var h, l float64
	hi, lo := d.Hi[:len(x)], d.Lo[:len(x)]
	for i, v := range x {
		p := float64(hi[i] * v)
		e := math.FMA(hi[i], v, -p) + lo[i]*v
		s, t := twoSum(h, p)
		h, l = s, l+(e+t)
	}
	return h + l
}

// DotAt returns the inner product of d and a sparse vector, whose values val have the indices
// ind.
func (d Double) DotAt(ind []int32, val []float64) float64 {
	var h, l float64
	for k, j := range ind {
		p, e := twoProduct(d.Hi[j], val[k])
		s, t := twoSum(h, p)
		h, l = s, l+(e+t+d.Lo[j]*val[k])
	}
	return h + l
}

// dot returns the inner product of a and b.
func dot(a, b Double) (h, l float64) {
	ah := a.Hi
	n := len(ah)
	al, bh, bl := a.Lo[:n], b.Hi[:n], b.Lo[:n]
	for i, x := range ah {
		p := float64(x * bh[i])
		e := math.FMA(x, bh[i], -p) + (x*bl[i] + al[i]*bh[i])
		s, t := twoSum(h, p)
		h, l = s, l+(e+t)
	}
	return h, l
}

// Residual stores y − Ax in dst, computed with twice the digits. A is a full matrix, row by row.
// It reports false if it was halted.
func Residual(halt *parallel.Halt, dst, y, a, x []float64) bool {
	n := len(x)
	if workers := halt.Workers(); workers > 1 && n*len(y) >= residualShared {
		parallel.For(len(y), residualRows, workers,
			func(_, lo, hi int) { residual(halt, dst, y, a, x, lo, hi) })
	} else {
		residual(halt, dst, y, a, x, 0, len(y))
	}
	return !halt.Stopped()
}

// From residualShared numbers on, goroutines share the rows of a residual, residualRows at a
// time.
const (
	residualShared = 1 << 16
	residualRows   = 64
)

// residual computes rows lo … hi−1 of Residual.
func residual(halt *parallel.Halt, dst, y, a, x []float64, lo, hi int) {
	n := len(x)
	for i := lo; i < hi; i++ {
		if halt.Stopped() {
			return
		}
		h, l := y[i], 0.0
		for j, v := range a[i*n : (i+1)*n] {
			p, e := twoProduct(-v, x[j])
			s, t := twoSum(h, p)
			h, l = s, l+(e+t)
		}
		dst[i] = h + l
	}
}

// AddOuter adds w·xxᵀ to the lower triangle of d, an n×n matrix. The row x has n values, or it is
// sparse with the indices ind.
func (d Double) AddOuter(n int, w float64, ind []int32, val []float64) {
	for k, x := range val {
		h, l := twoProduct(w, x)
		if h == 0 {
			continue
		}
		if ind == nil {
			d.Slice(k*n, k*n+k+1).addDouble(h, l, val[:k+1])
			continue
		}
		row := d.Slice(int(ind[k])*n, int(ind[k])*n+int(ind[k])+1)
		for m, v := range val[:k+1] {
			j := ind[m]
			p := float64(h * v)
			e := math.FMA(h, v, -p) + l*v
			s, t := twoSum(row.Hi[j], p)
			row.Hi[j], row.Lo[j] = s, row.Lo[j]+(e+t)
		}
	}
}

// Cholesky replaces the lower triangle by L with a = LLᵀ. It returns the smallest L_ii²/a_ii, the
// fraction of a diagonal element that remains after the earlier rows, or 0 if a is not positive
// definite.
func (d Double) Cholesky(n int) (least float64) { return d.CholeskyUntil(nil, n) }

// CholeskyUntil is like Cholesky. It also returns 0 if halt stops.
func (d Double) CholeskyUntil(halt *parallel.Halt, n int) (least float64) {
	least = 1
	for i := range n {
		if halt.Stopped() {
			return 0
		}
		row := d.Slice(i*n, i*n+i+1)
		diag := row.Hi[i]
		for j := range i + 1 {
			h, l := dot(d.Slice(j*n, j*n+j), row.Slice(0, j))
			s, t := twoSum(row.Hi[j], -h)
			s, t = twoSum(s, t+(row.Lo[j]-l))
			if j < i {
				row.Hi[j], row.Lo[j] = quotient(s, t, d.Hi[j*n+j], d.Lo[j*n+j])
				continue
			}
			if !(s > 0) || math.IsInf(s, 0) {
				return 0
			}
			least = math.Min(least, s/diag)
			r := math.Sqrt(s)
			p, e := twoProduct(r, r)
			row.Hi[i], row.Lo[i] = twoSum(r, ((s-p)-e+t)/(2*r))
		}
	}
	return least
}

// Trsv replaces r by L⁻¹r, where d holds L and has as many rows as r.
func (d Double) Trsv(r Double) {
	n := len(r.Hi)
	for i := range n {
		h, l := dot(d.Slice(i*n, i*n+i), r.Slice(0, i))
		d.divide(r, i, h, l)
	}
}

// Potrs replaces r by (LLᵀ)⁻¹r, where d holds L and has as many rows as r.
func (d Double) Potrs(r Double) {
	d.Trsv(r)
	n := len(r.Hi)
	for i := n - 1; i >= 0; i-- {
		var h, l float64
		for k := i + 1; k < n; k++ {
			h, l = accumulate(h, l, d.Hi[k*n+i], d.Lo[k*n+i], r.Hi[k], r.Lo[k])
		}
		d.divide(r, i, h, l)
	}
}

// divide replaces r_i by (r_i − h − l)/L_ii.
func (d Double) divide(r Double, i int, h, l float64) {
	n := len(r.Hi)
	s, t := twoSum(r.Hi[i], -h)
	s, t = twoSum(s, t+(r.Lo[i]-l))
	r.Hi[i], r.Lo[i] = quotient(s, t, d.Hi[i*n+i], d.Lo[i*n+i])
}

// Inverse stores the lower triangle of (LLᵀ)⁻¹, rounded to float64, in v, where d holds L. It
// allocates two matrices.
func (d Double) Inverse(v []float64, n int) { d.InverseUntil(nil, v, n) }

// InverseUntil is like Inverse. It returns early if halt stops.
func (d Double) InverseUntil(halt *parallel.Halt, v []float64, n int) {
	var m Double // row j is column j of L⁻¹
	m.Resize(n * n)
	for j := range n {
		if halt.Stopped() {
			return
		}
		col := m.Slice(j*n, (j+1)*n)
		col.Hi[j], col.Lo[j] = quotient(1, 0, d.Hi[j*n+j], d.Lo[j*n+j])
		for k := j + 1; k < n; k++ {
			h, l := dot(d.Slice(k*n+j, k*n+k), col.Slice(j, k))
			col.Hi[k], col.Lo[k] = quotient(-h, -l, d.Hi[k*n+k], d.Lo[k*n+k])
		}
	}
	for i := range n {
		if halt.Stopped() {
			return
		}
		for j := range i + 1 {
			h, l := dot(m.Slice(i*n+i, (i+1)*n), m.Slice(j*n+i, (j+1)*n))
			v[i*n+j] = h + l
		}
	}
}

// MulTrans replaces x by Lᵀx, where d holds L and has as many rows as x.
func (d Double) MulTrans(x Double) {
	n := len(x.Hi)
	for i := range n {
		var h, l float64
		for k := i; k < n; k++ {
			h, l = accumulate(h, l, d.Hi[k*n+i], d.Lo[k*n+i], x.Hi[k], x.Lo[k])
		}
		x.Hi[i], x.Lo[i] = twoSum(h, l)
	}
}

// accumulate returns (h + l) + (ah + al)(bh + bl).
func accumulate(h, l, ah, al, bh, bl float64) (float64, float64) {
	p := float64(ah * bh)
	e := math.FMA(ah, bh, -p) + (ah*bl + al*bh)
	s, t := twoSum(h, p)
	return s, l + (e + t)
}

// scale multiplies d by 2ᵏ.
func (d Double) scale(k int) {
	for i, x := range d.Hi {
		d.Hi[i], d.Lo[i] = math.Ldexp(x, k), math.Ldexp(d.Lo[i], k)
	}
}

// LowerRows factorizes A = LQ with QQᵀ = I, where d holds the rows of A. The weights have one
// element per row. It returns L as an n×rank matrix, rounded to float64. It overwrites some rows
// of d with the rows of Q, and q lists them in order.
//
// Column k of L belongs to the row with the largest remainder after the earlier rows, times its
// weight. A row whose remainder is less than 2⁻⁹⁶ of its size depends on the earlier rows.
func (d Double) LowerRows(halt *parallel.Halt, weight []float64) (l []float64, q []Double) {
	const least = 0x1p-96
	n := len(weight)
	cols := len(d.Hi) / n
	all, size, unit := make([]float64, n*n), make([]float64, n), make([]int, n)
	row := func(i int) Double { return d.Slice(i*cols, (i+1)*cols) }
	for i := range n {
		var most float64
		for _, x := range row(i).Hi {
			most = math.Max(most, math.Abs(x))
		}
		_, unit[i] = math.Frexp(most)
		row(i).scale(-unit[i])
		h, _ := dot(row(i), row(i))
		size[i] = math.Sqrt(h)
	}
	// take subtracts the component along q, row k of Q, from row i.
	take := func(i, k int, q Double) {
		z := row(i)
		h, e := dot(q, z)
		all[i*n+k] += h + e
		z.addDouble(-h, -e, q.Hi)
		for j, x := range q.Lo {
			z.Lo[j] -= h * x
		}
		z.Round()
	}
	done := make([]bool, n)
	for !halt.Stopped() {
		next, most := -1, 0.0
		for i := range n {
			if done[i] {
				continue
			}
			h, _ := dot(row(i), row(i))
			if left := math.Sqrt(h); !(left > least*size[i]) {
				done[i] = true
			} else if w := math.Ldexp(left*weight[i], unit[i]); next < 0 || w > most {
				next, most = i, w
			}
		}
		if next < 0 {
			break
		}
		for k, q := range q { // again, to remove rounding errors of the first time
			take(next, k, q)
		}
		z := row(next)
		h, e := dot(z, z)
		r := math.Sqrt(h)
		p, low := twoProduct(r, r)
		rh, rl := twoSum(r, ((h-p)-low+e)/(2*r))
		for j, x := range z.Hi {
			z.Hi[j], z.Lo[j] = quotient(x, z.Lo[j], rh, rl)
		}
		all[next*n+len(q)], done[next] = rh, true
		for i := range n {
			if !done[i] {
				take(i, len(q), z)
			}
		}
		q = append(q, z)
	}
	rank := len(q)
	for i := range n {
		for _, x := range all[i*n : i*n+rank] {
			l = append(l, math.Ldexp(x, unit[i]))
		}
	}
	return l, q
}
