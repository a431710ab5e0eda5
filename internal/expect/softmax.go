package expect

import (
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/floats"
)

// This file computes the expectations of softmax models, E log Σ_c exp s_c and E π_c with π =
// softmax(s), under independent scores s_c ~ N(m_c, v_c). The root package calls SoftmaxWithin
// and SoftmaxCross for the terms of softmax models and SoftmaxExpect for their predictions.
//
// Let L = log X with X = Σ exp s_c. With independent standard Gumbel variables G_c, max_c (s_c +
// G_c) has the distribution of L + G. Its distribution function is
//
//	F(u) = Π_c Φ_c(u),   Φ_c(u) = E g(u − s_c),   g(x) = exp(−e^{−x}),
//
// and its mean is E L + γ with Euler's constant γ. The derivatives of E L in the mean of a score
// follow from the derivatives of Φ_c. With equally spaced nodes lo + kh, k ≥ 0,
//
//	E L    = lo − h/2 − γ + h Σ (1 − F)
//	E π_c  = h Σ F Φ′_c/Φ_c
//	E π_c² = h Σ F (Φ″_c + Φ′_c)/Φ_c
//
// except for aliases. These are Σ_{j≠0} E e^{−iωL} Γ(1 + iω)/iω with ω = 2πj/h for E L, Σ E π_c
// e^{−iωL} Γ(1 + iω) for E π_c, and Σ E π_c² e^{−iωL} Γ(2 + iω) for E π_c². Because |Γ(1 + iω)|²
// = πω/sinh πω, they fall like e^{−π²/h}. Shifting all scores into the complex plane also shows
// that |E e^{−iωL}| ≤ e^{−ω²/2q} with q = Σ 1/v_c.
//
// Beyond the last node, the sums use the series of F in e^{−u}, whose terms are moments of X: Π_c
// Σ_j (−e^{−u})ʲ E e^{j s_c}/j!, cut off before j = J.
//
// A score with a small standard deviation takes the nodes of a Gauss-Hermite rule as its values.
// This is also a distribution, and all formulas above are exact for it. The only error of E L is
// the error of the rule for log(e^{s_c} + rest), which is at most λ(2n)(n−1)!(s/π)²ⁿ. For other
// scores, Φ_c is the sum of a normal distribution function and a bump, which is integrated with
// equal steps.

const (
	softmaxTerms  = 5       // largest J
	softmaxAlike  = 0.01    // variances below it count as the largest one
	softmaxNodes  = 16      // most nodes of a rule
	softmaxMost   = 1 << 20 // limit on nodes times classes; steps become longer beyond it
	softmaxFinest = 1e-11   // tolerance of SoftmaxExpect
	euler         = 0.57721566490153286060651209008240243
)

// softmaxLevel holds the quadrature rules for one tolerance.
type softmaxLevel struct {
	tol   float64
	log   float64                   // −log tol
	omega float64                   // 2π/h for which an alias of E π² is at most tol
	alias float64                   // bound on the aliases of E L for this h
	far   float64                   // g(−far) is tol
	reach float64                   // a normal is tol at this many standard deviations
	most  [softmaxNodes + 1]float64 // largest standard deviation for a rule with n nodes
	rules [softmaxNodes + 1]Rule
	step  float64 // step of the bump
	bump  [][3]float64
	off   float64 // bound on the error of Φ from the bump, times s and e^{−bumpHeight²/2v}
}

// softmaxLevels holds the levels from coarse to fine. Coarse levels take less time.
var softmaxLevels = [...]func() *softmaxLevel{
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(1e-4, 0.5) }),
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(1e-6, 0.4) }),
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(1e-8, 0.32) }),
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(softmaxFinest, 0.25) }),
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(1e-13, 0.2) }),
}

// The bump is g(z) − N((z − bumpMean)/bumpSD) for z from bumpLeast on.
const (
	bumpMean  = 0.5
	bumpSD    = 0.75
	bumpLeast = -5.5
	// The error of equal steps is bounded by ∫ |bump(z ± iy)| dz at a height y. Because |g| is
	// exp(−e^{−z} cos y) and |1 − g| ≤ e^{−z}, this integral is less than E₁(cos y) + 1 + ∫_{z<0}
	// N + ∫_{z>0} (1 − N) + ∫_0^y e^{t²/2 bumpSD²} dt.
	bumpHeight   = 1.45
	bumpIntegral = 7
)

// softmaxAlias bounds the aliases of E L for nodes 2π/ω apart and q = Σ 1/v.
func softmaxAlias(omega, q float64) float64 {
	first := 2 * gammaAlias(omega) / omega * math.Exp(-0.5*omega*omega/q)
	// Each alias is less than this ratio times the previous alias.
	return first / -math.Expm1(-math.Pi/2*omega-1.5*omega*omega/q)
}

// gammaAlias returns |Γ(1 + iω)|.
func gammaAlias(omega float64) float64 {
	return math.Sqrt(2*math.Pi*omega/-math.Expm1(-2*math.Pi*omega)) * math.Exp(-math.Pi/2*omega)
}

func newSoftmaxLevel(tol, step float64) *softmaxLevel {
	l := &softmaxLevel{tol: tol, log: -math.Log(tol), step: step}
	l.far, l.reach = math.Log(l.log), math.Sqrt(2*l.log)
	for l.omega = 1; 2*math.Hypot(1, l.omega)*gammaAlias(l.omega) > tol; l.omega += 0.01 {
	}
	factorial := 1.0
	for n := 1; n <= softmaxNodes; n++ {
		factorial *= float64(n)
		// The error of a rule in E π(1 − π) is 2(2n+1) n! (s/π)²ⁿ λ(2n+2)/π².
		x := tol * math.Pi * math.Pi / (2.1 * float64(2*n+1) * factorial)
		l.most[n] = math.Pi * math.Pow(x, 0.5/float64(n))
		l.rules[n] = Hermite(n)
	}
	for i := 0; ; i++ {
		z := bumpLeast + float64(i)*step
		if z > l.log+3 && i%2 == 0 {
			break
		}
		x := math.Exp(-z)
		g, w := math.Exp(-x), step*special.GaussInvSqrt2Pi
		normal := special.NormalTail((bumpMean - z) / bumpSD)
		l.bump = append(l.bump, [3]float64{w * (g - normal), w * g * x, w * g * x * x})
	}
	l.off = 2 * bumpIntegral * special.GaussInvSqrt2Pi / math.Expm1(2*math.Pi/step*bumpHeight)
	l.alias = softmaxAlias(l.omega, math.Inf(1))
	return l
}

// softmaxAt returns the coarsest level whose tolerance is at most tol, or the finest level.
func softmaxAt(tol float64) *softmaxLevel {
	for _, level := range softmaxLevels[:len(softmaxLevels)-1] {
		if l := level(); l.tol <= tol {
			return l
		}
	}
	return softmaxLevels[len(softmaxLevels)-1]()
}

// softmaxWork holds the buffers of one expectation.
type softmaxWork struct {
	level          *softmaxLevel
	lo, h          float64 // first node, relative to the largest mean, and step
	nodes          int
	terms          int       // J, or 0 without a series
	e, prod, f, wr []float64 // e^{−kh}; F; a factor of F; weights and ratios of a bump
	q1, q2         []float64 // Φ′/Φ and (Φ″ + Φ′)/Φ at all nodes, class by class
	s, exps        []float64
	v              []float64 // variances, widened if there are too few nodes
	d2, pi         []float64 // buffers of SoftmaxCross
	rule           [softmaxNodes][2]float64
	series         [][softmaxTerms + 1]float64 // E e^{j(s_c − u)}/j! beyond the last node
	whole          [softmaxTerms + 1]float64   // product of all series
	sums           [softmaxTerms + 1]float64   // h Σ_k e^{−jkh}
	// wide holds the product of the Φ by bumps at the first two nodes.
	wide  [2]float64
	least float64 // sum of the smallest nodes of all rules
}

var softmaxPool = sync.Pool{New: func() any { return new(softmaxWork) }}

// SoftmaxExpect returns E log Σ_c exp s_c under independent s_c ~ N(m_c, v_c), with an error of
// at most 1e−11. It stores E π_c in pi and E π_c(1 − π_c) in d2, with π = softmax(s). For a check
// it also returns part, which is Σ E π_c − 1. The means and variances must be Valid. The slices
// must be as long as m, which must not be empty.
func SoftmaxExpect(m, v, pi, d2 []float64) (lse, part float64) {
	t := softmaxPool.Get().(*softmaxWork)
	lse, _, part = t.expect(softmaxAt(softmaxFinest), m, v, pi, d2)
	softmaxPool.Put(t)
	return lse, part
}

// SoftmaxWithin is like SoftmaxExpect, but the error of each result is only about tol per class.
// A tolerance of 1e−6 takes half of the time, and 1e−13 is the finest. The returned bound is not
// an estimate: E log Σ exp s differs from lse by at most bound nats. It adds the bounds for the
// aliases of the outer rule, for the parts that are cut off on both sides, for the inner rules,
// and for rounding. It is about tol per class, or more if standard deviations are far above 1.
//
// A bound on an ELBO that is made of these expectations, such as GapBound, bounds the exact ELBO
// if the sum of bound over the rows is added to it.
func SoftmaxWithin(tol float64, m, v, pi, d2 []float64) (lse, bound float64) {
	t := softmaxPool.Get().(*softmaxWork)
	lse, bound, _ = t.expect(softmaxAt(tol), m, v, pi, d2)
	softmaxPool.Put(t)
	return lse, bound
}

// SoftmaxCross is like SoftmaxExpect, but it fills the K×K matrix cross with E π_cπ_e off the
// diagonal and E π_c(1 − π_c) on the diagonal. If pi is nil, it does not store E π_c.
func SoftmaxCross(m, v, pi, cross []float64) (lse, part float64) {
	t := softmaxPool.Get().(*softmaxWork)
	defer softmaxPool.Put(t)
	classes := len(m)
	if pi == nil {
		pi = grown(&t.pi, classes)
	}
	lse, _, part = t.expect(softmaxAt(softmaxFinest), m, v, pi, grown(&t.d2, classes))
	if slices.Max(v) == 0 { // a point mass has no nodes
		for c, d := range t.d2 {
			for e, p := range pi {
				cross[c*classes+e] = pi[c] * p
			}
			cross[c*classes+c] = d
		}
		return lse, part
	}
	n := t.nodes
	for c, d := range t.d2 {
		for k, x := range t.q1[c*n:][:n] {
			t.f[k] = x * t.prod[k]
		}
		cross[c*classes+c] = d
		for e := range c {
			x := max(t.h*fma.Dot(t.f, t.q1[e*n:][:n])+t.crossTail(c, e), 0)
			cross[c*classes+e], cross[e*classes+c] = x, x
		}
	}
	return lse, part
}

// grown resizes *x to n elements and returns it.
func grown(x *[]float64, n int) []float64 {
	if cap(*x) < n {
		*x = make([]float64, n+n/2)
	}
	*x = (*x)[:n]
	return *x
}

// expect computes the results of SoftmaxWithin and SoftmaxExpect.
func (t *softmaxWork) expect(l *softmaxLevel, m, v, pi, d2 []float64) (lse, bound, part float64) {
	center := slices.Max(m)
	if slices.Max(v) == 0 {
		return softmaxPoint(m, pi, d2, center)
	}
	t.level = l
	alias := t.place(m, v, center)
	n := t.nodes
	e, prod := grown(&t.e, n), grown(&t.prod, n)
	for k := range e {
		e[k], prod[k] = -t.h*float64(k), 1
	}
	fma.Exp(e)
	size := t.h * float64(n)
	last := math.Exp(-size)
	t.wide, t.least, t.whole = [2]float64{1, 1}, 0, [softmaxTerms + 1]float64{1}
	if cap(t.series) < len(m) {
		t.series = make([][softmaxTerms + 1]float64, len(m)+len(m)/2)
	}
	t.series = t.series[:len(m)]
	grown(&t.q1, n*len(m))
	grown(&t.q2, n*len(m))
	grown(&t.f, n)
	inner := 0.0
	for c, x := range m {
		if s := t.s[c]; s <= l.most[softmaxNodes] {
			inner += t.byRule(c, x-center, s, last)
		} else {
			inner += size * t.byBump(c, x-center, t.v[c], s, size)
		}
	}
	for j := range t.sums {
		t.sums[j] = t.h / -math.Expm1(-t.h*float64(j)) // not used for j = 0
	}
	rest := 0.0
	for _, f := range prod {
		rest += 1 - f
	}
	sign := 1.0
	tail := 0.0
	for j := 1; j < t.terms; j++ {
		tail += sign * t.whole[j] * t.sums[j]
		sign = -sign
	}
	lse = t.lo - 0.5*t.h - euler + t.h*rest + tail + center
	total := 0.0
	for c := range m {
		a, b := t.tails(c)
		a, b = t.h*fma.Dot(prod, t.q1[c*n:][:n])+a, t.h*fma.Dot(prod, t.q2[c*n:][:n])+b
		pi[c], d2[c] = max(a, 0), max(a-b, 0)
		total += a
	}
	rounding := special.Eps*(size+math.Abs(lse)) + 1e-13*float64(len(m))
	return lse, alias + inner + t.left() + t.right(m, t.v, center) + rounding, total - 1
}

// softmaxPoint is like expect for scores with variance 0, where center is the largest score.
func softmaxPoint(m, pi, d2 []float64, center float64) (lse, bound, part float64) {
	for c, x := range m {
		pi[c] = x - center
	}
	fma.Exp(pi)
	sum := floats.Sum(pi)
	floats.Scale(1/sum, pi)
	for c, p := range pi {
		d2[c] = p * (1 - p)
	}
	lse = center + math.Log(sum)
	return lse, special.Eps * (math.Abs(lse) + float64(len(m))), floats.Sum(pi) - 1
}

// place sets the nodes and the standard deviations, and returns a bound on the aliases.
func (t *softmaxWork) place(m, v []float64, center float64) (alias float64) {
	l := t.level
	s, low := grown(&t.s, len(m)), grown(&t.exps, len(m))
	q, normal := 0.0, 0.0
	for c, x := range m {
		s[c] = math.Sqrt(v[c])
		low[c] = x - center - l.reach*s[c]
		theta := min(1, l.reach/s[c]) // E e^{θ(s−u)} is tol at u
		normal = max(normal, x-center+0.5*theta*v[c]+l.log/theta)
		q += 1 / v[c]
		if s[c] <= l.most[softmaxNodes] {
			q = math.Inf(1)
		}
	}
	t.lo = logSumExp(low) - l.far
	// Beyond the end, 1 − F or the remainder of its series is less than tol. If all variances are
	// small, the largest bounds them all.
	end, factorial := normal+math.Log(float64(len(m))), 0.0
	t.terms = 0
	most, total := slices.Max(v), 0.0
	alike := most <= softmaxAlike
	for j := 1; j <= softmaxTerms; j++ {
		a := float64(j)
		factorial += math.Log(a)
		if j == 1 || !alike {
			for c, x := range m {
				low[c] = x - center + 0.5*a*v[c]
			}
			total = logSumExp(low)
		} else {
			total += 0.5 * most
		}
		if x := total + (l.log-factorial)/a; x < end {
			end, t.terms = x, j
		}
	}
	omega := l.omega
	if alias = l.alias; !math.IsInf(q, 1) {
		// ensures ω²/2q + πω/2 ≥ πω₀/2
		b := math.Pi * l.omega
		omega = b / (math.Pi/2 + math.Sqrt(math.Pi*math.Pi/4+b/q))
		alias = softmaxAlias(omega, q)
	}
	t.h = 2 * math.Pi / omega
	t.v = append(t.v[:0], v...)
	if most := float64(max(softmaxMost/len(m), 64)); end-t.lo > most*t.h {
		alias, end = t.widen(end, normal, most)
	}
	t.nodes = (int((end-t.lo)/t.h) + 8) &^ 7
	return alias
}

// widen stretches the steps such that the available nodes reach the end. Because such steps would
// miss narrow scores, it also widens all scores by a standard deviation of √K steps. It returns a
// bound on the resulting change of E L, including the aliases, and the new end. Because log Σ exp
// changes by at most the largest change of a score, E max_c |√K h z_c| is such a bound.
func (t *softmaxWork) widen(end, normal, most float64) (off, newEnd float64) {
	classes := float64(len(t.s))
	wide := math.Sqrt(classes) * (end - t.lo) / most
	t.terms = 0
	t.lo -= t.level.reach * wide
	end = max(end, normal+math.Log(classes)) + t.level.reach*wide
	t.h = (end - t.lo) / most
	q := 0.0
	for c, s := range t.s {
		t.s[c] = math.Hypot(s, wide)
		t.v[c] = t.s[c] * t.s[c]
		q += 1 / t.v[c]
	}
	return softmaxAlias(2*math.Pi/t.h, q) + wide*math.Sqrt(2*math.Log(2*classes)), end
}

// logSumExp returns log Σ e^x. It overwrites x.
func logSumExp(x []float64) float64 {
	most := slices.Max(x)
	if most > math.MaxFloat64 {
		return most
	}
	for i := range x {
		x[i] -= most
	}
	fma.Exp(x)
	sum := 0.0
	for _, e := range x {
		sum += e
	}
	return most + math.Log(sum)
}

// byRule computes Φ_c and its derivatives for class c by a Gauss-Hermite rule, and returns a
// bound on its error in E L. The mean m is relative to the largest mean, and last is e^{−nh}.
func (t *softmaxWork) byRule(c int, m, s, last float64) (off float64) {
	nodes := 1
	for s > t.level.most[nodes] {
		nodes++
	}
	r := &t.level.rules[nodes]
	var x [softmaxNodes]float64
	for i, z := range r.X {
		x[i] = m - t.lo + s*z
	}
	fma.Exp(x[:(nodes+3)&^3])
	rule := t.rule[:nodes]
	a := &t.series[c]
	*a = [softmaxTerms + 1]float64{1}
	least := math.Inf(1)
	for i, w := range r.W {
		rule[i] = [2]float64{x[i], w}
		least = min(least, x[i])
		y := x[i] * last
		for j := 1; j <= t.terms; j++ {
			w *= y / float64(j)
			a[j] += w
		}
	}
	t.least += least
	t.multiply(a)
	n := t.nodes
	q1, q2 := t.q1[c*n:][:n], t.q2[c*n:][:n]
	fma.Gumbel(rule, t.e, t.f, q1, q2)
	fma.Quotients(t.prod, t.f, q1, q2)
	x2 := s * s / (math.Pi * math.Pi)
	off = 1.24
	for k := 1; k <= nodes; k++ {
		off *= x2
		if k > 1 {
			off *= float64(k - 1)
		}
	}
	return off
}

// multiply multiplies the product of the series by a.
func (t *softmaxWork) multiply(a *[softmaxTerms + 1]float64) {
	for j := t.terms; j > 0; j-- {
		for i := 1; i <= j; i++ {
			t.whole[j] += a[i] * t.whole[j-i]
		}
	}
}

// byBump is like byRule, but uses a normal distribution function and a bump because the standard
// deviation is not small. It returns a bound on the error of Φ.
func (t *softmaxWork) byBump(c int, m, v, s, size float64) (off float64) {
	l := t.level
	a := &t.series[c]
	*a = [softmaxTerms + 1]float64{1}
	factorial := 1.0
	for j := 1; j <= t.terms; j++ {
		x := float64(j)
		factorial *= x
		a[j] = math.Exp(x*(m-t.lo-size)+0.5*x*x*v) / factorial
	}
	t.multiply(a)
	n := t.nodes
	f, q1, q2, wr := t.f, t.q1[c*n:][:n], t.q2[c*n:][:n], grown(&t.wr, 2*n)
	is, both := 1/s, 1/math.Sqrt(v+bumpSD*bumpSD)
	step, reach := l.step*is, (l.reach+0.7)*s
	x0 := max(t.lo-m, -1e300)
	// row returns the index of an even row of the bump next to x.
	row := func(x float64) int {
		return 2 * int(min(max((x-bumpLeast)/(2*l.step), 0), float64(len(l.bump)/2)))
	}
	for b := 0; b < n; b += 8 {
		first := bumpLeast + l.step*float64(row(x0+t.h*float64(b)-reach))
		d, w, r := (x0+t.h*float64(b)-first)*is, (*[8]float64)(wr[2*b:]), (*[8]float64)(wr[2*b+8:])
		for i := range w {
			y := min(d+t.h*is*float64(i), 38) // the density is 0 beyond 38
			w[i], r[i] = -0.5*y*y, (y-0.5*step)*step
		}
	}
	fma.Exp(wr)
	q := math.Exp(-step * step)
	for b := 0; b < n; b += 8 {
		g, g1, g2 := (*[8]float64)(f[b:]), (*[8]float64)(q1[b:]), (*[8]float64)(q2[b:])
		x := x0 + t.h*float64(b)
		from := row(x - reach)
		table := l.bump[from:max(from, row(x+7*t.h+reach+2*l.step))]
		fma.Bell(table, (*[8]float64)(wr[2*b:]), (*[8]float64)(wr[2*b+8:]), q, g, g1, g2)
		for i := range g {
			g[i] *= is
			g1[i] *= is
			g2[i] *= is
		}
	}
	y := wr[:n]
	for k := range y {
		y[k] = (x0 + t.h*float64(k) - bumpMean) * both
	}
	fma.AddNormal(f, y)
	t.wide[0] *= f[0]
	t.wide[1] *= f[1]
	fma.Quotients(t.prod, f, q1, q2)
	// This adds the parts outside of the window and of the table, and the error of equal steps.
	return 0.01*l.tol + l.off*is*math.Exp(0.5*bumpHeight*bumpHeight*is*is)
}

// over returns the series of F/Φ_c, where a holds the coefficients of Φ_c.
func (t *softmaxWork) over(a *[softmaxTerms + 1]float64) (r [softmaxTerms + 1]float64) {
	for j := range t.terms {
		r[j] = t.whole[j]
		for i := 1; i <= j; i++ {
			r[j] -= a[i] * r[j-i]
		}
	}
	return r
}

// tails returns the parts of E π_c and E π_c² beyond the last node.
func (t *softmaxWork) tails(c int) (p, p2 float64) {
	if t.terms < 2 {
		return 0, 0
	}
	a := &t.series[c]
	rest := t.over(a)
	sign := 1.0
	for j := 1; j < t.terms; j++ {
		var x, y float64
		for i := 1; i <= j; i++ {
			x += float64(i) * a[i] * rest[j-i]
			y += float64(i*(i-1)) * a[i] * rest[j-i]
		}
		p += sign * x * t.sums[j]
		p2 -= sign * y * t.sums[j]
		sign = -sign
	}
	return p, p2
}

// crossTail returns the part of E π_cπ_e beyond the last node.
func (t *softmaxWork) crossTail(c, e int) (p float64) {
	if t.terms < 3 {
		return 0
	}
	a, b := &t.series[c], &t.series[e]
	rest := t.over(a)
	for j := range t.terms { // divides by b as well
		for i := 1; i <= j; i++ {
			rest[j] -= b[i] * rest[j-i]
		}
	}
	sign := 1.0
	for j := 2; j < t.terms; j++ {
		x := 0.0
		for i := 1; i < j; i++ {
			for k := 1; i+k <= j; k++ {
				x += float64(i*k) * a[i] * b[k] * rest[j-i-k]
			}
		}
		p += sign * x * t.sums[j]
		sign = -sign
	}
	return p
}

// left bounds the part of E L left of the first node. There, each Φ from a rule falls at least
// like exp(−e^{−u}x) with the smallest node x, and each Φ of a normal distribution is
// log-concave.
func (t *softmaxWork) left() float64 {
	ratio := 1.0
	if t.least > 0 { // otherwise e^h may be infinite
		ratio = math.Exp(-math.Expm1(t.h) * t.least)
	}
	if t.wide[1] > t.wide[0] {
		ratio *= t.wide[0] / t.wide[1]
	}
	if f := t.prod[0]; f > 0 {
		return t.h * f * ratio / (1 - ratio) // infinite if F is flat there
	}
	return 0
}

// right bounds the part of E L beyond the last node that its series lacks. The bound is E X^J
// e^{−Ju}/J!, or E Σ_c e^{θ(s_c − u)} with the best θ ≤ 1 for each class.
func (t *softmaxWork) right(m, v []float64, center float64) (sum float64) {
	if t.terms > 0 {
		return t.whole[t.terms] * t.sums[t.terms]
	}
	for c, x := range m {
		d := t.lo + t.h*float64(t.nodes) - (x - center)
		theta := min(1, d/v[c])
		sum += math.Exp(theta*(0.5*theta*v[c]-d)) * t.h / -math.Expm1(-theta*t.h)
	}
	return sum
}
