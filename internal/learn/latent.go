package learn

import (
	"cmp"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// collectRows is the number of rows from which on Release collects garbage, because the matrices of
// a search are then large.
const collectRows = 2000

// Prior is a prior N(0, K) of N latent values as a function of hyperparameters.
type Prior interface {
	Digest(d *save.Digest)
	// Covariance stores K at θ in dst, both triangles, and returns the terms there. It reports
	// false if θ is out of range, if K is not finite, or if h has stopped.
	Covariance(h *parallel.Halt, dst, theta []float64) (*term.Terms, bool)
	// Slopes stores, at the θ of the last call of Covariance,
	//
	//	½Σ_ij (W − aaᵀ)_ij ∂K_ij/∂θ_p
	//
	// in grad for each coordinate p that does not belong to the likelihood. Only the lower
	// triangle of W counts.
	Slopes(h *parallel.Halt, grad, w, a []float64)
	// Changes stores (∂K/∂θ_p)a in column p of u, at the θ of the last call of Covariance. u has
	// one column for each coordinate of the space.
	Changes(h *parallel.Halt, u, a []float64)
}

// Latent is the Model of n latent values with all of their covariance.
type Latent struct {
	fitter
	prior Prior
	space *Space

	k     []float64
	prob  site.Problem
	mover inverseMover
	base  term.Marginals
}

// NewLatent returns the Model of n latent values with the given prior.
func NewLatent(prior Prior, space *Space, n int) *Latent {
	l := &Latent{fitter: fitter{n: n}, prior: prior, space: space}
	l.fit = l.fitAt
	return l
}

// Digest implements Model.
func (l *Latent) Digest(d *save.Digest) { l.prior.Digest(d) }

// Use implements Model.
func (l *Latent) Use(c term.Crew) {
	l.fitter.Use(c)
	l.prob.Workers, l.mover.Fac.Halt = c, c.Halt
}

// Work implements Model.
func (l *Latent) Work() float64 { return l.units + l.mover.units }

// State implements Model.
func (l *Latent) State(c *save.Coder, n int) {
	l.fitter.State(c, n)
	c.Float(&l.mover.units)
}

// Release gives up the matrices of n × n numbers. The next Evaluate makes them again.
func (l *Latent) Release() {
	l.k = nil
	halt, units := l.mover.Fac.Halt, l.mover.units
	l.mover = inverseMover{units: units}
	l.mover.Fac.Halt = halt
	if l.n >= collectRows {
		runtime.GC() // or what follows is allocated next to them
	}
}

// fitAt implements fitter.fit.
func (l *Latent) fitAt(theta []float64, slack, most float64) (x search.Point, err error) {
	l.k = dense.Resize(l.k, l.n*l.n)
	terms, ok := l.prior.Covariance(l.workers.Halt, l.k, theta)
	if !ok {
		return x, errNoValue
	}
	err = terms.Sure(func() (err error) {
		x.Slack, err = l.expect(terms, theta, slack)
		return err
	})
	if err = cmp.Or(l.workers.Halt.Err(), err); err != nil {
		return x, err
	}
	q := &l.prob.Cur
	if !l.resolved() {
		return x, errNoValue
	}
	l.remember(theta, q.Gamma, q.A, q.M)
	x.F, x.Slack = q.Value, x.Slack+l.rounding()
	if !wanted(x.F, most) {
		return x, nil
	}
	if !l.mover.Current {
		if _, l.mover.Current = l.mover.Cover(l.prob.Try.V, q.Gamma); !l.mover.Current {
			return x, errNoValue
		}
	}
	l.slopes(&x, terms, theta)
	return x, nil
}

// These constants control the search for the ratio of noise to scale.
const (
	noiseStep  = 2.772588722239781 // log 16: from one log variance to the next,
	noiseTries = 7                 // at most this many tries
	noiseBends = 2                 // before minima of parabolas
	noiseNear  = 0.1               // that are not as near as this to a known point
)

// Profiles implements Noisy.
func (l *Latent) Profiles() bool {
	return l.space.Noise >= 0
}

// Profile implements Noisy. With S = diag(w)/v, for noise of variance v and weights w, −ELBO at
// the best q is
//
//	½log|I + SK| + ½yᵀ(I + SK)⁻¹Sy + ½Σ w log 2πv.
//
// One factorization gives it for all sK and sv, as a function of log s that is convex together
// with the priors. A jitter is scaled in proportion.
func (l *Latent) Profile(theta []float64) (search.Point, error) {
	x := search.Point{Theta: slices.Clone(theta), F: math.Inf(1)}
	noise := l.space.Noise
	l.k = dense.Resize(l.k, l.n*l.n)
	terms, ok := l.prior.Covariance(l.workers.Halt, l.k, theta)
	if !ok {
		return x, l.workers.Halt.Err()
	}
	gamma, c, delta, u := make([]float64, l.n), make([]float64, l.n), make([]float64, l.n),
		make([]float64, l.n)
	terms.KnownSites(gamma, c)
	var weights float64
	for i := range gamma {
		_, _, weight, _ := terms.Term(i)
		weights += weight
	}
	fac := &l.mover.Fac
	l.mover.Current = false
	// the minimum if the log variance of the noise is larger by t and then moves with the scale
	lo, hi := l.space.noisier(theta)
	bracket(func(t float64) float64 {
		l.units++
		t = max(lo, min(hi, t))
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
		if f += l.space.scaled(at, weights, square); f < x.F {
			x.Theta, x.F = at, f
		}
		return f
	}, noiseStep, noiseTries, noiseBends, noiseNear)
	x.Prior = l.space.Penalty(x.Theta, nil)
	return x, l.workers.Halt.Err()
}

// bracket looks for a minimum of f downhill from 0. It steps until f rises again, or until it has
// taken the given number of steps. It then tries the minima of parabolas, unless they are near the
// best point so far.
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

// mostDrift is the number of nats by which rounding may change an ELBO that a search uses.
const mostDrift = 1e-3

// resolved reports whether the mean of q is Ka and its value is KL − ΣE, within the given number
// of nats.
func (l *Latent) resolved() bool {
	q, p := &l.prob.Cur, &l.prob
	dense.Symv(1, dense.Symmetric(l.k, p.N), dense.Vector(q.A), 0, dense.Vector(p.D))
	kl, size, drift := q.LogDet, math.Abs(q.LogDet), 0.0
	for i, m := range q.M {
		kl += q.A[i]*m - q.Gamma[i]*q.V[i]
		size += math.Abs(q.A[i]*m) + math.Abs(q.Gamma[i]*q.V[i])
		drift += q.A[i] * (m - p.D[i])
	}
	return math.Abs(drift)+math.Abs(0.5*kl-floats.Sum(q.E)-q.Value) <= mostDrift &&
		dense.Epsilon*size <= mostDrift && kl > -mostDrift
}

// rounding estimates the number of nats by which rounding changes the value of q. With B = I +
// Γ^½KΓ^½, whose condition is about tr ΓK, the variances are (1 − (B⁻¹)_ii)/γ_i, and ½γ_i of their
// error counts. If labels determine latent values far better than the prior, few digits of these
// differences are left.
func (l *Latent) rounding() float64 {
	return 0.5 * dense.Epsilon * term.Size(l.k, l.prob.Cur.Gamma)
}

// learnSteps bounds the steps of q at one θ.
const learnSteps = 60

// expect finds q within the given number of nats, in l.prob.Cur, and returns by how many nats its
// value may be too high. It does not give up a distant q, because the gain that its linearized
// problem predicts is not a bound there. If the targets of the sites converge slowly, for example
// for large counts under a wide prior, it takes Newton steps.
func (l *Latent) expect(terms *term.Terms, theta []float64, slack float64) (gap float64,
	err error) {
	n, p := l.n, &l.prob
	l.base.Resize(n)
	clear(l.base.Gamma)
	clear(l.base.A)
	clear(l.base.M)
	for i := range n {
		l.base.V[i] = l.k[i*n+i]
	}
	l.mover.Reset(l.k, n)
	p.Prepare(terms, nil, &l.mover, &l.base)
	if !l.warm(terms, theta) {
		if err := l.cold(terms); err != nil {
			return 0, err
		}
	}
	var f site.Progress
	for range learnSteps {
		l.settle(meanPart * slack)
		if gap = l.gap(); gap <= slack {
			break
		}
		f.Add(gap, n, n)
		if _, ok := p.Stride(&f); !ok {
			break
		}
		l.mover.Current = true
	}
	return gap, nil
}

// cold starts q from the prior. If that is better, it starts from the sites that the responses
// alone suggest, each at its response, for responses on the scale of the latent values.
func (l *Latent) cold(terms *term.Terms) error {
	p := &l.prob
	l.mover.Current = false
	if err := p.Start(); err != nil || !terms.Lik.Real() {
		return err
	}
	for i := range terms.Y {
		y, offset, _, _ := terms.Term(i)
		g := -terms.Expectation(i, y-offset, 0).D2
		if !(g > 0) || math.IsInf(g, 0) {
			return nil
		}
		p.Try.Gamma[i], p.Try.C[i] = g, g*(y-offset)
	}
	if p.Eval() && p.Accept() {
		l.mover.Current = true
	}
	return nil
}

// warm starts q from the sites of the nearest θ so far, moved along secants, and reports whether
// it could.
func (l *Latent) warm(terms *term.Terms, theta []float64) bool {
	p := &l.prob
	if !terms.KnownSites(p.Try.Gamma, p.Try.C) {
		if len(l.past) == 0 {
			return false
		}
		l.extrapolate(p.Try.Gamma, p.Try.C, p.Try.M, theta)
		for i, m := range p.Try.M {
			p.Try.C[i] += p.Try.Gamma[i] * m
		}
	}
	if !p.Eval() || math.IsInf(p.Try.Value, 0) {
		return false
	}
	p.Cur, p.Try = p.Try, p.Cur
	p.Mover.Accept()
	l.mover.Current = true
	return true
}

// gap estimates how many nats q is below the best. It is the gain that the linearized problem
// predicts, as in site.DenseAlgebra.decrement, except that the precision part uses only variances
// instead of covariances.
func (l *Latent) gap() float64 {
	q, p := &l.prob.Cur, &l.prob
	var precision float64
	for i, v := range q.V {
		p.U[i] = q.A[i] - q.D1[i]
		g := (q.Tg[i] - q.Gamma[i]) * v
		precision += g * g
	}
	if q.Wild {
		return math.Inf(1)
	}
	if !l.mover.Current { // at the prior
		dense.Symv(1, dense.Symmetric(l.k, p.N), dense.Vector(p.U), 0, dense.Vector(p.D))
		return 0.5*floats.Dot(p.U, p.D) + 0.25*precision
	}
	copy(p.D, p.U)
	l.mover.Fac.Solve(p.D)
	l.mover.Fac.MulC(p.D)
	return 0.5*floats.Dot(p.U, l.mover.Fac.T) + 0.25*precision
}

// meanPart is the fraction of the slack of q that the mean may use at fixed covariances.
const meanPart = 0.1

// settle moves the mean, with the covariances of q fixed, to within the given number of nats of
// the best.
func (l *Latent) settle(slack float64) {
	p := &l.prob
	if !l.mover.Current || !p.Inner(slack, 0) {
		return
	}
	p.Cur.Marginals, *p.In.At = *p.In.At, p.Cur.Marginals
	p.Cur.Value = p.In.Value
	for i, g := range p.Cur.Gamma {
		p.Cur.C[i] = p.Cur.A[i] + g*p.Cur.M[i]
	}
}

// inverseMover is a site.CovMover that needs only the inverse of the factor.
type inverseMover struct {
	site.CovMover
	inverse dense.Inverse
	units   float64
}

func (a *inverseMover) Cover(v, delta []float64) (logDet float64, ok bool) {
	copy(a.Last, delta)
	a.Current = false
	a.units += 2
	if !a.Fac.Factor(a.Cov, a.N, delta) {
		return 0, false
	}
	a.units += negativeUnits * float64(len(a.Fac.Neg)) / float64(a.N)
	return a.Fac.LogDet, a.inverse.Variances(&a.Fac, v)
}

// covarianceUnits is the work of computing all of V.
const covarianceUnits = 3

func (a *inverseMover) Covariance() []float64 {
	a.units += covarianceUnits
	return a.CovMover.Covariance()
}

// negativeUnits is the additional cost of variances and weights if every γ is negative.
const negativeUnits = 6

// slopes stores the gradient and the average information at the current q in x. A parameter of the
// likelihood enters U like a change of the noise, as −(∂²E/∂m∂θ)/γ, and the curvature of E itself
// is a lower bound on its information.
func (l *Latent) slopes(x *search.Point, terms *term.Terms, theta []float64) {
	n, q, nf := l.n, &l.prob.Cur, len(l.space.Coords)
	l.units++
	w := l.mover.inverse.Weights(&l.mover.Fac)
	l.mover.Current = false // the inverse was overwritten
	x.Grad, x.Info = make([]float64, nf), mat.NewSymDense(nf, nil)
	u := make([]float64, n*nf)
	l.prior.Slopes(l.workers.Halt, x.Grad, w, q.A)
	l.prior.Changes(l.workers.Halt, u, q.A)
	least := make([]float64, nf)
	for i := range l.space.Coords {
		if l.space.Coords[i].Likelihood {
			x.Grad[i], least[i] = l.space.likelihoodSlope(u[i:], terms, &q.Marginals, l.workers, theta,
				i)
		}
	}
	l.information(x.Info, w, u, nf)
	for i := range nf {
		x.Info.SetSym(i, i, max(x.Info.At(i, i), least[i]))
	}
}

// information stores ½UᵀWU in info, where U is N×nf. w holds the lower triangle of W, with zeros
// above it.
func (l *Latent) information(info *mat.SymDense, w, u []float64, nf int) {
	n := l.n
	tu, utu := make([]float64, n*nf), make([]float64, nf*nf)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(w, n, n), dense.General(u, n, nf), 0,
		dense.General(tu, n, nf))
	for r := range n { // half of the diagonal belongs to either triangle
		floats.AddScaled(tu[r*nf:(r+1)*nf], -0.5*w[r*n+r], u[r*nf:(r+1)*nf])
	}
	dense.Gemm(blas.Trans, blas.NoTrans, 1, dense.General(u, n, nf), dense.General(tu, n, nf), 0,
		dense.General(utu, nf, nf))
	for i := range nf {
		for j := range i + 1 {
			info.SetSym(i, j, 0.5*(utu[i*nf+j]+utu[j*nf+i]))
		}
	}
}

// LikelihoodStep is the step of the differences in a parameter of the likelihood, about the cube
// root of the error of expectations.
const LikelihoodStep = 0x1p-14

// likelihoodSlope returns the derivative of −ΣE in free parameter i of the likelihood, by
// differences at the marginals of q, and half the second derivative. It stores the column of the
// parameter in u, which has as many columns as there are free parameters.
//
// Except under Gaussian noise, the column is shrunk until Σγu² is at most the second derivative
// divided by search.Part: a q that follows θ only lowers the curvature, and the search takes this
// part of it. Sites without information, such as distant sites of a Laplace likelihood, would
// otherwise have an arbitrary u and stop the search.
func (s *Space) likelihoodSlope(u []float64, terms *term.Terms, q *term.Marginals, workers term.Crew,
	theta []float64, i int) (slope, curve float64) {
	up, down := s.tilted(terms, q.M, q.V, workers, theta, i, LikelihoodStep),
		s.tilted(terms, q.M, q.V, workers, theta, i, -LikelihoodStep)
	for n := range q.M {
		slope -= (up.E[n] - down.E[n]) / (2 * LikelihoodStep)
		curve -= (up.E[n] - 2*q.E[n] + down.E[n]) / (LikelihoodStep * LikelihoodStep)
		if q.Gamma[n]*q.V[n] > dense.Epsilon {
			u[n*len(s.Coords)] = -(up.D1[n] - down.D1[n]) / (2 * LikelihoodStep * q.Gamma[n])
		}
	}
	if s.Gaussian {
		return slope, 0
	}
	var total float64
	for n, g := range q.Gamma {
		total += g * u[n*len(s.Coords)] * u[n*len(s.Coords)]
	}
	if by := shrunk(total, curve); by < 1 {
		for n := range q.Gamma {
			u[n*len(s.Coords)] *= by
		}
	}
	return slope, 0.5 * curve
}

// tilted returns the expectations of t at means m and variances v, with h added to free parameter i
// of the likelihood. The first expectation is NaN if the computation fails.
func (s *Space) tilted(t *term.Terms, m, v []float64, c term.Crew, theta []float64, i int,
	h float64) *term.Marginals {
	at := slices.Clone(theta)
	at[i] += h
	x := &term.Marginals{}
	x.Resize(len(m))
	copy(x.M, m)
	copy(x.V, v)
	_, under, err := s.At(t, at)
	if err == nil {
		err = under.Expect(x, nil, c)
	}
	if err != nil {
		x.E[0], x.D1[0] = math.NaN(), math.NaN()
	}
	return x
}

// shrunk returns the factor of u that makes Σγu², which is now total, at most curve/search.Part.
func shrunk(total, curve float64) float64 {
	if most := curve / search.Part; most > 0 && total > most {
		return math.Sqrt(most / total)
	}
	return 1
}
