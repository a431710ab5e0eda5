// Package gauss represents Gaussians of the weights of a linear model. It has priors, and
// precisions that add up over rows, in float64 or with twice its digits. Covariances are full,
// diagonal, low-rank, or given by sites of the rows. GLMs and sparse GPs use it: State is the
// Gaussian that the engines step, and Cov is the covariance of a finished posterior.
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
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

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
	dense.Potrs(c.Fac.Lp, r)
	clear(eta)
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
	dense.Potrs(c.Fac.Lp, r)
	clear(eta)
	for a, i := range c.Fac.Pos {
		eta[i] = -c.Fac.Sp[a] * r[a]
	}
	h, z := make([]float64, len(dst)), make([]float64, len(dst))
	c.X.AddMulT(h, eta, nil)
	c.Prior.Solve(z, h)
	floats.Add(dst, z)
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

// Prior is N(μ0, Λ0⁻¹).
type Prior struct {
	Mean []float64
	Prec []float64 // Λ0 if it is diagonal, else nil
	// Each holds the diagonals Λ0 of K classes, one after the other, if they differ. Prec is then
	// Λ0 of the first class.
	Each []float64
	Full *Gaussian // Λ0 if it is not diagonal
}

// UnitPrior returns N(0, I) of d weights.
func UnitPrior(d int) Prior {
	p := Prior{Mean: make([]float64, d), Prec: make([]float64, d)}
	for j := range p.Prec {
		p.Prec[j] = 1
	}
	return p
}

// State returns the prior as a new dense Gaussian about μ0.
func (p *Prior) State() (*Gaussian, error) { return p.StateUntil(nil) }

// StateUntil is State with the error of h if h has stopped.
func (p *Prior) StateUntil(h *parallel.Halt) (*Gaussian, error) {
	s := &Gaussian{Halt: h}
	defer func() { s.Halt = nil }()
	if p.Full != nil {
		s.CopyFrom(p.Full)
		return s, nil
	}
	d := len(p.Prec)
	s.Resize(d)
	for j, l := range p.Prec {
		s.P[j*d+j] = l
	}
	ok := s.factorDiagonal()
	if err := h.Err(); err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("pgsvi: precision of the prior: %w", sentinel.ErrNotPosDef)
	}
	return s, nil
}

// Gaussian is a normal distribution over D weights, with the precision P and a mean relative to a point that
// the caller chooses. If features are collinear in float64, or nearly so, P, its factor and
// results of it have twice the digits as sums Hi + Lo. Their high parts are then in P, L and
// Mean.
type Gaussian struct {
	P      []float64 // precision, lower triangle
	L      []float64 // its Cholesky factor
	Inv    []float64 // V = P⁻¹, lower triangle; valid if hasInv
	hasInv bool
	LogDet float64 // log|P|
	Mean   []float64

	Double              bool      // pLow, lLow and MeanLow are valid
	pLow, lLow, MeanLow []float64 // low parts of P, L and, after Solve, Mean
	// If Halt has stopped, Factor returns false and Invert computes nothing useful.
	Halt *parallel.Halt
}

// A pivot L_jj² is the part of P_jj that the weights before j leave. Its ratio to P_jj does not
// depend on units. A factor in float64 has about 16 + log₁₀(L_jj²/P_jj) correct digits, and a
// factor with twice the digits has 32 + log₁₀(L_jj²/P_jj).
const (
	// least ratio for float64: the ELBO keeps nine digits, and a mean the remaining digits
	LeastPivot       = 1e-6
	orderedPivot     = 1e-3  // below it V measures the lost digits
	LeastDoublePivot = 1e-26 // below it V has fewer than six digits, even with twice the digits
	noPivot          = 1e-29 // below it V has no digits
)

// epsilonDouble is the error of a factor with twice the digits, relative to its least ratio,
// measured against arithmetic of 400 bits.
const epsilonDouble = 0x1p-106

// Resize prepares s for d weights. The numbers are unspecified.
func (s *Gaussian) Resize(d int) {
	s.P, s.L, s.Mean = dense.Resize(s.P, d*d), dense.Resize(s.L, d*d), dense.Resize(s.Mean, d)
}

// precision, cholesky and shift return P, its factor and the mean with all their digits. The low
// parts are empty unless s.Double is set.
func (s *Gaussian) precision() dense.Double { return dense.Double{Hi: s.P, Lo: s.pLow} }
func (s *Gaussian) cholesky() dense.Double  { return dense.Double{Hi: s.L, Lo: s.lLow} }
func (s *Gaussian) shift() dense.Double     { return dense.Double{Hi: s.Mean, Lo: s.MeanLow} }

// Widen gives s twice the digits. The low parts of P become 0 if s had none.
func (s *Gaussian) Widen() {
	d := len(s.Mean)
	s.pLow, s.lLow, s.MeanLow = dense.Resize(s.pLow, d*d), dense.Resize(s.lLow, d*d),
		dense.Resize(s.MeanLow, d)
	if !s.Double {
		clear(s.pLow)
		s.Double = true
	}
}

// CopyPrecision copies P from o.
func (s *Gaussian) CopyPrecision(o *Gaussian) {
	s.Resize(len(o.Mean))
	dense.CopyLower(nil, s.P, o.P, len(o.Mean))
	if s.Double = o.Double; s.Double {
		s.Widen()
		copy(s.pLow, o.pLow)
	}
}

// CopyFrom copies o to s, with its factor and, if it has one, its inverse.
func (s *Gaussian) CopyFrom(o *Gaussian) {
	d := len(o.Mean)
	s.CopyPrecision(o)
	dense.CopyLower(nil, s.L, o.L, d)
	copy(s.Mean, o.Mean)
	if s.Double {
		copy(s.lLow, o.lLow)
		copy(s.MeanLow, o.MeanLow)
	}
	s.LogDet, s.hasInv = o.LogDet, o.hasInv
	if o.hasInv {
		s.Inv = dense.Resize(s.Inv, d*d)
		copy(s.Inv, o.Inv)
	}
}

// Average sets P to t times the P of a plus (1 − t) times the P of b. It does not compute the
// factor. Either of them may be s.
func (s *Gaussian) Average(t float64, a, b *Gaussian) {
	if !a.Double && !b.Double {
		s.Resize(len(a.Mean))
		s.Double = false
		for j, p := range a.P {
			s.P[j] = t*p + (1-t)*b.P[j]
		}
		return
	}
	var sum dense.Double
	sum.Resize(len(a.P))
	sum.Clear()
	for _, part := range []struct {
		weight float64
		of     *Gaussian
	}{{t, a}, {1 - t, b}} {
		if part.of.Double {
			sum.AddDouble(part.weight, part.of.precision())
		} else {
			sum.AddScaled(part.weight, part.of.P)
		}
	}
	sum.Round()
	s.Resize(len(a.Mean))
	s.Widen()
	copy(s.P, sum.Hi)
	copy(s.pLow, sum.Lo)
}

// Factor computes the factor of P and reports whether P is positive definite and finite.
func (s *Gaussian) Factor() bool {
	d := len(s.Mean)
	s.hasInv = false
	dense.CopyLower(nil, s.L, s.P, d)
	if s.Double {
		copy(s.lLow, s.pLow)
		if !(s.cholesky().CholeskyUntil(s.Halt, d) > noPivot) {
			return false
		}
	} else if !dense.CholeskyUntil(s.Halt, s.L, d) {
		return false
	}
	s.LogDet = dense.LogDet(s.L, d)
	return !math.IsNaN(s.LogDet)
}

// factorDiagonal is Factor for a diagonal P and an L of zeros.
func (s *Gaussian) factorDiagonal() bool {
	d := len(s.Mean)
	for j := 0; j < d*d; j += d + 1 {
		if s.L[j] = math.Sqrt(s.P[j]); !(s.L[j] > 0 && s.L[j] <= math.MaxFloat64) {
			return false
		}
	}
	s.LogDet = dense.LogDet(s.L, d)
	return true
}

// Pivot returns the least ratio of a pivot of s to a diagonal element of the precision of o.
func (s *Gaussian) Pivot(o *Gaussian) float64 {
	least, d := 1.0, len(s.Mean)
	for j := 0; j < d*d; j += d + 1 {
		least = math.Min(least, s.L[j]*s.L[j]/o.P[j])
	}
	return least
}

// Rounding estimates the error of log|P|, in nats. It is 0 if float64 or twice its digits
// suffice.
func (s *Gaussian) Rounding() float64 {
	if !s.Double {
		return 0
	}
	p := s.Pivot(s)
	if p >= LeastDoublePivot {
		return 0
	}
	return epsilonDouble / p * float64(len(s.Mean))
}

// Resolution bounds the error of log|P|, in nats, in float64. It is 0 with twice the
// digits.
func (s *Gaussian) Resolution() float64 {
	if s.Double {
		return 0
	}
	p, d := s.Pivot(s), len(s.Mean)
	scaled := float64(d) / p
	// Pivots depend on the order of the weights. V in units in which P_jj is 1 gives the true
	// number of lost digits.
	if p < orderedPivot {
		if s.Invert(); !s.hasInv {
			return math.Inf(1)
		}
		var trace float64
		for j := 0; j < d*d; j += d + 1 {
			trace += s.P[j] * s.Inv[j]
		}
		scaled = max(scaled, trace)
	}
	return dense.Epsilon * scaled
}

// Add computes P = base + Xᵀ diag(w) X, for the rows of x at index, and its factor. It reports
// whether P is positive definite and resolved. It takes twice the digits if float64 has too few.
// The weights w may have any sign. Buf is scratch.
func (s *Gaussian) Add(base *Gaussian, x *design.Matrix, w []float64, index []int,
	buf *design.Work) bool {
	s.CopyPrecision(base)
	if !s.Double {
		s.AddRows(x, w, index, buf)
		if s.Factor() && s.Pivot(s) >= LeastPivot {
			return true
		}
		if s.Halt.Stopped() {
			return false
		}
		copy(s.P, base.P)
		s.Widen()
	}
	s.AddRows(x, w, index, buf)
	ok := s.Factor()
	if ok && s.Pivot(s) >= LeastPivot || !ok && !base.Double {
		s.Double = false
	}
	return ok
}

// AddRows adds Xᵀ diag(w) X to P with the digits that s has. It does not compute the factor.
func (s *Gaussian) AddRows(x *design.Matrix, w []float64, index []int, buf *design.Work) {
	for _, wa := range w {
		if wa != 0 {
			buf.Rows++
		}
	}
	if !s.Double {
		x.AddGram(s.P, w, index, buf)
		return
	}
	p := s.precision()
	for a, wa := range w {
		if s.Halt.Stopped() {
			return
		}
		if wa != 0 {
			ind, val := x.Row(dense.Index(index, a))
			p.AddOuter(x.Cols, wa, ind, val)
		}
	}
	p.Round()
}

// Solve sets the mean to P⁻¹Xᵀu. Buf is scratch.
func (s *Gaussian) Solve(x *design.Matrix, u []float64, index []int, buf *design.Work) {
	if !s.Double {
		clear(s.Mean)
		x.AddMulTOn(s.Mean, u, index, buf)
		dense.Potrs(s.L, s.Mean)
		return
	}
	h := s.shift()
	h.Clear()
	x.AddMulTDouble(h, u, index, buf)
	s.Apply(h)
}

// Apply replaces h by P⁻¹h.
func (s *Gaussian) Apply(h dense.Double) {
	if s.Double {
		s.cholesky().Potrs(h)
	}
	h.Round()
	if !s.Double {
		dense.Potrs(s.L, h.Hi)
	}
}

// Whiten replaces z by R⁻¹z, for the factor P = RRᵀ.
func (s *Gaussian) Whiten(z dense.Double) {
	r := s.cholesky()
	if !s.Double {
		r.Lo = make([]float64, len(s.L))
	}
	r.Trsv(z)
}

// PackLow returns the low part of P, packed like PackLower. It returns nil if s has no low parts.
func (s *Gaussian) PackLow() []float64 {
	if !s.Double {
		return nil
	}
	return dense.PackLower(s.pLow, len(s.Mean))
}

// Residual stores Xᵀu − Pw in r, computed with twice the digits, where w is the mean of t. Buf is
// scratch.
func (s *Gaussian) Residual(r dense.Double, t *Gaussian, x *design.Matrix, u []float64,
	buf *design.Work) {
	r.Clear()
	x.AddMulTDouble(r, u, nil, buf)
	d := len(s.Mean)
	for i := range d {
		for j := range i + 1 {
			p := s.P[i*d+j]
			if p == 0 {
				continue
			}
			r.AddAt(i, -p, t.Mean[j])
			if j < i {
				r.AddAt(j, -p, t.Mean[i])
			}
			if s.Double {
				r.Lo[i] -= s.pLow[i*d+j] * t.Mean[j]
				if j < i {
					r.Lo[j] -= s.pLow[i*d+j] * t.Mean[i]
				}
			}
			if t.Double {
				r.Lo[i] -= p * t.MeanLow[j]
				if j < i {
					r.Lo[j] -= p * t.MeanLow[i]
				}
			}
		}
	}
	r.Round()
}

// Predict stores X times the mean in dst.
func (s *Gaussian) Predict(dst []float64, x *design.Matrix, index []int) {
	if !s.Double {
		x.MulOn(s.Halt, dst, s.Mean, index)
		return
	}
	x.MulDouble(dst, s.shift(), index)
}

// Square returns δᵀPδ for the mean δ of t. W is scratch.
func (s *Gaussian) Square(t *Gaussian, w *dense.Double) float64 {
	n := len(s.Mean)
	w.Resize(n)
	copy(w.Hi, t.Mean)
	if s.Double {
		clear(w.Lo)
		if t.Double {
			copy(w.Lo, t.MeanLow)
		}
		s.cholesky().MulTrans(*w)
	} else {
		dense.Trmv(blas.Trans, dense.LowerTriangle(s.L, n), dense.Vector(w.Hi))
	}
	return floats.Dot(w.Hi, w.Hi)
}

// Invert computes Inv.
func (s *Gaussian) Invert() {
	if s.hasInv {
		return
	}
	d := len(s.Mean)
	s.Inv = dense.Resize(s.Inv, d*d)
	if s.Double {
		s.cholesky().InverseUntil(s.Halt, s.Inv, d)
		s.hasInv = !s.Halt.Stopped()
		return
	}
	copy(s.Inv, s.L)
	dense.InvertUntil(s.Halt, s.Inv, d)
	s.hasInv = !s.Halt.Stopped()
}

// Variances stores the variances of the rows of x in v.
func (s *Gaussian) Variances(v []float64, x *design.Matrix, index []int, buf *design.Work) {
	if x.Sparse != nil {
		s.Invert()
	}
	s.variancesBy(s.Inv, v, x, index, buf)
}

// variancesBy is Variances with the given inverse of the precision. Only sparse rows use it.
func (s *Gaussian) variancesBy(inv, v []float64, x *design.Matrix, index []int, buf *design.Work) {
	if s.Double {
		x.VariancesDouble(v, s.cholesky(), inv, index, buf)
		return
	}
	x.Variances(v, s.L, inv, index, buf)
}

// MoveTo replaces s by t, whose mean is relative to the mean of s.
func (s *Gaussian) MoveTo(t *Gaussian) {
	floats.Add(t.Mean, s.Mean)
	*s, *t = *t, *s
}

// DiagTo stores the diagonal of Λ0 in dst.
func (p *Prior) DiagTo(dst []float64) {
	copy(dst, p.Prec)
	if p.Full != nil {
		for j := range dst {
			dst[j] = p.Full.P[j*len(dst)+j]
		}
	}
}

// At returns element j of the diagonal of Λ0.
func (p *Prior) At(j int) float64 {
	if p.Full != nil {
		return p.Full.P[j*len(p.Mean)+j]
	}
	return p.Prec[j]
}

// Mul stores Λ0z in dst. Both are D×k.
func (p *Prior) Mul(dst, z []float64, k int) {
	d := len(p.Mean)
	switch {
	case p.Full == nil:
		for j, l := range p.Prec {
			floats.ScaleTo(dst[j*k:(j+1)*k], l, z[j*k:(j+1)*k])
		}
	case k == 1:
		dense.Symv(1, dense.Symmetric(p.Full.P, d), dense.Vector(z), 0, dense.Vector(dst))
	default:
		clear(dst[:d*k])
		for i := range d {
			di, zi := dst[i*k:(i+1)*k], z[i*k:(i+1)*k]
			for j, l := range p.Full.P[i*d : i*d+i] {
				floats.AddScaled(di, l, z[j*k:(j+1)*k])
				floats.AddScaled(dst[j*k:(j+1)*k], l, zi)
			}
			floats.AddScaled(di, p.Full.P[i*d+i], zi)
		}
	}
}

// LogDet returns log|Λ0|.
func (p *Prior) LogDet() (s float64) {
	if p.Full != nil {
		return p.Full.LogDet
	}
	for _, l := range p.Prec {
		s += math.Log(l)
	}
	return s
}

// Solve stores Λ0⁻¹x in dst.
func (p *Prior) Solve(dst, x []float64) {
	copy(dst, x)
	if p.Full != nil {
		dense.Potrs(p.Full.L, dst)
		return
	}
	for j, l := range p.Prec {
		dst[j] /= l
	}
}

// Residual stores Xᵀu − Λ0w in r, computed with twice the digits. Buf is scratch.
func (p *Prior) Residual(r dense.Double, w []float64, x *design.Matrix, u dense.Double,
	buf *design.Work) {
	if p.Full != nil {
		p.Full.Residual(r, &Gaussian{Mean: w}, x, u.Hi, buf)
	} else {
		r.Clear()
		x.AddMulTDouble(r, u.Hi, nil, buf)
		for j, l := range p.Prec {
			r.AddAt(j, -l, w[j])
		}
	}
	x.AddMulT(r.Lo, u.Lo, nil)
	r.Round()
}

// Variances stores x_nᵀΛ0⁻¹x_n for all rows of x in dst.
func (p *Prior) Variances(dst []float64, x *design.Matrix) {
	if p.Full != nil {
		p.Full.Variances(dst, x, nil, &design.Work{})
		return
	}
	v := make([]float64, len(p.Prec))
	for j, l := range p.Prec {
		v[j] = 1 / l
	}
	x.QuadDiag(dst, v, nil)
}

// draw returns a draw of N(0, Λ0⁻¹).
func (p *Prior) draw(rng *rand.Rand) []float64 {
	z := make([]float64, len(p.Mean))
	for j := range z {
		z[j] = rng.NormFloat64()
		if p.Full == nil {
			z[j] /= math.Sqrt(p.Prec[j])
		}
	}
	if p.Full != nil {
		dense.Trsv(blas.Trans, dense.LowerTriangle(p.Full.L, len(z)), dense.Vector(z))
	}
	return z
}

// SavedPrior is the saved form of a Prior.
type SavedPrior struct {
	Mean save.List[float64] `json:"mean"`
	Diag save.List[float64] `json:"diagonal,omitempty"`  // diagonal of Λ0, or
	Each save.List[float64] `json:"classes,omitempty"`   // diagonals of all classes, or
	Full save.List[float64] `json:"precision,omitempty"` // lower triangle of Λ0, row by row
}

// Classes returns the precisions of the weights of K classes, one class after the other.
func (p *Prior) Classes(k int) []float64 {
	if p.Each != nil {
		return p.Each
	}
	return slices.Repeat(p.Prec, k)
}

// Save returns the saved form of p.
func (p *Prior) Save() SavedPrior {
	s := SavedPrior{Mean: p.Mean, Diag: p.Prec, Each: p.Each}
	if p.Full != nil {
		s.Full = dense.PackLower(p.Full.P, len(p.Mean))
	}
	return s
}

// Load returns the prior that Save saved.
func (s *SavedPrior) Load() (*Prior, error) {
	p := &Prior{Mean: s.Mean}
	if s.Full != nil {
		w, err := LoadPrecision(s.Full, nil, len(s.Mean), "prior precision")
		p.Full = w
		return p, err
	}
	p.Prec, p.Each = s.Diag, s.Each
	if s.Each != nil {
		if err := CheckDiagonal(s.Each, len(s.Each), "prior precision of a class"); err != nil {
			return nil, err
		}
	}
	return p, CheckDiagonal(s.Diag, len(s.Mean), "prior precision")
}

// LoadPrecision returns the Gaussian about 0 with the precision that dense.PackLower packed, and
// the low part that PackLow packed. The name appears in errors.
func LoadPrecision(l, low []float64, d int, name string) (*Gaussian, error) {
	if len(l) != d*(d+1)/2 || low != nil && len(low) != len(l) {
		return nil, fmt.Errorf("%s of %d weights with %d numbers and %d more digits, want %d: %w",
			name, d, len(l), len(low), d*(d+1)/2, sentinel.ErrShape)
	}
	w := &Gaussian{}
	w.Resize(d)
	w.P = dense.UnpackLower(l, d)
	if low != nil {
		w.Widen()
		w.pLow = dense.UnpackLower(low, d)
	}
	if !w.Factor() {
		return nil, fmt.Errorf("%s: %w", name, sentinel.ErrNotPosDef)
	}
	return w, nil
}

// CheckDiagonal returns an error unless v is the diagonal of a positive definite
// matrix of dimension d.
func CheckDiagonal(v []float64, d int, name string) error {
	if len(v) != d {
		return fmt.Errorf("%s of %d weights with %d numbers: %w", name, d, len(v),
			sentinel.ErrShape)
	}
	for j, x := range v {
		if !(x > 0) {
			return fmt.Errorf("%s of weight %d is %v: %w", name, j, x, sentinel.ErrNotPosDef)
		}
	}
	return nil
}

// State writes or reads a Gaussian of d weights.
func (s *Gaussian) State(c *save.Coder, d int) {
	if c.Reading() {
		if !c.Holds(d+1, d) {
			return
		}
		s.Resize(d)
		s.hasInv = false
	}
	c.Lower(d, s.P)
	c.Lower(d, s.L)
	c.Floats(d, &s.Mean)
	c.Float(&s.LogDet)
	if c.Bool(&s.Double); !s.Double || c.Err() != nil {
		return
	}
	if c.Reading() {
		s.Widen()
	}
	c.Lower(d, s.pLow)
	c.Lower(d, s.lLow)
	c.Floats(d, &s.MeanLow)
}

// Equal reports whether p and o have the same bits.
func (p *Prior) Equal(o *Prior) bool {
	if p.Full == nil || o.Full == nil {
		return p.Full == o.Full && slices.Equal(p.Mean, o.Mean) && slices.Equal(p.Prec, o.Prec)
	}
	d := len(p.Mean)
	return slices.Equal(p.Mean, o.Mean) && slices.Equal(dense.PackLower(p.Full.P, d),
		dense.PackLower(o.Full.P, d))
}

// Between sets s to the state whose natural parameters are (1 − t) times the natural parameters
// of a plus t times the parameters of b. It returns false if no such state exists or h has
// stopped.
func (s *Gaussian) Between(a, b *Gaussian, t float64, h *parallel.Halt) bool {
	d := len(a.Mean)
	s.Average(t, b, a)
	if s.Halt = h; !s.Factor() {
		return false
	}
	clear(s.Mean)
	for i, q := range [2]*Gaussian{b, a} {
		w := [2]float64{t, 1 - t}[i]
		for r := range d {
			var sum float64
			for c, v := range q.Mean {
				sum += q.P[max(r, c)*d+min(r, c)] * v
			}
			s.Mean[r] += w * sum
		}
	}
	dense.Potrs(s.L, s.Mean)
	_, ok := dense.AllFinite(s.Mean)
	return ok
}
