package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/mat"
)

// Fit runs s on the model; a nil s means a Solver without options. That is ten passes in batches of 16 documents,
// with the ELBO evaluated at the end alone: more passes raise the ELBO, but no longer the
// probability of words held out. A Solver.Converger makes it one evaluation a pass. A nil StepSize leaves the
// steps inside to the model; a StepSize is their β_k, and BatchSize and Sampler
// then are the Solver's own. The topics are those of the last steps, which are noisy:
// a Converger does not see a gap. The ELBO has several maxima: in about one run of ten on generated documents two topics shared a place, at an ELBO
// some hundred nats lower. Runs with other sources (Solver.Src) tell, and the highest ELBO is the one to keep. The posterior is that of the state reached and is valid
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

// CTMStream is the Stream of a correlated topic model. It keeps the topics, μ and Σ, and nothing of
// the documents: each is met with the prior, CTMOptions.FirstInner steps are taken, and the M-step at
// the end of every 16 documents averages over the past. The first 256 documents are kept until the
// topics start from them. The posterior has no q(z_n). Documents cannot be removed.
type CTMStream = Stream[Document, *CTMPosterior]

// ctmStream is the engine of a CTMStream.
type ctmStream struct {
	m     *CTM        // without documents
	st    *ctmStepper // nil until the topics start
	pcg   *rand.PCG
	buf   []Document // with words; since the last step
	seen  []bool     // whether a term has occurred
	docs  int        // in the posterior or in buf, those without words included
	items int        // handed over
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
	return &CTMStream{&ctmStream{m: m, pcg: rand.NewPCG(seed1, seed2), seen: make([]bool, terms)}}, nil
}

func (s *ctmStream) len() int { return s.docs }

func (s *ctmStream) given() int { return s.items }

func (s *ctmStream) add(d Document) error {
	s.items++
	if err := d.check(s.m.terms); err != nil {
		return fmt.Errorf("document %d of the stream %w", s.items-1, err)
	}
	s.docs++
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
func (s *ctmStream) flush() error {
	all := s.buf
	s.buf = nil
	model := *s.m
	model.docs = all
	rng := rand.New(s.pcg)
	if s.st == nil {
		s.st = newCTMStepper(&model, rng)
	}
	s.st.docs = float64(s.docs)
	s.st.m, s.st.visited = &model, make([]bool, len(all))
	index := make([]int, len(all))
	for i := range index {
		index[i] = i
	}
	for batch := range slices.Chunk(index, ctmBatch) {
		if _, err := s.st.Step(context.Background(), &Env{Rng: rng}, batch, math.Inf(1)); err != nil {
			lost := len(all) - batch[0]
			s.docs -= lost
			return fmt.Errorf("the last %d documents with words of the %d of the stream: %w", lost, s.items, err)
		}
	}
	return nil
}

func (s *ctmStream) removeAll(context.Context, iter.Seq2[Document, error]) error {
	return fmt.Errorf("pgsvi: documents cannot be removed from a CTMStream, which keeps nothing of them: %w", errors.ErrUnsupported)
}

// posterior steps for the documents in the buffer with a copy of the stream.
func (s *ctmStream) posterior() (*CTMPosterior, error) {
	if !slices.Contains(s.seen, true) {
		return nil, fmt.Errorf("no document of the stream has words: %w", ErrEmpty)
	}
	if len(s.buf) > 0 {
		pcg := *s.pcg
		ahead := &ctmStream{m: s.m, pcg: &pcg, buf: s.buf, seen: s.seen, docs: s.docs, items: s.items}
		if s.st != nil {
			ahead.st = s.st.clone()
		}
		if err := ahead.flush(); err != nil {
			return nil, err
		}
		s = ahead
	}
	p, err := s.st.m.Posterior(s.st)
	if err != nil {
		return nil, err
	}
	p.seen = slices.Clone(s.seen)
	return p, nil
}

// ctmStreamFile is the file of a CTMStream.
var ctmStreamFile = save.Kind{Name: "CTMStream", Version: 1}

// savedCTMStream is a ctmStream as JSON.
type savedCTMStream struct {
	Terms   int              `json:"terms"`
	Topics  int              `json:"topics"`
	Options CTMOptions       `json:"options"`         // but for Topics,
	Start   []float64        `json:"start,omitempty"` // which are here, row by row, unless State is
	Rng     []byte           `json:"rng"`             // a rand.PCG
	Docs    int              `json:"docs"`
	Items   int              `json:"items"`
	Seen    []bool           `json:"seen"`
	Buffer  []Document       `json:"buffer"`
	State   *savedCTMStepper `json:"state,omitempty"`
}

func (s *ctmStream) save(w io.Writer) error {
	rng, err := s.pcg.MarshalBinary()
	if err != nil {
		return prefixed(err)
	}
	saved := &savedCTMStream{Terms: s.m.terms, Topics: s.m.k, Options: s.m.opt, Rng: rng, Docs: s.docs, Items: s.items, Seen: s.seen, Buffer: s.buf}
	saved.Options.Topics = nil
	switch st := s.st; {
	case st != nil:
		saved.State = st.save()
	case s.m.opt.Topics != nil:
		saved.Start = mat.DenseCopyOf(s.m.opt.Topics).RawMatrix().Data
	}
	return saveTo(w, ctmStreamFile, saved)
}

// LoadCTMStream reads what Save of a CTMStream has written, which must be all of r. The stream
// goes on as the one that was saved would have, to the last bit. The error wraps ErrFile if r has no
// such file, or one that is damaged or of a newer release, or whose numbers make no stream. A
// failure of r is wrapped as it is.
func LoadCTMStream(r io.Reader) (*CTMStream, error) {
	return loadFrom(r, ctmStreamFile, (*savedCTMStream).load)
}

func (s *savedCTMStream) load() (*CTMStream, error) {
	k, terms := s.Topics, s.Terms
	if k < 1 || terms < 1 || len(s.Seen) != terms || s.Start != nil && (len(s.Start)%k != 0 || len(s.Start)/k != terms) ||
		s.Items < s.Docs || s.Docs < len(s.Buffer) {
		return nil, fmt.Errorf("%d topics and %d terms, %d known, with %d starting probabilities and %d documents, %d of them waiting, of %d: %w", k, terms, len(s.Seen), len(s.Start), s.Docs, len(s.Buffer), s.Items, ErrShape)
	}
	opt := s.Options
	if s.Start != nil {
		opt.Topics = mat.NewDense(k, terms, s.Start)
	}
	if !opt.Forget {
		return nil, fmt.Errorf("a stream that does not forget: %w", ErrParam)
	}
	m, err := newCTM(terms, k, &opt)
	if err != nil {
		return nil, err
	}
	t := &ctmStream{m: m, pcg: new(rand.PCG), buf: s.Buffer, seen: s.Seen, docs: s.Docs, items: s.Items}
	if err := t.pcg.UnmarshalBinary(s.Rng); err != nil {
		return nil, err
	}
	for i, d := range s.Buffer {
		if err := d.check(terms); err != nil {
			return nil, fmt.Errorf("waiting document %d %w", i, err)
		}
		if len(d.Words) == 0 {
			return nil, fmt.Errorf("waiting document %d has no words: %w", i, ErrEmpty)
		}
		for _, v := range d.Words {
			if !s.Seen[v] {
				return nil, fmt.Errorf("waiting document %d has word %d, which is not among those seen: %w", i, v, ErrParam)
			}
		}
	}
	if s.State != nil {
		t.st, err = s.State.load(m)
	} else if len(s.Buffer) == 0 && slices.Contains(s.Seen, true) {
		err = fmt.Errorf("words without documents: %w", ErrShape)
	}
	return &CTMStream{t}, err
}
