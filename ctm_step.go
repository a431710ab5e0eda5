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
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/topic"
	"gonum.org/v1/gonum/mat"
)

// ctmStepper is the Stepper of a CTM.
type ctmStepper struct {
	m     *CTM
	steps *topic.Steps
	print fingerprint
	draws uint64   // seed of the draws of every step over all documents
	full  int      // number of steps over all documents since the last other step
	all   allTerms // scratch
}

// begin returns the steps of m on docs, from topics that are drawn from env unless they are given.
// The error is that of ctx.
func (m *CTM) begin(ctx context.Context, env *Env, docs []topic.Doc) (*topic.Steps, error) {
	var start [][]float64
	if t, ok := m.opt.Topics.(*mat.Dense); ok {
		start = dense.RowsOf(t)
	} else {
		start = topic.Start(m.opt.Start).Topics(ctx, env.cores(), docs, m.terms, m.k,
			env.rng())
	}
	if ctx.Err() != nil {
		return nil, prefixed(context.Cause(ctx))
	}
	return topic.NewSteps(m.opt.engine(m.k, m.terms), docs, start), nil
}

// Len implements Stepper. It returns the number of documents.
func (s *ctmStepper) Len() int { return len(s.m.docs) }

// Plan implements Stepper. It returns five passes in batches of 16 documents, followed by passes
// over all documents with an evaluation after each. With CTMOptions.Paper, and for corpora that are
// too large for passes over all documents, it returns ten passes in batches.
func (s *ctmStepper) Plan() Plan {
	p := Plan{Batch: ctmBatch, MaxPasses: ctmPasses, EvalEvery: -1}
	k := float64(s.m.k)
	switch work := passWork(s.m.docs, s.m.k); {
	case s.m.opt.Paper:
		p.Batch = ctmPaperBatch
	case work+2*k*k*float64(len(s.m.docs)) <= ctmLargest:
		p.Sampler, p.evalAll = thenAll{ctmBatch, ctmNoisyPasses}, true
		if e := s.m.engine(); s.m.opt.Expectation <= CTMQuasi {
			work *= float64(e.Points()) / ctmDraws
		} else {
			work *= ctmSlower
		}
		p.MaxPasses = passesFor(work, ctmWork, ctmPasses)
	}
	return p
}

// Step implements Stepper. If beta is +Inf, the CTM chooses the step size of the documents, which
// is β = 1 (r = ½), or 0.001 for CTMOptions.Paper. A batch of all documents replaces the topics,
// and has the same draws each time, so that such steps converge. The error names the document and
// wraps ErrNotPosDef or ErrNotFinite, and the state is then unchanged.
func (s *ctmStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	seed, full := s.draws, s.full+1
	if s.all.all(batch, s.Len()) {
		batch = nil
	} else {
		seed, full = env.rng().Uint64(), 0
	}
	beta, err := s.steps.Step(ctx, env.cores(), batch, beta, seed)
	if err != nil {
		return Step{}, err
	}
	s.full = full
	return Step{Beta: beta, ClosedForm: true}, nil
}

// Evaluate implements Stepper. It returns the ELBO of all documents at the current topics, μ and Σ.
// If expectations are estimates, the ELBO is an estimate, and ELBOErr is the standard error due to
// their draws. Otherwise ELBOErr is the gain that the means m_n can still make at the current
// topics.
func (s *ctmStepper) Evaluate(ctx context.Context, env *Env) (e Evaluation, err error) {
	e.ELBO, e.ELBOErr, e.Random, err = s.steps.Evaluate(ctx, env.cores(), env.rng().Uint64())
	e.GapBound, e.Goal = math.Inf(1), ctmGoal
	if e.Random {
		e.Goal = max(ctmGoal, e.ELBOErr)
	}
	return e, err
}

// gap implements gapEstimator, if the last steps were over all documents. Such a step raises the
// ELBO by less than the step before, but often by more in every other step. So gap compares the
// rise of the last two steps with the rise of the two before, or of four from the ninth step on. It
// sets at least ELBOErr, and twice the remainder of a geometric series of these rises, because
// later rises fall more slowly.
func (s *ctmStepper) gap(_ context.Context, _ *Env, now *Iteration, before []Iteration,
	_ bool) error {
	now.Gap = s.left(*now, before)
	return nil
}

// left returns the gap that gap sets.
func (s *ctmStepper) left(now Iteration, before []Iteration) float64 {
	elbo := []float64{now.ELBO} // latest first
	for _, it := range slices.Backward(before) {
		if it.K != now.K-len(elbo) || len(elbo) >= s.full {
			break
		}
		elbo = append(elbo, it.ELBO)
	}
	lag := min((len(elbo)-1)/4*2, ctmMostLag)
	if lag == 0 {
		return 0
	}
	last, earlier := elbo[0]-elbo[lag], elbo[lag]-elbo[2*lag]
	left := math.Abs(last) // it may fall, because the steps do not use the draws of Evaluate
	if last > 0 {
		left = seriesLeft(last, max(earlier, 0))
	}
	left *= 2
	if now.ELBOErr > left {
		left = now.ELBOErr
	}
	return goals.NeverZero(left)
}

// MarshalBinary returns the state. The bytes are not for long-term storage; see Result.Save.
func (s *ctmStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.snapshot) }

// UnmarshalBinary restores a state. The error wraps ErrFile if b does not belong to a Stepper of
// the same CTM, and s is then unusable.
func (s *ctmStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.snapshot) }

// constant reports that Evaluate changes nothing.
func (s *ctmStepper) constant() bool { return true }

// snapshot writes or reads everything on which later steps depend.
func (s *ctmStepper) snapshot(c *save.Coder) {
	s.print.state(c, s.m.digest)
	c.Uint64(&s.draws)
	c.Int(&s.full)
	s.steps.Snapshot(c)
}

// digest adds the documents and the options to d.
func (m *CTM) digest(d *save.Digest) {
	o := m.opt
	o.Topics = nil // the initial topics do not identify the model
	d.Text(fmt.Sprintf("%+v", o))
	d.Int(m.k, m.terms, len(m.docs))
	for _, doc := range m.docs {
		d.Int(len(doc.Words))
		d.Int(doc.Words...)
		d.Float(doc.Counts...)
	}
}

// Fit runs s on the model. A nil s means the zero Solver. It takes five passes in batches of 16
// documents, and then passes over all documents until Result.Gap is at most Solver.Goal, but at
// most ten passes in all. For a small corpus, whose passes take little time, the limit is a
// thousand passes. If a pass over all documents would keep more than 30 million numbers, all ten
// passes are in batches, and Gap stays +Inf. More passes raise the ELBO but not the held-out
// probability.
//
// A pass over all documents replaces the topics, and uses the same draws each time. The ELBO is
// evaluated after each such pass. From the fifth on, Gap estimates the gain of later passes. It is
// twice the remainder of a geometric series through the last rises of the ELBO, and at least
// ELBOErr, the standard error due to the draws. It proves nothing, because rises that the draws
// hide may continue, and other maxima may be higher. On four of ten generated corpora and on the AP
// corpus, fits that ended by their Gap would have gained two to eight times as much in later
// passes. A zero Goal means ELBOErr, or 0.1 nats if that is larger.
//
// With a Solver.Converger, the ELBO is evaluated once per pass. With a nil StepSize, the model
// chooses the inner steps. Otherwise StepSize gives their β_k, and BatchSize and Sampler of the
// Solver apply. The topics after passes in batches come from the last steps. They are noisy, and
// have no gap for a Converger.
//
// The ELBO has several maxima. In about one run of ten on generated documents, two topics merged,
// at an ELBO about a hundred nats lower. Fit with several Solver.Src and keep the fit with the
// highest ELBO.
//
// Fit returns the posterior at the state reached, which is valid even if Fit returns an error after
// the set-up. It is nil if the set-up fails. Fit returns the errors of Solver.Run.
func (m *CTM) Fit(ctx context.Context, s *Solver) (*CTMPosterior, *Result, error) {
	return fitModel[*CTMPosterior](ctx, s, m)
}

// NewStepper implements Model. The initial topics are drawn from env. The error wraps ErrNoProx if
// d is not KL.
func (m *CTM) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: the divergence is %s, but a CTM supports only KL: %w",
			spell(d), ErrNoProx)
	}
	steps, err := m.begin(ctx, env, m.docs)
	if err != nil {
		return nil, err
	}
	return &ctmStepper{m: m, steps: steps, draws: env.rng().Uint64()}, nil
}

// Posterior returns the posterior at st, a state of this model. The error wraps ErrParam if st is
// not a state of this model.
func (m *CTM) Posterior(st Stepper) (*CTMPosterior, error) {
	s, ok := st.(*ctmStepper)
	if !ok || s.m != m {
		return nil, fmt.Errorf("pgsvi: the state is a %T, but this CTM needs its own state: %w", st,
			ErrParam)
	}
	return m.posterior(s.steps, make([]bool, m.terms)), nil
}

// posterior returns the posterior at s. The terms in seen have occurred in addition to the terms of
// m's documents.
func (m *CTM) posterior(s *topic.Steps, seen []bool) *CTMPosterior {
	p := &CTMPosterior{vocab: slices.Clone(m.vocab), opt: m.opt, fit: s.Fitted(), seen: seen}
	p.opt.Topics = nil
	if !m.opt.Forget {
		p.docs = m.docs
	}
	for _, d := range m.docs {
		for _, v := range d.Words {
			p.seen[v] = true
		}
	}
	return p
}

// engine returns the options of m in the type of its engine.
func (m *CTM) engine() topic.Options { return m.opt.engine(m.k, m.terms) }

// ctmStream is the engine of NewCTMStream.
type ctmStream struct {
	m     *CTM         // without documents
	st    *topic.Steps // nil until the topics start
	pcg   *rand.PCG
	buf   []topic.Doc // documents with words since the last step
	seen  []bool      // whether each term has occurred
	docs  int         // documents in the posterior or in buf, including documents without words
	items int         // documents handed over
	done  int         // documents of buf that a canceled step has already used
}

// newForgetful is newCTM for documents that are not kept.
func newForgetful(terms, topics int, opt *CTMOptions) (*CTM, error) {
	o := CTMOptions{}
	if opt != nil {
		o = *opt
	}
	o.Forget = true
	return newCTM(terms, topics, &o)
}

// ctmWarmUp is the number of documents that initialize the topics of a stream.
const ctmWarmUp = 256

// NewCTMStream returns a stream that fits a correlated topic model in one pass over the documents
// (online learning). It keeps the topics, μ and Σ, but no documents. Each document starts from the
// prior and takes CTMOptions.FirstInner steps. The M-step after every 16 documents averages over
// the past. The first 256 documents are kept until they initialize the topics. The posterior has no
// q(z_n). Documents cannot be removed.
//
// The stream takes documents over a vocabulary of the given number of terms. See NewCTM for topics,
// opt and the errors. CTMOptions.Paper is an error.
func NewCTMStream(terms, topics int, opt *CTMOptions) (*Stream[Document, *CTMPosterior], error) {
	m, err := newForgetful(terms, topics, opt)
	if err != nil {
		return nil, err
	}
	s := &ctmStream{m: m, pcg: rand.NewPCG(seed1, seed2), seen: make([]bool, terms)}
	return &Stream[Document, *CTMPosterior]{s}, nil
}

func (s *ctmStream) len() int { return s.docs }

func (s *ctmStream) given() int { return s.items }

func (s *ctmStream) add(ctx context.Context, d Document) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.items++
	if err := d.check(s.m.terms); err != nil {
		return fmt.Errorf("document %d of the stream %w", s.items-1, err)
	}
	s.docs++
	if len(d.Words) == 0 {
		return nil // a document without words teaches nothing
	}
	for _, v := range d.Words {
		s.seen[v] = true
	}
	s.buf = append(s.buf, topic.Doc(d).Clone())
	return s.settle(ctx)
}

// settle learns from the documents in the buffer if they make a batch, or if a canceled step has
// begun with them. If ctx is done, it returns the cause, and the remaining work is unchanged.
func (s *ctmStream) settle(ctx context.Context) error {
	if s.done == 0 && (len(s.buf) < ctmWarmUp && s.st == nil || len(s.buf) < ctmBatch) {
		return nil
	}
	return s.flush(ctx)
}

// flush learns from the documents in the buffer.
func (s *ctmStream) flush(ctx context.Context) error {
	all, before := s.buf, *s.pcg
	rng := rand.New(s.pcg)
	if s.st == nil {
		st, err := s.m.begin(ctx, NewEnv(s.pcg, runtime.GOMAXPROCS(0)), all)
		if err != nil {
			*s.pcg = before
			return err
		}
		s.st = st
	}
	s.st.Renew(all, float64(s.docs))
	index := make([]int, len(all))
	for i := range index {
		index[i] = i
	}
	begun := s.done
	s.buf, s.done = nil, 0
	for batch := range slices.Chunk(index[begun:], ctmBatch) {
		before = *s.pcg
		if _, err := s.st.Step(ctx, runtime.GOMAXPROCS(0), batch, math.Inf(1),
			rng.Uint64()); err != nil {
			if ctx.Err() != nil {
				s.buf, s.done, *s.pcg = all, batch[0], before
				return err
			}
			lost := len(all) - batch[0]
			s.docs -= lost
			return fmt.Errorf("the last %d documents with words of the %d of the stream: %w", lost,
				s.items, err)
		}
	}
	return nil
}

func (s *ctmStream) removeAll(context.Context, iter.Seq2[Document, error]) error {
	return fmt.Errorf("pgsvi: a stream of documents keeps none, so they cannot be removed: %w",
		errors.ErrUnsupported)
}

// posterior learns from the documents in the buffer with a copy of the stream.
func (s *ctmStream) posterior(ctx context.Context) (*CTMPosterior, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if !slices.Contains(s.seen, true) {
		return nil, fmt.Errorf("no document of the stream has words: %w", ErrEmpty)
	}
	if len(s.buf) > 0 {
		pcg := *s.pcg
		ahead := &ctmStream{m: s.m, pcg: &pcg, buf: s.buf, seen: s.seen, docs: s.docs,
			items: s.items}
		if s.st != nil {
			ahead.st = s.st.Clone()
		}
		if err := ahead.flush(ctx); err != nil {
			return nil, err
		}
		s = ahead
	}
	return s.m.posterior(s.st, slices.Clone(s.seen)), nil
}

// ctmStreamFile is the file type of a stream of documents.
var ctmStreamFile = save.Kind{Name: "CTMStream", Version: 1}

// savedCTMStream is the JSON form of a ctmStream.
type savedCTMStream struct {
	Terms   int        `json:"terms"`
	Topics  int        `json:"topics"`
	Options CTMOptions `json:"options"` // without Topics
	// Start holds CTMOptions.Topics row by row, unless State is set.
	Start  save.List[float64]   `json:"start,omitempty"`
	Rng    []byte               `json:"rng"` // a rand.PCG
	Docs   int                  `json:"docs"`
	Items  int                  `json:"items"`
	Seen   save.List[bool]      `json:"seen"`
	Buffer save.List[topic.Doc] `json:"buffer"`
	State  *topic.SavedSteps    `json:"state,omitempty"`
}

func (s *ctmStream) save(w io.Writer) error {
	if err := s.settle(context.Background()); err != nil {
		return prefixed(err)
	}
	rng, err := s.pcg.MarshalBinary()
	if err != nil {
		return prefixed(err)
	}
	saved := &savedCTMStream{Terms: s.m.terms, Topics: s.m.k, Options: s.m.opt, Rng: rng,
		Docs: s.docs, Items: s.items, Seen: s.seen, Buffer: s.buf}
	saved.Options.Topics = nil
	switch st := s.st; {
	case st != nil:
		saved.State = st.Saved()
	case s.m.opt.Topics != nil:
		saved.Start = mat.DenseCopyOf(s.m.opt.Topics).RawMatrix().Data
	}
	return saveTo(w, ctmStreamFile, saved)
}

// loadStream reads a CTMStream from r.
func (*CTMPosterior) loadStream(r io.Reader) (*Stream[Document, *CTMPosterior], error) {
	return loadFrom(r, ctmStreamFile, (*savedCTMStream).load)
}

func (s *savedCTMStream) load() (*Stream[Document, *CTMPosterior], error) {
	k, terms := s.Topics, s.Terms
	if k < 1 || terms < 1 || len(s.Seen) != terms ||
		s.Start != nil && (len(s.Start)%k != 0 || len(s.Start)/k != terms) ||
		s.Items < s.Docs || s.Items > save.Most || s.Docs < len(s.Buffer) {
		return nil, fmt.Errorf("%d topics, %d terms, %d elements in seen, %d in start, %d "+
			"documents, %d in the buffer and %d items do not fit: %w", k, terms, len(s.Seen),
			len(s.Start), s.Docs, len(s.Buffer), s.Items, ErrShape)
	}
	opt := s.Options
	if s.Start != nil {
		opt.Topics = mat.NewDense(k, terms, s.Start)
	}
	if !opt.Forget {
		return nil, fmt.Errorf("the options of the stream do not set Forget: %w", ErrParam)
	}
	m, err := newCTM(terms, k, &opt)
	if err != nil {
		return nil, err
	}
	t := &ctmStream{m: m, pcg: new(rand.PCG), buf: s.Buffer, seen: s.Seen, docs: s.Docs,
		items: s.Items}
	if err := t.pcg.UnmarshalBinary(s.Rng); err != nil {
		return nil, err
	}
	for i, d := range s.Buffer {
		if err := d.Check(terms); err != nil {
			return nil, fmt.Errorf("document %d of the buffer %w", i, err)
		}
		if len(d.Words) == 0 {
			return nil, fmt.Errorf("document %d of the buffer has no words: %w", i, ErrEmpty)
		}
		for _, v := range d.Words {
			if !s.Seen[v] {
				return nil,
					fmt.Errorf("document %d of the buffer has word %d, which is not in seen: %w",
						i, v, ErrParam)
			}
		}
	}
	if s.State != nil {
		t.st, err = s.State.Load(m.opt.engine(k, terms))
	} else if len(s.Buffer) == 0 && slices.Contains(s.Seen, true) {
		err = fmt.Errorf("seen has words, but there are no documents: %w", ErrShape)
	}
	return &Stream[Document, *CTMPosterior]{t}, err
}
