package data

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

const people = "age,colour,smokes,ill\n31,red,1,yes\n52,blue,0,no\n40,green,0,yes\n"

// read reads a table from a text.
func read(t testing.TB, text string) *Table {
	t.Helper()
	table, err := Read(strings.NewReader(text), "t.csv")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// encode encodes a table from a text without standardization.
func encode(t testing.TB, text string, columns ...Column) (*Encoder, *Data) {
	t.Helper()
	table := read(t, text)
	e, err := table.Encoder(append(columns, Raw())...)
	if err != nil {
		t.Fatal(err)
	}
	d, err := e.Data(table)
	if err != nil {
		t.Fatal(err)
	}
	return e, d
}

// TestReadPeople reads one table in every supported format.
func TestReadPeople(t *testing.T) {
	names := []string{"age", "colour=green", "colour=red", "smokes"}
	want := mat.NewDense(3, 4, []float64{31, 0, 1, 1, 52, 0, 0, 0, 40, 1, 0, 0})
	for name, in := range map[string]string{
		"plain":       people,
		"no newline":  strings.TrimSpace(people),
		"CRLF":        strings.ReplaceAll(people, "\n", "\r\n"),
		"byte order":  "\ufeff" + people,
		"gzip":        string(zipped([]byte(people))),
		"quoted":      strings.ReplaceAll(people, "red", `"red"`),
		"spaces":      strings.ReplaceAll(people, ",", " ,\t"),
		"blank lines": "\n" + strings.ReplaceAll(people, "\n", "\n  \n\n"),
		"semicolons":  strings.ReplaceAll(people, ",", ";"),
		"tabs":        strings.ReplaceAll(people, ",", "\t"),
		"bars":        strings.ReplaceAll(people, ",", "|"),
		"of Excel":    "sep=;\r\n" + strings.ReplaceAll(people, ",", ";"),
		"missing":     "age,colour,smokes,ill\n31,red,1,yes\n,white,0,no\n52,blue,0,no\n40,NA,0,yes\n40,green,0,yes\n40,green,0,null\n",
		"UTF-16":      utf16Text(people, false),
		"UTF-16BE":    utf16Text("\ufeff"+people, true),
		"JSON": `{"age": 31, "colour": "red", "smokes": 1, "ill": "yes"}
{"colour": "bl\u0075e", "age": 52, "smokes": 0, "ill": "no"}

{"age": 4e1, "smokes": 0, "ill": "yes", "colour": "green"}`,
	} {
		_, d := encode(t, in, Outcome("ill").Positive("yes").Drop(),
			Category("colour").Reference("blue").Drop(), Number("age").Drop())
		if !mat.Equal(d.X, want) || !slices.Equal(d.Y, []float64{1, -1, 1}) {
			t.Errorf("%s: X = %v, Y = %v", name, mat.Formatted(d.X), d.Y)
		}
		if !slices.Equal(d.Names, names) || !slices.Equal(d.Labels, []string{"no", "yes"}) {
			t.Errorf("%s: names %v, labels %v", name, d.Names, d.Labels)
		}
	}
}

func utf16Text(s string, big bool) string {
	var b strings.Builder
	for _, r := range s {
		hi, lo := byte(r>>8), byte(r)
		if !big {
			hi, lo = lo, hi
		}
		b.Write([]byte{hi, lo})
	}
	return b.String()
}

// TestReadErrors checks the error for each kind of invalid file.
func TestReadErrors(t *testing.T) {
	for _, c := range []struct {
		in   string
		f    Format
		want error
		says string
	}{
		{"", Format{}, pgsvi.ErrEmpty, "has no rows"},
		{"a,b,y\n\n", Format{}, pgsvi.ErrEmpty, "has no rows"},
		{"a,b\n1,2,3\n", Format{}, pgsvi.ErrShape, "line 2 has 3 fields, but the first line has 2"},
		{"a,b,a\n1,2,3\n", Format{}, pgsvi.ErrShape, `line 1: two columns are named "a"`},
		{"a,,x2\n1,2,3\n", Format{}, pgsvi.ErrShape, `two columns are named "x2"`},
		{"a,b\n1,\"2\n", Format{}, pgsvi.ErrShape, "line 2"},
		{"a,b\n1,2\"\n", Format{}, csv.ErrBareQuote, "line 2"},
		{"sep=;\na;b\n1;2;3\n", Format{}, pgsvi.ErrShape, "line 3 has 3 fields"},
		{"5.1,3.5,setosa\n", Format{}, pgsvi.ErrParam,
			`line 1 may be names or data, because it has the text "setosa" and the number "3.5"`},
		{"a,b\n1,2\n", Format{Separator: '"'}, pgsvi.ErrParam, "Separator"},
		{"a,b\n1,2\n", Format{Separator: -1}, pgsvi.ErrParam, "Separator"},
		{"a,b\n1,2\n", Format{Decimal: ';'}, pgsvi.ErrParam, "Decimal"},
		{"a,b\n1,2\n", Format{Header: 3}, pgsvi.ErrParam, "Header is 3"},
		{"a,b\n1,2\n", Format{Encoding: "latin1"}, pgsvi.ErrParam, `Encoding is "latin1"`},
		{"a,b\n1,\xfc\n", Format{Encoding: UTF8}, pgsvi.ErrShape, "not UTF-8"},
		{"a,ü\n1,\xfc\n", Format{}, pgsvi.ErrShape, `line 2`},
		{"{\"a\": 1}\n{\"a\": [1]}\n", Format{}, pgsvi.ErrShape,
			`line 2: field "a": the value is an object or a list`},
		{"{\"a\": 1}\n{\"a\": 1, \"a\": 2}\n", Format{}, pgsvi.ErrShape,
			`line 2: field "a" occurs twice`},
		{"{\"a\": 1}\n\n{\"a\": 1\n", Format{}, pgsvi.ErrShape, "line 3: byte 8"},
		{"{\"a\": 1}\n{\"a\": 1e999}\n", Format{}, pgsvi.ErrNotFinite,
			`line 2: field "a": "1e999"`},
	} {
		table, err := c.f.Read(strings.NewReader(c.in), "t.csv")
		if table != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) ||
			!strings.HasPrefix(err.Error(), "pgsvi: t.csv: ") && !strings.Contains(err.Error(),
				"Format.") {
			t.Errorf("%q: %v, error %q, want %q that is %q", c.in, table, err, c.says, c.want)
		}
	}
	table, err := Format{NoQuotes: true}.Read(strings.NewReader("\na;b\n6\" pipe;1\n\"x;2\n5\";3"),
		"t.csv")
	if err != nil || table.Len() != 3 || !slices.Equal(table.profiles[0].examples(3),
		[]string{`6" pipe`, `"x`, `5"`}) {
		t.Errorf("no quotes: %v, %v", table, err)
	}
	_, err = Format{NoQuotes: true}.Read(strings.NewReader("a;b\n\n6\" pipe;1;2\n"), "t.csv")
	if !errors.Is(err, pgsvi.ErrShape) || !strings.Contains(err.Error(), "line 3 has 3 fields") {
		t.Errorf("no quotes: %v", err)
	}
	if _, err := Read(io.MultiReader(strings.NewReader("a,b\n3,"),
		iotest.ErrReader(io.ErrClosedPipe)), "t"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing reader: %v", err)
	}
}

// TestTableVisible checks that names cannot break printed lines or control a terminal.
func TestTableVisible(t *testing.T) {
	text := "\"two\nlines\",\"a\ttab\",\x1b[2J,y\n1.5,2.5,a,no\n2.5,4.5,b,yes\n3.5,4.5,a,no\n"
	table, err := Read(strings.NewReader(text), "my\n\x1b[31mfile")
	if err != nil {
		t.Fatal(err)
	}
	e, err := table.Encoder(Outcome("y").Positive("yes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{table.String(), e.String()} {
		for _, want := range []string{`two\nlines`, `a\ttab`, `\x1b[2J`, `my\n\x1b[31mfile: `} {
			if !strings.Contains(text, want) || strings.ContainsAny(text, "\x1b\t") {
				t.Errorf("no %s in %q", want, text)
			}
		}
	}
	_, err = Read(strings.NewReader("x,y\n1\n"), "my\n\x1b[31mfile")
	if err == nil || !strings.Contains(err.Error(), `my\n\x1b[31mfile: `) {
		t.Errorf("%q", err)
	}
}
