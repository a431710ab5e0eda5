package data

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strings"

	"github.com/pgsvi/pgsvi"
)

// This file finds lines around a table that are not rows: a title above the names, and totals in
// the last lines. Spreadsheets write both. A title would be read as names of columns, or hide the
// separator, and a total would be a row that is larger than all others. newScanner calls
// checkTitle, and Table.profile calls checkTail.

const (
	mostTitle  = 20  // most lines of a title
	titleLines = 200 // lines in which to look for a title
)

// A title describes the lines above the names of a table.
type title struct {
	first     string // its first field
	line      int    // line of the names
	width     int    // number of fields in a row
	separator rune
}

// findTitle returns the title in the first lines of a table, or nil. Each line of a title has text
// in at most one field, or has at most half as many fields as the lines below. All lines below must
// have the same number of fields. If several separators are possible, the separator with the
// shortest title is used.
func findTitle(head []byte, f Format, separators string) (best *title) {
	for _, c := range separators {
		cr := csv.NewReader(bytes.NewReader(head))
		cr.Comma, cr.Comment, cr.FieldsPerRecord, cr.LazyQuotes = c, f.Comment, -1, true
		var widths, texts, lines []int
		first := ""
		for len(widths) < titleLines {
			rec, err := cr.Read()
			if err != nil {
				break
			}
			if len(widths) == 0 {
				first = strings.TrimSpace(rec[0])
			}
			n := 0
			for _, field := range rec {
				n += b2i(strings.TrimSpace(field) != "")
			}
			if len(rec) == 2 && strings.TrimSpace(rec[0]) == "" {
				n++ // the row names of R have no name, and a title is in the first field
			}
			line, _ := cr.FieldPos(0)
			widths, texts, lines = append(widths, len(rec)), append(texts, n), append(lines, line)
		}
		if n := len(widths); n >= 2 {
			k := titleEnd(widths, texts, widths[n-1])
			if k > 0 && k < n-1 && (best == nil || lines[k] < best.line) {
				best = &title{first, lines[k], widths[n-1], c}
			}
		}
	}
	return best
}

// titleEnd returns the number of records above the names if each row has width fields. It returns 0
// if there is no title.
func titleEnd(widths, texts []int, width int) int {
	k := 0
	for k < len(widths) && k <= mostTitle && width > 1 &&
		(texts[k] <= 1 && k < mostTitle || 2*widths[k] <= width) {
		k++
	}
	for _, w := range widths[k:] {
		if w != width {
			return 0
		}
	}
	return k
}

// checkTitle returns an error if the table has a title above the names. The first line alone cannot
// show whether it is a title or the name of a single column, so the lines below have to differ from
// it.
func (s *scanner) checkTitle(head []byte) error {
	if s.format.Header != FindHeader || s.format.unchecked {
		return nil
	}
	if len(head) == sniffed {
		head = head[:bytes.LastIndexByte(head, '\n')+1]
	}
	separators := string(s.format.Separator)
	if s.sniffed && !evenly(head, s.format) {
		separators += "\t;|,"
	}
	found := findTitle(head, s.format, separators)
	if found == nil {
		return nil
	}
	at := found.line - 1 + s.skipped
	return fmt.Errorf("pgsvi: line %d has %s, which looks like a title, because line %d and all "+
		"lines below have %d fields with the separator %q; set Format.Skip (-format skip=%d) to "+
		"skip it, or set Format.Header (-format header=yes) if it is a name: %w",
		s.skipped+1, csvQuote(found.first), at+1, found.width, found.separator, at, pgsvi.ErrShape)
}

// evenly reports whether all first lines have the same number of fields, which must be more than 1.
func evenly(head []byte, f Format) bool {
	cr := csv.NewReader(bytes.NewReader(head))
	cr.Comma, cr.Comment, cr.FieldsPerRecord, cr.LazyQuotes = f.Separator, f.Comment, -1, true
	cr.ReuseRecord = true
	width := 0
	for range titleLines {
		rec, err := cr.Read()
		if err != nil {
			break
		}
		if width == 0 {
			width = len(rec)
		}
		if len(rec) != width {
			return false
		}
	}
	return width > 1
}

// totals holds texts that a line of totals begins with.
var totals = map[string]bool{"total": true, "totals": true, "grand total": true, "sum": true,
	"sums": true, "summe": true, "gesamt": true, "gesamtsumme": true, "insgesamt": true,
	"average": true, "durchschnitt": true, "mittelwert": true}

// longestTotal is the length of the longest text in totals plus a colon, in bytes.
const longestTotal = 13

// A tail describes the last lines of a table if they look like totals.
type tail struct {
	text       string
	line, rows int
	all        int // number of such lines in the whole table
}

// add adds a row. A row that is not a total ends the tail.
func (t *tail) add(rec *record) {
	for _, c := range rec.cells {
		if c.kind != textCell || c.s == "" || !isLetter(c.s[0]) {
			continue
		}
		if len(c.s) <= longestTotal && mayBeTotal(c.s[0]) &&
			totals[strings.TrimSuffix(fold(c.s), ":")] {
			t.all++
			if t.rows++; t.rows == 1 {
				t.text, t.line = strings.Clone(c.s), rec.line
			}
			return
		}
		break
	}
	t.rows = 0
}

// mayBeTotal reports whether one of totals begins with this letter.
func mayBeTotal(first byte) bool {
	return first >= 0x80 || strings.IndexByte("tgsiadm", first|0x20) >= 0
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' || b >= 0x80 }

// checkTail returns an error if the last lines of a table are totals. If rows above have such a
// text, the text is a level of its column.
func (t *Table) checkTail(last *tail) error {
	if last.rows == 0 || last.rows == t.rows || last.rows < last.all || t.Format.JSON ||
		t.Format.SkipLast != 0 {
		return nil
	}
	return fmt.Errorf("pgsvi: line %d looks like a total, because it begins with %s; set "+
		"Format.SkipLast (-format skip-last=%d) to skip it, or set SkipLast to -1 (-format "+
		"skip-last=no) if it is a row: %w", last.line, csvQuote(last.text), last.rows,
		pgsvi.ErrShape)
}
