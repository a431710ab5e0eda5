package groups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// mixedClasses holds the data of a softmax model with two groups, one with an intercept and a
// correlated slope for each level, and one with an intercept. The last level of each has no rows.
type mixedClasses struct {
	x      *Sparse
	y      []float64
	groups []Group
}

// newMixedClasses draws n responses of k classes, with levels[i] levels of factor i. The first factor
// has the standard deviations sd[0] and sd[1], with correlation rho, or one effect if sd[1] is
// negative. The second factor is left out if sd[2] is negative.
func newMixedClasses(n, k int, levels [2]int, sd [3]float64, rho float64, seed uint64) *mixedClasses {
	rng := rand.New(rand.NewPCG(seed, 5))
	c := &mixedClasses{}
	q := 2
	first := Group{Name: "g", First: 1, Levels: levels[0], Effects: []string{"(Intercept)", "x"},
		SD: sd[:2]}
	if first.Corr = mat.NewSymDense(2, []float64{1, rho, rho, 1}); sd[1] < 0 {
		q, first.Effects, first.SD, first.Corr = 1, nil, sd[:1], nil
	}
	c.groups = append(c.groups, first)
	cols := endOf(first)
	if sd[2] >= 0 {
		c.groups = append(c.groups, Group{Name: "h", First: cols, Levels: levels[1], SD: sd[2:]})
		cols = endOf(c.groups[1])
	}
	c.x = NewSparse(cols)
	w := make([]float64, k*cols)
	for a := range k {
		u := w[a*cols : (a+1)*cols]
		u[0] = float64(a)/float64(k) - 0.5
		for _, r := range c.groups {
			for j := r.First; j < endOf(r); j += effectsOf(r) {
				z := rng.NormFloat64()
				u[j] = r.SD[0] * z
				if effectsOf(r) == 2 {
					u[j+1] = r.SD[1] * (rho*z + math.Sqrt(1-rho*rho)*rng.NormFloat64())
				}
			}
		}
	}
	for range n {
		z := rng.NormFloat64()
		ind, val := []int{0}, []float64{z}
		g := rng.IntN(max(1, levels[0]-1))
		ind, val = append(ind, 1+g*q), append(val, 1)
		if q == 2 {
			ind, val = append(ind, 2+g*q), append(val, z)
		}
		if len(c.groups) > 1 {
			r := c.groups[1]
			ind, val = append(ind, r.First+rng.IntN(max(1, r.Levels-1))), append(val, 1)
		}
		best, class := math.Inf(-1), 0
		for a := range k {
			eta := -math.Log(rng.ExpFloat64())
			for i, j := range ind {
				eta += val[i] * w[a*cols+j]
			}
			if eta > best {
				best, class = eta, a
			}
		}
		c.x.Append(ind, val)
		c.y = append(c.y, float64(class))
	}
	return c
}

// fixed returns the groups with their standard deviations times scale fixed.
func (c *mixedClasses) fixed(scale float64) []Group {
	groups := copyGroups(c.groups)
	for i := range groups {
		groups[i].Fixed = true
		floats.Scale(scale, groups[i].SD)
	}
	return groups
}

// unset returns the groups without standard deviations and correlations.
func (c *mixedClasses) unset() []Group {
	groups := copyGroups(c.groups)
	for i := range groups {
		groups[i].SD, groups[i].Corr = nil, nil
	}
	return groups
}

// fitClasses fits a Softmax of k classes with groups.
func fitClasses(t *testing.T, c *mixedClasses, k int, groups []Group) (*GLM, *GLMPosterior, *Result) {
	t.Helper()
	g, err := NewGLM(c.x, c.y, Softmax{Classes: k}, &GLMOptions{Intercept: true, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return g, post, res
}

// TestClassGroupsFixed checks that fixed groups give the results of the same Softmax with one-hot
// columns under an ordinary prior. The columns of correlated effects are combined by hand.
func TestClassGroupsFixed(t *testing.T) {
	for _, c := range []*mixedClasses{
		newMixedClasses(150, 3, [2]int{8, 5}, [3]float64{0.9, 0.5, 0.6}, -0.6, 1),
		newMixedClasses(120, 4, [2]int{9, 0}, [3]float64{0.8, -1, -1}, 0, 2),
		newMixedClasses(20, 3, [2]int{12, 6}, [3]float64{1.2, 0.3, 0.6}, 0.9, 3), // few rows
	} {
		k := int(floats.Max(c.y)) + 1
		groups := c.fixed(1)
		g, post, res := fitClasses(t, c, k, groups)
		n, cols := c.x.Dims()
		d := cols + 1
		to := mat.NewDense(d, d, nil) // the weights are to times independent weights
		for j := range d {
			to.Set(j, j, 1)
		}
		to.Set(d-1, d-1, 10)
		for i := range groups {
			r := &groups[i]
			q := effectsOf(*r)
			l := effectFactor(t, r.Corr, r.SD)
			for j := range r.Levels * q {
				for e := range q {
					to.Set(r.First+j, r.First+j/q*q+e, l[j%q*q+e])
				}
			}
		}
		x := mat.NewDense(n, d, nil)
		for i := range n {
			for j := range cols {
				x.Set(i, j, c.x.At(i, j))
			}
			x.Set(i, d-1, 1)
		}
		var whole mat.Dense
		whole.Mul(x, to)
		flat, err := NewGLM(&whole, c.y, Softmax{Classes: k}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, wantRes, err := flat.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := math.Abs(res.ELBO - wantRes.ELBO); !(diff < 1e-8) {
			t.Errorf("ELBO %v, want %v", res.ELBO, wantRes.ELBO)
		}
		ctx := context.Background()
		loo, err := g.LOO(ctx, post)
		wantLOO, wantErr := flat.LOO(ctx, want)
		if err != nil || wantErr != nil || !(math.Abs(loo.ELPD-wantLOO.ELPD) < 1e-5) {
			t.Errorf("LOO %v, want %v; errors %v, %v", loo, wantLOO, err, wantErr)
		}
		const draws = 3000
		psis, err := g.PSIS(ctx, &Env{}, post, draws)
		wantPSIS, wantErr := flat.PSIS(ctx, &Env{}, want, draws)
		if err != nil || wantErr != nil || !(math.Abs(psis.LogZ-wantPSIS.LogZ) < 0.25) {
			t.Errorf("PSIS %+v, want %+v; errors %v, %v", psis, wantPSIS, err, wantErr)
		}
		all, back := mat.NewDense(k*d, k*d, nil), mat.NewVecDense(k*d, nil)
		for a := range k {
			all.Slice(a*d, (a+1)*d, a*d, (a+1)*d).(*mat.Dense).Copy(to)
		}
		back.MulVec(all, mat.NewVecDense(k*d, want.Mean(nil)))
		var half, cov mat.Dense
		half.Mul(all, want.Cov())
		cov.Mul(&half, all.T())
		mean, sd := post.Mean(nil), post.SD(nil)
		for j, m := range mean {
			if w := back.AtVec(j); !(math.Abs(m-w) < 1e-6) {
				t.Errorf("mean %d of %s is %v, want %v", j, post.Names()[j], m, w)
			}
			if w := math.Sqrt(cov.At(j, j)); !(math.Abs(sd[j]-w) < 1e-6) {
				t.Errorf("sd %d of %s is %v, want %v", j, post.Names()[j], sd[j], w)
			}
		}
	}
}

// TestClassGroupsTwoClasses checks that two classes give the results of BernoulliLogit with the
// standard deviations √2 s, fixed and learned.
func TestClassGroupsTwoClasses(t *testing.T) {
	c := newMixedClasses(600, 2, [2]int{61, 51}, [3]float64{0.9, 0.5, 0.6}, -0.5, 4)
	y := make([]float64, len(c.y))
	for i, v := range c.y {
		y[i] = 2*v - 1
	}
	fit := func(groups []Group) (*GLMPosterior, *Result) {
		g, err := NewGLM(c.x, y, BernoulliLogit{}, &GLMOptions{Intercept: true, PriorSD: math.Sqrt2,
			InterceptSD: 10 * math.Sqrt2, Groups: groups})
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(context.Background(), &Solver{Goal: 1e-10})
		if err != nil {
			t.Fatal(err)
		}
		return atBest(t, post), res // Softmax does not integrate over Σ
	}
	g, post, _ := fitClasses(t, c, 2, c.fixed(1))
	_, two, err := g.Fit(context.Background(), &Solver{Goal: 1e-10})
	if err != nil {
		t.Fatal(err)
	}
	want, one := fit(c.fixed(math.Sqrt2))
	if !(math.Abs(two.ELBO-one.ELBO) < 1e-8) {
		t.Errorf("fixed: ELBO %v, want %v", two.ELBO, one.ELBO)
	}
	for j, m := range want.Mean(nil) {
		contrast := make([]float64, post.Dim())
		contrast[j], contrast[j+len(contrast)/2] = -1, 1
		got, sd, err := post.Contrast(contrast)
		if wantSD := want.SD(nil)[j]; err != nil || !(math.Abs(got-m) < 1e-3) ||
			!(math.Abs(sd-wantSD) < 1e-3) {
			t.Errorf("fixed: contrast %d is %v ± %v, want %v ± %v; %v", j, got, sd, m, wantSD, err)
		}
	}
	_, post, two = fitClasses(t, c, 2, c.unset())
	want, one = fit(c.unset())
	if !(math.Abs(two.ELBO-one.ELBO) < 1e-3) {
		t.Errorf("learned: ELBO %v, want %v", two.ELBO, one.ELBO)
	}
	// The intervals of the Softmax allow for the correlations between all parameters.
	groups := want.Groups()
	for i, s := range post.Groups() {
		w := groups[i]
		for j, e := range s.Effects {
			if v := w.Effects[j]; !(math.Abs(math.Sqrt2*e.SD/v.SD-1) < 0.01) ||
				!(math.Abs(math.Log(e.Hi/e.Lo)/math.Log(v.Hi/v.Lo)-1) < 0.4) {
				t.Errorf("%s %s: %+v, want %+v/√2", s.Name, e.Name, e, v)
			}
		}
		for j, r := range s.Corr {
			if v := w.Corr[j]; !(math.Abs(r.Value-v.Value) < 0.01) ||
				!(math.Abs(r.Lo-v.Lo) < 0.15) {
				t.Errorf("%s correlation: %+v, want %+v", s.Name, r, v)
			}
		}
		if !(math.Abs(s.Share-w.Share) < 0.01) {
			t.Errorf("%s: share %v, want %v", s.Name, s.Share, w.Share)
		}
		m, sd := s.Mean.At(3, 1)-s.Mean.At(3, 0), 2*s.SD.At(3, 1)
		if i == 0 {
			m, sd = s.Mean.At(3, 2)-s.Mean.At(3, 0), 2*s.SD.At(3, 2)
		}
		if !(math.Abs(m-w.Mean.At(3, 0)) < 0.01) || !(math.Abs(sd-w.SD.At(3, 0)) < 0.02) {
			t.Errorf("%s: level 3 is %v ± %v, want %v ± %v", s.Name, m, sd, w.Mean.At(3, 0),
				w.SD.At(3, 0))
		}
	}
}

// TestClassGroupsEdges checks that data that do not determine the standard deviations are no error:
// no variation between levels, one level, one row per level, no rows, and one class observed.
func TestClassGroupsEdges(t *testing.T) {
	one := newMixedClasses(40, 3, [2]int{2, 0}, [3]float64{0, 0, -1}, 0, 5)
	single := newMixedClasses(40, 3, [2]int{5, 0}, [3]float64{0, 0, -1}, 0, 6)
	for i := range single.y {
		single.y[i] = 0
	}
	rows := &mixedClasses{x: NewSparse(41), groups: []Group{{First: 1, Levels: 40}}}
	for i := range 40 {
		rows.x.Append([]int{0, 1 + i}, []float64{float64(i%7) - 3, 1})
		rows.y = append(rows.y, float64(i%3))
	}
	for name, c := range map[string]*mixedClasses{
		"sd 0": newMixedClasses(800, 3, [2]int{21, 11}, [3]float64{0, 0, 0}, 0, 7), "one level": one,
		"one class": single, "one row per level": rows,
		"no rows": {x: NewSparse(9), groups: []Group{{First: 1, Levels: 8}}},
	} {
		for _, noPrior := range []bool{false, true} {
			groups := c.unset()
			for i := range groups {
				groups[i].NoPrior = noPrior
			}
			_, post, res := fitClasses(t, c, 3, groups)
			for _, s := range post.Groups() {
				for _, e := range s.Effects {
					if !(e.SD >= 0) || math.IsInf(e.SD, 0) || e.Lo > e.SD || e.Hi < e.SD {
						t.Errorf("%s: %s %+v", name, s.Name, e)
					}
					if name == "sd 0" && !(e.SD < 0.35) {
						t.Errorf("%s: %s %+v", name, s.Name, e)
					}
				}
			}
			if _, ok := allFiniteDense(post); !ok {
				t.Errorf("%s: means or standard deviations are not finite", name)
			}
			t.Log(name, noPrior, res.Status, post.Groups()[0].Effects, post.Groups()[0].Corr)
		}
	}
}

// TestClassGroupsZero checks that a standard deviation of 0 is found in at most eight evaluations, and
// a small one in at most ten. The interval of 0 begins at 0 and contains moderate values.
func TestClassGroupsZero(t *testing.T) {
	zeros := 0
	for seed := range uint64(12) {
		k := 3 + int(seed%3)
		c := newMixedClasses(200, k, [2]int{4 + 3*int(seed), 0}, [3]float64{0, -1, -1}, 0, seed)
		for _, noPrior := range []bool{false, true} {
			groups := c.unset()
			groups[0].NoPrior = noPrior
			g, err := NewGLM(c.x, c.y, Softmax{Classes: k}, &GLMOptions{Intercept: true, Groups: groups})
			if err != nil {
				t.Fatal(err)
			}
			l, err := g.Learner(onlyGroups)
			if err != nil {
				t.Fatal(err)
			}
			_, post, learned, err := learnBy(context.Background(), l)
			if err != nil {
				t.Fatal(err)
			}
			e := post.Groups()[0].Effects[0]
			most := 8
			if e.SD > 0.01 {
				most = 10
			}
			if learned.Evaluations > most || learned.Search.Status != Converged {
				t.Errorf("seed %d: %d evaluations, %v, %+v", seed, learned.Evaluations,
					learned.Search.Status, e)
			}
			if e.SD > 0.01 {
				continue
			}
			again := testkit.Reread(t, post, Load[*GLMPosterior]).Groups()[0].Effects[0]
			if again != e {
				t.Errorf("seed %d: saved %+v, loaded %+v", seed, e, again)
			}
			if zeros++; e.SD != 0 || e.Lo != 0 || !(e.Hi > 0.1) || !(e.Hi < 2) {
				t.Errorf("seed %d: %+v", seed, e)
			}
		}
	}
	if zeros < 8 {
		t.Errorf("only %d standard deviations are 0", zeros)
	}
}

// allFiniteDense reports whether the means and standard deviations of the weights are finite.
func allFiniteDense(p *GLMPosterior) (int, bool) {
	for j, v := range append(p.Mean(nil), p.SD(nil)...) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return j, false
		}
	}
	return 0, true
}

// TestClassGroupsResults checks the results of a Softmax with learned groups: its bits on one and
// three cores, its saved form, LOO, PSIS, and the prediction of a new level.
func TestClassGroupsResults(t *testing.T) {
	c := newMixedClasses(400, 3, [2]int{13, 9}, [3]float64{1, 0.5, 0.7}, 0.5, 8)
	g, post, res := fitClasses(t, c, 3, c.unset())
	if res.Status != Converged {
		t.Errorf("status %v", res.Status)
	}
	again, _, err := g.Fit(context.Background(), &Solver{Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	if !floats.Equal(post.Mean(nil), again.Mean(nil)) || !floats.Equal(post.SD(nil), again.SD(nil)) {
		t.Error("three workers gave other bits")
	}
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load[*GLMPosterior](&file)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprint(post.Summary()), fmt.Sprint(loaded.Summary()); a != b {
		t.Errorf("loaded:\n%v\nwant:\n%v", b, a)
	}
	if a, b := post.Groups(), loaded.Groups(); !mat.Equal(a[0].Mean, b[0].Mean) ||
		!mat.Equal(a[0].SD, b[0].SD) || a[0].Corr[0] != b[0].Corr[0] {
		t.Errorf("loaded groups %+v, want %+v", b, a)
	}
	l, err := g.LOO(context.Background(), post)
	if err != nil {
		t.Fatal(err)
	}
	env := &Env{}
	p, err := g.PSIS(context.Background(), env, post, 4000)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(l, p.KHat, "\n", post.Summary())
	if !(l.ELPD > -float64(len(c.y))*math.Log(3)) || !(p.KHat < 0.7) {
		t.Errorf("ELPD %v, k̂ %v", l.ELPD, p.KHat)
	}
	_, cols := c.x.Dims()
	x := NewSparse(cols)
	x.Append([]int{endOf(c.groups[0]) - 2, endOf(c.groups[1]) - 1}, []float64{1, 1})
	x.Append([]int{0}, []float64{0})
	probs := post.At(x).Probs()
	for a := range 3 {
		if d := probs.At(0, a) - probs.At(1, a); !(math.Abs(d) < 0.15) {
			t.Errorf("class %d of a new level: %v, want about %v", a, probs.At(0, a), probs.At(1, a))
		}
	}
	last := func(p *GLMPosterior) (mean, sd float64) { // the effect of a new level of the second group
		s := p.Groups()[1]
		return s.Mean.At(s.Levels-1, 0), s.SD.At(s.Levels-1, 0)
	}
	given := c.unset()
	given[1].SD, given[1].Fixed = []float64{post.Groups()[1].Effects[0].SD}, true
	_, held, _ := fitClasses(t, c, 3, given)
	want := given[1].SD[0] * math.Sqrt(2./3)
	if mean, sd := last(held); !(sd > 0.99*want && sd < 1.02*want) || mean != 0 {
		t.Errorf("new level at a given standard deviation: %v ± %v, want 0 ± %v", mean, sd, want)
	}
	most := post.Groups()[1].Effects[0].Hi * math.Sqrt(2./3)
	if mean, sd := last(post); !(sd > 1.02*want && sd < most) || math.Abs(mean) > 1e-9*sd {
		t.Errorf("new level: %v ± %v, want 0 ± more than %v and less than %v", mean, sd, want, most)
	}
}

// TestClassGroupsRefused checks the errors of groups that Softmax does not support.
func TestClassGroupsRefused(t *testing.T) {
	c := newMixedClasses(40, 3, [2]int{5, 0}, [3]float64{1, 1, -1}, 0, 9)
	zero, singular := c.fixed(1), c.fixed(1)
	zero[0].SD = []float64{1, 0}
	singular[0].Corr = mat.NewSymDense(2, []float64{1, 1, 1, 1})
	_, cols := c.x.Dims()
	each, err := NewMeanField(make([]float64, 3*cols), ones(3*cols))
	if err != nil {
		t.Fatal(err)
	}
	for name, opt := range map[string]*GLMOptions{
		"SD 0": {Groups: zero}, "correlation 1": {Groups: singular},
		"Blocks":   {Groups: c.unset(), Blocks: make([]int, 3*cols)},
		"Prior":    {Groups: c.unset(), Prior: each},
		"diagonal": {Groups: c.unset(), Covariance: DiagonalCovariance},
	} {
		if _, err := NewGLM(c.x, c.y, Softmax{Classes: 3}, opt); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Log(err)
		}
	}
	g, err := NewGLM(c.x, c.y, Softmax{Classes: 3}, &GLMOptions{Groups: c.unset()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Solver{}).Run(context.Background(), g); !errors.Is(err, ErrParam) {
		t.Errorf("Solver.Run: %v", err)
	}
}

// ones returns n ones.
func ones(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

// TestClassGroupsSlopes compares the gradient of the objective of a search in standard deviations,
// correlations and the prior standard deviation of the weights with its differences.
func TestClassGroupsSlopes(t *testing.T) {
	c := newMixedClasses(150, 3, [2]int{8, 5}, [3]float64{0.9, 0.5, 0.6}, 0.4, 10)
	g, err := NewGLM(c.x, c.y, Softmax{Classes: 3}, &GLMOptions{Intercept: true, Groups: c.groups})
	if err != nil {
		t.Fatal(err)
	}
	learner, err := g.Learner(nil)
	if err != nil {
		t.Fatal(err)
	}
	run := kit.RunOf(kit.MustStepper(t, learner))
	m := run.Model
	m.Use(term.Crew{Workers: 1})
	at := func(theta []float64) search.Point {
		x, err := m.Evaluate(theta, 1e-9, math.Inf(1), true)
		if err != nil {
			t.Fatal(err)
		}
		m.Keep(true)
		return x
	}
	theta := run.Space().Starts()[0]
	if len(theta) != 5 { // PriorSD, three standard deviations and a correlation
		t.Fatalf("%d coordinates", len(theta))
	}
	x := at(theta)
	const step = 1e-3
	for i := range theta {
		near := func(h float64) float64 {
			moved := slices.Clone(theta)
			moved[i] += h
			return at(moved).F
		}
		want := (near(step) - near(-step)) / (2 * step)
		if !(math.Abs(x.Grad[i]-want) < 1e-4*(1+math.Abs(want))) {
			t.Errorf("slope %d is %v, want %v", i, x.Grad[i], want)
		}
		if !(x.Info.At(i, i) > 0) {
			t.Errorf("information %d is %v", i, x.Info.At(i, i))
		}
	}
}

// TestClassGroupsSpread checks that the standard deviations of the effects include the uncertainty
// of the learned standard deviation, s. Their squares exceed the squares at fixed s by the square of
// the derivative of the mean in log s times the variance of log s. The first-order derivative is too
// small, because it leaves out how the means of one class move the means of the other classes.
func TestClassGroupsSpread(t *testing.T) {
	c := newMixedClasses(900, 3, [2]int{210, 0}, [3]float64{1, -1, -1}, 0, 11)
	_, post, _ := fitClasses(t, c, 3, c.unset())
	e := post.Groups()[0].Effects[0]
	logSD := math.Log(e.Hi/e.Lo) / (2 * 1.959963984540054)
	at := func(h float64) *GLMPosterior {
		groups := c.unset()
		groups[0].SD, groups[0].Fixed = []float64{e.SD * math.Exp(h)}, true
		_, p, _ := fitClasses(t, c, 3, groups)
		return p
	}
	const step = 0.05
	up, down, fixed := at(step).Mean(nil), at(-step).Mean(nil), at(0).SD(nil)
	all, want := 0.0, 0.0
	for j, sd := range post.SD(nil) {
		slope := (up[j] - down[j]) / (2 * step)
		all += sd*sd - fixed[j]*fixed[j]
		want += slope * slope * logSD * logSD
	}
	if !(want > 0.01) || !(all > 0.5*want) || !(all < 1.1*want) {
		t.Errorf("the variances are larger by %v in total, want about %v", all, want)
	}
}

// TestClassGroupsResumed checks that a search that is saved after each step and resumed ends with
// the same bits.
func TestClassGroupsResumed(t *testing.T) {
	c := newMixedClasses(150, 3, [2]int{8, 5}, [3]float64{0.9, 0.5, 0.6}, 0.4, 12)
	g, _, _ := fitClasses(t, c, 3, c.unset())
	ctx := context.Background()
	learner, err := g.Learner(onlyGroups)
	if err != nil {
		t.Fatal(err)
	}
	_, want, _, err := learnBy(ctx, learner)
	if err != nil {
		t.Fatal(err)
	}
	one := &Solver{MaxIter: 1}
	res, err := one.Run(ctx, learner)
	for steps := 0; err == nil && res.Status != Converged && steps < 100; steps++ {
		var file bytes.Buffer
		if err = res.Save(&file); err != nil {
			break
		}
		if res, err = one.LoadResult(ctx, &file, learner); err == nil {
			one.MaxIter = res.K + 1
			res, err = one.Resume(ctx, res)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	_, post, _, err := learner.Learned(ctx, nil, res)
	if err != nil {
		t.Fatal(err)
	}
	if !floats.Equal(post.Mean(nil), want.Mean(nil)) || !floats.Equal(post.SD(nil), want.SD(nil)) {
		t.Error("the resumed search has other bits")
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := g.Fit(canceled, nil); err == nil {
		t.Error("a canceled fit has no error")
	}
}
