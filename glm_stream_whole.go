package pgsvi

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// While there are no more than mostKept rows a posterior has all of them, and what adds or removes
// some is a fit of those that are then there. A pass over the new rows alone holds what the old
// ones contribute fixed, whatever the new ones say, and of few rows that can be off by many
// standard deviations.

// WithRows returns p, whose Save now stores the rows of the data too, if there are at most 4096 of
// them. Update and Remove of a posterior that was loaded are then fits of all rows, as before it was
// saved. Without WithRows a file does not contain the data, and they are less accurate. What Update
// and Remove return stores its rows as p does.
func (p *GLMPosterior) WithRows() *GLMPosterior {
	q := *p
	q.filed = true
	return &q
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
	g.offset = g.lin.Terms.Offset
	g.lin.AddPriorMean()
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

// glmStream is the engine of a GLMStream.
type glmStream struct {
	g     *GLM // without data
	w     gauss.State
	block site.WeightBlock
	buf   rowBuffer
	kept  keptRows
	size  int // of a block of dense rows
	rows  int // in w; those in buf come on top
	seen  int // rows handed over

	past *rowBuffer    // all rows in w, while they are few; nil: not known
	from *GLMPosterior // the posterior of these rows; nil: it is yet to be made
	made bool          // w is that of from

	halt   parallel.Halt // while something is under way that can be canceled
	thin   bool          // the kept rows are too many,
	solved bool          // and have been solved for anew
}

// keptRows are rows seen before, with their sites, and the least variance of η
// of a row to be kept.
type keptRows struct {
	rowBuffer
	gamma, a, m []float64
	least       float64
}

func (k *keptRows) drop(d int) {
	k.reset(d)
	k.gamma, k.a, k.m, k.least = k.gamma[:0], k.a[:0], k.m[:0], 0
}

// leastLeft is the least part of a precision that rows may leave that are taken out: what stays has
// lost as many of its 16 digits.
const leastLeft = 1e-10

func (k *keptRows) clone() keptRows {
	c := keptRows{rowBuffer: k.rowBuffer.clone(), least: k.least}
	c.gamma, c.a, c.m = slices.Clone(k.gamma), slices.Clone(k.a), slices.Clone(k.m)
	return c
}

// newGLMStream returns a stream of the model g whose Gaussian is yet to be set.
func newGLMStream(g *GLM) *glmStream {
	d := len(g.lin.Names)
	s := &glmStream{g: g, size: max(1024, 2*d)}
	s.block.Use(term.Crew{Halt: &s.halt})
	s.buf.reset(d)
	s.kept.reset(d)
	return s
}

// checkStream returns an error if a stream of d weights takes more memory than it may.
func (o *GLMOptions) checkStream(d int) error {
	if o.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: GLMOptions.MaxMemory is %d: %w", o.MaxMemory, ErrParam)
	}
	return checkMemory(o.MaxMemory, memory.Bytes(site.WeightMatrices, d, d), fmt.Sprintf("a stream of %d weights", d), "fit the rows together, with a GLM of another covariance, or raise GLMOptions.MaxMemory")
}

// check returns an error if row is no row of the stream.
func (s *glmStream) check(row Row) error {
	return checkRow(&row, s.dim()-design.B2i(s.g.opt.Intercept), likOf(s.g.lin.Terms), s.seen-1)
}

// dim returns D, the number of weights, that of the intercept included.
func (s *glmStream) dim() int { return len(s.g.lin.Names) }
