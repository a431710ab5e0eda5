package pgsvi

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// diagFamily is the family of diagonal V. Its coordinates are φ_j = −log V_jj.
type diagFamily struct {
	cur, try []float64 // V⁻¹
	metric   []float64 // F⁻¹
}

func newDiagFamily(prec []float64) *diagFamily {
	d := len(prec)
	return &diagFamily{cur: prec, try: make([]float64, d), metric: make([]float64, d)}
}

func (f *diagFamily) size() int { return len(f.cur) }

// gradient is ½(1 − ρ), ρ_j = A_jj V_jj. The Fisher information is ½; F is ½(ρ − 1)/log ρ,
// with which a step without history goes to V⁻¹ = diag(A), however far that is.
func (f *diagFamily) gradient(g []float64, a *weightHessian) {
	for j, p := range f.cur {
		r := a.diag[j] / p
		g[j] = 0.5 * (1 - r)
		r = math.Max(r, 1./16)
		f.metric[j] = 2
		if e := r - 1; math.Abs(e) > 1e-8 {
			f.metric[j] = 2 * math.Log1p(e) / e
		}
	}
}

func (f *diagFamily) natural(g []float64) { floats.Mul(g, f.metric) }

func (f *diagFamily) begin(dst []float64, a *weightHessian) {
	for j, p := range f.cur {
		dst[j] = math.Log(a.diag[j] / p)
	}
}

func (f *diagFamily) begun() bool { return true }

func (f *diagFamily) renew([]float64, *weightHessian) bool { return false }

func (f *diagFamily) move(t float64, delta []float64) {
	for j, p := range f.cur {
		f.try[j] = p * math.Exp(t*delta[j])
	}
}

func (f *diagFamily) secant(dst []float64) {
	for j, p := range f.cur {
		dst[j] = math.Log(p / f.try[j])
	}
}

func (f *diagFamily) variances(v []float64, x *design) {
	for i := range v {
		ind, val := x.row(i)
		var s float64
		if x.sparse == nil {
			for j, z := range val {
				s += z * z / f.try[j]
			}
		}
		for k, j := range ind {
			s += val[k] * val[k] / f.try[j]
		}
		v[i] = s
	}
}

func (f *diagFamily) divergence(p *weightPrior) float64 {
	d := len(f.try)
	var kl float64
	for j, q := range f.try {
		if p.full == nil {
			r := p.prec[j] / q
			kl += r - 1 - math.Log(r)
		} else {
			kl += p.full.p[j*d+j]/q - 1 + math.Log(q)
		}
	}
	if p.full != nil {
		kl -= p.full.logDet
	}
	return 0.5 * kl
}

func (f *diagFamily) accept() { f.cur, f.try = f.try, f.cur }

func (f *diagFamily) precondition(dst, r []float64, a *weightHessian) { floats.DivTo(dst, r, a.diag) }

func (f *diagFamily) cov() weightCov {
	v := make(diagCov, len(f.cur))
	for j, p := range f.cur {
		v[j] = 1 / p
	}
	return v
}
