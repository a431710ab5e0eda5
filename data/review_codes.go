package data

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/pgsvi/pgsvi/formula"
)

// This file finds small whole numbers that may be codes, such as 0, 1, 2 for single, married,
// divorced. The values alone do not show this, because counts and ratings have the same values. So
// a column needs a decision if its name suggests codes, and gets a doubt otherwise.

// fewCodes and mostCodes limit the number of different values of such columns. A column with two
// values gives the same model as a number and as a category.
const fewCodes, mostCodes = 3, 7

// whyCodes is the reason given for reading possible codes as numbers.
const whyCodes = "few whole numbers"

// codeWords holds words in names of columns that contain codes.
var codeWords = wordSet("arm branch brand cat category city class cluster code color colour " +
	"country department diagnosis ethnicity gender geschlecht group gruppe id kat kategorie kind " +
	"land plz race region sector segment sex state status typ type zip zone")

// countWords holds words in names of columns that count or measure something.
var countWords = wordSet("age alter anzahl children count counts days hours kids months n num " +
	"number times visits year years")

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// wordsOf splits a name such as plan_code or planCode into words in lower case.
func wordsOf(name string) (words []string) {
	start, before := 0, ' '
	for i, r := range name + " " {
		if !unicode.IsLetter(r) || unicode.IsUpper(r) && unicode.IsLower(before) {
			if i > start {
				words = append(words, strings.ToLower(strings.TrimFunc(name[start:i],
					func(r rune) bool { return !unicode.IsLetter(r) })))
			}
			start = i
		}
		before = r
	}
	return words
}

// hasWord reports whether set contains a word of the name.
func hasWord(name string, set map[string]bool) bool {
	return slices.ContainsFunc(wordsOf(name), func(w string) bool { return set[w] })
}

// likeCodes reports whether numbers may be codes: three to seven whole numbers that start at 0 or
// 1, with at most two gaps between them.
func likeCodes(values int, lo, hi float64) bool {
	return values >= fewCodes && values <= mostCodes && (lo == 0 || lo == 1) &&
		hi-lo <= float64(values+1)
}

// mayBeCodes reports whether the values of a profile may be codes.
func (p *profile) mayBeCodes() bool {
	lo, hi := math.Inf(1), math.Inf(-1)
	for text := range p.texts {
		v, err := strconv.Atoi(text)
		if err != nil {
			return false
		}
		lo, hi = min(lo, float64(v)), max(hi, float64(v))
	}
	return !p.full && likeCodes(p.levels(), lo, hi) && 2*p.levels() <= p.values &&
		!hasWord(p.name, countWords)
}

// guessCodes adds a problem about numbers if the name of the column suggests codes.
func (r *reviewer) guessCodes() {
	if !r.p.mayBeCodes() {
		return
	}
	if r.why = whyCodes; !hasWord(r.p.name, codeWords) {
		return
	}
	r.found(fmt.Sprintf("%d different whole numbers, which may be codes", r.p.levels()))
	r.or("if they measure something", func(s *spec) { s.Kind = kindNumber })
	r.s.Kind = kindCategory
	r.when = "if they are codes"
}

// mayBeCodes reports whether the numbers may be codes, which deserves a doubt.
func (l *learner) mayBeCodes() bool {
	if len(l.values) < fewCodes || hasWord(l.c.Name, countWords) {
		return false
	}
	return l.fewWhole() || l.whole && 2*len(l.values) <= l.c.Values &&
		likeCodes(len(l.values), l.min, l.max)
}

// curved reports whether a formula uses a column as a number, in s, poly or arithmetic, although the
// column would need a decision otherwise.
func (t *Table) curved(f *formula.Formula, arithmetic []string, name string) bool {
	p := t.profiles[t.place[name]]
	return p.mayBeCodes() && hasWord(name, codeWords) && (slices.Contains(arithmetic, name) ||
		slices.ContainsFunc(f.Terms, func(term formula.Term) bool {
			g, _ := term.(formula.Group)
			return curve(term, name) ||
				slices.ContainsFunc(g.Slopes, func(s formula.Term) bool { return curve(s, name) })
		}))
}

// curve reports whether a term is a function of the numbers in a column.
func curve(term formula.Term, name string) bool {
	switch term.(type) {
	case formula.Smooth, formula.Poly:
		return slices.Contains(term.Columns(), name)
	}
	return false
}
