package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// GLMStream is the Stream of a generalised linear model with a full
// covariance (streaming variational Bayes; Broderick et al., 2013). It keeps D² numbers, a
// block of rows and some thousands of rows seen before. Each block B moves the posterior q to
//
//	argmin_q₊ KL(q₊‖q) − Σ_{n∈B} w_n E_q₊[log p(y_n|η_n)],
//
// a proximal step with r = 0 in which q takes the place of the prior, and which
// has no step size. What a row contributed when q was wide is not what it would
// contribute later; the rows for which that matters most, those of the largest
// variance of η, are kept with their sites, some thousands at a time, and
// solved for again now and then, and for each Posterior. Blocks are counted in
// rows from the start, so that the result is the same to the last bit however
// the rows are handed over.
//
// The order of the rows does matter: rows sorted by their responses, say, lead the first
// blocks far away, and the posterior does not come all the way back. Shuffle a file once, or
// fit all rows with GLM.
type GLMStream = Stream[Row, *GLMPosterior]

// glmStream is the engine of a GLMStream.
type glmStream struct {
	g     *GLM // without data
	w     weightState
	block weightBlock
	buf   rowBuffer
	kept  keptRows
	size  int // of a block of dense rows
	rows  int // in w; those in buf come on top
	seen  int // rows handed over

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

// leastLeft is the least part of a precision that rows may leave that are taken out: what stays has lost as many of its 16 digits.
const leastLeft = 1e-10

// keptRows holds at most so many rows.
const mostKept = 4096

func (k *keptRows) clone() keptRows {
	c := keptRows{rowBuffer: k.rowBuffer.clone(), least: k.least}
	c.gamma, c.a, c.m = slices.Clone(k.gamma), slices.Clone(k.a), slices.Clone(k.m)
	return c
}

// NewGLMStream returns a stream that starts from the prior, for rows of the given
// number of columns (without the intercept). See NewGLM for lik, opt and the errors; Offset and
// Weights belong to the rows. It also returns an error wrapping ErrParam if opt asks
// for Autoscale, or for another covariance than a full one, which the D² numbers of the
// stream are, and wrapping ErrMemory if these are too many for GLMOptions.MaxMemory.
func NewGLMStream(cols int, lik Likelihood, opt *GLMOptions) (*GLMStream, error) {
	g, err := newGLM(lik, nil, opt)
	if err != nil {
		return nil, err
	}
	if cols < 0 || cols > math.MaxInt32 {
		return nil, fmt.Errorf("pgsvi: a stream of rows with %d columns: %w", cols, ErrShape)
	}
	switch o := &g.opt; {
	case o.Offset != nil || o.Weights != nil:
		return nil, fmt.Errorf("pgsvi: Offset and Weights of a stream are those of its rows: %w", ErrParam)
	case o.Autoscale:
		return nil, fmt.Errorf("pgsvi: Autoscale needs to know the columns, which a stream does not; set PriorSD or Prior: %w", ErrParam)
	case o.Learn != nil || o.Blocks != nil:
		return nil, fmt.Errorf("pgsvi: a stream does not learn its prior; leave GLMOptions.Learn and Blocks nil, and learn from rows in memory first: %w", ErrParam)
	case o.Covariance > FullCovariance:
		return nil, fmt.Errorf("pgsvi: a stream with a %v covariance; it has a full one: %w", o.Covariance, ErrParam)
	}
	if err := g.opt.checkStream(cols + b2i(g.opt.Intercept)); err != nil {
		return nil, err
	}
	if err := g.setNames(cols); err != nil {
		return nil, err
	}
	if err := g.setPrior(); err != nil {
		return nil, err
	}
	g.opt.Covariance = FullCovariance
	w, err := g.prior.state()
	if err != nil {
		return nil, err
	}
	s := newGLMStream(g)
	s.w.copyFrom(w)
	copy(s.w.mean, g.prior.mean)
	return &GLMStream{s}, nil
}

// checkStream returns an error if a stream of d weights takes more memory than it may.
func (o *GLMOptions) checkStream(d int) error {
	if o.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: GLMOptions.MaxMemory is %d: %w", o.MaxMemory, ErrParam)
	}
	return checkMemory(o.MaxMemory, bytesOf(weightMatrices, d, d), fmt.Sprintf("a stream of %d weights", d), "fit the rows together, with a GLM of another covariance, or raise GLMOptions.MaxMemory")
}

// newGLMStream returns a stream of the model g whose Gaussian is yet to be set.
func newGLMStream(g *GLM) *glmStream {
	d := len(g.names)
	s := &glmStream{g: g, size: max(1024, 2*d)}
	s.block.use(crew{halt: &s.halt})
	s.buf.reset(d)
	s.kept.reset(d)
	return s
}

// Stream returns a stream that starts from p, which it leaves as it is: the
// posterior of more rows, or of fewer. The error wraps ErrNotPosDef if the precision of p
// is, to rounding, not positive definite, and ErrMemory if D is too large for GLMOptions.MaxMemory.
// It takes some 22 D² numbers and D³/3 operations whatever the form of the covariance is.
func (p *GLMPosterior) Stream() (*GLMStream, error) {
	return p.streamUntil(nil)
}

// streamUntil is Stream, whose error is that of h where that has stopped.
func (p *GLMPosterior) streamUntil(h *parallel.Halt) (*GLMStream, error) {
	if err := p.opt.checkStream(p.Dim()); err != nil {
		return nil, err
	}
	w, err := p.cov.state(h)
	if err != nil {
		return nil, err
	}
	g := &GLM{linearModel{terms: &siteTerms{lik: p.lik}, prior: *p.prior, names: p.names}, p.opt}
	s := newGLMStream(g)
	s.w.copyFrom(w)
	copy(s.w.mean, p.mean)
	s.rows, s.seen = p.rows, p.rows
	return &GLMStream{s}, nil
}

// Update returns the posterior with further rows added, each seen once; p
// stays as it is. The posterior of one fit to all rows differs from it in the order of
// what one block moves the sites of the rows before: see the README for
// measurements. The errors are those of Stream.AddAll and GLMPosterior.Stream; the posterior is nil then.
func (p *GLMPosterior) Update(ctx context.Context, rows iter.Seq2[Row, error]) (*GLMPosterior, error) {
	return p.changed(ctx, rows, (*GLMStream).AddAll)
}

// Remove returns the posterior with rows taken out that it has seen; p stays as
// it is. With Gaussian noise what is left is exact, to 1e-6 standard deviations. With any other likelihood it
// is about what one pass leaves: the rows are taken out as they count now, within some thousandths
// of a standard deviation in most cases, and more where little is left of what was known.
//
// The errors are those of Stream.RemoveAll and GLMPosterior.Stream; the posterior is nil then. One
// wrapping ErrNotPosDef says that the digits do not suffice, or that the mean may be off by a
// standard deviation: fit the rows that stay.
func (p *GLMPosterior) Remove(ctx context.Context, rows iter.Seq2[Row, error]) (*GLMPosterior, error) {
	return p.changed(ctx, rows, (*GLMStream).RemoveAll)
}

// changed returns the posterior of what change makes of the stream from p.
func (p *GLMPosterior) changed(ctx context.Context, rows iter.Seq2[Row, error], change func(*GLMStream, context.Context, iter.Seq2[Row, error]) error) (*GLMPosterior, error) {
	var h parallel.Halt
	h.Watch(ctx)
	s, err := p.streamUntil(&h)
	if err != nil {
		return nil, prefixed(err)
	}
	if err := change(s, ctx, rows); err != nil {
		return nil, err
	}
	q, err := s.engine.posterior(ctx)
	return q, prefixed(err)
}

func (s *glmStream) len() int { return s.rows + s.buf.rows() }

func (s *glmStream) given() int { return s.seen }

// dim returns D, the number of weights, that of the intercept included.
func (s *glmStream) dim() int { return len(s.g.names) }

func (s *glmStream) add(ctx context.Context, row Row) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.seen++
	if err := s.check(row); err != nil {
		return err
	}
	s.buf.add(row, s.g.opt.Intercept)
	return s.settle(ctx)
}

// settle learns of the block that is complete, and does whatever else was canceled before. Where ctx is done the error is its cause, and
// there is as much to do as before.
func (s *glmStream) settle(ctx context.Context) error {
	if !s.full() && !s.thin { // as for most rows
		return nil
	}
	s.begin(ctx)
	defer s.halt.Forget()
	if s.full() {
		if err := s.flush(); err != nil {
			return err
		}
	}
	return s.thinOut()
}

// begin makes what follows end when ctx is done, and shares it between all cores.
func (s *glmStream) begin(ctx context.Context) {
	s.halt.Watch(ctx)
	s.halt.Lend(runtime.GOMAXPROCS(0))
	s.w.halt = &s.halt
}

// flush solves for the rows in the buffer and empties it, unless it is halted.
func (s *glmStream) flush() error {
	err := s.solve(&s.w)
	if errors.Is(err, ErrNotFinite) {
		err = s.salvageAll(err)
		if err == nil || s.halt.Err() == nil {
			s.buf.reset(s.dim())
			return err
		}
	}
	if h := s.halt.Err(); h != nil && err != nil {
		return h
	}
	defer s.buf.reset(s.dim())
	if err != nil {
		return err
	}
	s.rows += s.buf.rows()
	k, base := &s.kept, &s.block.base
	for i, v := range base.v { // before the block; the row itself has reduced it
		if v/(1+math.Abs(base.gamma[i])*v) >= k.least {
			k.copyRow(&s.buf, i)
			k.gamma, k.a, k.m = append(k.gamma, base.gamma[i]), append(k.a, base.a[i]), append(k.m, base.m[i])
		}
	}
	s.thin = k.rows() > mostKept
	return nil
}

// thinOut solves for kept rows anew that have become too many, and keeps the half of the largest variances.
func (s *glmStream) thinOut() error {
	if !s.thin {
		return nil
	}
	k := &s.kept
	if !s.solved {
		err := s.again(&s.w, k)
		if h := s.halt.Err(); h != nil && err != nil {
			return h
		}
		if err != nil {
			s.thin = false
			return err
		}
		s.solved = true
	}
	v := make([]float64, k.rows())
	s.w.variances(v, k.design(), nil, &s.block.mover.buf)
	if err := s.halt.Err(); err != nil {
		return err
	}
	s.thin, s.solved = false, false
	sorted := slices.Sorted(slices.Values(v))
	k.least = sorted[len(sorted)-mostKept/2]
	n := 0
	for i, vi := range v {
		if vi >= k.least && n < mostKept/2 {
			k.gamma[n], k.a[n], k.m[n] = k.gamma[i], k.a[i], k.m[i]
			k.moveRow(n, i)
			n++
		}
	}
	k.gamma, k.a, k.m = k.gamma[:n], k.a[:n], k.m[:n]
	k.truncate(n)
	return nil
}

// salvageAll is salvage of the whole buffer. Where it is halted the stream is as it was.
func (s *glmStream) salvageAll(err error) error {
	var before weightState
	before.copyFrom(&s.w)
	rows, pace := s.rows, s.block.pace
	err = s.salvage(err, 0, s.buf.rows())
	if s.halt.Stopped() {
		s.w.copyFrom(&before)
		s.rows, s.block.pace = rows, pace
		return s.halt.Err()
	}
	return err
}

// salvage solves for what can be solved for of the rows lo … hi−1 of the buffer, which
// together have failed with err, and returns the error of the first row that cannot.
func (s *glmStream) salvage(err error, lo, hi int) error {
	if hi-lo == 1 {
		return err
	}
	var first error
	for _, part := range [2][2]int{{lo, (lo + hi) / 2}, {(lo + hi) / 2, hi}} {
		err := s.solvePart(&s.w, part[0], part[1])
		switch {
		case err == nil:
			s.rows += part[1] - part[0]
		case errors.Is(err, ErrNotFinite):
			err = s.salvage(err, part[0], part[1])
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// again solves for kept rows anew.
func (s *glmStream) again(w *weightState, k *keptRows) error {
	n := k.rows()
	if n == 0 {
		return nil
	}
	b, x := &s.block, k.design()
	b.base.resize(n)
	x.mul(b.base.m, w.mean, nil)
	for i, m := range b.base.m {
		b.base.gamma[i] = k.gamma[i]
		b.base.a[i] = k.a[i] - k.gamma[i]*(m-k.m[i])
	}
	pace := b.pace
	b.pace.measured = false // there is nothing to go by
	err := b.solve(w, x, nil, k.terms(s.g.terms.lik, 0))
	b.pace = pace
	if err != nil {
		return err
	}
	copy(k.gamma, b.base.gamma)
	copy(k.a, b.base.a)
	copy(k.m, b.base.m)
	return nil
}

// full reports whether the rows in the buffer make a block. A block costs D³
// operations apart from its rows, which are cheap, and small, where they are sparse.
func (s *glmStream) full() bool {
	n := s.size
	if s.buf.x.sparse != nil {
		n = max(n, 8*s.dim())
	}
	return s.buf.rows() >= n
}

// check returns an error if row is no row of the stream.
func (s *glmStream) check(row Row) error {
	return checkRow(&row, s.dim()-b2i(s.g.opt.Intercept), s.g.terms.lik, s.seen-1)
}

// solve moves w by the rows in the buffer.
func (s *glmStream) solve(w *weightState) error { return s.solvePart(w, 0, s.buf.rows()) }

// solvePart moves w by rows lo … hi−1 of the buffer.
func (s *glmStream) solvePart(w *weightState, lo, hi int) error {
	b, t := &s.block, &s.buf
	x := t.design()
	var index []int
	if hi-lo < x.rows {
		for i := lo; i < hi; i++ {
			index = append(index, i)
		}
	}
	b.base.resize(hi - lo)
	x.mul(b.base.m, w.mean, index)
	clear(b.base.gamma)
	clear(b.base.a)
	return b.solve(w, x, index, t.terms(s.g.terms.lik, s.seen-x.rows))
}

func (s *glmStream) posterior(ctx context.Context) (*GLMPosterior, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	s.begin(ctx)
	defer s.halt.Forget()
	w := &weightState{}
	w.copyFrom(&s.w)
	pace := s.block.pace
	s.block.fine = true
	defer func() { s.block.fine, s.block.pace = false, pace }()
	if s.buf.rows() > 0 {
		if err := s.solve(w); err != nil {
			return nil, err
		}
	}
	k := s.kept.clone()
	if err := s.again(w, &k); err != nil {
		return nil, err
	}
	w.halt = nil
	mean := slices.Clone(w.mean)
	for j, m := range s.g.prior.mean {
		mean[j] -= m
	}
	return s.g.posterior(mean, &fullCov{s: w}, s.len()), nil
}

// removeAll takes out what the rows contribute to the posterior as it stands.
func (s *glmStream) removeAll(ctx context.Context, rows iter.Seq2[Row, error]) error {
	err := prefixed(s.settle(ctx))
	if err == nil {
		s.begin(ctx)
		defer s.halt.Forget()
		err = s.remove(ctx, rows)
	}
	if h := s.halt.Err(); h != nil && err != nil {
		return fmt.Errorf("pgsvi: canceled while rows were removed: %w", h)
	}
	return err
}

func (s *glmStream) remove(ctx context.Context, rows iter.Seq2[Row, error]) error {
	// From here on no row is kept, so that all are solved for to the end.
	s.block.fine = true
	defer func() { s.block.fine = false }()
	if s.buf.rows() > 0 {
		if err := s.flush(); err != nil {
			return prefixed(err)
		}
	}
	if err := s.again(&s.w, &s.kept); err != nil {
		return prefixed(err)
	}
	d := s.dim()
	next := &weightState{}
	next.copyFrom(&s.w)
	mean := &weightState{mean: s.w.mean, double: true, meanLow: make([]float64, d)}
	var g dense.Double
	g.Resize(d)
	g.Clear()
	var site siteState
	removed := 0
	flush := func() error {
		x, t := s.buf.design(), &s.buf
		n := x.rows
		if n == 0 {
			return nil
		}
		site.resize(n)
		mean.predict(site.m, x, nil) // rounded once: what sites of little noise contributed hangs on the last bit
		s.w.variances(site.v, x, nil, &s.block.mover.buf)
		if err := t.terms(s.g.terms.lik, removed).expect(&site, nil, crew{halt: &s.halt}); err != nil {
			return prefixed(err)
		}
		for i := range site.tg {
			site.tg[i] = -site.tg[i]
		}
		next.addRows(x, site.tg, nil, &s.block.mover.buf)
		x.addMulTDouble(g, site.d1, nil, &s.block.mover.buf)
		if err := s.halt.Err(); err != nil {
			return err
		}
		removed += n
		t.reset(d)
		return nil
	}
	defer s.buf.reset(d)
	seen := s.seen
	defer func() { s.seen = seen }()
	s.seen = 0
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
		s.buf.add(row, s.g.opt.Intercept)
		if s.full() {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if removed == 0 {
		return nil
	}
	next.halt = &s.halt
	ok := next.factor()
	if err := s.halt.Err(); err != nil {
		return err
	}
	if removed > s.rows || !ok {
		return fmt.Errorf("pgsvi: without these %d rows the posterior has no precision; has it seen them? %w", removed, ErrNotPosDef)
	}
	least := leastLeft
	if s.w.double {
		least = leastDoublePivot
	}
	if !(next.pivot(&s.w) >= least) {
		return fmt.Errorf("pgsvi: rounding leaves nothing of what is known without these %d rows; fit the rows that stay: %w", removed, ErrNotPosDef)
	}
	if off := meanRounding(next, &s.w); !(off <= mostMeanRounding) {
		return fmt.Errorf("pgsvi: without these %d rows rounding moves the mean by %.2g standard deviations; fit the rows that stay: %w",
			removed, off, ErrNotPosDef)
	}
	if _, exact := s.g.terms.lik.(GaussianNoise); !exact {
		off := amplification(next, &s.w) * math.Sqrt(2*weightBlockFine)
		if !(off <= mostSiteError) {
			return fmt.Errorf("pgsvi: without these %d rows little is left of what is known, and the mean may be %.2g standard deviations off; fit the rows that stay: %w",
				removed, off, ErrNotPosDef)
		}
	}
	next.apply(g)
	if j, ok := dense.AllFinite(g.Hi); !ok {
		return fmt.Errorf("pgsvi: mean of weight %d (%s) without these rows: %w", j, s.g.names[j], ErrNotFinite)
	}
	for j, v := range g.Hi {
		next.mean[j] = s.w.mean[j] - v
	}
	s.w = *next
	s.rows -= removed
	s.kept.drop(s.dim()) // some of them may be gone
	return nil
}

// mostMeanRounding is the most that rounding may do, by these trials, to the mean that Remove leaves, in
// standard deviations: that is then off by less than 1e-6 of them.
const mostMeanRounding = 2e-7

// roundingTrials is the number of errors that meanRounding tries.
const roundingTrials = 4

// meanRounding estimates by how many standard deviations, in any direction, the mean of next is off
// for the rounding δ of that of w, of precision Λ, from which it comes by taking rows out: by
// √(δᵀΛVΛδ), V being the covariance of next. Of the errors δ_j = ±ε·w_j it tries a few.
func meanRounding(next, w *weightState) (most float64) {
	d := len(w.mean)
	rng := rand.New(rand.NewPCG(seed1, seed2))
	none, delta := &design{cols: d}, &weightState{mean: make([]float64, d)}
	var r dense.Double
	r.Resize(d)
	for range roundingTrials {
		for j, m := range w.mean {
			delta.mean[j] = dense.Epsilon * m * float64(1-2*int(rng.Uint64()&1))
		}
		w.residual(r, delta, none, nil, &designWork{})
		next.whiten(r)
		most = max(most, floats.Norm(r.Hi, 2))
	}
	return most
}

// mostSiteError is the most that may come of sites that are not at their best, in standard deviations.
const mostSiteError = 1

// amplificationTurns is the number of turns of the power method: fewer find a tenth less in most cases.
const amplificationTurns = 8

// amplification returns the largest ratio of a variance under next to that under w, of the precision Λ:
// the largest eigenvalue of VΛ, V being the covariance of next. What the sites of rows are off, as
// a part of a standard deviation, is that much more where the rows are taken out.
func amplification(next, w *weightState) (most float64) {
	d := len(w.mean)
	rng := rand.New(rand.NewPCG(seed1, seed2))
	none, x := &design{cols: d}, &weightState{mean: make([]float64, d)}
	x.widen()
	clear(x.meanLow)
	for j := range x.mean {
		x.mean[j] = rng.NormFloat64() / math.Sqrt(w.p[j*d+j])
	}
	var r, scratch dense.Double
	r.Resize(d)
	size := w.square(x, &scratch)
	for range amplificationTurns {
		w.residual(r, x, none, nil, &designWork{})
		next.apply(r)
		for j := range r.Hi {
			x.mean[j], x.meanLow[j] = r.Hi[j]/math.Sqrt(size), r.Lo[j]/math.Sqrt(size)
		}
		size = w.square(x, &scratch)
		most = max(most, math.Sqrt(size))
	}
	return most
}

// rowBuffer collects rows. They are sparse if the first one is.
type rowBuffer struct {
	x                 design
	sp                Sparse
	y, offset, weight []float64
	plain             bool // no offset and no weight so far
}

func (t *rowBuffer) reset(d int) {
	t.x = design{cols: d, dense: t.x.dense[:0]}
	t.sp.cols, t.sp.ind, t.sp.val, t.sp.ptr = d, t.sp.ind[:0], t.sp.val[:0], append(t.sp.ptr[:0], 0)
	t.y, t.offset, t.weight, t.plain = t.y[:0], t.offset[:0], t.weight[:0], true
}

func (t *rowBuffer) rows() int { return len(t.y) }

func (t *rowBuffer) add(row Row, intercept bool) {
	if len(t.y) == 0 && row.Ind != nil {
		t.x.sparse = &t.sp
	}
	d := t.x.cols
	if t.x.sparse != nil {
		for k, v := range row.Val {
			if v != 0 {
				t.sp.ind, t.sp.val = append(t.sp.ind, int32(columnOf(row.Ind, k))), append(t.sp.val, v)
			}
		}
		if intercept {
			t.sp.ind, t.sp.val = append(t.sp.ind, int32(d-1)), append(t.sp.val, 1)
		}
		t.sp.ptr = append(t.sp.ptr, len(t.sp.ind))
	} else {
		lo := len(t.x.dense)
		t.x.dense = slices.Grow(t.x.dense, d)[:lo+d]
		x := t.x.dense[lo:]
		if row.Ind == nil {
			copy(x, row.Val)
		} else {
			clear(x)
			for k, j := range row.Ind {
				x[j] = row.Val[k]
			}
		}
		if intercept {
			x[d-1] = 1
		}
	}
	w := row.Weight
	if w == 0 {
		w = 1
	}
	t.y, t.offset, t.weight = append(t.y, row.Y), append(t.offset, row.Offset), append(t.weight, w)
	t.plain = t.plain && row.Offset == 0 && w == 1
}

// copyRow appends row i of o.
func (t *rowBuffer) copyRow(o *rowBuffer, i int) {
	if len(t.y) == 0 && o.x.sparse != nil {
		t.x.sparse = &t.sp
	}
	ind, val := o.x.row(i)
	switch {
	case t.x.sparse == nil:
		lo, d := len(t.x.dense), t.x.cols
		t.x.dense = slices.Grow(t.x.dense, d)[:lo+d]
		o.x.dense1(t.x.dense[lo:], i)
	case o.x.sparse != nil:
		t.sp.ind, t.sp.val = append(t.sp.ind, ind...), append(t.sp.val, val...)
		t.sp.ptr = append(t.sp.ptr, len(t.sp.ind))
	default:
		for j, v := range val {
			if v != 0 {
				t.sp.ind, t.sp.val = append(t.sp.ind, int32(j)), append(t.sp.val, v)
			}
		}
		t.sp.ptr = append(t.sp.ptr, len(t.sp.ind))
	}
	t.y, t.offset, t.weight = append(t.y, o.y[i]), append(t.offset, o.offset[i]), append(t.weight, o.weight[i])
	t.plain = t.plain && o.offset[i] == 0 && o.weight[i] == 1
}

// moveRow moves row i to place n ≤ i, whose row is given up, as are those after it but for i.
func (t *rowBuffer) moveRow(n, i int) {
	t.y[n], t.offset[n], t.weight[n] = t.y[i], t.offset[i], t.weight[i]
	if t.x.sparse == nil {
		d := t.x.cols
		copy(t.x.dense[n*d:(n+1)*d], t.x.dense[i*d:(i+1)*d])
		return
	}
	lo, hi, at := t.sp.ptr[i], t.sp.ptr[i+1], t.sp.ptr[n]
	copy(t.sp.val[at:], t.sp.val[lo:hi])
	copy(t.sp.ind[at:], t.sp.ind[lo:hi])
	t.sp.ptr[n+1] = at + hi - lo
}

// truncate gives up all rows but the first n.
func (t *rowBuffer) truncate(n int) {
	t.y, t.offset, t.weight = t.y[:n], t.offset[:n], t.weight[:n]
	if t.x.sparse == nil {
		t.x.dense = t.x.dense[:n*t.x.cols]
		return
	}
	t.sp.ptr = t.sp.ptr[:n+1]
	t.sp.ind, t.sp.val = t.sp.ind[:t.sp.ptr[n]], t.sp.val[:t.sp.ptr[n]]
}

func (t *rowBuffer) clone() rowBuffer {
	c := rowBuffer{x: design{rows: t.x.rows, cols: t.x.cols, dense: slices.Clone(t.x.dense)}, plain: t.plain}
	c.sp = Sparse{t.sp.cols, slices.Clone(t.sp.ptr), slices.Clone(t.sp.ind), slices.Clone(t.sp.val)}
	c.y, c.offset, c.weight = slices.Clone(t.y), slices.Clone(t.offset), slices.Clone(t.weight)
	if t.x.sparse != nil {
		c.x.sparse = &c.sp
	}
	return c
}

// design returns the rows, valid until the next change.
func (t *rowBuffer) design() *design {
	t.x.rows = len(t.y)
	return &t.x
}

// save returns the rows as they are saved.
func (t *rowBuffer) save() savedBuffer {
	return savedBuffer{t.design().save(), t.y, t.offset, t.weight}
}

// terms returns the terms of the rows, the first of which is number first of the stream.
func (t *rowBuffer) terms(lik Likelihood, first int) *siteTerms {
	r := &siteTerms{lik: lik, y: t.y, first: first}
	if !t.plain {
		r.offset, r.weight = t.offset, t.weight
	}
	return r
}

// glmStreamFile is the file of a GLMStream.
var glmStreamFile = save.Kind{Name: "GLMStream", Version: 1}

// savedGLMStream is a glmStream as JSON.
type savedGLMStream struct {
	Likelihood   save.Value         `json:"likelihood"`
	Names        save.List[string]  `json:"names"` // of the weights
	Intercept    bool               `json:"intercept"`
	Prior        savedPrior         `json:"prior"`
	Given        int                `json:"given"`
	Rows         int                `json:"rows"`
	Mean         save.List[float64] `json:"mean"`
	Precision    save.List[float64] `json:"precision"`              // lower triangle, row by row
	PrecisionLow save.List[float64] `json:"precisionLow,omitempty"` // what is left of it, where it has twice the digits
	Buffer       savedBuffer        `json:"buffer"`
	Kept         savedKept          `json:"kept"`
	Pace         *savedPace         `json:"pace,omitempty"` // nil if none was measured
}

// savedBuffer is a rowBuffer.
type savedBuffer struct {
	savedRows
	Y      save.List[float64] `json:"y"`
	Offset save.List[float64] `json:"offset"`
	Weight save.List[float64] `json:"weight"`
}

// savedKept are keptRows.
type savedKept struct {
	savedBuffer
	Gamma save.List[float64] `json:"gamma"`
	A     save.List[float64] `json:"a"`
	M     save.List[float64] `json:"m"`
	Least float64            `json:"least"`
}

// savedPace is a pace.
type savedPace struct {
	Mean      float64 `json:"mean"`
	Precision float64 `json:"precision"`
	Age       int     `json:"age"`
}

func (s *glmStream) save(w io.Writer) error {
	if err := s.settle(context.Background()); err != nil {
		return prefixed(err)
	}
	if err := checkText("the name of weight", s.g.names); err != nil {
		return err
	}
	lik, err := saveValue(s.g.terms.lik)
	if err != nil {
		return err
	}
	k, p := &s.kept, &s.block.pace
	saved := &savedGLMStream{Likelihood: lik, Names: s.g.names, Intercept: s.g.opt.Intercept, Prior: s.g.prior.save(),
		Given: s.seen, Rows: s.rows, Mean: s.w.mean, Precision: dense.PackLower(s.w.p, s.dim()), PrecisionLow: s.w.packLow(),
		Buffer: s.buf.save(), Kept: savedKept{k.save(), k.gamma, k.a, k.m, k.least}}
	after := []float64{p.after.mean, p.after.precision}
	if _, finite := dense.AllFinite(after); p.measured && finite { // if not, every step is checked, as without a measurement
		saved.Pace = &savedPace{after[0], after[1], p.age}
	}
	return saveTo(w, glmStreamFile, saved)
}

// LoadGLMStream reads what Save of a GLMStream has written, which must be all of r, and
// factorises its precision anew, in about D³/3 operations. The stream goes on as the one that was
// saved would have, to the last bit. The error wraps ErrFile if r has no such file, or one that is
// damaged or of a newer release, or whose numbers make no stream; it wraps ErrParam as well if the
// likelihood is of a type that Register was not told of. A failure of r is wrapped as it is.
func LoadGLMStream(r io.Reader) (*GLMStream, error) {
	return loadFrom(r, glmStreamFile, (*savedGLMStream).load)
}

func (s *savedGLMStream) load() (*GLMStream, error) {
	d := len(s.Names)
	if d == 0 || len(s.Mean) != d || len(s.Prior.Mean) != d || s.Rows < 0 || s.Given < 0 || max(s.Rows, s.Given) > mostSaved {
		return nil, fmt.Errorf("%d weights, %d rows and %d in all, with means of %d and prior means of %d: %w", d, s.Rows, s.Given, len(s.Mean), len(s.Prior.Mean), ErrShape)
	}
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	prior, err := s.Prior.load()
	if err != nil {
		return nil, err
	}
	w, err := loadPrecision(s.Precision, s.PrecisionLow, d, "precision")
	if err != nil {
		return nil, err
	}
	g := &GLM{linearModel{terms: &siteTerms{lik: lik}, prior: *prior, names: s.Names}, GLMOptions{Intercept: s.Intercept, Covariance: FullCovariance}}
	t := newGLMStream(g)
	copy(w.mean, s.Mean)
	t.w, t.rows, t.seen = *w, s.Rows, s.Given
	if err := t.buf.load(&s.Buffer, lik); err != nil {
		return nil, fmt.Errorf("rows of the next block: %w", err)
	}
	k, n := &t.kept, len(s.Kept.Y)
	if err := k.load(&s.Kept.savedBuffer, lik); err != nil {
		return nil, fmt.Errorf("kept rows: %w", err)
	}
	if len(s.Kept.Gamma) != n || len(s.Kept.A) != n || len(s.Kept.M) != n || !(s.Kept.Least >= 0) {
		return nil, fmt.Errorf("%d kept rows with %d, %d and %d site parameters: %w", n, len(s.Kept.Gamma), len(s.Kept.A), len(s.Kept.M), ErrShape)
	}
	k.gamma, k.a, k.m, k.least = s.Kept.Gamma, s.Kept.A, s.Kept.M, s.Kept.Least
	if p := s.Pace; p != nil {
		t.block.pace = pace{after: remainder{p.Mean, p.Precision}, age: p.Age, measured: true}
	}
	return &GLMStream{t}, nil
}

// load takes over saved rows of responses that lik has.
func (t *rowBuffer) load(s *savedBuffer, lik Likelihood) error {
	n, d := len(s.Y), t.x.cols
	if len(s.Offset) != n || len(s.Weight) != n {
		return fmt.Errorf("%d rows with %d offsets and %d weights: %w", n, len(s.Offset), len(s.Weight), ErrShape)
	}
	x, err := s.savedRows.load(n, d)
	if err != nil {
		return err
	}
	for i, y := range s.Y {
		if err := checkLabel(lik, y); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		if w := s.Weight[i]; !(w > 0) {
			return fmt.Errorf("row %d has weight %v: %w", i, w, ErrParam)
		}
		t.plain = t.plain && s.Offset[i] == 0 && s.Weight[i] == 1
	}
	t.y, t.offset, t.weight = s.Y, s.Offset, s.Weight
	if x.sparse != nil {
		t.sp = *x.sparse
		t.x.sparse = &t.sp
		return nil
	}
	t.x.dense = x.dense
	return nil
}
