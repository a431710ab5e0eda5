package estimate

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/variate"
	"gonum.org/v1/gonum/floats"
)

// A Baseline is what the score function subtracts from the values of the integrand. The estimate is
// unbiased with every Baseline.
type Baseline int

const (
	// Quadratic subtracts the fitted control variate of pgsvi.ScoreFunction. With too few draws for
	// its coefficients, it is LeaveOneOut.
	Quadratic Baseline = iota
	// LeaveOneOut subtracts from each value the mean of the others.
	LeaveOneOut
	// None subtracts nothing.
	None
)

// center replaces values of the integrand by weights, so that the mean of weights times scores is
// the estimate. It returns the mean of the values.
func (b Baseline) center(values []float64) (mean float64) {
	mean = floats.Sum(values) / float64(len(values))
	if b != None {
		// v_s − mean of the others = (v_s − mean)·S/(S−1)
		c := float64(len(values)) / float64(len(values)-1)
		for i, v := range values {
			values[i] = c * (v - mean)
		}
	}
	return mean
}

// Score estimates the gradient from n draws by their scores (REINFORCE), stores it in dst, and
// returns the estimate of the integral. It stores the variance of each element in variance unless
// that is nil.
func (e *Integral) Score(ctx context.Context, dst, variance []float64, n int, b Baseline,
	rng *rand.Rand) (float64, error) {
	draws := e.draw(n, rng)
	values, err := e.values(ctx, draws.z)
	if err != nil {
		return math.NaN(), err
	}
	if e.Member != nil {
		return e.familyScore(dst, variance, draws, values, b), nil
	}
	q := e.Form
	fit := variate.Quadratic{Regression: variate.Regression{Ctx: ctx}}
	var mean float64
	fitted := false
	if b == Quadratic && q != nil {
		_, diagonal := q.(*normal.Diagonal)
		fitted = fit.Fit(values, draws.eps, !diagonal)
	}
	if fitted {
		mean = floats.Sum(values)/float64(len(values)) + fit.Coef[0]
	} else {
		mean = b.center(values)
	}
	if variance != nil || q == nil {
		acc := variate.NewMoments(dst, variance)
		g := make([]float64, len(dst))
		for i, z := range draws.z {
			if ctx.Err() != nil {
				return math.NaN(), context.Cause(ctx)
			}
			e.Q.Score(g, z)
			floats.Scale(values[i], g)
			acc.Add(g)
		}
		acc.Finish()
		if fitted {
			gm, gv := make([]float64, q.Dim()), make([]float64, q.NumGradV())
			fit.AddGrad(gm, gv, q)
			floats.Add(dst, q.FromMomentGrad(nil, gm, gv))
		}
		return mean, nil
	}
	// In the coordinates (m, V) the score is u = V⁻¹(z − m) and ½(uuᵀ − V⁻¹).
	gm, gv, u := make([]float64, q.Dim()), make([]float64, q.NumGradV()), make([]float64, q.Dim())
	var sum float64
	for i, eps := range draws.eps {
		if ctx.Err() != nil {
			return math.NaN(), context.Cause(ctx)
		}
		w := values[i] / float64(len(values))
		sum += w
		q.Standardize(u, eps)
		floats.AddScaled(gm, w, u)
		q.AddOuter(gv, 0.5*w, u, u)
	}
	q.AddPrecision(gv, -0.5*sum)
	if fitted {
		fit.AddGrad(gm, gv, q)
	}
	q.FromMomentGrad(dst, gm, gv)
	return mean, nil
}

// familyScore is Score for an exponential family:
//
//	∇_μ E_q[l] = c + F⁻¹ Cov(T, l − cᵀT).
//
// c is the regression of l on T(z), or 0. Each half of the draws uses the coefficients of the
// other half.
func (e *Integral) familyScore(dst, variance []float64, draws draws, values []float64,
	b Baseline) float64 {
	var fit variate.Quadratic
	var mean float64
	fitted := b == Quadratic && fit.FitStat(values, draws.t, e.Member.Mu)
	if fitted {
		mean = floats.Sum(values)/float64(len(values)) + fit.Coef[0]
	} else {
		mean = b.center(values)
	}
	acc := e.newMean(dst, variance)
	for i, t := range draws.t {
		floats.SubTo(acc.g, t, e.Member.Mu)
		floats.Scale(values[i], acc.g)
		acc.add()
	}
	acc.finish(&fit, fitted)
	return mean
}

// ScoreSites implements EstimateSites of pgsvi.ScoreFunction, with n draws.
func ScoreSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, n int, b Baseline,
	rng *rand.Rand) {
	eps := getDraws(n, rng)
	defer putDraws(eps)
	values, fit := eps.values, &eps.fit
	quadratic := b == Quadratic && n >= 12
	if quadratic {
		fit.Init(n, 3)
		for j, x := range eps.x {
			row := fit.Row(j)
			row[0], row[1], row[2] = 1, x, x*x-1
		}
	}
	var i int
	defer parallel.At(&i, nil)
	for i = range y {
		sd := math.Sqrt(v[i])
		for j, x := range eps.x {
			values[j] = lik.LogProb(y[i], m[i]+sd*x)
		}
		// E[c1 ε + c2 (ε² − 1)] has the derivatives c1/sd and 2c2/v.
		var c1, c2 float64
		if quadratic && fit.Residuals(values) {
			e[i] = floats.Sum(values)/float64(n) + fit.Coef[0]
			c1, c2 = fit.Coef[1], 2*fit.Coef[2]
		} else {
			e[i] = b.center(values)
		}
		var a, h float64
		for j, x := range eps.x {
			a += values[j] * x
			h += values[j] * (x*x - 1)
		}
		d1[i], d2[i] = (a/float64(n)+c1)/sd, (h/float64(n)+c2)/v[i]
	}
}

// siteDraws holds standard normal draws that all sites of a batch share.
type siteDraws struct {
	x, values []float64
	fit       variate.Regression
}

var siteDrawPool = sync.Pool{New: func() any { return new(siteDraws) }}

func getDraws(n int, rng *rand.Rand) *siteDraws {
	d := siteDrawPool.Get().(*siteDraws)
	d.x, d.values = dense.Resize(d.x, n), dense.Resize(d.values, n)
	for i := range d.x {
		d.x[i] = rng.NormFloat64()
	}
	return d
}

func putDraws(d *siteDraws) { siteDrawPool.Put(d) }
