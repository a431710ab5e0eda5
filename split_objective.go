package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// Fit runs s on the objective; a nil s means a Solver without options, which needs no
// tuning. It returns q(z|λ) at the state reached, owned by the caller and valid even if
// there is an error after the set-up; it is the zero Q, nil for a pointer, if the set-up
// failed. The errors are those of Solver.Run.
func (o Objective[Q]) Fit(ctx context.Context, s *Solver) (Q, *Result, error) {
	return fitModel[Q](ctx, s, o)
}

// Posterior returns a copy of q(z|λ) at st, a state of an Objective over the same Q: the
// average of the iterates where there is one. The error wraps ErrParam if st is none.
func (o Objective[Q]) Posterior(st State) (q Q, err error) {
	s, ok := st.(*objectiveStepper)
	if !ok {
		return q, fmt.Errorf("pgsvi: a %T that is no state of an Objective: %w", st, ErrParam)
	}
	reached := s.dist().Clone()
	if q, ok = reached.(Q); !ok {
		return q, fmt.Errorf("pgsvi: a state over a %T, of another Objective: %w", reached, ErrParam)
	}
	return q, nil
}

// NewStepper implements Model. A nil d means KL, or Euclidean if Init is no
// ExpFamily. It returns an error wrapping ErrParam if Init
// is nil, ErrEmpty if F has no terms, ErrNoProx if the pair (H, d) has no
// proximal step on the family of Init, or what the parts of the objective
// say of each other.
func (o Objective[Q]) NewStepper(_ context.Context, _ *Env, d Divergence) (Stepper, error) {
	if v := reflect.ValueOf(o.Init); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("pgsvi: Objective.Init is nil: %w", ErrParam)
	}
	return problem{o.F, o.H, o.Init}.newStepper(d)
}

// problem is an Objective over a Dist of any type, which does the work.
type problem struct {
	F    Smooth
	H    Convex
	Init Dist
}

func (o problem) newStepper(d Divergence) (Stepper, error) {
	if o.F == nil {
		o.F = noTerms()
	}
	if o.H == nil {
		o.H = Zero{}
	}
	if d == nil {
		d = KL{}
		if _, ok := o.Init.(ExpFamily); !ok {
			d = Euclidean{}
		}
	}
	t, err := o.F.Setup(o.Init)
	if err != nil {
		return nil, err
	}
	if t.N < 1 {
		return nil, fmt.Errorf("pgsvi: Objective.F has %d terms: %w", t.N, ErrEmpty)
	}
	if err := o.H.Check(o.Init); err != nil {
		return nil, err
	}
	if err := d.Check(o.Init); err != nil {
		return nil, err
	}
	var metric Metric
	if a, ok := d.(Adaptive); ok {
		n := o.Init.NumParams()
		unit := make([]float64, n)
		floats.AddConst(1, unit)
		metric, d = a.Start(n), diagonalMetric{unit}
	}
	closed, err := checkProx(o.Init, o.H, d)
	if err != nil {
		return nil, err
	}
	s := newObjectiveStepper(o, d, closed)
	s.n, s.exact, s.metric = t.N, t.Deterministic, metric
	return s, nil
}

// objectiveStepper takes the steps of an Objective, for any f, h and D.
//
// With β = +Inf it chooses the step itself. Where f is deterministic and the
// batch is all terms, a step is accepted if the objective does not rise, else
// halved. Where f is noisy, a step is as long as keeps KL(q_{k+1}‖q_k) within one
// nat, at most ρ_k = (1+k)^−0.6 of the way to the target, k counting the steps
// since the first that was not cut short by the former, or since they only
// wander; and the natural parameters are averaged with weights that grow as k³,
// which removes most of the noise (Polyak and Juditsky, 1992).
type objectiveStepper struct {
	o        problem
	d        Divergence
	metric   Metric // of an Adaptive divergence, whose diagonal d then holds; else nil
	prox     Prox   // the step that is tried
	closed   bool   // the proximal step has a closed form
	n        int    // number of terms
	exact    bool   // f is deterministic
	infinite bool   // β = +Inf is a valid step: the minimiser of the linearised f plus h
	q, trial Dist
	g        []float64

	beta     float64   // the next step to try
	k        int       // steps that count for the average or a decreasing step size
	avg      Dist      // average of the natural parameters; nil before the first
	target   []float64 // sum of the targets of the pass, weighted by terms
	terms    int
	usual    int     // size of the largest batch so far
	averaged float64 // number of iterates in avg
	blocks   batchMeans
	gap      float64
	gradMap  float64
	checker  allTerms

	print fingerprint

	lastEta, lastMu []float64 // the last step, while k is 0
	agree           float64   // running mean of the cosine between successive steps
}

func newObjectiveStepper(o problem, d Divergence, closed bool) *objectiveStepper {
	s := &objectiveStepper{o: o, d: d, closed: closed, q: o.Init.Clone(), trial: o.Init.Clone(),
		g: make([]float64, o.Init.NumParams()), gap: math.NaN(), gradMap: math.NaN()}
	s.infinite = closed && isKL(d) && priorOf(o.H) != nil
	s.beta = 1
	if s.infinite {
		s.beta = math.Inf(1)
	}
	return s
}

// Len implements Stepper.
func (s *objectiveStepper) Len() int { return s.n }

// Plan implements Stepper: all terms, or the Solver's BatchSize of them.
func (s *objectiveStepper) Plan() Plan { return Plan{} }

// objectiveGoal is the gap, in nats a dimension, at which a run with noisy gradients is
// content: the loss of a mean that is off by 0.06 posterior standard deviations.
const objectiveGoal = 2e-3

// goal returns the gap at which averages of noisy steps are good enough.
func (s *objectiveStepper) goal() float64 { return objectiveGoal * float64(s.q.Dim()) }

// dist returns the state reached: the average of the iterates where there is one.
func (s *objectiveStepper) dist() Dist {
	if s.avg != nil {
		return s.avg
	}
	return s.q
}

// Evaluate implements Stepper. A value that is not finite is an error wrapping ErrDiverged.
func (s *objectiveStepper) Evaluate(ctx context.Context, env *Env) (Evaluation, error) {
	q := s.dist()
	v, stderr, err := s.o.F.Value(ctx, env, q)
	if err != nil {
		return Evaluation{}, err
	}
	e := Evaluation{ELBO: -v - s.o.H.Value(q), ELBOErr: neverZero(stderr), Random: !s.exact, Gap: neverZero(s.gap)}
	if math.IsNaN(e.ELBO) || math.IsInf(e.ELBO, 0) {
		return e, fmt.Errorf("the ELBO is %v; take smaller steps, or leave Solver.StepSize nil: %w", e.ELBO, ErrDiverged)
	}
	if s.avg != nil {
		e.Goal = s.goal()
	}
	return e, nil
}

// Step implements Stepper.
func (s *objectiveStepper) Step(ctx context.Context, env *Env, batch []int, beta float64) (Step, error) {
	if err := s.step(ctx, env, batch, beta); err != nil {
		return Step{}, err
	}
	return Step{Beta: beta, GradMap: neverZero(s.gradMap), ClosedForm: s.closed}, nil
}

func (s *objectiveStepper) step(ctx context.Context, env *Env, batch []int, beta float64) error {
	if !math.IsInf(beta, 1) {
		if err := s.leaveAverage(); err != nil {
			return err
		}
		if _, err := s.o.F.Grad(ctx, env, s.g, s.q, batch); err != nil {
			return err
		}
		s.adapt(beta)
		beta, err := s.tryFrom(beta, nil)
		if err != nil {
			return err
		}
		s.gap = math.NaN()
		s.accept(beta)
		return nil
	}
	noisy := !s.exact || !s.checker.all(batch, s.Len())
	if _, ok := s.q.(ExpFamily); ok && s.infinite && noisy {
		return s.average(ctx, env, batch)
	}
	if err := s.leaveAverage(); err != nil {
		return err
	}
	return s.descend(ctx, env, batch, noisy)
}

// leaveAverage goes on from the average, where there is one, without averaging.
func (s *objectiveStepper) leaveAverage() error {
	if s.avg == nil {
		return nil
	}
	if err := setDist(s.q, s.avg); err != nil {
		return err
	}
	s.avg, s.k, s.blocks, s.terms, s.target, s.lastEta = nil, 0, batchMeans{}, 0, nil, nil
	return nil
}

// adapt shows the gradient to the metric of an Adaptive divergence.
func (s *objectiveStepper) adapt(beta float64) {
	if s.metric != nil {
		s.metric.Next(s.d.(diagonalMetric).Scale, s.g, beta)
	}
}

// tryFrom computes the proximal step with beta, halving it until the result
// is valid and passes check, and returns the step size it ended with: 0 if there are valid
// results but none that passes.
func (s *objectiveStepper) tryFrom(beta float64, check func() bool) (float64, error) {
	var err error
	valid := false
	for range 100 {
		s.prox = Prox{Grad: s.g, H: s.o.H, D: s.d, From: s.q, Beta: beta}
		_, err = s.prox.Solve(s.trial)
		if err == nil && (check == nil || check()) {
			return beta, nil
		}
		valid = valid || err == nil
		if err != nil && !errors.Is(err, ErrNotPosDef) && !errors.Is(err, ErrNotFinite) {
			return 0, err
		}
		if math.IsInf(beta, 1) {
			beta = 1
		} else {
			beta /= 2
		}
	}
	if err != nil && !valid { // where steps were valid but did not pass, shorter ones are lost to rounding
		return 0, fmt.Errorf("no step size gives a valid distribution: %w", bare{err})
	}
	return 0, nil
}

// accept makes the trial the state.
func (s *objectiveStepper) accept(beta float64) {
	if math.IsInf(beta, 1) {
		beta = 1
	}
	s.gradMap = floats.Distance(s.q.Params(nil), s.trial.Params(nil), 2) / beta
	s.q, s.trial = s.trial, s.q
}

// descend takes an accepted step: the objective of the batch, with the same
// draws before and after, does not rise. A step of length zero is a step.
func (s *objectiveStepper) descend(ctx context.Context, env *Env, batch []int, noisy bool) error {
	rng := env.rng()
	seed := [2]uint64{rng.Uint64(), rng.Uint64()}
	same := func() *Env { return NewEnv(rand.NewPCG(seed[0], seed[1]), env.Workers()) }
	f, err := s.o.F.Grad(ctx, same(), s.g, s.q, batch)
	if err != nil {
		return err
	}
	start := f + s.o.H.Value(s.q)
	if math.IsNaN(start) || math.IsInf(start, 0) {
		return fmt.Errorf("pgsvi: the objective of the batch is %v: %w", start, ErrNotFinite)
	}
	scratch := make([]float64, len(s.g))
	falls := func() bool {
		f, err := s.o.F.Grad(ctx, same(), scratch, s.trial, batch)
		v := f + s.o.H.Value(s.trial)
		return err == nil && v <= start+1e-13*math.Abs(start)
	}
	if s.metric != nil {
		g := append([]float64(nil), s.g...)
		s.adapt(1)
		var slope float64
		for i, scale := range s.d.(diagonalMetric).Scale {
			slope += g[i] * s.g[i] / scale
		}
		if !(slope > 0) {
			copy(s.g, g) // momentum leads uphill, the gradient does not
		}
	}
	beta, err := s.tryFrom(s.beta, falls)
	if err != nil && s.beta < 1 { // the last step may have been so short that this one begins in rounding
		beta, err = s.tryFrom(1, falls)
	}
	if err != nil || beta == 0 {
		s.gradMap, s.beta = 0, 1
		return err
	}
	s.gap = s.stepKL(beta)
	s.accept(beta)
	s.beta = 2 * beta
	if s.infinite && s.beta > 100 {
		s.beta = math.Inf(1)
	}
	if noisy {
		s.k++
		s.beta = math.Min(s.beta, s.beta*math.Pow(1+1/float64(s.k), -0.6)/2)
	}
	return nil
}

// stepKL estimates ½δᵀFδ, δ the distance in natural parameters from the state
// to the target of which the trial is a fraction ρ = β/(1+β).
func (s *objectiveStepper) stepKL(beta float64) float64 {
	e, ok := s.trial.(ExpFamily)
	if !ok || !s.infinite {
		return math.NaN()
	}
	rho := 1.0
	if !math.IsInf(beta, 1) {
		rho = beta / (1 + beta)
	}
	return e.KL(s.q) / (rho * rho)
}

// wanders reports whether successive steps no longer agree in their direction,
// in the metric of the Fisher information: they are noise (Pflug, 1990).
func (s *objectiveStepper) wanders() bool {
	from, to := s.q.(ExpFamily), s.trial.(ExpFamily)
	eta, mu := to.Natural(nil), to.MeanParams(nil)
	floats.Sub(eta, from.Natural(nil))
	floats.Sub(mu, from.MeanParams(nil))
	if s.lastEta == nil {
		s.agree = 1
	} else {
		norm := math.Sqrt(math.Abs(floats.Dot(eta, mu) * floats.Dot(s.lastEta, s.lastMu)))
		if cos := 0.5 * (floats.Dot(eta, s.lastMu) + floats.Dot(s.lastEta, mu)) / norm; norm > 0 {
			s.agree += 0.2 * (cos - s.agree)
		}
	}
	s.lastEta, s.lastMu = eta, mu
	return s.agree < 0
}

// average takes a noisy step and adds it to the average.
func (s *objectiveStepper) average(ctx context.Context, env *Env, batch []int) error {
	if _, err := s.o.F.Grad(ctx, env, s.g, s.q, batch); err != nil {
		return err
	}
	terms := len(batch)
	if batch == nil {
		terms = s.Len()
	}
	// A batch shorter than the others, as the last of a pass, goes less far.
	s.usual = max(s.usual, terms)
	most := math.Pow(1+float64(s.k), -0.6) * float64(terms) / float64(s.usual)
	longest := math.Inf(1)
	if most < 1 {
		longest = most / (1 - most)
	}
	beta, err := s.tryFrom(longest, func() bool { return s.trial.(ExpFamily).KL(s.q) <= 1 })
	if err != nil {
		return err
	}
	rho := 1.0
	if !math.IsInf(beta, 1) {
		rho = beta / (1 + beta)
	}
	s.addTarget(rho, terms)
	if beta == longest || s.k > 0 || s.wanders() {
		s.k++
	}
	s.accept(beta)
	if s.k == 0 {
		clear(s.target)
		s.terms = 0
		return nil
	}
	if s.avg == nil {
		s.avg, s.averaged = s.q.Clone(), 0
	}
	s.averaged++
	w := (averagePower + 1) / (s.averaged + averagePower)
	a := s.avg.(ExpFamily)
	eta, now := a.Natural(nil), s.q.(ExpFamily).Natural(nil)
	floats.Scale(1-w, eta)
	floats.AddScaled(eta, w, now)
	if err := a.SetNatural(eta); err != nil {
		return err
	}
	if s.terms >= s.Len() {
		return s.endPass(ctx, env)
	}
	return nil
}

// addTarget adds the target of a step that went the fraction rho of the way to
// it, in natural parameters and weighted by the number of terms, to the mean of the pass.
func (s *objectiveStepper) addTarget(rho float64, terms int) {
	from, to := s.q.(ExpFamily).Natural(nil), s.trial.(ExpFamily).Natural(nil)
	if s.target == nil {
		s.target = make([]float64, len(from))
	}
	for i, f := range from {
		s.target[i] += float64(terms) * (f + (to[i]-f)/rho)
	}
	s.terms += terms
}

// endPass updates the estimate of how far the average is from the optimum, by
// the method of batch means: the mean target of a block of passes differs from
// the optimum by the noise of the block, δ, and their average with weights W by
// ΣWδ, with an expected loss of ΣW²·½δᵀFδ nats. Blocks grow with the run, so
// that noise which cancels in the long run, as that of batches drawn without
// replacement does, counts for what it is. Once the estimate is at its goal,
// the target at the average itself, over all terms, must agree.
func (s *objectiveStepper) endPass(ctx context.Context, env *Env) error {
	floats.Scale(1/float64(s.terms), s.target)
	s.blocks.add(s.target)
	clear(s.target)
	s.terms = 0
	n := len(s.blocks.means)
	if n < 4 {
		return nil
	}
	a := s.avg.(ExpFamily)
	eta := a.Natural(nil)
	s.gap = 0
	for i, mean := range s.blocks.means {
		lo, hi := float64(i)/float64(n), float64(i+1)/float64(n)
		w := math.Pow(hi, averagePower+1) - math.Pow(lo, averagePower+1)
		s.gap += w * w * s.distance(a, eta, mean)
	}
	if s.gap > s.goal() {
		return nil
	}
	if _, err := s.o.F.Grad(ctx, env, s.g, s.avg, nil); err != nil {
		s.gap = math.Inf(1) // the step itself stands
		return nil
	}
	target := a.naturalOf(priorOf(s.o.H)) // η_p − ∇_μ f
	floats.Sub(target, a.MeanGrad(nil, s.g))
	s.gap = math.Max(s.gap, s.distance(a, eta, target))
	if s.gap > s.goal() {
		// The noise of the iterates has moved their average: start anew from here.
		if err := setDist(s.q, s.avg); err != nil {
			return err
		}
		s.avg, s.blocks = nil, batchMeans{}
	}
	return nil
}

// distance returns ½δᵀFδ, δ = to − eta, with the Fisher information at a, whose
// natural parameters are eta: by a difference of mean parameters, over a
// distance that is valid.
func (s *objectiveStepper) distance(a ExpFamily, eta, to []float64) float64 {
	probe, mu := s.trial.(ExpFamily), a.MeanParams(nil)
	delta, x := make([]float64, len(eta)), make([]float64, len(eta))
	floats.SubTo(delta, to, eta)
	for h := 1.0 / 64; h > 1e-9; h /= 8 {
		if probe.SetNatural(floats.AddScaledTo(x, eta, h, delta)) != nil {
			continue
		}
		f := probe.MeanParams(nil)
		floats.Sub(f, mu)
		return math.Abs(0.5 * floats.Dot(delta, f) / h)
	}
	return math.Inf(1)
}

// batchMeans holds the means of 8 to 15 consecutive blocks of passes, of equal
// length, which doubles as the run goes on.
type batchMeans struct {
	means  [][]float64
	span   int // passes in a block
	sum    []float64
	passes int // passes in sum
}

func (b *batchMeans) add(mean []float64) {
	if b.span == 0 {
		b.span, b.sum = 1, make([]float64, len(mean))
	}
	floats.Add(b.sum, mean)
	b.passes++
	if b.passes < b.span {
		return
	}
	block := make([]float64, len(mean))
	floats.AddScaled(block, 1/float64(b.span), b.sum)
	clear(b.sum)
	b.passes = 0
	b.means = append(b.means, block)
	if len(b.means) < mostMeans {
		return
	}
	for i := range mostMeans / 2 {
		m := b.means[2*i]
		floats.Add(m, b.means[2*i+1])
		floats.Scale(0.5, m)
		b.means[i] = m
	}
	b.means, b.span = b.means[:mostMeans/2], 2*b.span
}

// mostMeans is the number of blocks at which two become one.
const mostMeans = 16

// averagePower is the power of k with which the weights of the average grow.
const averagePower = 3

// MarshalBinary implements Snapshotter. The bytes are not for long storage: see Result.Save. The error wraps
// ErrParam if the Metric of an Adaptive divergence is no encoding.BinaryMarshaler and
// encoding.BinaryUnmarshaler.
func (s *objectiveStepper) MarshalBinary() ([]byte, error) {
	b, err := save.Marshal(s.state)
	return b, prefixed(err)
}

// UnmarshalBinary implements Snapshotter. The error wraps ErrFile if b is not the state of a Stepper
// of the same Objective, as far as can be seen: of functions of the caller's only the
// types are known; s is then of no use.
func (s *objectiveStepper) UnmarshalBinary(b []byte) error { return unmarshalState(b, s.state) }

// constant reports that Evaluate changes nothing.
func (s *objectiveStepper) constant() bool { return true }

func (s *objectiveStepper) state(c *save.State) {
	n := len(s.g)
	s.print.state(c, func(d *save.Digest) {
		d.Int(s.n, n)
		d.Text(fmt.Sprintf("%T %T %T %T %t %t", s.q, s.o.H, s.d, s.metric, s.exact, s.closed))
		digestPart(d, s.o.F)
		d.Float(s.o.H.Value(s.o.Init))
		d.Float(s.o.Init.Params(nil)...)
	})
	distState(c, s.q)
	averages := s.avg != nil
	if c.Bool(&averages); averages {
		if s.avg == nil {
			s.avg = s.q.Clone()
		}
		distState(c, s.avg)
	} else {
		s.avg = nil
	}
	c.Float(&s.beta, &s.averaged, &s.gap, &s.gradMap, &s.agree)
	c.Int(&s.k, &s.terms, &s.usual)
	c.Floats(n, &s.target, &s.lastEta, &s.lastMu)
	s.blocks.state(c, n)
	if s.metric != nil {
		partState(c, s.metric)
	}
}

func (b *batchMeans) state(c *save.State, n int) {
	size := len(b.means)
	c.Int(&size, &b.span, &b.passes)
	c.Check(size < mostMeans, "%d means of blocks, of fewer than %d", size, mostMeans)
	c.Floats(n, &b.sum)
	c.Check(b.span == 0 || b.sum != nil, "blocks of passes without a sum")
	if c.Reading() {
		b.means = make([][]float64, size)
	}
	for i := range b.means {
		c.Floats(n, &b.means[i])
	}
}
