package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

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
	// state returns V as a dense Gaussian with mean zero, new.
	state() (*weightState, error)
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
	var buf, inv []float64
	if x.sparse != nil {
		inv = c.inverse()
	}
	x.variances(dst, c.s.l, inv, index, &buf)
}

func (c *fullCov) diag(dst []float64) {
	inv, d := c.inverse(), len(dst)
	for j := range dst {
		dst[j] = inv[j*d+j]
	}
}

func (c *fullCov) sym() *mat.SymDense { return fullSym(c.inverse(), len(c.s.mean)) }

func (c *fullCov) draw(dst []float64, rng *rand.Rand) error {
	d := len(dst)
	z := make([]float64, d)
	for j := range z {
		z[j] = rng.NormFloat64()
	}
	blas64.Trsv(blas.Trans, lowerTriangle(c.s.l, d), vector(z)) // V = L⁻ᵀL⁻¹
	floats.Add(dst, z)
	return nil
}

func (c *fullCov) state() (*weightState, error) {
	s := &weightState{}
	s.resize(len(c.s.mean))
	copy(s.p, c.s.p)
	copy(s.l, c.s.l)
	s.logDet = c.s.logDet
	return s, nil
}

// dualCov is V = (Λ0 + XᵀΓX)⁻¹ with more weights than rows, through the rows:
//
//	V = Λ0⁻¹ − Λ0⁻¹Xᵀ (K⁻¹ − K⁻¹(K⁻¹ + Γ)⁻¹K⁻¹) XΛ0⁻¹,   K = XΛ0⁻¹Xᵀ.
type dualCov struct {
	x     *design
	gamma []float64
	fac   *siteFactor
	prior *weightPrior
}

// dualChunk is the number of vectors that are treated together.
const dualChunk = 128

// expand computes the expansion of Xzᵀ, for t rows z.
func (c *dualCov) expand(e *expansion, z *mat.Dense, cross *[]float64) {
	n, t := c.x.rows, z.RawMatrix().Rows
	*cross = resize(*cross, n*t)
	col := make([]float64, n)
	for a := range t {
		c.x.mul(col, z.RawRowView(a), nil)
		for i, v := range col {
			(*cross)[i*t+a] = v
		}
	}
	c.fac.expand(e, *cross, t)
}

func (c *dualCov) variances(dst []float64, x *design, index []int) {
	d := c.x.cols
	z := mat.NewDense(1, d, nil)
	var e expansion
	var cross []float64
	row := make([]float64, d)
	for lo := 0; lo < len(dst); lo += dualChunk {
		t := min(dualChunk, len(dst)-lo)
		z.Reset()
		z.ReuseAs(t, d)
		for a := range t {
			x.dense1(row, termAt(index, lo+a))
			c.prior.solve(z.RawRowView(a), row)
			dst[lo+a] = floats.Dot(z.RawRowView(a), row)
		}
		c.expand(&e, z, &cross)
		e.subVar(dst[lo : lo+t])
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
	var e expansion
	var cross []float64
	c.expand(&e, z, &cross)
	e.subCov(v)
	return fullSym(v, d)
}

// draw conditions a draw w0 of the prior on the sites, taken as observations
// with noise (Matheron's rule): w0 − Λ0⁻¹XᵀS½ B⁻¹ (S½Xw0 + ε), ε ~ N(0, I).
func (c *dualCov) draw(dst []float64, rng *rand.Rand) error {
	if len(c.fac.neg) > 0 {
		return fmt.Errorf("pgsvi: draws from a posterior with more weights than rows under a likelihood that is not log-concave: %w", ErrNotPosDef)
	}
	w0 := c.prior.draw(rng)
	n := c.x.rows
	eta := make([]float64, n)
	c.x.mul(eta, w0, nil)
	r := make([]float64, len(c.fac.pos))
	for a, i := range c.fac.pos {
		r[a] = c.fac.sp[a]*eta[i] + rng.NormFloat64()
	}
	potrs(c.fac.lp, r)
	clear(eta)
	for a, i := range c.fac.pos {
		eta[i] = -c.fac.sp[a] * r[a]
	}
	h, z := make([]float64, len(dst)), make([]float64, len(dst))
	c.x.addMulT(h, eta, nil)
	c.prior.solve(z, h)
	floats.Add(dst, z)
	floats.Add(dst, w0)
	return nil
}

func (c *dualCov) state() (*weightState, error) {
	s, err := c.prior.state()
	if err != nil {
		return nil, err
	}
	var buf []float64
	c.x.addGram(s.p, c.gamma, nil, &buf)
	if !s.factor() {
		return nil, fmt.Errorf("pgsvi: posterior precision: %w", ErrNotPosDef)
	}
	return s, nil
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

func (c diagCov) state() (*weightState, error) {
	p := weightPrior{prec: make([]float64, len(c))}
	for j, v := range c {
		p.prec[j] = 1 / v
	}
	return p.state()
}

// weightsOf returns mean and covariance of q.
func weightsOf(q Dist) ([]float64, weightCov, error) {
	switch q := q.(type) {
	case *MeanField:
		return q.MeanTo(nil), diagCov(q.VarTo(nil)), nil
	case *Gaussian:
		d := q.Dim()
		s := &weightState{}
		s.resize(d)
		clear(s.mean)
		p := q.Precision()
		for i := range d {
			for j := range i + 1 {
				s.p[i*d+j] = p.At(i, j)
			}
		}
		if !s.factor() {
			return nil, nil, fmt.Errorf("pgsvi: posterior precision: %w", ErrNotPosDef)
		}
		return q.MeanTo(nil), &fullCov{s: s}, nil
	}
	return nil, nil, fmt.Errorf("pgsvi: %w: weights with a %T", ErrParam, q)
}

// solve stores Λ0⁻¹x in dst.
func (p *weightPrior) solve(dst, x []float64) {
	copy(dst, x)
	if p.full != nil {
		potrs(p.full.l, dst)
		return
	}
	for j, l := range p.prec {
		dst[j] /= l
	}
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
		blas64.Trsv(blas.Trans, lowerTriangle(p.full.l, len(z)), vector(z))
	}
	return z
}
