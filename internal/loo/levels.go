package loo

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/logprob"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file leaves out all rows of a level of a grouping factor together. Let η = m + Fe be the
// linear predictors of these rows under q, with e ~ N(0, I), and let row i have the site
//
//	log t_i(η) = a_i(η_i − m_i) − γ_i(η_i − m_i)²/2.
//
// Without these sites e has the precision P = I − FᵀΓF and the mean −P⁻¹Fᵀa. In this cavity the
// level has no rows, so its effects have the covariance Σ of a new level. The density of the rows is
//
//	∫ Π_i p(y_i|η_i) q_−(e) de = |P|^½ exp(−aᵀFP⁻¹Fᵀa/2) E exp r(e),
//	r(e) = Σ_i [log p(y_i|η_i) − log t_i(η_i)],   e ~ N(0, I).
//
// For Gaussian noise r is constant, and the rest is exact. Otherwise r is small and smooth where q
// is, because q is the best Gaussian. The eigenvectors of FᵀΓF turn e. Those with the largest
// eigenvalues are the directions about which the rows of the level know most, which are the effects
// of the level. E exp r takes a Gauss–Hermite rule in them. In all other directions r is nearly
// quadratic at each node, and the expectation has a closed form.

const (
	quadratureMost = 2 // directions with a rule; more effects are nearly quadratic together
	lineNodes      = 21
	planeNodes     = 11
)

// A levelRule is a product of Gauss–Hermite rules over few directions.
type levelRule struct {
	at     [][]float64 // nodes
	weight []float64
}

// newLevelRule returns the rule with n nodes in each of k directions.
func newLevelRule(k, n int) (r levelRule) {
	h := expect.Hermite(n)
	r.at, r.weight = [][]float64{nil}, []float64{1}
	for range k {
		var at [][]float64
		var weight []float64
		for i, x := range r.at {
			for j, z := range h.X {
				at = append(at, append(slices.Clone(x), z))
				weight = append(weight, r.weight[i]*h.W[j])
			}
		}
		r.at, r.weight = at, weight
	}
	return r
}

// LevelRows leaves out the rows of each level in turn. The mean of q is relative to the prior mean.
// Effects is the number of effects of a level, and name describes a level in errors.
func LevelRows(ctx context.Context, l *site.LinearModel, mean []float64, cov gauss.Cov,
	levels [][]int, effects int, name func(i int) string) (*Result, error) {
	m, v := make([]float64, l.X.Rows), make([]float64, l.X.Rows)
	l.X.Mul(m, mean, nil)
	cov.Variances(v, l.X, nil)
	s, err := expectations(ctx, l.Terms, m, v)
	if err != nil {
		return nil, err
	}
	k := min(effects, quadratureMost)
	nodes := lineNodes
	if k > 1 {
		nodes = planeNodes
	}
	fine, coarse := newLevelRule(k, nodes), newLevelRule(k, nodes/2)
	r, joint := newResult(len(levels), 0), gauss.Joint(cov)
	err = parallel.Each(ctx, len(levels), runtime.GOMAXPROCS(0), func(_, i int) error {
		c := &levelCavity{l: l, s: s, rows: levels[i]}
		c.factor(joint)
		if !c.turn() {
			return fmt.Errorf("%s: eigenvalues of the precision: %w", name(i), sentinel.ErrNotFinite)
		}
		least := 1 - c.known[0]
		r.Leverage[i] = floats.Sum(c.known)
		switch {
		case least < -beyond:
			return fmt.Errorf("%s has more precision than all of its linear predictors; fit q to "+
				"these rows, and to the end: %w", name(i), sentinel.ErrNotPosDef)
		case !(least > remainder):
			r.PointErr[i] = math.Inf(1)
			return nil
		}
		gaussian, kl := c.gaussian()
		value := gaussian + c.logMean(fine)
		r.Pointwise[i], r.Influence[i] = value, kl
		r.PointErr[i] = math.Abs(value - gaussian - c.logMean(coarse))
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("%s has log density %v without its rows: %w", name(i), value,
				sentinel.ErrNotFinite)
		}
		return nil
	})
	for i, e := range r.PointErr {
		if math.IsInf(e, 1) {
			r.Unresolved = append(r.Unresolved, i)
			continue
		}
		r.Err += e
	}
	if err == nil && len(r.Unresolved) == len(levels) {
		err = fmt.Errorf("only rounding is left of the precision without %s, as without all "+
			"other levels: give the weights a narrower prior: %w", name(0), sentinel.ErrNotPosDef)
	}
	return r.finish(ctx, nil, err)
}

// A levelCavity holds the rows of one level.
type levelCavity struct {
	l    *site.LinearModel
	s    *term.Marginals
	rows []int
	// f is F, rank columns wide. After turn its columns belong to the eigenvalues in known, in
	// decreasing order, and g is Fᵀa.
	f        []float64
	rank     int
	known, g []float64
}

// factor sets F from the covariance of the weights that the rows have.
func (c *levelCavity) factor(joint func(index []int) []float64) {
	n := len(c.rows)
	var weights []int
	for _, i := range c.rows {
		ind, val := c.l.X.Row(i)
		for k, v := range val {
			if v == 0 {
				continue
			}
			j := dense.Index(ind, k)
			weights = append(weights, j)
		}
		slices.Sort(weights)
		weights = slices.Compact(weights)
	}
	d := len(weights)
	x := make([]float64, n*d)
	for a, i := range c.rows {
		ind, val := c.l.X.Row(i)
		for k, v := range val {
			j := dense.Index(ind, k)
			if at, ok := slices.BinarySearch(weights, j); ok {
				x[a*d+at] = v
			}
		}
	}
	root := make([]float64, d*d)
	gauss.Root(root, joint(weights), d)
	c.f, c.rank = make([]float64, n*d), d
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(x, n, d), dense.General(root, d, d), 0,
		dense.General(c.f, n, d))
	if n < d { // the covariance of the rows is smaller
		square, root := make([]float64, n*n), make([]float64, n*n)
		fma.Syrk(fma.Run{}, 1, fma.Of(c.f, n, d, d), fma.Of(square, n, n, n))
		gauss.Root(root, square, n)
		c.f, c.rank = root, n
	}
}

// turn turns e into the eigenvectors of FᵀΓF.
func (c *levelCavity) turn() bool {
	n, d := len(c.rows), c.rank
	gamma := make([]float64, n)
	for a, i := range c.rows {
		gamma[a] = c.s.Tg[i]
	}
	square := mat.NewSymDense(d, nil)
	f := fma.Of(c.f, n, d, d)
	raw := square.RawSymmetric().Data
	fma.Gram(fma.Run{}, gamma, f, fma.Of(raw, d, d, d))
	dense.FillUpper(raw, d)
	var e mat.EigenSym
	if !e.Factorize(square, true) {
		return false
	}
	c.known = e.Values(nil)
	var vectors mat.Dense
	e.VectorsTo(&vectors)
	slices.Reverse(c.known)
	v := make([]float64, d*d)
	for i := range d {
		for j := range d {
			v[i*d+j] = vectors.At(i, d-1-j)
		}
	}
	turned := make([]float64, n*d)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(c.f, n, d), dense.General(v, d, d), 0,
		dense.General(turned, n, d))
	c.f, c.g = turned, make([]float64, d)
	for a, i := range c.rows {
		floats.AddScaled(c.g, c.s.D1[i], c.f[a*d:(a+1)*d])
	}
	return true
}

// gaussian returns log |P|^½ − aᵀFP⁻¹Fᵀa/2, and KL(q‖q_−).
func (c *levelCavity) gaussian() (log, kl float64) {
	for j, x := range c.known {
		det, square := math.Log1p(-x), c.g[j]*c.g[j]/(1-x)
		log += (det - square) / 2
		kl += (square - x - det) / 2
	}
	return log, kl
}

// logMean returns log E exp r(e) by a rule in the first directions.
func (c *levelCavity) logMean(rule levelRule) float64 {
	n, d := len(c.rows), c.rank
	k := min(len(rule.at[0]), d)
	rest := d - k
	terms := c.l.Terms.Sub(c.rows)
	density := terms.Density()
	spread := make([]float64, n) // of η in the other directions
	others := make([]float64, n*rest)
	for a := range n {
		copy(others[a*rest:(a+1)*rest], c.f[a*d+k:(a+1)*d])
		spread[a] = floats.Norm(others[a*rest:(a+1)*rest], 2)
	}
	var p [3][]float64
	for i := range p {
		p[i] = make([]float64, n)
	}
	logs := make([]float64, len(rule.at))
	change, slope, curve := make([]float64, n), make([]float64, n), make([]float64, n)
	for at, e := range rule.at {
		for a := range n {
			change[a] = floats.Dot(c.f[a*d:a*d+k], e[:k])
		}
		for i := range p {
			for a, row := range c.rows {
				p[i][a] = c.s.M[row] + change[a] + float64(i-1)*threeNodes*spread[a]
			}
			for lo := 0; lo < n; lo += logprob.Block {
				density.Values(p[i][lo:min(n, lo+logprob.Block)], lo)
			}
		}
		sum := 0.0
		for a, row := range c.rows {
			g, x := c.s.Tg[row], change[a]
			sum += p[1][a] - c.s.D1[row]*x + g*x*x/2
			slope[a], curve[a] = 0, 0
			if s := spread[a]; s > 0 {
				slope[a] = (p[2][a]-p[0][a])/(2*threeNodes*s) - c.s.D1[row] + g*x
				curve[a] = (p[2][a]-2*p[1][a]+p[0][a])/(threeNodes*threeNodes*s*s) + g
			}
		}
		logs[at] = math.Log(rule.weight[at]) + sum + quadraticMean(others, rest, slope, curve, c.s.Tg,
			c.rows)
	}
	return floats.LogSumExp(logs)
}

// threeNodes is the distance of the outer nodes of the Gauss–Hermite rule with three nodes. The
// differences over it are derivatives of a smoothed function.
const threeNodes = 1.7320508075688772

// quadraticMean returns log E exp(Σ_a [s_a η_a + c_a η_a²/2]) for η = Fe, e ~ N(0, I). If the
// integral does not exist, terms with more curvature than their sites γ count as linear.
func quadraticMean(f []float64, d int, slope, curve, gamma []float64, rows []int) float64 {
	if d == 0 {
		return 0
	}
	n := len(slope)
	g := make([]float64, d)
	for a := range n {
		floats.AddScaled(g, slope[a], f[a*d:(a+1)*d])
	}
	p := make([]float64, d*d)
	for pass := range 2 {
		clear(p)
		minus := make([]float64, n)
		for a, c := range curve {
			if minus[a] = -c; pass > 0 {
				minus[a] = max(-c, -gamma[rows[a]])
			}
		}
		fma.Gram(fma.Run{}, minus, fma.Of(f, n, d, d), fma.Of(p, d, d, d))
		for j := range d {
			p[j*d+j]++
		}
		if dense.Cholesky(p, d) {
			dense.Trsv(blas.NoTrans, dense.LowerTriangle(p, d), dense.Vector(g))
			return (floats.Dot(g, g) - dense.LogDet(p, d)) / 2
		}
	}
	return floats.Dot(g, g) / 2
}
