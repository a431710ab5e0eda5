package dense

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// SiteFactor turns a Gaussian N(m0, C) over n variables into the Gaussian whose sites have changed by
// Δ (in γ) and δ (in b):
//
//	V = (C⁻¹ + diag Δ)⁻¹,   m = m0 + V(δ − Δm0).
//
// It never forms C⁻¹, so C may be singular. First it applies the positive changes through B = I +
// S½CS½ with S = Δ, whose eigenvalues are at least 1. The result is V₁. Then it applies the
// negative changes through I − S½V₁S½ with S = −Δ, which is positive definite if and only if V⁻¹
// is. Package site calls Factor for each step of a Gaussian process. A SiteFactor reuses its memory.
type SiteFactor struct {
	// After Halt has stopped, Factor reports false and other results are invalid.
	Halt     *parallel.Halt
	n        int
	C        []float64 // lower triangle of C, n×n; not owned
	Pos, Neg []int     // increasing indices of the variables with positive and with negative Δ
	Sp, sn   []float64 // |Δ|^½ of Pos and of Neg
	Lp, ln   []float64 // Cholesky factors of B and of I − S½V₁S½
	zn       []float64 // Lp⁻¹ S½ C[Pos, Neg]
	LogDet   float64   // log|I + ΔC| = log |C|/|V|
	T        []float64 // result of the last MulC, of length n
	u, r     []float64 // scratch of length n
	inv      []float64 // scratch
	lent     bool      // others use the factors
}

// Lend returns a copy of f with the same C that shares its factors. The next Factor of f does not
// change them.
func (f *SiteFactor) Lend() *SiteFactor {
	f.lent = true
	g := *f
	g.T, g.u, g.r, g.inv = slices.Clone(f.T), nil, slices.Clone(f.r), nil
	return &g
}

// Factor prepares f for an n×n covariance c and changes Δ, and reports whether V is positive
// definite and finite. It keeps a reference to c, which must not change while f is in use.
func (f *SiteFactor) Factor(c []float64, n int, delta []float64) bool {
	f.n, f.C = n, c
	if f.Halt.Stopped() {
		return false
	}
	f.T, f.r = Resize(f.T, n), Resize(f.r, n)
	if f.lent {
		f.Pos, f.Neg, f.Sp, f.sn, f.Lp, f.ln, f.zn = nil, nil, nil, nil, nil, nil, nil
		f.lent = false
	}
	f.Pos, f.Neg, f.Sp, f.sn = room(f.Pos, 0, n), room(f.Neg, 0, n), room(f.Sp, 0, n),
		room(f.sn, 0, n)
	for i, d := range delta {
		switch {
		case d > 0:
			f.Pos, f.Sp = append(f.Pos, i), append(f.Sp, math.Sqrt(d))
		case d < 0:
			f.Neg, f.sn = append(f.Neg, i), append(f.sn, math.Sqrt(-d))
		case d != 0: // NaN
			return false
		}
	}
	p, q := len(f.Pos), len(f.Neg)
	f.Lp = room(f.Lp, p*p, n*n)
	if workers := sharedRows(f.Halt, p*p); workers > 1 {
		parallel.For(p, copiedRows, workers, func(_, lo, hi int) { f.scaled(lo, hi) })
	} else {
		f.scaled(0, p)
	}
	if f.Halt.Stopped() || !CholeskyUntil(f.Halt, f.Lp, p) {
		return false
	}
	f.LogDet = LogDet(f.Lp, p)
	if q == 0 {
		return true
	}
	f.zn = room(f.zn, p*q, n*n)
	for a, i := range f.Pos {
		for b, j := range f.Neg {
			f.zn[a*q+b] = f.Sp[a] * SymmetricAt(c, n, i, j)
		}
	}
	f.trsm(f.Lp, p, f.zn, q)
	f.ln = room(f.ln, q*q, n*n)
	for a, i := range f.Neg {
		for b, j := range f.Neg[:a+1] {
			f.ln[a*q+b] = SymmetricAt(c, n, i, j)
		}
	}
	if p > 0 {
		fma.Syrk(fma.Run{Halt: f.Halt}, -1, fma.Of(f.zn, p, q, q).T(), square(f.ln, q))
	}
	for a := range q {
		for b := range a + 1 {
			f.ln[a*q+b] *= -f.sn[a] * f.sn[b]
		}
		f.ln[a*q+a]++
	}
	if !CholeskyUntil(f.Halt, f.ln, q) {
		return false
	}
	f.LogDet += LogDet(f.ln, q)
	return !math.IsInf(f.LogDet, 0)
}

// scaled stores rows lo … hi−1 of the lower triangle of B in Lp.
func (f *SiteFactor) scaled(lo, hi int) {
	c, n, p := f.C, f.n, len(f.Pos)
	for a := lo; a < hi && !f.Halt.Stopped(); a++ {
		row, s := f.Lp[a*p:a*p+a+1], f.Sp[a]
		if from := c[f.Pos[a]*n:]; p == n {
			for b, ci := range from[:a+1] {
				row[b] = s * f.Sp[b] * ci
			}
		} else {
			for b, j := range f.Pos[:a+1] {
				row[b] = s * f.Sp[b] * from[j]
			}
		}
		row[a]++
	}
}

// LeastPivot returns the smallest fraction of a variable's precision that remains after a
// negative change, given the positive changes and the earlier negative changes. It is 1 if there
// are no negative changes.
func (f *SiteFactor) LeastPivot() float64 {
	least := 1.0
	q := len(f.Neg)
	for i := range q {
		least = math.Min(least, f.ln[i*q+i]*f.ln[i*q+i])
	}
	return least
}

// LeastPart returns the smallest fraction of 1 + ΔC_ii that remains after the earlier positive
// changes.
func (f *SiteFactor) LeastPart() float64 {
	least, p := 1.0, len(f.Pos)
	for a, i := range f.Pos {
		l := f.Lp[a*p+a]
		least = math.Min(least, l*l/(1+f.Sp[a]*f.Sp[a]*f.C[i*f.n+i]))
	}
	return least
}

// SymmetricAt returns element (i, j) of the symmetric matrix whose lower triangle is in c.
func SymmetricAt(c []float64, n, i, j int) float64 {
	if i < j {
		i, j = j, i
	}
	return c[i*n+j]
}

// trsm replaces the n×cols matrix b by L⁻¹b.
func (f *SiteFactor) trsm(l []float64, n int, b []float64, cols int) {
	if n > 0 && cols > 0 {
		fma.Trsm(fma.Run{Halt: f.Halt}, square(l, n), fma.Of(b, n, cols, cols), false)
	}
}

// An Expansion holds the rows X_p and X_n with
//
//	rowsᵀ(C⁻¹ − C⁻¹VC⁻¹)rows = X_pᵀX_p − X_nᵀX_n,
//
// where rows is an n×cols matrix. If rows = C, this is C − V.
type Expansion struct {
	cols   int
	halt   *parallel.Halt
	xp, xn []float64 // len(Pos)×cols and len(Neg)×cols, in buf
	buf    []float64
	pp, pn fma.Panels // used by subCovFrom
}

// Expand computes the expansion of rows into x, and reuses the memory of x. It only reads f, so
// it may run concurrently with different x.
func (f *SiteFactor) Expand(x *Expansion, rows []float64, cols int) { f.ExpandVar(x, rows, cols, nil) }

// If there are few changes, goroutines share the columns in parts of expandColumns, from
// expandShared numbers on. If there are many, the products of matrices share their work.
const (
	expandColumns = 96
	expandShared  = 1 << 14
)

// ExpandVar calls Expand, and also SubVar of v unless v is nil.
func (f *SiteFactor) ExpandVar(x *Expansion, rows []float64, cols int, v []float64) {
	p, q := len(f.Pos), len(f.Neg)
	x.cols, x.halt = cols, f.Halt
	x.buf = room(x.buf, (p+q)*cols, f.n*cols)
	x.xp, x.xn = x.buf[:p*cols], x.buf[p*cols:]
	if workers := f.Halt.Workers(); workers > 1 && p+q <= fma.Block && (p+q)*cols >= expandShared {
		parallel.For(cols, expandColumns, workers,
			func(_, lo, hi int) { f.expand(x, rows, v, lo, hi, fma.Run{Halt: f.Halt, Workers: 1}) })
		return
	}
	f.expand(x, rows, v, 0, cols, fma.Run{Halt: f.Halt})
}

// expand computes columns lo … hi−1 of ExpandVar.
func (f *SiteFactor) expand(x *Expansion, rows, v []float64, lo, hi int, run fma.Run) {
	if hi <= lo {
		return
	}
	p, q, cols, wide := len(f.Pos), len(f.Neg), x.cols, hi-lo
	if workers := sharedRows(run.Halt, p*wide); workers > 1 && run.Workers != 1 {
		parallel.For(p, copiedRows, workers,
			func(_, from, to int) { f.scaleRows(x, rows, from, to, lo, hi) })
	} else {
		f.scaleRows(x, rows, 0, p, lo, hi)
	}
	xp, xn := rowsOf(x.xp, cols).Slice(0, lo, p, wide), rowsOf(x.xn, cols).Slice(0, lo, q, wide)
	if p > 0 {
		fma.Trsm(run, square(f.Lp, p), xp, false)
	}
	if q > 0 {
		for a, i := range f.Neg {
			copy(x.xn[a*cols+lo:a*cols+hi], rows[i*cols+lo:i*cols+hi])
		}
		if p > 0 {
			fma.Gemm(run, -1, fma.Of(f.zn, p, q, q).T(), xp, xn)
		}
		for a, s := range f.sn {
			floats.Scale(s, x.xn[a*cols+lo:a*cols+hi])
		}
		fma.Trsm(run, square(f.ln, q), xn, false)
	}
	if v != nil {
		x.subVar(v, lo, hi)
	}
}

// scaleRows stores columns lo … hi−1 of rows from … to−1 of S½·rows in X_p.
func (f *SiteFactor) scaleRows(x *Expansion, rows []float64, from, to, lo, hi int) {
	for a := from; a < to; a++ {
		i := f.Pos[a] * x.cols
		floats.ScaleTo(x.xp[a*x.cols+lo:a*x.cols+hi], f.Sp[a], rows[i+lo:i+hi])
	}
}

// rowsOf returns a part of an expansion as a matrix.
func rowsOf(part []float64, cols int) fma.Matrix {
	return fma.Of(part, len(part)/max(1, cols), cols, max(1, cols))
}

// SubVar replaces v, of length cols, by v minus the diagonal of X_pᵀX_p − X_nᵀX_n.
func (x *Expansion) SubVar(v []float64) { x.subVar(v, 0, x.cols) }

// subVar applies SubVar to columns lo … hi−1.
func (x *Expansion) subVar(v []float64, lo, hi int) {
	v = v[lo:hi]
	for _, part := range [2]struct {
		x    []float64
		sign float64
	}{{x.xp, -1}, {x.xn, 1}} {
		for k := 0; k < len(part.x); k += x.cols {
			for j, e := range part.x[k+lo : k+hi] {
				v[j] += part.sign * e * e
			}
		}
	}
}

// Cross stores the diagonal of X_pᵀY_p − X_nᵀY_n in dst, where both expansions have the same
// number of rows. With the rows A of x and the rows B of y, this is the diagonal of Aᵀ(C⁻¹ −
// C⁻¹VC⁻¹)B.
func (x *Expansion) Cross(dst []float64, y *Expansion) {
	clear(dst)
	for k, e := range x.xp {
		dst[k%x.cols] += e * y.xp[k]
	}
	for k, e := range x.xn {
		dst[k%x.cols] -= e * y.xn[k]
	}
}

// SubCov replaces the lower triangle of v, cols×cols, by v − X_pᵀX_p + X_nᵀX_n.
func (x *Expansion) SubCov(v []float64) { x.subCovFrom(v, 0) }

// subCovFrom can be halted after subProducts products, or after subRows rows if these have more
// products.
const (
	subProducts = 1 << 27
	subRows     = 192
)

// subCovFrom applies SubCov to the rows from the given row on. It returns the number of rows, or
// the row to continue from if it was halted. The bits do not depend on halts.
func (x *Expansion) subCovFrom(v []float64, row int) int {
	x.pp.Set(rowsOf(x.xp, x.cols))
	x.pn.Set(rowsOf(x.xn, x.cols))
	run, c := fma.Run{Workers: x.halt.Workers()}, square(v, x.cols)
	step := max(subRows, subProducts/max(1, len(x.xp)+len(x.xn))/subRows*subRows)
	for ; row < x.cols; row = min(row+step, x.cols) {
		if x.halt.Stopped() {
			return row
		}
		to := min(row+step, x.cols)
		x.pp.Syrk(run, -1, c, row, to)
		x.pn.Syrk(run, 1, c, row, to)
	}
	return row
}

// addGram adds sign·XᵀX to the lower triangle of v, for one part X of x.
func (x *Expansion) addGram(v []float64, sign float64, part []float64) {
	fma.Syrk(fma.Run{Halt: x.halt}, sign, rowsOf(part, x.cols).T(), square(v, x.cols))
}

// Solve replaces w by u = (I + ΔC)⁻¹w. If w = δ − Δm0, the mean moves by Cu.
//
// For the variables with Δ > 0, u = S½ B⁻¹(S⁻½w − S½Cw′), where w′ is w with zeros for these
// variables. No large terms cancel, however large Δ is.
func (f *SiteFactor) Solve(w []float64) {
	if len(f.Neg) > 0 {
		// Solve I + ΔC = (I − S V₁)(I + Δ₊C), beginning with the left factor.
		f.u = Resize(f.u, f.n)
		copy(f.u, w)
		f.solvePos(f.u)
		f.MulC(f.u)
		r := f.r[:len(f.Neg)]
		for a, i := range f.Neg {
			r[a] = f.sn[a] * f.T[i]
		}
		PotrsUntil(f.Halt, f.ln, r)
		for a, i := range f.Neg {
			w[i] += f.sn[a] * r[a]
		}
	}
	f.solvePos(w)
}

// solvePos is like Solve, but applies only the positive changes.
func (f *SiteFactor) solvePos(w []float64) {
	r := f.r[:len(f.Pos)]
	for a, i := range f.Pos {
		r[a] = w[i] / f.Sp[a]
		w[i] = 0
	}
	if len(f.Pos) < f.n {
		f.MulC(w)
		for a, i := range f.Pos {
			r[a] -= f.Sp[a] * f.T[i]
		}
	}
	PotrsUntil(f.Halt, f.Lp, r)
	for a, i := range f.Pos {
		w[i] = f.Sp[a] * r[a]
	}
}

// MulC stores Cw in T.
func (f *SiteFactor) MulC(w []float64) {
	clear(f.T)
	fma.Symv(fma.Run{Halt: f.Halt}, 1, square(f.C, f.n), w, f.T)
}

// Potrs replaces r by (LLᵀ)⁻¹r, for L of the size of r.
func Potrs(l, r []float64) { PotrsUntil(nil, l, r) }

// PotrsUntil is Potrs on the goroutines that h lends. It returns early where h has stopped.
func PotrsUntil(h *parallel.Halt, l, r []float64) {
	if n, run := len(r), (fma.Run{Halt: h}); n > 0 {
		fma.Trsv(run, square(l, n), r, false)
		fma.Trsv(run, square(l, n), r, true)
	}
}

// Normally a variance is c − ‖x‖², with a rounding error proportional to c. If a site shrinks its
// own variance by more than StrongSite, ΔV = I − B⁻¹ gives the variance with an error
// proportional to 1/Δ.
const (
	StrongSite = 1e4 // a site is strong above this ΔC_ii
	// Above StrongestSite, V has lost the digits of C, so a site with this ΔC_ii can be weakened
	// only by starting from C again.
	StrongestSite = 1e15
	leastPart     = 1e-10 // sites that strong are not resolved below this LeastPart
	LeastShrink   = 1e-10 // a variance without a strong site is not resolved below this V_ii/C_ii
)

// Strong reports whether a positive change shrinks its variance by more than StrongSite.
func (f *SiteFactor) Strong() bool { return f.Strongest() > StrongSite }

// Strongest returns the largest ΔC_ii, which is 0 if no change is positive.
func (f *SiteFactor) Strongest() (most float64) {
	for a, i := range f.Pos {
		most = math.Max(most, f.Sp[a]*f.Sp[a]*f.C[i*f.n+i])
	}
	return most
}

// Weakest returns the smallest ΔC_ii of the positive changes, or +Inf without positive changes.
func (f *SiteFactor) Weakest() float64 {
	least := math.Inf(1)
	for a, i := range f.Pos {
		least = math.Min(least, f.Sp[a]*f.Sp[a]*f.C[i*f.n+i])
	}
	return least
}

// Variances stores the diagonal of V in v, given the expansion of C. It reports whether every
// element is resolved, which means that it is larger than its rounding error.
func (f *SiteFactor) Variances(v []float64, x *Expansion) bool {
	n := f.n
	for i := range n {
		v[i] = f.C[i*n+i]
	}
	x.SubVar(v)
	if !f.Strong() {
		return f.resolved(v)
	}
	// For strong sites, the variance is (1 − ‖L⁻¹e_i‖²)/Δ_i, plus the effect of the negative
	// changes.
	p := len(f.Pos)
	f.inv = room(f.inv, p*p, f.n*f.n)
	copy(f.inv, f.Lp)
	InvertLower(f.Halt, f.inv, p)
	norm := f.r[:p]
	columnSquares(f.Halt, norm, f.inv, p)
	for a, i := range f.Pos {
		d := f.Sp[a] * f.Sp[a]
		if d*f.C[i*n+i] <= StrongSite {
			continue
		}
		v[i] = (1 - norm[a]) / d
		for k := i; k < len(x.xn); k += x.cols {
			v[i] += x.xn[k] * x.xn[k]
		}
	}
	return f.resolved(v)
}

// resolved reports whether every variance in v is larger than its rounding error. The variance of
// a strong site must be positive. Any other variance must be at least LeastShrink times its value
// in C.
func (f *SiteFactor) resolved(v []float64) bool {
	if f.Strongest() > StrongestSite && f.LeastPart() < leastPart {
		return false
	}
	next := 0
	for i, vi := range v {
		var site float64
		if next < len(f.Pos) && f.Pos[next] == i {
			site = f.Sp[next] * f.Sp[next] * f.C[i*f.n+i]
			next++
		}
		strong := site > StrongSite
		if strong && !(vi > 0) || !strong && !(vi >= LeastShrink*f.C[i*f.n+i]) {
			return false
		}
	}
	return true
}

// Left stores 1 − Δ_iV_ii in dst, given the n×n covariance v. This is the fraction of a
// variable's precision that remains without its change. Without negative changes, the result
// keeps digits that a difference from 1 would lose.
func (f *SiteFactor) Left(dst, v []float64) {
	n := f.n
	for i := range dst {
		dst[i] = 1
	}
	for a, i := range f.Neg {
		dst[i] += f.sn[a] * f.sn[a] * v[i*n+i]
	}
	if len(f.Neg) > 0 || !f.Strong() {
		for a, i := range f.Pos {
			dst[i] -= f.Sp[a] * f.Sp[a] * v[i*n+i]
		}
		return
	}
	p := len(f.Pos)
	f.inv = room(f.inv, p*p, n*n)
	copy(f.inv, f.Lp)
	InvertLower(f.Halt, f.inv, p)
	for _, i := range f.Pos {
		dst[i] = 0
	}
	for a := range p { // diagonal of B⁻¹
		for b, l := range f.inv[a*p : a*p+a+1] {
			dst[f.Pos[b]] += l * l
		}
	}
}

// Covariance stores V in the lower triangle of the n×n matrix v, given the expansion of C.
func (f *SiteFactor) Covariance(v []float64, x *Expansion) {
	n, p := f.n, len(f.Pos)
	Copy(f.Halt, v, f.C)
	x.addGram(v, -1, x.xp)
	if f.Strong() {
		f.inv = room(f.inv, p*p, f.n*f.n)
		copy(f.inv, f.Lp)
		InvertUntil(f.Halt, f.inv, p)
		for a, i := range f.Pos {
			if f.Sp[a]*f.Sp[a]*f.C[i*n+i] <= StrongSite {
				continue
			}
			for b, j := range f.Pos[:a] {
				if f.Sp[b]*f.Sp[b]*f.C[j*n+j] > StrongSite {
					v[i*n+j] = -f.inv[a*p+b] / (f.Sp[a] * f.Sp[b])
				}
			}
			v[i*n+i] = (1 - f.inv[a*p+a]) / (f.Sp[a] * f.Sp[a])
		}
	}
	x.addGram(v, 1, x.xn)
}
