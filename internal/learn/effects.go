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
// The derivative of the precision times the mean is −S_iu_gc. Classes.slopes computes the average
// information.

// Effect holds the rule by which the covariance Σ of one factor is learned. Its parameters are
// t_i = ½ log(1 + s_i²/r_i²) for the Q standard deviations s_i of the effects, and unless Independent
// is set the partial correlations z_10, z_20, z_21, …. The partial correlation of i and j given the
// effects before j determines row i of the Cholesky factor of the correlations,
// c_ij = z_ij √(1 − Σ_{k<j} c_ik²). z_10 is the correlation itself.
//
// The unit r_i is about the standard deviation with which the rows of a level determine its effect.
// So t_i is like log s_i if s_i is far above r_i, and like the variance s_i² if s_i is far below
// r_i. The ELBO is smooth in s_i² at 0, and 0 is the best value if its slope there is negative. In
// log s_i, a search would approach 0 by a constant factor per step. In a Gaussian model with equal
// levels, 1 + s_i²/r_i² is the factor by which the variance of the mean of a level exceeds its noise.
type Effect struct {
	Block       gauss.Block // without L
	Param       int         // place of the first parameter among all parameters
	Independent bool
	Unit        []float64 // r_i
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

// LeastEffect is the smallest parameter of a standard deviation, which means 0.
var LeastEffect = EffectParam(site.ZeroEffect, 1)

// EffectParam returns the parameter of the standard deviation s with the given unit.
func EffectParam(s, unit float64) float64 { return 0.5 * math.Log1p(s/unit*(s/unit)) }

// sd returns the standard deviation i for its parameter t.
func (e *Effect) sd(i int, t float64) float64 {
	return e.Unit[i] * math.Sqrt(math.Expm1(2*t))
}

// sdSlope returns the derivative of log s_i by its parameter t.
func sdSlope(t float64) float64 { return -1 / math.Expm1(-2*t) }

// effectStep is the step of the differences of L in partial correlations.
const effectStep = 1e-5

// partials returns the partial correlations for the given parameters.
func (e *Effect) partials(params []float64) []float64 {
	z := slices.Clone(params[e.Block.Q:])
	if e.Scale != nil {
		for m, y := range z {
			of := e.pair(m)
			i, j := of[0], of[1]
			z[m] = math.Tanh(0.5 * y * near(params[i]) * near(params[j]))
		}
	}
	return z
}

// The parameter y of a partial correlation with a prior is at most mostOdds, and a partial
// correlation without a prior is at most mostPartial, because q needs Σ⁻¹.
const mostOdds, mostPartial = 30, 0.9993

// PartialParam returns the parameter of the partial correlation z of effects with the parameters ti
// and tj, and the bound of its absolute value.
func (e *Effect) PartialParam(z, ti, tj float64) (y, most float64) {
	if e.Scale == nil {
		return z, mostPartial
	}
	return 2 * math.Atanh(z) / (near(ti) * near(tj)), mostOdds
}

// pair returns the effects of partial correlation m.
func (e *Effect) pair(m int) [2]int {
	i := 1
	for ; m >= i; i++ {
		m -= i
	}
	return [2]int{i, m}
}

// near returns g = s/√(r² + s²) of the parameter t, and nearSlope its derivative.
func near(t float64) float64 { return math.Sqrt(-math.Expm1(-2 * t)) }

func nearSlope(t float64) float64 { return math.Exp(-2*t) / near(t) }

// factor returns the L with Σ = LLᵀ for the given parameters.
func (e *Effect) factor(params []float64) []float64 { return e.compose(params, e.partials(params)) }

// compose is factor for the given partial correlations.
func (e *Effect) compose(params, partial []float64) []float64 {
	q := e.Block.Q
	l := make([]float64, q*q)
	for i, t := range params[:q] {
		left := 1.0
		for j := range i {
			if !e.Independent {
				l[i*q+j] = partial[0] * math.Sqrt(left)
				left *= 1 - partial[0]*partial[0]
				partial = partial[1:]
			}
		}
		l[i*q+i] = math.Sqrt(left)
		floats.Scale(e.sd(i, t), l[i*q:i*q+i+1])
	}
	return l
}

// paramSlope is a derivative in a parameter of an Effect.
type paramSlope struct {
	param int
	slope float64
}

// partialSlopes returns the derivatives of partial correlation m in its own parameter and in the
// parameters of the standard deviations of its effects. They are divided by 1 − z² if the correlation z
// has a prior.
func (e *Effect) partialSlopes(params []float64, m int) [3]paramSlope {
	of, own := e.pair(m), e.Block.Q+m
	i, j := of[0], of[1]
	if e.Scale == nil {
		return [3]paramSlope{{own, 1}, {i, 0}, {j, 0}}
	}
	y, gi, gj := params[own], near(params[i]), near(params[j])
	return [3]paramSlope{{own, 0.5 * gi * gj}, {i, 0.5 * y * nearSlope(params[i]) * gj},
		{j, 0.5 * y * gi * nearSlope(params[j])}}
}

// slope returns the derivative of L in parameter k, Q×Q.
func (e *Effect) slope(params []float64, k int) []float64 {
	q := e.Block.Q
	d, z := make([]float64, q*q), e.partials(params)
	if k < q {
		l := e.compose(params, z)
		floats.AddScaled(d[k*q:(k+1)*q], sdSlope(params[k]), l[k*q:(k+1)*q])
	}
	for m, zm := range z {
		by := 0.0
		for _, x := range e.partialSlopes(params, m) {
			if x.param == k {
				by = x.slope
			}
		}
		if by == 0 {
			continue
		}
		if e.Scale != nil {
			by *= 1 - zm*zm
		}
		z[m] = zm + effectStep
		up := e.compose(params, z)
		z[m] = zm - effectStep
		down := e.compose(params, z)
		z[m] = zm
		floats.AddScaled(d, by/(2*effectStep), floats.SubTo(up, up, down))
	}
	return d
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
		for i, t := range own[:b.Q] {
			s := e.sd(i, t)
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
		own, q := params[e.Param:e.Param+e.Params()], e.Block.Q
		add := func(slope, curve float64, by ...paramSlope) {
			for _, u := range by {
				c := at[e.Param+u.param]
				if c < 0 || x.Grad == nil {
					continue
				}
				x.Grad[c] += slope * u.slope
				for _, v := range by {
					if d := at[e.Param+v.param]; d >= 0 && d <= c {
						x.Info.SetSym(c, d, x.Info.At(c, d)+curve*u.slope*v.slope)
					}
				}
			}
		}
		for k, t := range own[:q] {
			s := e.sd(k, t) / e.Scale[k]
			x.F += 0.5 * s * s
			slope := s * s * sdSlope(t)
			add(slope, 2*slope, paramSlope{k, 1})
		}
		for m, z := range e.partials(own) {
			x.F -= math.Log1p(-z * z)
			by := e.partialSlopes(own, m)
			add(2*z, 2*(1-z*z), by[:]...)
		}
	}
}

// settle replaces the derivatives of x in standard deviations that are 0 and in the correlations of
// their effects, for the softmax model of k classes. Let τ be the parameter of the standard deviation
// above 0 and y the parameter of a correlation. Then F = F_0 + τφ(y), so F hardly depends on y, and
// the slope in τ at the best y is φ − φ_y²/(2φ_yy). If only this slope is negative, it becomes the slope
// of x, and the next step also moves y to its best value. Otherwise the correlation keeps its value.
// The information of τ is at most the information of known effects.
//
// Without a prior, the best correlation would be ±1.
func (p *BlockPrior) settle(x *search.Point, params []float64, k int) {
	at := p.coordinates(len(params))
	for n := range p.effects {
		e := &p.effects[n]
		own := at[e.Param : e.Param+e.Params()]
		if e.Scale == nil || e.Independent || slices.Contains(own, -1) {
			continue
		}
		zero := func(i int) bool { return params[e.Param+i] == LeastEffect }
		q := e.Block.Q
		for i, t := range own[:q] {
			if !zero(i) {
				continue
			}
			most := 2 * float64((k-1)*e.Block.Levels)
			x.Info.SetSym(t, t, min(x.Info.At(t, t), most))
			best, pairs := x.Grad[t], []int(nil)
			for m, c := range own[q:] {
				of := e.pair(m)
				if of[0] != i && of[1] != i {
					continue
				}
				if pairs = append(pairs, c); !zero(of[0] + of[1] - i) {
					best -= 0.5 * x.Grad[c] * x.Grad[c] / (x.Info.At(c, c) * LeastEffect)
				}
			}
			move := x.Grad[t] > 0 && best < 0
			if move {
				x.Grad[t] = best
			}
			for _, c := range pairs {
				to, curve := 0.0, 1.0
				if move && x.Info.At(c, c) > 0 {
					to, curve = search.LeastCurve*x.Grad[c]/x.Info.At(c, c), 0
				}
				x.Grad[c] = to
				for d := range x.Grad {
					x.Info.SetSym(c, d, 0)
				}
				x.Info.SetSym(c, c, curve)
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

// EffectCoords returns the coordinates of the effects whose block begins at weight first.
func (p *BlockPrior) EffectCoords(first int) (all []int) {
	for k := range p.effects {
		e := &p.effects[k]
		if e.Block.First != first {
			continue
		}
		for i, c := range p.space.Coords {
			if c.Param >= e.Param && c.Param < e.Param+e.Params() {
				all = append(all, i)
			}
		}
	}
	return all
}

// turn returns the derivative of L of e in coordinate i, Q×Q, or nil if that is 0.
func (p *BlockPrior) turn(e *Effect, theta []float64, i int) []float64 {
	at := p.space.Coords[i].Param
	if at < e.Param || at >= e.Param+e.Params() {
		return nil
	}
	params, _, err := p.space.At(p.base.Terms, theta)
	if err != nil {
		return nil
	}
	return e.slope(params[e.Param:e.Param+e.Params()], at-e.Param)
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

// effectSlopes adds the gradient in the coordinates of effects to x. The means of the classes, whose
// weights have the given covariances, sum to 0, and pull is Pull at these means.
func (p *BlockPrior) effectSlopes(x *search.Point, lin *site.LinearModel, theta, mean []float64,
	pull [][]float64, classes []*gauss.Full) {
	k, d := len(classes), len(lin.Names)
	turns := p.turns(lin, theta)
	for _, t := range turns {
		x.Grad[t.coord] += 0.5 * float64((k-1)*t.Block.Levels) * t.trace
		b := &t.Block
		for c := range k {
			from := c * d
			x.Grad[t.coord] -= 0.5 * floats.Dot(pull[t.coord][from+b.First:from+b.End()],
				mean[from+b.First:from+b.End()])
		}
	}
	for _, class := range classes {
		v := class.Sym()
		for _, t := range turns {
			x.Grad[t.coord] -= 0.5 * (1 - 1/float64(k)) * t.inner(v)
		}
	}
}

// Guess returns an approximation to the ELBO, up to a constant, as a function of the L of all blocks. It
// is nil if the search s has no derivatives at its best θ. All other coordinates keep their values.
//
// Each parameter t of a standard deviation adds −α(δ + ½c(e^−2δ − 1)), where δ = t − t̂. The ELBO of a
// Gaussian model with equal levels has this form, with α = (K − 1)G. The slope and the curvature at t̂
// determine α and c. The other elements of the curvature add a quadratic form in tanh δ and in the
// parameters of the correlations.
func (p *BlockPrior) Guess(s *Run, blocks []gauss.Block) func(l [][]float64) float64 {
	theta := s.Best.Theta
	params, _, err := p.space.At(p.base.Terms, theta)
	if err != nil || s.Best.Info == nil {
		return nil
	}
	n, at := len(theta), p.coordinates(len(params))
	of := s.Search
	of.Cur = s.Best
	curve, prior := of.Curvature(of.Part), search.Point{Grad: make([]float64, n),
		Info: mat.NewSymDense(n, nil)}
	p.addPriors(&prior, params)
	slope := floats.SubTo(make([]float64, n), s.Best.Grad, prior.Grad)
	for i := range n {
		for j := range i + 1 {
			curve.SetSym(i, j, curve.At(i, j)-prior.Info.At(i, j))
		}
	}
	return func(l [][]float64) (sum float64) {
		move := make([]float64, n)
		for k := range p.effects {
			e := &p.effects[k]
			b := slices.IndexFunc(blocks, func(b gauss.Block) bool { return b.First == e.Block.First })
			for i, y := range e.paramsAt(l[b]) {
				c := at[e.Param+i]
				if c < 0 {
					continue
				}
				move[c] = y - theta[c]
				if i >= e.Block.Q {
					sum -= 0.5 * curve.At(c, c) * move[c] * move[c]
					continue
				}
				rate := max(slope[c]+0.5*curve.At(c, c), leastRate)
				sum -= rate*move[c] + 0.5*max(0, rate-slope[c])*math.Expm1(-2*move[c])
				move[c] = math.Tanh(move[c])
			}
		}
		for i, x := range move {
			for j, y := range move[:i] {
				sum -= curve.At(i, j) * x * y
			}
		}
		return sum
	}
}

// leastRate is the least α of Guess.
const leastRate = 0.1

// paramsAt returns the parameters of e at l, within the bounds of a search.
func (e *Effect) paramsAt(l []float64) (params []float64) {
	q := e.Block.Q
	c := slices.Clone(l)
	for i := range q {
		s := floats.Norm(l[i*q:i*q+i+1], 2)
		params = append(params, max(LeastEffect, EffectParam(s, e.Unit[i])))
		if s > 0 {
			floats.Scale(1/s, c[i*q:i*q+i+1])
		}
	}
	if e.Independent {
		return params
	}
	for m, z := range e.Partials(c) {
		of := e.pair(m)
		y, most := e.PartialParam(max(-1, min(1, z)), params[of[0]], params[of[1]])
		params = append(params, max(-most, min(most, y)))
	}
	return params
}

// flatEffect is the standard deviation of the parameter of a standard deviation above which its
// density is far from a Gaussian.
const flatEffect = 1

// EffectSpread returns the uncertainty of the covariances that s has learned. The key is the first
// weight of the block of a covariance. The curvature of the objective determines it. If a standard
// deviation is 0 or has hardly any curvature, or if the curvature is not known, the rise of the
// objective above the best value counts instead (site.HalfNormal). It is nil before a search has
// ended without a curvature.
func (p *BlockPrior) EffectSpread(s *Run) (map[int]*site.FactorSpread, error) {
	theta, factor := s.Best.Theta, s.Factor()
	params, _, err := p.space.At(p.base.Terms, theta)
	if err != nil || factor == nil && !s.Done {
		return nil, err
	}
	all, at := map[int]*site.FactorSpread{}, p.coordinates(len(params))
	for k := range p.effects {
		e := &p.effects[k]
		q := e.Block.Q
		f := &site.FactorSpread{SD: make([]float64, q), Atanh: make([]float64, q*q),
			Zero: make([]bool, q)}
		for j := range q {
			f.Zero[j] = params[e.Param+j] == LeastEffect
			c, t, sd := at[e.Param+j], params[e.Param+j], math.Inf(1)
			if c < 0 {
				continue
			}
			if factor != nil && !s.settled(c) {
				sd = floats.Norm(factor[c], 2)
			}
			if sd <= flatEffect || !s.Done {
				f.SD[j] = e.sdSpread(j, t, min(sd, mostFlat))
			} else {
				f.SD[j] = e.rise(s, c, j, t)
			}
		}
		for j := q * q * design.B2i(e.Independent); j < q*q; j++ {
			a, b := j/q, j%q
			if a <= b {
				continue
			}
			c := at[e.Param+q+a*(a-1)/2+b]
			if f.Atanh[j] = unknownAtanh; factor != nil && c >= 0 && !s.settled(c) {
				f.Atanh[j] = min(unknownAtanh, p.atanhSpread(e, theta, factor, a, b))
			}
		}
		all[e.Block.First] = f
	}
	return all, nil
}

// ClassFactors returns the factors of an integral over the covariances that s has learned, one for each
// block, given the result of EffectSpread.
func (p *BlockPrior) ClassFactors(blocks []gauss.Block,
	spread map[int]*site.FactorSpread) []site.ClassFactor {
	all := make([]site.ClassFactor, len(blocks))
	for i, b := range blocks {
		all[i] = site.ClassFactor{Unit: slices.Repeat([]float64{0}, b.Q)}
		for k := range p.effects {
			if e := &p.effects[k]; e.Block.First == b.First && spread[b.First] != nil {
				all[i] = site.ClassFactor{Learn: true, Independent: e.Independent, Scale: e.Scale,
					Unit: e.Unit, SD: spread[b.First].SD}
			}
		}
	}
	return all
}

// mostFlat bounds the standard deviation of a parameter of a standard deviation, and unknownAtanh means
// that a correlation may have any value.
const mostFlat, unknownAtanh = 10, 1e3

// rise returns the standard deviation of s_j above its best value, at the parameter t, by the rise of
// the objective of run in coordinate c.
func (e *Effect) rise(run *Run, c, j int, t float64) float64 {
	theta, from := slices.Clone(run.Best.Theta), run.Best.F
	s := e.sd(j, t)
	return site.HalfNormal(max(s, e.Unit[j]), func(more float64) float64 {
		if theta[c] = EffectParam(s+more, e.Unit[j]); theta[c] > run.Search.Hi[c] {
			return math.NaN()
		}
		return run.Value(theta) - from
	})
}

// spreadEnd is the normal quantile of the ends of intervals at 95%.
const spreadEnd = 1.96

// sdSpread returns the standard deviation of s_j, whose parameter t has the standard deviation sd. The
// ends of the interval of t give the interval of s_j. If its lower end is far below s_j, only the
// upper end counts.
func (e *Effect) sdSpread(j int, t, sd float64) float64 {
	s := e.sd(j, t)
	lo, hi := e.sd(j, max(LeastEffect, t-spreadEnd*sd)), e.sd(j, t+spreadEnd*sd)
	if part := math.Log(hi/lo) / (2 * spreadEnd); part < 1 {
		return part * s
	}
	return max(s, (hi-s)/spreadEnd)
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
