package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file learns the covariances Σ = LLᵀ of the effects of levels. Before a Problem computes the
// variances at new sites, profile moves L to the maximum of
//
//	log Z(L) = ½(hᵀm − log|C|/|V|) + log p(L)
//
// at these sites, where Z normalizes the prior times the sites, h = Xᵀb and m is the mean. That
// needs the sums over rows that the next Cover needs anyway, so L costs no passes. The value of the
// state is then the negative ELBO at that L minus log p(L), and no step may raise it.
//
// The steps are Newton's in the elements of L, because a standard deviation of 0 is then an ordinary
// point (arrow_curve.go, and arrow_cross.go for several factors). With several factors and a wide
// border, a Hessian costs too much, so an average replaces it (arrow_average.go).

// sigma holds what a profile needs.
type sigma struct {
	coords []sigmaCoord
	start  [][]float64 // L at the start of the fit, of each factor
	scale  [][]float64 // scales of the priors; nil means no prior

	grad, next [][]float64
	curve      sigmaCurve
	inv        []float64 // the covariance of the border in units of the factors
	mean       gauss.ArrowMean
	rate       sigmaRate
	given      [][]float64 // L of a joint step, in place of a profile
	refused    int         // states tried since the last one was accepted
	denied     bool        // no part of the last profile was accepted
	failed     bool        // no part of the last joint step was accepted
	linear     *joint      // the model of the present state, or nil before it is computed
	profiles   int         // evaluations of log Z so far
}

// sigmaCoord is an element of an L that is learned: row and column of factor f.
type sigmaCoord struct{ f, row, col int }

// begin sets s for the factors of a.
func (s *sigma) begin(a *arrow) {
	for f := range a.fac {
		x := &a.fac[f]
		s.start = append(s.start, x.L)
		s.scale = append(s.scale, nil)
		s.grad = append(s.grad, make([]float64, len(x.L)))
		s.next = append(s.next, make([]float64, len(x.L)))
		if !x.rule.Learn {
			continue
		}
		s.scale[f] = x.rule.Scale
		for i := range x.Q {
			for j := range i + 1 {
				if i == j || !x.rule.Independent {
					s.coords = append(s.coords, sigmaCoord{f, i, j})
				}
			}
		}
	}
}

// learns reports whether an L is learned.
func (s *sigma) learns() bool { return len(s.coords) > 0 }

// logPrior returns log p(L), up to a constant, and adds its gradient to grad unless that is nil.
// Standard deviations s_i are half-normal, and correlations have the density |R| of LKJ(2)
// (Lewandowski, Kurowicka and Joe, 2009). The result is at most 0.
func (s *sigma) logPrior(l, grad [][]float64) (sum float64) {
	for f, scale := range s.scale {
		if scale == nil {
			continue
		}
		q := len(scale)
		for i, c := range scale {
			row := l[f][i*q : i*q+i+1]
			square := floats.Dot(row, row)
			sum -= 0.5 * square / (c * c)
			lkj := i > 0 && square > 0 // a correlation with an effect of sd 0 does not matter
			if lkj && row[i] == 0 {
				return math.Inf(-1)
			}
			if lkj {
				sum += math.Log(row[i] * row[i] / square)
			}
			if grad == nil {
				continue
			}
			for k, x := range row {
				grad[f][i*q+k] -= x / (c * c)
				if lkj {
					grad[f][i*q+k] -= 2 * x / square
				}
			}
			if lkj {
				grad[f][i*q+i] += 2 / row[i]
			}
		}
	}
	return sum
}

// profile is the Profile of the Problem. It moves L to its best at the sites to be tried.
func (a *arrow) profile(gamma, b []float64) {
	l := a.lin
	early := !a.moved && l.Near == nil && a.follows() && (a.few || !l.Terms.Concave())
	if early || !a.sigma.learns() {
		return // at the prior, such sites mislead
	}
	s, t := &a.sigma, &a.try
	if s.given != nil {
		t.by.L = s.given
		a.sum(t, gamma, nil)
		s.rate.propose(a, t.by.L)
		a.pending = true
		return
	}
	if s.refused++; s.refused > sigmaTries+sigmaShorter {
		return
	}
	t.by.L = gauss.CloneLists(a.cur.by.L)
	a.sum(t, gamma, b)
	a.maximize(t)
	for short := sigmaTries; short < s.refused; short++ {
		for f, l := range t.by.L {
			floats.Scale(sigmaShort, l)
			floats.AddScaled(l, 1-sigmaShort, a.cur.by.L[f])
		}
	}
	s.rate.propose(a, t.by.L)
	a.pending = true
}

// logZ returns log Z + log p(L) at the sums and the L of t. It stores the gradient in the elements of
// L in grad unless that is nil. It returns −Inf if the precision is not positive definite.
func (a *arrow) logZ(t *arrowState, grad [][]float64) float64 {
	s := &a.sigma
	s.profiles++
	t.by.KeepSchur = grad != nil
	if !t.by.Factor(a.crew.Halt) {
		return math.Inf(-1)
	}
	x := &s.mean
	t.by.Solve(x, a.hb, a.hg, a.solveWork)
	z := 0.5 * (floats.Dot(a.hb, x.W) + floats.Dot(a.hg, x.U) - t.by.LogDet)
	for f := range grad {
		clear(grad[f])
	}
	z += s.logPrior(t.by.L, grad)
	if math.IsNaN(z) || a.crew.Halt.Stopped() {
		return math.Inf(-1)
	}
	switch {
	case grad == nil:
	case a.shape.Crossed():
		a.crossSlopes(t, grad)
	default:
		s.inv = t.by.InverseUntil(a.crew.Halt, s.inv)
		a.bend(t)
		addSlope(grad[0], s.curve.total.slope, t.by.L[0], a.fac[0].Q)
	}
	return z
}

// chunked calls f for each chunk of levels with its number.
func (a *arrow) chunked(f func(chunk, lo, hi int)) {
	a.levels(func(_ *arrowWork, lo, hi int) {
		chunk := 0
		for a.chunks[chunk] != lo {
			chunk++
		}
		f(chunk, lo, hi)
	})
}

// Far from the optimum, the best L at the sites may have a lower ELBO than the present L, even if
// the sites hardly move. After sigmaTries states that were not accepted, the next sigmaShorter states
// go only a part of the way to the best L, sigmaShort times the part before. Later states keep the
// present L.
const (
	sigmaTries   = 2
	sigmaShorter = 3
	sigmaShort   = 0.25
)

const (
	sigmaSteps = 30    // Newton steps of a profile, at most
	sigmaSmall = 1e-10 // predicted gain, in nats, that ends a profile
	// A diagonal element of L below this part of its start is raised to it at first, because 0 is a
	// saddle. An early bad step may have led there.
	sigmaKick    = 0.05
	sigmaTiny    = 1e-3 // least unit of an element of L, as a part of its start
	sigmaLongest = 1.5  // longest step, in units of the standard deviations
	sigmaHalves  = 20
)

// maximize moves L of t to the best at the sums of t, and returns log Z + log p(L) there.
func (a *arrow) maximize(t *arrowState) float64 {
	s := &a.sigma
	from, least := gauss.CloneLists(t.by.L), math.Inf(-1)
	if s.kick(a, t.by.L) {
		t.by.L, from = from, t.by.L
		least = a.logZ(t, nil)
		t.by.L, from = from, t.by.L
	}
	z := a.ascend(t)
	if z < least {
		t.by.L, z = from, least
	}
	s.positive(a, t.by.L)
	return z
}

// kick raises the diagonals of l that are near 0, and reports whether there are any.
func (s *sigma) kick(a *arrow, l [][]float64) (raised bool) {
	for _, c := range s.coords {
		at := c.row*a.fac[c.f].Q + c.row
		least := sigmaKick * s.start[c.f][at]
		if c.row == c.col && math.Abs(l[c.f][at]) < least {
			l[c.f][at], raised = least, true
		}
	}
	return raised
}

// ascend is maximize from the L of t.
func (a *arrow) ascend(t *arrowState) float64 {
	s := &a.sigma
	z := a.logZ(t, s.grad)
	if math.IsInf(z, -1) {
		return z
	}
	most, small := sigmaSteps, sigmaSmall
	if a.wide() {
		most, small = wideSteps, wideSmall
	}
	for range most {
		step, gain := a.sigmaStep(t)
		if !(gain >= small) {
			break
		}
		next, ok := a.climb(t, step, z)
		if !ok {
			break
		}
		z = next
	}
	return a.zero(t, z)
}

// zero sets a row of L that is near 0, or else its diagonal element, to 0 if that does not lower
// log Z.
func (a *arrow) zero(t *arrowState, z float64) float64 {
	s := &a.sigma
	for _, c := range s.coords {
		if c.row != c.col {
			continue
		}
		q := a.fac[c.f].Q
		row := t.by.L[c.f][c.row*q : c.row*q+c.row+1]
		small := sigmaKick * s.start[c.f][c.row*q+c.row]
		switch {
		case row[c.row] == 0 || math.Abs(row[c.row]) >= small:
			continue
		case floats.Norm(row, 2) >= small:
			row = row[c.row:]
		}
		before := slices.Clone(row)
		clear(row)
		if next := a.logZ(t, nil); next >= z {
			z = next
		} else {
			copy(row, before)
		}
	}
	return z
}

// positive makes the diagonals of L at least 0. LLᵀ stays the same.
func (s *sigma) positive(a *arrow, l [][]float64) {
	for _, c := range s.coords {
		q := a.fac[c.f].Q
		if c.row == c.col && l[c.f][c.row*q+c.row] < 0 {
			for i := c.row; i < q; i++ {
				l[c.f][i*q+c.row] = -l[c.f][i*q+c.row]
			}
		}
	}
}

// climb takes the step, or a part of it that raises log Z.
func (a *arrow) climb(t *arrowState, step []float64, z float64) (next float64, ok bool) {
	s := &a.sigma
	old, h := gauss.CloneLists(t.by.L), 1.0
	for range sigmaHalves {
		for f := range t.by.L {
			copy(t.by.L[f], old[f])
		}
		a.moveL(t.by.L, old, step, h)
		if next = a.logZ(t, s.next); next >= z {
			s.grad, s.next = s.next, s.grad
			return next, true
		}
		h /= 2
	}
	for f := range t.by.L {
		copy(t.by.L[f], old[f])
	}
	return z, false
}

// moveL stores L after the fraction h of the step from old in l.
func (a *arrow) moveL(l, old [][]float64, step []float64, h float64) {
	for k, c := range a.sigma.coords {
		at := c.row*a.fac[c.f].Q + c.col
		l[c.f][at] = old[c.f][at] + h*step[k]
	}
}

// sigmaStep returns the next step in the coordinates, and its predicted gain.
func (a *arrow) sigmaStep(t *arrowState) (step []float64, gain float64) {
	s := &a.sigma
	n := len(s.coords)
	unit, g, b := s.units(a, t.by.L, sigmaTiny), make([]float64, n), mat.NewSymDense(n, nil)
	for i, c := range s.coords {
		g[i] = unit[i] * s.grad[c.f][c.row*a.fac[c.f].Q+c.col]
	}
	a.hessian(t, unit, b)
	return newtonStep(b, g, unit, false)
}

// newtonStep returns Newton's step for the gradient g and the negative Hessian b in the given units,
// and its predicted gain. The Hessian is made positive, and steps in its directions are bounded. If
// leave is set, the step has the largest length in directions of negative curvature, because a
// Newton step leaves a saddle slowly.
func newtonStep(b *mat.SymDense, g, unit []float64, leave bool) (step []float64, gain float64) {
	n := len(g)
	var e mat.EigenSym
	if !e.Factorize(b, true) {
		return nil, 0
	}
	values := e.Values(nil)
	var v mat.Dense
	e.VectorsTo(&v)
	step = make([]float64, n)
	for k, x := range values {
		var c float64
		for i := range n {
			c += v.At(i, k) * g[i]
		}
		saddle := leave && x < -1e-8*values[n-1]
		x = max(math.Abs(x), 1e-8*values[n-1], 1e-12)
		y := max(-sigmaLongest, min(sigmaLongest, c/x))
		if saddle {
			y = math.Copysign(sigmaLongest, c)
			x = min(x, math.Abs(c/y)) // the gain is at least |cy|/2
		}
		gain += c*y - 0.5*x*y*y
		for i := range n {
			step[i] += v.At(i, k) * y * unit[i]
		}
	}
	return step, gain
}
