package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// CTM is the correlated topic model of Blei and Lafferty ("A correlated topic model
// of Science", Annals of Applied Statistics 2007). Document n has topic logits
// z_n ~ N(μ, Σ) in R^K. Each of its words is word v with probability
// Σ_k softmax(z_n)_k β_kv; the rows of β are the topics. With q(z_n) = N(m_n, V_n) for
// each document the model maximises the ELBO, in nats,
//
//	Σ_n E_q[Σ_v y_nv log Σ_k β_kv e^{z_nk} − W_n log Σ_k e^{z_nk}] − KL(q(z_n)‖N(μ, Σ))
//
// where y_nv counts word v and W_n = Σ_v y_nv. Proximal-gradient steps move m_n and V_n; a
// stochastic M-step at the end of each mini-batch moves β, μ and Σ. The multinomial
// coefficient, a constant, is left out.
//
// It is a Model whose terms are the documents. A CTM is immutable and may be shared between
// goroutines.
type CTM struct {
	docs  []Document
	terms int
	k     int
	vocab []string
	opt   CTMOptions
}

// CTMOptions are the options of a CTM. The zero value and a nil pointer mean the
// defaults, which worked on every corpus that was tried.
type CTMOptions struct {
	// Diagonal restricts the V_n to diagonal matrices. Σ stays full.
	Diagonal bool
	// Expectation is how expectations over q(z_n) are taken.
	Expectation CTMExpectation
	// Samples is the number of points at which an expectation is evaluated: draws,
	// in antithetic pairs (an odd number is rounded up), for CTMAntithetic and
	// CTMQuasi, where zero means 4 and 16; for CTMQuadrature points in each of the K
	// directions, where zero means 20 and Samples^K may be at most 100,000.
	Samples int
	// Inner is the number of proximal steps at a visit of a document, FirstInner that at
	// its first visit. While a step still moves q far, further ones follow, up to 100 in all.
	// Zero means 3 and 10. For CTMDelta, CTMLaplace and CTMMeanField, whose steps are not
	// random, zero means steps until q settles, at most 100.
	Inner, FirstInner int
	// Forget keeps no q(z_n). A document starts from the prior at every visit and takes
	// FirstInner steps, and μ and Σ follow the batches as the topics do. A CTMStream works so.
	Forget bool
	// Paper selects the experiment of Khan et al. (2016) on topic models: 2 documents a batch,
	// one step a visit with β = 0.001. Document n of the batch takes the step of the paper's
	// appendix,
	//
	//	argmin_{m,V} mᵀ∇_m f_n + tr(V ∇_V f_n) + KL(q‖N(μ, Σ)) + KL(q‖q_n)/β
	//
	// with f_n its −E_q[log-likelihood], without the factor N/M of the paper's mini-batch
	// gradient (N/M) Σ_n ∇f_n: the step is that of the document's own ELBO. V⁻¹ need not stay
	// positive definite; where it does not, the step fails. So read, the experiment hardly
	// moves q: see PaperScaled.
	Paper bool
	// PaperScaled, with Paper, reads the experiment with the factor N/M, M being the number
	// of documents in the batch. The objective is a sum over documents, and the batch
	// estimates both of its parts:
	//
	//	argmin_{m,V} (N/M) (mᵀ∇_m f_n + tr(V ∇_V f_n) + KL(q‖N(μ, Σ))) + KL(q‖q_n)/β
	//
	// which is the step of the document with βN/M in place of β. At such lengths V⁻¹ as the
	// appendix has it is not positive definite from the first batches on, so that q moves as
	// it does without Paper, and takes further steps at a visit where one moves it far.
	PaperScaled bool
	// Start is where the topics start from.
	Start TopicStart
	// Topics, if it is not nil, is where the topics start from: K rows that sum to
	// any positive number, one column a term. It is copied.
	Topics mat.Matrix
	// TopicPrior is the count added to every word of every topic. Zero means 0.03; it
	// must not be negative.
	TopicPrior float64
	// PseudoDocs is the number of imagined documents with z ~ N(0, I) that shrink μ
	// and Σ. The logits of a document are identified only up to a common shift, so that
	// without such documents Σ drifts to rank K−1. Zero means 20; it must not be negative.
	PseudoDocs float64
	// MaxMemory is how many bytes the model may take: some 64 for each of K × Terms numbers, 3,200 for each term
	// where StartAnchors is used, 16 for each number of the q(z_n), and what K² numbers take on every core. Zero
	// means the limit that ErrMemory tells of.
	MaxMemory int64 `json:"-"`
}

// What a CTM has at its most, in vectors and matrices: of K × Terms the topics, their statistics and where they start
// from; of K² what belongs to a document that is under way, in each of the
// workers; and the m_n and V_n⁻¹, of the model and of its posterior.
const (
	ctmTopicMatrices = 8
	ctmWorkMatrices  = 24
	ctmStates        = 2
)

// checkMemory returns an error if a model of so many documents, whose q are kept unless they are forgotten, terms and
// topics takes more memory than it may.
func (o *CTMOptions) checkMemory(docs, terms, topics int) error {
	cores := float64(runtime.GOMAXPROCS(0))
	need := bytesOf(ctmTopicMatrices, terms, topics) + cores*(bytesOf(ctmWorkMatrices, topics, topics)+bytesOf(2, o.samples(), topics))
	if o.Topics == nil {
		need += o.Start.bytes(topics, terms)
	}
	what := fmt.Sprintf("a CTM of %d topics and %d terms", topics, terms)
	if docs > 0 && !o.Forget {
		state := float64(topics) * 2
		if !o.diagonal() {
			state = float64(topics) * (float64(topics) + 3) / 2
		}
		need += 8 * ctmStates * state * float64(docs)
		what += fmt.Sprintf(" with q(z) of %d documents", docs)
	}
	return checkMemory(o.MaxMemory, need, what, "use fewer topics or terms, CTMOptions.Forget or Diagonal, or raise CTMOptions.MaxMemory")
}

// CTMExpectation is how E_q[f] of a document is taken, where
//
//	f(z) = Σ_v y_v log Σ_k β_kv e^{z_k} − W log Σ_k e^{z_k}
//
// is its log-likelihood. The E-step of a document is
//
//	argmax_{m,V}  E_q[f] − KL(N(m, V)‖N(μ, Σ))
//
// and the steps towards it have the same form whatever stands for E_q[f].
type CTMExpectation int

const (
	// CTMAntithetic estimates E_q[f] by the mean over antithetic pairs of draws.
	CTMAntithetic CTMExpectation = iota
	// CTMQuasi estimates E_q[f] by quasi-Monte Carlo: a Kronecker sequence with a random
	// shift, in antithetic pairs.
	CTMQuasi
	// CTMQuadrature takes E_q[f] by a product of Gauss–Hermite rules. It is for few topics.
	CTMQuadrature
	// CTMDelta puts
	//
	//	f(m) − ½W tr(V ∇² log Σ_k e^{m_k})
	//
	// in place of E_q[f]: the normaliser to second order about m, the words at m
	// (delta-method variational inference; Wang and Blei, 2013). The result
	// approximates the ELBO and is no bound. With the words to second order, too, the
	// objective has no maximum in V.
	CTMDelta
	// CTMLaplace takes
	//
	//	m = argmax_z f(z) − ½(z − μ)ᵀΣ⁻¹(z − μ),   V⁻¹ = Σ⁻¹ − ∇²f(m)
	//
	// (Laplace variational inference; Wang and Blei, 2013). Its ELBO is the Laplace
	// approximation of the log evidence.
	CTMLaplace
	// CTMMeanField puts
	//
	//	Σ_v y_v log Σ_k β_kv e^{m_k} − W log Σ_k e^{m_k + V_kk/2}
	//
	// in place of E_q[f], with V diagonal. It is the bound of Blei and Lafferty (2007) at its
	// optimal φ, and a lower bound of the ELBO.
	CTMMeanField
)

var (
	ctmExpectationNames = [...]string{"antithetic draws", "quasi-Monte-Carlo", "quadrature", "delta", "Laplace", "mean field"}
)

// String returns the name in words.
func (e CTMExpectation) String() string {
	return nameOf("CTMExpectation", ctmExpectationNames[:], int(e))
}

// monteCarlo reports whether the expectation is over points drawn from q.
func (e CTMExpectation) monteCarlo() bool { return e <= CTMQuadrature }

// What zero options mean. The numbers were tuned on AP and NIPS.
const (
	ctmBatch      = 16
	ctmPasses     = 10
	ctmSamples    = 4
	ctmQuasi      = 16
	ctmHermite    = 20
	ctmMaxNodes   = 100000
	ctmMaxHermite = 1000 // in each direction
	ctmInner      = 3
	ctmFirstInner = 10
	ctmSettle     = 100 // most steps of a visit
	ctmRestless   = 0.2 // a move of q, for each topic, that calls for another step
	ctmShorten    = 0.7 // factor of the length of the next step after one that went too far
	ctmLengthen   = 1.1 // the same after any other step
	ctmShortest   = 0.1 // least length, as a fraction of that of the visit
	ctmStride     = 2   // logits that a Newton step of m may move: e² of a topic
	ctmLeastPart  = 0.1 // part of the curvature of words below which a step does without
	ctmLeastRatio = 0.5 // of two moves of q, for what is left to gain: that of the step length β = 1
	ctmMostRatio  = 0.999
	ctmDelay      = 10  // with ctmDecay: M-step t has the weight ρ_t = (10 + t)^−0.7
	ctmDecay      = 0.7 // between ½ and 1, for which the M-steps converge (Hoffman et al., 2013)
	ctmTopicPrior = 0.03
	ctmPseudoDocs = 20
	ctmBeta       = 1.0
	ctmPaperBatch = 2
	ctmPaperBeta  = 0.001
)

// validate reports every invalid option at once, wrapping ErrParam, or ErrNotFinite for Topics.
func (o *CTMOptions) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("pgsvi: CTMOptions."+format+": %w", append(args, ErrParam)...))
	}
	for _, v := range []struct {
		name string
		n    int
	}{{"Samples", o.Samples}, {"Inner", o.Inner}, {"FirstInner", o.FirstInner}} {
		if v.n < 0 {
			bad("%s is %d; it must not be negative", v.name, v.n)
		}
	}
	for _, v := range []struct {
		name string
		x    float64
	}{{"TopicPrior", o.TopicPrior}, {"PseudoDocs", o.PseudoDocs}} {
		if !(v.x >= 0 && v.x <= 1e100) {
			bad("%s is %v; it must not be negative, nor above 1e100", v.name, v.x)
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
		bad("PaperScaled is without Paper")
	}
	if o.Paper && o.Forget {
		bad("Paper takes one step a visit and cannot Forget")
	}
	if o.Paper && !o.Expectation.monteCarlo() {
		bad("Paper is of expectations by draws, not of %v", o.Expectation)
	}
	if o.Samples > ctmMaxNodes || o.Expectation == CTMQuadrature && o.Samples > ctmMaxHermite {
		bad("Samples is %d; at most %d, and %d for a quadrature", o.Samples, ctmMaxNodes, ctmMaxHermite)
	}
	return errors.Join(errs...)
}

// checkNodes returns an error if a quadrature has too many points for k topics.
func (o *CTMOptions) checkNodes(k int) error {
	if n := o.samples(); o.Expectation == CTMQuadrature && math.Pow(float64(n), float64(k)) > ctmMaxNodes {
		return fmt.Errorf("pgsvi: a quadrature of %d^%d points, at most %d; use CTMQuasi: %w", n, k, ctmMaxNodes, ErrParam)
	}
	return nil
}

// samples returns the number that Samples means.
func (o *CTMOptions) samples() int {
	n := o.Samples
	switch {
	case o.Expectation == CTMQuadrature && n == 0:
		return ctmHermite
	case o.Expectation == CTMQuadrature:
		return n
	case o.Expectation == CTMQuasi && n == 0:
		n = ctmQuasi
	case n == 0:
		n = ctmSamples
	}
	return n + n%2
}

// inner returns the most proximal steps at a visit.
func (o *CTMOptions) inner(first bool) int {
	n, zero := o.Inner, ctmInner
	if first {
		n, zero = o.FirstInner, ctmFirstInner
	}
	switch {
	case n > 0:
		return n
	case o.Paper:
		return 1
	case !o.Expectation.monteCarlo():
		return ctmSettle
	}
	return zero
}

// diagonal reports whether the V_n are.
func (o *CTMOptions) diagonal() bool { return o.Diagonal || o.Expectation == CTMMeanField }

// NewCTM returns the model of the documents of c with the given number of topics. The
// documents are copied. A nil opt means the zero CTMOptions. Documents without words are
// allowed; nothing is learnt from them.
//
// It returns an error wrapping ErrEmpty if there is no document, no word or no term; what
// Corpus.Validate returns; ErrParam if topics < 1 or an option is out of range;
// ErrShape or ErrNotFinite if CTMOptions.Topics has another shape or is not finite; ErrMemory if
// documents, terms and topics are too many for CTMOptions.MaxMemory.
func NewCTM(c *Corpus, topics int, opt *CTMOptions) (*CTM, error) {
	if c == nil || len(c.Docs) == 0 {
		return nil, fmt.Errorf("pgsvi: a corpus without documents: %w", ErrEmpty)
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
	m.docs = make([]Document, len(c.Docs))
	words := 0
	for n, d := range c.Docs {
		m.docs[n] = Document{slices.Clone(d.Words), slices.Clone(d.Counts)}
		words += len(d.Words)
	}
	if words == 0 {
		return nil, fmt.Errorf("pgsvi: the %d documents have no words: %w", len(c.Docs), ErrEmpty)
	}
	if n := c.Tokens(); n > 1e100 {
		return nil, fmt.Errorf("pgsvi: the counts of the corpus add up to %v: %w", n, ErrNotFinite)
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
		return nil, fmt.Errorf("pgsvi: a vocabulary without terms: %w", ErrEmpty)
	}
	if topics < 1 {
		return nil, fmt.Errorf("pgsvi: %d topics: %w", topics, ErrParam)
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
			return nil, fmt.Errorf("pgsvi: CTMOptions.Topics is %d×%d, want topics × terms, %d×%d: %w", r, c, topics, terms, ErrShape)
		}
		t := mat.DenseCopyOf(o.Topics)
		for k := range topics {
			row := t.RawRowView(k)
			var sum float64
			for v, x := range row {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					return nil, fmt.Errorf("pgsvi: CTMOptions.Topics(%d, %d) is %v: %w", k, v, x, ErrNotFinite)
				}
				if x < 0 {
					return nil, fmt.Errorf("pgsvi: CTMOptions.Topics(%d, %d) is %v: %w", k, v, x, ErrParam)
				}
				sum += x
			}
			if !(sum > 0) || math.IsInf(sum, 0) {
				return nil, fmt.Errorf("pgsvi: CTMOptions.Topics: row %d sums to %v: %w", k, sum, ErrParam)
			}
		}
		o.Topics = t
	}
	return m, nil
}

// Len returns the number of documents.
func (m *CTM) Len() int { return len(m.docs) }
