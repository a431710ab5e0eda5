package learn

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/mat"
)

// ClassesTol is the default of Options.Tol for a ClassesGP, because it takes many steps to gain the
// last tenth of a nat in the precisions.
const ClassesTol = 0.1

// ClassesGP is the Model of K functions with one covariance. Its Work counts Cholesky
// factorizations.
type ClassesGP struct {
	fitter
	prior   Prior
	space   *Space
	k, rows int
	cov, w  []float64
}

// NewClassesGP returns the Model of K functions at n rows with the given prior.
func NewClassesGP(prior Prior, space *Space, n, k int) *ClassesGP {
	l := &ClassesGP{fitter: fitter{n: n * k}, prior: prior, space: space, k: k, rows: n}
	l.fit = l.fitAt
	return l
}

// Digest implements Model.
func (l *ClassesGP) Digest(d *save.Digest) {
	l.prior.Digest(d)
	d.Text("classes")
}

// fitAt implements fitter.fit.
func (l *ClassesGP) fitAt(theta []float64, slack, most float64) (x search.Point, err error) {
	l.cov = dense.Resize(l.cov, l.rows*l.rows)
	terms, ok := l.prior.Covariance(l.workers.Halt, l.cov, theta)
	if !ok {
		return x, errNoValue
	}
	s, err := site.NewSoftmaxGP(terms, l.cov, l.workers)
	if err != nil {
		return x, err
	}
	// factors, inverses and covariances of the classes and of their sum
	work := 3 * float64(l.k+1)
	return l.softmax(&s.BaseAlgebra, theta, slack, most, work, func(x *search.Point) error {
		return l.slopes(x, s)
	})
}

// slopes stores the gradient of site.SoftmaxGP.Slopes in x, and the information of the means,
//
//	½Σ_c U_cᵀW_cU_c,   U_c = ∂C a_c,   W_c = (C + Γ_c⁻¹)⁻¹.
func (l *ClassesGP) slopes(x *search.Point, s *site.SoftmaxGP) error {
	n, nf := l.rows, len(l.space.Coords)
	l.w = dense.Resize(l.w, n*n)
	x.Grad, x.Info = make([]float64, nf), mat.NewSymDense(nf, nil)
	u := dense.General(make([]float64, n*nf), n, nf)
	wu := dense.General(make([]float64, n*nf), n, nf)
	info := dense.General(make([]float64, nf*nf), nf, nf)
	l.units += float64(2 * l.k)
	ok := s.Slopes(l.w, func(w, a []float64) {
		l.prior.Changes(l.workers.Halt, u.Data, a)
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(w, n, n), u, 0, wu)
		dense.Gemm(blas.Trans, blas.NoTrans, 0.5, u, wu, 1, info)
	})
	if !ok {
		return fmt.Errorf("slopes of classes: %w", sentinel.ErrNotPosDef)
	}
	l.prior.Slopes(l.workers.Halt, x.Grad, l.w, make([]float64, n))
	for i := range nf {
		for j := range i + 1 {
			x.Info.SetSym(i, j, 0.5*(info.Data[i*nf+j]+info.Data[j*nf+i]))
		}
	}
	return nil
}

var _ Sited = (*ClassesGP)(nil)
