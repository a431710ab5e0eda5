package expect

import (
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/special"
)

// With independent standard Gumbel variables G_c, max_c (s_c + G_c) is Gumbel about log Σ exp s_c.
// For independent scores s_c ~ N(m_c, v_c) therefore, whichever class r is,
//
//	E log Σ_c exp s_c = m_r + ∫ [Φ_r(u) − Π_c Φ_c(u)] du,   Φ_c(u) = E g(u − s_c),
//	g(x) = exp(−e^{−x}).
//
// E π_c and E π_c(1 − π_c) are derivatives with respect to m_c, those of Φ_c.

const (
	softmaxFar   = 3.6 // g is 1e−16 there, left of 0
	softmaxReach = 7.2 // standard deviations that count
	softmaxTail  = 30  // how far beyond the greatest score the integral goes
	softmaxStrip = 36  // −log of the error of the outer rule
	softmaxInner = 29  // and that of the inner one
	softmaxWide  = 2   // the standard deviation from which on Φ is that of a normal and a bump
	softmaxMost  = 1 << 14
)

// softmaxWork is scratch of one expectation.
type softmaxWork struct {
	u, j, eu, prod []float64
	p              []float64 // Φ and its derivatives, of n nodes each, class by class
	z, w, s, d2    []float64
}

var softmaxPool = sync.Pool{New: func() any { return new(softmaxWork) }}

// SoftmaxExpect returns E log Σ_c exp s_c under independent s_c ~ N(m_c, v_c). It stores E π_c in
// pi and E π_c(1 − π_c) in d2, for π = softmax(s). Part is by how much Σ E π_c is not 1: a check.
// The means and variances must be Valid, and the slices as long as m, of two classes or more.
func SoftmaxExpect(m, v, pi, d2 []float64) (lse, part float64) {
	t := softmaxPool.Get().(*softmaxWork)
	lse, part = t.expect(m, v, pi, d2, 1)
	softmaxPool.Put(t)
	return lse, part
}

// SoftmaxCross is SoftmaxExpect that stores E π_cπ_e off the diagonal of cross, K×K, and
// E π_c(1 − π_c) on it.
func SoftmaxCross(m, v, pi, cross []float64) (lse, part float64) {
	t := softmaxPool.Get().(*softmaxWork)
	defer softmaxPool.Put(t)
	classes := len(m)
	d2 := grown(&t.d2, classes)
	lse, part = t.expect(m, v, pi, d2, 1)
	n := len(t.u)
	for c := range classes {
		p0, p1 := t.p[3*c*n:][:n], t.p[(3*c+1)*n:][:n]
		for k, f := range p0 { // ratios, for good
			if f > 1e-290 {
				p1[k] /= f
			} else {
				p1[k] = 0
			}
		}
		cross[c*classes+c] = d2[c]
		for e := range c {
			p2 := t.p[(3*e+1)*n:][:n]
			var s float64
			for k, x := range t.prod[:n] { // of which the steps are part
				s += x * p1[k] * p2[k]
			}
			cross[c*classes+e], cross[e*classes+c] = s, s
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

// expect is SoftmaxExpect with steps finer by that factor.
func (t *softmaxWork) expect(m, v, pi, d2 []float64, finer float64) (lse, part float64) {
	classes := len(m)
	s := grown(&t.s, classes)
	// What follows is relative to the greatest mean.
	centre, lo, hi, ref := slices.Max(m), math.Inf(-1), math.Inf(-1), 0
	var q, sum float64
	for c, x := range m {
		x -= centre
		s[c] = math.Sqrt(v[c])
		hi = max(hi, x+softmaxReach*s[c])
		if l := x - softmaxReach*s[c]; l > lo {
			lo, ref = l, c
		}
		q += 1 / (v[c] + 1e-300)
		sum += math.Exp(x + 0.5*v[c])
	}
	lo -= softmaxFar
	right := min(hi+math.Log(float64(classes)), max(math.Log(sum), 0))
	// The step h, by the strip of g, π/2, and the smoothing by the normals:
	// 2π²/(h²q) + π²/h ≥ softmaxStrip.
	const b = math.Pi * math.Pi
	a := 2 * math.Pi * math.Pi / q
	inv := softmaxStrip / b
	if a > 1e-6 {
		inv = (-b + math.Sqrt(b*b+4*a*softmaxStrip)) / (2 * a)
	}
	h := max(1/(inv*finer), (right-lo)/softmaxMost)
	// u = x + S exp((x − x1)/S) makes the tail on the right double exponential.
	wide := math.Max(1, h/.33)
	x1 := right + .5*wide
	t.u, t.j = t.u[:0], t.j[:0]
	for i := range 2 * softmaxMost {
		x := lo + float64(i)*h
		e := math.Exp((x - x1) / wide)
		u := x + wide*e
		t.u, t.j = append(t.u, u), append(t.j, h*(1+e))
		if u > right+softmaxTail {
			break
		}
	}
	n := len(t.u)
	eu, prod, p := grown(&t.eu, n), grown(&t.prod, n), grown(&t.p, 3*n*classes)
	for k, u := range t.u {
		eu[k], prod[k] = math.Exp(-min(max(u, -600), 690)), 1
	}
	clear(p)
	for c := range classes {
		p0, p1, p2 := p[3*c*n:][:n], p[(3*c+1)*n:][:n], p[(3*c+2)*n:][:n]
		t.class(p0, p1, p2, m[c]-centre, s[c], finer)
		for k, x := range p0 {
			prod[k] *= x
		}
	}
	lse = m[ref]
	for k, x := range p[3*ref*n:][:n] {
		lse += t.j[k] * (x - prod[k])
	}
	for k, j := range t.j {
		prod[k] *= j
	}
	total := 0.0
	for c := range classes {
		p0, p1, p2 := p[3*c*n:][:n], p[(3*c+1)*n:][:n], p[(3*c+2)*n:][:n]
		var x, y float64
		for k, f := range p0 {
			if f > 1e-290 {
				r := prod[k] / f
				x += p1[k] * r
				y -= p2[k] * r
			}
		}
		pi[c], d2[c] = x, math.Max(y, 0)
		total += x
	}
	return lse, total - 1
}

// softmaxRules are the Gauss–Hermite rules for standard deviations up to most.
var softmaxRules = [...]struct {
	most  float64
	nodes int
}{{.010, 4}, {.03, 6}, {.08, 8}, {.2, 12}, {.33, 16}, {.46, 20}}

// class adds Φ and E g′, and E g″, of a class of that mean, relative to the centre, and standard
// deviation.
func (t *softmaxWork) class(p0, p1, p2 []float64, m, s, finer float64) {
	if s >= softmaxWide {
		t.wide(p0, p1, p2, m, s)
		return
	}
	r := 0
	for r < len(softmaxRules) && s*finer > softmaxRules[r].most {
		r++
	}
	nodes, weights := t.z[:0], t.w[:0]
	if r < len(softmaxRules) {
		rule := Hermite(softmaxRules[r].nodes)
		nodes, weights = append(nodes, rule.X...), append(weights, rule.W...)
	} else { // trapezoids, of weights that are normalised
		y := math.Pi / 2 / s
		step := 2 * math.Pi * y / (softmaxInner + 0.5*y*y) / finer
		half, sum := int(math.Ceil(softmaxReach/step)), 0.0
		for i := -half; i <= half; i++ {
			z := float64(i) * step
			w := math.Exp(-0.5 * z * z)
			nodes, weights = append(nodes, z), append(weights, w)
			sum += w
		}
		for i := range weights {
			weights[i] /= sum
		}
	}
	t.z, t.w = nodes, weights
	eu := t.eu
	for i, z := range nodes {
		w, ez := weights[i], math.Exp(m+s*z)
		k := 0
		for k < len(eu) && eu[k]*ez > 42 {
			k++
		}
		q0, q1, q2 := p0[k:], p1[k:], p2[k:]
		for l, e := range eu[k:] {
			x := e * ez
			g := w * math.Exp(-x)
			q0[l] += g
			g *= x
			q1[l] += g
			q2[l] += g * (x - 1)
		}
	}
}

// The bump is g(z) − N((z − bumpMean)/bumpSD).
const (
	bumpMean  = 0.5
	bumpSD    = 0.75
	bumpStep  = 0.3
	bumpLeast = -4.6
	bumpMost  = 32
)

// softmaxBump has it, and the derivatives of g, at nodes bumpStep apart, with weights for a density.
var softmaxBump = sync.OnceValue(func() (bump [][3]float64) {
	for i := 0.0; bumpLeast+i*bumpStep < bumpMost; i++ {
		z := bumpLeast + i*bumpStep
		x := math.Exp(-z)
		g, w := math.Exp(-x), bumpStep*special.GaussInvSqrt2Pi
		bump = append(bump, [3]float64{w * (g - special.NormalTail((bumpMean-z)/bumpSD)), w * g * x, w * g * x * (x - 1)})
	}
	return bump
})

// wide is class for standard deviations of softmaxWide or more: the densities at nodes a step apart
// have ratios in geometric progression.
func (t *softmaxWork) wide(p0, p1, p2 []float64, m, s float64) {
	bump := softmaxBump()
	is, both := 1/s, 1/math.Sqrt(s*s+bumpSD*bumpSD)
	w := bumpStep * is
	q := math.Exp(-w * w)
	reach := int(min(softmaxReach/w+1, float64(len(bump))))
	for k, u := range t.u {
		x := u - m
		at := int(min(max(math.Round((x-bumpLeast)/bumpStep), 0), float64(len(bump)-1)))
		off := (x - bumpLeast - float64(at)*bumpStep) * is
		var f, d, e float64
		if first := math.Exp(-0.5 * off * off); first > 0 {
			b := &bump[at]
			f, d, e = b[0]*first, b[1]*first, b[2]*first
			for sign := -1; sign <= 1; sign += 2 {
				g, r := first, math.Exp((float64(sign)*off-0.5*w)*w)
				for i := 1; i <= reach; i++ {
					j := at + sign*i
					if j < 0 || j >= len(bump) {
						break
					}
					g *= r
					r *= q
					b := &bump[j]
					f += b[0] * g
					d += b[1] * g
					e += b[2] * g
				}
			}
		}
		p0[k], p1[k], p2[k] = max(special.NormalTail((bumpMean-x)*both)+f*is, 0), d*is, e*is
	}
}
