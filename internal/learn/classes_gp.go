package learn

import (
	"errors"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// ClassesTol is the default of Options.Tol for a ClassesGP, of which the precisions are slow to
// come to their best.
const ClassesTol = 0.1

// ClassesGP is the Model of K functions of one covariance, by contrast mean field.
type ClassesGP struct {
	memory
	prior   Prior
	space   *Space
	n, k    int
	workers term.Crew
	units   float64
	cov, w  []float64
}

// NewClassesGP returns the Model of K functions at n rows with the given prior.
func NewClassesGP(prior Prior, space *Space, n, k int) *ClassesGP {
	return &ClassesGP{prior: prior, space: space, n: n, k: k}
}

// Digest implements Model.
func (l *ClassesGP) Digest(d *save.Digest) {
	l.prior.Digest(d)
	d.Text("classes")
}

// Use implements Model.
func (l *ClassesGP) Use(c term.Crew) { l.workers = c }

// Work implements Model, in Cholesky factorisations.
func (l *ClassesGP) Work() float64 { return l.units }

// State implements Model.
func (l *ClassesGP) State(c *save.State, n int) {
	l.memory.state(c, n, l.n*l.k)
	c.Float(&l.units)
}

// Evaluate implements Model.
func (l *ClassesGP) Evaluate(theta []float64, slack, most float64, slopes bool) (
	search.Point, error) {
	none := search.Point{F: math.Inf(1)}
	l.cov = dense.Resize(l.cov, l.n*l.n)
	terms, ok := l.prior.Covariance(l.workers.Halt, l.cov, theta)
	if err := l.workers.Halt.Err(); err != nil {
		return none, err
	}
	if !ok {
		return none, nil // out of range
	}
	s, err := site.NewContrastGP(terms, l.cov, l.workers)
	var gap float64
	if err == nil {
		gap, err = l.settle(&s.Sites, theta, slack)
	}
	if halted := l.workers.Halt.Err(); halted != nil {
		return none, halted
	}
	if errors.Is(err, sentinel.ErrNotFinite) || errors.Is(err, sentinel.ErrNotPosDef) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	// factors, inverses and covariances of the classes and of their sum
	l.units += 3 * float64(l.k+1) * float64(s.Batch.Evaluations)
	x := search.Point{F: s.Batch.Cur.Value, Slack: gap}

	if math.IsNaN(x.F) || math.IsInf(x.F, 0) {
		return none, nil
	}
	if !slopes || x.F > most {
		return x, nil
	}
	if !l.slopes(&x, s) {
		return none, l.workers.Halt.Err()
	}
	return x, nil
}

// slopes stores in x the gradient that site.ContrastGP.Slopes tells of, and as information that of
// the means,
//
//	½Σ_c U_cᵀW_cU_c,   U_c = ∂C a_c,   W_c = (C + Γ_c⁻¹)⁻¹.
func (l *ClassesGP) slopes(x *search.Point, s *site.ContrastGP) bool {
	n, k, nf := l.n, l.k, len(l.space.Coords)
	l.w = dense.Resize(l.w, n*n)
	x.Grad, x.Info = make([]float64, nf), mat.NewSymDense(nf, nil)
	a, u, wu := make([]float64, n), make([]float64, n*nf), make([]float64, n*nf)
	spare := make([]float64, nf)
	info := make([]float64, nf*nf)
	l.units += float64(2 * k)
	if !s.Slopes(l.w, func(c int, w []float64) {
		l.class(a, s.Cur.A, c)
		l.prior.Slopes(l.workers.Halt, spare, u, w, a)
		to := dense.General(wu, n, nf)
		of, sum := dense.General(u, n, nf), dense.General(info, nf, nf)
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(w, n, n), of, 0, to)
		dense.Gemm(blas.Trans, blas.NoTrans, 0.5, of, to, 1, sum)
	}) {
		return false
	}
	for c := range k {
		l.class(a, s.Cur.A, c)
		for i, v := range a {
			floats.AddScaled(l.w[i*n:(i+1)*n], -v, a)
		}
	}
	clear(a)
	l.prior.Slopes(l.workers.Halt, x.Grad, u, l.w, a)
	for i := range nf {
		for j := range i + 1 {
			x.Info.SetSym(i, j, 0.5*(info[i*nf+j]+info[j*nf+i]))
		}
	}
	_, ok := dense.AllFinite(x.Grad)
	return ok && !math.IsNaN(floats.Sum(info)) && !l.workers.Halt.Stopped()
}

// class stores the values of class c of all rows in dst.
func (l *ClassesGP) class(dst, x []float64, c int) {
	for i := range dst {
		dst[i] = x[i*l.k+c]
	}
}

var _ Sited = (*ClassesGP)(nil)
