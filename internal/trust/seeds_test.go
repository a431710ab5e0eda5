package trust

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/goals"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// ---- the reference of each subject

// glmReference uses the weights as coordinates, a_n = x_n∘sd, unless there are many more weights
// than rows.
func glmReference(diagonal bool) func(*trustProblem, func(float64) float64) (*refProblem, error) {
	return func(p *trustProblem, jiggle func(float64) float64) (*refProblem, error) {
		n, d := p.dims()
		r := &refProblem{lik: p.lik, n: n, r: d, y: p.y, weight: p.weight, diagonal: diagonal,
			a: make([]double, n*d), offset: make([]double, n), extra: make([]float64, n)}
		for j, v := range p.variance {
			sd := asDouble(v).sqrt()
			for i := range n {
				x := asDouble(jiggle(p.x.At(i, j)))
				r.a[i*d+j] = x.times(sd)
				r.offset[i] = r.offset[i].plus(x.times(asDouble(p.mean[j])))
			}
		}
		for i := range n {
			r.offset[i] = r.offset[i].plus(asDouble(jiggle(p.offsetAt(i))))
		}
		if d > 2*n && d > 60 && !diagonal {
			k := make([]double, n*n)
			for i := range n {
				for j := range n {
					k[i*n+j] = dotDouble(r.row(i), r.row(j))
				}
			}
			r.a, r.r = factorDouble(k, n, 1e-30)
		}
		return r, nil
	}
}

// refRounding is the smallest pivot of a covariance matrix in float64, relative to the largest
// pivot.
const refRounding = 0x1p-52

func gpReference(p *trustProblem, jiggle func(float64) float64) (*refProblem, error) {
	n, d := p.dims()
	if k, ok := p.kernel.(Linear); ok {
		q := *p
		q.mean, q.variance = make([]float64, d), make([]float64, d)
		for j := range d {
			s := cmp.Or(k.Scale, 1)
			if k.Scales != nil {
				s = cmp.Or(k.Scales[j], 1)
			}
			q.variance[j] = s * s
		}
		return glmReference(false)(&q, jiggle)
	}
	c := make([]double, n*n)
	for i := range n {
		for j := range i + 1 {
			v := p.kernel.Cov(p.x.RawRowView(i), p.x.RawRowView(j))
			if i != j {
				v = jiggle(v)
			}
			c[i*n+j], c[j*n+i] = asDouble(v), asDouble(v)
		}
	}
	r := &refProblem{lik: p.lik, n: n, y: p.y, offset: make([]double, n), extra: make([]float64, n)}
	r.a, r.r = factorDouble(c, n, refRounding)
	return r, nil
}

// sparseReference uses two kinds of coordinates. The model keeps some terms of the kernel without
// inducing inputs, and their features k(x, b)/√k(b, b) come first. The inducing values of the
// other terms follow.
func sparseReference(p *trustProblem, jiggle func(float64) float64) (*refProblem, error) {
	g, err := p.sparseGP()
	if err != nil {
		return nil, err
	}
	n, d := p.dims()
	m, _ := g.Inducing().Dims()
	rest := Sum{p.kernel}
	var features [][]double // for each row
	if g.Rank() > m {       // features of the terms without inducing inputs
		features = make([][]double, n)
		row := make([]double, d)
		for i := range n {
			for j := range row {
				row[j] = asDouble(p.x.At(i, j))
			}
			rest = refTerms(p.kernel, row, &features[i])
			for j, f := range features[i] {
				features[i][j] = asDouble(jiggle(f.float()))
			}
		}
	}
	r := &refProblem{lik: p.lik, n: n, y: p.y, offset: make([]double, n), extra: make([]float64, n)}
	first := g.Rank() - m
	r.r = first + m
	r.a = make([]double, n*r.r)
	for i, f := range features {
		copy(r.row(i), f)
	}
	if len(rest) == 0 {
		return r, nil
	}
	z := g.Inducing()
	c := make([]double, m*m)
	for i := range m {
		for j := range i + 1 {
			v := rest.Cov(z.RawRowView(i), z.RawRowView(j))
			if i != j {
				v = jiggle(v)
			}
			c[i*m+j] = asDouble(v)
		}
	}
	if !choleskyDouble(c, m) {
		return nil, fmt.Errorf("inducing inputs of singular covariance: %w", errReference)
	}
	for i := range n {
		a := r.row(i)[first:]
		for j := range m {
			a[j] = asDouble(jiggle(rest.Cov(p.x.RawRowView(i), z.RawRowView(j))))
		}
		forwardDouble(c, a)
		k := asDouble(rest.Cov(p.x.RawRowView(i), p.x.RawRowView(i)))
		r.extra[i] = math.Max(0, k.minus(dotDouble(a, a)).float())
	}
	return r, nil
}

// ---- one seed

// fault describes a fault of a fit.
type fault struct {
	kind   string // one of the constants below
	detail string
	size   float64 // badness, to find the worst fault
}

// These are the kinds of faults. The second group holds no violations, because float64 allows no
// better result.
const (
	faultPanic = "panic"
	faultNaN   = "NaN"
	faultError = "error"         // the reference solves the problem
	faultLimit = "not converged" // at the limit of passes, or stalled
	faultGap   = "wrong gap"     // converged, with a true gap above 2·Gap + 1e-6
	faultProof = "false proof"   // a true gap above GapBound + 1e-9
	faultAbove = "above optimum" // an ELBO that no q reaches
	// a mean or variance is further from the reference than the gap allows
	faultMoments   = "wrong moments"
	faultRelation  = "relation"       // another form of the same problem has another result
	faultBits      = "bits"           // workers, or a saved or canceled run, change the result
	faultTime      = "slow"           // takes longer than 5 s
	faultUnsolved  = "no reference"   // the reference did not find the optimum either
	faultUnsettled = "not determined" // rounding the data changes the result equally much
	// a typed error for a problem that has no reference or is not determined
	faultRefused = "refused, rightly"
)

// A fit that takes longer than trustTime is slow.
const trustTime = 5 * time.Second

// trustSlack is the part of a true gap, in nats, that Gap may miss.
const trustSlack = 1e-6

// provedSlack is the part of a true gap, in nats, that GapBound may miss.
const provedSlack = 1e-9

// verdict holds the result of a seed.
type verdict struct {
	seed        uint64
	subject     *subject
	problem     *trustProblem
	fits        int
	elapsed     time.Duration // time of the slowest fit
	faults      []fault
	proved      bool
	steps, work int
}

func (v *verdict) String() string {
	s := fmt.Sprintf("seed %d: %s: %v", v.seed, v.subject.name, v.problem)
	for _, f := range v.faults {
		s += fmt.Sprintf("\n    %s: %s", f.kind, f.detail)
	}
	return s
}

// violations returns the faults that the limits of float64 do not excuse. Times are wall times.
// They count only under -seeds or -seed, because they mainly measure the load of the machine if
// other tests run at the same time.
func (v *verdict) violations() (all []fault) {
	for _, f := range v.faults {
		switch f.kind {
		case faultUnsolved, faultUnsettled, faultRefused:
		case faultTime:
			if testkit.GivenSeeds() > 0 || *trustSeed >= 0 {
				all = append(all, f)
			}
		default:
			all = append(all, f)
		}
	}
	return all
}

func (v *verdict) add(kind string, size float64, format string, a ...any) {
	v.faults = append(v.faults, fault{kind, fmt.Sprintf(format, a...), size})
}

// run fits p as a problem of s. It catches panics and stops long runs.
func (v *verdict) run(s *subject, p *trustProblem) (f *trustFit, err error) {
	type answer struct {
		f      *trustFit
		err    error
		panics string
	}
	done := make(chan answer, 1)
	most := 2 * trustTime
	// if other tests run at the same time, wall times mainly measure the load of the machine
	if testkit.GivenSeeds() == 0 && *trustSeed < 0 {
		most *= 10
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	start := time.Now()
	go func() {
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a = answer{panics: fmt.Sprintf("%v\n%s", r, debug.Stack())}
			}
			done <- a
		}()
		a.f, a.err = s.fit(ctx, p)
	}()
	v.fits++
	var a answer
	select {
	case a = <-done:
	case <-time.After(6 * most):
		v.add(faultTime, 60, "no end after %v", 6*most)
		return nil, context.DeadlineExceeded
	}
	took := time.Since(start)
	v.elapsed = max(v.elapsed, took)
	if took > trustTime {
		v.add(faultTime, took.Seconds(), "%s took %v", s.name, took.Round(time.Millisecond))
	}
	if a.panics != "" {
		v.add(faultPanic, 1, "%s: %s", s.name, a.panics)
		return nil, errors.New("panic")
	}
	return a.f, a.err
}

// judgeSeed makes the problem of a seed, fits it, and compares the fit with the reference.
func judgeSeed(seed uint64) *verdict {
	rng := rand.New(rand.NewPCG(seed, 12))
	s := randomSubject(rng)
	return judge(seed, rng, s, randomProblem(rng))
}

// randomSubject draws a subject according to the shares.
func randomSubject(rng *rand.Rand) *subject {
	total := 0
	for _, s := range subjects {
		total += s.share
	}
	k := rng.IntN(total)
	s := subjects[0]
	for _, s = range subjects {
		if k -= s.share; k < 0 {
			break
		}
	}
	return s
}

// judge completes the problem p for the subject s, fits it, and compares the fit with the
// reference and with another form of the problem.
func judge(seed uint64, rng *rand.Rand, s *subject, p *trustProblem) *verdict {
	if s.generate != nil {
		s.generate(rng, p)
	}
	p.sparse = p.kernel == nil && chance(rng, 0.2)
	var rel *relation
	if len(s.relations) > 0 && chance(rng, 0.6) {
		rel = &s.relations[rng.IntN(len(s.relations))]
		if rel.prepare != nil {
			rel.prepare(rng, p)
		}
	}
	v := &verdict{seed: seed, subject: s, problem: p}
	if *trustOnly != "" && s.name != *trustOnly {
		return v
	}
	f, err := v.run(s, p)
	sol := v.compare(s, p, f, err)
	if rel == nil || err != nil {
		return v
	}
	q, name, rows := rel.other(rng, p)
	t := s
	for _, u := range subjects {
		if u.name == name {
			t = u
		}
	}
	g, err := v.run(t, q)
	v.relate(rel, p, s, f, g, err, rows, sol)
	return v
}

var trustSentinels = []error{ErrShape, ErrEmpty, ErrLabel, ErrNotFinite, ErrNotPosDef, ErrParam,
	ErrNoProx, ErrNoEstimator, ErrFile, ErrDiverged, context.DeadlineExceeded}

func sentinelOf(err error) string {
	for _, s := range trustSentinels {
		if errors.Is(err, s) {
			return s.Error()
		}
	}
	return "untyped"
}

// solve returns the optimum of the reference. It starts from the fit, or from the prior if that
// fails.
func (v *verdict) solve(s *subject, p *trustProblem, f *trustFit) (sol *refSolution, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v: %w", r, errReference)
		}
	}()
	ref, err := s.reference(p, func(x float64) float64 { return x })
	if err != nil {
		return nil, err
	}
	var m, va []float64
	if f != nil && f.m != nil {
		m, va = f.m, f.v
		for i := range va {
			if !(va[i] >= 0) || math.IsNaN(m[i]) {
				m = nil
				break
			}
		}
	}
	if ref.diagonal && f != nil && f.mean != nil {
		mu, sd := make([]double, ref.r), make([]double, ref.r)
		for j, c := range p.variance {
			scale := asDouble(c).sqrt()
			mu[j] = asDouble(f.mean[j]).minus(asDouble(p.mean[j])).over(scale)
			sd[j] = asDouble(f.sd[j]).over(scale)
		}
		m = f.mean
		sol, err = ref.solveDiagonal(mu, sd)
	} else {
		sol, err = ref.solve(m, va)
	}
	if err != nil && m != nil && ref.concave() { // otherwise there may be other optima
		sol, err = ref.solve(nil, nil)
	}
	v.work += ref.work
	if sol != nil {
		v.steps += sol.steps
	}
	return sol, err
}

// trustSpread is the number of roundings of the data that count as one, because every method
// rounds sums of dozens of products.
const trustSpread = 16

// spread returns how far rounding the data moves the result: the ELBO in nats, and the marginals
// of the terms in standard deviations.
func (v *verdict) spread(s *subject, p *trustProblem, sol *refSolution) (elbo, z float64) {
	rng := rand.New(rand.NewPCG(v.seed, 13))
	for range 2 {
		ref, err := s.reference(p,
			func(x float64) float64 { return x * (1 + 0x1p-52*(2*rng.Float64()-1)) })
		if err != nil {
			return math.Inf(1), math.Inf(1)
		}
		other, err := ref.solve(sol.m, sol.v)
		if err != nil {
			return math.Inf(1), math.Inf(1)
		}
		elbo = math.Max(elbo, trustSpread*math.Abs(other.elbo-sol.elbo))
		for i := range sol.m {
			if sd := spreadOf(sol.curvature, sol.problem.row(i)); sd > 0 {
				z = math.Max(z, trustSpread*math.Abs(other.m[i]-sol.m[i])/sd)
			}
			z = math.Max(z, trustSpread*math.Abs(math.Log(other.v[i]/sol.v[i])))
		}
	}
	return elbo, z
}

// compare compares a fit with the reference. It returns the solution of the reference, or nil if
// there is no solution.
func (v *verdict) compare(s *subject, p *trustProblem, f *trustFit, err error) *refSolution {
	if err != nil && len(v.faults) > 0 {
		return nil // a panic, or too slow
	}
	if errors.Is(err, ErrParam) && s.learns {
		v.add(faultRefused, 0, "%v", err) // rows that do not determine an effect
		return nil
	}
	if errors.Is(err, ErrEmpty) && s.name == "objective" {
		v.add(faultRefused, 0, "%v", err) // all weights are 0
		return nil
	}
	if err != nil {
		sol, e := v.solve(s, p, nil)
		if e != nil {
			v.add(faultRefused, 0, "%s: %v; reference: %v", sentinelOf(err), err, e)
			return nil
		}
		if elbo, z := v.spread(s, p, sol); elbo > 1e-3 || z > 1e-3 {
			v.add(faultRefused, 0,
				"%s: %v; rounding the data moves the answer by %.2g nats, %.2g sd", sentinelOf(err),
				err, elbo, z)
			return nil
		}
		v.add(faultError, 1, "%s: %v; the reference has ELBO %.10g ± %.2g after %d steps",
			sentinelOf(err), err, sol.elbo, sol.err+sol.gap, sol.steps)
		return nil
	}
	numbers := slices.Concat(f.mean, f.sd, f.m, f.v)
	if f.result != nil {
		numbers = append(numbers, f.result.ELBO)
		if f.result.Status == Converged {
			numbers = append(numbers, cmp.Or(f.result.Gap, 1))
		}
	}
	for i, x := range numbers {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			v.add(faultNaN, 1, "number %d of %d is %v: ELBO, Gap %v", i, len(numbers), x,
				numbers[len(numbers)-2:])
			return nil
		}
	}
	var ev Evaluation
	if f.result != nil {
		ev = f.result.Evaluation
		if f.result.Status != Converged {
			sol, e := v.solve(s, p, f)
			short := math.NaN()
			if e == nil {
				short = sol.elbo - ev.ELBO
			}
			if f.result.Status == Stalled && ev.ELBOErr > goals.UnknownNats &&
				!math.IsInf(ev.Gap, 0) && short <= 2*ev.Gap+ev.ELBOErr {
				v.add(faultUnsettled, short,
					"an ELBO of %.10g that is known to %.2g nats, gap %.2g; short by %.3g", ev.ELBO,
					ev.ELBOErr, ev.Gap, short)
				return nil
			}
			v.add(faultLimit, short,
				"%v after %.4g passes at ELBO %.10g, gap %.2g; short by %.3g (%v)", f.result.Status,
				f.result.Passes, ev.ELBO, ev.Gap, short, e)
			return nil
		}
	}
	sol, e := v.solve(s, p, f)
	if e != nil {
		v.add(faultUnsolved, 0, "%v; fit: %v", e, ev)
		return nil
	}
	v.proved = sol.proved
	gap := ev.Gap
	if math.IsNaN(gap) {
		gap = 0
	}
	known := sol.err + finite(ev.ELBOErr)
	allowed := 2*gap + trustSlack + known
	elboSpread, zSpread := -1.0, 0.0
	excuse := func() {
		if elboSpread < 0 {
			elboSpread, zSpread = v.spread(s, p, sol)
		}
	}
	if f.result != nil {
		short := sol.elbo - ev.ELBO
		if short > allowed && !s.below {
			if excuse(); short > allowed+elboSpread {
				v.add(faultGap, short,
					"short by %.4g nats of %.10g, Gap %.2g, ELBOErr %.2g, %.3g passes; "+
						"reference ± %.2g", short, sol.elbo, ev.Gap, ev.ELBOErr, f.result.Passes,
					sol.err+sol.gap)
			} else {
				v.add(faultUnsettled, short,
					"short by %.4g nats, Gap %.2g; rounding moves the ELBO by %.2g", short, ev.Gap,
					elboSpread)
			}
		}
		if proof := ev.GapBound + provedSlack + known; ev.Scope != Unproved && short > proof {
			if excuse(); short > proof+elboSpread {
				v.add(faultProof, short,
					"short by %.4g nats of %.10g, proved to be within %.3g (%v), ELBOErr %.2g; "+
						"reference ± %.2g", short, sol.elbo, ev.GapBound, ev.Scope, ev.ELBOErr,
					sol.err+sol.gap)
			}
		}
		for _, it := range f.result.Trace { // check every bound of the run
			if s.learns {
				break
			}
			short, proof := sol.elbo-it.ELBO, it.GapBound+provedSlack+sol.err+finite(it.ELBOErr)
			if it.Scope == Unproved || !(short > proof) {
				continue
			}
			if excuse(); short > proof+elboSpread {
				v.add(faultProof, short,
					"pass %v: short by %.4g nats of %.10g, proved to be within %.3g (%v)",
					it.Passes, short, sol.elbo, it.GapBound, it.Scope)
				break
			}
		}
		if -short > trustSlack+known+sol.gap {
			if excuse(); -short > trustSlack+known+sol.gap+elboSpread {
				v.add(faultAbove, -short,
					"ELBO %.10g is %.4g nats above the optimum ± %.2g, Gap %.2g, ELBOErr %.2g",
					ev.ELBO, -short, sol.err+sol.gap, ev.Gap, ev.ELBOErr)
			} else {
				v.add(faultUnsettled, -short,
					"%.4g nats above, Gap %.2g; rounding moves the ELBO by %.2g", -short, ev.Gap,
					elboSpread)
			}
		}
	}
	if s.below {
		return sol
	}
	// ELBO* − ELBO ≥ ½z² for any mean, with z in standard deviations of the full covariance, and
	// about ¼ of the square of the logarithm of a variance.
	limit := 3*math.Sqrt(2*(2*gap+trustSlack+sol.gap)) + s.loose
	worst, at := 0.0, ""
	see := func(z float64, format string, a ...any) {
		if z > worst {
			worst, at = z, fmt.Sprintf(format, a...)
		}
	}
	for i := range f.m {
		if p.weightAt(i) == 0 || !(sol.v[i] > 0) {
			continue
		}
		sd := spreadOf(sol.curvature, sol.problem.row(i))
		if sd > 0 {
			see(math.Abs(f.m[i]-sol.m[i])/sd, "latent mean %d is %.10g, not %.10g, sd %.4g", i,
				f.m[i], sol.m[i], sd)
		}
		see(0.5*math.Abs(math.Log(f.v[i]/(sol.v[i]))), "latent variance %d is %.10g, not %.10g", i,
			f.v[i], sol.v[i])
	}
	if mean, sd, curved := sol.weights(p); f.mean != nil && mean != nil {
		for j := range mean {
			see(math.Abs(f.mean[j]-mean[j])/curved[j], "weight %d is %.10g, not %.10g, sd %.4g", j,
				f.mean[j], mean[j], curved[j])
			see(math.Abs(math.Log(f.sd[j]/sd[j])), "sd %d is %.10g, not %.10g", j, f.sd[j], sd[j])
		}
	}
	if worst > limit {
		if excuse(); worst > limit+zSpread {
			v.add(faultMoments, worst, "off by %.3g sd (%.2g allowed): %s; Gap %.2g", worst, limit,
				at, gap)
		} else {
			v.add(faultUnsettled, worst, "off by %.3g sd: %s; rounding moves it by %.2g", worst, at,
				zSpread)
		}
	}
	return sol
}

func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// weights returns the moments of the weights of a GLM, or nil if the weights are not coordinates
// of the reference.
func (sol *refSolution) weights(p *trustProblem) (mean, sd, curved []float64) {
	s := sol.state
	if p.groups != nil {
		return sol.weightsOfGroups(p)
	}
	if p.variance == nil || len(s.mu) != len(p.variance) {
		return nil, nil, nil
	}
	r := len(s.mu)
	mean, sd, curved = make([]float64, r), make([]float64, r), make([]float64, r)
	for j, v := range p.variance {
		scale := asDouble(v).sqrt()
		mean[j] = asDouble(p.mean[j]).plus(scale.times(s.mu[j])).float()
		e := make([]double, r)
		e[j] = scale
		curved[j] = spreadOf(sol.curvature, e)
		if sd[j] = curved[j]; s.sd != nil {
			sd[j] = scale.times(s.sd[j]).float()
		}
	}
	return mean, sd, curved
}

// relate compares two fits of the same problem in different forms.
func (v *verdict) relate(rel *relation, p *trustProblem, s *subject, f, g *trustFit, err error,
	rows []int, sol *refSolution) {
	if err != nil {
		if len(v.faults) == 0 || v.faults[len(v.faults)-1].kind != faultPanic {
			if sol != nil {
				if elbo, z := v.spread(s, p, sol); elbo < 1e-3 && z < 1e-3 {
					v.add(faultRelation, 1, "%s: %v", rel.name, err)
				}
			}
		}
		return
	}
	if f.result.Status != Converged || s.below || !factsFor(p.lik).LogConcave ||
		s.learns && p.groups.learned() {
		return // there may be other optima
	}
	if g.result.Status != Converged {
		v.add(faultRelation, 1, "%s: %v at ELBO %.10g, and %.10g", rel.name, g.result.Status,
			g.result.ELBO, f.result.ELBO)
		return
	}
	a, b := f.result.Evaluation, g.result.Evaluation
	gap := finite(a.Gap) + finite(b.Gap)
	off := math.Abs(a.ELBO - b.ELBO)
	allowed := 2*gap + trustSlack + finite(a.ELBOErr) + finite(b.ELBOErr)
	limit := 3 * math.Sqrt(2*(2*gap+trustSlack))
	worst, at := 0.0, 0
	for i, k := range rows {
		if k < 0 || p.weightAt(i) == 0 {
			continue
		}
		sd := math.Sqrt(f.v[i])
		if sol != nil {
			sd = spreadOf(sol.curvature, sol.problem.row(i))
		}
		if z := math.Max(math.Abs(f.m[i]-g.m[k])/sd,
			0.5*math.Abs(math.Log(f.v[i]/g.v[k]))); f.v[i] > 0 && (z > worst || math.IsNaN(z)) {
			worst, at = z, i
		}
	}
	if off <= allowed && worst <= limit {
		return
	}
	elbo, z := 0.0, 0.0
	if sol != nil {
		elbo, z = v.spread(s, p, sol)
	}
	if off > allowed+elbo || worst > limit+z {
		v.add(faultRelation, off,
			"%s: ELBO %.12g and %.12g, apart by %.3g of %.2g allowed; marginals by %.3g sd of "+
				"%.2g at row %d", rel.name, a.ELBO, b.ELBO, off, allowed, worst, limit, at)
	}
}

// ---- all seeds

// knownFailures lists the seeds of CI that fail, by cause. A listed seed that passes fails the
// test, so that it is removed from the list. Seeds that take too long are not fitted unless -seed
// requests them.
var knownFailures = map[string][]uint64{}

const tooSlow = "more than 5 s"

// known returns why a seed is known to fail, or "" if it is not.
func known(seed uint64) string {
	for why, seeds := range knownFailures {
		if slices.Contains(seeds, seed) {
			return why
		}
	}
	return ""
}

// TestSeeds fits random problems of all models, likelihoods, shapes and scales.
func TestSeeds(t *testing.T) {
	t.Parallel()
	if *trustSeed >= 0 {
		v := judgeSeed(uint64(*trustSeed))
		t.Logf("%v\n%d fits, %v, proved: %v", v, v.fits, v.elapsed, v.proved)
		if len(v.violations()) > 0 {
			t.Fail()
		}
		return
	}
	n := testkit.GivenSeeds()
	if n == 0 {
		if n = 200; testing.Short() {
			n = 20
		}
	}
	verdicts := judgeAll(n, func(seed uint64) *verdict {
		if known(seed) == tooSlow {
			return nil
		}
		return judgeSeed(seed)
	})
	for _, v := range verdicts {
		switch why, bad := known(v.seed), len(v.violations()) > 0; {
		case bad && why == "":
			t.Errorf("%v", v)
		case !bad && why != "":
			t.Errorf("seed %d passes; take it off the list (%s)", v.seed, why)
		}
	}
	if len(verdicts) == 0 {
		t.Fatalf("none of the %d problems is of the subject %q", n, *trustOnly)
	}
	t.Log(summary(verdicts))
}

// judgeAll judges the given number of seeds on all cores, and returns the verdicts of the seeds
// that were fitted.
func judgeAll(n int, judge func(seed uint64) *verdict) []*verdict {
	verdicts := make([]*verdict, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				verdicts[i] = judge(testkit.FirstSeed() + uint64(i))
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(verdicts, func(v *verdict) bool { return v == nil || v.fits == 0 })
}

// TestSeedsFixed checks seeds outside the range of CI that once failed.
func TestSeedsFixed(t *testing.T) {
	t.Parallel()
	fixed := map[string][]uint64{
		"a bound without the rounding of K, or of a mean that is not Ka": {839, 872, 1328,
			2094, 3360, 3446, 3810, 4127},
		"a bound by the rows without what the mean gains by V's move": {4395},
		"exact steps of an Objective that take more than a thousand passes": {1198, 2010, 2839,
			3040, 3116, 3637},
		"an ELBO without the rounding of marginals of raw features":           {1104, 2157},
		"the end of a run whose ELBO is all error, or no end where it is not": {6407, 7564},
		"the end of an Objective whose last step brought more than its gap": {10858, 14416,
			17519},
		"an absurd state whose step predicts no gain":                {2024},
		"a gap of +Inf where the proof was within the goal":          {8074, 12445},
		"a mean of raw units without its last digits":                {2438, 16002, 19638},
		"a mean that moves apart from Ka under counts of 4e5":        {46005451},
		"a bound by rows whose curvatures change within a deviation": {3017696},
		"a bound by rows whose tangents are far off": {390, 1188, 1992,
			2336, 2558, 3036},
		"a bound of the mean that is all rounding": {300, 674, 1117,
			1581, 2557, 2794},
		"a start from where the rates of rows contradict each other": {466, 658, 1676,
			4397, 6084, 6668, 8875, 9786, 12691, 14694, 15624, 16918, 17159, 18254},
		"a block that is not solved where other rows have led":        {4159},
		"an error of log|P| that depends on the order of the weights": {15657},
		"counts under priors of 1e6 standard deviations": {1187, 5704, 5905,
			7902, 14167},
		"a start from where expectations overflow": {1070, 2311, 4603},
		"a block of a stream under priors far wider than the data": {11999, 13978, 14056,
			15359},
		"steps that bring more than those before, and end": {1278},
		"a diagonal V whose mean is not solved for":        {13958},
		"a proof of a diagonal V in raw units": {3997, 8836, 9389,
			12796, 16603},
		"a V that rounding leaves no step":                   {41946},
		"sites alone under a prior far wider than they tell": {3630},
		"few rows and many weights in raw units":             {1491},
		"a proof of slopes whose rounding a wide prior blows up": {3769, 1066, 2142,
			4011, 5751, 6716, 18238, 18684},
		"a proof of sites that wake or fall asleep":                        {10136, 19852},
		"an end at the optimum, of which rounding is what the proof lacks": {1062, 13957},
		"rates of which a prior far wider than the data lets go": {1963, 1144, 1175,
			3812, 6270, 10539, 12161, 12905, 13977, 14762},
		"an Objective whose steps do not get on": {3584, 7616, 10435,
			12142, 16177, 16263, 22530},
		"a short step of an Objective that does not report its gap":          {8215},
		"a gap by curvature that steps learnt elsewhere, under an outlier's": {9277},
		"a proof after a step of the mean by a V that has lost correlations": {23211, 25208},
		"a mean that is not Ka, and cannot be but by moving a with it":       {31496},
		"a start where half of a residual variance is in the exponent": {5559, 28739, 30259,
			31389, 28990},
		"conjugate gradients of columns that have next to all in common": {6001, 33198, 34041,
			35134, 26287, 29272, 9228},
		"a start that only narrower variances leave": {1072},
		"a start that only the dual leaves":          {1144},
		"a start that only the mode leaves":          {1676, 5559},
		"a GP with a Linear kernel in raw units": {741, 1001, 1155,
			2197, 3390, 3831, 6974, 7507, 18427, 18796},
	}
	for i, why := range slices.Sorted(maps.Keys(fixed)) {
		seeds := fixed[why]
		if testing.Short() && i%2 > 0 {
			continue
		}
		if !testkit.IsLong() {
			seeds = seeds[:min(len(seeds), testkit.Shorter(2, 1))]
		}
		for _, seed := range seeds {
			if v := judgeSeed(seed); len(v.violations()) > 0 {
				t.Errorf("%s: %v", why, v)
			}
		}
	}
}

// summary counts the faults and lists the worst of each kind.
func summary(verdicts []*verdict) string {
	var b strings.Builder
	fits, proved := 0, 0
	byKind := map[string][]*verdict{}
	size := func(v *verdict, kind string) (x float64) {
		for _, f := range v.faults {
			if f.kind == kind && !(f.size <= x) {
				x = f.size
			}
		}
		return x
	}
	errorsBy := map[string]int{}
	var total time.Duration
	var slowest *verdict
	for _, v := range verdicts {
		fits += v.fits
		total += v.elapsed
		if slowest == nil || v.elapsed > slowest.elapsed {
			slowest = v
		}
		if v.proved {
			proved++
		}
		seen := map[string]bool{}
		for _, f := range v.faults {
			if !seen[f.kind] {
				byKind[f.kind] = append(byKind[f.kind], v)
			}
			seen[f.kind] = true
			if f.kind == faultError || f.kind == faultRefused {
				sentinel, _, _ := strings.Cut(f.detail, ": ")
				errorsBy[f.kind+": "+sentinel]++
			}
		}
	}
	fmt.Fprintf(&b, "%d seeds, %d fits, optimum proved for %d; slowest %v (seed %d)\n",
		len(verdicts), fits, proved, slowest.elapsed.Round(time.Millisecond), slowest.seed)
	for _, kind := range []string{faultPanic, faultNaN, faultError, faultLimit, faultGap,
		faultProof, faultAbove, faultMoments, faultRelation, faultBits, faultTime, faultUnsolved,
		faultUnsettled, faultRefused} {
		all := byKind[kind]
		slices.SortStableFunc(all,
			func(x, y *verdict) int { return cmp.Compare(size(y, kind), size(x, kind)) })
		fmt.Fprintf(&b, "%-18s %5d", kind, len(all))
		models := map[string]int{}
		for i, v := range all {
			models[v.subject.name+"/"+kindOf(v.problem.lik)]++
			if i < 6 {
				fmt.Fprintf(&b, "  %d (%.3g)", v.seed, size(v, kind))
			}
		}
		b.WriteString("\n")
		if len(models) > 0 {
			fmt.Fprintf(&b, "    %s\n", tally(models))
		}
	}
	if len(errorsBy) > 0 {
		fmt.Fprintf(&b, "errors: %s\n", tally(errorsBy))
	}
	return b.String()
}

func tally(n map[string]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%s %d", k, n[k]))
	}
	return strings.Join(all, ", ")
}
