package topic

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

// Sweep is the E-step of documents at topics and N(μ, Σ) that stay, and what they sum to: their
// number, the ELBO and how far it is known, Σ_n m_n, Σ_n V_n + m_n m_nᵀ, and Σ_n y_nv E[ρ_nvk]. A
// document starts from the prior, as with Options.Forget. No q is kept, so that sums of parts of
// the documents are all there is to bring together.
type Sweep struct {
	f       *Fitted
	w       *work
	all     []float64
	moments moments
	stat    []float64 // statistics of one document
}

// Indices of the sums of a sweep. After these numbers follow m, the triangle of V + mmᵀ, and the
// statistics of the topics, term by term.
const (
	sweepDocs   = iota // documents with words
	sweepELBO          // in nats
	sweepSpread        // variance of the ELBO, or its remaining gain
	sweepHead
)

// SweepLen returns the number of numbers that a sweep sums to.
func (o *Options) SweepLen() int { return o.sweepTopics() + o.K*o.Terms }

// sweepTopics returns the place of the statistics of the topics.
func (o *Options) sweepTopics() int { return sweepHead + o.K + o.K*(o.K+1)/2 }

// NewSweep returns a sweep at f over no documents.
func NewSweep(f *Fitted) *Sweep {
	s := &Sweep{f: f, w: newWork(&f.Options), all: make([]float64, f.SweepLen())}
	s.Reset()
	return s
}

// Reset makes s one over no documents.
func (s *Sweep) Reset() {
	clear(s.all)
	s.moments.reset(s.f.K)
}

// Add adds d, with draws from a stream of the two seeds. The error wraps sentinel.ErrNotPosDef or
// sentinel.ErrNotFinite; s is then of no further use before Reset.
func (s *Sweep) Add(d Doc, seed1, seed2 uint64) error {
	if len(d.Words) == 0 {
		return nil
	}
	w, k, prior := s.w, s.f.K, &s.f.prior
	w.pcg.Seed(seed1, seed2)
	w.setDoc(d)
	for i, v := range d.Words {
		copy(w.b[i*k:(i+1)*k], s.f.Beta[v*k:(v+1)*k])
	}
	w.pack()
	if !w.setPrior(prior) {
		return fmt.Errorf("precision of q: %w", sentinel.ErrNotPosDef)
	}
	err := w.ascend(prior, w.opt.inner(true), stepLength(defaultBeta), w.tolerance())
	if err != nil {
		return err
	}
	want := wantStat | wantValue
	if w.opt.Expectation == Delta || w.opt.Expectation == Laplace {
		want |= wantGrad
	}
	s.stat = dense.Resize(s.stat, k*w.n)
	w.expect(want, s.stat)
	spread := w.variance
	s.all[sweepDocs]++
	s.all[sweepELBO] += w.value - w.kl(prior)
	s.moments.add(1, w)
	if !w.opt.paired() {
		spread = w.shortfall(prior)
	}
	s.all[sweepSpread] += spread
	topics := s.all[s.f.sweepTopics():]
	for i, v := range d.Words {
		floats.Add(topics[v*k:(v+1)*k], s.stat[i*k:(i+1)*k])
	}
	if i, ok := dense.AllFinite(s.stat); !ok {
		return fmt.Errorf("the topics of word %d are %v: %w",
			d.Words[i/k], s.stat[i], sentinel.ErrNotFinite)
	}
	return nil
}

// Sums returns what the documents sum to, which s keeps. The error wraps sentinel.ErrNotFinite.
func (s *Sweep) Sums() ([]float64, error) {
	k := s.f.K
	rest := s.all[sweepHead:]
	rest = rest[copy(rest, s.moments.m):]
	for i := range k {
		rest = rest[copy(rest, s.moments.v[i*k:i*k+i+1]):]
	}
	if _, ok := dense.AllFinite(s.all); !ok {
		return nil, fmt.Errorf("the sums of the documents overflow: %w", sentinel.ErrNotFinite)
	}
	return s.all, nil
}

// Value returns the ELBO of all documents of sweeps at f, as Steps.Evaluate does.
func (f *Fitted) Value(sums []float64) (elbo, stdErr float64, random bool) {
	stdErr, random = f.spread(sums[sweepSpread])
	return sums[sweepELBO], stdErr, random
}

// Seen returns whether each term occurs in the documents of sweeps at f.
func (f *Fitted) Seen(sums []float64) []bool {
	seen, topics := make([]bool, f.Terms), sums[f.sweepTopics():]
	for v := range seen {
		seen[v] = floats.Max(topics[v*f.K:(v+1)*f.K]) > 0
	}
	return seen
}

// Next returns the M-step after sweeps at f over all documents,
//
//	β = argmax_β Σ_kv (S_kv + TopicPrior) log β_kv,   S_kv = Σ_n y_nv E[ρ_nvk]
//	μ, Σ = argmax_{μ,Σ} Σ_n −KL(q(z_n)‖N(μ, Σ)),   with PseudoDocs more documents of q = N(0, I)
//
// It is the M-step of Steps with a weight of 1. The error wraps sentinel.ErrNotPosDef.
func (f *Fitted) Next(sums []float64) (*Fitted, error) {
	k := f.K
	s := moments{count: sums[sweepDocs], m: sums[sweepHead : sweepHead+k]}
	s.v = make([]float64, k*k)
	at := sweepHead + k
	for i := range k {
		at += copy(s.v[i*k:i*k+i+1], sums[at:])
	}
	next := &Fitted{Options: f.Options}
	if !s.prior(&next.prior, f.pseudo(), new([]float64)) {
		return nil, fmt.Errorf("covariance Sigma after %v documents; use more PseudoDocs: %w",
			s.count, sentinel.ErrNotPosDef)
	}
	next.Mu, next.Sigma = next.prior.mu, next.prior.cov
	t := stats{k: k, terms: f.Terms, smooth: f.smooth(), scale: 1, stat: sums[at:]}
	t.sum, t.inv = make([]float64, k), make([]float64, k)
	for v := range f.Terms {
		floats.Add(t.sum, t.stat[v*k:(v+1)*k])
	}
	t.normalise()
	next.Beta = t.beta()
	return next, nil
}

// spread returns the error of an ELBO. sum adds up the variances of the documents, or their
// remaining gains if expectations are not random.
func (o *Options) spread(sum float64) (stdErr float64, random bool) {
	random = o.paired()
	switch {
	case !random:
		stdErr = goals.NeverZero(sum)
	case o.Points() > 2: // a single pair has no error estimate
		stdErr = goals.NeverZero(math.Sqrt(sum))
	}
	return stdErr, random
}
