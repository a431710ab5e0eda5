package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/pgsvi/pgsvi/internal/graph"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Factor is a part of log p(y, z). Its value is the sum of E_q[log f] over its rows, as a
// function of the moments of its terms. It has as many rows as its longest Term. NewFactor makes
// one from a function. A Factor is immutable, and Graph.Objective reports its errors.
type Factor struct {
	factor graph.Factor
	terms  []Term // terms of the factor and its parts
	err    error
	chain  *chainSpec // arguments of a ChainFactor; otherwise nil
}

// newFactor returns a factor of the given terms, which have rows rows or one row.
func newFactor(name string, rows int, kernel graph.Kernel, custom bool, terms ...Term) Factor {
	var errs []error
	for i := range terms {
		rows = max(rows, terms[i].rows())
		errs = append(errs, inFactor(name, terms[i].problem()))
	}
	names, internal := make([]string, len(terms)), make([]graph.Term, len(terms))
	for i := range terms {
		t := &terms[i]
		names[i], internal[i] = t.name, t.term
		if n := t.rows(); n != rows && n != 1 {
			errs = append(errs, fmt.Errorf("pgsvi: factor %s has %d rows, but term %s has %d; "+
				"a term "+
				"needs one row or as many as the factor: %w", name, rows, t.name, n, ErrShape))
		}
	}
	if len(terms) == 0 {
		errs = append(errs, fmt.Errorf("pgsvi: factor %s has no terms: %w", name, ErrEmpty))
	}
	return Factor{factor: graph.NewPlain(name, rows, kernel, internal, names, custom),
		terms: append([]Term(nil), terms...), err: errors.Join(errs...)}
}

// inFactor adds the name of the factor to the error of a term.
func inFactor(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgsvi: factor %s: %w", name, sentinel.Bare(err))
}

// NewFactor returns a factor of your own. value returns E_q[log f] of a row as a function of the
// moments of the terms, which m holds in the order of terms. grad stores the derivatives with
// respect to these moments in d, which is zero on entry. Neither function may keep or change m. A
// moment that the family of a term does not give is NaN; see Graph.Block.
//
// A nil grad means that value is affine in the moments of each term, as in a conditionally
// conjugate model. The derivatives are then differences, which are exact. A count n[row] with a
// rate that has a Gamma prior is an example. Another is a network with a categorical block z of
// the classes of the nodes and a Beta block p of K² edge probabilities, for nodes of the classes
// k and l. Here edge[row] is the element of the Beta distribution: 0 for an edge between the
// nodes from[row] and to[row], and 1 for none.
//
//	pgsvi.NewFactor("count", func(row int, m []pgsvi.Moments) float64 {
//		return n[row]*m[0].Log - m[0].Mean
//	}, nil, rate)
//	pgsvi.NewFactor("edge", func(row int, m []pgsvi.Moments) float64 {
//		return m[0].Mean * m[1].Mean * m[2].Log
//	}, nil, z.Copy(from...).Element(k), z.Copy(to...).Element(l), p.Copy(k*K+l).Element(edge...))
//
// Terms of a row that touch the same copy of a block are dependent. They are allowed only if
// value is a sum of functions of one term each. Graph.Objective tests this.
//
// value may also be a lower bound of E_q[log f] that is tight for known numbers. If value is
// convex in the moments of each term, steps over single blocks still do not lower the ELBO. A
// bound that is maximized over its own parameters is convex. CheckFactor tests both functions.
// They are called concurrently if Solver.Workers is above 1.
func NewFactor(name string, value func(row int, m []Moments) float64,
	grad func(row int, d, m []Moments), terms ...Term) Factor {
	k := &graph.Custom[Moments]{Of: value, Slope: grad}
	for i := range terms {
		k.Fixed = append(k.Fixed, terms[i].term != nil && graph.IsKnown(terms[i].term))
	}
	f := newFactor(name, 1, k, true, terms...)
	if value == nil {
		f.err = errors.Join(f.err, fmt.Errorf("pgsvi: factor %s has no value function: %w", name,
			ErrParam))
	}
	return f
}

// NormalFactor returns log N(x|mean, 1/precision) in each row,
//
//	½E[log t] − ½log 2π − ½E[t](E[x²] − 2E[x]E[m] + E[m²]).
//
// x and mean are known numbers, elements of Gaussian blocks, or Dot, Inner, Plus and Times of
// these. precision is 1/variance: known positive numbers, a Gamma block, or Times of these. The
// three terms must be independent under q.
func NormalFactor(x, mean, precision Term) Factor {
	return newFactor(factorName("normal", x, mean, precision), 1, graph.NormalKernel{}, false, x,
		mean, precision)
}

// factorName returns name(t, …).
func factorName(name string, t ...Term) string {
	s := make([]string, len(t))
	for i := range t {
		s[i] = t[i].name
	}
	return name + "(" + strings.Join(s, ", ") + ")"
}

// GammaFactor returns log Gamma(x|shape, rate) in each row,
//
//	aE[log b] − log Γ(a) + (a−1)E[log x] − E[b]E[x].
//
// x and rate are known positive numbers, Gamma blocks, or Times of these, and independent under
// q.
func GammaFactor(x Term, shape float64, rate Term) Factor {
	f := newFactor(factorName("gamma", x, rate), 1, graph.GammaKernel{Shape: shape}, false, x, rate)
	if !(shape > 0) || math.IsInf(shape, 1) {
		f.err = errors.Join(f.err, fmt.Errorf("pgsvi: factor %s: the shape is %v; it must be "+
			"positive "+
			"and finite: %w", factorName("gamma", x, rate), shape, ErrParam))
	}
	return f
}

// LikelihoodFactor returns E[log p(y|u)] in each row. u is Gaussian under q: an element of a
// Gaussian block, its Dot, or a Plus of these. It needs no conjugacy, so that u can be the linear
// predictor of any GLM. y has an element per row, and LikelihoodFactor does not copy it.
func LikelihoodFactor(y []float64, u Term, lik Likelihood) Factor {
	name := factorName(fmt.Sprintf("%T", lik), u)
	k := &graph.ExpectKernel{Y: y, Expect: func(y, m, v float64) (value, dm, dv float64) {
		e := ExpectLogProb(lik, y, m, v)
		return e.Value, e.D1, 0.5 * e.D2
	}}
	f := newFactor(name, len(y), k, false, u)
	if u.problem() == nil && !u.normal {
		f.err = errors.Join(f.err, fmt.Errorf("pgsvi: factor %s: %s is not Gaussian under q; use "+
			"an element of a Gaussian block, its Dot, or a Plus of these: %w", name, u.name,
			ErrParam))
	}
	if len(y) == 0 {
		f.err = errors.Join(f.err, fmt.Errorf("pgsvi: factor %s has no responses: %w", name,
			ErrEmpty))
	} else if u.problem() == nil && len(y) != u.rows() && u.rows() != 1 {
		f.err = fmt.Errorf("pgsvi: factor %s: %d responses for the %d rows of %s: %w", name, len(y),
			u.rows(), u.name, ErrShape)
	}
	if err := checkLabels(lik, y); err != nil {
		f.err = errors.Join(f.err, inFactor(name, err))
	}
	return f
}

// joinFactors returns the errors of parts and terms, the number of rows of the parts, and all
// terms.
func joinFactors(name string, parts []Factor, terms ...Term) (f Factor, rows int,
	inner []graph.Factor) {
	var errs []error
	f.terms, rows = append(f.terms, terms...), 1
	for i := range terms {
		errs = append(errs, inFactor(name, terms[i].problem()))
	}
	for i, p := range parts {
		if p.factor == nil {
			errs = append(errs, fmt.Errorf("pgsvi: part %d of a %s is empty; make it with "+
				"NewFactor: %w",
				i, name, ErrParam))
			continue
		}
		errs = append(errs, p.err)
		f.terms = append(f.terms, p.terms...)
		inner = append(inner, p.factor)
		rows = max(rows, p.factor.Rows())
	}
	for i, p := range inner {
		if n := p.Rows(); n != rows && n != 1 {
			errs = append(errs, fmt.Errorf("pgsvi: part %d of a %s, %s, has %d rows, but "+
				"another has %d: "+
				"%w", i, name, p.Name(), n, rows, ErrShape))
		}
	}
	if len(parts) == 0 {
		errs = append(errs, fmt.Errorf("pgsvi: a %s has no parts: %w", name, ErrEmpty))
	}
	f.err = errors.Join(errs...)
	return f, rows, inner
}

// MixtureFactor returns log Σ_k π_k f_k in each row, where f_k are the alternatives and π are the
// weights: a Dirichlet block of K elements, Known numbers, or K elements for each row, such as
// theta.Copy(document...) of a topic model. The component of each row is summed out, with its
// best distribution under q: log Σ_k exp(E[log π_k] + E[log f_k]). Alternatives that start equal
// would stay equal; see Graph.Block.
func MixtureFactor(weights Term, alternatives ...Factor) Factor {
	f, rows, parts := joinFactors("mixture", alternatives, weights)
	k, w := len(alternatives), weights.rows()
	if f.err != nil {
		return f
	}
	if w != k && (w%k != 0 || rows != 1 && w != rows*k) {
		f.err = fmt.Errorf("pgsvi: a mixture of %d alternatives with %d rows has %d weights, "+
			"the rows of "+
			"%s; it needs %d, or %d per row: %w", k, rows, w, weights.name, k, k, ErrShape)
		return f
	}
	f.factor = graph.NewMixture(weights.term, weights.name, parts)
	return f
}

// ChainFactor returns a hidden Markov model whose rows are the times of one sequence; for
// several, see Sequences. State k has the probability start_k at the first time and move_jk after
// state j, and the factor emit_k at each time. start has K elements, such as the elements of a
// Dirichlet block, and move has K copies of K elements. The states are summed out with their best
// distribution under q (forward–backward algorithm; Baum et al. 1970). At a time without an
// observation, emit must be a NewFactor whose value is 0 there. States that start equal would stay
// equal; see Graph.Block.
func ChainFactor(start, move Term, emit ...Factor) Factor {
	f, rows, parts := joinFactors("chain", emit, start, move)
	k := len(emit)
	if f.err == nil && (start.rows() != k || move.rows() != k*k) {
		f.err = fmt.Errorf("pgsvi: a chain of %d states has %d elements of start, %s, and %d "+
			"of move, %s; "+
			"it needs %d and %d: %w", k, start.rows(), start.name, move.rows(), move.name, k, k*k,
			ErrShape)
	}
	if f.err != nil {
		return f
	}
	f.chain = &chainSpec{start, move, rows, parts}
	return f.chain.of(f, []int{rows})
}

// chainSpec holds the arguments of a ChainFactor.
type chainSpec struct {
	start, move Term
	times       int
	parts       []graph.Factor
}

func (c *chainSpec) of(f Factor, lengths []int) Factor {
	f.factor = graph.NewChain(c.start.term, c.move.term, []string{c.start.name, c.move.name},
		lengths,
		c.parts)
	return f
}

// Sequences returns a ChainFactor whose times are consecutive sequences of the given lengths. A
// row is then a sequence.
func (f Factor) Sequences(length ...int) Factor {
	if f.err != nil {
		return f
	}
	if f.chain == nil {
		f.err = fmt.Errorf("pgsvi: Sequences needs a ChainFactor: %w", ErrParam)
		return f
	}
	n := 0
	for i, l := range length {
		if n += l; l < 1 {
			f.err = fmt.Errorf("pgsvi: sequence %d of a chain has length %d; it needs at least "+
				"1: %w", i,
				l, ErrParam)
			return f
		}
	}
	if n != f.chain.times {
		f.err = fmt.Errorf("pgsvi: the sequences of a chain have %d times, but its factors "+
			"have %d rows: "+
			"%w", n, f.chain.times, ErrShape)
		return f
	}
	return f.chain.of(f, append([]int{}, length...))
}

// Responsibilities returns the probability of each alternative in each row of a MixtureFactor, or
// of each state at each time of a ChainFactor, under q, a fit of the Graph. It returns nil for
// other factors, and if f or q does not belong to the Graph.
func (f Factor) Responsibilities(q *Exp) [][]float64 {
	if f.err != nil || f.factor == nil {
		return nil
	}
	for _, t := range f.terms {
		if t.layout != nil && t.layout.Params != q.NumParams() {
			return nil
		}
	}
	return graph.Responsibilities(f.factor, q.MeanParams(nil))
}
