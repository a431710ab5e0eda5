package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// fitGroups fits a formula to a table. If flat is set, it has no priors except on the fixed effects,
// where they are very wide, so the standard deviations are REML estimates.
func fitGroups(t *testing.T, table, formula string, flat bool) (*Model, *pgsvi.GLMPosterior) {
	t.Helper()
	m := mustModel(t, tableOf(t, table), formula)
	var opt *pgsvi.GLMOptions
	if flat {
		opt = &pgsvi.GLMOptions{PriorSD: 1e5, InterceptSD: 1e6,
			Learn: &pgsvi.LearnOptions{NoPrior: true}}
	}
	glm, err := m.GLM(nil, opt)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m, post
}

// TestGroupEffects compares the effects of the sleep study (Belenky et al. 2003) with lmer of lme4
// 1.1-31. Its ranef returns the means. The standard deviations are the square roots of the diagonal
// of the inverse of Henderson's equations, which include the uncertainty of the fixed effects.
func TestGroupEffects(t *testing.T) {
	t.Parallel()
	sleep, err := os.ReadFile("../examples/groups/sleep.csv")
	if err != nil {
		t.Fatal(err)
	}
	m, post := fitGroups(t, string(sleep), "reaction ~ days + (1 + days | subject)", true)
	if text := m.Summary(post).String(); strings.Contains(text, "edge") {
		t.Errorf("a note about parameters at their edge in\n%s", text)
	}
	all, err := m.GroupEffects(post)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d groups, error %v", len(all), err)
	}
	e := all[0]
	if e.Name != "subject" || e.Levels != 18 || len(e.LevelNames) != 18 || e.LevelNames[1] != "309" ||
		e.LevelNames[17] != "372" {
		t.Errorf("group %s of %d levels %q", e.Name, e.Levels, e.LevelNames)
	}
	near := func(what string, got, want, tol float64) {
		t.Helper()
		if !(math.Abs(got-want) <= tol*want) && !(math.Abs(got-want) <= -tol*want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	for j, want := range []struct {
		name            string
		sd, first, last float64 // standard deviation; means of levels 309 and 372
		posterior       float64
	}{
		{"(Intercept)", 24.7417527, -40.3982264, 12.3144845, 13.100538},
		{"days", 5.9221817, -8.6195934, 1.2838586, 2.6392691},
	} {
		if e.Effects[j].Name != want.name || !(e.Effects[j].Lo < want.sd && want.sd < e.Effects[j].Hi) {
			t.Errorf("effect %+v, want %s", e.Effects[j], want.name)
		}
		near(want.name+": sd", e.Effects[j].SD, want.sd, 1e-4)
		near(want.name+": mean of 309", e.Mean.At(1, j), want.first, 1e-3)
		near(want.name+": mean of 372", e.Mean.At(17, j), want.last, 1e-3)
		near(want.name+": sd of 309", e.SD.At(1, j), want.posterior, 1e-3)
	}
	near("correlation", e.Corr[0].Value, 0.065491, 5e-3)
	if !(e.Share > 0.5 && e.Share < 0.9) {
		t.Errorf("share %v", e.Share)
	}
}

// TestGroupEffectsPredict checks that the coefficients and the effects of all groups of a row add up
// to its prediction.
func TestGroupEffectsPredict(t *testing.T) {
	t.Parallel()
	for f, effects := range map[string]string{
		"y ~ day":                                    "",
		"y ~ day + (1 | subject)":                    "subject 12×1 s11",
		"y ~ day + (1 + day | subject)":              "subject 12×2 s11",
		"y ~ day + (day || subject)":                 "subject 12×2 s11",
		"y ~ day + (0 + day | subject)":              "subject 12×1 s11",
		"y ~ day + (1 | subject) + (1 + day | site)": "subject 12×1 s11; site 2×2 south",
		"y ~ day + (1 + day | site/subject)":         "site 2×2 south; site/subject 12×2 south/s11",
	} {
		m, post := fitGroups(t, visits(120, 12), f, false)
		all, err := m.GroupEffects(post)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		c := m.Summary(post).Coefficients
		const day = 4.
		want := c[0].Mean + day*c[1].Mean
		for _, e := range all {
			levels, q := e.Mean.Dims()
			last := e.LevelNames[levels-1]
			got = append(got, fmt.Sprintf("%s %d×%d %s", e.Name, levels, q, last))
			for j, effect := range e.Effects {
				u := e.Mean.At(levels-1, j)
				if effect.Name == "day" {
					u *= day
				}
				want += u
				sd := e.SD.At(levels-1, j)
				if most := max(2*effect.SD, effect.Hi); !(sd > 0 && sd < most) && !(sd == 0 && effect.SD == 0) {
					t.Errorf("%s: %s has posterior sd %v, and sd %v between levels", f, effect.Name, sd,
						effect.SD)
				}
			}
		}
		if s := strings.Join(got, "; "); s != effects {
			t.Errorf("%s: %s, want %s", f, s, effects)
		}
		p, err := m.Predictor(post)
		if err != nil {
			t.Fatal(err)
		}
		a, err := p.Predict(map[string]any{"day": day, "subject": "s11", "site": "south"})
		if err != nil {
			t.Fatal(err)
		}
		if !(math.Abs(a.Mean-want) < 1e-9) {
			t.Errorf("%s: prediction %v, effects add up to %v", f, a.Mean, want)
		}
	}
}

// TestGroupMany checks the intercept of a model with more levels than a full covariance allows. With
// k rows of each of G levels, its variance is (τ² + σ²/k)/G.
func TestGroupMany(t *testing.T) {
	t.Parallel()
	const levels, k = mostFull + 100, 2
	rng := rand.New(rand.NewPCG(3, 1))
	var b strings.Builder
	b.WriteString("y,g\n")
	for g := range levels {
		effect := 2 * rng.NormFloat64()
		for range k {
			fmt.Fprintf(&b, "%.3f,g%d\n", 5+effect+rng.NormFloat64(), g)
		}
	}
	m, post := fitGroups(t, b.String(), "y ~ 1 + (1 | g)", false)
	s := m.Summary(post)
	tau, sigma := s.Groups[0].SD, s.Residual.SD
	if !(math.Abs(tau-2) < 0.1) || !(math.Abs(sigma-1) < 0.05) ||
		!(s.Groups[0].Lo < tau && tau < s.Groups[0].Hi) {
		t.Errorf("standard deviations %+v and %+v, want 2 and 1", s.Groups[0], s.Residual)
	}
	want := math.Sqrt((tau*tau + sigma*sigma/k) / levels)
	if sd := s.Coefficients[0].SD; !(math.Abs(sd-want) < 1e-3*want) {
		t.Errorf("the intercept has sd %v, want %v", sd, want)
	}
	if p := m.ParamName("GLM.PriorSD"); strings.Contains(p, "[g]") {
		t.Errorf("the group is a block: %s", p)
	}
	all, err := m.GroupEffects(post)
	if err != nil || len(all) != 1 || all[0].Levels != levels || !(all[0].Share > 0.7) {
		t.Errorf("effects %v, error %v", len(all), err)
	}
}

// TestGroupsManyCrossed checks the intercept next to two factors that are too large for a full
// covariance. Its variance is at least τ²/G, summed over the factors with G levels, and a diagonal
// covariance alone gives a fifth of this standard deviation.
func TestGroupsManyCrossed(t *testing.T) {
	t.Parallel()
	const n, first, second = 50_000, 3600, 3300
	rng := rand.New(rand.NewPCG(5, 1))
	effects := make([]float64, first+second)
	for g := range effects {
		effects[g] = rng.NormFloat64()
	}
	var b strings.Builder
	b.WriteString("y,x,a,b\n")
	for range n {
		i, j, x := rng.IntN(first), rng.IntN(second), rng.NormFloat64()
		fmt.Fprintf(&b, "%.3f,%.3f,a%d,b%d\n", 5+effects[i]+effects[first+j]+x+rng.NormFloat64(), x, i, j)
	}
	m, post := fitGroups(t, b.String(), "y ~ x + (1 | a) + (1 | b)", false)
	if m.eliminates() {
		t.Fatal("the covariance is full")
	}
	s := m.Summary(post)
	want := math.Sqrt(s.Groups[0].SD*s.Groups[0].SD/first + s.Groups[1].SD*s.Groups[1].SD/second)
	if sd := s.Coefficients[0].SD; !(sd > want && sd < 1.05*want) {
		t.Errorf("the intercept has sd %v, want %v and little more", sd, want)
	}
	// The effects leave n − edf degrees of freedom for the slope.
	least := s.Residual.SD / math.Sqrt(n)
	if sd := s.Coefficients[1].SD; !(sd > 1.03*least && sd < 1.12*least) {
		t.Errorf("the slope has sd %v, want a few percent more than %v", sd, least)
	}
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		t.Fatal(err)
	}
	loaded, err := pgsvi.Load[*pgsvi.GLMPosterior](&file)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(loaded.SD(nil), post.SD(nil)) {
		t.Error("the standard deviations of the saved posterior differ")
	}
}

// TestGroupFarIntercept checks the notes for slopes of a column that is far from 0. The correlation of
// the effects is −1 in units of the table, but the data need both effects.
func TestGroupFarIntercept(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 1))
	var b strings.Builder
	b.WriteString("y,year,g\n")
	slope, intercept := make([]float64, 30), make([]float64, 30)
	for g := range slope {
		slope[g], intercept[g] = rng.NormFloat64(), 8*rng.NormFloat64()
	}
	for i := range 600 {
		g, year := i%30, rng.IntN(21)-10
		fmt.Fprintf(&b, "%.3f,%d,g%d\n", intercept[g]+slope[g]*float64(year)+rng.NormFloat64(),
			2000+year, g)
	}
	m, post := fitGroups(t, b.String(), "y ~ year + (1 + year | g)", false)
	s := m.Summary(post)
	if r := s.Groups[1].Corr[0]; !(r < -0.999) {
		t.Errorf("correlation %v at the year 0", r)
	}
	text := s.String()
	if strings.Contains(text, "edge") || !strings.Contains(text, "center the column: (1 + year | g)") {
		t.Errorf("wrong notes in\n%s", text)
	}
}

// TestGroupNotes checks the notes for a group with one level, and for a standard deviation of 0, which
// the table prints without digits of rounding.
func TestGroupNotes(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(10, 1))
	var b strings.Builder
	b.WriteString("y,one,g\n")
	for i := range 200 {
		fmt.Fprintf(&b, "%v,only,g%d\n", i/20%2, rng.IntN(20))
	}
	m, post := fitGroups(t, b.String(), "y ~ 1 + (1 | one) + (1 | g)", true)
	s := m.Summary(post)
	text := s.String()
	for _, want := range []string{"one group does not determine a standard deviation: (1 | one)",
		"at its edge, because the data do not need it: sd of (1 | g)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	all := []Component{{Name: "tiny", SD: 1e-6, Lo: 5e-7, Hi: 2, Levels: 9}}
	all[0].setEdge(&pgsvi.GroupSummary{Effects: []pgsvi.GroupEffect{{SD: 1e-6, Lo: 5e-7, Hi: 2}}}, 0)
	if text := (&Summary{Groups: all}).componentsText(); !strings.Contains(text, "edge, because") ||
		!strings.Contains(text, "tiny                  0     0      2") {
		t.Errorf("a standard deviation that prints as 0 has\n%s", text)
	}
	_, post = fitGroups(t, "y,x,g\n0,0,a\n1.6,1,b\n3,2,a\n4.6,3,b\n", "y ~ x + (1 | g)", false)
	if g := post.Groups()[0].Effects[0]; !(g.SD < 0.01*g.Hi && g.Lo > 0.1*g.SD) {
		t.Errorf("the interval of two levels is not wide: %+v", g)
	}
	if text := post.Summary().String(); strings.Contains(text, "edge") {
		t.Errorf("a note because of a wide interval in\n%s", text)
	}
	s.Groups[1].SD = 1e-10
	if text := s.String(); strings.Contains(text, "1e-10") {
		t.Errorf("a standard deviation of 0 has digits in\n%s", text)
	}
}

// TestGroupEdge checks that the standard deviation of the intercepts has an interval if the slopes do
// not differ between levels.
func TestGroupEdge(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 1))
	var b strings.Builder
	b.WriteString("y,x,g\n")
	for i := range 600 {
		fmt.Fprintf(&b, "%.3f,%.3f,g%d\n", float64(i%30)/5+rng.NormFloat64(), 3+rng.NormFloat64(), i%30)
	}
	for _, flat := range []bool{false, true} {
		m, post := fitGroups(t, b.String(), "y ~ x + (1 + x | g)", flat)
		g := m.Summary(post).Groups
		if text := m.Summary(post).String(); flat && !strings.Contains(text, "at its edge") {
			t.Errorf("no note about the slopes in\n%s", text)
		}
		if g[1].SD > 0.1 {
			t.Fatalf("the slopes have sd %v; want a value near 0", g[1].SD)
		}
		if !(g[0].Lo > 0.5 && g[0].Lo < g[0].SD && g[0].SD < g[0].Hi && g[0].Hi < 6) {
			t.Errorf("flat %v: intercepts %+v", flat, g[0])
		}
		if !(g[1].Lo <= g[1].SD && g[1].SD <= g[1].Hi && g[1].Hi < 1) {
			t.Errorf("flat %v: slopes %+v", flat, g[1])
		}
	}
}

// TestGroupEffectsErrors checks the errors of GroupEffects.
func TestGroupEffectsErrors(t *testing.T) {
	t.Parallel()
	m, _ := fitGroups(t, visits(120, 12), "y ~ day + (1 | subject)", false)
	_, other := fitGroups(t, visits(120, 12), "y ~ day + (1 | site)", false)
	if _, err := m.GroupEffects(other); !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("another posterior: %v", err)
	}
}
