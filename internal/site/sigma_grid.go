package site

import (
	"errors"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/cubature"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/interp"
	"gonum.org/v1/gonum/mat"
)

// This file integrates over the standard deviation τ of the effects of a factor. Few levels hardly
// determine τ, so a q at the best τ is too sure of itself. A GLM with GLMOptions.Groups calls
// Integrate after a fit.
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
	Cov  *gauss.Arrow
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

// gridRun fits the weights at the points of a SigmaGrid.
type gridRun struct {
	from   *ArrowAlgebra
	last   *ArrowAlgebra // the next fit takes its memory
	lin    LinearModel   // with fixed covariances
	factor int
	scale  float64
	step   float64
	fits   map[int]*gridFit // by k
	lo, hi int              // range of k
	best   float64          // largest log density
	closed *gridClosed      // set by the first fit if the noise is Gaussian
}

// gridClosed has the sums over rows if the noise is Gaussian. The sites then do not depend on L, and
// the ELBO is log Z plus a constant, so the fits at other points read no rows.
type gridClosed struct {
	sums     gauss.Sums
	hb, hg   []float64
	constant float64
}

// Integrate returns the posterior over the covariances of the factors that have a prior and few
// levels with rows. It uses a grid for one parameter, a lattice for two standard deviations
// (sigma_plane.go), and a design for up to ten parameters (sigma_design.go). It returns nil if
// there is no such parameter, if there are more than ten, or if the border has more than
// MostGridBorder columns. The other factors keep their covariances.
func (s *ArrowAlgebra) Integrate() (*SigmaGrid, error) {
	a := s.mover
	factors, params := a.gridFactors()
	switch {
	case !a.moved || len(a.shape.Border) > MostGridBorder || params == 0 || params > cubature.Most:
		return nil, nil
	case params > 1:
		return s.integrateDesign(factors)
	}
	f := factors[0]
	run := newGridRun(s)
	g := &run
	g.factor = f
	tau := math.Abs(a.cur.by.L[f][0])
	var err error
	if g.scale, err = g.spread(tau); err != nil || !(g.scale > 0) || math.IsInf(g.scale, 0) {
		return nil, errors.Join(err, s.Workers.Halt.Err())
	}
	g.step = gridStep * g.scale / math.Hypot(tau, g.scale)
	mode := int(math.Round(math.Asinh(tau/g.scale) / g.step))
	if err := g.add(mode, g.start()); err != nil {
		return nil, err
	}
	g.lo, g.hi = mode, mode
	err = g.extend()
	for range gridHalves {
		if err != nil || g.covering() >= gridLeast {
			break
		}
		err = g.halve()
	}
	if err != nil || math.IsInf(g.best, -1) {
		return nil, err
	}
	return g.grid(), s.Workers.Halt.Err()
}

// newGridRun returns a run from the state of s.
func newGridRun(s *ArrowAlgebra) gridRun {
	a := s.mover
	g := gridRun{from: s, lin: *a.lin, fits: map[int]*gridFit{}, best: math.Inf(-1)}
	g.lin.Factors, g.lin.Near = nil, nil
	if a.summed != nil {
		g.closed = &gridClosed{sums: a.summed.by.Sums, hb: slices.Clone(a.hb), hg: slices.Clone(a.hg)}
	}
	return g
}

// levelsWithRows returns the number of levels of factor f with rows.
func (a *arrow) levelsWithRows(f int) (n int) {
	if a.summed != nil {
		return a.summed.by.Filled(a.fac[f].Block)
	}
	seen := make([]bool, a.fac[f].Levels)
	for _, g := range a.fac[f].level {
		if g >= 0 && !seen[g] {
			seen[g] = true
			n++
		}
	}
	return n
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

// gridFactors returns the factors that Integrate integrates, and the number of their parameters.
func (a *arrow) gridFactors() (found []int, total int) {
	var all, levels, params []int
	for f := range a.fac {
		if x := &a.fac[f]; x.rule.Learn && x.rule.Scale != nil {
			all, levels = append(all, f), append(levels, a.levelsWithRows(f))
			params = append(params, GridParams(x.Q, x.rule.Independent))
		}
	}
	most := GridLevels(levels, params)
	for i, f := range all {
		if levels[i] < most {
			found, total = append(found, f), total+params[i]
		}
	}
	return found, total
}

// spread returns the standard deviation of τ, whose present value is tau. The curvature of log Z +
// log p at the present sites gives a first value, which is too small because sites follow τ. A fit at
// that distance corrects it. So the points do not depend on the steps that led to the present state.
func (g *gridRun) spread(tau float64) (sd float64, err error) {
	a, t := g.from.mover, g.from.sums()
	at := func(x float64) float64 {
		t.by.L[g.factor][0] = x
		return a.logZ(t, nil)
	}
	unit := max(tau, sigmaKick*a.sigma.start[g.factor][0])
	z := at(tau)
	for range 2 {
		h := 0.3 * unit
		if bend := (2*z - at(tau+h) - at(tau-h)) / (h * h); bend > 0 {
			unit = 1 / math.Sqrt(bend)
		}
	}
	var log [2]float64
	for i, x := range []float64{tau, tau + unit} {
		l := g.from.L()
		l[g.factor][0] = x
		f, err := g.fit(l, 0, g.start())
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

// flatness returns 1 − ρ at t, which has the sums and the L of the present state; see gain. It is the
// mean of all parameters (geometric) if the curvature with sites that follow L is known.
func (s *ArrowAlgebra) flatness(t *arrowState) float64 {
	a := s.mover
	if j := s.answers(); j != nil && !math.IsInf(a.logZ(t, a.sigma.grad), -1) {
		fixed := mat.NewSymDense(len(j.unit), nil)
		a.hessian(t, j.unit, fixed)
		n := len(j.unit) - a.freeze(t.by.L, make([]float64, len(j.unit)), fixed)
		var own, all mat.Cholesky
		if own.Factorize(fixed) && all.Factorize(j.bend) {
			return min(1, math.Exp((all.LogDet()-own.LogDet())/float64(n)))
		}
	}
	to := &arrowState{by: gauss.Arrow{ArrowShape: a.shape, Sums: t.by.Sums}}
	to.by.L = gauss.CloneLists(t.by.L)
	a.maximize(to)
	return a.sigma.rate.estimate(a, to.by.L)
}

// add fits the weights at point k, from the sites of another fit.
func (g *gridRun) add(k int, near *gridFit) error {
	x := float64(k) * g.step
	l := g.from.L()
	l[g.factor][0] = g.scale * math.Sinh(x)
	f, err := g.fit(l, math.Log(math.Cosh(x)), near)
	if err != nil {
		return err
	}
	g.fits[k], g.best = f, max(g.best, f.log)
	return nil
}

// fit fits the weights at the given L, from the sites of another fit. The log density is the ELBO
// plus the log prior of L plus jac, or −Inf if there is no fit.
func (g *gridRun) fit(l [][]float64, jac float64, near *gridFit) (*gridFit, error) {
	s, f := g.from, &gridFit{log: math.Inf(-1)}
	if g.closed != nil {
		return f, g.fitClosed(f, l, jac)
	}
	alg, err := NewArrowAlgebraIn(g.last, &g.lin, s.Workers)
	if err != nil {
		return nil, err
	}
	g.last = alg
	alg.SetL(l)
	alg.StartAt(near.gamma, near.a, near.m)
	if _, err := alg.Settle(gridSlack, gridSteps); err != nil {
		return nil, err
	}
	q := &alg.Batch.Cur
	f.gamma, f.a, f.m = slices.Clone(q.Gamma), slices.Clone(q.A), slices.Clone(q.M)
	log := s.mover.sigma.logPrior(l, nil) + jac - q.Value
	if q.Wild || math.IsNaN(log) || math.IsInf(log, 0) {
		return f, nil
	}
	f.log = log
	if f.Mean, f.Cov, err = alg.arrowWeights(); err == nil && s.mover.gaussian &&
		slices.Equal(q.Gamma, q.Tg) {
		g.close(alg)
	}
	return f, err
}

// close sets g.closed from a fit to Gaussian noise.
func (g *gridRun) close(alg *ArrowAlgebra) {
	t, a := alg.sums(), alg.mover
	z := a.logZ(t, nil) // without log p(L), because the fit learns no L
	if math.IsInf(z, -1) {
		return
	}
	g.closed = &gridClosed{sums: t.by.Sums, hb: slices.Clone(a.hb), hg: slices.Clone(a.hg),
		constant: -alg.Batch.Cur.Value - z}
}

// fitClosed is fit by g.closed. It stores the result in f.
func (g *gridRun) fitClosed(f *gridFit, l [][]float64, jac float64) error {
	a, s := g.from.mover, g.closed
	shape := *a.shape
	c := &gauss.Arrow{ArrowShape: &shape, L: gauss.CloneLists(l), Sums: s.sums.Clone()}
	ok := c.Factor(a.crew.Halt)
	if err := a.crew.Halt.Err(); err != nil || !ok {
		return err
	}
	var x gauss.ArrowMean
	c.Solve(&x, s.hb, s.hg, make([]float64, len(s.hg)))
	z := 0.5 * (floats.Dot(s.hb, x.W) + floats.Dot(s.hg, x.U) - c.LogDet)
	log := a.sigma.logPrior(l, nil) + jac + s.constant + z
	if math.IsNaN(log) || math.IsInf(log, 0) {
		return nil
	}
	f.log, f.Mean, f.Cov = log, a.inModel(&x), c
	return nil
}

// start returns the sites of the state from which the run started.
func (g *gridRun) start() *gridFit {
	q := &g.from.Cur
	return &gridFit{gamma: q.Gamma, a: q.A, m: q.M}
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
		if err := g.add(k, g.start()); err != nil {
			return err
		}
		g.fits[k].forget()
	}
	return g.extend()
}

// grid returns the result.
func (g *gridRun) grid() *SigmaGrid {
	r := &SigmaGrid{Block: g.from.mover.fac[g.factor].number, scale: g.scale, step: g.step,
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
