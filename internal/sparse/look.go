package sparse

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// Look is the result of a pass at one state.
type Look struct {
	ELBO, Err float64
	// Error of the ELBO due to rounding of the features. All states have the same error, so their
	// differences are not affected.
	Blurred float64
	Next    gauss.Gaussian // end of the natural step
	Promise float64        // predicted gain of that step, ½ΔmᵀP₊Δm + ¼tr((VΔP)²)
	// Proved bound on the gap. It is +Inf if no bound is known, and 0 if proofs are off.
	Bound float64
	gram  []float64 // F diag(−∂₂)Fᵀ, lower triangle
	slope []float64 // F∂₁
}

// At evaluates the state q. It returns the errors of run, or an error that wraps
// sentinel.ErrNotPosDef.
func (p *Pass) At(q *gauss.Gaussian) (*Look, error) {
	if err := p.run(q); err != nil {
		return nil, err
	}
	m, s := p.Z.Rank(), p.sum()
	x := &Look{Err: s.err, Blurred: s.blurred + 0.5*s.pull*s.pull}
	q.Halt = p.Workers.Halt
	q.Invert()
	if err := p.Workers.Halt.Err(); err != nil {
		return nil, err
	}
	trace := 0.0
	for j := range m {
		trace += q.Inv[j*m+j]
	}
	kl := 0.5 * (trace + floats.Dot(q.Mean, q.Mean) - float64(m) + q.LogDet)
	x.ELBO = s.value - kl
	x.Err += dense.Epsilon * float64(m) * (trace + math.Abs(q.LogDet)) // rounding of the algebra
	n := &x.Next
	n.Resize(m)
	n.Halt = p.Workers.Halt
	step := func(gram []float64) bool {
		copy(n.P, gram)
		for j := range m {
			n.P[j*m+j]++
		}
		return n.Factor()
	}
	x.gram, x.slope = append([]float64(nil), s.gram...), append([]float64(nil), s.slope...)
	floats.Sub(x.gram, s.clipped)
	if ok := step(x.gram) || step(s.gram); p.Workers.Halt.Stopped() {
		return nil, p.Workers.Halt.Err()
	} else if !ok {
		return nil, fmt.Errorf("the precision of the natural step: %w", sentinel.ErrNotPosDef)
	}

	// Δm and M − I, with M = R⁻¹P₊R⁻ᵀ.
	d := make([]float64, m)
	floats.SubTo(d, x.slope, q.Mean)
	dense.Potrs(n.L, d)
	floats.AddTo(n.Mean, q.Mean, d)
	dense.Trmv(blas.Trans, dense.LowerTriangle(n.L, m), dense.Vector(d))
	a := append([]float64(nil), n.P...)
	dense.FillUpper(a, m)
	g := dense.General(a, m, m)
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(q.L, m), g)
	dense.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(q.L, m), g)
	for j := range m {
		a[j*m+j]--
	}
	x.Promise = 0.5*floats.Dot(d, d) + 0.25*floats.Dot(a, a)
	if p.From == 0 && p.Lik.Concave() { // no proof is needed for a part of the rows
		if x.Bound = math.Inf(1); s.certain {
			x.Bound = goals.Bound(p.prove(x, q, a, s.widest)) + p.Z.jitterGap(x.gram, x.slope)
		}
	}
	return x, p.Workers.Halt.Err()
}

// At a start, one in glanceEvery blocks or more gets a Gram matrix, so that there are glanceRows
// rows per inducing input. A matrix of n rows leaves M/n of the gain of a Newton step of the
// mean, and about M²/4n nats of the covariance.
const (
	glanceEvery = 4
	glanceRows  = 50
)

// newton returns the end of a Newton step of the mean from q, with the curvature as precision.
// Both are at V = 0, and the curvature comes from some blocks of the rows:
//
//	P₊ = I + (N/n) F diag(t)Fᵀ,   P₊(m₊ − m) = F∂₁ − m.
//
// The pass costs at most half as much as a full one. gain = ½ΔmᵀP₊Δm is the predicted gain over
// N(m, P₊⁻¹), whose ELBO is nearly Σ log p(y_n|η_n) − ½‖m‖² − ½log|P₊|. Under Gaussian noise all
// blocks count, and the step is exact. The errors are those of At.
func (p *Pass) newton(q *gauss.Gaussian) (next *gauss.Gaussian, elbo, gain float64, err error) {
	p.glance = true
	defer func() { p.glance = false }()
	if err := p.run(q); err != nil {
		return nil, 0, 0, err
	}
	m, s := p.Z.Rank(), p.sum()
	next = &gauss.Gaussian{Halt: p.Workers.Halt}
	next.Resize(m)
	copy(next.P, s.gram)
	floats.Scale(float64(p.len())/float64(s.curved), next.P)
	for j := range m {
		next.P[j*m+j]++
	}
	if ok := next.Factor(); p.Workers.Halt.Stopped() {
		return nil, 0, 0, p.Workers.Halt.Err()
	} else if !ok {
		return nil, 0, 0, fmt.Errorf("the curvature of the mean: %w", sentinel.ErrNotPosDef)
	}
	floats.SubTo(next.Mean, s.slope, q.Mean)
	half := append([]float64(nil), next.Mean...)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(next.L, m), dense.Vector(half))
	gain = 0.5 * floats.Dot(half, half)
	dense.Potrs(next.L, next.Mean)
	floats.Add(next.Mean, q.Mean)
	if _, ok := dense.AllFinite(next.Mean); !ok {
		return nil, 0, 0, fmt.Errorf("a Newton step of the mean: %w", sentinel.ErrNotFinite)
	}
	return next, s.value - 0.5*(floats.Dot(q.Mean, q.Mean)+next.LogDet), gain, nil
}

// prove returns a bound on the gap of q, given M − I in a and the largest fᵀVf.
func (p *Pass) prove(x *Look, q *gauss.Gaussian, a []float64, widest float64) float64 {
	m := len(q.Mean)
	delta := make([]float64, m) // m − F∂₁
	floats.SubTo(delta, q.Mean, x.slope)
	gap := gauss.Gap{Own: floats.Dot(delta, delta), LogDet: x.Next.LogDet - q.LogDet, A: a, D: m,
		Widest: widest}
	if p.Z.Jitter == 0 && p.Lik.SelfBounded() { // jitterGap adds to G0 alone
		dense.Trsv(blas.NoTrans, dense.LowerTriangle(x.Next.L, m), dense.Vector(delta))
		gap.Bounded, gap.Lambda = true, floats.Norm(delta, 2)
	}
	return gap.Bound(p.Workers.Halt)
}

// jitterGap returns a bound on the cost of the jitter j at a state with G = F diag(−∂₂)Fᵀ and
// F∂₁. Without the jitter the prior covariance of the rows would be larger by
//
//	Δ = jFᵀ(LᵀL − jI)⁻¹F,
//
// the covariance of a function that is independent of the weights. If that function has its
// prior, the bound G0 of a gauss.Gap grows by at most tr(diag(−∂₂)Δ) + ½∂₁ᵀΔ∂₁. This holds only
// for G0: G2 bounds the weights alone, and their joint gain with that function is not proved to
// be the sum.
func (u *Inducing) jitterGap(gram, slope []float64) float64 {
	if u.Jitter == 0 {
		return 0
	}
	m, first := u.Rank(), u.Wholes()
	n := m - first
	rest := func(a []float64) blas64.General {
		return blas64.General{Rows: n, Cols: n, Stride: m, Data: a[first*m+first:]}
	}
	a := make([]float64, n*n)
	dense.Gemm(blas.Trans, blas.NoTrans, 1, rest(u.L), rest(u.L), 0, dense.General(a, n, n))
	for i := range n { // plus the rounding error
		a[i*n+i] += jitterRoundings*dense.Epsilon*float64(n)*u.Jitter/jitterPart - u.Jitter
	}
	if !dense.Cholesky(a, n) {
		return math.Inf(1)
	}
	l, d := dense.LowerTriangle(a, n), slices.Clone(slope[first:])
	g := dense.General(make([]float64, n*n), n, n)
	for i := range n {
		for j := range n {
			g.Data[i*n+j] = gram[(first+max(i, j))*m+first+min(i, j)]
		}
	}
	dense.Trsm(blas.Left, blas.NoTrans, 1, l, g)
	dense.Trsm(blas.Right, blas.Trans, 1, l, g)
	dense.Trsv(blas.NoTrans, l, dense.Vector(d))
	bound := 0.5 * floats.Dot(d, d)
	for i := range n {
		bound += math.Max(0, g.Data[i*n+i])
	}
	return u.Jitter * bound
}

// jitterRoundings times machine precision bounds the relative rounding error of a product of
// matrices.
const jitterRoundings = 10

// State writes or reads everything that later steps depend on.
func (x *Look) State(c *save.Coder, m int) {
	c.Float(&x.ELBO, &x.Err, &x.Blurred, &x.Promise, &x.Bound)
	x.Next.State(c, m)
}

// Digest adds the model to d, with the rows of the sample.
func (p *Pass) Digest(d *save.Digest) {
	p.Rows.Digest(d, p.Lik)
	p.Z.Digest(d)
}
