package sparse

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// Kernel is what is asked of a covariance function k(x, x′). Its derivatives are by its own
// parameters, as many as NumParams says. They may be those of Chain's coordinates but for a factor.
type Kernel interface {
	gram.Kernel
	// Chain turns derivatives into those by the coordinates that are learned, in place.
	Chain(dst []float64)
	// PullInputs adds Σ_j w_ij ∂k(x_i, y_j)/∂x_i to row i of dst. Where there are no such
	// derivatives they are differences with the given step in each column.
	PullInputs(dst, w []float64, t *gram.Tile, step []float64)

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

// variances stores k(x_i, x_i) without noise in dst, and returns it; nil allocates.
func variances(dst []float64, k Kernel, x *mat.Dense) []float64 {
	raw := x.RawMatrix()
	dst = dense.Resize(dst, raw.Rows)
	for i := range dst {
		at := gram.Row(raw, i)
		dst[i] = k.Cov(at, at)
	}
	return dst
}

// cross stores the covariances of the rows of x and y in dst, which is of no use where h has
// stopped.
func cross(h *parallel.Halt, k Kernel, dst, x, y *mat.Dense) {
	gram.Cross(h, dst.RawMatrix(), k, x.RawMatrix(), y.RawMatrix())
}
