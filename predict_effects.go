package pgsvi

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/effect"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/table"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// EffectOptions holds the options of GLMPosterior.Explain and GLMPosterior.MarginalEffects. The
// zero value and a nil pointer mean the defaults.
type EffectOptions struct {
	// Columns holds, for each feature (each column of x), the name of its data column. Features of
	// the same data column belong together. Nil means the part of the name of the weight before its
	// first "=": "plan=gold" and "plan=basic" belong to the column "plan".
	Columns []string
	// Base is the row that Explain compares with, without intercept. Nil means the column means of
	// the fit, weighted by GLMOptions.Weights; Update and Remove do not change them. They are
	// unknown for a stream that began without a fit, for a fit without rows, and in files of
	// earlier versions.
	Base []float64
	// Offset is the offset of each row of MarginalEffects, like GLMOptions.Offset. A Softmax needs
	// one for each class of each row. Nil means 0.
	Offset []float64
	// Classes holds two classes of a Softmax. Explain shows the log odds of the first class against
	// the second. Nil means the two most probable classes of the row.
	Classes []int
}

// Effects holds the parts of a prediction (feature contributions), or marginal effects on it. It
// prints as a table.
type Effects struct {
	// Rows has a row for each column (Explain) or for each feature (MarginalEffects). The caller
	// may sort, change or remove rows before printing.
	Rows []Effect
	// Base and Value are the latent means of the base row and of the explained row. The means in
	// Rows add up to Value − Base. Both are 0 for MarginalEffects.
	Base, Value float64
	// Title is the line above the table that String returns. Empty means no title.
	Title string

	factor string // quantity that e^Mean multiplies, or ""
	latent string // name of Base and Value
}

// newEffect returns an Effect whose posterior is N(e.Mean, e.SD²).
func newEffect(name string, e effect.Effect) Effect {
	return Effect{name, e.Mean, e.SD, e.Mean - normal975*e.SD, e.Mean + normal975*e.SD}
}

// String returns the table. It has one line per row, with the factor e^Mean if the link is a
// logarithm or log odds.
func (e *Effects) String() string {
	var b strings.Builder
	if e.Title != "" {
		b.WriteString(e.Title + "\n")
	}
	lines := [][]string{{"", "", ""}}
	for _, r := range e.Rows {
		cell := table.Rounded("%+.*f", r.Mean, r.SD) + " ± " + table.Rounded("%.*f", r.SD, r.SD)
		factor := ""
		if e.factor != "" {
			factor = fmt.Sprintf("%s ×%.3g", e.factor, math.Exp(r.Mean))
		}
		lines = append(lines, []string{r.Name, cell, factor})
	}
	table.Align(lines)
	for _, line := range lines[1:] {
		b.WriteString(strings.TrimRight(strings.Join(line, "  "), " ") + "\n")
	}
	if e.latent != "" {
		text := fmt.Sprintf("%s %.2f; %.2f at the base row\n", e.latent, e.Value, e.Base)
		b.WriteString(table.Minus(text))
	}
	return b.String()
}

// columnsOf returns the column of each feature, and the features of each column in order.
func (p *GLMPosterior) columnsOf(opt *EffectOptions) (names []string, features [][]int, err error) {
	if opt.Columns != nil && len(opt.Columns) != p.Cols() {
		return nil, nil, fmt.Errorf("pgsvi: EffectOptions.Columns has %d names for %d features: %w",
			len(opt.Columns), p.Cols(), ErrShape)
	}
	at := make(map[string]int)
	for j := range p.Cols() {
		name, _, _ := strings.Cut(p.names[j], "=")
		if opt.Columns != nil {
			name = opt.Columns[j]
		}
		c, ok := at[name]
		if !ok {
			c = len(names)
			at[name] = c
			names, features = append(names, name), append(features, nil)
		}
		features[c] = append(features[c], j)
	}
	return names, features, nil
}

// Explain returns the contribution of each column to the latent value of a row (feature
// attribution), relative to a base row x̄, by default the column means. For the features c of a
// column it is
//
//	(x − x̄)_cᵀ m_c   with standard deviation   √((x − x̄)_cᵀ V_cc (x − x̄)_c).
//
// The contributions add up to the latent mean of the row minus the latent mean of the base row.
// They are sorted by size, the largest first, and are on the scale of the linear predictor:
//   - log odds for BernoulliLogit, Binomial, BetaBinomial and Ordinal;
//   - the logarithm of the mean for Poisson, NegativeBinomial, Gamma and Exponential;
//   - the logarithm of the mean minus a constant for ZeroInflated, Weibull and LogNormal;
//   - units of y for Gaussian noise.
//
// An interaction is a column of its own.
//
// For a Softmax they are contributions to the log odds of one class against another, the difference
// of their scores; see EffectOptions.Classes.
//
// The row has Cols elements, without intercept. A nil opt means the zero EffectOptions. The error
// wraps
//   - ErrShape if a length does not match;
//   - ErrNotFinite if an element is not finite;
//   - ErrParam if there is neither an EffectOptions.Base nor column means of a fit, or if
//     EffectOptions.Classes does not hold two different classes.
func (p *GLMPosterior) Explain(row []float64, opt *EffectOptions) (*Effects, error) {
	opt = cmp.Or(opt, &EffectOptions{})
	names, features, err := p.columnsOf(opt)
	if err != nil {
		return nil, err
	}
	base := opt.Base
	if base == nil {
		base = p.means
	}
	if base == nil {
		return nil, fmt.Errorf("pgsvi: the posterior has no column means; set EffectOptions.Base "+
			"to a row to compare with: %w", ErrParam)
	}
	if err := p.checkFeatures("the row", row); err != nil {
		return nil, err
	}
	if err := p.checkFeatures("EffectOptions.Base", base); err != nil {
		return nil, err
	}
	e := &Effects{latent: "latent value"}
	var parts []effect.Effect
	if latentsOf(p.lik) > 1 {
		if parts, err = p.againstClass(e, row, base, features, opt.Classes); err != nil {
			return nil, err
		}
	} else {
		e.Base = p.latentMean(base, p.mean)
		parts = effect.Contributions(row, base, features, p.mean, p.wide())
	}
	e.Value = e.Base
	for c, r := range parts {
		e.Rows = append(e.Rows, newEffect(names[c], r))
		e.Value += r.Mean
	}
	slices.SortStableFunc(e.Rows, func(a, b Effect) int {
		return cmp.Compare(math.Abs(b.Mean), math.Abs(a.Mean))
	})
	switch p.lik.(type) {
	case BernoulliLogit, Binomial, Ordinal, BetaBinomial:
		e.factor, e.latent = "odds", "log odds"
	case Poisson, NegativeBinomial, Gamma, Exponential:
		e.factor, e.latent = "mean", "log mean"
	case ZeroInflated, Weibull, LogNormal: // the mean is e^η times a constant
		e.factor, e.latent = "mean", "log scale"
	}
	return e, nil
}

// latentMean returns the latent mean of a row with the given weights, without its offset.
func (p *GLMPosterior) latentMean(row, weights []float64) float64 {
	m := floats.Dot(row, weights[:p.Cols()])
	if p.opt.Intercept {
		m += weights[p.Cols()]
	}
	return m
}

// againstClass adds the contributions of the columns of a row to the log odds of one class against
// another.
func (p *GLMPosterior) againstClass(e *Effects, row, base []float64, features [][]int,
	classes []int) ([]effect.Effect, error) {
	k, d := latentsOf(p.lik), len(p.names)
	if classes == nil {
		probs := p.At(mat.NewDense(1, len(row), slices.Clone(row))).Probs().RawRowView(0)
		order := make([]int, k)
		for c := range order {
			order[c] = c
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(probs[b], probs[a]) })
		classes = order[:2]
	}
	if len(classes) != 2 || min(classes[0], classes[1]) < 0 || max(classes[0], classes[1]) >= k ||
		classes[0] == classes[1] {
		return nil, fmt.Errorf("pgsvi: EffectOptions.Classes is %v; it must hold two different "+
			"classes from 0 to %d: %w", classes, k-1, ErrParam)
	}
	cov := p.cov.(*gauss.Contrasts)
	var parts [2][]effect.Effect
	for i, c := range classes {
		mean := p.mean[c*d : (c+1)*d]
		parts[i] = effect.Contributions(row, base, features, mean, cov.Of[c])
		e.Base += float64(1-2*i) * p.latentMean(base, mean)
	}
	for j, b := range parts[1] {
		a := &parts[0][j]
		a.Mean, a.SD = a.Mean-b.Mean, math.Hypot(a.SD, b.SD)
	}
	e.factor = "odds"
	e.latent = fmt.Sprintf("log odds of %s against %s", p.className(classes[0]),
		p.className(classes[1]))
	return parts[0], nil
}

// checkFeatures returns an error if a row has another number of columns or is not finite.
func (p *GLMPosterior) checkFeatures(name string, row []float64) error {
	if len(row) != p.Cols() {
		return fmt.Errorf("pgsvi: %s has %d elements, but the model has %d columns: %w",
			name, len(row), p.Cols(), ErrShape)
	}
	if j, ok := dense.AllFinite(row); !ok {
		return fmt.Errorf("pgsvi: %s is %v in column %d (%s): %w",
			name, row[j], j, p.names[j], ErrNotFinite)
	}
	return nil
}

// MarginalEffects returns the average marginal effect of each feature on the response over the rows
// of x, in units of y. For labels −1 and +1 it is the effect on the probability of +1. The effect
// of a feature is the mean over the rows of
//
//	∂E[y|x]/∂x_j,
//
// the change of the expected response per unit of the feature. If a feature is 0 or 1 in all rows,
// the effect is the mean of E[y|x_j = 1] − E[y|x_j = 0], with the other 0/1 features of its column
// (see EffectOptions.Columns) at 0. This compares a level with the reference level. E[y|x] is the
// prediction over the posterior of the weights. Average effects are not necessarily causal.
//
// For a Softmax there are effects on the probability of each class, class by class, in rows with
// the names of the weights, such as "class=0 · x1". The effects of a feature add up to 0. They take
// 2K + 1 expectations of pairs of classes per row, and K³D operations.
//
// SD is the posterior standard deviation √(gᵀVg), where g is the gradient of the effect with
// respect to the weights, averaged over the posterior of each linear predictor. It is accurate if
// the effect is nearly linear over the posterior.
//
// The rows of the result are in the order of the features. The cost is about the cost of a
// prediction of x, plus one pass over x for each 0/1 feature. A nil opt means the zero
// EffectOptions. The error wraps
//   - ErrEmpty if x is nil or has no rows;
//   - ErrShape if a number of columns or a length does not match;
//   - ErrNotFinite if an element is not finite, a row has no expected response, or an effect is too
//     large for a float64. An SD of +Inf is not an error.
//
// Otherwise it is an error of Prediction.Moments. The effects of a posterior that is integrated over
// hyperparameters have the moments of the mixture.
func (p *GLMPosterior) MarginalEffects(x mat.Matrix, opt *EffectOptions) (*Effects, error) {
	all := &Effects{}
	rows, err := p.mixedEffects(func(q *GLMPosterior) ([]Effect, error) {
		e, err := q.marginalEffects(x, cmp.Or(opt, &EffectOptions{}))
		if err != nil {
			return nil, err
		}
		all.Title = e.Title
		return e.Rows, nil
	})
	if err != nil {
		return nil, err
	}
	all.Rows = rows
	return all, nil
}

// mixedEffects returns the effects that f returns for p, or, if p is a mixture, their moments over the
// components.
func (p *GLMPosterior) mixedEffects(f func(q *GLMPosterior) ([]Effect, error)) ([]Effect, error) {
	if p.mixture == nil {
		return f(p)
	}
	prob, parts := p.components()
	var found [][]Effect
	for _, q := range parts {
		rows, err := f(q.(*GLMPosterior))
		if err != nil {
			return nil, err
		}
		found = append(found, rows)
	}
	n := len(found[0])
	mean, square := make([]float64, n), make([]float64, n)
	t, m, v := newTotalMoments(mean, square), make([]float64, n), make([]float64, n)
	for k, rows := range found {
		for j, r := range rows {
			m[j], v[j] = r.Mean, r.SD*r.SD
		}
		t.add(prob[k], m, v)
	}
	t.finish()
	all := make([]Effect, n)
	for j, r := range found[0] {
		all[j] = newEffect(r.Name, effect.Effect{Mean: mean[j], SD: math.Sqrt(square[j])})
	}
	return all, nil
}

// marginalEffects is MarginalEffects for q without a mixture.
func (p *GLMPosterior) marginalEffects(x mat.Matrix, opt *EffectOptions) (*Effects, error) {
	_, features, err := p.columnsOf(opt)
	if err != nil {
		return nil, err
	}
	if latentsOf(p.lik) > 1 {
		return p.classEffects(x, opt, features)
	}
	a, err := p.newAverage(x, opt.Offset)
	if err != nil {
		return nil, err
	}
	found := make([]effect.Effect, p.Cols())
	if err := a.Slopes(found); err != nil {
		return nil, err
	}
	for _, c := range features {
		levels := slices.DeleteFunc(slices.Clone(c), func(j int) bool { return !a.Binary(j) })
		if err := a.Levels(found, levels); err != nil {
			return nil, err
		}
	}
	e := &Effects{}
	for j, r := range found {
		if _, ok := dense.AllFinite([]float64{r.Mean}); !ok {
			return nil, fmt.Errorf("pgsvi: the effect of %s overflows; rescale the feature: %w",
				p.names[j],
				ErrNotFinite)
		}
		e.Rows = append(e.Rows, newEffect(p.names[j], r))
	}
	e.Title = fmt.Sprintf("effect on %s, mean of %d rows", outcomeName(p.lik), len(a.M))
	return e, nil
}

// MeanDifference returns the mean over the rows i of E[y|a_i] − E[y|b_i]. It is the average effect
// of the differences between the rows of a and the rows of b, such as a dose that is larger by 1
// unit or another level of a category (average comparison, g-computation). opt.Offset applies to
// both. The other fields of opt are ignored, and a nil opt means no offset. For labels −1 and +1,
// E[y|x] is the probability of +1.
//
// SD is the posterior standard deviation √(gᵀVg), where g is the gradient of the difference with
// respect to the weights, averaged over the posterior of each linear predictor. The error wraps
// ErrShape if a and b have different numbers of rows or the likelihood is Softmax. Otherwise it is
// an error of MarginalEffects.
func (p *GLMPosterior) MeanDifference(a, b mat.Matrix, opt *EffectOptions) (e Effect, err error) {
	all, err := p.mixedEffects(func(q *GLMPosterior) ([]Effect, error) {
		e, err := q.meanDifference(a, b, cmp.Or(opt, &EffectOptions{}))
		return []Effect{e}, err
	})
	if err != nil {
		return e, err
	}
	return all[0], nil
}

// meanDifference is MeanDifference for q without a mixture.
func (p *GLMPosterior) meanDifference(a, b mat.Matrix, opt *EffectOptions) (e Effect, err error) {
	if latentsOf(p.lik) > 1 {
		return e, fmt.Errorf("pgsvi: MeanDifference does not support Softmax; use "+
			"MarginalEffects: %w",
			ErrShape)
	}
	above, err := p.newAverage(a, opt.Offset)
	if err != nil {
		return e, err
	}
	below, err := p.newAverage(b, opt.Offset)
	if err != nil {
		return e, err
	}
	if len(above.M) != len(below.M) {
		return e, fmt.Errorf("pgsvi: MeanDifference of %d and %d rows; the numbers must be "+
			"equal: %w", len(above.M),
			len(below.M), ErrShape)
	}
	d, err := effect.Difference(above, below)
	if err != nil {
		return e, err
	}
	if _, ok := dense.AllFinite([]float64{d.Mean}); !ok {
		return e, fmt.Errorf("pgsvi: the mean difference overflows; rescale the features: %w",
			ErrNotFinite)
	}
	return newEffect("", d), nil
}

// classEffects is MarginalEffects on the probabilities of classes. features holds the features of
// each column.
func (p *GLMPosterior) classEffects(x mat.Matrix, opt *EffectOptions, features [][]int) (*Effects,
	error) {
	rows, m, v, err := p.effectRows(x, opt.Offset)
	if err != nil {
		return nil, err
	}
	k, cols := latentsOf(p.lik), p.Cols()
	for i := range m {
		if err := checkLatent(m[i], v[i]); err != nil {
			return nil, fmt.Errorf("pgsvi: row %d: %w", i/k, err)
		}
	}
	a := &effect.Classes{X: rows, K: k, Mean: p.mean, Cov: p.cov.(*gauss.Contrasts), M: m, V: v}
	a.Expect = func(m, v, pi, h []float64) {
		expect.SoftmaxCross(m, v, pi, h)
		for i := range h {
			if i/k != i%k {
				h[i] = -h[i]
			}
		}
	}
	binary := effect.BinaryColumns(rows, cols)
	found := make([]effect.Effect, k*cols)
	if slices.Contains(binary, false) {
		a.Slopes(found, binary)
	}
	for _, c := range features {
		a.Levels(found, cols,
			slices.DeleteFunc(slices.Clone(c), func(j int) bool { return !binary[j] }))
	}
	e := &Effects{Title: fmt.Sprintf("effect on P(class), mean of %d rows", rows.Rows)}
	names := p.weightNames()
	for i, r := range found {
		e.Rows = append(e.Rows, newEffect(names[i/cols*rows.Cols+i%cols], r))
	}
	return e, nil
}

// effectRows returns the rows of x over which effects are averaged, and the moments of their latent
// values.
func (p *GLMPosterior) effectRows(x mat.Matrix, offset []float64) (rows *design.Matrix, m,
	v []float64, err error) {
	if err := checkMatrix("x", x); err != nil {
		return nil, nil, nil, err
	}
	n, cols := x.Dims()
	all := n * latentsOf(p.lik)
	switch {
	case n == 0:
		err = fmt.Errorf("pgsvi: x has no rows; average effects need at least one: %w", ErrEmpty)
	case cols != p.Cols():
		err = fmt.Errorf("pgsvi: x has %d columns, but the model has %d: %w",
			cols, p.Cols(), ErrShape)
	case offset != nil && len(offset) != all:
		err = fmt.Errorf("pgsvi: x has %d rows, but EffectOptions.Offset has %d elements; it "+
			"must have %d: %w", n, len(offset), all, ErrShape)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if i, ok := dense.AllFinite(offset); !ok {
		return nil, nil, nil, fmt.Errorf("pgsvi: EffectOptions.Offset[%d] is %v: %w",
			i, offset[i], ErrNotFinite)
	}
	rows = newDesign(x, p.opt.Intercept)
	if err := rows.Check(); err != nil {
		return nil, nil, nil, err
	}
	m, v = latentSlices(all)
	p.latent(m, v, x)
	if offset != nil {
		floats.Add(m, offset)
	}
	return rows, m, v, nil
}

// newAverage returns the rows of x for averages of effects.
func (p *GLMPosterior) newAverage(x mat.Matrix, offset []float64) (*effect.Average, error) {
	rows, m, v, err := p.effectRows(x, offset)
	if err != nil {
		return nil, err
	}
	a := &effect.Average{X: rows, Mean: p.mean, Cov: p.wide(), M: m, V: v,
		Expect: p.expectOutcomes}
	a.Begin(p.Cols())
	return a, nil
}

// expectOutcomes is the Expect of an effect.Average.
func (p *GLMPosterior) expectOutcomes(m, v, value, first, second []float64) error {
	errs := make([]error, len(m))
	parallel.For(len(m), predictBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			var f, s, t float64
			f, s, t, errs[i] = outcomeSlopes(p.lik, m[i], v[i], second != nil)
			if value != nil {
				value[i] = f
			}
			if first != nil {
				first[i] = s
			}
			if second != nil {
				second[i] = t
			}
		}
	})
	var bad failedRows
	for i, err := range errs {
		bad.add(i, err)
	}
	return bad.err()
}

// outcomeSlopes returns the outcome at N(m, v) and its first derivative E[μ′(η)] in m. If second is
// true, it also returns the second derivative E[μ″(η)].
func outcomeSlopes(l Likelihood, m, v float64, second bool) (f, d1, d2 float64, err error) {
	if f, err = outcome(l, m, v); err != nil {
		return 0, 0, 0, err
	}
	switch l.(type) {
	case GaussianNoise, Laplace, StudentT:
		return f, 1, 0, nil
	case Poisson, NegativeBinomial, Gamma, Exponential, ZeroInflated, Weibull, LogNormal:
		return f, f, f, nil
	}
	at := func(m float64) (float64, error) { return outcome(l, m, v) }
	d1, d2, err = effect.Derivatives(at, m, f, second)
	return f, d1, d2, err
}
