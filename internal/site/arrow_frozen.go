package site

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file fits rows of a mixed model whose earlier rows are not kept. The sites of the earlier rows
// are sums (gauss.Frozen), so their Gaussian q₀ takes the place of the prior. The fit finds
//
//	argmin_q KL(q‖q₀) − Σ_n w_n E_q[log p(y_n|η_n)]
//
// over the sites of the new rows, at fixed covariances of the effects. Streams of the root package
// call FitFrozen, add the sites of the rows that they do not keep by AddFrozen, and find the best
// covariances of the effects by LearnFrozen.

// arrowPast holds the sums of rows that are not among the rows of an arrow.
type arrowPast struct {
	of     *gauss.Frozen
	b      []float64 // B in the layout of the arrow
	logDet float64   // log|C|/|V| without the rows of the arrow
}

// joinPatterns adds the columns of the border that the levels of p meet, before SetPtr.
func (p *arrowPast) joinPatterns(s *gauss.ArrowShape) {
	for g, pat := range p.of.Shape.Pat {
		if len(pat) > 0 {
			all := slices.Concat(s.Pat[g], pat)
			slices.Sort(all)
			s.Pat[g] = slices.Compact(all)
		}
	}
}

// lay stores B in the layout of s.
func (p *arrowPast) lay(s *gauss.ArrowShape) {
	from := p.of.Shape
	q := s.Blocks[0].Q
	p.b = make([]float64, s.Ptr[s.Blocks[0].Levels])
	for g, pat := range from.Pat {
		old, wide := from.Width(g), s.Width(g)
		for i := range q {
			x := p.of.Sums.B[from.Ptr[g]+i*old:][:old]
			y := p.b[s.Ptr[g]+i*wide:][:wide]
			copy(y, x[:s.Common])
			for k, j := range pat {
				at, _ := slices.BinarySearch(s.Pat[g], j)
				y[s.Common+at] = x[s.Common+k]
			}
		}
	}
}

// frozenModel is the linear model of rows in the weights of a part of a Frozen.
type frozenModel struct {
	LinearModel
	part *gauss.FrozenPart
}

// newFrozenModel returns the model of the rows of x, which have the weights of f, under the terms t. A
// nil t is allowed.
func newFrozenModel(f *gauss.Frozen, x *design.Matrix, t *term.Terms, c term.Crew) (*frozenModel,
	error) {
	s := f.Shape
	e := &s.Blocks[0]
	seen := make([]bool, e.Levels)
	for i := range x.Rows {
		ind, val := x.Row(i)
		for k, v := range val {
			j := dense.Index(ind, k)
			if v != 0 && e.First <= j && j < e.End() {
				seen[(j-e.First)/e.Q] = true
			}
		}
	}
	var levels []int
	for g, in := range seen {
		if in {
			levels = append(levels, g)
		}
	}
	part, err := f.Part(levels, c.Halt)
	if err != nil {
		return nil, err
	}
	m := &frozenModel{part: part}
	place := make([]int32, s.Cols)
	for k, j := range part.Weight {
		place[j] = int32(k)
	}
	rows := &design.Rows{Cols: len(part.Weight), Ptr: make([]int, 1, x.Rows+1)}
	for i := range x.Rows {
		ind, val := x.Row(i)
		at := len(rows.Ind)
		for k, v := range val {
			j := dense.Index(ind, k)
			if v != 0 {
				rows.Ind, rows.Val = append(rows.Ind, place[j]), append(rows.Val, v)
			}
		}
		sortEntries(rows.Ind[at:], rows.Val[at:])
		rows.Ptr = append(rows.Ptr, len(rows.Ind))
	}
	if t == nil {
		t = &term.Terms{}
	}
	m.LinearModel = LinearModel{Terms: t, Prior: *part.Prior, Names: make([]string, rows.Cols),
		X: &design.Matrix{Rows: x.Rows, Cols: rows.Cols, Sparse: rows}}
	m.past = &arrowPast{of: part.Frozen}
	return m, nil
}

// sortEntries sorts the columns of a row, with their values. They are nearly sorted.
func sortEntries(ind []int32, val []float64) {
	for i := 1; i < len(ind); i++ {
		for k := i; k > 0 && ind[k] < ind[k-1]; k-- {
			ind[k], ind[k-1] = ind[k-1], ind[k]
			val[k], val[k-1] = val[k-1], val[k]
		}
	}
}

// frozenPasses bounds the passes of FitFrozen, and frozenLeft is how many nats it may be from the
// optimum after them.
const (
	frozenPasses = 500
	frozenLeft   = 1e-2
)

// FitFrozen returns the marginals and the sites of the terms t, at the rows of x, in the posterior of
// f and the terms. The site of term n is exp(γ_n(η_n − m_n)²/−2 + a_n(η_n − m_n)). The error wraps
// sentinel.ErrDiverged if the fit does not converge, and sentinel.ErrNotFinite if an expectation does
// not exist.
func FitFrozen(f *gauss.Frozen, t *term.Terms, x *design.Matrix, c term.Crew) (*term.Marginals,
	error) {
	terms := *t
	m, err := newFrozenModel(f, x, &terms, c)
	if err != nil {
		return nil, err
	}
	mean, err := m.part.Means(c.Halt)
	if err != nil {
		return nil, err
	}
	at := make([]float64, x.Rows)
	m.X.Mul(at, mean, nil)
	terms.Offset = slices.Clone(at)
	if t.Offset != nil {
		floats.Add(terms.Offset, t.Offset)
	}
	s, err := NewArrowAlgebra(&m.LinearModel, c)
	if err != nil {
		return nil, err
	}
	var gap, goal float64
	for passes := 0; passes < frozenPasses; {
		more, err := s.Ascend()
		if err != nil {
			return nil, err
		}
		passes += max(1, more)
		e, err := s.Evaluate(0)
		if err != nil {
			return nil, err
		}
		if gap, goal = e.Gap, goals.With(0, x.Rows, e.ELBO, e.ELBOErr); gap <= goal {
			break
		}
	}
	if err := c.Halt.Err(); err != nil {
		return nil, err
	}
	if err := terms.Overflow(&s.Batch.Cur.Marginals, nil); err != nil {
		return nil, err
	}
	if !(gap <= max(goal, frozenLeft)) {
		return nil, fmt.Errorf("a block of %d rows, from %s on, is %.2g nats from its solution; a "+
			"prior nearer to the scale of the data helps: %w", x.Rows, t.Name(0), gap,
			sentinel.ErrDiverged)
	}
	if err := s.Refresh(); err != nil {
		return nil, err
	}
	out := &term.Marginals{}
	out.CopyFrom(&s.Cur)
	floats.Add(out.M, at)
	return out, nil
}

// AddFrozen adds the sites γ and b, about 0, of the rows of x to f. It subtracts them if sign is −1.
// On error f is unchanged.
func AddFrozen(f *gauss.Frozen, x *design.Matrix, gamma, b []float64, sign float64, c term.Crew) error {
	if x.Rows == 0 {
		return nil
	}
	m, err := newFrozenModel(f, x, nil, c)
	if err != nil {
		return err
	}
	a, err := newArrow(&m.LinearModel)
	if err != nil {
		return err
	}
	a.use(c)
	g, h := slices.Clone(gamma), slices.Clone(b)
	floats.Scale(sign, g)
	floats.Scale(sign, h)
	var t arrowState
	a.sum(&t, g, h)
	p := m.part
	p.Shape, p.Sums = a.shape, t.by.Sums
	floats.Add(p.HB, a.hb)
	floats.Add(p.HG, a.hg)
	if err := c.Halt.Err(); err != nil {
		return err
	}
	return p.Merge(c.Halt)
}

// LearnFrozen moves L to the best one at the sums of f, by s, and returns the predicted gain in nats.
func LearnFrozen(f *gauss.Frozen, s *ArrowSums) (gain float64, err error) {
	sums := wideSums(f)
	from := s.LogZ(f.L, &sums, f.HB, f.HG)
	l, to := s.Maximize(f.L, &sums, f.HB, f.HG)
	if math.IsInf(to, -1) || math.IsNaN(to) {
		return 0, errors.New("the covariances of the effects have no best value")
	}
	f.SetL(l)
	return max(0, to-from), nil
}

// SpreadFrozen returns the uncertainty of the covariances at the sums of f, in the order of the prior.
func SpreadFrozen(f *gauss.Frozen, s *ArrowSums) ([]FactorSpread, error) {
	sums := wideSums(f)
	return s.Spread(f.L, &sums, f.HB, f.HG, 1)
}

// EvidenceFrozen returns the evidence of the rows of f, which have Gaussian noise of the given variance,
// from Σ w(y − o)² and Σ w over the rows. The prior mean must be 0. It starts at the L of f, and s must
// not be used afterward.
func EvidenceFrozen(f *gauss.Frozen, s *ArrowSums, noise, square, weight float64) *Evidence {
	unit := f.Under(f.Prior, noise)
	sums := wideSums(unit)
	e := s.Evidence(&sums, unit.HB, unit.HG, square, weight)
	e.t.by.L = gauss.CloneLists(f.L)
	return e
}

// IntegrateFrozen returns the posterior over the covariances of factors with few levels at the sums of f,
// whose rows have Gaussian noise and whose L is the best. It returns nil as ArrowAlgebra.Integrate does,
// and if there is no density.
func IntegrateFrozen(f *gauss.Frozen, s *ArrowSums) (*SigmaGrid, error) {
	sums := wideSums(f)
	grid, err := s.Integrate(f.L, &sums, f.HB, f.HG)
	if err != nil || grid == nil || !f.Shape.Crossed() {
		return grid, err
	}
	for i := range grid.Points { // without the zeros of wideSums
		c, ok := grid.Points[i].Cov.(*gauss.Arrow).Compact(s.a.crew.Halt)
		if !ok {
			return nil, s.a.crew.Halt.Err()
		}
		grid.Points[i].Cov = c
	}
	return grid, nil
}

// wideSums returns the sums of f with all columns of the border in each B_g.
func wideSums(f *gauss.Frozen) gauss.Sums {
	sums := f.Sums
	if f.Shape.Crossed() {
		wide := *f.Shape
		wide.SetFull()
		p := &arrowPast{of: f}
		p.lay(&wide)
		sums.B = p.b
	}
	return sums
}
