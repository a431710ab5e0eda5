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
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/table"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// EffectOptions are the options of GLMPosterior.Explain and GLMPosterior.MarginalEffects. The zero
// value and a nil pointer mean the defaults.
type EffectOptions struct {
	// Columns has, for each feature (each column of x), the name of the data column that it was
	// made of. Features of one data column belong together. Nil means the name of the weight up
	// to its first "=": "plan=gold" and "plan=basic" belong to the column "plan".
	Columns []string
	// Base is the row that Explain compares with, without intercept. Nil means the means of the
	// columns in the fit, weighted by GLMOptions.Weights; Update and Remove keep these. They are
	// unknown for a stream that began without a fit, for a fit of no rows, and in files of
	// earlier versions.
	Base []float64
	// Offset is the offset of each row of MarginalEffects, as GLMOptions.Offset. Nil means 0.
	Offset []float64
}

// Effects are the parts of a prediction (feature contributions), or marginal effects on it. Print
// shows them as a table.
type Effects struct {
	// Rows has a row for each column (Explain) or for each feature (MarginalEffects). They may be
	// sorted, changed or removed before they are printed.
	Rows []Effect
	// Base and Value are the latent means of the base row and of the row explained: the means in
	// Rows add up to Value − Base. Both are 0 for MarginalEffects.
	Base, Value float64

	factor string // what e^Mean multiplies, or ""
	latent string // what Base and Value are
	title  string
}

// Effect is a Mean with its posterior standard deviation.
type Effect struct {
	Name     string
	Mean, SD float64
}

// String returns the table: a line for each of Rows, with the factor e^Mean if the link is a
// logarithm or log odds.
func (e *Effects) String() string {
	var b strings.Builder
	if e.title != "" {
		b.WriteString(e.title + "\n")
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
// attribution), relative to a base row x̄, by default the means of the columns. For the features
// c of a column it is
//
//	(x − x̄)_cᵀ m_c   with standard deviation   √((x − x̄)_cᵀ V_cc (x − x̄)_c).
//
// The contributions add up to the latent mean of the row minus that of the base row. They are
// sorted by size, the largest first. Their scale is that of the linear predictor: log odds for
// BernoulliLogit, Binomial, BetaBinomial and Ordinal, the logarithm of the mean for Poisson,
// NegativeBinomial, Gamma and Exponential, the same less a constant for ZeroInflated, Weibull and
// LogNormal, and units of y for Gaussian noise. An interaction is a column of its own.
//
// The row has Cols elements, without intercept. A nil opt means the zero EffectOptions. The error
// wraps
//   - ErrShape if a length disagrees;
//   - ErrNotFinite if an element is not finite;
//   - ErrParam if there is neither EffectOptions.Base nor means of a fit.
func (p *GLMPosterior) Explain(row []float64, opt *EffectOptions) (*Effects, error) {
	if err := oneLatent(p.lik, "Explain"); err != nil {
		return nil, err
	}
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
		return nil, fmt.Errorf("pgsvi: the posterior knows no means of the columns; "+
			"set EffectOptions.Base to a row to compare with: %w", ErrParam)
	}
	if err := p.checkFeatures("the row", row); err != nil {
		return nil, err
	}
	if err := p.checkFeatures("EffectOptions.Base", base); err != nil {
		return nil, err
	}
	e := &Effects{Base: floats.Dot(base, p.mean[:p.Cols()]), latent: "latent value"}
	if p.opt.Intercept {
		e.Base += p.mean[p.Cols()]
	}
	e.Value = e.Base
	parts := &design.Rows{Cols: p.Dim(), Ptr: []int{0}}
	for c, name := range names {
		r := Effect{Name: name}
		for _, j := range features[c] {
			d := row[j] - base[j]
			r.Mean += d * p.mean[j]
			parts.Ind, parts.Val = append(parts.Ind, int32(j)), append(parts.Val, d)
		}
		parts.Ptr = append(parts.Ptr, len(parts.Ind))
		e.Rows = append(e.Rows, r)
		e.Value += r.Mean
	}
	v := make([]float64, len(names))
	p.cov.Variances(v, &design.Matrix{Rows: len(names), Cols: p.Dim(), Sparse: parts}, nil)
	for c := range e.Rows {
		e.Rows[c].SD = math.Sqrt(math.Max(0, v[c]))
	}
	slices.SortStableFunc(e.Rows, func(a, b Effect) int {
		return cmp.Compare(math.Abs(b.Mean), math.Abs(a.Mean))
	})
	switch p.lik.(type) {
	case BernoulliLogit, Binomial, Ordinal, BetaBinomial:
		e.factor, e.latent = "odds", "log odds"
	case Poisson, NegativeBinomial, Gamma, Exponential:
		e.factor, e.latent = "mean", "log mean"
	case ZeroInflated, Weibull, LogNormal: // whose mean is e^η times a constant
		e.factor, e.latent = "mean", "log scale"
	}
	return e, nil
}

// checkFeatures returns an error if a row has another number of columns or is not finite.
func (p *GLMPosterior) checkFeatures(name string, row []float64) error {
	if len(row) != p.Cols() {
		return fmt.Errorf("pgsvi: %s has %d elements, the model %d columns: %w",
			name, len(row), p.Cols(), ErrShape)
	}
	if j, ok := dense.AllFinite(row); !ok {
		return fmt.Errorf("pgsvi: %s has %v in column %d (%s): %w",
			name, row[j], j, p.names[j], ErrNotFinite)
	}
	return nil
}

// MarginalEffects returns the average marginal effect of each feature on the response over the
// rows of x, in units of y. For labels −1 and +1 it is the effect on the probability of +1. For a
// feature it is the mean over the rows of
//
//	∂E[y|x]/∂x_j,
//
// the change of the expected response per unit of the feature. For a feature that is 0 or 1 in
// all rows it is the mean of E[y|x_j = 1] − E[y|x_j = 0], with the other 0/1 features of its
// column (see EffectOptions.Columns) at 0: a level against the reference. E[y|x] is that of the
// prediction, over the posterior of the weights. Average effects are not causal by themselves.
//
// SD is the posterior standard deviation √(gᵀVg), where g is the gradient of the effect by the
// weights, averaged over the posterior of each linear predictor. It is accurate if the effect is
// nearly linear over the posterior.
//
// The rows of the result are in the order of the features. The work is about that of a prediction
// of x, and a pass over x for each 0/1 feature. A nil opt means the zero EffectOptions. The error
// wraps
//   - ErrEmpty if x is nil or has no rows;
//   - ErrShape if a number of columns or a length disagrees;
//   - ErrNotFinite if an element is not finite or a row has no expected response.
//
// Otherwise it is as for Prediction.Moments.
func (p *GLMPosterior) MarginalEffects(x mat.Matrix, opt *EffectOptions) (*Effects, error) {
	if err := oneLatent(p.lik, "MarginalEffects"); err != nil {
		return nil, err
	}
	opt = cmp.Or(opt, &EffectOptions{})
	_, features, err := p.columnsOf(opt)
	if err != nil {
		return nil, err
	}
	a, err := p.newAverage(x, opt.Offset)
	if err != nil {
		return nil, err
	}
	e := &Effects{Rows: make([]Effect, p.Cols())}
	for j := range e.Rows {
		e.Rows[j].Name = p.names[j]
	}
	if err := a.slopes(e.Rows); err != nil {
		return nil, err
	}
	for _, c := range features {
		levels := slices.DeleteFunc(slices.Clone(c), func(j int) bool { return !a.binary[j] })
		if err := a.levels(e.Rows, levels); err != nil {
			return nil, err
		}
	}
	e.title = fmt.Sprintf("effect on %s, mean of %d rows", outcomeName(p.lik), len(a.m))
	return e, nil
}

// average are rows over which effects are averaged.
type average struct {
	p      *GLMPosterior
	x      *design.Matrix
	m, v   []float64 // of the latent values
	binary []bool    // of each feature: 0 or 1 in all rows
	diag   []float64 // of V
}

func (p *GLMPosterior) newAverage(x mat.Matrix, offset []float64) (*average, error) {
	if err := checkMatrix("x", x); err != nil {
		return nil, err
	}
	n, cols := x.Dims()
	switch {
	case n == 0:
		return nil, fmt.Errorf("pgsvi: effects over no rows: %w", ErrEmpty)
	case cols != p.Cols():
		return nil, fmt.Errorf("pgsvi: x has %d columns, the model has %d: %w", cols, p.Cols(), ErrShape)
	case offset != nil && len(offset) != n:
		return nil, fmt.Errorf("pgsvi: x has %d rows, EffectOptions.Offset has %d elements: %w",
			n, len(offset), ErrShape)
	}
	if i, ok := dense.AllFinite(offset); !ok {
		return nil, fmt.Errorf("pgsvi: EffectOptions.Offset[%d] is %v: %w", i, offset[i], ErrNotFinite)
	}
	a := &average{p: p, x: newDesign(x, p.opt.Intercept)}
	if err := a.x.Check(); err != nil {
		return nil, err
	}
	a.m, a.v = latentSlices(n)
	p.latent(a.m, a.v, x)
	if offset != nil {
		floats.Add(a.m, offset)
	}
	a.diag = make([]float64, p.Dim())
	p.cov.Diag(a.diag)
	a.binary = make([]bool, cols)
	for j := range a.binary {
		a.binary[j] = true
	}
	for i := range n {
		ind, val := a.x.Row(i)
		for k, v := range val {
			j := k
			if ind != nil {
				j = int(ind[k])
			}
			if v != 0 && v != 1 && j < cols {
				a.binary[j] = false
			}
		}
	}
	return a, nil
}

// slopes stores the effects of the features that are not binary. With η_i ~ N(m_i, v_i), s = mean
// of E[μ′(η_i)] and u = mean of E[μ″(η_i)] x_i, that of feature j is s m_j + (Vu)_j, and its
// gradient in the weights m_j u + s e_j.
func (a *average) slopes(rows []Effect) error {
	if !slices.Contains(a.binary, false) {
		return nil
	}
	n, d := len(a.m), a.p.Dim()
	first, second := make([]float64, n), make([]float64, n)
	if err := a.expect(a.m, a.v, nil, first, second); err != nil {
		return err
	}
	s := floats.Sum(first) / float64(n)
	floats.Scale(1/float64(n), second)
	u, vu := make([]float64, d), make([]float64, d)
	a.x.AddMulT(u, second, nil)
	a.p.cov.Mul(vu, u)
	square := floats.Dot(u, vu)
	for j := range rows {
		if m := a.p.mean[j]; !a.binary[j] {
			rows[j].Mean = s*m + vu[j]
			rows[j].SD = math.Sqrt(math.Max(0, m*m*square+2*m*s*vu[j]+s*s*a.diag[j]))
		}
	}
	return nil
}

// levels stores the effects of the binary features of a column. Row i without them is x0_i, with
// latent moments of it less those that are 1, and x0_i + e_j is that of level j. The gradient in
// the weights is the mean of E[μ′] at the level times x0_i + e_j, less E[μ′] at x0_i times x0_i.
func (a *average) levels(rows []Effect, levels []int) error {
	if len(levels) == 0 {
		return nil
	}
	p, n, d := a.p, len(a.m), a.p.Dim()
	// Ve_j and x_iᵀVe_j
	cov, cross := make([][]float64, len(levels)), make([][]float64, len(levels))
	value := make([][]float64, len(levels)) // x_ij
	unit := make([]float64, d)
	for k, j := range levels {
		cov[k], cross[k], value[k] = make([]float64, d), make([]float64, n), make([]float64, n)
		unit[j] = 1
		p.cov.Mul(cov[k], unit)
		a.x.Mul(cross[k], cov[k], nil)
		a.x.Mul(value[k], unit, nil)
		unit[j] = 0
	}
	m0, v0 := slices.Clone(a.m), slices.Clone(a.v)
	for i := range n {
		for k := range levels {
			if value[k][i] == 0 {
				continue
			}
			m0[i] -= p.mean[levels[k]]
			v0[i] -= 2 * cross[k][i]
			for l := range levels {
				v0[i] += value[l][i] * cov[k][levels[l]]
			}
		}
		v0[i] = math.Max(0, v0[i])
	}
	f0, s0 := make([]float64, n), make([]float64, n)
	if err := a.expect(m0, v0, f0, s0, nil); err != nil {
		return err
	}
	m1, v1, f1, s1 := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	g, vg := make([]float64, d), make([]float64, d)
	for k, j := range levels {
		for i := range n {
			c := cross[k][i]
			for l := range levels {
				c -= value[l][i] * cov[k][levels[l]]
			}
			m1[i], v1[i] = m0[i]+p.mean[j], math.Max(0, v0[i]+2*c+cov[k][j])
		}
		if err := a.expect(m1, v1, f1, s1, nil); err != nil {
			return err
		}
		rows[j].Mean = (floats.Sum(f1) - floats.Sum(f0)) / float64(n)
		up := floats.Sum(s1) / float64(n)
		floats.Sub(s1, s0)
		floats.Scale(1/float64(n), s1)
		clear(g)
		a.x.AddMulT(g, s1, nil)
		for _, l := range levels {
			g[l] = 0
		}
		g[j] = up
		p.cov.Mul(vg, g)
		rows[j].SD = math.Sqrt(math.Max(0, floats.Dot(g, vg)))
	}
	return nil
}

// expect stores E[μ(η)], E[μ′(η)] and E[μ″(η)] for each η ~ N(m, v), but for nil slices.
func (a *average) expect(m, v, value, first, second []float64) error {
	errs := make([]error, len(m))
	parallel.For(len(m), predictBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			var f, s, t float64
			f, s, t, errs[i] = outcomeSlopes(a.p.lik, m[i], v[i], second != nil)
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

// outcomeName says what outcome is of.
func outcomeName(l Likelihood) string {
	if factsOf(l).Support == SignLabels {
		return "P(y = +1)"
	}
	return "E[y]"
}

// outcome returns E[μ(η)] for η ~ N(m, v), μ being the expected response, or P(+1) of labels.
func outcome(l Likelihood, m, v float64) (float64, error) {
	mean, _, err := predictiveMoments(l, m, v)
	if factsOf(l).Support == SignLabels {
		mean = (1 + mean) / 2
	}
	return mean, err
}

// outcomeStep is that of the differences of an outcome in m, in units of η: fourth-order
// differences have an error of about 1e-10 for links of unit scale, and rounding one of 1e-12.
const outcomeStep = 0.01

// outcomeSlopes returns the outcome at N(m, v) and its first and, if wanted, second derivative in
// m, which are E[μ′(η)] and E[μ″(η)].
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
	var at [4]float64 // at −2, −1, 1 and 2 steps
	for k, step := range [4]float64{-2, -1, 1, 2} {
		if at[k], err = outcome(l, m+step*outcomeStep, v); err != nil {
			return 0, 0, 0, err
		}
	}
	d1 = (8*(at[2]-at[1]) - (at[3] - at[0])) / (12 * outcomeStep)
	if second {
		d2 = (16*(at[1]+at[2]) - at[0] - at[3] - 30*f) / (12 * outcomeStep * outcomeStep)
	}
	return f, d1, d2, nil
}
