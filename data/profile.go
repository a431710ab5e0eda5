package data

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	mostTexts    = 5000    // different texts kept per column
	allTexts     = 1 << 18 // different texts kept in all columns together
	fewestTexts  = 64      // texts kept per column in any case
	mostOdd      = 50      // texts kept that are neither numbers nor dates
	mostTextSize = 1 << 12 // largest size of a text that is kept, in bytes
)

// A profile holds what one pass finds out about a column, in bounded memory.
type profile struct {
	name     string
	nameless bool
	rows     int
	gaps     map[string]int   // rows by text that means a missing value
	gapLine  int              // line of the first of them; 0 if unknown
	texts    map[string]*seen // all other texts
	most     int              // largest number of texts
	full     bool             // whether the column has more texts
	fullAt   int              // rows with a value before the first text that was not kept
	odd      map[string]*seen // texts that are neither numbers nor dates
	oddFull  bool
	dates    dateShapes
	units    map[string]*int // numbers of rows, "" for no unit
	unit     struct {        // unit of the last number
		name string
		rows *int
	}
	spare seen // result for a text that is not kept
	bytes int
	first string // first value

	numbers                    [2]int // rows that are numbers with a point, with a comma
	points, commas, ambiguous  int    // numbers with a point, a comma, either
	wholes, zeroLed, longs     int
	turns, clearTurns          int // numbers such as "(5)"; those that cannot be anything else
	limits, dateDigits, values int
	proof                      [2]proof         // for the point, for the comma
	doubtful                   string           // first value that can be read in two ways
	nines                      map[string]*seen // texts that are numbers made of nines
	spans                      *[2]span         // range of other numbers, with a point or comma
	rising                     bool
	counted                    bool // whether the values number the rows of the complete table
	begin, last                int64
}

// A proof is a value that shows the decimal sign.
type proof struct {
	text string
	line int
}

// seen describes a text of a column.
type seen struct {
	n, line int
	class   class
	shape   *dateShape
	unit    string
	digits  bool // whether these are the digits of a date
}

func newProfile(name string, most int) *profile {
	return &profile{name: name, most: most, rising: true, last: -1 << 63}
}

// missing returns the number of rows without a value.
func (p *profile) missing() (n int) {
	for _, k := range p.gaps {
		n += k
	}
	return n
}

// skip counts rows that lack the column.
func (p *profile) skip(rows int) {
	if rows > 0 {
		if p.gaps == nil {
			p.gaps = map[string]int{}
		}
		p.gaps[""] += rows
		p.rows += rows
	}
}

// add counts the value of a row.
func (p *profile) add(c cell, line int) {
	if c.kind == absentCell || c.kind == nullCell || c.kind == textCell && isMissing(c.s) {
		if p.gaps == nil {
			p.gaps, p.gapLine = map[string]int{}, line
		}
		p.rows++
		if _, ok := p.gaps[c.s]; !ok {
			c.s = strings.Clone(c.s)
		}
		p.gaps[c.s]++
		return
	}
	p.rows++
	p.values++
	p.bytes += len(c.s)
	s := p.texts[c.s]
	if s == nil && p.odd != nil {
		s = p.odd[c.s]
	}
	if s == nil {
		s = p.meet(c, line)
	}
	s.n++
	if s.shape != nil {
		s.shape.n++
	}
	p.count(s, c.s, line)
	if p.rising {
		n, err := strconv.ParseInt(c.s, 10, 64)
		if p.values == 1 {
			p.begin = n
		}
		p.rising, p.last = err == nil && n > p.last, n
	}
}

// meet classifies a new text and keeps it if there is room.
func (p *profile) meet(c cell, line int) *seen {
	if p.full && p.meetDecimal(c) {
		return &p.spare
	}
	s := &seen{line: line}
	values := [2]float64{c.f, c.f}
	switch c.kind {
	case numberCell:
		s.class = asPoint | asComma
		if k, _ := classify(c.s); k&whole != 0 {
			s.class = k
		}
	case textCell:
		s.class, s.unit, values = classifyValues(c.s)
	}
	if s.class&(asPoint|asComma) == 0 || s.class&(asPoint|asComma|limit) == asPoint &&
		strings.Count(c.s, ".") > 1 {
		if p.dates == nil {
			p.dates = dateShapes{}
		}
		s.shape = p.dates.add(c.s)
	}
	p.spread(s, c.s, values)
	s.digits = s.class&whole != 0 && isDateDigits(c.s)
	if p.texts == nil {
		p.texts, p.first = map[string]*seen{}, strings.Clone(c.s)
	}
	text := c.s
	if len(text) > mostTextSize {
		p.overflow()
	} else if !p.full {
		if len(p.texts) == p.most {
			p.overflow()
		} else {
			text = strings.Clone(text)
			p.texts[text] = s
		}
	}
	if s.class&(asPoint|asComma) == 0 && s.shape == nil && len(text) <= mostTextSize {
		switch {
		case len(p.odd) == mostOdd:
			p.oddFull = true
		case p.odd == nil:
			p.odd = map[string]*seen{}
			fallthrough
		default:
			p.odd[strings.Clone(text)] = s
		}
	}
	return s
}

// meetDecimal is like meet for a common number that is not kept. It stores the result in p.spare,
// or returns false for any other text.
func (p *profile) meetDecimal(c cell) bool {
	d, ok := scanDecimal(c.s)
	if !ok || c.kind != textCell || d.grouped() || isNines(c.s) {
		return false
	}
	k, values := d.classify()
	p.spare = seen{class: k, digits: k&whole != 0 && isDateDigits(c.s)}
	p.spread(&p.spare, c.s, values)
	return true
}

func (p *profile) overflow() {
	if !p.full {
		p.full, p.fullAt = true, p.values-1
	}
}

// count adds a row with a text to the counts.
func (p *profile) count(s *seen, text string, line int) {
	k := s.class
	if k&limit != 0 {
		p.limits++
	} else {
		if k&asPoint != 0 {
			p.numbers[0]++
		}
		if k&asComma != 0 {
			p.numbers[1]++
		}
	}
	if k&signed != 0 {
		switch {
		case k&asComma == 0:
			p.points++
			p.prove(0, text, line)
		case k&asPoint == 0:
			p.commas++
			p.prove(1, text, line)
		default:
			p.ambiguous++
			if p.doubtful == "" {
				p.doubtful = strings.Clone(text)
			}
		}
	}
	if k&turned != 0 {
		p.turns++
		p.clearTurns += b2i(k&whole == 0 || text[0] == '(')
	}
	if k&whole != 0 {
		p.wholes++
	}
	if k&zeroLed != 0 {
		p.zeroLed++
	}
	if k&long != 0 {
		p.longs++
	}
	if s.digits {
		p.dateDigits++
	}
	if k&(asPoint|asComma) != 0 {
		p.countUnit(s.unit)
	}
}

// mostUnits is the number of units that are counted per column.
const mostUnits = 8

// countUnit counts a number with a unit.
func (p *profile) countUnit(unit string) {
	if p.unit.rows == nil || p.unit.name != unit {
		rows := p.units[unit]
		if rows == nil {
			if len(p.units) == mostUnits {
				return
			}
			if p.units == nil {
				p.units = map[string]*int{}
			}
			rows = new(int)
			p.units[unit] = rows
		}
		p.unit.name, p.unit.rows = unit, rows
	}
	*p.unit.rows++
}

// unitCounts returns the number of rows of each unit.
func (p *profile) unitCounts() map[string]int {
	counts := make(map[string]int, len(p.units))
	for unit, rows := range p.units {
		counts[unit] = *rows
	}
	return counts
}

func (p *profile) prove(sign int, text string, line int) {
	if p.proof[sign].text == "" {
		p.proof[sign] = proof{strings.Clone(text), line}
	}
}

// levels returns the number of different texts, which is a lower bound if full is true.
func (p *profile) levels() int { return len(p.texts) }

// repeats reports whether the texts identify groups of rows, rather than single rows.
func (p *profile) repeats() bool {
	rows := p.values
	if p.full {
		rows = p.fullAt
	}
	return 10*p.levels() < 8*rows
}

// allDifferent reports whether no text occurs twice.
func (p *profile) allDifferent() bool {
	if p.full {
		return p.fullAt == p.most
	}
	return len(p.texts) == p.values
}

// counts reports whether the values are whole numbers that number the rows.
func (p *profile) counts() bool {
	return p.counted || p.rising && p.values > 1 && p.missing() == 0 && p.last-p.begin == int64(p.values)-1 &&
		(p.begin == 0 || p.begin == 1)
}

// suffix returns the most frequent text after numbers, such as "m2" in "35 m2", and its number of
// rows among the texts kept. It ignores known units.
func (p *profile) suffix() (best string, rows int) {
	counts := map[string]int{}
	for text, s := range p.texts {
		if s.class != 0 || s.shape != nil && len(s.shape.layouts) > 0 {
			continue
		}
		if number, unit := cutUnit(text); unit != "" {
			if k, _ := classify(number); k&(asPoint|asComma) != 0 {
				counts[unit] += s.n
			}
		}
	}
	for unit, n := range counts {
		if n > rows || n == rows && unit < best {
			best, rows = unit, n
		}
	}
	return best, rows
}

// cutUnit splits a text after the last digit of the number at its beginning.
func cutUnit(text string) (number, unit string) {
	end := 0
	for i, r := range text {
		if r >= utf8.RuneSelf || unicode.IsLetter(r) {
			break
		}
		if isDigit(byte(r)) {
			end = i + 1
		}
	}
	return text[:end], strings.TrimSpace(text[end:])
}

// without returns the profile of a column without its unit, made from the texts kept.
func (p *profile) without(unit string) *profile {
	q := newProfile(p.name, p.most)
	q.gaps, q.gapLine = maps.Clone(p.gaps), p.gapLine
	q.rows = p.missing()
	for _, text := range p.examples(len(p.texts)) {
		s := p.texts[text]
		number := strings.TrimSpace(strings.TrimSuffix(text, unit))
		if number == "" {
			number = text
		}
		for range s.n {
			q.add(cell{s: number}, s.line)
		}
	}
	q.full, q.fullAt = p.full, p.fullAt
	return q
}

// decimal returns the decimal sign of the column, according to its own values or else to the file,
// and whether the sign is settled.
func (p *profile) decimal(file rune) (sign byte, settled bool) {
	switch {
	case p.commas > p.points:
		return ',', true
	case p.points > 0:
		return '.', true
	case file != 0:
		return byte(file), true
	}
	return '.', p.ambiguous == 0
}

// numbersBy returns the number of rows that are numbers with a decimal sign.
func (p *profile) numbersBy(decimal byte) int {
	if decimal == ',' {
		return p.numbers[1]
	}
	return p.numbers[0]
}

// examples returns the first texts.
func (p *profile) examples(most int) []string {
	all := slices.SortedFunc(maps.Keys(p.texts), func(a, b string) int {
		if d := p.texts[a].line - p.texts[b].line; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return all[:min(most, len(all))]
}

// variants returns texts that differ only in case or in how accents are encoded, sorted.
func (p *profile) variants(gone func(string) bool) []string {
	by := map[string][]string{}
	for text := range p.texts {
		if !gone(text) {
			f := fold(text)
			by[f] = append(by[f], text)
		}
	}
	var best []string
	for _, v := range by {
		slices.Sort(v)
		if len(v) > 1 && (best == nil || v[0] < best[0]) {
			best = v
		}
	}
	return best
}
