package data

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// A Column says what a column of a table is, and what to do about its values. Its makers are
// Outcome, Number, Category, Date, Group, Exposure, Offset, Weight, Trials, Event, Skip and Raw.
// Only columns that need a decision have to be named; Table.Suggest says which.
type Column interface {
	// String returns the call that makes the column, as Go.
	String() string
	said() *spec
}

type kind string

const (
	kindNumber   kind = "number"
	kindCategory kind = "category"
	kindDate     kind = "date"
	kindGroup    kind = "group"
	kindOutcome  kind = "outcome"
	kindExposure kind = "exposure"
	kindOffset   kind = "offset"
	kindWeight   kind = "weight"
	kindTrials   kind = "trials"
	kindEvent    kind = "event"
	kindSkip     kind = "skip"
	kindRaw      kind = "raw"
)

// What is done about a missing value.
const (
	missingError  = ""
	missingDrop   = "drop"
	missingImpute = "impute"
	missingLevel  = "level"
)

// What is done about a level that training has not seen.
const (
	unknownError     = ""
	unknownNew       = "new"
	unknownReference = "reference"
	unknownMissing   = "missing"
)

// spec is what the caller says of a column. It is saved as it is.
type spec struct {
	Name      string   `json:"name"`
	Kind      kind     `json:"kind"`
	Missing   string   `json:"missing,omitempty"`
	Unknown   string   `json:"unknown,omitempty"`
	NA        []string `json:"na,omitempty"`     // texts that mean missing, besides the usual ones
	NotNA     []string `json:"not_na,omitempty"` // of these, those that do not
	Fold      bool     `json:"fold,omitempty"`
	KeepCase  bool     `json:"keep_case,omitempty"`
	Reference string   `json:"reference,omitempty"`
	Positive  string   `json:"positive,omitempty"`
	Classes   bool     `json:"classes,omitempty"`
	Quantity  bool     `json:"quantity,omitempty"` // an outcome that is a number
	Ordinal   bool     `json:"ordinal,omitempty"`  // an outcome of ordered levels
	Ordered   []string `json:"ordered,omitempty"`  // these levels; nil for those of numbers
	Limit     string   `json:"limit,omitempty"`
	Layouts   []string `json:"layouts,omitempty"`
	Parts     []Part   `json:"parts,omitempty"`
	Decimal   string   `json:"decimal,omitempty"`
	Unit      string   `json:"unit,omitempty"`
	AnyUnit   bool     `json:"any_unit,omitempty"`
	Unscaled  bool     `json:"unscaled,omitempty"`
	Clock     bool     `json:"clock,omitempty"` // a number that is a time of day
	why       string   // the kind is what it is
	formula   bool     // which says the kind
	auto      bool     // Positive is the second one of an obvious pair
	found     []string // all layouts
}

func (s *spec) said() *spec { return s }

func (s *spec) copy() *spec {
	if s == nil {
		return &spec{}
	}
	c := *s
	c.NA, c.NotNA = slices.Clone(s.NA), slices.Clone(s.NotNA)
	c.Layouts, c.Parts = slices.Clone(s.Layouts), slices.Clone(s.Parts)
	c.Ordered = slices.Clone(s.Ordered)
	return &c
}

// fold returns what texts that differ in case, or in how accents are written, have in common.
func fold(s string) string { return strings.ToLower(norm.NFC.String(s)) }

var constructors = map[kind]string{
	kindNumber: "Number", kindCategory: "Category", kindDate: "Date", kindGroup: "Group",
	kindOutcome: "Outcome", kindExposure: "Exposure", kindOffset: "Offset", kindWeight: "Weight",
	kindTrials: "Trials", kindEvent: "Event", kindSkip: "Skip",
}

// call returns the call that makes the column, without the name of the package.
func (s *spec) call() string {
	if s.Kind == kindRaw {
		return "Raw()"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s(%q)", constructors[s.Kind], s.Name)
	texts := func(method string, args ...string) {
		if len(args) > 0 {
			fmt.Fprintf(&b, ".%s(%s)", method, strings.Join(quoteAll(args, len(args)), ", "))
		}
	}
	flag := func(on bool, method string) {
		if on {
			fmt.Fprintf(&b, ".%s()", method)
		}
	}
	texts("MissingAre", s.NA...)
	texts("NotMissing", s.NotNA...)
	flag(s.Fold, "FoldCase")
	flag(s.KeepCase, "KeepCase")
	if s.Reference != "" {
		texts("Reference", s.Reference)
	}
	if s.Positive != "" {
		texts("Positive", s.Positive)
	}
	flag(s.Classes, "Classes")
	flag(s.Quantity, "Quantity")
	if s.Ordinal && len(s.Ordered) == 0 {
		flag(true, "Ordered")
	}
	texts("Ordered", s.Ordered...)
	if s.Decimal != "" {
		fmt.Fprintf(&b, ".Decimal(%q)", rune(s.Decimal[0]))
	}
	if s.Unit != "" {
		texts("Unit", s.Unit)
	}
	flag(s.AnyUnit, "AnyUnit")
	if s.Limit != "" {
		texts("BelowLimit", s.Limit)
	}
	texts("Layout", s.Layouts...)
	if len(s.Parts) > 0 {
		var parts []string
		for _, p := range s.Parts {
			parts = append(parts, "data."+map[Part]string{Elapsed: "Elapsed", Month: "Month",
				Weekday: "Weekday"}[p])
		}
		fmt.Fprintf(&b, ".As(%s)", strings.Join(parts, ", "))
	}
	flag(s.Clock, "Clock")
	flag(s.Unscaled, "Raw")
	flag(s.Missing == missingDrop, "Drop")
	flag(s.Missing == missingImpute, "Impute")
	flag(s.Missing == missingLevel, "Level")
	flag(s.Unknown == unknownNew, "New")
	flag(s.Unknown == unknownReference, "UnknownIsReference")
	flag(s.Unknown == unknownMissing, "UnknownIsMissing")
	return b.String()
}

// String returns the call as Go.
func (s *spec) String() string { return "data." + s.call() }

func quoteAll(texts []string, most int) (q []string) {
	for i, t := range texts {
		if i == most {
			return append(q, "…")
		}
		q = append(q, csvQuote(t))
	}
	return q
}

// NumberColumn is a feature that is a number. Its methods return changed copies.
type NumberColumn struct{ *spec }

// Number takes a column as numbers. An Encoder standardizes them: it subtracts the mean and divides
// by the standard deviation, with row weights. Two values become 0 and 1. A Model multiplies columns
// as they are and scales the products; see Table.Model. A currency sign or % is ignored, as long as
// all values have the same. "(5)" and "5-" are -5 if training has such numbers.
func Number(name string) NumberColumn { return NumberColumn{specOf(name, kindNumber)} }

func specOf(name string, k kind) *spec { return &spec{Name: name, Kind: k} }

// with returns a changed copy.
func (s *spec) with(change func(*spec)) *spec {
	c := s.copy()
	change(c)
	return c
}

// MissingAre says which texts mean a missing value, besides the usual ones: no text, "NA", "N/A",
// "n/a", "#N/A", "<NA>", "?", ".", "-", "nan" and "null".
func (c NumberColumn) MissingAre(texts ...string) NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Impute puts the mean in place of missing values, and adds the feature "x missing", which is 1
// there and 0 elsewhere.
func (c NumberColumn) Impute() NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Missing = missingImpute })}
}

// Drop leaves out the rows in which the value is missing; see Data.Kept.
func (c NumberColumn) Drop() NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// BelowLimit says what a value such as "<0.3" is: "half" takes 0.15, and "at" takes 0.3. ">300" is
// 300 in both cases.
func (c NumberColumn) BelowLimit(how string) NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Limit = how })}
}

// Decimal says what the decimal sign is, '.' or ','. The other one parts groups of three digits.
func (c NumberColumn) Decimal(sign rune) NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Decimal = string(sign) })}
}

// Unit says which text stands after the numbers, besides the known ones: "m2" of "35 m2".
func (c NumberColumn) Unit(unit string) NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Unit = unit })}
}

// AnyUnit ignores units that differ: "5 €" and "5 $" are both 5.
func (c NumberColumn) AnyUnit() NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.AnyUnit = true })}
}

// Raw leaves the numbers as they are, without standardisation.
func (c NumberColumn) Raw() NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Unscaled = true })}
}

// CategoryColumn is a feature of levels. Its methods return changed copies.
type CategoryColumn struct{ *spec }

// Category takes a column as texts, of which there are some different ones: its levels. The levels
// except for the reference become features, "x=level", that are 1 in their rows and 0 elsewhere.
func Category(name string) CategoryColumn { return CategoryColumn{specOf(name, kindCategory)} }

// MissingAre says which texts mean a missing value, besides the usual ones; see
// NumberColumn.MissingAre.
func (c CategoryColumn) MissingAre(texts ...string) CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// NotMissing says which of the usual texts for a missing value are levels, such as "NA" for
// Namibia.
func (c CategoryColumn) NotMissing(texts ...string) CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.NotNA = append(s.NotNA, texts...) })}
}

// FoldCase makes one of the levels that differ in case, or in how accents are written. Their names
// are in lower case.
func (c CategoryColumn) FoldCase() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Fold = true })}
}

// KeepCase keeps levels apart that differ in case.
func (c CategoryColumn) KeepCase() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.KeepCase = true })}
}

// Reference is the level that the others are compared with. It has no feature. By default it is the
// most frequent one, and the negative one of a pair such as no and yes.
func (c CategoryColumn) Reference(level string) CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Reference = level })}
}

// Level makes missing values a level of their own, the feature "x=(missing)".
func (c CategoryColumn) Level() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Missing = missingLevel })}
}

// Drop leaves out the rows in which the value is missing; see Data.Kept.
func (c CategoryColumn) Drop() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// New adds the feature "x=(new)", which is 0 in training and 1 for a level that training has not
// seen. Its weight keeps the prior, so that predictions of such rows are as uncertain as that. By
// default an unknown level is an error.
func (c CategoryColumn) New() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Unknown = unknownNew })}
}

// UnknownIsReference takes a level that training has not seen for the reference.
func (c CategoryColumn) UnknownIsReference() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Unknown = unknownReference })}
}

// UnknownIsMissing takes a level that training has not seen for a missing value. It needs Level.
func (c CategoryColumn) UnknownIsMissing() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Unknown = unknownMissing })}
}

// Part is a part of a date that becomes features.
type Part string

const (
	// Elapsed is the time since the first date in years of 365.25 days, standardised: "x.elapsed".
	Elapsed Part = "elapsed"
	// Month is the month, against January: "x.month=2" to "x.month=12".
	Month Part = "month"
	// Weekday is the day of the week, against Monday: "x.weekday=Tue" to "x.weekday=Sun".
	Weekday Part = "weekday"
)

// DateColumn is a feature that is a date. Its methods return changed copies.
type DateColumn struct{ *spec }

// Date takes a column as dates, with or without the time of day.
func Date(name string) DateColumn { return DateColumn{specOf(name, kindDate)} }

// Layout says how dates are written, as package time does: "02/01/2006" is day, month, year. Of
// several layouts the first that fits is taken. Days and months of one digit are read by "02" and
// "01", too. "20060102" reads numbers such as 20181231. "2006-W01" reads ISO weeks such as
// "2018-W52" as the dates of their Mondays.
func (c DateColumn) Layout(layouts ...string) DateColumn {
	return DateColumn{c.with(func(s *spec) { s.Layouts = append(s.Layouts, layouts...) })}
}

// As says which parts of the date become features. By default it is Elapsed.
func (c DateColumn) As(parts ...Part) DateColumn {
	return DateColumn{c.with(func(s *spec) { s.Parts = append(s.Parts, parts...) })}
}

// MissingAre says which texts mean a missing value, besides the usual ones; see
// NumberColumn.MissingAre.
func (c DateColumn) MissingAre(texts ...string) DateColumn {
	return DateColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Impute puts the mean in place of missing dates, no month and no weekday, and adds the feature
// "x missing".
func (c DateColumn) Impute() DateColumn {
	return DateColumn{c.with(func(s *spec) { s.Missing = missingImpute })}
}

// Drop leaves out the rows in which the date is missing; see Data.Kept.
func (c DateColumn) Drop() DateColumn {
	return DateColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// OutcomeColumn is what the model predicts. Its methods return changed copies.
type OutcomeColumn struct{ *spec }

// Outcome is the column to predict. Numbers stay what they are. Two labels need Positive, unless
// they are a pair such as no and yes, false and true or 0 and 1, whose second one is +1. Three or
// more texts are classes: Data.Y has their numbers, from 0.
func Outcome(name string) OutcomeColumn { return OutcomeColumn{specOf(name, kindOutcome)} }

// Positive says which of two labels is +1; the other one is −1.
func (c OutcomeColumn) Positive(label string) OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Positive = label })}
}

// Classes takes values for classes, be they numbers or texts: Data.Y has their numbers, from 0, and
// the likelihood is pgsvi.Softmax. Numbers are in the order of their values.
func (c OutcomeColumn) Classes() OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Classes = true })}
}

// Ordered takes values for ordered levels, the lowest first, such as "low", "medium" and "high":
// Data.Y has their numbers, from 0, and the likelihood is pgsvi.Ordinal (ordinal regression). The
// levels of whole numbers need not be listed; they are in the order of their values.
func (c OutcomeColumn) Ordered(levels ...string) OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) {
		s.Ordinal, s.Ordered = true, append(s.Ordered, levels...)
	})}
}

// Quantity takes an outcome of two different numbers, such as counts of 0 and 1, for numbers.
func (c OutcomeColumn) Quantity() OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Quantity = true })}
}

// FoldCase makes one of the labels that differ in case. They are in lower case.
func (c OutcomeColumn) FoldCase() OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Fold = true })}
}

// MissingAre says which texts mean a missing value, besides the usual ones; see
// NumberColumn.MissingAre.
func (c OutcomeColumn) MissingAre(texts ...string) OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Drop leaves out the rows without an outcome; see Data.Kept.
func (c OutcomeColumn) Drop() OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// Decimal says what the decimal sign is; see NumberColumn.Decimal.
func (c OutcomeColumn) Decimal(sign rune) OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Decimal = string(sign) })}
}

// ScaleColumn is a number of a row that is no feature: an exposure, an offset, a weight, a number
// of trials or an event. Its methods return changed copies.
type ScaleColumn struct{ *spec }

// Exposure is how long, or how much, a row was exposed to what is counted. Its logarithm is added
// to Data.Offset. Values must be above 0.
func Exposure(name string) ScaleColumn { return ScaleColumn{specOf(name, kindExposure)} }

// Offset is added to the linear predictor; see Data.Offset.
func Offset(name string) ScaleColumn { return ScaleColumn{specOf(name, kindOffset)} }

// Weight multiplies the log-likelihood of the row; see Data.Weights. Values must be at least 0.
func Weight(name string) ScaleColumn { return ScaleColumn{specOf(name, kindWeight)} }

// Trials is the number of trials of which the outcome is the number of successes; see Data.Trials.
// Values must be whole and above 0.
func Trials(name string) ScaleColumn { return ScaleColumn{specOf(name, kindTrials)} }

// Event says whether the outcome, a duration, ended with the event (survival, time to event):
// values are 1 or true where it did, and 0 or false where it is right-censored, as the event comes
// later. Data.Y has −y for a censored y; see pgsvi.Survival. Durations must be above 0.
func Event(name string) ScaleColumn { return ScaleColumn{specOf(name, kindEvent)} }

// MissingAre says which texts mean a missing value, besides the usual ones; see
// NumberColumn.MissingAre.
func (c ScaleColumn) MissingAre(texts ...string) ScaleColumn {
	return ScaleColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Drop leaves out the rows in which the value is missing; see Data.Kept.
func (c ScaleColumn) Drop() ScaleColumn {
	return ScaleColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// Decimal says what the decimal sign is; see NumberColumn.Decimal.
func (c ScaleColumn) Decimal(sign rune) ScaleColumn {
	return ScaleColumn{c.with(func(s *spec) { s.Decimal = string(sign) })}
}

// GroupColumn says which rows belong together. Its methods return changed copies.
type GroupColumn struct{ *spec }

// Group is a column whose values say which rows belong together, such as customers or subjects, for
// models with random effects. It has no features; see Data.Groups.
func Group(name string) GroupColumn { return GroupColumn{specOf(name, kindGroup)} }

// MissingAre says which texts mean a missing value, besides the usual ones; see
// NumberColumn.MissingAre.
func (c GroupColumn) MissingAre(texts ...string) GroupColumn {
	return GroupColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Level makes a group of the rows without a value.
func (c GroupColumn) Level() GroupColumn {
	return GroupColumn{c.with(func(s *spec) { s.Missing = missingLevel })}
}

// Drop leaves out the rows without a value; see Data.Kept.
func (c GroupColumn) Drop() GroupColumn {
	return GroupColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// SkipColumn is a column that the model does not use.
type SkipColumn struct{ *spec }

// Skip leaves a column out.
func Skip(name string) SkipColumn { return SkipColumn{specOf(name, kindSkip)} }

// RawOption is what Raw returns.
type RawOption struct{ *spec }

// Raw leaves all numbers as they are, without scaling, and dates as years. Add it to the columns.
func Raw() RawOption { return RawOption{&spec{Kind: kindRaw}} }
