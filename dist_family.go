package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/famcheck"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Family is a custom exponential family,
//
//	q(z|η) = h(z) exp(ηᵀT(z) − A(η)),
//
// described by functions of its natural parameters η. NewExp makes distributions with scores, KL,
// coordinates and steps from it, and CheckFamily tests the functions.
//
// A Family is immutable and safe for concurrent use. Its functions may neither keep nor change
// their arguments, except to store results. The elements of T must be linearly independent, so that
// the Fisher information is positive definite. A distribution over K categories therefore has K−1
// natural parameters. Two members belong to the same family if their Family values are equal by
// reflect.DeepEqual.
//
// The methods below are optional. CheckFamily reports a set that is incomplete or has a method with
// the wrong signature.
//
// Steps use fast products with the Fisher information F and its inverse instead of factorizing the
// matrix of Fisher, if the type has
//
//	FisherMul(dst, g, eta []float64)   // stores F·g in dst, which may be g
//	FisherSolve(dst, g, eta []float64) // stores F⁻¹g in dst, which may be g
//
// Exp.Entropy needs a formula, because A and μ do not determine the entropy if h is not constant:
//
//	Entropy(eta []float64) float64 // −E[log q(z|η)] in nats, or NaN if it is unknown
//
// Pathwise needs draws that are differentiable in η for fixed randomness (reparameterization). The
// derivative of a draw may be the implicit derivative −(∂F(z|η)/∂η)/q(z|η), with F the distribution
// function (Figurnov, Mohamed and Mnih, 2018):
//
//	// AuxLen returns the length of aux.
//	AuxLen() int
//	// RandPath is Rand, and also stores in aux what PathGrad needs in addition to z.
//	RandPath(z, t, aux, eta []float64, rng *rand.Rand)
//	// PathGrad adds Σ_j (∂z_j/∂η)·∂/∂z_j (l(z) + cᵀT(z)) to dst, for the draw of z and aux and a
//	// function l with gradient dl at z. If z underflows, use the limit of dl times z.
//	PathGrad(dst, dl, c, z, aux, eta []float64)
//
// The numeric proximal step works in a chart x ∈ R^NumParams of the valid η, such as the logarithm
// of a rate. Without these methods the chart is η itself, whose domain may have edges:
//
//	Chart(dst, eta []float64)        // stores x in dst
//	FromChart(dst, x []float64)      // stores η(x) in dst; valid for every finite x, unless η overflows
//	ChartGrad(dst, g, eta []float64) // stores (∂η/∂x)ᵀg in dst, at the x of eta; dst may be g
type Family interface {
	// Dim returns the length of z.
	Dim() int
	// NumParams returns the length of η and of T(z).
	NumParams() int
	// LogPartition returns A(η). It must return +Inf or NaN if η is not valid, so that steps to
	// such η can be detected and shortened.
	LogPartition(eta []float64) float64
	// Mean stores the mean parameters μ = E[T(z)] = ∇A(η) in dst.
	Mean(dst, eta []float64)
	// Fisher stores the Fisher information ∇²A(η), the covariance of T(z), in dst. All elements of
	// dst are zero on entry.
	Fisher(dst *mat.SymDense, eta []float64)
	// Stat stores the sufficient statistics T(z) in dst.
	Stat(dst, z []float64)
	// LogBase returns log h(z). It is −Inf outside the support.
	LogBase(z []float64) float64
	// Rand stores a draw from q(z|η) in z and the statistics T(z) in t. T(z) usually is Stat of z.
	// If z can underflow, like a Gamma of small shape, compute the logarithms in T(z) from the
	// variables from which z is drawn.
	Rand(z, t, eta []float64, rng *rand.Rand)
}

// Exp is a member q(z|η) of a Family. It stores η. Its λ is μ, the mean parameters, or η after
// In(Natural). If λ is μ, a step with the KL divergence averages natural parameters and never
// computes η from μ.
type Exp struct {
	at     *expfam.Member
	coords Coordinates
}

// use implements halting.
func (q *Exp) use(h *parallel.Halt) { q.at.Use(h) }

// NewExp returns the member of f with the natural parameters eta, in the coordinates MeanParams. It
// copies eta. The error wraps
//   - ErrParam if f is nil;
//   - ErrEmpty if it has no dimensions or no parameters;
//   - ErrShape if eta does not have NumParams elements;
//   - ErrNotFinite if an element of η or of μ is not finite;
//   - ErrNotPosDef if A(η) is not finite or the Fisher information is not positive definite.
func NewExp(f Family, eta []float64) (*Exp, error) {
	if f == nil {
		return nil, fmt.Errorf("pgsvi: the Family of NewExp is nil: %w", ErrParam)
	}
	n := f.NumParams()
	if n < 1 || f.Dim() < 1 {
		return nil, fmt.Errorf("pgsvi: %s has dimension %d and %d parameters; both must be "+
			"positive: %w", expfam.Name(f), f.Dim(), n, ErrEmpty)
	}
	if len(eta) != n {
		return nil, fmt.Errorf("pgsvi: eta has %d elements, but %s has %d natural parameters: %w",
			len(eta), expfam.Name(f), n, ErrShape)
	}
	q := expfam.New(f)
	if err := q.SetNatural(eta); err != nil {
		return nil, err
	}
	if q.Degenerate() {
		return nil, fmt.Errorf("pgsvi: the Fisher information of %s at eta = %.6g: %w",
			expfam.Name(f), expfam.First(eta), ErrNotPosDef)
	}
	return &Exp{q, MeanParams}, nil
}

// Family returns the family of q.
func (q *Exp) Family() Family { return q.at.F }

// In returns a copy of q with λ in the coordinates c. It panics unless c is MeanParams or
// Natural.
func (q *Exp) In(c Coordinates) *Exp {
	if c != MeanParams && c != Natural {
		panic(fmt.Sprintf("pgsvi: an Exp has no coordinates %v; use MeanParams or Natural", c))
	}
	p := expfam.New(q.at.F)
	p.Set(q.at)
	return &Exp{p, c}
}

// Coordinates returns the meaning of λ: MeanParams or Natural.
func (q *Exp) Coordinates() Coordinates { return q.coords }

// Dim implements Dist.
func (q *Exp) Dim() int { return q.at.Dim() }

// NumParams implements Dist.
func (q *Exp) NumParams() int { return q.at.NumParams() }

// Clone implements Dist.
func (q *Exp) Clone() Dist { return q.In(q.coords) }

// Params implements Dist.
func (q *Exp) Params(dst []float64) []float64 {
	if q.coords == Natural {
		return q.Natural(dst)
	}
	return q.MeanParams(dst)
}

// SetParams implements Dist. In the coordinates MeanParams it solves ∇A(η) = μ.
func (q *Exp) SetParams(p []float64) error {
	if q.coords == Natural {
		return q.SetNatural(p)
	}
	return q.SetMeanParams(p)
}

// Natural implements ExpFamily.
func (q *Exp) Natural(dst []float64) []float64 { return q.at.Natural(dst) }

// SetNatural implements ExpFamily.
func (q *Exp) SetNatural(eta []float64) error { return q.at.SetNatural(eta) }

// MeanParams implements ExpFamily.
func (q *Exp) MeanParams(dst []float64) []float64 { return q.at.MeanParams(dst) }

// SetMeanParams implements ExpFamily. It solves ∇A(η) = μ by minimizing the convex function A(η) −
// ηᵀμ. Some families of this package have a closed form. Others use Newton's method with the Fisher
// information, starting at the η of q, and halve a step until it is valid and decreases the
// function. The error wraps ErrNotPosDef if no η attains mu.
func (q *Exp) SetMeanParams(mu []float64) error { return q.at.SetMeanParams(mu) }

// LogPartition implements ExpFamily.
func (q *Exp) LogPartition() float64 { return q.at.LogPartition() }

// LogProb implements Dist.
func (q *Exp) LogProb(z []float64) float64 { return q.at.LogProb(z) }

// Score implements Dist. It is T(z) − μ in natural parameters.
func (q *Exp) Score(dst, z []float64) []float64 {
	dst = q.at.Score(dst, z)
	return q.FromNaturalGrad(dst, dst)
}

// Rand implements Dist.
func (q *Exp) Rand(dst []float64, rng *rand.Rand) []float64 {
	dst = dense.Dest(dst, q.Dim())
	q.at.F.Rand(dst, make([]float64, q.NumParams()), q.at.Eta, rng)
	return dst
}

// Entropy returns −E_q[log q(z)] in nats, or NaN if the Family has no Entropy.
func (q *Exp) Entropy() float64 {
	if f, ok := q.at.F.(expfam.EntropyFamily); ok {
		return f.Entropy(q.at.Eta)
	}
	return math.NaN()
}

// MeanGrad implements ExpFamily.
func (q *Exp) MeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, q.coords, MeanParams)
}

// FromMeanGrad implements ExpFamily.
func (q *Exp) FromMeanGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, MeanParams, q.coords)
}

// FromNaturalGrad implements ExpFamily.
func (q *Exp) FromNaturalGrad(dst, grad []float64) []float64 {
	return q.convertGrad(dst, grad, Natural, q.coords)
}

func (q *Exp) convertGrad(dst, grad []float64, from, to Coordinates) []float64 {
	dst = dense.Dest(dst, q.NumParams())
	copy(dst, grad)
	switch {
	case from == to:
	case to == Natural:
		q.at.FisherMul(dst)
	default:
		q.at.FisherSolve(dst)
	}
	return dst
}

// KL returns KL(q‖p) = A(η_p) − A(η) − (η_p − η)ᵀμ in nats. It panics if p is of another Family.
func (q *Exp) KL(p Dist) float64 {
	o, ok := p.(*Exp)
	if !ok || !q.at.SameFamily(o.at) {
		panic(fmt.Sprintf("pgsvi: KL from %s to a distribution of another family, %s", distName(q),
			distName(p)))
	}
	return q.at.KL(o.at)
}

// distName returns the name of q for errors.
func distName(q Dist) string {
	if e, ok := q.(*Exp); ok {
		return expfam.Name(e.at.F)
	}
	return fmt.Sprintf("%T of dimension %d", q, q.Dim())
}

// String returns the family with the parameters of its constructor, such as "Gamma(3, 1.5)". Families
// of your own, products and matrices have natural parameters. It shows at most six numbers.
func (q *Exp) String() string {
	x, name := q.Natural(nil), expfam.Name(q.at.F)
	switch f := q.at.F.(type) {
	case expfam.GammaFamily, expfam.InverseGammaFamily:
		x[1] = -x[1]
	case expfam.BetaFamily:
	case expfam.DirichletFamily:
		name = "Dirichlet"
	case expfam.PoissonFamily:
		x = q.MeanParams(x)
	case expfam.CategoricalFamily:
		name, x = "Categorical", q.MeanParams(x)
		if f.K == 2 {
			name = "Bernoulli"
			break
		}
		x = slices.Insert(x, 0, 1-floats.Sum(x))
	default:
		return name + ", natural parameters " + shortList(x)
	}
	return name + shortList(x)
}

// Chart implements Charted. The chart is the Chart of the Family. Without a Chart it is η.
func (q *Exp) Chart(dst []float64) []float64 { return q.at.Chart(dst) }

// SetChart implements Charted.
func (q *Exp) SetChart(x []float64) error { return q.at.SetChart(x) }

// ChartGrad implements Charted.
func (q *Exp) ChartGrad(dst, grad []float64) []float64 {
	dst = q.convertGrad(dst, grad, q.coords, Natural)
	q.at.ChartGrad(dst)
	return dst
}

func (q *Exp) naturalOf(p ExpFamily) []float64 {
	if o, ok := p.(*Exp); ok && q.at.SameFamily(o.at) {
		return o.Natural(nil)
	}
	return nil
}

func (q *Exp) setState(p Dist) bool {
	o, ok := p.(*Exp)
	return ok && q.at.Set(o.at)
}

func (q *Exp) state(c *save.Coder) { q.at.Save(c) }

// NewBeta returns the Beta distribution over (0, 1) with a, b > 0,
//
//	q(z) ∝ z^{a−1} (1−z)^{b−1},   η = (a, b),   T(z) = (log z, log(1−z)),   μ = (ψ(a) − ψ(a+b), ψ(b) − ψ(a+b)),
//
// in the coordinates MeanParams. It has paths, quadrature and a chart (log a, log b). The error
// wraps ErrParam if a parameter is not positive and finite.
func NewBeta(a, b float64) (*Exp, error) {
	return newPositive(expfam.BetaFamily{}, []string{"a", "b"}, []float64{a, b}, []float64{a, b})
}

// NewDirichlet returns the Dirichlet distribution over the simplex with K ≥ 2 parts,
//
//	q(z) ∝ Π_k z_k^{α_k−1},   η = α,   T(z)_k = log z_k,   μ_k = ψ(α_k) − ψ(Σα),
//
// in the coordinates MeanParams. It copies alpha. The vector z has K elements that sum to 1, and
// densities are with respect to the first K−1 of them. The T(z) of a draw holds the logarithms even
// of parts that underflow. The distribution has paths and a chart, log α, and needs O(K)
// operations. The error wraps ErrEmpty if alpha has fewer than two elements, and ErrParam if an
// element is not positive and finite.
func NewDirichlet(alpha []float64) (*Exp, error) {
	if len(alpha) < 2 {
		return nil, fmt.Errorf("pgsvi: alpha of NewDirichlet has %d elements; it needs two: %w",
			len(alpha), ErrEmpty)
	}
	return newPositive(expfam.DirichletFamily{K: len(alpha)}, []string{"α"}, alpha, alpha)
}

// NewBernoulli returns the distribution of a z that is 1 with probability p and otherwise 0,
//
//	η = log p/(1−p),   T(z) = z,   μ = p,
//
// in the coordinates MeanParams. Its quadrature is the exact sum. The error wraps ErrParam unless 0
// < p < 1.
func NewBernoulli(p float64) (*Exp, error) {
	if !(p > 0 && p < 1) {
		return nil, fmt.Errorf("pgsvi: p of Bernoulli is %v; it must be between 0 and 1: %w", p,
			ErrParam)
	}
	return NewExp(expfam.CategoricalFamily{K: 2}, []float64{math.Log(p) - math.Log1p(-p)})
}

// NewCategorical returns the distribution of a z that is k with probability proportional to the
// weight p_k, k = 0 … K−1, K ≥ 2,
//
//	η_k = log p_{k+1}/p_0,   T(z)_k = 1 if z = k+1, else 0,   μ_k = p_{k+1},   k = 0 … K−2,
//
// in the coordinates MeanParams. It has K−1 parameters, because K would be dependent. Its
// quadrature is the exact sum. The error wraps ErrEmpty if there are fewer than two weights, and
// ErrParam if a weight is not positive and finite.
func NewCategorical(p []float64) (*Exp, error) {
	if len(p) < 2 {
		return nil, fmt.Errorf("pgsvi: NewCategorical has %d weights; it needs at least two: %w",
			len(p), ErrEmpty)
	}
	eta := make([]float64, len(p))
	for k, x := range p {
		eta[k] = math.Log(x) - math.Log(p[0])
	}
	return newPositive(expfam.CategoricalFamily{K: len(p)}, []string{"weight"}, p, eta[1:])
}

// NewPoisson returns the Poisson distribution with rate λ > 0 over z = 0, 1, 2, …,
//
//	q(z) = λ^z e^{−λ}/z!,   η = log λ,   T(z) = z,   μ = λ,
//
// in the coordinates MeanParams. Its quadrature is the sum. The error wraps ErrParam if rate is not
// positive and finite. For the likelihood of counts see Poisson.
func NewPoisson(rate float64) (*Exp, error) {
	return newPositive(expfam.PoissonFamily{}, []string{"rate"}, []float64{rate},
		[]float64{math.Log(rate)})
}

// NewGamma returns the Gamma distribution with shape a > 0 and rate b > 0,
//
//	q(z) = b^a/Γ(a) z^{a−1} e^{−bz},   η = (a, −b),   T(z) = (log z, z),   μ = (ψ(a) − log b, a/b),
//
// in the coordinates MeanParams. It has paths, quadrature and a chart (log a, log b). The error
// wraps ErrParam if a parameter is not positive and finite, and ErrNotFinite if μ overflows.
func NewGamma(shape, rate float64) (*Exp, error) {
	return newPositive(expfam.GammaFamily{}, []string{"shape", "rate"}, []float64{shape, rate},
		[]float64{shape, -rate})
}

// NewInverseGamma returns the inverse gamma distribution with shape a > 0 and scale b > 0, a common
// prior of a variance. It is the distribution of 1/x for x ~ Gamma(a, b),
//
//	q(z) = b^a/Γ(a) z^{−a−1} e^{−b/z},   η = (a, −b),   T(z) = (−log z, 1/z),   μ = (ψ(a) − log b, a/b),
//
// in the coordinates MeanParams. Paths, quadrature, chart and errors are as for NewGamma.
func NewInverseGamma(shape, scale float64) (*Exp, error) {
	return newPositive(expfam.InverseGammaFamily{}, []string{"shape", "scale"},
		[]float64{shape, scale}, []float64{shape, -scale})
}

// newPositive returns the member of f with the natural parameters eta, if all params are positive
// and finite. The error names the offending parameter. If params have a single name, the name is
// followed by the number of the parameter.
func newPositive(f Family, names []string, params, eta []float64) (*Exp, error) {
	for i, x := range params {
		if x > 0 && !math.IsInf(x, 1) {
			continue
		}
		name := names[min(i, len(names)-1)]
		if len(names) < len(params) {
			name = fmt.Sprintf("%s %d", name, i)
		}
		return nil, fmt.Errorf("pgsvi: %s of %s is %v; it must be positive and finite: %w", name,
			expfam.Name(f), x, ErrParam)
	}
	return NewExp(f, eta)
}

// NewWishart returns the Wishart distribution with ν > d − 1 degrees of freedom and scale W over
// d×d precision matrices Λ,
//
//	q(Λ) ∝ |Λ|^{(ν−d−1)/2} exp(−½ tr W⁻¹Λ),   E[Λ] = νW,
//
// in the coordinates MeanParams. The vector z holds the lower triangle of Λ row by row, with
// element (i, j), j ≤ i, at i(i+1)/2 + j. In that order T(z) = (log|Λ|, Λ) and η = (ν/2, −½W⁻¹),
// where an off-diagonal element counts twice and is −(W⁻¹)_ij. The chart is the logarithm of ν − d
// + 1 and the log-Cholesky factor of ½W⁻¹. NewWishart copies scale. The error wraps
//   - ErrEmpty if scale is nil or has no dimensions;
//   - ErrParam if df is not above d − 1 and finite;
//   - ErrNotPosDef if scale is not positive definite.
func NewWishart(df float64, scale mat.Symmetric) (*Exp, error) {
	b, d, err := wishartParams("Wishart", df, scale)
	if err != nil {
		return nil, err
	}
	f := expfam.WishartFamily{D: d}
	eta := make([]float64, f.NumParams())
	eta[0] = df / 2
	dense.Pack(eta[1:], b, d, -1, -2)
	return NewExp(f, eta)
}

// NewNormalWishart returns the conjugate prior of a Gaussian with mean x and precision matrix Λ,
// where x ~ N(m, (κΛ)⁻¹) and Λ ~ Wishart(ν, W). The vector z holds x, of d elements, and then the
// lower triangle of Λ as for NewWishart. The statistics and parameters are
//
//	T(z) = (log|Λ|, Λ, Λx, xᵀΛx),   η = (ν/2, −½(W⁻¹ + κmmᵀ), κm, −½κ)
//
// with matrices stored as for NewWishart, in the coordinates MeanParams. Center the data, because a
// large κmmᵀ would hide W⁻¹. The chart is the chart of the Wishart distribution, then m and log κ.
// NewNormalWishart copies its arguments, and a nil mean means zero. The error wraps ErrShape if
// mean and scale disagree, and ErrParam if kappa is not positive and finite. Other errors are as
// for NewWishart.
func NewNormalWishart(mean []float64, kappa, df float64, scale mat.Symmetric) (*Exp, error) {
	b, d, err := wishartParams("NormalWishart", df, scale)
	if err != nil {
		return nil, err
	}
	if mean == nil {
		mean = make([]float64, d)
	}
	if len(mean) != d {
		return nil, fmt.Errorf("pgsvi: mean of NormalWishart has %d elements, but scale is %d×%d: "+
			"%w", len(mean), d, d, ErrShape)
	}
	if !(kappa > 0) || math.IsInf(kappa, 1) {
		return nil, fmt.Errorf(
			"pgsvi: kappa of NormalWishart is %v; it must be positive and finite: %w", kappa,
			ErrParam)
	}
	f := expfam.NormalWishartFamily{Wishart: expfam.WishartFamily{D: d}}
	eta := make([]float64, f.NumParams())
	x := expfam.NormalWishart{A: df / 2, Kappa: kappa, M: mean}
	f.Pack(eta, x, b)
	return NewExp(f, eta)
}

// wishartParams returns ½W⁻¹ as a full d×d matrix.
func wishartParams(name string, df float64, scale mat.Symmetric) (b []float64, d int, err error) {
	if isNil(scale) || scale.SymmetricDim() == 0 {
		return nil, 0, fmt.Errorf("pgsvi: scale of %s is nil or empty: %w", name, ErrEmpty)
	}
	d = scale.SymmetricDim()
	if !(df > float64(d-1)) || math.IsInf(df, 1) {
		return nil, 0, fmt.Errorf("pgsvi: df of %s is %v; for %d×%d matrices it must be finite "+
			"and above %d: %w", name, df, d, d, d-1, ErrParam)
	}
	b = make([]float64, d*d)
	for i := range d {
		for j := range d {
			b[i*d+j] = scale.At(i, j)
		}
	}
	if !dense.Cholesky(b, d) {
		return nil, 0, fmt.Errorf("pgsvi: scale of %s: %w", name, ErrNotPosDef)
	}
	dense.Invert(b, d)
	floats.Scale(0.5, b)
	return b, d, nil
}

// CheckFamily tests that the functions of f agree with each other at each of the given natural
// parameters:
//
//   - Mean is the gradient of LogPartition, and Fisher is the Jacobian of Mean, by differences.
//   - LogPartition is convex on a line through η in every direction, and stays infinite once it
//     is infinite.
//   - Rand and Stat give the same T(z).
//   - Mean is the mean of T(z) over draws of Rand. Every KL between the given members is the mean
//     over draws and not negative.
//   - exp(ηᵀT − A)·h, with h from LogBase, sums or integrates to one over the region of the
//     draws, unless the draws lie in a subspace such as a simplex.
//   - Score is the gradient of LogProb, and the conversions η → μ → η of Exp return η.
//   - Each set of optional methods is complete, with the signatures in the comment of Family.
//   - The Chart is invertible, and ChartGrad agrees with differences.
//   - FisherMul and FisherSolve are products with Fisher and its inverse.
//   - Entropy is the mean of −LogProb over draws.
//   - Along the paths of RandPath, the means of T(z) and of a function of z change as the scores
//     predict.
//
// If two functions disagree, a third one decides which is wrong if possible, and otherwise the
// error names both. Pass several different η to test more than one. A nil rng means a fixed seed. A
// correct Family fails by chance once in a hundred million calls.
//
// The error joins all violations, and each wraps ErrParam. It wraps ErrEmpty if there are no
// etas, and ErrShape if one of them does not have NumParams elements.
func CheckFamily(f Family, rng *rand.Rand, etas ...[]float64) error {
	if f == nil {
		return fmt.Errorf("pgsvi: the Family of CheckFamily is nil: %w", ErrParam)
	}
	if len(etas) == 0 {
		return fmt.Errorf("pgsvi: CheckFamily has no natural parameters to check: %w", ErrEmpty)
	}
	d, n := f.Dim(), f.NumParams()
	if d < 1 || n < 1 {
		return fmt.Errorf("pgsvi: %T: Dim is %d and NumParams is %d; both must be positive: %w", f,
			d, n, ErrParam)
	}
	for i, eta := range etas {
		if len(eta) != n {
			return fmt.Errorf("pgsvi: %T: eta %d has %d elements, but NumParams is %d: %w", f, i,
				len(eta), n, ErrShape)
		}
	}
	env := &Env{Rng: rng}
	return famcheck.Check(f, env.rng, etas)
}

// ProductOf returns the distribution of independent parts q_1(z_1) q_2(z_2) … (mean field). Each
// part is an Exp of any Family or a Gaussian, and is copied. The z, η, T, μ and charts of the
// product are concatenated from the parts, and its cost is the sum of their costs. The product has
// paths if all parts have paths. Its coordinates are MeanParams. The error wraps ErrEmpty if there
// are no parts, and ErrParam if a part is nil.
func ProductOf(parts ...ExpFamily) (*Exp, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("pgsvi: ProductOf has no parts; it needs at least one: %w", ErrEmpty)
	}
	families := make([]expfam.Family, len(parts))
	var eta []float64
	for i, p := range parts {
		switch q := p.(type) {
		case *Exp:
			if q == nil {
				return nil, fmt.Errorf("pgsvi: part %d of ProductOf is nil: %w", i, ErrParam)
			}
			families[i] = q.at.F
		case *Gaussian:
			if q == nil {
				return nil, fmt.Errorf("pgsvi: part %d of ProductOf is nil: %w", i, ErrParam)
			}
			families[i] = normal.Family{D: q.Dim(), Diagonal: q.isDiagonal()}
		default:
			return nil, fmt.Errorf("pgsvi: part %d of ProductOf is nil: %w", i, ErrParam)
		}
		eta = append(eta, p.Natural(nil)...)
	}
	return NewExp(expfam.Product(families), eta)
}

// Factors returns copies of the parts of a product, each an Exp or a Gaussian in the coordinates
// MeanParams. If q is not a product, it returns only a copy of q.
func (q *Exp) Factors() []ExpFamily {
	var parts []ExpFamily
	product := expfam.EachPart(q.at.F, func(_ int, g expfam.Family, _, i, j int) {
		if n, ok := g.(normal.Family); ok {
			parts = append(parts, &Gaussian{n.At(q.at.Eta[i:j]).In(normal.MeanParams)})
			return
		}
		p := expfam.New(g)
		copy(p.Eta, q.at.Eta[i:j])
		copy(p.Mu, q.at.Mu[i:j])
		parts = append(parts, &Exp{p, MeanParams})
	})
	if !product {
		return []ExpFamily{q.In(MeanParams)}
	}
	return parts
}
