package normal

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// Full is N(m, V) with a full covariance V. In the coordinates Cholesky and LogCholesky the matrix
// part of λ is L itself, and V and V⁻¹ are computed when they are first needed.
type Full struct {
	coords Coords
	d      int
	state
	next   state       // scratch: replaces the state if it is valid
	filled atomic.Bool // v and p belong to l
	mu     sync.Mutex  // held while v and p are computed, because readers may be concurrent

	// halt cancels work on matrices. Methods that set λ then return its error; other results are
	// undefined. Clones do not share it.
	halt *parallel.Halt
}

// state holds a valid N(m, V) in several forms.
type state struct {
	m    []float64 // mean
	v    []float64 // covariance, full; read by cov
	p    []float64 // precision V⁻¹, full; read by prec
	l    []float64 // lower Cholesky factor of V
	logV float64   // log|V|
}

// Cov returns V as a full matrix.
func (g *Full) Cov() []float64 {
	g.fill()
	return g.v
}

// Prec returns V⁻¹ as a full matrix.
func (g *Full) Prec() []float64 {
	g.fill()
	return g.p
}

// fill computes V and V⁻¹ from L if that has not been done.
func (g *Full) fill() {
	if g.filled.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.filled.Load() || g.halt.Stopped() { // after a halt, results are undefined
		return
	}
	// Only the lower triangle of L counts.
	d := g.d
	for i := range d {
		clear(g.p[i*d+copy(g.p[i*d:], g.l[i*d:i*d+i+1]) : (i+1)*d])
	}
	clear(g.v)
	dense.AddProduct(g.halt, g.v, d, 1, dense.General(g.p, d, d))
	for i := range d {
		g.v[i*d+i] = g.variance(i)
	}
	dense.FillUpper(g.v, d)
	copy(g.p, g.l)
	if g.invert(g.p) == nil {
		g.filled.Store(true)
	}
}

// factor replaces the lower triangle of a by its Cholesky factor. The error wraps
// sentinel.ErrNotPosDef and names a as what, or it is the error of the halt.
func (g *Full) factor(a []float64, what string) error {
	ok := dense.CholeskyUntil(g.halt, a, g.d)
	if err := g.halt.Err(); err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("pgsvi: %s of dimension %d: %w", what, g.d, sentinel.ErrNotPosDef)
	}
	return nil
}

// invert replaces the Cholesky factor in l by the full inverse of the factored matrix. The error
// is the error of the halt.
func (g *Full) invert(l []float64) error {
	dense.InvertUntil(g.halt, l, g.d)
	dense.FillUpper(l, g.d)
	return g.halt.Err()
}

// variance returns V_ii from L.
func (g *Full) variance(i int) float64 {
	row := dense.Vector(g.l[i*g.d : i*g.d+i+1])
	return dense.Dot(row, row)
}

// NewFull returns a Gaussian of d dimensions. It is not valid before a call of CommitMoments or
// SetForm.
func NewFull(d int) *Full {
	return &Full{d: d, state: newState(d), next: newState(d)}
}

func newState(d int) state {
	return state{m: make([]float64, d), v: make([]float64, d*d), p: make([]float64, d*d),
		l: make([]float64, d*d)}
}

// In returns a copy in the coordinates c.
func (g *Full) In(c Coords) Form {
	q := NewFull(g.d)
	q.coords = c
	q.SetForm(g)
	return q
}

// Coords returns the meaning of λ.
func (g *Full) Coords() Coords { return g.coords }

// Dim returns the dimension of z.
func (g *Full) Dim() int { return g.d }

// NumParams returns the length of λ.
func (g *Full) NumParams() int { return g.d + g.d*(g.d+1)/2 }

// Next returns the mean and the covariance, row by row, that CommitMoments reads. They are zero
// after NewFull and undefined later.
func (g *Full) Next() (m, v []float64) { return g.next.m, g.next.v }

// CommitMoments sets g to the N(m, V) of Next. If V is not positive definite or a number is not
// finite, it changes nothing and returns an error.
func (g *Full) CommitMoments() error {
	s, d := &g.next, g.d
	if err := s.checkFinite(s.v); err != nil {
		return err
	}
	copy(s.l, s.v)
	if err := g.factor(s.l, "covariance"); err != nil {
		return err
	}
	s.logV = dense.LogDet(s.l, d)
	copy(s.p, s.l)
	if err := g.invert(s.p); err != nil {
		return err
	}
	return g.commit()
}

// commitNatural sets the state from next.p = V⁻¹ and next.m = V⁻¹m, after checking them.
func (g *Full) commitNatural() error {
	s, d := &g.next, g.d
	if err := s.checkFinite(s.p); err != nil {
		return err
	}
	copy(s.v, s.p)
	if err := g.factor(s.v, "precision"); err != nil {
		return err
	}
	s.logV = -dense.LogDet(s.v, d)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(s.v, d), dense.Vector(s.m))
	dense.Trsv(blas.Trans, dense.LowerTriangle(s.v, d), dense.Vector(s.m))
	if err := g.invert(s.v); err != nil {
		return err
	}
	copy(s.l, s.v)
	if err := g.factor(s.l, "covariance"); err != nil {
		return err
	}
	return g.commit()
}

// checkFinite returns an error that names an element of the mean or the matrix that is not
// finite.
func (s *state) checkFinite(matrix []float64) error {
	if i, ok := dense.AllFinite(s.m); !ok {
		return fmt.Errorf("pgsvi: element %d of the vector parameter is %v: %w", i, s.m[i],
			sentinel.ErrNotFinite)
	}
	if i, ok := dense.AllFinite(matrix); !ok {
		d := len(s.m)
		return fmt.Errorf("pgsvi: element (%d, %d) of the matrix parameter is %v: %w", i/d, i%d,
			matrix[i], sentinel.ErrNotFinite)
	}
	return nil
}

// commit replaces the state by next, if all its elements are finite.
func (g *Full) commit() error {
	s := &g.next
	for _, x := range [][]float64{s.m, s.v, s.p} {
		if _, ok := dense.AllFinite(x); !ok {
			return fmt.Errorf("pgsvi: the distribution overflows: %w", sentinel.ErrNotFinite)
		}
	}
	g.state, g.next = g.next, g.state
	g.filled.Store(true)
	return nil
}

// commitCholesky sets the state from next.m and the lower triangle of next.l, after checking
// them.
func (g *Full) commitCholesky() error {
	s, d := &g.next, g.d
	for i := range d {
		row := s.l[i*d : i*d+i+1]
		if j, ok := dense.AllFinite(row); !ok {
			return fmt.Errorf("pgsvi: element (%d, %d) of the matrix parameter is %v: %w", i, j,
				row[j], sentinel.ErrNotFinite)
		}
		if row[i] <= 0 {
			return fmt.Errorf(
				"pgsvi: Cholesky factor of dimension %d has %v at %d of its diagonal: %w", d,
				row[i], i, sentinel.ErrNotPosDef)
		}
		if v := dense.Dot(dense.Vector(row), dense.Vector(row)); math.IsInf(v, 0) ||
			math.IsInf(1/(row[i]*row[i]), 0) {
			return fmt.Errorf("pgsvi: the scale of dimension %d over- or underflows: %w", i,
				sentinel.ErrNotFinite)
		}
	}
	if i, ok := dense.AllFinite(s.m); !ok {
		return fmt.Errorf("pgsvi: element %d of the vector parameter is %v: %w", i, s.m[i],
			sentinel.ErrNotFinite)
	}
	s.logV = dense.LogDet(s.l, d)
	g.state, g.next = g.next, g.state
	g.filled.Store(false)
	return nil
}

// Params stores λ in dst and returns it. A nil dst allocates.
func (g *Full) Params(dst []float64) []float64 { return g.paramsIn(g.coords, dst) }

// paramsIn is Params in the coordinates c.
func (g *Full) paramsIn(c Coords, dst []float64) []float64 {
	dst = dense.Dest(dst, g.NumParams())
	switch d := g.d; c {
	case MeanCov:
		copy(dst, g.m)
		k := d
		for i := range d {
			k += copy(dst[k:], g.Cov()[i*d:i*d+i+1])
		}
	case MeanParams:
		v := g.Cov()
		copy(dst, g.m)
		k := d
		for i := range d {
			for j := range i + 1 {
				dst[k] = v[i*d+j] + g.m[i]*g.m[j]
				k++
			}
		}
	case Natural:
		p := g.Prec()
		dense.Gemv(blas.NoTrans, 1, dense.General(p, d, d), dense.Vector(g.m), 0,
			dense.Vector(dst[:d]))
		k := d
		for i := range d {
			for j := range i {
				dst[k] = -p[i*d+j]
				k++
			}
			dst[k] = -0.5 * p[i*d+i]
			k++
		}
	case Cholesky, LogCholesky:
		copy(dst, g.m)
		k := d
		for i := range d {
			k += copy(dst[k:], g.l[i*d:i*d+i+1])
			if c == LogCholesky {
				dst[k-1] = math.Log(dst[k-1])
			}
		}
	}
	return dst
}

// SetParams sets λ. If the result is not a Gaussian, it changes nothing and the error wraps
// sentinel.ErrNotPosDef or sentinel.ErrNotFinite.
func (g *Full) SetParams(lambda []float64) error { return g.setParamsIn(g.coords, lambda) }

// setParamsIn is SetParams in the coordinates c.
func (g *Full) setParamsIn(c Coords, lambda []float64) error {
	if len(lambda) != g.NumParams() {
		panic("pgsvi: λ has the wrong length")
	}
	s, d := &g.next, g.d
	copy(s.m, lambda)
	switch c {
	case Natural:
		dense.Unpack(s.p, lambda[d:], d, -2, -1)
		return g.commitNatural()
	case Cholesky, LogCholesky:
		k := d
		for i := range d {
			k += copy(s.l[i*d:i*d+i+1], lambda[k:])
			if c == LogCholesky {
				s.l[i*d+i] = math.Exp(s.l[i*d+i])
				if s.l[i*d+i] == 0 {
					return fmt.Errorf("pgsvi: the scale of dimension %d underflows: %w", i,
						sentinel.ErrNotFinite)
				}
			}
		}
		return g.commitCholesky()
	}
	dense.Unpack(s.v, lambda[d:], d, 1, 1)
	if c == MeanParams {
		for i := range d {
			for j := range d {
				s.v[i*d+j] -= s.m[i] * s.m[j]
			}
		}
	}
	return g.CommitMoments()
}

// Natural stores η = (V⁻¹m, −½V⁻¹) in dst. A nil dst allocates.
func (g *Full) Natural(dst []float64) []float64 { return g.paramsIn(Natural, dst) }

// SetNatural sets η. Its errors are the errors of SetParams.
func (g *Full) SetNatural(eta []float64) error { return g.setParamsIn(Natural, eta) }

// MeanParams stores μ = (m, V + mmᵀ) in dst. A nil dst allocates.
func (g *Full) MeanParams(dst []float64) []float64 { return g.paramsIn(MeanParams, dst) }

// SetMeanParams sets μ. Its errors are the errors of SetParams.
func (g *Full) SetMeanParams(mu []float64) error { return g.setParamsIn(MeanParams, mu) }

// LogPartition returns A(η) = ½(mᵀV⁻¹m + log|V| + d log 2π).
func (g *Full) LogPartition() float64 {
	d := g.d
	p := g.Prec()
	var quad float64
	for i := range d {
		quad += g.m[i] * dense.DotRow(p, d, i, g.m)
	}
	return 0.5 * (quad + g.logV + float64(d)*expfam.Log2Pi)
}

// LogProb returns log q(z) in nats. It panics if z has another length than the mean.
func (g *Full) LogProb(z []float64) float64 {
	d := g.d
	if len(z) != d {
		panic("pgsvi: z has the wrong length")
	}
	var quad float64 // ‖L⁻¹(z − m)‖², by forward substitution
	u := make([]float64, d)
	for i := range d {
		s := z[i] - g.m[i]
		for j := range i {
			s -= g.l[i*d+j] * u[j]
		}
		u[i] = s / g.l[i*d+i]
		quad += u[i] * u[i]
	}
	return -0.5 * (quad + g.logV + float64(d)*expfam.Log2Pi)
}

// Score stores ∇_λ log q(z) in dst. In the coordinates (m, V) it is ∇_m = V⁻¹(z − m) and ∇_V =
// ½(V⁻¹(z − m)(z − m)ᵀV⁻¹ − V⁻¹).
func (g *Full) Score(dst, z []float64) []float64 {
	d := g.d
	gm, gv, u := make([]float64, d), make([]float64, d*d), make([]float64, d)
	for i := range u {
		u[i] = z[i] - g.m[i]
	}
	p := g.Prec()
	dense.Gemv(blas.NoTrans, 1, dense.General(p, d, d), dense.Vector(u), 0, dense.Vector(gm))
	for i := range d {
		for j := range d {
			gv[i*d+j] = 0.5 * (gm[i]*gm[j] - p[i*d+j])
		}
	}
	return g.FromMomentGrad(dst, gm, gv)
}

// Transform replaces a standard normal eps by the draw m + L·eps.
func (g *Full) Transform(eps []float64) {
	dense.Trmv(blas.NoTrans, dense.LowerTriangle(g.l, g.d), dense.Vector(eps))
	for i, m := range g.m {
		eps[i] += m
	}
}

// Standardize stores V⁻¹(z − m) = L⁻ᵀ·eps in dst for z = m + L·eps.
func (g *Full) Standardize(dst, eps []float64) {
	copy(dst, eps)
	dense.Trsv(blas.Trans, dense.LowerTriangle(g.l, g.d), dense.Vector(dst))
}

// FromMomentGrad stores the gradient ∇_λ of a function in dst. gm is its gradient in m, and the
// symmetric part of gv (d×d) its gradient in V.
func (g *Full) FromMomentGrad(dst, gm, gv []float64) []float64 {
	return g.fromMomentGradIn(g.coords, dst, gm, gv)
}

// fromMomentGradIn is FromMomentGrad in the coordinates c.
func (g *Full) fromMomentGradIn(c Coords, dst, gm, gv []float64) []float64 {
	dst = dense.Dest(dst, g.NumParams())
	d := g.d
	switch c {
	case MeanCov:
		copy(dst, gm)
		dense.Pack(dst[d:], gv, d, 1, 2)
	case MeanParams:
		// V = M − mmᵀ: ∂/∂m = g_m − 2 G m, ∂/∂M = G.
		dense.Pack(dst[d:], gv, d, 1, 2)
		for i := range d {
			s := gm[i]
			for j := range d {
				s -= (gv[i*d+j] + gv[j*d+i]) * g.m[j]
			}
			dst[i] = s
		}
	case Natural:
		// With h = V⁻¹m: ∂/∂h = V g_m, ∂/∂V⁻¹ = −sym(V g_m mᵀ) − V G V.
		t, w := make([]float64, d*d), make([]float64, d*d)
		for i := range d {
			for j := range d {
				t[i*d+j] = 0.5 * (gv[i*d+j] + gv[j*d+i])
			}
		}
		v := g.Cov()
		dense.MulSquare(w, v, t, d)
		dense.MulSquare(t, w, v, d)
		dense.Gemv(blas.NoTrans, 1, dense.General(v, d, d), dense.Vector(gm), 0,
			dense.Vector(dst[:d]))
		dense.Ger(1, dense.Vector(dst[:d]), dense.Vector(g.m), dense.General(t, d, d))
		dense.Pack(dst[d:], t, d, 2, 2)
	case Cholesky, LogCholesky:
		// V = LLᵀ: ∂/∂L = 2GL.
		t := make([]float64, d*d)
		for i := range d {
			for j := range d {
				t[i*d+j] = gv[i*d+j] + gv[j*d+i]
			}
		}
		copy(dst, gm)
		dense.MulLower(dst[d:], t, g.l, d)
		if c == LogCholesky {
			g.scaleDiag(dst[d:], 1)
		}
	}
	return dst
}

// scaleDiag multiplies the diagonal of the packed lower triangle p by L_ii^power, where power is
// 1 or −1.
func (g *Full) scaleDiag(p []float64, power int) {
	k := -1
	for i := range g.d {
		k += i + 1
		if power > 0 {
			p[k] *= g.l[i*g.d+i]
		} else {
			p[k] /= g.l[i*g.d+i]
		}
	}
}

// ToMomentGrad inverts FromMomentGrad.
func (g *Full) ToMomentGrad(gm, gv, grad []float64) { g.toMomentGradIn(g.coords, gm, gv, grad) }

// toMomentGradIn is ToMomentGrad in the coordinates c.
func (g *Full) toMomentGradIn(c Coords, gm, gv, grad []float64) {
	d := g.d
	switch c {
	case MeanCov, MeanParams:
		copy(gm, grad)
		dense.Unpack(gv, grad[d:], d, 1, 0.5)
		if c == MeanParams {
			for i := range d {
				gm[i] += 2 * dense.DotRow(gv, d, i, g.m)
			}
		}
	case Natural:
		t, w := make([]float64, d*d), make([]float64, d*d)
		dense.Unpack(t, grad[d:], d, 0.5, 0.5)
		for i := range d {
			for j := range d {
				t[i*d+j] -= 0.5 * (grad[i]*g.m[j] + g.m[i]*grad[j])
			}
		}
		p := g.Prec()
		dense.MulSquare(w, p, t, d)
		dense.MulSquare(gv, w, p, d)
		dense.Gemv(blas.NoTrans, 1, dense.General(p, d, d), dense.Vector(grad[:d]), 0,
			dense.Vector(gm))
	case Cholesky, LogCholesky:
		// With A = ∂/∂L and Φ(X) the lower triangle of X with half its diagonal,
		// ∂/∂V is the symmetric part of L⁻ᵀΦ(LᵀA)L⁻¹ (Murray, 2016).
		copy(gm, grad)
		a := append([]float64(nil), grad[d:]...)
		if c == LogCholesky {
			g.scaleDiag(a, -1)
		}
		clear(gv)
		k := 0
		for i := range d {
			copy(gv[i*d:], a[k:k+i+1])
			k += i + 1
		}
		l := dense.LowerTriangle(g.l, d)
		blas64.Trmm(blas.Left, blas.Trans, 1, l, dense.General(gv, d, d))
		for i := range d {
			gv[i*d+i] /= 2
			clear(gv[i*d+i+1 : (i+1)*d])
		}
		dense.Trsm(blas.Left, blas.Trans, 1, l, dense.General(gv, d, d))
		dense.Trsm(blas.Right, blas.NoTrans, 1, l, dense.General(gv, d, d))
		for i := range d {
			for j := range i {
				t := 0.5 * (gv[i*d+j] + gv[j*d+i])
				gv[i*d+j], gv[j*d+i] = t, t
			}
		}
	}
}

// Lower returns the Cholesky factor L of V. Its upper triangle is undefined, and the caller must
// not change it.
func (g *Full) Lower() []float64 { return g.l }

// Filled reports whether V and V⁻¹ have been computed.
func (g *Full) Filled() bool { return g.filled.Load() }

// Watch sets the halt that cancels work on matrices.
func (g *Full) Watch(h *parallel.Halt) { g.halt = h }

// HasFactor reports whether λ is (m, L), with or without logarithms.
func (g *Full) HasFactor() bool { return isFactor(g.coords) }

func isFactor(c Coords) bool { return c == Cholesky || c == LogCholesky }

// FactorKL returns KL(q‖p) and stores ∇_λ KL in dst if λ is (m, L). With the mean μ and the
// precision P of p, ∇_m is P(m − μ) and ∇_L is the lower triangle of PL − L⁻ᵀ. It needs neither V
// nor V⁻¹.
func (g *Full) FactorKL(dst []float64, p Form) (kl float64) {
	d := g.d
	diff := make([]float64, d)
	for i, m := range g.m {
		diff[i] = m - p.MeanAt(i)
	}
	p.MulPrecision(dst[:d], diff)
	a := dst[d:]
	if full, ok := p.(*Full); ok {
		dense.MulLower(a, full.Prec(), g.l, d)
	} else {
		k := 0
		for i := range d {
			for j := range i + 1 {
				a[k] = p.PrecisionAt(i, i) * g.l[i*d+j]
				k++
			}
		}
	}
	kl = dense.Dot(dense.Vector(diff), dense.Vector(dst[:d])) - float64(d) + p.LogDetV() - g.logV
	k := 0
	for i := range d {
		kl += dense.Dot(dense.Vector(a[k:k+i+1]), dense.Vector(g.l[i*d:i*d+i+1])) // tr(PV)
		k += i + 1
		a[k-1] -= 1 / g.l[i*d+i]
	}
	if g.coords == LogCholesky {
		g.scaleDiag(a, 1)
	}
	return math.Max(0, 0.5*kl)
}

// MeanGrad turns a gradient in λ into the gradient in μ and stores it in dst. A nil dst
// allocates.
func (g *Full) MeanGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, g.coords, MeanParams)
}

// FromMeanGrad turns a gradient in μ into the gradient in λ and stores it in dst. A nil dst
// allocates.
func (g *Full) FromMeanGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, MeanParams, g.coords)
}

// FromNaturalGrad turns a gradient in η into the gradient in λ and stores it in dst. A nil dst
// allocates.
func (g *Full) FromNaturalGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, Natural, g.coords)
}

// convertGrad turns a gradient in the coordinates from into the gradient in the coordinates to.
func (g *Full) convertGrad(dst, grad []float64, from, to Coords) []float64 {
	dst = dense.Dest(dst, g.NumParams())
	if from == to {
		copy(dst, grad)
		return dst
	}
	if isFactor(from) && isFactor(to) { // without V⁻¹, which rounding may spoil
		copy(dst, grad)
		power := 1
		if to == Cholesky {
			power = -1
		}
		g.scaleDiag(dst[g.d:], power)
		return dst
	}
	gm, gv := make([]float64, g.d), make([]float64, g.d*g.d)
	g.toMomentGradIn(from, gm, gv, grad)
	return g.fromMomentGradIn(to, dst, gm, gv)
}

// Mean returns m, not a copy.
func (g *Full) Mean() []float64 { return g.m }

// MeanAt returns m_i.
func (g *Full) MeanAt(i int) float64 { return g.m[i] }

// PrecisionAt returns (V⁻¹)_ij.
func (g *Full) PrecisionAt(i, j int) float64 { return g.Prec()[i*g.d+j] }

// LogDetV returns log|V|.
func (g *Full) LogDetV() float64 { return g.logV }

// NumGradV returns the length of a gradient in V, d².
func (g *Full) NumGradV() int { return g.d * g.d }

// MulPrecision stores V⁻¹x in dst.
func (g *Full) MulPrecision(dst, x []float64) {
	dense.Gemv(blas.NoTrans, 1, dense.General(g.Prec(), g.d, g.d), dense.Vector(x), 0,
		dense.Vector(dst))
}

// Pull implements Prior.
func (g *Full) Pull(dst, m []float64) { pull(g, dst, m) }

// CovAt returns V_ij.
func (g *Full) CovAt(i, j int) float64 {
	if i == j && !g.filled.Load() {
		return g.variance(i) // the same bits as V has
	}
	return g.Cov()[i*g.d+j]
}

// SetForm copies the distribution p to q, to the bit. It reports false and changes nothing if p
// is of another kind or dimension.
func (g *Full) SetForm(p Form) bool {
	o, ok := p.(*Full)
	if !ok || o.d != g.d {
		return false
	}
	copy(g.m, o.m)
	copy(g.l, o.l)
	g.logV = o.logV
	full := o.filled.Load()
	if full {
		copy(g.v, o.v)
		copy(g.p, o.p)
	}
	g.filled.Store(full)
	return true
}

// SetPrecision sets q to N(m, V) with V⁻¹ = p. Its errors are the errors of SetParams.
func (g *Full) SetPrecision(m, p []float64) error {
	s := &g.next
	copy(s.p, p)
	dense.FillUpper(s.p, g.d) // rounding may have made p asymmetric
	dense.Gemv(blas.NoTrans, 1, dense.General(s.p, g.d, g.d), dense.Vector(m), 0, dense.Vector(s.m))
	return g.commitNatural()
}

// Marginal returns the mean and the variance of xᵀz.
func (g *Full) Marginal(x []float64) (m, v float64) {
	d := g.d
	// ‖Lᵀx‖², column by column of L.
	for j := range d {
		var s float64
		for i := j; i < d; i++ {
			s += g.l[i*d+j] * x[i]
		}
		v += s * s
	}
	return dense.Dot(dense.Vector(g.m), dense.Vector(x)), v
}

// AddOuter adds c·uwᵀ to the gradient gv in V.
func (g *Full) AddOuter(gv []float64, c float64, u, w []float64) {
	dense.Ger(c, dense.Vector(u), dense.Vector(w), dense.General(gv, g.d, g.d))
}

// AddPrecision adds c·V⁻¹ to the gradient gv in V.
func (g *Full) AddPrecision(gv []float64, c float64) {
	dense.Axpy(c, dense.Vector(g.Prec()), dense.Vector(gv))
}

// Chart stores (m, L) with log L_ii in dst. These coordinates are unconstrained.
func (g *Full) Chart(dst []float64) []float64 { return g.paramsIn(LogCholesky, dst) }

// SetChart sets (m, L) with log L_ii. Its errors are the errors of SetParams.
func (g *Full) SetChart(x []float64) error { return g.setParamsIn(LogCholesky, x) }

// ChartGrad turns a gradient in λ into the gradient in the chart and stores it in dst.
func (g *Full) ChartGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, g.coords, LogCholesky)
}

// Save writes or reads the distribution, without its coordinates.
func (g *Full) Save(c *save.Coder) {
	d := g.d
	filled := g.filled.Load()
	c.Bool(&filled)
	c.Floats(d, &g.m)
	c.Lower(d, g.l)
	c.Float(&g.logV)
	if filled { // v and p may differ from L by rounding
		c.Floats(d*d, &g.v, &g.p)
	}
	if c.Reading() {
		g.filled.Store(filled)
	}
}
