package groups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// rows yields the rows of c with the given weights and offsets, which may be nil.
func (c *mixedCase) rows(weights, offset []float64) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		i := -1
		for row, err := range Rows(c.x, c.y) {
			if i++; weights != nil {
				row.Weight, row.Offset = weights[i], offset[i]
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// blocks returns the rows of c in the blocks that NewGLMRows would form.
func (c *mixedCase) blocks(t *testing.T) [][]Row {
	t.Helper()
	var rows []Row
	for r, err := range c.rows(nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		r.Ind, r.Val = slices.Clone(r.Ind), slices.Clone(r.Val)
		rows = append(rows, r)
	}
	return slices.Collect(slices.Chunk(rows, 8192))
}

// fitMixedRows fits a GLM by passes over rows.
func fitMixedRows(t *testing.T, rows iter.Seq2[Row, error], cols int, lik Likelihood,
	opt *GLMOptions, s *Solver) (*GLMPosterior, *Result) {
	t.Helper()
	g, err := NewGLMRows(t.Context(), rows, cols, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := g.Fit(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

// free makes all covariances of c learned.
func (c *mixedCase) free() *mixedCase {
	for i := range c.groups {
		r := &c.groups[i]
		r.SD, r.Corr, r.Fixed = nil, nil, false
	}
	return c
}

// fix gives group i of c the covariance of s.
func (c *mixedCase) fix(i int, s GroupSummary) {
	r := &c.groups[i]
	q := effectsOf(*r)
	r.Fixed, r.SD, r.Corr = true, make([]float64, q), mat.NewSymDense(q, nil)
	at := 0
	for i, e := range s.Effects {
		r.SD[i] = e.SD
		r.Corr.SetSym(i, i, 1)
		for j := range i {
			r.Corr.SetSym(i, j, s.Corr[at].Value)
			at++
		}
	}
}

// TestGLMRowsGroups compares mixed models of rows that are not kept with mixed models in memory: at
// the best Σ, and then at a given Σ.
func TestGLMRowsGroups(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]mixedOptions{
		"intercepts": {rows: 600, common: 2, levels: []int{60}, sd: [][]float64{{0.9}}},
		"slopes": {rows: 900, common: 3, levels: []int{60}, sd: [][]float64{{0.7, 0.4}},
			rho: -0.5},
		"crossed": {rows: 1200, common: 2, levels: []int{9, 60}, sd: [][]float64{{0.5}, {0.9}}},
		"crossed slopes": {rows: 1200, common: 3, levels: []int{40, 7, 12},
			sd: [][]float64{{0.7, 0.4}, {0.6, 0.5}, {0.4}}, rho: -0.5},
	} {
		for _, lik := range testkit.Few(mixedLikelihoods(), 7) {
			for _, plain := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %T, %t", name, lik, plain), func(t *testing.T) {
					c := newMixedCase(t, lik, o, 3).free()
					for i, levels := range o.levels { // with and without a prior
						c.groups[i].NoPrior = levels < 60
					}
					p, want := fitBoth(t, c, lik, plain)
					for i, g := range want.Groups() {
						sameSigma(t, p.Groups()[i], g)
						c.fix(i, g)
					}
					p, want = fitBoth(t, c, lik, plain)
					samePosterior(t, c, p, want)
				})
			}
		}
	}
}

// sameSigma compares the covariance of the effects. The intervals of a fit by passes rest on one look
// at another Σ, so they are only similar.
func sameSigma(t *testing.T, p, want GroupSummary) {
	t.Helper()
	for i, e := range want.Effects {
		own := p.Effects[i]
		if wide := math.Log(own.Hi/own.Lo) / math.Log(e.Hi/e.Lo); !(math.Abs(e.SD-own.SD) <= 1e-5 &&
			wide > 0.9 && wide < 1.1) {
			t.Errorf("%v, in memory %v: %.3f as wide", own, e, wide)
		}
	}
	for i, r := range want.Corr {
		own := p.Corr[i]
		wide := (math.Atanh(own.Hi) - math.Atanh(own.Lo)) / (math.Atanh(r.Hi) - math.Atanh(r.Lo))
		if !(math.Abs(r.Value-own.Value) <= 1e-5 && wide > 0.9 && wide < 1.1) {
			t.Errorf("%v, in memory %v: %.3f as wide", own, r, wide)
		}
	}
}

// fitBoth fits c with and without keeping the rows, and compares the ELBO.
func fitBoth(t *testing.T, c *mixedCase, lik Likelihood, plain bool) (own, memory *GLMPosterior) {
	t.Helper()
	var weights, offset []float64
	if !plain {
		for i := range c.y {
			weights, offset = append(weights, float64(1+i%3)), append(offset, 0.1*float64(i%5))
		}
	}
	opt := GLMOptions{Intercept: true, PriorSD: 2, Groups: c.groups}
	_, cols := c.x.Dims()
	p, res := fitMixedRows(t, c.rows(weights, offset), cols, lik, &opt, &Solver{Goal: 1e-13})
	opt.Weights, opt.Offset = weights, offset
	g, err := NewGLM(c.x, c.y, lik, &opt)
	if err != nil {
		t.Fatal(err)
	}
	want, in, err := g.Fit(context.Background(), &Solver{Goal: 1e-13})
	if err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() {
		t.Logf("%v passes, in memory %v; ELBO %.3f, off by %.1e", res.Passes, in.Passes, in.ELBO,
			res.ELBO-in.ELBO)
	}
	if off := math.Abs(res.ELBO - in.ELBO); !(off <= 1e-8*max(math.Abs(in.ELBO), float64(len(c.y)))) ||
		!(res.Gap <= 1e-7) {
		t.Errorf("%v, in memory %v", res, in)
	}
	return p, atBest(t, want)
}

// samePosterior compares moments of weights and predictions.
func samePosterior(t *testing.T, c *mixedCase, p, want *GLMPosterior) {
	t.Helper()
	far := func(x, y []float64) (most float64) {
		for i := range x {
			most = max(most, math.Abs(x[i]-y[i]))
		}
		return most
	}
	if d, w := far(p.Mean(nil), want.Mean(nil)), far(p.SD(nil), want.SD(nil)); !(d <= 1e-6 &&
		w <= 1e-6) {
		t.Errorf("means differ by %.1e, standard deviations by %.1e", d, w)
	}
	if d := far(columnMeans(t, p), columnMeans(t, want)); !(d <= 1e-12) {
		t.Errorf("means of columns differ by %.1e", d)
	}
	m, v := p.At(c.x).Latent(nil, nil)
	m0, v0 := want.At(c.x).Latent(nil, nil)
	if d, w := far(m, m0), far(v, v0); !(d <= 5e-6 && w <= 5e-6) {
		t.Errorf("predictions differ by %.1e, variances by %.1e", d, w)
	}
}

// bitsCase returns rows of many blocks with (1 + x | g), or (1 + x | g) + (1 | h), and their options.
func bitsCase(t *testing.T, crossed bool) (*mixedCase, *GLMOptions) {
	o := mixedOptions{rows: 20000, common: 2, levels: []int{900}, sd: [][]float64{{0.7, 0.4}}, rho: 0.3}
	if crossed {
		o.levels, o.sd = append(o.levels, 20), append(o.sd, []float64{0.5})
	}
	c := newMixedCase(t, BernoulliLogit{}, o, 8).free()
	return c, &GLMOptions{Intercept: true, Autoscale: true, Groups: c.groups}
}

// TestGLMRowsGroupsBits checks that the posterior has the same bits for any number of workers, after
// a run is saved and resumed, after it is canceled, and for rounds on several shards.
func TestGLMRowsGroupsBits(t *testing.T) {
	for _, crossed := range []bool{false, true} {
		t.Run(fmt.Sprint(crossed), func(t *testing.T) { sameRowBits(t, crossed) })
	}
}

// sameRowBits is TestGLMRowsGroupsBits with one or two factors.
func sameRowBits(t *testing.T, crossed bool) {
	t.Parallel()
	ctx := context.Background()
	c, opt := bitsCase(t, crossed)
	_, cols := c.x.Dims()
	p, res := fitMixedRows(t, c.rows(nil, nil), cols, BernoulliLogit{}, opt, &Solver{Workers: 1})
	want := testkit.Saved(t, p)
	for _, n := range []int{2, 7} {
		if p, _ := fitMixedRows(t, c.rows(nil, nil), cols, BernoulliLogit{}, opt,
			&Solver{Workers: n}); !bytes.Equal(want, testkit.Saved(t, p)) {
			t.Errorf("other bits with %d workers", n)
		}
	}
	all := c.rows(nil, nil) // one test below replaces it
	g, err := NewGLMRows(ctx, func(yield func(Row, error) bool) { all(yield) }, cols,
		BernoulliLogit{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []int{1, 2} {
		_, res, err := g.Fit(ctx, &Solver{MaxIter: k})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := res.Save(&b); err != nil {
			t.Fatal(err)
		}
		s := &Solver{}
		if res, err = s.LoadResult(ctx, &b, g); err == nil {
			_, err = s.Resume(ctx, res)
		}
		if err != nil {
			t.Fatal(err)
		}
		if p, err = g.Posterior(res.Stepper); err != nil || !bytes.Equal(want, testkit.Saved(t, p)) {
			t.Errorf("other bits when resumed after step %d (%v)", k, err)
		}
	}
	why := errors.New("enough")
	for _, at := range []int{25000, 40001} { // in the middle and at the end of a pass
		ctx, cancel := context.WithCancelCause(ctx)
		seen := 0
		all = func(yield func(Row, error) bool) {
			for row := range c.rows(nil, nil) {
				if seen++; seen == at {
					cancel(why)
				}
				if !yield(row, nil) {
					return
				}
			}
		}
		_, res, err := g.Fit(ctx, nil)
		if !errors.Is(err, why) || res.Status != Canceled {
			t.Fatalf("%v, %v", err, res)
		}
		if _, err := (&Solver{}).Resume(context.Background(), res); err != nil {
			t.Fatal(err)
		}
		if p, err = g.Posterior(res.Stepper); err != nil || !bytes.Equal(want, testkit.Saved(t, p)) {
			t.Errorf("other bits after a run was canceled (%v)", err)
		}
	}
	blocks := c.blocks(t)
	for _, shards := range []int{1, 3} {
		post, it := fitGroupRounds(t, blocks, cols, shards, opt, res.K)
		// A Solver raises the gap if the last steps suggest a larger one.
		if !bytes.Equal(post, want) || it.ELBO != res.ELBO || it.Gap > res.Gap ||
			!crossed && it.Gap != res.Gap {
			t.Errorf("other bits on %d shards: %v, and %v in one process", shards, it, res)
		}
	}
}

// fitGroupRounds fits by rounds that travel as bytes, as fitRounds does.
func fitGroupRounds(t *testing.T, blocks [][]Row, cols, shards int, opt *GLMOptions, times int) (
	post []byte, it Iteration) {
	t.Helper()
	r, err := NewGLMRounds(cols, BernoulliLogit{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, it := kit.FitRounds(t, r, blocks, shards,
		func(rounds int, _ Iteration) bool { return rounds == times+1 })
	return testkit.Saved(t, p), it
}

// TestGLMRowsGroupsResults checks that the posterior offers what a posterior in memory offers.
func TestGLMRowsGroupsResults(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := newMixedCase(t, Poisson{}, mixedOptions{rows: 700, common: 2, levels: []int{70},
		sd: [][]float64{{0.7, 0.3}}, rho: 0.3}, 4).free()
	opt := &GLMOptions{Intercept: true, Groups: c.groups}
	_, cols := c.x.Dims()
	g, err := NewGLMRows(ctx, c.rows(nil, nil), cols, Poisson{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := g.Fit(ctx, &Solver{Goal: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := NewGLM(c.x, c.y, Poisson{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := memory.Fit(ctx, &Solver{Goal: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	want = atBest(t, want)
	weights := func(p *GLMPosterior) string {
		text, _, _ := strings.Cut(p.Summary().String(), "groups")
		return text
	}
	if a, b := weights(p), weights(want); a != b ||
		!strings.Contains(p.Summary().String(), "group1 (69)") {
		t.Errorf("summary\n%s, in memory\n%s", a, b)
	}
	var b bytes.Buffer
	if err := p.Save(&b); err != nil {
		t.Fatal(err)
	}
	back, err := Load[*GLMPosterior](&b)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(back.Mean(nil), p.Mean(nil)) || !slices.Equal(back.SD(nil), p.SD(nil)) ||
		back.Summary().String() != p.Summary().String() {
		t.Error("a saved posterior differs")
	}
	next, err := p.Update(ctx, c.rows(nil, nil))
	if err != nil || next.Len() != 2*len(c.y) {
		t.Errorf("update: %v", err)
	}
	_, loo := g.LOO(ctx, p)
	_, psis := g.PSIS(ctx, nil, p, 10)
	_, _, certify := g.CertifyScale(ctx, 0.1, 1, 1)
	_, objective := g.Objective()
	_, check := g.PredictiveCheck(ctx, nil, p, 10, nil)
	for _, err := range []error{loo, psis, certify, objective, check} {
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "NewGLM ") {
			t.Errorf("%v, want an error that names NewGLM", err)
		}
	}
}

// TestGLMRowsGroupsEdges fits models at the edge: no variation between levels, one level, one row per
// level, no row with a level, no common column, and a group between common columns.
func TestGLMRowsGroupsEdges(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	for name, o := range map[string]struct {
		rows, levels, common, first int
		level                       func(i int) int
		sd, goal                    float64
	}{
		"equal levels":     {2000, 200, 1, 1, func(i int) int { return i % 200 }, 0, 1e-8},
		"one level":        {300, 1, 1, 1, func(int) int { return 0 }, 1, 1e-8},
		"one row a level":  {300, 300, 1, 1, func(i int) int { return i }, 1, 0.01},
		"no level":         {300, 5, 1, 1, func(int) int { return -1 }, 1, 1e-8},
		"no common column": {300, 30, 0, 0, func(i int) int { return i % 29 }, 1, 1e-8},
		"in the middle":    {600, 60, 3, 1, func(i int) int { return i % 59 }, 1, 1e-8},
	} {
		x, y := NewSparse(o.common+o.levels), []float64(nil)
		effects := make([]float64, o.levels)
		for g := range effects {
			effects[g] = o.sd * rng.NormFloat64()
		}
		for i := range o.rows {
			var ind []int
			var val []float64
			eta := 0.0
			for j := range o.common {
				if j < o.first {
					ind, val = append(ind, j), append(val, rng.NormFloat64())
				}
			}
			if g := o.level(i); g >= 0 {
				ind, val = append(ind, o.first+g), append(val, 1)
				eta += effects[g]
			}
			for j := o.first; j < o.common; j++ {
				ind, val = append(ind, o.levels+j), append(val, rng.NormFloat64())
			}
			x.Append(ind, val)
			y = append(y, testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(-eta))))
		}
		opt := GLMOptions{Groups: []Group{{First: o.first, Levels: o.levels, NoPrior: true}}}
		_, cols := x.Dims()
		p, res := fitMixedRows(t, Rows(x, y), cols, BernoulliLogit{}, &opt,
			&Solver{Goal: o.goal})
		g, err := NewGLM(x, y, BernoulliLogit{}, &opt)
		if err != nil {
			t.Fatal(err)
		}
		want, in, err := g.Fit(context.Background(), &Solver{Goal: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		a, b := p.Groups()[0].Effects[0].SD, want.Groups()[0].Effects[0].SD
		if off := math.Abs(res.ELBO - in.ELBO); !(off <= max(1e-5, 2*o.goal)) ||
			!(math.Abs(a-b) <= max(1e-3, 20*o.goal)) ||
			res.Status != Converged && res.Status != Stalled {
			t.Errorf("%s: %v, sd %v; in memory %v, sd %v", name, res, a, in, b)
		}
	}
}

// TestGLMRowsGroupsErrors checks that each error names its row, group or option.
func TestGLMRowsGroupsErrors(t *testing.T) {
	t.Parallel()
	rows := func(all ...Row) iter.Seq2[Row, error] {
		return func(yield func(Row, error) bool) {
			for _, r := range all {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
	good := rows(Row{Ind: []int{0, 1}, Val: []float64{1, 1}, Y: 1})
	slope := []string{"(Intercept)", "x"}
	prior, err := NewGaussian(make([]float64, 3), mat.NewSymDense(3, []float64{1, 0.1, 0, 0.1, 1, 0, 0,
		0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	far, err := NewMeanField([]float64{0, 1, 0}, []float64{1, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		rows iter.Seq2[Row, error]
		cols int
		opt  GLMOptions
		want error
		text string
	}{
		{rows(Row{Ind: []int{0, 1}, Val: []float64{1, 1}, Y: 1}, Row{Ind: []int{1, 2},
			Val: []float64{1, 1}, Y: 1}), 3, GLMOptions{Groups: []Group{{Name: "shop", First: 1,
			Levels: 2}}}, ErrParam, "row 1 has the levels 0 and 1 of group shop"},
		{rows(Row{Ind: []int{0, 1, 4}, Val: []float64{1, 1, 1}, Y: 1}, Row{Ind: []int{0, 2, 3},
			Val: []float64{1, 1, 1}, Y: -1}), 5, GLMOptions{Groups: []Group{{Name: "a", First: 1,
			Levels: 2}, {Name: "b", First: 3, Levels: 2}}}, ErrParam,
			"the groups a and b have the same levels"},
		{rows(Row{Ind: []int{0, 1, 5, 7}, Val: []float64{1, 1, 2, 2}, Y: 1}, Row{Ind: []int{0, 2, 6, 8},
			Val: []float64{1, 1, 3, 3}, Y: -1}, Row{Ind: []int{3, 5, 7}, Val: []float64{1, 1, 1}, Y: 1}),
			9, GLMOptions{Groups: []Group{{Name: "a", First: 1, Levels: 4}, {Name: "b", First: 5,
				Levels: 2}, {Name: "c", First: 7, Levels: 2}}}, ErrParam,
			"the groups b and c have the same levels"},
		{rows(Row{Ind: []int{1, 3}, Val: []float64{1, 1}, Y: 1}, Row{Ind: []int{1, 3, 4},
			Val: []float64{1, 1, 1}, Y: 1}), 5, GLMOptions{Groups: []Group{{Name: "a", First: 1,
			Levels: 2}, {Name: "b", First: 3, Levels: 2}}}, ErrParam,
			"row 1 has the levels 0 and 1 of group b"},
		{good, 3, GLMOptions{Groups: []Group{{First: 1, Levels: 2}}, Prior: prior}, ErrParam,
			"diagonal prior"},
		{good, 3, GLMOptions{Groups: []Group{{First: 1, Levels: 2}}, Prior: far}, ErrParam,
			"mean 1 in column 1 of group group1"},
		{good, 3, GLMOptions{Groups: []Group{{First: 1, Levels: 3}}}, ErrParam, "3 levels"},
		{good, 3, GLMOptions{Groups: []Group{{First: 1, Levels: 2}}, MaxMemory: 1000}, ErrMemory,
			"fewer columns"},
		{good, site.MostBorder + 3, GLMOptions{Groups: []Group{{First: 0, Levels: 2}}}, ErrMemory,
			"columns outside the group group1"},
		{good, 4100, GLMOptions{Groups: []Group{{Levels: 3050}, {Name: "b", First: 3050, Levels: 1030},
			{First: 4080, Levels: 20}}, MaxMemory: 1 << 28}, ErrMemory, "and 1050 other columns"},
		{good, 6300, GLMOptions{Groups: []Group{{First: 0, Levels: 3050}, {First: 3100, Levels: 3100}}},
			ErrMemory, "at most 3000 are supported: use fewer levels"},
		{rows(Row{Ind: []int{1, 2}, Val: []float64{1, 4}, Y: 1}, Row{Ind: []int{1, 2},
			Val: []float64{1, 4}, Y: -1}, Row{Ind: []int{3, 4}, Val: []float64{1, 5}, Y: -1}), 5,
			GLMOptions{Groups: []Group{{First: 1, Levels: 2, Effects: slope}}}, ErrParam,
			"the effect x of group group1 does not vary within any level"},
		{rows(Row{Ind: []int{1, 2}, Val: []float64{1, 4}, Y: 1}, Row{Ind: []int{3, 4},
			Val: []float64{1, 5}, Y: -1}), 5,
			GLMOptions{Groups: []Group{{First: 1, Levels: 2, Effects: slope}}}, ErrParam,
			"as many levels as rows"},
	} {
		_, err := NewGLMRows(context.Background(), c.rows, c.cols, BernoulliLogit{}, &c.opt)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !testkit.PrefixedOnce(err) {
			t.Errorf("%d: %v, want %q and %v", i, err, c.text, c.want)
		}
	}
	for n := range 3 { // a damaged shard
		r, err := NewGLMRounds(3, BernoulliLogit{}, &GLMOptions{Groups: []Group{{First: 1, Levels: 2}}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Shard().MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := new(Shard[Row]).UnmarshalBinary(b[:len(b)-1-9*n]); !errors.Is(err, ErrFile) {
			t.Errorf("a shard that ends too early: %v", err)
		}
	}
}

// TestGLMRowsGroupsMemory checks that memory does not grow with the number of rows.
func TestGLMRowsGroupsMemory(t *testing.T) {
	fit := func(n int) uint64 {
		c := newMixedCase(t, BernoulliLogit{}, mixedOptions{rows: n, common: 2, levels: []int{300},
			sd: [][]float64{{0.7}}}, 8).free()
		_, cols := c.x.Dims()
		runtime.GC()
		return testkit.Allocated(func() {
			fitMixedRows(t, c.rows(nil, nil), cols, BernoulliLogit{}, &GLMOptions{Groups: c.groups},
				&Solver{MaxIter: 2, Workers: 2})
		})
	}
	fit(100)
	few, many := fit(20_000), fit(70_000)
	if float64(many) > 1.2*float64(few)+1e6 {
		t.Errorf("few rows take %d bytes in all, and many rows %d", few, many)
	}
}

// TestGLMRowsGroupsLearn compares learned noise, prior standard deviations and Σ of Gaussian responses
// with a fit in memory.
func TestGLMRowsGroupsLearn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := newMixedCase(t, GaussianNoise{}, mixedOptions{rows: 900, common: 3, levels: []int{60},
		sd: [][]float64{{0.7, 0.4}}, rho: -0.5}, 3).free()
	_, cols := c.x.Dims()
	for _, scaled := range []bool{false, true} {
		opt := &GLMOptions{Intercept: true, Autoscale: scaled, Groups: c.groups, Learn: &LearnOptions{}}
		g, err := NewGLMRows(ctx, c.rows(nil, nil), cols, nil, opt)
		if err != nil {
			t.Fatal(err)
		}
		_, p, own, err := g.Learn(ctx, nil, &LearnOptions{Tol: 1e-9})
		if err != nil {
			t.Fatal(err)
		}
		memory, err := NewGLM(c.x, c.y, nil, opt)
		if err != nil {
			t.Fatal(err)
		}
		_, want, in, err := memory.Learn(ctx, nil, &LearnOptions{Tol: 1e-9})
		if err != nil {
			t.Fatal(err)
		}
		want = atBest(t, want)
		if d := math.Abs(own.Objective - in.Objective); !(d <= 1e-6) || own.Fit.Passes > 2 {
			t.Errorf("objective %v, in memory %v; %v", own.Objective, in.Objective, own.Fit)
		}
		for i, q := range in.Params {
			if own := own.Params[i]; !(math.Abs(own.Value/q.Value-1) <= 1e-5) ||
				!(math.Abs(own.SD/q.SD-1) <= 0.05) {
				t.Errorf("%+v, in memory %+v", own, q)
			}
		}
		sameSigma(t, p.Groups()[0], want.Groups()[0])
		for j, sd := range want.SD(nil) {
			if own := p.SD(nil)[j]; !(math.Abs(own/sd-1) <= 1e-3) {
				t.Errorf("weight %d has the standard deviation %v, in memory %v", j, own, sd)
			}
		}
		if q, _, err := g.Fit(ctx, nil); err != nil || q.Learned() == nil {
			t.Errorf("a fit that learns: %v", err)
		}
	}
}

// TestGLMRowsGroupsShapes compares learned shapes, scales and cut points of other likelihoods, and Σ,
// with a fit in memory. The search has the same bits for any number of workers.
func TestGLMRowsGroupsShapes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	one := mixedOptions{rows: 900, common: 3, levels: []int{60}, sd: [][]float64{{0.7, 0.4}}, rho: -0.5}
	two := one
	two.levels, two.sd = append(two.levels, 9), append(two.sd, []float64{0.5})
	for i, lik := range []Likelihood{StudentT{}, NegativeBinomial{}, Gamma{},
		Ordinal{Cuts: []float64{-1, 1}}, BernoulliLogit{}} {
		o := one
		if i%2 == 1 {
			o = two
		}
		c := newMixedCase(t, lik, o, 3).free()
		c.groups[len(c.groups)-1].NoPrior = true
		_, cols := c.x.Dims()
		_, ordinal := lik.(Ordinal) // whose cut points contain the intercept
		opt := &GLMOptions{Intercept: !ordinal, Groups: c.groups, Learn: &LearnOptions{}}
		var bits [][]byte
		var own *Learned
		var p *GLMPosterior
		var g *GLM
		for _, n := range []int{1, 7} {
			var err error
			g, err = NewGLMRows(ctx, c.rows(nil, nil), cols, lik, opt)
			if err == nil {
				_, p, own, err = g.Learn(ctx, &Solver{Workers: n}, &LearnOptions{Tol: 1e-7})
			}
			if err != nil {
				t.Fatal(err)
			}
			bits = append(bits, testkit.Saved(t, p))
		}
		if !bytes.Equal(bits[0], bits[1]) {
			t.Errorf("%T: other bits with 7 workers", lik)
		}
		if !bytes.Equal(bits[0], testkit.Saved(t, kit.ResumedSearch(t, g, &LearnOptions{Tol: 1e-7}, 3))) {
			t.Errorf("%T: other bits when the search is resumed", lik)
		}
		memory, err := NewGLM(c.x, c.y, lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		_, want, in, err := memory.Learn(ctx, nil, &LearnOptions{Tol: 1e-7})
		if err != nil {
			t.Fatal(err)
		}
		want = atBest(t, want)
		if d := math.Abs(own.Objective - in.Objective); !(d <= 1e-5) || own.Fit.Passes > 20 {
			t.Errorf("%T: objective %v, in memory %v; %v", lik, own.Objective, in.Objective, own.Fit)
		}
		for i, q := range in.Params {
			if own := own.Params[i]; !(math.Abs(own.Value-q.Value) <= 1e-3*math.Abs(q.Value)) ||
				!(math.Abs(own.SD/q.SD-1) <= 0.05) {
				t.Errorf("%T: %+v, in memory %+v", lik, own, q)
			}
		}
		for i, g := range want.Groups() {
			for j, e := range g.Effects {
				if own := p.Groups()[i].Effects[j]; !(math.Abs(own.SD-e.SD) <= 1e-4) {
					t.Errorf("%T: %v, in memory %v", lik, own, e)
				}
			}
		}
		for j, sd := range want.SD(nil) {
			if own := p.SD(nil)[j]; !(math.Abs(own/sd-1) <= 2e-3) {
				t.Errorf("%T: weight %d has the standard deviation %v, in memory %v", lik, j, own, sd)
			}
		}
	}
}
