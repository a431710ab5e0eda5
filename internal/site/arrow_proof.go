package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
)

// This file helps moveProof to prove the gap of a mixed model under a wide prior. The bound ½cᵀCc then
// magnifies the rounding of c = a − α̂ by the prior variance of the intercept. A bound by rows
// (Terms.RowGap) does not, but needs a mean m that solves Λ0m = Xᵀa. The exact solution differs by
// P⁻¹r with r = Xᵀa − Λ0m, which gains about ½rᵀP⁻¹r.

var _ solver = (*arrow)(nil)

// unsolved implements solver. With the effects in units of L, whose prior is N(0, I), a residual r_v of
// the effects and r_w of the common weights have rᵀP⁻¹r ≤ 2|r_v|² + 2r_wᵀ(P⁻¹)_ww r_w. A sum of N
// products has an error of at most Nε(Σ a²/γ)^½(Σ γx²)^½.
func (a *arrow) unsolved(drift, coef, gamma, mean []float64) float64 {
	if !a.moved || a.past != nil {
		return math.Inf(1)
	}
	c, x := &a.cur.by, &a.cur.mean
	a.spreadTo(drift, x.W, x.U)
	var size float64 // Σ a²/γ
	for i, u := range coef {
		drift[i] = mean[i] - drift[i]
		if u != 0 {
			size += u * u / gamma[i]
		}
	}
	a.collect(append([]float64(nil), coef...))
	m, d, q := len(a.shape.Border), a.shape.Common, a.fac[0].Q
	r := append([]float64(nil), a.moveB...)
	c.ToUnits(r)
	rounding := dense.Epsilon * float64(len(coef)+2) * math.Sqrt(size)
	inv := c.InverseUntil(a.crew.Halt, nil)
	var common, effects, off float64
	for i, p := range a.shape.Prec {
		r[i] -= p * x.Unit[i]
		e := rounding*math.Sqrt(math.Abs(c.Sums.A[i*m+i])) + dense.Epsilon*p*math.Abs(x.Unit[i])
		off += e * math.Sqrt(inv[i*m+i])
		for j := range i + 1 {
			share := 2.0
			if i == j {
				share = 1
			}
			common += share * r[i] * r[j] * inv[i*m+j]
		}
	}
	for i := d; i < m; i++ {
		r[i] -= x.Unit[i]
		effects += r[i] * r[i]
	}
	l, squares := c.L[0], 0.0
	for g := range a.fac[0].Levels {
		for j := range q {
			s := -x.V[g*q+j]
			for i := j; i < q; i++ {
				s += l[i*q+j] * a.moveG[g*q+i]
				squares += l[i*q+j] * l[i*q+j] * math.Abs(c.Sums.D[(g*q+i)*q+i])
			}
			effects += s * s
		}
	}
	for k, f := range a.fac[1:] {
		b := gauss.Block{Q: f.Q, L: c.L[k+1]}
		cov := b.Covariance()
		for i := range f.Levels * f.Q {
			at := f.offset + i
			squares += cov[i%f.Q*(f.Q+1)] * math.Abs(c.Sums.A[at*m+at])
		}
	}
	off += rounding*math.Sqrt(squares) +
		dense.Epsilon*math.Sqrt(floats.Dot(x.V, x.V)+floats.Dot(x.Unit[d:], x.Unit[d:]))
	root := math.Sqrt(2*max(0, common)+2*effects) + 2*off
	return root * root
}

// covarianceRounding is the error of log|C|/|V| and of the variances in units of the rounding of the
// diagonals of M_g and S.
const covarianceRounding = 4

// rounding estimates the error of the ELBO that is due to rounding of the covariance. A precise row
// adds far more to an element of M_g or S than the rows that remain once other weights are summed out.
// An error ε of each diagonal element p changes the logarithm of the determinant by ε Σ p v, where v
// are the diagonal elements of the inverse.
func (a *arrow) rounding() float64 {
	if !a.moved || a.wide() {
		return 0
	}
	c, q := &a.cur.by, a.fac[0].Q
	var sum float64
	l, dl, ldl, m1 := c.L[0], make([]float64, q*q), make([]float64, q*q), make([]float64, q*q)
	for g := range a.fac[0].Levels {
		gauss.SmallMul(dl, c.Sums.D[g*q*q:(g+1)*q*q], l, q)
		gauss.SmallMul(m1, c.K[g*q*q:(g+1)*q*q], dl, q) // I − M⁻¹
		gauss.SmallMulT(ldl, l, dl, q)
		for i := range q {
			sum += (1 + math.Abs(ldl[i*q+i])) * math.Abs(1-m1[i*q+i])
		}
	}
	if m := len(a.shape.Border); m > 0 {
		inv := slices.Clone(c.Chol)
		dense.InvertUntil(a.crew.Halt, inv, m)
		for i, p := range a.shape.Prec {
			sum += (p + math.Abs(c.Sums.A[i*m+i])) * inv[i*m+i]
		}
		for k, f := range a.fac[1:] {
			for i := range f.Levels * f.Q {
				at, first, p := f.offset+i, f.offset+i/f.Q*f.Q, 1.0
				for j := range f.Q {
					p += math.Pow(c.L[k+1][j*f.Q+i%f.Q], 2) * math.Abs(c.Sums.A[(first+j)*m+first+j])
				}
				sum += p * inv[at*m+at]
			}
		}
	}
	return covarianceRounding * dense.Epsilon * sum
}
