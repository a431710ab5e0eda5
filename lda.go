package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
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
	"gonum.org/v1/gonum/mathext"
)

// LDA is latent Dirichlet allocation, a topic model (Blei, Ng and Jordan, JMLR 2003). It has K
// topics over a vocabulary of V words:
//
//	β_k ~ Dirichlet(TopicPrior, …),   θ_n ~ Dirichlet(DocPrior, …)
//	each word of document n is v with probability Σ_k θ_nk β_kv
//
// It is an Objective over q(β) = Π_k Dirichlet(λ_k), with f from Conjugate and h the KL to the
// prior. The local variables of a document are q(θ_n) = Dirichlet(γ_n) and the topics φ_v of its
// words,
//
//	γ_k = DocPrior + Σ_v y_v φ_vk,   φ_vk ∝ exp(E[log θ_k] + E[log β_kv]),
//
// iterated to the optimum of the document's share of the ELBO.
//
// It is a Model whose terms are the documents. With a nil Solver it takes seven passes of
// stochastic variational inference (Hoffman, Blei and Bach, "Online learning for latent Dirichlet
// allocation", 2010) with mini-batches of 64 documents and the zero FractionStep. Then it uses
// coordinate ascent over all documents until Solver.Goal is met or its passes are used up: see Fit.
// Up to 64 documents, or with a Solver.BatchSize of Len, it takes coordinate ascent from the
// start; with another BatchSize it takes none.
//
// The ELBO is exact, without the multinomial coefficient, a constant. It is evaluated after each
// pass of coordinate ascent and at the end. An LDA is immutable and safe for concurrent use.
type LDA struct {
	docs  []topic.Doc
	terms int
	k     int
	vocab []string
	opt   LDAOptions
	prior *Exp // of the topics, one after the other
}

// LDAOptions are the options of an LDA. The zero value and a nil pointer mean the defaults.
type LDAOptions struct {
	// DocPrior is the parameter of the Dirichlet prior of a document, as a number of words for
	// each topic. Zero means 0.2.
	DocPrior float64
	// TopicPrior is the parameter of the Dirichlet prior of a topic, as a count for each word.
	// Zero means 0.3.
	TopicPrior float64
	// Start chooses the initial topics.
	Start TopicStart
	// Topics holds initial topics, if it is not nil: K×V counts, not negative, in addition to
	// those of the prior: λ = TopicPrior + Topics. It is copied.
	Topics mat.Matrix
	// MaxMemory is the number of bytes that the model may take: about 320 for each of K × V
	// numbers, and 3,200 for each word with StartAnchors. Zero means the limit described at
	// ErrMemory.
	MaxMemory int64 `json:"-"`
}

// What zero options of an LDA mean, and its constants. They were tried on AP, with 10 topics and
// 50, and NIPS, where priors of 0.5 are no better, at 50 topics by 0.08 nats worse. At 10 topics
// the held-out score of AP is the same within 0.01 nats for batches of 16 to 64, a DocPrior of 0.1
// to 0.5 and a tolerance of 0.001 to 0.1 words.
const (
	ldaDocPrior   = 0.2
	ldaTopicPrior = 0.3
	ldaBatch      = 64 // so many documents have about as much work as K × V numbers
	ldaPasses     = 8  // least, of a run without options
	// Passes over mini-batches. On AP with 10 topics, seven of them and one pass over all documents
	// reach an ELBO that is 280 nats higher than after ten passes over mini-batches, and predict as
	// well.
	ldaNoisyPasses = 7
	// distinct words of all documents, times topics and passes: some seconds at the most
	ldaWork         = 3e5
	topicMostPasses = 1000
	ldaMatrices     = 40 // of K × V numbers: states of q and of the prior, gradients
	ldaMostTokens   = 1e100
)

// NewLDA returns the model of the documents of c with the given number of topics. The documents
// are copied. A nil opt means the zero LDAOptions. Documents without words are allowed and have
// no effect.
//
// The error wraps
//   - ErrEmpty if there is no document, no word or fewer than two terms;
//   - ErrParam if topics < 1 or an option is out of range;
//   - ErrShape or ErrNotFinite if LDAOptions.Topics has another shape or is not finite;
//   - ErrMemory if terms and topics are too many for LDAOptions.MaxMemory.
//
// Otherwise it is that of Corpus.Validate.
func NewLDA(c *Corpus, topics int, opt *LDAOptions) (*LDA, error) {
	if c == nil || len(c.Docs) == 0 {
		return nil, fmt.Errorf("pgsvi: a corpus without documents: %w", ErrEmpty)
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
		return nil, fmt.Errorf("pgsvi: the counts of the corpus add up to %v: %w", n, ErrNotFinite)
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
			bad("LDAOptions.%s is %v; it must be positive, from %v to %v", p.name, *p.x, ldaLeast,
				1/ldaLeast)
		}
	}
	if o.Start < StartAuto || o.Start > StartRandom {
		bad("LDAOptions.Start is %v", o.Start)
	}
	if o.MaxMemory < 0 {
		bad("LDAOptions.MaxMemory is %d; it must not be negative", o.MaxMemory)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if terms < 2 {
		return nil, fmt.Errorf("pgsvi: a vocabulary of %d terms; topics need two: %w", terms,
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

// ldaLeast is the least parameter of a prior, and the reciprocal of the largest.
const ldaLeast = 1e-6

// setStart copies the counts to start from.
func (m *LDA) setStart() error {
	if given, err := givenOption("LDAOptions.Topics", m.opt.Topics); !given {
		return err
	}
	if r, c := m.opt.Topics.Dims(); r != m.k || c != m.terms {
		return fmt.Errorf("pgsvi: LDAOptions.Topics is %d×%d, want topics × terms, %d×%d: %w", r, c,
			m.k, m.terms, ErrShape)
	}
	t := mat.DenseCopyOf(m.opt.Topics)
	for k := range m.k {
		for v, x := range t.RawRowView(k) {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("pgsvi: LDAOptions.Topics(%d, %d) is %v: %w", k, v, x,
					ErrNotFinite)
			}
			if !(x >= 0 && x <= 1e100) {
				return fmt.Errorf("pgsvi: LDAOptions.Topics(%d, %d) is %v: %w", k, v, x, ErrParam)
			}
		}
	}
	m.opt.Topics = t
	return nil
}

// setPrior makes the prior of the topics.
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

// passes returns the most passes of a run without options.
func (m *LDA) passes() float64 { return passesFor(passWork(m.docs, m.k), ldaWork, ldaPasses) }

// passWork returns the work of a pass over docs: their distinct words, times topics.
func passWork(docs []topic.Doc, topics int) (work float64) {
	for _, d := range docs {
		work += float64(len(d.Words)) * float64(topics)
	}
	return work
}

// passesFor returns the most passes of a run without options: the least number, or more if they are
// not more work in all than given.
func passesFor(pass, all, least float64) float64 {
	return min(max(least, math.Floor(all/pass)), topicMostPasses)
}

// Local implements ConjugateModel, with μ = E[log β] topic by topic.
func (m *LDA) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	return m.engine().Local(dst, mu, m.docs[n], weight), nil
}

// engine returns the E-step of m.
func (m *LDA) engine() topic.Dirichlet {
	return topic.Dirichlet{K: m.k, Terms: m.terms, DocPrior: m.opt.DocPrior}
}

// shared implements sharedModel.
func (m *LDA) shared() {}

// digest shows d what m is made of.
func (m *LDA) digest(d *save.Digest) {
	d.Int(len(m.docs), m.terms, m.k)
	for _, doc := range m.docs {
		d.Int(doc.Words...)
		d.Float(doc.Counts...)
	}
	d.Float(m.opt.DocPrior, m.opt.TopicPrior)
}

// LDAPosterior is the approximate posterior of an LDA: q(β_k) = Dirichlet(λ_k) for each topic. It
// is immutable and safe for concurrent use.
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

// Fit runs s on the model; a nil s means the zero Solver. The posterior is that of the state
// reached, and is valid even with an error after the set-up. The errors are those of Solver.Run.
//
// A Solver.MaxPasses of zero means eight passes: seven over mini-batches and one over all
// documents. A corpus so small that passes take little time gets up to a thousand. For a larger one
// the status is therefore PassLimit: its topics predict as well as after longer runs, but its ELBO
// may be thousands of nats below a local maximum. Set MaxPasses to a few hundred to reach the
// maximum.
//
// Result.Gap estimates how many nats further passes would gain, and the run ends when it is at most
// Solver.Goal. It sums what topics and documents gain together in a quadratic model of the ELBO,
// from three gradients over all documents: see Conjugate. On AP and on generated corpora it was
// between 0.5 and 2 times what later passes gained in nine of ten cases, and seldom below a
// quarter. Gap is +Inf near a saddle, where the model has no maximum: two topics that are equal,
// for example. Nothing is proved, so GapBound is +Inf, and other maxima may be higher. Fit with
// several Solver.Src and keep the highest ELBO.
func (m *LDA) Fit(ctx context.Context, s *Solver) (*LDAPosterior, *Result, error) {
	return fitModel[*LDAPosterior](ctx, s, m)
}

// Posterior returns the posterior at st, a state of a run on an LDA. The error wraps ErrParam if
// st is not one, or has another number of topics or terms.
func (m *LDA) Posterior(st State) (*LDAPosterior, error) {
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

// Lambda returns a new K×V matrix with the parameters λ of the topics.
func (p *LDAPosterior) Lambda() *mat.Dense {
	return mat.NewDense(p.k, p.terms, slices.Clone(p.lambda))
}

// Topics returns E[β], a new K×V matrix: row k holds the probabilities of the words in topic k.
// It is an argument of TopTerms and TopWords.
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

// Infer returns the posterior of the topic proportions of a document, new or not, at the topics of
// p. A document without words has the prior, and the share 0 of the ELBO.
//
// The error wraps ErrNotFinite if the counts add up to more than 1e100. Corpus.Validate has
// the other errors.
func (p *LDAPosterior) Infer(d Document) (*LDADoc, error) {
	gamma, err := p.propagate(nil, d)
	if err != nil {
		return nil, err
	}
	elbo := p.engine().Infer(make([]float64, p.k), p.mu, topic.Doc(d))
	return &LDADoc{gamma, elbo, p, topic.Doc(d).Clone()}, nil
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
		return fmt.Errorf("has counts that add up to %v; divide them so that the sum is at most "+
			"%v: %w", n, ldaMostTokens, ErrNotFinite)
	}
	return nil
}

// LDADoc is the posterior of the topic proportions θ of a document at the topics E[β]. It is
// approximated by a Dirichlet(γ) from expectation propagation (T. Minka and J. Lafferty,
// Expectation-propagation for the generative aspect model, UAI 2002), which is close to the exact
// means and standard deviations. It is not the mean-field q(θ) that an LDA is fitted with, whose
// standard deviations are too small. An LDADoc is immutable and safe for concurrent use.
type LDADoc struct {
	gamma []float64
	elbo  float64
	of    *LDAPosterior // nil if the document has no words because its file had none
	doc   topic.Doc     // valid if of is not nil
}

// Gamma stores γ in dst, of length K; nil allocates. The mean proportion of topic k is γ_k/Σγ.
func (d *LDADoc) Gamma(dst []float64) []float64 {
	dst = dense.Dest(dst, len(d.gamma))
	copy(dst, d.gamma)
	return dst
}

// ELBO returns the document's share of the ELBO in nats, NaN if it was not evaluated. It is the
// share of the mean-field q(θ), which has another γ.
func (d *LDADoc) ELBO() float64 { return d.elbo }

// Rand stores a draw from Dirichlet(γ) in dst, of length K; nil allocates.
func (d *LDADoc) Rand(dst []float64, rng *rand.Rand) []float64 {
	dst = dense.Dest(dst, len(d.gamma))
	if len(dst) == 1 {
		dst[0] = 1
		return dst
	}
	stat := make([]float64, len(dst))
	expfam.DirichletFamily{K: len(dst)}.Rand(dst, stat, d.gamma, rng)
	return dst
}

// Proportions returns the means γ_k/Σγ of the topic proportions and, for each, the central interval
// that holds it with probability level in (0, 1). The intervals are quantiles of
//
//	p(θ_k) ∝ θ_k^(DocPrior−1) (1 − θ_k)^((K−1)·DocPrior−1) Π_v (θ_k β_kv + (1 − θ_k) m_kv)^y_v
//
// and m_kv averages the β_jv of the other topics (B. Cseke and T. Heskes, Approximate marginals in
// latent Gaussian models, JMLR 2011, the factorized correction). They are exact for two topics.
// Quantiles of Beta(γ_k, Σγ − γ_k) would cover too little, because that distribution has another
// shape. They are used only if the document comes from a file without its words; see
// LDAPosterior.WithDocs. Proportions panics if level is outside (0, 1).
func (d *LDADoc) Proportions(level float64) (mean, lo, hi []float64) {
	if !(level > 0 && level < 1) {
		panic(fmt.Sprintf("pgsvi: interval at level %v", level))
	}
	if d.of != nil {
		lo, hi = d.of.engine().Intervals(d.of.logs, d.doc, level)
		return d.means(nil), lo, hi
	}
	sum := floats.Sum(d.gamma)
	for _, g := range d.gamma {
		if g == sum { // one topic
			lo, hi = append(lo, 1), append(hi, 1)
			continue
		}
		lo = append(lo, mathext.InvRegIncBeta(g, sum-g, (1-level)/2))
		hi = append(hi, mathext.InvRegIncBeta(g, sum-g, (1+level)/2))
	}
	return d.means(nil), lo, hi
}

// means stores the means of the topic proportions in dst.
func (d *LDADoc) means(dst []float64) []float64 {
	dst = d.Gamma(dst)
	floats.Scale(1/floats.Sum(dst), dst)
	return dst
}

// ldaTrain are the training documents of a posterior, whose γ are made when they are asked for.
type ldaTrain struct {
	once  sync.Once
	docs  []topic.Doc // nil in a posterior from a file without them
	gamma []float64   // document by document
}

// trained returns γ of the training documents, one after the other.
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

// docBlock is the number of documents that are inferred at a time.
const docBlock = 16

// Len returns the number of training documents: 0 of a posterior from a file of before they were
// stored.
func (p *LDAPosterior) Len() int { return len(p.trained()) / p.k }

// Doc returns the posterior of the proportions of training document n. Its ELBO is NaN. It
// panics if there is no such document.
func (p *LDAPosterior) Doc(n int) *LDADoc {
	if n < 0 || n >= p.Len() {
		panic(fmt.Sprintf("pgsvi: document %d of %d", n, p.Len()))
	}
	d := &LDADoc{gamma: p.trained()[n*p.k : (n+1)*p.k : (n+1)*p.k], elbo: math.NaN()}
	if p.train.docs != nil {
		d.of, d.doc = p, p.train.docs[n]
	}
	return d
}

// engine returns the E-step of a document.
func (p *LDAPosterior) engine() topic.Dirichlet {
	return topic.Dirichlet{K: p.k, Terms: p.terms, DocPrior: p.docPrior}
}

// DocTopics returns the mean topic proportions E[θ] of the documents of c, new or not, or of the
// training documents if c is nil: a new matrix with a row of K numbers for each. It is an argument
// of WriteLDAvis. It is nil if there are no documents. The error wraps
// ErrShape if c has another number of terms. Infer has the other errors.
func (p *LDAPosterior) DocTopics(c *Corpus) (*mat.Dense, error) {
	train := func(dst []float64, n int) { p.Doc(n).means(dst) }
	return docTopics(c, p.terms, p.k, p.Len, train, func(dst []float64, d Document) error {
		gamma, err := p.propagate(nil, d)
		if err == nil {
			floats.ScaleTo(dst, 1/floats.Sum(gamma), gamma)
		}
		return err
	})
}

// Similar returns the indices of the n training documents whose mean topic proportions are nearest
// to those of d, which Infer finds, and their Hellinger distances √(½Σ_k (√p_k − √q_k)²), from 0,
// the same proportions, to 1, no topic in common. The nearest comes first; of fewer than n
// documents all are returned. The error wraps ErrParam if n is not positive, ErrEmpty if no
// training documents are stored, and is otherwise that of Infer.
func (p *LDAPosterior) Similar(d Document, n int) (index []int, distance []float64, err error) {
	return similarTo[*LDADoc](p, d, n)
}

// HeldOut returns the out-of-sample score on the documents of c, which should not be training
// data, by the protocol of CTMPosterior.HeldOut. One half y¹ of a document gives the mean-field
// q(θ) at the topics E[β], which predicts a little better than γ of Infer. Each token of the other
// half, y², is scored on its own,
//
//	−Σ_v y²_v log Σ_k E[θ_k] E[β_kv]
//
// with every topic smoothed, E[β] ← (1−s)E[β] + s/V. The expectation is exact, so that
// HeldOutOptions.Draws is not used. A nil opt means the zero HeldOutOptions.
//
// The error wraps
//   - ErrShape if c has another number of terms;
//   - ErrEmpty if it has no document;
//   - ErrParam if a count is not a whole number, an option is out of range, or ByWord is set,
//     which has no exact expectation.
//
// Otherwise it is that of Corpus.Validate.
func (p *LDAPosterior) HeldOut(c *Corpus, opt *HeldOutOptions) (*HeldOut, error) {
	o, err := heldOutOptions(opt, c, p.terms)
	if err != nil {
		return nil, err
	}
	if o.ByWord {
		return nil, fmt.Errorf("pgsvi: HeldOutOptions.ByWord of an LDA: %w", ErrParam)
	}
	h, errs := p.engine().HeldOut(topic.Scoring(o), plain(c.Docs), p.seen, p.lambda, p.logs)
	return (*HeldOut)(h), prefixedEach(errs)
}

// ldaFile is the file of an LDAPosterior.
var ldaFile = save.Kind{Name: "LDAPosterior", Version: 1}

// savedLDA is an LDAPosterior as JSON.
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

// WithDocs returns p, whose Save now stores the training documents too, as bags of words. Without
// WithDocs a file does not contain the data, and Proportions of a training document that was loaded
// has the intervals of Beta distributions, which are too narrow.
func (p *LDAPosterior) WithDocs() *LDAPosterior {
	q := *p
	q.filed = true
	return &q
}

// Save writes p with γ of the training documents. Load restores it to the same bits, except for
// intervals of these documents: see WithDocs. The error comes from w, or wraps ErrParam if a word
// of the vocabulary is not UTF-8, as JSON requires.
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
		return nil, fmt.Errorf(
			"%d topics and %d terms with %d, %d and %d elements in lambda, seen and vocab: %w", k,
			s.Terms, len(s.Lambda), len(s.Seen), len(s.Vocab), ErrShape)
	}
	if !(s.DocPrior >= ldaLeast && s.DocPrior <= 1/ldaLeast) {
		return nil, fmt.Errorf("the prior of a document is %v: %w", s.DocPrior, ErrParam)
	}
	p := &LDAPosterior{k: k, terms: s.Terms, vocab: s.Vocab, docPrior: s.DocPrior, lambda: s.Lambda,
		mu: make([]float64, len(s.Lambda)), seen: s.Seen, train: &ldaTrain{gamma: s.Docs}}
	if len(s.Docs)%k != 0 {
		return nil, fmt.Errorf("documents of %d numbers for %d topics: %w", len(s.Docs), k,
			ErrShape)
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
