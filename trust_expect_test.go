package pgsvi

import (
	"fmt"
	"math"
	"testing"

	"gonum.org/v1/gonum/integrate/quad"
)

// refMoments are E[ℓ], E[ℓ'], … E[ℓ””] of a log-likelihood ℓ(η) under η ~ N(m, v), and the size of
// the terms that were added up for the first, for a bound on its rounding.
type refMoments struct {
	e     [5]float64
	size  float64
	nodes int // how many times ℓ was evaluated
}

func (r *refMoments) add(c float64, x refMoments) {
	for k := range r.e {
		r.e[k] += c * x.e[k]
	}
	r.size += math.Abs(c) * x.size
	r.nodes += x.nodes
}

func (r *refMoments) addConst(c float64) {
	r.e[0] += c
	r.size += math.Abs(c)
}

// refExpect returns the expectations of log p(y|η) under N(m, v). It shares nothing with those of
// the package but the definition of each likelihood, which is written here again.
func refExpect(l Likelihood, y, m, v float64) (r refMoments) {
	or := func(x, d float64) float64 {
		if x == 0 {
			return d
		}
		return x
	}
	lgamma := func(x float64) float64 {
		g, _ := math.Lgamma(x)
		return g
	}
	// exponential adds c e^{dη}, d = ±1.
	exponential := func(c, d float64) {
		q := c * math.Exp(d*m+v/2)
		for k := range r.e {
			r.e[k] += q
			q *= d
		}
		r.size += math.Abs(q) * (1 + math.Abs(m) + v)
	}
	linear := func(c float64) { // c η
		r.addConst(c * m)
		r.e[1] += c
	}
	// softplus adds c log(1 + e^{d(η − at)}), d = ±1.
	softplus := func(c, d, at float64) {
		if c != 0 {
			x := refSoftplus(d*(m-at), v)
			x.e[1] *= d
			x.e[3] *= d
			x.size += math.Abs(at)
			r.add(c, x)
		}
	}
	switch l := l.(type) {
	case GaussianNoise:
		s := or(l.Var, 1)
		d := y - m
		r.addConst(-0.5 * math.Log(2*math.Pi*s))
		r.addConst(-0.5 * (d*d + v) / s)
		r.size += math.Abs(d) * math.Max(math.Abs(y), math.Abs(m)) / s
		r.e[1], r.e[2] = d/s, -1/s
	case Laplace:
		b := or(l.Scale, 1)
		r.addConst(-math.Log(2 * b))
		d, s := m-y, math.Max(math.Sqrt(v), 1e-300)
		z := d / s
		phi := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
		r.addConst(-(d*math.Erf(z/math.Sqrt2) + 2*s*phi) / b)
		r.size += math.Max(math.Abs(y), math.Abs(m)) / b
		r.e[1] = -math.Erf(z/math.Sqrt2) / b
		if phi == 0 {
			break // no mass at the kink
		}
		r.e[2] = -2 * phi / (b * s)
		r.e[3] = 2 * z * phi / (b * v)
		r.e[4] = 2 * (1 - z*z) * phi / (b * v * s)
	case StudentT:
		nu, scale := or(l.DF, 4), or(l.Scale, 1)
		r.addConst(lgamma((nu + 1) / 2))
		r.addConst(-lgamma(nu / 2))
		r.addConst(-0.5*math.Log(nu*math.Pi) - math.Log(scale))
		w := scale * math.Sqrt(nu)
		x := refQuad((m-y)/w, math.Sqrt(v)/w, 1, func(t float64) [5]float64 {
			q := 1 / (1 + t*t)
			return [5]float64{math.Log1p(t * t), 2 * t * q, 2 * (1 - t*t) * q * q, 4 * t * (t*t - 3) * q * q * q, (-12*t*t*t*t + 72*t*t - 12) * q * q * q * q}
		})
		for k := range x.e {
			x.e[k] *= math.Pow(w, -float64(k))
		}
		r.add(-(nu+1)/2, x)
	case Poisson:
		c := or(l.Exposure, 1)
		r.addConst(-lgamma(y + 1))
		if y > 0 {
			r.addConst(y * math.Log(c))
			linear(y)
		}
		exponential(-c, 1)
	case Gamma:
		k := or(l.Shape, 1)
		r.addConst(k*math.Log(k) - lgamma(k))
		r.addConst((k - 1) * math.Log(y))
		linear(-k)
		exponential(-k*y, -1)
	case Exponential:
		linear(-1)
		exponential(-y, -1)
	case BernoulliLogit:
		softplus(-1, -y, 0)
	case BernoulliProbit:
		x := refQuad(y*m, math.Sqrt(v), 2, refLogPhi)
		x.e[1] *= y
		x.e[3] *= y
		r.add(1, x)
	case Binomial:
		n := or(l.Trials, 1)
		r.addConst(lgamma(n + 1))
		r.addConst(-lgamma(y + 1))
		r.addConst(-lgamma(n - y + 1))
		softplus(-y, -1, 0)
		softplus(-(n - y), 1, 0)
	case NegativeBinomial:
		s := or(l.Shape, 1)
		r.addConst(lgamma(y + s))
		r.addConst(-lgamma(y + 1))
		r.addConst(-lgamma(s))
		softplus(-y, -1, math.Log(s))
		softplus(-s, 1, math.Log(s))
	case Ordinal:
		cuts := l.Cuts
		if len(cuts) == 0 {
			cuts = []float64{0}
		}
		j := int(y)
		if j > 0 && j < len(cuts) {
			r.addConst(math.Log(-math.Expm1(cuts[j-1] - cuts[j])))
		}
		if j < len(cuts) {
			softplus(-1, 1, cuts[j])
		}
		if j > 0 {
			softplus(-1, -1, cuts[j-1])
		}
	default:
		panic(fmt.Sprintf("no reference for %T: write its log-density in refExpect", l))
	}
	return r
}

// refSoftplus returns the expectations of log(1 + e^η).
func refSoftplus(m, v float64) refMoments {
	return refQuad(m, math.Sqrt(v), math.Pi, func(x float64) [5]float64 {
		e := math.Exp(-math.Abs(x))
		f := math.Log1p(e)
		p, q := 1/(1+e), e/(1+e)
		if x > 0 {
			f += x
		} else {
			p, q = q, p
		}
		pq := p * q
		return [5]float64{f, p, pq, pq * (q - p), pq * (1 - 6*pq)}
	})
}

// refLogPhi returns log Φ(η) and four derivatives.
func refLogPhi(x float64) [5]float64 {
	var f, lambda, w float64 // λ = φ/Φ, w = η + λ
	if x > -3 {
		c := 0.5 * math.Erfc(-x/math.Sqrt2)
		lambda = math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) / c
		w = x + lambda
		if f = math.Log(c); x > 0 {
			f = math.Log1p(-0.5 * math.Erfc(x/math.Sqrt2))
		}
	} else {
		z := -x // Mills' ratio as a continued fraction
		for k := int(25 + 500/(z*z)); k >= 2; k-- {
			w = float64(k) / (z + w)
		}
		w = 1 / (z + w)
		lambda = z + w
		f = -z*z/2 - 0.5*math.Log(2*math.Pi) - math.Log(lambda)
	}
	h2 := -lambda * w
	one := 1 + h2
	if x <= -3 { // 1 + h2 = w(2/(z + …) − …), whose digits matter less
		one = 1 - lambda*w
	}
	h3 := -h2*w - lambda*one
	h4 := -h3*(w+lambda) - 2*h2*one
	return [5]float64{f, lambda, h2, h3, h4}
}

// refNodes are those of Gauss–Legendre on [−1, 1].
var refNodes, refWeights = func() (x, w []float64) {
	x, w = make([]float64, 16), make([]float64, 16)
	quad.Legendre{}.FixedLocations(x, w, -1, 1)
	return x, w
}()

// refReach is how many standard deviations count on either side: φ(14) = 1e−43 pays for a growth by 1e22.
const refReach = 14

// refQuad returns the expectations of f and its four derivatives under N(m, s²), for an f that is
// analytic but for singularities at 0 ± id and beyond. Where N(m, s²) is narrow beside d it is the
// trapezoidal rule, which converges exponentially (Trefethen and Weideman 2014); otherwise
// Gauss–Legendre on panels that grow in proportion to their distance from 0.
func refQuad(m, s, d float64, f func(x float64) [5]float64) (r refMoments) {
	if s == 0 {
		r.e = f(m)
		r.size = math.Abs(r.e[0])
		return r
	}
	add := func(u, w float64) {
		w *= math.Exp(-u*u/2) / math.Sqrt(2*math.Pi)
		x := f(m + s*u)
		r.nodes++
		for k := range r.e {
			r.e[k] += w * x[k]
		}
		r.size += w * math.Abs(x[0])
	}
	if h := math.Min(0.5, 2*math.Pi*d/(38*s)); h > 0.1 {
		for k := -math.Floor(refReach / h); k*h <= refReach; k++ {
			add(k*h, h)
		}
		return r
	}
	panel := func(a, b float64) {
		for i, x := range refNodes {
			add((a+b)/2+(b-a)/2*x, refWeights[i]*(b-a)/2)
		}
	}
	c, d := -m/s, d/s
	d = math.Max(d, 1e-14*(1+math.Abs(c))) // panels advance
	for a := math.Max(-refReach, c); a < refReach; {
		b := math.Min(refReach, a+math.Min(math.Max(d, a-c), 2))
		panel(a, b)
		a = b
	}
	for b := math.Min(refReach, c); b > -refReach; {
		a := math.Max(-refReach, b-math.Min(math.Max(d, c-b), 2))
		panel(a, b)
		b = a
	}
	return r
}

// TestTrustExpectations: the expectations of the reference are those of the package to rounding, and each is the derivative of
// the one before.
func TestTrustExpectations(t *testing.T) {
	t.Parallel()
	forGrid(t, func(c likeCase, y, m, v float64) {
		r, e, s := refExpect(c.l, y, m, v), ExpectLogProb(c.l, y, m, v), math.Sqrt(v)
		if math.IsInf(e.Value, 0) || math.Abs(e.Value) < 1e-30 || math.Abs(e.D2) < 1e-30 {
			return // overflow, or beyond refReach
		}
		expectNear(t, "reference Value", c, y, m, v, r.e[0], e.Value, e.Err+1e-14*r.size)
		expectNear(t, "reference D1", c, y, m, v, r.e[1], e.D1, 1e-12*(math.Abs(e.D1)+1/c.scale))
		expectNear(t, "reference D2", c, y, m, v, r.e[2], e.D2, 1e-8*math.Abs(e.D2))
		h := 1e-3 * s
		a, b := refExpect(c.l, y, m+h, v), refExpect(c.l, y, m-h, v)
		size := math.Abs(e.D2) + 1e-9/c.scale/c.scale
		expectNear(t, "reference D3", c, y, m, v, r.e[3], (a.e[2]-b.e[2])/(2*h), 1e-4*(math.Abs(r.e[3])+size*(1+1/s)))
		expectNear(t, "reference D4", c, y, m, v, r.e[4], (a.e[3]-b.e[3])/(2*h), 1e-4*(math.Abs(r.e[4])+size*(1+1/s/s)))
	})
}

// TestTrustLikelihoods: the trust tests draw every likelihood of the package, know responses of each, and its expectations.
func TestTrustLikelihoods(t *testing.T) {
	rng := testRand(1)
	drawn := map[string]bool{}
	for _, l := range trustLikelihoods(rng) {
		drawn[typeName(l)] = true
		y := randomResponse(rng, l, 0.3)
		if err := checkLabel(l, y); err != nil {
			t.Errorf("%#v: %v", l, err)
		}
		if r, e := refExpect(l, y, 0.1, 0.5), ExpectLogProb(l, y, 0.1, 0.5); !(math.Abs(r.e[0]-e.Value) <= 1e-10*(1+r.size)) {
			t.Errorf("%#v: %v, %v", l, r, e)
		}
	}
	for _, name := range declaredLikelihoods(t) {
		if !drawn[name] {
			t.Errorf("%s is not among trustLikelihoods", name)
		}
	}
}
