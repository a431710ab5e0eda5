package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// Pathwise estimates, by the identities of Bonnet (1964) and Price (1958),
//
//	∇_m E_q[l] = E_q[∇l(z)],   ∇_V E_q[l] = ½ E_q[∇²l(z)]
//
// from draws of a Gaussian or MeanField q. The Hessian is used for a
// SiteIntegrand whose likelihood is Differentiable; for a Gradienter it is
// replaced by ∇l(z)(V⁻¹(z − m))ᵀ, which has the same expectation. It needs far
// fewer draws than ScoreFunction.
type Pathwise struct {
	// Samples is the number of draws. Zero means 20.
	Samples int
}

func (p Pathwise) samples() int {
	if p.Samples == 0 {
		return 20
	}
	return p.Samples
}

// Accepts returns an error wrapping ErrNoEstimator or ErrParam.
func (p Pathwise) Accepts(q Dist, l Integrand) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if _, ok := q.(normal); !ok {
		return fmt.Errorf("pgsvi: %w: Pathwise needs a Gaussian or MeanField q, not %T; use ScoreFunction", ErrNoEstimator, q)
	}
	if s, ok := l.(SiteIntegrand); ok {
		return p.AcceptsLikelihood(s.Likelihood())
	}
	if g, ok := l.(Gradienter); ok && g.GradLogProb(make([]float64, l.Dim()), q.Rand(nil, rand.New(rand.NewPCG(1, 1)))) {
		return nil
	}
	return fmt.Errorf("pgsvi: %w: Pathwise needs the gradient of the log-likelihood: set LogLik.Grad, or use ScoreFunction", ErrNoEstimator)
}

// AcceptsLikelihood returns an error wrapping ErrNoEstimator unless lik is Differentiable.
func (p Pathwise) AcceptsLikelihood(lik Likelihood) error {
	if _, ok := lik.(Differentiable); !ok {
		return fmt.Errorf("pgsvi: %w: Pathwise needs the derivatives of %T: implement Differentiable, or use Exact or ScoreFunction", ErrNoEstimator, lik)
	}
	return nil
}

// Validate returns an error wrapping ErrParam if Samples is negative.
func (p Pathwise) Validate() error {
	if p.Samples < 0 {
		return fmt.Errorf("pgsvi: %w: Pathwise.Samples is %d", ErrParam, p.Samples)
	}
	return nil
}

// Grad implements Estimator.
func (p Pathwise) Grad(dst []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	return p.grad(dst, nil, q, l, rng)
}

// GradVar implements VarianceEstimator.
func (p Pathwise) GradVar(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	return p.grad(dst, variance, q, l, rng)
}

func (p Pathwise) grad(dst, variance []float64, q Dist, l Integrand, rng *rand.Rand) (float64, error) {
	if err := p.Accepts(q, l); err != nil {
		return math.NaN(), err
	}
	n := q.(normal)
	draws := drawSamples(q, p.samples(), rng)
	values := make([]float64, len(draws.z))
	logProbs(values, l, draws.z)
	sites, _ := l.(SiteIntegrand)
	gm, gv, u := make([]float64, n.Dim()), make([]float64, n.numGradV()), make([]float64, n.Dim())
	var acc *runningMoments
	g := dst
	if variance != nil {
		acc, g = newMoments(dst, variance), make([]float64, len(dst))
	}
	w := 1 / float64(len(draws.z))
	for i, z := range draws.z {
		if acc != nil {
			clear(gm)
			clear(gv)
			w = 1
		}
		if sites != nil {
			addSiteDerivs(n, gm, gv, w, sites, z)
		} else {
			n.standardize(u, draws.eps[i])
			dl := draws.scratch
			l.(Gradienter).GradLogProb(dl, z)
			floats.AddScaled(gm, w, dl)
			n.addOuter(gv, 0.25*w, dl, u)
			n.addOuter(gv, 0.25*w, u, dl)
		}
		if acc != nil {
			acc.add(n.fromMomentGrad(g, gm, gv))
		}
	}
	if acc != nil {
		acc.finish()
	} else {
		n.fromMomentGrad(dst, gm, gv)
	}
	return floats.Sum(values) / float64(len(values)), nil
}

// addSiteDerivs adds w times the gradient and half the Hessian of the sites at z.
func addSiteDerivs(n normal, gm, gv []float64, w float64, s SiteIntegrand, z []float64) {
	lik := s.Likelihood().(Differentiable)
	for i := range s.Len() {
		x, y, weight := s.Site(i)
		d1, d2 := lik.Derivs(y, floats.Dot(x, z))
		floats.AddScaled(gm, w*weight*d1, x)
		n.addOuter(gv, 0.5*w*weight*d2, x, x)
	}
}

// EstimateSites implements SiteEstimator. The value is the mean of LogProb over the draws.
func (p Pathwise) EstimateSites(e, d1, d2 []float64, lik Likelihood, y, m, v []float64, rng *rand.Rand) error {
	d, ok := lik.(Differentiable)
	if !ok {
		return p.AcceptsLikelihood(lik)
	}
	eps := getDraws(p.samples(), rng)
	defer putDraws(eps)
	n := float64(len(eps.x))
	for i := range y {
		sd := math.Sqrt(v[i])
		var l, a, b float64
		for _, x := range eps.x {
			eta := m[i] + sd*x
			g, h := d.Derivs(y[i], eta)
			l += lik.LogProb(y[i], eta)
			a += g
			b += h
		}
		e[i], d1[i], d2[i] = l/n, a/n, b/n
	}
	return nil
}
