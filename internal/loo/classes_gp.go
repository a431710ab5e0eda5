package loo

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// ClassSites leaves out the terms t of a softmax GP one at a time. Its K functions have the
// covariance c, both triangles. The approximation q is a contrast mean field with means m,
// variances v and sites gamma, K per term. It takes at most maxMemory bytes; 0 means the default
// of memory.Check.
func ClassSites(ctx context.Context, t *term.Terms, c, m, v, gamma []float64, maxMemory int64,
	logProb ClassLogProb) (*Result, error) {
	n, k := t.Len(), t.K
	free := n * (k - 1)
	if err := memory.Check(maxMemory, memory.Bytes(1, free, free)+memory.Bytes(float64(k), n, n)+
		memory.Bytes(blockTerms*float64(k), free, 1),
		fmt.Sprintf("to leave out each of %d rows of %d classes", n, k),
		"leave out rows of fewer, or raise GPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	at := &classCavities{terms: t, k: k, m: m, v: v}
	if err := at.expect(ctx); err != nil {
		return nil, err
	}
	s := &classSites{n: n, k: k, c: c}
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	ok := s.covariances(&h, gamma) && s.factor(&h, at.h)
	if ok {
		s.makeBlocks(&h)
	}
	if err := h.Err(); err != nil {
		return nil, fmt.Errorf("canceled while %s: %w", while, err)
	}
	if !ok {
		return nil, fmt.Errorf("covariance of the functions under the sites of q; is it fitted to "+
			"the end? %w", sentinel.ErrNotPosDef)
	}
	at.on = s
	return at.leaveOut(ctx, logProb)
}

// classSites is the classMover of functions. H_n has the null vector 1, because only contrasts
// count. It is R_nR_nᵀ for an R_n with K−1 columns. With R for all terms
//
//	G = C − C R (I + RᵀCR)⁻¹ Rᵀ C.
type classSites struct {
	n, k   int
	c      []float64   // both triangles
	r      []float64   // R_n of all terms, K×(K−1) each
	l      []float64   // the factor of I + RᵀCR
	blocks []float64   // G_nn of all terms
	v      [][]float64 // V_c of the classes
}

// blockTerms is the number of terms whose blocks are computed together.
const blockTerms = 32

// covariances computes v from the sites gamma.
func (s *classSites) covariances(h *parallel.Halt, gamma []float64) bool {
	n := s.n
	f, of := dense.SiteFactor{Halt: h}, make([]float64, n)
	var x dense.Expansion
	for c := range s.k {
		for i := range of {
			of[i] = gamma[i*s.k+c]
		}
		if !f.Factor(s.c, n, of) {
			return false
		}
		v := make([]float64, n*n)
		f.Expand(&x, s.c, n)
		f.Covariance(v, &x)
		dense.FillUpper(v, n)
		if _, finite := dense.AllFinite(v); !finite {
			return false
		}
		s.v = append(s.v, v)
	}
	return true
}

// factor computes r and l from the curvatures h of all terms.
func (s *classSites) factor(halt *parallel.Halt, h []float64) bool {
	n, k, w := s.n, s.k, s.k-1
	s.r = make([]float64, n*k*w)
	for i := range n {
		curvatureRoot(s.r[i*k*w:(i+1)*k*w], h[i*k*k:(i+1)*k*k], k)
	}
	all := n * w
	s.l = make([]float64, all*all)
	var loop parallel.Loop
	loop.Halt = halt
	loop.Run(n, 1, halt.Workers(), parallel.Func(func(_, i, _ int) {
		ri := s.r[i*k*w : (i+1)*k*w]
		for j := range i + 1 {
			rj, cov := s.r[j*k*w:(j+1)*k*w], s.c[i*n+j]
			for e := range k {
				for a, x := range ri[e*w : (e+1)*w] {
					at := (i*w+a)*all + j*w
					floats.AddScaled(s.l[at:at+w], cov*x, rj[e*w:(e+1)*w])
				}
			}
		}
	}))
	for i := range all {
		s.l[i*all+i]++
	}
	return dense.CholeskyUntil(halt, s.l, all)
}

// curvatureRoot stores R with RRᵀ = h in r, K×(K−1). A pivot counts as 0 if it may be rounding.
func curvatureRoot(r, h []float64, k int) {
	w := k - 1
	var most float64
	for j := range k {
		most = math.Max(most, h[j*k+j])
	}
	for j := range w {
		pivot := h[j*k+j]
		for _, x := range r[j*w : j*w+j] {
			pivot -= x * x
		}
		if !(pivot > 1e-15*most) {
			continue
		}
		root := math.Sqrt(pivot)
		r[j*w+j] = root
		for i := j + 1; i < k; i++ {
			r[i*w+j] = (h[i*k+j] - floats.Dot(r[i*w:i*w+j], r[j*w:j*w+j])) / root
		}
	}
}

// makeBlocks computes the blocks, blockTerms terms at a time. They are the blocks of C minus UᵀU,
// with U = L⁻¹RᵀC.
func (s *classSites) makeBlocks(h *parallel.Halt) {
	n, k, w := s.n, s.k, s.k-1
	all := n * w
	s.blocks = make([]float64, n*k*k)
	u := make([]float64, all*blockTerms*k)
	for from := 0; from < n && !h.Stopped(); from += blockTerms {
		some := min(blockTerms, n-from)
		cols := some * k
		u := u[:all*cols]
		for i := range n {
			for a := range w {
				row := u[(i*w+a)*cols : (i*w+a+1)*cols]
				for t := range some {
					cov := s.c[i*n+from+t]
					for e := range k {
						row[t*k+e] = cov * s.r[(i*k+e)*w+a]
					}
				}
			}
		}
		dense.TrsmUntil(h, blas.Left, blas.NoTrans, 1, dense.LowerTriangle(s.l, all),
			dense.General(u, all, cols))
		for t := range some {
			g := s.blocks[(from+t)*k*k : (from+t+1)*k*k]
			for i := range all {
				row := u[i*cols+t*k : i*cols+(t+1)*k]
				for e, x := range row {
					floats.AddScaled(g[e*k:(e+1)*k], -x, row)
				}
			}
			for e := range k {
				g[e*k+e] += s.c[(from+t)*n+from+t]
			}
		}
	}
}

// block implements classMover.
func (s *classSites) block(g []float64, n int) {
	copy(g, s.blocks[n*s.k*s.k:(n+1)*s.k*s.k])
}

// from implements classMover.
func (s *classSites) from(dst, u []float64, n int) {
	for i := range s.n {
		for e, x := range u {
			dst[i*s.k+e] = s.c[n*s.n+i] * x
		}
	}
	s.take(dst, dst)
}

// times implements classMover.
func (s *classSites) times(dst, r []float64) {
	s.prior(dst, r)
	s.take(dst, dst)
}

// prior stores C r in dst.
func (s *classSites) prior(dst, r []float64) {
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(s.c, s.n, s.n), dense.General(r, s.n,
		s.k), 0,
		dense.General(dst, s.n, s.k))
}

// take stores x − C R(I + RᵀCR)⁻¹Rᵀx in dst.
func (s *classSites) take(dst, x []float64) {
	k, w := s.k, s.k-1
	u, back := make([]float64, s.n*w), make([]float64, s.n*k)
	for i := range s.n * k {
		floats.AddScaled(u[i/k*w:(i/k+1)*w], x[i], s.r[i*w:(i+1)*w])
	}
	dense.Potrs(s.l, u)
	for i := range back {
		back[i] = floats.Dot(s.r[i*w:(i+1)*w], u[i/k*w:(i/k+1)*w])
	}
	out := make([]float64, len(back))
	s.prior(out, back)
	floats.SubTo(dst, x, out)
}

// cov implements classMover.
func (s *classSites) cov(dst []float64, n int) {
	for c, v := range s.v {
		for i, x := range v[n*s.n : (n+1)*s.n] {
			dst[i*s.k+c] = x
		}
	}
}

var _, _ classMover = (*classWeights)(nil), (*classSites)(nil)
