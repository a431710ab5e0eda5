package gauss

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file makes an Arrow the covariance of a finished posterior. Posteriors of GLMs with
// GLMOptions.Groups have one.

var _ Cov = (*Arrow)(nil)

// Inverse returns the covariance of the border, M×M, both triangles. It computes it once.
func (c *Arrow) Inverse() []float64 {
	c.once.Do(func() {
		c.cov = c.InverseUntil(nil, nil)
		c.where = make([]int32, c.Cols)
		for j := range c.where {
			c.where[j] = -1
		}
		for i, j := range c.Border {
			c.where[j] = int32(i)
		}
	})
	return c.cov
}

// InverseUntil stores the covariance of the border in dst. A nil dst allocates.
func (c *Arrow) InverseUntil(h *parallel.Halt, dst []float64) []float64 {
	m := len(c.Border)
	dst = append(dst[:0], c.Chol...)
	dense.InvertUntil(h, dst, m)
	dense.FillUpper(dst, m)
	if c.Crossed() {
		c.Unwhiten(dst)
	}
	return dst
}

// Unwhiten replaces a by L̃aL̃ᵀ. Both triangles of a are M×M.
func (c *Arrow) Unwhiten(a []float64) {
	m := len(c.Border)
	for i := range m {
		c.FromUnits(a[i*m : (i+1)*m])
	}
	for k := range c.Blocks[1:] {
		b, l := &c.Blocks[k+1], c.L[k+1]
		at := c.Offset(k + 1)
		for g := range b.Levels {
			first := at + g*b.Q
			for i := b.Q - 1; i >= 0; i-- {
				row := a[(first+i)*m : (first+i+1)*m]
				floats.Scale(l[i*b.Q+i], row)
				for j := range i {
					floats.AddScaled(row, l[i*b.Q+j], a[(first+j)*m:(first+j+1)*m])
				}
			}
		}
	}
}

// arrowRow is a vector of weights x in the coordinates of an Arrow. The levels of the first factor
// in x are eliminated: r is x_w − Σ E_gᵀx_g, and own is Σ x_gᵀR_gx_g.
type arrowRow struct {
	r       []float64 // M numbers, zero except at the common weights and touched
	touched []int32   // columns of r beyond the common ones that may not be zero, with repetitions
	own     float64
	effects [MostEffects]float64 // x_g of the present level

	// near is the lower triangle of the covariance of the border at the columns nearOf, row by row, and
	// at holds r there. Rows of the same level share it.
	near, at []float64
	nearOf   []int32
}

// set stores the row with the given values. Nil columns mean all weights in order.
func (t *arrowRow) set(c *Arrow, ind []int32, val []float64) {
	t.clear(c)
	f := &c.Blocks[0]
	last := -1
	for k, z := range val {
		j := k
		if ind != nil {
			j = int(ind[k])
		}
		if z == 0 {
			continue
		}
		if w := c.where[j]; w >= 0 {
			t.r[w] += z
			if int(w) >= c.Common {
				t.touched = append(t.touched, w)
			}
			continue
		}
		g := (j - f.First) / f.Q
		if g != last && last >= 0 {
			t.flush(c, last)
		}
		last = g
		t.effects[(j-f.First)%f.Q] += z
	}
	if last >= 0 {
		t.flush(c, last)
	}
	slices.Sort(t.touched)
	t.touched = slices.Compact(t.touched)
}

// flush eliminates level g with the effects collected.
func (t *arrowRow) flush(c *Arrow, g int) {
	q, width := c.Blocks[0].Q, c.Width(g)
	for i := range q {
		x := t.effects[i]
		for j := range q {
			t.own += x * t.effects[j] * c.R[(g*q+i)*q+j]
		}
		at := c.Ptr[g] + i*width
		AddTimes(t.r[:c.Common], -x, c.E[at:at+c.Common])
		for k, e := range c.E[at+c.Common : at+width] {
			t.r[c.Pat[g][k]] -= x * e
		}
	}
	t.touched = append(t.touched, c.Pat[g]...)
	clear(t.effects[:])
}

// clear makes r zero again.
func (t *arrowRow) clear(c *Arrow) {
	t.r = dense.Resize(t.r, len(c.Border))
	clear(t.r[:c.Common])
	for _, i := range t.touched {
		t.r[i] = 0
	}
	t.touched, t.own = t.touched[:0], 0
}

// arrowRows holds rows of zeros for reuse, because a prediction needs one.
var arrowRows = sync.Pool{New: func() any { return new(arrowRow) }}

// newArrowRow returns a row of zeros. Its done method returns it for reuse.
func newArrowRow(c *Arrow) *arrowRow {
	t := arrowRows.Get().(*arrowRow)
	t.r = dense.Resize(t.r, len(c.Border))
	return t
}

// done clears t for reuse.
func (t *arrowRow) done() {
	clear(t.r)
	t.touched, t.nearOf = t.touched[:0], t.nearOf[:0]
	arrowRows.Put(t)
}

// mostNear is the number of columns up to which a row copies the covariances of its columns.
const mostNear = 512

// setNear makes near the covariances of the touched columns. They are spread over the covariance of the
// border, so reading them takes longer than the product.
func (t *arrowRow) setNear(c *Arrow) {
	if slices.Equal(t.touched, t.nearOf) {
		return
	}
	m := len(c.Border)
	t.nearOf, t.near = append(t.nearOf[:0], t.touched...), t.near[:0]
	for k, i := range t.touched {
		row := c.cov[int(i)*m : (int(i)+1)*m]
		for _, j := range t.touched[:k+1] {
			t.near = append(t.near, row[j])
		}
	}
}

// variance returns rᵀS⁻¹r + own.
func (t *arrowRow) variance(c *Arrow) float64 {
	p, m, d := c.cov, len(c.Border), c.Common
	v := t.own
	for i := range d {
		v += t.r[i] * (2*floats.Dot(p[i*m:i*m+i], t.r[:i]) + p[i*m+i]*t.r[i])
	}
	if len(t.touched) > mostNear {
		for k, i32 := range t.touched {
			i := int(i32)
			s := floats.Dot(p[i*m:i*m+d], t.r[:d])
			for _, j := range t.touched[:k] {
				s += p[i*m+int(j)] * t.r[j]
			}
			v += t.r[i] * (2*s + p[i*m+i]*t.r[i])
		}
		return v
	}
	t.setNear(c)
	t.at = t.at[:0]
	for _, j := range t.touched {
		t.at = append(t.at, t.r[j])
	}
	near := t.near
	for k, i32 := range t.touched { // the additions have the same order as above
		i := int(i32)
		s, r := floats.Dot(p[i*m:i*m+d], t.r[:d]), t.at[k]
		for l, x := range t.at[:k] {
			s += near[l] * x
		}
		v += r * (2*s + near[k]*r)
		near = near[k+1:]
	}
	return v
}

// arrowPart is the number of rows whose variances a goroutine computes at a time.
const arrowPart = 1024

// Variances implements Cov. It computes the rows of a level one after the other, because they meet the
// same columns of the border.
func (c *Arrow) Variances(dst []float64, x *design.Matrix, index []int) {
	c.Inverse()
	order := c.byLevel(x, index, len(dst))
	parallel.For(len(dst), arrowPart, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		t := newArrowRow(c)
		defer t.done()
		for a := lo; a < hi; a++ {
			to := dense.Index(order, a)
			ind, val := x.Row(dense.Index(index, to))
			t.set(c, ind, val)
			dst[to] = t.variance(c)
		}
	})
}

// byLevel returns the numbers of the n rows of x at index, sorted by their level of the first factor.
// It returns nil, the order of the rows, if the order does not matter.
func (c *Arrow) byLevel(x *design.Matrix, index []int, n int) []int {
	if !c.Crossed() || x.Sparse == nil || n < 2 {
		return nil
	}
	f := &c.Blocks[0]
	order, level := make([]int, n), make([]int32, n)
	for a := range n {
		order[a], level[a] = a, int32(f.Levels)
		ind, _ := x.Row(dense.Index(index, a))
		for _, j := range ind {
			if c.where[j] < 0 {
				level[a] = int32((int(j) - f.First) / f.Q)
				break
			}
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(level[a], level[b]), cmp.Compare(a, b))
	})
	return order
}

// Diag implements Cov.
func (c *Arrow) Diag(dst []float64) {
	f := &c.Blocks[0]
	c.BorderDiag(dst)
	t, one := newArrowRow(c), []float64{1}
	defer t.done()
	ind := []int32{0}
	for j := f.First; j < f.End(); j++ {
		ind[0] = int32(j)
		t.set(c, ind, one)
		dst[j] = t.variance(c)
	}
}

// BorderDiag stores the variances of the weights of the border in dst, which has all weights.
func (c *Arrow) BorderDiag(dst []float64) {
	p, m := c.Inverse(), len(c.Border)
	for i, j := range c.Border {
		dst[j] = p[i*m+i]
	}
}

// fewBorder is the part of the border above which a product with its covariance takes all rows of
// the covariance at once.
const fewBorder = 0.25

// Mul implements Cov. The x of a row of data has few levels, so a few columns of the covariance of the
// border suffice.
func (c *Arrow) Mul(dst, x []float64) {
	p, m, f := c.Inverse(), len(c.Border), &c.Blocks[0]
	r, w := make([]float64, m), make([]float64, m)
	for i, j := range c.Border {
		r[i] = x[j]
	}
	c.times(blas.Trans, c.E, x[f.First:f.End()], r)
	few := 0
	for _, v := range r {
		if v != 0 {
			few++
		}
	}
	if float64(few) > fewBorder*float64(m) {
		dense.Gemv(blas.NoTrans, 1, dense.General(p, m, m), dense.Vector(r), 0, dense.Vector(w))
	} else {
		for i, v := range r {
			if v != 0 {
				fma.Axpy(v, p[i*m:(i+1)*m], w)
			}
		}
	}
	for i, j := range c.Border {
		dst[j] = w[i]
	}
	u := dst[f.First:f.End()]
	clear(u)
	c.times(blas.NoTrans, c.E, w, u)
	q := f.Q
	for i := range u {
		g := i / q
		u[i] += floats.Dot(c.R[i*q:(i+1)*q], x[f.First+g*q:f.First+(g+1)*q])
	}
}

// Sym implements Cov.
func (c *Arrow) Sym() *mat.SymDense {
	s := mat.NewSymDense(c.Cols, nil)
	x, y := make([]float64, c.Cols), make([]float64, c.Cols)
	for j := range c.Cols {
		x[j] = 1
		c.Mul(y, x)
		x[j] = 0
		for k := range j + 1 {
			s.SetSym(j, k, y[k])
		}
	}
	return s
}

// Draw implements Cov.
func (c *Arrow) Draw(dst []float64, rng *rand.Rand) error {
	m, f := len(c.Border), &c.Blocks[0]
	q := f.Q
	w, u := make([]float64, m), make([]float64, f.Levels*q)
	for i := range w {
		w[i] = rng.NormFloat64()
	}
	dense.Trsv(blas.Trans, dense.LowerTriangle(c.Chol, m), dense.Vector(w))
	c.FromUnits(w)
	for i, j := range c.Border {
		dst[j] += w[i]
	}
	c.times(blas.NoTrans, c.E, w, u)
	var l [MostEffects * MostEffects]float64
	var z [MostEffects]float64
	for g := range f.Levels {
		Root(l[:q*q], c.R[g*q*q:(g+1)*q*q], q)
		for i := range q {
			z[i] = rng.NormFloat64()
		}
		for i := range q {
			u[g*q+i] += floats.Dot(l[i*q:i*q+i+1], z[:i+1])
		}
	}
	floats.Add(dst[f.First:f.End()], u)
	return nil
}

// Root stores the Cholesky factor of the q×q matrix a in l. The matrix may be singular.
func Root(l, a []float64, q int) {
	clear(l)
	for i := range q {
		for j := range i + 1 {
			s := a[i*q+j] - floats.Dot(l[i*q:i*q+j], l[j*q:j*q+j])
			switch {
			case i == j && s > singular*a[i*q+i]:
				l[i*q+i] = math.Sqrt(s)
			case i != j && l[j*q+j] > 0:
				l[i*q+j] = s / l[j*q+j]
			}
		}
	}
}

// singular is the part of a variance below which rounding may have made the rest of it.
const singular = 1e-14

// mostDense is the largest number of weights of a dense Gaussian made of an Arrow.
const mostDense = 4000

// State implements Cov. The error wraps sentinel.ErrMemory if there are too many weights, and
// sentinel.ErrNotPosDef if V is singular because an effect does not vary between levels.
func (c *Arrow) State(h *parallel.Halt) (*Gaussian, error) {
	if c.Cols > mostDense {
		return nil, fmt.Errorf("pgsvi: a dense Gaussian of %d weights of a mixed model; at most %d "+
			"are supported: %w", c.Cols, mostDense, sentinel.ErrMemory)
	}
	prior, err := c.prior().StateUntil(h)
	if err != nil {
		return nil, err
	}
	d := c.Cols
	c.addPrecision(prior.P)
	s := &Gaussian{Halt: h}
	s.Resize(d)
	clear(s.Mean)
	copy(s.P, prior.P)
	ok := s.Factor()
	if err := h.Err(); err != nil {
		return nil, err
	}
	if s.Halt = nil; !ok {
		return nil, fmt.Errorf("pgsvi: posterior precision: %w", sentinel.ErrNotPosDef)
	}
	return s, nil
}

// prior returns the prior of c, with mean 0.
func (c *Arrow) prior() *Prior {
	p := &Prior{Mean: make([]float64, c.Cols), Prec: make([]float64, c.Cols)}
	for i, prec := range c.Prec {
		p.Prec[c.Border[i]] = prec
	}
	return c.PriorOf(p)
}

// PriorOf returns a copy of p with the L of c.
func (c *Arrow) PriorOf(p *Prior) *Prior {
	x := p.WithBlocks()
	for k, b := range c.Blocks {
		b.L = c.L[k]
		x.SetBlock(b)
	}
	return &x
}

// addPrecision adds XᵀΓX to the lower triangle of p, D×D.
func (c *Arrow) addPrecision(p []float64) {
	f, m, d := &c.Blocks[0], len(c.Border), c.Cols
	q := f.Q
	add := func(i, j int, x float64) { p[max(i, j)*d+min(i, j)] += x }
	for i := range m {
		for j := range i + 1 {
			add(c.Border[i], c.Border[j], c.Sums.A[i*m+j])
		}
	}
	for g := range f.Levels {
		width := c.Width(g)
		for i := range q {
			at := f.First + g*q + i
			for j := range i + 1 {
				add(at, f.First+g*q+j, c.Sums.D[(g*q+i)*q+j])
			}
			for k, x := range c.Sums.B[c.Ptr[g]+i*width : c.Ptr[g]+(i+1)*width] {
				col := k
				if k >= c.Common {
					col = int(c.Pat[g][k-c.Common])
				}
				add(at, c.Border[col], x)
			}
		}
	}
}

// Excess returns δᵀ(V⁻¹ − Λ0)δ = δᵀXᵀΓXδ, which is finite even if the prior of an effect has no
// precision.
func (c *Arrow) Excess(delta []float64) (square float64) {
	f, m := &c.Blocks[0], len(c.Border)
	q := f.Q
	w := make([]float64, m)
	for i, j := range c.Border {
		w[i] = delta[j]
	}
	for i := range m {
		a := c.Sums.A[i*m : i*m+i+1]
		square += w[i] * (2*floats.Dot(a[:i], w[:i]) + a[i]*w[i])
	}
	u := delta[f.First:f.End()]
	bw := make([]float64, len(u))
	c.times(blas.NoTrans, c.Sums.B, w, bw)
	for i, x := range u {
		g := i / q
		square += x * (floats.Dot(c.Sums.D[i*q:(i+1)*q], u[g*q:(g+1)*q]) - 2*bw[i])
	}
	return square
}
