package learn

import (
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

// This file holds the Model of a GLM with grouping factors. Each evaluation also finds the best
// covariances Σ of the effects of levels, so θ holds the other hyperparameters alone, and the
// derivatives are those at the best Σ (envelope theorem). Its value is −ELBO − log p(Σ).

// Groups is the Model of a GLM whose prior has blocks. It remembers the sites of the rows and Σ.
type Groups struct {
	memory
	prior   *BlockPrior
	workers term.Crew
	units   float64

	l, found, best [][]float64 // L of the factors: last kept, last found, and at the best θ

	last     *site.ArrowAlgebra // the next fit takes its layout
	evidence *site.Evidence     // for Gaussian noise
}

var _ Sited = (*Groups)(nil)

// NewGroups returns the Model of a GLM with the given prior.
func NewGroups(prior *BlockPrior) *Groups { return &Groups{prior: prior} }

// NewGroupsOf returns the Model of a GLM with Gaussian noise whose rows are not kept, given its
// evidence. The rows of the prior are a sample, which no result depends on.
func NewGroupsOf(prior *BlockPrior, e *site.Evidence) *Groups {
	return &Groups{prior: prior, evidence: e}
}

// Digest implements Model.
func (l *Groups) Digest(d *save.Digest) {
	l.prior.Digest(d)
	d.Text("groups")
}

// Use implements Model.
func (l *Groups) Use(c term.Crew) {
	l.workers = c
	if l.evidence != nil {
		l.evidence.Use(c)
	}
}

// Work implements Model, in passes over the rows.
func (l *Groups) Work() float64 { return l.units }

// Keep implements Model.
func (l *Groups) Keep(best bool) {
	l.memory.Keep(best)
	l.l = gauss.CloneLists(l.found)
	if best {
		l.best = l.l
	}
}

// Begin implements Sited.
func (l *Groups) Begin(alg site.Algebra) {
	l.memory.Begin(alg)
	if a, ok := alg.(*site.ArrowAlgebra); ok && l.best != nil {
		a.SetL(l.best)
	}
}

// State implements Model.
func (l *Groups) State(c *save.Coder, n int) {
	l.memory.state(c, n, l.prior.base.X.Rows)
	c.Float(&l.units)
	blocks := gauss.NewArrowShape(&l.prior.base.Prior).Blocks
	for _, list := range []*[][]float64{&l.l, &l.best} {
		known := *list != nil
		if c.Bool(&known); !known {
			continue
		}
		if c.Reading() {
			*list = make([][]float64, len(blocks))
		}
		for i, b := range blocks {
			c.Floats(len(b.L), &(*list)[i])
		}
	}
}

// Evaluate implements Model.
func (l *Groups) Evaluate(theta []float64, slack, most float64, slopes bool) (search.Point, error) {
	none := search.Point{F: math.Inf(1)}
	lin, err := l.prior.At(theta)
	if err != nil {
		return none, nil // out of range
	}
	var x search.Point
	if lin.Terms.Noise() > 0 {
		x, err = l.gaussian(lin, theta, slopes)
	} else {
		l.prior.ruled(lin)
		err = lin.Terms.Sure(func() (err error) {
			x, err = l.fit(lin, theta, slack, most, slopes)
			return err
		})
	}
	if valued, err := hasValue(l.workers, err); !valued {
		return none, err
	}
	if math.IsNaN(x.F) || math.IsInf(x.F, 0) {
		return none, nil
	}
	if _, ok := dense.AllFinite(x.Grad); !ok {
		return none, nil
	}
	return x, nil
}

// Steps of differences in θ: of the gradient, and of the curvature.
const (
	evidenceStep = 1e-4
	evidenceBend = 1e-2
)

// gaussian is Evaluate for Gaussian noise, from sums over the rows.
func (l *Groups) gaussian(lin *site.LinearModel, theta []float64, slopes bool) (x search.Point,
	err error) {
	if l.evidence == nil {
		if l.evidence, err = site.NewEvidence(lin, l.workers); err != nil {
			return x, err
		}
		l.units++
	}
	e := l.evidence
	for i, from := range l.l {
		copy(e.L()[i], from)
	}
	x.F = -e.Maximize(lin.Terms.Noise(), lin.Prior.Prec)
	l.found = gauss.CloneLists(e.L())
	n := lin.X.Rows
	l.memory.found = sites{slices.Clone(theta), make([]float64, n), make([]float64, n),
		make([]float64, n)}
	lin.Terms.KnownSites(l.memory.found.gamma, l.memory.found.a)
	if !slopes {
		return x, nil
	}
	k := len(theta)
	x.Grad, x.Info = make([]float64, k), mat.NewSymDense(k, nil)
	at := func(i int, h float64) float64 {
		t := slices.Clone(theta)
		t[i] += h
		near, err := l.prior.At(t)
		if err != nil {
			return math.NaN()
		}
		return -e.At(near.Terms.Noise(), near.Prior.Prec)
	}
	for i := range k {
		x.Grad[i] = (at(i, evidenceStep) - at(i, -evidenceStep)) / (2 * evidenceStep)
		bend := (at(i, evidenceBend) - 2*x.F + at(i, -evidenceBend)) / (evidenceBend * evidenceBend)
		if bend > 0 {
			x.Info.SetSym(i, i, bend)
		}
	}
	return x, nil
}

// fit is Evaluate for other likelihoods.
func (l *Groups) fit(lin *site.LinearModel, theta []float64, slack, most float64,
	slopes bool) (x search.Point, err error) {
	s, err := site.NewArrowAlgebraIn(l.last, lin, l.workers)
	if l.last = s; err != nil {
		return x, err
	}
	if l.l != nil {
		s.SetL(l.l)
	}
	if len(l.past) > 0 {
		gamma, a, m := make([]float64, s.N), make([]float64, s.N), make([]float64, s.N)
		l.extrapolate(gamma, a, m, theta)
		s.StartAt(gamma, a, m)
	}
	gap, err := s.Settle(slack, learnSteps)
	if err != nil {
		return x, err
	}
	l.units += float64(s.Batch.Evaluations)
	q := &s.Batch.Cur
	l.memory.found = sites{slices.Clone(theta), slices.Clone(q.Gamma), slices.Clone(q.A),
		slices.Clone(q.M)}
	l.found = s.L()
	if x.F, x.Slack = q.Value, gap; q.Wild {
		return x, sentinel.ErrNotFinite
	}
	if slopes && x.F <= most {
		err = l.slopes(&x, s, lin, theta)
	}
	return x, err
}

// slopes stores the gradient and the average information in x; see Weights.slopes.
func (l *Groups) slopes(x *search.Point, s *site.ArrowAlgebra, lin *site.LinearModel,
	theta []float64) error {
	mean, cov, err := s.Weights()
	if err != nil {
		return err
	}
	q, d, nf := &s.Batch.Cur.Marginals, len(mean), len(theta)
	variance := make([]float64, d)
	cov.(*gauss.Arrow).BorderDiag(variance)
	r, own := l.prior.scaleSlopes(x, lin.Prior.Prec, mean, variance)
	least := make([]float64, nf)
	var u []float64
	for _, i := range l.prior.space.likelihoods() {
		if u == nil {
			u = make([]float64, lin.X.Rows*nf)
		}
		x.Grad[i], least[i] = l.prior.space.likelihoodSlope(u[i:], lin.Terms, q, l.workers, theta, i)
	}
	if u != nil {
		l.prior.likelihoodInfo(r, own, u, lin.X, q)
	}
	informationBy(x, r, own, least, cov)
	return l.workers.Halt.Err()
}

// informationBy stores ½(D − rᵀVr), at least of least, in x, for the covariance V.
func informationBy(x *search.Point, r []float64, own *mat.SymDense, least []float64, cov gauss.Cov) {
	nf := len(x.Grad)
	d := len(r) / max(1, nf)
	col, vr := make([]float64, d), make([]float64, d)
	for i := range nf {
		for j := range col {
			col[j] = r[j*nf+i]
		}
		cov.Mul(vr, col)
		for k := range i + 1 {
			for j := range col {
				col[j] = r[j*nf+k]
			}
			x.Info.SetSym(i, k, 0.5*(own.At(i, k)-floats.Dot(vr, col)))
		}
		x.Info.SetSym(i, i, max(x.Info.At(i, i), least[i], 0))
	}
}
