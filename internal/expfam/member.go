package expfam

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Family has the methods of pgsvi.Family.
type Family interface {
	Dim() int
	NumParams() int
	LogPartition(eta []float64) float64
	Mean(dst, eta []float64)
	Fisher(dst *mat.SymDense, eta []float64)
	Stat(dst, z []float64)
	LogBase(z []float64) float64
	Rand(z, t, eta []float64, rng *rand.Rand)
}

// FisherFamily holds the optional methods of pgsvi.Family for products with the Fisher information.
type FisherFamily interface {
	fisherMultiplier
	FisherSolve(dst, g, eta []float64)
}

// EntropyFamily holds the optional method of pgsvi.Family for the entropy.
type EntropyFamily interface {
	Entropy(eta []float64) float64
}

// PathFamily holds the optional methods of pgsvi.Family for differentiable draws.
type PathFamily interface {
	AuxLen() int
	RandPath(z, t, aux, eta []float64, rng *rand.Rand)
	PathGrad(dst, dl, c, z, aux, eta []float64)
}

// ChartFamily holds the optional methods of pgsvi.Family for a chart of the valid η.
type ChartFamily interface {
	Chart(dst, eta []float64)
	FromChart(dst, x []float64)
	ChartGrad(dst, g, eta []float64)
}

// klFamily is a Family that computes the KL divergence between two members without the cancellation
// in A(η_p) − A(η) − (η_p − η)ᵀμ.
type klFamily interface {
	Divergence(eta, etaP []float64) float64
}

// meanFamily is a Family that computes η from μ.
type meanFamily interface {
	// FromMean stores η in dst. It reports false if mu is not attained.
	FromMean(dst, mu []float64) bool
}

// domainFamily is a Family that tests η with less work than A(η) takes. A Member then computes A(η)
// only when it is needed. A domainFamily must also be a meanFamily.
type domainFamily interface {
	Valid(eta []float64) bool
}

// checkedFamily is a Family that tests η and computes μ at once, on several goroutines if it can. A
// Member then computes A(η) only when it is needed.
type checkedFamily interface {
	MeanIfValid(workers int, dst, eta []float64) bool
}

// sharedFamily is a klFamily that computes μ and KL divergences on several goroutines, with the same
// bits for any number of them.
type sharedFamily interface {
	MeanOn(workers int, dst, eta []float64)
	DivergenceOn(workers int, eta, etaP []float64) float64
}

// A family that loses one of these methods would still compile, but would lose time and digits.
var (
	_ domainFamily  = DirichletFamily{}
	_ sharedFamily  = DirichletFamily{}
	_ klFamily      = DirichletFamily{}
	_ klFamily      = WishartFamily{}
	_ klFamily      = NormalWishartFamily{}
	_ FisherFamily  = DirichletFamily{}
	_ FisherFamily  = WishartFamily{}
	_ FisherFamily  = NormalWishartFamily{}
	_ PathFamily    = GammaFamily{}
	_ PathFamily    = InverseGammaFamily{}
	_ PathFamily    = BetaFamily{}
	_ PathFamily    = DirichletFamily{}
	_ ChartFamily   = GammaFamily{}
	_ ChartFamily   = WishartFamily{}
	_ EntropyFamily = GammaFamily{}
)

// partedFamily is a Family that solves for η part by part, each from its present value.
type partedFamily interface {
	setMean(q *Member, mu []float64) error
}

// Name returns the name of f in errors.
func Name(f Family) string {
	if n, ok := f.(fmt.Stringer); ok {
		return n.String()
	}
	return fmt.Sprintf("%T", f)
}

// Member is a distribution of a Family: a valid η with its μ and, when needed, A(η) and the Fisher
// information. Methods that do not change it may run concurrently.
type Member struct {
	F     Family
	plain bool // F may be compared by ==
	Params
	next Params // scratch: replaces the state if it is valid

	summed   atomic.Bool    // a belongs to Eta
	factored atomic.Bool    // l belongs to Eta
	lock     sync.Mutex     // held while a or l is computed
	halt     *parallel.Halt // lends goroutines to a sharedFamily
	// l is the lower Cholesky factor of the Fisher information, or NaN if that is not positive
	// definite.
	l    []float64
	info *mat.SymDense
}

// Params holds η and μ. Only a Member changes it.
type Params struct {
	Eta, Mu []float64
	a       float64 // A(η); NaN until it is needed if the family is a domainFamily
}

// New returns a member of f. It is not valid before a call of SetNatural or Set.
func New(f Family) *Member {
	n := f.NumParams()
	return &Member{F: f, plain: reflect.ValueOf(f).Comparable(), Params: newState(n),
		next: newState(n)}
}

func newState(n int) Params { return Params{Eta: make([]float64, n), Mu: make([]float64, n)} }

// Use lets the member compute on the goroutines that h lends.
func (q *Member) Use(h *parallel.Halt) { q.halt = h }

// Set copies p to q, to the bit. It reports false and changes nothing if p belongs to another family.
func (q *Member) Set(p *Member) bool {
	if !q.SameFamily(p) {
		return false
	}
	copy(q.Eta, p.Eta)
	copy(q.Mu, p.Mu)
	q.summed.Store(p.summed.Load())
	if q.summed.Load() {
		q.a = p.a
	}
	q.factored.Store(false)
	return true
}

// SameFamily reports whether p and q belong to the same family.
func (q *Member) SameFamily(p *Member) bool {
	if len(q.Eta) != len(p.Eta) {
		return false
	}
	return q.plain && p.plain && q.F == p.F || same(q.F, p.F)
}

// Save writes or reads the state, to the bit.
func (q *Member) Save(c *save.Coder) {
	c.Floats(len(q.Eta), &q.Eta, &q.Mu)
	summed := q.summed.Load()
	c.Bool(&summed)
	c.Float(&q.a)
	if c.Reading() {
		q.summed.Store(summed)
		q.factored.Store(false)
	}
}

// Dim returns the length of z.
func (q *Member) Dim() int { return q.F.Dim() }

// NumParams returns the length of η.
func (q *Member) NumParams() int { return len(q.Eta) }

// Natural stores η in dst; nil allocates.
func (q *Member) Natural(dst []float64) []float64 {
	dst = dense.Dest(dst, len(q.Eta))
	copy(dst, q.Eta)
	return dst
}

// SetNatural sets the natural parameters of q to a copy of eta. If eta is not valid, q does not change
// and the error wraps ErrNotPosDef or ErrNotFinite.
func (q *Member) SetNatural(eta []float64) error {
	if err := q.propose(eta); err != nil {
		return err
	}
	q.accept()
	return nil
}

// propose stores eta in q.next with its μ. It returns an error if eta is not valid.
func (q *Member) propose(eta []float64) error {
	s := &q.next
	if len(eta) != len(s.Eta) {
		panic("pgsvi: natural parameters have the wrong length")
	}
	if i, ok := dense.AllFinite(eta); !ok {
		return fmt.Errorf("pgsvi: natural parameter %d of %s is %v: %w", i, Name(q.F), eta[i],
			sentinel.ErrNotFinite)
	}
	copy(s.Eta, eta)
	if !q.meanIfValid(s) {
		return fmt.Errorf("pgsvi: natural parameters %.6g are outside the set of %s: %w",
			First(eta),
			Name(q.F), sentinel.ErrNotPosDef)
	}
	if i, ok := dense.AllFinite(s.Mu); !ok {
		return fmt.Errorf("pgsvi: mean parameter %d of %s is %v at eta = %.6g: %w", i, Name(q.F),
			s.Mu[i], First(eta), sentinel.ErrNotFinite)
	}
	return nil
}

// meanIfValid computes μ from η, and A(η) unless there is a cheaper test of η. It reports whether η
// is valid.
func (q *Member) meanIfValid(s *Params) bool {
	s.a = math.NaN()
	if f, ok := q.F.(checkedFamily); ok {
		return f.MeanIfValid(q.halt.Workers(), s.Mu, s.Eta)
	}
	if f, ok := q.F.(domainFamily); !ok || !f.Valid(s.Eta) {
		if s.a = q.F.LogPartition(s.Eta); math.IsNaN(s.a) || math.IsInf(s.a, 0) {
			return false
		}
	}
	if f, ok := q.F.(sharedFamily); ok {
		f.MeanOn(q.halt.Workers(), s.Mu, s.Eta)
	} else {
		q.F.Mean(s.Mu, s.Eta)
	}
	return true
}

// accept replaces the state by q.next.
func (q *Member) accept() {
	q.Params, q.next = q.next, q.Params
	q.factored.Store(false)
	q.summed.Store(!math.IsNaN(q.a))
}

// MeanParams stores μ in dst; nil allocates.
func (q *Member) MeanParams(dst []float64) []float64 {
	dst = dense.Dest(dst, len(q.Mu))
	copy(dst, q.Mu)
	return dst
}

const (
	// newtonSteps limits the steps of SetMeanParams. A distant start takes tens of steps.
	newtonSteps = 200
	// newtonNear is the Newton decrement, in nats, below which full steps converge.
	newtonNear = 1e-4
	// newtonFar is the largest decrement that rounding errors can leave.
	newtonFar = 1e-12
)

// SetMeanParams sets q to the member with the mean parameters mu. It solves ∇A(η) = μ, the minimum of
// the convex function A(η) − ηᵀμ. Some families have a closed form. Others use Newton's method with
// the Fisher information, starting at the η of q, and halve a step until it is valid and lowers the
// function. The error wraps sentinel.ErrNotPosDef if mu is not attained, and sentinel.ErrNotFinite
// if it is not finite.
func (q *Member) SetMeanParams(mu []float64) error {
	n := len(q.Mu)
	if len(mu) != n {
		panic("pgsvi: mean parameters have the wrong length")
	}
	if i, ok := dense.AllFinite(mu); !ok {
		return fmt.Errorf("pgsvi: mean parameter %d of %s is %v: %w", i, Name(q.F), mu[i],
			sentinel.ErrNotFinite)
	}
	if f, ok := q.F.(partedFamily); ok {
		return f.setMean(q, mu)
	}
	if f, ok := q.F.(meanFamily); ok {
		eta := make([]float64, n)
		if !f.FromMean(eta, mu) {
			return fmt.Errorf("pgsvi: %.6g are not mean parameters of %s: %w", First(mu), Name(q.F),
				sentinel.ErrNotPosDef)
		}
		return q.SetNatural(eta)
	}
	p := New(q.F)
	p.Set(q)
	var (
		g, d, x = make([]float64, n), make([]float64, n), make([]float64, n)
		last    = math.Inf(1)
	)
	slope := func(s *Params) float64 { // stores ∇ and the step, and returns the decrement
		floats.SubTo(g, s.Mu, mu)
		copy(d, g)
		p.FisherSolve(d)
		return 0.5 * floats.Dot(g, d)
	}
	attained := func() error {
		if !(last <= newtonFar) {
			return fmt.Errorf("pgsvi: %.6g are not mean parameters of %s: %w", First(mu), Name(q.F),
				sentinel.ErrNotPosDef)
		}
		q.Set(p)
		return nil
	}
	for range newtonSteps {
		dec := slope(&p.Params)
		if !(dec >= 0) {
			return attained() // the Fisher information is not positive definite here
		}
		if dec == 0 {
			last = 0
			return attained()
		}
		if dec < newtonNear && last < newtonNear && dec > 0.25*last {
			return attained() // only rounding errors are left
		}
		last = dec
		value := p.LogPartition() - floats.Dot(p.Eta, mu)
		t := 1.0
		for ; t > 1e-12; t /= 2 {
			floats.AddScaledTo(x, p.Eta, -t, d)
			if p.propose(x) != nil {
				continue
			}
			if dec < newtonNear || p.next.a-floats.Dot(x, mu) <= value-0.1*t*dec {
				break
			}
		}
		if t <= 1e-12 {
			return attained()
		}
		p.accept()
	}
	return attained()
}

// Inside reports whether A(eta) is finite.
func (q *Member) Inside(eta []float64) bool {
	a := q.F.LogPartition(eta)
	return !math.IsNaN(a) && !math.IsInf(a, 0)
}

// LogPartition returns A(η).
func (q *Member) LogPartition() float64 {
	if !q.summed.Load() {
		q.lock.Lock()
		defer q.lock.Unlock()
		if !q.summed.Load() {
			q.a = q.F.LogPartition(q.Eta)
			q.summed.Store(true)
		}
	}
	return q.a
}

// LogProb returns log q(z|η).
func (q *Member) LogProb(z []float64) float64 {
	if len(z) != q.Dim() {
		panic("pgsvi: z has the wrong length")
	}
	base := q.F.LogBase(z)
	if math.IsInf(base, -1) {
		return base
	}
	t := make([]float64, len(q.Eta))
	q.F.Stat(t, z)
	return floats.Dot(q.Eta, t) - q.LogPartition() + base
}

// Score stores the score in natural parameters, T(z) − μ, in dst; nil allocates.
func (q *Member) Score(dst, z []float64) []float64 {
	dst = dense.Dest(dst, len(q.Eta))
	q.F.Stat(dst, z)
	floats.Sub(dst, q.Mu)
	return dst
}

// fisherFactor returns the lower Cholesky factor of the Fisher information. Its elements are NaN if
// the information is not positive definite.
func (q *Member) fisherFactor() []float64 {
	if q.factored.Load() {
		return q.l
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	if q.factored.Load() {
		return q.l
	}
	n := len(q.Eta)
	if q.info == nil {
		q.info, q.l = mat.NewSymDense(n, nil), make([]float64, n*n)
	}
	q.info.Zero()
	q.F.Fisher(q.info, q.Eta)
	for i := range n {
		for j := range n {
			q.l[i*n+j] = q.info.At(i, j)
		}
	}
	if !dense.Cholesky(q.l, n) {
		floats.AddConst(math.NaN(), q.l)
	}
	q.factored.Store(true)
	return q.l
}

// Degenerate reports whether the Fisher information is not positive definite.
func (q *Member) Degenerate() bool {
	if _, ok := q.F.(FisherFamily); ok {
		return false
	}
	return math.IsNaN(q.fisherFactor()[0])
}

// FisherAt returns element i of the diagonal of the Fisher information.
func (q *Member) FisherAt(i int) float64 {
	e := make([]float64, len(q.Eta))
	e[i] = 1
	q.FisherMul(e)
	return e[i]
}

// FisherSolve replaces g by F⁻¹g, which turns a gradient in η into a gradient in μ.
func (q *Member) FisherSolve(g []float64) {
	if f, ok := q.F.(FisherFamily); ok {
		f.FisherSolve(g, g, q.Eta)
		return
	}
	l := dense.LowerTriangle(q.fisherFactor(), len(g))
	dense.Trsv(blas.NoTrans, l, dense.Vector(g))
	dense.Trsv(blas.Trans, l, dense.Vector(g))
}

// FisherMul replaces g by Fg, which turns a gradient in μ into a gradient in η.
func (q *Member) FisherMul(g []float64) {
	if f, ok := q.F.(FisherFamily); ok {
		f.FisherMul(g, g, q.Eta)
		return
	}
	l := dense.LowerTriangle(q.fisherFactor(), len(g))
	dense.Trmv(blas.Trans, l, dense.Vector(g))
	dense.Trmv(blas.NoTrans, l, dense.Vector(g))
}

// KL returns KL(q‖p) = A(η_p) − A(η) − (η_p − η)ᵀμ in nats. p must belong to the family of q.
func (q *Member) KL(p *Member) float64 {
	switch f := q.F.(type) {
	case sharedFamily:
		return math.Max(0, f.DivergenceOn(q.halt.Workers(), q.Eta, p.Eta))
	case klFamily:
		return math.Max(0, f.Divergence(q.Eta, p.Eta))
	}
	kl := p.LogPartition() - q.LogPartition()
	for i, mu := range q.Mu {
		kl -= (p.Eta[i] - q.Eta[i]) * mu
	}
	return math.Max(0, kl)
}

// Chart stores the chart of q in dst, or η if the family has no chart. A nil dst allocates.
func (q *Member) Chart(dst []float64) []float64 {
	dst = dense.Dest(dst, len(q.Eta))
	if c, ok := q.F.(ChartFamily); ok {
		c.Chart(dst, q.Eta)
		return dst
	}
	copy(dst, q.Eta)
	return dst
}

// SetChart sets q to the member with chart x. Its errors are the errors of SetNatural.
func (q *Member) SetChart(x []float64) error {
	if c, ok := q.F.(ChartFamily); ok {
		if len(x) != len(q.Eta) {
			panic("pgsvi: x has the wrong length")
		}
		eta := make([]float64, len(x))
		c.FromChart(eta, x)
		x = eta
	}
	return q.SetNatural(x)
}

// ChartGrad replaces the gradient g in η by the gradient in the chart.
func (q *Member) ChartGrad(g []float64) {
	if c, ok := q.F.(ChartFamily); ok {
		c.ChartGrad(g, g, q.Eta)
	}
}

// Step sets q to the proximal step from the member from, under KL in mean parameters, with gradient g
// in μ, natural parameters etaP of the prior and step size beta:
//
//	argmin_q  gᵀμ − H(q) − η_pᵀμ + KL(q‖from)/β
//
// A nil etaP leaves −H(q) − η_pᵀμ out. It need not belong to a distribution. Step allocates no memory.
func (q *Member) Step(from *Member, g, etaP []float64, beta float64) error {
	copy(q.next.Eta, from.Eta)
	return q.SetNatural(Step(q.next.Eta, g, etaP, beta))
}

// Step returns the natural parameters of the proximal step from eta under KL in mean parameters:
// rη + (1−r)(η_p − g) with r = 1/(1+β), or η − βg if etaP is nil. It
// overwrites eta.
func Step(eta, g, etaP []float64, beta float64) []float64 {
	if etaP == nil {
		floats.AddScaled(eta, -beta, g)
		return eta
	}
	r := 1 / (1 + beta)
	for i := range eta {
		eta[i] = r*eta[i] + (1-r)*(etaP[i]-g[i])
	}
	return eta
}
