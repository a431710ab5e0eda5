package site

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file fits GLMs with a diagonal or low-rank covariance. Sites do not determine such a q, so
// FactoredAlgebra optimizes the mean and the covariance themselves. The Solver drives it as an
// Algebra. factored_diag.go holds the diagonal family, and lowrank.go the low-rank family.

// FactoredAlgebra is the Algebra of a GLM with q(w) = N(m, V), where V is in a family of few
// coordinates φ: diagonal or low-rank. With the expectations of all rows at (m, V) and
//
//	A = Λ0 + Xᵀ diag(γ̂) X,   γ̂_n = −∂²E_n/∂m_n²,   α̂_n = ∂E_n/∂m_n,
//
// the gradient of the negative ELBO is Λ0(m − μ0) − Xᵀα̂ in m, and in φ it is the gradient of
// ½(tr(AV) + log|V⁻¹|) with A held fixed. A step without history solves
//
//	argmin_δ  gᵀδ + ½(δ_mᵀAδ_m + δ_φᵀFδ_φ),   F near the Fisher information of V.
//
// That is a Newton step in m (by conjugate gradients) and a natural-gradient step in V, which is
// the proximal step with r = 0 to first order. Both ignore how α̂ and γ̂ change with V, so L-BFGS
// learns that from the steps (Nocedal, 1980). A is used only in products, which take O(nnz) per
// column. A step along δ is halved until the exact ELBO rises.
type FactoredAlgebra struct {
	Lin   *LinearModel
	N     int
	terms *term.Terms

	Fam       covFamily
	Cur, next factoredState
	Fresh     bool // the expectations of Cur are valid
	Aimed     bool // grad and delta are also valid
	Started   bool // Cur is no longer the prior
	free      bool // the last step was one with a given β

	hess     WeightHessian
	convex   []float64 // the weights of A, negative ones replaced by 0; scratch
	target   []float64 // the weights of A in aside
	rhs      []float64 // the gradient of the mean in aside
	Cg       conjugateGradients
	History  secants
	progress Progress
	newton   diagNewton
	grad     []float64 // in (m, φ)
	delta    []float64
	kept     []float64 // delta and grad before a step
	Promise  float64   // predicted gain of δ, in nats
	// gain that δ may have missed, because its linear equations are only solved to that accuracy
	Unseen  float64
	Beyond  float64 // gain of the last step, if it was far above the predicted gain; else 0
	renewal float64 // gain of the last renewal of V; +Inf at first
	within  float64 // Solver.Goal of the last evaluation
	t       float64 // part of δ that the next step takes
	buf     []float64

	proof    Proof
	proved   bool      // a proof has computed its determinant
	Most     float64   // multiplications that the determinant may take
	held     []float64 // scratch of prove
	rows     factoredRows
	pg       factoredPaper
	workers  term.Crew
	Distance float64 // length of the last step
}

// Linear returns the model of the weights.
func (s *FactoredAlgebra) Linear() *LinearModel { return s.Lin }

// factoredState is a mean, about μ0, with its expectations. The family keeps V. The sites of its
// State are unused.
type factoredState struct {
	term.Marginals
	Mean []float64
	Elbo float64
}

// NewFactoredAlgebra returns the prior of l with a low-rank covariance, or with a diagonal
// covariance if rank is 0.
func NewFactoredAlgebra(l *LinearModel, rank int) *FactoredAlgebra {
	n, d := l.X.Rows, len(l.Names)
	s := &FactoredAlgebra{Lin: l, N: n, terms: l.Terms, t: 1, Most: MostProof, renewal: math.Inf(1)}
	for _, c := range []*factoredState{&s.Cur, &s.next} {
		c.M, c.V, c.E, c.Tg, c.D1 = make([]float64, n), make([]float64, n), make([]float64, n),
			make([]float64, n), make([]float64, n)
		c.Mean = make([]float64, d)
	}
	prec := make([]float64, d)
	l.Prior.DiagTo(prec)
	if rank > 0 {
		s.Fam = NewLowRankFamily(prec, min(rank, d))
	} else {
		s.Fam = newDiagFamily(prec)
	}
	k := d + s.Fam.Size()
	s.grad, s.delta, s.buf = make([]float64, k), make([]float64, k), make([]float64, d)
	s.hess = WeightHessian{X: l.X, Prior: &l.Prior}
	return s
}

// Plan implements Algebra: every step takes all rows.
func (s *FactoredAlgebra) Plan() sitePlan { return sitePlan{} }

// ClosedForm implements Algebra. The best V for given expectations has a closed form only in the
// diagonal family.
func (s *FactoredAlgebra) ClosedForm() bool {
	_, ok := s.Fam.(*DiagFamily)
	return ok
}

// Use implements Algebra.
func (s *FactoredAlgebra) Use(c term.Crew) { s.workers, s.hess.halt = c, c.Halt }

// Wider implements Algebra. The gap bound of a low-rank V holds over all V.
func (s *FactoredAlgebra) Wider() bool { return !s.ClosedForm() }

// Moved implements Algebra.
func (s *FactoredAlgebra) Moved() float64 { return s.Distance }

// Block implements Algebra. It returns an error, because this algebra has no block steps.
func (s *FactoredAlgebra) Block(batch []int) error {
	return fmt.Errorf("a batch of %d of %d rows without a step size: blocks need "+
		"FullCovariance; leave Solver.BatchSize at 0, or give Solver.StepSize: %w", len(batch), s.N,
		sentinel.ErrParam)
}

// Ascend implements Algebra.
func (s *FactoredAlgebra) Ascend() (passes int, err error) {
	if err := s.Renewed(); err != nil {
		return 0, err
	}
	if err := s.Directed(); err != nil {
		return 0, err
	}
	s.kept = append(append(s.kept[:0], s.delta...), s.grad...)
	promise, unseen, t, renewal, free, pairs := s.Promise, s.Unseen, s.t, s.renewal, s.free,
		s.History.pairs
	slow := s.progress
	diagonal, _ := s.Fam.(*DiagFamily)
	straight := diagonal != nil && diagonal.straight
	s.progress.Add(s.Promise, s.N, s.N)
	if s.climb() {
		return 1, nil
	}
	if err = s.workers.Halt.Err(); err != nil { // back to before the step
		copy(s.grad, s.kept[copy(s.delta, s.kept):])
		s.Promise, s.Unseen, s.t, s.renewal, s.free, s.History.pairs, s.Aimed = promise, unseen, t,
			renewal, free, pairs, true
		s.progress = slow
		if diagonal != nil {
			diagonal.straight = straight
		}
	}
	return 1, err
}

// Directed is Direct with the error of the crew.
func (s *FactoredAlgebra) Directed() error {
	promise := s.Promise
	s.Direct()
	if err := s.workers.Halt.Err(); err != nil {
		s.Promise, s.Aimed = promise, false
		return err
	}
	return nil
}

// climb takes the step of Ascend, and reports whether it did.
func (s *FactoredAlgebra) climb() bool {
	s.free, s.proof = false, Proof{}
	s.Distance = 0
	if (s.Cur.Wild || s.Cur.Absurd()) && s.alone(true) {
		s.History.Reset()
		return true
	}
	if s.Promise < max(nearOptimum, s.enough()) && !s.settled() && s.renew() {
		return true
	}
	if s.search(6, 1, 1) {
		return true
	}
	s.progress, s.Aimed = Progress{}, s.Aimed && !s.progress.Slow
	if s.History.len() > 0 {
		s.History.Reset()
		s.Direct()
		if s.search(6, 1, 1) {
			return true
		}
	}
	// Far from the optimum, move toward the V of the present curvature.
	s.History.Reset()
	s.Fam.begin(s.delta[s.Lin.X.Cols:], &s.hess)
	if s.search(6, 1, 1) {
		return true
	}
	s.Aimed = false
	s.Direct()
	return s.search(50, 1, 1) || s.search(50, 1, 0) || s.search(50, 0, 1)
}

// Slow implements Algebra.
func (s *FactoredAlgebra) Slow() bool { return false }

// Renewed makes the expectations of the current state valid.
func (s *FactoredAlgebra) Renewed() error {
	if !s.Fresh {
		if err := s.look(0, 0); err != nil {
			return err
		}
		s.accept()
	}
	if !s.Started {
		s.begin()
		if err := s.workers.Halt.Err(); err != nil {
			return err
		}
		s.Started = true
	}
	return nil
}

// begin moves from the prior to the V of the curvature at its mean, if that is better. The prior
// may be so wide that the curvature under it means little.
func (s *FactoredAlgebra) begin() {
	if s.Cur.Wild && s.alone(false) {
		return
	}
	c, d := &s.next, s.Lin.X.Cols
	copy(c.M, s.Cur.M)
	clear(c.V)
	if s.terms.Expect(&c.Marginals, nil, s.workers) != nil {
		return
	}
	for i, w := range c.Tg {
		c.Tg[i] = math.Max(0, w)
	}
	s.hess.Set(c.Tg)
	s.Fam.begin(s.delta[d:], &s.hess)
	if s.look(0, 1) == nil && s.next.Elbo > s.Cur.Elbo {
		s.accept()
	}
}

// mostAstray bounds the steps of alone.
const mostAstray = 10

// alone leaves a state whose expectations overflow, because an exponential that overflows gives no
// more than a direction. It moves to the least-squares fit to the optima of the single terms, and
// reports whether that is better. If far is set, it continues with steps to the targets until a
// state is at most half as bad.
func (s *FactoredAlgebra) alone(far bool) bool {
	d := s.Lin.X.Cols
	for k := range 1 + mostAstray {
		c := &s.Cur
		if k > 0 {
			c = &s.next
		}
		s.aside(c, k == 0)
		if s.workers.Halt.Stopped() {
			return false
		}
		s.Cg.solve(s.delta[:d], &s.hess, s.rhs, s.Fam, nearOptimum, false)
		for j, m := range c.Mean {
			s.delta[j] += m - s.Cur.Mean[j]
		}
		s.Fam.begin(s.delta[d:], &s.hess)
		if s.look(1, 1) != nil {
			return false
		}
		if s.next.Elbo > 0.5*s.Cur.Elbo && (far || !s.next.Wild) {
			s.accept()
			return true
		}
		if !far {
			return false
		}
	}
	return false
}

// leastPromise returns a lower bound on the predicted gain of a step of the mean alone, with V
// held: ½gᵀA⁻¹g ≥ ½ Σ_j g_j²/(D A_jj), because A ≼ D diag(A). The step itself may predict less. If
// derivatives are absurd, its A is made positive definite, and if terms are not concave, it uses
// curvature from earlier steps elsewhere. A has the weights |γ̂| here.
func (s *FactoredAlgebra) leastPromise() (sum float64) {
	d := s.Lin.X.Cols
	diag := make([]float64, d)
	s.Lin.Prior.DiagTo(diag)
	weight := make([]float64, s.N)
	for i, w := range s.Cur.Tg {
		weight[i] = math.Abs(w)
	}
	s.Lin.X.AddSquares(diag, weight, nil, s.hess.scratch())
	for j, g := range s.grad[:d] {
		if diag[j] > 0 {
			sum += 0.5 * g / diag[j] * g / float64(d)
		}
	}
	return sum
}

// aside computes s.hess and s.rhs for the targets at c, or for the optimum of each term alone.
// Absurd targets are replaced.
func (s *FactoredAlgebra) aside(c *factoredState, alone bool) {
	s.target, s.rhs = dense.Resize(s.target, s.N), dense.Resize(s.rhs, s.Lin.X.Cols)
	slope := make([]float64, s.N)
	for i, v := range c.V {
		if s.workers.Halt.Stopped() {
			return
		}
		g, a := s.terms.Sane(&c.Marginals, i, i)
		if m := c.M[i]; alone && g == c.Tg[i] {
			g, a = 0, 0
			if v > 0 && !math.IsInf(v, 0) {
				var at float64
				g, a, at = s.terms.Solve(i, m, v, m, v)
				a += math.Max(0, g) * (at - m)
			}
		}
		s.target[i], slope[i] = math.Max(0, g), a
	}
	s.hess.Set(s.target)
	s.Lin.Prior.Mul(s.rhs, c.Mean, 1)
	floats.Scale(-1, s.rhs)
	s.Lin.X.AddMulTOn(s.rhs, slope, nil, s.hess.scratch())
}

// If a step predicts a gain below nearOptimum or below the goal, V is renewed, until a renewal
// gains at most worthRenewing or the goal.
const (
	nearOptimum   = 1e-2
	worthRenewing = 1e-4
)

// settled reports whether V need not be renewed. Until then a small predicted gain may come from
// a stationary point of the ELBO that is not a maximum.
func (s *FactoredAlgebra) settled() bool { return s.renewal <= max(worthRenewing, s.enough()) }

// renew takes the step of the mean with a new V, which leaves such a point, and reports whether
// the ELBO rises.
func (s *FactoredAlgebra) renew() bool {
	d, old := s.Lin.X.Cols, s.Cur.Elbo
	delta := append([]float64(nil), s.delta[d:]...)
	if s.Fam.renew(s.delta[d:], &s.hess) && s.look(1, 1) == nil && s.next.Elbo > old {
		s.accept()
		s.History.Reset()
		s.Beyond = s.Cur.Elbo - old
		s.renewal = s.Beyond
		return true
	}
	copy(s.delta[d:], delta)
	s.renewal = 0
	return false
}

// look evaluates the state at m + tmδ_m and φ + tvδ_φ, and stores it in next.
func (s *FactoredAlgebra) look(tm, tv float64) error {
	if err := s.workers.Halt.Err(); err != nil {
		return err
	}
	c, x, d := &s.next, s.Lin.X, s.Lin.X.Cols
	copy(c.Mean, s.Cur.Mean)
	if tm != 0 {
		floats.AddScaled(c.Mean, tm, s.delta[:d])
	}
	s.Fam.Move(tv, s.delta[d:])
	x.MulOn(s.workers.Halt, c.M, c.Mean, nil)
	s.Fam.Variances(c.V, x, s.hess.scratch())
	if err := s.workers.Halt.Err(); err != nil {
		return err
	}
	for i, v := range c.V {
		if bad := c.M[i] + v; !(v >= 0) || math.IsInf(bad, 0) || math.IsNaN(bad) {
			return fmt.Errorf("the linear predictor of %s is N(%.4g, %.4g): %w",
				s.terms.Describe(i), c.M[i], v, sentinel.ErrNotFinite)
		}
	}
	if err := s.terms.Expect(&c.Marginals, nil, s.workers); err != nil {
		return err
	}
	p := &s.Lin.Prior
	p.Mul(s.buf, c.Mean, 1)
	c.Elbo = floats.Sum(c.E) - s.Fam.Divergence(p) - 0.5*floats.Dot(s.buf, c.Mean)
	if err := s.workers.Halt.Err(); err != nil {
		return err
	}
	if math.IsNaN(c.Elbo) {
		return fmt.Errorf("the ELBO is %v: %w", c.Elbo, sentinel.ErrNotFinite)
	}
	return nil
}

// accept exchanges the current state and the state of the last look.
func (s *FactoredAlgebra) accept() {
	s.Cur, s.next = s.next, s.Cur
	s.Fam.Accept()
	s.Fresh, s.Aimed = true, false
}

// search tries the step of length t in m, in V or in both, and its halves, until the ELBO is
// finite and rises. If rounding hides a rise, it accepts an ELBO that does not fall.
func (s *FactoredAlgebra) search(times int, mean, cov float64) bool {
	t := s.t
	if mean*cov == 0 {
		t = 1
	}
	old := s.Cur.Elbo
	least := math.Nextafter(old, math.Inf(1))
	if s.Promise < 1e-10*math.Max(1, math.Abs(old)) {
		least = old - 1e-14*math.Abs(old)
	}
	for k := range times {
		if s.look(t*mean, t*cov) == nil && !math.IsInf(s.next.Elbo, 0) && s.next.Elbo >= least {
			s.accept()
			if k == 0 {
				t *= 4
			}
			s.t = math.Max(1e-6, math.Min(1, 1.5*t))
			s.Beyond = s.Cur.Elbo - old
			if s.Beyond < 4*s.Promise {
				s.Beyond = 0
			}
			s.remember(math.IsInf(old, 0))
			// the predicted gain was only rounding, and so were the changes behind it
			if s.Cur.Elbo <= old {
				s.History.Reset()
			}
			return true
		}
		t /= 2
	}
	if mean*cov != 0 {
		s.t = 1
	}
	return false
}

// remember adds the step from the previous state to the history.
func (s *FactoredAlgebra) remember(far bool) {
	d := s.Lin.X.Cols
	if far {
		s.History.Reset()
	}
	p := s.History.next(len(s.grad))
	floats.SubTo(p.s[:d], s.Cur.Mean, s.next.Mean)
	s.Fam.secant(p.s[d:])
	copy(p.y, s.grad)
	s.Distance = floats.Norm(p.s[:d], 2)
}

// enough returns the gap at which a run may end in the current state.
func (s *FactoredAlgebra) enough() float64 {
	c := &s.Cur
	enough := goals.With(s.within, s.N, c.Elbo, c.Err)
	if s.within == 0 {
		enough = max(enough, s.goal())
	}
	return enough
}

// The gap at which a low-rank V is good enough is lowRankGoalRow nats per row, but at least
// lowRankGoal nats. Its last digits take many passes, and the other maxima of its ELBO are
// further away.
const (
	lowRankGoalRow = 1e-6
	lowRankGoal    = 1e-7
)

// goal returns the Evaluation.Goal of s.
func (s *FactoredAlgebra) goal() float64 {
	if s.ClosedForm() {
		return 0
	}
	return max(lowRankGoal, lowRankGoalRow*float64(s.N))
}

// Evaluate implements Algebra. The gap is the predicted gain of the next step, −½gᵀδ. If the last
// step gained far more than it predicted, the gap is at least the gain of the last step. Until V
// is settled it is also at least the gain of the last renewal. After a step with a given β it is
// unknown.
func (s *FactoredAlgebra) Evaluate(within float64) (siteEvaluation, error) {
	if err := s.Renewed(); err != nil {
		return siteEvaluation{}, err
	}
	e := siteEvaluation{ELBO: s.Cur.Elbo, ELBOErr: goals.NeverZero(s.Cur.Err), Goal: s.goal()}
	if s.Cur.Wild {
		e.Gap = math.Inf(1)
	}
	if s.Cur.Wild || math.IsInf(e.ELBO, 0) {
		return e, nil
	}
	s.within = within
	if err := s.Directed(); err != nil {
		return siteEvaluation{}, err
	}
	goal := s.enough()
	if !s.proof.made && s.worthProving(goal) {
		near := s.Promise+s.Unseen <= worthProvingFactored*goal
		bound, err := s.Prove(goal, near && !s.free)
		if err != nil {
			return siteEvaluation{}, err
		}
		s.proof.bound = goals.Bound(bound)
		e.ELBO, e.ELBOErr = s.Cur.Elbo, goals.NeverZero(s.Cur.Err)
	}
	s.proof.made = true
	e.Gap, e.GapBound = goals.NeverZero(s.gap()), s.proof.bound
	if s.Cur.Absurd() || !s.terms.Concave() {
		e.Gap = math.Max(e.Gap, s.leastPromise())
	}
	if e.GapBound > 0 { // a gap bound over a larger family also holds for this family
		e.Gap = math.Min(e.Gap, e.GapBound)
	}
	return e, nil
}

// gap returns the estimate of Evaluate.
func (s *FactoredAlgebra) gap() float64 {
	gap := math.Max(s.Promise+s.Unseen, s.Beyond)
	if !s.ClosedForm() && !s.settled() {
		gap = math.Max(gap, s.renewal)
	}
	return gap
}

// Weights implements Weighted.
func (s *FactoredAlgebra) Weights() ([]float64, gauss.Cov, error) {
	return append([]float64(nil), s.Cur.Mean...), s.Fam.cov(), nil
}

// State implements Algebra.
func (s *FactoredAlgebra) State(c *save.Coder) {
	d, k := s.Lin.X.Cols, len(s.grad)
	c.Bool(&s.Fresh, &s.Aimed, &s.Started, &s.proved, &s.free, &s.Cur.Wild)
	s.progress.state(c)
	c.Float(&s.Promise, &s.Unseen, &s.Beyond, &s.renewal, &s.within, &s.t, &s.Cur.Elbo, &s.Cur.Err)
	c.Bool(&s.Cur.Certain)
	c.Floats(d, &s.Cur.Mean)
	c.Floats(s.N, &s.Cur.M, &s.Cur.V, &s.Cur.E, &s.Cur.Tg, &s.Cur.D1)
	s.Fam.state(c)
	s.proof.state(c)
	s.History.state(c, k)
	if s.Aimed {
		c.Floats(k, &s.grad, &s.delta)
		if c.Reading() {
			s.hess.Set(s.Cur.Tg)
			s.convexify()
		}
	}
}

// Constant implements Algebra.
func (s *FactoredAlgebra) Constant() bool { return s.Fresh && s.Aimed && s.proof.made }

// StartAt makes q the Gaussian with the given diagonal precision and mean. The mean is relative
// to the prior mean.
func (s *FactoredAlgebra) StartAt(precision, mean []float64) {
	copy(s.Fam.(*DiagFamily).Cur, precision)
	copy(s.Cur.Mean, mean)
	s.Fresh, s.Aimed, s.Started, s.proof = false, false, true, Proof{}
}
