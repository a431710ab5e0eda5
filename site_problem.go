package pgsvi

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// A site stands for one likelihood term: it multiplies the density of η_n by
// exp(b_n η_n − ½ γ_n η_n²). γ_n may be negative where the likelihood is not
// log-concave.

// siteFactor turns a Gaussian N(m0, C) over n variables into the one whose
// sites have changed by Δ (in γ) and δ (in b):
//
//	V = (C⁻¹ + diag Δ)⁻¹,   m = m0 + V(δ − Δm0).
//
// It never forms C⁻¹, so that C may be singular. Positive changes go first,
// through B = I + S½CS½ with S = Δ, whose eigenvalues are at least 1; negative
// changes follow through I − S½V₁S½, V₁ the result of the first, which is
// positive definite exactly when V⁻¹ is. Storage is reused between calls.
type siteFactor struct {
	n        int
	c        []float64 // C, lower triangle of n×n; not owned
	pos, neg []int     // variables whose Δ is positive, negative
	sp, sn   []float64 // |Δ|^½ of these
	lp, ln   []float64 // Cholesky factors of B and of I − S½V₁S½
	zn       []float64 // L_p⁻¹ S½ C[pos, neg]
	logDet   float64   // log|I + ΔC| = log|C|/|V|
	t, u, r  []float64 // scratch of length n
	inv      []float64 // scratch
}

// factor prepares for C and Δ and reports whether V is positive definite and finite.
func (f *siteFactor) factor(c []float64, n int, delta []float64) bool {
	f.n, f.c = n, c
	f.t, f.r = resize(f.t, n), resize(f.r, n)
	f.pos, f.neg, f.sp, f.sn = room(f.pos, 0, n), room(f.neg, 0, n), room(f.sp, 0, n), room(f.sn, 0, n)
	for i, d := range delta {
		switch {
		case d > 0:
			f.pos, f.sp = append(f.pos, i), append(f.sp, math.Sqrt(d))
		case d < 0:
			f.neg, f.sn = append(f.neg, i), append(f.sn, math.Sqrt(-d))
		case d != 0: // NaN
			return false
		}
	}
	p, q := len(f.pos), len(f.neg)
	f.lp = room(f.lp, p*p, n*n)
	for a, i := range f.pos {
		for b, j := range f.pos[:a+1] {
			f.lp[a*p+b] = f.sp[a] * f.sp[b] * symmetricAt(c, n, i, j)
		}
		f.lp[a*p+a]++
	}
	if !cholesky(f.lp, p) {
		return false
	}
	f.logDet = logDetChol(f.lp, p)
	if q == 0 {
		return true
	}
	f.zn = room(f.zn, p*q, n*n)
	for a, i := range f.pos {
		for b, j := range f.neg {
			f.zn[a*q+b] = f.sp[a] * symmetricAt(c, n, i, j)
		}
	}
	f.trsm(f.lp, p, f.zn, q)
	f.ln = room(f.ln, q*q, n*n)
	for a, i := range f.neg {
		for b, j := range f.neg[:a+1] {
			f.ln[a*q+b] = symmetricAt(c, n, i, j)
		}
	}
	if p > 0 {
		blas64.Syrk(blas.Trans, -1, general(f.zn, p, q), 1, symmetric(f.ln, q))
	}
	for a := range q {
		for b := range a + 1 {
			f.ln[a*q+b] *= -f.sn[a] * f.sn[b]
		}
		f.ln[a*q+a]++
	}
	if !cholesky(f.ln, q) {
		return false
	}
	f.logDet += logDetChol(f.ln, q)
	return !math.IsInf(f.logDet, 0)
}

// noisyPivot is how much a step with noise must leave, of the precision of a
// variable, to a site with a negative γ: a tenth, so that the variance grows
// tenfold. Noise alone drives sites to the edge of what is positive definite, where
// each step could go half of the way that is left, and the mean runs away with V. A
// step that was halved noisyHalvings times is taken all the same.
const (
	noisyPivot    = 0.1
	noisyHalvings = 20
)

// leastPivot returns the least of what negative changes leave of the precisions of
// their variables, given the positive changes and the negative ones before.
func (f *siteFactor) leastPivot() float64 {
	least := 1.0
	q := len(f.neg)
	for i := range q {
		least = math.Min(least, f.ln[i*q+i]*f.ln[i*q+i])
	}
	return least
}

// symmetricAt returns element (i, j) of the symmetric matrix whose lower triangle is in c.
func symmetricAt(c []float64, n, i, j int) float64 {
	if i < j {
		i, j = j, i
	}
	return c[i*n+j]
}

// trsm replaces b, n×cols, by L⁻¹b.
func (*siteFactor) trsm(l []float64, n int, b []float64, cols int) {
	if n > 0 && cols > 0 {
		blas64.Trsm(blas.Left, blas.NoTrans, 1, lowerTriangle(l, n), general(b, n, cols))
	}
}

// expansion holds the rows X_p and X_n with
//
//	rowsᵀ(C⁻¹ − C⁻¹VC⁻¹)rows = X_pᵀX_p − X_nᵀX_n,
//
// rows being n×cols. With rows = C this is C − V.
type expansion struct {
	cols   int
	xp, xn []float64 // len(pos)×cols, len(neg)×cols; in buf
	buf    []float64
}

// expand computes the expansion of rows into x, whose storage is reused. It
// only reads f and may run concurrently on different x.
func (f *siteFactor) expand(x *expansion, rows []float64, cols int) {
	p, q := len(f.pos), len(f.neg)
	x.cols = cols
	x.buf = room(x.buf, (p+q)*cols, f.n*cols)
	x.xp, x.xn = x.buf[:p*cols], x.buf[p*cols:]
	for a, i := range f.pos {
		floats.ScaleTo(x.xp[a*cols:(a+1)*cols], f.sp[a], rows[i*cols:(i+1)*cols])
	}
	f.trsm(f.lp, p, x.xp, cols)
	if q == 0 {
		return
	}
	for a, i := range f.neg {
		copy(x.xn[a*cols:(a+1)*cols], rows[i*cols:(i+1)*cols])
	}
	if p > 0 {
		gemmTN(x.xn, f.zn, x.xp, p, q, cols)
	}
	for a, s := range f.sn {
		floats.Scale(s, x.xn[a*cols:(a+1)*cols])
	}
	f.trsm(f.ln, q, x.xn, cols)
}

// gemmTN subtracts aᵀb from c, a being p×q, b p×cols and c q×cols. It goes
// column block by column block, of a size that BLAS keeps on this goroutine.
func gemmTN(c, a, b []float64, p, q, cols int) {
	const width = 64
	for i := 0; i < q; i += width {
		for j := 0; j < cols; j += width {
			bi, bj := min(width, q-i), min(width, cols-j)
			blas64.Gemm(blas.Trans, blas.NoTrans, -1,
				blas64.General{Rows: p, Cols: bi, Stride: q, Data: a[i:]},
				blas64.General{Rows: p, Cols: bj, Stride: cols, Data: b[j:]},
				1, blas64.General{Rows: bi, Cols: bj, Stride: cols, Data: c[i*cols+j:]})
		}
	}
}

// subVar replaces v, of length cols, by v minus the diagonal of X_pᵀX_p − X_nᵀX_n.
func (x *expansion) subVar(v []float64) {
	for _, part := range [2]struct {
		x    []float64
		sign float64
	}{{x.xp, -1}, {x.xn, 1}} {
		for k := 0; k < len(part.x); k += x.cols {
			for j, e := range part.x[k : k+x.cols] {
				v[j] += part.sign * e * e
			}
		}
	}
}

// subCov replaces the lower triangle of v, cols×cols, by v − X_pᵀX_p + X_nᵀX_n.
func (x *expansion) subCov(v []float64) {
	x.addGram(v, -1, x.xp)
	x.addGram(v, 1, x.xn)
}

// addGram adds sign·XᵀX to the lower triangle of v for one part X of x.
func (x *expansion) addGram(v []float64, sign float64, part []float64) {
	if len(part) > 0 {
		blas64.Syrk(blas.Trans, sign, general(part, len(part)/x.cols, x.cols), 1, symmetric(v, x.cols))
	}
}

// solve replaces w by u = (I + ΔC)⁻¹w. With w = δ − Δm0 the mean moves by Cu.
//
// Where Δ > 0, u = S½ B⁻¹(S⁻½w − S½Cw′), w′ being w without these variables: no
// large terms cancel however large Δ is.
func (f *siteFactor) solve(w []float64) {
	if len(f.neg) > 0 {
		// I + ΔC = (I − S V₁)(I + Δ₊C): first the left factor.
		f.u = resize(f.u, f.n)
		copy(f.u, w)
		f.solvePos(f.u)
		f.mulC(f.u)
		r := f.r[:len(f.neg)]
		for a, i := range f.neg {
			r[a] = f.sn[a] * f.t[i]
		}
		potrs(f.ln, r)
		for a, i := range f.neg {
			w[i] += f.sn[a] * r[a]
		}
	}
	f.solvePos(w)
}

// solvePos is solve for the positive changes alone.
func (f *siteFactor) solvePos(w []float64) {
	r := f.r[:len(f.pos)]
	for a, i := range f.pos {
		r[a] = w[i] / f.sp[a]
		w[i] = 0
	}
	if len(f.pos) < f.n {
		f.mulC(w)
		for a, i := range f.pos {
			r[a] -= f.sp[a] * f.t[i]
		}
	}
	potrs(f.lp, r)
	for a, i := range f.pos {
		w[i] = f.sp[a] * r[a]
	}
}

// mulC stores Cw in f.t.
func (f *siteFactor) mulC(w []float64) {
	blas64.Symv(1, symmetric(f.c, f.n), vector(w), 0, vector(f.t))
}

// potrs replaces r by (LLᵀ)⁻¹r.
func potrs(l, r []float64) {
	if n := len(r); n > 0 {
		blas64.Trsv(blas.NoTrans, lowerTriangle(l, n), vector(r))
		blas64.Trsv(blas.Trans, lowerTriangle(l, n), vector(r))
	}
}

// A variance is found as c − ‖x‖², with an error of rounding of size c. Where a
// site shrinks its own variance by more than strongSite, ΔV = I − B⁻¹ gives it
// with an error of size 1/Δ instead, up to strongestSite, beyond which the site
// could not be weakened again; where a variance shrinks by more than
// leastShrink without a site of its own, it is not resolved.
const (
	strongSite    = 1e4
	strongestSite = 1e15
	leastShrink   = 1e-10
)

// strong reports whether some positive change shrinks its variance by more
// than strongSite.
func (f *siteFactor) strong() bool {
	for a, i := range f.pos {
		if f.sp[a]*f.sp[a]*f.c[i*f.n+i] > strongSite {
			return true
		}
	}
	return false
}

// variances stores the diagonal of V in v, given the expansion of C, and
// reports whether every element is resolved.
func (f *siteFactor) variances(v []float64, x *expansion) bool {
	n := f.n
	for i := range n {
		v[i] = f.c[i*n+i]
	}
	x.subVar(v)
	if !f.strong() {
		return f.resolved(v)
	}
	// 1 − ‖L⁻¹e_i‖² over Δ_i, plus what the negative changes add back.
	p := len(f.pos)
	f.inv = room(f.inv, p*p, f.n*f.n)
	copy(f.inv, f.lp)
	lapack64.Trtri(lowerTriangle(f.inv, p))
	norm := f.r[:p]
	clear(norm)
	for a := range p {
		for b, l := range f.inv[a*p : a*p+a+1] {
			norm[b] += l * l
		}
	}
	for a, i := range f.pos {
		d := f.sp[a] * f.sp[a]
		if d*f.c[i*n+i] <= strongSite {
			continue
		}
		v[i] = (1 - norm[a]) / d
		for k := i; k < len(x.xn); k += x.cols {
			v[i] += x.xn[k] * x.xn[k]
		}
	}
	return f.resolved(v)
}

// resolved reports whether every variance is, other than those of strong sites.
func (f *siteFactor) resolved(v []float64) bool {
	next := 0
	for i, vi := range v {
		var site float64
		if next < len(f.pos) && f.pos[next] == i {
			site = f.sp[next] * f.sp[next] * f.c[i*f.n+i]
			next++
		}
		strong := site > strongSite
		if site > strongestSite || strong && !(vi > 0) || !strong && !(vi >= leastShrink*f.c[i*f.n+i]) {
			return false
		}
	}
	return true
}

// covariance stores V in the lower triangle of v, n×n, given the expansion of C.
func (f *siteFactor) covariance(v []float64, x *expansion) {
	n, p := f.n, len(f.pos)
	copy(v, f.c)
	x.addGram(v, -1, x.xp)
	if f.strong() {
		f.inv = room(f.inv, p*p, f.n*f.n)
		copy(f.inv, f.lp)
		invertChol(f.inv, p)
		for a, i := range f.pos {
			if f.sp[a]*f.sp[a]*f.c[i*n+i] <= strongSite {
				continue
			}
			for b, j := range f.pos[:a] {
				if f.sp[b]*f.sp[b]*f.c[j*n+j] > strongSite {
					v[i*n+j] = -f.inv[a*p+b] / (f.sp[a] * f.sp[b])
				}
			}
			v[i*n+i] = (1 - f.inv[a*p+a]) / (f.sp[a] * f.sp[a])
		}
	}
	x.addGram(v, 1, x.xn)
}

// siteState is a Gaussian in site form, with the expectations of its terms.
type siteState struct {
	gamma []float64 // γ
	a     []float64 // b − γm: the linear coefficient of the site about the mean, equal to K⁻¹m
	m, v  []float64 // marginals
	e     []float64 // E[log p(y_n|η_n)]
	tg    []float64 // −∂²E/∂m²: where γ would move
	d1    []float64 // ∂E/∂m: where a would move
	bound []float64 // on the error of each e
	err   float64   // and of Σ e
}

func (s *siteState) resize(n int) {
	for _, p := range []*[]float64{&s.gamma, &s.a, &s.m, &s.v, &s.e, &s.tg, &s.d1} {
		*p = resize(*p, n)
	}
}

func (s *siteState) copyFrom(o *siteState) {
	s.resize(len(o.m))
	for _, p := range [][2][]float64{{s.gamma, o.gamma}, {s.a, o.a}, {s.m, o.m}, {s.v, o.v}, {s.e, o.e}, {s.tg, o.tg}, {s.d1, o.d1}} {
		copy(p[0], p[1])
	}
	s.err = o.err
}

// expect takes the expectations of the terms under the marginals, shared
// between workers. The error wraps ErrNotFinite and names the first bad term.
func (s *siteState) expect(lik Likelihood, y []float64, workers int) error {
	s.bound = resize(s.bound, len(y))
	if workers <= 1 {
		for i := range y {
			s.expectSite(lik, y, i)
		}
	} else {
		s.expectParallel(lik, y, workers)
	}
	s.err = 0
	for i, e := range s.e {
		s.err += s.bound[i]
		if bad := s.tg[i] + s.d1[i] + e; math.IsNaN(bad) || math.IsInf(e, 1) {
			return fmt.Errorf("pgsvi: %w: %s under N(%.4g, %.4g) has expectation %v and no derivatives that are of use", ErrNotFinite, describeTerm(lik, y[i], i), s.m[i], s.v[i], e)
		}
	}
	return nil
}

// describeTerm names term i, with response y, in an error.
func describeTerm(lik Likelihood, y float64, i int) string {
	if t, ok := lik.(interface{ describe(y float64) string }); ok {
		return t.describe(y)
	}
	return fmt.Sprintf("term %d, with label %v,", i, y)
}

// expectSite takes the expectation of term i. Where the derivatives are beyond
// use, those of a narrower marginal stand in: a finite step in the right
// direction; NaN says that there are none.
func (s *siteState) expectSite(lik Likelihood, y []float64, i int) {
	m, v := s.m[i], s.v[i]
	x := ExpectLogProb(lik, y[i], m, v)
	s.e[i], s.bound[i] = x.Value, x.Err
	for k := 0; k < 600 && !usable(x, v); k++ {
		v /= 8
		x = ExpectLogProb(lik, y[i], m, v)
	}
	s.tg[i], s.d1[i] = -x.D2, x.D1
	if !usable(x, v) {
		s.tg[i] = math.NaN()
	}
}

func (s *siteState) expectParallel(lik Likelihood, y []float64, workers int) {
	const chunk = 8
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				hi := int(next.Add(chunk))
				for i := hi - chunk; i < min(hi, len(y)); i++ {
					s.expectSite(lik, y, i)
				}
				if hi >= len(y) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// usable reports whether the derivatives under a marginal of variance v can be
// a target: finite, and no more than a factor of 1e8 more precise than it.
func usable(x Expectation, v float64) bool {
	return math.Abs(x.D2)*v < 1e8 && math.Abs(x.D1)*math.Sqrt(v) < 1e8 && moderate(x)
}

// moderate reports whether the derivatives are far from overflow.
func moderate(x Expectation) bool { return math.Abs(x.D1)+math.Abs(x.D2) < 1e150 }

// siteProblem minimises KL(q‖cavity) + f(q) over q = cavity × sites, where the
// base N(m0, C) is the cavity with sites (γ0, a0) already in: a proximal step
// with r = 0 on a block of sites, the others held fixed. Each iteration is
// accepted only if the value does not rise.
//
// Within a problem a site is written about the base mean, exp(c(η − m0) −
// ½γ(η − m0)²), so that large numbers do not cancel where γ is large.
type siteProblem struct {
	n           int
	base        siteState // its expectations are not used
	alg         siteAlgebra
	y           []float64
	lik         Likelihood
	workers     int
	plain       bool // no Anderson steps
	cur, try    problemState
	t           float64 // length of the next step along the segment
	delta, u, d []float64
	tg, tc      []float64 // target of the segment
	mix         anderson
	evaluations int
}

// siteAlgebra moves the base N(m0, C) of the variables η to the Gaussian whose
// sites have changed. There is one for variables whose covariance is at hand,
// and one for linear functions of fewer weights.
type siteAlgebra interface {
	// move takes the changes Δ of γ and u of the linear coefficients about the
	// base mean. It stores the variances in v, the moves of the means, d, and
	// replaces u by C⁻¹d = u − Δd. It returns log|C|/|V| and dᵀC⁻¹d, and reports
	// whether V is positive definite and resolved.
	move(d, v, delta, u []float64) (logDet, square float64, ok bool)
	// accept makes what the last move computed the current state.
	accept()
}

// covAlgebra is the siteAlgebra of variables with covariance C.
type covAlgebra struct {
	n   int
	cov []float64 // C, both triangles; not owned
	fac siteFactor
	exp expansion
}

func (a *covAlgebra) move(d, v, delta, u []float64) (logDet, square float64, ok bool) {
	if !a.fac.factor(a.cov, a.n, delta) {
		return 0, 0, false
	}
	a.fac.expand(&a.exp, a.cov, a.n)
	if !a.fac.variances(v, &a.exp) {
		return 0, 0, false
	}
	a.fac.solve(u)
	a.fac.mulC(u)
	copy(d, a.fac.t)
	return a.fac.logDet, floats.Dot(u, d), true
}

func (a *covAlgebra) accept() {}

// problemState is a state with its sites about the base mean and its value.
type problemState struct {
	siteState
	c      []float64
	value  float64 // KL(q‖cavity) − Σe, up to a constant of the problem
	logDet float64 // log|C|/|V|
}

// init starts from a base with marginals m0, v0 and sites γ0, a0, which alg moves.
func (p *siteProblem) init(lik Likelihood, y []float64, alg siteAlgebra, base *siteState) error {
	p.prepare(lik, y, alg, base)
	return p.start()
}

// prepare is init without the expectations at the base.
func (p *siteProblem) prepare(lik Likelihood, y []float64, alg siteAlgebra, base *siteState) {
	n := len(y)
	p.n, p.lik, p.y, p.alg = n, lik, y, alg
	p.base.copyFrom(base)
	for _, s := range []*problemState{&p.cur, &p.try} {
		s.resize(n)
		s.c = resize(s.c, n)
	}
	p.delta, p.u, p.d = resize(p.delta, n), resize(p.u, n), resize(p.d, n)
	p.tg, p.tc = resize(p.tg, n), resize(p.tc, n)
	p.t = 1
	p.mix.reset()
	p.evaluations = 0
}

// start makes the base the current state.
func (p *siteProblem) start() error {
	p.cur.copyFrom(&p.base)
	copy(p.cur.c, p.base.a)
	p.cur.logDet = 0
	if err := p.cur.expect(p.lik, p.y, p.workers); err != nil {
		return err
	}
	p.cur.value = -floats.Sum(p.cur.e)
	return nil
}

// eval computes p.try at its sites (gamma, c) and reports whether it is a valid
// state with a value: with u = C⁻¹(m − m0) and d = m − m0, relative to the base,
//
//	KL(q‖cavity) = ½(log|C|/|V| − ΣΔv + uᵀd) + Σ a0 d − ½γ0(v − v0 + d²).
func (p *siteProblem) eval() bool {
	p.evaluations++
	s, o, n := &p.try, &p.base, p.n
	for i := range n {
		p.delta[i] = s.gamma[i] - o.gamma[i]
		p.u[i] = s.c[i] - o.a[i]
	}
	var square float64
	var ok bool
	if s.logDet, square, ok = p.alg.move(p.d, s.v, p.delta, p.u); !ok {
		return false
	}
	d, kl := p.d, s.logDet+square // twice KL(q‖base), which is not negative but for rounding
	size := 1 + s.logDet + square
	for i, v := range s.v {
		kl -= p.delta[i] * v
		size += math.Abs(p.delta[i]) * v
	}
	if !(kl > -1e-9*size) {
		return false
	}
	for i := range n {
		kl += 2*o.a[i]*d[i] - o.gamma[i]*(s.v[i]-o.v[i]+d[i]*d[i])
		s.m[i] = o.m[i] + d[i]
		s.a[i] = o.a[i] - o.gamma[i]*d[i] + p.u[i]
		if math.IsNaN(s.m[i]) || math.IsInf(s.m[i], 0) {
			return false
		}
	}
	if s.expect(p.lik, p.y, p.workers) != nil {
		return false
	}
	s.value = 0.5*kl - floats.Sum(s.e)
	return !math.IsNaN(s.value)
}

// accept makes p.try the current state if its value is finite and no higher.
func (p *siteProblem) accept() bool {
	if math.IsInf(p.try.value, 1) || !(p.try.value <= p.cur.value+1e-14*math.Abs(p.cur.value)) {
		return false
	}
	p.cur, p.try = p.try, p.cur
	p.alg.accept()
	return true
}

// decrement is the decrease that the linearised problem promises, ½δᵀFδ, with
// the Fisher information F of the marginals alone.
func (p *siteProblem) decrement() float64 {
	var s float64
	for i, v := range p.cur.v {
		g, c := p.cur.tg[i]-p.cur.gamma[i], p.cur.d1[i]-p.cur.a[i]
		s += c*c*v + 0.5*g*g*v*v
	}
	return 0.5 * s
}

// iterate takes one accepted step: an Anderson step if that lowers the value,
// else along the segment to the target in natural parameters, halved until it
// does. Where the target lies so far off that two halvings do not help, as from
// the prior of a Poisson model, the targets of the sites alone are tried before
// the segment is halved further. It reports false if no step was accepted.
func (p *siteProblem) iterate() bool {
	if !p.plain && p.mix.propose(&p.try, &p.cur, p.base.m) && p.eval() && p.accept() {
		return true
	}
	p.target()
	if p.halve(3) {
		return true
	}
	t := p.t
	p.targetAlone()
	p.t = 1
	if p.halve(10) {
		return true
	}
	p.target()
	p.t = t
	if p.halve(50) {
		return true
	}
	p.t = 1
	return false
}

// target stores where the linearised problem would move the sites.
func (p *siteProblem) target() {
	s := &p.cur
	for i, m := range s.m {
		p.tg[i], p.tc[i] = s.tg[i], s.d1[i]+s.tg[i]*(m-p.base.m[i])
	}
}

// targetAlone stores where each site would move if it were the only one to:
// the minimiser of its own one-dimensional problem, however far that is.
func (p *siteProblem) targetAlone() {
	s := &p.cur
	for i, m := range s.m {
		vc := 1 / (1/s.v[i] - s.gamma[i])
		mc := m - s.a[i]*vc
		g, d1, at := s.tg[i], s.d1[i], m
		if vc > 0 && !math.IsInf(vc, 0) {
			g, d1, at = solveSite(p.lik, p.y[i], mc, vc, m, s.v[i])
		}
		p.tg[i], p.tc[i] = g, d1+g*(at-p.base.m[i])
	}
}

// solveSite minimises KL(N(m, v)‖N(mc, vc)) − E[log p(y|η)] over m and v from
// the given start, and returns the site of the minimiser: −D2, D1 and m. Steps
// are Newton's in m with the fixed point of v, halved in (m, log v) until the
// value falls. As a target it need not be accurate: it ends where steps are small.
func solveSite(lik Likelihood, y, mc, vc, m, v float64) (gamma, d1, at float64) {
	value := func(x Expectation, m, v float64) float64 {
		return 0.5*((m-mc)*(m-mc)/vc+v/vc-math.Log(v)) - x.Value
	}
	x := ExpectLogProb(lik, y, m, v)
	for k := 0; k < 600 && (!moderate(x) || math.Abs(x.D2)*v > 1e8 || math.IsInf(x.Value, 0)); k++ {
		v /= 8
		x = ExpectLogProb(lik, y, m, v)
	}
	f := value(x, m, v)
	for range 1000 {
		v1 := 1 / (1/vc - x.D2)
		if !(v1 > 0) || math.IsInf(v1, 0) {
			v1 = 2 * v
		}
		dm, dl := v1*(x.D1-(m-mc)/vc), math.Log(v1/v)
		t := 1.0
		for ; t > 1e-12; t /= 2 {
			mt, vt := m+t*dm, v*math.Exp(t*dl)
			xt := ExpectLogProb(lik, y, mt, vt)
			if ft := value(xt, mt, vt); moderate(xt) && ft <= f {
				m, v, x, f = mt, vt, xt, ft
				break
			}
		}
		if math.Abs(dm) < 1e-3*math.Sqrt(v) && math.Abs(dl) < 1e-3 || t <= 1e-12 {
			break
		}
	}
	return -x.D2, x.D1, m
}

// halve tries p.t and its halves along the segment to the target.
func (p *siteProblem) halve(times int) bool {
	for range times {
		t := p.t
		for i := range p.n {
			p.try.gamma[i] = p.cur.gamma[i] + t*(p.tg[i]-p.cur.gamma[i])
			p.try.c[i] = p.cur.c[i] + t*(p.tc[i]-p.cur.c[i])
		}
		if p.eval() && p.accept() {
			p.t = math.Min(1, 1.5*t)
			return true
		}
		p.t = t / 2
	}
	return false
}

// anderson mixes the last iterates of the map from sites to targets (Anderson,
// 1965; Walker and Ni, 2011), in (log γ, c) where every γ is positive and in
// (γ, c) otherwise. Residuals are weighted by the Fisher information of the marginals.
type anderson struct {
	x, r [][]float64 // last iterates and residuals, oldest first
	log  bool
	w    []float64
}

const andersonDepth = 4

func (a *anderson) reset() { a.x, a.r = a.x[:0], a.r[:0] }

// propose stores in dst the mixture that the state s and its predecessors
// suggest and reports whether there is one.
func (a *anderson) propose(dst, s *problemState, m0 []float64) bool {
	n := len(s.m)
	positive := true
	for i, g := range s.gamma {
		positive = positive && g > 0 && s.tg[i] > 0
	}
	if positive != a.log {
		a.log = positive
		a.reset()
	}
	x, r := a.next(2 * n)
	a.w = resize(a.w, 2*n)
	for i, m := range s.m {
		g, tg, v := s.gamma[i], s.tg[i], s.v[i]
		d := m - m0[i]
		x[n+i], r[n+i] = s.c[i], s.d1[i]+tg*d-s.c[i]
		a.w[n+i] = math.Sqrt(v)
		a.w[i] = math.Sqrt(v*d*d + 0.5*v*v)
		if a.log {
			x[i], r[i] = math.Log(g), math.Log(tg/g)
			a.w[i] *= g
		} else {
			x[i], r[i] = g, tg-g
		}
	}
	k := len(a.x) - 1
	if k < 1 {
		return false
	}
	// Minimise ‖r − Σ_j θ_j (r − r_j)‖ over the mixtures of the last k differences.
	var g [andersonDepth][andersonDepth + 1]float64
	for i := range 2 * n {
		w2 := a.w[i] * a.w[i]
		for j := range k {
			dj := r[i] - a.r[j][i]
			for l := range j + 1 {
				g[j][l] += w2 * dj * (r[i] - a.r[l][i])
			}
			g[j][andersonDepth] += w2 * dj * r[i]
		}
	}
	theta, ok := solveSmall(&g, k)
	if !ok {
		return false
	}
	for i := range 2 * n {
		z := x[i] + r[i]
		for j := range k {
			z -= theta[j] * (x[i] + r[i] - a.x[j][i] - a.r[j][i])
		}
		switch {
		case i >= n:
			dst.c[i-n] = z
		case a.log:
			if math.Abs(z-x[i]) > 5 {
				return false // too far to believe
			}
			dst.gamma[i] = math.Exp(z)
		default:
			dst.gamma[i] = z
		}
	}
	return true
}

// next returns the places of the newest iterate and residual, of length n.
func (a *anderson) next(n int) (x, r []float64) {
	grow := func(s [][]float64) [][]float64 {
		if len(s) == andersonDepth+1 {
			first := s[0]
			copy(s, s[1:])
			s[len(s)-1] = first
			return s
		}
		if len(s) < cap(s) {
			s = s[:len(s)+1]
			s[len(s)-1] = resize(s[len(s)-1], n)
			return s
		}
		return append(s, make([]float64, n))
	}
	a.x, a.r = grow(a.x), grow(a.r)
	last := len(a.x) - 1
	return a.x[last], a.r[last]
}

// solveSmall solves the k×k positive semidefinite system whose lower triangle
// and right-hand side are in g, slightly regularised.
func solveSmall(g *[andersonDepth][andersonDepth + 1]float64, k int) (x [andersonDepth]float64, ok bool) {
	var l [andersonDepth][andersonDepth]float64
	for i := range k {
		for j := range i + 1 {
			s := g[i][j]
			if i == j {
				s *= 1 + 1e-12
			}
			for a := range j {
				s -= l[i][a] * l[j][a]
			}
			if i == j {
				if !(s > 1e-14*g[i][i]) {
					return x, false
				}
				l[i][i] = math.Sqrt(s)
			} else {
				l[i][j] = s / l[j][j]
			}
		}
	}
	for i := range k {
		x[i] = g[i][andersonDepth]
		for a := range i {
			x[i] -= l[i][a] * x[a]
		}
		x[i] /= l[i][i]
	}
	for i := k - 1; i >= 0; i-- {
		for a := i + 1; a < k; a++ {
			x[i] -= l[a][i] * x[a]
		}
		x[i] /= l[i][i]
	}
	return x, true
}
