package data

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// A Column declares what a column of a table is and how to treat its values. Outcome, Number,
// Category, Date, Group, Exposure, Offset, Weight, Trials, Event, Skip and Raw make Columns. Only
// columns that need a decision have to be declared; Table.Suggest lists them.
type Column interface {
	// String returns the call that makes the column, as Go.
	String() string
	declared() *spec
}

type kind string

const (
	kindNumber    kind = "number"
	kindCategory  kind = "category"
	kindDate      kind = "date"
	kindGroup     kind = "group"
	kindOutcome   kind = "outcome"
	kindExposure  kind = "exposure"
	kindOffset    kind = "offset"
	kindWeight    kind = "weight"
	kindPrecision kind = "precision"
	kindTrials    kind = "trials"
	kindEvent     kind = "event"
	kindSkip      kind = "skip"
	kindRaw       kind = "raw"
)

// How to treat a missing value.
const (
	missingError  = ""
	missingDrop   = "drop"
	missingImpute = "impute"
	missingLevel  = "level"
)

// How to treat a level that training has not seen.
const (
	unknownError     = ""
	unknownNew       = "new"
	unknownReference = "reference"
	unknownMissing   = "missing"
)

// spec holds what the caller declared about a column. A saved model contains it as JSON.
type spec struct {
	Name      string   `json:"name"`
	Kind      kind     `json:"kind"`
	Missing   string   `json:"missing,omitempty"`
	Unknown   string   `json:"unknown,omitempty"`
	NA        []string `json:"na,omitempty"`     // more texts that mean missing
	NotNA     []string `json:"not_na,omitempty"` // usual texts for missing that are values here
	Fold      bool     `json:"fold,omitempty"`
	KeepCase  bool     `json:"keep_case,omitempty"`
	Reference string   `json:"reference,omitempty"`
	Positive  string   `json:"positive,omitempty"`
	Classes   bool     `json:"classes,omitempty"`
	Quantity  bool     `json:"quantity,omitempty"` // the outcome is a number
	Ordinal   bool     `json:"ordinal,omitempty"`  // the outcome has ordered levels
	Ordered   []string `json:"ordered,omitempty"`  // the levels in order; nil for numbers
	Limit     string   `json:"limit,omitempty"`
	Layouts   []string `json:"layouts,omitempty"`
	Parts     []Part   `json:"parts,omitempty"`
	Decimal   string   `json:"decimal,omitempty"`
	Unit      string   `json:"unit,omitempty"`
	AnyUnit   bool     `json:"any_unit,omitempty"`
	Unscaled  bool     `json:"unscaled,omitempty"`
	Clock     bool     `json:"clock,omitempty"` // the number is a time of day
	why       string   // why the column has this kind
	formula   bool     // whether the formula implies the kind
	auto      bool     // Positive was set because the labels are an obvious pair
	found     []string // all layouts
}

func (s *spec) declared() *spec { return s }

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

// fold returns the same text for texts that differ only in case or in how accents are encoded.
func fold(s string) string { return strings.ToLower(norm.NFC.String(s)) }

var constructors = map[kind]string{
	kindNumber: "Number", kindCategory: "Category", kindDate: "Date", kindGroup: "Group",
	kindOutcome: "Outcome", kindExposure: "Exposure", kindOffset: "Offset", kindWeight: "Weight",
	kindPrecision: "Precision", kindTrials: "Trials", kindEvent: "Event", kindSkip: "Skip",
}

// call returns the Go call that makes the column, without the package name.
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

// Number declares a column of numbers. An Encoder standardizes the numbers: it subtracts their mean
// and divides by their standard deviation, using the row weights. If a column has only two values,
// they become 0 and 1. A Model multiplies columns before it scales the products; see Table.Model. A
// currency sign or % is ignored if all values have the same sign. "(5)" and "5-" are read as -5 if
// the training data have such numbers.
func Number(name string) NumberColumn { return NumberColumn{specOf(name, kindNumber)} }

func specOf(name string, k kind) *spec { return &spec{Name: name, Kind: k} }

// with returns a changed copy.
func (s *spec) with(change func(*spec)) *spec {
	c := s.copy()
	change(c)
	return c
}

// MissingAre declares texts that mean a missing value, in addition to the usual ones: the empty
// text, "NA", "N/A", "n/a", "#N/A", "<NA>", "?", ".", "-", "nan" and "null".
func (c NumberColumn) MissingAre(texts ...string) NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Impute replaces missing values with the mean, and adds the feature "x missing", which is 1 in
// these rows and 0 in all others.
func (c NumberColumn) Impute() NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Missing = missingImpute })}
}

// Drop leaves out the rows in which the value is missing; see Data.Kept.
func (c NumberColumn) Drop() NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// BelowLimit declares how to read a value below a detection limit, such as "<0.3": "half" reads it
// as 0.15, and "at" reads it as 0.3. Both read ">300" as 300.
func (c NumberColumn) BelowLimit(how string) NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Limit = how })}
}

// Decimal sets the decimal sign, '.' or ','. The other sign separates groups of three digits.
func (c NumberColumn) Decimal(sign rune) NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Decimal = string(sign) })}
}

// Unit declares a unit that follows the numbers, such as "m2" in "35 m2", in addition to the known
// units.
func (c NumberColumn) Unit(unit string) NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Unit = unit })}
}

// AnyUnit ignores units even if they differ, so that "5 €" and "5 $" are both 5.
func (c NumberColumn) AnyUnit() NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.AnyUnit = true })}
}

// Raw uses the numbers without standardization.
func (c NumberColumn) Raw() NumberColumn {
	return NumberColumn{c.with(func(s *spec) { s.Unscaled = true })}
}

// CategoryColumn is a categorical feature. Its methods return changed copies.
type CategoryColumn struct{ *spec }

// Category declares a column of levels. Each level except the reference becomes a feature,
// "x=level", which is 1 in the rows with this level and 0 in all others.
func Category(name string) CategoryColumn { return CategoryColumn{specOf(name, kindCategory)} }

// MissingAre declares texts that mean a missing value, in addition to the usual ones; see
// NumberColumn.MissingAre.
func (c CategoryColumn) MissingAre(texts ...string) CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// NotMissing declares texts that are levels although they usually mean a missing value, such as
// "NA" for Namibia.
func (c CategoryColumn) NotMissing(texts ...string) CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.NotNA = append(s.NotNA, texts...) })}
}

// FoldCase merges levels that differ only in case or in how accents are encoded. The merged levels
// are in lower case.
func (c CategoryColumn) FoldCase() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Fold = true })}
}

// KeepCase keeps levels apart that differ only in case.
func (c CategoryColumn) KeepCase() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.KeepCase = true })}
}

// Reference sets the level that all other levels are compared with. The reference has no feature.
// By default it is the negative level of a pair such as no and yes, or the most frequent level
// otherwise.
func (c CategoryColumn) Reference(level string) CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Reference = level })}
}

// Level turns missing values into a level with the feature "x=(missing)".
func (c CategoryColumn) Level() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Missing = missingLevel })}
}

// Drop leaves out the rows with a missing value; see Data.Kept.
func (c CategoryColumn) Drop() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// New adds the feature "x=(new)", which is 0 in training and 1 for a level that training has not
// seen. Its weight keeps its prior, so predictions for such rows are as uncertain as the prior. By
// default an unknown level is an error.
func (c CategoryColumn) New() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Unknown = unknownNew })}
}

// UnknownIsReference reads a level that training has not seen as the reference.
func (c CategoryColumn) UnknownIsReference() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Unknown = unknownReference })}
}

// UnknownIsMissing reads a level that training has not seen as a missing value. It needs Level.
func (c CategoryColumn) UnknownIsMissing() CategoryColumn {
	return CategoryColumn{c.with(func(s *spec) { s.Unknown = unknownMissing })}
}

// Part is a part of a date that can become features.
type Part string

const (
	// Elapsed is the standardized time since the first date in years of 365.25 days: "x.elapsed".
	Elapsed Part = "elapsed"
	// Month is the month, compared with January: "x.month=2" to "x.month=12".
	Month Part = "month"
	// Weekday is the day of the week, compared with Monday: "x.weekday=Tue" to "x.weekday=Sun".
	Weekday Part = "weekday"
)

// DateColumn is a feature made from a date. Its methods return changed copies.
type DateColumn struct{ *spec }

// Date declares a column of dates, with or without a time of day.
func Date(name string) DateColumn { return DateColumn{specOf(name, kindDate)} }

// Layout declares how dates are written, in the notation of package time: "02/01/2006" is day,
// month, year. The first matching layout is used. "02" and "01" also read days and months of one
// digit. "20060102" reads numbers such as 20181231. "2006-W01" reads an ISO week such as "2018-W52"
// as the date of its Monday.
func (c DateColumn) Layout(layouts ...string) DateColumn {
	return DateColumn{c.with(func(s *spec) { s.Layouts = append(s.Layouts, layouts...) })}
}

// As selects the parts of the date that become features. The default is Elapsed.
func (c DateColumn) As(parts ...Part) DateColumn {
	return DateColumn{c.with(func(s *spec) { s.Parts = append(s.Parts, parts...) })}
}

// MissingAre declares texts that mean a missing value, in addition to the usual ones; see
// NumberColumn.MissingAre.
func (c DateColumn) MissingAre(texts ...string) DateColumn {
	return DateColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Impute replaces missing dates with the mean date and adds the feature "x missing". The features
// of the month and the weekday are 0 in these rows.
func (c DateColumn) Impute() DateColumn {
	return DateColumn{c.with(func(s *spec) { s.Missing = missingImpute })}
}

// Drop leaves out the rows with a missing date; see Data.Kept.
func (c DateColumn) Drop() DateColumn {
	return DateColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// OutcomeColumn is the column to predict. Its methods return changed copies.
type OutcomeColumn struct{ *spec }

// Outcome declares the column to predict. Numbers stay numbers. Two labels need Positive, unless
// they are a pair such as no and yes, false and true, or 0 and 1, whose second label is +1. Three
// or more texts are classes, which Data.Y numbers from 0.
func Outcome(name string) OutcomeColumn { return OutcomeColumn{specOf(name, kindOutcome)} }

// Positive sets which of two labels is +1; the other label is −1.
func (c OutcomeColumn) Positive(label string) OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Positive = label })}
}

// Classes reads the values, numbers or texts, as classes, which Data.Y numbers from 0. The
// likelihood is pgsvi.Softmax. Classes that are numbers are sorted by value.
func (c OutcomeColumn) Classes() OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Classes = true })}
}

// Ordered reads the values as ordered levels for ordinal regression. List the levels from lowest to
// highest, such as "low", "medium", "high"; Data.Y numbers them from 0. Levels that are whole
// numbers need not be listed, because they are sorted by value. The likelihood is pgsvi.Ordinal.
func (c OutcomeColumn) Ordered(levels ...string) OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) {
		s.Ordinal, s.Ordered = true, append(s.Ordered, levels...)
	})}
}

// Quantity reads an outcome with only two different numbers, such as counts of 0 and 1, as numbers.
func (c OutcomeColumn) Quantity() OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Quantity = true })}
}

// FoldCase merges labels that differ only in case. The merged labels are in lower case.
func (c OutcomeColumn) FoldCase() OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Fold = true })}
}

// MissingAre declares texts that mean a missing value, in addition to the usual ones; see
// NumberColumn.MissingAre.
func (c OutcomeColumn) MissingAre(texts ...string) OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Drop leaves out the rows without an outcome; see Data.Kept.
func (c OutcomeColumn) Drop() OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// Decimal sets the decimal sign; see NumberColumn.Decimal.
func (c OutcomeColumn) Decimal(sign rune) OutcomeColumn {
	return OutcomeColumn{c.with(func(s *spec) { s.Decimal = string(sign) })}
}

// ScaleColumn is a number per row that is not a feature: an exposure, an offset, a weight, a
// precision, a number of trials or an event. Its methods return changed copies.
type ScaleColumn struct{ *spec }

// Exposure declares a column of how long, or how much, each row was exposed to the counted events.
// The logarithm of the exposure is added to Data.Offset. Values must be above 0.
func Exposure(name string) ScaleColumn { return ScaleColumn{specOf(name, kindExposure)} }

// Offset declares a column that is added to the linear predictor; see Data.Offset.
func Offset(name string) ScaleColumn { return ScaleColumn{specOf(name, kindOffset)} }

// Weight declares a column of weights, which multiply the log-likelihood of the rows; see
// Data.Weights. Values must be at least 0.
func Weight(name string) ScaleColumn { return ScaleColumn{specOf(name, kindWeight)} }

// Precision declares a column of numbers that divide the variance of Gaussian noise; see
// Data.Precision. Values must be above 0.
func Precision(name string) ScaleColumn { return ScaleColumn{specOf(name, kindPrecision)} }

// Trials declares a column of numbers of trials. The outcome is then a number of successes; see
// Data.Trials. Values must be whole numbers above 0.
func Trials(name string) ScaleColumn { return ScaleColumn{specOf(name, kindTrials)} }

// Event declares whether each outcome, a duration, ended with the event (survival, time to event).
// The value is 1 or true if it did. It is 0 or false if the duration is right-censored, because the
// event comes later. Data.Y has −y for a censored duration y; see pgsvi.Survival. Durations must be
// above 0.
func Event(name string) ScaleColumn { return ScaleColumn{specOf(name, kindEvent)} }

// MissingAre declares texts that mean a missing value, in addition to the usual ones; see
// NumberColumn.MissingAre.
func (c ScaleColumn) MissingAre(texts ...string) ScaleColumn {
	return ScaleColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Drop leaves out the rows with a missing value; see Data.Kept.
func (c ScaleColumn) Drop() ScaleColumn {
	return ScaleColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// Decimal sets the decimal sign; see NumberColumn.Decimal.
func (c ScaleColumn) Decimal(sign rune) ScaleColumn {
	return ScaleColumn{c.with(func(s *spec) { s.Decimal = string(sign) })}
}

// GroupColumn assigns rows to groups. Its methods return changed copies.
type GroupColumn struct{ *spec }

// Group declares a column whose values assign rows to groups, such as customers or subjects, for
// models with random effects. It has no features; see Data.Groups.
func Group(name string) GroupColumn { return GroupColumn{specOf(name, kindGroup)} }

// MissingAre declares texts that mean a missing value, in addition to the usual ones; see
// NumberColumn.MissingAre.
func (c GroupColumn) MissingAre(texts ...string) GroupColumn {
	return GroupColumn{c.with(func(s *spec) { s.NA = append(s.NA, texts...) })}
}

// Level puts the rows without a value into a group of their own.
func (c GroupColumn) Level() GroupColumn {
	return GroupColumn{c.with(func(s *spec) { s.Missing = missingLevel })}
}

// Drop leaves out the rows without a value; see Data.Kept.
func (c GroupColumn) Drop() GroupColumn {
	return GroupColumn{c.with(func(s *spec) { s.Missing = missingDrop })}
}

// SkipColumn is a column that the model ignores.
type SkipColumn struct{ *spec }

// Skip declares a column that the model ignores.
func Skip(name string) SkipColumn { return SkipColumn{specOf(name, kindSkip)} }

// RawOption is the type of Raw().
type RawOption struct{ *spec }

// Raw turns off scaling for all columns: numbers stay unchanged, and dates are in years. Pass it
// along with the other columns.
func Raw() RawOption { return RawOption{&spec{Kind: kindRaw}} }
