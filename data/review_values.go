package data

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
)

// This file finds numbers that may mean a missing value, such as -999, and other values that only
// look like numbers. review calls it for each column.

// mostNines is the number of different texts of nines that a profile keeps.
const mostNines = 32

// isNines reports whether a text is a number whose digits are all nines, such as -999, 99 or
// 999.90. Survey programs and instruments write such numbers for missing values.
func isNines(s string) bool {
	first := 0
	for first < len(s) && !isDigit(s[first]) {
		first++
	}
	if first == len(s) || s[first] != '9' {
		return false
	}
	s = strings.TrimLeft(strings.TrimPrefix(s, "−"), "+-")
	if at := strings.IndexAny(s, ".,"); at >= 0 {
		if s = s[:at] + strings.TrimRight(s[at+1:], "0"); at == 0 {
			return false
		}
	}
	return s != "" && strings.Trim(s, "9") == ""
}

// A span holds the smallest and the largest number of a column, without numbers made of nines.
type span struct{ lo, hi float64 }

// spread adds a new text and its values to the spans of a profile.
func (p *profile) spread(s *seen, text string, values [2]float64) {
	if s.class&limit != 0 || s.class&(asPoint|asComma) == 0 {
		return
	}
	if isNines(text) {
		if len(p.nines) < mostNines {
			if p.nines == nil {
				p.nines = map[string]*seen{}
			}
			p.nines[strings.Clone(text)] = s
		}
		return
	}
	if p.spans == nil {
		none := span{math.Inf(1), math.Inf(-1)}
		p.spans = &[2]span{none, none}
	}
	for k, way := range []class{asPoint, asComma} {
		if s.class&way != 0 {
			p.spans[k] = span{min(p.spans[k].lo, values[k]), max(p.spans[k].hi, values[k])}
		}
	}
}

const (
	fewForNines = 20 // rows below which a single number made of nines is not suspicious
	sureNines   = 99 // absolute value from which a single row may be suspicious
	onceFar     = 20 // distance of such a row from all others, in ranges of the others
)

// far reports whether v, a number made of nines in n rows, is far from all other numbers.
func (r *reviewer) far(v float64, n int, others span) bool {
	width := others.hi - others.lo
	switch {
	case !(width >= 0): // there is no other number
		return false
	case r.values >= fewForNines && math.Abs(v) >= sureNines &&
		(v < others.lo-onceFar*width || v > others.hi+onceFar*width): // suspicious even in one row
		return width > 0
	case v < 0 && others.lo >= 0: // the only negative numbers
		return n > 1 && v < others.lo-width/100 || v <= -sureNines && r.values >= fewForNines
	case v < 0:
		return n > 1 && v <= others.lo-width
	case v < 10: // counts also have such values
		top := r.p.texts[plainFloat(others.hi)]
		return n > 1 && v >= others.hi+width && (width <= 1 || top != nil && n > top.n)
	}
	return n > 1 && v >= others.hi+max(width, 1)
}

// checkNines adds a problem if numbers made of nines are far from all other numbers.
func (r *reviewer) checkNines() {
	s := r.s
	switch s.Kind {
	case kindNumber, kindExposure, kindOffset, kindWeight, kindPrecision, kindTrials:
	case kindOutcome:
		if !r.isNumeric() {
			return
		}
	default:
		return
	}
	if r.p.spans == nil || s.Kind == kindNumber && r.why == whyDeclared && r.hopeless {
		return
	}
	others := r.p.spans[b2i(r.decimal == ',')]
	counts := map[string]int{}
	for text, x := range r.p.nines {
		_, gap := r.gaps[text]
		v, _, ok := numberOf(text, r.decimal)
		if ok && !gap && !slices.Contains(s.NotNA, text) && r.far(v, x.n, others) {
			counts[text] = x.n
		}
	}
	if len(counts) == 0 {
		return
	}
	r.found(fmt.Sprintf("%s %s far from all other values, %s to %s, and may mean missing",
		countsText(counts, fewListed), map[bool]string{true: "is", false: "are"}[len(counts) == 1],
		plainFloat(others.lo), plainFloat(others.hi)))
	texts := slices.Sorted(maps.Keys(counts))
	r.or("if it is a number", func(s *spec) { s.NotNA = append(s.NotNA, texts...) })
	s.NA = append(s.NA, texts...)
	for text, n := range counts {
		r.gaps[text] = n
		r.missing += n
		r.values -= n
		r.numbers -= n
	}
	if r.when == "" {
		r.when = "if that means missing"
	}
}

// plainFloat formats a number without an exponent, unless it is very large or very small.
func plainFloat(v float64) string {
	if a := math.Abs(v); a >= 1e15 || a > 0 && a < 1e-6 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// NotMissing declares numbers, such as "999", that are values although they look like codes for a
// missing value.
func (c NumberColumn) NotMissing(texts ...string) NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.NotNA = append(s.NotNA, texts...) })}
}

// NotMissing declares numbers that are values; see NumberColumn.NotMissing.
func (c OutcomeColumn) NotMissing(texts ...string) OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.NotNA = append(s.NotNA, texts...) })}
}

// NotMissing declares numbers that are values; see NumberColumn.NotMissing.
func (c ScaleColumn) NotMissing(texts ...string) ScaleColumn {
	return ScaleColumn{c.with(func(s *spec) { s.NotNA = append(s.NotNA, texts...) })}
}

// checkTurned adds a problem about numbers such as "(5)" and "5-", unless other values show that
// these are negative. They may also be items of a numbered list, or school grades such as "2-".
func (r *reviewer) checkTurned() {
	p := r.p
	if p.turns == 0 || p.turns < r.numbers && p.clearTurns > 0 {
		return
	}
	r.found(fmt.Sprintf("%s such as %s, which may be negative",
		plural(p.turns, "number"), csvQuote(p.turnedText())))
	r.or("if not", func(s *spec) { *s = spec{Name: s.Name, Kind: kindCategory} })
	r.when = "if they are negative"
}

// turnedText returns the first text such as "(5)".
func (p *profile) turnedText() string {
	for _, text := range p.examples(len(p.texts)) {
		if p.texts[text].class&turned != 0 {
			return text
		}
	}
	return p.first
}

// fewUnits is the number of different values with a unit from which they are probably numbers, not
// levels.
const fewUnits = 3

// hasUnit reports whether a column has numbers with a unit. It has the given number of levels, and
// the unit in the given number of rows.
func (r *reviewer) hasUnit(levels, rows int) bool {
	return levels > surelyFew && 10*rows >= 8*r.values || levels >= fewUnits && rows == r.values
}

// unsettled returns an error if a text is one number with a decimal comma and another number with a
// decimal point. The training data of the column do not show which sign is the decimal sign.
func unsettled(text string) error {
	if !strings.ContainsAny(text, ".,") {
		return nil
	}
	point, _, isPoint := numberOf(text, '.')
	comma, _, isComma := numberOf(text, ',')
	if !isPoint || !isComma || point == comma {
		return nil
	}
	return fmt.Errorf("%s may be %s or %s, because no number in training shows the decimal sign; "+
		"write it without groups, or fit with Decimal: %w", csvQuote(text), plainFloat(comma),
		plainFloat(point), pgsvi.ErrNotFinite)
}

// numbers reports whether the values of a column are numbers.
func (c *column) numbers() bool {
	switch c.Kind {
	case kindNumber, kindExposure, kindOffset, kindWeight, kindPrecision, kindTrials:
		return true
	}
	return c.Kind == kindOutcome && c.Numeric
}

// isNumberGap reports whether a number means a missing value, however it is written: -999 and
// -999.0 are the same number.
func (c *column) isNumberGap(v *cell) bool {
	if len(c.gaps) == 0 || !c.numbers() {
		return false
	}
	x, err := c.plainValue(v)
	return err == nil && slices.Contains(c.gaps, x)
}
