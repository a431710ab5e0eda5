package sparse

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// slopes computes the derivatives of the ELBO of a pass at N(m, V) in hyperparameters, with q of
// the latent values at Z fixed at N(Lm, LVLᵀ). With K(Z, Z) = LLᵀ, B = L⁻ᵀ(V − I)L⁻¹, β = L⁻ᵀm
// and G = −F diag(∂₂)Fᵀ,
//
//	A = B K(Z, X) diag(∂₂) + β∂₁ᵀ,
//	W = ½L⁻ᵀ[(V − I)G + G(V − I) + G + V − I + mmᵀ − F∂₁mᵀ − m(F∂₁)ᵀ]L⁻¹,
//	∂ELBO = Σ A∘∂K(Z, X) + Σ W∘∂K(Z, Z) + ½ Σ ∂₂∂k_nn.
//
// Terms that are represented whole leave no residual variance: V replaces their part of V − I in
// A, and only the rest has k_nn and G.
//
// For the logarithm of a standard deviation that scales some of the values, such as the scale of one
// term of a sum, the sums are
//
//	∂ELBO = Σ_i (V_ii − 1 + m_i²) + Σ ∂₂c_n
//
// over the values i that it scales. The last sum belongs to the rest of the kernel. This form avoids
// the rounding errors of the sums above, which are large if K(Z, Z) is nearly singular or if the
// responses are far from 0 next to their noise.
//
// At the best q, holding any other coordinates of q fixed gives the same derivatives. Near it,
// many rows determine q of the latent values for any scale, but not q of the weights: a few nats
// below the best, the derivatives with fixed latent values are near those at the best, and the
// others are not. If info is set, slopes also computes the average information ½UᵀWU (see
// learn.Latent), with the sparse covariance in place of K.
type slopes struct {
	space  *Space
	kernel Kernel // with its derivatives
	lik    [][2]Likelihood
	scaled []scaling
	info   bool
	excess float64 // κ of the overfit that the objective corrects; see Learning.overfit

	// If steps is set, one step per column, the derivatives are differences in the inducing
	// inputs instead.
	steps []float64

	p     *Pass
	terms Division // division of kernel
	q     *gauss.Gaussian
	over  []float64 // U²V of the overfit, if there is one
	v     []float64 // V − I, and V for terms that are represented whole
	b     []float64
	beta  []float64
	chain []float64 // ∂/∂θ of each parameter of the kernel, per unit of Kernel.Pull
	lanes [lanes]slopeLane
}

// slopeLane holds the sums of a lane.
type slopeLane struct {
	grad      []float64 // in the parameters of the kernel, of ΣA∘∂K + ½Σ∂₂∂k
	left      float64   // Σ∂₂c
	slope     []float64 // derivative of ΣE in the free parameters of the likelihood, by position
	curve     []float64 // half of the second derivative of −ΣE
	w         []float64 // A
	pull      []float64 // derivatives of a row or inducing input
	u, gu     []float64 // n×free: (∂K(X, Z))β, or the shift of a site, and γ times that
	uu, gg, t []float64 // Σγuuᵀ, Gγu, and (∂K(Z, X))∂₁
	z         []float64 // M×D, of ΣA∘∂K in the inducing inputs
	self      []float64
	own, part []float64 // sums of a tile
	up, down  term.Marginals
	terms     term.Terms
}

// newSlopes returns the derivatives of p at q and θ, for the kernel with derivatives.
func newSlopes(p *Pass, space *Space, k Kernel, theta []float64, info bool) (*slopes, error) {
	s := &slopes{space: space, kernel: k, info: info, p: p}
	s.lik = make([][2]Likelihood, len(space.Coords))
	for i, c := range space.Coords {
		if !c.Likelihood {
			continue
		}
		for side, h := range [2]float64{learn.LikelihoodStep, -learn.LikelihoodStep} {
			t := append([]float64(nil), theta...)
			t[i] += h
			_, _, lik, err := space.At(t)
			if err != nil {
				return nil, err
			}
			s.lik[i][side] = lik
		}
	}
	s.chain = make([]float64, k.NumParams())
	for i := range s.chain {
		s.chain[i] = 1
	}
	k.Chain(s.chain)
	for _, c := range space.Amplitudes {
		if v, ok := scalingOf(p.Z, space, theta, c); ok {
			s.scaled = append(s.scaled, v)
		}
	}
	return s, nil
}

// A scaling lists the inducing values that are proportional to a standard deviation.
type scaling struct {
	coord  int   // the logarithm of the standard deviation
	values []int // numbers of these values
	rest   bool  // whether they include the values of the rest of the kernel
}

// scalingOf returns the scaling of u by coordinate c at θ. It returns false if the standard
// deviation scales no value, or changes a value in any other way.
func scalingOf(u *Inducing, space *Space, theta []float64, c int) (v scaling, ok bool) {
	v.coord = c
	at := slices.Clone(theta)
	at[c] += math.Ln2
	k, _, _, err := space.At(at)
	if err != nil {
		return v, false
	}
	whole := u.Again(k)
	if whole.Wholes() != u.Wholes() || (whole.Rest == nil) != (u.Rest == nil) {
		return v, false
	}
	ok = true
	u.parts(func(p part) {
		to, rest := whole.Rest, p.number == len(u.Whole)
		if !rest {
			to = whole.Whole[p.number].Kernel
		}
		for i := p.lo; i < p.hi; i++ {
			x := u.X.RawRowView(i)
			switch before, after := p.Kernel.Cov(x, x), to.Cov(x, x); {
			case after == before:
			case math.Abs(after-4*before) <= scaleTol*after && !(rest && to.Noisy()):
				v.values = append(v.values, i)
				v.rest = rest
			default:
				ok = false
			}
		}
		ok = ok && !(v.rest && len(v.values) < p.hi-p.lo)
	})
	return v, ok && len(v.values) > 0
}

// forget removes u of the coordinate of v from the sums of the average information. shift then stores
// 2m_i in s for the values i that v scales, so that U = 2F_iᵀm_i. The sums of other coordinates have
// U = 2F_iᵀ(F∂₁)_i instead, which is equal at the best q only: a gap of ½gᵀVg with g = F∂₁ − m allows
// a large g if many rows determine a value, such as a constant, while the error of m is small.
func (v *scaling) forget(a *slopeLane, nf int) {
	for f := range nf {
		a.uu[v.coord*nf+f], a.uu[f*nf+v.coord] = 0, 0
	}
	for i := v.coord; i < len(a.gg); i += nf {
		a.gg[i] = 0
	}
}

// shift completes forget. dst is M×nf, and mean is m.
func (v *scaling) shift(dst, mean []float64, nf int) {
	for i := v.coord; i < len(dst); i += nf {
		dst[i] = 0
	}
	for _, i := range v.values {
		dst[i*nf+v.coord] = 2 * mean[i]
	}
}

// scaleTol is a relative tolerance for variances that are equal except for rounding.
const scaleTol = 1e-9

// slope returns the derivative of −ELBO in the coordinate of v, where left is Σ∂₂c.
func (v *scaling) slope(s *slopes, left float64) (sum float64) {
	m := s.p.Z.Rank()
	for _, i := range v.values {
		sum += 1 - s.q.Mean[i]*s.q.Mean[i] - s.q.Inv[i*m+i]
		if s.excess > 0 {
			sum += 4 * s.excess * s.over[i*m+i]
		}
	}
	if v.rest {
		sum -= left
	}
	return sum
}

// at prepares for a pass at q.
func (s *slopes) at(q *gauss.Gaussian) {
	s.q, s.terms = q, s.p.Z.Again(s.kernel)
	m, l := s.p.Z.Rank(), dense.LowerTriangle(s.p.Z.L, s.p.Z.Rank())
	q.Halt = s.p.Workers.Halt
	q.Invert()
	s.v = append(s.v[:0], q.Inv...)
	dense.FillUpper(s.v, m)
	for j := s.p.Z.Wholes(); j < m; j++ {
		s.v[j*m+j]--
	}
	s.b = append(s.b[:0], s.v...)
	s.overfit()
	b := dense.General(s.b, m, m)
	dense.Trsm(blas.Left, blas.Trans, 1, l, b)
	dense.Trsm(blas.Right, blas.NoTrans, 1, l, b)
	s.beta = append(s.beta[:0], q.Mean...)
	dense.Trsv(blas.Trans, l, dense.Vector(s.beta))
	np, nf := len(s.chain), len(s.lik)
	for i := range s.lanes {
		a := &s.lanes[i]
		for _, v := range []struct {
			x *[]float64
			n int
		}{{&a.grad, np}, {&a.slope, nf}, {&a.curve, nf}, {&a.uu, nf * nf}, {&a.gg, m * nf},
			{&a.t, m * np}, {&a.z, m * len(s.steps)}} {
			*v.x = dense.Resize(*v.x, v.n)
			clear(*v.x)
		}
		a.self, a.left = dense.Resize(a.self, np), 0
	}
}

// overfit adds the derivatives of −κ‖U‖², U = I − V, to B, at the curvatures t of q. With them
// V = (I + F diag(t)Fᵀ)⁻¹, so that
//
//	∂‖U‖² = 4tr(UV²∂F diag(t)Fᵀ).
func (s *slopes) overfit() {
	if s.excess == 0 {
		return
	}
	m := s.p.Z.Rank()
	v, u, uv := make([]float64, m*m), make([]float64, m*m), make([]float64, m*m)
	copy(v, s.q.Inv)
	dense.FillUpper(v, m)
	floats.AddScaled(u, -1, v)
	for i := range m {
		u[i*m+i]++
	}
	dense.MulSquare(uv, u, v, m)
	s.over = dense.Resize(s.over, m*m)
	dense.MulSquare(s.over, uv, v, m) // UV²
	floats.AddScaled(s.b, 4*s.excess, s.over)
	dense.MulSquare(s.over, uv, u, m)
}

// add adds the current block of l, which is lane i.
func (s *slopes) add(i int, l *lane) {
	a, m, n := &s.lanes[i], s.p.Z.Rank(), l.rows
	q := &l.site
	a.w = dense.Resize(a.w, m*n)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(s.b, m, m), dense.General(l.k, m, n),
		0, dense.General(a.w, m, n))
	for j := range m {
		b, row := s.beta[j], a.w[j*n:(j+1)*n]
		for r, d := range q.D1 {
			row[r] = b*d - row[r]*q.Tg[r]
		}
	}
	if d := len(s.steps); d > 0 {
		s.p.tiles(l, func(t *gram.Tile, p part, lo int) {
			if lo >= s.p.Z.Wholes() {
				s.terms.Rest.PullInputs(a.z[lo*d:(lo+t.X.Rows)*d], a.w[lo*n:][:t.Len()], t, s.steps)
			}
		})
		return
	}
	a.left -= floats.Dot(q.Tg, l.c)
	s.p.tiles(l, func(t *gram.Tile, p part, lo int) { s.pull(p, a.grad, a.w[lo*n:][:t.Len()], t) })
	if s.terms.Rest != nil {
		x := l.block(s.p.Rows.Cols)
		for r := range n {
			s.terms.Rest.GradSelf(a.self, gram.Row(x, r))
			floats.AddScaled(a.grad, -0.5*q.Tg[r], a.self)
		}
	}
	nf := len(s.lik)
	a.u, a.gu = dense.Resize(a.u, n*nf), dense.Resize(a.gu, n*nf)
	clear(a.u)
	a.terms = l.terms
	if l.plain {
		a.terms.Offset, a.terms.Weight = nil, nil
	}
	for f, lik := range s.lik {
		if lik[0] != nil {
			s.likelihood(a, l, f)
		}
	}
	if s.info {
		s.informative(a, l)
	}
}

// of returns the kernel of part p with its derivatives.
func (s *slopes) of(p part) Kernel {
	if p.number < len(s.terms.Whole) {
		return s.terms.Whole[p.number].Kernel
	}
	return s.terms.Rest
}

// pull adds Σ w∘∂k over the pairs of t, of the kernel of p, to dst.
func (s *slopes) pull(p part, dst, w []float64, t *gram.Tile) {
	k := s.of(p)
	k.Pull(dst[p.param:p.param+k.NumParams()], w, t)
}

// pullRows is pull of each row of the tile, into a row of dst.
func (s *slopes) pullRows(a *slopeLane, p part, dst, w []float64, t *gram.Tile) {
	k, np := s.of(p), len(s.chain)
	own := k.NumParams()
	if own == np {
		k.PullRows(dst, w, t)
		return
	}
	a.own = dense.Resize(a.own, t.X.Rows*own)
	clear(a.own)
	k.PullRows(a.own, w, t)
	for r := range t.X.Rows {
		floats.Add(dst[r*np+p.param:r*np+p.param+own], a.own[r*own:(r+1)*own])
	}
}

// likelihood adds the derivatives in free parameter f, of the likelihood.
func (s *slopes) likelihood(a *slopeLane, l *lane, f int) {
	q, nf := &l.site, len(s.lik)
	for side, at := range [2]*term.Marginals{&a.up, &a.down} {
		at.Resize(l.rows)
		copy(at.M, q.M)
		copy(at.V, q.V)
		a.terms.Lik = s.lik[f][side]
		if a.terms.Expect(at, nil, term.Crew{Workers: 1, Halt: s.p.Workers.Halt}) != nil {
			a.slope[f] = math.NaN()
			return
		}
		s.p.repeat(at)
	}
	exact := gaussian(s.lik[f][0])
	for r := range l.rows {
		a.slope[f] += (a.up.E[r] - a.down.E[r]) / (2 * learn.LikelihoodStep)
		if !exact {
			bend := a.up.E[r] - 2*q.E[r] + a.down.E[r]
			a.curve[f] -= 0.5 * bend / (learn.LikelihoodStep * learn.LikelihoodStep)
		}
		if q.Gamma[r] > 0 {
			a.u[r*nf+f] = -(a.up.D1[r] - a.down.D1[r]) / (2 * learn.LikelihoodStep * q.Gamma[r])
		}
	}
}

// informative adds what the average information needs.
func (s *slopes) informative(a *slopeLane, l *lane) {
	m, n, np, nf := s.p.Z.Rank(), l.rows, len(s.chain), len(s.lik)
	q := &l.site
	s.p.tiles(l, func(t *gram.Tile, p part, lo int) {
		a.part = dense.Resize(a.part, t.Len())
		w := a.part
		for r := range t.X.Rows {
			copy(w[r*n:(r+1)*n], q.D1)
		}
		s.pullRows(a, p, a.t[lo*np:(lo+t.X.Rows)*np], w, t)
		t.X, t.Y = t.Y, t.X
		for r := range t.X.Rows {
			copy(w[r*t.Y.Rows:(r+1)*t.Y.Rows], s.beta[lo:])
		}
		a.pull = dense.Resize(a.pull, t.X.Rows*np)
		clear(a.pull)
		s.pullRows(a, p, a.pull, w, t)
		for r := range t.X.Rows {
			for f, at := range s.space.Coords {
				if !at.Likelihood {
					a.u[r*nf+f] += a.pull[r*np+at.Param] * s.chain[at.Param]
				}
			}
		}
	})
	for r, g := range q.Gamma {
		for f := range nf {
			a.gu[r*nf+f] = g * a.u[r*nf+f]
		}
	}
	gu := dense.General(a.gu, n, nf)
	dense.Gemm(blas.Trans, blas.NoTrans, 1, dense.General(a.u, n, nf), gu,
		1, dense.General(a.uu, nf, nf))
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(l.g, m, n), gu,
		1, dense.General(a.gg, m, nf))
}

// inducingTiles calls f for tiles of the pairs of inducing values of a part.
func (s *slopes) inducingTiles(f func(t *gram.Tile, p part, lo, hi int)) {
	z, t := s.p.Z.X.RawMatrix(), gram.Take()
	defer t.Free()
	t.Centre = s.p.centre
	s.p.Z.parts(func(p part) {
		for i := p.lo; i < p.hi; i += gram.Rows {
			for j := p.lo; j < p.hi; j += gram.Cols {
				t.X = gram.Slice(z, i, min(i+gram.Rows, p.hi))
				t.Y = gram.Slice(z, j, min(j+gram.Cols, p.hi))
				f(t, p, i, j)
			}
		}
	})
}

// inner returns both triangles of F diag(−∂₂)Fᵀ, and W, for the pass that returned x.
func (s *slopes) inner(x *Look) (outer, w []float64) {
	m := s.p.Z.Rank()
	l := dense.LowerTriangle(s.p.Z.L, m)
	outer = append([]float64(nil), x.gram...)
	dense.FillUpper(outer, m)
	w, vg := make([]float64, m*m), make([]float64, m*m)
	dense.MulSquare(vg, s.v, outer, m)
	mean, first := s.q.Mean, s.p.Z.Wholes()
	for i := range first {
		for j := range first {
			w[i*m+j] = 0.5 * (vg[i*m+j] + vg[j*m+i] + s.v[i*m+j] +
				mean[i]*mean[j] - x.slope[i]*mean[j] - mean[i]*x.slope[j])
		}
		w[i*m+i] -= 0.5
	}
	for i := first; i < m; i++ {
		for j := first; j < m; j++ {
			w[i*m+j] = 0.5 * (vg[i*m+j] + vg[j*m+i] + outer[i*m+j] + s.v[i*m+j] +
				mean[i]*mean[j] - x.slope[i]*mean[j] - mean[i]*x.slope[j])
		}
	}
	if s.excess > 0 {
		floats.AddScaled(w, 2*s.excess, s.over)
	}
	dense.Trsm(blas.Left, blas.Trans, 1, l, dense.General(w, m, m))
	dense.Trsm(blas.Right, blas.NoTrans, 1, l, dense.General(w, m, m))
	return outer, w
}

// moved returns the gradient of the ELBO in the inducing inputs, M×D, from the sums of the pass
// that returned x.
func (s *slopes) moved(x *Look) []float64 {
	m, d, a := s.p.Z.Rank(), len(s.steps), &s.lanes[0]
	sum := a.z
	for i := 1; i < len(s.lanes); i++ {
		floats.Add(sum, s.lanes[i].z)
	}
	_, w := s.inner(x)
	s.inducingTiles(func(t *gram.Tile, p part, lo, hi int) {
		if lo < s.p.Z.Wholes() {
			return
		}
		a.part = dense.Resize(a.part, t.Len())
		part := a.part
		for r := range t.X.Rows {
			for c := range t.Y.Rows {
				part[r*t.Y.Rows+c] = 2 * w[(lo+r)*m+hi+c]
			}
		}
		s.terms.Rest.PullInputs(sum[lo*d:(lo+t.X.Rows)*d], part, t, s.steps)
	})
	return sum
}

// point returns the gradient of −ELBO and, if it is wanted, the average information, from the sums
// of a pass that found x.
func (s *slopes) point(x *Look) (grad []float64, info *mat.SymDense) {
	m, np, nf := s.p.Z.Rank(), len(s.chain), len(s.lik)
	a := &s.lanes[0]
	for i := 1; i < len(s.lanes); i++ {
		o := &s.lanes[i]
		a.left += o.left
		floats.Add(a.grad, o.grad)
		floats.Add(a.slope, o.slope)
		floats.Add(a.curve, o.curve)
		floats.Add(a.uu, o.uu)
		floats.Add(a.gg, o.gg)
		floats.Add(a.t, o.t)
	}
	outer, w := s.inner(x)
	l, g := dense.LowerTriangle(s.p.Z.L, m), dense.General(outer, m, m)
	zz := make([]float64, m*np) // ∂K(Z, Z)β
	s.inducingTiles(func(t *gram.Tile, p part, lo, hi int) {
		a.part = dense.Resize(a.part, t.Len())
		part := a.part
		for r := range t.X.Rows {
			copy(part[r*t.Y.Rows:(r+1)*t.Y.Rows], w[(lo+r)*m+hi:])
		}
		s.pull(p, a.grad, part, t)
		if !s.info {
			return
		}
		for r := range t.X.Rows {
			copy(part[r*t.Y.Rows:(r+1)*t.Y.Rows], s.beta[hi:])
		}
		s.pullRows(a, p, zz[lo*np:(lo+t.X.Rows)*np], part, t)
	})
	grad = make([]float64, nf)
	for f, at := range s.space.Coords {
		if grad[f] = -a.slope[f]; !at.Likelihood {
			grad[f] = -a.grad[at.Param] * s.chain[at.Param]
		}
	}
	for _, v := range s.scaled {
		grad[v.coord] = v.slope(s, a.left)
	}
	if !s.info {
		return grad, nil
	}
	// U = u + Fᵀs with s = L⁻¹(∂K(Z, X)∂₁ − ∂K(Z, Z)β), and Γ − ΓFᵀP₊⁻¹FΓ for W.
	c := make([]float64, m*nf)
	for f, at := range s.space.Coords {
		if at.Likelihood {
			continue
		}
		for j := range m {
			c[j*nf+f] = (a.t[j*np+at.Param] - zz[j*np+at.Param]) * s.chain[at.Param]
		}
	}
	f := make([]float64, m*nf) // Fγu
	cs, fu := dense.General(c, m, nf), dense.General(f, m, nf)
	for _, v := range s.scaled {
		v.forget(a, nf)
	}
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(s.p.r, m, m),
		dense.General(a.gg, m, nf), 0, fu)
	dense.Trsm(blas.Left, blas.NoTrans, 1, l, cs)
	for _, v := range s.scaled {
		v.shift(c, s.q.Mean, nf)
	}
	uu := dense.General(a.uu, nf, nf)
	dense.Gemm(blas.Trans, blas.NoTrans, 1, fu, cs, 1, uu)
	dense.Gemm(blas.Trans, blas.NoTrans, 1, cs, fu, 1, uu)
	gc := make([]float64, m*nf)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, g, cs, 0, dense.General(gc, m, nf))
	dense.Gemm(blas.Trans, blas.NoTrans, 1, cs, dense.General(gc, m, nf), 1, uu)
	floats.Add(gc, f)
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(x.Next.L, m), dense.General(gc, m,
		nf))
	h := dense.General(gc, m, nf)
	dense.Gemm(blas.Trans, blas.NoTrans, -1, h, h, 1, uu)
	info = mat.NewSymDense(nf, nil)
	for i := range nf {
		for j := range i + 1 {
			info.SetSym(i, j, 0.25*(a.uu[i*nf+j]+a.uu[j*nf+i]))
		}
		info.SetSym(i, i, max(info.At(i, i), a.curve[i], 0))
	}
	return grad, info
}
