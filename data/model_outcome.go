package data

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"gonum.org/v1/gonum/mat"
)

// quantities makes the outcome a number where the formula takes it for successes or for a duration.
func quantities(f *formula.Formula, columns []Column) error {
	role := "the number of successes"
	switch {
	case f.Event != "":
		role = "a duration"
	case f.Trials == "":
		return nil
	}
	for i, c := range columns {
		s := c.said()
		switch {
		case s == nil || s.Kind != kindOutcome || s.Name != f.Outcome:
		case s.Positive != "" || s.Classes:
			return fmt.Errorf("pgsvi: column %s is said to have labels, by %s, and the formula "+
				"takes it for %s: %w", csvQuote(s.Name), s.call(), role, pgsvi.ErrParam)
		default:
			columns[i] = OutcomeColumn{s.with(func(s *spec) { s.Quantity = true })}
		}
	}
	return nil
}

// likelihood returns lik or, where that is nil, the one that suits the outcome.
func (m *Model) likelihood(lik pgsvi.Likelihood) (pgsvi.Likelihood, error) {
	f := m.Formula
	soft, softmax := lik.(pgsvi.Softmax)
	switch {
	case m.classes() && (lik == nil || softmax && soft.Classes == 0):
		return pgsvi.Softmax{Classes: len(m.Labels)}, nil
	case lik != nil:
		return lik, m.suits(lik)
	case f.Event != "":
		return pgsvi.Weibull{}, nil
	case len(m.Labels) == 2:
		return pgsvi.BernoulliLogit{}, nil
	case f.Exposure != "" && m.counts:
		return pgsvi.Poisson{}, nil
	case m.counts:
		return nil, fmt.Errorf("pgsvi: the outcomes %s are whole numbers, %v to %v: say Poisson{} "+
			"or NegativeBinomial{} if they count something, GaussianNoise{} if they measure "+
			"something, and Softmax{} if they number classes (-likelihood poisson, negbinomial, "+
			"gaussian or softmax): %w",
			csvQuote(f.Outcome), m.y.Min, m.y.Max, pgsvi.ErrParam)
	}
	return pgsvi.GaussianNoise{}, nil
}

// classes says that the outcome is one of several classes, and not one of two labels.
func (m *Model) classes() bool { return m.y.classes() && m.Trials == nil }

// suits returns an error if a likelihood is of labels and the outcome is not, or the other way
// round.
func (m *Model) suits(lik pgsvi.Likelihood) error {
	known, ok := lik.(pgsvi.Factual)
	if ok && known.Facts().Censored || m.Formula.Event != "" {
		return m.suitsDurations(lik)
	}
	if _, binomial := lik.(pgsvi.BetaBinomial); binomial || m.paired {
		return m.suitsTrials(lik)
	}
	soft, softmax := lik.(pgsvi.Softmax)
	name, like := csvQuote(m.Formula.Outcome), typeName(lik)
	switch {
	case softmax && !m.classes():
		return fmt.Errorf("pgsvi: Softmax for the outcome %s, which is not said to be classes; "+
			"say Outcome(%s).Classes(): %w", name, name, pgsvi.ErrLabel)
	case softmax && soft.Classes != len(m.Labels):
		return fmt.Errorf("pgsvi: Softmax of %d classes for the outcome %s, which has %d; leave "+
			"Classes 0: %w",
			soft.Classes, name, len(m.Labels), pgsvi.ErrParam)
	case softmax:
		return nil
	case m.classes():
		return fmt.Errorf("pgsvi: %s for the outcome %s, which has %d classes, %s; leave the "+
			"likelihood out for Softmax: %w",
			like, name, len(m.Labels), strings.Join(quoteAll(m.Labels, 5), ", "), pgsvi.ErrLabel)
	}
	labels := len(m.Labels) == 2
	if !ok || labels == (known.Facts().Support == pgsvi.SignLabels) {
		return nil
	}
	if m.Trials != nil {
		return fmt.Errorf("pgsvi: %s for successes %s in trials %s; want BernoulliLogit, "+
			"BernoulliProbit or BetaBinomial (-likelihood logit, probit or betabinomial): %w",
			like, name, csvQuote(m.Formula.Trials), pgsvi.ErrLabel)
	}
	if labels {
		return fmt.Errorf("pgsvi: %s for the outcome %s, which has two labels, %s; leave the "+
			"likelihood out for BernoulliLogit, or say Outcome(%s).Quantity() if they are "+
			"numbers: %w", like, name, strings.Join(quoteAll(m.Labels, 2), " and "), name,
			pgsvi.ErrLabel)
	}
	return fmt.Errorf("pgsvi: %s for the outcome %s, which is numbers from %v to %v; it wants "+
		"two labels: %w",
		like, name, m.y.Min, m.y.Max, pgsvi.ErrLabel)
}

// mostLogOffset is the largest offset of a log rate that can be meant: a factor of e^50.
const mostLogOffset = 50

// suitsOffset returns an error if there is an exposure, whose logarithm is an offset, and the
// linear predictor is not the log of a rate, or if it is and the offset looks like an exposure.
func (m *Model) suitsOffset(lik pgsvi.Likelihood) error {
	known, ok := lik.(pgsvi.Factual)
	if !ok {
		return nil
	}
	s := known.Facts().Support
	logRate := s != pgsvi.RealLine && s != pgsvi.SignLabels && s != pgsvi.UnitInterval &&
		m.Formula.Trials == "" && !m.classes()
	far := func(o float64) bool { return math.Abs(o) > mostLogOffset }
	if i := slices.IndexFunc(m.Offset, far); logRate && m.Formula.Offset != "" && i >= 0 {
		name := formula.Col(m.Formula.Offset)
		return fmt.Errorf("pgsvi: offset(%s) adds %.4g to the log of a mean by %s; exposure(%s) "+
			"adds its logarithm: %w", name, m.Offset[i], typeName(lik), name, pgsvi.ErrParam)
	}
	if logRate || m.Formula.Exposure == "" {
		return nil
	}
	return fmt.Errorf("pgsvi: exposure(%s) for %s: an exposure is that of a rate, such as of "+
		"Poisson or NegativeBinomial counts (-likelihood poisson or negbinomial); divide the "+
		"outcome by it, or make it a term: %w", formula.Col(m.Formula.Exposure), typeName(lik),
		pgsvi.ErrParam)
}

// suitsDurations returns an error if durations may be censored and the likelihood does not know, or
// if it does and an outcome is no duration.
func (m *Model) suitsDurations(lik pgsvi.Likelihood) error {
	name, like := csvQuote(m.Formula.Outcome), typeName(lik)
	known, ok := lik.(pgsvi.Factual)
	switch {
	case m.Formula.Event != "" && ok && !known.Facts().Censored:
		return fmt.Errorf("pgsvi: %s for the durations %s, which may be censored; want Weibull or "+
			"LogNormal (-likelihood weibull or lognormal): %w", like, name, pgsvi.ErrParam)
	case m.Formula.Event != "":
		return nil
	case m.Labels != nil:
		return fmt.Errorf("pgsvi: %s for the outcome %s, which has the labels %s; it wants "+
			"durations: %w",
			like, name, strings.Join(quoteAll(m.Labels, 5), ", "), pgsvi.ErrLabel)
	}
	for i, y := range m.Y {
		if !(y > 0) {
			t := formula.Col(m.Formula.Outcome)
			return m.Locate(fmt.Errorf("pgsvi: row %d: found %v, and %s wants a number above 0; "+
				"if some durations are censored, write survival(%s, event) ~ …: %w",
				i, y, like, t, pgsvi.ErrLabel))
		}
	}
	return nil
}

// suitsTrials returns an error if a likelihood is BetaBinomial and the rows are not those of For,
// or the other way round.
func (m *Model) suitsTrials(lik pgsvi.Likelihood) error {
	name := csvQuote(m.Formula.Outcome)
	b, ok := lik.(pgsvi.BetaBinomial)
	switch {
	case m.Formula.Trials != "" && ok != m.paired:
		return fmt.Errorf("pgsvi: %s for the rows of another likelihood; use those of Model.For: "+
			"%w",
			typeName(lik), pgsvi.ErrParam)
	case m.Labels != nil && !m.paired:
		return fmt.Errorf("pgsvi: BetaBinomial for the outcome %s, which has the labels %s; it "+
			"wants numbers of successes: %w",
			name, strings.Join(quoteAll(m.Labels, 5), ", "), pgsvi.ErrLabel)
	case m.Formula.Trials == "" && b.Trials == 0:
		return fmt.Errorf("pgsvi: BetaBinomial for the outcome %s without the numbers of trials; "+
			"write %s / trials ~ … with the column of these: %w",
			name, formula.Col(m.Formula.Outcome), pgsvi.ErrParam)
	}
	return nil
}

// typeName returns the name of the type of a likelihood.
func typeName(lik pgsvi.Likelihood) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", lik), "pgsvi.")
}

// For returns the model with the rows that a likelihood wants, and may be m. Those of
// pgsvi.BetaBinomial are the rows of the table, with the Y of pgsvi.Successes, where other
// likelihoods of trials have one for the successes and one for the failures. GLM and FitGP call it.
//
// The error is one of reading the table, or wraps ErrLabel if a row has more than 2^20 trials.
func (m *Model) For(lik pgsvi.Likelihood) (*Model, error) {
	_, paired := lik.(pgsvi.BetaBinomial)
	if m.Formula.Trials == "" || paired == m.paired {
		return m, nil
	}
	d, err := m.enc.data(m.table, m.design)
	if err != nil {
		return nil, err
	}
	q := *m
	q.Data, q.paired = d, paired
	if paired {
		return &q, q.pairTrials()
	}
	return &q, q.countTrials(m.table)
}

// pairTrials makes of the successes and the trials of each row one outcome.
func (m *Model) pairTrials() error {
	y, err := pgsvi.Successes(m.Y, m.Trials)
	if err != nil {
		return m.Locate(err)
	}
	m.Y = y
	return nil
}

// takeTrials makes the rows that a likelihood wants of those of a table with trials.
func (m *Model) takeTrials(t *Table, lik pgsvi.Likelihood) error {
	if m.Trials == nil {
		return t.named(fmt.Errorf("pgsvi: there is no column of the numbers of trials: %w",
			pgsvi.ErrShape))
	}
	if _, m.paired = lik.(pgsvi.BetaBinomial); m.paired {
		return m.pairTrials()
	}
	return m.countTrials(t)
}

// countTrials makes of each row one for its successes and one for its failures.
func (m *Model) countTrials(t *Table) error {
	from := m.Data
	_, cols := from.X.Dims()
	sparse := pgsvi.NewSparse(cols)
	to := &Data{Names: from.Names, Groups: from.Groups, Labels: []string{"failure", "success"}}
	row, ind := make([]float64, cols), make([]int, 0, cols)
	val := make([]float64, 0, cols)
	for i, k := range from.Y {
		n := from.Trials[i]
		if !(k >= 0 && k <= n && k == math.Floor(k)) {
			return t.named(fmt.Errorf("pgsvi: row %d: %v successes in %v trials: %w", from.Kept[i],
				k, n,
				pgsvi.ErrLabel))
		}
		mat.Row(row, i, from.X)
		ind, val = ind[:0], val[:0]
		for j, v := range row {
			if v != 0 {
				ind, val = append(ind, j), append(val, v)
			}
		}
		w := 1.
		if from.Weights != nil {
			w = from.Weights[i]
		}
		for _, half := range []struct{ y, n float64 }{{1, k}, {-1, n - k}} {
			if half.n == 0 {
				continue
			}
			if err := sparse.Append(ind, val); err != nil {
				return err
			}
			to.Y, to.Weights = append(to.Y, half.y), append(to.Weights, w*half.n)
			to.Kept, to.Trials = append(to.Kept, from.Kept[i]), append(to.Trials, half.n)
			if from.Offset != nil {
				to.Offset = append(to.Offset, from.Offset[i])
			}
		}
	}
	to.X = sparse
	if cols > 0 && float64(sparse.NNZ()) > sparseAt*float64(len(to.Y)*cols) {
		to.X = mat.DenseCopyOf(sparse)
	}
	m.Data = to
	return nil
}
