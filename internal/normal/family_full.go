package normal

// This file has the functions of Family for a full covariance V. Natural parameters hold V⁻¹m and
// the packed −½V⁻¹, so each function begins with a Cholesky factor of V⁻¹. A matrix of up to
// smallDim rows is factored and inverted in plain loops, because the calls of package dense take
// longer than its arithmetic.

import (
	"math"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/blas"
)

// fullWork holds the numbers of a Gaussian and scratch. All matrices are d×d, row by row.
type fullWork struct {
	d    int
	h    []float64 // V⁻¹m, a part of η
	p    []float64 // V⁻¹
	c    []float64 // lower Cholesky factor of V⁻¹; set by factor
	m    []float64 // mean; set by solve
	v    []float64 // V; set by invert
	l    []float64 // lower Cholesky factor of V; set by moments
	s, t []float64 // scratch
	a, b []float64 // scratch vectors
	all  []float64
}

var fullPool = sync.Pool{New: func() any { return new(fullWork) }}

// newWork returns buffers for d dimensions. The caller puts them back.
func newWork(d int) *fullWork {
	w := fullPool.Get().(*fullWork)
	if w.d == d {
		return w
	}
	w.d, w.all = d, dense.Resize(w.all, 6*d*d+3*d)
	rest := w.all
	for _, x := range []*[]float64{&w.p, &w.c, &w.v, &w.l, &w.s, &w.t} {
		*x, rest = rest[:d*d:d*d], rest[d*d:]
	}
	w.m, w.a, w.b = rest[:d:d], rest[d:2*d:2*d], rest[2*d:3*d:3*d]
	return w
}

// work returns buffers that hold η.
func (f Family) work(eta []float64) *fullWork {
	w := newWork(f.D)
	w.h = eta[:f.D]
	dense.Unpack(w.p, eta[f.D:], f.D, -2, -1)
	return w
}

// put returns the buffers to the pool.
func (w *fullWork) put() {
	w.h = nil
	fullPool.Put(w)
}

// factor computes c. It reports false if V⁻¹ is not positive definite.
func (w *fullWork) factor() bool {
	copy(w.c, w.p)
	return cholesky(w.c, w.d)
}

// solve computes m from c.
func (w *fullWork) solve() {
	copy(w.m, w.h)
	potrs(w.c, w.m)
}

// invert computes V from c.
func (w *fullWork) invert() {
	copy(w.v, w.c)
	inverse(w.v, w.d)
}

// moments computes c, m, V and l. It reports false if η is not valid: V must be finite and, like
// V⁻¹, numerically positive definite.
func (w *fullWork) moments() bool {
	if !w.factor() {
		return false
	}
	w.solve()
	w.invert()
	copy(w.l, w.v)
	if !cholesky(w.l, w.d) {
		return false
	}
	_, ok := dense.AllFinite(w.m)
	return ok
}

// logDet returns log|V⁻¹|.
func (w *fullWork) logDet() float64 { return dense.LogDet(w.c, w.d) }

// logPartition returns ½(mᵀV⁻¹m + log|V| + d log 2π).
func (w *fullWork) logPartition() float64 {
	var quad float64
	for i, x := range w.m {
		quad += x * w.h[i]
	}
	return 0.5 * (quad - w.logDet() + float64(w.d)*expfam.Log2Pi)
}

// mean stores (m, V + mmᵀ) in dst.
func (w *fullWork) mean(dst []float64) {
	k := copy(dst, w.m)
	for i, x := range w.m {
		for j, v := range w.v[i*w.d : i*w.d+i+1] {
			dst[k] = v + x*w.m[j]
			k++
		}
	}
}

// fisherMul stores the gradient in η of a function with gradient g in μ.
func (w *fullWork) fisherMul(dst, g []float64) {
	w.factor()
	w.solve()
	w.invert()
	d := w.d
	dense.Unpack(w.s, g[d:], d, 1, 0.5) // ∇_V
	for i, x := range g[:d] {
		w.a[i] = x + 2*dot(w.s[i*d:(i+1)*d], w.m) // ∇_m
	}
	clear(dst)
	w.naturalGrad(dst)
}

// naturalGrad adds the gradient in η of a function with the gradients a in m and s in V to dst. It
// is Va in V⁻¹m and −VSV − Va mᵀ in V⁻¹.
func (w *fullWork) naturalGrad(dst []float64) {
	d := w.d
	square(w.c, w.v, w.s, d)
	square(w.t, w.c, w.v, d)
	for i := range d {
		w.b[i] = dot(w.v[i*d:(i+1)*d], w.a)
	}
	for i, x := range w.b {
		dst[i] += x
	}
	k := d
	for i := range d {
		for j := range i + 1 {
			dst[k] += w.t[i*d+j] + w.t[j*d+i] + w.b[i]*w.m[j] + w.m[i]*w.b[j]
			k++
		}
	}
}

// momentGrad stores the gradients in m and V of a function with gradient g in η in b and t. It
// inverts naturalGrad.
func (w *fullWork) momentGrad(g []float64) {
	d := w.d
	dense.Unpack(w.s, g[d:], d, 0.5, 0.5)
	for i := range d {
		for j := range d {
			w.s[i*d+j] -= 0.5 * (g[i]*w.m[j] + w.m[i]*g[j])
		}
	}
	square(w.c, w.p, w.s, d)
	square(w.t, w.c, w.p, d)
	for i := range d {
		w.b[i] = dot(w.p[i*d:(i+1)*d], g[:d])
	}
}

// fisherSolve stores the gradient in μ of a function with gradient g in η.
func (w *fullWork) fisherSolve(dst, g []float64) {
	w.factor()
	w.solve()
	w.momentGrad(g)
	d := w.d
	for i, x := range w.b {
		for j, m := range w.m {
			x -= (w.t[i*d+j] + w.t[j*d+i]) * m
		}
		dst[i] = x
	}
	dense.Pack(dst[d:], w.t, d, 1, 2)
}

// kl returns KL(q‖p) = ½(tr U − d − log|U| + δᵀV_p⁻¹δ) with U = C⁻¹V_p⁻¹C⁻ᵀ, V⁻¹ = CCᵀ and the
// difference δ of the means. With U = LLᵀ the first part is a sum of the squares below the diagonal
// of L and of g(L_ii²), g(u) = u − 1 − log u, so no terms cancel.
func (w *fullWork) kl(p *fullWork) float64 {
	if !w.factor() || !p.factor() {
		return math.NaN()
	}
	w.solve()
	p.solve()
	d := w.d
	var kl float64
	for i := range d {
		w.a[i] = w.m[i] - p.m[i]
	}
	for i, x := range w.a {
		kl += x * dot(p.p[i*d:(i+1)*d], w.a)
	}
	copy(w.s, p.p)
	solveBoth(w.c, w.s, d)
	trace := 0.0
	for i := range d {
		trace += w.s[i*d+i]
	}
	if !cholesky(w.s, d) { // by rounding
		return math.Max(0, 0.5*(kl+trace-float64(d)+w.logDet()-p.logDet()))
	}
	for i := range d {
		for _, x := range w.s[i*d : i*d+i] {
			kl += x * x
		}
		x := w.s[i*d+i]
		kl += special.LogGap(x * x)
	}
	return 0.5 * kl
}

// fromMean stores the η of mean parameters mu in dst, and reports whether mu is attained.
func (w *fullWork) fromMean(dst, mu []float64) bool {
	d := w.d
	copy(w.m, mu)
	dense.Unpack(w.p, mu[d:], d, 1, 1)
	for i := range d {
		for j := range d {
			w.p[i*d+j] -= w.m[i] * w.m[j]
		}
	}
	return cholesky(w.p, d) && w.fromFactor(dst)
}

// fromFactor stores the η of the mean m and a V with Cholesky factor p in dst, and reports whether
// all numbers are finite.
func (w *fullWork) fromFactor(dst []float64) bool {
	d := w.d
	inverse(w.p, d)
	for i := range d {
		dst[i] = dot(w.p[i*d:(i+1)*d], w.m)
	}
	dense.Pack(dst[d:], w.p, d, -0.5, -1)
	_, ok := dense.AllFinite(dst)
	return ok
}

// chart stores m and the lower triangle of L, with logarithms on the diagonal, in dst.
func (w *fullWork) chart(dst []float64) {
	d := w.d
	k := copy(dst, w.m)
	for i := range d {
		k += copy(dst[k:], w.l[i*d:i*d+i+1])
		dst[k-1] = math.Log(dst[k-1])
	}
}

// fromChart stores the η with chart x in dst, and reports whether all numbers are finite.
func (w *fullWork) fromChart(dst, x []float64) bool {
	d := w.d
	k := copy(w.m, x)
	for i := range d {
		k += copy(w.p[i*d:i*d+i+1], x[k:])
		l := math.Exp(w.p[i*d+i])
		if w.p[i*d+i] = l; l == 0 || math.IsInf(l*l, 0) || math.IsInf(1/(l*l), 0) {
			return false
		}
	}
	return w.fromFactor(dst)
}

// chartGrad stores the gradient in the chart of a function with gradient g in η. With the gradient
// G in V it is 2GL in L.
func (w *fullWork) chartGrad(dst, g []float64) {
	w.moments()
	w.momentGrad(g)
	d := w.d
	k := copy(dst, w.b)
	for i := range d {
		for j := range i + 1 {
			var s float64
			for r := j; r < d; r++ {
				s += (w.t[i*d+r] + w.t[r*d+i]) * w.l[r*d+j]
			}
			if i == j {
				s *= w.l[i*d+i]
			}
			dst[k] = s
			k++
		}
	}
}

// transform replaces standard normal numbers eps by the draw m + L·eps.
func (w *fullWork) transform(eps []float64) {
	d := w.d
	for i := d - 1; i >= 0; i-- {
		eps[i] = w.m[i] + dot(w.l[i*d:i*d+i+1], eps[:i+1])
	}
}

func (w *fullWork) pathGrad(dst, dl, c, z, aux []float64) {
	d := w.d
	for i := range d {
		w.a[i] = dl[i] + c[i]
	}
	k := d
	for i, x := range z {
		for j, y := range z[:i+1] {
			w.a[i] += c[k] * y
			w.a[j] += c[k] * x
			k++
		}
	}
	copy(w.b, aux) // becomes L⁻ᵀ·aux = V⁻¹(z − m)
	dense.Trsv(blas.Trans, dense.LowerTriangle(w.l, d), dense.Vector(w.b))
	for i := range d {
		for j := range d {
			w.s[i*d+j] = 0.25 * (w.a[i]*w.b[j] + w.b[i]*w.a[j])
		}
	}
	w.naturalGrad(dst)
}

// smallDim is the largest number of rows for which plain loops are faster.
const smallDim = 8

// dot returns xᵀy.
func dot(x, y []float64) float64 {
	if len(x) > smallDim {
		return dense.Dot(dense.Vector(x), dense.Vector(y))
	}
	var s float64
	y = y[:len(x)]
	for i, v := range x {
		s += v * y[i]
	}
	return s
}

// cholesky is dense.Cholesky.
func cholesky(a []float64, d int) bool {
	if d > smallDim {
		return dense.Cholesky(a, d)
	}
	for i := range d {
		row := a[i*d : i*d+i+1]
		for j := range row {
			s := row[j]
			other := a[j*d : j*d+j+1]
			for k := range j {
				s -= row[k] * other[k]
			}
			if j < i {
				row[j] = s / other[j]
				continue
			}
			if !(s > 0) || math.IsInf(s, 0) {
				return false
			}
			row[i] = math.Sqrt(s)
		}
	}
	return true
}

// potrs replaces x by (LLᵀ)⁻¹x.
func potrs(l, x []float64) {
	d := len(x)
	if d > smallDim {
		dense.Potrs(l, x)
		return
	}
	for i := range d {
		row := l[i*d : i*d+i+1]
		x[i] = (x[i] - dot(row[:i], x)) / row[i]
	}
	for i := d - 1; i >= 0; i-- {
		row := l[i*d : i*d+i+1]
		x[i] /= row[i]
		for j, v := range row[:i] {
			x[j] -= v * x[i]
		}
	}
}

// inverse replaces L by the full (LLᵀ)⁻¹.
func inverse(l []float64, d int) {
	if d > smallDim {
		dense.Invert(l, d)
		dense.FillUpper(l, d)
		return
	}
	// L⁻¹ column by column, from the last row up.
	for j := range d {
		l[j*d+j] = 1 / l[j*d+j]
		for i := j + 1; i < d; i++ {
			var s float64
			for k := j; k < i; k++ {
				s -= l[i*d+k] * l[k*d+j]
			}
			l[i*d+j] = s / l[i*d+i]
		}
	}
	// L⁻ᵀL⁻¹ in the order in which no element is needed after it is replaced.
	for i := range d {
		for j := range i + 1 {
			var s float64
			for k := i; k < d; k++ {
				s += l[k*d+i] * l[k*d+j]
			}
			l[i*d+j], l[j*d+i] = s, s
		}
	}
}

// square is dense.MulSquare.
func square(c, a, b []float64, d int) {
	if d > smallDim {
		dense.MulSquare(c, a, b, d)
		return
	}
	for i := range d {
		row, out := a[i*d:(i+1)*d], c[i*d:(i+1)*d]
		clear(out)
		for k, x := range row {
			for j, y := range b[k*d : (k+1)*d] {
				out[j] += x * y
			}
		}
	}
}

// solveBoth replaces the symmetric matrix s by L⁻¹sL⁻ᵀ.
func solveBoth(l, s []float64, d int) {
	if d > smallDim {
		t := dense.LowerTriangle(l, d)
		dense.Trsm(blas.Left, blas.NoTrans, 1, t, dense.General(s, d, d))
		dense.Trsm(blas.Right, blas.Trans, 1, t, dense.General(s, d, d))
		return
	}
	for j := range d { // columns of L⁻¹s
		for i := range d {
			x := s[i*d+j]
			for k := range i {
				x -= l[i*d+k] * s[k*d+j]
			}
			s[i*d+j] = x / l[i*d+i]
		}
	}
	for i := range d { // rows times L⁻ᵀ
		row := s[i*d : (i+1)*d]
		for j := range d {
			row[j] = (row[j] - dot(l[j*d:j*d+j], row)) / l[j*d+j]
		}
	}
}
