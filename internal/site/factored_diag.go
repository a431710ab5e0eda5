package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// This file holds DiagFamily, the covariances diag(v) of a FactoredAlgebra. lowrank.go holds the
// low-rank ones.

// DiagFamily is the covFamily of diagonal V. Its coordinates are φ_j = −log V_jj.
type DiagFamily struct {
	Cur, try []float64 // V⁻¹
	metric   []float64 // F⁻¹
	v        []float64 // variances of try
	straight bool      // moves are straight in V, by −δ_j times V_jj, instead of in its logarithm
}

// newDiagFamily returns the family with V = diag(prec)⁻¹. It keeps prec.
func newDiagFamily(prec []float64) *DiagFamily {
	d := len(prec)
	return &DiagFamily{Cur: prec, try: make([]float64, d), metric: make([]float64, d)}
}

// Size implements covFamily.
func (f *DiagFamily) Size() int { return len(f.Cur) }

// Gradient implements covFamily. It is ½(1 − ρ) with ρ_j = A_jj V_jj. The Fisher information is
// ½. F is ½(ρ − 1)/log ρ, because a step without history then reaches V⁻¹ = diag(A) from any
// distance.
func (f *DiagFamily) Gradient(g []float64, a *WeightHessian) {
	for j, p := range f.Cur {
		r := a.diag[j] / p
		g[j] = 0.5 * (1 - r)
		r = math.Max(r, 1./16)
		f.metric[j] = 2
		if e := r - 1; math.Abs(e) > 1e-8 {
			f.metric[j] = 2 * math.Log1p(e) / e
		}
	}
}

// natural implements covFamily.
func (f *DiagFamily) natural(g []float64) { floats.Mul(g, f.metric) }

// begin implements covFamily.
func (f *DiagFamily) begin(dst []float64, a *WeightHessian) {
	f.straight = false
	for j, p := range f.Cur {
		dst[j] = math.Log(a.diag[j] / p)
	}
}

// begun implements covFamily.
func (f *DiagFamily) begun() bool { return true }

// renew implements covFamily.
func (f *DiagFamily) renew([]float64, *WeightHessian) bool { return false }

// Move implements covFamily.
func (f *DiagFamily) Move(t float64, delta []float64) {
	for j, p := range f.Cur {
		if f.straight {
			f.try[j] = p / (1 - t*delta[j])
		} else {
			f.try[j] = p * math.Exp(t*delta[j])
		}
	}
}

// secant implements covFamily.
func (f *DiagFamily) secant(dst []float64) {
	for j, p := range f.Cur {
		dst[j] = math.Log(p / f.try[j])
	}
}

// Variances implements covFamily.
func (f *DiagFamily) Variances(v []float64, x *design.Matrix, s *design.Work) {
	f.v = dense.Resize(f.v, len(f.try))
	for j, p := range f.try {
		f.v[j] = 1 / p
	}
	x.QuadDiagOn(s.Halt, v, f.v, nil)
}

// Divergence implements covFamily.
func (f *DiagFamily) Divergence(p *gauss.Prior) float64 {
	d := len(f.try)
	var kl float64
	for j, q := range f.try {
		if p.Full == nil {
			r := p.Prec[j] / q
			kl += r - 1 - math.Log(r)
		} else {
			kl += p.Full.P[j*d+j]/q - 1 + math.Log(q)
		}
	}
	if p.Full != nil {
		kl -= p.Full.LogDet
	}
	return 0.5 * kl
}

// Accept implements covFamily.
func (f *DiagFamily) Accept() { f.Cur, f.try = f.try, f.Cur }

// precondition implements covFamily.
func (f *DiagFamily) precondition(dst, r []float64,
	a *WeightHessian) {
	floats.DivTo(dst, r, a.diag)
}

// cov implements covFamily.
func (f *DiagFamily) cov() gauss.Cov {
	v := make(gauss.Diagonal, len(f.Cur))
	for j, p := range f.Cur {
		v[j] = 1 / p
	}
	return v
}

// state implements covFamily.
func (f *DiagFamily) state(c *save.Coder) {
	c.Floats(len(f.try), &f.Cur)
	c.Bool(&f.straight)
}
