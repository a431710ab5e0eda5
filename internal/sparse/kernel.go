package sparse

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Kernel is what is asked of a covariance function k(x, x′). Its derivatives are by its own
// parameters, as many as NumParams says. They may be those of Chain's coordinates but for a factor.
type Kernel interface {
	Cov(x, y []float64) float64
	// Noisy reports whether a datum has noise of its own, and Self returns its variance with that.
	Noisy() bool
	Self(x []float64) float64
	// Fill stores the covariances of the pairs of t in dst, row after row.
	Fill(dst []float64, t *Tile)
	// Cross stores those of the rows of x and y in dst, which is of no use where h has stopped.
	Cross(h *parallel.Halt, dst, x, y *mat.Dense)

	NumParams() int
	// Chain turns derivatives into those by the coordinates that are learned, in place.
	Chain(dst []float64)
	// GradSelf stores the derivatives of Self.
	GradSelf(dst, x []float64)
	// Pull adds Σ_ij w_ij ∂k(x_i, y_j) over the pairs of t to dst, and PullRows the sum over j to
	// row i of dst.
	Pull(dst, w []float64, t *Tile)
	PullRows(dst, w []float64, t *Tile)
	// PullInputs adds Σ_j w_ij ∂k(x_i, y_j)/∂x_i to row i of dst. Where there are no such
	// derivatives they are differences with the given step in each column.
	PullInputs(dst, w []float64, t *Tile, step []float64)

	// Whole returns the division, of inputs of so many columns, that sees whole what can be.
	Whole(cols int) Division
	// Shorter returns the kernel with its lengths multiplied.
	Shorter(by float64) Kernel
	Name() string
	// Identify shows d which it is.
	Identify(d *save.Digest)
}

// Likelihood is what is asked of a log-likelihood log p(y|η), beyond what its terms ask.
type Likelihood interface {
	term.Noisy
	// SelfBounded reports |ℓ‴| ≤ |ℓ″| for ℓ = log p(y|·).
	SelfBounded() bool
	// Rule gives terms that are those of one evaluation their rule, if that pays; see
	// term.Terms.Sure.
	Rule(t *term.Terms)
}

// Fit fits a linear model in memory to within goal nats. It returns the state that the fit has
// ended with, nil if it has none.
type Fit func(h *parallel.Halt, lin *site.LinearModel, goal float64, workers int) (
	*gauss.State, error)

// gaussian reports Gaussian noise, under which one step from any state is exact.
func gaussian(l Likelihood) bool { return l.Noise() != 0 }

// Tile are pairs of rows.
type Tile struct {
	X, Y blas64.General
	// Centre is where coordinates begin in which products of matrices make distances; nil means
	// that distances are sums of differences, exact where rows are close.
	Centre []float64
}

// Len returns the number of pairs.
func (t *Tile) Len() int { return t.X.Rows * t.Y.Rows }

// Tiles have at most tileRows × tileCols pairs, so that what they take stays in a cache.
const (
	tileRows = 64
	tileCols = 128
)

// variances stores k(x_i, x_i) without noise in dst, and returns it; nil allocates.
func variances(dst []float64, k Kernel, x *mat.Dense) []float64 {
	raw := x.RawMatrix()
	dst = dense.Resize(dst, raw.Rows)
	for i := range dst {
		at := row(raw, i)
		dst[i] = k.Cov(at, at)
	}
	return dst
}

// row returns row i of x, and slice the rows lo … hi−1.
func row(x blas64.General, i int) []float64 { return x.Data[i*x.Stride : i*x.Stride+x.Cols] }

func slice(x blas64.General, lo, hi int) blas64.General {
	x.Data = x.Data[lo*x.Stride : (hi-1)*x.Stride+x.Cols]
	x.Rows = hi - lo
	return x
}
