package pgsvi

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/predict"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file carries the uncertainty of learned hyperparameters θ into intervals of weights, means and
// probabilities. With θ = θ̂ + Lz, z ~ N(0, I), the Laplace approximation of Learned, the weights are
// m + Az + V^½ε and the parameters of the likelihood are θ̂ + Bz in the coordinates of Param. This is
// first order in z (Kass and Steffey 1989).

// learnSpread is the uncertainty of learned hyperparameters.
type learnSpread struct {
	weights [][]float64 // the columns of A
	params  [][]float64 // the rows of B, one per parameter of the likelihood; nil if all are 0
}

// paramSpread is the uncertainty of the rows of a Prediction about learned hyperparameters. Row i
// has η = m + along_i·z + √(v − |along_i|²) ε and a likelihood with parameters θ̂ + Bz.
type paramSpread struct {
	b     [][]float64 // the rows of B
	along []float64   // one element per row and z
}

// dims returns the number of elements of z, 0 for a nil s.
func (s *paramSpread) dims() int {
	if s == nil {
		return 0
	}
	return len(s.b[0])
}

// rows returns s for the rows lo … hi−1.
func (s *paramSpread) rows(lo, hi int) *paramSpread {
	if s == nil {
		return nil
	}
	k := s.dims()
	return &paramSpread{s.b, s.along[lo*k : hi*k : hi*k]}
}

// spreadLatents are latents with hyperparameters that may have been learned.
type spreadLatents interface {
	latents
	// latentSpread is latent, and returns the uncertainty about parameters of the likelihood at the
	// rows of x, or nil if none was learned.
	latentSpread(m, v []float64, x mat.Matrix) *paramSpread
}

// latentSpread implements spreadLatents.
func (p *GLMPosterior) latentSpread(m, v []float64, x mat.Matrix) *paramSpread {
	p.latent(m, v, x)
	if p.spread == nil || p.spread.params == nil || latentsOf(p.lik) > 1 {
		return nil
	}
	rows := len(m)
	k := len(p.spread.weights)
	s := &paramSpread{p.spread.params, make([]float64, rows*k)}
	g, col := newDesign(x, p.opt.Intercept), make([]float64, rows)
	for j, a := range p.spread.weights {
		g.Mul(col, a, nil)
		for i, v := range col {
			s.along[i*k+j] = v
		}
	}
	return s
}

// savedSpread is the uncertainty of learned hyperparameters in a file, with one list after another for
// the z.
type savedSpread struct {
	Z       int                `json:"z"`                    // the number of z
	Weights save.List[float64] `json:"weights"`              // the columns of A, or a of a GP
	Params  save.List[float64] `json:"parameters,omitempty"` // the rows of B
	Kernels save.List[float64] `json:"kernels,omitempty"`    // the parameters of each kernel
	Gamma   save.List[float64] `json:"gamma,omitempty"`      // and its sites
}

// check returns an error that wraps ErrShape or ErrNotFinite if s does not fit n weights or rows, the
// likelihood, and a kernel with params parameters.
func (s *savedSpread) check(n int, lik Likelihood, params int) error {
	for _, of := range []struct {
		name     string
		list     []float64
		each     int
		optional bool
	}{
		{"weights", s.Weights, n, false}, {"parameters", s.Params, numLikelihoodParams(lik), true},
		{"kernels", s.Kernels, params, params == 0}, {"gamma", s.Gamma, n, true},
	} {
		if got := len(of.list); s.Z < 1 || s.Z > save.Most || got%s.Z != 0 ||
			got/s.Z != of.each && !(of.optional && got == 0) {
			return fmt.Errorf("%d learned %s for %d z, want %d each: %w", got, of.name, s.Z, of.each,
				ErrShape)
		}
		if j, ok := dense.AllFinite(of.list); !ok {
			return fmt.Errorf("element %d of the learned %s is %v: %w", j, of.name, of.list[j],
				ErrNotFinite)
		}
	}
	return nil
}

// chunks returns the parts of l, of which there are n.
func chunks(l []float64, n int) [][]float64 {
	if len(l) == 0 {
		return nil
	}
	return slices.Collect(slices.Chunk(l, len(l)/n))
}

// save returns s as it is saved.
func (s *learnSpread) save() *savedSpread {
	if s == nil {
		return nil
	}
	return &savedSpread{Z: len(s.weights), Weights: slices.Concat(s.weights...),
		Params: slices.Concat(s.params...)}
}

// load returns the spread of d weights.
func (s *savedSpread) load(d int, lik Likelihood) (*learnSpread, error) {
	if s == nil {
		return nil, nil
	}
	if err := s.check(d, lik, 0); err != nil {
		return nil, err
	}
	return &learnSpread{chunks(s.Weights, s.Z), chunks(s.Params, numLikelihoodParams(lik))}, nil
}

// wide returns the covariance of the weights with the uncertainty of the hyperparameters, V + AAᵀ.
func (p *GLMPosterior) wide() gauss.Cov {
	if p.spread == nil {
		return p.cov
	}
	return &gauss.Spread{Cov: p.cov, A: p.spread.weights}
}

// glmTurns are the derivatives by which the mean of the weights moves with the likelihood.
type glmTurns struct {
	// turn returns Xᵀ(∂α/∂θ_i) for free coordinate i, a parameter of the likelihood, or nil if it
	// is not known.
	turn func(i int) []float64
	// solve stores (Λ + XᵀΓX)⁻¹b in dst.
	solve func(dst, b []float64)
}

// spread returns the uncertainty of the hyperparameters that the search st has learned, for the
// posterior post of its final fit. It is nil if the curvature of the search is not known.
func (l *glmLearner) spread(st *learnStepper, post *GLMPosterior, by glmTurns) *learnSpread {
	factor := st.run.Factor()
	pull, err := l.scale.Pull(st.run.Best.Theta, post.mean)
	if factor == nil || err != nil {
		return nil
	}
	dm := make([][]float64, len(pull))
	for i := range pull {
		if l.space.Coords[i].Likelihood {
			if t := by.turn(i); t != nil {
				pull[i] = t
			}
		}
		dm[i] = make([]float64, len(post.mean))
		by.solve(dm[i], pull[i])
	}
	s := &learnSpread{weights: learn.SpreadOf(dm, factor), params: l.space.paramRows(factor)}
	if s.weights == nil {
		return nil
	}
	return s
}

// paramRows returns the rows of B for the rows of L: zeros for parameters of the likelihood that
// are fixed, and nil if all of them are.
func (s *learnSpace) paramRows(factor [][]float64) (b [][]float64) {
	free, any := 0, false
	for _, c := range s.coords {
		row := make([]float64, len(factor))
		if !c.fixed {
			row = factor[free]
			free++
		}
		if c.Likelihood {
			b, any = append(b, row), any || !c.fixed
		}
	}
	if !any {
		return nil
	}
	return b
}

// rowTurns returns the derivatives of a GLM whose rows are kept, at the state alg of its final fit.
func (l *glmLearner) rowTurns(lin *site.LinearModel, alg site.Algebra, post *GLMPosterior,
	theta []float64, c term.Crew) (by glmTurns, err error) {
	by.solve = post.cov.Mul
	variance, diagonal := post.cov.(gauss.Diagonal)
	if !diagonal && !slices.ContainsFunc(l.space.Coords,
		func(c learn.Coord) bool { return c.Likelihood }) {
		return by, nil
	}
	var at term.Estimates
	if err := alg.Marginals(&at, nil); err != nil {
		return by, err
	}
	by.turn = func(i int) []float64 {
		pull := make([]float64, len(post.mean))
		lin.X.AddMulT(pull, l.space.Turn(lin.Terms, at.M, at.V, c, theta, i), nil)
		return pull
	}
	if diagonal {
		q := &term.State{}
		q.Resize(len(at.M))
		copy(q.M, at.M)
		copy(q.V, at.V)
		if err := lin.Terms.Expect(q, nil, c); err != nil {
			return by, err
		}
		by.solve = (&learn.Curved{X: lin.X, Prec: lin.Prior.Prec, Gamma: q.Tg,
			Variance: variance}).Solve
	}
	return by, nil
}

// streamTurns returns the derivatives of a GLM that goes through its rows, from the last pass of the
// search.
func (l *glmLearner) streamTurns(m *rowsLearning, post *GLMPosterior) glmTurns {
	tilted, ok := m.best.climb.Tilted()
	return glmTurns{solve: post.cov.Mul, turn: func(i int) []float64 {
		k := 0
		for _, c := range l.space.Coords[:i] {
			if c.Likelihood {
				k++
			}
		}
		if !ok || k >= len(tilted) {
			return nil
		}
		return tilted[k].Pull
	}}
}

// withParams returns lik with its parameters replaced, in order, by what value returns for them. The
// range of a parameter may depend on those before it.
func withParams(lik Likelihood, value func(i int, p *Param) float64) Likelihood {
	for i := range numLikelihoodParams(lik) {
		p := lik.(Parametric).Params()
		values := make([]float64, len(p))
		for j := range p {
			values[j] = p[j].Value
		}
		values[i] = value(i, &p[i])
		lik = lik.(Parametric).WithParams(values)
	}
	return lik
}

// numLikelihoodParams returns the number of parameters of lik.
func numLikelihoodParams(lik Likelihood) int {
	if p, ok := lik.(Parametric); ok {
		return len(p.Params())
	}
	return 0
}

// movedParams returns lik with its parameters moved by Bz in their coordinates. A parameter that would
// reach an end of its range stays.
func movedParams(lik Likelihood, b [][]float64, z []float64) Likelihood {
	theta := make([]float64, len(b))
	params := lik.(Parametric).Params()
	for i := range theta {
		theta[i] = params[i].theta(params[i].Value)
		for k, v := range b[i] {
			theta[i] += v * z[k]
		}
	}
	return withParams(lik, func(i int, p *Param) float64 {
		if v := p.value(theta[i]); p.within(v) && !math.IsInf(v, 0) {
			return v
		}
		return p.Value
	})
}

// spreadRow is a row of a Prediction with a paramSpread.
type spreadRow struct {
	lik   Likelihood
	m, sd float64 // sd is that of η at θ̂
	along []float64
	b     [][]float64
}

// spreadRow returns row i of p, which has a paramSpread.
func (p *Prediction) spreadRow(i int) spreadRow {
	along := p.spread.rows(i, i+1).along
	v := p.v[i] - floats.Dot(along, along)
	return spreadRow{p.likOf(i), p.m[i], math.Sqrt(math.Max(0, v)), along, p.spread.b}
}

// moved returns the likelihood and the latent value at ε and z.
func (r *spreadRow) moved(eps float64, z []float64) (lik Likelihood, eta float64) {
	return movedParams(r.lik, r.b, z), r.m + r.sd*eps + floats.Dot(r.along, z)
}

// steepest returns f along the direction of (ε, z) in which it changes most: f(u) is its value u
// standard deviations from the mean. The values at −q and q are the quantiles of f to first order
// (the first-order reliability method; Hasofer and Lind 1974). For an f of η alone they are those at
// m ± q√v.
func (r *spreadRow) steepest(f func(lik Likelihood, eta float64) float64) func(u float64) float64 {
	k := len(r.along)
	z, d := make([]float64, k), make([]float64, k+1)
	d[k] = (f(r.moved(1, z)) - f(r.moved(-1, z))) / 2
	for j := range z {
		z[j] = 1
		up := f(r.moved(0, z))
		z[j] = -1
		d[j] = (up - f(r.moved(0, z))) / 2
		z[j] = 0
	}
	if size := floats.Norm(d, 2); size > 0 {
		floats.Scale(1/size, d)
	}
	return func(u float64) float64 {
		for j := range z {
			z[j] = u * d[j]
		}
		return f(r.moved(u*d[k], z))
	}
}

// probs calls use with the probabilities of the response y at the points of a lattice over (ε, z), in
// increasing order, for each row of p that has a prediction. p has a paramSpread.
func (p *Prediction) probs(y float64, use func(i int, probs []float64)) {
	k := p.spread.dims()
	points := predict.LatticeNormals(k + 1)
	var liks []Likelihood // at the points, if all rows have the same likelihood
	if p.each == nil {
		for _, z := range points {
			liks = append(liks, movedParams(p.lik, p.spread.b, z[1:]))
		}
	}
	parallel.For(p.Len(), 1, runtime.GOMAXPROCS(0), func(_, first, end int) {
		probs := make([]float64, len(points))
		for i := first; i < end; i++ {
			if p.rowErr(i) != nil || !factsOf(p.likOf(i)).contain(y) {
				continue
			}
			r := p.spreadRow(i)
			for j, z := range points {
				var lik Likelihood
				eta := r.m + r.sd*z[0] + floats.Dot(r.along, z[1:])
				if liks != nil {
					lik = liks[j]
				} else {
					lik = movedParams(r.lik, r.b, z[1:])
				}
				probs[j] = math.Exp(lik.LogProb(y, eta))
			}
			slices.Sort(probs)
			use(i, probs)
		}
	})
}

// gpSpread is the uncertainty of the hyperparameters that a GP has learned. Each z moves the kernel,
// a = K⁻¹m and the sites, and so mean m* and variance v* of the latent value at a new point. With
// the derivatives of m* and log v* in z, d and c, its variance is
//
//	E[v*] + Var[m*] = v* e^{|c|²/2} + |d|².
type gpSpread struct {
	kernels []Kernel       // the kernel after a step of spreadStep in each z,
	a       [][]float64    // and a,
	sites   []*dense.Sites // and the factor of the sites, nil if there are many rows,
	gamma   [][]float64    // with these precisions
	params  [][]float64    // the rows of B, or nil
}

const (
	// spreadStep is the step in z of the differences of a gpSpread. Their errors are about as large,
	// and the digits that they lose are far fewer than those of a prediction.
	spreadStep = 1e-3
	// spreadRows is the most rows for which the variances of a GP move with z. Each z needs a factor
	// then, and as much work per prediction as the variance itself. The variances of more rows
	// are known well.
	spreadRows = 200
	// mostSpread is the most that |c|²/2 may be: far from 0, log v* is not linear in z.
	mostSpread = 1
	// leastSpread is the part of its prior variance below which the rounding of v* is too large for
	// differences.
	leastSpread = 1e-8
)

// spread returns the uncertainty of the hyperparameters that the search st has learned, for the
// posterior p of its final fit with prior covariance k, or nil if the curvature of the search is not
// known. With a = α(Ka, θ), α = ∂E/∂m and Γ = −∂α/∂m at fixed variances,
//
//	da = (I + ΓK)⁻¹(∂α/∂θ_i − Γ(∂K/∂θ_i)a).
func (l *gpLearner) spread(st *learnStepper, p *GPPosterior, k []float64) *gpSpread {
	factor, theta := st.run.Factor(), st.run.Best.Theta
	if factor == nil || p.classes != nil || p.weights != nil {
		return nil
	}
	_, slopes, lik, err := l.space.at(theta)
	if err != nil {
		return nil
	}
	n, free := p.Len(), l.space.free
	fac := *p.fac
	fac.C = k
	prior := &gpPrior{gp: l.gp, rows: l.rows, space: l.space, kernel: slopes}
	turns := make([]float64, n*len(free))
	prior.Changes(nil, turns, p.a)
	terms := under(l.gp.terms, lik)
	da, dm := make([][]float64, len(free)), make([][]float64, len(free))
	for i := range free {
		da[i], dm[i] = make([]float64, n), make([]float64, n)
		if l.space.Coords[i].Likelihood {
			copy(da[i], l.space.Turn(terms, p.m, p.v, term.Crew{Workers: 1}, theta, i))
		} else {
			for j, g := range p.gamma {
				dm[i][j] = turns[j*len(free)+i]
				da[i][j] = -g * dm[i][j]
			}
		}
		fac.Solve(da[i])
		fac.MulC(da[i])
		floats.Add(dm[i], fac.T)
	}
	s := &gpSpread{a: learn.SpreadOf(da, factor), params: l.space.paramRows(factor)}
	moves := learn.SpreadOf(dm, factor)
	if s.a == nil || moves == nil {
		return nil
	}
	for j := range s.a {
		floats.Scale(spreadStep, s.a[j])
		floats.Add(s.a[j], p.a)
		if !l.step(s, p, theta, factor, j, moves[j]) {
			return nil
		}
	}
	return s
}

// step adds the kernel and the sites after a step in z_j, which moves the latent means by move, to s.
// It reports false if they are not valid there.
func (l *gpLearner) step(s *gpSpread, p *GPPosterior, theta []float64, factor [][]float64, j int,
	move []float64) bool {
	at := slices.Clone(theta)
	for i := range at {
		at[i] += spreadStep * factor[i][j]
	}
	kernel, _, lik, err := l.space.at(at)
	if err != nil {
		return false
	}
	s.kernels = append(s.kernels, kernel)
	if p.Len() > spreadRows {
		return true
	}
	_, _, here, err := l.space.at(theta)
	if err != nil {
		return false
	}
	gamma := slices.Clone(p.gamma)
	before, ok := curvatures(under(l.gp.terms, here), p.m, p.v, nil)
	after, still := curvatures(under(l.gp.terms, lik), p.m, p.v, move)
	if ok && still {
		floats.Add(gamma, after)
		floats.Sub(gamma, before)
	}
	s.gamma = append(s.gamma, gamma)
	s.sites = append(s.sites, siteFactor(kernel, p, gamma))
	return true
}

// curvatures returns Γ at means m + spreadStep·move and variances v, and reports whether it is finite.
func curvatures(t *term.Terms, m, v, move []float64) ([]float64, bool) {
	q := &term.State{}
	q.Resize(len(m))
	copy(q.M, m)
	copy(q.V, v)
	if move != nil {
		floats.AddScaled(q.M, spreadStep, move)
	}
	if t.Expect(q, nil, term.Crew{Workers: 1}) != nil {
		return nil, false
	}
	_, ok := dense.AllFinite(q.Tg)
	return q.Tg, ok
}

// siteFactor returns the factor of sites with precisions γ under a kernel at the inputs of p, or nil
// if it is not positive definite.
func siteFactor(kernel Kernel, p *GPPosterior, gamma []float64) *dense.Sites {
	n := p.Len()
	k := make([]float64, n*n)
	gram.NewPairs(p.x).Gram(nil, k, kernelView{kernel})
	for i := range n {
		k[i*n+i] += p.jitter
	}
	fac := new(dense.Sites)
	if !fac.Factor(k, n, gamma) {
		return nil
	}
	fac.C = nil
	return fac
}

// save returns s as it is saved.
func (s *gpSpread) save() *savedSpread {
	if s == nil {
		return nil
	}
	to := &savedSpread{Z: len(s.a), Weights: slices.Concat(s.a...),
		Params: slices.Concat(s.params...), Gamma: slices.Concat(s.gamma...)}
	for _, k := range s.kernels {
		for _, p := range k.Params() {
			to.Kernels = append(to.Kernels, p.Value)
		}
	}
	return to
}

// loadGP returns the spread of p, which has the kernel and the inputs of the file.
func (s *savedSpread) loadGP(p *GPPosterior) (*gpSpread, error) {
	if s == nil || p.classes != nil || p.weights != nil {
		return nil, nil
	}
	if err := s.check(p.Len(), p.lik, numParams(p.kernel)); err != nil {
		return nil, err
	}
	of := &gpSpread{a: chunks(s.Weights, s.Z), gamma: chunks(s.Gamma, s.Z),
		params: chunks(s.Params, numLikelihoodParams(p.lik))}
	for _, values := range chunks(s.Kernels, s.Z) {
		k := p.kernel.WithParams(values)
		if err := checkParams(kernelName(k), k.Params()); err != nil {
			return nil, err
		}
		of.kernels = append(of.kernels, k)
	}
	for i, gamma := range of.gamma {
		of.sites = append(of.sites, siteFactor(of.kernels[i], p, gamma))
	}
	return of, nil
}

// along stores the derivatives of the latent means in each z for the rows of w in dst, row by row,
// and adds the uncertainty about z to v.
func (s *gpSpread) along(dst []float64, p *GPPosterior, w *predictWork, m, v []float64) {
	t, k, n := len(m), len(s.a), p.Len()
	if w.moved == nil || w.moved.RawMatrix().Cols != t {
		w.moved = mat.NewDense(n, t, nil)
	}
	sums := make([]float64, 5*t)
	moved, vars, prior, d2, c2 := sums[:t], sums[t:2*t], sums[2*t:3*t], sums[3*t:4*t], sums[4*t:]
	for j, kernel := range s.kernels {
		if p.whole != nil {
			kernel = sumTerm(kernel, p.term)
		}
		CrossCov(w.moved, kernel, p.x, w.x)
		dense.Gemv(blas.Trans, 1, dense.General(w.moved.RawMatrix().Data, n, t),
			dense.Vector(s.a[j]), 0, dense.Vector(moved))
		if s.sites != nil && s.sites[j] != nil {
			PriorVar(vars, kernel, w.x)
			copy(prior, vars)
			s.sites[j].Expand(&w.exp, w.moved.RawMatrix().Data, t)
			w.exp.SubVar(vars)
		}
		for i := range moved {
			d := (moved[i] - m[i]) / spreadStep
			d2[i] += d * d
			if least := leastSpread * prior[i]; vars[i] > least && v[i] > least {
				c := math.Log(vars[i]/v[i]) / spreadStep
				c2[i] += c * c
			}
			if dst != nil {
				dst[i*k+j] = d
			}
		}
	}
	for i := range v {
		v[i] = v[i]*math.Exp(min(c2[i]/2, mostSpread)) + d2[i]
	}
}

// latentSpread implements spreadLatents.
func (p *GPPosterior) latentSpread(m, v []float64, x mat.Matrix) *paramSpread {
	if p.spread == nil || p.spread.params == nil {
		p.latent(m, v, x)
		return nil
	}
	s := &paramSpread{p.spread.params, make([]float64, len(m)*len(p.spread.a))}
	p.latentTo(m, v, s.along, x)
	return s
}
