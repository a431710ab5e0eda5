package site

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file fits GLMs with a diagonal or low-rank covariance. Sites do not determine such a q, so
// FactoredAlgebra optimizes the mean and the covariance themselves. The Solver drives it as an
// Algebra. The file also holds the diagonal family; lowrank.go holds the low-rank family.

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

// alone leaves a state whose expectations overflow, because an exponential that overflows gives
// no more than a direction. It moves to the least squares through the optimum of each term alone,
// and reports whether that is better. If far is set, it continues with steps to the targets until
// a state is at most half as bad.
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

// leastPromise returns a lower bound on the predicted gain of a step of the mean alone, V held:
// ½gᵀA⁻¹g ≥ ½ Σ_j g_j²/(D A_jj), because A ≼ D diag(A). The step itself may predict less. If
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

// diagNewton is Newton's step in (m, φ) for a diagonal V,
//
//	[ A                      −½Xᵀdiag(∂γ̂/∂m)X²V                 ]
//	[ −½VX²ᵀdiag(∂γ̂/∂m)X    ½diag(AV) + ½VX²ᵀdiag(∂γ̂/∂v)X²V ],
//
// where X² holds the squares of the elements. Conjugate gradients solve it in the metric of the
// diagonal, or of A and the diagonal. The curvature of V counts only log|V|, which gives ½, in
// addition to the terms. The step is straight in V, because exponentials are functions of m +
// v/2. FactoredAlgebra takes it when steps are slow.
type diagNewton struct {
	siteNewton
	v, scale []float64
	a, b     []float64 // vectors over the rows
}

// leastShrink is the least part of a variance that a Newton step leaves.
const leastShrink = 0.5

// diagNewtonMost bounds the iterations. Each takes four products with X. A pass also takes tens
// of products.
const diagNewtonMost = 100

// aim stores the step in s.delta and its predicted gain in s. It returns false if the Hessian is
// not positive definite.
func (t *diagNewton) aim(s *FactoredAlgebra, f *DiagFamily) bool {
	if s.Cur.Wild || !t.slopes(s.terms, &s.Cur.Marginals, nil, s.workers) {
		return false
	}
	d := s.Lin.X.Cols
	for _, x := range []*[]float64{&t.r, &t.z, &t.p, &t.q, &t.scale} {
		*x = dense.Resize(*x, 2*d)
	}
	t.v, t.a, t.b = dense.Resize(t.v, d), dense.Resize(t.a, s.N), dense.Resize(t.b, s.N)
	for j, p := range f.Cur {
		t.v[j] = 1 / p
		t.scale[j] = s.hess.diag[j]
		t.scale[d+j] = 0.5 * math.Max(s.hess.diag[j]/p, 1)
	}
	clear(s.delta)
	floats.ScaleTo(t.r, -1, s.grad)
	floats.DivTo(t.z, t.r, t.scale)
	copy(t.p, t.z)
	rho := floats.Dot(t.r, t.z)
	enough, nothing := newtonTol*newtonTol*rho, newtonNothing*rho
	gain, total := math.Inf(1), 0.0 // twice the gain of the last iteration, and of all iterations
	direct := false
	for k := 0; k < diagNewtonMost && (rho > enough || rho > nothing && gain > newtonTol*total) &&
		!s.workers.Halt.Stopped(); k++ {
		t.mul(s)
		curvature := floats.Dot(t.p, t.q)
		if !(curvature > 0) || math.IsInf(curvature, 0) {
			if k == 0 {
				return false
			}
			break
		}
		gain = rho * rho / curvature
		total += gain
		floats.AddScaled(s.delta, rho/curvature, t.p)
		floats.AddScaled(t.r, -rho/curvature, t.q)
		floats.DivTo(t.z, t.r, t.scale)
		was := direct
		// Two products with X make one product with A, so k+1 iterations took 2(k+1) products
		// with A. If that is more work than a factor, A becomes the metric of the mean.
		if direct = s.hess.due(2*(k+1)) && s.hess.Direct(); direct {
			s.hess.Solve(t.z[:d], t.r[:d])
		}
		next := floats.Dot(t.r, t.z)
		if direct != was {
			copy(t.p, t.z)
		} else {
			floats.AddScaledTo(t.p, t.z, next/rho, t.p)
		}
		rho = next
	}
	if least := 1 - floats.Max(s.delta[d:]); least < leastShrink { // the least factor of a variance
		floats.Scale((1-leastShrink)/(1-least), s.delta)
	}
	s.Promise = -0.5 * floats.Dot(s.delta, s.grad)
	f.straight = s.Promise > 0 && !s.workers.Halt.Stopped()
	return f.straight
}

// mul stores the Hessian times p in q.
func (t *diagNewton) mul(s *FactoredAlgebra) {
	x, d := s.Lin.X, s.Lin.X.Cols
	p, q := t.p[d:], t.q[d:]
	x.MulOn(s.workers.Halt, t.a, t.p[:d], nil)
	floats.MulTo(q, t.v, p)
	x.QuadDiagOn(s.workers.Halt, t.b, q, nil) // −δv
	s.Lin.Prior.Mul(t.q[:d], t.p[:d], 1)
	for i, a := range t.a {
		b := -t.b[i]
		t.a[i] = s.Cur.Tg[i]*a + 0.5*t.tm[i]*b
		t.b[i] = t.tm[i]*a + t.tv[i]*b
	}
	x.AddMulTOn(t.q[:d], t.a, nil, s.hess.scratch())
	clear(q)
	x.AddSquares(q, t.b, nil, s.hess.scratch())
	for j, v := range t.v {
		q[j] = 0.5 * (p[j] - v*q[j])
	}
}

// farOff is the predicted gain, in nats, above which a low-rank V follows the curvature instead
// of gradients, because the curvature changes by orders of magnitude.
const farOff = 1e4

// Direct computes the next step from the current state, and its predicted gain.
func (s *FactoredAlgebra) Direct() {
	if s.Aimed {
		return
	}
	c, a, p, d := &s.Cur, &s.hess, &s.Lin.Prior, s.Lin.X.Cols
	a.Set(c.Tg)
	p.Mul(s.grad[:d], c.Mean, 1)
	floats.Scale(-1, s.grad[:d])
	s.Lin.X.AddMulTOn(s.grad[:d], c.D1, nil, s.hess.scratch())
	floats.Scale(-1, s.grad[:d])
	s.Fam.Gradient(s.grad[d:], a)
	if s.workers.Halt.Stopped() {
		return
	}
	s.History.complete(s.grad)
	if s.Promise > farOff && !s.ClosedForm() {
		s.History.Reset()
	}

	// Gains far below the rounding of the ELBO do not matter.
	goal := math.Max(1e-10, 1e-13*math.Abs(c.Elbo))
	if math.IsInf(c.Elbo, 0) {
		goal = 0
	}
	s.Unseen = 0
	if f, ok := s.Fam.(*DiagFamily); ok {
		f.straight = false
		if s.progress.Slow && s.newton.aim(s, f) {
			s.Aimed = true
			return
		}
	}
	s.convexify()
	step := func(tol float64, proof bool) {
		s.History.unfold(s.delta, s.grad)
		copy(s.buf, s.delta[:d])
		s.Cg.solve(s.delta[:d], a, s.buf, s.Fam, tol, proof)
		s.Fam.natural(s.delta[d:])
		s.History.fold(s.delta)
		s.Promise = 0.5 * floats.Dot(s.delta, s.grad)
	}
	step(1e-5*goal, false)
	if enough := max(goal, s.enough()); s.Promise <= enough {
		// The run may end here, so the gain that the residual hides counts.
		if s.Unseen = s.Cg.unseen(a); s.Unseen > enough {
			step(0.1*enough, true)
			s.Unseen = s.Cg.unseen(a)
		}
	}
	floats.Scale(-1, s.delta)
	if !s.Fam.begun() || s.Promise > farOff && !s.ClosedForm() {
		s.Fam.begin(s.delta[d:], a)
	}
	s.Aimed = true
}

// convexify replaces negative weights of s.hess by 0, so that the metric is positive definite.
func (s *FactoredAlgebra) convexify() {
	if slices.Min(s.Cur.Tg) >= 0 {
		return
	}
	s.convex = dense.Resize(s.convex, s.N)
	for i, w := range s.Cur.Tg {
		s.convex[i] = math.Max(0, w)
	}
	s.hess.Set(s.convex)
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

// factoredPaper is the workspace of a step with a given β.
type factoredPaper struct {
	// h is the move of the mean before the metric of the main text, to is the target of V⁻¹, and
	// prior is the diagonal of Λ0.
	h, to, prior []float64
	mean         []float64
	appendix     bool
}

// Marginals implements Algebra. The error wraps sentinel.ErrNoProx if V is not diagonal.
func (s *FactoredAlgebra) Marginals(x *term.Estimates, batch []int) error {
	f, ok := s.Fam.(*DiagFamily)
	if !ok {
		return fmt.Errorf(
			"a step size with LowRankCovariance; leave Solver.StepSize nil, or choose "+
				"DiagonalCovariance or FullCovariance: %w", sentinel.ErrNoProx)
	}
	m := len(batch)
	if batch == nil {
		m = s.N
	}
	x.Resize(m)
	s.Lin.X.MulOn(s.workers.Halt, x.M, s.Cur.Mean, batch)
	v := dense.Resize(s.pg.h, s.Lin.X.Cols)
	for j, p := range f.Cur {
		v[j] = 1 / p
	}
	s.Lin.X.QuadDiagOn(s.workers.Halt, x.V, v, batch)
	s.pg.h = v
	return nil
}

// aim implements Algebra. It is the step of the paper with a diagonal V (PG-SVI-MF),
//
//	V₊⁻¹ = rV⁻¹ + (1−r)(Λ0 + diag XᵀΓ̂X),   m₊ = m − (1−r) B⁻¹(Λ0(m − μ0) − Xᵀα̂).
//
// V₊⁻¹ and B use only the diagonal of Λ0. B is V₊⁻¹ or, in the appendix, (1−r)Λ0 + rV⁻¹.
func (s *FactoredAlgebra) aim(x *term.Estimates, batch []int, m PaperMove) error {
	t, f, d := &s.pg, s.Fam.(*DiagFamily), s.Lin.X.Cols
	for k := range x.M {
		x.D1[k] *= m.Scale
		x.D2[k] *= -m.Scale
	}
	s.Lin.Prior.Mul(t.h, s.Cur.Mean, 1)
	floats.Scale(m.R-1, t.h)
	s.Lin.X.AddMulTOn(t.h, x.D1, batch, s.hess.scratch())
	t.to, t.prior = dense.Resize(t.to, d), dense.Resize(t.prior, d)
	s.Lin.Prior.DiagTo(t.prior)
	t.appendix = m.Appendix
	for j, p := range f.Cur {
		t.to[j] = m.R*p + (1-m.R)*t.prior[j]
		if t.appendix {
			t.h[j] /= t.to[j]
		}
	}
	s.Lin.X.AddSquares(t.to, x.D2, batch, s.hess.scratch())
	return nil
}

// try implements Algebra.
func (s *FactoredAlgebra) try(noisy bool) (valid, edge bool) {
	t, f := &s.pg, s.Fam.(*DiagFamily)
	for j, p := range f.Cur {
		if !(t.to[j] > 0) {
			return false, false
		}
		edge = edge || noisy && t.to[j] < min(noisyPivot*t.prior[j], p)
	}
	return true, edge
}

// halve implements Algebra.
func (s *FactoredAlgebra) halve() {
	t := &s.pg
	for j, p := range s.Fam.(*DiagFamily).Cur {
		t.to[j] = p + 0.5*(t.to[j]-p)
	}
	floats.Scale(0.5, t.h)
}

// take implements Algebra.
func (s *FactoredAlgebra) take() error {
	t, f := &s.pg, s.Fam.(*DiagFamily)
	t.mean = dense.Resize(t.mean, len(t.to))
	for j, p := range t.to {
		h := t.h[j]
		if !t.appendix {
			h /= p
		}
		t.mean[j] = s.Cur.Mean[j] + h
		if math.IsNaN(t.mean[j]+p) || math.IsInf(t.mean[j]+p, 0) {
			return fmt.Errorf("weight %d (%s) would move to N(%v, %v): %w", j, s.Lin.Names[j],
				t.mean[j], 1/p, sentinel.ErrNotFinite)
		}
	}
	s.Distance = floats.Distance(t.mean, s.Cur.Mean, 2)
	s.Cur.Mean, t.mean = t.mean, s.Cur.Mean
	copy(f.try, t.to)
	f.Accept()
	s.History.Reset()
	s.Fresh, s.Aimed, s.Started, s.free, s.proof = false, false, true, true, Proof{}
	return nil
}

// DiagFamily is the covFamily of diagonal V. Its coordinates are φ_j = −log V_jj.
type DiagFamily struct {
	Cur, try []float64 // V⁻¹
	metric   []float64 // F⁻¹
	v        []float64 // variances of try
	straight bool      // moves are straight in V, by −δ_j times V_jj, instead of in its logarithm
}

// newDiagFamily returns the family with V = diag(prec)⁻¹. It keeps prec.
func newDiagFamily(prec []float64) *DiagFamily {
	d := len(prec)
	return &DiagFamily{Cur: prec, try: make([]float64, d), metric: make([]float64, d)}
}

// Size implements covFamily.
func (f *DiagFamily) Size() int { return len(f.Cur) }

// Gradient implements covFamily. It is ½(1 − ρ) with ρ_j = A_jj V_jj. The Fisher information is
// ½. F is ½(ρ − 1)/log ρ, because a step without history then reaches V⁻¹ = diag(A) from any
// distance.
func (f *DiagFamily) Gradient(g []float64, a *WeightHessian) {
	for j, p := range f.Cur {
		r := a.diag[j] / p
		g[j] = 0.5 * (1 - r)
		r = math.Max(r, 1./16)
		f.metric[j] = 2
		if e := r - 1; math.Abs(e) > 1e-8 {
			f.metric[j] = 2 * math.Log1p(e) / e
		}
	}
}

// natural implements covFamily.
func (f *DiagFamily) natural(g []float64) { floats.Mul(g, f.metric) }

// begin implements covFamily.
func (f *DiagFamily) begin(dst []float64, a *WeightHessian) {
	f.straight = false
	for j, p := range f.Cur {
		dst[j] = math.Log(a.diag[j] / p)
	}
}

// begun implements covFamily.
func (f *DiagFamily) begun() bool { return true }

// renew implements covFamily.
func (f *DiagFamily) renew([]float64, *WeightHessian) bool { return false }

// Move implements covFamily.
func (f *DiagFamily) Move(t float64, delta []float64) {
	for j, p := range f.Cur {
		if f.straight {
			f.try[j] = p / (1 - t*delta[j])
		} else {
			f.try[j] = p * math.Exp(t*delta[j])
		}
	}
}

// secant implements covFamily.
func (f *DiagFamily) secant(dst []float64) {
	for j, p := range f.Cur {
		dst[j] = math.Log(p / f.try[j])
	}
}

// Variances implements covFamily.
func (f *DiagFamily) Variances(v []float64, x *design.Matrix, s *design.Work) {
	f.v = dense.Resize(f.v, len(f.try))
	for j, p := range f.try {
		f.v[j] = 1 / p
	}
	x.QuadDiagOn(s.Halt, v, f.v, nil)
}

// Divergence implements covFamily.
func (f *DiagFamily) Divergence(p *gauss.Prior) float64 {
	d := len(f.try)
	var kl float64
	for j, q := range f.try {
		if p.Full == nil {
			r := p.Prec[j] / q
			kl += r - 1 - math.Log(r)
		} else {
			kl += p.Full.P[j*d+j]/q - 1 + math.Log(q)
		}
	}
	if p.Full != nil {
		kl -= p.Full.LogDet
	}
	return 0.5 * kl
}

// Accept implements covFamily.
func (f *DiagFamily) Accept() { f.Cur, f.try = f.try, f.Cur }

// precondition implements covFamily.
func (f *DiagFamily) precondition(dst, r []float64,
	a *WeightHessian) {
	floats.DivTo(dst, r, a.diag)
}

// cov implements covFamily.
func (f *DiagFamily) cov() gauss.Cov {
	v := make(gauss.Diagonal, len(f.Cur))
	for j, p := range f.Cur {
		v[j] = 1 / p
	}
	return v
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

// state implements covFamily.
func (f *DiagFamily) state(c *save.Coder) {
	c.Floats(len(f.try), &f.Cur)
	c.Bool(&f.straight)
}

// worthProvingFactored is the estimated gap, as a multiple of the goal, below which the gap of a
// FactoredAlgebra is proved. A proof takes the work of a pass.
const worthProvingFactored = 10

// MostProof is the number of multiplications that the determinant of a proof may take, which is a
// few seconds.
const MostProof = 1e11

// worthProving reports whether a proof is worth its cost here. If the determinant takes longer
// than passes do, it is tried once, when the run may end. Most of the bound of a low-rank V is
// its distance from the best of all V, which later states hardly change.
func (s *FactoredAlgebra) worthProving(goal float64) bool {
	if s.ClosedForm() {
		return true // its only cost is the step of the mean, and that waits
	}
	switch work, _ := s.ProofWork(); {
	case work > s.Most:
		return false
	case work > directMost:
		return !s.proved && s.gap() <= goal
	}
	return s.Promise+s.Unseen <= worthProvingFactored*goal
}

// ProofWork returns the number of multiplications of the determinant of a proof, and whether it
// is over the rows. The number is +Inf if the determinant exceeds the memory limit of the model.
func (s *FactoredAlgebra) ProofWork() (work float64, dual bool) {
	l, d := s.Lin, s.Lin.X.Cols
	work, size, dual := s.hess.factorWork()
	rows := memory.Bytes(1, s.N, l.X.PerRow())
	rank := (s.Fam.Size() - d) / d
	if memory.Check(l.MaxMemory,
		rows+memory.Bytes(WeightVectors, 1, d)+memory.Bytes(LowRankMatrices, d, rank)+
			8*proofMatrices*size, "", "") != nil {
		work = math.Inf(1)
	}
	return work, dual
}

// proofMatrices is the largest number of N×N or D×D matrices of a proof.
const proofMatrices = 6

// Prove takes a Newton step of the mean, V held, unless the ELBO would fall. It returns a gap
// bound of the new state with an error well below the goal, or +Inf if it cannot prove one. The
// error comes from the crew, and the proof can then be continued.
func (s *FactoredAlgebra) Prove(goal float64, step bool) (float64, error) {
	d := s.Lin.X.Cols
	diagonal, ok := s.Fam.(*DiagFamily)
	if !s.terms.Concave() || !s.Cur.Certain {
		return math.Inf(1), nil
	}
	if step && !s.proof.stepped {
		s.held = append(s.held[:0], s.delta[:d]...)
		s.Cg.solve(s.delta[:d], &s.hess, s.grad[:d], s.Fam, 0.1*goal, true)
		floats.Scale(-1, s.delta[:d])
		old, err := s.Cur.Elbo, s.look(1, 0)
		if halted := s.workers.Halt.Err(); halted != nil {
			copy(s.delta[:d], s.held)
			return 0, halted
		}
		if s.proof.stepped = true; err == nil && s.next.Elbo > old {
			s.accept()
			s.remember(false)
			if err := s.Directed(); err != nil {
				return 0, err
			}
		} else {
			copy(s.delta[:d], s.held)
		}
	}
	if !s.Cur.Certain {
		return math.Inf(1), nil
	}
	s.Lin.Prior.Solve(s.buf, s.grad[:d])
	bound := 0.5 * floats.Dot(s.buf, s.grad[:d])
	if ok {
		var scales float64
		for j, p := range diagonal.Cur {
			own := s.Lin.Prior.At(j)
			scales += term.ScaleGap((s.hess.diag[j]-own)/p, own/p)
		}
		// the bound may be rounding
		if bound += scales; step && bound > goal && s.Promise+s.Unseen <= goal {
			bound = min(bound, s.rowsGap(goal)+2*scales)
		}
		return bound, s.workers.Halt.Err()
	}
	loss := s.loss()
	if err := s.workers.Halt.Err(); err != nil {
		return 0, err
	}
	s.proved = true
	return bound + loss, nil
}

// loss returns a bound on tr Δ − log|I + Δ| = tr(AV) − D − log|A|/|V⁻¹|, including its rounding.
func (s *FactoredAlgebra) loss() float64 {
	told, rounding := s.Told()
	s.Fam.Move(0, s.delta[s.Lin.X.Cols:])
	kl := 2 * s.Fam.Divergence(&s.Lin.Prior)
	var trace float64
	for n, v := range s.Cur.V {
		trace += s.Cur.Tg[n] * v
	}
	loss := max(0, kl+trace-told) + rounding + dense.Epsilon*(math.Abs(kl)+trace+math.Abs(told))
	if math.IsNaN(loss) {
		return math.Inf(1)
	}
	return loss
}

// Told returns log|A|/|Λ0| and a bound on its rounding. The bound is +Inf if the determinant is
// unknown.
func (s *FactoredAlgebra) Told() (logDet, rounding float64) {
	l, h, none := s.Lin, s.workers.Halt, math.Inf(1)
	work, dual := s.ProofWork()
	if work > s.Most {
		return 0, none
	}
	if dual {
		k, err := l.GramUntil(h)
		f := dense.SiteFactor{Halt: h}
		if err != nil || !f.Factor(k, s.N, s.Cur.Tg) {
			return 0, none
		}
		return f.LogDet, dense.Epsilon * term.Size(k, s.Cur.Tg)
	}
	prior := l.Prior.Full
	if prior == nil {
		prior = &gauss.Gaussian{}
		prior.Resize(l.X.Cols)
		for j, p := range l.Prior.Prec {
			prior.P[j*l.X.Cols+j] = p
		}
	}
	best, buf := gauss.Gaussian{Halt: h}, design.Work{Halt: h}
	best.CopyPrecision(prior)
	best.AddRows(l.X, s.Cur.Tg, nil, &buf)
	ok := best.Factor()
	if work <= directMost && !(ok && best.Pivot(&best) >= gauss.LeastPivot) {
		ok = best.Add(prior, l.X, s.Cur.Tg, nil, &buf) // with twice the digits
	}
	if !ok {
		return 0, none
	}
	before := l.Prior.LogDet()
	rounding = best.Rounding() + best.Resolution() +
		dense.Epsilon*(math.Abs(best.LogDet)+math.Abs(before))
	return best.LogDet - before, rounding
}

// factoredRows is the workspace of rowsGap.
type factoredRows struct {
	low []float64 // low parts of the slopes
	// errors of the linear predictors, and their prior variances
	drift, wide []float64
	r           dense.Double // the residual, or the mean
	delta, back []float64
}

// The slopes of rowsGap are refined rowsRefined times, or until the residual is worth rowsRest of
// the goal.
const (
	rowsRefined = 3
	rowsRest    = 0.1
)

// rowsGap bounds the gain that the mean still has, row by row; see Terms.RowGap. Raw units and
// wide priors magnify the rounding of c = Λ0m − Xᵀα̂ in ½cᵀΛ0⁻¹c. With slopes a near α̂ that make
// Λ0m − Xᵀa almost zero, computed with twice the digits, only the distances a − α̂ count.
// Refinement finds such slopes: with r = Xᵀa − Λ0m and Aδ = r, the slopes a − diag(γ̂)Xδ leave
// Λ0δ.
func (s *FactoredAlgebra) rowsGap(goal float64) float64 {
	c, p, x, g := &s.Cur, &s.Lin.Prior, s.Lin.X, &s.rows
	dense.ResizeAll(s.N, &c.A, &c.Gamma, &g.low, &g.drift, &g.wide)
	dense.ResizeAll(x.Cols, &g.r.Hi, &g.r.Lo, &g.delta, &g.back)
	copy(c.A, c.D1)
	copy(c.Gamma, c.Tg)
	clear(g.low)
	slopes := dense.Double{Hi: c.A, Lo: g.low}
	rest := math.Inf(1)
	for k := range rowsRefined + 1 {
		p.Residual(g.r, c.Mean, x, slopes, &design.Work{Halt: s.workers.Halt})
		p.Solve(g.back, g.r.Hi)
		if rest = 0.5 * floats.Dot(g.back, g.r.Hi); k == rowsRefined || rest <= rowsRest*goal ||
			s.workers.Halt.Stopped() {
			break
		}
		s.Cg.solve(g.delta, &s.hess, g.r.Hi, s.Fam, rowsRest*goal, true)
		x.MulOn(s.workers.Halt, g.drift, g.delta, nil)
		for n, e := range g.drift {
			g.low[n] -= c.Tg[n] * e
		}
		slopes.Round()
	}
	copy(g.r.Hi, c.Mean)
	clear(g.r.Lo)
	x.MulDouble(g.drift, g.r, nil)
	floats.Sub(g.drift, c.M)
	p.Variances(g.wide, x)
	// The residual adds to the c of rows without a tangent before squaring.
	rows := s.terms.RowGap(&c.Marginals, c.Elbo, g.wide, g.drift, goal-rest,
		s.workers.Halt)
	return rest + rows + 2*math.Sqrt(rest*rows)
}

// StartAt makes q the Gaussian with the given diagonal precision and mean. The mean is relative
// to the prior mean.
func (s *FactoredAlgebra) StartAt(precision, mean []float64) {
	copy(s.Fam.(*DiagFamily).Cur, precision)
	copy(s.Cur.Mean, mean)
	s.Fresh, s.Aimed, s.Started, s.proof = false, false, true, Proof{}
}
