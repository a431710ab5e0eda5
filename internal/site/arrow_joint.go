package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// This file moves L and the sites together. A profile holds the sites, but the sites follow L, so
// the error of L falls only by the factor ρ per pass (arrow_rate.go), which is near 1 if levels have
// one binary response. A joint step is Newton's step of L with the derivative of the sites by L.
//
// The marginals N(m, v) of a row change with L at fixed sites by the derivatives m_L and v_L, which
// differences give. The site of the row answers. With e the change of
// b − γm for a fixed m, and with the targets γ̂ and α̂ = E[ℓ′],
//
//	dm = m_L dL + v e,    e = δα + (γ − γ̂)dm − ½γ̂_m dv,
//	dv = v_L dL − v² dγ,  dγ = δγ + γ̂_m dm + γ̂_v dv,
//
// because ∂α̂/∂m = −γ̂ and ∂α̂/∂v = −½γ̂_m. Here δα and δγ are the distances of the site from its
// targets. Then the gradient g of log Z + log p(L) vanishes to first order at
//
//	(H + C)dL = −(g + c_0),   c = Σ_n m_L e − ½v_L dγ,
//
// where c_0 belongs to dL = 0 and the columns of C to the elements of dL. H is the Hessian at fixed
// sites. This is exact with one row per level and a border that is determined well. With more rows
// ρ is smaller, and profiles suffice. The other sites move the mean of a row as well, by the rest of
// Ve, which a few repetitions add to m_L dL.

// Joint steps are tried if levels have at most jointRows rows on average, or if the estimate of 1 − ρ
// is below jointSlow.
const (
	jointRows = 4
	jointSlow = 0.5
)

const (
	jointDiff  = 1e-4 // step of differences, in units of standard deviations
	jointLeast = 0.05 // least determinant of the equations of a row
	jointSites = 0.1  // part of γ that a joint step leaves
	// The answers of the other sites, such as a common shift of all rows, enter by this number of
	// products with V.
	jointOthers = 2
)

// joint is a linear model of L and the sites at the present state.
type joint struct {
	unit  []float64     // units of the coordinates of L
	slope []float64     // g + c_0, in these units
	bend  *mat.SymDense // −(H + C)
	// gamma and e hold the changes dγ and e of the rows: at dL = 0, and then by each coordinate.
	gamma, e [][]float64
}

// joins returns the linear model at the state x, or nil.
func (a *arrow) joins(x *term.Marginals) *joint {
	s, n := &a.sigma, len(a.sigma.coords)
	t := a.sumsOf(x)
	if math.IsInf(a.logZ(t, s.grad), -1) {
		return nil
	}
	j := &joint{unit: s.units(a, t.by.L), bend: mat.NewSymDense(n, nil)}
	a.hessian(t, j.unit, j.bend)
	for k, c := range s.coords {
		j.slope = append(j.slope, j.unit[k]*s.grad[c.f][c.row*a.fac[c.f].Q+c.col])
	}
	ml, vl, ok := a.moments(t, x, j.unit)
	byM, byV := a.targetSlopes(x)
	if !ok || byV == nil {
		return nil
	}
	others := make([]float64, len(x.M))
	for k := range n + 1 {
		clear(others)
		j.add(x, k, ml, vl, byM, byV, others)
		for range jointOthers {
			a.times(others, j.e[k])
			for i, v := range x.V {
				others[i] -= v * j.e[k][i]
			}
			j.add(x, k, ml, vl, byM, byV, others)
		}
	}
	j.couple(ml, vl)
	return j
}

// sumsOf returns a state with the sums of the sites of x and the present L.
func (a *arrow) sumsOf(x *term.Marginals) *arrowState {
	t := &arrowState{}
	t.by.ArrowShape = a.shape
	t.by.L = gauss.CloneLists(a.cur.by.L)
	b := make([]float64, len(x.M))
	for i, y := range x.A {
		b[i] = y + x.Gamma[i]*x.M[i]
	}
	a.sum(t, a.in(a.in1, x.Gamma), a.in(a.in2, b))
	return t
}

// moments returns the derivatives of the means and variances of the rows by the coordinates, in the
// given units. It changes the L of t.
func (a *arrow) moments(t *arrowState, x *term.Marginals, unit []float64) (ml, vl [][]float64,
	ok bool) {
	old, step := t.by.L, make([]float64, len(unit))
	at := func(l [][]float64) (m, v []float64, ok bool) {
		m, v = make([]float64, len(x.M)), make([]float64, len(x.M))
		t.by.L = l
		if math.IsInf(a.logZ(t, nil), -1) {
			return nil, nil, false
		}
		a.variances(t, a.out)
		a.outTo(v, a.out)
		a.spreadTo(a.out, a.sigma.mean.W, a.sigma.mean.U)
		a.outTo(m, a.out)
		return m, v, true
	}
	m0, v0, ok := at(old)
	for k, u := range unit {
		if !ok {
			return nil, nil, false
		}
		l := gauss.CloneLists(old)
		step[k] = jointDiff * u
		a.moveL(l, old, step, 1)
		step[k] = 0
		var m, v []float64
		if m, v, ok = at(l); ok {
			for i := range m {
				m[i], v[i] = (m[i]-m0[i])/jointDiff, (v[i]-v0[i])/jointDiff
			}
			ml, vl = append(ml, m), append(vl, v)
		}
	}
	t.by.L = old
	return ml, vl, ok
}

// targetSlopes returns the derivatives of γ̂ by the means and by the variances of the rows, or nil.
func (a *arrow) targetSlopes(x *term.Marginals) (byM, byV []float64) {
	var y term.Marginals
	y.Resize(len(x.M))
	slopes := func(dm, dv float64) []float64 {
		d := make([]float64, len(x.M))
		for i, v := range x.V {
			y.M[i], y.V[i] = x.M[i]+dm*math.Sqrt(v), v*(1+dv)
		}
		if a.lin.Terms.Expect(&y, nil, a.crew) != nil || y.Wild {
			return nil
		}
		for i, v := range x.V {
			if h := dm*math.Sqrt(v) + dv*v; h > 0 {
				d[i] = (y.Tg[i] - x.Tg[i]) / h
			}
		}
		return d
	}
	if byM = slopes(jointDiff, 0); byM != nil {
		byV = slopes(0, jointDiff)
	}
	return byM, byV
}

// add solves the equations of all rows for the changes of number k: 0 for those at dL = 0, or 1 more
// than the coordinate.
func (j *joint) add(x *term.Marginals, k int, ml, vl [][]float64, byM, byV,
	others []float64) {
	if n := len(x.M); k == len(j.gamma) {
		j.gamma, j.e = append(j.gamma, make([]float64, n)), append(j.e, make([]float64, n))
	}
	gamma, e := j.gamma[k], j.e[k]
	for i, v := range x.V {
		var da, dg, m, w float64
		if k == 0 {
			da, dg = x.D1[i]-x.A[i], x.Tg[i]-x.Gamma[i]
		} else {
			m, w = ml[k-1][i], vl[k-1][i]
		}
		own := x.Gamma[i] - x.Tg[i]
		p, q := 1-v*own, 0.5*v*byM[i]
		r, s := v*v*byM[i], 1+v*v*byV[i]
		m += others[i]
		f, h := m+v*da, w-v*v*dg
		gamma[i], e[i] = 0, 0
		if det := p*s - q*r; det > jointLeast {
			dm, dv := (s*f-q*h)/det, (p*h-r*f)/det
			gamma[i] = dg + byM[i]*dm + byV[i]*dv
			e[i] = da + own*dm - 0.5*byM[i]*dv
		}
	}
}

// times stores Vu in dst, for the covariance V of the rows in the present state.
func (a *arrow) times(dst, u []float64) {
	t := &a.sigma.mean
	a.collect(a.in(a.in1, u))
	a.cur.by.Solve(t, a.moveB, a.moveG, a.solveWork)
	a.spreadTo(a.out, t.W, t.U)
	a.outTo(dst, a.out)
}

// couple adds c_0 to the gradient, and C to the Hessian.
func (j *joint) couple(ml, vl [][]float64) {
	c := func(k, l int) (sum float64) {
		for i, m := range ml[k] {
			sum += m*j.e[l][i] - 0.5*vl[k][i]*j.gamma[l][i]
		}
		return sum
	}
	for k := range ml {
		j.slope[k] += c(k, 0)
		for l := range k + 1 {
			j.bend.SetSym(k, l, j.bend.At(k, l)-0.5*(c(k, l+1)+c(l, k+1)))
		}
	}
}

// follows reports whether the sites depend on L.
func (a *arrow) follows() bool { return a.lin.Terms.Noise() == 0 }

// joinable reports whether joint steps apply. With several factors, the products of the factors make
// the model of the sites too inaccurate.
func (a *arrow) joinable() bool { return a.follows() && !a.shape.Crossed() }

// ahead tries a joint step from the present state of p, and reports whether it did.
func (a *arrow) ahead(p *Problem) bool {
	s, x := &a.sigma, &p.Cur.Marginals
	if !s.learns() || !a.moved || x.Wild || p.plain || !a.joinable() ||
		!a.few && a.slowness(x) > jointSlow {
		return false
	}
	j := a.joins(x)
	if j == nil || a.crew.Halt.Stopped() {
		return false
	}
	step, gain := newtonStep(j.bend, j.slope, j.unit)
	if !(gain > 0) {
		return false
	}
	s.given = gauss.CloneLists(a.cur.by.L)
	a.moveL(s.given, a.cur.by.L, step, 1)
	s.positive(a, s.given)
	for i, g := range x.Gamma {
		dg, e := j.gamma[0][i], j.e[0][i]
		for k, u := range step {
			dg += u / j.unit[k] * j.gamma[k+1][i]
			e += u / j.unit[k] * j.e[k+1][i]
		}
		m := x.M[i] - p.Base.M[i]
		to := max(g+dg, jointSites*g)
		p.Try.Gamma[i], p.Try.C[i] = to, x.A[i]+e+to*m
	}
	ok := p.Eval()
	s.given = nil
	return ok && p.Accept()
}

// slowness returns an estimate of 1 − ρ at the state x.
func (a *arrow) slowness(x *term.Marginals) float64 {
	if a.sigma.rate.x == nil {
		return 1
	}
	t := a.sumsOf(x)
	a.maximize(t)
	return a.sigma.rate.estimate(a, t.by.L)
}
