package pgsvi

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// siteFactor turns a Gaussian N(m0, C) over n variables into the one whose
// sites have changed by Δ (in γ) and δ (in b):
//
//	V = (C⁻¹ + diag Δ)⁻¹,   m = m0 + V(δ − Δm0).
//
// It never forms C⁻¹, so that C may be singular. Positive changes go first,
// through B = I + S½CS½ with S = Δ, whose eigenvalues are at least 1; negative
// changes follow through I − S½V₁S½, V₁ the result of the first, which is
// positive definite exactly when V⁻¹ is. Storage is reused between calls.
type siteFactor struct {
	n        int
	c        []float64 // C, lower triangle of n×n; not owned
	pos, neg []int     // variables whose Δ is positive, negative
	sp, sn   []float64 // |Δ|^½ of these
	lp, ln   []float64 // Cholesky factors of B and of I − S½V₁S½
	zn       []float64 // L_p⁻¹ S½ C[pos, neg]
	logDet   float64   // log|I + ΔC| = log|C|/|V|
	t, u, r  []float64 // scratch of length n
	inv      []float64 // scratch
}

// factor prepares for C and Δ and reports whether V is positive definite and finite.
func (f *siteFactor) factor(c []float64, n int, delta []float64) bool {
	f.n, f.c = n, c
	f.t, f.r = resize(f.t, n), resize(f.r, n)
	f.pos, f.neg, f.sp, f.sn = room(f.pos, 0, n), room(f.neg, 0, n), room(f.sp, 0, n), room(f.sn, 0, n)
	for i, d := range delta {
		switch {
		case d > 0:
			f.pos, f.sp = append(f.pos, i), append(f.sp, math.Sqrt(d))
		case d < 0:
			f.neg, f.sn = append(f.neg, i), append(f.sn, math.Sqrt(-d))
		case d != 0: // NaN
			return false
		}
	}
	p, q := len(f.pos), len(f.neg)
	f.lp = room(f.lp, p*p, n*n)
	for a, i := range f.pos {
		for b, j := range f.pos[:a+1] {
			f.lp[a*p+b] = f.sp[a] * f.sp[b] * symmetricAt(c, n, i, j)
		}
		f.lp[a*p+a]++
	}
	if !cholesky(f.lp, p) {
		return false
	}
	f.logDet = logDetChol(f.lp, p)
	if q == 0 {
		return true
	}
	f.zn = room(f.zn, p*q, n*n)
	for a, i := range f.pos {
		for b, j := range f.neg {
			f.zn[a*q+b] = f.sp[a] * symmetricAt(c, n, i, j)
		}
	}
	f.trsm(f.lp, p, f.zn, q)
	f.ln = room(f.ln, q*q, n*n)
	for a, i := range f.neg {
		for b, j := range f.neg[:a+1] {
			f.ln[a*q+b] = symmetricAt(c, n, i, j)
		}
	}
	if p > 0 {
		blas64.Syrk(blas.Trans, -1, general(f.zn, p, q), 1, symmetric(f.ln, q))
	}
	for a := range q {
		for b := range a + 1 {
			f.ln[a*q+b] *= -f.sn[a] * f.sn[b]
		}
		f.ln[a*q+a]++
	}
	if !cholesky(f.ln, q) {
		return false
	}
	f.logDet += logDetChol(f.ln, q)
	return !math.IsInf(f.logDet, 0)
}

// leastPivot returns the least of what negative changes leave of the precisions of
// their variables, given the positive changes and the negative ones before.
func (f *siteFactor) leastPivot() float64 {
	least := 1.0
	q := len(f.neg)
	for i := range q {
		least = math.Min(least, f.ln[i*q+i]*f.ln[i*q+i])
	}
	return least
}

// symmetricAt returns element (i, j) of the symmetric matrix whose lower triangle is in c.
func symmetricAt(c []float64, n, i, j int) float64 {
	if i < j {
		i, j = j, i
	}
	return c[i*n+j]
}

// trsm replaces b, n×cols, by L⁻¹b.
func (*siteFactor) trsm(l []float64, n int, b []float64, cols int) {
	if n > 0 && cols > 0 {
		blas64.Trsm(blas.Left, blas.NoTrans, 1, lowerTriangle(l, n), general(b, n, cols))
	}
}

// expansion holds the rows X_p and X_n with
//
//	rowsᵀ(C⁻¹ − C⁻¹VC⁻¹)rows = X_pᵀX_p − X_nᵀX_n,
//
// rows being n×cols. With rows = C this is C − V.
type expansion struct {
	cols   int
	xp, xn []float64 // len(pos)×cols, len(neg)×cols; in buf
	buf    []float64
}

// expand computes the expansion of rows into x, whose storage is reused. It
// only reads f and may run concurrently on different x.
func (f *siteFactor) expand(x *expansion, rows []float64, cols int) {
	p, q := len(f.pos), len(f.neg)
	x.cols = cols
	x.buf = room(x.buf, (p+q)*cols, f.n*cols)
	x.xp, x.xn = x.buf[:p*cols], x.buf[p*cols:]
	for a, i := range f.pos {
		floats.ScaleTo(x.xp[a*cols:(a+1)*cols], f.sp[a], rows[i*cols:(i+1)*cols])
	}
	f.trsm(f.lp, p, x.xp, cols)
	if q == 0 {
		return
	}
	for a, i := range f.neg {
		copy(x.xn[a*cols:(a+1)*cols], rows[i*cols:(i+1)*cols])
	}
	if p > 0 {
		gemmTN(x.xn, f.zn, x.xp, p, q, cols)
	}
	for a, s := range f.sn {
		floats.Scale(s, x.xn[a*cols:(a+1)*cols])
	}
	f.trsm(f.ln, q, x.xn, cols)
}

// gemmTN subtracts aᵀb from c, a being p×q, b p×cols and c q×cols. It goes
// column block by column block, of a size that BLAS keeps on this goroutine.
func gemmTN(c, a, b []float64, p, q, cols int) {
	const width = 64
	for i := 0; i < q; i += width {
		for j := 0; j < cols; j += width {
			bi, bj := min(width, q-i), min(width, cols-j)
			blas64.Gemm(blas.Trans, blas.NoTrans, -1,
				blas64.General{Rows: p, Cols: bi, Stride: q, Data: a[i:]},
				blas64.General{Rows: p, Cols: bj, Stride: cols, Data: b[j:]},
				1, blas64.General{Rows: bi, Cols: bj, Stride: cols, Data: c[i*cols+j:]})
		}
	}
}

// subVar replaces v, of length cols, by v minus the diagonal of X_pᵀX_p − X_nᵀX_n.
func (x *expansion) subVar(v []float64) {
	for _, part := range [2]struct {
		x    []float64
		sign float64
	}{{x.xp, -1}, {x.xn, 1}} {
		for k := 0; k < len(part.x); k += x.cols {
			for j, e := range part.x[k : k+x.cols] {
				v[j] += part.sign * e * e
			}
		}
	}
}

// subCov replaces the lower triangle of v, cols×cols, by v − X_pᵀX_p + X_nᵀX_n.
func (x *expansion) subCov(v []float64) {
	x.addGram(v, -1, x.xp)
	x.addGram(v, 1, x.xn)
}

// addGram adds sign·XᵀX to the lower triangle of v for one part X of x.
func (x *expansion) addGram(v []float64, sign float64, part []float64) {
	if len(part) > 0 {
		blas64.Syrk(blas.Trans, sign, general(part, len(part)/x.cols, x.cols), 1, symmetric(v, x.cols))
	}
}

// solve replaces w by u = (I + ΔC)⁻¹w. With w = δ − Δm0 the mean moves by Cu.
//
// Where Δ > 0, u = S½ B⁻¹(S⁻½w − S½Cw′), w′ being w without these variables: no
// large terms cancel however large Δ is.
func (f *siteFactor) solve(w []float64) {
	if len(f.neg) > 0 {
		// I + ΔC = (I − S V₁)(I + Δ₊C): first the left factor.
		f.u = resize(f.u, f.n)
		copy(f.u, w)
		f.solvePos(f.u)
		f.mulC(f.u)
		r := f.r[:len(f.neg)]
		for a, i := range f.neg {
			r[a] = f.sn[a] * f.t[i]
		}
		potrs(f.ln, r)
		for a, i := range f.neg {
			w[i] += f.sn[a] * r[a]
		}
	}
	f.solvePos(w)
}

// solvePos is solve for the positive changes alone.
func (f *siteFactor) solvePos(w []float64) {
	r := f.r[:len(f.pos)]
	for a, i := range f.pos {
		r[a] = w[i] / f.sp[a]
		w[i] = 0
	}
	if len(f.pos) < f.n {
		f.mulC(w)
		for a, i := range f.pos {
			r[a] -= f.sp[a] * f.t[i]
		}
	}
	potrs(f.lp, r)
	for a, i := range f.pos {
		w[i] = f.sp[a] * r[a]
	}
}

// mulC stores Cw in f.t.
func (f *siteFactor) mulC(w []float64) {
	blas64.Symv(1, symmetric(f.c, f.n), vector(w), 0, vector(f.t))
}

// potrs replaces r by (LLᵀ)⁻¹r.
func potrs(l, r []float64) {
	if n := len(r); n > 0 {
		blas64.Trsv(blas.NoTrans, lowerTriangle(l, n), vector(r))
		blas64.Trsv(blas.Trans, lowerTriangle(l, n), vector(r))
	}
}

// A variance is found as c − ‖x‖², with an error of rounding of size c. Where a
// site shrinks its own variance by more than strongSite, ΔV = I − B⁻¹ gives it
// with an error of size 1/Δ instead, up to strongestSite, beyond which the site
// could not be weakened again; where a variance shrinks by more than
// leastShrink without a site of its own, it is not resolved.
const (
	strongSite    = 1e4
	strongestSite = 1e15
	leastShrink   = 1e-10
)

// strong reports whether some positive change shrinks its variance by more
// than strongSite.
func (f *siteFactor) strong() bool {
	for a, i := range f.pos {
		if f.sp[a]*f.sp[a]*f.c[i*f.n+i] > strongSite {
			return true
		}
	}
	return false
}

// variances stores the diagonal of V in v, given the expansion of C, and
// reports whether every element is resolved.
func (f *siteFactor) variances(v []float64, x *expansion) bool {
	n := f.n
	for i := range n {
		v[i] = f.c[i*n+i]
	}
	x.subVar(v)
	if !f.strong() {
		return f.resolved(v)
	}
	// 1 − ‖L⁻¹e_i‖² over Δ_i, plus what the negative changes add back.
	p := len(f.pos)
	f.inv = room(f.inv, p*p, f.n*f.n)
	copy(f.inv, f.lp)
	lapack64.Trtri(lowerTriangle(f.inv, p))
	norm := f.r[:p]
	clear(norm)
	for a := range p {
		for b, l := range f.inv[a*p : a*p+a+1] {
			norm[b] += l * l
		}
	}
	for a, i := range f.pos {
		d := f.sp[a] * f.sp[a]
		if d*f.c[i*n+i] <= strongSite {
			continue
		}
		v[i] = (1 - norm[a]) / d
		for k := i; k < len(x.xn); k += x.cols {
			v[i] += x.xn[k] * x.xn[k]
		}
	}
	return f.resolved(v)
}

// resolved reports whether every variance is, other than those of strong sites.
func (f *siteFactor) resolved(v []float64) bool {
	next := 0
	for i, vi := range v {
		var site float64
		if next < len(f.pos) && f.pos[next] == i {
			site = f.sp[next] * f.sp[next] * f.c[i*f.n+i]
			next++
		}
		strong := site > strongSite
		if site > strongestSite || strong && !(vi > 0) || !strong && !(vi >= leastShrink*f.c[i*f.n+i]) {
			return false
		}
	}
	return true
}

// covariance stores V in the lower triangle of v, n×n, given the expansion of C.
func (f *siteFactor) covariance(v []float64, x *expansion) {
	n, p := f.n, len(f.pos)
	copy(v, f.c)
	x.addGram(v, -1, x.xp)
	if f.strong() {
		f.inv = room(f.inv, p*p, f.n*f.n)
		copy(f.inv, f.lp)
		invertChol(f.inv, p)
		for a, i := range f.pos {
			if f.sp[a]*f.sp[a]*f.c[i*n+i] <= strongSite {
				continue
			}
			for b, j := range f.pos[:a] {
				if f.sp[b]*f.sp[b]*f.c[j*n+j] > strongSite {
					v[i*n+j] = -f.inv[a*p+b] / (f.sp[a] * f.sp[b])
				}
			}
			v[i*n+i] = (1 - f.inv[a*p+a]) / (f.sp[a] * f.sp[a])
		}
	}
	x.addGram(v, 1, x.xn)
}
