package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/graph"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Graph is a model of your own. It consists of blocks of unknowns z_1, z_2, … with independent
// approximations, and factors of the joint density,
//
//	log p(y, z) = Σ_b log p_b(z_b) + Σ_i log f_i(y, z),   q(z) = Π_b q_b(z_b).
//
// Write a model in the order of a generative story. Block declares each group of unknowns with its
// family, the number of copies and a prior, and returns a Term. A Term is a number per row, and
// Copy, Element, Dot, Inner, Plus and Times make other numbers from it. A Factor is a density of
// such numbers with a row per observation, and Add adds it. A block whose prior depends on other
// unknowns has a nil prior and a factor instead. Then Objective reports all mistakes at once, or
// returns the model to fit:
//
//	var g pgsvi.Graph
//	w := g.Block("w", 1, pgsvi.NewIsotropic(3, 100))     // weights ~ N(0, 100 I)
//	t := g.Block("t", 1, gamma)                          // noise precision ~ Gamma
//	g.Add(pgsvi.NormalFactor(pgsvi.Known(y...), w.Dot(x), t)) // y_n ~ N(x_nᵀw, 1/t)
//	o, err := g.Objective()
//	q, res, err := o.Fit(ctx, nil)
//	post := w.Of(q)[0].(*pgsvi.Gaussian)
//
// Distributions of one copy are families: a *Gaussian, or an *Exp such as a Gamma, Beta, Dirichlet
// or categorical distribution. The unknowns of a regression belong into one Gaussian with a full
// covariance, because q treats different blocks and copies as independent.
//
// Missing values have no row. A missing value that is an unknown is a block of its own, with a copy
// per missing value. Discrete unknowns of a single row are summed out by MixtureFactor and
// ChainFactor; those of several rows, such as the classes of nodes of a network, are a categorical
// block. A prior in standard deviations must be written as a Gamma prior of the precision.
//
// In a conditionally conjugate model, E_q[log p(y, z)] is affine in the mean parameters μ_b of
// each block, and a step with the KL divergence over all terms is that of natural-gradient
// variational inference, and with a mini-batch that of stochastic variational inference (Hoffman,
// Blei, Wang and Paisley 2013). Other factors are linearized in μ. Without a step size, no step
// lowers the ELBO.
//
// Limits. Blocks are independent under q, so a chain x_t | x_{t−1} of separate copies loses the
// correlation of neighbors. Make the whole path one Gaussian block with differences by Dot; its
// cost is cubic in the length. A factor with an unknown precision matrix can be written with
// NewFactor from the statistics of a Wishart block (see Block), but there is no ready one. The
// likelihood of an Inner or Times needs a bound, such as the example of NewFactor. An E[u²] of
// Gamma, Beta and Dirichlet blocks is not available.
//
// The zero Graph is empty and ready to use. A Graph is not safe for concurrent use; its Objective
// is.
type Graph struct {
	blocks  *graphBlocks // nil if there are none
	factors []Factor
	errs    []error
}

// Block declares n independent copies of unknowns of one family, and returns a Term with a row for
// each element of each copy, copy by copy:
//
//	family                            rows of a copy             known moments
//	Gaussian of dimension d           z_1 … z_d                  E[u], E[u²]
//	Gamma                             z                          E[u], E[log u]
//	Beta                              z, 1−z                     E[log u]
//	Dirichlet                         z_1 … z_K                  E[log u]
//	Categorical, Bernoulli            1 if z = k, k = 0 … K−1    E[u], E[u²]
//	Wishart, NormalWishart, Poisson,  T(z), the statistics of    E[u]
//	InverseGamma, your own Family     the family
//
// The model includes E[log prior] of each copy. A nil prior means that the factors are all there
// is; it needs a start. start is where a fit begins: nothing means the prior, one distribution is
// for all copies, and n are one for each.
//
// Copies that start equal and enter the model alike stay equal, at a saddle of the ELBO. Objective
// changes such starts at random, with a fixed seed: the copies of alternatives of a MixtureFactor
// or ChainFactor that are equal in all rows, the operands of an Inner or Times whose means are all
// 0, and a block with the start and the gradient of an earlier block. The mean of a Gaussian
// becomes a draw from its start, and other families move by about 30%. So give a start whose
// variance matches the scale of the data, or starts that differ; the ELBO may have several maxima.
// Copies of one block that only a factor of your own could tell apart are not moved: give the
// parameters of the classes of a network, for example, starts that differ.
//
// Names are for errors. Objective reports the errors of Block.
func (g *Graph) Block(name string, n int, prior ExpFamily, start ...ExpFamily) Term {
	if g.blocks == nil {
		g.blocks = new(graphBlocks)
	}
	b, err := newGraphBlock(name, n, prior, start)
	if err != nil {
		err = fmt.Errorf("pgsvi: block %s: %w", name, err)
		g.errs = append(g.errs, err)
		return Term{name: name, layout: g.blocks, err: err}
	}
	g.blocks.Add(b.Block)
	g.blocks.list = append(g.blocks.list, b)
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return blockTerm(g.blocks, b.Block, all)
}

func newGraphBlock(name string, n int, prior ExpFamily, start []ExpFamily) (graphBlock, error) {
	b := graphBlock{Block: &graph.Block{Name: name, Copies: n}, flat: isNil(prior)}
	if n < 1 {
		return b, fmt.Errorf("it has %d copies; it needs at least 1: %w", n, ErrParam)
	}
	if len(start) == 0 {
		if b.flat {
			return b, fmt.Errorf("it has neither a prior nor a start; give one of them: %w", ErrParam)
		}
		start = []ExpFamily{prior}
	}
	if len(start) != 1 && len(start) != n {
		return b, fmt.Errorf("it has %d copies but %d starts; give one for all or one for each: %w", n,
			len(start), ErrShape)
	}
	for i := range n {
		s := start[min(i, len(start)-1)]
		if isNil(s) {
			return b, fmt.Errorf("the start of copy %d is nil: %w", i, ErrParam)
		}
		p := prior
		if b.flat {
			p = start[0]
		}
		if familyOf(p) != familyOf(s) {
			return b, fmt.Errorf("copy %d starts as a %s, but the block is a %s; both need the same "+
				"family: %w", i, familyOf(s), familyOf(p), ErrShape)
		}
		b.prior, b.start = append(b.prior, p), append(b.start, s)
	}
	return b, b.describe(b.prior[0])
}

// familyOf returns the family and the size of q in words.
func familyOf(q ExpFamily) string {
	g, ok := q.(*Gaussian)
	switch {
	case !ok:
		return distName(q)
	case g.isDiagonal() && g.Dim() > 1:
		return fmt.Sprintf("Gaussian of dimension %d with a diagonal covariance", g.Dim())
	}
	return fmt.Sprintf("Gaussian of dimension %d", g.Dim())
}

// describe sets the layout of the copies of q.
func (b *graphBlock) describe(q ExpFamily) error {
	b.Params, b.Kind, b.Elements = q.NumParams(), graph.Other, q.NumParams()
	switch q := q.(type) {
	case *Gaussian:
		b.Kind, b.Dim, b.Elements, b.Diagonal = graph.Normal, q.Dim(), q.Dim(), q.isDiagonal()
	case *Exp:
		switch f := q.at.F.(type) {
		case expfam.GammaFamily:
			b.Kind, b.Elements = graph.Gamma, 1
		case expfam.BetaFamily:
			b.Kind, b.Elements = graph.Simplex, 2
		case expfam.DirichletFamily:
			b.Kind, b.Elements = graph.Simplex, f.K
		case expfam.CategoricalFamily:
			b.Kind, b.Elements = graph.Indicator, f.K
		default:
			if b.flat {
				return fmt.Errorf("a %s needs a prior: %w", distName(q), ErrParam)
			}
		}
	}
	b.Total = b.Copies * b.Params
	if b.Dim == 1 {
		b.Stacked, b.Params, b.Total = true, 1, 2*b.Copies
	}
	return nil
}

// parts returns the distributions qs of all copies as parts of a product.
func (b *graphBlock) parts(qs []ExpFamily) ([]ExpFamily, error) {
	if !b.Stacked {
		return qs, nil
	}
	m, v := make([]float64, len(qs)), make([]float64, len(qs))
	for i, q := range qs {
		g := q.(*Gaussian)
		m[i], v[i] = g.Mean(nil)[0], g.Var(nil)[0]
	}
	q, err := NewMeanField(m, v)
	return []ExpFamily{q}, err
}

// Add adds factors to the model.
func (g *Graph) Add(f ...Factor) { g.factors = append(g.factors, f...) }

// Objective returns the negative ELBO of the model, ready to fit. F is −Σ E_q[log f_i], and H is
// the KL divergence to the priors of the blocks.
//
// Mini-batches are over the rows of all factors with more than one row, and a factor of one row
// belongs to every batch. Plates are an exception: blocks with at least 16 copies that touch few
// rows each, such as an effect per subject. All rows that touch a copy of a plate form one term of
// a mini-batch (Solver.BatchSize). A step first finds the best copies of its batch for the present
// global blocks, and then moves the global blocks, for which the batch is scaled to all terms
// (Hoffman, Blei, Wang and Paisley 2013). This needs KL divergences, and terms of at most an
// eighth of all rows.
//
// The error joins the mistakes of all blocks and factors, and names the block, the factor and the
// row. To find them, Objective evaluates every factor at the start. The errors wrap
//   - ErrEmpty if there are no blocks, factors or rows;
//   - ErrShape if lengths or indices disagree;
//   - ErrParam if a block has neither a prior nor a factor, a term belongs to another Graph, a moment
//     that a factor needs is unknown (such as a Gaussian as a precision), or terms of a row are
//     dependent;
//   - ErrNotFinite if data, a value or a derivative is not finite;
//   - ErrLabel if a response is outside the support of its likelihood;
//   - ErrPanic if a function of NewFactor panics.
func (g *Graph) Objective() (Objective[*Exp], error) {
	var o Objective[*Exp]
	f, err := g.smooth()
	if err != nil {
		return o, err
	}
	return Objective[*Exp]{F: f, H: KLTo(f.prior), Init: f.start}, nil
}

// smooth returns the Smooth of the model.
func (g *Graph) smooth() (*graphTerms, error) {
	if err := g.mistakes(); err != nil {
		return nil, err
	}
	f := &graphTerms{blocks: append([]graphBlock(nil), g.blocks.list...)}
	for i := range g.factors {
		f.factors = append(f.factors, g.factors[i].factor)
	}
	f.model = graph.NewModel(&g.blocks.Layout, f.factors)
	var err error
	if f.prior, err = g.blocks.product(func(b *graphBlock) []ExpFamily { return b.prior }); err != nil {
		return nil, err
	}
	start, err := g.blocks.product(func(b *graphBlock) []ExpFamily { return b.start })
	if err != nil {
		return nil, err
	}
	mu := start.MeanParams(nil)
	if errs := f.model.Check(mu); errs != nil {
		return nil, prefixedEach(errs)
	}
	alike, err := f.model.Alike(mu)
	if err != nil {
		return nil, prefixed(err)
	}
	f.setBase()
	f.start, err = g.blocks.separate(start, alike)
	return f, err
}

// mistakes returns the errors that need no values.
func (g *Graph) mistakes() error {
	errs := append([]error(nil), g.errs...)
	if g.blocks == nil || len(g.blocks.list) == 0 {
		errs = append(errs, fmt.Errorf("pgsvi: the Graph has no blocks; add one with Block: %w",
			ErrEmpty))
	}
	if len(g.factors) == 0 {
		errs = append(errs, fmt.Errorf("pgsvi: the Graph has no factors; add one with Add: %w", ErrEmpty))
	}
	used := map[*graph.Block]bool{}
	for i := range g.factors {
		f := &g.factors[i]
		if f.factor == nil && f.err == nil {
			errs = append(errs, fmt.Errorf("pgsvi: factor %d is empty; make it with NewFactor: %w", i,
				ErrParam))
			continue
		}
		errs = append(errs, f.err)
		for _, t := range f.terms {
			if t.err == nil && t.layout != nil && t.layout != g.blocks {
				errs = append(errs, fmt.Errorf("pgsvi: factor %s: term %s belongs to another Graph: %w",
					f.name(), t.name, ErrParam))
			}
			if t.problem() == nil {
				graph.Blocks(t.term, func(b *graph.Block) { used[b] = true })
			}
		}
	}
	if errors.Join(errs...) != nil {
		return errors.Join(errs...)
	}
	for _, b := range g.blocks.list {
		if b.flat && !used[b.Block] {
			errs = append(errs, fmt.Errorf("pgsvi: block %s has no prior and no factor touches it; add "+
				"one of them: %w", b.Name, ErrParam))
		}
	}
	return errors.Join(errs...)
}

func (f *Factor) name() string {
	if f.factor == nil {
		return "without a name"
	}
	return f.factor.Name()
}

// product returns the product of the distributions of all blocks.
func (l *graphBlocks) product(of func(b *graphBlock) []ExpFamily) (*Exp, error) {
	var all []ExpFamily
	for i := range l.list {
		p, err := l.list[i].parts(of(&l.list[i]))
		if err != nil {
			return nil, fmt.Errorf("pgsvi: block %s: %w", l.list[i].Name, sentinel.Bare(err))
		}
		all = append(all, p...)
	}
	return ProductOf(all...)
}

// separate returns start with random shifts of the copies that begin at the given elements of μ.
func (l *graphBlocks) separate(start *Exp, alike []int) (*Exp, error) {
	if len(alike) == 0 {
		return start, nil
	}
	moved := map[*graph.Block]map[int]bool{}
	for _, s := range alike {
		b, c := l.At(s)
		if moved[b] == nil {
			moved[b] = map[int]bool{}
		}
		moved[b][c] = true
	}
	rng := rand.New(rand.NewPCG(seed1, seed2))
	return l.product(func(b *graphBlock) []ExpFamily {
		qs := append([]ExpFamily(nil), b.start...)
		for i := range qs {
			if moved[b.Block][i] {
				qs[i] = relocated(qs[i], rng)
			}
		}
		return qs
	})
}

// chartShift is the standard deviation of random shifts in the chart of a family.
const chartShift = 0.3

// relocated returns q with another mean: a draw from q if it is a Gaussian, and otherwise a random
// shift of its chart.
func relocated(q ExpFamily, rng *rand.Rand) ExpFamily {
	p := q.Clone().(ExpFamily)
	if g, ok := q.(*Gaussian); ok {
		mean := g.Rand(nil, rng)
		c := g.In(MeanCov)
		l := c.Params(nil)
		copy(l, mean)
		if c.SetParams(l) == nil {
			return c
		}
		return p
	}
	x := p.Chart(nil)
	for i := range x {
		x[i] += chartShift * rng.NormFloat64()
	}
	if p.SetChart(x) != nil {
		return q
	}
	return p
}

// LogProb returns log p(y, z) as a function of z, in the order of the blocks and their copies, for
// PSIS (see NewPSIS). A factor that bounds an expectation is exact there, because its value at
// known numbers is log f. The function is safe for concurrent use if the factors are. It returns
// NaN if the model has a mistake.
func (g *Graph) LogProb() func(z []float64) float64 {
	f, err := g.smooth()
	if err != nil {
		return func([]float64) float64 { return math.NaN() }
	}
	return f.logProb
}

func (f *graphTerms) logProb(z []float64) float64 {
	t := make([]float64, len(f.base))
	f.prior.at.F.Stat(t, z)
	s, err := f.model.Sum(context.Background(), 1, nil, t, nil)
	if err != nil {
		return math.NaN()
	}
	v, at := s.Value, 0
	for _, b := range f.blocks {
		for _, p := range b.prior {
			d := p.Dim()
			if !b.flat {
				v += p.LogProb(z[at : at+d])
			}
			at += d
		}
	}
	return v
}

// String lists the blocks and the factors.
func (g *Graph) String() string {
	var s strings.Builder
	if g.blocks == nil {
		return ""
	}
	for i := range g.blocks.list {
		b := &g.blocks.list[i]
		fmt.Fprintf(&s, "block %s: %d × %s\n", b.Name, b.Copies, familyOf(b.start[0]))
	}
	for i := range g.factors {
		f := &g.factors[i]
		if f.factor != nil {
			fmt.Fprintf(&s, "factor %s: %d rows\n", f.name(), f.factor.Rows())
		}
	}
	return s.String()
}
