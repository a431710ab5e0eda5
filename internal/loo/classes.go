package loo

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/psis"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file leaves out the terms of softmax models. It removes a term from the contrast mean
// field that package site fits, in closed form for the means and by rounds for the variances.
// ClassRows is the entry point for linear models, and ClassFunctions for GPs.

// classCavities holds the terms of a softmax model under a Gaussian by contrast mean field. Only
// contrasts of the K latent values count. With H_n = −∂²E_n/∂m∂mᵀ, a_n = ∂E_n/∂m and the matrix G
// by which the means move, the inverse of the sum of the prior precision and all H_n, the mean of
// η_n without term n is
//
//	m_n − (I − G_nnH_n)⁻¹G_nna_n.
//
// The variances 1/p_c are coupled. In the precisions of row n alone, the part p_c − p_c²/Σp
// belongs to class c itself, and the term adds the diagonal of H_n to it (see contrast in package
// site). Subtracting that diagonal is exact for one weight and for classes with equal
// covariances.
type classCavities struct {
	terms   *term.Terms
	k       int
	m, v, a []float64 // all elements, n·K + k for value k of term n; m is without offset
	h       []float64 // H_n of all terms, K×K each
	on      *classWeights
	share   int // number of results that share the time for responses
}

// ClassLogProb returns log ∫ p(y|η) N(η|m, diag v) dη of one term, in nats.
type ClassLogProb func(y float64, m, v []float64) float64

// classPart is the part of the effect of leaving out a term that counts as unknown. The means and
// precisions of its row follow the removal, but P_c couples the classes in other directions too. On
// iris 6% of the effect is missing.
const classPart = 0.1

// classBudget is the largest number of scores whose expectations the responses of other rows may
// take.
const classBudget = 1 << 18

// ClassRows leaves out the rows of l, with K scores each, one at a time. The weights have the
// given means, class by class, and the covariance cov. It spends 1/share of the
// usual time on responses of sites.
func ClassRows(ctx context.Context, l *site.LinearModel, mean []float64, cov *gauss.Contrasts,
	logProb ClassLogProb, share int) (*Result, error) {
	n, d, k := l.X.Rows, l.X.Cols, l.Terms.K
	if err := memory.Check(l.MaxMemory, memory.Bytes(2, k*d, k*d)+memory.Bytes(4+float64(k), n, k),
		fmt.Sprintf("to leave out each of %d rows of %d classes and %d weights", n, k, d),
		"leave out rows of fewer, or raise MaxMemory of the options"); err != nil {
		return nil, err
	}
	c := &classCavities{terms: l.Terms, k: k, m: make([]float64, n*k), v: make([]float64, n*k),
		share: share}
	cov.Means(c.m, mean, l.X, nil)
	cov.Variances(c.v, l.X, nil)
	if err := c.expect(ctx); err != nil {
		return nil, err
	}
	var err error
	if c.on, err = newClassWeights(ctx, l, cov, c.h); err != nil {
		return nil, err
	}
	return c.leaveOut(ctx, logProb)
}

// ClassFunctions leaves out the terms t of a softmax GP one at a time. Its K functions have the
// covariance c, both triangles, and q has the sites gamma and a, K per term. It is ClassRows for the
// linear model of the factor of c, whose weights have the means Xᵀa_c and the precisions I +
// XᵀΓ_cX.
func ClassFunctions(ctx context.Context, t *term.Terms, c, a, gamma []float64, maxMemory int64,
	logProb ClassLogProb) (*Result, error) {
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	l, err := site.NewFactorModel(t, c, &h)
	if halted := h.Err(); halted != nil {
		return nil, fmt.Errorf("canceled while %s: %w", while, halted)
	}
	if err != nil {
		return nil, err
	}
	l.MaxMemory = maxMemory
	n, d, k := l.X.Rows, l.X.Cols, t.K
	mean, cov := make([]float64, k*d), &gauss.Contrasts{}
	for j := range k {
		w, of := &gauss.Gaussian{}, make([]float64, n)
		for i := range of {
			of[i] = a[i*k+j]
		}
		l.X.AddMulT(mean[j*d:(j+1)*d], of, nil)
		for i := range of {
			of[i] = gamma[i*k+j]
		}
		w.Resize(d)
		clear(w.P)
		l.X.AddGram(w.P, of, nil, &design.Work{Halt: &h})
		for i := range d {
			w.P[i*(d+1)]++
		}
		if err := cov.Add(w); err != nil {
			return nil, err
		}
	}
	return ClassRows(ctx, l, mean, cov, logProb, 1)
}

// classWeights is the matrix G of the weights of all classes.
type classWeights struct {
	l       *site.LinearModel
	d, k    int
	of      *gauss.Contrasts
	inverse []float64 // G of the weights, full
	blocks  []float64 // G_nn of all terms, K×K each
}

// newClassWeights returns G for the curvatures h of all terms.
func newClassWeights(ctx context.Context, l *site.LinearModel, cov *gauss.Contrasts, h []float64) (
	*classWeights, error) {
	d, k := l.X.Cols, l.Terms.K
	s := &classWeights{l: l, d: d, k: k, of: cov, inverse: make([]float64, k*d*k*d),
		blocks: make([]float64, l.X.Rows*k*k)}
	err := s.pairs(ctx, func(c, e int, m []float64, w *design.Work) {
		weights := make([]float64, l.X.Rows)
		for i := range weights {
			weights[i] = h[(i*k+c)*k+e]
		}
		clear(m)
		l.X.AddGram(m, weights, nil, w)
		dense.FillUpper(m, d)
		for i := range d {
			copy(s.inverse[(c*d+i)*k*d+e*d:][:d], m[i*d:(i+1)*d])
		}
	})
	if err != nil {
		return nil, err
	}
	if err := l.Prior.AddClasses(s.inverse, k); err != nil {
		return nil, err
	}
	var halt parallel.Halt
	halt.Watch(ctx)
	defer halt.Forget()
	ok := dense.CholeskyUntil(&halt, s.inverse, k*d)
	if ok {
		dense.InvertUntil(&halt, s.inverse, k*d)
		dense.FillUpper(s.inverse, k*d)
	}
	switch err := halt.Err(); {
	case err != nil:
		return nil, fmt.Errorf("canceled while %s: %w", while, err)
	case !ok:
		return nil, unfitted()
	}
	return s, s.pairs(ctx, s.makeBlocks)
}

// pairs calls f for all classes c and e ≤ c, with room for a D×D matrix.
func (s *classWeights) pairs(ctx context.Context,
	f func(c, e int, m []float64, w *design.Work)) error {
	workers := min(runtime.GOMAXPROCS(0), s.k*(s.k+1)/2)
	m, work := dense.NewRows(workers, s.d*s.d), make([]design.Work, workers)
	err := parallel.Each(ctx, s.k*s.k, workers, func(w, p int) error {
		if c, e := p/s.k, p%s.k; e <= c {
			f(c, e, m[w], &work[w])
		}
		return nil
	})
	if ctx.Err() != nil {
		return fmt.Errorf("canceled while %s: %w", while, context.Cause(ctx))
	}
	return err
}

// classChunk is the number of rows whose blocks are computed together.
const classChunk = 256

// makeBlocks computes x_nᵀGx_n of all rows, for the part G of inverse that belongs to the classes c
// and e.
func (s *classWeights) makeBlocks(c, e int, g []float64, w *design.Work) {
	n, d, k := s.l.X.Rows, s.d, s.k
	for i := range d {
		copy(g[i*d:(i+1)*d], s.inverse[(c*d+i)*k*d+e*d:][:d])
	}
	gx, x := make([]float64, d*min(n, classChunk)), make([]float64, d)
	for lo := 0; lo < n; lo += classChunk {
		hi := min(lo+classChunk, n)
		s.l.X.MulRows(gx[:d*(hi-lo)], g, lo, hi, w)
		for i := lo; i < hi; i++ {
			s.l.X.Dense1(x, i)
			var sum float64
			for j, xj := range x {
				sum += xj * gx[j*(hi-lo)+i-lo]
			}
			s.blocks[(i*k+c)*k+e], s.blocks[(i*k+e)*k+c] = sum, sum
		}
	}
}

// from stores G_·n u of all elements in dst.
func (s *classWeights) from(dst, u []float64, n int) {
	x, r := make([]float64, s.d), make([]float64, 0, s.k*s.d)
	s.l.X.Dense1(x, n)
	for _, uc := range u {
		for _, xi := range x {
			r = append(r, uc*xi)
		}
	}
	s.spread(dst, r)
}

// spread stores the scores of the weights inverse·r in dst.
func (s *classWeights) spread(dst, r []float64) {
	m := make([]float64, s.l.X.Rows)
	for c := range s.k {
		s.l.X.Mul(m, s.solve(r, c), nil)
		for i, mi := range m {
			dst[i*s.k+c] = mi
		}
	}
}

// solve returns the part of class c of inverse·r.
func (s *classWeights) solve(r []float64, c int) []float64 {
	w, out := s.k*s.d, make([]float64, s.d)
	for i := range out {
		at := (c*s.d + i) * w
		out[i] = floats.Dot(s.inverse[at:at+w], r)
	}
	return out
}

// times stores G r of all elements in dst.
func (s *classWeights) times(dst, r []float64) {
	x, all := make([]float64, s.d), make([]float64, s.k*s.d)
	for i := range s.l.X.Rows {
		ri := r[i*s.k : (i+1)*s.k]
		if floats.Norm(ri, 1) == 0 {
			continue
		}
		s.l.X.Dense1(x, i)
		for c, v := range ri {
			floats.AddScaled(all[c*s.d:(c+1)*s.d], v, x)
		}
	}
	s.spread(dst, all)
}

// cov stores in dst the covariance of each element with the element of its class in term n.
func (s *classWeights) cov(dst []float64, n int) {
	x, w, m := make([]float64, s.d), make([]float64, s.d), make([]float64, s.l.X.Rows)
	s.l.X.Dense1(x, n)
	for c, of := range s.of.Of {
		of.Mul(w, x)
		s.l.X.Mul(m, w, nil)
		for i, mi := range m {
			dst[i*s.k+c] = mi
		}
	}
}

// expect computes a and h from m and v.
func (c *classCavities) expect(ctx context.Context) error {
	s, err := expectations(ctx, c.terms, c.m, c.v)
	if err != nil {
		return err
	}
	n, k, workers := c.terms.Len(), c.k, runtime.GOMAXPROCS(0)
	c.a, c.h = s.D1, make([]float64, n*k*k)
	scratch := make([][]float64, workers)
	return parallel.Each(ctx, n, workers, func(w, i int) error {
		_, scratch[w] = c.terms.Curvature(i, c.m[i*k:(i+1)*k], c.v[i*k:(i+1)*k],
			c.h[i*k*k:(i+1)*k*k], scratch[w])
		return nil
	})
}

// classCavity is the cavity of a term.
type classCavity struct {
	m, v     []float64 // the cavity, without offset
	leave    mat.LU    // factor of I − G_nnH_n
	pull     []float64 // (I − H_nG_nn)⁻¹a_n
	own      []float64 // precisions of the classes themselves, p − p²/Σp
	leverage float64
	moved    float64 // KL(q‖cavity) of the term
}

// leaveTerm returns the cavity of term n. It returns false if only rounding is left.
func (c *classCavities) leaveTerm(n int) (q *classCavity, ok bool) {
	k, part := c.k, oneDatum(c.terms, n)
	m, v, a := c.m[n*k:(n+1)*k], c.v[n*k:(n+1)*k], c.a[n*k:(n+1)*k]
	h := mat.NewDense(k, k, c.h[n*k*k:(n+1)*k*k])
	g, gh := mat.NewDense(k, k, c.on.blocks[n*k*k:(n+1)*k*k]), mat.NewDense(k, k, nil)
	gh.Mul(g, h)
	q = &classCavity{m: make([]float64, k), v: make([]float64, k), pull: make([]float64, k)}
	q.leverage = mat.Trace(gh)
	gh.Scale(-part, gh)
	for j := range k {
		gh.Set(j, j, 1+gh.At(j, j))
	}
	q.leave.Factorize(gh)
	if !(q.leave.Det() > remainder) {
		return q, false
	}
	pull, move := mat.NewVecDense(k, q.pull), mat.NewVecDense(k, q.m)
	if q.leave.SolveVecTo(pull, true, mat.NewVecDense(k, a)) != nil {
		return q, false
	}
	pull.ScaleVec(part, pull)
	move.MulVec(g, pull)
	// The precisions with the term and without it.
	var sum float64
	for _, x := range v {
		sum += 1 / x
	}
	q.own = make([]float64, k)
	for j, x := range v {
		with := (1 - 1/(x*sum)) / x
		if q.own[j] = with - part*h.At(j, j); !(q.own[j] > remainder*with) {
			return q, false
		}
	}
	if !q.precisions(v) {
		return q, false
	}
	var cross, square, logs, trace, without float64
	for j, x := range q.v {
		p := 1 / x
		without += p
		logs -= math.Log(p * v[j])
		cross += p * q.m[j]
		square += p * q.m[j] * q.m[j]
	}
	for j, x := range q.v {
		trace += v[j] / x * (1 - 1/(x*without))
	}
	// The KL of Gaussians of contrasts has the precisions diag p − ppᵀ/Σp.
	logs += math.Log(without / sum)
	q.moved = 0.5 * math.Max(0, trace-float64(k-1)+logs+square-cross*cross/without)
	floats.SubTo(q.m, m, q.m)
	return q, true
}

// precisions computes v from own by rounds of p_c ← own_c + p_c²/Σp. It returns false if they
// fail. It starts from the variances with all terms, because own does not always determine v:
// with two classes, and for a class between two others, only the sum of the variances counts.
func (q *classCavity) precisions(from []float64) bool {
	for j, x := range from {
		q.v[j] = 1 / x
	}
	for range coupledRounds {
		sum, moved := floats.Sum(q.v), 0.0
		for j, p := range q.v {
			next := q.own[j] + p*p/sum
			moved = max(moved, math.Abs(next-p)/p)
			q.v[j] = next
		}
		if moved < coupledTol {
			break
		}
	}
	for j, p := range q.v {
		if q.v[j] = 1 / p; !(p > 0) || math.IsInf(q.v[j], 0) || math.IsInf(p, 0) {
			return false
		}
	}
	return true
}

// The number of rounds of precisions, and the relative change that ends them.
const (
	coupledRounds = 200
	coupledTol    = 1e-10
)

// shown returns the means and variances of the scores of term n for a prediction.
func (c *classCavities) shown(n int, m, v []float64) (_, _ []float64) {
	m, v = slices.Clone(m), slices.Clone(v)
	if c.terms.Offset != nil {
		floats.Add(m, c.terms.Offset[n*c.k:(n+1)*c.k])
	}
	if c.terms.Extra != nil {
		floats.AddConst(c.terms.Extra[n], v)
	}
	return m, v
}

// leaveOut leaves out one term after the other.
func (c *classCavities) leaveOut(ctx context.Context, logProb ClassLogProb) (*Result, error) {
	leave := func(l *Result, i int) (resolved bool, err error) {
		lo, hi := i*c.k, (i+1)*c.k
		q, ok := c.leaveTerm(i)
		m, v := c.shown(i, c.m[lo:hi], c.v[lo:hi])
		if l.Leverage[i] = q.leverage; ok {
			m, v = c.shown(i, q.m, q.v)
			l.Influence[i], l.Pointwise[i] = q.moved, logProb(c.terms.Y[i], m, v)
		}
		copy(l.M[lo:], m)
		copy(l.V[lo:], v)
		return ok, nil
	}
	return leaveOut(ctx, c.terms, c.k, leave,
		func(l *Result) error { return c.respond(ctx, logProb, l) })
}

// respond moves the sites of all other terms after one of the terms with the most influence is
// removed. The change of the prediction estimates its error. The errors of the other terms are in
// proportion to their influence.
func (c *classCavities) respond(ctx context.Context, logProb ClassLogProb, l *Result) error {
	n, k := c.terms.Len(), c.k
	size := min(n, mostAnswers) // every k-th row responds if there are many rows
	known, rest := l.split(max(leastKnown, classBudget/(size*k*c.share)))
	move, part := make([]float64, len(known)), make([]float64, len(known))
	err := parallel.Each(ctx, len(known), runtime.GOMAXPROCS(0), func(_, at int) error {
		i := known[at]
		defer parallel.At(&i, c.terms.Name)
		inside, variances := c.shown(i, c.m[i*k:(i+1)*k], c.v[i*k:(i+1)*k])
		part[at] = classPart * logProb(c.terms.Y[i], inside, variances)
		q, ok := c.leaveTerm(i)
		if !ok {
			return nil
		}
		if !c.answer(i, q, size) {
			l.PointErr[i] = math.Inf(1)
			return nil
		}
		m, v := c.shown(i, q.m, q.v)
		to := logProb(c.terms.Y[i], m, v)
		if math.IsNaN(to) || math.IsInf(to, 0) {
			l.PointErr[i] = math.Inf(1)
			return nil
		}
		move[at] = to - l.Pointwise[i]
		part[at] -= classPart * to
		l.PointErr[i] = math.Abs(move[at]) + math.Abs(part[at])
		l.Pointwise[i] = to
		copy(l.M[i*k:], m)
		copy(l.V[i*k:], v)
		return nil
	})
	if err != nil {
		return err
	}
	var signed, other float64
	for at, i := range known {
		_, _, w, _ := c.terms.Term(i)
		signed += w * (math.Abs(part[at]) + move[at])
		other += w * (math.Abs(part[at]) - move[at])
	}
	l.extend(known, rest, max(signed, other), c.terms)
	return nil
}

// answer moves q, the cavity of term n, after the responses of the given number of other sites.
// It takes a few Newton steps of the means, with the curvatures with all terms, and of the
// precisions. The variances of the other terms grow with the covariances of a class. It returns
// false if no precision is left.
func (c *classCavities) answer(n int, q *classCavity, size int) bool {
	all, k := c.terms.Len(), c.k
	elements := func() []float64 { return make([]float64, all*k) }
	first, shift, rest, cov, more := elements(), elements(), elements(), elements(), elements()
	c.on.from(first, q.pull, n)
	copy(shift, first)
	last := slices.Clone(first)
	c.on.cov(cov, n)
	vector := func() []float64 { return make([]float64, k) }
	m, v, bend, d1, d2, curve := vector(), vector(), vector(), vector(), vector(), vector()
	here, own := c.v[n*k:(n+1)*k], slices.Clone(q.own)
	back := mat.NewVecDense(k, nil)
	var scratch []float64
	for range classRounds {
		clear(curve)
		for s := range size {
			i := s * all / size
			scale := float64(all) / float64(size)
			if i == n {
				scale *= 1 - oneDatum(c.terms, n)
			}
			if scale == 0 {
				continue
			}
			at := i * k
			h := c.h[i*k*k : (i+1)*k*k]
			floats.SubTo(m, c.m[at:at+k], shift[at:at+k])
			for j, x := range here {
				by := cov[at+j] / x
				v[j] = math.Max(0, c.v[at+j]+by*by*(q.v[j]-x))
			}
			_, _, scratch = c.terms.ExpectSoftmax(i, answerTol, m, v, d1, d2, scratch)
			for j := range bend {
				bend[j] = floats.Dot(h[j*k:(j+1)*k], shift[at:at+k])
			}
			for j := range d1 {
				rest[at+j] = scale * (d1[j] - c.a[at+j] - bend[j])
				by := cov[at+j] / here[j]
				curve[j] += scale * by * by * (-d2[j] - h[j*k+j])
			}
		}
		// G without term n is G + G_·n(I − H_nG_nn)⁻¹H_nG_n·.
		c.on.times(more, rest)
		part := oneDatum(c.terms, n)
		for j := range bend {
			h := c.h[(n*k+j)*k : (n*k+j+1)*k]
			bend[j] = part * floats.Dot(h, more[n*k:(n+1)*k])
		}
		if q.leave.SolveVecTo(back, true, mat.NewVecDense(k, bend)) != nil {
			return false
		}
		c.on.from(shift, back.RawVector().Data, n)
		var most, change float64
		for i, x := range first {
			at := x - more[i] - shift[i]
			most, change = max(most, math.Abs(at)), max(change, math.Abs(at-last[i]))
			shift[i], last[i] = at, at
		}
		for j, x := range curve {
			q.own[j] = math.Max(own[j]+x, 0.5*own[j])
		}
		if !q.precisions(here) {
			return false
		}
		if change <= classEnough*most {
			break
		}
	}
	floats.SubTo(q.m, c.m[n*k:(n+1)*k], shift[n*k:(n+1)*k])
	return true
}

// answer takes at most classRounds steps. They end when the means change by less than the part
// classEnough of their whole change, because the part classPart of an answer counts as unknown
// anyway. Expectations with the tolerance answerTol suffice for that.
const (
	classRounds = 8
	classEnough = 1e-2
	answerTol   = 1e-6
)

// ClassSamplers returns samplers of the weights of K classes, for the joint density of their
// contrasts. With w_c ~ N(m_c, P_c⁻¹), δ = w − m, s = ΣP_cδ_c, and a shift of all classes
// integrated out,
//
//	2 log p(w)/q(w) = Σ_c [δ_cᵀP_cδ_c − w_cᵀΛ_cw_c] − sᵀ(ΣP)⁻¹s + |ΣΛ_cw_c|²/ΣΛ
//	                  + log|Λ| − log|ΣΛ| − log|P| + log|ΣP|.
//
// The samplers draw the weights minus their mean over the classes.
func ClassSamplers(l *site.LinearModel, mean []float64, cov *gauss.Contrasts) (
	func() psis.Sampler, error) {
	k, d, n := len(cov.Of), len(l.Names), l.X.Rows
	prior, logDet := newClassPrior(&l.Prior, k)
	all := make([]float64, d*d)
	for _, of := range cov.Of {
		logDet -= of.S.LogDet
		floats.Add(all, of.S.P)
	}
	if !dense.Cholesky(all, d) {
		return nil, unfitted()
	}
	logDet += dense.LogDet(all, d)
	draw := func(w, u, s, sum, eta []float64, rng *rand.Rand) (r float64, err error) {
		clear(s)
		clear(sum)
		for c, of := range cov.Of {
			delta := w[c*d : (c+1)*d]
			clear(delta)
			if err := of.Draw(delta, rng); err != nil {
				return 0, err
			}
			factor := dense.LowerTriangle(of.S.L, d)
			copy(u, delta)
			dense.Trmv(blas.Trans, factor, dense.Vector(u))
			r += floats.Dot(u, u)
			dense.Trmv(blas.NoTrans, factor, dense.Vector(u))
			floats.Add(s, u)
			floats.Add(delta, mean[c*d:(c+1)*d])
			r -= prior.add(sum, delta, c)
		}
		dense.Trsv(blas.NoTrans, dense.LowerTriangle(all, d), dense.Vector(s))
		r += logDet - floats.Dot(s, s) + prior.common(sum)
		r *= 0.5
		cov.Means(eta, w, l.X, nil)
		for i, y := range l.Terms.Y {
			scores := eta[i*k : (i+1)*k]
			if l.Terms.Offset != nil {
				floats.Add(scores, l.Terms.Offset[i*k:(i+1)*k])
			}
			logp := scores[int(y)] - floats.LogSumExp(scores)
			if l.Terms.Weight != nil {
				logp *= l.Terms.Weight[i]
			}
			r += logp
		}
		return r, nil
	}
	return func() psis.Sampler {
		u, s, sum := make([]float64, d), make([]float64, d), make([]float64, d)
		eta := make([]float64, n*k)
		return func(z, r []float64, rng *rand.Rand) error {
			for i := range len(z) / (k * d) {
				w := z[i*k*d : (i+1)*k*d]
				x, err := draw(w, u, s, sum, eta, rng)
				if err != nil {
					return err
				}
				if r != nil {
					r[i] = x
				}
				cov.Centre(w)
			}
			return nil
		}
	}, nil
}
