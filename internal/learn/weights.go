package learn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// BlockPrior is the prior of the weights of a GLM as a function of its standard deviations, one
// for each block of weights.
type BlockPrior struct {
	// Spread holds, for each block, the sum of the variances of its columns in their units.
	Spread []float64

	base  *site.LinearModel
	space *Space
	block []int     // block of each weight; −1 for the intercept
	unit  []float64 // precision of a weight if PriorSD is 1, and of the intercept

	effects []Effect // learned covariances of a softmax model

	lin *site.LinearModel // model with the last covariance
}

// NewBlockPrior returns the prior of l, whose first cols weights are in blocks; nil means one
// block. With K classes there may be K·cols blocks, class by class. If scaled is true, weights
// are in units of their columns. A nil variance means the variances of the columns of l.
func NewBlockPrior(l *site.LinearModel, cols int, blocks []int, scaled bool,
	variance []float64) *BlockPrior {
	d, classes := len(l.Names), 1
	if len(blocks) > cols {
		classes = l.Terms.K
	}
	p := &BlockPrior{base: l, block: make([]int, classes*d), unit: make([]float64, classes*d)}
	n := 0
	for j := range cols {
		if !l.Prior.Grouped(j) {
			n = 1
		}
	}
	if len(blocks) > 0 {
		n = slices.Max(blocks) + 1
	}
	p.Spread = make([]float64, n)
	if variance == nil {
		variance = l.X.ColumnVariances(l.Terms.Weight)
	}
	last, in := make([]int, n), make([]float64, n) // the class seen last, and how many have it
	total := 0.0
	for i := range p.unit {
		c, j := i/d, i%d
		p.unit[i] = 1
		if j >= cols || l.Prior.Grouped(j) {
			p.block[i], p.unit[i] = -1, l.Prior.Prec[j]
			continue
		}
		if blocks != nil {
			p.block[i] = blocks[c*cols+j]
		}
		if scaled && variance[j] > 0 {
			p.unit[i] = variance[j]
		}
		b := p.block[i]
		p.Spread[b] += variance[j] / p.unit[i]
		if last[b] <= c {
			last[b] = c + 1
			in[b]++
			total++
		}
	}
	// The scores of a class depend only on its own blocks.
	for b := range p.Spread {
		if classes > 1 {
			p.Spread[b] *= total / float64(classes) / float64(n) / in[b]
		}
	}
	return p
}

// Columns returns the number of weights in each block.
func (p *BlockPrior) Columns() []int {
	n := make([]int, len(p.Spread))
	for _, b := range p.block {
		if b >= 0 {
			n[b]++
		}
	}
	return n
}

// Over sets the space of the standard deviations, which come before the parameters of the
// likelihood.
func (p *BlockPrior) Over(s *Space) { p.space = s }

// On returns the same prior of l, which has the same weights.
func (p *BlockPrior) On(l *site.LinearModel) *BlockPrior {
	of := *p
	of.base, of.lin = l, nil
	return &of
}

// Digest implements Prior.
func (p *BlockPrior) Digest(d *save.Digest) {
	p.base.Terms.Digest(d)
	p.base.Digest(d)
	d.Int(p.block...)
	d.Floats(p.unit)
}

// At returns the model at θ. The error wraps ErrParam if θ is out of range.
func (p *BlockPrior) At(theta []float64) (*site.LinearModel, error) {
	sds, terms, err := p.space.At(p.base.Terms, theta)
	if err != nil {
		return nil, err
	}
	lin := *p.base
	d, prec := len(lin.Names), slices.Clone(p.unit)
	for j, b := range p.block {
		if b >= 0 {
			prec[j] /= sds[b] * sds[b]
		}
		if l := prec[j]; !lin.Prior.Grouped(j%d) && (!(l > 0) || math.IsInf(1/l, 0) || math.IsInf(l, 0)) {
			return nil, fmt.Errorf("prior precision of weight %d (%s) is %v: %w", j,
				lin.Names[j%d], l, sentinel.ErrParam)
		}
	}
	lin.Terms, lin.Prior.Prec = terms, prec[:d:d]
	if len(prec) > d {
		lin.Prior.Each = prec
	}
	if p.effects != nil {
		err = p.setEffects(&lin, sds)
	}
	return &lin, err
}

// Tilts returns the likelihoods with each learned parameter slightly above and below its value at
// θ.
func (p *BlockPrior) Tilts(theta []float64) (tilts []rounds.Tilt, err error) {
	at := func(i int, h float64) term.Likelihood {
		t := slices.Clone(theta)
		t[i] += h
		_, terms, e := p.space.At(p.base.Terms, t)
		if e != nil {
			err = e
			return nil
		}
		return terms.Lik
	}
	for _, i := range p.space.likelihoods() {
		tilts = append(tilts, rounds.Tilt{Up: at(i, LikelihoodStep), Down: at(i, -LikelihoodStep),
			Step: LikelihoodStep})
	}
	return tilts, err
}

// SameLikelihood reports whether the likelihood is the same at two θ.
func (p *BlockPrior) SameLikelihood(a, b []float64) bool {
	for _, i := range p.space.likelihoods() {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// ruled gives the terms of lin, which belong to one evaluation, the rule of the space.
func (p *BlockPrior) ruled(lin *site.LinearModel) {
	if p.space.Ruled != nil {
		lin.Terms = p.space.Ruled(lin.Terms)
	}
}

// Covariance implements Prior, of the linear predictors.
func (p *BlockPrior) Covariance(h *parallel.Halt, dst, theta []float64) (*term.Terms, bool) {
	lin, err := p.At(theta)
	if err != nil {
		return nil, false
	}
	k, err := lin.GramUntil(h)
	if err != nil {
		return nil, false
	}
	p.ruled(lin)
	p.lin = lin
	copy(dst, k)
	_, ok := dense.AllFinite(k)
	return lin.Terms, ok
}

// columns returns the coordinate of each weight, or −1 if it has none.
func (p *BlockPrior) columns() []int {
	of, cols := p.coordinates(len(p.Spread)), make([]int, len(p.block))
	for j, b := range p.block {
		if cols[j] = -1; b >= 0 {
			cols[j] = of[b]
		}
	}
	return cols
}

// Slopes implements Prior: ∂K/∂log s_b = 2 Σ_{j∈b} x_jx_jᵀ/λ_j for columns x_j.
func (p *BlockPrior) Slopes(h *parallel.Halt, grad, w, a []float64) {
	x, n, prec := p.lin.X, p.lin.X.Rows, p.lin.Prior.Prec
	of, t, row := p.columns(), make([]float64, x.Cols), make([]float64, n)
	x.AddMulT(t, a, nil)
	for j, m := range t { // x_jᵀa
		if i := of[j]; i >= 0 {
			grad[i] -= m * m / prec[j]
		}
	}
	for r := range n {
		if h.Stopped() {
			return
		}
		for c := range n {
			row[c] = dense.SymmetricAt(w, n, r, c)
		}
		clear(t)
		x.AddMulT(t, row, nil)
		eachOf(x, r, func(j int, v float64) {
			if i := of[j]; i >= 0 {
				grad[i] += v * t[j] / prec[j]
			}
		})
	}
}

// Changes implements Prior.
func (p *BlockPrior) Changes(h *parallel.Halt, u, a []float64) {
	x, nf, prec := p.lin.X, len(p.space.Coords), p.lin.Prior.Prec
	of, t := p.columns(), make([]float64, x.Cols)
	x.AddMulT(t, a, nil)
	for j, m := range t {
		t[j] = 2 * m / prec[j]
	}
	for r := range x.Rows {
		eachOf(x, r, func(j int, v float64) {
			if i := of[j]; i >= 0 {
				u[r*nf+i] += v * t[j]
			}
		})
	}
}

// eachOf calls f with the columns and values of row r of x: all of them, or only the stored ones if
// x is sparse.
func eachOf(x *design.Matrix, r int, f func(j int, v float64)) {
	ind, val := x.Row(r)
	for k, v := range val {
		f(dense.Index(ind, k), v)
	}
}

// Weights is the Model of a GLM that works on its weights. It remembers the sites of the rows or,
// for a diagonal q, the means and precisions of the weights. Its Work counts passes over the rows.
type Weights struct {
	fitter
	prior    *BlockPrior
	diagonal bool
	last     *site.WeightAlgebra // the next fit takes its memory
}

// NewWeights returns the Model of a GLM with the given prior, and a q with a diagonal covariance
// or a full one.
func NewWeights(prior *BlockPrior, diagonal bool) *Weights {
	l := &Weights{fitter: fitter{n: prior.base.X.Rows}, prior: prior, diagonal: diagonal}
	if diagonal {
		l.n = prior.base.X.Cols
	}
	l.fit = l.fitAt
	return l
}

// Digest implements Model.
func (l *Weights) Digest(d *save.Digest) {
	l.prior.Digest(d)
	d.Text(fmt.Sprintf("weights, diagonal %t", l.diagonal))
}

// weightFit is the best q at one θ, to the requested accuracy. The next fit overwrites its rows.
type weightFit struct {
	lin            *site.LinearModel
	f, gap         float64         // −ELBO, and the nats by which it may be too high
	mean, variance []float64       // mean and variances of the weights
	rows           *term.Marginals // the expectations
	cov            gauss.Cov       // V
	logDet         float64         // log|V⁻¹|
}

// fitAt implements fitter.fit.
func (l *Weights) fitAt(theta []float64, slack, most float64) (x search.Point, err error) {
	lin, err := l.prior.At(theta)
	if err != nil {
		return x, errNoValue
	}
	l.prior.ruled(lin)
	fit := l.fitFull
	if l.diagonal {
		fit = l.fitDiagonal
	}
	var q *weightFit
	err = lin.Terms.Sure(func() (err error) {
		q, err = fit(lin, theta, slack)
		return err
	})
	if err != nil {
		return x, err
	}
	if x.F, x.Slack = q.f, q.gap; wanted(x.F, most) {
		l.prior.slopes(&x, q.lin, q.rows, q.mean, q.variance, q.cov, l.workers, theta)
	}
	return x, nil
}

// fitFull finds q with a full covariance, within the given number of nats.
func (l *Weights) fitFull(lin *site.LinearModel, theta []float64, slack float64) (*weightFit,
	error) {
	s, err := site.NewWeightAlgebraIn(l.last, lin, l.workers)
	if l.last = s; err != nil {
		return nil, err
	}
	switch {
	case lin.Terms.KnownSites(s.Gamma, s.A):
	case len(l.past) > 0:
		l.extrapolate(s.Gamma, s.A, s.Eta, theta)
	default:
		if err = l.approach(s); errors.Is(err, sentinel.ErrDiverged) {
			s, err = site.NewWeightAlgebra(lin, l.workers) // all rows together find their way
		}
		if err != nil {
			return nil, err
		}
	}
	var gap float64
	err = s.Settle()
	for range learnSteps {
		if err != nil {
			return nil, err
		}
		l.settle(s, slack)
		if gap = s.Promise(); gap <= slack {
			break
		}
		if _, err = s.Ascend(); err == nil && s.Distance == 0 {
			break
		}
	}
	l.units += float64(s.Batch.Evaluations)
	q := &s.Batch.Cur
	l.remember(theta, q.Gamma, q.A, q.M)
	fit, err := fitOf(s)
	if err != nil {
		return nil, err
	}
	fit.gap = gap
	return fit, l.workers.Halt.Err()
}

// fitOf returns the state of all rows. The error wraps sentinel.ErrNotFinite if its ELBO is lost in
// rounding.
func fitOf(s *site.WeightAlgebra) (*weightFit, error) {
	q, w, d := &s.Batch.Cur, &s.Run, s.Lin.X.Cols
	if q.Wild || !(w.Rounding()+w.Resolution() <= mostDrift) {
		return nil, fmt.Errorf("the ELBO: %w", sentinel.ErrNotFinite)
	}
	w.Invert()
	fit := &weightFit{lin: s.Lin, f: q.Value, mean: w.Mean, variance: make([]float64, d),
		rows: &q.Marginals, cov: &gauss.Full{S: w}, logDet: w.LogDet}
	for j := range fit.variance {
		fit.variance[j] = w.Inv[j*d+j]
	}
	return fit, nil
}

// The random numbers of blocks use the seed of an Env without a source.
const seed1, seed2 = 0x5eed, 0xe1b0

// approach takes the pass of blocks that a fit begins with, if it does.
func (l *Weights) approach(s *site.WeightAlgebra) error {
	plan := s.Plan()
	if plan.Sampler == nil {
		return nil
	}
	l.units++
	for batch := range plan.Sampler.Batches(s.N, plan.Batch, rand.New(rand.NewPCG(seed1, seed2))) {
		if len(batch) == s.N {
			return nil
		}
		if err := s.Block(batch); err != nil {
			return err
		}
	}
	return nil
}

// settle moves the mean of s with V fixed, which costs far less than a step, as long as the
// predicted gain exceeds a small part of the given number of nats.
func (l *Weights) settle(s *site.WeightAlgebra, slack float64) {
	s.Blocks.Mover.X, s.Blocks.Mover.Index = s.Lin.X, nil
	for range site.InnerNewtons {
		q := &s.Batch.Cur
		if mean, _ := s.Blocks.Promise(&q.Marginals, &s.Mover.Cur); q.Wild || !(mean > meanPart*slack) {
			return
		}
		value := q.Value
		if s.MeanStep(); !(s.Batch.Cur.Value < value) {
			return
		}
	}
}

// fitDiagonal finds q with a diagonal covariance, within the given number of nats.
func (l *Weights) fitDiagonal(lin *site.LinearModel, theta []float64, slack float64) (*weightFit,
	error) {
	s, d := site.NewFactoredAlgebra(lin, 0), len(lin.Names)
	s.Use(l.workers)
	if at := l.foreseen(theta); at != nil {
		s.StartAt(at.gamma, at.a)
		if s.Renewed() != nil || math.IsInf(s.Cur.Elbo, 0) {
			s = site.NewFactoredAlgebra(lin, 0)
			s.Use(l.workers)
		}
	}
	var gap float64
	err := s.Renewed()
	for range diagonalSteps {
		if err == nil {
			err = s.Directed()
		}
		if err != nil {
			return nil, err
		}
		if gap = s.Promise + s.Unseen; gap <= slack && s.Beyond == 0 {
			break
		}
		l.units++
		if _, err = s.Ascend(); err == nil && s.Distance == 0 {
			break
		}
	}
	if s.Cur.Wild {
		return nil, fmt.Errorf("the ELBO: %w", sentinel.ErrNotFinite)
	}
	prec, variance := s.Fam.(*site.DiagFamily).Cur, make(gauss.Diagonal, d)
	for j, p := range prec {
		variance[j] = 1 / p
	}
	s.Cur.Gamma = s.Cur.Tg
	fit := &weightFit{lin: lin, f: -s.Cur.Elbo, gap: gap, mean: s.Cur.Mean, variance: variance,
		cov: variance, rows: &s.Cur.Marginals}
	l.remember(theta, prec, s.Cur.Mean, make([]float64, d))
	return fit, nil
}

// diagonalSteps bounds the steps of a diagonal q at one θ. They are cheap, so the bound is high.
const diagonalSteps = 300

// slopes stores the gradient and the average information in x. q holds the expectations of the rows.
// The weights have the given mean, the variances where their prior is learned, and the covariance V.
// The information is ½(D − rᵀVr). For a parameter of the likelihood, r = −XᵀΓu with the column u that
// Latent has for it, and D = uᵀΓu between such parameters. For a block b of weights, r is 2Λ0E_b m and
// D is 4mᵀE_bΛ0E_b m. D is 0 elsewhere. Negative γ are ignored.
func (p *BlockPrior) slopes(x *search.Point, lin *site.LinearModel, q *term.Marginals, mean,
	variance []float64, cov gauss.Cov, c term.Crew, theta []float64) {
	r, own := p.scaleSlopes(x, lin.Prior.Prec, mean, variance)
	nf := len(p.space.Coords)
	least := make([]float64, nf)
	var u []float64
	for _, i := range p.space.likelihoods() {
		if u == nil {
			u = make([]float64, len(q.M)*nf)
		}
		x.Grad[i], least[i] = p.space.likelihoodSlope(u[i:], lin.Terms, q, c, theta, i)
	}
	if u != nil {
		p.likelihoodInfo(r, own, u, lin.X, q)
	}
	information(x, r, own, least, cov)
}

// Gradient stores the gradient and the average information in x, at q with the given mean and
// variances of the weights, and their covariance cov, under a prior with precisions prec. lik holds the
// sums over the rows for the learned parameters of the likelihood. See slopes.
func (p *BlockPrior) Gradient(x *search.Point, prec, mean, variance []float64, cov gauss.Cov,
	lik []rounds.Tilted) {
	r, own := p.scaleSlopes(x, prec, mean, variance)
	of, least := p.space.likelihoods(), make([]float64, len(x.Grad))
	shrink := make([]float64, len(lik))
	for k, at := range of {
		x.Grad[at] = -lik[k].Slope
		if shrink[k] = 1; !p.space.Gaussian {
			least[at] = 0.5 * lik[k].Curve
			shrink[k] = shrunk(lik[k].Shared[k], lik[k].Curve)
		}
		floats.ScaleTo(r[at], shrink[k], lik[k].Pull)
		for i, to := range of[:k+1] {
			own.SetSym(at, to, shrink[k]*shrink[i]*lik[k].Shared[i])
		}
	}
	information(x, r, own, least, cov)
}

// likelihoods returns the coordinates that are parameters of the likelihood.
func (s *Space) likelihoods() (of []int) {
	for i := range s.Coords {
		if s.Coords[i].Likelihood {
			of = append(of, i)
		}
	}
	return of
}

// scaleSlopes stores the gradient of the blocks in x, and returns r and D of its information; see
// slopes.
func (p *BlockPrior) scaleSlopes(x *search.Point, prec, mean, variance []float64) (r [][]float64,
	own *mat.SymDense) {
	nf := len(p.space.Coords)
	x.Grad, x.Info = make([]float64, nf), mat.NewSymDense(nf, nil)
	r, own = p.pull(prec, mean), mat.NewSymDense(nf, nil)
	for j, i := range p.columns() {
		if i < 0 {
			continue
		}
		l, m := prec[j], mean[j]
		x.Grad[i] += 1 - l*(m*m+variance[j])
		own.SetSym(i, i, own.At(i, i)+4*l*m*m)
	}
	return r, own
}

// information stores ½(D − rᵀVr), at least of least, in x, for the covariance V. r has a column for
// each coordinate.
func information(x *search.Point, r [][]float64, own *mat.SymDense, least []float64, cov gauss.Cov) {
	for i, ri := range r {
		vr := make([]float64, len(ri))
		cov.Mul(vr, ri)
		for j, rj := range r[:i+1] {
			x.Info.SetSym(i, j, 0.5*(own.At(i, j)-floats.Dot(vr, rj)))
		}
		x.Info.SetSym(i, i, max(x.Info.At(i, i), least[i], 0))
	}
}

// likelihoodInfo adds r and D of the parameters of the likelihood, whose columns are in u, to r
// and own.
func (p *BlockPrior) likelihoodInfo(r [][]float64, own *mat.SymDense, u []float64, x *design.Matrix,
	q *term.Marginals) {
	n, nf := len(q.M), len(p.space.Coords)
	gu := make([]float64, n)
	of := p.space.likelihoods()
	for k, i := range of {
		for a, g := range q.Tg {
			gu[a] = max(g, 0) * u[a*nf+i]
		}
		for _, j := range of[:k+1] {
			own.SetSym(i, j, blas64.Dot(blas64.Vector{N: n, Data: u[j:], Inc: nf},
				blas64.Vector{N: n, Data: gu, Inc: 1}))
		}
		floats.Scale(-1, gu)
		x.AddMulT(r[i], gu, nil)
	}
}
