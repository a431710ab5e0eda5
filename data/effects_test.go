package data

import (
	"math"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// TestMarginalEffects compares effects of columns with effects of features if they must agree, and
// checks that a curve or a logarithm has one row, per unit of its column.
func TestMarginalEffects(t *testing.T) {
	table := tableOf(t, orders(300, 21))
	effects := func(formula string, columns ...Column) (*Model, *pgsvi.GLMPosterior,
		map[string]pgsvi.Effect, []string) {
		t.Helper()
		m := mustModel(t, table, formula, columns...)
		post, _ := mustFit(t, m, nil)
		e, err := m.MarginalEffects(post)
		if err != nil {
			t.Fatal(err)
		}
		all, names := map[string]pgsvi.Effect{}, []string{}
		for _, r := range e.Rows {
			all[r.Name] = r
			names = append(names, r.Name)
		}
		return m, post, all, names
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 1e-5*math.Abs(want)) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	m, post, all, names := effects("bought ~ age + plan + (1 | shop)", yes)
	if !slices.Equal(names, []string{"age", "plan=basic", "plan=free"}) &&
		!slices.Equal(names, []string{"age", "plan=free", "plan=gold"}) &&
		!slices.Equal(names, []string{"age", "plan=basic", "plan=gold"}) {
		t.Errorf("%q", names)
	}
	features, err := post.MarginalEffects(m.X, nil)
	if err != nil {
		t.Fatal(err)
	}
	age := m.enc.column("age")
	for _, r := range features.Rows {
		if r.Name == "age" {
			near("age", all["age"].Mean, r.Mean/age.SD)
			// The effect of a feature ignores that the variance of the linear predictor changes.
			if q := all["age"].SD * age.SD / r.SD; math.Abs(q-1) > 0.02 {
				t.Errorf("sd of age: %v times that of the feature", q)
			}
		} else if w, ok := all[r.Name]; ok {
			near(r.Name, w.Mean, r.Mean)
			near("sd of "+r.Name, w.SD, r.SD)
			near("interval of "+r.Name, w.Hi-w.Lo, r.Hi-r.Lo)
		}
	}
	// With an identity link, the mean of the derivatives is the derivative of the terms.
	m, post, all, names = effects("spent ~ log(days) + poly(age, 2) + s(hour) + shelf:age")
	if !slices.Equal(names, []string{"days", "age", "hour", "shelf"}) {
		t.Errorf("%q", names)
	}
	c := m.Summary(post).Coefficients
	inverse, shelf, n := 0., 0., 0.
	for _, r := range orderRows(300, 21) {
		days, _, err := m.enc.column("days").number(&cell{s: r[8]})
		if err != nil {
			t.Fatal(err)
		}
		x, _, _ := m.enc.column("age").number(&cell{s: r[4]})
		inverse, shelf, n = inverse+1/days, shelf+x, n+1
	}
	for _, q := range c {
		switch q.Name {
		case "log(days)":
			near("log(days)", all["days"].Mean, q.Mean*inverse/n)
			near("sd of log(days)", all["days"].SD, q.SD*inverse/n)
			near("interval of log(days)", all["days"].Hi-all["days"].Lo, (q.Hi-q.Lo)*inverse/n)
		case "shelf:age":
			near("shelf:age", all["shelf"].Mean, q.Mean*shelf/n)
		}
	}
}
