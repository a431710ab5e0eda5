package pgsvi

import (
	"math"
	"math/rand/v2"
	"sync"

	"github.com/pgsvi/pgsvi/internal/parallel"

	"gonum.org/v1/gonum/floats"

	"github.com/pgsvi/pgsvi/internal/dense"

	"gonum.org/v1/gonum/blas/blas64"
)

// runningMoments accumulates mean and variance of the terms of an estimate (Welford, 1962).
type runningMoments struct {
	mean, m2 []float64
	n        float64
}

// newMoments starts with mean and m2 as storage; a nil m2 allocates.
func newMoments(mean, m2 []float64) *runningMoments {
	m2 = dense.Dest(m2, len(mean))
	clear(mean)
	clear(m2)
	return &runningMoments{mean: mean, m2: m2}
}

func (a *runningMoments) add(x []float64) {
	a.n++
	for i, xi := range x {
		d := xi - a.mean[i]
		a.mean[i] += d / a.n
		a.m2[i] += d * (xi - a.mean[i])
	}
}

// finish turns the sums of squares into the variance of the mean, which one
// term leaves unknown: NaN.
func (a *runningMoments) finish() {
	for i := range a.m2 {
		a.m2[i] /= a.n * (a.n - 1)
	}
}

// sampleSet holds draws z from q and, for a Gaussian, the standard normal ε they came from.
type sampleSet struct {
	z, eps  [][]float64
	scratch []float64
}

func drawSamples(q Dist, n int, rng *rand.Rand) sampleSet {
	d := q.Dim()
	s := sampleSet{z: dense.NewRows(n, d), scratch: make([]float64, d)}
	g, ok := q.(normal)
	if !ok {
		for _, z := range s.z {
			q.Rand(z, rng)
		}
		return s
	}
	s.eps = dense.NewRows(n, d)
	for i, eps := range s.eps {
		for j := range eps {
			eps[j] = rng.NormFloat64()
		}
		copy(s.z[i], eps)
		g.transform(s.z[i])
	}
	return s
}

// siteDraws are standard normal draws shared by the sites of a batch.
type siteDraws struct {
	x, values []float64
	fit       regression
}

var siteDrawPool = sync.Pool{New: func() any { return new(siteDraws) }}

func getDraws(n int, rng *rand.Rand) *siteDraws {
	d := siteDrawPool.Get().(*siteDraws)
	d.x, d.values = dense.Resize(d.x, n), dense.Resize(d.values, n)
	for i := range d.x {
		d.x[i] = rng.NormFloat64()
	}
	return d
}

func putDraws(d *siteDraws) { siteDrawPool.Put(d) }

// parallelIntegrand shares the evaluations of an Integrand between goroutines.
type parallelIntegrand struct {
	Integrand
	workers int
}

// GradLogProb implements Gradienter where the integrand does.
func (p parallelIntegrand) GradLogProb(dst, z []float64) bool {
	g, ok := p.Integrand.(Gradienter)
	return ok && g.GradLogProb(dst, z)
}

// logProbs stores l(z) for each z. Each value is computed by one goroutine
// alone, so that the result does not depend on their number.
func logProbs(dst []float64, l Integrand, zs [][]float64) {
	p, ok := l.(parallelIntegrand)
	if !ok {
		for i, z := range zs {
			dst[i] = l.LogProb(z)
		}
		return
	}
	parallel.For(len(zs), 1, p.workers, func(_, i, _ int) { dst[i] = p.Integrand.LogProb(zs[i]) })
}

// monteCarloValue returns an estimate of E_q[l] and its standard error, from at
// least n draws, less a quadratic control variate where q is Gaussian.
func monteCarloValue(q Dist, l Integrand, n int, rng *rand.Rand) (mean, stderr float64) {
	d := q.Dim()
	n = max(n, min(4*(1+2*d+d*(d-1)/2), 4096))
	draws := drawSamples(q, n, rng)
	values := make([]float64, n)
	logProbs(values, l, draws.z)
	var offset float64
	if _, ok := q.(normal); ok {
		var fit quadraticFit
		if fit.fit(values, draws.eps, true) {
			offset = fit.coef[0]
		}
	}
	mean = floats.Sum(values) / float64(n)
	var ss float64
	for _, v := range values {
		ss += (v - mean) * (v - mean)
	}
	return offset + mean, math.Sqrt(ss / float64(n) / float64(n-1))
}

// Baseline is what ScoreFunction subtracts from the values of the integrand to
// make the estimate less noisy. With each of them it stays unbiased.
type Baseline int

const (
	// Quadratic subtracts from each value a quadratic function of the draw,
	// fitted by least squares to the other half of the draws, and adds the exact
	// gradient of its expectation. What a log-likelihood is beyond a quadratic is
	// little where the posterior is close to Gaussian, so that most of the
	// variance goes. It is a control variate (Ranganath et al., 2014; Salimans and
	// Knowles, 2013, regress likewise) for a Gaussian or MeanField q with enough
	// draws: 4 for each coefficient, 1 + d + d(d+1)/2 in full or else 1 + 2d.
	// Otherwise it is LeaveOneOut.
	Quadratic Baseline = iota
	// LeaveOneOut subtracts from each value the mean of the others (Kool et al., 2019).
	LeaveOneOut
	// NoBaseline subtracts nothing: the estimator of the paper.
	NoBaseline
)

// regression fits a linear function of features to values, each half of the
// rows with the coefficients of the other. Storage is reused.
type regression struct {
	p    int
	phi  []float64 // features, one row of p a value; the first is 1, the others have mean 0 under q
	coef []float64 // mean of the coefficients of the halves, weighted by where they are used
	half [2][]float64
	gram []float64
}

func (r *regression) init(n, p int) {
	r.p = p
	r.phi = dense.Resize(r.phi, n*p)
	r.gram = dense.Resize(r.gram, p*p)
	r.coef = dense.Resize(r.coef, p)
}

// row returns the features of value i, to be filled in.
func (r *regression) row(i int) []float64 { return r.phi[i*r.p : (i+1)*r.p] }

// residuals replaces values by their residuals and reports whether there is a fit.
func (r *regression) residuals(values []float64) bool {
	p := r.p
	for h := range r.half {
		c := dense.Resize(r.half[h], p)
		r.half[h] = c
		clear(c)
		clear(r.gram)
		for i := h; i < len(values); i += 2 {
			row := r.row(i)
			blas64.Axpy(values[i], dense.Vector(row), dense.Vector(c))
			blas64.Syr(1, dense.Vector(row), dense.Symmetric(r.gram, p))
		}
		for j := range p {
			r.gram[j*p+j] *= 1 + 1e-10
		}
		if !dense.Cholesky(r.gram, p) {
			return false
		}
		dense.Potrs(r.gram, c)
	}
	n := len(values)
	clear(r.coef)
	blas64.Axpy(float64(n/2)/float64(n), dense.Vector(r.half[0]), dense.Vector(r.coef))
	blas64.Axpy(float64(n-n/2)/float64(n), dense.Vector(r.half[1]), dense.Vector(r.coef))
	for i := range values {
		values[i] -= blas64.Dot(dense.Vector(r.row(i)), dense.Vector(r.half[1-i%2]))
	}
	return true
}

// quadraticFit is the regression of values on polynomials of whitened draws ε:
// 1, ε_i, ε_i² − 1 and, if full, ε_iε_j for j < i.
type quadraticFit struct {
	regression
	d    int
	full bool
}

// fit replaces values by their residuals, or reports false without a change if
// there are too few of them.
func (f *quadraticFit) fit(values []float64, eps [][]float64, full bool) bool {
	f.d, f.full = len(eps[0]), full
	p := 1 + 2*f.d + f.d*(f.d-1)/2
	if !full || len(values) < 4*p {
		f.full = false
		p = 1 + 2*f.d
	}
	if len(values) < 4*p {
		return false
	}
	f.init(len(values), p)
	for i, e := range eps {
		row := f.row(i)
		row[0] = 1
		k := 1 + 2*f.d
		for j, x := range e {
			row[1+j], row[1+f.d+j] = x, x*x-1
			if f.full {
				for _, y := range e[:j] {
					row[k] = x * y
					k++
				}
			}
		}
	}
	return f.residuals(values)
}

// addGrad adds the gradients of the expectation of the fitted function under q
// to those with respect to m and V: with ε = L⁻¹(z − m), linear coefficients c
// and Hessian H in ε, L⁻ᵀc and ½L⁻ᵀHL⁻¹.
func (f *quadraticFit) addGrad(gm, gv []float64, q normal) {
	d := f.d
	linear, square := f.coef[1:1+d], f.coef[1+d:1+2*d]
	h, e, u, w := make([]float64, d*d), make([]float64, d), make([]float64, d), make([]float64, d)
	k := 1 + 2*d
	for i := range d {
		h[i*d+i] = 2 * square[i]
		if f.full {
			for j := range i {
				h[i*d+j], h[j*d+i] = f.coef[k], f.coef[k]
				k++
			}
		}
	}
	q.standardize(u, linear)
	blas64.Axpy(1, dense.Vector(u), dense.Vector(gm))
	for j := range d {
		clear(e)
		e[j] = 1
		q.standardize(u, h[j*d:(j+1)*d])
		q.standardize(w, e)
		q.addOuter(gv, 0.5, u, w)
	}
}
