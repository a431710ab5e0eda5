package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// wantsNumbers reports whether a likelihood is neither of labels nor of classes or ordered levels.
func wantsNumbers(lik pgsvi.Likelihood) bool {
	_, softmax := lik.(pgsvi.Softmax)
	_, ordinal := lik.(pgsvi.Ordinal)
	known, ok := lik.(pgsvi.Factual)
	return ok && !softmax && !ordinal && known.Facts().Support != pgsvi.SignLabels
}

// OutcomeFor returns the outcome that a likelihood needs: a number, even if it is 0 or 1, or one of
// several classes or ordered levels, even if they are numbers. A label is the positive one of two.
// It is nil if neither is given.
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
	if wantsNumbers(lik) {
		return []data.Column{data.Outcome(name).Quantity()}
	}
	return nil
}

// ExplainOutcome adds to an error that says that the outcome is no number which likelihood wants
// one.
func ExplainOutcome(err error, lik pgsvi.Likelihood, name string) error {
	var undecided *data.DecisionError
	if !errors.As(err, &undecided) || !wantsNumbers(lik) {
		return err
	}
	for _, d := range undecided.Decisions {
		if d.Column == name && len(d.Choices) == 0 {
			return fmt.Errorf("%w\n%s wants numbers; leave -likelihood out for labels and classes",
				err,
				strings.TrimPrefix(fmt.Sprintf("%T", lik), "pgsvi."))
		}
	}
	return err
}
