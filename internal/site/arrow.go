package site

import (
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
	"gonum.org/v1/gonum/floats"
)

// This file holds the base of mixed models, whose linear predictors contain effects of the levels
// of grouping factors. The base eliminates the levels of the largest factor one at a time
// (gauss.Arrow), so a step costs about as much per row as a step without the factor. The common
// columns and the other factors form the border.
//
//	arrow.go            the base: layout, Cover and Move
//	arrow_rows.go       sums over rows, and variances of rows
//	arrow_sigma.go      learning the covariance Σ = LLᵀ of the effects
//	arrow_curve.go      derivatives of log Z in Σ, for one factor
//	arrow_joint.go      steps of Σ together with the sites
//	arrow_algebra.go    the Algebra, which LinearModel uses if its prior has blocks
//	arrow_frozen.go     fits next to rows that are not kept
//
// Base.go describes the interfaces of a base, and gauss/arrow.go has the formulas.

// Factor describes how a grouping factor of a LinearModel learns the L of its block of the prior.
type Factor struct {
	Learn       bool
	Independent bool // L stays diagonal
	// Scale holds the scale of a half-normal prior of each standard deviation. It comes with an
	// LKJ(2) prior of the correlations. Nil means maximum likelihood.
	Scale []float64
}

// MostBorder is the largest number of columns of the border, which is dense.
const MostBorder = 3000

// arrow is the base of a linear model with blocks in its prior. It keeps the rows sorted by the
// levels of the first factor.
type arrow struct {
	lin   *LinearModel
	shape *gauss.ArrowShape
	x     design.Matrix // common columns
	fac   []arrowFactor // the first is eliminated
	// perm[k] is the number of row k of the base in the model. Level g has the rows begin[g] to
	// begin[g+1]−1, and the last rows have no level.
	perm, begin []int32
	chunks      []int   // levels at which chunks of levels start, and the number of levels
	at          []int32 // for each row and other factor, the first column in B_g, or −1

	hb, hg       []float64 // Xᵀb
	sorted       []float64 // a vector in the order of the base
	cur, try     arrowState
	moved, saved bool // cur has a covariance; the saved state has one
	few          bool // levels have few rows
	gaussian     bool // the noise is Gaussian, so the sites do not follow L
	pending      bool // try.L and the sums belong to the next Cover
	held         bool // the last move kept the covariance of cur
	sigma        sigma
	past         *arrowPast // sites of other rows, or nil
	// summed has the sums of Gaussian rows that are not kept, which replace the rows and their sites. It
	// is nil if the rows are kept.
	summed           *arrowState
	crew             term.Crew
	work             design.Work
	inverse          []float64 // covariance of the border, for crossed factors
	rows             []arrowWork
	solveWork, moveB []float64
	moveG            []float64
}

// arrowState is a state of the approximation.
type arrowState struct {
	by   gauss.Arrow
	mean gauss.ArrowMean
}

// arrowFactor holds the rows of a factor.
type arrowFactor struct {
	gauss.Block
	rule   Factor
	number int       // place among the blocks of the prior
	level  []int32   // level of each row, or −1
	z      []float64 // N×Q
	offset int       // first column in the border
}

var _ interface {
	Base
	exact
	holder
	spreader
	keeper
} = (*arrow)(nil)

// newArrow returns the base of l. The error names rows and columns that do not fit.
func newArrow(l *LinearModel) (*arrow, error) {
	a := &arrow{lin: l, gaussian: l.Terms.Noise() > 0, past: l.past}
	n := l.X.Rows
	for i, b := range l.Prior.Blocks() {
		f := arrowFactor{Block: b, number: i, level: make([]int32, n)}
		if i < len(l.Factors) {
			f.rule = l.Factors[i]
		}
		for i := range f.level {
			f.level[i] = -1
		}
		a.fac = append(a.fac, f)
	}
	a.order()
	owner, place, err := a.divide()
	if err != nil {
		return nil, err
	}
	if err := a.setLevels(owner); err != nil {
		return nil, err
	}
	a.sort()
	a.copyRows(owner, place)
	a.setPatterns()
	for _, f := range a.fac {
		a.cur.by.L = append(a.cur.by.L, slices.Clone(f.L))
	}
	a.shape.SetPtr()
	if a.past != nil {
		a.past.lay(a.shape)
	}
	a.cur.by.ArrowShape, a.try.by.ArrowShape = a.shape, a.shape
	a.sorted = make([]float64, n)
	a.sigma.begin(a)
	return a, nil
}

// order sorts the factors as gauss.NewArrowShape sorts their blocks.
func (a *arrow) order() {
	slices.SortStableFunc(a.fac, func(x, y arrowFactor) int { return y.Levels*y.Q - x.Levels*x.Q })
}

// again returns a base of l with the layout of a, for the same rows and groups.
func (a *arrow) again(l *LinearModel) *arrow {
	b := &arrow{lin: l, gaussian: l.Terms.Noise() > 0, x: a.x, fac: a.fac, perm: a.perm,
		begin: a.begin, chunks: a.chunks, few: a.few, at: a.at,
		sorted: a.sorted, inverse: a.inverse, rows: a.rows}
	shape := *a.shape
	shape.Prec = make([]float64, shape.Common)
	for i, j := range shape.Border[:shape.Common] {
		shape.Prec[i] = l.Prior.Prec[j]
	}
	b.shape = &shape
	b.cur.by.ArrowShape, b.try.by.ArrowShape = b.shape, b.shape
	for k := range b.fac {
		b.cur.by.L = append(b.cur.by.L, slices.Clone(b.fac[k].L))
	}
	b.sigma.begin(b)
	return b
}

// divide separates the common columns from the columns of the factors. It returns, for each column,
// 1 plus the factor that it belongs to, or 0, and the place of a common column.
func (a *arrow) divide() (owner, place []int32, err error) {
	l := a.lin
	owner, place = make([]int32, l.X.Cols), make([]int32, l.X.Cols)
	for i := range a.fac {
		f := &a.fac[i]
		for j := f.First; j < f.End(); j++ {
			owner[j] = int32(i + 1)
		}
	}
	s := gauss.NewArrowShape(&l.Prior)
	a.shape = s
	for k, j := range s.Border[:s.Common] {
		place[j] = int32(k)
	}
	for i := range a.fac[1:] {
		a.fac[i+1].offset = s.Offset(i + 1)
	}
	if len(s.Border) > MostBorder {
		return nil, nil, fmt.Errorf("the groups other than %s need %d columns that are solved together "+
			"with the common ones; at most %d are supported: %w", a.name(0), len(s.Border), MostBorder,
			sentinel.ErrMemory)
	}
	a.x = design.Matrix{Rows: l.X.Rows, Cols: s.Common}
	return owner, place, nil
}

// setLevels finds the levels of all rows, in the order of the model.
func (a *arrow) setLevels(owner []int32) error {
	var b design.RowBuffer
	for i := range a.x.Rows {
		ind, val := a.lin.X.RowIn(&b, i)
		for k, v := range val {
			j := dense.Index(ind, k)
			o := owner[j]
			if v == 0 || o == 0 {
				continue
			}
			f := &a.fac[o-1]
			g := int32((j - f.First) / f.Q)
			if f.level[i] >= 0 && f.level[i] != g {
				return fmt.Errorf("row %d has two levels of %s; give each row one level: %w", i,
					a.name(int(o-1)), sentinel.ErrParam)
			}
			f.level[i] = g
		}
	}
	return nil
}

// copyRows copies the values of the rows in the order of the base.
func (a *arrow) copyRows(owner, place []int32) {
	d := a.x.Cols
	a.x.Dense = make([]float64, a.x.Rows*d)
	for i := range a.fac {
		a.fac[i].z = make([]float64, a.x.Rows*a.fac[i].Q)
	}
	var b design.RowBuffer
	for to, i := range a.perm {
		ind, val := a.lin.X.RowIn(&b, int(i))
		for k, v := range val {
			j := dense.Index(ind, k)
			switch o := owner[j]; {
			case v == 0:
			case o == 0:
				a.x.Dense[to*d+int(place[j])] = v
			default:
				f := &a.fac[o-1]
				f.z[to*f.Q+(j-f.First)%f.Q] = v
			}
		}
	}
}

// name describes factor i in an error.
func (a *arrow) name(i int) string {
	f := &a.fac[i]
	return fmt.Sprintf("the group of %d columns from %s on", f.Levels*f.Q, a.lin.Names[f.First])
}

// arrowChunk is the smallest number of rows in a chunk of levels.
const arrowChunk = 1024

// sort sorts the rows by the levels of the first factor.
func (a *arrow) sort() {
	f, n := &a.fac[0], a.x.Rows
	a.begin = make([]int32, f.Levels+2)
	levelOf := func(i int) int {
		if g := f.level[i]; g >= 0 {
			return int(g)
		}
		return f.Levels
	}
	for i := range n {
		a.begin[levelOf(i)+1]++
	}
	for g := range f.Levels + 1 {
		a.begin[g+1] += a.begin[g]
	}
	a.perm = make([]int32, n)
	next := slices.Clone(a.begin)
	for i := range n {
		g := levelOf(i)
		a.perm[next[g]] = int32(i)
		next[g]++
	}
	if !slices.IsSorted(a.perm) {
		old := make([]int32, n)
		for i := range a.fac {
			level := a.fac[i].level
			copy(old, level)
			for k, i := range a.perm {
				level[k] = old[i]
			}
		}
	}
	a.chunks = append(a.chunks, 0)
	seen := 0
	for g := range f.Levels {
		if a.begin[g] < a.begin[g+1] {
			seen++
		}
		if last := a.chunks[len(a.chunks)-1]; a.begin[g+1]-a.begin[last] >= arrowChunk ||
			g+1 == f.Levels {
			a.chunks = append(a.chunks, g+1)
		}
	}
	a.few = int(a.begin[f.Levels]) <= jointRows*seen
}

// setPatterns finds the columns of the border that each level meets.
func (a *arrow) setPatterns() {
	f, others, d := &a.fac[0], a.fac[1:], a.x.Cols
	a.shape.Pat = make([][]int32, f.Levels)
	a.at = make([]int32, a.x.Rows*len(others))
	for k := range a.at {
		a.at[k] = -1
	}
	if len(others) == 0 {
		return
	}
	for g := range f.Levels {
		var cols []int32
		for i := int(a.begin[g]); i < int(a.begin[g+1]); i++ {
			for k := range others {
				o := &others[k]
				if h := int(o.level[i]); h >= 0 {
					for c := range o.Q {
						cols = append(cols, int32(o.offset+h*o.Q+c))
					}
				}
			}
		}
		slices.Sort(cols)
		a.shape.Pat[g] = slices.Clone(slices.Compact(cols))
	}
	if a.past != nil {
		a.past.joinPatterns(a.shape)
	}
	for g, cols := range a.shape.Pat {
		for i := int(a.begin[g]); i < int(a.begin[g+1]); i++ {
			for k := range others {
				o := &others[k]
				if h := int(o.level[i]); h >= 0 {
					p, _ := slices.BinarySearch(cols, int32(o.offset+h*o.Q))
					a.at[i*len(others)+k] = int32(d + p)
				}
			}
		}
	}
}

// in stores x in the order of the base in a.sorted, and returns that.
func (a *arrow) in(x []float64) []float64 {
	dst := a.sorted
	parallel.Vectors(len(dst), a.crew.Halt, func(lo, hi int) {
		for k, i := range a.perm[lo:hi] {
			dst[lo+k] = x[i]
		}
	})
	return dst
}

// outTo stores a.sorted in dst, in the order of the model.
func (a *arrow) outTo(dst []float64) {
	x := a.sorted
	parallel.Vectors(len(x), a.crew.Halt, func(lo, hi int) {
		for k, i := range a.perm[lo:hi] {
			dst[i] = x[lo+k]
		}
	})
}

// Cover implements Mover.
func (a *arrow) Cover(v, delta []float64) (logDet float64, ok bool) {
	t := &a.try
	if !a.pending {
		t.by.L = gauss.CloneLists(a.cur.by.L)
		a.sum(t, delta, nil)
	}
	a.pending, a.held = false, false
	if !t.by.Factor(a.crew.Halt) {
		return 0, false
	}
	a.variancesTo(v, t)
	for _, x := range v {
		if !(x >= 0) || math.IsInf(x, 0) {
			return 0, false
		}
	}
	logDet = t.by.LogDet - 2*a.sigma.logPrior(t.by.L, nil)
	if a.past != nil {
		logDet -= a.past.logDet
	}
	return logDet, !a.crew.Halt.Stopped()
}

// Move implements Mover.
func (a *arrow) Move(d, delta, u []float64) (square float64) {
	return a.move(&a.try.by, d, delta, u)
}

// move is Move with the covariance c. The mean is stored in a.try.
func (a *arrow) move(c *gauss.Arrow, d, delta, u []float64) (square float64) {
	t := &a.try.mean
	a.collect(u)
	square = c.Solve(t, a.moveB, a.moveG, a.solveWork)
	a.spreadTo(d, t.W, t.U)
	for i, x := range d {
		u[i] -= delta[i] * x
	}
	if a.past != nil { // the precision without the rows is more than the prior
		square = floats.Dot(d, u)
	}
	return square
}

// hold implements holder. No step has computed the covariance of the prior, so hold computes it.
func (a *arrow) hold(d, delta, u []float64) (square float64) {
	if !a.moved { // the state is the prior
		a.coverPrior(delta)
	}
	a.held = true
	return a.move(&a.cur.by, d, delta, u)
}

// coverPrior computes the covariance of the prior, whose sites delta are 0.
func (a *arrow) coverPrior(delta []float64) {
	a.cover(delta)
	a.collect(make([]float64, len(delta)))
	a.cur.by.Solve(&a.cur.mean, a.moveB, a.moveG, a.solveWork)
}

// Accept implements Mover.
func (a *arrow) Accept() {
	a.sigma.linear = nil
	if a.held {
		a.cur.mean, a.try.mean = a.try.mean, a.cur.mean
		a.held = false
		return
	}
	a.swap()
	a.moved = true
	a.sigma.rate.accept()
	a.sigma.denied = a.sigma.refused > sigmaTries+sigmaShorter
	a.sigma.refused = 0
}

// swap exchanges cur and try.
func (a *arrow) swap() {
	c, t := &a.cur, &a.try
	c.mean, t.mean = t.mean, c.mean
	x, y := &c.by, &t.by
	for _, p := range [][2]*[]float64{{&x.K, &y.K}, {&x.R, &y.R}, {&x.E, &y.E},
		{&x.Chol, &y.Chol}, {&x.Sums.A, &y.Sums.A}, {&x.Sums.B, &y.Sums.B},
		{&x.Sums.D, &y.Sums.D}} {
		*p[0], *p[1] = *p[1], *p[0]
	}
	x.L, y.L = y.L, x.L
	x.LogDet, y.LogDet = y.LogDet, x.LogDet
}

func (a *arrow) exact() {}

// Prior implements Base.
func (a *arrow) Prior() (s term.Marginals) {
	n := a.x.Rows
	s.M, s.V = make([]float64, n), make([]float64, n)
	s.Gamma, s.A = s.M, s.M // zeros, which nothing writes
	if a.past != nil {
		if a.coverPrior(s.M); a.moved {
			a.past.logDet = a.cur.by.LogDet
			a.variancesTo(s.V, &a.cur)
		}
		return s
	}
	inv := make([]float64, a.x.Cols)
	for i, p := range a.shape.Prec {
		inv[i] = 1 / p
	}
	v := a.sorted
	a.x.QuadDiagOn(a.crew.Halt, v, inv, nil)
	for k := range a.fac {
		f, l := &a.fac[k], a.cur.by.L[k]
		for i := range n {
			if f.level[i] < 0 {
				continue
			}
			z := f.z[i*f.Q : (i+1)*f.Q]
			for c := range f.Q {
				var x float64
				for j := c; j < f.Q; j++ {
					x += l[j*f.Q+c] * z[j]
				}
				v[i] += x * x
			}
		}
	}
	a.outTo(s.V)
	return s
}

// weights implements spreader. A vector of weights has the border first, and then the levels.
func (a *arrow) weights() int { return len(a.shape.Border) + a.fac[0].Levels*a.fac[0].Q }

// gather implements spreader.
func (a *arrow) gather(u, r []float64) bool {
	a.collect(r)
	m := copy(u, a.moveB)
	copy(u[m:], a.moveG)
	return true
}

// spread implements spreader.
func (a *arrow) spread(w, u []float64) bool {
	m := len(a.shape.Border)
	if !a.moved && a.past != nil {
		a.coverPrior(make([]float64, a.x.Rows))
	}
	if a.moved {
		t := &a.try.mean
		a.cur.by.Solve(t, u[:m], u[m:], a.solveWork)
		copy(w, t.W)
		copy(w[m:], t.U)
		return true
	}
	for i, p := range a.shape.Prec {
		w[i] = u[i] / p
	}
	for k := range a.fac {
		f, at := &a.fac[k], m
		if k > 0 {
			at = f.offset
		}
		b := gauss.Block{First: at, Levels: f.Levels, Q: f.Q, L: a.cur.by.L[k]}
		b.Solve(w, u)
	}
	return true
}

// curve implements spreader.
func (a *arrow) curve(eta, u, w, h []float64) {
	m := len(a.shape.Border)
	a.spreadTo(eta, w[:m], w[m:])
	parallel.Vectors(len(h), a.crew.Halt, func(lo, hi int) {
		for k, i := range a.perm[lo:hi] {
			a.sorted[lo+k] *= h[i]
		}
	})
	a.collectSorted()
	copy(u, a.moveB)
	copy(u[m:], a.moveG)
}

// use implements keeper.
func (a *arrow) use(c term.Crew) { a.crew, a.work.Halt = c, c.Halt }

// restart implements keeper.
func (a *arrow) restart() {
	a.pending, a.moved, a.held = false, false, false
	a.sigma.linear = nil
}

// start implements keeper.
func (a *arrow) start() {}

// follow implements keeper.
func (a *arrow) follow() (distance float64) { return math.NaN() }

// stale implements keeper.
func (a *arrow) stale() {}

// settled implements keeper.
func (a *arrow) settled() bool { return true }

// save implements keeper.
func (a *arrow) save(c *save.Coder) {
	for k := range a.fac {
		c.Floats(len(a.fac[k].L), &a.cur.by.L[k])
	}
	a.sigma.rate.state(c, len(a.sigma.coords))
	c.Int(&a.sigma.refused)
	c.Bool(&a.sigma.denied, &a.sigma.failed)
	a.saved = a.moved
	c.Bool(&a.saved)
	if a.saved {
		m, rows := len(a.shape.Border), a.fac[0].Levels*a.fac[0].Q
		c.Floats(m, &a.cur.mean.W)
		c.Floats(m, &a.cur.mean.Unit)
		c.Floats(rows, &a.cur.mean.U)
		c.Floats(rows, &a.cur.mean.V)
	}
}

// resume implements keeper. It computes the covariance of the present state, at the saved L.
func (a *arrow) resume(gamma []float64) {
	if a.saved {
		a.cover(gamma)
	}
}

// cover computes the covariance of the present state, which has the given γ.
func (a *arrow) cover(gamma []float64) {
	t := &a.try
	t.by.L = gauss.CloneLists(a.cur.by.L)
	a.sum(t, gamma, nil)
	if t.by.Factor(a.crew.Halt) {
		t.mean, a.cur.mean = a.cur.mean, t.mean
		a.swap()
		a.moved = true
	}
}
