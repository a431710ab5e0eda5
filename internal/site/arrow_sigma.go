package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
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
// state is then the negative ELBO at that L minus log p(L), which every step may only lower.
//
// With one factor, the steps are Newton's in the elements of L, because a standard deviation of 0
// is then an ordinary point (arrow_curve.go).
//
// With several factors a gradient needs the inverse of the border, so the steps are Fisher scoring
// steps in relative changes, L ← L(I + Z). The gradient is then Σ_g E(v_gv_gᵀ) − I. With
// R = I − var(v_g), the information is Σ_g R_ad R_bc + R_ac R_bd of the elements ab and cd of Z. It
// has no products of different factors, so the last steps use differences of the gradient.

// sigma holds what a profile needs.
type sigma struct {
	coords []sigmaCoord
	start  [][]float64 // L at the start of the fit, of each factor
	scale  [][]float64 // scales of the priors; nil means no prior

	grad, next [][]float64
	info       [][]float64 // information of each factor, n×n for its n elements
	kb, wv     []float64   // K_gB_g and K_gB_gP, for crossed factors
	curve      sigmaCurve  // for one factor
	exact      bool        // steps use the Hessian
	inv        []float64   // the covariance of the border in units of the factors
	mean       gauss.ArrowMean
	rate       sigmaRate
	given      [][]float64 // L of a joint step, in place of a profile
	refused    int         // states tried since the last one was accepted
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
		s.info = append(s.info, make([]float64, len(x.L)*len(x.L)))
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
		a.sum(t, a.in(a.in1, gamma), nil)
		s.rate.propose(a, t.by.L)
		a.pending = true
		return
	}
	if s.refused++; s.refused > sigmaTries+sigmaShorter {
		return
	}
	t.by.L = gauss.CloneLists(a.cur.by.L)
	a.sum(t, a.in(a.in1, gamma), a.in(a.in2, b))
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

// logZ returns log Z + log p(L) at the sums and the L of t. It stores the gradient in grad unless
// that is nil: of the elements of L, or of Z for crossed factors. It returns −Inf if the precision
// is not positive definite.
func (a *arrow) logZ(t *arrowState, grad [][]float64) float64 {
	s := &a.sigma
	s.profiles++
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
		a.relative(t, grad)
	default:
		s.inv = t.by.InverseUntil(a.crew.Halt, s.inv)
		a.bend(t)
		s.curve.addSlope(grad[0], t.by.L[0], a.fac[0].Q)
	}
	return z
}

// projections computes K_gB_g of all levels, and K_gB_gP if the shape is full.
func (a *arrow) projections(t *arrowState) {
	s, q := &a.sigma, a.fac[0].Q
	s.kb = dense.Resize(s.kb, len(t.by.Sums.B))
	clear(s.kb)
	a.levels(func(_ *arrowWork, lo, hi int) {
		for g := lo; g < hi; g++ {
			width, at := a.shape.Width(g), a.shape.Ptr[g]
			for i := range q {
				for j := range q {
					gauss.AddTimes(s.kb[at+i*width:at+(i+1)*width], t.by.K[(g*q+i)*q+j],
						t.by.Sums.B[at+j*width:at+(j+1)*width])
				}
			}
		}
	})
	s.wv = dense.Resize(s.wv, len(s.kb))
	if m := len(a.shape.Border); a.shape.Full {
		rows := a.fac[0].Levels * q
		clear(s.wv)
		fma.Gemm(fma.Run{Halt: a.crew.Halt}, 1, fma.Of(s.kb, rows, m, m),
			fma.Of(a.inverse, m, m, m), fma.Of(s.wv, rows, m, m))
	}
}

// relative replaces grad by the gradient of log Z + log p(L) in the relative changes Z, and stores
// the information. On entry grad holds the gradient of log p(L) in the elements of L.
func (a *arrow) relative(t *arrowState, grad [][]float64) {
	s, m := &a.sigma, len(a.shape.Border)
	s.inv = append(s.inv[:0], t.by.Chol...)
	dense.InvertUntil(a.crew.Halt, s.inv, m)
	dense.FillUpper(s.inv, m)
	for f := range grad {
		q := a.fac[f].Q
		var own [gauss.MostEffects * gauss.MostEffects]float64
		copy(own[:], grad[f])
		for i := range q {
			for j := range q {
				grad[f][i*q+j] = 0
				for k := i; k < q; k++ {
					grad[f][i*q+j] += t.by.L[f][k*q+i] * own[k*q+j]
				}
			}
		}
		clear(s.info[f])
	}
	a.inverse = append(a.inverse[:0], s.inv...)
	t.by.Unwhiten(a.inverse)
	a.projections(t)
	a.relativeLevels(t, grad[0])
	for k := range a.fac[1:] {
		f := &a.fac[k+1]
		var c [gauss.MostEffects * gauss.MostEffects]float64
		for h := range f.Levels {
			at := f.offset + h*f.Q
			for i := range f.Q {
				copy(c[i*f.Q:], s.inv[(at+i)*m+at:(at+i)*m+at+f.Q])
			}
			addRelative(grad[k+1], s.info[k+1], c[:f.Q*f.Q], s.mean.Unit[at:at+f.Q])
		}
	}
}

// relativeLevels is relative for the first factor.
func (a *arrow) relativeLevels(t *arrowState, grad []float64) {
	s, q := &a.sigma, a.fac[0].Q
	n := q * q
	parts := make([]float64, (len(a.chunks)-1)*(n+n*n))
	a.chunked(func(chunk, lo, hi int) {
		sum := parts[chunk*(n+n*n) : (chunk+1)*(n+n*n)]
		var c, dk [gauss.MostEffects * gauss.MostEffects]float64
		for g := lo; g < hi; g++ {
			if a.begin[g] == a.begin[g+1] {
				continue // E(vvᵀ) = I
			}
			width, at := a.shape.Width(g), a.shape.Ptr[g]
			kb, wv := s.kb[at:at+q*width], s.wv[at:at+q*width]
			if !a.shape.Full {
				a.timesInverse(wv, kb, g)
			}
			for i := range q { // M⁻¹ = I − LᵀD_gK_gᵀ
				for j := range q {
					dk[i*q+j] = floats.Dot(t.by.Sums.D[(g*q+i)*q:(g*q+i+1)*q],
						t.by.K[(g*q+j)*q:(g*q+j+1)*q])
				}
			}
			for i := range q {
				for j := range q {
					c[i*q+j] = floats.Dot(kb[i*width:(i+1)*width], wv[j*width:(j+1)*width])
					if i == j {
						c[i*q+j]++
					}
					for k := i; k < q; k++ {
						c[i*q+j] -= t.by.L[0][k*q+i] * dk[k*q+j]
					}
				}
			}
			addRelative(sum[:n], sum[n:], c[:n], s.mean.V[g*q:(g+1)*q])
		}
	})
	for c := 0; c < len(parts); c += n + n*n {
		floats.Add(grad, parts[c:c+n])
		floats.Add(s.info[0], parts[c+n:c+n+n*n])
	}
}

// addRelative adds E(vvᵀ) − I to grad, and the information to info, for effects v with the given
// mean and covariance.
func addRelative(grad, info, cov, mean []float64) {
	q := len(mean)
	n := q * q
	var r [gauss.MostEffects * gauss.MostEffects]float64
	for i, x := range mean {
		for j, y := range mean {
			r[i*q+j] = -cov[i*q+j]
			if i == j {
				r[i*q+j]++
			}
			grad[i*q+j] += x*y - r[i*q+j]
		}
	}
	for i := range q {
		for j := range q {
			for k := range q {
				for l := range q {
					info[(i*q+j)*n+k*q+l] += r[i*q+l]*r[j*q+k] + r[i*q+k]*r[j*q+l]
				}
			}
		}
	}
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
	// A scoring step with a border of more than scoringBorder columns costs so much that the next
	// profile continues early.
	scoringBorder = 300
	scoringSteps  = 4
	scoringSmall  = 1e-5
	// Below this predicted gain, the Hessian replaces the information, because the information has no
	// products of different factors.
	scoringEnd = 1e-3
	// A diagonal element of L below this part of its start is raised to it at first, because 0 is a
	// saddle. An early bad step may have led there.
	sigmaKick    = 0.05
	sigmaLongest = 1.5 // longest step, in units of the standard deviations
	sigmaHalves  = 20
	sigmaDiff    = 1e-5 // step of a difference of gradients, as a relative change
	sigmaLeast   = 0.1  // part of a relative L that a scoring step leaves
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
	if len(a.shape.Border) > scoringBorder && a.shape.Crossed() {
		most, small = scoringSteps, scoringSmall
	}
	s.exact = !a.shape.Crossed()
	for range most {
		step, gain := a.sigmaStep(t)
		if gain < scoringEnd && !s.exact && small < scoringSmall {
			s.exact = true
			step, gain = a.sigmaStep(t)
		}
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
		q := a.fac[c.f].Q
		if !a.shape.Crossed() {
			l[c.f][c.row*q+c.col] += h * step[k]
			continue
		}
		z := h * step[k] // L ← L(I + Z)
		if c.row == c.col {
			z = max(z, sigmaLeast-1)
		}
		for i := c.row; i < q; i++ {
			l[c.f][i*q+c.col] += old[c.f][i*q+c.row] * z
		}
	}
}

// sigmaStep returns the next step in the coordinates, and its predicted gain.
func (a *arrow) sigmaStep(t *arrowState) (step []float64, gain float64) {
	s := &a.sigma
	n := len(s.coords)
	unit, g, b := s.units(a, t.by.L), make([]float64, n), mat.NewSymDense(n, nil)
	for i, c := range s.coords {
		if a.shape.Crossed() {
			unit[i] = 1
		}
		g[i] = unit[i] * s.grad[c.f][c.row*a.fac[c.f].Q+c.col]
	}
	switch {
	case !a.shape.Crossed():
		a.hessian(t, unit, b)
	case !s.exact:
		a.information(t, b)
	case !a.differences(t, b):
		return nil, 0
	}
	return newtonStep(b, g, unit)
}

// newtonStep returns Newton's step for the gradient g and the negative Hessian b in the given units,
// and its predicted gain. The Hessian is made positive, and steps in its directions are bounded.
func newtonStep(b *mat.SymDense, g, unit []float64) (step []float64, gain float64) {
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
		x = max(math.Abs(x), 1e-8*values[n-1], 1e-12)
		y := max(-sigmaLongest, min(sigmaLongest, c/x))
		gain += c*y - 0.5*x*y*y
		for i := range n {
			step[i] += v.At(i, k) * y * unit[i]
		}
	}
	return step, gain
}

// differences stores the negative Hessian in the relative changes in b, from differences of the
// gradient.
func (a *arrow) differences(t *arrowState, b *mat.SymDense) bool {
	s := &a.sigma
	step, old := make([]float64, len(s.coords)), t.by.L
	defer func() { t.by.L = old }()
	for i := range s.coords {
		t.by.L = gauss.CloneLists(old)
		step[i] = sigmaDiff
		a.moveL(t.by.L, old, step, 1)
		step[i] = 0
		if z := a.logZ(t, s.next); math.IsInf(z, -1) {
			return false
		}
		for k, e := range s.coords {
			at := e.row*a.fac[e.f].Q + e.col
			x := -(s.next[e.f][at] - s.grad[e.f][at]) / sigmaDiff
			if i == k {
				b.SetSym(i, i, b.At(i, i)+x)
			} else {
				b.SetSym(i, k, b.At(i, k)+0.5*x)
			}
		}
	}
	return true
}

// information stores the information of the relative changes in b.
func (a *arrow) information(t *arrowState, b *mat.SymDense) {
	s := &a.sigma
	for i, c := range s.coords {
		q := a.fac[c.f].Q
		for k, e := range s.coords[:i+1] {
			if e.f == c.f {
				b.SetSym(i, k, s.info[c.f][(c.row*q+c.col)*q*q+e.row*q+e.col])
			}
		}
		x := b.At(i, i)
		if scale := s.scale[c.f]; scale != nil {
			square := t.by.L[c.f][c.row*q+c.row] / scale[c.row]
			x += 2 * square * square
		}
		b.SetSym(i, i, x)
	}
}
