package topic

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Fitted is a fitted model: the topics, N(μ, Σ), and q of the documents that were kept. It is
// immutable.
type Fitted struct {
	Options
	Beta      []float64   // terms × K
	Mu, Sigma []float64   // Σ is full
	Docs      [][]float64 // m and V⁻¹ of each document; nil where q is the prior
	prior     normal
}

// NewFitted returns the fitted model with the given numbers, whose shapes must be right. The
// error names an invalid value.
func NewFitted(o Options, beta, mu, sigma []float64, docs [][]float64) (*Fitted, error) {
	f := &Fitted{Options: o, Beta: beta, Docs: docs}
	k := o.K
	sum := make([]float64, k)
	for i, b := range beta {
		if !(b > 0 && b <= 1) {
			return nil, fmt.Errorf("probability of term %d in topic %d is %v: %w",
				i/k, i%k, b, sentinel.ErrParam)
		}
		sum[i%k] += b
	}
	for j, total := range sum {
		if math.Abs(total-1) > topicSumTol {
			return nil, fmt.Errorf("the probabilities of topic %d add up to %v: %w",
				j, total, sentinel.ErrParam)
		}
	}
	if err := f.prior.load(mu, sigma); err != nil {
		return nil, err
	}
	f.Mu, f.Sigma = f.prior.mu, f.prior.cov
	w := newWork(&Options{K: k, Expectation: Delta, Diagonal: o.diagonal()}) // which has no points
	for n, d := range docs {
		if d == nil {
			continue
		}
		if len(d) != stateLen(k, w.diag) {
			return nil, fmt.Errorf("document %d has %d numbers, want %d: %w",
				n, len(d), stateLen(k, w.diag), sentinel.ErrShape)
		}
		if !w.load(d) {
			return nil, fmt.Errorf("document %d: %w", n, sentinel.ErrNotPosDef)
		}
	}
	return f, nil
}

// topicSumTol is how far the saved probabilities of a topic may add up to other than 1, for
// rounding.
const topicSumTol = 1e-6

// set stores mu and sigma as the N(μ, Σ) of f.
func (f *Fitted) set(mu, sigma []float64) {
	f.prior.set(mu, sigma, new([]float64))
	f.Mu, f.Sigma = f.prior.mu, f.prior.cov
}

// Prior returns q(z) = N(μ, Σ), the distribution of a document without known words.
func (f *Fitted) Prior() *Logits {
	w := newWork(&Options{K: f.K, Expectation: Delta}) // whose V is full
	w.setPrior(&f.prior)
	return w.logits(0)
}

// Doc returns q(z_n) of document n of those that were kept.
func (f *Fitted) Doc(n int) *Logits {
	w := newWork(f.inferOptions(0))
	if f.Docs[n] == nil || !w.load(f.Docs[n]) {
		w.setPrior(&f.prior)
	}
	return w.logits(math.NaN())
}

// Infer returns q(z) of a new document, by at most inferSteps proximal steps from the prior.
// Expectations by draws are over points that do not change from step to step, so that the steps
// converge and the result is always the same. The error wraps ErrNotPosDef.
func (f *Fitted) Infer(d Doc) (*Logits, error) {
	w := f.inferrer()
	if err := f.infer(w, d, 0); err != nil {
		return nil, err
	}
	var elbo float64
	if w.n > 0 {
		elbo, _ = w.elbo(&f.prior)
	}
	return w.logits(elbo), nil
}

const (
	inferSamples = 32
	inferSteps   = 100
	inferSettled = 1e-2 // the distance that the last step may still move q
)

// inferOptions returns the options of the E-step of a new document, with at least the given
// number of points.
func (f *Fitted) inferOptions(samples int) *Options {
	o := f.Options
	o.Paper, o.Scaled = false, false
	if o.paired() {
		o.Expectation, o.Samples = Quasi, max(o.Samples, samples)
	}
	return &o
}

// inferrer returns an E-step whose points are fixed.
func (f *Fitted) inferrer() *work {
	w := newWork(f.inferOptions(inferSamples))
	if w.opt.Expectation == Quasi {
		kronecker(w.eps, w.k, nil)
	}
	w.fixed = true
	return w
}

// infer makes w the E-step of d at its optimum, with the topics (1−mix)β + mix/terms.
func (f *Fitted) infer(w *work, d Doc, mix float64) error {
	w.setDoc(d)
	for i, v := range d.Words {
		row := w.b[i*f.K : (i+1)*f.K]
		for k, b := range f.Beta[v*f.K : (v+1)*f.K] {
			row[k] = (1-mix)*b + mix/float64(f.Terms)
		}
	}
	w.pack()
	if !w.setPrior(&f.prior) {
		return fmt.Errorf("covariance Sigma: %w", sentinel.ErrNotPosDef)
	}
	if w.n == 0 {
		return nil
	}
	tol := settledDistance
	if w.opt.Expectation == Quasi {
		tol = inferSettled // the points are further from the truth than that
	}
	if err := w.ascend(&f.prior, inferSteps, stepLength(defaultBeta), tol); err != nil {
		return fmt.Errorf("new document: %w", err)
	}
	return nil
}
