package data

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

const (
	rareLevel  = 20 // rows of a level below which its weight is mostly that of the prior
	fewValues  = 20 // whole numbers of so few values may be codes
	leakRows   = 20 // rows of each label below which nothing is said of an outcome given away
	leakShare  = 0.995
	leakAtMost = 0.95 // share of the more frequent label
	levelSize  = 64   // bytes of a level, besides its text
)

// allTheSame is the problem of a column without an effect.
const allTheSame = "all values of the rows that are kept are the same"

// decisionAfter returns the decision about a column whose values have a problem.
func decisionAfter(name, problem string) Decision {
	d := Decision{Column: name, Problem: problem}
	if problem == allTheSame {
		d.Choices = []Choice{{Column: Skip(name)}}
	}
	return d
}

// learner learns a column in one pass.
type learner struct {
	c        *column
	budget   *memory.Budget
	n        float64
	mean, m2 float64
	min, max float64
	zeros    int
	whole    bool
	values   map[float64]bool // different ones, up to fewValues + 1
	w        float64          // the weight of this row
	weight   float64          // sum of the weights of rows with a number
	levels   map[string]*levelCount

	now  float64 // of an outcome: the value or sign of this row
	leak leak
}

// add learns from the value of a row of weight w. y is the outcome, or nil.
func (l *learner) add(v *cell, y *learner, w float64) error {
	c := l.c
	l.w = w
	if c.isGapCell(v) {
		c.Gaps++
		if c.Missing == missingError {
			return sentinel.Wrap(pgsvi.ErrNotFinite,
				"the value is missing, and it is not said what to do about that; "+
					"see the methods of %s", constructors[c.Kind])
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
		c.Kind == kindWeight || c.Kind == kindTrials:
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

// levelCount counts the rows of a level, and those by the sign of the outcome.
type levelCount struct {
	n               int
	weight, outcome float64 // sums over the rows: of the weight, and of that times the outcome
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

// checkScale returns an error if a number cannot be what it is said to be.
func (c *column) checkScale(x float64) error {
	switch {
	case c.Kind == kindExposure && !(x > 0):
		return sentinel.Wrap(pgsvi.ErrParam, "found the exposure %v, want a number > 0", x)
	case c.Kind == kindWeight && !(x >= 0):
		return sentinel.Wrap(pgsvi.ErrParam, "found the weight %v, want a number ≥ 0", x)
	case c.Kind == kindTrials && (!(x > 0) || x != math.Trunc(x)):
		return sentinel.Wrap(pgsvi.ErrParam, "found %v trials, want a whole number > 0", x)
	}
	return nil
}

// addNumber updates the weighted moments (West, 1979). A row of weight 0 counts for nothing.
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

// finish sets what was learned. It returns what is wrong with the column, or "".
func (l *learner) finish(y *learner) string {
	c := l.c
	switch c.Kind {
	case kindNumber, kindDate:
		if problem := l.finishNumber(); problem != "" {
			return problem
		}
	case kindExposure, kindOffset, kindWeight, kindTrials, kindEvent:
		c.Mean, c.SD, c.Min, c.Max = l.mean, l.sd(), l.min, l.max
		if c.Kind == kindEvent && c.Max == 0 {
			c.Doubts = append(c.Doubts, "no event was observed: all times are censored, and how "+
				"much longer durations are is the prior's guess")
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
		return "no row that is kept has a value"
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
		return fmt.Sprintf("the values from %v to %v are too large or too close for their "+
			"standard deviation", l.min, l.max)
	}
	if c.Kind == kindNumber && c.Why != whySaid && l.mayBeCodes() {
		c.Doubts = append(c.Doubts,
			fmt.Sprintf("whole numbers of %d values, %v to %v: if they are codes, Category(%q)",
				len(l.values), l.min, l.max, c.Name))
	}
	return ""
}

// fewWhole reports whether the values look like codes.
func (l *learner) fewWhole() bool {
	return l.whole && l.min >= 1 && len(l.values) <= fewValues && l.c.Values > 2*fewValues
}

// The reasons of a kind that the caller has given.
const (
	whySaid    = "said"
	whyFormula = "the formula" // which has no other reading
)

// doubtPart says that a category was made of a column of which a part is numbers: those may be
// what was measured, and the texts what was written where nothing was. Or it says that a column
// that the formula takes for a number may be an identifier.
func (l *learner) doubtPart(p *profile) {
	c := l.c
	if c.Kind == kindNumber && c.Why == whyFormula && p.allDifferent() {
		c.Doubts = append(c.Doubts, fmt.Sprintf("%d whole numbers, all different: if they are "+
			"an identifier, leave %s out of the formula", p.values, csvQuote(c.Name)))
	}
	n := p.numbersBy(c.Sign[0])
	if c.Why != whySaid && c.Kind == kindCategory && 5*n >= p.values && n < p.values {
		c.Doubts = append(c.Doubts,
			fmt.Sprintf("%d of %d values are numbers: if the texts mean that there "+
				"is none, Number(%q).MissingAre(…)", n, p.values, c.Name))
	}
}

func (l *learner) finishLevels() string {
	c := l.c
	counts := l.counts()
	c.Levels = sortedKeys(counts)
	for _, level := range c.Levels {
		c.Counts = append(c.Counts, counts[level])
	}
	if c.Kind != kindCategory {
		return ""
	}
	if len(c.Levels) == 0 {
		return "no row that is kept has a value"
	}
	if c.Fold {
		c.Reference = fold(c.Reference)
	}
	if c.Reference == "" {
		c.Reference = l.reference()
	} else if counts[c.Reference] == 0 {
		return fmt.Sprintf("there is no level %s to be the reference; there are %s",
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

// reference returns the level that the others are compared with. For opposites such as no and yes it
// is the negative one, as 0 is for 0 and 1. Otherwise it is the level with the largest weight and,
// if several have that, the lowest mean outcome, so that names do not matter.
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

// doubtRare names the levels of few rows.
func (l *learner) doubtRare(counts map[string]int) {
	rare := map[string]int{}
	for level, n := range counts {
		if n < rareLevel {
			rare[level] = n
		}
	}
	if len(rare) > 0 {
		l.c.Doubts = append(l.c.Doubts, fmt.Sprintf("%s of fewer than %d rows: %s",
			plural(len(rare), "level"),
			rareLevel, countsText(rare, fewListed)))
	}
}

// doubtDecimals says that classes look like measurements.
func (l *learner) doubtDecimals(levels []string) {
	for _, level := range levels {
		x, _, ok := numberOf(level, l.c.Sign[0])
		if l.c.Classes && ok && x != math.Trunc(x) {
			l.c.Doubts = append(l.c.Doubts, fmt.Sprintf("%d classes, and one is the number %s: if "+
				"these measure something, Outcome(%q).Quantity()", len(levels), level, l.c.Name))
			return
		}
	}
}

func (l *learner) finishOutcome() string {
	c := l.c
	if c.Numeric {
		c.Mean, c.SD, c.Min, c.Max = l.mean, l.sd(), l.min, l.max
		if l.fewWhole() && !c.Quantity {
			c.Doubts = append(c.Doubts,
				fmt.Sprintf("whole numbers of %d values, %v to %v: if they are classes, "+
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
		return "the outcome of all rows that are kept is the same"
	}
	if c.Positive != "" {
		if c.Fold {
			c.Positive = fold(c.Positive)
		}
		if _, there := counts[c.Positive]; len(levels) != 2 || !there {
			return fmt.Sprintf("the outcome of the rows that are kept is %s, want two labels",
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

// nonzero returns how many features of the column are not 0, over all rows.
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

// leak finds out whether a column gives the outcome away.
type leak struct {
	levels   bool   // of a category
	rows     [2]int // by sign of the outcome
	gaps     [2]int
	min, max [2]float64
	n        float64 // of the correlation
	mx, my   float64
	xx, yy   float64
	xy       float64
}

// add counts a row: a level, or a number, or neither if the value is missing.
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

// doubts says what gives the outcome away.
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
		all = append(all, fmt.Sprintf("gives %s away: its levels say it in %d of %d rows", name,
			right, total))
	case !k.levels && k.apart():
		all = append(all, fmt.Sprintf("gives %s away: the values of the two labels lie apart",
			name))
	case k.gaps[0]+k.gaps[1] > leakRows:
		other := k.gaps[0] + k.rows[1] - k.gaps[1]
		if float64(max(other, total-other)) > leakShare*float64(total) {
			all = append(all,
				fmt.Sprintf("gives %s away: it is missing where that is one of its labels", name))
		}
	}
	return all
}

// apart reports whether the numbers of the two labels lie apart.
func (k *leak) apart() bool {
	for s := range 2 {
		if k.rows[s]-k.gaps[s] < leakRows {
			return false
		}
	}
	return k.max[0] < k.min[1] || k.max[1] < k.min[0]
}
