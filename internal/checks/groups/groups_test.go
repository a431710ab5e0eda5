package groups

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"gonum.org/v1/gonum/mat"
)

// mixedCase holds the data of a mixed model. The common columns come first, and then the columns of
// each group. The last level of each group has no rows, and every 50th row has no level.
type mixedCase struct {
	x      *Sparse
	y      []float64
	groups []Group
	common int
}

// mixedOptions describes a mixedCase: the number of rows and, for each group, levels, effects,
// standard deviations and the correlation of the first two effects.
type mixedOptions struct {
	rows, common int
	levels       []int
	sd           [][]float64
	rho          float64
	nested       bool // the second group is a coarser partition of the first
}

// newMixedCase draws data whose responses are in the support of lik.
func newMixedCase(t *testing.T, lik Likelihood, o mixedOptions, seed uint64) *mixedCase {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 11))
	c := &mixedCase{common: o.common}
	first := o.common
	var effects [][]float64
	for k, levels := range o.levels {
		q := len(o.sd[k])
		r := Group{First: first, Levels: levels, SD: o.sd[k], Fixed: true}
		for j := range q {
			r.Effects = append(r.Effects, fmt.Sprintf("e%d", j))
		}
		if q > 1 {
			r.Corr = mat.NewSymDense(q, nil)
			for j := range q {
				r.Corr.SetSym(j, j, 1)
			}
			r.Corr.SetSym(0, 1, o.rho)
		}
		u := make([]float64, levels*q)
		for g := range levels {
			z := rng.NormFloat64()
			u[g*q] = o.sd[k][0] * z
			for j := 1; j < q; j++ {
				u[g*q+j] = o.sd[k][j] * (o.rho*z + math.Sqrt(1-o.rho*o.rho)*rng.NormFloat64())
			}
		}
		effects = append(effects, u)
		c.groups = append(c.groups, r)
		first += levels * q
	}
	c.x = NewSparse(first)
	for i := range o.rows {
		var ind []int
		var val []float64
		eta := 0.2
		for j := range o.common {
			z := rng.NormFloat64()
			ind, val = append(ind, j), append(val, z)
			eta += 0.4 * z / float64(j+1)
		}
		level := 0
		for k, r := range c.groups {
			q := len(r.Effects)
			if o.nested && k > 0 {
				level = level * (r.Levels - 1) / (o.levels[0] - 1)
			} else {
				level = rng.IntN(max(1, r.Levels-1))
			}
			if i%50 == 7 {
				continue
			}
			for j := range q {
				z := 1.0
				if j > 0 {
					z = val[j-1]
				}
				ind, val = append(ind, r.First+level*q+j), append(val, z)
				eta += z * effects[k][level*q+j]
			}
		}
		c.x.Append(ind, val)
		c.y = append(c.y, mixedResponse(lik, eta, rng))
	}
	return c
}

// mixedResponse returns a response of lik at the linear predictor eta, or a value of the right kind.
func mixedResponse(lik Likelihood, eta float64, rng *rand.Rand) float64 {
	switch lik.(type) {
	case BernoulliLogit, BernoulliProbit:
		if rng.Float64() < 1/(1+math.Exp(-eta)) {
			return 1
		}
		return -1
	}
	f := kit.FactsOf(lik)
	switch {
	case f.Support == RealLine:
		return eta + 0.7*rng.NormFloat64()
	case f.Support == Positive || f.Support == NonNegative:
		return math.Exp(eta) * (0.3 + rng.ExpFloat64())
	case f.Support == UnitInterval:
		return 1 / (1 + math.Exp(-eta-rng.NormFloat64()))
	}
	most := 100.0
	if f.Most > 0 {
		most = float64(f.Most)
	}
	y, p := 0.0, rng.Float64()
	prob := math.Exp(-math.Exp(eta))
	for sum := prob; sum < p && y < most; sum += prob {
		y++
		prob *= math.Exp(eta) / y
	}
	return y
}

// fullPrior returns the prior of all weights as one dense Gaussian.
func (c *mixedCase) fullPrior(t *testing.T, intercept bool) *Gaussian {
	t.Helper()
	_, d := c.x.Dims()
	n := d
	if intercept {
		n++
	}
	cov := mat.NewSymDense(n, nil)
	for j := range c.common {
		cov.SetSym(j, j, 4)
	}
	if intercept {
		cov.SetSym(d, d, 25)
	}
	for _, r := range c.groups {
		q := effectsOf(r)
		for g := range r.Levels {
			for i := range q {
				for j := range i + 1 {
					v := r.SD[i] * r.SD[j]
					if i != j {
						v *= r.Corr.At(i, j)
					}
					cov.SetSym(r.First+g*q+i, r.First+g*q+j, v)
				}
			}
		}
	}
	p, err := NewGaussian(make([]float64, n), cov)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mixedLikelihoods are likelihoods of every kind of response.
func mixedLikelihoods() []Likelihood {
	return []Likelihood{BernoulliLogit{}, BernoulliProbit{}, Poisson{}, GaussianNoise{Var: 0.5},
		StudentT{DF: 4, Scale: 0.5}, Laplace{Scale: 0.5}, Gamma{Shape: 2}, Exponential{},
		Weibull{Shape: 1.5}, LogNormal{Scale: 0.6}, NegativeBinomial{}, Binomial{Trials: 4},
		Ordinal{Cuts: []float64{0, 1}}, Beta{}, BetaBinomial{Trials: 4}, ZeroInflated{},
		Hurdle{}}
}

// TestGroupsDense compares mixed models at a given Σ with GLMs of the same columns under a dense
// prior: slopes, crossed and nested groups, slopes of a group in the border, levels without rows,
// weights and offsets.
func TestGroupsDense(t *testing.T) {
	cases := map[string]mixedOptions{
		"intercepts": {rows: 300, common: 2, levels: []int{14}, sd: [][]float64{{0.9}}},
		"slopes": {rows: 300, common: 3, levels: []int{15}, sd: [][]float64{{0.7, 0.4}},
			rho: -0.5},
		"three effects": {rows: 300, common: 3, levels: []int{12}, sd: [][]float64{{0.7, 0.4, 0.2}},
			rho: 0.3},
		"crossed": {rows: 300, common: 2, levels: []int{9, 20}, sd: [][]float64{{0.6}, {0.8}}},
		"crossed slopes": {rows: 300, common: 3, levels: []int{20, 7, 4},
			sd: [][]float64{{0.5, 0.3}, {0.6, 0.2}, {0.3}}, rho: 0.4},
		"nested": {rows: 300, common: 2, levels: []int{16, 5}, sd: [][]float64{{0.6}, {0.7}},
			nested: true},
	}
	for name, o := range cases {
		for _, lik := range mixedLikelihoods() {
			t.Run(fmt.Sprintf("%s, %T", name, lik), func(t *testing.T) {
				c := newMixedCase(t, lik, o, 3)
				compareDense(t, c, lik, nil, nil)
			})
		}
		t.Run(name+", weights and offsets", func(t *testing.T) {
			c := newMixedCase(t, Poisson{}, o, 5)
			weights, offset := make([]float64, o.rows), make([]float64, o.rows)
			for i := range weights {
				weights[i], offset[i] = float64(i%4), 0.1*float64(i%7)
			}
			compareDense(t, c, Poisson{}, weights, offset)
		})
	}
}

// compareDense fits c in both forms and compares the results.
func compareDense(t *testing.T, c *mixedCase, lik Likelihood, weights, offset []float64) {
	t.Helper()
	s := &Solver{Goal: 1e-11}
	dense, err := NewGLM(c.x, c.y, lik, &GLMOptions{Intercept: true, Prior: c.fullPrior(t, true),
		Weights: weights, Offset: offset, Covariance: FullCovariance})
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := dense.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGLM(c.x, c.y, lik, &GLMOptions{Intercept: true, PriorSD: 2, InterceptSD: 5,
		Groups: c.groups, Weights: weights, Offset: offset})
	if err != nil {
		t.Fatal(err)
	}
	q, own, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if own.Status != Converged {
		t.Errorf("status %v, gap %.1e", own.Status, own.Gap)
	}
	if d := math.Abs(own.ELBO - res.ELBO); !(d <= 1e-8) {
		t.Errorf("ELBO %.10f, with a dense prior %.10f", own.ELBO, res.ELBO)
	}
	mean, sd, cov := p.Mean(nil), p.SD(nil), p.Cov()
	ownCov := q.Cov()
	var off, wide, far float64
	for j, m := range q.Mean(nil) {
		off = max(off, math.Abs(m-mean[j]))
		wide = max(wide, math.Abs(q.SD(nil)[j]-sd[j]))
		for k := range j + 1 {
			far = max(far, math.Abs(ownCov.At(j, k)-cov.At(j, k)))
		}
	}
	if !(off <= 1e-6 && wide <= 1e-6 && far <= 1e-6) {
		t.Errorf("means differ by %.1e, standard deviations by %.1e, covariances by %.1e", off, wide,
			far)
	}
	m, v := q.At(c.x).Latent(nil, nil)
	m2, v2 := p.At(c.x).Latent(nil, nil)
	for i := range m {
		if !(math.Abs(m[i]-m2[i]) <= 5e-6 && math.Abs(v[i]-v2[i]) <= 5e-6) {
			t.Fatalf("row %d has the latent value %v ± %v, with a dense prior %v ± %v", i, m[i], v[i],
				m2[i], v2[i])
		}
	}
}
