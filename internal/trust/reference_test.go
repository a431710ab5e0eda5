package trust

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// refProblem is a model by sites in whitened coordinates. It has z ~ N(0, I) in R^r, and terms
// w_n log p(y_n|o_n + a_nᵀz + ε_n) with ε_n ~ N(0, c_n). Every model with a Gaussian prior of its
// latent values has this form. A GLM with prior covariance LLᵀ has a_n = LᵀX_n, and a GP has AAᵀ
// = K.
//
// The solver looks for the optimal q(z) = N(μ, V) by Newton steps on the bound in the parameters
// γ̃ of the sites,
//
//	V⁻¹ = P = I + Σ γ̃_n a_na_nᵀ.
//
// It starts from a few rounds of exact coordinate ascent over the sites. It is slow and uses no
// engine of the package, and it computes with twice the precision of float64 whatever cancels.
// Its expectations come from refExpect, in float64.
type refProblem struct {
	lik              Likelihood
	n, r             int
	a                []double // n×r
	offset           []double
	y, weight, extra []float64
	diagonal         bool // V is diagonal
	work             int  // work so far, in operations of about 10 ns
}

// refState holds a q and quantities that follow from it.
type refState struct {
	gamma []float64 // γ̃, or nil if q is diagonal
	mu    []double
	sd    []double // standard deviations if q is diagonal
	chol  []double // Cholesky factor of P if q is not diagonal
	t     []float64
	eta   []float64 // o_n + a_nᵀμ
	v     []float64 // a_nᵀVa_n
	x     []refMoments
	f     double // −ELBO
	err   float64
}

var errReference = errors.New("the reference has no answer")

// refSolution holds the optimum: its ELBO and the rounding error of the ELBO, a bound or
// second-order estimate of the gap, and the marginals of the terms.
type refSolution struct {
	elbo, err, gap float64
	proved         bool
	m, v           []float64 // moments of o_n + a_nᵀz + ε_n
	// curvature is the Cholesky factor of I + Σ γ_n a_na_nᵀ, the second derivative in the mean.
	curvature []double
	state     *refState
	problem   *refProblem
	steps     int
}

// refSteps is the largest number of Newton steps.
const refSteps = 100

// refWork is the work after which the reference gives up, which takes seconds.
const refWork = 200e6

func (p *refProblem) spent() bool { return p.work > refWork }

// expectation returns the expectations of term n under N(m, v).
func (p *refProblem) expectation(n int, m, v float64) refMoments {
	x := refExpect(p.lik, p.y[n], m, v)
	p.work += 4 * x.nodes
	return x
}

func (p *refProblem) concave() bool {
	switch l := p.lik.(type) {
	case StudentT, ZeroInflated, Beta, BetaBinomial:
		return false
	case Hurdle:
		return l.Shape == 0 || l.Shape >= 1
	}
	return true
}

// selfConcordant reports whether |ℓ‴| ≤ −ℓ″ for the likelihood.
func (p *refProblem) selfConcordant() bool {
	switch p.lik.(type) {
	case StudentT, Laplace, BernoulliProbit, Hurdle, Weibull, LogNormal:
		return false
	}
	return true
}

func (p *refProblem) row(n int) []double { return p.a[n*p.r : (n+1)*p.r] }

func (p *refProblem) weightOf(n int) float64 {
	if p.weight == nil {
		return 1
	}
	return p.weight[n]
}

// spreadOf returns the square root of aᵀ(CCᵀ)⁻¹a.
func spreadOf(c, a []double) float64 {
	b := slices.Clone(a)
	forwardDouble(c, b)
	return math.Sqrt(dotDouble(b, b).float())
}

// precision returns the Cholesky factor of I + Σ g_n a_na_nᵀ.
func (p *refProblem) precision(g []float64) ([]double, bool) {
	c := make([]double, p.r*p.r)
	for i := range p.r {
		c[i*p.r+i] = asDouble(1)
	}
	for n, gn := range g {
		if gn == 0 {
			continue
		}
		a := p.row(n)
		for i, x := range a {
			if x.hi == 0 {
				continue
			}
			x = x.times(asDouble(gn))
			ci := c[i*p.r:]
			for j := range i + 1 {
				ci[j] = ci[j].plus(x.times(a[j]))
			}
		}
	}
	p.work += p.r*p.r*p.r/3 + p.n*p.r*p.r
	return c, choleskyDouble(c, p.r)
}

// whiten returns the rows C⁻¹a_n, rounded to float64, and their squared norms.
func (p *refProblem) whiten(c []double) (t, v []float64) {
	t, v = make([]float64, p.n*p.r), make([]float64, p.n)
	b := make([]double, p.r)
	for n := range p.n {
		copy(b, p.row(n))
		forwardDouble(c, b)
		v[n] = dotDouble(b, b).float()
		for j, x := range b {
			t[n*p.r+j] = x.float()
		}
	}
	return t, v
}

// expect completes s, which has its marginal variances. The argument kl is KL − ½|μ|².
func (p *refProblem) expect(s *refState, kl double) bool {
	kl = kl.plus(dotDouble(s.mu, s.mu).times(asDouble(0.5)))
	s.eta, s.x = make([]float64, p.n), make([]refMoments, p.n)
	s.f, s.err = kl, 0
	for n := range p.n {
		w := p.weightOf(n)
		s.eta[n] = dotDouble(p.row(n), s.mu).plus(p.offset[n]).float()
		if w == 0 {
			continue
		}
		x := p.expectation(n, s.eta[n], s.v[n]+p.extra[n])
		s.x[n] = x
		s.f = s.f.minus(asDouble(w * x.e[0]))
		s.err += w * (x.size + math.Abs(x.e[1])*(math.Abs(s.eta[n])) + math.Abs(x.e[2])*s.v[n])
	}
	s.err = 4e-16 * (s.err + math.Abs(kl.float()))
	f := s.f.float()
	return !math.IsNaN(f) && !math.IsInf(f, 0)
}

// at returns the state with full covariance, the given sites and the given mean.
func (p *refProblem) at(gamma []float64, mu []double) (*refState, bool) {
	s := &refState{gamma: gamma, mu: mu}
	var ok bool
	if s.chol, ok = p.precision(gamma); !ok {
		return s, false
	}
	s.t, s.v = p.whiten(s.chol)
	trace := asDouble(0) // tr V − r
	for n, g := range gamma {
		trace = trace.minus(asDouble(g).times(asDouble(s.v[n])))
	}
	return s, p.expect(s, trace.plus(asDouble(logDetDouble(s.chol, p.r))).times(asDouble(0.5)))
}

// derivatives returns derivatives of −w_n E log p in the mean: the negative first derivative, the
// second and third derivatives, and half the fourth derivative.
func (p *refProblem) derivatives(s *refState) (d1, g, gm, gv []float64) {
	d1, g, gm, gv = make([]float64, p.n), make([]float64, p.n), make([]float64, p.n),
		make([]float64, p.n)
	for n := range p.n {
		w := p.weightOf(n)
		e := s.x[n].e
		d1[n], g[n], gm[n], gv[n] = w*e[1], -w*e[2], -w*e[3], -0.5*w*e[4]
	}
	return d1, g, gm, gv
}

// gradient returns δ = μ − Aᵀd1, the gradient of −ELBO in the mean.
func (p *refProblem) gradient(mu []double, d1 []float64) []double {
	d := append([]double(nil), mu...)
	for n, x := range d1 {
		if x != 0 {
			for j, a := range p.row(n) {
				d[j] = d[j].minus(a.times(asDouble(x)))
			}
		}
	}
	return d
}

func (p *refProblem) times(x []double) []float64 {
	y := make([]float64, p.n)
	for n := range y {
		y[n] = dotDouble(p.row(n), x).float()
	}
	return y
}

// newton takes a Newton step of −ELBO from s. In coordinates with V = I, let V' = (I + E)² with E
// = −½Σ ε_n t_nt_nᵀ, and μ' = μ + δμ. It solves
//
//	(I + GQ)ε = γ − γ̃ + γ_m∘δη₀,   Q = S∘S,   G = diag γ_v − ½ diag γ_m S' diag γ_m,
//
// with S = AVAᵀ, S' = AP'⁻¹Aᵀ for the precision P' = I + AᵀΓA, the derivatives γ_m and γ_v of γ =
// −w E[ℓ″], and δη₀ = −AP'⁻¹δ. The step is exact at the optimum, because P = P' there. The result
// gap is the remaining decrement to second order.
func (p *refProblem) newton(s *refState) (gamma []float64, mu []double, target []float64,
	targetMu []double, gap float64, ok bool) {
	d1, g, gm, gv := p.derivatives(s)
	for _, x := range g {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, nil, nil, nil, math.Inf(1), false
		}
	}
	c, pd := p.precision(g)
	if !pd {
		c = s.chol
	}
	tt, _ := p.whiten(c)
	h := p.gradient(s.mu, d1)
	delta := append([]double(nil), h...)
	forwardDouble(c, h)
	decrement := dotDouble(h, h).float()
	backwardDouble(c, h)
	eta0 := p.times(h)
	floats.Scale(-1, eta0)
	targetMu = make([]double, p.r)
	for j := range targetMu {
		targetMu[j] = s.mu[j].minus(h[j])
	}
	n := p.n
	t, t2 := mat.NewDense(n, max(p.r, 1), nil), mat.NewDense(n, max(p.r, 1), nil)
	if p.r > 0 {
		copy(t.RawMatrix().Data, s.t)
		copy(t2.RawMatrix().Data, tt)
	}
	var q, s2, m mat.Dense
	q.Mul(t, t.T())
	q.MulElem(&q, &q)
	s2.Mul(t2, t2.T())
	rhs := make([]float64, n)
	quad := 0.0
	for i := range n {
		di := g[i] - s.gamma[i]
		rhs[i] = di + gm[i]*eta0[i]
		for j := range n {
			quad += di * q.At(i, j) * (g[j] - s.gamma[j])
		}
	}
	gap = 0.5*decrement + 0.25*quad
	var gq mat.Dense
	gq.Apply(func(i, j int, x float64) float64 { return -0.5 * gm[i] * x * gm[j] }, &s2)
	for i := range n {
		gq.Set(i, i, gq.At(i, i)+gv[i])
	}
	m.Mul(&gq, &q)
	for i := range n {
		m.Set(i, i, m.At(i, i)+1)
	}
	var eps mat.VecDense
	if err := eps.SolveVec(&m, mat.NewVecDense(n, rhs)); err != nil &&
		!errors.As(err, new(mat.Condition)) {
		return nil, nil, g, targetMu, gap, true
	}
	e := eps.RawVector().Data
	var dv mat.VecDense
	dv.MulVec(&q, &eps)
	// δμ = −P'⁻¹(δ + Aᵀ½γ_m∘δv), δv = −Qε.
	for i := range n {
		x := -0.5 * gm[i] * dv.AtVec(i)
		for j, a := range p.row(i) {
			delta[j] = delta[j].plus(a.times(asDouble(x)))
		}
	}
	forwardDouble(c, delta)
	backwardDouble(c, delta)
	mu = make([]double, p.r)
	for j := range mu {
		mu[j] = s.mu[j].minus(delta[j])
		if math.IsNaN(mu[j].hi) {
			return nil, nil, g, targetMu, gap, true
		}
	}
	gamma = make([]float64, n)
	for i := range gamma {
		gamma[i] = s.gamma[i] + e[i]
		if math.IsNaN(gamma[i]) || math.IsInf(gamma[i], 0) {
			return nil, nil, g, targetMu, gap, true
		}
	}
	return gamma, mu, g, targetMu, gap, true
}

// decrement returns the distance to the optimum in nats, to second order.
func (p *refProblem) decrement(s *refState) float64 {
	_, _, _, _, gap, _ := p.newton(s)
	return gap
}

// between returns the state at the fraction share of the way from s to the given sites and mean.
func (p *refProblem) between(s *refState, gamma []float64, mu []double, share float64) (*refState,
	bool) {
	g, m := make([]float64, p.n), make([]double, p.r)
	for n := range g {
		g[n] = s.gamma[n] + share*(gamma[n]-s.gamma[n])
		if p.concave() {
			g[n] = math.Max(g[n], 0.1*s.gamma[n])
		}
	}
	for j := range m {
		m[j] = s.mu[j].plus(mu[j].minus(s.mu[j]).times(asDouble(share)))
	}
	return p.at(g, m)
}

// search halves the step from s to the given sites and mean until −ELBO falls.
func (p *refProblem) search(s *refState, gamma []float64, mu []double, least float64) (*refState,
	bool) {
	if gamma == nil {
		return s, false
	}
	for share := 1.0; share >= least; share /= 2 {
		if next, ok := p.between(s, gamma, mu, share); ok && next.f.minus(s.f).float() < 0 {
			return next, true
		}
	}
	return s, false
}

// prior returns the state to start from if nothing is known.
func (p *refProblem) prior() *refState {
	s, _ := p.at(make([]float64, p.n), make([]double, p.r))
	return s
}

// near returns the state that is one step of the fixed point away from the marginals N(m, v) of
// o_n + a_nᵀz + ε_n. It minimizes a model of −ELBO that is linear in the parameters of the sites.
// It is nil if the marginals are of no use.
func (p *refProblem) near(m, v []float64) *refState {
	g, d1 := make([]float64, p.n), make([]float64, p.n)
	mu := make([]double, p.r)
	for n := range g {
		w := p.weightOf(n)
		if w == 0 {
			continue
		}
		x := p.expectation(n, m[n], math.Max(v[n], p.extra[n]))
		g[n], d1[n] = -w*x.e[2], w*x.e[1]
		if bad := g[n] + d1[n]; math.IsNaN(bad) || math.IsInf(bad, 0) {
			return nil
		}
		b := asDouble(d1[n]).plus(asDouble(g[n]).times(asDouble(m[n]).minus(p.offset[n])))
		for j, a := range p.row(n) {
			mu[j] = mu[j].plus(a.times(b))
		}
	}
	c, ok := p.precision(g)
	if !ok {
		return nil
	}
	forwardDouble(c, mu)
	backwardDouble(c, mu)
	if s, ok := p.at(g, mu); ok {
		return s
	}
	return nil
}

// sweep maximizes the ELBO over the site of each term in turn while the other sites stay fixed.
// It optimizes the marginal (m, s) of the term under the cavity N(m_c, v_c).
func (p *refProblem) sweep(s *refState, times int) *refState {
	r := p.r
	gamma := append([]float64(nil), s.gamma...)
	mu := append([]double(nil), s.mu...)
	best := s
	// An arbitrary mean is not of the form Aᵀ(b − γ̃η), so b_n is not known, and the part of the
	// mean outside that space stays in the prior. The sites begin with b = γ̃η at the given mean,
	// so that nothing moves without need.
	b := make([]double, p.n)
	if s.v == nil {
		return s
	}
	for range times {
		c, ok := p.precision(gamma)
		if !ok {
			return best
		}
		v := inverseDouble(c, r)
		for n := range p.n {
			w := p.weightOf(n)
			if w == 0 {
				continue
			}
			a := p.row(n)
			t := make([]double, r)
			for i := range r {
				t[i] = dotDouble(v[i*r:(i+1)*r], a)
			}
			vn, m := dotDouble(a, t), dotDouble(a, mu)
			if p.work += 4 * r * r; p.spent() {
				return best
			}
			if !(vn.hi > 0) {
				continue
			}
			g0 := asDouble(gamma[n])
			if gamma[n] != 0 && b[n] == (double{}) {
				b[n] = g0.times(m)
			}
			left := asDouble(1).minus(g0.times(vn))
			if !(left.hi > 1e-24) {
				continue
			}
			vc := vn.over(left)
			mc := vc.times(m.over(vn).minus(b[n]))
			g1, b1, ok := p.site(n, mc.float(), vc.float(), m.float(), vn.float())
			if !ok {
				continue
			}
			dg := asDouble(g1).minus(g0)
			k := asDouble(1).plus(dg.times(vn))
			if !(k.hi > 0) {
				continue
			}
			db := asDouble(b1).minus(b[n]).minus(dg.times(m)).over(k)
			f := dg.over(k)
			for i := range r {
				mu[i] = mu[i].plus(t[i].times(db))
				ti := f.times(t[i])
				for j := range r {
					v[i*r+j] = v[i*r+j].minus(ti.times(t[j]))
				}
			}
			gamma[n], b[n] = g1, asDouble(b1)
		}
		next, ok := p.at(append([]float64(nil), gamma...), append([]double(nil), mu...))
		if !ok {
			continue
		}
		if f := best.f.float(); !(f <= next.f.float()) || best.x == nil {
			best = next
		}
	}
	return best
}

// site minimizes ((m − m_c)² + s²)/2v_c − log s − w E log p over m and s. It takes Newton steps,
// or steps of the fixed point if these are better. It returns the site of the minimum in natural
// parameters of η without offset.
func (p *refProblem) site(n int, mc, vc, m, v float64) (gamma, b float64, ok bool) {
	w, o, c := p.weightOf(n), p.offset[n].float(), p.extra[n]
	s := math.Sqrt(v)
	value := func(m, s float64) (refMoments, float64) {
		x := p.expectation(n, o+m, c+s*s)
		f := 0.5*((m-mc)*(m-mc)+s*s)/vc - math.Log(s) - w*x.e[0]
		if math.IsNaN(f) || math.IsInf(x.e[2], 0) || math.IsInf(x.e[4], 0) || math.IsNaN(x.e[4]) {
			f = math.Inf(1)
		}
		return x, f
	}
	x, f := value(m, s)
	// Newton's steps reduce an exponential by only a factor of e each. So begin at an m where the
	// exponential is at most a few thousand times as precise as the marginal.
	for k := 0; k < 400 && (math.IsInf(f, 1) || s*s*w*math.Abs(x.e[2]) > 1e3); k++ {
		s /= 2
		x, f = value(m, s)
	}
	if math.IsInf(f, 1) { // find a mean that does not overflow
		for k := 0; k < 60 && math.IsInf(f, 1); k++ {
			for _, m = range []float64{mc - math.Ldexp(1, k) - o, mc + math.Ldexp(1, k) - o, -o} {
				if x, f = value(m, s); !math.IsInf(f, 1) {
					break
				}
			}
		}
	}
	if math.IsInf(f, 1) {
		return 0, 0, false
	}
	for range 100 {
		e := x.e
		dm, ds := (m-mc)/vc-w*e[1], s/vc-1/s-w*e[2]*s
		hmm, hms, hss := 1/vc-w*e[2], -w*e[3]*s, 1/vc+1/(s*s)-w*e[2]-w*e[4]*s*s
		moves := [][2]float64{}
		if det := hmm*hss - hms*hms; hmm > 0 && det > 0 {
			moves = append(moves, [2]float64{-(hss*dm - hms*ds) / det, -(hmm*ds - hms*dm) / det})
		}
		if hmm > 0 {
			moves = append(moves, [2]float64{-dm / hmm, 1/math.Sqrt(hmm) - s})
		}
		// If e^m dominates, Newton's steps have length 1.
		far := math.Copysign(math.Sqrt(vc)+math.Abs(m-mc), -dm)
		moves = append(moves, [2]float64{0, -s / 2}, [2]float64{0, s}, [2]float64{-dm * s * s, 0},
			[2]float64{far, 0})
		steep := w*math.Abs(e[2])*s*s > 10
		bm, bs, bx, bf := m, s, x, f
		for _, d := range moves {
			for share := 1.0; share > 1e-8; share /= 4 {
				m1, s1 := m+share*d[0], math.Max(s+share*d[1], s/10)
				if x1, f1 := value(m1, s1); f1 < bf {
					bm, bs, bx, bf = m1, s1, x1, f1
					break
				}
			}
			if bf < f-1e-3*math.Abs(f) && !steep {
				break
			}
		}
		done := f-bf <= 1e-9*(1+math.Abs(f)) && math.Abs(bm-m) <= 1e-6*s
		m, s, x, f = bm, bs, bx, bf
		if done {
			break
		}
	}
	gamma = -w * x.e[2]
	b = w*x.e[1] + gamma*m
	return gamma, b, !math.IsNaN(b) && !math.IsInf(b, 0) && !math.IsInf(gamma, 0)
}

// inverseDouble returns (CCᵀ)⁻¹.
func inverseDouble(c []double, r int) []double {
	v := make([]double, r*r)
	for j := range r {
		e := make([]double, r)
		e[j] = asDouble(1)
		forwardDouble(c, e)
		backwardDouble(c, e)
		for i := range r {
			v[i*r+j] = e[i]
		}
	}
	return v
}

// solve returns the optimum. It starts from the marginals m and v of o_n + a_nᵀz + ε_n, if they
// are not nil.
func (p *refProblem) solve(m, v []float64) (*refSolution, error) {
	if p.diagonal {
		return p.solveDiagonal(nil, nil)
	}
	var s *refState
	if m != nil {
		s = p.near(m, v)
	}
	if s == nil || p.concave() && !(p.decrement(s) < 1) {
		if cold := p.sweep(p.prior(), 3); s == nil || !(s.f.float() <= cold.f.float()) {
			s = cold
		}
	}
	if f := s.f.float(); s.x == nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, fmt.Errorf("no q of finite ELBO was found: %w", errReference)
	}
	gap, steps := math.Inf(1), 0
	for ; steps < refSteps && !p.spent(); steps++ {
		gamma, mu, target, targetMu, left, ok := p.newton(s)
		if !ok {
			break
		}
		gap = left
		next, better := p.search(s, gamma, mu, 1e-3)
		if !better {
			next, better = p.search(s, target, targetMu, 1e-4)
		}
		if better && gap > 1e-6 && s.f.minus(next.f).float() < 0.01*gap {
			if swept := p.sweep(next, 1); swept.f.minus(next.f).float() < 0 {
				next = swept
			}
		}
		if !better {
			if swept := p.sweep(s, 2); gap > 1e-9 && swept.f.minus(s.f).float() < 0 {
				next, better = swept, true
			}
		}
		if !better {
			break
		}
		fell := s.f.minus(next.f).float()
		s = next
		if gap < 1e-9 && fell < 1e-9 {
			gap = p.decrement(s)
			break
		}
	}
	sol := &refSolution{elbo: -s.f.float(), err: s.err, gap: gap, m: s.eta, v: slices.Clone(s.v),
		state: s, problem: p, steps: steps}
	for n, c := range p.extra {
		sol.v[n] += c
	}
	if g, ok := p.certificate(s); ok {
		sol.gap, sol.proved = g, true
	}
	sol.curvature = s.chol
	if !(sol.gap < 1e-3+s.err) {
		return sol, fmt.Errorf("gap %.3g after %d Newton steps: %w", sol.gap, steps, errReference)
	}
	return sol, nil
}

// certificate returns a proved bound on ELBO* − ELBO, if it can prove one. The bound is the
// smaller of
//
//	G0 = ½|δ|² + tr Δ − log|I + Δ|,   Δ = Lᵀ(I + Γ)L − I,
//
// which requires that log p is concave, and for |ℓ‴| ≤ −ℓ″ the self-concordance bound
//
//	G2 = [(1 − t)log(1 − t) + t]/ρ² + ½D²/(1 − D),
//
// with λ² = δᵀ(I + Γ)⁻¹δ, ρ² = max v_n, t = λρ and D = ‖Δ‖_F + λ√(ρ²‖I + Δ‖)/(1 − t). Both bounds
// assume exact expectations.
func (p *refProblem) certificate(s *refState) (float64, bool) {
	if !p.concave() {
		return 0, false
	}
	d1, g, _, _ := p.derivatives(s)
	delta := p.gradient(s.mu, d1)
	norm2 := 0.0
	most := 0.0
	for i := range p.n {
		most = math.Max(most, s.v[i])
		ti := s.t[i*p.r : (i+1)*p.r]
		for j := range p.n {
			x := floats.Dot(ti, s.t[j*p.r:(j+1)*p.r])
			norm2 += (g[i] - s.gamma[i]) * x * x * (g[j] - s.gamma[j])
		}
	}
	norm := math.Sqrt(math.Max(0, norm2))
	if !(norm < 0.5) {
		return 0, false
	}
	bound := 0.5*dotDouble(delta, delta).float() + 0.5*norm*norm/(1-norm)
	if p.selfConcordant() {
		c, ok := p.precision(g)
		if !ok {
			return bound, true
		}
		forwardDouble(c, delta)
		lambda := math.Sqrt(dotDouble(delta, delta).float())
		rho := math.Sqrt(most / (1 - norm))
		t := lambda * rho
		if d := norm + lambda*rho*math.Sqrt(1+norm)/(1-t); t < 0.5 && d < 0.5 {
			first := lambda * lambda
			if rho > 0 && t > 1e-4 {
				first = ((1-t)*math.Log1p(-t) + t) / (rho * rho)
			}
			bound = math.Min(bound, first+0.5*d*d/(1-d))
		}
	}
	return bound, true
}

// solveDiagonal returns the optimum over all q with a diagonal V. It takes Newton steps in the
// means and standard deviations s, in which −ELBO is convex: f(m, s) = ½Σ(μ_j² + s_j² − 1) − Σ
// log s_j − Σ w_n E log p. It starts from mu and sd. If these are nil, it starts from coordinate
// ascent with a full covariance.
func (p *refProblem) solveDiagonal(mu, sd []double) (*refSolution, error) {
	r := p.r
	at := func(mu, sd []double) (*refState, bool) {
		s := &refState{mu: mu, sd: sd, v: make([]float64, p.n)}
		for n := range p.n {
			var v double
			for j, a := range p.row(n) {
				as := a.times(sd[j])
				v = v.plus(as.times(as))
			}
			s.v[n] = v.float()
		}
		kl := double{}
		for _, x := range sd {
			kl = kl.plus(x.times(x).minus(asDouble(1)).times(asDouble(0.5))).minus(
				asDouble(x.log()))
		}
		return s, p.expect(s, kl)
	}
	if mu == nil {
		full := *p
		full.diagonal = false
		begin := full.sweep(full.prior(), 3)
		mu, sd = slices.Clone(begin.mu), make([]double, r)
		for j := range sd {
			x := 1.0
			for n, g := range begin.gamma {
				a := p.row(n)[j].float()
				x += math.Max(0, g) * a * a
			}
			sd[j] = asDouble(1 / math.Sqrt(x))
		}
	}
	s, ok := at(mu, sd)
	for k := 0; k < 200 && !ok; k++ {
		for j := range sd {
			sd[j] = sd[j].times(asDouble(0.25))
		}
		s, ok = at(mu, sd)
	}
	if !ok {
		return nil, fmt.Errorf("no diagonal q of finite ELBO was found: %w", errReference)
	}
	gap, steps := math.Inf(1), 0
	d := 2 * r
	for ; steps < refSteps && !p.spent(); steps++ {
		d1, g, gm, gv := p.derivatives(s)
		grad := append(p.gradient(s.mu, d1), make([]double, r)...)
		h := make([]double, d*d)
		for j := range r {
			h[j*d+j] = asDouble(1)
			x := s.sd[j]
			inv := asDouble(1).over(x)
			grad[r+j] = x.minus(inv)
			h[(r+j)*d+r+j] = asDouble(1).plus(inv.times(inv))
		}
		for n := range p.n {
			if p.weightOf(n) == 0 {
				continue
			}
			a := p.row(n)
			gn, half, quarter := asDouble(g[n]), asDouble(gm[n]), asDouble(2*gv[n])
			u := make([]double, r) // ½∂v/∂s
			for j := range r {
				u[j] = a[j].times(a[j]).times(s.sd[j])
				grad[r+j] = grad[r+j].plus(gn.times(u[j]))
				h[(r+j)*d+r+j] = h[(r+j)*d+r+j].plus(gn.times(a[j]).times(a[j]))
			}
			for i := range r {
				ai, ui, mi := gn.times(a[i]), quarter.times(u[i]), half.times(u[i])
				for j := range i + 1 {
					h[i*d+j] = h[i*d+j].plus(ai.times(a[j]))
					h[(r+i)*d+r+j] = h[(r+i)*d+r+j].plus(ui.times(u[j]))
				}
				for j := range r {
					h[(r+i)*d+j] = h[(r+i)*d+j].plus(mi.times(a[j]))
				}
			}
		}
		c := append([]double(nil), h...)
		p.work += d*d*d/3 + p.n*d*d
		if !choleskyDouble(c, d) { // not log-concave, or rounding errors
			for i := range d {
				for j := range d {
					c[i*d+j] = double{}
				}
				c[i*d+i] = asDouble(math.Sqrt(math.Abs(h[i*d+i].hi) + 1e-3))
			}
		}
		step := append([]double(nil), grad...)
		forwardDouble(c, step)
		gap = 0.5 * dotDouble(step, step).float()
		backwardDouble(c, step)
		better := false
		var next *refState
		for share := 1.0; share > 1e-6; share /= 2 {
			m, t := make([]double, r), make([]double, r)
			for j := range r {
				m[j] = s.mu[j].minus(step[j].times(asDouble(share)))
				t[j] = s.sd[j].minus(step[r+j].times(asDouble(share)))
				if least := s.sd[j].times(asDouble(0.1)); !(t[j].hi > least.hi) {
					t[j] = least
				}
			}
			if next, ok = at(m, t); ok && next.f.minus(s.f).float() < 0 {
				better = true
				break
			}
		}
		if !better {
			break
		}
		fell := s.f.minus(next.f).float()
		s = next
		if gap < 1e-10 && fell < 1e-9 {
			break
		}
	}
	sol := &refSolution{elbo: -s.f.float(), err: s.err, gap: gap, m: s.eta, v: slices.Clone(s.v),
		state: s, problem: p, steps: steps}
	for n, c := range p.extra {
		sol.v[n] += c
	}
	_, g, _, _ := p.derivatives(s)
	if sol.curvature, ok = p.precision(g); !ok {
		return sol, fmt.Errorf("diagonal: no maximum in the mean: %w", errReference)
	}
	if !(gap < 1e-3+s.err) {
		return sol, fmt.Errorf("diagonal: decrement %.3g after %d Newton steps: %w", gap, steps,
			errReference)
	}
	return sol, nil
}

// TestTrustReference checks that the reference finds the evidence under Gaussian noise, in any
// units and with columns that are multiples of each other, and that its certificate proves the
// optimum at once. It also finds the optimum of a Poisson model with zeros and a wide prior.
func TestTrustReference(t *testing.T) {
	t.Parallel()
	same := func(x float64) float64 { return x }
	for seed := range testkit.Shorter[uint64](20, 5) {
		rng := testkit.Rand(seed)
		n, unit := 12, logUniform(rng, -8, 8)
		p := &trustProblem{lik: GaussianNoise{Var: 0.3}, x: mat.NewDense(n, 3, nil),
			y: make([]float64, n), mean: make([]float64, 3), variance: []float64{1, 4, 1e-4}}
		for i := range n {
			z := rng.NormFloat64()
			p.x.SetRow(i, []float64{unit * z, 100 * unit * z, 1})
			p.y[i] = z + rng.NormFloat64()
		}
		ref, err := glmReference(false)(p, same)
		if err != nil {
			t.Fatal(err)
		}
		sol, err := ref.solve(nil, nil)
		if err != nil {
			t.Fatalf("unit %g: %v", unit, err)
		}
		// log N(y|0, K + 0.3 I)
		k := make([]double, n*n)
		y := make([]double, n)
		for i := range n {
			y[i] = asDouble(p.y[i])
			for j := range n {
				k[i*n+j] = dotDouble(ref.row(i), ref.row(j))
			}
			k[i*n+i] = k[i*n+i].plus(asDouble(0.3))
		}
		if !choleskyDouble(k, n) {
			t.Fatal("not positive definite")
		}
		forwardDouble(k, y)
		want := -0.5 * (dotDouble(y, y).float() + logDetDouble(k, n) +
			float64(n)*math.Log(2*math.Pi))
		if !(math.Abs(sol.elbo-want) <= 1e-9*(1+math.Abs(want))) || !sol.proved ||
			!(sol.gap < 1e-9) {
			t.Errorf("unit %g: ELBO %.12g, evidence %.12g, gap %g, proved: %v", unit, sol.elbo,
				want, sol.gap, sol.proved)
		}
	}
	for _, sd := range testkit.Few([]float64{1, 100, 10, 1000}, 2) {
		rng := testkit.Rand(5)
		p := &trustProblem{lik: Poisson{}, x: testkit.NormalMatrix(rng, 21, 60), y: make([]float64,
			21), mean: make([]float64, 60), variance: make([]float64, 60)}
		for i := range p.y {
			p.y[i] = float64(i % 2)
		}
		for j := range p.variance {
			p.variance[j] = sd * sd
		}
		for _, diagonal := range []bool{false, true} {
			ref, err := glmReference(diagonal)(p, same)
			if err != nil {
				t.Fatal(err)
			}
			sol, err := ref.solve(nil, nil)
			if err != nil || !(sol.gap < 1e-6) {
				t.Errorf("prior sd %g: %v, %v", sd, sol, err)
				continue
			}
			t.Logf("prior sd %g, diagonal %v: ELBO %.10g, %d Newton steps, gap %.2g, proved: %v",
				sd, diagonal, sol.elbo, sol.steps, sol.gap, sol.proved)
		}
	}
}
