package pgsvi

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/goals"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A pass goes through rows in blocks of sparseBlock, whose features it makes anew. They are dealt
// out in turn to sparseLanes lanes, each of which sums on its own, so that the sums do not depend
// on the number of workers.
const (
	sparseBlock = 192
	sparseLanes = 8
)

// laneMatrices is the number of M×sparseBlock matrices of a lane: covariances, features, and what
// is made of them.
const laneMatrices = 3

// tilePairs is about how many covariances of a block are computed at a time: what it takes stays in
// a cache of the second level.
const tilePairs = kernelRows * kernelCols

// keptResiduals is the number of rows whose residual variances are kept from one pass to the next
// at the same inducing inputs and hyper-parameters: 64 MB, which spare every further pass one
// solution with L.
const keptResiduals = 8_000_000

// sparsePass is a pass over rows at a state q(w) = N(m, P⁻¹) of the weights, which gives the exact
// ELBO there and the whole natural step,
//
//	P₊ = I + F diag(t)Fᵀ,   P₊(m₊ − m) = F∂₁ − m,   t = −∂₂, or max(0, −∂₂) where that has no P₊,
//
// with F = L⁻¹K(Z, X) the features, M×N, and ∂₁, ∂₂ the derivatives of the expectations in the mean
// (Khan and Lin 2017). What is made of a row are its features in the metric of q, with P = RRᵀ,
//
//	G = R⁻¹F = (LR)⁻¹K(Z, X),   η = Gᵀ(Rᵀm),   v_n = ‖g_n‖²,   F diag(t)Fᵀ = R[G diag(t)Gᵀ]Rᵀ,   F∂₁ = R[G∂₁],
//
// by one solution. Another, for ‖f_n‖², is in c_n, which the first pass at z keeps.
type sparsePass struct {
	rows    *rowSource
	from    int // the first so many of the sample; 0 means all rows
	z       *inducing
	lik     Likelihood
	workers term.Crew

	// With glance set the metric is that of the prior, R = I, v = 0, and one of so many blocks has
	// a Gram matrix.
	glance bool
	every  int
	draw   *rand.Rand // of these blocks

	// each is called with every block, if it is set, by the worker of its lane.
	each func(lane int, l *sparseLane)

	q      *gauss.State
	prior  fma.Lower // L, of the rest
	metric fma.Lower // LR
	r, lr  []float64 // M×M, with zeros above the diagonals
	mean   []float64 // Rᵀm
	left   []float64 // c of the first rows,
	leftOf *inducing // which are those of a pass at that,
	leftIn int       // of so many rows; nil leftOf: not known
	centre []float64
	noisy  bool
	blur   float64 // of the largest variance under the rest
	lanes  []sparseLane
	busy   int // lanes with a block
	first  int // number of the next row
	loop   parallel.Loop
}

// sparseLane is a block, and the sums of those before it.
type sparseLane struct {
	x     []float64 // rows×D
	rows  int
	terms term.Terms
	plain bool      // neither offsets nor weights
	curve bool      // the block has a Gram matrix
	k     []float64 // K(Z, x), M×rows, if there is an each
	g     []float64 // G, M×rows
	site  term.State
	c     []float64
	b     []float64 // how far rounding may have moved c
	w     []float64

	value, err float64
	// what Terms.Blurred says of the rows
	blurred, pull float64
	curved        int       // rows of gram
	widest        float64   // the largest ‖g‖²
	certain       bool      // all derivatives are those of the expectations
	gram          []float64 // G diag(t)Gᵀ, lower triangle, with t = max(0, −∂₂)
	clipped       []float64 // G diag(t + ∂₂)Gᵀ
	slope         []float64 // G∂₁
	failed        error
}

// reset prepares for a pass.
func (p *sparsePass) reset(q *gauss.State) {
	m, d := p.z.rank(), p.rows.cols
	p.q, p.busy, p.first = q, 0, 0
	_, p.noisy = p.z.rest.(Noisy)
	p.centre = dense.Resize(p.centre, d)
	clear(p.centre)
	if n := p.len(); p.leftOf != p.z || p.leftIn != n {
		p.leftOf, p.leftIn, p.left = nil, n, dense.Resize(p.left, min(n, keptResiduals))
		p.blur = p.z.blur(floats.Max(p.z.restVar(p.rows.x)))
	}
	p.r, p.lr, p.mean = dense.Resize(p.r, m*m), dense.Resize(p.lr, m*m), dense.Resize(p.mean, m)
	for i := range m {
		row := p.r[i*m : (i+1)*m]
		if clear(row); p.glance {
			row[i] = 1
		} else {
			copy(row[:i+1], q.L[i*m:])
		}
	}
	p.every, p.draw = 1, rowRand()
	if _, exact := p.lik.(GaussianNoise); p.glance && !exact {
		p.every = min(glanceEvery, max(1, p.len()/(glanceRows*m)))
	}
	dense.MulSquare(p.lr, p.z.l, p.r, m)
	copy(p.mean, q.Mean)
	dense.Trmv(blas.Trans, dense.LowerTriangle(p.r, m), dense.Vector(p.mean))
	if first := p.z.wholes(); first == 0 {
		p.prior.Set(fma.Of(p.z.l, m, m, m))
	} else if first < m {
		p.prior.Set(fma.Of(p.z.l, m, m, m).Slice(first, first, m-first, m-first))
	}
	p.metric.Set(fma.Of(p.lr, m, m, m))
	for i := range m {
		floats.AddScaled(p.centre, 1/float64(m), p.z.x.RawRowView(i))
	}
	if p.lanes == nil {
		p.lanes = make([]sparseLane, sparseLanes)
	}
	for i := range p.lanes {
		l := &p.lanes[i]
		l.x = dense.Resize(l.x, sparseBlock*d)
		for _, v := range []*[]float64{&l.gram, &l.clipped} {
			*v = dense.Resize(*v, m*m)
			clear(*v)
		}
		l.b = dense.Resize(l.b, sparseBlock)
		for i := range l.b {
			l.b[i] = p.blur
		}
		l.slope = dense.Resize(l.slope, m)
		clear(l.slope)
		l.value, l.err, l.blurred, l.pull, l.widest, l.rows, l.curved, l.failed = 0, 0, 0, 0, 0, 0, 0, nil
		l.terms = term.Terms{Lik: viewOf(p.lik), Y: l.terms.Y[:0], Offset: l.terms.Offset[:0], Weight: l.terms.Weight[:0]}
		l.plain, l.certain = true, true
	}
}

// len returns the number of rows of a pass.
func (p *sparsePass) len() int {
	if p.from > 0 {
		return p.from
	}
	return p.rows.n
}

// run goes through the rows. The error names the row that has no expectation, or is that of the
// crew, or of where the rows are from; it has no prefix.
func (p *sparsePass) run(q *gauss.State) error {
	p.reset(q)
	err := p.through()
	if err == nil {
		p.leftOf = p.z
	}
	return err
}

// through is run once p is prepared.
func (p *sparsePass) through() error {
	r := p.rows
	if p.from == 0 && r.all != nil {
		for row, err := range r.all {
			if err == nil {
				err = p.workers.Halt.Err()
			}
			if err == nil && p.first+p.lanes[p.busy].rows >= r.n {
				err = fmt.Errorf("the rows are more than the %d of the first time; they must be the same whenever they are gone through: %w", r.n, ErrShape)
			}
			if err == nil {
				err = checkRow(&row, r.cols, p.lik, p.first+p.lanes[p.busy].rows)
			}
			if err != nil {
				return err
			}
			at := p.lanes[p.busy].next(r.cols)
			denseRow(at, &row)
			if err := p.lanes[p.busy].took(p, row.Y, row.Offset, weightOf(&row)); err != nil {
				return err
			}
		}
		if seen := p.first + p.lanes[p.busy%sparseLanes].rows; seen != r.n {
			return fmt.Errorf("%d rows, and %d the first time; the iterator must yield the same rows every time it is ranged over: %w", seen, r.n, ErrShape)
		}
		return p.flush()
	}
	for i := range p.len() {
		copy(p.lanes[p.busy].next(r.cols), r.x.RawRowView(i))
		offset, weight := 0.0, 1.0
		if r.offset != nil {
			offset, weight = r.offset[i], r.weight[i]
		}
		if err := p.lanes[p.busy].took(p, r.y[i], offset, weight); err != nil {
			return err
		}
	}
	return p.flush()
}

// next returns where the values of the next row go.
func (l *sparseLane) next(d int) []float64 { return l.x[l.rows*d : (l.rows+1)*d] }

// took takes the rest of that row, and does the blocks once every lane has one.
func (l *sparseLane) took(p *sparsePass, y, offset, weight float64) error {
	if l.rows == 0 {
		l.terms.First = p.first
		l.curve = p.draw.IntN(p.every) == 0 || p.first == 0
	}
	l.terms.Y = append(l.terms.Y, y)
	l.terms.Offset = append(l.terms.Offset, offset)
	l.terms.Weight = append(l.terms.Weight, weight)
	l.plain = l.plain && offset == 0 && weight == 1
	if l.rows++; l.rows < sparseBlock {
		return nil
	}
	p.first += l.rows
	if p.busy++; p.busy < sparseLanes {
		return nil
	}
	return p.flush()
}

// flush does the blocks there are.
func (p *sparsePass) flush() error {
	n := p.busy
	if n < sparseLanes && p.lanes[n].rows > 0 {
		p.first += p.lanes[n].rows
		n++
	}
	p.loop.Halt = p.workers.Halt
	p.loop.Run(n, 1, p.workers.Workers, parallel.Func(func(_, i, _ int) { p.do(i) }))
	p.busy = 0
	if err := p.workers.Halt.Err(); err != nil {
		return err
	}
	for i := range n {
		l := &p.lanes[i]
		if l.failed != nil {
			return l.failed
		}
		l.rows, l.plain = 0, true
		l.terms.Y, l.terms.Offset, l.terms.Weight = l.terms.Y[:0], l.terms.Offset[:0], l.terms.Weight[:0]
	}
	return nil
}

// block returns the rows of the block.
func (l *sparseLane) block(d int) blas64.General { return dense.General(l.x[:l.rows*d], l.rows, d) }

// tiles calls f for tiles of the pairs of some inducing values of part q, the first of which is lo,
// and all of the block.
func (p *sparsePass) tiles(l *sparseLane, f func(t *kernelTile, q inducingPart, lo int)) {
	z, x := p.z.x.RawMatrix(), l.block(p.rows.cols)
	t := kernelTiles.Get().(*kernelTile)
	t.centre = p.centre
	high := max(1, tilePairs/x.Rows)
	p.z.parts(func(q inducingPart) {
		for i := q.lo; i < q.hi; i += high {
			t.x, t.y = kernelSlice(z, i, min(i+high, q.hi)), x
			f(t, q, i)
			t.top = 0
		}
	})
	t.x, t.y, t.centre = blas64.General{}, blas64.General{}, nil
	t.free()
}

// do sums over the block of lane i.
func (p *sparsePass) do(i int) {
	l := &p.lanes[i]
	n, m := l.rows, p.z.rank()
	defer parallel.At(nil, func(i int) string { return fmt.Sprintf("covariances of row %d", l.terms.First+i) })
	l.g = dense.Resize(l.g, m*n)
	l.c, l.w = dense.Resize(l.c, n), dense.Resize(l.w, n)
	k := l.g
	if p.each != nil {
		l.k = dense.Resize(l.k, m*n)
		k = l.k
	}
	p.tiles(l, func(t *kernelTile, q inducingPart, lo int) { kernelFill(q.kernel, k[lo*n:][:t.len()], t) })
	s, g := &l.site, fma.Of(l.g, m, n, n)
	s.Resize(n)
	if known := p.known(l); !known && (!p.glance || p.z.wholes() > 0) {
		p.leave(l, k)
	}
	p.metric.Solve(g, fma.Of(k, m, n, n), s.V)
	if p.glance {
		if p.z.wholes() == 0 {
			p.residuals(l)
		}
		clear(s.V)
	}
	clear(s.M)
	fma.Gemv(1, g, true, p.mean, s.M)
	l.terms.Extra = l.c
	terms := l.terms
	if l.plain {
		terms.Offset, terms.Weight = nil, nil
	}
	ruled(&terms)
	l.failed = terms.Sure(func() error {
		return terms.Expect(s, nil, term.Crew{Workers: 1, Halt: p.workers.Halt})
	})
	if l.failed != nil {
		return
	}
	terms.Blur = l.b
	variances, pull := terms.Blurred(s, nil)
	l.blurred += variances
	l.pull += pull
	least := 0.0
	for i, e := range s.E {
		l.value += e
		l.widest = math.Max(l.widest, s.V[i])
		least = math.Min(least, s.Tg[i])
		s.Gamma[i] = math.Max(0, s.Tg[i])
	}
	l.err += s.Err
	l.certain = l.certain && s.Certain
	fma.Gemv(1, g, false, s.D1, l.slope)
	if !l.curve {
		return
	}
	l.curved += n
	features := dense.General(l.g, m, n)
	dense.AddWeighted(nil, l.gram, m, s.Gamma, features)
	if least < 0 && !p.glance {
		for i, g := range s.Tg {
			l.w[i] = s.Gamma[i] - g
		}
		dense.AddWeighted(nil, l.clipped, m, l.w, features)
	}
	if p.each != nil {
		p.each(i, l)
	}
}

// kept returns where the residual variances of the block are from one pass to the next, nil if they
// are not.
func (p *sparsePass) kept(l *sparseLane) []float64 {
	if first := l.terms.First; first+l.rows <= len(p.left) {
		return p.left[first : first+l.rows]
	}
	return nil
}

// known reports whether they are known, and if so makes them c.
func (p *sparsePass) known(l *sparseLane) bool {
	kept := p.kept(l)
	if p.leftOf == nil || kept == nil {
		return false
	}
	copy(l.c, kept)
	return true
}

// leave makes c what the features leave, of which k are the covariances.
func (p *sparsePass) leave(l *sparseLane, k []float64) {
	first, m, n := p.z.wholes(), p.z.rank(), l.rows
	switch {
	case first == m:
		clear(l.site.V)
	default:
		p.prior.Solve(fma.Matrix{}, fma.Of(k[first*n:], m-first, n, n), l.site.V)
	}
	p.residuals(l)
}

// residuals makes c what the squares ‖f‖² of the features leave, which are in the place of v.
func (p *sparsePass) residuals(l *sparseLane) {
	x, k := l.block(p.rows.cols), p.z.rest
	if k == nil {
		clear(l.c)
	} else {
		for i, square := range l.site.V {
			row := kernelRow(x, i)
			self := k.Cov(row, row)
			if l.c[i] = math.Max(0, self-square); p.noisy {
				l.c[i] += kernelSelf(k, row) - self
			}
		}
	}
	copy(p.kept(l), l.c)
}

// sum returns the sums of all lanes, stored in the first, of F in the place of G.
func (p *sparsePass) sum() *sparseLane {
	s := &p.lanes[0]
	for i := 1; i < len(p.lanes); i++ {
		l := &p.lanes[i]
		s.value += l.value
		s.err += l.err
		s.blurred += l.blurred
		s.pull += l.pull
		s.curved += l.curved
		s.widest = math.Max(s.widest, l.widest)
		s.certain = s.certain && l.certain
		floats.Add(s.gram, l.gram)
		floats.Add(s.clipped, l.clipped)
		floats.Add(s.slope, l.slope)
	}
	m := len(s.slope)
	buf := make([]float64, m*m)
	r, b := dense.General(p.r, m, m), dense.General(buf, m, m)
	for _, a := range [2][]float64{s.gram, s.clipped} {
		dense.FillUpper(a, m)
		dense.MulSquare(buf, p.r, a, m)
		dense.Gemm(blas.NoTrans, blas.Trans, 1, b, r, 0, dense.General(a, m, m))
	}
	dense.Trmv(blas.NoTrans, dense.LowerTriangle(p.r, m), dense.Vector(s.slope))
	return s
}

// sparseLook is what a pass says of a state.
type sparseLook struct {
	elbo, err float64
	// what rounding of the features makes of the ELBO: of all states of them alike, so that it hides
	// nothing of what one has beyond another
	blurred float64
	next    gauss.State // where the natural step leads
	promise float64     // ½ΔmᵀP₊Δm + ¼tr((VΔP)²), what that gains, nearly
	// a proved bound of the gap, +Inf where it has none, and 0 where there are no proofs
	bound float64
	gram  []float64 // F diag(−∂₂)Fᵀ, lower triangle
	slope []float64 // F∂₁
}

// at looks at the state q. The error is that of run, or wraps ErrNotPosDef.
func (p *sparsePass) at(q *gauss.State) (*sparseLook, error) {
	if err := p.run(q); err != nil {
		return nil, err
	}
	m, s := p.z.rank(), p.sum()
	x := &sparseLook{err: s.err, blurred: s.blurred + 0.5*s.pull*s.pull}
	q.Halt = p.workers.Halt
	q.Invert()
	if err := p.workers.Halt.Err(); err != nil {
		return nil, err
	}
	trace := 0.0
	for j := range m {
		trace += q.Inv[j*m+j]
	}
	kl := 0.5 * (trace + floats.Dot(q.Mean, q.Mean) - float64(m) + q.LogDet)
	x.elbo = s.value - kl
	x.err += dense.Epsilon * float64(m) * (trace + math.Abs(q.LogDet)) // of the algebra
	n := &x.next
	n.Resize(m)
	n.Halt = p.workers.Halt
	step := func(gram []float64) bool {
		copy(n.P, gram)
		for j := range m {
			n.P[j*m+j]++
		}
		return n.Factor()
	}
	x.gram, x.slope = append([]float64(nil), s.gram...), append([]float64(nil), s.slope...)
	floats.Sub(x.gram, s.clipped)
	if ok := step(x.gram) || step(s.gram); p.workers.Halt.Stopped() {
		return nil, p.workers.Halt.Err()
	} else if !ok {
		return nil, fmt.Errorf("the precision of the natural step: %w", ErrNotPosDef)
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
	x.promise = 0.5*floats.Dot(d, d) + 0.25*floats.Dot(a, a)
	if p.from == 0 && factsOf(p.lik).LogConcave { // of a part of the rows nobody asks
		if x.bound = math.Inf(1); s.certain {
			x.bound = goals.Bound(p.prove(x, q, a, s.widest)) + p.z.jitterGap(x.gram, x.slope)
		}
	}
	return x, p.workers.Halt.Err()
}

// Where a start is made one of glanceEvery blocks has a Gram matrix, or more, so that there are
// glanceRows rows for each inducing input: that of n rows leaves M/n of what a Newton step of the
// mean gains, and about M²/4n nats of the covariance.
const (
	glanceEvery = 4
	glanceRows  = 50
)

// newton returns the state that a Newton step of the mean leads to from q, with the precision that
// is its curvature, both at V = 0 and the latter by some blocks of the rows,
//
//	P₊ = I + (N/n) F diag(t)Fᵀ,   P₊(m₊ − m) = F∂₁ − m,
//
// in a pass that costs half as much as another, or less. The step promises gain = ½ΔmᵀP₊Δm over
// N(m, P₊⁻¹), the ELBO of which is nearly Σ log p(y_n|η_n) − ½‖m‖² − ½log|P₊|. Under Gaussian noise
// all blocks count, and nothing is left. The errors are those of at.
func (p *sparsePass) newton(q *gauss.State) (next *gauss.State, elbo, gain float64, err error) {
	p.glance = true
	defer func() { p.glance = false }()
	if err := p.run(q); err != nil {
		return nil, 0, 0, err
	}
	m, s := p.z.rank(), p.sum()
	next = &gauss.State{Halt: p.workers.Halt}
	next.Resize(m)
	copy(next.P, s.gram)
	floats.Scale(float64(p.len())/float64(s.curved), next.P)
	for j := range m {
		next.P[j*m+j]++
	}
	if ok := next.Factor(); p.workers.Halt.Stopped() {
		return nil, 0, 0, p.workers.Halt.Err()
	} else if !ok {
		return nil, 0, 0, fmt.Errorf("the curvature of the mean: %w", ErrNotPosDef)
	}
	floats.SubTo(next.Mean, s.slope, q.Mean)
	half := append([]float64(nil), next.Mean...)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(next.L, m), dense.Vector(half))
	gain = 0.5 * floats.Dot(half, half)
	dense.Potrs(next.L, next.Mean)
	floats.Add(next.Mean, q.Mean)
	if _, ok := dense.AllFinite(next.Mean); !ok {
		return nil, 0, 0, fmt.Errorf("a Newton step of the mean: %w", ErrNotFinite)
	}
	return next, s.value - 0.5*(floats.Dot(q.Mean, q.Mean)+next.LogDet), gain, nil
}

// mostEigen is the largest ‖M − I‖_F at which the eigenvalues of M are bounded by it, and not
// computed.
const mostEigen = 0.1

// prove returns a bound on the gap of q, given M − I in a and the largest fᵀVf. With δ = m − F∂₁ it
// is the less of
//
//	G0 = ½δᵀδ + tr(M − I) − log|M|,
//	G2 = [(1 − t)log(1 − t) + t]/ρ² + ½D²/(1 − D),
//
// λ² = δᵀP₊⁻¹δ, ρ² = max fᵀVf/μ_min, t = λρ < 1, e = λ√(max fᵀVf·μ_max)/(1 − t), D = ‖M − I‖_F + e,
// μ the eigenvalues of M. The first is small only where the mean is nearly stationary in the metric
// of the prior; the second is one of Newton's method on self-concordant functions. Where D ≥ 1 its
// last term is Σ max(g((1 − t)μ), g(μ/(1 − t))), g(x) = x − 1 − log x.
func (p *sparsePass) prove(x *sparseLook, q *gauss.State, a []float64, widest float64) float64 {
	m := len(q.Mean)
	delta := make([]float64, m)
	floats.SubTo(delta, q.Mean, x.slope)
	trace := 0.0
	for j := range m {
		trace += a[j*m+j]
	}
	bound := 0.5*floats.Dot(delta, delta) + math.Max(0, trace-(x.next.LogDet-q.LogDet))
	if p.z.jitter != 0 || !factsOf(p.lik).selfBounded { // jitterGap adds to the first alone
		return bound
	}
	square := append([]float64(nil), delta...)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(x.next.L, m), dense.Vector(square))
	lambda := floats.Norm(square, 2)
	norm := floats.Norm(a, 2)
	low, high := 1-norm, 1+norm
	var mu []float64
	if norm > mostEigen {
		var e mat.EigenSym
		if !e.Factorize(dense.FullSym(a, m), false) {
			return bound
		}
		mu = e.Values(nil)
		for j := range mu {
			mu[j]++
		}
		low, high = mu[0], mu[m-1]
	}
	if !(low > 0) {
		return bound
	}
	rho := math.Sqrt(widest / low)
	t := lambda * rho
	if !(t < 1) {
		return bound
	}
	mean := 0.5 * lambda * lambda
	if t > 1e-4 {
		mean = ((1-t)*math.Log1p(-t) + t) / (rho * rho)
	} else {
		mean *= 1 + t // (1 − t)log(1 − t) + t = t²/2 + t³/6 + …
	}
	d := norm + lambda*math.Sqrt(widest*high)/(1-t)
	cov := 0.5 * d * d / (1 - d)
	if !(d < 1) {
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

// jitterGap returns a bound on what the jitter j costs a state of which G = F diag(−∂₂)Fᵀ
// and F∂₁ are given. Without it the prior covariance of the rows would be larger by
//
//	Δ = jFᵀ(LᵀL − jI)⁻¹F,
//
// a function apart from that of the weights. With it at its prior the bound G0 of prove is
// larger by no more than tr(diag(−∂₂)Δ) + ½∂₁ᵀΔ∂₁. This holds for G0 alone: G2 speaks of the
// weights, and what they and that function gain together is not proved to be the sum.
func (u *inducing) jitterGap(gram, slope []float64) float64 {
	if u.jitter == 0 {
		return 0
	}
	m, first := u.rank(), u.wholes()
	n := m - first
	rest := func(a []float64) blas64.General {
		return blas64.General{Rows: n, Cols: n, Stride: m, Data: a[first*m+first:]}
	}
	a := make([]float64, n*n)
	dense.Gemm(blas.Trans, blas.NoTrans, 1, rest(u.l), rest(u.l), 0, dense.General(a, n, n))
	for i := range n { // and as much as float64 does not know of
		a[i*n+i] += jitterRoundings*dense.Epsilon*float64(n)*u.jitter/sparseJitter - u.jitter
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
	return u.jitter * bound
}

// jitterRoundings is a multiple of the rounding of a product of matrices that is more than any.
const jitterRoundings = 10

// sparseHalves bounds the halves of a natural step.
const sparseHalves = 12

// between makes dst the state with natural parameters (1 − t) times those of q and t times those of
// where the step leads, and reports whether there is one.
func between(dst, q, next *gauss.State, t float64) bool {
	m := len(q.Mean)
	dst.Average(t, next, q)
	dst.Halt = next.Halt
	if !dst.Factor() {
		return false
	}
	for i, s := range [2]*gauss.State{next, q} {
		w := [2]float64{t, 1 - t}[i]
		if i == 0 {
			clear(dst.Mean)
		}
		for r := range m {
			var sum float64
			for c, v := range s.Mean {
				sum += s.P[max(r, c)*m+min(r, c)] * v
			}
			dst.Mean[r] += w * sum
		}
	}
	dense.Potrs(dst.L, dst.Mean)
	_, ok := dense.AllFinite(dst.Mean)
	return ok
}

// rowSource are the rows of a SparseGP that it goes through again and again: a sample of them in
// memory, in random order, and, unless those are all, where to get the rest.
type rowSource struct {
	n, cols           int
	all               iter.Seq2[Row, error] // nil where the sample is all
	x                 *mat.Dense            // the sample
	y, offset, weight []float64             // nil offset and weight mean 0 and 1
}

// Of rows that are gone through again and again so many are kept, and fewer where they take more
// numbers: to choose inducing inputs and hyper-parameters by, and to start from.
const (
	sampleRows    = 50_000
	sampleNumbers = 8_000_000
)

// rowRand returns the generator of what is drawn among rows, which begins at the same place every
// time.
func rowRand() *rand.Rand { return rand.New(rand.NewPCG(seed1, seed2)) }

// sampleOf returns the number of rows of so many columns that are kept.
func sampleOf(cols int) int { return max(1000, min(sampleRows, sampleNumbers/(cols+1))) }

// newRowSource goes through rows once: it counts and checks them and keeps a random sample, by a
// fixed seed, of which each row is as likely to be one (reservoir sampling; Vitter 1985). The rows
// of a sample are in random order.
func newRowSource(ctx context.Context, rows iter.Seq2[Row, error], cols int, lik Likelihood) (*rowSource, error) {
	if rows == nil {
		return nil, fmt.Errorf("pgsvi: nil rows: %w", ErrEmpty)
	}
	r := &rowSource{cols: cols, all: rows}
	most := sampleOf(cols)
	rng := rowRand()
	var x []float64
	plain := true
	for row, err := range rows {
		if err == nil && r.n%ctxEvery == 0 && ctx.Err() != nil {
			err = fmt.Errorf("pgsvi: canceled after %d rows: %w", r.n, context.Cause(ctx))
		}
		if err == nil {
			err = prefixed(checkRow(&row, cols, lik, r.n))
		}
		if err != nil {
			return nil, err
		}
		at := r.n
		if r.n++; at >= most {
			if at = rng.IntN(r.n); at >= most {
				continue
			}
		} else {
			x = append(x, make([]float64, cols)...)
			r.y, r.offset, r.weight = append(r.y, 0), append(r.offset, 0), append(r.weight, 0)
		}
		denseRow(x[at*cols:(at+1)*cols], &row)
		r.y[at], r.offset[at], r.weight[at] = row.Y, row.Offset, weightOf(&row)
		plain = plain && row.Offset == 0 && r.weight[at] == 1
	}
	if r.n == 0 {
		return nil, fmt.Errorf("pgsvi: no rows: %w", ErrEmpty)
	}
	if r.n <= most {
		r.all = nil
	}
	r.x = mat.NewDense(len(r.y), cols, x)
	if r.shuffle(rng); plain && r.all == nil {
		r.offset, r.weight = nil, nil
	}
	return r, nil
}

// shuffle puts the sample in random order.
func (r *rowSource) shuffle(rng *rand.Rand) {
	x := r.x.RawMatrix()
	rng.Shuffle(len(r.y), func(i, j int) {
		a, b := kernelRow(x, i), kernelRow(x, j)
		for d, v := range a {
			a[d], b[d] = b[d], v
		}
		for _, v := range [][]float64{r.y, r.offset, r.weight} {
			if v != nil {
				v[i], v[j] = v[j], v[i]
			}
		}
	})
}

// rowSourceOf returns the rows of terms at the rows of x, which it reads only.
func rowSourceOf(x *mat.Dense, t *term.Terms) *rowSource {
	n, cols := x.Dims()
	most := sampleOf(cols)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	rng := rowRand()
	rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	r := &rowSource{n: n, cols: cols, x: mat.NewDense(min(n, most), cols, nil)}
	if n > most {
		r.all = Rows(x, t.Y)
	}
	for i, from := range order[:min(n, most)] {
		r.x.SetRow(i, x.RawRowView(from))
		r.y = append(r.y, t.Y[from])
	}
	return r
}

// weightOf returns the weight of row.
func weightOf(row *Row) float64 {
	if row.Weight == 0 {
		return 1
	}
	return row.Weight
}

// denseRow stores the values of row in dst.
func denseRow(dst []float64, row *Row) {
	if row.Ind == nil {
		copy(dst, row.Val)
		return
	}
	clear(dst)
	for k, j := range row.Ind {
		dst[j] = row.Val[k]
	}
}

// terms returns the terms of the first n rows of the sample, without residual variances.
func (r *rowSource) terms(lik Likelihood, n int) *term.Terms {
	t := &term.Terms{Lik: viewOf(lik), Y: r.y[:n]}
	if r.offset != nil {
		t.Offset, t.Weight = r.offset[:n], r.weight[:n]
	}
	return t
}

// sample returns the first n rows of the sample.
func (r *rowSource) sample(n int) *mat.Dense { return r.x.Slice(0, n, 0, r.cols).(*mat.Dense) }

// digest shows d the sample, under lik.
func (r *rowSource) digest(d *save.Digest, lik Likelihood) {
	d.Int(r.n, r.cols)
	r.terms(lik, len(r.y)).Digest(d)
	for i := range r.y {
		d.Floats(r.x.RawRowView(i))
	}
}
