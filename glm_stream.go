package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
)

// NewGLMStream returns a stream that fits a generalized linear model with a full covariance in one
// pass over the rows (online learning; streaming variational Bayes, Broderick et al., 2013). It
// keeps D² numbers, a block of rows and a few thousand earlier rows. Each block B moves the
// posterior q to
//
//	argmin_q₊ KL(q₊‖q) − Σ_{n∈B} w_n E_q₊[log p(y_n|η_n)],
//
// a proximal step with r = 0 in which q is the prior. It has no step size.
//
// Up to 4096 rows, with 2²⁴ values, are all kept, and Posterior is then a fit of all rows. After
// more rows, the contribution of a row depends on q at the time, and early rows were seen under a
// wide q. The stream keeps a few thousand of the rows for which this matters most, which have the
// largest variance of η, with their sites. It refits these sites at intervals and before each
// Posterior. Blocks are counted in rows from the start, so the result has the same bits however the
// rows are grouped.
//
// The order of the rows matters. If rows are sorted, for example by response, the first blocks move
// the posterior far away, and later blocks do not bring it back completely. Shuffle a file once, or
// fit all rows with GLM.
//
// GLMOptions.Groups makes a mixed model. Group.Levels must count all levels that may occur; a level is
// new until its first row. For more levels, continue with Posterior, GLMPosterior.WithLevels and
// GLMPosterior.Stream, which keeps Σ. Up to 4096 rows, Posterior is the fit of NewGLM, which learns Σ,
// or an error of NewGLM, for example if a slope does not vary within any level yet. After more rows,
// Σ and the sites of the kept rows take turns at being moved to their best values, until Σ would gain
// less than 1e-7 nats. The other rows are sums for each level. Their sites keep the values that they
// had under an earlier q. With Gaussian noise, sites do not depend on q, so the result is the fit of
// all rows, integrated over the Σ of groups with few levels; see Group. Streams of 12,000 labels or counts with 8 to 200 rows per level (TestGroupStream) were
// close to the fit of all rows: the standard deviations of Σ within 0.3%, the means of weights within
// 0.04 of their standard deviations in root mean square and 0.2 at most, and the standard deviations
// of weights within 2.5%. Intervals of Σ were up to 9% too narrow, because the other sites do not
// follow Σ, and posteriors of more rows do not integrate over Σ. The priors of Σ keep the scales of the
// first 4097 rows. There are no D² numbers. Instead, each level of the largest group takes about
// Q² + QM numbers, for M columns outside the group, and these columns take M² numbers.
//
// GLMOptions.Learn learns the noise of a mixed model with GaussianNoise, and the prior standard deviation
// of the columns outside the groups, as GLM.Learn does. Other streams do not support Learn. Posterior is
// the fit of all rows, and GLMPosterior.Learned has the parameters with intervals; its Fit is nil after
// 4096 rows. The default priors use the variances of all columns and the scale of the responses. The
// stream keeps up to 65,536 responses for this scale, and if it has more, a regular part of them.
//
// The stream starts from the prior, for rows of cols columns without the intercept. See NewGLM for
// lik, opt and the errors. Offsets and weights belong to the rows, so GLMOptions.Offset and Weights
// must be nil. The error also wraps ErrParam if opt has Autoscale, Blocks, a Learn that the stream does
// not support or that has Integrate, or a covariance that is not full, and ErrMemory if the numbers of the stream exceed GLMOptions.MaxMemory.
func NewGLMStream(cols int, lik Likelihood, opt *GLMOptions) (*Stream[Row, *GLMPosterior], error) {
	if _, many := lik.(Softmax); many {
		return nil, fmt.Errorf(
			"pgsvi: streams do not support Softmax; fit the rows together with NewGLM: %w",
			ErrParam)
	}
	g, err := newGLM(lik, nil, opt)
	if err != nil {
		return nil, err
	}
	if err := g.opt.checkRows(cols, "streams do"); err != nil {
		return nil, err
	}
	switch o := &g.opt; {
	case o.Autoscale:
		return nil, fmt.Errorf(
			"pgsvi: streams do not support Autoscale; set GLMOptions.PriorSD or Prior: %w",
			ErrParam)
	case o.Learn != nil && (len(o.Groups) == 0 || g.lin.Terms.Noise() == 0):
		return nil, fmt.Errorf("pgsvi: streams learn only the noise of mixed models with "+
			"GaussianNoise; leave GLMOptions.Learn nil, and first learn from rows in memory: %w",
			ErrParam)
	case o.Blocks != nil:
		return nil, fmt.Errorf("pgsvi: streams do not support GLMOptions.Blocks; leave it nil: %w",
			ErrParam)
	case len(o.Groups) > 0:
		s, err := newGroupStream(g, cols)
		if err != nil {
			return nil, err
		}
		return &Stream[Row, *GLMPosterior]{s}, nil
	}
	if err := g.opt.checkStream(cols + design.B2i(g.opt.Intercept)); err != nil {
		return nil, err
	}
	if err := g.setNames(cols); err != nil {
		return nil, err
	}
	if err := g.setPrior(); err != nil {
		return nil, err
	}
	g.opt.Covariance = FullCovariance
	w, err := g.lin.Prior.State()
	if err != nil {
		return nil, err
	}
	s := newGLMStream(g)
	s.w.CopyFrom(w)
	copy(s.w.Mean, g.lin.Prior.Mean)
	s.past, s.made = term.NewBuffer(len(g.lin.Names)), true
	return &Stream[Row, *GLMPosterior]{s}, nil
}

// Stream returns a stream that starts from p, to add or remove rows. It does not change p. The
// error wraps ErrNotPosDef if the precision of p is not positive definite to rounding, and
// ErrMemory if D is too large for GLMOptions.MaxMemory. Stream needs memory for about 22 D² numbers
// and D³/3 operations for any form of the covariance. The stream of a mixed model keeps sums for each
// level instead, as described at NewGLMStream, and the covariances of the effects.
func (p *GLMPosterior) Stream() (*Stream[Row, *GLMPosterior], error) {
	if err := oneLatent(p.lik, "a stream"); err != nil {
		return nil, err
	}
	if p.arrowed() {
		s, err := p.groupStream()
		if err != nil {
			return nil, err
		}
		return &Stream[Row, *GLMPosterior]{s}, nil
	}
	if err := p.opt.checkStream(p.Dim()); err != nil {
		return nil, err
	}
	s := p.stream()
	if !s.sited() {
		s.past = nil
	}
	s.g.opt.Covariance = FullCovariance
	if err := s.begun(nil); err != nil {
		return nil, err
	}
	return &Stream[Row, *GLMPosterior]{s}, nil
}

// Update returns the posterior with further rows added (online learning). It does not change p.
//
// For up to 4096 rows in all, with 2²⁴ values, it fits all rows in the family of p. For more rows,
// it makes one pass over the new rows, with a full covariance. It then revises the contributions of
// only a few thousand earlier rows; bench/README.md has measurements. A loaded posterior has its
// rows only if it was saved by WithRows. Without rows it is updated by one pass, which may be off
// by many standard deviations if there are few rows.
//
// A mixed model keeps the covariances of its effects and the noise, and intervals of their standard
// deviations are NaN (GroupEffect). A fit of all rows or a NewGLMStream learns them. A step for new rows takes time in proportion to
// the new rows and their levels, and for M columns outside the largest group M³ operations. The
// posterior at the end takes one pass over all levels. WithLevels adds new levels first.
//
// Update returns the errors of Stream.AddAll and GLMPosterior.Stream. On error the posterior is
// nil.
func (p *GLMPosterior) Update(ctx context.Context, rows iter.Seq2[Row, error]) (*GLMPosterior,
	error) {
	return p.changed(ctx, rows, (*Stream[Row, *GLMPosterior]).AddAll)
}

// Remove returns the posterior without rows that were in it (machine unlearning). It does not
// change p.
//
// A posterior of up to 4096 rows that has its rows is refitted to the remaining rows, if rows with
// the given values, responses, offsets and weights are among its rows. Otherwise the contributions
// of the rows are taken out. With Gaussian noise, the result is then exact to 1e-6 standard
// deviations. With other likelihoods, it is usually within a few thousandths of a standard
// deviation of a streaming pass without the rows. It is less accurate if little information
// remains, and for counts in a mixed model whose levels have few rows.
//
// Remove returns the errors of Stream.RemoveAll and GLMPosterior.Stream. On error the posterior is
// nil. An error that wraps ErrNotPosDef means that float64 is not accurate enough, or that the mean
// may be off by a standard deviation. Then fit the remaining rows instead.
func (p *GLMPosterior) Remove(ctx context.Context, rows iter.Seq2[Row, error]) (*GLMPosterior,
	error) {
	return p.changed(ctx, rows, (*Stream[Row, *GLMPosterior]).RemoveAll)
}

// changed returns the posterior of the stream from p after change.
func (p *GLMPosterior) changed(ctx context.Context, rows iter.Seq2[Row, error],
	change func(*Stream[Row, *GLMPosterior], context.Context, iter.Seq2[Row, error]) error) (
	*GLMPosterior, error) {
	if err := oneLatent(p.lik, "a stream"); err != nil {
		return nil, err
	}
	s, err := p.changing(ctx)
	if err != nil {
		return nil, err
	}
	if err := change(&Stream[Row, *GLMPosterior]{s}, ctx, rows); err != nil {
		return nil, err
	}
	q, err := s.posterior(ctx)
	if q != nil && p.filed {
		q = q.WithRows()
	}
	return q, prefixed(err)
}

// changing returns the stream of Update and Remove.
func (p *GLMPosterior) changing(ctx context.Context) (streamEngine[Row, *GLMPosterior], error) {
	if p.arrowed() {
		return p.groupStream()
	}
	s := p.stream()
	if s.past == nil {
		if err := p.opt.checkStream(p.Dim()); err != nil {
			return nil, err
		}
		var h parallel.Halt
		h.Watch(ctx)
		if err := s.begun(&h); err != nil {
			return nil, prefixed(err)
		}
	}
	return s, nil
}

// arrowed reports whether the covariance of p has the form of a mixed model.
func (p *GLMPosterior) arrowed() bool {
	_, arrow := p.cov.(*gauss.Arrow)
	return arrow
}

func (s *glmStream) len() int { return s.rows + s.buf.Rows() }

func (s *glmStream) given() int { return s.seen }

func (s *glmStream) add(ctx context.Context, row Row) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.seen++
	if err := s.check(row); err != nil {
		return err
	}
	s.buf.Add(row.Ind, row.Val, row.Y, row.Offset, row.Weight, s.g.opt.Intercept)
	return s.settle(ctx)
}

// settle learns from a complete block and repeats any other canceled work. If ctx is done, it
// returns the cause, and the remaining work is unchanged.
func (s *glmStream) settle(ctx context.Context) error {
	if !s.full() && !s.thin { // true for most rows
		return nil
	}
	s.begin(ctx)
	defer s.halt.Forget()
	if err := s.open(); err != nil {
		return err
	}
	if s.full() {
		if err := s.flush(); err != nil {
			return err
		}
	}
	return s.thinOut()
}

// begin makes the following work end when ctx is done, and shares it among all cores.
func (s *glmStream) begin(ctx context.Context) {
	s.halt.Watch(ctx)
	s.halt.Lend(runtime.GOMAXPROCS(0))
	s.w.Halt = &s.halt
}

// flush learns from the rows in the buffer and empties it, unless it is halted.
func (s *glmStream) flush() error {
	err := s.solve(&s.w)
	if errors.Is(err, ErrNotFinite) {
		err = s.salvageAll(err)
		if err == nil || s.halt.Err() == nil {
			s.buf.Reset(s.dim())
			return err
		}
	}
	if h := s.halt.Err(); h != nil && err != nil {
		return h
	}
	defer s.buf.Reset(s.dim())
	if err != nil {
		return err
	}
	s.rows += s.buf.Rows()
	k, base := &s.kept, &s.block.Base
	for i, v := range base.V { // before the block, because the row has reduced it
		if v/(1+math.Abs(base.Gamma[i])*v) >= k.least {
			k.CopyRow(&s.buf, i)
			k.gamma, k.a, k.m = append(k.gamma, base.Gamma[i]), append(k.a, base.A[i]),
				append(k.m, base.M[i])
		}
	}
	s.thin = k.Rows() > mostKept
	return nil
}

// thinOut refits the sites of the kept rows if there are too many, and keeps the half with the
// largest variances.
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
	v := make([]float64, k.Rows())
	s.w.Variances(v, k.Design(), nil, &s.block.Mover.Buf)
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
			k.MoveRow(n, i)
			n++
		}
	}
	k.gamma, k.a, k.m = k.gamma[:n], k.a[:n], k.m[:n]
	k.Truncate(n)
	return nil
}

// salvageAll applies salvage to the whole buffer. If it is halted, the stream is unchanged.
func (s *glmStream) salvageAll(err error) error {
	var before gauss.Gaussian
	before.CopyFrom(&s.w)
	rows, pace := s.rows, s.block.Pace
	err = s.salvage(err, 0, s.buf.Rows())
	if s.halt.Stopped() {
		s.w.CopyFrom(&before)
		s.rows, s.block.Pace = rows, pace
		return s.halt.Err()
	}
	return err
}

// salvage learns from as many of the rows lo … hi−1 of the buffer as possible, after they failed
// together with err. It returns the error of the first row that fails alone.
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

// again refits the sites of the kept rows.
func (s *glmStream) again(w *gauss.Gaussian, k *keptRows) error {
	n := k.Rows()
	if n == 0 {
		return nil
	}
	b, x := &s.block, k.Design()
	pace := b.Pace
	b.Pace.Measured = false // nothing was measured for these rows
	err := s.sure(w, k.Terms(s.g.lin.Terms.Lik, 0), func(all *term.Terms) error {
		b.Base.Resize(n)
		x.Mul(b.Base.M, w.Mean, nil)
		for i, m := range b.Base.M {
			b.Base.Gamma[i] = k.gamma[i]
			b.Base.A[i] = k.a[i] - k.gamma[i]*(m-k.m[i])
		}
		return b.Solve(w, x, nil, all)
	})
	b.Pace = pace
	if err != nil {
		return err
	}
	copy(k.gamma, b.Base.Gamma)
	copy(k.a, b.Base.A)
	copy(k.m, b.Base.M)
	return nil
}

// full reports whether the rows in the buffer make a block. A block costs D³ operations in addition
// to its rows, which are cheap and small if they are sparse.
func (s *glmStream) full() bool {
	n := s.size
	if s.past != nil {
		x, y := s.past.Design(), s.buf.Design()
		return x.Rows+y.Rows > mostKept || valuesOf(x)+valuesOf(y) > mostSeen
	}
	if s.buf.X.Sparse != nil {
		n = max(n, 8*s.dim())
	}
	return s.buf.Rows() >= n
}

// solve moves w by the rows in the buffer.
func (s *glmStream) solve(w *gauss.Gaussian) error { return s.solvePart(w, 0, s.buf.Rows()) }

// solvePart moves w by rows lo … hi−1 of the buffer.
func (s *glmStream) solvePart(w *gauss.Gaussian, lo, hi int) error {
	b, t := &s.block, &s.buf
	x := t.Design()
	var index []int
	if hi-lo < x.Rows {
		for i := lo; i < hi; i++ {
			index = append(index, i)
		}
	}
	return s.sure(w, t.Terms(s.g.lin.Terms.Lik, s.seen-x.Rows), func(all *term.Terms) error {
		b.Base.Resize(hi - lo)
		x.Mul(b.Base.M, w.Mean, index)
		clear(b.Base.Gamma)
		clear(b.Base.A)
		return b.Solve(w, x, index, all)
	})
}

// sure calls solve, which moves w by terms of t. If the expectations were not accurate, it calls
// solve again from the same w.
func (s *glmStream) sure(w *gauss.Gaussian, t *term.Terms, solve func(*term.Terms) error) error {
	if ruled(t).Rule == nil {
		return solve(t)
	}
	var from gauss.Gaussian
	from.CopyFrom(w)
	pace := s.block.Pace
	return t.Sure(func() error {
		w.CopyFrom(&from)
		s.block.Pace = pace
		return solve(t)
	})
}

func (s *glmStream) posterior(ctx context.Context) (*GLMPosterior, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if s.past != nil {
		return s.whole(ctx)
	}
	s.begin(ctx)
	defer s.halt.Forget()
	w := &gauss.Gaussian{}
	w.CopyFrom(&s.w)
	pace := s.block.Pace
	s.block.Fine = true
	defer func() { s.block.Fine, s.block.Pace = false, pace }()
	if s.buf.Rows() > 0 {
		if err := s.solve(w); err != nil {
			return nil, err
		}
	}
	k := s.kept.clone()
	if err := s.again(w, &k); err != nil {
		return nil, err
	}
	w.Halt = nil
	mean := slices.Clone(w.Mean)
	for j, m := range s.g.lin.Prior.Mean {
		mean[j] -= m
	}
	return s.g.posterior(mean, &gauss.Full{S: w}, s.len()), nil
}

// removeAll takes the contributions of the rows out of the current posterior.
func (s *glmStream) removeAll(ctx context.Context, rows iter.Seq2[Row, error]) error {
	err := prefixed(s.settle(ctx))
	if err == nil {
		s.begin(ctx)
		defer s.halt.Forget()
		if s.past != nil {
			err = s.removeKnown(ctx, rows)
		} else {
			err = s.remove(ctx, rows)
		}
	}
	if h := s.halt.Err(); h != nil && err != nil {
		return fmt.Errorf("pgsvi: canceled while removing rows: %w", h)
	}
	return err
}

// removal holds the contributions of rows to be removed.
type removal struct {
	rows int
	next *gauss.Gaussian // the posterior without their sites
	mean *gauss.Gaussian // the mean, in twice the digits
	g    dense.Double    // the gradient of their terms
	away term.Marginals  // state of a block of these rows
}

// remove takes out the contributions of the rows, even if the stream does not have the rows.
func (s *glmStream) remove(ctx context.Context, rows iter.Seq2[Row, error]) error {
	// No row is kept from here on, so all sites are solved to convergence.
	s.block.Fine = true
	defer func() { s.block.Fine = false }()
	if s.buf.Rows() > 0 {
		if err := s.flush(); err != nil {
			return prefixed(err)
		}
	}
	if err := s.again(&s.w, &s.kept); err != nil {
		return prefixed(err)
	}
	d := s.dim()
	r := &removal{
		next: &gauss.Gaussian{},
		mean: &gauss.Gaussian{Mean: s.w.Mean, Double: true, MeanLow: make([]float64, d)},
	}
	r.next.CopyFrom(&s.w)
	r.g.Resize(d)
	r.g.Clear()
	if err := s.takeOut(ctx, rows, r); err != nil || r.rows == 0 {
		return err
	}
	return s.without(r)
}

// takeOut adds the contributions of the rows to r.
func (s *glmStream) takeOut(ctx context.Context, rows iter.Seq2[Row, error], r *removal) error {
	defer s.buf.Reset(s.dim())
	err := s.eachChecked(ctx, rows, func(row Row) error {
		s.buf.Add(row.Ind, row.Val, row.Y, row.Offset, row.Weight, s.g.opt.Intercept)
		if s.full() {
			return s.takeOutBlock(r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.takeOutBlock(r)
}

// eachChecked calls f with each of the rows to remove, after a check, until f returns an error.
func (s *glmStream) eachChecked(ctx context.Context, rows iter.Seq2[Row, error],
	f func(Row) error) error {
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
		if err == nil {
			err = f(row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeOutBlock adds the contributions of the rows in the buffer to r, and empties the buffer.
func (s *glmStream) takeOutBlock(r *removal) error {
	x, n := s.buf.Design(), s.buf.Rows()
	if n == 0 {
		return nil
	}
	r.away.Resize(n)
	// The mean is rounded only once, because the contributions of sites with little noise depend on
	// the last bit.
	r.mean.Predict(r.away.M, x, nil)
	s.w.Variances(r.away.V, x, nil, &s.block.Mover.Buf)
	terms := s.buf.Terms(s.g.lin.Terms.Lik, r.rows)
	if err := terms.Expect(&r.away, nil, term.Crew{Halt: &s.halt}); err != nil {
		return prefixed(err)
	}
	for i := range r.away.Tg {
		r.away.Tg[i] = -r.away.Tg[i]
	}
	r.next.AddRows(x, r.away.Tg, nil, &s.block.Mover.Buf)
	x.AddMulTDouble(r.g, r.away.D1, nil, &s.block.Mover.Buf)
	if err := s.halt.Err(); err != nil {
		return err
	}
	r.rows += n
	s.buf.Reset(s.dim())
	return nil
}

// without sets the posterior to the posterior without the rows of r. The error wraps ErrNotPosDef
// if no precision remains, or if rounding leaves too little of it.
func (s *glmStream) without(r *removal) error {
	next := r.next
	next.Halt = &s.halt
	ok := next.Factor()
	if err := s.halt.Err(); err != nil {
		return err
	}
	if r.rows > s.rows || !ok {
		return fmt.Errorf("pgsvi: without these %d rows the posterior has no precision; remove "+
			"only rows that were added: %w", r.rows, ErrNotPosDef)
	}
	least := leastLeft
	if s.w.Double {
		least = gauss.LeastDoublePivot
	}
	if !(next.Pivot(&s.w) >= least) {
		return fmt.Errorf("pgsvi: without these %d rows only rounding is left of the precision; "+
			"fit the remaining rows: %w", r.rows, ErrNotPosDef)
	}
	if off := next.MeanRounding(&s.w); !(off <= mostMeanRounding) {
		return fmt.Errorf("pgsvi: without these %d rows rounding moves the mean by %.2g standard "+
			"deviations; fit the remaining rows: %w", r.rows, off, ErrNotPosDef)
	}
	if _, exact := likOf(s.g.lin.Terms).(GaussianNoise); !exact {
		off := next.Amplification(&s.w) * math.Sqrt(2*site.WeightBlockFine)
		if !(off <= mostSiteError) {
			return fmt.Errorf("pgsvi: without these %d rows little precision is left, and the "+
				"mean may be %.2g standard deviations off; fit the remaining rows: %w", r.rows, off,
				ErrNotPosDef)
		}
	}
	next.Apply(r.g)
	if j, ok := dense.AllFinite(r.g.Hi); !ok {
		return fmt.Errorf("pgsvi: the mean of weight %d (%s) without these rows: %w", j,
			s.g.lin.Names[j], ErrNotFinite)
	}
	for j, v := range r.g.Hi {
		next.Mean[j] = s.w.Mean[j] - v
	}
	s.w = *next
	s.rows -= r.rows
	s.kept.drop(s.dim()) // some of them may have been removed
	return nil
}

// mostSiteError is the largest error of the mean, in standard deviations, due to sites that have
// not converged.
const mostSiteError = 1

// removeKnown removes rows from a stream that has all its rows. If a row is not among them, it
// takes out the contributions of the rows instead.
func (s *glmStream) removeKnown(ctx context.Context, rows iter.Seq2[Row, error]) error {
	all := s.together()
	var gone []Row
	taken := term.NewBuffer(s.dim())
	err := s.eachChecked(ctx, rows, func(row Row) error {
		if len(gone) == all.Rows() {
			return fmt.Errorf("pgsvi: row %d to remove exceeds the %d rows of the posterior; "+
				"remove only rows that were added: %w", len(gone), all.Rows(), ErrNotPosDef)
		}
		row.Ind, row.Val = slices.Clone(row.Ind), slices.Clone(row.Val)
		gone = append(gone, row)
		taken.Add(row.Ind, row.Val, row.Y, row.Offset, row.Weight, s.g.opt.Intercept)
		return nil
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	rest, found := all.Without(taken)
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
	s.past, s.from, s.made, s.rows = rest, post, false, rest.Rows()
	s.buf.Reset(s.dim())
	return nil
}

// WithRows returns a copy of p whose Save also stores the rows of the data, if there are at most
// 4096. Update and Remove of the loaded posterior are then fits of all rows, as before Save. Other
// files do not contain the data, so Update and Remove are less accurate after loading. Posteriors
// that Update and Remove return also store their rows.
func (p *GLMPosterior) WithRows() *GLMPosterior {
	q := *p
	q.filed = true
	return &q
}

// stream returns a stream that starts from p, whose w is not yet computed.
func (p *GLMPosterior) stream() *glmStream {
	s := newGLMStream(p.model())
	s.rows, s.seen = p.rows, p.rows
	s.from, s.past = p, p.data.rows(p.Dim())
	return s
}

// begun computes w as the state of the posterior from which the stream starts. It returns the error
// of h if h has stopped.
func (s *glmStream) begun(h *parallel.Halt) error {
	if s.made {
		return nil
	}
	w, err := s.from.cov.State(h)
	if err != nil {
		return err
	}
	s.w.CopyFrom(w)
	copy(s.w.Mean, s.from.ownMean())
	s.made = true
	return nil
}

// sited reports whether w consists of the prior and the sites of all rows.
func (s *glmStream) sited() bool {
	return s.rows == 0 || s.from == nil || s.from.ofSites()
}

// open converts a stream that has all its rows into a stream that keeps some of them, with their
// sites.
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
	if n := past.Rows(); n > 0 && s.sited() {
		var at term.Marginals
		at.Resize(n)
		x := past.Design()
		x.Mul(at.M, s.w.Mean, nil)
		s.w.Variances(at.V, x, nil, &s.block.Mover.Buf)
		if err := past.Terms(s.g.lin.Terms.Lik, 0).Expect(&at, nil,
			term.Crew{Halt: &s.halt}); err != nil {
			return err
		}
		if err := s.halt.Err(); err != nil {
			return err
		}
		k := &s.kept
		for i := range n {
			k.CopyRow(past, i)
		}
		k.gamma, k.a, k.m = at.Tg, at.D1, at.M
	}
	s.past, s.from = nil, nil
	return nil
}

// together returns copies of all rows of a stream that has them.
func (s *glmStream) together() *term.Buffer {
	t := term.NewBuffer(s.dim())
	for _, b := range []*term.Buffer{s.past, &s.buf} {
		b.Design()
		for i := range b.Rows() {
			t.CopyRow(b, i)
		}
	}
	return t
}

// whole returns the posterior of all rows of a stream that has them.
func (s *glmStream) whole(ctx context.Context) (*GLMPosterior, error) {
	if s.from != nil && s.buf.Rows() == 0 {
		return s.from, nil
	}
	return s.fit(ctx, s.together())
}

// fit returns the posterior of a fit to the rows of t.
func (s *glmStream) fit(ctx context.Context, t *term.Buffer) (*GLMPosterior, error) {
	opt := s.g.opt
	opt.Learn, opt.Blocks, opt.Estimator = nil, nil, nil
	n, d := t.Rows(), s.dim()
	if err := opt.checkMemory(0, n, d, opt.family(n, d)); err != nil {
		return nil, err
	}
	g := &GLM{lin: s.g.lin, opt: opt, means: s.g.means, groups: s.g.groups}
	g.take(t)
	return g.refit(ctx)
}

// glmStream is the engine of NewGLMStream.
type glmStream struct {
	g     *GLM // without data
	w     gauss.Gaussian
	block site.WeightBlock
	buf   term.Buffer
	kept  keptRows
	size  int // number of dense rows in a block
	rows  int // number of rows in w, without the rows in buf
	seen  int // number of rows handed over

	past *term.Buffer  // all rows in w, while they are few; nil if unknown
	from *GLMPosterior // posterior of these rows; nil if not yet computed
	made bool          // w is the state of from

	halt   parallel.Halt // set during work that can be canceled
	thin   bool          // there are too many kept rows
	solved bool          // their sites have been refitted
}

// keptRows holds earlier rows with their sites, and the smallest variance of η with which a row is
// kept.
type keptRows struct {
	term.Buffer
	gamma, a, m []float64
	least       float64
}

func (k *keptRows) drop(d int) {
	k.Reset(d)
	k.gamma, k.a, k.m, k.least = k.gamma[:0], k.a[:0], k.m[:0], 0
}

// leastLeft is the smallest share of the precision that removed rows may leave. The rest of the
// precision has then lost 10 of its 16 digits.
const leastLeft = 1e-10

func (k *keptRows) clone() keptRows {
	c := keptRows{Buffer: k.Buffer.Clone(), least: k.least}
	c.gamma, c.a, c.m = slices.Clone(k.gamma), slices.Clone(k.a), slices.Clone(k.m)
	return c
}

// newGLMStream returns a stream of the model g whose Gaussian is not yet set.
func newGLMStream(g *GLM) *glmStream {
	d := len(g.lin.Names)
	s := &glmStream{g: g, size: max(1024, 2*d)}
	s.block.Use(term.Crew{Halt: &s.halt})
	s.buf.Reset(d)
	s.kept.Reset(d)
	return s
}

// checkStream returns an error if a stream of d weights exceeds the memory limit.
func (o *GLMOptions) checkStream(d int) error {
	if o.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: GLMOptions.MaxMemory is %d; it must not be negative: %w",
			o.MaxMemory, ErrParam)
	}
	return checkMemory(o.MaxMemory, memory.Bytes(site.WeightMatrices, d, d),
		fmt.Sprintf("a stream of %d weights", d),
		"use a GLM with another covariance on all rows, or raise GLMOptions.MaxMemory")
}

// check returns an error if row does not fit the stream.
func (s *glmStream) check(row Row) error {
	return checkRow(&row, s.dim()-design.B2i(s.g.opt.Intercept), likOf(s.g.lin.Terms), s.seen-1)
}

// dim returns D, the number of weights, including the intercept.
func (s *glmStream) dim() int { return len(s.g.lin.Names) }
