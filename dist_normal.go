package pgsvi

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas/blas64"

	"github.com/pgsvi/pgsvi/internal/dense"
)

const log2Pi = 1.8378770664093454835606594728112352797227949472755668

func checkIsotropic(dim int, variance float64) {
	if dim < 1 {
		panic(fmt.Sprintf("pgsvi: dimension %d must be at least 1", dim))
	}
	if !(variance > 0) || math.IsInf(variance, 0) || math.IsInf(1/variance, 0) {
		panic(fmt.Sprintf("pgsvi: variance %v must be positive and finite", variance))
	}
}

// normal is what Gaussian and MeanField share. Gradients with respect to V
// have length numGradV: a full d×d matrix, of which the symmetric part counts,
// or the diagonal.
type normal interface {
	ExpFamily
	Charted
	Coordinates() Coordinates
	meanAt(i int) float64
	covAt(i, j int) float64
	precisionAt(i, j int) float64
	mulPrecision(dst, x []float64)
	logDetV() float64
	numGradV() int
	// setState makes q the distribution p, in the coordinates of q, without the
	// rounding of λ. It reports false and changes nothing if p is of another type or dimension.
	setState(p Dist) bool
	// setPrecision replaces q by N(m, V) with V⁻¹ = p, of length numGradV,
	// under the contract of SetParams.
	setPrecision(m, p []float64) error
	fromMomentGrad(dst, gm, gv []float64) []float64
	toMomentGrad(gm, gv, grad []float64)
	// marginal returns the mean and the variance of xᵀz.
	marginal(x []float64) (m, v float64)
	// addOuter adds c·uwᵀ, and addPrecision c·V⁻¹, to a gradient with respect to V.
	addOuter(gv []float64, c float64, u, w []float64)
	addPrecision(gv []float64, c float64)
	// transform replaces a standard normal ε by a draw z; standardize stores V⁻¹(z − m) in dst.
	transform(eps []float64)
	standardize(dst, eps []float64)
}

func gaussianKL(q, p normal) float64 {
	d := q.Dim()
	if p.Dim() != d {
		panic("pgsvi: KL between distributions of different dimensions")
	}
	diff, w := make([]float64, d), make([]float64, d)
	var trace float64
	diagonal := q.numGradV() == d || p.numGradV() == d // of one of the two matrices only the diagonal counts
	for i := range d {
		diff[i] = q.meanAt(i) - p.meanAt(i)
		if diagonal {
			trace += p.precisionAt(i, i) * q.covAt(i, i)
			continue
		}
		for j := range d {
			trace += p.precisionAt(i, j) * q.covAt(i, j)
		}
	}
	p.mulPrecision(w, diff)
	kl := 0.5 * (trace - float64(d) + blas64.Dot(dense.Vector(diff), dense.Vector(w)) + p.logDetV() - q.logDetV())
	return math.Max(0, kl)
}
