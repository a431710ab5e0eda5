package data

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// TestGroupRanks compares mean ranks with 1 + Σ_j P(u_j > u_i), and checks the table.
func TestGroupRanks(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 2))
	var b strings.Builder
	b.WriteString("y,x,g\n")
	for i := range 180 {
		x := 3 + rng.NormFloat64()
		fmt.Fprintf(&b, "%.3f,%.3f,g%02d\n", float64(i%12)/5+x*float64(i%5)/4+rng.NormFloat64(), x, i%12)
	}
	m, post := fitGroups(t, b.String(), "y ~ x + (1 + x | g)", true)
	all, err := m.GroupEffects(post)
	if err != nil {
		t.Fatal(err)
	}
	e := all[0]
	of := m.design.Terms[1]
	units := of.units()
	for j := range e.Effects {
		for i := range e.Levels {
			want := 1.0
			for k := range e.Levels {
				if k == i {
					continue
				}
				g := make([]float64, post.Dim())
				copy(g[of.at+k*of.q:], units[j])
				for c, u := range units[j] {
					g[of.at+i*of.q+c] = -u
				}
				mean, sd, err := post.Contrast(g)
				if err != nil {
					t.Fatal(err)
				}
				want += distuv.UnitNormal.CDF(mean / sd)
			}
			if got := e.Rank.At(i, j); !(math.Abs(got-want) < 0.2) {
				t.Errorf("effect %d of level %d has mean rank %v, want %v", j, i, got, want)
			}
			lo, hi := e.RankLo.At(i, j), e.RankHi.At(i, j)
			if !(lo >= 1 && lo <= want && want <= hi && hi <= 12 && hi-lo > 1) {
				t.Errorf("effect %d of level %d has rank %v in %v to %v", j, i, want, lo, hi)
			}
		}
	}
	text := e.String()
	if n := strings.Count(text, "\n"); n != 2*14+1 {
		t.Errorf("%d lines in\n%s", n, text)
	}
	last := math.Inf(1)
	for _, line := range strings.Split(text, "\n")[1:13] {
		var name string
		var mean float64
		if _, err := fmt.Sscan(line, &name, &mean); err != nil || mean > last {
			t.Errorf("%q is out of order: %v", line, err)
		}
		last = mean
	}
}

// TestGroupRanksSure checks the ranks of levels that differ by much, and of levels that do not
// differ.
func TestGroupRanksSure(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 2))
	for _, step := range []float64{0, 10} {
		var b strings.Builder
		b.WriteString("y,x,g\n")
		for i := range 48 {
			noise := float64(i/6%4) - 1.5 // the levels have the same mean
			fmt.Fprintf(&b, "%.3f,%.3f,g%d\n", step*float64(i/2%3)+noise, rng.NormFloat64(), i/2%3)
		}
		m, post := fitGroups(t, b.String(), "y ~ 1 + (1 + x | g)", true)
		all, err := m.GroupEffects(post)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			want := 2.0
			if step > 0 {
				want = float64(3 - i)
			}
			e := all[0]
			if x := []float64{e.Rank.At(i, 0), e.RankLo.At(i, 0), e.RankHi.At(i, 0)}; step > 0 &&
				(x[0] != want || x[1] != want || x[2] != want) || math.Abs(x[0]-want) > 0.2 {
				t.Errorf("with steps of %v, level %d has the ranks %v, want %v", step, i, x, want)
			}
		}
	}
}

// TestGroupRanksClasses checks that the effects on each class have ranks, in the order of their means
// if the levels differ by much.
func TestGroupRanksClasses(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 4))
	var b strings.Builder
	b.WriteString("y,g\n")
	for i := range 600 {
		class := i % 3 // level g0 has mostly a, g1 mostly b, and g2 mostly c
		if rng.Float64() < 0.2 {
			class = rng.IntN(3)
		}
		fmt.Fprintf(&b, "%c,g%d\n", 'a'+rune(class), i%3)
	}
	m, post := fitGroups(t, b.String(), "y ~ 1 + (1 | g)", false)
	all, err := m.GroupEffects(post)
	if err != nil {
		t.Fatal(err)
	}
	e := all[0]
	if names := e.ColumnNames(); len(names) != 3 || names[1] != "class=b · (Intercept)" {
		t.Fatalf("%q", names)
	}
	if edf := e.Effects[0].EDF; !(edf > 1 && edf < 6) { // 3 levels and 2 contrasts
		t.Errorf("%v degrees of freedom", edf)
	}
	for class := range 3 {
		if !(e.Rank.At(class, class) < 1.01) {
			t.Errorf("class %d has rank %v in its own level", class, e.Rank.At(class, class))
		}
	}
	if text := fmt.Sprint(e); !strings.Contains(text, "g class=c · (Intercept)") {
		t.Error(text)
	}
}
