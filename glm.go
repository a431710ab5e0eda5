package pgsvi

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pgsvi/pgsvi/internal/cubature"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// GLM is a Bayesian generalized linear model: linear, logistic, Poisson and other regression. The
// responses are y_n ~ p(y_n|η_n) with linear predictors η_n = o_n + x_nᵀw and weights w ~ N(μ0,
// Λ0⁻¹). The posterior is approximated by the q(w) = N(m, V) that maximizes the ELBO, in nats,
//
//	Σ_n w_n E_q[log p(y_n|η_n)] − KL(q‖N(μ0, Λ0⁻¹)).
//
// A GLM is a Model. It is immutable and safe for concurrent use.
type GLM struct {
	lin   site.LinearModel
	opt   GLMOptions
	means []float64 // weighted means of the columns of x; nil if unknown
	// rows is set if the rows are not kept. Then lin is the model of a sample of them.
	rows      *glmRows
	variances []float64 // variances of the columns; nil means the columns of lin
	// offset is o_n as given. The offsets of the terms include the prior mean.
	offset []float64
	groups []groupInfo // one for each of GLMOptions.Groups
}

// GLMOptions holds the options of a GLM. The zero value and a nil pointer mean no intercept, the
// prior N(0, I), and the most general covariance that is affordable (AutoCovariance).
type GLMOptions struct {
	// Intercept adds a weight whose feature is 1 in every row. It is the last weight.
	Intercept bool
	// PriorSD is the prior standard deviation of each weight, in units of η per unit of the
	// feature. The prior mean is 0. Zero means 1. Set Autoscale unless all columns share a unit.
	PriorSD float64
	// InterceptSD is the prior standard deviation of the intercept. Zero means 10. Set it if real
	// responses are far from 0, such as prices. The prior mean is 0. It is the mean of the
	// responses if that exceeds 1,000 of their standard deviations, but not a fifth of InterceptSD.
	InterceptSD float64
	// Autoscale divides PriorSD by the standard deviation of each column of x, so that the units of
	// the features do not matter. Constant columns keep PriorSD. Streams do not support Autoscale.
	Autoscale bool
	// Prior is a prior over all weights, with the intercept last. It replaces PriorSD, InterceptSD
	// and Autoscale. Nil means these options. The Prior of a Softmax must be diagonal. It is the
	// prior of each class or, with mean 0, of the weights of all classes, one class after the
	// other.
	Prior *Gaussian
	// Learn makes Fit learn PriorSD and the parameters of the likelihood (hyperparameters) with
	// these options, unless it is nil. GLM.Learn does the same and also returns the GLM with the
	// learned values. The Result of Fit is then Learned.Fit, or Learned.Search if the search did
	// not end. Streams support Learn only for the noise of mixed models; see NewGLMStream.
	Learn *LearnOptions
	// Blocks groups the columns of x that share a prior standard deviation when it is learned.
	// Column j belongs to block Blocks[j], and blocks are numbered from 0 without gaps. Nil means
	// one block. The blocks 0, 1, 2, … give each column its own standard deviation, which is
	// automatic relevance determination (ARD). For a Softmax, Blocks has one element per column,
	// which holds in every class, or one per column of each class, class by class. For example, 0,
	// 0, 1, 1, 2, 2 is one standard deviation for each of three classes.
	Blocks []int
	// Groups lists the grouping factors of a mixed model, whose effects are columns of x. PriorSD,
	// Autoscale, Prior and Blocks do not apply to these columns. Fit learns the covariances of the
	// effects unless they are fixed. Only the full covariance supports Groups. NewGLMStream and
	// NewGLMRows describe the limits for rows that are not kept in memory.
	Groups []Group
	// Offset is o_n for each row. Nil means 0. For counts with an exposure it is the logarithm of
	// the exposure. For a Softmax it has one element per class of each row, row by row.
	Offset []float64
	// Weights multiply the log-likelihoods of the rows. Nil means 1. A row of weight 0 is ignored.
	// For aggregated data with k successes in n trials, use a row with y = +1 and weight k, and a
	// row with y = −1 and weight n − k.
	Weights []float64
	// Names holds the names of the columns of x. Nil means x1, x2, …
	Names []string
	// ClassNames holds the names of the classes of a Softmax, which are part of the names of the
	// weights. Nil means 0, 1, …
	ClassNames []string
	// Covariance is the family of V: full, low-rank or diagonal. Zero means AutoCovariance.
	Covariance Covariance
	// Rank is the rank of a LowRankCovariance. Zero means 20. With a zero Solver.Goal, a low-rank
	// fit ends at a Gap of 1e-6 nats per row. Its GapBound is over all covariances. It is +Inf if
	// its proof needs more than 1e11 multiplications, which is the smaller of N³/3 and D³/3.
	Rank int
	// Estimator estimates the gradients of steps with a given Solver.StepSize. Nil means Exact.
	// Steps of a nil Solver are always exact. See GPOptions.Estimator for the safeguards of noisy
	// steps.
	Estimator SiteEstimator
	// Coordinates are the coordinates of steps with a given Solver.StepSize: MeanParams, the zero
	// value, or MeanCov. See GPOptions.Coordinates.
	Coordinates Coordinates
	// MaxMemory is the number of bytes that the model may use. It needs the rows, about 300 D
	// bytes, and for the covariance 180 D² if it is full with more rows than weights, 64 N² if it
	// is full with fewer rows, or 220 D·Rank if it is low-rank. A GapBound for low rank takes up to
	// 48 N² or 48 D² more, and is +Inf if that is too much. Zero means the limit described at
	// ErrMemory.
	MaxMemory int64
}

// posteriorMatrices is the number of D×D matrices needed to convert the posterior of a dual into
// the primal form.
const posteriorMatrices = 4

// checkMemory returns an error if the model exceeds the memory limit. It has n rows, which take the
// given number of bytes, d weights, and the given family of covariance.
func (o *GLMOptions) checkMemory(rows float64, n, d int, family Covariance) error {
	if o.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: GLMOptions.MaxMemory is %d; it must not be negative: %w",
			o.MaxMemory, ErrParam)
	}
	if len(o.Groups) > 0 {
		return groupMemory(o.Groups, o.MaxMemory, rows, n, d)
	}
	need := rows + memory.Bytes(site.WeightVectors, 1, d)
	instead := "renumber or hash the features to fewer columns"
	switch {
	case family == LowRankCovariance:
		need += memory.Bytes(site.LowRankMatrices, d, min(d, cmp.Or(o.Rank, defaultRank)))
		instead = "use a smaller GLMOptions.Rank or DiagonalCovariance"
	case family == FullCovariance && n <= d:
		need += memory.Bytes(site.DenseMatrices, n, n)
		if d <= site.PrimalWeights {
			need += memory.Bytes(posteriorMatrices, d, d)
		}
		instead = "use DiagonalCovariance or LowRankCovariance"
	case family == FullCovariance:
		need += memory.Bytes(site.WeightMatrices, d, d)
		instead = "use DiagonalCovariance or LowRankCovariance"
	}
	return checkMemory(o.MaxMemory, need,
		fmt.Sprintf("a GLM of %d rows and %d weights with a %v covariance", n, d, family),
		instead+", or raise GLMOptions.MaxMemory")
}

// Limits of AutoCovariance. A full covariance at the first limit has 128 MB, and so has a low-rank
// covariance of the default rank at the second.
const (
	fullLimit    = 4000
	lowRankLimit = 100000
)

// NewGLM returns the model of responses y at the rows of x under the likelihood lik. It copies the
// data, except that it shares the present rows of a *Sparse, which Append does not change. A nil
// lik means GaussianNoise{}, and a nil opt means the zero GLMOptions. Without rows the posterior is
// the prior.
//
// The error names the index of the row. It wraps
//   - ErrEmpty if there is no weight or x is nil or a nil pointer;
//   - ErrShape if lengths disagree;
//   - ErrNotFinite if a value is NaN or infinite;
//   - ErrLabel if a response is outside the support of lik;
//   - ErrNotPosDef if the prior precision is not positive definite to rounding;
//   - ErrParam if an option or a parameter of lik is out of range;
//   - ErrMemory if the rows or columns exceed GLMOptions.MaxMemory with this covariance.
func NewGLM(x mat.Matrix, y []float64, lik Likelihood, opt *GLMOptions) (*GLM, error) {
	if absent(x) {
		return nil, fmt.Errorf("pgsvi: x is a nil matrix; for no rows use NewSparse(columns): %w",
			ErrEmpty)
	}
	g, err := newGLM(lik, slices.Clone(y), opt)
	if err != nil {
		return nil, err
	}
	classes := g.lin.Terms.Latents()
	if err := g.checkClasses(); err != nil {
		return nil, err
	}
	n, cols := x.Dims()
	if n != len(y) {
		return nil, fmt.Errorf("pgsvi: x has %d rows, but y has %d responses: %w", n, len(y),
			ErrShape)
	}
	for _, v := range []struct {
		name string
		x    []float64
		per  int
	}{{"Offset", g.opt.Offset, classes}, {"Weights", g.opt.Weights, 1}} {
		if v.x != nil && len(v.x) != n*v.per {
			each := ""
			if v.per > 1 {
				each = fmt.Sprintf("; it needs one for each of %d classes of each row",
					v.per)
			}
			return nil, fmt.Errorf("pgsvi: x has %d rows, but GLMOptions.%s has %d elements%s: %w",
				n, v.name, len(v.x), each, ErrShape)
		}
		if i, ok := dense.AllFinite(v.x); !ok {
			return nil, fmt.Errorf("pgsvi: GLMOptions.%s[%d] is %v: %w", v.name, i, v.x[i],
				ErrNotFinite)
		}
	}
	for i, w := range g.opt.Weights {
		if w < 0 {
			return nil, fmt.Errorf("pgsvi: GLMOptions.Weights[%d] is %v; it must not be negative: "+
				"%w", i, w, ErrParam)
		}
	}
	g.opt.Groups, err = checkGroups(g.opt.Groups, cols, g.opt.Covariance, g.opt.Prior)
	if err == nil {
		err = g.opt.checkClassGroups(cols, classes)
	}
	if err != nil {
		return nil, err
	}
	d := cols + design.B2i(g.opt.Intercept)
	rows := 0.0 // bytes; the rows of a Sparse are shared
	if _, sparse := x.(*Sparse); !sparse {
		rows = memory.Bytes(1, n, d)
	}
	if classes > 1 {
		if err := g.checkClassMemory(rows, n, d); err != nil {
			return nil, err
		}
	} else if err := g.opt.checkMemory(rows, n, d, g.opt.family(n, d)); err != nil {
		return nil, err
	}
	g.lin.MaxMemory = g.opt.MaxMemory
	if s, ok := x.(*Sparse); ok {
		atomic.StoreUint32(&s.shared, 1)
	}
	g.lin.X = newDesign(x, g.opt.Intercept)
	if err := g.lin.X.Check(); err != nil {
		return nil, err
	}
	if err := g.setNames(cols); err != nil {
		return nil, err
	}
	if err := g.opt.checkBlocks(cols, classes); err != nil {
		return nil, err
	}
	g.opt.Blocks = slices.Clone(g.opt.Blocks)
	g.lin.Terms.Offset, g.lin.Terms.Weight = slices.Clone(g.opt.Offset), slices.Clone(g.opt.Weights)
	g.opt.Offset, g.opt.Weights = nil, nil
	g.dropWeightless()
	if err := g.setPrior(); err != nil {
		return nil, err
	}
	if g.groups, err = setGroups(g.opt.Groups, &g.lin); err != nil {
		return nil, err
	}
	if classes == 1 { // with several classes only differences from the mean over all classes count
		g.offset = g.lin.Terms.Offset
		g.lin.AddPriorMean()
	}
	g.setMeans(cols)
	return g, nil
}

// setMeans sets the means of the first cols columns. Without rows there are no means.
func (g *GLM) setMeans(cols int) {
	n := g.Len()
	if n == 0 {
		return
	}
	g.means = g.lin.X.Means(g.lin.Terms.Weight)
	g.means = g.means[:cols:cols]
}

// ofEach returns the words that follow the number of weights or columns in a message about K
// classes.
func ofEach(classes int) string {
	if classes > 1 {
		return fmt.Sprintf(", or that number for each of %d classes", classes)
	}
	return ""
}

// checkBlocks returns an error if Blocks does not fit the columns, or the columns of each class, or
// has gaps.
func (o *GLMOptions) checkBlocks(cols, classes int) error {
	if o.Blocks == nil {
		return nil
	}
	if n := len(o.Blocks); n != cols && n != classes*cols {
		return fmt.Errorf("pgsvi: GLMOptions.Blocks has %d elements; it needs one per column, "+
			"%d%s: %w", n, cols, ofEach(classes), ErrShape)
	}
	cols = len(o.Blocks)
	seen := make([]bool, cols)
	for j, b := range o.Blocks {
		if b < 0 || b >= cols {
			return fmt.Errorf("pgsvi: GLMOptions.Blocks[%d] is %d; it must be 0 to %d: %w", j, b,
				cols-1, ErrParam)
		}
		seen[b] = true
	}
	for b := range slices.Max(append([]int{0}, o.Blocks...)) {
		if !seen[b] {
			return fmt.Errorf(
				"pgsvi: GLMOptions.Blocks has no column in block %d; number them without gaps: %w",
				b, ErrParam)
		}
	}
	return nil
}

// newGLM returns a GLM without rows, and keeps the responses y. It checks the options that do not
// depend on the rows.
func newGLM(lik Likelihood, y []float64, opt *GLMOptions) (*GLM, error) {
	terms, err := newSiteTerms(lik, y)
	g := &GLM{lin: site.LinearModel{Terms: terms}}
	if opt != nil {
		g.opt = *opt
	}
	o := &g.opt
	errs := []error{err}
	positive := func(name string, x float64) {
		if !(x >= 0) || math.IsInf(x, 0) {
			errs = append(errs, fmt.Errorf("pgsvi: GLMOptions.%s is %v; it must be finite and not "+
				"negative: %w", name, x, ErrParam))
		}
	}
	positive("PriorSD", o.PriorSD)
	positive("InterceptSD", o.InterceptSD)
	positive("Rank", float64(o.Rank))
	if o.Covariance < AutoCovariance || o.Covariance > DiagonalCovariance {
		errs = append(errs, fmt.Errorf("pgsvi: GLMOptions.Covariance is %d; it must be a "+
			"Covariance: %w", o.Covariance, ErrParam))
	}
	return g, errors.Join(append(errs, checkStepCoordinates("GLMOptions", o.Coordinates))...)
}

// setNames sets the names of the weights of cols features and the intercept.
func (g *GLM) setNames(cols int) error {
	if cols+design.B2i(g.opt.Intercept) == 0 {
		return fmt.Errorf("pgsvi: the GLM has no weights; give a column or set Intercept: %w",
			ErrEmpty)
	}
	names := slices.Clone(g.opt.Names)
	if names == nil {
		names = make([]string, cols)
		for j := range names {
			names[j] = fmt.Sprintf("x%d", j+1)
		}
	}
	if len(names) != cols {
		return fmt.Errorf("pgsvi: x has %d columns, but GLMOptions.Names has %d: %w", cols,
			len(names), ErrShape)
	}
	if g.opt.Intercept {
		names = append(names, interceptName)
	}
	g.lin.Names = names
	return nil
}

// setPrior sets the prior of the options. Only Autoscale uses g.x.
func (g *GLM) setPrior() error {
	d, o := len(g.lin.Names), &g.opt
	p := &g.lin.Prior
	q := o.Prior
	k := g.lin.Terms.Latents()
	if q != nil && q.Dim() != d && q.Dim() != k*d {
		return fmt.Errorf("pgsvi: GLMOptions.Prior has %d dimensions; it needs one per weight, "+
			"%d%s: %w", q.Dim(), d, ofEach(k), ErrShape)
	}
	switch {
	case q != nil && q.Dim() > d:
		if j := slices.IndexFunc(q.Mean(nil), func(m float64) bool { return m != 0 }); j >= 0 {
			return fmt.Errorf("pgsvi: GLMOptions.Prior over all classes has the mean %v in weight "+
				"%d; use mean 0 and GLMOptions.Offset: %w", q.Mean(nil)[j], j, ErrParam)
		}
		p.Each = q.Var(nil)
		for j, v := range p.Each {
			p.Each[j] = 1 / v
		}
		p.Mean, p.Prec = make([]float64, d), p.Each[:d:d]
	case q != nil && q.isDiagonal():
		p.Mean, p.Prec = q.Mean(nil), q.Var(nil)
		for j, v := range p.Prec {
			p.Prec[j] = 1 / v
		}
	case q != nil:
		p.Mean, p.Full = q.Mean(nil), &gauss.Gaussian{}
		p.Full.Resize(d)
		prec := q.precisionMatrix()
		for i := range d {
			for j := range i + 1 {
				p.Full.P[i*d+j] = prec.At(i, j)
			}
		}
		if !p.Full.Factor() {
			return fmt.Errorf("pgsvi: the precision of the prior: %w", ErrNotPosDef)
		}
	default:
		sd, intercept := cmp.Or(o.PriorSD, 1), cmp.Or(o.InterceptSD, defaultInterceptSD)
		p.Mean, p.Prec = make([]float64, d), make([]float64, d)
		for j := range p.Prec {
			p.Prec[j] = 1 / (sd * sd)
		}
		if o.Autoscale {
			variances := g.variances
			if variances == nil {
				variances = g.lin.X.ColumnVariances(nil)
			}
			for j, v := range variances {
				if v > 0 {
					p.Prec[j] *= v
				}
			}
		}
		if o.Intercept {
			p.Prec[d-1] = 1 / (intercept * intercept)
			p.Mean[d-1] = g.interceptMean(intercept)
		}
	}
	for j, l := range slices.Concat(p.Prec, p.Each) {
		if !(l > 0) || math.IsInf(l, 0) {
			return fmt.Errorf(
				"pgsvi: the prior precision of weight %d (%s) is %v; change PriorSD or, with "+
					"Autoscale, rescale the column: %w", j%d, g.lin.Names[j%d], l, ErrNotPosDef)
		}
	}
	return nil
}

// Responses are large if their mean exceeds largeResponse standard deviations. Sums of their squares
// then lose so many digits that differences of the ELBO are inaccurate.
const largeResponse = 1000

// interceptMean returns the prior mean of the intercept if its prior standard deviation is sd: the
// mean of the responses if they are large and if the prior N(0, sd²) is nearly flat up to there, and
// 0 otherwise. The two priors then differ by less than 0.02 nats, and fits work with the distances
// from the mean.
func (g *GLM) interceptMean(sd float64) float64 {
	if g.lin.Terms == nil || g.lin.Terms.Len() == 0 { // a stream
		return 0
	}
	mean, spread := meanResponse(g.lin.Terms)
	if far := math.Abs(mean); spread > 0 && far > largeResponse*spread && sd >= 5*far &&
		!math.IsInf(far, 0) {
		return mean
	}
	return 0
}

// dropWeightless removes the rows with weight 0.
func (g *GLM) dropWeightless() {
	t := g.lin.Terms
	if t.Weight == nil {
		return
	}
	var keep []int
	for i, w := range t.Weight {
		if w > 0 {
			keep = append(keep, i)
		}
	}
	if len(keep) == len(t.Weight) {
		return
	}
	g.lin.X = g.lin.X.Sub(keep)
	rows := t.Len()
	for _, s := range []*[]float64{&t.Y, &t.Offset, &t.Weight} {
		if *s == nil {
			continue
		}
		per := len(*s) / rows
		for k, i := range keep {
			copy((*s)[k*per:(k+1)*per], (*s)[i*per:(i+1)*per])
		}
		*s = (*s)[:len(keep)*per]
	}
	t.Row = keep
}

// Len returns N, the number of rows with positive weight.
func (g *GLM) Len() int {
	if g.rows != nil {
		return g.rows.n
	}
	return g.lin.X.Rows
}

// dim returns D, the number of weights, including the intercept.
func (g *GLM) dim() int { return len(g.lin.Names) }

// covariance returns the family of V. It resolves AutoCovariance.
func (g *GLM) covariance() Covariance {
	if g.lin.Terms.K > 1 {
		return FullCovariance
	}
	return g.opt.family(g.Len(), g.dim())
}

// family returns the family of V for n rows and d weights.
func (o *GLMOptions) family(n, d int) Covariance {
	switch {
	case o.Covariance != AutoCovariance:
		return o.Covariance
	case len(o.Groups) > 0:
		return FullCovariance
	case min(n, d) <= fullLimit:
		return FullCovariance
	case d <= lowRankLimit:
		return LowRankCovariance
	}
	return DiagonalCovariance
}

// defaultRank is the rank of a zero GLMOptions.Rank.
const defaultRank = 20

// rank returns the rank of a LowRankCovariance.
func (g *GLM) rank() int { return cmp.Or(g.opt.Rank, defaultRank) }

// unitsApart is the largest ratio, without a warning, of the standard deviation of one column to
// the largest distance of another from its mean. The ratio is below 1 for columns with one unit,
// for standardized columns with rare or far values, and for binary columns. If about unitsRows rows
// exceed it, all rows are checked.
const (
	unitsApart = 30
	unitsRows  = 1000
)

// warnings implements warner.
func (g *GLM) warnings() []string {
	kept := g.keptCovariances()
	if g.opt.Prior != nil || g.Len() == 0 {
		return kept
	}
	return slices.Concat(g.farIntercept(), g.farUnits(), kept)
}

// defaultInterceptSD is the prior standard deviation of an intercept without InterceptSD.
const defaultInterceptSD = 10.

// farIntercept returns a warning if the prior of the intercept excludes the mean of the responses.
func (g *GLM) farIntercept() []string {
	if !g.opt.Intercept || g.lin.Terms == nil || g.lin.Terms.Len() < farRows {
		return nil
	}
	mean, sd := meanResponse(g.lin.Terms)
	far, prior := math.Abs(mean), cmp.Or(g.opt.InterceptSD, defaultInterceptSD)
	if !(far > farPrior*math.Hypot(prior, sd/math.Sqrt(float64(g.Len())))) {
		return nil
	}
	return []string{fmt.Sprintf("the responses have mean %.4g, but the prior of the intercept is "+
		"0 ± %.3g: set GLMOptions.InterceptSD, to %.3g for example, or subtract the mean",
		mean, prior, 10*far)}
}

// farUnits returns a warning if columns with one PriorSD have very different units.
func (g *GLM) farUnits() []string {
	cols := g.dim() - design.B2i(g.opt.Intercept)
	if g.opt.Autoscale || g.opt.Blocks != nil || cols < 2 {
		return nil
	}
	every := max(1, g.lin.X.Rows/unitsRows)
	// No standard deviation exceeds the widest range, and the largest distance of a column from its
	// mean is at least half of its range.
	wide, narrow := 0.0, math.Inf(1)
	lo, hi := g.lin.X.Ranges(every)
	grouped := groupedOf(g.opt.Groups, g.dim())
	for j, x := range lo[:cols] {
		if r := hi[j] - x; r > 0 && !grouped[j] {
			wide, narrow = max(wide, r), min(narrow, r)
		}
	}
	if wide <= unitsApart*narrow/2 {
		return nil
	}
	if every > 1 {
		var some []int
		for i := 0; i < g.lin.X.Rows; i += every {
			some = append(some, i)
		}
		if len(g.unitsOf(g.lin.X.Sub(some), cols)) == 0 {
			return nil
		}
	}
	return g.unitsOf(g.lin.X, cols)
}

// unitsOf returns a warning about the units of the first cols columns of x.
func (g *GLM) unitsOf(x *design.Matrix, cols int) []string {
	variance, reach := x.ColumnSpreads(nil)
	wide, narrow := 0, -1
	grouped := groupedOf(g.opt.Groups, g.dim())
	for j, v := range variance[:cols] {
		if grouped[j] {
			variance[j] = 0
			continue
		}
		if v > variance[wide] {
			wide = j
		}
		if v > 0 && (narrow < 0 || reach[j] < reach[narrow]) {
			narrow = j
		}
	}
	sd := math.Sqrt(variance[wide])
	if narrow < 0 || !(sd > unitsApart*reach[narrow]) {
		return nil
	}
	return []string{fmt.Sprintf("columns %s and %s have very different units but one PriorSD: "+
		"the standard deviation of the first is %.3g, and the second is never more than %.3g "+
		"from its mean; set GLMOptions{Autoscale: true}",
		g.lin.Names[wide], g.lin.Names[narrow], sd, reach[narrow])}
}

// GLMPosterior is the approximate posterior q(w) = N(m, V) of the weights of a GLM, for
// predictions. It is immutable and safe for concurrent use. GLM.PSIS checks the quality of the
// approximation, and GLM.LOO is leave-one-out cross-validation.
//
// The weights of a Softmax are the weights of its K classes, one class after the other, minus their
// mean over all classes. They are the log odds of the class against the average of all classes,
// because only differences count.
//
// After Learn, the covariance of the weights is V + JΣJᵀ in SD, Cov, Contrast, RandWeights, At and
// the effects. Here J is the derivative of m with respect to the hyperparameters θ, and Σ is the
// covariance of θ by the Laplace approximation of Learned. This is the first-order approximation of
// Kass and Steffey (1989). Intervals of means and probabilities also include the uncertainty of
// learned parameters of the Likelihood. ELBO, LOO and PSIS use only q. Update and Remove return
// posteriors that treat the learned values as known.
//
// If the posterior is integrated over hyperparameters (LearnOptions.Integrate) or over covariances
// of GLMOptions.Groups (see Group), it is a mixture Σ_k p_k N(m_k, V_k). Predictions, WeightQuantile,
// RandWeights, GLM.LOO and GLM.LOOGroup use the mixture, and the other methods its mean and its
// covariance. ELBO, PSIS, Update and Remove use q at the best hyperparameters, and so do the
// likelihoods of effects and draws of responses.
//
// At takes new points as the rows of x, dense or sparse, with the columns of the training data and
// without the intercept. It panics if the number of columns differs. The prediction of a row with a
// NaN or an infinity is NaN.
type GLMPosterior struct {
	names []string
	opt   GLMOptions
	lik   Likelihood
	prior *gauss.Prior
	mean  []float64 // m + μ0, the mean of w
	cov   gauss.Cov // V of q
	rows  int
	means []float64 // GLM.means
	data  *seenRows // all rows, if they are few; otherwise nil

	learned *Learned     // see the method Learned
	spread  *learnSpread // uncertainty of learned hyperparameters, or nil
	// spreadCov is V + AAᵀ if spread is not nil.
	spreadCov *gauss.Spread
	filed     bool // Save stores data
	// response is V with the linear responses of common weights, or nil (learn.Curved.Response).
	response *gauss.Spread
	groups   []groupInfo
	// mixture is the posterior over several hyperparameters, or nil. If it is set, mean is the mean
	// of the mixture, and cov is still V of q.
	mixture *weightMixture
}

// posterior returns the posterior with mean μ0 + mean and covariance cov. It changes mean.
func (g *GLM) posterior(mean []float64, cov gauss.Cov, rows int) *GLMPosterior {
	if len(mean) == len(g.lin.Prior.Mean) {
		floats.Add(mean, g.lin.Prior.Mean)
	}
	prior := &g.lin.Prior
	if a, ok := cov.(*gauss.Arrow); ok {
		prior = a.PriorOf(prior)
	}
	return &GLMPosterior{names: g.lin.Names, opt: g.opt, lik: likOf(g.lin.Terms),
		prior: prior, mean: mean, cov: cov, rows: rows, means: g.means, data: g.seen(rows),
		groups: g.groups}
}

// priorPosterior returns the posterior without data, which is the prior.
func (g *GLM) priorPosterior() (*GLMPosterior, error) {
	if g.lin.Terms.K > 1 {
		a, err := site.NewSoftmaxAlgebra(&g.lin, term.Crew{})
		if err != nil {
			return nil, err
		}
		mean, cov, err := a.Weights()
		if err != nil {
			return nil, prefixed(err)
		}
		return g.posterior(mean, cov, 0), nil
	}
	mean := make([]float64, g.dim())
	if g.lin.Prior.Blocks() != nil {
		a, err := site.NewArrowAlgebra(&g.lin, term.Crew{})
		if err != nil {
			return nil, prefixed(err)
		}
		mean, cov, err := a.Weights()
		if err != nil {
			return nil, prefixed(err)
		}
		return g.posterior(mean, cov, 0), nil
	}
	if g.lin.Prior.Full == nil {
		v := make(gauss.Diagonal, g.dim())
		for j, l := range g.lin.Prior.Prec {
			v[j] = 1 / l
		}
		return g.posterior(mean, v, 0), nil
	}
	s, err := g.lin.Prior.State()
	if err != nil {
		return nil, err
	}
	return g.posterior(mean, &gauss.Full{S: s}, 0), nil
}

// setSpread sets the uncertainty s of learned hyperparameters, which may be nil.
func (p *GLMPosterior) setSpread(s *learnSpread) {
	if p.spread = nil; s != nil {
		p.spreadCov = &gauss.Spread{Cov: p.wide(), A: s.weights}
		p.spread = s
	}
}

// Len returns the number of rows in the posterior. It counts rows with positive weight that were
// not removed.
func (p *GLMPosterior) Len() int { return p.rows }

// Dim returns D, the number of weights including the intercept, or KD for a Softmax.
func (p *GLMPosterior) Dim() int { return len(p.mean) }

// Cols returns the number of columns that new points must have.
func (p *GLMPosterior) Cols() int { return len(p.names) - design.B2i(p.opt.Intercept) }

// className returns "class=" followed by the name of class c.
func (p *GLMPosterior) className(c int) string {
	if p.opt.ClassNames != nil {
		return "class=" + p.opt.ClassNames[c]
	}
	return classNumber(c)
}

// checkClasses returns an error if the options do not fit a Softmax, or if ClassNames is set for
// any other likelihood.
func (g *GLM) checkClasses() error {
	k, o := g.lin.Terms.K, &g.opt
	switch {
	case k <= 1 && o.ClassNames != nil:
		return fmt.Errorf("pgsvi: %s has no classes; leave GLMOptions.ClassNames nil: %w",
			typeName(likOf(g.lin.Terms)), ErrParam)
	case k <= 1:
		return nil
	case o.ClassNames != nil && len(o.ClassNames) != k:
		return fmt.Errorf("pgsvi: GLMOptions.ClassNames has %d elements, but there are %d "+
			"classes: %w", len(o.ClassNames), k, ErrShape)
	case o.Covariance > FullCovariance:
		return fmt.Errorf("pgsvi: Softmax does not support a %v covariance; use FullCovariance: %w",
			o.Covariance, ErrParam)
	case o.Coordinates != MeanParams:
		return fmt.Errorf("pgsvi: Softmax does not support GLMOptions.Coordinates at %v; use "+
			"MeanParams: %w", o.Coordinates, ErrParam)
	case o.Prior != nil && !o.Prior.isDiagonal():
		return fmt.Errorf(
			"pgsvi: GLMOptions.Prior has correlations, but Softmax needs a diagonal one: %w",
			ErrParam)
	}
	o.ClassNames = slices.Clone(o.ClassNames)
	_, _, err := siteEstimator(o.Estimator, likOf(g.lin.Terms))
	return err
}

// checkClassMemory returns an error if a model of K classes exceeds the memory limit. It has n
// rows, which take the given number of bytes, and d weights.
func (g *GLM) checkClassMemory(rows float64, n, d int) error {
	if g.opt.MaxMemory < 0 {
		return fmt.Errorf("pgsvi: GLMOptions.MaxMemory is %d; it must not be negative: %w",
			g.opt.MaxMemory, ErrParam)
	}
	need := rows + site.SoftmaxMemory(g.lin.Terms.K, n, d)
	if len(g.opt.Groups) > 0 { // correlated effects need a copy of the rows
		need += rows
	}
	return checkMemory(g.opt.MaxMemory, need,
		fmt.Sprintf("a GLM of %d rows, %d weights and %d classes", n, d, g.lin.Terms.K),
		"use fewer classes or columns, or raise GLMOptions.MaxMemory")
}

// glmRows holds the rows of a GLM that reads them again in every pass.
type glmRows struct {
	n, cols int
	all     iter.Seq2[Row, error]
	blocks  rounds.Blocks
	columns *rounds.Columns
	stands  []float64
	// For a model with a group: see glmRounds, the moments of the group, and the variance of Gaussian
	// noise at first, or 0.
	first   *rounds.ArrowState
	moments *rounds.GroupMoments
	noise   float64
}

// rowsKept returns an error if g does not keep its rows. Then what, which needs them in memory, is
// unavailable.
func (g *GLM) rowsKept(what string) error {
	if g.rows == nil {
		return nil
	}
	return fmt.Errorf("pgsvi: %s needs rows in memory, but NewGLMRows does not keep them; use "+
		"NewGLM with a part of the rows: %w", what, ErrParam)
}

// mostSeen is the largest number of values in the rows of a posterior, 128 MB.
const mostSeen = 1 << 24

// seen returns the rows of g if their number is rows and a posterior can hold them.
func (g *GLM) seen(rows int) *seenRows {
	if g.rows != nil || g.lin.X == nil || oneLatent(likOf(g.lin.Terms), "") != nil ||
		rows != g.Len() || rows > mostKept || valuesOf(g.lin.X) > mostSeen {
		return nil
	}
	return &seenRows{g.lin.X, g.lin.Terms.Y, g.offset, g.lin.Terms.Weight}
}

// valuesOf returns the number of values of x.
func valuesOf(x *design.Matrix) int {
	if x.Sparse != nil {
		return x.Sparse.Values()
	}
	return x.Rows * x.Cols
}

// mostKept is the largest number of rows in a posterior.
const mostKept = 4096

// seenRows holds rows that a posterior shares with its GLM.
type seenRows struct {
	x                 *design.Matrix // including the column of the intercept
	y, offset, weight []float64      // nil offset means 0, nil weight means 1
}

// rows returns copies of the rows with d values each, or nil if s is nil.
func (s *seenRows) rows(d int) *term.Buffer {
	if s == nil {
		return nil
	}
	return term.CopyOf(s.x, s.y, s.offset, s.weight, d)
}

// wide returns the covariance of the weights with the uncertainty of the hyperparameters: V + AAᵀ,
// with the covariance of the mixture, or the linear responses, in place of V if there are any.
func (p *GLMPosterior) wide() gauss.Cov {
	switch {
	case p.spread != nil:
		return p.spreadCov
	case p.mixture != nil:
		return p.mixture.Mixture
	case p.response != nil:
		return p.response
	}
	return p.cov
}

// weightMixture is the posterior of the weights over several hyperparameters.
type weightMixture struct {
	Mixture *gauss.Mixture
	mean    []float64   // mean of q, at the best hyperparameters
	means   [][]float64 // means of the components
	// liks and priors belong to the components. They are nil if only covariances of groups differ.
	liks   []Likelihood
	priors []*gauss.Prior
	// logMass is the logarithm of the integral over the covariances of groups.
	logMass float64

	once  sync.Once
	parts []latents // components of the posterior, once a prediction needs them
}

// checkClassGroups returns an error if the groups, which have names, do not suit a Softmax.
func (o *GLMOptions) checkClassGroups(cols, classes int) error {
	if classes < 2 || len(o.Groups) == 0 {
		return nil
	}
	if len(o.Blocks) > cols {
		return fmt.Errorf("pgsvi: GLMOptions.Groups does not support Blocks for each class of a "+
			"Softmax; give Blocks one element per column: %w", ErrParam)
	}
	if o.Prior != nil && o.Prior.Dim() > cols+1 {
		return fmt.Errorf("pgsvi: GLMOptions.Groups does not support a Prior for each class of a "+
			"Softmax; give Prior one dimension per weight of a class: %w", ErrParam)
	}
	for i := range o.Groups {
		r := &o.Groups[i]
		q := r.effects()
		if j := slices.Index(r.SD, 0); r.Fixed && j >= 0 {
			return fmt.Errorf("pgsvi: group %s has SD[%d] = 0, but a fixed standard deviation of a "+
				"Softmax must be positive; remove the effect: %w", r.Name, j, ErrParam)
		}
		l := make([]float64, q*q)
		effectFactor(l, r.Corr, slices.Repeat([]float64{1}, q))
		for j := range q {
			if !(l[j*q+j] > leastPartial) {
				return fmt.Errorf("pgsvi: group %s has a singular Corr, which Softmax does not "+
					"support; use correlations below 1, or remove an effect: %w", r.Name, ErrParam)
			}
		}
	}
	return nil
}

// keptCovariances returns a warning if the Σ of some groups with few levels and a prior keep their
// best values, because there are too many parameters or columns.
func (g *GLM) keptCovariances() []string {
	params, border, largest := 0, g.dim(), 0
	var levels, each []int
	for i := range g.opt.Groups {
		r := &g.opt.Groups[i]
		largest = max(largest, r.Levels*r.effects())
		if !r.Fixed && !r.NoPrior {
			levels = append(levels, r.Levels)
			each = append(each, site.GridParams(r.effects(), r.Independent))
		}
	}
	for i, n := range levels {
		if n < site.GridLevels(levels, each) {
			params += each[i]
		}
	}
	border -= largest
	text := ""
	switch {
	case params == 0:
	case params > cubature.Most:
		text = fmt.Sprintf("there are %d of them, and at most %d are integrated; use independent "+
			"effects or fewer of them", params, cubature.Most)
	case border > site.MostGridBorder:
		text = fmt.Sprintf("there are %d columns outside the largest group, and an integral allows "+
			"%d", border, site.MostGridBorder)
	}
	if text == "" {
		return nil
	}
	return []string{"intervals ignore the uncertainty of the standard deviations and correlations of " +
		"groups: " + text}
}
