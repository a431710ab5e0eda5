package data

import (
	"encoding/csv"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
)

// A csvRecord is a record of the readers that are compared.
type csvRecord struct {
	line   int
	fields string // quoted, with the spaces around fields cut off
	err    string
}

func recordOf(fields []string, line int, err error) csvRecord {
	if err != nil {
		return csvRecord{err: err.Error()}
	}
	trimmed := make([]string, len(fields))
	for j, f := range fields {
		trimmed[j] = strconv.Quote(strings.TrimSpace(f))
	}
	return csvRecord{line: line, fields: strings.Join(trimmed, " ")}
}

// encodingCSV reads a text with encoding/csv.
func encodingCSV(text string, f Format) (all []csvRecord) {
	r := csv.NewReader(strings.NewReader(text))
	r.Comma, r.Comment, r.FieldsPerRecord = f.Separator, f.Comment, -1
	r.TrimLeadingSpace = !unicode.IsSpace(f.Separator)
	for {
		fields, err := r.Read()
		if err == io.EOF {
			return all
		}
		line := 0
		if err == nil {
			line, _ = r.FieldPos(0)
		}
		all = append(all, recordOf(fields, line, err))
		if err != nil {
			return all
		}
	}
}

// TestSplitter compares the splitter with encoding/csv on random texts of all relevant characters.
func TestSplitter(t *testing.T) {
	parts := []string{"a", "b1", `"`, `"x"`, `"u,v"`, `"p""q"`, "\"m\nn\"", " ", "\t", "\r", "\n",
		"\r\n", "\n\n", ",", ",", ";", "#", "é", "\u00a0", "§", strings.Repeat("long", 2000)}
	rnd := rand.New(rand.NewPCG(1, 2))
	quick, read := 0, 0
	for range 20000 {
		var b strings.Builder
		for range rnd.IntN(14) {
			b.WriteString(parts[rnd.IntN(len(parts)-b2i(rnd.IntN(20) > 0))])
		}
		text := b.String()
		f := Format{Separator: []rune(",;\t§")[rnd.IntN(4)], Comment: []rune{0, '#'}[rnd.IntN(2)]}
		want := encodingCSV(text, f)
		var r io.Reader = strings.NewReader(text)
		if rnd.IntN(2) == 0 {
			r = iotest.HalfReader(iotest.DataErrReader(r))
		}
		s := newSplitter(newRecordReader(r), f)
		for _, w := range want {
			fields, line, err := s.read()
			if got := recordOf(fields, line, err); got != w {
				t.Fatalf("%q, separator %q, comment %q:\n%+v, want\n%+v", text, f.Separator,
					f.Comment, got, w)
			}
		}
		if n := len(want); n == 0 || want[n-1].err == "" {
			if _, _, err := s.read(); err != io.EOF {
				t.Fatalf("%q: %v after the last record", text, err)
			}
		}
		quick, read = quick+s.lines-s.csvLines, read+s.lines
	}
	if 3*quick < read {
		t.Errorf("the splitter splits %d of %d lines by itself; want a third of them", quick, read)
	}
}

// TestSplitterFails checks that an error of the reader comes after the records before it, and that
// a reader without progress is an error.
func TestSplitterFails(t *testing.T) {
	broken := errors.New("broken")
	text := io.MultiReader(strings.NewReader("1,2\n3,\"4\"\n5,"), iotest.ErrReader(broken))
	s := newSplitter(newRecordReader(text), Format{Separator: ','})
	for line := 1; line <= 2; line++ {
		if _, at, err := s.read(); err != nil || at != line {
			t.Fatalf("line %d: %d, %v", line, at, err)
		}
	}
	if _, _, err := s.read(); err != broken {
		t.Errorf("%v, want %v", err, broken)
	}
	s = newSplitter(newRecordReader(idle{}), Format{Separator: ','})
	if _, _, err := s.read(); err != io.ErrNoProgress {
		t.Errorf("%v, want %v", err, io.ErrNoProgress)
	}
}

// idle is a reader that never returns anything.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// TestScanDecimal compares scanDecimal with the slower functions that it replaces.
func TestScanDecimal(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	signs := []string{"", "", "-", "+", "--"}
	digits := func(most int) string {
		b := make([]byte, rnd.IntN(most+1))
		for i := range b {
			b[i] = '0' + byte(rnd.IntN(10))
		}
		return string(b)
	}
	scanned := 0
	for range 100000 {
		s := signs[rnd.IntN(len(signs))] + digits(5)
		if rnd.IntN(3) > 0 {
			s += string(".,"[rnd.IntN(2)]) + digits(14)
		}
		if rnd.IntN(20) == 0 {
			s += string(",.e-"[rnd.IntN(4)]) + digits(3)
		}
		d, ok := scanDecimal(s)
		if !ok {
			continue
		}
		scanned++
		for _, sign := range []byte(".,") {
			if d.sign != 0 && d.sign != sign {
				continue
			}
			v, err := strconv.ParseFloat(strings.Replace(s, ",", ".", 1), 64)
			if err != nil || v != d.value {
				t.Fatalf("%q: %v, want %v (%v)", s, d.value, v, err)
			}
		}
		if d.grouped() {
			continue
		}
		// Units take the slower path.
		c, values := d.classify()
		want, unit, wantValues := classifyValues(s + "%")
		if strings.HasSuffix(s, "-") || s == "" {
			continue
		}
		if c != want || unit != "%" || values != wantValues {
			t.Fatalf("%q: %b and %v, want %b and %v", s, c, values, want, wantValues)
		}
	}
	if scanned < 50000 {
		t.Errorf("%d texts were scanned; want most of them", scanned)
	}
}
