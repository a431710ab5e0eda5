// Package gauss represents Gaussians of the weights of a linear model. It has priors, and
// precisions that add up over rows, in float64 or with twice its digits. Covariances are full,
// diagonal, low-rank, or given by sites of the rows. GLMs and sparse GPs use it: Gaussian is the
// distribution that the engines step, and Cov is the covariance of a finished posterior (cov.go).
package gauss

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// Gaussian is a normal distribution over D weights, with the precision P and a mean relative to a
// point that the caller chooses. If features are collinear in float64, or nearly so, P, its factor
// and results of it have twice the digits as sums Hi + Lo. Their high parts are then in P, L and
// Mean.
type Gaussian struct {
	P      []float64 // precision, lower triangle
	L      []float64 // its Cholesky factor
	Inv    []float64 // V = P⁻¹, lower triangle; valid if hasInv
	hasInv bool
	LogDet float64 // log|P|
	Mean   []float64

	Double              bool      // pLow, lLow and MeanLow are valid
	pLow, lLow, MeanLow []float64 // low parts of P, L and, after Solve, Mean
	// If Halt has stopped, Factor returns false and Invert computes nothing useful.
	Halt *parallel.Halt
}

// A pivot L_jj² is the part of P_jj that the weights before j leave. Its ratio to P_jj does not
// depend on units. A factor in float64 has about 16 + log₁₀(L_jj²/P_jj) correct digits, and a
// factor with twice the digits has 32 + log₁₀(L_jj²/P_jj).
const (
	// least ratio for float64: the ELBO keeps nine digits, and a mean the remaining digits
	LeastPivot       = 1e-6
	orderedPivot     = 1e-3  // below it V measures the lost digits
	LeastDoublePivot = 1e-26 // below it V has fewer than six digits, even with twice the digits
	noPivot          = 1e-29 // below it V has no digits
)

// epsilonDouble is the error of a factor with twice the digits, relative to its least ratio,
// measured against arithmetic of 400 bits.
const epsilonDouble = 0x1p-106

// Resize prepares s for d weights. The numbers are unspecified.
func (s *Gaussian) Resize(d int) {
	s.P, s.L, s.Mean = dense.Resize(s.P, d*d), dense.Resize(s.L, d*d), dense.Resize(s.Mean, d)
}

// precision, cholesky and shift return P, its factor and the mean with all their digits. The low
// parts are empty unless s.Double is set.
func (s *Gaussian) precision() dense.Double { return dense.Double{Hi: s.P, Lo: s.pLow} }
func (s *Gaussian) cholesky() dense.Double  { return dense.Double{Hi: s.L, Lo: s.lLow} }
func (s *Gaussian) shift() dense.Double     { return dense.Double{Hi: s.Mean, Lo: s.MeanLow} }

// Widen gives s twice the digits. The low parts of P become 0 if s had none.
func (s *Gaussian) Widen() {
	d := len(s.Mean)
	s.pLow, s.lLow, s.MeanLow = dense.Resize(s.pLow, d*d), dense.Resize(s.lLow, d*d),
		dense.Resize(s.MeanLow, d)
	if !s.Double {
		clear(s.pLow)
		s.Double = true
	}
}

// CopyPrecision copies P from o.
func (s *Gaussian) CopyPrecision(o *Gaussian) {
	s.Resize(len(o.Mean))
	dense.CopyLower(nil, s.P, o.P, len(o.Mean))
	if s.Double = o.Double; s.Double {
		s.Widen()
		copy(s.pLow, o.pLow)
	}
}

// CopyFrom copies o to s, with its factor and, if it has one, its inverse.
func (s *Gaussian) CopyFrom(o *Gaussian) {
	d := len(o.Mean)
	s.CopyPrecision(o)
	dense.CopyLower(nil, s.L, o.L, d)
	copy(s.Mean, o.Mean)
	if s.Double {
		copy(s.lLow, o.lLow)
		copy(s.MeanLow, o.MeanLow)
	}
	s.LogDet, s.hasInv = o.LogDet, o.hasInv
	if o.hasInv {
		s.Inv = dense.Resize(s.Inv, d*d)
		copy(s.Inv, o.Inv)
	}
}

// Average sets P to t times the P of a plus (1 − t) times the P of b. It does not compute the
// factor. Either of them may be s.
func (s *Gaussian) Average(t float64, a, b *Gaussian) {
	if !a.Double && !b.Double {
		s.Resize(len(a.Mean))
		s.Double = false
		for j, p := range a.P {
			s.P[j] = t*p + (1-t)*b.P[j]
		}
		return
	}
	var sum dense.Double
	sum.Resize(len(a.P))
	sum.Clear()
	for _, part := range []struct {
		weight float64
		of     *Gaussian
	}{{t, a}, {1 - t, b}} {
		if part.of.Double {
			sum.AddDouble(part.weight, part.of.precision())
		} else {
			sum.AddScaled(part.weight, part.of.P)
		}
	}
	sum.Round()
	s.Resize(len(a.Mean))
	s.Widen()
	copy(s.P, sum.Hi)
	copy(s.pLow, sum.Lo)
}

// Factor computes the factor of P and reports whether P is positive definite and finite.
func (s *Gaussian) Factor() bool {
	d := len(s.Mean)
	s.hasInv = false
	dense.CopyLower(nil, s.L, s.P, d)
	if s.Double {
		copy(s.lLow, s.pLow)
		if !(s.cholesky().CholeskyUntil(s.Halt, d) > noPivot) {
			return false
		}
	} else if !dense.CholeskyUntil(s.Halt, s.L, d) {
		return false
	}
	s.LogDet = dense.LogDet(s.L, d)
	return !math.IsNaN(s.LogDet)
}

// factorDiagonal is Factor for a diagonal P and an L of zeros.
func (s *Gaussian) factorDiagonal() bool {
	d := len(s.Mean)
	for j := 0; j < d*d; j += d + 1 {
		if s.L[j] = math.Sqrt(s.P[j]); !(s.L[j] > 0 && s.L[j] <= math.MaxFloat64) {
			return false
		}
	}
	s.LogDet = dense.LogDet(s.L, d)
	return true
}

// Pivot returns the least ratio of a pivot of s to a diagonal element of the precision of o.
func (s *Gaussian) Pivot(o *Gaussian) float64 {
	least, d := 1.0, len(s.Mean)
	for j := 0; j < d*d; j += d + 1 {
		least = math.Min(least, s.L[j]*s.L[j]/o.P[j])
	}
	return least
}

// Rounding estimates the error of log|P|, in nats. It is 0 if float64 or twice its digits
// suffice.
func (s *Gaussian) Rounding() float64 {
	if !s.Double {
		return 0
	}
	p := s.Pivot(s)
	if p >= LeastDoublePivot {
		return 0
	}
	return epsilonDouble / p * float64(len(s.Mean))
}

// Resolution bounds the error of log|P|, in nats, in float64. It is 0 with twice the
// digits.
func (s *Gaussian) Resolution() float64 {
	if s.Double {
		return 0
	}
	p, d := s.Pivot(s), len(s.Mean)
	scaled := float64(d) / p
	// Pivots depend on the order of the weights. V in units in which P_jj is 1 gives the true
	// number of lost digits.
	if p < orderedPivot {
		if s.Invert(); !s.hasInv {
			return math.Inf(1)
		}
		var trace float64
		for j := 0; j < d*d; j += d + 1 {
			trace += s.P[j] * s.Inv[j]
		}
		scaled = max(scaled, trace)
	}
	return dense.Epsilon * scaled
}

// Add computes P = base + Xᵀ diag(w) X, for the rows of x at index, and its factor. It reports
// whether P is positive definite and resolved. It takes twice the digits if float64 has too few.
// The weights w may have any sign. Buf is scratch.
func (s *Gaussian) Add(base *Gaussian, x *design.Matrix, w []float64, index []int,
	buf *design.Work) bool {
	s.CopyPrecision(base)
	if !s.Double {
		s.AddRows(x, w, index, buf)
		if s.Factor() && s.Pivot(s) >= LeastPivot {
			return true
		}
		if s.Halt.Stopped() {
			return false
		}
		copy(s.P, base.P)
		s.Widen()
	}
	s.AddRows(x, w, index, buf)
	ok := s.Factor()
	if ok && s.Pivot(s) >= LeastPivot || !ok && !base.Double {
		s.Double = false
	}
	return ok
}

// AddRows adds Xᵀ diag(w) X to P with the digits that s has. It does not compute the factor.
func (s *Gaussian) AddRows(x *design.Matrix, w []float64, index []int, buf *design.Work) {
	for _, wa := range w {
		if wa != 0 {
			buf.Rows++
		}
	}
	if !s.Double {
		x.AddGram(s.P, w, index, buf)
		return
	}
	p := s.precision()
	for a, wa := range w {
		if s.Halt.Stopped() {
			return
		}
		if wa != 0 {
			ind, val := x.Row(dense.Index(index, a))
			p.AddOuter(x.Cols, wa, ind, val)
		}
	}
	p.Round()
}

// Solve sets the mean to P⁻¹Xᵀu. Buf is scratch.
func (s *Gaussian) Solve(x *design.Matrix, u []float64, index []int, buf *design.Work) {
	if !s.Double {
		clear(s.Mean)
		x.AddMulTOn(s.Mean, u, index, buf)
		dense.Potrs(s.L, s.Mean)
		return
	}
	h := s.shift()
	h.Clear()
	x.AddMulTDouble(h, u, index, buf)
	s.Apply(h)
}

// Apply replaces h by P⁻¹h.
func (s *Gaussian) Apply(h dense.Double) {
	if s.Double {
		s.cholesky().Potrs(h)
	}
	h.Round()
	if !s.Double {
		dense.Potrs(s.L, h.Hi)
	}
}

// Whiten replaces z by R⁻¹z, for the factor P = RRᵀ.
func (s *Gaussian) Whiten(z dense.Double) {
	r := s.cholesky()
	if !s.Double {
		r.Lo = make([]float64, len(s.L))
	}
	r.Trsv(z)
}

// PackLow returns the low part of P, packed like PackLower. It returns nil if s has no low parts.
func (s *Gaussian) PackLow() []float64 {
	if !s.Double {
		return nil
	}
	return dense.PackLower(s.pLow, len(s.Mean))
}

// Residual stores Xᵀu − Pw in r, computed with twice the digits, where w is the mean of t. Buf is
// scratch.
func (s *Gaussian) Residual(r dense.Double, t *Gaussian, x *design.Matrix, u []float64,
	buf *design.Work) {
	r.Clear()
	x.AddMulTDouble(r, u, nil, buf)
	d := len(s.Mean)
	for i := range d {
		for j := range i + 1 {
			p := s.P[i*d+j]
			if p == 0 {
				continue
			}
			r.AddAt(i, -p, t.Mean[j])
			if j < i {
				r.AddAt(j, -p, t.Mean[i])
			}
			if s.Double {
				r.Lo[i] -= s.pLow[i*d+j] * t.Mean[j]
				if j < i {
					r.Lo[j] -= s.pLow[i*d+j] * t.Mean[i]
				}
			}
			if t.Double {
				r.Lo[i] -= p * t.MeanLow[j]
				if j < i {
					r.Lo[j] -= p * t.MeanLow[i]
				}
			}
		}
	}
	r.Round()
}

// Predict stores X times the mean in dst.
func (s *Gaussian) Predict(dst []float64, x *design.Matrix, index []int) {
	if !s.Double {
		x.MulOn(s.Halt, dst, s.Mean, index)
		return
	}
	x.MulDouble(dst, s.shift(), index)
}

// Square returns δᵀPδ for the mean δ of t. W is scratch.
func (s *Gaussian) Square(t *Gaussian, w *dense.Double) float64 {
	n := len(s.Mean)
	w.Resize(n)
	copy(w.Hi, t.Mean)
	if s.Double {
		clear(w.Lo)
		if t.Double {
			copy(w.Lo, t.MeanLow)
		}
		s.cholesky().MulTrans(*w)
	} else {
		dense.Trmv(blas.Trans, dense.LowerTriangle(s.L, n), dense.Vector(w.Hi))
	}
	return floats.Dot(w.Hi, w.Hi)
}

// Invert computes Inv.
func (s *Gaussian) Invert() {
	if s.hasInv {
		return
	}
	d := len(s.Mean)
	s.Inv = dense.Resize(s.Inv, d*d)
	if s.Double {
		s.cholesky().InverseUntil(s.Halt, s.Inv, d)
		s.hasInv = !s.Halt.Stopped()
		return
	}
	copy(s.Inv, s.L)
	dense.InvertUntil(s.Halt, s.Inv, d)
	s.hasInv = !s.Halt.Stopped()
}

// Variances stores the variances of the rows of x in v.
func (s *Gaussian) Variances(v []float64, x *design.Matrix, index []int, buf *design.Work) {
	if x.Sparse != nil {
		s.Invert()
	}
	s.variancesBy(s.Inv, v, x, index, buf)
}

// variancesBy is Variances with the given inverse of the precision. Only sparse rows use it.
func (s *Gaussian) variancesBy(inv, v []float64, x *design.Matrix, index []int, buf *design.Work) {
	if s.Double {
		x.VariancesDouble(v, s.cholesky(), inv, index, buf)
		return
	}
	x.Variances(v, s.L, inv, index, buf)
}

// MoveTo replaces s by t, whose mean is relative to the mean of s.
func (s *Gaussian) MoveTo(t *Gaussian) {
	floats.Add(t.Mean, s.Mean)
	*s, *t = *t, *s
}

// State writes or reads a Gaussian of d weights.
func (s *Gaussian) State(c *save.Coder, d int) {
	if c.Reading() {
		if !c.Holds(d+1, d) {
			return
		}
		s.Resize(d)
		s.hasInv = false
	}
	c.Lower(d, s.P)
	c.Lower(d, s.L)
	c.Floats(d, &s.Mean)
	c.Float(&s.LogDet)
	if c.Bool(&s.Double); !s.Double || c.Err() != nil {
		return
	}
	if c.Reading() {
		s.Widen()
	}
	c.Lower(d, s.pLow)
	c.Lower(d, s.lLow)
	c.Floats(d, &s.MeanLow)
}

// Between sets s to the state whose natural parameters are (1 − t) times the natural parameters
// of a plus t times the parameters of b. It returns false if no such state exists or h has
// stopped.
func (s *Gaussian) Between(a, b *Gaussian, t float64, h *parallel.Halt) bool {
	d := len(a.Mean)
	s.Average(t, b, a)
	if s.Halt = h; !s.Factor() {
		return false
	}
	clear(s.Mean)
	for i, q := range [2]*Gaussian{b, a} {
		w := [2]float64{t, 1 - t}[i]
		for r := range d {
			var sum float64
			for c, v := range q.Mean {
				sum += q.P[max(r, c)*d+min(r, c)] * v
			}
			s.Mean[r] += w * sum
		}
	}
	dense.Potrs(s.L, s.Mean)
	_, ok := dense.AllFinite(s.Mean)
	return ok
}
