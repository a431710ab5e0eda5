package data

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// linesOf returns the lines of the rows of a table.
func linesOf(t *testing.T, table *Table) string {
	t.Helper()
	var at []int
	err := table.scan(func(r *record) error { at = append(at, r.line); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(at)
}

// TestLeftOutLines reads tables with lines that are not rows, and checks that the rows keep their
// line numbers.
func TestLeftOutLines(t *testing.T) {
	for _, c := range []struct {
		name   string
		format Format
		text   string
		lines  string
	}{
		{"skip", Format{Skip: 2}, "Report, of 2020\n\"open\na,b\n1,x\n2,y\n", "[4 5]"},
		{"skip blank lines", Format{Skip: 3}, "Report\n\n\na;b\n1;x\n2;y\n", "[5 6]"},
		{"skip without quotes", Format{Skip: 1, NoQuotes: true}, "6\" pipes\na,b\n1,x\n2,y\n",
			"[3 4]"},
		{"skip carriage returns", Format{Skip: 1}, "Report\ra,b\r1,x\r2,y\r", "[3 4]"},
		{"skip with CRLF and a mark", Format{Skip: 1}, "\ufeffReport\r\na,b\r\n1,x\r\n2,y\r\n",
			"[3 4]"},
		{"skip before objects", Format{Skip: 1}, "objects\n{\"a\":1,\"b\":\"x\"}\n" +
			"{\"a\":2,\"b\":\"y\"}\n", "[2 3]"},
		{"skip before a list", Format{Skip: 1}, "objects\n[{\"a\":1,\"b\":\"x\"},\n" +
			"{\"a\":2,\"b\":\"y\"}]\n", "[2 3]"},
		{"comment", Format{Comment: '#'}, "# by hand, 2020\na,b\n1,x\n#2,z\n2,y\n", "[3 5]"},
		{"comment of many signs", Format{Comment: '%'}, "% a;b;c;d\n% e;f;g;h\na,b\n1,x\n2,y\n",
			"[4 5]"},
		{"comment without quotes", Format{Comment: '#', NoQuotes: true},
			"# by hand\na,b\n1,x\n#2,z\n2,y\n", "[3 5]"},
		{"skip-last", Format{SkipLast: 2}, "a,b\n1,x\n2,y\nTotal,\nSource: us\n", "[2 3]"},
		{"skip-last blank", Format{SkipLast: 1}, "a,b\n1,x\n2,y\n\nTotal,\n\n\n", "[2 3]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, err := c.format.Read(strings.NewReader(c.text), "t.csv")
			if err != nil {
				t.Fatal(err)
			}
			if got := linesOf(t, table); got != c.lines ||
				fmt.Sprint(table.Columns()) != "[a b]" {
				t.Errorf("columns %q in lines %s, want a and b in %s", table.Columns(), got,
					c.lines)
			}
			if table.profiles[0].first != "1" || table.profiles[1].first != "x" {
				t.Errorf("first values %q, %q", table.profiles[0].first, table.profiles[1].first)
			}
		})
	}
}

// TestLeftOutLinesErrors checks errors of Skip, SkipLast and Comment, and the lines in errors after
// skipped lines.
func TestLeftOutLinesErrors(t *testing.T) {
	for _, c := range []struct {
		format Format
		text   string
		is     error
		says   string
	}{
		{Format{Skip: -1}, "a,b\n1,2\n", pgsvi.ErrParam, "Format.Skip is -1"},
		{Format{SkipLast: -2}, "a,b\n1,2\n", pgsvi.ErrParam, "Format.SkipLast is -2"},
		{Format{SkipLast: 1 << 20}, "a,b\n1,2\n", pgsvi.ErrParam, "Format.SkipLast is 1048576"},
		{Format{Comment: '\n'}, "a,b\n1,2\n", pgsvi.ErrParam, "Format.Comment is '\\n'"},
		{Format{Comment: ',', Separator: ','}, "a,b\n1,2\n", pgsvi.ErrParam, "Format.Comment"},
		{Format{Skip: 3}, "a,b\n1,2\n", pgsvi.ErrEmpty, "only 2 lines, but Format.Skip is 3"},
		{Format{Skip: 2}, "a,b\n1,2\n", pgsvi.ErrEmpty, "has no rows"},
		{Format{SkipLast: 3}, "a,b\n1,2\n", pgsvi.ErrEmpty, "has no rows"},
		{Format{Comment: '#'}, "{\"a\": 1}\n", pgsvi.ErrParam, "Format.Comment"},
		{Format{SkipLast: 1}, "{\"a\": 1}\n", pgsvi.ErrParam, "Format.SkipLast"},
		{Format{Skip: 2}, "x\ny\na,b\n1,2\n1,2,3\n", pgsvi.ErrShape, "line 5 has 3 fields"},
		{Format{Skip: 2}, "x\ny\na,b\n1,2\n\"1\"2,3\n", pgsvi.ErrShape, "line 5, byte 3"},
		{Format{Skip: 1}, "x\n{\"a\":1}\n{\"a\":[1]}\n", pgsvi.ErrShape, "line 3: field"},
	} {
		if _, err := c.format.Read(strings.NewReader(c.text), "t.csv"); !errors.Is(err, c.is) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v of %q: %v, want %s", c.format, c.text, err, c.says)
		}
	}
}

// TestPredictorFormat checks that a predictor keeps the lines to ignore from a format, but neither
// its separator nor its SkipLast.
func TestPredictorFormat(t *testing.T) {
	var b strings.Builder
	b.WriteString("Report\n# of 2020\nx;y\n")
	for i := range 40 {
		fmt.Fprintf(&b, "%d,5;%d,25\n", i%9, i%7)
	}
	b.WriteString("Total;3\n")
	f := Format{Skip: 1, Comment: '#', SkipLast: 1}
	table, err := f.Read(strings.NewReader(b.String()), "t")
	if err != nil {
		t.Fatal(err)
	}
	_, p := mustFit(t, mustModel(t, table, "y ~ x"), nil)
	if got, want := p.Format(), (Format{Skip: 1, Comment: '#'}); got != want {
		t.Errorf("format %+v, want %+v", got, want)
	}
	fresh, err := p.Format().Read(strings.NewReader("Report\nx\ty\n3.5\t0\n#\n4.5\t0\n"), "new")
	if err != nil {
		t.Fatal(err)
	}
	for a, err := range p.Table(fresh, 0.9) {
		if err != nil {
			t.Error(a, err)
		}
	}
}

// TestTitleLines checks that lines above the names are an error with a remedy, and that the table
// can be read with the remedy.
func TestTitleLines(t *testing.T) {
	for _, c := range []struct {
		name, text string
		skip       int
	}{
		{"one field", "Report of 2020\na,b\n1,x\n2,y\n", 1},
		{"another separator", "Sales, Germany\na;b\n1,5;x\n2,5;y\n", 1},
		{"a semicolon table", "Report\na;b\n1,5;x\n2,5;y\n3,5;z\n", 1},
		{"two lines and a blank one", "Report\nof 2020\n\na;b\n1,5;x\n2,5;y\n", 3},
		{"padded", "Report of 2020,\n,\na,b\n1,x\n2,y\n", 2},
		{"a comma in it", "Report, of 2020\na,b,c,d\n1,x,2,3\n2,y,4,5\n", 1},
		{"quoted", "\"Report, of 2020\"\na,b\n1,x\n2,y\n", 1},
		{"a tab table", "Report\na\tb\n1\tx\n2\ty\n", 1},
		{"no names", "Report\n1,x\n2,y\n3,z\n", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.text), "t.csv")
			if !errors.Is(err, pgsvi.ErrShape) ||
				!strings.Contains(err.Error(), fmt.Sprintf("(-format skip=%d)", c.skip)) {
				t.Fatalf("%v, want skip=%d", err, c.skip)
			}
			f := Format{Skip: c.skip}
			if c.name == "no names" {
				f.Header = FirstLineData
			}
			if table, err := f.Read(strings.NewReader(c.text), "t.csv"); err != nil ||
				table.Len() < 2 || len(table.Columns()) < 2 {
				t.Error(table, err)
			}
		})
	}
	for _, text := range []string{
		"a\n1\n2\n", "text\nhello; you\nand; me\nwho\n", "a,b\n1,x\n2,y\n",
		"name\n\"Smith, J\"\nx\n", "a;b\n\"x\ny\";2\n1;2\n",
	} {
		if _, err := Read(strings.NewReader(text), "t.csv"); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTotalLine checks that a total in the last lines is an error with two remedies, and that the
// table can be read with either.
func TestTotalLine(t *testing.T) {
	for _, c := range []struct {
		text string
		last int // lines to leave out, or 0 if there is no total
	}{
		{"a,b\nx,1\ny,2\nTotal,3\n", 1},
		{"a;b\nx;1\ny;2\nSUMME:;3\n\n", 1},
		{"a,b\n1,1\n2,2\n,Grand total\n", 1},
		{"a,b,c\nx,u,1\ny,v,2\n,Insgesamt,3\nGesamt,,3\n", 2},
		{"a,b,c\nx,u,1\ny,v,2\nTotal,u,3\nTotal,v,3\n", 2},
		{"a,b\nTotal,1\ny,2\nTotal,3\n", 0}, // a level of the column
		{"a,b\nx,1\ny,2\nTotally,3\n", 0},
		{"a,b\nTotal,1\ny,2\n", 0},
		{"a,b\ny,sum\nx,total\n", 0}, // not the first text
	} {
		_, err := Read(strings.NewReader(c.text), "t.csv")
		if c.last == 0 {
			if err != nil {
				t.Errorf("%q: %v", c.text, err)
			}
			continue
		}
		if !errors.Is(err, pgsvi.ErrShape) || !strings.Contains(err.Error(), "t.csv: line ") ||
			!strings.Contains(err.Error(), fmt.Sprintf("-format skip-last=%d", c.last)) {
			t.Errorf("%q: %v, want skip-last=%d", c.text, err, c.last)
		}
		for _, last := range []int{-1, c.last} {
			f := Format{SkipLast: last}
			if _, err := f.Read(strings.NewReader(c.text), "t.csv"); err != nil {
				t.Errorf("%q: %v", c.text, err)
			}
		}
	}
}

// TestFieldsRemedy checks that the error about the number of fields has remedies.
func TestFieldsRemedy(t *testing.T) {
	for text, says := range map[string]string{
		"a,b\n1,2\n3,4\nSource: us\n": "skip-last=1",
		"a,b\n1,2\n3,4,5\n6,7\n":      "to predict the other rows",
	} {
		if _, err := Read(strings.NewReader(text), "t"); !errors.Is(err, pgsvi.ErrShape) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}
