package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// startAt makes the q of alg that of s.
func startAt(alg algebra, s *learnSites) {
	switch alg := alg.(type) {
	case *weightAlgebra:
		alg.startAt(s.gamma, s.a, s.m)
	case *dualAlgebra:
		alg.start(s.gamma, s.a)
	case *factoredAlgebra:
		alg.startAt(s.gamma, s.a)
	}
}

// startAt makes q that of the sites γ and a, which are about the linear predictors m.
func (s *weightAlgebra) startAt(gamma, a, m []float64) {
	copy(s.gamma, gamma)
	copy(s.a, a)
	copy(s.eta, m)
	s.ahead, s.free, s.started, s.proof = true, false, false, proof{}
}

// startAt makes q the Gaussian of a diagonal precision and of the mean, less that of the prior.
func (s *factoredAlgebra) startAt(precision, mean []float64) {
	copy(s.fam.(*diagFamily).cur, precision)
	copy(s.cur.mean, mean)
	s.fresh, s.aimed, s.started, s.proof = false, false, true, proof{}
}

// scaledPrior is the prior of a GLM as a function of its standard deviations.
type scaledPrior struct {
	base   *linearModel
	space  *learnSpace
	value  float64 // GLMOptions.PriorSD
	blocks int
	block  []int     // of each weight; −1 for that of the intercept
	unit   []float64 // the precision of a weight where PriorSD is 1, and that of the intercept
	spread []float64 // of a block: the sum of the variances that its columns have in these units

	lin *linearModel // of the last covariance
}

// newScaledPrior returns that of l, of which the first so many weights are in blocks, nil for one, and in units of
// their columns if scaled.
func newScaledPrior(l *linearModel, cols int, blocks []int, scaled bool, value float64) *scaledPrior {
	d := len(l.names)
	p := &scaledPrior{base: l, value: value, blocks: min(cols, 1), block: make([]int, d), unit: make([]float64, d)}
	if len(blocks) > 0 {
		p.blocks = slices.Max(blocks) + 1
	}
	p.spread = make([]float64, p.blocks)
	variance := l.x.columnVariances()
	for j := range d {
		p.unit[j] = 1
		if j >= cols {
			p.block[j], p.unit[j] = -1, l.prior.prec[j]
			continue
		}
		if blocks != nil {
			p.block[j] = blocks[j]
		}
		if scaled && variance[j] > 0 {
			p.unit[j] = variance[j]
		}
		p.spread[p.block[j]] += variance[j] / p.unit[j]
	}
	return p
}

// coords returns the coordinates of the standard deviations, for which d has the defaults.
func (p *scaledPrior) coords(d *learnData) []learnCoord {
	coords := make([]learnCoord, p.blocks)
	value := positiveOr(p.value, 1)
	for b := range coords {
		c := &coords[b]
		c.Param = Param{Name: "GLM.PriorSD", Value: value, Max: math.Inf(1)}
		c.prior = Prior{Mean: d.scale, SD: d.spread}
		if p.blocks > 1 {
			c.Name = fmt.Sprintf("GLM.PriorSD[%d]", b)
			c.prior = Prior{d.scale - 0.5*math.Log(float64(p.blocks)), listSD, d.spread}
		}
		if r2 := p.spread[b]; r2 > 0 && !math.IsInf(r2, 0) {
			c.prior.Mean -= 0.5 * math.Log(r2)
		}
		if c.start = c.theta(value); p.value == 0 {
			c.start = c.prior.Mean
		}
	}
	return coords
}

func (p *scaledPrior) digest(d *save.Digest) {
	p.base.terms.digest(d)
	p.base.digest(d)
	d.Int(p.block...)
	d.Floats(p.unit)
}

// at returns the model at θ. The error wraps ErrParam where that is out of range.
func (p *scaledPrior) at(theta []float64) (*linearModel, error) {
	if err := p.space.held(theta); err != nil {
		return nil, err
	}
	sds, lik := p.space.values(theta)
	if err := checkLikelihood(lik); err != nil {
		return nil, err
	}
	lin := *p.base
	lin.terms, lin.prior.prec = p.base.terms.under(lik), slices.Clone(p.unit)
	for j, b := range p.block {
		if b >= 0 {
			lin.prior.prec[j] /= sds[b] * sds[b]
		}
		if l := lin.prior.prec[j]; !(l > 0) || math.IsInf(1/l, 0) || math.IsInf(l, 0) {
			return nil, fmt.Errorf("pgsvi: prior precision of weight %d (%s) is %v: %w", j, lin.names[j], l, ErrParam)
		}
	}
	return &lin, nil
}

// covariance implements latentPrior, of the linear predictors.
func (p *scaledPrior) covariance(h *parallel.Halt, dst, theta []float64) (*siteTerms, bool) {
	lin, err := p.at(theta)
	if err != nil {
		return nil, false
	}
	k, err := lin.gramUntil(h)
	if err != nil {
		return nil, false
	}
	p.lin = lin
	copy(dst, k)
	_, ok := dense.AllFinite(k)
	return lin.terms, ok
}

// columns returns the column that each weight has among the free parameters, −1 if none.
func (p *scaledPrior) columns() []int {
	of := make([]int, p.blocks)
	for b := range of {
		of[b] = -1
	}
	for i, at := range p.space.free {
		if at < p.blocks {
			of[at] = i
		}
	}
	cols := make([]int, len(p.block))
	for j, b := range p.block {
		if cols[j] = -1; b >= 0 {
			cols[j] = of[b]
		}
	}
	return cols
}

// slopes implements latentPrior: ∂K/∂log s_b = 2 Σ_{j∈b} x_jx_jᵀ/λ_j for columns x_j.
func (p *scaledPrior) slopes(h *parallel.Halt, grad, u, w, a []float64) {
	x, n, d, nf := p.lin.x, p.lin.x.rows, p.lin.x.cols, len(p.space.free)
	of, prec := p.columns(), p.lin.prior.prec
	mean := make([]float64, d)
	x.addMulT(mean, a, nil)
	for j, m := range mean { // x_jᵀa
		if i := of[j]; i >= 0 {
			grad[i] -= m * m / prec[j]
		}
		mean[j] = 2 * m / prec[j]
	}
	t, row := make([]float64, d), make([]float64, n)
	for r := range n {
		if h.Stopped() {
			return
		}
		for c := range n {
			row[c] = dense.SymmetricAt(w, n, r, c)
		}
		clear(t)
		x.addMulT(t, row, nil)
		each := func(j int, v float64) {
			if i := of[j]; i >= 0 {
				grad[i] += v * t[j] / prec[j]
				u[r*nf+i] += v * mean[j]
			}
		}
		ind, val := x.row(r)
		if x.sparse == nil {
			for j, v := range val {
				each(j, v)
			}
		}
		for k, j := range ind {
			each(int(j), val[k])
		}
	}
}

// weightLearning is a GLM as a function of its hyper-parameters, over its weights. The sites that it remembers are those of the rows or, of a diagonal q, the
// precisions of the weights and their means.
type weightLearning struct {
	siteMemory
	prior    *scaledPrior
	space    *learnSpace
	diagonal bool
	workers  crew
	units    float64
}

func (l *weightLearning) digest(d *save.Digest) {
	l.prior.digest(d)
	d.Text(fmt.Sprintf("weights, diagonal %t", l.diagonal))
}

func (l *weightLearning) use(c crew) { l.workers = c }

func (l *weightLearning) work() float64 { return l.units }

func (l *weightLearning) state(c *save.State, n int) {
	rows := l.prior.base.x.rows
	if l.diagonal {
		rows = l.prior.base.x.cols
	}
	l.siteMemory.state(c, n, rows)
	c.Float(&l.units)
}

// weightFit is the best q at one θ, near enough.
type weightFit struct {
	lin            *linearModel
	f, gap         float64    // −ELBO, and by how much it may be too high
	mean, variance []float64  // of the weights
	rows           *siteState // the expectations
	factor         []float64  // the Cholesky factor of V⁻¹, or nil where that is diagonal
	logDet         float64    // and log|V⁻¹|
}

// evaluate implements learnable.
func (l *weightLearning) evaluate(theta []float64, slack, most float64, slopes bool) (learnPoint, error) {
	none := learnPoint{f: math.Inf(1)}
	lin, err := l.prior.at(theta)
	if err != nil {
		return none, nil // out of range
	}
	fit := l.fitFull
	if l.diagonal {
		fit = l.fitDiagonal
	}
	q, err := fit(lin, theta, slack)
	if halted := l.workers.halt.Err(); halted != nil {
		return none, halted
	}
	if err != nil && !errors.Is(err, ErrNotFinite) && !errors.Is(err, ErrNotPosDef) {
		return none, err
	}
	if err != nil || math.IsNaN(q.f) || math.IsInf(q.f, 0) {
		return none, nil
	}
	x := learnPoint{f: q.f, slack: q.gap}
	if slopes && x.f <= most {
		l.slopes(&x, q, theta)
		if err := l.workers.halt.Err(); err != nil {
			return none, err
		}
		if _, ok := dense.AllFinite(x.grad); !ok {
			return none, nil
		}
	}
	return x, nil
}

// fitFull finds q with a full covariance, to within so many nats.
func (l *weightLearning) fitFull(lin *linearModel, theta []float64, slack float64) (*weightFit, error) {
	s, err := newWeightAlgebra(lin, l.workers)
	if err != nil {
		return nil, err
	}
	switch {
	case lin.terms.knownSites(s.gamma, s.a):
	case len(l.past) > 0:
		l.extrapolate(s.gamma, s.a, s.eta, theta)
	default:
		if err = l.approach(s); errors.Is(err, ErrDiverged) {
			s, err = newWeightAlgebra(lin, l.workers) // all rows together find their way
		}
		if err != nil {
			return nil, err
		}
	}
	var gap float64
	err = s.settle()
	for range learnSteps {
		if err != nil {
			return nil, err
		}
		l.settle(s, slack)
		if gap = s.promise(); gap <= slack {
			break
		}
		if _, err = s.ascend(); err == nil && s.distance == 0 {
			break
		}
	}
	l.units += float64(s.batch.evaluations)
	q := &s.batch.cur
	l.found = learnSites{slices.Clone(theta), slices.Clone(q.gamma), slices.Clone(q.a), slices.Clone(q.m)}
	fit, err := s.fit()
	if err != nil {
		return nil, err
	}
	fit.gap = gap
	return fit, l.workers.halt.Err()
}

// fit returns the state of all rows. The error wraps ErrNotFinite where rounding leaves nothing of its ELBO.
func (s *weightAlgebra) fit() (*weightFit, error) {
	q, w, d := &s.batch.cur, &s.run, s.lin.x.cols
	if q.wild || !(w.rounding()+w.resolution() <= mostDrift) {
		return nil, fmt.Errorf("the ELBO: %w", ErrNotFinite)
	}
	w.invert()
	fit := &weightFit{lin: s.lin, f: q.value, mean: w.mean, variance: make([]float64, d), rows: &q.siteState, factor: w.l, logDet: w.logDet}
	for j := range fit.variance {
		fit.variance[j] = w.inv[j*d+j]
	}
	return fit, nil
}

// approach takes the pass of blocks that a fit begins with, if it does.
func (l *weightLearning) approach(s *weightAlgebra) error {
	plan := s.plan()
	if plan.Sampler == nil {
		return nil
	}
	l.units++
	for batch := range plan.Sampler.Batches(s.n, plan.Batch, rand.New(rand.NewPCG(seed1, seed2))) {
		if len(batch) == s.n {
			return nil
		}
		if err := s.block(batch); err != nil {
			return err
		}
	}
	return nil
}

// settle moves the mean of s with V held, which costs far less than a step does, while that promises more than a small part of so many nats.
func (l *weightLearning) settle(s *weightAlgebra, slack float64) {
	s.blocks.mover.x, s.blocks.mover.index = s.lin.x, nil
	for range innerNewtons {
		q := &s.batch.cur
		if mean, _ := s.blocks.promise(&q.siteState, &s.mover.cur); q.wild || !(mean > meanPart*slack) {
			return
		}
		value := q.value
		if s.meanStep(); !(s.batch.cur.value < value) {
			return
		}
	}
}

// fitDiagonal finds q with a diagonal covariance, to within so many nats.
func (l *weightLearning) fitDiagonal(lin *linearModel, theta []float64, slack float64) (*weightFit, error) {
	s, d := newFactoredAlgebra(lin, 0), len(lin.names)
	s.use(l.workers)
	if len(l.past) > 0 {
		at := learnSites{gamma: make([]float64, d), a: make([]float64, d), m: make([]float64, d)}
		l.extrapolate(at.gamma, at.a, at.m, theta)
		s.startAt(at.gamma, at.a)
		if s.renewed() != nil || math.IsInf(s.cur.elbo, 0) {
			s = newFactoredAlgebra(lin, 0)
			s.use(l.workers)
		}
	}
	var gap float64
	err := s.renewed()
	for range diagonalSteps {
		if err == nil {
			err = s.directed()
		}
		if err != nil {
			return nil, err
		}
		if gap = s.promise + s.unseen; gap <= slack && s.beyond == 0 {
			break
		}
		l.units++
		if _, err = s.ascend(); err == nil && s.distance == 0 {
			break
		}
	}
	if s.cur.wild {
		return nil, fmt.Errorf("the ELBO: %w", ErrNotFinite)
	}
	prec := s.fam.(*diagFamily).cur
	s.cur.gamma = s.cur.tg
	fit := &weightFit{lin: lin, f: -s.cur.elbo, gap: gap, mean: s.cur.mean, variance: make([]float64, d), rows: &s.cur.siteState}
	for j, p := range prec {
		fit.variance[j] = 1 / p
	}
	l.found = learnSites{slices.Clone(theta), slices.Clone(prec), slices.Clone(s.cur.mean), make([]float64, d)}
	return fit, nil
}

// diagonalSteps bounds the steps of a diagonal q at one θ, which are cheap and many.
const diagonalSteps = 300

// slopes stores the gradient and the average information at q in x. With r = XᵀΓu of a parameter of the likelihood, of the column u that siteLearning
// has for it, and 2Λ0E_b m of a block of weights in place of −r, the information is ½(D − rᵀVr), D being 4mᵀE_bΛ0E_b m of a block, uᵀΓu of parameters of the
// likelihood, and 0 elsewhere. Of a negative γ it takes no account.
func (l *weightLearning) slopes(x *learnPoint, q *weightFit, theta []float64) {
	d, n, nf := len(q.mean), len(q.rows.m), len(l.space.free)
	of := l.prior.columns()
	x.grad, x.info = make([]float64, nf), mat.NewSymDense(nf, nil)
	r, own, least := make([]float64, d*nf), mat.NewSymDense(nf, nil), make([]float64, nf)
	for j, i := range of {
		if i < 0 {
			continue
		}
		p, m := q.lin.prior.prec[j], q.mean[j]
		x.grad[i] += 1 - p*(m*m+q.variance[j])
		r[j*nf+i] = -2 * p * m
		own.SetSym(i, i, own.At(i, i)+4*p*m*m)
	}
	var u []float64
	for i := range nf {
		if l.space.ofLikelihood(i) {
			if u == nil {
				u = make([]float64, n*nf)
			}
			x.grad[i], least[i] = l.space.likelihoodSlope(u[i:], q.lin.terms, q.rows, l.workers, theta, i)
		}
	}
	if u != nil {
		l.likelihoodInfo(r, own, u, q)
	}
	vr := slices.Clone(r)
	if q.factor == nil {
		for j, v := range q.variance {
			floats.Scale(math.Sqrt(v), vr[j*nf:(j+1)*nf])
		}
	} else {
		dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(q.factor, d), dense.General(vr, d, nf))
	}
	for i := range nf {
		for j := range i + 1 {
			vrv := blas64.Dot(blas64.Vector{N: d, Data: vr[i:], Inc: nf}, blas64.Vector{N: d, Data: vr[j:], Inc: nf})
			x.info.SetSym(i, j, 0.5*(own.At(i, j)-vrv))
		}
		x.info.SetSym(i, i, max(x.info.At(i, i), least[i], 0))
	}
}

// likelihoodInfo adds r and D of the parameters of the likelihood, whose columns are in u, to r and own.
func (l *weightLearning) likelihoodInfo(r []float64, own *mat.SymDense, u []float64, q *weightFit) {
	d, n, nf := len(q.mean), len(q.rows.m), len(l.space.free)
	gu, xgu := make([]float64, n), make([]float64, d)
	for i := range nf {
		if !l.space.ofLikelihood(i) {
			continue
		}
		for a, g := range q.rows.tg {
			gu[a] = max(g, 0) * u[a*nf+i]
		}
		for j := range i + 1 {
			if l.space.ofLikelihood(j) {
				own.SetSym(i, j, blas64.Dot(blas64.Vector{N: n, Data: u[j:], Inc: nf}, blas64.Vector{N: n, Data: gu, Inc: 1}))
			}
		}
		clear(xgu)
		q.lin.x.addMulT(xgu, gu, nil)
		for j, v := range xgu {
			r[j*nf+i] = v
		}
	}
}
