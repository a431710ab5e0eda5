package groups

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// truthPath returns the path of a file of independent results, or skips the test.
func truthPath(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("PGSVI_DATA")
	if dir == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	return filepath.Join(dir, "..", "truth", name)
}

// interceptData reads a table of random intercepts: y, x1, x2, group.
func interceptData(t *testing.T, name string) (x *Sparse, y []float64, levels int) {
	t.Helper()
	f, err := os.Open(truthPath(t, name+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for j, c := range rows[0] {
		at[c] = j
	}
	number := func(row []string, name string) float64 {
		v, err := strconv.ParseFloat(row[at[name]], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, row := range rows[1:] {
		levels = max(levels, int(number(row, "group"))+1)
	}
	x = NewSparse(2 + levels)
	for _, row := range rows[1:] {
		x.Append([]int{0, 1, 2 + int(number(row, "group"))},
			[]float64{number(row, "x1"), number(row, "x2"), 1})
		y = append(y, number(row, "y"))
	}
	return x, y, levels
}

// TestGroupsIntercepts compares learned standard deviations with independent optima.
func TestGroupsIntercepts(t *testing.T) {
	text, err := os.ReadFile(truthPath(t, "random_intercepts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var truth map[string]struct {
		Tau, ELBO float64
		Groups    int
		Beta      []float64
	}
	if err := json.Unmarshal(text, &truth); err != nil {
		t.Fatal(err)
	}
	for name, lik := range map[string]Likelihood{"re_logit20": BernoulliLogit{},
		"re_poisson200": Poisson{}} {
		want := truth[name]
		x, y, levels := interceptData(t, name)
		if name == "re_logit20" {
			for i, v := range y {
				y[i] = 2*v - 1
				if v == -1 {
					y[i] = v
				}
			}
		}
		g, err := NewGLM(x, y, lik, &GLMOptions{PriorSD: 10, InterceptSD: 10, Intercept: true,
			Groups: []Group{{First: 2, Levels: levels, NoPrior: true}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, goal := range []float64{0, 1e-9} {
			post, res, err := g.Fit(context.Background(), &Solver{Goal: goal})
			if err != nil {
				t.Fatal(err)
			}
			tau := post.PriorSD(nil)[2]
			t.Logf("%s: %d evaluations, passes %v, tau off by %.1e, ELBO by %.1e, gap %.1e ≤ %.1e %v", name,
				res.K, res.Passes, tau-want.Tau, res.ELBO-want.ELBO, res.Gap, res.GapBound, res.Status)
			if math.Abs(tau-want.Tau) > 1e-5 || math.Abs(res.ELBO-want.ELBO) > 1e-6 {
				t.Errorf("%s: standard deviation %v and ELBO %v, want %v and %v", name, tau, res.ELBO,
					want.Tau, want.ELBO)
			}
			if res.K > 6 || res.Status != Converged {
				t.Errorf("%s: %d evaluations, %v", name, res.K, res.Status)
			}
		}
	}
}

// learnedCase returns a mixed model whose covariances are learned, and its groups.
func learnedCase(t *testing.T, lik Likelihood, o mixedOptions, noPrior bool) (*GLM, []Group) {
	t.Helper()
	c := newMixedCase(t, lik, o, 9)
	for i := range c.groups {
		r := &c.groups[i]
		r.Fixed, r.SD, r.Corr, r.NoPrior = false, nil, nil, noPrior
	}
	g, err := NewGLM(c.x, c.y, lik, &GLMOptions{Intercept: true, Groups: c.groups})
	if err != nil {
		t.Fatal(err)
	}
	return g, c.groups
}

// crossedSlopes are two crossed groups with slopes.
var crossedSlopes = mixedOptions{rows: 3000, common: 3, levels: []int{60, 12},
	sd: [][]float64{{0.5, 0.3}, {0.6, 0.2}}, rho: 0.4}

// TestGroupsWorkers checks that fits have the same bits for any number of workers, and that a saved
// run continues with the same bits.
func TestGroupsWorkers(t *testing.T) {
	for name, o := range map[string]mixedOptions{"crossed": crossedSlopes, "one": {rows: 9000,
		common: 3, levels: []int{700}, sd: [][]float64{{0.5, 0.3}}}} {
		g, _ := learnedCase(t, BernoulliLogit{}, o, false)
		var first []float64
		for _, workers := range []int{1, 2, 7} {
			post, _, err := g.Fit(context.Background(), &Solver{Workers: workers})
			if err != nil {
				t.Fatal(err)
			}
			bits := append(post.Mean(nil), post.SD(nil)...)
			if first == nil {
				first = bits
			}
			for j, v := range bits {
				if v != first[j] {
					t.Fatalf("%s: number %d is %v with %d workers, and %v with 1", name, j, v, workers,
						first[j])
				}
			}
		}
		res, err := (&Solver{MaxIter: 2}).Run(context.Background(), g)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := res.Save(&file); err != nil {
			t.Fatal(err)
		}
		loaded, err := (&Solver{}).LoadResult(context.Background(), &file, g)
		if err != nil {
			t.Fatal(err)
		}
		res, err = (&Solver{}).Resume(context.Background(), loaded)
		if err != nil {
			t.Fatal(err)
		}
		post, err := g.Posterior(res.Stepper)
		if err != nil {
			t.Fatal(err)
		}
		for j, v := range append(post.Mean(nil), post.SD(nil)...) {
			if v != first[j] {
				t.Fatalf("%s: number %d is %v after a resumed run, and %v otherwise", name, j, v,
					first[j])
			}
		}
	}
}

// TestGroupsCanceled cancels fits after any number of checks of the context, as early as in the first
// pass. The resumed fits must have the bits of a whole fit.
func TestGroupsCanceled(t *testing.T) {
	for name, o := range map[string]mixedOptions{
		"crossed": {rows: 200, common: 1, levels: []int{12, 5}, sd: [][]float64{{0.5, 0.3}, {0.6}}},
		"one":     {rows: 100, common: 2, levels: []int{9}, sd: [][]float64{{0.5}}},
	} {
		for _, lik := range []Likelihood{BernoulliLogit{}, StudentT{DF: 4}} {
			g, _ := learnedCase(t, lik, o, true)
			post, whole, err := g.Fit(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := append(post.Mean(nil), whole.ELBO)
			for asked := range int64(60) {
				res, err := (&Solver{}).Run(testkit.NewAsked(asked+1), g)
				if res == nil || res.Stepper == nil || !errors.Is(err, context.Canceled) {
					continue
				}
				if _, err := g.Posterior(res.Stepper); err != nil {
					t.Errorf("%s, %T: posterior of a fit canceled at check %d: %v", name, lik, asked, err)
				}
				if res, err = (&Solver{}).Resume(context.Background(), res); err != nil {
					t.Fatal(err)
				}
				post, err := g.Posterior(res.Stepper)
				if err != nil {
					t.Fatal(err)
				}
				if got := append(post.Mean(nil), res.ELBO); !slices.Equal(got, want) {
					t.Fatalf("%s, %T, canceled at check %d: ELBO %v, want %v", name, lik, asked, res.ELBO,
						whole.ELBO)
				}
			}
		}
	}
}

// TestGroupsBoundary fits models whose best Σ is singular or barely determined.
func TestGroupsBoundary(t *testing.T) {
	for name, o := range map[string]mixedOptions{
		"sd 0":          {rows: 2000, common: 2, levels: []int{201}, sd: [][]float64{{0}}},
		"slope sd 0":    {rows: 2000, common: 2, levels: []int{101}, sd: [][]float64{{0.8, 0}}},
		"correlation 1": {rows: 2000, common: 2, levels: []int{101}, sd: [][]float64{{0.8, 0.4}}, rho: 1},
		"correlation −1": {rows: 2000, common: 2, levels: []int{101}, sd: [][]float64{{0.8, 0.4}},
			rho: -1},
		"one level":   {rows: 500, common: 2, levels: []int{1}, sd: [][]float64{{0.8}}},
		"two levels":  {rows: 500, common: 2, levels: []int{3}, sd: [][]float64{{0.8, 0.4}}},
		"crossed, 0":  {rows: 2000, common: 2, levels: []int{101, 31}, sd: [][]float64{{0.5}, {0}}},
		"crossed, 00": {rows: 2000, common: 2, levels: []int{101, 31}, sd: [][]float64{{0}, {0, 0}}},
	} {
		for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 0.5}} {
			for _, noPrior := range []bool{false, true} {
				g, groups := learnedCase(t, lik, o, noPrior)
				post, res, err := g.Fit(context.Background(), nil)
				if err != nil {
					t.Errorf("%s, %T: %v", name, lik, err)
					continue
				}
				t.Logf("%s, %T, %t: %d evaluations, gap %.1e, %v %v", name, lik, noPrior, res.K, res.Gap,
					res.Status, sds(post, groups))
				if res.K > 8 || res.Status != Converged {
					t.Errorf("%s, %T: %d evaluations, %v, gap %v", name, lik, res.K, res.Status, res.Gap)
				}
			}
		}
	}
}

// TestGroupsLikelihoods learns covariances under every likelihood.
func TestGroupsLikelihoods(t *testing.T) {
	for name, o := range map[string]mixedOptions{
		"intercepts": {rows: 600, common: 2, levels: []int{41}, sd: [][]float64{{0.9}}},
		"slopes": {rows: 900, common: 3, levels: []int{45}, sd: [][]float64{{0.7, 0.4}},
			rho: -0.5},
		"crossed": {rows: 900, common: 3, levels: []int{40, 17}, sd: [][]float64{{0.5, 0.3},
			{0.6, 0.2}}, rho: 0.4},
		"zero": {rows: 900, common: 3, levels: []int{40, 17}, sd: [][]float64{{0, 0}, {0}}},
	} {
		if testing.Short() && (name == "crossed" || name == "intercepts") {
			continue
		}
		for _, lik := range mixedLikelihoods() {
			most := 8
			if _, kink := lik.(Laplace); kink {
				most = 9
			}
			for _, noPrior := range []bool{false, true} {
				g, groups := learnedCase(t, lik, o, noPrior)
				p, res, err := g.Fit(context.Background(), nil)
				if err != nil {
					t.Errorf("%s, %T: %v", name, lik, err)
				} else if res.K > most || res.Status != Converged {
					t.Errorf("%s, %T, without priors %t: %d evaluations, gap %.1e, %v, sds %.3v", name,
						lik, noPrior, res.K, res.Gap, res.Status, sds(p, groups))
				}
			}
		}
	}
}

// sds returns the learned standard deviations.
func sds(p *GLMPosterior, groups []Group) (all []float64) {
	prior := p.PriorSD(nil)
	for _, r := range groups {
		all = append(all, prior[r.First:r.First+effectsOf(r)]...)
	}
	return all
}

// TestGroupsOneRow fits as many levels as rows. The sites of such rows follow the standard deviation
// closely, so a fit must move both together. The gap must include what the standard deviation gains.
func TestGroupsOneRow(t *testing.T) {
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 0.5}} {
		c := newMixedCase(t, lik, mixedOptions{rows: 400, common: 2, levels: []int{30},
			sd: [][]float64{{0.5}}}, 2)
		x := NewSparse(2 + 400)
		for i := range 400 {
			_, val := c.x.Row(i)
			x.Append([]int{0, 1, 2 + i}, []float64{val[0], val[1], 1})
		}
		g, err := NewGLM(x, c.y, lik, &GLMOptions{Intercept: true,
			Groups: []Group{{First: 2, Levels: 400}}})
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%T: %d evaluations, gap %.1e, %v", lik, res.K, res.Gap, res.Status)
		if res.K > 8 || res.Status != Converged {
			t.Errorf("%T: %d evaluations, %v", lik, res.K, res.Status)
		}
		bestPost, best, err := g.Fit(context.Background(), &Solver{Goal: 1e-10})
		if err != nil {
			t.Fatal(err)
		}
		prior := func(p *GLMPosterior) float64 { return -0.5 * math.Pow(p.PriorSD(nil)[2]/2.5, 2) }
		if short := best.ELBO + prior(bestPost) - res.ELBO - prior(post); kit.FactsOf(lik).Support != RealLine &&
			short > 10*res.Gap {
			t.Errorf("%T: gap %.2g, but %.2g nats below the best", lik, res.Gap, short)
		}
	}
}

// TestGroupsLearn compares the hyperparameters that Learn finds together with Σ with the
// hyperparameters of a GLM that learns the standard deviations of the same columns as blocks.
func TestGroupsLearn(t *testing.T) {
	for name, lik := range map[string]Likelihood{"gaussian": GaussianNoise{},
		"negative binomial": NegativeBinomial{}, "student": StudentT{DF: 5},
		"poisson": Poisson{}} {
		for crossed, o := range map[bool]mixedOptions{
			false: {rows: 1500, common: 2, levels: []int{81}, sd: [][]float64{{0.8}}},
			true:  {rows: 1500, common: 2, levels: []int{61, 21}, sd: [][]float64{{0.6}, {0.5}}},
		} {
			c := newMixedCase(t, lik, o, 6)
			_, cols := c.x.Dims()
			blocks := make([]int, cols)
			for i := range c.groups {
				r := &c.groups[i]
				r.Fixed, r.SD, r.NoPrior = false, nil, true
				for j := r.First; j < endOf(*r); j++ {
					blocks[j] = 1 + i
				}
			}
			ctx, opt := context.Background(), &LearnOptions{NoPrior: true, Tol: 1e-7}
			g, err := NewGLM(c.x, c.y, lik, &GLMOptions{Intercept: true, Groups: c.groups})
			if err != nil {
				t.Fatal(err)
			}
			_, p, got, err := g.Learn(ctx, nil, opt)
			if err != nil {
				t.Fatal(err)
			}
			b, err := NewGLM(c.x, c.y, lik, &GLMOptions{Intercept: true, Blocks: blocks})
			if err != nil {
				t.Fatal(err)
			}
			_, _, want, err := b.Learn(ctx, nil, opt)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, crossed %t: %d evaluations, of blocks %d, ELBO %.6f and %.6f", name, crossed,
				got.Evaluations, want.Evaluations, got.Fit.ELBO, want.Fit.ELBO)
			if math.Abs(got.Fit.ELBO-want.Fit.ELBO) > 1e-4 {
				t.Errorf("%s: ELBO %v, of blocks %v", name, got.Fit.ELBO, want.Fit.ELBO)
			}
			near := func(what string, x, y float64) {
				t.Helper()
				if !(math.Abs(x-y) <= 2e-3*y) {
					t.Errorf("%s, crossed %t: %s is %v, of blocks %v", name, crossed, what, x, y)
				}
			}
			for i, sd := range sds(p, c.groups) {
				near("a standard deviation", sd, want.Params[1+i].Value)
			}
			near("PriorSD", got.Params[0].Value, want.Params[0].Value)
			for k := 1; k < len(got.Params); k++ {
				near(got.Params[k].Name, got.Params[k].Value, want.Params[len(c.groups)+k].Value)
			}
		}
	}
}

// TestGroupsGap checks that the gap of a fit includes what Σ gains, and that a bound is a bound at
// the present Σ only. Without priors of Σ, the best ELBO is the ELBO at the end.
func TestGroupsGap(t *testing.T) {
	for name, o := range map[string]mixedOptions{"crossed": crossedSlopes,
		"slopes": {rows: 2000, common: 2, levels: []int{201}, sd: [][]float64{{0.8, 0.4}}}} {
		for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, Gamma{Shape: 2}} {
			g, _ := learnedCase(t, lik, o, true)
			s := &Solver{Goal: 1e-9}
			res, err := s.Start(context.Background(), g)
			if err != nil {
				t.Fatal(err)
			}
			var all []Iteration
			for it, err := range s.Steps(context.Background(), res) {
				if err != nil {
					t.Fatal(err)
				}
				if all = append(all, it); it.Gap < 1e-9 {
					break
				}
			}
			best := all[len(all)-1].ELBO
			for _, it := range all[:len(all)-1] {
				left := best - it.ELBO
				if it.Scope != OverQAtGroups {
					t.Errorf("%s, %T: the scope is %v", name, lik, it.Scope)
				}
				if left > 1e-6 && !(it.Gap > 0.2*left) {
					t.Errorf("%s, %T: the gap is %.1e, but the ELBO gains %.1e", name, lik, it.Gap, left)
				}
			}
		}
	}
}

// TestGroupsLearnResume checks that learning has the same bits for any number of workers, and after
// a search was saved and resumed.
func TestGroupsLearnResume(t *testing.T) {
	o := mixedOptions{rows: 3000, common: 2, levels: []int{300}, sd: [][]float64{{0.5, 0.3}}}
	for _, lik := range []Likelihood{GaussianNoise{}, NegativeBinomial{}} {
		g, _ := learnedCase(t, lik, o, false)
		l, err := g.Learner(nil)
		if err != nil {
			t.Fatal(err)
		}
		var first []float64
		same := func(what string, res *Result, s *Solver) {
			t.Helper()
			_, p, learned, err := l.Learned(context.Background(), s, res)
			if err != nil {
				t.Fatal(err)
			}
			bits := append(p.Mean(nil), p.SD(nil)...)
			for _, q := range learned.Params {
				bits = append(bits, q.Value, q.SD)
			}
			if first == nil {
				first = bits
			}
			for j, v := range bits {
				if v != first[j] {
					t.Fatalf("%T, %s: number %d is %v instead of %v", lik, what, j, v, first[j])
				}
			}
		}
		for _, workers := range []int{1, 2, 7} {
			s := &Solver{Workers: workers}
			res, err := s.Run(context.Background(), l)
			if err != nil {
				t.Fatal(err)
			}
			same("workers", res, s)
		}
		res, err := (&Solver{MaxIter: 3}).Run(context.Background(), l)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := res.Save(&file); err != nil {
			t.Fatal(err)
		}
		s := &Solver{}
		if res, err = s.LoadResult(context.Background(), &file, l); err != nil {
			t.Fatal(err)
		}
		if res, err = s.Resume(context.Background(), res); err != nil {
			t.Fatal(err)
		}
		same("resumed", res, s)
	}
}

// TestGroupsForms fits the same model with dense and sparse rows, with a diagonal Prior, as an
// Objective, and without any other column.
func TestGroupsForms(t *testing.T) {
	c := newMixedCase(t, BernoulliLogit{}, mixedOptions{rows: 200, common: 2, levels: []int{12},
		sd: [][]float64{{0.7, 0.4}}, rho: 0.4}, 4)
	n, cols := c.x.Dims()
	full := mat.NewDense(n, cols, nil)
	for i := range n {
		ind, val := c.x.Row(i)
		for k, j := range ind {
			full.Set(i, int(j), val[k])
		}
	}
	variances := make([]float64, cols+1)
	for j := range variances {
		variances[j] = 4
	}
	variances[cols] = 25
	prior, err := NewMeanField(make([]float64, cols+1), variances)
	if err != nil {
		t.Fatal(err)
	}
	ctx, s := context.Background(), &Solver{Goal: 1e-10}
	var want float64
	for i, o := range []GLMOptions{{PriorSD: 2, InterceptSD: 5}, {Prior: prior}} {
		for _, x := range []mat.Matrix{c.x, full} {
			o.Intercept, o.Groups = true, c.groups
			g, err := NewGLM(x, c.y, BernoulliLogit{}, &o)
			if err != nil {
				t.Fatal(err)
			}
			_, res, err := g.Fit(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			if want == 0 {
				want = res.ELBO
			}
			if res.ELBO != want {
				t.Errorf("form %d: ELBO %v, want %v", i, res.ELBO, want)
			}
			f, err := g.Objective()
			if err != nil {
				t.Fatal(err)
			}
			if _, res, err = f.Fit(ctx, nil); err != nil || math.Abs(res.ELBO-want) > 1e-3 {
				t.Errorf("form %d: an Objective has the ELBO %v, want %v, %v", i, res.ELBO, want, err)
			}
		}
	}
	only := NewSparse(4)
	var y []float64
	for i := range 40 {
		only.Append([]int{i % 4}, []float64{1})
		y = append(y, float64(i%4)+0.1*float64(i%5))
	}
	g, err := NewGLM(only, y, nil, &GLMOptions{Groups: []Group{{Levels: 4}}})
	if err != nil {
		t.Fatal(err)
	}
	_, p, learned, err := g.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := p.Groups()[0].Effects[0]; !(e.SD > 1 && e.SD < 4) || len(learned.Params) != 1 {
		t.Errorf("the standard deviation is %v, and %d parameters are learned", e.SD,
			len(learned.Params))
	}
}
