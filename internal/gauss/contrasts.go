package gauss

import (
	"fmt"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Contrasts is the covariance of the weights of a softmax model of K classes, in which only
// differences between classes count. It is the covariance of independent weights w_c ~ N(0,
// P_c⁻¹) minus their mean over the classes,
//
//	Cov(w_c − w̄, w_e − w̄) = 1[c = e] V_c − (V_c + V_e)/K + Σ_j V_j/K²,   V_c = P_c⁻¹.
//
// The weights of a class are consecutive. The scores x_nᵀw_c use the independent w_c, because the
// differences of the scores are the same.
type Contrasts struct{ Of []*Full }

// Add adds a class with the precision P of s and factors P. The error wraps
// sentinel.ErrNotPosDef.
func (c *Contrasts) Add(s *Gaussian) error {
	clear(s.Mean)
	if !s.Factor() {
		return fmt.Errorf("posterior precision of class %d: %w", len(c.Of), sentinel.ErrNotPosDef)
	}
	c.Of = append(c.Of, &Full{S: s})
	return nil
}

// Pack returns the lower triangles of all P_c, row by row and class by class.
func (c *Contrasts) Pack() (l []float64) {
	_, d := c.dims()
	for _, of := range c.Of {
		l = append(l, dense.PackLower(of.S.P, d)...)
	}
	return l
}

// LoadContrasts returns the covariance that Pack packed, with d weights per class.
func LoadContrasts(l []float64, classes, d int) (*Contrasts, error) {
	size := d * (d + 1) / 2
	if classes < 1 || d < 1 || len(l) != classes*size {
		return nil, fmt.Errorf("precisions of %d classes of %d weights with %d numbers: %w",
			classes, d,
			len(l), sentinel.ErrShape)
	}
	c := &Contrasts{}
	for len(c.Of) < classes {
		w, err := LoadPrecision(l[:size], nil, d, fmt.Sprintf("precision of class %d", len(c.Of)))
		if err == nil {
			err = c.Add(w)
		}
		if err != nil {
			return nil, err
		}
		l = l[size:]
	}
	return c, nil
}

// dims returns K and the number of weights per class.
func (c *Contrasts) dims() (classes, weights int) { return len(c.Of), len(c.Of[0].S.Mean) }

// Variances stores the variances of the K scores of each row of x at index in dst, row by row.
func (c *Contrasts) Variances(dst []float64, x *design.Matrix, index []int) {
	k, _ := c.dims()
	v := make([]float64, len(dst)/k)
	for j, of := range c.Of {
		of.Variances(v, x, index)
		for i, vi := range v {
			dst[i*k+j] = vi
		}
	}
}

// Diag implements Cov.
func (c *Contrasts) Diag(dst []float64) {
	k, d := c.dims()
	sum := make([]float64, d)
	for j, of := range c.Of {
		of.Diag(dst[j*d : (j+1)*d])
		floats.Add(sum, dst[j*d:(j+1)*d])
	}
	for i := range dst {
		dst[i] = dst[i]*(1-2/float64(k)) + sum[i%d]/float64(k*k)
	}
}

// Centre subtracts the mean over classes from the weights w.
func (c *Contrasts) Centre(w []float64) {
	k, d := c.dims()
	mean := make([]float64, d)
	for j := range k {
		floats.AddScaled(mean, 1/float64(k), w[j*d:(j+1)*d])
	}
	for j := range k {
		floats.Sub(w[j*d:(j+1)*d], mean)
	}
}

// Mul implements Cov.
func (c *Contrasts) Mul(dst, x []float64) {
	_, d := c.dims()
	x = append([]float64(nil), x...)
	c.Centre(x)
	for j, of := range c.Of {
		of.Mul(dst[j*d:(j+1)*d], x[j*d:(j+1)*d])
	}
	c.Centre(dst)
}

// Sym implements Cov.
func (c *Contrasts) Sym() *mat.SymDense {
	k, d := c.dims()
	v, sum := make([][]float64, k), make([]float64, d*d)
	for j, of := range c.Of {
		v[j] = of.inverse()
		floats.Add(sum, v[j])
	}
	s := mat.NewSymDense(k*d, nil)
	for a := range k * d {
		for b := range a + 1 {
			ca, cb, i, j := a/d, b/d, a%d, b%d
			if i < j { // P is stored in the lower triangle
				i, j = j, i
			}
			at := i*d + j
			x := sum[at]/float64(k*k) - (v[ca][at]+v[cb][at])/float64(k)
			if ca == cb {
				x += v[ca][at]
			}
			s.SetSym(a, b, x)
		}
	}
	return s
}

// Draw implements Cov.
func (c *Contrasts) Draw(dst []float64, rng *rand.Rand) error {
	_, d := c.dims()
	w := make([]float64, len(dst))
	for j, of := range c.Of {
		if err := of.Draw(w[j*d:(j+1)*d], rng); err != nil {
			return err
		}
	}
	c.Centre(w)
	floats.Add(dst, w)
	return nil
}

// State implements Cov. It returns an error, because the classes have no common precision.
func (c *Contrasts) State(*parallel.Halt) (*Gaussian, error) {
	return nil, fmt.Errorf("pgsvi: the weights of %d classes have no precision, since only their "+
		"differences count: %w", len(c.Of), sentinel.ErrParam)
}

var _ Cov = (*Contrasts)(nil)

// Means stores the K scores Xw_c of each row of x at index, for the weights w of all classes, in
// dst, row by row.
func (c *Contrasts) Means(dst, w []float64, x *design.Matrix, index []int) {
	k, d := c.dims()
	if x.Sparse == nil && index == nil {
		dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(x.Dense, x.Rows, d),
			dense.General(w, k, d), 0, dense.General(dst, x.Rows, k))
		return
	}
	m := make([]float64, len(dst)/k)
	for j := range k {
		x.Mul(m, w[j*d:(j+1)*d], index)
		for i, mi := range m {
			dst[i*k+j] = mi
		}
	}
}
