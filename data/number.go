package data

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A class describes how a text can be read as a number.
type class uint16

const (
	asPoint class = 1 << iota // a number if the decimal sign is a point
	asComma                   // a number if the decimal sign is a comma
	signed                    // has a point or comma, and the two readings differ
	whole                     // only digits, and perhaps a sign
	zeroLed                   // digits with leading zeros
	long                      // more digits than a float64 holds
	turned                    // "(5)" or "5-", which means −5 in accounting
	limit                     // "<0.3" or ">300", beyond a detection limit
)

// mostDigits is the number of decimal digits that a float64 holds.
const mostDigits = 15

// units holds texts that may precede or follow a number.
var units = []string{"€", "$", "£", "¥", "%", "EUR", "USD", "GBP", "CHF"}

// splitUnit splits a unit off a text. The unit is "" if the text has no known unit.
func splitUnit(s string) (number, unit string) {
	if s == "" || isDigit(s[0]) && isDigit(s[len(s)-1]) {
		return s, ""
	}
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u); ok {
			return strings.TrimSpace(rest), u
		}
		if rest, ok := strings.CutPrefix(s, u); ok {
			return strings.TrimSpace(rest), u
		}
		if rest, ok := strings.CutPrefix(s, "-"+u); ok {
			return "-" + strings.TrimSpace(rest), u
		}
	}
	return s, ""
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// classify returns the class of s, which has no spaces around it.
func classify(s string) (c class, unit string) {
	c, unit, _ = classifyValues(s)
	return c, unit
}

// classifyValues is like classify, but also returns the numbers read with a decimal point and with
// a decimal comma, or 0 for a limit.
func classifyValues(s string) (c class, unit string, values [2]float64) {
	if s == "" {
		return 0, "", values
	}
	if d, ok := scanDecimal(s); ok && !d.grouped() {
		c, values = d.classify()
		return c, "", values
	}
	if s[0] == '<' || s[0] == '>' {
		if rest := strings.TrimSpace(s[1:]); rest != "" {
			inner, unit := classify(rest)
			if inner&limit == 0 && inner&(asPoint|asComma) != 0 {
				return inner&(asPoint|asComma|signed) | limit, unit, values
			}
		}
		return 0, "", values
	}
	if plain, ok := cutTurned(s); ok {
		inner, unit, v := classifyValues(plain)
		if inner&(asPoint|asComma) == 0 || inner&turned != 0 {
			return 0, "", values
		}
		return inner | turned, unit, [2]float64{-v[0], -v[1]}
	}
	s, unit = splitUnit(s)
	if digits := strings.TrimLeft(s, "+-"); digits != "" &&
		strings.Trim(digits, "0123456789") == "" {
		if len(s)-len(digits) > 1 {
			return 0, "", values
		}
		c = asPoint | asComma | whole
		if len(digits) > 1 && digits[0] == '0' {
			c |= zeroLed
		}
		if len(digits) > mostDigits {
			c |= long
		}
		v, _ := strconv.ParseFloat(s, 64)
		return c, unit, [2]float64{v, v}
	}
	p, isPoint := parseNumber(s, '.')
	q, isComma := parseNumber(s, ',')
	if isPoint {
		c |= asPoint
	}
	if isComma {
		c |= asComma
	}
	if c == 0 {
		return 0, "", values
	}
	if isPoint != isComma || p != q {
		c |= signed
	}
	return c, unit, [2]float64{p, q}
}

// parseNumber reads a finite number without a unit, with a point or a comma as the decimal sign.
// The other sign, spaces and apostrophes may separate groups of three digits.
func parseNumber(s string, decimal byte) (float64, bool) {
	if p, ok := scanDecimal(s); ok && (p.sign == 0 || p.sign == decimal) {
		return p.value, true
	}
	var room [40]byte
	b, ok := plainNumber(room[:0], s, decimal)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(b), 64)
	return v, err == nil && !math.IsInf(v, 0)
}

// plainNumber appends s in the form that strconv reads.
func plainNumber(b []byte, s string, decimal byte) ([]byte, bool) {
	if r, n := utf8.DecodeRuneInString(s); r == '-' || r == '+' || r == '−' {
		if r != '+' {
			b = append(b, '-')
		}
		s = s[n:]
	}
	group, since, digits := rune(0), 0, 0 // group separator, digits after it, all digits
	i := 0
	for i < len(s) && !(s[i] == decimal || s[i] == 'e' || s[i] == 'E') {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case '0' <= r && r <= '9':
			b = append(b, byte(r))
			since++
			digits++
		case !strings.ContainsRune(".,' ’\u00a0\u202f", r) || group != 0 && r != group:
			return b, false
		case group == 0 && (since == 0 || since > 3 || s[i-since] == '0'), group != 0 && since != 3:
			return b, false
		default:
			group, since = r, 0
		}
		i += n
	}
	if group != 0 && since != 3 {
		return b, false
	}
	if i < len(s) && s[i] == decimal {
		b = append(b, '.')
		for i++; i < len(s) && isDigit(s[i]); i++ {
			b = append(b, s[i])
			digits++
		}
	}
	if isFortran(s, i, decimal) {
		return append(append(b, 'e'), s[i+1:]...), digits > 0 && group == 0
	}
	if digits == 0 || i < len(s) && s[i] != 'e' && s[i] != 'E' {
		return b, false
	}
	if i < len(s) && group != 0 {
		return b, false // nobody writes 1,234e5
	}
	return append(b, s[i:]...), true // strconv checks the exponent
}

// A decimal is a number in the most common form: digits with at most one point or comma.
type decimal struct {
	value       float64 // value if sign is the decimal sign
	sign        byte    // '.', ',' or 0
	whole, part int     // digits before and after the sign
	zero        bool    // whether the first digit is 0
}

// grouped reports whether the sign may also separate groups of three digits, as in "1,234".
func (d *decimal) grouped() bool {
	return 1 <= d.whole && d.whole <= 3 && d.part == 3 && !d.zero
}

// classify returns the class of a number that is not grouped, and its values read with a decimal
// point and with a decimal comma.
func (d *decimal) classify() (c class, values [2]float64) {
	switch d.sign {
	case '.':
		return asPoint | signed, [2]float64{d.value, 0}
	case ',':
		return asComma | signed, [2]float64{0, d.value}
	}
	c = asPoint | asComma | whole
	if d.zero && d.whole > 1 {
		c |= zeroLed
	}
	return c, [2]float64{d.value, d.value}
}

// powers10 holds the powers of ten that scanDecimal divides by.
var powers10 = [mostDigits + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15}

// scanDecimal reads a decimal of at most 15 digits. It divides two whole numbers that a float64
// holds exactly, so it rounds once and returns the same value as strconv.ParseFloat (Clinger 1990).
// It returns false for all other texts, numbers or not.
func scanDecimal(s string) (d decimal, ok bool) {
	i := 0
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		i++
	}
	first := i
	var digits uint64
	for ; i < len(s); i++ {
		switch b := s[i]; {
		case isDigit(b):
			digits = 10*digits + uint64(b-'0')
		case (b == '.' || b == ',') && d.sign == 0:
			d.sign, d.whole = b, i-first
		default:
			return d, false
		}
		if i-first > mostDigits {
			return d, false
		}
	}
	n := i - first
	if d.sign == 0 {
		d.whole = n
	} else {
		n--
		d.part = n - d.whole
	}
	if n == 0 || n > mostDigits {
		return d, false
	}
	d.zero = s[first] == '0'
	d.value = float64(digits) / powers10[d.part]
	if s[0] == '-' {
		d.value = -d.value
	}
	return d, true
}

// numberOf reads a number that may have a unit.
func numberOf(s string, decimal byte) (v float64, unit string, ok bool) {
	if p, ok := scanDecimal(s); ok && (p.sign == 0 || p.sign == decimal) {
		return p.value, "", true
	}
	if plain, ok := cutTurned(s); ok {
		if _, again := cutTurned(plain); again {
			return 0, "", false
		}
		v, unit, ok = numberOf(plain, decimal)
		return -v, unit, ok
	}
	s, unit = splitUnit(s)
	v, ok = parseNumber(s, decimal)
	return v, unit, ok
}

// cutTurned returns the number in a text such as "(5)" or "5-", whose value is negative.
func cutTurned(s string) (plain string, ok bool) {
	if len(s) < 2 {
		return s, false
	}
	plain, ok = strings.CutPrefix(s, "(")
	if ok {
		plain, ok = strings.CutSuffix(plain, ")")
	} else if plain, ok = strings.CutSuffix(s, "-"); !ok {
		plain, ok = strings.CutSuffix(s, "−")
	}
	plain = strings.TrimSpace(plain)
	if !ok || plain == "" || strings.ContainsAny(plain, "+-−<>") {
		return s, false
	}
	return plain, true
}

// isFortran reports whether an exponent such as D+03 follows the decimals of s at index i.
func isFortran(s string, i int, decimal byte) bool {
	return i+2 < len(s) && s[i]|0x20 == 'd' && (s[i+1] == '+' || s[i+1] == '-') &&
		strings.IndexByte(s[:i], decimal) >= 0 && strings.Trim(s[i+2:], "0123456789") == ""
}
