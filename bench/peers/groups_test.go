package main

import (
	"context"
	"math"
	"strings"
	"testing"
)

// TestGroups checks that the fits of this library find the standard deviations with which the rows
// were generated, and the table.
func TestGroups(t *testing.T) {
	o, _, _ := testOptions(t)
	o.part = "groups"
	var rows []row
	for _, m := range mixedModels {
		m.rows, m.levels = 6000, 300
		x, y := m.generate()
		post, _, err := m.fit(context.Background(), x, y)
		if err != nil {
			t.Fatal(err)
		}
		g := post.Groups()[0]
		want := []float64{interceptSD, slopeSD}[:len(g.Effects)]
		if m.slope != (len(want) == 2) {
			t.Errorf("%s: %d effects", m.name(), len(want))
		}
		for j, sd := range want {
			if e := g.Effects[j]; !(math.Abs(e.SD-sd) < 0.2*sd) {
				t.Errorf("%s: %+v, want %v", m.name(), e, sd)
			}
		}
		if m.slope && !(math.Abs(g.Corr[0].Value-slopeCorr) < 0.25) {
			t.Errorf("%s: correlation %+v, want %v", m.name(), g.Corr[0], slopeCorr)
		}
		for _, method := range []string{"GLM", "lme4"} {
			r := o.newRow(m.name(), method, "")
			r.seconds, r.note = float64(len(rows)+1), "0.8, 0.4"
			rows = append(rows, r)
		}
		relate(rows[len(rows)-2:], "GLM")
	}
	table := groupsTable(rows)
	for _, want := range []string{
		"| logit, 6000 rows, intercepts of 300 levels | GLM | 1.000 | 1.0 | 0.8, 0.4 |\n",
		"|  | lme4 | 2.000 | 2.0 | 0.8, 0.4 |\n",
		"| real, 6000 rows, intercepts and slopes of 300 levels | GLM |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("there is no %q in\n%s", want, table)
		}
	}
}
