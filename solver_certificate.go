package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/descent"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

// Certificate is a Recorder that checks the run of an Objective against the convergence theory of
// Khan et al. (2016). Set it as Solver.Recorder, or in a Tee, and read its fields at any time. It
// is for steps of a given size (Solver.StepSize),
//
//	λ_{k+1} = argmin_λ λᵀĝ_k + h(λ) + D(λ‖λ_k)/β_k,   δ_k = λ_{k+1} − λ_k,   G_k = −δ_k/β_k,
//
// where F = f + h is the negative ELBO. The theory requires that h is convex (A2) and that, along
// the steps of the run and in their coordinates,
//
//	f(λ_{k+1}) ≤ f(λ_k) + δ_kᵀ∇f(λ_k) + ½L‖δ_k‖²     (A1)
//	δ_kᵀ∇_λ D(λ_{k+1}‖λ_k) ≥ α‖δ_k‖²                  (A6)
//	E ĝ_k = ∇f(λ_k),   E‖ĝ_k − ∇f(λ_k)‖² ≤ σ²/M_k     (A3, A4; M_k terms in the batch)
//
// The Certificate uses the largest α and the least L and σ² that hold on the path. It is a
// diagnosis of this run and says nothing about others. It does not use that D is positive (A5).
// After t steps, with C0 = F(λ_0) − min F, the following holds.
//
//	a step         F(λ_k) − F(λ_{k+1}) ≥ (αβ_k − ½Lβ_k²)‖G_k‖²              if ĝ_k = ∇f(λ_k)
//	Proposition 1  min_k ‖G_k‖² ≤ 2LC0/(α²t)                if ĝ_k = ∇f(λ_k), β_k = α/L
//	Proposition 2  min_k ‖G_k‖² ≤ C0 / Σ_k (αβ_k − ½Lβ_k²)  if ĝ_k = ∇f(λ_k), β_k ≤ 2α/L
//	Theorem        E‖G_R‖² ≤ (C0 + ½c Σ_k β_kσ²/M_k) / Σ_k (α'β_k − ½Lβ_k²)
//	               for β_k ≤ 2α'/L, α' = α − 1/(2c), any c > 1/(2α)
//	Proposition 3  E‖G_R‖² ≤ 2LC0/(α'²t) + cσ²/(Mα')        the same for β_k = α'/L, M_k = M
//
// R is drawn with probabilities in proportion to the summands of the denominator. The best c is
// 1/α, which is used throughout. Then α' = α/2. Floor, the part that more steps do not remove, is
// 2σ²/(Mα²) in Proposition 3, and tends to σ²/(Mα²) as β → 0. As G_k contains the noise of ĝ_k,
// no step size brings its bound to 0; a larger batch does.
//
// Three remarks on the paper. A3 lacks the factor N of the estimator that it is about. Faster
// convergence for α > 1 is a matter of scale, as D → cD with β → cβ leaves every λ_k unchanged.
// And KL(q‖p) is not convex in natural parameters, for which A6 is argued there.
//
// A step that is checked costs six values of f over all terms, some more if it was long, and one
// or two gradients if it was noisy. Steps with ‖δ_k‖² < 1e-7 are skipped, as they are mostly
// rounding, and so are steps whose size the Stepper chose.
type Certificate struct {
	// Every is the interval of steps that are checked; the bounds are over these. Zero means all
	// steps.
	Every int
	// Optimum is the greatest ELBO of the family, or a bound on it such as ELBO + GapBound of a
	// fit. Zero means unknown: C0 is then the gain of the run so far, with which every bound also
	// holds.
	Optimum float64
	// Src draws the R of RandomIterate. Nil means a fixed seed.
	Src rand.Source

	// Steps is the number of steps that were checked. If it is 0 the numbers below are NaN, or 0
	// before a run.
	Steps int
	// Alpha is α, the least over the steps. L is the largest over the steps. RelL is the largest
	// constant relative to D, with D(λ_{k+1}‖λ_k) in place of ½‖δ_k‖² (Lu, Freund and Nesterov,
	// 2018). If f was concave along the whole path L is 0 and RelL is negative.
	Alpha, L, RelL float64
	// MaxStep is 2α/L, the largest step size at which no exact step raises F; +Inf if L is 0.
	MaxStep float64
	// C0 is F(λ_0) − min F, in nats; see Optimum.
	C0 float64
	// MinGradMap2 is the least ‖G_k‖², and MeanGradMap2 their mean with the weights of R.
	MinGradMap2, MeanGradMap2 float64
	// Bound is the bound of Proposition 2 on both, if no step was noisy. Otherwise it is that of
	// the theorem on the expectation of MeanGradMap2. It is +Inf if steps were too long.
	Bound float64
	// TotalD is Σ_k [δ_kᵀ∇D(λ_{k+1}‖λ_k) − D(λ_{k+1}‖λ_k)]/β_k, which is Σ_k D(λ_k‖λ_{k+1})/β_k
	// for a Bregman divergence. For exact steps of β_k ≤ 1/RelL it is at most C0: a bound that
	// does not depend on the scale of λ.
	TotalD float64
	// Violations counts the steps that contradict the theory with the α and L of that step or, if
	// the theory says nothing for it, raise F. It also counts noise-free steps whose gradient
	// does not match the values. The cause is a β that was too long, a wrong gradient or proximal
	// step, or an h that is not convex in these coordinates. In a noisy step the decrease of F is
	// compared with its own ĝ_k. Adam violates the theory, as its ĝ_k is not a gradient.
	Violations int
	// TooLong counts the steps with β_k above 2α/L of that step, which may raise F. More
	// Violations than that mean an error.
	TooLong int
	// Sigma2 estimates σ², the mean of M_k‖ĝ_k − ∇f(λ_k)‖² with weights β_k: over batches, over
	// the draws of an estimator, or both. It is 0 if no step was noisy.
	Sigma2 float64
	// Floor is the part of Bound that is due to noise, in proportion to 1/M.
	Floor float64
	// UnbiasedZ tests E ĝ_k = ∇f(λ_k): the sum of (ĝ_k − ∇f(λ_k))ᵀu_k over its standard error,
	// with u_k the direction of ∇f(λ_k). Over many noisy steps it is about N(0, 1), and far from
	// 0 if a scale such as N/M is missing. If an estimator draws, gradients over all terms are
	// compared with values in the same way, and it is the greater of two such numbers. It is NaN
	// without noise, and has no meaning for batches that are not random, such as those of InOrder.
	//
	// If a pass has no term twice, as with Reshuffle, A3 holds for the first batch of the pass
	// alone, because the later ones depend on what is left and λ_k on what is not. Then ∇f(λ_k) is
	// replaced by the gradient over the terms that the pass has left, scaled by N over their
	// number, which is the mean of ĝ_k given the steps before.
	UnbiasedZ float64

	err        error
	begun      bool
	start, now float64 // F at the first state and at the last
	sums       descent.Sums
	pass       passTerms
	draw       *rand.Rand
	candidates descent.Iterates[Dist]
}

const (
	// leastMove is the ‖δ‖² below which rounding is most of what a step shows.
	leastMove = 1e-7
	// certificateSlack is what differences and rounding may leave of an inequality, relative to the
	// terms in it, and numericSlack what a numeric step may, which ends where its objective no
	// longer falls.
	certificateSlack, numericSlack = 1e-8, 1e-5
	// certificateRounding is the same relative to F.
	certificateRounding = 1e-12
)

// Err returns the first error that the Certificate met: it wraps ErrParam if the run is not of an
// Objective (see GP.Objective and GLM.Objective), or its steps are of more than one linearisation
// (Objective.Inner), and otherwise is that of f. Nothing is recorded after it.
func (c *Certificate) Err() error { return c.err }

// BatchSize returns the number of terms in a batch that lowers Floor by factor, at least 1, where
// batches are drawn with replacement. Without it fewer will do. It is at most N, and 0 if no step
// was noisy.
func (c *Certificate) BatchSize(factor float64) int {
	if c.sums.Noisy == 0 {
		return 0
	}
	mean := float64(c.sums.Terms) / float64(c.sums.Noisy)
	return int(math.Min(float64(c.sums.Of), math.Ceil(mean*math.Max(1, factor))))
}

// Record implements Recorder. The first step of a run begins anew. Of a run that is resumed with
// another Certificate λ_0 is where the first step began that this one is shown.
func (c *Certificate) Record(it Iteration) {
	if it.K == 1 || !c.begun && c.err == nil {
		nan := math.NaN()
		*c = Certificate{Every: c.Every, Optimum: c.Optimum, Src: c.Src, Alpha: nan, L: nan,
			RelL: nan, MaxStep: nan, C0: nan,
			MinGradMap2: nan, MeanGradMap2: nan, Bound: nan, Floor: nan, UnbiasedZ: nan, start: nan}
		src := c.Src
		if src == nil {
			src = rand.NewPCG(seed1, seed2)
		}
		c.draw = rand.New(src)
	}
	if c.err != nil {
		return
	}
	if err := c.record(it); err != nil {
		c.err = fmt.Errorf("pgsvi: certificate of iteration %d: %w", it.K, sentinel.Bare(err))
	}
}

func (c *Certificate) record(it Iteration) error {
	s, ok := it.State.(*objectiveStepper)
	if !ok {
		return fmt.Errorf("a %T is not of an Objective, as GP.Objective and GLM.Objective are: %w",
			it.State, ErrParam)
	}
	if s.Inner > 1 {
		return fmt.Errorf("the theory is of one linearisation a step, and Objective.Inner is %d: "+
			"%w", s.Inner, ErrParam)
	}
	stepped := s.given && s.Took > 0 // from s.Trial to s.Q
	defer c.pass.add(s, it)
	if !c.begun {
		c.begun = true
		first := s.Q
		if stepped {
			first = s.Trial
		}
		f, h, _, err := c.value(s, first)
		if err != nil && !errors.Is(err, ErrNotFinite) {
			return err
		}
		c.start = f + h
	}
	if !stepped || it.K%max(1, c.Every) != 0 {
		return nil
	}
	return c.look(s)
}

// env has the same draws whenever it is called before the next step that is looked at.
func (c *Certificate) env() *Env { return NewEnv(rand.NewPCG(seed1, uint64(c.Steps)), 1) }

// value returns f and h at q, and a bound on the numerical error of f where there is one.
func (c *Certificate) value(s *objectiveStepper, q Dist) (f, h, bound float64, err error) {
	f, bound, err = s.F.Value(context.Background(), c.env(), q)
	if !s.exact || math.IsNaN(bound) {
		bound = 0
	}
	return f, s.H.Value(q), bound, err
}

// look takes the last step of s into account, from s.Trial to s.Q with s.G.
func (c *Certificate) look(s *objectiveStepper) error {
	beta := s.Took
	delta := s.Q.Params(nil)
	floats.Sub(delta, s.Trial.Params(nil))
	move2 := floats.Dot(delta, delta)
	if move2 < leastMove {
		return nil
	}
	f0, h0, bound, err := c.value(s, s.Trial)
	if errors.Is(err, ErrNotFinite) {
		return nil // lost in the step before
	}
	if err != nil {
		return err
	}
	f1, h1, _, err := c.value(s, s.Q)
	// it rose without a bound
	if errors.Is(err, ErrNotFinite) || err == nil && math.IsInf(f1+h1, 1) {
		c.Steps, c.Violations, c.TooLong = c.Steps+1, c.Violations+1, c.TooLong+1
		c.L, c.RelL, c.MaxStep, c.Bound = math.Inf(1), math.Inf(1), 0, math.Inf(1)
		return nil
	}
	if err != nil {
		return err
	}
	gradD := s.d.Grad(nil, s.Q, s.Trial)
	d, pull := s.d.Value(s.Q, s.Trial), floats.Dot(delta, gradD)
	rounding := certificateRounding*(math.Abs(f0)+math.Abs(h0)) + 2*bound
	slack := certificateSlack*math.Abs(pull/beta) + rounding

	own := floats.Dot(s.G, delta) // δᵀĝ
	exact := own                  // by a gradient over all terms
	if s.Noisy {
		if exact, err = c.addNoise(s, beta, delta); err != nil {
			return err
		}
	}
	slope, agrees := c.slope(s, delta, f0, exact, slack, rounding)
	if s.Noisy && !s.exact {
		c.sums.Values.Add((exact - slope) / math.Sqrt(move2))
	}
	bend := f1 - f0 - slope
	terms := math.Abs(bend) + math.Abs(slope) + math.Abs(own)
	slack += certificateSlack * terms
	if !s.closed {
		slack += numericSlack * terms
	}
	promised := pull/beta - bend // (aβ − ½lβ²)‖G‖²
	if promised < 0 {
		c.TooLong++
	}
	if s.Noisy {
		promised += own - slope
	} else {
		promised = math.Max(0, promised)
	}
	if fall := f0 + h0 - f1 - h1; !agrees || !(fall >= promised-slack) {
		c.Violations++
	}

	map2 := c.sums.Add(beta, move2)
	c.Steps++
	c.now = f1 + h1
	c.Alpha, c.L, c.RelL = nanMin(c.Alpha, strength(delta, gradD)),
		nanMax(c.L, math.Max(0, 2*bend/move2)), nanMax(c.RelL, bend/d)
	c.MinGradMap2 = nanMin(c.MinGradMap2, map2)
	c.TotalD += (pull - d) / beta
	c.candidates.Keep(s.Trial.Clone, beta, c.draw.ExpFloat64())
	c.conclude()
	return nil
}

// RandomIterate returns a copy of λ_R, the random iterate of the theorem: Bound is on its E‖G_R‖².
//
// R = k has a probability in proportion to α'β_k − ½Lβ_k², where step k was looked at. α' and L are
// those of the whole path so far (α' = α without noise), so λ_R may change as steps are added.
// Over many values of Src the mean of ‖G_R‖² is MeanGradMap2. It is nil before the first step that
// is looked at, and where a step was longer than 2α'/L: there the theorem does not hold.
func (c *Certificate) RandomIterate() Dist {
	alpha := c.sums.Strength(c.Alpha)
	if !(c.L*c.sums.Longest <= 2*alpha) {
		return nil
	}
	if q, ok := c.candidates.Draw(alpha, c.L); ok {
		return q.Clone()
	}
	return nil
}

// slope returns δᵀ∇f where the step began, and whether exact, which is that by the gradient, agrees
// with the values of f on the segment: see descent.Slope.
func (c *Certificate) slope(s *objectiveStepper, delta []float64, f0, exact, slack,
	rounding float64) (slope float64, agrees bool) {
	x0 := s.Trial.Params(nil)
	x, p := make([]float64, len(x0)), s.Trial.Clone()
	f := func(t float64) (float64, bool) {
		if p.SetParams(floats.AddScaledTo(x, x0, t, delta)) != nil {
			return 0, false
		}
		v, _, err := s.F.Value(context.Background(), c.env(), p)
		return v, err == nil
	}
	return descent.Slope(f, f0, exact, certificateSlack*math.Abs(exact)+slack, rounding, !s.exact)
}

// addNoise takes ĝ of the step δ into account, and returns δᵀ∇f by a gradient over all terms. Two
// of them, which are one where f is deterministic, are independent of each other, of ĝ and of δ.
func (c *Certificate) addNoise(s *objectiveStepper, beta float64, delta []float64) (float64,
	error) {
	ctx, env := context.Background(), c.env()
	first := make([]float64, len(s.G))
	if _, err := s.F.Grad(ctx, env, first, s.Trial, nil); err != nil {
		return 0, err
	}
	second := first
	if !s.exact {
		second = make([]float64, len(s.G))
		if _, err := s.F.Grad(ctx, env, second, s.Trial, nil); err != nil {
			return 0, err
		}
	}
	var rest []float64
	if terms, ok := c.pass.left(s.n); ok {
		rest = make([]float64, len(s.G))
		if _, err := s.F.Grad(ctx, env, rest, s.Trial, terms); err != nil {
			return 0, err
		}
	}
	c.sums.Repeats = c.pass.repeats
	c.sums.AddNoise(beta, s.taken, s.n, s.G, first, second, rest)
	return floats.Dot(second, delta), nil
}

// passTerms are the terms that the steps of the current pass have drawn.
type passTerms struct {
	drawn   []bool
	count   int
	lost    bool // the pass began before the Certificate did
	repeats bool // a pass had a term twice: batches are drawn with replacement
}

// left returns the terms that the pass has not drawn. It reports whether they are known.
func (p *passTerms) left(n int) (terms []int, ok bool) {
	if p.lost || p.repeats {
		return nil, false
	}
	for i := range n {
		if p.drawn == nil || !p.drawn[i] {
			terms = append(terms, i)
		}
	}
	return terms, len(terms) > 0
}

// add takes the batch of the last step of s into account.
func (p *passTerms) add(s *objectiveStepper, it Iteration) {
	if p.drawn == nil {
		p.drawn, p.lost = make([]bool, s.n), it.K > 1
	}
	for _, i := range s.batch {
		p.repeats = p.repeats || p.drawn[i]
		p.drawn[i], p.count = true, p.count+1
	}
	ends := math.Abs(it.Passes-math.Round(it.Passes)) < passSlack
	if p.count >= s.n || p.lost && ends || len(s.batch) == 0 {
		clear(p.drawn)
		p.count, p.lost = 0, p.lost && !ends
	}
}

// conclude brings the bounds up to date.
func (c *Certificate) conclude() {
	c.MaxStep = 2 * c.Alpha / c.L
	c.C0 = c.start - c.now
	if c.Optimum != 0 {
		c.C0 = c.Optimum + c.start
	}
	if p := &c.sums; p.Noisy > 0 {
		c.Sigma2, c.UnbiasedZ = p.Noise/p.BetaOfNoise, p.Unbiased()
	}
	c.MeanGradMap2, c.Bound, c.Floor = c.sums.Bounds(c.Alpha, c.L, c.C0)
}

// nanMin and nanMax are the lesser and the greater of two numbers, of which a may be NaN and is
// then none.
func nanMin(a, b float64) float64 {
	if math.IsNaN(a) {
		return b
	}
	return math.Min(a, b)
}

func nanMax(a, b float64) float64 { return -nanMin(-a, -b) }
