package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/variate"
	"gonum.org/v1/gonum/floats"
)

// ScoreFunction estimates ∇_λ E_q[l] = E_q[l(z) ∇_λ log q(z|λ)] from draws of q (also called
// REINFORCE or the likelihood-ratio method; Glynn, 1990; Williams, 1992; Ranganath et al., 2014).
// It needs only LogProb and applies to every family. All terms of a batch share the draws.
type ScoreFunction struct {
	// Samples is the number of draws. Zero means 100 for a Gaussian and 400 for an Exp. In many
	// dimensions it means as many as the baseline Quadratic needs, up to 4096. A single draw
	// requires NoBaseline.
	Samples int
	// Baseline is the control variate that reduces the variance.
	Baseline Baseline
}

func (s ScoreFunction) samples() int {
	if s.Samples == 0 {
		return scoreDraws
	}
	return s.Samples
}

// drawsOf implements drawing.
func (s ScoreFunction) drawsOf(q Dist, _ bool) int {
	if e, ok := q.(*Exp); ok && s.Samples == 0 && s.Baseline == Quadratic {
		return max(expDraws, min(mostDraws, variate.Draws*(1+e.NumParams())))
	}
	g, ok := q.(*Gaussian)
	if s.Samples != 0 || s.Baseline != Quadratic || !ok {
		return s.samples()
	}
	if n := variate.Draws * variate.Coefficients(q.Dim(), true); n <= mostDraws && !g.isDiagonal() {
		return max(scoreDraws, n)
	}
	if n := variate.Draws * variate.Coefficients(q.Dim(), false); n <= mostDraws {
		return max(scoreDraws, n)
	}
	return scoreDraws
}

const (
	scoreDraws = 100
	// expDraws is that for an Exp: with a noise of half a nat a draw, as that of a Beta far from
	// conjugate, a step is off by less than objectiveGoal.
	expDraws  = 400
	mostDraws = 4096
)

// Setup implements Estimator. The error wraps ErrParam if there are too few samples, and
// ErrNoEstimator if q is a Point, which has no score.
func (s ScoreFunction) Setup(q Dist, _ Integrand) (bool, error) {
	if _, ok := q.(*Point); ok {
		return false, fmt.Errorf("pgsvi: ScoreFunction needs a density, and a Point has none; write f as a Smooth: %w", ErrNoEstimator)
	}
	if err := s.validate(); err != nil {
		return false, err
	}
	return false, checkSamples(s.drawsOf(q, false), q.Dim())
}

// SetupSites implements SiteEstimator. The error is that of the parameters.
func (s ScoreFunction) SetupSites(Likelihood) (bool, error) { return false, s.validate() }

// validate returns an error wrapping ErrParam if there are too few samples or
// Baseline is unknown.
func (s ScoreFunction) validate() error {
	least := 1
	if s.Baseline != NoBaseline {
		least = 2
	}
	if s.samples() < least || s.Baseline < Quadratic || s.Baseline > NoBaseline {
		return fmt.Errorf("pgsvi: %+v needs Samples >= %d and a known Baseline: %w", s, least, ErrParam)
	}
	return checkSamples(s.samples(), 1)
}

// center turns values of the integrand into weights of the score, such that their mean with the
// scores is the estimate. It returns the mean of the values.
func (s ScoreFunction) center(values []float64) (mean float64) {
	mean = floats.Sum(values) / float64(len(values))
	if s.Baseline != NoBaseline {
		// v_s − mean of the others = S/(S−1)·(v_s − mean).
		c := float64(len(values)) / float64(len(values)-1)
		for i, v := range values {
			values[i] = c * (v - mean)
		}
	}
	return mean
}

// Grad implements Estimator. With the baseline Quadratic the variance treats the fitted
// coefficients as constants, which is accurate for many draws.
func (s ScoreFunction) Grad(ctx context.Context, env *Env, dst, variance []float64, q Dist, l Integrand) (float64, error) {
	if _, err := s.Setup(q, l); err != nil {
		return math.NaN(), err
	}
	if e, ok := q.(*Exp); ok {
		return s.expScore(ctx, env, dst, variance, e, l)
	}
	draws := drawSamples(q, s.drawsOf(q, false), env.rng())
	values := make([]float64, len(draws.z))
	if err := logProbs(ctx, env, values, l, draws.z); err != nil {
		return math.NaN(), err
	}
	n := formOf(q)
	isNormal := n != nil
	var fit variate.Quadratic
	fit.Ctx = ctx
	var mean float64
	fitted := false
	if s.Baseline == Quadratic && isNormal {
		fitted = fit.Fit(values, draws.eps, !q.(*Gaussian).isDiagonal())
	}
	if fitted {
		mean = floats.Sum(values)/float64(len(values)) + fit.Coef[0]
	} else {
		mean = s.center(values)
	}
	if variance != nil || !isNormal {
		acc := variate.NewMoments(dst, variance)
		g := make([]float64, len(dst))
		for i, z := range draws.z {
			if ctx.Err() != nil {
				return math.NaN(), context.Cause(ctx)
			}
			q.Score(g, z)
			floats.Scale(values[i], g)
			acc.Add(g)
		}
		acc.Finish()
		if fitted {
			gm, gv := make([]float64, n.Dim()), make([]float64, n.NumGradV())
			fit.AddGrad(gm, gv, n)
			floats.Add(dst, n.FromMomentGrad(nil, gm, gv))
		}
		return mean, nil
	}
	// In (m, V) the score is u = V⁻¹(z − m) and ½(uuᵀ − V⁻¹).
	gm, gv, u := make([]float64, n.Dim()), make([]float64, n.NumGradV()), make([]float64, n.Dim())
	var sum float64
	for i, eps := range draws.eps {
		if ctx.Err() != nil {
			return math.NaN(), context.Cause(ctx)
		}
		w := values[i] / float64(len(values))
		sum += w
		n.Standardize(u, eps)
		floats.AddScaled(gm, w, u)
		n.AddOuter(gv, 0.5*w, u, u)
	}
	n.AddPrecision(gv, -0.5*sum)
	if fitted {
		fit.AddGrad(gm, gv, n)
	}
	n.FromMomentGrad(dst, gm, gv)
	return mean, nil
}

// EstimateSites implements SiteEstimator.
func (s ScoreFunction) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error {
	eps := getDraws(s.samples(), rng)
	defer putDraws(eps)
	n := len(eps.x)
	values, fit := eps.values, &eps.fit
	quadratic := s.Baseline == Quadratic && n >= 12
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
			e[i] = s.center(values)
		}
		var a, b float64
		for j, x := range eps.x {
			a += values[j] * x
			b += values[j] * (x*x - 1)
		}
		d1[i], d2[i] = (a/float64(n)+c1)/sd, (b/float64(n)+c2)/v[i]
	}
	return nil
}

// Pathwise estimates gradients by differentiating along draws of q (reparameterisation trick).
// For a Gaussian q it uses the identities of Bonnet (1964) and Price (1958),
//
//	∇_m E_q[l] = E_q[∇l(z)],   ∇_V E_q[l] = ½ E_q[∇²l(z)].
//
// It needs far fewer draws than ScoreFunction. The Hessian is used for a SiteIntegrand whose
// likelihood is Differentiable. For other integrands ∇l(z)(V⁻¹(z − m))ᵀ replaces it, which has
// the same expectation. The control variate is then a linear function of the draw, if there are
// 4(1+d) draws, and otherwise the mean of the gradients at the other draws.
type Pathwise struct {
	// Samples is the number of draws. Zero means 20 or, without a Hessian, at least 4(1+d), where
	// d is the dimension or, for an Exp, NumParams.
	Samples int
}

func (p Pathwise) samples() int {
	if p.Samples == 0 {
		return 20
	}
	return p.Samples
}

// drawsOf implements drawing: without a Hessian as many as a linear control variate needs.
func (p Pathwise) drawsOf(q Dist, sites bool) int {
	if p.Samples != 0 || formOf(q) != nil && sites {
		return p.samples()
	}
	features := q.Dim()
	if pathOf(q) != nil {
		features = q.NumParams()
	}
	return max(p.samples(), min(mostDraws, variate.Draws*(1+features)))
}

// pathOf returns the Family of q if it has paths, or nil.
func pathOf(q Dist) PathFamily {
	if e, ok := q.(*Exp); ok {
		f, _ := e.at.F.(PathFamily)
		return f
	}
	return nil
}

// Setup implements Estimator. The error wraps ErrNoEstimator, ErrParam or ErrMemory.
func (p Pathwise) Setup(q Dist, l Integrand) (bool, error) {
	if err := p.validate(); err != nil {
		return false, err
	}
	if err := checkSamples(p.drawsOf(q, false), q.Dim()); err != nil {
		return false, err
	}
	path := pathOf(q)
	if formOf(q) == nil && path == nil {
		return false, fmt.Errorf("pgsvi: Pathwise needs a Gaussian q or one whose Family is a PathFamily, not %s; use ScoreFunction: %w", distName(q), ErrNoEstimator)
	}
	if s, ok := l.(SiteIntegrand); ok {
		return p.SetupSites(s.Likelihood())
	}
	if l.GradLogProb(make([]float64, l.Dim()), q.Rand(nil, rand.New(rand.NewPCG(1, 1)))) {
		return false, nil
	}
	return false, fmt.Errorf("pgsvi: Pathwise needs the gradient of the log-likelihood: set LogLik.Grad, or use ScoreFunction: %w", ErrNoEstimator)
}

// SetupSites implements SiteEstimator. The error wraps ErrNoEstimator unless lik is Differentiable.
func (p Pathwise) SetupSites(lik Likelihood) (bool, error) {
	if _, ok := lik.(Differentiable); !ok {
		return false, fmt.Errorf("pgsvi: Pathwise needs the derivatives of %T: implement Differentiable, or use Exact or ScoreFunction: %w", lik, ErrNoEstimator)
	}
	return false, p.validate()
}

// validate returns an error wrapping ErrParam if Samples is negative.
func (p Pathwise) validate() error {
	if p.Samples < 0 {
		return fmt.Errorf("pgsvi: Pathwise.Samples is %d: %w", p.Samples, ErrParam)
	}
	return checkSamples(p.samples(), 1)
}

// sampleVectors is the least that a draw takes: it, the standard normal that it came from, and a
// value.
const sampleVectors = 3

// checkSamples returns an error, wrapping ErrMemory, if n draws of d numbers each take more memory
// than they may.
func checkSamples(n, d int) error {
	return checkMemory(0, memory.Bytes(sampleVectors, n, d), fmt.Sprintf("an estimate from %d draws of %d dimensions", n, d), "take fewer Samples, or raise the limit (GOMEMLIMIT)")
}

// Grad implements Estimator.
func (p Pathwise) Grad(ctx context.Context, env *Env, dst, variance []float64, q Dist, l Integrand) (float64, error) {
	if _, err := p.Setup(q, l); err != nil {
		return math.NaN(), err
	}
	if f := pathOf(q); f != nil {
		return p.expPath(ctx, env, dst, variance, q.(*Exp), f, l)
	}
	n := formOf(q)
	sites, _ := l.(SiteIntegrand)
	draws := drawSamples(q, p.drawsOf(q, sites != nil), env.rng())
	values := make([]float64, len(draws.z))
	if err := logProbs(ctx, env, values, l, draws.z); err != nil {
		return math.NaN(), err
	}
	gm, gv, u := make([]float64, n.Dim()), make([]float64, n.NumGradV()), make([]float64, n.Dim())
	var acc *variate.Moments
	g := dst
	if variance != nil {
		acc, g = variate.NewMoments(dst, variance), make([]float64, len(dst))
	}
	// In ∇_V the gradients are taken less the mean of those of the other draws, which is ∇l(z) −
	// mean times S/(S−1): where the gradient is large against what it changes by, nearly all of the
	// noise goes. Where there are enough draws the gradients are less a linear function of the
	// draw, whose part in the gradients is known.
	var grads [][]float64
	dl, mean, others := draws.scratch, make([]float64, n.Dim()), 1.0
	if sites == nil {
		grads = dense.NewRows(len(draws.z), n.Dim())
		for i, z := range draws.z {
			if l.GradLogProb(grads[i], z); ctx.Err() != nil {
				return math.NaN(), context.Cause(ctx)
			}
			if _, ok := dense.AllFinite(grads[i]); !ok {
				return math.NaN(), notFinite(l, z, values[i], true)
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
			if ok := addSiteDerivs(ctx, n, gm, gv, w, sites, z); ctx.Err() != nil {
				return math.NaN(), context.Cause(ctx)
			} else if !ok {
				return math.NaN(), notFinite(l, z, values[i], true)
			}
		} else {
			n.Standardize(u, draws.eps[i])
			floats.AddScaled(gm, w, grads[i])
			floats.SubTo(dl, grads[i], mean)
			n.AddOuter(gv, 0.25*w*others, dl, u)
			n.AddOuter(gv, 0.25*w*others, u, dl)
		}
		if acc != nil {
			acc.Add(n.FromMomentGrad(g, gm, gv))
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
		e := make([]float64, n.Dim())
		for k, b := range slope[1:] {
			clear(e)
			e[k] = 1
			n.Standardize(u, e)
			n.AddOuter(gv, 0.25, b, u)
			n.AddOuter(gv, 0.25, u, b)
		}
	}
	if acc == nil {
		n.FromMomentGrad(dst, gm, gv)
	} else if slope != nil {
		floats.Add(dst, n.FromMomentGrad(nil, gm, gv))
	}
	return floats.Sum(values) / float64(len(values)), nil
}

// addSiteDerivs adds w times the gradient and half the Hessian of the sites at z. It reports
// whether they are finite, and false where ctx is done.
func addSiteDerivs(ctx context.Context, n normal.Form, gm, gv []float64, w float64, s SiteIntegrand, z []float64) bool {
	lik := s.Likelihood().(Differentiable)
	var i int
	defer parallel.At(&i, describeSite(s))
	for i = range s.Len() {
		if i%ctxEvery == 0 && ctx.Err() != nil {
			return false
		}
		_, x, y, weight := s.Site(i)
		d1, d2 := lik.Derivs(y, floats.Dot(x, z))
		if sum := d1 + d2; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return false
		}
		floats.AddScaled(gm, w*weight*d1, x)
		n.AddOuter(gv, 0.5*w*weight*d2, x, x)
	}
	return true
}

// EstimateSites implements SiteEstimator. The value is the mean of LogProb over the draws.
func (p Pathwise) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error {
	d, ok := lik.(Differentiable)
	if !ok {
		_, err := p.SetupSites(lik)
		return err
	}
	eps := getDraws(p.samples(), rng)
	defer putDraws(eps)
	n := float64(len(eps.x))
	var i int
	defer parallel.At(&i, nil)
	for i = range y {
		sd := math.Sqrt(v[i])
		var l, a, b float64
		for _, x := range eps.x {
			eta := m[i] + sd*x
			g, h := d.Derivs(y[i], eta)
			l += lik.LogProb(y[i], eta)
			a += g
			b += h
		}
		e[i], d1[i], d2[i] = l/n, a/n, b/n
	}
	return nil
}

// sampleSet holds draws z from q and, for a Gaussian, the standard normal ε they came from, or for
// an Exp T(z).
type sampleSet struct {
	z, eps  [][]float64
	t       [][]float64
	scratch []float64
}

func drawSamples(q Dist, n int, rng *rand.Rand) sampleSet {
	d := q.Dim()
	s := sampleSet{z: dense.NewRows(n, d), scratch: make([]float64, d)}
	if e, ok := q.(*Exp); ok {
		s.t = dense.NewRows(n, e.NumParams())
		for i, z := range s.z {
			e.at.F.Rand(z, s.t[i], e.at.Eta, rng)
		}
		return s
	}
	g := formOf(q)
	if g == nil {
		for _, z := range s.z {
			q.Rand(z, rng)
		}
		return s
	}
	s.eps = dense.NewRows(n, d)
	for i, eps := range s.eps {
		for j := range eps {
			eps[j] = rng.NormFloat64()
		}
		copy(s.z[i], eps)
		g.Transform(s.z[i])
	}
	return s
}

// siteDraws are standard normal draws shared by the sites of a batch.
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

// logProbs stores l(z) for each z. The workers of env share them; each value is computed by one of
// them alone, so that the result does not depend on their number. It ends early, with its cause,
// when ctx is done. A value that is not finite is an error wrapping ErrNotFinite that names the
// term and z.
func logProbs(ctx context.Context, env *Env, dst []float64, l Integrand, zs [][]float64) error {
	if workers := env.Workers(); workers > 1 {
		parallel.For(len(zs), 1, workers, func(_, i, _ int) {
			if ctx.Err() == nil {
				dst[i] = l.LogProb(zs[i])
			}
		})
	} else {
		for i, z := range zs {
			if ctx.Err() != nil {
				break
			}
			dst[i] = l.LogProb(z)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if i, ok := dense.AllFinite(dst); !ok {
		return notFinite(l, zs[i], dst[i], false)
	}
	return nil
}

// valueDraws returns the number of draws of monteCarloValue in d dimensions: as many as a quadratic
// control variate needs, within reason, and at least n.
func valueDraws(d, n int) int {
	return max(n, min(variate.Draws*variate.Coefficients(d, true), mostDraws))
}

// monteCarloValue returns an estimate of E_q[l] and its standard error, from at
// least n draws, less a quadratic control variate where q is Gaussian.
func monteCarloValue(ctx context.Context, env *Env, q Dist, l Integrand, n int) (mean, stderr float64, err error) {
	n = valueDraws(q.Dim(), n)
	draws := drawSamples(q, n, env.rng())
	values := make([]float64, n)
	if err := logProbs(ctx, env, values, l, draws.z); err != nil {
		return math.NaN(), math.NaN(), err
	}
	var offset float64
	if formOf(q) != nil {
		var fit variate.Quadratic
		fit.Ctx = ctx
		if fit.Fit(values, draws.eps, true) {
			offset = fit.Coef[0]
		}
	} else if e, ok := q.(*Exp); ok {
		var fit variate.Quadratic
		fit.Ctx = ctx
		if fit.FitStat(values, draws.t, e.at.Mu) {
			offset = fit.Coef[0]
		}
	}
	if ctx.Err() != nil {
		return math.NaN(), math.NaN(), context.Cause(ctx)
	}
	mean = floats.Sum(values) / float64(n)
	var ss float64
	for _, v := range values {
		ss += (v - mean) * (v - mean)
	}
	return offset + mean, math.Sqrt(ss / float64(n) / float64(n-1)), nil
}

// Baseline is what ScoreFunction subtracts from the values of the integrand to reduce the
// variance. The estimate stays unbiased with each of them.
type Baseline int

const (
	// Quadratic subtracts a quadratic function of the draw, or for an Exp a linear function of
	// the statistics T(z), and adds the exact gradient of its expectation. The function is fitted
	// by least squares to the other half of the draws. It removes most of the variance if the
	// posterior is close to Gaussian. It is a control variate (Ranganath et al., 2014; Salimans
	// and Knowles, 2013, use a similar regression).
	//
	// It needs 4 draws for each coefficient: 1 + d + d(d+1)/2 for a full Gaussian, 1 + 2d for a
	// diagonal one, 1 + NumParams for an Exp. With fewer draws it is LeaveOneOut.
	Quadratic Baseline = iota
	// LeaveOneOut subtracts from each value the mean of the others (Kool et al., 2019).
	LeaveOneOut
	// NoBaseline subtracts nothing: the estimator of the paper.
	NoBaseline
)

// expScore is ScoreFunction.Grad for an exponential family:
//
//	∇_μ E_q[l] = c + F⁻¹ Cov(T, l − cᵀT),
//
// with the regression of l on T(z) for c, each half of the draws with the coefficients of the
// other, or c = 0.
func (s ScoreFunction) expScore(ctx context.Context, env *Env, dst, variance []float64, q *Exp, l Integrand) (float64, error) {
	draws := drawSamples(q, s.drawsOf(q, false), env.rng())
	values := make([]float64, len(draws.z))
	if err := logProbs(ctx, env, values, l, draws.z); err != nil {
		return math.NaN(), err
	}
	var fit variate.Quadratic
	var mean float64
	fitted := s.Baseline == Quadratic && fit.FitStat(values, draws.t, q.at.Mu)
	if fitted {
		mean = floats.Sum(values)/float64(len(values)) + fit.Coef[0]
	} else {
		mean = s.center(values)
	}
	acc := newExpMean(q, dst, variance)
	for i, t := range draws.t {
		floats.SubTo(acc.g, t, q.at.Mu)
		floats.Scale(values[i], acc.g)
		acc.add()
	}
	acc.finish(&fit, fitted)
	return mean, nil
}

// expMean is the mean of gradients with respect to η, and its variance where that is asked for.
type expMean struct {
	q   *Exp
	dst []float64
	g   []float64 // the next
	acc *variate.Moments
	n   float64
}

func newExpMean(q *Exp, dst, variance []float64) *expMean {
	a := &expMean{q: q, dst: dst, g: make([]float64, len(dst))}
	clear(dst)
	if variance != nil {
		a.acc = variate.NewMoments(dst, variance)
	}
	return a
}

// add takes g in.
func (a *expMean) add() {
	if a.acc != nil {
		a.acc.Add(a.q.FromNaturalGrad(a.g, a.g))
		return
	}
	a.n++
	floats.Add(a.dst, a.g)
}

// finish leaves the mean in dst, in terms of λ, and adds the gradient with respect to μ of what was
// fitted, if it was.
func (a *expMean) finish(fit *variate.Quadratic, fitted bool) {
	if a.acc != nil {
		a.acc.Finish()
	} else {
		floats.Scale(1/a.n, a.dst)
		a.q.FromNaturalGrad(a.dst, a.dst)
	}
	if fitted {
		floats.Add(a.dst, a.q.FromMeanGrad(a.g, fit.Coef[1:]))
	}
}

// expPath is Pathwise.Grad for a PathFamily:
//
//	∇_η E_q[l] = E_q[(∂z/∂η)ᵀ∇(l − cᵀT)(z)] + Fc,
//
// with the c of expScore.
func (p Pathwise) expPath(ctx context.Context, env *Env, dst, variance []float64, q *Exp, f PathFamily, l Integrand) (float64, error) {
	n, rng := p.drawsOf(q, false), env.rng()
	z, t, aux := dense.NewRows(n, q.Dim()), dense.NewRows(n, q.NumParams()), dense.NewRows(n, f.AuxLen())
	for i := range n {
		f.RandPath(z[i], t[i], aux[i], q.at.Eta, rng)
	}
	values := make([]float64, n)
	if err := logProbs(ctx, env, values, l, z); err != nil {
		return math.NaN(), err
	}
	mean := floats.Sum(values) / float64(n)
	var fit variate.Quadratic
	fitted := fit.FitStat(append([]float64(nil), values...), t, q.at.Mu)
	acc := newExpMean(q, dst, variance)
	dl, c := make([]float64, q.Dim()), make([]float64, q.NumParams())
	for i := range n {
		if ctx.Err() != nil {
			return math.NaN(), context.Cause(ctx)
		}
		l.GradLogProb(dl, z[i])
		if _, ok := dense.AllFinite(dl); !ok {
			return math.NaN(), notFinite(l, z[i], values[i], true)
		}
		if fitted {
			floats.ScaleTo(c, -1, fit.Half[1-i%2][1:])
		}
		clear(acc.g)
		f.PathGrad(acc.g, dl, c, z[i], aux[i], q.at.Eta)
		acc.add()
	}
	acc.finish(&fit, fitted)
	return mean, nil
}
