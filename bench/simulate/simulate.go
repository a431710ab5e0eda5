// Package simulate draws data sets of mixed models with known parameters, fits them, and counts how
// often intervals contain the truth. If the standard deviations, the correlation and the weights
// are drawn from their priors, a correct posterior is calibrated for any number of levels and rows:
// its 90% intervals contain the truth in 90% of the data sets (Cook, Gelman and Rubin 2006; Talts,
// Betancourt, Simpson, Vehtari and Gelman 2018). With fixed standard deviations the coverage also
// depends on the prior.
package simulate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// PriorScale is the scale of the half-normal prior of a standard deviation.
	PriorScale = 2.5
	// RowsEach is the number of rows per level.
	RowsEach = 10
	// loose is the number of rows without a level next to real responses. The prior is in units of the
	// scale of the responses, and these rows determine the scale.
	loose = 300
	// mostCount is the largest count of a data set. Data sets with larger counts are drawn again, which
	// does not change the calibration, because it depends on the responses alone.
	mostCount = 1e5
)

// A Design is a kind of data set: η = w_0 + w_1 x + u_g, or w_0 + w_1 x + u_g + v_g x. Each level has
// ten rows.
type Design struct {
	Lik    pgsvi.Likelihood // BernoulliLogit, Poisson, Softmax, or GaussianNoise with Var 1
	Levels int
	Slope  bool
	SD     float64 // true standard deviations; NaN draws them from the prior
}

// String describes d.
func (d Design) String() string {
	form := "(1 | g)"
	if d.Slope {
		form = "(1 + x | g)"
	}
	return fmt.Sprintf("%T %s, %d levels, sd %v", d.Lik, form, d.Levels, d.SD)
}

// FromPrior reports whether the standard deviations are drawn from the prior.
func (d Design) FromPrior() bool { return math.IsNaN(d.SD) }

// effects returns the number of effects per level.
func (d Design) effects() int {
	if d.Slope {
		return 2
	}
	return 1
}

// gaussian reports whether the responses are real.
func (d Design) gaussian() bool {
	_, ok := d.Lik.(pgsvi.GaussianNoise)
	return ok
}

// A DataSet is a draw of a Design. The columns of X are x, and then the effects of each level. The
// last level has no rows. The rows of a level follow each other, after rows without a level.
type DataSet struct {
	X      *pgsvi.Sparse
	Y      []float64
	w      [2]float64   // intercept and weight of x
	sd     [2]float64   // standard deviations of the effects
	rho    float64      // their correlation
	u      [][2]float64 // effects
	weight float64      // importance of the data set
	of     *classSet    // the classes of a Softmax instead of w and u
}

// normals returns n draws of N(0, 1).
func normals(rng *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	return x
}

// Draw draws a data set.
func (d Design) Draw(rng *rand.Rand) *DataSet {
	q, gaussian := d.effects(), d.gaussian()
	s := &DataSet{X: pgsvi.NewSparse(1 + q*(d.Levels+1)), weight: 1}
	s.w = [2]float64{rng.NormFloat64(), rng.NormFloat64()}
	n := d.Levels * RowsEach
	if gaussian {
		n, s.w[1] = n+loose, 0.3*s.w[1]
	}
	xs := normals(rng, n)
	square := 0.0
	for _, x := range xs[n-d.Levels*RowsEach:] {
		square += x * x / float64(d.Levels*RowsEach)
	}
	sizes := [2]float64{1, math.Sqrt(square)}
	for j := range q {
		if s.sd[j] = d.SD; d.FromPrior() {
			s.sd[j] = d.priorScale() / sizes[j] * math.Abs(rng.NormFloat64())
		}
	}
	if d.Slope { // LKJ(2)
		s.rho = 2*distuv.Beta{Alpha: 2, Beta: 2, Src: rng}.Rand() - 1
	}
	for range d.Levels {
		s.u = append(s.u, s.effect(rng))
	}
	if d.classes() > 0 {
		s.of = d.newClassSet(s, rng)
	}
	for i, x := range xs {
		eta := s.w[0] + s.w[1]*x
		g := (i - (n - d.Levels*RowsEach)) / RowsEach
		switch {
		case gaussian && i < loose:
			s.X.Append([]int{0}, []float64{x})
		case d.Slope:
			eta += s.u[g][0] + s.u[g][1]*x
			s.X.Append([]int{0, 1 + 2*g, 2 + 2*g}, []float64{x, 1, x})
		default:
			eta += s.u[g][0]
			s.X.Append([]int{0, 1 + g}, []float64{x, 1})
		}
		if s.of != nil {
			s.Y = append(s.Y, s.of.response(x, g, rng))
		} else {
			s.Y = append(s.Y, Response(d.Lik, eta, rng))
		}
	}
	if gaussian && d.FromPrior() {
		// The prior has the scale of the responses, so weight the data set by the ratio of the densities.
		unit, _ := learn.RobustScale(s.Y, nil)
		for j := range q {
			z := s.sd[j] * sizes[j] / PriorScale
			s.weight *= math.Exp(0.5*z*z*(1-1/(unit*unit))) / unit
		}
	}
	return s
}

// priorScale returns the scale of the prior of the standard deviations. The difference of two classes has
// the scale of one linear predictor.
func (d Design) priorScale() float64 {
	if d.classes() > 0 {
		return PriorScale / math.Sqrt2
	}
	return PriorScale
}

// effect draws the effects of a level.
func (s *DataSet) effect(rng *rand.Rand) (u [2]float64) {
	a, b := rng.NormFloat64(), rng.NormFloat64()
	return [2]float64{s.sd[0] * a, s.sd[1] * (s.rho*a + math.Sqrt(1-s.rho*s.rho)*b)}
}

// Response draws a response with the linear predictor eta. It supports the likelihoods of Design.
func Response(lik pgsvi.Likelihood, eta float64, rng *rand.Rand) float64 {
	switch lik.(type) {
	case pgsvi.BernoulliLogit:
		if rng.Float64() < 1/(1+math.Exp(-eta)) {
			return 1
		}
		return -1
	case pgsvi.Poisson:
		return distuv.Poisson{Lambda: math.Exp(eta), Src: rng}.Rand()
	}
	return eta + rng.NormFloat64()
}

// Fit fits the model that belongs to the design.
func (d Design) Fit(ctx context.Context, s *DataSet) (*pgsvi.GLM, *pgsvi.GLMPosterior, error) {
	group := pgsvi.Group{First: 1, Levels: d.Levels + 1}
	if d.Slope {
		group.Effects = []string{"1", "x"}
	}
	o := &pgsvi.GLMOptions{Intercept: true, PriorSD: 1, InterceptSD: 1, Groups: []pgsvi.Group{group}}
	if d.gaussian() {
		o.PriorSD = 0.3
	}
	g, err := pgsvi.NewGLM(s.X, s.Y, d.Lik, o)
	if err != nil {
		return nil, nil, err
	}
	p, _, err := g.Fit(ctx, &pgsvi.Solver{Workers: 1})
	return g, p, err
}

// A Coverage holds the shares of data sets in which intervals contain the truth.
type Coverage struct {
	New, Known float64 // 90% intervals of the predictors of a new level and of known levels
	Weights    float64 // 90% intervals of the intercept and the weight of x
	SD, Corr   float64 // 95% intervals of standard deviations and correlations, as Groups has them
	// Below and Above are the shares of standard deviations below and above their intervals.
	Below, Above float64
}

// String describes c.
func (c Coverage) String() string {
	return fmt.Sprintf("new %.3f, known %.3f, weights %.3f, sd %.3f (%.3f below, %.3f above), "+
		"corr %.3f", c.New, c.Known, c.Weights, c.SD, c.Below, c.Above, c.Corr)
}

// shares returns pointers to the fields of c.
func (c *Coverage) shares() []*float64 {
	return []*float64{&c.New, &c.Known, &c.Weights, &c.SD, &c.Corr, &c.Below, &c.Above}
}

// cover returns the coverage of one data set. The probability that an interval contains a new
// effect is exact, and does not need draws.
func (d Design) cover(s *DataSet, p *pgsvi.GLMPosterior, rng *rand.Rand) (c Coverage, err error) {
	q := d.effects()
	rows := pgsvi.NewSparse(1 + q*(d.Levels+1))
	xs := normals(rng, d.Levels+1)
	for g, x := range xs {
		if d.Slope {
			rows.Append([]int{0, 1 + 2*g, 2 + 2*g}, []float64{x, 1, x})
		} else {
			rows.Append([]int{0, 1 + g}, []float64{x, 1})
		}
	}
	if s.of != nil {
		err = d.coverClasses(&c, s, p, rows, xs, rng)
	} else {
		err = d.coverRows(&c, s, p, rows, xs)
	}
	if err != nil {
		return c, err
	}
	of := p.Groups()[0]
	for j, e := range of.Effects {
		share := 1 / float64(q)
		switch {
		case s.sd[j] < e.Lo:
			c.Below += share
		case s.sd[j] > e.Hi:
			c.Above += share
		default:
			c.SD += share
		}
	}
	for _, e := range of.Corr {
		if e.Lo <= s.rho && s.rho <= e.Hi {
			c.Corr = 1
		}
	}
	return c, nil
}

// coverRows sets the shares of c for predictions and weights. The rows have one level each, and the last
// level is new. Their column x is xs.
func (d Design) coverRows(c *Coverage, s *DataSet, p *pgsvi.GLMPosterior, rows *pgsvi.Sparse,
	xs []float64) error {
	lo, hi, err := p.At(rows).MeanInterval(nil, nil, 0.9)
	if err != nil {
		return err
	}
	for g, x := range xs {
		a, b := d.latent(lo[g]), d.latent(hi[g])
		at := s.w[0] + s.w[1]*x
		if g == d.Levels {
			sd := math.Sqrt(s.sd[0]*s.sd[0] + 2*s.rho*s.sd[0]*s.sd[1]*x + s.sd[1]*s.sd[1]*x*x)
			c.New = distuv.UnitNormal.CDF((b-at)/sd) - distuv.UnitNormal.CDF((a-at)/sd)
		} else if at += s.u[g][0] + s.u[g][1]*x; a <= at && at <= b {
			c.Known += 1 / float64(d.Levels)
		}
	}
	low, high := p.WeightQuantile(nil, 0.05), p.WeightQuantile(nil, 0.95)
	for k, j := range []int{p.Dim() - 1, 0} {
		if low[j] <= s.w[k] && s.w[k] <= high[j] {
			c.Weights += 0.5
		}
	}
	return nil
}

// latent returns the linear predictor at which the mean response is m.
func (d Design) latent(m float64) float64 {
	switch d.Lik.(type) {
	case pgsvi.BernoulliLogit:
		return math.Log1p(m) - math.Log1p(-m)
	case pgsvi.Poisson:
		return math.Log(m)
	}
	return m
}

// A Result is the coverage over many data sets.
type Result struct {
	Mean, SE Coverage // the shares and their standard errors (Monte Carlo)
	// Sets is the effective number of data sets. It is smaller than their number if they have
	// different weights.
	Sets float64
}

// Measure fits the given number of data sets, on as many goroutines as workers. The result does not
// depend on workers.
func (d Design) Measure(ctx context.Context, sets, workers int) (*Result, error) {
	all, weights := make([]Coverage, sets), make([]float64, sets)
	err := parallel.Each(ctx, sets, workers, func(_, k int) error {
		rng := rand.New(rand.NewPCG(uint64(1000*d.Levels+k), 11))
		s := d.Draw(rng)
		for slices.Max(s.Y) > mostCount {
			s = d.Draw(rng)
		}
		_, p, err := d.Fit(ctx, s)
		if err == nil {
			weights[k] = s.weight
			all[k], err = d.cover(s, p, rng)
		}
		if err != nil {
			return fmt.Errorf("%v, data set %d: %w", d, k, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var total, squares float64
	for _, w := range weights {
		total, squares = total+w, squares+w*w
	}
	r := &Result{Sets: total * total / squares}
	mean, se := r.Mean.shares(), r.SE.shares()
	for k, w := range weights {
		for i, c := range all[k].shares() {
			*mean[i] += w / total * *c
		}
	}
	for k, w := range weights {
		for i, c := range all[k].shares() {
			off := w / total * (*c - *mean[i])
			*se[i] += off * off
		}
	}
	for _, x := range se {
		*x = math.Sqrt(*x)
	}
	return r, nil
}
