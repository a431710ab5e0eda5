package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file declares the linear model, computes its Gram matrix, and chooses the algebra for models
// with at least as many weights as rows. GLM and SparseGP of the root package build one LinearModel
// each, and softmax models of two classes another (softmax_two.go). A low-rank fit compares itself
// with the result of Best.

// LinearModel is a model of linear predictors η_n = o_n + x_nᵀw with the prior N(μ0, Λ0⁻¹) of the
// weights. A GLM is a linear model, and so is a sparse GP over its features. The terms are
// functions of Xᵀ(w − μ0).
type LinearModel struct {
	Terms *term.Terms
	X     *design.Matrix
	Prior gauss.Prior
	Names []string // names of the weights

	// Factors holds the rules by which the blocks of the prior are learned, in their order. Blocks
	// without a rule are fixed.
	Factors []Factor
	// Near returns where a fit of a model with blocks starts for a response: the linear predictor
	// and the precision of its site. Nil means the prior.
	Near func(y float64) (eta, gamma float64)
	// past holds the sites of other rows, or nil. They are part of the prior of a model with blocks.
	past *arrowPast

	MaxMemory int64 // bytes; 0 means the limit of ErrMemory
}

// The largest memory of a linear model, measured, in addition to the matrices of its algebra:
// WeightVectors vectors of D numbers (with names and prior), and LowRankMatrices matrices D×Rank,
// most of them for the last steps and for a Krylov space.
const (
	WeightVectors   = 38
	LowRankMatrices = 28
)

// triangleRows is the number of rows of the triangle of K that a goroutine takes at a time.
const triangleRows = 16

// Gram returns K = XΛ0⁻¹Xᵀ, both triangles.
func (l *LinearModel) Gram() []float64 {
	k, _ := l.GramUntil(nil)
	return k
}

// GramUntil is Gram with the error of h if h has stopped.
func (l *LinearModel) GramUntil(h *parallel.Halt) ([]float64, error) {
	n, d := l.X.Rows, len(l.Names)
	k := make([]float64, n*n)
	if l.X.Sparse == nil && l.Prior.Full == nil && l.Prior.Blocks() == nil {
		w := make([]float64, d)
		for j, p := range l.Prior.Prec {
			w[j] = 1 / p
		}
		dense.AddWeighted(h, k, n, w, dense.General(l.X.Dense, n, d))
		dense.FillUpper(k, n)
		return k, h.Err()
	}
	workers := 1
	if l.X.Shared(h, n*n*l.X.PerRow()) {
		workers = h.Workers()
	}
	x, z := dense.NewRows(workers, d), dense.NewRows(workers, d)
	parallel.For(n, triangleRows, workers, func(worker, lo, hi int) {
		x, z := x[worker], z[worker]
		for i := lo; i < hi && !h.Stopped(); i++ {
			l.X.Dense1(x, i)
			l.Prior.Solve(z, x)
			l.X.Mul(k[i*n:i*n+i], z, nil)
			k[i*n+i] = math.Max(0, floats.Dot(x, z))
		}
	})
	if err := h.Err(); err != nil {
		return nil, err
	}
	for i := range n { // exactly symmetric
		for j := range i {
			k[j*n+i] = k[i*n+j]
		}
	}
	return k, nil
}

// AddPriorMean makes the terms functions of Xᵀ(w − μ0) by adding Xμ0 to their offsets.
func (l *LinearModel) AddPriorMean() {
	zero := true
	for _, m := range l.Prior.Mean {
		zero = zero && m == 0
	}
	if zero {
		return
	}
	o := make([]float64, l.X.Rows)
	l.X.Mul(o, l.Prior.Mean, nil)
	for i := range l.Terms.Offset {
		o[i] += l.Terms.Offset[i]
	}
	l.Terms.Offset = o
}

// Digest adds the design and the prior to d.
func (l *LinearModel) Digest(d *save.Digest) {
	d.Int(l.X.Rows, l.X.Cols)
	var b design.RowBuffer
	for i := range l.X.Rows {
		ind, val := l.X.RowIn(&b, i)
		d.Int(len(ind))
		for _, j := range ind {
			d.Int(int(j))
		}
		d.Float(val...)
	}
	d.Floats(l.Prior.Mean)
	d.Floats(l.Prior.Prec)
	if l.Prior.Each != nil {
		d.Floats(l.Prior.Each)
	}
	for i, b := range l.Prior.Blocks() {
		d.Int(b.First, b.Levels, b.Q)
		d.Floats(b.L)
		if i < len(l.Factors) {
			f := &l.Factors[i]
			d.Int(design.B2i(f.Learn), design.B2i(f.Independent))
			d.Floats(f.Scale)
		}
	}
	if w := l.Prior.Full; w != nil {
		for i := range len(w.Mean) {
			d.Float(w.P[i*len(w.Mean) : i*len(w.Mean)+i+1]...)
		}
	}
}

// Weighted is the algebra of a linear model.
type Weighted interface {
	Algebra
	// Weights returns the mean of w − μ0 and the covariance of w. The caller owns both.
	Weights() ([]float64, gauss.Cov, error)
}

// smallWeights is the largest number of weights for which a full covariance costs about as much
// as a low-rank one.
const smallWeights = 300

// Small reports whether the best V always has that rank. With a diagonal prior V⁻¹ has at most
// one factor per row.
func (l *LinearModel) Small(rank int) bool {
	d := len(l.Names)
	return rank >= d || l.Prior.Full == nil && rank >= l.X.Rows && d <= smallWeights
}

// NewRowAlgebra returns the algebra of a model with at least as many weights as rows. That is the
// DualAlgebra if float64 has enough digits for K, or if there are more than PrimalWeights
// weights. Otherwise it is the WeightAlgebra, or the SpanAlgebra if there are far more weights
// than rows; both compute with twice the digits if they have to. Digits run out if a feature is
// far from zero: all entries of K are then nearly equal, and their differences are lost.
func (l *LinearModel) NewRowAlgebra(workers term.Crew) (Algebra, error) {
	k, err := l.GramUntil(workers.Halt)
	if err != nil {
		return nil, err
	}
	if len(l.Names) <= PrimalWeights {
		gamma := l.Precisions(workers.Halt, k)
		switch {
		case Conditioned(workers.Halt, k, gamma, DualPivot):
		case spanPays(l.X.Rows, len(l.Names)):
			return newSpanAlgebra(l, gamma, workers)
		default:
			return NewWeightAlgebra(l, workers)
		}
	}
	return NewDualAlgebra(l, k, workers)
}

// bestPasses bounds the passes of best. A fit of the sites takes tens of passes, and hundreds in
// the worst units.
const bestPasses = 500

// Best finds the best full Gaussian of w − μ0, or the best that bestPasses passes reach. The
// matrix is its covariance.
func (l *LinearModel) Best(c term.Crew) (s term.Sought, v *mat.SymDense, err error) {
	alg, s, err := l.best(c)
	if err != nil {
		return s, nil, err
	}
	mean, cov, err := alg.(Weighted).Weights()
	if err != nil {
		return s, nil, err
	}
	s.Mean = mean
	return s, cov.Sym(), nil
}

// best returns the algebra that Best uses.
func (l *LinearModel) best(c term.Crew) (alg Algebra, s term.Sought, err error) {
	if l.X.Rows > len(l.Names) {
		alg, err = NewWeightAlgebra(l, c)
	} else {
		alg, err = l.NewRowAlgebra(c)
	}
	for err == nil && s.Passes < bestPasses {
		var more int
		if more, err = alg.Ascend(); err != nil {
			break
		}
		s.Passes += max(1, more)
		var e siteEvaluation
		if e, err = alg.Evaluate(0); err == nil {
			s.Most = e.ELBO + e.Gap
			if e.Gap <= goals.Fine(l.X.Rows, e.ELBO) {
				break
			}
		}
	}
	return alg, s, err
}
