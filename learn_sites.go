package pgsvi

import (
	"errors"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// learnSites are the sites found at a θ, with a = K⁻¹m.
type learnSites struct{ theta, gamma, a, m []float64 }

func (l *learnSites) state(c *save.State, n, rows int) {
	c.Floats(n, &l.theta)
	c.Floats(rows, &l.gamma, &l.a, &l.m)
}

// pastSites is the number of θ whose sites are remembered.
const pastSites = 8

// siteMemory are the sites found at the last few θ, and at the best.
type siteMemory struct {
	past        []learnSites // the last last
	best, found learnSites
}

func (l *siteMemory) keep(best bool) {
	if len(l.past) == pastSites {
		l.past = slices.Delete(l.past, 0, 1)
	}
	l.past = append(l.past, l.found)
	if best {
		l.best = l.found
	}
}

// state writes or reads l, of so many rows in a space of n parameters.
func (l *siteMemory) state(c *save.State, n, rows int) {
	k := len(l.past)
	c.Int(&k)
	c.Check(k >= 0 && k <= pastSites, "a search remembers %d sites", k)
	if c.Err() != nil {
		return
	}
	if c.Reading() {
		l.past = make([]learnSites, k)
	}
	for i := range l.past {
		l.past[i].state(c, n, rows)
	}
	l.best.state(c, n, rows)
}

// latentPrior is a prior N(0, K) of N latent values as a function of hyper-parameters.
type latentPrior interface {
	digester
	// covariance stores K at θ in dst, both triangles, and returns the terms there. It reports false where θ is out of range or K not finite, or h has stopped.
	covariance(h *parallel.Halt, dst, theta []float64) (*siteTerms, bool)
	// slopes stores at the θ of the last covariance, for each free parameter that is not of the likelihood, ½Σ_ij (W − aaᵀ)_ij ∂K_ij/∂θ_p
	// in grad, and (∂K/∂θ_p)a in column p of u, which has as many columns as there are free parameters. Of W the lower triangle counts.
	slopes(h *parallel.Halt, grad, u, w, a []float64)
}

// siteLearning is a model of N latent values with all of their covariance as a function of its hyper-parameters.
type siteLearning struct {
	siteMemory
	prior   latentPrior
	space   *learnSpace
	n       int
	workers crew
	units   float64

	k, w  []float64
	prob  siteProblem
	mover inverseMover
	base  siteState
}

func (l *siteLearning) digest(d *save.Digest) { l.prior.digest(d) }

func (l *siteLearning) use(c crew) {
	l.workers, l.prob.workers = c, c
	l.mover.fac.Halt = c.halt
}

func (l *siteLearning) work() float64 { return l.units + l.mover.units }

func (l *siteLearning) state(c *save.State, n int) {
	l.siteMemory.state(c, n, l.n)
	c.Float(&l.units, &l.mover.units)
}

// evaluate implements learnable.
func (l *siteLearning) evaluate(theta []float64, slack, most float64, slopes bool) (learnPoint, error) {
	none := learnPoint{f: math.Inf(1)}
	l.k = dense.Resize(l.k, l.n*l.n)
	terms, ok := l.prior.covariance(l.workers.halt, l.k, theta)
	if err := l.workers.halt.Err(); err != nil {
		return none, err
	}
	if !ok {
		return none, nil // out of range
	}
	gap, err := l.expect(terms, theta, slack)
	if halted := l.workers.halt.Err(); halted != nil {
		return none, halted
	}
	if err != nil && !errors.Is(err, ErrNotFinite) {
		return none, err
	}
	q := &l.prob.cur
	if err != nil || math.IsNaN(q.value) || math.IsInf(q.value, 0) || !l.resolved() {
		return none, nil
	}
	l.found = learnSites{slices.Clone(theta), slices.Clone(q.gamma), slices.Clone(q.a), slices.Clone(q.m)}
	x := learnPoint{f: q.value, slack: gap}
	if !slopes || x.f > most {
		return x, nil
	}
	if !l.mover.current {
		if _, l.mover.current = l.mover.cover(l.prob.try.v, q.gamma); !l.mover.current {
			return none, l.workers.halt.Err()
		}
	}
	l.slopes(&x, terms, theta)
	if err := l.workers.halt.Err(); err != nil {
		return none, err
	}
	if _, ok := dense.AllFinite(x.grad); !ok {
		return none, nil
	}
	return x, nil
}

// How the ratio of noise to scale is found.
const (
	noiseStep  = 2.772588722239781 // log 16: from one log variance to the next,
	noiseTries = 7                 // of which there are no more,
	noiseBends = 2                 // before minima of parabolas
	noiseNear  = 0.1               // that are not this near to one that is known
)

// profiles implements noisy.
func (l *siteLearning) profiles() bool {
	noise, _ := l.space.noiseRay()
	return noise >= 0
}

// profile implements noisy. With S = diag(w)/v, for noise of variance v and weights w, −ELBO at the best q is
//
//	½log|I + SK| + ½yᵀ(I + SK)⁻¹Sy + ½Σ w log 2πv;
//
// one factor gives it for all sK and sv, as a function of log s that is convex with the priors. A jitter is taken to be in proportion, too.
func (l *siteLearning) profile(theta []float64) (learnPoint, error) {
	x := learnPoint{theta: slices.Clone(theta), f: math.Inf(1)}
	noise, scales := l.space.noiseRay()
	l.k = dense.Resize(l.k, l.n*l.n)
	terms, ok := l.prior.covariance(l.workers.halt, l.k, theta)
	if !ok {
		return x, l.workers.halt.Err()
	}
	gamma, c, delta, u := make([]float64, l.n), make([]float64, l.n), make([]float64, l.n), make([]float64, l.n)
	terms.knownSites(gamma, c)
	var weights float64
	for i := range gamma {
		_, _, weight, _ := terms.term(i)
		weights += weight
	}
	fac := &l.mover.fac
	l.mover.current = false
	bracket(func(t float64) float64 { // the least where the log variance of the noise is higher by t and then moves with the scale
		l.units++
		floats.ScaleTo(delta, math.Exp(-t), gamma)
		if !fac.Factor(l.k, l.n, delta) {
			return math.Inf(1)
		}
		floats.ScaleTo(u, math.Exp(-t), c)
		fac.Solve(u)
		var square float64
		for i, g := range gamma {
			if g > 0 {
				square += u[i] * c[i] / g
			}
		}
		at := slices.Clone(theta)
		at[noise] += t
		f := 0.5*fac.LogDet + 0.5*weights*(math.Log(2*math.Pi)+at[noise])
		if f += l.space.scaled(at, noise, scales, weights, square); f < x.f {
			x.theta, x.f = at, f
		}
		return f
	}, noiseStep, noiseTries, noiseBends, noiseNear)
	x.prior = l.space.penalty(x.theta, nil)
	return x, l.workers.halt.Err()
}

// bracket looks for a minimum of f from 0 downhill, by steps until it rises again or there were so many, and then where parabolas have theirs, unless that is near to the least so far.
func bracket(f func(t float64) float64, step float64, tries, bends int, near float64) {
	left, mid := 0.0, step
	fl, fm := f(left), f(mid)
	if fl < fm {
		left, mid, fl, fm, step = mid, left, fm, fl, -step
	}
	right := mid + step
	fr := f(right)
	for tries -= 3; tries > 0 && fr < fm; tries-- {
		left, mid, right, fl, fm = mid, right, right+step, fm, fr
		fr = f(right)
	}
	for range bends {
		a, b := mid-left, mid-right
		t := mid - 0.5*(a*a*(fm-fr)-b*b*(fm-fl))/(a*(fm-fr)-b*(fm-fl))
		if !(math.Min(left, right) < t && t < math.Max(left, right) && math.Abs(t-mid) > near) {
			return
		}
		ft := f(t)
		switch beyond := (t > mid) == (right > left); {
		case ft < fm && beyond:
			left, fl, mid, fm = mid, fm, t, ft
		case ft < fm:
			right, fr, mid, fm = mid, fm, t, ft
		case beyond:
			right, fr = t, ft
		default:
			left, fl = t, ft
		}
	}
}

// mostDrift is how many nats rounding may hide of an ELBO that a search goes by.
const mostDrift = 1e-3

// resolved reports whether q is what its sites say, m = Ka, and its value KL − ΣE, to within so many nats.
func (l *siteLearning) resolved() bool {
	q, p := &l.prob.cur, &l.prob
	dense.Symv(1, dense.Symmetric(l.k, p.n), dense.Vector(q.a), 0, dense.Vector(p.d))
	kl, size, drift := q.logDet, math.Abs(q.logDet), 0.0
	for i, m := range q.m {
		kl += q.a[i]*m - q.gamma[i]*q.v[i]
		size += math.Abs(q.a[i]*m) + math.Abs(q.gamma[i]*q.v[i])
		drift += q.a[i] * (m - p.d[i])
	}
	return math.Abs(drift)+math.Abs(0.5*kl-floats.Sum(q.e)-q.value) <= mostDrift && dense.Epsilon*size <= mostDrift && kl > -mostDrift
}

// learnSteps bounds the steps of q at one θ.
const learnSteps = 60

// expect finds q to within so many nats, in l.prob.cur, and returns by how many it may be too high. No q is
// given up for being far off: what its linearised problem promises is no bound there. Where the targets of
// the sites are slow to converge, as those of large counts under a wide prior, it takes steps of Newton's.
func (l *siteLearning) expect(terms *siteTerms, theta []float64, slack float64) (gap float64, err error) {
	n, p := l.n, &l.prob
	l.base.resize(n)
	clear(l.base.gamma)
	clear(l.base.a)
	clear(l.base.m)
	for i := range n {
		l.base.v[i] = l.k[i*n+i]
	}
	l.mover.reset(l.k, n)
	p.prepare(terms, nil, &l.mover, &l.base)
	if !l.warm(terms, theta) {
		if err := l.cold(terms); err != nil {
			return 0, err
		}
	}
	var f progress
	for range learnSteps {
		l.settle(meanPart * slack)
		if gap = l.gap(); gap <= slack {
			break
		}
		f.add(gap, n, n)
		if _, ok := p.stride(&f); !ok {
			break
		}
		l.mover.current = true
	}
	return gap, nil
}

// cold starts q from the prior or, if that is better, from the sites that the responses alone suggest where they are on the scale of the latent
// values: those of each at its response.
func (l *siteLearning) cold(terms *siteTerms) error {
	p := &l.prob
	l.mover.current = false
	if err := p.start(); err != nil || factsOf(terms.lik).Support != RealLine {
		return err
	}
	for i := range terms.y {
		y, offset, _, _ := terms.term(i)
		g := -terms.expectation(i, y-offset, 0).D2
		if !(g > 0) || math.IsInf(g, 0) {
			return nil
		}
		p.try.gamma[i], p.try.c[i] = g, g*(y-offset)
	}
	if p.eval() && p.accept() {
		l.mover.current = true
	}
	return nil
}

// mostSecant bounds by how much log γ is extrapolated.
const mostSecant = 2

// warm starts q from the sites of the nearest θ so far, moved along secants, and reports whether it could.
func (l *siteLearning) warm(terms *siteTerms, theta []float64) bool {
	p := &l.prob
	if !terms.knownSites(p.try.gamma, p.try.c) {
		if len(l.past) == 0 {
			return false
		}
		l.extrapolate(p.try.gamma, p.try.c, p.try.m, theta)
		for i, m := range p.try.m {
			p.try.c[i] += p.try.gamma[i] * m
		}
	}
	if !p.eval() || math.IsInf(p.try.value, 0) {
		return false
	}
	p.cur, p.try = p.try, p.cur
	p.mover.accept()
	l.mover.current = true
	return true
}

// knownSites stores the sites of terms with Gaussian noise, about zero, and reports whether they are.
func (t *siteTerms) knownSites(gamma, c []float64) bool {
	noise, ok := t.lik.(GaussianNoise)
	for i := range gamma {
		if !ok {
			return false
		}
		y, offset, weight, _ := t.term(i)
		gamma[i] = weight / positiveOr(noise.Var, 1)
		c[i] = gamma[i] * (y - offset)
	}
	return ok
}

// extrapolate stores the sites of the nearest θ so far, moved along secants to θ.
func (l *siteMemory) extrapolate(gamma, a, m, theta []float64) {
	from := 0
	for i := range l.past {
		if floats.Distance(l.past[i].theta, theta, 2) <= floats.Distance(l.past[from].theta, theta, 2) {
			from = i
		}
	}
	near := &l.past[from]
	copy(gamma, near.gamma)
	copy(a, near.a)
	copy(m, near.m)
	l.secants(gamma, a, m, from, theta)
}

// secants moves γ, a and m from those of the given θ of the past to what they would be at θ if log γ, a and m were linear in it:
// with the coefficients c = argmin |θ − θ_0 − Σ c_j(θ_j − θ_0)|².
func (l *siteMemory) secants(gamma, a, m []float64, from int, theta []float64) {
	near := &l.past[from]
	for i := range l.past {
		if floats.Min(l.past[i].gamma) <= 0 {
			return
		}
	}
	k := len(l.past) - 1
	if k == 0 {
		return
	}
	var others []*learnSites
	for i := range l.past {
		if i != from {
			others = append(others, &l.past[i])
		}
	}
	diff := mat.NewDense(len(theta), k, nil)
	goal := mat.NewVecDense(len(theta), nil)
	for d, t := range theta {
		goal.SetVec(d, t-near.theta[d])
		for j, o := range others {
			diff.Set(d, j, o.theta[d]-near.theta[d])
		}
	}
	var gram mat.SymDense
	gram.SymOuterK(1, diff.T())
	var trace float64
	for j := range k {
		trace += gram.At(j, j)
	}
	for j := range k {
		gram.SetSym(j, j, gram.At(j, j)+1e-6*trace+math.SmallestNonzeroFloat64)
	}
	var chol mat.Cholesky
	var c, rhs mat.VecDense
	rhs.MulVec(diff.T(), goal)
	if !chol.Factorize(&gram) || chol.SolveVecTo(&c, &rhs) != nil {
		return
	}
	for i := range gamma {
		var dl, da, dm float64
		for j, o := range others {
			dl += c.AtVec(j) * math.Log(o.gamma[i]/near.gamma[i])
			da += c.AtVec(j) * (o.a[i] - near.a[i])
			dm += c.AtVec(j) * (o.m[i] - near.m[i])
		}
		gamma[i] *= math.Exp(min(max(dl, -mostSecant), mostSecant))
		a[i] += da
		m[i] += dm
	}
}

// gap estimates how many nats q is below the best: what its linearised problem promises, as denseAlgebra.decrement does, but
// for the covariances in the part of the precision, of which only the variances are at hand.
func (l *siteLearning) gap() float64 {
	q, p := &l.prob.cur, &l.prob
	var precision float64
	for i, v := range q.v {
		p.u[i] = q.a[i] - q.d1[i]
		g := (q.tg[i] - q.gamma[i]) * v
		precision += g * g
	}
	if q.wild {
		return math.Inf(1)
	}
	if !l.mover.current { // at the prior
		dense.Symv(1, dense.Symmetric(l.k, p.n), dense.Vector(p.u), 0, dense.Vector(p.d))
		return 0.5*floats.Dot(p.u, p.d) + 0.25*precision
	}
	copy(p.d, p.u)
	l.mover.fac.Solve(p.d)
	l.mover.fac.MulC(p.d)
	return 0.5*floats.Dot(p.u, l.mover.fac.T) + 0.25*precision
}

// meanPart is the part of the slack of q that its mean may be off at fixed covariances.
const meanPart = 0.1

// settle moves the mean, at the covariances of q, to within so many nats of the best.
func (l *siteLearning) settle(slack float64) {
	p := &l.prob
	if !l.mover.current || !p.inner(slack, 0) {
		return
	}
	p.cur.siteState, p.in.at = p.in.at, p.cur.siteState
	p.cur.value = p.in.value
	for i, g := range p.cur.gamma {
		p.cur.c[i] = p.cur.a[i] + g*p.cur.m[i]
	}
}

// inverseMover is a covMover that makes do with the inverse of the factor.
type inverseMover struct {
	covMover
	inverse dense.Inverse
	units   float64
}

func (a *inverseMover) cover(v, delta []float64) (logDet float64, ok bool) {
	copy(a.last, delta)
	a.current = false
	a.units += 2
	if !a.fac.Factor(a.cov, a.n, delta) {
		return 0, false
	}
	a.units += negativeUnits * float64(len(a.fac.Neg)) / float64(a.n)
	return a.fac.LogDet, a.inverse.Variances(&a.fac, v)
}

// covarianceUnits is what all of V costs.
const covarianceUnits = 3

func (a *inverseMover) covariance() []float64 {
	a.units += covarianceUnits
	return a.covMover.covariance()
}

// negativeUnits is what variances and weights cost where every γ is negative, more than where none is.
const negativeUnits = 6

// slopes stores the gradient and the average information at the current q in x. A parameter of the likelihood enters U as a change of
// the noise would, −(∂²E/∂m∂θ)/γ, and the curvature of E itself bounds its information from below.
func (l *siteLearning) slopes(x *learnPoint, terms *siteTerms, theta []float64) {
	n, q, nf := l.n, &l.prob.cur, len(l.space.free)
	l.w = dense.Resize(l.w, n*n)
	l.units++
	l.mover.inverse.Weights(&l.mover.fac, l.w)
	l.mover.current = false // the inverse is gone
	x.grad, x.info = make([]float64, nf), mat.NewSymDense(nf, nil)
	u := make([]float64, n*nf)
	l.prior.slopes(l.workers.halt, x.grad, u, l.w, q.a)
	least := make([]float64, nf)
	for i := range l.space.free {
		if l.space.ofLikelihood(i) {
			x.grad[i], least[i] = l.space.likelihoodSlope(u[i:], terms, &q.siteState, l.workers, theta, i)
		}
	}
	l.information(x.info, u, nf)
	for i := range nf {
		x.info.SetSym(i, i, max(x.info.At(i, i), least[i]))
	}
}

// information stores ½UᵀWU, U being N×nf, in info. W is a triangle T, and the transpose of what is below the diagonal of that.
func (l *siteLearning) information(info *mat.SymDense, u []float64, nf int) {
	n := l.n
	tu, utu := make([]float64, n*nf), make([]float64, nf*nf)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(l.w, n, n), dense.General(u, n, nf), 0, dense.General(tu, n, nf))
	for r := range n { // half of the diagonal belongs to either triangle
		floats.AddScaled(tu[r*nf:(r+1)*nf], -0.5*l.w[r*n+r], u[r*nf:(r+1)*nf])
	}
	dense.Gemm(blas.Trans, blas.NoTrans, 1, dense.General(u, n, nf), dense.General(tu, n, nf), 0, dense.General(utu, nf, nf))
	for i := range nf {
		for j := range i + 1 {
			info.SetSym(i, j, 0.5*(utu[i*nf+j]+utu[j*nf+i]))
		}
	}
}

// ofLikelihood reports whether free parameter i is of the likelihood.
func (s *learnSpace) ofLikelihood(i int) bool { return s.coords[s.free[i]].likelihood }

// likelihoodStep is the step of the differences in a parameter of the likelihood: the cube root, about, of the error of expectations.
const likelihoodStep = 0x1p-14

// likelihoodSlope returns the derivative of −ΣE in free parameter i, of the likelihood, by differences at the marginals of q, and half of
// the second one, and stores the column of the parameter in u, which has as many columns as there are free parameters. But for Gaussian noise it is
// shrunk until Σγu² is at most the second derivative over searchPart, a part that the search takes of it: q that follows θ only lowers the curvature. Sites that say
// nothing of their latent value, as those of a Laplace far from its response, would have any u whatever, and stop the search.
func (s *learnSpace) likelihoodSlope(u []float64, terms *siteTerms, q *siteState, workers crew, theta []float64, i int) (slope, curve float64) {
	at := func(h float64) *siteState {
		t := slices.Clone(theta)
		t[i] += h
		x := &siteState{}
		x.resize(len(q.m))
		copy(x.m, q.m)
		copy(x.v, q.v)
		_, lik := s.values(t)
		err := checkLikelihood(lik)
		if err == nil {
			err = terms.under(lik).expect(x, nil, workers)
		}
		if err != nil {
			x.e[0] = math.NaN()
		}
		return x
	}
	up, down := at(likelihoodStep), at(-likelihoodStep)
	_, gaussian := terms.lik.(GaussianNoise)
	for n := range q.m {
		slope -= (up.e[n] - down.e[n]) / (2 * likelihoodStep)
		curve -= (up.e[n] - 2*q.e[n] + down.e[n]) / (likelihoodStep * likelihoodStep)
		if q.gamma[n]*q.v[n] > dense.Epsilon {
			u[n*len(s.free)] = -(up.d1[n] - down.d1[n]) / (2 * likelihoodStep * q.gamma[n])
		}
	}
	if gaussian {
		return slope, 0
	}
	var total float64
	for n, g := range q.gamma {
		total += g * u[n*len(s.free)] * u[n*len(s.free)]
	}
	if most := curve / searchPart; most > 0 && total > most {
		for n := range q.gamma {
			u[n*len(s.free)] *= math.Sqrt(most / total)
		}
	}
	return slope, 0.5 * curve
}

// under returns the terms with the same responses under lik.
func (t *siteTerms) under(lik Likelihood) *siteTerms {
	u := *t
	u.lik = lik
	return &u
}
