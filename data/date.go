package data

import (
	"slices"
	"strings"
	"time"
)

// dateLayouts holds layouts of dates, with and without a time of day.
var dateLayouts = func() (all []string) {
	for _, d := range []string{"2006-1-2", "2006/1/2", "2006.1.2", "2.1.2006", "2.1.06",
		"1/2/2006", "2/1/2006", "1/2/06", "2/1/06", "2-1-2006", "1-2-2006",
		"2-Jan-2006", "2-Jan-06", "2 Jan 2006", "2 January 2006", "Jan 2, 2006", "January 2, 2006",
		"Jan 2 2006"} {
		all = append(all, d, d+" 15:04", d+" 15:04:05", d+" 3:04 PM", d+" 3:04:05 PM")
	}
	all = append(all, weekLayouts...)
	return append(all, time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04",
		"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 MST", "2006-01", "2006/01", "01/2006",
		"Jan 2006", "January 2006", time.RFC1123, time.RFC1123Z, time.ANSIC, time.UnixDate)
}()

const (
	mostDateText = 40 // bytes of a date
	mostShapes   = 8  // shapes of texts per column that are tried as dates
)

// A dateShape describes the form of texts, ignoring which digits and letters they have. It holds
// the layouts that can read all texts of the form.
type dateShape struct {
	layouts []string
	n       int // number of rows
	example string
}

// dateShapes holds the shapes of the texts of a column.
type dateShapes map[string]*dateShape

// add returns the shape of s, or nil if s is not a date.
func (d dateShapes) add(s string) *dateShape {
	if len(s) > mostDateText || len(s) < 6 || !strings.ContainsAny(s, "0123456789") {
		return nil
	}
	var room [mostDateText]byte
	key := appendShape(room[:0], s)
	shape := d[string(key)]
	if shape == nil {
		if len(d) == mostShapes {
			return nil
		}
		shape = &dateShape{layouts: dateLayouts, example: strings.Clone(s)}
		d[string(key)] = shape
	}
	if len(shape.layouts) == 0 {
		return nil
	}
	if kept := slices.Collect(func(yield func(string) bool) {
		for _, l := range shape.layouts {
			if _, ok := parseLayout(l, s); ok && !yield(l) {
				return
			}
		}
	}); len(kept) > 0 || shape.n == 0 {
		shape.layouts = kept
	} else {
		return nil
	}
	return shape
}

// appendShape appends the shape of s: d for one or two digits, Y for four digits, a for letters.
func appendShape(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		n := i
		for n < len(s) && isDigit(s[n]) {
			n++
		}
		switch n - i {
		case 0:
			letter := s[i] >= 'A'
			if !letter || len(b) == 0 || b[len(b)-1] != 'a' {
				if letter {
					b = append(b, 'a')
				} else {
					b = append(b, s[i])
				}
			}
			n++
		case 1, 2:
			b = append(b, 'd')
		case 4:
			b = append(b, 'Y')
		default:
			b = append(b, 'n')
		}
		i = n
	}
	return b
}

// alive returns the shapes that are dates, the most frequent shape first, and their number of rows.
func (d dateShapes) alive() (all []*dateShape, rows int) {
	for _, s := range d {
		if len(s.layouts) > 0 && s.n > 0 {
			all = append(all, s)
			rows += s.n
		}
	}
	slices.SortFunc(all, func(a, b *dateShape) int {
		if a.n != b.n {
			return b.n - a.n
		}
		return strings.Compare(a.example, b.example)
	})
	return all, rows
}

// dateDigits maps numbers of digits to the layouts of dates that are written as numbers.
var dateDigits = map[int]string{8: "20060102", 12: "200601021504", 14: "20060102150405"}

// Years of dates that are written as numbers. Few quantities are valid dates in these years
// throughout.
const firstYear, lastYear = 1800, 2199

func isDateDigits(s string) bool {
	layout, ok := dateDigits[len(s)]
	if !ok {
		return false
	}
	day, err := time.Parse(layout, s)
	return err == nil && day.Year() >= firstYear && day.Year() <= lastYear
}

// wall returns the local date and time of t, read as UTC, in seconds since 1970.
func wall(t time.Time) float64 {
	y, m, d := t.Date()
	h, mi, s := t.Clock()
	u := time.Date(y, m, d, h, mi, s, t.Nanosecond(), time.UTC)
	return float64(u.Unix()) + float64(u.Nanosecond())/1e9
}

// firstSign returns the first byte that is not a digit, or 0.
func firstSign(s string) byte {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return s[i]
		}
	}
	return 0
}

func parseDate(s string, layouts []string) (seconds float64, ok bool) {
	sign := firstSign(s)
	for _, l := range layouts {
		if k := firstSign(l); k != sign && (k == '.' || k == '/' || k == '-') {
			continue // parsing would fail, and take longer
		}
		if t, ok := parseLayout(l, s); ok {
			return wall(t), true
		}
	}
	return 0, false
}
