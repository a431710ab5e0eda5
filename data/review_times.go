package data

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
)

// This file finds numbers that are dates or times of day, such as 20181231, 201812 and 1745. Such
// numbers cannot be subtracted: 201901 is one month after 201812, not 89.

// monthLayout is the layout of months that are written as numbers.
const monthLayout = "200601"

// isMonthDigits reports whether a text is a month between 1900 and 2099, such as 201812.
func isMonthDigits(s string) bool {
	if len(s) != len(monthLayout) || s[:2] != "19" && s[:2] != "20" {
		return false
	}
	_, err := time.Parse(monthLayout, s)
	return err == nil
}

const (
	fewMonths  = 3    // different numbers below which months are a coincidence
	fewClock   = 30   // values below which times of day may be a coincidence
	fewHours   = 4    // different hours that times of day must have
	accidental = 1e-3 // probability below which times of day are no coincidence
)

// guessTimes adds a problem if the numbers look like dates or times, and reports whether it did.
func (r *reviewer) guessTimes() bool {
	s, days, months := r.s, 0, 0
	layouts := map[string]bool{}
	for text, x := range r.p.texts {
		switch {
		case x.class&whole == 0:
		case isMonthDigits(text):
			months++
		case x.digits:
			layouts[dateDigits[len(text)]] = true
			days++
		}
	}
	most := len(r.p.texts) - len(r.p.texts)/20
	if n := len(r.p.texts); n < 20 {
		most = n
	}
	most -= len(r.p.nines)
	switch {
	case days > 1 && days >= most && len(layouts) == 1:
		for l := range layouts {
			s.Layouts = []string{l}
		}
	case months >= fewMonths && months >= most:
		s.Layouts = []string{monthLayout}
	case r.likeClock():
		r.found("whole numbers that look like times of day, because none ends in 60 to 99")
		r.or("if they are numbers", func(s *spec) {})
		s.Clock = true
		r.when = "if 830 is half past eight"
		return true
	default:
		return false
	}
	r.found("whole numbers that look like dates, such as " + csvQuote(r.p.first))
	r.or("if they are numbers", func(s *spec) { *s = spec{Name: s.Name, Kind: kindNumber} })
	s.Kind = kindDate
	r.when = "if they are dates"
	return true
}

// likeClock reports whether all numbers are times of day, such as 830 and 1745, and are unlikely to
// be so by coincidence.
func (r *reviewer) likeClock() bool {
	if r.p.full || r.numbers < fewClock || r.p.wholes < r.numbers {
		return false
	}
	hours := map[int]bool{}
	late, step := 0, 0
	for text, x := range r.p.texts {
		if !r.isNumber(x) {
			continue
		}
		v, err := strconv.Atoi(text)
		if err != nil || v < 0 || v > 2359 || v%100 > 59 {
			return false
		}
		hours[v/100] = true
		late += b2i(v >= 100)
		for a, b := step, v; ; a, b = b, a%b { // the greatest common divisor
			if b == 0 {
				step = a
				break
			}
		}
	}
	if step == 0 || len(hours) < fewHours {
		return false
	}
	endings := map[int]bool{} // the last two digits of the multiples of step
	for k := range 100 {
		endings[k*step%100] = true
	}
	fit := 0
	for end := range endings {
		fit += b2i(end < 60)
	}
	share := float64(fit) / float64(len(endings))
	return math.Pow(share, float64(late)) < accidental
}

// Clock reads numbers as times of day in hours: 830 is half past eight, so it becomes 8.5.
func (c NumberColumn) Clock() NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Clock = true })}
}

// hours returns the hours of a time of day such as 830. The error wraps ErrParam.
func hours(v float64) (float64, error) {
	h, m := math.Floor(v/100), math.Mod(v, 100)
	if !(v >= 0 && v < 2400 && m < 60 && v == math.Trunc(v)) {
		return 0, fmt.Errorf("%v is not a time of day such as 830 or 1745: %w", v, pgsvi.ErrParam)
	}
	return h + m/60, nil
}

// weekLayouts holds the layouts of ISO weeks. Package time has no notation for weeks, so the
// notation for months stands in. A week is read as the date of its Monday.
var weekLayouts = []string{"2006-W01", "2006W01", "2006-W01-2"}

// anyWeek holds weekLayouts and the layouts that relaxed makes of them.
var anyWeek = append(relaxed(weekLayouts), weekLayouts...)

// isWeekLayout reports whether a layout reads weeks.
func isWeekLayout(layout string) bool {
	return strings.IndexByte(layout, 'W') > 0 && slices.Contains(anyWeek, layout)
}

// parseLayout is like time.Parse but also reads weeks.
func parseLayout(layout, s string) (t time.Time, ok bool) {
	if isWeekLayout(layout) {
		if strings.Count(layout, "-") != strings.Count(s, "-") {
			return t, false
		}
		return parseWeek(s)
	}
	t, err := time.Parse(layout, s)
	return t, err == nil
}

// parseWeek reads an ISO week such as 2018-W52 or 2018W52, or with a day from 1 to 7, 2018-W52-3.
func parseWeek(s string) (t time.Time, ok bool) {
	if len(s) < 7 || strings.Trim(s[:4], "0123456789") != "" {
		return t, false
	}
	rest, dashed := strings.CutPrefix(s[4:], "-")
	day := 1
	if len(rest) == 5 && dashed && rest[3] == '-' && '1' <= rest[4] && rest[4] <= '7' {
		day, rest = int(rest[4]-'0'), rest[:3]
	}
	if len(rest) != 3 || rest[0] != 'W' || !isDigit(rest[1]) || !isDigit(rest[2]) {
		return t, false
	}
	year, _ := strconv.Atoi(s[:4])
	week, _ := strconv.Atoi(rest[1:])
	fourth := time.Date(year, 1, 4, 0, 0, 0, 0, time.UTC) // January 4 is always in week 1
	monday := fourth.AddDate(0, 0, -(int(fourth.Weekday())+6)%7+7*(week-1))
	if y, w := monday.ISOWeek(); y != year || w != week {
		return t, false
	}
	return monday.AddDate(0, 0, day-1), true
}
