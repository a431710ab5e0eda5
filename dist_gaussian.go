package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Gaussian is the distribution N(m, V) over R^d with a full covariance.
//
// Its λ has length d + d(d+1)/2: first the d elements of the vector part, then
// the lower triangle of the matrix part row by row (element (i, j), j ≤ i, at
// d + i(i+1)/2 + j). Every symmetric matrix is written once, so a derivative
// with respect to an off-diagonal element counts both of its places, and the
// natural parameter that belongs to z_i z_j, j < i, is −(V⁻¹)_ij. In the
// coordinates Cholesky and LogCholesky the matrix part is L itself, and V and
// V⁻¹ are computed when they are first needed.
type Gaussian struct {
	coords Coordinates
	d      int
	gaussianState
	next gaussianState // scratch: becomes the state once it is known to be valid
	full atomic.Bool   // v and p are those of l
	mu   sync.Mutex    // held while they are computed: readers may be concurrent
}

// gaussianState holds a valid N(m, V) in every form that is needed.
type gaussianState struct {
	m    []float64 // mean
	v    []float64 // covariance, full; read by cov
	p    []float64 // precision V⁻¹, full; read by prec
	l    []float64 // lower Cholesky factor of V
	logV float64   // log|V|
}

// cov returns V, full.
func (g *Gaussian) cov() []float64 {
	g.fill()
	return g.v
}

// prec returns V⁻¹, full.
func (g *Gaussian) prec() []float64 {
	g.fill()
	return g.p
}

// fill computes V and V⁻¹ from L where that was put off.
func (g *Gaussian) fill() {
	if g.full.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full.Load() {
		return
	}
	for i := range g.d {
		for j := range i + 1 {
			v := g.dotRows(i, j)
			g.v[i*g.d+j], g.v[j*g.d+i] = v, v
		}
	}
	copy(g.p, g.l)
	dense.Invert(g.p, g.d)
	g.full.Store(true)
}

// dotRows returns V_ij from L, j ≤ i.
func (g *Gaussian) dotRows(i, j int) float64 {
	return blas64.Dot(dense.Vector(g.l[i*g.d:i*g.d+j+1]), dense.Vector(g.l[j*g.d:j*g.d+j+1]))
}

// NewGaussian returns N(mean, cov) in the coordinates MeanParams. A nil mean
// means zero. The arguments are copied. It returns an error wrapping ErrShape,
// ErrEmpty, ErrNotFinite or ErrNotPosDef.
func NewGaussian(mean []float64, cov mat.Symmetric) (*Gaussian, error) {
	if cov == nil || cov.SymmetricDim() == 0 {
		return nil, fmt.Errorf("pgsvi: %w: NewGaussian needs a covariance", ErrEmpty)
	}
	d := cov.SymmetricDim()
	if mean == nil {
		mean = make([]float64, d)
	}
	if len(mean) != d {
		return nil, fmt.Errorf("pgsvi: %w: mean has %d elements, covariance is %d×%d", ErrShape, len(mean), d, d)
	}
	g := newGaussian(d)
	copy(g.next.m, mean)
	for i := range d {
		for j := range d {
			g.next.v[i*d+j] = cov.At(i, j)
		}
	}
	if err := g.commitMoments(); err != nil {
		return nil, err
	}
	return g, nil
}

// NewIsotropic returns N(0, variance·I) over R^dim with a full covariance, in
// the coordinates MeanParams. It panics if dim < 1 or variance is not positive
// and finite.
func NewIsotropic(dim int, variance float64) *Gaussian {
	checkIsotropic(dim, variance)
	g := newGaussian(dim)
	for i := range dim {
		g.next.v[i*dim+i] = variance
	}
	if err := g.commitMoments(); err != nil {
		panic(err)
	}
	return g
}

func newGaussian(d int) *Gaussian {
	return &Gaussian{d: d, gaussianState: newGaussianState(d), next: newGaussianState(d)}
}

func newGaussianState(d int) gaussianState {
	return gaussianState{m: make([]float64, d), v: make([]float64, d*d), p: make([]float64, d*d), l: make([]float64, d*d)}
}

// In returns a copy of g whose λ is expressed in the coordinates c.
func (g *Gaussian) In(c Coordinates) *Gaussian {
	if c < MeanParams || c > LogCholesky {
		panic("pgsvi: invalid Coordinates")
	}
	q := newGaussian(g.d)
	q.coords = c
	q.setState(g)
	return q
}

// Coordinates returns the meaning of λ.
func (g *Gaussian) Coordinates() Coordinates { return g.coords }

// Dim returns d.
func (g *Gaussian) Dim() int { return g.d }

// NumParams returns d + d(d+1)/2.
func (g *Gaussian) NumParams() int { return g.d + g.d*(g.d+1)/2 }

// Clone implements Dist.
func (g *Gaussian) Clone() Dist { return g.In(g.coords) }

// MeanTo stores m in dst; nil allocates.
func (g *Gaussian) MeanTo(dst []float64) []float64 {
	dst = dense.Dest(dst, g.d)
	copy(dst, g.m)
	return dst
}

// VarTo stores the diagonal of V in dst; nil allocates.
func (g *Gaussian) VarTo(dst []float64) []float64 {
	dst = dense.Dest(dst, g.d)
	for i := range dst {
		dst[i] = g.covAt(i, i)
	}
	return dst
}

// Cov returns a copy of V.
func (g *Gaussian) Cov() *mat.SymDense {
	return mat.NewSymDense(g.d, append([]float64(nil), g.cov()...))
}

// Precision returns a copy of V⁻¹.
func (g *Gaussian) Precision() *mat.SymDense {
	return mat.NewSymDense(g.d, append([]float64(nil), g.prec()...))
}

// commitMoments makes the state of next.m and next.v, after checking it.
func (g *Gaussian) commitMoments() error {
	s, d := &g.next, g.d
	if err := s.checkFinite(s.v); err != nil {
		return err
	}
	copy(s.l, s.v)
	if !dense.Cholesky(s.l, d) {
		return fmt.Errorf("pgsvi: covariance of dimension %d: %w", d, ErrNotPosDef)
	}
	s.logV = dense.LogDet(s.l, d)
	copy(s.p, s.l)
	dense.Invert(s.p, d)
	return g.commit()
}

// commitNatural makes the state of next.p = V⁻¹ and next.m = V⁻¹m, after checking it.
func (g *Gaussian) commitNatural() error {
	s, d := &g.next, g.d
	if err := s.checkFinite(s.p); err != nil {
		return err
	}
	copy(s.v, s.p)
	if !dense.Cholesky(s.v, d) {
		return fmt.Errorf("pgsvi: precision of dimension %d: %w", d, ErrNotPosDef)
	}
	s.logV = -dense.LogDet(s.v, d)
	blas64.Trsv(blas.NoTrans, dense.LowerTriangle(s.v, d), dense.Vector(s.m))
	blas64.Trsv(blas.Trans, dense.LowerTriangle(s.v, d), dense.Vector(s.m))
	dense.Invert(s.v, d)
	copy(s.l, s.v)
	if !dense.Cholesky(s.l, d) {
		return fmt.Errorf("pgsvi: covariance of dimension %d: %w", d, ErrNotPosDef)
	}
	return g.commit()
}

func (s *gaussianState) checkFinite(matrix []float64) error {
	if i, ok := dense.AllFinite(s.m); !ok {
		return fmt.Errorf("pgsvi: %w: element %d of the vector parameter is %v", ErrNotFinite, i, s.m[i])
	}
	if i, ok := dense.AllFinite(matrix); !ok {
		d := len(s.m)
		return fmt.Errorf("pgsvi: %w: element (%d, %d) of the matrix parameter is %v", ErrNotFinite, i/d, i%d, matrix[i])
	}
	return nil
}

func (g *Gaussian) commit() error {
	s := &g.next
	for _, x := range [][]float64{s.m, s.v, s.p} {
		if _, ok := dense.AllFinite(x); !ok {
			return fmt.Errorf("pgsvi: %w: the distribution overflows", ErrNotFinite)
		}
	}
	g.gaussianState, g.next = g.next, g.gaussianState
	g.full.Store(true)
	return nil
}

// commitCholesky makes the state of next.m and the lower triangle of next.l,
// after checking it.
func (g *Gaussian) commitCholesky() error {
	s, d := &g.next, g.d
	for i := range d {
		row := s.l[i*d : i*d+i+1]
		if j, ok := dense.AllFinite(row); !ok {
			return fmt.Errorf("pgsvi: %w: element (%d, %d) of the matrix parameter is %v", ErrNotFinite, i, j, row[j])
		}
		if row[i] <= 0 {
			return fmt.Errorf("pgsvi: Cholesky factor of dimension %d has %v at %d of its diagonal: %w", d, row[i], i, ErrNotPosDef)
		}
		if v := blas64.Dot(dense.Vector(row), dense.Vector(row)); math.IsInf(v, 0) || math.IsInf(1/(row[i]*row[i]), 0) {
			return fmt.Errorf("pgsvi: %w: the scale of dimension %d over- or underflows", ErrNotFinite, i)
		}
	}
	if i, ok := dense.AllFinite(s.m); !ok {
		return fmt.Errorf("pgsvi: %w: element %d of the vector parameter is %v", ErrNotFinite, i, s.m[i])
	}
	s.logV = dense.LogDet(s.l, d)
	g.gaussianState, g.next = g.next, g.gaussianState
	g.full.Store(false)
	return nil
}

// Params implements Dist.
func (g *Gaussian) Params(dst []float64) []float64 { return g.paramsIn(g.coords, dst) }

func (g *Gaussian) paramsIn(c Coordinates, dst []float64) []float64 {
	dst = dense.Dest(dst, g.NumParams())
	switch d := g.d; c {
	case Moments:
		copy(dst, g.m)
		k := d
		for i := range d {
			k += copy(dst[k:], g.cov()[i*d:i*d+i+1])
		}
	case MeanParams:
		v := g.cov()
		copy(dst, g.m)
		k := d
		for i := range d {
			for j := range i + 1 {
				dst[k] = v[i*d+j] + g.m[i]*g.m[j]
				k++
			}
		}
	case Natural:
		p := g.prec()
		blas64.Gemv(blas.NoTrans, 1, dense.General(p, d, d), dense.Vector(g.m), 0, dense.Vector(dst[:d]))
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

// SetParams implements Dist.
func (g *Gaussian) SetParams(lambda []float64) error { return g.setParamsIn(g.coords, lambda) }

func (g *Gaussian) setParamsIn(c Coordinates, lambda []float64) error {
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
					return fmt.Errorf("pgsvi: %w: the scale of dimension %d underflows", ErrNotFinite, i)
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
	return g.commitMoments()
}

// Natural implements ExpFamily.
func (g *Gaussian) Natural(dst []float64) []float64 { return g.paramsIn(Natural, dst) }

// SetNatural implements ExpFamily.
func (g *Gaussian) SetNatural(eta []float64) error { return g.setParamsIn(Natural, eta) }

// MeanParams implements ExpFamily: it stores the mean parameters (m, V + mmᵀ). MeanTo is m alone.
func (g *Gaussian) MeanParams(dst []float64) []float64 { return g.paramsIn(MeanParams, dst) }

// SetMeanParams implements ExpFamily.
func (g *Gaussian) SetMeanParams(mu []float64) error { return g.setParamsIn(MeanParams, mu) }

// LogPartition returns A(η) = ½(mᵀV⁻¹m + log|V| + d log 2π).
func (g *Gaussian) LogPartition() float64 {
	d := g.d
	p := g.prec()
	var quad float64
	for i := range d {
		quad += g.m[i] * dense.DotRow(p, d, i, g.m)
	}
	return 0.5 * (quad + g.logV + float64(d)*log2Pi)
}

// LogProb implements Dist.
func (g *Gaussian) LogProb(z []float64) float64 {
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
	return -0.5 * (quad + g.logV + float64(d)*log2Pi)
}

// Score implements Dist. In the coordinates (m, V),
// ∇_m = V⁻¹(z − m) and ∇_V = ½(V⁻¹(z − m)(z − m)ᵀV⁻¹ − V⁻¹).
func (g *Gaussian) Score(dst, z []float64) []float64 {
	d := g.d
	gm, gv, u := make([]float64, d), make([]float64, d*d), make([]float64, d)
	for i := range u {
		u[i] = z[i] - g.m[i]
	}
	p := g.prec()
	blas64.Gemv(blas.NoTrans, 1, dense.General(p, d, d), dense.Vector(u), 0, dense.Vector(gm))
	for i := range d {
		for j := range d {
			gv[i*d+j] = 0.5 * (gm[i]*gm[j] - p[i*d+j])
		}
	}
	return g.fromMomentGrad(dst, gm, gv)
}

// Rand implements Dist: m + Lε.
func (g *Gaussian) Rand(dst []float64, rng *rand.Rand) []float64 {
	dst = dense.Dest(dst, g.d)
	for i := range dst {
		dst[i] = rng.NormFloat64()
	}
	g.transform(dst)
	return dst
}

// transform replaces the standard normal ε by m + Lε.
func (g *Gaussian) transform(eps []float64) {
	blas64.Trmv(blas.NoTrans, dense.LowerTriangle(g.l, g.d), dense.Vector(eps))
	for i, m := range g.m {
		eps[i] += m
	}
}

// standardize stores V⁻¹(z − m) = L⁻ᵀε in dst for z = m + Lε.
func (g *Gaussian) standardize(dst, eps []float64) {
	copy(dst, eps)
	blas64.Trsv(blas.Trans, dense.LowerTriangle(g.l, g.d), dense.Vector(dst))
}

// fromMomentGrad stores in dst the gradient ∇_λ of a function whose gradients
// with respect to m and V are gm (length d) and the symmetric part of gv (d×d).
func (g *Gaussian) fromMomentGrad(dst, gm, gv []float64) []float64 {
	return g.fromMomentGradIn(g.coords, dst, gm, gv)
}

func (g *Gaussian) fromMomentGradIn(c Coordinates, dst, gm, gv []float64) []float64 {
	dst = dense.Dest(dst, g.NumParams())
	d := g.d
	switch c {
	case Moments:
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
		v := g.cov()
		dense.MulSquare(w, v, t, d)
		dense.MulSquare(t, w, v, d)
		blas64.Gemv(blas.NoTrans, 1, dense.General(v, d, d), dense.Vector(gm), 0, dense.Vector(dst[:d]))
		blas64.Ger(1, dense.Vector(dst[:d]), dense.Vector(g.m), dense.General(t, d, d))
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

// scaleDiag multiplies the diagonal of the packed lower triangle p by L_ii^power, power 1 or −1.
func (g *Gaussian) scaleDiag(p []float64, power int) {
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

// toMomentGrad is the inverse of fromMomentGrad.
func (g *Gaussian) toMomentGrad(gm, gv, grad []float64) { g.toMomentGradIn(g.coords, gm, gv, grad) }

func (g *Gaussian) toMomentGradIn(c Coordinates, gm, gv, grad []float64) {
	d := g.d
	switch c {
	case Moments, MeanParams:
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
		p := g.prec()
		dense.MulSquare(w, p, t, d)
		dense.MulSquare(gv, w, p, d)
		blas64.Gemv(blas.NoTrans, 1, dense.General(p, d, d), dense.Vector(grad[:d]), 0, dense.Vector(gm))
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
		blas64.Trsm(blas.Left, blas.Trans, 1, l, dense.General(gv, d, d))
		blas64.Trsm(blas.Right, blas.NoTrans, 1, l, dense.General(gv, d, d))
		for i := range d {
			for j := range i {
				t := 0.5 * (gv[i*d+j] + gv[j*d+i])
				gv[i*d+j], gv[j*d+i] = t, t
			}
		}
	}
}

// hasFactor reports whether λ is (m, L), in either form.
func (g *Gaussian) hasFactor() bool { return g.coords == Cholesky || g.coords == LogCholesky }

// factorKL returns KL(q‖p) and stores its gradient ∇_λ in dst where λ is (m, L):
// with P and μ those of p, ∇_m = P(m − μ) and ∇_L is the lower triangle of
// PL − L⁻ᵀ, for which neither V nor V⁻¹ is needed.
func (g *Gaussian) factorKL(dst []float64, p normal) (kl float64) {
	d := g.d
	diff := make([]float64, d)
	for i, m := range g.m {
		diff[i] = m - p.meanAt(i)
	}
	p.mulPrecision(dst[:d], diff)
	a := dst[d:]
	if full, ok := p.(*Gaussian); ok {
		dense.MulLower(a, full.prec(), g.l, d)
	} else {
		k := 0
		for i := range d {
			for j := range i + 1 {
				a[k] = p.precisionAt(i, i) * g.l[i*d+j]
				k++
			}
		}
	}
	kl = blas64.Dot(dense.Vector(diff), dense.Vector(dst[:d])) - float64(d) + p.logDetV() - g.logV
	k := 0
	for i := range d {
		kl += blas64.Dot(dense.Vector(a[k:k+i+1]), dense.Vector(g.l[i*d:i*d+i+1])) // tr(PV)
		k += i + 1
		a[k-1] -= 1 / g.l[i*d+i]
	}
	if g.coords == LogCholesky {
		g.scaleDiag(a, 1)
	}
	return math.Max(0, 0.5*kl)
}

// MeanGrad implements ExpFamily.
func (g *Gaussian) MeanGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, g.coords, MeanParams)
}

// FromMeanGrad implements ExpFamily.
func (g *Gaussian) FromMeanGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, MeanParams, g.coords)
}

// FromNaturalGrad implements ExpFamily.
func (g *Gaussian) FromNaturalGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, Natural, g.coords)
}

func (g *Gaussian) convertGrad(dst, grad []float64, from, to Coordinates) []float64 {
	dst = dense.Dest(dst, g.NumParams())
	if from == to {
		copy(dst, grad)
		return dst
	}
	gm, gv := make([]float64, g.d), make([]float64, g.d*g.d)
	g.toMomentGradIn(from, gm, gv, grad)
	return g.fromMomentGradIn(to, dst, gm, gv)
}

// naturalOf takes a MeanField for the Gaussian that it is.
func (g *Gaussian) naturalOf(p ExpFamily) []float64 {
	if p.Dim() != g.d {
		return nil
	}
	switch p := p.(type) {
	case *Gaussian:
		return p.Natural(nil)
	case *MeanField:
		eta := make([]float64, g.NumParams())
		k := g.d
		for i, m := range p.m {
			eta[i] = m / p.v[i]
			k += i
			eta[k] = -0.5 / p.v[i]
			k++
		}
		return eta
	}
	return nil
}

// KL returns KL(q‖p) = ½(tr(PV) − d + (m − μ)ᵀP(m − μ) + log|P⁻¹|/|V|) in nats,
// P and μ those of p, a Gaussian or MeanField of the same dimension.
func (g *Gaussian) KL(p Dist) float64 { return gaussianKL(g, p.(normal)) }

func (g *Gaussian) meanAt(i int) float64         { return g.m[i] }
func (g *Gaussian) precisionAt(i, j int) float64 { return g.prec()[i*g.d+j] }
func (g *Gaussian) logDetV() float64             { return g.logV }
func (g *Gaussian) numGradV() int                { return g.d * g.d }
func (g *Gaussian) mulPrecision(dst, x []float64) {
	blas64.Gemv(blas.NoTrans, 1, dense.General(g.prec(), g.d, g.d), dense.Vector(x), 0, dense.Vector(dst))
}

func (g *Gaussian) covAt(i, j int) float64 {
	if i == j && !g.full.Load() {
		return g.dotRows(i, i) // the same bits as V has
	}
	return g.cov()[i*g.d+j]
}

func (g *Gaussian) setState(p Dist) bool {
	o, ok := p.(*Gaussian)
	if !ok || o.d != g.d {
		return false
	}
	copy(g.m, o.m)
	copy(g.l, o.l)
	g.logV = o.logV
	full := o.full.Load()
	if full {
		copy(g.v, o.v)
		copy(g.p, o.p)
	}
	g.full.Store(full)
	return true
}

func (g *Gaussian) setPrecision(m, p []float64) error {
	s := &g.next
	copy(s.p, p)
	blas64.Gemv(blas.NoTrans, 1, dense.General(s.p, g.d, g.d), dense.Vector(m), 0, dense.Vector(s.m))
	return g.commitNatural()
}

func (g *Gaussian) marginal(x []float64) (m, v float64) {
	d := g.d
	// ‖Lᵀx‖², column by column of L.
	for j := range d {
		var s float64
		for i := j; i < d; i++ {
			s += g.l[i*d+j] * x[i]
		}
		v += s * s
	}
	return blas64.Dot(dense.Vector(g.m), dense.Vector(x)), v
}

func (g *Gaussian) addOuter(gv []float64, c float64, u, w []float64) {
	blas64.Ger(c, dense.Vector(u), dense.Vector(w), dense.General(gv, g.d, g.d))
}

func (g *Gaussian) addPrecision(gv []float64, c float64) {
	blas64.Axpy(c, dense.Vector(g.prec()), dense.Vector(gv))
}

// Chart implements Charted by the coordinates LogCholesky.
func (g *Gaussian) Chart(dst []float64) []float64 { return g.paramsIn(LogCholesky, dst) }

// SetChart implements Charted.
func (g *Gaussian) SetChart(x []float64) error { return g.setParamsIn(LogCholesky, x) }

// ChartGrad implements Charted.
func (g *Gaussian) ChartGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, g.coords, LogCholesky)
}

const log2Pi = 1.8378770664093454835606594728112352797227949472755668

func checkIsotropic(dim int, variance float64) {
	if dim < 1 {
		panic(fmt.Sprintf("pgsvi: dimension %d must be at least 1", dim))
	}
	if !(variance > 0) || math.IsInf(variance, 0) || math.IsInf(1/variance, 0) {
		panic(fmt.Sprintf("pgsvi: variance %v must be positive and finite", variance))
	}
}

// normal is what Gaussian and MeanField share. Gradients with respect to V
// have length numGradV: a full d×d matrix, of which the symmetric part counts,
// or the diagonal.
type normal interface {
	ExpFamily
	meanAt(i int) float64
	covAt(i, j int) float64
	precisionAt(i, j int) float64
	mulPrecision(dst, x []float64)
	logDetV() float64
	numGradV() int
	// setPrecision replaces q by N(m, V) with V⁻¹ = p, of length numGradV,
	// under the contract of SetParams.
	setPrecision(m, p []float64) error
	fromMomentGrad(dst, gm, gv []float64) []float64
	toMomentGrad(gm, gv, grad []float64)
	// marginal returns the mean and the variance of xᵀz.
	marginal(x []float64) (m, v float64)
	// addOuter adds c·uwᵀ, and addPrecision c·V⁻¹, to a gradient with respect to V.
	addOuter(gv []float64, c float64, u, w []float64)
	addPrecision(gv []float64, c float64)
	// transform replaces a standard normal ε by a draw z; standardize stores V⁻¹(z − m) in dst.
	transform(eps []float64)
	standardize(dst, eps []float64)
}

func gaussianKL(q, p normal) float64 {
	d := q.Dim()
	if p.Dim() != d {
		panic("pgsvi: KL between distributions of different dimensions")
	}
	diff, w := make([]float64, d), make([]float64, d)
	var trace float64
	diagonal := q.numGradV() == d || p.numGradV() == d // of one of the two matrices only the diagonal counts
	for i := range d {
		diff[i] = q.meanAt(i) - p.meanAt(i)
		if diagonal {
			trace += p.precisionAt(i, i) * q.covAt(i, i)
			continue
		}
		for j := range d {
			trace += p.precisionAt(i, j) * q.covAt(i, j)
		}
	}
	p.mulPrecision(w, diff)
	kl := 0.5 * (trace - float64(d) + blas64.Dot(dense.Vector(diff), dense.Vector(w)) + p.logDetV() - q.logDetV())
	return math.Max(0, kl)
}
