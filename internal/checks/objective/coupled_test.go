package objective

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// regressions is a mixture of regressions through the origin, y_n ~ N(w_k x_n, 1/τ_k) with equal
// weights. Over q(w_1) q(τ_1) … its log-likelihood is bilinear: E[τ_k] multiplies E[w_k] and
// E[w_k²]. One component is a regression with an unknown precision.
type regressions struct {
	x, y []float64
	k    int
}

func (r regressions) Len() int { return len(r.y) }

// logProb returns E[log N(y_n|w x_n, 1/τ)] for the statistics (w, w², log τ, τ).
func (r regressions) logProb(mu []float64, n int) float64 {
	x, y := r.x[n], r.y[n]
	return (mu[2]-math.Log(2*math.Pi))/2 - mu[3]*(y*y-2*x*y*mu[0]+x*x*mu[1])/2
}

func (r regressions) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	log, most, sum := make([]float64, r.k), math.Inf(-1), 0.0
	for k := range log {
		log[k] = r.logProb(mu[4*k:], n) - math.Log(float64(r.k))
		most = max(most, log[k])
	}
	for _, l := range log {
		sum += math.Exp(l - most)
	}
	x, y, value := r.x[n], r.y[n], most+math.Log(sum)
	for k := range log {
		m, d, p := mu[4*k:], dst[4*k:], weight*math.Exp(log[k]-value)
		d[0] += p * m[3] * x * y
		d[1] -= p * m[3] * x * x / 2
		d[2] += p / 2
		d[3] -= p * (y*y - 2*x*y*m[0] + x*x*m[1]) / 2
	}
	return value, nil
}

// at returns q with random parts, or with equal parts if rng is nil.
func (r regressions) at(rng *rand.Rand) *Exp {
	var parts []ExpFamily
	for range r.k {
		m, v, shape, rate := 0.0, 4.0, 1.0, 1.0
		if rng != nil {
			m, v = 3*rng.NormFloat64(), math.Exp(rng.NormFloat64()-2)
			shape, rate = math.Exp(2+rng.NormFloat64()), math.Exp(2+rng.NormFloat64())
		}
		parts = append(parts, testkit.Must(NewMeanField([]float64{m}, []float64{v})),
			testkit.Must(NewGamma(shape, rate)))
	}
	return testkit.Must(ProductOf(parts...))
}

func (r regressions) fit(t *testing.T, init *Exp, s *Solver) *Result {
	t.Helper()
	o := Objective[*Exp]{F: Conjugate(r), H: KLTo(r.at(nil)), Init: init}
	_, res, err := o.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func newRegressions(seed uint64) regressions {
	rng := rand.New(rand.NewPCG(seed, 41))
	r := regressions{k: 1 + int(seed%3)}
	for range 10 + rng.IntN(60) {
		k := float64(rng.IntN(r.k))
		x := rng.NormFloat64()
		r.x = append(r.x, x)
		r.y = append(r.y, (2*k-1)*x*float64(1+seed%4)/2+rng.NormFloat64()*math.Exp(-float64(seed%5)))
	}
	return r
}

// TestConjugateProduct fits mixtures of regressions, whose statistics multiply each other. It
// starts from equal parts, which are a saddle, and from random parts. No GapBound may be below
// the gain of another start, and no finite Gap may be far below what the run itself gains later.
func TestConjugateProduct(t *testing.T) {
	t.Parallel()
	saddles, estimates := 0, 0
	for seed := range uint64(testkit.Longer(200, testkit.Shorter(24, 12))) {
		r := newRegressions(seed)
		rng := rand.New(rand.NewPCG(seed, 42))
		runs := []*Result{r.fit(t, r.at(nil), &Solver{MaxPasses: 3000})}
		best := runs[0].ELBO
		for range 8 {
			res := r.fit(t, r.at(rng), &Solver{MaxPasses: 3000})
			runs, best = append(runs, res), max(best, res.ELBO)
		}
		for i, res := range runs {
			for _, it := range append(res.Trace, res.Iteration) {
				if !(it.GapBound >= best-it.ELBO-1e-9) {
					t.Errorf("seed %d, run %d, step %d: bound %v %v, and %v can be gained", seed, i,
						it.K, it.GapBound, it.Scope, best-it.ELBO)
				}
				left := res.ELBO - it.ELBO
				if !math.IsInf(it.Gap, 1) && left > 1e-9 {
					estimates++
					if it.Gap < left/3 {
						t.Errorf("seed %d, run %d, step %d: gap %v, and the run gains %v", seed, i,
							it.K, it.Gap, left)
					}
				}
			}
		}
		if left := best - runs[0].ELBO; r.k > 1 && left > 1 {
			saddles++
			if res := runs[0]; res.Gap < left || res.Status == Converged {
				t.Errorf("seed %d: %v at a saddle %v below the best", seed, res, left)
			}
		}
	}
	if saddles == 0 || estimates == 0 {
		t.Errorf("%d saddles and %d estimates", saddles, estimates)
	}
	t.Logf("%d saddles, %d estimates", saddles, estimates)
}

// crossed is a ConjugateModel that multiplies two means instead of using E[z_0 z_1].
type crossed struct{}

func (crossed) Len() int { return 1 }

func (crossed) Local(dst, mu []float64, _ int, weight float64) (float64, error) {
	dst[0] += weight * mu[1] / 2
	dst[1] += weight * mu[0] / 2
	return mu[0] * mu[1] / 2, nil
}

// TestConjugateNotConvex checks that a run has no GapBound if the values of Local contradict a
// linear log p, although q has a single part.
func TestConjugateNotConvex(t *testing.T) {
	t.Parallel()
	init := NewIsotropic(2, 1)
	if err := init.SetNatural(append([]float64{2, -1}, init.Natural(nil)[2:]...)); err != nil {
		t.Fatal(err)
	}
	o := Objective[*Gaussian]{F: Conjugate(crossed{}), H: KLTo(NewIsotropic(2, 1)), Init: init}
	_, res, err := o.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range append(res.Trace, res.Iteration) {
		if it.Scope != Unproved || !math.IsInf(it.GapBound, 1) {
			t.Errorf("step %d: bound %v %v", it.K, it.GapBound, it.Scope)
		}
	}
}

// noisyLine is a ConjugateModel of a regression in which a part of the observations is known to have
// a large variance, but not which: a maximum over local variables, so it is convex in μ.
type noisyLine struct {
	x    [][]float64
	y    []float64
	wide bool // without it no observation has a large variance, and the terms are linear in μ
}

func (l noisyLine) Len() int { return len(l.y) }

func (l noisyLine) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	x, d := l.x[n], len(l.x[n])
	square := l.y[n] * l.y[n]
	for i := range x {
		square -= 2 * l.y[n] * x[i] * mu[i]
		for j := range x {
			a, b := max(i, j), min(i, j)
			square += x[i] * x[j] * mu[d+a*(a+1)/2+b]
		}
	}
	p, value := 1., -square/2
	if l.wide {
		far := -square/200 - math.Log(20)
		p = 1 / (1 + math.Exp(far-value))
		value = max(value, far) + math.Log1p(math.Exp(-math.Abs(far-value)))
	}
	w := weight * (p + (1-p)/100) / 2
	for i := range x {
		dst[i] += 2 * w * l.y[n] * x[i]
		for j := range x {
			a, b := max(i, j), min(i, j)
			dst[d+a*(a+1)/2+b] -= w * x[i] * x[j]
		}
	}
	return value, nil
}

// bent is a ConjugateModel that uses products of means, ½mᵀBm + bᵀm and a product of three, where
// a model needs E[z_i z_j]. Its terms need be neither convex nor concave in μ.
type bent struct {
	b     [][]float64
	line  []float64
	third float64
}

func (b bent) Len() int { return 3 }

func (b bent) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	value, k := 0.0, float64(n+1)
	for i, row := range b.b {
		value += k * b.line[i] * mu[i]
		dst[i] += weight * k * b.line[i]
		for j, x := range row {
			value += x * mu[i] * mu[j] / 2
			dst[i] += weight * x * mu[j]
		}
	}
	last := len(b.b) - 1
	value += b.third * mu[0] * mu[0] * mu[last] / 6
	dst[0] += weight * b.third * mu[0] * mu[last] / 3
	dst[last] += weight * b.third * mu[0] * mu[0] / 6
	return value, nil
}

// boundCase is a Conjugate and the best gain that its bound must cover.
type boundCase struct {
	name  string
	m     ConjugateModel
	prior *Exp
	init  *Exp
	// held is set if the terms are convex in μ. The local variables can then be held, and the
	// objective is linear in μ.
	held bool
}

func newBoundCase(seed uint64) boundCase {
	rng := rand.New(rand.NewPCG(seed, 47))
	c := boundCase{held: true}
	rows := func(n, d int, sd float64) [][]float64 {
		x := make([][]float64, n)
		for i := range x {
			x[i] = make([]float64, d)
			for j := range x[i] {
				x[i][j] = sd * rng.NormFloat64()
			}
		}
		return x
	}
	positive := func(n, d int) [][]float64 {
		x := rows(n, d, 1)
		for _, row := range x {
			for j := range row {
				row[j] = math.Exp(row[j])
			}
		}
		return x
	}
	counts := func(n, most int) []float64 {
		y := make([]float64, n)
		for i := range y {
			y[i] = float64(rng.IntN(most))
		}
		return y
	}
	n, d := 2+rng.IntN(20), 1+rng.IntN(3)
	gaussian := func() *Exp { return testkit.Must(ProductOf(NewIsotropic(d, 1))) }
	switch kind := rng.IntN(7); kind {
	case 0, 1:
		c.name, c.prior = "regression", gaussian()
		y := make([]float64, n)
		for i := range y {
			y[i] = 3 * rng.NormFloat64()
		}
		c.m = noisyLine{rows(n, d, 1), y, kind == 1}
	case 2:
		c.name = "shares"
		c.prior = testkit.Must(NewDirichlet([]float64{1, 2, 0.5}[:2+rng.IntN(2)]))
		c.m = shares{positive(n, c.prior.NumParams())}
	case 3:
		c.name, c.prior = "rates", testkit.Must(NewGamma(1, 0.5))
		if d > 1 {
			c.prior = testkit.Must(ProductOf(c.prior, c.prior))
		}
		c.m = rates{counts(n, 9), positive(n, c.prior.NumParams()/2)}
	case 4:
		c.name, c.held = "regressions", false
		r := newRegressions(seed)
		c.m, c.prior, c.init = r, r.at(nil), r.at(rng)
	case 5:
		c.name, c.held = "groups", false
		_, prior := newGroups(n, 1)
		c.m, c.prior = groups{counts(n, 9), math.Exp(rng.NormFloat64())}, prior
	case 6:
		c.name, c.held = "bent", false
		d++
		c.prior = gaussian()
		b := rows(d, d, math.Exp(rng.NormFloat64()-2)/float64(d))
		for i := range b {
			for j := range i {
				b[j][i] = b[i][j]
			}
		}
		third := float64(rng.IntN(2)) * 0.3 * rng.NormFloat64()
		c.m = bent{b, rows(1, d, 0.5)[0], third}
		// A convex function is the maximum of its tangents, which then are the local variables.
		var eigen mat.EigenSym
		sym := mat.NewSymDense(d, slices.Concat(b...))
		c.held = third == 0 && eigen.Factorize(sym, false) && eigen.Values(nil)[0] >= 0
	}
	if c.init == nil {
		c.init = c.prior
	}
	return c
}

// gain returns what q alone can gain from q with the local variables held, or, if the terms are not
// convex, what the best of several runs gains.
func (c boundCase) gain(t *testing.T, q *Exp, res *Result, best float64) float64 {
	t.Helper()
	if !c.held {
		return best - res.ELBO
	}
	eta, mu := c.prior.Natural(nil), q.MeanParams(nil)
	for n := range c.m.Len() {
		if _, err := c.m.Local(eta, mu, n, 1); err != nil {
			t.Fatal(err)
		}
	}
	to := q.Clone().(*Exp)
	if err := to.SetNatural(eta); err != nil {
		return math.Inf(1) // the gain has no limit
	}
	return q.KL(to)
}

// TestConjugateBounds checks that no GapBound of a random Conjugate is below what q alone can gain:
// single families and products, terms that are linear, convex, bilinear and neither. Models whose
// bound holds must have one.
func TestConjugateBounds(t *testing.T) {
	t.Parallel()
	bounds, none := map[string]int{}, map[string]int{}
	for seed := range uint64(testkit.Longer(1000, testkit.Shorter(400, 150))) {
		c := newBoundCase(seed)
		o := Objective[*Exp]{F: Conjugate(c.m), H: KLTo(c.prior), Init: c.init}
		var runs []*Result
		var states []*Exp
		best := math.Inf(-1)
		for _, passes := range []float64{1, 2, 3, 4, 6, 400} {
			q, res, err := o.Fit(t.Context(), &Solver{MaxPasses: passes})
			if res == nil {
				t.Fatal(err)
			}
			if err == nil && !math.IsNaN(res.ELBO) {
				runs, states, best = append(runs, res), append(states, q), max(best, res.ELBO)
			}
		}
		for i, res := range runs {
			if math.IsInf(res.GapBound, 1) {
				none[c.name]++
				continue
			}
			bounds[c.name]++
			if gain := c.gain(t, states[i], res, best); res.GapBound < gain-1e-9*(1+math.Abs(res.ELBO)) {
				t.Errorf("seed %d, %s, %v passes: bound %v, but %v can be gained", seed, c.name,
					res.Passes, res.GapBound, gain)
			}
		}
	}
	t.Logf("bounds %v, none %v", bounds, none)
	if none["regression"] > 0 || none["shares"] > 0 || bounds["regressions"]+bounds["groups"] > 0 ||
		none["bent"] == 0 || bounds["rates"] == 0 {
		t.Errorf("bounds %v, none %v", bounds, none)
	}
}
