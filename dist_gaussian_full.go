package pgsvi

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// fullGaussian is N(m, V) with any V. In the coordinates Cholesky and LogCholesky
// the matrix part of λ is L itself, and V and V⁻¹ are computed when they are first needed.
type fullGaussian struct {
	coords Coordinates
	d      int
	gaussianState
	next   gaussianState // scratch: becomes the state once it is known to be valid
	filled atomic.Bool   // v and p are those of l
	mu     sync.Mutex    // held while they are computed: readers may be concurrent

	// Once it has stopped, what sets λ returns its error, or leaves what is of no use. It is that
	// of this Gaussian, not of its clones.
	halt *parallel.Halt
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
func (g *fullGaussian) cov() []float64 {
	g.fill()
	return g.v
}

// prec returns V⁻¹, full.
func (g *fullGaussian) prec() []float64 {
	g.fill()
	return g.p
}

// fill computes V and V⁻¹ from L where that was put off.
func (g *fullGaussian) fill() {
	if g.filled.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.filled.Load() || g.halt.Stopped() { // of what has stopped each element is asked for again
		return
	}
	// Of L only the lower triangle counts.
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

// factor replaces the lower triangle of a by its Cholesky factor. The error wraps ErrNotPosDef and
// names a as what, or is that of the halt.
func (g *fullGaussian) factor(a []float64, what string) error {
	ok := dense.CholeskyUntil(g.halt, a, g.d)
	if err := g.halt.Err(); err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("pgsvi: %s of dimension %d: %w", what, g.d, ErrNotPosDef)
	}
	return nil
}

// invert replaces the Cholesky factor in l by the inverse of what it is of, full. The error is that
// of the halt.
func (g *fullGaussian) invert(l []float64) error {
	dense.InvertUntil(g.halt, l, g.d)
	dense.FillUpper(l, g.d)
	return g.halt.Err()
}

// variance returns V_ii from L.
func (g *fullGaussian) variance(i int) float64 {
	row := dense.Vector(g.l[i*g.d : i*g.d+i+1])
	return dense.Dot(row, row)
}

func newFullGaussian(d int) *fullGaussian {
	return &fullGaussian{d: d, gaussianState: newGaussianState(d), next: newGaussianState(d)}
}

func newGaussianState(d int) gaussianState {
	return gaussianState{m: make([]float64, d), v: make([]float64, d*d), p: make([]float64, d*d), l: make([]float64, d*d)}
}

func (g *fullGaussian) in(c Coordinates) normalForm {
	q := newFullGaussian(g.d)
	q.coords = c
	q.setForm(g)
	return q
}

func (g *fullGaussian) Coordinates() Coordinates { return g.coords }

func (g *fullGaussian) Dim() int { return g.d }

func (g *fullGaussian) NumParams() int { return g.d + g.d*(g.d+1)/2 }

// commitMoments makes the state of next.m and next.v, after checking it.
func (g *fullGaussian) commitMoments() error {
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

// commitNatural makes the state of next.p = V⁻¹ and next.m = V⁻¹m, after checking it.
func (g *fullGaussian) commitNatural() error {
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

func (s *gaussianState) checkFinite(matrix []float64) error {
	if i, ok := dense.AllFinite(s.m); !ok {
		return fmt.Errorf("pgsvi: element %d of the vector parameter is %v: %w", i, s.m[i], ErrNotFinite)
	}
	if i, ok := dense.AllFinite(matrix); !ok {
		d := len(s.m)
		return fmt.Errorf("pgsvi: element (%d, %d) of the matrix parameter is %v: %w", i/d, i%d, matrix[i], ErrNotFinite)
	}
	return nil
}

func (g *fullGaussian) commit() error {
	s := &g.next
	for _, x := range [][]float64{s.m, s.v, s.p} {
		if _, ok := dense.AllFinite(x); !ok {
			return fmt.Errorf("pgsvi: the distribution overflows: %w", ErrNotFinite)
		}
	}
	g.gaussianState, g.next = g.next, g.gaussianState
	g.filled.Store(true)
	return nil
}

// commitCholesky makes the state of next.m and the lower triangle of next.l,
// after checking it.
func (g *fullGaussian) commitCholesky() error {
	s, d := &g.next, g.d
	for i := range d {
		row := s.l[i*d : i*d+i+1]
		if j, ok := dense.AllFinite(row); !ok {
			return fmt.Errorf("pgsvi: element (%d, %d) of the matrix parameter is %v: %w", i, j, row[j], ErrNotFinite)
		}
		if row[i] <= 0 {
			return fmt.Errorf("pgsvi: Cholesky factor of dimension %d has %v at %d of its diagonal: %w", d, row[i], i, ErrNotPosDef)
		}
		if v := dense.Dot(dense.Vector(row), dense.Vector(row)); math.IsInf(v, 0) || math.IsInf(1/(row[i]*row[i]), 0) {
			return fmt.Errorf("pgsvi: the scale of dimension %d over- or underflows: %w", i, ErrNotFinite)
		}
	}
	if i, ok := dense.AllFinite(s.m); !ok {
		return fmt.Errorf("pgsvi: element %d of the vector parameter is %v: %w", i, s.m[i], ErrNotFinite)
	}
	s.logV = dense.LogDet(s.l, d)
	g.gaussianState, g.next = g.next, g.gaussianState
	g.filled.Store(false)
	return nil
}

func (g *fullGaussian) Params(dst []float64) []float64 { return g.paramsIn(g.coords, dst) }

func (g *fullGaussian) paramsIn(c Coordinates, dst []float64) []float64 {
	dst = dense.Dest(dst, g.NumParams())
	switch d := g.d; c {
	case MeanCov:
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
		dense.Gemv(blas.NoTrans, 1, dense.General(p, d, d), dense.Vector(g.m), 0, dense.Vector(dst[:d]))
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

func (g *fullGaussian) SetParams(lambda []float64) error { return g.setParamsIn(g.coords, lambda) }

func (g *fullGaussian) setParamsIn(c Coordinates, lambda []float64) error {
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
					return fmt.Errorf("pgsvi: the scale of dimension %d underflows: %w", i, ErrNotFinite)
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

func (g *fullGaussian) Natural(dst []float64) []float64 { return g.paramsIn(Natural, dst) }

func (g *fullGaussian) SetNatural(eta []float64) error { return g.setParamsIn(Natural, eta) }

func (g *fullGaussian) MeanParams(dst []float64) []float64 { return g.paramsIn(MeanParams, dst) }

func (g *fullGaussian) SetMeanParams(mu []float64) error { return g.setParamsIn(MeanParams, mu) }

// LogPartition returns A(η) = ½(mᵀV⁻¹m + log|V| + d log 2π).
func (g *fullGaussian) LogPartition() float64 {
	d := g.d
	p := g.prec()
	var quad float64
	for i := range d {
		quad += g.m[i] * dense.DotRow(p, d, i, g.m)
	}
	return 0.5 * (quad + g.logV + float64(d)*expfam.Log2Pi)
}

func (g *fullGaussian) LogProb(z []float64) float64 {
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

// Score: in the coordinates (m, V), ∇_m = V⁻¹(z − m) and ∇_V = ½(V⁻¹(z − m)(z − m)ᵀV⁻¹ − V⁻¹).
func (g *fullGaussian) Score(dst, z []float64) []float64 {
	d := g.d
	gm, gv, u := make([]float64, d), make([]float64, d*d), make([]float64, d)
	for i := range u {
		u[i] = z[i] - g.m[i]
	}
	p := g.prec()
	dense.Gemv(blas.NoTrans, 1, dense.General(p, d, d), dense.Vector(u), 0, dense.Vector(gm))
	for i := range d {
		for j := range d {
			gv[i*d+j] = 0.5 * (gm[i]*gm[j] - p[i*d+j])
		}
	}
	return g.fromMomentGrad(dst, gm, gv)
}

// transform replaces the standard normal ε by m + Lε.
func (g *fullGaussian) transform(eps []float64) {
	dense.Trmv(blas.NoTrans, dense.LowerTriangle(g.l, g.d), dense.Vector(eps))
	for i, m := range g.m {
		eps[i] += m
	}
}

// standardize stores V⁻¹(z − m) = L⁻ᵀε in dst for z = m + Lε.
func (g *fullGaussian) standardize(dst, eps []float64) {
	copy(dst, eps)
	dense.Trsv(blas.Trans, dense.LowerTriangle(g.l, g.d), dense.Vector(dst))
}

// fromMomentGrad stores in dst the gradient ∇_λ of a function whose gradients
// with respect to m and V are gm (length d) and the symmetric part of gv (d×d).
func (g *fullGaussian) fromMomentGrad(dst, gm, gv []float64) []float64 {
	return g.fromMomentGradIn(g.coords, dst, gm, gv)
}

func (g *fullGaussian) fromMomentGradIn(c Coordinates, dst, gm, gv []float64) []float64 {
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
		v := g.cov()
		dense.MulSquare(w, v, t, d)
		dense.MulSquare(t, w, v, d)
		dense.Gemv(blas.NoTrans, 1, dense.General(v, d, d), dense.Vector(gm), 0, dense.Vector(dst[:d]))
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

// scaleDiag multiplies the diagonal of the packed lower triangle p by L_ii^power, power 1 or −1.
func (g *fullGaussian) scaleDiag(p []float64, power int) {
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
func (g *fullGaussian) toMomentGrad(gm, gv, grad []float64) { g.toMomentGradIn(g.coords, gm, gv, grad) }

func (g *fullGaussian) toMomentGradIn(c Coordinates, gm, gv, grad []float64) {
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
		p := g.prec()
		dense.MulSquare(w, p, t, d)
		dense.MulSquare(gv, w, p, d)
		dense.Gemv(blas.NoTrans, 1, dense.General(p, d, d), dense.Vector(grad[:d]), 0, dense.Vector(gm))
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

// hasFactor reports whether λ is (m, L), in either form.
func (g *fullGaussian) hasFactor() bool { return g.coords == Cholesky || g.coords == LogCholesky }

// factorKL returns KL(q‖p) and stores its gradient ∇_λ in dst where λ is (m, L):
// with P and μ those of p, ∇_m = P(m − μ) and ∇_L is the lower triangle of
// PL − L⁻ᵀ, for which neither V nor V⁻¹ is needed.
func (g *fullGaussian) factorKL(dst []float64, p normalForm) (kl float64) {
	d := g.d
	diff := make([]float64, d)
	for i, m := range g.m {
		diff[i] = m - p.meanAt(i)
	}
	p.mulPrecision(dst[:d], diff)
	a := dst[d:]
	if full, ok := p.(*fullGaussian); ok {
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
	kl = dense.Dot(dense.Vector(diff), dense.Vector(dst[:d])) - float64(d) + p.logDetV() - g.logV
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

func (g *fullGaussian) MeanGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, g.coords, MeanParams)
}

func (g *fullGaussian) FromMeanGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, MeanParams, g.coords)
}

func (g *fullGaussian) FromNaturalGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, Natural, g.coords)
}

func (g *fullGaussian) convertGrad(dst, grad []float64, from, to Coordinates) []float64 {
	dst = dense.Dest(dst, g.NumParams())
	if from == to {
		copy(dst, grad)
		return dst
	}
	gm, gv := make([]float64, g.d), make([]float64, g.d*g.d)
	g.toMomentGradIn(from, gm, gv, grad)
	return g.fromMomentGradIn(to, dst, gm, gv)
}

func (g *fullGaussian) mean() []float64              { return g.m }
func (g *fullGaussian) meanAt(i int) float64         { return g.m[i] }
func (g *fullGaussian) precisionAt(i, j int) float64 { return g.prec()[i*g.d+j] }
func (g *fullGaussian) logDetV() float64             { return g.logV }
func (g *fullGaussian) numGradV() int                { return g.d * g.d }
func (g *fullGaussian) mulPrecision(dst, x []float64) {
	dense.Gemv(blas.NoTrans, 1, dense.General(g.prec(), g.d, g.d), dense.Vector(x), 0, dense.Vector(dst))
}

func (g *fullGaussian) covAt(i, j int) float64 {
	if i == j && !g.filled.Load() {
		return g.variance(i) // the same bits as V has
	}
	return g.cov()[i*g.d+j]
}

func (g *fullGaussian) setForm(p normalForm) bool {
	o, ok := p.(*fullGaussian)
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

func (g *fullGaussian) setPrecision(m, p []float64) error {
	s := &g.next
	copy(s.p, p)
	dense.Gemv(blas.NoTrans, 1, dense.General(s.p, g.d, g.d), dense.Vector(m), 0, dense.Vector(s.m))
	return g.commitNatural()
}

func (g *fullGaussian) marginal(x []float64) (m, v float64) {
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

func (g *fullGaussian) addOuter(gv []float64, c float64, u, w []float64) {
	dense.Ger(c, dense.Vector(u), dense.Vector(w), dense.General(gv, g.d, g.d))
}

func (g *fullGaussian) addPrecision(gv []float64, c float64) {
	dense.Axpy(c, dense.Vector(g.prec()), dense.Vector(gv))
}

func (g *fullGaussian) Chart(dst []float64) []float64 { return g.paramsIn(LogCholesky, dst) }

func (g *fullGaussian) SetChart(x []float64) error { return g.setParamsIn(LogCholesky, x) }

func (g *fullGaussian) ChartGrad(dst, grad []float64) []float64 {
	return g.convertGrad(dst, grad, g.coords, LogCholesky)
}

func (g *fullGaussian) state(c *save.State) {
	d := g.d
	filled := g.filled.Load()
	c.Bool(&filled)
	c.Floats(d, &g.m)
	c.Lower(d, g.l)
	c.Float(&g.logV)
	if filled { // by other ways than L
		c.Floats(d*d, &g.v, &g.p)
	}
	if c.Reading() {
		g.filled.Store(filled)
	}
}
