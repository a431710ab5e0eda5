package sparse

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Division divides the terms of a kernel. A term of few features, such as Linear, can be
// represented whole, by one value for each of its weights: its value at an input where only one
// feature is not zero. It then has no residual variance, whatever the units of the columns are.
// The rest of the kernel is represented by values at inducing inputs.
type Division struct {
	Kernel Kernel
	Whole  []Whole // terms that are represented whole
	Rest   Kernel  // the rest of the kernel; nil means nothing
	Open   bool    // the rest has latent values, so it is not only noise
}

// Whole is a term of a kernel that is represented whole.
type Whole struct {
	Kernel Kernel
	Term   int        // number of this term in the kernel, or of the term that contains it
	Param  int        // index of its first parameter in the kernel
	Basis  *mat.Dense // inputs at which only one feature is not zero
}

// Undivided returns the Division that represents all of k by inducing inputs.
func Undivided(k Kernel) Division { return Division{Kernel: k, Rest: k, Open: true} }

// Again returns the same Division for k, which is the kernel of v with other parameters.
func (v *Division) Again(k Kernel) Division {
	if len(v.Whole) == 0 {
		return Undivided(k)
	}
	_, d := v.Whole[0].Basis.Dims()
	return k.Whole(d)
}

// Wholes returns the number of values that represent terms whole.
func (v *Division) Wholes() (n int) {
	for _, t := range v.Whole {
		r, _ := t.Basis.Dims()
		n += r
	}
	return n
}

// RestVar returns the prior variances of the rest at the rows of x.
func (v *Division) RestVar(x *mat.Dense) []float64 {
	if v.Rest == nil {
		n, _ := x.Dims()
		return make([]float64, n)
	}
	return variances(nil, v.Rest, x)
}

// noise returns the noise of a row, whose variance under the rest is self.
func (v *Division) noise(row []float64, self float64) float64 {
	if v.Rest == nil || !v.Rest.Noisy() {
		return 0
	}
	return v.Rest.Self(row) - self
}

// Inducing holds M values that represent the prior of a sparse GP, each a value of the latent
// function or of one term of it at a row of x, and the factor LLᵀ of their covariance. The values
// of whole terms come first, each term with a block of L of its own. The values of the rest of
// the kernel at the inducing inputs follow.
type Inducing struct {
	Division
	X      *mat.Dense
	L      []float64
	Jitter float64 // addition to the diagonal of the covariance of the inducing inputs
}

func (u *Inducing) Rank() int { return u.X.RawMatrix().Rows }

// Inputs returns the inducing inputs. If all terms are represented whole, they are inputs of the
// whole kernel.
func (u *Inducing) Inputs() *mat.Dense {
	m, d := u.X.Dims()
	if n := u.Wholes(); n < m {
		return u.X.Slice(n, m, 0, d).(*mat.Dense)
	}
	return u.X
}

// part is a part of the inducing values: the values at rows lo … hi−1 of x belong to one term, and
// have no covariance with other values. Parameter param of the kernel is the first parameter of the
// term.
type part struct {
	Kernel                Kernel
	number, lo, hi, param int
}

// parts calls f for the parts of u.
func (u *Inducing) parts(f func(p part)) {
	lo := 0
	for i, t := range u.Whole {
		n, _ := t.Basis.Dims()
		f(part{t.Kernel, i, lo, lo + n, t.Param})
		lo += n
	}
	if m := u.Rank(); lo < m {
		f(part{u.Rest, len(u.Whole), lo, m, 0})
	}
}

// with returns the inducing values of v with the inducing inputs of rest, which may be nil. The
// error wraps sentinel.ErrNotFinite if the variance of a weight is not finite.
func (v Division) with(rest *Inducing) (*Inducing, error) {
	first, m := v.Wholes(), v.Wholes()
	if rest != nil {
		m += rest.Rank()
	}
	_, d := v.Whole[0].Basis.Dims()
	u := &Inducing{Division: v, X: mat.NewDense(m, d, nil), L: make([]float64, m*m)}
	if rest != nil {
		u.Jitter = rest.Jitter
		for i := range rest.Rank() {
			u.X.SetRow(first+i, rest.X.RawRowView(i))
			copy(u.L[(first+i)*m+first:], rest.L[i*rest.Rank():(i+1)*rest.Rank()])
		}
	}
	at := 0
	for _, t := range v.Whole {
		n, _ := t.Basis.Dims()
		for i := range n {
			row := t.Basis.RawRowView(i)
			u.X.SetRow(at, row)
			u.L[at*m+at] = math.Sqrt(t.Kernel.Cov(row, row))
			if sd := u.L[at*m+at]; !(sd > 0) || math.IsInf(sd, 1) {
				return nil, fmt.Errorf("standard deviation of weight %d of %s is %v: %w",
					i, t.Kernel.Name(), sd, sentinel.ErrNotFinite)
			}
			at++
		}
	}
	return u, nil
}

// withWholes returns the features of the rows of x under u, row by row. f holds the features of the
// same rows without the whole terms.
func (u *Inducing) withWholes(h *parallel.Halt, x *mat.Dense, f []float64) []float64 {
	n, _ := x.Dims()
	m, first := u.Rank(), u.Wholes()
	all := make([]float64, n*m)
	inBlocks(h, n, func(lo, hi int) {
		var row []float64
		for i := lo; i < hi; i++ {
			to := all[i*m : (i+1)*m]
			row = u.wholeFeatures(row[:0], x.RawRowView(i))
			copy(to, row)
			copy(to[first:], f[i*(m-first):(i+1)*(m-first)])
		}
	})
	return all
}

// wholeFeatures appends the features of a row under the terms that are represented whole.
func (v *Division) wholeFeatures(dst, row []float64) []float64 {
	for _, t := range v.Whole {
		n, _ := t.Basis.Dims()
		for i := range n {
			at := t.Basis.RawRowView(i)
			dst = append(dst, t.Kernel.Cov(at, row)/math.Sqrt(t.Kernel.Cov(at, at)))
		}
	}
	return dst
}

// block is the number of rows that are computed at a time.
const block = 128

// inBlocks calls f(lo, hi) for blocks of rows that cover all n rows, on all cores. It ends early if
// h has stopped.
func inBlocks(h *parallel.Halt, n int, f func(lo, hi int)) {
	loop := parallel.Loop{Halt: h}
	loop.Run(n, block, runtime.GOMAXPROCS(0), parallel.Func(func(_, lo, hi int) { f(lo, hi) }))
}

// Work holds some rows with their features.
type Work struct {
	X     *mat.Dense
	F     *mat.Dense // M×rows
	Known []bool     // whether each row is finite
}

// Room makes room for n rows in w, and returns it.
func (u *Inducing) Room(w *Work, n int) *mat.Dense {
	m, d := u.X.Dims()
	if w.X == nil || w.X.RawMatrix().Rows != n {
		w.X, w.F = mat.NewDense(n, d, nil), mat.NewDense(m, n, nil)
	}
	w.Known = dense.Resize(w.Known, n)
	return w.X
}

// Features computes the features L⁻¹k(Z, x) of the rows in w. A row that is not finite has features
// 0.
func (u *Inducing) Features(w *Work) {
	for i := range w.Known {
		row := w.X.RawRowView(i)
		if _, w.Known[i] = dense.AllFinite(row); !w.Known[i] {
			clear(row)
		}
	}
	u.cross(w.F, w.X)
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(u.L, u.Rank()), w.F.RawMatrix())
}

// Left stores the residual variances of the rows in w in v: the prior variances minus the part that
// the features explain.
func (u *Inducing) Left(w *Work, v []float64) {
	clear(v)
	if u.Rest != nil {
		variances(v, u.Rest, w.X)
	}
	f := w.F.RawMatrix()
	for j := u.Wholes(); j < f.Rows; j++ {
		for i, e := range gram.Row(f, j) {
			v[i] -= e * e
		}
	}
	for i := range v {
		v[i] = math.Max(0, v[i])
	}
}

// Explain stores the means of the rows of features f, M×rows, in m, under weights with the given
// mean and the factor l of their precision, and adds the variances to v. It overwrites f.
func Explain(m, v []float64, f blas64.General, mean, l []float64) {
	clear(m)
	for j := range f.Rows {
		floats.AddScaled(m, mean[j], gram.Row(f, j))
	}
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(l, f.Rows), f)
	for j := range f.Rows {
		for i, e := range gram.Row(f, j) {
			v[i] += e * e
		}
	}
}

// cross stores the covariances of the values of u and the latent values at the rows of x in dst,
// M×N.
func (u *Inducing) cross(dst, x *mat.Dense) {
	_, d := u.X.Dims()
	n, _ := x.Dims()
	u.parts(func(p part) {
		cross(nil, p.Kernel, dst.Slice(p.lo, p.hi, 0, n).(*mat.Dense),
			u.X.Slice(p.lo, p.hi, 0, d).(*mat.Dense), x)
	})
}

// At returns the features of the rows of x, N×M, row by row. They are invalid if h has stopped.
func (u *Inducing) At(h *parallel.Halt, x *mat.Dense) []float64 {
	n, m := x.RawMatrix().Rows, u.Rank()
	f := make([]float64, n*m)
	inBlocks(h, n, func(lo, hi int) {
		w := new(Work)
		u.Room(w, hi-lo).Copy(x.Slice(lo, hi, 0, x.RawMatrix().Cols))
		u.Features(w)
		fma.Transpose(fma.Of(f[lo*m:hi*m], hi-lo, m, m),
			fma.Of(w.F.RawMatrix().Data, m, hi-lo, hi-lo))
	})
	return f
}

// Linear returns the linear model of terms at the rows of x, given their features f, N×M, which it
// keeps. It also returns the sum of the residual variances, and the largest prior variance.
func (u *Inducing) Linear(x *mat.Dense, terms *term.Terms, f []float64) (
	lin *site.LinearModel, residual, most float64, err error) {
	n, m := terms.Len(), u.Rank()
	if i, ok := dense.AllFinite(f); !ok {
		return nil, 0, 0, fmt.Errorf("covariance of row %d and inducing input %d: %w",
			i/m, i%m, sentinel.ErrNotFinite)
	}
	for i, v := range variances(nil, u.Kernel, x) {
		if err := checkPriorVar(i, v); err != nil {
			return nil, 0, 0, err
		}
		most = math.Max(most, v)
	}
	c, first := u.RestVar(x), u.Wholes()
	t := *terms
	t.Extra, t.Blur = c, make([]float64, n)
	for i, v := range c {
		row := f[i*m+first : (i+1)*m]
		if c[i] -= floats.Dot(row, row); c[i] < -notPosDef*v {
			return nil, 0, 0, fmt.Errorf("variance of row %d is %v given the inducing inputs: %w",
				i, c[i], sentinel.ErrNotPosDef)
		}
		c[i], t.Blur[i] = math.Max(0, c[i])+u.noise(x.RawRowView(i), v), u.blur(v)
		residual += c[i]
	}
	lin = &site.LinearModel{
		X:     &design.Matrix{Rows: n, Cols: m, Dense: f},
		Terms: &t,
		Prior: gauss.UnitPrior(m),
		Names: make([]string, m),
	}
	for j := range m {
		lin.Names[j] = fmt.Sprintf("feature %d", j)
	}
	return lin, residual, most, nil
}

// Residual estimates the sum of the residual variances of r from its sample. It also returns the
// largest prior variance in the sample.
func (u *Inducing) Residual(r *Rows) (left, most float64, err error) {
	prior := variances(nil, u.Kernel, r.X)
	for i, v := range prior {
		if err := checkPriorVar(i, v); err != nil {
			return 0, 0, err
		}
	}
	n := min(len(prior), ChooseRows)
	u.eachLeft(r.Sample(n), func(_ int, c float64) { left += c })
	return left * (float64(r.N) / float64(n)), floats.Max(prior), nil
}

// eachLeft calls f with the index of each row of x and the residual variance of the row.
func (u *Inducing) eachLeft(x *mat.Dense, f func(i int, c float64)) {
	n, cols := x.Dims()
	v, w := u.RestVar(x), new(Work)
	for lo := 0; lo < n; lo += blockRows {
		c := slices.Clone(v[lo:min(lo+blockRows, n)])
		u.Room(w, len(c)).Copy(x.Slice(lo, lo+len(c), 0, cols))
		u.Features(w)
		u.Left(w, c)
		for i, ci := range c {
			f(lo+i, ci+u.noise(x.RawRowView(lo+i), v[lo+i]))
		}
	}
}

// Loss estimates, from a sample of r, the nats of the ELBO that the residual variances c_n of the
// rows cost under lik, ½Σγ_n c_n; see costs. If it is more than a few nats, learned hyperparameters
// are biased, because smoother functions lose less.
func (u *Inducing) Loss(h *parallel.Halt, r *Rows, lik Likelihood) (nats float64) {
	n := min(len(r.Y), ChooseRows)
	x := r.Sample(n)
	cost := costs(h, variances(nil, u.Kernel, x), r.Terms(lik, n))
	u.eachLeft(x, func(i int, c float64) { nats += cost[i] * c })
	return nats * (float64(r.N) / float64(n))
}

// blur returns the rounding error of a residual variance for the given prior variance.
func (u *Inducing) blur(variance float64) float64 {
	return dense.Epsilon * (rounded + math.Sqrt(float64(u.Rank()))) * variance
}

// jitterPart is the part of the largest variance that is added to each variance in K(Z, Z)
// during a search for inducing inputs or hyperparameters, so that inputs may be equal.
const jitterPart = 1e-10

// Factored returns the inducing values of v, with the jitter, at the inducing inputs z, which it
// keeps. It returns nil if their covariance has no factor.
func (v Division) Factored(h *parallel.Halt, z *mat.Dense) *Inducing {
	if len(v.Whole) > 0 {
		var rest *Inducing
		if v.Open {
			if rest = Undivided(v.Rest).Factored(h, z); rest == nil {
				return nil
			}
		}
		u, err := v.with(rest)
		if err != nil {
			return nil
		}
		return u
	}
	k := v.Kernel
	m, _ := z.Dims()
	u := &Inducing{Division: v, X: z, L: make([]float64, m*m)}
	cross(h, k, mat.NewDense(m, m, u.L), z, z)
	most := 0.0
	for i := range m {
		most = math.Max(most, u.L[i*m+i])
	}
	u.Jitter = jitterPart * most
	for i := range m {
		u.L[i*m+i] += u.Jitter
	}
	if !(most > 0) || !dense.CholeskyUntil(h, u.L, m) {
		return nil
	}
	for i := range m {
		clear(u.L[i*m+i+1 : (i+1)*m])
	}
	return u
}

// Carry returns q, a state of the weights of from with the given mean, as a state of the weights
// of u. It returns nil if that state does not exist. It keeps the information of the rows about
// the latent values at the inducing inputs of from. u must have the kernel of from, as after
// WithInducing, or its inputs, so that the values have the same sites.
func (from *Inducing) Carry(u *Inducing, mean []float64, of *gauss.Gaussian) *gauss.Gaussian {
	m, n := from.Rank(), u.Rank()
	a := mat.NewDense(n, m, nil)
	to := a.RawMatrix()
	if mat.Equal(from.X, u.X) { // A = LᵀL₀⁻ᵀ
		for i := range n {
			for j := range i + 1 {
				to.Data[j*m+i] = u.L[i*m+j]
			}
		}
	} else { // A = L⁻¹K(Z, Z₀)L₀⁻ᵀ
		var parts []part
		from.parts(func(p part) { parts = append(parts, p) })
		rows := func(x *mat.Dense, p part) *mat.Dense {
			return x.Slice(p.lo, p.hi, 0, x.RawMatrix().Cols).(*mat.Dense)
		}
		u.parts(func(p part) {
			o := parts[p.number]
			dst := a.Slice(p.lo, p.hi, o.lo, o.hi).(*mat.Dense)
			cross(nil, p.Kernel, dst, rows(u.X, p), rows(from.X, o))
		})
		dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(u.L, n), to)
	}
	dense.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(from.L, m), to)
	return of.Carry(to, mean)
}

// Digest adds the inducing values to d.
func (u *Inducing) Digest(d *save.Digest) {
	u.Kernel.Identify(d)
	for j := range u.Rank() {
		d.Floats(u.X.RawRowView(j))
	}
}
