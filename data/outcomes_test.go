package data

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// ratings returns a table of x and ratings, as words and as whole numbers from −1 to 1.
func ratings(n int) string {
	rng := rand.New(rand.NewPCG(6, 6))
	var b strings.Builder
	b.WriteString("x,word,number\n")
	for range n {
		x, u := rng.NormFloat64(), rng.Float64()
		z, level := x+math.Log(u/(1-u)), 0
		for _, cut := range []float64{-1, 1} {
			if z > cut {
				level++
			}
		}
		fmt.Fprintf(&b, "%.4f,%s,%d\n", x, []string{"low", "medium", "high"}[level], level-1)
	}
	return b.String()
}

// TestOrdered checks that ordered levels, words or numbers, are fitted in order with one
// probability per level, and that a saved predictor keeps them.
func TestOrdered(t *testing.T) {
	table := tableOf(t, ratings(300))
	words := mustModel(t, table, "word ~ x", Outcome("word").Ordered("low", "medium", "high"))
	numbers := mustModel(t, table, "number ~ x", Outcome("number").Ordered())
	if s := words.String(); !strings.Contains(s, `3 ordered levels, "low" < "medium" < "high"`) {
		t.Error(s)
	}
	post, p := mustFit(t, words, nil)
	_, q := mustFit(t, numbers, pgsvi.Ordinal{})
	lik, ok := likelihoodOf(post).(pgsvi.Ordinal)
	if !ok || len(lik.Cuts) != 2 || !(lik.Cuts[0] < -0.7 && lik.Cuts[1] > 0.7) {
		t.Errorf("%v: the true cut points are -1 and 1", likelihoodOf(post))
	}
	for x, want := range map[float64]string{-4: "low", 0: "medium", 4: "high"} {
		a, err := p.Predict(map[string]any{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		b, err := q.Predict(map[string]any{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.
		for j, v := range a.Probs {
			sum += v
			if math.Abs(v-b.Probs[j]) > 1e-6 {
				t.Errorf("x = %v: %v for words, %v for numbers", x, a.Probs, b.Probs)
			}
		}
		if a.Label != want || math.Abs(sum-1) > 1e-12 || !(a.Lo < a.Mean && a.Mean < a.Hi) {
			t.Errorf("x = %v: %v, probabilities %v, want %s", x, a, a.Probs, want)
		}
	}
	loaded := reloaded(t, p)
	var out strings.Builder
	if _, _, scores, err := loaded.ScoreCSV(&out, table, 0.9); err != nil ||
		!strings.HasPrefix(out.String(), "row,class,P(low),P(medium),P(high),note\n") {
		t.Errorf("%v, %v\n%.200s", err, scores, out.String())
	}
}

// TestOrderedMistakes checks that an order that is unknown or contradicts the rows is an error.
func TestOrderedMistakes(t *testing.T) {
	table := tableOf(t, ratings(50))
	for _, c := range []struct {
		formula, want string
		outcome       Column
		lik           pgsvi.Likelihood
	}{
		{"word ~ x", "Ordered does not list \"high\"", Outcome("word").Ordered("low", "medium"), nil},
		{"word ~ x", `no row has the level "top"`,
			Outcome("word").Ordered("low", "medium", "high", "top"), nil},
		{"word ~ x", "the order of", Outcome("word").Ordered(), nil},
		{"word ~ x", `the level "low" twice`, Outcome("word").Ordered("low", "low", "medium",
			"high"), nil},
		{"word ~ x", `Outcome("word").Ordered("low", "high")`, Outcome("word"), pgsvi.Ordinal{}},
		{"number ~ x", "Ordinal{} for ratings", Outcome("number"), nil},
		{"number ~ x", "has 3 ordered levels", Outcome("number").Ordered(), pgsvi.Poisson{}},
		{"number ~ x", "leave Cuts empty", Outcome("number").Ordered(),
			pgsvi.Ordinal{Cuts: []float64{0}}},
		{"x ~ number", "want at most 50 ordered levels",
			Outcome("x").Ordered(strings.Split(strings.Repeat("a,", 51), ",")...), nil},
	} {
		m, err := table.Model(c.formula, c.outcome)
		if err == nil {
			_, err = m.GLM(c.lik, nil)
		}
		if c.formula == "x ~ number" && err != nil {
			continue // which of its faults comes first does not matter
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %v: %v, want %s", c.formula, c.outcome, err, c.want)
		}
	}
}

// TestTransformed checks that log(y) and sqrt(y) are fitted like a transformed column, and that y
// is predicted in its own unit.
func TestTransformed(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	var b strings.Builder
	b.WriteString("x,y,ly,ry\n")
	for range 200 {
		x := rng.NormFloat64()
		ly := 2 + 0.3*x + 0.2*rng.NormFloat64()
		y := math.Exp(ly)
		fmt.Fprintf(&b, "%v,%v,%v,%v\n", x, y, ly, math.Sqrt(y))
	}
	table := tableOf(t, b.String())
	row := map[string]any{"x": 0.7}
	answer := func(formula string) *Answer {
		t.Helper()
		_, p := mustFit(t, mustModel(t, table, formula), nil)
		p = reloaded(t, p)
		a, err := p.Predict(row)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 2e-3*math.Abs(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	a, by := answer("log(y) ~ x"), answer("ly ~ x")
	const z = 1.6448536269514722
	variance := math.Pow((by.Hi-by.Lo)/2/z, 2)
	near("mean of exp", a.Mean, math.Exp(by.Mean+variance/2))
	near("lower end of exp", a.Lo, math.Exp(by.Lo))
	near("upper end of exp", a.Hi, math.Exp(by.Hi))
	a, by = answer("sqrt(y) ~ x"), answer("ry ~ x")
	variance = math.Pow((by.Hi-by.Lo)/2/z, 2)
	near("mean of the square", a.Mean, by.Mean*by.Mean+variance)
	near("lower end of the square", a.Lo, by.Lo*by.Lo)
	near("upper end of the square", a.Hi, by.Hi*by.Hi)
	for text, want := range map[string]string{
		"log(x) ~ y":  "its logarithm needs a number above 0",
		"sqrt(x) ~ y": "its square root needs a number of at least 0",
	} {
		m, err := table.Model(text)
		if err == nil {
			_, err = m.GLM(nil, nil)
		}
		if !errors.Is(err, pgsvi.ErrLabel) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := mustModel(t, table, "log(y) ~ x").GLM(pgsvi.StudentT{}, nil); err == nil ||
		!strings.Contains(err.Error(), "which needs GaussianNoise") {
		t.Error(err)
	}
	// The density of y is the density of its root u, divided by 2u.
	_, p := mustFit(t, mustModel(t, table, "sqrt(y) ~ x"), nil)
	_, q := mustFit(t, mustModel(t, table, "ry ~ x"), nil)
	var want []float64
	for a, err := range q.Table(table, 0.9) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, a.LogProb-math.Log(2*a.Outcome))
	}
	for a, err := range p.Table(table, 0.9) {
		if err != nil {
			t.Fatal(err)
		}
		if d := a.LogProb - want[a.Row]; !(math.Abs(d) < 1e-6) {
			t.Fatalf("row %d: log density %v, want %v", a.Row, a.LogProb, want[a.Row])
		}
	}
}

// TestConstantOutcomes checks that equal outcomes are fitted if the model can learn from them, and
// refused otherwise.
func TestConstantOutcomes(t *testing.T) {
	rows := func(head, row string, n int) *Table {
		var b strings.Builder
		b.WriteString(head + "\n")
		for i := range n {
			b.WriteString(fmt.Sprintf(row, i) + "\n")
		}
		return tableOf(t, b.String())
	}
	events := "x,t,e\n"
	for i := range 40 {
		events += fmt.Sprintf("%d,5,%d\n", i, i%2)
	}
	for name, c := range map[string]struct {
		table   *Table
		formula string
		lik     pgsvi.Likelihood
	}{
		"equal counts":               {rows("x,y", "%d,3", 40), "y ~ x", pgsvi.Poisson{}},
		"counts of 0":                {rows("x,y", "%d,0", 40), "y ~ x", pgsvi.Poisson{}},
		"no event in 50 rows":        {rows("x,y", "%d,0", 50), "y ~ x", pgsvi.BernoulliLogit{}},
		"always no":                  {rows("x,y", "%d,no", 50), "y ~ x", nil},
		"equal successes":            {rows("x,y,n", "%d,3,5", 20), "y / n ~ x", nil},
		"no success":                 {rows("x,y,n", "%d,0,5", 20), "y / n ~ x", nil},
		"durations, some censored":   {tableOf(t, events), "survival(t, e) ~ x", nil},
		"equal exponential":          {rows("x,y", "%d,2.5", 20), "y ~ x", pgsvi.Exponential{}},
		"counts of 0 with exposure":  {rows("x,y,d", "%d,0,2", 20), "y ~ x + exposure(d)", nil},
		"0 and 1 as counts":          {rows("x,y", "%[1]d,1\n%[1]d,0", 20), "y ~ x", pgsvi.Poisson{}},
		"0 and 1 with exposure":      {rows("x,y,d", "%[1]d,1,2\n0,0,2", 20), "y ~ x + exposure(d)", nil},
		"0 and 1, negative binomial": {rows("x,y", "%[1]d,1\n%[1]d,0", 20), "y ~ x", pgsvi.NegativeBinomial{}},
	} {
		m, err := c.table.Model(c.formula)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m, err = m.For(c.lik); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, p := mustFit(t, m, c.lik)
		row := map[string]any{"x": 3}
		if strings.Contains(c.formula, "exposure") {
			row["d"] = 2
		}
		if a, err := p.Predict(row); err != nil || math.IsNaN(a.Mean+a.Lo+a.Hi) {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	for name, c := range map[string]struct {
		table   *Table
		formula string
		lik     pgsvi.Likelihood
	}{
		"equal numbers":   {rows("x,y", "%d,2.5", 20), "y ~ x", nil},
		"equal sizes":     {rows("x,y", "%d,2.5", 20), "y ~ x", pgsvi.Gamma{}},
		"equal durations": {rows("x,y", "%d,2.5", 20), "y ~ x", pgsvi.Weibull{}},
		"one class":       {rows("x,y", "%d,abc", 20), "y ~ x", nil},
	} {
		m, err := c.table.Model(c.formula)
		if err == nil {
			_, err = m.GLM(c.lik, nil)
		}
		if !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), "nothing to learn") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLargeOutcomes checks that the error about outcomes whose squares overflow names line, column
// and value.
func TestLargeOutcomes(t *testing.T) {
	table := tableOf(t, "x,y\n1,3.5\n2,7\n3,-1e308\n4,1.1e308\n5,2\n6,9\n")
	m := mustModel(t, table, "y ~ x")
	for _, lik := range []pgsvi.Likelihood{nil, pgsvi.GaussianNoise{}, pgsvi.StudentT{},
		pgsvi.Laplace{}} {
		_, err := m.GLM(lik, nil)
		if !errors.Is(err, pgsvi.ErrLabel) ||
			!strings.Contains(err.Error(), `line 4, column "y": y = -1e+308 is too large`) ||
			strings.Contains(err.Error(), "InterceptSD") {
			t.Errorf("%T: %v", lik, err)
		}
	}
}
