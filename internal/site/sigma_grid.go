package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/interp"
)

// This file integrates over the standard deviation τ of the effects of a factor. Few levels hardly
// determine τ, so a q at the best τ is too sure of itself. A GLM with GLMOptions.Groups calls
// Integrate of an ArrowAlgebra or a SoftmaxAlgebra after a fit. The fits at the points are the only
// difference between the two (sigmaModel).
//
// The posterior density of τ is proportional to exp(ELBO(τ)) p(τ), where ELBO(τ) is the best value
// at this τ (Rue, Martino and Chopin, 2009, section 3, with the ELBO in place of their Laplace
// approximation). Nothing depends on the sign of τ, so the density continues to negative τ as a
// smooth even function. In the coordinate x with τ = c sinh x, it is also even and has light tails:
// x is linear in τ near 0 and logarithmic far from it. The trapezoidal rule on the points x = kh
// then converges geometrically (Trefethen and Weideman, 2014), and by symmetry k ≥ 0 suffices. A τ
// of 0 needs no special case.

// SigmaPoint is the posterior of the weights at a point of the grid.
type SigmaPoint struct {
	Prob float64 // posterior probability of the point
	Mean []float64
	Cov  gauss.Cov
	L    [][]float64 // for each block of a softmax model; nil for other models
}

// SigmaSpan is the posterior distribution of the standard deviation of an effect, or of its
// correlation with another effect unless Other is −1.
type SigmaSpan struct {
	Block         int // place of the factor among the blocks of the prior
	Effect, Other int
	// Quantiles returns the quantiles at increasing levels.
	Quantiles func(levels ...float64) []float64
}

// SigmaGrid is the posterior over covariances.
type SigmaGrid struct {
	Points []SigmaPoint
	// Spans has one element per parameter, or none if they are unknown.
	Spans []SigmaSpan
	// Block is the place of the factor among the blocks of the prior if its standard deviation is the
	// only parameter, and −1 otherwise. The other fields need it.
	Block int
	// Factors lists the blocks of a softmax model that were integrated over.
	Factors []int
	// LogMass is the logarithm of the integral of exp(ELBO) p(Σ) over the parameters, up to a
	// constant.
	LogMass float64

	scale, step float64   // τ = scale · sinh x, and the distance of the x
	first       int       // the x are first·step, (first + 1)·step, …
	log         []float64 // log density of x at the points, up to a constant
}

// Constants of the grid.
const (
	// MostGridLevels is the number of levels with rows from which a factor keeps the best τ. In
	// simulations with τ = 0.3 and ten 0/1 rows per level, 90% intervals of a new level at the best τ
	// still contained 79% of the effects of 100 levels, because the best τ is often 0.
	MostGridLevels = 200
	// FewGridLevels replaces MostGridLevels if the factors below MostGridLevels have more than
	// fewGridParams parameters, because each parameter adds points.
	FewGridLevels = 50
	fewGridParams = 3
	// MostClassGridLevels replaces MostGridLevels for classes, where each point takes a fit with a full
	// covariance of each class.
	MostClassGridLevels = 100
	// MostGridBorder is the largest border, because more columns would make every point of the grid
	// too expensive.
	MostGridBorder = 300
	gridDrop       = 8    // fall of the log density, in nats, that ends the grid
	gridStep       = 0.8  // first step, in standard deviations of x
	gridLeast      = 6    // the step is halved if fewer points cover the density
	gridMost       = 24   // points, at most
	gridHalves     = 3    // halvings, at most
	gridSlack      = 1e-5 // gap of the fit at a point, in nats: a relative error of its probability
	gridSteps      = 60   // steps of the fit at a point, at most
)

// gridFit is the fit at a point of the grid.
type gridFit struct {
	SigmaPoint
	log         float64 // log density of x
	gamma, a, m []float64
}

// A sigmaModel fits the weights at given covariances LLᵀ of the factors, which an integral chooses. The
// lists of an L have one element per factor.
type sigmaModel interface {
	// fit fits the weights at L, from the sites of another fit. The log density is the ELBO plus the log
	// prior of L plus jac, or −Inf if there is no fit.
	fit(l [][]float64, jac float64, near *gridFit) (*gridFit, error)
	// start returns the sites of the state from which the integral starts, and present the L there.
	start() *gridFit
	present() [][]float64
	// block returns the prior of the effects of factor f, and its place among the blocks of the model.
	block(f int) (b gauss.Block, number int)
	// independent reports whether the L of factor f is diagonal.
	independent(f int) bool
	// spread returns standard deviations of the standard deviations of factor f, at the present L, and
	// their least useful values.
	spread(f int) (sd, least []float64, err error)
	// unit returns a first value of the standard deviation of the only parameter of factor f, which is
	// tau.
	unit(f int, tau float64) float64
	// surrogate approximates the log density of the parameters at L, up to a constant, without a fit.
	surrogate(l [][]float64) float64
	// quick reports whether thousands of values of the surrogate cost less than a few fits.
	quick() bool
	halt() *parallel.Halt
}

// gridRun fits the weights at the points of a SigmaGrid.
type gridRun struct {
	by     sigmaModel
	factor int
	scale  float64
	step   float64
	fits   map[int]*gridFit // by k
	lo, hi int              // range of k
	best   float64          // largest log density
}

// newGridRun returns a run over the covariances of the factors of m.
func newGridRun(m sigmaModel) gridRun {
	return gridRun{by: m, fits: map[int]*gridFit{}, best: math.Inf(-1)}
}

// GridLevels returns the number of levels from which a factor keeps its best covariance. The lists
// have the numbers of levels and of parameters of the factors that learn a covariance with a prior.
func GridLevels(levels, params []int) int {
	total := 0
	for i, n := range levels {
		if n < MostGridLevels {
			total += params[i]
		}
	}
	if total > fewGridParams {
		return FewGridLevels
	}
	return MostGridLevels
}

// GridParams returns the number of standard deviations and correlations of q effects.
func GridParams(q int, independent bool) int {
	if independent {
		return q
	}
	return q * (q + 1) / 2
}

// A gridRule describes a factor for the choice of gridFactors.
type gridRule struct {
	learned        bool // with a prior
	levels, params int  // levels with rows, and parameters
}

// gridFactors returns the factors to integrate, and the number of their parameters.
func gridFactors(all []gridRule) (found []int, total int) {
	var levels, params []int
	for _, x := range all {
		if x.learned {
			levels, params = append(levels, x.levels), append(params, x.params)
		}
	}
	most := GridLevels(levels, params)
	for f, x := range all {
		if x.learned && x.levels < most {
			found, total = append(found, f), total+x.params
		}
	}
	return found, total
}

// spread returns the standard deviation of τ, whose present value is tau. The first value of the model
// may be too small because sites follow τ. A fit at that distance corrects it. So the points do not
// depend on the steps that led to the present state.
func (g *gridRun) spread(tau float64) (sd float64, err error) {
	unit := g.by.unit(g.factor, tau)
	var log [2]float64
	for i, x := range []float64{tau, tau + unit} {
		l := g.by.present()
		l[g.factor][0] = x
		f, err := g.by.fit(l, 0, g.by.start())
		if err != nil {
			return 0, err
		}
		log[i] = f.log
	}
	if drop := log[0] - log[1]; drop > gridFlat && !math.IsInf(drop, 0) {
		return unit / math.Sqrt(2*drop), nil
	}
	return unit, nil
}

// gridFlat is the smallest fall of the log density, at the first value of the standard deviation of τ,
// that corrects it.
const gridFlat = 0.01

// add fits the weights at point k, from the sites of another fit.
func (g *gridRun) add(k int, near *gridFit) error {
	x := float64(k) * g.step
	l := g.by.present()
	l[g.factor][0] = g.scale * math.Sinh(x)
	f, err := g.by.fit(l, math.Log(math.Cosh(x)), near)
	if err != nil {
		return err
	}
	g.fits[k], g.best = f, max(g.best, f.log)
	return nil
}

// forget frees the sites of f, which have the size of the rows. Only the ends of the grid need them.
func (f *gridFit) forget() { f.gamma, f.a, f.m = nil, nil, nil }

// extend adds points on both sides until the density has fallen.
func (g *gridRun) extend() error {
	for g.fits[g.hi].log > g.best-gridDrop && len(g.fits) < gridMost {
		if err := g.add(g.hi+1, g.fits[g.hi]); err != nil {
			return err
		}
		if g.hi > g.lo {
			g.fits[g.hi].forget()
		}
		g.hi++
	}
	for g.lo > 0 && g.fits[g.lo].log > g.best-gridDrop && len(g.fits) < gridMost {
		if err := g.add(g.lo-1, g.fits[g.lo]); err != nil {
			return err
		}
		if g.lo < g.hi {
			g.fits[g.lo].forget()
		}
		g.lo--
	}
	return nil
}

// covering returns the number of points on both sides of 0 at which the density is not small.
func (g *gridRun) covering() (n int) {
	for k, f := range g.fits {
		if f.log > g.best-gridDrop {
			if n++; k > 0 && g.lo == 0 {
				n++
			}
		}
	}
	return n
}

// halve halves the step.
func (g *gridRun) halve() error {
	old := g.fits
	g.fits = map[int]*gridFit{}
	for k, f := range old {
		g.fits[2*k] = f
	}
	g.step /= 2
	g.lo, g.hi = 2*g.lo, 2*g.hi
	for k := g.lo + 1; k < g.hi; k += 2 {
		if err := g.add(k, g.by.start()); err != nil {
			return err
		}
		g.fits[k].forget()
	}
	return g.extend()
}

// grid returns the result.
func (g *gridRun) grid() *SigmaGrid {
	_, number := g.by.block(g.factor)
	r := &SigmaGrid{Block: number, scale: g.scale, step: g.step,
		first: g.lo}
	var total float64
	for k := g.lo; k <= g.hi; k++ {
		f := g.fits[k]
		f.Prob = math.Exp(f.log - g.best)
		if k == 0 {
			f.Prob /= 2
		}
		total += f.Prob
		r.log = append(r.log, f.log-g.best)
		if f.Prob > 0 {
			r.Points = append(r.Points, f.SigmaPoint)
		}
	}
	for i := range r.Points {
		r.Points[i].Prob /= total
	}
	r.LogMass = g.best + math.Log(total*g.step*g.scale)
	r.Spans = []SigmaSpan{{r.Block, 0, -1, r.Quantiles}}
	return r
}

// fineSteps is the number of steps of Quantiles between two points.
const fineSteps = 50

// Quantiles returns quantiles of the standard deviation at increasing levels. A cubic spline
// interpolates the log density of x.
func (g *SigmaGrid) Quantiles(levels ...float64) []float64 {
	var xs, logs []float64
	add := func(k int, log float64) {
		if log > -100 {
			xs, logs = append(xs, float64(k)*g.step), append(logs, log)
		}
	}
	if g.first == 0 {
		for k := len(g.log) - 1; k > 0; k-- {
			add(-k, g.log[k])
		}
	}
	for i, log := range g.log {
		add(g.first+i, log)
	}
	out := make([]float64, len(levels))
	var spline interp.NotAKnotCubic
	if len(xs) < 3 || spline.Fit(xs, logs) != nil {
		for i := range out {
			out[i] = g.scale * math.Sinh(xs[len(xs)/2])
		}
		return out
	}
	lo, hi := max(0, xs[0]), xs[len(xs)-1]
	n := fineSteps * len(xs)
	h := (hi - lo) / float64(n)
	cum := make([]float64, n+1)
	before := math.Exp(spline.Predict(lo))
	for i := 1; i <= n; i++ {
		p := math.Exp(spline.Predict(lo + float64(i)*h))
		cum[i] = cum[i-1] + (before+p)/2
		before = p
	}
	for i, level := range levels {
		goal := level * cum[n]
		k, _ := slices.BinarySearch(cum, goal)
		k = min(max(k, 1), n)
		x := lo + h*(float64(k-1)+(goal-cum[k-1])/(cum[k]-cum[k-1]))
		out[i] = g.scale * math.Sinh(x)
	}
	return out
}
