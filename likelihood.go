package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/pgsvi/pgsvi/internal/diff"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/term"
)

// A Likelihood is the probability of a response y given its latent value η. LogProb is the only
// required method.
//
// The interfaces below are optional. Each of them makes results faster or more accurate, or enables
// more of them. This package detects them by their methods, so the compiler does not notice a
// misspelled method unless the type declares the interface:
//
//	var _ pgsvi.Factual = MyLikelihood{}
//
// The methods have these effects:
//
//   - LogProb alone: a fit of a smooth likelihood calls it 20 to 60 times per expectation if the
//     standard deviation of η is at most 0.5 and there are at least 64 responses, and about 340
//     times otherwise.
//   - Derivs (Differentiable) adds one call for each call of LogProb. Derivatives of expectations
//     are then accurate to 1e-14 at any variance. Without Derivs they lose digits as the variance
//     decreases. Derivs does not save time.
//   - ExpectLogProb (Expecter) replaces all of these calls, for example with a closed form.
//   - Facts (Factual): Support checks responses, LogConcave lets fits prove their gap, and Rough
//     makes all fits use the accurate quadrature.
//   - Params (Parametric) lets Learn fit the parameters. Moments and CDF (Responder) speed up
//     predictive means, intervals and quantiles.
//
// A posterior can be saved if the type of its Likelihood is registered with Register.
//
// Implementations must be safe for concurrent use. The likelihoods of this package are structs of
// parameters with usable zero values: a zero parameter means its default. If a parameter is out of
// its range (see Parametric), every result is NaN, and models return an error.
type Likelihood interface {
	// LogProb returns log p(y|η) in nats. It returns −Inf if p = 0; NaN counts as −Inf. Predictions
	// need exp(LogProb) to sum or integrate to 1 over y, but fits do not.
	LogProb(y, eta float64) float64
}

// Factual is a Likelihood that describes its responses and its shape.
type Factual interface {
	Likelihood
	// Facts returns the facts for the current parameters.
	Facts() Facts
}

// Facts describes a Likelihood. The zero Facts applies to a Likelihood that is not Factual: any
// finite number is a response, and nothing else is known.
type Facts struct {
	// Support is the set of responses. For any other response, models return an error that wraps
	// ErrLabel, and predictions are NaN.
	Support Support
	// Most is the largest response of Counts; zero means no limit. Other supports ignore it.
	Most float64
	// Censored means that a response may be −y for a y in Support. The outcome is then only known
	// to be above y, and exp(LogProb) is P(Y > y|η). Survival makes such responses.
	Censored bool
	// LogConcave means that log p(y|η) is concave in η for every response y.
	LogConcave bool
	// Rough means that log p(y|η), as a function of η, has bumps or corners that a quadrature with
	// few nodes may miss. Fits then compute every expectation like the function ExpectLogProb, with
	// about 340 calls of LogProb each.
	Rough bool
	// paired means that responses may come from Successes and contain their number of trials.
	paired bool
	// selfBounded means that |ℓ‴| ≤ |ℓ″| for ℓ = log p(y|·). The curvature of a term near the state
	// at which it was computed is then known up to a factor.
	selfBounded bool
	// bounded means that −∂² log p/∂η² has a bound for each y, and about the same size over the
	// likely range of η. The precisions of sites then depend little on the mean.
	bounded bool
}

// contain reports whether y is a response.
func (f Facts) contain(y float64) bool {
	switch {
	case f.Censored && y < 0:
		y = -y
	case f.paired:
		if _, _, ok := unpair(y); ok {
			return true
		}
	}
	return f.Support.contains(y, f.Most)
}

// factsOf returns the Facts of l.
func factsOf(l Likelihood) Facts {
	if f, ok := l.(Factual); ok {
		return f.Facts()
	}
	return Facts{}
}

// Differentiable is a Likelihood whose log p(y|η) has two continuous derivatives in η. A likelihood
// with a kink must not implement it, because E[∂² log p] would lose the contribution of the kink.
type Differentiable interface {
	Likelihood
	// Derivs returns ∂ log p(y|η)/∂η and ∂² log p(y|η)/∂η². Models that keep their responses
	// compare it with differences of LogProb for a few rows, and return an error that wraps ErrParam
	// if they disagree.
	Derivs(y, eta float64) (d1, d2 float64)
}

// Expecter is a Likelihood that computes its Gaussian expectations itself.
type Expecter interface {
	Likelihood
	// ExpectLogProb returns E[log p(y|η)] for η ~ N(m, v), like the function ExpectLogProb.
	ExpectLogProb(y, m, v float64) Expectation
}

// Parametric is a Likelihood with parameters that can be learned.
type Parametric interface {
	Likelihood
	// Params returns the parameters in a fixed order. If a zero field means a default, Params
	// returns the default. The caller owns the slice.
	Params() []Param
	// WithParams returns a copy of the Likelihood with the given values of its parameters, in the
	// order of Params. It does not keep values.
	WithParams(values []float64) Likelihood
}

// Responder is a Likelihood that provides the distribution of y given η.
type Responder interface {
	Likelihood
	// Moments returns E[y|η] and Var[y|η]. They are NaN if they do not exist.
	Moments(eta float64) (mean, variance float64)
	// CDF returns P(Y ≤ y|η).
	CDF(y, eta float64) float64
}

// positiveOr returns x, or d if x is zero, or NaN if x is not a positive finite number.
func positiveOr(x, d float64) float64 {
	switch {
	case x == 0:
		return d
	case x > 0 && x <= math.MaxFloat64:
		return x
	}
	return math.NaN()
}

// offSupport returns the expectation for a y outside the support, which is exactly −Inf.
func offSupport(m, v float64) Expectation {
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	return Expectation{Value: math.Inf(-1)}
}

// dropInfErr sets Err to 0 if Value is infinite.
func dropInfErr(e Expectation) Expectation {
	if math.IsInf(e.Value, 0) {
		e.Err = 0
	}
	return e
}

// signCDF returns P(Y ≤ y) for Y in {−1, +1} with P(Y = −1) = q.
func signCDF(y, q float64) float64 {
	switch {
	case y < -1:
		return 0
	case y < 1:
		return q
	case y >= 1:
		return 1
	}
	return math.NaN()
}

// checkLikelihood reports a nil Likelihood and every parameter out of range.
func checkLikelihood(l Likelihood) error {
	if err := checkNil("the Likelihood", l); err != nil {
		return err
	}
	errs := []error{validateOption(l)}
	if p, ok := l.(Parametric); ok {
		errs = append(errs, checkParams(typeName(l), p.Params()))
	}
	return errors.Join(errs...)
}

// mostResponse is the largest size of a response. Sums and expectations of squares overflow from
// about 1e149.
const mostResponse = 1e145

// tooLarge reports whether a response exceeds mostResponse. A response of Successes never does.
func (f Facts) tooLarge(y float64) bool { return !f.paired && math.Abs(y) > mostResponse }

// checkLabel reports a response that is too large or outside the support of l. The caller prepends
// "pgsvi: " and the place.
func checkLabel(l Likelihood, y float64) error {
	f := factsOf(l)
	switch contained := f.contain(y); {
	case contained && f.tooLarge(y):
		return fmt.Errorf("y = %v is too large, because sums of squares overflow; divide all "+
			"responses by the same number to bring them below %v: %w", y, mostResponse, ErrLabel)
	case contained:
		return nil
	}
	advice := ""
	switch {
	case f.Support == SignLabels:
		advice = "; convert labels 0 and 1 to 2y−1, or read the table with package data"
	case f.Censored:
		advice = ", or its negative if it is censored; use Survival to convert times and events"
	case f.paired:
		advice = "; use Successes to convert successes and trials"
	}
	return fmt.Errorf("y = %v, but %s needs %s%s: %w", y, typeName(l), f.Support.describe(f.Most),
		advice, ErrLabel)
}

// checkLabels checks a likelihood and its labels.
func checkLabels(lik Likelihood, y []float64) error {
	if err := checkLikelihood(lik); err != nil {
		return err
	}
	facts := factsOf(lik)
	if facts.containAll(y) {
		return checkDerivs(lik, y)
	}
	for n, yn := range y {
		if facts.contain(yn) && !facts.tooLarge(yn) {
			continue
		}
		if math.IsNaN(yn) || math.IsInf(yn, 0) {
			return fmt.Errorf("pgsvi: row %d: y = %v: %w", n, yn, ErrNotFinite)
		}
		if err := checkLabel(lik, yn); err != nil {
			return fmt.Errorf("pgsvi: row %d: %w", n, err)
		}
	}
	return checkDerivs(lik, y)
}

// checkDerivs returns an error that wraps ErrParam if Derivs of the caller's likelihood contradicts
// LogProb, or its own second derivative, at one of a few responses and latent values. A panic ends
// the check, because a run reports it with the row.
func checkDerivs(lik Likelihood, y []float64) (err error) {
	d, ok := lik.(Differentiable)
	if !ok || len(y) == 0 || reflect.TypeOf(lik).PkgPath() == ownPath {
		return nil
	}
	defer func() {
		if recover() != nil {
			err = nil
		}
	}()
	wrong := func(n int, eta float64, what string, found, stated float64) error {
		return fmt.Errorf("pgsvi: row %d, with response %v: the %s of %s.LogProb at η = %v is %.6g, but "+
			"Derivs gives %.6g; correct Derivs, or remove it: %w", n, y[n], what, typeName(lik), eta,
			found, stated, ErrParam)
	}
	for _, n := range []int{0, len(y) / 2, len(y) - 1} {
		for _, eta := range []float64{-1.3, 0.4, 2.1} {
			d1, d2 := d.Derivs(y[n], eta)
			if found, ok := diff.Agrees(func(t float64) float64 {
				return lik.LogProb(y[n], eta+t)
			}, d1); !ok {
				return wrong(n, eta, "derivative", found, d1)
			}
			if found, ok := diff.Agrees(func(t float64) float64 {
				d1, _ := d.Derivs(y[n], eta+t)
				return d1
			}, d2); !ok {
				return wrong(n, eta, "second derivative", found, d2)
			}
		}
	}
	return nil
}

// ownPath is the import path of this package, whose likelihoods need no checkDerivs.
var ownPath = reflect.TypeOf(Facts{}).PkgPath()

// containAll reports whether all of y are responses and none is too large. It returns false if the
// answer depends on more than the Support.
func (f *Facts) containAll(y []float64) bool {
	if f.Censored || f.paired {
		return false
	}
	var others atomic.Bool
	var cores parallel.Halt
	cores.Lend(runtime.GOMAXPROCS(0))
	parallel.Vectors(len(y), &cores, func(lo, hi int) {
		for _, yn := range y[lo:hi] {
			if !(math.Abs(yn) <= mostResponse && f.Support.contains(yn, f.Most)) {
				others.Store(true)
				return
			}
		}
	})
	return !others.Load()
}

// typeName returns the name of the type of v, without the name of this package.
func typeName(v any) string {
	return strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", v), "*"), "pgsvi.")
}

// Support is the set of responses of a Likelihood.
type Support int

const (
	RealLine     Support = iota // a density on (−∞, ∞)
	Counts                      // probabilities of 0, 1, 2, …, up to Facts.Most
	SignLabels                  // probabilities of −1 and +1
	UnitInterval                // a density on (0, 1)
	Positive                    // a density on (0, ∞)
	NonNegative                 // a density on [0, ∞)
)

// String returns the name of the constant.
func (s Support) String() string {
	names := [...]string{"RealLine", "Counts", "SignLabels", "UnitInterval", "Positive",
		"NonNegative"}
	if s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Support(%d)", int(s))
}

// contains reports whether y is in the support. most is the largest response of Counts, as in
// Facts; zero means no limit. NaN and ±Inf are in no support.
func (s Support) contains(y, most float64) bool {
	switch s {
	case RealLine:
		return !math.IsNaN(y) && !math.IsInf(y, 0)
	case Counts:
		return isCount(y) && (most == 0 || y <= most)
	case SignLabels:
		return y == -1 || y == 1
	case UnitInterval:
		return y > 0 && y < 1
	case Positive:
		return y > 0 && y <= math.MaxFloat64
	case NonNegative:
		return y >= 0 && y <= math.MaxFloat64
	}
	return false
}

// describe returns a description of a response in the support.
func (s Support) describe(most float64) string {
	switch s {
	case RealLine:
		return "a finite number"
	case Counts:
		if most != 0 {
			return fmt.Sprintf("an integer from 0 to %v", most)
		}
		return "a nonnegative integer"
	case SignLabels:
		return "−1 or +1"
	case UnitInterval:
		return "a number strictly between 0 and 1"
	case Positive:
		return "a positive number"
	case NonNegative:
		return "a number that is not negative"
	}
	return s.String()
}

// An Expectation is E[log p(y|η)] for η ~ N(m, v), in nats, with its derivatives.
type Expectation struct {
	Value float64 // E[log p(y|η)]
	D1    float64 // ∂Value/∂m
	D2    float64 // ∂²Value/∂m² = 2 ∂Value/∂v (Price 1958)
	// Err bounds |Value − E[log p(y|η)]| for exactly the given m and v. It is 0 if Value is
	// infinite and correct, and +Inf if no bound is known.
	//
	// For the likelihoods of this package Err covers rounding and, without a closed form, the error
	// of a fixed quadrature rule. That error was compared with independent quadrature for |m| ≤ 1e3
	// and 1e−4 ≤ √v ≤ 1e3, and is not proved outside this range. ExpectLogProb describes Err for
	// other likelihoods.
	Err float64
}

// quadNaN returns the expectation for an invalid m or v.
func quadNaN() Expectation {
	n := math.NaN()
	return Expectation{n, n, n, n}
}

// isCount reports whether y is a nonnegative integer.
func isCount(y float64) bool {
	return y >= 0 && y == math.Floor(y) && y <= math.MaxFloat64
}

// ExpectLogProb returns E[log p(y|η)] for η ~ N(m, v), with its derivatives.
//
// m must be finite, and v must be finite and not negative. Otherwise every field is NaN. v = 0 is
// the point mass at m.
//
// If l implements Expecter, ExpectLogProb calls its method. Otherwise it computes the integral by
// adaptive Gauss–Kronrod quadrature (Piessens et al. 1983). The panels are cut at m and at η = y,
// and bisected where the estimated error is largest. Err is the sum of these estimates, and at
// least the rounding error. It is not a proof.
//
// The derivatives are E[∂ log p] and E[∂² log p] if l implements Differentiable. Otherwise they are
// E[g u]/s and E[g (u²−1)]/s², where u = (η−m)/s, s = √v and g = log p(y|η) − log p(y|m). These
// forms need no smoothness. Their rounding errors are about 1e−16 |log p|/s and 1e−16 |log p|/s².
// Below s = 1e−6, and at v = 0, ExpectLogProb uses fourth-order differences of log p around m
// instead.
//
// The integral covers 9 standard deviations on each side, and more if log p grows so fast that the
// tails matter. If log p is −Inf or NaN at a point with mass, Value is −Inf, the derivatives are 0
// and Err is +Inf.
func ExpectLogProb(l Likelihood, y, m, v float64) Expectation {
	if e, ok := l.(Expecter); ok {
		return e.ExpectLogProb(y, m, v)
	}
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	return quadExpect(l, y, m, v)
}

// nestedRule computes the expectations of one run by nested rules with few nodes if these rules
// agree. They may all miss a bump that is narrower than the distance between the nodes. Therefore
// ExpectLogProb also computes a fixed share of the expectations, which depends only on their
// arguments. If the two values differ, the rule has failed. It is then switched off, and
// ExpectLogProb computes all expectations: a run starts again, a run with steps of a given size
// continues at its current state, and a block of rows or an evaluation of Learn is repeated.
type nestedRule struct {
	lik    Likelihood
	off    bool        // changes only between passes over the terms
	given  bool        // the run takes steps of a given size
	missed atomic.Bool // a check has failed
}

// newNestedRule returns the rule for a run over n terms of l. It returns nil if ExpectLogProb is as
// fast, or if there are too few terms to check the rule.
func newNestedRule(l Likelihood, n int) *nestedRule {
	if _, ok := l.(Expecter); ok || n < nestedTerms || factsOf(l).Rough {
		return nil
	}
	return &nestedRule{lik: l}
}

const (
	nestedTerms  = 64  // number of terms with about one check per pass
	nestedAlone  = 256 // number with about four, for terms whose run cannot start again
	nestedChecks = 64  // one in nestedChecks expectations is checked
	// A wider Gaussian seldom has an accurate rule with few nodes, and may hide more between them.
	nestedSD   = 0.5
	nestedTol  = 1e-10 // tolerance at which sums over terms keep nine digits
	nestedFar  = 1e-6  // relative difference at which a check fails
	nestedUnit = 1e-3  // nats, below which a part is negligible
)

// expect is ExpectLogProb by the rule. If check is true, it records a failed check.
func (r *nestedRule) expect(y, m, v float64, check bool) term.Expectation {
	return term.Expectation(r.of(y, m, v, check))
}

func (r *nestedRule) of(y, m, v float64, check bool) Expectation {
	l := r.lik
	if r.off || !expect.Valid(m, v) {
		return ExpectLogProb(l, y, m, v)
	}
	x, ok := nestedExpect(l, y, m, v)
	switch {
	case !ok:
		return quadExpect(l, y, m, v)
	case check && nestedChecked(y, m, v):
		exact, s := quadExpect(l, y, m, v), math.Sqrt(v)
		far := func(a, b,
			unit float64) bool {
			return !(math.Abs(a-b) <= nestedFar*(math.Abs(b)+unit))
		}
		if far(x.Value, exact.Value, nestedUnit) || far(x.D1, exact.D1, nestedUnit/s) ||
			s > nestedUnit && far(x.D2, exact.D2, nestedUnit/v) {
			r.missed.Store(true)
		}
		return exact
	}
	return x
}

// failed reports whether a check has failed while the rule is on.
func (r *nestedRule) failed() bool { return r != nil && !r.off && r.missed.Load() }

// step records that the run takes steps of a given size. If a check fails, such a run continues at
// its current state and does not start again.
func (r *nestedRule) step() {
	if r != nil {
		r.given = true
	}
}

// state reads or writes the part of the rule that a run saves.
func (r *nestedRule) state(c *save.Coder) {
	if r == nil {
		return
	}
	missed := r.missed.Load()
	c.Bool(&r.off, &r.given, &missed)
	r.missed.Store(missed)
}

// nestedChecked reports whether to check the expectation with these arguments. It selects one in
// nestedChecks expectations, independent of their order.
func nestedChecked(y, m, v float64) bool {
	var h uint64
	for _, x := range [...]float64{y, m, v} {
		h = (h ^ math.Float64bits(x)) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	return h*0x9e3779b97f4a7c15>>32%nestedChecks == 0
}

// nestedExpect is quadExpect with expect.Nested, for narrow Gaussians. It returns false if
// expect.Nested is not accurate enough.
func nestedExpect(l Likelihood, y, m, v float64) (_ Expectation, ok bool) {
	s := math.Sqrt(v)
	if v == 0 || s > nestedSD {
		return Expectation{}, false
	}
	g0 := l.LogProb(y, m)
	if math.IsNaN(g0) || math.IsInf(g0, 0) {
		return Expectation{}, false
	}
	d, smooth := l.(Differentiable)
	t, ok := expect.Nested(func(u float64) ([3]float64, bool) {
		x, q := m+s*u, 0.0
		if u != 0 {
			q = l.LogProb(y, x) - g0
		}
		if smooth {
			d1, d2 := d.Derivs(y, x)
			return [3]float64{q, d1, d2}, !math.IsNaN(q+d1+d2) && !math.IsInf(q, 0)
		}
		return [3]float64{q, q * u, q * (u*u - 1)}, !math.IsNaN(q) && !math.IsInf(q, 0)
	}, nestedTol)
	if !ok {
		return Expectation{}, false
	}
	e := Expectation{Value: g0 + t.Sum[0], D1: t.Sum[1], D2: t.Sum[2],
		Err: t.Err[0] + 2*special.Eps*math.Abs(g0)}
	if !smooth {
		e.stein(l, y, m, v, g0)
	}
	return e, true
}

// stein replaces E[gu] and E[g(u²−1)] in e by the derivatives that they determine; see
// ExpectLogProb.
func (e *Expectation) stein(l Likelihood, y, m, v, g0 float64) {
	if s := math.Sqrt(v); s < 1e-6 {
		p := quadPoint(l, y, m, g0)
		e.D1, e.D2 = p.D1, p.D2
	} else {
		e.D1, e.D2 = e.D1/s, e.D2/v
	}
}

// quadExpect is ExpectLogProb for a likelihood that is not an Expecter.
func quadExpect(l Likelihood, y, m, v float64) Expectation {
	s := math.Sqrt(v)
	d, smooth := l.(Differentiable)
	g0 := l.LogProb(y, m)
	if v == 0 {
		return quadPoint(l, y, m, g0)
	}
	if math.IsNaN(g0) || math.IsInf(g0, 0) {
		g0 = 0
	}
	var hole bool
	g := func(u float64) float64 { return l.LogProb(y, m+s*u) - g0 }
	f := func(u float64) [3]float64 {
		if hole {
			return [3]float64{} // all other parts are negligible
		}
		x := m + s*u
		p := special.NormalPDF(u)
		q := l.LogProb(y, x) - g0
		if math.IsNaN(q) || math.IsInf(q, 0) {
			hole = hole || p > 0
			return [3]float64{}
		}
		if smooth {
			d1, d2 := d.Derivs(y, x)
			return [3]float64{p * q, p * d1, p * d2}
		}
		return [3]float64{p * q, p * q * u, p * q * (u*u - 1)}
	}
	var buf [64]float64
	scale := math.Abs(g0) + math.Abs(g(1)) + math.Abs(g(-1))
	cuts := expect.Reach(buf[:0], g, scale, y, m, s)
	t := expect.Adaptive(f, cuts, 1e-14)
	if hole {
		return Expectation{Value: math.Inf(-1), Err: math.Inf(1)}
	}
	e := Expectation{Value: g0 + t.Sum[0], D1: t.Sum[1], D2: t.Sum[2],
		Err: t.Err[0] + 2*special.Eps*math.Abs(g0) + 1e-18*(1+scale)}
	if !smooth {
		e.stein(l, y, m, v, g0)
	}
	return e
}

// quadPoint is quadExpect at v = 0, where g0 = log p(y|m).
func quadPoint(l Likelihood, y, m, g0 float64) Expectation {
	e := Expectation{Value: g0, Err: special.Eps * math.Abs(g0)}
	if math.IsNaN(g0) || math.IsInf(g0, 0) {
		return Expectation{Value: math.Inf(-1), Err: math.Inf(1)}
	}
	if d, ok := l.(Differentiable); ok {
		e.D1, e.D2 = d.Derivs(y, m)
	} else {
		h := 0x1p-8 // doubles until m+h differs from m in float64
		for m+h == m || (m+h)-m != h && h < 0x1p-27*math.Abs(m) {
			h *= 2
		}
		p1, n1 := l.LogProb(y, m+h)-g0, l.LogProb(y, m-h)-g0
		p2, n2 := l.LogProb(y, m+2*h)-g0, l.LogProb(y, m-2*h)-g0
		e.D1 = (8*(p1-n1) - (p2 - n2)) / (12 * h)
		e.D2 = (16*(p1+n1) - (p2 + n2)) / (12 * h * h)
	}
	if math.IsNaN(e.D1) || math.IsNaN(e.D2) {
		e.D1, e.D2, e.Err = 0, 0, math.Inf(1)
	}
	return e
}

// softplusBoth returns, for η ~ N(m, v) and m of either sign,
//
//	f0 = E[log(1+e^{−η})]   g0 = E[log(1+e^η)]
//	p = E[σ(−η)]            q = E[σ(η)]          f2 = E[σ(η)σ(−η)]
//
// each with the relative error of expect.SoftplusExpect.
func softplusBoth(m, v float64) (f0, g0, p, q, f2 float64) {
	x := math.Abs(m)
	f0, p, f2, scale := expect.SoftplusExpect(x, v)
	if scale != 0 {
		c := math.Exp(scale)
		f0, p, f2 = c*f0, c*p, c*f2
	}
	g0, q = f0+x, 1-p
	if m < 0 {
		return g0, f0, q, p, f2
	}
	return f0, g0, p, q, f2
}

const (
	logitErr  = 2e-13 // relative error of the expectations of BernoulliLogit
	probitErr = 1e-12 // relative error of the expectations of BernoulliProbit

	// The zeros of Φ nearest the real line are at 1.916 ± 2.816i. There log Φ is
	// singular, which sets the panels of its quadrature.
	probitZeroRe, probitZeroIm = 1.916, 2.816
)

// eachRows is the number of rows that a fast path processes at a time, so that they fit into the
// fastest cache.
const eachRows = 256

// exp1 returns e^x with the bits of fma.Exp.
func exp1(x float64) float64 {
	e := [1]float64{x}
	fma.Exp(e[:])
	return e[0]
}

// shifted returns m − shift, limited to finite values.
func shifted(m, shift float64) float64 {
	return math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, m-shift))
}

// discrete reports whether responses have probabilities instead of densities.
func (f Facts) discrete() bool { return f.Support == Counts || f.Support == SignLabels }

const (
	// mostPaired is the largest number of trials of a response of Successes. pairedUnit is the part
	// that one trial adds to the response. The fraction of such a response is below 0.01, so a
	// proportion is not mistaken for one.
	mostPaired = 1 << 20
	pairedUnit = 1.0 / (1 << 27)
)

// unpair returns the successes and the trials of a response of Successes. It returns false for any
// other y.
func unpair(y float64) (k, n float64, ok bool) {
	k = math.Floor(y)
	n = (y - k) / pairedUnit
	return k, n, k >= 0 && n >= 1 && n <= mostPaired && k <= n && n == math.Floor(n)
}

// withParams returns lik with its parameters replaced, in order, by the results of value. The range
// of a parameter may depend on the parameters before it.
func withParams(lik Likelihood, value func(i int, p *Param) float64) Likelihood {
	for i := range numLikelihoodParams(lik) {
		p := lik.(Parametric).Params()
		values := make([]float64, len(p))
		for j := range p {
			values[j] = p[j].Value
		}
		values[i] = value(i, &p[i])
		lik = lik.(Parametric).WithParams(values)
	}
	return lik
}

// numLikelihoodParams returns the number of parameters of lik.
func numLikelihoodParams(lik Likelihood) int {
	if p, ok := lik.(Parametric); ok {
		return len(p.Params())
	}
	return 0
}

// movedParams returns lik with its parameters moved by Bz in their coordinates. A parameter that
// would reach an end of its range keeps its value.
func movedParams(lik Likelihood, b [][]float64, z []float64) Likelihood {
	theta := make([]float64, len(b))
	params := lik.(Parametric).Params()
	for i := range theta {
		theta[i] = params[i].theta(params[i].Value)
		for k, v := range b[i] {
			theta[i] += v * z[k]
		}
	}
	return withParams(lik, func(i int, p *Param) float64 {
		if v := p.value(theta[i]); p.within(v) && !math.IsInf(v, 0) {
			return v
		}
		return p.Value
	})
}
