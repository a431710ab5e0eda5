package groups

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// fittedGroups fits c with its covariances fixed, by groups and by a dense prior.
func fittedGroups(t *testing.T, c *mixedCase, lik Likelihood) (g, dense *GLM, q, p *GLMPosterior) {
	t.Helper()
	g, err := NewGLM(c.x, c.y, lik, &GLMOptions{Intercept: true, PriorSD: 2, InterceptSD: 5,
		Groups: c.groups})
	if err != nil {
		t.Fatal(err)
	}
	dense, err = NewGLM(c.x, c.y, lik, &GLMOptions{Intercept: true, Prior: c.fullPrior(t, true),
		Covariance: FullCovariance})
	if err != nil {
		t.Fatal(err)
	}
	s := &Solver{Goal: 1e-11}
	if q, _, err = g.Fit(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	if p, _, err = dense.Fit(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	return g, dense, q, p
}

// TestGroupsChecks compares LOO, PSIS, Update, Remove and Explain of a mixed model with the results
// for the same columns under a dense prior.
func TestGroupsChecks(t *testing.T) {
	for name, o := range map[string]mixedOptions{
		"slopes": {rows: 200, common: 2, levels: []int{12}, sd: [][]float64{{0.7, 0.4}}, rho: 0.4},
		"crossed": {rows: 200, common: 2, levels: []int{12, 5}, sd: [][]float64{{0.7}, {0.5, 0.2}},
			rho: -0.3},
	} {
		for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.5}, Poisson{}} {
			c := newMixedCase(t, lik, o, 4)
			g, dense, q, p := fittedGroups(t, c, lik)
			ctx := context.Background()
			near := func(what string, x, y, tol float64) {
				t.Helper()
				if !(math.Abs(x-y) <= tol) {
					t.Errorf("%s, %T: %s is %v, and %v with a dense prior", name, lik, what, x, y)
				}
			}
			l, err := g.LOO(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			l2, err := dense.LOO(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			near("ELPD", l.ELPD, l2.ELPD, 1e-3)
			s, err := g.PSIS(ctx, nil, q, 4000)
			if err != nil {
				t.Fatal(err)
			}
			s2, err := dense.PSIS(ctx, nil, p, 4000)
			if err != nil {
				t.Fatal(err)
			}
			near("log evidence", s.LogZ, s2.LogZ, 0.05)
			more := []Row{{Val: make([]float64, q.Cols()), Y: c.y[3]}, {Val: make([]float64, q.Cols()),
				Y: c.y[4]}}
			more[0].Val[0], more[0].Val[c.groups[0].First] = 0.3, 1
			more[1].Val[1], more[1].Val[endOf(c.groups[0])-len(c.groups[0].Effects)] = 0.5, 1 // a new level
			rows := func(yield func(Row, error) bool) {
				for _, r := range more {
					if !yield(r, nil) {
						return
					}
				}
			}
			compareChanged(t, near, q, p, rows)
			e, err := q.Explain(more[0].Val, nil)
			if err != nil {
				t.Fatal(err)
			}
			e2, err := p.Explain(more[0].Val, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range e.Rows {
				near("the effect of "+e.Rows[i].Name, e.Rows[i].Mean, e2.Rows[i].Mean, 1e-6)
				near("the error of "+e.Rows[i].Name, e.Rows[i].SD, e2.Rows[i].SD, 1e-6)
			}
		}
	}
}

// compareChanged compares q and p after Update and Remove.
func compareChanged(t *testing.T, near func(what string, x, y, tol float64), q, p *GLMPosterior,
	rows iter.Seq2[Row, error]) {
	t.Helper()
	ctx := context.Background()
	up, err := q.Update(ctx, rows)
	if err != nil {
		t.Fatal(err)
	}
	up2, err := p.Update(ctx, rows)
	if err != nil {
		t.Fatal(err)
	}
	sd, sd2 := up.SD(nil), up2.SD(nil)
	for j, m := range up.Mean(nil) {
		near("a mean after Update", m, up2.Mean(nil)[j], 1e-4)
		near("a standard deviation after Update", sd[j], sd2[j], 1e-4)
	}
	if len(up.Groups()) != len(q.Groups()) || up.Groups()[0].Effects[0].SD !=
		q.Groups()[0].Effects[0].SD {
		t.Error("Update changed the groups")
	}
	down, err := up.Remove(ctx, rows)
	if err != nil {
		t.Fatal(err)
	}
	for j, m := range down.Mean(nil) {
		near("a mean after Remove", m, q.Mean(nil)[j], 1e-4)
	}
}

// TestGroupsSave checks that a saved posterior has the same bits.
func TestGroupsSave(t *testing.T) {
	for name, o := range map[string]mixedOptions{"crossed": crossedSlopes, "one": {rows: 500,
		common: 3, levels: []int{40}, sd: [][]float64{{0.5, 0}}}} {
		g, _ := learnedCase(t, BernoulliLogit{}, o, false)
		p, _, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		q := reloaded(t, p, Load)
		a, b := append(p.Mean(nil), p.SD(nil)...), append(q.Mean(nil), q.SD(nil)...)
		a, b = append(a, p.PriorSD(nil)...), append(b, q.PriorSD(nil)...)
		for j := range a {
			if a[j] != b[j] {
				t.Fatalf("%s: number %d is %v, and %v after loading", name, j, a[j], b[j])
			}
		}
		if x, y := p.Summary().String(), q.Summary().String(); x != y {
			t.Errorf("%s: the summary\n%s\nbecomes\n%s", name, x, y)
		}
	}
}

// TestGroupsSummary checks the table of groups.
func TestGroupsSummary(t *testing.T) {
	c := newMixedCase(t, BernoulliLogit{}, mixedOptions{rows: 8000, common: 2,
		levels: []int{401, 31}, sd: [][]float64{{0.8, 0.4}, {0.5}}, rho: 0.5}, 8)
	for i := range c.groups {
		c.groups[i].Fixed, c.groups[i].SD, c.groups[i].Corr = false, nil, nil
	}
	c.groups[0].Name = "patient"
	g, err := NewGLM(c.x, c.y, BernoulliLogit{}, &GLMOptions{Intercept: true, Groups: c.groups})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Summary()
	if len(s.Rows) != 3 {
		t.Errorf("the table has %d weights instead of 3", len(s.Rows))
	}
	text := s.String()
	t.Log("\n" + text)
	for _, want := range []string{"patient (400)", "group2 (30)", "share", "corr"} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary has no %q:\n%s", want, text)
		}
	}
	groups := p.Groups()
	for i, sd := range []float64{0.8, 0.4} {
		e := groups[0].Effects[i]
		if !(e.Lo < sd && sd < e.Hi && e.Lo < e.SD && e.SD < e.Hi && e.Hi < 1.5*e.Lo+0.1) {
			t.Errorf("the standard deviation %v has the interval %v to %v", e.SD, e.Lo, e.Hi)
		}
	}
	r := groups[0].Corr[0]
	if !(r.Lo < 0.5 && 0.5 < r.Hi && r.Lo < r.Value && r.Value < r.Hi) {
		t.Errorf("the correlation %v has the interval %v to %v", r.Value, r.Lo, r.Hi)
	}
	if n, q := groups[0].Mean.Dims(); n != 401 || q != 2 ||
		groups[0].SD.At(400, 0) <= groups[0].SD.At(3, 0) {
		t.Error("the effects of the levels are wrong")
	}
	if x := groups[0].Share; !(0.1 < x && x < 0.3) {
		t.Errorf("the share is %v", x)
	}
}

// TestGroupsNew checks that a level without rows has mean 0 and the covariance Σ.
func TestGroupsNew(t *testing.T) {
	c := newMixedCase(t, Poisson{}, mixedOptions{rows: 200, common: 2, levels: []int{12},
		sd: [][]float64{{0.7, 0.4}}, rho: 0.4}, 4)
	_, _, q, _ := fittedGroups(t, c, Poisson{})
	x := mat.NewDense(2, q.Cols(), nil)
	x.Set(0, endOf(c.groups[0])-2, 1)
	x.Set(0, endOf(c.groups[0])-1, 2)
	m, v := q.At(x).Latent(nil, nil)
	base := q.SD(nil)[q.Dim()-1]
	if want := 0.49 + 2*2*0.7*0.4*0.4 + 4*0.16; math.Abs(v[0]-base*base-want) > 1e-12 ||
		math.Abs(m[0]-m[1]) > 1e-12 {
		t.Errorf("a new level has %v ± %v, want the variance %v more", m[0], v[0]-base*base, want)
	}
}

// TestGroupsMistakes checks that bad groups are errors that name them.
func TestGroupsMistakes(t *testing.T) {
	x := NewSparse(9)
	var y []float64
	for i := range 12 {
		x.Append([]int{0, 1 + 2*(i%4), 2 + 2*(i%4)}, []float64{float64(i), 1, float64(i%4 + 1)})
		y = append(y, float64(i%2)*2-1)
	}
	two := []string{"(Intercept)", "dose"}
	corr := mat.NewSymDense(2, []float64{1, 2, 2, 1})
	for _, c := range []struct {
		want string
		err  error
		opt  GLMOptions
	}{
		{"dose of group clinic does not vary within any level", ErrParam, GLMOptions{Groups: []Group{
			{Name: "clinic", First: 1, Levels: 4, Effects: two}}}},
		{"columns from column 3 on", ErrParam, GLMOptions{Groups: []Group{{First: 3, Levels: 7}}}},
		{"row 0 has the levels 0 and 1", ErrParam, GLMOptions{Groups: []Group{{First: 1, Levels: 8}}}},
		{"0 levels", ErrParam, GLMOptions{Groups: []Group{{First: 1}}}},
		{"belongs to the groups group1 and b", ErrParam, GLMOptions{Groups: []Group{{First: 1,
			Levels: 4}, {Name: "b", First: 4, Levels: 2}}}},
		{"SD is nil", ErrParam, GLMOptions{Groups: []Group{{First: 1, Levels: 4, Fixed: true}}}},
		{"SD has 1 elements", ErrParam, GLMOptions{Groups: []Group{{First: 1, Levels: 4, Effects: two,
			SD: []float64{1}}}}},
		{"SD[0] = -1", ErrParam, GLMOptions{Groups: []Group{{First: 1, Levels: 4,
			SD: []float64{-1}}}}},
		{"must be from −1 to 1", ErrParam, GLMOptions{Groups: []Group{{First: 1, Levels: 4,
			Effects: two, Corr: corr}}}},
		{"low-rank", ErrParam, GLMOptions{Covariance: LowRankCovariance,
			Groups: []Group{{First: 1, Levels: 4}}}},
	} {
		_, err := NewGLM(x, y, BernoulliLogit{}, &c.opt)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	same := NewSparse(9)
	for i := range 12 {
		same.Append([]int{0, 1 + i%4, 5 + (i+1)%4}, []float64{float64(i), 1, 1})
	}
	_, err := NewGLM(same, y, BernoulliLogit{}, &GLMOptions{Groups: []Group{
		{Name: "a", First: 1, Levels: 4}, {Name: "b", First: 5, Levels: 4}}})
	if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "a and b have the same levels") {
		t.Error(err)
	}
	_, err = NewGLM(NewSparse(9000), nil, BernoulliLogit{}, &GLMOptions{Groups: []Group{
		{Name: "a", First: 0, Levels: 4500}, {Name: "b", First: 4500, Levels: 4500}}})
	if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "at most 3000") {
		t.Error(err)
	}
	each := NewSparse(25)
	for i := range 12 {
		each.Append([]int{0, 1 + 2*i, 2 + 2*i}, []float64{float64(i), 1, float64(i + 1)})
	}
	_, err = NewGLM(each, y, BernoulliLogit{}, &GLMOptions{Groups: []Group{
		{Name: "a", First: 1, Levels: 12, Effects: two}}})
	if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "as many levels as rows") {
		t.Error(err)
	}
}

// TestGroupsRefusals checks that what does not support groups is an error.
func TestGroupsRefusals(t *testing.T) {
	g, _ := learnedCase(t, Poisson{}, mixedOptions{rows: 100, common: 1, levels: []int{5},
		sd: [][]float64{{0.5}}}, false)
	if _, err := g.Objective(); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	if _, _, err := g.CertifyScale(context.Background(), 1, 2, 1); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	if _, _, err := g.Fit(context.Background(), &Solver{Divergence: SymKL()}); !errors.Is(err, ErrNoProx) {
		t.Error(err)
	}
	opt := &GLMOptions{Groups: []Group{{First: 0, Levels: 2}}}
	if _, err := NewGLMStream(1, Poisson{}, opt); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	empty, err := NewGLM(NewSparse(3), nil, Poisson{}, &GLMOptions{Groups: []Group{{First: 0,
		Levels: 2, SD: []float64{0.5}}}})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := empty.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if sd := p.SD(nil); math.Abs(sd[0]-0.5) > 1e-12 || sd[2] != 1 {
		t.Errorf("without rows the standard deviations are %v", sd)
	}
}

// TestGroupsSingular checks that posteriors with a standard deviation of 0 and a correlation of 1
// support everything, or return an error.
func TestGroupsSingular(t *testing.T) {
	c := newMixedCase(t, Poisson{}, mixedOptions{rows: 200, common: 2, levels: []int{12, 6},
		sd: [][]float64{{0.7, 0.4}, {0}}, rho: 1}, 4)
	ctx := context.Background()
	g, err := NewGLM(c.x, c.y, Poisson{}, &GLMOptions{Intercept: true, Groups: c.groups})
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := g.Fit(ctx, nil)
	if err != nil || res.Status != Converged {
		t.Fatal(err, res.Status)
	}
	l, err := g.LOO(ctx, p)
	if err != nil || math.IsNaN(l.ELPD) {
		t.Error(l, err)
	}
	s, err := g.PSIS(ctx, nil, p, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if !(math.Abs(s.LogZ-res.ELBO) < 2) {
		t.Errorf("log evidence %v, ELBO %v", s.LogZ, res.ELBO)
	}
	row := Row{Val: make([]float64, p.Cols()), Y: 2}
	row.Val[c.groups[0].First] = 1
	rows := func(yield func(Row, error) bool) { yield(row, nil) }
	if q, err := p.Update(ctx, rows); err != nil || q.Len() != p.Len()+1 {
		t.Error(err)
	}
	up, err := p.Update(ctx, rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []*GLMPosterior{p, kit.WithoutRows(t, p)} {
		s, err := from.Stream()
		if err != nil {
			t.Fatal(err)
		}
		if mean, most, sd := groupsApart(testkit.Must(s.Posterior()), p); !(most < 1e-4 && sd < 1e-4) {
			t.Errorf("a stream from a singular prior: means %v (at most %v), sds %v", mean, most, sd)
		}
		if err := s.AddAll(ctx, rows); err != nil {
			t.Fatal(err)
		}
		if mean, _, sd := groupsApart(testkit.Must(s.Posterior()), up); !(mean < 0.02 && sd < 0.02) {
			t.Errorf("a stream from a singular prior, with a row: means %v, sds %v", mean, sd)
		}
	}
	if e, err := g.PredictiveCheck(ctx, nil, p, 50, nil); err != nil || e == nil {
		t.Error(err)
	}
	if e, err := p.MarginalEffects(c.x, nil); err != nil || e == nil {
		t.Error(err)
	}
	if w := mat.NewDense(3, p.Dim(), nil); p.RandWeights(w, rand.New(rand.NewPCG(1, 2))) != nil ||
		w.At(0, c.groups[1].First) != 0 {
		t.Error("a draw of an effect without variance is not 0")
	}
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Fatal(err)
	}
	q, err := Load[*GLMPosterior](&file)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := p.Prob(nil, 1, c.x), q.Prob(nil, 1, c.x); a[3] != b[3] {
		t.Error("predictions change by saving")
	}
	if text := p.Summary().String(); !strings.Contains(text, "edge") {
		t.Errorf("the summary does not mention the edge:\n%s", text)
	}
}

// TestGroupsDetermined compares the effective degrees of freedom with the trace of VXᵀΓX over the
// effects, and checks that levels without rows are not known.
func TestGroupsDetermined(t *testing.T) {
	lik := GaussianNoise{Var: 0.5}
	c := newMixedCase(t, lik, mixedOptions{rows: 200, common: 2, levels: []int{12, 5},
		sd: [][]float64{{0.7, 0.4}, {0.5}}, rho: -0.3}, 4)
	_, _, q, p := fittedGroups(t, c, lik)
	n, d := c.x.Dims()
	d++
	square := mat.NewDense(d, d, nil)
	for i := range n {
		ind, val := c.x.Row(i)
		ind, val = append(slices.Clone(ind), int32(d-1)), append(slices.Clone(val), 1)
		for a, j := range ind {
			for b, k := range ind {
				square.Set(int(j), int(k), square.At(int(j), int(k))+val[a]*val[b]/lik.Var)
			}
		}
	}
	var hat mat.Dense
	hat.Mul(p.Cov(), square)
	for i, g := range q.Groups() {
		r, want, got := c.groups[i], 0.0, 0.0
		for j := r.First; j < endOf(r); j++ {
			want += hat.At(j, j)
		}
		for _, e := range g.Effects {
			got += e.EDF
		}
		if !(math.Abs(got-want) < 1e-8) {
			t.Errorf("%s has %v degrees of freedom, want %v", g.Name, got, want)
		}
		if g.Known != r.Levels-1 || g.Levels != r.Levels {
			t.Errorf("%s has %d levels, %d of them known", g.Name, g.Levels, g.Known)
		}
	}
	if text := q.Summary().String(); !strings.Contains(text, "group1 (11)") {
		t.Errorf("not 11 levels in\n%s", text)
	}
}
