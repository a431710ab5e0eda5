package trust

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// groupsSubject is the subject of mixed models. Its reference is the model of the same one-hot
// columns with the Σ that the fit found, whitened by the L of Σ = LLᵀ, so Σ may be singular.
var groupsSubject = &subject{name: "groups", generate: generateGroups, fit: fitTrustGroups,
	reference: groupsReference, learns: true,
	relations: []relation{permuteRows, weightsAsRepeats, permutedLevels, swappedGroups}}

// trustGroups holds the grouping factors of a problem.
type trustGroups struct {
	opt    []Group
	common int         // the common columns come first
	l      [][]float64 // L of each factor that the fit found; nil before the fit
	evals  int         // evaluations of the fit
	plain  bool        // ordinary units and weights
}

// effects returns the number of effects per level of r.
func effects(r *Group) int { return max(1, len(r.Effects)) }

// end returns the column after the last column of r.
func end(r *Group) int { return r.First + r.Levels*effects(r) }

// integrated reports whether the posterior is integrated over a Σ.
func (g *trustGroups) integrated() bool {
	return slices.ContainsFunc(g.opt, func(r Group) bool { return !r.Fixed && !r.NoPrior })
}

// learned reports whether a Σ is learned.
func (g *trustGroups) learned() bool {
	return slices.ContainsFunc(g.opt, func(r Group) bool { return !r.Fixed })
}

// randomFactor draws a grouping factor of n rows, with the level of each row.
func randomFactor(rng *rand.Rand, n int, before []int) (r Group, level []int, sd []float64,
	rho float64, kind string) {
	q := 1 + rng.IntN(2)*rng.IntN(3)
	levels := int(logUniform(rng, 0, 1.6))
	level = make([]int, n)
	switch k := rng.IntN(12); {
	case k == 0:
		levels, kind = 1, "one level"
	case k == 1:
		levels, q, kind = n, 1, "a level per row"
	case k < 5 && before != nil:
		most := slices.Max(before) + 1
		part := 1 + rng.IntN(4)
		kind = "nested"
		for i := range level {
			level[i] = before[i]*part + rng.IntN(part)
		}
		levels = most * part
	}
	for i := range level {
		switch {
		case kind == "nested":
		case levels == n && q == 1:
			level[i] = i
		default:
			level[i] = rng.IntN(levels)
		}
	}
	r.Levels = levels + rng.IntN(2)*rng.IntN(3) // with empty levels
	for j := range q {
		r.Effects = append(r.Effects, fmt.Sprintf("e%d", j))
		s := logUniform(rng, -1, 0.5)
		if chance(rng, 0.2) {
			s = 0
		}
		sd = append(sd, s)
	}
	if rho = 2*rng.Float64() - 1; chance(rng, 0.2) {
		rho = float64(1 - 2*rng.IntN(2))
	}
	r.Independent = chance(rng, 0.2)
	switch rng.IntN(8) {
	case 0, 1:
		r.Fixed, r.SD = true, slices.Clone(sd)
		if q > 1 && !r.Independent {
			r.Corr = mat.NewSymDense(q, nil)
			for j := range q {
				r.Corr.SetSym(j, j, 1)
			}
			r.Corr.SetSym(0, 1, rho)
		}
	case 2, 3, 4:
		r.NoPrior = true
	}
	kind = fmt.Sprintf(", %d+%d levels %s, sd %.2g, rho %.2g, fixed %t, no prior %t, "+
		"independent %t", levels, r.Levels-levels, kind, sd, rho, r.Fixed, r.NoPrior, r.Independent)
	return r, level, sd, rho, kind
}

// generateGroups turns p into a mixed model that NewGLM accepts.
func generateGroups(rng *rand.Rand, p *trustProblem) {
	all := append(trustLikelihoods(rng), outcomeLikelihoods(rng)...)
	for range 100 {
		p.lik = all[rng.IntN(len(all))]
		randomGroups(rng, p)
		if _, err := p.glm(FullCovariance); !errors.Is(err, ErrParam) {
			return
		}
	}
}

// randomGroups draws the rows, factors and responses of a mixed model.
func randomGroups(rng *rand.Rand, p *trustProblem) {
	n, common := int(logUniform(rng, 0.3, 2.2)), rng.IntN(4)
	g := &trustGroups{common: common, plain: true}
	p.groups, p.scales, p.offset, p.weight = g, fmt.Sprintf(", %d common", common), nil, nil
	unit := make([]float64, common+1) // the last is the unit of slopes without a column
	for j := range unit {
		if unit[j] = 1; chance(rng, 0.15) {
			unit[j] = logUniform(rng, -6, 6)
			g.plain = false
			p.scales += fmt.Sprintf(", unit %.1g", unit[j])
		}
	}
	rows, eta := mat.NewDense(n, common+1, nil), make([]float64, n)
	p.mean, p.variance = make([]float64, common), make([]float64, common)
	size := 1.0
	if chance(rng, 0.15) {
		size = logUniform(rng, -2, 2)
		p.scales += fmt.Sprintf(", effects of %.1g", size)
		g.plain = g.plain && size < 5
	}
	for j := range common + 1 {
		b := size * 0.5 * rng.NormFloat64()
		for i := range n {
			v := rng.NormFloat64()
			if j == 0 {
				v = 1
			}
			rows.Set(i, j, unit[j]*v)
			if j < common {
				eta[i] += b * v
			}
		}
		if j < common {
			p.variance[j] = math.Pow(logUniform(rng, -0.5, 1)/unit[j], 2)
		}
	}
	var levels [][]int
	first, factors := common, 1+rng.IntN(2)*(1+rng.IntN(2))
	for range factors {
		var before []int
		if levels != nil {
			before = levels[0]
		}
		r, level, sd, rho, kind := randomFactor(rng, n, before)
		p.scales += kind
		r.First = first
		first = end(&r)
		g.opt, levels = append(g.opt, r), append(levels, level)
		u := make([]float64, r.Levels*len(sd))
		for l := range r.Levels {
			z := rng.NormFloat64()
			for j, s := range sd {
				v := rng.NormFloat64()
				if j < 2 && !r.Independent {
					v = rho*z + math.Sqrt(1-rho*rho)*v
				}
				if j == 0 {
					v = z
				}
				u[l*len(sd)+j] = size * s * v
			}
		}
		for i := range n {
			for j := range sd {
				eta[i] += u[level[i]*len(sd)+j] * g.value(rows, unit, i, j) / g.unitOf(unit, j)
			}
		}
	}
	p.x = mat.NewDense(n, first, nil)
	lost := 0.0
	if chance(rng, 0.2) {
		lost = 0.1
	}
	for i := range n {
		copy(p.x.RawRowView(i)[:common], rows.RawRowView(i))
		for k, r := range g.opt {
			if q := effects(&r); !chance(rng, lost) {
				for j := range q {
					p.x.Set(i, r.First+levels[k][i]*q+j, g.value(rows, unit, i, j))
				}
			}
		}
	}
	for len(p.variance) < first {
		p.mean, p.variance = append(p.mean, 0), append(p.variance, 1)
	}
	g.burden(rng, p)
	p.y = make([]float64, n)
	for i := range n {
		p.y[i] = randomResponse(rng, p.lik, eta[i])
	}
}

// unitOf returns the unit of effect j.
func (g *trustGroups) unitOf(unit []float64, j int) float64 {
	if j == 0 {
		return 1
	}
	return unit[min(j, g.common)]
}

// value returns the value of effect j in row i: 1, or one of the common columns.
func (g *trustGroups) value(rows *mat.Dense, unit []float64, i, j int) float64 {
	if j == 0 {
		return 1
	}
	k := min(j, g.common)
	if k == 0 { // without common columns, rows has ones
		return unit[0] * float64(i%3+j)
	}
	return rows.At(i, k)
}

// burden draws weights and offsets.
func (g *trustGroups) burden(rng *rand.Rand, p *trustProblem) {
	n, _ := p.dims()
	if chance(rng, 0.25) {
		lo, hi := -1.0, 1.0
		if chance(rng, 0.3) {
			lo, hi = -6, 6
			g.plain = false
		}
		p.weight = make([]float64, n)
		for i := range p.weight {
			if p.weight[i] = logUniform(rng, lo, hi); chance(rng, 0.1) {
				p.weight[i] = 0
			}
		}
		p.scales += fmt.Sprintf(", weights 1e%g…1e%g and 0", lo, hi)
	}
	if chance(rng, 0.25) {
		p.offset = make([]float64, n)
		sd := 1.0
		if chance(rng, 0.2) {
			sd = logUniform(rng, 0, 2)
			g.plain = false
		}
		for i := range p.offset {
			p.offset[i] = sd * rng.NormFloat64()
		}
		p.scales += fmt.Sprintf(", offsets of %.1g", sd)
	}
}

var (
	permutedLevels = relation{name: "permuted levels",
		other: func(rng *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
			q := p.clone()
			n, _ := p.dims()
			for _, r := range p.groups.opt {
				e := effects(&r)
				for to, from := range rng.Perm(r.Levels) {
					for i := range n {
						copy(q.x.RawRowView(i)[r.First+to*e:][:e], p.x.RawRowView(i)[r.First+from*e:])
					}
				}
			}
			return q, "", sameRowsOrder(n)
		}}
	swappedGroups = relation{name: "groups in another order",
		other: func(_ *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
			q := p.clone()
			n, _ := p.dims()
			g := *p.groups
			g.opt = slices.Clone(g.opt)
			slices.Reverse(g.opt)
			first := g.common
			for k := range g.opt {
				r := &g.opt[k]
				from, width := r.First, end(r)-r.First
				for i := range n {
					copy(q.x.RawRowView(i)[first:first+width], p.x.RawRowView(i)[from:])
				}
				r.First = first
				first += width
			}
			q.groups = &g
			return q, "", sameRowsOrder(n)
		}}
)

// lower returns the L of a covariance with the given standard deviations and correlations, which
// may be singular.
func lower(sd []float64, corr func(i, j int) float64) []float64 {
	q := len(sd)
	l := make([]float64, q*q)
	for i := range q {
		left := 1.0
		for j := range i {
			x := corr(i, j)
			for k := range j {
				x -= l[i*q+k] * l[j*q+k]
			}
			if d := l[j*q+j]; d > 1e-7 {
				l[i*q+j] = x / d
			}
			left -= l[i*q+j] * l[i*q+j]
		}
		l[i*q+i] = math.Sqrt(math.Max(0, left))
	}
	for i, s := range sd {
		floats.Scale(s, l[i*q:(i+1)*q])
	}
	return l
}

// found stores the L of a posterior.
func (g *trustGroups) found(post *GLMPosterior) {
	g.l = nil
	for _, s := range post.Groups() {
		var sd []float64
		for _, e := range s.Effects {
			sd = append(sd, e.SD)
		}
		g.l = append(g.l, lower(sd, func(i, j int) float64 {
			if c := s.Corr[i*(i-1)/2+j].Value; !math.IsNaN(c) {
				return c
			}
			return 0
		}))
	}
}

// fitGroups fits p with s, and stores the Σ that it finds in p.
func fitGroups(ctx context.Context, p *trustProblem, s *Solver) (*GLMPosterior, *Result, error) {
	g, err := p.glm(FullCovariance)
	if err != nil {
		return nil, nil, err
	}
	post, res, err := g.Fit(ctx, s)
	if err != nil {
		return post, res, err
	}
	own := *p.groups
	own.found(post)
	own.evals = res.K
	p.groups = &own
	return post, res, nil
}

func fitTrustGroups(ctx context.Context, p *trustProblem) (*trustFit, error) {
	post, res, err := fitGroups(ctx, p, nil)
	f := &trustFit{result: res}
	if err != nil || p.groups.integrated() {
		return f, err // the moments of an integrated posterior belong to several Σ
	}
	f.mean, f.sd = post.Mean(nil), post.SD(nil)
	m, v := post.At(p.matrix()).Latent(nil, nil)
	return f.latents(p, m, v), nil
}

// whitened returns the row x in coordinates with a standard normal prior.
func (p *trustProblem) whitened(x []double) []double {
	a := make([]double, len(x))
	for j := range p.groups.common {
		a[j] = x[j].times(asDouble(p.variance[j]).sqrt())
	}
	for k, r := range p.groups.opt {
		q := effects(&r)
		l := lower(slices.Repeat([]float64{1}, q), func(_, _ int) float64 { return 0 })
		if p.groups.l != nil {
			l = p.groups.l[k]
		}
		for at := r.First; at < end(&r); at += q {
			for c := range q {
				for j := c; j < q; j++ {
					a[at+c] = a[at+c].plus(asDouble(l[j*q+c]).times(x[at+j]))
				}
			}
		}
	}
	return a
}

// jiggled returns p with rounded standard deviations and correlations.
func (p *trustProblem) jiggled(jiggle func(float64) float64) *trustProblem {
	q, g := *p, *p.groups
	q.groups = &g
	if g.l == nil {
		return &q
	}
	g.l = slices.Clone(g.l)
	for k, l := range g.l {
		e := effects(&g.opt[k])
		sd := make([]float64, e)
		for i := range sd {
			sd[i] = floats.Norm(l[i*e:(i+1)*e], 2)
		}
		g.l[k] = lower(sd, func(i, j int) float64 {
			if sd[i] == 0 || sd[j] == 0 {
				return 0
			}
			return jiggle(floats.Dot(l[i*e:(i+1)*e], l[j*e:(j+1)*e]) / (sd[i] * sd[j]))
		})
		for i := range sd {
			floats.Scale(jiggle(1), g.l[k][i*e:(i+1)*e])
		}
	}
	return &q
}

func groupsReference(p *trustProblem, jiggle func(float64) float64) (*refProblem, error) {
	n, d := p.dims()
	if jiggle(1) != 1 {
		p = p.jiggled(jiggle)
	}
	r := &refProblem{lik: p.lik, n: n, r: d, y: p.y, weight: p.weight, a: make([]double, n*d),
		offset: make([]double, n), extra: make([]float64, n)}
	row := make([]double, d)
	for i := range n {
		for j, x := range p.x.RawRowView(i) {
			row[j] = asDouble(jiggle(x))
		}
		copy(r.row(i), p.whitened(row))
		r.offset[i] = asDouble(jiggle(p.offsetAt(i)))
	}
	return r, nil
}

// weightsOfGroups is refSolution.weights for a mixed model.
func (sol *refSolution) weightsOfGroups(p *trustProblem) (mean, sd, curved []float64) {
	d := len(p.variance)
	mean, sd = make([]float64, d), make([]float64, d)
	for j := range d {
		e := make([]double, d)
		e[j] = asDouble(1)
		e = p.whitened(e)
		mean[j], sd[j] = dotDouble(e, sol.state.mu).float(), spreadOf(sol.curvature, e)
	}
	return mean, sd, sd
}

// logPriors returns the log density of the priors of the learned Σ, up to a constant; see Group.
func (p *trustProblem) logPriors() (sum float64) {
	unit := 1.0
	if factsFor(p.lik).Support == RealLine {
		y := slices.Clone(p.y)
		for i := range y {
			y[i] -= p.offsetAt(i)
		}
		if u, _ := learn.RobustScale(y, p.weight); u > 0 && !math.IsInf(u, 0) {
			unit = u
		}
	}
	for k, r := range p.groups.opt {
		if r.Fixed || r.NoPrior {
			continue
		}
		q, l := effects(&r), p.groups.l[k]
		for j := range q {
			row := l[j*q : j*q+j+1]
			s, mean := floats.Norm(row, 2), p.meanSquare(&r, j)
			sum -= 0.5 * math.Pow(s*math.Sqrt(mean)/(2.5*unit), 2)
			if j > 0 && s > 0 && row[j] != 0 {
				sum += 2 * math.Log(math.Abs(row[j])/s)
			}
		}
	}
	return sum
}

// meanSquare returns the mean square of effect j over the rows with a level of r, or 1.
func (p *trustProblem) meanSquare(r *Group, j int) float64 {
	sum, rows, q := 0.0, 0.0, effects(r)
	for i := range p.y {
		row := p.x.RawRowView(i)[r.First:end(r)]
		if floats.Norm(row, 1) > 0 {
			rows++
		}
		for at := j; at < len(row); at += q {
			sum += row[at] * row[at]
		}
	}
	if !(sum > 0) {
		return 1
	}
	return sum / rows
}

// The gap of a fit that learns Σ is an estimate. It must be above the true gap divided by gapFactor, up
// to trustSlack.
const gapFactor = 10

// checkSigma compares a fit with a fit to a far smaller gap, and with other Σ. Their values must not
// be higher by more than the gap allows.
func (v *verdict) checkSigma(rng *rand.Rand, p *trustProblem, res *Result) {
	value := res.ELBO + p.logPriors()
	allowed := gapFactor*res.Gap + trustSlack + 4*finite(res.ELBOErr)
	q := p.clone()
	_, best, err := fitGroups(context.Background(), q, &Solver{Goal: 1e-11, MaxPasses: 3000})
	v.fits++
	if err != nil {
		v.add(faultError, 1, "to a small gap: %v", err)
		return
	}
	if short := best.ELBO + q.logPriors() - value; short > allowed+4*finite(best.ELBOErr) {
		v.add(faultGap, short/allowed, "short by %.3g nats, Gap %.3g, L %.4g, best %.4g", short,
			res.Gap, p.groups.l, q.groups.l)
	}
	if n, d := p.dims(); n*d > 4000 || !chance(rng, 0.3) {
		return
	}
	for range 2 {
		q := p.clone()
		g := *p.groups
		g.l = slices.Clone(g.l)
		by := logUniform(rng, -3, -0.3)
		for k, r := range g.opt {
			if r.Fixed {
				continue
			}
			g.l[k] = slices.Clone(g.l[k])
			e := effects(&r)
			for i := range e {
				s := floats.Norm(g.l[k][i*e:(i+1)*e], 2) + 1e-4/math.Sqrt(p.meanSquare(&r, i))
				for j := range i + 1 {
					if i == j || !r.Independent {
						g.l[k][i*e+j] += by * s * rng.NormFloat64()
					}
				}
			}
		}
		q.groups = &g
		sol, err := v.solve(groupsSubject, q, nil)
		if err != nil {
			continue
		}
		if short := sol.elbo + q.logPriors() - value; short > allowed+sol.err {
			v.add(faultGap, short/allowed, "short by %.3g nats of L %.4g, Gap %.3g, L %.4g", short,
				g.l, res.Gap, p.groups.l)
		}
	}
}

// bitsOf returns the numbers of a fit.
func bitsOf(post *GLMPosterior, res *Result) []float64 {
	return append(append(post.Mean(nil), post.SD(nil)...), res.ELBO, res.Gap, float64(res.K))
}

// checkBits checks that a fit has the same bits for any number of workers, and after it was canceled
// or saved and resumed.
func (v *verdict) checkBits(rng *rand.Rand, p *trustProblem) {
	ctx := context.Background()
	g, err := p.glm(FullCovariance)
	if err != nil {
		return
	}
	post, whole, err := g.Fit(ctx, &Solver{Workers: 1})
	if err != nil {
		return
	}
	want := bitsOf(post, whole)
	same := func(name string, post *GLMPosterior, res *Result, err error) {
		v.fits++
		if err != nil {
			v.add(faultError, 1, "%s: %v", name, err)
		} else if got := bitsOf(post, res); !slices.Equal(got, want) {
			v.add(faultBits, 1, "%s: ELBO %v, gap %v after %d evaluations, want %v, %v, %d", name,
				res.ELBO, res.Gap, res.K, whole.ELBO, whole.Gap, whole.K)
		}
	}
	workers := []int{2, 7}[rng.IntN(2)]
	post, res, err := g.Fit(ctx, &Solver{Workers: workers})
	same(fmt.Sprintf("%d workers", workers), post, res, err)
	resume := func(name string, res *Result, err error) {
		var file bytes.Buffer
		if err == nil {
			err = res.Save(&file)
		}
		if err == nil {
			res, err = (&Solver{}).LoadResult(ctx, &file, g)
		}
		if err == nil {
			res, err = (&Solver{}).Resume(ctx, res)
		}
		var post *GLMPosterior
		if err == nil {
			post, err = g.Posterior(res.Stepper)
		}
		same(name, post, res, err)
	}
	if whole.K > 1 {
		k := 1 + rng.IntN(whole.K-1)
		res, err = (&Solver{MaxIter: k}).Run(ctx, g)
		resume(fmt.Sprintf("resumed after %d evaluations", k), res, err)
	}
	asked := int64(1 + rng.IntN(200))
	res, err = (&Solver{Workers: workers}).Run(testkit.NewAsked(asked), g)
	if res != nil && res.Stepper != nil && errors.Is(err, context.Canceled) {
		resume(fmt.Sprintf("canceled at call %d", asked), res, nil)
	}
}

// judgeGroups fits a random mixed model.
func judgeGroups(seed uint64) (v *verdict) {
	rng := rand.New(rand.NewPCG(seed, 41))
	v = judge(seed, rng, groupsSubject, &trustProblem{})
	if len(v.violations()) > 0 || v.problem.groups.l == nil {
		return v
	}
	defer func() {
		if r := recover(); r != nil {
			v.add(faultPanic, 1, "%v\n%s", r, debug.Stack())
		}
	}()
	p := v.problem.clone()
	if _, res, err := fitGroups(context.Background(), p, nil); err == nil && res.Status == Converged &&
		p.groups.learned() {
		v.checkSigma(rng, p, res)
	}
	if seed%4 == 0 {
		v.checkBits(rng, p)
	}
	return v
}

// knownGroups maps the seeds that fail to the causes.
var knownGroups = map[uint64]string{
	77: "Laplace noise under weights of 1e6: the best L at the sites is 1e4 times as large, and no joint " +
		"step is accepted, so it stalls at an L that is at least 1.5 nats short, with a gap of 16",
	106: "a beta-binomial with an ELBO of −2e6: it stalls with a gap of 4e-5, and the best of its " +
		"neighbors in L is 7e-5 nats higher",
	1000: "Student-t under weights of 1e6, with an ELBO of 5e6: it stalls with a gap of 2e-5",
	1040: "zero-inflated counts, a level per row without a prior: as 125",
	1053: "zero-inflated counts under weights of 1e6: expectations overflow, and a run takes a minute",
	1134: "hurdle counts: a standard deviation of 0 is a local optimum, and a neighbor with a " +
		"standard deviation of 0.001 is 3e-5 nats higher",
	1204: "zero-inflated counts, three effects in three rows without a prior: as 125",
	1232: "zero-inflated counts under weights of 1e6: the ELBO of −6e6 is 5e-5 nats above the optimum " +
		"of the reference, for an unknown reason",
	1282: "Student-t under weights of 1e6: the ELBO of −1e6 is 1e-4 nats above the optimum of the " +
		"reference, for an unknown reason",
	125: "zero-inflated counts, 3 levels of 3 effects in 9 rows without a prior: the ELBO grows with a " +
		"standard deviation without end (190 after 1000 passes), so there is no optimum",
}

// TestSeedsGroupsFixed checks seeds outside the range of CI that once failed.
func TestSeedsGroupsFixed(t *testing.T) {
	t.Parallel()
	for seed, why := range map[uint64]string{
		1082: "an ELBO without the rounding of precisions that are summed out",
	} {
		if v := judgeGroups(seed); len(v.violations()) > 0 {
			t.Errorf("%s: %v", why, v)
		}
	}
}

// TestSeedsGroups fits random mixed models: all likelihoods, crossed and nested factors, slopes,
// empty levels, one level, a level per row, standard deviations of 0, correlations of ±1, weights,
// offsets and any units.
//
//	go test ./internal/trust -run SeedsGroups -seeds 5000
//	go test ./internal/trust -run SeedsGroups -seed 17 -v
func TestSeedsGroups(t *testing.T) {
	t.Parallel()
	if *trustSeed >= 0 {
		v := judgeGroups(uint64(*trustSeed))
		t.Logf("%v\n%d fits, %d evaluations, %v, proved: %v", v, v.fits, v.problem.groups.evals,
			v.elapsed, v.proved)
		if len(v.violations()) > 0 {
			t.Fail()
		}
		return
	}
	n := testkit.GivenSeeds()
	if n == 0 {
		n = testkit.Longer(150, testkit.Shorter(60, 15))
	}
	verdicts := judgeAll(n, judgeGroups)
	var evals []int
	for _, v := range verdicts {
		switch why, bad := knownGroups[v.seed], len(v.violations()) > 0; {
		case bad && why == "":
			t.Errorf("%v", v)
		case !bad && why != "":
			t.Errorf("seed %d passes; take it off the list (%s)", v.seed, why)
		}
		if v.problem.groups.plain {
			evals = append(evals, v.problem.groups.evals)
		}
	}
	if len(verdicts) == 0 {
		return
	}
	t.Log(summary(verdicts))
	slices.Sort(evals)
	k := len(evals)
	t.Logf("evaluations in ordinary units: median %d, 90%% %d, 99%% %d, most %d", evals[k/2],
		evals[k*9/10], evals[k*99/100], evals[k-1])
}
