package pgsvi

import (
	"fmt"
	"math"
	"math/cmplx"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// LearnOptions are the options of learning hyper-parameters. The zero value, and a nil pointer, mean
// that all of them are learned, with the default priors.
//
// Parameters are named as in Learned.Params: after the type that they are of, such as SquaredExp.Length[3],
// Sum[0].SquaredExp.Scale, GLM.PriorSD[2] or StudentT.DF. A name without its index, SquaredExp.Length, stands for all of a list.
// They are learned as θ = log(value − Min), or as they are where Min is −Inf; see Param.
type LearnOptions struct {
	// Fixed are the parameters that keep their values.
	Fixed []string
	// Prior replaces the default priors by name.
	Prior map[string]Prior
	// NoPrior leaves the default priors out: what is maximised is the ELBO, less what Prior says.
	NoPrior bool
	// Bounds are the least and the largest value of parameters, by name, in place of the default ones, which are far off.
	Bounds map[string][2]float64
	// Restarts is the number of further starts, drawn from the priors. The best is kept; Learned.Starts shows all.
	Restarts int
	// Tol is how many nats the objective may be below its maximum, as its quadratic model promises. Zero means 1e-4.
	Tol float64
}

// Prior is a normal prior of a parameter in θ, see LearnOptions. For a list of parameters, such as Length[0],
// Length[1], …, it is θ_d = Mean + Shared·u + SD·e_d with u, e_d ~ N(0, 1): the Shared u is one for all of the list. SD is positive.
type Prior struct{ Mean, SD, Shared float64 }

// Learned is what learning reached. Printed, it is a table.
type Learned struct {
	// Params are the parameters of the kernel, or the prior standard deviations of a GLM, and then those of the likelihood, learned or not.
	Params []LearnedParam
	// Objective is what was minimised, −ELBO + ½(θ − μ)ᵀΛ(θ − μ) in nats: the priors N(μ, Λ⁻¹) without their constants.
	Objective float64
	// LogPrior is −½(θ − μ)ᵀΛ(θ − μ) of it.
	LogPrior float64
	// Evaluations is the number of values of the hyper-parameters that were tried, each of them once or, where the search came
	// to need it more exactly, twice. The ratios of GaussianNoise.Var to the scale that a start is chosen by, a factorisation each, count as one.
	Evaluations int
	// Cholesky is the work that they took, in Cholesky factorisations of all N rows, N³/3 operations: one for a factor, one for its inverse and
	// one for the square of that. Of a GLM over its weights, as where there are more rows than these, it is passes over the rows.
	Cholesky float64
	// Passes is the work of a SparseGP, which has no Cholesky: passes over all rows, one over a part of them being that part.
	Passes float64
	// Starts are the objectives that the starts ended with, in order.
	Starts []float64
	// Warnings say what may be wrong with the parameters, and of a search that met a limit of its Solver that it did.
	Warnings []string
	// Search is the run over the hyper-parameters, whose steps are evaluations. The ELBO of its iterations
	// is −Objective, and their Gap what the quadratic model promises. Solver.Resume goes on with it.
	Search *Result
	// Fit is the run that ended with the posterior, at the parameters learned. It is nil where the search failed or was canceled.
	Fit *Result
}

// LearnedParam is a parameter, and what is known of it.
type LearnedParam struct {
	Param
	// Fixed reports that it was not learned.
	Fixed bool
	// Prior is its prior; a zero SD means none.
	Prior Prior
	// SD is about the standard deviation of θ under the Laplace approximation with the curvature of the search.
	SD float64
	// AtBound reports that it ended at one of its bounds.
	AtBound bool
	// Differences reports that its kernel has no derivatives, so that differences were taken.
	Differences bool
}

// String returns a line on the search, a table of the parameters with the intervals that hold 95% of what is left of each, by its SD, and of its prior, and the warnings.
func (l *Learned) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, objective %.6g nats\n",
		countOf(len(l.Params), "parameter"), countOf(l.Evaluations, "evaluation"), l.Objective)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\tvalue\t2.5%\t97.5%\tprior 2.5%\t97.5%\t\n")
	for _, p := range l.Params {
		c := learnCoord{Param: p.Param}
		between := func(mean, sd float64) string {
			if p.Fixed || !(sd > 0) {
				return "\t"
			}
			return fmt.Sprintf("%.4g\t%.4g", c.value(mean-normal975*sd), c.value(mean+normal975*sd))
		}
		note := ""
		switch {
		case p.Fixed:
			note = "fixed"
		case p.AtBound:
			note = "at its bound"
		}
		fmt.Fprintf(table, "%s\t%.4g\t%s\t%s\t%s\n", p.Name, p.Value, between(c.theta(p.Value), p.SD), between(p.Prior.Mean, math.Hypot(p.Prior.SD, p.Prior.Shared)), note)
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

// normal975 is the quantile of N(0, 1) at 97.5%.
const normal975 = 1.959963984540054

// learnTol is the default of LearnOptions.Tol.
const learnTol = 1e-4

// Default priors, from trials on ten data sets: weak enough to move test log loss by less than 0.003 bits, and strong
// enough that every one of 30 random starts gets off the plateaus of a diagonal K and of a scale of 0.
const (
	logitScaleMean, logitScaleStart = 2, 1 // of log Scale, where latent values are log odds
	logitScaleSD                    = 1
	linkScaleSD                     = 1.5 // of log Scale about 0, where they are logarithms, and about that of the responses
	lengthSD                        = 1   // of log Length about the median distance/√2
	listSD, listShared              = 0.5, 1
	noisePart                       = 4 // noise is that much less than the responses' scale
	freeSD                          = 2 // of whatever the caller has set
	relativeSD                      = 1
	periodSD                        = 0.1
	farBound                        = 12                // of θ, on both sides of its prior's mean
	madPerSD                        = 1.482602218505602 // of a normal variable
)

// learnCoord is a parameter on its way.
type learnCoord struct {
	Param
	group      string // the name without index
	likelihood bool
	fixed      bool
	differ     bool
	start      float64 // in θ
	lo, hi     float64 // in θ
	prior      Prior
	screened   bool    // its start is one of several
	amplitude  bool    // a standard deviation of latent values
	unset      bool    // its field is zero
	noisier    float64 // from its start to as much noise as the responses vary, where it is a variance of noise that is not set
}

// inLog reports whether it is learned in a logarithm.
func (c *learnCoord) inLog() bool { return !math.IsInf(c.Min, -1) }

// theta returns the value v as θ.
func (c *learnCoord) theta(v float64) float64 {
	if c.inLog() {
		return math.Log(v - c.Min)
	}
	return v
}

// value is the inverse of theta.
func (c *learnCoord) value(theta float64) float64 {
	if c.inLog() {
		return c.Min + math.Exp(theta)
	}
	return theta
}

// learnSpace is the space of the hyper-parameters of a kernel and a likelihood.
type learnSpace struct {
	coords []learnCoord
	free   []int      // those that are learned
	x      *mat.Dense // rows of the kernel
	kernel Kernel
	slopes Kernel // kernel, with differences for the derivatives that it has not
	lik    Likelihood
	prec   *mat.SymDense // Λ of the free ones
	mean   []float64     // and μ
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
func newLearnSpace(k Kernel, lik Likelihood, rows *rowPairs, y []float64, o *LearnOptions) (*learnSpace, error) {
	s := &learnSpace{x: rows.x, kernel: k, lik: lik}
	slopes, differ, err := derivable(k, rows.x)
	if err != nil {
		return nil, err
	}
	s.slopes = slopes
	d := newLearnData(rows, y, lik)
	_, composite := kernelParts(k)
	roles := kernelRoles(k)
	if slices.ContainsFunc(roles, func(r paramRole) bool { return r.kind == periodParam && r.unset }) {
		d.period = learnPeriod(rows.x, y)
	}
	if factsOf(lik).Support == RealLine && !slices.ContainsFunc(roles, func(r paramRole) bool { return r.kind == offsetParam || r.kind == weightParam }) {
		d.start = d.offset(false) // nothing else takes latent values to where the responses are
	}
	var lists int      // of lengths that are not set,
	var lengths string // the last of them
	for i, p := range k.Params() {
		of := kernelName(k)
		r := roles[i]
		c := learnCoord{Param: p, fixed: r.held}
		c.start, c.prior = d.kernel(&c, r, composite)
		c.Name = paramName(of, p.Name)
		c.amplitude, c.unset = r.kind.amplitude(), r.unset
		if c.screened = r.kind == lengthParam && r.unset; c.screened {
			if lengths != groupOf(c.Name) {
				lengths = groupOf(c.Name)
				lists++
			}
			if lists > 1 { // parts alike that start alike stay so
				c.start -= math.Log(screenShorter[min(lists-2, len(screenShorter)-1)])
			}
		}
		for _, part := range differ {
			c.differ = c.differ || !composite || strings.HasPrefix(c.Name, paramName(of, part))
		}
		s.coords = append(s.coords, c)
	}
	for i := range s.coords { // of several parts none is known to be the short one
		s.coords[i].screened = s.coords[i].screened && lists == 1
	}
	return s, s.finish(d, o)
}

// finish adds the parameters of the likelihood, for which d has the defaults, and applies the options.
func (s *learnSpace) finish(d *learnData, o *LearnOptions) error {
	lik := s.lik
	if p, ok := lik.(Parametric); ok {
		unset := unsetParams(lik)
		for i, p := range p.Params() {
			c := learnCoord{Param: p, likelihood: true}
			c.start, c.prior = d.noise(&c, lik, i, slices.Contains(unset, p.Name))
			if c.unset = slices.Contains(unset, p.Name); s.gaussian() && c.unset {
				c.noisier = 2 * math.Log(noisePart)
			}
			_, exposure := lik.(Poisson)
			c.fixed = exposure
			c.Name = paramName(typeName(lik), p.Name)
			s.coords = append(s.coords, c)
		}
	}
	for i := range s.coords {
		c := &s.coords[i]
		c.group = groupOf(c.Name)
		c.lo, c.hi = c.prior.Mean-farBound, c.prior.Mean+farBound
		if !c.inLog() {
			c.lo, c.hi = math.Inf(-1), math.Inf(1)
		}
		if o.NoPrior {
			c.prior = Prior{}
		}
	}
	return s.take(o)
}

// take applies the options.
func (s *learnSpace) take(o *LearnOptions) error {
	named := func(name string, f func(c *learnCoord)) error {
		found := false
		for i := range s.coords {
			if c := &s.coords[i]; c.Name == name || c.group == name {
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
		return fmt.Errorf("pgsvi: LearnOptions name %q, the parameters are %s: %w", name, strings.Join(names, ", "), ErrParam)
	}
	for _, name := range o.Fixed {
		if err := named(name, func(c *learnCoord) { c.fixed = true }); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(o.Prior) {
		p := o.Prior[name]
		if !(p.SD > 0) || math.IsInf(p.SD, 0) || math.IsNaN(p.Mean) || math.IsInf(p.Mean, 0) || !(p.Shared >= 0) || math.IsInf(p.Shared, 0) {
			return fmt.Errorf("pgsvi: LearnOptions.Prior of %s is %+v; its SD must be positive, and all of it finite: %w", name, p, ErrParam)
		}
		if err := named(name, func(c *learnCoord) { c.prior = p }); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(o.Bounds) {
		b := o.Bounds[name]
		if err := named(name, func(c *learnCoord) { c.lo, c.hi = c.theta(b[0]), c.theta(b[1]) }); err != nil {
			return err
		}
		if !(b[0] < b[1]) {
			return fmt.Errorf("pgsvi: LearnOptions.Bounds of %s are %v, the least value and the largest: %w", name, b, ErrParam)
		}
	}
	if o.Restarts < 0 || !(o.Tol >= 0) || math.IsInf(o.Tol, 0) {
		return fmt.Errorf("pgsvi: LearnOptions.Restarts is %d and Tol %v; they must not be negative: %w", o.Restarts, o.Tol, ErrParam)
	}
	for i := range s.coords {
		c := &s.coords[i]
		if math.IsNaN(c.lo) || math.IsNaN(c.hi) {
			return fmt.Errorf("pgsvi: LearnOptions.Bounds of %s are outside its range, from %v: %w", c.Name, c.Min, ErrParam)
		}
		if c.inLog() && !math.IsInf(c.Max, 1) {
			c.hi = min(c.hi, c.theta(c.Max)-1e-9)
		}
		if c.fixed {
			c.start = c.theta(c.Value)
			c.prior = Prior{}
			continue
		}
		if c.start < c.lo || c.start > c.hi {
			c.start, c.screened = min(max(c.start, c.lo), c.hi), false
		}
		s.free = append(s.free, i)
	}
	if len(s.free) == 0 {
		return fmt.Errorf("pgsvi: no hyper-parameter is left to be learned: %w", ErrParam)
	}
	s.precision()
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// precision makes Λ: of a list with SD σ_d and a Shared τ it is the inverse of diag(σ²) + τ²11ᵀ.
func (s *learnSpace) precision() {
	n := len(s.free)
	s.prec, s.mean = mat.NewSymDense(n, nil), make([]float64, n)
	w := make([]float64, n)
	for i, at := range s.free {
		if p := s.coords[at].prior; p.SD > 0 {
			s.mean[i], w[i] = p.Mean, 1/(p.SD*p.SD)
			s.prec.SetSym(i, i, w[i])
		}
	}
	shared := map[string][]int{}
	for i, at := range s.free {
		if c := s.coords[at]; c.prior.SD > 0 && c.prior.Shared > 0 {
			key := fmt.Sprint(c.group, c.prior.Shared)
			shared[key] = append(shared[key], i)
		}
	}
	for _, list := range shared {
		tau2 := s.coords[s.free[list[0]]].prior.Shared
		tau2 *= tau2
		var sum float64
		for _, i := range list {
			sum += w[i]
		}
		for a, i := range list {
			for _, j := range list[:a+1] {
				s.prec.SetSym(i, j, s.prec.At(i, j)-tau2/(1+tau2*sum)*w[i]*w[j])
			}
		}
	}
}

// penalty returns ½(θ − μ)ᵀΛ(θ − μ) and adds its gradient to g.
func (s *learnSpace) penalty(theta, g []float64) float64 {
	d, l := mat.NewVecDense(len(theta), nil), mat.NewVecDense(len(theta), nil)
	for i, t := range theta {
		d.SetVec(i, t-s.mean[i])
	}
	l.MulVec(s.prec, d)
	for i := range g {
		g[i] += l.AtVec(i)
	}
	return 0.5 * mat.Dot(d, l)
}

// noisyStart returns a start with lengths at theirs and as much noise as the responses vary, which is tried where shorter lengths look better: they do without noise
// that is there. It is nil where no lengths are screened or no noise is learned.
func (s *learnSpace) noisyStart() []float64 {
	first := s.starts()[0]
	noisy := slices.Clone(first)
	for i, at := range s.free {
		noisy[i] = min(s.coords[at].hi, noisy[i]+s.coords[at].noisier)
	}
	if s.screened() == 0 || slices.Equal(noisy, first) {
		return nil
	}
	return noisy
}

// noiseRay returns which free parameter is the variance of Gaussian noise, −1 if it is none or was set, and those that with it change the covariance of the responses by a factor: the
// standard deviations that the kernel has. These are nil if some of them are set, or K is not in proportion to the square of all of them together.
func (s *learnSpace) noiseRay() (noise int, scales []int) {
	noise = -1
	for i, at := range s.free {
		switch c := &s.coords[at]; {
		case c.likelihood && c.unset && s.gaussian():
			noise = i
		case c.amplitude && c.unset && c.Min == 0:
			scales = append(scales, i)
		}
	}
	if noise < 0 || len(scales) == 0 {
		return noise, nil
	}
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
			return noise, nil
		}
	}
	return noise, scales
}

// scaledSteps is more than Newton's method takes, or bisection, until a float64 does not change.
const scaledSteps = 100

// scaled moves the given scales of θ by a δ, and the noise by 2δ, to where weights·δ + ½e^(−2δ)·square + ½(θ − μ)ᵀΛ(θ − μ) is least within the bounds, and returns that. It is convex in δ.
func (s *learnSpace) scaled(theta []float64, noise int, scales []int, weights, square float64) float64 {
	if len(scales) == 0 {
		return 0.5*square + s.penalty(theta, nil)
	}
	d := make([]float64, len(theta))
	d[noise] = 2
	for _, i := range scales {
		d[i] = 1
	}
	lo, hi := math.Inf(-1), math.Inf(1)
	for i, rate := range d {
		if c := &s.coords[s.free[i]]; rate > 0 {
			lo, hi = max(lo, (c.lo-theta[i])/rate), min(hi, (c.hi-theta[i])/rate)
		}
	}
	grad := make([]float64, len(theta))
	s.penalty(theta, grad)
	slope, v := floats.Dot(grad, d), mat.NewVecDense(len(d), d)
	curve := mat.Inner(v, s.prec, v)
	var delta float64
	for range scaledSteps {
		e := math.Exp(-2*delta) * square
		g, h := weights-e+slope+curve*delta, 2*e+curve
		if g > 0 {
			hi = min(hi, delta)
		} else {
			lo = max(lo, delta)
		}
		next := delta - g/h
		if !(lo <= next && next <= hi) {
			next = 0.5 * (lo + hi)
		}
		if delta == next || math.IsInf(next, 0) || math.IsNaN(next) {
			break
		}
		delta = next
	}
	floats.AddScaled(theta, delta, d)
	return weights*delta + 0.5*math.Exp(-2*delta)*square + s.penalty(theta, nil)
}

// starts returns the θ that are tried before the search begins: with lengths at their start, and the shorter ones of screenShorter.
func (s *learnSpace) starts() (all [][]float64) {
	first := make([]float64, len(s.free))
	for i, at := range s.free {
		first[i] = s.coords[at].start
	}
	all = append(all, first)
	if s.screened() == 0 {
		return all
	}
	for _, shorter := range screenShorter {
		theta := slices.Clone(first)
		for i, at := range s.free {
			if c := s.coords[at]; c.screened {
				theta[i] = max(c.lo, theta[i]-math.Log(shorter))
			}
		}
		all = append(all, theta)
	}
	return all
}

// screened returns the number of parameters whose start is one of several.
func (s *learnSpace) screened() (n int) {
	for _, at := range s.free {
		if s.coords[at].screened {
			n++
		}
	}
	return n
}

// screenShorter is by how much shorter lengths are tried than the median distance: from there a search in few columns does not find
// structure that is far finer, for which it starts on a plateau.
var screenShorter = [...]float64{5, 25}

// at returns kernel, kernel with derivatives, and likelihood at θ. The error wraps ErrParam where they are not valid.
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

// held returns an error that wraps ErrParam if a parameter is too small for a float64: 0 would mean its default.
func (s *learnSpace) held(theta []float64) error {
	for i, at := range s.free {
		if c := &s.coords[at]; c.inLog() && c.value(theta[i]) == 0 {
			return fmt.Errorf("pgsvi: %s is e^%v, which a float64 does not hold: %w", c.Name, theta[i], ErrParam)
		}
	}
	return nil
}

// values returns the parameters that are not the likelihood's, and the likelihood, at θ.
func (s *learnSpace) values(theta []float64) (prior []float64, lik Likelihood) {
	var own []float64
	free := make([]float64, len(s.coords))
	for i := range free {
		free[i] = math.NaN()
	}
	for i, at := range s.free {
		free[at] = theta[i]
	}
	lik = s.lik
	for i := range s.coords {
		c := &s.coords[i]
		v := c.Value
		if !math.IsNaN(free[i]) {
			v = c.value(free[i])
		}
		if !c.likelihood {
			prior = append(prior, v)
			continue
		}
		p := lik.(Parametric).Params() // whose Min may depend on the values before
		if !math.IsNaN(free[i]) {
			now := *c
			now.Param = p[len(own)]
			v = now.value(free[i])
		}
		own = append(own, v)
		values := slices.Clone(own)
		for _, rest := range p[len(own):] {
			values = append(values, rest.Value)
		}
		lik = lik.(Parametric).WithParams(values)
	}
	return prior, lik
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

// chain turns derivatives of the free kernel parameters as Kernel.Grad has them, in dst, into those in θ.
func (s *learnSpace) chain(dst []float64, k Kernel) {
	for i, p := range k.Params() {
		switch {
		case math.IsInf(p.Min, -1):
		case p.Min > 0:
			dst[i] *= (p.Value - p.Min) / p.Value
		case p.Min < 0:
			dst[i] *= p.Value - p.Min
		}
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
	length        float64 // log c, the median distance over √2
	columns       []float64
	far           float64 // Σ_j (x̄_j/σ_j)², how far from the origin the rows are
	middle        float64 // of the responses, where they have the units of the latent values
	scale         float64 // log of the scale of the latent values: that of the responses, where they have the same units
	start, spread float64 // of log Scale
	period        float64 // of the responses, 0 where none was looked for
}

func newLearnData(rows *rowPairs, y []float64, lik Likelihood) *learnData {
	x := rows.x
	n, cols := x.Dims()
	d := &learnData{length: math.Log(medianDistance(rows)) - math.Ln2/2, columns: make([]float64, cols)}
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
	d.scales(y, lik)
	return d
}

// scales finds the scale of the latent values under lik.
func (d *learnData) scales(y []float64, lik Likelihood) {
	f := factsOf(lik)
	switch {
	case f.Support == RealLine:
		d.middle = dense.Median(slices.Clone(y))
		d.scale, d.spread = math.Log(robustScale(y)), linkScaleSD
		d.start = d.scale
	case f.Support == Counts && f.Most == 0, f.Support == Positive, f.Support == NonNegative:
		d.spread = linkScaleSD
	default:
		d.scale, d.start, d.spread = logitScaleMean, logitScaleStart, logitScaleSD
	}
}

// The periodogram by which a Period that is not set begins.
const (
	periodTrend  = 3 // the degree of the polynomial about which responses vary
	periodCycles = 2 // least number of periods that the rows go through: slower ones are a trend
	periodFiner  = 4 // frequencies for each one that as many regular rows tell apart
	periodRows   = 4 * (periodTrend + 1)
)

// learnPeriod returns the period of the sine that explains most of what a trend leaves of y, by the least squares of Lomb (1976) and Scargle (1982), down to that of two rows on average. It is 0 of
// rows of several columns, and of too few or all equal ones.
func learnPeriod(x *mat.Dense, y []float64) float64 {
	n, cols := x.Dims()
	if cols != 1 || n < periodRows {
		return 0
	}
	at := x.RawMatrix().Data // of one column
	lo, span := floats.Min(at), floats.Max(at)-floats.Min(at)
	if !(span > 0) || math.IsInf(span, 0) {
		return 0
	}
	trend := mat.NewDense(n, periodTrend+1, nil)
	scale := robustScale(y)
	middle := dense.Median(slices.Clone(y))
	rest := mat.NewVecDense(n, nil)
	for i, v := range at {
		u := 1.0
		for j := range periodTrend + 1 {
			trend.Set(i, j, u)
			u *= 2*(v-lo)/span - 1
		}
		rest.SetVec(i, (y[i]-middle)/scale)
	}
	var qr mat.QR
	var coef, fitted mat.VecDense
	qr.Factorize(trend)
	if qr.SolveVecTo(&coef, false, rest) != nil {
		return 0
	}
	fitted.MulVec(trend, &coef)
	rest.SubVec(rest, &fitted)
	turn, now := make([]complex128, n), make([]complex128, n) // e^(2πi·x·frequency), of one step and of now
	step := 1 / (periodFiner * span)
	for i, v := range at {
		turn[i] = cmplx.Rect(1, 2*math.Pi*step*(v-lo))
		now[i] = cmplx.Rect(1, 2*math.Pi*periodCycles/span*(v-lo))
	}
	best, most := 0.0, 0.0
	for k := range periodFiner * (n/2 - periodCycles) {
		var cc, cs, ss, yc, ys float64
		for i, z := range now {
			c, s, r := real(z), imag(z), rest.AtVec(i)
			cc += c * c
			cs += c * s
			ss += s * s
			yc += r * c
			ys += r * s
			now[i] = z * turn[i]
		}
		if power := (yc*yc*ss - 2*yc*ys*cs + ys*ys*cc) / (cc*ss - cs*cs); power > most && cc*ss-cs*cs > 1e-6*cc*ss {
			best, most = periodCycles/span+float64(k)*step, power
		}
	}
	if best == 0 {
		return 0
	}
	return 1 / best
}

// robustScale returns the standard deviation of y by the median absolute deviation, by itself where that is 0, and 1 if there is none.
func robustScale(y []float64) float64 {
	mid := dense.Median(slices.Clone(y))
	var square float64
	dev := make([]float64, len(y))
	for i, v := range y {
		dev[i] = math.Abs(v - mid)
		square += dev[i] * dev[i] / float64(len(y))
	}
	for _, s := range [2]float64{madPerSD * dense.Median(dev), math.Sqrt(square)} {
		if s > 0 && !math.IsInf(s, 0) {
			return s
		}
	}
	return 1
}

// offset returns the logarithm of how far an offset may have to reach: from 0 to the responses and, beside weights of columns, as
// far as the line goes from the origin to the rows.
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

// kernel returns start and prior of a parameter of the kernel. What the caller has set is where it starts; in a Sum or a Product, where that
// says which part it is, the prior is about it, too.
func (d *learnData) kernel(c *learnCoord, r paramRole, composite bool) (start float64, prior Prior) {
	start = c.theta(c.Value)
	given := !r.unset && (composite || r.kind == otherParam)
	switch r.kind {
	case scaleParam:
		prior = Prior{d.scale, d.spread, 0}
	case offsetParam:
		prior = Prior{d.offset(r.beside), d.spread, 0}
	case noiseParam:
		prior = Prior{d.scale - math.Log(noisePart), d.spread, 0}
	case weightParam:
		prior = Prior{d.scale, d.spread, 0}
		if r.column >= 0 {
			prior.Mean += 0.5*math.Log(float64(len(d.columns))) - d.columns[r.column]
		} else {
			prior.Mean -= d.length
		}
	case lengthParam:
		prior = Prior{d.length, lengthSD, 0}
		if r.column >= 0 {
			prior = Prior{d.columns[r.column], listSD, listShared}
		}
	case periodParam:
		if r.unset && d.period > 0 {
			start = c.theta(d.period)
		}
		return start, Prior{start, periodSD, 0}
	case relativeParam:
		return start, Prior{start, relativeSD, 0}
	default:
		return start, Prior{start, freeSD, 0}
	}
	if given {
		return start, Prior{start, freeSD, 0}
	}
	if r.unset {
		if start = prior.Mean; r.kind == scaleParam {
			start = d.start
		}
	}
	return start, prior
}

// noise returns start and prior of parameter i of the likelihood.
func (d *learnData) noise(c *learnCoord, lik Likelihood, i int, unset bool) (start float64, prior Prior) {
	start = c.theta(c.Value)
	prior = Prior{start, freeSD, 0}
	sd := d.scale - math.Log(noisePart)
	switch lik.(type) {
	case GaussianNoise:
		prior = Prior{2 * sd, 2 * linkScaleSD, 0}
	case StudentT:
		if prior = (Prior{sd, linkScaleSD, 0}); i == 0 {
			prior = Prior{math.Log(4), relativeSD, 0}
		}
	case Laplace:
		prior = Prior{sd, linkScaleSD, 0}
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
