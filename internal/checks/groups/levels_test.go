package groups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	. "github.com/pgsvi/pgsvi"
)

// withoutLevels splits c: the case without the last n levels with rows of group k, and the rows of
// these levels, with the columns of c.
func (c *mixedCase) withoutLevels(t *testing.T, k, n int) (few *mixedCase, more []Row) {
	t.Helper()
	r := &c.groups[k]
	q := effectsOf(*r)
	_, cols := c.x.Dims()
	from, gone := endOf(*r)-(n+1)*q, n*q // the last level is empty
	few = &mixedCase{x: NewSparse(cols - gone), common: c.common}
	for i, of := range c.groups {
		switch {
		case i == k:
			of.Levels -= n
		case of.First > from:
			of.First -= gone
		}
		few.groups = append(few.groups, of)
	}
	for i, y := range c.y {
		ind, val := c.x.Row(i)
		row := Row{Y: y}
		var left []int
		for a, j := range ind {
			row.Ind, row.Val = append(row.Ind, int(j)), append(row.Val, val[a])
			switch j := int(j); {
			case j < from:
				left = append(left, j)
			case j >= endOf(*r):
				left = append(left, j-gone)
			}
		}
		if len(left) < len(ind) {
			more = append(more, row)
			continue
		}
		if err := few.x.Append(left, val); err != nil {
			t.Fatal(err)
		}
		few.y = append(few.y, y)
	}
	return few, more
}

// TestWithLevels checks that WithLevels and Update, with rows of new levels, have the result of a fit
// to all rows with all levels. Posteriors with and without their rows must have it, and saved ones.
func TestWithLevels(t *testing.T) {
	ctx := context.Background()
	for name, o := range map[string]mixedOptions{
		"slopes":  {rows: 200, common: 2, levels: []int{12}, sd: [][]float64{{0.7, 0.4}}, rho: 0.4},
		"crossed": {rows: 200, common: 2, levels: []int{9, 7}, sd: [][]float64{{0.7}, {0.5}}},
	} {
		for _, lik := range []Likelihood{GaussianNoise{Var: 0.5}, BernoulliLogit{}} {
			for k := range o.levels {
				for _, n := range []int{1, 4} { // four levels less change the order of crossed groups
					what := fmt.Sprintf("%s, %T, %d levels of group %d", name, lik, n, k)
					c := newMixedCase(t, lik, o, 4)
					few, rows := c.withoutLevels(t, k, n)
					_, _, want, _ := fittedGroups(t, c, lik)
					_, _, q, _ := fittedGroups(t, few, lik)
					names := make([]string, c.groups[k].Levels*effectsOf(c.groups[k]))
					for j := range names {
						names[j] = fmt.Sprint("w", j)
					}
					grown, err := q.WithLevels(k, names)
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					if g := grown.Groups()[k]; g.Known != few.groups[k].Levels-1 && n == 1 ||
						g.Levels != c.groups[k].Levels || grown.Names()[c.groups[k].First] != "w0" {
						t.Errorf("%s: %d levels, %d known, names %q", what, g.Levels, g.Known, grown.Names())
					}
					last, sd := endOf(c.groups[k])-1, c.groups[k].SD
					if got := grown.SD(nil)[last]; !(math.Abs(got-sd[len(sd)-1]) < 1e-9) {
						t.Errorf("%s: a new effect has sd %v, want %v", what, got, sd)
					}
					var file bytes.Buffer
					if err := grown.Save(&file); err != nil {
						t.Fatal(err)
					}
					loaded, err := Load[*GLMPosterior](&file)
					if err != nil {
						t.Fatal(err)
					}
					for i, from := range []*GLMPosterior{grown, loaded} {
						if _, exact := lik.(GaussianNoise); i > 0 && !exact {
							continue // the sites of the rows do not move
						}
						got, err := from.Update(ctx, func(yield func(Row, error) bool) {
							for _, row := range rows {
								if !yield(row, nil) {
									return
								}
							}
						})
						if err != nil {
							t.Fatal(err)
						}
						m, v, sd := got.Mean(nil), want.Mean(nil), want.SD(nil)
						for j, s := range got.SD(nil) {
							if !(math.Abs(m[j]-v[j]) < 1e-4) || !(math.Abs(s-sd[j]) < 1e-4) {
								t.Fatalf("%s: weight %d is %v ± %v, want %v ± %v", what, j, m[j], s, v[j], sd[j])
							}
						}
					}
				}
			}
		}
	}
}

// TestWithLevelsIntegrated checks that new levels change no prediction of an integrated posterior, and
// that wrong names and groups are errors.
func TestWithLevelsIntegrated(t *testing.T) {
	c := newOneGroup(BernoulliLogit{}, 8, 1, 3)
	q, _ := c.fit(t, BernoulliLogit{}, Group{}, nil)
	if len(components(t, q)) == 0 {
		t.Fatal("the posterior is not integrated")
	}
	g := q.Groups()[0]
	grown, err := q.WithLevels(0, make([]string, g.Levels+3))
	if err != nil {
		t.Fatal(err)
	}
	const first = 1
	a, b, m, v := q.SD(nil), grown.SD(nil), q.Mean(nil), grown.Mean(nil)
	for j := range a {
		to := j
		if j >= first+g.Levels {
			to += 3
		}
		if !(math.Abs(a[j]-b[to]) < 1e-12) || m[j] != v[to] {
			t.Errorf("weight %d is %v ± %v, and %v ± %v with new levels", j, m[j], a[j], v[to], b[to])
		}
	}
	if sd := b[first+g.Levels+2]; !(sd > g.Effects[0].SD && sd < 2*g.Effects[0].SD) {
		t.Errorf("a new level has sd %v, with %+v", sd, g.Effects[0])
	}
	for _, err := range []error{
		func() error { _, err := q.WithLevels(1, nil); return err }(),
		func() error { _, err := q.WithLevels(0, []string{"a"}); return err }(),
	} {
		if !errors.Is(err, ErrParam) {
			t.Errorf("error %v", err)
		}
	}
}
