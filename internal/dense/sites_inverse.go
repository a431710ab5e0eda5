package dense

import (
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// weakSite is the smallest ΔC_ii for which (1 − (B⁻¹)_ii)/Δ_i is used, because its relative error
// is about Epsilon/(ΔC_ii).
const weakSite = 1e-6

// An Inverse computes variances and weights from the inverse of the factor of a SiteFactor. Each takes
// two thirds of n³ operations instead of four, plus O(n²) operations per negative change.
// Packages site and learn use it for dense GPs. An Inverse reuses its memory.
type Inverse struct {
	l    []float64 // L⁻¹
	y, x []float64 // L⁻ᵀL⁻¹S½C[Pos, Neg], and the rows X_n of an Expansion
	w    []float64 // the result of Weights, unless it is in l
	u    []float64
}

// Variances is like SiteFactor.Variances for the last Factor of f. Its results have fewer digits for
// variances that hardly change.
func (t *Inverse) Variances(f *SiteFactor, v []float64) bool {
	n, p, q := f.n, len(f.Pos), len(f.Neg)
	t.l, t.u = room(t.l, p*p, n*n), Resize(t.u, 2*n)
	CopyLower(f.Halt, t.l, f.Lp, p)
	InvertLower(f.Halt, t.l, p)
	norm, row := t.u[:p], t.u[n:n+p]
	columnSquares(f.Halt, norm, t.l, p)
	next := 0
	for i := range n {
		c := f.C[i*n+i]
		if next < p && f.Pos[next] == i {
			d := f.Sp[next] * f.Sp[next]
			next++
			if d*c > weakSite {
				v[i] = (1 - norm[next-1]) / d
				continue
			}
		}
		v[i] = c
		for b, j := range f.Pos {
			row[b] = f.Sp[b] * SymmetricAt(f.C, n, i, j)
		}
		for a := range p {
			x := floats.Dot(t.l[a*p:a*p+a+1], row[:a+1])
			v[i] -= x * x
		}
	}
	if q > 0 {
		t.y = room(t.y, p*q, n*n)
		copy(t.y, f.zn)
		if p > 0 {
			Trsm(blas.Left, blas.Trans, 1, LowerTriangle(f.Lp, p), General(t.y, p, q))
		}
		t.x = room(t.x, q*n, n*n)
		for k, i := range f.Neg {
			for j := range n {
				t.x[k*n+j] = SymmetricAt(f.C, n, i, j)
			}
		}
		for b, j := range f.Pos {
			for k := range q {
				if w := t.y[b*q+k] * f.Sp[b]; w != 0 {
					for i := range n {
						t.x[k*n+i] -= w * SymmetricAt(f.C, n, j, i)
					}
				}
			}
		}
		t.rows(f)
		for k := range q {
			for i, x := range t.x[k*n : (k+1)*n] {
				v[i] += x * x
			}
		}
	}
	return f.resolved(v)
}

// rows turns V₁[Neg, :]·rows in t.x into X_n.
func (t *Inverse) rows(f *SiteFactor) {
	q := len(f.Neg)
	for k, s := range f.sn {
		floats.Scale(s, t.x[k*f.n:(k+1)*f.n])
	}
	f.trsm(f.ln, q, t.x, f.n)
}

// Weights returns the lower triangle of W = C⁻¹ − C⁻¹VC⁻¹, n×n, with zeros in the other triangle.
// Call it once after Variances for the same Factor of f. The matrix is valid until the next
// Variances. If all changes are positive, it takes the place of L⁻¹.
func (t *Inverse) Weights(f *SiteFactor) []float64 {
	n, p, q := f.n, len(f.Pos), len(f.Neg)
	SquareLower(f.Halt, t.l, p)
	if p == n {
		if workers := sharedRows(f.Halt, n*n); workers > 1 {
			parallel.For(n, copiedRows, workers, func(_, lo, hi int) { t.scaleAll(f, lo, hi) })
		} else {
			t.scaleAll(f, 0, n)
		}
		return t.l
	}
	t.w = room(t.w, n*n, n*n)
	w := t.w
	clear(w)
	for a, i := range f.Pos {
		row, s := t.l[a*p:a*p+a+1], f.Sp[a]
		for b, j := range f.Pos[:a+1] {
			w[i*n+j] = s * f.Sp[b] * row[b]
		}
	}
	if q == 0 {
		return w
	}
	clear(t.x)
	for k, i := range f.Neg {
		t.x[k*n+i] = 1
		for b, j := range f.Pos {
			t.x[k*n+j] = -t.y[b*q+k] * f.Sp[b]
		}
	}
	t.rows(f)
	fma.Syrk(fma.Run{Halt: f.Halt}, -1, view(blas.Trans, General(t.x, q, n)), square(w, n))
	return w
}

// scaleAll turns rows lo … hi−1 of B⁻¹ into rows of W if all changes are positive.
func (t *Inverse) scaleAll(f *SiteFactor, lo, hi int) {
	n := f.n
	for i := lo; i < hi; i++ {
		row, s := t.l[i*n:(i+1)*n], f.Sp[i]
		for j, l := range row[:i+1] {
			row[j] = s * f.Sp[j] * l
		}
		clear(row[i+1:])
	}
}
