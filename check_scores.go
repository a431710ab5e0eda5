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

// LOOComparison compares models by leave-one-out cross-validation. It prints as a table.
type LOOComparison struct {
	// Reference is the name of the model that the others are compared with, and ELPD its ELPD over
	// the data that all models could leave out.
	Reference string
	ELPD      float64
	// Rows has a row for each other model, in the order given. They may be sorted or removed before
	// they are printed.
	Rows []LOODifference
}

// LOODifference is how much better a model predicts than the reference, in nats.
type LOODifference struct {
	// Name is LOO.Name or, where that is "", "model 2" and so on.
	Name string
	// Diff is the ELPD of the model minus that of the reference: below 0 the reference is better.
	Diff float64
	// SE is the standard error of Diff over the data, √(N Var_n(l_n − l′_n)) for the Pointwise of
	// both models.
	SE float64
	// Err is the sum of both LOO.Err: how far Diff may be from that of refits without each datum.
	Err float64
}

// Verdict is "better", "worse" or "about the same". It is "about the same" if Diff is within 4
// nats, or within two standard errors √(SE² + Err²), of 0: smaller differences mean little
// (Sivula, Magnusson, Matamoros and Vehtari 2020).
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

// String returns the table: the ELPD of the reference, and for each other model its difference, the
// standard error with Err in it, and the verdict.
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

// CompareLOO compares how well models predict the same data by leave-one-out cross-validation:
// other models with the reference. Set LOO.Name to name them. Data that cannot be left out of one
// model (LOO.Unresolved) are ignored for all.
//
// The error wraps
//   - ErrParam if a LOO is nil, if there is nothing to compare with, or if one model has
//     probabilities and another densities;
//   - ErrShape if the numbers of data, the responses or the weights differ;
//   - ErrEmpty if no datum is left.
//
// The responses of a LOO by draws are unknown, and not compared.
func CompareLOO(reference *LOO, others ...*LOO) (*LOOComparison, error) {
	if reference == nil || len(others) == 0 {
		return nil, fmt.Errorf("pgsvi: CompareLOO wants a reference and another LOO: %w", ErrParam)
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
		return nil, fmt.Errorf("pgsvi: no datum that all models can leave out: %w", ErrEmpty)
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

// weightOf returns the weight of datum n.
func (l *LOO) weightOf(n int) float64 {
	if l.weight == nil {
		return 1
	}
	return l.weight[n]
}

// comparable returns an error if o is not of the data of l.
func (l *LOO) comparable(o *LOO) error {
	if o == nil {
		return fmt.Errorf("nil LOO: %w", ErrParam)
	}
	if len(o.Pointwise) != len(l.Pointwise) {
		return fmt.Errorf("%d data, and %d of the reference: %w", len(o.Pointwise),
			len(l.Pointwise), ErrShape)
	}
	if l.y == nil || o.y == nil {
		return nil
	}
	for n, y := range l.y {
		switch {
		case y != o.y[n]:
			return fmt.Errorf("datum %d has response %v, and %v in the reference: %w", n, o.y[n], y,
				ErrShape)
		case o.weightOf(n) != l.weightOf(n):
			return fmt.Errorf("datum %d has weight %v, and %v in the reference: %w",
				n, o.weightOf(n), l.weightOf(n), ErrShape)
		}
	}
	a, b := o.Cavity.lik, l.Cavity.lik
	if factsOf(a).discrete() != factsOf(b).discrete() {
		return fmt.Errorf(
			"%s and %s of the reference: probabilities and densities do not compare: %w",
			typeName(a), typeName(b), ErrParam)
	}
	return nil
}

// Calibration compares predicted probabilities of labels with how often they came true. It prints
// as a table.
type Calibration struct {
	Bins []CalibrationBin
	// Nats is Σ_b n_b KL(observed_b‖predicted_b)/n, the miscalibration in nats a row: what a better
	// probability for each bin would gain. Expected is what a calibrated model has of it by chance,
	// about the number of bins over 2n.
	Nats, Expected float64
}

// CalibrationBin are rows of similar predicted probability of the label +1.
type CalibrationBin struct {
	Rows      int
	Predicted float64 // mean of the predicted probability
	Observed  float64 // share of +1
	Lo, Hi    float64 // 95% interval of the share (Jeffreys; Brown, Cai and DasGupta 2001)
}

// String returns the table, a line for each bin. A star marks bins whose prediction is outside the
// interval of what was observed.
func (c *Calibration) String() string {
	var b strings.Builder
	b.WriteString("  rows  predicted  observed (95% interval)\n")
	for _, r := range c.Bins {
		star := ""
		if r.Predicted < r.Lo || r.Predicted > r.Hi {
			star = " *"
		}
		fmt.Fprintf(&b, "%6d  %9.3f  %8.3f (%.3f to %.3f)%s\n", r.Rows, r.Predicted, r.Observed,
			r.Lo, r.Hi, star)
	}
	fmt.Fprintf(&b, "miscalibration %.2g nats a row; %.2g by chance\n", c.Nats, c.Expected)
	return b.String()
}

// Calibration compares the leave-one-out probabilities of the label +1, from Cavity, with the
// labels, in bins of about equally many rows by rising probability. Rows of equal probability
// stay together. Zero bins mean 10; there are at most as many bins as rows. Data in Unresolved
// are left out.
//
// The error wraps ErrParam if bins is negative, if the LOO is by draws, or if the responses are
// not labels −1 and +1. It wraps ErrEmpty if no datum is left.
func (l *LOO) Calibration(bins int) (*Calibration, error) {
	if l.Cavity == nil || l.y == nil {
		return nil, fmt.Errorf("pgsvi: LOO by draws has no probabilities of its own: %w", ErrParam)
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

// Calibration compares the predicted probabilities of +1 at the rows of p with their labels y, as
// LOO.Calibration does. The rows should not be those of the fit.
//
// The error wraps
//   - ErrShape if there are not Len labels;
//   - ErrParam if bins is negative or the Likelihood does not have labels −1 and +1;
//   - ErrLabel if a label is neither;
//   - ErrEmpty if there are no rows.
//
// Otherwise it is that of Err if a row has no prediction.
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

// CalibrationOf is Calibration of the probability of one response, such as a class of Softmax: it
// compares Prob of it with the share of the rows where y is that. The error wraps ErrParam as well
// if the Likelihood has densities instead of probabilities, and ErrLabel if the response is outside
// its Support.
func (p *Prediction) CalibrationOf(response float64, y []float64, bins int) (*Calibration, error) {
	facts := factsOf(p.lik)
	switch {
	case len(y) != p.Len():
		return nil, fmt.Errorf("pgsvi: %d responses for %d rows: %w", len(y), p.Len(), ErrShape)
	case !facts.discrete():
		return nil, fmt.Errorf("pgsvi: calibration of %s, which has a density on %s: %w",
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

// calibration is Calibration of rows of these weights; those of weight 0 are left out.
func (p *Prediction) calibration(y, weight []float64, bins int) (*Calibration, error) {
	if factsOf(p.lik).Support != SignLabels {
		return nil, fmt.Errorf(
			"pgsvi: calibration of %s, whose responses are no labels −1 and +1: %w",
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

// calibrate compares probabilities with whether y is above 0, in rows of these weights.
func calibrate(prob, y, weight []float64, bins int) (*Calibration, error) {
	const normal = 10
	if bins < 0 {
		return nil, fmt.Errorf("pgsvi: calibration of %d bins: %w", bins, ErrParam)
	}
	bins = cmp.Or(bins, normal)
	var rows []int
	for n, w := range weight {
		if w > 0 {
			rows = append(rows, n)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("pgsvi: calibration of no rows: %w", ErrEmpty)
	}
	c := &Calibration{}
	var found []score.Bin
	found, c.Nats, c.Expected = score.Calibrate(rows, prob, y, weight, bins)
	for _, b := range found {
		c.Bins = append(c.Bins, CalibrationBin(b))
	}
	return c, nil
}

// CrossValidation is the result of CrossValidate. It prints as its Scores.
type CrossValidation struct {
	// Fold is the fold of each row, from 0 on.
	Fold []int
	// Prediction predicts each row from the fit to the other folds, in the order of the rows.
	Prediction *Prediction
	// Scores are those of Prediction over all rows together.
	Scores *Scores
}

// String returns the number of folds and the table of the scores.
func (c *CrossValidation) String() string {
	folds := 0
	for _, f := range c.Fold {
		folds = max(folds, f+1)
	}
	return fmt.Sprintf("%d-fold cross-validation, %v", folds, c.Scores)
}

// CrossValidate predicts each row from a fit to other rows (k-fold cross-validation), for any
// model: the rows with responses y are dealt to folds at random, and for each fold
//
//	fit(ctx, train, test)
//
// fits a model to the rows of train and returns its prediction of the rows of test, in their
// order. Both are indices in increasing order, to be read only; SelectRows takes rows of a matrix.
// With two different responses, such as labels, each fold has its share of both (stratified).
//
// Zero folds mean 10, or as many as there are rows. Folds are dealt by env.Rng; a nil Env has a
// fixed seed and one worker. At most env.Workers fits run at a time, each on as many goroutines as
// it likes. The same seed gives the same bits for any number of workers if fit does, which is
// called concurrently. GLM.LOO and GP.LOO are faster, and need no refits.
//
// The error is that of fit, with the number of the fold, of the least fold that failed, or wraps
// the cause of ctx; ErrEmpty if there are no rows; ErrNotFinite if a response is not finite;
// ErrParam if there are less than two folds or more than rows, if fit is nil or returns nil, or
// predictions of different kinds of responses; and ErrShape if a prediction has not a row for each
// of test. If rows could not be predicted, there is a result of the others and the error of
// Prediction.Scores.
func CrossValidate(ctx context.Context, env *Env, y []float64, folds int,
	fit func(ctx context.Context, train, test []int) (*Prediction, error)) (*CrossValidation,
	error) {
	const normal = 10
	n := len(y)
	if folds == 0 {
		folds = min(normal, n)
	}
	switch i := slices.IndexFunc(y,
		func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }); {
	case n == 0:
		return nil, fmt.Errorf("pgsvi: cross-validation of no rows: %w", ErrEmpty)
	case i >= 0:
		return nil, fmt.Errorf("pgsvi: row %d: y = %v: %w", i, y[i], ErrNotFinite)
	case folds < 2 || folds > n:
		return nil, fmt.Errorf("pgsvi: %d folds of %d rows, want from 2 to as many as rows: %w",
			folds, n, ErrParam)
	case fit == nil:
		return nil, fmt.Errorf("pgsvi: cross-validation without a function that fits: %w", ErrParam)
	}
	c := &CrossValidation{Fold: env.deal(y, folds)}
	tests := make([][]int, folds)
	for i, f := range c.Fold {
		tests[f] = append(tests[f], i)
	}
	parts := make([]*Prediction, folds)
	err := env.Each(ctx, folds, func(_, f int) (err error) {
		train := make([]int, 0, n-len(tests[f]))
		for i, of := range c.Fold {
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
		return nil, fmt.Errorf("pgsvi: canceled while folds were fitted: %w", cause)
	}
	if err != nil {
		return nil, err
	}
	if c.Prediction, err = pool(parts, tests, n); err != nil {
		return nil, err
	}
	c.Scores, err = c.Prediction.Scores(y)
	return c, err
}

// deal returns the fold of each row. The rows are shuffled and dealt in turn, those of one of two
// responses after those of the other.
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

// checkFold returns an error unless p predicts so many rows.
func checkFold(p *Prediction, rows int) error {
	switch {
	case p == nil:
		return fmt.Errorf("a nil Prediction: %w", ErrParam)
	case p.err != nil:
		return p.err
	case p.Len() != rows:
		return fmt.Errorf("a prediction of %d rows for the %d of test: %w", p.Len(), rows, ErrShape)
	}
	return nil
}

// pool returns the predictions of the rows of all folds, in order.
func pool(parts []*Prediction, tests [][]int, n int) (*Prediction, error) {
	p := &Prediction{lik: parts[0].lik}
	width := latentsOf(p.lik)
	p.m, p.v = latentSlices(n * width)
	p.each = make([]Likelihood, n)
	same := true
	for f, part := range parts {
		if a, b := factsOf(part.lik).Support, factsOf(p.lik).Support; a != b {
			return nil, fmt.Errorf("pgsvi: fold %d predicts responses of %v, fold 0 of %v: %w", f,
				a, b, ErrParam)
		}
		if a, b := latentsOf(part.lik), width; a != b {
			return nil, fmt.Errorf(
				"pgsvi: fold %d predicts %d classes, fold 0 %d; set Softmax.Classes: %w", f, a, b,
				ErrParam)
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
	return p, nil
}

// Scores say how well predictions agree with responses. They print as a table.
type Scores struct {
	Rows   int // that were predicted
	Values []Score
}

// Score is one of Scores, with its standard error over the rows: +Inf for a single row.
type Score struct {
	Name      string
	Value, SE float64
}

// Value returns the score of that name, and whether there is one.
func (m *Scores) Value(name string) (value float64, ok bool) {
	for _, v := range m.Values {
		if v.Name == name {
			return v.Value, true
		}
	}
	return 0, false
}

// String returns the table: the number of rows, and a line for each score.
func (m *Scores) String() string {
	lines := [][]string{{"", ""}}
	for _, v := range m.Values {
		cell := table.Rounded("%.*f", v.Value, v.SE)
		if !math.IsInf(v.SE, 0) {
			cell += " ± " + table.Rounded("%.*f", v.SE, v.SE)
		}
		lines = append(lines, []string{v.Name, cell})
	}
	table.Align(lines)
	var b strings.Builder
	fmt.Fprintf(&b, "%d row%s\n", m.Rows, map[bool]string{false: "s"}[m.Rows == 1])
	for _, line := range lines[1:] {
		b.WriteString(strings.TrimRight(strings.Join(line, "  "), " ") + "\n")
	}
	return b.String()
}

// Scores compares the predictions with responses y, one for each row, which should not be those of
// the fit (held-out rows; for cross-validation see CrossValidate). With "log loss", the mean of
// −log p(y|x) in nats, they are for labels −1 and +1
//
//   - "accuracy": the share of labels that have at least probability ½;
//   - "AUC": the area under the ROC curve, the probability that a random +1 has a larger P(+1) than
//     a random −1, with the standard error of DeLong, DeLong and Clarke-Pearson (1988); only if
//     both labels occur;
//   - "Brier": the mean of (P(+1) − 1{y = +1})²
//
// for the classes of a Softmax
//
//   - "accuracy": the share of rows whose class is the most probable;
//   - "Brier": the mean of Σ_c (P(c) − 1{y = c})²
//
// and for counts and numbers
//
//   - "RMSE": the root of the mean of (y − E[y])², in units of y;
//   - "MAE": the mean of |y − median|, in units of y;
//   - "R²": 1 − Σ(y − E[y])²/Σ(y − ȳ)², if the responses differ;
//   - "coverage 50%" and "coverage 90%": the share of responses in their Interval of that level,
//     more for whole numbers.
//
// A censored response counts in the log loss alone, by the probability that the response is above
// it.
//
// Standard errors are those of means over the rows, and of RMSE and R² by the delta method. A log
// loss is +Inf where a response was impossible.
//
// Rows without a prediction are left out, and the error names the first and how many there are; it
// wraps what that of Moments and Quantile does. Without any other row, or for another error, there
// are no Scores. That error wraps ErrShape if there are not Len responses, ErrEmpty if there are
// no rows, and ErrLabel if a response is outside the support of the Likelihood, or what Err does
// if no row can be predicted.
func (p *Prediction) Scores(y []float64) (*Scores, error) {
	n := p.Len()
	switch {
	case len(y) != n:
		return nil, fmt.Errorf("pgsvi: %d responses for %d rows: %w", len(y), n, ErrShape)
	case p.err != nil:
		return nil, p.err
	case n == 0:
		return nil, fmt.Errorf("pgsvi: scores of no rows: %w", ErrEmpty)
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

// seen returns the prediction and the responses that y stands for, where responses of Successes
// tell the trials of their rows.
func (p *Prediction) seen(y []float64) (*Prediction, []float64) {
	if !factsOf(p.lik).paired || p.each != nil {
		return p, y
	}
	each, plain := make([]Likelihood, len(y)), make([]float64, len(y))
	for i, yi := range y {
		each[i], plain[i] = seen(p.lik, yi)
	}
	return &Prediction{p.lik, p.m, p.v, p.err, each, p.spread}, plain
}

// rowScores are what is predicted of each row.
type rowScores struct {
	y, logp []float64
	mean    []float64 // P(+1) of labels
	median  []float64 // not of labels
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
			s.errs[i] = s.row(i, p.likOf(i), p.m[i], p.v[i])
		}
	})
	return s
}

// row predicts row i.
func (s *rowScores) row(i int, lik Likelihood, m, v float64) (err error) {
	if s.mean[i], err = outcome(lik, m, v); err != nil || factsOf(lik).Support == SignLabels {
		return err
	}
	if math.IsNaN(s.logp[i]) {
		return fmt.Errorf("the log probability is NaN: %w", ErrNotFinite)
	}
	switch lik.(type) {
	case GaussianNoise, Laplace, StudentT: // symmetric about m
		s.median[i] = m
	default:
		if s.median[i], err = predictiveQuantile(lik, 0.5, m, v); err != nil {
			return err
		}
	}
	if s.in50[i], err = inInterval(lik, s.y[i], 0.25, m, v); err == nil {
		s.in90[i], err = inInterval(lik, s.y[i], 0.05, m, v)
	}
	return err
}

// inInterval reports whether y is in the interval that leaves tail on each side. Where the tails of
// y are known, they take the place of quantiles.
func inInterval(lik Likelihood, y, tail, m, v float64) (bool, error) {
	t, ok := lik.(tailPredictor)
	if !ok {
		lo, hi, err := responseInterval(lik, tail, m, v)
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

// add adds the mean of x.
func (m *Scores) add(name string, x []float64) {
	mean, variance := score.MeanVariance(x)
	m.Values = append(m.Values, Score{name, mean, score.StandardError(variance, len(x))})
}

// labels adds the scores of labels.
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
		m.Values = append(m.Values, Score{"AUC", value, se})
	}
	m.add("Brier", square)
}

// numbers adds the scores of counts and numbers, of rows that are not censored.
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
	m.Values = append(m.Values, Score{"RMSE", rmse, se})
	m.add("MAE", absolute)
	if r2, se, ok := score.R2(y, square); ok {
		m.Values = append(m.Values, Score{"R²", r2, se})
	}
	m.add("coverage 50%", in50)
	m.add("coverage 90%", in90)
}

// classes adds the scores of K classes.
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

// A Confusion counts decisions by the class that was right (confusion matrix). Print it for a table
// with the recall and the precision of each class. It is made by NewConfusion.
type Confusion struct {
	// Names are those of the classes, in the order of Counts.
	Names []string
	// Counts has the number of rows of class y that were decided to be of class d in Counts[y][d].
	Counts [][]int
}

// NewConfusion compares decisions, such as those of Prediction.Decide, with the responses y: the
// labels −1 and +1, of which −1 comes first, or classes 0, 1, …. Rows whose decision is NaN are
// left out. The names are those of all classes; nil takes as many as there are, with their numbers
// as names.
//
// The error wraps ErrShape if there are not as many decisions as responses, ErrLabel if one is no
// label and no class, names the row, and ErrEmpty if there are no rows.
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
			return 0, fmt.Errorf("pgsvi: row %d: %v is none of %d classes: %w", i, x, n, ErrLabel)
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
		return nil, fmt.Errorf("pgsvi: a confusion table of no rows: %w", ErrEmpty)
	}
	return m, nil
}

// Error returns the share of rows that were decided wrongly.
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

// Recall returns the share of the rows of class c that were decided to be of it (sensitivity): NaN
// if there are none.
func (m *Confusion) Recall(c int) float64 {
	all := 0
	for _, n := range m.Counts[c] {
		all += n
	}
	return float64(m.Counts[c][c]) / float64(all)
}

// Precision returns the share of the rows decided to be of class c that are (positive predictive
// value): NaN if there are none.
func (m *Confusion) Precision(c int) float64 {
	all := 0
	for _, row := range m.Counts {
		all += row[c]
	}
	return float64(m.Counts[c][c]) / float64(all)
}

// String returns the table: a row for each class with its counts by decision and its recall, and a
// last row with the precisions and the share of rows that are right.
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
