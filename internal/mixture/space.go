// Package mixture computes the parts of a Gaussian mixture that work on rows: coordinates in
// which the prior has the scale I (space.go), clusters to start from (kmeans.go), and the
// densities of the components (components.go). pgsvi.Mixture calls it.
package mixture

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Space holds the coordinates z = L⁻¹(x − x̄), in which the prior of Λ_k has the scale I. The
// results of a mixture therefore do not depend on units.
type Space struct {
	Mean, L []float64 // L is lower triangular, row by row
	LogDet  float64   // log|L|
}

// To stores the coordinates z of the row x in dst. dst and x may be the same slice.
func (s *Space) To(dst, x []float64) {
	floats.SubTo(dst, x, s.Mean)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(s.L, len(dst)), dense.Vector(dst))
}

// Whiten returns the rows of x in the coordinates of a Space, and the Space. It whitens by the
// Cholesky factor of cov, or of the covariance of the rows if cov is nil. Its errors have no
// prefix and call cov MixtureOptions.Cov.
func Whiten(x mat.Matrix, cov mat.Symmetric) ([]float64, Space, error) {
	n, d := x.Dims()
	z := make([]float64, n*d)
	mean, sd := make([]float64, d), make([]float64, d)
	for j := range d {
		most, err := standardize(x, j, z, mean, sd)
		if err != nil {
			return nil, Space{}, err
		}
		if cov == nil && !(sd[j] > spread*most) {
			return nil, Space{}, fmt.Errorf("column %d is constant; leave it out, or give "+
				"MixtureOptions.Cov: %w", j, sentinel.ErrNotPosDef)
		}
	}
	l := make([]float64, d*d)
	if cov != nil {
		if err := correlation(l, sd, cov, d); err != nil {
			return nil, Space{}, err
		}
	}
	for i := range z {
		z[i] = (z[i] - mean[i%d]) / sd[i%d]
	}
	if cov == nil {
		rows := blas64.General{Rows: n, Cols: d, Stride: d, Data: z}
		dense.Gemm(blas.Trans, blas.NoTrans, 1/float64(n-1), rows, rows, 0, dense.General(l, d, d))
	}
	if j := choleskyOfCorrelation(l, d); j < d {
		return nil, Space{},
			fmt.Errorf("the prior covariance is singular from column %d on, which "+
				"is a combination of those before it; leave it out, or give another "+
				"MixtureOptions.Cov: %w", j, sentinel.ErrNotPosDef)
	}
	for i := range n {
		row := z[i*d : (i+1)*d]
		dense.Trsv(blas.NoTrans, dense.LowerTriangle(l, d), dense.Vector(row))
		if far := floats.Norm(row, 2); !(far <= farthest) {
			return nil, Space{}, fmt.Errorf("row %d is %.3g standard deviations of "+
				"MixtureOptions.Cov from the mean of the rows; give a larger one: %w", i, far,
				sentinel.ErrParam)
		}
	}
	for j, s := range sd {
		floats.Scale(s, l[j*d:(j+1)*d])
	}
	return z, Space{mean, l, 0.5 * dense.LogDet(l, d)}, nil
}

// standardize copies column j of x to z, finds its mean and standard deviation, and returns the
// size of its largest element.
func standardize(x mat.Matrix, j int, z, mean, sd []float64) (most float64, err error) {
	n, d := x.Dims() // dividing by most keeps sums of squares from overflowing
	for i := range n {
		v := x.At(i, j)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("row %d, column %d is %v: %w", i, j, v, sentinel.ErrNotFinite)
		}
		z[i*d+j] = v
		most = max(most, math.Abs(v))
		mean[j] += v / float64(n)
	}
	var rest, square float64
	for i := range n { // remove the rounding error of the mean
		rest += (z[i*d+j] - mean[j]) / float64(n)
	}
	mean[j] += rest
	for i := range n {
		r := (z[i*d+j] - mean[j]) / max(most, math.SmallestNonzeroFloat64)
		square += r * r
	}
	sd[j] = most * math.Sqrt(square/float64(n-1))
	return most, nil
}

// correlation stores the correlations of cov in l and its standard deviations in sd.
func correlation(l, sd []float64, cov mat.Symmetric, d int) error {
	if c := cov.SymmetricDim(); c != d {
		return fmt.Errorf("MixtureOptions.Cov is %d×%d, the rows have %d columns: %w", c, c, d,
			sentinel.ErrShape)
	}
	for j := range d {
		for i := range j + 1 {
			if c := cov.At(j, i); math.IsNaN(c) || math.IsInf(c, 0) {
				return fmt.Errorf("MixtureOptions.Cov(%d, %d) is %v: %w", j, i, c,
					sentinel.ErrNotFinite)
			}
		}
		if !(cov.At(j, j) > 0) {
			return fmt.Errorf("MixtureOptions.Cov(%d, %d) is %v: %w", j, j, cov.At(j, j),
				sentinel.ErrNotPosDef)
		}
		sd[j] = math.Sqrt(cov.At(j, j))
	}
	for j := range d {
		for i := range d {
			l[j*d+i] = cov.At(j, i) / sd[j] / sd[i]
		}
	}
	return nil
}

// spread is the smallest standard deviation of a column, relative to its largest element, that
// exceeds the rounding error of the mean.
const spread = 1e-14

// farthest is the largest distance of a row from the mean, in prior standard deviations,
// at which sums of squares about the mean still hold a covariance of the prior's size to about
// five digits.
const farthest = 1e5

// pivot is the smallest squared pivot of a Cholesky factor of correlations that exceeds rounding
// errors.
const pivot = 1e-13

// choleskyOfCorrelation replaces a by its lower Cholesky factor with zeros above. It returns the
// first column whose pivot is too small, or d if all are large enough.
func choleskyOfCorrelation(a []float64, d int) int {
	for j := range d {
		for i := range j {
			a[i*d+j] = 0
		}
		for i := j; i < d; i++ {
			v := a[i*d+j] - floats.Dot(a[i*d:i*d+j], a[j*d:j*d+j])
			if i > j {
				a[i*d+j] = v / a[j*d+j]
				continue
			}
			if !(v > pivot) {
				return j
			}
			a[j*d+j] = math.Sqrt(v)
		}
	}
	return d
}
