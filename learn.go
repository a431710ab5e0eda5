package pgsvi

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// LearnOptions are the options of learning hyper-parameters. The zero value, and a nil pointer,
// mean that all of them are learned, with the default priors.
//
// Parameters have the names in Learned.Params: the type and the field, such as
// SquaredExp.Length[3], Sum[0].SquaredExp.Scale, GLM.PriorSD[2] or StudentT.DF. A name without
// its index, such as SquaredExp.Length, means all elements of a list.
//
// Parameters are learned as θ, a transformation to the real line given by Param. Priors are
// densities of θ, not of the value, so that the objective has no Jacobian. The intervals of
// Learned are Laplace approximations in θ. The default prior of a parameter of your own kernel or
// likelihood is N(θ, 2²) about its start.
type LearnOptions struct {
	// Fixed lists the parameters that keep their values.
	Fixed []string
	// Prior replaces default priors, by name.
	Prior map[string]Prior
	// NoPrior removes the default priors. The objective is then the ELBO plus the log of the
	// priors in Prior.
	NoPrior bool
	// Bounds are the least and the largest value of parameters, by name. They replace the wide
	// default bounds, and must lie between Min and Max of the Param.
	Bounds map[string][2]float64
	// Restarts is the number of further starts, drawn from the priors. The best result is kept;
	// Learned.Starts shows all.
	Restarts int
	// Tol is the tolerance of the search: how many nats the objective may be from its optimum, by
	// its quadratic model. Zero means 1e-4.
	Tol float64
}

// Prior is a normal prior N(Mean, SD²) of a parameter, in θ (see LearnOptions). For a list of
// parameters, such as Length[0], Length[1], …, it is θ_d = Mean + Shared·u + SD·e_d with u, e_d ~
// N(0, 1), where all elements share u. SD is positive.
type Prior struct{ Mean, SD, Shared float64 }

// Learned is the result of learning hyper-parameters. Print shows it as a table.
type Learned struct {
	// Params are the parameters of the kernel, or the prior standard deviations of a GLM,
	// followed by those of the likelihood, whether learned or fixed.
	Params []LearnedParam
	// Objective is the minimised value, −ELBO + ½(θ − μ)ᵀΛ(θ − μ) in nats. The priors N(μ, Λ⁻¹)
	// are without their constants.
	Objective float64
	// LogPrior is the part −½(θ − μ)ᵀΛ(θ − μ) of −Objective.
	LogPrior float64
	// Evaluations is the number of values of the hyper-parameters that were tried. One that was
	// needed more accurately later counts twice. The ratios of GaussianNoise.Var to the scale
	// that choose a start, a factorisation each, count as one.
	Evaluations int
	// Cholesky is the work in units of a Cholesky factorisation of all N rows, N³/3 operations. A
	// factor, its inverse and the square of that count one each. For a GLM with more rows than
	// weights it is the number of passes over the rows; a pass over a part counts as that part.
	Cholesky float64
	// Passes is the work of a SparseGP, instead of Cholesky: passes over all rows. A pass over a
	// part of the rows counts as that part.
	Passes float64
	// Starts are the final objectives of all starts, in order.
	Starts []float64
	// Warnings say what may be wrong with the parameters, and whether the search met a limit of
	// the Solver.
	Warnings []string
	// Search is the run over the hyper-parameters; a step is an evaluation. The ELBO of its
	// iterations is −Objective, and their Gap the gain that the quadratic model predicts.
	// Solver.Resume continues it.
	Search *Result
	// Fit is the final run, at the learned parameters, that gave the posterior. It is nil if the
	// search failed or was canceled.
	Fit *Result
}

// LearnedParam is a hyper-parameter with its value, prior and uncertainty.
type LearnedParam struct {
	Param
	// Fixed reports whether the parameter kept its value.
	Fixed bool
	// Prior is the prior used. A zero SD means none.
	Prior Prior
	// SD approximates the posterior standard deviation of θ (see Param), by a Laplace
	// approximation. Up to 2000 rows the curvature is measured by differences of the gradient,
	// one evaluation per parameter. The search provides it with more rows, with more than 12
	// parameters if it made fewer evaluations than there are parameters, and for a SparseGP.
	SD float64
	// Lo and Hi are the ends of a 95% interval of Value: that of θ, transformed. Both are Value if
	// the parameter is fixed, and Min and Max if SD is not known.
	Lo, Hi float64
	// AtBound reports whether the parameter ended at a bound, of LearnOptions.Bounds or a default
	// one.
	AtBound bool
	// Differences reports whether finite differences replaced the missing derivatives of the
	// kernel.
	Differences bool
}

// String returns a line on the search, a table of the parameters with 95% intervals of each
// posterior and prior, and the warnings.
func (l *Learned) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, objective %.6g nats\n",
		countOf(len(l.Params), "parameter"), countOf(l.Evaluations, "evaluation"), l.Objective)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\tvalue\t2.5%\t97.5%\tprior 2.5%\t97.5%\t\n")
	for _, p := range l.Params {
		c := &p.Param
		between := func(mean, sd float64) string {
			if p.Fixed || !(sd > 0) {
				return "\t"
			}
			lo, hi := c.interval(mean, sd)
			return fmt.Sprintf("%.4g\t%.4g", lo, hi)
		}
		note := ""
		switch {
		case p.Fixed:
			note = "fixed"
		case p.AtBound:
			note = "at its bound"
		}
		fmt.Fprintf(table, "%s\t%.4g\t%s\t%s\t%s\n", p.Name, p.Value,
			between(c.theta(p.Value), p.SD),
			between(p.Prior.Mean, math.Hypot(p.Prior.SD, p.Prior.Shared)), note)
	}
	_ = table.Flush() // to memory
	for _, w := range l.Warnings {
		fmt.Fprintln(&b, "warning:", w)
	}
	return b.String()
}

// countOf returns a number of things in words.
func countOf(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Default priors, from trials on ten data sets: weak enough to move test log loss by less than
// 0.003 bits, and strong enough that every one of 30 random starts gets off the plateaus of a
// diagonal K and of a scale of 0.
const (
	logitScaleMean, logitScaleStart = 2, 1 // of log Scale, where latent values are log odds
	logitScaleSD                    = 1
	// log √(π/8), by which probits are smaller than log odds (Spiegelhalter and Lauritzen 1990)
	probitScale = -0.4673558
	// of log Scale about 0, where they are logarithms, and about that of the responses
	linkScaleSD        = 1.5
	lengthSD           = 1 // of log Length about the median distance/√2
	listSD, listShared = 0.5, 1
	noisePart          = 4 // noise is that much less than the responses' scale
	// the least noise of equal responses in parts of their scale: without a floor it has no best
	// value
	quietNoise = 1e-2
	freeSD     = 2 // of whatever the caller has set
	relativeSD = 1
	periodSD   = 0.1
	farBound   = 12 // of θ, on both sides of its prior's mean
)

// learnCoord is a parameter on its way.
type learnCoord struct {
	Param
	learn.Coord
	fixed     bool
	differ    bool
	amplitude bool // a standard deviation of latent values
	// 1 if it is the log standard deviation of noise, 2 for the log variance, and 0 for no noise
	noise float64
	unset bool // its field is zero
}

// learnSpace is the space of the hyper-parameters of a kernel and a likelihood.
type learnSpace struct {
	learn.Space // of those that are learned

	coords []learnCoord
	free   []int      // those that are learned
	x      *mat.Dense // rows of the kernel
	y      []float64  // responses of the rows
	kernel Kernel
	slopes Kernel // kernel, with differences for the derivatives that it has not
	lik    Likelihood
}

// gaussian reports whether the terms are Gaussian, and one step from any q is exact.
func (s *learnSpace) gaussian() bool {
	_, ok := s.lik.(GaussianNoise)
	return ok
}

// groupOf returns name without its index.
func groupOf(name string) string {
	if strings.HasSuffix(name, "]") {
		return name[:strings.LastIndex(name, "[")]
	}
	return name
}

// newLearnSpace returns that of k and lik, for responses y at the rows.
func newLearnSpace(k Kernel, lik Likelihood, rows *gram.Pairs, y []float64,
	o *LearnOptions) (*learnSpace, error) {
	s := &learnSpace{x: rows.X, y: y, kernel: k, lik: lik}
	slopes, differ, err := derivable(k, rows.X)
	if err != nil {
		return nil, err
	}
	s.slopes = slopes
	d := newLearnData(rows, y, lik)
	composite := compound(k)
	roles := kernelRoles(k)
	if factsOf(lik).Support == RealLine && !slices.ContainsFunc(roles,
		func(r paramRole) bool { return r.kind == offsetParam || r.kind == weightParam }) {
		d.start = d.offset(false) // nothing else takes latent values to where the responses are
	}
	periods := startPeriods(k, roles, rows.X, y)
	seen := map[string]*learnData{fmt.Sprint([]int(nil)): d} // by the columns of an On
	var lists int                                            // of lengths that are not set,
	var lengths string                                       // the last of them
	for i, p := range k.Params() {
		of := kernelName(k)
		r := roles[i]
		c := learnCoord{Param: p, fixed: r.held}
		own, ok := seen[fmt.Sprint(r.columns)]
		if !ok {
			own = newLearnData(&gram.Pairs{X: columnsOf(rows.X, r.columns)}, y, lik)
			own.start = d.start
			seen[fmt.Sprint(r.columns)] = own
		}
		own.period = periods[i]
		c.Start, c.Prior = own.kernel(&c, r, composite)
		c.Name = paramName(of, p.Name)
		c.amplitude, c.unset = r.kind.amplitude(), r.unset
		if c.Screened = r.kind == lengthParam && r.unset; c.Screened {
			if lengths != groupOf(c.Name) {
				lengths = groupOf(c.Name)
				lists++
			}
			if lists > 1 { // parts alike that start alike stay so
				c.Start -= math.Log(learn.ScreenShorter[min(lists-2, len(learn.ScreenShorter)-1)])
			}
		}
		for _, part := range differ {
			c.differ = c.differ || !composite || strings.HasPrefix(c.Name, paramName(of, part))
		}
		s.coords = append(s.coords, c)
	}
	for i := range s.coords { // of several parts none is known to be the short one
		s.coords[i].Screened = s.coords[i].Screened && lists == 1
	}
	return s, s.finish(d, o)
}

// finish adds the parameters of the likelihood, for which d has the defaults, and applies the
// options.
func (s *learnSpace) finish(d *learnData, o *LearnOptions) error {
	lik := s.lik
	if p, ok := lik.(Parametric); ok {
		unset := unsetParams(lik)
		for i, p := range p.Params() {
			c := learnCoord{Param: p, Coord: learn.Coord{Likelihood: true}}
			c.Start, c.Prior = d.noise(&c, lik, i, slices.Contains(unset, p.Name))
			if c.unset = slices.Contains(unset, p.Name); s.gaussian() && c.unset {
				c.Noisier = 2 * math.Log(noisePart)
			}
			_, exposure := lik.(Poisson)
			c.fixed = exposure
			c.Name = paramName(typeName(lik), p.Name)
			s.coords = append(s.coords, c)
		}
	}
	for i := range s.coords {
		c := &s.coords[i]
		c.Group = groupOf(c.Name)
		c.Lo, c.Hi = c.Prior.Mean-farBound, c.Prior.Mean+farBound
		if lower, upper := c.ends(); !lower && !upper {
			c.Lo, c.Hi = math.Inf(-1), math.Inf(1)
		}
		if c.noise > 0 {
			c.Lo = max(c.Lo, min(c.Start, c.noise*d.quiet))
		}
		if o.NoPrior {
			c.Prior = learn.Normal{}
		}
	}
	return s.take(o)
}

// take applies the options.
func (s *learnSpace) take(o *LearnOptions) error {
	named := func(name string, f func(c *learnCoord)) error {
		found := false
		for i := range s.coords {
			if c := &s.coords[i]; c.Name == name || c.Group == name {
				f(c)
				found = true
			}
		}
		if found {
			return nil
		}
		var names []string
		for _, c := range s.coords {
			names = append(names, c.Name)
		}
		return fmt.Errorf("pgsvi: LearnOptions name %q, the parameters are %s: %w", name,
			strings.Join(names, ", "), ErrParam)
	}
	for _, name := range o.Fixed {
		if err := named(name, func(c *learnCoord) { c.fixed = true }); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(o.Prior) {
		p := o.Prior[name]
		if !(p.SD > 0) || math.IsInf(p.SD, 0) || math.IsNaN(p.Mean) || math.IsInf(p.Mean, 0) ||
			!(p.Shared >= 0) || math.IsInf(p.Shared, 0) {
			return fmt.Errorf(
				"pgsvi: LearnOptions.Prior of %s is %+v; its SD must be positive, and all of it "+
					"finite: %w", name, p, ErrParam)
		}
		if err := named(name, func(c *learnCoord) { c.Prior = learn.Normal(p) }); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(o.Bounds) {
		b := o.Bounds[name]
		if err := named(name,
			func(c *learnCoord) { c.Lo, c.Hi = c.theta(b[0]), c.theta(b[1]) }); err != nil {
			return err
		}
		if !(b[0] < b[1]) {
			return fmt.Errorf(
				"pgsvi: LearnOptions.Bounds of %s are %v, the least value and the largest: %w",
				name, b, ErrParam)
		}
	}
	if o.Restarts < 0 || !(o.Tol >= 0) || math.IsInf(o.Tol, 0) {
		return fmt.Errorf(
			"pgsvi: LearnOptions.Restarts is %d and Tol %v; they must not be negative: %w",
			o.Restarts, o.Tol, ErrParam)
	}
	for i := range s.coords {
		c := &s.coords[i]
		if math.IsNaN(c.Lo) || math.IsNaN(c.Hi) {
			return fmt.Errorf(
				"pgsvi: LearnOptions.Bounds of %s are outside its range, from %v to %v: %w", c.Name,
				c.Min, c.Max, ErrParam)
		}
		if c.fixed {
			c.Start = c.theta(c.Value)
			c.Prior = learn.Normal{}
			continue
		}
		if c.Start < c.Lo || c.Start > c.Hi {
			c.Start, c.Screened = min(max(c.Start, c.Lo), c.Hi), false
		}
		s.free = append(s.free, i)
	}
	if len(s.free) == 0 {
		return fmt.Errorf("pgsvi: no hyper-parameter is left to be learned: %w", ErrParam)
	}
	free := make([]learn.Coord, len(s.free))
	for i, at := range s.free {
		free[i] = s.coords[at].Coord
		free[i].Param = at
	}
	s.Space = learn.NewSpace(free)
	s.Space.At, s.Space.Ruled, s.Gaussian = s.under, ruled, s.gaussian()
	s.Noise, s.Scales = s.noiseRay()
	return nil
}

// doubtfulPeriod is the lead in nats of evidence that a period needs over all others to have no
// warning: odds of 150. fewCycles is the number of cycles that the rows must span.
const (
	doubtfulPeriod = 5
	fewCycles      = 2
	seasonRounds   = 2 // in which periods that are not set find each other
)

// startPeriods returns where the search for each parameter that is a period begins: at its value,
// or, if it is not set, at the period with the most evidence next to the seasons of the others. Two
// periods that are not set find each other in turn, so that they do not begin at the same one. An
// element is 0 if a parameter is not a period or none was found.
func startPeriods(k Kernel, roles []paramRole, x *mat.Dense, y []float64) []float64 {
	periods := make([]float64, len(roles))
	var unset []int
	for i, p := range k.Params() {
		switch {
		case roles[i].kind != periodParam:
		case roles[i].unset:
			unset = append(unset, i)
		default:
			periods[i] = p.Value
		}
	}
	rounds := 1
	if len(unset) > 1 {
		rounds = seasonRounds
	}
	for range rounds {
		for _, i := range unset {
			periods[i] = 0
			periods[i] = learn.Period(x, y, roles[i].columns, compound(k), otherPeriods(periods, i))
		}
	}
	return periods
}

// otherPeriods returns the known periods except the one of parameter i.
func otherPeriods(periods []float64, i int) (others []float64) {
	for j, p := range periods {
		if p > 0 && j != i {
			others = append(others, p)
		}
	}
	return others
}

// doubtfulPeriods warns of each period among the parameters, learned or fixed, if another period
// explains the responses about as well, or if the rows span fewer than two cycles.
func (s *learnSpace) doubtfulPeriods(params []Param) (all []string) {
	if s.kernel == nil { // a GLM has none
		return nil
	}
	roles := kernelRoles(s.kernel)
	periods := make([]float64, len(roles))
	for i, r := range roles {
		if r.kind == periodParam {
			periods[i] = params[i].Value
		}
	}
	for i, r := range roles {
		if r.kind != periodParam {
			continue
		}
		p := params[i]
		rival, nats, cycles := learn.Rival(s.x, s.y, r.columns, compound(s.kernel), p.Value,
			otherPeriods(periods, i))
		switch {
		case nats > 0:
			all = append(all, fmt.Sprintf(
				"%s is %.4g, but the responses are more likely to have a period of %.4g, by about "+
					"%.2g nats: set it to that value before learning", p.Name, p.Value, rival, nats))
		case nats > -doubtfulPeriod:
			all = append(all, fmt.Sprintf(
				"%s is %.4g, but a period of %.4g is nearly as likely, to about %.2g nats: set it if "+
					"it is known, or add rows", p.Name, p.Value, rival, -nats))
		case cycles > 0 && cycles < fewCycles:
			all = append(all, fmt.Sprintf(
				"the rows span only %.2g cycles of %s, which leaves it uncertain: set it if it is "+
					"known, or add rows", cycles, p.Name))
		}
	}
	return all
}

// amplitude returns the index of the free coordinate that is the logarithm of a standard deviation
// to the square of which K is proportional, or −1.
func (s *learnSpace) amplitude() int {
	if (kernelView{s.kernel}).Noisy() {
		return -1
	}
	for i, at := range s.free {
		c := &s.coords[at]
		if c.amplitude && c.Min == 0 && math.IsInf(c.Max, 1) && s.proportional([]int{i}) {
			return i
		}
	}
	return -1
}

// proportional reports whether K is proportional to the square of these free parameters together.
func (s *learnSpace) proportional(scales []int) bool {
	var before, after []float64
	for _, c := range s.coords[:numParams(s.kernel)] {
		before = append(before, c.Value)
		after = append(after, c.Value)
	}
	for _, i := range scales {
		after[s.free[i]] *= 2
	}
	was, is := s.kernel.WithParams(before), s.kernel.WithParams(after)
	for i := range s.x.RawMatrix().Rows {
		row := s.x.RawRowView(i)
		if k := 4 * was.Cov(row, row); !(math.Abs(is.Cov(row, row)-k) <= 1e-9*k) {
			return false
		}
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// noiseRay returns Noise and Scales of the space: the index of the free variance of Gaussian
// noise, −1 if there is none or it was set, and those of the standard deviations of the kernel.
// Scales is nil if some are set, or if K is not proportional to the square of all of them
// together.
func (s *learnSpace) noiseRay() (noise int, scales []int) {
	noise = -1
	for i, at := range s.free {
		switch c := &s.coords[at]; {
		case c.Likelihood && c.unset && s.gaussian():
			noise = i
		case c.amplitude && c.unset && c.Min == 0:
			scales = append(scales, i)
		}
	}
	if noise < 0 || len(scales) == 0 {
		return noise, nil
	}
	if !s.proportional(scales) {
		return noise, nil
	}
	return noise, scales
}

// at returns kernel, kernel with derivatives, and likelihood at θ. The error wraps ErrParam where
// they are not valid.
func (s *learnSpace) at(theta []float64) (k, slopes Kernel, lik Likelihood, err error) {
	if err := s.held(theta); err != nil {
		return nil, nil, nil, err
	}
	kernel, lik := s.values(theta)
	k, slopes = s.kernel.WithParams(kernel), s.slopes.WithParams(kernel)
	if err := checkParams(kernelName(k), k.Params()); err != nil {
		return nil, nil, nil, err
	}
	return k, slopes, lik, checkLikelihood(lik)
}

// held returns an error that wraps ErrParam if a parameter is too close to an end of its range
// for a float64, as 0 would mean its default.
func (s *learnSpace) held(theta []float64) error {
	for i, at := range s.free {
		if c := &s.coords[at]; !c.within(c.value(theta[i])) {
			return fmt.Errorf("pgsvi: %s, at θ = %v, is at the end of its range in float64: %w",
				c.Name, theta[i], ErrParam)
		}
	}
	return nil
}

// values returns the parameters that are not the likelihood's, and the likelihood, at θ.
func (s *learnSpace) values(theta []float64) (prior []float64, lik Likelihood) {
	free := make([]float64, len(s.coords))
	for i := range free {
		free[i] = math.NaN()
	}
	for i, at := range s.free {
		free[at] = theta[i]
	}
	for i := range s.coords {
		if c := &s.coords[i]; !c.Likelihood {
			v := c.Value
			if !math.IsNaN(free[i]) {
				v = c.value(free[i])
			}
			prior = append(prior, v)
		}
	}
	return prior, withParams(s.lik, func(i int, p *Param) float64 {
		at := len(prior) + i
		if math.IsNaN(free[at]) {
			return s.coords[at].Value
		}
		return p.value(free[at])
	})
}

// under returns the parameters that are not the likelihood's, and t under the likelihood, at θ. The
// error wraps ErrParam where they are not valid.
func (s *learnSpace) under(t *term.Terms, theta []float64) ([]float64, *term.Terms, error) {
	if err := s.held(theta); err != nil {
		return nil, nil, err
	}
	prior, lik := s.values(theta)
	if err := checkLikelihood(lik); err != nil {
		return nil, nil, err
	}
	return prior, under(t, lik), nil
}

// params returns all parameters at θ.
func (s *learnSpace) params(theta []float64) []Param {
	values, lik := s.values(theta)
	all := make([]Param, len(s.coords))
	for i := range all {
		if all[i] = s.coords[i].Param; i < len(values) {
			all[i].Value = values[i]
		} else {
			all[i] = lik.(Parametric).Params()[i-len(values)]
			all[i].Name = s.coords[i].Name
		}
	}
	return all
}

// chainParams turns derivatives of the free kernel parameters as Kernel.Grad has them, in dst, into
// those in θ.
func chainParams(dst []float64, k Kernel) {
	for i, p := range k.Params() {
		dst[i] *= p.slope()
	}
}

// digest shows d what is learned, and how.
func (s *learnSpace) digest(d *save.Digest) {
	for _, c := range s.coords {
		d.Text(fmt.Sprintf("%+v", c))
	}
}

// learnData is what the defaults depend on.
type learnData struct {
	length  float64 // log c, the median distance over √2
	columns []float64
	far     float64 // Σ_j (x̄_j/σ_j)², how far from the origin the rows are
	middle  float64 // of the responses, where they have the units of the latent values
	// log of the scale of the latent values: that of the responses, where they have the same units
	scale         float64
	start, spread float64 // of log Scale
	// log of the least standard deviation of noise; −Inf unless responses in the unit of the latent
	// values are all equal, which noise of any less makes more likely
	quiet  float64
	period float64 // of the responses, 0 where none was looked for
}

func newLearnData(rows *gram.Pairs, y []float64, lik Likelihood) *learnData {
	x := rows.X
	n, cols := x.Dims()
	d := &learnData{length: math.Log(rows.MedianDistance()) - math.Ln2/2,
		columns: make([]float64, cols)}
	for j := range d.columns {
		first := x.At(0, j) // from which a column that does not vary is at exactly 0
		var mean, square float64
		for i := range n {
			mean += (x.At(i, j) - first) / float64(n)
		}
		for i := range n {
			u := x.At(i, j) - first - mean
			square += u * u / float64(n)
		}
		mean += first
		d.columns[j] = d.length // of a column that says nothing
		if square > 0 && !math.IsInf(square, 0) {
			d.columns[j] = 0.5 * math.Log(square*float64(cols))
			d.far += mean / square * mean
		}
	}
	d.scales(y, nil, lik)
	return d
}

// scales finds the scale of the latent values under lik. Nil weights are 1.
func (d *learnData) scales(y, weights []float64, lik Likelihood) {
	f := factsOf(lik)
	d.quiet = math.Inf(-1)
	switch {
	case f.Support == RealLine:
		d.middle = dense.WeightedMedian(slices.Clone(y), weights)
		scale, varies := learn.RobustScale(y, weights)
		d.scale, d.spread = math.Log(scale), linkScaleSD
		if d.start = d.scale; !varies {
			d.quiet = d.scale + math.Log(quietNoise)
		}
	case f.Support == Counts && f.Most == 0, f.Support == Positive, f.Support == NonNegative:
		d.spread = linkScaleSD
	default:
		d.scale, d.start, d.spread = logitScaleMean, logitScaleStart, logitScaleSD
		if _, ok := lik.(BernoulliProbit); ok {
			d.scale, d.start = d.scale+probitScale, d.start+probitScale
		}
	}
}

// offset returns the logarithm of how far an offset may have to reach: from 0 to the responses
// and, beside weights of columns, along the line from the origin to the rows.
func (d *learnData) offset(beside bool) float64 {
	far := 0.0
	if beside {
		far = d.far
	}
	o := math.Log(math.Hypot(d.middle, math.Exp(d.scale)*math.Sqrt(1+far)))
	if math.IsInf(o, 0) {
		return d.scale
	}
	return o
}

// kernel returns start and prior of a parameter of the kernel. A value set by the caller is the
// start. In a Sum or Product it also identifies the part, and the prior is centred on it.
func (d *learnData) kernel(c *learnCoord, r paramRole, composite bool) (start float64,
	prior learn.Normal) {
	start = c.theta(c.Value)
	given := !r.unset && (composite || r.kind == otherParam)
	switch r.kind {
	case scaleParam:
		prior = learn.Normal{Mean: d.scale, SD: d.spread}
	case offsetParam:
		prior = learn.Normal{Mean: d.offset(r.beside), SD: d.spread}
	case noiseParam:
		prior = learn.Normal{Mean: d.scale - math.Log(noisePart), SD: d.spread}
	case weightParam:
		prior = learn.Normal{Mean: d.scale, SD: d.spread}
		if r.column >= 0 {
			prior.Mean += 0.5*math.Log(float64(len(d.columns))) - d.columns[r.column]
		} else {
			prior.Mean -= d.length
		}
	case lengthParam:
		prior = learn.Normal{Mean: d.length, SD: lengthSD}
		if r.column >= 0 {
			prior = learn.Normal{Mean: d.columns[r.column], SD: listSD, Shared: listShared}
		}
	case periodParam:
		if r.unset && d.period > 0 {
			start = c.theta(d.period)
		}
		return start, learn.Normal{Mean: start, SD: periodSD}
	case relativeParam:
		return start, learn.Normal{Mean: start, SD: relativeSD}
	default:
		return start, learn.Normal{Mean: start, SD: freeSD}
	}
	if given {
		return start, learn.Normal{Mean: start, SD: freeSD}
	}
	if r.unset {
		if start = prior.Mean; r.kind == scaleParam {
			start = d.start
		}
	}
	return start, prior
}

// scaleCoords returns the coordinates of the prior standard deviations of blocks of weights.
// spread are the sums of the variances of their columns; d has the defaults. A value of 0 is not
// set.
func scaleCoords(spread []float64, value float64, d *learnData) []learnCoord {
	coords := make([]learnCoord, len(spread))
	for b, r2 := range spread {
		c := &coords[b]
		c.Param = Param{Name: "GLM.PriorSD", Value: positiveOr(value, 1), Max: math.Inf(1)}
		c.Prior = learn.Normal{Mean: d.scale, SD: d.spread}
		if len(spread) > 1 {
			c.Name = fmt.Sprintf("GLM.PriorSD[%d]", b)
			mean := d.scale - 0.5*math.Log(float64(len(spread)))
			c.Prior = learn.Normal{Mean: mean, SD: listSD, Shared: d.spread}
		}
		if r2 > 0 && !math.IsInf(r2, 0) {
			c.Prior.Mean -= 0.5 * math.Log(r2)
		}
		if c.Start = c.theta(c.Value); value == 0 {
			c.Start = c.Prior.Mean
		}
	}
	return coords
}

// noise returns start and prior of parameter i of the likelihood.
func (d *learnData) noise(c *learnCoord, lik Likelihood, i int, unset bool) (start float64,
	prior learn.Normal) {
	start = c.theta(c.Value)
	prior = learn.Normal{Mean: start, SD: freeSD}
	sd := d.scale - math.Log(noisePart)
	switch lik.(type) {
	case GaussianNoise:
		c.noise = 2
	case StudentT:
		if c.noise = 1; i == 0 {
			c.noise, prior = 0, learn.Normal{Mean: math.Log(4), SD: relativeSD}
		}
	case Laplace:
		c.noise = 1
	}
	if c.noise > 0 {
		prior = learn.Normal{Mean: c.noise * sd, SD: c.noise * linkScaleSD}
	}
	if unset {
		start = prior.Mean
	}
	return start, prior
}

// unsetParams returns the parameters of l whose fields are zero.
func unsetParams(l Likelihood) (names []string) {
	unset := func(name string, v float64) {
		if v == 0 {
			names = append(names, name)
		}
	}
	switch l := l.(type) {
	case GaussianNoise:
		unset("Var", l.Var)
	case StudentT:
		unset("DF", l.DF)
		unset("Scale", l.Scale)
	case Laplace:
		unset("Scale", l.Scale)
	}
	return names
}
