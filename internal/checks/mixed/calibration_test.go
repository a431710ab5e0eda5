package mixed

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/stat/distuv"
)

// This file simulates data sets and counts how often intervals contain the truth. If the standard
// deviations, the correlation and the weights are drawn from their priors, a correct posterior is
// calibrated for any number of levels and rows: its 90% intervals contain the truth in 90% of the
// data sets (Cook, Gelman and Rubin 2006; Talts, Betancourt, Simpson, Vehtari and Gelman 2018).
// With fixed standard deviations the coverage also depends on the prior.

const (
	priorScale = 2.5 // scale of the half-normal prior of a standard deviation
	rowsEach   = 10  // rows per level
	// loose is the number of rows without a level next to real responses. The prior is in units of the
	// scale of the responses, and these rows determine the scale.
	loose = 300
)

// mostCount is the largest count of a data set. Data sets with larger counts are drawn again, which
// does not change the calibration, because it depends on the responses alone.
const mostCount = 1e5

// A design is a kind of data set: η = w_0 + w_1 x + u_g, or w_0 + w_1 x + u_g + v_g x.
type design struct {
	lik    Likelihood
	levels int
	slope  bool
	sd     float64 // true standard deviations; NaN draws them from the prior
}

func (d design) String() string {
	form := "(1 | g)"
	if d.slope {
		form = "(1 + x | g)"
	}
	return fmt.Sprintf("%s %s, %d levels, sd %v", testkit.TypeName(d.lik), form, d.levels, d.sd)
}

// fromPrior reports whether the standard deviations are drawn from the prior.
func (d design) fromPrior() bool { return math.IsNaN(d.sd) }

// A dataSet is a draw of a design.
type dataSet struct {
	x      *Sparse
	y      []float64
	w      [2]float64   // intercept and weight of x
	sd     [2]float64   // standard deviations of the effects
	rho    float64      // their correlation
	u      [][2]float64 // effects
	weight float64      // importance of the data set
}

// draw draws a data set. The columns are x, and then the effects of each level. The last level
// has no rows.
func (d design) draw(rng *rand.Rand) *dataSet {
	q := 1
	if d.slope {
		q = 2
	}
	s := &dataSet{x: NewSparse(1 + q*(d.levels+1)), weight: 1}
	s.w = [2]float64{rng.NormFloat64(), rng.NormFloat64()}
	_, gaussian := d.lik.(GaussianNoise)
	n, scale := d.levels*rowsEach, priorScale
	if gaussian {
		n, s.w[1] = n+loose, 0.3*s.w[1]
	}
	xs := testkit.Normals(rng, n)
	square := 0.0
	for _, x := range xs[n-d.levels*rowsEach:] {
		square += x * x / float64(d.levels*rowsEach)
	}
	sizes := [2]float64{1, math.Sqrt(square)}
	for j := range q {
		if s.sd[j] = d.sd; d.fromPrior() {
			s.sd[j] = scale / sizes[j] * math.Abs(rng.NormFloat64())
		}
	}
	if d.slope { // LKJ(2)
		s.rho = 2*distuv.Beta{Alpha: 2, Beta: 2, Src: rng}.Rand() - 1
	}
	for range d.levels {
		s.u = append(s.u, s.effect(rng))
	}
	for i, x := range xs {
		eta := s.w[0] + s.w[1]*x
		g := (i - (n - d.levels*rowsEach)) / rowsEach
		switch {
		case gaussian && i < loose:
			s.x.Append([]int{0}, []float64{x})
		case d.slope:
			eta += s.u[g][0] + s.u[g][1]*x
			s.x.Append([]int{0, 1 + 2*g, 2 + 2*g}, []float64{x, 1, x})
		default:
			eta += s.u[g][0]
			s.x.Append([]int{0, 1 + g}, []float64{x, 1})
		}
		s.y = append(s.y, response(d.lik, eta, rng))
	}
	if gaussian && d.fromPrior() {
		// The prior has the scale of the responses, so weight the data set by the ratio of the densities.
		unit, _ := learn.RobustScale(s.y, nil)
		for j := range q {
			z := s.sd[j] * sizes[j] / priorScale
			s.weight *= math.Exp(0.5*z*z*(1-1/(unit*unit))) / unit
		}
	}
	return s
}

// effect draws the effects of a level.
func (s *dataSet) effect(rng *rand.Rand) (u [2]float64) {
	a, b := rng.NormFloat64(), rng.NormFloat64()
	return [2]float64{s.sd[0] * a, s.sd[1] * (s.rho*a + math.Sqrt(1-s.rho*s.rho)*b)}
}

// response draws a response.
func response(lik Likelihood, eta float64, rng *rand.Rand) float64 {
	switch lik.(type) {
	case BernoulliLogit:
		if rng.Float64() < 1/(1+math.Exp(-eta)) {
			return 1
		}
		return -1
	case Poisson:
		return distuv.Poisson{Lambda: math.Exp(eta), Src: rng}.Rand()
	}
	return eta + rng.NormFloat64()
}

// fit fits the model that belongs to the design.
func (d design) fit(s *dataSet) (*GLM, *GLMPosterior, error) {
	group := Group{First: 1, Levels: d.levels + 1}
	if d.slope {
		group.Effects = []string{"1", "x"}
	}
	o := &GLMOptions{Intercept: true, PriorSD: 1, InterceptSD: 1, Groups: []Group{group}}
	if _, ok := d.lik.(GaussianNoise); ok {
		o.PriorSD = 0.3
	}
	g, err := NewGLM(s.x, s.y, d.lik, o)
	if err != nil {
		return nil, nil, err
	}
	p, _, err := g.Fit(context.Background(), &Solver{Workers: 1})
	return g, p, err
}

// A coverages holds the shares of data sets in which intervals contain the truth.
type coverages struct {
	fresh, seen  float64 // 90% intervals of the predictors of a new level and of known levels
	weights      float64 // 90% intervals of the common weights
	sd, corr     float64 // 95% intervals of standard deviations and correlations
	below, above float64 // standard deviations below and above their intervals
}

func (s coverages) String() string {
	return fmt.Sprintf("new %.3f, known %.3f, weights %.3f, sd %.3f (%.3f below, %.3f above), "+
		"corr %.3f", s.fresh, s.seen, s.weights, s.sd, s.below, s.above, s.corr)
}

// add adds c times w to s.
func (s *coverages) add(w float64, c coverages) {
	s.fresh += w * c.fresh
	s.seen += w * c.seen
	s.weights += w * c.weights
	s.sd += w * c.sd
	s.corr += w * c.corr
	s.below += w * c.below
	s.above += w * c.above
}

// cover returns the coverage of one data set. The probability that an interval contains a new
// effect is exact, and does not need draws.
func (d design) cover(s *dataSet, p *GLMPosterior, rng *rand.Rand) (c coverages, err error) {
	q := 1
	if d.slope {
		q = 2
	}
	rows := NewSparse(1 + q*(d.levels+1))
	xs := testkit.Normals(rng, d.levels+1)
	for g, x := range xs {
		if d.slope {
			rows.Append([]int{0, 1 + 2*g, 2 + 2*g}, []float64{x, 1, x})
		} else {
			rows.Append([]int{0, 1 + g}, []float64{x, 1})
		}
	}
	lo, hi, err := p.At(rows).MeanInterval(nil, nil, 0.9)
	if err != nil {
		return c, err
	}
	for g, x := range xs {
		a, b := d.latent(lo[g]), d.latent(hi[g])
		at := s.w[0] + s.w[1]*x
		if g == d.levels {
			sd := math.Sqrt(s.sd[0]*s.sd[0] + 2*s.rho*s.sd[0]*s.sd[1]*x + s.sd[1]*s.sd[1]*x*x)
			c.fresh = distuv.UnitNormal.CDF((b-at)/sd) - distuv.UnitNormal.CDF((a-at)/sd)
		} else if at += s.u[g][0] + s.u[g][1]*x; a <= at && at <= b {
			c.seen += 1 / float64(d.levels)
		}
	}
	low, high := p.WeightQuantile(nil, 0.05), p.WeightQuantile(nil, 0.95)
	for k, j := range []int{p.Dim() - 1, 0} {
		if low[j] <= s.w[k] && s.w[k] <= high[j] {
			c.weights += 0.5
		}
	}
	of := p.Groups()[0]
	for j, e := range of.Effects {
		share := 1 / float64(q)
		switch {
		case s.sd[j] < e.Lo:
			c.below += share
		case s.sd[j] > e.Hi:
			c.above += share
		default:
			c.sd += share
		}
	}
	for _, e := range of.Corr {
		if e.Lo <= s.rho && s.rho <= e.Hi {
			c.corr = 1
		}
	}
	return c, nil
}

// latent returns the linear predictor at which the mean response is m.
func (d design) latent(m float64) float64 {
	switch d.lik.(type) {
	case BernoulliLogit:
		return math.Log1p(m) - math.Log1p(-m)
	case Poisson:
		return math.Log(m)
	}
	return m
}

// measure returns the coverage over the given number of data sets, and the effective number of
// them.
func (d design) measure(t *testing.T, sets int) (c coverages, n float64) {
	t.Helper()
	all, weights := make([]coverages, sets), make([]float64, sets)
	err := parallel.Each(context.Background(), sets, 2, func(_, k int) error {
		rng := testkit.Rand(uint64(1000*d.levels + k))
		s := d.draw(rng)
		for slices.Max(s.y) > mostCount {
			s = d.draw(rng)
		}
		_, p, err := d.fit(s)
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
		t.Fatal(err)
	}
	var total, squares float64
	for _, w := range weights {
		total, squares = total+w, squares+w*w
	}
	for k, w := range weights {
		c.add(w/total, all[k])
	}
	return c, total * total / squares
}

// TestCalibration checks that intervals are calibrated if all parameters come from their priors.
// This checks the computation: the points of the integral, their probabilities, and quantiles of
// the mixture.
func TestCalibration(t *testing.T) {
	sets, levels := testkit.Longer(300, testkit.Shorter(80, 40)), []int{8}
	if testkit.IsLong() {
		levels = []int{5, 8, 20, 49}
	}
	for _, slope := range []bool{false, true} {
		if slope { // which takes more time
			sets = min(sets, 200)
		}
		for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 1}} {
			for _, n := range levels {
				d := design{lik, n, slope, math.NaN()}
				c, size := d.measure(t, sets)
				t.Logf("%v: %v", d, c)
				// The errors of Gaussian approximations, and the standard error of a share.
				off := func(what string, share, want float64) {
					if tol := 0.015 + 2.5*math.Sqrt(want*(1-want)/size); !(math.Abs(share-want) <= tol) {
						t.Errorf("%v: intervals of %s contain %.3f, want %.2f ± %.3f", d, what, share, want, tol)
					}
				}
				off("new levels", c.fresh, 0.9)
				off("known levels", c.seen, 0.9)
				off("weights", c.weights, 0.9)
				off("standard deviations", c.sd, 0.95)
				if slope {
					off("correlations", c.corr, 0.95)
				}
			}
		}
	}
}

// TestCoverage measures the coverage at fixed standard deviations. It exceeds 90% for new levels
// if the prior is much wider than the true value, and the few levels do not rule out larger
// values.
func TestCoverage(t *testing.T) {
	testkit.Long(t)
	for _, slope := range []bool{false, true} {
		sets, all := 200, []int{5, 8, 20, 50, 100}
		if slope { // which takes more time
			sets, all = 60, all[:4]
		}
		for _, sd := range []float64{1, 0.3} {
			for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 1}} {
				for _, levels := range all {
					d := design{lik, levels, slope, sd}
					c, _ := d.measure(t, sets)
					t.Logf("%v: %v", d, c)
					if !(min(c.fresh, c.seen, c.sd) >= 0.86) {
						t.Errorf("%v: coverage %v", d, c)
					}
				}
			}
		}
	}
}
