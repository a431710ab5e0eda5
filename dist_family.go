package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/famcheck"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Family is an exponential family of your own,
//
//	q(z|η) = h(z) exp(ηᵀT(z) − A(η)),
//
// described by functions of its natural parameters η. NewExp makes distributions of it, with
// score, KL, coordinates and steps. CheckFamily tests the functions.
//
// A Family is immutable and safe for concurrent use. No function may keep or change its
// arguments, except those that receive the result. The elements of T must be linearly
// independent, so that the Fisher information is positive definite: a distribution over K
// categories has K−1 natural parameters. Two members are of one family if their Family values are
// equal by reflect.DeepEqual.
type Family interface {
	// Dim returns the length of z.
	Dim() int
	// NumParams returns the length of η and of T(z).
	NumParams() int
	// LogPartition returns A(η). It must return +Inf, or NaN, if η is not valid: steps that lead
	// there are detected by this and shortened.
	LogPartition(eta []float64) float64
	// Mean stores the mean parameters μ = E[T(z)] = ∇A(η) in dst.
	Mean(dst, eta []float64)
	// Fisher stores the Fisher information ∇²A(η), the covariance of T(z), in dst, which is zero
	// on entry.
	Fisher(dst *mat.SymDense, eta []float64)
	// Stat stores the sufficient statistics T(z) in dst.
	Stat(dst, z []float64)
	// LogBase returns log h(z), −Inf outside the support.
	LogBase(z []float64) float64
	// Rand stores a draw from q(z|η) in z and its statistics T(z) in t. T(z) is usually Stat of
	// z. If z underflows, as a Gamma of small shape may, compute logarithms in T(z) from the
	// variables that z was drawn from.
	Rand(z, t, eta []float64, rng *rand.Rand)
}

// FisherFamily is a Family with fast products by its Fisher information and the inverse. Steps
// then do not call Fisher. Without it an Exp factorises Fisher.
type FisherFamily interface {
	Family
	// FisherMul stores F·g in dst, which may be g.
	FisherMul(dst, g, eta []float64)
	// FisherSolve stores F⁻¹g in dst, which may be g.
	FisherSolve(dst, g, eta []float64)
}

// EntropyFamily is a Family that knows the entropy −E[log q(z|η)]. If h is not constant, A and μ
// do not determine it.
type EntropyFamily interface {
	Family
	// Entropy returns the entropy in nats, NaN where it is not known.
	Entropy(eta []float64) float64
}

// PathFamily is a Family whose draws are differentiable in η for fixed randomness, as Pathwise
// requires (reparameterisation). The derivative of a draw may be the implicit one,
// −(∂F(z|η)/∂η)/q(z|η) with F the distribution function (Figurnov, Mohamed and Mnih, 2018).
type PathFamily interface {
	Family
	// AuxLen returns the length of aux.
	AuxLen() int
	// RandPath is Rand, and also stores in aux what PathGrad needs of the draw beside z.
	RandPath(z, t, aux, eta []float64, rng *rand.Rand)
	// PathGrad adds Σ_j (∂z_j/∂η)·∂/∂z_j (l(z) + cᵀT(z)) to dst, for the draw of z and aux and a
	// function l with the gradient dl at z. If z underflows, use the limit of dl times z.
	PathGrad(dst, dl, c, z, aux, eta []float64)
}

// ChartFamily is a Family with a chart x ∈ R^NumParams of the valid η, such as the logarithm of a
// rate. Without one the chart is η itself, whose domain may have edges. The numeric proximal step
// works in the chart.
type ChartFamily interface {
	Family
	// Chart stores x in dst.
	Chart(dst, eta []float64)
	// FromChart stores η(x) in dst. Every finite x must give a valid η, unless it overflows.
	FromChart(dst, x []float64)
	// ChartGrad stores (∂η/∂x)ᵀg in dst, at the x of eta; dst may be g.
	ChartGrad(dst, g, eta []float64)
}

// Exp is a member q(z|η) of a Family. It stores η. Its λ are the mean parameters μ, or η after
// In(Natural). With λ = μ and the KL divergence a step averages natural parameters and never
// computes η from μ.
type Exp struct {
	at     *expfam.Member
	coords Coordinates
}

// use implements halting.
func (q *Exp) use(h *parallel.Halt) { q.at.Use(h) }

// NewExp returns the member of f with the natural parameters eta, which are copied, in the
// coordinates MeanParams. The error wraps
//   - ErrParam if f is nil;
//   - ErrEmpty if it has no dimensions or no parameters;
//   - ErrShape if eta does not have NumParams elements;
//   - ErrNotFinite if an element of η or of μ is not finite;
//   - ErrNotPosDef if A(η) is not finite or the Fisher information is not positive definite.
func NewExp(f Family, eta []float64) (*Exp, error) {
	if f == nil {
		return nil, fmt.Errorf("pgsvi: NewExp needs a Family: %w", ErrParam)
	}
	n := f.NumParams()
	if n < 1 || f.Dim() < 1 {
		return nil, fmt.Errorf("pgsvi: %s has dimension %d and %d parameters: %w", expfam.Name(f),
			f.Dim(), n, ErrEmpty)
	}
	if len(eta) != n {
		return nil, fmt.Errorf("pgsvi: %s has %d natural parameters, eta has %d elements: %w",
			expfam.Name(f), n, len(eta), ErrShape)
	}
	q := expfam.New(f)
	if err := q.SetNatural(eta); err != nil {
		return nil, err
	}
	if q.Degenerate() {
		return nil, fmt.Errorf("pgsvi: Fisher information of %s at eta = %.6g: %w", expfam.Name(f),
			expfam.First(eta), ErrNotPosDef)
	}
	return &Exp{q, MeanParams}, nil
}

// Family returns the family of q.
func (q *Exp) Family() Family { return q.at.F }

// In returns a copy of q with λ in the coordinates c. It panics unless c is MeanParams or
// Natural.
func (q *Exp) In(c Coordinates) *Exp {
	if c != MeanParams && c != Natural {
		panic(fmt.Sprintf("pgsvi: an Exp has no λ in the coordinates %v", c))
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

// SetMeanParams implements ExpFamily: it solves ∇A(η) = μ by minimising the convex A(η) − ηᵀμ.
// Some families of this package have a closed form. Others use Newton's method with the Fisher
// information, from the η of q; a step is halved until it is valid and decreases. If mu is not
// attained the error wraps ErrNotPosDef.
func (q *Exp) SetMeanParams(mu []float64) error { return q.at.SetMeanParams(mu) }

// LogPartition implements ExpFamily.
func (q *Exp) LogPartition() float64 { return q.at.LogPartition() }

// LogProb implements Dist.
func (q *Exp) LogProb(z []float64) float64 { return q.at.LogProb(z) }

// Score implements Dist. In natural parameters it is T(z) − μ.
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

// Entropy returns −E_q[log q(z)] in nats, or NaN if the Family is not an EntropyFamily.
func (q *Exp) Entropy() float64 {
	if f, ok := q.at.F.(EntropyFamily); ok {
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

// KL returns KL(q‖p) = A(η_p) − A(η) − (η_p − η)ᵀμ in nats. It panics if p is
// not of the same Family.
func (q *Exp) KL(p Dist) float64 {
	o, ok := p.(*Exp)
	if !ok || !q.at.SameFamily(o.at) {
		panic(fmt.Sprintf("pgsvi: KL from %s to a distribution of another family, %s", distName(q),
			distName(p)))
	}
	return q.at.KL(o.at)
}

// distName returns the name of q in errors.
func distName(q Dist) string {
	if e, ok := q.(*Exp); ok {
		return expfam.Name(e.at.F)
	}
	return fmt.Sprintf("%T of dimension %d", q, q.Dim())
}

// Chart implements Charted by ChartFamily, or by η.
func (q *Exp) Chart(dst []float64) []float64 { return q.at.Chart(dst) }

// SetChart implements Charted.
func (q *Exp) SetChart(x []float64) error { return q.at.SetChart(x) }

// ChartGrad implements Charted.
func (q *Exp) ChartGrad(dst, grad []float64) []float64 {
	dst = q.convertGrad(dst, grad, q.coords, Natural)
	q.at.ChartGrad(dst)
	return dst
}

// klProx replaces q by the step from a member from of its family under KL in mean parameters. It
// reports false and changes nothing if prior is of another family.
func (q *Exp) klProx(from *Exp, g []float64, prior ExpFamily, beta float64) (bool, error) {
	var p *expfam.Member
	if prior != nil {
		o, ok := prior.(*Exp)
		if !ok || !q.at.SameFamily(o.at) {
			return false, nil
		}
		p = o.at
	}
	return true, q.at.Step(from.at, g, p, beta)
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

func (q *Exp) state(c *save.State) { q.at.Save(c) }

// NewBeta returns the Beta distribution over (0, 1) with a, b > 0,
//
//	q(z) ∝ z^{a−1} (1−z)^{b−1},   η = (a, b),   T(z) = (log z, log(1−z)),   μ = (ψ(a) − ψ(a+b), ψ(b) − ψ(a+b)),
//
// in the coordinates MeanParams. It has paths, quadrature and a chart (log a, log b). It returns an
// error wrapping ErrParam if a parameter is not positive and finite.
func NewBeta(a, b float64) (*Exp, error) {
	return newPositive(expfam.BetaFamily{}, []string{"a", "b"}, []float64{a, b}, []float64{a, b})
}

// NewDirichlet returns the Dirichlet distribution over the simplex of K ≥ 2 parts,
//
//	q(z) ∝ Π_k z_k^{α_k−1},   η = α,   T(z)_k = log z_k,   μ_k = ψ(α_k) − ψ(Σα),
//
// in the coordinates MeanParams; alpha is copied. z has K elements that sum to 1, and densities
// are with respect to the first K−1 of them. T(z) of a draw holds the logarithms of parts that
// underflow. It has paths and a chart, log α; its work is of order K. The error wraps ErrEmpty if
// there are fewer than two α, and ErrParam if one is not positive and finite.
func NewDirichlet(alpha []float64) (*Exp, error) {
	if len(alpha) < 2 {
		return nil, fmt.Errorf("pgsvi: NewDirichlet needs at least two α, not %d: %w", len(alpha),
			ErrEmpty)
	}
	return newPositive(expfam.DirichletFamily{K: len(alpha)}, []string{"α"}, alpha, alpha)
}

// NewBernoulli returns the distribution of z = 1 with probability p, else 0,
//
//	η = log p/(1−p),   T(z) = z,   μ = p,
//
// in the coordinates MeanParams. It has quadrature, which is the sum. It returns an error wrapping
// ErrParam unless 0 < p < 1.
func NewBernoulli(p float64) (*Exp, error) {
	if !(p > 0 && p < 1) {
		return nil, fmt.Errorf("pgsvi: p of Bernoulli is %v; it must be between 0 and 1: %w", p,
			ErrParam)
	}
	return NewExp(expfam.CategoricalFamily{K: 2}, []float64{math.Log(p) - math.Log1p(-p)})
}

// NewCategorical returns the distribution of z = k with probability in proportion to the weight
// p_k, k = 0 … K−1, K ≥ 2,
//
//	η_k = log p_{k+1}/p_0,   T(z)_k = 1 if z = k+1, else 0,   μ_k = p_{k+1},   k = 0 … K−2,
//
// in the coordinates MeanParams. It has one parameter fewer than categories, so that they are
// independent. Its quadrature is the sum. The error wraps ErrEmpty if there are fewer than two
// weights, and ErrParam if one is not positive and finite.
func NewCategorical(p []float64) (*Exp, error) {
	if len(p) < 2 {
		return nil, fmt.Errorf("pgsvi: NewCategorical needs at least two weights, not %d: %w",
			len(p), ErrEmpty)
	}
	eta := make([]float64, len(p))
	for k, x := range p {
		eta[k] = math.Log(x) - math.Log(p[0])
	}
	return newPositive(expfam.CategoricalFamily{K: len(p)}, []string{"weight"}, p, eta[1:])
}

// NewPoisson returns the Poisson distribution of a rate λ > 0 over z = 0, 1, 2 …,
//
//	q(z) = λ^z e^{−λ}/z!,   η = log λ,   T(z) = z,   μ = λ,
//
// in the coordinates MeanParams. It has quadrature, which is the sum. It returns an error wrapping
// ErrParam if rate is not positive and finite. The likelihood of counts is Poisson.
func NewPoisson(rate float64) (*Exp, error) {
	return newPositive(expfam.PoissonFamily{}, []string{"rate"}, []float64{rate},
		[]float64{math.Log(rate)})
}

// NewGamma returns the Gamma distribution of a shape a > 0 and a rate b > 0,
//
//	q(z) = b^a/Γ(a) z^{a−1} e^{−bz},   η = (a, −b),   T(z) = (log z, z),   μ = (ψ(a) − log b, a/b),
//
// in the coordinates MeanParams. It has paths, quadrature and a chart (log a, log b). It returns an
// error wrapping ErrParam if a parameter is not positive and finite, or ErrNotFinite if μ
// overflows.
func NewGamma(shape, rate float64) (*Exp, error) {
	return newPositive(expfam.GammaFamily{}, []string{"shape", "rate"}, []float64{shape, rate},
		[]float64{shape, -rate})
}

// NewInverseGamma returns the inverse gamma distribution, a common prior of a variance: that of
// 1/x, x ~ Gamma(a, b), with shape a > 0 and scale b > 0,
//
//	q(z) = b^a/Γ(a) z^{−a−1} e^{−b/z},   η = (a, −b),   T(z) = (−log z, 1/z),   μ = (ψ(a) − log b, a/b),
//
// in the coordinates MeanParams. Paths, quadrature, chart and errors are those of NewGamma.
func NewInverseGamma(shape, scale float64) (*Exp, error) {
	return newPositive(expfam.InverseGammaFamily{}, []string{"shape", "scale"},
		[]float64{shape, scale}, []float64{shape, -scale})
}

// newPositive returns the member of f with the natural parameters eta, if the parameters, which
// errors name, are all positive and finite. A single name of several is that of each of them, by
// number.
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
// in the coordinates MeanParams. z is the lower triangle of Λ, row by row: element (i, j), j ≤ i,
// at i(i+1)/2 + j. In that order T(z) = (log|Λ|, Λ) and η = (ν/2, −½W⁻¹), in which an element off
// the diagonal counts twice and is −(W⁻¹)_ij. The chart is the logarithm of ν − d + 1 and the
// log-Cholesky factor of ½W⁻¹. scale is copied. The error wraps
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

// NewNormalWishart returns the conjugate prior of a Gaussian: a mean x and a precision matrix Λ
// with x ~ N(m, (κΛ)⁻¹) and Λ ~ Wishart(ν, W). z is x, of d elements, then the lower triangle of
// Λ as for NewWishart, and
//
//	T(z) = (log|Λ|, Λ, Λx, xᵀΛx),   η = (ν/2, −½(W⁻¹ + κmmᵀ), κm, −½κ)
//
// with the matrix as for NewWishart, in the coordinates MeanParams. Center the data: a large κmmᵀ
// would hide W⁻¹. The chart is that of the Wishart distribution, m and log κ. The arguments are
// copied; a nil mean means zero. The error wraps ErrShape if mean and scale disagree, ErrParam if
// kappa is not positive and finite, or is one of NewWishart.
func NewNormalWishart(mean []float64, kappa, df float64, scale mat.Symmetric) (*Exp, error) {
	b, d, err := wishartParams("NormalWishart", df, scale)
	if err != nil {
		return nil, err
	}
	if mean == nil {
		mean = make([]float64, d)
	}
	if len(mean) != d {
		return nil, fmt.Errorf("pgsvi: mean of NormalWishart has %d elements, scale is %d×%d: %w",
			len(mean), d, d, ErrShape)
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

// wishartParams returns ½W⁻¹, in full.
func wishartParams(name string, df float64, scale mat.Symmetric) (b []float64, d int, err error) {
	if isNil(scale) || scale.SymmetricDim() == 0 {
		return nil, 0, fmt.Errorf("pgsvi: %s needs a scale matrix: %w", name, ErrEmpty)
	}
	d = scale.SymmetricDim()
	if !(df > float64(d-1)) || math.IsInf(df, 1) {
		return nil, 0, fmt.Errorf(
			"pgsvi: df of %s is %v; of %d×%d matrices it must be above %d and finite: %w", name, df,
			d, d, d-1, ErrParam)
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

// CheckFamily tests that the functions of f agree with each other, at each of the given natural
// parameters:
//
//   - Mean is the gradient of LogPartition, and Fisher the Jacobian of Mean, by differences;
//   - LogPartition is convex on a line through η in every direction, and stays infinite once it
//     is;
//   - the T(z) of Rand is that of Stat;
//   - Mean is the mean of T(z) over draws of Rand; so is every KL of the given members, which is
//     not negative;
//   - exp(ηᵀT − A)·h, with h by LogBase, sums or integrates to one over the region of the draws,
//     unless these lie in a subspace, as on a simplex;
//   - Score is the gradient of LogProb, and the conversions η → μ → η of Exp return η;
//   - the chart of a ChartFamily is invertible, and its ChartGrad agrees with differences;
//   - FisherMul and FisherSolve of a FisherFamily are products with Fisher and its inverse;
//   - the Entropy of an EntropyFamily is the mean of −LogProb over draws;
//   - along the paths of a PathFamily, the means of T(z) and of a function of z change as by the
//     scores.
//
// If two functions disagree, a third decides which one is wrong where possible; otherwise the
// error names both. Several different η test more than one. A nil rng means a fixed seed. A
// correct Family fails by chance once in a hundred million times. The error joins every
// violation, each wrapping ErrParam. It wraps ErrEmpty if there are no etas, and ErrShape if one
// does not have NumParams elements.
func CheckFamily(f Family, rng *rand.Rand, etas ...[]float64) error {
	if f == nil {
		return fmt.Errorf("pgsvi: CheckFamily needs a Family: %w", ErrParam)
	}
	if len(etas) == 0 {
		return fmt.Errorf("pgsvi: CheckFamily needs natural parameters: %w", ErrEmpty)
	}
	d, n := f.Dim(), f.NumParams()
	if d < 1 || n < 1 {
		return fmt.Errorf("pgsvi: %T: Dim is %d and NumParams is %d; both must be positive: %w", f,
			d, n, ErrParam)
	}
	for i, eta := range etas {
		if len(eta) != n {
			return fmt.Errorf("pgsvi: %T: eta %d has %d elements, NumParams is %d: %w", f, i,
				len(eta), n, ErrShape)
		}
	}
	env := &Env{Rng: rng}
	return famcheck.Check(f, env.rng, etas)
}

// ProductOf returns the distribution of independent parts q_1(z_1) q_2(z_2) … (mean field), each
// an Exp of any Family or a Gaussian. Its z, η, T, μ and charts are the concatenation of those of
// the parts, and its work is the sum of theirs. It has paths if all parts have. The parts are
// copied; the coordinates are MeanParams. The error wraps ErrEmpty if there are no parts, and
// ErrParam if one is nil.
func ProductOf(parts ...ExpFamily) (*Exp, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("pgsvi: ProductOf needs parts: %w", ErrEmpty)
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
// MeanParams. For any other q it returns q alone.
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
