package topic

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Steps holds the state of a CTM: the sufficient statistics of the topics, N(μ, Σ), and q(z_n) of
// every document visited so far as m_n and V_n⁻¹. That is K + K(K+1)/2 numbers per document, or
// 2K if V_n is diagonal. A document that was not visited has the prior.
//
// A Step visits the documents of a batch, takes a few proximal steps for each, and ends with the
// M-step of weight ρ_t = (10 + t)^−0.7 at step t, or ρ_t = 1 if the batch holds all documents,
//
//	S ← (1−ρ_t)S + ρ_t (N/M) Σ_n y_nv E_q[ρ_nvk],   β = argmax_β Σ_kv (S_kv + TopicPrior) log β_kv
//	μ, Σ = argmax_{μ,Σ} Σ_n −KL(q(z_n)‖N(μ, Σ)),   with PseudoDocs more documents of q = N(0, I)
//
// The first sum is over the M documents of the batch, and the second over all documents visited
// so far. Each document has a stream of random numbers of its own, and sums are taken in the
// order of the batch, so the result does not depend on the number of workers. A document that
// occurs several times in the batch is visited once and counts as often in the topics.
type Steps struct {
	loop    docLoop
	o       Options
	docs    []Doc
	total   float64 // N: the number of documents, of a stream those so far
	prior   normal
	topics  stats
	state   []float64 // q of the documents, one after the other
	visited []bool
	sums    moments // over the visited documents with words
	next    moments
	steps   int
	works   []*work
	slots   []learnt
	used    int         // slots of this step
	order   []int       // in which they are visited,
	length  float64     // with steps of this length
	seed    uint64      // seed of the streams of random numbers
	slotOf  map[int]int // document → slot
	values  []float64
	chol    []float64
	halt    parallel.Halt // while a step or an evaluation is under way
}

// learnt holds the results of one document of a batch.
type learnt struct {
	doc    int
	times  float64   // how often the batch has it
	state  []float64 // the new m and V⁻¹
	stat   []float64 // y_v E[ρ_vk], word by word
	change moments   // change of the sums
	err    error
}

// NewSteps returns the state at the prior, with topics in proportion to the rows of start.
func NewSteps(o Options, docs []Doc, start [][]float64) *Steps {
	s := &Steps{o: o, total: float64(len(docs)), slotOf: map[int]int{}}
	s.Renew(docs, s.total)
	s.topics = stats{terms: o.Terms, smooth: o.smooth()}
	s.topics.set(start, Tokens(docs)/float64(o.K))
	if !o.Forget {
		s.state = make([]float64, len(docs)*stateLen(o.K, o.diagonal()))
	}
	s.sums.reset(o.K)
	s.next.reset(o.K)
	s.sums.prior(&s.prior, 1, &s.chol)
	return s
}

// Renew replaces the documents of s by other ones, which have not been visited. total is the
// number of documents that they stand for. A model that keeps its documents cannot be renewed.
func (s *Steps) Renew(docs []Doc, total float64) {
	s.docs, s.total, s.visited = docs, total, make([]bool, len(docs))
}

// begin lets the given number of workers share the documents, and cancels work when ctx is done.
func (s *Steps) begin(ctx context.Context, workers int) *parallel.Halt {
	for len(s.works) < workers {
		s.works = append(s.works, newWork(&s.o))
	}
	s.works = s.works[:workers]
	s.halt.Watch(ctx)
	s.loop.Halt = &s.halt
	return &s.halt
}

// docLoop is a loop over documents.
type docLoop struct {
	parallel.Loop
	s    *Steps
	body func(s *Steps, w *work, i int)
}

// Do implements parallel.Task.
func (l *docLoop) Do(worker, i, _ int) { l.body(l.s, l.s.works[worker], i) }

// each calls f for 0 … n−1 on all workers.
func (s *Steps) each(n int, f func(s *Steps, w *work, i int)) {
	s.loop.s, s.loop.body = s, f
	s.loop.Run(n, 1, len(s.works), &s.loop)
}

// visitSlot is the visit of number i in order.
func visitSlot(s *Steps, w *work, i int) {
	s.visit(w, &s.slots[s.order[i]], s.length, s.seed)
}

// Step visits the documents of batch, and returns the step size that it took. A nil batch means all
// documents: the topics then depend on their statistics alone and not on earlier steps. If beta is
// +Inf, s takes β = 1, which is r = ½, or 0.001 for Options.Paper. The error
// names the document and wraps ErrNotPosDef or ErrNotFinite; the state is then as it was.
func (s *Steps) Step(
	ctx context.Context, workers int, batch []int, beta float64, seed uint64,
) (float64, error) {
	defer s.begin(ctx, workers).Forget()
	if math.IsInf(beta, 1) {
		beta = s.ownBeta()
	}
	return beta, s.step(batch, beta, seed)
}

func (s *Steps) step(batch []int, beta float64, seed uint64) error {
	s.enter(batch)
	var size float64
	for i := range s.used {
		size += s.slots[i].times
	}
	if s.o.Scaled {
		beta *= s.total / size
	}
	t := stepLength(beta)
	// The longest first, so that the workers end together.
	s.order = s.order[:0]
	for i := range s.used {
		s.order = append(s.order, i)
	}
	slices.SortFunc(s.order, func(i, j int) int {
		return cmp.Or(len(s.docs[s.slots[j].doc].Words)-len(s.docs[s.slots[i].doc].Words), i-j)
	})
	s.length, s.seed = t, seed
	s.each(s.used, visitSlot)
	if err := s.halt.Err(); err != nil {
		return err
	}
	for i := range s.used {
		if slot := &s.slots[i]; slot.err != nil {
			return fmt.Errorf("document %d: %w", slot.doc, slot.err)
		}
	}
	rho := 1.0
	if batch != nil {
		rho = math.Pow(delay+float64(s.steps), -decayPower)
	}
	if err := s.updatePrior(rho, size); err != nil {
		return err
	}
	s.topics.decay(rho)
	stride := stateLen(s.o.K, s.o.diagonal())
	for i := range s.used {
		slot := &s.slots[i]
		d := slot.doc
		s.topics.add(rho*s.total/size*slot.times, slot.stat, s.docs[d].Words)
		if !s.o.Forget {
			copy(s.state[d*stride:], slot.state)
			s.visited[d] = true
		}
	}
	s.topics.normalise()
	s.steps++
	return nil
}

// updatePrior is the M-step for μ and Σ. It uses all documents visited so far, or, if q is
// forgotten, the running average of batches that the topics also use.
func (s *Steps) updatePrior(rho, size float64) error {
	old, change := 1.0, 1.0
	if s.o.Forget {
		old, change = 1-rho, rho*s.total/size
	}
	s.next.reset(s.o.K)
	s.next.addScaled(old, &s.sums)
	for i := range s.used {
		s.next.addScaled(change, &s.slots[i].change)
	}
	if !s.next.prior(&s.prior, s.o.pseudo(), &s.chol) {
		return fmt.Errorf(
			"covariance Sigma after the documents of the batch; use a smaller step size or more "+
				"PseudoDocs: %w",
			sentinel.ErrNotPosDef)
	}
	s.sums, s.next = s.next, s.sums
	return nil
}

// ownBeta returns the step size of a CTM without one.
func (s *Steps) ownBeta() float64 {
	if s.o.Paper {
		return paperBeta
	}
	return defaultBeta
}

// stepLength returns 1 − r = β/(1 + β).
func stepLength(beta float64) float64 { return beta / (1 + beta) }

// enter fills the slots with the documents of batch.
func (s *Steps) enter(batch []int) {
	s.used = 0
	clear(s.slotOf)
	n := len(batch)
	if batch == nil {
		n = len(s.docs)
	}
	for i := range n {
		d := dense.Index(batch, i)
		if at, ok := s.slotOf[d]; ok {
			s.slots[at].times++
			continue
		}
		if s.used == len(s.slots) {
			s.slots = append(s.slots, learnt{})
		}
		s.slotOf[d] = s.used
		s.slots[s.used].doc, s.slots[s.used].times = d, 1
		s.used++
	}
}

// open makes w the E-step of document d at its present q.
func (s *Steps) open(w *work, d int) bool {
	doc := s.docs[d]
	w.setDoc(doc)
	s.topics.gather(w.b, doc.Words)
	w.pack()
	if !s.visited[d] || w.n == 0 {
		return w.setPrior(&s.prior)
	}
	stride := stateLen(w.k, w.diag)
	return w.load(s.state[d*stride : (d+1)*stride])
}

// visit is the E-step of a document: proximal steps of length t from its present q, and the
// statistics y_v E_q[ρ_vk] at the q that they reach.
func (s *Steps) visit(w *work, slot *learnt, t float64, seed uint64) {
	k, d := w.k, slot.doc
	w.pcg.Seed(seed, uint64(d))
	slot.change.reset(k)
	slot.state, slot.err = dense.Resize(slot.state, stateLen(k, w.diag)), nil
	if !s.open(w, d) {
		slot.err = fmt.Errorf("precision of q: %w", sentinel.ErrNotPosDef)
		return
	}
	slot.stat = dense.Resize(slot.stat, k*w.n)
	if w.n > 0 {
		if s.visited[d] {
			slot.change.add(-1, w)
		}
		steps := w.opt.inner(!s.visited[d])
		if slot.err = w.ascend(&s.prior, steps, t, w.tolerance()); slot.err != nil {
			return
		}
		slot.change.add(1, w)
		w.expect(wantStat, slot.stat)
		if i, ok := dense.AllFinite(slot.stat); !ok {
			slot.err = fmt.Errorf("the topics of word %d are %v: %w",
				s.docs[d].Words[i/k], slot.stat[i], sentinel.ErrNotFinite)
		}
	}
	w.save(slot.state)
}

// Evaluate returns the ELBO of all documents at the current topics, μ and Σ. If expectations are
// random, stdErr is the standard error due to their draws. Otherwise stdErr is the gain that the
// means m_n have left at the current topics, which reveals an E-step that did not settle.
func (s *Steps) Evaluate(
	ctx context.Context, workers int, seed uint64,
) (elbo, stdErr float64, random bool, err error) {
	defer s.begin(ctx, workers).Forget()
	n := len(s.docs)
	s.values = dense.Resize(s.values, 2*n)
	values := s.values
	s.seed = seed
	s.each(n, evaluateDocument)
	if err := s.halt.Err(); err != nil {
		return 0, 0, false, err
	}
	var variance float64 // or shortfall
	for i := range n {
		if math.IsNaN(values[i]) {
			return 0, 0, false, fmt.Errorf("ELBO of document %d: %w", i, sentinel.ErrNotFinite)
		}
		elbo += values[i]
		variance += values[n+i]
	}
	stdErr, random = s.o.spread(variance)
	return elbo, stdErr, random, nil
}

// evaluateDocument stores the term of document i in the ELBO, and its variance or remaining gain.
// It stores NaN if there is no term.
func evaluateDocument(s *Steps, w *work, i int) {
	value, more := &s.values[i], &s.values[len(s.docs)+i]
	w.pcg.Seed(s.seed, uint64(i))
	*value, *more = 0, 0
	if len(s.docs[i].Words) == 0 {
		return
	}
	ok := s.open(w, i)
	if ok && s.o.Forget {
		ok = w.ascend(&s.prior, w.opt.inner(true), stepLength(s.ownBeta()), w.tolerance()) == nil
	}
	if !ok {
		*value = math.NaN()
		return
	}
	if *value, *more = w.elbo(&s.prior); !w.opt.paired() {
		*more = w.shortfall(&s.prior)
	}
}

// Clone returns a copy of the state of a model that forgets its documents. The copy shares the
// scratch memory of s, so only one of them may run at a time.
func (s *Steps) Clone() *Steps {
	c := &Steps{
		o: s.o, docs: s.docs, total: s.total, topics: s.topics, steps: s.steps,
		works: s.works, slots: s.slots, slotOf: s.slotOf,
	}
	p, t := &s.prior, &s.topics
	c.prior = normal{slices.Clone(p.mu), slices.Clone(p.cov), slices.Clone(p.prec), p.logDet}
	c.topics.stat, c.topics.sum = slices.Clone(t.stat), slices.Clone(t.sum)
	c.topics.inv = slices.Clone(t.inv)
	c.sums = moments{s.sums.count, slices.Clone(s.sums.m), slices.Clone(s.sums.v)}
	return c
}

// Fitted returns what s has reached.
func (s *Steps) Fitted() *Fitted {
	f := &Fitted{Options: s.o, Beta: s.topics.beta()}
	f.set(s.prior.mu, s.prior.cov)
	if s.o.Forget {
		return f
	}
	f.Docs = make([][]float64, len(s.docs))
	stride := stateLen(s.o.K, s.o.diagonal())
	for n, d := range s.docs {
		if s.visited[n] && len(d.Words) > 0 {
			f.Docs[n] = slices.Clone(s.state[n*stride : (n+1)*stride])
		}
	}
	return f
}

// Snapshot writes or reads all that later steps depend on.
func (s *Steps) Snapshot(c *save.Coder) {
	k, t := s.o.K, &s.topics
	c.Int(&s.steps)
	c.Floats(k, &s.prior.mu, &s.sums.m, &t.sum)
	c.Floats(k*k, &s.prior.cov, &s.prior.prec, &s.sums.v)
	c.Float(&s.prior.logDet, &s.sums.count, &t.scale)
	c.Floats(len(t.stat), &t.stat)
	stride := stateLen(k, s.o.diagonal())
	for n := range s.visited {
		c.Bool(&s.visited[n])
		c.Check(!s.visited[n] || s.state != nil, "document %d of those that are forgotten is kept",
			n)
		if s.visited[n] && c.Err() == nil {
			q := s.state[n*stride : (n+1)*stride]
			c.Floats(stride, &q)
		}
	}
	if c.Reading() {
		t.normalise()
	}
}

// SavedSteps is a Steps that forgets its documents, between two steps.
type SavedSteps struct {
	Steps  int                `json:"steps"`
	Mu     save.List[float64] `json:"mu"`
	Sigma  save.List[float64] `json:"sigma"` // row by row
	Count  float64            `json:"count"`
	SumM   save.List[float64] `json:"sumM"`
	SumV   save.List[float64] `json:"sumV"`
	Scale  float64            `json:"scale"`
	Stat   save.List[float64] `json:"stat"`   // term by term
	Totals save.List[float64] `json:"totals"` // totals of Stat, topic by topic
}

// Saved returns s as it is saved.
func (s *Steps) Saved() *SavedSteps {
	t := &s.topics
	return &SavedSteps{
		s.steps, s.prior.mu, s.prior.cov, s.sums.count, s.sums.m, s.sums.v, t.scale, t.stat, t.sum,
	}
}

// Load returns the state that was saved of a model with the options o. It has no documents.
func (s *SavedSteps) Load(o Options) (*Steps, error) {
	k, terms := o.K, o.Terms
	if s.Steps < 0 || s.Steps > save.Most || len(s.Mu) != k || len(s.Sigma) != k*k ||
		len(s.SumM) != k || len(s.SumV) != k*k || len(s.Totals) != k ||
		len(s.Stat)%k != 0 || len(s.Stat)/k != terms {
		return nil, fmt.Errorf(
			"%d topics and %d terms with %d, %d, %d, %d, %d and %d elements in mu, sigma, sumM, "+
				"sumV, totals and stat: %w",
			k, terms, len(s.Mu), len(s.Sigma), len(s.SumM), len(s.SumV), len(s.Totals), len(s.Stat),
			sentinel.ErrShape)
	}
	st := &Steps{o: o, steps: s.Steps, slotOf: map[int]int{}}
	st.sums = moments{s.Count, s.SumM, s.SumV}
	if err := st.prior.load(s.Mu, s.Sigma); err != nil {
		return nil, err
	}
	st.topics = stats{
		k: k, terms: terms, smooth: o.smooth(),
		scale: s.Scale, stat: s.Stat, sum: s.Totals, inv: make([]float64, k),
	}
	negative := slices.ContainsFunc(s.Stat, func(x float64) bool { return x < 0 })
	if negative || !(s.Scale > 0) || !(s.Count >= 0) {
		return nil, fmt.Errorf("negative statistics, %v documents or scale %v: %w",
			s.Count, s.Scale, sentinel.ErrParam)
	}
	st.topics.normalise()
	for j, x := range st.topics.inv {
		if !(x > 0) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("words of topic %d: %v: %w", j, s.Totals[j], sentinel.ErrParam)
		}
	}
	return st, nil
}
