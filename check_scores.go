package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/score"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/table"
)

// A LOOComparison compares models by leave-one-out cross-validation. It prints as a table.
type LOOComparison struct {
	// Reference is the name of the reference model, and ELPD is its ELPD over the observations that
	// all models can leave out, in nats.
	Reference string
	ELPD      float64
	// Rows has one row per other model, in the order given. The caller may sort or remove rows
	// before printing.
	Rows []LOODifference
}

// A LOODifference reports how much better a model predicts than the reference, in nats.
type LOODifference struct {
	// Name is LOO.Name. If that is empty, it is "model 2" and so on.
	Name string
	// Diff is the ELPD of the model minus the ELPD of the reference. If it is negative, the
	// reference is better.
	Diff float64
	// SE is the standard error of Diff over the observations, √(N Var_n(l_n − l′_n)) for the
	// Pointwise values l and l′ of the two models.
	SE float64
	// Err is the sum of LOO.Err of both models. It bounds how far Diff may be from the result of
	// refits without each observation.
	Err float64
}

// Verdict returns "better", "worse" or "about the same". Two models are about the same if Diff is
// within 4 nats of 0, or within two standard errors √(SE² + Err²), because smaller differences mean
// little (Sivula, Magnusson, Matamoros and Vehtari 2020).
func (d LOODifference) Verdict() string {
	const least, errors = 4, 2 // nats, standard errors
	switch {
	case !(math.Abs(d.Diff) >= least) || !(math.Abs(d.Diff) >= errors*math.Hypot(d.SE, d.Err)):
		return "about the same"
	case d.Diff > 0:
		return "better"
	}
	return "worse"
}

// String returns the table. It shows the ELPD of the reference, and the difference, the standard
// error including Err, and the verdict for each other model.
func (c *LOOComparison) String() string {
	lines := [][]string{{"", "", ""}, {c.Reference, fmt.Sprintf("%.1f", c.ELPD), ""}}
	verdicts := []string{"", "elpd"}
	for _, r := range c.Rows {
		se := fmt.Sprintf("± %.1f", math.Hypot(r.SE, r.Err))
		lines = append(lines, []string{r.Name, fmt.Sprintf("%+.1f", r.Diff), se})
		verdicts = append(verdicts, r.Verdict())
	}
	for _, line := range lines {
		line[1] = table.Minus(line[1])
	}
	table.Align(lines)
	var b strings.Builder
	for i, line := range lines[1:] {
		fmt.Fprintf(&b, "%s  %s %s  %s\n", line[0], line[1], line[2], verdicts[i+1])
	}
	return b.String()
}

// CompareLOO compares how well models predict the same data by leave-one-out cross-validation. It
// compares each of the other models with the reference. Set LOO.Name to name the models.
// Observations that one model cannot leave out (LOO.Unresolved) are ignored for all models.
//
// The error wraps
//   - ErrParam if a LOO is nil, if there is no other model, or if one model has probabilities and
//     another has densities;
//   - ErrShape if the numbers of observations, the responses or the weights differ;
//   - ErrEmpty if there is no observation that every model can leave out.
//
// A LOO from draws does not hold its responses, so CompareLOO does not compare them.
func CompareLOO(reference *LOO, others ...*LOO) (*LOOComparison, error) {
	if reference == nil || len(others) == 0 {
		return nil, fmt.Errorf("pgsvi: CompareLOO needs a reference and another LOO: %w", ErrParam)
	}
	without := slices.Clone(reference.Unresolved)
	for i, o := range others {
		if err := reference.comparable(o); err != nil {
			return nil, fmt.Errorf("pgsvi: model %d: %w", i+2, err)
		}
		without = append(without, o.Unresolved...)
	}
	slices.Sort(without)
	without = slices.Compact(without)
	if len(without) >= len(reference.Pointwise) {
		return nil, fmt.Errorf("pgsvi: there is no observation that every model can leave out: %w",
			ErrEmpty)
	}
	c := &LOOComparison{Reference: cmp.Or(reference.Name, "model 1")}
	for n, l := range reference.Pointwise {
		if _, skip := slices.BinarySearch(without, n); !skip {
			c.ELPD += reference.weightOf(n) * l
		}
	}
	for i, o := range others {
		d := LOODifference{Name: cmp.Or(o.Name, fmt.Sprintf("model %d", i+2)),
			Err: reference.Err + o.Err}
		d.Diff, d.SE = score.Difference(o.Pointwise, reference.Pointwise, without,
			reference.weightOf)
		c.Rows = append(c.Rows, d)
	}
	return c, nil
}

// weightOf returns the weight of observation n.
func (l *LOO) weightOf(n int) float64 {
	if l.weight == nil {
		return 1
	}
	return l.weight[n]
}

// comparable returns an error if o and l belong to different data.
func (l *LOO) comparable(o *LOO) error {
	if o == nil {
		return fmt.Errorf("the LOO is nil: %w", ErrParam)
	}
	if len(o.Pointwise) != len(l.Pointwise) {
		return fmt.Errorf("%d observations, but the reference has %d: %w", len(o.Pointwise),
			len(l.Pointwise), ErrShape)
	}
	if l.y == nil || o.y == nil {
		return nil
	}
	for n, y := range l.y {
		switch {
		case y != o.y[n]:
			return fmt.Errorf("observation %d has response %v, but %v in the reference: %w",
				n, o.y[n], y,
				ErrShape)
		case o.weightOf(n) != l.weightOf(n):
			return fmt.Errorf("observation %d has weight %v, but %v in the reference: %w",
				n, o.weightOf(n), l.weightOf(n), ErrShape)
		}
	}
	a, b := o.Cavity.lik, l.Cavity.lik
	if factsOf(a).discrete() != factsOf(b).discrete() {
		return fmt.Errorf(
			"%s, but %s in the reference; do not compare probabilities with densities: %w",
			typeName(a), typeName(b), ErrParam)
	}
	return nil
}

// A Calibration compares predicted probabilities of labels with observed frequencies. It prints as
// a table.
type Calibration struct {
	// Rows holds the number of rows of each bin. A bin groups rows with similar predicted
	// probabilities, and bins are in increasing order of them.
	Rows []int
	// Predicted holds the mean predicted probability of each bin, and Observed the share of its
	// rows with +1.
	Predicted, Observed []float64
	// Lo and Hi are the 95% interval of the share (Jeffreys; Brown, Cai and DasGupta 2001).
	Lo, Hi []float64
	// Nats is Σ_b n_b KL(observed_b‖predicted_b)/n, the miscalibration in nats per row. The log
	// loss would improve by this much with a better probability for each bin. Expected is the value
	// that a calibrated model reaches by chance, about the number of bins over 2n.
	Nats, Expected float64
}

// String returns the table with one line per bin. A star marks a bin whose prediction is outside
// the interval of the observed share.
func (c *Calibration) String() string {
	var b strings.Builder
	b.WriteString("  rows  predicted  observed (95% interval)\n")
	for i, p := range c.Predicted {
		star := ""
		if p < c.Lo[i] || p > c.Hi[i] {
			star = " *"
		}
		fmt.Fprintf(&b, "%6d  %9.3f  %8.3f (%.3f to %.3f)%s\n", c.Rows[i], p, c.Observed[i],
			c.Lo[i], c.Hi[i], star)
	}
	fmt.Fprintf(&b, "miscalibration %.2g nats per row; %.2g by chance\n", c.Nats, c.Expected)
	return b.String()
}

// Calibration compares the leave-one-out probabilities of the label +1, from Cavity, with the
// labels. It sorts the rows by probability and divides them into bins of about equally many rows,
// but keeps rows of equal probability together. Zero bins mean 10, and at most one bin per row is
// used. Unresolved observations are left out.
//
// The error wraps ErrParam if bins is negative, if the LOO is from draws, or if the responses are
// not labels −1 and +1. It wraps ErrEmpty if no observation remains.
func (l *LOO) Calibration(bins int) (*Calibration, error) {
	if l.Cavity == nil || l.y == nil {
		return nil, fmt.Errorf("pgsvi: a LOO from draws has no probabilities to calibrate: %w",
			ErrParam)
	}
	weight := make([]float64, len(l.y))
	for n := range weight {
		weight[n] = l.weightOf(n)
	}
	for _, n := range l.Unresolved {
		weight[n] = 0
	}
	return l.Cavity.calibration(l.y, weight, bins)
}

// Calibration compares the predicted probabilities of +1 in the rows of p with their labels y, like
// LOO.Calibration. Use rows that were not part of the fit.
//
// The error wraps
//   - ErrShape if y does not have Len labels;
//   - ErrParam if bins is negative or the Likelihood does not have labels −1 and +1;
//   - ErrLabel if a label is neither −1 nor +1;
//   - ErrEmpty if p has no rows.
//
// If a row has no prediction, Calibration returns the error of Err.
func (p *Prediction) Calibration(y []float64, bins int) (*Calibration, error) {
	if len(y) != p.Len() {
		return nil, fmt.Errorf("pgsvi: %d labels for %d rows: %w", len(y), p.Len(), ErrShape)
	}
	weight := make([]float64, len(y))
	for n := range weight {
		weight[n] = 1
	}
	return p.calibration(y, weight, bins)
}

// CalibrationOf compares the predicted probability of one response, such as a class of Softmax,
// with the share of rows that have this response in y. The errors are the same as for Calibration.
// In addition, the error wraps ErrParam if the Likelihood has densities instead of probabilities,
// and ErrLabel if response is outside its Support.
func (p *Prediction) CalibrationOf(response float64, y []float64, bins int) (*Calibration, error) {
	facts := factsOf(p.lik)
	switch {
	case len(y) != p.Len():
		return nil, fmt.Errorf("pgsvi: %d responses for %d rows: %w", len(y), p.Len(), ErrShape)
	case !facts.discrete():
		return nil, fmt.Errorf("pgsvi: %s has a density on %s; CalibrationOf needs "+
			"probabilities: %w",
			typeName(p.lik), facts.Support.describe(0), ErrParam)
	}
	if err := checkLabel(p.lik, response); err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	weight, is := make([]float64, len(y)), make([]float64, len(y))
	for n, v := range y {
		if err := checkLabel(p.likOf(n), v); err != nil {
			return nil, fmt.Errorf("pgsvi: row %d: %w", n, err)
		}
		weight[n], is[n] = 1, score.Indicator(v == response)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return calibrate(p.Prob(nil, response), is, weight, bins)
}

// calibration runs Calibration on weighted rows. It leaves out rows of weight 0.
func (p *Prediction) calibration(y, weight []float64, bins int) (*Calibration, error) {
	if factsOf(p.lik).Support != SignLabels {
		return nil, fmt.Errorf(
			"pgsvi: Calibration needs labels −1 and +1, which %s does not have: %w",
			typeName(p.lik), ErrParam)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	for n := range weight {
		if err := checkLabel(p.lik, y[n]); err != nil {
			return nil, fmt.Errorf("pgsvi: row %d: %w", n, err)
		}
	}
	return calibrate(p.Prob(nil, 1), y, weight, bins)
}

// calibrate compares the predicted probabilities with the weighted share of rows whose y is
// positive.
func calibrate(prob, y, weight []float64, bins int) (*Calibration, error) {
	const normal = 10
	if bins < 0 {
		return nil, fmt.Errorf("pgsvi: calibration with %d bins; set 1 or more, or 0 for 10: %w",
			bins, ErrParam)
	}
	bins = cmp.Or(bins, normal)
	var rows []int
	for n, w := range weight {
		if w > 0 {
			rows = append(rows, n)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("pgsvi: calibration needs at least one row: %w", ErrEmpty)
	}
	c := &Calibration{}
	var found []score.Bin
	found, c.Nats, c.Expected = score.Calibrate(rows, prob, y, weight, bins)
	for _, b := range found {
		c.Rows, c.Predicted = append(c.Rows, b.Rows), append(c.Predicted, b.Predicted)
		c.Observed = append(c.Observed, b.Observed)
		c.Lo, c.Hi = append(c.Lo, b.Lo), append(c.Hi, b.Hi)
	}
	return c, nil
}

// CrossValidate runs k-fold cross-validation for any model. It deals the rows with responses y to
// folds at random, and for each fold it calls
//
//	fit(ctx, train, test)
//
// which must fit a model to the rows in train and return its prediction of the rows in test, in the
// order of test. Both slices hold increasing row indices and must not be changed. SelectRows
// selects rows of a matrix. If y has exactly two different values, such as labels, each fold gets
// its share of both (stratified folds).
//
// CrossValidate returns the predictions of all rows, each from the fit to the other folds, in the
// order of y. Prediction.Scores scores them. The slice fold holds the fold of each row, from 0.
//
// Zero folds mean 10, or the number of rows if that is smaller. Folds are dealt with env.Rng; a nil
// Env has a fixed seed and one worker. At most env.Workers fits run at the same time, each on any
// number of goroutines. fit is called concurrently, so it must allow that. The same seed
// gives the same bits for any number of workers if fit is deterministic. GLM.LOO and GP.LOO are
// faster because they need no refits.
//
// If a call of fit fails, CrossValidate returns the error of the first fold that failed, with the
// number of the fold. Otherwise the error wraps
//   - ErrEmpty if there are no rows;
//   - ErrNotFinite if a response is not finite;
//   - ErrParam if there are fewer than two folds or more folds than rows, if fit is nil or returns
//     a nil Prediction, or if the folds predict different types of responses;
//   - ErrShape if a prediction does not have one row per row of test;
//   - the cause of ctx if ctx is canceled.
//
// A row without a prediction is no error; see Prediction.Err.
func CrossValidate(ctx context.Context, env *Env, y []float64, folds int,
	fit func(ctx context.Context, train, test []int) (*Prediction, error)) (p *Prediction,
	fold []int, err error) {
	const normal = 10
	n := len(y)
	if folds == 0 {
		folds = min(normal, n)
	}
	switch i := slices.IndexFunc(y,
		func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }); {
	case n == 0:
		return nil, nil, fmt.Errorf("pgsvi: cross-validation needs at least two rows; y is empty: %w",
			ErrEmpty)
	case i >= 0:
		return nil, nil, fmt.Errorf("pgsvi: row %d: y = %v: %w", i, y[i], ErrNotFinite)
	case folds < 2 || folds > n:
		return nil, nil, fmt.Errorf("pgsvi: %d folds for %d rows; set from 2 to the number of rows: %w",
			folds, n, ErrParam)
	case fit == nil:
		return nil, nil, fmt.Errorf("pgsvi: the function fit is nil; cross-validation needs one: %w",
			ErrParam)
	}
	fold = env.deal(y, folds)
	tests := make([][]int, folds)
	for i, f := range fold {
		tests[f] = append(tests[f], i)
	}
	parts := make([]*Prediction, folds)
	err = env.Each(ctx, folds, func(_, f int) (err error) {
		train := make([]int, 0, n-len(tests[f]))
		for i, of := range fold {
			if of != f {
				train = append(train, i)
			}
		}
		if parts[f], err = fit(ctx, train, slices.Clone(tests[f])); err == nil {
			err = checkFold(parts[f], len(tests[f]))
		}
		if err != nil {
			return fmt.Errorf("pgsvi: fold %d: %w", f, sentinel.Bare(err))
		}
		return nil
	})
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return nil, nil, fmt.Errorf("pgsvi: canceled while the folds were fitted: %w", cause)
	}
	if err != nil {
		return nil, nil, err
	}
	if p, err = pool(parts, tests, n); err != nil {
		return nil, nil, err
	}
	return p, fold, nil
}

// deal returns the fold of each row. It shuffles the rows and deals them in turn. If y has two
// different values, it deals the rows with one value after the rows with the other.
func (e *Env) deal(y []float64, folds int) []int {
	order := e.rng().Perm(len(y))
	other := slices.IndexFunc(y, func(v float64) bool { return v != y[0] })
	if other >= 0 && !slices.ContainsFunc(y,
		func(v float64) bool { return v != y[0] && v != y[other] }) {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(y[a], y[b]) })
	}
	fold := make([]int, len(y))
	for k, i := range order {
		fold[i] = k % folds
	}
	return fold
}

// checkFold returns an error unless p predicts the given number of rows.
func checkFold(p *Prediction, rows int) error {
	switch {
	case p == nil:
		return fmt.Errorf("fit returned a nil Prediction: %w", ErrParam)
	case p.err != nil:
		return p.err
	case p.Len() != rows:
		return fmt.Errorf("fit returned %d rows, but test has %d: %w", p.Len(), rows, ErrShape)
	}
	return nil
}

// pool merges the predictions of all folds into the order of the rows.
func pool(parts []*Prediction, tests [][]int, n int) (*Prediction, error) {
	p := &Prediction{lik: parts[0].lik}
	width := latentsOf(p.lik)
	p.m, p.v = latentSlices(n * width)
	p.each = make([]Likelihood, n)
	same := true
	for f, part := range parts {
		if a, b := factsOf(part.lik).Support, factsOf(p.lik).Support; a != b {
			return nil, fmt.Errorf("pgsvi: fold %d predicts responses of %v, but fold 0 predicts "+
				"responses of %v: %w", f, a, b, ErrParam)
		}
		if a, b := latentsOf(part.lik), width; a != b {
			return nil, fmt.Errorf(
				"pgsvi: fold %d predicts %d classes, but fold 0 predicts %d; set Softmax.Classes: %w",
				f, a, b, ErrParam)
		}
		same = same && part.each == nil && reflect.DeepEqual(part.lik, p.lik)
		for k, i := range tests[f] {
			p.each[i] = part.likOf(k)
			copy(p.m[i*width:(i+1)*width], part.m[k*width:])
			copy(p.v[i*width:(i+1)*width], part.v[k*width:])
		}
	}
	if same {
		p.each = nil
	}
	p.mix = poolMixes(parts, tests, p)
	return p, nil
}

// poolMixes returns the mixtures of all folds in the order of the rows of p, or nil if no fold has
// one. A fold without a mixture is one part.
func poolMixes(folds []*Prediction, tests [][]int, p *Prediction) *predictionMix {
	most, width := 1, latentsOf(p.lik)
	for _, fold := range folds {
		if fold.mix != nil {
			most = max(most, len(fold.mix.parts))
		}
	}
	if most == 1 {
		return nil
	}
	n := p.Len()
	m := &predictionMix{prob: make([]float64, n*most)}
	for range most {
		part := &Prediction{lik: p.lik, m: slices.Clone(p.m), v: slices.Clone(p.v)}
		if width == 1 {
			part.each = make([]Likelihood, n)
		}
		for i := range part.each {
			part.each[i] = p.likOf(i)
		}
		m.parts = append(m.parts, part)
	}
	for f, fold := range folds {
		of := fold.mix
		if of == nil {
			of = &predictionMix{prob: []float64{1}, parts: []*Prediction{fold}}
		}
		for r, i := range tests[f] {
			copy(m.probs(i), of.probs(r))
			for k, part := range of.parts {
				copy(m.parts[k].m[i*width:(i+1)*width], part.m[r*width:])
				copy(m.parts[k].v[i*width:(i+1)*width], part.v[r*width:])
				if width == 1 {
					m.parts[k].each[i] = part.likOf(r)
				}
			}
		}
	}
	return m
}

// Scores reports how well predictions agree with responses. It prints as a table.
type Scores struct {
	Rows int // number of predicted rows
	// Names holds the names of the scores, Values their values, and SE their standard errors over
	// the rows. An SE is +Inf for a single row.
	Names      []string
	Values, SE []float64
}

// Value returns the score with the given name. It returns false if there is no such score.
func (m *Scores) Value(name string) (value float64, ok bool) {
	i := slices.Index(m.Names, name)
	if i < 0 {
		return 0, false
	}
	return m.Values[i], true
}

// append adds a score.
func (m *Scores) append(name string, value, se float64) {
	m.Names, m.Values, m.SE = append(m.Names, name), append(m.Values, value), append(m.SE, se)
}

// String returns the table: the number of rows, and one line per score.
func (m *Scores) String() string {
	lines := [][]string{{"", ""}}
	for i, name := range m.Names {
		se := m.SE[i]
		cell := table.Rounded("%.*f", m.Values[i], se)
		if !math.IsInf(se, 0) {
			cell += " ± " + table.Rounded("%.*f", se, se)
		}
		lines = append(lines, []string{name, cell})
	}
	table.Align(lines)
	var b strings.Builder
	fmt.Fprintf(&b, "%d row%s\n", m.Rows, map[bool]string{false: "s"}[m.Rows == 1])
	for _, line := range lines[1:] {
		b.WriteString(strings.TrimRight(strings.Join(line, "  "), " ") + "\n")
	}
	return b.String()
}

// Scores compares the predictions with the responses y, one per row. Use rows that were not part of
// the fit, or CrossValidate. Every likelihood has the score "log loss", the mean of −log p(y|x) in
// nats. Labels −1 and +1 also have
//
//   - "accuracy": the share of labels with a probability of at least ½;
//   - "AUC": the area under the ROC curve, which is the probability that a random +1 has a larger
//     P(+1) than a random −1, with the standard error of DeLong, DeLong and Clarke-Pearson (1988),
//     if both labels occur;
//   - "Brier": the mean of (P(+1) − 1{y = +1})²
//
// The classes of a Softmax also have
//
//   - "accuracy": the share of rows whose class is the most probable;
//   - "Brier": the mean of Σ_c (P(c) − 1{y = c})²
//
// Counts and numbers also have
//
//   - "RMSE": the root of the mean of (y − E[y])², in units of y;
//   - "MAE": the mean of |y − median|, in units of y;
//   - "R²": 1 − Σ(y − E[y])²/Σ(y − ȳ)², if the responses differ;
//   - "coverage 50%" and "coverage 90%": the share of responses inside their Interval of that
//     level, which is larger than the level for whole numbers.
//
// A censored response counts only in the log loss, with the probability that the response is above
// it.
//
// Standard errors are computed over the rows; RMSE and R² use the delta method. A log loss is +Inf
// if a response was impossible.
//
// Rows without a prediction are left out. Scores then returns the scores of the other rows, and an
// error that names the first such row and their number and wraps the same errors as Moments and
// Quantile. For any other error the scores are nil. Such an error wraps ErrShape if y does not have
// Len responses, ErrEmpty if p has no rows, and ErrLabel if a response is outside the support of
// the Likelihood. If no row has a prediction, it is the error of Err.
func (p *Prediction) Scores(y []float64) (*Scores, error) {
	n := p.Len()
	switch {
	case len(y) != n:
		return nil, fmt.Errorf("pgsvi: %d responses for %d rows: %w", len(y), n, ErrShape)
	case p.err != nil:
		return nil, p.err
	case n == 0:
		return nil, fmt.Errorf("pgsvi: Scores needs at least one row: %w", ErrEmpty)
	}
	for i, yi := range y {
		if err := checkLabel(p.likOf(i), yi); err != nil {
			return nil, fmt.Errorf("pgsvi: row %d: %w", i, err)
		}
	}
	many := latentsOf(p.lik) > 1
	p, y = p.seen(y)
	s := newRowScores(p, y)
	var bad failedRows
	for i, err := range s.errs {
		bad.add(i, err)
	}
	if bad.count == n {
		return nil, bad.err()
	}
	m := &Scores{Rows: n - bad.count}
	loss := make([]float64, 0, n)
	for i, l := range s.logp {
		if s.errs[i] == nil {
			loss = append(loss, -l)
		}
	}
	m.add("log loss", loss)
	switch {
	case many:
		m.classes(p, y, s.errs)
	case factsOf(p.lik).Support == SignLabels:
		m.labels(s)
	default:
		m.numbers(s, factsOf(p.lik))
	}
	return m, bad.err()
}

// seen returns the prediction and the responses to compare. If y holds Successes, the prediction
// gets the number of trials of each row.
func (p *Prediction) seen(y []float64) (*Prediction, []float64) {
	if !factsOf(p.lik).paired || p.each != nil {
		return p, y
	}
	each, plain := make([]Likelihood, len(y)), make([]float64, len(y))
	for i, yi := range y {
		each[i], plain[i] = seen(p.lik, yi)
	}
	return &Prediction{p.lik, p.m, p.v, p.err, each, p.spread,
		p.mix.each(func(part *Prediction) *Prediction {
			part, _ = part.seen(y)
			return part
		})}, plain
}

// rowScores holds the predictions of each row.
type rowScores struct {
	y, logp []float64
	mean    []float64 // P(+1) for labels
	median  []float64 // unused for labels
	in50    []bool
	in90    []bool
	errs    []error
}

func newRowScores(p *Prediction, y []float64) *rowScores {
	n := len(y)
	s := &rowScores{y: y, logp: p.LogProb(nil, y), mean: make([]float64, n),
		median: make([]float64, n),
		in50:   make([]bool, n), in90: make([]bool, n), errs: make([]error, n)}
	parallel.For(n, predictBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			if latentsOf(p.lik) > 1 {
				s.errs[i] = p.rowErr(i)
				continue
			}
			s.errs[i] = s.row(i, p)
		}
	})
	return s
}

// row predicts row i of p.
func (s *rowScores) row(i int, p *Prediction) (err error) {
	lik := p.likOf(i)
	if s.mean[i], err = p.rowOutcome(i); err != nil || factsOf(lik).Support == SignLabels {
		return err
	}
	if math.IsNaN(s.logp[i]) {
		return fmt.Errorf("the log probability is NaN; check LogProb of the likelihood: %w",
			ErrNotFinite)
	}
	if s.median[i], err = p.rowMedian(i); err != nil {
		return err
	}
	if s.in50[i], err = p.inInterval(i, s.y[i], 0.25); err == nil {
		s.in90[i], err = p.inInterval(i, s.y[i], 0.05)
	}
	return err
}

// rowMedian returns the median of y in row i.
func (p *Prediction) rowMedian(i int) (float64, error) {
	switch p.likOf(i).(type) {
	case GaussianNoise, Laplace, StudentT: // symmetric about m
		if p.mix == nil {
			return p.m[i], nil
		}
	}
	return p.rowQuantile(i, 0.5)
}

// inInterval reports whether y is in the interval of row i with probability tail on each side. It
// compares the tail probabilities of y if the likelihood has them, and quantiles otherwise.
func (p *Prediction) inInterval(i int, y, tail float64) (bool, error) {
	lik, m, v := p.likOf(i), p.m[i], p.v[i]
	t, ok := formsOf(lik).(tailPredictor)
	if !ok || p.mix != nil {
		lo, hi, err := p.rowInterval(i, tail)
		return lo <= y && y <= hi, err
	}
	if t.predictTail(y, m, v, false) < math.Log(tail) {
		return false, nil
	}
	if factsOf(lik).Support != Counts {
		return t.predictTail(y, m, v, true) >= math.Log(tail), nil
	}
	return y == 0 || t.predictTail(y-1, m, v, true) > math.Log(tail), nil
}

// add appends the mean of x as a score.
func (m *Scores) add(name string, x []float64) {
	mean, variance := score.MeanVariance(x)
	m.append(name, mean, score.StandardError(variance, len(x)))
}

// labels appends the scores of labels.
func (m *Scores) labels(s *rowScores) {
	var right, square, up, down []float64
	for i, p := range s.mean {
		if s.errs[i] != nil {
			continue
		}
		yes := s.y[i] > 0
		right = append(right, score.Indicator(yes && p >= 0.5 || !yes && p <= 0.5))
		square = append(square, (p-score.Indicator(yes))*(p-score.Indicator(yes)))
		if yes {
			up = append(up, p)
		} else {
			down = append(down, p)
		}
	}
	m.add("accuracy", right)
	if len(up) > 0 && len(down) > 0 {
		value, se := score.AUC(up, down)
		m.append("AUC", value, se)
	}
	m.add("Brier", square)
}

// numbers appends the scores of counts and numbers over the rows that are not censored.
func (m *Scores) numbers(s *rowScores, facts Facts) {
	var y, square, absolute, in50, in90 []float64
	for i, yi := range s.y {
		if s.errs[i] != nil || facts.Censored && yi < 0 {
			continue
		}
		y = append(y, yi)
		square = append(square, (yi-s.mean[i])*(yi-s.mean[i]))
		absolute = append(absolute, math.Abs(yi-s.median[i]))
		in50, in90 = append(in50, score.Indicator(s.in50[i])),
			append(in90, score.Indicator(s.in90[i]))
	}
	if len(y) == 0 {
		return
	}
	rmse, se := score.RMSE(square)
	m.append("RMSE", rmse, se)
	m.add("MAE", absolute)
	if r2, se, ok := score.R2(y, square); ok {
		m.append("R²", r2, se)
	}
	m.add("coverage 50%", in50)
	m.add("coverage 90%", in90)
}

// classes appends the scores of K classes.
func (m *Scores) classes(p *Prediction, y []float64, errs []error) {
	right, square := make([]float64, p.Len()), make([]float64, p.Len())
	p.classes(func(i int, r *classRow) {
		c := int(y[i])
		most := 0.0
		for j, q := range r.pi {
			square[i] += (q - score.Indicator(j == c)) * (q - score.Indicator(j == c))
			most = math.Max(most, q)
		}
		right[i] = score.Indicator(r.pi[c] == most)
	})
	keep := func(x []float64) (kept []float64) {
		for i, v := range x {
			if errs[i] == nil {
				kept = append(kept, v)
			}
		}
		return kept
	}
	m.add("accuracy", keep(right))
	m.add("Brier", keep(square))
}

// A Confusion is a confusion matrix: it counts the decisions for each correct class. It prints as a
// table with the recall and the precision of each class. Make it with NewConfusion.
type Confusion struct {
	// Names holds the names of the classes, in the order of Counts.
	Names []string
	// Counts[y][d] is the number of rows of class y with decision d.
	Counts [][]int
}

// NewConfusion compares decisions, such as the result of Prediction.Decide, with the responses y.
// Both hold either the labels −1 and +1, where −1 is the first class, or classes 0, 1, …. Rows
// whose decision is NaN are left out. names has one name per class; nil uses the numbers as names,
// up to the largest class that occurs.
//
// The error wraps ErrShape if the numbers of decisions and responses differ or if labels do not
// have two names, ErrLabel if a value is neither a label nor a class, and ErrEmpty if there are no
// rows.
func NewConfusion(y, decided []float64, names []string) (*Confusion, error) {
	if len(y) != len(decided) {
		return nil, fmt.Errorf("pgsvi: %d decisions for %d responses: %w", len(decided), len(y),
			ErrShape)
	}
	const most = 1 << 16
	signs, n := false, 1
	for i, v := range y {
		for _, x := range [2]float64{v, decided[i]} {
			signs = signs || x == -1
			if x >= 0 && x <= most {
				n = max(n, int(x)+1)
			}
		}
	}
	switch {
	case signs || names == nil && n == 2:
		n = 2
	case names != nil:
		n = len(names)
	}
	if names == nil {
		for c := range n {
			names = append(names, strconv.Itoa(c))
		}
		if signs {
			names = []string{"-1", "+1"}
		}
	}
	if len(names) != n {
		return nil, fmt.Errorf("pgsvi: %d names for %d labels: %w", len(names), n, ErrShape)
	}
	place := func(i int, x float64) (int, error) {
		c := x
		if signs {
			c = (x + 1) / 2
		}
		if !(c >= 0 && c < float64(n)) || c != math.Floor(c) {
			return 0, fmt.Errorf("pgsvi: row %d: %v is not a class; use labels −1 and +1, or 0 "+
				"to %d − 1: %w", i, x, n, ErrLabel)
		}
		return int(c), nil
	}
	m := &Confusion{Names: append([]string(nil), names...), Counts: make([][]int, n)}
	for c := range m.Counts {
		m.Counts[c] = make([]int, n)
	}
	rows := 0
	for i, d := range decided {
		if math.IsNaN(d) {
			continue
		}
		a, err := place(i, y[i])
		if err != nil {
			return nil, err
		}
		b, err := place(i, d)
		if err != nil {
			return nil, err
		}
		m.Counts[a][b]++
		rows++
	}
	if rows == 0 {
		return nil, fmt.Errorf("pgsvi: a confusion matrix needs at least one row: %w", ErrEmpty)
	}
	return m, nil
}

// Error returns the share of rows with a wrong decision.
func (m *Confusion) Error() float64 {
	wrong, all := 0, 0
	for y, row := range m.Counts {
		for d, n := range row {
			if all += n; y != d {
				wrong += n
			}
		}
	}
	return float64(wrong) / float64(all)
}

// Recall returns the share of the rows of class c that have decision c (sensitivity). It is NaN if
// there are no such rows.
func (m *Confusion) Recall(c int) float64 {
	all := 0
	for _, n := range m.Counts[c] {
		all += n
	}
	return float64(m.Counts[c][c]) / float64(all)
}

// Precision returns the share of the rows with decision c that are of class c (positive predictive
// value). It is NaN if there are no such rows.
func (m *Confusion) Precision(c int) float64 {
	all := 0
	for _, row := range m.Counts {
		all += row[c]
	}
	return float64(m.Counts[c][c]) / float64(all)
}

// String returns the table. It has one row per class with its counts by decision and its recall,
// and a last row with the precisions and the share of correct decisions.
func (m *Confusion) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	share := func(x float64) string {
		if math.IsNaN(x) {
			return "-"
		}
		return strconv.FormatFloat(x, 'f', 3, 64)
	}
	fmt.Fprintf(w, "is \\ decided\t%s\trecall\t\n", strings.Join(m.Names, "\t"))
	last := []string{"precision"}
	for y, name := range m.Names {
		cells := []string{name}
		for _, n := range m.Counts[y] {
			cells = append(cells, strconv.Itoa(n))
		}
		fmt.Fprintf(w, "%s\t%s\t\n", strings.Join(cells, "\t"), share(m.Recall(y)))
		last = append(last, share(m.Precision(y)))
	}
	fmt.Fprintf(w, "%s\t%s\t\n", strings.Join(last, "\t"), share(1-m.Error()))
	w.Flush()
	return b.String()
}
