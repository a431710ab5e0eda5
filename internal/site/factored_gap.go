package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file proves gap bounds for a FactoredAlgebra; see gap.go of package term for the bound.

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
