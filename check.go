package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
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
// reports how well each observation is predicted from all others and how much it influences the
// posterior. The slices have one element per observation; a GLM counts the rows with positive
// weight. Print a LOO to see a summary, and compare models with CompareLOO.
//
// If q is Gaussian and each term depends on one number η_n, LOO removes the site of observation n
// from the marginal N(m_n, v_n) of q. The site has precision γ_n = −∂²E/∂m² and slope a_n = ∂E/∂m
// about the mean. Removing it leaves the cavity,
//
//	v_−n = v_n/(1 − γ_n v_n),   m_−n = m_n − v_−n a_n,
//	log p(y_n|y_−n) ≈ log ∫ p(y_n|η) N(η|m_−n, v_−n) dη
//
// (Opper and Winther 2000; Vehtari, Mononen, Tolvanen, Sivula and Winther 2016). This is exact for
// Gaussian noise. Other likelihoods have an error because the sites of the other observations would
// change without observation n. Two rounds of their fixed-point equations correct the error for the
// most influential observations. PointErr is the size of that correction: it adds the absolute
// changes due to the mean, to the variance and to the second round, so they cannot cancel. It is
// usually several times the remaining error. It may be smaller for observations that move q by more
// than a nat, and for likelihoods that are not log-concave, because a fit without the observation
// may end at another optimum. For all other observations PointErr is proportional to their
// influence. None of this includes the difference between q and the posterior; PSIS checks that.
//
// If the posterior is a mixture over hyperparameters (see GLMPosterior), the components have other
// probabilities without observation n. With p_k for the prediction by component k,
//
//	w_k^−n ∝ w_k/p_k(y_n|y_−n),   1/p(y_n|y_−n) = Σ_k w_k/p_k(y_n|y_−n),
//
// because p(y|θ_k) = p(y_−n|θ_k) p_k(y_n|y_−n). Cavity then predicts by the mixture with w_k^−n.
// Leverage is the mean over the components, and Influence is the divergence of the weights and the
// hyperparameters together.
//
// An observation of weight w > 1 counts as w observations, and LOO leaves out one of them. An
// observation of weight below 1 is left out as a whole. The mean of a diagonal or low-rank q moves
// by (Λ0 + XᵀΓX)⁻¹, as in a fit, and not by V. A low-rank fit may find other factors without an
// observation, so PointErr and Err include a change of v_−n by the largest factor between any v_n
// and its value under that matrix.
//
// For any other log-likelihood or q, PSIS weights draws of q so that they represent the posterior
// without observation n, and KHat shows whether the weights are reliable (Vehtari, Gelman and Gabry
// 2017; Magnusson, Andersen, Jonasson and Vehtari 2019). PointErr is then the Monte Carlo error.
type LOO struct {
	// ELPD is the expected log predictive density Σ_n w_n log p(y_n|y_−n), in nats. It estimates
	// the score on the same number of new observations. SE is its standard error over the
	// observations, √(N Var_n), and +Inf if there is only one. To compare two models use
	// CompareLOO, because their difference has a smaller standard error.
	ELPD, SE float64
	// Err estimates the error of ELPD for this model and q, in nats. It is 0 if only rounding
	// remains.
	Err float64
	// Pointwise is log p(y_n|y_−n) in nats, and PointErr estimates its error.
	Pointwise, PointErr []float64
	// KHat is the k̂ of the weights for the posterior without each observation, and Limit is the
	// largest reliable k̂. KHat is nil if no draws were used.
	KHat  []float64
	Limit float64
	// Leverage is γ_n v_n, the part of the precision of η_n that comes from observation n itself.
	// It is the diagonal of the hat matrix of weighted least squares (Hoaglin and Welsch 1978;
	// Pregibon 1981) with the expected weights γ, where v_n is x_nᵀ(Λ0 + XᵀΓX)⁻¹x_n. At a leverage
	// near 1 nothing else determines η_n. The leverage may be negative if the likelihood is not
	// log-concave. From draws it is Var[log p(y_n|z)], which is equal to first order (Gelman, Hwang
	// and Vehtari 2014).
	Leverage []float64
	// Parameters is the effective number of parameters, Σ_n Leverage_n (Spiegelhalter, Best,
	// Carlin and van der Linde 2002).
	Parameters float64
	// Influence is KL(q‖q_−n), the distance by which observation n moves the posterior, in nats. It
	// equals the KL of the marginals of η_n because q and q_−n differ in a factor of η_n alone. No
	// probability of any event changes by more than √(Influence/2) (Pinsker).
	Influence []float64
	// Unresolved lists, in increasing order, the observations that LOO cannot leave out. Without
	// such an observation the precision of η_n is 0 up to rounding or the accuracy of q. An example
	// is the only row with a value in some column, under a wide prior. Its leverage is nearly 1.
	// Unresolved observations count in Parameters but not in ELPD. Their PointErr is +Inf, their
	// Pointwise and Influence are 0, and Cavity holds the marginals of q for them.
	Unresolved []int
	// Cavity predicts each observation from the others, in the order of the observations. It is nil
	// if draws were used.
	Cavity *Prediction
	// Name is the name of the model in the table of CompareLOO. The caller sets it.
	Name string

	y, weight []float64 // read only; nil if unknown, and nil weights are 1
}

// Predictions returns the out-of-sample predictions, each observation predicted from all others,
// like cross-validation with one fold per observation. It returns Cavity, which is nil if draws
// were used.
func (l *LOO) Predictions() *Prediction { return l.Cavity }

// String returns a summary in one sentence: the ELPD with its errors and the number of parameters.
func (l *LOO) String() string {
	left := ""
	if n := len(l.Unresolved); n > 0 {
		left = fmt.Sprintf(", excluding %d that cannot be left out", n)
	}
	return fmt.Sprintf("elpd %.6g ± %.2g over %d observations%s, error %.2g; %.3g effective "+
		"parameters",
		l.ELPD, l.SE, len(l.Pointwise)-len(l.Unresolved), left, l.Err, l.Parameters)
}

// looDraws leaves out the terms of a log-likelihood by weighting draws of q.
func (j *joint) looDraws(ctx context.Context, env *Env, q Dist, draws int) (*LOO, error) {
	n := j.f.ll.Len()
	samplers := func() loo.Sampler {
		terms, r := j.eachTerm(ctx), make([]float64, 1)
		var logp []float64 // log-likelihoods of the terms at the draw
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
				return 0, fmt.Errorf("p(y, z) is 0 at the draw z = %s of q: %w",
					estimate.Abridged(z), ErrNotFinite)
			}
			return r[0], nil
		}
	}
	r, err := loo.Draws(ctx, drawsOf(env, q.Dim(), draws), n, samplers)
	return newLOO(r, nil, err)
}

// newLOO converts r to a LOO, with cavities of the terms t unless t is nil. It passes on err.
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

// cavityLikelihood returns the functions of the likelihood of t that LOO evaluates at cavities.
func cavityLikelihood(t *term.Terms) loo.Likelihood {
	lik := likOf(t)
	quadratic := false
	switch lik.(type) {
	case GaussianNoise:
		quadratic = true
	case LogNormal: // Gaussian in log y, except if y is censored
		quadratic = !slices.ContainsFunc(t.Y, func(y float64) bool { return y <= 0 })
	}
	// The few nodes of smoothLogProb may miss bumps of a custom likelihood.
	smooth := viewOf(lik).LogProbs(t.Y) != nil
	switch lik.(type) {
	case BernoulliLogit, BernoulliProbit, GaussianNoise, Laplace, LogNormal:
		smooth = false // closed forms exist
	}
	logProb := func(y, m, v float64) float64 {
		if smooth {
			if logp, ok := smoothLogProb(lik, y, m, v); ok {
				return logp
			}
		}
		logp, _ := predictiveLogProb(lik, y, m, v)
		return logp
	}
	return loo.Likelihood{Quadratic: quadratic, Cost: expectCost(lik), LogProb: logProb}
}

// expectCost returns the time of ExpectLogProb in nanoseconds. It is 0 if a closed form or a table
// makes the time negligible next to the other work of LOO.
func expectCost(l Likelihood) int {
	switch l.(type) {
	case Beta, ZeroInflated, Hurdle:
		return 2000
	case BetaBinomial:
		return 3000
	}
	if _, ok := l.(Expecter); ok {
		return 0
	}
	return 10_000 // a quadrature with several dozen nodes
}

// narrowLogProb returns log ∫ p(y|η) N(η|m, v) dη of a smooth likelihood from a few nodes. It
// returns false if v is too large for them.
func narrowLogProb(l Likelihood, y, m, v float64) (logp float64, ok bool) {
	s := math.Sqrt(v)
	if !(s > 0 && s <= expect.NarrowMost) || math.IsInf(m, 0) {
		return 0, false
	}
	return expect.LogMean(func(eta float64) float64 { return l.LogProb(y, eta) }, m, s)
}

// smoothLogProb returns log ∫ p(y|η) N(η|m, v) dη of a smooth likelihood from a few dozen nodes. It
// returns false if they do not suffice.
func smoothLogProb(l Likelihood, y, m, v float64) (logp float64, ok bool) {
	if logp, ok = narrowLogProb(l, y, m, v); ok || !(v > 0) || !expect.Valid(m, v) {
		return logp, ok
	}
	if _, ok := l.(StudentT); ok {
		return 0, false // equally spaced nodes may miss its peak, if the peak is in the tail of N(m, v)
	}
	return expect.LogMeanWide(func(eta float64) float64 { return l.LogProb(y, eta) }, m, math.Sqrt(v))
}

// classLogProb returns log p(y) under independent scores with means m and variances v.
func classLogProb(y float64, m, v []float64) float64 {
	r := classRow{pi: make([]float64, len(m)), d2: make([]float64, len(m))}
	r.lse, _ = expect.SoftmaxExpect(m, v, r.pi, r.d2)
	return r.logProb(int(y), m)
}

// looRows leaves out the rows of l. The mean is the mean of the weights minus the prior mean.
func looRows(ctx context.Context, l *site.LinearModel, mean []float64, cov gauss.Cov) (*LOO,
	error) {
	r, err := loo.Rows(ctx, l, mean, cov, cavityLikelihood(l.Terms))
	return newLOO(r, l.Terms, err)
}

// eachTerm returns log p(y_n|z) as a function of n and z. Each worker needs its own function.
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

// LOO runs leave-one-out cross-validation over the terms of the log-likelihood of o. Objective.PSIS
// describes the F and H that LOO accepts. LOO uses cavities, and ignores env and draws, if q is
// Gaussian and F comes from Sites, GP.Objective or GLM.Objective. Otherwise it uses draws, 2200 if
// draws is 0, and stores the log-likelihood of each term at each draw.
//
// The error wraps
//   - ErrParam if q is nil or a Point, if there are fewer than 25 draws, or if F or H is not a
//     likelihood or a prior;
//   - ErrNotPosDef if a term has more precision than q, because q belongs to other terms or is not
//     converged, or if no term can be left out;
//   - ErrNotFinite if a log-likelihood is not finite at a draw or without a term;
//   - ErrMemory if the log-likelihoods do not fit into memory.
func (o Objective[Q]) LOO(ctx context.Context, env *Env, q Q, draws int) (*LOO, error) {
	j, err := o.jointAt(q)
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

// linear returns j as a model of rows, or an empty model if the terms of j are not Sites.
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

// PSIS checks an approximation q of a posterior p(z|y) by Pareto-smoothed importance sampling. If
// k̂ is below 0.7, the corrected means, standard deviations and log evidence are reliable. Draws
// z_s of q get the weights
//
//	w_s ∝ p(y, z_s)/q(z_s).
//
// The largest weights are replaced by the expected order statistics of a generalized Pareto
// distribution that is fitted to them. Its shape k̂ measures how heavy the tail of the weights is,
// and so how far q may be from p (Yao, Vehtari, Simpson and Gelman 2018; Vehtari, Simpson, Gelman,
// Yao and Gabry 2024).
//
// If KHat is at most Limit, the corrected moments and the log evidence agree with p within their
// errors, even if q itself does not. If KHat is larger, neither they nor their errors are reliable,
// because q misses part of p. Predictions from q may still be good: in many dimensions k̂ is large
// even if every marginal is nearly right, because the errors of all dimensions add up in the
// weights.
//
// k̂ depends only on draws of q, so it cannot detect a mode of p that has no draws.
type PSIS struct {
	// KHat is k̂. The weights have fewer than 1/k̂ finite moments. KHat is at most 0 if the weights
	// are so nearly equal that their tail cannot matter, which means that the parts above the
	// smallest weight of the tail add up to less than 0.1/√S of all weights. KHat is +Inf if fewer
	// than 25 draws have a positive weight.
	KHat float64
	// Limit is the largest reliable KHat for this number of draws, min(1 − 1/log₁₀ S, 0.7)
	// (Vehtari, Simpson, Gelman, Yao and Gabry 2024, equation 13).
	Limit float64
	// Draws is the number S of draws with weights. It may be below 2200 if the caller gave no
	// number and the weights are so nearly equal that their tail cannot matter. Mean, SD and their
	// errors use at least 2200 draws of q if the caller gave no number.
	Draws int
	// ESS is the effective sample size 1/Σ w_s² of the normalized weights.
	ESS float64
	// LogZ estimates the log evidence (marginal likelihood) log p(y), in nats, and LogZErr is its
	// standard error. The log evidence exceeds the ELBO of q by KL(q‖p).
	LogZ, LogZErr float64
	// Mean and SD are the corrected means and standard deviations of the elements of z under p.
	// MeanErr and SDErr are their standard errors.
	Mean, SD, MeanErr, SDErr []float64
}

// String returns a summary in one sentence. It ends with a warning if the result is not reliable.
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
		return s + "; not reliable: q misses part of the posterior, and no affordable " +
			"number of draws makes up for that"
	}
	return s + "; not reliable: the weights have no mean"
}

// NewPSIS checks q against the distribution with density proportional to exp(logp(z)). logp returns
// the log of the joint density p(y, z) in nats; if it omits a constant, so does LogZ. It may return
// −Inf where p has no density. logp must not keep or change z, and it is called concurrently if env
// has more than one worker. The same randomness in env gives the same draws and the same result for
// any number of workers.
//
// Zero draws mean 2200, with two exceptions. NewPSIS weights only the first 320, 640 or 1280 draws
// if the tail of their weights would not matter among 2200 even if its shape were two standard
// errors above k̂. An Objective, GLM or GP of at most 5000 terms uses 22,000 draws if z has at most
// 100 elements and k̂ of 2200 draws is above 0.5, because the largest weights of fewer draws do not
// yet form a tail.
//
// The error wraps ErrParam if q or logp is nil, if q is a Point, which has no density, or if there
// are fewer than 25 draws. It wraps ErrNotFinite if a log density is NaN or +Inf at a draw or −Inf
// at all draws, or if a draw is not finite. It wraps ErrMemory if the draws do not fit into memory.
func NewPSIS(ctx context.Context, env *Env, q Dist, logp func(z []float64) float64,
	draws int) (*PSIS, error) {
	if err := hasDensity(q); err != nil {
		return nil, err
	}
	if logp == nil {
		return nil, fmt.Errorf("pgsvi: the log density logp is nil; NewPSIS needs one: %w",
			ErrParam)
	}
	return newPSIS(ctx, env, q.Dim(), 1, draws, distSampler(q, nil,
		func() func([]float64) float64 { return logp }))
}

// jointAt returns the joint density of o, for a q with a density.
func (o Objective[Q]) jointAt(q Q) (*joint, error) {
	if err := hasDensity(q); err != nil {
		return nil, err
	}
	return newJoint(problem{F: o.F, H: o.H, Init: q})
}

// PSIS checks q against the posterior of o, log p(y, z) = Σ_n log p(y_n|z) + log p(z). F must be
// the Expect of a log-likelihood or come from GP.Objective or GLM.Objective, and H must be KLTo a
// prior or a NaturalPrior with a finite integral, before or after Linearized. Use NewPSIS for any
// other F and H. The error wraps ErrParam if F or H has another type. Otherwise it is an error of
// NewPSIS, or an error of H or F if q does not fit them.
func (o Objective[Q]) PSIS(ctx context.Context, env *Env, q Q, draws int) (*PSIS, error) {
	j, err := o.jointAt(q)
	if err != nil {
		return nil, err
	}
	return newPSIS(ctx, env, q.Dim(), j.terms, draws, distSampler(q, j.prior,
		func() func([]float64) float64 { return j.logLik(ctx) }))
}

// hasDensity returns an error if q is nil or has no density.
func hasDensity(q Dist) error {
	v := reflect.ValueOf(q)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("pgsvi: q is nil: %w", ErrParam)
	}
	if _, ok := q.(*Point); ok {
		return fmt.Errorf("pgsvi: q is a Point, which has no density; use a Gaussian: %w",
			ErrParam)
	}
	return nil
}

// joint is the log density of an Objective: the terms of its log-likelihood and its prior.
type joint struct {
	prior ExpFamily
	f     *expectedTerms // nil if sites is set
	sites *siteSmooth
	terms int // number of terms
}

// priorOf returns a p such that h = KL(q‖p) + c, or nil if h is not entropic or has a prior without
// a finite integral.
func priorOf(h Convex, q Dist) ExpFamily {
	if kl, ok := h.(klTo); ok {
		return kl.prior
	}
	eta := targetOf(h, q)
	if eta == nil {
		return nil
	}
	p, ok := q.Clone().(ExpFamily)
	if !ok || p.SetNatural(eta) != nil {
		return nil
	}
	if g, ok := p.(*Gaussian); ok && dense.Epsilon*g.inflation() > mostLost {
		return nil // a singular precision that rounding made positive definite
	}
	return p
}

// newJoint returns the joint density whose negative ELBO is o.
func newJoint(o problem) (*joint, error) {
	f, h := o.F, o.H
	if l, ok := f.(linearized); ok && (h == nil || isZero(h)) {
		f, h = l.f, l.h
	}
	j := &joint{}
	if h != nil {
		j.prior = priorOf(h, o.Init)
	}
	if j.prior == nil {
		return nil, fmt.Errorf(
			"pgsvi: H is %s, but PSIS needs KLTo a prior or a NaturalPrior with a finite integral; "+
				"use NewPSIS: %w", spell(h),
			ErrParam)
	}
	switch f := f.(type) {
	case *expectedTerms:
		j.f = f
	case *siteSmooth:
		j.sites = f
	default:
		return nil, fmt.Errorf(
			"pgsvi: F is a %T without a likelihood; use NewPSIS: %w", f, ErrParam)
	}
	if err := h.Check(o.Init); err != nil {
		return nil, err
	}
	n, _, err := f.Setup(o.Init)
	j.terms = n
	return j, err
}

// logLik returns the log-likelihood as a function of z. Each worker needs its own function.
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

// distSampler returns a function that makes a sampler of q for p(y, z) for each worker. logp
// returns log p(y, z), or the rest of it if a prior is given. If q and the prior belong to the same
// exponential family, their log densities are not computed separately, because the statistics of a
// draw may be finite even if the draw itself underflows.
func distSampler(q Dist, prior ExpFamily,
	logp func() func(z []float64) float64) func() psis.Sampler {
	var eta []float64 // coefficients of the statistics in log prior − log q
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
					return fmt.Errorf("pgsvi: log p(y, z) − log q(z) is %v with "+
						"log-likelihood %v at z = %s: %w", r[s], p, estimate.Abridged(zs),
						ErrNotFinite)
				}
			}
			return nil
		}
	}
}

// newPSIS runs PSIS for a log-likelihood with the given number of terms and draws with dim
// elements.
func newPSIS(ctx context.Context, env *Env, dim, terms, draws int,
	samplers func() psis.Sampler) (*PSIS, error) {
	plan := drawsOf(env, dim, draws)
	plan.Terms = terms
	r, err := psis.Run(ctx, plan, samplers)
	return (*PSIS)(r), prefixed(err)
}

// drawsOf returns the plan for draws with dim elements; see NewPSIS.
func drawsOf(env *Env, dim, draws int) psis.Plan {
	return psis.Plan{Dim: dim, Draws: draws, Workers: env.Workers(), Rng: env.rng()}
}

// PSIS checks q against the posterior of g, where z holds the latent values at the training points.
// NewPSIS describes draws and env. The sites of q have parameters γ_n and a_n about its mean m, so
// the prior cancels in the weights,
//
//	log p(y, z) − log q(z) = Σ_n [log p(y_n|z_n) − a_n(z_n − m_n) + ½γ_n(z_n − m_n)²] − ½aᵀm − ½log|I + ΓK|.
//
// PSIS takes about as much memory as a fit, N³ operations, and N² operations per draw. The error
// wraps ErrParam if q is nil, if q has other inputs or another kernel than g, or if the likelihood
// is a Softmax. Otherwise it is an error of NewPSIS or wraps ErrNotPosDef.
func (g *GP) PSIS(ctx context.Context, env *Env, q *GPPosterior, draws int) (*PSIS, error) {
	d, err := g.denseSites(ctx, q)
	if err != nil {
		return nil, err
	}
	return newPSIS(ctx, env, g.Len(), g.Len(), draws, d.Samplers())
}

// denseSites combines the prior of g with the sites of q. It supports one latent value per term.
func (g *GP) denseSites(ctx context.Context, q *GPPosterior) (*loo.Posterior, error) {
	if k := g.terms.Latents(); k > 1 {
		return nil, fmt.Errorf("pgsvi: PSIS does not support a GP of %d classes; check it with "+
			"LOO and PredictiveCheck, or use PSIS of a GLM: %w", k, ErrParam)
	}
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	var d *loo.Posterior
	k, err := g.gramOf(&h, q)
	if err == nil {
		d, err = loo.NewPosterior(&h, g.terms, k, q.m, q.gamma, q.a)
	}
	if cause := h.Err(); cause != nil && err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while the posterior covariance was computed: %w",
			cause)
	}
	return d, prefixed(err)
}

// gramOf returns the prior covariance at the inputs of q, which must be the inputs of g.
func (g *GP) gramOf(h *parallel.Halt, q *GPPosterior) ([]float64, error) {
	switch {
	case q == nil:
		return nil, fmt.Errorf("the posterior is nil: %w", ErrParam)
	case q.x != g.x && !mat.Equal(q.x, g.x):
		return nil, fmt.Errorf("the posterior has other inputs than the model; fit this model "+
			"first: %w", ErrParam)
	case q.x != g.x && !reflect.DeepEqual(q.kernel, g.kernel) || q.jitter != g.opt.Jitter:
		return nil, fmt.Errorf("the posterior has kernel %+v and jitter %v, but the model has %+v "+
			"and %v: %w",
			q.kernel, q.jitter, g.kernel, g.opt.Jitter, ErrParam)
	case latentsOf(q.lik) != g.terms.K:
		return nil, fmt.Errorf("the posterior has %d classes, but the model has %d: %w",
			latentsOf(q.lik),
			g.terms.K, ErrParam)
	}
	if err := sameParams(q.kernel, g.kernel, q.lik, likOf(g.terms)); err != nil {
		return nil, err
	}
	if err := g.checkMemory("raise GPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	return g.gramUntil(h)
}

// sameParams returns an error if a posterior and its model have different parameters of the kernel or
// of the likelihood. Learn returns such a posterior together with the model that it belongs to.
func sameParams(q, model Kernel, lik, of Likelihood) error {
	const remedy = "use the model that Learn returned, or fit this model"
	if !slices.Equal(q.Params(), model.Params()) {
		return fmt.Errorf("the posterior has kernel %+v, but the model has %+v; %s: %w", q, model,
			remedy, ErrParam)
	}
	a, learned := lik.(Parametric)
	b, ok := of.(Parametric)
	if learned && ok && !slices.Equal(a.Params(), b.Params()) {
		return fmt.Errorf("the posterior has likelihood %+v, but the model has %+v; %s: %w", lik, of,
			remedy, ErrParam)
	}
	return nil
}

// LOO runs leave-one-out cross-validation with the cavities of q, a posterior of g from Fit or from
// a file. If q comes from Learn, call LOO of the GP that Learn returned.
//
// A Softmax with K classes takes 16 (K N)² bytes and at least (K N)³ operations, where the rank of
// the covariance replaces N if it is less. LOO.Err then includes a tenth of the change that each row
// causes, as for GLM.LOO.
//
// The error wraps ErrParam if q is nil, or has other inputs, another kernel or likelihood, or another
// number of classes than g. It wraps ErrMemory if g has too many rows for GPOptions.MaxMemory, and
// ErrNotPosDef or ErrNotFinite as for GLM.LOO.
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

// looClasses runs LOO for a softmax model.
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
	r, err := loo.ClassFunctions(ctx, g.terms, k, q.a, q.gamma, g.opt.MaxMemory, classLogProb)
	return newLOO(r, g.terms, err)
}

// LOO runs leave-one-out cross-validation with the cavities of q. If q comes from Learn, call LOO of
// the SparseGP that Learn returned. The errors are the same as for GLM.LOO. In addition, the error
// wraps ErrParam if q is nil or has another kernel or another number of inducing inputs than g, or
// if g is from NewSparseGPRows, which does not keep its rows. It wraps ErrMemory if the features
// take more than SparseGPOptions.MaxMemory.
func (g *SparseGP) LOO(ctx context.Context, q *SparseGPPosterior) (*LOO, error) {
	if err := g.fits(q); err != nil {
		return nil, err
	}
	lin, err := g.linear(ctx)
	if err != nil {
		return nil, err
	}
	if q.classes != nil {
		r, err := loo.ClassRows(ctx, lin, q.mean, q.contrasts(), classLogProb, 1)
		return newLOO(r, lin.Terms, err)
	}
	return looRows(ctx, lin, q.mean, &gauss.Full{S: q.q})
}

// fits returns an error unless q has the kernel and the likelihood of g and as many inducing inputs and
// classes.
func (g *SparseGP) fits(q *SparseGPPosterior) error {
	if q == nil || q.z.Rank() != g.Rank() || latentsOf(q.lik) != latentsOf(g.lik) {
		return fmt.Errorf(
			"pgsvi: the posterior must have %d inducing inputs, as the model has: %w", g.Rank(),
			ErrParam)
	}
	return prefixed(sameParams(kernelIn(q.z.Kernel), kernelIn(g.z.Kernel), q.lik, g.lik))
}

// linear returns the model of the features of g, and computes the features if g does not keep them.
func (g *SparseGP) linear(ctx context.Context) (*site.LinearModel, error) {
	switch {
	case g.rows == nil:
		return &g.lin, nil
	case g.x == nil:
		return nil, fmt.Errorf(
			"pgsvi: a model from NewSparseGPRows keeps no rows, which LOO needs; use "+
				"NewSparseGP: %w", ErrParam)
	}
	n, m := g.Len(), g.Rank()
	if err := checkMemory(g.opt.MaxMemory, memory.Bytes(featureMatrices, n, m),
		fmt.Sprintf("LOO of %d rows with %d inducing inputs", n, m),
		"raise SparseGPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	var h parallel.Halt
	h.Watch(ctx)
	f := g.z.At(&h, g.x)
	if err := h.Err(); err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while the features were computed: %w", err)
	}
	lin, _, _, err := g.z.Linear(g.x, under(g.terms, g.lik), f)
	return lin, prefixed(err)
}

// PSIS checks q against the posterior of g, where z holds the weights w. NewPSIS describes draws
// and env. q may come from another fit, a stream or a file if it is over the weights of g: PSIS
// compares it with the posterior of the rows and the prior of g.
//
// If the covariance is full and the likelihood belongs to this package, PSIS takes a few passes over
// many rows. For up to 12 weights it replaces the log-likelihood by a polynomial with an error below
// 0.001 nats. For more weights it uses a sample of the rows, with a root mean square error of at
// most 0.01 nats in the logarithm of an importance weight. In other cases each draw takes a pass.
// For a Softmax z holds the weights of all classes minus their mean over the classes, because
// nothing else affects the probabilities. With GLMOptions.Groups, PSIS uses the best covariances of
// the effects. It checks q at these covariances, and does not integrate over them.
//
// The error wraps ErrParam if q is nil, if q is over other weights than g, or if q is over more
// weights than rows and has another prior than g. It wraps ErrNotPosDef if RandWeights cannot draw
// from q. Otherwise it is an error of NewPSIS.
func (g *GLM) PSIS(ctx context.Context, env *Env, q *GLMPosterior, draws int) (*PSIS, error) {
	if err := g.fits(q); err != nil {
		return nil, err
	}
	if cov, ok := q.cov.(*gauss.Contrasts); ok {
		samplers, err := loo.ClassSamplers(g.linearAt(q), q.mean, cov)
		if err != nil {
			return nil, prefixed(err)
		}
		return newPSIS(ctx, env, q.Dim(), g.Len(), draws, samplers)
	}
	return newPSIS(ctx, env, g.dim(), g.Len(), draws,
		loo.WeightSamplers(ctx, g.linearAt(q), q.ownMean(), q.cov))
}

// fits returns an error unless q is over the weights of g.
func (g *GLM) fits(q *GLMPosterior) error {
	if err := g.rowsKept("a check of a posterior"); err != nil {
		return err
	}
	switch {
	case q == nil:
		return fmt.Errorf("pgsvi: the posterior is nil: %w", ErrParam)
	case q.Dim() != g.dim()*g.lin.Terms.Latents() || q.opt.Intercept != g.opt.Intercept:
		return fmt.Errorf("pgsvi: the posterior has %d weights (intercept: %t), but "+
			"the model has %d (%t): %w",
			q.Dim(), q.opt.Intercept, g.dim()*g.lin.Terms.Latents(), g.opt.Intercept, ErrParam)
	case latentsOf(q.lik) != g.lin.Terms.Latents():
		return fmt.Errorf("pgsvi: the posterior has %d classes, but the model has %d: %w",
			latentsOf(q.lik), g.lin.Terms.Latents(), ErrParam)
	}
	c, ok := q.cov.(*gauss.Dual)
	if ok && !g.learnedBy(q) && !c.Prior.Equal(&g.lin.Prior) {
		return fmt.Errorf("pgsvi: the posterior has another prior than the model; fit this "+
			"model: %w", ErrParam)
	}
	return nil
}

// learnedBy reports whether the hyperparameters of q may come from a Fit of g that learned them.
func (g *GLM) learnedBy(q *GLMPosterior) bool {
	return g.opt.Learn != nil && reflect.TypeOf(q.lik) == reflect.TypeOf(likOf(g.lin.Terms))
}

// linearAt returns the linear model of g with the covariances of groups, or the likelihood and the
// prior, that q has learned.
func (g *GLM) linearAt(q *GLMPosterior) *site.LinearModel {
	l, learned := g.lin, g.learnedBy(q)
	if len(q.groups) > 0 || learned {
		l.Prior = *q.prior
	}
	if learned {
		l.Terms = under(l.Terms, q.lik)
	}
	return &l
}

// LOO runs leave-one-out cross-validation with the cavities of q, which must be fitted to all rows
// of g. If GLMOptions.Learn is set, LOO uses the likelihood and the prior that q has learned. If q
// comes from GLM.Learn, call LOO of the GLM that Learn returned. q may also come from a stream or a
// file. g may hold only some of the rows if q has a full covariance and at most as many weights as
// rows. If q is a mixture over hyperparameters, such as the covariances of groups with few levels,
// LOO integrates over them; see type LOO.
//
// A Softmax with K classes and D weights per class takes 16 (K D)² bytes. LOO takes the coupling
// P_c between the classes of a row from that row alone, so LOO.Err includes a tenth of the change
// that each row causes.
//
// The error wraps
//   - ErrParam if q is nil or over other weights than g;
//   - ErrEmpty if g has no rows;
//   - ErrNotPosDef if a row has more precision than q, because q was fitted without it or is not
//     converged, or if no row can be left out;
//   - ErrNotFinite if a row that is left out has no log probability;
//   - ErrMemory if LOO does not fit into memory.
func (g *GLM) LOO(ctx context.Context, q *GLMPosterior) (*LOO, error) {
	if err := g.fits(q); err != nil {
		return nil, err
	}
	if g.Len() == 0 {
		return nil, fmt.Errorf("pgsvi: LOO needs at least one row: %w", ErrEmpty)
	}
	if c, ok := q.cov.(*gauss.Dual); ok && c.X.Rows != g.Len() {
		return nil, fmt.Errorf(
			"pgsvi: the posterior has %d rows, but the model has %d: %w", c.X.Rows,
			g.Len(), ErrParam)
	}
	return g.mixedLOO(q, func(part *GLMPosterior, share int) (*loo.Result, *term.Terms, error) {
		l := g.linearAt(part)
		if classes, ok := part.cov.(*gauss.Contrasts); ok {
			r, err := loo.ClassRows(ctx, l, part.mean, classes, classLogProb, share)
			return r, l.Terms, err
		}
		mean := floats.SubTo(make([]float64, g.dim()), part.mean, l.Prior.Mean)
		lik := cavityLikelihood(l.Terms)
		lik.Share = share
		r, err := loo.Rows(ctx, l, mean, part.cov, lik)
		return r, l.Terms, err
	})
}

// mixedLOO returns the LOO of q from the results of leave at its components, or at q itself if q is
// not a mixture. Terms without cavities are nil.
func (g *GLM) mixedLOO(q *GLMPosterior, leave func(part *GLMPosterior, share int) (*loo.Result,
	*term.Terms, error)) (*LOO, error) {
	if q.mixture == nil {
		r, t, err := leave(q, 1)
		return newLOO(r, t, err)
	}
	prob := q.mixture.Mixture.Prob
	results, mix := make([]*loo.Result, len(prob)), &predictionMix{}
	var terms *term.Terms
	var weight []float64
	for k := range results {
		var err error
		if results[k], terms, err = leave(q.componentOf(k), len(prob)); err != nil {
			return nil, prefixed(err)
		}
		if terms != nil {
			weight = terms.Weight
			mix.parts = append(mix.parts, &Prediction{lik: likOf(terms), m: results[k].M,
				v: results[k].V})
		}
	}
	r, without := loo.Mix(prob, results, weight)
	l, err := newLOO(r, terms, nil)
	if terms != nil {
		mix.prob = without
		l.Cavity.lik, l.Cavity.mix = q.lik, mix
	}
	return l, err
}
