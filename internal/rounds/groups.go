package rounds

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file divides the rows of a mixed model into common columns and the effects of one grouping
// factor. A round then adds up the blocks of XᵀΓX, which package gauss calls A, B_g and D_g, and the
// blocks of Xᵀu. A row changes the sums of its own level only, so a round over rows with Q effects
// and D common columns costs about as much per row as a round without the factor. RowPass calls this
// file. Arrow_look.go holds the sums of a state, and arrow_climb.go holds the driver.

// Grouping describes the columns of the only grouping factor of a mixed model. Level g has the
// columns First + g·Q to First + g·Q + Q − 1. The other columns are the common ones.
type Grouping struct {
	Name             string // for errors
	First, Levels, Q int
	Common           int // number of common columns
}

// Column returns the column of the model that is common column k.
func (g *Grouping) Column(k int) int {
	if k < g.First {
		return k
	}
	return k + g.Levels*g.Q
}

// Wide returns rows of common columns as rows of all columns.
func (g *Grouping) Wide(rows []Row) []Row {
	wide := slices.Clone(rows)
	for i := range wide {
		r := &wide[i]
		ind := make([]int32, 0, len(r.Val))
		for k := range r.Val {
			j := k
			if r.Ind != nil {
				j = int(r.Ind[k])
			}
			ind = append(ind, int32(g.Column(j)))
		}
		r.Ind = ind
	}
	return wide
}

// WideColumns returns the moments of all columns, given the moments of the common columns and the
// means of the columns of the group, whose other moments are 0.
func (g *Grouping) WideColumns(c *Columns, means []float64) *Columns {
	d := g.Common + g.Levels*g.Q
	wide := &Columns{make([]float64, d), make([]float64, d), make([]float64, d), make([]float64, d)}
	for k := range g.Common {
		j := g.Column(k)
		wide.Mean[j], wide.Variance[j] = c.Mean[k], c.Variance[k]
		wide.Count[j], wide.Square[j] = c.Count[k], c.Square[k]
	}
	copy(wide.Mean[g.First:], means)
	return wide
}

// each returns the number of sums of a level: Q of Xᵀu, a lower triangle of D_g, and Q rows of B_g.
func (g *Grouping) each() int { return g.Q + triangle(g.Q) + g.Q*g.Common }

// level returns the place of the first sum of a level.
func (g *Grouping) level(at int) int { return lookSums(g.Common) + at*g.each() }

// Sums returns the number of sums at a state.
func (g *Grouping) Sums() int { return g.level(g.Levels) }

// state writes or reads g.
func (g *Grouping) state(c *save.Coder) {
	c.Text(&g.Name)
	c.Int(&g.First, &g.Levels, &g.Q, &g.Common)
	c.Check(g.Q >= 1 && g.Q <= mostSums && g.Common <= mostSize && g.First <= g.Common &&
		g.Levels >= 1 && g.Levels <= mostSums/g.each(), "%d levels of %d columns, and %d others",
		g.Levels, g.Q, g.Common)
}

// groupLane is the scratch memory of one goroutine that adds rows of a mixed model, and holds the
// chunk of rows that it adds.
type groupLane struct {
	x     design.Matrix // common columns
	level []int32       // level of each row, or −1
	z     []float64     // N×Q
	order []int32       // the rows that have a level, sorted by level

	site   term.Marginals
	rows   []float64 // the common columns minus what the levels explain
	work   design.Work
	gram   []float64
	packed []float64 // the sums that all levels share
	runs   []int32   // the levels in order, and their sums
	sums   []float64
}

// split divides the rows of x. The error names a row with two levels.
func (w *groupLane) split(g *Grouping, x *design.Matrix, t *term.Terms) error {
	n, d, q := x.Rows, g.Common, g.Q
	w.x = design.Matrix{Rows: n, Cols: d, Dense: dense.Resize(w.x.Dense, n*d)}
	w.z, w.level = dense.Resize(w.z, n*q), slices.Grow(w.level[:0], n)[:n]
	clear(w.x.Dense)
	clear(w.z)
	w.order = w.order[:0]
	end := g.First + g.Levels*q
	for i := range n {
		ind, val := x.Row(i)
		own := int32(-1)
		for k, v := range val {
			j := k
			if ind != nil {
				j = int(ind[k])
			}
			switch {
			case v == 0:
			case j < g.First:
				w.x.Dense[i*d+j] = v
			case j >= end:
				w.x.Dense[i*d+j-g.Levels*q] = v
			default:
				level := int32((j - g.First) / q)
				if own >= 0 && own != level {
					return fmt.Errorf("row %d has the levels %d and %d of group %s; give each row one "+
						"level: %w", t.First+i, own, level, g.Name, sentinel.ErrParam)
				}
				own = level
				w.z[i*q+(j-g.First)%q] = v
			}
		}
		if w.level[i] = own; own >= 0 {
			w.order = append(w.order, int32(i))
		}
	}
	slices.SortStableFunc(w.order, func(a, b int32) int { return cmp.Compare(w.level[a], w.level[b]) })
	return nil
}

// pack computes Xᵀdiag(gamma)X and Xᵀu of the chunk. It leaves the first two sums to the caller.
func (w *groupLane) pack(g *Grouping, gamma, u []float64) {
	d, q, each := g.Common, g.Q, g.each()
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
		x, z := w.x.Dense[i*d:(i+1)*d], w.z[i*q:(i+1)*q]
		sum, b := own[q:], own[q+triangle(q):]
		for j, zj := range z {
			t := gamma[i] * zj
			own[j] += u[i] * zj
			for k, zk := range z[:j+1] {
				sum[k] += t * zk
			}
			sum = sum[j+1:]
			for k, v := range x {
				b[j*d+k] += t * v
			}
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
	// moments holds the triangle of Σ zzᵀ, the number of rows with a level, Σ w(y − o)² and Σ w.
	moments *Sums
	means   *Sums     // Σ wz of each level
	lo, hi  []float64 // smallest and largest values of each level
	seen    []bool    // levels with rows
}

// newGroupFirst returns a GroupFirst without rows.
func newGroupFirst(g *Grouping) *GroupFirst {
	n := g.Levels * g.Q
	return &GroupFirst{Start: NewArrowLook(nil, g), moments: NewSums(triangle(g.Q) + 3),
		means: NewSums(n), lo: make([]float64, n), hi: make([]float64, n),
		seen: make([]bool, g.Levels)}
}

// emptyGroupFirst returns a GroupFirst to be read.
func emptyGroupFirst(g *Grouping) *GroupFirst {
	return &GroupFirst{Start: &ArrowLook{of: g, rowSums: rowSums{sums: &Sums{}}}, moments: &Sums{}, means: &Sums{}}
}

// Near returns where a fit starts for a response: the linear predictor, and the precision of the
// site.
type Near func(y float64) (eta, gamma float64)

// add adds a chunk.
func (f *GroupFirst) add(w *groupLane, h *parallel.Halt, block uint64, t *term.Terms, near Near) {
	l := f.Start
	q := l.of.Q
	l.addStart(w, h, block, t, near)
	moments := make([]float64, triangle(q)+3)
	means := dense.Resize(w.sums, len(w.runs)*q)
	clear(means)
	rest := moments[triangle(q):]
	for i := range t.Y {
		y, o, weight, _ := t.Term(i)
		rest[1] += weight * (y - o) * (y - o)
		rest[2] += weight
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	run := -1
	for _, row := range w.order {
		i, g := int(row), int(w.level[row])
		if run < 0 || int(w.runs[run]) != g {
			run++
		}
		_, _, weight, _ := t.Term(i)
		z := w.z[i*q : (i+1)*q]
		rest[0]++
		lo, hi := f.lo[g*q:(g+1)*q], f.hi[g*q:(g+1)*q]
		for j, v := range z {
			if means[run*q+j] += weight * v; !f.seen[g] {
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
		return f.moments.Full(nil)
	}
	return f.moments.Full(o.moments)
}

// merge adds the rows of o.
func (f *GroupFirst) merge(o *GroupFirst) {
	f.Start.merge(o.Start)
	f.moments.Merge(o.moments)
	f.means.Merge(o.means)
	q := f.Start.of.Q
	for g, seen := range o.seen {
		if !seen {
			continue
		}
		for j := g * q; j < (g+1)*q; j++ {
			if !f.seen[g] {
				f.lo[j], f.hi[j] = o.lo[j], o.hi[j]
			}
			f.lo[j], f.hi[j] = min(f.lo[j], o.lo[j]), max(f.hi[j], o.hi[j])
		}
		f.seen[g] = true
	}
}

// state writes or reads f.
func (f *GroupFirst) state(c *save.Coder) {
	g := f.Start.of
	n := g.Levels * g.Q
	f.Start.state(c)
	f.moments.State(c, triangle(g.Q)+3)
	f.means.State(c, n)
	c.Floats(n, &f.lo, &f.hi)
	seen := make([]byte, len(f.seen))
	for k, s := range f.seen {
		if s {
			seen[k] = 1
		}
	}
	c.Bytes(&seen)
	c.Check(len(seen) == g.Levels && len(f.lo) == n && len(f.hi) == n, "%d levels of %d", len(seen),
		g.Levels)
	if c.Reading() {
		f.seen = make([]bool, g.Levels)
		for k, s := range seen {
			f.seen[k] = s != 0
		}
	}
}

// GroupMoments describes the values of the effects of a group.
type GroupMoments struct {
	Square    []float64 // Σ zzᵀ over all rows, Q×Q
	Rows      float64   // number of rows with a level
	Levels    int       // number of levels with rows
	Response  float64   // Σ w(y − o)²
	Weight    float64   // Σ w
	Means     []float64 // Σ wz/Σ w of each level
	Intercept bool      // the first effect has the same value in all rows with a level
	Varies    []bool    // for each effect, whether it varies within a level
}

// Moments returns the moments of the rows.
func (f *GroupFirst) Moments() *GroupMoments {
	q := f.Start.of.Q
	own := make([]float64, triangle(q)+3)
	f.moments.Value(own)
	rest := own[triangle(q):]
	m := &GroupMoments{Square: make([]float64, q*q), Rows: rest[0], Response: rest[1],
		Weight: rest[2], Means: make([]float64, f.means.Len()), Varies: make([]bool, q)}
	for i := range q {
		for j := range i + 1 {
			m.Square[i*q+j], m.Square[j*q+i] = own[triangle(i)+j], own[triangle(i)+j]
		}
	}
	f.means.Value(m.Means)
	for j := range m.Means {
		m.Means[j] /= m.Weight
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
