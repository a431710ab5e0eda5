package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// sparseSlopes are the derivatives of the ELBO of a pass at N(m, V) in hyper-parameters, held being
// q of the latent values at Z, N(Lm, LVLᵀ): with K(Z, Z) = LLᵀ, B = L⁻ᵀ(V − I)L⁻¹, β = L⁻ᵀm and G =
// −F diag(∂₂)Fᵀ,
//
//	A = B K(Z, X) diag(∂₂) + β∂₁ᵀ,   W = ½L⁻ᵀ[(V − I)G + G(V − I) + G + V − I + mmᵀ − F∂₁mᵀ − m(F∂₁)ᵀ]L⁻¹,
//	∂ELBO = Σ A∘∂K(Z, X) + Σ W∘∂K(Z, Z) + ½ Σ ∂₂∂k_nn.
//
// Terms that are seen whole leave no residual variance: V takes the place of their part of V − I in
// A, and only the rest has a k_nn and a G.
//
// At the best q they are those of any other that is held. Near it rows that are many determine q of
// latent values, whatever the scale is, and not that of weights: a few nats below the best the
// former are near those at the best, and the latter are not. Where info is set they come with the
// average information ½UᵀWU that GP.Learner tells of, with the sparse covariance in the place of K.
type sparseSlopes struct {
	space  *learnSpace
	kernel Kernel // with its derivatives
	free   []int  // coordinates that are learned
	lik    [][2]Likelihood
	info   bool

	// With steps, one a column, for differences, the derivatives are those in the inducing inputs
	// instead.
	steps []float64

	p     *sparsePass
	terms division // of kernel
	q     *gauss.State
	v     []float64 // V − I, and V of what is seen whole
	b     []float64
	beta  []float64
	chain []float64 // of each parameter of the kernel: ∂/∂θ for one as Kernel.Grad has them
	lanes [sparseLanes]slopeLane
}

// slopeLane are the sums of a lane.
type slopeLane struct {
	grad      []float64 // in the parameters of the kernel, of ΣA∘∂K + ½Σ∂₂∂k
	slope     []float64 // of ΣE, in those of the likelihood, by place among the free ones
	curve     []float64 // half of the second derivative of −ΣE
	w         []float64 // A
	pull      []float64 // derivatives of a row or inducing input
	u, gu     []float64 // n×free: (∂K(X, Z))β, or the shift of a site, and γ times that
	uu, gg, t []float64 // Σγuuᵀ, Gγu, and (∂K(Z, X))∂₁
	z         []float64 // M×D, of ΣA∘∂K in the inducing inputs
	self      []float64
	up, down  term.State
	terms     term.Terms
}

// newSparseSlopes returns those of p at q and θ, of the kernel with derivatives.
func newSparseSlopes(p *sparsePass, space *learnSpace, k Kernel, theta []float64, info bool) (*sparseSlopes, error) {
	s := &sparseSlopes{space: space, kernel: k, free: space.free, info: info, p: p}
	s.lik = make([][2]Likelihood, len(s.free))
	for i, at := range s.free {
		if !space.coords[at].Likelihood {
			continue
		}
		for side, h := range [2]float64{learn.LikelihoodStep, -learn.LikelihoodStep} {
			t := append([]float64(nil), theta...)
			t[i] += h
			_, _, lik, err := space.at(t)
			if err != nil {
				return nil, err
			}
			s.lik[i][side] = lik
		}
	}
	s.chain = make([]float64, numParams(k))
	for i := range s.chain {
		s.chain[i] = 1
	}
	space.chain(s.chain, k)
	return s, nil
}

// at prepares for a pass at q.
func (s *sparseSlopes) at(q *gauss.State) {
	s.q, s.terms = q, s.p.z.again(s.kernel)
	m, l := s.p.z.rank(), dense.LowerTriangle(s.p.z.l, s.p.z.rank())
	q.Halt = s.p.workers.Halt
	q.Invert()
	s.v = append(s.v[:0], q.Inv...)
	dense.FillUpper(s.v, m)
	for j := s.p.z.wholes(); j < m; j++ {
		s.v[j*m+j]--
	}
	s.b = append(s.b[:0], s.v...)
	b := dense.General(s.b, m, m)
	dense.Trsm(blas.Left, blas.Trans, 1, l, b)
	dense.Trsm(blas.Right, blas.NoTrans, 1, l, b)
	s.beta = append(s.beta[:0], q.Mean...)
	dense.Trsv(blas.Trans, l, dense.Vector(s.beta))
	np, nf := len(s.chain), len(s.free)
	for i := range s.lanes {
		a := &s.lanes[i]
		for _, v := range []struct {
			x *[]float64
			n int
		}{{&a.grad, np}, {&a.slope, nf}, {&a.curve, nf}, {&a.uu, nf * nf}, {&a.gg, m * nf}, {&a.t, m * np}, {&a.z, m * len(s.steps)}} {
			*v.x = dense.Resize(*v.x, v.n)
			clear(*v.x)
		}
		a.self = dense.Resize(a.self, np)
	}
}

// add adds the block of lane i, at which l is.
func (s *sparseSlopes) add(i int, l *sparseLane) {
	a, m, n := &s.lanes[i], s.p.z.rank(), l.rows
	q := &l.site
	a.w = dense.Resize(a.w, m*n)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(s.b, m, m), dense.General(l.k, m, n), 0, dense.General(a.w, m, n))
	for j := range m {
		b, row := s.beta[j], a.w[j*n:(j+1)*n]
		for r, d := range q.D1 {
			row[r] = b*d - row[r]*q.Tg[r]
		}
	}
	if d := len(s.steps); d > 0 {
		s.p.tiles(l, func(t *kernelTile, p inducingPart, lo int) {
			if lo >= s.p.z.wholes() {
				kernelPullInputs(s.terms.rest, a.z[lo*d:(lo+t.x.Rows)*d], a.w[lo*n:][:t.len()], t, s.steps)
			}
		})
		return
	}
	s.p.tiles(l, func(t *kernelTile, p inducingPart, lo int) { s.pull(p, a.grad, a.w[lo*n:][:t.len()], t) })
	if s.terms.rest != nil {
		x := l.block(s.p.rows.cols)
		for r := range n {
			row := kernelRow(x, r)
			kernelGradSelf(s.terms.rest, a.self, row, row)
			floats.AddScaled(a.grad, -0.5*q.Tg[r], a.self)
		}
	}
	nf := len(s.free)
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

// of returns the kernel of p, with derivatives.
func (s *sparseSlopes) of(p inducingPart) Kernel {
	if p.number < len(s.terms.whole) {
		return s.terms.whole[p.number].kernel
	}
	return s.terms.rest
}

// pull is kernelPull of the kernel of p.
func (s *sparseSlopes) pull(p inducingPart, dst, w []float64, t *kernelTile) {
	k := s.of(p)
	kernelPull(k, dst[p.param:p.param+numParams(k)], w, t)
}

// pullRows is kernelPullRows of the kernel of p.
func (s *sparseSlopes) pullRows(p inducingPart, dst, w []float64, t *kernelTile) {
	k, np := s.of(p), len(s.chain)
	own := numParams(k)
	if own == np {
		kernelPullRows(k, dst, w, t)
		return
	}
	some := t.get(t.x.Rows * own)
	clear(some)
	kernelPullRows(k, some, w, t)
	for r := range t.x.Rows {
		floats.Add(dst[r*np+p.param:r*np+p.param+own], some[r*own:(r+1)*own])
	}
}

// likelihood adds the derivatives in free parameter f, of the likelihood.
func (s *sparseSlopes) likelihood(a *slopeLane, l *sparseLane, f int) {
	q, nf := &l.site, len(s.free)
	for side, at := range [2]*term.State{&a.up, &a.down} {
		at.Resize(l.rows)
		copy(at.M, q.M)
		copy(at.V, q.V)
		a.terms.Lik = viewOf(s.lik[f][side])
		if a.terms.Expect(at, nil, term.Crew{Workers: 1, Halt: s.p.workers.Halt}) != nil {
			a.slope[f] = math.NaN()
			return
		}
	}
	_, gaussian := likOf(&a.terms).(GaussianNoise)
	for r := range l.rows {
		a.slope[f] += (a.up.E[r] - a.down.E[r]) / (2 * learn.LikelihoodStep)
		if !gaussian {
			a.curve[f] -= 0.5 * (a.up.E[r] - 2*q.E[r] + a.down.E[r]) / (learn.LikelihoodStep * learn.LikelihoodStep)
		}
		if q.Gamma[r] > 0 {
			a.u[r*nf+f] = -(a.up.D1[r] - a.down.D1[r]) / (2 * learn.LikelihoodStep * q.Gamma[r])
		}
	}
}

// informative adds what the average information needs.
func (s *sparseSlopes) informative(a *slopeLane, l *sparseLane) {
	m, n, np, nf := s.p.z.rank(), l.rows, len(s.chain), len(s.free)
	q := &l.site
	s.p.tiles(l, func(t *kernelTile, p inducingPart, lo int) {
		w := t.get(t.len())
		for r := range t.x.Rows {
			copy(w[r*n:(r+1)*n], q.D1)
		}
		s.pullRows(p, a.t[lo*np:(lo+t.x.Rows)*np], w, t)
		t.x, t.y = t.y, t.x
		for r := range t.x.Rows {
			copy(w[r*t.y.Rows:(r+1)*t.y.Rows], s.beta[lo:])
		}
		a.pull = dense.Resize(a.pull, t.x.Rows*np)
		clear(a.pull)
		s.pullRows(p, a.pull, w, t)
		for r := range t.x.Rows {
			for f, at := range s.free {
				if !s.space.coords[at].Likelihood {
					a.u[r*nf+f] += a.pull[r*np+at] * s.chain[at]
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
	dense.Gemm(blas.Trans, blas.NoTrans, 1, dense.General(a.u, n, nf), gu, 1, dense.General(a.uu, nf, nf))
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(l.g, m, n), gu, 1, dense.General(a.gg, m, nf))
}

// inducingTiles calls f for tiles of the pairs of inducing values of a part.
func (s *sparseSlopes) inducingTiles(f func(t *kernelTile, p inducingPart, lo, hi int)) {
	z := s.p.z.x.RawMatrix()
	t := kernelTiles.Get().(*kernelTile)
	t.centre = s.p.centre
	s.p.z.parts(func(p inducingPart) {
		for i := p.lo; i < p.hi; i += kernelRows {
			for j := p.lo; j < p.hi; j += kernelCols {
				t.x, t.y = kernelSlice(z, i, min(i+kernelRows, p.hi)), kernelSlice(z, j, min(j+kernelCols, p.hi))
				f(t, p, i, j)
				t.top = 0
			}
		}
	})
	t.x, t.y, t.centre = blas64.General{}, blas64.General{}, nil
	t.free()
}

// inner returns F diag(−∂₂)Fᵀ, both triangles of it, and W of a pass that found x.
func (s *sparseSlopes) inner(x *sparseLook) (gram, w []float64) {
	m := s.p.z.rank()
	l := dense.LowerTriangle(s.p.z.l, m)
	gram = append([]float64(nil), x.gram...)
	dense.FillUpper(gram, m)
	w, vg := make([]float64, m*m), make([]float64, m*m)
	dense.MulSquare(vg, s.v, gram, m)
	mean, first := s.q.Mean, s.p.z.wholes()
	for i := range first {
		for j := range first {
			w[i*m+j] = 0.5 * (vg[i*m+j] + vg[j*m+i] + s.v[i*m+j] + mean[i]*mean[j] - x.slope[i]*mean[j] - mean[i]*x.slope[j])
		}
		w[i*m+i] -= 0.5
	}
	for i := first; i < m; i++ {
		for j := first; j < m; j++ {
			w[i*m+j] = 0.5 * (vg[i*m+j] + vg[j*m+i] + gram[i*m+j] + s.v[i*m+j] + mean[i]*mean[j] - x.slope[i]*mean[j] - mean[i]*x.slope[j])
		}
	}
	dense.Trsm(blas.Left, blas.Trans, 1, l, dense.General(w, m, m))
	dense.Trsm(blas.Right, blas.NoTrans, 1, l, dense.General(w, m, m))
	return gram, w
}

// moved returns the gradient of the ELBO in the inducing inputs, M×D, from the sums of a pass that
// found x.
func (s *sparseSlopes) moved(x *sparseLook) []float64 {
	m, d, sum := s.p.z.rank(), len(s.steps), s.lanes[0].z
	for i := 1; i < len(s.lanes); i++ {
		floats.Add(sum, s.lanes[i].z)
	}
	_, w := s.inner(x)
	s.inducingTiles(func(t *kernelTile, p inducingPart, lo, hi int) {
		if lo < s.p.z.wholes() {
			return
		}
		part := t.get(t.len())
		for r := range t.x.Rows {
			for c := range t.y.Rows {
				part[r*t.y.Rows+c] = 2 * w[(lo+r)*m+hi+c]
			}
		}
		kernelPullInputs(s.terms.rest, sum[lo*d:(lo+t.x.Rows)*d], part, t, s.steps)
	})
	return sum
}

// point returns the gradient of −ELBO and, if it is wanted, the average information, from the sums
// of a pass that found x.
func (s *sparseSlopes) point(x *sparseLook) (grad []float64, info *mat.SymDense) {
	m, np, nf := s.p.z.rank(), len(s.chain), len(s.free)
	a := &s.lanes[0]
	for i := 1; i < len(s.lanes); i++ {
		o := &s.lanes[i]
		floats.Add(a.grad, o.grad)
		floats.Add(a.slope, o.slope)
		floats.Add(a.curve, o.curve)
		floats.Add(a.uu, o.uu)
		floats.Add(a.gg, o.gg)
		floats.Add(a.t, o.t)
	}
	gram, w := s.inner(x)
	l, g := dense.LowerTriangle(s.p.z.l, m), dense.General(gram, m, m)
	zz := make([]float64, m*np) // ∂K(Z, Z)β
	s.inducingTiles(func(t *kernelTile, p inducingPart, lo, hi int) {
		part := t.get(t.len())
		for r := range t.x.Rows {
			copy(part[r*t.y.Rows:(r+1)*t.y.Rows], w[(lo+r)*m+hi:])
		}
		s.pull(p, a.grad, part, t)
		if !s.info {
			return
		}
		for r := range t.x.Rows {
			copy(part[r*t.y.Rows:(r+1)*t.y.Rows], s.beta[hi:])
		}
		s.pullRows(p, zz[lo*np:(lo+t.x.Rows)*np], part, t)
	})
	grad = make([]float64, nf)
	for f, at := range s.free {
		if grad[f] = -a.slope[f]; !s.space.coords[at].Likelihood {
			grad[f] = -a.grad[at] * s.chain[at]
		}
	}
	if !s.info {
		return grad, nil
	}
	// U = u + Fᵀs with s = L⁻¹(∂K(Z, X)∂₁ − ∂K(Z, Z)β), and Γ − ΓFᵀP₊⁻¹FΓ for W.
	c := make([]float64, m*nf)
	for f, at := range s.free {
		if s.space.coords[at].Likelihood {
			continue
		}
		for j := range m {
			c[j*nf+f] = (a.t[j*np+at] - zz[j*np+at]) * s.chain[at]
		}
	}
	f := make([]float64, m*nf) // Fγu
	cs, fu := dense.General(c, m, nf), dense.General(f, m, nf)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(s.p.r, m, m), dense.General(a.gg, m, nf), 0, fu)
	dense.Trsm(blas.Left, blas.NoTrans, 1, l, cs)
	uu := dense.General(a.uu, nf, nf)
	dense.Gemm(blas.Trans, blas.NoTrans, 1, fu, cs, 1, uu)
	dense.Gemm(blas.Trans, blas.NoTrans, 1, cs, fu, 1, uu)
	gc := make([]float64, m*nf)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, g, cs, 0, dense.General(gc, m, nf))
	dense.Gemm(blas.Trans, blas.NoTrans, 1, cs, dense.General(gc, m, nf), 1, uu)
	floats.Add(gc, f)
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(x.next.L, m), dense.General(gc, m, nf))
	dense.Gemm(blas.Trans, blas.NoTrans, -1, dense.General(gc, m, nf), dense.General(gc, m, nf), 1, uu)
	info = mat.NewSymDense(nf, nil)
	for i := range nf {
		for j := range i + 1 {
			info.SetSym(i, j, 0.25*(a.uu[i*nf+j]+a.uu[j*nf+i]))
		}
		info.SetSym(i, i, max(info.At(i, i), a.curve[i], 0))
	}
	return grad, info
}
