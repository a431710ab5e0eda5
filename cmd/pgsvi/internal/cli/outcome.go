package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// wantsNumbers says that a likelihood is neither of labels nor of classes.
func wantsNumbers(lik pgsvi.Likelihood) bool {
	_, softmax := lik.(pgsvi.Softmax)
	known, ok := lik.(pgsvi.Factual)
	return ok && !softmax && known.Facts().Support != pgsvi.SignLabels
}

// OutcomeFor returns what a likelihood that was named says of the outcome: that it is a number,
// be it 0 or 1, or one of several classes, be they numbers. It is empty if it says nothing.
func OutcomeFor(lik pgsvi.Likelihood, name string) []data.Column {
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
