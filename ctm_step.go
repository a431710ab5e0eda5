package pgsvi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/mat"
)

// ctmStepper holds the state of a CTM: the sufficient statistics of the topics, N(μ, Σ),
// and q(z_n) of every document visited so far, as m_n and V_n⁻¹: K + K(K+1)/2 floats
// a document, 2K where V_n is diagonal. A document that was not visited has the prior.
//
// A Step visits the documents of the batch, takes a few proximal steps for each, and ends with
// the M-step, of weight ρ_t = (10 + t)^−0.7 at step t,
//
//	S ← (1−ρ_t)S + ρ_t (N/M) Σ_n y_nv E_q[ρ_nvk],   β = argmax_β Σ_kv (S_kv + TopicPrior) log β_kv
//	μ, Σ = argmax_{μ,Σ} Σ_n −KL(q(z_n)‖N(μ, Σ)), with PseudoDocs more documents of q = N(0, I)
//
// the sums being over the M documents of the batch, and over all that were visited so far.
// Each document draws from a stream of its own and sums are taken in the order of the
// batch, so that the result does not depend on the number of workers. A document that
// the batch repeats is visited once and counts as often in the topics.
type ctmStepper struct {
	loop    ctmLoop
	m       *CTM
	docs    float64 // N: the number of documents, of a stream those so far
	prior   ctmPrior
	topics  ctmTopics
	state   []float64 // of the documents, one after the other
	visited []bool
	sums    ctmSums // over the visited documents with words
	next    ctmSums
	steps   int
	works   []*ctmWork
	slots   []ctmSlot
	used    int         // slots of this step
	order   []int       // in which they are visited,
	length  float64     // with steps of this length
	seed    uint64      // and draws from streams of this seed
	slotOf  map[int]int // document → slot
	values  []float64
	chol    []float64
	print   fingerprint
	halt    parallel.Halt // while a step or an evaluation is under way
}

// ctmSlot is what a step learns from one document of its batch.
type ctmSlot struct {
	doc    int
	times  float64   // how often the batch has it
	state  []float64 // the new m and V⁻¹
	stat   []float64 // y_v E[ρ_vk], word by word
	change ctmSums   // what it adds to the sums
	err    error
}

// ctmSums are Σ_n 1, Σ_n m_n and Σ_n V_n + m_n m_nᵀ.
type ctmSums struct {
	count float64
	m, v  []float64 // v is K×K, its lower triangle significant
}

func (s *ctmSums) reset(k int) {
	s.count, s.m, s.v = 0, dense.Resize(s.m, k), dense.Resize(s.v, k*k)
	clear(s.m)
	clear(s.v)
}

// add adds weight times the moments of q.
func (s *ctmSums) add(weight float64, w *ctmWork) {
	w.invert()
	s.count += weight
	for i, m := range w.m {
		s.m[i] += weight * m
		for j, o := range w.m[:i+1] {
			s.v[i*w.k+j] += weight * (w.cov(i, j) + m*o)
		}
	}
}

// addScaled adds weight times o.
func (s *ctmSums) addScaled(weight float64, o *ctmSums) {
	s.count += weight * o.count
	for i, x := range o.m {
		s.m[i] += weight * x
	}
	for i, x := range o.v {
		s.v[i] += weight * x
	}
}

// prior stores in p the N(μ, Σ) that maximises the ELBO of the documents in s together with
// pseudo imagined ones from N(0, I). It reports whether there is one to rounding.
func (s *ctmSums) prior(p *ctmPrior, pseudo float64, scratch *[]float64) bool {
	k := len(s.m)
	n := s.count + pseudo
	*scratch = dense.Resize(*scratch, k+2*k*k)
	mu, cov, rest := (*scratch)[:k], (*scratch)[k:k+k*k], (*scratch)[k+k*k:]
	for i, m := range s.m {
		mu[i] = m / n
		for j := range i + 1 {
			cov[i*k+j] = s.v[i*k+j]/n - mu[i]*mu[j]
		}
		cov[i*k+i] += pseudo / n
	}
	return p.set(mu, cov, &rest)
}

// ctmTopics are the sufficient statistics S of the topics, with β_kv ∝ S_kv + smoothing.
type ctmTopics struct {
	k, terms int
	smooth   float64
	scale    float64   // S is scale·stat
	stat     []float64 // terms × K, so that the K numbers of a word are adjacent
	sum      []float64 // Σ_v stat
	inv      []float64 // 1 / Σ_v (S + smoothing)
}

// set makes S total times the topics given as K rows of non-negative numbers.
func (t *ctmTopics) set(rows [][]float64, total float64) {
	t.k = len(rows)
	t.scale = 1
	t.stat, t.sum, t.inv = make([]float64, t.terms*t.k), make([]float64, t.k), make([]float64, t.k)
	for k, row := range rows {
		var sum float64
		for _, x := range row {
			sum += x
		}
		for v, x := range row {
			t.stat[v*t.k+k] = x / sum * total
		}
		t.sum[k] = total
	}
	t.normalise()
}

func (t *ctmTopics) normalise() {
	for k, s := range t.sum {
		t.inv[k] = 1 / (t.scale*s + t.smooth*float64(t.terms))
	}
}

// gather stores the β of the words in b, word by word.
func (t *ctmTopics) gather(b []float64, words []int) {
	for i, v := range words {
		row := b[i*t.k : (i+1)*t.k]
		for k, x := range t.stat[v*t.k : (v+1)*t.k] {
			row[k] = (t.scale*x + t.smooth) * t.inv[k]
		}
	}
}

// decay multiplies S by 1 − rho.
func (t *ctmTopics) decay(rho float64) {
	t.scale *= 1 - rho
	if t.scale < 1e-100 {
		for i := range t.stat {
			t.stat[i] *= t.scale
		}
		for k := range t.sum {
			t.sum[k] *= t.scale
		}
		t.scale = 1
	}
}

// add adds weight times the statistics of a document, word by word.
func (t *ctmTopics) add(weight float64, stat []float64, words []int) {
	weight /= t.scale
	for i, v := range words {
		row := t.stat[v*t.k : (v+1)*t.k]
		for k, x := range stat[i*t.k : (i+1)*t.k] {
			x *= weight
			row[k] += x
			t.sum[k] += x
		}
	}
}

// beta returns β, terms × K.
func (t *ctmTopics) beta() []float64 {
	b := make([]float64, len(t.stat))
	for i, x := range t.stat {
		b[i] = (t.scale*x + t.smooth) * t.inv[i%t.k]
	}
	return b
}

// newCTMStepper returns a Stepper at the prior, with topics to begin with drawn from rng.
// The error is that of ctx.
func newCTMStepper(ctx context.Context, m *CTM, rng *rand.Rand) (*ctmStepper, error) {
	k := m.k
	s := &ctmStepper{m: m, docs: float64(len(m.docs)), slotOf: map[int]int{}}
	s.topics = ctmTopics{k: k, terms: m.terms, smooth: orDefault(m.opt.TopicPrior, ctmTopicPrior)}
	s.visited = make([]bool, len(m.docs))
	if !m.opt.Forget {
		s.state = make([]float64, len(m.docs)*ctmState(k, m.opt.diagonal()))
	}
	s.sums.reset(k)
	s.next.reset(k)
	s.sums.prior(&s.prior, 1, &s.chol)
	var start [][]float64
	if t, ok := m.opt.Topics.(*mat.Dense); ok {
		start = rowViews(t)
	} else {
		start = topicStarter{m.docs, m.terms, k}.topics(ctx, m.opt.Start, rng)
	}
	if ctx.Err() != nil {
		return nil, prefixed(context.Cause(ctx))
	}
	s.topics.set(start, countTokens(m.docs)/float64(k))
	s.use(nil)
	return s, nil
}

// Len implements State: the number of documents.
func (s *ctmStepper) Len() int { return len(s.m.docs) }

// Plan implements Stepper: ten passes in batches of 16 documents, or 2 for CTMOptions.Paper.
func (s *ctmStepper) Plan() Plan {
	p := Plan{Batch: ctmBatch, MaxPasses: ctmPasses, EvalEvery: -1}
	if s.m.opt.Paper {
		p.Batch = ctmPaperBatch
	}
	return p
}

// use lets the workers of env share the documents of a batch.
func (s *ctmStepper) use(env *Env) {
	n := env.cores()
	for len(s.works) < n {
		s.works = append(s.works, newCTMWork(s.m.k, &s.m.opt))
	}
	s.works = s.works[:n]
}

// begin makes what follows end when ctx is done.
func (s *ctmStepper) begin(ctx context.Context) *parallel.Halt {
	s.halt.Watch(ctx)
	s.loop.Halt = &s.halt
	return &s.halt
}

// ctmLoop is a loop over documents.
type ctmLoop struct {
	parallel.Loop
	s    *ctmStepper
	body func(s *ctmStepper, w *ctmWork, i int)
}

// Do implements parallel.Task.
func (l *ctmLoop) Do(worker, i, _ int) { l.body(l.s, l.s.works[worker], i) }

// each calls f for 0 … n−1, from as many goroutines as there are workers.
func (s *ctmStepper) each(n int, f func(s *ctmStepper, w *ctmWork, i int)) {
	s.loop.s, s.loop.body = s, f
	s.loop.Run(n, 1, len(s.works), &s.loop)
}

// visitSlot is the visit of number i in order.
func visitSlot(s *ctmStepper, w *ctmWork, i int) {
	s.visit(w, &s.slots[s.order[i]], s.length, s.seed)
}

// Step implements Stepper. A beta of +Inf leaves the step size of the documents to the CTM: β = 1,
// which is r = ½, or 0.001 for CTMOptions.Paper. The error names the document and wraps ErrNotPosDef
// or ErrNotFinite; the state is then as it was.
func (s *ctmStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	s.use(env)
	defer s.begin(ctx).Forget()
	if math.IsInf(beta, 1) {
		beta = s.ownBeta()
	}
	if err := s.step(batch, beta, env.rng().Uint64()); err != nil {
		return Step{}, err
	}
	return Step{Beta: beta, ClosedForm: true}, nil
}

func (s *ctmStepper) step(batch []int, beta float64, seed uint64) error {
	s.enter(batch)
	var size float64
	for i := range s.used {
		size += s.slots[i].times
	}
	if s.m.opt.PaperScaled {
		beta *= s.docs / size
	}
	t := stepLength(beta)
	// The longest first, so that the workers end together.
	s.order = s.order[:0]
	for i := range s.used {
		s.order = append(s.order, i)
	}
	slices.SortFunc(s.order, func(i, j int) int {
		return cmp.Or(len(s.m.docs[s.slots[j].doc].Words)-len(s.m.docs[s.slots[i].doc].Words), i-j)
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
	rho := math.Pow(ctmDelay+float64(s.steps), -ctmDecay)
	if err := s.updatePrior(rho, size); err != nil {
		return err
	}
	s.topics.decay(rho)
	stride := ctmState(s.m.k, s.m.opt.diagonal())
	for i := range s.used {
		slot := &s.slots[i]
		d := slot.doc
		s.topics.add(rho*s.docs/size*slot.times, slot.stat, s.m.docs[d].Words)
		if !s.m.opt.Forget {
			copy(s.state[d*stride:], slot.state)
			s.visited[d] = true
		}
	}
	s.topics.normalise()
	s.steps++
	return nil
}

// updatePrior is the M-step for μ and Σ: over all documents visited so far, or where q is
// forgotten over the running average of the batches that the topics use, too.
func (s *ctmStepper) updatePrior(rho, size float64) error {
	old, change := 1.0, 1.0
	if s.m.opt.Forget {
		old, change = 1-rho, rho*s.docs/size
	}
	s.next.reset(s.m.k)
	s.next.addScaled(old, &s.sums)
	for i := range s.used {
		s.next.addScaled(change, &s.slots[i].change)
	}
	if !s.next.prior(&s.prior, orDefault(s.m.opt.PseudoDocs, ctmPseudoDocs), &s.chol) {
		return fmt.Errorf("Sigma after the documents of the batch; use a smaller step size or more PseudoDocs: %w", ErrNotPosDef)
	}
	s.sums, s.next = s.next, s.sums
	return nil
}

// ownBeta returns the step size of a CTM without one.
func (s *ctmStepper) ownBeta() float64 {
	if s.m.opt.Paper {
		return ctmPaperBeta
	}
	return ctmBeta
}

// stepLength returns 1 − r = β/(1 + β).
func stepLength(beta float64) float64 { return beta / (1 + beta) }

// enter fills the slots with the documents of batch.
func (s *ctmStepper) enter(batch []int) {
	s.used = 0
	clear(s.slotOf)
	n := len(batch)
	if batch == nil {
		n = s.Len()
	}
	for i := range n {
		d := dense.Index(batch, i)
		if at, ok := s.slotOf[d]; ok {
			s.slots[at].times++
			continue
		}
		if s.used == len(s.slots) {
			s.slots = append(s.slots, ctmSlot{})
		}
		s.slotOf[d] = s.used
		s.slots[s.used].doc, s.slots[s.used].times = d, 1
		s.used++
	}
}

// open makes w the E-step of document d at its present q.
func (s *ctmStepper) open(w *ctmWork, d int) bool {
	doc := s.m.docs[d]
	w.setDoc(doc)
	s.topics.gather(w.b, doc.Words)
	w.pack()
	if !s.visited[d] || w.n == 0 {
		return w.setPrior(&s.prior)
	}
	stride := ctmState(w.k, w.diag)
	return w.load(s.state[d*stride : (d+1)*stride])
}

// visit is the E-step of a document: proximal steps of length t from its present q, and the
// statistics y_v E_q[ρ_vk] at the q that they reach.
func (s *ctmStepper) visit(w *ctmWork, slot *ctmSlot, t float64, seed uint64) {
	k, d := w.k, slot.doc
	w.pcg.Seed(seed, uint64(d))
	slot.change.reset(k)
	slot.state, slot.err = dense.Resize(slot.state, ctmState(k, w.diag)), nil
	if !s.open(w, d) {
		slot.err = fmt.Errorf("precision of q: %w", ErrNotPosDef)
		return
	}
	slot.stat = dense.Resize(slot.stat, k*w.n)
	if w.n > 0 {
		if s.visited[d] {
			slot.change.add(-1, w)
		}
		if slot.err = w.ascend(&s.prior, w.opt.inner(!s.visited[d]), t, w.tolerance()); slot.err != nil {
			return
		}
		slot.change.add(1, w)
		w.expect(wantStat, slot.stat)
		if i, ok := dense.AllFinite(slot.stat); !ok {
			slot.err = fmt.Errorf("the topics of word %d are %v: %w", s.m.docs[d].Words[i/k], slot.stat[i], ErrNotFinite)
		}
	}
	w.save(slot.state)
}

// Evaluate implements Stepper. The ELBO is that of all documents, at the topics, μ and Σ of the moment. It is an
// estimate where expectations are, with the standard error that is due to their draws. Elsewhere ELBOErr is
// what the means m_n have still to gain at the topics of the moment, so that an E-step that did not settle shows.
func (s *ctmStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	s.use(env)
	defer s.begin(ctx).Forget()
	n := s.Len()
	s.values = dense.Resize(s.values, 2*n)
	values := s.values
	seed := env.rng().Uint64()
	x := s.m.opt.Expectation
	random := x == CTMAntithetic || x == CTMQuasi
	s.seed = seed
	s.each(n, evaluateDocument)
	if err := s.halt.Err(); err != nil {
		return Evaluation{}, err
	}
	var sum, variance float64 // or shortfall
	for i := range n {
		if math.IsNaN(values[i]) {
			return Evaluation{}, fmt.Errorf("ELBO of document %d: %w", i, ErrNotFinite)
		}
		sum += values[i]
		variance += values[n+i]
	}
	e := Evaluation{ELBO: sum, Random: random}
	switch {
	case !random:
		e.ELBOErr = neverZero(variance)
	case s.m.opt.samples() > 2: // of one pair there is no error
		e.ELBOErr = neverZero(math.Sqrt(variance))
	}
	return e, nil
}

// evaluateDocument stores the term of document i in the ELBO, and its variance or what it has still to gain; NaN where there is none.
func evaluateDocument(s *ctmStepper, w *ctmWork, i int) {
	value, more := &s.values[i], &s.values[s.Len()+i]
	w.pcg.Seed(s.seed, uint64(i))
	*value, *more = 0, 0
	if len(s.m.docs[i].Words) == 0 {
		return
	}
	if !s.open(w, i) || s.m.opt.Forget && w.ascend(&s.prior, w.opt.inner(true), stepLength(s.ownBeta()), w.tolerance()) != nil {
		*value = math.NaN()
		return
	}
	if *value, *more = w.elbo(&s.prior); !w.paired() {
		*more = w.shortfall(&s.prior)
	}
}

// clone returns a stepper that goes on as s does, of a model that forgets its documents. It has the
// scratch of s, so that only one of them may be in use at a time.
func (s *ctmStepper) clone() *ctmStepper {
	c := &ctmStepper{m: s.m, docs: s.docs, topics: s.topics, steps: s.steps, works: s.works, slots: s.slots, slotOf: s.slotOf}
	c.prior = ctmPrior{slices.Clone(s.prior.mu), slices.Clone(s.prior.cov), slices.Clone(s.prior.prec), s.prior.logDet}
	c.topics.stat, c.topics.sum, c.topics.inv = slices.Clone(s.topics.stat), slices.Clone(s.topics.sum), slices.Clone(s.topics.inv)
	c.sums = ctmSums{s.sums.count, slices.Clone(s.sums.m), slices.Clone(s.sums.v)}
	return c
}

// MarshalBinary implements Snapshotter. The bytes are not for long storage: see Result.Save.
func (s *ctmStepper) MarshalBinary() ([]byte, error) { return save.Marshal(s.snapshot) }

// UnmarshalBinary implements Snapshotter. The error wraps ErrFile if b is not the state of a Stepper
// of the same CTM; s is then of no use.
func (s *ctmStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.snapshot) }

// constant reports that Evaluate changes nothing.
func (s *ctmStepper) constant() bool { return true }

// snapshot writes or reads all that later steps depend on.
func (s *ctmStepper) snapshot(c *save.State) {
	k, t := s.m.k, &s.topics
	s.print.state(c, s.m.digest)
	c.Int(&s.steps)
	c.Floats(k, &s.prior.mu, &s.sums.m, &t.sum)
	c.Floats(k*k, &s.prior.cov, &s.prior.prec, &s.sums.v)
	c.Float(&s.prior.logDet, &s.sums.count, &t.scale)
	c.Floats(len(t.stat), &t.stat)
	stride := ctmState(k, s.m.opt.diagonal())
	for n := range s.visited {
		c.Bool(&s.visited[n])
		c.Check(!s.visited[n] || s.state != nil, "document %d of those that are forgotten is kept", n)
		if s.visited[n] && c.Err() == nil {
			q := s.state[n*stride : (n+1)*stride]
			c.Floats(stride, &q)
		}
	}
	if c.Reading() {
		t.normalise()
	}
}

// digest shows d the documents and the options.
func (m *CTM) digest(d *save.Digest) {
	o := m.opt
	o.Topics = nil // where a run starts is not what it is of
	d.Text(fmt.Sprintf("%+v", o))
	d.Int(m.k, m.terms, len(m.docs))
	for _, doc := range m.docs {
		d.Int(len(doc.Words))
		d.Int(doc.Words...)
		d.Float(doc.Counts...)
	}
}

// savedCTMStepper is a ctmStepper of a CTMStream between two steps.
type savedCTMStepper struct {
	Steps  int                `json:"steps"`
	Mu     save.List[float64] `json:"mu"`
	Sigma  save.List[float64] `json:"sigma"` // row by row
	Count  float64            `json:"count"`
	SumM   save.List[float64] `json:"sumM"`
	SumV   save.List[float64] `json:"sumV"`
	Scale  float64            `json:"scale"`
	Stat   save.List[float64] `json:"stat"`   // term by term
	Totals save.List[float64] `json:"totals"` // of Stat, topic by topic
}

// save returns s as it is saved.
func (s *ctmStepper) save() *savedCTMStepper {
	t := &s.topics
	return &savedCTMStepper{s.steps, s.prior.mu, s.prior.cov, s.sums.count, s.sums.m, s.sums.v, t.scale, t.stat, t.sum}
}

// load returns the stepper of m.
func (s *savedCTMStepper) load(m *CTM) (*ctmStepper, error) {
	k, terms := m.k, m.terms
	if s.Steps < 0 || s.Steps > mostSaved || len(s.Mu) != k || len(s.Sigma) != k*k || len(s.SumM) != k || len(s.SumV) != k*k || len(s.Totals) != k ||
		len(s.Stat)%k != 0 || len(s.Stat)/k != terms {
		return nil, fmt.Errorf("%d topics and %d terms with %d, %d, %d, %d, %d and %d elements in mu, sigma, sumM, sumV, totals and stat: %w", k, terms, len(s.Mu), len(s.Sigma), len(s.SumM), len(s.SumV), len(s.Totals), len(s.Stat), ErrShape)
	}
	st := &ctmStepper{m: m, steps: s.Steps, slotOf: map[int]int{}, sums: ctmSums{s.Count, s.SumM, s.SumV}}
	if err := st.prior.load(s.Mu, s.Sigma); err != nil {
		return nil, err
	}
	st.topics = ctmTopics{k: k, terms: terms, smooth: orDefault(m.opt.TopicPrior, ctmTopicPrior), scale: s.Scale, stat: s.Stat, sum: s.Totals, inv: make([]float64, k)}
	if i := slices.IndexFunc(s.Stat, func(x float64) bool { return x < 0 }); i >= 0 || !(s.Scale > 0) || !(s.Count >= 0) {
		return nil, fmt.Errorf("negative statistics, %v documents or scale %v: %w", s.Count, s.Scale, ErrParam)
	}
	st.topics.normalise()
	for j, x := range st.topics.inv {
		if !(x > 0) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("words of topic %d: %v: %w", j, s.Totals[j], ErrParam)
		}
	}
	return st, nil
}

// Fit runs s on the model; a nil s means a Solver without options. That is ten passes in batches of 16 documents,
// with the ELBO evaluated at the end alone: more passes raise the ELBO, but no longer the
// probability of words held out. A Solver.Converger makes it one evaluation a pass. A nil StepSize leaves the
// steps inside to the model; a StepSize is their β_k, and BatchSize and Sampler
// then are the Solver's own. The topics are those of the last steps, which are noisy:
// a Converger does not see a gap. The ELBO has several maxima: in about one run of ten on generated documents two topics shared a place, at an ELBO
// some hundred nats lower. Runs with other sources (Solver.Src) tell, and the highest ELBO is the one to keep. The posterior is that of the state reached and is valid
// even if there is an error after the set-up; it is nil if the set-up failed. The
// errors are those of Solver.Run.
func (m *CTM) Fit(ctx context.Context, s *Solver) (*CTMPosterior, *Result, error) {
	return fitModel[*CTMPosterior](ctx, s, m)
}

// NewStepper implements Model. The first topics are drawn from env.
// It returns an error wrapping ErrNoProx if d is another divergence than KL.
func (m *CTM) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: a CTM steps with the KL divergence, not with %T: %w", d, ErrNoProx)
	}
	return newCTMStepper(ctx, m, env.rng())
}

// Posterior returns the posterior at st, a state of this model. The error wraps ErrParam if it is none.
func (m *CTM) Posterior(st State) (*CTMPosterior, error) {
	s, ok := st.(*ctmStepper)
	if !ok || s.m != m {
		return nil, fmt.Errorf("pgsvi: a %T that is no state of this CTM: %w", st, ErrParam)
	}
	p := &CTMPosterior{k: m.k, terms: m.terms, vocab: slices.Clone(m.vocab), opt: m.opt}
	p.opt.Topics = nil
	p.beta = s.topics.beta()
	p.prior.set(slices.Clone(s.prior.mu), slices.Clone(s.prior.cov), new([]float64))
	p.seen = make([]bool, m.terms)
	stride := ctmState(m.k, m.opt.diagonal())
	if !m.opt.Forget {
		p.docs = make([][]float64, len(m.docs))
	}
	for n, d := range m.docs {
		for _, v := range d.Words {
			p.seen[v] = true
		}
		if s.visited[n] && len(d.Words) > 0 {
			p.docs[n] = slices.Clone(s.state[n*stride : (n+1)*stride])
		}
	}
	return p, nil
}

// CTMStream is the Stream of a correlated topic model. It keeps the topics, μ and Σ, and nothing of
// the documents: each is met with the prior, CTMOptions.FirstInner steps are taken, and the M-step at
// the end of every 16 documents averages over the past. The first 256 documents are kept until the
// topics start from them. The posterior has no q(z_n). Documents cannot be removed.
type CTMStream = Stream[Document, *CTMPosterior]

// ctmStream is the engine of a CTMStream.
type ctmStream struct {
	m     *CTM        // without documents
	st    *ctmStepper // nil until the topics start
	pcg   *rand.PCG
	buf   []Document // with words; since the last step
	seen  []bool     // whether a term has occurred
	docs  int        // in the posterior or in buf, those without words included
	items int        // handed over
	done  int        // of buf that a step that was canceled has left behind
}

// ctmWarmUp is the number of documents from which the topics of a stream start.
const ctmWarmUp = 256

// NewCTMStream returns a stream of documents over a vocabulary of the given number of terms. See
// NewCTM for topics, opt and the errors; Paper is refused.
func NewCTMStream(terms, topics int, opt *CTMOptions) (*CTMStream, error) {
	o := CTMOptions{}
	if opt != nil {
		o = *opt
	}
	o.Forget = true
	m, err := newCTM(terms, topics, &o)
	if err != nil {
		return nil, err
	}
	return &CTMStream{&ctmStream{m: m, pcg: rand.NewPCG(seed1, seed2), seen: make([]bool, terms)}}, nil
}

func (s *ctmStream) len() int { return s.docs }

func (s *ctmStream) given() int { return s.items }

func (s *ctmStream) add(ctx context.Context, d Document) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.items++
	if err := d.check(s.m.terms); err != nil {
		return fmt.Errorf("document %d of the stream %w", s.items-1, err)
	}
	s.docs++
	if len(d.Words) == 0 {
		return nil // of which nothing is learnt
	}
	for _, v := range d.Words {
		s.seen[v] = true
	}
	s.buf = append(s.buf, Document{slices.Clone(d.Words), slices.Clone(d.Counts)})
	return s.settle(ctx)
}

// settle learns from the documents in the buffer where they are a batch, or have been begun with. Where ctx is done the error is its cause, and
// there is as much to do as before.
func (s *ctmStream) settle(ctx context.Context) error {
	if s.done == 0 && (len(s.buf) < ctmWarmUp && s.st == nil || len(s.buf) < ctmBatch) {
		return nil
	}
	return s.flush(ctx)
}

// flush learns from the documents in the buffer.
func (s *ctmStream) flush(ctx context.Context) error {
	all, before := s.buf, *s.pcg
	model := *s.m
	model.docs = all
	rng := rand.New(s.pcg)
	if s.st == nil {
		st, err := newCTMStepper(ctx, &model, rng)
		if err != nil {
			*s.pcg = before
			return err
		}
		s.st = st
	}
	s.st.docs = float64(s.docs)
	s.st.m, s.st.visited = &model, make([]bool, len(all))
	index := make([]int, len(all))
	for i := range index {
		index[i] = i
	}
	begun := s.done
	s.buf, s.done = nil, 0
	for batch := range slices.Chunk(index[begun:], ctmBatch) {
		before = *s.pcg
		if _, err := s.st.Step(ctx, &Env{Rng: rng}, batch, math.Inf(1)); err != nil {
			if ctx.Err() != nil {
				s.buf, s.done, *s.pcg = all, batch[0], before
				return err
			}
			lost := len(all) - batch[0]
			s.docs -= lost
			return fmt.Errorf("the last %d documents with words of the %d of the stream: %w", lost, s.items, err)
		}
	}
	return nil
}

func (s *ctmStream) removeAll(context.Context, iter.Seq2[Document, error]) error {
	return fmt.Errorf("pgsvi: documents cannot be removed from a CTMStream, which keeps nothing of them: %w", errors.ErrUnsupported)
}

// posterior steps for the documents in the buffer with a copy of the stream.
func (s *ctmStream) posterior(ctx context.Context) (*CTMPosterior, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if !slices.Contains(s.seen, true) {
		return nil, fmt.Errorf("no document of the stream has words: %w", ErrEmpty)
	}
	if len(s.buf) > 0 {
		pcg := *s.pcg
		ahead := &ctmStream{m: s.m, pcg: &pcg, buf: s.buf, seen: s.seen, docs: s.docs, items: s.items}
		if s.st != nil {
			ahead.st = s.st.clone()
		}
		if err := ahead.flush(ctx); err != nil {
			return nil, err
		}
		s = ahead
	}
	p, err := s.st.m.Posterior(s.st)
	if err != nil {
		return nil, err
	}
	p.seen = slices.Clone(s.seen)
	return p, nil
}

// ctmStreamFile is the file of a CTMStream.
var ctmStreamFile = save.Kind{Name: "CTMStream", Version: 1}

// savedCTMStream is a ctmStream as JSON.
type savedCTMStream struct {
	Terms   int                 `json:"terms"`
	Topics  int                 `json:"topics"`
	Options CTMOptions          `json:"options"`         // but for Topics,
	Start   save.List[float64]  `json:"start,omitempty"` // which are here, row by row, unless State is
	Rng     []byte              `json:"rng"`             // a rand.PCG
	Docs    int                 `json:"docs"`
	Items   int                 `json:"items"`
	Seen    save.List[bool]     `json:"seen"`
	Buffer  save.List[Document] `json:"buffer"`
	State   *savedCTMStepper    `json:"state,omitempty"`
}

func (s *ctmStream) save(w io.Writer) error {
	if err := s.settle(context.Background()); err != nil {
		return prefixed(err)
	}
	rng, err := s.pcg.MarshalBinary()
	if err != nil {
		return prefixed(err)
	}
	saved := &savedCTMStream{Terms: s.m.terms, Topics: s.m.k, Options: s.m.opt, Rng: rng, Docs: s.docs, Items: s.items, Seen: s.seen, Buffer: s.buf}
	saved.Options.Topics = nil
	switch st := s.st; {
	case st != nil:
		saved.State = st.save()
	case s.m.opt.Topics != nil:
		saved.Start = mat.DenseCopyOf(s.m.opt.Topics).RawMatrix().Data
	}
	return saveTo(w, ctmStreamFile, saved)
}

// LoadCTMStream reads what Save of a CTMStream has written, which must be all of r. The stream
// goes on as the one that was saved would have, to the last bit. The error wraps ErrFile if r has no
// such file, or one that is damaged or of a newer release, or whose numbers make no stream. A
// failure of r is wrapped as it is.
func LoadCTMStream(r io.Reader) (*CTMStream, error) {
	return loadFrom(r, ctmStreamFile, (*savedCTMStream).load)
}

func (s *savedCTMStream) load() (*CTMStream, error) {
	k, terms := s.Topics, s.Terms
	if k < 1 || terms < 1 || len(s.Seen) != terms || s.Start != nil && (len(s.Start)%k != 0 || len(s.Start)/k != terms) ||
		s.Items < s.Docs || s.Items > mostSaved || s.Docs < len(s.Buffer) {
		return nil, fmt.Errorf("%d topics and %d terms, %d known, with %d starting probabilities and %d documents, %d of them waiting, of %d: %w", k, terms, len(s.Seen), len(s.Start), s.Docs, len(s.Buffer), s.Items, ErrShape)
	}
	opt := s.Options
	if s.Start != nil {
		opt.Topics = mat.NewDense(k, terms, s.Start)
	}
	if !opt.Forget {
		return nil, fmt.Errorf("a stream that does not forget: %w", ErrParam)
	}
	m, err := newCTM(terms, k, &opt)
	if err != nil {
		return nil, err
	}
	t := &ctmStream{m: m, pcg: new(rand.PCG), buf: s.Buffer, seen: s.Seen, docs: s.Docs, items: s.Items}
	if err := t.pcg.UnmarshalBinary(s.Rng); err != nil {
		return nil, err
	}
	for i, d := range s.Buffer {
		if err := d.check(terms); err != nil {
			return nil, fmt.Errorf("waiting document %d %w", i, err)
		}
		if len(d.Words) == 0 {
			return nil, fmt.Errorf("waiting document %d has no words: %w", i, ErrEmpty)
		}
		for _, v := range d.Words {
			if !s.Seen[v] {
				return nil, fmt.Errorf("waiting document %d has word %d, which is not among those seen: %w", i, v, ErrParam)
			}
		}
	}
	if s.State != nil {
		t.st, err = s.State.load(m)
	} else if len(s.Buffer) == 0 && slices.Contains(s.Seen, true) {
		err = fmt.Errorf("words without documents: %w", ErrShape)
	}
	return &CTMStream{t}, err
}
