package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/loo"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/psis"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// LOO is the result of leave-one-out cross-validation, computed without refitting the model. It
// says how well each datum is predicted from all others, and how much it influences the
// posterior. It has an element for each datum: for a GLM, for each row of positive weight.
// CompareLOO compares models by it; print it to see ELPD, its errors and the worst data.
//
// For a Gaussian q and terms that depend on one number η_n each, the site of datum n is removed
// from the marginal N(m_n, v_n) of q. The site has precision γ_n = −∂²E/∂m² and slope a_n = ∂E/∂m
// about the mean. The rest is the cavity,
//
//	v_−n = v_n/(1 − γ_n v_n),   m_−n = m_n − v_−n a_n,
//	log p(y_n|y_−n) ≈ log ∫ p(y_n|η) N(η|m_−n, v_−n) dη
//
// (Opper and Winther 2000; Vehtari, Mononen, Tolvanen, Sivula and Winther 2016). With Gaussian
// noise this is exact. Otherwise it ignores that the sites of the other data would change without
// datum n. For the most influential data two rounds of their fixed-point equations account for
// this. PointErr is the size of that correction: moves by the mean, by the variance and of the
// second round add up and do not cancel. It usually exceeds the remaining error several times.
// Exceptions are data that move q by more than a nat, and likelihoods that are not log-concave,
// because a fit without the datum may end at another optimum. For all other data PointErr is in
// proportion to their influence. None of this includes the difference between q and the
// posterior; PSIS checks that.
//
// A datum of weight w > 1 counts as w data, of which one is left out. A datum of weight below 1
// is left out as a whole. The mean of a diagonal or low-rank q moves by (Λ0 + XᵀΓX)⁻¹, as in a
// fit, not by V. A low-rank fit may find other factors without a datum, so PointErr and Err
// include a change of v_−n by the largest factor between any v_n and its value under that matrix.
//
// For any other log-likelihood or q, PSIS weights draws of q towards the posterior without datum
// n, and KHat says whether the weights are reliable (Vehtari, Gelman and Gabry 2017; Magnusson,
// Andersen, Jonasson and Vehtari 2019). PointErr is then the Monte Carlo error.
type LOO struct {
	// ELPD is the expected log predictive density Σ_n w_n log p(y_n|y_−n), in nats: an estimate
	// of the score on as many new data. SE is its standard error over the data, √(N Var_n), +Inf
	// for a single datum. To compare two models use CompareLOO: their difference has a smaller
	// standard error.
	ELPD, SE float64
	// Err estimates the error of ELPD for this model and q, in nats. It is 0 if only rounding
	// remains.
	Err float64
	// Pointwise is log p(y_n|y_−n) and PointErr the estimate of its error.
	Pointwise, PointErr []float64
	// KHat is k̂ of the weights towards the posterior without each datum, and Limit its largest
	// reliable value. KHat is nil if no draws were used.
	KHat  []float64
	Limit float64
	// Leverage is γ_n v_n, the part of the precision of η_n that comes from datum n itself. It is
	// the diagonal of the hat matrix of weighted least squares (Hoaglin and Welsch 1978; Pregibon
	// 1981) with the expected weights γ, where v_n is x_nᵀ(Λ0 + XᵀΓX)⁻¹x_n. At a leverage near 1
	// nothing else determines η_n. Under a likelihood that is not log-concave it may be negative.
	// From draws it is Var[log p(y_n|z)], equal to first order (Gelman, Hwang and Vehtari 2014).
	Leverage []float64
	// Parameters is the effective number of parameters, Σ_n Leverage_n (Spiegelhalter, Best,
	// Carlin and van der Linde 2002).
	Parameters float64
	// Influence is KL(q‖q_−n), how far datum n moves the posterior, in nats. It equals the KL of
	// the marginals of η_n, as q and q_−n differ in a factor of η_n alone. No probability of any
	// event changes by more than √(Influence/2) (Pinsker).
	Influence []float64
	// Unresolved lists, in increasing order, the data that cannot be left out: without them the
	// precision of η_n is 0 to within rounding or the accuracy of q. An example is the only row
	// with a value in some column, under a wide prior. Their Leverage is nearly 1. They count in
	// Parameters only, so that ELPD is that of the other data. Their PointErr is +Inf, their
	// Pointwise and Influence are 0, and Cavity has the marginals of q for them.
	Unresolved []int
	// Cavity predicts each datum from the others, in the order of the data. It is nil if draws
	// were used.
	Cavity *Prediction
	// Name names the model in what CompareLOO prints. It is for the caller to set.
	Name string

	y, weight []float64 // of the data, read only; nil where not known, and for weights of 1
}

// Predictions returns the out-of-sample predictions: each datum predicted from all others, as by
// cross-validation with as many folds as data. It is Cavity, and nil if draws were used.
func (l *LOO) Predictions() *Prediction { return l.Cavity }

// String summarises the result in words.
func (l *LOO) String() string {
	left := ""
	if n := len(l.Unresolved); n > 0 {
		left = fmt.Sprintf(", excluding %d that cannot be left out", n)
	}
	return fmt.Sprintf("elpd %.6g ± %.2g over %d data%s, error %.2g; %.3g effective parameters",
		l.ELPD, l.SE, len(l.Pointwise)-len(l.Unresolved), left, l.Err, l.Parameters)
}

// looDraws leaves out terms of a log-likelihood by weights of draws of q.
func (j *joint) looDraws(ctx context.Context, env *Env, q Dist, draws int) (*LOO, error) {
	n := j.f.ll.Len()
	samplers := func() loo.Sampler {
		terms, r := j.eachTerm(ctx), make([]float64, 1)
		var logp []float64 // of the terms, at the draw
		draw := distSampler(q, j.prior, func() func([]float64) float64 {
			return func(z []float64) (sum float64) {
				var t int
				defer parallel.At(&t, func(i int) string { return fmt.Sprintf("term %d", i) })
				for t = range n {
					logp[t] = terms(t, z)
					sum += logp[t]
				}
				return sum
			}
		})()
		return func(z, store []float64, rng *rand.Rand) (float64, error) {
			logp = store
			if err := draw(z, r, rng); err != nil {
				return 0, err
			}
			if math.IsInf(r[0], -1) {
				return 0, fmt.Errorf("p(y, z) is 0 at a draw of q, z = %s: %w",
					estimate.Abridged(z), ErrNotFinite)
			}
			return r[0], nil
		}
	}
	r, err := loo.Draws(ctx, drawsOf(env, q.Dim(), draws), n, samplers)
	return newLOO(r, nil, err)
}

// newLOO returns what r says, with cavities of terms t where there are such, unless there is an
// error.
func newLOO(r *loo.Result, t *term.Terms, err error) (*LOO, error) {
	if err != nil {
		return nil, prefixed(err)
	}
	l := &LOO{
		ELPD: r.ELPD, SE: r.SE, Err: r.Err, Pointwise: r.Pointwise, PointErr: r.PointErr,
		KHat: r.KHat, Limit: r.Limit, Leverage: r.Leverage, Parameters: r.Parameters,
		Influence: r.Influence, Unresolved: r.Unresolved,
	}
	if t != nil {
		l.Cavity = &Prediction{lik: likOf(t), m: r.M, v: r.V}
		l.y, l.weight = t.Y, t.Weight
	}
	return l, nil
}

// cavityLikelihood is what cavities see of the likelihood of t.
func cavityLikelihood(t *term.Terms) loo.Likelihood {
	lik := likOf(t)
	_, quadratic := lik.(GaussianNoise)
	// A user's likelihood may have bumps that few nodes miss.
	smooth := viewOf(lik).LogProbs(t.Y) != nil
	switch lik.(type) {
	case BernoulliLogit, BernoulliProbit, GaussianNoise, Laplace, LogNormal:
		smooth = false // they have closed forms
	}
	return loo.Likelihood{Quadratic: quadratic, LogProb: func(y, m, v float64) float64 {
		if smooth {
			if logp, ok := narrowLogProb(lik, y, m, v); ok {
				return logp
			}
		}
		logp, _ := predictiveLogProb(lik, y, m, v)
		return logp
	}}
}

// narrowLogProb returns log ∫ p(y|η) N(η|m, v) dη of a smooth likelihood by few nodes, for which v
// may be too large. Then it is not ok.
func narrowLogProb(l Likelihood, y, m, v float64) (logp float64, ok bool) {
	s := math.Sqrt(v)
	if !(s > 0 && s <= expect.NarrowMost) || math.IsInf(m, 0) {
		return 0, false
	}
	return expect.LogMean(func(eta float64) float64 { return l.LogProb(y, eta) }, m, s)
}

// classLogProb returns log p(y) under independent scores of means m and variances v.
func classLogProb(y float64, m, v []float64) float64 {
	r := classRow{pi: make([]float64, len(m)), d2: make([]float64, len(m))}
	r.lse, _ = expect.SoftmaxExpect(m, v, r.pi, r.d2)
	return r.logProb(int(y), m)
}

// looRows leaves out the rows of l under a Gaussian of the weights less those of the prior.
func looRows(ctx context.Context, l *site.LinearModel, mean []float64, cov gauss.Cov) (*LOO,
	error) {
	r, err := loo.Rows(ctx, l, mean, cov, cavityLikelihood(l.Terms))
	return newLOO(r, l.Terms, err)
}

// eachTerm returns log p(y_n|z) as a function of n and z, for one worker.
func (j *joint) eachTerm(ctx context.Context) func(n int, z []float64) float64 {
	if l, ok := j.f.ll.(LogLik); ok {
		return l.LogProb
	}
	n := float64(j.f.ll.Len())
	terms := make([]Integrand, j.f.ll.Len())
	return func(i int, z []float64) float64 {
		if terms[i] == nil {
			terms[i] = j.f.batch(ctx, []int{i})
		}
		return terms[i].LogProb(z) / n
	}
}

// LOO is leave-one-out cross-validation over the terms of the log-likelihood of o. For F and H
// see PSIS. With a Gaussian q and an F of Sites, of GP.Objective or of GLM.Objective it uses
// cavities, and ignores env and draws. Otherwise it uses draws, 2200 if draws is 0, and takes
// memory for that many log-likelihoods of each term.
//
// The error wraps
//   - ErrParam if q is nil or a Point, if there are fewer than 25 draws, or if F or H is not a
//     likelihood or a prior;
//   - ErrNotPosDef if a term has more precision than q, because q is not that of these terms or
//     not fitted to the end, or if no term can be left out;
//   - ErrNotFinite if a log-likelihood at a draw, or of a term that is left out, is not finite;
//   - ErrMemory.
func (o Objective[Q]) LOO(ctx context.Context, env *Env, q Q, draws int) (*LOO, error) {
	if err := hasDensity(q); err != nil {
		return nil, err
	}
	j, err := newJoint(problem{F: o.F, H: o.H, Init: q})
	if err != nil {
		return nil, err
	}
	g, ok := Dist(q).(*Gaussian)
	prior, ok2 := j.prior.(*Gaussian)
	l := &site.LinearModel{}
	if ok && ok2 {
		l, err = j.linear(prior)
	}
	if err != nil {
		return nil, err
	}
	if l.X == nil {
		return j.looDraws(ctx, env, q, draws)
	}
	mean, cov, err := weightsOf(g)
	if err != nil {
		return nil, err
	}
	return looRows(ctx, l, mean, cov)
}

// linear returns j as a model of rows; there are none if its terms are no sites.
func (j *joint) linear(prior *Gaussian) (*site.LinearModel, error) {
	var rows [][]float64
	l := &site.LinearModel{Names: make([]string, prior.Dim())}
	if j.f == nil {
		l.Terms, rows = j.sites.terms, j.sites.x
	} else if s, ok := j.f.ll.(Sites); ok {
		t, err := newSiteTerms(s.Lik, s.Y)
		if err != nil {
			return nil, err
		}
		l.Terms, rows = t, s.X
	} else {
		return l, nil
	}
	d := prior.Dim()
	l.X = &design.Matrix{Rows: l.Terms.Len(), Cols: d}
	if rows == nil {
		l.X.Sparse = gauss.Identity(d)
	}
	for _, x := range rows {
		l.X.Dense = append(l.X.Dense, x...)
	}
	_, cov, err := weightsOf(prior)
	if err != nil {
		return nil, err
	}
	l.Prior.Mean = make([]float64, d)
	if f, ok := cov.(*gauss.Full); ok {
		l.Prior.Full = f.S
	} else {
		l.Prior.Prec = cov.(gauss.Diagonal)
		for j, v := range l.Prior.Prec {
			l.Prior.Prec[j] = 1 / v
		}
	}
	return l, nil
}

// PSIS checks an approximation q of a posterior p(z|y) by Pareto-smoothed importance sampling.
// With k̂ below 0.7 the corrected means, standard deviations and log evidence below are reliable.
// Draws z_s of q get the weights
//
//	w_s ∝ p(y, z_s)/q(z_s).
//
// The largest weights are replaced by the expected order statistics of a generalised Pareto
// distribution fitted to them. Its shape k̂ measures how heavy the tail of the weights is, and so
// how far q may be from p (Yao, Vehtari, Simpson and Gelman 2018; Vehtari, Simpson, Gelman, Yao
// and Gabry 2024).
//
// If KHat is at most Limit, the corrected moments and the log evidence are those of p within
// their errors, even where q itself is off. Above it neither they nor their errors are reliable:
// q misses part of p. Predictions by q may still be good. In many dimensions k̂ is large even if
// every marginal is nearly right, as the errors of all dimensions add up in the weights.
//
// k̂ depends on draws of q only: it cannot detect a mode of p that has no draws.
type PSIS struct {
	// KHat is k̂. The weights have fewer than 1/k̂ finite moments. KHat is at most 0 if the weights
	// are so nearly equal that their tail cannot matter: what exceeds its smallest weight is less
	// than 0.1/√S of all weights. KHat is +Inf if fewer than 25 draws have a positive weight.
	KHat float64
	// Limit is the largest reliable KHat for this number of draws, min(1 − 1/log₁₀ S, 0.7)
	// (equation 13).
	Limit float64
	// Draws is the number S of draws with weights. If no number was given it is below 2200 if the
	// weights are so nearly equal that their tail cannot matter. Mean, SD and their errors use 2200
	// draws of q in any case.
	Draws int
	// ESS is the effective sample size 1/Σ w_s², for normalised weights.
	ESS float64
	// LogZ is the estimate of the log evidence (marginal likelihood) log p(y), in nats, and
	// LogZErr its standard error. It exceeds the ELBO of q by KL(q‖p).
	LogZ, LogZErr float64
	// Mean and SD are the corrected means and standard deviations of the elements of z under p.
	// MeanErr and SDErr are their standard errors.
	Mean, SD, MeanErr, SDErr []float64
}

// String summarises the result in words, and says whether it is reliable.
func (p *PSIS) String() string {
	s := fmt.Sprintf("k̂ = %.2f from %d draws (effective sample size %.0f): log evidence %.6g ± "+
		"%.2g", p.KHat, p.Draws, p.ESS, p.LogZ, p.LogZErr)
	switch {
	case p.KHat <= p.Limit:
		return s
	case p.KHat < 0.7:
		return fmt.Sprintf("%s; not reliable with fewer than %.0f draws", s,
			math.Ceil(math.Pow(10, 1/(1-p.KHat))))
	case p.KHat < 1:
		return s + "; not reliable: q misses part of the posterior, for which no affordable " +
			"number of draws makes up"
	}
	return s + "; not reliable: the weights have no mean"
}

// NewPSIS checks q against the distribution with density proportional to exp(logp(z)). logp is the
// log of the joint density p(y, z) in nats; without its constant LogZ lacks the constant, too. It
// may return −Inf where p has no density. It must not keep or change z, and is called concurrently
// if env has more than one worker. The same randomness in env gives the same draws and the same
// result for any number of workers.
//
// Zero draws mean 2200, with two exceptions. Only the first 320, 640 or 1280 get weights if the tail
// of these would not matter among 2200 either, even if its shape were two standard errors above k̂.
// There are 22,000 if 2200 have a k̂ above 0.5, z has at most 100 elements, and an Objective, GLM or
// GP has at most 5000 terms: among fewer draws the largest importance weights are not yet a tail.
//
// The error wraps ErrParam if q or logp is nil, q is a Point, which has no density, or there are
// fewer than 25 draws; ErrNotFinite if a log density is NaN or +Inf at a draw or −Inf at all of
// them, or if a draw is not finite; and ErrMemory.
func NewPSIS(ctx context.Context, env *Env, q Dist, logp func(z []float64) float64,
	draws int) (*PSIS, error) {
	if err := hasDensity(q); err != nil {
		return nil, err
	}
	if logp == nil {
		return nil, fmt.Errorf("pgsvi: PSIS needs the log density of p: %w", ErrParam)
	}
	return newPSIS(ctx, env, q.Dim(), 1, draws, distSampler(q, nil,
		func() func([]float64) float64 { return logp }))
}

// PSIS checks q against the posterior of o, log p(y, z) = Σ_n log p(y_n|z) + log p(z). F must be
// the Expect of a log-likelihood, or that of GP.Objective or GLM.Objective, and H must be KLTo a
// prior, before or after Linearized. For any other F and H use NewPSIS. The error is one of
// NewPSIS, or that of H or F if q does not fit them. It wraps ErrParam if F or H is of another
// kind.
func (o Objective[Q]) PSIS(ctx context.Context, env *Env, q Q, draws int) (*PSIS, error) {
	if err := hasDensity(q); err != nil {
		return nil, err
	}
	j, err := newJoint(problem{F: o.F, H: o.H, Init: q})
	if err != nil {
		return nil, err
	}
	return newPSIS(ctx, env, q.Dim(), j.terms, draws, distSampler(q, j.prior,
		func() func([]float64) float64 { return j.logLik(ctx) }))
}

// hasDensity returns an error if q has no density.
func hasDensity(q Dist) error {
	v := reflect.ValueOf(q)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("pgsvi: nil q: %w", ErrParam)
	}
	if _, ok := q.(*Point); ok {
		return fmt.Errorf("pgsvi: a point mass has no density that draws could be weighted by: %w",
			ErrParam)
	}
	return nil
}

// joint is the log density of an Objective: the terms of its log-likelihood, and its prior.
type joint struct {
	prior ExpFamily
	f     *expectedTerms // or
	sites *siteSmooth
	terms int // of either
}

// newJoint returns the joint density of which o is the negative ELBO.
func newJoint(o problem) (*joint, error) {
	f, h := o.F, o.H
	if l, ok := f.(linearized); ok && (h == nil || isZero(h)) {
		f, h = l.f, l.h
	}
	j := &joint{}
	if h != nil {
		j.prior = priorOf(h)
	}
	if j.prior == nil {
		return nil, fmt.Errorf(
			"pgsvi: PSIS needs an H that is KLTo a prior, not %s; use NewPSIS: %w", spell(h),
			ErrParam)
	}
	switch f := f.(type) {
	case *expectedTerms:
		j.f = f
	case *siteSmooth:
		j.sites = f
	default:
		return nil, fmt.Errorf(
			"pgsvi: PSIS needs an F with a likelihood, not a %T; use NewPSIS: %w", f, ErrParam)
	}
	if err := h.Check(o.Init); err != nil {
		return nil, err
	}
	t, err := f.Setup(o.Init)
	j.terms = t.N
	return j, err
}

// logLik returns the log-likelihood as a function of z, for one worker.
func (j *joint) logLik(ctx context.Context) func(z []float64) float64 {
	if j.f != nil {
		return j.f.batch(ctx, nil).LogProb
	}
	return func(z []float64) (s float64) {
		for n := range j.sites.terms.Len() {
			s += j.sites.terms.LogProb(n, j.sites.value(z, n))
		}
		return s
	}
}

// distSampler returns samplers of q for p(y, z), one for each worker. With a prior, of which
// LogProb is a part of log p(y, z), logp is the rest of it. Densities of q and of a prior of its
// own exponential family are not taken one by one, as the statistics of a draw may be finite where
// the draw itself underflows.
func distSampler(q Dist, prior ExpFamily,
	logp func() func(z []float64) float64) func() psis.Sampler {
	var eta []float64 // what is left of the statistics in the ratio
	a := 0.0
	e, _ := q.(*Exp)
	if e != nil {
		eta, a = floats.ScaleTo(make([]float64, e.NumParams()), -1, e.at.Eta), e.LogPartition()
		if prior != nil {
			floats.Add(eta, e.naturalOf(prior))
			a -= prior.LogPartition()
		}
	}
	return func() psis.Sampler {
		q, logp := q.Clone(), logp()
		stat := make([]float64, len(eta))
		return func(z, r []float64, rng *rand.Rand) error {
			d := q.Dim()
			for s := range len(z) / d {
				zs := z[s*d : (s+1)*d]
				if e == nil {
					q.Rand(zs, rng)
				} else {
					e.at.F.Rand(zs, stat, e.at.Eta, rng)
				}
				if r == nil {
					continue
				}
				p := logp(zs)
				switch {
				case e == nil && prior != nil:
					r[s] = p + prior.LogProb(zs) - q.LogProb(zs)
				case e == nil:
					r[s] = p - q.LogProb(zs)
				default:
					r[s] = p + floats.Dot(eta, stat) + a
					if prior == nil {
						r[s] -= e.at.F.LogBase(zs)
					}
				}
				if math.IsNaN(r[s]) || math.IsInf(r[s], 1) {
					return fmt.Errorf("pgsvi: log p(y, z) − log q(z) is %v where the "+
						"log-likelihood is %v, at z = %s: %w", r[s], p, estimate.Abridged(zs),
						ErrNotFinite)
				}
			}
			return nil
		}
	}
}

// newPSIS returns what draws of dim elements say, of a log-likelihood of so many terms.
func newPSIS(ctx context.Context, env *Env, dim, terms, draws int,
	samplers func() psis.Sampler) (*PSIS, error) {
	plan := drawsOf(env, dim, draws)
	plan.Terms = terms
	r, err := psis.Run(ctx, plan, samplers)
	return (*PSIS)(r), prefixed(err)
}

// drawsOf returns the plan of draws of dim elements; see NewPSIS.
func drawsOf(env *Env, dim, draws int) psis.Plan {
	return psis.Plan{Dim: dim, Draws: draws, Workers: env.Workers(), Rng: env.rng()}
}

// PSIS checks q against the posterior of g; z are the latent values at the training points. See
// NewPSIS for draws and env. With the sites of q, of parameters γ_n and a_n about its mean m, the
// prior cancels in the weights,
//
//	log p(y, z) − log q(z) = Σ_n [log p(y_n|z_n) − a_n(z_n − m_n) + ½γ_n(z_n − m_n)²] − ½aᵀm − ½log|I + ΓK|.
//
// It takes about as much memory as a fit, N³ operations, and N² for each draw. The error is one
// of NewPSIS. It wraps ErrParam if q is nil or has other inputs or another kernel than g, and may
// wrap ErrNotPosDef.
func (g *GP) PSIS(ctx context.Context, env *Env, q *GPPosterior, draws int) (*PSIS, error) {
	d, err := g.denseSites(ctx, q)
	if err != nil {
		return nil, err
	}
	return newPSIS(ctx, env, g.Len(), g.Len(), draws, d.Samplers())
}

// denseSites returns q as what sites make of the prior of g.
func (g *GP) denseSites(ctx context.Context, q *GPPosterior) (*loo.Sites, error) {
	if k := g.terms.Latents(); k > 1 {
		return nil, fmt.Errorf("pgsvi: PSIS of a GP of %d classes is not available; check it by "+
			"LOO and PredictiveCheck, or take PSIS of a GLM: %w", k, ErrParam)
	}
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	var d *loo.Sites
	k, err := g.gramOf(&h, q)
	if err == nil {
		d, err = loo.NewSites(&h, g.terms, k, q.m, q.gamma, q.a)
	}
	if cause := h.Err(); cause != nil && err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while the posterior covariance was computed: %w",
			cause)
	}
	return d, prefixed(err)
}

// gramOf returns the covariance of the prior at the inputs of q, which are to be those of g.
func (g *GP) gramOf(h *parallel.Halt, q *GPPosterior) ([]float64, error) {
	switch {
	case q == nil:
		return nil, fmt.Errorf("nil posterior: %w", ErrParam)
	case q.x != g.x && !mat.Equal(q.x, g.x):
		return nil, fmt.Errorf("the posterior is of other inputs than the model: %w", ErrParam)
	case q.x != g.x && !reflect.DeepEqual(q.kernel, g.kernel) || q.jitter != g.opt.Jitter:
		return nil, fmt.Errorf("the posterior has the kernel %+v and jitter %v, the model %+v "+
			"and %v: %w",
			q.kernel, q.jitter, g.kernel, g.opt.Jitter, ErrParam)
	case latentsOf(q.lik) != g.terms.K:
		return nil, fmt.Errorf("a posterior of %d classes, for a model of %d: %w", latentsOf(q.lik),
			g.terms.K, ErrParam)
	}
	if err := g.checkMemory("raise GPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	return g.gramUntil(h)
}

// LOO is leave-one-out cross-validation, by the cavities of q. The error wraps
//   - ErrParam if q is nil or has other inputs or another kernel than g;
//   - ErrNotPosDef if a row has more precision than q, because q is not that of these responses
//     or not fitted to the end, or if no row can be left out;
//   - ErrNotFinite if a row that is left out has no log-probability;
//   - ErrMemory if it takes more than GPOptions.MaxMemory.
//
// Of a Softmax with K classes it takes 8 (K − 1)² N² bytes, 8 K N² more and (K N)³ operations
// or more. As of a GLM, LOO.Err has a tenth of what each row changes.
func (g *GP) LOO(ctx context.Context, q *GPPosterior) (*LOO, error) {
	if g.terms.K > 1 {
		return g.looClasses(ctx, q)
	}
	d, err := g.denseSites(ctx, q)
	if err != nil {
		return nil, err
	}
	r, err := d.LeaveOut(ctx, cavityLikelihood(g.terms))
	return newLOO(r, g.terms, err)
}

// looClasses is LOO of a Softmax.
func (g *GP) looClasses(ctx context.Context, q *GPPosterior) (*LOO, error) {
	var h parallel.Halt
	h.Watch(ctx)
	k, err := g.gramOf(&h, q)
	cause := h.Err()
	h.Forget()
	if cause != nil {
		return nil, fmt.Errorf("pgsvi: canceled while the prior covariance was computed: %w", cause)
	}
	if err != nil {
		return nil, prefixed(err)
	}
	r, err := loo.ClassSites(ctx, g.terms, k, q.m, q.v, q.gamma, g.opt.MaxMemory, classLogProb)
	return newLOO(r, g.terms, err)
}

// LOO is leave-one-out cross-validation, by the cavities of q, with errors as for GLM.LOO. The
// error also wraps ErrParam if q is nil or has another number of inducing inputs than g, or if g
// is from NewSparseGPRows, which does not keep its rows, and ErrMemory if the features take more
// than SparseGPOptions.MaxMemory.
func (g *SparseGP) LOO(ctx context.Context, q *SparseGPPosterior) (*LOO, error) {
	if q == nil || q.z.Rank() != g.Rank() || latentsOf(q.lik) != latentsOf(g.lik) {
		return nil, fmt.Errorf(
			"pgsvi: the posterior does not have the %d inducing inputs of the model: %w", g.Rank(),
			ErrParam)
	}
	lin, err := g.linear(ctx)
	if err != nil {
		return nil, err
	}
	if q.classes != nil {
		r, err := loo.ClassRows(ctx, lin, q.mean, q.contrasts(), classLogProb)
		return newLOO(r, lin.Terms, err)
	}
	return looRows(ctx, lin, q.mean, &gauss.Full{S: q.q})
}

// linear returns the model of the features of g, which are made where they are not kept.
func (g *SparseGP) linear(ctx context.Context) (*site.LinearModel, error) {
	switch {
	case g.rows == nil:
		return &g.lin, nil
	case g.x == nil:
		return nil, fmt.Errorf(
			"pgsvi: a SparseGP by NewSparseGPRows does not keep its rows; LOO needs those of "+
				"NewSparseGP: %w", ErrParam)
	}
	n, m := g.Len(), g.Rank()
	if err := checkMemory(g.opt.MaxMemory, memory.Bytes(featureMatrices, n, m),
		fmt.Sprintf("leaving out the %d rows of a SparseGP of %d inducing inputs", n, m),
		"raise SparseGPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	var h parallel.Halt
	h.Watch(ctx)
	f := g.z.At(&h, g.x)
	if err := h.Err(); err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while features were made: %w", err)
	}
	lin, _, _, err := g.z.Linear(g.x, under(g.terms, g.lik), f)
	return lin, prefixed(err)
}

// PSIS checks q against the posterior of g; z are the weights w. See NewPSIS for draws and env. q
// may come from another fit, a stream or a file, if it is over the weights of g: it is compared
// with the posterior of the rows and the prior of g.
//
// Many rows take a few passes if the covariance is full and the likelihood is of this package: up to
// 12 weights by a polynomial with an error below 0.001 nats, or else by a sample of the rows with a
// root mean square error of at most 0.01 nats in the logarithm of a weight. In all other cases each
// draw takes a pass. For a Softmax z are the weights of all classes less their mean over classes, which
// is all that counts.
//
// The error is one of NewPSIS. It wraps ErrParam if q is nil, over other weights than g, or over
// more weights than rows with another prior than g, and ErrNotPosDef if RandWeights has no draws.
func (g *GLM) PSIS(ctx context.Context, env *Env, q *GLMPosterior, draws int) (*PSIS, error) {
	if err := g.fits(q); err != nil {
		return nil, err
	}
	if cov, ok := q.cov.(*gauss.Contrasts); ok {
		samplers, err := loo.ClassSamplers(&g.lin, q.mean, cov)
		if err != nil {
			return nil, prefixed(err)
		}
		return newPSIS(ctx, env, q.Dim(), g.Len(), draws, samplers)
	}
	return newPSIS(ctx, env, g.dim(), g.Len(), draws,
		loo.WeightSamplers(ctx, &g.lin, q.mean, q.cov))
}

// fits returns an error unless q is over the weights of g.
func (g *GLM) fits(q *GLMPosterior) error {
	if err := g.rowsKept("a check of a posterior"); err != nil {
		return err
	}
	switch {
	case q == nil:
		return fmt.Errorf("pgsvi: nil posterior: %w", ErrParam)
	case q.Dim() != g.dim()*g.lin.Terms.Latents() || q.opt.Intercept != g.opt.Intercept:
		return fmt.Errorf("pgsvi: the posterior has %d weights (intercept: %t), "+
			"the model %d (%t): %w",
			q.Dim(), q.opt.Intercept, g.dim()*g.lin.Terms.Latents(), g.opt.Intercept, ErrParam)
	case latentsOf(q.lik) != g.lin.Terms.Latents():
		return fmt.Errorf("pgsvi: the posterior has %d classes, the model %d: %w",
			latentsOf(q.lik), g.lin.Terms.Latents(), ErrParam)
	}
	if c, ok := q.cov.(*gauss.Dual); ok && !c.Prior.Equal(&g.lin.Prior) {
		return fmt.Errorf("pgsvi: the posterior has another prior than the model: %w", ErrParam)
	}
	return nil
}

// LOO is leave-one-out cross-validation, by the cavities of q, which must have seen all rows of
// g. q may come from a stream or a file. If its covariance is full, with at most as many weights
// as rows, g may hold some of the rows only.
//
// Of a Softmax with K classes and D weights a class it takes 16 (K D)² bytes. How P_c couples the
// classes of a row is taken from that row alone: LOO.Err has a tenth of what each row changes.
//
// The error wraps
//   - ErrParam if q is nil or over other weights than g;
//   - ErrEmpty if g has no rows;
//   - ErrNotPosDef if a row has more precision than q, because q has not seen it or is not fitted
//     to the end, or if no row can be left out;
//   - ErrNotFinite if a row that is left out has no log-probability;
//   - ErrMemory.
func (g *GLM) LOO(ctx context.Context, q *GLMPosterior) (*LOO, error) {
	if err := g.fits(q); err != nil {
		return nil, err
	}
	if g.Len() == 0 {
		return nil, fmt.Errorf("pgsvi: a GLM without rows: %w", ErrEmpty)
	}
	if c, ok := q.cov.(*gauss.Dual); ok && c.X.Rows != g.Len() {
		return nil, fmt.Errorf(
			"pgsvi: a posterior of %d rows and more weights, for a model of %d: %w", c.X.Rows,
			g.Len(), ErrParam)
	}
	if classes, ok := q.cov.(*gauss.Contrasts); ok {
		r, err := loo.ClassRows(ctx, &g.lin, q.mean, classes, classLogProb)
		return newLOO(r, g.lin.Terms, err)
	}
	mean := floats.SubTo(make([]float64, g.dim()), q.mean, g.lin.Prior.Mean)
	return looRows(ctx, &g.lin, mean, q.cov)
}
