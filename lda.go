package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/topic"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// LDA is latent Dirichlet allocation, a topic model (Blei, Ng and Jordan, JMLR 2003). With K topics
// over a vocabulary of V words, the model is
//
//	β_k ~ Dirichlet(TopicPrior, …),   θ_n ~ Dirichlet(DocPrior, …)
//	each word of document n is v with probability Σ_k θ_nk β_kv
//
// It is an Objective over q(β) = Π_k Dirichlet(λ_k), where f comes from Conjugate and h is the KL
// to the prior. The local variables of a document are q(θ_n) = Dirichlet(γ_n) and the topics φ_v of
// its words,
//
//	γ_k = DocPrior + Σ_v y_v φ_vk,   φ_vk ∝ exp(E[log θ_k] + E[log β_kv]),
//
// iterated to the optimum of the document's contribution to the ELBO.
//
// It is a Model whose terms are the documents. With a nil Solver, it takes seven passes of
// stochastic variational inference (Hoffman, Blei and Bach, "Online learning for latent Dirichlet
// allocation", 2010) with mini-batches of 64 documents and the zero FractionStep. It then takes
// coordinate ascent steps over all documents until it reaches Solver.Goal or the limit on passes;
// see Fit. If there are at most 64 documents, or if Solver.BatchSize is Len, it takes only
// coordinate ascent steps. If BatchSize has any other value, it takes none.
//
// The ELBO is exact, except that it omits the multinomial coefficient, which is constant. It is
// evaluated after each pass of coordinate ascent and at the end. An LDA is immutable and safe for
// concurrent use.
type LDA struct {
	docs  []topic.Doc
	terms int
	k     int
	vocab []string
	opt   LDAOptions
	prior *Exp // prior of the topics, one after the other
}

// LDAOptions holds the options of an LDA. The zero value and a nil pointer mean the defaults.
type LDAOptions struct {
	// DocPrior is the parameter of the Dirichlet prior of a document, in words per topic. Zero
	// means 0.2.
	DocPrior float64
	// TopicPrior is the parameter of the Dirichlet prior of a topic, as a count per word. Zero
	// means 0.3.
	TopicPrior float64
	// Start chooses the initial topics.
	Start TopicStart
	// Topics holds initial counts, K×V, that must not be negative. They are added to the prior, so
	// that λ = TopicPrior + Topics initially. NewLDA copies them. Nil means that Start chooses the
	// initial topics.
	Topics mat.Matrix
	// MaxMemory is the number of bytes that the model may use. It needs about 320 bytes for each of
	// K × V numbers, and 3,200 per word with StartAnchors. Zero means the limit described at
	// ErrMemory.
	MaxMemory int64 `json:"-"`
}

// Defaults and constants of an LDA. They were tried on AP, with 10 and 50 topics, and on NIPS.
// Priors of 0.5 are no better, and worse by 0.08 nats at 50 topics. At 10 topics, the held-out
// score of AP is the same to 0.01 nats for batches of 16 to 64 documents, a DocPrior of 0.1 to 0.5,
// and a tolerance of 0.001 to 0.1 words.
const (
	ldaDocPrior   = 0.2
	ldaTopicPrior = 0.3
	ldaBatch      = 64 // a batch of 64 documents costs about as much as K × V numbers
	ldaPasses     = 8  // least number of passes of a run without options
	// ldaNoisyPasses is the number of passes over mini-batches. On AP with 10 topics, seven such
	// passes and one pass over all documents reach an ELBO 280 nats above ten passes over
	// mini-batches, and predict equally well.
	ldaNoisyPasses = 7
	// ldaWork is the work of a run without options: the distinct words of all documents, times
	// topics and passes. It takes a few seconds at most.
	ldaWork         = 3e5
	topicMostPasses = 1000
	ldaMatrices     = 40 // number of K × V matrices: states of q and of the prior, gradients
	ldaMostTokens   = 1e100
)

// NewLDA returns the model of the documents of c with the given number of topics. It copies the
// documents. A nil opt means the zero LDAOptions. Documents without words are allowed and have no
// effect.
//
// The error wraps
//   - ErrEmpty if there is no document, no word or fewer than two terms;
//   - ErrParam if topics < 1 or an option is out of range;
//   - ErrShape or ErrNotFinite if LDAOptions.Topics has the wrong shape or is not finite;
//   - ErrMemory if terms and topics exceed LDAOptions.MaxMemory.
//
// NewLDA also returns the errors of Corpus.Validate.
func NewLDA(c *Corpus, topics int, opt *LDAOptions) (*LDA, error) {
	if c == nil || len(c.Docs) == 0 {
		return nil, fmt.Errorf("pgsvi: the corpus has no documents: %w", ErrEmpty)
	}
	m, err := newLDA(c.Terms, topics, opt)
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if n := c.Tokens(); !(n > 0) {
		return nil, fmt.Errorf("pgsvi: the %d documents have no words: %w", len(c.Docs), ErrEmpty)
	} else if n > ldaMostTokens {
		return nil, fmt.Errorf("pgsvi: the counts of the corpus sum to %v; the sum must be at "+
			"most %v: %w", n, ldaMostTokens, ErrNotFinite)
	}
	m.vocab = slices.Clone(c.Vocab)
	for _, d := range c.Docs {
		m.docs = append(m.docs, topic.Doc(d).Clone())
	}
	return m, m.setPrior()
}

// newLDA returns a model without documents or prior.
func newLDA(terms, topics int, opt *LDAOptions) (*LDA, error) {
	m := &LDA{terms: terms, k: topics}
	if opt != nil {
		m.opt = *opt
	}
	o := &m.opt
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("pgsvi: "+format+": %w", append(args, ErrParam)...))
	}
	if topics < 1 {
		bad("%d topics", topics)
	}
	for _, p := range []struct {
		name string
		x    *float64
		zero float64
	}{{"DocPrior", &o.DocPrior, ldaDocPrior}, {"TopicPrior", &o.TopicPrior, ldaTopicPrior}} {
		*p.x = orDefault(*p.x, p.zero)
		if !(*p.x >= ldaLeast && *p.x <= 1/ldaLeast) {
			bad("LDAOptions.%s is %v; it must be in [%v, %v]", p.name, *p.x, ldaLeast, 1/ldaLeast)
		}
	}
	if o.Start < StartAuto || o.Start > StartRandom {
		bad("LDAOptions.Start is %v; it must be a TopicStart", o.Start)
	}
	if o.MaxMemory < 0 {
		bad("LDAOptions.MaxMemory is %d; it must not be negative", o.MaxMemory)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if terms < 2 {
		return nil, fmt.Errorf("pgsvi: the vocabulary has %d terms; topics need two: %w", terms,
			ErrEmpty)
	}
	need := memory.Bytes(ldaMatrices, terms, topics)
	if o.Topics == nil {
		need += topic.Start(o.Start).Bytes(topics, terms)
	}
	if err := checkMemory(o.MaxMemory, need,
		fmt.Sprintf("an LDA of %d topics and %d terms", topics, terms),
		"use fewer topics or terms, or raise LDAOptions.MaxMemory"); err != nil {
		return nil, err
	}
	return m, m.setStart()
}

// ldaLeast is the smallest parameter of a prior. Its reciprocal is the largest.
const ldaLeast = 1e-6

// setStart copies LDAOptions.Topics.
func (m *LDA) setStart() error {
	if given, err := givenOption("LDAOptions.Topics", m.opt.Topics); !given {
		return err
	}
	if r, c := m.opt.Topics.Dims(); r != m.k || c != m.terms {
		return fmt.Errorf("pgsvi: LDAOptions.Topics is %d×%d; it must be topics × terms, %d×%d: %w",
			r, c, m.k, m.terms, ErrShape)
	}
	t := mat.DenseCopyOf(m.opt.Topics)
	for k := range m.k {
		for v, x := range t.RawRowView(k) {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("pgsvi: LDAOptions.Topics(%d, %d) is %v: %w", k, v, x,
					ErrNotFinite)
			}
			if !(x >= 0 && x <= 1e100) {
				return fmt.Errorf("pgsvi: LDAOptions.Topics(%d, %d) is %v; it must be in [0, "+
					"1e100]: %w", k, v, x, ErrParam)
			}
		}
	}
	m.opt.Topics = t
	return nil
}

// setPrior sets the prior of the topics.
func (m *LDA) setPrior() (err error) {
	alpha := make([]float64, m.terms)
	floats.AddConst(m.opt.TopicPrior, alpha)
	one, err := NewDirichlet(alpha)
	if err != nil {
		return err
	}
	m.prior, err = ProductOf(slices.Repeat([]ExpFamily{one}, m.k)...)
	return err
}

// Len returns the number of documents.
func (m *LDA) Len() int { return len(m.docs) }

// NewStepper implements Model.
func (m *LDA) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	lambda := m.prior.Natural(nil)
	if t, ok := m.opt.Topics.(*mat.Dense); ok {
		for k := range m.k {
			floats.Add(lambda[k*m.terms:(k+1)*m.terms], t.RawRowView(k))
		}
	} else {
		rows := topic.Start(m.opt.Start).Topics(ctx, env.cores(), m.docs, m.terms, m.k,
			env.rng())
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		share := topic.Tokens(m.docs) / float64(m.k)
		for k, row := range rows {
			floats.AddScaled(lambda[k*m.terms:(k+1)*m.terms], share/floats.Sum(row), row)
		}
	}
	st, err := problem{F: Conjugate(m), H: KLTo(m.prior), Init: m.prior}.newStepperAt(d, lambda)
	if err != nil {
		return nil, err
	}
	st.plan = Plan{
		Batch: ldaBatch, Sampler: thenAll{ldaBatch, ldaNoisyPasses}, MaxPasses: m.passes(),
		EvalEvery: -1, evalAll: true,
	}
	st.whole = true
	return st, nil
}

// passes returns the limit on passes of a run without options.
func (m *LDA) passes() float64 { return passesFor(passWork(m.docs, m.k), ldaWork, ldaPasses) }

// passWork returns the work of a pass over docs: their distinct words, times topics.
func passWork(docs []topic.Doc, topics int) (work float64) {
	for _, d := range docs {
		work += float64(len(d.Words)) * float64(topics)
	}
	return work
}

// passesFor returns the limit on passes of a run without options. It is at least least, and more if
// the passes together take at most the work all.
func passesFor(pass, all, least float64) float64 {
	return min(max(least, math.Floor(all/pass)), topicMostPasses)
}

// Local implements ConjugateModel. The vector μ holds E[log β], topic by topic.
func (m *LDA) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	return m.engine().Local(dst, mu, m.docs[n], weight), nil
}

// engine returns the E-step of m.
func (m *LDA) engine() topic.Dirichlet {
	return topic.Dirichlet{K: m.k, Terms: m.terms, DocPrior: m.opt.DocPrior}
}

// shared implements sharedModel.
func (m *LDA) shared() {}

// digest adds the documents and options of m to d.
func (m *LDA) digest(d *save.Digest) {
	d.Int(len(m.docs), m.terms, m.k)
	for _, doc := range m.docs {
		d.Int(doc.Words...)
		d.Float(doc.Counts...)
	}
	d.Float(m.opt.DocPrior, m.opt.TopicPrior)
}

// LDAPosterior is the approximate posterior of an LDA. It is q(β_k) = Dirichlet(λ_k) for each
// topic. It is immutable and safe for concurrent use.
type LDAPosterior struct {
	k, terms int
	vocab    []string
	docPrior float64
	lambda   []float64 // topic by topic
	mu       []float64 // E[log β]
	logs     []float64 // log E[β]
	seen     []bool    // whether a term occurs in the training data
	train    *ldaTrain
	filed    bool // Save stores the documents
}

// Fit runs s on the model. A nil s means the zero Solver. It returns the posterior at the state
// reached, which is valid even if Fit returns an error after the set-up. Fit returns the errors of
// Solver.Run.
//
// A Solver.MaxPasses of zero means eight passes: seven over mini-batches and one over all
// documents. A small corpus, whose passes take little time, gets up to a thousand. The status of a
// fit to a larger corpus is therefore PassLimit. Its topics predict as well as after longer runs,
// but its ELBO may be thousands of nats below a local maximum. Set MaxPasses to a few hundred to
// reach the maximum.
//
// Result.Gap estimates how many nats further passes would gain. The run ends when it is at most
// Solver.Goal. It is the joint gain of topics and documents in a quadratic model of the ELBO, from
// three gradients over all documents; see Conjugate. On the AP corpus and on generated corpora, it
// was between 0.5 and 2 times the actual gain of later passes in nine of ten cases, and seldom
// below a quarter. Gap is +Inf near a saddle, such as two equal topics, because the quadratic model
// then has no maximum. The topic proportions of a document may have several optima given the topics.
// If steps jump between two optima, the status is Stalled and a warning reports it.
// Nothing is proved, so GapBound is +Inf, and other maxima may be higher. Fit
// with several Solver.Src and keep the fit with the highest ELBO.
func (m *LDA) Fit(ctx context.Context, s *Solver) (*LDAPosterior, *Result, error) {
	return fitModel[*LDAPosterior](ctx, s, m)
}

// Posterior returns the posterior at st, a state of a run on an LDA. The error wraps ErrParam if st
// is not such a state, or has another number of topics or terms.
func (m *LDA) Posterior(st Stepper) (*LDAPosterior, error) {
	q, err := posteriorOf(st, m.prior)
	if err != nil {
		return nil, err
	}
	p := &LDAPosterior{k: m.k, terms: m.terms, vocab: m.vocab, docPrior: m.opt.DocPrior,
		lambda: q.Natural(nil), mu: q.MeanParams(nil), seen: make([]bool, m.terms),
		train: &ldaTrain{docs: m.docs}}
	p.setLogs()
	for _, d := range m.docs {
		for _, v := range d.Words {
			p.seen[v] = true
		}
	}
	return p, nil
}

// Vocab returns the words of the vocabulary, or nil if they are unknown.
func (p *LDAPosterior) Vocab() []string { return slices.Clone(p.vocab) }

// Lambda returns the parameters λ of the topics as a new K×V matrix.
func (p *LDAPosterior) Lambda() *mat.Dense {
	return mat.NewDense(p.k, p.terms, slices.Clone(p.lambda))
}

// Topics returns E[β] as a new K×V matrix, whose row k holds the probabilities of the words in
// topic k. It can be passed to TopTerms and TopWords.
func (p *LDAPosterior) Topics() *mat.Dense {
	t := p.Lambda()
	for k := range p.k {
		row := t.RawRowView(k)
		floats.Scale(1/floats.Sum(row), row)
	}
	return t
}

// setLogs computes log E[β].
func (p *LDAPosterior) setLogs() {
	p.logs = make([]float64, len(p.lambda))
	for k := range p.k {
		row := p.lambda[k*p.terms : (k+1)*p.terms]
		total := math.Log(floats.Sum(row))
		for v, l := range row {
			p.logs[k*p.terms+v] = math.Log(l) - total
		}
	}
}

// Infer returns the posterior of the topic proportions of a document, new or not, given the topics
// of p. A document without words has the prior and contributes 0 to the ELBO.
//
// The error wraps ErrNotFinite if the counts sum to more than 1e100. Otherwise it is an error of
// Corpus.Validate.
func (p *LDAPosterior) Infer(d Document) (*DocPosterior, error) {
	gamma, err := p.propagate(nil, d)
	if err != nil {
		return nil, err
	}
	elbo := p.engine().Infer(make([]float64, p.k), p.mu, topic.Doc(d))
	return &DocPosterior{lda: &ldaDoc{gamma, elbo, p.intervalsOf(topic.Doc(d).Clone())}}, nil
}

// propagate stores γ of d in dst; nil allocates.
func (p *LDAPosterior) propagate(dst []float64, d Document) ([]float64, error) {
	if err := checkLDADoc(topic.Doc(d), p.terms); err != nil {
		return nil, fmt.Errorf("pgsvi: document %w", err)
	}
	dst = dense.Dest(dst, p.k)
	p.engine().Propagate(dst, p.logs, topic.Doc(d))
	return dst, nil
}

// checkLDADoc returns an error if d cannot be inferred.
func checkLDADoc(d topic.Doc, terms int) error {
	if err := d.Check(terms); err != nil {
		return err
	}
	if n := d.Tokens(); n > ldaMostTokens {
		return fmt.Errorf("has counts that sum to %v; divide them so that the sum is at most "+
			"%v: %w", n, ldaMostTokens, ErrNotFinite)
	}
	return nil
}

// ldaTrain holds the training documents of a posterior. Their γ are computed at the first use.
type ldaTrain struct {
	once  sync.Once
	docs  []topic.Doc // nil if the posterior comes from a file without documents
	gamma []float64   // document by document
}

// trained returns γ of the training documents, one document after the other.
func (p *LDAPosterior) trained() []float64 {
	p.train.once.Do(func() {
		docs, k := p.train.docs, p.k
		if p.train.gamma != nil || docs == nil {
			return
		}
		gamma := make([]float64, len(docs)*k)
		parallel.For(len(docs), docBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
			for n := lo; n < hi; n++ {
				p.engine().Propagate(gamma[n*k:(n+1)*k], p.logs, docs[n])
			}
		})
		p.train.gamma = gamma
	})
	return p.train.gamma
}

// docBlock is the number of documents that are inferred together.
const docBlock = 16

// String returns the sizes of p in one line, such as "LDA, 20 topics, 10473 terms, 2246 documents".
func (p *LDAPosterior) String() string { return topicsText("LDA", p.k, p.terms, p.Len()) }

// topicsText describes a posterior of topics.
func topicsText(model string, topics, terms, docs int) string {
	return fmt.Sprintf("%s, %s, %s, %s", model, countOf(topics, "topic"), countOf(terms, "term"),
		countOf(docs, "document"))
}

// Len returns the number of training documents. It is 0 if the posterior was loaded from a file
// that does not contain them.
func (p *LDAPosterior) Len() int { return len(p.trained()) / p.k }

// Doc returns the posterior of the proportions of training document n. Its ELBO is NaN. Doc panics
// if document n does not exist.
func (p *LDAPosterior) Doc(n int) *DocPosterior { return &DocPosterior{lda: p.doc(n)} }

func (p *LDAPosterior) doc(n int) *ldaDoc {
	if n < 0 || n >= p.Len() {
		panic(fmt.Sprintf("pgsvi: training document %d does not exist; there are %d", n, p.Len()))
	}
	d := &ldaDoc{gamma: p.trained()[n*p.k : (n+1)*p.k : (n+1)*p.k], elbo: math.NaN()}
	if p.train.docs != nil {
		d.intervals = p.intervalsOf(p.train.docs[n])
	}
	return d
}

// intervalsOf returns ldaDoc.intervals of the document d, which must not change.
func (p *LDAPosterior) intervalsOf(d topic.Doc) func(level float64) (lo, hi []float64) {
	return func(level float64) (lo, hi []float64) {
		return p.engine().Intervals(p.logs, d, level)
	}
}

// engine returns the E-step of a document.
func (p *LDAPosterior) engine() topic.Dirichlet {
	return topic.Dirichlet{K: p.k, Terms: p.terms, DocPrior: p.docPrior}
}

// DocTopics returns the mean topic proportions E[θ] of the documents of c, new or not, or of the
// training documents if c is nil. The result is a new matrix with a row of K numbers per document,
// or nil if there are no documents. It can be passed to WriteLDAvis. The error wraps ErrShape if c
// has another number of terms. Otherwise it is an error of Infer.
func (p *LDAPosterior) DocTopics(c *Corpus) (*mat.Dense, error) {
	train := func(dst []float64, n int) { p.doc(n).means(dst) }
	return docTopics(c, p.terms, p.k, p.Len, train, func(dst []float64, d Document) error {
		gamma, err := p.propagate(nil, d)
		if err == nil {
			floats.ScaleTo(dst, 1/floats.Sum(gamma), gamma)
		}
		return err
	})
}

// Similar returns the indices of the n training documents whose mean topic proportions are nearest
// to the proportions of d, which it infers. It also returns their Hellinger distances √(½Σ_k (√p_k
// − √q_k)²), from 0 for equal proportions to 1 for no topic in common. The nearest document comes
// first. If there are fewer than n documents, all are returned. The error wraps ErrParam if n is
// not positive, and ErrEmpty if no training documents are stored. Otherwise it is an error of
// Infer.
func (p *LDAPosterior) Similar(d Document, n int) (index []int, distance []float64, err error) {
	return similarTo(p, d, n)
}

// HeldOut returns the out-of-sample score on the documents of c, which should not be training data.
// It follows the protocol of CTMPosterior.HeldOut. One half y¹ of a document gives the mean-field
// q(θ) given the topics E[β], which predicts slightly better than the γ of Infer. Each token of the
// other half, y², is scored separately,
//
//	−Σ_v y²_v log Σ_k E[θ_k] E[β_kv]
//
// with every topic smoothed, E[β] ← (1−s)E[β] + s/V. The expectation is exact, so
// HeldOutOptions.Draws is ignored. A nil opt means the zero HeldOutOptions.
//
// The error wraps
//   - ErrShape if c has another number of terms;
//   - ErrEmpty if c has no document;
//   - ErrParam if a count is not a whole number, an option is out of range, or ByWord is set,
//     because its expectation has no exact form.
//
// HeldOut also returns the errors of Corpus.Validate.
func (p *LDAPosterior) HeldOut(c *Corpus, opt *HeldOutOptions) (*HeldOut, error) {
	o, err := heldOutOptions(opt, c, p.terms)
	if err != nil {
		return nil, err
	}
	if o.ByWord {
		return nil, fmt.Errorf("pgsvi: an LDA does not support HeldOutOptions.ByWord: %w", ErrParam)
	}
	h, errs := p.engine().HeldOut(topic.Scoring(o), plain(c.Docs), p.seen, p.lambda, p.logs)
	return (*HeldOut)(h), prefixedEach(errs)
}

// ldaFile is the file type of an LDAPosterior.
var ldaFile = save.Kind{Name: "LDAPosterior", Version: 1}

// savedLDA is the JSON form of an LDAPosterior.
type savedLDA struct {
	Topics   int                `json:"topics"`
	Terms    int                `json:"terms"`
	Vocab    save.List[string]  `json:"vocab,omitempty"`
	DocPrior float64            `json:"doc_prior"`
	Lambda   save.List[float64] `json:"lambda"` // topic by topic
	Seen     save.List[bool]    `json:"seen"`
	Docs     save.List[float64] `json:"docs,omitempty"` // γ, document by document
	savedDocs
}

// WithDocs returns a copy of p whose Save also stores the training documents, as bags of words.
// Other files do not contain the data. After loading such a file, the Proportions of a training
// document use Beta distributions, whose intervals are too narrow.
func (p *LDAPosterior) WithDocs() *LDAPosterior {
	q := *p
	q.filed = true
	return &q
}

// Save writes p with γ of the training documents. Load restores p bit for bit, except for the
// intervals of these documents; see WithDocs. Save returns any error of w. The error wraps ErrParam
// if a word of the vocabulary is not UTF-8, which JSON requires.
func (p *LDAPosterior) Save(w io.Writer) error {
	if err := checkText("word", p.vocab); err != nil {
		return err
	}
	s := &savedLDA{Topics: p.k, Terms: p.terms, Vocab: p.vocab, DocPrior: p.docPrior,
		Lambda: p.lambda, Seen: p.seen, Docs: p.trained()}
	if p.filed {
		s.savedDocs = saveDocs(p.train.docs)
	}
	return saveTo(w, ldaFile, s)
}

func (*LDAPosterior) load(r io.Reader) (*LDAPosterior, error) {
	return loadFrom(r, ldaFile, (*savedLDA).load)
}

func (s *savedLDA) load() (*LDAPosterior, error) {
	k := s.Topics
	if k < 1 || s.Terms < 2 || len(s.Lambda)%k != 0 || len(s.Lambda)/k != s.Terms ||
		len(s.Seen) != s.Terms || s.Vocab != nil && len(s.Vocab) != s.Terms {
		return nil, fmt.Errorf("%d topics and %d terms do not fit %d, %d and %d elements in "+
			"lambda, seen and vocab: %w", k, s.Terms, len(s.Lambda), len(s.Seen), len(s.Vocab),
			ErrShape)
	}
	if !(s.DocPrior >= ldaLeast && s.DocPrior <= 1/ldaLeast) {
		return nil, fmt.Errorf("the prior of a document is %v: %w", s.DocPrior, ErrParam)
	}
	p := &LDAPosterior{k: k, terms: s.Terms, vocab: s.Vocab, docPrior: s.DocPrior, lambda: s.Lambda,
		mu: make([]float64, len(s.Lambda)), seen: s.Seen, train: &ldaTrain{gamma: s.Docs}}
	if len(s.Docs)%k != 0 {
		return nil, fmt.Errorf("docs has %d numbers; they must be a multiple of %d topics: %w",
			len(s.Docs), k, ErrShape)
	}
	for i, g := range s.Docs {
		if !(g > 0 && g <= math.MaxFloat64) {
			return nil, fmt.Errorf("the parameter of document %d is %v: %w", i/k, g, ErrParam)
		}
	}
	var err error
	check := func(d topic.Doc) error { return checkLDADoc(d, s.Terms) }
	if p.train.docs, err = s.docs(len(s.Docs)/k, check); err != nil {
		return nil, err
	}
	p.filed = p.train.docs != nil
	f := expfam.DirichletFamily{K: s.Terms}
	for k := range k {
		row := p.lambda[k*s.Terms : (k+1)*s.Terms]
		if !f.Valid(row) {
			return nil, fmt.Errorf("the parameters of topic %d are not all positive and finite: %w",
				k, ErrParam)
		}
		f.Mean(p.mu[k*s.Terms:(k+1)*s.Terms], row)
	}
	p.setLogs()
	return p, nil
}
