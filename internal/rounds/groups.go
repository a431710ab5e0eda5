package rounds

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file divides the rows of a mixed model into the border and the effects of the grouping factor
// that is eliminated, the one with most weights. The border holds the common columns, and then the
// columns of the other factors. A round adds up the blocks of XᵀΓX, which package gauss calls A, B_g
// and D_g, and the blocks of Xᵀu. A row changes the sums of its own level only, so a round over rows
// with Q effects and D common columns costs about as much per row as a round without the factor.
//
// Each B_g has all columns of the border, although a level meets few levels of the other factors. No
// first reading then needs to find which levels meet, but the number of sums limits the other factors
// to a few hundred levels. RowPass calls this file. The sums of a state are in arrow_look.go, and the
// driver is in arrow_climb.go.

// Factor describes the columns of a grouping factor. Level g has the columns First + g·Q to First +
// g·Q + Q − 1.
type Factor struct {
	Name             string // for errors
	First, Levels, Q int
}

// size returns the number of columns of f.
func (f *Factor) size() int { return f.Levels * f.Q }

// Grouping describes the columns of a mixed model. The embedded factor is eliminated, and Others are
// the other ones, in the order of gauss.NewArrowShape. All other columns are common.
type Grouping struct {
	Factor
	Others []Factor
	Common int // number of common columns
}

// NewGrouping returns the grouping of a model with the given number of columns.
func NewGrouping(factors []Factor, cols int) *Grouping {
	all := slices.Clone(factors)
	slices.SortStableFunc(all, func(x, y Factor) int { return y.size() - x.size() })
	g := &Grouping{Factor: all[0], Others: all[1:], Common: cols}
	for _, f := range all {
		g.Common -= f.size()
	}
	return g
}

// factors returns all factors. The first is eliminated.
func (g *Grouping) factors() []Factor { return append([]Factor{g.Factor}, g.Others...) }

// Border returns the number of columns of the border.
func (g *Grouping) Border() int { return g.Weights() - g.size() }

// Weights returns the number of columns of the model.
func (g *Grouping) Weights() int {
	n := g.Common + g.size()
	for i := range g.Others {
		n += g.Others[i].size()
	}
	return n
}

// Columns returns the columns of the model that form the border.
func (g *Grouping) Columns() []int {
	var cols []int
	for j := 0; j < g.Weights(); j++ {
		if f := g.owner(j); f != nil {
			j += f.size() - 1
			continue
		}
		cols = append(cols, j)
	}
	for _, f := range g.Others {
		for j := range f.size() {
			cols = append(cols, f.First+j)
		}
	}
	return cols
}

// Digest adds g to d.
func (g *Grouping) Digest(d *save.Digest) {
	for _, f := range g.factors() {
		d.Int(f.First, f.Levels, f.Q)
	}
}

// owner returns the factor of column j of the model, or nil if the column is common.
func (g *Grouping) owner(j int) *Factor {
	if j >= g.First && j < g.First+g.size() {
		return &g.Factor
	}
	for i := range g.Others {
		if f := &g.Others[i]; j >= f.First && j < f.First+f.size() {
			return f
		}
	}
	return nil
}

// Wide returns rows of the border as rows of all columns.
func (g *Grouping) Wide(rows []Row) []Row {
	wide, cols := slices.Clone(rows), g.Columns()
	for i := range wide {
		r := &wide[i]
		ind := make([]int32, 0, len(r.Val))
		for k := range r.Val {
			j := k
			if r.Ind != nil {
				j = int(r.Ind[k])
			}
			ind = append(ind, int32(cols[j]))
		}
		if r.Ind = ind; len(g.Others) > 0 {
			r.Val = slices.Clone(r.Val)
			sortRow(r.Ind, r.Val)
		}
	}
	return wide
}

// sortRow sorts the values of a row by their columns ind. There are few values out of order.
func sortRow(ind []int32, val []float64) {
	for k := range ind {
		for i := k; i > 0 && ind[i] < ind[i-1]; i-- {
			ind[i], ind[i-1] = ind[i-1], ind[i]
			val[i], val[i-1] = val[i-1], val[i]
		}
	}
}

// WideColumns returns the moments of all columns, given the moments of the border and the means of
// the columns of the eliminated factor, whose other moments are 0.
func (g *Grouping) WideColumns(c *Columns, means []float64) *Columns {
	d := g.Weights()
	wide := &Columns{make([]float64, d), make([]float64, d), make([]float64, d), make([]float64, d)}
	for k, j := range g.Columns() {
		wide.Mean[j], wide.Variance[j] = c.Mean[k], c.Variance[k]
		wide.Count[j], wide.Square[j] = c.Count[k], c.Square[k]
	}
	copy(wide.Mean[g.First:], means)
	return wide
}

// each returns the number of sums of a level: Q of Xᵀu, a lower triangle of D_g, and Q rows of B_g.
func (g *Grouping) each() int { return g.Q + triangle(g.Q) + g.Q*g.Border() }

// level returns the place of the first sum of a level.
func (g *Grouping) level(at int) int { return lookSums(g.Border()) + at*g.each() }

// Sums returns the number of sums at a state.
func (g *Grouping) Sums() int { return g.level(g.Levels) }

// state writes or reads g.
func (g *Grouping) state(c *save.Coder) {
	n := len(g.Others)
	c.Int(&n, &g.Common)
	if c.Check(n <= mostSize && g.Common <= mostSize, "%d factors", n); c.Err() != nil {
		return
	}
	if c.Reading() {
		g.Others = make([]Factor, n)
	}
	g.Factor.state(c)
	for i := range g.Others {
		g.Others[i].state(c)
	}
	c.Check(c.Err() == nil && g.Border() <= mostSize && g.Levels <= mostSums/g.each(),
		"%d levels of %d columns", g.Levels, g.Q)
	for _, f := range g.factors() {
		c.Check(f.First <= g.Weights()-f.size(), "columns from %d on", f.First)
	}
}

// state writes or reads f.
func (f *Factor) state(c *save.Coder) {
	c.Text(&f.Name)
	c.Int(&f.First, &f.Levels, &f.Q)
	c.Check(f.Q >= 1 && f.Q <= gauss.MostEffects && f.Levels >= 1 && f.Levels <= mostSums &&
		f.First <= mostSums, "%d levels of %d columns", f.Levels, f.Q)
}

// groupLane is the scratch memory of one goroutine that adds rows of a mixed model, and holds the
// chunk of rows that it adds.
type groupLane struct {
	x          design.Matrix // border; sparse if there are other factors
	sparse     design.Rows
	laneLevels              // eliminated factor
	others     []laneLevels // other factors
	order      []int32      // the rows that have a level of the eliminated factor, sorted by level

	tilted [2]term.Marginals // expectations with a parameter above and below its value
	site   term.Marginals
	rows   []float64 // the common columns minus what the levels explain
	work   design.Work
	gram   []float64
	packed []float64 // the sums that all levels share
	runs   []int32   // the levels in order, and their sums
	sums   []float64
}

// laneLevels holds the rows of a factor.
type laneLevels struct {
	level []int32   // level of each row, or −1
	z     []float64 // N×Q
}

// reset prepares l for n rows of q effects.
func (l *laneLevels) reset(n, q int) {
	l.level, l.z = slices.Grow(l.level[:0], n)[:n], dense.Resize(l.z, n*q)
	clear(l.z)
	for i := range l.level {
		l.level[i] = -1
	}
}

// set adds the value v of column j to row i. The error names a row with two levels.
func (l *laneLevels) set(f *Factor, i, j int, v float64, t *term.Terms) error {
	level, own := int32((j-f.First)/f.Q), l.level[i]
	if own >= 0 && own != level {
		return fmt.Errorf("row %d has the levels %d and %d of group %s; give each row one level: %w",
			t.First+i, own, level, f.Name, sentinel.ErrParam)
	}
	l.level[i] = level
	l.z[i*f.Q+(j-f.First)%f.Q] = v
	return nil
}

// split divides the rows of x. The error names a row with two levels.
func (w *groupLane) split(g *Grouping, x *design.Matrix, t *term.Terms) error {
	if len(g.Others) > 0 {
		return w.splitCrossed(g, x, t)
	}
	n, d := x.Rows, g.Common
	w.x = design.Matrix{Rows: n, Cols: d, Dense: dense.Resize(w.x.Dense, n*d)}
	clear(w.x.Dense)
	w.reset(n, g.Q)
	end := g.First + g.size()
	for i := range n {
		ind, val := x.Row(i)
		for k, v := range val {
			j := dense.Index(ind, k)
			switch {
			case v == 0:
			case j < g.First:
				w.x.Dense[i*d+j] = v
			case j >= end:
				w.x.Dense[i*d+j-g.size()] = v
			default:
				if err := w.set(&g.Factor, i, j, v, t); err != nil {
					return err
				}
			}
		}
	}
	w.sort()
	return nil
}

// splitCrossed is split for several factors. The border is sparse.
func (w *groupLane) splitCrossed(g *Grouping, x *design.Matrix, t *term.Terms) error {
	n, border := x.Rows, g.Border()
	for len(w.others) < len(g.Others) {
		w.others = append(w.others, laneLevels{})
	}
	w.reset(n, g.Q)
	at, offset := make([]int, len(g.Others)), g.Common // first columns in the border
	for k, f := range g.Others {
		w.others[k].reset(n, f.Q)
		at[k] = offset
		offset += f.size()
	}
	s := &w.sparse
	s.Cols, s.Ind, s.Val, s.Ptr = border, s.Ind[:0], s.Val[:0], append(s.Ptr[:0], 0)
	for i := range n {
		ind, val := x.Row(i)
		for k, v := range val {
			j := dense.Index(ind, k)
			if v == 0 {
				continue
			}
			l, f, to := g.find(w, j, at)
			if l != nil {
				if err := l.set(f, i, j, v, t); err != nil {
					return err
				}
			}
			if to >= 0 {
				s.Ind, s.Val = append(s.Ind, int32(to)), append(s.Val, v)
			}
		}
		sortRow(s.Ind[s.Ptr[i]:], s.Val[s.Ptr[i]:])
		s.Ptr = append(s.Ptr, len(s.Ind))
	}
	w.x = design.Matrix{Rows: n, Cols: border, Sparse: s}
	w.sort()
	return nil
}

// find returns the factor of column j with its rows in w, or nil, and the column in the border, or −1.
// The other factors start at the given columns of the border.
func (g *Grouping) find(w *groupLane, j int, at []int) (l *laneLevels, f *Factor, to int) {
	to = j
	for k := -1; k < len(g.Others); k++ {
		l, f = &w.laneLevels, &g.Factor
		if k >= 0 {
			l, f = &w.others[k], &g.Others[k]
		}
		switch {
		case j < f.First:
		case j >= f.First+f.size():
			to -= f.size()
		case k < 0:
			return l, f, -1
		default:
			return l, f, at[k] + j - f.First
		}
	}
	return nil, nil, to
}

// sort sets order.
func (w *groupLane) sort() {
	w.order = w.order[:0]
	for i, g := range w.level {
		if g >= 0 {
			w.order = append(w.order, int32(i))
		}
	}
	slices.SortStableFunc(w.order, func(a, b int32) int { return cmp.Compare(w.level[a], w.level[b]) })
}

// pack computes Xᵀdiag(gamma)X and Xᵀu of the chunk. It leaves the first two sums to the caller.
func (w *groupLane) pack(g *Grouping, gamma, u []float64) {
	d, q, each := g.Border(), g.Q, g.each()
	w.packed, w.gram = dense.Resize(w.packed, lookSums(d)), dense.Resize(w.gram, d*d)
	clear(w.packed)
	clear(w.gram)
	w.x.AddMulT(w.packed[2:2+d], u, nil)
	w.x.AddGram(w.gram, gamma, nil, &w.work)
	at := 2 + d
	for i := range d {
		at += copy(w.packed[at:], w.gram[i*d:i*d+i+1])
	}
	w.runs, w.sums = w.runs[:0], w.sums[:0]
	for _, row := range w.order {
		i := int(row)
		if n := len(w.runs); n == 0 || w.runs[n-1] != w.level[i] {
			w.runs = append(w.runs, w.level[i])
			w.sums = slices.Grow(w.sums, each)[:len(w.sums)+each]
			clear(w.sums[len(w.sums)-each:])
		}
		own := w.sums[len(w.sums)-each:]
		ind, x := w.x.Row(i)
		z := w.z[i*q : (i+1)*q]
		sum, b := own[q:], own[q+triangle(q):]
		for j, zj := range z {
			t := gamma[i] * zj
			own[j] += u[i] * zj
			for k, zk := range z[:j+1] {
				sum[k] += t * zk
			}
			sum = sum[j+1:]
			for k, v := range x {
				k = dense.Index(ind, k)
				b[j*d+k] += t * v
			}
		}
	}
}

// addMulT adds Xᵀu of the chunk to dst, the border before the eliminated levels.
func (w *groupLane) addMulT(g *Grouping, dst, u []float64) {
	q, m := g.Q, g.Border()
	w.x.AddMulT(dst[:m], u, nil)
	for _, row := range w.order {
		i, at := int(row), m+int(w.level[row])*q
		for j, z := range w.z[i*q : (i+1)*q] {
			dst[at+j] += z * u[i]
		}
	}
}

// finite reports whether all packed sums are finite.
func (w *groupLane) finite() bool {
	_, ok := dense.AllFinite(w.packed)
	_, own := dense.AllFinite(w.sums)
	return ok && own
}

// addTo adds the packed sums to s.
func (w *groupLane) addTo(g *Grouping, s *Sums) {
	s.Add(w.packed)
	each := g.each()
	for k, level := range w.runs {
		s.addAt(g.level(int(level)), w.sums[k*each:(k+1)*each])
	}
}

// GroupFirst holds the results of the first round of a mixed model that the common columns do not
// have.
type GroupFirst struct {
	// Start holds the sums at the first sites, with their linear coefficients b about 0 in place of
	// ∂₁.
	Start *ArrowLook
	rest  *Sums // Σ w(y − o)² and Σ w
	means *Sums // Σ wz of each level of the eliminated factor
	of    []*factorFirst
}

// factorFirst describes the values of the effects of a factor.
type factorFirst struct {
	Factor
	moments *Sums     // the triangle of Σ zzᵀ, and the number of rows with a level
	lo, hi  []float64 // smallest and largest values of each level
	seen    []bool    // levels with rows
}

// newFactorFirst returns a factorFirst without rows.
func newFactorFirst(f Factor) *factorFirst {
	n := f.size()
	return &factorFirst{Factor: f, moments: NewSums(triangle(f.Q) + 1), lo: make([]float64, n),
		hi: make([]float64, n), seen: make([]bool, f.Levels)}
}

// add adds the rows of w in the given order. They must have a level.
func (f *factorFirst) add(w *laneLevels, order []int32) {
	q := f.Q
	moments := make([]float64, triangle(q)+1)
	for _, row := range order {
		i, g := int(row), int(w.level[row])
		z := w.z[i*q : (i+1)*q]
		moments[triangle(q)]++
		lo, hi := f.lo[g*q:(g+1)*q], f.hi[g*q:(g+1)*q]
		for j, v := range z {
			if !f.seen[g] {
				lo[j], hi[j] = v, v
			}
			lo[j], hi[j] = min(lo[j], v), max(hi[j], v)
			for k, x := range z[:j+1] {
				moments[triangle(j)+k] += v * x
			}
		}
		f.seen[g] = true
	}
	if _, ok := dense.AllFinite(moments); ok {
		f.moments.Add(moments)
	}
}

// merge adds the rows of o.
func (f *factorFirst) merge(o *factorFirst) {
	f.moments.Merge(o.moments)
	for g, seen := range o.seen {
		if !seen {
			continue
		}
		for j := g * f.Q; j < (g+1)*f.Q; j++ {
			if !f.seen[g] {
				f.lo[j], f.hi[j] = o.lo[j], o.hi[j]
			}
			f.lo[j], f.hi[j] = min(f.lo[j], o.lo[j]), max(f.hi[j], o.hi[j])
		}
		f.seen[g] = true
	}
}

// state writes or reads f.
func (f *factorFirst) state(c *save.Coder) {
	n := f.size()
	f.moments.State(c, triangle(f.Q)+1)
	c.Floats(n, &f.lo, &f.hi)
	seen := make([]byte, len(f.seen))
	for k, s := range f.seen {
		if s {
			seen[k] = 1
		}
	}
	c.Bytes(&seen)
	c.Check(len(seen) == f.Levels && len(f.lo) == n && len(f.hi) == n, "%d levels of %d", len(seen),
		f.Levels)
	if c.Reading() {
		f.seen = make([]bool, f.Levels)
		for k, s := range seen[:min(len(seen), f.Levels)] {
			f.seen[k] = s != 0
		}
	}
}

// newGroupFirst returns a GroupFirst without rows.
func newGroupFirst(g *Grouping) *GroupFirst {
	f := &GroupFirst{Start: NewArrowLook(nil, g), rest: NewSums(2), means: NewSums(g.size())}
	for _, x := range g.factors() {
		f.of = append(f.of, newFactorFirst(x))
	}
	return f
}

// emptyGroupFirst returns a GroupFirst to be read.
func emptyGroupFirst(g *Grouping) *GroupFirst {
	f := &GroupFirst{Start: &ArrowLook{of: g, rowSums: rowSums{sums: &Sums{}}}, rest: &Sums{},
		means: &Sums{}}
	for _, x := range g.factors() {
		f.of = append(f.of, &factorFirst{Factor: x, moments: &Sums{}})
	}
	return f
}

// Near returns where a fit starts for a response: the linear predictor, and the precision of the
// site.
type Near func(y float64) (eta, gamma float64)

// add adds a chunk.
func (f *GroupFirst) add(w *groupLane, h *parallel.Halt, block uint64, t *term.Terms, near Near) {
	l := f.Start
	q := l.of.Q
	l.addStart(w, h, block, t, near)
	means := dense.Resize(w.sums, len(w.runs)*q)
	clear(means)
	rest := make([]float64, 2)
	for i := range t.Y {
		y, o, weight, _ := t.Term(i)
		rest[0] += weight * (y - o) * (y - o)
		rest[1] += weight
	}
	run := -1
	for _, row := range w.order {
		i, g := int(row), int(w.level[row])
		if run < 0 || int(w.runs[run]) != g {
			run++
		}
		_, _, weight, _ := t.Term(i)
		for j, v := range w.z[i*q : (i+1)*q] {
			means[run*q+j] += weight * v
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.of[0].add(&w.laneLevels, w.order)
	for k := range f.of[1:] {
		var order []int32
		for i, g := range w.others[k].level {
			if g >= 0 {
				order = append(order, int32(i))
			}
		}
		f.of[k+1].add(&w.others[k], order)
	}
	if finite(rest) {
		f.rest.Add(rest)
	}
	for k, g := range w.runs {
		if own := means[k*q : (k+1)*q]; finite(own) {
			f.means.addAt(int(g)*q, own)
		}
	}
	w.sums = means
}

// finite reports whether all elements of x are finite.
func finite(x []float64) bool {
	_, ok := dense.AllFinite(x)
	return ok
}

// full reports whether the sums could overflow if o were merged. A nil o means one more block.
func (f *GroupFirst) full(o *GroupFirst) bool {
	if o == nil {
		return f.rest.Full(nil)
	}
	return f.rest.Full(o.rest)
}

// merge adds the rows of o.
func (f *GroupFirst) merge(o *GroupFirst) {
	f.Start.merge(o.Start)
	f.rest.Merge(o.rest)
	f.means.Merge(o.means)
	for k, x := range f.of {
		x.merge(o.of[k])
	}
}

// state writes or reads f.
func (f *GroupFirst) state(c *save.Coder) {
	f.Start.state(c)
	f.rest.State(c, 2)
	f.means.State(c, f.Start.of.size())
	for _, x := range f.of {
		if c.Err() == nil {
			x.state(c)
		}
	}
}

// GroupMoments holds moments of the responses and of the values of the effects.
type GroupMoments struct {
	Response float64         // Σ w(y − o)²
	Weight   float64         // Σ w
	Means    []float64       // Σ wz/Σ w of each level of the eliminated factor
	Factors  []FactorMoments // the first is eliminated
}

// FactorMoments describes the values of the effects of a factor.
type FactorMoments struct {
	First     int       // first column of the factor
	Square    []float64 // Σ zzᵀ over all rows, Q×Q
	Rows      float64   // number of rows with a level
	Levels    int       // number of levels with rows
	Intercept bool      // the first effect has the same value in all rows with a level
	Varies    []bool    // for each effect, whether it varies within a level
}

// From returns the moments of the factor whose first column is given.
func (m *GroupMoments) From(first int) *FactorMoments {
	return &m.Factors[slices.IndexFunc(m.Factors, func(f FactorMoments) bool { return f.First == first })]
}

// Moments returns the moments of the rows.
func (f *GroupFirst) Moments() *GroupMoments {
	rest := make([]float64, 2)
	f.rest.Value(rest)
	m := &GroupMoments{Response: rest[0], Weight: rest[1], Means: make([]float64, f.means.Len())}
	f.means.Value(m.Means)
	for j := range m.Means {
		m.Means[j] /= m.Weight
	}
	for _, x := range f.of {
		m.Factors = append(m.Factors, x.values())
	}
	return m
}

// values returns the moments of the rows.
func (f *factorFirst) values() FactorMoments {
	q := f.Q
	own := make([]float64, triangle(q)+1)
	f.moments.Value(own)
	m := FactorMoments{First: f.First, Square: make([]float64, q*q), Rows: own[triangle(q)],
		Varies: make([]bool, q)}
	for i := range q {
		for j := range i + 1 {
			m.Square[i*q+j], m.Square[j*q+i] = own[triangle(i)+j], own[triangle(i)+j]
		}
	}
	first := -1
	m.Intercept = true
	for g, seen := range f.seen {
		if !seen {
			continue
		}
		if m.Levels++; first < 0 {
			first = g * q
		}
		m.Intercept = m.Intercept && f.lo[g*q] == f.lo[first] && f.hi[g*q] == f.lo[first]
		for j := range q {
			m.Varies[j] = m.Varies[j] || f.lo[g*q+j] != f.hi[g*q+j]
		}
	}
	return m
}

// sameSums is the relative difference up to which sums of the same numbers are equal.
const sameSums = 1e-9

// Same returns the names of two factors that have the same levels and the same values in every row,
// given XᵀΓX of all rows. Their effects cannot be told apart.
func (g *Grouping) Same(s *gauss.Sums) (a, b string, ok bool) {
	all := g.factors()
	for j := range all {
		for i := range j {
			if g.alike(s, all[i], all[j]) {
				return all[i].Name, all[j].Name, true
			}
		}
	}
	return "", "", false
}

// alike reports whether x and y, a later factor, have the same rows: each level of x meets one level
// of y, and the products of the two are the products of each with itself.
func (g *Grouping) alike(s *gauss.Sums, x, y Factor) bool {
	if x.Q != y.Q {
		return false
	}
	q, m, of := x.Q, g.Border(), g.offset(y)
	left := make([]bool, y.Levels) // levels of y that no level of x has met
	for h := range left {
		left[h] = s.A[(of+h*q)*(m+1)] != 0
	}
	some := false
	for l := range x.Levels {
		meets := -1
		for h := range y.Levels {
			for k := range q * q {
				if i, j := k/q, k%q; g.product(s, x, l*q+i, of+h*q+j) != 0 && meets != h {
					if meets >= 0 || !left[h] {
						return false
					}
					meets, left[h], some = h, false, true
				}
			}
		}
		for k := range q * q {
			i, j := k/q, k%q
			if j > i {
				continue
			}
			own := g.own(s, x, l, i, j)
			if meets < 0 && own == 0 {
				continue
			}
			at := of + meets*q
			if meets < 0 || math.Abs(g.product(s, x, l*q+i, at+j)-own) > sameSums*math.Abs(own) ||
				math.Abs(s.A[(at+i)*m+at+j]-own) > sameSums*math.Abs(own) {
				return false
			}
		}
	}
	return some && !slices.Contains(left, true)
}

// offset returns the first column in the border of a factor that is not eliminated.
func (g *Grouping) offset(f Factor) int {
	at := g.Common
	for _, o := range g.Others {
		if o.First == f.First {
			break
		}
		at += o.size()
	}
	return at
}

// product returns the element of XᵀΓX of column k of f and a later column of the border.
func (g *Grouping) product(s *gauss.Sums, f Factor, k, col int) float64 {
	m := g.Border()
	if f.First == g.First {
		return s.B[k*m+col]
	}
	return s.A[col*m+g.offset(f)+k]
}

// own returns the element of XᵀΓX of effects i and j ≤ i of a level of f.
func (g *Grouping) own(s *gauss.Sums, f Factor, level, i, j int) float64 {
	if f.First == g.First {
		return s.D[(level*f.Q+i)*f.Q+j]
	}
	at, m := g.offset(f)+level*f.Q, g.Border()
	return s.A[(at+i)*m+at+j]
}
