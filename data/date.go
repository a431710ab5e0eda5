package data

import (
	"slices"
	"strings"
	"time"
)

// dateLayouts are ways to write dates, with or without the time of day.
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
	mostShapes   = 8  // shapes of texts of a column that are tried as dates
)

// A dateShape is how texts are written, digits and letters left out, and the layouts by which every
// one of them can be read.
type dateShape struct {
	layouts []string
	n       int // rows
	example string
}

// dateShapes are those of the texts of a column.
type dateShapes map[string]*dateShape

// add returns the shape of s, or nil if it is no date.
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

// appendShape appends s with d for one or two digits, Y for four, and a for letters.
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

// alive returns the shapes that are dates, those of the most rows first, and how many rows they
// have.
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

// dateDigits are the layouts of dates that are numbers, by their number of digits.
var dateDigits = map[int]string{8: "20060102", 12: "200601021504", 14: "20060102150405"}

// Of dates; few quantities are all of 8 digits and all days of these years.
const firstYear, lastYear = 1800, 2199

func isDateDigits(s string) bool {
	layout, ok := dateDigits[len(s)]
	if !ok {
		return false
	}
	day, err := time.Parse(layout, s)
	return err == nil && day.Year() >= firstYear && day.Year() <= lastYear
}

// wall returns what the clock on the wall says, in seconds since 1970.
func wall(t time.Time) float64 {
	y, m, d := t.Date()
	h, mi, s := t.Clock()
	u := time.Date(y, m, d, h, mi, s, t.Nanosecond(), time.UTC)
	return float64(u.Unix()) + float64(u.Nanosecond())/1e9
}

// firstSign returns the first byte that is no digit, or 0.
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
			continue // as parsing it would fail at a price
		}
		if t, ok := parseLayout(l, s); ok {
			return wall(t), true
		}
	}
	return 0, false
}
