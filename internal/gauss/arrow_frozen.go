package gauss

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file holds the Gaussian of rows that are not kept: their sites have been added to the sums
// XᵀΓX and h = Xᵀb, and no longer change. An update with new rows sees only the border and the levels
// of these rows. The other levels are summed out,
//
//	A′ = A − Σ_{g∉T} B_gᵀE_g,   h′ = h − Σ_{g∉T} E_gᵀh_g,
//
// so a step costs as much as a step of a model of the levels in T. It does not change the effects of
// other levels given the border. Package site fits the rows (arrow_frozen.go there).

// Frozen is a Gaussian over the weights of a mixed model: the prior times the sites of rows. Weights
// are relative to the mean of the prior.
type Frozen struct {
	Prior  *Prior // with the present L
	Shape  *ArrowShape
	L      [][]float64 // L of each factor, in the order of Shape.Blocks
	Sums   Sums
	HB, HG []float64 // Xᵀb of the border and of the levels

	// Left and LeftH are A′, both triangles, and h′ without any level. Both are nil if unknown.
	Left, LeftH []float64
}

// NewFrozen returns a Frozen without rows.
func NewFrozen(prior *Prior) *Frozen {
	s := NewArrowShape(prior)
	f := &s.Blocks[0]
	s.Pat = make([][]int32, f.Levels)
	s.SetPtr()
	x := &Frozen{Prior: prior, Shape: s}
	for _, b := range s.Blocks {
		x.L = append(x.L, b.L)
	}
	m := len(s.Border)
	x.Sums = Sums{make([]float64, m*m), make([]float64, s.Ptr[f.Levels]),
		make([]float64, f.Levels*f.Q*f.Q)}
	x.HB, x.HG = make([]float64, m), make([]float64, f.Levels*f.Q)
	return x
}

// FrozenAt returns the Frozen with the covariance c and the given mean, whose prior has the L of c.
// If L is singular, the mean does not depend on all of h, and the rest of h is 0.
func FrozenAt(c *Arrow, prior *Prior, mean []float64) *Frozen {
	shape := *c.ArrowShape
	shape.Full, shape.Pat = false, slices.Clone(c.Pat)
	f, m := &shape.Blocks[0], len(shape.Border)
	x := &Frozen{Prior: prior, Shape: &shape, L: CloneLists(c.L), Sums: c.Sums.Clone(),
		HB: make([]float64, m), HG: make([]float64, f.Levels*f.Q)}
	w, r, u := make([]float64, m), make([]float64, c.Cols), mean[f.First:f.End()]
	prior.Mul(r, mean, 1)
	for i, j := range shape.Border {
		w[i], x.HB[i] = mean[j], r[j]
	}
	copy(x.HG, r[f.First:f.End()])
	// h = Λ0m + XᵀΓXm
	for i := range m {
		a := c.Sums.A[i*m : i*m+i+1]
		AddTimes(x.HB[:i], w[i], a[:i])
		x.HB[i] += floats.Dot(a, w[:i+1])
	}
	minus := func(v []float64) []float64 {
		v = slices.Clone(v)
		floats.Scale(-1, v)
		return v
	}
	c.times(blas.Trans, c.Sums.B, minus(u), x.HB)
	c.times(blas.NoTrans, c.Sums.B, minus(w), x.HG)
	for i := range x.HG {
		g := i / f.Q
		x.HG[i] += floats.Dot(c.Sums.D[i*f.Q:(i+1)*f.Q], u[g*f.Q:(g+1)*f.Q])
	}
	return x
}

// Clone returns a copy.
func (x *Frozen) Clone() *Frozen {
	c, shape := *x, *x.Shape
	shape.Pat = slices.Clone(shape.Pat)
	c.Shape, c.L, c.Sums = &shape, CloneLists(x.L), x.Sums.Clone()
	c.HB, c.HG = slices.Clone(x.HB), slices.Clone(x.HG)
	return &c
}

// SetL makes l the L of the factors.
func (x *Frozen) SetL(l [][]float64) {
	x.L, x.Left = CloneLists(l), nil
	x.Prior = x.Arrow().PriorOf(x.Prior)
}

// Under returns x with all sites to the power c, under a prior with the same blocks. It keeps L.
func (x *Frozen) Under(prior *Prior, c float64) *Frozen {
	y := x.Clone()
	for _, v := range [][]float64{y.Sums.A, y.Sums.B, y.Sums.D, y.HB, y.HG} {
		floats.Scale(c, v)
	}
	y.Shape.Prec = make([]float64, y.Shape.Common)
	for i, j := range y.Shape.Border[:y.Shape.Common] {
		y.Shape.Prec[i] = prior.Prec[j]
	}
	y.Prior = prior
	y.SetL(x.L)
	return y
}

// Arrow returns the Arrow of x, which is not factorized and shares its sums.
func (x *Frozen) Arrow() *Arrow { return &Arrow{ArrowShape: x.Shape, L: x.L, Sums: x.Sums} }

// Solve returns the mean and the covariance. It returns an error that wraps sentinel.ErrNotPosDef if
// the precision is not positive definite, and the error of h if h has stopped. The covariance owns
// its memory.
func (x *Frozen) Solve(h *parallel.Halt) (mean []float64, c *Arrow, err error) {
	y := x.Clone()
	c = y.Arrow()
	ok := c.Factor(h)
	if err := h.Err(); err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, fmt.Errorf("posterior precision: %w", sentinel.ErrNotPosDef)
	}
	var m ArrowMean
	c.Solve(&m, x.HB, x.HG, make([]float64, len(x.HG)))
	return c.joined(&m), c, nil
}

// joined returns the mean m in the order of the weights.
func (c *Arrow) joined(m *ArrowMean) []float64 {
	mean, f := make([]float64, c.Cols), &c.Blocks[0]
	for i, j := range c.Border {
		mean[j] = m.W[i]
	}
	copy(mean[f.First:f.End()], m.U)
	return mean
}

// reduce computes Left and LeftH.
func (x *Frozen) reduce(h *parallel.Halt) error {
	if x.Left != nil {
		return nil
	}
	c := x.Arrow()
	c.KeepSchur = true
	ok := c.Factor(h)
	if err := h.Err(); err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("posterior precision: %w", sentinel.ErrNotPosDef)
	}
	x.Left, x.LeftH = c.Schur, slices.Clone(x.HB)
	c.Reduce(x.HG, x.LeftH)
	return nil
}

// FrozenPart is the marginal distribution of the border and of some levels of the first factor, as a
// Frozen of its own.
type FrozenPart struct {
	*Frozen
	// Weight holds the weight of each weight of the part.
	Weight []int32

	of     *Frozen
	levels []int
	a, h   []float64 // A and h of the border before rows were added
}

// Part returns the part with the given levels, in increasing order. It may have more levels.
func (x *Frozen) Part(levels []int, h *parallel.Halt) (*FrozenPart, error) {
	if err := x.reduce(h); err != nil {
		return nil, err
	}
	s := x.Shape
	f, m := &s.Blocks[0], len(s.Border)
	levels = x.enough(levels)
	q, rows := f.Q, len(levels)*f.Q
	p := &FrozenPart{of: x, levels: levels, Weight: make([]int32, rows+m)}
	for k, g := range levels {
		for c := range q {
			p.Weight[k*q+c] = int32(f.First + g*q + c)
		}
	}
	prior := Prior{Mean: make([]float64, rows+m), Prec: make([]float64, rows+m)}
	for i, j := range s.Border {
		p.Weight[rows+i] = int32(j)
	}
	for i, prec := range s.Prec {
		prior.Prec[rows+i] = prec
	}
	prior.SetBlock(Block{First: 0, Levels: len(levels), Q: q, L: x.L[0]})
	for k := range s.Blocks[1:] {
		b := s.Blocks[k+1]
		prior.SetBlock(Block{First: rows + s.Offset(k+1), Levels: b.Levels, Q: b.Q, L: x.L[k+1]})
	}
	p.Frozen = &Frozen{Prior: &prior, Shape: NewArrowShape(&prior), L: CloneLists(x.L)}
	p.Shape.Pat = make([][]int32, len(levels))
	for k, g := range levels {
		p.Shape.Pat[k] = s.Pat[g]
		p.Sums.B = append(p.Sums.B, x.Sums.B[s.Ptr[g]:s.Ptr[g+1]]...)
		p.Sums.D = append(p.Sums.D, x.Sums.D[g*q*q:(g+1)*q*q]...)
		p.HG = append(p.HG, x.HG[g*q:(g+1)*q]...)
	}
	p.Shape.SetPtr()
	p.restore(x.Left, x.LeftH, h)
	p.a, p.h = slices.Clone(p.Sums.A), slices.Clone(p.HB)
	return p, h.Err()
}

// enough returns the levels with more of them, so that the first factor keeps most weights.
func (x *Frozen) enough(levels []int) []int {
	blocks := x.Shape.Blocks
	f, need := &blocks[0], 1
	for _, b := range blocks[1:] {
		need = max(need, (b.Levels*b.Q+f.Q-1)/f.Q)
	}
	if need = min(need, f.Levels) - len(levels); need <= 0 {
		return levels
	}
	all := slices.Clone(levels)
	for g := 0; need > 0; g++ {
		if _, in := slices.BinarySearch(levels, g); !in {
			all = append(all, g)
			need--
		}
	}
	slices.Sort(all)
	return all
}

// restore sets A and h of the border so that left and leftH remain without the levels of x.
func (x *Frozen) restore(left, leftH []float64, h *parallel.Halt) {
	m, levels := len(x.Shape.Border), x.Shape.Blocks[0].Levels
	x.Sums.A = make([]float64, m*m)
	c := x.Arrow()
	q := x.Shape.Blocks[0].Q
	dense.ResizeAll(levels*q*q, &c.K, &c.R)
	c.E, c.Chol = make([]float64, len(c.Sums.B)), make([]float64, m*m)
	for g := range levels {
		c.eliminate(g)
	}
	c.complement(h)
	for i := range m {
		for j := range i + 1 {
			x.Sums.A[i*m+j] = left[i*m+j] - c.Chol[i*m+j]
		}
	}
	x.HB = make([]float64, m)
	c.Reduce(x.HG, x.HB)
	floats.SubTo(x.HB, leftH, x.HB)
}

// Merge returns the sums of p to the Frozen from which p was taken, after rows were added to p.
func (p *FrozenPart) Merge(h *parallel.Halt) error {
	p.Left = nil
	if err := p.reduce(h); err != nil {
		return err
	}
	x, s := p.of, p.of.Shape
	q := s.Blocks[0].Q
	floats.Add(x.Sums.A, p.Sums.A)
	floats.Sub(x.Sums.A, p.a)
	floats.Add(x.HB, p.HB)
	floats.Sub(x.HB, p.h)
	same := true
	for k, g := range p.levels {
		same = same && len(s.Pat[g]) == len(p.Shape.Pat[k])
	}
	b, ptr := x.Sums.B, s.Ptr
	if !same { // the layout of all levels changes
		for k, g := range p.levels {
			s.Pat[g] = p.Shape.Pat[k]
		}
		s.SetPtr()
		x.Sums.B = make([]float64, s.Ptr[s.Blocks[0].Levels])
		k := 0
		for g := range s.Pat {
			if k < len(p.levels) && p.levels[k] == g {
				k++
				continue
			}
			copy(x.Sums.B[s.Ptr[g]:s.Ptr[g+1]], b[ptr[g]:ptr[g+1]])
		}
	}
	for k, g := range p.levels {
		copy(x.Sums.B[s.Ptr[g]:s.Ptr[g+1]], p.Sums.B[p.Shape.Ptr[k]:p.Shape.Ptr[k+1]])
		copy(x.Sums.D[g*q*q:(g+1)*q*q], p.Sums.D[k*q*q:(k+1)*q*q])
		copy(x.HG[g*q:(g+1)*q], p.HG[k*q:(k+1)*q])
	}
	x.Left, x.LeftH = p.Left, p.LeftH
	return nil
}

// Means returns the mean of the weights of p.
func (p *FrozenPart) Means(h *parallel.Halt) ([]float64, error) {
	mean, _, err := p.Solve(h)
	return mean, err
}

// Without checks x, which is f without some of its rows. The error wraps sentinel.ErrNotPosDef if a
// level or the border has less than no rows, or if rounding may be all that is left. With exact set,
// the sites that were taken out are the sites in f; otherwise they are close to them. Without concave
// set, sites may have negative precisions, so the sign of a sum does not matter. A level or a column of
// the border that has only rounding left has no rows.
func (x *Frozen) Without(f *Frozen, exact, concave bool) error {
	s := x.Shape
	e, m := &s.Blocks[0], len(s.Border)
	q := e.Q
	least := -leastNegative
	if exact {
		least = -roundedOff
	}
	less := func(now, before float64) bool { // less than no rows
		if before == 0 {
			return now < 0 || now != 0 && !concave
		}
		return concave && now < least*before
	}
	for g := range e.Levels {
		none := true
		for i := range q {
			at := (g*q+i)*q + i
			now, before := x.Sums.D[at], f.Sums.D[at]
			if less(now, before) {
				return fmt.Errorf("level %d of the largest group has less than no rows: %w", g,
					sentinel.ErrNotPosDef)
			}
			none = none && math.Abs(now) <= roundedOff*math.Abs(before)
		}
		if none {
			clear(x.Sums.D[g*q*q : (g+1)*q*q])
			clear(x.HG[g*q : (g+1)*q])
			clear(x.Sums.B[s.Ptr[g]:s.Ptr[g+1]])
			x.Left = nil
		}
	}
	for i := range m {
		now, before := x.Sums.A[i*m+i], f.Sums.A[i*m+i]
		if less(now, before) {
			return fmt.Errorf("weight %d has less than no rows: %w", s.Border[i],
				sentinel.ErrNotPosDef)
		}
		if math.Abs(now) <= roundedOff*math.Abs(before) {
			for j := range m {
				x.Sums.A[i*m+j], x.Sums.A[j*m+i] = 0, 0
			}
			x.HB[i], x.Left = 0, nil
		}
	}
	return nil
}

// MeanRounding estimates how far rounding moves the mean of x, in standard deviations. The Gaussian x
// is f without some of its rows, the mean and the covariance c belong to x, and mean0 to f. Weight j
// contributes up to (P_ii P_jj)^½|m_j| to h_i, where P = XᵀΓX of f. If rows leave, its rounding stays.
func (x *Frozen) MeanRounding(f *Frozen, mean0, mean []float64, c *Arrow) (off float64) {
	s := x.Shape
	e, m := &s.Blocks[0], len(s.Border)
	variance := make([]float64, c.Cols)
	c.Diag(variance)
	each := func(visit func(j int, before, left float64)) {
		for i := range e.Levels * e.Q {
			at := i*e.Q + i%e.Q
			visit(e.First+i, math.Abs(f.Sums.D[at]), math.Abs(x.Sums.D[at]))
		}
		for i, j := range s.Border {
			visit(j, math.Abs(f.Sums.A[i*m+i]), math.Abs(x.Sums.A[i*m+i]))
		}
	}
	size := 0.0
	each(func(j int, before, _ float64) {
		size = math.Max(size, math.Sqrt(before)*math.Max(math.Abs(mean0[j]), math.Abs(mean[j])))
	})
	each(func(j int, before, left float64) {
		if before != left {
			off = math.Max(off, dense.Epsilon*size*math.Sqrt(before*variance[j]))
		}
	})
	return off
}

// Rows that are taken out at another posterior than the one at which their sites were frozen may leave
// a negative precision, of at most leastNegative of the precision before. A precision of roundedOff of
// the precision before is rounding.
const (
	leastNegative = 0.5
	roundedOff    = 1e-12
)
