package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// needsNumbers reports whether the outcome of a likelihood is a number rather than a label, a class
// or an ordered level.
func needsNumbers(lik pgsvi.Likelihood) bool {
	_, softmax := lik.(pgsvi.Softmax)
	_, ordinal := lik.(pgsvi.Ordinal)
	known, ok := lik.(pgsvi.Factual)
	return ok && !softmax && !ordinal && known.Facts().Support != pgsvi.SignLabels
}

// OutcomeFor returns the decisions about the outcome column called name that -likelihood and
// -positive imply. A likelihood of numbers reads labels such as 0 and 1 as numbers; a likelihood of
// classes or ordered levels reads numbers as classes. A positive label makes the outcome one of two
// labels. OutcomeFor returns nil if neither flag implies a decision.
func OutcomeFor(lik pgsvi.Likelihood, name, positive string) []data.Column {
	if positive != "" {
		return []data.Column{data.Outcome(name).Positive(positive)}
	}
	if _, ordinal := lik.(pgsvi.Ordinal); ordinal {
		return []data.Column{data.Outcome(name).Ordered()}
	}
	if _, softmax := lik.(pgsvi.Softmax); softmax {
		return []data.Column{data.Outcome(name).Classes()}
	}
	if needsNumbers(lik) {
		return []data.Column{data.Outcome(name).Quantity()}
	}
	return nil
}

// ExplainOutcome adds a line to an error about an outcome. The line names the likelihood if it needs
// numbers and the outcome is text, or the flag -positive if the outcome has two labels. Other errors
// stay unchanged.
func ExplainOutcome(err error, lik pgsvi.Likelihood, name string) error {
	var undecided *data.DecisionError
	if !errors.As(err, &undecided) {
		return err
	}
	for _, d := range undecided.Decisions {
		if d.Column != name {
			continue
		}
		if len(d.Choices) == 0 && needsNumbers(lik) {
			return fmt.Errorf("%w\n%s needs numbers; omit -likelihood to fit labels or classes",
				err,
				strings.TrimPrefix(fmt.Sprintf("%T", lik), "pgsvi."))
		}
		if flags := positiveFlags(d.Choices); flags != nil {
			return fmt.Errorf("%w\ncolumn %q: you can also set %s", err, name,
				strings.Join(flags, " or "))
		}
	}
	return err
}

// positive matches a decision that -positive can make, and its label.
var positive = regexp.MustCompile(`^data\.Outcome\("(?:[^"\\]|\\.)*"\)\.Positive\(("(?:[^"\\]|\\.)*")\)$`)

// positiveFlags returns the flags -positive that make the same decisions as the choices.
func positiveFlags(choices []data.Choice) (flags []string) {
	for _, c := range choices {
		if m := positive.FindStringSubmatch(fmt.Sprint(c.Column)); m != nil {
			flags = append(flags, "-positive "+m[1])
		}
	}
	return flags
}
