package pgsvi

import (
	"errors"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/graph"
	"github.com/pgsvi/pgsvi/internal/normal"
)

// Moments holds the moments of a number u under q: E[u], E[u²] and E[log u]. A moment is
// NaN if the family of u does not give it as a function of the mean parameters; see Graph.Block.
type Moments struct{ Mean, Square, Log float64 }

// Term is a number per row: an element of a block, a known number, or an expression of these. A
// Term of one row stands for every row of a factor. Make it with Graph.Block or Known, and
// expressions with its methods. A Term is immutable, and Graph.Objective reports its errors, so
// that a model can be written without checks.
type Term struct {
	name   string
	term   graph.Term
	layout *graphBlocks // blocks of its Graph; nil for known numbers
	block  *graph.Block // block of a Term of Block, Copy or Element; otherwise nil
	copies []int        // its copies
	whole  bool         // a Term of Block or Copy, which has all elements of each copy
	normal bool         // Gaussian under q
	err    error
}

// graphBlocks holds the blocks of a Graph.
type graphBlocks struct {
	graph.Layout
	list []graphBlock
}

// graphBlock holds the distributions of a block.
type graphBlock struct {
	*graph.Block
	prior, start []ExpFamily // one for each copy
	flat         bool        // the block has no prior; prior holds the starts
}

// Known returns a Term of known numbers, one per row, or one for all rows. A precision or a rate
// must be positive. If an observation is missing, leave it out of all lists of the factor. Known
// does not copy x.
func Known(x ...float64) Term {
	t := Term{name: "known", term: graph.Known(x), normal: true}
	if len(x) == 0 {
		t.err = fmt.Errorf("pgsvi: Known has no numbers: %w", ErrEmpty)
	}
	return t
}

// fail returns t with an error.
func (t Term) fail(sentinel error, format string, args ...any) Term {
	if t.err == nil {
		t.err = fmt.Errorf("pgsvi: term %s: %s: %w", t.name, fmt.Sprintf(format, args...), sentinel)
	}
	return t
}

// rows returns the number of rows, or 1 if t has an error.
func (t *Term) rows() int {
	if t.err != nil || t.term == nil {
		return 1
	}
	return t.term.Rows()
}

// problem returns the error of t, also if t is the zero Term.
func (t *Term) problem() error {
	if t.err == nil && t.term == nil {
		return fmt.Errorf("pgsvi: a Term is empty; make it with Graph.Block or Known: %w", ErrParam)
	}
	return t.err
}

// blockTerm returns the Term of the given copies of b, with all elements of each.
func blockTerm(l *graphBlocks, b *graph.Block, copies []int) Term {
	n := len(copies) * b.Elements
	c, e := make([]int, 0, n), make([]int, 0, n)
	for _, i := range copies {
		for k := range b.Elements {
			c, e = append(c, i), append(e, k)
		}
	}
	return Term{name: b.Name, term: b.Pick(c, e), layout: l, block: b, copies: copies, whole: true,
		normal: b.Kind == graph.Normal}
}

// Copy returns the copies of a block with the given indices, from 0, such as the group of each
// row. It is for a Term of Block. An index may occur several times.
func (t Term) Copy(index ...int) Term {
	if t.err != nil {
		return t
	}
	if !t.whole || len(t.copies) != t.block.Copies {
		return t.fail(ErrParam, "Copy needs a Term of Graph.Block")
	}
	if len(index) == 0 {
		return t.fail(ErrEmpty, "Copy has no indices")
	}
	for _, i := range index {
		if i < 0 || i >= t.block.Copies {
			return t.fail(ErrShape, "copy %d does not exist; the block has copies 0 to %d", i,
				t.block.Copies-1)
		}
	}
	return blockTerm(t.layout, t.block, append([]int{}, index...))
}

// Element returns one element of a copy per row: element k of each copy of t, or element k[i] of
// copy i, or elements k of the only copy. It is for a Term of Block or Copy, whose elements
// Graph.Block lists. z.Copy(i...).Element(2) is the indicator of the third class of unit i, for
// example.
func (t Term) Element(k ...int) Term {
	if t.err != nil {
		return t
	}
	if !t.whole {
		return t.fail(ErrParam, "Element needs a Term of Graph.Block or Copy")
	}
	if len(k) != 1 && len(t.copies) != 1 && len(k) != len(t.copies) {
		return t.fail(ErrShape, "%d elements for %d copies; give one for all or one for each",
			len(k),
			len(t.copies))
	}
	if len(k) == 0 {
		return t.fail(ErrEmpty, "Element has no indices")
	}
	for _, e := range k {
		if e < 0 || e >= t.block.Elements {
			return t.fail(ErrShape, "element %d does not exist; a copy has elements 0 to %d", e,
				t.block.Elements-1)
		}
	}
	r := t
	r.name, r.whole = t.name+" element", false
	if len(k) == 1 {
		r.name = fmt.Sprintf("%s element %d", t.name, k[0])
	}
	r.term = t.block.Pick(t.copies, append([]int{}, k...))
	return r
}

// gaussian returns t with an error if it is not a Term of Block or Copy of a Gaussian block.
func (t Term) gaussian(method string) Term {
	if t.err == nil && (!t.whole || t.block.Kind != graph.Normal) {
		return t.fail(ErrParam, "%s needs a Term of Graph.Block or Copy with a Gaussian", method)
	}
	return t
}

// Dot returns the inner product x_nᵀz in row n, such as a linear predictor, where z is the only
// copy of a Gaussian block, or copy n of t. A z with a full covariance is exact. Zeros in x are
// skipped, so that a row with few elements, such as the difference of two elements, is cheap.
// With a diagonal covariance E[u²] is not linear in μ, and a step may then lower the ELBO and is
// shortened. Dot does not copy x.
func (t Term) Dot(x [][]float64) Term {
	if t = t.gaussian("Dot"); t.err != nil {
		return t
	}
	if c := len(t.copies); c != 1 && c != len(x) {
		return t.fail(ErrShape, "Dot has %d rows for %d copies; give one for each", len(x), c)
	}
	if len(x) == 0 {
		return t.fail(ErrEmpty, "Dot has no rows")
	}
	for n, r := range x {
		if len(r) != t.block.Dim {
			return t.fail(ErrShape, "row %d of Dot has %d columns, but the Gaussian has %d "+
				"dimensions", n,
				len(r), t.block.Dim)
		}
		for k, v := range r {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return t.fail(ErrNotFinite, "row %d, column %d of Dot is %v", n, k, v)
			}
		}
	}
	r := t
	r.name, r.whole, r.block = t.name+".Dot", false, nil
	r.term = graph.Dot(t.block, t.copies, x)
	return r
}

// Inner returns the inner product aᵀb in each row of copies of two Gaussian blocks of one
// dimension, such as the factors of a row and a column of a matrix. Their covariances must be
// full. Use it as a.Copy(i...).Inner(b.Copy(j...)); a Term of one copy stands for every row.
func (t Term) Inner(o Term) Term {
	if t = t.gaussian("Inner"); t.err != nil {
		return t
	}
	if o = o.gaussian("Inner"); o.problem() != nil {
		t.err = o.problem()
		return t
	}
	r := expression(t, o, t.name+"·"+o.name)
	a, b := t.block, o.block
	n, m := len(t.copies), len(o.copies)
	switch {
	case r.err != nil:
	case a.Dim != b.Dim:
		return r.fail(ErrShape, "Inner needs Gaussians of the same dimension, but they have %d "+
			"and %d",
			a.Dim, b.Dim)
	case n != m && n != 1 && m != 1:
		return r.fail(ErrShape, "Inner of %d and %d copies; give as many of both", n, m)
	case a.Dim == 1:
		r.term = graph.Times(t.term, o.term)
	case a.Diagonal || b.Diagonal:
		return r.fail(ErrParam, "Inner needs full covariances (NewIsotropic or NewGaussian)")
	default:
		r.term = graph.Inner(a, t.copies, b, o.copies)
	}
	return r
}

// expression returns a Term of t and o without its graph.Term. Its error joins their errors.
func expression(t, o Term, name string) Term {
	r := Term{name: name, layout: t.layout, err: errors.Join(t.problem(), o.problem())}
	if r.layout == nil {
		r.layout = o.layout
	}
	if r.err == nil && t.layout != nil && o.layout != nil && t.layout != o.layout {
		return r.fail(ErrParam, "the operands belong to different Graphs")
	}
	return r
}

// combine returns an expression of t and o, which have as many rows unless one has a single row.
func combine(t, o Term, sign string, of func(a, b graph.Term) graph.Term) Term {
	r := expression(t, o, t.name+sign+o.name)
	if r.err != nil {
		return r
	}
	if n, m := t.rows(), o.rows(); n != m && n != 1 && m != 1 {
		return r.fail(ErrShape, "the operands have %d and %d rows", n, m)
	}
	r.term = of(t.term, o.term)
	return r
}

// Plus returns t + o in each row. The terms must be independent under q: elements of different
// copies of blocks. Use Dot for a sum of elements of one Gaussian.
func (t Term) Plus(o Term) Term {
	r := combine(t, o, " + ", graph.Plus)
	r.normal = t.normal && o.normal
	return r
}

// Times returns t·o in each row, of terms that are independent under q. A product
// of Gamma terms can be a precision, because the logarithms add up.
func (t Term) Times(o Term) Term { return combine(t, o, "·", graph.Times) }

// Of returns the distributions of the copies of t under q, a fit of the Graph: a Gaussian or an
// Exp for each copy. It returns nil if t is not a Term of Block, Copy or Element of that Graph. A
// Gaussian block of one dimension gives Gaussians with a diagonal covariance.
func (t Term) Of(q *Exp) []ExpFamily {
	if t.err != nil || t.block == nil || q.NumParams() != t.layout.Params {
		return nil
	}
	all, first := q.Factors(), 0
	for _, b := range t.layout.Blocks {
		if b == t.block {
			break
		}
		if first++; !b.Stacked {
			first += b.Copies - 1
		}
	}
	r := make([]ExpFamily, len(t.copies))
	for n, i := range t.copies {
		if !t.block.Stacked {
			r[n] = all[first+i]
			continue
		}
		mu, m := all[first].MeanParams(nil), t.block.Copies
		one := normal.NewDiagonal(mu[i:i+1], []float64{mu[m+i] - mu[i]*mu[i]})
		r[n] = &Gaussian{one.In(normal.MeanParams)}
	}
	return r
}

// Moments returns the moments of each row of t under q, a fit of the Graph, such as predictions
// of a linear predictor. It returns nil if t has an error or belongs to another Graph.
func (t Term) Moments(q *Exp) []Moments {
	if t.problem() != nil || t.layout != nil && q.NumParams() != t.layout.Params {
		return nil
	}
	mu := q.MeanParams(nil)
	r := make([]Moments, 0, t.rows())
	graph.All(t.term, mu, func(mean, square, log float64) {
		r = append(r, Moments{mean, square, log})
	})
	return r
}
