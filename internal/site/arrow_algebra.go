package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file holds ArrowAlgebra, the Algebra of mixed models. NewStepper of a GLM with
// GLMOptions.Groups makes one.

// ArrowAlgebra is the Gaussian over the weights of a linear model whose prior has blocks. It also
// learns the covariances of these blocks, unless they are fixed.
type ArrowAlgebra struct {
	BaseAlgebra
	mover *arrow
}

var _ Weighted = (*ArrowAlgebra)(nil)

// Linear returns the model of the weights.
func (s *ArrowAlgebra) Linear() *LinearModel { return s.mover.lin }

// plainRows is the number of rows above which steps are not mixed, because a mixture stores several
// states of all rows.
const plainRows = 100000

// NewArrowAlgebra returns the algebra of l at its prior.
func NewArrowAlgebra(l *LinearModel, c term.Crew) (*ArrowAlgebra, error) {
	return NewArrowAlgebraIn(nil, l, c)
}

// NewArrowAlgebraIn is NewArrowAlgebra with the layout of old, which has the same rows and the same
// groups and must not be used afterward. A nil old is allowed.
func NewArrowAlgebraIn(old *ArrowAlgebra, l *LinearModel, c term.Crew) (*ArrowAlgebra, error) {
	s := &ArrowAlgebra{}
	var a *arrow
	if old != nil {
		a = old.mover.again(l)
		s.takeMemory(&old.BaseAlgebra)
	} else {
		var err error
		if a, err = newArrow(l); err != nil {
			return nil, err
		}
	}
	s.mover = a
	s.lazy = true
	s.Batch.profile, s.Batch.ahead = a.profile, a.ahead
	s.Batch.plain = l.X.Rows > plainRows
	s.shares = s.Batch.plain
	if l.Terms.Noise() == 0 {
		s.Batch.Outer = min(l.X.Rows, l.X.Cols)
	}
	a.use(c)
	s.lay(l.Terms, a, c)
	s.near()
	return s, c.Halt.Err()
}

// near starts at the sites that l.Near gives, if it is set.
func (s *ArrowAlgebra) near() {
	l := s.mover.lin
	if l.Near == nil {
		return
	}
	gamma, zero, m := make([]float64, s.N), make([]float64, s.N), make([]float64, s.N)
	for i := range s.N {
		y, offset, weight, _ := l.Terms.Term(i)
		m[i], gamma[i] = l.Near(y)
		m[i] -= offset
		gamma[i] *= weight
	}
	s.StartAt(gamma, zero, m)
}

// Blocks returns the prior of the effects with the present L, in the order of the model.
func (s *ArrowAlgebra) Blocks() []gauss.Block {
	a := s.mover
	all := make([]gauss.Block, len(a.fac))
	for k, f := range a.fac {
		b := f.Block
		b.L = append([]float64(nil), a.cur.by.L[k]...)
		all[f.number] = b
	}
	return all
}

// L returns a copy of the present L of each factor, in the order of the base.
func (s *ArrowAlgebra) L() [][]float64 { return gauss.CloneLists(s.mover.cur.by.L) }

// SetL replaces them before the first step.
func (s *ArrowAlgebra) SetL(l [][]float64) { s.mover.cur.by.L = gauss.CloneLists(l) }

// Settle takes up to the given number of steps, until the estimated gap is at most slack nats, and
// returns the gap. It proves nothing.
func (s *ArrowAlgebra) Settle(slack float64, steps int) (gap float64, err error) {
	if err := s.Refresh(); err != nil {
		return 0, err
	}
	still := false
	for range steps {
		gap = math.Inf(1)
		if s.Batched {
			if gap = (*moveProof)(&s.BaseAlgebra).decrement(); gap <= slack && s.Learns() {
				gain, ok := s.gain()
				if gap += gain; !ok {
					gap = math.Inf(1)
				}
			}
		}
		if gap <= slack {
			break
		}
		if _, err := s.Ascend(); err != nil {
			return gap, err
		}
		// L may move although the sites do not, and then the next step is another one.
		before := still
		if still = s.Distance == 0; still && before {
			break
		}
	}
	return gap, s.Workers.Halt.Err()
}

// Learns reports whether s learns the covariance of a block.
func (s *ArrowAlgebra) Learns() bool { return s.mover.sigma.learns() }

// Weights implements Weighted.
func (s *ArrowAlgebra) Weights() ([]float64, gauss.Cov, error) {
	mean, c, err := s.arrowWeights()
	if err != nil {
		return nil, nil, err
	}
	return mean, c, nil
}

// arrowWeights is Weights.
func (s *ArrowAlgebra) arrowWeights() ([]float64, *gauss.Arrow, error) {
	if err := s.Refresh(); err != nil {
		return nil, nil, err
	}
	a := s.mover
	if !a.moved {
		a.cover(s.Cur.Gamma)
		if err := s.Workers.Halt.Err(); err != nil {
			return nil, nil, err
		}
		a.collect(make([]float64, s.N))
		a.cur.by.Solve(&a.cur.mean, a.moveB, a.moveG, a.solveWork)
	}
	shape := *a.shape
	c := &gauss.Arrow{ArrowShape: &shape, L: gauss.CloneLists(a.cur.by.L),
		Sums: a.cur.by.Sums.Clone()}
	c.Factor(s.Workers.Halt)
	return a.inModel(&a.cur.mean), c, s.Workers.Halt.Err()
}

// inModel returns a mean in the order of the weights of the model.
func (a *arrow) inModel(x *gauss.ArrowMean) []float64 {
	f, mean := &a.fac[0], make([]float64, a.shape.Cols)
	for i, j := range a.shape.Border {
		mean[j] = x.W[i]
	}
	copy(mean[f.First:f.End()], x.U)
	return mean
}

// Evaluate implements Algebra. The value of a state contains log p(L), which the ELBO does not. If
// L is learned, the gap includes the gain that L predicts at the present sites. A gap bound then
// holds for the present L.
func (s *ArrowAlgebra) Evaluate(within float64) (siteEvaluation, error) {
	e, err := s.BaseAlgebra.Evaluate(within)
	a := s.mover
	if err == nil && e.Gap <= covarianceGap {
		e.ELBOErr += a.rounding()
		err = s.Workers.Halt.Err()
	}
	if err != nil || !a.sigma.learns() {
		return e, err
	}
	e.Held = true
	e.ELBO -= a.sigma.logPrior(a.cur.by.L, nil)
	cheap := a.small() && a.joinable() // joint steps move the sites as fast as L
	if !a.moved || !cheap && !(e.Gap <= goals.With(within, s.N, e.ELBO, e.ELBOErr)) ||
		math.IsInf(e.Gap, 1) {
		return e, nil
	}
	gain, ok := s.gain()
	if err := s.Workers.Halt.Err(); err != nil {
		return siteEvaluation{}, err
	}
	if e.Gap += gain; !ok {
		e.Gap = math.Inf(1)
	}
	most := max(sigmaGoal*float64(a.learnedLevels()), goals.Fine(s.N, e.ELBO))
	if s.Terms.Concave() && gain > most {
		e.Most = most
	}
	return e, nil
}

// covarianceGap is the gap, in nats, below which the rounding of the covariance may matter.
const covarianceGap = 1e-2

// sigmaGoal is how many nats per level the learned covariances may still gain if the goal is the
// default, if the likelihood is log-concave. The standard deviations of many levels then have a
// relative error of about 2e-5. Steps under other likelihoods converge more slowly.
const sigmaGoal = 5e-10

// learnedLevels returns the number of levels with rows of the factors that are learned.
func (a *arrow) learnedLevels() (n int) {
	for f := range a.fac {
		if a.fac[f].rule.Learn {
			n += a.levelsWithRows(f)
		}
	}
	return n
}

// gain returns the number of nats by which L may still raise the ELBO. With the sites held, the
// best L raises log Z + log p(L) by a gain that the Hessian H predicts. If the sites follow L, the
// Hessian is flatter, (1 − ρ)H, and the best L is farther away by a factor of 1/(1 − ρ), so the
// gain is divided by 1 − ρ. If ρ is large or the model small, the gain of a joint step counts
// instead, if it is larger, or if the ELBO falls on the way to the L of the profile.
//
// With very precise sites, as of counts above 1e8, log Z is the difference of numbers so large that
// their rounding exceeds a goal. A gain below this rounding does not count.
//
// The sites of a start may belong to another L or to other hyperparameters, and still give the best
// q at the present L: if the standard deviations are 0, only Xᵀb counts. The gain is therefore
// computed at the targets of q, which are the sites of the next step.
func (s *ArrowAlgebra) gain() (nats float64, ok bool) {
	a, x := s.mover, s.Cur
	if x.Certain {
		x.Gamma = x.Tg
	}
	if !x.Wild {
		x.A = x.D1
	}
	t := a.sumsOf(&x)
	from := a.logZ(t, nil)
	hidden := zRounding * dense.Epsilon * (math.Abs(floats.Dot(a.hb, a.sigma.mean.W)) +
		math.Abs(floats.Dot(a.hg, a.sigma.mean.U)))
	if !(hidden > goals.Fine(s.N, s.elbo())) {
		hidden = 0
	}
	to := a.maximize(t)
	rate := a.sigma.rate.estimate(a, t.by.L)
	nats = max(0, to-from-hidden) / rate
	if !s.Batch.plain && a.joinable() && (a.few || a.small() || rate < jointSlow) {
		if j := a.linear(&s.Cur); j != nil {
			_, joint := newtonStep(j.bend, j.slope, j.unit, true)
			switch denied, failed := a.sigma.denied, a.sigma.failed; {
			case denied && failed:
				nats = min(nats, joint)
			case denied:
				nats = joint
			case !failed:
				nats = max(nats, joint)
			}
		}
	}
	return nats, !math.IsInf(from, -1)
}

// zRounding is the error of log Z in units of the rounding of hᵀm.
const zRounding = 4

// sums returns a state with the sums of the present sites and the present L.
func (s *ArrowAlgebra) sums() *arrowState {
	a := s.mover
	if a.summed == nil {
		return a.sumsOf(&s.Cur)
	}
	return &arrowState{by: gauss.Arrow{ArrowShape: a.shape, L: gauss.CloneLists(a.cur.by.L),
		Sums: a.summed.by.Sums}}
}

// FactorSpread is the uncertainty of a learned covariance: standard deviations of s_i and of
// atanh ρ_ij, by the curvature of the ELBO plus log p(L). Elements of fixed parameters are 0.
type FactorSpread struct {
	SD    []float64
	Atanh []float64 // Q×Q, lower triangle, row by row
	// Lo and Hi are 95% intervals of the standard deviations, and then of the correlations, Q×Q, from
	// a SigmaGrid. Both are nil without a grid.
	Lo, Hi []float64
	// Zero holds whether a standard deviation stands for 0, because a q needs the inverse of Σ. Nil
	// means none.
	Zero []bool
}

// SetInterval sets the 95% interval of the parameter of a SigmaSpan.
func (f *FactorSpread) SetInterval(s *SigmaSpan) {
	q := len(f.SD)
	if f.Lo == nil {
		f.Lo, f.Hi = make([]float64, q+q*q), make([]float64, q+q*q)
	}
	at, x := s.Effect, s.Quantiles(0.025, 0.975)
	if s.Other >= 0 {
		at = q + s.Effect*q + s.Other
	}
	f.Lo[at], f.Hi[at] = x[0], x[1]
}

// Spread returns the uncertainty of the covariances, in the order of the blocks of the model. The
// curvature is the curvature of log Z + log p(L) with sites that follow L (arrow_joint.go), or, for
// several factors and many rows, the curvature at the present sites times 1 − ρ; see gain.
func (s *ArrowAlgebra) Spread() ([]FactorSpread, error) {
	a := s.mover
	if !a.moved || !a.sigma.learns() {
		return a.noSpread(), nil
	}
	t := s.sums()
	return a.uncertainty(t, s.answers(), func() float64 {
		if a.sigma.rate.x == nil {
			return 1
		}
		to := &arrowState{by: gauss.Arrow{ArrowShape: a.shape, Sums: t.by.Sums}}
		to.by.L = gauss.CloneLists(t.by.L)
		a.maximize(to)
		return a.sigma.rate.estimate(a, to.by.L)
	})
}

// answers returns the linear model of L and the sites at the present state. It is nil if it would be
// wrong or too expensive.
func (s *ArrowAlgebra) answers() *joint {
	if a := s.mover; a.summed == nil && !s.Batch.plain && !s.Cur.Wild && a.joinable() {
		return a.linear(&s.Cur)
	}
	return nil
}

// noSpread returns FactorSpreads of 0.
func (a *arrow) noSpread() []FactorSpread {
	all := make([]FactorSpread, len(a.fac))
	for _, f := range a.fac {
		all[f.number] = FactorSpread{SD: make([]float64, f.Q), Atanh: make([]float64, f.Q*f.Q)}
	}
	return all
}

// uncertainty is Spread at the sums of t. The function rate returns 1 − ρ. A linear model j, which may
// be nil, has the curvature of the ELBO itself. It counts if it is positive.
func (a *arrow) uncertainty(t *arrowState, j *joint, rate func() float64) ([]FactorSpread, error) {
	all := a.noSpread()
	if !a.sigma.learns() {
		return all, nil
	}
	z := a.logZ(t, a.sigma.grad)
	n := len(a.sigma.coords)
	b, unit := mat.NewSymDense(n, nil), a.sigma.units(a, t.by.L, sigmaTiny)
	a.hessian(t, unit, b)
	if err := a.crew.Halt.Err(); err != nil || math.IsInf(z, -1) {
		return all, err
	}
	slow := rate()
	inv := inverseOf(b, slow)
	var root mat.Cholesky
	if j != nil && root.Factorize(j.bend) {
		inv, unit = inverseOf(j.bend, 1), j.unit
	}
	a.spreads(all, t.by.L, inv, unit)
	for k, f := range a.fac {
		for j, sd := range sdsOf(f.Block, t.by.L[k]) {
			if sd == 0 && f.rule.Learn {
				all[f.number].SD[j] = a.zeroSpread(t, z, k, j, slow)
			}
		}
	}
	return all, a.crew.Halt.Err()
}

// The range of nats below the maximum in which zeroSpread measures, and the factor and number of
// its steps.
const (
	spreadLeast, spreadMost = 0.3, 3
	spreadFactor            = 3
	spreadSteps             = 12
)

// zeroSpread returns the standard deviation of s about 0, where it has no slope, for effect j of
// factor k. The density of s is treated as half-normal: it is measured at one s, at which log Z +
// log p(L) is lower by a moderate amount than z, its value at 0. The curvature is multiplied by rate.
func (a *arrow) zeroSpread(t *arrowState, z float64, k, j int, rate float64) (sd float64) {
	at := j * (a.fac[k].Q + 1)
	x := &t.by.L[k][at]
	sd = HalfNormal(a.sigma.start[k][at], func(s float64) float64 {
		*x = s
		return rate * (z - a.logZ(t, nil))
	})
	*x = 0
	return sd
}

// HalfNormal returns the standard deviation of a half-normal density, whose logarithm falls by drop(s)
// from 0 to s. It calls drop first for h, and NaN means no density.
func HalfNormal(h float64, drop func(s float64) float64) (sd float64) {
	low, high := 0.0, math.Inf(1)
	for range spreadSteps {
		drop := drop(h)
		if !(drop <= spreadMost) { // or there is no q
			high = h
		} else if sd = h / math.Sqrt(2*max(drop, spreadLeast/spreadFactor)); drop >= spreadLeast {
			break
		} else {
			low = h
		}
		switch {
		case low == 0:
			h = high / spreadFactor
		case math.IsInf(high, 1):
			h = low * spreadFactor
		default:
			h = math.Sqrt(low * high)
		}
	}
	if sd == 0 {
		sd = h
	}
	return sd
}

// inverseOf returns the inverse of the matrix b times rate. It leaves out directions without
// curvature.
func inverseOf(b *mat.SymDense, rate float64) *mat.SymDense {
	n := b.SymmetricDim()
	inv := mat.NewSymDense(n, nil)
	var e mat.EigenSym
	if !e.Factorize(b, true) {
		return inv
	}
	var v mat.Dense
	e.VectorsTo(&v)
	for k, x := range e.Values(nil) {
		if x *= rate; x > 0 {
			inv.SymRankOne(inv, 1/x, v.ColView(k))
		}
	}
	return inv
}

// spreads stores the standard deviations that follow from the covariance cov of the coordinates in
// the given units, by differences.
func (a *arrow) spreads(all []FactorSpread, l [][]float64, cov *mat.SymDense, unit []float64) {
	const h = 1e-6
	n := len(unit)
	values := func(l [][]float64) (v []float64) { // s and atanh ρ of all factors
		for k := range a.fac {
			b := a.fac[k].Block
			b.L = l[k]
			s, q := b.Covariance(), b.Q
			for i := range q {
				for j := range i {
					r := s[i*q+j] / math.Sqrt(s[i*q+i]*s[j*q+j])
					v = append(v, math.Atanh(max(-mostCorr, min(mostCorr, r))))
				}
				v = append(v, math.Sqrt(s[i*q+i]))
			}
		}
		return v
	}
	at := values(l)
	slopes := mat.NewDense(len(at), n, nil)
	step := make([]float64, n)
	for c := range n {
		step[c] = h * unit[c]
		up := gauss.CloneLists(l)
		a.moveL(up, l, step, 1)
		step[c] = 0
		for i, v := range values(up) {
			if slope := (v - at[i]) / h; !math.IsNaN(slope) && !math.IsInf(slope, 0) {
				slopes.Set(i, c, slope)
			}
		}
	}
	i := 0
	for _, f := range a.fac {
		x := &all[f.number]
		sd := func() float64 {
			row := slopes.RowView(i)
			i++
			return math.Sqrt(max(0, mat.Inner(row, cov, row)))
		}
		for j := range f.Q {
			for k := range j {
				x.Atanh[j*f.Q+k] = sd()
			}
			x.SD[j] = sd()
		}
	}
}

// mostCorr bounds correlations whose atanh is computed.
const mostCorr = 1 - 1e-12
