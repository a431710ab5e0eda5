package site

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// This file computes what an arrow needs from its rows: the sums XᵀΓX and Xᵀu, the products Xw, and
// the variances of all rows. Each goroutine works on whole chunks of levels, and each level belongs
// to one chunk, so the results have the same bits on any number of cores.

// arrowWork is the scratch memory of a goroutine.
type arrowWork struct {
	rows, own []float64
	te, we    []float64
	cols, at  []int
	val       []float64
	work      design.Work
}

// entries lists the values of row i in the factors of the border: their places in B_g, their
// columns in the border, and the values.
func (w *arrowWork) entries(a *arrow, i int) (at, col []int, val []float64) {
	w.at, w.cols, w.val = w.at[:0], w.cols[:0], w.val[:0]
	others := a.fac[1:]
	for k := range others {
		o := &others[k]
		h := int(o.level[i])
		if h < 0 {
			continue
		}
		p := int(a.at[i*len(others)+k])
		for c := range o.Q {
			w.at = append(w.at, p+c)
			w.cols = append(w.cols, o.offset+h*o.Q+c)
			w.val = append(w.val, o.z[i*o.Q+c])
		}
	}
	return w.at, w.cols, w.val
}

// workers returns scratch for each goroutine.
func (a *arrow) workers() (n int, all []arrowWork) {
	n = 1
	if a.x.Shared(a.crew.Halt, a.x.Rows*(a.x.Cols+8)) {
		n = a.crew.Halt.Workers()
	}
	for len(a.rows) < n {
		a.rows = append(a.rows, arrowWork{})
	}
	return n, a.rows
}

// levels calls f for each chunk of levels.
func (a *arrow) levels(f func(w *arrowWork, lo, hi int)) {
	n, work := a.workers()
	parallel.For(len(a.chunks)-1, 1, n, func(worker, lo, hi int) {
		for k := lo; k < hi && !a.crew.Halt.Stopped(); k++ {
			f(&work[worker], a.chunks[k], a.chunks[k+1])
		}
	})
}

// sum stores XᵀΓX in the sums of t and, unless b is nil, Xᵀb in a.hb and a.hg.
func (a *arrow) sum(t *arrowState, gamma, b []float64) {
	gamma = a.in(gamma)
	s, f, d, m := &t.by.Sums, &a.fac[0], a.x.Cols, len(a.shape.Border)
	s.A, s.B = dense.Resize(s.A, m*m), dense.Resize(s.B, a.shape.Ptr[f.Levels])
	s.D = dense.Resize(s.D, f.Levels*f.Q*f.Q)
	clear(s.A)
	if !a.shape.Crossed() {
		a.x.AddGram(s.A, gamma, nil, &a.work)
	} else {
		own := make([]float64, d*d)
		a.x.AddGram(own, gamma, nil, &a.work)
		for i := range d {
			copy(s.A[i*m:i*m+i+1], own[i*d:i*d+i+1])
		}
		a.sumBorder(s.A, gamma)
	}
	if a.past != nil {
		floats.Add(s.A, a.past.of.Sums.A)
	}
	a.levels(func(w *arrowWork, lo, hi int) {
		for g := lo; g < hi; g++ {
			a.sumLevel(s, w, g, gamma)
		}
	})
	if b != nil {
		a.collect(b)
		a.hb, a.hg = append(a.hb[:0], a.moveB...), append(a.hg[:0], a.moveG...)
	}
}

// sumBorder adds the products of the factors of the border, with each other and with the common
// columns, to the lower triangle of p.
func (a *arrow) sumBorder(p, gamma []float64) {
	d, m := a.x.Cols, len(a.shape.Border)
	_, work := a.workers()
	for i, g := range gamma {
		_, col, val := work[0].entries(a, i)
		x := a.x.Dense[i*d : (i+1)*d]
		for k, c := range col {
			gauss.AddTimes(p[c*m:c*m+d], g*val[k], x)
			for l, e := range col[:k+1] {
				p[max(c, e)*m+min(c, e)] += g * val[k] * val[l]
			}
		}
	}
}

// sumLevel computes B_g and D_g.
func (a *arrow) sumLevel(s *gauss.Sums, w *arrowWork, g int, gamma []float64) {
	f, d, width := &a.fac[0], a.x.Cols, a.shape.Width(g)
	q := f.Q
	b, dg := s.B[a.shape.Ptr[g]:a.shape.Ptr[g+1]], s.D[g*q*q:(g+1)*q*q]
	if p := a.past; p != nil {
		copy(b, p.b[a.shape.Ptr[g]:a.shape.Ptr[g+1]])
		copy(dg, p.of.Sums.D[g*q*q:(g+1)*q*q])
	} else {
		clear(b)
		clear(dg)
	}
	crossed := a.shape.Crossed()
	for i := int(a.begin[g]); i < int(a.begin[g+1]); i++ {
		x, z := a.x.Dense[i*d:(i+1)*d], f.z[i*q:(i+1)*q]
		var at []int
		var val []float64
		if crossed {
			at, _, val = w.entries(a, i)
		}
		for j, zj := range z {
			t := gamma[i] * zj
			for k, zk := range z {
				dg[j*q+k] += t * zk
			}
			row := b[j*width : (j+1)*width]
			gauss.AddTimes(row[:d], t, x)
			for k, p := range at {
				row[p] += t * val[k]
			}
		}
	}
}

// collect stores Xᵀu in a.moveB and a.moveG.
func (a *arrow) collect(u []float64) {
	a.in(u)
	a.collectSorted()
}

// collectSorted is collect for the u in a.sorted.
func (a *arrow) collectSorted() {
	u := a.sorted
	f, d := &a.fac[0], a.x.Cols
	q := f.Q
	a.moveB = dense.Resize(a.moveB, len(a.shape.Border))
	a.moveG = dense.Resize(a.moveG, f.Levels*q)
	a.solveWork = dense.Resize(a.solveWork, f.Levels*q)
	clear(a.moveB)
	a.x.AddMulTOn(a.moveB[:d], u, nil, &a.work)
	a.levels(func(_ *arrowWork, lo, hi int) {
		for g := lo; g < hi; g++ {
			h := a.moveG[g*q : (g+1)*q]
			clear(h)
			for i := int(a.begin[g]); i < int(a.begin[g+1]); i++ {
				for j, z := range f.z[i*q : (i+1)*q] {
					h[j] += u[i] * z
				}
			}
		}
	})
	if a.shape.Crossed() {
		_, work := a.workers()
		for i, ui := range u {
			_, col, val := work[0].entries(a, i)
			for k, c := range col {
				a.moveB[c] += ui * val[k]
			}
		}
	}
}

// spreadTo stores Xw in to, for the weights w of the border and u of the levels. It leaves Xw in
// a.sorted.
func (a *arrow) spreadTo(to, w, u []float64) {
	dst := a.sorted
	f, d, crossed := &a.fac[0], a.x.Cols, a.shape.Crossed()
	q := f.Q
	a.x.MulOn(a.crew.Halt, dst, w[:d], nil)
	if crossed {
		_, work := a.workers()
		for i := range dst {
			_, col, val := work[0].entries(a, i)
			for k, c := range col {
				dst[i] += w[c] * val[k]
			}
		}
	}
	a.levels(func(_ *arrowWork, lo, hi int) {
		for g := lo; g < hi; g++ {
			v := u[g*q : (g+1)*q]
			for i := int(a.begin[g]); i < int(a.begin[g+1]); i++ {
				dst[i] += floats.Dot(f.z[i*q:(i+1)*q], v)
			}
		}
	})
	a.outTo(to)
}

// arrowRows is the number of rows whose variances are computed together.
const arrowRows = design.Chunk

// variancesTo stores the variances of all rows in to. With r the row minus what its level explains, r
// = x − E_gᵀz, the variance is zᵀR_gz + rᵀS⁻¹r.
func (a *arrow) variancesTo(to []float64, t *arrowState) {
	a.variances(t)
	a.outTo(to)
}

// variances stores the variances of all rows in a.sorted.
func (a *arrow) variances(t *arrowState) {
	v := a.sorted
	n, work := a.workers()
	if !a.shape.Crossed() {
		parallel.For(len(v), arrowRows, n, func(worker, lo, hi int) {
			if !a.crew.Halt.Stopped() {
				a.variancesPart(t, v[lo:hi], lo, &work[worker])
			}
		})
		return
	}
	a.inverse = t.by.InverseUntil(a.crew.Halt, a.inverse)
	none := int(a.begin[a.fac[0].Levels])
	a.levels(func(w *arrowWork, lo, hi int) {
		for g := lo; g < hi; g++ {
			a.crossedVariances(t, v, g, w)
		}
	})
	for i := none; i < len(v); i++ {
		_, col, val := work[0].entries(a, i)
		v[i] = a.borderVariance(i, col, val)
	}
}

// variancesPart computes the variances of the rows from lo on, for one factor.
func (a *arrow) variancesPart(t *arrowState, v []float64, lo int, w *arrowWork) {
	f, d := &a.fac[0], a.x.Cols
	q := f.Q
	w.rows = append(w.rows[:0], a.x.Dense[lo*d:(lo+len(v))*d]...)
	w.own = dense.Resize(w.own, len(v))
	for k := range v {
		i := lo + k
		w.own[k] = 0
		g := int(f.level[i])
		if g < 0 {
			continue
		}
		z, r := f.z[i*q:(i+1)*q], t.by.R[g*q*q:(g+1)*q*q]
		e := t.by.E[a.shape.Ptr[g]:a.shape.Ptr[g+1]]
		for j, zj := range z {
			gauss.AddTimes(w.rows[k*d:(k+1)*d], -zj, e[j*d:(j+1)*d])
			w.own[k] += zj * floats.Dot(z, r[j*q:(j+1)*q])
		}
	}
	clear(v)
	if d > 0 {
		x := design.Matrix{Rows: len(v), Cols: d, Dense: w.rows}
		w.work.Halt = nil // the caller shares the rows
		x.Variances(v, t.by.Chol, nil, nil, &w.work)
	}
	floats.Add(v, w.own)
}

// borderVariance returns the variance of row i without its level, for crossed factors.
func (a *arrow) borderVariance(i int, col []int, val []float64) (sum float64) {
	d, m, p := a.x.Cols, len(a.shape.Border), a.inverse
	x := a.x.Dense[i*d : (i+1)*d]
	for j, xj := range x {
		sum += xj * (2*floats.Dot(p[j*m:j*m+j], x[:j]) + p[j*m+j]*xj)
	}
	for k, c := range col {
		sum += 2 * val[k] * floats.Dot(p[c*m:c*m+d], x)
		for l, e := range col {
			sum += val[k] * val[l] * p[c*m+e]
		}
	}
	return sum
}

// crossedVariances computes the variances of the rows of level g, for crossed factors.
func (a *arrow) crossedVariances(t *arrowState, v []float64, g int, w *arrowWork) {
	f, d, width := &a.fac[0], a.x.Cols, a.shape.Width(g)
	q := f.Q
	if a.begin[g] == a.begin[g+1] {
		return
	}
	w.te, w.we = dense.Resize(w.te, q*width), dense.Resize(w.we, q*q)
	e := t.by.E[a.shape.Ptr[g]:a.shape.Ptr[g+1]]
	a.timesInverse(w.te, e, g)
	for j := range q {
		for k := range q {
			w.we[j*q+k] = t.by.R[(g*q+j)*q+k] +
				floats.Dot(e[j*width:(j+1)*width], w.te[k*width:(k+1)*width])
		}
	}
	for i := int(a.begin[g]); i < int(a.begin[g+1]); i++ {
		at, col, val := w.entries(a, i)
		x, z := a.x.Dense[i*d:(i+1)*d], f.z[i*q:(i+1)*q]
		sum := a.borderVariance(i, col, val)
		for j, zj := range z {
			te := w.te[j*width : (j+1)*width]
			cross := floats.Dot(te[:d], x)
			for k, p := range at {
				cross += val[k] * te[p]
			}
			sum += zj * (floats.Dot(w.we[j*q:(j+1)*q], z) - 2*cross)
		}
		v[i] = sum
	}
}

// timesInverse stores eP in dst, for Q rows of e over the columns of B_g and the covariance P of
// the border at these columns.
func (a *arrow) timesInverse(dst, e []float64, g int) {
	d, m, pat, width := a.x.Cols, len(a.shape.Border), a.shape.Pat[g], a.shape.Width(g)
	clear(dst)
	for c := range width {
		pc := c
		if c >= d {
			pc = int(pat[c-d])
		}
		row := a.inverse[pc*m : (pc+1)*m]
		for at := 0; at < len(dst); at += width {
			sum := floats.Dot(e[at:at+d], row[:d])
			for k, pk := range pat {
				sum += e[at+d+k] * row[pk]
			}
			dst[at+c] = sum
		}
	}
}
