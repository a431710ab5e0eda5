package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// ScoreFunction estimates ∇_λ E_q[l] = E_q[l(z) ∇_λ log q(z|λ)] from draws of q
// (Glynn, 1990; Williams, 1992; Ranganath et al., 2014). It needs LogProb alone
// and applies to every family. The draws are shared by all terms of a batch.
type ScoreFunction struct {
	// Samples is the number of draws. Zero means 100; one is enough only with NoBaseline.
	Samples int
	// Baseline reduces the variance.
	Baseline Baseline
}

func (s ScoreFunction) samples() int {
	if s.Samples == 0 {
		return 100
	}
	return s.Samples
}

// Accepts returns an error wrapping ErrParam if there are too few samples, or
// ErrNoEstimator if q is a Point, which has no score.
func (s ScoreFunction) Accepts(q Dist, _ Integrand) error {
	if _, ok := q.(*Point); ok {
		return fmt.Errorf("pgsvi: %w: ScoreFunction needs a density, and a Point has none; write f as a Smooth", ErrNoEstimator)
	}
	return s.Validate()
}

// Validate returns an error wrapping ErrParam if there are too few samples or
// Baseline is unknown.
func (s ScoreFunction) Validate() error {
	least := 1
	if s.Baseline != NoBaseline {
		least = 2
	}
	if s.samples() < least || s.Baseline < Quadratic || s.Baseline > NoBaseline {
		return fmt.Errorf("pgsvi: %w: %+v needs Samples >= %d and a known Baseline", ErrParam, s, least)
	}
	return nil
}

// center turns values of the integrand into the weights of the score, such
// that their mean with the scores is the estimate, and returns the mean of the values.
func (s ScoreFunction) center(values []float64) (mean float64) {
	mean = floats.Sum(values) / float64(len(values))
	if s.Baseline != NoBaseline {
		// v_s − mean of the others = S/(S−1)·(v_s − mean).
		c := float64(len(values)) / float64(len(values)-1)
		for i, v := range values {
			values[i] = c * (v - mean)
		}
	}
	return mean
}

// Grad implements Estimator.
func (s ScoreFunction) Grad(dst []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	return s.grad(dst, nil, q, l, rng)
}

// GradVar implements VarianceEstimator. With the baseline Quadratic it takes the
// fitted coefficients as given, which errs by little where draws are many.
func (s ScoreFunction) GradVar(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	return s.grad(dst, variance, q, l, rng)
}

func (s ScoreFunction) grad(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	if err := s.Accepts(q, l); err != nil {
		return math.NaN(), err
	}
	draws := drawSamples(q, s.samples(), rng)
	values := make([]float64, len(draws.z))
	logProbs(values, l, draws.z)
	n, isNormal := q.(normal)
	var fit quadraticFit
	var mean float64
	fitted := false
	if s.Baseline == Quadratic && isNormal {
		_, diagonal := q.(*MeanField)
		fitted = fit.fit(values, draws.eps, !diagonal)
	}
	if fitted {
		mean = floats.Sum(values)/float64(len(values)) + fit.coef[0]
	} else {
		mean = s.center(values)
	}
	if variance != nil || !isNormal {
		acc := newMoments(dst, variance)
		g := make([]float64, len(dst))
		for i, z := range draws.z {
			q.Score(g, z)
			floats.Scale(values[i], g)
			acc.add(g)
		}
		acc.finish()
		if fitted {
			gm, gv := make([]float64, n.Dim()), make([]float64, n.numGradV())
			fit.addGrad(gm, gv, n)
			floats.Add(dst, n.fromMomentGrad(nil, gm, gv))
		}
		return mean, nil
	}
	// In (m, V) the score is u = V⁻¹(z − m) and ½(uuᵀ − V⁻¹).
	gm, gv, u := make([]float64, n.Dim()), make([]float64, n.numGradV()), make([]float64, n.Dim())
	var sum float64
	for i, eps := range draws.eps {
		w := values[i] / float64(len(values))
		sum += w
		n.standardize(u, eps)
		floats.AddScaled(gm, w, u)
		n.addOuter(gv, 0.5*w, u, u)
	}
	n.addPrecision(gv, -0.5*sum)
	if fitted {
		fit.addGrad(gm, gv, n)
	}
	n.fromMomentGrad(dst, gm, gv)
	return mean, nil
}

// EstimateSites implements SiteEstimator.
func (s ScoreFunction) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error {
	eps := getDraws(s.samples(), rng)
	defer putDraws(eps)
	n := len(eps.x)
	values, fit := eps.values, &eps.fit
	quadratic := s.Baseline == Quadratic && n >= 12
	if quadratic {
		fit.init(n, 3)
		for j, x := range eps.x {
			row := fit.row(j)
			row[0], row[1], row[2] = 1, x, x*x-1
		}
	}
	for i := range y {
		sd := math.Sqrt(v[i])
		for j, x := range eps.x {
			values[j] = lik.LogProb(y[i], m[i]+sd*x)
		}
		// E[c1 ε + c2 (ε² − 1)] has the derivatives c1/sd and 2c2/v.
		var c1, c2 float64
		if quadratic && fit.residuals(values) {
			e[i] = floats.Sum(values)/float64(n) + fit.coef[0]
			c1, c2 = fit.coef[1], 2*fit.coef[2]
		} else {
			e[i] = s.center(values)
		}
		var a, b float64
		for j, x := range eps.x {
			a += values[j] * x
			b += values[j] * (x*x - 1)
		}
		d1[i], d2[i] = (a/float64(n)+c1)/sd, (b/float64(n)+c2)/v[i]
	}
	return nil
}
