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

// Certificate checks the run of an Objective against the convergence theory of Khan et al. (2016).
// Set its method Record as Solver.Record, directly or in a Tee, and read its fields at any time. It
// needs steps of a given size (Solver.StepSize),
//
//	λ_{k+1} = argmin_λ λᵀĝ_k + h(λ) + D(λ‖λ_k)/β_k,   δ_k = λ_{k+1} − λ_k,   G_k = −δ_k/β_k,
//
// with F = f + h the negative ELBO. The theory requires that h is convex (A2) and that the
// following holds along the steps of the run, in their coordinates:
//
//	f(λ_{k+1}) ≤ f(λ_k) + δ_kᵀ∇f(λ_k) + ½L‖δ_k‖²     (A1)
//	δ_kᵀ∇_λ D(λ_{k+1}‖λ_k) ≥ α‖δ_k‖²                  (A6)
//	E ĝ_k = ∇f(λ_k),   E‖ĝ_k − ∇f(λ_k)‖² ≤ σ²/M_k     (A3, A4; M_k terms in the batch)
//
// The Certificate uses the largest α and the smallest L and σ² that hold on the path, so it is a
// diagnosis of this run only. It does not use that D is positive (A5). After t steps, with C0 =
// F(λ_0) − min F:
//
//	one step       F(λ_k) − F(λ_{k+1}) ≥ (αβ_k − ½Lβ_k²)‖G_k‖²              if ĝ_k = ∇f(λ_k)
//	Proposition 1  min_k ‖G_k‖² ≤ 2LC0/(α²t)                if ĝ_k = ∇f(λ_k), β_k = α/L
//	Proposition 2  min_k ‖G_k‖² ≤ C0 / Σ_k (αβ_k − ½Lβ_k²)  if ĝ_k = ∇f(λ_k), β_k ≤ 2α/L
//	Theorem        E‖G_R‖² ≤ (C0 + ½c Σ_k β_kσ²/M_k) / Σ_k (α'β_k − ½Lβ_k²)
//	               for β_k ≤ 2α'/L, α' = α − 1/(2c), any c > 1/(2α)
//	Proposition 3  E‖G_R‖² ≤ 2LC0/(α'²t) + cσ²/(Mα')        the same for β_k = α'/L, M_k = M
//
// R is drawn with probabilities proportional to the summands of the denominator. The best c is 1/α,
// which is used throughout, so α' = α/2. Floor is the part of the bound that more steps do not
// remove. It is 2σ²/(Mα²) in Proposition 3, and tends to σ²/(Mα²) as β → 0. No step size brings the
// bound to 0, because G_k contains the noise of ĝ_k, but a larger batch lowers it.
//
// Three remarks on the paper: A3 lacks the factor N of its estimator. The faster convergence for α
// > 1 is a matter of scale, because D → cD with β → cβ leaves every λ_k unchanged. KL(q‖p) is not
// convex in natural parameters, for which the paper argues A6.
//
// Checking a step costs six values of f over all terms, a few more if the step was long, and one or
// two gradients if it was noisy. The Certificate skips steps with ‖δ_k‖² < 1e-7, because they are
// mostly rounding, and steps whose size the Stepper chose.
type Certificate struct {
	// Every is the number of steps per check. The bounds are over the checked steps. Zero means to
	// check every step.
	Every int
	// Optimum is the largest ELBO of the family, or an upper bound such as ELBO + GapBound of a
	// fit. Zero means unknown. Then C0 is the gain of the run so far, and every bound still holds.
	Optimum float64
	// Src draws the R of RandomIterate. Nil means a fixed seed.
	Src rand.Source

	// Steps is the number of checked steps. If it is 0, the numbers below are NaN, or 0 before a
	// run.
	Steps int
	// Alpha is the smallest α over the steps, and L the largest L. RelL is the largest L relative
	// to D, with D(λ_{k+1}‖λ_k) in place of ½‖δ_k‖² (Lu, Freund and Nesterov, 2018). If f was
	// concave along the whole path, L is 0 and RelL is negative.
	Alpha, L, RelL float64
	// MaxStep is 2α/L, the largest step size with which no exact step raises F. It is +Inf if L is
	// 0.
	MaxStep float64
	// C0 is F(λ_0) − min F, in nats; see Optimum.
	C0 float64
	// MinGradMap2 is the smallest ‖G_k‖², and MeanGradMap2 is their mean with the weights of R.
	MinGradMap2, MeanGradMap2 float64
	// Bound is the bound of Proposition 2 on both, if no step was noisy. Otherwise the theorem
	// gives it, and it bounds the expectation of MeanGradMap2. It is +Inf if steps were too long.
	Bound float64
	// TotalD is Σ_k [δ_kᵀ∇D(λ_{k+1}‖λ_k) − D(λ_{k+1}‖λ_k)]/β_k, which is Σ_k D(λ_k‖λ_{k+1})/β_k for
	// a Bregman divergence. It is at most C0 for exact steps of β_k ≤ 1/RelL. This bound does not
	// depend on the scale of λ.
	TotalD float64
	// Violations counts the steps that contradict the theory with the α and L of the same step,
	// steps that raise F where the theory does not apply, and noise-free steps whose gradient does
	// not match the values of f. The causes are a β that was too large, a wrong gradient or
	// proximal step, or an h that is not convex in these coordinates. In a noisy step, the decrease
	// of F is compared with ĝ_k. Adam violates the theory, because its ĝ_k is not a gradient.
	Violations int
	// TooLong counts the steps with β_k above 2α/L of the same step, which may raise F. More
	// Violations than TooLong mean that the gradient, the proximal step or h is wrong.
	TooLong int
	// Sigma2 estimates σ², the mean of M_k‖ĝ_k − ∇f(λ_k)‖² with weights β_k, over batches, over the
	// draws of an estimator, or over both. It is 0 if no step was noisy.
	Sigma2 float64
	// Floor is the part of Bound that is due to noise. It is proportional to 1/M.
	Floor float64
	// UnbiasedZ tests E ĝ_k = ∇f(λ_k). It is the sum of (ĝ_k − ∇f(λ_k))ᵀu_k over its standard
	// error, with u_k the direction of ∇f(λ_k). Over many noisy steps it is about N(0, 1), and far
	// from 0 if a scale such as N/M is missing. If an estimator draws, gradients over all terms are
	// compared with values in the same way, and UnbiasedZ is the larger of the two numbers. It is
	// NaN without noise. It means nothing if batches are not random, for example with InOrder.
	//
	// If no term occurs twice in a pass, as with Reshuffle, A3 holds only for the first batch of
	// the pass, because the later batches depend on the terms that remain, and λ_k on the terms
	// already used. Then the gradient over the remaining terms, scaled by N over their number,
	// replaces ∇f(λ_k), because it is the mean of ĝ_k given the earlier steps.
	UnbiasedZ float64

	err        error
	begun      bool
	start, now float64 // F at the first and at the last state
	sums       descent.Sums
	pass       passTerms
	draw       *rand.Rand
	candidates descent.Iterates[Dist]
}

const (
	// leastMove is the smallest ‖δ‖² that is checked. Below it a step is mostly rounding.
	leastMove = 1e-7
	// certificateSlack is the tolerance of the inequalities for rounding, relative to their terms.
	// numericSlack is the tolerance for numeric steps, which end when their objective stops
	// falling.
	certificateSlack, numericSlack = 1e-8, 1e-5
	// certificateRounding is the tolerance relative to F.
	certificateRounding = 1e-12
)

// Err returns the first error of the Certificate, which records nothing after it. The error wraps
// ErrParam if the run does not fit an Objective (see GP.Objective and GLM.Objective) or has more
// than one linearization per step (Objective.Inner). Otherwise it is an error of f.
func (c *Certificate) Err() error { return c.err }

// BatchSize returns the number of terms in a batch that divides Floor by factor (at least 1), if
// batches are drawn with replacement. Smaller batches suffice without replacement. The number is at
// most N, and 0 if no step was noisy.
func (c *Certificate) BatchSize(factor float64) int {
	if c.sums.Noisy == 0 {
		return 0
	}
	mean := float64(c.sums.Terms) / float64(c.sums.Noisy)
	return int(math.Min(float64(c.sums.Of), math.Ceil(mean*math.Max(1, factor))))
}

// Record checks one step. The first step of a run resets c. If a run is resumed with a new
// Certificate, λ_0 is the state before the first recorded step.
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
		return fmt.Errorf("the state is a %T; fit an Objective, such as GP.Objective: %w", it.State,
			ErrParam)
	}
	if s.Inner > 1 {
		return fmt.Errorf("Objective.Inner is %d; a Certificate needs one linearization per step: "+
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

// env returns an Env that gives the same draws in every call until the next checked step.
func (c *Certificate) env() *Env { return NewEnv(rand.NewPCG(seed1, uint64(c.Steps)), 1) }

// value returns f and h at q, and a bound on the numerical error of f, or 0.
func (c *Certificate) value(s *objectiveStepper, q Dist) (f, h, bound float64, err error) {
	f, bound, err = s.F.Value(context.Background(), c.env(), q)
	if !s.exact || math.IsNaN(bound) {
		bound = 0
	}
	return f, s.H.Value(q), bound, err
}

// look checks the last step of s, from s.Trial to s.Q with the gradient s.G.
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
		return nil // the previous step lost the state
	}
	if err != nil {
		return err
	}
	f1, h1, _, err := c.value(s, s.Q)
	// F rose without a bound.
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
	exact := own                  // the same by a gradient over all terms
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

// RandomIterate returns a copy of λ_R, the random iterate of the theorem, which bounds E‖G_R‖² by
// Bound. It returns nil before the first checked step, and if a step was longer than 2α'/L, because
// the theorem then does not hold.
//
// The probability of R = k is proportional to α'β_k − ½Lβ_k² over the checked steps k. The numbers
// α' and L cover the whole path so far (α' = α without noise), so λ_R may change as steps are
// added. The mean of ‖G_R‖² over many values of Src is MeanGradMap2.
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

// slope returns δᵀ∇f at the beginning of the step. It reports whether exact, the slope by the
// gradient, agrees with the values of f on the segment; see descent.Slope.
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

// addNoise records the noise of ĝ in the step δ, and returns δᵀ∇f by a gradient over all terms. It
// draws two such gradients, independent of each other, of ĝ and of δ. One suffices if f is
// deterministic.
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

// passTerms holds the terms that the steps of the current pass have drawn.
type passTerms struct {
	drawn   []bool
	count   int
	lost    bool // the pass began before the Certificate did
	repeats bool // a pass had a term twice, so batches are drawn with replacement
}

// left returns the terms that the pass has not drawn, and whether they are known.
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

// add adds the batch of the last step of s.
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

// conclude updates the bounds.
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

// nanMin and nanMax return the smaller and the larger of a and b, or b if a is NaN.
func nanMin(a, b float64) float64 {
	if math.IsNaN(a) {
		return b
	}
	return math.Min(a, b)
}

func nanMax(a, b float64) float64 { return -nanMin(-a, -b) }
