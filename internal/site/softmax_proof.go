package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// This file proves gap bounds for linear softmax models. A contrast mean field (softmax.go) has
// no proof of its own optimum, because its best P is not known to be the only one. But it is a
// Gaussian of the contrasts, and for a Gaussian of any covariance V the expectations are convex
// in the mean and in B, where V′ = LB²Lᵀ and LLᵀ = V. With the curvature of a term, H = E[diag π
// − ππᵀ], with Γ = ΣX_nᵀH_nX_n and δ = Λμ − ΣX_nᵀα̂_n, no Gaussian has an ELBO of more nats above
// q than
//
//	½δᵀΛ⁻¹δ + tr (Λ + Γ)V − (K − 1)D − log|(Λ + Γ)V|
//	  = ½δᵀΛ⁻¹δ + log|C|/|V| + Σ (h_nc − γ_nc)v_nc − log|Λ + Γ| + K log|Λ|,
//
// where h is the diagonal of H and the last determinants are over all KD weights. At the optimum
// of the mean field the bound is about twice the loss by its independent classes. BaseAlgebra.Evaluate
// calls prove (see prover in base.go).

const (
	// contrastProof is the gap, in nats, below which the bound is proved. It is proved again
	// whenever the gap has fallen by contrastProofFall, until the rest of the bound is the loss
	// of the family (contrastProofPart). A proof takes the time of several passes, and most early
	// proofs would be repeated.
	contrastProof     = 1e-3
	contrastProofFall = 0.05
	contrastProofPart = 0.01

	// contrastValley is the gap, in nats, below which Newton's steps first check the predicted
	// gain of the precisions, if these are in a flat valley. Otherwise they do so below
	// contrastProof.
	contrastValley = 0.1

	// contrastSharp is the ratio of the gain found by Newton's steps to the estimate of the gap
	// without it. Above that ratio rounds are no longer trusted.
	contrastSharp = 10

	// A proof takes (KD)²(N + KD)/2 operations and as much memory as a matrix of KD rows. More
	// than contrastProofMost weights have no proof.
	contrastProofMost = 3000

	// contrastProofRows is the number of rows that are read together.
	contrastProofRows = 512

	// curvatureErr bounds the errors of the first and second derivatives of expectations, a
	// hundred times the tolerance of their quadrature. The sums of rows of H are a check.
	curvatureErr  = 1e-9
	curvatureSafe = 10
)

// softmaxProofSize returns how many numbers the proof of K classes of d weights keeps, apart
// from a few numbers per row.
func softmaxProofSize(k, d int) float64 {
	kd, pairs := float64(k)*float64(d), float64(k)*float64(k+1)/2
	if kd > contrastProofMost {
		return 0
	}
	return kd*kd + pairs*float64(d*d+contrastProofRows)
}

// prove implements prover.
func (a *softmaxBase) prove(within float64) (Proof, error) {
	p, s := Proof{made: true, bound: math.Inf(1)}, a.of
	if !s.Batched || !a.moved {
		return p, nil
	}
	gap := a.settle(within)
	if a.crew.Halt.Stopped() {
		a.sure = 0
		return p, a.crew.Halt.Err()
	}
	if !s.Terms.Concave() || !s.Cur.Certain || a.k*a.x.Cols > contrastProofMost {
		return p, nil
	}
	if gap > a.due && !(gap <= within && a.due > 0) {
		return p, nil
	}
	mean, rest, ok := a.loss()
	if a.crew.Halt.Stopped() {
		return p, a.crew.Halt.Err()
	}
	if ok {
		p.bound = goals.Bound(mean + rest)
	}
	a.due = min(a.due, contrastProofFall*gap)
	if mean+gap <= contrastProofPart*rest {
		a.due = 0
	}
	return p, nil
}

// settle returns the gap. If the gap may meet a goal, and the first time, Newton's steps compute
// the gain that the precisions still have.
func (a *softmaxBase) settle(within float64) (gap float64) {
	a.sure = 0
	gap = a.decrement()
	most, first := max(within, contrastGoal, a.check), a.check == contrastProof
	if !(gap <= most || a.sharp && gap <= contrastProof ||
		first && gap <= contrastValley && a.flat(a.cur.p)) {
		return gap
	}
	about := gap - a.aims.promise
	a.sure = a.precisions(contrastPart * gap)
	a.sharp, a.check = a.sure > contrastSharp*about, contrastProofFall*gap
	return a.decrement()
}

// loss returns the parts of the bound of the current state that belong to the mean and to the
// covariance.
func (a *softmaxBase) loss() (mean, rest float64, ok bool) {
	d, k, s := a.x.Cols, a.k, &a.of.Batch.Cur
	kd := k * d
	m, diag := make([]float64, kd*kd), make([]float64, len(s.V))
	size, off, ok := a.curvature(m, diag)
	if !ok {
		return 0, 0, false
	}
	for i, l := range a.prec {
		m[i*(kd+1)] += l
	}
	if !dense.CholeskyUntil(a.crew.Halt, m, kd) {
		return 0, 0, false
	}
	logDet := dense.LogDet(m, kd)
	rest = s.LogDet - logDet
	magnitude := math.Abs(s.LogDet) + math.Abs(logDet)
	for _, l := range a.prec {
		rest += math.Log(l)
		magnitude += math.Abs(math.Log(l))
	}
	for i, v := range s.V {
		rest += (diag[i] - s.Gamma[i]) * v
		magnitude += (diag[i] + s.Gamma[i]) * v
	}
	// The errors of derivatives enter both parts: the error of H at most by x_nᵀΛ⁻¹x_n.
	reach, own := make([]float64, a.x.Rows), make([]float64, a.x.Rows)
	for c := range k {
		if c == 0 || a.gauge != nil {
			a.reach(own, c)
		}
		floats.Add(reach, own)
	}
	slack := 0.0
	for n, r := range reach {
		e := off * size[n]
		rest += e * (r + floats.Sum(s.V[n*k:(n+1)*k]))
		slack += e * math.Sqrt(r)
	}
	rest += dense.Epsilon * float64(kd) * magnitude
	r := make([]float64, kd)
	a.gather(r, s.D1)
	for i, g := range r {
		l := a.prec[i]
		g -= l * a.cur.weight[i]
		mean += g * g / l
	}
	mean = math.Sqrt(mean) + slack
	return 0.5 * mean * mean, max(rest, 0), !math.IsNaN(mean + rest)
}

// curvature adds ΣX_nᵀH_nX_n to the lower triangle of m, and stores the diagonals of the H in
// diag. It returns the weights of the rows, and a bound on the error of a derivative of a row of
// weight 1.
func (a *softmaxBase) curvature(m, diag []float64) (weights []float64, off float64, ok bool) {
	d, k, n, s, t := a.x.Cols, a.k, a.x.Rows, &a.of.Batch.Cur, a.of.Terms
	kd, pairs := k*d, k*(k+1)/2
	rows := min(n, contrastProofRows)
	weights = make([]float64, n)
	h, index, blocks := make([]float64, pairs*rows), make([]int, rows), make([]float64, pairs*d*d)
	of := make([]float64, rows)
	workers := max(1, a.crew.Halt.Workers())
	work := make([]struct {
		h, shown []float64
		design.Work
	}, workers)
	for lo := 0; lo < n; lo += rows {
		size := min(rows, n-lo)
		a.loop.Halt = a.crew.Halt
		a.loop.Run(size, t.Chunk(), workers, parallel.Func(func(worker, from, to int) {
			w := &work[worker]
			w.h = dense.Resize(w.h, k*k)
			for i := from; i < to; i++ {
				row, at := lo+i, (lo+i)*k
				index[i] = row
				weights[row], w.shown = t.Curvature(row, s.M[at:at+k], s.V[at:at+k], w.h, w.shown)
				sum, p := 0.0, 0
				for c := range k {
					sum = max(sum, math.Abs(floats.Sum(w.h[c*k:(c+1)*k])))
					for e := range c + 1 {
						h[p*rows+i] = w.h[c*k+e]
						p++
					}
					diag[at+c] = w.h[c*k+c]
				}
				if of[i] = 0; weights[row] > 0 {
					of[i] = sum / weights[row]
				}
			}
		}))
		if a.crew.Halt.Stopped() {
			return nil, 0, false
		}
		for _, x := range of[:size] {
			off = max(off, x)
		}
		a.loop.Run(pairs, 1, workers, parallel.Func(func(worker, p, _ int) {
			a.x.AddGram(blocks[p*d*d:(p+1)*d*d], h[p*rows:p*rows+size], index[:size],
				&work[worker].Work)
		}))
		if a.crew.Halt.Stopped() {
			return nil, 0, false
		}
	}
	p := 0
	for c := range k {
		for e := range c + 1 {
			block := blocks[p*d*d : (p+1)*d*d]
			dense.FillUpper(block, d)
			for i := range d {
				copy(m[(c*d+i)*kd+e*d:][:d], block[i*d:(i+1)*d])
			}
			p++
		}
	}
	return weights, max(curvatureErr, curvatureSafe*off), !math.IsNaN(off)
}
