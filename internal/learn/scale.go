package learn

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// Interval is an interval of scales s. Within is the number of nats by which a search may miss the
// best ELBO in it.
type Interval struct{ Lo, Hi, Within float64 }

// Valid reports whether i is an interval of positive finite scales with a positive Within.
func (i *Interval) Valid() bool {
	return i.Lo > 0 && i.Lo < i.Hi && !math.IsInf(i.Hi, 1) && i.Within > 0
}

// Proof states that no Gaussian q has an ELBO more than Bound nats above ELBO, at any scale of an
// interval. Scale is the best scale tried, ELBO the ELBO of the q found there, and Steps the
// number of scales. The formula is at GP.CertifyScale of the root package.
type Proof struct {
	Scale, ELBO, Bound float64
	Steps              int
}

const (
	scaleSlack = 0.02 // fraction of the requested bound by which q may miss its best ELBO
	scaleCells = 64   // intervals to begin with
	// Fraction of the requested bound below which a cell is divided before another scale is
	// tried.
	scaleRefine = 0.7
	scaleWidth  = 1e-4 // width of log s² below which a cell is not divided
	scaleSteps  = 100  // largest number of scales
)

// scaleThetas are the exponents θ of y.
var scaleThetas = [...]float64{0.5, 0.75, 1}

// scaleState holds the bound that a state gives for all scales, relative to its own. With x = log
// s² minus the log s² of the state, it is
//
//	offset − ½n_u x − Σ log(p_j + q_j e^((θ−1)x)) + rise·e^x + trace·e^((2θ−1)x).
type scaleState struct {
	at, elbo                  float64 // log s² of the state, and its ELBO
	offset, half, rise, trace float64 // half is ½n_u
	p, q                      []float64
}

// over returns the bound of the interval from lo to hi of log s².
func (s *scaleState) over(lo, hi float64) float64 {
	best := math.Inf(1)
	for _, theta := range scaleThetas {
		mid := 0.5*(lo+hi) - s.at
		z := math.Exp((theta - 1) * mid)
		value, slope := 0.0, 0.0
		for j, p := range s.p {
			d := p + s.q[j]*z
			value -= math.Log(d)
			slope -= (theta - 1) * s.q[j] * z / d
		}
		end := func(x float64) float64 {
			return s.offset + value + slope*(x-mid) - s.half*x + s.rise*math.Exp(x) +
				s.trace*math.Exp((2*theta-1)*x)
		}
		if b := max(end(lo-s.at), end(hi-s.at)); b < best { // NaN bounds nothing
			best = b
		}
	}
	return best
}

// certify proves the bound of the scales of want, first at the given scale. The function find returns
// the bound of a q that it fits at log s², with the crew that use sets before. The error names the scale,
// or is the error of ctx.
func certify(ctx context.Context, use func(c term.Crew), want Interval, first float64,
	find func(at float64) (*scaleState, error)) (*Proof, error) {
	h := new(parallel.Halt)
	h.Watch(ctx)
	defer h.Forget()
	use(term.Crew{Workers: 1, Halt: h})
	c := &Proof{ELBO: math.Inf(-1)}
	type cell struct{ lo, hi, bound float64 }
	var cells []cell
	var states []*scaleState
	least, most := 2*math.Log(want.Lo), 2*math.Log(want.Hi)
	for i := range scaleCells {
		at := func(i int) float64 { return least + (most-least)*float64(i)/scaleCells }
		cells = append(cells, cell{at(i), at(i + 1), math.Inf(1)})
	}
	over := func(lo, hi float64) float64 {
		b := math.Inf(1)
		for _, s := range states {
			b = min(b, s.over(lo, hi))
		}
		return b
	}
	next := min(max(2*math.Log(first), least), most)
	for { // ends after scaleSteps
		s, err := find(next)
		if halted := h.Err(); halted != nil {
			return nil, halted
		}
		if err != nil {
			return nil, fmt.Errorf("%w, at the scale %v", err, math.Exp(0.5*next))
		}
		states = append(states, s)
		if c.Steps++; s.elbo > c.ELBO {
			c.ELBO, c.Scale = s.elbo, math.Exp(0.5*next)
		}
		for i := range cells {
			cells[i].bound = min(cells[i].bound, s.over(cells[i].lo, cells[i].hi))
		}
		for { // ends where a cell is as narrow as scaleWidth
			if err := h.Err(); err != nil {
				return nil, err
			}
			worst := 0
			for i := range cells {
				if cells[i].bound > cells[worst].bound {
					worst = i
				}
			}
			w := &cells[worst]
			c.Bound = max(w.bound-c.ELBO, 0)
			next = 0.5 * (w.lo + w.hi)
			if c.Bound <= want.Within {
				return c, nil
			}
			if w.hi-w.lo < scaleWidth || over(next, next)-c.ELBO > scaleRefine*want.Within {
				break
			}
			right := cell{next, w.hi, over(next, w.hi)}
			w.hi, w.bound = next, over(w.lo, next)
			cells = slices.Insert(cells, worst+1, right)
		}
		if c.Steps == scaleSteps {
			return c, nil
		}
	}
}

// gramScale is the Prior with a K proportional to s², as a function of log s².
type gramScale struct {
	terms *term.Terms
	k     []float64
	at    float64 // log s² of k
}

// Digest implements Prior.
func (p *gramScale) Digest(*save.Digest) {}

// Covariance implements Prior.
func (p *gramScale) Covariance(_ *parallel.Halt, dst, theta []float64) (*term.Terms, bool) {
	floats.ScaleTo(dst, math.Exp(theta[0]-p.at), p.k)
	_, ok := dense.AllFinite(dst)
	return p.terms, ok
}

// Slopes and Changes implement Prior. A certificate needs neither.
func (p *gramScale) Slopes(*parallel.Halt, []float64, []float64, []float64) {}
func (p *gramScale) Changes(*parallel.Halt, []float64, []float64)           {}

// CertifyGram proves the bound for a prior covariance of the latent values that is proportional to
// s², where s is the scale. The terms must be log-concave. At the scale first, the covariance is k.
func CertifyGram(ctx context.Context, terms *term.Terms, k []float64, first float64,
	want Interval) (*Proof, error) {
	l := NewLatent(&gramScale{terms, k, 2 * math.Log(first)}, nil, terms.Len())
	return certify(ctx, l.Use, want, first, func(at float64) (*scaleState, error) {
		x, err := l.Evaluate([]float64{at}, scaleSlack*want.Within, math.Inf(1), false)
		if err == nil && math.IsInf(x.F, 1) {
			err = fmt.Errorf("the ELBO: %w", sentinel.ErrNotFinite)
		}
		if err != nil {
			return nil, err
		}
		l.Keep(true)
		return l.scaleState(at), nil
	})
}

// scaleState returns the bound of the current q for all scales. P is K⁻¹, n_u is n, and the p_j
// are the eigenvalues of Γ^½KΓ^½.
func (l *Latent) scaleState(at float64) *scaleState {
	q, n := &l.prob.Cur, l.n
	s := &scaleState{at: at, elbo: -q.Value, half: 0.5 * float64(n), p: make([]float64, n),
		q: make([]float64, n)}
	if !q.Certain {
		s.offset = math.Inf(1)
		return s
	}
	root, ka := make([]float64, n), make([]float64, n)
	s.offset = 0.5*q.LogDet - s.half
	size := math.Abs(q.LogDet) + s.half
	dense.Symv(1, dense.Symmetric(l.k, n), dense.Vector(q.D1), 0, dense.Vector(ka))
	s.trace = s.half
	for i, v := range q.V {
		s.q[i], root[i] = 1, math.Sqrt(max(q.Tg[i], 0))
		s.offset += q.E[i] + q.Tg[i]*v - q.D1[i]*q.M[i]
		s.rise += 0.5 * q.D1[i] * ka[i]
		s.trace -= 0.5 * q.Gamma[i] * v
		size += math.Abs(q.E[i]) + q.Tg[i]*v + math.Abs(q.D1[i]*q.M[i]) + math.Abs(q.Gamma[i])*v
	}
	b := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			b[i*n+j] = root[i] * l.k[i*n+j] * root[j]
		}
	}
	s.eigenvalues(l.workers.Halt, b)
	s.finish(size, q.Err)
	return s
}

// eigenvalues stores the eigenvalues of b, the lower triangle of a positive semidefinite matrix,
// in p, each reduced by its possible rounding error. It overwrites b. If h stops, the state gives
// no bound.
func (s *scaleState) eigenvalues(h *parallel.Halt, b []float64) {
	n := len(s.p)
	if !dense.Eigenvalues(h, s.p, b, n) {
		s.offset = math.Inf(1)
		return
	}
	rounding := 4 * dense.Epsilon * float64(n) * s.p[n-1]
	for j, p := range s.p {
		s.p[j] = max(p-rounding, 0)
	}
}

// finish adds the possible rounding error of terms of the given size, and the error of the
// expectations, to the bound.
func (s *scaleState) finish(size, err float64) {
	s.trace, s.rise = max(s.trace, 0), max(s.rise, 0)
	s.offset += err + dense.Epsilon*float64(len(s.p))*(size+s.rise)
}

// CertifyWeights proves the bound for the scales of all weights in the blocks of prior. The terms
// must be log-concave.
func CertifyWeights(ctx context.Context, prior *BlockPrior, want Interval) (*Proof, error) {
	first, w := prior.scale(), NewWeights(prior, false)
	return certify(ctx, w.Use, want, first, func(x float64) (*scaleState, error) {
		q, err := w.fitFull(prior.scaled(first, x), []float64{x}, scaleSlack*want.Within)
		if err != nil {
			return nil, err
		}
		w.Keep(true)
		return w.scaleState(q, x)
	})
}

// scale returns the scale of the first weight of p in its base, or 1 if there is none.
func (p *BlockPrior) scale() float64 {
	if len(p.Spread) == 0 {
		return 1
	}
	return math.Sqrt(p.unit[0] / p.base.Prior.Prec[0])
}

// scaled returns the model with the scale at, as log s², of all weights in blocks. Their precisions
// in p belong to the scale first.
func (p *BlockPrior) scaled(first, at float64) *site.LinearModel {
	lin := *p.base
	lin.Prior.Prec = slices.Clone(p.base.Prior.Prec)
	for j, b := range p.block {
		if b >= 0 {
			lin.Prior.Prec[j] *= math.Exp(2*math.Log(first) - at)
		}
	}
	return &lin
}

// scaleState returns the bound of q for all scales. With M = P_b + Γ + P = LLᵀ and the
// eigenvalues ν_j of L⁻¹PL⁻ᵀ, |P_b + Γ + zP| = |M|Π(1 − ν_j + ν_jz).
func (l *Weights) scaleState(q *weightFit, at float64) (*scaleState, error) {
	d, rows := len(q.mean), q.rows
	s := &scaleState{at: at, elbo: -q.f, p: make([]float64, d), q: make([]float64, d)}
	prior, err := q.lin.Prior.StateUntil(l.workers.Halt)
	if err != nil {
		return nil, err
	}
	m := &gauss.Gaussian{Halt: l.workers.Halt}
	if !rows.Certain || !m.Add(prior, q.lin.X, rows.Tg, nil, &design.Work{Halt: l.workers.Halt}) ||
		m.Double {
		s.offset = math.Inf(1) // no bound
		return s, nil
	}
	s.offset = 0.5*q.logDet + 0.5*prior.LogDet - m.LogDet - 0.5*float64(d)
	size := math.Abs(q.logDet) + math.Abs(prior.LogDet) + math.Abs(m.LogDet)
	for i, v := range rows.V {
		s.offset += rows.E[i] + rows.Tg[i]*v - rows.D1[i]*rows.M[i]
		size += math.Abs(rows.E[i]) + rows.Tg[i]*v + math.Abs(rows.D1[i]*rows.M[i])
	}
	a, root := make([]float64, d), make([]float64, d*d)
	q.lin.X.AddMulT(a, rows.D1, nil)
	for j, p := range q.lin.Prior.Prec {
		own, gain := 0.5*p*q.variance[j], 0.5*a[j]*a[j]/p
		if l.prior.block[j] < 0 {
			s.offset += own + gain
			size += own + gain
			continue
		}
		s.half += 0.5
		s.trace += own
		s.rise += gain
		root[j*d+j] = math.Sqrt(p)
	}
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(m.L, d), dense.General(root, d, d))
	b := make([]float64, d*d)
	dense.Syrk(blas.NoTrans, 1, dense.General(root, d, d), 0, dense.Symmetric(b, d))
	s.eigenvalues(l.workers.Halt, b)
	rounding := dense.Epsilon / gauss.LeastPivot * float64(d)
	for j, v := range s.p {
		s.p[j], s.q[j] = max(1-v-rounding, 0), max(v-rounding, 0)
	}
	s.finish(size, rows.Err)
	return s, nil
}
