package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi/formula"
)

// This file makes random tables with the difficulties of real tables, and records the meaning of
// each value.

// A meaning is the intended meaning of a column.
type meaning struct {
	values []float64 // the numbers, with NaN for a missing one; nil if these are no numbers
	levels int       // if the column is a category, or 0
	order  string    // "day" or "month", whichever comes first in a date; "" if it is none
	asks   string    // what a decision about the column must hold, or "" if none is needed
	open   bool      // the text can be read in several ways, so that the proposal may be wrong
	count  bool      // whole numbers from 0 on
}

// A messyColumn is a column of a messyTable.
type messyColumn struct {
	name  string
	cells []string
	meaning
}

// A messyTable is a random table, with a formula over its columns.
type messyTable struct {
	*rand.Rand
	n          int
	comma      bool // the decimal sign
	columns    []*messyColumn
	formula    string
	likelihood string // "" for none
	whole      string // the likelihood of whole numbers, if the fit needs it
	weighted   bool
	title      bool // a line above the names
	total      bool // a line below the rows
	text       string
}

// oddNames holds names of columns that a formula must quote, and some that it need not.
var oddNames = []string{"größe", "Letzte Anfrage", "x 1", "a.b", "名前", "n°", "2nd", "Ümläut",
	"a-b", "x_1", "Preis (brutto)", "q?", "B", "long name of a column with more than forty letters"}

// name returns a new name for a column.
func (m *messyTable) name(plain string) string {
	if m.IntN(4) == 0 {
		plain = oddNames[m.IntN(len(oddNames))]
	}
	for i := 0; ; i++ {
		name := plain
		if i > 0 {
			name = fmt.Sprint(plain, i)
		}
		if !slices.ContainsFunc(m.columns, func(c *messyColumn) bool { return c.name == name }) {
			return name
		}
	}
}

// add adds a column with a cell for each row.
func (m *messyTable) add(plain string, cell func(i int) string) *messyColumn {
	c := &messyColumn{name: m.name(plain)}
	for i := range m.n {
		c.cells = append(c.cells, cell(i))
	}
	m.columns = append(m.columns, c)
	return c
}

// addNumbers adds a column of numbers, each written by write.
func (m *messyTable) addNumbers(plain string, value func(i int) float64,
	write func(v float64) string) *messyColumn {
	values := make([]float64, m.n)
	c := m.add(plain, func(i int) string {
		values[i] = value(i)
		return write(values[i])
	})
	c.values = values
	return c
}

// round returns v with the given number of decimals.
func round(v float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(v*scale) / scale
}

// decimal writes a number with the given number of decimals. Thousands may be grouped.
func (m *messyTable) decimal(v float64, decimals int, grouped bool) string {
	sign, group := ".", ","
	if m.comma {
		sign, group = ",", "."
	}
	minus := ""
	if v < 0 {
		minus, v = "-", -v
	}
	whole, part, _ := strings.Cut(fmt.Sprintf("%.*f", decimals, v), ".")
	var b strings.Builder
	for i, d := range whole {
		if grouped && i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteString(group)
		}
		b.WriteRune(d)
	}
	if decimals > 0 {
		b.WriteString(sign + part)
	}
	return minus + b.String()
}

// normal returns draws with the given number of decimals.
func (m *messyTable) normal(mean, sd float64, decimals int) func(int) float64 {
	return func(int) float64 { return round(mean+sd*m.NormFloat64(), decimals) }
}

// lose replaces a few cells by texts that mean a missing value.
func (m *messyTable) lose(c *messyColumn, share float64, texts ...string) {
	for i := range c.cells {
		if m.Float64() >= share || i == 0 {
			continue
		}
		c.cells[i] = texts[m.IntN(len(texts))]
		if c.values != nil {
			c.values[i] = math.NaN()
		}
	}
}

// distinct returns the number of different texts.
func (c *messyColumn) distinct() int {
	all := slices.Clone(c.cells)
	slices.Sort(all)
	return len(slices.Compact(all))
}

// pick returns draws from some texts.
func (m *messyTable) pick(texts ...string) func(int) string {
	return func(int) string { return texts[m.IntN(len(texts))] }
}

// features holds the columns that a table may have in addition to its outcome.
var features = []func(m *messyTable) *messyColumn{
	func(m *messyTable) *messyColumn { // measurements
		k := 1 + m.IntN(4)
		c := m.addNumbers("x", m.normal(0, 3, k), func(v float64) string {
			return m.decimal(v, k, false)
		})
		c.open = k == 3 // 1.234 may be 1234
		return c
	},
	func(m *messyTable) *messyColumn { // thousands
		k := 2 * m.IntN(2)
		c := m.addNumbers("income", func(int) float64 {
			return round(math.Exp(8+1.5*m.NormFloat64()), k)
		}, func(v float64) string { return m.decimal(v, k, true) })
		c.open = k == 0
		return c
	},
	func(m *messyTable) *messyColumn { // money
		unit := []string{" €", "€", " EUR", " $"}[m.IntN(4)]
		return m.addNumbers("price", m.normal(40, 9, 2), func(v float64) string {
			return m.decimal(v, 2, true) + unit
		})
	},
	func(m *messyTable) *messyColumn { // shares
		c := m.addNumbers("rate", func(int) float64 { return round(100*m.Float64(), 1) },
			func(v float64) string { return m.decimal(v, 1, false) + "%" })
		return c
	},
	func(m *messyTable) *messyColumn { // a unit that is not among the known ones
		k := m.IntN(3)
		c := m.addNumbers("mass", m.normal(70, 12, k), func(v float64) string {
			return m.decimal(v, k, false) + " kg"
		})
		if c.distinct() >= 3 {
			c.asks = "numbers with a unit"
		} else {
			c.open = true
		}
		return c
	},
	func(m *messyTable) *messyColumn { // two units
		c := m.addNumbers("fee", m.normal(40, 9, 2), func(v float64) string {
			return m.decimal(v, 2, false) + []string{" €", " $"}[m.IntN(2)]
		})
		if text := strings.Join(c.cells, ""); strings.Contains(text, "$") &&
			strings.Contains(text, "€") {
			c.asks = "different units"
		}
		return c
	},
	func(m *messyTable) *messyColumn { // accounts
		return m.addNumbers("balance", m.normal(100, 300, 2), func(v float64) string {
			if v < 0 {
				return "(" + m.decimal(-v, 2, true) + ")"
			}
			return m.decimal(v, 2, true)
		})
	},
	func(m *messyTable) *messyColumn { // a minus behind the number
		return m.addNumbers("saldo", m.normal(100, 300, 2), func(v float64) string {
			if v < 0 {
				return m.decimal(-v, 2, true) + "-"
			}
			return m.decimal(v, 2, true)
		})
	},
	func(m *messyTable) *messyColumn { // dates
		layout := []string{"2006-01-02", "02.01.2006", "2 Jan 2006", "01/02/2006", "02/01/2006",
			"2006-01-02T15:04:05Z", "2006/01/02", "January 2, 2006"}[m.IntN(8)]
		c := m.add("since", func(int) string { return m.day().Format(layout) })
		if strings.HasPrefix(layout, "02/") || strings.HasPrefix(layout, "01/") {
			c.order = map[bool]string{true: "day", false: "month"}[layout[:2] == "02"]
		}
		return c
	},
	func(m *messyTable) *messyColumn { // ambiguous dates
		c := m.add("visit", func(int) string {
			return fmt.Sprintf("%02d/%02d/20%d", 1+m.IntN(12), 1+m.IntN(12), 17+m.IntN(7))
		})
		if c.distinct() > 1 {
			c.asks = "day/month or month/day"
		}
		return c
	},
	func(m *messyTable) *messyColumn { // dates that are numbers
		layout := []string{"20060102", "200601"}[m.IntN(2)]
		c := m.add("stamp", func(int) string { return m.day().Format(layout) })
		if c.distinct() > 2 {
			c.asks = "look like dates"
		}
		return c
	},
	func(m *messyTable) *messyColumn { // times of day that are numbers
		c := m.add("at", func(int) string {
			return fmt.Sprint(100*(6+m.IntN(16)) + m.IntN(60))
		})
		if m.n >= 60 {
			c.asks = "times of day"
		}
		c.open = true
		return c
	},
	func(m *messyTable) *messyColumn { // nines
		code := []string{"-999", "9999", "999", "-99"}[m.IntN(4)]
		c := m.addNumbers("score", func(int) float64 { return float64(m.IntN(40)) / 2 },
			func(v float64) string { return m.decimal(v, 1, false) })
		lost := 0
		for i := 1; i < m.n; i += 1 + m.IntN(m.n/2) {
			c.cells[i], c.values[i] = code, math.NaN()
			lost++
		}
		if m.n >= 25 && c.distinct() > 2 && lost >= 2 {
			c.asks = "may mean missing"
		} else {
			c.values = nil // nobody can tell in a few rows
		}
		c.open = true
		return c
	},
	func(m *messyTable) *messyColumn { // missing values
		c := m.addNumbers("age", func(int) float64 { return float64(18 + m.IntN(60)) },
			func(v float64) string { return fmt.Sprint(v) })
		c.count = true
		m.lose(c, 0.15, [][]string{{""}, {"k.A."}, {"NA"}, {"?"}, {"NA", "k.A.", ""}}[m.IntN(5)]...)
		for _, v := range c.values {
			if math.IsNaN(v) {
				c.asks = "missing"
			}
		}
		return c
	},
	func(m *messyTable) *messyColumn { // levels that differ in case
		c := m.add("plan", m.pick("gold", "Gold", "basic", "BASIC", "silver"))
		folded := &messyColumn{}
		for _, text := range c.cells {
			folded.cells = append(folded.cells, strings.ToLower(text))
		}
		if c.levels = folded.distinct(); c.levels < c.distinct() && c.levels > 1 {
			c.asks = "differ only in case"
		}
		return c
	},
	func(m *messyTable) *messyColumn { // levels with missing ones
		c := m.add("colour", m.pick("red", "green", "blue", `dark "blue"`, "a, b"))
		c.levels = c.distinct()
		if m.IntN(2) == 0 {
			m.lose(c, 0.2, "", "NA")
			if slices.Contains(c.cells, "") || slices.Contains(c.cells, "NA") {
				c.asks, c.levels = "missing", 0
			}
		}
		return c
	},
	func(m *messyTable) *messyColumn { // identifiers
		c := m.add("id", func(i int) string { return fmt.Sprint(4000 + 7*i) })
		if m.n > 60 {
			c.asks = "an identifier"
		}
		c.open = true
		return c
	},
	func(m *messyTable) *messyColumn {
		c := m.add("key", func(i int) string { return fmt.Sprintf("K-%05d", 100+3*i) })
		if m.n > 12 {
			c.asks = "an identifier"
		}
		return c
	},
	func(m *messyTable) *messyColumn {
		c := m.add("patient", func(i int) string { return fmt.Sprintf("P%03d", i/3) })
		if m.n > 60 {
			c.asks = "an identifier"
		}
		return c
	},
	func(m *messyTable) *messyColumn { // codes
		from := m.IntN(2)
		c := m.add([]string{"status", "type", "region"}[m.IntN(3)], func(i int) string {
			return fmt.Sprint(from + (i+m.IntN(2))%3)
		})
		if m.n > 12 && slices.Contains([]string{"status", "type", "region"}, c.name) {
			c.asks = "codes"
		}
		c.open = true
		return c
	},
	func(m *messyTable) *messyColumn { // codes whose name does not show it
		from := float64(m.IntN(2))
		c := m.addNumbers("w", func(int) float64 { return from + float64(m.IntN(3)) },
			func(v float64) string { return fmt.Sprint(v) })
		c.open = true
		return c
	},
	func(m *messyTable) *messyColumn { // codes with a 0 in front
		c := m.add("plz", func(int) string { return fmt.Sprintf("0%d", 1000+m.IntN(5)) })
		c.levels = c.distinct()
		return c
	},
	func(m *messyTable) *messyColumn { // two levels
		c := m.add("member", m.pick([][]string{{"yes", "no"}, {"TRUE", "FALSE"}, {"ja", "nein"},
			{"F", "M"}}[m.IntN(4)]...))
		c.levels = c.distinct()
		return c
	},
	func(m *messyTable) *messyColumn {
		c := m.addNumbers("flag", func(int) float64 { return float64(m.IntN(2)) },
			func(v float64) string { return fmt.Sprint(v) })
		c.count = true
		return c
	},
	func(m *messyTable) *messyColumn { // free text
		c := m.add("note", func(i int) string {
			return fmt.Sprintf("checked at the gate, all well; see page %d of the book no. %d", i,
				m.IntN(99))
		})
		c.asks = "a" // free text, or an identifier
		if m.n < 12 {
			c.asks = ""
		}
		return c
	},
	func(m *messyTable) *messyColumn { // constants
		c := m.add("version", func(int) string { return "3" })
		c.asks = "all values are"
		return c
	},
	func(m *messyTable) *messyColumn { // nothing
		c := m.add("reserved", func(int) string { return "" })
		c.asks = "no values"
		return c
	},
	func(m *messyTable) *messyColumn { // no name
		c := m.add("", func(i int) string { return fmt.Sprint(1 + i) })
		c.name = ""
		return c
	},
	func(m *messyTable) *messyColumn { // counts
		c := m.addNumbers("visits", func(int) float64 { return float64(m.IntN(9)) },
			func(v float64) string { return fmt.Sprint(v) })
		c.count = true
		return c
	},
	func(m *messyTable) *messyColumn { // limits of detection
		c := m.add("crp", func(int) string {
			if m.IntN(8) == 0 {
				return "<" + m.decimal(0.3, 1, false)
			}
			return m.decimal(0.3+m.ExpFloat64(), 1, false)
		})
		if strings.Contains(strings.Join(c.cells, ""), "<") {
			c.asks = "detection limit"
		}
		return c
	},
	func(m *messyTable) *messyColumn { // numbers of three digits behind a sign alone
		grouped := m.IntN(2) == 0
		c := m.addNumbers("area", func(int) float64 {
			if grouped {
				return float64(1000 + m.IntN(9000))
			}
			return round(1+8*m.Float64(), 3)
		}, func(v float64) string {
			return m.decimal(v, map[bool]int{true: 0, false: 3}[grouped], grouped)
		})
		c.open = true
		return c
	},
}

// day returns a day in one of several years. In most cases the day of the month cannot be a month.
func (m *messyTable) day() time.Time {
	return time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, m.IntN(2000))
}

// group adds a column whose levels have several rows each.
func (m *messyTable) group() *messyColumn {
	k := 3 + m.IntN(6)
	if m.IntN(3) == 0 {
		return m.add("site", func(int) string { return fmt.Sprint(100 + m.IntN(k)) })
	}
	return m.add("shop", func(int) string { return fmt.Sprint("s", m.IntN(k)) })
}

// outcome adds the columns of an outcome. It returns the left side of a formula, and the terms that
// belong to the outcome.
func (m *messyTable) outcome() (left string, right []string) {
	plain := func(v float64) string { return fmt.Sprint(v) }
	real := func(v float64) string { return m.decimal(v, 2, false) }
	col := func(c *messyColumn) string { return formula.Col(c.name).String() }
	either := func(all ...string) string { return all[m.IntN(len(all))] }
	poisson := func(int) float64 {
		k := 0.
		for m.Float64() < 0.6 {
			k++
		}
		return k
	}
	counts := func() *messyColumn {
		c := m.addNumbers("n", poisson, plain)
		c.count, m.whole = true, either("poisson", "negbinomial", "gaussian", "ordinal")
		return c
	}
	switch m.IntN(18) {
	case 0, 1:
		m.likelihood = either("", "", "gaussian", "studentt", "laplace")
		return col(m.addNumbers("y", m.normal(3, 2, 2), real)), nil
	case 2:
		m.likelihood = either("", "poisson", "negbinomial", "zip", "hurdle", "zinb", "hurdlenb")
		return col(counts()), nil
	case 3:
		m.likelihood = either("", "logit", "probit", "poisson")
		return col(m.addNumbers("bought", func(int) float64 { return float64(m.IntN(2)) },
			plain)), nil
	case 4:
		m.likelihood = either("", "logit")
		pair := [][]string{{"yes", "no"}, {"TRUE", "FALSE"}, {"Ja", "nein"}}[m.IntN(3)]
		return col(m.add("churned", m.pick(pair...))), nil
	case 5:
		m.likelihood = either("", "probit")
		c := m.add("arm", m.pick("A", "B"))
		if c.distinct() == 2 {
			c.asks = "either may be the positive label"
		}
		return col(c), nil
	case 6:
		m.likelihood = either("", "softmax")
		return col(m.add("class", m.pick("red", "green", "blue"))), nil
	case 7:
		m.likelihood = "ordinal"
		c := m.add("mood", m.pick("low", "medium", "high"))
		if c.distinct() > 1 {
			c.asks = "order"
		}
		return col(c), nil
	case 8:
		m.whole = either("gaussian", "ordinal", "softmax")
		return col(m.addNumbers("rating", func(int) float64 { return float64(m.IntN(7) - 3) },
			plain)), nil
	case 9, 10:
		m.likelihood = either("", "betabinomial", "probit")
		trials := m.addNumbers("trials", func(int) float64 { return float64(1 + m.IntN(9)) }, plain)
		k := m.addNumbers("k", func(i int) float64 {
			return float64(m.IntN(int(trials.values[i]) + 1))
		}, plain)
		return col(k) + " / " + col(trials), nil
	case 11, 12:
		m.likelihood = either("", "weibull", "lognormal")
		days := m.addNumbers("days", func(int) float64 { return round(0.01+9*m.ExpFloat64(), 2) },
			real)
		event := m.add("event", m.pick([][]string{{"1", "0"}, {"yes", "no"},
			{"TRUE", "FALSE"}}[m.IntN(3)]...))
		return "survival(" + col(days) + ", " + col(event) + ")", nil
	case 13:
		m.likelihood = either("beta", "")
		return col(m.addNumbers("share", func(int) float64 {
			return round(0.01+0.98*m.Float64(), 2)
		}, real)), nil
	case 14:
		m.likelihood = either("", "poisson", "negbinomial")
		c := counts()
		e := m.addNumbers("exposed", func(int) float64 { return round(0.5+9*m.Float64(), 2) }, real)
		right = []string{"exposure(" + col(e) + ")"}
		if m.IntN(3) == 0 {
			right = append(right, col(e))
		}
		return col(c), right
	case 15:
		m.likelihood = either("gamma", "exponential", "weibull", "lognormal")
		return col(m.addNumbers("cost", func(int) float64 {
			return round(0.01+20*m.ExpFloat64(), 2)
		}, real)), nil
	case 16:
		c := m.addNumbers("size", func(int) float64 { return round(0.01+20*m.ExpFloat64(), 2) },
			real)
		return either("log(", "sqrt(") + col(c) + ")", nil
	}
	c := m.addNumbers("y", m.normal(3, 2, 2), real)
	if m.IntN(2) == 0 {
		o := m.addNumbers("base", m.normal(0, 1, 2), real)
		right = append(right, "offset("+col(o)+")")
	}
	return col(c), right
}

// mostNamed is the largest number of levels that a formula names, because a fit of hundreds of
// levels and several classes takes minutes.
const mostNamed = 130

// terms returns the right side of the formula.
func (m *messyTable) terms(features []*messyColumn) (all []string) {
	var named []string
	numbers := []string{}
	for _, c := range features {
		if c.name == "" || c.values == nil && c.distinct() > mostNamed {
			continue
		}
		name := formula.Col(c.name).String()
		named = append(named, name)
		if c.values != nil {
			numbers = append(numbers, name)
		}
	}
	if len(named) == 0 {
		return []string{"."}
	}
	one := func() string { return named[m.IntN(len(named))] }
	number := func() string {
		if len(numbers) == 0 || m.IntN(5) == 0 {
			return one()
		}
		return numbers[m.IntN(len(numbers))]
	}
	switch m.IntN(6) {
	case 0, 1:
		all = append(all, ".")
	case 2:
		all = append(all, ". - "+one())
	}
	for range m.IntN(3) {
		switch m.IntN(6) {
		case 0:
			all = append(all, one()+"*"+one())
		case 1:
			all = append(all, one()+":"+one())
		case 2:
			all = append(all, "s("+number()+")")
		case 3:
			all = append(all, "poly("+number()+", 2)")
		case 4:
			all = append(all, "log("+number()+")")
		default:
			all = append(all, one())
		}
	}
	if len(all) == 0 {
		all = append(all, one())
	}
	return slices.DeleteFunc(all, func(term string) bool { // a*a
		a, b, ok := strings.Cut(strings.ReplaceAll(term, ":", "*"), "*")
		return ok && a == b
	})
}

// newMessyTable returns a random table.
func newMessyTable(rng *rand.Rand) *messyTable {
	m := &messyTable{Rand: rng, n: []int{5, 8, 20, 60, 60, 120, 400}[rng.IntN(7)],
		comma: rng.IntN(2) == 0}
	var free []*messyColumn
	for range 1 + m.IntN(5) {
		free = append(free, features[m.IntN(len(features))](m))
	}
	left, right := m.outcome()
	terms := append(m.terms(free), right...)
	if m.IntN(4) == 0 {
		g := formula.Col(m.group().name).String()
		terms = append(terms, "(1 | "+g+")")
		if m.IntN(3) == 0 {
			terms = append(terms, g)
		}
	}
	if m.IntN(6) == 0 {
		w := m.addNumbers("weights", func(int) float64 { return float64(1 + m.IntN(4)) },
			func(v float64) string { return fmt.Sprint(v) })
		name := formula.Col(w.name).String()
		terms = append(terms, "weight("+name+")")
		if m.IntN(2) == 0 {
			terms = append(terms, name)
		}
		w.open, m.weighted = true, true
	}
	if m.IntN(8) == 0 {
		terms = append([]string{"0"}, terms...)
	}
	if len(terms) == 0 {
		terms = []string{"1"}
	}
	m.formula = left + " ~ " + strings.Join(terms, " + ")
	m.Shuffle(len(m.columns), func(i, j int) {
		m.columns[i], m.columns[j] = m.columns[j], m.columns[i]
	})
	m.title, m.total = m.IntN(12) == 0 && len(m.columns) > 2, m.IntN(12) == 0
	m.text = m.write()
	return m
}

// write returns the table as text.
func (m *messyTable) write() string {
	separator := []string{",", ";", "\t", "|"}[m.IntN(4)]
	if m.comma && m.IntN(4) > 0 {
		separator = ";"
	}
	end := []string{"\n", "\r\n"}[m.IntN(2)]
	quote := m.IntN(8) == 0
	var b strings.Builder
	line := func(cells func(j int) string) {
		for j := range m.columns {
			if j > 0 {
				b.WriteString(separator)
			}
			text := cells(j)
			if quote || strings.ContainsAny(text, "\",;\t|\n") ||
				text == "" && len(m.columns) == 1 {
				text = `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
			}
			b.WriteString(text)
		}
		b.WriteString(end)
	}
	if m.title {
		b.WriteString("Report of 2023" + end)
	}
	line(func(j int) string { return m.columns[j].name })
	for i := range m.n {
		line(func(j int) string { return m.columns[j].cells[i] })
	}
	if m.total {
		line(func(j int) string {
			c, sum := m.columns[j], 0.
			if j == 0 {
				return "Total"
			}
			if c.values == nil {
				return ""
			}
			for _, v := range c.values {
				if !math.IsNaN(v) {
					sum += v
				}
			}
			return m.decimal(sum, 2, false)
		})
	}
	return b.String()
}
