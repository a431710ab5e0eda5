package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/cubature"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file fits the weights at the covariances that an integral over them chooses (sigma_grid.go), for
// an ArrowAlgebra.

// Constants of the surrogate.
const (
	arrowRate    = 0.2 // least 1 − ρ
	surrogateMax = 100 // columns of the border, at most, for thousands of surrogates, which factorize it
)

// arrowFits is the sigmaModel of an ArrowAlgebra.
type arrowFits struct {
	from   *ArrowAlgebra
	last   *ArrowAlgebra // the next fit takes its memory
	lin    LinearModel   // with fixed covariances
	closed *gridClosed   // set by the first fit if the noise is Gaussian
	t      *arrowState   // sums of the present sites, once a surrogate needs them
	rate   float64       // factor of changes of log Z in a surrogate
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
	rules := make([]gridRule, len(a.fac))
	for f := range a.fac {
		x := &a.fac[f]
		rules[f] = gridRule{x.rule.Learn && x.rule.Scale != nil, a.levelsWithRows(f),
			GridParams(x.Q, x.rule.Independent)}
	}
	factors, params := gridFactors(rules)
	if !a.moved || len(a.shape.Border) > MostGridBorder || params == 0 || params > cubature.Most {
		return nil, nil
	}
	m := &arrowFits{from: s, lin: *a.lin}
	m.lin.Factors, m.lin.Near = nil, nil
	if a.summed != nil {
		m.closed = &gridClosed{sums: a.summed.by.Sums, hb: slices.Clone(a.hb), hg: slices.Clone(a.hg)}
	}
	return integrateSigma(m, factors, params)
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

// fit implements sigmaModel.
func (g *arrowFits) fit(l [][]float64, jac float64, near *gridFit) (*gridFit, error) {
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
func (g *arrowFits) close(alg *ArrowAlgebra) {
	t, a := alg.sums(), alg.mover
	z := a.logZ(t, nil) // without log p(L), because the fit learns no L
	if math.IsInf(z, -1) {
		return
	}
	g.closed = &gridClosed{sums: t.by.Sums, hb: slices.Clone(a.hb), hg: slices.Clone(a.hg),
		constant: -alg.Batch.Cur.Value - z}
}

// fitClosed is fit by g.closed. It stores the result in f.
func (g *arrowFits) fitClosed(f *gridFit, l [][]float64, jac float64) error {
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

// start implements sigmaModel.
func (g *arrowFits) start() *gridFit {
	q := &g.from.Cur
	return &gridFit{gamma: q.Gamma, a: q.A, m: q.M}
}

// present implements sigmaModel.
func (g *arrowFits) present() [][]float64 { return g.from.L() }

// block implements sigmaModel.
func (g *arrowFits) block(f int) (gauss.Block, int) {
	x := &g.from.mover.fac[f]
	return x.Block, x.number
}

// independent implements sigmaModel.
func (g *arrowFits) independent(f int) bool { return g.from.mover.fac[f].rule.Independent }

// halt implements sigmaModel.
func (g *arrowFits) halt() *parallel.Halt { return g.from.Workers.Halt }

// quick implements sigmaModel.
func (g *arrowFits) quick() bool { return len(g.from.mover.shape.Border) <= surrogateMax }

// spread implements sigmaModel.
func (g *arrowFits) spread(f int) (sd, least []float64, err error) {
	all, err := g.from.Spread()
	if err != nil {
		return nil, nil, err
	}
	a := g.from.mover
	x := &a.fac[f]
	for i := range x.Q {
		least = append(least, 0.1*a.sigma.start[f][i*x.Q+i])
	}
	return all[x.number].SD, least, nil
}

// unit implements sigmaModel. It is the standard deviation by the curvature of log Z + log p at the
// present sites.
func (g *arrowFits) unit(f int, tau float64) float64 {
	a, t := g.from.mover, g.from.sums()
	at := func(x float64) float64 {
		t.by.L[f][0] = x
		return a.logZ(t, nil)
	}
	unit := max(tau, sigmaKick*a.sigma.start[f][0])
	z := at(tau)
	for range 2 {
		h := 0.3 * unit
		if bend := (2*z - at(tau+h) - at(tau-h)) / (h * h); bend > 0 {
			unit = 1 / math.Sqrt(bend)
		}
	}
	return unit
}

// surrogate implements sigmaModel. Log Z at the present sites is too steep, so its changes are
// multiplied by 1 − ρ; see ArrowAlgebra.gain.
func (g *arrowFits) surrogate(l [][]float64) float64 {
	a := g.from.mover
	if g.t == nil {
		g.t = g.from.sums()
		g.rate = max(arrowRate, g.from.flatness(g.t))
	}
	g.t.by.L = l
	prior := a.sigma.logPrior(l, nil)
	if twice, ok := g.t.by.TwiceLogZ(a.hb, a.hg); ok {
		return g.rate*0.5*twice + prior
	}
	return g.rate*(a.logZ(g.t, nil)-prior) + prior
}

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
