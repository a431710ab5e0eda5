package main

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestGroupFlags checks the CSV file and the tables of -effects, and the scores of -loo-groups.
func TestGroupFlags(t *testing.T) {
	sleep := "../../examples/groups/sleep.csv"
	file := filepath.Join(t.TempDir(), "effects.csv")
	const formula = "reaction ~ days + (1 + days | subject)"
	status, out, stderr := run(t, "fit", "-formula", formula, "-effects", file, "-loo-groups", sleep)
	if status != 0 {
		t.Fatal(stderr)
	}
	if got := value(t, out, "loo[subject]"); !(got > -1000 && got < -850) ||
		!strings.Contains(out, "new levels of subject: elpd -") {
		t.Errorf("the score of new subjects is %v in\n%s", got, out)
	}
	text, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	rows, err := csv.NewReader(text).ReadAll()
	if err != nil || len(rows) != 1+2*18 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if head := strings.Join(rows[0], " "); head != "group level effect mean sd lo hi rank "+
		"rank_lo rank_hi" {
		t.Errorf("the columns are %s", head)
	}
	ranks := map[string]float64{}
	for _, row := range rows[1:] {
		var v [7]float64 // mean, sd, lo, hi, rank, rank_lo, rank_hi
		for i := range v {
			if v[i], err = strconv.ParseFloat(row[3+i], 64); err != nil {
				t.Fatal(err)
			}
		}
		ranks[row[2]] += v[4]
		if row[0] != "subject" || !(v[2] < v[0] && v[0] < v[3]) || !(v[5] <= v[4] && v[4] <= v[6]) ||
			!(v[1] > 0) {
			t.Errorf("%q", row)
		}
	}
	for effect, sum := range ranks {
		if !(math.Abs(sum-18*19/2) < 1e-6) {
			t.Errorf("the ranks of %s sum to %v", effect, sum)
		}
	}
	if status, out, _ := run(t, "fit", "-formula", formula, "-effects", "-", sleep); status != 0 ||
		!strings.Contains(out, "subject days") || !strings.Contains(out, "rank 1 has the largest") {
		t.Errorf("no tables in\n%s", out)
	}
	for _, name := range []string{"-loo-groups", "-effects=-"} {
		status, _, stderr := run(t, "fit", "-formula", "reaction ~ days", name, sleep)
		if status != 2 || !strings.Contains(stderr, "needs a group in the formula") {
			t.Errorf("%s without groups: %d %s", name, status, stderr)
		}
	}
	status, _, stderr = run(t, "fit", "-formula", formula, "-effects", sleep, sleep)
	if status != 2 || !strings.Contains(stderr, "-effects "+sleep+" is an input file") {
		t.Errorf("the table as output: %d %s", status, stderr)
	}
}
