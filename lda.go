package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// LDA is latent Dirichlet allocation (Blei, Ng and Jordan, JMLR 2003), with K topics over a vocabulary of V words:
//
//	β_k ~ Dirichlet(TopicPrior, …),   θ_n ~ Dirichlet(DocPrior, …),   each word of document n is v with probability Σ_k θ_nk β_kv
//
// It is an Objective over q(β) = Π_k Dirichlet(λ_k), with f that of Conjugate and h the KL to the prior. What is local to a document are
// q(θ_n) = Dirichlet(γ_n) and the topics φ_v of its words,
//
//	γ_k = DocPrior + Σ_v y_v φ_vk,   φ_vk ∝ exp(E[log θ_k] + E[log β_kv]),
//
// iterated to the optimum of its share of the ELBO. Over a mini-batch, of which sampling is by far the largest error, it is iterated until
// γ changes by less than a twentieth of a word in the mean.
//
// It is a Model whose terms are the documents. Without options the Solver takes ten passes of stochastic
// variational inference (Hoffman, Blei and Bach, "Online learning for latent Dirichlet allocation",
// 2010) over batches of 64 documents with the zero FractionStep. Where passes are left it goes on with
// coordinate ascent over all documents, until Solver.Goal is met: see Fit. The ELBO, which is exact,
// is evaluated after each pass of coordinate ascent and at the end. With a Solver.BatchSize of Len
// all passes are coordinate ascent, as they are for up to 64 documents; with another one,
// none is. The multinomial
// coefficient, a constant, is left out. An LDA is immutable and may be shared between goroutines.
type LDA struct {
	docs  []Document
	terms int
	k     int
	vocab []string
	opt   LDAOptions
	prior *Exp // of the topics, one after the other
}

// LDAOptions are the options of an LDA. The zero value and a nil pointer mean the defaults.
type LDAOptions struct {
	// DocPrior is the parameter of the Dirichlet prior of a document: how many words each topic has seen before. Zero means 0.2.
	DocPrior float64
	// TopicPrior is the parameter of the Dirichlet prior of a topic: how often each word has been seen before. Zero means 0.3.
	TopicPrior float64
	// Start is where the topics start from.
	Start TopicStart
	// Topics, if it is not nil, is where the topics start from: K×V counts, not negative, beyond those of the prior: λ = TopicPrior + Topics. It is copied.
	Topics mat.Matrix
	// MaxMemory is how many bytes the model may take: some 320 for each of K × V numbers, and 3,200 for each word
	// where StartAnchors is used. Zero means the limit that ErrMemory tells of.
	MaxMemory int64 `json:"-"`
}

// What zero options of an LDA mean, and its constants. They were tried on AP, with 10 topics and 50, and NIPS, where priors of 0.5 are no better, at 50
// topics by 0.08 nats worse. At 10 topics the held-out score of AP is the same within 0.01 nats for batches of 16 to 64, a DocPrior of 0.1 to 0.5 and
// a tolerance of 0.001 to 0.1 words.
const (
	ldaDocPrior   = 0.2
	ldaTopicPrior = 0.3
	ldaBatch      = 64  // so many documents have about as much work as K × V numbers
	ldaPasses     = 10  // over mini-batches
	ldaWork       = 3e5 // distinct words of all documents, times topics and passes: some seconds at the most
	ldaMostPasses = 1000
	ldaRough      = 0.05  // mean change of γ, in words, at which a document of a mini-batch is done
	ldaNear       = 1e-3  // mean change of γ from which on Anderson mixing takes over
	ldaExact      = 1e-11 // mean change of γ, relative to its mean, at which a document is done
	ldaSteps      = 1000  // most steps of a document
	ldaMatrices   = 40    // of K × V numbers: states of q and of the prior, gradients
	ldaTiny       = 1e-290
)

// NewLDA returns the model of the documents of c with the given number of topics. The documents are copied. A nil opt means the zero LDAOptions.
// Documents without words are allowed; nothing is learnt from them.
//
// It returns an error wrapping ErrEmpty if there is no document, no word or less than two terms; what Corpus.Validate returns;
// ErrParam if topics < 1 or an option is out of range; ErrShape or ErrNotFinite if LDAOptions.Topics has another shape or is not finite; ErrMemory
// if terms and topics are too many for LDAOptions.MaxMemory.
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
	} else if n > 1e100 {
		return nil, fmt.Errorf("pgsvi: the counts of the corpus add up to %v: %w", n, ErrNotFinite)
	}
	m.vocab = slices.Clone(c.Vocab)
	for _, d := range c.Docs {
		m.docs = append(m.docs, Document{slices.Clone(d.Words), slices.Clone(d.Counts)})
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
			bad("LDAOptions.%s is %v; it must be positive, from %v to %v", p.name, *p.x, ldaLeast, 1/ldaLeast)
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
		return nil, fmt.Errorf("pgsvi: a vocabulary of %d terms; topics need two: %w", terms, ErrEmpty)
	}
	need := bytesOf(ldaMatrices, terms, topics)
	if o.Topics == nil {
		need += o.Start.bytes(topics, terms)
	}
	if err := checkMemory(o.MaxMemory, need, fmt.Sprintf("an LDA of %d topics and %d terms", topics, terms),
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
		return fmt.Errorf("pgsvi: LDAOptions.Topics is %d×%d, want topics × terms, %d×%d: %w", r, c, m.k, m.terms, ErrShape)
	}
	t := mat.DenseCopyOf(m.opt.Topics)
	for k := range m.k {
		for v, x := range t.RawRowView(k) {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("pgsvi: LDAOptions.Topics(%d, %d) is %v: %w", k, v, x, ErrNotFinite)
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
	topic, err := NewDirichlet(alpha)
	if err != nil {
		return err
	}
	m.prior, err = ProductOf(slices.Repeat([]ExpFamily{topic}, m.k)...)
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
		rows := topicStarter{m.docs, m.terms, m.k}.topics(ctx, m.opt.Start, env.rng())
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		share := countTokens(m.docs) / float64(m.k)
		for k, row := range rows {
			floats.AddScaled(lambda[k*m.terms:(k+1)*m.terms], share/floats.Sum(row), row)
		}
	}
	st, err := problem{F: Conjugate(m), H: KLTo(m.prior), Init: m.prior}.newStepperAt(d, lambda)
	if err != nil {
		return nil, err
	}
	st.plan = Plan{
		Batch: ldaBatch, Sampler: thenAll{ldaBatch, ldaPasses}, MaxPasses: m.passes(), EvalEvery: -1, evalAll: true,
	}
	return st, nil
}

// passes returns the most passes of a run without options: those over mini-batches, and further
// ones for as long as they are little work, as they are for some ten thousand words.
func (m *LDA) passes() float64 {
	words := 0
	for _, d := range m.docs {
		words += len(d.Words)
	}
	return min(max(ldaPasses, math.Floor(ldaWork/(float64(words)*float64(m.k)))), ldaMostPasses)
}

// Local implements ConjugateModel, with μ = E[log β] topic by topic.
func (m *LDA) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	d := m.docs[n]
	if len(d.Words) == 0 {
		return 0, nil
	}
	w := ldaPool.Get().(*ldaDoc)
	defer ldaPool.Put(w)
	w.set(d, mu, m.k, m.opt.DocPrior)
	w.ascend(weight == 1)
	value := w.value()
	for k := range m.k {
		row, b := dst[k*m.terms:(k+1)*m.terms], w.topic(k)
		for i, v := range d.Words {
			row[v] += weight * w.theta[k] * b[i] * w.ratio[i]
		}
	}
	for i, v := range d.Words {
		if w.norm[i] < ldaTiny {
			for k, p := range w.lost(i) {
				dst[k*m.terms+v] += weight * d.Counts[i] * p
			}
		}
	}
	return value, nil
}

// shared implements sharedModel.
func (m *LDA) shared() {}

// ldaDoc is the local part of a document, at γ.
type ldaDoc struct {
	Document
	k, n        int
	alpha       float64
	logs, b     []float64 // E[log β_kv] and its exponential, less top: topic by topic
	top         []float64 // max_k E[log β_kv] for each word
	norm, ratio []float64 // Σ_k θ_k b_kv, and y_v/norm
	gamma, next []float64
	theta, log  []float64 // exp(E[log θ] − its largest) and E[log θ]
	few, weight []float64
	mix         accel.Anderson
}

var ldaPool = sync.Pool{New: func() any { return new(ldaDoc) }}

// topic returns b of topic k.
func (w *ldaDoc) topic(k int) []float64 { return w.b[k*w.n : (k+1)*w.n] }

// set makes w the local part of d at mu, before its first step: γ = DocPrior + W/K.
func (w *ldaDoc) set(d Document, mu []float64, k int, alpha float64) {
	w.Document, w.k, w.n, w.alpha = d, k, len(d.Words), alpha
	terms := len(mu) / k
	for _, s := range []*[]float64{&w.logs, &w.b} {
		*s = dense.Resize(*s, k*w.n)
	}
	for _, s := range []*[]float64{&w.top, &w.norm, &w.ratio} {
		*s = dense.Resize(*s, w.n)
	}
	for _, s := range []*[]float64{&w.gamma, &w.next, &w.theta, &w.log, &w.few, &w.weight} {
		*s = dense.Resize(*s, k)
	}
	for i := range w.top {
		w.top[i] = math.Inf(-1)
	}
	for k := range k {
		row, logs := mu[k*terms:(k+1)*terms], w.logs[k*w.n:(k+1)*w.n]
		for i, v := range d.Words {
			logs[i] = row[v]
			w.top[i] = max(w.top[i], logs[i])
		}
	}
	for k := range k {
		b := w.topic(k)
		for i, l := range w.logs[k*w.n : (k+1)*w.n] {
			b[i] = l - w.top[i]
		}
	}
	fma.Exp(w.b)
	share := alpha + d.Tokens()/float64(k)
	for j := range w.gamma {
		w.gamma[j] = share
	}
	w.mix.Reset()
}

// weigh computes what the words have at γ.
func (w *ldaDoc) weigh() {
	dirichletFamily{w.k}.Mean(w.log, w.gamma)
	largest := floats.Max(w.log)
	clear(w.norm)
	for k, l := range w.log {
		w.theta[k] = l - largest
	}
	fma.Exp(w.theta)
	for k := range w.theta {
		floats.AddScaled(w.norm, w.theta[k], w.topic(k))
	}
	for i, c := range w.Counts {
		w.ratio[i] = c / w.norm[i]
		if w.norm[i] < ldaTiny {
			w.ratio[i] = 0 // see lost
		}
	}
}

// lost returns φ of word i, of which no product θ_k b_kv is large enough to hold. It is valid until the next call.
func (w *ldaDoc) lost(i int) []float64 {
	for k, l := range w.log {
		w.few[k] = l + w.logs[k*w.n+i]
	}
	sum := floats.LogSumExp(w.few)
	for k, l := range w.few {
		w.few[k] = math.Exp(l - sum)
	}
	return w.few
}

// step stores DocPrior + Σ_v y_v φ_v in next, and returns the mean change from γ.
func (w *ldaDoc) step() (change float64) {
	w.weigh()
	for k := range w.next {
		w.next[k] = w.alpha + w.theta[k]*floats.Dot(w.ratio, w.topic(k))
	}
	for i, x := range w.norm {
		if x < ldaTiny {
			floats.AddScaled(w.next, w.Counts[i], w.lost(i))
		}
	}
	for k, g := range w.gamma {
		change += math.Abs(w.next[k]-g) / float64(w.k)
	}
	return change
}

// ascend takes steps until γ is at its optimum, or with exact false near it.
func (w *ldaDoc) ascend(exact bool) {
	tol := ldaRough
	if exact {
		tol = ldaExact * floats.Sum(w.gamma) / float64(w.k)
	}
	last := math.Inf(1)
	for range ldaSteps {
		change := w.step()
		if mixed := exact && change < ldaNear && change > tol; mixed {
			if change > last {
				w.mix.Reset()
			}
			x, r := w.mix.Next(w.k, false)
			for k, g := range w.gamma {
				x[k], r[k], w.weight[k] = math.Log(g), math.Log(w.next[k]/g), g
			}
			if w.mix.Mix(w.few, w.weight) {
				for k, l := range w.few {
					w.next[k] = math.Exp(l)
				}
			}
		}
		w.gamma, w.next = w.next, w.gamma
		if change <= tol {
			break
		}
		last = change
	}
	w.weigh()
}

// value returns Σ_v y_v log Σ_k exp(E[log θ_k] + E[log β_kv]) − KL(q(θ)‖p(θ)).
func (w *ldaDoc) value() float64 {
	prior := w.next
	for k := range prior {
		prior[k] = w.alpha
	}
	v, largest := -dirichletFamily{w.k}.divergence(w.gamma, prior), floats.Max(w.log)
	for i, c := range w.Counts {
		if w.norm[i] >= ldaTiny {
			v += c * (math.Log(w.norm[i]) + largest + w.top[i])
			continue
		}
		for k, l := range w.log {
			w.few[k] = l + w.logs[k*w.n+i]
		}
		v += c * floats.LogSumExp(w.few)
	}
	return v
}

// digest shows d what m is made of.
func (m *LDA) digest(d *save.Digest) {
	d.Int(len(m.docs), m.terms, m.k)
	for _, doc := range m.docs {
		d.Int(doc.Words...)
		d.Float(doc.Counts...)
	}
	d.Float(m.opt.DocPrior, m.opt.TopicPrior)
}
