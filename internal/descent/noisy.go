package descent

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// This file takes steps with noisy gradients: of mini-batches, or estimated from draws of q.
//
// Stepper.Step calls approach until q is near the optimum, and average from then on. The result is
// the average of the iterates. endPass estimates how far the average is from the optimum by the
// scatter of its targets (batch means), and verify checks that by gradients at the average itself.

// approach takes a noisy step that lowers the objective of the batch. It evaluates the objective with
// other draws than the gradient. It tries 1, 1/2, 1/3, 1/5 … of the way to the target and takes the
// longest step that helps. If the batch is a part of the terms, KL(q_{k+1}‖q_k) is at most one nat.
// If no step gains much, q is near the optimum.
func (s *Stepper[Q]) approach(ctx context.Context, batch []int) error {
	draws, check := s.sameDraws(), s.sameDraws()
	s.Gap = math.Inf(1)
	if !s.started {
		if moved, err := s.narrow(ctx, check, batch); moved || err != nil {
			return err // narrowing is a step
		}
	}
	if _, err := s.grad(ctx, draws(), s.G, s.Q, batch); err != nil {
		return err
	}
	start, err := s.objective(ctx, check(), s.Q, batch)
	if err != nil {
		return err
	}
	beta, gain, cut := math.Inf(1), 0.0, false
	for range mostImprovings {
		if err := s.Halt.Err(); err != nil {
			return err
		}
		err := s.prox(beta)
		if cut && err == nil {
			beta = s.keepOff(beta)
		}
		cut = cut || err != nil
		if err != nil && !invalid(err) {
			return err
		}
		if err == nil && (s.all || family(s.Trial).KL(s.Q) <= 1) {
			v, err := s.objective(ctx, check(), s.Trial, batch)
			if ctx.Err() != nil {
				return err
			}
			if err == nil && v < start {
				gain = start - v
				break
			}
		}
		if math.IsInf(beta, 1) {
			beta = 1
		} else {
			beta /= 2
		}
	}
	wanders := gain > 0 && !s.all && s.wanders()
	if gain > 0 {
		s.accept(beta)
	} else {
		s.GradMap = 0
	}
	s.Near = wanders || gain < nearGain+nearGainDim*float64(s.Q.Dim())
	return nil
}

// descendNoisy is approach for steps with another D than KL, or without a target. A step starts at
// the double of the last step size, so a few halvings suffice against the curvature of f. If they
// do not help, the gradient is mostly noise, because noise changes the objective in proportion to
// the step size: the phase ends, and the step size stays. Smaller ones would end all progress.
func (s *Stepper[Q]) descendNoisy(ctx context.Context, batch []int) error {
	s.Gap = s.unknownGap()
	same := s.sameDraws()
	start, done, err := s.begin(ctx, same, batch)
	if done || err != nil {
		return err
	}
	check := same
	if !s.o.Exact {
		check = s.sameDraws()
		if start, err = s.objective(ctx, check(), s.Q, batch); err != nil {
			return err
		}
	}
	if s.o.Adapt != nil {
		s.adaptDownhill()
	}
	most := mostImprovings
	if s.started {
		most = noiseHalvings
	}
	var gain float64
	falls := func() bool {
		if most--; most < 0 {
			return true // with the gain 0
		}
		if s.o.Family && !s.all && !(family(s.Trial).KL(s.Q) <= 1) {
			return false
		}
		v, err := s.objective(ctx, check(), s.Trial, batch)
		fell := err == nil && v < start
		if fell {
			gain = start - v
		}
		return fell
	}
	beta, err := s.tryFrom(s.beta, falls)
	if err != nil {
		return err
	}
	if gain == 0 {
		s.GradMap, s.Near, s.beta = 0, true, s.beta/noiseShare
		return nil
	}
	s.started = true
	s.Near = !s.all && s.wanders()
	s.accept(beta)
	s.beta = 2 * beta
	if s.Near {
		s.beta /= noiseShare
	}
	return nil
}

// noiseShare divides the step size that descendNoisy would try next for the first step of average,
// which does not evaluate the objective.
const noiseShare = 4

// noiseHalvings is the number of halvings after which descendNoisy blames the noise.
const noiseHalvings = 5

// unknownGap returns the Gap of a state whose distance from the optimum is not known yet: +Inf, or
// NaN if it can never be known.
func (s *Stepper[Q]) unknownGap() float64 {
	if s.o.Family && s.o.Plain {
		return math.Inf(1)
	}
	return math.NaN()
}

// leastTelling is the fraction of the way to the target below which stepKL would only see rounding.
const leastTelling = 1e-6

// stepKL estimates ½δᵀFδ, where δ is the distance in natural parameters from the state to the
// target. The trial is the fraction ρ = β/(1+β) of the way. stepKL is +Inf if ρ is below
// leastTelling.
func (s *Stepper[Q]) stepKL(beta float64) float64 {
	if !s.o.Family || !s.o.Infinite {
		return math.NaN()
	}
	rho := 1.0
	if !math.IsInf(beta, 1) {
		rho = beta / (1 + beta)
	}
	if rho < leastTelling {
		return math.Inf(1)
	}
	return family(s.Trial).KL(s.Q) / (rho * rho)
}

// wanders reports whether successive steps no longer agree in their direction, in the metric of the
// Fisher information, or in λ if q is no Family. They then consist of noise (Pflug, 1990).
func (s *Stepper[Q]) wanders() bool {
	eta, mu := s.Trial.Params(nil), s.Trial.Params(nil)
	if s.o.Family {
		from, to := family(s.Q), family(s.Trial)
		eta, mu = to.Natural(eta), to.MeanParams(mu)
		floats.Sub(eta, from.Natural(nil))
		floats.Sub(mu, from.MeanParams(nil))
	} else {
		floats.Sub(eta, s.Q.Params(nil))
		copy(mu, eta)
	}
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

// distance returns ½δᵀFδ with δ = to − eta, where eta holds the natural parameters of a and F is the
// Fisher information at a. It takes Fδ from a difference of mean parameters over a valid distance,
// and is at least the rounding error of that difference.
func (s *Stepper[Q]) distance(a Q, eta, to []float64) float64 {
	probe, mu := family(s.Trial), family(a).MeanParams(nil)
	delta, x := make([]float64, len(eta)), make([]float64, len(eta))
	floats.SubTo(delta, to, eta)
	for h := 1.0 / 64; h > 1e-9; h /= 8 {
		if probe.SetNatural(floats.AddScaledTo(x, eta, h, delta)) != nil {
			continue
		}
		f := probe.MeanParams(nil)
		var d, rounding float64
		for i, x := range delta {
			d += x * (f[i] - mu[i])
			rounding += dense.Epsilon * math.Abs(x*mu[i])
		}
		return 0.5 * math.Max(math.Abs(d), rounding) / h
	}
	return math.Inf(1)
}

// batchMeans holds the means of 8 to 15 consecutive blocks of passes. All blocks have the same
// length, which doubles as the run continues.
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

// mostMeans is the number of blocks at which pairs of blocks are merged.
const mostMeans = 16

// leaveAverage ends averaging. The next step starts from the average, if there is one.
func (s *Stepper[Q]) leaveAverage() error {
	if !s.averages {
		return nil
	}
	if err := s.o.Set(s.Q, s.avg); err != nil {
		return err
	}
	s.averages, s.K, s.blocks, s.terms, s.target, s.lastEta = false, 0, batchMeans{}, 0, nil, nil
	s.Near, s.certain, s.replicates = false, math.Inf(1), leastReplicates
	return nil
}

// average takes a noisy step and adds it to the average. There is no average if h may have kinks,
// because an average of iterates would not be at a kink, or if q is no Family.
func (s *Stepper[Q]) average(ctx context.Context, batch []int) error {
	if _, err := s.grad(ctx, nil, s.G, s.Q, batch); err != nil {
		return err
	}
	terms := s.size(batch)
	// A batch that is shorter than the others, such as the last of a pass, goes less far.
	s.usual = max(s.usual, terms)
	most := math.Pow(1+float64(s.K), -0.6) * float64(terms) / float64(s.usual)
	direct := s.o.Family && s.o.Infinite // toward a target
	longest := math.Inf(1)
	switch {
	case !direct:
		longest = s.beta * most
		s.adapt(longest)
	case most < 1:
		longest = most / (1 - most)
	}
	beta, err := s.tryFrom(longest, func() bool {
		return !s.o.Family || family(s.Trial).KL(s.Q) <= 1
	})
	if !direct && invalid(err) && (s.averages || s.settled) {
		return s.again(ctx) // q is next to the edge of the valid set
	}
	if err != nil {
		return err
	}
	if !direct {
		if s.Gap = s.unknownGap(); math.IsNaN(s.Gap) {
			s.K++
			s.accept(beta)
			return nil
		}
		s.Gap = s.certain
	}
	rho := 1.0
	if direct && !math.IsInf(beta, 1) {
		rho = beta / (1 + beta)
	}
	s.addTarget(rho, terms)
	if beta == longest || s.K > 0 || s.wanders() {
		s.K++
	}
	s.accept(beta)
	if s.K == 0 {
		clear(s.target)
		s.terms = 0
		return nil
	}
	if !s.averages {
		s.avg, s.averages, s.averaged = s.o.Clone(s.Q), true, 0
	}
	s.averaged++
	w := (averagePower + 1) / (s.averaged + averagePower)
	a := family(s.avg)
	eta, now := a.Natural(nil), family(s.Q).Natural(nil)
	floats.Scale(1-w, eta)
	floats.AddScaled(eta, w, now)
	if err := a.SetNatural(eta); err != nil {
		return err
	}
	if s.terms >= s.o.N {
		return s.endPass(ctx)
	}
	return nil
}

// addTarget adds the target of the last step to the mean target of the pass, weighted by the number
// of terms. The step went the fraction rho of the way in natural parameters. A step without a target
// adds the new state, with rho = 1.
func (s *Stepper[Q]) addTarget(rho float64, terms int) {
	from, to := family(s.Q).Natural(nil), family(s.Trial).Natural(nil)
	if s.target == nil {
		s.target = make([]float64, len(from))
	}
	for i, f := range from {
		s.target[i] += float64(terms) * (f + (to[i]-f)/rho)
	}
	s.terms += terms
}

// endPass estimates how far the average is from the optimum by the method of batch means. The mean
// target of a block of passes differs from the optimum by the noise δ of the block, and the average
// with weights W differs by ΣWδ, with an expected loss of ΣW²·½δᵀFδ nats. Blocks grow with the run,
// because batches drawn without replacement have noise that cancels over long blocks. When the
// estimate reaches the goal, verify must confirm it. If steps have no target, δ is the distance of
// the mean state of a block from the average.
func (s *Stepper[Q]) endPass(ctx context.Context) error {
	floats.Scale(1/float64(s.terms), s.target)
	s.blocks.add(s.target)
	clear(s.target)
	s.terms = 0
	n := len(s.blocks.means)
	if n < 4 {
		return nil
	}
	a := family(s.avg)
	eta := a.Natural(nil)
	s.Gap = 0
	for i, mean := range s.blocks.means {
		lo, hi := float64(i)/float64(n), float64(i+1)/float64(n)
		w := math.Pow(hi, averagePower+1) - math.Pow(lo, averagePower+1)
		s.Gap += w * w * s.distance(s.avg, eta, mean)
	}
	blocks := s.Gap
	if s.Gap = math.Max(blocks, s.certain); s.o.Infinite && math.IsInf(s.Gap, 1) {
		s.Gap = math.Max(blocks, verifyFrom*s.Goal()) // not at the goal until verified
	}
	if !s.o.Infinite && s.blocks.passes+s.blocks.span*n < s.epoch {
		return nil
	}
	switch {
	case s.certain <= s.Goal():
		return nil
	case blocks <= verifyFrom*s.Goal():
		return s.verify(ctx, blocks)
	case s.o.Infinite:
		return nil
	}
	return s.again(ctx)
}

// again starts another epoch of average for steps without a target. Their step size cannot be known
// in advance, so each epoch corrects it by the objective of the average, with the same draws in all
// epochs:
//
//   - if the objective rose, the epoch is taken back and the step size falls to a quarter;
//   - if it fell by more than the goal, the step size doubles;
//   - otherwise the iterates scatter around a point near the optimum, and the step size halves.
//
// Each epoch is longer than the one before, so the corrections end. An epoch without an average is
// taken back.
func (s *Stepper[Q]) again(ctx context.Context) error {
	if !s.averages {
		s.beta /= 4
		return s.o.Set(s.Q, s.home)
	}
	value, err := s.objective(ctx, rand.New(rand.NewPCG(epochSeed, 0)), s.avg, nil)
	if ctx.Err() != nil {
		return err
	}
	beta, from := s.beta, s.avg
	switch {
	case err != nil || s.settled && value > s.level:
		beta /= 4
	case s.settled && value < s.level-s.Goal():
		beta *= 2
	case s.settled:
		beta /= 2
	}
	if err == nil && !(s.settled && value > s.level) {
		if !s.settled {
			s.home = s.o.Clone(s.avg)
		}
		if err := s.o.Set(s.home, s.avg); err != nil {
			return err
		}
		s.level, s.settled = value, true
	} else if s.settled {
		from = s.home
	}
	if err := s.o.Set(s.avg, from); err != nil {
		return err
	}
	if err := s.leaveAverage(); err != nil {
		return err
	}
	s.Near, s.beta, s.epoch = true, beta, max(leastEpoch, s.epoch+s.epoch/2)
	return nil
}

const (
	// leastEpoch is the number of passes of the first epoch of steps without a target.
	leastEpoch = 8
	// epochSeed is the seed of the draws of again.
	epochSeed = 0x5851f42d4c957f2d
)

// verify takes R gradients over all terms at the average and estimates ½δᵀFδ, where δ is the distance
// from the average to its target. If d_r is the distance of the target of one gradient and d̄ the
// distance of the mean target, then (R²d̄ − Σd_r)/(R(R−1)) has no bias, and the difference to d̄ is
// the noise. The work of R gradients is limited to verifyShare of the work of steps. If the distance
// is larger than noise explains, the iterates have drifted, and averaging starts again from there.
func (s *Stepper[Q]) verify(ctx context.Context, blocks float64) error {
	cost, _ := s.costs()
	cost *= float64(s.o.N)
	replicates := 1
	if !s.o.Exact {
		replicates = min(mostReplicates, int((verifyShare*s.Spent-s.Verified)/cost))
		if replicates < s.replicates {
			return nil
		}
		s.replicates = min(mostReplicates, 2*replicates) // the last number was too small
	}
	a := family(s.avg)
	eta, prior := a.Natural(nil), s.o.Prior // η_p − ∇_μ f is the target
	if prior == nil {
		prior = eta // h = 0
	}
	mean, target := make([]float64, len(eta)), make([]float64, len(eta))
	var sum float64
	for range replicates {
		s.Verified += cost
		if _, err := s.o.Grad(ctx, nil, s.G, s.avg, nil); err != nil {
			s.certain, s.Gap = math.Inf(1), math.Inf(1)
			return context.Cause(ctx)
		}
		floats.SubTo(target, prior, a.MeanGrad(nil, s.G))
		sum += s.distance(s.avg, eta, target)
		floats.AddScaled(mean, 1/float64(replicates), target)
	}
	r := float64(replicates)
	gap := s.distance(s.avg, eta, mean)
	// The quadratic form has at least as many degrees of freedom as q has dimensions.
	var noise float64 // standard error of gap
	if replicates > 1 {
		unbiased := math.Max(0, (r*r*gap-sum)/(r*(r-1)))
		noise = math.Abs(gap-unbiased) * math.Sqrt(2/float64(s.Q.Dim()))
		gap = unbiased
	}
	s.certain = gap + 2*noise
	s.Gap = math.Max(blocks, s.certain)
	if gap-2*noise <= math.Max(s.Goal(), movedAverage*blocks) {
		return nil
	}
	if !s.o.Infinite {
		return s.again(ctx)
	}
	if err := s.o.Set(s.Q, s.avg); err != nil {
		return err
	}
	s.averages, s.blocks, s.certain, s.Gap, s.replicates = false, batchMeans{}, math.Inf(1),
		math.Inf(1), leastReplicates
	s.Near = gap < nearGain+nearGainDim*float64(s.Q.Dim())
	return nil
}

// averagePower is the exponent of the weights k³ of the average.
const averagePower = 3

func (b *batchMeans) state(c *save.Coder, n int) {
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
