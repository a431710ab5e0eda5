package pgsvi

import (
	"fmt"
	"math"

	"math/rand/v2"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// weightPrior is N(μ0, Λ0⁻¹).
type weightPrior struct {
	mean []float64
	prec []float64    // Λ0 where it is diagonal, or nil
	full *weightState // Λ0 where it is not
}

// state returns the prior as a dense Gaussian about μ0, new.
func (p *weightPrior) state() (*weightState, error) {
	s := &weightState{}
	if p.full != nil {
		s.copyFrom(p.full)
		return s, nil
	}
	d := len(p.prec)
	s.resize(d)
	for j, l := range p.prec {
		s.p[j*d+j] = l
	}
	if !s.factor() {
		return nil, fmt.Errorf("pgsvi: precision of the prior: %w", ErrNotPosDef)
	}
	return s, nil
}

// weightState is a Gaussian over D weights: precision P and mean, about a mean
// that whoever holds it knows.
type weightState struct {
	p      []float64 // P, lower triangle
	l      []float64 // its Cholesky factor
	inv    []float64 // V = P⁻¹, lower triangle; valid if hasInv
	hasInv bool
	logDet float64 // log|P|
	mean   []float64
}

func (s *weightState) resize(d int) {
	s.p, s.l, s.mean = dense.Resize(s.p, d*d), dense.Resize(s.l, d*d), dense.Resize(s.mean, d)
}

func (s *weightState) copyFrom(o *weightState) {
	d := len(o.mean)
	s.resize(d)
	copy(s.p, o.p)
	copy(s.l, o.l)
	copy(s.mean, o.mean)
	s.logDet, s.hasInv = o.logDet, o.hasInv
	if o.hasInv {
		s.inv = dense.Resize(s.inv, d*d)
		copy(s.inv, o.inv)
	}
}

// factor computes the factor of p and reports whether p is positive definite and finite.
func (s *weightState) factor() bool {
	d := len(s.mean)
	copy(s.l, s.p)
	s.hasInv = false
	if !dense.Cholesky(s.l, d) {
		return false
	}
	s.logDet = dense.LogDet(s.l, d)
	return !math.IsNaN(s.logDet)
}

// invert makes inv valid.
func (s *weightState) invert() {
	if s.hasInv {
		return
	}
	d := len(s.mean)
	s.inv = dense.Resize(s.inv, d*d)
	copy(s.inv, s.l)
	lapack64.Potri(dense.LowerTriangle(s.inv, d))
	s.hasInv = true
}

// variances stores the variances of the rows of x in v.
func (s *weightState) variances(v []float64, x *design, index []int, buf *[]float64) {
	if x.sparse != nil {
		s.invert()
	}
	x.variances(v, s.l, s.inv, index, buf)
}

// moveTo makes s the Gaussian t, whose mean is a move from that of s.
func (s *weightState) moveTo(t *weightState) {
	floats.Add(t.mean, s.mean)
	*s, *t = *t, *s
}

// diagTo stores the diagonal of Λ0 in dst.
func (p *weightPrior) diagTo(dst []float64) {
	copy(dst, p.prec)
	if p.full != nil {
		for j := range dst {
			dst[j] = p.full.p[j*len(dst)+j]
		}
	}
}

// mul stores Λ0z in dst, both D×k.
func (p *weightPrior) mul(dst, z []float64, k int) {
	d := len(p.mean)
	switch {
	case p.full == nil:
		for j, l := range p.prec {
			floats.ScaleTo(dst[j*k:(j+1)*k], l, z[j*k:(j+1)*k])
		}
	case k == 1:
		blas64.Symv(1, dense.Symmetric(p.full.p, d), dense.Vector(z), 0, dense.Vector(dst))
	default:
		clear(dst[:d*k])
		for i := range d {
			di, zi := dst[i*k:(i+1)*k], z[i*k:(i+1)*k]
			for j, l := range p.full.p[i*d : i*d+i] {
				floats.AddScaled(di, l, z[j*k:(j+1)*k])
				floats.AddScaled(dst[j*k:(j+1)*k], l, zi)
			}
			floats.AddScaled(di, p.full.p[i*d+i], zi)
		}
	}
}

// logDet returns log|Λ0|.
func (p *weightPrior) logDet() (s float64) {
	if p.full != nil {
		return p.full.logDet
	}
	for _, l := range p.prec {
		s += math.Log(l)
	}
	return s
}

// solve stores Λ0⁻¹x in dst.
func (p *weightPrior) solve(dst, x []float64) {
	copy(dst, x)
	if p.full != nil {
		dense.Potrs(p.full.l, dst)
		return
	}
	for j, l := range p.prec {
		dst[j] /= l
	}
}

// draw returns a draw of N(0, Λ0⁻¹).
func (p *weightPrior) draw(rng *rand.Rand) []float64 {
	z := make([]float64, len(p.mean))
	for j := range z {
		z[j] = rng.NormFloat64()
		if p.full == nil {
			z[j] /= math.Sqrt(p.prec[j])
		}
	}
	if p.full != nil {
		blas64.Trsv(blas.Trans, dense.LowerTriangle(p.full.l, len(z)), dense.Vector(z))
	}
	return z
}
