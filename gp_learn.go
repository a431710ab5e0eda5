package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// GPLearner is a GP whose hyper-parameters θ are learned, those of its kernel and those of its likelihood. It is a Model: a
// step of a run is an evaluation at one θ, and the ELBO of its iterations is −Learned.Objective. GP.Learn is all that most
// callers need; GPLearner is for those who load a run that was saved (Solver.LoadResult) or drive the loop themselves.
//
// It minimises −ELBO(θ) − log p(θ) by a quasi-Newton method, whose metric is the average information ½UᵀWU, U_p = (∂K/∂θ_p)α,
// with α = K⁻¹m and W = K⁻¹ − K⁻¹VK⁻¹ (Gilmour, Thompson and Cullis 1995). q is found at each θ to within a small part of what
// the next step promises, from the sites at those before. At the best q its own derivatives do not matter:
//
//	∂ELBO/∂θ_p = ½ Σ_ij (α_iα_j − W_ij) ∂K_ij/∂θ_p.
type GPLearner struct {
	gp    *GP
	opt   LearnOptions
	space *learnSpace
}

// Learn finds the hyper-parameters with the least −ELBO − log prior, and returns the GP with them, its posterior, and what there is to know of
// the parameters. A nil opt means that all are learned, under default priors.
//
// A kernel of one part starts where its fields are set and, where they are zero, at the median distance of the rows, which is tried against two
// shorter lengths. The default priors are normal in θ: of log Scale, N(2, 1) where latent values are log odds, N(0, 1.5²) where they
// are logarithms, and N(log σ_y, 1.5²) where they are in the units of the responses, σ_y being their deviation by the median; of log
// Length, N(log c, 1) with √2·c the median distance; of Lengths, log l_d − log(σ_d√D) ~ N(0, 0.5²I + 11ᵀ), σ_d being the deviation of
// column d; of noise, N(log σ_y/4, 1.5²); of StudentT.DF, N(log 4, 1). What is set in a part of a Sum or Product says which part it is: it starts
// there, with prior N(θ, 2²); a Scale that is not set, of a factor after the first, stays at 1. Poisson.Exposure is part of the data and stays.
//
// A kernel whose Grad stores NaN has no derivatives; differences of Cov are taken, and Learned says so.
//
// s runs the search, its Recorder and Checkpoint see it, and a nil s means a Solver without options; StepSize, BatchSize, Sampler and Goal are
// not used. Where the search is canceled, fails or meets a limit of s the posterior is that of the best θ so far, and Solver.Resume of
// Learned.Search goes on; GPLearner.Learned then makes the posterior.
//
// The error wraps ErrParam if an option is out of range, names a parameter that there is not, or a derivative of the kernel is seen to be wrong; otherwise it is one of
// Solver.Run.
func (g *GP) Learn(ctx context.Context, s *Solver, opt *LearnOptions) (*GP, *GPPosterior, *Learned, error) {
	l, err := g.Learner(opt)
	if err != nil {
		return nil, nil, nil, err
	}
	run := Solver{}
	if s != nil {
		run = *s
	}
	run.StepSize, run.BatchSize, run.Sampler, run.Goal, run.EvalEvery = nil, 0, nil, 0, 0
	res, err := run.Run(ctx, l)
	if res == nil {
		return nil, nil, nil, err
	}
	gp, post, learned, e := l.Learned(ctx, s, res)
	if err == nil {
		err = e
	}
	return gp, post, learned, err
}

// Learner returns the model whose runs learn the hyper-parameters of g. The errors are those of Learn.
func (g *GP) Learner(opt *LearnOptions) (*GPLearner, error) {
	l := &GPLearner{gp: g}
	if opt != nil {
		l.opt = *opt
	}
	var err error
	l.space, err = newLearnSpace(g.kernel, g.terms.lik, g.x, g.terms.y, &l.opt)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// NewStepper implements Model. Its error wraps ErrNoProx for a Divergence other than KL.
func (l *GPLearner) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	if !isKL(d) {
		return nil, fmt.Errorf("pgsvi: hyper-parameters are learned under KL, not %T: %w", d, ErrNoProx)
	}
	part := searchPart
	if _, ok := l.gp.terms.lik.(GaussianNoise); ok {
		part = 1
	}
	_, composite := kernelParts(l.gp.kernel)
	return newLearnStepper(&gpLearning{gp: l.gp, space: l.space}, l.space, l.gp.Len(), &l.opt, part, composite, env.rng()), nil
}

// Learned returns what the run res of l has learned so far: the GP at the best θ, its posterior, and the rest. If the search has ended, the posterior is that of a fit
// there, by the Workers, Recover and Converger of s, which may be nil, of which Learned.Fit tells; otherwise it is as exact as the search needed it. The error
// wraps ErrParam if res is no run of l, ErrDiverged if it has not met any θ with an ELBO yet, or is that of Solver.Run.
func (l *GPLearner) Learned(ctx context.Context, s *Solver, res *Result) (*GP, *GPPosterior, *Learned, error) {
	st, ok := res.Stepper.(*learnStepper)
	if !ok || st.space != l.space {
		return nil, nil, nil, fmt.Errorf("pgsvi: a run with a %T is none of this GPLearner: %w", res.Stepper, ErrParam)
	}
	if st.best.theta == nil {
		return nil, nil, nil, fmt.Errorf("pgsvi: the search has not met hyper-parameters with an ELBO yet: %w", ErrDiverged)
	}
	k, _, lik, err := l.space.at(st.best.theta)
	if err != nil {
		return nil, nil, nil, err
	}
	gp := &GP{x: l.gp.x, kernel: k, terms: l.gp.terms.under(lik), opt: l.gp.opt}
	learned := st.report()
	learned.Search = res
	params := k.Params()
	if p, ok := lik.(Parametric); ok {
		params = append(params, p.Params()...)
	}
	for i := range params {
		params[i].Name = learned.Params[i].Name
		learned.Params[i].Param = params[i]
	}
	last, stop := shortlyAfter(ctx)
	defer stop()
	fitted, err := gp.NewStepper(last, nil, nil)
	if err != nil {
		return gp, nil, learned, err
	}
	sites := st.model.(*gpLearning).best
	alg := fitted.(*siteStepper).alg.(*denseAlgebra)
	alg.start(sites.gamma, sites.a)
	if w := diagonal(alg.k, alg.n); w {
		learned.Warnings = append(learned.Warnings, "the covariances of different rows are all but zero: the length is shorter than any distance between rows, and nothing is predicted")
	}
	if !st.done || ctx.Err() != nil {
		defer fitted.(haltable).begin(last, nil).Forget()
		post, err := gp.Posterior(fitted)
		return gp, post, learned, err
	}
	run := Solver{BatchSize: gp.Len()}
	if s != nil {
		run.Workers, run.Recover, run.Converger = s.Workers, s.Recover, s.Converger
	}
	run.Goal = exactPart * st.search.goal
	learned.Fit, err = run.Resume(ctx, &Result{Stepper: fitted})
	defer fitted.(haltable).begin(last, nil).Forget()
	post, e := gp.Posterior(fitted)
	if err == nil {
		err = e
	}
	return gp, post, learned, err
}

// diagonalPart is the largest correlation of two rows, of a K that is as good as diagonal.
const diagonalPart = 1e-3

// diagonal reports whether K is as good as diagonal.
func diagonal(k []float64, n int) bool {
	for i := range n {
		for j := range i {
			if math.Abs(k[i*n+j]) > diagonalPart*math.Sqrt(k[i*n+i]*k[j*n+j]) {
				return false
			}
		}
	}
	return n > 1
}

// under returns the terms with the same responses under lik.
func (t *siteTerms) under(lik Likelihood) *siteTerms {
	u := *t
	u.lik = lik
	return &u
}

// start makes q that of the sites γ and, with a = K⁻¹m, of the mean.
func (s *denseAlgebra) start(gamma, a []float64) {
	copy(s.cur.gamma, gamma)
	copy(s.cur.a, a)
	dense.Symv(1, dense.Symmetric(s.k, s.n), dense.Vector(a), 0, dense.Vector(s.cur.m))
	s.fresh, s.dense, s.free, s.batched, s.pg.current, s.proof = false, false, false, false, false, proof{}
}

// learnSites are the sites found at a θ, with a = K⁻¹m.
type learnSites struct{ theta, gamma, a, m []float64 }

func (l *learnSites) state(c *save.State, n, rows int) {
	c.Floats(n, &l.theta)
	c.Floats(rows, &l.gamma, &l.a, &l.m)
}

// pastSites is the number of θ whose sites are remembered.
const pastSites = 8

// gpLearning is a GP as a function of its hyper-parameters.
type gpLearning struct {
	gp      *GP
	space   *learnSpace
	workers crew
	past    []learnSites // the last last
	best    learnSites
	found   learnSites
	units   float64

	sym, weights mat.SymDense
	k, w         []float64
	prob         siteProblem
	mover        inverseMover
	base         siteState
	u            []float64
	newton       learnNewton
}

func (l *gpLearning) digest(d *save.Digest) {
	l.gp.terms.digest(d)
	l.gp.digest(d)
}

func (l *gpLearning) use(c crew) {
	l.workers, l.prob.workers = c, c
	l.mover.fac.Halt = c.halt
}

func (l *gpLearning) work() float64 { return l.units + l.mover.units }

func (l *gpLearning) state(c *save.State, n int) {
	rows, k := l.gp.Len(), len(l.past)
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
	c.Float(&l.units, &l.mover.units)
}

func (l *gpLearning) keep(best bool) {
	if len(l.past) == pastSites {
		l.past = slices.Delete(l.past, 0, 1)
	}
	l.past = append(l.past, l.found)
	if best {
		l.best = l.found
	}
}

// covariance makes K at k, and reports whether it is finite.
func (l *gpLearning) covariance(k Kernel) bool {
	n := l.gp.Len()
	gramUntil(l.workers.halt, &l.sym, k, l.gp.x)
	if l.workers.halt.Stopped() {
		return false
	}
	l.k = dense.Resize(l.k, n*n)
	raw := l.sym.RawSymmetric()
	for i := range n {
		for j := i; j < n; j++ {
			v := raw.Data[i*raw.Stride+j]
			l.k[i*n+j], l.k[j*n+i] = v, v
		}
		l.k[i*n+i] += l.gp.opt.Jitter
	}
	_, ok := dense.AllFinite(l.k)
	return ok
}

// evaluate implements learnable.
func (l *gpLearning) evaluate(theta []float64, slack float64, slopes bool) (learnPoint, error) {
	none := learnPoint{f: math.Inf(1)}
	k, derivs, lik, err := l.space.at(theta)
	if err != nil {
		return none, nil // out of range
	}
	ok := l.covariance(k)
	if err := l.workers.halt.Err(); err != nil {
		return none, err
	}
	if !ok {
		return none, nil
	}
	terms := l.gp.terms.under(lik)
	err = l.expect(terms, theta, slack)
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
	x := learnPoint{f: q.value}
	if !slopes {
		return x, nil
	}
	if !l.mover.current {
		if _, l.mover.current = l.mover.cover(l.prob.try.v, q.gamma); !l.mover.current {
			return none, l.workers.halt.Err()
		}
	}
	l.slopes(&x, terms, derivs, theta)
	if err := l.workers.halt.Err(); err != nil {
		return none, err
	}
	if _, ok := dense.AllFinite(x.grad); !ok {
		return none, nil
	}
	return x, nil
}

// mostDrift is how many nats rounding may hide of an ELBO that a search goes by.
const mostDrift = 1e-3

// resolved reports whether q is what its sites say, m = Ka, and its value KL − ΣE, to within so many nats.
func (l *gpLearning) resolved() bool {
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

// expect finds q to within so many nats, in l.prob.cur.
func (l *gpLearning) expect(terms *siteTerms, theta []float64, slack float64) error {
	n, p := l.gp.Len(), &l.prob
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
			return err
		}
	}
	for range learnSteps {
		l.settle(meanPart * slack)
		if l.gap() <= slack || !p.iterate() {
			break
		}
		l.mover.current = true
	}
	return nil
}

// cold starts q from the prior or, if that is better, from the sites that the responses alone suggest where they are on the scale of the latent
// values: those of each at its response.
func (l *gpLearning) cold(terms *siteTerms) error {
	p := &l.prob
	l.mover.current = false
	if err := p.start(); err != nil || factsOf(terms.lik).Support != RealLine {
		return err
	}
	for i, y := range terms.y {
		g := -terms.expectation(i, y, 0).D2
		if !(g > 0) || math.IsInf(g, 0) {
			return nil
		}
		p.try.gamma[i], p.try.c[i] = g, g*y
	}
	if p.eval() && p.accept() {
		l.mover.current = true
	}
	return nil
}

// mostSecant bounds by how much log γ is extrapolated.
const mostSecant = 2

// warm starts q from the sites of the nearest θ so far, moved along secants, and reports whether it could.
func (l *gpLearning) warm(terms *siteTerms, theta []float64) bool {
	p := &l.prob
	if noise, ok := terms.lik.(GaussianNoise); ok { // they are known
		g := 1 / positiveOr(noise.Var, 1)
		for i, y := range terms.y {
			p.try.gamma[i], p.try.c[i] = g, g*y
		}
	} else {
		if len(l.past) == 0 {
			return false
		}
		from := 0
		for i := range l.past {
			if floats.Distance(l.past[i].theta, theta, 2) <= floats.Distance(l.past[from].theta, theta, 2) {
				from = i
			}
		}
		near := &l.past[from]
		copy(p.try.gamma, near.gamma)
		copy(p.try.c, near.a)
		copy(p.try.m, near.m)
		l.secants(p.try.gamma, p.try.c, p.try.m, from, theta)
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

// secants moves γ, a and m from those of the given θ of the past to what they would be at θ if log γ, a and m were linear in it:
// with the coefficients c = argmin |θ − θ_0 − Σ c_j(θ_j − θ_0)|².
func (l *gpLearning) secants(gamma, a, m []float64, from int, theta []float64) {
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
func (l *gpLearning) gap() float64 {
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

// The mean at fixed covariances is found by so many steps of Newton's at most, each with so many iterations, to so small a part of the
// residual: they cost a product with V each, and the covariances that follow from a mean that is not the best are of no use.
const (
	meanPart      = 0.1 // of the slack of q
	meanSteps     = 8
	meanHalves    = 5
	meanSolves    = 8
	meanReduction = 1e-3
)

// settle moves the mean, at the covariances of q, to within so many nats of the best. The step is δ = (V⁻¹ + diag d)⁻¹c, c = a − ∂E/∂m and
// d = −∂²E/∂m² − γ, by conjugate gradients preconditioned with V.
func (l *gpLearning) settle(slack float64) {
	if !l.mover.current {
		return
	}
	n, p, t := l.prob.n, &l.prob, &l.newton
	for range meanSteps {
		q := &p.cur
		if q.wild {
			return
		}
		t.resize(n)
		floats.SubTo(t.r, q.a, q.d1)
		l.mover.product(t.s, t.r)
		rs := floats.Dot(t.r, t.s)
		if !(0.5*rs > slack) || math.IsInf(rs, 0) {
			return
		}
		clear(t.step)
		clear(t.whole) // V⁻¹ times it
		copy(t.p, t.s)
		copy(t.q, t.r) // V⁻¹p
		first := rs
		for range meanSolves {
			var curve float64
			for i, v := range t.p {
				t.ap[i] = t.q[i] + (q.tg[i]-q.gamma[i])*v
				curve += v * t.ap[i]
			}
			if !(curve > 0) {
				break
			}
			at := rs / curve
			floats.AddScaled(t.step, at, t.p)
			floats.AddScaled(t.whole, at, t.q)
			floats.AddScaled(t.r, -at, t.ap)
			l.mover.product(t.s, t.r)
			next := floats.Dot(t.r, t.s)
			if !(next > meanReduction*first) {
				break
			}
			floats.Scale(next/rs, t.p)
			floats.Add(t.p, t.s)
			floats.Scale(next/rs, t.q)
			floats.Add(t.q, t.r)
			rs = next
		}
		if !l.move() {
			return
		}
	}
}

// move takes the step of the mean, or a half of it, if that lowers the value.
func (l *gpLearning) move() bool {
	p, t := &l.prob, &l.newton
	q, x := &p.cur, &p.try
	copy(x.v, q.v)
	copy(x.gamma, q.gamma)
	x.logDet = q.logDet
	h := 1.0
	for range meanHalves {
		x.value = q.value + floats.Sum(q.e)
		for i, d := range t.step {
			x.m[i] = q.m[i] - h*d
			x.a[i] = q.a[i] - h*(t.whole[i]-q.gamma[i]*d)
			x.c[i] = x.a[i] + q.gamma[i]*x.m[i]
			x.value += 0.5 * (x.a[i]*x.m[i] - q.a[i]*q.m[i])
		}
		if p.terms.expect(&x.siteState, nil, p.workers) == nil {
			if x.value -= floats.Sum(x.e); x.value <= q.value {
				p.cur, p.try = p.try, p.cur
				return true
			}
		}
		h /= 2
	}
	return false
}

// learnNewton is the workspace of settle.
type learnNewton struct{ r, s, p, q, ap, step, whole []float64 }

func (t *learnNewton) resize(n int) {
	for _, v := range []*[]float64{&t.r, &t.s, &t.p, &t.q, &t.ap, &t.step, &t.whole} {
		*v = dense.Resize(*v, n)
	}
}

// product stores Vr in dst.
func (a *inverseMover) product(dst, r []float64) {
	copy(dst, r)
	a.fac.Solve(dst)
	a.fac.MulC(dst)
	copy(dst, a.fac.T)
}

// inverseMover is a covMover that makes do with the inverse of the factor.
type inverseMover struct {
	covMover
	inverse dense.Inverse
	current bool // the factor is that of the current state
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

// negativeUnits is what variances and weights cost where every γ is negative, more than where none is.
const negativeUnits = 6

// slopes stores the gradient and the average information at the current q in x. A parameter of the likelihood enters U as a change of
// the noise would, −(∂²E/∂m∂θ)/γ, and the curvature of E itself bounds its information from below.
func (l *gpLearning) slopes(x *learnPoint, terms *siteTerms, k Kernel, theta []float64) {
	n, q, space := l.gp.Len(), &l.prob.cur, l.space
	l.w = dense.Resize(l.w, n*n)
	l.units++
	l.mover.inverse.Weights(&l.mover.fac, l.w)
	l.mover.current = false // the inverse is gone
	if l.weights.IsEmpty() {
		l.weights.ReuseAsSym(n)
	}
	raw := l.weights.RawSymmetric()
	for i := range n {
		for j := range i + 1 {
			raw.Data[j*raw.Stride+i] = 0.5 * (q.a[i]*q.a[j] - l.w[i*n+j])
		}
	}
	all := GramGrad(nil, k, l.gp.x, &l.weights)
	floats.Scale(-1, all)
	space.chain(all, k)
	np, nf := len(all), len(space.free)
	l.u = gramGradMul(l.workers.halt, l.u, k, l.gp.x, q.a)
	ones := make([]float64, np)
	for i := range ones {
		ones[i] = 1
	}
	space.chain(ones, k)
	x.grad, x.info = make([]float64, nf), mat.NewSymDense(nf, nil)
	u := make([]float64, n*nf)
	least := make([]float64, nf)
	for i, at := range space.free {
		if !space.coords[at].likelihood {
			x.grad[i] = all[at]
			for r := range n {
				u[r*nf+i] = l.u[r*np+at] * ones[at]
			}
			continue
		}
		x.grad[i], least[i] = l.likelihoodSlope(u[i:], nf, terms, theta, i)
	}
	wu := make([]float64, n*nf)
	blas64.Symm(blas.Left, 1, dense.Symmetric(l.w, n), dense.General(u, n, nf), 0, dense.General(wu, n, nf))
	for i := range nf {
		for j := range i + 1 {
			x.info.SetSym(i, j, 0.5*blas64.Dot(blas64.Vector{N: n, Data: u[i:], Inc: nf}, blas64.Vector{N: n, Data: wu[j:], Inc: nf}))
		}
		x.info.SetSym(i, i, max(x.info.At(i, i), least[i]))
	}
}

// likelihoodStep is the step of the differences in a parameter of the likelihood: the cube root, about, of the error of expectations.
const likelihoodStep = 0x1p-14

// likelihoodSlope returns the derivative of −ΣE in free parameter i, of the likelihood, by differences at the current marginals, and half of
// the second one, and stores the column of the parameter in u, with the given stride.
func (l *gpLearning) likelihoodSlope(u []float64, stride int, terms *siteTerms, theta []float64, i int) (slope, curve float64) {
	q := &l.prob.cur
	at := func(h float64) *siteState {
		t := slices.Clone(theta)
		t[i] += h
		s := &siteState{}
		s.resize(len(q.m))
		copy(s.m, q.m)
		copy(s.v, q.v)
		_, _, lik, err := l.space.at(t)
		if err == nil {
			err = terms.under(lik).expect(s, nil, l.workers)
		}
		if err != nil {
			s.e[0] = math.NaN()
		}
		return s
	}
	up, down := at(likelihoodStep), at(-likelihoodStep)
	_, gaussian := terms.lik.(GaussianNoise)
	for n := range q.m {
		slope -= (up.e[n] - down.e[n]) / (2 * likelihoodStep)
		curve -= (up.e[n] - 2*q.e[n] + down.e[n]) / (likelihoodStep * likelihoodStep)
		if q.gamma[n] > 0 {
			u[n*stride] = -(up.d1[n] - down.d1[n]) / (2 * likelihoodStep * q.gamma[n])
		}
	}
	if gaussian {
		return slope, 0
	}
	return slope, 0.5 * curve
}
