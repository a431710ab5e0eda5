package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFitGroups fits mixed models, predicts a known and a new level, and compares the parameters in
// the last line with lmer; see groups.R in the test data of package data.
func TestFitGroups(t *testing.T) {
	folder := "../../data/testdata/groups/"
	b, err := os.ReadFile(folder + "fits.json")
	if err != nil {
		t.Fatal(err)
	}
	var fits []struct {
		Formula string
		SD      map[string]float64
	}
	if err := json.Unmarshal(b, &fits); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	model := filepath.Join(dir, "m.pgsvi")
	rows := write(t, dir, "new.csv", "x,g\n5,g3\n5,g99\n")
	if len(fits) != 4 {
		t.Errorf("%d fits", len(fits))
	}
	for _, want := range fits {
		status, stdout, stderr := run(t, "fit", "-formula", want.Formula, "-no-prior", "-prior-sd",
			"1000", "-intercept-sd", "10000", "-o", model, folder+"slopes.csv")
		if status != 0 {
			t.Errorf("%s: %s", want.Formula, stderr)
			continue
		}
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		last := lines[len(lines)-1]
		for name, param := range map[string]string{"g (Intercept)": "sd[g]", "g x": "sd[g:x]",
			"h (Intercept)": "sd[h]", "g corr": "corr[g:x]"} {
			sd, there := want.SD[name]
			if got := strings.Contains(last, " "+param+"="); got != there {
				t.Errorf("%s: %s in %s is %t, want %t", want.Formula, param, last, got, there)
			} else if got && !(math.Abs(value(t, last, param)-sd) <= 2e-3*sd) {
				t.Errorf("%s: %s is %v, want %v", want.Formula, param, value(t, last, param), sd)
			}
		}
		if strings.Contains(want.Formula, "h)") {
			continue // new.csv has no h
		}
		status, stdout, stderr = run(t, "predict", model, rows)
		if status != 0 || !strings.Contains(stdout, `g=""g99"" is new`) {
			t.Errorf("%s: %s%s", want.Formula, stdout, stderr)
		}
	}
}
