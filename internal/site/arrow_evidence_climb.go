package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file maximizes the log evidence of a mixed model with Gaussian noise over L together with the
// hyperparameters θ: the noise and the prior standard deviations of the common weights. Package
// learn is the caller.
//
// In units of the noise, with L̃ = L/√s and with precisions Λs of the common weights, the noise s is
// only a factor of the responses (Bates, Mächler, Bolker and Walker, 2015). So with ℓ = log s, with
// the standard deviations e^θ of the common weights in the blocks b, and with P their covariance,
//
//	∂/∂ℓ = −½hᵀm + ½Σ w_n (y_n − o_n)²/s − ½Σ w_n              at fixed L̃ and Λs,
//	∂/∂θ_b = Σ_{j∈b} λ_j(m_j² + P_jj) − 1.
//
// A change of ℓ at fixed L and Λ adds −Σ to the changes of Σ, and −½ to all θ_b. The second
// derivatives in L follow from arrow_curve.go. A change of θ_b adds 2PΛ_bm to m and 2PΛ_bP to P, so
// with the symbols of arrow_average.go, and with the rows (F_gP)_{·j} and (A′P)_{·j} of weight j, the
// second derivatives in θ_b and a change E of Σ are
//
//	Σ_{j∈b} λ_j(−2(Py)_j m_j + Σ_g (F_gP)_{·j}ᵀE(F_gP)_{·j})
//
// and the same with A′P in place of F_gP for a factor of the border.

// EvidenceSpace describes how an Evidence depends on its hyperparameters θ.
type EvidenceSpace struct {
	// At returns the noise and the prior precisions of all weights at θ. It reports false if θ is out
	// of range.
	At func(theta []float64) (noise float64, prec []float64, ok bool)
	// Noise holds the derivative of the log noise in each coordinate.
	Noise []float64
	// Column holds, for each weight, the coordinate that is its log standard deviation, or −1.
	Column []int
	Lo, Hi []float64
	// Penalty returns −log p(θ), and adds its gradient to grad. Prec has its second derivatives.
	Penalty func(theta, grad []float64) float64
	Prec    *mat.SymDense
}

// evidenceCurve holds the derivatives of the log evidence in the coordinates of L, and then in θ.
type evidenceCurve struct {
	grad   []float64
	bend   *mat.SymDense // negative second derivatives
	rising []int         // coordinates of L near 0 at which more variance is better
}

const (
	evidenceSteps = 60   // steps of a climb, at most
	evidenceSmall = 1e-8 // predicted gain, in nats, that ends a climb
)

// Maximize moves L to its best, and θ too if move is set. It returns the log evidence there, without
// the prior of θ, and its gradient and information in θ, where L follows θ. The value is −Inf if
// that fails.
func (e *Evidence) Maximize(s *EvidenceSpace, theta []float64, move bool) (z float64, grad []float64,
	info *mat.SymDense) {
	start, least := gauss.CloneLists(e.t.by.L), math.Inf(-1)
	z, c := e.curve(s, theta)
	if c != nil && len(c.rising) > 0 {
		least = z
		for _, k := range c.rising {
			x := e.a.sigma.coords[k]
			at := x.row*e.a.fac[x.f].Q + x.col
			e.t.by.L[x.f][at] = sigmaKick * e.a.sigma.start[x.f][at]
		}
		z, c = e.curve(s, theta)
	}
	if z, c = e.climb(s, theta, z, c, move); !move && z < least {
		e.t.by.L = start
		z, c = e.curve(s, theta)
	}
	if c == nil {
		return math.Inf(-1), nil, nil
	}
	e.a.sigma.positive(e.a, e.t.by.L)
	n := len(e.a.sigma.coords)
	return z, c.grad[n:], c.profiled(n)
}

// climb is Maximize from the point with the value z and the derivatives c.
func (e *Evidence) climb(s *EvidenceSpace, theta []float64, z float64, c *evidenceCurve, move bool) (
	float64, *evidenceCurve) {
	for range evidenceSteps {
		if c == nil {
			return z, c
		}
		step, gain := e.step(s, c, theta, move)
		next, better := e.advance(s, theta, step, z, gain)
		if better != nil {
			z, c = next, better
			continue
		}
		before := gauss.CloneLists(e.t.by.L)
		if !e.at(s, theta) {
			return z, nil
		}
		e.a.zero(&e.t, z-e.constant)
		if slices.EqualFunc(before, e.t.by.L, slices.Equal[[]float64]) {
			break
		}
		z, c = e.curve(s, theta)
	}
	return z, c
}

// at prepares the sums for θ. It reports false if θ is out of range.
func (e *Evidence) at(s *EvidenceSpace, theta []float64) bool {
	noise, prec, ok := s.At(theta)
	if ok {
		e.set(noise, prec)
	}
	return ok
}

// value returns the log evidence at θ and the present L. It stores the gradient in L in grad unless
// that is nil.
func (e *Evidence) value(s *EvidenceSpace, theta []float64, grad [][]float64) float64 {
	if !e.at(s, theta) {
		return math.Inf(-1)
	}
	return e.constant + e.a.logZ(&e.t, grad)
}

// curve returns the log evidence at θ and the present L, with its derivatives, or nil.
func (e *Evidence) curve(s *EvidenceSpace, theta []float64) (z float64, c *evidenceCurve) {
	if z = e.value(s, theta, e.a.sigma.grad); math.IsInf(z, -1) {
		return z, nil
	}
	return z, e.derivatives(s, len(theta))
}

// advance moves L and θ by the step, or by a part of it that raises the log evidence, given its
// predicted gain. It returns the new value and its derivatives. If there is no such part, L and θ
// stay, and the derivatives are nil.
func (e *Evidence) advance(s *EvidenceSpace, theta, step []float64, z, gain float64) (float64,
	*evidenceCurve) {
	n, from, old := len(e.a.sigma.coords), slices.Clone(theta), e.t.by.L
	z -= s.Penalty(theta, nil)
	for h := 1.0; h*gain >= evidenceSmall; h /= 2 {
		e.t.by.L = gauss.CloneLists(old)
		e.a.moveL(e.t.by.L, old, step[:n], h)
		for i, x := range step[n:] {
			theta[i] = max(s.Lo[i], min(s.Hi[i], from[i]+h*x))
		}
		next := e.value(s, theta, e.a.sigma.grad)
		if next-s.Penalty(theta, nil) >= z {
			return next, e.derivatives(s, len(theta))
		}
	}
	copy(theta, from)
	e.t.by.L = old
	return z, nil
}

// step returns the next step in L and θ, and its predicted gain.
func (e *Evidence) step(s *EvidenceSpace, c *evidenceCurve, theta []float64, move bool) (
	step []float64, gain float64) {
	a, n, k := e.a, len(e.a.sigma.coords), len(theta)
	unit := a.sigma.units(a, e.t.by.L, sigmaTiny)
	g, b := slices.Clone(c.grad), mat.NewSymDense(n+k, nil)
	pull := make([]float64, k)
	s.Penalty(theta, pull)
	for i := range k {
		unit = append(unit, 1)
		g[n+i] -= pull[i]
	}
	b.CopySym(c.bend)
	for i := range n + k {
		g[i] *= unit[i]
		for j := range i + 1 {
			x := b.At(i, j)
			if j >= n {
				x += s.Prec.At(i-n, j-n)
			}
			b.SetSym(i, j, x*unit[i]*unit[j])
		}
	}
	for i := range n + k {
		held := i < n && a.frozen(i, e.t.by.L)
		if i >= n {
			t := theta[i-n]
			held = !move || t <= s.Lo[i-n] && g[i] < 0 || t >= s.Hi[i-n] && g[i] > 0
		}
		if held {
			hold(g, b, i)
		}
	}
	if n+k == 0 {
		return nil, 0
	}
	return newtonStep(b, g, unit, false)
}

// evidenceParts holds the parts of the second derivatives: in the coordinates of L, in the change −Σ
// of Σ, in ℓ, and in each θ_b. The last block holds the common weights without a coordinate.
type evidenceParts struct {
	n     int
	grad  []float64 // gradient of log Z
	curve *mat.SymDense
}

// derivatives returns the derivatives at the state of the last logZ, for k elements of θ.
func (e *Evidence) derivatives(s *EvidenceSpace, k int) *evidenceCurve {
	a, t := e.a, &e.t
	n := len(a.sigma.coords)
	c := &evidenceCurve{grad: make([]float64, n+k), bend: mat.NewSymDense(n+k, nil)}
	of := a.pairBends(t)
	steps := a.pairSteps(&of, t.by.L)
	ones := make([]float64, n)
	for i, x := range a.sigma.coords {
		ones[i] = 1
		at := x.row*a.fac[x.f].Q + x.col
		c.grad[i] = a.sigma.grad[x.f][at]
		if x.row == x.col && math.Abs(t.by.L[x.f][at]) < sigmaKick*a.sigma.start[x.f][at] &&
			of.slopes[x.f][at] > 0 {
			c.rising = append(c.rising, i)
		}
	}
	a.chain(t, &of, steps, ones, c.bend)
	if k == 0 {
		return c
	}
	p := e.parts(s, &of, append(steps, a.shrink(&of, t.by.L)), k)
	for i := range k { // directions of θ in the parts
		w := p.direction(s, i, k)
		c.grad[n+i] = floats.Dot(w, p.grad)
		for l := range n {
			c.bend.SetSym(n+i, l, s.Noise[i]*p.grad[l]-floats.Dot(w, mat.Row(nil, l, p.curve)))
		}
		for j := range i + 1 {
			sum := mat.Inner(mat.NewVecDense(len(w), w), p.curve,
				mat.NewVecDense(len(w), p.direction(s, j, k)))
			c.bend.SetSym(n+i, n+j, -(sum - s.Noise[i]*s.Noise[j]*p.grad[n]))
		}
	}
	return c
}

// direction returns the change of the parts with coordinate i of θ, out of k.
func (p *evidenceParts) direction(s *EvidenceSpace, i, k int) []float64 {
	w := make([]float64, len(p.grad))
	w[p.n], w[p.n+1] = s.Noise[i], s.Noise[i]
	for b := range k + 1 {
		w[p.n+2+b] = -0.5 * s.Noise[i]
	}
	w[p.n+2+i]++
	return w
}

// shrink returns the change −Σ of the pairs of all factors.
func (a *arrow) shrink(of *pairBend, l [][]float64) []float64 {
	step := make([]float64, of.n)
	for f := range a.fac {
		b := gauss.Block{Q: a.fac[f].Q, L: l[f]}
		cov := b.Covariance()
		for i, p := range pairsOf(nil, b.Q) {
			step[of.first[f]+i] = -cov[p[0]*b.Q+p[1]]
		}
	}
	return step
}

// parts returns the parts for the given changes of the pairs. The last change is −Σ.
func (e *Evidence) parts(s *EvidenceSpace, of *pairBend, steps [][]float64, k int) *evidenceParts {
	a, n := e.a, len(steps)-1
	p := &evidenceParts{n: n, grad: make([]float64, n+k+3), curve: mat.NewSymDense(n+k+3, nil)}
	mean := &a.sigma.mean
	square := floats.Dot(a.hb, mean.W) + floats.Dot(a.hg, mean.U) // hᵀm
	p.grad[n+1] = 0.5 * (e.residual - square - e.weight)
	p.curve.SetSym(n+1, n+1, 0.5*(square-e.residual))
	squares := a.squareSlopes()
	for i, x := range steps {
		var slope, half float64
		for f := range a.fac {
			q := a.fac[f].Q
			for j, pair := range pairsOf(nil, q) {
				at := pair[0]*q + pair[1]
				u := pairShare(pair) * x[of.first[f]+j]
				slope += u * of.slopes[f][at]
				half += u * squares[f][at]
			}
		}
		p.grad[i] = slope
		p.curve.SetSym(n+1, i, -half)
		for j, y := range steps[:i+1] {
			p.curve.SetSym(i, j, of.along(x, y))
		}
	}
	e.commonParts(s, p, k)
	for i, bends := range a.commonBends(of, &e.t) {
		for j, x := range steps {
			for c, y := range bends {
				b := p.block(s, a, c, k)
				p.curve.SetSym(b, j, p.curve.At(b, j)+x[i]*y)
			}
		}
	}
	return p
}

// block returns the part of weight i of the border, which is common, for k elements of θ.
func (p *evidenceParts) block(s *EvidenceSpace, a *arrow, i, k int) int {
	if b := s.Column[a.shape.Border[i]]; b >= 0 {
		return p.n + 2 + b
	}
	return p.n + 2 + k
}

// borderCovariance returns P, after the gradient of logZ was computed.
func (a *arrow) borderCovariance() []float64 {
	if a.shape.Crossed() {
		return a.inverse
	}
	return a.sigma.inv
}

// commonBends returns the second derivatives in each pair and the log standard deviation of each
// common weight.
func (a *arrow) commonBends(of *pairBend, t *arrowState) [][]float64 {
	m, cov := len(a.shape.Border), a.borderCovariance()
	all := make([][]float64, of.n)
	push := a.pushes(of.first, of.n)
	for i := range all {
		all[i] = make([]float64, a.shape.Common)
		y := push[i]
		if y == nil {
			y = a.sigma.curve.total.cross[i*m : (i+1)*m]
		} else {
			y = times(t.by.Schur, y)
		}
		for j := range all[i] {
			all[i][j] = -2 * floats.Dot(cov[j*m:(j+1)*m], y) * a.sigma.mean.W[j]
		}
	}
	add := func(f, q int, row func(i int) []float64) {
		for i, p := range pairsOf(nil, q) {
			x, y := row(p[0]), row(p[1])
			for j := range a.shape.Common {
				all[of.first[f]+i][j] += 2 * pairShare(p) * x[j] * y[j]
			}
		}
	}
	q := a.fac[0].Q
	for g := range a.fac[0].Levels {
		if at, width := a.shape.Ptr[g], a.shape.Width(g); a.begin[g] < a.begin[g+1] {
			add(0, q, func(i int) []float64 { return a.sigma.curve.fp[at+i*width : at+(i+1)*width] })
		}
	}
	if a.shape.Crossed() {
		rows := make([][]float64, m) // rows of A′P
		for i := range rows {
			rows[i] = make([]float64, a.shape.Common)
			for j := range rows[i] {
				rows[i][j] = floats.Dot(t.by.Schur[i*m:(i+1)*m], cov[j*m:(j+1)*m])
			}
		}
		for k, f := range a.fac[1:] {
			for h := range f.Levels {
				add(k+1, f.Q, func(i int) []float64 { return rows[f.offset+h*f.Q+i] })
			}
		}
	}
	for i := range all {
		for j, x := range a.shape.Prec {
			all[i][j] *= x
		}
	}
	return all
}

// times returns the product of a square matrix and a vector.
func times(x, u []float64) []float64 {
	v := make([]float64, len(u))
	for i := range v {
		v[i] = floats.Dot(x[i*len(u):(i+1)*len(u)], u)
	}
	return v
}

// squareSlopes returns Σ s_gs_gᵀ over the levels of each factor.
func (a *arrow) squareSlopes() [][]float64 {
	all := [][]float64{a.sigma.curve.total.square}
	for k := range a.fac[1:] {
		all = append(all, a.borderSlope(k+1, func(i, j int) float64 { return 0 }))
	}
	return all
}

// commonParts adds the derivatives in the θ_b of the common weights to p.
func (e *Evidence) commonParts(s *EvidenceSpace, p *evidenceParts, k int) {
	a, first := e.a, p.n+2
	m, cov := len(a.shape.Border), a.borderCovariance()
	add := func(i, j int, x float64) { p.curve.SetSym(i, j, p.curve.At(i, j)+x) }
	for i, x := range a.shape.Prec {
		b, mi := p.block(s, a, i, k), a.sigma.mean.W[i]
		p.grad[b] += x*(mi*mi+cov[i*m+i]) - 1
		add(b, first-1, -x*mi*mi)
		add(b, b, -2*x*(mi*mi+cov[i*m+i]))
		for j, y := range a.shape.Prec {
			if other := p.block(s, a, j, k); other <= b {
				v := cov[i*m+j]
				add(b, other, 2*x*y*v*v+4*x*y*mi*v*a.sigma.mean.W[j])
			}
		}
	}
}

// profiled returns the information in θ if the n coordinates of L follow θ. Directions of L that are
// not at a maximum stay.
func (c *evidenceCurve) profiled(n int) *mat.SymDense {
	k := len(c.grad) - n
	block := func(i, j, rows, cols int) *mat.Dense {
		x := mat.NewDense(rows, cols, nil)
		for r := range rows {
			for l := range cols {
				x.Set(r, l, c.bend.At(i+r, j+l))
			}
		}
		return x
	}
	symmetric := func(x mat.Matrix) *mat.SymDense {
		y := mat.NewSymDense(k, nil)
		for i := range k {
			for j := range i + 1 {
				y.SetSym(i, j, 0.5*(x.At(i, j)+x.At(j, i)))
			}
		}
		return y
	}
	if k == 0 {
		return nil
	}
	info := symmetric(block(n, n, k, k))
	if n == 0 {
		return info
	}
	own := mat.NewSymDense(n, block(0, 0, n, n).RawMatrix().Data)
	cross := block(0, n, n, k)
	var by, less mat.Dense
	by.Mul(inverseOf(own, 1), cross)
	less.Mul(cross.T(), &by)
	less.Sub(info, &less)
	var root mat.Cholesky
	if of := symmetric(&less); root.Factorize(of) {
		return of
	}
	for i := range k {
		for j := range i {
			info.SetSym(i, j, 0)
		}
		info.SetSym(i, i, max(0, info.At(i, i)))
	}
	return info
}
