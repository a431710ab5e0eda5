package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
)

// An rCase is a formula with the predictions that R computes for ten rows.
type rCase struct {
	Formula, Likelihood, Outcome string
	Columns, Flags, Tags, Labels []string
	RCall                        string `json:"r_call"`
	Mean, SE                     json.RawMessage
	PosteriorMean                json.RawMessage `json:"posterior_mean"`
	Tolerance                    float64
}

// rows returns a number per row from a single number or a list.
func rows(t *testing.T, text json.RawMessage) (all [][]float64) {
	t.Helper()
	if len(text) == 0 {
		return nil
	}
	if json.Unmarshal(text, &all) == nil {
		return all
	}
	all = nil
	var one []float64
	if err := json.Unmarshal(text, &one); err != nil {
		t.Fatal(err)
	}
	for _, v := range one {
		all = append(all, []float64{v})
	}
	return all
}

// TestTruthFormulas fits 150 formulas and compares the predictions with R. A formula may be refused
// if the error names a limit.
func TestTruthFormulas(t *testing.T) {
	dir := filepath.Join(testkit.SharedData(t), "..", "truth", "formulas")
	cases, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(cases) < 100 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	if testkit.Longer(false, true) { // every tenth
		cases = slices.DeleteFunc(cases, func(path string) bool {
			return !strings.HasSuffix(path, "7.json")
		})
	}
	refused := 0 // by an error
	for _, path := range cases {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var c rCase
			if err := json.Unmarshal(text, &c); err != nil {
				t.Fatal(err)
			}
			own := t.TempDir()
			model := filepath.Join(own, "m.pgsvi")
			args := append([]string{"fit", "-formula", c.Formula, "-o", model}, c.Flags...)
			if len(c.Columns) > 0 {
				args = append(args, "-columns", write(t, own, "columns.txt",
					strings.Join(c.Columns, "\n")+"\n"))
			}
			status, _, stderr := run(t, append(args, filepath.Join(dir, name+".csv"))...)
			if status != 0 {
				refused++
				t.Logf("refused: %s %v\n%s", c.Formula, c.Tags, stderr)
				return
			}
			status, out, stderr := run(t, "predict", model, filepath.Join(dir, name+"_new.csv"))
			if status != 0 {
				t.Fatalf("predict: %s", stderr)
			}
			if worst, at := c.compare(t, records(t, out)); worst > 1 {
				t.Errorf("%s %v %s\n%s\nrow %d is %.3g tolerances off\n%s", c.Formula, c.Tags,
					c.Columns, c.RCall, at, worst, stderr)
			}
		})
	}
	if refused > 3 {
		t.Errorf("%d formulas are refused", refused)
	}
}

// compare returns the largest difference from R, in tolerances, and its row.
func (c *rCase) compare(t *testing.T, answers [][]string) (worst float64, at int) {
	t.Helper()
	mean, se, posterior := rows(t, c.Mean), rows(t, c.SE), rows(t, c.PosteriorMean)
	places := []int{1}
	if len(c.Labels) > 0 {
		places = nil
		for _, l := range c.Labels {
			places = append(places, slices.Index(answers[0], "P("+l+")"))
		}
	}
	for i := range mean {
		for j, k := range places {
			if k < 0 {
				return math.Inf(1), i
			}
			p, err := strconv.ParseFloat(answers[i+1][k], 64)
			if err != nil {
				return math.Inf(1), i
			}
			off := math.Abs(p - mean[i][j])
			if posterior != nil {
				off = min(off, math.Abs(p-posterior[i][j]))
			}
			limit := c.Tolerance * max(se[i][j], 2e-6*math.Abs(mean[i][j]))
			if len(c.Labels) > 0 {
				limit = max(limit, 0.003)
			}
			if c.Outcome == "ordinal" { // R plugs its estimates in, and has no posterior mean
				limit *= 1.5
			}
			if d := off / limit; d > worst || math.IsNaN(d) {
				worst, at = d, i
			}
		}
	}
	return worst, at
}
