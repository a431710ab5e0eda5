package pgsvi

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// LDAPosterior is what a run on an LDA reached: q(β_k) = Dirichlet(λ_k) for each topic. It is immutable and safe for concurrent use.
type LDAPosterior struct {
	k, terms int
	vocab    []string
	docPrior float64
	lambda   []float64 // topic by topic
	mu       []float64 // E[log β]
	seen     []bool    // whether a term occurs in the training data
}

// Fit runs s on the model; a nil s means a Solver without options. The posterior is that of the state
// reached, valid even if there is an error after the set-up. The errors are those of Solver.Run.
//
// A Solver.MaxPasses of zero means ten passes, over mini-batches, and up to a thousand for a corpus so
// small that they take no more than some seconds. The status of a larger one is therefore
// PassLimit: its topics predict as well as those of longer runs, but its ELBO may be many nats below
// a local maximum. Result.GapBound says what the topics alone could still gain. To reach a maximum, set
// MaxPasses to a few hundred: passes after the tenth are of all documents, and take several times as long.
func (m *LDA) Fit(ctx context.Context, s *Solver) (*LDAPosterior, *Result, error) {
	return fitModel[*LDAPosterior](ctx, s, m)
}

// Posterior returns the posterior at st, a state of a run on an LDA. The error wraps ErrParam if st is none, or one of another number of topics or
// terms.
func (m *LDA) Posterior(st State) (*LDAPosterior, error) {
	q, err := posteriorOf(st, m.prior)
	if err != nil {
		return nil, err
	}
	p := &LDAPosterior{k: m.k, terms: m.terms, vocab: m.vocab, docPrior: m.opt.DocPrior, lambda: q.Natural(nil), mu: q.MeanParams(nil), seen: make([]bool, m.terms)}
	for _, d := range m.docs {
		for _, v := range d.Words {
			p.seen[v] = true
		}
	}
	return p, nil
}

// Vocab returns the words of the vocabulary, or nil if they are not known.
func (p *LDAPosterior) Vocab() []string { return slices.Clone(p.vocab) }

// Lambda returns the parameters λ of the topics, K×V and new.
func (p *LDAPosterior) Lambda() *mat.Dense {
	return mat.NewDense(p.k, p.terms, slices.Clone(p.lambda))
}

// Topics returns E[β], K×V and new: row k holds the probabilities of the words in topic k. TopTerms and TopWords take it.
func (p *LDAPosterior) Topics() *mat.Dense {
	t := p.Lambda()
	for k := range p.k {
		row := t.RawRowView(k)
		floats.Scale(1/floats.Sum(row), row)
	}
	return t
}

// Infer returns q(θ) = Dirichlet(γ) of a document, new or not, at the topics of p, and the share of the ELBO that the document has, in nats: γ of length K is stored in dst, and
// nil allocates. The mean of topic k is γ_k/Σγ; a document without words has the prior, and the share 0. The error is that of Corpus.Validate.
func (p *LDAPosterior) Infer(dst []float64, d Document) (gamma []float64, elbo float64, err error) {
	if err := d.check(p.terms); err != nil {
		return nil, 0, fmt.Errorf("pgsvi: document %w", err)
	}
	w := ldaPool.Get().(*ldaDoc)
	defer ldaPool.Put(w)
	gamma = dense.Dest(dst, p.k)
	return gamma, p.infer(w, gamma, d), nil
}

// infer stores γ of d in dst and returns its share of the ELBO.
func (p *LDAPosterior) infer(w *ldaDoc, dst []float64, d Document) (elbo float64) {
	w.set(d, p.mu, p.k, p.docPrior)
	if w.n > 0 {
		w.ascend(true)
		elbo = w.value()
	}
	copy(dst, w.gamma)
	return elbo
}

// DocTopics returns the mean topic proportions E[θ] of the documents of c, new or not, a new matrix with one row of K for each. WriteLDAvis takes it. It is nil if c has no
// documents. The error is that of Corpus.Validate, or wraps ErrShape if c has another number of terms.
func (p *LDAPosterior) DocTopics(c *Corpus) (*mat.Dense, error) {
	if err := c.fits(p.terms); err != nil || len(c.Docs) == 0 {
		return nil, err
	}
	t := mat.NewDense(len(c.Docs), p.k, nil)
	w := new(ldaDoc)
	for n, d := range c.Docs {
		row := t.RawRowView(n)
		p.infer(w, row, d)
		floats.Scale(1/floats.Sum(row), row)
	}
	return t, nil
}

// HeldOut scores the documents of c, which should not be those of the training data, by the protocol of CTMPosterior.HeldOut: q(θ) is inferred from the one half y¹ of a
// document, and each token of the other, y², is scored on its own,
//
//	−Σ_v y²_v log Σ_k E[θ_k] E[β_kv]
//
// with every topic smoothed, E[β] ← (1−s)E[β] + s/V. The expectation is exact, so that HeldOutOptions.Draws is not used. A nil opt means the zero HeldOutOptions.
//
// The error wraps ErrShape if c has another number of terms, ErrEmpty if it has no document, ErrParam if a count is not a whole number, an option
// is out of range, or ByWord is set, whose powers have no exact expectation, and otherwise is that of Corpus.Validate.
func (p *LDAPosterior) HeldOut(c *Corpus, opt *HeldOutOptions) (*HeldOut, error) {
	o, err := heldOutOptions(opt, c, p.terms)
	if err != nil {
		return nil, err
	}
	if o.ByWord {
		return nil, fmt.Errorf("pgsvi: HeldOutOptions.ByWord of an LDA: %w", ErrParam)
	}
	total := make([]float64, p.k)
	for k := range total {
		total[k] = floats.Sum(p.lambda[k*p.terms : (k+1)*p.terms])
	}
	return o.score(c, p.seen, func(_ int, nats []float64, first, second Document) error {
		w := ldaPool.Get().(*ldaDoc)
		defer ldaPool.Put(w)
		theta := make([]float64, p.k)
		p.infer(w, theta, first)
		floats.Scale(1/floats.Sum(theta), theta)
		for j, v := range second.Words {
			var prob float64
			for k, x := range theta {
				prob += x * p.lambda[k*p.terms+v] / total[k]
			}
			nats[j] = o.smoothed(prob, second.Counts[j], p.terms)
		}
		return nil
	})
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
}

// Save writes p, from which LoadLDAPosterior makes the same posterior, to the last bit. The error is that of w, or wraps ErrParam if a
// word of the vocabulary is not UTF-8, which JSON is.
func (p *LDAPosterior) Save(w io.Writer) error {
	if err := checkText("word", p.vocab); err != nil {
		return err
	}
	return saveTo(w, ldaFile, &savedLDA{Topics: p.k, Terms: p.terms, Vocab: p.vocab, DocPrior: p.docPrior, Lambda: p.lambda, Seen: p.seen})
}

// LoadLDAPosterior reads what LDAPosterior.Save has written, which must be all of r. The error wraps ErrFile if r has no such file, or one that is
// damaged or of a newer release, or whose numbers make no posterior. A failure of r is wrapped as it is.
func LoadLDAPosterior(r io.Reader) (*LDAPosterior, error) {
	return loadFrom(r, ldaFile, (*savedLDA).load)
}

func (s *savedLDA) load() (*LDAPosterior, error) {
	k := s.Topics
	if k < 1 || s.Terms < 2 || len(s.Lambda)%k != 0 || len(s.Lambda)/k != s.Terms || len(s.Seen) != s.Terms || s.Vocab != nil && len(s.Vocab) != s.Terms {
		return nil, fmt.Errorf("%d topics and %d terms with %d, %d and %d elements in lambda, seen and vocab: %w", k, s.Terms, len(s.Lambda), len(s.Seen), len(s.Vocab), ErrShape)
	}
	if !(s.DocPrior >= ldaLeast && s.DocPrior <= 1/ldaLeast) {
		return nil, fmt.Errorf("the prior of a document is %v: %w", s.DocPrior, ErrParam)
	}
	p := &LDAPosterior{k: k, terms: s.Terms, vocab: s.Vocab, docPrior: s.DocPrior, lambda: s.Lambda, mu: make([]float64, len(s.Lambda)), seen: s.Seen}
	f := dirichletFamily{s.Terms}
	for k := range k {
		row := p.lambda[k*s.Terms : (k+1)*s.Terms]
		if !f.valid(row) {
			return nil, fmt.Errorf("the parameters of topic %d are not all positive and finite: %w", k, ErrParam)
		}
		f.Mean(p.mu[k*s.Terms:(k+1)*s.Terms], row)
	}
	return p, nil
}
