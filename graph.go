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
	"gonum.org/v1/gonum/floats"
)

// Graph is a model of your own. It consists of blocks of unknowns z_1, z_2, … with independent
// approximations q_b, and factors of the joint density,
//
//	log p(y, z) = Σ_b log p_b(z_b) + Σ_i log f_i(y, z),   q(z) = Π_b q_b(z_b).
//
// Write a model in the order of a generative story. Block declares a group of unknowns by its
// family, the number of copies and a prior, and returns a Term, which is a number per row. Copy,
// Element, Dot, Inner, Plus and Times make other numbers of it. A Factor is a density of such
// numbers, with a row per observation. If the prior of a block depends on other unknowns, the
// prior is nil and a factor replaces it. Objective reports all mistakes at once, or returns the
// model to fit:
//
//	var g pgsvi.Graph
//	w := g.Block("w", 1, pgsvi.NewIsotropic(3, 100)) // weights ~ N(0, 100 I)
//	t := g.Block("t", 1, gamma)                      // precision of the noise ~ Gamma
//	g.Add(pgsvi.NormalFactor(pgsvi.Known(y...), w.Dot(x), t)) // y_n ~ N(x_nᵀw, 1/t)
//	o, err := g.Objective()
//	...
//	q, res, err := o.Fit(ctx, nil)
//	...
//	weights := w.Of(q)[0].(*pgsvi.Gaussian)
//	predictions := w.Dot(xnew).Moments(q)
//
// The family of a block is the family of its prior: a *Gaussian, or an *Exp such as a Gamma,
// Beta, Dirichlet or categorical distribution. Put unknowns that are correlated, such as all
// weights of a regression, into one Gaussian with a full covariance, because q treats blocks and
// copies as independent. Write the prior of a standard deviation as a Gamma prior of the
// precision.
//
// An observation that is missing has no row. If a missing value is an unknown of the model, it is
// a copy of a block. MixtureFactor and ChainFactor sum out the classes of rows and the states of
// sequences. A class that several rows depend on, such as the class of a node of a network, is a
// copy of a categorical block.
//
// In a conditionally conjugate model, E_q[log p(y, z)] is affine in the mean parameters μ_b of
// each block. A step with the KL divergence over all terms is then natural-gradient variational
// inference, and over a mini-batch it is stochastic variational inference (Hoffman, Blei, Wang
// and Paisley 2013). Factors that are not conjugate are linearized in μ. Steps over all terms
// without a step size never lower the ELBO.
//
// The model has these limits:
//
//   - Blocks are independent under q, so that a chain x_t | x_{t−1} of separate copies loses the
//     correlation of neighbors. Make the whole path one Gaussian block, and its differences by Dot.
//     The cost is cubic in the length of the path.
//   - There is no ready factor for an unknown precision matrix. NewFactor can make one from the
//     statistics of a Wishart block; see Block.
//   - LikelihoodFactor needs a Gaussian predictor. Inner and Times need a lower bound of the
//     likelihood, as in the example of NewFactor.
//   - E[u²] of Gamma, Beta and Dirichlet blocks is not available.
//
// The zero Graph is empty and ready to use. A Graph is not safe for concurrent use, but its
// Objective is.
type Graph struct {
	blocks  *graphBlocks // nil before the first Block
	factors []Factor
	errs    []error
}

// Block declares n independent copies of unknowns of one family. It returns a Term with a row for
// each element of each copy, copy by copy:
//
//	family                             rows of a copy              known moments
//	Gaussian of dimension d            z_1 … z_d                   E[u], E[u²]
//	Gamma                              z                           E[u], E[log u]
//	Beta                               z, 1−z                      E[log u]
//	Dirichlet                          z_1 … z_K                   E[log u]
//	categorical, Bernoulli             1 if z = k, k = 0 … K−1     E[u], E[u²]
//	Wishart, NormalWishart, Poisson,   the statistics T(z) of the  E[u]
//	InverseGamma, your own Family      family
//
// The model includes log prior of each copy. A nil prior means that factors are the prior; the
// block then needs a start. A fit begins at start: one element is the start of all copies, and n
// elements are the starts of the n copies. Without start, a fit begins at the prior. The name
// appears in errors, and Objective reports the errors of Block.
//
// Copies that start equal and enter the model alike would stay equal, at a saddle of the ELBO.
// Objective moves these copies apart:
//
//   - the copies in alternatives of a MixtureFactor or ChainFactor that are equal in all rows,
//   - the operands of an Inner or Times whose means are all 0,
//   - a block with the start and the gradient of an earlier block,
//   - if there are none of these, copies of a block that all have the same start and gradient.
//
// It draws the means of Gaussians from their start several times, with decreasing spread and a
// fixed seed, shifts other families at random, and keeps the start with the best ELBO after a few
// steps. The ELBO may still have better maxima, so give starts that differ if you can.
//
// If factors connect copies of a categorical block, such as the classes of the nodes of a
// network, Objective finds their start by coordinate ascent, one copy after another, given the
// starts of the other blocks. The parameters of the classes should then have starts that differ.
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
			return b, fmt.Errorf("it has neither a prior nor a start; give one of them: %w",
				ErrParam)
		}
		start = []ExpFamily{prior}
	}
	if len(start) != 1 && len(start) != n {
		return b, fmt.Errorf("it has %d copies but %d starts; give one for all or one for "+
			"each: %w", n,
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
			return b, fmt.Errorf("copy %d starts as a %s, but the block is a %s; both need the "+
				"same "+
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
// row. To find them, Objective evaluates every factor at the start. A search for random starts
// (see Block) costs about a hundred gradients. The errors wrap
//   - ErrEmpty if there are no blocks, factors or rows;
//   - ErrShape if lengths or indices disagree;
//   - ErrParam if a block has neither a prior nor a factor, a term belongs to another Graph,
//     terms of a row are dependent, or a moment that a factor needs is unknown (such as a
//     Gaussian as a precision);
//   - ErrNotFinite if data, a value or a derivative is not finite;
//   - ErrLabel if a response is outside the support of its likelihood;
//   - ErrPanic if a function of NewFactor panics.
func (g *Graph) Objective() (Objective[*Exp], error) {
	var o Objective[*Exp]
	f, err := g.smooth()
	if err != nil {
		return o, err
	}
	if err := f.separate(g.blocks); err != nil {
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
	if f.prior,
		err = g.blocks.product(func(b *graphBlock) []ExpFamily { return b.prior }); err != nil {
		return nil, err
	}
	f.start, err = g.blocks.product(func(b *graphBlock) []ExpFamily { return b.start })
	if err != nil {
		return nil, err
	}
	if errs := f.model.Check(f.start.MeanParams(nil)); errs != nil {
		return nil, prefixedEach(errs)
	}
	f.setBase()
	return f, nil
}

// mistakes returns the errors that need no values.
func (g *Graph) mistakes() error {
	errs := append([]error(nil), g.errs...)
	if g.blocks == nil || len(g.blocks.list) == 0 {
		errs = append(errs, fmt.Errorf("pgsvi: the Graph has no blocks; add one with Block: %w",
			ErrEmpty))
	}
	if len(g.factors) == 0 {
		errs = append(errs, fmt.Errorf("pgsvi: the Graph has no factors; add one with Add: %w",
			ErrEmpty))
	}
	used := map[*graph.Block]bool{}
	for i := range g.factors {
		f := &g.factors[i]
		if f.factor == nil && f.err == nil {
			errs = append(errs, fmt.Errorf("pgsvi: factor %d is empty; make it with NewFactor: "+
				"%w", i,
				ErrParam))
			continue
		}
		errs = append(errs, f.err)
		for _, t := range f.terms {
			if t.err == nil && t.layout != nil && t.layout != g.blocks {
				errs = append(errs, fmt.Errorf("pgsvi: factor %s: term %s belongs to another "+
					"Graph: %w",
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
			errs = append(errs, fmt.Errorf("pgsvi: block %s has no prior and no factor touches "+
				"it; add "+
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

// A start of copies that are alike is the best of several random starts after a few steps,
// because the ELBO of a mixture has many maxima (Biernacki, Celeux and Govaert 2003). The starts
// have different spreads, because a prior may be much wider than the data.
const (
	randomStarts = 8
	startSteps   = 10
	narrowStart  = 0.03 // spread of the last start, relative to the given start
)

// chartShift is the standard deviation of random shifts in the chart of a family.
const chartShift = 0.3

// separate moves copies apart that are alike.
func (f *graphTerms) separate(l *graphBlocks) error {
	alike, err := f.model.Alike(f.start.MeanParams(nil))
	if err != nil {
		return prefixed(err)
	}
	if len(alike) == 0 {
		return f.assign(f.start)
	}
	moved := map[*graph.Block]map[int]bool{}
	for _, s := range alike {
		b, c := l.At(s)
		if moved[b] == nil {
			moved[b] = map[int]bool{}
		}
		moved[b][c] = true
	}
	best, s := math.Inf(-1), &Solver{MaxIter: startSteps, Workers: 1, Recover: true}
	for k := range randomStarts {
		rng := rand.New(rand.NewPCG(seed1, seed2+uint64(k)))
		spread := math.Pow(narrowStart, float64(k)/(randomStarts-1))
		q, err := l.product(func(b *graphBlock) []ExpFamily {
			qs := append([]ExpFamily(nil), b.start...)
			for i := range qs {
				if moved[b.Block][i] {
					qs[i] = relocated(qs[i], spread, rng)
				}
			}
			return qs
		})
		if err != nil {
			return err
		}
		if err := f.assign(q); err != nil {
			return err
		}
		o := Objective[*Exp]{F: f, H: KLTo(f.prior), Init: q}
		res, err := s.Run(context.Background(), o)
		if err == nil && res.ELBO > best {
			best, f.start = res.ELBO, q
		}
	}
	return nil
}

// assign changes the categorical blocks of a start whose copies depend on each other.
func (f *graphTerms) assign(start *Exp) error {
	prior, eta := f.prior.Natural(nil), start.Natural(nil)
	floats.Sub(prior, f.base)
	if !f.model.Assign(eta, start.MeanParams(nil), prior) {
		return nil
	}
	return prefixed(start.SetNatural(eta))
}

// relocated returns q with another mean, or q if that is not valid. A Gaussian moves to a draw
// whose distance from the mean is multiplied by spread. Other families move in their chart.
func relocated(q ExpFamily, spread float64, rng *rand.Rand) ExpFamily {
	if g, ok := q.(*Gaussian); ok {
		c := g.In(MeanCov)
		l, z := c.Params(nil), g.Rand(nil, rng)
		for i, x := range z {
			l[i] += spread * (x - l[i])
		}
		if c.SetParams(l) != nil {
			return q
		}
		return c
	}
	p := q.Clone().(ExpFamily)
	x := p.Chart(nil)
	for i := range x {
		x[i] += chartShift * rng.NormFloat64()
	}
	if p.SetChart(x) != nil {
		return q
	}
	return p
}

// LogProb returns log p(y, z) as a function of z, in the order of the blocks and their copies,
// for PSIS (see NewPSIS). A factor that bounds an expectation is exact there, because its value
// at known numbers is log f. The function is safe for concurrent use if the factors are. It
// returns NaN if the model has a mistake.
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
