package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Covariance is the family of the covariance V of the weights of a GLM.
type Covariance int

const (
	// AutoCovariance is FullCovariance where the smaller of rows and weights is at
	// most 4000, LowRankCovariance up to 100,000 weights, and DiagonalCovariance beyond.
	AutoCovariance Covariance = iota
	// FullCovariance is any V. A pass costs of the order of N·D² + D³ operations
	// where N > D, and N³ otherwise (with sparse rows of k values, N·k² + D³).
	//
	// Features may be in any units, and collinear: where float64 cannot tell them apart, which is where the precision of
	// a weight given the others is less than 1e−6 of what it is alone, the same is done in twice the digits, at some ten
	// times the cost. Where these do not suffice either, or there are fewer rows than more than 2000 weights, the Gap
	// says what rounding may hide.
	FullCovariance
	// LowRankCovariance is V⁻¹ = diag(d) + UUᵀ with U of Rank columns, in O(nnz·Rank) a pass. Where Rank is that of any V that may
	// be the best, the number of weights or, of up to 300 weights under a diagonal prior, that of the rows, it is a FullCovariance.
	LowRankCovariance
	// DiagonalCovariance is mean field, in O(nnz) a pass. Its standard deviations
	// are too small where features are correlated.
	DiagonalCovariance
)

var covarianceNames = [...]string{"auto", "full", "low-rank", "diagonal"}

// String returns the name in words.
func (c Covariance) String() string {
	if c < 0 || int(c) >= len(covarianceNames) {
		return fmt.Sprintf("Covariance(%d)", int(c))
	}
	return covarianceNames[c]
}

// weightCov is the covariance V of the weights of a GLM, in one of several
// forms. It is immutable and safe for concurrent use.
type weightCov interface {
	// variances stores x_nᵀVx_n for the rows of x at index in dst.
	variances(dst []float64, x *design, index []int)
	// diag stores the diagonal of V in dst.
	diag(dst []float64)
	// sym returns V, new.
	sym() *mat.SymDense
	// draw adds a draw of N(0, V) to dst.
	draw(dst []float64, rng *rand.Rand) error
	// state returns V as a dense Gaussian with mean zero, new. The error is that of h where that has stopped.
	state(h *parallel.Halt) (*weightState, error)
}

// fullCov is a V whose precision is at hand.
type fullCov struct {
	s    *weightState
	once sync.Once
}

func (c *fullCov) inverse() []float64 {
	c.once.Do(c.s.invert)
	return c.s.inv
}

func (c *fullCov) variances(dst []float64, x *design, index []int) {
	var buf designWork
	var inv []float64
	if x.sparse != nil {
		inv = c.inverse()
	}
	c.s.variancesBy(inv, dst, x, index, &buf)
}

func (c *fullCov) diag(dst []float64) {
	inv, d := c.inverse(), len(dst)
	for j := range dst {
		dst[j] = inv[j*d+j]
	}
}

func (c *fullCov) sym() *mat.SymDense { return dense.FullSym(c.inverse(), len(c.s.mean)) }

func (c *fullCov) draw(dst []float64, rng *rand.Rand) error {
	d := len(dst)
	z := make([]float64, d)
	for j := range z {
		z[j] = rng.NormFloat64()
	}
	dense.Trsv(blas.Trans, dense.LowerTriangle(c.s.l, d), dense.Vector(z)) // V = L⁻ᵀL⁻¹
	floats.Add(dst, z)
	return nil
}

func (c *fullCov) state(*parallel.Halt) (*weightState, error) {
	s := &weightState{}
	s.copyFrom(c.s)
	clear(s.mean)
	return s, nil
}

// dualCov is V = (Λ0 + XᵀΓX)⁻¹ with more weights than rows, through the rows:
//
//	V = Λ0⁻¹ − Λ0⁻¹Xᵀ (K⁻¹ − K⁻¹(K⁻¹ + Γ)⁻¹K⁻¹) XΛ0⁻¹,   K = XΛ0⁻¹Xᵀ.
type dualCov struct {
	x     *design
	gamma []float64
	fac   *dense.Sites
	prior *weightPrior
}

// dualChunk is the number of vectors that are treated together.
const dualChunk = 128

// expand computes the expansion of Xzᵀ, for t rows z.
func (c *dualCov) expand(e *dense.Expansion, z *mat.Dense, cross *[]float64) {
	n, t := c.x.rows, z.RawMatrix().Rows
	*cross = dense.Resize(*cross, n*t)
	col := make([]float64, n)
	for a := range t {
		c.x.mul(col, z.RawRowView(a), nil)
		for i, v := range col {
			(*cross)[i*t+a] = v
		}
	}
	c.fac.Expand(e, *cross, t)
}

func (c *dualCov) variances(dst []float64, x *design, index []int) {
	d := c.x.cols
	z := mat.NewDense(1, d, nil)
	var e dense.Expansion
	var cross []float64
	row := make([]float64, d)
	for lo := 0; lo < len(dst); lo += dualChunk {
		t := min(dualChunk, len(dst)-lo)
		z.Reset()
		z.ReuseAs(t, d)
		for a := range t {
			x.dense1(row, dense.Index(index, lo+a))
			c.prior.solve(z.RawRowView(a), row)
			dst[lo+a] = floats.Dot(z.RawRowView(a), row)
		}
		c.expand(&e, z, &cross)
		e.SubVar(dst[lo : lo+t])
		for a := range t {
			dst[lo+a] = math.Max(0, dst[lo+a])
		}
	}
}

func (c *dualCov) diag(dst []float64) {
	one := &design{rows: len(dst), cols: len(dst), sparse: identity(len(dst))}
	c.variances(dst, one, nil)
}

// identity returns the unit matrix.
func identity(d int) *Sparse {
	s := NewSparse(d)
	s.ptr = append(s.ptr, 0)
	for j := range d {
		s.ind, s.val, s.ptr = append(s.ind, int32(j)), append(s.val, 1), append(s.ptr, j+1)
	}
	return s
}

func (c *dualCov) sym() *mat.SymDense {
	d := c.x.cols
	z := mat.NewDense(d, d, nil)
	row := make([]float64, d)
	for j := range d {
		row[j] = 1
		c.prior.solve(z.RawRowView(j), row)
		row[j] = 0
	}
	v := append([]float64(nil), z.RawMatrix().Data...)
	var e dense.Expansion
	var cross []float64
	c.expand(&e, z, &cross)
	e.SubCov(v)
	return dense.FullSym(v, d)
}

// draw conditions a draw w0 of the prior on the sites, taken as observations
// with noise (Matheron's rule): w0 − Λ0⁻¹XᵀS½ B⁻¹ (S½Xw0 + ε), ε ~ N(0, I).
func (c *dualCov) draw(dst []float64, rng *rand.Rand) error {
	if len(c.fac.Neg) > 0 {
		return fmt.Errorf("pgsvi: draws from a posterior with more weights than rows under a likelihood that is not log-concave: %w", ErrNotPosDef)
	}
	w0 := c.prior.draw(rng)
	n := c.x.rows
	eta := make([]float64, n)
	c.x.mul(eta, w0, nil)
	r := make([]float64, len(c.fac.Pos))
	for a, i := range c.fac.Pos {
		r[a] = c.fac.Sp[a]*eta[i] + rng.NormFloat64()
	}
	dense.Potrs(c.fac.Lp, r)
	clear(eta)
	for a, i := range c.fac.Pos {
		eta[i] = -c.fac.Sp[a] * r[a]
	}
	h, z := make([]float64, len(dst)), make([]float64, len(dst))
	c.x.addMulT(h, eta, nil)
	c.prior.solve(z, h)
	floats.Add(dst, z)
	floats.Add(dst, w0)
	return nil
}

func (c *dualCov) state(h *parallel.Halt) (*weightState, error) {
	s, err := c.prior.stateUntil(h)
	if err != nil {
		return nil, err
	}
	post := &weightState{halt: h}
	ok := post.add(s, c.x, c.gamma, nil, &designWork{halt: h})
	if err := h.Err(); err != nil {
		return nil, err
	}
	if post.halt = nil; !ok {
		return nil, fmt.Errorf("pgsvi: posterior precision: %w", ErrNotPosDef)
	}
	return post, nil
}

// diagCov is a diagonal V.
type diagCov []float64

func (c diagCov) variances(dst []float64, x *design, index []int) { x.quadDiag(dst, c, index) }

func (c diagCov) diag(dst []float64) { copy(dst, c) }

func (c diagCov) sym() *mat.SymDense {
	s := mat.NewSymDense(len(c), nil)
	for j, v := range c {
		s.SetSym(j, j, v)
	}
	return s
}

func (c diagCov) draw(dst []float64, rng *rand.Rand) error {
	for j, v := range c {
		dst[j] += math.Sqrt(v) * rng.NormFloat64()
	}
	return nil
}

func (c diagCov) state(h *parallel.Halt) (*weightState, error) {
	p := weightPrior{prec: make([]float64, len(c))}
	for j, v := range c {
		p.prec[j] = 1 / v
	}
	return p.stateUntil(h)
}

// weightsOf returns mean and covariance of q.
func weightsOf(q Dist) ([]float64, weightCov, error) {
	g, ok := q.(*Gaussian)
	if !ok {
		return nil, nil, fmt.Errorf("pgsvi: weights with a %T: %w", q, ErrParam)
	}
	if g.isDiagonal() {
		return g.Mean(nil), diagCov(g.Var(nil)), nil
	}
	d := g.Dim()
	s := &weightState{}
	s.resize(d)
	clear(s.mean)
	p := g.precisionMatrix()
	for i := range d {
		for j := range i + 1 {
			s.p[i*d+j] = p.At(i, j)
		}
	}
	if !s.factor() {
		return nil, nil, fmt.Errorf("pgsvi: posterior precision: %w", ErrNotPosDef)
	}
	return g.Mean(nil), &fullCov{s: s}, nil
}

// lowRankCov is V with V⁻¹ = P = diag(d) + UUᵀ, U being D×R. By Woodbury's
// identity, with M = I + Uᵀdiag(d)⁻¹U = LLᵀ,
//
//	V = diag(d)⁻¹ − ZZᵀ,   Z = diag(d)⁻¹UL⁻ᵀ,   log|P| = Σ log d + log|M|.
type lowRankCov struct {
	rank   int
	d, v   []float64 // and 1/d
	u, z   []float64 // D×R, row by row
	l      []float64 // R×R, lower triangle
	logDet float64
}

func newLowRankCov(d, rank int) *lowRankCov {
	return &lowRankCov{rank: rank, d: make([]float64, d), v: make([]float64, d), u: make([]float64, d*rank), z: make([]float64, d*rank), l: make([]float64, rank*rank)}
}

// factor makes v, z, l and logDet those of d and u, and reports whether they are finite.
func (c *lowRankCov) factor() bool {
	k := c.rank
	c.logDet = 0
	for j, d := range c.d {
		c.v[j] = 1 / d
		floats.ScaleTo(c.z[j*k:(j+1)*k], c.v[j], c.u[j*k:(j+1)*k])
		c.logDet += math.Log(d)
	}
	selfProduct(c.l, c.z, c.u, k)
	for a := range k {
		c.l[a*k+a]++
	}
	if !dense.Cholesky(c.l, k) {
		return false
	}
	c.logDet += dense.LogDet(c.l, k)
	dense.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(c.l, k), dense.General(c.z, len(c.d), k))
	return !math.IsNaN(c.logDet) && !math.IsInf(c.logDet, 0)
}

// selfProduct stores aᵀb, k×k, in dst, a and b having k columns.
func selfProduct(dst, a, b []float64, k int) {
	clear(dst)
	for j := 0; j < len(a); j += k {
		for i, v := range a[j : j+k] {
			floats.AddScaled(dst[i*k:(i+1)*k], v, b[j:j+k])
		}
	}
}

func (c *lowRankCov) variances(dst []float64, x *design, index []int) {
	c.variancesOn(dst, x, index, &designWork{})
}

// variancesOn is variances, Σ_j x_j²/d_j − ‖Zᵀx‖², on as many goroutines as s.halt lends.
func (c *lowRankCov) variancesOn(dst []float64, x *design, index []int, s *designWork) {
	if n := len(dst); x.shared(s.halt, n*x.perRow()*c.rank) {
		s.split(n, designChunk, func(lo, hi int, s *designWork) { c.variancesPart(dst, x, index, lo, hi, s) })
	} else {
		for lo := 0; lo < n; lo += designChunk {
			c.variancesPart(dst, x, index, lo, min(lo+designChunk, n), s)
		}
	}
}

// variancesPart is variances for elements lo … hi−1 of dst.
func (c *lowRankCov) variancesPart(dst []float64, x *design, index []int, lo, hi int, s *designWork) {
	if s.halt.Stopped() {
		return
	}
	k := c.rank
	x.quadDiagPart(dst, c.v, index, lo, hi)
	s.sums = dense.Resize(s.sums, (hi-lo)*k)
	clear(s.sums)
	x.addProducts(s.sums, c.z, k, index, lo, hi, s)
	for a := lo; a < hi; a++ {
		t := s.sums[(a-lo)*k : (a-lo+1)*k]
		dst[a] = math.Max(0, dst[a]-fma.Dot(t, t))
	}
}

// solve stores Vr in dst; t, of length R, is scratch.
func (c *lowRankCov) solve(dst, r, t []float64) {
	k := c.rank
	clear(t)
	for j, v := range r {
		floats.AddScaled(t, v, c.z[j*k:(j+1)*k])
	}
	for j, v := range r {
		dst[j] = v/c.d[j] - floats.Dot(c.z[j*k:(j+1)*k], t)
	}
}

func (c *lowRankCov) diag(dst []float64) {
	k := c.rank
	for j, d := range c.d {
		z := c.z[j*k : (j+1)*k]
		dst[j] = 1/d - floats.Dot(z, z)
	}
}

func (c *lowRankCov) sym() *mat.SymDense {
	n, k := len(c.d), c.rank
	s := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i {
			s.SetSym(i, j, -floats.Dot(c.z[i*k:(i+1)*k], c.z[j*k:(j+1)*k]))
		}
	}
	v := make([]float64, n)
	c.diag(v)
	for i, x := range v {
		s.SetSym(i, i, x)
	}
	return s
}

// draw solves P w = diag(d)^½ε + Uε′ with independent ε, ε′ ~ N(0, I), whose
// right-hand side has covariance P.
func (c *lowRankCov) draw(dst []float64, rng *rand.Rand) error {
	k := c.rank
	e, w := make([]float64, k), make([]float64, len(dst))
	for a := range e {
		e[a] = rng.NormFloat64()
	}
	for j, d := range c.d {
		w[j] = math.Sqrt(d)*rng.NormFloat64() + floats.Dot(c.u[j*k:(j+1)*k], e)
	}
	c.solve(w, w, e)
	floats.Add(dst, w)
	return nil
}

func (c *lowRankCov) state(h *parallel.Halt) (*weightState, error) {
	n, k := len(c.d), c.rank
	s := &weightState{halt: h}
	s.resize(n)
	clear(s.mean)
	for i := range n {
		if err := h.Err(); err != nil {
			return nil, err
		}
		for j := range i + 1 {
			s.p[i*n+j] = floats.Dot(c.u[i*k:(i+1)*k], c.u[j*k:(j+1)*k])
		}
		s.p[i*n+i] += c.d[i]
	}
	ok := s.factor()
	if err := h.Err(); err != nil {
		return nil, err
	}
	if s.halt = nil; !ok {
		return nil, fmt.Errorf("pgsvi: posterior precision: %w", ErrNotPosDef)
	}
	return s, nil
}

// covarianceOf returns the family of c.
func covarianceOf(c weightCov) Covariance {
	switch c.(type) {
	case *fullCov, *dualCov:
		return FullCovariance
	case diagCov:
		return DiagonalCovariance
	default:
		return LowRankCovariance
	}
}

// weightPrior is N(μ0, Λ0⁻¹).
type weightPrior struct {
	mean []float64
	prec []float64    // Λ0 where it is diagonal, or nil
	full *weightState // Λ0 where it is not
}

// state returns the prior as a dense Gaussian about μ0, new.
func (p *weightPrior) state() (*weightState, error) { return p.stateUntil(nil) }

// stateUntil is state, whose error is that of h where that has stopped.
func (p *weightPrior) stateUntil(h *parallel.Halt) (*weightState, error) {
	s := &weightState{halt: h}
	defer func() { s.halt = nil }()
	if p.full != nil {
		s.copyFrom(p.full)
		return s, nil
	}
	d := len(p.prec)
	s.resize(d)
	for j, l := range p.prec {
		s.p[j*d+j] = l
	}
	ok := s.factor()
	if err := h.Err(); err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("pgsvi: precision of the prior: %w", ErrNotPosDef)
	}
	return s, nil
}

// weightState is a Gaussian over D weights: precision P and mean, about a mean
// that whoever holds it knows. Where features are collinear in float64, or nearly, P, its factor and what
// comes from them have twice the digits: of Hi + Lo, the parts Hi are in p, l and mean.
type weightState struct {
	p      []float64 // P, lower triangle
	l      []float64 // its Cholesky factor
	inv    []float64 // V = P⁻¹, lower triangle; valid if hasInv
	hasInv bool
	logDet float64 // log|P|
	mean   []float64

	double              bool           // the following are valid
	pLow, lLow, meanLow []float64      // Lo of P and its factor and, after solve, of the mean
	halt                *parallel.Halt // once it has stopped, factor reports false, and invert is of no use
}

// Of a diagonal element P_jj the weights before leave L_jj², whatever the units are. A factor in float64 has about
// 16 + log₁₀(L_jj²/P_jj) of its digits right, and one of twice the digits 32 + log₁₀.
const (
	leastPivot       = 1e-6  // least part for which float64 will do: the ELBO keeps nine digits, and a mean the digits that are left
	orderedPivot     = 1e-3  // below which V itself says how many digits are left
	leastDoublePivot = 1e-26 // and below which V is not right to six digits of twice as many
	noPivot          = 1e-29 // and to none
)

// epsilonDouble is the error of a factor in twice the digits relative to its least part, as seen against arithmetic of 400 bits.
const epsilonDouble = 0x1p-106

func (s *weightState) resize(d int) {
	s.p, s.l, s.mean = dense.Resize(s.p, d*d), dense.Resize(s.l, d*d), dense.Resize(s.mean, d)
}

// precision, cholesky and shift return P, its factor and the mean with all digits, if s has twice as many.
func (s *weightState) precision() dense.Double { return dense.Double{Hi: s.p, Lo: s.pLow} }
func (s *weightState) cholesky() dense.Double  { return dense.Double{Hi: s.l, Lo: s.lLow} }
func (s *weightState) shift() dense.Double     { return dense.Double{Hi: s.mean, Lo: s.meanLow} }

// widen makes s one with twice the digits, of which those of P are zero if they were not there.
func (s *weightState) widen() {
	d := len(s.mean)
	s.pLow, s.lLow, s.meanLow = dense.Resize(s.pLow, d*d), dense.Resize(s.lLow, d*d), dense.Resize(s.meanLow, d)
	if !s.double {
		clear(s.pLow)
		s.double = true
	}
}

// copyPrecision makes P that of o.
func (s *weightState) copyPrecision(o *weightState) {
	s.resize(len(o.mean))
	dense.CopyLower(s.p, o.p, len(o.mean))
	if s.double = o.double; s.double {
		s.widen()
		copy(s.pLow, o.pLow)
	}
}

func (s *weightState) copyFrom(o *weightState) {
	d := len(o.mean)
	s.copyPrecision(o)
	dense.CopyLower(s.l, o.l, d)
	copy(s.mean, o.mean)
	if s.double {
		copy(s.lLow, o.lLow)
		copy(s.meanLow, o.meanLow)
	}
	s.logDet, s.hasInv = o.logDet, o.hasInv
	if o.hasInv {
		s.inv = dense.Resize(s.inv, d*d)
		copy(s.inv, o.inv)
	}
}

// average makes P ta's P and (1 − t) times b's, and leaves its factor to be computed. It may be s itself that is averaged.
func (s *weightState) average(t float64, a, b *weightState) {
	if !a.double && !b.double {
		s.resize(len(a.mean))
		s.double = false
		for j, p := range a.p {
			s.p[j] = t*p + (1-t)*b.p[j]
		}
		return
	}
	var sum dense.Double
	sum.Resize(len(a.p))
	sum.Clear()
	for _, part := range []struct {
		weight float64
		of     *weightState
	}{{t, a}, {1 - t, b}} {
		if part.of.double {
			sum.AddDouble(part.weight, part.of.precision())
		} else {
			sum.AddScaled(part.weight, part.of.p)
		}
	}
	sum.Round()
	s.resize(len(a.mean))
	s.widen()
	copy(s.p, sum.Hi)
	copy(s.pLow, sum.Lo)
}

// factor computes the factor of p and reports whether p is positive definite and finite.
func (s *weightState) factor() bool {
	d := len(s.mean)
	s.hasInv = false
	dense.CopyLower(s.l, s.p, d)
	if s.double {
		copy(s.lLow, s.pLow)
		if !(s.cholesky().CholeskyUntil(s.halt, d) > noPivot) {
			return false
		}
	} else if !dense.CholeskyUntil(s.halt, s.l, d) {
		return false
	}
	s.logDet = dense.LogDet(s.l, d)
	return !math.IsNaN(s.logDet)
}

// pivot returns the least part that the weights before leave of a diagonal element of the precision of o.
func (s *weightState) pivot(o *weightState) float64 {
	least, d := 1.0, len(s.mean)
	for j := 0; j < d*d; j += d + 1 {
		least = math.Min(least, s.l[j]*s.l[j]/o.p[j])
	}
	return least
}

// rounding estimates the error of log|P|, in nats, where that is of any size.
func (s *weightState) rounding() float64 {
	if !s.double {
		return 0
	}
	p := s.pivot(s)
	if p >= leastDoublePivot {
		return 0
	}
	return epsilonDouble / p * float64(len(s.mean))
}

// resolution bounds the error of log|P|, in nats, where float64 has the digits for it.
func (s *weightState) resolution() float64 {
	if s.double {
		return 0
	}
	p, d := s.pivot(s), len(s.mean)
	scaled := float64(d) / p
	if p < orderedPivot { // Pivots depend on the order of the weights: the digits lost are those of V in units in which P_jj is 1.
		if s.invert(); !s.hasInv {
			return math.Inf(1)
		}
		var trace float64
		for j := 0; j < d*d; j += d + 1 {
			trace += s.p[j] * s.inv[j]
		}
		scaled = max(scaled, trace)
	}
	return dense.Epsilon * scaled
}

// add makes P that of base + Xᵀ diag(w) X, for the rows of x at index, with its factor, and reports whether it is
// positive definite and resolved. It takes twice the digits where float64 has too few. The weights w may have any sign;
// buf is scratch.
func (s *weightState) add(base *weightState, x *design, w []float64, index []int, buf *designWork) bool {
	s.copyPrecision(base)
	if !s.double {
		s.addRows(x, w, index, buf)
		if s.factor() && s.pivot(s) >= leastPivot {
			return true
		}
		if s.halt.Stopped() {
			return false
		}
		copy(s.p, base.p)
		s.widen()
	}
	s.addRows(x, w, index, buf)
	ok := s.factor()
	if ok && s.pivot(s) >= leastPivot || !ok && !base.double {
		s.double = false
	}
	return ok
}

// addRows adds Xᵀ diag(w) X to P, with the digits that s has, and leaves its factor to be computed.
func (s *weightState) addRows(x *design, w []float64, index []int, buf *designWork) {
	for _, wa := range w {
		if wa != 0 {
			buf.rows++
		}
	}
	if !s.double {
		x.addGram(s.p, w, index, buf)
		return
	}
	p := s.precision()
	for a, wa := range w {
		if s.halt.Stopped() {
			return
		}
		if wa != 0 {
			ind, val := x.row(dense.Index(index, a))
			p.AddOuter(x.cols, wa, ind, val)
		}
	}
	p.Round()
}

// solve makes the mean P⁻¹Xᵀu; buf is scratch.
func (s *weightState) solve(x *design, u []float64, index []int, buf *designWork) {
	if !s.double {
		clear(s.mean)
		x.addMulTOn(s.mean, u, index, buf)
		dense.Potrs(s.l, s.mean)
		return
	}
	h := s.shift()
	h.Clear()
	x.addMulTDouble(h, u, index, buf)
	s.apply(h)
}

// apply replaces h by P⁻¹h.
func (s *weightState) apply(h dense.Double) {
	if s.double {
		s.cholesky().Potrs(h)
	}
	h.Round()
	if !s.double {
		dense.Potrs(s.l, h.Hi)
	}
}

// whiten replaces z by R⁻¹z, for the factor P = RRᵀ.
func (s *weightState) whiten(z dense.Double) {
	r := s.cholesky()
	if !s.double {
		r.Lo = make([]float64, len(s.l))
	}
	r.Trsv(z)
}

// packLow returns what PackLower of p leaves of P, nil if that is nothing.
func (s *weightState) packLow() []float64 {
	if !s.double {
		return nil
	}
	return dense.PackLower(s.pLow, len(s.mean))
}

// residual stores Xᵀu − Pw in r, computed in twice the digits, for the mean w of t; buf is scratch.
func (s *weightState) residual(r dense.Double, t *weightState, x *design, u []float64, buf *designWork) {
	r.Clear()
	x.addMulTDouble(r, u, nil, buf)
	d := len(s.mean)
	for i := range d {
		for j := range i + 1 {
			p := s.p[i*d+j]
			if p == 0 {
				continue
			}
			r.AddAt(i, -p, t.mean[j])
			if j < i {
				r.AddAt(j, -p, t.mean[i])
			}
			if s.double {
				r.Lo[i] -= s.pLow[i*d+j] * t.mean[j]
				if j < i {
					r.Lo[j] -= s.pLow[i*d+j] * t.mean[i]
				}
			}
			if t.double {
				r.Lo[i] -= p * t.meanLow[j]
				if j < i {
					r.Lo[j] -= p * t.meanLow[i]
				}
			}
		}
	}
	r.Round()
}

// predict stores X times the mean in dst.
func (s *weightState) predict(dst []float64, x *design, index []int) {
	if !s.double {
		x.mulOn(s.halt, dst, s.mean, index)
		return
	}
	x.mulDouble(dst, s.shift(), index)
}

// square returns δᵀPδ for the mean δ of t; w is scratch.
func (s *weightState) square(t *weightState, w *dense.Double) float64 {
	n := len(s.mean)
	w.Resize(n)
	copy(w.Hi, t.mean)
	if s.double {
		clear(w.Lo)
		if t.double {
			copy(w.Lo, t.meanLow)
		}
		s.cholesky().MulTrans(*w)
	} else {
		dense.Trmv(blas.Trans, dense.LowerTriangle(s.l, n), dense.Vector(w.Hi))
	}
	return floats.Dot(w.Hi, w.Hi)
}

// invert makes inv valid.
func (s *weightState) invert() {
	if s.hasInv {
		return
	}
	d := len(s.mean)
	s.inv = dense.Resize(s.inv, d*d)
	if s.double {
		s.cholesky().InverseUntil(s.halt, s.inv, d)
		s.hasInv = !s.halt.Stopped()
		return
	}
	copy(s.inv, s.l)
	dense.InvertUntil(s.halt, s.inv, d)
	s.hasInv = !s.halt.Stopped()
}

// variances stores the variances of the rows of x in v.
func (s *weightState) variances(v []float64, x *design, index []int, buf *designWork) {
	if x.sparse != nil {
		s.invert()
	}
	s.variancesBy(s.inv, v, x, index, buf)
}

// variancesBy is variances with the inverse of the precision, which sparse rows alone need.
func (s *weightState) variancesBy(inv, v []float64, x *design, index []int, buf *designWork) {
	if s.double {
		x.variancesDouble(v, s.cholesky(), inv, index, buf)
		return
	}
	x.variances(v, s.l, inv, index, buf)
}

// moveTo makes s the Gaussian t, whose mean is a move from that of s.
func (s *weightState) moveTo(t *weightState) {
	floats.Add(t.mean, s.mean)
	*s, *t = *t, *s
}

// diagTo stores the diagonal of Λ0 in dst.
func (p *weightPrior) diagTo(dst []float64) {
	copy(dst, p.prec)
	if p.full != nil {
		for j := range dst {
			dst[j] = p.full.p[j*len(dst)+j]
		}
	}
}

// at returns element j of the diagonal of Λ0.
func (p *weightPrior) at(j int) float64 {
	if p.full != nil {
		return p.full.p[j*len(p.mean)+j]
	}
	return p.prec[j]
}

// mul stores Λ0z in dst, both D×k.
func (p *weightPrior) mul(dst, z []float64, k int) {
	d := len(p.mean)
	switch {
	case p.full == nil:
		for j, l := range p.prec {
			floats.ScaleTo(dst[j*k:(j+1)*k], l, z[j*k:(j+1)*k])
		}
	case k == 1:
		dense.Symv(1, dense.Symmetric(p.full.p, d), dense.Vector(z), 0, dense.Vector(dst))
	default:
		clear(dst[:d*k])
		for i := range d {
			di, zi := dst[i*k:(i+1)*k], z[i*k:(i+1)*k]
			for j, l := range p.full.p[i*d : i*d+i] {
				floats.AddScaled(di, l, z[j*k:(j+1)*k])
				floats.AddScaled(dst[j*k:(j+1)*k], l, zi)
			}
			floats.AddScaled(di, p.full.p[i*d+i], zi)
		}
	}
}

// logDet returns log|Λ0|.
func (p *weightPrior) logDet() (s float64) {
	if p.full != nil {
		return p.full.logDet
	}
	for _, l := range p.prec {
		s += math.Log(l)
	}
	return s
}

// solve stores Λ0⁻¹x in dst.
func (p *weightPrior) solve(dst, x []float64) {
	copy(dst, x)
	if p.full != nil {
		dense.Potrs(p.full.l, dst)
		return
	}
	for j, l := range p.prec {
		dst[j] /= l
	}
}

// residual stores Xᵀu − Λ0w in r, computed in twice the digits; buf is scratch.
func (p *weightPrior) residual(r dense.Double, w []float64, x *design, u dense.Double, buf *designWork) {
	if p.full != nil {
		p.full.residual(r, &weightState{mean: w}, x, u.Hi, buf)
	} else {
		r.Clear()
		x.addMulTDouble(r, u.Hi, nil, buf)
		for j, l := range p.prec {
			r.AddAt(j, -l, w[j])
		}
	}
	x.addMulT(r.Lo, u.Lo, nil)
	r.Round()
}

// variances stores x_nᵀΛ0⁻¹x_n for all rows of x in dst.
func (p *weightPrior) variances(dst []float64, x *design) {
	if p.full != nil {
		p.full.variances(dst, x, nil, &designWork{})
		return
	}
	v := make([]float64, len(p.prec))
	for j, l := range p.prec {
		v[j] = 1 / l
	}
	x.quadDiag(dst, v, nil)
}

// draw returns a draw of N(0, Λ0⁻¹).
func (p *weightPrior) draw(rng *rand.Rand) []float64 {
	z := make([]float64, len(p.mean))
	for j := range z {
		z[j] = rng.NormFloat64()
		if p.full == nil {
			z[j] /= math.Sqrt(p.prec[j])
		}
	}
	if p.full != nil {
		dense.Trsv(blas.Trans, dense.LowerTriangle(p.full.l, len(z)), dense.Vector(z))
	}
	return z
}

// savedPrior is a weightPrior.
type savedPrior struct {
	Mean save.List[float64] `json:"mean"`
	Diag save.List[float64] `json:"diagonal,omitempty"`  // of Λ0, or
	Full save.List[float64] `json:"precision,omitempty"` // its lower triangle, row by row
}

// save returns p as it is saved.
func (p *weightPrior) save() savedPrior {
	s := savedPrior{Mean: p.mean, Diag: p.prec}
	if p.full != nil {
		s.Full = dense.PackLower(p.full.p, len(p.mean))
	}
	return s
}

func (s *savedPrior) load() (*weightPrior, error) {
	p := &weightPrior{mean: s.Mean}
	if s.Full != nil {
		w, err := loadPrecision(s.Full, nil, len(s.Mean), "prior precision")
		p.full = w
		return p, err
	}
	p.prec = s.Diag
	return p, checkDiagonal(s.Diag, len(s.Mean), "prior precision")
}

// loadPrecision returns the Gaussian about 0 whose precision dense.PackLower has packed, and packLow the rest of it.
func loadPrecision(l, low []float64, d int, name string) (*weightState, error) {
	if len(l) != d*(d+1)/2 || low != nil && len(low) != len(l) {
		return nil, fmt.Errorf("%s of %d weights with %d numbers and %d more digits, want %d: %w", name, d, len(l), len(low), d*(d+1)/2, ErrShape)
	}
	w := &weightState{}
	w.resize(d)
	w.p = dense.UnpackLower(l, d)
	if low != nil {
		w.widen()
		w.pLow = dense.UnpackLower(low, d)
	}
	if !w.factor() {
		return nil, fmt.Errorf("%s: %w", name, ErrNotPosDef)
	}
	return w, nil
}

// checkDiagonal returns an error unless v is the diagonal of a positive definite
// matrix of dimension d.
func checkDiagonal(v []float64, d int, name string) error {
	if len(v) != d {
		return fmt.Errorf("%s of %d weights with %d numbers: %w", name, d, len(v), ErrShape)
	}
	for j, x := range v {
		if !(x > 0) {
			return fmt.Errorf("%s of weight %d is %v: %w", name, j, x, ErrNotPosDef)
		}
	}
	return nil
}

// state is that of a Gaussian of d weights.
func (s *weightState) state(c *save.State, d int) {
	if c.Reading() {
		s.resize(d)
		s.hasInv = false
	}
	c.Lower(d, s.p)
	c.Lower(d, s.l)
	c.Floats(d, &s.mean)
	c.Float(&s.logDet)
	if c.Bool(&s.double); !s.double || c.Err() != nil {
		return
	}
	if c.Reading() {
		s.widen()
	}
	c.Lower(d, s.pLow)
	c.Lower(d, s.lLow)
	c.Floats(d, &s.meanLow)
}
