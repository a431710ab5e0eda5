package pgsvi

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/topic"
	"gonum.org/v1/gonum/mat"
)

// NewCTMRounds returns rounds that fit a correlated topic model to documents on many machines, over
// a vocabulary of the given number of terms. A round is an E-step for every document and an M-step
// in the driver:
//
//	q(z_n) = argmax_q E_q[log p(y_n|z_n)] − KL(q‖N(μ, Σ))                of each document
//	β = argmax_β Σ_kv (S_kv + TopicPrior) log β_kv,   S_kv = Σ_n y_nv E[ρ_nvk]
//	μ, Σ = argmax_{μ,Σ} Σ_n −KL(q(z_n)‖N(μ, Σ)), with PseudoDocs more documents of q = N(0, I)
//
// with ρ_nvk ∝ β_kv e^{z_nk} (variational EM, in batches of all documents). In each round, a
// document starts from the prior and takes CTMOptions.FirstInner steps, as with Forget. Its draws
// depend only on its round, block and place. The start is a fit of the driver to a sample of at
// most 4096 documents.
//
// The ELBO of a round is the ELBO of all documents given the topics, μ and Σ of the round, which
// Posterior returns. It is an estimate if the ELBO of a CTM is one, and ELBOErr is then the
// standard error of its draws given the q(z_n) found. These q(z_n) also depend on draws, so the
// ELBO of later rounds fluctuates by a nat or two per document. There is no Gap or GapBound. Ten
// rounds are enough, because more rounds raise the ELBO but not the held-out probability. The
// posterior has no q(z_n) and no vocabulary.
//
// The state sent to the machines has K × terms + K² numbers, and a shard holds at most 25 bytes for
// each of them. See NewCTM for topics, opt and the errors. CTMOptions.Paper is an error. If the
// E-step of a document fails, Shard.Add returns an error that wraps ErrNotPosDef or ErrNotFinite.
func NewCTMRounds(terms, topics int, opt *CTMOptions) (*Rounds[Document, *CTMPosterior], error) {
	r, err := newCTMRounds(terms, topics, opt)
	if err != nil {
		return nil, err
	}
	return &Rounds[Document, *CTMPosterior]{r}, nil
}

// ctmModel is the name of a CTM in parts.
const ctmModel = "CTM"

// Constants of rounds over documents.
const (
	docsOfRounds  = 4096    // largest number of documents in the sample
	wordsOfRounds = 1 << 19 // largest number of distinct words in the sample, 8 MB
	keptOfSample  = 1 << 23 // largest number of numbers in the kept q(z_n) of the sample
	// ctmRoundMatrices is the memory in matrices of K × Terms numbers: two shards of 25 bytes per
	// number, three states, and a block.
	ctmRoundMatrices = 12
)

// ctmRounds is the engine of a Rounds of a CTM.
type ctmRounds struct {
	ctmAdder
	rounds.Ledger
	now   *topic.Fitted // state at which this round is computed; nil in the first round
	at    *topic.Fitted // state of the last round; nil before
	seen  []bool        // whether each term occurs
	most  int           // most documents in the sample
	print fingerprint
}

// newCTMRounds returns the engine before the first round.
func newCTMRounds(terms, topics int, opt *CTMOptions) (*ctmRounds, error) {
	m, err := newForgetful(terms, topics, opt)
	if err != nil {
		return nil, err
	}
	engine := m.engine()
	need := engine.Bytes(0, runtime.GOMAXPROCS(0)) + memory.Bytes(ctmRoundMatrices, terms,
		topics) + 8*(keptOfSample+4*wordsOfRounds)
	if m.opt.Topics == nil {
		need += topic.Start(m.opt.Start).Bytes(topics, terms)
	}
	err = checkMemory(m.opt.MaxMemory, need,
		fmt.Sprintf("rounds of a CTM of %d topics and %d terms", topics, terms),
		"use fewer topics or terms, or raise CTMOptions.MaxMemory")
	if err == nil && engine.SweepLen() > math.MaxInt32 {
		err = fmt.Errorf("pgsvi: a shard of %d topics and %d terms has more than %d numbers: %w",
			topics, terms, math.MaxInt32, ErrMemory)
	}
	if err != nil {
		return nil, err
	}
	return &ctmRounds{ctmAdder: ctmAdder{m: m}, most: docsOfRounds}, nil
}

// id returns the ID of the parts of this round.
func (r *ctmRounds) id() rounds.ID {
	model := r.print.of(func(d *save.Digest) {
		o := r.m.opt
		o.Topics, o.MaxMemory = nil, 0
		d.Text(fmt.Sprintf("%+v", o))
	})
	var states save.Digest
	if r.now != nil {
		states.Float(r.now.Beta...)
		states.Float(r.now.Mu...)
		states.Float(r.now.Sigma...)
	}
	shape := fmt.Sprintf("%d topics and %d terms", r.m.k, r.m.terms)
	return rounds.ID{Model: ctmModel, Shape: shape, Digest: model, Round: r.Round,
		States: states.Sum()}
}

// blank returns a part of this round without buffers.
func (r *ctmRounds) blank() *rounds.Part {
	p := &rounds.Part{ID: r.id(), Size: r.size(r.Round)}
	if r.Round == 0 {
		p.Docs = rounds.NewDocs(r.most, wordsOfRounds, r.m.terms)
	} else {
		p.Sums = &rounds.Sums{} // buffers follow later
	}
	return p
}

// shard implements roundsEngine.
func (r *ctmRounds) shard() *Shard[Document] {
	p := r.blank()
	p.Room()
	return &Shard[Document]{part: p, adder: &ctmAdder{m: r.m, at: r.now}}
}

// step implements roundsEngine.
func (r *ctmRounds) step(p *rounds.Part) (Iteration, error) {
	none := Iteration{K: max(0, r.Round-1), Evaluation: notEvaluated()}
	err := p.Like(r.blank())
	if err == nil {
		err = r.Accept(p)
	}
	if err != nil {
		return none, err
	}
	if r.Round == 0 {
		if r.now, err = r.start(p.Docs.All()); err == nil {
			r.Open(p)
		}
		return none, err
	}
	sums := make([]float64, p.Size)
	p.Sums.Value(sums)
	e := Evaluation{}
	e.ELBO, e.ELBOErr, e.Random = r.now.Value(sums)
	if math.IsNaN(e.ELBO) || math.IsInf(e.ELBO, 0) {
		return none, fmt.Errorf("the ELBO of round %d is %v: %w", r.Round, e.ELBO, ErrNotFinite)
	}
	next, err := r.now.Next(sums)
	if err != nil {
		return none, fmt.Errorf("round %d: %w", r.Round, err)
	}
	e.settle()
	r.seen, r.at, r.now = r.now.Seen(sums), r.now, next
	r.Round++
	it := Iteration{K: r.Round - 1, Passes: float64(r.Round - 1), Evaluation: e}
	it.Step = Step{Beta: math.Inf(1), GradMap: math.NaN(), ClosedForm: true}
	return it, nil
}

// start returns a fit of the sample. If the fit fails, start returns the last state of the fit, or
// its initial state.
func (r *ctmRounds) start(docs []topic.Doc) (*topic.Fitted, error) {
	if len(docs) == 0 {
		return nil, fmt.Errorf("no document has words: %w", ErrEmpty)
	}
	m := &CTM{docs: docs, terms: r.m.terms, k: r.m.k, opt: r.m.opt}
	m.opt.Forget = m.k*(m.k+3)/2 > keptOfSample/len(docs)
	var f *topic.Fitted
	if p, _, _ := m.Fit(context.Background(), nil); p != nil {
		f = p.fit
	} else {
		st, err := m.begin(context.Background(), nil, docs)
		if err != nil {
			return nil, sentinel.Bare(err)
		}
		f = st.Fitted()
	}
	return topic.NewFitted(r.m.engine(), f.Beta, f.Mu, f.Sigma, nil)
}

// posterior implements roundsEngine.
func (r *ctmRounds) posterior() (*CTMPosterior, error) {
	if r.at == nil {
		return nil, errNoRound
	}
	p := &CTMPosterior{opt: r.m.opt, fit: r.at, seen: slices.Clone(r.seen)}
	p.opt.Topics = nil
	return p, nil
}

// ctmAdder adds documents to the parts of a CTM.
type ctmAdder struct {
	m     *CTM          // without documents
	at    *topic.Fitted // nil in the first round
	sweep *topic.Sweep
}

// size returns the Size of a part of a round. It is the number of terms in the first round, and the
// number of sums in later rounds.
func (a *ctmAdder) size(round int) int {
	if round == 0 {
		return a.m.terms
	}
	engine := a.m.engine()
	return engine.SweepLen()
}

// add implements shardAdder.
func (a *ctmAdder) add(ctx context.Context, p *rounds.Part, block uint64,
	items iter.Seq2[Document, error]) error {
	if err := p.Begin(block); err != nil {
		return err
	}
	n, err := a.block(ctx, p, block, items)
	if err == nil {
		p.Items += n
		return nil
	}
	p.Break(block, sentinel.Bare(err))
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("canceled in block %d: %w", block, cause)
	}
	return fmt.Errorf("block %d: %w", block, sentinel.Bare(err))
}

// block adds the documents of a block and returns their number.
func (a *ctmAdder) block(ctx context.Context, p *rounds.Part, block uint64,
	items iter.Seq2[Document, error]) (n int, err error) {
	if a.at != nil {
		if a.sweep == nil {
			a.sweep = topic.NewSweep(a.at)
		}
		a.sweep.Reset()
	}
	draws := rounds.Hash(rounds.Hash(seed1, uint64(p.ID.Round)), block)
	for d, err := range items {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return n, err
		}
		if err := d.check(a.m.terms); err != nil {
			return n, fmt.Errorf("document %d %w", n, err)
		}
		if a.at == nil {
			p.Docs.Add(block, uint64(n), topic.Doc(d))
		} else if err := a.sweep.Add(topic.Doc(d), draws, uint64(n)); err != nil {
			return n, fmt.Errorf("document %d: %w", n, err)
		}
		n++
	}
	if a.at == nil || n == 0 {
		return n, nil
	}
	sums, err := a.sweep.Sums()
	if err == nil {
		p.Sums.Add(sums)
	}
	return n, err
}

// savedCTMRounds is the JSON form of the CTM in rounds and shards.
type savedCTMRounds struct {
	Terms     int                `json:"terms"`
	Topics    int                `json:"topics"`
	Options   CTMOptions         `json:"options"` // without Topics
	Start     save.List[float64] `json:"start,omitempty"`
	MaxMemory int64              `json:"maxMemory"`
}

// spec writes or reads the model, and the initial topics if start is set.
func (a *ctmAdder) spec(c *save.Coder, start bool) {
	var b []byte
	if !c.Reading() && c.Err() == nil {
		s := savedCTMRounds{Terms: a.m.terms, Topics: a.m.k, Options: a.m.opt,
			MaxMemory: a.m.opt.MaxMemory}
		if t, ok := s.Options.Topics.(*mat.Dense); ok && start {
			s.Start = t.RawMatrix().Data
		}
		s.Options.Topics = nil
		var err error
		if b, err = json.Marshal(s); err != nil {
			c.Fail(err)
			return
		}
	}
	if c.Bytes(&b); !c.Reading() {
		return
	}
	s := &savedCTMRounds{}
	if err := json.Unmarshal(b, s); err != nil {
		c.Fail(err)
		return
	}
	s.Options.Topics, s.Options.MaxMemory = nil, s.MaxMemory
	if n := len(s.Start); n > 0 {
		if c.Check(s.Topics > 0 && n%s.Topics == 0 && n/s.Topics == s.Terms, "start has %d numbers",
			n); c.Err() != nil {
			return
		}
		s.Options.Topics = mat.NewDense(s.Topics, s.Terms, s.Start)
	}
	r, err := newCTMRounds(s.Terms, s.Topics, &s.Options)
	if err != nil {
		c.Fail(err)
		return
	}
	*a = r.ctmAdder
}

// fitted writes or reads topics, μ and Σ.
func (a *ctmAdder) fitted(c *save.Coder, f **topic.Fitted) {
	var beta, mu, sigma []float64
	if !c.Reading() && *f != nil {
		beta, mu, sigma = (*f).Beta, (*f).Mu, (*f).Sigma
	}
	k := a.m.k
	c.Floats(k*a.m.terms, &beta)
	c.Floats(k, &mu)
	c.Floats(k*k, &sigma)
	if c.Check(beta != nil && mu != nil && sigma != nil,
		"a state without topics, mu or Sigma"); !c.Reading() {
		return
	}
	var err error
	if *f, err = topic.NewFitted(a.m.engine(), beta, mu, sigma, nil); err != nil {
		c.Fail(err)
	}
}

// state implements shardAdder.
func (a *ctmAdder) state(c *save.Coder, p *rounds.Part) {
	first := p.ID.Round == 0
	c.Check((p.Docs != nil) == first && (p.Sums != nil) != first && p.First == nil &&
		len(p.Looks) == 0, "a shard of a CTM of round %d with other sums", p.ID.Round)
	if a.spec(c, false); c.Err() != nil {
		return
	}
	if c.Check(p.Size == a.size(p.ID.Round), "a shard has %d numbers instead of %d", p.Size,
		a.size(p.ID.Round)); first || c.Err() != nil {
		return
	}
	a.fitted(c, &a.at)
}

// newAdder implements addedItem.
func (Document) newAdder(model string) shardAdder[Document] {
	if model == ctmModel {
		return &ctmAdder{}
	}
	return nil
}

// state implements roundsEngine.
func (r *ctmRounds) state(c *save.Coder) {
	r.spec(c, r.Round == 0)
	r.Ledger.State(c)
	c.Int(&r.most)
	c.Check(r.most > 0, "the sample has no documents")
	if r.Round == 0 || c.Err() != nil {
		return
	}
	r.fitted(c, &r.now)
	if r.Round == 1 || c.Err() != nil {
		return
	}
	r.fitted(c, &r.at)
	seen := make([]byte, len(r.seen))
	for i, s := range r.seen {
		if s {
			seen[i] = 1
		}
	}
	if c.Bytes(&seen); !c.Reading() {
		return
	}
	c.Check(len(seen) == r.m.terms, "seen has %d terms instead of %d", len(seen), r.m.terms)
	r.seen = make([]bool, len(seen))
	for i, s := range seen {
		c.Check(s <= 1, "seen of term %d is %d", i, s)
		r.seen[i] = s == 1
	}
}

// newRounds implements roundsPosterior.
func (*CTMPosterior) newRounds() roundsEngine[Document, *CTMPosterior] { return &ctmRounds{} }
