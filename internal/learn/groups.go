package learn

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file holds the Model of a GLM with grouping factors. Each evaluation also finds the best
// covariances Σ of the effects of levels, so θ holds the other hyperparameters alone, and the
// derivatives are those at the best Σ (envelope theorem). Its value is −ELBO − log p(Σ). With Gaussian
// noise, Profile first finds θ and Σ together.

// Groups is the Model of a GLM whose prior has blocks. It remembers the sites of the rows and Σ.
// Its Work counts passes over the rows.
type Groups struct {
	fitter
	prior *BlockPrior

	l, foundL, bestL [][]float64 // L of the factors: last kept, last found, and at the best θ

	last     *site.ArrowAlgebra // the next fit takes its layout
	evidence *site.Evidence     // for Gaussian noise
}

var (
	_ Noisy = (*Groups)(nil)
	_ Sited = (*Groups)(nil)
)

// NewGroups returns the Model of a GLM with the given prior.
func NewGroups(prior *BlockPrior) *Groups {
	l := &Groups{fitter: fitter{n: prior.base.X.Rows}, prior: prior}
	l.fit = l.fitAt
	return l
}

// NewGroupsOf returns the Model of a GLM with Gaussian noise whose rows are not kept, given its
// evidence. The rows of the prior are a sample, which no result depends on.
func NewGroupsOf(prior *BlockPrior, e *site.Evidence) *Groups {
	l := NewGroups(prior)
	l.evidence = e
	return l
}

// Digest implements Model.
func (l *Groups) Digest(d *save.Digest) {
	l.prior.Digest(d)
	d.Text("groups")
}

// Use implements Model.
func (l *Groups) Use(c term.Crew) {
	l.fitter.Use(c)
	if l.evidence != nil {
		l.evidence.Use(c)
	}
}

// Keep implements Model.
func (l *Groups) Keep(best bool) {
	l.fitter.Keep(best)
	l.l = gauss.CloneLists(l.foundL)
	if best {
		l.bestL = l.l
	}
}

// Begin implements Sited.
func (l *Groups) Begin(alg site.Algebra) {
	l.fitter.Begin(alg)
	if a, ok := alg.(*site.ArrowAlgebra); ok && l.bestL != nil {
		a.SetL(l.bestL)
	}
}

// State implements Model.
func (l *Groups) State(c *save.Coder, n int) {
	l.fitter.State(c, n)
	blocks := gauss.NewArrowShape(&l.prior.base.Prior).Blocks
	for _, list := range []*[][]float64{&l.l, &l.bestL} {
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

// fitAt implements fitter.fit.
func (l *Groups) fitAt(theta []float64, slack, most float64) (x search.Point, err error) {
	lin, err := l.prior.At(theta)
	if err != nil {
		return x, errNoValue
	}
	if lin.Terms.Noise() > 0 {
		return l.gaussian(lin, theta, most)
	}
	l.prior.ruled(lin)
	err = lin.Terms.Sure(func() (err error) {
		x, err = l.fitSites(lin, theta, slack, most)
		return err
	})
	return x, err
}

// gaussian is fitAt for Gaussian noise, from sums over the rows.
func (l *Groups) gaussian(lin *site.LinearModel, theta []float64, most float64) (x search.Point,
	_ error) {
	if err := l.sums(lin); err != nil {
		return x, err
	}
	z, grad, info := l.maximize(theta, false)
	x.F = -z
	l.foundL = gauss.CloneLists(l.evidence.L())
	gamma, a := make([]float64, l.n), make([]float64, l.n)
	lin.Terms.KnownSites(gamma, a)
	l.remember(theta, gamma, a, make([]float64, l.n))
	if wanted(x.F, most) {
		floats.Scale(-1, grad)
		x.Grad, x.Info = grad, info
	}
	return x, nil
}

// sums computes the evidence once, for the model lin at some θ.
func (l *Groups) sums(lin *site.LinearModel) (err error) {
	if l.evidence == nil {
		l.evidence, err = site.NewEvidence(lin, l.workers)
		l.units++
	}
	return err
}

// Profiles implements Noisy.
func (l *Groups) Profiles() bool { return l.prior.space.Gaussian && len(l.prior.space.Coords) > 0 }

// Profile implements Noisy. It moves Σ and all of θ to the best evidence, from sums over the rows.
func (l *Groups) Profile(theta []float64) (search.Point, error) {
	x := search.Point{Theta: slices.Clone(theta), F: math.Inf(1)}
	lin, err := l.prior.At(theta)
	if err == nil {
		if err = l.sums(lin); err != nil {
			return x, err
		}
		z, _, _ := l.maximize(x.Theta, true)
		x.F = -z + l.prior.space.Penalty(x.Theta, nil)
		l.l = gauss.CloneLists(l.evidence.L())
	}
	x, err = Judge(l.workers.Halt, x, err)
	if x.Theta == nil {
		x.Theta = slices.Clone(theta)
	}
	return x, err
}

// maximize maximizes the evidence from the last L. If move is set, it also moves θ.
func (l *Groups) maximize(theta []float64, move bool) (z float64, grad []float64, info *mat.SymDense) {
	for i, from := range l.l {
		copy(l.evidence.L()[i], from)
	}
	return l.evidence.Maximize(l.space(theta), theta, move)
}

// noiseDiff is the step in θ of the difference of the log noise.
const noiseDiff = 1e-4

// space returns the space of θ of the evidence.
func (l *Groups) space(theta []float64) *site.EvidenceSpace {
	own := l.prior.space
	s := &site.EvidenceSpace{Column: l.prior.columns(), Penalty: own.Penalty, Prec: own.prec}
	s.At = func(theta []float64) (noise float64, prec []float64, ok bool) {
		lin, err := l.prior.At(theta)
		if err != nil {
			return 0, nil, false
		}
		return lin.Terms.Noise(), lin.Prior.Prec, true
	}
	logNoise := func(i int, h float64) float64 {
		t := slices.Clone(theta)
		t[i] += h
		noise, _, _ := s.At(t)
		return math.Log(noise)
	}
	for i, c := range own.Coords {
		s.Lo, s.Hi = append(s.Lo, c.Lo), append(s.Hi, c.Hi)
		slope := 0.0
		if c.Likelihood {
			slope = (logNoise(i, noiseDiff) - logNoise(i, -noiseDiff)) / (2 * noiseDiff)
		}
		s.Noise = append(s.Noise, slope)
	}
	return s
}

// fitSites is fitAt for other likelihoods.
func (l *Groups) fitSites(lin *site.LinearModel, theta []float64, slack, most float64) (
	x search.Point, err error) {
	s, err := site.NewArrowAlgebraIn(l.last, lin, l.workers)
	if l.last = s; err != nil {
		return x, err
	}
	if l.l != nil {
		s.SetL(l.l)
	}
	if at := l.foreseen(theta); at != nil {
		s.StartAt(at.gamma, at.a, at.m)
	}
	if x.Slack, err = s.Settle(slack, learnSteps); err != nil {
		return x, err
	}
	l.units += float64(s.Batch.Evaluations)
	q := &s.Batch.Cur
	l.remember(theta, q.Gamma, q.A, q.M)
	l.foundL = s.L()
	if x.F = q.Value; q.Wild {
		return x, errNoValue
	}
	if wanted(x.F, most) {
		err = l.slopes(&x, s, lin, theta)
	}
	return x, err
}

// slopes stores the gradient and the average information in x; see BlockPrior.slopes.
func (l *Groups) slopes(x *search.Point, s *site.ArrowAlgebra, lin *site.LinearModel,
	theta []float64) error {
	mean, cov, err := s.Weights()
	if err != nil {
		return err
	}
	variance := make([]float64, len(mean))
	cov.(*gauss.Arrow).BorderDiag(variance)
	l.prior.slopes(x, lin, &s.Batch.Cur.Marginals, mean, variance, cov, l.workers, theta)
	return l.workers.Halt.Err()
}
