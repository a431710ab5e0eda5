package learn

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file learns the covariances of the effects of grouping factors in a softmax model, as
// hyperparameters of its search. Other likelihoods find them inside each evaluation (groups.go).
//
// Level g of a factor has the effects u_gc ~ N(0, Σ) in each of K classes. Only differences between
// classes count, so the means of the u_gc sum to 0 over the classes. With Λ = Σ⁻¹, G levels, and V_gc
// the covariance of u_gc under q,
//
//	−2 ∂ELBO/∂θ_i = (K − 1) G tr Λ∂_iΣ − Σ_gc [u_gcᵀS_iu_gc + (1 − 1/K) tr S_iV_gc],  S_i = Λ∂_iΣΛ.
//
// The derivative of the precision times the mean is −S_iu_gc. The average information is as in
// Classes.slopes.

// Effect holds the rule by which the covariance Σ of one factor is learned. Its parameters are
// the Q standard deviations s_i of the effects, learned as log s_i, and unless Independent is set
// the partial correlations z_10, z_20, z_21, …, learned as log (1 + z)/(1 − z). The partial
// correlation of i and j given the effects before j determines row i of the Cholesky factor of the
// correlations, c_ij = z_ij √(1 − Σ_{k<j} c_ik²). z_10 is the correlation itself.
type Effect struct {
	Block       gauss.Block // without L
	Param       int         // place of the first parameter among all parameters
	Independent bool
	// Scale holds the scale of the half-normal prior of each standard deviation. The correlations
	// have the prior |R| = Π(1 − z²), which is LKJ(2). Nil means no prior.
	Scale []float64
}

// Params returns the number of parameters of e.
func (e *Effect) Params() int {
	if e.Independent {
		return e.Block.Q
	}
	return e.Block.Q * (e.Block.Q + 1) / 2
}

// factor returns the L with Σ = LLᵀ for the given parameters.
func (e *Effect) factor(params []float64) []float64 {
	q := e.Block.Q
	l, partial := make([]float64, q*q), params[q:]
	for i, s := range params[:q] {
		left := 1.0
		for j := range i {
			if !e.Independent {
				l[i*q+j] = partial[0] * math.Sqrt(left)
				left *= 1 - partial[0]*partial[0]
				partial = partial[1:]
			}
		}
		l[i*q+i] = math.Sqrt(left)
		floats.Scale(s, l[i*q:i*q+i+1])
	}
	return l
}

// Partials returns the partial correlations of the Cholesky factor c of a correlation matrix.
func (e *Effect) Partials(c []float64) (all []float64) {
	q := e.Block.Q
	for i := range q {
		left := 1.0
		for j := range i {
			z := 0.0
			if left > 0 {
				z = c[i*q+j] / math.Sqrt(left)
			}
			all = append(all, z)
			left -= c[i*q+j] * c[i*q+j]
		}
	}
	return all
}

// Effects makes the search learn the given covariances, as parameters of the space.
func (p *BlockPrior) Effects(all []Effect) { p.effects = all }

// setEffects gives the prior of lin the covariances of the given parameters.
func (p *BlockPrior) setEffects(lin *site.LinearModel, params []float64) error {
	lin.Prior = lin.Prior.WithBlocks()
	for i := range p.effects {
		e := &p.effects[i]
		own := params[e.Param : e.Param+e.Params()]
		b := e.Block
		b.L = e.factor(own)
		for _, s := range own[:b.Q] {
			if square := s * s; !(square > 0) || math.IsInf(square, 0) || math.IsInf(1/square, 0) {
				return fmt.Errorf("the standard deviation of the effects at weight %d is %v: %w",
					b.First, s, sentinel.ErrParam)
			}
		}
		lin.Prior.SetBlock(b)
	}
	return nil
}

// addPriors adds −log p(Σ) of all effects at the given parameters to F, and its derivatives to Grad
// and Info, unless these are nil.
func (p *BlockPrior) addPriors(x *search.Point, params []float64) {
	at := p.coordinates(len(params))
	for i := range p.effects {
		e := &p.effects[i]
		if e.Scale == nil {
			continue
		}
		for k, v := range params[e.Param : e.Param+e.Params()] {
			var f, slope, curve float64
			if k < e.Block.Q {
				f = 0.5 * v * v / (e.Scale[k] * e.Scale[k])
				slope, curve = 2*f, 4*f
			} else {
				f, slope, curve = -math.Log1p(-v*v), v, 0.5*(1-v*v)
			}
			x.F += f
			if c := at[e.Param+k]; c >= 0 && x.Grad != nil {
				x.Grad[c] += slope
				x.Info.SetSym(c, c, x.Info.At(c, c)+curve)
			}
		}
	}
}

// coordinates returns the coordinate of each of n parameters, or −1 if it is not learned.
func (p *BlockPrior) coordinates(n int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = -1
	}
	for i := range p.space.Coords {
		if c := &p.space.Coords[i]; c.Param < n {
			at[c.Param] = i
		}
	}
	return at
}

// effectStep is the step in θ of the differences of covariances.
const effectStep = 1e-5

// turn returns the derivative of L of e in coordinate i, Q×Q, or nil if that is 0.
func (p *BlockPrior) turn(e *Effect, theta []float64, i int) []float64 {
	at := p.space.Coords[i].Param
	if at < e.Param || at >= e.Param+e.Params() {
		return nil
	}
	t := slices.Clone(theta)
	var ends [2][]float64
	for k, h := range []float64{-effectStep, effectStep} {
		t[i] = theta[i] + h
		params, _, err := p.space.At(p.base.Terms, t)
		if err != nil {
			return nil
		}
		ends[k] = e.factor(params[e.Param : e.Param+e.Params()])
	}
	d := ends[1]
	floats.Sub(d, ends[0])
	floats.Scale(0.5/effectStep, d)
	return d
}

// An effectTurn is the derivative of the covariance of an effect in one coordinate. With A = L⁻¹∂L
// and M = A + Aᵀ, the derivative of the covariance is ∂Σ = LMLᵀ, so S = L⁻ᵀML⁻¹ and tr Λ∂Σ = tr M.
// The inverse of Σ, which may be nearly singular, would lose twice as many digits as the inverse of
// L.
type effectTurn struct {
	*Effect
	coord int
	trace float64   // tr M
	m     []float64 // M, Q×Q
	inv   []float64 // L⁻¹, Q×Q
}

// turns returns the derivatives of the covariances of all effects of lin, the model at θ.
func (p *BlockPrior) turns(lin *site.LinearModel, theta []float64) (all []effectTurn) {
	blocks := lin.Prior.Blocks()
	for k := range p.effects {
		e := &p.effects[k]
		at := slices.IndexFunc(blocks, func(b gauss.Block) bool { return b.First == e.Block.First })
		q := e.Block.Q
		l := mat.NewTriDense(q, mat.Lower, blocks[at].L)
		var lower mat.TriDense
		if lower.InverseTri(l) != nil { // the bounds of a search keep L from being singular
			continue
		}
		inv := mat.DenseCopyOf(&lower)
		for i := range p.space.Coords {
			d := p.turn(e, theta, i)
			if d == nil {
				continue
			}
			var a, m mat.Dense
			a.Mul(inv, mat.NewDense(q, q, d))
			m.Add(&a, a.T())
			all = append(all, effectTurn{Effect: e, coord: i, trace: mat.Trace(&m),
				m: m.RawMatrix().Data, inv: inv.RawMatrix().Data})
		}
	}
	return all
}

// pull adds S u of the effects u of one class to dst.
func (t *effectTurn) pull(dst, u []float64) {
	b, q := &t.Block, t.Block.Q
	var v, mv [gauss.MostEffects]float64
	for at := b.First; at < b.End(); at += q {
		for i := range q {
			v[i] = floats.Dot(t.inv[i*q:i*q+i+1], u[at:at+i+1])
		}
		for i := range q {
			mv[i] = floats.Dot(t.m[i*q:(i+1)*q], v[:q])
		}
		for i := range q {
			for j := range i + 1 {
				dst[at+j] += t.inv[i*q+j] * mv[i]
			}
		}
	}
}

// inner returns Σ_g tr S V_g for the covariance V of the weights of one class.
func (t *effectTurn) inner(v *mat.SymDense) (sum float64) {
	b, q := &t.Block, t.Block.Q
	inv, m := mat.NewDense(q, q, t.inv), mat.NewDense(q, q, t.m)
	var half, own mat.Dense
	for at := b.First; at < b.End(); at += q {
		half.Mul(inv, v.SliceSym(at, at+q))
		own.Mul(&half, inv.T())
		for i := range q {
			for j := range q {
				sum += m.At(i, j) * own.At(i, j)
			}
		}
	}
	return sum
}

// pullEffects adds S_iu of all effects in coordinate i to pull[i], for the weights of k classes.
func (p *BlockPrior) pullEffects(pull [][]float64, lin *site.LinearModel, theta, mean []float64,
	k int) {
	d := len(mean) / k
	for _, t := range p.turns(lin, theta) {
		for c := range k {
			t.pull(pull[t.coord][c*d:(c+1)*d], mean[c*d:(c+1)*d])
		}
	}
}

// effectSlopes adds the gradient and the information of the coordinates of effects to x, in which
// Classes.slopes has stored the others. The mean sums to 0 over the classes.
func (p *BlockPrior) effectSlopes(x *search.Point, lin *site.LinearModel, theta, mean []float64,
	cov *gauss.Contrasts) error {
	k, d := len(cov.Of), len(lin.Names)
	pull, err := p.Pull(theta, mean)
	if err != nil {
		return err
	}
	turns := p.turns(lin, theta)
	effect := make([]bool, len(pull))
	for _, t := range turns {
		effect[t.coord] = true
		x.Grad[t.coord] += 0.5 * float64((k-1)*t.Block.Levels) * t.trace
		b := &t.Block
		for c := range k {
			from := c * d
			x.Grad[t.coord] -= 0.5 * floats.Dot(pull[t.coord][from+b.First:from+b.End()],
				mean[from+b.First:from+b.End()])
		}
	}
	half, own := make([]float64, d), make([]float64, d)
	for c, class := range cov.Of {
		v := class.Sym()
		for _, t := range turns {
			x.Grad[t.coord] -= 0.5 * (1 - 1/float64(k)) * t.inner(v)
		}
		for i := range pull {
			pi := pull[i][c*d : (c+1)*d]
			class.Mul(half, pi)
			lin.Prior.Solve(own, pi)
			floats.Sub(own, half)
			for j := range pull {
				if j <= i && (effect[i] || effect[j]) {
					x.Info.SetSym(i, j, x.Info.At(i, j)+0.5*floats.Dot(own, pull[j][c*d:(c+1)*d]))
				}
			}
		}
	}
	for i := range pull {
		x.Info.SetSym(i, i, max(x.Info.At(i, i), 0))
	}
	return nil
}

// EffectSpread returns the uncertainty of the covariances at θ, by the first weight of their block.
// Run.Factor returns the rows of the factor of the covariance of θ. It returns nil if factor is nil.
func (p *BlockPrior) EffectSpread(theta []float64, factor [][]float64) (map[int]*site.FactorSpread,
	error) {
	params, _, err := p.space.At(p.base.Terms, theta)
	if err != nil || factor == nil {
		return nil, err
	}
	all, at := map[int]*site.FactorSpread{}, p.coordinates(len(params))
	for k := range p.effects {
		e := &p.effects[k]
		q := e.Block.Q
		f := &site.FactorSpread{SD: make([]float64, q), Atanh: make([]float64, q*q)}
		for j := range q {
			if c := at[e.Param+j]; c >= 0 {
				f.SD[j] = params[e.Param+j] * floats.Norm(factor[c], 2)
			}
		}
		for j := q * q * design.B2i(e.Independent); j < q*q; j++ {
			if j/q > j%q {
				f.Atanh[j] = p.atanhSpread(e, theta, factor, j/q, j%q)
			}
		}
		all[e.Block.First] = f
	}
	return all, nil
}

// atanhSpread returns the standard deviation of atanh ρ_jk of e.
func (p *BlockPrior) atanhSpread(e *Effect, theta []float64, factor [][]float64, j, k int) float64 {
	q := e.Block.Q
	sum := make([]float64, len(theta))
	for i, row := range factor {
		turn := p.turn(e, theta, i)
		if turn == nil {
			continue
		}
		params, _, err := p.space.At(p.base.Terms, theta)
		if err != nil {
			return math.NaN()
		}
		b := e.Block
		b.L = e.factor(params[e.Param : e.Param+e.Params()])
		s, d := b.Covariance(), make([]float64, q*q)
		for a := range q {
			for c := range q {
				d[a*q+c] = floats.Dot(turn[a*q:(a+1)*q], b.L[c*q:(c+1)*q]) +
					floats.Dot(b.L[a*q:(a+1)*q], turn[c*q:(c+1)*q])
			}
		}
		vj, vk, c := s[j*q+j], s[k*q+k], s[j*q+k]
		rho := c / math.Sqrt(vj*vk)
		slope := d[j*q+k]/math.Sqrt(vj*vk) - 0.5*rho*(d[j*q+j]/vj+d[k*q+k]/vk)
		floats.AddScaled(sum, slope/(1-rho*rho), row)
	}
	return floats.Norm(sum, 2)
}
