package groups

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// oneGroup is a model η = 0.2 + 0.5x + u_g with ten rows per level. The last level is new.
type oneGroup struct {
	x *Sparse
	y []float64
	u []float64 // effects of the levels with rows
}

// newOneGroup draws responses of lik for effects with standard deviation tau.
func newOneGroup(lik Likelihood, levels int, tau float64, seed uint64) *oneGroup {
	rng := rand.New(rand.NewPCG(seed, 77))
	c := &oneGroup{x: NewSparse(levels + 2)}
	for g := range levels {
		u := tau * rng.NormFloat64()
		c.u = append(c.u, u)
		for range 10 {
			z := rng.NormFloat64()
			c.x.Append([]int{0, 1 + g}, []float64{z, 1})
			c.y = append(c.y, mixedResponse(lik, 0.2+0.5*z+u, rng))
		}
	}
	return c
}

// fit fits c with the given group, whose columns it sets.
func (c *oneGroup) fit(t *testing.T, lik Likelihood, r Group, s *Solver) (*GLMPosterior, *Result) {
	t.Helper()
	r.First, r.Levels = 1, len(c.u)+1
	o := &GLMOptions{Intercept: true, PriorSD: 2, InterceptSD: 5, Groups: []Group{r}}
	if lik == (GaussianNoise{}) {
		o.Learn, o.PriorSD = &LearnOptions{}, 0
	}
	g, err := NewGLM(c.x, c.y, lik, o)
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

// fineGroup is a posterior by numerical integration: the moments of the weights, and quantiles of
// the standard deviation of the group.
type fineGroup struct {
	mean, sd []float64
	lo, hi   float64
}

// fine integrates over 200 fits with a fixed standard deviation, from 0 to most. The half-normal
// prior has the given scale.
func (c *oneGroup) fine(t *testing.T, lik Likelihood, scale, most float64) (f fineGroup) {
	t.Helper()
	const n = 200
	var logs []float64
	var means, sds [][]float64
	for i := range n {
		tau := most * (float64(i) + 0.5) / n
		p, res := c.fit(t, lik, Group{Fixed: true, SD: []float64{tau}}, &Solver{Goal: 1e-7})
		logs = append(logs, res.ELBO-0.5*tau*tau/(scale*scale))
		means, sds = append(means, p.Mean(nil)), append(sds, p.SD(nil))
	}
	best := slices.Max(logs)
	f.mean, f.sd = make([]float64, len(means[0])), make([]float64, len(means[0]))
	cum := []float64{0}
	for i, l := range logs {
		w := math.Exp(l - best)
		cum = append(cum, cum[i]+w)
		for j, m := range means[i] {
			f.mean[j] += w * m
			f.sd[j] += w * (m*m + sds[i][j]*sds[i][j])
		}
	}
	total := cum[n]
	for j := range f.mean {
		f.mean[j] /= total
		f.sd[j] = math.Sqrt(f.sd[j]/total - f.mean[j]*f.mean[j])
	}
	quantile := func(level float64) float64 {
		k, _ := slices.BinarySearch(cum, level*total)
		return most * (float64(k-1) + (level*total-cum[k-1])/(cum[k]-cum[k-1])) / n
	}
	f.lo, f.hi = quantile(0.025), quantile(0.975)
	return f
}

// TestIntegrateFine compares the integrated posterior with fine numerical integration.
func TestIntegrateFine(t *testing.T) {
	for name, x := range map[string]struct {
		lik    Likelihood
		levels int
		tau    float64
		most   float64
	}{
		"logit":         {BernoulliLogit{}, 20, 1, 6},
		"five levels":   {BernoulliLogit{}, 5, 1, 14},
		"sd 0":          {BernoulliLogit{}, 12, 0, 4},
		"Poisson":       {Poisson{}, 8, 0.7, 6},
		"Gaussian":      {GaussianNoise{Var: 0.5}, 20, 0.1, 1.5},
		"one level":     {BernoulliLogit{}, 1, 1, 14},
		"most allowed":  {BernoulliLogit{}, 49, 0.5, 3},
		"three, normal": {GaussianNoise{Var: 0.5}, 3, 2, 50},
	} {
		c := newOneGroup(x.lik, x.levels, x.tau, 3)
		p, _ := c.fit(t, x.lik, Group{}, nil)
		unit := 1.0
		if len(components(t, p)) == 0 {
			t.Errorf("%s: not integrated", name)
			continue
		}
		if _, ok := x.lik.(GaussianNoise); ok {
			unit, _ = learn.RobustScale(c.y, nil)
		}
		f := c.fine(t, x.lik, groupPriorSD*unit, x.most)
		mean, sd := p.Mean(nil), p.SD(nil)
		var dm, ds float64
		for j := range mean {
			dm = max(dm, math.Abs(mean[j]-f.mean[j])/f.sd[j])
			ds = max(ds, math.Abs(math.Log(sd[j]/f.sd[j])))
		}
		e := p.Groups()[0].Effects[0]
		t.Logf("%s: %d points, means off by %.1e sds, sds by %.1e, sd %.3f (%.4f to %.4f; "+
			"%.4f to %.4f)", name, len(components(t, p)), dm, ds, e.SD, e.Lo, e.Hi, f.lo, f.hi)
		if dm > 5e-3 || ds > 1e-2 {
			t.Errorf("%s: the means are off by %.2g standard deviations, and these by %.2g", name, dm,
				ds)
		}
		lo := min(f.lo, e.SD) // the density may be highest at 0
		if tol := 0.01 * (f.hi - lo); math.Abs(e.Lo-lo) > tol || math.Abs(e.Hi-f.hi) > tol {
			t.Errorf("%s: the interval is %v to %v, want %v to %v", name, e.Lo, e.Hi, lo, f.hi)
		}
	}
}

// groupPriorSD is the scale of the half-normal prior of a standard deviation (see Group).
const groupPriorSD = 2.5

// groupCoverage is the coverage of 90% intervals: of the predictor of a new level, of the
// predictors of the levels with rows, and of the standard deviation.
type groupCoverage struct{ fresh, seen, sd float64 }

// coverage returns the average over the given number of data sets.
func coverage(t *testing.T, lik Likelihood, levels int, tau float64, sets int) (c groupCoverage) {
	t.Helper()
	const z = 1.6448536269514722
	below := func(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }
	for k := range sets {
		d := newOneGroup(lik, levels, tau, uint64(k+1))
		p, res := d.fit(t, lik, Group{}, nil)
		rows := NewSparse(levels + 2)
		for g := range levels + 1 {
			rows.Append([]int{1 + g}, []float64{1})
		}
		m, v := p.At(rows).Latent(nil, nil)
		share := 1 / float64(sets)
		for g, u := range d.u {
			if math.Abs(0.2+u-m[g]) <= z*math.Sqrt(v[g]) {
				c.seen += share / float64(levels)
			}
		}
		sd := math.Sqrt(v[levels])
		c.fresh += share * (below((m[levels]+z*sd-0.2)/tau) - below((m[levels]-z*sd-0.2)/tau))
		grid, err := kit.AlgOf[*site.ArrowAlgebra](res.Stepper).Integrate()
		if err != nil || grid == nil {
			t.Fatal("no grid: ", err)
		}
		if q := grid.Quantiles(0.05, 0.95); q[0] <= tau && tau <= q[1] {
			c.sd += share
		}
	}
	return c
}

// TestIntegrateCoverage measures the coverage of 90% intervals over data sets: 60 of them, or 500
// with -long. New levels of a group of five levels, or of a standard deviation that is small
// compared to its prior, get intervals that are wider than needed.
func TestIntegrateCoverage(t *testing.T) {
	for _, x := range []struct {
		lik    Likelihood
		levels int
		tau    float64
		most   float64 // largest coverage of levels; the coverage of the sd may be 0.02 larger
	}{
		{BernoulliLogit{}, 5, 1, 0.97},
		{BernoulliLogit{}, 8, 1, 0.93},
		{BernoulliLogit{}, 20, 1, 0.93},
		{BernoulliLogit{}, 49, 1, 0.93},
		{BernoulliLogit{}, 8, 0.3, 1},
		{BernoulliLogit{}, 20, 0.3, 1},
		{Poisson{}, 8, 1, 0.94},
		{Poisson{}, 20, 1, 0.93},
		{GaussianNoise{}, 5, 1, 0.97},
		{GaussianNoise{}, 20, 1, 0.93},
	} {
		sets, slack := 60, 0.05
		if testkit.IsLong() {
			sets, slack = 500, 0
		} else if x.levels > 20 {
			continue
		}
		c := coverage(t, x.lik, x.levels, x.tau, sets)
		name := fmt.Sprintf("%T, %d levels, sd %v", x.lik, x.levels, x.tau)
		t.Logf("%s: new level %.3f, known levels %.3f, sd %.3f", name, c.fresh, c.seen, c.sd)
		if c.fresh < 0.87-slack || c.fresh > x.most+slack || c.seen < 0.87-slack ||
			c.seen > x.most+slack || c.sd < 0.86-slack || c.sd > min(1, x.most+0.02)+slack {
			t.Errorf("%s: coverage %.3f of a new level, %.3f of known levels, %.3f of the sd", name,
				c.fresh, c.seen, c.sd)
		}
	}
}

// bitsOf returns predictions, weights and intervals of p.
func bitsOf(p *GLMPosterior) []float64 {
	rows := NewSparse(p.Cols())
	rows.Append([]int{0}, []float64{0.5})
	for j := 1; j < p.Cols(); j++ {
		rows.Append([]int{0, j}, []float64{0.5, 1})
	}
	m, v := p.At(rows).Latent(nil, nil)
	all := slices.Concat(m, v, p.Mean(nil), p.SD(nil))
	for _, g := range p.Groups() {
		all = append(all, g.Effects[0].SD, g.Effects[0].Lo, g.Effects[0].Hi)
	}
	return all
}

// TestIntegrateSame checks that an integrated posterior has the same bits for any number of
// workers, and when it is saved and loaded.
func TestIntegrateSame(t *testing.T) {
	fits := map[string]func(s *Solver) *GLMPosterior{}
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{}} {
		c := newOneGroup(lik, 12, 0.8, 4)
		fits[testkit.TypeName(lik)] = func(s *Solver) *GLMPosterior {
			p, _ := c.fit(t, lik, Group{}, s)
			return p
		}
	}
	for name, o := range map[string]mixedOptions{
		"slopes":  {rows: 300, common: 2, levels: []int{12}, sd: [][]float64{{0.7, 0.4}}, rho: 0.4},
		"crossed": {rows: 300, common: 2, levels: []int{12, 9}, sd: [][]float64{{0.7}, {0.5}}},
		"small": {rows: 900, common: 2, levels: []int{site.MostGridLevels + 1, 9},
			sd: [][]float64{{0.7}, {0.5}}},
	} {
		g, _ := learnedCase(t, BernoulliLogit{}, o, false)
		fits[name] = func(s *Solver) *GLMPosterior {
			p, _, err := g.Fit(context.Background(), s)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	for name, fit := range fits {
		p := fit(nil)
		if len(components(t, p)) == 0 {
			t.Errorf("%s: not integrated", name)
			continue
		}
		want := bitsOf(p)
		for _, workers := range []int{1, 2, 7} {
			if !slices.Equal(bitsOf(fit(&Solver{Workers: workers})), want) {
				t.Errorf("%s: other bits with %d workers", name, workers)
			}
		}
		var file bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		q, err := Load[*GLMPosterior](&file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(bitsOf(q), want) {
			t.Errorf("%s: other bits after Load", name)
		}
	}
}

// TestIntegrateNot checks which fits keep the best covariance, and that Update does.
func TestIntegrateNot(t *testing.T) {
	c := newOneGroup(BernoulliLogit{}, 12, 0.8, 4)
	many := newOneGroup(BernoulliLogit{}, site.MostGridLevels, 0.8, 4)
	for name, x := range map[string]struct {
		data  *oneGroup
		group Group
	}{
		"NoPrior":     {c, Group{NoPrior: true}},
		"Fixed":       {c, Group{Fixed: true, SD: []float64{0.7}}},
		"many levels": {many, Group{}},
	} {
		if p, _ := x.data.fit(t, BernoulliLogit{}, x.group, nil); len(components(t, p)) > 0 {
			t.Errorf("%s: integrated", name)
		}
	}
	most := newOneGroup(BernoulliLogit{}, site.MostGridLevels-1, 0.8, 4)
	if p, _ := most.fit(t, BernoulliLogit{}, Group{}, nil); len(components(t, p)) == 0 {
		t.Errorf("%d levels: not integrated", site.MostGridLevels-1)
	}
	p, res := c.fit(t, BernoulliLogit{}, Group{}, nil)
	best, err := kit.AlgOf[*site.ArrowAlgebra](res.Stepper).Evaluate(0)
	if err != nil {
		t.Fatal(err)
	}
	sd := p.PriorSD(nil)[1]
	if math.Abs(p.Groups()[0].Effects[0].SD/sd-1) > 1e-15 || best.ELBO != res.ELBO {
		t.Error("the integration changed the best standard deviation or the state of the run")
	}
	row := Row{Val: make([]float64, p.Cols()), Y: 1}
	row.Val[3] = 1
	up, err := p.Update(context.Background(), func(yield func(Row, error) bool) { yield(row, nil) })
	if err != nil {
		t.Fatal(err)
	}
	down, err := up.Remove(context.Background(),
		func(yield func(Row, error) bool) { yield(row, nil) })
	if err != nil {
		t.Fatal(err)
	}
	for j, m := range atBest(t, p).Mean(nil) {
		if x := down.Mean(nil)[j]; math.Abs(x-m) > 1e-4 {
			t.Errorf("mean %d after Update and Remove is %v, want %v of q", j, x, m)
		}
	}
	if len(components(t, down)) > 0 {
		t.Error("Update integrates again")
	}
}

// TestIntegrateWhich checks which groups are integrated over. Groups with more than FewGridLevels are
// left out if all groups together have more than three parameters. The last level has no rows.
func TestIntegrateWhich(t *testing.T) {
	one, two := []float64{0.5}, []float64{0.5, 0.3}
	most, few := site.MostGridLevels, site.FewGridLevels
	for _, x := range []struct {
		levels []int
		sd     [][]float64
		want   []bool
	}{
		{[]int{most, 9}, [][]float64{one, one}, []bool{true, true}},
		{[]int{most + 1, 9}, [][]float64{one, one}, []bool{false, true}},
		{[]int{most}, [][]float64{two}, []bool{true}},
		{[]int{most + 1}, [][]float64{two}, []bool{false}},
		{[]int{few + 1, few}, [][]float64{two, one}, []bool{false, true}},
		{[]int{few, few + 1}, [][]float64{two, one}, []bool{true, false}},
	} {
		o := mixedOptions{rows: 3000, common: 2, levels: x.levels, sd: x.sd}
		g, _ := learnedCase(t, GaussianNoise{Var: 0.5}, o, false)
		p, _, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		own := atBest(t, p).Groups()
		for i, want := range x.want {
			if got := !slices.Equal(p.Groups()[i].Effects, own[i].Effects); got != want {
				t.Errorf("%d levels with %d effects: group %d is integrated over: %t, want %t", x.levels,
					len(x.sd[i]), i, got, want)
			}
		}
	}
}

// severalFits holds the fits of a mixedCase at fixed parameters.
type severalFits struct {
	logs     []float64
	mean, sd [][]float64
}

// fit fits c with two standard deviations and a correlation, or learns them if fixed is false.
func (c *mixedCase) fit(t *testing.T, a, b, r float64, fixed, independent bool) (*GLM,
	*GLMPosterior, *Result) {
	t.Helper()
	groups := slices.Clone(c.groups)
	sd := []float64{a, b}
	for i := range groups {
		x := &groups[i]
		x.Independent, x.Corr, x.Fixed, x.SD = independent, nil, fixed, nil
		if q := len(x.Effects); fixed {
			x.SD, sd = sd[:q], sd[q:]
			if r != 0 {
				x.Corr = mat.NewSymDense(2, []float64{1, r, r, 1})
			}
		}
	}
	g, err := NewGLM(c.x, c.y, BernoulliLogit{}, &GLMOptions{Intercept: true, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := g.Fit(context.Background(), &Solver{Goal: 1e-6})
	if err != nil {
		t.Fatal(err)
	}
	return g, p, res
}

// TestIntegrateSeveral compares the integral over two or three parameters with a sum over a fine
// grid of all parameters.
func TestIntegrateSeveral(t *testing.T) {
	testkit.NotShort(t)
	for name, x := range map[string]struct {
		o           mixedOptions
		independent bool
		tol         float64 // largest difference of log standard deviations
	}{
		"independent": {mixedOptions{rows: 120, common: 1, levels: []int{9},
			sd: [][]float64{{0.9, 0.5}}}, true, 0.06},
		"correlated": {mixedOptions{rows: 160, common: 1, levels: []int{9},
			sd: [][]float64{{0.9, 0.5}}, rho: 0.4}, false, 0.04},
		"crossed": {mixedOptions{rows: 160, common: 1, levels: []int{11, 7},
			sd: [][]float64{{0.8}, {0.6}}}, true, 0.2},
	} {
		c := newMixedCase(t, BernoulliLogit{}, x.o, 5)
		g, p, _ := c.fit(t, 0, 0, 0, false, x.independent)
		if len(components(t, p)) == 0 {
			t.Fatalf("%s: not integrated", name)
		}
		var scale []float64
		for _, f := range kit.LinearOf(t, g).Factors {
			scale = append(scale, f.Scale...)
		}
		corrs, n := []float64{0}, 14
		if !x.independent {
			corrs, n = nil, 10
			for u := -2.0; u <= 2; u += 0.5 {
				corrs = append(corrs, math.Tanh(u)) // uniform in atanh ρ
			}
		}
		var fits severalFits
		for i := range n * n {
			a := 4 * (float64(i%n) + 0.5) / float64(n)
			b := 3 * (float64(i/n) + 0.5) / float64(n)
			for _, r := range corrs {
				_, q, res := c.fit(t, a, b, r, true, x.independent)
				fits.logs = append(fits.logs, res.ELBO-0.5*(a*a/(scale[0]*scale[0])+
					b*b/(scale[1]*scale[1]))+2*math.Log(1-r*r))
				fits.mean, fits.sd = append(fits.mean, q.Mean(nil)), append(fits.sd, q.SD(nil))
			}
		}
		best, total, own := slices.Max(fits.logs), 0.0, atBest(t, p).SD(nil)
		m, v := make([]float64, p.Dim()), make([]float64, p.Dim())
		for i, l := range fits.logs {
			w := math.Exp(l - best)
			total += w
			for j, x := range fits.mean[i] {
				m[j] += w * x
				v[j] += w * (x*x + fits.sd[i][j]*fits.sd[i][j])
			}
		}
		var dm, ds, before float64
		sd := p.SD(nil)
		for j, x := range p.Mean(nil) {
			want := math.Sqrt(v[j]/total - m[j]*m[j]/(total*total))
			dm = max(dm, math.Abs(x-m[j]/total)/want)
			ds = max(ds, math.Abs(math.Log(sd[j]/want)))
			before = max(before, math.Abs(math.Log(own[j]/want)))
		}
		t.Logf("%s: %d points, means off by %.3f standard deviations, and these by %.3f, without "+
			"integration by %.3f", name, len(components(t, p)), dm, ds, before)
		if dm > 0.05 || ds > x.tol || before < 0.3 {
			t.Errorf("%s: means off by %.3f standard deviations, and these by %.3f, without "+
				"integration by %.3f", name, dm, ds, before)
		}
	}
}

// TestIntegrateMany checks groups with more than three parameters: that they are integrated, that
// the standard deviations agree with a mean over draws of Σ by importance sampling, and that a model
// with too many parameters has a warning.
func TestIntegrateMany(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	const levels, rows, q = 14, 12, 3
	x, y := NewSparse(2+q*(levels+1)), []float64(nil)
	for g := range levels {
		u := [q]float64{0.8 * rng.NormFloat64(), 0.5 * rng.NormFloat64(), 0.4 * rng.NormFloat64()}
		for range rows {
			a, b := rng.NormFloat64(), rng.NormFloat64()
			x.Append([]int{0, 1, 2 + q*g, 3 + q*g, 4 + q*g}, []float64{a, b, 1, a, b})
			y = append(y, 0.2+0.5*a+u[0]+u[1]*a+u[2]*b+0.5*rng.NormFloat64())
		}
	}
	group := Group{First: 2, Levels: levels + 1, Effects: []string{"1", "a", "b"}}
	fit := func(r Group) (*GLM, *GLMPosterior, *Result) {
		g, err := NewGLM(x, y, GaussianNoise{Var: 0.25}, &GLMOptions{Intercept: true, PriorSD: 2,
			Groups: []Group{r}})
		if err != nil {
			t.Fatal(err)
		}
		p, res, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return g, p, res
	}
	g, p, res := fit(group)
	if len(components(t, p)) < 40 || len(res.Warnings) > 0 {
		t.Fatalf("six parameters: %d points, warnings %q", len(components(t, p)), res.Warnings)
	}
	want := importance(p, kit.LinearOf(t, g).Factors[0].Scale, rng, fit, group)
	own := atBest(t, p).SD(nil)
	var off, before float64
	sd := p.SD(nil)
	for j := len(sd) - 1 - q; j < len(sd); j++ { // the new level and the intercept
		off = max(off, math.Abs(math.Log(sd[j]/want[j])))
		before = max(before, math.Abs(math.Log(own[j]/want[j])))
	}
	t.Logf("%d points, standard deviations off by %.3f, without integration by %.3f",
		len(components(t, p)), off, before)
	if off > 0.1 || off > 0.7*before {
		t.Errorf("standard deviations are off by %.3f, and without integration by %.3f", off, before)
	}
	wide := NewSparse(5 * 9)
	for i := range 40 {
		wide.Append([]int{i % 8 * 5, i%8*5 + 1 + i%4}, []float64{1, rng.NormFloat64()})
	}
	many, err := NewGLM(wide, y[:40], GaussianNoise{}, &GLMOptions{Groups: []Group{{Levels: 9,
		Effects: []string{"1", "a", "b", "c", "d"}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, res, err = many.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if w := res.Warnings; len(w) != 1 || !strings.Contains(w[0], "at most 10") {
		t.Errorf("15 parameters: warnings %q", w)
	}
}

// importance returns standard deviations of the weights by importance sampling of Σ around the
// mixture p: log standard deviations and partial correlations from Student t distributions.
func importance(p *GLMPosterior, scale []float64, rng *rand.Rand,
	fit func(r Group) (*GLM, *GLMPosterior, *Result), group Group) []float64 {
	const draws = 1500
	at := p.Groups()[0]
	var logs []float64
	var means, sds [][]float64
	for range draws {
		var sd, z [3]float64
		log := 0.0
		student := func() float64 { // 5 degrees of freedom, and minus its log density
			c := 0.0
			for range 5 {
				c += math.Pow(rng.NormFloat64(), 2)
			}
			x := rng.NormFloat64() / math.Sqrt(c/5)
			log += 3 * math.Log1p(x*x/5)
			return x
		}
		for i := range sd {
			s := math.Log(at.Effects[i].SD) + 0.35*student()
			sd[i] = math.Exp(s)
			log += s - 0.5*sd[i]*sd[i]/(scale[i]*scale[i])
			z[i] = math.Tanh(0.5 * student()) // ρ_10, ρ_20, ρ_21 given effect 0
			log += math.Log1p(-z[i] * z[i])
		}
		r21 := z[1]*z[0] + z[2]*math.Sqrt((1-z[0]*z[0])*(1-z[1]*z[1]))
		log += 0.5*math.Log1p(-z[0]*z[0]) + 0.5*math.Log1p(-z[1]*z[1]) // |∂r_21/∂ρ_21|
		corr := mat.NewSymDense(3, []float64{1, z[0], z[1], z[0], 1, r21, z[1], r21, 1})
		log += math.Log(mat.Det(corr)) // LKJ(2)
		r := group
		r.Fixed, r.SD, r.Corr = true, sd[:], corr
		_, q, res := fit(r)
		logs = append(logs, log+res.ELBO)
		means, sds = append(means, q.Mean(nil)), append(sds, q.SD(nil))
	}
	out := make([]float64, p.Dim())
	for j := range out {
		f := &fineMix{log: logs}
		for k := range logs {
			f.m, f.v = append(f.m, means[k][j]), append(f.v, sds[k][j]*sds[k][j])
		}
		_, out[j] = f.moments()
	}
	return out
}

// TestNotIntegrated checks that a group of 60 levels is marked if four parameters keep it from being integrated
// over, and only if the data hardly determine its standard deviation.
func TestNotIntegrated(t *testing.T) {
	for _, c := range []struct {
		rows, second int // rows per level, and levels of the second group
		want         bool
	}{{3, 10, true}, {400, 10, false}, {3, 0, false}} {
		rng := rand.New(rand.NewPCG(5, 1))
		const levels = 60
		x := NewSparse(1 + 2*levels + c.second)
		var y []float64
		u := make([]float64, levels)
		for g := range u {
			u[g] = 0.5 * rng.NormFloat64()
		}
		for i := range levels * c.rows {
			z, g := rng.NormFloat64(), i%levels
			ind, val := []int{0, 1 + 2*g, 2 + 2*g}, []float64{z, 1, z}
			if c.second > 0 {
				ind, val = append(ind, 1+2*levels+i/levels%c.second), append(val, 1)
			}
			x.Append(ind, val)
			p := 1.0
			if rng.Float64() > 1/(1+math.Exp(-u[g]*(1+z))) {
				p = -1
			}
			y = append(y, p)
		}
		groups := []Group{{Name: "g", First: 1, Levels: levels, Effects: []string{"1", "z"}}}
		if c.second > 0 {
			groups = append(groups, Group{Name: "h", First: 1 + 2*levels, Levels: c.second})
		}
		g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Intercept: true, Groups: groups})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*GLMPosterior{post, reloaded(t, post, Load)} {
			all := p.Groups()
			if all[0].NotIntegrated != c.want || c.second > 0 && all[1].NotIntegrated {
				t.Errorf("%+v: not integrated %v: %+v", c, all[0].NotIntegrated, all[0].Effects)
			}
			if got := strings.Contains(p.Summary().String(), "ignore the uncertainty of the standard "+
				"deviations of g\n"); got != c.want {
				t.Errorf("%+v: the note is printed: %t\n%s", c, got, p.Summary())
			}
		}
	}
}
