package loo

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file computes the cavities of linear models (GLMs and sparse GPs) for each form of the
// covariance. leaveOut of cavities.go does the rest.

// Rows leaves out the rows of l under a Gaussian of the weights with the given mean and
// covariance. The mean is relative to the prior mean.
func Rows(ctx context.Context, l *site.LinearModel, mean []float64, cov gauss.Cov,
	lik Likelihood) (*Result, error) {
	c, err := rowCavities(ctx, l, mean, cov, lik.Quadratic)
	if err != nil {
		return nil, err
	}
	return c.leaveOut(ctx, lik)
}

// rowCavities returns the cavities of Rows. If fixed is set, γ does not depend on q.
func rowCavities(ctx context.Context, l *site.LinearModel, mean []float64, cov gauss.Cov,
	fixed bool) (*cavities, error) {
	n := l.X.Rows
	c := &cavities{terms: l.Terms, known: remainder}
	c.m, c.v, c.left = make([]float64, n), make([]float64, n), make([]float64, n)
	l.X.Mul(c.m, mean, nil)
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	cov.Variances(c.v, l.X, nil)
	s, err := expectations(ctx, l.Terms, c.m, c.v)
	if err != nil {
		return nil, err
	}
	c.gamma, c.a, c.vary = s.Tg, s.D1, c.v
	by := cov // covariance by which the mean moves
	switch cov := cov.(type) {
	case *gauss.Dual:
		d, err := rowSites(&h, l, c.m, cov.Gamma, c.a)
		if err != nil {
			return nil, err
		}
		return d.cavities(), nil
	case gauss.Diagonal, *gauss.LowRank:
		diag, ok := cov.(gauss.Diagonal)
		if ok {
			c.diag = &diagonal{diag, l.X}
			c.without = func(n int, part float64) float64 {
				return diagWithout(diag, c, l.X, n, part*c.gamma[n])
			}
		}
		if len(mean) > site.PrimalWeights {
			d, err := rowSites(&h, l, c.m, c.gamma, c.a)
			if err != nil {
				return nil, err
			}
			rows := d.cavities()
			c.vary, c.left, c.cov = rows.v, rows.left, rows.cov
			if !ok {
				c.family = c.unlike()
			}
			return c, nil
		}
		full, err := rowsNewton(&h, l, c.gamma)
		if err != nil {
			return nil, err
		}
		by, c.vary = full, make([]float64, n)
		full.Variances(c.vary, l.X, nil)
		if !ok {
			c.family = c.unlike()
		}
	case *gauss.Arrow:
		if !fixed {
			c.known = fitted * math.Sqrt(goals.Fine(n, floats.Sum(s.E)))
		}
	case *gauss.Full:
		if !fixed {
			full, err := resolve(&h, l, c, goals.Fine(n, floats.Sum(s.E)))
			if err != nil {
				return nil, err
			}
			if full != nil {
				by = full
			}
		}
	}
	for i, g := range c.gamma {
		c.left[i] = 1 - g*c.vary[i]
	}
	c.cov = func(index []int) func(dst []float64, n int) {
		u, t := make([]float64, len(mean)), make([]float64, len(mean))
		of := l.X
		if of.Sparse != nil { // adjacent rows are read faster
			of, index = l.X.Sub(index), nil
		}
		return func(dst []float64, n int) {
			l.X.Dense1(u, n)
			if full, ok := by.(*gauss.Full); ok {
				clear(t)
				full.S.Apply(dense.Double{Hi: u, Lo: t})
				of.Mul(dst, u, index)
				return
			}
			by.Mul(t, u)
			of.Mul(dst, t, index)
		}
	}
	if _, ok := by.(*gauss.Full); !ok {
		return c, nil
	}
	c.root = func(index []int) ([]float64, int) { return rootOf(by.(*gauss.Full), l.X, index) }
	return c, nil
}

const (
	leastRooted = 64 // rows from which a root of their covariances saves time

	// rootedRows is the number of rows per weight from which products with a root take less time than
	// products with the covariances, because they are products of matrices.
	rootedRows = 16
)

// rootOf returns the vectors L⁻¹x_i of the rows at index, where V⁻¹ = LLᵀ, and their length. It
// returns nil if the covariances of these rows take less work without them.
func rootOf(by *gauss.Full, x *design.Matrix, index []int) (u []float64, rank int) {
	d := x.Cols
	if len(index) < leastRooted || d*min(d, rootedRows) > len(index) {
		return nil, 0
	}
	u = make([]float64, len(index)*d)
	for k, i := range index {
		row := u[k*d : (k+1)*d]
		x.Dense1(row, i)
		dense.Trsv(blas.NoTrans, dense.LowerTriangle(by.S.L, d), dense.Vector(row))
	}
	return u, d
}

// resolve sets c.known under a full covariance: the least part of a precision that exceeds its
// errors. V belongs to the sites before the last step and γ to the sites after it. They agree as
// well as q is fitted, up to the goal. If that is not enough for a row, and if q saw only these
// rows, the covariance for γ replaces V, and resolve returns it. Then only slopes have the error
// of q.
func resolve(h *parallel.Halt, l *site.LinearModel, c *cavities, goal float64) (*gauss.Full,
	error) {
	c.known = fitted * math.Sqrt(goal)
	resolved := true
	for i, g := range c.gamma {
		resolved = resolved && 1-g*c.v[i] > c.known
	}
	if resolved {
		return nil, nil
	}
	full, err := rowsNewton(h, l, c.gamma)
	if errors.Is(err, sentinel.ErrNotPosDef) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v := make([]float64, len(c.v))
	full.Variances(v, l.X, nil)
	for i, vi := range v {
		if !(math.Abs(vi-c.v[i]) <= c.known*c.v[i]) {
			return nil, nil
		}
	}
	c.v, c.vary, c.known = v, v, short*goal
	return full, nil
}

// rowSites returns the posterior of the rows in site form: their prior times their sites.
func rowSites(h *parallel.Halt, l *site.LinearModel, m, gamma, a []float64) (*Posterior, error) {
	n := l.X.Rows
	if err := memory.Check(l.MaxMemory, memory.Bytes(site.DenseMatrices, n, n),
		fmt.Sprintf("to leave out each of %d rows of %d weights", n, len(l.Names)),
		"leave out rows of fewer, or raise GLMOptions.MaxMemory"); err != nil {
		return nil, err
	}
	k, err := l.GramUntil(h)
	if err != nil {
		return nil, err
	}
	return NewPosterior(h, l.Terms, k, m, gamma, a)
}

// unfitted returns the error for weights that have no covariance under the sites of all rows.
func unfitted() error {
	return fmt.Errorf("precision of the weights under the sites of q; is it fitted to the end? %w",
		sentinel.ErrNotPosDef)
}

// rowsNewton returns the covariance (Λ0 + Xᵀdiag(γ)X)⁻¹. The mean of any q moves by it when
// slopes change.
func rowsNewton(h *parallel.Halt, l *site.LinearModel, gamma []float64) (*gauss.Full, error) {
	prior, err := l.Prior.StateUntil(h)
	if err != nil {
		return nil, err
	}
	full := &gauss.Gaussian{Halt: h}
	ok := full.Add(prior, l.X, gamma, nil, &design.Work{Halt: h})
	if err := h.Err(); err != nil {
		return nil, err
	}
	if full.Halt = nil; !ok {
		return nil, unfitted()
	}
	clear(full.Mean)
	return &gauss.Full{S: full}, nil
}

// diagWithout returns the variance of row n when a site of precision gamma is removed from each
// weight.
func diagWithout(c gauss.Diagonal, at *cavities, x *design.Matrix, n int,
	gamma float64) (v float64) {
	ind, val := x.Row(n)
	for k, z := range val {
		j := dense.Index(ind, k)
		if z *= z; z > 0 {
			left := 1 - gamma*c[j]*z
			if !(left > at.known) {
				return at.withoutSite(left)
			}
			v += z * c[j] / left
		}
	}
	return v
}

// unlike returns the largest difference of log v and log vary among the terms, with their sites
// and without.
func (c *cavities) unlike() (most float64) {
	for i, v := range c.v {
		u := c.vary[i]
		for _, g := range [...]float64{0, c.gamma[i]} {
			if ratio := v / u * (1 - g*u) / (1 - g*v); ratio > 0 && !math.IsInf(ratio, 1) {
				most = math.Max(most, math.Abs(math.Log(ratio)))
			}
		}
	}
	return most
}

// A diagonal is a diagonal covariance of the weights of rows. The optimum has the precisions
// 1/V_j = Λ0_j + Σ_i γ_i x_ij², so a change of γ changes each variance separately instead of by
// the covariances of the rows.
type diagonal struct {
	v gauss.Diagonal
	x *design.Matrix
}

// diagonalWork holds the variances of the weights, and the increases of their precisions.
type diagonalWork struct{ v, more []float64 }

// stored returns the number of stored values in the given rows.
func (d *diagonal) stored(rows []int) (n int) {
	for _, i := range rows {
		_, val := d.x.Row(i)
		n += len(val)
	}
	return n
}

// update stores the variances of the weights in w.v. The precision of the site of row n falls by
// gamma, and the precisions of the sites at index rise by dg.
func (d *diagonal) update(index []int, n int, gamma float64, dg []float64, w *diagonalWork) {
	w.v, w.more = dense.Resize(w.v, len(d.v)), dense.Resize(w.more, len(d.v))
	copy(w.v, d.v)
	clear(w.more)
	ind, val := d.x.Row(n)
	for k, z := range val {
		k = dense.Index(ind, k)
		w.v[k] /= 1 - gamma*w.v[k]*z*z
	}
	for k, i := range index {
		if dg[k] == 0 {
			continue
		}
		ind, val := d.x.Row(i)
		for l, z := range val {
			l = dense.Index(ind, l)
			w.more[l] += dg[k] * z * z
		}
	}
	for j, vj := range w.v {
		w.v[j] = lessPrecise(vj, vj*vj*w.more[j])
	}
}

// variance returns the variance of row n under w.v.
func (d *diagonal) variance(n int, w *diagonalWork) (v float64) {
	ind, val := d.x.Row(n)
	for k, z := range val {
		k = dense.Index(ind, k)
		v += z * z * w.v[k]
	}
	return v
}
