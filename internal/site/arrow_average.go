package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"gonum.org/v1/gonum/floats"
)

// This file approximates the Hessian of log Z in Σ for a wide border. The exact Hessian of
// arrow_cross.go has the terms
//
//	½tr(WEWE′) − sᵀEWE′s.
//
// The first needs products of matrices of the size of the border. Because W is the expectation of
// ssᵀ, the second has the expectation −tr(WEWE′), and the average of the observed and the expected
// Hessian is −½sᵀEWE′s (Gilmour, Thompson and Cullis, 1995). It needs only products with vectors,
// and its relative error falls with the root of the number of levels. With u = Es and y = A′u_B,
//
//	uᵀWu′ = Σ_g u_gᵀT_gu′_g − r_kᵀPr_l            both pairs in the first factor,
//	        r_kᵀ(u′ − Py′)                        one of them in the border,
//	        uᵀy′ − yᵀPy′                          both in the border.

// averageBend returns what crossBend returns, with the average in place of the second derivatives.
func (a *arrow) averageBend(t *arrowState) (first []int, bend []float64, slopes [][]float64) {
	c, o, m := &a.sigma.curve, &a.sigma.curve.cross, len(a.shape.Border)
	first, n := a.firsts()
	push, own := a.pushes(first, n), len(c.pairs)
	y, py := make([][]float64, n), make([][]float64, n)
	for k := range n {
		if y[k] = c.total.cross[min(k, own-1)*m : (min(k, own-1)+1)*m]; k >= own {
			y[k] = times(t.by.Schur, push[k])
		}
		py[k] = times(a.inverse, y[k])
	}
	o.bend = dense.Resize(o.bend, n*n)
	for k := range n {
		for l := range k + 1 {
			sum := -floats.Dot(y[k], py[l])
			switch {
			case k < own:
				sum += c.total.drift[k*own+l]
			case l < own:
				sum += floats.Dot(y[l], push[k])
			default:
				sum += floats.Dot(push[k], y[l])
			}
			o.bend[k*n+l] = -0.5 * sum
		}
	}
	slopes = append(slopes, c.total.slope)
	for k := range a.fac[1:] {
		slopes = append(slopes, a.averageSlope(t, k+1))
	}
	return first, o.bend, slopes
}

// averageLeast is the smallest diagonal element of L, as a fraction of its start, by which W_hhL is
// divided.
const averageLeast = 1e-3

// averageSlope returns 2∂log Z/∂Σ of factor k, which is in the border.
func (a *arrow) averageSlope(t *arrowState, k int) []float64 {
	o, q, l := &a.sigma.curve.cross, a.fac[k].Q, t.by.L[k]
	for i := range q {
		if !(math.Abs(l[i*q+i]) > averageLeast*a.sigma.start[k][i*q+i]) {
			return a.singularSlope(t, k)
		}
	}
	w := append([]float64(nil), o.wl[k]...)
	for i := range q { // times L⁻¹ from the right
		row := w[i*q : (i+1)*q]
		for j := q - 1; j >= 0; j-- {
			row[j] /= l[j*q+j]
			floats.AddScaled(row[:j], -row[j], l[j*q:j*q+j])
		}
	}
	slope := a.borderSlope(k, func(i, j int) float64 { return 0 })
	for i := range q {
		for j := range q {
			slope[i*q+j] -= 0.5 * (w[i*q+j] + w[j*q+i])
		}
	}
	return slope
}

// singularSlope is averageSlope for an L that may be singular. It multiplies PA′.
func (a *arrow) singularSlope(t *arrowState, k int) []float64 {
	f, m := &a.fac[k], len(a.shape.Border)
	cols := f.Levels * f.Q
	ap := make([]float64, cols*m) // the rows of A′P of the factor
	rows := t.by.Schur[f.offset*m : (f.offset+cols)*m]
	fma.Gemm(fma.Run{Halt: a.crew.Halt}, 1, fma.Of(rows, cols, m, m), fma.Of(a.inverse, m, m, m),
		fma.Of(ap, cols, m, m))
	return a.borderSlope(k, func(i, j int) float64 {
		row := ap[(i-f.offset)*m : (i-f.offset+1)*m]
		return t.by.Schur[i*m+j] - floats.Dot(row, t.by.Schur[j*m:(j+1)*m])
	})
}
