package pgsvi

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
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
	t, u     []float64 // scratch of length n
}

// factor prepares for C and Δ and reports whether V is positive definite and finite.
func (f *siteFactor) factor(c []float64, n int, delta []float64) bool {
	f.n, f.c = n, c
	f.t = resize(f.t, n)
	f.pos, f.neg, f.sp, f.sn = f.pos[:0], f.neg[:0], f.sp[:0], f.sn[:0]
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
	f.lp = resize(f.lp, p*p)
	for a, i := range f.pos {
		for b, j := range f.pos[:a+1] {
			f.lp[a*p+b] = f.sp[a] * f.sp[b] * at(c, n, i, j)
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
	f.zn = resize(f.zn, p*q)
	for a, i := range f.pos {
		for b, j := range f.neg {
			f.zn[a*q+b] = f.sp[a] * at(c, n, i, j)
		}
	}
	f.trsm(f.lp, p, f.zn, q)
	f.ln = resize(f.ln, q*q)
	for a, i := range f.neg {
		for b, j := range f.neg[:a+1] {
			f.ln[a*q+b] = at(c, n, i, j)
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

// at returns element (i, j) of the symmetric matrix whose lower triangle is in c.
func at(c []float64, n, i, j int) float64 {
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
	xp, xn []float64 // len(pos)×cols, len(neg)×cols
}

// expand computes the expansion of rows into x, whose storage is reused. It
// only reads f and may run concurrently on different x.
func (f *siteFactor) expand(x *expansion, rows []float64, cols int) {
	p, q := len(f.pos), len(f.neg)
	x.cols = cols
	x.xp = f.gather(x.xp, rows, cols, f.pos, f.sp)
	f.trsm(f.lp, p, x.xp, cols)
	x.xn = resize(x.xn, q*cols)
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

func (f *siteFactor) gather(dst, rows []float64, cols int, index []int, s []float64) []float64 {
	dst = resize(dst, len(index)*cols)
	for a, i := range index {
		floats.ScaleTo(dst[a*cols:(a+1)*cols], s[a], rows[i*cols:(i+1)*cols])
	}
	return dst
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
	if x.cols == 0 {
		return
	}
	if p := len(x.xp) / x.cols; p > 0 {
		blas64.Syrk(blas.Trans, -1, general(x.xp, p, x.cols), 1, symmetric(v, x.cols))
	}
	if q := len(x.xn) / x.cols; q > 0 {
		blas64.Syrk(blas.Trans, 1, general(x.xn, q, x.cols), 1, symmetric(v, x.cols))
	}
}

// solve replaces w by (I + ΔC)⁻¹w. With w = δ − Δm0 the mean moves by Cw.
func (f *siteFactor) solve(w []float64) {
	if len(f.neg) > 0 {
		u := resize(f.u, f.n)
		f.u = u
		copy(u, w)
		f.solvePart(u, f.pos, f.sp, f.lp, -1)
		blas64.Symv(1, symmetric(f.c, f.n), vector(u), 0, vector(f.t))
		f.correct(w, f.neg, f.sn, f.ln, 1)
	}
	f.solvePart(w, f.pos, f.sp, f.lp, -1)
}

// solvePart adds sign·S½ (LLᵀ)⁻¹ S½ (Cw)[index] to w[index].
func (f *siteFactor) solvePart(w []float64, index []int, s, l []float64, sign float64) {
	if len(index) == 0 {
		return
	}
	blas64.Symv(1, symmetric(f.c, f.n), vector(w), 0, vector(f.t))
	f.correct(w, index, s, l, sign)
}

// correct adds sign·S½ (LLᵀ)⁻¹ S½ t[index] to w[index].
func (f *siteFactor) correct(w []float64, index []int, s, l []float64, sign float64) {
	r := f.t[:len(index)]
	for a, i := range index { // index is increasing, so that no t[i] is lost
		r[a] = s[a] * f.t[i]
	}
	blas64.Trsv(blas.NoTrans, lowerTriangle(l, len(index)), vector(r))
	blas64.Trsv(blas.Trans, lowerTriangle(l, len(index)), vector(r))
	for a, i := range index {
		w[i] += sign * s[a] * r[a]
	}
}

// leastShrink is the smallest factor by which one change of the sites may
// shrink a variance: the result then still has four digits.
const leastShrink = 1e-12

// resolved reports whether no variance has shrunk from base by more than
// leastShrink. A variance is computed as a difference from that of the base,
// so that below this it would be rounding.
func resolved(v, base []float64) bool {
	for i, b := range base {
		if !(v[i] >= leastShrink*b) {
			return false
		}
	}
	return true
}

// siteState is a Gaussian in site form, with the expectations of its terms.
type siteState struct {
	gamma, b []float64 // sites
	m, v     []float64 // marginals
	e        []float64 // E[log p(y_n|η_n)]
	tg, tb   []float64 // where the sites would move: γ = −∂²E/∂m², b = γm + ∂E/∂m
	value    float64   // KL to the base without these sites, minus Σ e, up to a constant of the problem
	logZ     float64   // log-normaliser relative to the base
	err      float64   // bound on the error of Σ e
}

func (s *siteState) resize(n int) {
	for _, p := range []*[]float64{&s.gamma, &s.b, &s.m, &s.v, &s.e, &s.tg, &s.tb} {
		*p = resize(*p, n)
	}
}

// expect takes the expectations of the terms under the marginals. Where the
// derivatives overflow, those of a narrower marginal stand in: a finite step in
// the right direction. The error wraps ErrNotFinite and names the term.
func (s *siteState) expect(lik Likelihood, y []float64) error {
	s.err = 0
	for i, m := range s.m {
		v := s.v[i]
		x := ExpectLogProb(lik, y[i], m, v)
		s.e[i] = x.Value
		s.err += x.Err
		for range 200 {
			s.tg[i] = -x.D2
			s.tb[i] = x.D1 - x.D2*m
			if finite := !math.IsNaN(s.tb[i]) && !math.IsInf(s.tb[i], 0) && !math.IsInf(x.D2, 0); finite && math.Abs(x.D2) < 1e150 {
				break
			}
			v /= 2
			x = ExpectLogProb(lik, y[i], m, v)
			s.tg[i] = math.NaN()
		}
		if math.IsNaN(s.tg[i]) || math.IsNaN(s.e[i]) || math.IsInf(s.e[i], 1) {
			return fmt.Errorf("pgsvi: %w: term %d, with label %v under N(%.4g, %.4g), has expectation %v and derivatives %v, %v", ErrNotFinite, i, y[i], m, s.v[i], s.e[i], x.D1, x.D2)
		}
	}
	return nil
}

// siteProblem minimises KL(q‖cavity) + f(q) over q = cavity × sites, where the
// base N(m0, C) is the cavity with sites (γ0, b0) already in: a proximal step
// with r = 0 on a block of sites, the others held fixed. Each iteration is
// accepted only if the value does not rise.
type siteProblem struct {
	n            int
	c, m0        []float64 // base; not owned
	v0           []float64 // diagonal of C
	gamma0, b0   []float64
	y            []float64
	lik          Likelihood
	cur, try     siteState
	fac          siteFactor // of the last evaluation
	exp          expansion
	accepted     bool    // whether fac belongs to cur
	t            float64 // length of the next step along the segment
	delta, shift []float64
	mix          anderson
	evaluations  int
}

// init starts from the base: the current sites and marginals. It needs both triangles of c.
func (p *siteProblem) init(lik Likelihood, y, c, m0, gamma0, b0 []float64) error {
	n := len(y)
	p.n, p.lik, p.y, p.c, p.m0 = n, lik, y, c, m0
	p.gamma0, p.b0 = append(p.gamma0[:0], gamma0...), append(p.b0[:0], b0...)
	p.cur.resize(n)
	p.try.resize(n)
	p.delta, p.shift = resize(p.delta, n), resize(p.shift, n)
	p.t = 1
	p.mix.reset()
	p.accepted = false
	copy(p.cur.gamma, gamma0)
	copy(p.cur.b, b0)
	copy(p.cur.m, m0)
	p.v0 = resize(p.v0, n)
	for i := range n {
		p.v0[i] = c[i*n+i]
	}
	copy(p.cur.v, p.v0)
	p.cur.logZ = 0
	return p.finish(&p.cur, 0)
}

// finish fills in the expectations and the value of s, whose marginals are
// known: with logZ relative to the base,
//
//	KL(q‖cavity) = Σ (b m − ½γ(v + m²)) − log Z.
func (p *siteProblem) finish(s *siteState, logZ float64) error {
	s.logZ = logZ
	if err := s.expect(p.lik, p.y); err != nil {
		return err
	}
	s.value = -logZ
	for i, m := range s.m {
		s.value += s.b[i]*m - 0.5*s.gamma[i]*(s.v[i]+m*m) - s.e[i]
	}
	return nil
}

// eval computes p.try at the sites p.try.gamma, p.try.b and reports whether it
// is a valid state with a value.
func (p *siteProblem) eval() bool {
	p.evaluations++
	p.accepted = false
	s, n := &p.try, p.n
	for i := range n {
		p.delta[i] = s.gamma[i] - p.gamma0[i]
		p.shift[i] = s.b[i] - p.b0[i] - p.delta[i]*p.m0[i]
	}
	if !p.fac.factor(p.c, n, p.delta) {
		return false
	}
	p.fac.expand(&p.exp, p.c, n)
	copy(s.v, p.v0)
	p.exp.subVar(s.v)
	if !resolved(s.v, p.v0) {
		return false
	}
	p.fac.solve(p.shift)
	blas64.Symv(1, symmetric(p.c, n), vector(p.shift), 0, vector(s.m))
	floats.Add(s.m, p.m0)
	var logZ float64
	for i, m := range s.m {
		if math.IsNaN(m) || math.IsInf(m, 0) {
			return false
		}
		// h'ᵀm' − hᵀm0 = m0ᵀ(δ − Δm') + δᵀm'.
		d := s.b[i] - p.b0[i]
		logZ += p.m0[i]*(d-p.delta[i]*m) + d*m
	}
	logZ = 0.5*logZ - 0.5*p.fac.logDet
	return p.finish(s, logZ) == nil && !math.IsNaN(s.value)
}

// accept makes p.try the current state if its value is no higher.
func (p *siteProblem) accept() bool {
	if !(p.try.value <= p.cur.value+1e-14*math.Abs(p.cur.value)) {
		return false
	}
	p.cur, p.try = p.try, p.cur
	p.accepted = true
	return true
}

// decrement is the decrease that the linearised problem promises, ½δᵀFδ, with
// the Fisher information F of the marginals alone.
func (p *siteProblem) decrement() float64 {
	var s float64
	for i, m := range p.cur.m {
		v := p.cur.v[i]
		dg := p.cur.tg[i] - p.cur.gamma[i]
		c := p.cur.tb[i] - p.cur.b[i] - dg*m
		s += c*c*v + 0.5*dg*dg*v*v
	}
	return 0.5 * s
}

// iterate takes one accepted step: an Anderson step if that lowers the value,
// else along the segment to the target in natural parameters, halved until it
// does. It reports false if no step was accepted.
func (p *siteProblem) iterate() bool {
	if p.mix.propose(&p.try, &p.cur) && p.eval() && p.accept() {
		return true
	}
	for range 60 {
		t := p.t
		for i := range p.n {
			p.try.gamma[i] = p.cur.gamma[i] + t*(p.cur.tg[i]-p.cur.gamma[i])
			p.try.b[i] = p.cur.b[i] + t*(p.cur.tb[i]-p.cur.b[i])
		}
		if p.eval() && p.accept() {
			p.t = math.Min(1, 1.5*t)
			return true
		}
		p.t = t / 2
	}
	p.t = 1
	return false
}

// anderson mixes the last iterates of the map from sites to targets (Anderson,
// 1965; Walker and Ni, 2011), in (log γ, b) where every γ is positive and in
// (γ, b) otherwise. Residuals are weighted by the Fisher information of the marginals.
type anderson struct {
	x, r    [][]float64 // last iterates and residuals, oldest first
	log     bool
	w       []float64
	scratch []float64
}

const andersonDepth = 4

func (a *anderson) reset() { a.x, a.r = a.x[:0], a.r[:0] }

// propose stores in dst the mixture that the state s and its predecessors
// suggest and reports whether there is one.
func (a *anderson) propose(dst, s *siteState) bool {
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
		x[n+i], r[n+i] = s.b[i], s.tb[i]-s.b[i]
		a.w[n+i] = math.Sqrt(v)
		a.w[i] = math.Sqrt(v*m*m + 0.5*v*v)
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
			dst.b[i-n] = z
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
