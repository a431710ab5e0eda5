package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/cubature"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// This file fits softmax models at the covariances that an integral over them chooses (sigma_grid.go).
// A q needs the inverse of a covariance, so a standard deviation of 0 is replaced by a small one, at
// which the ELBO is the same to rounding. The engine of softmax models has no closed form for log Z at
// fixed sites. The search that learned the covariances has found the curvature of the ELBO instead, from
// which its package makes the surrogate (learn.BlockPrior.Guess).

// A ClassFactor describes the covariance of one block of the prior of a softmax model to IntegrateClasses.
type ClassFactor struct {
	Learn       bool
	Independent bool      // L is diagonal
	Scale       []float64 // scales of the half-normal priors, or nil without priors, as in Factor
	// Unit holds the standard deviations with which the rows of a level determine its effects. A standard
	// deviation below ZeroEffect units stands for 0.
	Unit []float64
	SD   []float64 // standard deviations of the standard deviations, as in FactorSpread
}

// ZeroEffect is the standard deviation, relative to its unit, that stands for 0 in a softmax model. The
// ELBO differs from the ELBO at 0 by about ZeroEffect² nats.
const ZeroEffect = 1e-3

// classFits is the sigmaModel of a SoftmaxAlgebra.
type classFits struct {
	from    *SoftmaxAlgebra
	lin     *LinearModel
	factors []ClassFactor
	prior   sigma // for its logPrior
	guess   func(l [][]float64) float64
}

// IntegrateClasses returns the posterior over the covariances of the blocks of the prior of l, a softmax
// model, like ArrowAlgebra.Integrate. The state of s is the fit of l, with the best covariances. There is
// one factor per block. The function guess approximates the ELBO at covariances LLᵀ, up to a constant.
func (s *SoftmaxAlgebra) IntegrateClasses(l *LinearModel, factors []ClassFactor,
	guess func(l [][]float64) float64) (*SigmaGrid, error) {
	m := &classFits{from: s, lin: l, factors: factors, guess: guess}
	border, largest := l.X.Cols, 0
	var rules []gridRule
	for f, b := range l.Prior.Blocks() {
		x := &factors[f]
		largest = max(largest, b.End()-b.First)
		levels := levelsOf(l, &b)
		rules = append(rules, gridRule{x.Learn && x.Scale != nil && levels < MostClassGridLevels, levels,
			GridParams(b.Q, x.Independent)})
		m.prior.scale = append(m.prior.scale, nil)
		if x.Learn {
			m.prior.scale[f] = x.Scale
		}
	}
	in, params := gridFactors(rules)
	if border-largest > MostGridBorder || params == 0 || params > cubature.Most {
		return nil, nil
	}
	grid, err := integrateSigma(m, in, params)
	if grid != nil {
		grid.Factors = in
	}
	return grid, err
}

// levelsOf returns the number of levels of b with rows in l.
func levelsOf(l *LinearModel, b *gauss.Block) (n int) {
	seen := make([]bool, b.Levels)
	for i := range l.X.Rows {
		ind, val := l.X.Row(i)
		for k, z := range val {
			j := k
			if ind != nil {
				j = int(ind[k])
			}
			if g := (j - b.First) / b.Q; z != 0 && j >= b.First && j < b.End() && !seen[g] {
				seen[g] = true
				n++
			}
		}
	}
	return n
}

// fit implements sigmaModel.
func (m *classFits) fit(l [][]float64, jac float64, near *gridFit) (*gridFit, error) {
	f := &gridFit{log: math.Inf(-1)}
	lin := *m.lin
	lin.Prior = lin.Prior.WithBlocks()
	for k, b := range m.lin.Prior.Blocks() {
		if b.L = m.nonzero(k, l[k]); b.L == nil {
			return f, nil
		}
		lin.Prior.SetBlock(b)
		f.L = append(f.L, b.L)
	}
	alg, err := NewSoftmaxAlgebra(&lin, m.from.Workers)
	if err != nil {
		return nil, err
	}
	alg.StartAt(near.gamma, near.a, near.m)
	if _, err := alg.Approach(gridSlack, gridSteps); err != nil {
		return nil, err
	}
	q := &alg.Batch.Cur
	f.gamma, f.a, f.m = slices.Clone(q.Gamma), slices.Clone(q.A), slices.Clone(q.M)
	log := m.prior.logPrior(l, nil) + jac - q.Value
	if q.Wild || math.IsNaN(log) || math.IsInf(log, 0) {
		return f, nil
	}
	f.log = log
	f.Mean, f.Cov, err = alg.Weights()
	return f, err
}

// nonzero returns a copy of l, the L of factor k, without zeros on its diagonal. It returns nil if q has
// no covariance at l.
func (m *classFits) nonzero(k int, l []float64) []float64 {
	q := len(m.factors[k].Unit)
	l = slices.Clone(l)
	for i, unit := range m.factors[k].Unit {
		row := l[i*q : i*q+i+1]
		size, least := floats.Norm(row, 2), ZeroEffect*unit
		switch {
		case size == 0:
			row[i] = least
		case size < least:
			floats.Scale(least/size, row)
		}
		if square := row[i] * row[i]; !(square > 0) || math.IsInf(square, 0) || math.IsInf(1/square, 0) {
			return nil
		}
	}
	return l
}

// start implements sigmaModel.
func (m *classFits) start() *gridFit {
	q := &m.from.Cur
	return &gridFit{gamma: q.Gamma, a: q.A, m: q.M}
}

// present implements sigmaModel. A standard deviation that stands for 0 is 0.
func (m *classFits) present() (l [][]float64) {
	for k, b := range m.lin.Prior.Blocks() {
		own := slices.Clone(b.L)
		for i, unit := range m.factors[k].Unit {
			row := own[i*b.Q : i*b.Q+i+1]
			const rounding = 1 + 1e-6
			if m.factors[k].Learn && floats.Norm(row, 2) <= rounding*ZeroEffect*unit {
				clear(row)
			}
		}
		l = append(l, own)
	}
	return l
}

// block implements sigmaModel.
func (m *classFits) block(f int) (gauss.Block, int) { return m.lin.Prior.Blocks()[f], f }

// independent implements sigmaModel.
func (m *classFits) independent(f int) bool { return m.factors[f].Independent }

// spread implements sigmaModel.
func (m *classFits) spread(f int) (sd, least []float64, err error) {
	least = slices.Clone(m.factors[f].Unit)
	floats.Scale(0.1, least)
	return m.factors[f].SD, least, nil
}

// unit implements sigmaModel.
func (m *classFits) unit(f int, tau float64) float64 {
	sd, least, _ := m.spread(f)
	if sd[0] > least[0] && !math.IsInf(sd[0], 0) {
		return sd[0]
	}
	return max(least[0], tau)
}

// surrogate implements sigmaModel.
func (m *classFits) surrogate(l [][]float64) float64 { return m.guess(l) + m.prior.logPrior(l, nil) }

// quick implements sigmaModel.
func (m *classFits) quick() bool { return true }

// halt implements sigmaModel.
func (m *classFits) halt() *parallel.Halt { return m.from.Workers.Halt }

var _ sigmaModel = (*classFits)(nil)
