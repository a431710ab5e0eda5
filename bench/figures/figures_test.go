package main

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// readTable reads a CSV file that a figure wrote and checks its header.
func readTable(t *testing.T, file string, header ...string) [][]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 2 || !slices.Equal(rows[0], header) {
		t.Fatalf("%d rows with header %v, want %v", len(rows), rows[0], header)
	}
	return slices.DeleteFunc(rows[1:],
		func(r []string) bool { return slices.Contains(references, r[1]) })
}

// references lists the rows of a table that are not runs.
var references = []string{startName, optimumName, frequencies}

func parse(t *testing.T, field string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(field, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// drawn checks that the picture exists.
func drawn(t *testing.T, file string) {
	t.Helper()
	if info, err := os.Stat(file); err != nil || info.Size() < 10000 {
		t.Errorf("%s: %v", file, err)
	}
}

func tiny(t *testing.T, figure int, methods ...string) *options {
	return &options{figure: figure, out: t.TempDir(), quick: true, passes: 1, seeds: 1, draws: 200,
		methods: methods, topics: []int{10}, testdata: "../../testdata"}
}

func TestFigure1(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	o := tiny(t, 1)
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	rows := readTable(t, filepath.Join(o.out, "figure1.csv"), "method", "step", "seed",
		"passes_1pct", "passes_0p1pct", "status", "passes_change", "excess_change")
	if len(rows) != 4+3*5 {
		t.Errorf("%d rows, want 19", len(rows))
	}
	for _, r := range rows {
		if one, tenth := parse(t, r[3]), parse(t, r[4]); one > tenth {
			t.Errorf("%v is within 0.1%% before it is within 1%%", r)
		}
		if r[0] == "PG" && r[1] == "1" && r[5] != converged {
			t.Errorf("%v has not converged in ten passes", r)
		}
	}
	drawn(t, filepath.Join(o.out, "figure1.png"))
}

func TestJudge(t *testing.T) {
	inf := math.Inf(1)
	curve := func(v ...float64) []float64 { // 20 passes, with the last value repeated
		for len(v) < 20 {
			v = append(v, v[len(v)-1])
		}
		return v
	}
	for _, c := range []struct {
		name   string
		curve  []float64
		failed bool
		want   outcome
	}{
		{"both", curve(1100, 105, 100.5), false, outcome{[2]float64{2, 3}, converged, 1, 1000}},
		{"only 1%", curve(1101, 105), false, outcome{[2]float64{2, inf}, notReached, 1, 1001}},
		{"leaves and comes back", curve(100.5, 200, 105, 100.5), false,
			outcome{[2]float64{3, 4}, converged, 5, 0.5}},
		{"leaves", curve(100.5, 105), false, outcome{[2]float64{1, inf}, left, 3, 5}},
		{"arrives at the very end", append(curve(200)[:19], 100), false,
			outcome{[2]float64{inf, inf}, left, 2, 100}},
		{"ends above the start", curve(100, 2000), false,
			outcome{[2]float64{inf, inf}, diverged, inf, inf}},
		{"below the optimum", curve(1000, -3e16), false,
			outcome{[2]float64{inf, inf}, diverged, inf, inf}},
		{"fails", []float64{100}, true, outcome{[2]float64{inf, inf}, diverged, inf, inf}},
	} {
		if got := judge(c.curve, 1100, 100, c.failed); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

var header2 = []string{"dataset", "method", "variant", "seed", "pass", "neg_elbo", "logloss_bits",
	"seconds"}

func TestFigure2(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	o := tiny(t, 2)
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	rows := readTable(t, filepath.Join(o.out, "figure2.csv"), header2...)
	if len(rows) != 12 {
		t.Errorf("%d rows, want 12", len(rows))
	}
	drawn(t, filepath.Join(o.out, "figure2-ionosphere.png"))
	for _, r := range rows {
		if elbo, bits := parse(t, r[5]), parse(t, r[6]); r[4] != "1" || elbo < 89.2656 ||
			!(bits > 0.3 && bits < 2) {
			t.Errorf("%v is out of range", r)
		}
	}
	drawn(t, filepath.Join(o.out, "figure2.png"))
}

// TestReference checks that the default reaches the reference optimum and its test log loss on both
// data sets, and that PG-SVI as published comes close on ionosphere.
func TestReference(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	o, rows := tiny(t, 2, "PG-SVI", byDefault), 3
	o.quick, o.passes = false, 20
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	want := map[string][2]float64{"ionosphere": {89.26565163, 0.41769},
		"sonar": {156.21421987, 0.93448}}
	checks := 0
	for _, r := range readTable(t, filepath.Join(o.out, "figure2.csv"), header2...) {
		elbo, bits := parse(t, r[5]), parse(t, r[6])
		switch w := want[r[0]]; {
		case r[1] == byDefault && r[4] == "20":
			checks++
			if math.Abs(elbo-w[0]) > 1e-6 || math.Abs(bits-w[1]) > 1e-4 {
				t.Errorf("%v: want %v", r, w)
			}
		case r[0] == "ionosphere" && r[1] == "PG-SVI" && r[4] == "10":
			checks++
			if math.Abs(elbo/90.0-1) > 0.03 {
				t.Errorf("%v: want 90.0 within 3%%", r)
			}
		}
	}
	if checks != rows {
		t.Errorf("%d of %d rows are there", checks, rows)
	}
}

// TestResume checks that the runs in a table are not repeated, that other runs are added, and that
// the table of another figure is an error.
func TestResume(t *testing.T) {
	o := tiny(t, 2, byDefault)
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(o.out, "figure2.csv")
	first := readTable(t, file, header2...)[0]
	first[7] = "12345" // no run takes this time
	const start, optimum = "ionosphere,start,library,1,0,1000,NaN,NaN\n",
		"ionosphere,optimum,library,1,0,90,NaN,NaN\n"
	if err := os.WriteFile(file,
		[]byte(strings.Join(header2, ",")+"\n"+start+optimum+strings.Join(first, ",")+"\n"),
		0o666); err != nil {
		t.Fatal(err)
	}
	o.resume, o.methods = true, []string{byDefault, "PG-SVI"}
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	rows := readTable(t, file, header2...)
	if len(rows) != 2 || !slices.Equal(rows[0], first) || rows[1][1] != "PG-SVI" {
		t.Errorf("resumed table: %v", rows)
	}
	o.resume, o.draw, o.seeds = false, true, 5
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(file); err != nil || !slices.Equal(before, after) {
		t.Errorf("-draw changes the table (%v)", err)
	}
	o.resume, o.draw, o.figure = true, false, 1
	if err := os.Rename(file, filepath.Join(o.out, "figure1.csv")); err != nil {
		t.Fatal(err)
	}
	if err := o.run(context.Background(), io.Discard); err == nil {
		t.Error("figure 1 resumes the table of figure 2")
	}
}

// TestTable checks that damaged tables, and tables with another number of passes, are errors.
func TestTable(t *testing.T) {
	good := "ionosphere,default,library,1,1,90,0.4,0.1\n"
	testkit.NotShort(t)
	for name, rows := range map[string]string{
		"good":             good,
		"ends in a row":    strings.TrimSuffix(good, "\n"),
		"other passes":     strings.Replace(good, ",1,1,", ",1,2,", 1),
		"no pass":          strings.Replace(good, ",1,1,", ",1,x,", 1),
		"infinite":         strings.Replace(good, "90", "-Inf", 1),
		"negative seconds": strings.Replace(good, "0.1", "-0.1", 1),
		"short":            "ionosphere,default\n",
	} {
		o := tiny(t, 2, byDefault)
		o.resume = true
		file := filepath.Join(o.out, "figure2.csv")
		if err := os.WriteFile(file, []byte(strings.Join(header2, ",")+"\n"+rows),
			0o666); err != nil {
			t.Fatal(err)
		}
		if err := o.run(context.Background(), io.Discard); (err == nil) != (name == "good") ||
			err != nil && !strings.Contains(err.Error(), "figure2.csv") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFailedRun checks that a run that fails has a row without numbers, and counts as infinitely
// bad in medians.
func TestFailedRun(t *testing.T) {
	o := tiny(t, 2)
	table, err := o.results("figure2.csv", 4, header2...)
	if err != nil {
		t.Fatal(err)
	}
	var all runs
	for seed := range 3 {
		run, err := table.samples(context.Background(), io.Discard,
			[]string{"d", "m", "v", strconv.Itoa(seed)}, 2, func(add func(sample)) (int, error) {
				if seed == 0 {
					return 0, errors.New("fails in its first pass")
				}
				add(sample{1, 0.5, 100, 1})
				if seed == 1 {
					return 1, errors.New("fails in its second pass")
				}
				add(sample{2, 1, 50, 0.5})
				return 2, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, run)
	}
	rows := readTable(t, filepath.Join(o.out, "figure2.csv"), header2...)
	if len(rows) != 5 || rows[0][4] != "1" || rows[0][5] != "NaN" || rows[2][4] != "2" ||
		rows[2][5] != "NaN" {
		t.Errorf("table: %v", rows)
	}
	inf := math.Inf(1)
	if all.median(1).loss != 100 || all.median(2).loss != inf || all.last() != 2 ||
		all.passesTo(200) != inf || all[2:].passesTo(60) != 2 || all[2:].passesTo(100) != 1 {
		t.Errorf("medians %v and %v, last %d, passes %v", all.median(1), all.median(2), all.last(),
			all.passesTo(200))
	}
}

// TestChoose checks that unknown names are errors in every figure.
func TestChoose(t *testing.T) {
	for figure := 1; figure <= 3; figure++ {
		o := tiny(t, figure, "PG-SVI", "nonsense")
		if err := o.run(context.Background(), io.Discard); err == nil ||
			!strings.Contains(err.Error(), "nonsense") {
			t.Errorf("method of figure %d: %v", figure, err)
		}
		o = tiny(t, figure)
		o.sets = []string{"usps3v5"} // needs data
		if err := o.run(context.Background(), io.Discard); err == nil ||
			!strings.Contains(err.Error(), "usps3v5") {
			t.Errorf("data set of figure %d: %v", figure, err)
		}
	}
}

var header3 = []string{"corpus", "method", "topics", "seed", "pass", "seconds", "heldout_nats"}

// TestFigure3 checks that every method predicts better than word frequencies, except the settings
// of the paper, and that training takes time.
func TestFigure3(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; TestUndisturbed runs one of its methods")
	}
	t.Parallel()
	o := tiny(t, 3)
	o.passes = 2
	var stdout strings.Builder
	if err := o.run(context.Background(), &stdout); err != nil {
		t.Fatal(err)
	}
	if out := stdout.String(); !strings.Contains(out, "synthetic") ||
		!strings.Contains(out, "mean field") {
		t.Errorf("printed:\n%s", out)
	}
	corpora, err := o.corpora(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	rows := readTable(t, filepath.Join(o.out, "figure3.csv"), header3...)
	if len(rows) != 6*2 {
		t.Errorf("%d rows, want 12", len(rows))
	}
	var before float64
	for i, r := range rows {
		seconds, nats := parse(t, r[5]), parse(t, r[6])
		better := nats < corpora[0].unigram-0.05
		if r[0] != "synthetic" || r[2] != "10" || r[3] != "1" || r[4] != strconv.Itoa(1+i%2) ||
			better != (r[1] != "PG-SVI (paper)") {
			t.Errorf("%v, by frequencies alone %v", r, corpora[0].unigram)
		}
		if seconds <= 0 || r[4] == "2" && seconds <= before {
			t.Errorf("%v after %v s in pass 1", r, before)
		}
		before = seconds
	}
	drawn(t, filepath.Join(o.out, "figure3.png"))
}

// TestUndisturbed checks that evaluations during a run do not change its score, and that another
// seed does.
func TestUndisturbed(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	o := tiny(t, 3, "PG-SVI")
	o.passes, o.seeds = 2, 2
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	corpora, err := o.corpora(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	model, err := pgsvi.NewCTM(corpora[0].train, 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, res, err := model.Fit(context.Background(),
		&pgsvi.Solver{MaxPasses: 2, EvalEvery: -1, Src: rand.NewPCG(1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	want, err := heldOut(model, res.Stepper, corpora[0].test, 200)
	if err != nil {
		t.Fatal(err)
	}
	rows := readTable(t, filepath.Join(o.out, "figure3.csv"), header3...)
	if len(rows) != 4 || rows[1][6] != number(want) || rows[3][6] == number(want) {
		t.Errorf("%v: want %v after pass 2 of seed 1 alone", rows, want)
	}
}

// TestSecondsTo checks that a run counts from its first good evaluation.
func TestSecondsTo(t *testing.T) {
	e := &eStep{runs: runs{{{1, 10, 9, 0}, {2, 20, 8, 0}}, {{1, 11, 8.5, 0}, {2, 21, 7, 0}},
		{{1, 12, 9, 0}}}}
	for _, c := range []struct{ nats, want float64 }{{9, 11}, {8, 21}, {7, math.Inf(1)},
		{math.Inf(1), math.Inf(1)}} {
		if got := e.secondsTo(c.nats); got != c.want {
			t.Errorf("%v s to %v nats, want %v", got, c.nats, c.want)
		}
	}
}

func TestCorpora(t *testing.T) {
	for _, c := range []struct {
		data string
		sets []string
		want string // empty means an error
	}{
		{"", nil, "synthetic"},
		{"", []string{"ap"}, ""},
		{t.TempDir(), []string{"synthetic"}, "synthetic"},
		{t.TempDir(), nil, ""}, // the file does not exist
	} {
		o := tiny(t, 3)
		o.data, o.sets = c.data, c.sets
		got, err := o.corpora(io.Discard)
		if (err != nil) != (c.want == "") ||
			err == nil && (len(got) != 1 || got[0].name != c.want) {
			t.Errorf("data %q, sets %v: %v, %v", c.data, c.sets, got, err)
		}
	}
}

// TestClaimsStale repeats the first passes of each method on ionosphere, which do not depend on
// time, and compares them with figure2.csv.
func TestClaimsStale(t *testing.T) {
	t.Parallel()
	o := tiny(t, 2, testkit.Shorter(nil, []string{byDefault, "PG-SVI"})...)
	o.passes = 3
	if err := o.run(context.Background(), io.Discard); err != nil {
		t.Fatal(err)
	}
	// The number of columns that name a pass of a run, and of columns before the seconds.
	const run, measured = 5, 7
	stored := make(map[string][]string)
	for _, r := range readTable(t, "figure2.csv", header2...) {
		stored[strings.Join(r[:run], ",")] = r
	}
	methods := make(map[string]bool)
	for _, r := range readTable(t, filepath.Join(o.out, "figure2.csv"), header2...) {
		name := strings.Join(r[:run], ",")
		methods[r[1]+" "+r[2]] = true
		if stored[name] == nil {
			t.Errorf("figure2.csv has no row of %s: measure figure 2 again", name)
			continue
		}
		for c := run; c < measured; c++ {
			was, is := parse(t, stored[name][c]), parse(t, r[c])
			if !(math.Abs(was-is) <= 1e-6*math.Abs(is)) {
				t.Errorf("figure2.csv has %s %v for %s, and now it is %v: measure figure 2 again",
					header2[c], was, name, is)
			}
		}
	}
	if want := testkit.Shorter(12, 2); len(methods) != want {
		t.Errorf("%d methods, want %d", len(methods), want)
	}
}

// TestClaims checks the claims in README.md against the tables in this folder: how many passes the
// median run takes to reach 1% and 0.1% of the way from the start to the optimum, and to stay
// there.
func TestClaims(t *testing.T) {
	t.Parallel()
	o := &options{figure: 2, draw: true, out: ".", passes: 200, seeds: 5,
		testdata: "../../testdata"}
	problems, methods, err := o.measure2(context.Background(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != 4 {
		t.Errorf("%d data sets, want 4", len(problems))
	}
	for i, p := range problems {
		if len(methods[i]) != 12 {
			t.Errorf("%s: %d methods, want 12", p.name, len(methods[i]))
		}
		bound := func(share float64) float64 { return p.optimum + share*(p.start-p.optimum) }
		for _, m := range methods[i] {
			one, tenth := m.runs.passesTo(bound(0.01)), m.runs.passesTo(bound(0.001))
			switch {
			case m.name == "PG-SVI" && !(one <= 2 && tenth <= 5):
				t.Errorf("%s: PG-SVI takes %v and %v passes", p.name, one, tenth)
			case m.variant == library && m.runs.median(m.runs.last()).loss-p.optimum > 1e-6:
				t.Errorf("%s: %s ends at %v, the optimum is %v", p.name, m.name,
					m.runs.median(m.runs.last()), p.optimum)
			case m.variant == paper.Published && m.name != "PG-SVI" && !math.IsInf(one, 1),
				m.variant == paper.Corrected && !(one >= 50 && math.IsInf(tenth, 1)):
				t.Errorf("%s: %s, %s, takes %v and %v passes", p.name, m.name, m.variant, one,
					tenth)
			}
		}
	}
	// Figure 1: PG-SVI needs as few passes as PG, each at its best step size.
	o.figure = 1
	_, sweeps, err := o.measure1(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	best := make(map[string]float64)
	for _, s := range sweeps {
		best[s.name] = math.Inf(1)
		for i := range s.steps {
			if s.runs[i] == nil {
				t.Errorf("no runs of %s at %v", s.name, s.steps[i])
				continue
			}
			best[s.name] = min(best[s.name], s.median(i, 1))
		}
	}
	if !(best["GD"] > 2000) || !(best["PG"] <= 4) || !(best["PG-SVI"] <= 1.5*best["PG"]) {
		t.Errorf("passes to 0.1%% at the best step size: %v", best)
	}
}

// stored returns the tables of a figure from the stored measurements.
func stored(t *testing.T, o *options) map[string]string {
	t.Helper()
	var texts map[string]string
	var err error
	switch o.figure {
	case 1:
		var sweeps []*sweep
		if _, sweeps, err = o.measure1(context.Background()); err == nil {
			texts = tables1(sweeps)
		}
	case 2:
		var problems []*problem
		var methods [][]*method
		if problems, methods, err = o.stored2(); err == nil {
			texts = tables2(problems, methods)
		}
	case 3:
		var settings []*setting
		if settings, err = o.stored3(); err == nil {
			texts = tables3(settings)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestTables checks that the tables of README.md match the stored measurements.
func TestTables(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for figure := 1; figure <= 3; figure++ {
		o := &options{figure: figure, draw: true, out: ".", passes: 200, seeds: 5,
			testdata: "../../testdata"}
		texts := stored(t, o)
		found := 0
		for name, want := range texts {
			_, block, _, ok := tables.Lookup(string(readme), name)
			if !ok {
				continue
			}
			if found++; strings.TrimSpace(block) != strings.TrimSpace(want) {
				t.Errorf("%s is not that of the measurements: go generate ./bench/...", name)
			}
		}
		if found == 0 {
			t.Errorf("README.md has no table of figure %d", figure)
		}
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for figure := 1; figure <= 3; figure++ {
		if err := tiny(t, figure).run(ctx, io.Discard); !errors.Is(err, context.Canceled) {
			t.Errorf("figure %d canceled: %v", figure, err)
		}
	}
}

func TestFlags(t *testing.T) {
	o, err := parseFlags([]string{"-figure", "2", "-quick", "-seeds", "3", "-methods", "SGD,Adam"},
		io.Discard)
	if err != nil || o.passes != 10 || o.seeds != 3 ||
		!slices.Equal(o.methods, []string{"SGD", "Adam"}) {
		t.Errorf("%+v, %v", o, err)
	}
	for figure, want := range map[string][2]int{"1": {200, 10}, "2": {200, 10}, "3": {10, 3}} {
		for i, args := range [][]string{{"-figure", figure}, {"-figure", figure, "-quick"}} {
			if o, err := parseFlags(args, io.Discard); err != nil || o.passes != want[i] ||
				!slices.Equal(o.topics, []int{10}) {
				t.Errorf("%v: %+v, %v", args, o, err)
			}
		}
	}
	for _, args := range [][]string{{}, {"-figure", "4"}, {"-figure", "3", "-topics", "10,x"},
		{"-figure", "3", "-topics", "0"}, {"-figure", "3", "-topics", "10,10"},
		{"-figure", "2", "-topics", "10"}, {"-figure", "1", "-draws", "10"},
		{"-figure", "3", "-passes", "0"}, {"-figure", "1", "x"},
		{"-figure", "1", "-seeds", "0"}} {
		if _, err := parseFlags(args, io.Discard); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}
