package site

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
)

// This file extends arrow_curve.go to several factors. The first factor is eliminated as there, but
// F_g has only the columns of the border that level g meets. The other factors are in the border,
// with the matrix A′ = A − Σ B_gᵀE_g and the coefficients h′ = h_w − Σ E_gᵀh_g that are left when the
// first factor is eliminated. With the covariance P of the border and the mean w̄,
//
//	W_BB = A′Q,   W_gB = F_gQ,   Q = I − PA′,   s_B = h′ − A′w̄.
//
// Hence, with N_k = Σ_g F_gᵀE_kF_g and r_k = Σ_g F_gᵀE_ks_g for a pair k of the first factor, and
// with a pair l of another factor,
//
//	∂²log Z = ½tr(QᵀN_kQ E_l) − r_kᵀQ E_ls_B.
//
// The gradient needs only W_BBL = A′L̃P̃, where P = L̃P̃L̃ᵀ, and costs one inverse of the border. The
// Hessian costs a few products of matrices more. Nothing is divided by L.
//
// With a wide border these products cost too much, and the Hessian is approximated (arrow_average.go).

// A border with more than wideBorder columns is wide. A step then costs so much that the next profile
// continues early. With Gaussian noise there are no joint steps, which need the exact Hessian, so the
// Hessian is approximated from more than averageBorder columns on.
const (
	wideBorder    = 300
	wideSteps     = 4
	wideSmall     = 1e-5
	averageBorder = 100
)

// wide reports whether the border is wide.
func (a *arrow) wide() bool { return a.shape.Crossed() && len(a.shape.Border) > wideBorder }

// averages reports whether the Hessian is approximated.
func (a *arrow) averages() bool {
	return a.wide() || a.gaussian && a.shape.Crossed() && len(a.shape.Border) > averageBorder
}

// crossCurve holds what the border adds to a sigmaCurve.
type crossCurve struct {
	s  []float64   // s_B
	al []float64   // a row of A′L̃
	wl [][]float64 // Σ_h W_hhL over the levels h of each factor of the border, Q×Q

	pa, q, w []float64 // PA′ with the opposite sign, Q and W_BB
	nq       []float64 // N_kQ of a pair
	bend     []float64 // ∂²log Z of the pairs of all factors, lower triangle
}

// crossSlopes adds the gradient of log Z in the elements of L to grad.
func (a *arrow) crossSlopes(t *arrowState, grad [][]float64) {
	s, c, m := &a.sigma, &a.sigma.curve.cross, len(a.shape.Border)
	s.inv = append(s.inv[:0], t.by.Chol...)
	dense.InvertUntil(a.crew.Halt, s.inv, m)
	dense.FillUpper(s.inv, m)
	a.inverse = append(a.inverse[:0], s.inv...)
	t.by.Unwhiten(a.inverse)
	if c.wl == nil {
		for i := range a.fac {
			c.wl = append(c.wl, make([]float64, len(a.fac[i].L)))
		}
	}
	a.levelCurves(t, a.inverse)
	addSlope(grad[0], s.curve.total.slope, t.by.L[0], a.fac[0].Q)
	c.s = append(c.s[:0], a.hb...)
	t.by.Reduce(a.hg, c.s)
	for i := range m {
		c.s[i] -= floats.Dot(t.by.Schur[i*m:(i+1)*m], s.mean.W)
	}
	for k := range a.fac[1:] {
		f := &a.fac[k+1]
		q, own, wl := f.Q, grad[k+1], c.wl[k+1]
		clear(wl)
		for h := range f.Levels {
			at := f.offset + h*q
			for i := range q {
				c.al = append(c.al[:0], t.by.Schur[(at+i)*m:(at+i+1)*m]...)
				t.by.ToUnits(c.al)
				for j := range q {
					wl[i*q+j] += floats.Dot(c.al, s.inv[(at+j)*m:(at+j+1)*m])
				}
				for j := range i + 1 {
					own[i*q+j] += c.s[at+i] * s.mean.Unit[at+j]
				}
			}
		}
		for i := range q {
			for j := range i + 1 {
				own[i*q+j] -= wl[i*q+j]
			}
		}
	}
}

// scatter adds x times a row of B_g, or of a matrix of the same shape, to the vector dst of the
// border.
func (a *arrow) scatter(dst []float64, x float64, row []float64, g int) {
	d := a.x.Cols
	gauss.AddTimes(dst[:d], x, row[:d])
	for k, j := range a.shape.Pat[g] {
		dst[j] += x * row[d+k]
	}
}

// crossBend returns the second derivatives of log Z in the pairs of all factors, in the lower
// triangle, the number of the first pair of each factor, and 2∂log Z/∂Σ of each factor.
func (a *arrow) crossBend(t *arrowState) (first []int, bend []float64, slopes [][]float64) {
	s, m := &a.sigma, len(a.shape.Border)
	c, o := &s.curve, &s.curve.cross
	run := fma.Run{Halt: a.crew.Halt}
	of := func(x []float64) fma.Matrix { return fma.Of(x, m, m, m) }
	dense.ResizeAll(m*m, &o.pa, &o.w)
	clear(o.pa)
	clear(o.w)
	fma.Gemm(run, -1, of(a.inverse), of(t.by.Schur), of(o.pa))
	for i := range m {
		o.pa[i*m+i]++ // now it is Q
	}
	o.q = o.pa
	fma.Gemm(run, 1, of(t.by.Schur), of(o.q), of(o.w))
	first, n := a.firsts()
	o.bend = dense.Resize(o.bend, n*n)
	clear(o.bend)
	a.bendFirst(n)
	slopes = append(slopes, c.total.slope)
	for k := range a.fac[1:] {
		slopes = append(slopes, a.borderSlope(k+1, func(i, j int) float64 { return o.w[i*m+j] }))
	}
	a.bendBorder(first, a.pushes(first, n), n)
	return first, o.bend, slopes
}

// firsts returns the number of the first pair of each factor, and the number of pairs.
func (a *arrow) firsts() (first []int, n int) {
	for i := range a.fac {
		first = append(first, n)
		n += len(pairsOf(nil, a.fac[i].Q))
	}
	return first, n
}

// borderSlope returns Σ_h s_hs_hᵀ − W_hh over the levels of factor k, which is in the border. The
// function w returns an element of W_BB.
func (a *arrow) borderSlope(k int, w func(i, j int) float64) []float64 {
	f, o := &a.fac[k], &a.sigma.curve.cross
	q, slope := f.Q, make([]float64, f.Q*f.Q)
	for h := range f.Levels {
		at := f.offset + h*q
		for i := range q {
			for j := range q {
				slope[i*q+j] += o.s[at+i]*o.s[at+j] - w(at+i, at+j)
			}
		}
	}
	return slope
}

// pushes returns E_ls_B of each of the n pairs that is in the border.
func (a *arrow) pushes(first []int, n int) [][]float64 {
	o, m := &a.sigma.curve.cross, len(a.shape.Border)
	push := make([][]float64, n)
	for k := range a.fac[1:] {
		f := &a.fac[k+1]
		q := f.Q
		for i, x := range pairsOf(nil, q) {
			u := make([]float64, m)
			for h := range f.Levels {
				at := f.offset + h*q
				u[at+x[0]] += pairShare(x) * o.s[at+x[1]]
				u[at+x[1]] += pairShare(x) * o.s[at+x[0]]
			}
			push[first[k+1]+i] = u
		}
	}
	return push
}

// bendFirst stores the second derivatives in the pairs of the first factor, and in one of them and a
// pair of another factor without the terms with s_B.
func (a *arrow) bendFirst(n int) {
	s, f, m := &a.sigma, &a.fac[0], len(a.shape.Border)
	c, o := &s.curve, &s.curve.cross
	run := fma.Run{Halt: a.crew.Halt}
	of := func(x []float64) fma.Matrix { return fma.Of(x, m, m, m) }
	own := len(c.pairs)
	dense.ResizeAll(m*m, &c.n, &o.nq)
	c.np = dense.Resize(c.np, own*m*m)
	clear(c.np)
	for k, x := range c.pairs {
		clear(c.n)
		for g := range f.Levels {
			at, width := a.shape.Ptr[g], a.shape.Width(g)
			if a.begin[g] == a.begin[g+1] {
				continue
			}
			for _, ik := range [][2]int{x, {x[1], x[0]}} {
				left := c.f[at+ik[0]*width : at+(ik[0]+1)*width]
				right := c.f[at+ik[1]*width : at+(ik[1]+1)*width]
				for i, y := range left {
					row := i
					if i >= a.x.Cols {
						row = int(a.shape.Pat[g][i-a.x.Cols])
					}
					a.scatter(c.n[row*m:(row+1)*m], pairShare(x)*y, right, g)
				}
			}
		}
		np := c.np[k*m*m : (k+1)*m*m]
		fma.Gemm(run, 1, of(c.n), of(a.inverse), of(np))
		clear(o.nq)
		fma.Gemm(run, 1, of(c.n), of(o.q), of(o.nq))
		pair := own
		for j := range a.fac[1:] {
			b := &a.fac[j+1]
			for _, y := range pairsOf(nil, b.Q) {
				sum := 0.0
				for i := range m {
					qi, ni := o.q[i*m:(i+1)*m], o.nq[i*m:(i+1)*m]
					for at := b.offset; at < b.offset+b.Levels*b.Q; at += b.Q {
						sum += qi[at+y[0]] * ni[at+y[1]]
					}
				}
				o.bend[pair*n+k] = pairShare(y) * sum
				pair++
			}
		}
	}
	pr := make([]float64, m)
	for k := range own {
		for i := range pr {
			pr[i] = floats.Dot(a.inverse[i*m:(i+1)*m], c.total.cross[k*m:(k+1)*m])
		}
		for l := range k + 1 {
			o.bend[k*n+l] = c.total.bend[k*own+l] + floats.Dot(pr, c.total.cross[l*m:(l+1)*m]) +
				0.5*traceOfProduct(c.np[k*m*m:(k+1)*m*m], c.np[l*m*m:(l+1)*m*m], m)
		}
	}
}

// traceOfProduct returns tr(xy) of two m×m matrices.
func traceOfProduct(x, y []float64, m int) (sum float64) {
	for i := range m {
		for j := range m {
			sum += x[i*m+j] * y[j*m+i]
		}
	}
	return sum
}

// bendBorder adds the second derivatives in pairs of factors of the border, and the terms with s_B.
func (a *arrow) bendBorder(first []int, push [][]float64, n int) {
	m := len(a.shape.Border)
	c, o := &a.sigma.curve, &a.sigma.curve.cross
	for l, u := range push {
		if u == nil {
			continue
		}
		qu, wu := times(o.q, u), times(o.w, u)
		for k := range c.pairs {
			o.bend[l*n+k] -= floats.Dot(c.total.cross[k*m:(k+1)*m], qu)
		}
		for k := range l + 1 {
			if push[k] != nil {
				o.bend[l*n+k] -= floats.Dot(push[k], wu)
			}
		}
	}
	for k := range a.fac[1:] {
		x := &a.fac[k+1]
		for l := range k + 1 {
			y := &a.fac[l+1]
			for i, p := range pairsOf(nil, x.Q) {
				for j, r := range pairsOf(nil, y.Q) {
					if row, col := first[k+1]+i, first[l+1]+j; row >= col {
						o.bend[row*n+col] += pairShare(p) * pairShare(r) * a.pairTrace(x, y, p, r)
					}
				}
			}
		}
	}
}

// pairTrace returns Σ w_il w_km + w_im w_kl over the blocks w of W_BB with the rows of a level of x and
// the columns of a level of y, for the pairs ik and lm.
func (a *arrow) pairTrace(x, y *arrowFactor, ik, lm [2]int) (sum float64) {
	w, m := a.sigma.curve.cross.w, len(a.shape.Border)
	for at := x.offset; at < x.offset+x.Levels*x.Q; at += x.Q {
		wi, wk := w[(at+ik[0])*m:(at+ik[0]+1)*m], w[(at+ik[1])*m:(at+ik[1]+1)*m]
		for to := y.offset; to < y.offset+y.Levels*y.Q; to += y.Q {
			sum += wi[to+lm[0]]*wk[to+lm[1]] + wi[to+lm[1]]*wk[to+lm[0]]
		}
	}
	return sum
}
