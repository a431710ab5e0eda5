package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// Graph is a model of your own: blocks of unknowns z_1, z_2, … and factors of their joint density,
//
//	log p(y, z) = Σ_i log f_i(y, z),   q(z) = Π_b q_b(z_b).
//
// Declare the blocks with Block and add the factors with Add; Objective then makes the model to
// fit. In a conditionally conjugate model E_q[log p(y, z)] is affine in the mean parameters μ_b of
// each block, and a step with the KL divergence over all terms is that of natural-gradient
// variational inference, with a mini-batch that of SVI. Factors that are not conjugate are
// linearized in μ. Steps without a step size never lower the ELBO.
//
// The zero Graph is empty and ready to use. A Graph is not safe for concurrent use; the Objective
// is.
type Graph struct {
	blocks  []*graphBlock
	factors []Factor
	params  int
	errs    []error
}

// graphBlock is q_b of n independent copies of one family.
type graphBlock struct {
	g            *Graph
	name         string
	n            int  // copies
	off, params  int  // where μ of the first copy begins, and from there to the next
	total        int  // the length of μ of all copies
	flatten      bool // n Gaussians of one dimension are one of n, of diagonal covariance
	elements     int  // numbers in a copy whose moments are known
	dim          int  // of a Gaussian; 0 for any other family
	diagonal     bool
	kind         blockKind
	prior, start []ExpFamily
	flat         bool // it has no prior of its own
}

type blockKind int

const (
	normalBlock blockKind = iota
	gammaBlock
	simplexBlock     // Dirichlet, Beta: E log z_k
	categoricalBlock // E[z = k], without k = 0
	otherBlock
)

// Moments are those of a number u under q, NaN where they are not known.
type Moments struct{ Mean, Square, Log float64 } // E[u], E[u²], E[log u]

// Term is a number that factors depend on, or one such number for each row: an element of a block,
// a known number, or an expression of these. A Term of one row stands for every row.
type Term struct {
	g      *Graph
	name   string
	rows   int
	block  *graphBlock // of a Term of Block and Copy; else nil
	sel    []int       // its copies; nil for all
	normal bool        // its distribution under q is Gaussian
	err    error

	at    func(mu []float64, row int) Moments
	pull  func(dst, mu []float64, row int, d Moments) // adds d·∂/∂μ to dst
	touch func(row int, see func(copy int))           // calls see with where each copy begins
}

// Block declares n independent copies of unknowns of one family. E[log prior] is part of the model;
// with a nil prior the factors are to be all there is. start is where a fit begins: the prior if
// there is none, one member for all copies, or one for each. A mixture needs copies that start
// apart. The Term has a row for each element of each copy, copy by copy:
//
//	Gaussian               z_1 … z_d
//	Gamma                  z
//	Dirichlet              z_1 … z_K (their logarithms)
//	Categorical            the indicators of z = 0 … K−1
//
// Errors are those of Objective.
func (g *Graph) Block(name string, n int, prior ExpFamily, start ...ExpFamily) Term {
	b := &graphBlock{g: g, name: name, n: n, off: g.params, flat: isNil(prior)}
	fail := func(format string, args ...any) Term {
		err := fmt.Errorf("pgsvi: block %s: %w", name, fmt.Errorf(format, args...))
		g.errs = append(g.errs, err)
		return Term{g: g, name: name, rows: 1, err: err}
	}
	if len(start) == 0 {
		start = []ExpFamily{prior}
	}
	for _, s := range start {
		if isNil(s) {
			return fail("it has neither prior nor start: %w", ErrParam)
		}
	}
	if n < 1 || len(start) != 1 && len(start) != n {
		return fail("%d copies and %d starts: %w", n, len(start), ErrShape)
	}
	first := start[0]
	b.params, b.kind = first.NumParams(), otherBlock
	switch q := first.(type) {
	case *Gaussian:
		b.kind, b.dim, b.diagonal, b.elements = normalBlock, q.Dim(), q.isDiagonal(), q.Dim()
	case *Exp:
		switch f := q.at.F.(type) {
		case expfam.GammaFamily:
			b.kind, b.elements = gammaBlock, 1
		case expfam.BetaFamily:
			b.kind, b.elements = simplexBlock, 2
		case expfam.DirichletFamily:
			b.kind, b.elements = simplexBlock, f.K
		case expfam.CategoricalFamily:
			b.kind, b.elements = categoricalBlock, f.K
		default:
			if b.flat {
				return fail("a %s needs a prior: %w", distName(q), ErrParam)
			}
		}
	}
	for i := range n {
		s := start[min(i, len(start)-1)]
		p := prior
		if b.flat {
			p = first
		}
		if s.NumParams() != b.params || p.NumParams() != b.params {
			return fail("the members have other numbers of parameters: %w", ErrShape)
		}
		b.start, b.prior = append(b.start, s), append(b.prior, p)
	}
	b.total = n * b.params
	if b.dim == 1 {
		b.flatten, b.params, b.total = true, 1, 2*n
	}
	g.blocks = append(g.blocks, b)
	g.params += b.total
	return b.term(nil)
}

// term is the Term of the copies sel.
func (b *graphBlock) term(sel []int) Term {
	copies := b.n
	if sel != nil {
		copies = len(sel)
	}
	t := Term{g: b.g, name: b.name, rows: copies * b.elements, block: b, sel: sel,
		normal: b.kind == normalBlock}
	e := b.elements
	t.at = func(mu []float64, row int) Moments { return b.moments(mu[b.begin(sel, row/e):], row%e) }
	t.pull = func(dst, _ []float64, row int, d Moments) {
		b.pull(dst[b.begin(sel, row/e):], row%e, d)
	}
	t.touch = func(row int, see func(int)) { see(b.begin(sel, row/e)) }
	return t
}

// begin is where μ of copy i of the copies sel begins.
func (b *graphBlock) begin(sel []int, i int) int {
	if sel != nil {
		i = sel[i]
	}
	return b.off + i*b.params
}

// square is where E[z_i²] is in μ of a Gaussian.
func (b *graphBlock) square(i int) int {
	if b.flatten {
		return b.n
	}
	if b.diagonal {
		return b.dim + i
	}
	return b.dim + i*(i+3)/2
}

// moments are those of element k of a copy with mean parameters mu.
func (b *graphBlock) moments(mu []float64, k int) Moments {
	nan := math.NaN()
	switch b.kind {
	case normalBlock:
		return Moments{mu[k], mu[b.square(k)], nan}
	case gammaBlock:
		return Moments{mu[1], nan, mu[0]}
	case simplexBlock:
		return Moments{nan, nan, mu[k]}
	}
	if k > 0 {
		return Moments{mu[k-1], mu[k-1], nan}
	}
	p := 1 - floats.Sum(mu[:b.params])
	return Moments{p, p, nan}
}

func (b *graphBlock) pull(dst []float64, k int, d Moments) {
	switch b.kind {
	case normalBlock:
		dst[k] += d.Mean
		dst[b.square(k)] += d.Square
	case gammaBlock:
		dst[1] += d.Mean
		dst[0] += d.Log
	case simplexBlock:
		dst[k] += d.Log
	case categoricalBlock:
		x := d.Mean + d.Square
		if k > 0 {
			dst[k-1] += x
			return
		}
		for i := range b.params {
			dst[i] -= x
		}
	}
}

// Known is data: a number for each row, or one for all.
func Known(x ...float64) Term {
	t := Term{name: "known", rows: len(x), normal: true}
	t.at = func(_ []float64, row int) Moments {
		return Moments{x[row], x[row] * x[row], math.Log(x[row])}
	}
	t.pull = func(_, _ []float64, _ int, _ Moments) {}
	t.touch = func(int, func(int)) {}
	return t
}

// row is the row of t that belongs to a row of a factor.
func (t *Term) row(i int) int {
	if t.rows == 1 {
		return 0
	}
	return i
}

// fail is t with an error.
func (t Term) fail(format string, args ...any) Term {
	if t.err == nil {
		t.err = fmt.Errorf("pgsvi: term %s: %w", t.name, fmt.Errorf(format, args...))
	}
	return t
}

// Copy returns the copies of a block with the given indices, such as the group of each row.
func (t Term) Copy(index ...int) Term {
	if t.block == nil || t.sel != nil {
		return t.fail("Copy is for a block: %w", ErrParam)
	}
	for _, i := range index {
		if i < 0 || i >= t.block.n {
			return t.fail("it has %d copies, index %d: %w", t.block.n, i, ErrShape)
		}
	}
	return t.block.term(append([]int{}, index...))
}

// copies is the number of copies of t, a block.
func (t *Term) copies() int { return t.rows / t.block.elements }

// Dot returns x_nᵀz in row n, for a Gaussian block: of its only copy, or of copy n.
func (t Term) Dot(x [][]float64) Term {
	b := t.block
	if b == nil || b.kind != normalBlock {
		return t.fail("Dot is for a Gaussian block: %w", ErrParam)
	}
	if c := t.copies(); c != 1 && c != len(x) {
		return t.fail("%d rows for %d copies: %w", len(x), c, ErrShape)
	}
	for n, r := range x {
		if len(r) != b.dim {
			return t.fail("row %d has %d columns for %d dimensions: %w", n, len(r), b.dim, ErrShape)
		}
	}
	of, many := t.sel, t.copies() > 1
	begin := func(row int) int {
		if !many {
			row = 0
		}
		return b.begin(of, row)
	}
	r := Term{g: t.g, name: t.name, rows: len(x), normal: true, err: t.err}
	r.at = func(mu []float64, row int) (m Moments) {
		u, x := mu[begin(row):], x[row]
		m.Log = math.NaN()
		if b.diagonal || b.flatten {
			var v float64
			for i, xi := range x {
				m.Mean += xi * u[i]
				v += xi * xi * (u[b.square(i)] - u[i]*u[i])
			}
			m.Square = m.Mean*m.Mean + v
			return m
		}
		k := b.dim
		for i, xi := range x {
			m.Mean += xi * u[i]
			var s float64
			for j := range i {
				s += x[j] * u[k+j]
			}
			m.Square += xi * (2*s + xi*u[k+i])
			k += i + 1
		}
		return m
	}
	r.pull = func(dst, mu []float64, row int, d Moments) {
		o := begin(row)
		u, x := dst[o:], x[row]
		if b.diagonal || b.flatten {
			var m float64
			for i, xi := range x {
				m += xi * mu[o+i]
			}
			for i, xi := range x {
				u[i] += xi * (d.Mean + 2*d.Square*(m-xi*mu[o+i]))
				u[b.square(i)] += xi * xi * d.Square
			}
			return
		}
		k := b.dim
		for i, xi := range x {
			u[i] += xi * d.Mean
			s := 2 * xi * d.Square
			for j := range i {
				u[k+j] += s * x[j]
			}
			u[k+i] += xi * xi * d.Square
			k += i + 1
		}
	}
	r.touch = func(row int, see func(int)) { see(begin(row)) }
	return r
}

// Inner returns the inner product of two different Gaussian copies of one dimension in each row.
func (t Term) Inner(o Term) Term {
	a, b := t.block, o.block
	if a == nil || b == nil || a.kind != normalBlock || b.kind != normalBlock || a.dim != b.dim ||
		a.diagonal || b.diagonal || a.dim == 1 {
		return t.fail("Inner is for two Gaussian blocks of one dimension above 1, with full "+
			"covariances; for one dimension use Times: %w", ErrParam)
	}
	n := max(t.copies(), o.copies())
	if c, d := t.copies(), o.copies(); c != n && c != 1 || d != n && d != 1 {
		return t.fail("Inner of %d and %d copies: %w", c, d, ErrShape)
	}
	i, j := t.copies(), o.copies()
	begins := func(row int) (int, int) { return a.begin(t.sel, min(row, i-1)), b.begin(o.sel, min(row, j-1)) }
	r := Term{g: t.g, name: t.name + "·" + o.name, rows: n, err: errors.Join(t.err, o.err)}
	r.at = func(mu []float64, row int) (m Moments) {
		i, j := begins(row)
		u, v := mu[i:], mu[j:]
		m.Log = math.NaN()
		k := a.dim
		for i := range a.dim {
			m.Mean += u[i] * v[i]
			for range i {
				m.Square += 2 * u[k] * v[k]
				k++
			}
			m.Square += u[k] * v[k]
			k++
		}
		return m
	}
	r.pull = func(dst, mu []float64, row int, d Moments) {
		i, j := begins(row)
		u, v, du, dv := mu[i:], mu[j:], dst[i:], dst[j:]
		k := a.dim
		for i := range a.dim {
			du[i] += d.Mean * v[i]
			dv[i] += d.Mean * u[i]
			for range i {
				du[k] += 2 * d.Square * v[k]
				dv[k] += 2 * d.Square * u[k]
				k++
			}
			du[k] += d.Square * v[k]
			dv[k] += d.Square * u[k]
			k++
		}
	}
	r.touch = func(row int, see func(int)) {
		i, j := begins(row)
		see(i)
		see(j)
	}
	return r
}

// pair is an expression of two independent terms, whose moments come from theirs by f, with
// derivatives by g.
func pair(name string, t, o Term, f func(a, b Moments) Moments,
	g func(a, b, d Moments) (da, db Moments)) Term {
	r := Term{g: t.g, name: name, rows: max(t.rows, o.rows), err: errors.Join(t.err, o.err)}
	if r.g == nil {
		r.g = o.g
	}
	if t.rows != r.rows && t.rows != 1 || o.rows != r.rows && o.rows != 1 {
		return r.fail("%d and %d rows: %w", t.rows, o.rows, ErrShape)
	}
	r.at = func(mu []float64, row int) Moments {
		return f(t.at(mu, t.row(row)), o.at(mu, o.row(row)))
	}
	r.pull = func(dst, mu []float64, row int, d Moments) {
		i, j := t.row(row), o.row(row)
		da, db := g(t.at(mu, i), o.at(mu, j), d)
		t.pull(dst, mu, i, da)
		o.pull(dst, mu, j, db)
	}
	r.touch = func(row int, see func(int)) {
		t.touch(t.row(row), see)
		o.touch(o.row(row), see)
	}
	return r
}

// Plus returns t + o, of independent terms.
func (t Term) Plus(o Term) Term {
	r := pair(t.name+" + "+o.name, t, o, func(a, b Moments) Moments {
		return Moments{a.Mean + b.Mean, a.Square + 2*a.Mean*b.Mean + b.Square, math.NaN()}
	}, func(a, b, d Moments) (Moments, Moments) {
		return Moments{Mean: d.Mean + 2*d.Square*b.Mean, Square: d.Square},
			Moments{Mean: d.Mean + 2*d.Square*a.Mean, Square: d.Square}
	})
	r.normal = t.normal && o.normal
	return r
}

// Times returns t·o, of independent terms.
func (t Term) Times(o Term) Term {
	return pair(t.name+"·"+o.name, t, o, func(a, b Moments) Moments {
		return Moments{a.Mean * b.Mean, a.Square * b.Square, a.Log + b.Log}
	}, func(a, b, d Moments) (Moments, Moments) {
		return Moments{times(d.Mean, b.Mean), times(d.Square, b.Square), d.Log},
			Moments{times(d.Mean, a.Mean), times(d.Square, a.Square), d.Log}
	})
}

// times is a·b, 0 where a is.
func times(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return a * b
}

// Add adds factors to the model.
func (g *Graph) Add(f ...Factor) {
	for _, x := range f {
		if x.err != nil {
			g.errs = append(g.errs, x.err)
			continue
		}
		g.factors = append(g.factors, x)
	}
}

// Objective returns the negative ELBO of the model, to be fitted: f is −Σ E_q[log f_i], whose terms
// are the rows of the factors of more than one row, and h is KL to the priors of the blocks. The
// error joins every mistake of the model. It wraps ErrParam if a row of a factor touches a copy of
// a block twice, as the moments would then not be those of independent numbers.
func (g *Graph) Objective() (Objective[*Exp], error) {
	var o Objective[*Exp]
	errs := append([]error(nil), g.errs...)
	if len(g.blocks) == 0 || len(g.factors) == 0 {
		errs = append(errs, fmt.Errorf("pgsvi: a Graph needs a block and a factor: %w", ErrEmpty))
	}
	for i := range g.factors {
		if err := g.factors[i].independent(g); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	var prior, start []ExpFamily
	for _, b := range g.blocks {
		p, q, err := b.parts()
		if err != nil {
			return o, err
		}
		prior, start = append(prior, p...), append(start, q...)
	}
	p, err := ProductOf(prior...)
	if err != nil {
		return o, err
	}
	q, err := ProductOf(start...)
	if err != nil {
		return o, err
	}
	f := &graphTerms{blocks: append([]*graphBlock(nil), g.blocks...), prior: p,
		factors: append([]Factor(nil), g.factors...)}
	f.begin()
	return Objective[*Exp]{F: f, H: KLTo(p), Init: q}, nil
}

// parts returns prior and start as they are parts of q.
func (b *graphBlock) parts() (prior, start []ExpFamily, err error) {
	if !b.flatten {
		return b.prior, b.start, nil
	}
	one := func(qs []ExpFamily) ([]ExpFamily, error) {
		m, v := make([]float64, len(qs)), make([]float64, len(qs))
		for i, q := range qs {
			mu := q.MeanParams(nil)
			m[i], v[i] = mu[0], mu[1]-mu[0]*mu[0]
		}
		q, err := NewMeanField(m, v)
		return []ExpFamily{q}, err
	}
	if prior, err = one(b.prior); err == nil {
		start, err = one(b.start)
	}
	return prior, start, err
}

// Of returns the distributions of the copies of t, a Term of Block or Copy, under q, a fit.
func (t Term) Of(q *Exp) []ExpFamily {
	all, first := q.Factors(), 0
	for _, b := range t.g.blocks {
		if b == t.block {
			break
		}
		if b.flatten {
			first -= b.n - 1
		}
		first += b.n
	}
	sel := t.sel
	if sel == nil {
		for i := range t.block.n {
			sel = append(sel, i)
		}
	}
	var r []ExpFamily
	for _, i := range sel {
		if t.block.flatten {
			mu, n := all[first].MeanParams(nil), t.block.n
			x, err := NewMeanField(mu[i:i+1], []float64{mu[n+i] - mu[i]*mu[i]})
			if err != nil {
				panic(err) // a part of a valid q
			}
			r = append(r, x)
			continue
		}
		r = append(r, all[first+i])
	}
	return r
}

// graphTerms is the Smooth of a Graph.
type graphTerms struct {
	blocks  []*graphBlock
	factors []Factor
	prior   *Exp
	first   []int     // the number of rows before each factor, and of all; without those of one row
	base    []float64 // ∇_μ of E[log r], r the members that stand for the priors that are not there
	norm    float64   // its constant
	own     bool      // functions of the caller's are called
}

func (f *graphTerms) begin() {
	n := 0
	for i := range f.factors {
		f.first = append(f.first, n)
		f.own = f.own || f.factors[i].own
		if f.factors[i].rows > 1 {
			n += f.factors[i].rows
		}
	}
	f.first = append(f.first, n)
	eta := f.prior.Natural(nil)
	f.base = make([]float64, len(eta))
	for _, b := range f.blocks {
		if !b.flat {
			continue
		}
		copy(f.base[b.off:b.off+b.total], eta[b.off:])
		for i := range b.n {
			o := b.off + i*b.params
			f.norm += b.prior[i].LogPartition()
			switch b.kind { // E[log h]
			case gammaBlock:
				f.base[o]--
			case simplexBlock:
				for k := range b.params {
					f.base[o+k]--
				}
			}
		}
	}
}

// Setup implements Smooth.
func (f *graphTerms) Setup(q Dist) (SmoothTerms, error) {
	e, ok := q.(*Exp)
	if !ok || !e.at.SameFamily(f.prior.at) {
		return SmoothTerms{}, fmt.Errorf("pgsvi: a %s is not of the blocks of the Graph: %w",
			distName(q), ErrShape)
	}
	return SmoothTerms{N: max(1, f.first[len(f.factors)]), Deterministic: true}, nil
}

// graphWork is what the rows of a part need.
type graphWork struct {
	mu, sum []float64
	stack   []Moments
	value   float64
}

// take returns n moments, for as long as drop is not called.
func (w *graphWork) take(n int) []Moments {
	l := len(w.stack)
	for cap(w.stack) < l+n {
		w.stack = append(w.stack[:cap(w.stack)], Moments{})
	}
	w.stack = w.stack[:l+n]
	m := w.stack[l : l+n : l+n]
	clear(m)
	return m
}

func (w *graphWork) drop(n int) { w.stack = w.stack[:len(w.stack)-n] }

var graphPool = sync.Pool{New: func() any { return new(graphWork) }}

// value returns Σ E[log f_i] over the rows of batch, scaled, and adds its gradient to dst unless
// that is nil.
func (f *graphTerms) sum(ctx context.Context, env *Env, dst, mu []float64, batch []int) (float64,
	error) {
	terms := estimate.NewBatch(batch, max(1, f.first[len(f.factors)]))
	rows := terms.N
	if f.first[len(f.factors)] == 0 {
		rows = 0
	}
	parts := max(1, min(mostParts, rows/partTerms))
	work := make([]*graphWork, parts)
	for p := range work {
		work[p] = graphPool.Get().(*graphWork)
		defer graphPool.Put(work[p])
	}
	workers := env.cores()
	if f.own {
		workers = env.Workers()
	}
	err := parallel.Each(ctx, parts, workers, func(_, p int) error {
		w := work[p]
		w.stack, w.value = w.stack[:0], 0
		g := dst
		if p > 0 && dst != nil {
			w.sum = dense.Resize(w.sum, len(dst))
			clear(w.sum)
			g = w.sum
		}
		k := 0
		for i := p * rows / parts; i < (p+1)*rows/parts; i++ {
			n := terms.Index(i)
			if n < f.first[k] || n >= f.first[k+1] {
				k = sort.SearchInts(f.first, n+1) - 1
			}
			w.value += f.factors[k].row(w, g, mu, n-f.first[k], terms.Scale)
		}
		w.value *= terms.Scale
		for k := p; k < len(f.factors); k += parts {
			if f.factors[k].rows <= 1 {
				w.value += f.factors[k].row(w, g, mu, 0, 1)
			}
		}
		return nil
	})
	if err != nil {
		return math.NaN(), err
	}
	v := 0.0
	for p, w := range work {
		v += w.value
		if p > 0 && dst != nil {
			floats.Add(dst, w.sum)
		}
	}
	return v, nil
}

// Grad implements Smooth.
func (f *graphTerms) Grad(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (float64, error) {
	e := q.(*Exp)
	mu := e.MeanParams(nil)
	clear(dst)
	v, err := f.sum(ctx, env, dst, mu, batch)
	if err != nil {
		return v, err
	}
	floats.Scale(-1, dst)
	floats.Add(dst, f.base)
	if i, ok := dense.AllFinite(dst); !ok {
		return v, fmt.Errorf("pgsvi: the gradient by %s is %v: %w", f.nameOf(i), dst[i], ErrNotFinite)
	}
	e.FromMeanGrad(dst, dst)
	return -v + floats.Dot(f.base, mu) - f.norm, nil
}

// nameOf names the block of element i of μ.
func (f *graphTerms) nameOf(i int) string {
	for _, b := range f.blocks {
		if i < b.off+b.total {
			return fmt.Sprintf("element %d of copy %d of block %s", (i-b.off)%b.params,
				(i-b.off)/b.params, b.name)
		}
	}
	return ""
}

// Value implements Smooth.
func (f *graphTerms) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64, err error) {
	mu := q.(*Exp).MeanParams(nil)
	v, err := f.sum(ctx, env, nil, mu, nil)
	v = -v + floats.Dot(f.base, mu) - f.norm
	return v, unitRounding * math.Sqrt(float64(len(f.factors))) * math.Abs(v), err
}

// digest describes the model by its names and by the gradient at the prior, which all data have a
// part in.
func (f *graphTerms) digest(d *save.Digest) {
	for _, b := range f.blocks {
		d.Text(b.name)
		d.Int(b.n)
	}
	for i := range f.factors {
		d.Text(f.factors[i].name)
		d.Int(f.factors[i].rows)
	}
	g := make([]float64, len(f.base))
	v, err := f.Grad(context.Background(), nil, g, f.prior, nil)
	if err == nil {
		d.Float(v)
		d.Float(g...)
	}
}

// LogProb returns log p(y, z), for PSIS (see NewPSIS): z is in the order of the blocks. It is
// exact, also for factors that bound an expectation, if the bound is tight for known numbers. It
// is NaN if g has a mistake.
func (g *Graph) LogProb() func(z []float64) float64 {
	o, err := g.Objective()
	if err != nil {
		return func([]float64) float64 { return math.NaN() }
	}
	f := o.F.(*graphTerms)
	return func(z []float64) float64 {
		t := make([]float64, len(f.base))
		f.prior.at.F.Stat(t, z)
		v, err := f.sum(context.Background(), nil, nil, t, nil)
		if err != nil {
			return math.NaN()
		}
		at := 0
		for _, b := range f.blocks {
			for i := range b.n {
				d := b.prior[i].Dim()
				if !b.flat {
					v += b.prior[i].LogProb(z[at : at+d])
				}
				at += d
			}
		}
		return v
	}
}

// String lists the blocks and the factors.
func (g *Graph) String() string {
	var s strings.Builder
	for _, b := range g.blocks {
		fmt.Fprintf(&s, "block %-12s %d × %s\n", b.name, b.n, distName(b.start[0]))
	}
	for _, f := range g.factors {
		fmt.Fprintf(&s, "factor %s, %d rows\n", f.name, f.rows)
	}
	return s.String()
}
