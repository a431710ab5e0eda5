package learn

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file holds the code that all Models whose q has sites share: Latent, Weights, Groups,
// Classes and ClassesGP. A fit at a new θ starts from the sites that were found at the last few θ,
// because sites change little and smoothly with θ. If log γ, a and m were linear in θ, the sites at
// θ would be those at the nearest past θ_0, plus the changes from θ_0 to the other θ_j with
// coefficients
//
//	c = argmin |θ − θ_0 − Σ c_j(θ_j − θ_0)|².

// sites holds the sites found at θ, with a = K⁻¹m. A diagonal q has the precisions and means of its
// weights in place of γ and a.
type sites struct{ theta, gamma, a, m []float64 }

func (l *sites) state(c *save.Coder, n, rows int) {
	c.Floats(n, &l.theta)
	c.Floats(rows, &l.gamma, &l.a, &l.m)
}

// pastSites is the number of values of θ whose sites are remembered.
const pastSites = 8

// A fitter is a Model except for Digest. A type that embeds it sets n and fit.
type fitter struct {
	n       int // number of sites
	workers term.Crew
	units   float64 // work so far

	past        []sites // the most recent one is last
	best, found sites   // at the best θ, and of the last fit

	// fit finds q at θ to within slack nats of the best, remembers its sites, and returns −ELBO. If
	// the Point is wanted, it also returns the gradient and the information. See Judge for errors.
	fit func(theta []float64, slack, most float64) (search.Point, error)
}

// errNoValue is the error of a fit at a θ that is out of range, or whose ELBO is lost in rounding.
var errNoValue = fmt.Errorf("hyperparameters without an ELBO: %w", sentinel.ErrNotFinite)

// Use implements Model.
func (l *fitter) Use(c term.Crew) { l.workers = c }

// Work implements Model.
func (l *fitter) Work() float64 { return l.units }

// Evaluate implements Model.
func (l *fitter) Evaluate(theta []float64, slack, most float64, slopes bool) (search.Point, error) {
	if !slopes {
		most = math.Inf(-1)
	}
	x, err := l.fit(theta, slack, most)
	return Judge(l.workers.Halt, x, err)
}

// wanted reports whether a Point with −ELBO = f needs derivatives.
func wanted(f, most float64) bool { return f <= most && !math.IsInf(f, 0) }

// Judge returns the results of Model.Evaluate for a fit that ended with x and err. The Point has the
// value +Inf, and no error, if err wraps ErrNotFinite or ErrNotPosDef or a number of x is not finite.
// If h has stopped, Judge returns the error of h.
func Judge(h *parallel.Halt, x search.Point, err error) (search.Point, error) {
	none := search.Point{F: math.Inf(1)}
	if halted := h.Err(); halted != nil {
		return none, halted
	}
	if errors.Is(err, sentinel.ErrNotFinite) || errors.Is(err, sentinel.ErrNotPosDef) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	_, ok := dense.AllFinite(x.Grad)
	if x.Info != nil {
		ok = ok && !math.IsNaN(floats.Sum(x.Info.RawSymmetric().Data))
	}
	if !ok || math.IsNaN(x.F) || math.IsInf(x.F, 0) {
		return none, nil
	}
	return x, nil
}

// Keep implements Model.
func (l *fitter) Keep(best bool) {
	if len(l.past) == pastSites {
		l.past = slices.Delete(l.past, 0, 1)
	}
	l.past = append(l.past, l.found)
	if best {
		l.best = l.found
	}
}

// State implements Model.
func (l *fitter) State(c *save.Coder, n int) {
	k := len(l.past)
	c.Int(&k)
	c.Check(k >= 0 && k <= pastSites, "a search remembers %d sites", k)
	if c.Err() != nil {
		return
	}
	if c.Reading() {
		l.past = make([]sites, k)
	}
	for i := range l.past {
		l.past[i].state(c, n, l.n)
	}
	l.best.state(c, n, l.n)
	c.Float(&l.units)
}

// Begin implements Sited.
func (l *fitter) Begin(alg site.Algebra) {
	s := &l.best
	switch alg := alg.(type) {
	case *site.WeightAlgebra:
		alg.StartAt(s.gamma, s.a, s.m)
	case *site.SoftmaxAlgebra:
		alg.StartAt(s.gamma, s.a, s.m)
	case *site.SoftmaxGP:
		alg.StartAt(s.gamma, s.a, s.m)
	case *site.DenseAlgebra:
		alg.Start(s.gamma, s.a)
	case *site.DualAlgebra:
		alg.Start(s.gamma, s.a)
	case *site.FactoredAlgebra:
		alg.StartAt(s.gamma, s.a)
	case *site.ArrowAlgebra:
		alg.StartAt(s.gamma, s.a, s.m)
	}
}

// remember stores copies of the sites found at θ, for Keep.
func (l *fitter) remember(theta, gamma, a, m []float64) {
	l.found = sites{slices.Clone(theta), slices.Clone(gamma), slices.Clone(a), slices.Clone(m)}
}

// foreseen returns the sites extrapolated to θ, or nil if no sites are remembered.
func (l *fitter) foreseen(theta []float64) *sites {
	if len(l.past) == 0 {
		return nil
	}
	s := &sites{theta, make([]float64, l.n), make([]float64, l.n), make([]float64, l.n)}
	l.extrapolate(s.gamma, s.a, s.m, theta)
	return s
}

// mostSecant bounds the extrapolated change of log γ.
const mostSecant = 2

// extrapolate stores the sites of the nearest θ so far, moved along secants to θ.
func (l *fitter) extrapolate(gamma, a, m, theta []float64) {
	from := 0
	for i := range l.past {
		if floats.Distance(l.past[i].theta, theta, 2) <= floats.Distance(l.past[from].theta, theta,
			2) {
			from = i
		}
	}
	near := &l.past[from]
	copy(gamma, near.gamma)
	copy(a, near.a)
	copy(m, near.m)
	l.secants(gamma, a, m, from, theta)
}

// secants extrapolates γ, a and m from the given past θ to the new θ. Sites with negative γ stay as
// they are.
func (l *fitter) secants(gamma, a, m []float64, from int, theta []float64) {
	near := &l.past[from]
	for i := range l.past {
		if floats.Min(l.past[i].gamma) <= 0 {
			return
		}
	}
	k := len(l.past) - 1
	if k == 0 {
		return
	}
	var others []*sites
	for i := range l.past {
		if i != from {
			others = append(others, &l.past[i])
		}
	}
	diff := mat.NewDense(len(theta), k, nil)
	goal := mat.NewVecDense(len(theta), nil)
	for d, t := range theta {
		goal.SetVec(d, t-near.theta[d])
		for j, o := range others {
			diff.Set(d, j, o.theta[d]-near.theta[d])
		}
	}
	var gram mat.SymDense
	gram.SymOuterK(1, diff.T())
	var trace float64
	for j := range k {
		trace += gram.At(j, j)
	}
	for j := range k {
		gram.SetSym(j, j, gram.At(j, j)+1e-6*trace+math.SmallestNonzeroFloat64)
	}
	var chol mat.Cholesky
	var c, rhs mat.VecDense
	rhs.MulVec(diff.T(), goal)
	if !chol.Factorize(&gram) || chol.SolveVecTo(&c, &rhs) != nil {
		return
	}
	for lo := 0; lo < len(gamma); lo += logprob.Block {
		hi := min(len(gamma), lo+logprob.Block)
		moves(gamma[lo:hi], near.gamma[lo:hi], c.RawVector().Data,
			func(j int) []float64 { return others[j].gamma[lo:hi] })
	}
	for j, o := range others {
		cj := c.AtVec(j)
		for i := range a {
			a[i] += cj * (o.a[i] - near.a[i])
			m[i] += cj * (o.m[i] - near.m[i])
		}
	}
}

// moves multiplies at most logprob.Block elements of γ by Π_j (γ_j/γ_0)^{c_j}, and bounds these
// products.
func moves(gamma, near, c []float64, other func(j int) []float64) {
	const least = -1 + 0x1p-53 // −1 would have the logarithm −Inf
	var ratio, sum [logprob.Block]float64
	r, l := ratio[:len(gamma)], sum[:len(gamma)]
	for j, cj := range c {
		for i, g := range other(j) {
			r[i] = min(max((g-near[i])/near[i], least), math.MaxFloat64)
		}
		fma.Log1p(r)
		for i, x := range r {
			l[i] += float64(cj * x)
		}
	}
	for i, x := range l {
		l[i] = min(max(x, -mostSecant), mostSecant)
	}
	fma.Exp(l)
	floats.Mul(gamma, l)
}
