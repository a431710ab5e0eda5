package pgsvi

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// mostSeen is the number of values of the rows, 128 MB, that a posterior has at its most.
const mostSeen = 1 << 24

// While there are no more than mostKept rows a posterior has all of them, and what adds or removes
// some is a fit of those that are then there. A pass over the new rows alone holds what the old
// ones contribute fixed, whatever the new ones say, and of few rows that can be off by many
// standard deviations.

// seenRows are the rows of a GLM, which has them too.
type seenRows struct {
	x                 *design.Matrix // with the column of the intercept
	y, offset, weight []float64      // of the last two nil is none, and ones
}

// seen returns the rows of g if there are so many and no more than a posterior has.
func (g *GLM) seen(rows int) *seenRows {
	if g.rows != nil || g.lin.X == nil || oneLatent(likOf(g.lin.Terms), "") != nil ||
		rows != g.Len() || rows > mostKept || valuesOf(g.lin.X) > mostSeen {
		return nil
	}
	return &seenRows{g.lin.X, g.lin.Terms.Y, g.offset, g.lin.Terms.Weight}
}

// valuesOf returns the number of values of x.
func valuesOf(x *design.Matrix) int {
	if x.Sparse != nil {
		return x.Sparse.Ptr[x.Rows]
	}
	return x.Rows * x.Cols
}

// WithRows returns p, whose Save now stores the rows of the data too, if there are at most 4096 of
// them. Update and Remove of a posterior that was loaded are then fits of all rows, as before it was
// saved. Without WithRows a file does not contain the data, and they are less accurate. What Update
// and Remove return stores its rows as p does.
func (p *GLMPosterior) WithRows() *GLMPosterior {
	q := *p
	q.filed = true
	return &q
}

// newRowBuffer returns a buffer for rows of d values.
func newRowBuffer(d int) *rowBuffer {
	t := &rowBuffer{}
	t.reset(d)
	return t
}

// rows returns copies of the rows, of d values, or nil for nil.
func (s *seenRows) rows(d int) *rowBuffer {
	if s == nil {
		return nil
	}
	n := len(s.y)
	all := &rowBuffer{x: *s.x, y: s.y, offset: s.offset, weight: s.weight}
	if all.offset == nil {
		all.offset = make([]float64, n)
	}
	if all.weight == nil {
		all.weight = slices.Repeat([]float64{1}, n)
	}
	t := newRowBuffer(d)
	for i := range n {
		t.copyRow(all, i)
	}
	return t
}

// stream returns a stream that starts from p, whose w is yet to be made.
func (p *GLMPosterior) stream() *glmStream {
	s := newGLMStream(&GLM{
		lin: site.LinearModel{
			Terms: &term.Terms{Lik: viewOf(p.lik)}, Prior: *p.prior, Names: p.names, MaxMemory: p.opt.MaxMemory,
		},
		opt: p.opt, means: p.means,
	})
	s.rows, s.seen = p.rows, p.rows
	s.from, s.past = p, p.data.rows(p.Dim())
	return s
}

// begun makes w, that of the posterior from which the stream starts. The error is that of h where
// that has stopped.
func (s *glmStream) begun(h *parallel.Halt) error {
	if s.made {
		return nil
	}
	w, err := s.from.cov.State(h)
	if err != nil {
		return err
	}
	s.w.CopyFrom(w)
	copy(s.w.Mean, s.from.mean)
	s.made = true
	return nil
}

// sited reports whether w is the prior and the sites of all rows.
func (s *glmStream) sited() bool {
	return s.rows == 0 || s.from == nil || s.from.ofSites()
}

// ofSites reports whether the precision of p is that of the prior and of sites.
func (p *GLMPosterior) ofSites() bool {
	switch p.cov.(type) {
	case *gauss.Full, *gauss.Dual:
		return true
	}
	return false
}

// open makes a stream that has all its rows one that has some, kept with their sites.
func (s *glmStream) open() error {
	past := s.past
	if past == nil {
		return nil
	}
	if err := s.g.opt.checkStream(s.dim()); err != nil {
		return err
	}
	if err := s.begun(&s.halt); err != nil {
		return err
	}
	if n := past.rows(); n > 0 && s.sited() {
		var at term.State
		at.Resize(n)
		x := past.design()
		x.Mul(at.M, s.w.Mean, nil)
		s.w.Variances(at.V, x, nil, &s.block.Mover.Buf)
		if err := past.terms(likOf(s.g.lin.Terms), 0).Expect(&at, nil, term.Crew{Halt: &s.halt}); err != nil {
			return err
		}
		if err := s.halt.Err(); err != nil {
			return err
		}
		k := &s.kept
		for i := range n {
			k.copyRow(past, i)
		}
		k.gamma, k.a, k.m = at.Tg, at.D1, at.M
	}
	s.past, s.from = nil, nil
	return nil
}

// together returns copies of all rows of a stream that has them.
func (s *glmStream) together() *rowBuffer {
	t := newRowBuffer(s.dim())
	for _, b := range []*rowBuffer{s.past, &s.buf} {
		b.design()
		for i := range b.rows() {
			t.copyRow(b, i)
		}
	}
	return t
}

// whole returns the posterior of all rows of a stream that has them.
func (s *glmStream) whole(ctx context.Context) (*GLMPosterior, error) {
	if s.from != nil && s.buf.rows() == 0 {
		return s.from, nil
	}
	return s.fit(ctx, s.together())
}

// fit returns the posterior of a fit of the rows of t alone.
func (s *glmStream) fit(ctx context.Context, t *rowBuffer) (*GLMPosterior, error) {
	opt := s.g.opt
	opt.Learn, opt.Blocks, opt.Estimator = nil, nil, nil
	n, d := t.rows(), s.dim()
	if err := opt.checkMemory(0, n, d, opt.family(n, d)); err != nil {
		return nil, err
	}
	g := &GLM{lin: s.g.lin, opt: opt, means: s.g.means}
	g.lin.X, g.lin.Terms = t.design(), t.terms(likOf(s.g.lin.Terms), 0)
	if t.x.Sparse != nil {
		t.x.Unit = !slices.ContainsFunc(t.sp.Val, func(v float64) bool { return v != 1 })
	}
	g.addPriorMean()
	p, res, err := g.Fit(ctx, nil)
	if err != nil {
		return nil, err
	}
	if res.Status != Converged && !(res.Gap <= mostFitGap) {
		return nil, fmt.Errorf("pgsvi: a fit of all %d rows ends (%v) %.2g nats from its optimum; "+
			"a prior nearer to the scale of the data helps: %w", n, res.Status, res.Gap, ErrDiverged)
	}
	if i, ok := p.resolves(g); !ok {
		return nil, fmt.Errorf("pgsvi: row %d of all %d tells so much more than the prior that rounding "+
			"leaves nothing of the variance there; a prior nearer to the scale of the data helps: %w", i, n, ErrDiverged)
	}
	return p, nil
}

// mostTold is the most that a row of a log-concave likelihood may seem to tell, γ_n times the
// variance of η_n: that is 1 with a prior that tells nothing.
const mostTold = 1.001

// resolves reports whether the variances of p, a posterior of g, at its rows are more than
// rounding, or which one is not.
func (p *GLMPosterior) resolves(g *GLM) (row int, ok bool) {
	n := g.Len()
	if n == 0 {
		return 0, true
	}
	var at term.State
	at.Resize(n)
	mean := make([]float64, p.Dim())
	floats.SubTo(mean, p.mean, p.prior.Mean)
	g.lin.X.Mul(at.M, mean, nil)
	p.cov.Variances(at.V, g.lin.X, nil)
	for i, v := range at.V {
		_, x := g.lin.X.Row(i)
		if !(v > 0) && floats.Norm(x, math.Inf(1)) > 0 {
			return i, false
		}
	}
	if !p.ofSites() || !g.lin.Terms.Concave() || g.lin.Terms.Expect(&at, nil, term.Crew{}) != nil {
		return 0, true
	}
	for i, gamma := range at.Tg {
		if !(gamma*at.V[i] <= mostTold) {
			return i, false
		}
	}
	return 0, true
}

// mostFitGap is how many nats a fit of all rows may be from its optimum.
const mostFitGap = 1e-4

// removeKnown takes rows out of a stream that has all its rows. If one of them is not among these,
// what the rows contribute is taken out.
func (s *glmStream) removeKnown(ctx context.Context, rows iter.Seq2[Row, error]) error {
	all := s.together()
	var gone []Row
	seen := s.seen
	defer func() { s.seen = seen }()
	s.seen = 0
	taken := newRowBuffer(s.dim())
	for row, err := range rows {
		s.seen++
		if err == nil && s.seen%256 == 1 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = prefixed(s.check(row))
		}
		if err != nil {
			return err
		}
		if len(gone) == all.rows() {
			return fmt.Errorf("pgsvi: row %d to remove is one more than the %d rows that the posterior has seen: %w", len(gone), all.rows(), ErrNotPosDef)
		}
		row.Ind, row.Val = slices.Clone(row.Ind), slices.Clone(row.Val)
		gone = append(gone, row)
		taken.add(row, s.g.opt.Intercept)
	}
	if len(gone) == 0 {
		return nil
	}
	rest, found := all.without(taken)
	if !found {
		if err := s.open(); err != nil {
			return prefixed(err)
		}
		return s.remove(ctx, func(yield func(Row, error) bool) {
			for _, row := range gone {
				if !yield(row, nil) {
					return
				}
			}
		})
	}
	post, err := s.fit(ctx, rest)
	if err != nil {
		return prefixed(err)
	}
	s.past, s.from, s.made, s.rows = rest, post, false, rest.rows()
	s.buf.reset(s.dim())
	return nil
}

// without returns a copy of the rows of t without those of gone, and whether these are all there.
func (t *rowBuffer) without(gone *rowBuffer) (rest *rowBuffer, found bool) {
	t.design()
	gone.design()
	seed := maphash.MakeSeed()
	where := make(map[uint64][]int)
	var key, other []byte
	for i := range t.rows() {
		key = t.key(key[:0], i)
		h := maphash.Bytes(seed, key)
		where[h] = append(where[h], i)
	}
	out := make([]bool, t.rows())
	for i := range gone.rows() {
		key = gone.key(key[:0], i)
		at := where[maphash.Bytes(seed, key)]
		k := slices.IndexFunc(at, func(j int) bool {
			other = t.key(other[:0], j)
			return !out[j] && bytes.Equal(key, other) && sameOffset(t.offset[j], gone.offset[i])
		})
		if k < 0 {
			return nil, false
		}
		out[at[k]] = true
	}
	rest = newRowBuffer(t.x.Cols)
	for i, o := range out {
		if !o {
			rest.copyRow(t, i)
		}
	}
	return rest, true
}

// sameOffset reports whether two offsets differ by rounding alone.
func sameOffset(a, b float64) bool {
	return math.Abs(a-b) <= 1e-12*max(math.Abs(a), math.Abs(b))
}

// key appends what row i of t is, but for its offset.
func (t *rowBuffer) key(dst []byte, i int) []byte {
	number := func(x float64) {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(x+0)) // −0 is 0
	}
	ind, val := t.x.Row(i)
	for k, v := range val {
		if v == 0 {
			continue
		}
		j := k
		if ind != nil {
			j = int(ind[k])
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(j))
		number(v)
	}
	number(t.y[i])
	number(t.weight[i])
	return dst
}
