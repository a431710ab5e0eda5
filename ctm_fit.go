package pgsvi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Fit runs s on the model. A nil s means ten passes in batches of 16 documents,
// with the ELBO evaluated at the end alone: more passes raise the ELBO, but no longer the
// probability of words held out. With a Solver of the caller's, a nil StepSize leaves the
// steps inside to the model; a StepSize is their β_k, and BatchSize and Sampler
// then are the Solver's own. The topics are those of the last steps, which are noisy:
// a Converger does not see a gap. The posterior is that of the state reached and is valid
// even if there is an error after the set-up; it is nil if the set-up failed. The
// errors are those of Solver.Run.
func (m *CTM) Fit(ctx context.Context, s *Solver) (*CTMPosterior, *Result, error) {
	if s == nil {
		s = &Solver{MaxPasses: ctmPasses, EvalEvery: -1}
	}
	res, err := m.run(ctx, s)
	if res == nil {
		return nil, nil, err
	}
	post, e := m.Posterior(res.Stepper)
	if err == nil {
		err = e
	}
	return post, res, err
}

// ctmTrial is the number of passes after which starts are compared.
const ctmTrial = 2

// run is Solver.Run on the best of several starts.
func (m *CTM) run(ctx context.Context, s *Solver) (*Result, error) {
	if m.opt.Starts <= 1 {
		return s.Run(ctx, m)
	}
	src := s.Src
	if src == nil {
		src = rand.NewPCG(seed1, seed2)
	}
	var best *Result
	var bestSrc rand.Source
	begun := time.Now()
	late := &lateStart{inner: s.Converger, begun: begun}
	if s.Converger != nil {
		s.Converger.Init()
	}
	trial := *s
	trial.MaxPasses, trial.EvalEvery, trial.Converger, trial.Recorder = min(ctmTrial, s.maxPasses()), -1, late, nil
	for range m.opt.Starts {
		trial.Src = rand.NewPCG(src.Uint64(), src.Uint64())
		res, err := trial.Run(ctx, m)
		if err != nil {
			return res, err
		}
		if best == nil || res.ELBO > best.ELBO {
			best, bestSrc = res, trial.Src
		}
		if res.Status == TimeLimit {
			best.Status, best.Elapsed = TimeLimit, time.Since(begun)
			return best, nil
		}
	}
	rest := *s
	rest.Src = bestSrc
	rest.MaxPasses = s.maxPasses() - best.Passes
	if s.MaxIter > 0 {
		rest.MaxIter = s.MaxIter - best.Iterations
	}
	if rest.MaxPasses <= passSlack || rest.MaxIter < 0 || s.MaxIter > 0 && rest.MaxIter == 0 {
		best.Elapsed = time.Since(begun)
		return best, nil
	}
	// What follows counts on from the trial that it goes on from.
	spent := time.Since(begun)
	on := func(it Iteration) Iteration {
		it.K, it.Passes, it.Elapsed = it.K+best.Iterations, it.Passes+best.Passes, it.Elapsed+spent
		return it
	}
	if s.Recorder != nil {
		rest.Recorder = RecorderFunc(func(it Iteration) { s.Recorder.Record(on(it)) })
	}
	if s.Converger != nil {
		rest.Converger = convergerFunc{s.Converger.Init, func(it Iteration) Status { return s.Converger.Converged(on(it)) }}
	}
	res, err := rest.Resume(ctx, best.Stepper)
	if res != nil {
		for i, it := range res.Trace {
			res.Trace[i] = on(it)
		}
		res.Trace = append(slices.Clone(best.Trace), res.Trace...)
		res.Passes += best.Passes
		res.Iterations += best.Iterations
		res.Elapsed += spent
	}
	return res, err
}

// lateStart stops a trial where inner says that time is up since begun, and for no other reason.
type lateStart struct {
	inner Converger
	begun time.Time
}

func (c *lateStart) Init() {}

func (c *lateStart) Converged(it Iteration) Status {
	if c.inner == nil {
		return NotTerminated
	}
	it.Elapsed = time.Since(c.begun)
	if c.inner.Converged(it) == TimeLimit {
		return TimeLimit
	}
	return NotTerminated
}

// convergerFunc makes a Converger of two functions.
type convergerFunc struct {
	init      func()
	converged func(it Iteration) Status
}

func (c convergerFunc) Init() { c.init() }

func (c convergerFunc) Converged(it Iteration) Status { return c.converged(it) }

// NewStepper implements Model. Its optional methods: BatchSize, SetWorkers and ELBOErr.
// It returns an error wrapping ErrNoProx if d is another divergence than KL.
func (m *CTM) NewStepper(d Divergence) (Stepper, error) {
	if _, kl := d.(KL); d != nil && !kl {
		return nil, fmt.Errorf("pgsvi: %w: a CTM steps with the KL divergence, not with %T", ErrNoProx, d)
	}
	return newCTMStepper(m)
}

// Posterior returns the posterior at the state of st, a Stepper of this model. The error wraps ErrParam if st is none.
func (m *CTM) Posterior(st Stepper) (*CTMPosterior, error) {
	s, ok := st.(*CTMStepper)
	if !ok || s.m != m {
		return nil, fmt.Errorf("pgsvi: %w: a %T that is no Stepper of this CTM", ErrParam, st)
	}
	s.start(rand.New(rand.NewPCG(seed1, seed2)))
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
