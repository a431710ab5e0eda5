package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// Smooth is f, the difficult part of the negative ELBO: a sum of N terms,
// differentiable in λ, which the iteration linearises. Any user type may be one.
//
// A Smooth may also have any of
//
//	Value(q Dist, rng *rand.Rand) (value, stderr float64, err error)   f over all terms, as exactly as it is known
//	Deterministic() bool                                               whether Grad ignores rng
//	Accepts(q Dist) error                                              asked at set-up
//	SetWorkers(n int)                                                  see Stepper
type Smooth interface {
	// Len returns N.
	Len() int
	// Grad stores an unbiased estimate of ∇_λ f(λ), the gradient of the terms in
	// batch scaled by N/len(batch), in dst, of length q.NumParams, and returns
	// an estimate of f scaled alike. A nil batch means all terms. Given the same
	// state of rng it returns the same bits. The error names the term.
	Grad(dst []float64, q Dist, batch []int, rng *rand.Rand) (value float64, err error)
}

// Convex is h, the easy part of the negative ELBO, which the iteration keeps
// exact. Any user type may be one; a Convex with closed forms also implements ConvexProxer.
type Convex interface {
	// Value returns h(λ).
	Value(q Dist) float64
	// Grad stores ∇_λ h in dst; nil allocates.
	Grad(dst []float64, q Dist) []float64
}

// Objective is the negative ELBO f(λ) + h(λ) and where to begin. It is a Model.
type Objective struct {
	F    Smooth // nil means 0, as in a trust-region method
	H    Convex // nil means Zero
	Init Dist   // λ_0; cloned at the start of each run
}

// NewStepper implements Model. A nil d means KL, or Euclidean if Init is no
// ExpFamily. It returns an error wrapping ErrParam if Init
// is nil, ErrEmpty if F has no terms, ErrNoProx if the pair (H, d) has no
// proximal step on the family of Init, or what the parts of the objective
// say of each other.
func (o Objective) NewStepper(d Divergence) (Stepper, error) {
	if o.Init == nil {
		return nil, fmt.Errorf("pgsvi: %w: Objective.Init is nil", ErrParam)
	}
	if o.F == nil {
		o.F = noTerms{}
	}
	if o.H == nil {
		o.H = Zero{}
	}
	if d == nil {
		d = KL{}
		if _, ok := o.Init.(ExpFamily); !ok {
			d = Euclidean{}
		}
	}
	if o.F.Len() < 1 {
		return nil, fmt.Errorf("pgsvi: %w: Objective.F has %d terms", ErrEmpty, o.F.Len())
	}
	for _, part := range []any{o.F, o.H} {
		if a, ok := part.(interface{ Accepts(Dist) error }); ok {
			if err := a.Accepts(o.Init); err != nil {
				return nil, err
			}
		}
	}
	if v, ok := d.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	var metric Metric
	if a, ok := d.(Adaptive); ok {
		n := o.Init.NumParams()
		unit := make([]float64, n)
		floats.AddConst(1, unit)
		metric, d = a.Start(n), Diagonal{unit}
	}
	closed, err := checkProx(o.Init, o.H, d)
	if err != nil {
		return nil, err
	}
	s := newObjectiveStepper(o, d, closed)
	s.metric = metric
	return s, nil
}

// noTerms is f = 0.
type noTerms struct{}

func (noTerms) Len() int            { return 1 }
func (noTerms) Deterministic() bool { return true }
func (noTerms) Grad(dst []float64, _ Dist, _ []int, _ *rand.Rand) (float64, error) {
	clear(dst)
	return 0, nil
}

// Zero is h = 0.
type Zero struct{}

// Value returns 0.
func (Zero) Value(Dist) float64 { return 0 }

// Grad stores zeros.
func (Zero) Grad(dst []float64, q Dist) []float64 {
	dst = dest(dst, q.NumParams())
	clear(dst)
	return dst
}

// L1 is h(λ) = Weight·Σ_i |λ_i| over the first Count elements of λ; a zero
// Count means all. With Euclidean its proximal step is the soft threshold.
type L1 struct {
	Weight float64
	Count  int
}

func (h L1) count(q Dist) int {
	if h.Count == 0 {
		return q.NumParams()
	}
	return h.Count
}

// Value implements Convex.
func (h L1) Value(q Dist) float64 {
	return h.Weight * floats.Norm(q.Params(nil)[:h.count(q)], 1)
}

// Grad implements Convex with the subgradient that is 0 at 0.
func (h L1) Grad(dst []float64, q Dist) []float64 {
	dst = q.Params(dst)
	n := h.count(q)
	for i, l := range dst {
		switch {
		case i >= n || l == 0:
			dst[i] = 0
		default:
			dst[i] = math.Copysign(h.Weight, l)
		}
	}
	return dst
}

// Accepts returns an error wrapping ErrParam if Weight is negative or not
// finite, and ErrShape if q has fewer than Count parameters.
func (h L1) Accepts(q Dist) error {
	if !(h.Weight >= 0) || math.IsInf(h.Weight, 0) {
		return fmt.Errorf("pgsvi: %w: L1.Weight is %v; it must be finite and not negative", ErrParam, h.Weight)
	}
	if h.Count < 0 || h.Count > q.NumParams() {
		return fmt.Errorf("pgsvi: %w: L1.Count is %d, λ has %d elements", ErrShape, h.Count, q.NumParams())
	}
	return nil
}

// KLTerm is h(λ) = KL(q‖p), made by KLTo.
type KLTerm struct{ prior ExpFamily }

// KLTo returns h(λ) = KL(q‖p) in nats, p the prior. It keeps a copy of prior.
// It panics if prior is nil.
func KLTo(prior ExpFamily) *KLTerm {
	if prior == nil {
		panic("pgsvi: KLTo needs a prior")
	}
	return &KLTerm{prior.Clone().(ExpFamily)}
}

// Prior returns a copy of p.
func (h *KLTerm) Prior() ExpFamily { return h.prior.Clone().(ExpFamily) }

// Value implements Convex.
func (h *KLTerm) Value(q Dist) float64 { return q.(ExpFamily).KL(h.prior) }

// Grad implements Convex.
func (h *KLTerm) Grad(dst []float64, q Dist) []float64 { return klGrad(dst, q.(ExpFamily), h.prior) }

// valueGrad stores ∇_λ h in dst and returns h.
func (h *KLTerm) valueGrad(dst []float64, q Dist) float64 {
	if g, ok := q.(*Gaussian); ok && g.hasFactor() {
		return g.factorKL(dst, h.prior.(normal))
	}
	h.Grad(dst, q)
	return h.Value(q)
}

// Accepts returns an error wrapping ErrShape unless q is of the family of the
// prior or both are Gaussian, and of the same dimension.
func (h *KLTerm) Accepts(q Dist) error {
	e, ok := q.(ExpFamily)
	_, qn := q.(normal)
	_, pn := h.prior.(normal)
	if !ok || q.Dim() != h.prior.Dim() || !e.SameFamily(h.prior) && !(qn && pn) {
		return fmt.Errorf("pgsvi: %w: KLTo a %T of dimension %d does not fit a q that is a %T of dimension %d", ErrShape, h.prior, h.prior.Dim(), q, q.Dim())
	}
	return nil
}

// LogLikelihood is a sum of N log-likelihood terms over z ∈ R^Dim: a LogLik,
// a Sites, or a user type.
type LogLikelihood interface {
	// Len returns N.
	Len() int
	// Batch returns Σ_n log p(y_n|z) over the terms in batch, scaled by
	// N/len(batch); a nil batch means all terms. It may keep batch.
	Batch(batch []int) Integrand
	// Validate is called at set-up.
	Validate() error
}

// Integrand is the function of z whose expectation an Estimator takes. It may
// also be a Gradienter or a SiteIntegrand.
type Integrand interface {
	// Dim returns the dimension of z.
	Dim() int
	// LogProb returns the value at z, in nats; it must not keep or change z.
	LogProb(z []float64) float64
}

// Gradienter is an Integrand that knows its gradient.
type Gradienter interface {
	Integrand
	// GradLogProb stores the gradient at z in dst. It returns false, having
	// stored nothing, if the gradient is not known after all.
	GradLogProb(dst, z []float64) bool
}

// SiteIntegrand is an Integrand of the form Σ_i w_i log p(y_i|x_iᵀz).
type SiteIntegrand interface {
	Integrand
	// Len returns the number of sites.
	Len() int
	// Site returns x_i, which must not be changed, y_i and w_i.
	Site(i int) (x []float64, y, weight float64)
	// Likelihood returns p.
	Likelihood() Likelihood
}

// LogLik is a log-likelihood of N terms over z ∈ R^Dim, written by the user.
// LogProb alone is enough; with it Expect needs an estimator that samples.
type LogLik struct {
	// N is the number of terms and Dim the dimension of z.
	N, Dim int
	// LogProb returns log p(y_n|z) in nats. It must not keep or change z, and
	// is called concurrently where Solver.Workers is above 1.
	LogProb func(n int, z []float64) float64
	// Grad, where not nil, adds ∇_z log p(y_n|z) to dst. Pathwise needs it.
	Grad func(dst []float64, n int, z []float64)
}

// Len implements LogLikelihood.
func (l LogLik) Len() int { return l.N }

// Batch implements LogLikelihood.
func (l LogLik) Batch(batch []int) Integrand {
	return &logLikBatch{LogLik: l, batchTerms: newTerms(batch, l.N)}
}

// Validate returns an error wrapping ErrParam if LogProb is nil, or ErrEmpty if
// N or Dim is not positive.
func (l LogLik) Validate() error {
	switch {
	case l.LogProb == nil:
		return fmt.Errorf("pgsvi: %w: LogLik.LogProb is nil", ErrParam)
	case l.N < 1 || l.Dim < 1:
		return fmt.Errorf("pgsvi: %w: LogLik has N = %d and Dim = %d", ErrEmpty, l.N, l.Dim)
	}
	return nil
}

// batchTerms is a mini-batch of n terms; a nil batch means all.
type batchTerms struct {
	batch []int
	n     int
	scale float64 // N/len(batch)
}

func newTerms(batch []int, n int) batchTerms {
	if batch == nil {
		return batchTerms{nil, n, 1}
	}
	return batchTerms{batch, len(batch), float64(n) / float64(len(batch))}
}

func (t batchTerms) index(i int) int {
	if t.batch == nil {
		return i
	}
	return t.batch[i]
}

type logLikBatch struct {
	LogLik
	batchTerms
}

func (b *logLikBatch) Dim() int { return b.LogLik.Dim }

func (b *logLikBatch) LogProb(z []float64) float64 {
	var s float64
	for i := range b.n {
		s += b.LogLik.LogProb(b.index(i), z)
	}
	return b.scale * s
}

func (b *logLikBatch) GradLogProb(dst, z []float64) bool {
	if b.Grad == nil {
		return false
	}
	clear(dst)
	for i := range b.n {
		b.Grad(dst, b.index(i), z)
	}
	floats.Scale(b.scale, dst)
	return true
}

// Sites is a log-likelihood of terms that see z through one number each,
// log p(y_n|η_n) with η_n = x_nᵀz, as in a generalised linear model.
// Expectations under a Gaussian q are then one-dimensional, and Exact applies.
// The data are not copied and must not change.
type Sites struct {
	X   [][]float64 // x_n, one row a term
	Y   []float64   // y_n
	Lik Likelihood
}

// Len implements LogLikelihood.
func (s Sites) Len() int { return len(s.Y) }

// Batch implements LogLikelihood.
func (s Sites) Batch(batch []int) Integrand {
	return &siteBatch{Sites: s, batchTerms: newTerms(batch, len(s.Y))}
}

// Validate returns an error wrapping ErrEmpty, ErrShape, ErrParam, ErrLabel or
// ErrNotFinite, with the index of the datum.
func (s Sites) Validate() error {
	if len(s.Y) == 0 || len(s.X) == 0 || len(s.X[0]) == 0 {
		return fmt.Errorf("pgsvi: %w: Sites needs at least one row and one column", ErrEmpty)
	}
	if len(s.X) != len(s.Y) {
		return fmt.Errorf("pgsvi: %w: %d rows, %d labels", ErrShape, len(s.X), len(s.Y))
	}
	for n, x := range s.X {
		if len(x) != len(s.X[0]) {
			return fmt.Errorf("pgsvi: %w: row %d has %d columns, row 0 has %d", ErrShape, n, len(x), len(s.X[0]))
		}
		if j, ok := allFinite(x); !ok {
			return fmt.Errorf("pgsvi: %w: row %d, column %d is %v", ErrNotFinite, n, j, x[j])
		}
	}
	return checkLabels(s.Lik, s.Y)
}

// checkLabels checks a likelihood and its labels.
func checkLabels(lik Likelihood, y []float64) error {
	if lik == nil {
		return fmt.Errorf("pgsvi: %w: nil Likelihood", ErrParam)
	}
	if v, ok := lik.(Validator); ok {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	checker, _ := lik.(LabelChecker)
	for n, yn := range y {
		if math.IsNaN(yn) || math.IsInf(yn, 0) {
			return fmt.Errorf("pgsvi: %w: label %d is %v", ErrNotFinite, n, yn)
		}
		if checker != nil {
			if err := checker.CheckLabel(yn); err != nil {
				return fmt.Errorf("pgsvi: label %d: %w", n, err)
			}
		}
	}
	return nil
}

type siteBatch struct {
	Sites
	batchTerms
}

func (b *siteBatch) Dim() int               { return len(b.X[0]) }
func (b *siteBatch) Len() int               { return b.n }
func (b *siteBatch) Likelihood() Likelihood { return b.Lik }

// Index returns the term of the data that site i is.
func (b *siteBatch) Index(i int) int { return b.index(i) }

func (b *siteBatch) Site(i int) (x []float64, y, weight float64) {
	n := b.index(i)
	return b.X[n], b.Y[n], b.scale
}

func (b *siteBatch) LogProb(z []float64) float64 {
	var s float64
	for i := range b.n {
		n := b.index(i)
		s += b.Lik.LogProb(b.Y[n], floats.Dot(b.X[n], z))
	}
	return b.scale * s
}

// GradLogProb implements Gradienter where the likelihood is Differentiable.
func (b *siteBatch) GradLogProb(dst, z []float64) bool {
	lik, ok := b.Lik.(Differentiable)
	if !ok {
		return false
	}
	clear(dst)
	for i := range b.n {
		n := b.index(i)
		d1, _ := lik.Derivs(b.Y[n], floats.Dot(b.X[n], z))
		floats.AddScaled(dst, b.scale*d1, b.X[n])
	}
	return true
}

// Expect returns f(λ) = −E_q[Σ_n log p(y_n|z)], with the gradient estimated by
// e; nil means Exact for Sites and ScoreFunction for anything else. Values of f
// are exact for Sites whatever e is, so that the ELBO curves of different
// estimators compare; otherwise they are Monte Carlo with draws that are the
// same at each evaluation. Errors of shape and labels are reported when a run
// is set up.
func Expect(l LogLikelihood, e Estimator) Smooth {
	f := &expectation{ll: l, est: e, workers: 1}
	if e == nil {
		f.est = ScoreFunction{}
		if l != nil && l.Len() > 0 {
			if _, ok := l.Batch(nil).(SiteIntegrand); ok {
				f.est = Exact{}
			}
		}
	}
	return f
}

// expectation is the Smooth made by Expect.
type expectation struct {
	ll      LogLikelihood
	est     Estimator
	workers int
}

func (f *expectation) Len() int {
	if f.ll == nil {
		return 0
	}
	return f.ll.Len()
}

// Accepts reports every misfit between the data, the estimator and q.
func (f *expectation) Accepts(q Dist) error {
	if err := f.ll.Validate(); err != nil {
		return err
	}
	l := f.ll.Batch(nil)
	if l.Dim() != q.Dim() {
		return fmt.Errorf("pgsvi: %w: the log-likelihood is over %d dimensions, q over %d", ErrShape, l.Dim(), q.Dim())
	}
	if a, ok := f.est.(interface{ Accepts(Dist, Integrand) error }); ok {
		return a.Accepts(q, l)
	}
	return nil
}

// deterministic reports whether x, an Estimator or a Smooth, says that it ignores rng.
func deterministic(x any) bool {
	d, ok := x.(interface{ Deterministic() bool })
	return ok && d.Deterministic()
}

func (f *expectation) Deterministic() bool {
	return deterministic(f.est)
}

func (f *expectation) SetWorkers(n int) { f.workers = n }

func (f *expectation) withWorkers(n int) Smooth {
	c := *f
	c.workers = n
	return &c
}

func (f *expectation) batch(batch []int) Integrand {
	l := f.ll.Batch(batch)
	if f.workers > 1 {
		if _, sites := l.(SiteIntegrand); !sites {
			return parallelIntegrand{l, f.workers}
		}
	}
	return l
}

// Grad implements Smooth.
func (f *expectation) Grad(dst []float64, q Dist, batch []int, rng *rand.Rand) (float64, error) {
	v, err := f.est.Grad(dst, q, f.batch(batch), rng)
	if err != nil {
		return math.NaN(), err
	}
	floats.Scale(-1, dst)
	if i, ok := allFinite(dst); !ok {
		return math.NaN(), fmt.Errorf("pgsvi: %w: element %d of the gradient estimate is %v; the log-likelihood may overflow under q", ErrNotFinite, i, dst[i])
	}
	return -v, nil
}

// Value returns f over all terms and its standard error: exactly for Sites
// under a Gaussian q, with a bound on the numerical error, and otherwise by
// antithetic draws.
func (f *expectation) Value(q Dist, rng *rand.Rand) (value, stderr float64, err error) {
	l := f.batch(nil)
	if s, ok := l.(SiteIntegrand); ok {
		if n, ok := q.(normal); ok {
			value, stderr = siteValue(n, s)
			return -value, stderr, nil
		}
	}
	samples := 512
	if s, ok := f.est.(interface{ samples() int }); ok {
		samples = max(samples, s.samples())
	}
	value, stderr = monteCarloValue(q, l, samples, rng)
	return -value, stderr, nil
}
