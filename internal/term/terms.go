// Package term holds the terms log p(y_n|z_n) of a model, which have one latent value each, or K.
// It computes their expectations under the marginals of q, the sites that follow from them, and
// the part of a gap bound that depends on sites alone.
package term

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

// Terms holds N log-likelihood terms of one latent value each,
//
//	w_n log p(y_n | o_n + η_n + ε_n),   ε_n ~ N(0, c_n).
//
// or of K latent values each, which see η_n1, …, η_nK (see softmax.go).
//
// It is the only place where a Likelihood meets its responses: every model with sites creates its
// terms with New, and every step and evaluation calls Expect or an estimator. A mini-batch or
// block names its terms by their indices.
type Terms struct {
	Lik    Likelihood
	Y      []float64
	Offset []float64 // o; nil means 0
	Weight []float64 // w > 0; nil means 1
	Extra  []float64 // c; nil means 0
	Blur   []float64 // how far rounding may have moved c; nil means not at all
	Own    []float64 // Many.Own of each y; nil until it is computed
	Row    []int     // the caller's number of each term; nil means first + n
	First  int
	// K is the number of latent values of a term; 0 means 1. If K > 1, Offset has N·K elements,
	// Y, Weight and Extra have N, and Lik is a Softmax.
	K int

	// Rule replaces Lik.Expect in a run. check requests a test of its accuracy. Nil means
	// Lik.Expect.
	Rule func(y, m, v float64, check bool) Expectation
	// Missed reports whether a check of Rule has failed; see Sure. It is nil where the run itself
	// looks.
	Missed func() bool
	Model  *Terms // the terms of the model if these belong to a run; nil means these
}

// Of reports whether t is o, or holds the terms of a run of the model o.
func (t *Terms) Of(o *Terms) bool { return t == o || t.Model == o }

// Len returns N.
func (t *Terms) Len() int { return len(t.Y) }

// Sub returns new Terms that hold those at index; a nil index means all of them.
func (t *Terms) Sub(index []int) *Terms {
	if index == nil {
		return t
	}
	s := &Terms{Lik: t.Lik, Row: make([]int, len(index)), Rule: t.Rule, K: t.K}
	for k, i := range index {
		if s.Row[k] = t.First + i; t.Row != nil {
			s.Row[k] = t.Row[i]
		}
	}
	for _, p := range [][2]*[]float64{{&s.Y, &t.Y}, {&s.Offset, &t.Offset}, {&s.Weight, &t.Weight},
		{&s.Extra, &t.Extra}, {&s.Blur, &t.Blur}, {&s.Own, &t.Own}} {
		if *p[1] == nil {
			continue
		}
		per := len(*p[1]) / t.Len()
		*p[0] = make([]float64, 0, per*len(index))
		for _, i := range index {
			*p[0] = append(*p[0], (*p[1])[i*per:(i+1)*per]...)
		}
	}
	return s
}

// Part returns a view of the terms lo … hi−1, of one latent value each.
func (t *Terms) Part(lo, hi int) *Terms {
	p := *t
	p.First += lo
	p.Y = t.Y[lo:hi]
	for _, x := range []*[]float64{&p.Offset, &p.Weight, &p.Extra, &p.Blur, &p.Own} {
		if *x != nil {
			*x = (*x)[lo:hi]
		}
	}
	if t.Row != nil {
		p.Row = t.Row[lo:hi]
	}
	return &p
}

// SetOwn computes Own for a run, over terms that change no more.
func (t *Terms) SetOwn() {
	t.Own = nil
	if each := t.Lik.Each(); each != nil && each.Own != nil {
		t.Own = make([]float64, len(t.Y))
		for n, y := range t.Y {
			t.Own[n] = each.Own(y)
		}
	}
}

// Noise returns the variance of Gaussian noise, and 0 for other likelihoods.
func (t *Terms) Noise() float64 {
	if l, ok := t.Lik.(Noisy); ok {
		return l.Noise()
	}
	return 0
}

// KnownSites stores the sites of terms with Gaussian noise, b about zero, and reports whether they
// are.
func (t *Terms) KnownSites(gamma, b []float64) bool {
	noise := t.Noise()
	if !(noise > 0) {
		return false
	}
	for n := range gamma {
		y, o, w, _ := t.Term(n)
		gamma[n] = w * (1 / noise) // as expectations have it
		b[n] = gamma[n] * (y - o)
	}
	return true
}

// Term returns y_n, o_n, w_n and c_n; of K latent values o_n is 0.
func (t *Terms) Term(n int) (y, offset, weight, extra float64) {
	y, weight = t.Y[n], 1
	if t.Offset != nil && t.K <= 1 {
		offset = t.Offset[n]
	}
	if t.Weight != nil {
		weight = t.Weight[n]
	}
	if t.Extra != nil {
		extra = t.Extra[n]
	}
	return y, offset, weight, extra
}

// Describe returns the prefix of an error about term n.
func (t *Terms) Describe(n int) string { return t.Name(n) + "," }

// Name names term n.
func (t *Terms) Name(n int) string {
	y, o, w, c := t.Term(n)
	i := t.First + n
	if t.Row != nil {
		i = t.Row[n]
	}
	s := fmt.Sprintf("row %d, with response %v", i, y)
	if t.Offset != nil && t.K <= 1 {
		s += fmt.Sprintf(", offset %v", o)
	}
	if t.Weight != nil {
		s += fmt.Sprintf(", weight %v", w)
	}
	if t.Extra != nil {
		s += fmt.Sprintf(", residual variance %v (less with a higher rank)", c)
	}
	return s
}

// Explain describes why term n has no finite expectation under η_n ~ N(m, v).
func (t *Terms) Explain(n int, m, v float64) string {
	if t.K > 1 {
		return fmt.Sprintf(
			"%s has an expectation that is not finite, with a latent value under N(%.4g, %.4g)",
			t.Describe(n), m, v)
	}
	y, o, _, c := t.Term(n)
	if math.IsNaN(m) || math.IsNaN(v) || math.IsInf(m, 0) || math.IsInf(v, 0) {
		return fmt.Sprintf("%s has a linear predictor that overflows, under N(%.4g, %.4g); use "+
			"smaller units for the columns, or a smaller prior standard deviation", t.Describe(n),
			m+o, v+c)
	}
	if eta, l, ok := HoleOf(t.Lik, y, m+o, v+c); ok {
		return fmt.Sprintf("%s has log-likelihood %v at η = %.6g; %s", t.Describe(n), l, eta,
			Remedy(l))
	}
	return fmt.Sprintf("%s has an expectation that overflows under N(%.4g, %.4g)", t.Describe(n),
		m+o, v+c)
}

// The likelihood of a term is endless if its logarithm is positive, and grows by a factor of at
// least endlessGrowth in each of endlessDoublings doublings of η, as c·η² does with a factor of 4. A
// linear or slower growth is harmless, because a normal prior falls faster.
const (
	endlessGrowth    = 3.99
	endlessDoublings = 20
)

// Endless describes how the likelihood of term n grows without limit beyond η_n ~ N(m, v), faster
// than a normal prior falls. It returns "" if the likelihood does not.
func (t *Terms) Endless(n int, m, v float64) string {
	y, o, w, c := t.Term(n)
	if w == 0 {
		return ""
	}
	far := max(1, math.Abs(m+o)+math.Sqrt(v+c))
	for _, eta := range [...]float64{far, -far} {
		first := t.Lik.LogProb(y, eta)
		last, grows := first, first > 0
		for i := 1; i <= endlessDoublings && grows; i++ {
			l := t.Lik.LogProb(y, math.Ldexp(eta, i))
			grows = l >= endlessGrowth*last
			last = l
		}
		if grows {
			return fmt.Sprintf("it has no maximum, because %s has a log-likelihood that grows "+
				"without limit: %.4g at η = %.4g, and %.4g at twice that η; correct LogProb, which "+
				"must not grow faster than |η|", t.Describe(n), first, eta, t.Lik.LogProb(y, 2*eta))
		}
	}
	return ""
}

// Expectation returns w_n E[log p(y_n|·)] under η_n ~ N(m, v), with its derivatives.
func (t *Terms) Expectation(n int, m, v float64) Expectation {
	y, o, w, c := t.Term(n)
	if t.Rule != nil {
		return t.Rule(y, m+o, v+c, false).times(w)
	}
	return t.Lik.Expect(y, m+o, v+c).times(w)
}

// Expectations stores Expectation of each term in batch under the marginals of s, with −D2 in Tg.
func (t *Terms) Expectations(s *Marginals, batch []int) {
	n := len(s.M)
	dense.ResizeAll(n, &s.E, &s.D1, &s.Tg, &s.bound)
	each := t.Lik.Each()
	if each != nil && t.Rule == nil {
		t.place(s, batch, 0, n, each.Own, s.bound)
		each.Expect(s.E, s.D1, s.Tg, s.bound)
	}
	for i := range n {
		k := dense.Index(batch, i)
		x := Expectation{s.E[i], s.D1[i], s.Tg[i], s.bound[i]}
		if each == nil || t.Rule != nil {
			x = t.Expectation(k, s.M[i], s.V[i])
		} else if t.Weight != nil {
			x = x.times(t.Weight[k])
		}
		s.E[i], s.D1[i], s.Tg[i], s.bound[i] = x.Value, x.D1, -x.D2, x.Err
	}
}

// checked is expectation, and checks the rule, if there is one, where that is due.
func (t *Terms) checked(n int, m, v float64) Expectation {
	if t.Rule == nil {
		return t.Expectation(n, m, v)
	}
	y, o, w, c := t.Term(n)
	return t.Rule(y, m+o, v+c, true).times(w)
}

// Sure calls f, which takes expectations of t. If a check of Rule fails, Sure removes Rule from t
// and calls f again.
func (t *Terms) Sure(f func() error) error {
	err := f()
	if t.Missed == nil || !t.Missed() {
		return err
	}
	t.Rule, t.Missed = nil, nil
	return f()
}

// times returns w·x.
func (x Expectation) times(w float64) Expectation {
	if w == 1 {
		return x
	}
	return Expectation{w * x.Value, w * x.D1, w * x.D2, w * x.Err}
}

// LogProb returns w_n log p(y_n|·) at η_n, for terms without residual variance.
func (t *Terms) LogProb(n int, eta float64) float64 {
	y, o, w, _ := t.Term(n)
	return w * t.Lik.LogProb(y, eta+o)
}

// Expect computes the expectations of the terms in batch (nil means all) under the marginals of
// s, which has an element for each of them. Workers share the terms, and one worker computes each
// expectation, so the result does not depend on their number. The error wraps
// sentinel.ErrNotFinite and names the first bad term, or is the error of the crew.
func (t *Terms) Expect(s *Marginals, batch []int, c Crew) error {
	s.far, s.lost = dense.Resize(s.far, len(s.M)), dense.Resize(s.lost, len(s.M))
	if len(s.M) >= expectShared { // a Likelihood is safe for concurrent use
		c.Workers = max(c.Workers, c.Halt.Workers())
	}
	chunk, n := t.Chunk(), len(s.M)/t.Latents()
	s.tallies = dense.Resize(s.tallies, (n+chunk-1)/chunk)
	s.bound = dense.Resize(s.bound, max(1, c.Workers)*chunk*t.Latents())
	if c.Workers <= 1 {
		for lo := 0; lo < n && !c.Halt.Stopped(); lo += chunk {
			t.expectAndTally(s, batch, lo, min(lo+chunk, n), s.bound)
		}
	} else {
		t.expectParallel(s, batch, c)
	}
	if err := c.Halt.Err(); err != nil {
		return err
	}
	sum, certain, wild := 0.0, true, false
	for _, x := range s.tallies {
		if i := x.bad - 1; i >= 0 {
			return fmt.Errorf("%s: %w", t.Explain(t.termOf(batch, i), s.M[i], s.V[i]),
				sentinel.ErrNotFinite)
		}
		sum, certain, wild = sum+x.err, certain && !x.uncertain, wild || x.wild
	}
	variances, pull := t.Blurred(s, batch)
	s.Err, s.Certain, s.Wild = sum+variances+0.5*pull*pull, certain, wild
	return nil
}

// A tally summarizes the expectations of a chunk of terms for Expect. It is computed while the chunk
// is in the cache.
type tally struct {
	err             float64 // bound on the error of their sum
	uncertain, wild bool    // see State.Certain and State.Wild
	bad             int     // 1 + the first element without an expectation, or 0
	unknown         bool    // not computed yet
}

// expectAndTally computes the expectations of the terms lo … hi−1 of s, a chunk, and their tally. It
// stores bounds on the errors of the expectations in bound, which has room for the bounds of a chunk.
func (t *Terms) expectAndTally(s *Marginals, batch []int, lo, hi int, bound []float64) {
	at, k := &s.tallies[lo/t.Chunk()], t.Latents()
	bound = bound[:(hi-lo)*k]
	if *at = t.expectSites(s, batch, lo, hi, bound); at.unknown {
		*at = t.tally(s, batch, lo*k, hi*k, bound)
	}
}

// tally returns the tally of elements lo … hi−1 of s, whose errors have the given bounds.
func (t *Terms) tally(s *Marginals, batch []int, lo, hi int, bounds []float64) (x tally) {
	for i := lo; i < hi; i++ {
		e, d1, tg, bound := s.E[i], s.D1[i], s.Tg[i], bounds[i-lo]
		size := math.Abs(s.M[i])
		if t.Offset != nil {
			size += math.Abs(t.Offset[t.Element(batch, i)])
		}
		x.err += bound + dense.Epsilon*math.Abs(d1)*size
		x.wild = x.wild || s.lost[i]
		x.uncertain = x.uncertain || s.far[i] || !(tg >= 0 && bound <= math.MaxFloat64)
		if bad := tg + d1 + e; math.IsNaN(bad) || e > math.MaxFloat64 {
			x.bad = i + 1
			return x
		}
	}
	return x
}

// Blurred returns the effect of Blur on the ELBO of s, which has expectations. variances is the
// effect of the variances c. ½pull² ≥ ½∂₁ᵀΔK∂₁ is the effect of the latent covariance K whose
// remainder is c. Both add up over parts of the terms.
func (t *Terms) Blurred(s *Marginals, batch []int) (variances, pull float64) {
	if t.Blur == nil {
		return 0, 0
	}
	for i, d1 := range s.D1 {
		b := t.Blur[t.termOf(batch, i)]
		variances += 0.5 * math.Abs(s.Tg[i]) * b
		pull += math.Abs(d1) * math.Sqrt(b)
	}
	return variances, pull
}

// ElboSlack is the relative rounding of an ELBO that a proof allows for.
const ElboSlack = 1e-14

// Overflow returns an error if a term of s has no expectation.
func (t *Terms) Overflow(s *Marginals, batch []int) error {
	for i, e := range s.E {
		if s.lost[i] || math.IsInf(e, -1) {
			return fmt.Errorf("%s: %w", t.Explain(t.termOf(batch, i), s.M[i], s.V[i]),
				sentinel.ErrNotFinite)
		}
	}
	return nil
}

// expectChunk is the number of terms between two checks for cancellation, and the number that a
// worker takes at a time; it is expectTogether for likelihoods that compute several expectations
// at once. From expectShared terms on, the work takes longer than waking another goroutine. Terms
// with more than expectLatents latent values are taken one at a time, because one of them takes a
// millisecond or more.
const (
	expectChunk    = 8
	expectLatents  = 100
	expectTogether = 256
	expectShared   = 512
)

// Chunk returns how many terms come at a time.
func (t *Terms) Chunk() int {
	if t.K > expectLatents {
		return 1
	}
	if t.K <= 1 && t.Lik.Each() != nil {
		return expectTogether
	}
	return expectChunk
}

func (t *Terms) expectParallel(s *Marginals, batch []int, c Crew) {
	loop, size := parallel.Loop{Halt: c.Halt}, t.Chunk()*t.Latents()
	loop.Run(len(s.M)/t.Latents(), t.Chunk(), c.Workers, parallel.Func(func(worker, lo, hi int) {
		t.expectAndTally(s, batch, lo, hi, s.bound[worker*size:(worker+1)*size])
	}))
}

// Crew is who does the work of a step, and until when.
type Crew struct {
	Workers int
	Halt    *parallel.Halt
}

// expectSites takes the expectations of the terms lo … hi−1 of s, and stores bounds on their errors in
// bound. It returns their tally if it made that on the way.
func (t *Terms) expectSites(s *Marginals, batch []int, lo, hi int, bound []float64) tally {
	if t.K > 1 {
		t.expectSoftmax(s, batch, lo, hi, bound)
		return tally{unknown: true}
	}
	i := lo
	defer parallel.At(&i, func(i int) string { return t.Name(dense.Index(batch, i)) })
	if each := t.Lik.Each(); each != nil {
		t.place(s, batch, lo, hi, each.Own, bound)
		each.Expect(s.E[lo:hi], s.D1[lo:hi], s.Tg[lo:hi], bound)
		clear(s.far[lo:hi])
		clear(s.lost[lo:hi])
		if x := t.adopt(s, batch, lo, hi, bound); !x.unknown {
			return x
		}
		for ; i < hi; i++ {
			x, n := Expectation{s.E[i], s.D1[i], s.Tg[i], bound[i-lo]}, dense.Index(batch, i)
			if t.Weight != nil {
				x = x.times(t.Weight[n])
			}
			bound[i-lo] = t.expectSite(s, i, n, x)
		}
		return tally{unknown: true}
	}
	for ; i < hi; i++ {
		n := dense.Index(batch, i)
		bound[i-lo] = t.expectSite(s, i, n, t.checked(n, s.M[i], s.V[i]))
	}
	return tally{unknown: true}
}

// adopt turns the derivatives of the elements lo … hi−1 into targets, as expectSite does, and returns
// their tally. If one of the derivatives is not safely usable, it does nothing and the tally is
// unknown.
func (t *Terms) adopt(s *Marginals, batch []int, lo, hi int, bound []float64) tally {
	unknown := tally{unknown: true}
	if t.Weight != nil || t.Offset != nil && batch != nil {
		return unknown
	}
	e, d1, tg, v := s.E[lo:hi], s.D1[lo:hi], s.Tg[lo:hi], s.V[lo:hi]
	m, offset := s.M[lo:hi], []float64(nil)
	if t.Offset != nil {
		offset = t.Offset[lo:hi]
	}
	n := len(e)
	d1, tg, v, m, bound = d1[:n], tg[:n], v[:n], m[:n], bound[:n]
	sum, uncertain := 0.0, false
	for i, e := range e {
		d, g, size := math.Abs(d1[i]), tg[i], math.Abs(m[i])
		if !modest(e, d, math.Abs(g), v[i]) {
			return unknown
		}
		if g > 0 {
			uncertain = true
		}
		if offset != nil {
			size += math.Abs(offset[i])
		}
		sum += bound[i] + dense.Epsilon*d*size
	}
	if !(sum <= math.MaxFloat64) {
		return unknown
	}
	for i, g := range tg {
		tg[i] = -g
	}
	return tally{err: sum, uncertain: uncertain}
}

// place stores the responses, means and variances of the elements lo … hi−1 of s in E, D1 and Tg, and
// Own of the responses in owns if the likelihood is a Many.
func (t *Terms) place(s *Marginals, batch []int, lo, hi int, own func(y float64) float64,
	owns []float64) {
	gather(s.E[lo:hi], t.Y, batch, lo)
	switch {
	case t.Own != nil:
		gather(owns, t.Own, batch, lo)
	case own != nil:
		for i, y := range s.E[lo:hi] {
			owns[i] = own(y)
		}
	}
	copy(s.D1[lo:hi], s.M[lo:hi])
	copy(s.Tg[lo:hi], s.V[lo:hi])
	switch {
	case t.Offset == nil && t.Extra == nil:
		return
	case batch == nil && t.Extra == nil:
		floats.Add(s.D1[lo:hi], t.Offset[lo:hi])
		return
	}
	for i := lo; i < hi; i++ {
		_, o, _, c := t.Term(dense.Index(batch, i))
		s.D1[i], s.Tg[i] = s.M[i]+o, s.V[i]+c
	}
}

// gather copies x of elements lo, lo + 1, … of batch to dst.
func gather(dst, x []float64, batch []int, lo int) {
	if batch == nil {
		copy(dst, x[lo:])
		return
	}
	for i, n := range batch[lo : lo+len(dst)] {
		dst[i] = x[n]
	}
}

// expectSite stores the expectation x of term n, element i of s. If its derivatives are unusable,
// it stores derivatives under a narrower marginal instead, which give a finite step in the right
// direction. NaN means that no such value exists. expectSite returns a bound on the error of the
// expectation.
func (t *Terms) expectSite(s *Marginals, i, n int, x Expectation) (bound float64) {
	m, v := s.M[i], s.V[i]
	s.E[i] = x.Value
	if Usable(x, v) {
		s.Tg[i], s.D1[i], s.far[i], s.lost[i] = -x.D2, x.D1, false, false
		return x.Err
	}
	d1, bound := x.D1, x.Err
	x, at, v := t.StandIn(n, m, v, x, math.Inf(1))
	// About m, where the site stands.
	s.Tg[i], s.D1[i] = -x.D2, x.D1-x.D2*(at-m)
	s.far[i] = v != s.V[i] || at != m
	s.lost[i] = s.far[i] && (math.IsInf(s.E[i], 0) || !(math.Abs(d1-s.D1[i]) <= 0.5*math.Abs(d1)))
	if !Usable(x, v) {
		s.Tg[i] = math.NaN()
	}
	return bound
}

// StandIn returns usable derivatives of term n if the derivatives x under N(m, v) are not usable.
// They are taken under N(at, u) with u ≤ v, where at = m unless the derivatives at m are absurd,
// which means that they predict a gain of more than the given number of nats. The result is
// unusable if no such marginal exists.
func (t *Terms) StandIn(n int, m, v float64, x Expectation, nats float64) (_ Expectation, at,
	u float64) {
	at, u = m, v
	narrowest := t.Expectation(n, m, 0)
	if Absurd(narrowest, nats) {
		if at = t.beside(n, m, v); at != m {
			narrowest, x = t.Expectation(n, at, 0), t.Expectation(n, at, v)
		}
	}
	for k := 0; k < mostNarrowed && !Usable(x, u) && !t.holeAt(n, at); k++ {
		if u /= 8; !hopeless(narrowest, u) {
			x = t.Expectation(n, at, u)
		}
	}
	return x, at, u
}

// Sane returns the target of element i of s, term n: γ and the linear coefficient around the
// mean. If the target is unusable at the mean, Sane returns the target at the nearest mean at
// which it is usable.
func (t *Terms) Sane(s *Marginals, i, n int) (gamma, a float64) {
	x, m := Expectation{D1: s.D1[i], D2: -s.Tg[i]}, s.M[i]
	if t.K > 1 || !Absurd(x, MostNats) {
		return s.Tg[i], s.D1[i]
	}
	y, at, u := t.StandIn(n, m, s.V[i], t.Expectation(n, m, s.V[i]), MostNats)
	if !Usable(y, u) {
		return s.Tg[i], s.D1[i]
	}
	return -y.D2, y.D1 - y.D2*(at-m)
}

// Absurd reports whether a target of s is absurd.
func (s *Marginals) Absurd() bool {
	for i, g := range s.Tg {
		if Absurd(Expectation{D1: s.D1[i], D2: -g}, MostNats) {
			return true
		}
	}
	return false
}

// Absurd reports whether the derivatives x are useless as a direction: they overflow, or they
// predict a gain of more than the given nats within a short distance. The derivatives of an
// exponential do so far from its mode.
func Absurd(x Expectation, nats float64) bool {
	return !Moderate(x) || x.D1*x.D1 > nats*math.Abs(x.D2) &&
		math.Abs(x.D1) < mostBeside*math.Abs(x.D2)
}

// beside returns the mean nearest to m at which the derivatives of term n are usable for a
// marginal of variance v. If no such mean exists and the term has no value at m, beside tries
// smaller variances, which lead in the same direction. It returns m if it finds no such mean, or
// if one may exist on each side because the log-likelihood is not log-concave.
func (t *Terms) beside(n int, m, v float64) float64 {
	if !t.Concave() {
		return m
	}
	good := func(x Expectation) bool { return Usable(x, v) && !Absurd(x, BesideNats) }
	at := t.Nearest(n, m, 1, good)
	for k := 0; k < mostBesides && at == m && t.holeAt(n, m); k++ {
		v /= 64
		at = t.Nearest(n, m, 1, good)
	}
	return at
}

// Nearest returns the mean nearest to m, within tol, at which the derivatives of term n are good.
// It returns m if it finds none.
func (t *Terms) Nearest(n int, m, tol float64, good func(Expectation) bool) float64 {
	at := func(d float64) bool { return good(t.Expectation(n, m+d, 0)) }
	bad, d := 0.0, 0.0
	_, _, _, c := t.Term(n)
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

// BesideNats is the largest gain that derivatives may predict at the mean that beside returns.
// Stronger sites would leave no digits to the other terms.
const BesideNats = 1e6

// mostBeside is the distance that beside searches, beyond the residual variance. The exponent of
// the expectation of an exponential contains half that variance, so an exponential that overflows
// here is small there. mostBesides is the number of narrower marginals that it tries, each with a
// 64th of the variance.
const (
	mostBeside  = 1 << 14
	mostBesides = 12
)

// holeAt reports whether the log-likelihood of term n is not finite at m, so that no narrower
// marginal helps.
func (t *Terms) holeAt(n int, m float64) bool {
	y, o, _, _ := t.Term(n)
	l := t.Lik.LogProb(y, m+o)
	return math.IsNaN(l) || math.IsInf(l, 0)
}

// mostNarrowed bounds how often a variance is divided by 8 in search of derivatives: to below the
// least number.
const mostNarrowed = 600

// mostTelling is how much more precise than a marginal its target may be, and by how many of its
// standard deviations it may be off.
const mostTelling = 1e8

// Usable reports whether the derivatives under a marginal of variance v can be
// a target: of a finite expectation, and no more than a factor of mostTelling more precise than it.
func Usable(x Expectation, v float64) bool {
	return !math.IsInf(x.Value, 0) && math.Abs(x.D2)*v < mostTelling &&
		math.Abs(x.D1)*math.Sqrt(v) < mostTelling && Moderate(x)
}

// modest reports whether an expectation with derivatives of the sizes d1 and d2 is Usable by far, as
// nearly all are.
func modest(value, d1, d2, v float64) bool {
	return math.Abs(value) <= math.MaxFloat64 && d2 < mostTelling && d1 < mostTelling &&
		d1*v < 1 && d2*v < 1
}

// hopeless reports whether the derivatives under a marginal of variance v are not worth the while,
// judged by those at its mean, which are less where log-likelihoods fall as exponentials do and
// much the same where they fall as polynomials.
func hopeless(atMean Expectation, v float64) bool {
	return math.Abs(atMean.D1)*math.Sqrt(v) > 10*mostTelling ||
		math.Abs(atMean.D2)*v > 100*mostTelling
}

// Moderate reports whether the derivatives are far from overflow.
func Moderate(x Expectation) bool { return math.Abs(x.D1)+math.Abs(x.D2) < 1e150 }

// solveDefinite is the determinant of a Hessian, relative to the determinant of its diagonal,
// below which differences cannot decide whether it is positive definite.
const solveDefinite = 0.01

// Solve minimizes KL(N(m, v)‖N(mc, vc)) − w_n E[log p(y_n|η)] over m and v from the given start,
// and returns the site of the minimizer: −D2, D1 and m. It takes Newton steps in m and √v, in
// which the problem is convex if log p is concave, and halves them until the value falls. It
// stops when steps are small, because a target need not be accurate.
func (t *Terms) Solve(n int, mc, vc, m, v float64) (gamma, d1, at float64) {
	defer parallel.At(&n, t.Name)
	value := func(x Expectation, m, v float64) float64 {
		return 0.5*((m-mc)*(m-mc)/vc+v/vc-math.Log(v)) - x.Value
	}
	if Absurd(t.Expectation(n, m, 0), MostNats) {
		m = t.beside(n, m, v)
	}
	x := t.Expectation(n, m, v)
	for k := 0; k < mostNarrowed &&
		(!Moderate(x) || math.Abs(x.D2)*v > 1e8 || math.IsInf(x.Value, 0)); k++ {
		v /= 8
		x = t.Expectation(n, m, v)
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
			xt := t.Expectation(n, mt, vt)
			if ft := value(xt, mt, vt); Moderate(xt) && ft <= f {
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

// Differences of γ̂ are taken over bendWidth of a standard deviation, or over less, down to
// bendLeast, until γ̂ changes by no more than bendMost of it.
const (
	bendWidth = 0.01
	bendLeast = 1e-9
	bendMost  = 0.1
)

// bend returns ∂γ̂/∂m and ∂γ̂/∂v = ½∂²γ̂/∂m² of term n under N(m, v). gamma is γ̂. It returns
// zeros if γ̂ is not smooth there.
func (t *Terms) bend(n int, m, v, gamma float64) (tm, tv float64) {
	sd := math.Sqrt(v)
	for h := bendWidth * sd; h > bendLeast*sd; h /= 4 {
		above, below := -t.Expectation(n, m+h, v).D2, -t.Expectation(n, m-h, v).D2
		if most := bendMost * gamma; math.Abs(above-gamma) <= most &&
			math.Abs(below-gamma) <= most {
			return (above - below) / (2 * h), 0.5 * (above - 2*gamma + below) / (h * h)
		}
	}
	return 0, 0
}

// Marginals is a Gaussian in site form, with the expectations of its terms.
type Marginals struct {
	Gamma []float64 // γ
	A     []float64 // b − γm: the linear coefficient of the site about the mean, equal to K⁻¹m
	M, V  []float64 // marginals
	E     []float64 // E[log p(y_n|η_n)]; of K latent values at the first, and 0 at the others
	Tg    []float64 // −∂²E/∂m²: where γ would move
	D1    []float64 // ∂E/∂m: where a would move
	Err   float64   // bound on the error of Σ e, with what the rounding of m makes of it

	// Certain: tg and d1 are the derivatives of all e, to rounding, and no tg is negative.
	Certain bool
	// Some d1 belongs to a narrower or another marginal. It is a direction, and does not measure
	// the distance.
	Wild bool

	Tol float64 // accuracy of Expect for a Softmax; 0 is the best useful accuracy

	far  []bool // scratch of Expect: whether tg and d1 belong to a narrower marginal
	lost []bool // under which d1 differs, or without which there is no e

	bound   []float64 // scratch of Expect: bounds on the errors of a chunk for each worker
	tallies []tally   // scratch of Expect: the tally of each chunk
}

func (s *Marginals) Resize(n int) {
	dense.ResizeAll(n, &s.Gamma, &s.A, &s.M, &s.V, &s.E, &s.Tg, &s.D1)
}

// Emptied returns Marginals with the vectors of s and nothing else.
func (s *Marginals) Emptied() Marginals {
	return Marginals{Gamma: s.Gamma, A: s.A, M: s.M, V: s.V, E: s.E, Tg: s.Tg, D1: s.D1}
}

func (s *Marginals) CopyFrom(o *Marginals) {
	s.Resize(len(o.M))
	for _, p := range [][2][]float64{{s.Gamma, o.Gamma}, {s.A, o.A}, {s.M, o.M}, {s.V, o.V},
		{s.E, o.E}, {s.Tg, o.Tg}, {s.D1, o.D1}} {
		copy(p[0], p[1])
	}
	s.Err, s.Certain, s.Wild = o.Err, o.Certain, o.Wild
}

// CopySites copies the sites and marginals of o, without expectations.
func (s *Marginals) CopySites(o *Marginals) {
	s.Resize(len(o.M))
	copy(s.Gamma, o.Gamma)
	copy(s.A, o.A)
	copy(s.M, o.M)
	copy(s.V, o.V)
}

// Estimates holds the results of an estimator for the terms of a batch: expectations, and their
// derivatives in the mean, under the marginals N(m, v).
type Estimates struct {
	M, V, E, D1, D2 []float64
	Y, At, Wide     []float64 // scratch: what the estimator is shown
}

// Resize makes room for n terms.
func (x *Estimates) Resize(n int) {
	dense.ResizeAll(n, &x.M, &x.V, &x.E, &x.D1, &x.D2, &x.Y, &x.At, &x.Wide)
}

// MostNats is the largest gain that derivatives may predict for a step to the mode of a
// log-likelihood. In an ELBO of this size, a nat is below rounding.
const MostNats = 1e16

func (t *Terms) Digest(d *save.Digest) {
	t.Lik.Identify(d)
	for _, x := range [][]float64{t.Y, t.Offset, t.Weight, t.Extra} {
		d.Floats(x)
	}
}

// Keep writes or reads a state of n terms with their expectations.
func (s *Marginals) Keep(c *save.Coder, n int) {
	c.Floats(n, &s.Gamma, &s.A, &s.M, &s.V, &s.E, &s.Tg, &s.D1)
	c.Float(&s.Err)
	c.Bool(&s.Certain, &s.Wild)
}

// Sought is what came of a search for the best q.
type Sought struct {
	Mean   []float64
	Most   float64 // the ELBO that no q has, by the estimate
	Passes int     // passes that it took; 0 if it did nothing
}

// Between compares the ELBO of x with the ELBO of the mean Ka. first is the size of the
// first-order difference, and rise the additional difference of the expectations. h is m − Ka.
func (x *Marginals) Between(h []float64) (first, rise float64) {
	for i, h := range h {
		first += (x.D1[i] - 0.5*x.A[i]) * h
		rise += 0.5 * x.Tg[i] * h * h
	}
	return math.Abs(first), rise
}

// PrecisionPromise returns about how many nats there are in the precisions of the sites, ¼ Σ (γ̂ −
// γ)²v²: with the variances alone of what would be ¼ Σ_ij (γ̂ − γ)_i V_ij² (γ̂ − γ)_j.
func (s *Marginals) PrecisionPromise() float64 {
	var sum float64
	for i, v := range s.V {
		g := (s.Tg[i] - s.Gamma[i]) * v
		sum += g * g
	}
	return 0.25 * sum
}

// Bare reports whether s has no sites.
func (s *Marginals) Bare() bool {
	for i, g := range s.Gamma {
		if g != 0 || s.A[i] != 0 {
			return false
		}
	}
	return true
}
