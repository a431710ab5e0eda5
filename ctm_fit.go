package pgsvi

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
)

// Fit runs s on the model; a nil s means a Solver without options. That is ten passes in batches of 16 documents,
// with the ELBO evaluated at the end alone: more passes raise the ELBO, but no longer the
// probability of words held out. A Solver.Converger makes it one evaluation a pass. A nil StepSize leaves the
// steps inside to the model; a StepSize is their β_k, and BatchSize and Sampler
// then are the Solver's own. The topics are those of the last steps, which are noisy:
// a Converger does not see a gap. The posterior is that of the state reached and is valid
// even if there is an error after the set-up; it is nil if the set-up failed. The
// errors are those of Solver.Run.
func (m *CTM) Fit(ctx context.Context, s *Solver) (*CTMPosterior, *Result, error) {
	return fit[*CTMPosterior](ctx, s, m)
}

// NewStepper implements Model. The first topics are drawn from env.
// It returns an error wrapping ErrNoProx if d is another divergence than KL.
func (m *CTM) NewStepper(_ context.Context, env *Env, d Divergence) (Stepper, error) {
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: a CTM steps with the KL divergence, not with %T: %w", d, ErrNoProx)
	}
	return newCTMStepper(m, env.rng()), nil
}

// Posterior returns the posterior at st, a state of this model. The error wraps ErrParam if it is none.
func (m *CTM) Posterior(st State) (*CTMPosterior, error) {
	s, ok := st.(*ctmStepper)
	if !ok || s.m != m {
		return nil, fmt.Errorf("pgsvi: a %T that is no state of this CTM: %w", st, ErrParam)
	}
	p := &CTMPosterior{k: m.k, terms: m.terms, vocab: slices.Clone(m.vocab), opt: m.opt}
	p.opt.Topics = nil
	p.beta = s.topics.beta()
	p.prior.set(slices.Clone(s.prior.mu), slices.Clone(s.prior.cov), new([]float64))
	p.seen = make([]bool, m.terms)
	stride := ctmState(m.k, m.opt.diagonal())
	if !m.opt.Forget {
		p.docs = make([][]float64, len(m.docs))
	}
	for n, d := range m.docs {
		for _, v := range d.Words {
			p.seen[v] = true
		}
		if s.visited[n] && len(d.Words) > 0 {
			p.docs[n] = slices.Clone(s.state[n*stride : (n+1)*stride])
		}
	}
	return p, nil
}

// CTMStream is a correlated topic model of documents that arrive one at a time, in any
// number and each once. It keeps the topics, μ and Σ, and nothing of the documents: each is met with
// the prior, CTMOptions.FirstInner steps are taken, and the M-step at the end of every
// 16 documents averages over the past. The first 256 documents are kept until the topics start from them.
// All randomness is from a fixed seed, and the result does not depend on how the documents are handed over.
//
// A CTMStream is not safe for concurrent use.
type CTMStream struct {
	m    *CTM
	st   *ctmStepper
	rng  *rand.Rand
	buf  []Document
	seen []bool
	n    int // documents handed over
}

// ctmWarmUp is the number of documents from which the topics of a stream start.
const ctmWarmUp = 256

// NewCTMStream returns a stream of documents over a vocabulary of the given number of terms. See
// NewCTM for topics, opt and the errors; Paper is refused.
func NewCTMStream(terms, topics int, opt *CTMOptions) (*CTMStream, error) {
	o := CTMOptions{}
	if opt != nil {
		o = *opt
	}
	o.Forget = true
	m, err := newCTM(terms, topics, &o)
	if err != nil {
		return nil, err
	}
	return &CTMStream{m: m, rng: rand.New(rand.NewPCG(seed1, seed2)), seen: make([]bool, terms)}, nil
}

// Len returns the number of documents that the stream was given.
func (s *CTMStream) Len() int { return s.n }

// Add adds a document, which it copies. The error names the number of the document, and wraps what Corpus.Validate returns, upon which
// the document is left out, or is that of ctmStepper.Step, upon which the documents since the last step are.
func (s *CTMStream) Add(d Document) error {
	if err := (&Corpus{Docs: []Document{d}, Terms: s.m.terms}).Validate(); err != nil {
		return fmt.Errorf("pgsvi: document %d of the stream: %w", s.n, err)
	}
	s.n++
	if len(d.Words) == 0 {
		return nil // of which nothing is learnt
	}
	for _, v := range d.Words {
		s.seen[v] = true
	}
	s.buf = append(s.buf, Document{slices.Clone(d.Words), slices.Clone(d.Counts)})
	if len(s.buf) < ctmWarmUp && s.st == nil || len(s.buf) < ctmBatch {
		return nil
	}
	return s.flush()
}

// flush learns from the documents in the buffer.
func (s *CTMStream) flush() error {
	all := s.buf
	s.buf = nil
	model := *s.m
	model.docs = all
	if s.st == nil {
		s.st = newCTMStepper(&model, s.rng)
	}
	s.st.docs = float64(s.n)
	s.st.m, s.st.visited = &model, make([]bool, len(all))
	index := make([]int, len(all))
	for i := range index {
		index[i] = i
	}
	for batch := range slices.Chunk(index, ctmBatch) {
		if _, err := s.st.Step(context.Background(), &Env{Rng: s.rng}, batch, math.Inf(1)); err != nil {
			return fmt.Errorf("pgsvi: documents %d to %d of the stream: %w", s.n-len(all), s.n-1, err)
		}
	}
	return nil
}

// AddAll adds documents until there are no more. It returns the first error, that of ctx, of
// docs or of Add; documents before it are in the posterior.
func (s *CTMStream) AddAll(ctx context.Context, docs iter.Seq2[Document, error]) error {
	for d, err := range docs {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("pgsvi: canceled after %d documents: %w", s.n, context.Cause(ctx))
		}
		if err := s.Add(d); err != nil {
			return err
		}
	}
	return nil
}

// Posterior returns the posterior of all documents so far, without any q(z_n). It steps first for the documents since
// the last step, so that calling it shortens a batch. The error is that of Add, or wraps ErrEmpty if no document
// had a word.
func (s *CTMStream) Posterior() (*CTMPosterior, error) {
	if !slices.Contains(s.seen, true) {
		return nil, fmt.Errorf("pgsvi: no document of the stream has words: %w", ErrEmpty)
	}
	if s.st == nil { // too few to start from for good
		early := &CTMStream{m: s.m, rng: rand.New(rand.NewPCG(seed1, seed2)), seen: s.seen, n: s.n, buf: s.buf}
		if err := early.flush(); err != nil {
			return nil, err
		}
		return early.Posterior()
	}
	if len(s.buf) > 0 {
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
	p, err := s.st.m.Posterior(s.st)
	if err != nil {
		return nil, err
	}
	p.seen = slices.Clone(s.seen)
	return p, nil
}
