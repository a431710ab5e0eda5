package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// patients returns a table of durations, some of them right-censored, with their times and events.
func patients(n int, seed uint64) (text string, times, events []float64) {
	rng := rand.New(rand.NewPCG(seed, 6))
	var b strings.Builder
	b.WriteString("dose,sex,days,died\n")
	for range n {
		dose, sex := math.Round(100*rng.Float64())/10, rng.IntN(2)
		t := math.Exp(3-0.2*dose+0.4*float64(sex)) * math.Sqrt(rng.ExpFloat64())
		end := 3 + 20*rng.Float64()
		event := 1.
		if t > end {
			t, event = end, 0
		}
		t = math.Round(1e3*t)/1e3 + 1e-3
		times, events = append(times, t), append(events, event)
		fmt.Fprintf(&b, "%v,%s,%v,%v\n", dose, []string{"f", "m"}[sex], t, event)
	}
	return b.String(), times, events
}

// TestModelSurvival compares the outcomes, fits and predictions of censored durations with those of
// pgsvi.Survival.
func TestModelSurvival(t *testing.T) {
	text, times, events := patients(testkit.Longer(80, 40), 1)
	m := mustModel(t, tableOf(t, text), "survival(days, died) ~ dose + sex")
	y, err := pgsvi.Survival(times, events)
	if err != nil || !slices.Equal(m.Y, y) {
		t.Fatalf("outcomes %v, want %v, %v", m.Y, y, err)
	}
	if !strings.Contains(m.String(), "event, observed in") ||
		!strings.Contains(m.String(), "days until died by dose and sex") {
		t.Errorf("%v", m)
	}
	if lik, _, err := m.Options(nil, nil); err != nil || lik != (pgsvi.Weibull{}) {
		t.Errorf("the likelihood is %v, %v", lik, err)
	}
	for _, lik := range []pgsvi.Likelihood{nil, pgsvi.LogNormal{}} {
		post, p := mustFit(t, m, lik)
		var file bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		read, err := LoadPredictor(&file)
		if err != nil {
			t.Fatal(err)
		}
		want := post.At(m.X).LogProb(nil, y)
		for a, err := range read.Table(tableOf(t, reversed(text)), 0.9) {
			if err != nil || a.Outcome != y[a.Row] || !(math.Abs(a.LogProb-want[a.Row]) < 1e-11) {
				t.Fatalf("row %d: %v and %v, want %v and %v, %v", a.Row, a.Outcome, a.LogProb,
					y[a.Row],
					want[a.Row], err)
			}
		}
		own, err := post.At(m.X).Scores(y)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := read.Score(tableOf(t, text)); err != nil || s.String() != own.String() {
			t.Errorf("%v\nwant %v, %v", s, own, err)
		}
		more, times, events := patients(20, 2)
		next, err := p.Update(context.Background(), tableOf(t, more))
		if err != nil {
			t.Fatal(err)
		}
		both, err := post.Update(context.Background(), patientRows(t, m, more, times, events))
		if err != nil {
			t.Fatal(err)
		}
		if a, b := next.Posterior().(*pgsvi.GLMPosterior).Mean(nil),
			both.Mean(nil); !slices.Equal(a, b) {
			t.Errorf("means %v after an update, want %v", a, b)
		}
	}
	if a, err := mustPredictor(t, m).Predict(map[string]any{"dose": 2, "sex": "m",
		"days": 5}); err != nil || !math.IsNaN(a.Outcome) {
		t.Errorf("an outcome that may be censored: %v, %v", a, err)
	}
	if _, err := mustPredictor(t, m).Update(context.Background(),
		tableOf(t, "dose,sex,days\n1,m,4\n")); !errors.Is(err, pgsvi.ErrShape) ||
		!strings.Contains(err.Error(), `no column "died"`) {
		t.Errorf("an update without events: %v", err)
	}
}

func mustPredictor(t *testing.T, m *Model) *Predictor {
	_, p := mustFit(t, m, nil)
	return p
}

// patientRows returns the rows of a table of patients as the model encodes them.
func patientRows(t *testing.T, m *Model, text string, times,
	events []float64) func(func(pgsvi.Row, error) bool) {
	t.Helper()
	y, err := pgsvi.Survival(times, events)
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.enc.data(tableOf(t, text), m.design)
	if err != nil {
		t.Fatal(err)
	}
	return pgsvi.Rows(d.X, y)
}

// TestSurvivalTexts checks events that are true and false, a formula that a program builds, and a
// Gaussian process of durations.
func TestSurvivalTexts(t *testing.T) {
	text, _, _ := patients(40, 3)
	m := mustModel(t, tableOf(t, text), "survival(days, died) ~ dose")
	words := strings.NewReplacer(",1\n", ",TRUE\n", ",0\n", ",False\n").Replace(text)
	built, err := tableOf(t, words).ModelOf(&formula.Formula{Outcome: "days", Event: "died",
		Terms: []formula.Term{formula.Col("dose")}},
		Event("died").MissingAre("unknown"), Outcome("days").Drop())
	if err != nil || !slices.Equal(built.Y, m.Y) {
		t.Fatalf("outcomes %v, want %v, %v", built, m.Y, err)
	}
	declared, err := ReadColumns(strings.NewReader(Event("died").Drop().String()))
	if err != nil || len(declared) != 1 || declared[0].String() != `data.Event("died").Drop()` {
		t.Errorf("%v, %v", declared, err)
	}
	g, err := m.FitGP(context.Background(), pgsvi.SquaredExp{}, nil, nil, nil)
	if err != nil || likelihoodOf(g.Posterior) != (pgsvi.Weibull{}) {
		t.Errorf("%v, %v", g, err)
	}
}

// TestOutcomeErrors checks the errors about unsuitable outcomes.
func TestOutcomeErrors(t *testing.T) {
	const head = "x,t,e\n1,5,1\n2,6,0\n3,2,1\n"
	for name, c := range map[string]struct {
		text, formula string
		lik           pgsvi.Likelihood
		columns       []Column
		is            error
		want          string
	}{
		"event 2": {head + "4,3,2\n", "survival(t, e) ~ x", nil, nil, pgsvi.ErrLabel,
			`line 5, column "e": the event is "2"; use 1 or yes`},
		"event text": {head + "4,3,maybe\n", "survival(t, e) ~ x", nil, nil, pgsvi.ErrLabel,
			`line 5, column "e": the event is "maybe"`},
		"no event": {head + "4,3,\n", "survival(t, e) ~ x", nil, nil, pgsvi.ErrParam,
			`1 of 4 values is missing, the first in line 5; use Event("e").Drop()`},
		"no time": {head + "4,,1\n", "survival(t, e) ~ x", nil, nil, pgsvi.ErrParam,
			`1 of 4 values is missing, the first in line 5; use Outcome("t")`},
		"time 0": {head + "4,0,1\n", "survival(t, e) ~ x", nil, nil, pgsvi.ErrLabel,
			`line 5, column "t": the time is 0; times must be above 0`},
		"time -1": {head + "4,-1,0\n", "survival(t, e) ~ x", nil, nil, pgsvi.ErrLabel,
			`line 5, column "t": the time is -1`},
		"two labels": {"x,t,e\n1,5,1\n2,6,0\n3,5,1\n", "survival(t, e) ~ x", pgsvi.Poisson{}, nil,
			pgsvi.ErrParam,
			`Poisson does not support the durations "t", which may be censored; use Weibull{} or LogNormal{}`},
		"labels": {head, "survival(t, e) ~ x", nil, []Column{Outcome("t").Classes()},
			pgsvi.ErrParam,
			`column "t" is declared to have labels by Outcome("t").Classes(), but the formula reads it as a duration`},
		"another kind": {head, "survival(t, e) ~ x", nil, []Column{Weight("e")}, pgsvi.ErrParam,
			`Weight("e") is among the columns, but the formula has no weight(e)`},
		"negative": {head + "4,-1,0\n", "t ~ x", pgsvi.LogNormal{}, nil, pgsvi.ErrLabel,
			`line 5, column "t": the duration is -1, but LogNormal needs a number above 0; if some durations are censored, write survival(t, event) ~ …`},
		"texts": {head, "e ~ x", pgsvi.Weibull{}, []Column{Outcome("e").Positive("1")},
			pgsvi.ErrLabel, `Weibull needs durations, but the outcome "e" has the labels "0", "1"`},
		"no trials": {head, "t ~ x", pgsvi.BetaBinomial{}, nil, pgsvi.ErrParam,
			"write t / trials ~ …"},
		"trials, labels": {head, "e ~ x", pgsvi.BetaBinomial{},
			[]Column{Outcome("e").Positive("1")},
			pgsvi.ErrLabel, `BetaBinomial needs numbers of successes, but the outcome "e" has the labels`},
		"many trials": {head + "4,2000000,1\n", "e / t ~ x", pgsvi.BetaBinomial{}, nil,
			pgsvi.ErrLabel, `line 5, column "e": 2e+06 trials`},
	} {
		m, err := tableOf(t, c.text).Model(c.formula, c.columns...)
		if err == nil {
			_, err = m.GLM(c.lik, nil)
		}
		if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
	if _, err := tableOf(t, head).Encoder(Outcome("x"), Event("e"), Event("t")); err == nil ||
		!strings.Contains(err.Error(), `there are two columns of events, this column and "e"`) {
		t.Errorf("two events: %v", err)
	}
	text, _, _ := patients(30, 4)
	m := mustModel(t, tableOf(t, strings.NewReplacer(",1\n", ",0\n").Replace(text)),
		"survival(days, died) ~ dose")
	if !strings.Contains(m.String(), "no event was observed") {
		t.Errorf("no event: %v", m)
	}
}

// TestModelSuccesses compares the beta-binomial model of successes in trials with the model of
// pgsvi.Successes.
func TestModelSuccesses(t *testing.T) {
	n := testkit.Longer(100, 30)
	table := tableOf(t, orders(n, 9))
	m := mustModel(t, table, "wins / tries ~ plan + age")
	lik := pgsvi.BetaBinomial{Precision: 3}
	one, err := m.For(lik)
	if err != nil {
		t.Fatal(err)
	}
	var wins, tries []float64
	for _, f := range orderRows(n, 9) {
		var n, k float64
		fmt.Sscan(f[9], &n)
		fmt.Sscan(f[10], &k)
		wins, tries = append(wins, k), append(tries, n)
	}
	y, err := pgsvi.Successes(wins, tries)
	if err != nil || !slices.Equal(one.Y, y) || !slices.Equal(one.Trials, tries) ||
		one.Weights != nil || one.Labels != nil {
		t.Fatalf("outcomes %v, want %v, %v", one.Y, y, err)
	}
	if again, err := one.For(lik); again != one || err != nil {
		t.Errorf("another model of the same likelihood: %v", err)
	}
	if two, err := one.For(nil); err != nil || !slices.Equal(two.Y, m.Y) ||
		!slices.Equal(two.Weights, m.Weights) {
		t.Errorf("back to one outcome for each half: %v", err)
	}
	for _, c := range []struct {
		m   *Model
		lik pgsvi.Likelihood
	}{{m, lik}, {one, nil}, {one, pgsvi.BernoulliProbit{}}} {
		if _, _, err := c.m.Options(c.lik, nil); c.lik != nil &&
			(!errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), "Model.For")) {
			t.Errorf("%v for other rows: %v", c.lik, err)
		}
	}
	post, p := mustFit(t, m, lik)
	_, opt, err := one.Options(lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	hand, err := pgsvi.NewGLM(one.X, y, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := hand.Fit(context.Background(), &pgsvi.Solver{Goal: 1e-6})
	if err != nil || !slices.Equal(post.Mean(nil), want.Mean(nil)) {
		t.Errorf("means %v, want %v, %v", post.Mean(nil), want.Mean(nil), err)
	}
	logp := post.At(one.X).LogProb(nil, y)
	for a, err := range p.Table(table, 0.9) {
		if err != nil || a.Outcome != wins[a.Row]/tries[a.Row] ||
			!(math.Abs(a.LogProb-logp[a.Row]) < 1e-11) || !(a.Lo < a.Mean && a.Mean < a.Hi) {
			t.Fatalf("row %d: %v, %v and %v, want %v, %v", a.Row, a, a.Outcome, a.LogProb,
				logp[a.Row], err)
		}
	}
	own, err := post.At(one.X).Scores(y)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := p.Score(table); err != nil || s.String() != own.String() {
		t.Errorf("%v\nwant %v, %v", s, own, err)
	}
	next, err := p.Update(context.Background(), table)
	if err != nil {
		t.Fatal(err)
	}
	both, err := post.Update(context.Background(), pgsvi.Rows(one.X, y))
	if err != nil || !slices.Equal(next.Posterior().(*pgsvi.GLMPosterior).Mean(nil),
		both.Mean(nil)) {
		t.Errorf("another mean after an update: %v", err)
	}
	if _, err := p.Update(context.Background(),
		tableOf(t, "plan,age,wins\nbasic,40,1\n")); !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("an update without trials: %v", err)
	}
	if _, err := m.Predictor(post); err != nil {
		t.Error(err)
	}
}
