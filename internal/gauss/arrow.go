package gauss

import (
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file factorizes the precision of a mixed model. Levels of one factor meet only in the other
// weights, so the precision has the shape of an arrow: one small block per level, and a border.
// Package site learns such models (arrow.go there), and arrow_cov.go uses the factor as a Cov.
//
// With u_g = Lv_g the effects of level g of the eliminated factor, v ~ N(0, I), and w the border,
//
//	M_g = I + LᵀD_gL   K_g = M_g⁻¹Lᵀ   R_g = LK_g   E_g = R_gB_g
//	S = Λ0 + A − Σ B_gᵀE_g
//	log|C|/|V| = Σ log|M_g| + log|S| − log|Λ0|
//	w ~ N(w̄, S⁻¹),   u_g | w ~ N(R_gh_g − E_gw, R_g),
//
// with the blocks A, B_g and D_g of XᵀΓX. The other factors in the border are also written in
// units of their own L. Nothing is divided by L, so L may be singular, as for a standard deviation
// of 0 or a correlation of ±1. (Bates, Mächler, Bolker and Walker, 2015, use the same coordinates.)

// Block is the prior of the effects of one grouping factor. It covers Q weights for each of Levels
// levels, side by side from weight First on. The effects of a level are N(0, LLᵀ).
type Block struct {
	First, Levels, Q int
	L                []float64 // Q×Q, lower triangle, row by row; LLᵀ may be singular
}

// End returns the weight after the last weight of b.
func (b *Block) End() int { return b.First + b.Levels*b.Q }

// Covariance returns Σ = LLᵀ, Q×Q.
func (b *Block) Covariance() []float64 {
	s := make([]float64, b.Q*b.Q)
	for i := range b.Q {
		for j := range b.Q {
			s[i*b.Q+j] = floats.Dot(b.L[i*b.Q:(i+1)*b.Q], b.L[j*b.Q:(j+1)*b.Q])
		}
	}
	return s
}

// Solve stores Λ0⁻¹x = LLᵀx of the weights of b in dst. Both have the weights of the model.
func (b *Block) Solve(dst, x []float64) {
	var t [MostEffects]float64
	for at := b.First; at < b.End(); at += b.Q {
		clear(t[:])
		for i := range b.Q {
			floats.AddScaled(t[:i+1], x[at+i], b.L[i*b.Q:i*b.Q+i+1])
		}
		for i := range b.Q {
			dst[at+i] = floats.Dot(b.L[i*b.Q:i*b.Q+i+1], t[:i+1])
		}
	}
}

// ArrowShape is the structure of an Arrow, which all states of a fit share.
type ArrowShape struct {
	Cols   int       // number of weights
	Border []int     // weights of the border: the common ones, and then the factors after the first
	Common int       // number of common weights
	Prec   []float64 // prior precisions of the common weights
	Blocks []Block   // the factors; the first is eliminated, and L is not used
	// Pat lists the columns of the border that level g meets besides the common ones, increasing.
	Pat [][]int32
	Ptr []int // B_g is B[Ptr[g]:Ptr[g+1]], Q rows of Common + len(Pat[g]) columns
	// Full reports that each level meets all columns of the border; see SetFull.
	Full bool
}

// NewArrowShape returns the shape of a model with the given prior, without Pat and Ptr. The factor
// with most weights is the first.
func NewArrowShape(p *Prior) *ArrowShape {
	s := &ArrowShape{Cols: len(p.Mean), Blocks: p.Blocks()}
	slices.SortStableFunc(s.Blocks, func(x, y Block) int { return y.Levels*y.Q - x.Levels*x.Q })
	for j := range s.Cols {
		if p.blockOf(j) == nil {
			s.Border = append(s.Border, j)
			s.Prec = append(s.Prec, p.Prec[j])
		}
	}
	s.Common = len(s.Border)
	for _, b := range s.Blocks[1:] {
		for j := b.First; j < b.End(); j++ {
			s.Border = append(s.Border, j)
		}
	}
	return s
}

// SetPtr sets Ptr from the other fields.
func (s *ArrowShape) SetPtr() {
	f := &s.Blocks[0]
	s.Ptr = make([]int, f.Levels+1)
	for g := range f.Levels {
		s.Ptr[g+1] = s.Ptr[g] + f.Q*s.Width(g)
	}
}

// SetFull sets Pat and Ptr so that each B_g has all columns of the border, for sums over rows that
// are not kept. Products of all levels then are products of large matrices.
func (s *ArrowShape) SetFull() {
	all := make([]int32, len(s.Border)-s.Common)
	for i := range all {
		all[i] = int32(s.Common + i)
	}
	s.Full, s.Pat = true, slices.Repeat([][]int32{all}, s.Blocks[0].Levels)
	s.SetPtr()
}

// Width returns the number of columns of B_g.
func (s *ArrowShape) Width(g int) int { return s.Common + len(s.Pat[g]) }

// Crossed reports whether there is more than one factor.
func (s *ArrowShape) Crossed() bool { return len(s.Blocks) > 1 }

// Offset returns the first column in the border of factor k, which is not the first factor.
func (s *ArrowShape) Offset(k int) int {
	at := s.Common
	for _, b := range s.Blocks[1:k] {
		at += b.Levels * b.Q
	}
	return at
}

// Sums are the blocks of XᵀΓX.
type Sums struct {
	A []float64 // border, M×M, lower triangle
	B []float64 // see ArrowShape.Ptr
	D []float64 // Q×Q of each level, both triangles
}

// Arrow is a Gaussian of the weights of a mixed model, in factorized form. Set Shape, L and Sums,
// and then call Factor.
type Arrow struct {
	*ArrowShape
	L    [][]float64 // L of each factor
	Sums Sums
	// K, R and E hold K_g, R_g and E_g of all levels, laid out like D and B.
	K, R, E []float64
	Chol    []float64 // Cholesky factor of S in units of the L, M×M
	LogDet  float64   // log|C|/|V|
	// Schur holds A − Σ B_gᵀE_g, M×M, both triangles, if KeepSchur is set.
	Schur     []float64
	KeepSchur bool

	once  sync.Once
	cov   []float64 // S⁻¹ in units of the weights, M×M, both triangles
	where []int32   // place of each weight in the border, or −1
}

// arrowLevels is the number of levels that a goroutine eliminates at a time.
const arrowLevels = 512

// mostDet is the size of a product of determinants at which its logarithm is taken.
const mostDet = 1e100

// MostEffects is the largest number of effects per level.
const MostEffects = 8

// Factor computes K, R, E, Chol and LogDet. It reports whether the precision is positive definite.
// If h has stopped, the result is invalid.
func (c *Arrow) Factor(h *parallel.Halt) bool {
	f := &c.Blocks[0]
	q2, m := f.Q*f.Q, len(c.Border)
	dense.ResizeAll(f.Levels*q2, &c.K, &c.R)
	c.E, c.Chol = dense.Resize(c.E, len(c.Sums.B)), dense.Resize(c.Chol, m*m)
	copy(c.Chol, c.Sums.A)
	parts := make([]float64, (f.Levels+arrowLevels-1)/arrowLevels)
	parallel.For(f.Levels, arrowLevels, h.Workers(), func(_, lo, hi int) {
		det := 1.0
		for g := lo; g < hi; g++ {
			if det *= c.eliminate(g); !(det < mostDet && det > 1/mostDet) {
				parts[lo/arrowLevels] += math.Log(det)
				det = 1
			}
		}
		parts[lo/arrowLevels] += math.Log(det)
	})
	c.LogDet = floats.Sum(parts)
	if math.IsNaN(c.LogDet) || math.IsInf(c.LogDet, 0) {
		return false
	}
	c.complement(h)
	if c.Crossed() || c.KeepSchur {
		dense.FillUpper(c.Chol, m)
	}
	if c.KeepSchur {
		c.Schur = append(c.Schur[:0], c.Chol...)
	}
	for i, p := range c.Prec {
		c.Chol[i*m+i] += p
		c.LogDet -= math.Log(p)
	}
	if c.Crossed() {
		c.whiten(c.Chol)
		for i := c.Common; i < m; i++ {
			c.Chol[i*m+i]++
		}
	}
	if m > 0 && !dense.CholeskyUntil(h, c.Chol, m) {
		return false
	}
	c.LogDet += dense.LogDet(c.Chol, m)
	return !math.IsNaN(c.LogDet)
}

// eliminate computes K_g, R_g and E_g. It returns |M_g|, or NaN if M_g is not positive definite.
func (c *Arrow) eliminate(g int) (det float64) {
	f, l := &c.Blocks[0], c.L[0]
	q := f.Q
	d, k, r := c.Sums.D[g*q*q:(g+1)*q*q], c.K[g*q*q:(g+1)*q*q], c.R[g*q*q:(g+1)*q*q]
	switch q {
	case 1:
		det = 1 + l[0]*l[0]*d[0]
		k[0] = l[0] / det
		r[0] = l[0] * k[0]
	case 2:
		det = eliminateTwo(k, r, d, l)
	default:
		det = eliminateMany(k, r, d, l, q)
	}
	if !(det > 0) {
		return math.NaN()
	}
	width := c.Width(g)
	b, e := c.Sums.B[c.Ptr[g]:c.Ptr[g+1]], c.E[c.Ptr[g]:c.Ptr[g+1]]
	clear(e)
	for i := range q {
		for j := range q {
			AddTimes(e[i*width:(i+1)*width], r[i*q+j], b[j*width:(j+1)*width])
		}
	}
	return det
}

// eliminateTwo stores K_g and R_g of two effects in k and r, and returns |M_g|.
func eliminateTwo(k, r, d, l []float64) (det float64) {
	l0, l1, l2 := l[0], l[2], l[3]
	x, y := d[0]*l0+d[1]*l1, d[2]*l0+d[3]*l1 // D_gL
	w := d[3] * l2
	m0, m1, m2 := 1+l0*x+l1*y, l2*y, 1+l2*w
	if !(m0 > 0) {
		return math.NaN()
	}
	s := m2 - m1*m1/m0
	det = m0 * s
	// column j of M⁻¹Lᵀ, by elimination
	k[2], k[3] = -m1/m0*l0/s, (l2-m1/m0*l1)/s
	k[0], k[1] = (l0-m1*k[2])/m0, (l1-m1*k[3])/m0
	r[0], r[1] = l0*k[0], l0*k[1]
	r[2], r[3] = l1*k[0]+l2*k[2], l1*k[1]+l2*k[3]
	return det
}

// eliminateMany is eliminateTwo for q effects.
func eliminateMany(k, r, d, l []float64, q int) (det float64) {
	var dl, mg [MostEffects * MostEffects]float64
	SmallMul(dl[:], d, l, q)
	SmallMulT(mg[:], l, dl[:], q)
	for j := range q {
		mg[j*q+j]++
	}
	if det = smallCholesky(mg[:q*q], q); math.IsNaN(det) {
		return det
	}
	var col [MostEffects]float64
	for j := range q { // column j of Lᵀ
		clear(col[:])
		copy(col[:j+1], l[j*q:j*q+j+1])
		smallSolve(mg[:], col[:q])
		for i := range q {
			k[i*q+j] = col[i]
		}
	}
	SmallMul(r, l, k, q)
	return det
}

// complement subtracts Σ B_gᵀE_g from Chol.
func (c *Arrow) complement(h *parallel.Halt) {
	f, m, d := &c.Blocks[0], len(c.Border), c.Common
	if c.Full || !c.Crossed() {
		if rows := f.Levels * f.Q; m > 0 && rows > 0 {
			fma.Gemm(fma.Run{Halt: h}, -1, fma.Of(c.Sums.B, rows, m, m).T(),
				fma.Of(c.E, rows, m, m), fma.Of(c.Chol, m, m, m))
		}
		return
	}
	for g := range f.Levels {
		if h.Stopped() {
			return
		}
		width, pat := c.Width(g), c.Pat[g]
		for j := range f.Q {
			at := c.Ptr[g] + j*width
			b, e := c.Sums.B[at:at+width], c.E[at:at+width]
			for i, x := range b[:d] {
				if x != 0 {
					AddTimes(c.Chol[i*m:i*m+i+1], -x, e[:i+1])
				}
			}
			for i, x := range b[d:] {
				if x == 0 {
					continue
				}
				row := c.Chol[int(pat[i])*m:]
				AddTimes(row[:d], -x, e[:d])
				for k, y := range e[d : d+i+1] {
					row[pat[k]] -= x * y
				}
			}
		}
	}
}

// whiten replaces a by L̃ᵀaL̃, where L̃ holds the L of the factors in the border and ones for the
// common weights. Both triangles of a are M×M.
func (c *Arrow) whiten(a []float64) {
	m := len(c.Border)
	for i := range m {
		c.ToUnits(a[i*m : (i+1)*m])
	}
	for k := range c.Blocks[1:] {
		b, l := &c.Blocks[k+1], c.L[k+1]
		at := c.Offset(k + 1)
		for g := range b.Levels {
			first := at + g*b.Q
			for i := range b.Q {
				row := a[(first+i)*m : (first+i+1)*m]
				floats.Scale(l[i*b.Q+i], row)
				for j := i + 1; j < b.Q; j++ {
					fma.Axpy(l[j*b.Q+i], a[(first+j)*m:(first+j+1)*m], row)
				}
			}
		}
	}
}

// ToUnits replaces the vector r of the border by L̃ᵀr.
func (c *Arrow) ToUnits(r []float64) {
	for k := range c.Blocks[1:] {
		b, l := &c.Blocks[k+1], c.L[k+1]
		at := c.Offset(k + 1)
		for g := range b.Levels {
			x := r[at+g*b.Q : at+(g+1)*b.Q]
			for i := range x {
				x[i] *= l[i*b.Q+i]
				for j := i + 1; j < b.Q; j++ {
					x[i] += l[j*b.Q+i] * x[j]
				}
			}
		}
	}
}

// FromUnits replaces the vector r of the border by L̃r.
func (c *Arrow) FromUnits(r []float64) {
	for k := range c.Blocks[1:] {
		b, l := &c.Blocks[k+1], c.L[k+1]
		at := c.Offset(k + 1)
		for g := range b.Levels {
			x := r[at+g*b.Q : at+(g+1)*b.Q]
			for i := b.Q - 1; i >= 0; i-- {
				x[i] *= l[i*b.Q+i]
				for j := range i {
					x[i] += l[i*b.Q+j] * x[j]
				}
			}
		}
	}
}

// ArrowMean is a mean of an Arrow: the border, in its own units and in units of L̃, and the effects
// of the levels of the first factor, as u_g and as v_g.
type ArrowMean struct{ W, Unit, U, V []float64 }

// Solve stores the mean for the linear coefficients hb of the border and hg of the levels in x. It
// returns the square of the mean in the prior precision, which is |Unit|² + |V|² if the common
// weights count with their precisions. scratch has the length of hg.
func (c *Arrow) Solve(x *ArrowMean, hb, hg, scratch []float64) (square float64) {
	f, d, m := &c.Blocks[0], c.Common, len(c.Border)
	q, rows := f.Q, f.Levels*f.Q
	dense.ResizeAll(m, &x.W, &x.Unit)
	dense.ResizeAll(rows, &x.U, &x.V)
	copy(x.Unit, hb)
	r := scratch[:rows]
	copy(r, hg)
	c.times(blas.Trans, c.E, hg[:rows], x.Unit)
	c.ToUnits(x.Unit)
	dense.Potrs(c.Chol, x.Unit)
	for i, p := range c.Prec {
		square += p * x.Unit[i] * x.Unit[i]
	}
	square += floats.Dot(x.Unit[d:], x.Unit[d:])
	copy(x.W, x.Unit)
	c.FromUnits(x.W)
	c.times(blas.NoTrans, c.Sums.B, x.W, r)
	l := c.L[0]
	for g := range f.Levels {
		k, h := c.K[g*q*q:(g+1)*q*q], r[g*q:(g+1)*q]
		v, u := x.V[g*q:(g+1)*q], x.U[g*q:(g+1)*q]
		for i := range q {
			v[i] = 0
			for j, y := range h {
				v[i] += k[i*q+j] * y
			}
			square += v[i] * v[i]
		}
		for i := range q {
			u[i] = 0
			for j := range i + 1 {
				u[i] += l[i*q+j] * v[j]
			}
		}
	}
	return square
}

// Reduce subtracts Σ E_gᵀr_g from the vector w of the border, for coefficients r of all levels.
func (c *Arrow) Reduce(r, w []float64) { c.times(blas.Trans, c.E, r, w) }

// Residual subtracts B_gw from the coefficients r of all levels, for a vector w of the border.
func (c *Arrow) Residual(w, r []float64) { c.times(blas.NoTrans, c.Sums.B, w, r) }

// times subtracts from y the product of the blocks a, laid out like B, with x, or the product of
// their transposes.
func (c *Arrow) times(t blas.Transpose, a, x, y []float64) {
	f, d, m := &c.Blocks[0], c.Common, len(c.Border)
	rows := f.Levels * f.Q
	if c.Full || !c.Crossed() {
		if m > 0 && rows > 0 {
			dense.Gemv(t, -1, dense.General(a, rows, m), dense.Vector(x), 1, dense.Vector(y))
		}
		return
	}
	for g := range f.Levels {
		width, pat := c.Width(g), c.Pat[g]
		for j := range f.Q {
			at, i := c.Ptr[g]+j*width, g*f.Q+j
			row := a[at : at+width]
			if t == blas.Trans {
				if x[i] == 0 {
					continue
				}
				AddTimes(y[:d], -x[i], row[:d])
				for k, z := range row[d:] {
					y[pat[k]] -= z * x[i]
				}
				continue
			}
			y[i] -= floats.Dot(row[:d], x[:d])
			for k, z := range row[d:] {
				y[i] -= z * x[pat[k]]
			}
		}
	}
}

// fewElements is the length up to which a loop in Go takes less time than a call of fma.Axpy.
const fewElements = 24

// AddTimes adds a·x to y.
func AddTimes(y []float64, a float64, x []float64) {
	if len(x) > fewElements {
		fma.Axpy(a, x, y)
		return
	}
	y = y[:len(x)]
	for i, v := range x {
		y[i] += a * v
	}
}

// SmallMul stores the product of the q×q matrices x and y in dst.
func SmallMul(dst, x, y []float64, q int) { smallProduct(dst, x, y, q, q, 1) }

// SmallMulT stores xᵀy in dst.
func SmallMulT(dst, x, y []float64, q int) { smallProduct(dst, x, y, q, 1, q) }

// smallProduct is SmallMul for an x whose element (i, k) is x[i·row + k·col].
func smallProduct(dst, x, y []float64, q, row, col int) {
	for i := range q {
		for j := range q {
			var s float64
			for k := range q {
				s += x[i*row+k*col] * y[k*q+j]
			}
			dst[i*q+j] = s
		}
	}
}

// smallCholesky replaces the lower triangle of the q×q matrix a by its Cholesky factor. It returns
// the determinant of a, or NaN if a is not positive definite.
func smallCholesky(a []float64, q int) (det float64) {
	det = 1
	for i := range q {
		for j := range i + 1 {
			s := a[i*q+j]
			for k := range j {
				s -= a[i*q+k] * a[j*q+k]
			}
			if i != j {
				a[i*q+j] = s / a[j*q+j]
				continue
			}
			if !(s > 0) {
				return math.NaN()
			}
			det *= s
			a[i*q+i] = math.Sqrt(s)
		}
	}
	return det
}

// smallSolve replaces b by (LLᵀ)⁻¹b, for a Cholesky factor l.
func smallSolve(l, b []float64) {
	q := len(b)
	for i := range q {
		for k := range i {
			b[i] -= l[i*q+k] * b[k]
		}
		b[i] /= l[i*q+i]
	}
	for i := q - 1; i >= 0; i-- {
		for k := i + 1; k < q; k++ {
			b[i] -= l[k*q+i] * b[k]
		}
		b[i] /= l[i*q+i]
	}
}

// CloneLists returns a copy of l.
func CloneLists(l [][]float64) [][]float64 {
	c := make([][]float64, len(l))
	for i, x := range l {
		c[i] = slices.Clone(x)
	}
	return c
}
