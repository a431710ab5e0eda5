package pgsvi

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/score"
	"github.com/pgsvi/pgsvi/internal/table"
)

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
// A censored response counts in the log loss alone, by the probability that the response is above it.
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

// seen returns the prediction and the responses that y stands for, where responses of Successes tell
// the trials of their rows.
func (p *Prediction) seen(y []float64) (*Prediction, []float64) {
	if !factsOf(p.lik).paired || p.each != nil {
		return p, y
	}
	each, plain := make([]Likelihood, len(y)), make([]float64, len(y))
	for i, yi := range y {
		each[i], plain[i] = seen(p.lik, yi)
	}
	return &Prediction{p.lik, p.m, p.v, p.err, each}, plain
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
	s := &rowScores{y: y, logp: p.LogProb(nil, y), mean: make([]float64, n), median: make([]float64, n),
		in50: make([]bool, n), in90: make([]bool, n), errs: make([]error, n)}
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
		in50, in90 = append(in50, score.Indicator(s.in50[i])), append(in90, score.Indicator(s.in90[i]))
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
// labels −1 and +1, of which −1 comes first, or classes 0, 1, …. Rows whose decision is NaN are left
// out. The names are those of all classes; nil takes as many as there are, with their numbers as
// names.
//
// The error wraps ErrShape if there are not as many decisions as responses, ErrLabel if one is no
// label and no class, names the row, and ErrEmpty if there are no rows.
func NewConfusion(y, decided []float64, names []string) (*Confusion, error) {
	if len(y) != len(decided) {
		return nil, fmt.Errorf("pgsvi: %d decisions for %d responses: %w", len(decided), len(y), ErrShape)
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
