// Package variate fits control variates: functions of the draws whose expectation is known. They
// are fitted to an integrand by least squares, and an estimate of the remainder has less noise.
// internal/estimate calls it.
package variate

import (
	"context"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/normal"
	"gonum.org/v1/gonum/floats"
)

// Draws is the number of draws that each coefficient of a control variate needs.
const Draws = 4

// Coefficients returns the number of coefficients of a quadratic function in d dimensions,
// in full or without products.
func Coefficients(d int, full bool) int {
	if full {
		return 1 + 2*d + d*(d-1)/2
	}
	return 1 + 2*d
}

// Moments accumulates mean and variance of the terms of an estimate (Welford, 1962).
type Moments struct {
	Mean, M2 []float64
	n        float64
}

// NewMoments starts with mean and m2 as storage; a nil m2 allocates.
func NewMoments(mean, m2 []float64) *Moments {
	m2 = dense.Dest(m2, len(mean))
	clear(mean)
	clear(m2)
	return &Moments{Mean: mean, M2: m2}
}

// Add adds the number x.
func (a *Moments) Add(x []float64) {
	a.n++
	for i, xi := range x {
		d := xi - a.Mean[i]
		a.Mean[i] += d / a.n
		a.M2[i] += d * (xi - a.Mean[i])
	}
}

// Finish replaces the sums of squares by the variance of the mean. It is NaN after a single
// number.
func (a *Moments) Finish() {
	for i := range a.M2 {
		a.M2[i] /= a.n * (a.n - 1)
	}
}

// Regression fits a linear function of features to values. Each half of the rows uses the
// coefficients of the other half, so that residuals stay unbiased. It reuses its memory.
type Regression struct {
	p    int
	phi  []float64 // features, one row of p a value; the first is 1, the others have mean 0 under q
	Coef []float64 // mean of the coefficients of both halves, weighted by use
	Half [2][]float64
	gram []float64
	Ctx  context.Context // cancels the fit; nil never does
}

// Init allocates memory for n values of p features.
func (r *Regression) Init(n, p int) {
	r.p = p
	r.phi = dense.Resize(r.phi, n*p)
	r.gram = dense.Resize(r.gram, p*p)
	r.Coef = dense.Resize(r.Coef, p)
}

// Row returns the features of value i for the caller to fill in.
func (r *Regression) Row(i int) []float64 { return r.phi[i*r.p : (i+1)*r.p] }

// Residuals replaces values by their residuals and reports whether there is a fit.
func (r *Regression) Residuals(values []float64) bool {
	p := r.p
	for h := range r.Half {
		c := dense.Resize(r.Half[h], p)
		r.Half[h] = c
		clear(c)
		clear(r.gram)
		for i := h; i < len(values); i += 2 {
			if r.Ctx != nil && r.Ctx.Err() != nil {
				return false
			}
			row := r.Row(i)
			dense.Axpy(values[i], dense.Vector(row), dense.Vector(c))
			dense.Syr(1, dense.Vector(row), dense.Symmetric(r.gram, p))
		}
		for j := range p {
			r.gram[j*p+j] *= 1 + 1e-10
		}
		if !dense.Cholesky(r.gram, p) {
			return false
		}
		dense.Potrs(r.gram, c)
	}
	n := len(values)
	clear(r.Coef)
	dense.Axpy(float64(n/2)/float64(n), dense.Vector(r.Half[0]), dense.Vector(r.Coef))
	dense.Axpy(float64(n-n/2)/float64(n), dense.Vector(r.Half[1]), dense.Vector(r.Coef))
	for i := range values {
		values[i] -= dense.Dot(dense.Vector(r.Row(i)), dense.Vector(r.Half[1-i%2]))
	}
	return true
}

// Quadratic is the regression of values on polynomials of whitened draws ε:
// 1, ε_i, ε_i² − 1 and, if full, ε_iε_j for j < i.
type Quadratic struct {
	Regression
	d    int
	full bool
}

// Fit replaces values by their residuals. If there are too few values, it reports false and
// changes nothing.
func (f *Quadratic) Fit(values []float64, eps [][]float64, full bool) bool {
	f.d, f.full = len(eps[0]), full
	p := Coefficients(f.d, true)
	if !full || len(values) < Draws*p {
		f.full = false
		p = Coefficients(f.d, false)
	}
	if len(values) < Draws*p {
		return false
	}
	f.Init(len(values), p)
	for i, e := range eps {
		row := f.Row(i)
		row[0] = 1
		k := 1 + 2*f.d
		for j, x := range e {
			row[1+j], row[1+f.d+j] = x, x*x-1
			if f.full {
				for _, y := range e[:j] {
					row[k] = x * y
					k++
				}
			}
		}
	}
	return f.Residuals(values)
}

// FitStat is Fit for an exponential family with mean parameters mu. It regresses on 1 and T(z) −
// μ.
func (f *Quadratic) FitStat(values []float64, ts [][]float64, mu []float64) bool {
	p := 1 + len(mu)
	if len(values) < Draws*p {
		return false
	}
	f.Init(len(values), p)
	for i, t := range ts {
		row := f.Row(i)
		row[0] = 1
		floats.SubTo(row[1:], t, mu)
	}
	return f.Residuals(values)
}

// AddGrad adds the gradients of E_q of the fitted function to the gradients in m and V. With ε =
// L⁻¹(z − m), linear coefficients c and Hessian H in ε they are L⁻ᵀc and ½L⁻ᵀHL⁻¹.
func (f *Quadratic) AddGrad(gm, gv []float64, q normal.Form) {
	d := f.d
	linear, square := f.Coef[1:1+d], f.Coef[1+d:1+2*d]
	h, e, u, w := make([]float64, d*d), make([]float64, d), make([]float64, d), make([]float64, d)
	k := 1 + 2*d
	for i := range d {
		h[i*d+i] = 2 * square[i]
		if f.full {
			for j := range i {
				h[i*d+j], h[j*d+i] = f.Coef[k], f.Coef[k]
				k++
			}
		}
	}
	q.Standardize(u, linear)
	dense.Axpy(1, dense.Vector(u), dense.Vector(gm))
	for j := range d {
		clear(e)
		e[j] = 1
		q.Standardize(u, h[j*d:(j+1)*d])
		q.Standardize(w, e)
		q.AddOuter(gv, 0.5, u, w)
	}
}

// Linear fits a + Bε to the gradients. Each half of the draws uses the coefficients of the other
// half. It replaces the gradients by their residuals and returns a and the columns of B. With too
// few draws it returns nil and changes nothing.
func Linear(ctx context.Context, grads, eps [][]float64) [][]float64 {
	if len(grads) == 0 || len(grads) < Draws*(1+len(eps[0])) {
		return nil
	}
	d := len(eps[0])
	fit := Regression{Ctx: ctx}
	fit.Init(len(grads), 1+d)
	for i, e := range eps {
		row := fit.Row(i)
		row[0] = 1
		copy(row[1:], e)
	}
	part := dense.NewRows(1+d, d)
	values := make([]float64, len(grads))
	for j := range d {
		for i, g := range grads {
			values[i] = g[j]
		}
		if !fit.Residuals(values) {
			return nil // on the first row if all have the same features, or if ctx is done
		}
		for i, g := range grads {
			g[j] = values[i]
		}
		for k, c := range fit.Coef {
			part[k][j] = c
		}
	}
	return part
}
