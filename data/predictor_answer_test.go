package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// TestAnswerIntervals checks that the credible interval of the mean lies in the prediction
// interval, and equals the interval of the linear predictor if the link is the identity.
func TestAnswerIntervals(t *testing.T) {
	m := mustModel(t, tableOf(t, orders(200, 3)), "spent ~ age")
	post, p := mustFit(t, m, nil)
	a, err := p.Predict(map[string]any{"age": 40})
	if err != nil {
		t.Fatal(err)
	}
	if !(a.Lo < a.MeanLo && a.MeanLo < a.Mean && a.Mean < a.MeanHi && a.MeanHi < a.Hi) {
		t.Errorf("%+v", a)
	}
	x := pgsvi.NewSparse(len(m.Names))
	age := m.enc.column("age")
	if err := x.Append([]int{0}, []float64{(40 - age.Shift) / age.Scale}); err != nil {
		t.Fatal(err)
	}
	_, v := post.At(x).Latent(nil, nil)
	if want := 2 * 1.6448536269514722 * math.Sqrt(v[0]); math.Abs(a.MeanHi-a.MeanLo-want) > 1e-9 {
		t.Errorf("width %v of the interval of the mean, want %v", a.MeanHi-a.MeanLo, want)
	}
	_, p = mustFit(t, mustModel(t, tableOf(t, orders(200, 3)), "bought ~ age", yes), nil)
	if a, err = p.Predict(map[string]any{"age": 40}); err != nil || a.MeanLo != a.Lo ||
		a.MeanHi != a.Hi {
		t.Errorf("%+v %v", a, err)
	}
}

// TestAnswerJSON checks that answers with and without an outcome are restored from JSON.
func TestAnswerJSON(t *testing.T) {
	table := tableOf(t, orders(60, 3))
	_, p := mustFit(t, mustModel(t, table, "bought ~ age + plan", yes), nil)
	for a, err := range p.Table(table, 0.9) {
		if err != nil {
			t.Fatal(err)
		}
		if a.Row%2 == 1 {
			a.Outcome, a.LogProb = math.NaN(), math.NaN()
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "outcome") != (a.Row%2 == 0) {
			t.Errorf("%s", text)
		}
		var b Answer
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatal(err)
		}
		a.latent, a.trials = latent{}, 0
		if fmt.Sprintf("%+v", *a) != fmt.Sprintf("%+v", b) {
			t.Errorf("%+v read as %+v", *a, b)
		}
	}
}

// TestPredictAll checks that each row, as JSON or as a map, has an answer or an error, and that
// unknown fields of JSON are notes.
func TestPredictAll(t *testing.T) {
	table := tableOf(t, orders(60, 3))
	_, p := mustFit(t, mustModel(t, table, "bought ~ age + plan", yes), nil)
	text := `[{"age": 30, "plan": "gold", "id": 7}, {"age": "x", "plan": "gold"}, {"plan": "free",
		"age": 50}]`
	answers, errs, err := p.PredictAll([]byte(text))
	if err != nil || len(answers) != 3 || len(errs) != 3 {
		t.Fatal(answers, errs, err)
	}
	if answers[1] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "row 1: ") ||
		errs[0] != nil || errs[2] != nil || answers[2].Row != 2 {
		t.Errorf("%v %v", answers, errs)
	}
	if n := answers[0].Notes; len(n) != 1 || !strings.Contains(n[0], `no column "id"`) {
		t.Errorf("notes %q", n)
	}
	maps, errs, err := p.PredictAll([]map[string]any{{"age": 30, "plan": "gold"}, {"agee": 3}})
	if err != nil || errs[0] != nil || !errors.Is(errs[1], pgsvi.ErrParam) ||
		maps[0].Mean != answers[0].Mean {
		t.Errorf("%v %v %v", maps, errs, err)
	}
	for _, rows := range []any{nil, 3, []byte(`{"age": 3}`), json.RawMessage(`[]`)} {
		if _, _, err := p.PredictAll(rows); !errors.Is(err, pgsvi.ErrShape) {
			t.Errorf("%v: %v", rows, err)
		}
	}
}

// TestSurvival compares survival probabilities with the formula of the Weibull distribution, and
// checks that they are NaN for other likelihoods.
func TestSurvival(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	var b strings.Builder
	b.WriteString("t,e\n")
	for range 4000 {
		life, end := 3*math.Pow(rng.ExpFloat64(), 1/1.5), 6*rng.Float64()
		fmt.Fprintf(&b, "%.5f,%d\n", max(1e-4, min(life, end)), b2i(life < end))
	}
	_, p := mustFit(t, mustModel(t, tableOf(t, b.String()), "survival(t, e) ~ 1"), nil)
	a, err := p.Predict(map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []float64{0.5, 2, 4} {
		want := math.Exp(-math.Pow(at/3, 1.5))
		if got := a.Survival(at); math.Abs(got-want) > 0.03 {
			t.Errorf("survival to %v: %v, want %v", at, got, want)
		}
	}
	if !math.IsNaN(a.Survival(0)) {
		t.Error("survival to 0")
	}
	_, p = mustFit(t, mustModel(t, tableOf(t, orders(60, 3)), "spent ~ 1"), nil)
	if a, err = p.Predict(map[string]any{}); err != nil || !math.IsNaN(a.Survival(1)) {
		t.Errorf("%v %v", a.Survival(1), err)
	}
}
