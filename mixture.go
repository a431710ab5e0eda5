package pgsvi

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/mixture"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Mixture clusters rows by a Bayesian mixture of K Gaussians (Gaussian mixture model, GMM; Bishop,
// "Pattern Recognition and Machine Learning", 2006, section 10.2). For N rows x_n of D numbers with
// mean x̄, the model is
//
//	π ~ Dirichlet(Weight, …)
//	(m_k, Λ_k) ~ NormalWishart(x̄, Kappa, DF, Cov⁻¹)
//	x_n|s_n = k ~ N(m_k, Λ_k⁻¹),   p(s_n = k) = π_k
//
// It is an Objective over q(π) Π_k q(m_k, Λ_k), a Dirichlet and K NormalWishart distributions,
// where f comes from Conjugate and h is the KL to the prior. The optimal q(s_n) has the
// probabilities r_nk, called responsibilities.
//
// It is a Model whose terms are the rows. With a nil Solver it takes coordinate ascent steps over
// all rows until the exact ELBO, which never falls, stops rising. Superfluous components would
// empty slowly, so after ten steps the most overlapping components are joined, pair by pair, if
// that raises the ELBO. A component that loses its rows returns to the prior. With a
// Solver.BatchSize, the fit is stochastic variational inference without joining. The ELBO has
// several optima, so fit with several Solver.Src and keep the fit with the highest ELBO. The order
// of the components has no meaning. A Mixture is immutable and safe for concurrent use.
type Mixture struct {
	n, d, k int
	z       []float64 // the rows as z = L⁻¹(x − x̄), N×D
	space   mixture.Space
	prior   *Exp
	start   *mat.Dense // nil means a random start
}

// MixtureOptions holds the options of a Mixture. The zero value and a nil pointer mean the
// defaults.
type MixtureOptions struct {
	// Weight is the parameter of the Dirichlet prior of the weights, in rows per component. Zero
	// means 1. A small value such as 0.01 empties superfluous components.
	Weight float64
	// Kappa is the weight of the prior mean, in rows. Zero means 1.
	Kappa float64
	// DF is the number of degrees of freedom in the prior of Λ_k. It must be above D − 1. Zero
	// means D.
	DF float64
	// Cov is the inverse of the prior scale of Λ_k, D×D. A component without rows has the
	// covariance Cov/DF. Nil means the covariance of the rows, with N − 1 in the denominator.
	// NewMixture copies Cov.
	Cov mat.Symmetric
	// Start holds the initial responsibilities, N×K. Its elements must not be negative, and no row
	// may sum to 0. NewMixture copies Start, and its components are never joined. Nil means the
	// k-means assignment with random centers by k-means++.
	Start mat.Matrix
}

// NewMixture returns the model of the rows of x with the given number of components. It copies x. A
// nil opt means the zero MixtureOptions.
//
// The error wraps
//   - ErrEmpty if x is nil, has no columns or has fewer than two rows;
//   - ErrParam if components is not in 1 … N, an option is out of range, or a row is more than
//     1e5 standard deviations of MixtureOptions.Cov from the mean;
//   - ErrNotFinite if an element of x, named by row and column, or of an option is not finite;
//   - ErrShape if an option has the wrong shape;
//   - ErrNotPosDef if MixtureOptions.Cov is not positive definite, or if it is nil and a column is
//     constant or a linear combination of others;
//   - ErrMemory if rows, columns or components exceed the memory limit.
func NewMixture(x mat.Matrix, components int, opt *MixtureOptions) (*Mixture, error) {
	var o MixtureOptions
	if opt != nil {
		o = *opt
	}
	if err := checkMatrix("x", x); err != nil {
		return nil, err
	}
	m := &Mixture{k: components}
	if m.n, m.d = x.Dims(); m.n < 2 || m.d < 1 {
		return nil, fmt.Errorf("pgsvi: x of a Mixture is %d×%d; it needs two rows and a column: %w",
			m.n, m.d, ErrEmpty)
	}
	if m.k < 1 || m.k > m.n {
		return nil, fmt.Errorf("pgsvi: components is %d; it must be 1 to the number of rows, %d: "+
			"%w", m.k, m.n, ErrParam)
	}
	if err := m.checkMemory(); err != nil {
		return nil, err
	}
	weight, kappa, df := orOne(o.Weight), orOne(o.Kappa), orDefault(o.DF, float64(m.d))
	for _, p := range []struct {
		name     string
		x, above float64
	}{{"Weight", weight, 0}, {"Kappa", kappa, 0}, {"DF", df, float64(m.d - 1)}} {
		if !(p.x > p.above) || math.IsInf(p.x, 1) {
			return nil, fmt.Errorf(
				"pgsvi: MixtureOptions.%s is %v; it must be above %v and finite: %w", p.name, p.x,
				p.above, ErrParam)
		}
	}
	given, err := givenOption("MixtureOptions.Cov", o.Cov)
	if err != nil {
		return nil, err
	}
	if !given {
		o.Cov = nil
	}
	if m.z, m.space, err = mixture.Whiten(x, o.Cov); err != nil {
		return nil, prefixed(err)
	}
	if err := m.setStart(o.Start); err != nil {
		return nil, err
	}
	unit := mat.NewDiagDense(m.d, nil)
	for i := range m.d {
		unit.SetDiag(i, 1)
	}
	component, err := NewNormalWishart(nil, kappa, df, unit)
	if err != nil {
		return nil, err
	}
	var parts []ExpFamily
	if m.k > 1 { // a single component has the weight 1
		alpha := make([]float64, m.k)
		floats.AddConst(weight, alpha)
		weights, err := NewDirichlet(alpha)
		if err != nil {
			return nil, err
		}
		parts = append(parts, weights)
	}
	for range m.k {
		parts = append(parts, component)
	}
	m.prior, err = ProductOf(parts...)
	return m, err
}

// mixtureVectors is the number of vectors as long as η in a run: states, gradients and their parts.
const mixtureVectors = 32

// checkMemory returns an error if a run would exceed the memory limit.
func (m *Mixture) checkMemory() error {
	n, d, k := float64(m.n), float64(m.d), float64(m.k)
	need := 8 * (n*(d+3) + mixtureVectors*k*((d+1)*(d+2)/2+2) + 2*d*d)
	return checkMemory(0, need, fmt.Sprintf("a mixture of %d components for %d rows of %d columns",
		m.k, m.n, m.d),
		"use fewer components or columns, or raise the limit (GOMEMLIMIT)")
}

// setStart copies the initial responsibilities.
func (m *Mixture) setStart(start mat.Matrix) error {
	if given, err := givenOption("MixtureOptions.Start", start); !given {
		return err
	}
	if r, c := start.Dims(); r != m.n || c != m.k {
		return fmt.Errorf("pgsvi: MixtureOptions.Start is %d×%d; it must be rows × components, "+
			"%d×%d: %w", r, c, m.n, m.k, ErrShape)
	}
	if err := checkMemory(0, memory.Bytes(1, m.n, m.k),
		fmt.Sprintf("a MixtureOptions.Start of %d×%d", m.n, m.k),
		"use fewer components, or raise the limit (GOMEMLIMIT)"); err != nil {
		return err
	}
	m.start = mat.DenseCopyOf(start)
	for n := range m.n {
		row := m.start.RawRowView(n)
		for k, r := range row {
			if math.IsNaN(r) || math.IsInf(r, 0) {
				return fmt.Errorf("pgsvi: MixtureOptions.Start(%d, %d) is %v: %w", n, k, r,
					ErrNotFinite)
			}
			if r < 0 {
				return fmt.Errorf("pgsvi: MixtureOptions.Start(%d, %d) is %v; it must not be "+
					"negative: %w", n, k, r, ErrParam)
			}
		}
		sum := floats.Sum(row)
		if !(sum > 0) || math.IsInf(sum, 1) {
			return fmt.Errorf("pgsvi: MixtureOptions.Start: row %d sums to %v; the sum must be "+
				"positive and finite: %w", n, sum, ErrParam)
		}
		floats.Scale(1/sum, row)
	}
	return nil
}

// Len returns the number of rows.
func (m *Mixture) Len() int { return m.n }

// part returns the elements of component k in a vector with the layout of η, without its weight.
func (m *Mixture) part(x []float64, k int) []float64 {
	n := (m.d+1)*(m.d+2)/2 + 1
	at := len(x) - (m.k-k)*n
	return x[at : at+n]
}

// Local implements ConjugateModel. It uses r_nk ∝ exp(E[log π_k] + E[log N(x_n|m_k, Λ_k⁻¹)]).
func (m *Mixture) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	var few [32]float64
	r := few[:]
	if m.k > len(r) {
		r = make([]float64, m.k)
	}
	r = r[:m.k]
	value := m.responsibilities(r, mu, n)
	for k, x := range r {
		m.add(dst, m.z[n*m.d:(n+1)*m.d], k, weight*x)
	}
	return value - m.space.LogDet, nil
}

// leaps implements leaper. A leap joins two components, unless the caller has set Start.
func (m *Mixture) leaps() (int, func(q ExpFamily, tried []bool) int) {
	if m.start != nil {
		return 0, nil
	}
	return m.k * (m.k - 1) / 2, m.join
}

const (
	leastOverlap = 0.02 // smallest overlap of two components worth joining
	leastRows    = 1e-3 // smallest Σ_n r_nk² of a component that is not empty
)

// join moves all rows of a component to another one and resets it to the prior. It chooses the
// untried pair with the largest overlap Σ_n r_ni r_nj / √(Σ_n r_ni² Σ_n r_nj²), and returns its
// index among the pairs (1, 0), (2, 0), (2, 1), …. If every overlap is small, it returns −1 and
// leaves q unchanged.
func (m *Mixture) join(q ExpFamily, tried []bool) int {
	both := m.overlaps(q)
	best, most, from, to := -1, leastOverlap, 0, 0
	pair := 0
	for i := range m.k {
		for j := range i {
			a, b := both[i*m.k+i], both[j*m.k+j]
			overlap := both[i*m.k+j] / math.Sqrt(a*b)
			if a > leastRows && b > leastRows && overlap > most && !tried[pair] {
				best, most, from, to = pair, overlap, i, j
			}
			pair++
		}
	}
	if best < 0 {
		return best
	}
	eta, prior := q.Natural(nil), m.prior.Natural(nil)
	move := func(to, from, prior []float64) {
		for i, p := range prior {
			to[i] += from[i] - p
			from[i] = p
		}
	}
	move(eta[to:to+1], eta[from:from+1], prior[from:from+1])
	move(m.part(eta, to), m.part(eta, from), m.part(prior, from))
	if q.SetNatural(eta) != nil { // q is a mixture of states, and far from each of them
		tried[best] = true
		return m.join(q, tried)
	}
	return best
}

// overlaps returns a K×K matrix with Σ_n r_ni r_nj in row i and column j ≤ i.
func (m *Mixture) overlaps(q ExpFamily) []float64 {
	mu := q.MeanParams(nil)
	r, both := make([]float64, m.k), make([]float64, m.k*m.k)
	for n := range m.n {
		m.responsibilities(r, mu, n)
		for i, x := range r {
			floats.AddScaled(both[i*m.k:i*m.k+i+1], x, r[:i+1])
		}
	}
	return both
}

// responsibilities stores r_nk of row n in r, and returns the logarithm of their sum before
// normalization.
func (m *Mixture) responsibilities(r, mu []float64, n int) (value float64) {
	z := m.z[n*m.d : (n+1)*m.d]
	for k := range r {
		r[k] = m.expect(m.part(mu, k), z)
		if m.k > 1 {
			r[k] += mu[k]
		}
	}
	value = floats.LogSumExp(r)
	for k, log := range r {
		r[k] = math.Exp(log - value)
	}
	return value
}

// shared implements sharedModel.
func (m *Mixture) shared() {}

// linear implements linearModel. A row selects a weight and the statistics of one component.
func (m *Mixture) linear() {}

// expect returns E[log N(z|m, Λ⁻¹)] for the mean parameters (E[log|Λ|], E[Λ], E[Λm], E[mᵀΛm]).
func (m *Mixture) expect(mu, z []float64) float64 {
	v := 0.5 * (mu[0] - float64(m.d)*expfam.Log2Pi - mu[len(mu)-1])
	lambda, linear := mu[1:], mu[len(mu)-1-m.d:]
	for i, x := range z {
		v += linear[i] * x
		v -= x * (floats.Dot(lambda[:i], z[:i]) + 0.5*lambda[i]*x)
		lambda = lambda[i+1:]
	}
	return v
}

// add adds r times the statistics of z in component k to a vector with the layout of η.
func (m *Mixture) add(dst, z []float64, k int, r float64) {
	if m.k > 1 {
		dst[k] += r
	}
	p := m.part(dst, k)
	p[0] += 0.5 * r
	expfam.AddOuter(p[1:], -0.5*r, z, z)
	floats.AddScaled(p[len(p)-1-m.d:len(p)-1], r, z)
	p[len(p)-1] -= 0.5 * r
}

// NewStepper implements Model. The initial q is the optimum for the initial responsibilities.
func (m *Mixture) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	eta := m.prior.Natural(nil)
	if m.start != nil {
		for n := range m.n {
			for k, r := range m.start.RawRowView(n) {
				m.add(eta, m.z[n*m.d:(n+1)*m.d], k, r)
			}
		}
	} else {
		cluster := mixture.KMeans(ctx, m.z, m.d, m.k, env.rng())
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for n, k := range cluster {
			m.add(eta, m.z[n*m.d:(n+1)*m.d], k, 1)
		}
	}
	st, err := problem{F: Conjugate(m), H: KLTo(m.prior), Init: m.prior}.newStepperAt(d, eta)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// digest adds the data and options of m to d.
func (m *Mixture) digest(d *save.Digest) {
	d.Int(m.n, m.d, m.k)
	d.Float(m.z...)
	d.Float(m.space.Mean...)
	d.Float(m.space.L...)
	d.Float(m.prior.at.Eta...)
}

// MixturePosterior is the approximate posterior of a Mixture. It is q(π) = Dirichlet(α) and a
// NormalWishart(m, κ, ν, W) for each component. It is immutable and safe for concurrent use.
type MixturePosterior struct{ q mixture.Components }

// Fit runs s on the model. A nil s means the zero Solver. It returns the posterior at the state
// reached, which is valid even if Fit returns an error after the set-up. Fit returns the errors of
// Solver.Run.
func (m *Mixture) Fit(ctx context.Context, s *Solver) (*MixturePosterior, *Result, error) {
	return fitModel[*MixturePosterior](ctx, s, m)
}

// Posterior returns the posterior at st, a state of a run on a Mixture. The error wraps ErrParam if
// st is not such a state, or has another number of components or columns.
func (m *Mixture) Posterior(st Stepper) (*MixturePosterior, error) {
	q, err := posteriorOf(st, m.prior)
	if err != nil {
		return nil, err
	}
	eta := q.at.Eta
	p := &MixturePosterior{mixture.Components{Space: m.space, Alpha: []float64{1}}}
	if m.k > 1 {
		p.q.Alpha = append([]float64(nil), eta[:m.k]...)
	}
	f := expfam.NormalWishartFamily{Wishart: expfam.WishartFamily{D: m.d}}
	for k := range m.k {
		x, w, _ := f.Unpack(m.part(eta, k))
		c := mixture.Component{Kappa: x.Kappa, DF: 2 * x.A,
			M: append([]float64(nil), x.M...), C: append([]float64(nil), w.B...)}
		floats.Scale(2, c.C) // W⁻¹ = 2B
		ok := dense.Cholesky(c.C, m.d)
		expfam.WishartPool.Put(w)
		if !ok {
			return nil, fmt.Errorf("pgsvi: the scale of component %d: %w", k, ErrNotPosDef)
		}
		p.q.Each = append(p.q.Each, c)
	}
	p.q.Prepare()
	return p, nil
}

// String describes p in one line, such as "3 components in 2 dimensions, weights [0.5 0.3 0.2]".
func (p *MixturePosterior) String() string {
	w := p.Weights(nil)
	return fmt.Sprintf("%d components in %d dimensions, weights %.3g", len(w), len(p.q.Space.Mean), w)
}

// Weights stores the posterior means α_k/Σα of the weights of the components in dst; nil allocates.
func (p *MixturePosterior) Weights(dst []float64) []float64 {
	dst = dense.Dest(dst, len(p.q.Alpha))
	floats.ScaleTo(dst, 1/floats.Sum(p.q.Alpha), p.q.Alpha)
	return dst
}

// Means returns the posterior means of the m_k as a new K×D matrix.
func (p *MixturePosterior) Means() *mat.Dense {
	out := mat.NewDense(len(p.q.Each), len(p.q.Space.Mean), nil)
	for k := range p.q.Each {
		p.q.Mean(out.RawRowView(k), k)
	}
	return out
}

// Cov returns the covariance of component k, the inverse of E[Λ_k] = νW, as a new D×D matrix. It
// panics if component k does not exist.
func (p *MixturePosterior) Cov(k int) *mat.SymDense { return p.q.Cov(k) }

// NormalWishart returns q(m_k, Λ_k) of component k as the mean of m_k, κ, ν and the D×D matrix W⁻¹,
// all newly allocated. It panics if component k does not exist.
func (p *MixturePosterior) NormalWishart(k int) (mean []float64, kappa, df float64,
	inverse *mat.SymDense) {
	inverse = p.Cov(k)
	c := p.q.Each[k]
	inverse.ScaleSym(c.DF, inverse)
	return mat.Row(nil, k, p.Means()), c.Kappa, c.DF, inverse
}

// Responsibilities stores the probabilities that a row x belongs to each component (cluster) in
// dst, of length K. They are the probabilities of the optimal q(s),
//
//	r_k ∝ exp(E[log π_k] + E[log N(x|m_k, Λ_k⁻¹)]),
//
// A nil dst allocates. Responsibilities panics unless x has D elements.
func (p *MixturePosterior) Responsibilities(dst, x []float64) []float64 {
	p.mustFit(x)
	dst = dense.Dest(dst, len(p.q.Each))
	p.q.Responsibilities(dst, x)
	return dst
}

// LogProb returns the log predictive density of a new row x, in nats. The density is a mixture of
// Student t distributions with the weights E[π_k] (Bishop, 2006, equation 10.81),
//
//	log Σ_k E[π_k] St(x | m_k, (ν+1−D)κ/(1+κ) W, ν+1−D).
//
// LogProb panics unless x has D elements.
func (p *MixturePosterior) LogProb(x []float64) float64 {
	p.mustFit(x)
	return p.q.LogProb(x)
}

// mustFit panics unless x has one element per column of the model.
func (p *MixturePosterior) mustFit(x []float64) {
	if d := len(p.q.Space.Mean); len(x) != d {
		panic(fmt.Sprintf("pgsvi: the row has %d elements; it must have %d", len(x), d))
	}
}

// mixtureFile is the file type of a MixturePosterior.
var mixtureFile = save.Kind{Name: "MixturePosterior", Version: 1}

// savedMixture is the JSON form of a MixturePosterior.
type savedMixture struct {
	Mean    save.List[float64] `json:"mean"`   // x̄
	Factor  save.List[float64] `json:"factor"` // L, row by row
	Alpha   save.List[float64] `json:"alpha"`
	Kappa   save.List[float64] `json:"kappa"`
	DF      save.List[float64] `json:"df"`
	Means   save.List[float64] `json:"means"`   // component by component
	Factors save.List[float64] `json:"factors"` // factors of W⁻¹, by component and row
}

// Save writes p, and Load restores it bit for bit. It returns any error of w.
func (p *MixturePosterior) Save(w io.Writer) error {
	s := savedMixture{Mean: p.q.Space.Mean, Factor: p.q.Space.L, Alpha: p.q.Alpha}
	for _, c := range p.q.Each {
		s.Kappa, s.DF = append(s.Kappa, c.Kappa), append(s.DF, c.DF)
		s.Means, s.Factors = append(s.Means, c.M...), append(s.Factors, c.C...)
	}
	return saveTo(w, mixtureFile, &s)
}

func (*MixturePosterior) load(r io.Reader) (*MixturePosterior, error) {
	return loadFrom(r, mixtureFile, (*savedMixture).load)
}

func (s *savedMixture) load() (*MixturePosterior, error) {
	d, k := len(s.Mean), len(s.Alpha)
	if d < 1 || k < 1 || len(s.Kappa) != k || len(s.DF) != k || len(s.Means)%k != 0 ||
		len(s.Means)/k != d || len(s.Factors)%k != 0 || len(s.Factors)/k%d != 0 ||
		len(s.Factors)/k/d != d {
		return nil, fmt.Errorf(
			"%d columns and %d weights do not fit %d, %d, %d and %d elements in kappa, df, means "+
				"and factors: %w", d, k, len(s.Kappa), len(s.DF), len(s.Means), len(s.Factors),
			ErrShape)
	}
	p := &MixturePosterior{mixture.Components{
		Space: mixture.Space{Mean: s.Mean, L: s.Factor}, Alpha: s.Alpha}}
	if err := checkFactor(s.Factor, d); err != nil {
		return nil, err
	}
	p.q.Space.LogDet = 0.5 * dense.LogDet(s.Factor, d)
	for k, alpha := range s.Alpha {
		if !(alpha > 0) || !(s.Kappa[k] > 0) || !(s.DF[k] > float64(d-1)) {
			return nil, fmt.Errorf("component %d has the parameters %v, %v and %v: %w", k, alpha,
				s.Kappa[k], s.DF[k], ErrParam)
		}
		c := s.Factors[k*d*d : (k+1)*d*d]
		if err := checkFactor(c, d); err != nil {
			return nil, fmt.Errorf("component %d: %w", k, err)
		}
		p.q.Each = append(p.q.Each, mixture.Component{Kappa: s.Kappa[k], DF: s.DF[k],
			M: s.Means[k*d : (k+1)*d], C: c})
	}
	p.q.Prepare()
	return p, nil
}

// checkFactor returns an error unless l is a lower Cholesky factor of d dimensions.
func checkFactor(l []float64, d int) error {
	if len(l)%d != 0 || len(l)/d != d {
		return fmt.Errorf("a factor has %d elements; it must have %d×%d: %w", len(l), d, d,
			ErrShape)
	}
	for i := range d {
		if !(l[i*d+i] > 0) {
			return fmt.Errorf("element %d of the diagonal of a factor is %v: %w", i, l[i*d+i],
				ErrNotPosDef)
		}
	}
	return nil
}
