package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file moves L and the sites together. A profile holds the sites, but the sites follow L, so
// the error of L falls only by the factor ρ per pass (arrow_rate.go), which is near 1 if levels have
// one binary response. A joint step is Newton's step of L with the derivative of the sites by L.
//
// The marginals N(m, v) of a row change with L at fixed sites by the derivatives m_L and v_L, which
// differences give. The site of the row responds. With e the change of b − γm for a fixed m, and
// with the targets γ̂ and α̂ = E[ℓ′],
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
// sites. The other sites move the mean of a row by the rest of Ve, and its variance by the rest of
// −(V∘V)dγ. These enter by repetitions, which are mixed (Anderson, 1965), so a joint step is Newton's
// step of L and all sites.

// Joint steps are tried if levels have at most jointRows rows on average, if the model is
// small, or if the estimate of 1 − ρ is below jointSlow.
const (
	jointRows = 4
	jointSlow = 0.5
)

const (
	jointDiff  = 1e-4 // step of differences, in units of standard deviations
	jointLeast = 0.05 // least determinant of the equations of a row
	jointZero  = 0.01 // part of the gain of a profile that keeps a standard deviation at 0
	jointSites = 0.1  // part of γ that a joint step leaves
	// The answers of the other sites, such as a common shift of all rows, enter by at most this number
	// of products with V and V∘V, until these change the marginals by less than the part jointEnd.
	jointOthers = 6
	jointEnd    = 0.02
	// With more rows or border columns, the variances follow only the own site, and jointMany products
	// suffice.
	jointRowsAll = 1000
	jointBorder  = 100
	jointMany    = 2
)

// joint is a linear model of L and the sites at the present state.
type joint struct {
	unit  []float64     // units of the coordinates of L
	slope []float64     // g + c_0, in these units
	bend  *mat.SymDense // −(H + C)
	// gamma and e hold the changes dγ and e of the rows: at dL = 0, and then by each coordinate.
	gamma, e [][]float64
}

// linear returns the linear model at the present state x, or nil. It computes it once.
func (a *arrow) linear(x *term.Marginals) *joint {
	s := &a.sigma
	if s.linear == nil {
		j := a.joins(x)
		if a.crew.Halt.Stopped() {
			return nil
		}
		s.linear = j
	}
	return s.linear
}

// joins returns the linear model at the state x, or nil.
func (a *arrow) joins(x *term.Marginals) *joint {
	s, n := &a.sigma, len(a.sigma.coords)
	t := a.sumsOf(x)
	if math.IsInf(a.logZ(t, s.grad), -1) {
		return nil
	}
	j := &joint{unit: s.units(a, t.by.L, sigmaKick), bend: mat.NewSymDense(n, nil)}
	a.hessian(t, j.unit, j.bend)
	for k, c := range s.coords {
		j.slope = append(j.slope, j.unit[k]*s.grad[c.f][c.row*a.fac[c.f].Q+c.col])
	}
	ml, vl, ok := a.moments(t, x, j.unit)
	byM, byV := a.targetSlopes(x)
	if !ok || byV == nil {
		return nil
	}
	for k := range n + 1 {
		a.answer(j, t, x, k, ml, vl, byM, byV)
	}
	j.couple(ml, vl)
	a.freeze(t.by.L, j.slope, j.bend)
	return j
}

// freeze holds the frozen coordinates at L, given the slope and the curvature of a Newton step. It
// returns their number.
func (a *arrow) freeze(l [][]float64, slope []float64, bend *mat.SymDense) (n int) {
	for i := range a.sigma.coords {
		if a.frozen(i, l) {
			hold(slope, bend, i)
			n++
		}
	}
	return n
}

// frozen reports whether coordinate i is a correlation of an effect with a standard deviation of 0,
// where LKJ has no derivative.
func (a *arrow) frozen(i int, l [][]float64) bool {
	c := a.sigma.coords[i]
	q := a.fac[c.f].Q
	return c.row != c.col && a.sigma.scale[c.f] != nil &&
		floats.Norm(l[c.f][c.row*q:c.row*q+c.row+1], 2) == 0
}

// hold keeps coordinate i, given the slope g and the matrix b of a Newton step.
func hold(g []float64, b *mat.SymDense, i int) {
	g[i] = 0
	for j := range g {
		b.SetSym(i, j, 0)
	}
	b.SetSym(i, i, 1)
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
	a.sum(t, x.Gamma, b)
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
		if !t.by.Factor(a.crew.Halt) { // log p(L) may be −∞ next to a row of zeros
			return nil, nil, false
		}
		t.by.Solve(&a.sigma.mean, a.hb, a.hg, a.solveWork)
		a.variancesTo(v, t)
		a.spreadTo(m, a.sigma.mean.W, a.sigma.mean.U)
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

// answer solves the equations of all rows for the changes of number k: 0 for those at dL = 0, or 1
// more than the coordinate. The state t has the sums of the sites of x.
func (a *arrow) answer(j *joint, t *arrowState, x *term.Marginals, k int, ml, vl [][]float64,
	byM, byV []float64) {
	n, most := len(x.M), jointOthers
	all := a.small()
	if !all {
		most = jointMany
	}
	var mix accel.Anderson
	y, w := make([]float64, 2*n), make([]float64, 2*n) // changes by other sites, and their norm
	for i, v := range x.V {
		w[i], w[n+i] = 1/math.Sqrt(v), math.Sqrt2/2/v
	}
	for p := 0; ; p++ {
		j.add(x, k, ml, vl, byM, byV, y)
		if p == most {
			return
		}
		at, r := mix.Next(2*n, false)
		copy(at, y)
		a.times(r[:n], j.e[k])
		if clear(r[n:]); all {
			a.squares(r[n:], t, x, j.gamma[k])
		}
		var change, size float64
		for i, v := range x.V {
			r[i] -= v*j.e[k][i] + y[i]
			if all {
				r[n+i] = v*v*j.gamma[k][i] - r[n+i] - y[n+i]
			}
			for _, l := range []int{i, n + i} {
				change, size = change+square(w[l]*r[l]), size+square(w[l]*(y[l]+r[l]))
			}
		}
		if !(change > jointEnd*jointEnd*size) {
			floats.Add(y, r)
			j.add(x, k, ml, vl, byM, byV, y)
			return
		}
		if !mix.Mix(y, w) {
			floats.Add(y, r)
		}
	}
}

// squares stores (V∘V)u in dst, by a difference of variances in the precisions. The state t has the
// present L.
func (a *arrow) squares(dst []float64, t *arrowState, x *term.Marginals, u []float64) {
	var most float64
	for i, v := range x.V {
		most = max(most, math.Abs(u[i]*v))
	}
	if !(most > 0) || math.IsInf(most, 0) {
		return
	}
	h := jointDiff / most
	gamma := make([]float64, len(u))
	for i, g := range x.Gamma {
		gamma[i] = g - h*u[i]
	}
	to := &arrowState{}
	to.by.ArrowShape, to.by.L = a.shape, t.by.L
	a.sum(to, gamma, nil)
	if !to.by.Factor(a.crew.Halt) {
		return
	}
	a.variancesTo(dst, to)
	for i, v := range x.V {
		dst[i] = (dst[i] - v) / h
	}
}

// add is answer for given changes of the marginals by the other sites: of the means, and then of the
// variances.
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
		m, w = m+others[i], w+others[len(x.M)+i]
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
	a.collect(u)
	a.cur.by.Solve(t, a.moveB, a.moveG, a.solveWork)
	a.spreadTo(dst, t.W, t.U)
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
func (a *arrow) follows() bool { return !a.gaussian }

// joinable reports whether joint steps apply. A wide border makes their products too expensive.
func (a *arrow) joinable() bool { return a.follows() && !a.wide() }

// small reports whether joint steps cost little. Without a log-concave likelihood they fail so often
// that they are kept for slow steps.
func (a *arrow) small() bool {
	return a.lin.Terms.Concave() && a.x.Rows <= jointRowsAll && len(a.shape.Border) <= jointBorder
}

// ahead tries a joint step from the present state of p, and reports whether it did.
func (a *arrow) ahead(p *Problem) bool {
	s, x := &a.sigma, &p.Cur.Marginals
	if !s.learns() || !a.moved || x.Wild || p.plain || !a.joinable() ||
		!a.few && !a.small() && a.slowness(x) > jointSlow {
		return false
	}
	j := a.linear(x)
	if j == nil {
		return false
	}
	step, gain := newtonStep(j.bend, j.slope, j.unit, true)
	if !(gain > 0) || !s.denied && s.zeros(a) && gain < jointZero*a.profileGain(x) {
		return false // a profile may leave 0
	}
	to := gauss.CloneLists(a.cur.by.L)
	a.moveL(to, a.cur.by.L, step, 1)
	if s.positive(a, to); s.snap(a, to) && a.join(p, j, step, 1, to) {
		s.failed = false
		return true
	}
	for _, h := range jointParts {
		a.moveL(to, a.cur.by.L, step, h)
		if s.positive(a, to); a.join(p, j, step, h, to) {
			s.failed = false
			return true
		}
		if a.crew.Halt.Stopped() {
			return false
		}
	}
	s.failed = true
	return false
}

// zeros reports whether a standard deviation that is learned is 0.
func (s *sigma) zeros(a *arrow) bool {
	for _, c := range s.coords {
		q := a.fac[c.f].Q
		if c.row == c.col && floats.Norm(a.cur.by.L[c.f][c.row*q:c.row*q+c.row+1], 2) == 0 {
			return true
		}
	}
	return false
}

// profileGain returns by how much a profile raises log Z + log p(L) at the sites of x.
func (a *arrow) profileGain(x *term.Marginals) float64 {
	t := a.sumsOf(x)
	from := a.logZ(t, nil)
	return a.maximize(t) - from
}

// jointParts are the parts of a joint step that are tried.
var jointParts = []float64{1, 0.25}

// Steps to a standard deviation of 0 may converge slowly: its curvature may be 0 there as well, and
// with LKJ the best correlation is in proportion to it. A standard deviation is therefore set to 0
// if it falls below sigmaKick times its start and below snapPart times its present value. A
// standard deviation below snapTiny times its start is always set to 0.
const (
	snapPart = 0.8
	snapTiny = 1e-3
)

// snap sets rows of l to 0 that approach 0, and reports whether there are any.
func (s *sigma) snap(a *arrow, l [][]float64) (any bool) {
	for _, c := range s.coords {
		if c.row != c.col {
			continue
		}
		q := a.fac[c.f].Q
		of := func(l [][]float64) []float64 { return l[c.f][c.row*q : c.row*q+c.row+1] }
		size, start := floats.Norm(of(l), 2), s.start[c.f][c.row*q+c.row]
		if size > 0 && (size < snapTiny*start ||
			size < min(sigmaKick*start, snapPart*floats.Norm(of(a.cur.by.L), 2))) {
			clear(of(l))
			any = true
		}
	}
	return any
}

// join tries the part h of the step of j, which moves L to l, and reports whether it was accepted.
func (a *arrow) join(p *Problem, j *joint, step []float64, h float64, l [][]float64) bool {
	s, x := &a.sigma, &p.Cur.Marginals
	s.given = gauss.CloneLists(l)
	for i, g := range x.Gamma {
		dg, e := j.gamma[0][i], j.e[0][i]
		for k, u := range step {
			dg += h * u / j.unit[k] * j.gamma[k+1][i]
			e += h * u / j.unit[k] * j.e[k+1][i]
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
