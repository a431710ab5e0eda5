package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// gpNewton is Newton's step of all log γ_c of a softmaxGPBase, by conjugate gradients inside a
// radius. softmaxGPBase calls gammaStep if the steps of its aim predict a gain near a goal or fail
// to raise the ELBO (see finer in base.go), and for each aim once the precisions are known to be
// flat. With D_c = h_c − (1 − 1/K)γ_c, the gradient of twice the ELBO in γ_c, and minus its
// curvature, are
//
//	r_c = (V_c∘V_c)D_c + (diag V_S − v_c)/K,
//	x ↦ [(1 − 2/K) V_c∘V_c + 2 V_c∘(V_cD_cV_c)]x_c + (V_S∘V_S) Σx/K².
//
// Vectors hold the n numbers of the first class, then of the second class, and so on.
type gpNewton struct {
	own, common      []float64 // the two matrices of the curvature, of each class and of all
	cut              bool      // the last step was far too long
	gamma, slope     []float64 // γ and γr
	scale            []float64 // approximate diagonal of the curvature
	r, z, p, q, x, y []float64
}

const (
	gpSolves = 60
	gpReduce = 1e-3 // relative residual
	gpRadius = 1    // √nats, in the metric of the diagonal
	gpMost   = 3    // greatest change of log γ
	gpCut    = 10   // a step that is longer by this factor gains nothing after it is scaled
)

// gammaStep stores the change of log γ in step.y, and returns its predicted gain in nats. It returns
// false if there is no such step. Other scratch of step is free between two calls.
func (a *softmaxGPBase) gammaStep(s *term.Marginals) (promise float64, ok bool) {
	w, size := &a.step, a.x.Rows*a.k
	dense.ResizeAll(size, &w.gamma, &w.slope, &w.scale, &w.y)
	if !a.curvatures(s) {
		return 0, false
	}
	clear(w.y)
	copy(w.r, w.slope)
	floats.DivTo(w.z, w.r, w.scale)
	copy(w.p, w.z)
	rho, norm := floats.Dot(w.r, w.z), 0.0
	least := gpReduce * gpReduce * rho
	for range gpSolves {
		if !(rho > least) || a.crew.Halt.Stopped() {
			break
		}
		a.curved(w.q, w.p)
		curve, pp, yp := floats.Dot(w.p, w.q), 0.0, 0.0
		for i, p := range w.p {
			pp += w.scale[i] * p * p
			yp += w.scale[i] * p * w.y[i]
		}
		length, room := rho/curve, max(0, gpRadius*gpRadius-norm)
		edge := room / (yp + math.Sqrt(yp*yp+pp*room))
		if !(curve > 0) || length >= edge {
			floats.AddScaled(w.y, edge, w.p)
			break
		}
		promise += 0.25 * length * rho
		norm += length * (2*yp + length*pp)
		floats.AddScaled(w.y, length, w.p)
		floats.AddScaled(w.r, -length, w.q)
		floats.DivTo(w.z, w.r, w.scale)
		next := floats.Dot(w.r, w.z)
		floats.Scale(next/rho, w.p)
		floats.Add(w.p, w.z)
		rho = next
	}
	// The step is scaled as a whole, because its parts compensate for each other.
	most := floats.Norm(w.y, math.Inf(1))
	w.cut = most > gpCut*gpMost
	if most > gpMost {
		floats.Scale(gpMost/most, w.y)
	}
	a.curved(w.q, w.y)
	promise = max(promise, 0.5*floats.Dot(w.slope, w.y)-0.25*floats.Dot(w.y, w.q))
	return promise, !a.crew.Halt.Stopped()
}

// curvatures computes the matrices of the current state, and the gradient.
func (a *softmaxGPBase) curvatures(s *term.Marginals) bool {
	n, k, t, w := a.x.Rows, a.k, &a.now, &a.step
	dense.ResizeAll(n*n, &w.common)
	w.own = dense.Resize(a.matrices, k*n*n)
	part := 1 / float64(k)
	if !a.common(t.gamma) {
		return false
	}
	a.square(w.common, a.root)
	for i, x := range w.common {
		w.common[i] = x * x * part * part
	}
	for c := range k {
		v, own := a.covariance(c), w.own[c*n*n:(c+1)*n*n]
		d, gamma := a.col, w.gamma[c*n:(c+1)*n]
		classOf(gamma, t.gamma, c)
		classOf(d, s.Tg, c)
		floats.AddScaled(d, part-1, gamma)
		a.root = dense.Resize(a.root, n*n)
		scaled := a.root
		for i := range n {
			floats.ScaleTo(scaled[i*n:(i+1)*n], d[i], v[i*n:(i+1)*n])
		}
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(v, n, n),
			dense.General(scaled, n, n), 0, dense.General(own, n, n))
		for i := range n {
			var r float64
			for j, x := range v[i*n : (i+1)*n] {
				r += x * x * d[j]
				own[i*n+j] = x * ((1-2*part)*x + 2*own[i*n+j])
			}
			at, g := c*n+i, gamma[i]
			w.slope[at] = g * (r + part*(t.common[i]-v[i*n+i]))
			x := g * v[i*n+i]
			w.scale[at] = x*x + math.Abs(w.slope[at]) + math.SmallestNonzeroFloat64
		}
		if a.crew.Halt.Stopped() {
			return false
		}
	}
	return true
}

// curved stores the product of the curvature in log γ with p in q.
func (a *softmaxGPBase) curved(q, p []float64) {
	n, w := a.x.Rows, &a.step
	sum := a.col
	clear(sum)
	for i, x := range p {
		w.x[i] = w.gamma[i] * x
		sum[i%n] += w.x[i]
	}
	dense.Symv(1, dense.Symmetric(w.common, n), dense.Vector(sum), 0, dense.Vector(a.out))
	for c := range a.k {
		to := q[c*n : (c+1)*n]
		dense.Symv(1, dense.Symmetric(w.own[c*n*n:(c+1)*n*n], n), dense.Vector(w.x[c*n:(c+1)*n]),
			0, dense.Vector(to))
		floats.Add(to, a.out)
		for i, y := range to {
			at := c*n + i
			to[i] = w.gamma[at]*y - w.slope[at]*p[at]
		}
	}
}
