package pgsvi

import (
	"encoding"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/diff"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
)

// Dist is a member q(z|λ) of a parametric family of distributions over z ∈ R^d.
//
// λ is the flat vector of parameters in the coordinates of the type (see Coordinates). Every
// gradient ∇_λ in this package, whether of a Smooth, a Convex or a Divergence, holds the partial
// derivatives with respect to the elements of Params. A Dist is not safe for concurrent use while
// it changes.
type Dist interface {
	// Dim returns d.
	Dim() int
	// NumParams returns the length of λ.
	NumParams() int
	// Params stores λ, of length NumParams, in dst; nil allocates.
	Params(dst []float64) []float64
	// SetParams replaces λ by p and does not keep p. If p is not a valid λ, it changes nothing and
	// returns an error that wraps ErrNotPosDef or ErrNotFinite.
	SetParams(p []float64) error
	// LogProb returns log q(z|λ).
	LogProb(z []float64) float64
	// Score stores the score function ∇_λ log q(z|λ) in dst; nil allocates.
	Score(dst, z []float64) []float64
	// Rand stores a draw from q in dst, of length d; nil allocates.
	Rand(dst []float64, rng *rand.Rand) []float64
	// Clone returns a copy that shares no memory.
	Clone() Dist
}

// halting is a Dist with computations that may take long. They end when a Halt stops, and run on as
// many goroutines as the Halt lends.
type halting interface{ use(h *parallel.Halt) }

// haltDist sets the Halt of q if q is halting.
func haltDist(q Dist, h *parallel.Halt) {
	if x, ok := q.(halting); ok {
		x.use(h)
	}
}

// Charted is a Dist with an unconstrained chart x ∈ R^NumParams whose image is the set of valid λ.
// The numeric proximal step works in the chart.
type Charted interface {
	Dist
	// Chart stores x in dst; nil allocates.
	Chart(dst []float64) []float64
	// SetChart replaces λ by λ(x) like SetParams. It fails only if λ(x) overflows, with an error
	// that wraps ErrNotFinite, or if the chart has edges.
	SetChart(x []float64) error
	// ChartGrad stores (∂λ/∂x)ᵀg in dst, the gradient with respect to x of a function whose
	// gradient with respect to λ is g. A nil dst allocates; dst may be g.
	ChartGrad(dst, g []float64) []float64
}

// ExpFamily is a Dist of an exponential family,
//
//	q(z|η) = h(z) exp(ηᵀT(z) − A(η)),   μ = E_q[T(z)] = ∇A(η),
//
// with natural parameters η and mean parameters μ, both of length NumParams. Coordinates defines λ,
// and so the closed form of a proximal step.
//
// Other packages cannot implement ExpFamily, because it has unexported methods. Gaussian and Exp
// implement it. For a custom family, write a Family in terms of η and make members of it with
// NewExp.
type ExpFamily interface {
	Charted
	// Coordinates returns the meaning of λ.
	Coordinates() Coordinates
	// Natural stores η in dst; nil allocates.
	Natural(dst []float64) []float64
	// SetNatural replaces λ by the λ of the natural parameters eta, like SetParams.
	SetNatural(eta []float64) error
	// MeanParams stores μ in dst; nil allocates.
	MeanParams(dst []float64) []float64
	// SetMeanParams replaces λ by the λ of the mean parameters mu, like SetParams.
	SetMeanParams(mu []float64) error
	// LogPartition returns A(η).
	LogPartition() float64
	// MeanGrad stores ∇_μ in dst for a function whose ∇_λ is g. It is the natural gradient in
	// natural parameters. A nil dst allocates; dst may be g.
	MeanGrad(dst, g []float64) []float64
	// FromMeanGrad is the inverse of MeanGrad. It converts ∇_μ into ∇_λ.
	FromMeanGrad(dst, g []float64) []float64
	// FromNaturalGrad stores ∇_λ in dst for a function whose ∇_η is g.
	FromNaturalGrad(dst, g []float64) []float64
	// KL returns KL(q‖p) in nats. It panics if p is of another family or dimension.
	KL(p Dist) float64

	// naturalOf returns the natural parameters of p as a member of this family and dimension in a
	// new slice, or nil if p is not a member.
	naturalOf(p ExpFamily) []float64
	// setState sets q to the distribution p, in the coordinates of q and without the rounding of λ.
	// If p has another type, family or dimension, it changes nothing and returns false.
	setState(p Dist) bool
}

// Coordinates defines λ for an ExpFamily. MeanParams and Natural exist for every family, and the
// others for a Gaussian q = N(m, V), diagonal or full. The coordinates determine in which
// parameters f is linearized, and so which of the published updates the proximal step is.
type Coordinates int

const (
	// MeanParams is λ = μ, which is (m, V + mmᵀ) for a Gaussian. A proximal step with a KL
	// divergence then averages natural parameters, which is the update of the paper's main text.
	MeanParams Coordinates = iota
	// MeanCov is λ = (m, V), the coordinates of the update in the paper's appendix.
	MeanCov
	// Natural is λ = η, (V⁻¹m, −½V⁻¹) for a Gaussian.
	Natural
	// Cholesky is λ = (m, L), where L is the lower triangular factor of V = LLᵀ with a positive
	// diagonal. A λ whose diagonal has a non-positive element is invalid even if LLᵀ is positive
	// definite. SetParams rejects it, and a step that would lead there is shortened.
	Cholesky
	// LogCholesky is Cholesky with the logarithms of the diagonal of L. Every finite λ is valid,
	// unless V over- or underflows. It is the Chart of a Gaussian.
	LogCholesky
)

var coordinateNames = [...]string{"mean parameters", "moments", "natural parameters",
	"Cholesky factor", "log-Cholesky factor"}

// String returns the coordinates in words.
func (c Coordinates) String() string {
	if c < 0 || int(c) >= len(coordinateNames) {
		return "invalid coordinates"
	}
	return coordinateNames[c]
}

// gradientByDifferences stores the gradient of f with respect to λ in dst, computed by central
// differences of fourth order. It shortens a difference that would leave the set of valid λ.
func gradientByDifferences(dst []float64, q Dist, f func(Dist) float64) []float64 {
	p := q.Clone()
	return diff.Gradient(dst, q.Params(nil), func(x []float64) (float64, bool) {
		if p.SetParams(x) != nil {
			return 0, false
		}
		return f(p), true
	})
}

// Point is the point mass at z = λ. With a Point, the iteration is plain optimization over R^d,
// such as gradient descent, ISTA or mirror descent.
type Point struct{ z []float64 }

// NewPoint returns the point mass at a copy of z.
func NewPoint(z []float64) *Point { return &Point{append([]float64(nil), z...)} }

// Dim implements Dist.
func (p *Point) Dim() int { return len(p.z) }

// NumParams implements Dist.
func (p *Point) NumParams() int { return len(p.z) }

// Params implements Dist.
func (p *Point) Params(dst []float64) []float64 {
	dst = dense.Dest(dst, len(p.z))
	copy(dst, p.z)
	return dst
}

// SetParams implements Dist.
func (p *Point) SetParams(z []float64) error {
	if len(z) != len(p.z) {
		panic("pgsvi: λ has the wrong length")
	}
	if i, ok := dense.AllFinite(z); !ok {
		return fmt.Errorf("pgsvi: element %d is %v: %w", i, z[i], ErrNotFinite)
	}
	copy(p.z, z)
	return nil
}

// LogProb returns 0 at the point and −Inf elsewhere.
func (p *Point) LogProb(z []float64) float64 {
	for i, x := range p.z {
		if z[i] != x {
			return math.Inf(-1)
		}
	}
	return 0
}

// Score returns zeros, because a point mass has no density to differentiate.
func (p *Point) Score(dst, _ []float64) []float64 {
	dst = dense.Dest(dst, len(p.z))
	clear(dst)
	return dst
}

// Rand returns the point.
func (p *Point) Rand(dst []float64, _ *rand.Rand) []float64 { return p.Params(dst) }

// Clone implements Dist.
func (p *Point) Clone() Dist { return NewPoint(p.z) }

// Chart implements Charted. The chart is the point itself.
func (p *Point) Chart(dst []float64) []float64 { return p.Params(dst) }

// SetChart implements Charted.
func (p *Point) SetChart(x []float64) error { return p.SetParams(x) }

// ChartGrad implements Charted.
func (p *Point) ChartGrad(dst, g []float64) []float64 {
	dst = dense.Dest(dst, len(p.z))
	copy(dst, g)
	return dst
}

// statePart is a part of a run whose state can be written and read bit for bit.
type statePart interface{ state(c *save.Coder) }

// enginePart is a statePart of an internal package.
type enginePart interface{ State(c *save.Coder) }

// binaryPart is a statePart of another package.
type binaryPart interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// partState writes or reads the state of part, which must be a statePart, an enginePart or a
// binaryPart.
func partState(c *save.Coder, part any) {
	switch x := part.(type) {
	case statePart:
		x.state(c)
	case enginePart:
		x.State(c)
	case binaryPart:
		b, err := x.MarshalBinary()
		c.Fail(err)
		c.Bytes(&b)
		if c.Reading() {
			c.Fail(x.UnmarshalBinary(b))
		}
	default:
		c.Fail(fmt.Errorf("a %T cannot be saved; give it MarshalBinary and UnmarshalBinary: %w",
			part, ErrParam))
	}
}

// distState writes or reads every bit of q if q is a statePart or a binaryPart, and otherwise λ.
func distState(c *save.Coder, q Dist) {
	switch q.(type) {
	case statePart, binaryPart:
		partState(c, q)
		return
	}
	lambda := q.Params(nil)
	c.Floats(len(lambda), &lambda)
	if c.Reading() {
		c.Fail(q.SetParams(lambda))
	}
}

func (p *Point) state(c *save.Coder) { c.Floats(len(p.z), &p.z) }

// shortList returns the first numbers of x in parentheses.
func shortList(x []float64) string {
	var s strings.Builder
	for i, v := range expfam.First(x) {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "%.4g", v)
	}
	if len(expfam.First(x)) < len(x) {
		s.WriteString(", …")
	}
	return "(" + s.String() + ")"
}
