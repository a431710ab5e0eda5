package data

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// put writes the features of a value to x, which has one element for each feature of the column and
// must be 0 everywhere. The feature of a number, or of a date in years since the first date, is
// (value − shift)/scale. The note is not empty if the value was imputed, is new or is outside the
// range of the training data.
func (c *column) put(x []float64, v *cell, shift, scale float64) (note string, err error) {
	if c.isGapCell(v) {
		return c.putMissing(x, shift, scale)
	}
	switch c.Kind {
	case kindNumber:
		f, err := c.value(v)
		if err != nil {
			return "", err
		}
		x[0] = (f - shift) / scale
		return c.range_(f), nil
	case kindDate:
		s, err := c.date(v)
		if err != nil {
			return "", err
		}
		return c.putDate(x, s, shift, scale), nil
	case kindCategory:
		i, ok := c.level[v.s]
		if !ok {
			i, ok = c.level[c.text(v)]
		}
		if !ok && v.kind == boolCell {
			i, ok = c.boolLevel(v.s)
		}
		if !ok {
			return c.putUnknown(x, v)
		}
		if k := c.feature[i]; k >= 0 {
			x[k] = 1
		}
	}
	return "", nil
}

// hasNumber reports whether the first feature of the column is a number, rather than an indicator.
func (c *column) hasNumber() bool {
	return c.Kind == kindNumber || c.Kind == kindDate && slices.Contains(c.Parts, Elapsed)
}

// range_ returns a note if a number is outside the range of the training data.
func (c *column) range_(f float64) string {
	if c.Min <= f && f <= c.Max {
		return ""
	}
	return fmt.Sprintf("%s is %v, outside the training range %v to %v", csvQuote(c.Name), f,
		c.Min, c.Max)
}

func (c *column) putDate(x []float64, seconds, shift, scale float64) (note string) {
	var t time.Time
	for _, p := range c.Parts {
		if p != Elapsed && t.IsZero() {
			t = time.Unix(int64(math.Floor(seconds)), 0).UTC()
		}
		switch p {
		case Elapsed:
			years := (seconds - c.Origin) / yearSeconds
			x[0] = (years - shift) / scale
			if years < c.Min || years > c.Max {
				note = csvQuote(c.Name) + " is outside the training dates"
			}
			x = x[1:]
		case Month:
			if m := int(t.Month()); m > 1 {
				x[m-2] = 1
			}
			x = x[11:]
		case Weekday:
			if d := (int(t.Weekday()) + 6) % 7; d > 0 {
				x[d-1] = 1
			}
			x = x[6:]
		}
	}
	return note
}

func (c *column) putMissing(x []float64, shift, scale float64) (note string, err error) {
	switch c.Missing {
	case missingImpute:
		if c.Kind == kindNumber || slices.Contains(c.Parts, Elapsed) {
			x[0] = (c.Mean - shift) / scale
		}
		x[c.n-1] = 1
		return csvQuote(c.Name) + " is missing and replaced by the mean", nil
	case missingLevel:
		if c.gone >= 0 && c.n > 0 {
			x[c.gone] = 1
		}
		return "", nil
	case missingDrop:
		return "", sentinel.Wrap(pgsvi.ErrNotFinite,
			"the value is missing, and training left out such rows; use %s", c.accepts())
	}
	return "", sentinel.Wrap(pgsvi.ErrNotFinite,
		"the value is missing, but no value was missing in training; use %s", c.accepts())
}

func (c *column) putUnknown(x []float64, v *cell) (note string, err error) {
	text := csvQuote(c.text(v))
	switch c.Unknown {
	case unknownNew:
		x[c.nw] = 1
		return fmt.Sprintf("%s=%s is new", csvQuote(c.Name), text), nil
	case unknownReference:
		return fmt.Sprintf("%s=%s is new and read as %s", csvQuote(c.Name), text,
			csvQuote(c.Reference)), nil
	case unknownMissing:
		x[c.gone] = 1
		return fmt.Sprintf("%s=%s is new and read as missing", csvQuote(c.Name), text), nil
	}
	return "", sentinel.Wrap(pgsvi.ErrParam,
		"the level %s is unknown; use %s", text, c.accepts())
}

// boolLevel returns the level that equals true or false in any case, or 1 or 0.
func (c *column) boolLevel(text string) (i int, ok bool) {
	for i, l := range c.Levels {
		if strings.EqualFold(l, text) || text == "true" && l == "1" || text == "false" && l == "0" {
			return i, true
		}
	}
	return 0, false
}

// accepts describes the values that are valid in the column.
func (c *column) accepts() string {
	switch c.Kind {
	case kindCategory, kindOutcome:
		if c.Levels != nil {
			return "one of " + strings.Join(quoteAll(c.Levels, 8), ", ")
		}
	case kindDate:
		return "a date like " + strings.Join(c.Written, " or ")
	case kindGroup:
		return "the name of a group, or any other name for a new group"
	case kindEvent:
		return "1 or 0"
	}
	if c.Units == "" {
		return "a number"
	}
	return c.unitText()
}

// index returns the index of the level of a value. It returns -1 for a level that training has not
// seen, and for a missing value if the column allows missing values.
func (c *column) index(v *cell) (int, error) {
	if c.isGapCell(v) {
		if c.Missing == missingLevel {
			return -1, nil
		}
		_, err := c.putMissing(nil, 0, 1)
		return -1, err
	}
	i, ok := c.level[c.text(v)]
	if !ok && v.kind == boolCell {
		i, ok = c.boolLevel(v.s)
	}
	if !ok {
		return -1, nil
	}
	return i, nil
}

// classes reports whether the outcome is one of several unordered classes, numbered from 0.
func (c *column) classes() bool {
	return c.Kind == kindOutcome && c.Levels != nil && c.Positive == "" && !c.Ordinal
}

// ordered reports whether the outcome is one of several ordered levels, numbered from 0.
func (c *column) ordered() bool { return c.Kind == kindOutcome && c.Levels != nil && c.Ordinal }

// outcome returns the value of an outcome as in Data.Y.
func (c *column) outcome(v *cell) (float64, error) {
	if c.isGapCell(v) {
		return 0, sentinel.Wrap(pgsvi.ErrNotFinite, "the outcome is missing")
	}
	if c.Numeric {
		y, err := c.value(v)
		if err == nil && c.Root {
			return root(y)
		}
		return y, err
	}
	i, err := c.index(v)
	switch {
	case err != nil:
		return 0, err
	case i < 0:
		return 0, sentinel.Wrap(pgsvi.ErrLabel,
			"the outcome %s is unknown; use %s", csvQuote(c.text(v)), c.accepts())
	case c.Positive != "":
		return float64(2*i - 1), nil
	}
	return float64(i), nil
}

// root returns the square root of an outcome, for a model of sqrt(y).
func root(y float64) (float64, error) {
	if !(y >= 0) {
		return y, fmt.Errorf("the outcome is %v, but its square root needs a number of at least "+
			"0: %w",
			y, pgsvi.ErrLabel)
	}
	return math.Sqrt(y), nil
}

// observed reports whether the event in a cell of a column of events was observed.
func (c *column) observed(v *cell) (bool, error) {
	if c.isGapCell(v) {
		_, err := c.scale(v)
		return false, err
	}
	text := v.s
	if x, err := c.value(v); err == nil {
		text = strconv.FormatFloat(x, 'g', -1, 64)
	}
	for _, pair := range opposed {
		switch fold(text) {
		case pair[0]:
			return false, nil
		case pair[1]:
			return true, nil
		}
	}
	return false, sentinel.Wrap(pgsvi.ErrLabel, "the event is %s; use 1 or yes if it was "+
		"observed, or 0 or no if the time is censored", csvQuote(text))
}

// duration returns the response for the time y from the column times. v is the cell of the event.
// The response is y if the event was observed, and −y otherwise.
func (c *column) duration(times *column, y float64, v *cell) (float64, error) {
	observed, err := c.observed(v)
	switch {
	case err != nil:
		return 0, c.wrap(err)
	case !(y > 0):
		return 0, times.wrap(sentinel.Wrap(pgsvi.ErrLabel,
			"the time is %v; times must be above 0", y))
	case observed:
		return y, nil
	}
	return -y, nil
}

// scale returns the value of an exposure, an offset, a weight or a number of trials.
func (c *column) scale(v *cell) (float64, error) {
	if c.isGapCell(v) {
		return 0, sentinel.Wrap(pgsvi.ErrNotFinite, "the value is missing; use %s", c.accepts())
	}
	x, err := c.value(v)
	if err == nil {
		err = c.checkScale(x)
	}
	return x, err
}
