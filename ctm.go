package pgsvi

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/topic"
	"gonum.org/v1/gonum/mat"
)

// CTM is the correlated topic model of Blei and Lafferty ("A correlated topic model of Science",
// Annals of Applied Statistics 2007). Document n has topic logits z_n ~ N(μ, Σ) in R^K. Each of its
// words is word v with probability Σ_k softmax(z_n)_k β_kv, where the rows of β are the topics.
// Each document has its own q(z_n) = N(m_n, V_n). The fit maximizes the ELBO, in nats,
//
//	Σ_n E_q[Σ_v y_nv log Σ_k β_kv e^{z_nk} − W_n log Σ_k e^{z_nk}] − KL(q(z_n)‖N(μ, Σ))
//
// with y_nv the count of word v and W_n = Σ_v y_nv. Proximal-gradient steps update m_n and V_n. A
// stochastic M-step at the end of each mini-batch updates β, μ and Σ. The ELBO omits the
// multinomial coefficient, which is constant.
//
// A CTM is a Model whose terms are the documents. It is immutable and safe for concurrent use.
type CTM struct {
	docs  []topic.Doc
	terms int
	k     int
	vocab []string
	opt   CTMOptions
}

// CTMOptions holds the options of a CTM. The zero value and a nil pointer mean the defaults.
type CTMOptions struct {
	// Diagonal restricts the V_n to diagonal matrices. Σ stays full.
	Diagonal bool
	// Expectation selects how expectations over q(z_n) are computed.
	Expectation CTMExpectation
	// Samples is the number of points at which an expectation is evaluated. For CTMAntithetic and
	// CTMQuasi these are draws in antithetic pairs, so an odd number is rounded up. Zero then means
	// 4 and 16. For CTMQuadrature they are points in each of the K directions. Zero then means 20,
	// and Samples^K must be at most 100,000.
	Samples int
	// Inner is the number of proximal steps in each visit to a document, and FirstInner is the
	// number in its first visit. Zero means 3 and 10. More steps follow, up to 100 in all, as long
	// as a step moves q far. For CTMDelta, CTMLaplace and CTMMeanField, whose steps are not random,
	// zero means steps until q converges, at most 100. Both must be at most 10,000.
	Inner, FirstInner int
	// Forget discards q(z_n) after each visit. A document then starts from the prior in every visit
	// and takes FirstInner steps, and μ and Σ follow the batches as the topics do. Streams always
	// do this.
	Forget bool
	// Paper selects the topic-model experiment of Khan et al. (2016), with 2 documents per batch
	// and one step per visit with β = 0.001. Document n of the batch takes the step of the paper's
	// appendix,
	//
	//	argmin_{m,V} mᵀ∇_m f_n + tr(V ∇_V f_n) + KL(q‖N(μ, Σ)) + KL(q‖q_n)/β
	//
	// with f_n its −E_q[log-likelihood]. This step omits the factor N/M of the paper's mini-batch
	// gradient (N/M) Σ_n ∇f_n, because it is a step of the document's own ELBO. The step fails if
	// V⁻¹ is not positive definite. Without the factor, the experiment hardly moves q; see
	// PaperScaled.
	Paper bool
	// PaperScaled, together with Paper, includes the factor N/M, where M is the number of documents
	// in the batch. The objective is a sum over documents, and the batch estimates both of its
	// parts:
	//
	//	argmin_{m,V} (N/M) (mᵀ∇_m f_n + tr(V ∇_V f_n) + KL(q‖N(μ, Σ))) + KL(q‖q_n)/β
	//
	// This is the step of the document with βN/M in place of β. For such long steps, the V⁻¹ of the
	// appendix is not positive definite from the first batches on. Then q moves as without Paper,
	// and takes more steps per visit if a step moves it far.
	PaperScaled bool
	// Start selects the initial topics.
	Start TopicStart
	// Topics holds the initial topics, as K rows with positive sums and one column per term. NewCTM
	// copies it. Nil means that Start selects them.
	Topics mat.Matrix
	// TopicPrior is the count added to every word of every topic. It must not be negative. Zero
	// means 0.03.
	TopicPrior float64
	// PseudoDocs is the number of pseudo-documents with z ~ N(0, I) that shrink μ and Σ. It must
	// not be negative. Zero means 20. The logits of a document are identified only up to a common
	// shift, so that Σ would drift to rank K−1 without pseudo-documents.
	PseudoDocs float64
	// MaxMemory is the number of bytes that the model may use. It needs about 64 bytes for each of
	// K × Terms numbers, 3,200 per term with StartAnchors, 16 for each number of the q(z_n), and K²
	// numbers per core. Passes over all documents use up to 240 MB more. Zero means the limit
	// described at ErrMemory.
	MaxMemory int64 `json:"-"`
}

// engine returns the options of a model with the given numbers of topics and terms in the type of
// its engine.
func (o *CTMOptions) engine(topics, terms int) topic.Options {
	return topic.Options{
		K: topics, Terms: terms, Expectation: topic.Expectation(o.Expectation), Samples: o.Samples,
		Diagonal: o.Diagonal, Forget: o.Forget, Paper: o.Paper, Scaled: o.PaperScaled,
		Inner: o.Inner, FirstInner: o.FirstInner, Smooth: o.TopicPrior, Pseudo: o.PseudoDocs,
	}
}

// checkMemory returns an error if a model of the given numbers of documents, terms and topics
// exceeds the memory limit. The q of documents count unless they are forgotten.
func (o *CTMOptions) checkMemory(docs, terms, topics int) error {
	what := fmt.Sprintf("a CTM of %d topics and %d terms", topics, terms)
	if o.Forget {
		docs = 0
	}
	if docs > 0 {
		what += fmt.Sprintf(" with q(z) of %d documents", docs)
	}
	engine := o.engine(topics, terms)
	need := engine.Bytes(docs, runtime.GOMAXPROCS(0))
	if o.Topics == nil {
		need += topic.Start(o.Start).Bytes(topics, terms)
	}
	return checkMemory(o.MaxMemory, need, what,
		"use fewer topics or terms, CTMOptions.Forget or Diagonal, or raise CTMOptions.MaxMemory")
}

// CTMExpectation selects how E_q[f] of a document is computed, where
//
//	f(z) = Σ_v y_v log Σ_k β_kv e^{z_k} − W log Σ_k e^{z_k}
//
// is its log-likelihood. The E-step of a document solves
//
//	argmax_{m,V}  E_q[f] − KL(N(m, V)‖N(μ, Σ))
//
// Its steps have the same form for every choice.
type CTMExpectation int

const (
	// CTMAntithetic estimates E_q[f] by the mean over antithetic pairs of draws.
	CTMAntithetic CTMExpectation = iota
	// CTMQuasi estimates E_q[f] by quasi-Monte Carlo, with a randomly shifted Kronecker sequence in
	// antithetic pairs.
	CTMQuasi
	// CTMQuadrature computes E_q[f] by a product of Gauss–Hermite rules. Use it for few topics.
	CTMQuadrature
	// CTMDelta replaces E_q[f] by
	//
	//	f(m) − ½W tr(V ∇² log Σ_k e^{m_k})
	//
	// (delta-method variational inference; Wang and Blei, 2013). The normalizer is expanded to
	// second order about m, and the words are evaluated at m. The result approximates the ELBO but
	// is not a bound. If the words were also expanded, the objective would have no maximum in V.
	CTMDelta
	// CTMLaplace computes
	//
	//	m = argmax_z f(z) − ½(z − μ)ᵀΣ⁻¹(z − μ),   V⁻¹ = Σ⁻¹ − ∇²f(m)
	//
	// (Laplace variational inference; Wang and Blei, 2013). Its ELBO is the Laplace approximation
	// of the log evidence.
	CTMLaplace
	// CTMMeanField replaces E_q[f] by
	//
	//	Σ_v y_v log Σ_k β_kv e^{m_k} − W log Σ_k e^{m_k + V_kk/2}
	//
	// with V diagonal. It is the bound of Blei and Lafferty (2007) at its optimal φ, and a lower
	// bound of the ELBO.
	CTMMeanField
)

var (
	ctmExpectationNames = [...]string{"antithetic draws", "quasi-Monte-Carlo", "quadrature",
		"delta", "Laplace", "mean field"}
)

// String returns the name of the choice, such as "quadrature".
func (e CTMExpectation) String() string {
	return nameOf("CTMExpectation", ctmExpectationNames[:], int(e))
}

const (
	ctmBatch      = 16
	ctmPaperBatch = 2
	ctmPasses     = 10
	// ctmNoisyPasses is the number of passes over mini-batches. On AP with 10 topics, five such
	// passes and five over all documents reach an ELBO 2,500 nats above ten such passes, and
	// predict equally well.
	ctmNoisyPasses = 5
	ctmWork        = 1e7 // work of a run without options, like ldaWork; about a second
	ctmLargest     = 3e7 // most numbers that a pass over all documents may keep
	ctmGoal        = 0.1 // default goal, in nats
	ctmMostLag     = 4   // most steps between the ELBOs that the gap compares
	ctmDraws       = 4   // draws per document of a pass with work 1
	ctmSlower      = 10  // work of a pass with an expectation without draws
	ctmMaxNodes    = 100000
	ctmMaxHermite  = 1000 // most points in each direction
)

// validate returns an error that joins every invalid option. It wraps ErrParam, or ErrNotFinite for
// Topics.
func (o *CTMOptions) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs,
			fmt.Errorf("pgsvi: CTMOptions."+format+": %w", append(args, ErrParam)...))
	}
	for _, v := range []struct {
		name string
		n    int
	}{{"Samples", o.Samples}, {"Inner", o.Inner}, {"FirstInner", o.FirstInner}} {
		if v.n < 0 {
			bad("%s is %d; it must not be negative", v.name, v.n)
		} else if v.n > mostInner && v.name != "Samples" {
			bad("%s is %d; it must be at most %d", v.name, v.n, mostInner)
		}
	}
	for _, v := range []struct {
		name string
		x    float64
	}{{"TopicPrior", o.TopicPrior}, {"PseudoDocs", o.PseudoDocs}} {
		if !(v.x >= 0 && v.x <= 1e100) {
			bad("%s is %v; it must be in [0, 1e100]", v.name, v.x)
		}
	}
	if o.MaxMemory < 0 {
		bad("MaxMemory is %d; it must not be negative", o.MaxMemory)
	}
	if o.Expectation < CTMAntithetic || o.Expectation > CTMMeanField {
		bad("Expectation is %v", o.Expectation)
	}
	if o.Start < StartAuto || o.Start > StartRandom {
		bad("Start is %v", o.Start)
	}
	if o.PaperScaled && !o.Paper {
		bad("PaperScaled is set without Paper")
	}
	if o.Paper && o.Forget {
		bad("Forget is set with Paper, which takes one step per visit")
	}
	if o.Paper && !topic.Expectation(o.Expectation).MonteCarlo() {
		bad("Expectation is %v; Paper needs CTMAntithetic or CTMQuasi", o.Expectation)
	}
	if o.Samples > ctmMaxNodes || o.Expectation == CTMQuadrature && o.Samples > ctmMaxHermite {
		bad("Samples is %d; it must be at most %d, and %d for a quadrature", o.Samples, ctmMaxNodes,
			ctmMaxHermite)
	}
	return errors.Join(errs...)
}

// checkNodes returns an error if a quadrature has too many points for k topics.
func (o *CTMOptions) checkNodes(k int) error {
	engine := o.engine(k, 1)
	if n := engine.Points(); o.Expectation == CTMQuadrature && math.Pow(float64(n),
		float64(k)) > ctmMaxNodes {
		return fmt.Errorf("pgsvi: the quadrature has %d^%d points; use CTMQuasi for more than %d: "+
			"%w", n, k, ctmMaxNodes, ErrParam)
	}
	return nil
}

// NewCTM returns the model of the documents of c with the given number of topics. It copies the
// documents. A nil opt means the zero CTMOptions. Documents without words are allowed and have no
// effect.
//
// The error wraps
//   - ErrEmpty if there is no document, no word or no term;
//   - ErrParam if topics < 1 or an option is out of range;
//   - ErrShape or ErrNotFinite if CTMOptions.Topics has the wrong shape or is not finite;
//   - ErrMemory if documents, terms and topics exceed CTMOptions.MaxMemory.
//
// NewCTM also returns the errors of Corpus.Validate.
func NewCTM(c *Corpus, topics int, opt *CTMOptions) (*CTM, error) {
	if c == nil || len(c.Docs) == 0 {
		return nil, fmt.Errorf("pgsvi: the corpus has no documents: %w", ErrEmpty)
	}
	m, err := newCTM(c.Terms, topics, opt)
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := m.opt.checkMemory(len(c.Docs), c.Terms, topics); err != nil {
		return nil, err
	}
	m.vocab = slices.Clone(c.Vocab)
	m.docs = make([]topic.Doc, len(c.Docs))
	words := 0
	for n, d := range c.Docs {
		m.docs[n] = topic.Doc(d).Clone()
		words += len(d.Words)
	}
	if words == 0 {
		return nil, fmt.Errorf("pgsvi: the %d documents have no words: %w", len(c.Docs), ErrEmpty)
	}
	if n := c.Tokens(); n > 1e100 {
		return nil, fmt.Errorf("pgsvi: the counts of the corpus sum to %v; the sum must be at "+
			"most 1e100: %w", n, ErrNotFinite)
	}
	return m, nil
}

// newCTM returns a model without documents.
func newCTM(terms, topics int, opt *CTMOptions) (*CTM, error) {
	m := &CTM{terms: terms, k: topics}
	if opt != nil {
		m.opt = *opt
	}
	o := &m.opt
	if terms < 1 {
		return nil, fmt.Errorf("pgsvi: the vocabulary has %d terms; it needs at least one: %w",
			terms, ErrEmpty)
	}
	if topics < 1 {
		return nil, fmt.Errorf("pgsvi: the number of topics is %d; it must be positive: %w", topics,
			ErrParam)
	}
	if err := errors.Join(o.validate(), o.checkNodes(topics)); err != nil {
		return nil, err
	}
	if err := o.checkMemory(0, terms, topics); err != nil {
		return nil, err
	}
	if given, err := givenOption("CTMOptions.Topics", o.Topics); err != nil {
		return nil, err
	} else if given {
		if r, c := o.Topics.Dims(); r != topics || c != terms {
			return nil, fmt.Errorf(
				"pgsvi: CTMOptions.Topics is %d×%d; it must be topics × terms, %d×%d: %w", r, c,
				topics, terms, ErrShape)
		}
		t := mat.DenseCopyOf(o.Topics)
		for k := range topics {
			row := t.RawRowView(k)
			var sum float64
			for v, x := range row {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					return nil,
						fmt.Errorf("pgsvi: CTMOptions.Topics(%d, %d) is %v: %w", k, v, x,
							ErrNotFinite)
				}
				if x < 0 {
					return nil, fmt.Errorf("pgsvi: CTMOptions.Topics(%d, %d) is %v; it must not "+
						"be negative: %w", k, v, x, ErrParam)
				}
				sum += x
			}
			if !(sum > 0) || math.IsInf(sum, 0) {
				return nil, fmt.Errorf("pgsvi: CTMOptions.Topics: row %d sums to %v; the sum must "+
					"be positive and finite: %w", k, sum, ErrParam)
			}
		}
		o.Topics = t
	}
	return m, nil
}

// Len returns the number of documents.
func (m *CTM) Len() int { return len(m.docs) }

// CTMPosterior is the result of fitting a CTM. It holds the topics, N(μ, Σ), and q(z_n) = N(m_n,
// V_n) of every document. It is immutable and safe for concurrent use.
type CTMPosterior struct {
	vocab []string
	opt   CTMOptions
	fit   *topic.Fitted
	seen  []bool      // whether a term occurs in the training data
	docs  []topic.Doc // the training documents; nil for a stream, or a file without documents
	filed bool        // Save stores the documents
}

// String returns the sizes of p in one line, such as "CTM, 20 topics, 10473 terms, 2246 documents".
func (p *CTMPosterior) String() string {
	return topicsText("CTM", p.fit.K, p.fit.Terms, p.Len())
}

// Len returns the number of training documents with a stored q. It is 0 for a stream.
func (p *CTMPosterior) Len() int { return len(p.fit.Docs) }

// Vocab returns the words of the vocabulary, or nil if they are unknown.
func (p *CTMPosterior) Vocab() []string { return slices.Clone(p.vocab) }

// Topics returns β as a new K×Terms matrix, whose row k holds the probabilities of the words in
// topic k.
func (p *CTMPosterior) Topics() *mat.Dense {
	t := mat.NewDense(p.fit.K, p.fit.Terms, nil)
	for v := range p.fit.Terms {
		for k, b := range p.fit.Beta[v*p.fit.K : (v+1)*p.fit.K] {
			t.Set(k, v, b)
		}
	}
	return t
}

// Mu stores μ, the mean of the topic logits, in dst; nil allocates.
func (p *CTMPosterior) Mu(dst []float64) []float64 {
	dst = dense.Dest(dst, p.fit.K)
	copy(dst, p.fit.Mu)
	return dst
}

// Sigma returns Σ, the covariance of the topic logits, as a new K×K matrix. Logits are identified
// only up to a shift that all topics of a document share.
func (p *CTMPosterior) Sigma() *mat.SymDense { return dense.FullSym(p.fit.Sigma, p.fit.K) }

// Corr returns the correlation matrix of the topic logits, computed from Σ, as a new K×K matrix.
func (p *CTMPosterior) Corr() *mat.SymDense {
	c := p.Sigma()
	for i := range p.fit.K {
		for j := range i {
			c.SetSym(i, j, c.At(i, j)/math.Sqrt(p.fit.Sigma[i*p.fit.K+i]*p.fit.Sigma[j*p.fit.K+j]))
		}
	}
	for i := range p.fit.K {
		c.SetSym(i, i, 1)
	}
	return c
}

// Proportions returns the prior means and intervals of the topic proportions of a new document.
// They are computed by DocPosterior.Proportions with q = N(μ, Σ).
func (p *CTMPosterior) Proportions(level float64) (mean, lo, hi []float64) {
	checkLevel(level)
	return (&ctmDoc{q: p.fit.Prior()}).proportions(level)
}

// Doc returns q(z_n) of training document n. Its ELBO is NaN. Doc panics if q(z_n) is not stored.
func (p *CTMPosterior) Doc(n int) *DocPosterior { return &DocPosterior{ctm: p.doc(n)} }

func (p *CTMPosterior) doc(n int) *ctmDoc {
	if n < 0 || n >= len(p.fit.Docs) {
		panic(fmt.Sprintf("pgsvi: training document %d does not exist; there are %d", n,
			len(p.fit.Docs)))
	}
	d := &ctmDoc{q: p.fit.Doc(n)}
	if p.docs != nil {
		d.of, d.doc = p.fit, p.docs[n]
	}
	return d
}

// DocTopics returns the mean topic proportions of the documents of c, which it infers, or of the
// training documents if c is nil. The means are over 400 draws with a fixed seed. The result is a
// new matrix with a row of K numbers per document, or nil if there are no documents or stored q. It
// can be passed to WriteLDAvis. The error wraps ErrShape if c has another number of terms.
// Otherwise it is an error of Corpus.Validate or Infer.
func (p *CTMPosterior) DocTopics(c *Corpus) (*mat.Dense, error) {
	train := func(dst []float64, n int) { p.doc(n).means(dst) }
	return docTopics(c, p.fit.Terms, p.fit.K, p.Len, train, func(dst []float64, d Document) error {
		q, err := p.Infer(d)
		if err == nil {
			q.ctm.means(dst)
		}
		return err
	})
}

// Similar returns the indices of the n training documents whose mean topic proportions are nearest
// to the proportions of d, and their Hellinger distances. Its errors are as for
// LDAPosterior.Similar.
func (p *CTMPosterior) Similar(d Document, n int) (index []int, distance []float64, err error) {
	return similarTo(p, d, n)
}

// Infer returns q(z) of a new document given the topics, μ and Σ of p,
//
//	argmax_{m,V} E_q[Σ_v y_v log Σ_k β_kv e^{z_k} − W log Σ_k e^{z_k}] − KL(N(m, V)‖N(μ, Σ))
//
// computed by at most 100 proximal steps from the prior. Expectations over draws use the same
// points in every step, so that the steps converge and the result is reproducible. There are 32
// points, or CTMOptions.Samples if that is larger. A word that did not occur in the training data
// is improbable in every topic. The error wraps ErrNotPosDef, or is an error of Corpus.Validate.
func (p *CTMPosterior) Infer(d Document) (*DocPosterior, error) {
	if err := (&Corpus{Docs: []Document{d}, Terms: p.fit.Terms}).Validate(); err != nil {
		return nil, err
	}
	q, err := p.fit.Infer(topic.Doc(d))
	if err != nil {
		return nil, prefixed(err)
	}
	return &DocPosterior{ctm: &ctmDoc{q, p.fit, topic.Doc(d).Clone()}}, nil
}

// HeldOut returns the out-of-sample score on the documents of c, which should not be training data.
// The tokens of a document, in the order of its words and with repetition, go alternately to y¹ and
// y². Then q(z) is inferred from y¹, and each token of y² is scored separately,
//
//	−Σ_v y²_v log E_q[Σ_k β_kv softmax(z)_k]
//
// unless HeldOutOptions.ByWord is set. Every topic is smoothed, β ← (1−s)β + s/terms, so that words
// unseen in training also have a score. A nil opt means the zero HeldOutOptions.
//
// The error wraps
//   - ErrShape if c has another number of terms;
//   - ErrEmpty if c has no document;
//   - ErrParam if a count is not a whole number or an option is out of range;
//   - ErrMemory if there are too many draws.
//
// HeldOut also returns the errors of Corpus.Validate and Infer.
func (p *CTMPosterior) HeldOut(c *Corpus, opt *HeldOutOptions) (*HeldOut, error) {
	o, err := heldOutOptions(opt, c, p.fit.Terms)
	if err != nil {
		return nil, err
	}
	points := memory.Bytes(0.5, o.Draws+1, p.fit.K)
	if o.ByWord {
		points *= float64(1 + 2*o.Workers)
	}
	if err := checkMemory(p.opt.MaxMemory, points,
		fmt.Sprintf("a score by %d draws of %d topics", o.Draws, p.fit.K),
		"use fewer HeldOutOptions.Draws, or raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed1, seed2))
	h, errs := p.fit.HeldOut(topic.Scoring(o), plain(c.Docs), p.seen, rng)
	return (*HeldOut)(h), prefixedEach(errs)
}

// ctmFile is the file type of a CTMPosterior.
var ctmFile = save.Kind{Name: "CTMPosterior", Version: 1}

// savedCTM is the JSON form of a CTMPosterior.
type savedCTM struct {
	Topics      int                `json:"topics"`
	Terms       int                `json:"terms"`
	Vocab       save.List[string]  `json:"vocab,omitempty"`
	Expectation CTMExpectation     `json:"expectation"`
	Diagonal    bool               `json:"diagonal"`
	Samples     int                `json:"samples"`
	Beta        save.List[float64] `json:"beta"` // term by term
	Mu          save.List[float64] `json:"mu"`
	Sigma       save.List[float64] `json:"sigma"` // row by row
	Seen        save.List[bool]    `json:"seen"`
	// Docs holds, for each document, m and V⁻¹ row by row up to the diagonal, or m and the
	// diagonal.
	Docs save.List[[]float64] `json:"docs"`
	savedDocs
}

// WithDocs returns a copy of p whose Save also stores the training documents, as bags of words.
// Other files do not contain the data. After loading such a file, the Proportions of a training
// document use q, whose intervals are too narrow.
func (p *CTMPosterior) WithDocs() *CTMPosterior {
	q := *p
	q.filed = true
	return &q
}

// Save writes p. Load restores p bit for bit, except for the intervals of training documents; see
// WithDocs. The file holds a line that names its type, JSON, and a checksum. Save returns any error
// of w. The error wraps ErrParam if a word of the vocabulary is not UTF-8, which JSON requires.
func (p *CTMPosterior) Save(w io.Writer) error {
	if err := checkText("word", p.vocab); err != nil {
		return err
	}
	s := &savedCTM{Topics: p.fit.K, Terms: p.fit.Terms, Vocab: p.vocab,
		Expectation: p.opt.Expectation, Diagonal: p.opt.Diagonal, Samples: p.opt.Samples,
		Beta: p.fit.Beta, Mu: p.fit.Mu, Sigma: p.fit.Sigma, Seen: p.seen, Docs: p.fit.Docs}
	if p.filed {
		s.savedDocs = saveDocs(p.docs)
	}
	return saveTo(w, ctmFile, s)
}

func (*CTMPosterior) load(r io.Reader) (*CTMPosterior, error) {
	return loadFrom(r, ctmFile, (*savedCTM).load)
}

func (s *savedCTM) load() (*CTMPosterior, error) {
	k := s.Topics
	if k < 1 || s.Terms < 1 || len(s.Mu) != k || len(s.Sigma)%k != 0 || len(s.Sigma)/k != k ||
		len(s.Beta)%k != 0 || len(s.Beta)/k != s.Terms || len(s.Seen) != s.Terms ||
		s.Vocab != nil && len(s.Vocab) != s.Terms {
		return nil, fmt.Errorf(
			"%d topics and %d terms do not fit %d, %d, %d, %d and %d elements in beta, mu, sigma, "+
				"seen and vocab: %w", k, s.Terms, len(s.Beta), len(s.Mu), len(s.Sigma), len(s.Seen),
			len(s.Vocab), ErrShape)
	}
	opt := &CTMOptions{Expectation: s.Expectation, Diagonal: s.Diagonal, Samples: s.Samples}
	m, err := newCTM(s.Terms, k, opt)
	if err != nil {
		return nil, err
	}
	p := &CTMPosterior{vocab: s.Vocab, opt: m.opt, seen: s.Seen}
	p.fit, err = topic.NewFitted(m.opt.engine(k, s.Terms), s.Beta, s.Mu, s.Sigma, s.Docs)
	if err != nil {
		return nil, err
	}
	check := func(d topic.Doc) error { return d.Check(s.Terms) }
	if p.docs, err = s.docs(len(s.Docs), check); err != nil {
		return nil, err
	}
	p.filed = p.docs != nil
	return p, nil
}
