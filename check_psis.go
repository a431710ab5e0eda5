package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/psis"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// PSIS is what Pareto-smoothed importance sampling says of an approximation q of a posterior p(z|y): draws z_s of q get the
// weights
//
//	w_s ∝ p(y, z_s)/q(z_s),
//
// of which the largest are replaced by the expected order statistics of a generalised Pareto distribution fitted to them. Its
// shape k̂ says how heavy the tail of the weights is, and so how far q may be from p where that matters (Yao, Vehtari, Simpson
// and Gelman 2018; Vehtari, Simpson, Gelman, Yao and Gabry 2024).
//
// Up to Limit the corrected moments and the log evidence below are those of p, within their errors, where q itself
// is off. Above it they are not to be trusted, nor are their errors: q misses a part of p. That does not say that predictions
// by q are bad. In many dimensions k̂ is large though every marginal is nearly right, as errors of all dimensions add up
// in the weights.
//
// k̂ sees only what q sees: of a mode of p that has no draws nothing is known.
type PSIS struct {
	// KHat is k̂. Weights have fewer than 1/k̂ finite moments. It is 0 where q is p to rounding, and +Inf
	// where fewer than 25 draws have a positive weight.
	KHat float64
	// Limit is the largest KHat that so many draws can do with, min(1 − 1/log₁₀ S, 0.7) (equation 13).
	Limit float64
	// Draws is S.
	Draws int
	// ESS is 1/Σ w_s², the number of draws of p that would say as much, of normalised weights.
	ESS float64
	// LogZ is the estimate of the log evidence log p(y), in nats, and LogZErr its standard error. It is above
	// the ELBO of q by KL(q‖p).
	LogZ, LogZErr float64
	// Mean and SD are means and standard deviations of the elements of z under p, and MeanErr and SDErr their standard errors.
	Mean, SD, MeanErr, SDErr []float64
}

const (
	psisDraws = 2200 // of default: the least for which the limit of k̂ is 0.7 (Vehtari et al. 2024, section 3.2.4)
	psisLeast = 25   // least number, which leaves five in the tail
	psisChunk = 64   // draws that have a generator of their own
)

// String says in words what is known, and whether it is to be trusted.
func (p *PSIS) String() string {
	s := fmt.Sprintf("k̂ = %.2f from %d draws, which are worth %.0f: log evidence %.6g ± %.2g", p.KHat, p.Draws, p.ESS, p.LogZ, p.LogZErr)
	switch {
	case p.KHat <= p.Limit:
		return s
	case p.KHat < 0.7:
		return fmt.Sprintf("%s; not to be trusted with fewer than %.0f draws", s, math.Ceil(math.Pow(10, 1/(1-p.KHat))))
	case p.KHat < 1:
		return s + "; not to be trusted: no affordable number of draws makes up for what q misses of the posterior"
	}
	return s + "; not to be trusted: the weights have no mean"
}

// NewPSIS returns what draws of q say of the distribution of density proportional to exp(logp(z)), with logp the log of
// the joint density p(y, z) in nats; where it is not normalised, neither is LogZ. It may return −Inf where p has no density, must not keep or
// change z, and is called concurrently if env has more than one worker. No draws mean 2200; they are the same for
// the same randomness in env, and so is the result for any number of workers.
//
// The error wraps ErrParam if q or logp is nil, q is a Point, which has no density, or there are fewer than 25 draws; ErrNotFinite if a
// log density is NaN or +Inf at a draw, or −Inf at all of them, or a draw is not finite; and ErrMemory.
func NewPSIS(ctx context.Context, env *Env, q Dist, logp func(z []float64) float64, draws int) (*PSIS, error) {
	if err := hasDensity(q); err != nil {
		return nil, err
	}
	if logp == nil {
		return nil, fmt.Errorf("pgsvi: PSIS needs the log density of p: %w", ErrParam)
	}
	return newPSIS(ctx, env, q.Dim(), draws, distSampler(q, nil, func() func([]float64) float64 { return logp }))
}

// PSIS returns what draws of q say of the posterior of o: of log p(y, z) = Σ_n log p(y_n|z) + log p(z), where F
// is the Expect of a log-likelihood, or that of GP.Objective or GLM.Objective, and H is KLTo a prior, before or after Linearized.
// See NewPSIS, which is for any other F and H. The error is one of its errors, that of H or F for a q that they do not fit, or wraps ErrParam if F or
// H is another.
func (o Objective[Q]) PSIS(ctx context.Context, env *Env, q Q, draws int) (*PSIS, error) {
	if err := hasDensity(q); err != nil {
		return nil, err
	}
	j, err := newJoint(problem{F: o.F, H: o.H, Init: q})
	if err != nil {
		return nil, err
	}
	return newPSIS(ctx, env, q.Dim(), draws, distSampler(q, j.prior, func() func([]float64) float64 { return j.logLik(ctx) }))
}

// hasDensity returns an error if q has no density.
func hasDensity(q Dist) error {
	v := reflect.ValueOf(q)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("pgsvi: nil q: %w", ErrParam)
	}
	if _, ok := q.(*Point); ok {
		return fmt.Errorf("pgsvi: a point mass has no density that draws could be weighted by: %w", ErrParam)
	}
	return nil
}

// joint is the log density of an Objective: the terms of its log-likelihood, and its prior.
type joint struct {
	prior ExpFamily
	f     *expectedTerms // or
	sites *siteSmooth
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
		return nil, fmt.Errorf("pgsvi: an Objective whose H is a %T, and not KLTo a prior, says nothing of a prior; use NewPSIS: %w", h, ErrParam)
	}
	switch f := f.(type) {
	case *expectedTerms:
		j.f = f
	case *siteSmooth:
		j.sites = f
	default:
		return nil, fmt.Errorf("pgsvi: an Objective whose F is a %T says nothing of a likelihood; use NewPSIS: %w", f, ErrParam)
	}
	if err := h.Check(o.Init); err != nil {
		return nil, err
	}
	_, err := f.Setup(o.Init)
	return j, err
}

// logLik returns the log-likelihood as a function of z, for one worker.
func (j *joint) logLik(ctx context.Context) func(z []float64) float64 {
	if j.f != nil {
		return j.f.batch(ctx, nil).LogProb
	}
	return func(z []float64) (s float64) {
		for n := range j.sites.terms.len() {
			s += j.sites.terms.logProb(n, j.sites.value(z, n))
		}
		return s
	}
}

// A sampler stores draws of q in z, row by row, and where r is not nil log p(y, z) − log q(z) of each in r.
type sampler func(z, r []float64, rng *rand.Rand) error

// distSampler returns samplers of q for p(y, z), one for each worker. With a prior, of which LogProb is a part of log p(y, z), logp is the rest
// of it. Densities of q and of a prior of its own exponential family are not taken one by one, as the statistics
// of a draw may be finite where the draw itself underflows.
func distSampler(q Dist, prior ExpFamily, logp func() func(z []float64) float64) func() sampler {
	var eta []float64 // what is left of the statistics in the ratio
	a := 0.0
	e, _ := q.(*Exp)
	if e != nil {
		eta, a = floats.ScaleTo(make([]float64, len(e.eta)), -1, e.eta), e.a
		if prior != nil {
			floats.Add(eta, e.naturalOf(prior))
			a -= prior.LogPartition()
		}
	}
	return func() sampler {
		q, logp := q.Clone(), logp()
		stat := make([]float64, len(eta))
		return func(z, r []float64, rng *rand.Rand) error {
			d := q.Dim()
			for s := range len(z) / d {
				zs := z[s*d : (s+1)*d]
				if e == nil {
					q.Rand(zs, rng)
				} else {
					e.f.Rand(zs, stat, e.eta, rng)
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
						r[s] -= e.f.LogBase(zs)
					}
				}
				if math.IsNaN(r[s]) || math.IsInf(r[s], 1) {
					return fmt.Errorf("pgsvi: log p(y, z) − log q(z) is %v where the log-likelihood is %v, at z = %s: %w", r[s], p, abridged(zs), ErrNotFinite)
				}
			}
			return nil
		}
	}
}

// newPSIS returns what draws of dim elements say.
func newPSIS(ctx context.Context, env *Env, dim, draws int, samplers func() sampler) (*PSIS, error) {
	if draws == 0 {
		draws = psisDraws
	}
	if draws < psisLeast {
		return nil, fmt.Errorf("pgsvi: PSIS from %d draws; it takes %d, and %d to be of use: %w", draws, psisLeast, psisDraws, ErrParam)
	}
	workers := env.Workers()
	if err := checkMemory(0, bytesOf(3, 1, draws)+bytesOf(float64(2*workers), psisChunk, dim)+bytesOf(psisVectors, 1, dim), fmt.Sprintf("PSIS from %d draws of %d elements", draws, dim), "take fewer draws, or raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, err
	}
	seed := env.rng().Uint64()
	work := make([]sampler, workers)
	// draw makes chunk c of the draws.
	draw := func(worker, c int, z, r []float64) error {
		if work[worker] == nil {
			work[worker] = samplers()
		}
		lo, hi := c*psisChunk, min((c+1)*psisChunk, draws)
		if r != nil {
			r = r[lo:hi]
		}
		return work[worker](z[:(hi-lo)*dim], r, rand.New(rand.NewPCG(seed, uint64(c))))
	}
	each := func(n int, f func(worker, i int) error) error {
		if err := env.Each(ctx, n, f); ctx.Err() == nil {
			return err
		}
		return fmt.Errorf("pgsvi: canceled while q was drawn from: %w", context.Cause(ctx))
	}
	chunks := (draws + psisChunk - 1) / psisChunk
	buf := make([][]float64, workers)
	for i := range buf {
		buf[i] = make([]float64, min(psisChunk, draws)*dim)
	}
	logw := make([]float64, draws)
	if err := each(chunks, func(worker, c int) error { return draw(worker, c, buf[worker], logw) }); err != nil {
		return nil, err
	}
	p := &PSIS{Draws: draws, Limit: psis.Limit(draws)}
	top := floats.Max(logw)
	if math.IsInf(top, -1) {
		return nil, fmt.Errorf("pgsvi: p(y, z) is 0 at all %d draws of q: %w", draws, ErrNotFinite)
	}
	p.KHat = psis.Smooth(logw, make([]int, draws))
	var sum, squares float64
	for s, w := range logw {
		logw[s] = math.Exp(w - top)
		sum += logw[s]
	}
	w := logw
	floats.Scale(1/sum, w)
	for _, ws := range w {
		squares += ws * ws
	}
	n := float64(draws)
	p.ESS = 1 / squares
	p.LogZ, p.LogZErr = top+math.Log(sum/n), math.Sqrt(math.Max(0, n*squares-1)/(n-1))

	// The draws again, for their moments: as many as there are workers at a time, added up in order.
	var m psisMoments
	for first := 0; first < chunks; first += workers {
		group := min(workers, chunks-first)
		if err := each(group, func(worker, i int) error { return draw(worker, first+i, buf[i], nil) }); err != nil {
			return nil, err
		}
		for i := range group {
			lo := (first + i) * psisChunk
			hi := min(lo+psisChunk, draws)
			if err := m.add(w[lo:hi], buf[i][:(hi-lo)*dim], dim); err != nil {
				return nil, err
			}
		}
	}
	m.store(p, squares)
	return p, nil
}

// psisVectors is the number of vectors of the dimension of z that moments take.
const psisVectors = 13

// psisMoments are weighted sums of u = (z − centre)/scale, element by element, centre and scale being those of the first chunk.
type psisMoments struct {
	centre, scale []float64
	w1, w2        []float64    // Σ w u, Σ w u²
	v             [4][]float64 // Σ w² u^j, j = 1 … 4
}

// add adds draws, row by row, with their weights.
func (m *psisMoments) add(w, z []float64, dim int) error {
	if m.centre == nil {
		m.begin(z, dim)
	}
	for s, ws := range w {
		for j, zj := range z[s*dim : (s+1)*dim] {
			if math.IsNaN(zj) || math.IsInf(zj, 0) {
				return fmt.Errorf("pgsvi: element %d of a draw of q is %v: %w", j, zj, ErrNotFinite)
			}
			u := (zj - m.centre[j]) / m.scale[j]
			x := ws * u
			m.w1[j] += x
			m.w2[j] += x * u
			x *= ws
			for k := range m.v {
				m.v[k][j] += x
				x *= u
			}
		}
	}
	return nil
}

func (m *psisMoments) begin(z []float64, dim int) {
	for _, p := range []*[]float64{&m.centre, &m.scale, &m.w1, &m.w2, &m.v[0], &m.v[1], &m.v[2], &m.v[3]} {
		*p = make([]float64, dim)
	}
	n := float64(len(z) / dim)
	for i, zi := range z {
		m.centre[i%dim] += zi / n
	}
	for i, zi := range z {
		d := zi - m.centre[i%dim]
		m.scale[i%dim] += d * d / n
	}
	for j, v := range m.scale {
		if m.scale[j] = math.Sqrt(v); !(m.scale[j] > 0) || math.IsInf(m.scale[j], 0) {
			m.scale[j] = 1
		}
	}
}

// store stores moments and their standard errors, of ratios of means of independent draws (Owen 2013, section 9.2): of
// the mean √Σ w²(z − mean)², and of the standard deviation √Σ w²((z − mean)² − sd²)²/(2 sd).
func (m *psisMoments) store(p *PSIS, squares float64) {
	dim := len(m.centre)
	p.Mean, p.SD, p.MeanErr, p.SDErr = make([]float64, dim), make([]float64, dim), make([]float64, dim), make([]float64, dim)
	for j, scale := range m.scale {
		mu := m.w1[j]
		s2 := math.Max(0, m.w2[j]-mu*mu)
		v1, v2, v3, v4 := m.v[0][j], m.v[1][j], m.v[2][j], m.v[3][j]
		c := mu*mu - s2
		p.Mean[j], p.SD[j] = m.centre[j]+scale*mu, scale*math.Sqrt(s2)
		p.MeanErr[j] = scale * math.Sqrt(math.Max(0, v2-2*mu*v1+mu*mu*squares))
		if s2 > 0 {
			fourth := v4 - 4*mu*v3 + (4*mu*mu+2*c)*v2 - 4*mu*c*v1 + c*c*squares
			p.SDErr[j] = scale * math.Sqrt(math.Max(0, fourth)) / (2 * math.Sqrt(s2))
		}
	}
}

// denseSites is a Gaussian over N latent values of prior N(0, K), in site form.
type denseSites struct {
	terms       *siteTerms
	m, gamma, a []float64
	logDet      float64   // log|I + ΓK|
	v           []float64 // V, full
	left        []float64 // 1 − γ_n V_nn, what is left of the precision of z_n without its site
}

// newDenseSites returns the Gaussian of sites γ and a about its mean m, under the prior covariance k, which it keeps.
func newDenseSites(h *parallel.Halt, t *siteTerms, k, m, gamma, a []float64) (*denseSites, error) {
	n := len(m)
	d := &denseSites{terms: t, m: m, gamma: gamma, a: a, v: make([]float64, n*n), left: make([]float64, n)}
	f := dense.Sites{Halt: h}
	var x dense.Expansion
	ok := f.Factor(k, n, gamma)
	if ok {
		d.logDet = f.LogDet
		f.Expand(&x, k, n)
		f.Covariance(d.v, &x)
		f.Left(d.left, d.v)
		dense.FillUpper(d.v, n)
	}
	if _, finite := dense.AllFinite(d.v); !ok || !finite {
		return nil, fmt.Errorf("pgsvi: posterior covariance: %w", ErrNotPosDef)
	}
	return d, nil
}

// root returns L with V = LLᵀ, N×rank and row by row, and the rank: that to rounding of the matrix of correlations.
func (d *denseSites) root() (l []float64, rank int) {
	n := len(d.m)
	corr, sd := mat.NewSymDense(n, nil), make([]float64, n)
	for i := range sd {
		sd[i] = math.Sqrt(math.Max(0, d.v[i*n+i]))
	}
	for i, si := range sd {
		for j, sj := range sd[:i+1] {
			if si > 0 && sj > 0 {
				corr.SetSym(i, j, d.v[i*n+j]/(si*sj))
			}
		}
	}
	var chol mat.PivotedCholesky
	chol.Factorize(corr, -1)
	var u mat.TriDense
	chol.UTo(&u)
	rank = chol.Rank()
	l = make([]float64, n*rank)
	for j, i := range chol.ColumnPivots(nil) { // PᵀCP = UᵀU
		for k := range min(j+1, rank) {
			l[i*rank+k] = sd[i] * u.At(k, j)
		}
	}
	return l, rank
}

// samplers returns the samplers of d for the joint density of the terms and the prior.
func (d *denseSites) samplers() func() sampler {
	n := len(d.m)
	l, rank := d.root()
	at := -0.5 * (floats.Dot(d.a, d.m) + d.logDet)
	return func() sampler {
		eps := make([]float64, psisChunk*rank)
		return func(z, r []float64, rng *rand.Rand) error {
			draws := len(z) / n
			e := eps[:draws*rank]
			for i := range e {
				e[i] = rng.NormFloat64()
			}
			clear(z)
			if rank > 0 {
				dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(e, draws, rank), dense.General(l, n, rank), 0, dense.General(z, draws, n))
			}
			for s := range draws {
				zs := z[s*n : (s+1)*n]
				if r != nil {
					x, err := d.terms.excess(0, zs, d.m, d.gamma, d.a)
					if err != nil {
						return err
					}
					r[s] = at + x
				}
				floats.Add(zs, d.m)
			}
			return nil
		}
	}
}
