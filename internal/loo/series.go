package loo

import (
	"context"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file replaces log p(y|w) of many rows by one polynomial of the weights. Many rows leave few
// weights so little room that log p(y_n|η) is a polynomial of degree 4 over all that q allows:
//
//	log p(y_n|η_n + t) = Σ_k c_nk (t/h_n)^k, |t| ≤ h_n, k ≤ 4.
//
// Write V⁻¹ = LLᵀ and w = m + L⁻ᵀε. Then t = u_n·ε with u_n = L⁻¹x_n, and |t| ≤ |u_n||ε| (Cauchy
// and Schwarz). So h_n = R|u_n| serves all draws with |ε| ≤ R, and the sum over rows is a polynomial
// of ε. Its coefficients take one pass over the rows, and a draw then needs no rows. The few draws
// beyond R are summed over the rows.
//
// The interpolation is at the zeros of the Chebyshev polynomial T_7. The coefficients of T_5 and
// T_6, which are dropped, estimate the error (Trefethen 2013, Approximation Theory and
// Approximation Practice, theorem 8.2).

const (
	seriesNodes = 7
	kept        = 5  // coefficients per row; the other two estimate the error
	mostSeries  = 12 // weights, because the products of more take longer than 320 draws

	// seriesError is the largest sum, in nats, of the errors of all rows. Their signs differ, so
	// the error of the sum is usually a hundredth of it.
	seriesError = 1e-3
)

// A series is log p(y|w) of all rows as a polynomial of ε. The products ε_jε_k, j ≤ k, are called
// pairs.
type series struct {
	root     []float64 // L, d×d
	radius   float64   // R
	constant float64
	linear   []float64 // a coefficient for each ε_j
	form     []float64 // a row for each pair and a column for each pair, each ε_j, and 1
}

// newSeries returns the series about the linear predictors at. It returns nil if there are many
// weights, V is not Full, polynomials are not accurate enough, or ctx is done.
func newSeries(ctx context.Context, l *site.LinearModel, terms *term.Density, at []float64,
	cov gauss.Cov) *series {
	full, ok := cov.(*gauss.Full)
	d := l.X.Cols
	if !ok || d > mostSeries || !terms.Rowwise() {
		return nil
	}
	size := float64(d) // the mean of |ε|², whose variance is 2d; 1% to 2% of draws are beyond R
	s := &series{root: full.S.L, radius: math.Sqrt(size + 3*math.Sqrt(2*size)),
		linear: make([]float64, d)}
	b := newSeriesBlock(s.root, d)
	s.form = make([]float64, b.pairs*(b.pairs+d+1))
	var off float64
	for lo := 0; lo < len(at); lo += logprob.Block {
		hi := min(len(at), lo+logprob.Block)
		b.features(l, lo, hi, s.radius)
		off += b.coefficients(terms, at, lo, hi)
		if !(off < seriesError) || ctx.Err() != nil {
			return nil
		}
		b.add(s)
	}
	return s
}

// seriesBlock is scratch for the rows of a block. Its matrices have a column for each row.
type seriesBlock struct {
	d, pairs, n int
	basis       []float64   // the columns of L⁻ᵀ
	v, half     []float64   // u/h, d×n, and h
	pair        []float64   // the products of two of v, times 2 if they differ
	value, c    []float64   // log p at the nodes, and the coefficients of the powers of t/h
	right       []float64   // pair times c_4, v times c_3, and c_2
	design      design.Work // scratch of products
}

func newSeriesBlock(root []float64, d int) *seriesBlock {
	b := &seriesBlock{d: d, pairs: d * (d + 1) / 2, basis: make([]float64, d*d)}
	for j := range d {
		row := b.basis[j*d : (j+1)*d]
		row[j] = 1
		dense.Trsv(blas.Trans, dense.LowerTriangle(root, d), dense.Vector(row))
	}
	return b
}

// features computes v, half and pair of the rows from lo to hi.
func (b *seriesBlock) features(l *site.LinearModel, lo, hi int, radius float64) {
	n := hi - lo
	b.n = n
	b.v, b.half = dense.Resize(b.v, b.d*n), dense.Resize(b.half, n)
	b.pair = dense.Resize(b.pair, b.pairs*n)
	l.X.MulRows(b.v, b.basis, lo, hi, &b.design)
	for i := range n {
		var square float64
		for j := range b.d {
			u := b.v[j*n+i]
			square += float64(u * u)
		}
		b.half[i] = radius * math.Sqrt(square)
	}
	for j := range b.d {
		for i, u := range b.v[j*n : (j+1)*n] {
			if b.half[i] > 0 {
				b.v[j*n+i] = u / b.half[i]
			}
		}
	}
	p := 0
	for j := range b.d {
		x := b.v[j*n : (j+1)*n]
		for k := range j + 1 {
			y, times := b.v[k*n:(k+1)*n], 2.0
			if j == k {
				times = 1
			}
			dst := b.pair[p*n : (p+1)*n]
			for i, x := range x {
				dst[i] = times * x * y[i]
			}
			p++
		}
	}
}

// chebyshev holds the nodes, and a rule that maps values at the nodes to coefficients: five of the
// powers 1, …, x⁴ in the interpolating polynomial up to T_4, and one each of T_5 and T_6.
var chebyshev = func() (r struct {
	node [seriesNodes]float64
	rule [seriesNodes * seriesNodes]float64
}) {
	for j := range r.node {
		angle := math.Pi * (float64(j) + 0.5) / seriesNodes
		r.node[j] = math.Cos(angle)
		var a [seriesNodes]float64
		for k := range a {
			a[k] = 2 * math.Cos(float64(k)*angle) / seriesNodes
		}
		// T_2 = 2x² − 1, T_3 = 4x³ − 3x, T_4 = 8x⁴ − 8x² + 1
		for k, c := range []float64{a[0]/2 - a[2] + a[4], a[1] - 3*a[3], 2*a[2] - 8*a[4], 4 * a[3],
			8 * a[4], a[5], a[6]} {
			r.rule[k*seriesNodes+j] = c
		}
	}
	return r
}()

// coefficients computes the coefficients of the rows from lo to hi, and returns the sum of their
// errors. The sum is NaN or +Inf if a coefficient is.
func (b *seriesBlock) coefficients(terms *term.Density, at []float64, lo, hi int) (off float64) {
	n := b.n
	b.value, b.c = dense.Resize(b.value, seriesNodes*n), dense.Resize(b.c, seriesNodes*n)
	for j, x := range chebyshev.node {
		eta := b.value[j*n : (j+1)*n]
		for i, h := range b.half {
			eta[i] = at[lo+i] + float64(h*x)
		}
		terms.Values(eta, lo)
	}
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1,
		dense.General(chebyshev.rule[:], seriesNodes, seriesNodes),
		dense.General(b.value, seriesNodes, n), 0, dense.General(b.c, seriesNodes, n))
	for _, c := range b.c[kept*n:] {
		off += math.Abs(c)
	}
	return off
}

// add adds the rows of the block to s.
func (b *seriesBlock) add(s *series) {
	n, d, pairs := b.n, b.d, b.pairs
	c := func(k int) []float64 { return b.c[k*n : (k+1)*n] }
	columns := pairs + d + 1
	b.right = dense.Resize(b.right, columns*n)
	for p := range pairs {
		floats.MulTo(b.right[p*n:(p+1)*n], b.pair[p*n:(p+1)*n], c(4))
	}
	for j := range d {
		floats.MulTo(b.right[(pairs+j)*n:(pairs+j+1)*n], b.v[j*n:(j+1)*n], c(3))
	}
	copy(b.right[(columns-1)*n:], c(2))
	dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(b.pair, pairs, n),
		dense.General(b.right, columns, n), 1, dense.General(s.form, pairs, columns))
	dense.Gemv(blas.NoTrans, 1, dense.General(b.v, d, n), dense.Vector(c(1)), 1,
		dense.Vector(s.linear))
	s.constant += floats.Sum(c(0))
}

// seriesWork is scratch.
type seriesWork struct{ x, y []float64 }

// value returns log p(y|m + δ), or false if |ε| > R.
func (s *series) value(delta []float64, w *seriesWork) (sum float64, ok bool) {
	d := len(delta)
	pairs := d * (d + 1) / 2
	w.x, w.y = dense.Resize(w.x, pairs+d+1), dense.Resize(w.y, pairs)
	eps := w.x[pairs : pairs+d]
	copy(eps, delta)
	dense.Trmv(blas.Trans, dense.LowerTriangle(s.root, d), dense.Vector(eps))
	if !(floats.Norm(eps, 2) <= s.radius) {
		return 0, false
	}
	p := 0
	for j, x := range eps {
		for _, y := range eps[:j+1] {
			w.x[p] = x * y
			p++
		}
	}
	w.x[pairs+d] = 1
	dense.Gemv(blas.NoTrans, 1, dense.General(s.form, pairs, pairs+d+1), dense.Vector(w.x), 0,
		dense.Vector(w.y))
	return s.constant + floats.Dot(s.linear, eps) + floats.Dot(w.x[:pairs], w.y), true
}
