package pgsvi

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// siteTerms are N log-likelihood terms of one latent value each,
//
//	w_n log p(y_n | o_n + η_n + ε_n),   ε_n ~ N(0, c_n).
//
// They are the one place where a Likelihood meets its responses: every model by sites comes in
// through newTerms, and every step and evaluation goes out through expect or
// estimate. Of a mini-batch or block, terms are named by their indices.
type siteTerms struct {
	lik    Likelihood
	y      []float64
	offset []float64 // o; nil means 0
	weight []float64 // w > 0; nil means 1
	extra  []float64 // c; nil means 0
	blur   []float64 // how far rounding may have moved c; nil means not at all
	row    []int     // the caller's number of each term; nil means first + n
	first  int

	nested *nestedRule // how a run takes expectations; nil means ExpectLogProb
	model  *siteTerms  // those of the model, of which these are a run's; nil means these
}

// run returns the terms for a run of its own, with a nestedRule where that pays.
func (t *siteTerms) run() *siteTerms {
	own := *t
	own.nested, own.model = newNestedRule(t.lik, t.len()), t
	return &own
}

// of reports whether t are the terms of a run of the model of o.
func (t *siteTerms) of(o *siteTerms) bool { return t == o || t.model == o }

// newSiteTerms returns the terms of responses y, which it keeps, under lik, nil for GaussianNoise{}. It returns what
// the likelihood says of its parameters and of the responses.
func newSiteTerms(lik Likelihood, y []float64) (*siteTerms, error) {
	if lik == nil {
		lik = GaussianNoise{}
	}
	if err := checkLabels(lik, y); err != nil {
		return nil, err
	}
	return &siteTerms{lik: lik, y: y}, nil
}

// checkRow returns an error, without the name of the package, if row, with number n, is none of so many columns under lik.
func checkRow(row *Row, cols int, lik Likelihood, n int) error {
	switch {
	case row.Ind == nil && len(row.Val) != cols:
		return fmt.Errorf("row %d has %d values, the model %d columns: %w", n, len(row.Val), cols, ErrShape)
	case row.Ind != nil && len(row.Ind) != len(row.Val):
		return fmt.Errorf("row %d has %d columns and %d values: %w", n, len(row.Ind), len(row.Val), ErrShape)
	case row.Weight < 0:
		return fmt.Errorf("row %d has weight %v: %w", n, row.Weight, ErrParam)
	}
	for k, j := range row.Ind {
		if j < 0 || j >= cols || k > 0 && j <= row.Ind[k-1] {
			return fmt.Errorf("row %d has column %d; columns must increase and be below %d: %w", n, j, cols, ErrShape)
		}
	}
	if k, ok := dense.AllFinite(row.Val); !ok {
		return fmt.Errorf("row %d, column %d is %v: %w", n, columnOf(row.Ind, k), row.Val[k], ErrNotFinite)
	}
	for _, v := range [...]float64{row.Y, row.Offset, row.Weight} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("row %d has response %v, offset %v, weight %v: %w", n, row.Y, row.Offset, row.Weight, ErrNotFinite)
		}
	}
	if err := checkLabel(lik, row.Y); err != nil {
		return fmt.Errorf("row %d: %w", n, err)
	}
	return nil
}

// len returns N.
func (t *siteTerms) len() int { return len(t.y) }

// sub returns the terms at index, new; nil is all of them.
func (t *siteTerms) sub(index []int) *siteTerms {
	if index == nil {
		return t
	}
	s := &siteTerms{lik: t.lik, row: make([]int, len(index)), nested: t.nested}
	for k, i := range index {
		if s.row[k] = t.first + i; t.row != nil {
			s.row[k] = t.row[i]
		}
	}
	for _, p := range [][2]*[]float64{{&s.y, &t.y}, {&s.offset, &t.offset}, {&s.weight, &t.weight}, {&s.extra, &t.extra}, {&s.blur, &t.blur}} {
		if *p[1] == nil {
			continue
		}
		*p[0] = make([]float64, len(index))
		for k, i := range index {
			(*p[0])[k] = (*p[1])[i]
		}
	}
	return s
}

// term returns y_n, o_n, w_n and c_n.
func (t *siteTerms) term(n int) (y, offset, weight, extra float64) {
	y, weight = t.y[n], 1
	if t.offset != nil {
		offset = t.offset[n]
	}
	if t.weight != nil {
		weight = t.weight[n]
	}
	if t.extra != nil {
		extra = t.extra[n]
	}
	return y, offset, weight, extra
}

// describe names term n in front of what an error says of it.
func (t *siteTerms) describe(n int) string { return t.name(n) + "," }

// name names term n.
func (t *siteTerms) name(n int) string {
	y, o, w, c := t.term(n)
	i := t.first + n
	if t.row != nil {
		i = t.row[n]
	}
	s := fmt.Sprintf("row %d, with response %v", i, y)
	if t.offset != nil {
		s += fmt.Sprintf(", offset %v", o)
	}
	if t.weight != nil {
		s += fmt.Sprintf(", weight %v", w)
	}
	if t.extra != nil {
		s += fmt.Sprintf(", residual variance %v (less with a higher rank)", c)
	}
	return s
}

// explain says of term n why its expectation under η_n ~ N(m, v) is not finite.
func (t *siteTerms) explain(n int, m, v float64) string {
	y, o, _, c := t.term(n)
	if eta, l, ok := holeOf(t.lik, y, m+o, v+c); ok {
		return fmt.Sprintf("%s has log-likelihood %v at η = %.6g; %s", t.describe(n), l, eta, remedy(l))
	}
	return fmt.Sprintf("%s has an expectation that overflows under N(%.4g, %.4g)", t.describe(n), m+o, v+c)
}

// expectation returns w_n E[log p(y_n|·)] under η_n ~ N(m, v), with its derivatives.
func (t *siteTerms) expectation(n int, m, v float64) Expectation {
	y, o, w, c := t.term(n)
	return t.nested.expect(t.lik, y, m+o, v+c, false).times(w)
}

// checked is expectation, and checks the nestedRule, if there is one, where that is due.
func (t *siteTerms) checked(n int, m, v float64) Expectation {
	y, o, w, c := t.term(n)
	return t.nested.expect(t.lik, y, m+o, v+c, true).times(w)
}

// times returns w·x.
func (x Expectation) times(w float64) Expectation {
	if w == 1 {
		return x
	}
	return Expectation{w * x.Value, w * x.D1, w * x.D2, w * x.Err}
}

// logProb returns w_n log p(y_n|·) at η_n, for terms without residual variance.
func (t *siteTerms) logProb(n int, eta float64) float64 {
	y, o, w, _ := t.term(n)
	return w * t.lik.LogProb(y, eta+o)
}

// excess returns Σ_n [w_n log p(y_n|·) at η_n = m_n + δ_n, less the site −½γ_nδ_n² + a_nδ_n] of the terms from lo on, as many as there are δ;
// nil γ and a mean 0. The error wraps ErrNotFinite and names the first term that is NaN or +Inf.
func (t *siteTerms) excess(lo int, delta, m, gamma, a []float64) (sum float64, err error) {
	n := lo
	defer parallel.At(&n, t.name)
	for ; n < lo+len(delta); n++ {
		d := delta[n-lo]
		l := t.logProb(n, m[n]+d)
		if math.IsNaN(l) || math.IsInf(l, 1) {
			return l, fmt.Errorf("pgsvi: %s has log-likelihood %v at η = %.6g: %w", t.describe(n), l, m[n]+d, ErrNotFinite)
		}
		if gamma != nil {
			l += (0.5*gamma[n]*d - a[n]) * d
		}
		sum += l
	}
	return sum, nil
}

// expect takes the expectations of the terms in batch (nil means all) under the marginals of s, which has
// an element for each of them, shared between workers: each is computed by one of them, so that the
// result does not depend on their number. The error wraps ErrNotFinite and names the first bad term, or is that
// of the crew.
func (t *siteTerms) expect(s *siteState, batch []int, c crew) error {
	s.bound, s.far, s.lost = dense.Resize(s.bound, len(s.m)), dense.Resize(s.far, len(s.m)), dense.Resize(s.lost, len(s.m))
	if len(s.m) >= expectShared { // and a Likelihood is safe for concurrent use
		c.workers = max(c.workers, c.halt.Workers())
	}
	if c.workers <= 1 {
		chunk := t.chunk()
		for lo := 0; lo < len(s.m) && !c.halt.Stopped(); lo += chunk {
			t.expectSites(s, batch, lo, min(lo+chunk, len(s.m)))
		}
	} else {
		t.expectParallel(s, batch, c)
	}
	if err := c.halt.Err(); err != nil {
		return err
	}
	sum, certain, wild := 0.0, true, false
	for i, e := range s.e {
		var o float64
		if t.offset != nil {
			o = t.offset[dense.Index(batch, i)]
		}
		sum += s.bound[i] + dense.Epsilon*math.Abs(s.d1[i])*(math.Abs(s.m[i])+math.Abs(o))
		if t.blur != nil {
			sum += 0.5 * math.Abs(s.tg[i]) * t.blur[dense.Index(batch, i)]
		}
		wild = wild || s.lost[i]
		certain = certain && !s.far[i] && s.tg[i] >= 0 && !math.IsInf(s.bound[i], 0)
		if bad := s.tg[i] + s.d1[i] + e; math.IsNaN(bad) || math.IsInf(e, 1) {
			return fmt.Errorf("%s: %w", t.explain(dense.Index(batch, i), s.m[i], s.v[i]), ErrNotFinite)
		}
	}
	s.err, s.certain, s.wild = sum, certain, wild
	return nil
}

// elboSlack is the relative rounding of an ELBO that a proof allows for.
const elboSlack = 1e-14

// overflow returns an error if a term of s has no expectation.
func (t *siteTerms) overflow(s *siteState, batch []int) error {
	for i, e := range s.e {
		if s.lost[i] || math.IsInf(e, -1) {
			return fmt.Errorf("%s: %w", t.explain(dense.Index(batch, i), s.m[i], s.v[i]), ErrNotFinite)
		}
	}
	return nil
}

// expectChunk is the number of terms between two looks at whether the step is halted, and at a time for a worker, or expectTogether where
// expectations are taken together. So many as expectShared take longer than it does to wake another, whatever they are.
const (
	expectChunk    = 8
	expectTogether = 256
	expectShared   = 512
)

// chunk returns how many terms come at a time.
func (t *siteTerms) chunk() int {
	if eachOf(t.lik) != nil {
		return expectTogether
	}
	return expectChunk
}

func (t *siteTerms) expectParallel(s *siteState, batch []int, c crew) {
	loop := parallel.Loop{Halt: c.halt}
	loop.Run(len(s.m), t.chunk(), c.workers, parallel.Func(func(_, lo, hi int) {
		t.expectSites(s, batch, lo, hi)
	}))
}

// crew is who does the work of a step, and until when.
type crew struct {
	workers int
	halt    *parallel.Halt
}

// expectSites takes the expectations of the elements lo … hi−1 of s.
func (t *siteTerms) expectSites(s *siteState, batch []int, lo, hi int) {
	i := lo
	defer parallel.At(&i, func(i int) string { return t.name(dense.Index(batch, i)) })
	if each := eachOf(t.lik); each != nil {
		t.place(s, batch, lo, hi)
		each.expectEach(s.e[lo:hi], s.d1[lo:hi], s.tg[lo:hi], s.bound[lo:hi])
		for ; i < hi; i++ {
			n, x := dense.Index(batch, i), Expectation{s.e[i], s.d1[i], s.tg[i], s.bound[i]}
			if t.weight != nil {
				x = x.times(t.weight[n])
			}
			t.expectSite(s, i, n, x)
		}
		return
	}
	for ; i < hi; i++ {
		n := dense.Index(batch, i)
		t.expectSite(s, i, n, t.checked(n, s.m[i], s.v[i]))
	}
}

// place stores the responses, means and variances of elements lo … hi−1 of s where eachExpecter looks for them.
func (t *siteTerms) place(s *siteState, batch []int, lo, hi int) {
	if batch == nil {
		copy(s.e[lo:hi], t.y[lo:hi])
	} else {
		for i, n := range batch[lo:hi] {
			s.e[lo+i] = t.y[n]
		}
	}
	copy(s.d1[lo:hi], s.m[lo:hi])
	copy(s.tg[lo:hi], s.v[lo:hi])
	if t.offset == nil && t.extra == nil {
		return
	}
	for i := lo; i < hi; i++ {
		_, o, _, c := t.term(dense.Index(batch, i))
		s.d1[i], s.tg[i] = s.m[i]+o, s.v[i]+c
	}
}

// expectSite takes the expectation x of term n, element i of s. Where the derivatives are beyond
// use, those of a narrower marginal stand in: a finite step in the right
// direction; NaN says that there are none.
func (t *siteTerms) expectSite(s *siteState, i, n int, x Expectation) {
	m, v := s.m[i], s.v[i]
	s.e[i], s.bound[i] = x.Value, x.Err
	if usable(x, v) {
		s.tg[i], s.d1[i], s.far[i], s.lost[i] = -x.D2, x.D1, false, false
		return
	}
	d1 := x.D1
	x, at, v := t.standIn(n, m, v, x, math.Inf(1))
	// About m, where the site stands.
	s.tg[i], s.d1[i] = -x.D2, x.D1-x.D2*(at-m)
	s.far[i] = v != s.v[i] || at != m
	s.lost[i] = s.far[i] && (math.IsInf(s.e[i], 0) || !(math.Abs(d1-s.d1[i]) <= 0.5*math.Abs(d1)))
	if !usable(x, v) {
		s.tg[i] = math.NaN()
	}
}

// standIn returns derivatives of term n, x under N(m, v), that are of use where those are not: under N(at, u), u ≤ v, at = m but
// where derivatives at m are absurd, promising more than so many nats. They are of no use either where there are none.
func (t *siteTerms) standIn(n int, m, v float64, x Expectation, nats float64) (_ Expectation, at, u float64) {
	at, u = m, v
	narrowest := t.expectation(n, m, 0)
	if absurd(narrowest, nats) {
		if at = t.beside(n, m, v); at != m {
			narrowest, x = t.expectation(n, at, 0), t.expectation(n, at, v)
		}
	}
	for k := 0; k < mostNarrowed && !usable(x, u) && !t.holeAt(n, at); k++ {
		if u /= 8; !hopeless(narrowest, u) {
			x = t.expectation(n, at, u)
		}
	}
	return x, at, u
}

// sane returns the target of element i of s, term n: γ and the linear coefficient about the mean. Where it is absurd it is that of the nearest
// mean at which it is not.
func (t *siteTerms) sane(s *siteState, i, n int) (gamma, a float64) {
	x, m := Expectation{D1: s.d1[i], D2: -s.tg[i]}, s.m[i]
	if !absurd(x, mostNats) {
		return s.tg[i], s.d1[i]
	}
	y, at, u := t.standIn(n, m, s.v[i], t.expectation(n, m, s.v[i]), mostNats)
	if !usable(y, u) {
		return s.tg[i], s.d1[i]
	}
	return -y.D2, y.D1 - y.D2*(at-m)
}

// absurd reports whether there is a target of s that is.
func (s *siteState) absurd() bool {
	for i, g := range s.tg {
		if absurd(Expectation{D1: s.d1[i], D2: -g}, mostNats) {
			return true
		}
	}
	return false
}

// absurd reports whether derivatives are of no use to say where to go: they overflow, or they promise more than so many nats
// and say that these are near, as those of an exponential do far out.
func absurd(x Expectation, nats float64) bool {
	return !moderate(x) || x.D1*x.D1 > nats*math.Abs(x.D2) && math.Abs(x.D1) < mostBeside*math.Abs(x.D2)
}

// beside returns the mean nearest to m at which the derivatives of term n are of use to a marginal of variance v, or of less where there is
// none and the term has no value at m: those there lead to where it leads, too. It is m where none is found, or where either side may have one: log-likelihoods that are not log-concave.
func (t *siteTerms) beside(n int, m, v float64) float64 {
	if !factsOf(t.lik).LogConcave {
		return m
	}
	good := func(x Expectation) bool { return usable(x, v) && !absurd(x, besideNats) }
	at := t.nearest(n, m, 1, good)
	for k := 0; k < mostBesides && at == m && t.holeAt(n, m); k++ {
		v /= 64
		at = t.nearest(n, m, 1, good)
	}
	return at
}

// nearest returns the mean nearest to m, to within tol, at which the derivatives of term n are good, or m where none is found.
func (t *siteTerms) nearest(n int, m, tol float64, good func(Expectation) bool) float64 {
	at := func(d float64) bool { return good(t.expectation(n, m+d, 0)) }
	bad, d := 0.0, 0.0
	_, _, _, c := t.term(n)
	for r := 1.0; r <= min(mostBeside+c, math.MaxFloat64) && d == 0; r *= 2 {
		switch {
		case at(r):
			bad, d = r/2, r
		case at(-r):
			bad, d = -r/2, -r
		}
	}
	if math.Abs(d) == 1 {
		bad = 0
	}
	for math.Abs(d-bad) > tol {
		mid := 0.5 * (bad + d)
		if mid == bad || mid == d { // neighbouring floats, further apart than tol
			break
		}
		if at(mid) {
			d = mid
		} else {
			bad = mid
		}
	}
	return m + d
}

// besideNats is what derivatives may promise where beside leads: sites as strong as those of more leave the others no digits.
const besideNats = 1e6

// mostBeside is how far beside looks, beyond the residual variance, of which the expectation of an exponential has half in its exponent: an
// exponential that overflows here is small there. For a narrower marginal, each of a 64th of the variance, it looks so often.
const (
	mostBeside  = 1 << 14
	mostBesides = 12
)

// holeAt reports whether the log-likelihood of term n is not finite at m, so that no narrower marginal helps.
func (t *siteTerms) holeAt(n int, m float64) bool {
	y, o, _, _ := t.term(n)
	l := t.lik.LogProb(y, m+o)
	return math.IsNaN(l) || math.IsInf(l, 0)
}

// mostNarrowed bounds how often a variance is divided by 8 in search of derivatives: to below the least number.
const mostNarrowed = 600

// mostTelling is how much more precise than a marginal its target may be, and by how many of its standard deviations it may be off.
const mostTelling = 1e8

// usable reports whether the derivatives under a marginal of variance v can be
// a target: of a finite expectation, and no more than a factor of mostTelling more precise than it.
func usable(x Expectation, v float64) bool {
	return !math.IsInf(x.Value, 0) && math.Abs(x.D2)*v < mostTelling && math.Abs(x.D1)*math.Sqrt(v) < mostTelling && moderate(x)
}

// hopeless reports whether the derivatives under a marginal of variance v are not worth the while, judged by those at its mean, which are
// less where log-likelihoods fall as exponentials do and much the same where they fall as polynomials.
func hopeless(atMean Expectation, v float64) bool {
	return math.Abs(atMean.D1)*math.Sqrt(v) > 10*mostTelling || math.Abs(atMean.D2)*v > 100*mostTelling
}

// moderate reports whether the derivatives are far from overflow.
func moderate(x Expectation) bool { return math.Abs(x.D1)+math.Abs(x.D2) < 1e150 }

// solveDefinite is the determinant of a Hessian, relative to that of its diagonal, below which differences do not tell whether it is definite.
const solveDefinite = 0.01

// solve minimises KL(N(m, v)‖N(mc, vc)) − w_n E[log p(y_n|η)] over m and v from
// the given start, and returns the site of the minimiser: −D2, D1 and m. Steps
// are Newton's in m and √v, in which it is convex where log p is concave, halved until the
// value falls. As a target it need not be accurate: it ends where steps are small.
func (t *siteTerms) solve(n int, mc, vc, m, v float64) (gamma, d1, at float64) {
	defer parallel.At(&n, t.name)
	value := func(x Expectation, m, v float64) float64 {
		return 0.5*((m-mc)*(m-mc)/vc+v/vc-math.Log(v)) - x.Value
	}
	if absurd(t.expectation(n, m, 0), mostNats) {
		m = t.beside(n, m, v)
	}
	x := t.expectation(n, m, v)
	for k := 0; k < mostNarrowed && (!moderate(x) || math.Abs(x.D2)*v > 1e8 || math.IsInf(x.Value, 0)); k++ {
		v /= 8
		x = t.expectation(n, m, v)
	}
	f := value(x, m, v)
	for range 1000 {
		// The gradient and the Hessian in m and e, √v being multiplied by 1 + e.
		gamma := -x.D2
		gm, ge := (m-mc)/vc-x.D1, v/vc-1+v*gamma
		tm, tv := t.bend(n, m, v, gamma)
		hm, he, hme := 1/vc+gamma, v/vc+1+v*(gamma+2*v*tv), v*tm
		if !(hm > 0 && he > 0 && hm*he-hme*hme > solveDefinite*hm*he) {
			hm, he, hme = math.Max(hm, 1/vc), math.Max(he, 1), 0
		}
		det := hm*he - hme*hme
		dm, de := (hme*ge-he*gm)/det, (hme*gm-hm*ge)/det
		if math.Abs(dm) < 1e-3*math.Sqrt(v) && math.Abs(de) < 1e-3 {
			break
		}
		step := 1.0
		for ; step > 1e-12; step /= 2 {
			r := 1 + step*de
			if de < 0 {
				r = 1 / (1 - step*de)
			}
			mt, vt := m+step*dm, v*r*r
			xt := t.expectation(n, mt, vt)
			if ft := value(xt, mt, vt); moderate(xt) && ft <= f {
				m, v, x, f = mt, vt, xt, ft
				break
			}
		}
		if step <= 1e-12 {
			break
		}
	}
	return -x.D2, x.D1, m
}

// Differences of γ̂ are taken over bendWidth of a standard deviation, or over less, down to bendLeast, until γ̂ changes by no more than bendMost of it.
const (
	bendWidth = 0.01
	bendLeast = 1e-9
	bendMost  = 0.1
)

// bend returns ∂γ̂/∂m and ∂γ̂/∂v = ½∂²γ̂/∂m² of term n under N(m, v), where γ̂ is gamma, or zeros where it is not smooth.
func (t *siteTerms) bend(n int, m, v, gamma float64) (tm, tv float64) {
	sd := math.Sqrt(v)
	for h := bendWidth * sd; h > bendLeast*sd; h /= 4 {
		above, below := -t.expectation(n, m+h, v).D2, -t.expectation(n, m-h, v).D2
		if most := bendMost * gamma; math.Abs(above-gamma) <= most && math.Abs(below-gamma) <= most {
			return (above - below) / (2 * h), 0.5 * (above - 2*gamma + below) / (h * h)
		}
	}
	return 0, 0
}

// siteState is a Gaussian in site form, with the expectations of its terms.
type siteState struct {
	gamma []float64 // γ
	a     []float64 // b − γm: the linear coefficient of the site about the mean, equal to K⁻¹m
	m, v  []float64 // marginals
	e     []float64 // E[log p(y_n|η_n)]
	tg    []float64 // −∂²E/∂m²: where γ would move
	d1    []float64 // ∂E/∂m: where a would move
	err   float64   // bound on the error of Σ e, with what the rounding of m makes of it

	// certain: tg and d1 are the derivatives of all e, to rounding, and no tg is negative.
	certain bool
	wild    bool // a d1 is that of a narrower marginal, and another: it says where to go, and not how far it is

	bound []float64 // scratch of expect: on the error of each e,
	far   []bool    // and whether tg and d1 are those of a narrower marginal,
	lost  []bool    // under which d1 differs, or without which there is no e
}

func (s *siteState) resize(n int) {
	dense.ResizeAll(n, &s.gamma, &s.a, &s.m, &s.v, &s.e, &s.tg, &s.d1)
}

func (s *siteState) copyFrom(o *siteState) {
	s.resize(len(o.m))
	for _, p := range [][2][]float64{{s.gamma, o.gamma}, {s.a, o.a}, {s.m, o.m}, {s.v, o.v}, {s.e, o.e}, {s.tg, o.tg}, {s.d1, o.d1}} {
		copy(p[0], p[1])
	}
	s.err, s.certain, s.wild = o.err, o.certain, o.wild
}

// siteEstimates are what an estimator says of the terms of a batch: expectations and their
// derivatives with respect to the mean, under the marginals N(m, v).
type siteEstimates struct {
	m, v, e, d1, d2 []float64
	y, at, wide     []float64 // scratch: what the estimator is shown
}

// resize makes room for n terms.
func (x *siteEstimates) resize(n int) {
	dense.ResizeAll(n, &x.m, &x.v, &x.e, &x.d1, &x.d2, &x.y, &x.at, &x.wide)
}

// estimate stores in x what est says of the terms in batch, under the marginals x.m and x.v. With standIn, derivatives that
// are beyond use give way to those of narrower marginals, as in expectSite. The error
// wraps ErrNotFinite and names the first term whose derivatives are of no use, or is that of est.
func (t *siteTerms) estimate(x *siteEstimates, batch []int, est SiteEstimator, standIn bool, rng *rand.Rand) error {
	for i := range x.m {
		y, o, _, c := t.term(dense.Index(batch, i))
		x.y[i], x.at[i], x.wide[i] = y, x.m[i]+o, x.v[i]+c
	}
	defer parallel.At(nil, func(i int) string { return t.name(dense.Index(batch, i)) })
	if err := est.EstimateSites(x.e, x.d1, x.d2, t.lik, x.y, x.at, x.wide, rng); err != nil {
		return err
	}
	for i := range x.m {
		n := dense.Index(batch, i)
		if t.weight != nil {
			w := t.weight[n]
			x.e[i], x.d1[i], x.d2[i] = w*x.e[i], w*x.d1[i], w*x.d2[i]
		}
		if e := (Expectation{Value: x.e[i], D1: x.d1[i], D2: x.d2[i]}); standIn && !usable(e, x.v[i]) {
			if e, at, u := t.standIn(n, x.m[i], x.v[i], e, mostNats); usable(e, u) {
				x.d1[i], x.d2[i] = e.D1-e.D2*(at-x.m[i]), e.D2
			}
		}
		if d := x.d1[i] + x.d2[i]; math.IsNaN(d) || math.IsInf(d, 0) {
			if _, _, ok := holeOf(t.lik, x.y[i], x.at[i], x.wide[i]); ok {
				return fmt.Errorf("%s: %w", t.explain(n, x.m[i], x.v[i]), ErrNotFinite)
			}
			return fmt.Errorf("%s under N(%.4g, %.4g) has derivatives %v, %v; use Exact{}, no step size, or a narrower prior: %w", t.describe(n), x.m[i], x.v[i], x.d1[i], x.d2[i], ErrNotFinite)
		}
	}
	return nil
}

// siteSmooth is f = −Σ_n w_n E_q[log p(y_n|η_n)], η_n = x_nᵀz, over a Gaussian q. Its terms
// see one marginal of q each: expectations are taken of one number at a time,
// whatever the estimator is. Values are exact.
type siteSmooth struct {
	terms *siteTerms
	x     [][]float64 // x_n; nil means the unit vectors
	est   SiteEstimator
	exact bool // est ignores randomness
	// best finds the best full Gaussian under prior; nil where that is not known.
	best  func(c crew) (sought, *mat.SymDense, error)
	prior *Gaussian
}

// dim returns the dimension of z.
func (f *siteSmooth) siteLikelihood() Likelihood { return f.terms.lik }

func (f *siteSmooth) dim() int {
	if f.x == nil {
		return f.terms.len()
	}
	return len(f.x[0])
}

// value returns η_n at z.
func (f *siteSmooth) value(z []float64, n int) float64 {
	if f.x == nil {
		return z[n]
	}
	return floats.Dot(f.x[n], z)
}

// marginal returns the mean and the variance of η_n under q.
func (f *siteSmooth) marginal(q normalForm, n int) (m, v float64) {
	if f.x == nil {
		return q.meanAt(n), q.covAt(n, n)
	}
	return q.marginal(f.x[n])
}

// Setup implements Smooth. The error wraps ErrShape unless q is Gaussian of the dimension of z.
func (f *siteSmooth) Setup(q Dist) (SmoothTerms, error) {
	if _, ok := q.(normalForm); !ok || q.Dim() != f.dim() {
		return SmoothTerms{}, fmt.Errorf("pgsvi: terms of %d latent values need a Gaussian q of that dimension, not a %T of dimension %d: %w", f.dim(), q, q.Dim(), ErrShape)
	}
	return SmoothTerms{f.terms.len(), f.exact}, nil
}

// Grad implements Smooth: with e_n = w_n E_q[log p(y_n|η_n)] and its derivatives α, −γ with respect to the
// mean of η_n, −∂e_n/∂m = −αx_n and −∂e_n/∂V = ½γ x_n x_nᵀ.
func (f *siteSmooth) Grad(ctx context.Context, env *Env, dst []float64, q Dist, batch []int) (float64, error) {
	n := q.(normalForm)
	b := newBatch(batch, f.terms.len())
	var x siteEstimates
	x.resize(b.n)
	for i := range b.n {
		if ctx.Err() != nil {
			return math.NaN(), context.Cause(ctx)
		}
		x.m[i], x.v[i] = f.marginal(n, b.index(i))
	}
	if err := f.terms.estimate(&x, batch, f.est, false, env.rng()); err != nil {
		return math.NaN(), err
	}
	var value float64
	for i := range b.n {
		if e := x.e[i]; math.IsNaN(e) || math.IsInf(e, 0) {
			return math.NaN(), fmt.Errorf("%s: %w", f.terms.explain(b.index(i), x.m[i], x.v[i]), ErrNotFinite)
		}
		value -= b.scale * x.e[i]
		x.d1[i] *= -b.scale
		x.d2[i] *= -b.scale
	}
	f.collect(dst, q, &x, b)
	return value, nil
}

// collect stores in dst the gradient whose derivatives in the means of the terms of b are x.d1, and in their variances half of x.d2.
func (f *siteSmooth) collect(dst []float64, q Dist, x *siteEstimates, b batchTerms) {
	if g := factorOf(q); g != nil && f.x == nil {
		// V_nn = Σ_j L_nj²: the gradient of term n has row n of L alone.
		clear(dst)
		for i := range b.n {
			j := b.index(i)
			dst[j] += x.d1[i]
			k := g.d + j*(j+1)/2
			for a, l := range g.l[j*g.d : j*g.d+j+1] {
				w := x.d2[i] * l
				if a == j && g.coords == LogCholesky {
					w *= l
				}
				dst[k+a] += w
			}
		}
		return
	}
	n := q.(normalForm)
	gm, gv := make([]float64, n.Dim()), make([]float64, n.numGradV())
	if f.x != nil {
		for i := range b.n {
			row := f.x[b.index(i)]
			floats.AddScaled(gm, x.d1[i], row)
			n.addOuter(gv, 0.5*x.d2[i], row, row)
		}
		n.fromMomentGrad(dst, gm, gv)
		return
	}
	stride := n.Dim() + 1 // from one element of the diagonal to the next
	if len(gv) == len(gm) {
		stride = 1
	}
	for i := range b.n {
		j := b.index(i)
		gm[j] += x.d1[i]
		gv[j*stride] += 0.5 * x.d2[i]
	}
	n.fromMomentGrad(dst, gm, gv)
}

// guide implements guided.
func (f *siteSmooth) guide(dst []float64, q Dist, halt *parallel.Halt) (bool, error) {
	n := q.(normalForm)
	b := newBatch(nil, f.terms.len())
	var x siteEstimates
	x.resize(b.n)
	astray := false
	var i int
	defer parallel.At(&i, f.terms.name)
	for ; i < b.n && !halt.Stopped(); i++ {
		m, v := f.marginal(n, i)
		e, at, u := f.terms.expectation(i, m, v), m, v
		if !usable(e, v) {
			e, at, u = f.terms.standIn(i, m, v, e, mostNats)
			astray = true
		}
		if !usable(e, u) {
			return false, nil
		}
		x.d1[i], x.d2[i] = -e.D1+e.D2*(at-m), -e.D2
	}
	if !astray {
		return false, halt.Err()
	}
	f.collect(dst, q, &x, b)
	return true, halt.Err()
}

// sought is what came of a search for the best q.
type sought struct {
	mean   []float64
	most   float64 // the ELBO that no q has, by the estimate
	passes int     // over the terms that it took; 0 where there was none
}

// seek implements seeker.
func (f *siteSmooth) seek(q Dist, prior ExpFamily, workers int, halt *parallel.Halt) (sought, error) {
	g, ok := q.(*Gaussian)
	if !ok || g.isDiagonal() || f.best == nil || !slices.Equal(prior.Natural(nil), f.prior.Natural(nil)) {
		return sought{}, nil
	}
	found, v, err := f.best(crew{workers, halt})
	if err != nil {
		return found, err
	}
	full := g.full()
	copy(full.next.m, found.mean)
	for i := range found.mean {
		for j := range found.mean {
			full.next.v[i*len(found.mean)+j] = v.At(i, j)
		}
	}
	return found, full.commitMoments()
}

// mostNats is what derivatives may promise of a step to the mode of a log-likelihood: of an ELBO as large no nat is known.
const mostNats = 1e16

// Value returns f over all terms, and a bound on its error.
func (f *siteSmooth) Value(ctx context.Context, _ *Env, q Dist) (value, bound float64, err error) {
	g := q.(normalForm)
	var n int
	defer parallel.At(&n, f.terms.name)
	for n = range f.terms.len() {
		if ctx.Err() != nil {
			return math.NaN(), math.NaN(), context.Cause(ctx)
		}
		m, v := f.marginal(g, n)
		e := f.terms.expectation(n, m, v)
		value -= e.Value
		bound += e.Err + f.rounding(g, n, e)
	}
	return value, bound, nil
}

// rounding returns what rounding of xᵀm and xᵀVx may make of e, the expectation of term n: under features of raw units these are small
// differences of large numbers.
func (f *siteSmooth) rounding(q normalForm, n int, e Expectation) float64 {
	if f.x == nil {
		return 0
	}
	var mean, sd float64
	for j, x := range f.x[n] {
		mean += math.Abs(x * q.meanAt(j))
		sd += math.Abs(x) * math.Sqrt(q.covAt(j, j))
	}
	return dense.Epsilon * (math.Abs(e.D1)*mean + math.Abs(e.D2)*sd*sd)
}

func (t *siteTerms) digest(d *save.Digest) {
	digestValue(d, t.lik)
	for _, x := range [][]float64{t.y, t.offset, t.weight, t.extra} {
		d.Floats(x)
	}
}

// state is that of n terms with their expectations.
func (s *siteState) state(c *save.State, n int) {
	c.Floats(n, &s.gamma, &s.a, &s.m, &s.v, &s.e, &s.tg, &s.d1)
	c.Float(&s.err)
	c.Bool(&s.certain, &s.wild)
}
