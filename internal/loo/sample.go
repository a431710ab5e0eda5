package loo

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file estimates log p(y|w) of many rows from few of them, for models with too many weights
// for the polynomial of series.go, and for likelihoods that are not close to polynomials. Under q =
// N(m, V) the linear predictor of row n is η_n + t with t ~ N(0, v_n). Each term splits into its
// projection to polynomials of degree 2 and a small remainder,
//
//	log p(y_n|η_n + t) = a_n + b_n t + c_n t² + ρ_n(t),   E_q ρ_n = E_q tρ_n = E_q t²ρ_n = 0.
//
// The sum of the polynomials over all rows is a polynomial of degree 2 of w − m, which takes one
// pass over the rows. The sum of the remainders is estimated from a Poisson sample: row n is in the
// sample with probability p_n, independently of others, and then counts 1/p_n times (Horvitz and
// Thompson 1952). The estimate has no bias, and its mean squared error over samples and draws of q is
//
//	Σ_n (1/p_n − 1) σ_n²,   σ_n² = E_q ρ_n².
//
// It is least for a given size of the sample if p_n ∝ σ_n (Neyman 1934). So the sample holds all rows
// that matter much, such as rows at the kink of a Laplace density. An error of the sum is itself
// orthogonal to all polynomials of degree 2 under q. Thus it changes means and variances, which
// are weighted by exp(error), only to second order.
//
// The projection takes Hermite polynomials at the nodes of a Gauss–Hermite rule. WeightSamplers calls
// newSample.

const (
	sampleNodes = 7 // nodes of the rule, whose coefficients of degree 3 to 6 estimate σ_n

	// sampleError is the largest root mean square error of a sum, in nats. It changes a weight by one
	// percent, and the effective sample size by a part of 1e-4. Its mean under q is 0, so it moves
	// log Z of S draws by about 0.01/√S. The standard error of log Z includes that.
	sampleError = 0.01

	// The error is halved, down to leastError, while the sample has at most this part of the rows.
	// A small error matters most to k̂ of nearly equal weights, such as those under a Laplace density.
	cheapSample = 1. / 32
	leastError  = 1e-3

	// leastSampled is the smallest probability relative to the mean of σ_n/size. It bounds the weights
	// of rows whose remainder is not 0 only between or beyond the nodes (Hesterberg 1995).
	leastSampled = 0.1

	mostSampled   = 0.5 // the largest part of the rows that a sample may have
	sampledPerRow = 128 // columns per row above which products XᵀX take longer than draws
)

// A sample is log p(y|m + δ) of all rows as constant + linear·δ + δᵀ square δ and a sum over the rows
// of the sample.
type sample struct {
	constant float64
	linear   []float64
	square   []float64 // its lower triangle
	rows     rowTerms
}

// newSample returns a sample of the rows about their linear predictors. It returns nil if V is not
// Full, the sample would have too many rows, or ctx is done.
func newSample(ctx context.Context, l *site.LinearModel, rows *rowTerms, cov gauss.Cov) *sample {
	full, ok := cov.(*gauss.Full)
	if !ok || !rows.terms.Rowwise() || l.X.PerRow() > sampledPerRow {
		return nil
	}
	p := &projection{}
	n := l.X.Rows
	dense.ResizeAll(n, &p.a, &p.b, &p.c, &p.sigma)
	full.Variances(p.c, l.X, nil)
	for lo := 0; lo < n; lo += logprob.Block {
		if ctx.Err() != nil {
			return nil
		}
		p.project(rows, lo, min(n, lo+logprob.Block))
	}
	index, times := p.choose()
	if index == nil {
		return nil
	}
	return p.sample(l, rows, index, times)
}

// A projection holds the polynomials a + bt + ct² of all rows, and the root mean squares σ of their
// remainders. Before project, c holds the variances of t.
type projection struct {
	a, b, c, sigma []float64
	value, h       []float64 // scratch: log p at the nodes, and Hermite coefficients
}

// hermite holds the nodes of the Gauss–Hermite rule, and the rule that maps values at the nodes to the
// coefficients of the orthonormal Hermite polynomials of degree 0 to 6.
var hermite = func() (r struct {
	node []float64
	rule [sampleNodes * sampleNodes]float64
}) {
	q := expect.Hermite(sampleNodes)
	r.node = q.X
	for j, x := range q.X {
		he, next := 1.0, x // He_k(x)/√k!
		for k := range sampleNodes {
			r.rule[k*sampleNodes+j] = q.W[j] * he
			he, next = next, (x*next-math.Sqrt(float64(k+1))*he)/math.Sqrt(float64(k+2))
		}
	}
	return r
}()

// project stores the polynomials and σ of the rows from lo to hi.
func (p *projection) project(rows *rowTerms, lo, hi int) {
	n := hi - lo
	dense.ResizeAll(sampleNodes*n, &p.value, &p.h)
	v := p.c[lo:hi]
	for j, x := range hermite.node {
		eta := p.value[j*n : (j+1)*n]
		for i, v := range v {
			eta[i] = rows.at[lo+i] + float64(math.Sqrt(v)*x)
		}
		rows.terms.Values(eta, lo)
	}
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1,
		dense.General(hermite.rule[:], sampleNodes, sampleNodes),
		dense.General(p.value, sampleNodes, n), 0, dense.General(p.h, sampleNodes, n))
	h := func(k int) []float64 { return p.h[k*n : (k+1)*n] }
	h0, h1, h2 := h(0), h(1), h(2)
	for i, v := range v {
		p.a[lo+i], p.b[lo+i], p.c[lo+i], p.sigma[lo+i] = h0[i], 0, 0, 0
		if v > 0 {
			c := h2[i] / math.Sqrt2
			p.a[lo+i], p.b[lo+i], p.c[lo+i] = h0[i]-c, h1[i]/math.Sqrt(v), c/v
			p.sigma[lo+i] = math.Sqrt(h(3)[i]*h(3)[i] + h(4)[i]*h(4)[i] + h(5)[i]*h(5)[i] +
				h(6)[i]*h(6)[i])
		}
	}
}

// choose returns the rows of the sample and how often each counts, 1/p_n. It returns nil if there
// would be too many rows, or a σ is not finite.
func (p *projection) choose() (index []int, times []float64) {
	n := float64(len(p.sigma))
	if sum := floats.Sum(p.sigma); math.IsNaN(sum) || math.IsInf(sum, 0) {
		return nil, nil
	}
	size := p.size(sampleError)
	expected := p.expected(size)
	if expected > mostSampled*n {
		return nil, nil
	}
	for e := 0.5 * sampleError; e >= leastError; e *= 0.5 {
		finer := p.size(e)
		rows := p.expected(finer)
		if rows > cheapSample*n {
			break
		}
		size, expected = finer, rows
	}
	rng := rand.New(rand.NewPCG(uint64(len(p.sigma)), sampleNodes))
	index = []int{}
	for i, s := range p.sigma {
		prob := min(1, max(s/size, leastSampled*expected/n))
		if rng.Float64() < prob {
			index, times = append(index, i), append(times, 1/prob)
		}
	}
	return index, times
}

// expected returns the expected number of rows in a sample of the given size.
func (p *projection) expected(size float64) (rows float64) {
	for _, s := range p.sigma {
		rows += min(1, s/size)
	}
	return rows
}

// size returns the σ from which on a row is certainly in the sample; others are with probability
// σ_n/size. The error √Σ_n max(0, size − σ_n)σ_n equals err to two digits.
func (p *projection) size(err float64) float64 {
	squared := err * err
	sum := floats.Sum(p.sigma)
	if !(sum > err/math.MaxFloat64) {
		return math.MaxFloat64
	}
	low := squared / sum // its error is not too large
	high := low
	excess := func(size float64) (e float64) {
		for _, s := range p.sigma {
			e += max(0, size-s) * s
		}
		return e - squared
	}
	for high <= math.MaxFloat64/2 && excess(high) < 0 {
		low, high = high, 2*high
	}
	for high <= math.MaxFloat64 && high-low > 0.01*low {
		if middle := low + (high-low)/2; excess(middle) < 0 {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// sample returns the sample of the rows at index.
func (p *projection) sample(l *site.LinearModel, rows *rowTerms, index []int,
	times []float64) *sample {
	d := l.X.Cols
	s := &sample{linear: make([]float64, d), square: make([]float64, d*d),
		rows: rowTerms{x: l.X.Sub(index), at: make([]float64, len(index))}}
	terms := l.Terms.Sub(index)
	if terms.Weight == nil {
		terms.Weight = times
	} else {
		floats.Mul(terms.Weight, times)
	}
	s.rows.terms = terms.Density()
	for k, i := range index {
		s.rows.at[k] = rows.at[i]
		part := 1 - times[k] // the sum over the sample contains the polynomial times[k] times
		p.a[i] *= part
		p.b[i] *= part
		p.c[i] *= part
	}
	s.constant = floats.Sum(p.a)
	l.X.AddMulT(s.linear, p.b, nil)
	l.X.AddGram(s.square, p.c, nil, new(design.Work))
	return s
}

// value returns the part of log p(y|m + δ) that is a polynomial.
func (s *sample) value(delta []float64) float64 {
	sum, d := s.constant+floats.Dot(s.linear, delta), len(delta)
	for j, x := range delta {
		row := s.square[j*d:]
		sum += x * (2*floats.Dot(row[:j], delta[:j]) + row[j]*x)
	}
	return sum
}
