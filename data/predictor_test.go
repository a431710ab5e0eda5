package data

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// TestScore compares scores with scores computed by hand from the answers.
func TestScore(t *testing.T) {
	table := tableOf(t, orders(200, 15))
	rows := orderRows(200, 15)
	for _, f := range []string{"bought ~ age + plan", "wins / tries ~ age", "spent ~ age"} {
		_, p := mustFit(t, mustModel(t, table, f, yes), nil)
		var bits, failed float64
		for a, err := range p.Table(table, 0.9) {
			if err != nil {
				t.Fatal(err)
			}
			var tries, wins, spent float64
			fmt.Sscan(rows[a.Row][2], &spent)
			fmt.Sscan(rows[a.Row][9], &tries)
			fmt.Sscan(rows[a.Row][10], &wins)
			switch f[0] {
			case 'b':
				q := a.Mean
				if rows[a.Row][0] == "no" {
					q = 1 - q
				}
				bits -= math.Log2(q) / 200
				if q < 0.5 {
					failed += 1. / 200
				}
			case 'w':
				failed += (wins - tries*a.Mean) * (wins - tries*a.Mean) / 200
			case 's':
				sd := (a.Hi - a.Lo) / 2 / 1.6448536269514722 // of a normal distribution
				z := (spent - a.Mean) / sd
				bits += (z*z/2 + math.Log(sd*math.Sqrt(2*math.Pi))) / math.Ln2 / 200
				failed += (spent - a.Mean) * (spent - a.Mean) / 200
			}
		}
		if f[0] != 'b' {
			failed = math.Sqrt(failed)
		}
		s, err := p.Score(table)
		if err != nil {
			t.Fatal(err)
		}
		loss, _ := s.Value("log loss")
		got, ok := s.Value("RMSE")
		if f[0] == 'b' {
			got, ok = s.Value("accuracy")
			got = 1 - got
		}
		if f[0] == 'w' {
			// for the number of successes, which the tests of Prediction.Trials cover
			bits = loss / math.Ln2
		}
		if !ok || s.Rows != 200 || math.Abs(loss/math.Ln2-bits) > 1e-6 ||
			math.Abs(got-failed) > 1e-9 {
			t.Errorf("%s: %v, want %v bits and %v", f, s, bits, failed)
		}
	}
}

// reversed returns a table with its columns in the opposite order.
func reversed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ",")
		slices.Reverse(f)
		b.WriteString(strings.Join(f, ",") + "\n")
	}
	return b.String()
}

// TestModelPredictor checks that a Predictor encodes rows like the model, whatever the order of the
// columns, and is restored exactly.
func TestModelPredictor(t *testing.T) {
	rows := testkit.Longer(300, testkit.Shorter(120, 50))
	for _, c := range testkit.Few([]struct {
		formula string
		lik     pgsvi.Likelihood
	}{
		{"bought ~ plan*age + s(hour, periodic) + (1 | shop/shelf)", nil},
		{"clicks ~ plan + log(age) + exposure(days)", nil},
		{"spent ~ poly(age, 3) + s(hour, k=12) + weight(days)", nil},
		{"wins / tries ~ plan + age", nil},
		{"clicks ~ 0 + plan:age + s(days, k=8)", pgsvi.NegativeBinomial{}},
		{"wins / tries ~ plan + age", pgsvi.BetaBinomial{}},
	}, 5) {
		m := mustModel(t, tableOf(t, orders(rows, 3)), c.formula, yes)
		post, p := mustFit(t, m, c.lik)
		at := post.At(m.X)
		if m.Offset != nil {
			at = at.Offset(m.Offset)
		}
		var want []float64
		var err error
		if p.labels() {
			want = at.Prob(nil, 1)
		} else if want, _, err = at.Moments(nil, nil); err != nil {
			t.Fatal(err)
		}
		var file, again bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		read, err := LoadPredictor(bytes.NewReader(file.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := read.Save(&again); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
			t.Errorf("%s: another file when read and written, %v", c.formula, err)
		}
		for a, err := range read.Table(tableOf(t, reversed(orders(rows, 3))), 0.9) {
			if err != nil {
				t.Fatalf("%s: %v", c.formula, err)
			}
			if w := want[slices.Index(m.Kept, a.Row)]; math.Abs(a.Mean-w) > 1e-12*math.Abs(w) {
				t.Fatalf("%s, row %d: %v, and %v by the model", c.formula, a.Row, a.Mean, w)
			}
			if !(a.Lo <= a.Hi) || p.labels() && !(a.Lo < a.Mean && a.Mean < a.Hi) {
				t.Errorf("%s, row %d: %v", c.formula, a.Row, a)
			}
		}
		score, err := read.Score(tableOf(t, orders(rows, 3)))
		if err != nil || score.Rows != rows || math.IsNaN(score.Values[0]) {
			t.Errorf("%s: %v, %v", c.formula, score, err)
		}
	}
}

// TestPredictRows checks answers for maps, JSON and structs, and errors that name the column.
func TestPredictRows(t *testing.T) {
	m := mustModel(t, tableOf(t, orders(500, 4)), "bought ~ plan + age + (1 | shop)", yes,
		Category("plan").New(), Number("age").Impute())
	_, p := mustFit(t, m, nil)
	type order struct {
		Plan string   `col:"plan"`
		Age  *float64 `col:"age"`
		Shop string   `col:"shop"`
	}
	age := 44.
	var first *Answer
	for i, r := range []any{
		map[string]any{"plan": "gold", "age": 44, "shop": "s1"},
		map[string]string{"shop": "s1", "age": "44", "plan": "gold"},
		[]byte(`{"age": 44.0, "plan": "gold", "shop": "s1"}`),
		json.RawMessage(`{"age": "44", "plan": "gold", "shop": "s1"}`),
		order{"gold", &age, "s1"},
		&order{"gold", &age, "s1"},
	} {
		a, err := p.Predict(r)
		if err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		if first == nil {
			first = a
		}
		if a.Mean != first.Mean || a.Label != "yes" || len(a.Notes) != 0 {
			t.Errorf("row %d: %v, and %v", i, a, first)
		}
	}
	width := func(row map[string]any, note string) float64 {
		a, err := p.Predict(row)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(a.Notes, ";"), note) {
			t.Errorf("notes %q, want %q", a.Notes, note)
		}
		return math.Log(a.Hi/(1-a.Hi)) - math.Log(a.Lo/(1-a.Lo))
	}
	known := width(map[string]any{"plan": "gold", "age": 44, "shop": "s1"}, "")
	newPlan := width(map[string]any{"plan": "silver", "age": 44, "shop": "s1"}, "is new")
	newShop := width(map[string]any{"plan": "gold", "age": 44, "shop": "s9"}, `shop="s9" is new`)
	width(map[string]any{"plan": "gold", "shop": "s1"}, "missing and replaced by the mean")
	if !(newPlan > 1.2*known && newShop > 1.2*known) {
		t.Errorf("log odds are %v wide, %v of a new plan, %v of a new shop", known, newPlan,
			newShop)
	}
	for _, c := range []struct {
		row  any
		want string
		is   error
	}{
		{map[string]any{"plan": "gold", "age": "old", "shop": "s1"}, `"old" is not a number`,
			pgsvi.ErrNotFinite},
		{map[string]any{"plan": "gold", "agee": 3, "shop": "s1"}, `no column "agee"`,
			pgsvi.ErrParam},
		{map[string]any{"age": 3, "shop": "s1"}, `"plan": the value is missing`,
			pgsvi.ErrNotFinite},
		{map[string]any{"age": 3, "plan": "gold"}, `"shop": the value is missing`,
			pgsvi.ErrNotFinite},
		{[]byte(`{"age": 3`), "", pgsvi.ErrShape},
		{7, "use a map", pgsvi.ErrShape},
	} {
		if _, err := p.Predict(c.row); !errors.Is(err, c.is) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.row, err, c.want)
		}
	}
}

// TestExplain checks that the contributions of terms sum to the latent value minus the latent value
// of the means, and that a marginal effect is the mean difference of predictions.
func TestExplain(t *testing.T) {
	m := mustModel(t, tableOf(t, orders(300, 5)), "bought ~ plan + s(hour) + (1 | shop)", yes,
		Category("plan").Reference("basic"))
	post, p := mustFit(t, m, nil)
	e, err := p.Explain(map[string]any{"plan": "gold", "hour": 6, "shop": "s5"})
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	var names []string
	for _, r := range e.Rows {
		sum += r.Mean
		names = append(names, r.Name)
	}
	slices.Sort(names)
	if math.Abs(sum-(e.Value-e.Base)) > 1e-10 ||
		strings.Join(names, " ") != "(1 | shop) plan s(hour)" {
		t.Errorf("contributions of %q add up to %v, want %v", names, sum, e.Value-e.Base)
	}
	if _, err := p.Explain(map[string]any{"plan": "lead", "hour": 6, "shop": "s5"}); !errors.Is(err,
		pgsvi.ErrParam) {
		t.Error(err)
	}
	effects, err := m.MarginalEffects(post)
	if err != nil {
		t.Fatal(err)
	}
	mean := func(plan string) (p float64) {
		x := mat.DenseCopyOf(m.X)
		for i := range m.Y {
			for j, name := range m.Names {
				if strings.HasPrefix(name, "plan=") {
					x.Set(i, j, 0)
				}
				if name == "plan="+plan {
					x.Set(i, j, 1)
				}
			}
		}
		for _, v := range post.Prob(nil, 1, x) {
			p += v / float64(len(m.Y))
		}
		return p
	}
	want := mean("gold") - mean("basic")
	for _, r := range effects.Rows {
		if r.Name == "plan=gold" {
			if math.Abs(r.Mean-want) > 1e-6 {
				t.Errorf("marginal effect %v, want %v", r.Mean, want)
			}
			return
		}
	}
	t.Errorf("no effect of plan=gold among %v", effects.Rows)
}

// TestPredictorFiles checks that files that are truncated, changed, newer or of another kind are
// errors.
func TestPredictorFiles(t *testing.T) {
	m := mustModel(t, tableOf(t, orders(60, 11)), "bought ~ plan + s(age, k=5)", yes)
	post, p := mustFit(t, m, nil)
	var file, other bytes.Buffer
	if err := errors.Join(p.Save(&file), post.Save(&other)); err != nil {
		t.Fatal(err)
	}
	good := file.Bytes()
	bad := [][]byte{nil, []byte("nothing"), other.Bytes(), append(slices.Clone(good), 'x'),
		bytes.Replace(good, []byte("Predictor 1 "), []byte("Predictor 2 "), 1)}
	for n := 0; n < len(good); n += 1 + len(good)/97 {
		changed := slices.Clone(good)
		changed[n] ^= 1
		bad = append(bad, good[:n], changed)
	}
	for i, b := range bad {
		if _, err := LoadPredictor(bytes.NewReader(b)); !errors.Is(err, pgsvi.ErrFile) {
			t.Errorf("file %d: %v", i, err)
		}
	}
	path := filepath.Join(t.TempDir(), "orders.pgsvi")
	if err := p.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadFile(path); err != nil {
		t.Error(err)
	}
	if _, err := LoadFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	full := errors.New("pgsvi: no more rows")
	if err := WriteFile(path, func(io.Writer) error { return full }); err != full {
		t.Error(err)
	}
	if _, err := LoadFile(path); err != nil {
		t.Error("the file of before is gone:", err)
	}
}

// TestPredictorUpdate checks that an update moves the posterior about as much as a fit to all rows.
func TestPredictorUpdate(t *testing.T) {
	ctx := context.Background()
	lines := strings.SplitAfter(orders(800, 12), "\n")
	read := func(from, to int) *Table {
		return tableOf(t,
			lines[0]+strings.Join(lines[1+from:1+to], ""))
	}
	columns := []Column{yes, Category("plan").Reference("basic"), Raw()}
	_, p := mustFit(t, mustModel(t, read(0, 400), "bought ~ plan + log(days)", columns...), nil)
	all, _ := mustFit(t, mustModel(t, read(0, 800), "bought ~ plan + log(days)", columns...), nil)
	q, err := p.Update(ctx, read(400, 800))
	if err != nil {
		t.Fatal(err)
	}
	got, want := q.Posterior().(*pgsvi.GLMPosterior), all.Mean(nil)
	if before := p.Posterior().(*pgsvi.GLMPosterior); got.Len() != 800 || before.Len() != 400 {
		t.Errorf("%d rows of %d", got.Len(), before.Len())
	}
	for j, m := range got.Mean(nil) {
		if math.Abs(m-want[j]) > 0.3*all.SD(nil)[j] {
			t.Errorf("weight %d: %v after an update, %v of all rows, sd %v", j, m, want[j],
				all.SD(nil)[j])
		}
	}
	if _, err := p.Update(ctx, tableOf(t, "plan,days\nbasic,3\ngold,2\n")); !errors.Is(err,
		pgsvi.ErrShape) {
		t.Error(err)
	}
}

// FuzzPredictorHead checks that arbitrary data before the posterior of a Predictor are an error, or
// predict rows without a panic.
func FuzzPredictorHead(f *testing.F) {
	m := mustModel(f, tableOf(f, orders(40, 13)), "bought ~ plan + s(age, k=4) + (age || shop)", yes)
	_, p := mustFit(f, m, nil)
	head, err := json.Marshal(saved{p.enc, p.design, p.y.Name, p.trials, "GLMPosterior"})
	if err != nil {
		f.Fatal(err)
	}
	var post bytes.Buffer
	if err := p.post.Save(&post); err != nil {
		f.Fatal(err)
	}
	f.Add(head)
	f.Fuzz(func(t *testing.T, head []byte) {
		var s saved
		if json.Unmarshal(head, &s) != nil {
			return
		}
		q, err := s.predictor(bytes.NewReader(post.Bytes()))
		if err != nil {
			return
		}
		for _, row := range []map[string]any{{"plan": "gold", "age": 44, "shop": "s1"},
			{"plan": "x", "age": -1e300, "shop": ""}, {}} {
			if a, err := q.Predict(row); err == nil {
				_ = a.String()
			}
		}
	})
}

// BenchmarkPredict predicts a row given as a map.
func BenchmarkPredict(b *testing.B) {
	m := mustModel(b, tableOf(b, orders(500, 4)), "bought ~ plan + age + s(hour) + (1 | shop)", yes)
	_, p := mustFit(b, m, nil)
	row := map[string]any{"plan": "gold", "age": 44.0, "hour": 12.0, "shop": "s1"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Predict(row); err != nil {
			b.Fatal(err)
		}
	}
}
