package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// Potential is a strictly convex function F of λ.
type Potential interface {
	// Value returns F(λ).
	Value(lambda []float64) float64
	// Grad stores ∇F(λ) in dst; nil allocates.
	Grad(dst, lambda []float64) []float64
	// InvGrad stores the λ that solves ∇F(λ) = y in dst, with which mirror descent
	// is in closed form; nil allocates. It returns nil where it has no closed form.
	InvGrad(dst, y []float64) []float64
}

// Bregman is D(q‖q0) = F(λ) − F(λ0) − ∇F(λ0)ᵀ(λ − λ0), whose proximal step
// with h = 0 is mirror descent (Nemirovski and Yudin, 1983; Beck and Teboulle, 2003).
type Bregman struct{ Potential Potential }

// Value implements Divergence.
func (b Bregman) Value(q, q0 Dist) float64 {
	l, l0 := q.Params(nil), q0.Params(nil)
	g := b.Potential.Grad(nil, l0)
	v := b.Potential.Value(l) - b.Potential.Value(l0)
	for i, gi := range g {
		v -= gi * (l[i] - l0[i])
	}
	return v
}

// Grad implements Divergence.
func (b Bregman) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = b.Potential.Grad(dst, q.Params(nil))
	floats.Sub(dst, b.Potential.Grad(nil, q0.Params(nil)))
	return dst
}

// Check returns an error wrapping ErrParam if Potential is nil, has no gradient at q, or is not convex next to it, as far as a difference
// of gradients in each of some directions tells. See CheckDivergence for more.
func (b Bregman) Check(q Dist) error {
	if b.Potential == nil {
		return fmt.Errorf("pgsvi: Bregman.Potential is nil: %w", ErrParam)
	}
	from, x := q.Params(nil), q.Params(nil)
	g0 := b.Potential.Grad(nil, from)
	if i, ok := dense.AllFinite(g0); !ok {
		return fmt.Errorf("pgsvi: Bregman: the gradient of %T at λ_0 is %v in element %d, where λ is %v: %w", b.Potential, g0[i], i, from[i], ErrParam)
	}
	next, delta, axes := q.Clone(), make([]float64, len(from)), min(len(from), mostAxes)
	for k := range axes + 1 { // along one coordinate, and at last along all of them, with alternating signs
		clear(delta)
		for i := range delta {
			if i == k || k == axes {
				delta[i] = 1e-4 * (1 + math.Abs(from[i])) * float64(1-2*(i%2))
			}
		}
		floats.AddTo(x, from, delta)
		if next.SetParams(x) != nil {
			continue // beyond the set
		}
		var rise, size float64
		for i, g := range b.Potential.Grad(nil, x) {
			rise += (g - g0[i]) * delta[i]
			size += (math.Abs(g) + math.Abs(g0[i])) * math.Abs(delta[i])
		}
		if rise < -1e-10*size {
			along := fmt.Sprintf("element %d", k)
			if k == axes {
				along = "all elements"
			}
			return fmt.Errorf("pgsvi: Bregman: %T is not convex at λ_0: its gradient falls along %s, by %.3g over a step of %.3g: %w",
				b.Potential, along, -rise/floats.Norm(delta, 2), floats.Norm(delta, 2), ErrParam)
		}
	}
	return nil
}

// mostAxes is the number of coordinates along which Bregman.Check looks.
const mostAxes = 64

// Prox implements Proxer for H = Zero where the Potential has an InvGrad.
func (b Bregman) Prox(q Dist, p *Prox) (bool, error) {
	if !isZero(p.H) {
		return false, nil
	}
	y := b.Potential.Grad(nil, p.From.Params(nil))
	floats.AddScaled(y, -p.Beta, p.Grad)
	l := b.Potential.InvGrad(nil, y)
	if l == nil {
		return false, nil
	}
	return true, q.SetParams(l)
}

// NegEntropy is the potential F(λ) = Σ_i λ_i log λ_i − λ_i on λ > 0, with
// which mirror descent is the exponentiated gradient.
type NegEntropy struct{}

// Value implements Potential; it is +Inf where some λ_i < 0.
func (NegEntropy) Value(lambda []float64) float64 {
	var s float64
	for _, x := range lambda {
		switch {
		case x > 0:
			s += x*math.Log(x) - x
		case x < 0:
			return math.Inf(1)
		}
	}
	return s
}

// Grad implements Potential.
func (NegEntropy) Grad(dst, lambda []float64) []float64 {
	dst = dense.Dest(dst, len(lambda))
	for i, x := range lambda {
		dst[i] = math.Log(x)
	}
	return dst
}

// InvGrad implements Potential: e^y.
func (NegEntropy) InvGrad(dst, y []float64) []float64 {
	dst = dense.Dest(dst, len(y))
	for i, x := range y {
		dst[i] = math.Exp(x)
	}
	return dst
}

// Euclidean is D(q‖q0) = ½‖λ − λ0‖², whose proximal steps are gradient
// descent (h = 0), ISTA (h = L1) and, with h = KLTo in the coordinates Cholesky, the
// proximal gradient method of Domke (2020).
type Euclidean struct{}

// Check returns nil: it is defined for any q.
func (Euclidean) Check(Dist) error { return nil }

// Value implements Divergence.
func (Euclidean) Value(q, q0 Dist) float64 {
	d := floats.Distance(q.Params(nil), q0.Params(nil), 2)
	return 0.5 * d * d
}

// Grad implements Divergence.
func (Euclidean) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = q.Params(dst)
	floats.Sub(dst, q0.Params(nil))
	return dst
}

// Prox implements Proxer for H = Zero and H = L1, and for H = KLTo where q is a
// Gaussian in the coordinates Cholesky.
func (Euclidean) Prox(q Dist, p *Prox) (bool, error) {
	if prior := priorOf(p.H); prior != nil {
		return choleskyProx(q, p, prior)
	}
	return diagonalProx(q, p, nil)
}

// choleskyProx is the step of Euclidean with h = KL(q‖N(μ, P⁻¹)) for λ = (m, L).
//
// h = ½(m − μ)ᵀP(m − μ) + ½ tr LᵀPL − Σ_i log L_ii is a sum over m and the columns
// of L, and so is D. With M = P + I/β the mean solves M(m₊ − m) = −(P(m − μ) + g).
// Column j, of rows j and below, solves M_j x = b + e/x_j, where M_j is the block of
// M of these rows, b = L/β − G there and e the first unit vector. Its element j is
// the positive root of x² − cx − a with c = (M_j⁻¹b)_j and a = (M_j⁻¹)_jj. In reversed
// order the blocks of M are leading ones: one Cholesky factor serves all columns.
// Of a diagonal q the columns are single elements.
func choleskyProx(q Dist, p *Prox, prior ExpFamily) (bool, error) {
	n, ok := q.(*Gaussian)
	pr, okPrior := prior.(*Gaussian)
	if !ok || !okPrior || n.Coordinates() != Cholesky {
		return false, nil
	}
	d := q.Dim()
	inv := 1 / p.Beta
	x, rhs := p.From.Params(nil), make([]float64, d)
	for i := range rhs {
		rhs[i] = x[i] - pr.meanAt(i)
	}
	step := make([]float64, d)
	pr.mulPrecision(step, rhs)
	for i := range step {
		step[i] = -(step[i] + p.Grad[i])
	}
	b := x[d:]
	for i, g := range p.Grad[d:] {
		b[i] = inv*b[i] - g
	}
	diagonal, diagonalPrior := n.isDiagonal(), pr.isDiagonal()
	var m []float64 // of a full prior: the Cholesky factor of M in reversed order
	if !diagonalPrior {
		m = make([]float64, d*d)
		for i := range d {
			for j := range d {
				m[i*d+j] = pr.precisionAt(d-1-i, d-1-j)
			}
			m[i*d+i] += inv
		}
		if !dense.Cholesky(m, d) {
			return true, fmt.Errorf("pgsvi: precision of the prior plus 1/β: %w", ErrNotPosDef)
		}
		slices.Reverse(step)
		dense.Potrs(m, step)
		slices.Reverse(step)
	} else {
		for i := range step {
			step[i] /= pr.precisionAt(i, i) + inv
		}
	}
	floats.Add(x[:d], step)
	switch {
	case diagonal:
		for i := range b {
			a := 1 / (pr.precisionAt(i, i) + inv)
			b[i] = positiveRoot(a*b[i], a)
		}
	case diagonalPrior:
		k := 0
		for i := range d {
			a := 1 / (pr.precisionAt(i, i) + inv)
			floats.Scale(a, b[k:k+i+1])
			k += i + 1
			b[k-1] = positiveRoot(b[k-1], a)
		}
	default:
		col := rhs
		for j := range d {
			n := d - j
			for i := j; i < d; i++ {
				col[d-1-i] = b[i*(i+1)/2+j]
			}
			l := blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Data: m, Stride: d}
			dense.Trsv(blas.NoTrans, l, dense.Vector(col[:n]))
			last := m[(n-1)*d+n-1]
			root := positiveRoot(col[n-1]/last, 1/(last*last))
			col[n-1] += 1 / (last * root)
			dense.Trsv(blas.Trans, l, dense.Vector(col[:n]))
			for i := j; i < d; i++ {
				b[i*(i+1)/2+j] = col[d-1-i]
			}
		}
	}
	return true, q.SetParams(x)
}

// positiveRoot returns the positive root of x² − cx − a, a > 0, without cancellation.
func positiveRoot(c, a float64) float64 {
	r := math.Hypot(c/2, math.Sqrt(a))
	if c < 0 {
		return a / (r - c/2)
	}
	return r + c/2
}

// diagonalProx is the step of Diagonal; a nil scale is that of Euclidean.
func diagonalProx(q Dist, p *Prox, scale []float64) (bool, error) {
	var weight float64
	n := 0
	if h, ok := p.H.(absTerm); ok {
		l1 := h.abs()
		weight, n = l1.Weight, l1.count(q)
	} else if !isZero(p.H) {
		return false, nil
	}
	l := p.From.Params(nil)
	for i, gi := range p.Grad {
		step := p.Beta
		if scale != nil {
			step /= scale[i]
		}
		l[i] -= step * gi
		if i >= n {
			continue
		}
		if a, t := math.Abs(l[i]), step*weight; a > t {
			l[i] = math.Copysign(a-t, l[i])
		} else if a <= t {
			l[i] = 0
		}
	}
	return true, q.SetParams(l)
}
