package data

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi/internal/table"
)

// String describes for each column how and why it was read, the number of its features, and what
// happens to missing values and unknown levels. It ends with the doubts.
func (e *Encoder) String() string {
	var b strings.Builder
	s := &e.state
	fmt.Fprintf(&b, "%s: %s, %d kept, %s\n%s\n\n", table.Visible(s.Table), plural(s.Rows, "row"),
		s.Kept, plural(len(e.names), "feature"), s.Found)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "column\tread as\twhy\tfeatures\tmissing\tunknown")
	for _, c := range e.uses {
		features, unknown := "-", "-"
		if c.n > 0 {
			features = fmt.Sprint(c.n)
		}
		if c.Kind == kindCategory {
			unknown = map[string]string{unknownError: "error", unknownNew: "new",
				unknownReference: "reference", unknownMissing: "missing"}[c.Unknown]
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", shorten(c.Name, 40), c.taken(),
			shorten(c.Why, 50), features, c.missingText(), unknown)
	}
	w.Flush()
	for i, d := range e.Doubts() {
		if i == 0 {
			b.WriteString("\ndoubts\n")
		}
		fmt.Fprintf(&b, "  %s\n", d)
	}
	return trimLines(b.String())
}

// Doubts returns problems that are not errors: levels with few rows, whole numbers that may be
// codes, and columns that give the outcome away. The slice is new.
func (e *Encoder) Doubts() (all []string) {
	for _, c := range e.uses {
		for _, d := range c.Doubts {
			all = append(all, fmt.Sprintf("column %s: %s", csvQuote(c.Name), d))
		}
	}
	return all
}

// taken describes how the column was read.
func (c *column) taken() string {
	switch c.Kind {
	case kindNumber:
		text := "number, " + c.spread()
		if c.Units != "" {
			text += " " + c.Units
		}
		if c.Shift == 0 && c.Scale == 1 {
			text += ", not scaled"
		}
		switch c.Limit {
		case "half":
			text += ", limits halved"
		case "at":
			text += ", at limits"
		}
		return text
	case kindCategory:
		return fmt.Sprintf("category of %s, reference %s", plural(len(c.Levels), "level"),
			csvQuote(c.Reference))
	case kindDate:
		var parts []string
		for _, p := range c.Parts {
			part := string(p)
			if p == Elapsed {
				part += " in years"
			}
			parts = append(parts, part)
		}
		return fmt.Sprintf("date, written as %s: %s", strings.Join(c.Written, " or "),
			strings.Join(parts, ", "))
	case kindGroup:
		return plural(len(c.Levels), "group")
	case kindOutcome:
		return c.takenOutcome()
	case kindExposure:
		return fmt.Sprintf("exposure, %s; its logarithm is an offset", c.spread())
	case kindEvent:
		return fmt.Sprintf("event, observed in %.0f of %s", c.Mean*float64(c.Values),
			plural(c.Values, "row"))
	case kindOffset, kindWeight, kindPrecision, kindTrials:
		return fmt.Sprintf("%s, %s", c.Kind, c.spread())
	}
	return "not used"
}

// spread returns the mean and the standard deviation with the same number of decimals.
func (c *column) spread() string {
	largest := max(math.Abs(c.Mean), c.SD)
	if !(c.SD > 0) || largest >= 1e7 || c.SD < 1e-4 {
		return fmt.Sprintf("%.4g ± %.3g", c.Mean, c.SD)
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(c.SD))))
	return fmt.Sprintf("%.*f ± %.*f", decimals, c.Mean, decimals, c.SD)
}

func (c *column) takenOutcome() string {
	switch {
	case c.Numeric:
		return "outcome, " + c.spread()
	case c.Positive != "":
		k := c.Counts[slices.Index(c.Levels, c.Positive)]
		return fmt.Sprintf("outcome, +1 = %s (%.1f%%)", csvQuote(c.Positive),
			100*float64(k)/float64(max(1, c.Values)))
	}
	if c.Ordinal {
		return fmt.Sprintf("outcome of %d ordered levels, %s", len(c.Levels),
			strings.Join(quoteAll(c.Levels, 5), " < "))
	}
	return fmt.Sprintf("outcome of %d classes, %s", len(c.Levels),
		strings.Join(quoteAll(c.Levels, 5), ", "))
}

// missingText returns the number of missing values and how they are treated.
func (c *column) missingText() string {
	what := map[string]string{missingDrop: "left out", missingImpute: "mean and indicator",
		missingLevel: "own level"}[c.Missing]
	switch {
	case c.Kind == kindSkip || c.Gaps == 0 && what == "":
		return "-"
	case c.Gaps == 0:
		return "0, " + what
	}
	return fmt.Sprintf("%d, %s", c.Gaps, what)
}
