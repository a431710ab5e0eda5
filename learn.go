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

// LearnOptions holds the options for learning hyperparameters. The zero value and a nil pointer
// learn all hyperparameters with the default priors.
//
// Parameters have the names in Learned.Params: the type and the field, such as
// SquaredExp.Length[3], Sum[0].SquaredExp.Scale, GLM.PriorSD[2] or StudentT.DF. A name without an
// index, such as SquaredExp.Length, refers to all elements of a list.
//
// Parameters are learned as θ, a transformation to the real line that Param defines. Priors are
// densities of θ and not of the value, so the objective has no Jacobian. The intervals of Learned
// are Laplace approximations in θ. The default prior of a parameter of a custom kernel or
// likelihood is N(θ, 2²), centered at its start.
type LearnOptions struct {
	// Fixed lists the parameters that keep their values.
	Fixed []string
	// Prior replaces default priors, by parameter name.
	Prior map[string]Prior
	// NoPrior removes the default priors. The objective is then the ELBO plus the log of the priors
	// in Prior.
	NoPrior bool
	// Bounds holds the smallest and the largest value of parameters, by name. They replace the wide
	// default bounds, and must lie between Min and Max of the Param.
	Bounds map[string][2]float64
	// Restarts is the number of additional starts, at most 1000, which are drawn from the priors.
	// The best result is kept. Learned.Starts lists all results.
	Restarts int
	// Tol is the tolerance of the search in nats: how far the objective may be from its optimum,
	// according to its quadratic model. Zero means 1e-4, to which SparseGP.Learn adds 1e-4 for each
	// row beyond 5000.
	Tol float64
	// Integrate makes the posterior a mixture over the values of the hyperparameters, as INLA does
	// (Rue, Martino and Chopin, 2009). Without it the posterior belongs to their best values, and
	// its variances include their uncertainty to first order. That is accurate if the data
	// determine the hyperparameters well. Integrate pays for up to about 50 rows, or if noise and
	// function can hardly be told apart.
	//
	// The density of θ is proportional to exp(ELBO(θ)) p(θ) between the Bounds. One, two or three
	// parameters are integrated on a lattice of about 9, 37 or 81 points. With at most 200 rows,
	// the lattice may have up to 60, 250 or 900 points. Four to ten parameters are integrated by a
	// central composite design of 25 to 149 points, which is less accurate. More than ten
	// parameters are an error. Each point costs a fit, and makes every prediction take as long as
	// one more posterior would. A GP also keeps about N² numbers for each point.
	//
	// Predictions, effects, weights, GLM.LOO and the intervals of Learned then use the mixture. LOO
	// of a GP or SparseGP, PSIS and the updates of a posterior use the best values.
	Integrate bool
}

// mostRestarts limits LearnOptions.Restarts, because each restart keeps its start and takes up to
// hundreds of fits.
const mostRestarts = 1000

// A Prior is a normal prior N(Mean, SD²) of a parameter, in θ (see LearnOptions). For a list of
// parameters, such as Length[0], Length[1], …, it is θ_d = Mean + Shared·u + SD·e_d with u, e_d ~
// N(0, 1), where all elements share u. SD must be positive.
type Prior struct{ Mean, SD, Shared float64 }

// Learned is the result of learning hyperparameters. It prints as a table.
type Learned struct {
	// Params holds the parameters of the kernel, or the prior standard deviations of a GLM,
	// followed by the parameters of the likelihood. It includes fixed parameters.
	Params []LearnedParam
	// Objective is the minimized value, −ELBO + ½(θ − μ)ᵀΛ(θ − μ), in nats. The constants of the
	// priors N(μ, Λ⁻¹) are left out.
	Objective float64
	// LogPrior is the part −½(θ − μ)ᵀΛ(θ − μ) of −Objective.
	LogPrior float64
	// Evaluations is the number of values of θ that were tried. A value counts twice if the search
	// later needed it more accurately. For a start, the search tries several ratios of
	// GaussianNoise.Var to the scale with one factorization each, and all of them count as one
	// evaluation.
	Evaluations int
	// Cholesky is the work in units of a Cholesky factorization of all N rows, N³/3 operations. A
	// factor, its inverse and the square of the inverse count as one unit each. For a GLM with more
	// rows than weights Cholesky is the number of passes over the rows; a pass over a part of the
	// rows counts as that part.
	Cholesky float64
	// Passes is the work of a SparseGP, in passes over all rows; Cholesky is then 0. A pass over a
	// part of the rows counts as that part.
	Passes float64
	// Starts holds the final objectives of all starts, in order.
	Starts []float64
	// Points is the number of values of the hyperparameters in the posterior with
	// LearnOptions.Integrate, and 0 without it.
	Points int
	// Warnings describes possible faults of the parameters, and reports whether the search reached
	// a limit of the Solver.
	Warnings []string
	// Search is the run over the hyperparameters; a step is an evaluation. The ELBO of its
	// iterations is −Objective, and their Gap is the predicted gain of the quadratic model.
	// Solver.Resume continues it.
	Search *Result
	// Fit is the final run at the learned parameters, which produced the posterior. It is nil if
	// the search failed or was canceled.
	Fit *Result
}

// A LearnedParam is a hyperparameter with its value, prior and uncertainty.
type LearnedParam struct {
	Param
	// Fixed reports whether the parameter kept its value.
	Fixed bool
	// Prior is the prior that was used. A zero SD means that the parameter has no prior.
	Prior Prior
	// SD is the posterior standard deviation of θ (see Param), by a Laplace approximation or from
	// the mixture of LearnOptions.Integrate. For up to 2000 rows, the curvature of the Laplace
	// approximation comes from differences of the gradient, with one evaluation per parameter. The
	// search provides the curvature if there are more rows, if there are more than 12 parameters
	// and the search made fewer evaluations than there are parameters, and for a SparseGP.
	SD float64
	// Lo and Hi are the ends of a 95% interval of Value, which is the transformed interval of θ.
	// With LearnOptions.Integrate the interval reflects the skewness of the posterior of θ. Both
	// ends equal Value if the parameter is fixed. They are Min and Max if SD is unknown.
	Lo, Hi float64
	// AtBound reports whether the parameter ended at a bound, either from LearnOptions.Bounds or a
	// default bound.
	AtBound bool
	// Differences reports whether finite differences replaced missing derivatives of the kernel.
	Differences bool
}

// String returns a line about the search, a table of the parameters with 95% intervals of each
// posterior and prior, and the warnings.
func (l *Learned) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, objective %.6g nats\n",
		countOf(len(l.Params), "parameter"), countOf(l.Evaluations, "evaluation"), l.Objective)
	if l.Points > 0 {
		fmt.Fprintf(&b, "integrated over %s\n", countOf(l.Points, "point"))
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\tvalue\t2.5%\t97.5%\tprior 2.5%\t97.5%\t\n")
	for _, p := range l.Params {
		c := &p.Param
		between := func(sd, lo, hi float64) string {
			if p.Fixed || !(sd > 0) {
				return "\t"
			}
			return fmt.Sprintf("%.4g\t%.4g", lo, hi)
		}
		prior := math.Hypot(p.Prior.SD, p.Prior.Shared)
		lo, hi := c.interval(p.Prior.Mean, prior)
		note := ""
		switch {
		case p.Fixed:
			note = "fixed"
		case p.AtBound:
			note = "at its bound"
		}
		fmt.Fprintf(table, "%s\t%.4g\t%s\t%s\t%s\n", p.Name, p.Value,
			between(p.SD, p.Lo, p.Hi), between(prior, lo, hi), note)
	}
	_ = table.Flush() // writes to memory
	for _, w := range l.Warnings {
		fmt.Fprintln(&b, "warning:", w)
	}
	return b.String()
}

// countOf returns n and the noun, in the plural unless n is 1.
func countOf(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// These constants define the default priors. They come from trials on ten data sets. The priors are
// weak enough to change the test log loss by less than 0.003 bits, and strong enough that every one
// of 30 random starts leaves the plateaus of a diagonal K and of a scale of 0.
const (
	logitScaleMean, logitScaleStart = 2, 1 // log Scale if latent values are log odds
	logitScaleSD                    = 1
	// log √(π/8), the ratio of probits to log odds (Spiegelhalter and Lauritzen 1990)
	probitScale = -0.4673558
	// SD of log Scale about 0 if latent values are logarithms, else about the scale of the responses
	linkScaleSD        = 1.5
	lengthSD           = 1 // SD of log Length about the median distance/√2
	listSD, listShared = 0.5, 1
	noisePart          = 4 // ratio of the scale of the responses to the noise
	// smallest noise of equal responses relative to their scale; without it, no noise would be best
	quietNoise = 1e-2
	freeSD     = 2 // for a custom parameter, or a value that the caller sets
	relativeSD = 1
	periodSD   = 0.1
	farBound   = 12 // of θ, on both sides of its prior mean
)

// learnCoord is a parameter that is being learned.
type learnCoord struct {
	Param
	learn.Coord
	fixed     bool
	differ    bool
	amplitude bool // a standard deviation of latent values
	// 1 for the log standard deviation of noise, 2 for its log variance, and 0 for anything else
	noise float64
	unset bool // its field is zero
}

// learnSpace is the space of the hyperparameters of a kernel and a likelihood.
type learnSpace struct {
	learn.Space // space of the learned parameters

	coords []learnCoord
	free   []int // indices of the learned parameters
	// effects holds the first index of the parameters of groups of a Softmax, and the next index
	// after them. Learned does not list them; see GLMPosterior.Groups.
	effects [2]int
	x       *mat.Dense // rows of the kernel
	y       []float64  // responses of the rows
	kernel  Kernel
	slopes  Kernel // kernel, with differences for missing derivatives
	lik     Likelihood
}

// gaussian reports whether the terms are Gaussian, so that one step from any q is exact.
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

// newLearnSpace returns the space of k and lik, for the responses y of the rows.
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
		d.start = d.offset(false) // only the scale moves latent values to the responses
	}
	periods := startPeriods(k, roles, rows.X, y)
	seen := map[string]*learnData{fmt.Sprint([]int(nil)): d} // by the columns of an On
	var lists int                                            // number of lists of unset length scales
	var lengths string                                       // the last such list
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
			if lists > 1 { // equal parts with equal starts would stay equal
				c.Start -= math.Log(learn.ScreenShorter[min(lists-2, len(learn.ScreenShorter)-1)])
			}
		}
		for _, part := range differ {
			c.differ = c.differ || !composite || strings.HasPrefix(c.Name, paramName(of, part))
		}
		s.coords = append(s.coords, c)
	}
	for i := range s.coords { // any of several parts may have the short length scale
		s.coords[i].Screened = s.coords[i].Screened && lists == 1
	}
	return s, s.finish(d, o)
}

// finish adds the parameters of the likelihood, with the defaults of d, and applies the options.
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
		if s.effect(i) {
			continue // groupCoords has set the bounds
		}
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
			if c := &s.coords[i]; !s.effect(i) && (c.Name == name || c.Group == name) {
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
		return fmt.Errorf("pgsvi: LearnOptions name %q, which is not a parameter; use one of %s: "+
			"%w", name,
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
				"pgsvi: LearnOptions.Prior of %s is %+v; its SD must be positive, and all fields "+
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
				"pgsvi: LearnOptions.Bounds of %s is %v; the first must be below the second: %w",
				name, b, ErrParam)
		}
	}
	if o.Restarts < 0 || !(o.Tol >= 0) || math.IsInf(o.Tol, 0) {
		return fmt.Errorf(
			"pgsvi: LearnOptions.Restarts is %d and Tol %v; they must not be negative: %w",
			o.Restarts, o.Tol, ErrParam)
	}
	if o.Restarts > mostRestarts {
		return fmt.Errorf("pgsvi: LearnOptions.Restarts is %d; it must be at most %d: %w",
			o.Restarts, mostRestarts, ErrParam)
	}
	for i := range s.coords {
		c := &s.coords[i]
		if math.IsNaN(c.Lo) || math.IsNaN(c.Hi) {
			return fmt.Errorf(
				"pgsvi: LearnOptions.Bounds of %s must be within its range, from %v to %v: %w",
				c.Name,
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
		return fmt.Errorf("pgsvi: no hyperparameter is left to learn; shorten "+
			"LearnOptions.Fixed: %w", ErrParam)
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

// doubtfulPeriod is the lead over all other periods, in nats of evidence, below which a period gets
// a warning. It corresponds to odds of 150. fewCycles is the number of cycles that the rows must
// span.
const (
	doubtfulPeriod = 5
	fewCycles      = 2
	seasonRounds   = 2 // in which unset periods are found one after the other
)

// startPeriods returns the start of each parameter that is a period. The start is the value that is
// set, or the period with the most evidence next to the seasons of the other periods. Two periods
// that are not set are found in turn, so that they do not start at the same period. An element is 0
// if the parameter is not a period or if no period was found.
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

// otherPeriods returns the known periods except the period of parameter i.
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
	if s.kernel == nil { // a GLM has no kernel
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
				"%s is %.4g, but the responses are more likely to have a period of %.4g, by "+
					"about %.2g nats; set it to that value before learning",
				p.Name, p.Value, rival, nats))
		case nats > -doubtfulPeriod:
			all = append(all, fmt.Sprintf(
				"%s is %.4g, but a period of %.4g is nearly as likely, by about %.2g nats; set "+
					"it if it is known, or add rows", p.Name, p.Value, rival, -nats))
		case cycles > 0 && cycles < fewCycles:
			all = append(all, fmt.Sprintf(
				"the rows span only %.2g cycles of %s, which leaves it uncertain; set it if it "+
					"is known, or add rows", cycles, p.Name))
		}
	}
	return all
}

// amplitudes returns the free coordinates that are logarithms of standard deviations of latent
// values.
func (s *learnSpace) amplitudes() (list []int) {
	for i, at := range s.free {
		c := &s.coords[at]
		if c.amplitude && c.Min == 0 && math.IsInf(c.Max, 1) {
			list = append(list, i)
		}
	}
	return list
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

// noiseRay returns Noise and Scales of the space. Noise is the index of the free variance of
// Gaussian noise, or −1 if there is no such variance or it was set. Scales holds the indices of the
// standard deviations of the kernel. It is nil if some of them are set, or if K is not proportional
// to the square of all of them together.
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

// at returns the kernel, the kernel with derivatives, and the likelihood at θ. The error wraps
// ErrParam if they are not valid.
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

// held returns an error that wraps ErrParam if a parameter is too close to an end of its range for
// a float64, because 0 would mean its default.
func (s *learnSpace) held(theta []float64) error {
	for i, at := range s.free {
		if c := &s.coords[at]; !c.within(c.value(theta[i])) {
			return fmt.Errorf("pgsvi: %s at θ = %v rounds to the end of its range: %w",
				c.Name, theta[i], ErrParam)
		}
	}
	return nil
}

// values returns the parameters outside the likelihood, and the likelihood, at θ.
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

// under returns the parameters outside the likelihood, and t under the likelihood, at θ. The error
// wraps ErrParam if they are not valid.
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

// chainParams converts the derivatives of the free kernel parameters in dst from the scale of
// Kernel.Grad to θ.
func chainParams(dst []float64, k Kernel) {
	for i, p := range k.Params() {
		dst[i] *= p.slope()
	}
}

// effect reports whether a parameter belongs to the effects of groups, for which the end of its
// range is an ordinary value.
func (s *learnSpace) effect(at int) bool { return s.effects[0] <= at && at < s.effects[1] }

// digest adds the learned parameters and the options to d.
func (s *learnSpace) digest(d *save.Digest) {
	for _, c := range s.coords {
		d.Text(fmt.Sprintf("%+v", c))
	}
}

// learnData holds the statistics of the data that determine the defaults.
type learnData struct {
	length  float64 // log c, where c is the median distance over √2
	columns []float64
	far     float64 // Σ_j (x̄_j/σ_j)², the squared distance of the rows from the origin
	middle  float64 // median of the responses, if they have the units of the latent values
	// log of the scale of the latent values; the scale of the responses if they have the same units
	scale         float64
	start, spread float64 // start and SD of log Scale
	// log of the smallest standard deviation of noise; it is −Inf unless all responses are equal
	// and have the unit of the latent values, because equal responses would be most likely without
	// noise
	quiet  float64
	period float64 // period of the responses; 0 if none was searched
}

func newLearnData(rows *gram.Pairs, y []float64, lik Likelihood) *learnData {
	x := rows.X
	n, cols := x.Dims()
	d := &learnData{length: math.Log(rows.MedianDistance()) - math.Ln2/2,
		columns: make([]float64, cols)}
	for j := range d.columns {
		first := x.At(0, j) // so that a column that does not vary is at exactly 0
		var mean, square float64
		for i := range n {
			mean += (x.At(i, j) - first) / float64(n)
		}
		for i := range n {
			u := x.At(i, j) - first - mean
			square += u * u / float64(n)
		}
		mean += first
		d.columns[j] = d.length // the default of a column that does not vary
		if square > 0 && !math.IsInf(square, 0) {
			d.columns[j] = 0.5 * math.Log(square*float64(cols))
			d.far += mean / square * mean
		}
	}
	d.scales(y, nil, lik)
	return d
}

// scales computes the scale of the latent values under lik. Nil weights are 1.
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

// offset returns the logarithm of the distance that an offset may have to cover: from 0 to the
// responses and, next to weights of columns, along the line from the origin to the rows.
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

// kernel returns the start and the prior of a parameter of the kernel. If the caller sets a value,
// it is the start. In a Sum or Product it also identifies the part, and the prior is centered at
// it.
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

// scaleCoords returns the coordinates of the prior standard deviations of blocks of weights. spread
// holds the sum of the variances of the columns of each block, and d has the defaults. A value of 0
// means that the standard deviation is not set.
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

// noise returns the start and the prior of parameter i of the likelihood.
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

// unsetParams returns the names of the parameters of l whose fields are zero.
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

// normal95 is the quantile of a standard normal at 97.5%.
const normal95 = 1.959963984540054
