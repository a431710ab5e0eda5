package site

import (
	"errors"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/batches"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file fits GLMs with a full covariance in their weights. WeightAlgebra is their Algebra. It
// approaches the optimum by blocks of rows (weights_block.go), continues with steps of all rows by
// BaseAlgebra, and proves gap bounds (weights_gap.go). SpanAlgebra (weights_span.go) fits few rows
// of many columns over the span of the rows. NewRowAlgebra (linear.go) chooses between them. GLM
// and SparseGP of the root package use WeightAlgebra directly if there are more rows than weights.

// WeightMatrices is the largest number of D×D matrices of a model with a WeightAlgebra: 13
// measured for three states, the prior, a step and a posterior, and two more for each of these
// that needs twice the digits.
const WeightMatrices = 22

// WeightAlgebra is the Gaussian over the weights of a GLM with a full covariance. Its sites are
// the sites of the rows,
//
//	V⁻¹ = Λ0 + Xᵀ diag(γ) X,   V⁻¹(m − μ0) = Xᵀb,
//
// unless a step with a given β has left them.
type WeightAlgebra struct {
	BaseAlgebra
	Lin   *LinearModel
	Prior *gauss.Gaussian

	Mover weightMover // mover of the problem of all rows

	Run           gauss.Gaussian // the current state, with its mean about μ0
	Gamma, A, Eta []float64      // the sites of Cur: γ, and the linear coefficient about η
	Free          bool           // Run has no sites

	Blocks WeightBlock
	Gap    weightGap
	Pg     weightPaper
	enough int       // rows in blocks before all rows follow; 0 means all
	before []float64 // the mean before a step
	in     []bool    // scratch of distinct
	unique []int
}

// Linear returns the model of the weights.
func (s *WeightAlgebra) Linear() *LinearModel { return s.Lin }

// weightBase is the Base of a WeightAlgebra. It gives Sites the fast methods of base.go.
type weightBase struct {
	*weightMover
	s *WeightAlgebra
}

var _ interface {
	Base
	holder
	spreader
	coverer
	blocker
	keeper
} = weightBase{}

// NewWeightAlgebra returns the prior of l.
func NewWeightAlgebra(l *LinearModel, c term.Crew) (*WeightAlgebra, error) {
	return NewWeightAlgebraIn(nil, l, c)
}

// NewWeightAlgebraIn is NewWeightAlgebra in the memory of old, which must not be used afterward.
// A nil old is allowed.
func NewWeightAlgebraIn(old *WeightAlgebra, l *LinearModel, c term.Crew) (*WeightAlgebra, error) {
	prior, err := l.Prior.StateUntil(c.Halt)
	if err != nil {
		return nil, err
	}
	s := &WeightAlgebra{Lin: l, Prior: prior}
	s.Mover.X, s.Mover.Base, s.Mover.prior = l.X, prior, &l.Prior
	s.Run.CopyFrom(s.Prior)
	if l.Terms.Noise() == 0 && l.outerPays() {
		s.Batch.Outer = min(l.X.Rows, l.X.Cols)
	}
	s.Batch.plain = l.X.Rows > 100000
	s.Blocks.rough = l.X.Rows >= ampleRows*l.X.Cols
	if l.Terms.Concave() {
		s.enough = enoughOf(l.X.Rows, l.X.Cols)
	}
	if old != nil {
		s.takeMemory(&old.BaseAlgebra)
	}
	s.lay(l.Terms, weightBase{&s.Mover, s}, c)
	s.Gamma, s.A, s.Eta = s.Cur.Gamma, s.Cur.A, s.Cur.M
	return s, nil
}

// ampleRows is the number of rows per weight from which the log-likelihoods of half of the rows
// sum to almost a parabola. One Newton step of all rows then leaves little, so blocks need not be
// solved accurately.
const ampleRows = 64

// Blocks of 1/enoughPart of all rows are enough, or of enoughRows rows per weight, because
// precisions are then mostly within 0.01 nats after one pass. A sixteenth of the rows takes a
// tenth less time, but a fit of 17,000 rows from a file with almost equal columns then diverged.
const (
	enoughPart = 8
	enoughRows = 128
)

// enoughOf returns how many rows blocks must read before one step of the mean and the targets of
// all rows leave almost no gain, in a concave model. It is a third of the rows, if that is less
// than enoughRows per weight and at least a quarter of them. It returns 0 if there are too few
// rows.
func enoughOf(rows, weights int) int {
	enough := max(rows/enoughPart, min(rows/3, enoughRows*weights))
	if 4*enough < enoughRows*weights {
		return 0
	}
	return enough
}

// mostBlock is the number of rows up to which every block may grow, because its data then fit
// into the cache. Half of 100,000 rows in one block took a quarter more time, and left more.
const mostBlock = 4096

// outerWork is the number of multiplications per row of a new V from which outer steps pay. It is
// the cost of 64 dense columns, for which the expectations of the inner steps take as long as
// they save.
const outerWork = 64 * 64

// outerPays reports whether a full covariance of the weights costs enough for outer steps.
func (l *LinearModel) outerPays() bool {
	n, d := float64(l.X.Rows), float64(l.X.Cols)
	work := d * d * d
	if l.X.Sparse == nil {
		work += n * d * d
	} else {
		for i := range l.X.Rows {
			ind, _ := l.X.Sparse.Row(i)
			work += float64(len(ind) * len(ind))
		}
	}
	return work > outerWork*n
}

// plan implements blocker: outer steps of all rows if these pay, one step of all rows under
// Gaussian noise, and otherwise one pass of growing blocks, to approach the optimum, and then
// steps of all rows.
func (b weightBase) plan() sitePlan {
	s := b.s
	if s.Batch.Outer > 0 || s.Terms.Noise() > 0 {
		return sitePlan{}
	}
	first := min(max(32, 2*s.Lin.X.Cols), (s.N+3)/4)
	most := max(first, mostBlock, ampleRows*s.Lin.X.Cols)
	return sitePlan{Batch: first,
		Sampler: batches.Approach{First: first, Most: most, Enough: s.enough}}
}

// use implements keeper.
func (b weightBase) use(c term.Crew) {
	s := b.s
	s.Pg.Buf.Halt, s.Pg.next.Halt, s.Pg.metric.Halt, s.Run.Halt = c.Halt, c.Halt, c.Halt, c.Halt
	s.Prior.Halt, s.Gap.target.Halt, s.Gap.Buf.Halt = c.Halt, c.Halt, c.Halt
	s.Mover.use(c.Halt)
	s.Blocks.Use(c)
}

// Prior implements Base.
func (b weightBase) Prior() (base term.Marginals) {
	s := b.s
	base, s.spare = s.spare, term.Marginals{}
	dense.ResizeAll(s.N, &base.M, &base.V)
	base.Gamma, base.A = base.M, base.M // zeros, which nothing writes
	if prec := s.Lin.Prior.Prec; prec != nil {
		v := make([]float64, len(prec))
		for j, l := range prec {
			v[j] = 1 / l
		}
		s.Lin.X.QuadDiagOn(s.Workers.Halt, base.V, v, nil)
	} else {
		s.Prior.Variances(base.V, s.Lin.X, nil, &s.Mover.Buf)
	}
	return base
}

// restart implements keeper.
func (b weightBase) restart() {}

// stale implements keeper.
func (b weightBase) stale() {}

// settled implements keeper.
func (b weightBase) settled() bool { return true }

// follow implements keeper.
func (b weightBase) follow() (distance float64) {
	b.s.Gap.known = false
	distance = floats.Distance(b.s.Run.Mean, b.Cur.Mean, 2)
	b.s.Run.CopyFrom(&b.Cur)
	return distance
}

// Settle makes the state of the problem of all rows the current state; see Sites.Refresh.
func (s *WeightAlgebra) Settle() error {
	if s.Free {
		if err := s.sitesHere(); err != nil {
			return err
		}
	}
	err := s.Refresh()
	s.Free = s.Free && err != nil
	return err
}

// sitesHere gives a state without sites the targets at that state as sites.
func (s *WeightAlgebra) sitesHere() error {
	var t term.Marginals
	t.Resize(s.N)
	s.Lin.X.Mul(t.M, s.Run.Mean, nil)
	s.Run.Variances(t.V, s.Lin.X, nil, &s.Mover.Buf)
	if err := s.Terms.Expect(&t, nil, s.Workers); err != nil {
		return err
	}
	copy(s.Gamma, t.Tg)
	copy(s.A, t.D1)
	copy(s.Eta, t.M)
	return nil
}

// Ascend implements Algebra.
func (s *WeightAlgebra) Ascend() (passes int, err error) {
	if ok, err := s.direct(); ok || err != nil {
		return 1, err
	}
	if err := s.Settle(); err != nil {
		return 0, err
	}
	return s.BaseAlgebra.Ascend()
}

// Slow implements Algebra.
func (s *WeightAlgebra) Slow() bool { return s.Progress.Slow }

// block implements blocker. It does not check the ELBO; the next evaluation does.
func (b_ weightBase) block(batch []int) error {
	s := b_.s
	if s.Free {
		if err := s.Settle(); err != nil {
			return err
		}
	}
	b := &s.Blocks
	batch = s.distinct(batch)
	m := len(batch)
	if s.goesOn(batch) {
		return s.rest(s.N - m)
	}
	b.Base.Resize(m)
	x, at := b.near(s.Lin.X, batch)
	x.MulOn(s.Workers.Halt, b.Base.M, s.Run.Mean, at)
	for k, i := range batch {
		b.Base.Gamma[k] = s.Gamma[i]
		b.Base.A[k] = s.A[i] - s.Gamma[i]*(b.Base.M[k]-s.Eta[i])
	}
	s.before = append(s.before[:0], s.Run.Mean...)
	if err := b.solve(&s.Run, x, at, s.Terms, batch); errors.Is(err, sentinel.ErrNotFinite) ||
		errors.Is(err, sentinel.ErrDiverged) {
		// At the present state this block has no expectations, or it cannot be solved. It is left
		// out, and a step of all rows decides.
		s.Distance, s.Fresh = 0, false
		return nil
	} else if err != nil {
		return err
	}
	for k, i := range batch {
		s.Gamma[i], s.A[i], s.Eta[i] = b.Base.Gamma[k], b.Base.A[k], b.Base.M[k]
	}
	s.Distance = floats.Distance(s.before, s.Run.Mean, 2)
	s.Fresh = false
	return nil
}

// goesOn reports whether batch holds all remaining rows, none of them in a block yet, when blocks
// have read enough rows.
func (s *WeightAlgebra) goesOn(batch []int) bool {
	seen := s.N - len(batch)
	if s.enough == 0 || s.Started || seen < s.enough || seen > 2*s.enough {
		return false
	}
	gamma, a := s.Gamma, s.A
	for _, i := range batch {
		if gamma[i] != 0 || a[i] != 0 {
			return false
		}
	}
	return true
}

// rest continues from blocks of some rows, seen of them, to all rows. It takes a step of the mean
// up the gradient of all rows, in the metric of their precision times N/seen. The targets there
// become the sites of all rows. If the ELBO is lower there, the sites are the targets before the
// step.
func (s *WeightAlgebra) rest(seen int) error {
	if s.prepareTry(); s.Workers.Halt.Stopped() {
		s.base.M = nil
		return s.Workers.Halt.Err()
	}
	g, d, next := &s.Gap, s.Lin.X.Cols, &s.Batch.Try
	g.c, g.z = dense.Resize(g.c, d), dense.Resize(g.z, d)
	part := float64(seen) / float64(s.N)
	before := s.priorValue(s.Run.Mean)
	q := survey{mean: s.Run.Mean, scale: part, v: next.V, grad: g.c}
	if err := q.run(s); errors.Is(err, sentinel.ErrNotFinite) {
		s.Distance, s.Fresh = 0, false
		return nil // as for a block
	} else if err != nil {
		return err
	}
	before += q.sum
	dense.Potrs(s.Run.L, g.c)
	floats.AddScaledTo(g.z, s.Run.Mean, part, g.c)
	q.mean, q.scale, q.grad, q.gamma, q.c = g.z, 0, nil, next.Gamma, next.C
	if err := q.run(s); err != nil || s.priorValue(g.z)+q.sum < before {
		if err := s.Workers.Halt.Err(); err != nil {
			return err
		}
		q.mean = s.Run.Mean
		if err := q.run(s); err != nil { // only a halt fails here, because the mean has expectations
			return err
		}
	}
	return s.settleThere()
}

// priorValue returns the logarithm of the prior density of the given mean, up to a constant, and
// leaves −Λ0 times the mean in s.Gap.c.
func (s *WeightAlgebra) priorValue(mean []float64) float64 {
	g := &s.Gap
	clear(g.c)
	dense.Symv(-1, dense.Symmetric(s.Prior.P, s.Lin.X.Cols), dense.Vector(mean), 0,
		dense.Vector(g.c))
	return 0.5 * floats.Dot(g.c, mean)
}

// settleThere makes the state at the sites of s.Batch.Try the current state. The state after the
// blocks remains if the new state has no value or the crew is halted.
func (s *WeightAlgebra) settleThere() error {
	p := &s.Batch
	ok := p.Eval() && !math.IsInf(p.Try.Value, 0)
	if err := s.Workers.Halt.Err(); err != nil {
		return err
	}
	if !ok {
		s.Distance, s.Fresh = 0, false
		return nil
	}
	p.Cur, p.Try = p.Try, p.Cur
	p.Mover.Accept()
	s.Started, s.Batched = true, true
	s.BaseAlgebra.follow(&p.Cur)
	return nil
}

// distinct returns batch without repetitions.
func (s *WeightAlgebra) distinct(batch []int) []int {
	if increase(batch) {
		return batch
	}
	if s.in == nil {
		s.in = make([]bool, s.N)
	}
	s.unique = slices.Grow(s.unique[:0], len(batch))
	for _, i := range batch {
		if !s.in[i] {
			s.in[i] = true
			s.unique = append(s.unique, i)
		}
	}
	for _, i := range s.unique {
		s.in[i] = false
	}
	return s.unique
}

// increase reports whether each number is larger than the one before.
func increase(x []int) bool {
	for k := 1; k < len(x); k++ {
		if x[k] <= x[k-1] {
			return false
		}
	}
	return true
}

// Evaluate implements Algebra. Blocks that lowered the ELBO are undone. The gap is ½δᵀFδ in
// natural parameters, with the gradient g of the ELBO in the mean and the distance ΔP of the
// precision from its target,
//
//	½ gᵀVg + ¼ tr(VΔPVΔP),
//
// plus an allowance for rounding if features are collinear to more digits than float64 has.
// term.SiteChange bounds the second part. The gap is unknown after a step with a given β.
func (s *WeightAlgebra) Evaluate(within float64) (siteEvaluation, error) {
	if s.Free {
		return s.freeEvaluation()
	}
	if err := s.Settle(); err != nil {
		return siteEvaluation{}, err
	}
	gap := s.Promise()
	goal := goals.Of(within, s.N, -s.Batch.Cur.Value)
	near := gap <= nearGoal*goal && s.Terms.Lik.SelfBounded()
	if !s.Proof.made && !near && (s.Batch.Outer > 0 ||
		s.Blocks.rough && gap <= worthStepping*float64(s.Lin.X.Cols)) {
		if err := s.stepMean(); err != nil {
			return siteEvaluation{}, err
		}
		gap = s.Promise()
	}
	if !s.Proof.made && gap <= max(worthProving, within) {
		stepped := s.Proof.stepped
		bound, err := s.Prove(goal, near)
		if err != nil {
			return siteEvaluation{}, err
		}
		if stepped || !s.Proof.stepped { // the state did not move
			gap += s.Proof.rounding
		} else {
			gap = s.Promise()
		}
		s.Proof.bound = goals.Bound(bound)
		gap = min(gap, s.Proof.bound)
	}
	s.Proof.made = true
	c := &s.Batch.Cur
	bound := c.Err + s.Mover.Cur.Rounding() + s.Mover.Cur.Resolution()
	return siteEvaluation{ELBO: -c.Value, ELBOErr: goals.NeverZero(bound),
		Gap: goals.NeverZero(gap), GapBound: s.Proof.bound}, nil
}

// Promise returns the gap of the state of the problem of all rows; see Evaluate.
func (s *WeightAlgebra) Promise() float64 {
	c := &s.Batch.Cur
	if c.Wild {
		return math.Inf(1)
	}
	s.inspect()
	return s.Gap.mean + 0.25*s.Gap.change.Square() + s.Mover.Cur.Rounding() + s.Proof.rounding
}

// inspect computes the gradient and the change of the sites at the state of the problem of all
// rows, once per state.
func (s *WeightAlgebra) inspect() {
	g, c, b := &s.Gap, &s.Batch.Cur, &s.Blocks
	if g.known {
		return
	}
	b.Mover.X, b.Mover.Index = s.Lin.X, nil
	g.mean, _ = b.Promise(&c.Marginals, &s.Mover.Cur)
	g.up = append(g.up[:0], b.up...)
	g.change = c.Change()
	g.known = !s.Workers.Halt.Stopped()
}

// Weights implements Weighted.
func (s *WeightAlgebra) Weights() ([]float64, gauss.Cov, error) {
	w := &gauss.Gaussian{}
	w.CopyFrom(&s.Run)
	return append([]float64(nil), w.Mean...), &gauss.Full{S: w}, nil
}

// save implements keeper.
func (b weightBase) save(c *save.Coder) {
	s, d := b.s, b.s.Lin.X.Cols
	s.Gap.known = false
	s.Run.State(c, d)
	c.Bool(&s.Free, &s.Blocks.Pace.Measured)
	c.Int(&s.Blocks.Pace.Age)
	c.Float(&s.Blocks.Pace.After.Mean, &s.Blocks.Pace.After.Precision)
	if s.Started && c.Err() == nil {
		s.Mover.Cur.State(c, d)
		s.Mover.moved = true
	}
}

// resume implements keeper.
func (b weightBase) resume([]float64) {}

// Constant implements Algebra.
func (s *WeightAlgebra) Constant() bool { return !s.Free && s.BaseAlgebra.Constant() }

// StartAt sets q to the sites γ and a. The coefficients a are about the linear predictors m.
func (s *WeightAlgebra) StartAt(gamma, a, m []float64) {
	copy(s.Gamma, gamma)
	copy(s.A, a)
	copy(s.Eta, m)
	s.Fresh, s.Batched, s.Free, s.Started, s.Proof = false, false, false, false, Proof{}
}
