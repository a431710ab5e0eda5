package gauss

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file holds the covariances of finished posteriors: full, dual, diagonal and low-rank.

// Cov is the covariance V of the weights of a GLM, in one of several
// forms. It is immutable and safe for concurrent use.
type Cov interface {
	// Variances stores x_nᵀVx_n for the rows of x at index in dst.
	Variances(dst []float64, x *design.Matrix, index []int)
	// Diag stores the diagonal of V in dst.
	Diag(dst []float64)
	// Mul stores Vx in dst, which shares no memory with x.
	Mul(dst, x []float64)
	// Sym returns a copy of V.
	Sym() *mat.SymDense
	// Draw adds a draw of N(0, V) to dst.
	Draw(dst []float64, rng *rand.Rand) error
	// State returns V as a new dense Gaussian with mean zero. The error comes from h if h has
	// stopped.
	State(h *parallel.Halt) (*Gaussian, error)
}

// Full is a V with a stored precision and its factor.
type Full struct {
	S    *Gaussian
	once sync.Once
	cols []float64 // L column by column, for few rows at a time
	pack sync.Once
}

// A few dense rows are solved without blocks if L is small.
const (
	fewRows   = 16
	fewCols   = fma.Block // up to fewCols columns a sum of products has one block
	fewVector = 8         // number of elements from which a vector loop pays
)

// scratch holds the *design.Work of Variances.
var scratch = sync.Pool{New: func() any { return new(design.Work) }}

// setColumns stores L column by column, for variance.
func (c *Full) setColumns() {
	d := len(c.S.Mean)
	for k := range d {
		for i := k; i < d; i++ {
			c.cols = append(c.cols, c.S.L[i*d+k])
		}
	}
}

// variance returns ‖L⁻¹x‖² with the same bits as State.Variances. The scratch s is zero before
// and after.
func (c *Full) variance(x, s []float64) (sum float64) {
	l := c.cols
	for k, xk := range x {
		z := (xk - s[k]) / l[0]
		sum = math.FMA(z, z, sum)
		col, rest := l[1:len(x)-k], s[k+1:]
		if len(col) >= fewVector {
			fma.Axpy(z, col, rest)
		} else {
			for i, v := range col {
				rest[i] = math.FMA(z, v, rest[i])
			}
		}
		l = l[len(x)-k:]
	}
	clear(s)
	return sum
}

// inverse returns V, full, and computes it once.
func (c *Full) inverse() []float64 {
	c.once.Do(c.S.Invert)
	return c.S.Inv
}

// Variances implements Cov.
func (c *Full) Variances(dst []float64, x *design.Matrix, index []int) {
	buf := scratch.Get().(*design.Work)
	defer scratch.Put(buf)
	d, few := x.Cols, len(dst) <= fewRows && x.Cols <= fewCols
	if few && x.Sparse == nil && index == nil && !c.S.Double {
		c.pack.Do(c.setColumns)
		buf.Sums = dense.Resize(buf.Sums, d)
		clear(buf.Sums)
		for i := range dst {
			dst[i] = c.variance(x.Dense[i*d:(i+1)*d], buf.Sums)
		}
		return
	}
	var inv []float64
	if x.Sparse != nil {
		inv = c.inverse()
	}
	c.S.variancesBy(inv, dst, x, index, buf)
}

// Diag implements Cov.
func (c *Full) Diag(dst []float64) {
	inv, d := c.inverse(), len(dst)
	for j := range dst {
		dst[j] = inv[j*d+j]
	}
}

// Mul implements Cov.
func (c *Full) Mul(dst, x []float64) {
	copy(dst, x)
	c.S.Apply(dense.Double{Hi: dst, Lo: make([]float64, len(dst))})
}

// Sym implements Cov.
func (c *Full) Sym() *mat.SymDense { return dense.FullSym(c.inverse(), len(c.S.Mean)) }

// Draw implements Cov.
func (c *Full) Draw(dst []float64, rng *rand.Rand) error {
	d := len(dst)
	z := make([]float64, d)
	for j := range z {
		z[j] = rng.NormFloat64()
	}
	dense.Trsv(blas.Trans, dense.LowerTriangle(c.S.L, d), dense.Vector(z)) // V = L⁻ᵀL⁻¹
	floats.Add(dst, z)
	return nil
}

// State implements Cov.
func (c *Full) State(*parallel.Halt) (*Gaussian, error) {
	s := &Gaussian{}
	s.CopyFrom(c.S)
	clear(s.Mean)
	return s, nil
}

// Dual is V = (Λ0 + XᵀΓX)⁻¹ with more weights than rows, through the rows:
//
//	V = Λ0⁻¹ − Λ0⁻¹Xᵀ (K⁻¹ − K⁻¹(K⁻¹ + Γ)⁻¹K⁻¹) XΛ0⁻¹,   K = XΛ0⁻¹Xᵀ.
type Dual struct {
	X     *design.Matrix
	Gamma []float64
	Fac   *dense.SiteFactor
	Prior *Prior
}

// dualChunk is the number of vectors that are processed together.
const dualChunk = 128

// expand computes the expansion of Xzᵀ for the t rows of z.
func (c *Dual) expand(e *dense.Expansion, z *mat.Dense, cross *[]float64) {
	n, t := c.X.Rows, z.RawMatrix().Rows
	*cross = dense.Resize(*cross, n*t)
	col := make([]float64, n)
	for a := range t {
		c.X.Mul(col, z.RawRowView(a), nil)
		for i, v := range col {
			(*cross)[i*t+a] = v
		}
	}
	c.Fac.Expand(e, *cross, t)
}

// Variances implements Cov.
func (c *Dual) Variances(dst []float64, x *design.Matrix, index []int) {
	d := c.X.Cols
	z := mat.NewDense(1, d, nil)
	var e dense.Expansion
	var cross []float64
	row := make([]float64, d)
	for lo := 0; lo < len(dst); lo += dualChunk {
		t := min(dualChunk, len(dst)-lo)
		z.Reset()
		z.ReuseAs(t, d)
		for a := range t {
			x.Dense1(row, dense.Index(index, lo+a))
			c.Prior.Solve(z.RawRowView(a), row)
			dst[lo+a] = floats.Dot(z.RawRowView(a), row)
		}
		c.expand(&e, z, &cross)
		e.SubVar(dst[lo : lo+t])
		for a := range t {
			dst[lo+a] = math.Max(0, dst[lo+a])
		}
	}
}

// Diag implements Cov.
func (c *Dual) Diag(dst []float64) {
	one := &design.Matrix{Rows: len(dst), Cols: len(dst), Sparse: Identity(len(dst))}
	c.Variances(dst, one, nil)
}

// Mul implements Cov by Λ0⁻¹x − Λ0⁻¹XᵀS½B⁻¹S½XΛ0⁻¹x. If a site is negative, it uses the
// expansions of the weights instead, dualChunk at a time.
func (c *Dual) Mul(dst, x []float64) {
	c.Prior.Solve(dst, x)
	if len(c.Fac.Neg) > 0 {
		c.mulExpanded(dst, slices.Clone(dst))
		return
	}
	eta := make([]float64, c.X.Rows)
	c.X.Mul(eta, dst, nil)
	r := make([]float64, len(c.Fac.Pos))
	for a, i := range c.Fac.Pos {
		r[a] = c.Fac.Sp[a] * eta[i]
	}
	c.subSites(dst, r)
}

// subSites subtracts Λ0⁻¹XᵀS½B⁻¹r from dst, and overwrites r.
func (c *Dual) subSites(dst, r []float64) {
	dense.Potrs(c.Fac.Lp, r)
	eta := make([]float64, c.X.Rows)
	for a, i := range c.Fac.Pos {
		eta[i] = -c.Fac.Sp[a] * r[a]
	}
	h, z := make([]float64, len(dst)), make([]float64, len(dst))
	c.X.AddMulT(h, eta, nil)
	c.Prior.Solve(z, h)
	floats.Add(dst, z)
}

// mulExpanded subtracts the effect of the sites from z = Λ0⁻¹x.
func (c *Dual) mulExpanded(dst, z []float64) {
	d := len(dst)
	var ex, ez dense.Expansion
	var cross []float64
	row, part := make([]float64, d), make([]float64, dualChunk)
	for lo := 0; lo < d; lo += dualChunk {
		t := min(dualChunk, d-lo)
		units, same := mat.NewDense(t, d, nil), mat.NewDense(t, d, nil)
		for a := range t {
			row[lo+a] = 1
			c.Prior.Solve(units.RawRowView(a), row)
			row[lo+a] = 0
			same.SetRow(a, z)
		}
		c.expand(&ex, units, &cross)
		c.expand(&ez, same, &cross)
		ex.Cross(part[:t], &ez)
		floats.Sub(dst[lo:lo+t], part[:t])
	}
}

// Identity returns the unit matrix.
func Identity(d int) *design.Rows {
	s := &design.Rows{Cols: d}
	s.Ptr = append(s.Ptr, 0)
	for j := range d {
		s.Ind, s.Val, s.Ptr = append(s.Ind, int32(j)), append(s.Val, 1), append(s.Ptr, j+1)
	}
	return s
}

// Sym implements Cov.
func (c *Dual) Sym() *mat.SymDense {
	d := c.X.Cols
	z := mat.NewDense(d, d, nil)
	row := make([]float64, d)
	for j := range d {
		row[j] = 1
		c.Prior.Solve(z.RawRowView(j), row)
		row[j] = 0
	}
	v := append([]float64(nil), z.RawMatrix().Data...)
	var e dense.Expansion
	var cross []float64
	c.expand(&e, z, &cross)
	e.SubCov(v)
	return dense.FullSym(v, d)
}

// Draw implements Cov. It conditions a draw w0 of the prior on the sites, which act as noisy
// observations (Matheron's rule): w0 − Λ0⁻¹XᵀS½ B⁻¹ (S½Xw0 + ε), ε ~ N(0, I).
func (c *Dual) Draw(dst []float64, rng *rand.Rand) error {
	if len(c.Fac.Neg) > 0 {
		return fmt.Errorf(
			"pgsvi: draws from a posterior with more weights than rows under a likelihood that "+
				"is not log-concave: %w", sentinel.ErrNotPosDef)
	}
	w0 := c.Prior.draw(rng)
	n := c.X.Rows
	eta := make([]float64, n)
	c.X.Mul(eta, w0, nil)
	r := make([]float64, len(c.Fac.Pos))
	for a, i := range c.Fac.Pos {
		r[a] = c.Fac.Sp[a]*eta[i] + rng.NormFloat64()
	}
	c.subSites(dst, r)
	floats.Add(dst, w0)
	return nil
}

// State implements Cov.
func (c *Dual) State(h *parallel.Halt) (*Gaussian, error) {
	s, err := c.Prior.StateUntil(h)
	if err != nil {
		return nil, err
	}
	post := &Gaussian{Halt: h}
	ok := post.Add(s, c.X, c.Gamma, nil, &design.Work{Halt: h})
	if err := h.Err(); err != nil {
		return nil, err
	}
	if post.Halt = nil; !ok {
		return nil, fmt.Errorf("pgsvi: posterior precision: %w", sentinel.ErrNotPosDef)
	}
	return post, nil
}

// Diagonal is a diagonal V.
type Diagonal []float64

// Variances implements Cov.
func (c Diagonal) Variances(dst []float64, x *design.Matrix,
	index []int) {
	x.QuadDiag(dst, c, index)
}

// Diag implements Cov.
func (c Diagonal) Diag(dst []float64) { copy(dst, c) }

// Mul implements Cov.
func (c Diagonal) Mul(dst, x []float64) {
	for j, v := range c {
		dst[j] = v * x[j]
	}
}

// Sym implements Cov.
func (c Diagonal) Sym() *mat.SymDense {
	s := mat.NewSymDense(len(c), nil)
	for j, v := range c {
		s.SetSym(j, j, v)
	}
	return s
}

// Draw implements Cov.
func (c Diagonal) Draw(dst []float64, rng *rand.Rand) error {
	for j, v := range c {
		dst[j] += math.Sqrt(v) * rng.NormFloat64()
	}
	return nil
}

// State implements Cov.
func (c Diagonal) State(h *parallel.Halt) (*Gaussian, error) {
	p := Prior{Prec: make([]float64, len(c))}
	for j, v := range c {
		p.Prec[j] = 1 / v
	}
	return p.StateUntil(h)
}

// LowRank is V with V⁻¹ = P = diag(d) + UUᵀ, where U is D×R. By Woodbury's identity, with M = I +
// Uᵀdiag(d)⁻¹U = LLᵀ,
//
//	V = diag(d)⁻¹ − ZZᵀ,   Z = diag(d)⁻¹UL⁻ᵀ,   log|P| = Σ log d + log|M|.
type LowRank struct {
	Rank   int
	D, V   []float64 // d and 1/d
	U, Z   []float64 // D×R, row by row
	L      []float64 // R×R, lower triangle
	LogDet float64
}

// NewLowRank returns a LowRank of d weights with zero D and U. The caller fills them and calls
// Factor.
func NewLowRank(d, rank int) *LowRank {
	return &LowRank{Rank: rank, D: make([]float64, d), V: make([]float64, d),
		U: make([]float64, d*rank), Z: make([]float64, d*rank), L: make([]float64, rank*rank)}
}

// Factor computes V, Z, L and LogDet from D and U, and reports whether they are finite.
func (c *LowRank) Factor() bool {
	k := c.Rank
	c.LogDet = 0
	for j, d := range c.D {
		c.V[j] = 1 / d
		floats.ScaleTo(c.Z[j*k:(j+1)*k], c.V[j], c.U[j*k:(j+1)*k])
		c.LogDet += math.Log(d)
	}
	SelfProduct(c.L, c.Z, c.U, k)
	for a := range k {
		c.L[a*k+a]++
	}
	if !dense.Cholesky(c.L, k) {
		return false
	}
	c.LogDet += dense.LogDet(c.L, k)
	dense.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(c.L, k),
		dense.General(c.Z, len(c.D), k))
	return !math.IsNaN(c.LogDet) && !math.IsInf(c.LogDet, 0)
}

// SelfProduct stores the k×k matrix aᵀb in dst. Both a and b have k columns.
func SelfProduct(dst, a, b []float64, k int) {
	clear(dst)
	for j := 0; j < len(a); j += k {
		for i, v := range a[j : j+k] {
			floats.AddScaled(dst[i*k:(i+1)*k], v, b[j:j+k])
		}
	}
}

// Variances implements Cov.
func (c *LowRank) Variances(dst []float64, x *design.Matrix, index []int) {
	buf := scratch.Get().(*design.Work)
	c.VariancesOn(dst, x, index, buf)
	scratch.Put(buf)
}

// VariancesOn is Variances, Σ_j x_j²/d_j − ‖Zᵀx‖², on up to the number of goroutines that s.Halt
// lends.
func (c *LowRank) VariancesOn(dst []float64, x *design.Matrix, index []int, s *design.Work) {
	if n := len(dst); x.Shared(s.Halt, n*x.PerRow()*c.Rank) {
		s.Split(n, design.Chunk,
			func(lo, hi int, s *design.Work) { c.variancesPart(dst, x, index, lo, hi, s) })
	} else {
		for lo := 0; lo < n; lo += design.Chunk {
			c.variancesPart(dst, x, index, lo, min(lo+design.Chunk, n), s)
		}
	}
}

// variancesPart is Variances for elements lo … hi−1 of dst.
func (c *LowRank) variancesPart(dst []float64, x *design.Matrix, index []int, lo, hi int,
	s *design.Work) {
	if s.Halt.Stopped() {
		return
	}
	k := c.Rank
	x.QuadDiagPart(dst, c.V, index, lo, hi)
	s.Sums = dense.Resize(s.Sums, (hi-lo)*k)
	clear(s.Sums)
	x.AddProducts(s.Sums, c.Z, k, index, lo, hi, s)
	for a := lo; a < hi; a++ {
		t := s.Sums[(a-lo)*k : (a-lo+1)*k]
		dst[a] = math.Max(0, dst[a]-fma.Dot(t, t))
	}
}

// Solve stores Vr in dst. The scratch t has length R.
func (c *LowRank) Solve(dst, r, t []float64) {
	k := c.Rank
	clear(t)
	for j, v := range r {
		floats.AddScaled(t, v, c.Z[j*k:(j+1)*k])
	}
	for j, v := range r {
		dst[j] = v/c.D[j] - floats.Dot(c.Z[j*k:(j+1)*k], t)
	}
}

// Mul implements Cov.
func (c *LowRank) Mul(dst, x []float64) { c.Solve(dst, x, make([]float64, c.Rank)) }

// Diag implements Cov.
func (c *LowRank) Diag(dst []float64) {
	k := c.Rank
	for j, d := range c.D {
		z := c.Z[j*k : (j+1)*k]
		dst[j] = 1/d - floats.Dot(z, z)
	}
}

// Sym implements Cov.
func (c *LowRank) Sym() *mat.SymDense {
	n, k := len(c.D), c.Rank
	s := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i {
			s.SetSym(i, j, -floats.Dot(c.Z[i*k:(i+1)*k], c.Z[j*k:(j+1)*k]))
		}
	}
	v := make([]float64, n)
	c.Diag(v)
	for i, x := range v {
		s.SetSym(i, i, x)
	}
	return s
}

// Draw implements Cov. It solves P w = diag(d)^½ε + Uε′ with independent ε, ε′ ~ N(0, I), because
// the right-hand side has the covariance P.
func (c *LowRank) Draw(dst []float64, rng *rand.Rand) error {
	k := c.Rank
	e, w := make([]float64, k), make([]float64, len(dst))
	for a := range e {
		e[a] = rng.NormFloat64()
	}
	for j, d := range c.D {
		w[j] = math.Sqrt(d)*rng.NormFloat64() + floats.Dot(c.U[j*k:(j+1)*k], e)
	}
	c.Solve(w, w, e)
	floats.Add(dst, w)
	return nil
}

// State implements Cov.
func (c *LowRank) State(h *parallel.Halt) (*Gaussian, error) {
	n, k := len(c.D), c.Rank
	s := &Gaussian{Halt: h}
	s.Resize(n)
	clear(s.Mean)
	for i := range n {
		if err := h.Err(); err != nil {
			return nil, err
		}
		for j := range i + 1 {
			s.P[i*n+j] = floats.Dot(c.U[i*k:(i+1)*k], c.U[j*k:(j+1)*k])
		}
		s.P[i*n+i] += c.D[i]
	}
	ok := s.Factor()
	if err := h.Err(); err != nil {
		return nil, err
	}
	if s.Halt = nil; !ok {
		return nil, fmt.Errorf("pgsvi: posterior precision: %w", sentinel.ErrNotPosDef)
	}
	return s, nil
}
