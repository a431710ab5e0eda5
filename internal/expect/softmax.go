package expect

import (
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/floats"
)

// Expectations of softmax. With independent standard Gumbel variables G_c, max_c (s_c + G_c) is
// L + G, where L = log X and X = Σ exp s_c. For independent scores s_c its distribution function is
//
//	F(u) = Π_c Φ_c(u),   Φ_c(u) = E g(u − s_c),   g(x) = exp(−e^{−x}),
//
// and its mean is E L + γ, γ of Euler. The derivatives of E L with respect to the mean of a score
// are those of Φ_c. At even nodes lo + kh, k ≥ 0,
//
//	E L    = lo − h/2 − γ + h Σ (1 − F)
//	E π_c  = h Σ F Φ′_c/Φ_c
//	E π_c² = h Σ F (Φ″_c + Φ′_c)/Φ_c
//
// but for the aliases Σ_{j≠0} E e^{−iωL} Γ(1 + iω)/iω, ω = 2πj/h, and Σ E π_c e^{−iωL} Γ(1 + iω)
// and Σ E π_c² e^{−iωL} Γ(2 + iω). |Γ(1 + iω)|² = πω/sinh πω, so that they fall like e^{−π²/h}. By
// a shift of all scores into the complex plane |E e^{−iωL}| ≤ e^{−ω²/2q}, q = Σ 1/v_c.
//
// Beyond the last node the sums are those of the series of F in e^{−u}, whose terms are moments of
// X: Π_c Σ_j (−e^{−u})ʲ E e^{j s_c}/j!, cut off before j = J.
//
// A score of small standard deviation has the nodes of a Gauss–Hermite rule as its values. That is
// a distribution too, under which all of the above is exact: E L is off by the rule's error for
// log(e^{s_c} + rest) alone, at most λ(2n)(n−1)!(s/π)²ⁿ. For others Φ_c is a normal distribution
// function and a bump, integrated by even steps.

const (
	softmaxTerms  = 5       // the most J
	softmaxAlike  = 0.01    // variances below it are as good as one: the end moves by 4% of a node
	softmaxNodes  = 16      // the most of a rule
	softmaxMost   = 1 << 20 // nodes times classes, beyond which steps are longer
	softmaxFinest = 1e-11   // what SoftmaxExpect asks
	euler         = 0.57721566490153286060651209008240243
)

// softmaxLevel is what a tolerance asks.
type softmaxLevel struct {
	tol   float64
	log   float64                   // −log of it
	omega float64                   // 2π/h by which an alias of E π² is at most tol
	alias float64                   // bounds those of E L then
	far   float64                   // g(−far) is tol
	reach float64                   // a normal is tol beyond so many standard deviations
	most  [softmaxNodes + 1]float64 // the greatest standard deviation of a rule of n nodes
	rules [softmaxNodes + 1]Rule
	step  float64 // of the bump
	bump  [][3]float64
	off   float64 // bounds the error of Φ by the bump, times s and e^{−bumpHeight²/2v}
}

// The levels: each is a tenth or so of the time of another.
var softmaxLevels = [...]func() *softmaxLevel{
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(1e-4, 0.5) }),
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(1e-6, 0.4) }),
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(1e-8, 0.32) }),
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(softmaxFinest, 0.25) }),
	sync.OnceValue(func() *softmaxLevel { return newSoftmaxLevel(1e-13, 0.2) }),
}

// The bump is g(z) − N((z − bumpMean)/bumpSD), from bumpLeast on.
const (
	bumpMean  = 0.5
	bumpSD    = 0.75
	bumpLeast = -5.5
	// The error of even steps is bounded by ∫ |bump(z ± iy)| dz at a height y. For |g| is
	// exp(−e^{−z} cos y), and |1 − g| ≤ e^{−z}, the integral is less than
	// E₁(cos y) + 1 + ∫_{z<0} N + ∫_{z>0} (1 − N) + ∫_0^y e^{t²/2 bumpSD²} dt.
	bumpHeight   = 1.45
	bumpIntegral = 7
)

// softmaxAlias bounds the aliases of E L where nodes are 2π/ω apart and q = Σ 1/v.
func softmaxAlias(omega, q float64) float64 {
	first := 2 * gammaAlias(omega) / omega * math.Exp(-0.5*omega*omega/q)
	// Each of the others is less than the ratio times the one before.
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
		// what a rule is off in E π(1 − π): 2(2n+1) n! (s/π)²ⁿ λ(2n+2)/π²
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

// softmaxAt returns the coarsest level that holds tol.
func softmaxAt(tol float64) *softmaxLevel {
	for _, level := range softmaxLevels[:len(softmaxLevels)-1] {
		if l := level(); l.tol <= tol {
			return l
		}
	}
	return softmaxLevels[len(softmaxLevels)-1]()
}

// softmaxWork is scratch of one expectation.
type softmaxWork struct {
	level          *softmaxLevel
	lo, h          float64 // the first node, relative to the greatest mean, and the step
	nodes          int
	terms          int       // J, or 0 where there is no series
	e, prod, f, wr []float64 // e^{−kh}; F; a factor of it; weights and ratios of a bump
	q1, q2         []float64 // Φ′/Φ and (Φ″ + Φ′)/Φ, of so many nodes each, class by class
	s, exps        []float64
	v              []float64 // variances, widened where nodes are too few
	d2, pi         []float64 // of SoftmaxCross
	rule           [softmaxNodes][2]float64
	series         [][softmaxTerms + 1]float64 // E e^{j(s_c − u)}/j! beyond the last node
	whole          [softmaxTerms + 1]float64   // and their product
	sums           [softmaxTerms + 1]float64   // h Σ_k e^{−jkh}
	// the product of the Φ by bumps at the first two nodes
	wide  [2]float64
	least float64 // the sum of the least nodes of the rules
}

var softmaxPool = sync.Pool{New: func() any { return new(softmaxWork) }}

// SoftmaxExpect returns E log Σ_c exp s_c under independent s_c ~ N(m_c, v_c), to 1e−11. It stores
// E π_c in pi and E π_c(1 − π_c) in d2, for π = softmax(s). Part is by how much Σ E π_c is not 1: a
// check. The means and variances must be Valid, and the slices as long as m, which is not empty.
func SoftmaxExpect(m, v, pi, d2 []float64) (lse, part float64) {
	t := softmaxPool.Get().(*softmaxWork)
	lse, _, part = t.expect(softmaxAt(softmaxFinest), m, v, pi, d2)
	softmaxPool.Put(t)
	return lse, part
}

// SoftmaxWithin is SoftmaxExpect to about tol a class in each of its results: 1e−6 takes half of
// the time, 1e−13 is the finest. Bound is no estimate: E log Σ exp s is at most so many nats from
// what is returned. It is the sum of bounds of the aliases of the outer rule, of what is cut off on
// both sides, of the inner rules and of rounding: some tol a class, more where standard deviations
// are far above 1.
//
// A bound on an ELBO that is made of these expectations, as GapBound is, is one of the exact ELBO
// with the sum of Bound over the rows added to it.
func SoftmaxWithin(tol float64, m, v, pi, d2 []float64) (lse, bound float64) {
	t := softmaxPool.Get().(*softmaxWork)
	lse, bound, _ = t.expect(softmaxAt(tol), m, v, pi, d2)
	softmaxPool.Put(t)
	return lse, bound
}

// SoftmaxCross is SoftmaxExpect that stores E π_cπ_e off the diagonal of cross, K×K, and
// E π_c(1 − π_c) on it. A nil pi is not stored.
func SoftmaxCross(m, v, pi, cross []float64) (lse, part float64) {
	t := softmaxPool.Get().(*softmaxWork)
	defer softmaxPool.Put(t)
	classes := len(m)
	if pi == nil {
		pi = grown(&t.pi, classes)
	}
	lse, _, part = t.expect(softmaxAt(softmaxFinest), m, v, pi, grown(&t.d2, classes))
	if slices.Max(v) == 0 { // a point, which has no nodes
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

// grown returns *x with n elements.
func grown(x *[]float64, n int) []float64 {
	if cap(*x) < n {
		*x = make([]float64, n+n/2)
	}
	*x = (*x)[:n]
	return *x
}

// expect is SoftmaxWithin and SoftmaxExpect.
func (t *softmaxWork) expect(l *softmaxLevel, m, v, pi, d2 []float64) (lse, bound, part float64) {
	centre := slices.Max(m)
	if slices.Max(v) == 0 {
		return softmaxPoint(m, pi, d2, centre)
	}
	t.level = l
	alias := t.place(m, v, centre)
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
			inner += t.byRule(c, x-centre, s, last)
		} else {
			inner += size * t.byBump(c, x-centre, t.v[c], s, size)
		}
	}
	for j := range t.sums {
		t.sums[j] = t.h / -math.Expm1(-t.h*float64(j)) // of j = 0 no use
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
	lse = t.lo - 0.5*t.h - euler + t.h*rest + tail + centre
	total := 0.0
	for c := range m {
		a, b := t.tails(c)
		a, b = t.h*fma.Dot(prod, t.q1[c*n:][:n])+a, t.h*fma.Dot(prod, t.q2[c*n:][:n])+b
		pi[c], d2[c] = max(a, 0), max(a-b, 0)
		total += a
	}
	rounding := special.Eps*(size+math.Abs(lse)) + 1e-13*float64(len(m))
	return lse, alias + inner + t.left() + t.right(m, t.v, centre) + rounding, total - 1
}

// softmaxPoint is expect for scores of variance 0, of which centre is the greatest.
func softmaxPoint(m, pi, d2 []float64, centre float64) (lse, bound, part float64) {
	for c, x := range m {
		pi[c] = x - centre
	}
	fma.Exp(pi)
	sum := floats.Sum(pi)
	floats.Scale(1/sum, pi)
	for c, p := range pi {
		d2[c] = p * (1 - p)
	}
	lse = centre + math.Log(sum)
	return lse, special.Eps * (math.Abs(lse) + float64(len(m))), floats.Sum(pi) - 1
}

// place sets the nodes, and the standard deviations, and returns a bound of the aliases.
func (t *softmaxWork) place(m, v []float64, centre float64) (alias float64) {
	l := t.level
	s, low := grown(&t.s, len(m)), grown(&t.exps, len(m))
	q, normal := 0.0, 0.0
	for c, x := range m {
		s[c] = math.Sqrt(v[c])
		low[c] = x - centre - l.reach*s[c]
		theta := min(1, l.reach/s[c]) // E e^{θ(s−u)} is tol there
		normal = max(normal, x-centre+0.5*theta*v[c]+l.log/theta)
		q += 1 / v[c]
		if s[c] <= l.most[softmaxNodes] {
			q = math.Inf(1)
		}
	}
	t.lo = logSumExp(low) - l.far
	// Beyond the end 1 − F, or what its series leaves, is less than tol. Where variances are small,
	// the greatest bounds them all.
	end, factorial := normal+math.Log(float64(len(m))), 0.0
	t.terms = 0
	most, total := slices.Max(v), 0.0
	alike := most <= softmaxAlike
	for j := 1; j <= softmaxTerms; j++ {
		a := float64(j)
		factorial += math.Log(a)
		if j == 1 || !alike {
			for c, x := range m {
				low[c] = x - centre + 0.5*a*v[c]
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
		// ω²/2q + πω/2 ≥ πω₀/2
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

// widen takes the steps to the end that there are nodes for, and gives scores that they would miss
// a standard deviation of √K of them. It returns a bound of what that and the aliases change in E
// L, and the end. As log Σ exp moves by no more than the scores do, E max_c |√K h z_c| is one.
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

// logSumExp returns log Σ e^x, and changes x.
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

// byRule stores the parts of class c, of that mean relative to the greatest, by a Gauss–Hermite
// rule, and returns a bound of its error in E L. Last is e^{−nh}.
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

// multiply makes the product of the series one of a too.
func (t *softmaxWork) multiply(a *[softmaxTerms + 1]float64) {
	for j := t.terms; j > 0; j-- {
		for i := 1; i <= j; i++ {
			t.whole[j] += a[i] * t.whole[j-i]
		}
	}
}

// byBump is byRule by a normal distribution function and a bump, where the standard deviation is
// no small one, but it returns a bound of the error of Φ.
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
	// row returns an even row of the bump that is next to x.
	row := func(x float64) int {
		return 2 * int(min(max((x-bumpLeast)/(2*l.step), 0), float64(len(l.bump)/2)))
	}
	for b := 0; b < n; b += 8 {
		first := bumpLeast + l.step*float64(row(x0+t.h*float64(b)-reach))
		d, w, r := (x0+t.h*float64(b)-first)*is, (*[8]float64)(wr[2*b:]), (*[8]float64)(wr[2*b+8:])
		for i := range w {
			y := min(d+t.h*is*float64(i), 38) // beyond, the density is 0
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
	// what is cut off of a window and of the table, and the even steps
	return 0.01*l.tol + l.off*is*math.Exp(0.5*bumpHeight*bumpHeight*is*is)
}

// over returns the series of F/Φ_c, c being of coefficients a.
func (t *softmaxWork) over(a *[softmaxTerms + 1]float64) (r [softmaxTerms + 1]float64) {
	for j := range t.terms {
		r[j] = t.whole[j]
		for i := 1; i <= j; i++ {
			r[j] -= a[i] * r[j-i]
		}
	}
	return r
}

// tails returns what E π_c and E π_c² have beyond the last node.
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

// crossTail returns what E π_cπ_e has beyond the last node.
func (t *softmaxWork) crossTail(c, e int) (p float64) {
	if t.terms < 3 {
		return 0
	}
	a, b := &t.series[c], &t.series[e]
	rest := t.over(a)
	for j := range t.terms { // over b too
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

// left bounds what E L has of F left of the first node. There each Φ of a rule falls at least like
// exp(−e^{−u}x) for the least node x, and those of normals are log-concave.
func (t *softmaxWork) left() float64 {
	ratio := 1.0
	if t.least > 0 { // else e^h may be infinite
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

// right bounds what E L has beyond the last node and its series lack: E X^J e^{−Ju}/J!, or E Σ_c
// e^{θ(s_c − u)} for a θ ≤ 1 that is best for each class.
func (t *softmaxWork) right(m, v []float64, centre float64) (sum float64) {
	if t.terms > 0 {
		return t.whole[t.terms] * t.sums[t.terms]
	}
	for c, x := range m {
		d := t.lo + t.h*float64(t.nodes) - (x - centre)
		theta := min(1, d/v[c])
		sum += math.Exp(theta*(0.5*theta*v[c]-d)) * t.h / -math.Expm1(-theta*t.h)
	}
	return sum
}
