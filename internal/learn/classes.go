package learn

import (
	"errors"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Classes is the Model of a GLM of K scores, by contrast mean field: the standard deviations are
// those of the weights of every class.
type Classes struct {
	memory
	prior   *BlockPrior
	workers term.Crew
	units   float64
}

// NewClasses returns the Model of a GLM with the given prior.
func NewClasses(prior *BlockPrior) *Classes { return &Classes{prior: prior} }

// Digest implements Model.
func (l *Classes) Digest(d *save.Digest) {
	l.prior.Digest(d)
	d.Text("classes")
}

// Use implements Model.
func (l *Classes) Use(c term.Crew) { l.workers = c }

// Work implements Model, in passes over the rows.
func (l *Classes) Work() float64 { return l.units }

// Where slowSteps steps gain less than slowPart of what is left there are no more.
const (
	slowSteps = 6
	slowPart  = 0.2
)

// settle finds the q of s at θ, to within so many nats of the best, and returns how many may be left.
func (l *memory) settle(s *site.Sites, theta []float64, slack float64) (gap float64, err error) {
	if len(l.past) > 0 {
		at := sites{gamma: make([]float64, s.N), a: make([]float64, s.N), m: make([]float64, s.N)}
		l.extrapolate(at.gamma, at.a, at.m, theta)
		s.StartAt(at.gamma, at.a, at.m)
	} else if _, err = s.Ascend(); err != nil {
		return 0, err
	}
	var past [slowSteps]float64
	for i := range learnSteps {
		if err = s.Refresh(); err != nil {
			return 0, err
		}
		if gap, err = s.Promise(); err != nil {
			return 0, err
		}
		before, now := &past[i%slowSteps], s.Batch.Cur.Value
		if gap <= slack || i >= slowSteps && *before-now < slowPart*gap {
			break
		}
		*before = now
		if _, err = s.Ascend(); err != nil {
			return 0, err
		}
		if s.Distance == 0 {
			break
		}
	}
	q := &s.Batch.Cur
	l.found = sites{slices.Clone(theta), slices.Clone(q.Gamma), slices.Clone(q.A), slices.Clone(q.M)}
	return gap, nil
}

// State implements Model.
func (l *Classes) State(c *save.State, n int) {
	l.memory.state(c, n, l.prior.base.Terms.Elements())
	c.Float(&l.units)
}

// Evaluate implements Model.
func (l *Classes) Evaluate(theta []float64, slack, most float64, slopes bool) (search.Point, error) {
	none := search.Point{F: math.Inf(1)}
	lin, err := l.prior.At(theta)
	if err != nil {
		return none, nil // out of range
	}
	s, gap, err := l.fit(lin, theta, slack)
	if halted := l.workers.Halt.Err(); halted != nil {
		return none, halted
	}
	if errors.Is(err, sentinel.ErrNotFinite) || errors.Is(err, sentinel.ErrNotPosDef) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	x := search.Point{F: s.Batch.Cur.Value, Slack: gap}
	if math.IsNaN(x.F) || math.IsInf(x.F, 0) {
		return none, nil
	}
	if slopes && x.F <= most {
		if err := l.slopes(&x, s, lin); err != nil {
			return none, err
		}
	}
	return x, nil
}

// fit finds q at θ, to within so many nats.
func (l *Classes) fit(lin *site.LinearModel, theta []float64, slack float64) (*site.ContrastAlgebra, float64, error) {
	s, err := site.NewContrastAlgebra(lin, l.workers)
	if err != nil {
		return nil, 0, err
	}
	gap, err := l.settle(&s.Sites, theta, slack)
	l.units += float64(s.Batch.Evaluations)
	return s, gap, err
}

// slopes stores the gradient in x, by the envelope theorem,
//
//	∂ELBO/∂log s_b = Σ_{j∈b} [Σ_c Λ_j((1 − 1/K)(P_c⁻¹)_jj + μ_cj²) − (K − 1)],
//
// and as information that of the means, 2 Σ_c μ_cᵀE_b(Λ − ΛP_c⁻¹Λ)E_dμ_c for blocks b and d.
func (l *Classes) slopes(x *search.Point, s *site.ContrastAlgebra, lin *site.LinearModel) error {
	mean, cov, err := s.Weights()
	if err != nil {
		return err
	}
	d, k, nf := len(lin.Names), lin.Terms.K, len(l.prior.space.Coords)
	of, prec, part := l.prior.columns(), lin.Prior.Prec, 1-1/float64(k)
	x.Grad, x.Info = make([]float64, nf), mat.NewSymDense(nf, nil)
	v, r, vr := make([]float64, d), make([]float64, d), make([][]float64, nf)
	for b := range vr {
		vr[b] = make([]float64, d)
	}
	for _, b := range of {
		if b >= 0 {
			x.Grad[b] += float64(k - 1)
		}
	}
	for c, class := range cov.(*gauss.Contrasts).Of {
		m := mean[c*d : (c+1)*d]
		class.Diag(v)
		for j, b := range of {
			if b >= 0 {
				x.Grad[b] -= prec[j] * (part*v[j] + m[j]*m[j])
				x.Info.SetSym(b, b, x.Info.At(b, b)+2*prec[j]*m[j]*m[j])
			}
		}
		for b := range nf {
			for j, at := range of {
				if r[j] = 0; at == b {
					r[j] = prec[j] * m[j]
				}
			}
			class.Mul(vr[b], r)
			for e := range b + 1 {
				var sum float64
				for j, at := range of {
					if at == e {
						sum += prec[j] * m[j] * vr[b][j]
					}
				}
				x.Info.SetSym(b, e, x.Info.At(b, e)-2*sum)
			}
		}
	}
	for b := range nf {
		x.Info.SetSym(b, b, max(x.Info.At(b, b), 0))
	}
	if _, ok := dense.AllFinite(x.Grad); !ok || math.IsNaN(floats.Sum(x.Info.RawSymmetric().Data)) {
		x.F, x.Grad, x.Info = math.Inf(1), nil, nil
	}
	return nil
}

var _ Sited = (*Classes)(nil)
