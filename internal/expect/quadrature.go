// Package expect computes expectations under a Gaussian, E[g(η)] with η ~ N(m, v), and their
// derivatives in m, with bounds on their errors. The likelihoods of the root package call it for
// each term of an ELBO. Packages predict, passage, estimate, site and topic also use its rules.
//
//	quadrature.go	the logit, functions with one center, and adaptive quadrature
//	analytic.go	analytic functions that bend between straight lines
//	beta.go	beta and beta-binomial log-probabilities
//	nested.go	nested rules for smooth functions
//	narrow.go	narrow Gaussians
//	hermite.go	Gauss-Hermite rules
//	mode.go	integrals over the real line with a single mode
//	softmax.go	the softmax of independent scores
package expect

import (
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/special"
)

// Valid reports whether m is finite, and v is finite and not negative. Then N(m, v) is a Gaussian
// or a point mass.
func Valid(m, v float64) bool {
	return math.Abs(m) <= math.MaxFloat64 && v >= 0 && v <= math.MaxFloat64
}

// ---- Bernoulli, logit link ------------------------------------------------

// SoftplusAt returns log(1+e^{−x}), the negative of its derivative, σ(−x), and its second
// derivative, σ(x)σ(−x).
func SoftplusAt(x float64) (f0, f1, f2 float64) {
	e := math.Exp(-math.Abs(x))
	r := 1 / (1 + e)
	f0, f1, f2 = math.Log1p(e), e*r, e*r*r
	if x < 0 {
		f0, f1 = f0-x, r
	}
	return f0, f1, f2
}

// SoftplusExpect returns, for η ~ N(m, v) with m ≥ 0,
//
//	F0 = E[log(1+e^{−η})]   F1 = −∂F0/∂m = E[σ(−η)]   F2 = ∂²F0/∂m² = E[σ(η)σ(−η)]
//
// as multiples of e^scale. The scale is zero unless the multiples could underflow. All three are
// sums without cancellation, so they keep their relative accuracy in the tail. The method depends
// on m and s = √v:
//
//	log-normal tail   F0 = F1 = F2 = exp(v/2 − m) to 1e−16
//	s < 0.42          Gauss-Hermite, see ruleOf
//	s < 10            the trapezoidal rule on softplusTable
//	otherwise         softplusSeries
func SoftplusExpect(m, v float64) (f0, f1, f2, scale float64) {
	s := math.Sqrt(v)
	switch {
	case v == 0 && m < 600:
		f0, f1, f2 = SoftplusAt(m)
		return f0, f1, f2, 0
	case tail(m, v, s):
		scale = v/2 - m
		if scale > -600 {
			e := math.Exp(scale)
			return e, e, e, 0
		}
		return 1, 1, 1, scale
	case s < narrow:
		f0, f1, f2 = softplusHermite(hermiteRules[ruleOf(s)].rule, m, s)
		return f0, f1, f2, 0
	case s < 10:
		f0, f1, f2 = softplusTrapezoid(m, v, s)
		return f0, f1, f2, 0
	}
	return softplusSeries(m, v, s)
}

// tail reports whether log(1+e^−η) equals e^−η for all η that matter under N(m, v), v = s².
func tail(m, v, s float64) bool { return m >= v+8.5*s && (m < 2*v || m >= 38+1.5*v) }

// A Gauss-Hermite rule applies to standard deviations below narrow.
const narrow = 0.42

// hermiteRules holds the rules that ruleOf chooses from.
var hermiteRules = [...]struct {
	below float64 // the rule applies to standard deviations below this
	rule  []fma.Node
}{{0.035, hermite4[:]}, {0.11, hermite6[:]}, {0.18, hermite8[:]}, {0.26, hermite10[:]},
	{0.33, hermite12[:]}, {narrow, hermite16[:]}}

// ruleOf returns the index of the rule for a standard deviation below narrow. With n nodes, the
// error of the second derivative relative to its value at zero is about 8 (2n+1) n! s²ⁿ/π²ⁿ⁺²,
// because its poles are at ±iπ. The rules keep this error below 1e−13.
func ruleOf(s float64) (k int) {
	// The loop has no branches that depend on s, because the processor could not predict them.
	for i := range len(hermiteRules) - 1 {
		above := 0
		if s >= hermiteRules[i].below {
			above = 1
		}
		k += above
	}
	return k
}

// softplusHermite computes fma.Softplus for a single row. It processes the nodes together, as
// fma.Softplus processes the rows together, and returns the same bits.
func softplusHermite(rule []fma.Node, m, s float64) (f0, f1, f2 float64) {
	// For each pair ±x of nodes, e holds e^−|a| and e^−|b| with a = m − sx and b = m + sx, and
	// logs holds log((1+e^−|a|)(1+e^−|b|)).
	var e [2 * len(hermite16)]float64
	var logs [len(hermite16)]float64
	n := len(rule)
	for i := range rule {
		x := float64(s * rule[i][0]) // the conversions prevent fused operations
		e[i], e[n+i] = -math.Abs(m-x), -math.Abs(m+x)
	}
	fma.Exp(e[:(2*n+3)&^3])
	for i := range rule {
		a, b := e[i], e[n+i]
		logs[i] = a + b + float64(a*b)
	}
	fma.Log1p(logs[:(n+3)&^3])
	for i := range rule {
		w, x := rule[i][1], float64(s*rule[i][0])
		a, b, ea, eb := m-x, m+x, e[i], e[n+i]
		// A single division serves both nodes of a pair.
		r := 1 / ((1 + ea) * (1 + eb))
		ra, rb := r*(1+eb), r*(1+ea)
		ga, gb := float64(ea*ra), float64(eb*rb)
		f := logs[i]
		f2 += float64(w * (float64(ga*ra) + float64(gb*rb)))
		if a < 0 {
			f, ga = f-a, ra
		}
		if b < 0 {
			f, gb = f-b, rb
		}
		f0 += float64(w * f)
		f1 += float64(w * (ga + gb))
	}
	return f0, f1, f2
}

// softplusRows is the number of rows that SoftplusExpects processes together. They fit into the
// nearest cache.
const softplusRows = 256

// SoftplusExpects stores the F0, F1 and F2 of SoftplusExpect without a scale, for all m ≥ 0 and
// v. It panics if a slice is shorter than m. The bits are the same as from SoftplusExpect.
func SoftplusExpects(f0, f1, f2, m, v []float64) {
	for lo := 0; lo < len(m); lo += softplusRows {
		hi := min(lo+softplusRows, len(m))
		softplusExpects(f0[lo:hi], f1[lo:hi], f2[lo:hi], m[lo:hi], v[lo:hi])
	}
}

func softplusExpects(f0, f1, f2, m, v []float64) {
	var sd [softplusRows]float64
	least, most, far := math.Inf(1), 0.0, math.Inf(-1)
	for i, x := range m {
		s := math.Sqrt(v[i])
		if sd[i] = s; s < least {
			least = s
		}
		if s > most {
			most = s
		}
		if x -= v[i] + 8.5*s; x > far {
			far = x
		}
	}
	// no row is in the tail, and all rows use the same rule
	if far < 0 && 0 < least && most < narrow && ruleOf(least) == ruleOf(most) {
		fma.Softplus(hermiteRules[ruleOf(most)].rule, f0, f1, f2, m, sd[:len(m)])
		return
	}
	// Group the rows by rule.
	var rule, place [softplusRows]uint8 // indices up to 255
	var mean, s, y0, y1, y2 [softplusRows]float64
	const none = uint8(len(hermiteRules))
	var count [len(hermiteRules)]int
	for i, x := range m {
		if rule[i] = none; !tail(x, v[i], sd[i]) && v[i] > 0 && sd[i] < narrow {
			rule[i] = uint8(ruleOf(sd[i]))
			count[rule[i]]++
			continue
		}
		var scale float64
		if f0[i], f1[i], f2[i], scale = SoftplusExpect(x, v[i]); scale != 0 {
			c := math.Exp(scale)
			f0[i], f1[i], f2[i] = c*f0[i], c*f1[i], c*f2[i]
		}
	}
	var first [len(hermiteRules)]int
	for k := 1; k < len(count); k++ {
		first[k] = first[k-1] + count[k-1]
	}
	at := first
	for i, x := range m {
		if k := rule[i]; k < none {
			place[i] = uint8(at[k])
			mean[at[k]], s[at[k]] = x, sd[i]
			at[k]++
		}
	}
	for k, n := range count {
		lo, hi := first[k], first[k]+n
		fma.Softplus(hermiteRules[k].rule, y0[lo:hi], y1[lo:hi], y2[lo:hi], mean[lo:hi], s[lo:hi])
	}
	for i, k := range rule[:len(m)] {
		if k < none {
			f0[i], f1[i], f2[i] = y0[place[i]], y1[place[i]], y2[place[i]]
		}
	}
}

// The nodes of softplusTable are multiples of softplusStep, or of twice softplusStep, up to
// softplusReach on either side. For standard deviations below 10 and means that are not in the
// tail, the trapezoidal rule needs nodes up to 180.
const (
	softplusStep  = 0.25
	softplusReach = 192
)

// softplusTable holds the softplus and its derivatives at x = ih, starting at −softplusReach, for
// h = softplusStep and for twice that step. It subtracts a Gaussian-smoothed hinge L(x) = φ(x) −
// xΦ(−x), whose expectation has a closed form: under N(m, v) it is S L(m/S) with S² = v+1. The
// difference
//
//	log(1+e^{−x}) − L(x)   even     σ(−x) − Φ(−x)   odd     σ(x)σ(−x)   even
//
// falls like e^{−|x|} on both sides and is analytic for |Im x| < π, so the trapezoidal rule
// converges geometrically. With step h, its error is of the order exp(−2π²/h + π²/2v) (Trefethen
// and Weideman 2014, section 5).
var softplusTable = sync.OnceValue(func() (t [2][]float64) {
	for k := range t {
		h := softplusStep * float64(k+1)
		side := int(softplusReach / h)
		wide := 2*side + 1
		t[k] = make([]float64, 3*wide)
		for i := range side + 1 {
			x := h * float64(i)
			f0, f1, f2 := SoftplusAt(x)
			f0, f1 = f0-special.NormalLoss(x), f1-special.NormalTail(x)
			for _, p := range [2]struct {
				at   int
				sign float64
			}{{side + i, 1}, {side - i, -1}} {
				t[k][p.at], t[k][wide+p.at], t[k][2*wide+p.at] = f0, p.sign*f1, f2
			}
		}
	}
	return t
})

// softplusTrapezoid computes F0, F1 and F2 for 0.42 ≤ s ≤ 10. The ratios of Gaussian densities at
// equally spaced points form a geometric progression, so each node needs only two
// multiplications.
func softplusTrapezoid(m, v, s float64) (f0, f1, f2 float64) {
	table, h := softplusTable()[0], softplusStep
	if s >= 1.5 {
		table, h = softplusTable()[1], 2*softplusStep
	}
	// e^{−x} N(x|m,v) is proportional to N(x|m−v,v). So start at that mode, or at the peak of the
	// table if the mode is beyond it, and walk both ways. If the mode is left of 0, end where
	// e^{−x} N(x|m,v) is below e^−37 times its value at 0.
	hi := math.Max(m-v+9*s, 40)
	if m < v {
		hi = math.Max(hi, m-v+math.Sqrt((m-v)*(m-v)+2*37*v))
	}
	hi = math.Min(m+9*s, hi)
	lo := math.Max(m-v-9*s, -40)
	first := int(math.Max(m-v, 0) / h)
	// one walk goes up from first, and the other goes down from the node before it
	nodes := max(int(hi/h)-first+1, first+int(-lo/h))
	// Let x0 be the distance of the first node from the mean. The weights of nodes at x0 + d
	// relative to the first are e^−d(2x0+d)/2v. The weights of nodes that are e further, relative
	// to these, are e^−e(2x0+2d+e)/2v.
	x0, half, four := h*float64(first)-m, 0.5/v, 4*h
	S := math.Sqrt(v + 1)
	t := m / S
	q := t * t
	var e [20]float64
	w, r := (*[8]float64)(e[:]), (*[8]float64)(e[8:])
	for i := range 4 {
		d := h * float64(i)
		w[i], r[i] = -d*(2*x0+d)*half, -four*(2*(x0+d)+four)*half
		d += h
		w[4+i], r[4+i] = d*(2*x0-d)*half, four*(2*(x0-d)-four)*half
	}
	e[16], e[17], e[18] = -four*four/v, -x0*x0*half, -q/2
	fma.Exp(e[:])
	side := len(table) / 6
	sum := fma.Geometric((nodes+3)/4, w, r, e[16], table, side+first, side+1-first)
	c := special.GaussInvSqrt2Pi * h / s * e[17]
	gap := special.GaussGap(t)
	tail := special.NormalPDFOf(t, q, e[18]) / (t + gap) // from NormalTail and NormalLoss
	return math.FMA(c, sum[0], S*tail*gap), math.FMA(c, sum[1], tail), c * sum[2]
}

// softplusEta[a][j] is Σ_{k>4a} (−1)^{k+1} k^{−j}, which is Dirichlet's η(j), or η(j) without its
// first four terms. Chebyshev polynomials accelerate the sums (Cohen, Rodriguez Villegas and
// Zagier 2000, algorithm 1).
var softplusEta = sync.OnceValue(func() *[2][48]float64 {
	t := new([2][48]float64)
	const n = 24
	d := math.Pow(3+math.Sqrt(8), n)
	d = (d + 1/d) / 2
	for a := range t {
		for j := range t[a] {
			b, c, sum := -1.0, -d, 0.0
			for k := range n {
				c = b - c
				sum += c * math.Pow(float64(4*a+k+1), -float64(j))
				b *= float64((k+n)*(k-n)) / ((float64(k) + 0.5) * float64(k+1))
			}
			t[a][j] = sum / d
		}
	}
	return t
})

// softplusSeries computes F0, F1 and F2 for wide Gaussians. After subtracting the hinge, F0 is
// the integral of the bump log(1+e^{−|x|}). The bump is narrow compared with N(x|m,v), whose
// expansion about x = 0 is φ(t)/s Σ_k He_k(t) (x/s)^k/k! with t = m/s. The moments of the bump
// are 2 k! η(k+2) for even k, and the moments of its derivatives are similar:
//
//	F0 = s L(t) + 2φ(t)/s Σ_{k even} He_k(t) s^{−k} η(k+2)
//	F1 = Φ(−t)  + 2φ(t)/s Σ_{k odd}  He_k(t) s^{−k} η(k+1)
//	F2 =          2φ(t)/s Σ_{k even} He_k(t) s^{−k} η(k)
//
// The terms behave like (m/v)^k. If m/v is not small, softplusSeries integrates the first four
// exponentials of the bump, Σ_j (−1)^{j+1} e^{−j|x|}/j, exactly. The remaining terms behave like
// (m/5v)^k.
func softplusSeries(m, v, s float64) (f0, f1, f2, scale float64) {
	t, eps := m/s, m/v
	exact := eps >= 0.2
	eta := &softplusEta()[0]
	if exact {
		eta = &softplusEta()[1]
	}
	a, b := 1.0, eps // He_k(t)/s^k for k and k+1
	f0, f1, f2 = eta[2], b*eta[2], eta[0]
	small := 1e-17
	for k := 2; k+2 < len(eta); k += 2 {
		a = eps*b - float64(k-1)/v*a
		b = eps*a - float64(k)/v*b
		f0 += a * eta[k+2]
		f1 += b * eta[k+2]
		f2 += a * eta[k]
		if (math.Abs(a)+math.Abs(b))*eta[k] < small {
			break
		}
	}
	f0, f1, f2 = 2*f0/s, 2*f1/s, 2*f2/s
	if exact {
		sign := 1.0
		for j := 1.0; j <= 4; j++ {
			p, n := special.Mills(j*s-t), special.Mills(j*s+t)
			f0 += sign * (p + n) / j
			f1 += sign * (p - n)
			f2 += sign * (p + n) * j
			sign = -sign
		}
	}
	c := special.GaussGap(t)
	if t < 30 {
		p := special.NormalPDF(t)
		tail := p / (t + c) // from NormalTail and NormalLoss
		return math.FMA(p, f0, s*tail*c), math.FMA(p, f1, tail), p * f2, 0
	}
	return f0 + s*c/(t+c), f1 + 1/(t+c), f2, -t*t/2 - special.LogSqrt2Pi
}

// ---- Smooth functions with one center -------------------------------------

// Centred returns the expectations of g, g′ and g″ under N(m, v) with s = √v > 0, over [lo, hi],
// and the expectation abs of |g|. The function g must be smooth except for singularities near c ±
// id in the complex plane, and grow at most like a polynomial. Examples are log Φ and the log
// density of Student's t. If g N(m, v) has another relevant mode away from m and right of c, its
// standard deviation is w < s.
//
// If the singularities are far away, Centred uses Gauss-Hermite rules. Otherwise it uses the
// trapezoidal rule up to s = 0.9d. The error of this rule is exp(a²/2s² − 2πa/h) for every a < d,
// and the step h reduces it to e^−37. For larger s it cuts [lo, hi] at c into panels. Their
// lengths grow in proportion to their distance from c, so that 16 Gauss-Legendre nodes resolve g
// on each panel, but stay below 4s (4w), so that the nodes also resolve the Gaussian.
func Centred(f func(x float64) (g, d1, d2 float64), m, s, lo, hi, w, c, d float64) (e [3]float64,
	abs float64) {
	var rule []fma.Node
	switch r := math.Hypot(m-c, d); {
	case w < s:
	case d >= 16*s || r >= 30*s:
		rule = hermite8[:]
	case d >= 8*s || r >= 12*s:
		rule = hermite16[:]
	}
	add := func(p, x float64) {
		g, d1, d2 := f(x)
		e[0] += p * g
		e[1] += p * d1
		e[2] += p * d2
		abs += p * math.Abs(g)
	}
	if rule != nil {
		for i := range rule {
			n := &rule[i]
			add(n[1], m-s*n[0])
			add(n[1], m+s*n[0])
		}
		return e, abs
	}
	if s <= 0.9*d {
		a := math.Min(d, 8.6*s) / s
		h := 2 * math.Pi * a / (37 + a*a/2) // in units of s
		// the density underflows at 39 standard deviations
		for i := 0.0; ; i++ {
			l, r := m-i*h*s, m+i*h*s
			p := special.NormalPDF(i*h) * h
			if lo <= l && l <= hi {
				add(p, l)
			}
			if i > 0 && lo <= r && r <= hi {
				add(p, r)
			}
			if l < lo && r > hi || p == 0 {
				return e, abs
			}
		}
	}
	d = math.Max(d, 1e-16*s)
	for side := 1.0; side >= -1; side -= 2 {
		// a and end are distances from c, from the inside to the outside.
		a, end, wide := math.Max(0, lo-c), hi-c, 4*w
		if side < 0 {
			a, end, wide = math.Max(0, c-hi), c-lo, 4*s
			if w < s && m > c {
				wide = math.Min(wide, 12*s/(m-c)*s)
			}
		}
		for a < end {
			b := a + math.Min(math.Max(2*d, 3*a), wide)
			if b+0.3*(b-a) > end || b == a { // or a has no float64 next to it that is close enough
				b = end
			}
			mid, half := a+(b-a)/2, (b-a)/2
			k := half / s * special.GaussInvSqrt2Pi
			for i := range legendre16 {
				n := &legendre16[i]
				l, r := c+side*(mid-half*n.x), c+side*(mid+half*n.x)
				y, z := (l-m)/s, (r-m)/s
				add(k*n.w*math.Exp(-y*y/2), l)
				add(k*n.w*math.Exp(-z*z/2), r)
			}
			a = b
		}
	}
	return e, abs
}

// ---- Adaptive quadrature for everything else -------------------------------

// quadSum holds the integrals of three functions and of their absolute values, and an estimate of
// the error of each integral.
type quadSum struct{ Sum, abs, Err [3]float64 }

type quadPanel struct {
	a, b float64
	quadSum
}

const (
	quadPanels = 128 // largest number of panels

	// A bisection is futile if the integrals over both halves add up to the integral over the panel to
	// quadSame, and the errors of the halves are at least quadNoBetter times its error. Then the error
	// is rounding of f. After quadFutile such bisections Adaptive ends, as QUADPACK does.
	quadSame     = 1e-5
	quadNoBetter = 0.99
	quadFutile   = 6
)

// Adaptive integrates the three components of f over [cuts[0], cuts[n−1]]. The cuts must not
// decrease, and it starts from the panels between them. It bisects the panel with the largest
// error, relative to the integrals of absolute values, until every component is within tol, or
// there are 128 panels, or bisections no longer change the integrals nor reduce the error.
//
// Err bounded the error of all smooth f that were tried. A corner or a jump of f must be a cut,
// because Err may be too small otherwise.
func Adaptive(f func(x float64) [3]float64, cuts []float64, tol float64) quadSum {
	var panels [quadPanels]quadPanel
	n, futile := 0, 0
	for i := 1; i < len(cuts); i++ {
		if cuts[i] > cuts[i-1] {
			panels[n] = quadKronrod(f, cuts[i-1], cuts[i])
			n++
		}
	}
	for { // ends at quadPanels panels at the latest
		var t quadSum
		for i := range n {
			for k := range 3 {
				t.Sum[k] += panels[i].Sum[k]
				t.abs[k] += panels[i].abs[k]
				t.Err[k] += panels[i].Err[k]
			}
		}
		var inv [3]float64
		for k := range 3 {
			if t.Err[k] > tol*t.abs[k] {
				inv[k] = 1 / t.abs[k]
			}
		}
		worst, most := -1, 0.0
		for i := range n {
			p := &panels[i]
			if e := max(p.Err[0]*inv[0], p.Err[1]*inv[1], p.Err[2]*inv[2]); e > most {
				if mid := p.a + (p.b-p.a)/2; p.a < mid && mid < p.b {
					worst, most = i, e
				}
			}
		}
		if worst < 0 || n == quadPanels || futile == quadFutile {
			for k := range 3 {
				t.Err[k] += 4 * special.Eps * t.abs[k]
			}
			return t
		}
		p := panels[worst]
		mid := p.a + (p.b-p.a)/2
		panels[worst], panels[n] = quadKronrod(f, p.a, mid), quadKronrod(f, mid, p.b)
		if p.rounded(&panels[worst], &panels[n], inv) {
			futile++
		}
		n++
	}
}

// rounded reports whether the bisection of p into l and r was futile, for the integrals whose inv is
// not 0. Piessens et al. (1983) count the same in QAGS.
func (p *quadPanel) rounded(l, r *quadPanel, inv [3]float64) bool {
	for k, x := range inv {
		if x == 0 || p.Err[k] == 0 {
			continue
		}
		if math.Abs(p.Sum[k]-l.Sum[k]-r.Sum[k]) > quadSame*(l.abs[k]+r.abs[k]) ||
			l.Err[k]+r.Err[k] < quadNoBetter*p.Err[k] {
			return false
		}
	}
	return true
}

// quadKronrod applies the Gauss-Kronrod pair with 10 and 21 nodes to [a, b], and estimates the
// error like QUADPACK (Piessens et al. 1983, section 2.2.4.1).
func quadKronrod(f func(x float64) [3]float64, a, b float64) quadPanel {
	mid, half := a+(b-a)/2, (b-a)/2
	var fx [21][3]float64
	fx[20] = f(mid)
	for j := range 10 {
		fx[2*j] = f(mid - half*kronrod21[j].x)
		fx[2*j+1] = f(mid + half*kronrod21[j].x)
	}
	p := quadPanel{a: a, b: b}
	for k := range 3 {
		c := fx[20][k]
		sum := kronrod21[10].w * c
		abs := kronrod21[10].w * math.Abs(c)
		gauss := 0.0
		for j := range 10 {
			l, r := fx[2*j][k], fx[2*j+1][k]
			sum += kronrod21[j].w * (l + r)
			abs += kronrod21[j].w * (math.Abs(l) + math.Abs(r))
			if j%2 == 1 {
				gauss += gauss10[j/2] * (l + r)
			}
		}
		mean := sum / 2
		dev := kronrod21[10].w * math.Abs(c-mean)
		for j := range 10 {
			dev += kronrod21[j].w * (math.Abs(fx[2*j][k]-mean) + math.Abs(fx[2*j+1][k]-mean))
		}
		e := math.Abs(sum - gauss)
		if e > 0 && dev > 0 {
			e = dev * math.Min(1, math.Pow(200*e/dev, 1.5))
		}
		if e < 8*special.Eps*abs {
			e = 0 // only rounding, which Adaptive adds
		}
		p.Sum[k], p.abs[k], p.Err[k] = half*sum, half*abs, half*e
	}
	return p
}

// Reach appends to dst, which is empty, the increasing points at which to cut an integral over u
// against φ(u), with η = m + su. The points include −9, −3, 0, 3 and 9, and points further out as
// long as |grow(u)| φ(u) u² is not negligible compared with scale. They also include η = 0 and η
// = y. If s is large, Reach adds points at distances 1, 8, 64, … from both, because two wide
// panels could miss a layer of width one between them.
func Reach(dst []float64, grow func(u float64) float64, scale, y, m, s float64) []float64 {
	far := [...]float64{9, 13, 18, 24, 31, 39}
	dst = append(dst, -9, -3, 0, 3, 9)
	lo, hi := -9.0, 9.0
	for k := 0; k+1 < len(far); k++ {
		u := far[k]
		if lo == -u && math.Abs(grow(-u))*special.NormalPDF(u)*u*u > 1e-18*scale {
			lo = -far[k+1]
			dst = append(dst, lo)
		}
		if hi == u && math.Abs(grow(u))*special.NormalPDF(u)*u*u > 1e-18*scale {
			hi = far[k+1]
			dst = append(dst, hi)
		}
	}
	for _, c := range [2]float64{y, 0} {
		c = (c - m) / s
		if lo < c && c < hi {
			dst = append(dst, c)
		}
		for d, n := 1/s, 0; d < 3 && n < 8; d, n = 8*d, n+1 {
			for _, u := range [2]float64{c - d, c + d} {
				if lo < u && u < hi {
					dst = append(dst, u)
				}
			}
		}
		if y == 0 {
			break
		}
	}
	slices.Sort(dst)
	return dst
}

// ---- Rules -----------------------------------------------------------------

// quadNode is a node x > 0 of a symmetric rule and its weight. The node −x has the same weight.
type quadNode struct{ x, w float64 }

// These Gauss-Hermite rules for N(0, 1) satisfy Σ w (f(x) + f(−x)) = E[f] for polynomials of
// degree 2n−1.
var (
	hermite4 = [2]fma.Node{
		{0.7419637843027258, 0.45412414523193156},
		{2.3344142183389773, 0.04587585476806842},
	}
	hermite6 = [3]fma.Node{
		{0.6167065901925941, 0.4088284695560293},
		{1.8891758777537107, 0.08861574604191451},
		{3.324257433552119, 0.0025557844020562487},
	}
	hermite8 = [4]fma.Node{
		{0.539079811351375108, 0.37301225767907735},
		{1.636519042435108, 0.117239907661759015},
		{2.8024858612875417, 0.00963522012078826719},
		{4.14454718612589433, 0.00011261453837536777},
	}
	hermite10 = [5]fma.Node{
		{0.48493570751549764, 0.344642334932019},
		{1.4659890943911582, 0.1354837029802678},
		{2.4843258416389546, 0.019111580500770272},
		{3.581823483551927, 0.0007580709343122172},
		{4.859462828332312, 4.310652630718312e-06},
	}
	hermite12 = [6]fma.Node{
		{0.44440300194413895, 0.32166436151283},
		{1.3403751971516167, 0.14696704804532998},
		{2.259464451000799, 0.029116687912364176},
		{3.2237098287700974, 0.0022033806875332005},
		{4.2718258479322815, 4.837184922590645e-05},
		{5.500901704467748, 1.4999271676371626e-07},
	}
	hermite16 = [8]fma.Node{
		{0.386760604500557348, 0.286568521238012123},
		{1.16382910055496477, 0.158338372750949618},
		{1.95198034571633346, 0.0472847523540140288},
		{2.76024504763070162, 0.00726693760118473337},
		{3.60087362417154829, 0.000525984926573909244},
		{4.49295530252001124, 0.000015300032162487272},
		{5.47222570594934309, 1.30947321628682274e-7},
		{6.63087819839312848, 1.49781472316183973e-10},
	}
)

// legendre16 is the Gauss-Legendre rule with 16 nodes on [−1, 1].
var legendre16 = [8]quadNode{
	{0.0950125098376374402, 0.189450610455068496},
	{0.281603550779258913, 0.182603415044923589},
	{0.458016777657227386, 0.169156519395002538},
	{0.617876244402643748, 0.149595988816576732},
	{0.755404408355003034, 0.124628971255533872},
	{0.865631202387831744, 0.0951585116824927848},
	{0.944575023073232576, 0.0622535239386478929},
	{0.989400934991649933, 0.0271524594117540949},
}

// kronrod21 is the Gauss-Kronrod rule with 21 nodes on [−1, 1]. The odd entries and 0 belong to
// the Gauss rule with 10 nodes.
var kronrod21 = [11]quadNode{
	{0.995657163025808080735527280689003, 0.011694638867371874278064396062192},
	{0.973906528517171720077964012084452, 0.03255816230796472747881897245938964},
	{0.930157491355708226001207180059508, 0.05475589657435199603138130024458},
	{0.865063366688984510732096688423493, 0.07503967481091995276704314091619},
	{0.780817726586416897063717578345042, 0.093125454583697605535065465083366},
	{0.679409568299024406234327365114874, 0.109387158802297641899210590325805},
	{0.562757134668604683339000099272694, 0.123491976262065851077958109585166},
	{0.433395394129247190799265943165784, 0.134709217311473325928054001771707},
	{0.294392862701460198131126603103866, 0.142775938577060080797094273138717},
	{0.14887433898163121088482600112972, 0.147739104901338491374841515972068},
	{0, 0.149445554002916905664936468389821},
}

var gauss10 = [5]float64{
	0.066671344308688137593568809893332,
	0.149451349150580593145863397657697,
	0.219086362515982043995534934228163,
	0.269266719309996355091226921569469,
	0.295524224714752870173815619188769,
}
