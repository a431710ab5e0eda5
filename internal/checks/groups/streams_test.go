package groups

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// part yields rows lo … hi−1 of c.
func (c *mixedCase) part(lo, hi int) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		i := -1
		for row, err := range c.rows(nil, nil) {
			if i++; lo <= i && i < hi && !yield(row, err) {
				return
			}
		}
	}
}

// first returns the case of the first n rows of c.
func (c *mixedCase) first(n int) *mixedCase {
	few := *c
	_, cols := c.x.Dims()
	few.x, few.y = NewSparse(cols), c.y[:n]
	for i := range n {
		ind, val := c.x.Row(i)
		var at []int
		for _, j := range ind {
			at = append(at, int(j))
		}
		few.x.Append(at, val)
	}
	return &few
}

// sorted returns c with the rows of a level of the first group one after the other.
func (c *mixedCase) sorted() *mixedCase {
	level := func(i int) int {
		ind, _ := c.x.Row(i)
		k, _ := slices.BinarySearch(ind, int32(c.groups[0].First))
		return int(append(ind[k:len(ind):len(ind)], -1)[0])
	}
	order := make([]int, len(c.y))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return level(i) - level(j) })
	_, cols := c.x.Dims()
	x := *c
	x.x, x.y = NewSparse(cols), nil
	for _, i := range order {
		ind, val := c.x.Row(i)
		var at []int
		for _, j := range ind {
			at = append(at, int(j))
		}
		x.x.Append(at, val)
		x.y = append(x.y, c.y[i])
	}
	return &x
}

// options returns the options of the models of c in these tests.
func (c *mixedCase) options() *GLMOptions {
	return &GLMOptions{Intercept: true, PriorSD: 2, Groups: c.groups}
}

// fitOf returns the posterior of all rows of c.
func (c *mixedCase) fitOf(t *testing.T, lik Likelihood) *GLMPosterior {
	t.Helper()
	g, err := NewGLM(c.x, c.y, lik, c.options())
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stream returns an empty stream for rows of c.
func (c *mixedCase) stream(t *testing.T, lik Likelihood) *Stream[Row, *GLMPosterior] {
	t.Helper()
	_, cols := c.x.Dims()
	s, err := NewGLMStream(cols, lik, c.options())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// groupsApart returns how far the weights of p are from the weights of q, in standard deviations under q:
// the root mean square of the means, the largest of them, and the root mean square of the relative
// differences of standard deviations.
func groupsApart(p, q *GLMPosterior) (mean, most, sd float64) {
	m, v, s, w := p.Mean(nil), q.Mean(nil), p.SD(nil), q.SD(nil)
	n := float64(len(m))
	for j := range m {
		if w[j] == 0 && s[j] == 0 && m[j] == v[j] {
			continue
		}
		x := math.Abs(m[j]-v[j]) / w[j]
		mean, most, sd = mean+x*x/n, max(most, x), sd+square(s[j]/w[j]-1)/n
	}
	return math.Sqrt(mean), most, math.Sqrt(sd)
}

func square(x float64) float64 { return x * x }

// twiceRows yields rows two times.
func twiceRows(rows iter.Seq2[Row, error]) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for range 2 {
			for row, err := range rows {
				if !yield(row, err) {
					return
				}
			}
		}
	}
}

// sameWeights fails unless p and q have the same bits.
func sameWeights(t *testing.T, what string, p, q *GLMPosterior) {
	t.Helper()
	a, b := append(p.Mean(nil), p.SD(nil)...), append(q.Mean(nil), q.SD(nil)...)
	for i, g := range p.Groups() {
		for j, e := range g.Effects {
			a, b = append(a, e.SD), append(b, q.Groups()[i].Effects[j].SD)
		}
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("%s: number %d is %v instead of %v", what, i, a[i], b[i])
		}
	}
}

// streamedGroups are the cases of the following tests.
var streamedGroups = map[string]mixedOptions{
	"slopes":  {rows: 12000, common: 3, levels: []int{300}, sd: [][]float64{{0.8, 0.4}}, rho: 0.5},
	"many":    {rows: 12000, common: 2, levels: []int{1500}, sd: [][]float64{{0.8}}},
	"crossed": {rows: 12000, common: 2, levels: []int{60, 300}, sd: [][]float64{{0.5}, {0.8}}},
}

// TestUpdateFrozen checks Update and Remove, at given covariances, of posteriors whose rows are not
// kept. With Gaussian noise they must agree with fits of the rows.
func TestUpdateFrozen(t *testing.T) {
	for name, o := range streamedGroups {
		for _, lik := range []Likelihood{GaussianNoise{Var: 0.5}, BernoulliLogit{}, Poisson{}} {
			what := fmt.Sprintf("%s, %T", name, lik)
			c := newMixedCase(t, lik, o, 4)
			n := len(c.y)
			q := reloaded(t, c.first(n/2).fitOf(t, lik), Load)
			up, err := q.Update(t.Context(), c.part(n/2, n))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			mean, most, sd := groupsApart(up, c.fitOf(t, lik))
			limit := [3]float64{0.1, 1, 0.06}
			if _, exact := lik.(GaussianNoise); exact {
				limit = [3]float64{1e-8, 1e-7, 1e-8}
			}
			t.Logf("%s: means %.2g (at most %.2g), sds %.2g", what, mean, most, sd)
			if !(mean <= limit[0] && most <= limit[1] && sd <= limit[2]) || up.Len() != n {
				t.Errorf("%s: %d rows, means %v (at most %v), sds %v", what, up.Len(), mean, most, sd)
			}
			down, err := up.Remove(t.Context(), c.part(n-500, n))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			mean, most, sd = groupsApart(down, c.first(n-500).fitOf(t, lik))
			t.Logf("%s, removed: means %.2g (at most %.2g), sds %.2g", what, mean, most, sd)
			if !(mean <= limit[0] && most <= limit[1] && sd <= limit[2]) || down.Len() != n-500 {
				t.Errorf("%s, removed: %d rows, means %v (at most %v), sds %v", what, down.Len(), mean,
					most, sd)
			}
		}
	}
}

// TestUpdateManyLevels updates a posterior with more weights than a dense covariance may have, by rows
// of a few known levels and of new levels.
func TestUpdateManyLevels(t *testing.T) {
	lik := GaussianNoise{Var: 0.5}
	for name, o := range map[string]mixedOptions{
		"one":     {rows: 14000, common: 2, levels: []int{5000}, sd: [][]float64{{0.8}}},
		"crossed": {rows: 14000, common: 2, levels: []int{5000, 40}, sd: [][]float64{{0.8}, {0.5}}},
	} {
		c := newMixedCase(t, lik, o, 5)
		few, more := c.withoutLevels(t, 0, 3)
		q := reloaded(t, few.fitOf(t, lik), Load)
		grown, err := q.WithLevels(0, make([]string, c.groups[0].Levels))
		if err != nil {
			t.Fatal(err)
		}
		var rows []Row
		for row := range few.part(0, 20) {
			r := Row{Val: slices.Clone(row.Val), Y: row.Y}
			for _, j := range row.Ind {
				if j >= endOf(few.groups[0]) {
					j += 3
				}
				r.Ind = append(r.Ind, j)
			}
			rows = append(rows, r)
		}
		yield := func(rows []Row) iter.Seq2[Row, error] {
			return func(yield func(Row, error) bool) {
				for _, r := range rows {
					if !yield(r, nil) {
						return
					}
				}
			}
		}
		up, err := grown.Update(t.Context(), yield(more))
		if err != nil {
			t.Fatal(err)
		}
		// the rows of new levels come last in the fit of all rows
		all := &mixedCase{x: NewSparse(up.Cols()), groups: c.groups}
		for row := range few.part(0, len(few.y)) {
			var ind []int
			for _, j := range row.Ind {
				if j >= endOf(few.groups[0]) {
					j += 3
				}
				ind = append(ind, j)
			}
			all.x.Append(ind, row.Val)
			all.y = append(all.y, row.Y)
		}
		for _, r := range more {
			all.x.Append(r.Ind, r.Val)
			all.y = append(all.y, r.Y)
		}
		want := all.fitOf(t, lik)
		if mean, most, sd := groupsApart(up, want); !(most <= 1e-7 && sd <= 1e-8) {
			t.Errorf("%s: means %v (at most %v), sds %v", name, mean, most, sd)
		}
		if k, w := up.Groups()[0].Known, want.Groups()[0].Known; k != w {
			t.Errorf("%s: %d levels have rows instead of %d", name, k, w)
		}
		twice, err := up.Update(t.Context(), yield(rows))
		if err != nil {
			t.Fatal(err)
		}
		if mean, _, _ := groupsApart(twice, up); mean == 0 {
			t.Errorf("%s: known levels have not moved", name)
		}
		down, err := twice.Remove(t.Context(), yield(append(rows, more...)))
		if err != nil {
			t.Fatal(err)
		}
		if mean, most, sd := groupsApart(down, grown); !(most <= 1e-7 && sd <= 1e-8) {
			t.Errorf("%s, removed: means %v (at most %v), sds %v", name, mean, most, sd)
		}
		if k, w := down.Groups()[0].Known, grown.Groups()[0].Known; k != w {
			t.Errorf("%s, removed: %d levels have rows instead of %d", name, k, w)
		}
		if _, err := grown.Remove(t.Context(), yield(more)); !errors.Is(err, ErrNotPosDef) {
			t.Errorf("%s: removing rows of new levels: %v", name, err)
		}
	}
}

// TestGroupStream compares streams that learn Σ with fits of all rows at once, for rows in random
// order and for rows whose levels come one after the other.
func TestGroupStream(t *testing.T) {
	for name, o := range streamedGroups {
		for _, lik := range testkit.Few([]Likelihood{GaussianNoise{Var: 0.5}, BernoulliLogit{}, Poisson{}}, 2) {
			what := fmt.Sprintf("%s, %T", name, lik)
			c := newMixedCase(t, lik, o, 3).free()
			if name == "many" {
				c = c.sorted()
			}
			s := c.stream(t, lik)
			if err := s.AddAll(t.Context(), c.part(0, 4000)); err != nil {
				t.Fatal(err)
			}
			sameWeights(t, what+", 4000 rows", testkit.Must(s.Posterior()), c.first(4000).fitOf(t, lik))
			if err := s.AddAll(t.Context(), c.part(4000, len(c.y))); err != nil {
				t.Fatal(err)
			}
			p, err := s.Posterior()
			if err != nil {
				t.Fatal(err)
			}
			want := c.fitOf(t, lik)
			limit, own := [3]float64{0.1, 1, 0.06}, 0.01
			if _, exact := lik.(GaussianNoise); exact {
				limit, own = [3]float64{1e-5, 1e-4, 1e-5}, 1e-5
			}
			mean, most, sd := groupsApart(p, want)
			if _, exact := lik.(GaussianNoise); !exact && components(t, want) != nil { // the stream does not integrate
				limit = [3]float64{0.1, 1, 0.1}
			}
			t.Logf("%s: means %.2g (at most %.2g), sds %.2g", what, mean, most, sd)
			if !(mean <= limit[0] && most <= limit[1] && sd <= limit[2]) || p.Len() != len(c.y) {
				t.Errorf("%s: %d rows, means %v (at most %v), sds %v", what, p.Len(), mean, most, sd)
			}
			for i, g := range want.Groups() {
				x := p.Groups()[i]
				for k, e := range g.Effects {
					f := x.Effects[k]
					wide := math.Log(f.Hi/f.Lo) / math.Log(e.Hi/e.Lo)
					t.Logf("%s: %s sd %.5f instead of %.5f, interval %.3f as wide", what, e.Name, f.SD,
						e.SD, wide)
					if !(math.Abs(f.SD/e.SD-1) <= own) || !(wide > 0.8 && wide < 1.1) {
						t.Errorf("%s: %+v instead of %+v", what, f, e)
					}
				}
				for k, r := range g.Corr {
					if f := x.Corr[k]; !(math.Abs(f.Value-r.Value) <= 2*own) {
						t.Errorf("%s: %+v instead of %+v", what, f, r)
					}
				}
				if x.Known != g.Known || !(math.Abs(x.Share-g.Share) <= own) &&
					!math.IsNaN(g.Share) {
					t.Errorf("%s: %d levels have rows instead of %d, share %v instead of %v", what, x.Known,
						g.Known, x.Share, g.Share)
				}
			}
		}
	}
}

// TestGroupStreamSame checks that a stream has the same bits for any number of cores, for rows in one
// piece or with posteriors in between, and after Save and Load at any time.
func TestGroupStreamSame(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, name := range []string{"slopes", "crossed"} {
		o := streamedGroups[name]
		o.rows = 8000
		c := newMixedCase(t, BernoulliLogit{}, o, 6).free()
		var want *GLMPosterior
		for _, cores := range []int{1, 2, 7} {
			runtime.GOMAXPROCS(cores)
			s := c.stream(t, BernoulliLogit{})
			for lo := 0; lo < o.rows; lo += 2100 {
				if err := s.AddAll(t.Context(), c.part(lo, min(lo+2100, o.rows))); err != nil {
					t.Fatal(err)
				}
				if cores == 1 {
					continue
				}
				again := reloaded(t, s, Load)
				p := testkit.Must(s.Posterior())
				if s = again; cores == 7 {
					sameWeights(t, fmt.Sprintf("%s, %d rows", name, s.Len()), testkit.Must(s.Posterior()), p)
				}
			}
			p := testkit.Must(s.Posterior())
			if want == nil {
				want = p
			}
			sameWeights(t, fmt.Sprintf("%s, %d cores", name, cores), p, want)
			sameWeights(t, name+", loaded", reloaded(t, p, Load), want)
		}
	}
}

// TestGroupStreamLate streams rows without levels before rows with levels. Σ is then 0 when the first
// rows are frozen, and must leave 0 later.
func TestGroupStreamLate(t *testing.T) {
	lik := BernoulliLogit{}
	c := newMixedCase(t, lik, streamedGroups["slopes"], 9).free()
	_, cols := c.x.Dims()
	all := &mixedCase{x: NewSparse(cols), groups: c.groups}
	for k, n := range []int{4500, len(c.y)} {
		for row := range c.part(0, n) {
			ind := row.Ind
			if k == 0 {
				ind = slices.DeleteFunc(slices.Clone(ind), func(j int) bool { return j >= c.common })
			}
			all.x.Append(ind, row.Val[:len(ind)])
			all.y = append(all.y, row.Y)
		}
	}
	s := all.stream(t, lik)
	if err := s.AddAll(t.Context(), all.part(0, 4500)); err != nil {
		t.Fatal(err)
	}
	if sd := testkit.Must(s.Posterior()).Groups()[0].Effects[0].SD; sd != 0 {
		t.Fatalf("without levels the standard deviation is %v", sd)
	}
	if err := s.AddAll(t.Context(), all.part(4500, len(all.y))); err != nil {
		t.Fatal(err)
	}
	p, want := testkit.Must(s.Posterior()), all.fitOf(t, lik)
	if mean, most, sd := groupsApart(p, want); !(mean <= 0.1 && most <= 1 && sd <= 0.05) {
		t.Errorf("means %v (at most %v), sds %v", mean, most, sd)
	}
	for k, e := range want.Groups()[0].Effects {
		if f := p.Groups()[0].Effects[k]; !(math.Abs(f.SD/e.SD-1) <= 0.03) {
			t.Errorf("%+v instead of %+v", f, e)
		}
	}
}

// TestGroupStreamCancel checks that a cancellation does not change the posterior.
func TestGroupStreamCancel(t *testing.T) {
	c := newMixedCase(t, BernoulliLogit{}, streamedGroups["many"], 7).free()
	s, plain := c.stream(t, BernoulliLogit{}), c.stream(t, BernoulliLogit{})
	ctx, cancel := context.WithCancel(t.Context())
	given := 0
	err := s.AddAll(ctx, func(yield func(Row, error) bool) {
		for row, err := range c.part(0, 6000) {
			if given == 4096 {
				cancel()
			}
			given++
			if !yield(row, err) {
				return
			}
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if err := s.AddAll(t.Context(), c.part(s.Len(), 6000)); err != nil {
		t.Fatal(err)
	}
	if err := plain.AddAll(t.Context(), c.part(0, 6000)); err != nil {
		t.Fatal(err)
	}
	sameWeights(t, "after a cancellation", testkit.Must(s.Posterior()), testkit.Must(plain.Posterior()))
}

// TestGroupStreamMistakes checks the errors of rows that do not fit, and that they leave the stream as
// it was.
func TestGroupStreamMistakes(t *testing.T) {
	o := streamedGroups["many"]
	o.rows = 5000
	c := newMixedCase(t, Poisson{}, o, 8).free()
	s, plain := c.stream(t, Poisson{}), c.stream(t, Poisson{})
	r := &c.groups[0]
	bad := Row{Ind: []int{r.First, r.First + 1}, Val: []float64{1, 1}, Y: 1}
	for _, e := range []struct {
		row  Row
		want error
	}{{bad, ErrParam}, {Row{Ind: []int{r.First}, Val: []float64{1}, Y: -1}, ErrLabel},
		{Row{Ind: []int{endOf(*r) + 1}, Val: []float64{1}, Y: 1}, ErrShape}} {
		if err := s.Add(e.row); !errors.Is(err, e.want) {
			t.Errorf("error %v", err)
		}
	}
	if err := s.AddAll(t.Context(), c.part(0, 4600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(Row{Ind: []int{0}, Val: []float64{1}, Y: 3, Offset: 1e6}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Posterior(); !errors.Is(err, ErrNotFinite) {
		t.Errorf("a posterior with a row of infinite mean: %v", err)
	}
	var first error
	for range 6 {
		for row := range c.part(4600, 5000) {
			if err := s.Add(row); err != nil && first == nil {
				first = err
			}
		}
	}
	if !errors.Is(first, ErrNotFinite) || !strings.Contains(first.Error(), "row 4603,") {
		t.Errorf("a row of infinite mean: %v", first)
	}
	if s.Len() != 7000 {
		t.Errorf("%d rows", s.Len())
	}
	if _, err := s.Posterior(); err != nil {
		t.Error(err)
	}
	if err := plain.AddAll(t.Context(), c.part(0, 5000)); err != nil {
		t.Fatal(err)
	}
	before := testkit.Must(plain.Posterior())
	if err := plain.RemoveAll(t.Context(), twiceRows(c.part(0, 5000))); !errors.Is(err, ErrNotPosDef) {
		t.Errorf("removing more rows than there are: %v", err)
	}
	sameWeights(t, "after a failed removal", testkit.Must(plain.Posterior()), before)
	if err := plain.RemoveAll(t.Context(), c.part(4000, 5000)); err != nil {
		t.Fatal(err)
	}
	p, want := testkit.Must(plain.Posterior()), c.first(4000).fitOf(t, Poisson{})
	if mean, most, sd := groupsApart(p, want); !(mean <= 0.1 && sd <= 0.06) {
		t.Errorf("after a removal: means %v (at most %v), sds %v", mean, most, sd)
	}
}

// TestGroupStreamTakesBack adds rows with large slopes, removes them again, and checks that the stream
// has the weights and the shares of variance that it had before.
func TestGroupStreamTakesBack(t *testing.T) {
	c := newMixedCase(t, BernoulliLogit{}, streamedGroups["slopes"], 3).free()
	s := c.stream(t, BernoulliLogit{})
	if err := s.AddAll(t.Context(), c.part(0, 4200)); err != nil {
		t.Fatal(err)
	}
	before := testkit.Must(s.Posterior())
	few := func(yield func(Row, error) bool) {
		for row, err := range c.part(4200, 4300) {
			row.Val = slices.Clone(row.Val)
			row.Val[len(row.Val)-1] *= 10
			if !yield(row, err) {
				return
			}
		}
	}
	if err := s.AddAll(t.Context(), few); err != nil {
		t.Fatal(err)
	}
	between := testkit.Must(s.Posterior())
	if err := s.RemoveAll(t.Context(), few); err != nil {
		t.Fatal(err)
	}
	after := testkit.Must(s.Posterior())
	if a, b := before.Groups()[0].Share, between.Groups()[0].Share; math.Abs(a-b) < 1e-3 {
		t.Fatalf("the rows change the share from %v to %v only", a, b)
	}
	if a, b := before.Groups()[0].Share, after.Groups()[0].Share; !(math.Abs(a-b) <= 1e-6) {
		t.Errorf("the share is %v instead of %v", b, a)
	}
	if mean, most, sd := groupsApart(after, before); !(most <= 1e-4 && sd <= 1e-4) {
		t.Errorf("means %v (at most %v), sds %v", mean, most, sd)
	}
}

// TestGroupStreamNoise learns the noise in streams, and compares them with GLM.Learn of all rows: for rows
// in random order, for rows whose levels come one after the other, after some rows were taken back, and
// after Save and Load.
func TestGroupStreamNoise(t *testing.T) {
	for name, o := range streamedGroups {
		c := newMixedCase(t, GaussianNoise{Var: 0.5}, o, 3).free()
		if name == "many" {
			c = c.sorted()
		}
		opt := c.options()
		opt.PriorSD, opt.Learn = 0, &LearnOptions{}
		_, cols := c.x.Dims()
		s, err := NewGLMStream(cols, GaussianNoise{}, opt)
		if err != nil {
			t.Fatal(err)
		}
		n, some := len(c.y), 10000
		fit := func(c *mixedCase) *GLMPosterior {
			t.Helper()
			p, _, err := testkit.Must(NewGLM(c.x, c.y, GaussianNoise{}, opt)).Fit(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		near := func(what string, p, want *GLMPosterior) {
			t.Helper()
			mean, most, sd := groupsApart(p, want)
			got, w := p.Learned().Params, want.Learned().Params
			noise := got[1].Value/w[1].Value - 1
			t.Logf("%s, %s: means %.2g (at most %.2g), sds %.2g, noise %.6g (relative error %.2g), prior sd "+
				"%.5g instead of %.5g", name, what, mean, most, sd, got[1].Value, noise, got[0].Value,
				w[0].Value)
			if !(most <= 3e-5 && sd <= 1e-5 && math.Abs(noise) <= 1e-5) || p.Len() != want.Len() {
				t.Errorf("%s, %s: %d rows, means %v (at most %v), sds %v, noise %v", name, what, p.Len(), mean,
					most, sd, noise)
			}
			if !(math.Abs(got[1].SD/w[1].SD-1) <= 0.01) || !(math.Abs(got[0].Value/w[0].Value-1) <= 0.01) {
				t.Errorf("%s, %s: %+v instead of %+v", name, what, got, w)
			}
			for i, g := range want.Groups() {
				for k, e := range g.Effects {
					f := p.Groups()[i].Effects[k]
					if !(math.Abs(f.SD/e.SD-1) <= 2e-5 && math.Abs(f.Lo/e.Lo-1) <= 1e-3 &&
						math.Abs(f.Hi/e.Hi-1) <= 1e-3) {
						t.Errorf("%s, %s: %+v instead of %+v", name, what, f, e)
					}
				}
			}
		}
		if err := s.AddAll(t.Context(), c.part(0, 4000)); err != nil {
			t.Fatal(err)
		}
		sameWeights(t, name+", 4000 rows", testkit.Must(s.Posterior()), fit(c.first(4000)))
		if err := s.AddAll(t.Context(), c.part(4000, n)); err != nil {
			t.Fatal(err)
		}
		p, want := testkit.Must(s.Posterior()), fit(c)
		near("all rows", p, want)
		sameWeights(t, name+", loaded", testkit.Must(reloaded(t, s, Load).Posterior()), p)
		sameWeights(t, name+", posterior loaded", reloaded(t, p, Load), p)
		if err := s.RemoveAll(t.Context(), c.part(some, n)); err != nil {
			t.Fatal(err)
		}
		near("rows taken back", testkit.Must(s.Posterior()), fit(c.first(some)))
	}
}

// TestGroupStreamNoiseOptions learns the noise at a fixed Σ, with options of the search, which a saved
// stream must keep, and checks the errors of options that streams do not support.
func TestGroupStreamNoiseOptions(t *testing.T) {
	o := streamedGroups["slopes"]
	o.rows = 6000
	c := newMixedCase(t, GaussianNoise{Var: 0.5}, o, 3)
	opt := c.options()
	opt.Learn = &LearnOptions{Fixed: []string{"GLM.PriorSD"},
		Prior:  map[string]Prior{"GaussianNoise.Var": {Mean: 1, SD: 0.02}},
		Bounds: map[string][2]float64{"GaussianNoise.Var": {0.1, 0.6}}}
	_, cols := c.x.Dims()
	s := testkit.Must(NewGLMStream(cols, GaussianNoise{}, opt))
	if err := s.AddAll(t.Context(), c.part(0, 5000)); err != nil {
		t.Fatal(err)
	}
	s = reloaded(t, s, Load)
	if err := s.AddAll(t.Context(), c.part(5000, o.rows)); err != nil {
		t.Fatal(err)
	}
	p := testkit.Must(s.Posterior())
	want, _, err := testkit.Must(NewGLM(c.x, c.y, GaussianNoise{}, opt)).Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if mean, most, sd := groupsApart(p, want); !(most <= 1e-5 && sd <= 1e-5) {
		t.Errorf("means %v (at most %v), sds %v", mean, most, sd)
	}
	got, w := p.Learned().Params, want.Learned().Params
	if x := got[1]; got[0].Value != 2 || x.Value != 0.6 || !x.AtBound || x.Prior != w[1].Prior {
		t.Errorf("%+v instead of %+v", got, w)
	}
	for _, e := range []struct {
		lik Likelihood
		set func(o *GLMOptions)
	}{
		{Poisson{}, func(o *GLMOptions) {}},
		{GaussianNoise{}, func(o *GLMOptions) { o.Groups = nil }},
		{GaussianNoise{}, func(o *GLMOptions) { o.Blocks = make([]int, cols) }},
		{GaussianNoise{}, func(o *GLMOptions) { o.Learn = &LearnOptions{Integrate: true} }},
		{GaussianNoise{}, func(o *GLMOptions) { o.Learn = &LearnOptions{Fixed: []string{"x"}} }},
	} {
		opt := *opt
		e.set(&opt)
		if _, err := NewGLMStream(cols, e.lik, &opt); !errors.Is(err, ErrParam) {
			t.Errorf("%T, %+v: %v", e.lik, opt.Learn, err)
		}
	}
}
