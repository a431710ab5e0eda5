package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file proves gap bounds for a DenseAlgebra; see gap.go of package term for the bound.

// DenseGap is the workspace of the gap bound of a DenseAlgebra.
type DenseGap struct {
	c, h, dg []float64
	r, s     []float64 // for reconcile
	prior    []float64 // the diagonal of K
	next     term.Marginals
	before   term.Marginals // the state before settle
	rounds   bool           // the rounding of m − Ka may matter; see settle
	apart    float64        // drift of the state of Prove
	squares  []float64      // for weightedSquares
	fac      dense.SiteFactor
}

// Mean returns ½cᵀKc at s, and leaves c = K⁻¹m − ∂E/∂m in g.c.
func (g *DenseGap) Mean(k []float64, s *term.Marginals) float64 {
	n := len(s.M)
	g.c, g.h = dense.Resize(g.c, n), dense.Resize(g.h, n)
	floats.SubTo(g.c, s.A, s.D1)
	dense.Symv(1, dense.Symmetric(k, n), dense.Vector(g.c), 0, dense.Vector(g.h))
	return 0.5 * floats.Dot(g.c, g.h)
}

// A bound on tr Δ − log|I + Δ| is loose if it exceeds loosePrecision times ½‖Δ‖²_F, the value that
// it tends to. The exact value needs a factor of P + Γ̂. It pays if ‖Δ‖²_F is between leastLoose
// and mostLoose, as in one or two passes of a run.
const (
	loosePrecision = 1.02
	leastLoose     = 1e-3
	mostLoose      = 2
)

// Precision returns a bound on tr Δ − log|I + Δ| at s, with ‖Δ‖²_F = Σ_ij δ_i V_ij² δ_j for δ =
// γ̂ − γ. It reports whether the bound is so loose that Exact pays.
func (g *DenseGap) Precision(cov []float64, s *term.Marginals) (bound float64, loose bool) {
	n := len(s.M)
	g.dg = dense.Resize(g.dg, n)
	floats.SubTo(g.dg, s.Tg, s.Gamma)
	square, negative := g.weightedSquares(cov, g.dg)
	bound = term.PrecisionGap(square, negative, s.Gamma, s.Tg)
	return bound, bound > loosePrecision*0.5*square && square > leastLoose && square < mostLoose
}

// Exact returns tr Δ − log|I + Δ| at the s of the last call of Precision, with logDet =
// log|K|/|V|. The result includes its rounding.
func (g *DenseGap) Exact(k []float64, s *term.Marginals, logDet float64) float64 {
	if !g.fac.Factor(k, len(s.M), s.Tg) {
		return math.Inf(1)
	}
	return max(0, floats.Dot(g.dg, s.V)+logDet-g.fac.LogDet) + dense.Epsilon*term.Size(k, s.Tg)
}

// weightedSquares returns Σ_ij w_i V_ij² w_j, and the same sum over the negative w alone. The
// lower triangle of v is V.
func (g *DenseGap) weightedSquares(v, w []float64) (all, negative float64) {
	n := len(w)
	g.squares = dense.Resize(g.squares, 2*n)
	if workers := g.fac.Halt.Workers(); workers > 1 && n*n >= sharedSquares {
		parallel.For(n, squaredRows, workers, func(_, lo, hi int) { g.rowSquares(v, w, lo, hi) })
	} else {
		g.rowSquares(v, w, 0, n)
	}
	for i := range w {
		all += g.squares[2*i]
		negative += g.squares[2*i+1]
	}
	return math.Max(0, all), math.Max(0, negative)
}

// Goroutines share the squares of V in parts of squaredRows rows, if V has at least sharedSquares
// numbers, which take about 200 µs.
const (
	squaredRows   = 48
	sharedSquares = 1 << 18
)

// rowSquares stores the parts of rows lo … hi−1 of weightedSquares in g.squares.
func (g *DenseGap) rowSquares(v, w []float64, lo, hi int) {
	n := len(w)
	for i := lo; i < hi; i++ {
		wi := w[i]
		var s, below float64
		for j, vij := range v[i*n : i*n+i] {
			x := w[j] * vij * vij
			s += x
			below += min(x, 0)
		}
		own := wi * v[i*n+i] * v[i*n+i]
		g.squares[2*i], g.squares[2*i+1] = wi*(2*s+own), 0
		if wi < 0 {
			g.squares[2*i+1] = wi * (2*below + own)
		}
	}
}

// meanHalvings is how often the step of the mean is halved until the ELBO does not fall. No
// halving is needed within a step or two of the optimum, and elsewhere a proof can wait.
const meanHalvings = 4

// Prove returns a gap bound of the current state, whose V must be known. If keep is set, the step
// of the mean becomes the current state. Steps of all terms do not set it, because they mix
// earlier states and would not gain. If the bound exceeds the goal, it is refined by rows. The
// error comes from the crew and leaves the state unchanged.
func (s *DenseAlgebra) Prove(keep bool, goal float64) (float64, error) {
	g := &s.gap
	g.apart = 0
	if !s.Terms.Concave() || !s.Cur.Certain {
		return math.Inf(1), nil
	}
	precision, _ := g.Precision(s.Cov, &s.Cur) // for the present V, at the last state
	bound := precision + g.Mean(s.K, &s.Cur)
	dense.Symv(1, dense.Symmetric(s.Cov, s.N), dense.Vector(g.c), 0, dense.Vector(g.h))
	before, next := s.Elbo(&s.Cur, s.LogDet), &g.next
	next.Resize(s.N)
	copy(next.V, s.Cur.V)
	copy(next.Gamma, s.Cur.Gamma)
	t, moved := 1.0, false
	for range meanHalvings {
		for i, h := range g.h {
			next.M[i] = s.Cur.M[i] - t*h
			next.A[i] = s.Cur.A[i] - t*(g.c[i]-s.Cur.Gamma[i]*h)
		}
		if g.rounds && !s.reconcile(next) {
			return 0, s.Workers.Halt.Err()
		}
		if s.Terms.Expect(next, nil, s.Workers) == nil {
			gain, off, there := s.Elbo(next, s.LogDet)-before, 0.0, math.Inf(1)
			if g.rounds {
				off = s.drift(next)
			} else if x := s.roughDrift(next); x > max(roundingGoal*goal, roundingGap*precision) {
				g.rounds = true // repeat the step
				continue
			}
			if gain >= 0 {
				if next.Certain {
					var loose bool
					there, loose = g.Precision(s.Cov, next)
					exact := there
					if loose {
						exact = min(exact, g.Exact(s.K, next, s.LogDet))
					}
					bound = min(bound, gain+off+g.Mean(s.K, next)+exact)
				}
				if moved = keep && gain > off; moved {
					precision = there
					bound, g.apart = bound-gain+off, off
				}
				break
			}
		}
		if err := s.Workers.Halt.Err(); err != nil {
			return 0, err
		}
		t /= 2
	}
	last := &s.Cur
	if moved {
		last = next
	}
	if bound > max(goal, 2*precision) && last.Certain {
		bound = min(bound, s.rowsGap(last, goal-2*precision)+2*precision)
	}
	if err := s.Workers.Halt.Err(); err != nil {
		return 0, err
	}
	if moved {
		s.Cur, *next = *next, s.Cur
	}
	return bound, nil
}

// rowsGap returns the bound on the gap of c by its rows, V held. It replaces the bound of the
// mean, and doubles the bound of V. It helps if K is large and sites are strong, because the
// bound of the mean is then K times the squared rounding of ∂E/∂m.
func (s *DenseAlgebra) rowsGap(c *term.Marginals, goal float64) float64 {
	g, n := &s.gap, s.N
	g.h, g.prior = dense.Resize(g.h, n), dense.Resize(g.prior, n)
	dense.Residual(s.Workers.Halt, g.h, c.M, s.K, c.A)
	for i := range g.prior {
		g.prior[i] = s.K[i*n+i]
	}
	return s.Terms.RowGap(c, s.Elbo(c, s.LogDet), g.prior, g.h, goal, s.Workers.Halt)
}
