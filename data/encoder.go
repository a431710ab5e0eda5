package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/arith"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// An Encoder turns rows of a table into numbers for a model: features, outcome and offset. It holds
// what was declared and learned about each column; print it to see this. Make it with
// Table.Encoder. It can be saved as JSON and restored exactly, and may be used concurrently.
type Encoder struct {
	state    encoderState
	names    []string       // names of the features
	place    map[string]int // places of the columns in state.Columns
	uses     []*column      // all columns, followed by their further roles
	computed []*column      // factors, and columns computed from numbers
	event    *column        // the column of events, or nil
}

// encoderState is the saved part of an Encoder.
type encoderState struct {
	Version int       `json:"version"`
	Table   string    `json:"table"`
	Format  Format    `json:"format"`
	Asked   Format    `json:"asked"` // format set by the caller
	Found   string    `json:"found"` // description of the format
	Rows    int       `json:"rows"`
	Kept    int       `json:"kept"`
	Sparse  bool      `json:"sparse,omitempty"`
	Columns []*column `json:"columns"` // all columns of the table, in order
	// Uses holds further roles of columns: y ~ w + weight(w) uses w as a number and as a weight.
	Uses []*column `json:"uses,omitempty"`
}

// encoderVersion is the current version of encoderState.
const encoderVersion = 1

// column holds what was declared and learned about a column. It is saved as JSON.
type column struct {
	spec
	Why    string   `json:"why,omitempty"`
	Values int      `json:"values,omitempty"` // rows with a value
	Gaps   int      `json:"gaps,omitempty"`   // rows without a value
	Doubts []string `json:"doubts,omitempty"`

	// For numbers, and for dates in years since Origin, the feature is (value − Shift)/Scale.
	Mean    float64  `json:"mean,omitempty"`
	SD      float64  `json:"sd,omitempty"` // with divisor n
	Min     float64  `json:"min,omitempty"`
	Max     float64  `json:"max,omitempty"`
	Shift   float64  `json:"shift,omitempty"`
	Scale   float64  `json:"scale,omitempty"`
	Origin  float64  `json:"origin,omitempty"`  // first date, in seconds since 1970
	Written []string `json:"written,omitempty"` // layouts of dates, declared layouts first
	Sign    string   `json:"sign,omitempty"`    // decimal sign
	// Unsettled is true if no value shows the decimal sign. Turned is true if a value looks like
	// "(5)".
	Unsettled bool   `json:"unsettled,omitempty"`
	Turned    bool   `json:"turned,omitempty"`
	Units     string `json:"units,omitempty"`   // unit of the values
	Numeric   bool   `json:"numeric,omitempty"` // whether an outcome is a number

	// For categories, groups and labels. Two labels are −1 and +1, in this order.
	Levels []string `json:"levels,omitempty"`
	Counts []int    `json:"counts,omitempty"`

	// Of is the column that a factor copies.
	Of string `json:"of,omitempty"`
	// Computed is true if the value is computed from other columns, and Name is the arithmetic.
	Computed bool `json:"computed,omitempty"`
	// Root is true if the model predicts the square root of the outcome.
	Root bool `json:"root,omitempty"`

	// The fields below are set by compile.
	level    map[string]int // indices in Levels
	feature  []int          // feature of each level, -1 for the reference
	gone, nw int            // features of missing and of new levels, or -1
	at, n    int            // first feature in a row, and number of features
	place    int            // index of the table column in state.Columns
	formula  bool           // a formula names the column; known only while the model is made
	binary   bool           // a number with two values; known only while the model is made
	gaps     []float64      // numbers that mean a missing value
	expr     *arith.Expr    // arithmetic of a computed column, or nil
	from     []*column      // columns that a factor or a computed column is made from
}

// Encoder learns how to encode the table. Columns that need a decision have to be declared; all
// others are read as what they look like. A column that is declared by Skip is not a feature.
//
// If decisions remain, the error is a DecisionError, which wraps ErrParam; see Suggest. An error
// about a row that contradicts its column names the line and wraps ErrNotFinite or ErrParam. The
// error wraps ErrEmpty if no row is kept, and ErrMemory if the levels need more memory than is
// available. Otherwise it is an error of reading.
func (t *Table) Encoder(columns ...Column) (*Encoder, error) { return t.encoder(nil, columns) }

// encoder is like Encoder, but only for the columns in use, which a formula names. Other columns
// are skipped and need no decision. A nil use means all columns.
func (t *Table) encoder(use []string, columns []Column) (*Encoder, error) {
	specs, further, decisions := t.decide(use, columns)
	if len(decisions) > 0 {
		return nil, &DecisionError{t.Name, decisions}
	}
	if slices.ContainsFunc(columns, func(c Column) bool { return c.declared().Kind == kindRaw }) {
		for _, s := range specs {
			s.Unscaled = s.Kind == kindNumber || s.Kind == kindDate
		}
	}
	e := &Encoder{state: encoderState{Version: encoderVersion, Table: t.Name, Format: t.Format,
		Asked: t.asked, Found: t.formatText(), Rows: t.rows}}
	for j, s := range specs {
		e.state.Columns = append(e.state.Columns, t.newColumn(j, s))
	}
	for _, s := range further {
		e.state.Uses = append(e.state.Uses, t.newColumn(t.place[s.Name], s))
	}
	if err := e.link(pgsvi.ErrParam); err != nil {
		return nil, t.named(err)
	}
	for _, c := range slices.Concat(e.state.Columns, e.state.Uses) {
		c.formula = use != nil
	}
	if err := e.learn(t); err != nil {
		return nil, err
	}
	if err := e.compile(); err != nil {
		return nil, t.named(err)
	}
	return e, nil
}

// newColumn returns column j as its profile describes it, before the rows are read again.
func (t *Table) newColumn(j int, s *spec) *column {
	c := &column{spec: *s, Why: s.why, place: j}
	if c.Computed = t.isComputed(j); c.Computed {
		c.Sign = "."
		return c
	}
	if t.isMade(j) {
		c.Of, _ = formula.FactorOf(t.profiles[j].name)
	}
	if c.Kind != kindSkip {
		c.learnProfile(t, t.profileOf(j, s))
	}
	return c
}

// learnProfile copies from the profile what the next pass needs.
func (c *column) learnProfile(t *Table, p *profile) {
	sign, _ := p.decimal(t.Format.Decimal)
	c.Unsettled = p.points+p.commas == 0 && t.Format.Decimal == 0 && c.Decimal == ""
	c.Turned = p.turns > 0
	c.Sign = string(rune(sign))
	if c.Decimal != "" {
		c.Sign = c.Decimal
	}
	if len(p.units) == 1 && !c.AnyUnit {
		for unit := range p.units {
			c.Units = unit
		}
	}
	r := &reviewer{t: t, p: p, s: &c.spec}
	r.count()
	c.Numeric = c.Kind == kindOutcome && r.isNumeric()
	if c.Kind != kindDate {
		return
	}
	if len(c.Parts) == 0 {
		c.Parts = []Part{Elapsed}
	}
	c.Written = slices.Clone(c.found)
	slices.Sort(c.Parts) // puts Elapsed first
	c.Parts = slices.Compact(c.Parts)
}

// learn learns the columns in one pass over the table.
func (e *Encoder) learn(t *Table) error {
	var learners []*learner
	var y, weight *learner
	budget := memory.NewBudget("the levels of the columns", textTooLarge)
	for _, c := range slices.Concat(e.state.Columns, e.state.Uses) {
		if c.Kind == kindSkip {
			continue
		}
		l := &learner{c: c, budget: budget}
		learners = append(learners, l)
		switch c.Kind {
		case kindOutcome:
			y = l
		case kindWeight:
			weight = l
		}
	}
	err := t.scan(func(rec *record) error {
		e.fillComputed(rec.cells)
		for _, l := range learners {
			if l.c.Missing == missingDrop && l.c.isGapCell(&rec.cells[l.c.place]) {
				l.c.Gaps++
				return nil
			}
		}
		e.state.Kept++
		w := 1.
		for _, l := range []*learner{weight, y} { // all other columns depend on these
			if l == nil {
				continue
			}
			if err := l.add(&rec.cells[l.c.place], nil, w); err != nil {
				return t.rowError(rec, l.c, err)
			}
			if l == weight {
				w = l.now
			}
		}
		for _, l := range learners {
			if l == y || l == weight {
				continue
			}
			if err := l.add(&rec.cells[l.c.place], y, w); err != nil {
				return t.rowError(rec, l.c, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if e.state.Kept == 0 {
		return t.named(sentinel.Wrap(pgsvi.ErrEmpty,
			"pgsvi: every row has a missing value in a column with Drop, so no row is left"))
	}
	var decisions []Decision
	nonzero, features := 0.0, 0
	for _, l := range learners {
		l.doubtPart(t.profiles[l.c.place])
		if d := l.finish(y); d != "" {
			decisions = append(decisions, decisionAfter(l.c.Name, d))
		}
		nonzero += l.nonzero()
		features += len(l.c.features())
	}
	if len(decisions) > 0 {
		return &DecisionError{t.Name, decisions}
	}
	e.state.Sparse = 4*nonzero <= float64(features)*float64(e.state.Kept)
	return nil
}

// rowError adds the line and the column to an error.
func (t *Table) rowError(rec *record, c *column, err error) error {
	return t.named(fmt.Errorf("pgsvi: line %d, column %s: %w", rec.line, csvQuote(c.Name), err))
}

// isGapCell reports whether a cell is missing a value.
func (c *column) isGapCell(v *cell) bool {
	switch v.kind {
	case absentCell, nullCell:
		return true
	case textCell:
		if len(v.s) > 5 && len(c.NA) == 0 {
			return false
		}
		return c.isGap(v.s) || c.isNumberGap(v)
	}
	if v.s == "" {
		return slices.Contains(c.gaps, v.f) && v.kind == numberCell
	}
	return len(c.NA) > 0 && (slices.Contains(c.NA, c.text(v)) ||
		v.kind == numberCell && c.numbers() && slices.Contains(c.gaps, v.f))
}

// value returns the number in a cell that has a value. A time of day is in hours.
func (c *column) value(v *cell) (float64, error) {
	x, err := c.plainValue(v)
	if err == nil && c.Clock {
		return hours(x)
	}
	return x, err
}

// plainValue returns the number as it is written in a cell.
func (c *column) plainValue(v *cell) (float64, error) {
	switch v.kind {
	case numberCell, boolCell:
		return v.f, nil
	case dateCell:
		return 0, sentinel.Wrap(pgsvi.ErrParam, "the value is a date; use a number")
	case unreadCell:
		return 0, sentinel.Wrap(pgsvi.ErrNotFinite, "%s", v.s)
	case undefinedCell:
		return 0, sentinel.Wrap(pgsvi.ErrParam, "%s", v.s)
	}
	sign := v.decimal
	if sign == 0 || c.Decimal != "" {
		sign = c.Sign[0]
	}
	s, part := v.s, 1.0
	if c.Unit != "" {
		s = strings.TrimSpace(strings.TrimSuffix(s, c.Unit))
	}
	if c.Limit != "" && s != "" && (s[0] == '<' || s[0] == '>') {
		if c.Limit == "half" && s[0] == '<' {
			part = 0.5
		}
		s = strings.TrimSpace(s[1:])
	}
	if c.Unsettled && v.decimal == 0 {
		if err := unsettled(s); err != nil {
			return 0, err
		}
	}
	x, unit, ok := numberOf(s, sign)
	if ok && !c.Turned {
		_, negative := cutTurned(s)
		ok = !negative
	}
	if !ok {
		return 0, sentinel.Wrap(pgsvi.ErrNotFinite,
			"%s is not a number with the decimal sign %q", csvQuote(v.s),
			rune(sign))
	}
	if unit != "" && unit != c.Units && !c.AnyUnit {
		return 0, sentinel.Wrap(pgsvi.ErrParam, "%s is not %s", csvQuote(v.s), c.unitText())
	}
	return part * x, nil
}

func (c *column) unitText() string {
	if c.Units == "" {
		return "a number without a unit"
	}
	return "a number in " + c.Units
}

// date returns the date in a cell that has a value, in seconds since 1970.
func (c *column) date(v *cell) (float64, error) {
	if v.kind == dateCell {
		return v.f, nil
	}
	if v.kind == textCell || v.kind == numberCell {
		text := c.text(v)
		if s, ok := parseDate(text, c.Written); ok {
			return s, nil
		}
		if s, ok := parseDate(text, isoLayouts); ok {
			return s, nil
		}
	}
	return 0, sentinel.Wrap(pgsvi.ErrParam, "%s is not a date like %s", csvQuote(c.text(v)),
		strings.Join(c.Written, " or "))
}

// isoLayouts are always read, whatever the layouts of the column, because they are unambiguous.
var isoLayouts = []string{time.DateOnly, time.RFC3339}

const yearSeconds = 365.25 * 24 * 3600

// number returns the value of a number, or the years of a date since the first date, before it is
// standardized. ok is false if the value is missing.
func (c *column) number(v *cell) (x float64, ok bool, err error) {
	if c.isGapCell(v) {
		return 0, false, nil
	}
	if c.Kind == kindDate {
		s, err := c.date(v)
		return (s - c.Origin) / yearSeconds, err == nil, err
	}
	x, err = c.value(v)
	return x, err == nil, err
}

// text returns the level in a cell.
func (c *column) text(v *cell) string {
	s := v.s
	if s == "" && v.kind == numberCell {
		s = strconv.FormatFloat(v.f, 'f', -1, 64)
	}
	if c.Fold {
		s = fold(s)
	}
	return s
}

// features returns the names of the features of a column.
func (c *column) features() (names []string) {
	switch c.Kind {
	case kindNumber:
		names = append(names, c.Name)
	case kindDate:
		for _, p := range c.Parts {
			switch p {
			case Elapsed:
				names = append(names, c.Name+".elapsed")
			case Month:
				for m := 2; m <= 12; m++ {
					names = append(names, fmt.Sprintf("%s.month=%d", c.Name, m))
				}
			case Weekday:
				for _, d := range []string{"Tue", "Wed", "Thu", "Fri", "Sat", "Sun"} {
					names = append(names, c.Name+".weekday="+d)
				}
			}
		}
	case kindCategory:
		for _, l := range c.Levels {
			if l != c.Reference {
				names = append(names, c.Name+"="+l)
			}
		}
		if c.Missing == missingLevel {
			names = append(names, c.Name+"=(missing)")
		}
		if c.Unknown == unknownNew {
			names = append(names, c.Name+"=(new)")
		}
	default:
		return nil
	}
	if c.Missing == missingImpute {
		names = append(names, c.Name+" missing")
	}
	return names
}

// mostNames is the largest number of bytes in the names of features.
const mostNames = 256 << 20

// compile computes the lookup tables.
func (e *Encoder) compile() error {
	if err := e.link(pgsvi.ErrFile); err != nil {
		return err
	}
	e.names, e.event = nil, nil
	e.uses = slices.Concat(e.state.Columns, e.state.Uses)
	bytes, seen := 0, map[string]string{}
	for _, c := range e.state.Columns {
		for _, l := range c.Levels {
			if bytes += len(c.Name) + len(l); bytes > mostNames && c.Kind == kindCategory {
				return sentinel.Wrap(pgsvi.ErrMemory,
					"pgsvi: column %s: the names of its %d levels take too much memory; skip the "+
						"column, or shorten its name",
					csvQuote(c.Name), len(c.Levels))
			}
		}
		c.compile(len(e.names))
		for _, name := range c.features() {
			if other, twice := seen[name]; twice {
				return sentinel.Wrap(pgsvi.ErrShape,
					"pgsvi: columns %s and %s both have the feature %s; rename one of them",
					csvQuote(other), csvQuote(c.Name), csvQuote(name))
			}
			seen[name] = c.Name
			e.names = append(e.names, name)
		}
	}
	for _, c := range e.state.Uses {
		j, ok := e.place[c.Name]
		if !ok || c.isFeature() || c.Kind == kindOutcome {
			return fmt.Errorf("pgsvi: the encoder has an invalid further use of column %s as a "+
				"%s: %w",
				csvQuote(c.Name), c.Kind, pgsvi.ErrFile)
		}
		c.place = j
		c.compile(len(e.names))
	}
	for _, c := range e.uses {
		if c.Kind == kindEvent {
			e.event = c
		}
	}
	return nil
}

func (c *column) compile(at int) {
	c.at, c.n = at, len(c.features())
	c.level, c.feature, c.gone, c.nw = make(map[string]int, len(c.Levels)), nil, -1, -1
	k := 0
	for i, l := range c.Levels {
		c.level[l] = i
		if l == c.Reference {
			c.feature = append(c.feature, -1)
			continue
		}
		c.feature = append(c.feature, k)
		k++
	}
	if c.Missing == missingLevel {
		c.gone = k
		k++
	}
	if c.Unknown == unknownNew {
		c.nw = k
	}
	c.gaps = nil
	for _, text := range c.NA {
		if x, err := strconv.ParseFloat(text, 64); err == nil &&
			(c.numbers() || (&column{}).text(&cell{f: x, kind: numberCell}) == text) {
			c.gaps = append(c.gaps, x)
		}
	}
}

// Features returns the names of the features in a new slice.
func (e *Encoder) Features() []string { return slices.Clone(e.names) }

// Outcome returns the name of the outcome column, or "" if there is no outcome.
func (e *Encoder) Outcome() string {
	for _, c := range e.state.Columns {
		if c.Kind == kindOutcome {
			return c.Name
		}
	}
	return ""
}

// MarshalJSON returns the Encoder as JSON. UnmarshalJSON restores it exactly.
func (e *Encoder) MarshalJSON() ([]byte, error) { return json.Marshal(&e.state) }

// UnmarshalJSON reads the output of MarshalJSON. The error wraps ErrFile if b is not such JSON or
// was written by another version.
func (e *Encoder) UnmarshalJSON(b []byte) error {
	var s encoderState
	if err := json.Unmarshal(b, &s); err != nil {
		return sentinel.Wrap(pgsvi.ErrFile, "pgsvi: reading an encoder: %w", err)
	}
	if s.Version != encoderVersion {
		return sentinel.Wrap(pgsvi.ErrFile,
			"pgsvi: the encoder has version %d, but this release reads version %d; use the "+
				"release that wrote it", s.Version, encoderVersion)
	}
	for _, c := range slices.Concat(s.Columns, s.Uses) {
		if err := c.check(); err != nil {
			return sentinel.Wrap(pgsvi.ErrFile, "pgsvi: reading an encoder: %w", err)
		}
	}
	read := Encoder{state: s}
	if err := read.compile(); err != nil {
		return err
	}
	*e = read
	return nil
}

// check returns an error if a column from a file is inconsistent.
func (c *column) check() error {
	if c == nil {
		return errors.New("a column is null")
	}
	_, known := constructors[c.Kind]
	numeric := c.Kind == kindNumber || c.Kind == kindDate
	switch {
	case !known:
		return fmt.Errorf("column %s has the unknown kind %s", csvQuote(c.Name),
			csvQuote(string(c.Kind)))
	case c.Kind != kindSkip && c.Sign != "." && c.Sign != ",":
		return fmt.Errorf("column %s has the invalid decimal sign %s", csvQuote(c.Name),
			csvQuote(c.Sign))
	case numeric && !(c.Scale > 0):
		return fmt.Errorf("column %s has the invalid scale %v", csvQuote(c.Name), c.Scale)
	case c.Kind == kindCategory && !slices.Contains(c.Levels, c.Reference):
		return fmt.Errorf("column %s has no reference level %s", csvQuote(c.Name),
			csvQuote(c.Reference))
	case c.Missing == missingLevel && c.Kind != kindCategory && c.Kind != kindGroup,
		c.Missing == missingImpute && !numeric, c.Unknown != "" && c.Kind != kindCategory,
		c.Unknown == unknownMissing && c.Missing != missingLevel:
		return fmt.Errorf("column %s has the invalid policies %q and %q", csvQuote(c.Name),
			c.Missing,
			c.Unknown)
	case c.Positive != "" && c.Kind == kindOutcome &&
		(len(c.Levels) != 2 || c.Levels[1] != c.Positive):
		return fmt.Errorf("outcome %s has no label %s", csvQuote(c.Name), csvQuote(c.Positive))
	case c.Kind == kindOutcome && !c.Numeric && len(c.Levels) < 2:
		return fmt.Errorf("outcome %s has %d labels", csvQuote(c.Name), len(c.Levels))
	case len(c.Counts) != len(c.Levels):
		return fmt.Errorf("column %s has %d levels but %d counts", csvQuote(c.Name), len(c.Levels),
			len(c.Counts))
	case len(slices.Compact(slices.Sorted(slices.Values(c.Levels)))) != len(c.Levels):
		return fmt.Errorf("column %s lists a level twice", csvQuote(c.Name))
	}
	return nil
}

// sortLevels sorts levels in place and returns them: by value if all are numbers, otherwise as
// texts.
func sortLevels(levels []string) []string {
	values := map[string]float64{}
	for _, l := range levels {
		if v, err := strconv.ParseFloat(l, 64); err == nil {
			values[l] = v
		}
	}
	slices.SortFunc(levels, func(a, b string) int {
		if d := values[a] - values[b]; len(values) == len(levels) && d != 0 {
			if d < 0 {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return levels
}

func sortedKeys[V any](m map[string]V) []string { return sortLevels(slices.Collect(maps.Keys(m))) }
