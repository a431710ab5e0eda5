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

// Kernel has the methods of a covariance function k(x, x′) that this package uses. Derivatives are
// with respect to the NumParams parameters of the Kernel, which may equal the coordinates of Chain
// up to a factor.
type Kernel interface {
	gram.Kernel
	// Chain converts derivatives in place to derivatives with respect to the learned coordinates.
	Chain(dst []float64)
	// PullInputs adds Σ_j w_ij ∂k(x_i, y_j)/∂x_i to row i of dst. If k has no such derivatives,
	// PullInputs uses differences with the given step in each column.
	PullInputs(dst, w []float64, t *gram.Tile, step []float64)

	// Whole returns the Division for inputs of cols columns in which as many terms as possible are
	// represented whole.
	Whole(cols int) Division
	// Shorter returns the kernel with its length scales multiplied by the given factor.
	Shorter(by float64) Kernel
	Name() string
	// Identify adds the kernel and its parameters to d.
	Identify(d *save.Digest)
}

// Likelihood has the methods of a log-likelihood log p(y|η) that this package uses, in addition
// to those that terms use.
type Likelihood interface {
	term.Noisy
	// Rule gives the terms of one evaluation their rule, if that pays; see term.Terms.Sure.
	Rule(t *term.Terms)
}

// Fit fits a linear model in memory to within goal nats. It returns the final state, which is nil
// if the fit failed.
type Fit func(h *parallel.Halt, lin *site.LinearModel, goal float64, workers int) (
	*gauss.Gaussian, error)

// gaussian reports whether l is Gaussian noise, for which one step from any state is exact.
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

// cross stores the covariances of the rows of x and y in dst. They are invalid if h has stopped.
func cross(h *parallel.Halt, k Kernel, dst, x, y *mat.Dense) {
	gram.Cross(h, dst.RawMatrix(), k, x.RawMatrix(), y.RawMatrix())
}
