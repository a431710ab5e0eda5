package pgsvi

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/mat"
)

// rowPairs are all pairs of rows of x, whose covariances are wanted under one kernel after the other. Kernels of one length are functions
// of the distances of the rows over it, which do not change.
type rowPairs struct {
	x  *mat.Dense
	r2 []float64 // |x_i − x_j|², both triangles; nil if they are not kept
}

// pairsOf returns the pairs of the rows of x with their distances, which overflow leaves out.
func pairsOf(x *mat.Dense) *rowPairs {
	p := &rowPairs{x: x}
	n, _ := x.Dims()
	r2 := make([]float64, n*n)
	j := kernelNewJob(distances{}, x, x)
	j.both, j.out = true, dense.General(r2, n, n)
	j.gram(nil)
	if _, ok := dense.AllFinite(r2); ok {
		p.r2 = r2
	}
	return p
}

// gram stores the training covariance under k, both triangles, in dst, which is of no use where h has stopped. See Gram.
func (p *rowPairs) gram(h *parallel.Halt, dst []float64, k Kernel) {
	n, _ := p.x.Dims()
	j := kernelNewJob(k, p.x, p.x)
	j.both, j.r2, j.out = true, p.r2, dense.General(dst, n, n)
	j.gram(h)
}

// slopes returns Σ_ij w_ij ∂K_ij/∂θ_p for the parameters of k, as GramGrad does.
func (p *rowPairs) slopes(h *parallel.Halt, k Kernel, w mat.Symmetric) []float64 {
	dst := make([]float64, numParams(k))
	j := kernelNewJob(k, p.x, p.x)
	j.r2, j.loop.Halt = p.r2, h
	j.pullAll(dst, w)
	return dst
}

// siteWeights are the weights ½(W − aaᵀ) of n rows, of which the lower triangle of W is at hand.
type siteWeights struct {
	n    int
	w, a []float64
}

// SymmetricDim implements mat.Symmetric.
func (s *siteWeights) SymmetricDim() int { return s.n }

// Dims implements mat.Matrix.
func (s *siteWeights) Dims() (r, c int) { return s.n, s.n }

// T implements mat.Matrix.
func (s *siteWeights) T() mat.Matrix { return s }

// At implements mat.Matrix.
func (s *siteWeights) At(i, j int) float64 {
	return 0.5 * (dense.SymmetricAt(s.w, s.n, i, j) - s.a[i]*s.a[j])
}

// tile implements tiledWeights.
func (s *siteWeights) tile(dst []float64, i0, i1, j0, j1 int) {
	m := j1 - j0
	for j := j0; j < j1; j++ {
		row, aj := s.w[j*s.n:], s.a[j]
		for i := i0; i < min(i1, j); i++ {
			dst[(i-i0)*m+j-j0] = row[i] - s.a[i]*aj
		}
	}
}

// distances is a native kernel in name only: the squared distance of its arguments.
type distances struct{ Constant }

func (distances) is(k Kernel) bool { return isType[distances](k) }

// Cov implements Kernel.
func (distances) Cov(x, y []float64) float64 { return lengthScales{one: 1}.dist2(x, y) }

// differencePart is the part of |a|² + |b|² below which |a − b|² is computed by differences: the product of the matrices has some 2√D + 8 roundings of the former in
// it, and of what is left so few that covariances have twelve digits, whatever the length.
const differencePart = 1e-3

// fill implements tiled.
func (distances) fill(dst []float64, t *kernelTile) {
	l := lengthScales{one: 1}
	n, m, dim := t.x.Rows, t.y.Rows, l.features(t.x.Cols)
	if dim == 0 {
		fillDist2(l, dst, t)
		return
	}
	mark := t.top
	na, nb := fillProducts(l, dst, t, dim)
	for i := range n {
		row := dst[i*m : (i+1)*m]
		for j, ab := range row {
			norms := na[i] + nb[j]
			if r2 := norms + ab; r2 > differencePart*norms {
				row[j] = r2
			} else {
				row[j] = l.dist2(kernelRow(t.x, i), kernelRow(t.y, j))
			}
		}
	}
	t.top = mark
}

// pull implements tiled; there are no derivatives.
func (distances) pull(_, _ []float64, _ *kernelTile) {}
