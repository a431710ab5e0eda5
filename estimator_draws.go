package pgsvi

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/floats"

	"github.com/pgsvi/pgsvi/internal/dense"
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
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(p.workers, len(zs)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(zs); i = int(next.Add(1)) - 1 {
				dst[i] = p.Integrand.LogProb(zs[i])
			}
		})
	}
	wg.Wait()
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
