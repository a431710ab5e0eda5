package beam

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// textRows reads a text file with a textReader, in chunks of the given number of lines.
func textRows(name, text string, lines, skip int) (rows []pgsvi.Row, skipped int, err error) {
	a := &adding{Block: 64, Skip: skip}
	if strings.HasSuffix(name, ".ldac") {
		a.Items = docItems
	}
	p := &part{}
	t := &textReader{in: bufio.NewReader(strings.NewReader(text)), parse: a.parser(name), add: a,
		block: blocks{Path: name, To: wholeFile}, part: p, most: lines}
	t.rows(func(r pgsvi.Row, e error) bool {
		if err = e; err == nil {
			rows = append(rows, r)
		}
		return true
	})
	return rows, p.Skipped, err
}

// TestNames checks that only the first line of a CSV file may have names, for any chunks and any
// errors before that line.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		text    string
		rows    int
		skipped int
		line    int // line of the first error
	}{
		{"a,b\n1,2\n3,4\n", 2, 0, 0},
		{"\ufeffa,b\n\n1,2\n3,4\n", 2, 0, 0},
		{"a,b\nx,y\n1,2\n3,4\n", 2, 1, 2},
		{"a,b\nx,y\n1,z\n3,4\n", 1, 2, 2},
		{"1,x\na,b\n1,2\n3,4\n", 2, 2, 1},
		{"1,2\n3,4\na,b\n5,6\n", 3, 1, 3},
		{"a,b,c\n1,2\n3,4\n", 0, 2, 2},
		{"a,b,c\n1,2\n3,4,5\n", 1, 1, 2},
		{"\n\na,b\n\nx,y\n1,2\n", 1, 1, 5},
		{"a,b\n1,2\n\nx,y", 1, 1, 4},
	} {
		for lines := 1; lines <= 7; lines++ {
			rows, skipped, err := textRows("a.csv", c.text, lines, 100)
			if len(rows) != c.rows || skipped != c.skipped || err != nil {
				t.Errorf("%q by %d lines: %d rows, %d skipped, %v; want %d and %d", c.text, lines,
					len(rows), skipped, err, c.rows, c.skipped)
			}
			if c.line == 0 {
				continue
			}
			_, _, err = textRows("a.csv", c.text, lines, 0)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("line %d", c.line)) {
				t.Errorf("%q by %d lines: %v, want line %d", c.text, lines, err, c.line)
			}
		}
	}
	text := "a,b,c,d,e,label\nx,y,z,u,v,w\n" + string(csvOf(labels(600)))
	path := writeTo(t, filepath.Join(t.TempDir(), "names.csv"), []byte(text))
	wants(t, &Job{Paths: []string{path}}, pgsvi.ErrNotFinite, "names.csv", "line 2")
}

// FuzzText reads text in chunks of a few lines. It must not lose a line, it must return the same
// rows as a parser of the whole text, and each error must have its line.
func FuzzText(f *testing.F) {
	for _, text := range []string{"a,b\n1,2\n3,4\n", "a,b\nx,y\n1,2\n", "1,x\na,b\n1,2\n",
		"1,2\n\n3\n",
		"\ufeffa,b\n1,2", "1 1:2 3:4\n-1 2:1\n", "1 2:1 1:1\n", "2 0:1 4:2\n1 3:1\n", "0\n", ""} {
		for kind := range byte(3) {
			f.Add(text, kind, byte(1))
		}
	}
	f.Fuzz(func(t *testing.T, text string, kind, lines byte) {
		name := []string{"a.csv", "a.svm", "a.ldac"}[kind%3]
		csv := kind%3 == 0
		// quotes may contain line ends; a byte order mark or gzip is special only at the beginning
		if len(text) > 4096 || strings.ContainsAny(text, "\"\r\ufeff\x1f\x00") {
			return
		}
		most := int(lines%8) + 1
		rows, _, err := textRows(name, text, most, 0)
		whole, wrong := (&adding{Items: map[bool]itemKind{true: docItems}[kind%3 == 2]}).
			parser(name).parse(strings.NewReader(text))
		if errors.Is(wrong, pgsvi.ErrEmpty) {
			wrong = nil
		}
		if (err == nil) != (wrong == nil) {
			t.Fatalf("by %d lines: %v; whole: %v", most, err, wrong)
		}
		if err != nil && !strings.Contains(err.Error(), "line ") {
			t.Fatalf("no line in %v", err)
		}
		if err == nil && len(rows) != len(whole) {
			t.Fatalf("by %d lines %d rows, whole %d", most, len(rows), len(whole))
		}
		for i := range rows {
			if err == nil && fmt.Sprint(rows[i]) != fmt.Sprint(whole[i]) {
				t.Fatalf("row %d is %v, want %v", i, rows[i], whole[i])
			}
		}
		if !csv {
			return
		}
		rows, skipped, err := textRows(name, text, most, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		count, first := 0, 0 // number of lines that are not blank, and the first of them
		for line := range bytes.Lines([]byte(text)) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			if count++; count == 1 {
				_, _, err := data.ReadCSV(bytes.NewReader(line))
				if errors.Is(err, pgsvi.ErrEmpty) {
					first = 1
				}
			}
		}
		if got := len(rows) + skipped + first; got < count {
			t.Fatalf("%d rows, %d skipped, %d with names of %d lines", len(rows), skipped, first,
				count)
		}
	})
}
