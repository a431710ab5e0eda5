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

// quantities declares the outcome as a number if the formula reads it as successes or as a
// duration.
func quantities(f *formula.Formula, columns []Column) error {
	role := "the number of successes"
	switch {
	case f.Event != "":
		role = "a duration"
	case f.Transform != "":
		role = "a number"
	case f.Trials == "":
		return nil
	}
	for i, c := range columns {
		s := c.declared()
		switch {
		case s == nil || s.Kind != kindOutcome || s.Name != f.Outcome:
		case s.Positive != "" || s.Classes || s.Ordinal:
			return fmt.Errorf("pgsvi: column %s is declared to have labels by %s, but the formula "+
				"reads it as %s; change one of them: %w", csvQuote(s.Name), s.call(), role,
				pgsvi.ErrParam)
		default:
			columns[i] = OutcomeColumn{s.with(func(s *spec) { s.Quantity = true })}
		}
	}
	return nil
}

// likelihood returns lik, or the default likelihood of the outcome if lik is nil.
func (m *Model) likelihood(lik pgsvi.Likelihood) (pgsvi.Likelihood, error) {
	lik, err := m.suitable(lik)
	if err == nil {
		err = m.canLearn(lik)
	}
	return lik, err
}

// canLearn returns an error if all outcomes are equal and the likelihood has a spread to learn,
// which would be 0. A model can learn from equal counts, equal events and durations with censored
// rows.
func (m *Model) canLearn(lik pgsvi.Likelihood) error {
	known, ok := lik.(pgsvi.Factual)
	if !ok || m.Labels != nil || m.Trials != nil {
		return nil
	}
	switch known.Facts().Support {
	case pgsvi.Counts, pgsvi.NonNegative:
		return nil
	}
	if _, exponential := lik.(pgsvi.Exponential); exponential {
		return nil
	}
	value := func(i int) float64 {
		if m.Offset != nil && known.Facts().Support == pgsvi.RealLine {
			return m.Y[i] - m.Offset[i]
		}
		return m.Y[i]
	}
	for i := range m.Y {
		if value(i) != value(0) {
			return nil
		}
	}
	return fmt.Errorf("pgsvi: the outcome %s is %v in all rows, so %s has nothing to learn; add "+
		"rows with another outcome: %w", csvQuote(m.Formula.Outcome), m.Y[0], typeName(lik),
		pgsvi.ErrParam)
}

// suitable returns lik if it suits the outcome, or the default likelihood if lik is nil.
func (m *Model) suitable(lik pgsvi.Likelihood) (pgsvi.Likelihood, error) {
	f := m.Formula
	soft, softmax := lik.(pgsvi.Softmax)
	cumulative, ordinal := lik.(pgsvi.Ordinal)
	switch {
	case f.Transform != "":
		return m.transformed(lik)
	case m.y.ordered() && (lik == nil || ordinal && len(cumulative.Cuts) == 0):
		return pgsvi.Ordinal{Cuts: m.cuts()}, nil
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
	case m.counts, m.rated():
		return nil, fmt.Errorf("pgsvi: the outcomes %s are whole numbers from %v to %v; use "+
			"Poisson{} or NegativeBinomial{} for counts, GaussianNoise{} for measurements, "+
			"Ordinal{} for ratings, or Softmax{} for class numbers (-likelihood poisson, "+
			"negbinomial, gaussian, ordinal or softmax): %w",
			csvQuote(f.Outcome), m.y.Min, m.y.Max, pgsvi.ErrParam)
	}
	return pgsvi.GaussianNoise{}, nil
}

// rated reports whether the outcomes are few different whole numbers, some of them below 0, such as
// ratings from −3 to 3.
func (m *Model) rated() bool {
	values := map[float64]bool{}
	for _, y := range m.Y {
		if y != math.Floor(y) {
			return false
		}
		if values[y] = true; len(values) > fewValues {
			return false
		}
	}
	return m.y.Numeric && m.y.Min < 0 && m.Formula.Event == ""
}

// transformed returns the likelihood of log(y) or sqrt(y).
func (m *Model) transformed(lik pgsvi.Likelihood) (pgsvi.Likelihood, error) {
	name := formula.Col(m.Formula.Outcome)
	_, gaussian := lik.(pgsvi.GaussianNoise)
	_, logNormal := lik.(pgsvi.LogNormal)
	switch {
	case m.Formula.Transform == "sqrt" && (lik == nil || gaussian):
		if lik == nil {
			lik = pgsvi.GaussianNoise{}
		}
		return lik, nil
	case m.Formula.Transform == "sqrt" || lik != nil && !gaussian && !logNormal:
		return nil, fmt.Errorf("pgsvi: %s does not support the outcome %s(%s), which needs "+
			"GaussianNoise; omit the likelihood, or write %s ~ …: %w", typeName(lik),
			m.Formula.Transform, name, name, pgsvi.ErrParam)
	case gaussian && lik.(pgsvi.GaussianNoise).Var > 0:
		lik = pgsvi.LogNormal{Scale: math.Sqrt(lik.(pgsvi.GaussianNoise).Var)}
	case !logNormal:
		lik = pgsvi.LogNormal{}
	}
	for i, y := range m.Y {
		if !(y > 0) {
			return nil, m.Locate(fmt.Errorf("pgsvi: row %d: the outcome is %v, but its logarithm "+
				"needs a number above 0: %w", i, y, pgsvi.ErrLabel))
		}
	}
	return lik, nil
}

// cuts returns the cut points of ordered levels for a model without features: the log odds of the
// share of rows below each cut point.
func (m *Model) cuts() []float64 {
	shares, total := make([]float64, len(m.Labels)), 0.
	for i, y := range m.Y {
		w := 1.
		if m.Weights != nil {
			w = m.Weights[i]
		}
		shares[int(y)] += w
		total += w
	}
	cuts, below := make([]float64, len(shares)-1), 0.
	n := float64(len(shares))
	for j := range cuts { // all levels share one extra row, so no share is 0
		below += shares[j] + 1/n
		cuts[j] = math.Log(below / (total + 1 - below))
	}
	return cuts
}

// classes reports whether the outcome is a class, not one of two labels.
func (m *Model) classes() bool { return m.y.classes() && m.Trials == nil }

// suits returns an error if the likelihood needs labels but the outcome has no labels, or if the
// outcome has labels but the likelihood needs numbers.
func (m *Model) suits(lik pgsvi.Likelihood) error {
	known, ok := lik.(pgsvi.Factual)
	if ok && known.Facts().Censored || m.Formula.Event != "" {
		return m.suitsDurations(lik)
	}
	if _, binomial := lik.(pgsvi.BetaBinomial); binomial || m.paired {
		return m.suitsTrials(lik)
	}
	soft, softmax := lik.(pgsvi.Softmax)
	cumulative, ordinal := lik.(pgsvi.Ordinal)
	name, like := csvQuote(m.Formula.Outcome), typeName(lik)
	switch {
	case ordinal && !m.y.ordered():
		return fmt.Errorf("pgsvi: Ordinal needs ordered levels, but the outcome %s has no order; "+
			"declare the order, as in Outcome(%s).Ordered(\"low\", \"high\"): %w", name, name,
			pgsvi.ErrLabel)
	case ordinal && len(cumulative.Cuts) != len(m.Labels)-1:
		return fmt.Errorf("pgsvi: Ordinal has %s, but the outcome %s has %d levels; leave Cuts "+
			"empty: %w", plural(len(cumulative.Cuts), "cut point"), name, len(m.Labels),
			pgsvi.ErrParam)
	case ordinal:
		return nil
	case m.y.ordered():
		return fmt.Errorf("pgsvi: %s does not support the outcome %s, which has %d ordered "+
			"levels; omit the likelihood to use Ordinal: %w",
			like, name, len(m.Labels), pgsvi.ErrLabel)
	case softmax && !m.classes():
		return fmt.Errorf("pgsvi: Softmax needs classes, but the outcome %s does not have them; "+
			"declare Outcome(%s).Classes(): %w", name, name, pgsvi.ErrLabel)
	case softmax && soft.Classes != len(m.Labels):
		return fmt.Errorf("pgsvi: Softmax has %d classes, but the outcome %s has %d; leave "+
			"Classes at 0: %w", soft.Classes, name, len(m.Labels), pgsvi.ErrParam)
	case softmax:
		return nil
	case m.classes():
		return fmt.Errorf("pgsvi: %s does not support the outcome %s, which has %d classes, %s; "+
			"omit the likelihood to use Softmax: %w",
			like, name, len(m.Labels), strings.Join(quoteAll(m.Labels, 5), ", "), pgsvi.ErrLabel)
	}
	labels := len(m.Labels) == 2
	if !ok || labels == (known.Facts().Support == pgsvi.SignLabels) {
		return nil
	}
	if m.Trials != nil {
		return fmt.Errorf("pgsvi: %s does not support successes %s in trials %s; use "+
			"BernoulliLogit, BernoulliProbit or BetaBinomial (-likelihood logit, probit or "+
			"betabinomial): %w",
			like, name, csvQuote(m.Formula.Trials), pgsvi.ErrLabel)
	}
	if labels {
		return fmt.Errorf("pgsvi: %s does not support the outcome %s, which has two labels, %s; "+
			"omit the likelihood to use BernoulliLogit, or declare Outcome(%s).Quantity() if they "+
			"are numbers: %w", like, name, strings.Join(quoteAll(m.Labels, 2), " and "), name,
			pgsvi.ErrLabel)
	}
	if m.y.Min >= 0 && m.y.Max <= 1 {
		trials := "trials"
		if m.Formula.Weight != "" {
			trials = formula.Col(m.Formula.Weight).String()
		}
		return fmt.Errorf("pgsvi: %s needs two labels, but the outcome %s has numbers from %v to "+
			"%v; if they are shares of successes, write successes / %s ~ … with the column of "+
			"successes: %w", like, name, m.y.Min, m.y.Max, trials, pgsvi.ErrLabel)
	}
	return fmt.Errorf("pgsvi: %s needs two labels, but the outcome %s has numbers from %v to %v: "+
		"%w",
		like, name, m.y.Min, m.y.Max, pgsvi.ErrLabel)
}

// mostLogOffset is the largest plausible offset of a log rate, a factor of e^50.
const mostLogOffset = 50

// suitsOffset returns an error if the model has an exposure, whose logarithm is an offset, but its
// linear predictor is not a log rate. It also returns an error if an offset of a log rate looks
// like an exposure.
func (m *Model) suitsOffset(lik pgsvi.Likelihood) error {
	known, ok := lik.(pgsvi.Factual)
	if !ok {
		return nil
	}
	s := known.Facts().Support
	logRate := s != pgsvi.RealLine && s != pgsvi.SignLabels && s != pgsvi.UnitInterval &&
		m.Formula.Trials == "" && !m.classes() && !m.y.ordered()
	far := func(o float64) bool { return math.Abs(o) > mostLogOffset }
	if i := slices.IndexFunc(m.Offset, far); logRate && m.Formula.Offset != "" && i >= 0 {
		name := formula.Col(m.Formula.Offset)
		return fmt.Errorf("pgsvi: offset(%s) adds %.4g to the log of the mean of %s; use "+
			"exposure(%s) to add its logarithm: %w",
			name, m.Offset[i], typeName(lik), name, pgsvi.ErrParam)
	}
	if logRate || m.Formula.Exposure == "" {
		return nil
	}
	return fmt.Errorf("pgsvi: exposure(%s) needs a rate, but %s has no rate; use Poisson{} or "+
		"NegativeBinomial{} for counts (-likelihood poisson or negbinomial), divide the outcome "+
		"by it, or make it a term: %w", formula.Col(m.Formula.Exposure), typeName(lik),
		pgsvi.ErrParam)
}

// suitsPrecision returns an error if rows have precisions and lik has no Gaussian noise.
func (m *Model) suitsPrecision(lik pgsvi.Likelihood) error {
	if _, ok := lik.(pgsvi.GaussianNoise); ok || m.Precision == nil {
		return nil
	}
	name := formula.Col(m.Formula.Precision)
	return fmt.Errorf("pgsvi: precision(%s) needs GaussianNoise (-likelihood gaussian), but the "+
		"likelihood is %s; use weight(%s) for row counts: %w", name, typeName(lik), name,
		pgsvi.ErrParam)
}

// suitsDurations returns an error if durations may be censored and the likelihood does not support
// censoring, or if the likelihood needs durations and an outcome is not a duration.
func (m *Model) suitsDurations(lik pgsvi.Likelihood) error {
	name, like := csvQuote(m.Formula.Outcome), typeName(lik)
	known, ok := lik.(pgsvi.Factual)
	switch {
	case m.Formula.Event != "" && ok && !known.Facts().Censored:
		return fmt.Errorf("pgsvi: %s does not support the durations %s, which may be censored; "+
			"use Weibull{} or LogNormal{} (-likelihood weibull or lognormal): %w", like, name,
			pgsvi.ErrParam)
	case m.Formula.Event != "":
		return nil
	case m.Labels != nil:
		return fmt.Errorf("pgsvi: %s needs durations, but the outcome %s has the labels %s; omit "+
			"the likelihood: %w",
			like, name, strings.Join(quoteAll(m.Labels, 5), ", "), pgsvi.ErrLabel)
	}
	for i, y := range m.Y {
		if !(y > 0) {
			t := formula.Col(m.Formula.Outcome)
			return m.Locate(fmt.Errorf("pgsvi: row %d: the duration is %v, but %s needs a number "+
				"above 0; if some durations are censored, write survival(%s, event) ~ …: %w",
				i, y, like, t, pgsvi.ErrLabel))
		}
	}
	return nil
}

// suitsTrials returns an error if the likelihood is BetaBinomial and the rows were not made for it
// by For, or the other way round.
func (m *Model) suitsTrials(lik pgsvi.Likelihood) error {
	name := csvQuote(m.Formula.Outcome)
	b, ok := lik.(pgsvi.BetaBinomial)
	switch {
	case m.Formula.Trials != "" && ok != m.paired:
		return fmt.Errorf("pgsvi: the rows do not suit %s; use the rows of Model.For: %w",
			typeName(lik), pgsvi.ErrParam)
	case m.Labels != nil && !m.paired:
		return fmt.Errorf("pgsvi: BetaBinomial needs numbers of successes, but the outcome %s has "+
			"the labels %s; omit the likelihood: %w",
			name, strings.Join(quoteAll(m.Labels, 5), ", "), pgsvi.ErrLabel)
	case m.Formula.Trials == "" && b.Trials == 0:
		return fmt.Errorf("pgsvi: BetaBinomial needs the numbers of trials of the outcome %s; "+
			"write %s / trials ~ … with the column of trials: %w",
			name, formula.Col(m.Formula.Outcome), pgsvi.ErrParam)
	}
	return nil
}

// typeName returns the type name of a likelihood.
func typeName(lik pgsvi.Likelihood) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", lik), "pgsvi.")
}

// For returns the model with the rows that a likelihood needs, which may be m itself. For
// pgsvi.BetaBinomial it has a row for each row of the table, with the Y of pgsvi.Successes. For
// other likelihoods of trials it has separate rows for successes and failures. An outcome of 0 and
// 1 becomes labels for a likelihood of labels, and numbers for a likelihood of numbers. GLM and
// FitGP call For.
//
// The error is an error of reading the table, or wraps ErrLabel if a row has more than 2^20 trials.
func (m *Model) For(lik pgsvi.Likelihood) (*Model, error) {
	if known, ok := lik.(pgsvi.Factual); ok && m.Formula.Trials == "" {
		labels := known.Facts().Support == pgsvi.SignLabels
		_, softmax := lik.(pgsvi.Softmax)
		_, ordinal := lik.(pgsvi.Ordinal)
		switch {
		case softmax || ordinal:
		case labels && m.isZeroOne():
			return m.withOutcome(func(c *column) {
				c.Numeric, c.Positive, c.Levels = false, "1", []string{"0", "1"}
				ones := 0
				for _, y := range m.Y {
					ones += int(y)
				}
				c.Counts = []int{len(m.Y) - ones, ones}
			})
		case !labels && m.y.auto && m.y.Positive == "1" && m.y.Levels[0] == "0":
			return m.withOutcome(func(c *column) {
				c.Numeric, c.Quantity, c.auto = true, true, false
				c.Positive, c.Levels, c.Counts = "", nil, nil
				c.Mean, c.Min, c.Max = 0, 0, 1
				for _, y := range m.Y {
					c.Mean += max(y, 0) / float64(len(m.Y))
				}
				c.SD = math.Sqrt(c.Mean * (1 - c.Mean))
			})
		}
	}
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

// isZeroOne reports whether all outcomes are the numbers 0 or 1, and are not durations.
func (m *Model) isZeroOne() bool {
	return m.y.Numeric && m.Formula.Event == "" && m.Formula.Transform == "" &&
		!slices.ContainsFunc(m.Y, func(y float64) bool { return y != 0 && y != 1 })
}

// withOutcome returns the model with another reading of its outcome.
func (m *Model) withOutcome(change func(c *column)) (*Model, error) {
	q := *m
	q.enc = &Encoder{state: m.enc.state}
	q.enc.state.Columns = nil
	for _, c := range m.enc.state.Columns {
		own := *c
		q.enc.state.Columns = append(q.enc.state.Columns, &own)
	}
	q.enc.state.Uses = nil
	for _, c := range m.enc.state.Uses {
		own := *c
		q.enc.state.Uses = append(q.enc.state.Uses, &own)
	}
	q.y = q.enc.state.Columns[m.y.place]
	change(q.y)
	if err := q.enc.compile(); err != nil {
		return nil, err
	}
	q.counts = q.y.Numeric
	var err error
	q.Data, err = q.enc.data(m.table, m.design)
	return &q, err
}

// pairTrials combines the successes and the trials of each row into one outcome.
func (m *Model) pairTrials() error {
	y, err := pgsvi.Successes(m.Y, m.Trials)
	if err != nil {
		return m.Locate(err)
	}
	m.Y = y
	return nil
}

// takeTrials turns the rows of a table with trials into the rows that the likelihood needs.
func (m *Model) takeTrials(t *Table, lik pgsvi.Likelihood) error {
	if m.Trials == nil {
		return t.named(fmt.Errorf("pgsvi: the table has no column of trials: %w", pgsvi.ErrShape))
	}
	if _, m.paired = lik.(pgsvi.BetaBinomial); m.paired {
		return m.pairTrials()
	}
	return m.countTrials(t)
}

// countTrials splits each row into a row for its successes and a row for its failures.
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
			return t.named(fmt.Errorf("pgsvi: row %d: %v successes in %v trials; successes must "+
				"be a whole number from 0 to the trials: %w", from.Kept[i], k, n, pgsvi.ErrLabel))
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
