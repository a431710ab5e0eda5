package checks

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// gridMoments sums exp(logp) over a grid with the given number of points per side. It returns log
// Z, means and standard deviations.
func gridMoments(logp func(z []float64) float64, lo, hi []float64, points int) (logZ float64, mean,
	sd []float64) {
	d := len(lo)
	z, total := make([]float64, d), 1
	step, volume := make([]float64, d), 1.0
	for j := range d {
		step[j] = (hi[j] - lo[j]) / float64(points-1)
		volume *= step[j]
		total *= points
	}
	top, sum := math.Inf(-1), 0.0
	mean, sd = make([]float64, d), make([]float64, d)
	for i := range total {
		for j, k := 0, i; j < d; j, k = j+1, k/points {
			z[j] = lo[j] + step[j]*float64(k%points)
		}
		l := logp(z)
		if l > top {
			c := math.Exp(top - l)
			sum *= c
			for j := range d {
				mean[j] *= c
				sd[j] *= c
			}
			top = l
		}
		w := math.Exp(l - top)
		sum += w
		for j, x := range z {
			mean[j] += w * x
			sd[j] += w * x * x
		}
	}
	for j := range d {
		mean[j] /= sum
		sd[j] = math.Sqrt(sd[j]/sum - mean[j]*mean[j])
	}
	return top + math.Log(sum*volume), mean, sd
}

// checkPSIS reports estimates that are more than four and a half standard errors from the truth.
func checkPSIS(t *testing.T, p *PSIS, name string, logZ float64, mean, sd []float64) {
	t.Helper()
	const most = 4.5
	if !(p.KHat <= p.Limit) {
		t.Errorf("%s: %v", name, p)
	}
	if d := p.LogZ - logZ; !(math.Abs(d) <= most*p.LogZErr+1e-8) {
		t.Errorf("%s: log Z %v ± %.2g, want %v", name, p.LogZ, p.LogZErr, logZ)
	}
	for j := range mean {
		if d := p.Mean[j] - mean[j]; !(math.Abs(d) <= most*p.MeanErr[j]) {
			t.Errorf("%s: mean %d is %v ± %.2g, want %v", name, j, p.Mean[j], p.MeanErr[j], mean[j])
		}
		if d := p.SD[j] - sd[j]; !(math.Abs(d) <= most*p.SDErr[j]) {
			t.Errorf("%s: sd %d is %v ± %.2g, want %v", name, j, p.SD[j], p.SDErr[j], sd[j])
		}
	}
}

// TestPSISGaussian checks a q that equals the posterior up to rounding. k̂ must be 0, every draw
// must count, and the log evidence must be the ELBO.
func TestPSISGaussian(t *testing.T) {
	t.Parallel()
	ctx, rng := context.Background(), testkit.Rand(1)
	x, y := mat.NewDense(12, 3, nil), make([]float64, 12)
	for i := range y {
		for j := range 3 {
			x.Set(i, j, rng.NormFloat64())
		}
		y[i] = rng.NormFloat64()
	}
	check := func(name string, p *PSIS, err error, elbo float64, mean, sd []float64) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p.LogZErr < 1e-7 != (p.KHat == 0) || !(math.Abs(p.LogZ-elbo) < 1e-5) ||
			!(math.Abs(p.ESS-float64(p.Draws)) < 1e-4) {
			t.Errorf("%s: %v, ESS %v; the log evidence is %v", name, p, p.ESS, elbo)
		}
		checkPSIS(t, p, name, elbo, mean, sd)
	}
	lik := GaussianNoise{Var: 0.25}
	for _, jitter := range []float64{0, 0.3} {
		gp, err := NewGP(x, y, SquaredExp{Length: 2}, lik, &GPOptions{Jitter: jitter})
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := gp.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		m, v := post.Train(nil, nil)
		for i := range v {
			v[i] = math.Sqrt(v[i])
		}
		p, err := gp.PSIS(ctx, nil, post, 0)
		check("GP", p, err, res.ELBO, m, v)
		o, err := gp.Objective()
		if err != nil && jitter > 0 {
			t.Fatal(err)
		} else if err == nil {
			q, _, err := o.Fit(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, o := range map[string]Objective[*Gaussian]{"Objective": o,
				"Linearized": o.Linearized()} {
				p, err := o.PSIS(ctx, nil, q, 500)
				check(name, p, err, res.ELBO, m, v)
			}
		}
	}
	wide := mat.NewDense(4, 2010, nil) // posterior in dual form
	for i := range 4 {
		for j := range 2010 {
			wide.Set(i, j, rng.NormFloat64()/40)
		}
	}
	prior, err := NewGaussian([]float64{1, 0, -1, 0},
		mat.NewSymDense(4, []float64{2, 0.5, 0, 0, 0.5, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 3}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		x     *mat.Dense
		opt   GLMOptions
		draws int
	}{
		{"full", x, GLMOptions{Intercept: true,
			Weights: []float64{1, 2, 0, 1, 1, 3, 1, 1, 1, 1, 0.5, 1}, Offset: make([]float64, 12)},
			0},
		{"full prior", x, GLMOptions{Intercept: true, Prior: prior}, 0},
		{"rank 3", x, GLMOptions{Covariance: LowRankCovariance, Rank: 3}, 0},
		{"dual", wide, GLMOptions{}, 100},
	} {
		n, _ := c.x.Dims()
		g, err := NewGLM(c.x, y[:n], lik, &c.opt)
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.PSIS(ctx, nil, post, c.draws)
		if c.name == "dual" {
			p.Limit = math.Inf(1) // 2010 weights include some large errors
			check(c.name, p, err, res.ELBO, nil, nil)
			continue
		}
		check(c.name, p, err, res.ELBO, post.Mean(nil), post.SD(nil))
	}
}

// TestPSISQuadrature compares skewed posteriors in two dimensions with sums over a grid.
func TestPSISQuadrature(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x := mat.NewDense(4, 2, []float64{1, 0, 1, 1, 0.5, -1, 0.2, 0.7})
	y := []float64{0, 3, 1, 0}
	grid := testkit.Shorter(801, 401)
	lo, hi := []float64{-8, -8}, []float64{6, 8}
	logp := func(z []float64) float64 {
		l := -0.5*(z[0]*z[0]+z[1]*z[1]) - expfam.Log2Pi
		for n, yn := range y {
			l += Poisson{}.LogProb(yn, x.At(n, 0)*z[0]+x.At(n, 1)*z[1])
		}
		return l
	}
	logZ, mean, sd := gridMoments(logp, lo, hi, grid)
	for _, cov := range []Covariance{FullCovariance, DiagonalCovariance, LowRankCovariance} {
		g, err := NewGLM(x, y, Poisson{}, &GLMOptions{Covariance: cov, Rank: 1})
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.PSIS(ctx, NewEnv(nil, 2), post, 20000)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v: %v; ELBO %.6f, mean %.4f, corrected %.4f ± %.4f, exact %.4f", cov, p, res.ELBO,
			post.Mean(nil), p.Mean, p.MeanErr, mean)
		checkPSIS(t, p, cov.String(), logZ, mean, sd)
		if !(res.ELBO < p.LogZ) {
			t.Errorf("%v: the ELBO is %v", cov, res.ELBO)
		}
		// The correction must improve the standard deviation of a diagonal q.
		if s := post.SD(nil); cov == DiagonalCovariance &&
			!(math.Abs(s[0]-sd[0]) > 3*math.Abs(p.SD[0]-sd[0])) {
			t.Errorf("%v: sd %v, corrected %v, exact %v", cov, s[0], p.SD[0], sd[0])
		}
		o, err := g.Objective()
		if err != nil {
			t.Fatal(err)
		}
		if cov == LowRankCovariance {
			continue
		}
		q, _, err := o.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err = o.PSIS(ctx, nil, q, 20000)
		if err != nil {
			t.Fatal(err)
		}
		checkPSIS(t, p, cov.String()+" Objective", logZ, mean, sd)
		if p, err = NewPSIS(ctx, nil, q, logp, 20000); err != nil {
			t.Fatal(err)
		}
		checkPSIS(t, p, cov.String()+" NewPSIS", logZ, mean, sd)
	}

	// γ of a GP may be negative if two observations with heavy tails disagree.
	pts := mat.NewDense(2, 1, []float64{0, 0.7})
	obs := []float64{-2, 2.5}
	lik := StudentT{DF: 3, Scale: 0.6}
	kernel := SquaredExp{Scale: 1.5}
	gp, err := NewGP(pts, obs, kernel, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := gp.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := Gram(nil, kernel, pts)
	a, b, c := k.At(0, 0), k.At(0, 1), k.At(1, 1)
	det := a*c - b*b
	logZ, mean, sd = gridMoments(func(z []float64) float64 {
		return -0.5*(c*z[0]*z[0]-2*b*z[0]*z[1]+a*z[1]*z[1])/det - expfam.Log2Pi - 0.5*math.Log(
			det) +
			lik.LogProb(obs[0], z[0]) + lik.LogProb(obs[1], z[1])
	}, []float64{-9, -9}, []float64{9, 9}, grid)
	p, err := gp.PSIS(ctx, nil, post, 40000)
	if err != nil {
		t.Fatal(err)
	}
	checkPSIS(t, p, "Student", logZ, mean, sd)
}

// TestPSISFamilies compares posteriors that are not Gaussian with sums over a grid, in families
// whose draws may underflow.
func TestPSISFamilies(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	must := func(q *Exp, err error) *Exp {
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	// Counts with a rate have a Gamma prior, and one factor is not in the family.
	data := []float64{3, 1, 2}
	ll := LogLik{N: len(data), Dim: 1, LogProb: func(n int, z []float64) float64 {
		return data[n]*math.Log(z[0]) - z[0] - 0.1*z[0]*z[0]
	}}
	prior := must(NewGamma(2, 1))
	o := Objective[*Exp]{F: Expect(ll, Exact()), H: KLTo(prior), Init: prior}
	q, _, err := o.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	logp := func(z []float64) float64 {
		l := prior.LogProb(z)
		for n := range data {
			l += ll.LogProb(n, z)
		}
		return l
	}
	logZ, mean, sd := gridMoments(logp, []float64{1e-6}, []float64{20}, 200001)
	for name, f := range map[string]func() (*PSIS, error){
		"Gamma":         func() (*PSIS, error) { return o.PSIS(ctx, nil, q, 10000) },
		"Gamma NewPSIS": func() (*PSIS, error) { return NewPSIS(ctx, nil, q, logp, 10000) },
	} {
		p, err := f()
		if err != nil {
			t.Fatal(err)
		}
		checkPSIS(t, p, name, logZ, mean, sd)
	}
	// A Gamma with a tiny shape is compared with itself. Its draws underflow, but its log
	// statistics do not.
	tiny := must(NewGamma(1e-4, 1))
	p, err := Objective[*Exp]{F: Expect(LogLik{N: 1, Dim: 1, LogProb: func(int, []float64) float64 {
		return -1.5
	}}, nil), H: KLTo(tiny)}.PSIS(ctx, nil, tiny, 500)
	if err != nil {
		t.Fatal(err)
	}
	if p.KHat != 0 || math.Abs(p.LogZ+1.5) > 1e-9 {
		t.Errorf("tiny shape: %v", p)
	}
	// Many draws of counts are equal.
	rate := must(NewPoisson(4))
	p, err = NewPSIS(ctx, nil, rate, func(z []float64) float64 {
		g, _ := math.Lgamma(z[0] + 1)
		return z[0]*math.Log(5) - g
	}, 5000)
	if err != nil {
		t.Fatal(err)
	}
	checkPSIS(t, p, "Poisson", 5, []float64{5}, []float64{math.Sqrt(5)})
}

// TestPSISString checks that String reports whether k̂ is reliable.
func TestPSISString(t *testing.T) {
	for k, words := range map[float64]string{
		0.2: "effective sample size", 0.65: "fewer than 720 draws", 0.8: "affordable",
		1.5: "no mean", math.Inf(1): "no mean",
	} {
		p := &PSIS{KHat: k, Limit: 0.5, Draws: 100}
		s := p.String()
		if !strings.Contains(s, words) || (k > p.Limit) != strings.Contains(s, "not reliable") {
			t.Errorf("k̂ = %v: %q", k, s)
		}
	}
}

// A scalar is a likelihood by its LogProb alone, so PSIS sums it over all rows.
type scalar struct{ lik Likelihood }

func (s scalar) LogProb(y, eta float64) float64 { return s.lik.LogProb(y, eta) }

// TestPSISSample compares results from a sample of the rows with results from all rows, at the same
// draws. Moments differ by less than a quarter of the Monte Carlo errors, and log Z by the error of a
// weight over the root of the number of draws. Results are the same for any number of workers.
func TestPSISSample(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, c := range []struct {
		lik  Likelihood
		n, d int
	}{
		{Laplace{Scale: 0.7}, 10000, 4},
		{BernoulliLogit{}, 20000, 14},
	} {
		rng := testkit.Rand(6)
		x, y := mat.NewDense(c.n, c.d, nil), make([]float64, c.n)
		for i := range y {
			for j := range c.d {
				x.Set(i, j, rng.NormFloat64())
			}
			y[i] = x.At(i, 0) + rng.NormFloat64()
			if _, ok := c.lik.(BernoulliLogit); ok {
				y[i] = testkit.PlusMinus(y[i] > 0)
			}
		}
		g, post := fittedGLM(t, x, y, c.lik, nil)
		all, err := NewGLM(x, y, scalar{c.lik}, nil)
		if err != nil {
			t.Fatal(err)
		}
		const draws = 640
		got, err := g.PSIS(ctx, nil, post, draws)
		if err != nil {
			t.Fatal(err)
		}
		if shared, err := g.PSIS(ctx, NewEnv(nil, 3), post, draws); err != nil ||
			!reflect.DeepEqual(shared, got) {
			t.Errorf("%T: %v, %v with three workers, want %v", c.lik, shared, err, got)
		}
		want, err := all.PSIS(ctx, nil, post, draws)
		if err != nil {
			t.Fatal(err)
		}
		const sampleError = 0.01
		logZ := math.Abs(got.LogZ-want.LogZ) / (sampleError / math.Sqrt(draws))
		off := 0.0
		for j := range want.Mean {
			off = max(off, math.Abs(got.Mean[j]-want.Mean[j])/want.MeanErr[j],
				math.Abs(got.SD[j]-want.SD[j])/want.SDErr[j])
		}
		if !(off < 0.25) || !(logZ < 3) || math.Abs(got.KHat-want.KHat) > 0.1 ||
			math.Abs(got.ESS/want.ESS-1) > 1e-3 {
			t.Errorf("%T: %v, want %v; off by %.2g and %.2g errors", c.lik, got, want, off, logZ)
		}
		if got.LogZ == want.LogZ {
			t.Errorf("%T: there is no sample", c.lik)
		}
	}
}

// TestPSISBits: the same bits for any number of workers, from a posterior that was saved, and other
// bits for another seed.
func TestPSISBits(t *testing.T) {
	t.Parallel()
	ctx, rng := context.Background(), testkit.Rand(5)
	x, y := mat.NewDense(30, 2, nil), make([]float64, 30)
	for i := range y {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64()})
		y[i] = testkit.PlusMinus(x.At(i, 0)+rng.NormFloat64() > 0)
	}
	gp, err := NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	gpPost, _, err := gp.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := gpPost.Save(&file); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load[*GPPosterior](&file)
	if err != nil {
		t.Fatal(err)
	}
	glm, err := NewGLM(x, y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	glmPost, _, err := glm.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := glm.Objective()
	if err != nil {
		t.Fatal(err)
	}
	q, _, err := o.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(env *Env) (*PSIS, error){
		"GP":        func(env *Env) (*PSIS, error) { return gp.PSIS(ctx, env, gpPost, 300) },
		"saved GP":  func(env *Env) (*PSIS, error) { return gp.PSIS(ctx, env, loaded, 300) },
		"GLM":       func(env *Env) (*PSIS, error) { return glm.PSIS(ctx, env, glmPost, 300) },
		"Objective": func(env *Env) (*PSIS, error) { return o.PSIS(ctx, env, q, 300) },
	} {
		first, err := f(nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for workers := 1; workers <= 4; workers += 3 {
			p, err := f(NewEnv(nil, workers))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if p.KHat != first.KHat || p.LogZ != first.LogZ || p.Mean[1] != first.Mean[1] ||
				p.SDErr[0] != first.SDErr[0] {
				t.Errorf("%s: other bits with %d workers", name, workers)
			}
		}
		p, err := f(NewEnv(rand.NewPCG(1, 1), 1))
		if err != nil {
			t.Fatal(err)
		}
		if p.LogZ == first.LogZ || math.Abs(p.LogZ-first.LogZ) > 6*(p.LogZErr+first.LogZErr) {
			t.Errorf("%s: with another seed %v and %v", name, p, first)
		}
	}
}

// TestPSISErrors checks the errors for arguments that do not match.
func TestPSISErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := mat.NewDense(3, 1, []float64{0, 1, 2}), []float64{1, -1, 1}
	gp := func(x mat.Matrix, k Kernel, jitter float64) (*GP, *GPPosterior) {
		return fittedGP(t, x, y, k, BernoulliLogit{}, &GPOptions{Jitter: jitter})
	}
	glm := func(x mat.Matrix, opt GLMOptions) (*GLM, *GLMPosterior) {
		return fittedGLM(t, x, y, BernoulliLogit{}, &opt)
	}
	g, gPost := gp(x, SquaredExp{}, 0)
	_, other := gp(mat.NewDense(3, 1, []float64{0, 1, 3}), SquaredExp{}, 0)
	_, kernel := gp(x, SquaredExp{Length: 2}, 0)
	_, jitter := gp(x, SquaredExp{}, 0.1)
	l, lPost := glm(x, GLMOptions{})
	_, intercept := glm(x, GLMOptions{Intercept: true})
	_, two := glm(mat.NewDense(3, 2, make([]float64, 6)), GLMOptions{})
	wide := mat.NewDense(3, 2001, nil)
	wideModel, _ := glm(wide, GLMOptions{})
	_, widePrior := glm(wide, GLMOptions{PriorSD: 2})
	q := NewIsotropic(1, 1)
	ones := func(v float64) func([]float64) float64 { return func([]float64) float64 { return v } }
	ll := Expect(LogLik{N: 1, Dim: 1, LogProb: func(int, []float64) float64 { return math.NaN() }},
		nil)
	done, cancel := context.WithCancel(ctx)
	cancel()
	for name, c := range map[string]struct {
		want error
		f    func() (*PSIS, error)
	}{
		"nil GP posterior": {ErrParam, func() (*PSIS, error) { return g.PSIS(ctx, nil, nil, 0) }},
		"other inputs": {ErrParam,
			func() (*PSIS, error) { return g.PSIS(ctx, nil, other, 0) }},
		"other kernel": {ErrParam,
			func() (*PSIS, error) { return g.PSIS(ctx, nil, kernel, 0) }},
		"other jitter": {ErrParam,
			func() (*PSIS, error) { return g.PSIS(ctx, nil, jitter, 0) }},
		"few draws": {ErrParam,
			func() (*PSIS, error) { return g.PSIS(ctx, nil, gPost, 24) }},
		"negative draws": {ErrParam,
			func() (*PSIS, error) { return l.PSIS(ctx, nil, lPost, -1) }},
		"too many draws": {ErrMemory,
			func() (*PSIS, error) { return l.PSIS(ctx, nil, lPost, min(1<<50, math.MaxInt)) }},
		"nil GLM posterior": {ErrParam, func() (*PSIS, error) { return l.PSIS(ctx, nil, nil, 0) }},
		"intercept": {ErrParam,
			func() (*PSIS, error) { return l.PSIS(ctx, nil, intercept, 0) }},
		"other weights": {ErrParam, func() (*PSIS, error) { return l.PSIS(ctx, nil, two, 0) }},
		"other prior": {ErrParam,
			func() (*PSIS, error) { return wideModel.PSIS(ctx, nil, widePrior, 0) }},
		"canceled GP": {context.Canceled,
			func() (*PSIS, error) { return g.PSIS(done, nil, gPost, 0) }},
		"canceled GLM": {context.Canceled,
			func() (*PSIS, error) { return l.PSIS(done, nil, lPost, 0) }},
		"nil q": {ErrParam,
			func() (*PSIS, error) { return NewPSIS(ctx, nil, nil, ones(0), 0) }},
		"nil pointer": {ErrParam,
			func() (*PSIS, error) { return NewPSIS(ctx, nil, (*Gaussian)(nil), ones(0), 0) }},
		"nil density": {ErrParam,
			func() (*PSIS, error) { return NewPSIS(ctx, nil, q, nil, 0) }},
		"point": {ErrParam,
			func() (*PSIS, error) { return NewPSIS(ctx, nil, NewPoint([]float64{1}), ones(0), 0) }},
		"NaN": {ErrNotFinite,
			func() (*PSIS, error) { return NewPSIS(ctx, nil, q, ones(math.NaN()), 0) }},
		"+Inf": {ErrNotFinite,
			func() (*PSIS, error) { return NewPSIS(ctx, nil, q, ones(math.Inf(1)), 0) }},
		"nowhere": {ErrNotFinite,
			func() (*PSIS, error) { return NewPSIS(ctx, nil, q, ones(math.Inf(-1)), 0) }},
		"no prior": {ErrParam,
			func() (*PSIS, error) { return Objective[*Gaussian]{F: ll}.PSIS(ctx, nil, q, 0) }},
		"no likelihood": {ErrParam,
			func() (*PSIS, error) { return Objective[*Gaussian]{H: KLTo(q)}.PSIS(ctx, nil, q, 0) }},
		"NaN term": {ErrNotFinite, func() (*PSIS, error) {
			return Objective[*Gaussian]{F: ll, H: KLTo(q)}.PSIS(ctx, nil, q, 0)
		}},
		"other dimension": {ErrShape, func() (*PSIS, error) {
			return Objective[*Gaussian]{F: ll, H: KLTo(q)}.PSIS(ctx, nil, NewIsotropic(2, 1), 0)
		}},
		"canceled Objective": {context.Canceled,
			func() (*PSIS, error) { return NewPSIS(done, nil, q, ones(0), 0) }},
	} {
		p, err := c.f()
		if p != nil || !errors.Is(err, c.want) || !testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

// fittedGP returns a GP and its posterior.
func fittedGP(t testing.TB, x mat.Matrix, y []float64, k Kernel, lik Likelihood,
	opt *GPOptions) (*GP, *GPPosterior) {
	t.Helper()
	g, err := NewGP(x, y, k, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return g, p
}

func fittedGLM(t testing.TB, x mat.Matrix, y []float64, lik Likelihood, opt *GLMOptions) (*GLM,
	*GLMPosterior) {
	t.Helper()
	g, err := NewGLM(x, y, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return g, p
}
