package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file computes the gradient and the Hessian of log Z in the covariance Σ = LLᵀ of the effects
// of one factor, in one sweep over the levels. Newton's method of arrow_sigma.go uses them, and
// arrow_cross.go adds the factors in the border.
//
// The sites act like observations with the precision Γ, so log Z is the log density of a Gaussian
// whose covariance Ω is linear in Σ, Ω = Γ⁻¹ + ZΣZᵀ + XΛ0⁻¹Xᵀ. With W = ZᵀΩ⁻¹Z and s = ZᵀΩ⁻¹Γ⁻¹b,
// and with E a change of Σ in all levels,
//
//	∂log Z = ½(sᵀEs − tr WE),   ∂²log Z = ½tr(WEWE′) − sᵀEWE′s
//
// (Harville, 1977). The levels meet only in the border, whose covariance is P:
//
//	W_gh = T_gδ_gh − F_gPF_hᵀ,   T_g = J_gD_g,   F_g = J_gB_g,   s_g = J_g(h_g − B_gw̄),
//
// with J_g = (I + D_gΣ)⁻¹. Nothing is divided by L, so a standard deviation of 0 is an ordinary point.
// The chain rule then gives the derivatives in the elements of L.

// sigmaCurve holds the sums over the levels. Pair k is the element (row, col) of Σ with row ≥ col,
// and E_k changes it and its mirror image by 1.
type sigmaCurve struct {
	pairs [][2]int
	cov   []float64    // Σ
	f, fp []float64    // F_g and F_gP
	parts []levelCurve // by chunk of levels
	total levelCurve
	n, np []float64 // Σ_g F_gᵀE_kF_g of a pair, and N_kP of all pairs
	cross crossCurve
}

// levelCurve holds sums over some levels.
type levelCurve struct {
	slope []float64 // 2∂log Z/∂Σ, Q×Q
	bend  []float64 // ∂²log Z of the pairs, without the products of different levels
	cross []float64 // Σ_g F_gᵀE_ks_g of each pair
	// square is Σ_g s_gs_gᵀ, and drift Σ_g (E_ks_g)ᵀT_gE_ls_g of the pairs k and l.
	square, drift []float64
	work          []float64
}

// clear prepares c for Q effects, some pairs and d columns of the border.
func (c *levelCurve) clear(q, pairs, d int) {
	for _, x := range []struct {
		v *[]float64
		n int
	}{{&c.slope, q * q}, {&c.bend, pairs * pairs}, {&c.cross, pairs * d}, {&c.square, q * q},
		{&c.drift, pairs * pairs}, {&c.work, 4*q*q + q}} {
		*x.v = dense.Resize(*x.v, x.n)
		clear(*x.v)
	}
}

// bend computes the sums at the L and the mean of t. The covariance of the border is a.sigma.inv.
func (a *arrow) bend(t *arrowState) {
	a.levelCurves(t, a.sigma.inv)
	if f, d := &a.fac[0], a.x.Cols; d > 0 {
		a.sigma.curve.between(fma.Run{Halt: a.crew.Halt}, a.sigma.inv, f.Levels, f.Q, d)
	}
}

// levelCurves computes the sums over the levels of the first factor at the L and the mean of t. The
// covariance of the border is inverse.
func (a *arrow) levelCurves(t *arrowState, inverse []float64) {
	s, f, m := &a.sigma, &a.fac[0], len(a.shape.Border)
	c, q := &s.curve, f.Q
	c.pairs = pairsOf(c.pairs[:0], q)
	r := a.solveWork // h_g − B_gw̄
	copy(r, a.hg)
	t.by.Residual(s.mean.W, r)
	block := gauss.Block{Q: q, L: t.by.L[0]}
	c.cov = block.Covariance()
	dense.ResizeAll(len(t.by.Sums.B), &c.f, &c.fp)
	clear(c.f)
	for len(c.parts) < len(a.chunks)-1 {
		c.parts = append(c.parts, levelCurve{})
	}
	for k := range a.chunks[1:] {
		c.parts[k].clear(q, len(c.pairs), m)
	}
	a.chunked(func(k, lo, hi int) {
		for g := lo; g < hi; g++ {
			if a.begin[g] == a.begin[g+1] {
				continue // D, B and h are 0
			}
			at, end := a.shape.Ptr[g], a.shape.Ptr[g+1]
			c.project(&c.parts[k], t.by.Sums.D[g*q*q:(g+1)*q*q], t.by.Sums.B[at:end], c.f[at:end],
				r[g*q:(g+1)*q])
		}
	})
	full := a.shape.Full || !a.shape.Crossed()
	if rows := f.Levels * q; full && m > 0 {
		clear(c.fp)
		fma.Gemm(fma.Run{Halt: a.crew.Halt}, 1, fma.Of(c.f, rows, m, m), fma.Of(inverse, m, m, m),
			fma.Of(c.fp, rows, m, m))
	}
	a.chunked(func(k, lo, hi int) {
		part := &c.parts[k]
		for g := lo; g < hi; g++ {
			if a.begin[g] == a.begin[g+1] {
				continue
			}
			at, end := a.shape.Ptr[g], a.shape.Ptr[g+1]
			own := r[g*q : (g+1)*q]
			if !full {
				a.timesInverse(c.fp[at:end], c.f[at:end], g)
			}
			c.level(part, t.by.Sums.D[g*q*q:(g+1)*q*q], c.f[at:end], c.fp[at:end], own)
			width := a.shape.Width(g)
			for p, x := range c.pairs {
				w, to := pairShare(x), part.cross[p*m:(p+1)*m]
				for _, ik := range [][2]int{x, {x[1], x[0]}} {
					row := c.f[at+ik[1]*width : at+(ik[1]+1)*width]
					a.scatter(to, w*own[ik[0]], row, g)
				}
			}
		}
	})
	c.add(len(a.chunks)-1, q, m)
}

// pairsOf appends the pairs of q effects to dst.
func pairsOf(dst [][2]int, q int) [][2]int {
	for i := range q {
		for j := range i + 1 {
			dst = append(dst, [2]int{i, j})
		}
	}
	return dst
}

// add stores the sums over the given number of chunks in total.
func (c *sigmaCurve) add(chunks, q, d int) {
	sum := &c.total
	sum.clear(q, len(c.pairs), d)
	for k := range chunks {
		floats.Add(sum.slope, c.parts[k].slope)
		floats.Add(sum.bend, c.parts[k].bend)
		floats.Add(sum.cross, c.parts[k].cross)
		floats.Add(sum.square, c.parts[k].square)
		floats.Add(sum.drift, c.parts[k].drift)
	}
}

// spread stores J_g in j.
func (c *sigmaCurve) spread(j, dg []float64, q int) {
	switch q {
	case 1:
		j[0] = 1 / (1 + dg[0]*c.cov[0])
		return
	case 2:
		x, y := dg[0]*c.cov[0]+dg[1]*c.cov[2], dg[0]*c.cov[1]+dg[1]*c.cov[3]
		z, w := dg[2]*c.cov[0]+dg[3]*c.cov[2], dg[2]*c.cov[1]+dg[3]*c.cov[3]
		det := 1 + x + w + (dg[0]*dg[3]-dg[1]*dg[2])*(c.cov[0]*c.cov[3]-c.cov[1]*c.cov[2])
		j[0], j[1], j[2], j[3] = (1+w)/det, -y/det, -z/det, (1+x)/det
		return
	}
	var m [gauss.MostEffects * gauss.MostEffects]float64
	gauss.SmallMul(m[:], dg, c.cov, q)
	for i := range q {
		m[i*q+i]++
	}
	smallInverse(j, m[:q*q], q)
}

// smallInverse stores the inverse of the q×q matrix m in dst, by elimination with row pivots. It
// changes m.
func smallInverse(dst, m []float64, q int) {
	clear(dst)
	for i := range q {
		dst[i*q+i] = 1
	}
	for k := range q {
		best := k
		for i := k + 1; i < q; i++ {
			if math.Abs(m[i*q+k]) > math.Abs(m[best*q+k]) {
				best = i
			}
		}
		for j := range q {
			m[k*q+j], m[best*q+j] = m[best*q+j], m[k*q+j]
			dst[k*q+j], dst[best*q+j] = dst[best*q+j], dst[k*q+j]
		}
		floats.Scale(1/m[k*q+k], dst[k*q:(k+1)*q])
		floats.Scale(1/m[k*q+k], m[k*q:(k+1)*q])
		for i := range q {
			if x := m[i*q+k]; i != k && x != 0 {
				floats.AddScaled(m[i*q:(i+1)*q], -x, m[k*q:(k+1)*q])
				floats.AddScaled(dst[i*q:(i+1)*q], -x, dst[k*q:(k+1)*q])
			}
		}
	}
}

// project stores F_g in f, and replaces r by s_g.
func (c *sigmaCurve) project(p *levelCurve, dg, b, f, r []float64) {
	q := len(r)
	d, j, s := len(b)/q, p.work[:q*q], p.work[4*q*q:]
	c.spread(j, dg, q)
	for i := range q {
		s[i] = floats.Dot(j[i*q:(i+1)*q], r)
		for k := range q {
			gauss.AddTimes(f[i*d:(i+1)*d], j[i*q+k], b[k*d:(k+1)*d])
		}
	}
	copy(r, s)
}

// level adds a level to the slope and the bend of p.
func (c *sigmaCurve) level(p *levelCurve, dg, f, fp, s []float64) {
	q := len(s)
	d := len(f) / q
	j, t, z := p.work[:q*q], p.work[q*q:2*q*q], p.work[2*q*q:3*q*q]
	c.spread(j, dg, q)
	gauss.SmallMul(t, j, dg, q)
	for i := range q {
		for k := range i + 1 {
			x := 0.5 * (t[i*q+k] + t[k*q+i])
			t[i*q+k], t[k*q+i] = x, x
			x = -s[i] * s[k]
			for l, v := range f[i*d : (i+1)*d] {
				x -= v * fp[k*d+l]
			}
			z[i*q+k], z[k*q+i] = x, x
		}
	}
	for i, x := range t {
		p.slope[i] -= x + z[i]
		p.square[i] += s[i/q] * s[i%q]
	}
	n := len(c.pairs)
	for a, x := range c.pairs {
		i, k := x[0], x[1]
		for b, y := range c.pairs[:a+1] {
			l, m := y[0], y[1]
			sum := t[i*q+m]*(t[k*q+l]+z[k*q+l]) + t[i*q+l]*(t[k*q+m]+z[k*q+m]) +
				t[k*q+m]*z[i*q+l] + t[k*q+l]*z[i*q+m]
			p.bend[a*n+b] += pairShare(x) * pairShare(y) * sum
			p.drift[a*n+b] += pairShare(x) * pairShare(y) * (s[k]*(s[m]*t[i*q+l]+s[l]*t[i*q+m]) +
				s[i]*(s[m]*t[k*q+l]+s[l]*t[k*q+m]))
		}
	}
}

// pairShare returns the factor c of E = c(e_ie_jᵀ + e_je_iᵀ).
func pairShare(pair [2]int) float64 {
	if pair[0] == pair[1] {
		return 0.5
	}
	return 1
}

// between adds the products of different levels to the Hessian,
//
//	½tr(N_kPN_lP) + r_kᵀPr_l,   N_k = Σ_g F_gᵀE_kF_g,   r_k = Σ_g F_gᵀE_ks_g.
func (c *sigmaCurve) between(run fma.Run, cov []float64, levels, q, d int) {
	n := len(c.pairs)
	c.n, c.np = dense.Resize(c.n, d*d), dense.Resize(c.np, n*d*d)
	clear(c.np)
	of := func(i int) fma.Matrix { return fma.Of(c.f[i*d:], levels, d, q*d) }
	for k, x := range c.pairs {
		clear(c.n)
		fma.Gemm(run, pairShare(x), of(x[0]).T(), of(x[1]), fma.Of(c.n, d, d, d))
		for i := range d {
			for j := range i + 1 {
				sum := c.n[i*d+j] + c.n[j*d+i]
				c.n[i*d+j], c.n[j*d+i] = sum, sum
			}
		}
		fma.Gemm(run, 1, fma.Of(c.n, d, d, d), fma.Of(cov, d, d, d),
			fma.Of(c.np[k*d*d:], d, d, d))
	}
	pr := make([]float64, d)
	for k := range n {
		for i := range pr {
			pr[i] = floats.Dot(cov[i*d:(i+1)*d], c.total.cross[k*d:(k+1)*d])
		}
		for l := range k + 1 {
			sum := floats.Dot(pr, c.total.cross[l*d:(l+1)*d])
			x, y := c.np[k*d*d:(k+1)*d*d], c.np[l*d*d:(l+1)*d*d]
			for i := range d {
				for j := range d {
					sum += 0.5 * x[i*d+j] * y[j*d+i]
				}
			}
			c.total.bend[k*n+l] += sum
		}
	}
}

// addSlope adds the gradient of log Z in the elements of L, 2(∂log Z/∂Σ)L, to grad. The argument slope
// is 2∂log Z/∂Σ.
func addSlope(grad, slope, l []float64, q int) {
	for i := range q {
		for j := range i + 1 {
			for k := j; k < q; k++ {
				grad[i*q+j] += slope[i*q+k] * l[k*q+j]
			}
		}
	}
}

// pairBend holds the derivatives of log Z in the pairs of all factors.
type pairBend struct {
	first  []int       // the number of the first pair of each factor
	n      int         // the number of pairs
	bend   []float64   // second derivatives, lower triangle
	slopes [][]float64 // 2∂log Z/∂Σ of each factor
}

// along returns the second derivative in two changes of the pairs.
func (b *pairBend) along(x, y []float64) (sum float64) {
	for i, u := range x {
		if u == 0 {
			continue
		}
		for j, v := range y {
			sum += u * v * b.bend[max(i, j)*b.n+min(i, j)]
		}
	}
	return sum
}

// pairBends returns the derivatives in the pairs at t, where logZ has computed the gradient.
func (a *arrow) pairBends(t *arrowState) (b pairBend) {
	c := &a.sigma.curve
	switch {
	case a.averages():
		b.first, b.bend, b.slopes = a.averageBend(t)
	case a.shape.Crossed():
		b.first, b.bend, b.slopes = a.crossBend(t)
	default:
		b.first, b.bend, b.slopes = []int{0}, c.total.bend, [][]float64{c.total.slope}
	}
	_, b.n = a.firsts()
	return b
}

// pairSteps returns the change of the pairs by each coordinate.
func (a *arrow) pairSteps(b *pairBend, l [][]float64) [][]float64 {
	s := &a.sigma
	steps := make([][]float64, len(s.coords))
	for k, x := range s.coords {
		steps[k] = make([]float64, b.n)
		q, l := a.fac[x.f].Q, l[x.f]
		for i, pair := range pairsOf(nil, q) {
			if pair[0] == x.row {
				steps[k][b.first[x.f]+i] += l[pair[1]*q+x.col]
			}
			if pair[1] == x.row {
				steps[k][b.first[x.f]+i] += l[pair[0]*q+x.col]
			}
		}
	}
	return steps
}

// hessian stores the negative Hessian of log Z + log p(L) in the coordinates, in the given units, in
// b. Function logZ has computed the gradient at t. With a wide border it is an approximation.
func (a *arrow) hessian(t *arrowState, unit []float64, b *mat.SymDense) {
	of := a.pairBends(t)
	a.chain(t, &of, a.pairSteps(&of, t.by.L), unit, b)
}

// chain is hessian for given derivatives in the pairs, and changes of the pairs.
func (a *arrow) chain(t *arrowState, of *pairBend, steps [][]float64, unit []float64,
	b *mat.SymDense) {
	s := &a.sigma
	for k, x := range s.coords {
		q, l := a.fac[x.f].Q, t.by.L[x.f]
		for m, y := range s.coords[:k+1] {
			sum := of.along(steps[k], steps[m])
			if x.f == y.f && x.col == y.col {
				sum += of.slopes[x.f][x.row*q+y.row]
			}
			if x.f == y.f && x.row == y.row {
				sum += s.priorBend(l[x.row*q:x.row*q+x.row+1], x, y)
			}
			b.SetSym(k, m, -sum*unit[k]*unit[m])
		}
	}
}

// priorBend returns the second derivative of the log prior in two elements of the same row of L.
func (s *sigma) priorBend(row []float64, x, y sigmaCoord) (sum float64) {
	scale := s.scale[x.f]
	if scale == nil {
		return 0
	}
	if x.col == y.col {
		sum -= 1 / (scale[x.row] * scale[x.row])
	}
	if last := row[x.row]; x.row > 0 && last != 0 {
		square := floats.Dot(row, row)
		sum += 4 * row[x.col] * row[y.col] / (square * square)
		if x.col == y.col {
			sum -= 2 / square
		}
		if x.col == x.row && y.col == x.row {
			sum -= 2 / (last * last)
		}
	}
	return sum
}
