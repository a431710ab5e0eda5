package data

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

const (
	rareLevel  = 20 // rows of a level below which its weight mostly follows the prior
	fewValues  = 20 // largest number of different whole numbers that may be codes
	leakRows   = 20 // rows of each label below which leaks are not reported
	leakShare  = 0.995
	leakAtMost = 0.95 // largest share of the more frequent label
	levelSize  = 64   // bytes per level, besides its text
)

// allTheSame is the problem of a column whose values do not vary.
const allTheSame = "all values in the kept rows are the same"

// decisionAfter returns the decision about a column with a problem that its values show.
func decisionAfter(name, problem string) Decision {
	d := Decision{Column: name, Problem: problem}
	if problem == allTheSame {
		d.Choices = []Choice{{Column: Skip(name)}}
	}
	return d
}

// A learner learns a column in one pass.
type learner struct {
	c        *column
	budget   *memory.Budget
	n        float64
	mean, m2 float64
	min, max float64
	zeros    int
	whole    bool
	values   map[float64]bool // different values, up to fewValues + 1
	w        float64          // weight of the current row
	weight   float64          // total weight of the rows with a number
	levels   map[string]*levelCount

	now  float64 // for an outcome: value or sign of the current row
	leak leak
}

// add learns from the value of a row of weight w. y is the learner of the outcome, or nil.
func (l *learner) add(v *cell, y *learner, w float64) error {
	c := l.c
	l.w = w
	if c.isGapCell(v) {
		c.Gaps++
		if c.Missing == missingError {
			return sentinel.Wrap(pgsvi.ErrNotFinite,
				"the value is missing; choose a method of %s for missing values",
				constructors[c.Kind])
		}
		l.leak.add(nil, math.NaN(), true, y)
		return nil
	}
	c.Values++
	switch {
	case c.Kind == kindEvent:
		seen, err := c.observed(v)
		if err != nil {
			return err
		}
		l.addNumber(float64(b2i(seen)))
	case c.Kind == kindDate:
		s, err := c.date(v)
		if err != nil {
			return err
		}
		l.addNumber(s)
		l.leak.add(nil, s, false, y)
	case c.Kind == kindNumber || c.Numeric || c.Kind == kindExposure || c.Kind == kindOffset ||
		c.Kind == kindWeight || c.Kind == kindPrecision || c.Kind == kindTrials:
		x, err := c.value(v)
		if err == nil {
			err = c.checkScale(x)
		}
		if err != nil {
			return err
		}
		l.addNumber(x)
		l.now = x
		if c.Kind == kindNumber {
			l.leak.add(nil, x, false, y)
		}
	default:
		return l.addText(c.text(v), y)
	}
	return nil
}

func (l *learner) addText(text string, y *learner) error {
	if l.levels == nil {
		l.levels = map[string]*levelCount{}
	}
	level := l.levels[text]
	if level == nil {
		if err := l.budget.Keep(len(text) + levelSize); err != nil {
			return err
		}
		level = &levelCount{}
		l.levels[strings.Clone(text)] = level
	}
	level.n++
	level.weight += l.w
	if y != nil {
		level.outcome += l.w * y.now
	}
	l.now = -1
	if p := l.c.Positive; text == p || l.c.Fold && text == fold(p) {
		l.now = 1
	}
	if l.c.Kind == kindCategory {
		l.leak.add(level, math.NaN(), false, y)
	}
	return nil
}

// levelCount counts the rows of a level, in total and by sign of the outcome.
type levelCount struct {
	n               int
	weight, outcome float64 // sums over the rows of the weight, and of weight times outcome
	sign            [2]int
}

// counts returns the rows of each level.
func (l *learner) counts() map[string]int {
	counts := make(map[string]int, len(l.levels))
	for text, level := range l.levels {
		counts[text] = level.n
	}
	return counts
}

// checkScale returns an error that wraps ErrParam if x is outside the range of its kind.
func (c *column) checkScale(x float64) error {
	switch {
	case c.Kind == kindExposure && !(x > 0):
		return sentinel.Wrap(pgsvi.ErrParam, "the exposure is %v; exposures must be above 0", x)
	case c.Kind == kindWeight && !(x >= 0):
		return sentinel.Wrap(pgsvi.ErrParam, "the weight is %v; weights must be at least 0", x)
	case c.Kind == kindPrecision && !(x > 0):
		return sentinel.Wrap(pgsvi.ErrParam, "the precision is %v; precisions must be above 0", x)
	case c.Kind == kindTrials && (!(x > 0) || x != math.Trunc(x)):
		return sentinel.Wrap(pgsvi.ErrParam, "the number of trials is %v; it must be a whole "+
			"number above 0", x)
	}
	return nil
}

// addNumber updates the weighted moments (West, 1979). It ignores rows of weight 0.
func (l *learner) addNumber(x float64) {
	if l.w == 0 {
		return
	}
	if l.n == 0 {
		l.min, l.max, l.whole, l.values = x, x, true, map[float64]bool{}
	}
	l.n++
	l.weight += l.w
	d := x - l.mean
	l.mean += d * l.w / l.weight
	l.m2 += l.w * d * (x - l.mean)
	l.min, l.max = min(l.min, x), max(l.max, x)
	l.whole = l.whole && x == math.Trunc(x)
	if x == 0 {
		l.zeros++
	}
	if len(l.values) <= fewValues {
		l.values[x] = true
	}
}

// finish stores the results in the column. It returns a problem with the column, or "".
func (l *learner) finish(y *learner) string {
	c := l.c
	switch c.Kind {
	case kindNumber, kindDate:
		if problem := l.finishNumber(); problem != "" {
			return problem
		}
	case kindExposure, kindOffset, kindWeight, kindPrecision, kindTrials, kindEvent:
		c.Mean, c.SD, c.Min, c.Max = l.mean, l.sd(), l.min, l.max
		if c.Kind == kindEvent && c.Max == 0 {
			c.Doubts = append(c.Doubts, "no event was observed, so all times are censored and "+
				"only the prior limits the durations")
		}
	case kindOutcome:
		if problem := l.finishOutcome(); problem != "" {
			return problem
		}
	default:
		if problem := l.finishLevels(); problem != "" {
			return problem
		}
	}
	if y != nil && l != y {
		c.Doubts = append(c.Doubts, l.leak.doubts(y, l.levels)...)
	}
	return ""
}

func (l *learner) sd() float64 { return math.Sqrt(max(0, l.m2/l.weight)) }

func (l *learner) finishNumber() string {
	c := l.c
	if c.Values == 0 {
		return "no kept row has a value"
	}
	if l.n == 0 {
		return "all rows with a value have weight 0"
	}
	c.Mean, c.SD, c.Min, c.Max = l.mean, l.sd(), l.min, l.max
	if c.Kind == kindDate {
		c.Origin = l.min
		c.Mean, c.SD = (l.mean-l.min)/yearSeconds, c.SD/yearSeconds
		c.Min, c.Max = 0, (l.max-l.min)/yearSeconds
	}
	c.Shift, c.Scale = c.Mean, c.SD
	if c.Kind == kindNumber && len(l.values) == 2 { // 0 and 1, like the levels of a category
		c.Shift, c.Scale, c.binary = l.min, l.max-l.min, true
	}
	if c.Unscaled {
		c.Shift, c.Scale = 0, 1
	}
	if l.min == l.max {
		if c.Kind == kindNumber || slices.Contains(c.Parts, Elapsed) {
			return allTheSame
		}
		c.Scale = 1
	}
	if !(c.Scale > 0) || math.IsInf(c.Scale, 0) || math.IsInf(c.Mean, 0) {
		return fmt.Sprintf("the values from %v to %v are too large, or too close together, to "+
			"standardize", l.min, l.max)
	}
	if c.Kind == kindNumber && c.Why != whyDeclared && !c.Computed && l.mayBeCodes() {
		c.Doubts = append(c.Doubts,
			fmt.Sprintf("%d different whole numbers from %v to %v; if they are codes, %s",
				len(l.values), l.min, l.max, c.asCategory()))
	}
	return ""
}

// asCategory returns advice on how to make the column a category.
func (c *column) asCategory() string {
	if c.formula {
		return "write " + formula.FactorName(c.Name) + " in the formula"
	}
	return fmt.Sprintf("use Category(%q)", c.Name)
}

// fewWhole reports whether the values look like codes.
func (l *learner) fewWhole() bool {
	return l.whole && l.min >= 1 && len(l.values) <= fewValues && l.c.Values > 2*fewValues
}

// Reasons for a kind that the caller chose.
const (
	whyDeclared = "declared"
	whyFormula  = "the formula" // the formula allows no other kind
	whyComputed = "computed"
)

// doubtPart adds a doubt to a category if some of its values are numbers: the numbers may be
// measurements, and the texts may mean missing. It also adds a doubt to a number that the formula
// uses if the values look like an identifier.
func (l *learner) doubtPart(p *profile) {
	c := l.c
	if c.Kind == kindNumber && c.Why == whyFormula && p.allDifferent() {
		c.Doubts = append(c.Doubts, fmt.Sprintf("%d whole numbers, all different; if they are "+
			"an identifier, leave %s out of the formula", p.values, csvQuote(c.Name)))
	}
	n := p.numbersBy(c.Sign[0])
	if c.Why != whyDeclared && c.Kind == kindCategory && 5*n >= p.values && n < p.values {
		c.Doubts = append(c.Doubts,
			fmt.Sprintf("%d of %d values are numbers; if the texts mean missing values, use "+
				"Number(%q).MissingAre(…)", n, p.values, c.Name))
	}
}

func (l *learner) finishLevels() string {
	c := l.c
	counts := l.counts()
	c.Levels = sortedKeys(counts)
	for _, level := range c.Levels {
		c.Counts = append(c.Counts, counts[level])
	}
	if c.Kind == kindGroup {
		l.doubtMeasured()
	}
	if c.Kind != kindCategory {
		return ""
	}
	if len(c.Levels) == 0 {
		return "no kept row has a value"
	}
	if c.Fold {
		c.Reference = fold(c.Reference)
	}
	if c.Reference == "" {
		c.Reference = l.reference()
	} else if counts[c.Reference] == 0 {
		return fmt.Sprintf("the reference %s is not a level; the levels are %s",
			csvQuote(c.Reference), countsText(counts, fewListed))
	}
	if c.Unknown == unknownMissing && c.Missing != missingLevel {
		return "UnknownIsMissing needs Level"
	}
	if len(c.Levels) == 1 && c.Missing != missingLevel {
		return allTheSame
	}
	l.doubtRare(counts)
	return ""
}

// doubtMeasured adds a doubt about groups that look like measurements.
func (l *learner) doubtMeasured() {
	c, whole := l.c, true
	if len(c.Levels) <= fewValues {
		return
	}
	for _, level := range c.Levels {
		x, _, ok := numberOf(level, c.Sign[0])
		if !ok {
			return
		}
		whole = whole && x == math.Trunc(x)
	}
	if !whole || 2*len(c.Levels) > c.Values {
		c.Doubts = append(c.Doubts, fmt.Sprintf("%d groups in %d rows, all of them numbers; if "+
			"they measure something, use s(%s) instead of a group", len(c.Levels), c.Values,
			formula.Col(c.Name)))
	}
}

// reference returns the level that all other levels are compared with. For opposites such as no and
// yes it is the negative level, as 0 is for 0 and 1. Otherwise it is the level with the largest
// weight. If several levels have this weight, the level with the lowest mean outcome is used, so
// that names do not matter.
func (l *learner) reference() string {
	if levels := l.c.Levels; len(levels) == 2 {
		if negative, _, ok := opposites(levels[0], levels[1]); ok {
			return negative
		}
	}
	best := ""
	for i, text := range l.c.Levels {
		a, b := l.levels[text], l.levels[best]
		if i == 0 || a.weight > b.weight || a.weight == b.weight && a.outcome < b.outcome {
			best = text
		}
	}
	return best
}

// doubtRare adds a doubt about levels with few rows.
func (l *learner) doubtRare(counts map[string]int) {
	rare := map[string]int{}
	for level, n := range counts {
		if n < rareLevel {
			rare[level] = n
		}
	}
	if len(rare) > 0 {
		l.c.Doubts = append(l.c.Doubts, fmt.Sprintf("%s with fewer than %d rows: %s",
			plural(len(rare), "level"),
			rareLevel, countsText(rare, fewListed)))
	}
}

// doubtDecimals adds a doubt about classes that look like measurements.
func (l *learner) doubtDecimals(levels []string) {
	for _, level := range levels {
		x, _, ok := numberOf(level, l.c.Sign[0])
		if l.c.Classes && ok && x != math.Trunc(x) {
			l.c.Doubts = append(l.c.Doubts, fmt.Sprintf("%d classes, one of them the number %s; "+
				"if they measure something, use Outcome(%q).Quantity()",
				len(levels), level, l.c.Name))
			return
		}
	}
}

func (l *learner) finishOutcome() string {
	c := l.c
	if c.Numeric {
		c.Mean, c.SD, c.Min, c.Max = l.mean, l.sd(), l.min, l.max
		if l.min == l.max {
			c.Doubts = append(c.Doubts, fmt.Sprintf("all outcomes are %v, so there is nothing to "+
				"predict", l.min))
		} else if l.fewWhole() && !c.Quantity {
			c.Doubts = append(c.Doubts,
				fmt.Sprintf("%d different whole numbers from %v to %v; if they are classes, use "+
					"Outcome(%q).Classes()", len(l.values), l.min, l.max, c.Name))
		}
		return ""
	}
	counts := l.counts()
	if negative, positive, ok := opposite(c.Positive); ok && len(counts) == 1 {
		counts[negative] += 0 // the other label, which no row has
		counts[positive] += 0
	}
	levels := sortedKeys(counts)
	if len(c.Ordered) > 0 {
		levels = slices.Clone(c.Ordered)
		if c.Fold {
			for i := range levels {
				levels[i] = fold(levels[i])
			}
		}
	}
	if len(levels) < 2 {
		return "all kept rows have the same outcome"
	}
	if c.Positive != "" {
		if c.Fold {
			c.Positive = fold(c.Positive)
		}
		if _, there := counts[c.Positive]; len(levels) != 2 || !there {
			return fmt.Sprintf("the outcome of the kept rows is %s, but it needs two labels",
				countsText(counts, fewListed))
		}
		if levels[0] == c.Positive {
			slices.Reverse(levels)
		}
	}
	l.doubtRare(counts)
	l.doubtDecimals(levels)
	c.Levels = levels
	for _, level := range levels {
		c.Counts = append(c.Counts, counts[level])
	}
	return ""
}

// nonzero returns the number of nonzero feature values of the column over all rows.
func (l *learner) nonzero() float64 {
	c := l.c
	switch c.Kind {
	case kindNumber:
		if c.Shift == 0 && c.Scale == 1 {
			return float64(c.Values - l.zeros + 2*c.Gaps)
		}
		return float64(c.Values + c.Gaps)
	case kindDate:
		return float64((c.Values + c.Gaps) * len(c.Parts))
	case kindCategory:
		return float64(c.Values - l.counts()[c.Reference] + c.Gaps)
	}
	return 0
}

// A leak finds out whether a column gives the outcome away.
type leak struct {
	levels   bool   // whether the column is a category
	rows     [2]int // by sign of the outcome
	gaps     [2]int
	min, max [2]float64
	n        float64 // rows in the correlation
	mx, my   float64
	xx, yy   float64
	xy       float64
}

// add counts a row with a level or a number, or with neither if the value is missing.
func (k *leak) add(level *levelCount, x float64, missing bool, y *learner) {
	if y == nil || y.c.Positive == "" && !y.c.Numeric {
		return
	}
	if y.c.Numeric {
		if !missing && !math.IsNaN(x) {
			k.n++
			dx, dy := x-k.mx, y.now-k.my
			k.mx += dx / k.n
			k.my += dy / k.n
			k.xx += dx * (x - k.mx)
			k.yy += dy * (y.now - k.my)
			k.xy += dx * (y.now - k.my)
		}
		return
	}
	s := b2i(y.now > 0)
	k.rows[s]++
	switch {
	case missing:
		k.gaps[s]++
	case !math.IsNaN(x):
		if k.rows[s]-k.gaps[s] == 1 {
			k.min[s], k.max[s] = x, x
		}
		k.min[s], k.max[s] = min(k.min[s], x), max(k.max[s], x)
	default:
		k.levels = true
		level.sign[s]++
	}
}

// doubts returns a doubt if the column gives the outcome away.
func (k *leak) doubts(y *learner, levels map[string]*levelCount) (all []string) {
	name := csvQuote(y.c.Name)
	if r := k.xy / math.Sqrt(k.xx*k.yy); y.c.Numeric {
		if math.Abs(r) > leakShare {
			all = append(all, fmt.Sprintf("gives %s away: their correlation is %.4f", name, r))
		}
		return all
	}
	total := k.rows[0] + k.rows[1]
	if min(k.rows[0], k.rows[1]) < leakRows || float64(max(k.rows[0],
		k.rows[1])) > leakAtMost*float64(total) {
		return nil
	}
	right := max(k.gaps[0], k.gaps[1])
	for _, n := range levels {
		right += max(n.sign[0], n.sign[1])
	}
	few := 10*len(levels) < total
	switch {
	case k.levels && few && float64(right) > leakShare*float64(total):
		all = append(all, fmt.Sprintf("gives %s away: its levels determine it in %d of %d rows",
			name, right, total))
	case !k.levels && k.apart():
		all = append(all, fmt.Sprintf("gives %s away: the values of the two labels do not overlap",
			name))
	case k.gaps[0]+k.gaps[1] > leakRows:
		other := k.gaps[0] + k.rows[1] - k.gaps[1]
		if float64(max(other, total-other)) > leakShare*float64(total) {
			all = append(all,
				fmt.Sprintf("gives %s away: it is missing for one of the two labels", name))
		}
	}
	return all
}

// apart reports whether the ranges of the two labels do not overlap.
func (k *leak) apart() bool {
	for s := range 2 {
		if k.rows[s]-k.gaps[s] < leakRows {
			return false
		}
	}
	return k.max[0] < k.min[1] || k.max[1] < k.min[0]
}
