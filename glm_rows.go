package pgsvi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// NewGLMRows is NewGLM for any number of rows, of cols columns each, that are read from a file or
// another source and not kept in memory (out of core). For rows in memory use NewGLM.
//
// The sequence rows is read once to check and count the rows, and once for each step of a fit. It
// must yield the same rows every time, like Rows(x, y), a data.RowFile, or a function that reads a
// file from its beginning. A random sample of at most 8192 rows is kept.
//
// The posterior has a full covariance. The state is its mean and precision, and a step is the
// natural-gradient step, with μ the mean parameters of q,
//
//	argmax_{m₊,P₊} ∂ELBO/∂μ·μ₊ − KL(q₊‖q),   P₊ = Λ0 + Xᵀdiag(−∂₂)X,   P₊(m₊ − m) = Xᵀ∂₁ − Λ0(m − μ0),
//
// with ∂₁ and ∂₂ the derivatives of E[log p(y_n|η_n)] with respect to the mean of η_n (Khan and Lin
// 2017). It contains a Newton step for the mean. If the ELBO falls, up to three shorter steps are
// tried in one pass. A run starts from a fit of the sample. A fit takes three or four passes, and
// ends when the predicted gain of the next step is below 0.01 nats, or Solver.Goal. Steps use all
// rows and choose their own length. They take about 400 D² bytes for D weights and a few megabytes
// per core.
//
// The posterior has the same bits for any number of workers, and the same bits as the posterior of
// NewGLMRounds with blocks of 8192 rows.
//
// A nil lik means GaussianNoise{}, and a nil opt means the zero GLMOptions. Learn first searches on
// the sample, in memory, with all LearnOptions.Restarts. It then takes three to six passes over all
// rows, or about fifteen if the likelihood is not log-concave. LOO, PSIS, PredictiveCheck,
// CertifyScale and Objective need rows in memory, so they return an error that wraps ErrParam.
//
// GLMOptions.Groups makes a mixed model. The group with the most weights may have up to 100,000
// levels, and the other groups a few hundred levels together: at most 3,000 columns outside the
// largest group are supported, and each of its levels has sums for all of them. Each pass adds up
// these sums, and the covariances Σ of the effects are set to their best values between passes. The
// sample is not fitted: the first reading also computes the sites at which the steps start. With G
// levels of Q effects and D other columns, a fit takes about 250 G(Q² + QD) bytes. Unlike NewGLM,
// it keeps the best Σ even if there are few levels, and does not integrate over Σ. No GapBound is
// proved, and the estimated Gap includes the gain that is still possible in Σ. Each evaluation of
// Learn takes a few passes. With GaussianNoise the first reading is enough.
//
// NewGLMRows returns the errors of NewGLM, of rows, and of Stream.Add for a row. The error also
// wraps
//   - ErrParam if opt has Offset or Weights, which belong to the rows, or a covariance that is not
//     full;
//   - ErrParam if a row has two levels of a group, an effect does not vary within any level, or two
//     groups have the same levels and values in every row;
//   - ErrEmpty if there are no rows;
//   - ErrMemory if there are too many columns for GLMOptions.MaxMemory, or more than 3,000 columns
//     outside the largest group.
//
// An error that wraps ErrShape during a run means that the rows differ from the first reading.
func NewGLMRows(ctx context.Context, rows iter.Seq2[Row, error], cols int, lik Likelihood,
	opt *GLMOptions) (*GLM, error) {
	if rows == nil {
		return nil, fmt.Errorf("pgsvi: the sequence of rows is nil: %w", ErrEmpty)
	}
	r, err := newGLMRounds(cols, lik, opt)
	if err != nil {
		return nil, err
	}
	r.g.rows = &glmRows{all: rows, cols: cols}
	var h parallel.Halt
	h.Watch(ctx)
	p, err := r.pass(&h, runtime.GOMAXPROCS(0))
	if err == nil && p.Items == 0 {
		err = fmt.Errorf("the sequence has no rows: %w", ErrEmpty)
	}
	if err == nil {
		err = r.begin(p)
	}
	if cause := h.Err(); cause != nil && err != nil {
		err = fmt.Errorf("canceled while counting the rows: %w", cause)
	}
	if err != nil {
		return nil, prefixed(err)
	}
	return r.g, nil
}

// NewGLMRounds returns rounds that fit a GLM to rows of cols columns on many machines. See
// NewGLMRows for lik, opt, the steps and the errors. GLMOptions.Learn is an error. The state sent
// to the machines has D² numbers, and a shard needs about 13 D² bytes for D weights. With groups, the
// state has about G(Q² + QD) numbers, and a shard needs 25 bytes for each of them.
func NewGLMRounds(cols int, lik Likelihood, opt *GLMOptions) (*Rounds[Row, *GLMPosterior], error) {
	r, err := newGLMRounds(cols, lik, opt)
	if err != nil {
		return nil, err
	}
	if r.g.opt.Learn != nil {
		return nil, fmt.Errorf(
			"pgsvi: rounds do not learn a prior; leave GLMOptions.Learn nil, and first learn it "+
				"with NewGLMRows from a part of the rows: %w", ErrParam)
	}
	return &Rounds[Row, *GLMPosterior]{r}, nil
}

// rowsBlock is the number of rows in a block of NewGLMRows.
const rowsBlock = 8192

// glmRounds is the engine of a Rounds of a GLM, and of a GLM from NewGLMRows.
type glmRounds struct {
	linearRounds
	g     *GLM               // shares lin with linearRounds
	first *rounds.ArrowState // first sites of a model with a group, or nil
}

// newGLMRounds returns the engine before the first round. Its errors have the prefix "pgsvi: ".
func newGLMRounds(cols int, lik Likelihood, opt *GLMOptions) (*glmRounds, error) {
	g, err := newGLM(lik, nil, opt)
	if err != nil {
		return nil, err
	}
	if err := oneLatent(likOf(g.lin.Terms), "a GLM that reads its rows in passes"); err != nil {
		return nil, err
	}
	if err := g.opt.checkRows(cols, "a GLM that reads its rows in passes does"); err != nil {
		return nil, err
	}
	if err := errors.Join(g.setNames(cols), g.opt.checkBlocks(cols, 1)); err != nil {
		return nil, err
	}
	g.opt.Blocks = slices.Clone(g.opt.Blocks)
	if len(g.opt.Groups) > 0 {
		return newGroupRounds(g, cols)
	}
	g.opt.Covariance = FullCovariance
	d := g.dim()
	workers := runtime.GOMAXPROCS(0)
	need := memory.Bytes(roundMatrices+roundLane*float64(workers), d, d) +
		memory.Bytes(2*float64(workers), rounds.Chunk(d), d) + memory.Bytes(3, sampleSize(d), d)
	if err := checkMemory(g.opt.MaxMemory, need,
		fmt.Sprintf("a GLM of any number of rows and %d weights", d),
		"use fewer columns, or raise GLMOptions.MaxMemory"); err != nil {
		return nil, err
	}
	g.lin.MaxMemory = g.opt.MaxMemory
	if !g.opt.Autoscale {
		if err := g.setPrior(); err != nil {
			return nil, err
		}
	}
	return &glmRounds{linearRounds: g.linearRounds(cols), g: g}, nil
}

// checkRows returns an error if o does not suit a model of rows that are not kept, such as streams,
// with the given number of columns. lacks is the subject of the error, and its verb.
func (o *GLMOptions) checkRows(cols int, lacks string) error {
	switch {
	case cols < 0 || cols > math.MaxInt32:
		return fmt.Errorf("pgsvi: the number of columns is %d; it must be 0 to %d: %w", cols,
			math.MaxInt32, ErrShape)
	case o.Offset != nil || o.Weights != nil:
		return fmt.Errorf("pgsvi: offsets and weights belong to the rows; leave "+
			"GLMOptions.Offset and Weights nil: %w", ErrParam)
	case o.Covariance > FullCovariance:
		return fmt.Errorf("pgsvi: %s not support a %v covariance; use FullCovariance: %w", lacks,
			o.Covariance, ErrParam)
	}
	return nil
}

// linearRounds returns the engine for rows with the given number of columns, before the first
// round.
func (g *GLM) linearRounds(cols int) linearRounds {
	o := &g.opt
	return linearRounds{lin: &g.lin, scaled: o.Autoscale, sds: [2]float64{o.PriorSD, o.InterceptSD},
		rowAdder: rowAdder{cols: cols, intercept: o.Intercept, lik: likOf(g.lin.Terms),
			group: g.grouping(), form: g.rowForm()}}
}

// rowForm returns the form of rows before the sample chooses one.
func (g *GLM) rowForm() term.Form {
	if len(g.opt.Groups) > 0 {
		return term.AsSparse
	}
	return term.AsFirst
}

// begin implements the first round, which sets up the model of the sample.
func (r *glmRounds) begin(p *rounds.Part) error {
	if err := r.linearRounds.begin(p); err != nil {
		return err
	}
	g := r.g
	var moments *rounds.GroupMoments
	if r.group != nil {
		moments = p.First.Group.Moments()
		r.columns = r.group.WideColumns(r.columns, moments.Means)
	}
	g.means = r.columns.Mean[:r.cols:r.cols]
	if g.opt.Autoscale {
		g.variances = r.columns.Variance
		if err := g.setPrior(); err != nil {
			return err
		}
	}
	if r.group != nil {
		if err := r.beginGroup(p.First.Group, moments); err != nil {
			return err
		}
	}
	if g.rows != nil {
		g.rows.n, g.rows.blocks, g.rows.columns, g.rows.stands = p.Items, p.Blocks, r.columns,
			r.stands
		g.rows.first = r.first
	}
	return nil
}

// step implements roundsEngine.
func (r *glmRounds) step(p *rounds.Part) (Iteration, error) {
	before := *r.g
	first := r.Round == 0
	it, err := r.linearRounds.step(p, r.begin, r.begun)
	if first && err != nil {
		*r.g = before
	}
	return it, err
}

// posterior implements roundsEngine.
func (r *glmRounds) posterior() (*GLMPosterior, error) {
	if r.group != nil {
		return r.groupPosterior()
	}
	q, err := r.found()
	if err != nil {
		return nil, err
	}
	g := r.g
	return &GLMPosterior{names: g.lin.Names, opt: g.opt, lik: r.lik, prior: &g.lin.Prior,
		mean: slices.Clone(q.Mean), cov: &gauss.Full{S: q}, rows: r.Items, means: g.means}, nil
}

// pass returns the part of this round with all rows of the GLM, in blocks of rowsBlock.
func (r *glmRounds) pass(h *parallel.Halt, workers int) (*rounds.Part, error) {
	p, rows := r.part(), r.g.rows
	var alone parallel.Halt // each lane works alone
	alone.Watch(h.Context())
	s := r.newPass(p, &alone, max(1, workers))
	err := p.Begin(0)
	if err == nil {
		err = r.through(s, rows.all, rowsBlock)
	}
	switch {
	case h.Err() != nil:
		return nil, h.Err()
	case err == nil && r.Round > 0 && p.Items != r.Items:
		err = fmt.Errorf("there are %d rows, but %d in the first reading; the iterator must yield "+
			"the same rows every time: %w", p.Items, r.Items, ErrShape)
	}
	return p, err
}

// rowsStepper is the Stepper of a GLM that reads its rows in passes.
type rowsStepper struct {
	run   glmRounds
	halt  parallel.Halt
	print fingerprint
}

// newRowsStepper returns the Stepper of g, whose rows must be set.
func (g *GLM) newRowsStepper(ctx context.Context, env *Env) (*rowsStepper, error) {
	s := &rowsStepper{run: g.rounds()}
	defer s.begin(ctx, env).Forget()
	return s, s.run.begun(&s.halt, env.cores())
}

// begun makes the fit of the sample, or the first sites of a model with a group, the first state to
// try.
func (r *glmRounds) begun(h *parallel.Halt, workers int) error {
	if r.group == nil {
		return r.start(h, workers)
	}
	r.arrow.Halt, r.arrow.Workers = h, workers
	return r.arrow.Start(r.first)
}

// rounds returns the rounds of a GLM whose rows are set, after the first round.
func (g *GLM) rounds() glmRounds {
	r := glmRounds{linearRounds: g.linearRounds(g.rows.cols), g: g}
	r.Ledger = rounds.Ledger{Round: 1, Items: g.rows.n, Blocks: g.rows.blocks}
	r.columns, r.stands, r.form = g.rows.columns, g.rows.stands, term.AsDense
	if g.lin.X.Sparse != nil {
		r.form = term.AsSparse
	}
	if r.group != nil {
		r.first, r.arrow = g.rows.first, r.newArrow()
		if noise := g.lin.Terms.Noise(); noise != g.rows.noise && r.first != nil {
			r.first = r.first.Scaled(g.rows.noise / noise)
		}
	}
	return r
}

// Len implements Stepper.
func (s *rowsStepper) Len() int { return s.run.Items }

// Plan implements Stepper.
func (s *rowsStepper) Plan() Plan {
	return Plan{Batch: 1, MaxPasses: mostRowPasses, Sampler: everyRow{}}
}

// begin implements haltable.
func (s *rowsStepper) begin(ctx context.Context, env *Env) *parallel.Halt {
	s.halt.Watch(ctx)
	s.run.climb.Halt = &s.halt
	if a := s.run.arrow; a != nil {
		s.halt.Lend(env.cores())
		a.Halt = &s.halt
	}
	return &s.halt
}

// Step implements Stepper. It reads all rows once.
func (s *rowsStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	defer s.begin(ctx, env).Forget()
	step := Step{Beta: beta, ClosedForm: true}
	if few := len(batch); !math.IsInf(beta, 1) || few > 1 && few < s.Len() {
		return step, fmt.Errorf("a GLM of NewGLMRows uses all rows in every step and chooses the "+
			"step size, but the step has %d of %d rows and step size %v; use NewGLM: %w", few,
			s.Len(), beta, ErrParam)
	}
	looks := max(1, s.run.ascent().Tries())
	if err := s.look(env); err != nil {
		return step, err
	}
	step = s.run.taken()
	step.more = looks*s.Len() - len(batch)
	return step, nil
}

// look computes the sums over all rows at the states to try.
func (s *rowsStepper) look(env *Env) error {
	a := s.run.ascent()
	if a.Stuck() {
		return nil
	}
	p, err := s.run.pass(&s.halt, env.cores())
	if err != nil {
		return err
	}
	restore := s.run.keep()
	if err := a.Read(p); err != nil {
		restore()
		return err
	}
	return nil
}

// Evaluate implements Stepper.
func (s *rowsStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	defer s.begin(ctx, env).Forget()
	for !s.constant() { // two readings find a state, or return an error
		if err := s.look(env); err != nil {
			return notEvaluated(), err
		}
	}
	return s.run.evaluation(), nil
}

// constant reports whether Evaluate would change nothing that affects later steps.
func (s *rowsStepper) constant() bool {
	_, _, ok := s.run.ascent().Best()
	return ok
}

// MarshalBinary returns the state.
func (s *rowsStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.state) }

// UnmarshalBinary restores a state. The error wraps ErrFile if b does not belong to a Stepper of
// the same model.
func (s *rowsStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

func (s *rowsStepper) state(c *save.Coder) {
	s.print.state(c, func(d *save.Digest) {
		s.run.digest(d)
		d.Int(s.run.Items)
		s.run.g.lin.Terms.Digest(d)
		s.run.g.lin.Digest(d)
		for _, f := range s.run.g.lin.Factors {
			d.Int(design.B2i(f.Learn), design.B2i(f.Independent))
			d.Floats(f.Scale)
		}
	})
	s.run.ascent().State(c, s.run.g.dim())
}

// rowsLearning is a GLM that reads its rows in passes, as a function of the standard deviations of
// its prior and the parameters of its likelihood. A search on the sample, in memory, comes before a
// search on all rows. One reading of all rows at q gives the ELBO under any prior, and the natural
// step from q. So another prior does not need the first reading again.
type rowsLearning struct {
	glm     *GLM
	scale   *learn.BlockPrior
	sample  *learn.Weights // each row represents several rows
	all     bool           // the search is on all rows
	workers term.Crew
	last    rowsPoint // the last θ that was kept
	best    rowsPoint // the best θ; its theta is nil before the search is on all rows
	found   rowsPoint
	passes  float64
}

var _ learn.Staged = (*rowsLearning)(nil)

// newRowsLearning returns the rowsLearning of a GLM whose rows are set, with the prior of its
// sample.
func newRowsLearning(g *GLM, scale *learn.BlockPrior, c term.Crew) *rowsLearning {
	r := g.rounds()
	return &rowsLearning{glm: g, scale: scale, workers: c,
		sample: learn.NewWeights(scale.On(r.stand()), false)}
}

// rowsPoint is the ascent at a θ.
type rowsPoint struct {
	theta []float64
	climb rounds.Climb
}

func (l *rowsLearning) Digest(d *save.Digest) {
	l.scale.Digest(d)
	d.Int(l.glm.rows.n)
}

func (l *rowsLearning) Use(c term.Crew) {
	l.workers = c
	l.sample.Use(c)
}

// each returns the average number of rows that a row of the sample represents.
func (l *rowsLearning) each() float64 {
	return float64(l.glm.rows.n) / float64(l.glm.lin.Terms.Len())
}

// Work implements learn.Model. It counts a pass over the sample as the fraction of a pass over all
// rows.
func (l *rowsLearning) Work() float64 { return l.passes + l.sample.Work()/l.each() }

// Passes returns the number of passes over all rows, and whether the search is on all rows.
func (l *rowsLearning) Passes() (n float64, all bool) { return l.passes, l.all }

// Goal implements learn.Staged. The best θ of the sample differs from the best θ of all rows by a
// few nats per row that a row of the sample represents.
func (l *rowsLearning) Goal(tol float64) float64 {
	if l.all {
		return tol
	}
	return max(tol, sampleTol*l.each())
}

// Begin implements learn.Staged.
func (l *rowsLearning) Begin() (rough float64, brief bool) { return 0, false }

// Advance implements learn.Staged.
func (l *rowsLearning) Advance() (same, ok bool) {
	ok = !l.all
	l.all = true
	return true, ok
}

func (l *rowsLearning) Keep(best bool) {
	if !l.all {
		l.sample.Keep(best)
		return
	}
	l.last = l.found
	if best {
		l.best = l.found
	}
}

// roundsAt returns the rounds of the GLM at θ, and the Tilts of its likelihood. The error means that θ
// is out of range.
func (g *GLM) roundsAt(scale *learn.BlockPrior, theta []float64) (*glmRounds, []rounds.Tilt, error) {
	lin, err := scale.At(theta)
	if err != nil {
		return nil, nil, err
	}
	at := *g
	at.lin.Prior, at.lin.Terms = lin.Prior, lin.Terms
	r := at.rounds()
	tilts, err := scale.Tilts(theta)
	return &r, tilts, err
}

// at returns the rounds of the GLM at θ, or an error if θ is out of range.
func (l *rowsLearning) at(theta []float64) (*glmRounds, error) {
	r, tilts, err := l.glm.roundsAt(l.scale, theta)
	if err != nil {
		return nil, err
	}
	r.climb = r.newClimb(l.workers.Halt)
	r.climb.Keep, r.climb.Tilts = true, tilts
	return r, nil
}

// Evaluate implements learn.Model.
func (l *rowsLearning) Evaluate(theta []float64, slack, most float64, slopes bool) (
	search.Point, error) {
	if !l.all {
		return l.sample.Evaluate(theta, slack, most, slopes)
	}
	x, err := l.fit(theta, slack, most, slopes)
	return learn.Judge(l.workers.Halt, x, err)
}

// fit is Evaluate for all rows.
func (l *rowsLearning) fit(theta []float64, slack, most float64, slopes bool) (x search.Point,
	err error) {
	r, err := l.at(theta)
	if err != nil {
		return search.Point{F: math.Inf(1)}, nil // out of range
	}
	if err = l.begin(r, theta); err == nil {
		err = l.climb(r, slack)
	}
	if err != nil {
		return x, err
	}
	c := &r.climb
	l.found = rowsPoint{slices.Clone(theta), *c}
	if x.F, x.Slack = -c.Found.ELBO, c.Gap(); !slopes || x.F > most {
		return x, nil
	}
	q, d := c.At, r.g.dim()
	variance := make([]float64, d)
	for j := range variance {
		variance[j] = q.Inv[j*d+j]
	}
	lik, ok := c.Tilted()
	if !ok && len(c.Tilts) > 0 {
		return search.Point{F: math.Inf(1)}, nil
	}
	l.scale.Gradient(&x, r.g.lin.Prior.Prec, q.Mean, variance, &gauss.Full{S: q}, lik)
	return x, nil
}

// begin starts the ascent at the q of the nearest θ, or at a fit of the sample.
func (l *rowsLearning) begin(r *glmRounds, theta []float64) error {
	var near *rowsPoint
	if i := nearest(theta, l.last.theta, l.best.theta); i >= 0 {
		near = [2]*rowsPoint{&l.last, &l.best}[i]
	}
	switch {
	case near == nil:
	case l.scale.SameLikelihood(near.theta, theta):
		return r.climb.Again(&near.climb)
	default: // the sums over rows no longer hold
		return r.climb.Start(near.climb.At)
	}
	return r.start(l.workers.Halt, l.workers.Workers)
}

// climb ascends until the predicted gain is at most slack nats.
func (l *rowsLearning) climb(r *glmRounds, slack float64) error {
	for range mostRowPasses {
		if r.climb.Gap() <= slack || r.climb.Stuck() {
			return nil
		}
		p, err := r.pass(l.workers.Halt, max(l.workers.Workers, l.workers.Halt.Workers()))
		if err != nil {
			return err
		}
		l.passes += float64(max(1, len(p.Looks)))
		if err := r.climb.Step(p.Looks); err != nil {
			return err
		}
	}
	return nil
}

// State implements learn.Model.
func (l *rowsLearning) State(c *save.Coder, n int) {
	c.Float(&l.passes)
	c.Bool(&l.all)
	if l.sample.State(c, n); c.Err() != nil {
		return
	}
	for _, p := range [2]*rowsPoint{&l.last, &l.best} {
		codePoint(c, &p.theta, n, func() error {
			r, err := l.at(p.theta)
			if err == nil {
				p.climb = r.climb
			}
			return err
		}, func() { p.climb.State(c, l.glm.dim()) })
	}
}

// codePoint writes or reads θ and the ascent at it. A nil θ has no ascent. To read, ascent makes the
// ascent at θ, and state reads its numbers.
func codePoint(c *save.Coder, theta *[]float64, n int, ascent func() error, state func()) {
	has := *theta != nil
	if c.Bool(&has); c.Reading() {
		*theta = nil
	}
	if !has || c.Err() != nil {
		return
	}
	c.Floats(n, theta)
	if c.Reading() {
		err := ascent()
		if c.Check(err == nil, "hyperparameters are out of range"); err != nil {
			return
		}
	}
	state()
}

// savedGLMRounds is the JSON form of the model of a glmRounds.
type savedGLMRounds struct {
	Likelihood  save.Value         `json:"likelihood"`
	Names       save.List[string]  `json:"names"` // names of the columns
	Intercept   bool               `json:"intercept"`
	Autoscale   bool               `json:"autoscale"`
	PriorSD     float64            `json:"priorSD"`
	InterceptSD float64            `json:"interceptSD"`
	MaxMemory   int64              `json:"maxMemory"`
	Groups      []savedRowGroup    `json:"groups,omitempty"`
	Prior       *gauss.SavedPrior  `json:"prior,omitempty"` // nil before the first round
	Means       save.List[float64] `json:"columnMeans,omitempty"`
}

// state implements roundsEngine.
func (r *glmRounds) state(c *save.Coder) {
	var spec []byte
	if !c.Reading() {
		var err error
		if spec, err = r.spec(); err != nil {
			c.Fail(err)
			return
		}
	}
	c.Bytes(&spec)
	if c.Reading() {
		loaded, err := loadGLMRounds(spec)
		if err != nil {
			c.Fail(err)
			return
		}
		*r = *loaded
	}
	r.progress(c)
}

// spec returns the model as JSON.
func (r *glmRounds) spec() ([]byte, error) {
	o, names := &r.g.opt, r.g.lin.Names[:r.cols]
	if err := checkText("the name of weight", names); err != nil {
		return nil, err
	}
	s := savedGLMRounds{Names: names, Intercept: o.Intercept, Autoscale: o.Autoscale,
		PriorSD: o.PriorSD, InterceptSD: o.InterceptSD, MaxMemory: o.MaxMemory, Means: r.g.means,
		Groups: r.saveGroups()}
	if p := &r.g.lin.Prior; len(p.Mean) > 0 {
		saved := p.Save()
		s.Prior = &saved
	}
	var err error
	if s.Likelihood, err = saveValue(r.lik); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// loadGLMRounds returns the model of a spec, before the first round.
func loadGLMRounds(spec []byte) (*glmRounds, error) {
	s := &savedGLMRounds{}
	if err := json.Unmarshal(spec, s); err != nil {
		return nil, err
	}
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	opt := &GLMOptions{Names: s.Names, Intercept: s.Intercept, Autoscale: s.Autoscale,
		PriorSD: s.PriorSD, InterceptSD: s.InterceptSD, MaxMemory: s.MaxMemory}
	for _, saved := range s.Groups {
		group, err := saved.group()
		if err != nil {
			return nil, err
		}
		opt.Groups = append(opt.Groups, group)
	}
	r, err := newGLMRounds(len(s.Names), lik, opt)
	if err != nil {
		return nil, err
	}
	if len(s.Means) > 0 && len(s.Means) != len(s.Names) {
		return nil, fmt.Errorf("columnMeans has %d elements for %d columns: %w", len(s.Means),
			len(s.Names), ErrShape)
	}
	if r.g.means = s.Means; s.Prior == nil {
		return r, nil
	}
	p, err := s.Prior.Load()
	if err == nil && len(p.Mean) != r.g.dim() {
		err = fmt.Errorf("the prior has %d weights instead of %d: %w", len(p.Mean), r.g.dim(),
			ErrShape)
	}
	if err == nil {
		r.g.lin.Prior = *p
	}
	begun := len(s.Groups) > 0 && s.Groups[0].Moment != nil
	for i := 0; begun && err == nil && i < len(s.Groups); i++ {
		err = s.Groups[i].load(r, i)
	}
	if begun && err == nil {
		r.arrow = r.newArrow()
	}
	return r, err
}

// newRounds implements roundsPosterior.
func (*GLMPosterior) newRounds() roundsEngine[Row, *GLMPosterior] { return &glmRounds{} }

// newGroupRounds returns the engine of a GLM with GLMOptions.Groups before the first round.
func newGroupRounds(g *GLM, cols int) (*glmRounds, error) {
	o := &g.opt
	groups, err := checkGroups(o.Groups, cols, o.Covariance, o.Prior)
	if err != nil {
		return nil, err
	}
	o.Groups, o.Covariance = groups, FullCovariance
	if err := groupRowsMemory(g.grouping(), o.MaxMemory); err != nil {
		return nil, err
	}
	g.lin.MaxMemory = o.MaxMemory
	if !o.Autoscale {
		if err := g.setPrior(); err != nil {
			return nil, err
		}
	}
	return &glmRounds{linearRounds: g.linearRounds(cols), g: g}, nil
}

// The largest memory of a GLM with a group that reads its rows in passes: the numbers of one state
// with its factors are counted groupStates times, for states to try and for scratch, and a pass has
// up to three sums of 25 bytes for each number.
const (
	groupStates  = 7
	groupNumbers = 25. / 8
)

// groupRowsLearning is a GLM with groups that reads its rows in passes, as a function of its
// hyperparameters. Each evaluation takes a few passes, which also find the best covariances of the
// effects. Its value is −ELBO − log p(Σ). Gaussian noise needs no such passes; see groupLearning.
type groupRowsLearning struct {
	glm               *GLM
	scale             *learn.BlockPrior
	workers           term.Crew
	last, best, found groupRowsPoint
	passes            float64
}

var _ learn.Model = (*groupRowsLearning)(nil)

// groupRowsPoint is the ascent at a θ.
type groupRowsPoint struct {
	theta []float64
	climb *rounds.ArrowClimb
}

// Digest implements learn.Model.
func (l *groupRowsLearning) Digest(d *save.Digest) {
	l.scale.Digest(d)
	d.Int(l.glm.rows.n)
	d.Text("groups")
}

// Use implements learn.Model.
func (l *groupRowsLearning) Use(c term.Crew) { l.workers = c }

// Work implements learn.Model, in passes.
func (l *groupRowsLearning) Work() float64 { return l.passes }

// Keep implements learn.Model.
func (l *groupRowsLearning) Keep(best bool) {
	if l.last = l.found; best {
		l.best = l.found
	}
}

// at returns the rounds of the GLM at θ, or an error if θ is out of range.
func (l *groupRowsLearning) at(theta []float64) (*glmRounds, error) {
	r, tilts, err := l.glm.roundsAt(l.scale, theta)
	if err != nil {
		return nil, err
	}
	r.arrow.Halt = l.workers.Halt
	r.arrow.Workers = max(l.workers.Workers, l.workers.Halt.Workers())
	r.arrow.Tilts = tilts
	return r, nil
}

// Evaluate implements learn.Model.
func (l *groupRowsLearning) Evaluate(theta []float64, slack, most float64, slopes bool) (
	search.Point, error) {
	x, err := l.fit(theta, slack, most, slopes)
	return learn.Judge(l.workers.Halt, x, err)
}

// fit is Evaluate without the judgment of its results.
func (l *groupRowsLearning) fit(theta []float64, slack, most float64, slopes bool) (search.Point,
	error) {
	none := search.Point{F: math.Inf(1)}
	r, err := l.at(theta)
	if err != nil {
		return none, nil // out of range
	}
	if err = l.begin(r, theta); err == nil {
		err = l.climb(r, slack)
	}
	if err != nil {
		return none, err
	}
	c := r.arrow
	l.found = groupRowsPoint{slices.Clone(theta), c}
	x := search.Point{F: -c.Found.ELBO - c.Found.LogPrior, Slack: c.Gap()}
	if !slopes || x.F > most {
		return x, nil
	}
	lik, ok := c.Tilted()
	if !ok && len(c.Tilts) > 0 {
		return none, nil
	}
	mean, variance, cov := c.Moments()
	l.scale.Gradient(&x, r.g.lin.Prior.Prec, mean, variance, cov, lik)
	return x, nil
}

// begin starts the ascent at the sites of the nearest θ, or at the first sites.
func (l *groupRowsLearning) begin(r *glmRounds, theta []float64) error {
	near := nearest(theta, l.last.theta, l.best.theta)
	if near < 0 {
		return r.arrow.Start(r.first)
	}
	return r.arrow.StartAt([]*rounds.ArrowClimb{l.last.climb, l.best.climb}[near])
}

// nearest returns the number of the point that is nearest to theta. It skips nil points, and returns −1
// if there are no others.
func nearest(theta []float64, points ...[]float64) int {
	best := -1
	for i, p := range points {
		if p != nil && (best < 0 ||
			floats.Distance(p, theta, 2) < floats.Distance(points[best], theta, 2)) {
			best = i
		}
	}
	return best
}

// climb ascends until the estimated gap is at most slack nats.
func (l *groupRowsLearning) climb(r *glmRounds, slack float64) error {
	for range mostRowPasses {
		if a := r.arrow; a.Gap() <= slack || a.Stuck() {
			return nil
		}
		p, err := r.pass(l.workers.Halt, r.arrow.Workers)
		if err != nil {
			return err
		}
		l.passes += float64(max(1, len(p.Arrows)))
		if err := r.arrow.Read(p); err != nil {
			return err
		}
	}
	return nil
}

// State implements learn.Model.
func (l *groupRowsLearning) State(c *save.Coder, n int) {
	c.Float(&l.passes)
	for _, p := range [2]*groupRowsPoint{&l.last, &l.best} {
		codePoint(c, &p.theta, n, func() error {
			r, err := l.at(p.theta)
			if err == nil {
				p.climb = r.arrow
			}
			return err
		}, func() { p.climb.State(c, l.glm.dim()) })
	}
}

// groupRowsMemory returns an error if the model exceeds the memory limit.
func groupRowsMemory(g *rounds.Grouping, limit int64) error {
	d, rows := g.Border(), g.Levels*g.Q
	if d > site.MostBorder {
		return fmt.Errorf("pgsvi: there are %d columns outside the group %s; at most %d are supported: "+
			"use fewer levels or effects in the smaller groups: %w", d, g.Name, site.MostBorder,
			ErrMemory)
	}
	need := memory.Bytes(groupStates, rows, 2*d+3*g.Q+3) + memory.Bytes(4*groupNumbers, 1, g.Sums()) +
		memory.Bytes(float64(3*min(1, len(g.Others))), rows, d) + memory.Bytes(arrowMatrices, d, d) + memory.Bytes(site.WeightVectors, 1, d+rows)
	return checkMemory(limit, need,
		fmt.Sprintf("a GLM of any number of rows with a group of %d weights and %d other columns", rows,
			d), "use fewer columns and levels, or raise GLMOptions.MaxMemory")
}

// grouping returns the layout of the groups of g, or nil.
func (g *GLM) grouping() *rounds.Grouping {
	if len(g.opt.Groups) == 0 {
		return nil
	}
	var all []rounds.Factor
	for _, r := range g.opt.Groups {
		all = append(all, rounds.Factor{Name: r.Name, First: r.First, Levels: r.Levels, Q: r.effects()})
	}
	return rounds.NewGrouping(all, g.dim())
}

// beginGroup uses the part of the first round to set up the prior of the effects and the first
// sites.
func (r *glmRounds) beginGroup(f *rounds.GroupFirst, m *rounds.GroupMoments) error {
	g := r.g
	unit := groupUnit(g.lin.Terms)
	g.lin.Prior, g.lin.Factors, g.groups = g.lin.Prior.WithBlocks(), nil, nil
	for i := range g.opt.Groups {
		group := &g.opt.Groups[i]
		own := m.From(group.First)
		if err := r.checkGroup(group, own); err != nil {
			return err
		}
		q := group.effects()
		sizes, moment := make([]float64, q), slices.Clone(own.Square)
		for c := range sizes {
			sizes[c] = own.Square[c*q+c]
		}
		rootMeans(sizes, own.Rows)
		b, rule := group.prior(unit, groupPriorSD, sizes)
		g.lin.Prior.SetBlock(b)
		g.lin.Factors = append(g.lin.Factors, rule)
		for i := range moment {
			moment[i] /= float64(r.Items)
		}
		g.groups = append(g.groups, groupInfo{Group: *group, moment: moment})
	}
	if r.first = f.State(); r.first != nil {
		if a, b, ok := r.group.Same(&r.first.Sums); ok {
			return errSameGroups(a, b)
		}
	}
	if near := nearResponse(r.lik, unit); near != nil && r.first != nil {
		if s := factsOf(r.lik).Support; s == RealLine { // the sites have the precision of unit 1
			r.first = r.first.Scaled(1 / (unit * unit))
		}
	}
	if g.rows != nil {
		g.rows.moments, g.rows.noise = m, g.lin.Terms.Noise()
	}
	r.arrow = r.newArrow()
	return nil
}

// checkGroup returns an error if the prior or the rows do not fit the group.
func (r *glmRounds) checkGroup(group *Group, m *rounds.FactorMoments) error {
	g := r.g
	for j := group.First; j < group.end(); j++ {
		if v := g.lin.Prior.Mean[j]; v != 0 {
			return fmt.Errorf("pgsvi: GLMOptions.Prior has the mean %v in column %d of group %s; use "+
				"mean 0 and offsets of the rows: %w", v, j, group.Name, ErrParam)
		}
	}
	for c, name := range group.effectNames() {
		if c > 0 && !group.Fixed && m.Intercept && m.Rows > 0 && !m.Varies[c] {
			return group.constantEffect(name, float64(m.Levels) == m.Rows)
		}
	}
	return nil
}

// newArrow returns the driver of a model with a group, before its start.
func (r *glmRounds) newArrow() *rounds.ArrowClimb {
	lin := &r.g.lin
	return &rounds.ArrowClimb{Of: r.group, Prior: &lin.Prior, Rules: lin.Factors,
		Concave: factsOf(r.lik).LogConcave, Near: nearResponse(r.lik, 1) != nil}
}

// groupPosterior implements roundsEngine for a model with a group.
func (r *glmRounds) groupPosterior() (*GLMPosterior, error) {
	if r.arrow == nil || r.arrow.At == nil {
		return nil, errNoRound
	}
	g, q := r.g, r.arrow.At
	mean := make([]float64, g.dim())
	for k, j := range r.group.Columns() {
		mean[j] = q.Mean.W[k]
	}
	copy(mean[r.group.First:], q.Mean.U)
	by := q.By
	if len(r.group.Others) > 0 {
		var ok bool
		if by, ok = by.Compact(r.arrow.Halt); !ok {
			return nil, cmp.Or(r.arrow.Halt.Err(), error(ErrNotPosDef))
		}
	}
	p := g.posterior(mean, by, r.Items)
	spread, err := r.arrow.Spread()
	if err != nil {
		return nil, err
	}
	p.groups = slices.Clone(p.groups)
	for i := range p.groups {
		if !p.groups[i].Fixed {
			p.groups[i].spread = &spread[i]
		}
	}
	r.arrow.Release()
	return p, nil
}

// savedRowGroup is the JSON form of a group of a glmRounds.
type savedRowGroup struct {
	Name        string             `json:"name"`
	First       int                `json:"first"`
	Levels      int                `json:"levels"`
	Effects     save.List[string]  `json:"effects"`
	SD          save.List[float64] `json:"sd,omitempty"`
	Corr        save.List[float64] `json:"corr,omitempty"`
	Fixed       bool               `json:"fixed"`
	NoPrior     bool               `json:"noPrior"`
	Independent bool               `json:"independent"`
	// Scale and Moment are known after the first round.
	Scale  save.List[float64] `json:"scale,omitempty"`
	Moment save.List[float64] `json:"moment,omitempty"`
}

// saveGroups returns the saved form of the groups.
func (r *glmRounds) saveGroups() (all []savedRowGroup) {
	for i := range r.g.opt.Groups {
		s := r.g.opt.Groups[i].saveRows()
		if len(r.g.groups) > 0 {
			s.Scale, s.Moment = r.g.lin.Factors[i].Scale, r.g.groups[i].moment
		}
		all = append(all, s)
	}
	return all
}

// saveRows returns the saved form of g, without Scale and Moment.
func (g *Group) saveRows() savedRowGroup {
	s := savedRowGroup{Name: g.Name, First: g.First, Levels: g.Levels, Effects: g.effectNames(),
		SD: g.SD, Fixed: g.Fixed, NoPrior: g.NoPrior, Independent: g.Independent}
	if g.Corr != nil {
		q := g.effects()
		for i := range q * q {
			s.Corr = append(s.Corr, g.Corr.At(i/q, i%q))
		}
	}
	return s
}

// group returns the group that was saved, without its moments.
func (s *savedRowGroup) group() (Group, error) {
	g := Group{Name: s.Name, First: s.First, Levels: s.Levels, Effects: s.Effects, SD: s.SD,
		Fixed: s.Fixed, NoPrior: s.NoPrior, Independent: s.Independent}
	if s.Corr == nil {
		return g, nil
	}
	q := g.effects()
	if len(s.Corr) != q*q {
		return g, fmt.Errorf("%d correlations of %d effects: %w", len(s.Corr), q, ErrShape)
	}
	g.Corr = mat.NewSymDense(q, s.Corr)
	return g, nil
}

// load sets the rule and the moments of group i of r, whose prior must be loaded.
func (s *savedRowGroup) load(r *glmRounds, i int) error {
	group := &r.g.opt.Groups[i]
	q := group.effects()
	blocks := r.g.lin.Prior.Blocks()
	if len(s.Moment) != q*q || len(blocks) != len(r.g.opt.Groups) || blocks[i].First != group.First ||
		blocks[i].Levels != group.Levels || blocks[i].Q != q ||
		len(s.Scale) != q*(1-design.B2i(group.NoPrior)) {
		return fmt.Errorf("the group has %d moments and %d scales of %d effects: %w", len(s.Moment),
			len(s.Scale), q, ErrShape)
	}
	for _, x := range s.Scale {
		if !(x > 0) || math.IsInf(x, 0) {
			return fmt.Errorf("the scale of an effect is %v: %w", x, ErrParam)
		}
	}
	r.g.lin.Factors = append(r.g.lin.Factors, site.Factor{Learn: !group.Fixed,
		Independent: group.Independent, Scale: s.Scale})
	r.g.groups = append(r.g.groups, groupInfo{Group: *group, moment: s.Moment})
	return nil
}
