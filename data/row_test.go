package data

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// churnEncoder returns the Encoder of churnFile with all suggested decisions, and new levels
// allowed.
func churnEncoder(t testing.TB) (*Table, *Encoder) {
	t.Helper()
	table := read(t, churnFile(4000))
	e, err := table.Encoder(
		Outcome("gekündigt").Positive("ja"),
		Date("Letzte Anfrage").Impute(),
		Category("Tarif").FoldCase().Reference("basis").New(),
		Number("Alter").MissingAre("k.A.").Impute(),
		Category("Newsletter").Reference("ja").Level(), Skip("PLZ"), Skip("Kundennr"))
	if err != nil {
		t.Fatal(err)
	}
	return table, e
}

type customer struct {
	Start time.Time  `col:"Vertragsbeginn"`
	Asked *time.Time `col:"Letzte Anfrage"`
	Plan  string     `col:"Tarif"`
	Price float32    `col:"Monatspreis"`
	Total float64    `col:"Umsatz gesamt"`
	Age   *int       `col:"Alter"`
	Calls uint8      `col:"Anrufe"`
	News  *string    `col:"Newsletter"`
	other int
}

// TestRow encodes one row in all forms that are accepted, with the same result.
func TestRow(t *testing.T) {
	_, e := churnEncoder(t)
	start, age, news := time.Date(2021, 5, 3, 0, 0, 0, 0, time.UTC), 44, "ja"
	asked := start.AddDate(0, 2, 0)
	c := customer{start, &asked, "Komfort", 29.5, 1295.25, &age, 3, &news, 0}
	rows := map[string]any{
		"struct": c, "pointer": &c,
		"map": map[string]any{"Vertragsbeginn": start, "Letzte Anfrage": &asked, "Tarif": "KOMFORT",
			"Monatspreis":   29.5,
			"Umsatz gesamt": json.Number("1295.25"), "Alter": int64(44), "Anrufe": uint(3),
			"Newsletter": "ja", "gekündigt": "nein"},
		"texts": map[string]string{"Vertragsbeginn": "03.05.2021", "Letzte Anfrage": "3.7.2021",
			"Tarif": " komfort ", "Monatspreis": "29,50 €",
			"Umsatz gesamt": "1.295,25", "Alter": "44", "Anrufe": "3", "Newsletter": "ja",
			"PLZ": "01067"},
		"JSON": []byte(` {"Vertragsbeginn": "2021-05-03", "Letzte Anfrage": "2021-07-03T00:00:00Z", "Tarif": "Komfort", "Monatspreis": 29.5,
			"Umsatz gesamt": 1.29525e3, "Alter": "44", "Anrufe": 3, "Newsletter": "j\u0061"} `),
		"raw JSON": json.RawMessage(
			`{"Newsletter":"ja","Anrufe":3,"Alter":44,"Umsatz gesamt":1295.25,"Monatspreis":29.5,"Tarif":"Komfort","Letzte Anfrage":"3.7.2021","Vertragsbeginn":"3.5.2021"}`),
	}
	want, err := e.Row(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Notes) > 0 || len(want.X) != len(e.Features()) ||
		want.X[slices.Index(e.Features(), "Tarif=komfort")] != 1 {
		t.Errorf("%+v", want)
	}
	for name, row := range rows {
		if got, err := e.Row(row); err != nil || !slices.Equal(got.X, want.X) ||
			len(got.Notes) > 0 {
			t.Errorf("%s: %+v, want %v, %v", name, got, want.X, err)
		}
	}
	feature := func(r *Encoded,
		name string) float64 {
		return r.X[slices.Index(e.Features(), name)]
	}
	c.Age, c.Asked, c.News, c.Plan, c.Calls = nil, nil, nil, "Gold", 40
	r, err := e.Row(c)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"Alter": 0, "Alter missing": 1,
		"Letzte Anfrage.elapsed": 0, "Letzte Anfrage missing": 1,
		"Newsletter=(missing)": 1, "Newsletter=nein": 0, "Tarif=(new)": 1, "Tarif=komfort": 0} {
		if math.Abs(feature(r, name)-want) > 1e-12 {
			t.Errorf("%s is %v, want %v", name, feature(r, name), want)
		}
	}
	notes := strings.Join(r.Notes, "\n")
	for _, want := range []string{`"Tarif"="gold" is new`, `"Alter" is missing and replaced by the mean`,
		`"Anrufe" is 40, outside the training range 0 to 7`} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in %q", want, notes)
		}
	}
}

// TestRowErrors checks the errors about rows that cannot be encoded.
func TestRowErrors(t *testing.T) {
	_, e := churnEncoder(t)
	good := func(change func(m map[string]any)) map[string]any {
		m := map[string]any{"Vertragsbeginn": "03.05.2021", "Tarif": "basis", "Monatspreis": 29.5,
			"Umsatz gesamt": 100, "Anrufe": 3}
		change(m)
		return m
	}
	if _, err := e.Row(good(func(map[string]any) {})); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		row  any
		want error
		says string
	}{
		{good(func(m map[string]any) { delete(m, "Anrufe") }), pgsvi.ErrNotFinite,
			`column "Anrufe": the value is missing, but no value was missing in training`},
		{good(func(m map[string]any) { m["Anrufe"] = "viele" }), pgsvi.ErrNotFinite,
			`column "Anrufe": "viele" is not a number with the decimal sign ','`},
		{good(func(m map[string]any) { m["Anrufe"] = math.NaN() }), pgsvi.ErrNotFinite,
			`column "Anrufe": NaN`},
		{good(func(m map[string]any) { m["Anrufe"] = []int{1} }), pgsvi.ErrShape,
			`column "Anrufe": the value is a []int`},
		{good(func(m map[string]any) { m["Anrufe"] = time.Now() }), pgsvi.ErrParam,
			`column "Anrufe": the value is a date`},
		{good(func(m map[string]any) { m["Monatspreis"] = "5 $" }), pgsvi.ErrParam,
			`column "Monatspreis": "5 $" is not a number in €`},
		{good(func(m map[string]any) { m["Monatspreis"] = "29.5" }), pgsvi.ErrNotFinite,
			`decimal sign ','`},
		{good(func(m map[string]any) { m["Vertragsbeginn"] = "gestern" }), pgsvi.ErrParam,
			`column "Vertragsbeginn": "gestern" is not a date like 2.1.2006`},
		{good(func(m map[string]any) { m["Newsletter"] = "oft" }), pgsvi.ErrParam,
			`column "Newsletter": the level "oft" is unknown; use one of "ja", "nein"`},
		{good(func(m map[string]any) { m["anrufe"], m["zz"] = 3, 1 }), pgsvi.ErrParam,
			`the model has no column "anrufe"; did you mean "Anrufe"?`},
		{map[string]string{"b": "1", "a": "2"}, pgsvi.ErrParam,
			`the model has no column "a"; it has "Vertragsbeginn"`},
		{[]byte(`{"Anrufe": 3, "Anrufe": 4}`), pgsvi.ErrShape, `field "Anrufe" occurs twice`},
		{[]byte(`{"Anrufe": {"x": 3}}`), pgsvi.ErrShape, `field "Anrufe": the value is an object`},
		{[]byte(`{"Anrufe": 1e999}`), pgsvi.ErrNotFinite, `field "Anrufe": "1e999"`},
		{[]byte(`{"anrufe": 3}`), pgsvi.ErrNotFinite, `the model has no column "anrufe"`},
		{[]byte(`{"Anrufe": 3`), pgsvi.ErrShape, `byte 12`},
		{[]byte(`[3]`), pgsvi.ErrShape, `is not a JSON object`},
		{[]byte(``), pgsvi.ErrShape, `unexpected end`},
		{nil, pgsvi.ErrShape, "use a map, a JSON object as []byte, or a struct"},
		{3, pgsvi.ErrShape, "the row is of kind int"},
		{(*customer)(nil), pgsvi.ErrShape, "the row is of kind ptr"},
		{struct{ A int }{1}, pgsvi.ErrShape, "have no tags"},
		{struct {
			A int `col:"a"`
		}{1}, pgsvi.ErrParam, `the model has no column "a"`},
		{struct {
			A chan int `col:"Anrufe"`
		}{}, pgsvi.ErrShape, `column "Anrufe": the value is a chan int`},
	} {
		for range 3 { // as maps are in no order
			if r, err := e.Row(c.row); r != nil || !errors.Is(err, c.want) ||
				!strings.Contains(err.Error(), c.says) ||
				!strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%v: %v, %v, want %q that is %v", c.row, r, err, c.says, c.want)
			}
		}
	}
}

// TestNewLevels checks the policies for levels that training has not seen.
func TestNewLevels(t *testing.T) {
	for _, c := range []struct {
		column Column
		x      []float64
		notes  int
	}{
		{Category("c"), nil, 0},
		{Category("c").New(), []float64{0, 1}, 1},
		{Category("c").UnknownIsReference(), []float64{0}, 1},
		{Category("c").Level().UnknownIsMissing(), []float64{0, 1}, 1},
		{Category("c").Level().New(), []float64{0, 0, 1}, 1},
	} {
		e, _ := encode(t, "c,y\np,1\nq,2\nq,3\n", Outcome("y"), c.column)
		r, err := e.Row(map[string]string{"c": "r"})
		if c.x == nil {
			if !errors.Is(err, pgsvi.ErrParam) {
				t.Errorf("%v: %v", c.column, err)
			}
			continue
		}
		if err != nil || !slices.Equal(r.X, c.x) || len(r.Notes) != c.notes {
			t.Errorf("%v: %+v, %v", c.column, r, err)
		}
	}
}

// TestRowAgrees checks that a row of a table and the same row as a map are encoded alike.
func TestRowAgrees(t *testing.T) {
	table, e := churnEncoder(t)
	d, err := e.Data(table)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	err = table.scan(func(rec *record) error {
		m := map[string]string{}
		for j, c := range rec.cells {
			m[table.Columns()[j]] = c.s
		}
		r, err := e.Row(m)
		if err != nil {
			return err
		}
		for j, x := range r.X {
			if d.X.At(i, j) != x {
				return fmt.Errorf("row %d: %s is %v, want %v", i, d.Names[j], x, d.X.At(i, j))
			}
		}
		i++
		return nil
	})
	if err != nil || i != 4000 {
		t.Errorf("%d rows, %v", i, err)
	}
}

// TestFileMemory checks that an error at the end of a file names the line, and that the memory in
// use does not grow, for this file and for a good file.
func TestFileMemory(t *testing.T) {
	lines := testkit.Longer(400000, testkit.Shorter(120000, 40000))
	path := filepath.Join(t.TempDir(), "large.csv")
	write := func(last string) {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewWriter(f)
		fmt.Fprintln(w, "id,value,city,note,y")
		for i := range lines {
			fmt.Fprintf(w, "id%d,%d.25,c%d,%s %d,%d\n", i, i*7919%1000003, i%50,
				strings.Repeat("text ", 20), i, i%7)
		}
		fmt.Fprint(w, last)
		if err := errors.Join(w.Flush(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	var m runtime.MemStats
	inUse := func() uint64 {
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	write("id,1,c1\n")
	before := inUse()
	if _, err := ReadFile(path); !errors.Is(err, pgsvi.ErrShape) ||
		!strings.Contains(err.Error(),
			fmt.Sprintf("large.csv: line %d has 3 fields, but the first line has 5", lines+2)) {
		t.Errorf("%v", err)
	}
	write("")
	table, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The file has 130 bytes per line.
	if n := inUse() - before; n > uint64(3<<20+32*lines) && n < 1<<40 {
		t.Errorf("%d bytes in use", n)
	}
	e, err := table.Encoder(Skip("id"), Skip("note"), Outcome("y"))
	if err != nil {
		t.Fatal(err)
	}
	n, most := 0, uint64(0)
	for r, err := range e.Rows(table) {
		if err != nil || r.Row != n || r.Line != n+2 {
			t.Fatalf("row %d: %+v, %v", n, r, err)
		}
		if n++; n%(lines/4) == 0 {
			most = max(most, inUse())
		}
	}
	if n != lines || most > before+uint64(3<<20+52*lines) {
		t.Errorf("%d rows, %d bytes in use", n, most-before)
	}
	if err := os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Data(table); !errors.Is(err, pgsvi.ErrFile) ||
		!strings.Contains(err.Error(), "has changed") {
		t.Errorf("changed file: %v", err)
	}
	if _, err := ReadFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// FuzzTable checks that every table has columns with values for all rows, that the suggestions
// suffice if any do, that all numbers are finite, and that rows agree with data.
func FuzzTable(f *testing.F) {
	for _, s := range []string{"", people, "1,2\n3,4\n", "\ufeffa,b\r\n1,\"x\"\r\n\n2,y",
		"a;y\n?;1\nNaN;2\n3,5;3\n", ",a\n1,2\n2,3", "a,a\n1,2", "a\n1", "a,y\n1,p\n2,q\n3,p\n",
		string(zipped([]byte(people))), "sep=|\na|b\n1|2\n", utf16Text(people, true),
		"a,\xfc\n1,2\n", eventsFile(5), clinicalFile(9),
		"a,y\n<3,1\n4,2\n2/3/2024,4\n1.234 €,2\n", "Report\na;y\n1;2\n3;4\n",
		"a,y\n1,2\n2,4\nTotal,6\n",
		"a,y\n20181231,2\n20190101,4\n20190102,6\n", "a,y\n2018-W52,2\n2019-W01,4\n",
		"a,y\n(5.5),2\n5-,4\n1.5D+03,6\n3,2\n", "a,y\n5 kg,2\n6 kg,1\n7 kg,2\n",
		"{}\n", "a,y\n1,2\n-99,4\n-99,6\n2,9\n2,9\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		table, d, err := encodeAll(strings.NewReader(string(in)))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("error %q without prefix", err)
			}
			return
		}
		_ = table.String()
		if d == nil {
			return
		}
		n, cols := d.X.Dims()
		if n == 0 || n > table.Len() || cols != len(d.Names) || n != len(d.Kept) ||
			d.Y != nil && n != len(d.Y) {
			t.Fatalf("%d×%d of %d rows, %d outcomes", n, cols, table.Len(), len(d.Y))
		}
		if _, ok := dense.AllFinite(d.Y); !ok {
			t.Fatalf("outcomes %v", d.Y)
		}
		for i := range n {
			for j := range cols {
				if v := d.X.At(i, j); math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("(%d, %s) is %v", i, d.Names[j], v)
				}
			}
		}
	})
}

// FuzzFormat checks that a table is read as it was written, with any separator and encoding.
func FuzzFormat(f *testing.F) {
	f.Add("Größe", "1,5", "x y", uint8(1), uint8(1))
	f.Add("a", "b,c", "d;e", uint8(0), uint8(3))
	f.Add("naïve", "€ 5", "|", uint8(3), uint8(2))
	f.Fuzz(func(t *testing.T, name, p, q string, separator, encoding uint8) {
		comma := []string{",", ";", "\t", "|"}[separator%4]
		quote := func(s string) string {
			s = strings.Map(func(r rune) rune {
				if r < ' ' || r == '"' || r > 0xff || r >= 0x7f && r <= 0xa0 ||
					strings.ContainsRune(",;|", r) && string(r) != comma {
					return 'z'
				}
				return r
			}, strings.TrimSpace(strings.ToValidUTF8(s, "z")))
			return `"` + s + `"`
		}
		name = "\"n" + quote(name)[1:]
		text := name + comma + "other\n" + quote(p) + comma + "1\n" + quote(q) + comma + "2\n"
		switch encoding % 4 {
		case 1:
			text = string(latin1(text))
		case 2:
			text = utf16Text("\ufeff"+text, false)
		case 3:
			text = utf16Text("\ufeff"+text, true)
		}
		table, err := Read(strings.NewReader(text), "t")
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got := table.Columns(); len(got) != 2 || got[0] != strings.Trim(strings.Trim(name, `"`),
			" ") {
			t.Fatalf("%q: columns %q", text, got)
		}
		i := 0
		err = table.scan(func(rec *record) error {
			if want := strings.TrimSpace(
				strings.Trim(quote([]string{p, q}[i]), `"`)); rec.cells[0].s != want {
				return fmt.Errorf("row %d is %q, want %q", i, rec.cells[0].s, want)
			}
			i++
			return nil
		})
		if err != nil || i != 2 {
			t.Fatalf("%q: %d rows, %v", text, i, err)
		}
	})
}

func latin1(s string) (b []byte) {
	for _, r := range s {
		b = append(b, byte(r))
	}
	return b
}

// FuzzRowJSON checks that JSON is encoded or refused in agreement with encoding/json.
func FuzzRowJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"age":1,"colour":"red"}`, `{"age":"1","colour":null}`,
		`{"age":1e3,"colour":"r\u0065d","y":true}`, `[1]`, `{"age":{}}`, `{"a":1}`,
		` {"age" : -0.5 , "colour":"blue" } `} {
		f.Add([]byte(s))
	}
	e := peopleEncoder()
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := e.Row(in)
		var m map[string]any
		d := json.NewDecoder(strings.NewReader(string(in)))
		d.UseNumber()
		bad := d.Decode(&m)
		if _, extra := d.Token(); bad == nil && extra != io.EOF {
			bad = errors.New("more")
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("error %q without prefix", err)
			}
			return
		}
		if bad != nil {
			t.Fatalf("%q is encoded, though %v", in, bad)
		}
		same, err := e.Row(m)
		if err != nil || !slices.Equal(r.X, same.X) {
			t.Fatalf("%q: %v, as a map %v, %v", in, r, same, err)
		}
	})
}

// FuzzEncoderJSON checks that an Encoder from arbitrary JSON encodes rows or refuses to, without a
// panic.
func FuzzEncoderJSON(f *testing.F) {
	e := peopleEncoder()
	good, err := json.Marshal(e)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	_, churn := churnEncoder(f)
	if good, err = json.Marshal(churn); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, in []byte) {
		var e Encoder
		if err := e.UnmarshalJSON(in); err != nil {
			if !errors.Is(err, pgsvi.ErrFile) && !errors.Is(err, pgsvi.ErrShape) &&
				!errors.Is(err, pgsvi.ErrMemory) {
				t.Fatal(err)
			}
			return
		}
		_ = e.String()
		for _, row := range []any{map[string]any{}, map[string]any{"age": 1, "colour": "red"},
			map[string]any{"age": nil, "colour": "new"}, []byte(`{"age":"x"}`)} {
			if r, err := e.Row(row); err == nil && len(r.X) != len(e.Features()) {
				t.Fatalf("%d features, want %d", len(r.X), len(e.Features()))
			}
		}
		if table, err := Read(strings.NewReader(people), "t"); err == nil {
			_, _ = e.Data(table)
		}
	})
}

func BenchmarkRow(b *testing.B) {
	_, e := churnEncoder(b)
	start := time.Date(2021, 5, 3, 0, 0, 0, 0, time.UTC)
	age, news := 44, "ja"
	rows := map[string]any{
		"map": map[string]any{"Vertragsbeginn": "03.05.2021", "Letzte Anfrage": "2022-01-02",
			"Tarif": "Komfort", "Monatspreis": 29.5,
			"Umsatz gesamt": 1295.25, "Alter": 44.0, "Anrufe": 3.0, "Newsletter": "ja"},
		"texts": map[string]string{"Vertragsbeginn": "03.05.2021", "Letzte Anfrage": "2022-01-02",
			"Tarif": "Komfort", "Monatspreis": "29,50 €",
			"Umsatz gesamt": "1.295,25 €", "Alter": "44", "Anrufe": "3", "Newsletter": "ja"},
		"JSON": []byte(
			`{"Vertragsbeginn":"2021-05-03","Letzte Anfrage":"2022-01-02","Tarif":"Komfort","Monatspreis":29.5,"Umsatz gesamt":1295.25,"Alter":44,"Anrufe":3,"Newsletter":"ja"}`),
		"struct": &customer{start, &start, "Komfort", 29.5, 1295.25, &age, 3, &news, 0},
	}
	for name, row := range rows {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Row(row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("compiled", func(b *testing.B) {
		cells := make([]cell, len(e.state.Columns))
		r := &Encoded{}
		b.ReportAllocs()
		for b.Loop() {
			if err := errors.Join(e.fillFields(cells, rows["map"]), e.row(r, cells)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTable(b *testing.B) {
	for _, g := range generated {
		path := filepath.Join(b.TempDir(), g.name)
		if err := os.WriteFile(path, []byte(g.text), 0o666); err != nil {
			b.Fatal(err)
		}
		table, err := ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		columns := table.Suggest(g.outcome).Columns()
		e, err := table.Encoder(columns...)
		if err != nil {
			b.Fatal(err)
		}
		for what, f := range map[string]func() error{
			"read":   func() error { _, err := ReadFile(path); return err },
			"learn":  func() error { _, err := table.Encoder(columns...); return err },
			"encode": func() error { _, err := e.Data(table); return err },
		} {
			b.Run(g.name+"/"+what, func(b *testing.B) {
				b.SetBytes(int64(len(g.text)))
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
