// Package normal implements Gaussians N(m, V) with a full or a diagonal covariance, in any of five
// coordinate systems. It converts parameters and gradients between them, and computes KL divergences
// and proximal steps with closed forms.
//
// Full and Diagonal implement Form. Family makes them parts of products of exponential families.
// StepMoments and StepCholesky are the closed forms of the steps in (m, V) and in (m, L); the root
// package chooses between them in divergence.go.
package normal

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// Coords is the meaning of λ: see pgsvi.Coordinates.
type Coords int

// The coordinate systems.
const (
	MeanParams  Coords = iota // (m, V + mmᵀ)
	MeanCov                   // (m, V)
	Natural                   // (V⁻¹m, −½V⁻¹)
	Cholesky                  // (m, L) with V = LLᵀ
	LogCholesky               // the same, with log L_ii
)

// Form is a Gaussian, *Full or *Diagonal. Gradients in V have the length NumGradV. They are full d×d
// matrices whose symmetric part counts, or diagonals.
type Form interface {
	Coords() Coords
	Dim() int
	NumParams() int
	Params(dst []float64) []float64
	// SetParams changes nothing and returns an error if lambda is not a Gaussian.
	SetParams(lambda []float64) error
	LogProb(z []float64) float64
	Score(dst, z []float64) []float64
	Natural(dst []float64) []float64
	SetNatural(eta []float64) error
	MeanParams(dst []float64) []float64
	SetMeanParams(mu []float64) error
	LogPartition() float64
	MeanGrad(dst, grad []float64) []float64
	FromMeanGrad(dst, grad []float64) []float64
	FromNaturalGrad(dst, grad []float64) []float64
	Chart(dst []float64) []float64
	SetChart(x []float64) error
	ChartGrad(dst, grad []float64) []float64

	// In returns a copy in the coordinates c.
	In(c Coords) Form
	// SetForm copies the distribution p, to the bit, and keeps the coordinates. It reports false and
	// changes nothing if p is of another kind or dimension.
	SetForm(p Form) bool
	Mean() []float64 // not a copy
	MeanAt(i int) float64
	CovAt(i, j int) float64
	PrecisionAt(i, j int) float64
	MulPrecision(dst, x []float64)
	Pull(dst, m []float64) // see Prior
	LogDetV() float64
	NumGradV() int
	// SetPrecision sets q to N(m, V) with V⁻¹ = p, of length NumGradV. It returns the same errors as
	// SetParams.
	SetPrecision(m, p []float64) error
	// FromMomentGrad turns gradients in m and V into the gradient in λ. ToMomentGrad inverts it.
	FromMomentGrad(dst, gm, gv []float64) []float64
	ToMomentGrad(gm, gv, grad []float64)
	// Marginal returns the mean and the variance of xᵀz.
	Marginal(x []float64) (m, v float64)
	// AddOuter adds c·uwᵀ to a gradient in V, and AddPrecision adds c·V⁻¹.
	AddOuter(gv []float64, c float64, u, w []float64)
	AddPrecision(gv []float64, c float64)
	// Transform replaces a standard normal ε by a draw z. Standardize stores V⁻¹(z − m) in dst.
	Transform(eps []float64)
	Standardize(dst, eps []float64)
	// Save writes or reads everything except the coordinates.
	Save(c *save.Coder)
}

// KL returns KL(q‖p) in nats. It panics if the dimensions differ.
func KL(q, p Form) float64 {
	d := q.Dim()
	if p.Dim() != d {
		panic("pgsvi: KL between distributions of different dimensions")
	}
	if g, ok := q.(*Full); ok && g.HasFactor() {
		return g.FactorKL(make([]float64, g.NumParams()), p)
	}
	diff, w := make([]float64, d), make([]float64, d)
	var trace float64
	// If one of the two matrices is diagonal, only the diagonal of the other one counts.
	diagonal := q.NumGradV() == d || p.NumGradV() == d
	for i := range d {
		diff[i] = q.MeanAt(i) - p.MeanAt(i)
		if diagonal {
			trace += p.PrecisionAt(i, i) * q.CovAt(i, i)
			continue
		}
		for j := range d {
			trace += p.PrecisionAt(i, j) * q.CovAt(i, j)
		}
	}
	p.MulPrecision(w, diff)
	kl := 0.5 * (trace - float64(d) + dense.Dot(dense.Vector(diff), dense.Vector(w)) +
		p.LogDetV() - q.LogDetV())
	return math.Max(0, kl)
}

// KLGrad stores ∇_λ KL(q‖p) in dst. Each of q and p may be full or diagonal. With the mean μ and the
// precision P of p, ∇_m = P(m − μ) and ∇_V = ½(P − V⁻¹).
func KLGrad(dst []float64, q, p Form) []float64 {
	if g, ok := q.(*Full); ok && g.HasFactor() {
		dst = dense.Dest(dst, g.NumParams())
		g.FactorKL(dst, p)
		return dst
	}
	return PriorGrad(dst, q, p)
}

// PriorGrad stores the gradient of −H(q) + E_q[½zᵀPz − bᵀz] in dst, with ∇_m = Pm − b and ∇_V =
// ½(P − V⁻¹). In factors it is ∇_L = PL − L⁻ᵀ, whose lower triangle needs no V⁻¹.
func PriorGrad(dst []float64, q Form, p Prior) []float64 {
	d := q.Dim()
	gm, gv := make([]float64, d), make([]float64, q.NumGradV())
	p.Pull(gm, q.Mean())
	halfPrecision(gv, p, d)
	g, ok := q.(*Full)
	if !ok || !g.HasFactor() {
		q.AddPrecision(gv, -0.5)
		return q.FromMomentGrad(dst, gm, gv)
	}
	dst = q.FromMomentGrad(dst, gm, gv)
	k := d - 1
	for i := range d {
		k += i + 1
		if g.coords == LogCholesky {
			dst[k]--
		} else {
			dst[k] -= 1 / g.l[i*d+i]
		}
	}
	return dst
}

// NegEntropy returns −H(q) in nats.
func NegEntropy(q Form) float64 {
	return -0.5 * (q.LogDetV() + float64(q.Dim())*(1+expfam.Log2Pi))
}

// Prior is the density exp(bᵀz − ½zᵀPz), up to a constant factor, as the steps need it. A Form with
// precision P is a Prior, and so is the result of Unnormalized, whose P may be singular.
type Prior interface {
	NumGradV() int
	PrecisionAt(i, j int) float64
	// Pull stores Pm − b, the gradient of the negative logarithm at m, in dst.
	Pull(dst, m []float64)
}

// pull is Prior.Pull of a Form: it stores P(m − μ) in dst.
func pull(p Form, dst, m []float64) {
	diff := make([]float64, len(m))
	for i, x := range m {
		diff[i] = x - p.MeanAt(i)
	}
	p.MulPrecision(dst, diff)
}

// unnormalized is the Prior of natural parameters.
type unnormalized struct {
	eta      []float64 // b, and then −½P in the layout of Natural
	d        int
	diagonal bool
}

// Unnormalized returns the Prior with the natural parameters eta, in the layout of q. It keeps eta,
// which need not be the natural parameters of a distribution.
func Unnormalized(q Form, eta []float64) Prior {
	return unnormalized{eta, q.Dim(), q.NumGradV() == q.Dim()}
}

// NumGradV implements Prior.
func (p unnormalized) NumGradV() int {
	if p.diagonal {
		return p.d
	}
	return p.d * p.d
}

// PrecisionAt implements Prior. Natural stores −P_ij, the sum of both places, off the diagonal.
func (p unnormalized) PrecisionAt(i, j int) float64 {
	switch {
	case p.diagonal && i != j:
		return 0
	case p.diagonal:
		return -2 * p.eta[p.d+i]
	case i == j:
		return -2 * p.eta[p.d+i*(i+3)/2]
	}
	i, j = max(i, j), min(i, j)
	return -p.eta[p.d+i*(i+1)/2+j]
}

// Pull implements Prior.
func (p unnormalized) Pull(dst, m []float64) {
	for i := range dst {
		dst[i] = -p.eta[i]
		if p.diagonal {
			dst[i] += p.PrecisionAt(i, i) * m[i]
			continue
		}
		for j, x := range m {
			dst[i] += p.PrecisionAt(i, j) * x
		}
	}
}

// halfPrecision stores ½P in gv, or its diagonal if gv has length d.
func halfPrecision(gv []float64, p Prior, d int) {
	for i := range d {
		if len(gv) == d {
			gv[i] = 0.5 * p.PrecisionAt(i, i)
			continue
		}
		for j := range d {
			gv[i*d+j] = 0.5 * p.PrecisionAt(i, j)
		}
	}
}

// StepMoments sets q to the proximal step from n0 under KL, for a gradient g in the coordinates (m, V):
//
//	argmin_λ  gᵀλ + KL(q‖prior) + KL(q‖n0)/β
//
// A nil prior leaves the prior out. With an unnormalized prior, KL(q‖prior) is −H(q) + E_q[½zᵀPz −
// bᵀz]. StepMoments reports false if there is no closed form, which is so for a diagonal q with a
// full prior.
func StepMoments(q Form, g []float64, prior Prior, n0 Form, beta float64) (bool, error) {
	d := q.Dim()
	gm, gv := make([]float64, d), make([]float64, q.NumGradV())
	q.ToMomentGrad(gm, gv, g)
	m, p := make([]float64, d), make([]float64, q.NumGradV())
	for i := range m {
		m[i] = n0.MeanAt(i)
	}
	if prior == nil {
		// V₊⁻¹ = V⁻¹ + 2βG, m₊ = m − βVg.
		n0.AddPrecision(p, 1)
		floats.AddScaled(p, 2*beta, gv)
		for i := range m {
			for j := range d {
				m[i] -= beta * n0.CovAt(i, j) * gm[j]
			}
		}
		return true, q.SetPrecision(m, p)
	}
	if q.NumGradV() < prior.NumGradV() {
		return false, nil
	}
	r := 1 / (1 + beta)
	// The step of the mean solves [(1−r)P + rV⁻¹] δ = P(m − μ) + g.
	rhs := make([]float64, d)
	prior.Pull(rhs, m)
	floats.Add(rhs, gm)
	halfPrecision(p, prior, d)
	floats.Scale(2*(1-r), p)
	n0.AddPrecision(p, r)
	if err := q.SetPrecision(make([]float64, d), p); err != nil {
		return true, err
	}
	for i := range m {
		for j := range d {
			m[i] -= (1 - r) * q.CovAt(i, j) * rhs[j]
		}
	}
	floats.AddScaled(p, 2*(1-r), gv)
	return true, q.SetPrecision(m, p)
}

// StepCholesky sets q, whose λ is (m, L), to the proximal step under the Euclidean distance from the
// parameters x, for a gradient grad in λ:
//
//	argmin_λ  gᵀλ + h(λ) + ½‖λ − x‖²/β,   h = KL(q‖N(μ, P⁻¹)).
//
// It overwrites x. With an unnormalized prior, h is −H(q) + E_q[½zᵀPz − bᵀz].
//
// h = ½(m − μ)ᵀP(m − μ) + ½ tr LᵀPL − Σ_i log L_ii is a sum over m and the columns of L, and so is the
// distance. With M = P + I/β the mean solves M(m₊ − m) = −(P(m − μ) + g). Column j of L, from row j
// down, solves M_j x = b + e/x_j, where M_j is the block of M for these rows, b = L/β − G there, and e
// is the first unit vector. Element j is the positive root of x² − cx − a with c = (M_j⁻¹b)_j and
// a = (M_j⁻¹)_jj. If rows and columns are reversed, the blocks M_j are leading blocks, so one Cholesky
// factor serves all columns. If q is diagonal, each column has one element.
func StepCholesky(q Form, x, grad []float64, prior Prior, beta float64) error {
	d := q.Dim()
	inv := 1 / beta
	rhs, step := make([]float64, d), make([]float64, d)
	prior.Pull(step, x[:d])
	for i := range step {
		step[i] = -(step[i] + grad[i])
	}
	b := x[d:]
	for i, g := range grad[d:] {
		b[i] = inv*b[i] - g
	}
	_, diagonal := q.(*Diagonal)
	diagonalPrior := prior.NumGradV() == d
	var m []float64 // the Cholesky factor of M in reversed order, for a full prior
	if !diagonalPrior {
		m = make([]float64, d*d)
		for i := range d {
			for j := range d {
				m[i*d+j] = prior.PrecisionAt(d-1-i, d-1-j)
			}
			m[i*d+i] += inv
		}
		if !dense.Cholesky(m, d) {
			return fmt.Errorf("pgsvi: precision of the prior plus 1/β: %w", sentinel.ErrNotPosDef)
		}
		slices.Reverse(step)
		dense.Potrs(m, step)
		slices.Reverse(step)
	} else {
		for i := range step {
			step[i] /= prior.PrecisionAt(i, i) + inv
		}
	}
	floats.Add(x[:d], step)
	switch {
	case diagonal:
		for i := range b {
			a := 1 / (prior.PrecisionAt(i, i) + inv)
			b[i] = positiveRoot(a*b[i], a)
		}
	case diagonalPrior:
		k := 0
		for i := range d {
			a := 1 / (prior.PrecisionAt(i, i) + inv)
			floats.Scale(a, b[k:k+i+1])
			k += i + 1
			b[k-1] = positiveRoot(b[k-1], a)
		}
	default:
		col := rhs
		for j := range d {
			n := d - j
			for i := j; i < d; i++ {
				col[d-1-i] = b[i*(i+1)/2+j]
			}
			l := blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Data: m, Stride: d}
			dense.Trsv(blas.NoTrans, l, dense.Vector(col[:n]))
			last := m[(n-1)*d+n-1]
			root := positiveRoot(col[n-1]/last, 1/(last*last))
			col[n-1] += 1 / (last * root)
			dense.Trsv(blas.Trans, l, dense.Vector(col[:n]))
			for i := j; i < d; i++ {
				b[i*(i+1)/2+j] = col[d-1-i]
			}
		}
	}
	return q.SetParams(x)
}

// positiveRoot returns the positive root of x² − cx − a, a > 0, without cancellation.
func positiveRoot(c, a float64) float64 {
	r := math.Hypot(c/2, math.Sqrt(a))
	if c < 0 {
		return a / (r - c/2)
	}
	return r + c/2
}
