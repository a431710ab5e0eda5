package data

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/floats"
)

// TestWriteCSV compares the lines of answers with Table, and checks the lines of errors and the
// scores.
func TestWriteCSV(t *testing.T) {
	text := orders(40, 2)
	_, p := mustFit(t, mustModel(t, tableOf(t, text), "bought ~ plan + age", yes), nil)
	wrong := strings.Replace(text, "basic", "brass", 1) // a level that was never seen
	var b, again bytes.Buffer
	rows, failed, scores, err := p.ScoreCSV(&b, tableOf(t, wrong), 0.8)
	if err != nil || rows != 40 || failed != 1 {
		t.Fatalf("%d rows, %d failed, %v", rows, failed, err)
	}
	if _, _, err := p.WriteCSV(&again, tableOf(t, wrong), 0.8); err != nil ||
		again.String() != b.String() {
		t.Errorf("WriteCSV writes something else: %v", err)
	}
	want, err := p.Score(tableOf(t, wrong))
	if err != nil || scores.Rows != 39 || scores.String() != want.String() {
		t.Errorf("scores %v, want %v, %v", scores, want, err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil || strings.Join(lines[0], ",") != "row,P(yes),lo,hi,note" {
		t.Fatalf("%v, %v", lines[0], err)
	}
	i := 0
	for a, fault := range p.Table(tableOf(t, wrong), 0.8) {
		i++
		line := lines[i]
		if line[0] != strconv.Itoa(i) {
			t.Errorf("line %d begins with %s", i, line[0])
		}
		if fault != nil {
			if line[1]+line[2]+line[3] != "" || !strings.HasPrefix(line[4], "error: ") ||
				!strings.Contains(line[4], "brass") || strings.Contains(line[4], "pgsvi") {
				t.Errorf("a row with an error: %q", line)
			}
			continue
		}
		for k, x := range []float64{a.Mean, a.Lo, a.Hi} {
			v, err := strconv.ParseFloat(line[1+k], 64)
			if err != nil || math.Abs(v-x) > 1e-5*math.Abs(x) {
				t.Errorf("line %d: %s, want %v", i, line[1+k], x)
			}
		}
	}
	if _, _, err := p.WriteCSV(io.Discard, tableOf(t, text), 2); !errors.Is(err, pgsvi.ErrParam) {
		t.Errorf("a level of 2: %v", err)
	}
	if _, _, err := p.WriteCSV(full{}, tableOf(t, text), 0.5); !errors.Is(err, errFull) {
		t.Errorf("nothing can be written: %v", err)
	}
	if _, _, _, err := p.ScoreCSV(io.Discard, tableOf(t, "plan,age\nbasic,30\n"),
		0.5); !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("no outcome: %v", err)
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestWriteClasses checks the lines of an outcome of several classes.
func TestWriteClasses(t *testing.T) {
	table := tableOf(t, flowers(60, "rose", "lily", "iris"))
	_, p := fitClasses(t, mustModel(t, table, "kind ~ length + width"))
	var b bytes.Buffer
	if rows, failed, err := p.WriteCSV(&b, table, 0.9); err != nil || rows != 60 || failed != 0 {
		t.Fatalf("%d rows, %d failed, %v", rows, failed, err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil || strings.Join(lines[0], ",") != "row,class,P(iris),P(lily),P(rose),note" {
		t.Fatalf("%v, %v", lines[0], err)
	}
	for _, line := range lines[1:] {
		sum, most, best := 0.0, 0.0, ""
		for k, name := range []string{"iris", "lily", "rose"} {
			q, err := strconv.ParseFloat(line[2+k], 64)
			if err != nil {
				t.Fatal(err)
			}
			if sum += q; q > most {
				most, best = q, name
			}
		}
		if line[1] != best {
			t.Errorf("not the most probable class: %q", line)
		}
		if math.Abs(sum-1) > 1e-5 {
			t.Errorf("probabilities add up to %v: %q", sum, line)
		}
	}
}

// TestTooLarge checks that the error names the feature that is too large for a prediction.
func TestTooLarge(t *testing.T) {
	m := mustModel(t, tableOf(t, orders(200, 1)), "spent ~ age")
	_, p := mustFit(t, m, nil)
	_, err := p.Predict(map[string]any{"age": 1e308})
	if !errors.Is(err, pgsvi.ErrNotFinite) || !strings.Contains(err.Error(), `"age"`) {
		t.Error(err)
	}
}

// TestRagged checks that a line with too few or too many fields has an error of its own, and the
// other lines have answers. A fit refuses such a table, and so does reading without Ragged.
func TestRagged(t *testing.T) {
	m := mustModel(t, tableOf(t, orders(200, 1)), "spent ~ age")
	_, p := mustFit(t, m, nil)
	text := "age,spent\n30,1\n40\n50,2,3\n60,4\n"
	table, err := Format{Ragged: true}.Read(strings.NewReader(text), "rows")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	rows, failed, err := p.WriteCSV(&b, table, 0.9)
	lines := strings.Split(b.String(), "\n")
	if err != nil || rows != 4 || failed != 2 ||
		!strings.Contains(lines[2], "line 3 has 1 field, but the first line has 2") ||
		!strings.Contains(lines[3], "line 4 has 3 fields, but the first line has 2") ||
		strings.Contains(lines[4], "error") {
		t.Errorf("%d rows, %d with errors, %v\n%s", rows, failed, err, b.String())
	}
	if _, err := table.Model("spent ~ age", Number("age").Impute(),
		Outcome("spent").Quantity().Drop()); !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("a model of lines that are no rows: %v", err)
	}
	if _, err := Read(strings.NewReader(text), "rows"); !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("by default: %v", err)
	}
}

// TestFitGP checks that a model with few rows is a pgsvi.GP and a model with many rows is a
// pgsvi.SparseGP, with and without learning.
func TestFitGP(t *testing.T) {
	ctx := context.Background()
	curve := func(n int) *Table {
		var b strings.Builder
		b.WriteString("x,y\n")
		for i := range n {
			x := float64(i) / float64(n) * 6
			fmt.Fprintf(&b, "%v,%v\n", x, math.Sin(x)+0.1*math.Cos(97*x))
		}
		return tableOf(t, b.String())
	}
	for _, n := range []int{30, denseRows + 1} {
		m := mustModel(t, curve(n), "y ~ x")
		noise := pgsvi.GaussianNoise{Var: 0.01}
		for _, opt := range []*pgsvi.LearnOptions{nil, {}} {
			if n > denseRows && opt != nil {
				continue // seconds
			}
			g, err := m.FitGP(ctx, pgsvi.SquaredExp{}, noise, nil, opt)
			if err != nil || g.Result == nil || (g.Learned != nil) != (opt != nil) {
				t.Fatalf("%d rows: %v, %v", n, g, err)
			}
			if _, sparse := g.Posterior.(*pgsvi.SparseGPPosterior); sparse != (n > denseRows) {
				t.Errorf("%d rows: a %T", n, g.Posterior)
			}
			loo, err := g.LOO(ctx)
			if err != nil || len(loo.Pointwise) != n || !(loo.ELPD > g.Result.ELBO) {
				t.Errorf("%d rows: %v, %v; the ELBO is %v", n, loo, err, g.Result.ELBO)
			}
			p, err := m.Predictor(g.Posterior)
			if err != nil {
				t.Fatal(err)
			}
			a, err := p.Predict(map[string]any{"x": 1.5})
			if err != nil || math.Abs(a.Mean-math.Sin(1.5)) > 0.1 {
				t.Errorf("%d rows: %v at 1.5, %v", n, a, err)
			}
		}
	}
	classes := mustModel(t, tableOf(t, flowers(30, "rose", "lily", "iris")), "kind ~ length")
	g, err := classes.FitGP(ctx, pgsvi.SquaredExp{}, nil, nil, &pgsvi.LearnOptions{})
	if err != nil || len(g.Learned.Params) != 2 {
		t.Errorf("a kernel learned from classes: %v, %v", g, err)
	}
	many := flowers(denseClassRows+2, "rose", "lily", "iris")
	classes = mustModel(t, tableOf(t, many), "kind ~ length")
	if g, err = classes.FitGP(ctx, pgsvi.SquaredExp{}, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, sparse := g.Posterior.(*pgsvi.SparseGPPosterior); !sparse {
		t.Fatalf("%d rows of classes: a %T", denseClassRows+2, g.Posterior)
	}
	p, err := classes.Predictor(g.Posterior)
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.Predict(map[string]any{"length": 1.5})
	if err != nil || len(a.Probs) != 3 || math.Abs(floats.Sum(a.Probs)-1) > 1e-9 {
		t.Errorf("probabilities of classes: %v, %v", a.Probs, err)
	}
}

// TestTableWorkers checks that the answers do not depend on the number of processors, come in the
// order of the rows, and end when the caller needs no more, and that an error of reading comes
// after them.
func TestTableWorkers(t *testing.T) {
	text := orders(1500, 2)
	_, p := mustFit(t, mustModel(t, tableOf(t, text), "bought ~ plan + age", yes), nil)
	text = strings.Replace(text, "basic", "brass", 1) + "1,2\n" // an unknown level, a short line
	table, err := Format{Ragged: true}.Read(strings.NewReader(text), "")
	if err != nil {
		t.Fatal(err)
	}
	answers := func(processors, most int) (all []string) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		for a, err := range p.Table(table, 0.9) {
			all = append(all, fmt.Sprintf("%d %d %x %x %x %v %v", a.Row, a.Line, a.Mean, a.Lo,
				a.Hi, a.Notes, err))
			if len(all) == most {
				break
			}
		}
		return all
	}
	want := answers(1, 0)
	if len(want) != 1501 || !strings.HasPrefix(want[1500], "1500 1502 ") {
		t.Fatalf("%d answers, the last %s", len(want), want[len(want)-1])
	}
	lines, err := csv.NewReader(strings.NewReader(strings.TrimSuffix(text, "1,2\n"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range lines[1:] {
		row := map[string]string{}
		for j, name := range lines[0] {
			row[name] = line[j]
		}
		a, err := p.Predict(row)
		if i == 0 != (err != nil) || err == nil && !strings.Contains(want[i],
			fmt.Sprintf(" %x %x %x ", a.Mean, a.Lo, a.Hi)) {
			t.Fatalf("row %d: %+v, %v; in the table %s", i, a, err, want[i])
		}
	}
	for _, processors := range []int{2, 5} {
		if got := answers(processors, 0); !slices.Equal(got, want) {
			t.Errorf("the answers of %d processors differ", processors)
		}
		for _, most := range []int{1, 512, 513, 1501} {
			if got := answers(processors, most); !slices.Equal(got, want[:most]) {
				t.Errorf("%d answers of %d processors differ", most, processors)
			}
		}
	}
}
