package pgsvi

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// CTMPosterior is what a run on a CTM reached: the topics, N(μ, Σ), and q(z_n) = N(m_n, V_n)
// for every document. It is immutable and safe for concurrent use.
type CTMPosterior struct {
	k, terms int
	vocab    []string
	opt      CTMOptions
	beta     []float64 // terms × K
	prior    ctmPrior
	docs     [][]float64 // m and V⁻¹ of each document; nil where q is the prior
	seen     []bool      // whether a term occurs in the training data
}

// Len returns the number of documents of the training data whose q is kept; none if they were streamed.
func (p *CTMPosterior) Len() int { return len(p.docs) }

// Vocab returns the words of the vocabulary, or nil if they are not known.
func (p *CTMPosterior) Vocab() []string { return slices.Clone(p.vocab) }

// Topics returns β, K×Terms and new: row k holds the probabilities of the words in topic k.
func (p *CTMPosterior) Topics() *mat.Dense {
	t := mat.NewDense(p.k, p.terms, nil)
	for v := range p.terms {
		for k, b := range p.beta[v*p.k : (v+1)*p.k] {
			t.Set(k, v, b)
		}
	}
	return t
}

// Mu stores μ, the mean of the topic logits, in dst; nil allocates.
func (p *CTMPosterior) Mu(dst []float64) []float64 {
	dst = dense.Dest(dst, p.k)
	copy(dst, p.prior.mu)
	return dst
}

// Sigma returns Σ, the covariance of the topic logits, K×K and new. Logits are identified
// only up to a shift that the topics of a document share.
func (p *CTMPosterior) Sigma() *mat.SymDense { return dense.FullSym(p.prior.cov, p.k) }

// Corr returns the correlations of the topic logits that belong to Σ, K×K and new.
func (p *CTMPosterior) Corr() *mat.SymDense {
	c := p.Sigma()
	for i := range p.k {
		for j := range i {
			c.SetSym(i, j, c.At(i, j)/math.Sqrt(p.prior.cov[i*p.k+i]*p.prior.cov[j*p.k+j]))
		}
	}
	for i := range p.k {
		c.SetSym(i, i, 1)
	}
	return c
}

// Proportions returns what CTMDoc.Proportions returns for q = N(μ, Σ), that of a document of
// which no word is known.
func (p *CTMPosterior) Proportions(level float64) (mean, lo, hi []float64) {
	w := newCTMWork(p.k, p.inferOptions(0))
	w.setPrior(&p.prior)
	return p.doc(w, 0).Proportions(level)
}

// Doc returns q(z_n) of document n of the training data. Its ELBO is NaN. It panics if q of such a
// document is not kept.
func (p *CTMPosterior) Doc(n int) *CTMDoc {
	if n < 0 || n >= len(p.docs) {
		panic(fmt.Sprintf("pgsvi: document %d of %d", n, len(p.docs)))
	}
	w := newCTMWork(p.k, p.inferOptions(0))
	if p.docs[n] == nil || !w.load(p.docs[n]) {
		w.setPrior(&p.prior)
	}
	return p.doc(w, math.NaN())
}

// DocTopics returns the mean topic proportions of the documents of the training data, a new matrix
// with one row of K for each, from 400 draws of a fixed seed. WriteLDAvis takes it. It is nil if no
// q is kept.
func (p *CTMPosterior) DocTopics() *mat.Dense {
	if len(p.docs) == 0 {
		return nil
	}
	const draws = 400
	t := mat.NewDense(len(p.docs), p.k, nil)
	x := make([]float64, p.k)
	for n := range p.docs {
		rng := rand.New(rand.NewPCG(seed1, seed2))
		d, row := p.Doc(n), t.RawRowView(n)
		for range draws {
			floats.AddScaled(row, 1.0/draws, d.Rand(x, rng))
		}
	}
	return t
}

// Infer returns q(z) of a new document at the topics, μ and Σ of p,
//
//	argmax_{m,V} E_q[Σ_v y_v log Σ_k β_kv e^{z_k} − W log Σ_k e^{z_k}] − KL(N(m, V)‖N(μ, Σ))
//
// by at most 100 proximal steps from the prior. Expectations by draws are over points that do not
// change from step to step, 32 of them unless CTMOptions.Samples is larger, so that the steps
// converge and the result is always the same. A word that did not occur in the training data is
// improbable in every topic. The error is that of Corpus.Validate, or wraps ErrNotPosDef.
func (p *CTMPosterior) Infer(d Document) (*CTMDoc, error) {
	if err := (&Corpus{Docs: []Document{d}, Terms: p.terms}).Validate(); err != nil {
		return nil, err
	}
	w := p.inferrer(0)
	if err := p.infer(w, d, 0); err != nil {
		return nil, err
	}
	var elbo float64
	if w.n > 0 {
		elbo, _ = w.elbo(&p.prior)
	}
	return p.doc(w, elbo), nil
}

const (
	inferSamples = 32
	inferSteps   = 100
	inferSettled = 1e-2 // the distance that the last step may still move q
)

// inferOptions returns the options of the E-step of a new document with at least so many points.
func (p *CTMPosterior) inferOptions(samples int) *CTMOptions {
	o := p.opt
	o.Paper, o.PaperScaled = false, false
	if o.Expectation == CTMAntithetic || o.Expectation == CTMQuasi {
		o.Expectation, o.Samples = CTMQuasi, max(o.Samples, samples)
	}
	return &o
}

// inferrer returns an E-step whose points are fixed.
func (p *CTMPosterior) inferrer(samples int) *ctmWork {
	w := newCTMWork(p.k, p.inferOptions(max(samples, inferSamples)))
	if w.opt.Expectation == CTMQuasi {
		kronecker(w.eps, w.k, nil)
	}
	w.fixed = true
	return w
}

// infer makes w the E-step of d at its optimum, with the topics (1−mix)β + mix/terms.
func (p *CTMPosterior) infer(w *ctmWork, d Document, mix float64) error {
	w.setDoc(d)
	for i, v := range d.Words {
		row := w.b[i*p.k : (i+1)*p.k]
		for k, b := range p.beta[v*p.k : (v+1)*p.k] {
			row[k] = (1-mix)*b + mix/float64(p.terms)
		}
	}
	w.pack()
	if !w.setPrior(&p.prior) {
		return fmt.Errorf("pgsvi: Sigma: %w", ErrNotPosDef)
	}
	if w.n == 0 {
		return nil
	}
	tol := settledDistance
	if w.opt.Expectation == CTMQuasi {
		tol = inferSettled // the points are further from the truth than that
	}
	if err := w.ascend(&p.prior, inferSteps, ctmBeta/(1+ctmBeta), tol); err != nil {
		return fmt.Errorf("pgsvi: new document: %w", err)
	}
	return nil
}

// doc returns the q of w.
func (p *CTMPosterior) doc(w *ctmWork, elbo float64) *CTMDoc {
	w.invert()
	d := &CTMDoc{mean: slices.Clone(w.m), cov: mat.NewSymDense(p.k, nil), elbo: elbo}
	for i := range p.k {
		for j := range i + 1 {
			d.cov.SetSym(i, j, w.cov(i, j))
		}
	}
	d.l = make([]float64, p.k*p.k)
	for i := range p.k {
		for j := range i + 1 {
			d.l[i*p.k+j] = w.cov(i, j)
		}
	}
	dense.Cholesky(d.l, p.k)
	return d
}

// CTMDoc is q(z) = N(m, V) for the topic logits z of a document; its topic
// proportions are softmax(z). It is immutable and safe for concurrent use.
type CTMDoc struct {
	mean []float64
	cov  *mat.SymDense
	l    []float64 // Cholesky factor of V
	elbo float64
}

// Mean stores m in dst; nil allocates.
func (d *CTMDoc) Mean(dst []float64) []float64 {
	dst = dense.Dest(dst, len(d.mean))
	copy(dst, d.mean)
	return dst
}

// Cov returns V, K×K and new.
func (d *CTMDoc) Cov() *mat.SymDense {
	c := mat.NewSymDense(len(d.mean), nil)
	c.CopySym(d.cov)
	return c
}

// ELBO returns the document's term of the ELBO in nats, NaN if it was not evaluated.
func (d *CTMDoc) ELBO() float64 { return d.elbo }

// Rand stores a draw of the topic proportions in dst, of length K; nil allocates.
func (d *CTMDoc) Rand(dst []float64, rng *rand.Rand) []float64 {
	k := len(d.mean)
	dst = dense.Dest(dst, k)
	for j := range dst {
		dst[j] = rng.NormFloat64()
	}
	z := slices.Clone(dst)
	dense.Trmv(blas.NoTrans, dense.LowerTriangle(d.l, k), dense.Vector(z))
	floats.Add(z, d.mean)
	softmax(dst, z)
	return dst
}

// proportionDraws is the number of draws of CTMDoc.Proportions.
const proportionDraws = 4000

// Proportions returns the means of the topic proportions and, for each, the central interval
// that holds it with probability level in (0, 1), from 4000 draws of a fixed seed. It panics
// if level is outside (0, 1).
func (d *CTMDoc) Proportions(level float64) (mean, lo, hi []float64) {
	if !(level > 0 && level < 1) {
		panic(fmt.Sprintf("pgsvi: interval at level %v", level))
	}
	k := len(d.mean)
	rng := rand.New(rand.NewPCG(seed1, seed2))
	draws := dense.NewRows(k, proportionDraws)
	x := make([]float64, k)
	mean, lo, hi = make([]float64, k), make([]float64, k), make([]float64, k)
	for i := range proportionDraws {
		d.Rand(x, rng)
		for j, p := range x {
			draws[j][i] = p
		}
	}
	tail := min(int(proportionDraws*(1-level)/2), proportionDraws/2-1)
	for j, all := range draws {
		mean[j] = floats.Sum(all) / proportionDraws
		slices.Sort(all)
		lo[j], hi[j] = all[tail], all[proportionDraws-1-tail]
	}
	return mean, lo, hi
}

// eachPair calls f for the points in the rows of eps and their negatives: up/a and down/b are
// softmax(z) at z = m ± δ. One exponential a coordinate serves both. Scratch has 3K elements.
func (d *CTMDoc) eachPair(eps, scratch []float64, f func(up, down []float64, a, b float64)) {
	k := len(d.mean)
	top := floats.Max(d.mean)
	base, up, down := scratch[:k], scratch[k:2*k], scratch[2*k:3*k]
	for j, m := range d.mean {
		base[j] = math.Exp(m - top)
	}
	for i := 0; i < len(eps); i += k {
		x := eps[i : i+k]
		var a, b float64
		for j := range up {
			var s float64
			for c, l := range d.l[j*k : j*k+j+1] {
				s += l * x[c]
			}
			e := math.Exp(min(max(s, -300), 300))
			up[j], down[j] = base[j]*e, base[j]/e
			a += up[j]
			b += down[j]
		}
		f(up, down, a, b)
	}
}

// expectedSoftmax stores E[softmax(z)] in mean, from the points of eachPair.
func (d *CTMDoc) expectedSoftmax(mean, eps, scratch []float64) {
	clear(mean)
	d.eachPair(eps, scratch, func(up, down []float64, a, b float64) {
		for j := range mean {
			mean[j] += up[j]/a + down[j]/b
		}
	})
	floats.Scale(float64(len(mean))/float64(2*len(eps)), mean)
}

// softmaxes stores softmax(z) at the points of eachPair in the rows of dst.
func (d *CTMDoc) softmaxes(dst, eps, scratch []float64) {
	k, i := len(d.mean), 0
	d.eachPair(eps, scratch, func(up, down []float64, a, b float64) {
		row, next := dst[i:i+k], dst[i+k:i+2*k]
		for j := range row {
			row[j], next[j] = up[j]/a, down[j]/b
		}
		i += 2 * k
	})
}

// logMeanPower returns the logarithm of the mean of (a πᵀx + b)^y over the rows π of pi.
func logMeanPower(pi, x []float64, a, b, y float64) float64 {
	k := len(x)
	top, sum := math.Inf(-1), 0.0 // Σ is e^top·sum, lest small probabilities underflow
	for i := 0; i < len(pi); i += k {
		l := y * math.Log(a*floats.Dot(pi[i:i+k], x)+b)
		if l > top {
			sum *= math.Exp(top - l)
			top = l
		}
		sum += math.Exp(l - top)
	}
	return top + math.Log(sum*float64(k)/float64(len(pi)))
}

// HeldOut scores the documents of c, which should not be those of the training data. The tokens
// of a document, in the order of its words, each as often as it occurs, go in turn to y¹ and y².
// q(z) is inferred from y¹, and each token of y² is scored on its own,
//
//	−Σ_v y²_v log E_q[Σ_k β_kv softmax(z)_k]
//
// unless HeldOutOptions.ByWord says otherwise. Every topic is smoothed, β ← (1−s)β + s/terms, so
// that words unseen in training have a score too. A nil opt means the zero HeldOutOptions.
//
// The error wraps ErrShape if c has another number of terms, ErrEmpty if it has no document,
// ErrParam if a count is not a whole number or an option is out of range, ErrMemory if there are too many
// draws, and otherwise is that of Corpus.Validate or Infer.
func (p *CTMPosterior) HeldOut(c *Corpus, opt *HeldOutOptions) (*HeldOut, error) {
	o, err := heldOutOptions(opt, c, p.terms)
	if err != nil {
		return nil, err
	}
	points := bytesOf(0.5, o.Draws+1, p.k)
	if o.ByWord {
		points *= float64(1 + 2*o.Workers)
	}
	if err := checkMemory(p.opt.MaxMemory, points, fmt.Sprintf("a score by %d draws of %d topics", o.Draws, p.k), "take fewer HeldOutOptions.Draws, or raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, err
	}
	eps := make([]float64, (o.Draws+1)/2*p.k)
	rng := rand.New(rand.NewPCG(seed1, seed2))
	for i := range eps {
		eps[i] = rng.NormFloat64()
	}
	type scratch struct {
		*ctmWork
		mean, all, pi []float64
	}
	works := make([]scratch, o.Workers)
	return o.score(c, p.seen, func(worker int, nats []float64, first, second Document) error {
		w := &works[worker]
		if w.ctmWork == nil {
			*w = scratch{p.inferrer(0), make([]float64, p.k), make([]float64, 3*p.k), nil}
		}
		if err := p.infer(w.ctmWork, first, o.Smoothing); err != nil {
			return err
		}
		q := p.doc(w.ctmWork, 0)
		q.expectedSoftmax(w.mean, eps, w.all)
		if o.ByWord {
			w.pi = dense.Resize(w.pi, 2*len(eps))
			q.softmaxes(w.pi, eps, w.all)
		}
		for j, v := range second.Words {
			beta, y := p.beta[v*p.k:(v+1)*p.k], second.Counts[j]
			if o.ByWord && y > 1 {
				nats[j] = -logMeanPower(w.pi, beta, 1-o.Smoothing, o.Smoothing/float64(p.terms), y)
				continue
			}
			nats[j] = o.smoothed(floats.Dot(w.mean, beta), y, p.terms)
		}
		return nil
	})
}

// ctmFile is the file of a CTMPosterior.
var ctmFile = save.Kind{Name: "CTMPosterior", Version: 1}

// savedCTM is a CTMPosterior as JSON.
type savedCTM struct {
	Topics      int                  `json:"topics"`
	Terms       int                  `json:"terms"`
	Vocab       save.List[string]    `json:"vocab,omitempty"`
	Expectation CTMExpectation       `json:"expectation"`
	Diagonal    bool                 `json:"diagonal"`
	Samples     int                  `json:"samples"`
	Beta        save.List[float64]   `json:"beta"` // term by term
	Mu          save.List[float64]   `json:"mu"`
	Sigma       save.List[float64]   `json:"sigma"` // row by row
	Seen        save.List[bool]      `json:"seen"`
	Docs        save.List[[]float64] `json:"docs"` // m, and V⁻¹ row by row up to the diagonal, or its diagonal
}

// Save writes p, from which LoadCTMPosterior makes the same posterior, to the last bit: a line
// that names the kind of file, JSON, and a checksum. The error is that of w, or wraps ErrParam if a
// word of the vocabulary is not UTF-8, which JSON is.
func (p *CTMPosterior) Save(w io.Writer) error {
	if err := checkText("word", p.vocab); err != nil {
		return err
	}
	return saveTo(w, ctmFile, &savedCTM{Topics: p.k, Terms: p.terms, Vocab: p.vocab,
		Expectation: p.opt.Expectation, Diagonal: p.opt.Diagonal, Samples: p.opt.Samples,
		Beta: p.beta, Mu: p.prior.mu, Sigma: p.prior.cov, Seen: p.seen, Docs: p.docs})
}

// LoadCTMPosterior reads what CTMPosterior.Save has written, which must be all of r. The error wraps
// ErrFile if r has no such file, or one that is damaged or of a newer release, or whose numbers make
// no posterior. A failure of r is wrapped as it is.
func LoadCTMPosterior(r io.Reader) (*CTMPosterior, error) {
	return loadFrom(r, ctmFile, (*savedCTM).load)
}

func (s *savedCTM) load() (*CTMPosterior, error) {
	k := s.Topics
	if k < 1 || s.Terms < 1 || len(s.Mu) != k || len(s.Sigma)%k != 0 || len(s.Sigma)/k != k ||
		len(s.Beta)%k != 0 || len(s.Beta)/k != s.Terms || len(s.Seen) != s.Terms || s.Vocab != nil && len(s.Vocab) != s.Terms {
		return nil, fmt.Errorf("%d topics and %d terms with %d, %d, %d, %d and %d elements in beta, mu, sigma, seen and vocab: %w", k, s.Terms, len(s.Beta), len(s.Mu), len(s.Sigma), len(s.Seen), len(s.Vocab), ErrShape)
	}
	opt := &CTMOptions{Expectation: s.Expectation, Diagonal: s.Diagonal, Samples: s.Samples}
	m, err := newCTM(s.Terms, k, opt)
	if err != nil {
		return nil, err
	}
	p := &CTMPosterior{k: k, terms: s.Terms, vocab: s.Vocab, opt: m.opt, beta: s.Beta, seen: s.Seen, docs: s.Docs}
	sum := make([]float64, k)
	for i, b := range s.Beta {
		if !(b > 0 && b <= 1) {
			return nil, fmt.Errorf("probability of term %d in topic %d is %v: %w", i/k, i%k, b, ErrParam)
		}
		sum[i%k] += b
	}
	for j, total := range sum {
		if math.Abs(total-1) > topicSumTol {
			return nil, fmt.Errorf("the probabilities of topic %d add up to %v: %w", j, total, ErrParam)
		}
	}
	if err := p.prior.load(s.Mu, s.Sigma); err != nil {
		return nil, err
	}
	w := newCTMWork(k, &CTMOptions{Expectation: CTMDelta, Diagonal: m.opt.diagonal()}) // which has no points
	for n, d := range s.Docs {
		if d == nil {
			continue
		}
		if len(d) != ctmState(k, w.diag) {
			return nil, fmt.Errorf("document %d has %d numbers, want %d: %w", n, len(d), ctmState(k, w.diag), ErrShape)
		}
		if !w.load(d) {
			return nil, fmt.Errorf("document %d: %w", n, ErrNotPosDef)
		}
	}
	return p, nil
}

// topicSumTol is how far the saved probabilities of a topic may add up to other than 1, for rounding.
const topicSumTol = 1e-6
