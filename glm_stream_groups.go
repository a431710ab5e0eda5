package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
)

// This file holds the streams of mixed models. A groupStream keeps a few thousand rows, whose sites
// are fitted again whenever rows come. The sites of the other rows are frozen: they are sums over the
// rows of each level (gauss.Frozen), so a step costs as much as the kept rows and their levels, next
// to the border. While no row is frozen, the posterior is a fit of all rows.
//
// NewGLMStream also learns Σ. With all rows kept, the fit of all rows learns it. Later, Σ and the
// sites of the kept rows take turns: Σ maximizes log Z + log p(Σ) at the frozen sums and the present
// sites (site.LearnFrozen), and then the sites follow. The frozen sites do not follow.

// groupStream is the engine of a stream of a GLM with GLMOptions.Groups.
type groupStream struct {
	g      *GLM          // without data; the prior has the present Σ once rows are frozen
	frozen *gauss.Frozen // nil if no row is frozen
	act    *term.Buffer  // the kept rows
	fresh  int           // first row of act that no fit has seen
	rows   int           // number of frozen rows
	seen   int           // number of rows handed over
	learns bool          // Σ is learned
	// moments holds Σ zzᵀ of each group over the rows of a stream of NewGLMStream.
	moments [][]float64
	// start is the prior with the L at which learning started, the scale of steps of L. It is set once
	// rows are frozen in a stream that learns Σ.
	start *gauss.Prior
	noise *streamNoise // set if the stream learns Gaussian noise

	from *GLMPosterior // posterior of all rows, or nil if not yet computed
	halt parallel.Halt
}

// newGroupStream returns the stream of NewGLMStream for g, which has groups and no data. The options
// must be checked.
func newGroupStream(g *GLM, cols int) (*groupStream, error) {
	var err error
	o := &g.opt
	if o.Groups, err = checkGroups(o.Groups, cols, o.Covariance, o.Prior); err != nil {
		return nil, err
	}
	d := cols + design.B2i(o.Intercept)
	s := &groupStream{g: g, act: term.NewBuffer(d)}
	s.act.Form = term.AsSparse
	for i := range o.Groups {
		s.learns = s.learns || !o.Groups[i].Fixed
	}
	if err := o.checkGroupStream(d, s.learns); err != nil {
		return nil, err
	}
	if err := g.setNames(cols); err != nil {
		return nil, err
	}
	if err := g.setPrior(); err != nil {
		return nil, err
	}
	if o.Learn != nil {
		if s.noise, err = newStreamNoise(g); err != nil {
			return nil, err
		}
	}
	for i := range o.Groups {
		r := &o.Groups[i]
		for j := r.First; j < r.end(); j++ {
			if m := g.lin.Prior.Mean[j]; m != 0 {
				return nil, fmt.Errorf("pgsvi: GLMOptions.Prior has the mean %v in column %d of group "+
					"%s; use mean 0 and offsets of the rows: %w", m, j, r.Name, ErrParam)
			}
		}
		s.moments = append(s.moments, make([]float64, r.effects()*r.effects()))
	}
	return s, nil
}

// groupStream returns a stream that starts from p, whose covariance is a gauss.Arrow. It does not
// learn Σ.
func (p *GLMPosterior) groupStream() (*groupStream, error) {
	if err := p.opt.checkGroupStream(p.Dim(), false); err != nil {
		return nil, err
	}
	g := p.model()
	g.opt.Learn, g.opt.Blocks, g.opt.Estimator = nil, nil, nil
	s := &groupStream{g: g, seen: p.rows, from: p}
	if s.act = p.data.rows(p.Dim()); s.act == nil {
		s.act, s.rows = term.NewBuffer(p.Dim()), p.rows
		s.frozen = gauss.FrozenAt(p.cov.(*gauss.Arrow), p.prior, s.ownMean(p.ownMean()))
	}
	s.fresh = s.act.Rows()
	return s, nil
}

// ownMean returns the mean relative to the mean of the prior.
func (s *groupStream) ownMean(mean []float64) []float64 {
	mean = slices.Clone(mean)
	for j, m := range s.g.lin.Prior.Mean {
		mean[j] -= m
	}
	return mean
}

// checkGroupStream returns an error if a stream of d weights with groups exceeds the memory limit. The
// argument learns reports whether it learns Σ.
func (o *GLMOptions) checkGroupStream(d int, learns bool) error {
	if o.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: GLMOptions.MaxMemory is %d; it must not be negative: %w",
			o.MaxMemory, ErrParam)
	}
	wide, most := 0.0, 0
	for i := range o.Groups {
		most = max(most, o.Groups[i].Levels*o.Groups[i].effects())
	}
	if len(o.Groups) > 1 && learns { // sums of all columns of the border
		wide = memory.Bytes(2, most, d-most)
	}
	return groupMemory(o.Groups, o.MaxMemory, wide, 2*mostKept, d)
}

func (s *groupStream) len() int { return s.rows + s.act.Rows() }

func (s *groupStream) given() int { return s.seen }

func (s *groupStream) dim() int { return len(s.g.lin.Names) }

// check returns an error if row does not fit the stream.
func (s *groupStream) check(row Row) error {
	n := s.seen - 1
	if err := checkRow(&row, s.dim()-design.B2i(s.g.opt.Intercept), likOf(s.g.lin.Terms),
		n); err != nil {
		return err
	}
	for i := range s.g.opt.Groups {
		r, before := &s.g.opt.Groups[i], -1
		q := r.effects()
		for k, v := range row.Val {
			j := dense.Index(row.Ind, k)
			if v == 0 || j < r.First || j >= r.end() {
				continue
			}
			level := (j - r.First) / q
			if before >= 0 && level != before {
				return fmt.Errorf("row %d has the levels %d and %d of group %s; give each row one "+
					"level: %w", n, before, level, r.Name, ErrParam)
			}
			before = level
		}
	}
	return nil
}

// addMoments adds sign·zzᵀ of a row to the moments.
func (s *groupStream) addMoments(row Row, sign float64) {
	var z [gauss.MostEffects]float64
	for i, m := range s.moments {
		r := &s.g.opt.Groups[i]
		q := r.effects()
		clear(z[:])
		for k, v := range row.Val {
			if j := dense.Index(row.Ind, k); r.First <= j && j < r.end() {
				z[(j-r.First)%q] += v
			}
		}
		for a := range q {
			for b := range q {
				m[a*q+b] += sign * z[a] * z[b]
			}
		}
	}
}

func (s *groupStream) add(ctx context.Context, row Row) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.seen++
	if err := s.check(row); err != nil {
		return err
	}
	s.act.Add(row.Ind, row.Val, row.Y, row.Offset, row.Weight, s.g.opt.Intercept)
	s.addMoments(row, 1)
	s.from = nil
	return s.settle(ctx)
}

// full reports whether rows must be frozen.
func (s *groupStream) full() bool {
	return s.act.Rows() > mostKept || s.act.Rows() > 1 && valuesOf(s.act.Design()) > mostSeen
}

// settle freezes rows if too many are kept, and repeats any other canceled work. If ctx is done, it
// returns the cause, and the remaining work is unchanged.
func (s *groupStream) settle(ctx context.Context) error {
	if !s.full() {
		return nil
	}
	defer s.begin(ctx).Forget()
	return s.freeze(ctx)
}

// begin makes the following work end when ctx is done, and shares it among all cores.
func (s *groupStream) begin(ctx context.Context) *parallel.Halt {
	s.halt.Watch(ctx)
	s.halt.Lend(runtime.GOMAXPROCS(0))
	return &s.halt
}

// crew returns the workers of the present work.
func (s *groupStream) crew() term.Crew {
	return term.Crew{Halt: &s.halt, Workers: s.halt.Workers()}
}

// open starts the frozen sums before the first rows are frozen. A stream that learns Σ then has the Σ
// of a fit to all rows so far, and the priors of Σ keep their scales.
func (s *groupStream) open(ctx context.Context) error {
	if s.frozen != nil {
		return nil
	}
	if s.moments != nil {
		p, g, err := s.fit(ctx, s.act)
		if err != nil && !errors.Is(err, ErrNotFinite) {
			return err
		}
		start := g.lin.Prior
		s.start = &start
		if s.noise != nil {
			s.noise.unit = groupUnit(g.lin.Terms)
		}
		s.g.lin.Prior, s.g.lin.Factors, s.g.groups = g.lin.Prior, g.lin.Factors, g.groups
		if p != nil {
			s.g.lin.Prior = *p.prior
			s.g.lin.Terms = &term.Terms{Lik: viewOf(p.lik)}
		} // otherwise a row has no expectation, and freeze finds it
	}
	s.frozen = gauss.NewFrozen(&s.g.lin.Prior)
	return nil
}

// freeze adds the sites of the rows with the smallest variances of η to the frozen sums, and keeps the
// other half of the rows.
func (s *groupStream) freeze(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	base := s.frozen.Clone()
	at, err := s.settled(base)
	if errors.Is(err, ErrNotFinite) {
		return s.salvage(err)
	}
	if err != nil {
		return err
	}
	n := s.act.Rows()
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { // the largest variances first
		switch {
		case at.V[i] > at.V[j]:
			return -1
		case at.V[i] < at.V[j]:
			return 1
		}
		return 0
	})
	gone, kept := slices.Clone(order[n/2:]), slices.Clone(order[:n/2])
	slices.Sort(gone)
	slices.Sort(kept)
	if err := s.addSites(base, s.act, at, gone, 1); err != nil {
		return err
	}
	s.frozen, s.g.lin.Prior = base, *base.Prior
	if s.noise != nil {
		s.noise.add(s.g.opt.Groups, s.act, gone, 1)
	}
	rest := term.NewBuffer(s.dim())
	for _, i := range kept {
		rest.CopyRow(s.act, i)
	}
	s.rows += len(gone)
	s.act, s.fresh = rest, rest.Rows()
	return nil
}

// exact reports whether the noise is Gaussian, so that sites depend on nothing that is fitted.
func (s *groupStream) exact() bool { return s.g.lin.Terms.Noise() > 0 }

// settled moves f to the best Σ, if it is learned, and returns the sites of the kept rows there. Sites
// under a wrong Σ would stay wrong once they are frozen, unless the noise is Gaussian.
func (s *groupStream) settled(f *gauss.Frozen) (*term.Marginals, error) {
	if s.learns && !s.exact() {
		best, _, err := s.total(flushGain)
		if err != nil {
			return nil, err
		}
		f.SetL(best.L)
	}
	return s.sites(f, s.act, s.seen-s.act.Rows())
}

// salvage removes the kept rows that no fit has seen and that have no expectation, after they failed
// together with err. It returns the error of the first of them.
func (s *groupStream) salvage(err error) error {
	var bad []int
	first := err
	var search func(lo, hi int)
	search = func(lo, hi int) {
		part := s.part(s.act, lo, hi)
		_, err := s.sites(s.frozen, part, s.seen-s.act.Rows()+lo)
		switch {
		case s.halt.Stopped() || !errors.Is(err, ErrNotFinite):
		case hi-lo == 1:
			if len(bad) == 0 {
				first = err
			}
			bad = append(bad, lo)
		default:
			search(lo, (lo+hi)/2)
			search((lo+hi)/2, hi)
		}
	}
	if s.fresh < s.act.Rows() {
		search(s.fresh, s.act.Rows())
	}
	if s.halt.Stopped() {
		return s.halt.Err()
	}
	if len(bad) == 0 { // they fail only together
		for i := s.fresh; i < s.act.Rows(); i++ {
			bad = append(bad, i)
		}
	}
	rest := term.NewBuffer(s.dim())
	for i := range s.act.Rows() {
		if _, out := slices.BinarySearch(bad, i); !out {
			rest.CopyRow(s.act, i)
		}
	}
	s.act = rest
	return first
}

// part returns copies of rows lo … hi−1 of t.
func (s *groupStream) part(t *term.Buffer, lo, hi int) *term.Buffer {
	p := term.NewBuffer(s.dim())
	t.Design()
	for i := lo; i < hi; i++ {
		p.CopyRow(t, i)
	}
	return p
}

// sites returns the sites of the rows of t next to the frozen sums of f. The argument first is the
// number of the first row.
func (s *groupStream) sites(f *gauss.Frozen, t *term.Buffer, first int) (at *term.Marginals,
	err error) {
	terms := s.terms(t, first)
	if s.exact() {
		return s.known(terms)
	}
	solve := func() error {
		at, err = site.FitFrozen(f, terms, t.Design(), s.crew())
		return err
	}
	if ruled(terms).Rule == nil {
		err = solve()
	} else {
		err = terms.Sure(solve)
	}
	if h := s.halt.Err(); h != nil && err != nil {
		return nil, h
	}
	return at, err
}

// known returns the sites of terms with Gaussian noise, about 0.
func (s *groupStream) known(t *term.Terms) (*term.Marginals, error) {
	at := &term.Marginals{}
	at.Resize(t.Len())
	clear(at.M)
	clear(at.V)
	if err := t.Expect(at, nil, s.crew()); err != nil {
		return nil, err
	}
	copy(at.Gamma, at.Tg)
	copy(at.A, at.D1)
	return at, t.Overflow(at, nil)
}

// terms returns the terms of the rows of t, functions of η minus its prior mean.
func (s *groupStream) terms(t *term.Buffer, first int) *term.Terms {
	lin := site.LinearModel{X: t.Design(), Prior: s.g.lin.Prior,
		Terms: t.Terms(s.g.lin.Terms.Lik, first)}
	lin.Terms.Offset = slices.Clone(t.Offset)
	lin.AddPriorMean()
	return lin.Terms
}

// addSites adds the sites of the rows of t at index to f, or subtracts them.
func (s *groupStream) addSites(f *gauss.Frozen, t *term.Buffer, at *term.Marginals, index []int,
	sign float64) error {
	x := t
	gamma, b := make([]float64, t.Rows()), make([]float64, t.Rows())
	for i, g := range at.Gamma {
		gamma[i], b[i] = g, at.A[i]+g*at.M[i]
	}
	if index != nil {
		x = term.NewBuffer(s.dim())
		t.Design()
		for k, i := range index {
			x.CopyRow(t, i)
			gamma[k], b[k] = gamma[i], b[i] // index increases
		}
		gamma, b = gamma[:len(index)], b[:len(index)]
	}
	return site.AddFrozen(f, x.Design(), gamma, b, sign, s.crew())
}

// Σ and the sites take at most learnTurns turns, until Σ would gain less than learnGain nats for a
// posterior, and less than flushGain when rows are frozen.
const (
	learnTurns = 60
	learnGain  = 1e-7
	flushGain  = 1e-2
)

// total returns the frozen sums with the sites of the kept rows, at the best Σ to the given number of
// nats if it is learned and the noise is not. The second result then has learned it.
func (s *groupStream) total(nats float64) (f *gauss.Frozen, sums *site.ArrowSums, err error) {
	base, learns := s.frozen.Clone(), s.learns && s.noise == nil
	if learns {
		sums = site.NewArrowSums(s.start, s.g.lin.Factors)
		sums.Use(s.crew())
	}
	for turn := 0; ; turn++ {
		if turn == 0 || !s.exact() {
			f = base.Clone()
			if s.act.Rows() > 0 {
				at, err := s.sites(base, s.act, s.seen-s.act.Rows())
				if err != nil {
					return nil, nil, err
				}
				if err := s.addSites(f, s.act, at, nil, 1); err != nil {
					return nil, nil, err
				}
			}
		}
		if !learns || turn == learnTurns {
			return f, sums, nil
		}
		gain, err := site.LearnFrozen(f, sums)
		if h := s.halt.Err(); h != nil {
			return nil, nil, h
		}
		if err != nil {
			return nil, nil, err
		}
		if gain < nats {
			return f, sums, nil
		}
		base.SetL(f.L)
	}
}

func (s *groupStream) posterior(ctx context.Context) (*GLMPosterior, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if s.from != nil {
		return s.from, nil
	}
	if s.frozen == nil {
		p, _, err := s.fit(ctx, s.act)
		return p, err
	}
	defer s.begin(ctx).Forget()
	f, sums, err := s.total(learnGain)
	if err != nil {
		return nil, err
	}
	if s.noise != nil {
		return s.learned(ctx, f)
	}
	return s.at(s.g, f, sums)
}

// at returns the posterior at f, which belongs to the model g. The sums have learned its Σ.
func (s *groupStream) at(g *GLM, f *gauss.Frozen, sums *site.ArrowSums) (*GLMPosterior, error) {
	mean, cov, err := f.Solve(&s.halt)
	if err != nil {
		return nil, err
	}
	p := g.posterior(mean, cov, s.len())
	if s.moments == nil {
		return p, nil
	}
	p.groups = slices.Clone(p.groups)
	for i := range p.groups {
		p.groups[i].moment = slices.Clone(s.moments[i])
		for j := range p.groups[i].moment {
			p.groups[i].moment[j] /= float64(s.len())
		}
	}
	if s.learns {
		if err := s.spread(p, f, sums); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// learned returns the posterior at the best noise, prior standard deviation and Σ, given the sums f of
// all rows.
func (s *groupStream) learned(ctx context.Context, f *gauss.Frozen) (*GLMPosterior, error) {
	all := s.noise.clone()
	all.add(s.g.opt.Groups, s.act, nil, 1)
	g := *s.g
	g.lin.Prior = *f.Prior
	l, err := all.learner(&g)
	if err != nil {
		return nil, err
	}
	noise, rules := s.g.lin.Terms.Noise(), all.rules(s.g.lin.Factors)
	e := site.EvidenceFrozen(f, site.NewArrowSums(s.start, rules), noise,
		max(0, all.square), all.weight)
	res, err := (&Solver{}).Run(ctx, &noiseSearch{l, learn.NewGroupsOf(l.scale, e), s.len()})
	if err != nil {
		return nil, err
	}
	st, best, err := bestOf(l.space, res, l.under)
	if err != nil {
		return nil, err
	}
	f.SetL(e.L())
	f = f.Under(&best.lin.Prior, noise/best.lin.Terms.Noise())
	start := *s.start
	start.Prec = best.lin.Prior.Prec
	sums := site.NewArrowSums(&start, rules)
	sums.Use(s.crew())
	for range learnTurns {
		gain, err := site.LearnFrozen(f, sums)
		if h := s.halt.Err(); h != nil {
			return nil, h
		}
		if err != nil {
			return nil, err
		}
		if gain < learnGain {
			break
		}
	}
	p, err := s.at(best, f, sums)
	if err != nil {
		return nil, err
	}
	p.learned = st.report(res, l)
	p.setSpread(l.spread(st, p, l.groupTurns(st.run.Best.Theta, p)))
	return p, nil
}

// spread sets the uncertainty of Σ in p, the posterior at f. With Gaussian noise it also integrates p
// over the Σ of groups with few levels.
func (s *groupStream) spread(p *GLMPosterior, f *gauss.Frozen, sums *site.ArrowSums) error {
	spread, err := site.SpreadFrozen(f, sums)
	if err != nil {
		return err
	}
	for i := range p.groups {
		if p.groups[i].spread = nil; !p.groups[i].Fixed {
			p.groups[i].spread = &spread[i]
		}
	}
	if !s.exact() {
		return nil
	}
	keepBest(p.groups, site.MostGridLevels)
	grid, err := site.IntegrateFrozen(f, sums)
	if err == nil && grid != nil {
		p.setGrid(grid)
	}
	return err
}

// fit returns the posterior of a fit to the rows of t, and its model. It learns Σ if the stream does.
func (s *groupStream) fit(ctx context.Context, t *term.Buffer) (*GLMPosterior, *GLM, error) {
	g := *s.g
	if err := g.opt.checkMemory(0, t.Rows(), s.dim(), FullCovariance); err != nil {
		return nil, nil, err
	}
	g.take(t)
	if s.moments != nil {
		var err error
		if g.groups, err = setGroups(g.opt.Groups, &g.lin); err != nil {
			return nil, nil, err
		}
	}
	p, err := g.refit(ctx)
	if h := s.halt.Err(); h != nil && err != nil {
		err = h
	}
	return p, &g, err
}

// removeAll takes the contributions of the rows out of the posterior.
func (s *groupStream) removeAll(ctx context.Context, rows iter.Seq2[Row, error]) error {
	err := prefixed(s.settle(ctx))
	if err == nil {
		defer s.begin(ctx).Forget()
		err = s.remove(ctx, rows)
	}
	if h := s.halt.Err(); h != nil && err != nil {
		return fmt.Errorf("pgsvi: canceled while removing rows: %w", h)
	}
	return err
}

// remove takes out the rows. Kept rows leave without a trace. Otherwise the contributions of all rows
// at the present posterior are taken out, and the sites of the kept rows are frozen.
func (s *groupStream) remove(ctx context.Context, rows iter.Seq2[Row, error]) error {
	gone, err := s.removed(ctx, rows)
	if err != nil || gone.Rows() == 0 {
		return err
	}
	n := gone.Rows()
	if n > s.len() {
		return fmt.Errorf("pgsvi: there are %d rows to remove, but the posterior has %d; remove only "+
			"rows that were added: %w", n, s.len(), ErrNotPosDef)
	}
	if rest, found := s.act.Without(gone); found {
		s.act, s.fresh, s.from = rest, rest.Rows(), nil
		s.removeMoments(gone)
		return nil
	}
	if err := s.open(ctx); err != nil {
		return prefixed(err)
	}
	f, _, err := s.total(learnGain)
	if err != nil {
		return prefixed(err)
	}
	mean, cov, err := f.Solve(&s.halt)
	if err != nil {
		return prefixed(err)
	}
	next, x, at := f.Clone(), gone.Design(), &term.Marginals{}
	at.Resize(n)
	x.Mul(at.M, mean, nil)
	cov.Variances(at.V, x, nil)
	if err := s.terms(gone, 0).Expect(at, nil, s.crew()); err != nil {
		return prefixed(err)
	}
	copy(at.Gamma, at.Tg)
	copy(at.A, at.D1)
	if err := s.addSites(next, gone, at, nil, -1); err != nil {
		return s.unremoved(n, err)
	}
	_, exact := likOf(s.g.lin.Terms).(GaussianNoise)
	if _, _, err := next.Solve(&s.halt); err != nil {
		return s.unremoved(n, err)
	}
	if err := next.Without(f, exact, s.g.lin.Terms.Concave()); err != nil {
		return s.unremoved(n, err)
	}
	left, leftCov, err := next.Solve(&s.halt)
	if err != nil {
		return s.unremoved(n, err)
	}
	if off := next.MeanRounding(f, mean, left, leftCov); !(off <= mostMeanRounding) {
		return fmt.Errorf("pgsvi: without these %d rows rounding moves the mean by %.2g standard "+
			"deviations; fit the remaining rows: %w", n, off, ErrNotPosDef)
	}
	s.rows = s.len() - n
	if s.noise != nil {
		s.noise.add(s.g.opt.Groups, s.act, nil, 1)
		s.noise.add(s.g.opt.Groups, gone, nil, -1)
	}
	s.frozen, s.act, s.fresh, s.from = next, term.NewBuffer(s.dim()), 0, nil
	s.g.lin.Prior = *next.Prior
	s.removeMoments(gone)
	return nil
}

// unremoved returns the error err of a removal of n rows.
func (s *groupStream) unremoved(n int, err error) error {
	if h := s.halt.Err(); h != nil || !errors.Is(err, ErrNotPosDef) {
		return err
	}
	return fmt.Errorf("pgsvi: without these %d rows: %w; remove only rows that were added, fit the "+
		"remaining rows, or remove rows from a posterior that has its rows (GLMPosterior.WithRows)", n,
		err)
}

// removeMoments takes the rows out of the moments.
func (s *groupStream) removeMoments(gone *term.Buffer) {
	x := gone.Design()
	for i := range gone.Rows() {
		ind, val := x.Row(i)
		row := Row{Val: val}
		for _, j := range ind {
			row.Ind = append(row.Ind, int(j))
		}
		s.addMoments(row, -1)
	}
}

// removed returns the rows to remove, after a check.
func (s *groupStream) removed(ctx context.Context, rows iter.Seq2[Row, error]) (*term.Buffer, error) {
	seen := s.seen
	defer func() { s.seen = seen }()
	s.seen = 0
	gone := term.NewBuffer(s.dim())
	for row, err := range rows {
		s.seen++
		if err == nil && s.seen%256 == 1 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = prefixed(s.check(row))
		}
		if err != nil {
			return nil, err
		}
		gone.Add(row.Ind, row.Val, row.Y, row.Offset, row.Weight, s.g.opt.Intercept)
	}
	return gone, nil
}
