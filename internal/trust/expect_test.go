package trust

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// refMoments holds E[ℓ], E[ℓ'], … E[ℓ””] of a log-likelihood ℓ(η) under η ~ N(m, v). It also
// holds the sum of the absolute terms of E[ℓ], which bounds the rounding error.
type refMoments struct {
	e     [5]float64
	size  float64
	nodes int // evaluations of ℓ
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

// refExpect returns the expectations of log p(y|η) under N(m, v). It shares no code with the
// package, so it defines each likelihood again.
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
			break // the kink has no mass
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
			return [5]float64{math.Log1p(t * t), 2 * t * q, 2 * (1 - t*t) * q * q,
				4 * t * (t*t - 3) * q * q * q, (-12*t*t*t*t + 72*t*t - 12) * q * q * q * q}
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
		if x, ok := refOutcome(l, y, m, v); ok {
			return x
		}
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

// refLogPhi returns log Φ(η) and its first four derivatives.
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
	if x <= -3 { // 1 + h2 = w(2/(z + …) − …) needs fewer digits
		one = 1 - lambda*w
	}
	h3 := -h2*w - lambda*one
	h4 := -h3*(w+lambda) - 2*h2*one
	return [5]float64{f, lambda, h2, h3, h4}
}

// refNodes and refWeights form the Gauss-Legendre rule on [−1, 1].
var refNodes, refWeights = func() (x, w []float64) {
	x, w = make([]float64, 16), make([]float64, 16)
	quad.Legendre{}.FixedLocations(x, w, -1, 1)
	return x, w
}()

// refReach is the number of standard deviations that count on either side. φ(14) = 1e−43 makes up
// for a growth by 1e22.
const refReach = 14

// refQuad returns the expectations of f and its four derivatives under N(m, s²). The function f
// must be analytic except for singularities at ±id and further from the real axis. If N(m, s²) is
// narrow compared to d, refQuad uses the trapezoidal rule, which converges exponentially
// (Trefethen and Weideman 2014). Otherwise it uses the Gauss-Legendre rule on panels that grow in
// proportion to their distance from 0.
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
	d = math.Max(d, 1e-14*(1+math.Abs(c))) // panels must advance
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

// expectCases holds likelihoods, responses, and the scale in η over which log p varies.
var expectCases = []expectCase{
	{BernoulliLogit{}, []float64{-1, 1}, 2},
	{BernoulliProbit{}, []float64{-1, 1}, 1},
	{Poisson{}, []float64{0, 1, 7}, 1},
	{Poisson{Exposure: 2.5}, []float64{3}, 1},
	{GaussianNoise{}, []float64{-1.3, 4}, 1},
	{GaussianNoise{Var: 0.01}, []float64{2}, 0.1},
	{StudentT{}, []float64{-0.7, 12}, 1},
	{StudentT{DF: 1.5, Scale: 0.2}, []float64{1}, 0.1},
	{StudentT{DF: 400, Scale: 3}, []float64{1}, 10},
	{Laplace{}, []float64{0.5, -6}, 1},
	{Laplace{Scale: 0.05}, []float64{3}, 0.05},
	{Binomial{}, []float64{0, 1}, 2},
	{Binomial{Trials: 40}, []float64{0, 13, 40}, 0.3},
	{NegativeBinomial{}, []float64{0, 1, 9}, 1},
	{NegativeBinomial{Shape: 0.3}, []float64{0, 30}, 1},
	{NegativeBinomial{Shape: 25}, []float64{0, 6}, 0.3},
	{Gamma{}, []float64{0.2, 3}, 1},
	{Gamma{Shape: 0.4}, []float64{1e-3, 2}, 1},
	{Gamma{Shape: 30}, []float64{0.5, 11}, 0.2},
	{Exponential{}, []float64{0, 0.7, 5}, 1},
	{Ordinal{}, []float64{0, 1}, 2},
	{Ordinal{Cuts: []float64{-1.5, -1.4, 0.8, 3}}, []float64{0, 1, 2, 4}, 1},
	{ZeroInflated{}, []float64{0, 1, 7}, 1},
	{ZeroInflated{Zero: 0.02}, []float64{0, 3}, 0.5},
	{ZeroInflated{Zero: 0.9, Shape: 0.5}, []float64{0, 2}, 1},
	{ZeroInflated{Zero: 0.1, Shape: 12}, []float64{0, 5}, 0.5},
	{Hurdle{}, []float64{0, 1, 7}, 1},
	{Hurdle{Zero: 0.2, Shape: 3}, []float64{0, 1, 6}, 1},
	{Hurdle{Zero: 0.2, Shape: 0.3}, []float64{1, 4}, 1},
	{Weibull{}, []float64{0.2, 3, -3}, 1},
	{Weibull{Shape: 2.5}, []float64{0.7, -0.7}, 0.4},
	{Weibull{Shape: 0.4}, []float64{2, -5}, 2},
	{LogNormal{}, []float64{0.5, -2}, 1},
	{LogNormal{Scale: 0.1}, []float64{3, -3}, 0.1},
	{Beta{}, []float64{1e-3, 0.4, 0.97}, 1},
	{Beta{Precision: 60}, []float64{0.02, 0.5}, 0.2},
	{Beta{Precision: 0.3}, []float64{0.2}, 1},
	{BetaBinomial{Trials: 2}, []float64{0, 1}, 1},
	{BetaBinomial{Trials: 12, Precision: 4}, []float64{0, 5, 12}, 0.5},
	{BetaBinomial{Trials: 40, Precision: 500}, []float64{13}, 0.3},
}

type expectCase struct {
	l     Likelihood
	good  []float64
	scale float64
}

// growth returns k if log p has a term e^{kη}, because the expectation of this term overflows if
// the Gaussian is wide.
func (c expectCase) growth() float64 {
	switch l := c.l.(type) {
	case Poisson:
		return 1
	case ZeroInflated:
		if l.Shape == 0 {
			return 1
		}
	case Hurdle:
		if l.Shape == 0 {
			return 1
		}
	case Weibull:
		return -cmp.Or(l.Shape, 1)
	case Gamma, Exponential:
		return -1
	}
	return 0
}

// onGrid calls f with all cases, for means and standard deviations of every size.
func onGrid(f func(c expectCase, y, m, v float64)) {
	for _, c := range expectCases {
		for _, y := range c.good {
			for i, m := range []float64{0, 1e-3, -1e-3, 0.5, -0.5, 1.5, 3, -3, 20, -20, 1e3, -1e3} {
				for j, s := range []float64{1e-4, 1e-2, 0.17, 0.19, 0.41, 0.43, 0.75, 1, 1.45, 1.55,
					2.6, 5, 9.9, 10.1, 30, 200, 1e3} {
					if !testkit.IsLong() && (i+j)%testkit.Shorter(4, 8) != 0 {
						continue
					}
					f(c, y, m, s*s)
				}
			}
		}
	}
}

// TestTrustExpectations checks that the expectations of the reference equal the expectations of
// the package up to rounding, and that each expectation is the derivative of the previous one.
func TestTrustExpectations(t *testing.T) {
	t.Parallel()
	near := func(what string, c expectCase, y, m, v, got, want, tol float64) {
		t.Helper()
		if got != want && !(math.Abs(got-want) <= tol) {
			t.Errorf("%#v y=%v m=%v sd=%v: %s = %.17g, want %.17g (off by %.2g, allowed %.2g)",
				c.l, y, m, math.Sqrt(v), what, got, want, got-want, tol)
		}
	}
	at := -1
	onGrid(func(c expectCase, y, m, v float64) {
		if at++; testing.Short() && at%3 > 0 {
			return
		}
		s := math.Sqrt(v)
		if _, strip := refOutcome(c.l, y, m, 0); strip &&
			s*math.Max(1, math.Abs(c.growth())) > 35 && !testkit.IsLong() {
			return // needs thousands of nodes
		}
		switch c.l.(type) {
		case ZeroInflated, Weibull:
			if s > 100 || math.Abs(m) > 100 {
				return // the derivatives of the reference are less accurate
			}
		}
		r, e := refExpect(c.l, y, m, v), ExpectLogProb(c.l, y, m, v)
		if math.IsInf(e.Value, 0) || math.Abs(e.Value) < 1e-30 || math.Abs(e.D2) < 1e-30 {
			return // overflows, or extends beyond refReach
		}
		near("reference Value", c, y, m, v, r.e[0], e.Value, e.Err+1e-14*r.size)
		near("reference D1", c, y, m, v, r.e[1], e.D1, 1e-12*(math.Abs(e.D1)+1/c.scale))
		near("reference D2", c, y, m, v, r.e[2], e.D2, 1e-8*math.Abs(e.D2)+1e-15)
		h := 1e-3 * s
		a, b := refExpect(c.l, y, m+h, v), refExpect(c.l, y, m-h, v)
		size := math.Abs(e.D2) + 1e-9/c.scale/c.scale
		near("reference D3", c, y, m, v, r.e[3], (a.e[2]-b.e[2])/(2*h), 1e-4*(math.Abs(r.e[3])+
			size*(1+1/s)))
		near("reference D4", c, y, m, v, r.e[4], (a.e[3]-b.e[3])/(2*h), 1e-4*(math.Abs(r.e[4])+
			size*(1+1/s/s)))
	})
}

// TestTrustLikelihoods checks that the trust tests draw every likelihood of the package with
// valid responses, and that the reference has its expectations.
func TestTrustLikelihoods(t *testing.T) {
	rng := testkit.Rand(1)
	drawn := map[string]bool{}
	for _, l := range append(trustLikelihoods(rng), outcomeLikelihoods(rng)...) {
		drawn[kindOf(l)] = true
		y := randomResponse(rng, l, 0.3)
		if _, err := NewGLM(mat.NewDense(1, 1, []float64{1}), []float64{y}, l, nil); err != nil {
			t.Errorf("%#v: %v", l, err)
		}
		if r, e := refExpect(l, y, 0.1, 0.5),
			ExpectLogProb(l, y, 0.1, 0.5); !(math.Abs(r.e[0]-e.Value) <= 1e-10*(1+r.size)) {
			t.Errorf("%#v: %v, %v", l, r, e)
		}
	}
	drawn[kindOf(Softmax{})] = true // TestSeedsClasses and package expect check softmax models
	for _, name := range testkit.DeclaredLikelihoods(t, "../..") {
		if !drawn[name] {
			t.Errorf("%s is not among trustLikelihoods", name)
		}
	}
}

// double is an unevaluated sum hi + lo of two float64 with |lo| ≤ ulp(hi)/2, which has about 32
// decimal digits (Dekker 1971; Hida, Li and Bailey 2001). The reference of the trust tests uses
// it for whatever cancels in float64: products of rows in raw units, their factors and
// log-determinants.
type double struct{ hi, lo float64 }

func asDouble(x float64) double { return double{x, 0} }

func (a double) float() float64 { return a.hi + a.lo }

func (a double) neg() double { return double{-a.hi, -a.lo} }

func (a double) plus(b double) double {
	s := a.hi + b.hi
	t := s - a.hi
	e := (a.hi - (s - t)) + (b.hi - t)
	u := a.lo + b.lo
	v := u - a.lo
	f := (a.lo - (u - v)) + (b.lo - v)
	e += u
	h := s + e
	e -= h - s
	e += f
	hi := h + e
	return double{hi, e - (hi - h)}
}

func (a double) minus(b double) double { return a.plus(b.neg()) }

func (a double) times(b double) double {
	p := float64(a.hi * b.hi) // the compiler must not fuse it with a sum
	e := math.FMA(a.hi, b.hi, -p) + (a.hi*b.lo + a.lo*b.hi)
	hi := p + e
	return double{hi, e - (hi - p)}
}

func (a double) over(b double) double {
	q := a.hi / b.hi
	r := a.minus(b.times(asDouble(q)))
	q2 := r.hi / b.hi
	r = r.minus(b.times(asDouble(q2)))
	return asDouble(q).plus(asDouble(q2)).plus(asDouble(r.hi / b.hi))
}

func (a double) sqrt() double {
	if a.hi <= 0 {
		return asDouble(math.Sqrt(a.hi))
	}
	x := math.Sqrt(a.hi)
	return asDouble(x).plus(a.minus(asDouble(x).times(asDouble(x))).over(asDouble(2 * x)))
}

func (a double) log() float64 { return math.Log(a.hi) + a.lo/a.hi }

// dotDouble returns Σ x_i y_i.
func dotDouble(x, y []double) (sum double) {
	for i, a := range x {
		sum = sum.plus(a.times(y[i]))
	}
	return sum
}

// choleskyDouble overwrites the lower triangle of the n×n matrix p with its Cholesky factor, and
// reports whether p is positive definite.
func choleskyDouble(p []double, n int) bool {
	for i := range n {
		for j := range i + 1 {
			s := p[i*n+j].minus(dotDouble(p[i*n:i*n+j], p[j*n:j*n+j]))
			if j < i {
				p[i*n+j] = s.over(p[j*n+j])
				continue
			}
			if !(s.hi > 0) || math.IsInf(s.hi, 0) {
				return false
			}
			p[i*n+i] = s.sqrt()
		}
	}
	return true
}

// forwardDouble overwrites b with C⁻¹b, given a Cholesky factor C.
func forwardDouble(c, b []double) {
	n := len(b)
	for i := range n {
		b[i] = b[i].minus(dotDouble(c[i*n:i*n+i], b[:i])).over(c[i*n+i])
	}
}

// backwardDouble overwrites b with C⁻ᵀb.
func backwardDouble(c, b []double) {
	n := len(b)
	for i := n - 1; i >= 0; i-- {
		b[i] = b[i].over(c[i*n+i])
		for j := range i {
			b[j] = b[j].minus(c[i*n+j].times(b[i]))
		}
	}
}

// logDetDouble returns log|CCᵀ|.
func logDetDouble(c []double, n int) (sum float64) {
	for i := range n {
		sum += 2 * c[i*n+i].log()
	}
	return sum
}

// factorDouble returns the rows of an n×r matrix A with AAᵀ = k, given a positive semi-definite
// n×n matrix k. It is a Cholesky factorization with pivots down to tol times the largest pivot.
// It overwrites k.
func factorDouble(k []double, n int, tol float64) (a []double, r int) {
	cols := make([][]double, 0, n)
	least := 0.0
	for i := range n {
		least = math.Max(least, tol*k[i*n+i].hi)
	}
	for range n {
		p := 0
		for i := range n {
			if k[i*n+i].hi > k[p*n+p].hi {
				p = i
			}
		}
		if !(k[p*n+p].hi > least) {
			break
		}
		d := k[p*n+p].sqrt()
		c := make([]double, n)
		for i := range n {
			c[i] = k[i*n+p].over(d)
		}
		for i := range n {
			for j := range n {
				k[i*n+j] = k[i*n+j].minus(c[i].times(c[j]))
			}
		}
		for i := range n {
			k[i*n+p], k[p*n+i] = double{}, double{}
		}
		cols = append(cols, c)
	}
	r = len(cols)
	a = make([]double, n*r)
	for j, c := range cols {
		for i, x := range c {
			a[i*r+j] = x
		}
	}
	return a, r
}

// TestDouble compares double with math/big at 300 bits.
func TestDouble(t *testing.T) {
	rng := testkit.Rand(3)
	number := func() (double, *big.Float) {
		x := asDouble(rng.NormFloat64() * math.Exp(20*rng.NormFloat64()))
		x = x.plus(asDouble(x.hi * 0x1p-60 * rng.NormFloat64()))
		b := new(big.Float).SetPrec(300).SetFloat64(x.hi)
		return x, b.Add(b, new(big.Float).SetFloat64(x.lo))
	}
	for range 2000 {
		x, a := number()
		y, b := number()
		z := new(big.Float).SetPrec(300)
		for name, c := range map[string]struct {
			got  double
			want *big.Float
		}{
			"sum":      {x.plus(y), new(big.Float).Add(a, b)},
			"product":  {x.times(y), new(big.Float).Mul(a, b)},
			"quotient": {x.over(y), new(big.Float).Quo(a, b)},
			"root":     {x.times(x).sqrt(), new(big.Float).Abs(a)},
		} {
			z.SetFloat64(c.got.hi)
			z.Add(z, new(big.Float).SetFloat64(c.got.lo))
			z.Sub(z, c.want).Quo(z, c.want)
			if off, _ := z.Float64(); !(math.Abs(off) < 1e-30) {
				t.Fatalf("%s of %v and %v: relative error %.2g", name, x, y, off)
			}
		}
	}
}

// Models with local factors have several optima and no reference. Their tests check that the ELBO
// rises and all results are finite. The order of topics and components, the number of workers and
// a file must not change the results.

// mixedRun runs m with the given batch size and number of workers, and returns the result. It
// reports an error if the ELBO falls.
func mixedRun(t *testing.T, seed uint64, m Model, batch, workers int) *Result {
	t.Helper()
	last := math.Inf(-1)
	s := &Solver{Src: rand.NewPCG(seed, 0), BatchSize: batch, Workers: workers, MaxPasses: 12,
		EvalEvery: 1, Record: func(it Iteration) {
			if math.IsNaN(it.ELBO) || it.ELBO < last-1e-9*(1+math.Abs(last)) {
				t.Errorf("seed %d, step %d: ELBO from %v to %v", seed, it.K, last, it.ELBO)
			}
			last = it.ELBO
		}}
	res, err := s.Run(context.Background(), m)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return res
}

// permutedRows returns x with row perm[i] as row i.
func permutedRows(x mat.Matrix, perm []int) *mat.Dense {
	r, c := x.Dims()
	y := mat.NewDense(r, c, nil)
	for i, k := range perm {
		for j := range c {
			y.Set(i, j, x.At(k, j))
		}
	}
	return y
}

// sameELBO fails the test unless the first ELBOs of a and b agree to tol.
func sameELBO(t *testing.T, seed uint64, what string, tol float64, a, b *Result) {
	t.Helper()
	for i := range min(len(a.Trace), len(b.Trace), 5) {
		if x, y := a.Trace[i].ELBO, b.Trace[i].ELBO; !(math.Abs(x-y) <= tol*(1+math.Abs(x))) {
			t.Errorf("seed %d, %s: ELBO %v and %v at step %d", seed, what, x, y, i+1)
			return
		}
	}
}

// TestSeedsLDA fits random corpora. Some have empty documents, repeated documents, counts up to
// 1e6, or more topics than documents.
func TestSeedsLDA(t *testing.T) {
	t.Parallel()
	for seed := range testkit.Seeds(24) {
		rng := rand.New(rand.NewPCG(seed, 21))
		c := &Corpus{Terms: 2 + rng.IntN(30)}
		wide := 1 + 2.5*rng.Float64()*float64(rng.IntN(2))
		for range 1 + rng.IntN(20) {
			count := map[int]float64{}
			for range rng.IntN(12) {
				count[rng.IntN(c.Terms)] += math.Min(1e6,
					math.Ceil(math.Exp(wide*rng.NormFloat64())))
			}
			d := Document{Words: slices.Sorted(maps.Keys(count))}
			for _, w := range d.Words {
				d.Counts = append(d.Counts, count[w])
			}
			c.Docs = append(c.Docs, d)
			if rng.IntN(4) == 0 {
				c.Docs = append(c.Docs, c.Docs[rng.IntN(len(c.Docs))])
			}
		}
		k := 1 + rng.IntN(2*len(c.Docs))
		start := mat.NewDense(k, c.Terms, nil)
		for i := range k {
			for j := range c.Terms {
				start.Set(i, j, rng.ExpFloat64())
			}
		}
		opt := LDAOptions{DocPrior: math.Exp(3 * rng.NormFloat64()),
			TopicPrior: math.Exp(3 * rng.NormFloat64()), Topics: start}
		run := func(opt LDAOptions, workers int) (*LDAPosterior, *Result) {
			m, err := NewLDA(c, k, &opt)
			if errors.Is(err, ErrEmpty) && c.Tokens() == 0 {
				return nil, nil
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			res := mixedRun(t, seed, m, len(c.Docs), workers)
			p, err := m.Posterior(res.State)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			return p, res
		}
		p, res := run(opt, 1)
		if p == nil {
			continue
		}
		if !testkit.AllFinite(p.Lambda()) {
			t.Errorf("seed %d: topics %v", seed, mat.Formatted(p.Lambda()))
		}
		if q, _ := run(opt, 2); !mat.Equal(q.Lambda(), p.Lambda()) {
			t.Errorf("seed %d: other bits with two workers", seed)
		}
		if q := testkit.Reread(t, p, Load); !mat.Equal(q.Lambda(), p.Lambda()) {
			t.Errorf("seed %d: other bits from a file", seed)
		}
		opt.Topics = permutedRows(start, rng.Perm(k))
		_, other := run(opt, 1)
		// a document may have several optima, and rounding may choose between them
		sameELBO(t, seed, "permuted topics", 1e-4, res, other)
	}
}

// TestSeedsMixture fits random rows whose columns have any units. Some problems have repeated
// rows, or as many components as rows.
func TestSeedsMixture(t *testing.T) {
	t.Parallel()
	for seed := range testkit.Seeds(80) {
		rng := rand.New(rand.NewPCG(seed, 22))
		n, d := 2+rng.IntN(30), 1+rng.IntN(4)
		k := 1 + rng.IntN(n)
		x, cov := mat.NewDense(n, d, nil), mat.NewSymDense(d, nil)
		for j := range d {
			unit := logUniform(rng, -8, 8)
			cov.SetSym(j, j, unit*unit*logUniform(rng, -1, 2))
			for i := range n {
				x.Set(i, j, unit*(5*float64(rng.IntN(3))+rng.NormFloat64()))
			}
		}
		for i := 1; i < n; i++ {
			if rng.IntN(4) == 0 {
				x.SetRow(i, x.RawRowView(rng.IntN(i)))
			}
		}
		start := mat.NewDense(n, k, nil)
		for i := range n {
			for j := range k {
				start.Set(i, j, rng.ExpFloat64())
			}
		}
		opt := MixtureOptions{Weight: math.Exp(4 * rng.NormFloat64()),
			Kappa: math.Exp(4 * rng.NormFloat64()),
			DF:    float64(d) - 1 + math.Exp(3*rng.NormFloat64()), Cov: cov, Start: start}
		run := func(opt MixtureOptions, workers int) (*MixturePosterior, *Result) {
			m, err := NewMixture(x, k, &opt)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			res := mixedRun(t, seed, m, 0, workers)
			p, err := m.Posterior(res.State)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			return p, res
		}
		p, res := run(opt, 1)
		for i := range k {
			if w := p.Weights(nil)[i]; !(w >= 0) || !testkit.AllFinite(p.Means()) ||
				!(p.Cov(i).At(0, 0) > 0) {
				t.Errorf("seed %d: component %d has weight %v, mean %v, covariance %v", seed, i, w,
					p.Means().RawRowView(i), p.Cov(i))
			}
		}
		if q, _ := run(opt, 2); !mat.Equal(q.Means(), p.Means()) ||
			!slices.Equal(q.Weights(nil), p.Weights(nil)) {
			t.Errorf("seed %d: other bits with two workers", seed)
		}
		if q := testkit.Reread(t, p, Load); !mat.Equal(q.Means(), p.Means()) ||
			!slices.Equal(q.Weights(nil), p.Weights(nil)) {
			t.Errorf("seed %d: other bits from a file", seed)
		}
		opt.Start = mat.DenseCopyOf(permutedRows(start.T(), rng.Perm(k)).T())
		_, other := run(opt, 1)
		// iterations amplify rounding
		sameELBO(t, seed, "permuted components", 1e-7, res, other)
	}
}
