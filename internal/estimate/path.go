package estimate

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/variate"
	"gonum.org/v1/gonum/floats"
)

// Path estimates the gradient from n draws along their paths (reparameterization), stores it in
// dst, and returns the estimate of the integral. It stores the variance of each element in
// variance unless that is nil. l needs a gradient, or sites with derivatives.
func (e *Integral) Path(ctx context.Context, dst, variance []float64, n int,
	rng *rand.Rand) (float64, error) {
	if e.Member != nil {
		return e.familyPath(ctx, dst, variance, n, rng)
	}
	draws := e.draw(n, rng)
	values, err := e.values(ctx, draws.z)
	if err != nil {
		return math.NaN(), err
	}
	q, sites := e.Form, e.Sites
	gm, gv, u := make([]float64, q.Dim()), make([]float64, q.NumGradV()), make([]float64, q.Dim())
	var acc *variate.Moments
	g := dst
	if variance != nil {
		acc, g = variate.NewMoments(dst, variance), make([]float64, len(dst))
	}
	// For ∇_V, the gradients are centered by the mean of the other draws, which is (∇l(z) −
	// mean)·S/(S−1). That removes nearly all noise if the gradient is large against its changes.
	// With enough draws, a linear function of the draw is subtracted as well, whose contribution
	// is known.
	var grads [][]float64
	dl, mean, others := draws.scratch, make([]float64, q.Dim()), 1.0
	if sites == nil {
		grads = dense.NewRows(len(draws.z), q.Dim())
		for i, z := range draws.z {
			if e.L.GradLogProb(grads[i], z); ctx.Err() != nil {
				return math.NaN(), context.Cause(ctx)
			}
			if _, ok := dense.AllFinite(grads[i]); !ok {
				return math.NaN(), e.bad(z, values[i], true)
			}
			if len(draws.z) > 1 {
				floats.AddScaled(mean, 1/float64(len(draws.z)), grads[i])
				others = float64(len(draws.z)) / float64(len(draws.z)-1)
			}
		}
	}
	slope := variate.Linear(ctx, grads, draws.eps)
	if slope != nil {
		clear(mean)
		others = 1
	}
	w := 1 / float64(len(draws.z))
	for i, z := range draws.z {
		if ctx.Err() != nil {
			return math.NaN(), context.Cause(ctx)
		}
		if acc != nil {
			clear(gm)
			clear(gv)
			w = 1
		}
		if sites != nil {
			if ok := sites.addDerivs(ctx, q, gm, gv, w, z); ctx.Err() != nil {
				return math.NaN(), context.Cause(ctx)
			} else if !ok {
				return math.NaN(), e.bad(z, values[i], true)
			}
		} else {
			q.Standardize(u, draws.eps[i])
			floats.AddScaled(gm, w, grads[i])
			floats.SubTo(dl, grads[i], mean)
			q.AddOuter(gv, 0.25*w*others, dl, u)
			q.AddOuter(gv, 0.25*w*others, u, dl)
		}
		if acc != nil {
			acc.Add(q.FromMomentGrad(g, gm, gv))
		}
	}
	if acc != nil {
		acc.Finish()
		clear(gm)
		clear(gv)
	}
	if slope != nil {
		// E[(a + Bε)uᵀ] = BL⁻¹, with the columns of B and the rows of L⁻¹.
		floats.Add(gm, slope[0])
		e := make([]float64, q.Dim())
		for k, b := range slope[1:] {
			clear(e)
			e[k] = 1
			q.Standardize(u, e)
			q.AddOuter(gv, 0.25, b, u)
			q.AddOuter(gv, 0.25, u, b)
		}
	}
	if acc == nil {
		q.FromMomentGrad(dst, gm, gv)
	} else if slope != nil {
		floats.Add(dst, q.FromMomentGrad(nil, gm, gv))
	}
	return floats.Sum(values) / float64(len(values)), nil
}

// familyPath is Path for a PathFamily:
//
//	∇_η E_q[l] = E_q[(∂z/∂η)ᵀ∇(l − cᵀT)(z)] + Fc,
//
// with the c of familyScore.
func (e *Integral) familyPath(ctx context.Context, dst, variance []float64, n int,
	rng *rand.Rand) (float64, error) {
	q := e.Member
	f := q.F.(expfam.PathFamily)
	z, t, aux := dense.NewRows(n, q.Dim()), dense.NewRows(n, q.NumParams()), dense.NewRows(n,
		f.AuxLen())
	for i := range n {
		f.RandPath(z[i], t[i], aux[i], q.Eta, rng)
	}
	values, err := e.values(ctx, z)
	if err != nil {
		return math.NaN(), err
	}
	mean := floats.Sum(values) / float64(n)
	var fit variate.Quadratic
	fitted := fit.FitStat(append([]float64(nil), values...), t, q.Mu)
	acc := e.newMean(dst, variance)
	dl, c := make([]float64, q.Dim()), make([]float64, q.NumParams())
	for i := range n {
		if ctx.Err() != nil {
			return math.NaN(), context.Cause(ctx)
		}
		e.L.GradLogProb(dl, z[i])
		if _, ok := dense.AllFinite(dl); !ok {
			return math.NaN(), e.bad(z[i], values[i], true)
		}
		if fitted {
			floats.ScaleTo(c, -1, fit.Half[1-i%2][1:])
		}
		clear(acc.g)
		f.PathGrad(acc.g, dl, c, z[i], aux[i], q.Eta)
		acc.add()
	}
	acc.finish(&fit, fitted)
	return mean, nil
}

// PathSites implements EstimateSites of pgsvi.Pathwise, with the given number of draws.
func PathSites(e, d1, d2 []float64, lik Differentiable, y, m, v []float64, draws int,
	rng *rand.Rand) {
	eps := getDraws(draws, rng)
	defer putDraws(eps)
	n := float64(len(eps.x))
	var i int
	defer parallel.At(&i, nil)
	for i = range y {
		sd := math.Sqrt(v[i])
		var l, a, b float64
		for _, x := range eps.x {
			eta := m[i] + sd*x
			g, h := lik.Derivs(y[i], eta)
			l += lik.LogProb(y[i], eta)
			a += g
			b += h
		}
		e[i], d1[i], d2[i] = l/n, a/n, b/n
	}
}
