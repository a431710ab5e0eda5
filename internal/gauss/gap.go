package gauss

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// Gap bounds the gap of a state q = N(m, P⁻¹) of weights with the prior N(μ0, Λ0⁻¹) under
// log-concave log-likelihoods. It uses the natural step from q, which leads to the precision P₊.
// With P = RRᵀ, M = R⁻¹P₊R⁻ᵀ and δ = Λ0(m − μ0) − Xᵀ∂₁ the bound is the lesser of
//
//	G0 = ½δᵀΛ0⁻¹δ + tr(M − I) − log|M|,
//	G2 = [(1 − t)log(1 − t) + t]/ρ² + ½D²/(1 − D),
//
//	λ² = δᵀP₊⁻¹δ, ρ² = max xᵀVx/μ_min, t = λρ < 1,
//	e = λ√(max xᵀVx·μ_max)/(1 − t), D = ‖M − I‖_F + e, μ the eigenvalues of M.
//
// G0 is small only if the mean is nearly stationary in the metric of the prior. G2 is the bound
// of Newton's method on self-concordant functions, and needs |ℓ‴| ≤ |ℓ″|. If D ≥ 1, its last term
// is Σ max(g((1 − t)μ), g(μ/(1 − t))), g(x) = x − 1 − log x. Packages rounds and
// sparse compute the parts.
type Gap struct {
	Own     float64   // δᵀΛ0⁻¹δ
	LogDet  float64   // log|M|
	A       []float64 // M − I, D×D
	D       int
	Bounded bool // |ℓ‴| ≤ |ℓ″|
	Lambda  float64
	Widest  float64 // max xᵀVx
}

// mostEigen is the largest ‖M − I‖_F that replaces the eigenvalues of M as a bound. Above it the
// eigenvalues are computed.
const mostEigen = 0.1

// Bound returns the bound.
func (b *Gap) Bound(h *parallel.Halt) float64 {
	trace := 0.0
	for j := range b.D {
		trace += b.A[j*b.D+j]
	}
	bound := 0.5*b.Own + math.Max(0, trace-b.LogDet)
	if !b.Bounded {
		return bound
	}
	norm := floats.Norm(b.A, 2)
	low, high := 1-norm, 1+norm
	var mu []float64
	if norm > mostEigen {
		mu = make([]float64, b.D)
		if !dense.Eigenvalues(h, mu, append([]float64(nil), b.A...), b.D) {
			return bound
		}
		for j := range mu {
			mu[j]++
		}
		low, high = mu[0], mu[b.D-1]
	}
	if !(low > 0) {
		return bound
	}
	rho := math.Sqrt(b.Widest / low)
	t := b.Lambda * rho
	if !(t < 1) {
		return bound
	}
	mean := 0.5 * b.Lambda * b.Lambda
	if t > 1e-4 {
		mean = ((1-t)*math.Log1p(-t) + t) / (rho * rho)
	} else {
		mean *= 1 + t // (1 − t)log(1 − t) + t = t²/2 + t³/6 + …
	}
	dist := norm + b.Lambda*math.Sqrt(b.Widest*high)/(1-t)
	cov := 0.5 * dist * dist / (1 - dist)
	if !(dist < 1) {
		if cov = 0; mu == nil {
			return bound
		}
		g := func(x float64) float64 { return x - 1 - math.Log(x) }
		for _, v := range mu {
			cov += math.Max(g((1-t)*v), g(v/(1-t)))
		}
	}
	return math.Min(bound, mean+cov)
}
