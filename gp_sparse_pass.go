package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A pass goes through rows in blocks of sparseBlock, whose features it makes anew. They are dealt out in turn to
// sparseLanes lanes, each of which sums on its own, so that the sums do not depend on the number of workers.
const (
	sparseBlock = 512
	sparseLanes = 8
)

// laneMatrices is the number of M×sparseBlock matrices of a lane: covariances, features, and what is made of them.
const laneMatrices = 3

// tilePairs is about how many covariances of a block are computed at a time: what it takes stays in a cache of the second level.
const tilePairs = kernelRows * kernelCols

// keptResiduals is the number of rows whose residual variances are kept from one pass to the next at the same inducing inputs and
// hyper-parameters: 64 MB, which spare every further pass one solution with L.
const keptResiduals = 8_000_000

// sparsePass is a pass over rows at a state q(w) = N(m, P⁻¹) of the weights, which gives the exact ELBO there and the whole
// natural step,
//
//	P₊ = I + F diag(t)Fᵀ,   P₊(m₊ − m) = F∂₁ − m,   t = −∂₂, or max(0, −∂₂) where that has no P₊,
//
// with F = L⁻¹K(Z, X) the features, M×N, and ∂₁, ∂₂ the derivatives of the expectations in the mean (Khan and Lin 2017). What is made of
// a row are its features in the metric of q, with P = RRᵀ,
//
//	G = R⁻¹F = (LR)⁻¹K(Z, X),   η = Gᵀ(Rᵀm),   v_n = ‖g_n‖²,   F diag(t)Fᵀ = R[G diag(t)Gᵀ]Rᵀ,   F∂₁ = R[G∂₁],
//
// by one solution. Another, for ‖f_n‖², is in c_n, which the first pass at z keeps.
type sparsePass struct {
	rows    *rowSource
	from    int // the first so many of the sample; 0 means all rows
	z       *inducing
	lik     Likelihood
	workers crew

	// With glance set the metric is that of the prior, R = I, v = 0, and one of so many blocks has a Gram matrix.
	glance bool
	every  int
	draw   *rand.Rand // of these blocks

	// each is called with every block, if it is set, by the worker of its lane.
	each func(lane int, l *sparseLane)

	q      *weightState
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
	terms siteTerms
	plain bool      // neither offsets nor weights
	curve bool      // the block has a Gram matrix
	k     []float64 // K(Z, x), M×rows, if there is an each
	g     []float64 // G, M×rows
	site  siteState
	c     []float64
	b     []float64 // how far rounding may have moved c
	w     []float64

	value, err float64
	curved     int       // rows of gram
	widest     float64   // the largest ‖g‖²
	certain    bool      // all derivatives are those of the expectations
	gram       []float64 // G diag(t)Gᵀ, lower triangle, with t = max(0, −∂₂)
	clipped    []float64 // G diag(t + ∂₂)Gᵀ
	slope      []float64 // G∂₁
	failed     error
}

// reset prepares for a pass.
func (p *sparsePass) reset(q *weightState) {
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
			copy(row[:i+1], q.l[i*m:])
		}
	}
	p.every, p.draw = 1, rowRand()
	if _, exact := p.lik.(GaussianNoise); p.glance && !exact {
		p.every = min(glanceEvery, max(1, p.len()/(glanceRows*m)))
	}
	dense.MulSquare(p.lr, p.z.l, p.r, m)
	copy(p.mean, q.mean)
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
		l.value, l.err, l.widest, l.rows, l.curved, l.failed = 0, 0, 0, 0, 0, nil
		l.terms = siteTerms{lik: p.lik, y: l.terms.y[:0], offset: l.terms.offset[:0], weight: l.terms.weight[:0]}
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

// run goes through the rows. The error names the row that has no expectation, or is that of the crew, or of where the rows are from; it has no prefix.
func (p *sparsePass) run(q *weightState) error {
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
				err = p.workers.halt.Err()
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
			return fmt.Errorf("%d rows, and %d the first time; they must be the same whenever they are gone through, which an iterator over what is read once is not: %w", seen, r.n, ErrShape)
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
		l.terms.first = p.first
		l.curve = p.draw.IntN(p.every) == 0 || p.first == 0
	}
	l.terms.y = append(l.terms.y, y)
	l.terms.offset = append(l.terms.offset, offset)
	l.terms.weight = append(l.terms.weight, weight)
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
	p.loop.Halt = p.workers.halt
	p.loop.Run(n, 1, p.workers.workers, parallel.Func(func(_, i, _ int) { p.do(i) }))
	p.busy = 0
	if err := p.workers.halt.Err(); err != nil {
		return err
	}
	for i := range n {
		l := &p.lanes[i]
		if l.failed != nil {
			return l.failed
		}
		l.rows, l.plain = 0, true
		l.terms.y, l.terms.offset, l.terms.weight = l.terms.y[:0], l.terms.offset[:0], l.terms.weight[:0]
	}
	return nil
}

// block returns the rows of the block.
func (l *sparseLane) block(d int) blas64.General { return dense.General(l.x[:l.rows*d], l.rows, d) }

// tiles calls f for tiles of the pairs of some inducing values of part q, the first of which is lo, and all of the block.
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
	defer parallel.At(nil, func(i int) string { return fmt.Sprintf("covariances of row %d", l.terms.first+i) })
	l.g = dense.Resize(l.g, m*n)
	l.c, l.w = dense.Resize(l.c, n), dense.Resize(l.w, n)
	k := l.g
	if p.each != nil {
		l.k = dense.Resize(l.k, m*n)
		k = l.k
	}
	p.tiles(l, func(t *kernelTile, q inducingPart, lo int) { kernelFill(q.kernel, k[lo*n:][:t.len()], t) })
	s, g := &l.site, fma.Of(l.g, m, n, n)
	s.resize(n)
	if known := p.known(l); !known && (!p.glance || p.z.wholes() > 0) {
		p.leave(l, k)
	}
	p.metric.Solve(g, fma.Of(k, m, n, n), s.v)
	if p.glance {
		if p.z.wholes() == 0 {
			p.residuals(l)
		}
		clear(s.v)
	}
	clear(s.m)
	fma.Gemv(1, g, true, p.mean, s.m)
	l.terms.extra, l.terms.blur = l.c, l.b
	terms := l.terms
	if l.plain {
		terms.offset, terms.weight = nil, nil
	}
	if l.failed = terms.expect(s, nil, crew{1, p.workers.halt}); l.failed != nil {
		return
	}
	least := 0.0
	for i, e := range s.e {
		l.value += e
		l.widest = math.Max(l.widest, s.v[i])
		least = math.Min(least, s.tg[i])
		s.gamma[i] = math.Max(0, s.tg[i])
	}
	l.err += s.err
	l.certain = l.certain && s.certain
	fma.Gemv(1, g, false, s.d1, l.slope)
	if !l.curve {
		return
	}
	l.curved += n
	features := dense.General(l.g, m, n)
	dense.AddWeighted(nil, l.gram, m, s.gamma, features)
	if least < 0 && !p.glance {
		for i, g := range s.tg {
			l.w[i] = s.gamma[i] - g
		}
		dense.AddWeighted(nil, l.clipped, m, l.w, features)
	}
	if p.each != nil {
		p.each(i, l)
	}
}

// kept returns where the residual variances of the block are from one pass to the next, nil if they are not.
func (p *sparsePass) kept(l *sparseLane) []float64 {
	if first := l.terms.first; first+l.rows <= len(p.left) {
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
		clear(l.site.v)
	default:
		p.prior.Solve(fma.Matrix{}, fma.Of(k[first*n:], m-first, n, n), l.site.v)
	}
	p.residuals(l)
}

// residuals makes c what the squares ‖f‖² of the features leave, which are in the place of v.
func (p *sparsePass) residuals(l *sparseLane) {
	x, k := l.block(p.rows.cols), p.z.rest
	if k == nil {
		clear(l.c)
	} else {
		for i, square := range l.site.v {
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
	next      weightState // where the natural step leads
	promise   float64     // ½ΔmᵀP₊Δm + ¼tr((VΔP)²), what that gains, nearly
	bound     float64     // a proved bound of the gap, +Inf where it has none, and 0 where there are no proofs
	gram      []float64   // F diag(−∂₂)Fᵀ, lower triangle
	slope     []float64   // F∂₁
}

// at looks at the state q. The error is that of run, or wraps ErrNotPosDef.
func (p *sparsePass) at(q *weightState) (*sparseLook, error) {
	if err := p.run(q); err != nil {
		return nil, err
	}
	m, s := p.z.rank(), p.sum()
	x := &sparseLook{err: s.err}
	q.halt = p.workers.halt
	q.invert()
	if err := p.workers.halt.Err(); err != nil {
		return nil, err
	}
	trace := 0.0
	for j := range m {
		trace += q.inv[j*m+j]
	}
	kl := 0.5 * (trace + floats.Dot(q.mean, q.mean) - float64(m) + q.logDet)
	x.elbo = s.value - kl
	x.err += dense.Epsilon * float64(m) * (trace + math.Abs(q.logDet)) // of the algebra
	n := &x.next
	n.resize(m)
	n.halt = p.workers.halt
	step := func(gram []float64) bool {
		copy(n.p, gram)
		for j := range m {
			n.p[j*m+j]++
		}
		return n.factor()
	}
	x.gram, x.slope = append([]float64(nil), s.gram...), append([]float64(nil), s.slope...)
	floats.Sub(x.gram, s.clipped)
	if ok := step(x.gram) || step(s.gram); p.workers.halt.Stopped() {
		return nil, p.workers.halt.Err()
	} else if !ok {
		return nil, fmt.Errorf("the precision of the natural step: %w", ErrNotPosDef)
	}

	// Δm and M − I, with M = R⁻¹P₊R⁻ᵀ.
	d := make([]float64, m)
	floats.SubTo(d, x.slope, q.mean)
	dense.Potrs(n.l, d)
	floats.AddTo(n.mean, q.mean, d)
	dense.Trmv(blas.Trans, dense.LowerTriangle(n.l, m), dense.Vector(d))
	a := append([]float64(nil), n.p...)
	dense.FillUpper(a, m)
	g := dense.General(a, m, m)
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(q.l, m), g)
	dense.Trsm(blas.Right, blas.Trans, 1, dense.LowerTriangle(q.l, m), g)
	for j := range m {
		a[j*m+j]--
	}
	x.promise = 0.5*floats.Dot(d, d) + 0.25*floats.Dot(a, a)
	if p.from == 0 && factsOf(p.lik).LogConcave { // of a part of the rows nobody asks
		if x.bound = math.Inf(1); s.certain {
			x.bound = boundOf(p.prove(x, q, a, s.widest)) + p.z.jitterGap(x.gram, x.slope)
		}
	}
	return x, p.workers.halt.Err()
}

// Where a start is made one of glanceEvery blocks has a Gram matrix, or more, so that there are glanceRows rows for each inducing input: that of n rows
// leaves M/n of what a Newton step of the mean gains, and about M²/4n nats of the covariance.
const (
	glanceEvery = 4
	glanceRows  = 50
)

// newton returns the state that a Newton step of the mean leads to from q, with the precision that is its curvature, both at V = 0 and the latter by some blocks of the rows,
//
//	P₊ = I + (N/n) F diag(t)Fᵀ,   P₊(m₊ − m) = F∂₁ − m,
//
// in a pass that costs half as much as another, or less. The step promises gain = ½ΔmᵀP₊Δm over N(m, P₊⁻¹), the ELBO of which is nearly
// Σ log p(y_n|η_n) − ½‖m‖² − ½log|P₊|. Under Gaussian noise all blocks count, and nothing is left. The errors are those of at.
func (p *sparsePass) newton(q *weightState) (next *weightState, elbo, gain float64, err error) {
	p.glance = true
	defer func() { p.glance = false }()
	if err := p.run(q); err != nil {
		return nil, 0, 0, err
	}
	m, s := p.z.rank(), p.sum()
	next = &weightState{halt: p.workers.halt}
	next.resize(m)
	copy(next.p, s.gram)
	floats.Scale(float64(p.len())/float64(s.curved), next.p)
	for j := range m {
		next.p[j*m+j]++
	}
	if ok := next.factor(); p.workers.halt.Stopped() {
		return nil, 0, 0, p.workers.halt.Err()
	} else if !ok {
		return nil, 0, 0, fmt.Errorf("the curvature of the mean: %w", ErrNotPosDef)
	}
	floats.SubTo(next.mean, s.slope, q.mean)
	half := append([]float64(nil), next.mean...)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(next.l, m), dense.Vector(half))
	gain = 0.5 * floats.Dot(half, half)
	dense.Potrs(next.l, next.mean)
	floats.Add(next.mean, q.mean)
	if _, ok := dense.AllFinite(next.mean); !ok {
		return nil, 0, 0, fmt.Errorf("a Newton step of the mean: %w", ErrNotFinite)
	}
	return next, s.value - 0.5*(floats.Dot(q.mean, q.mean)+next.logDet), gain, nil
}

// selfBounded reports whether |ℓ‴| ≤ |ℓ″| for the log-likelihood ℓ in its latent value: then the curvature of a term is
// known to a factor near the state where it was taken.
func selfBounded(lik Likelihood) bool {
	switch lik.(type) {
	case BernoulliLogit, Binomial, Poisson, NegativeBinomial, GaussianNoise:
		return true
	}
	return false
}

// mostEigen is the largest ‖M − I‖_F at which the eigenvalues of M are bounded by it, and not computed.
const mostEigen = 0.1

// prove returns a bound on the gap of q, given M − I in a and the largest fᵀVf. With δ = m − F∂₁ it is the less of
//
//	G0 = ½δᵀδ + tr(M − I) − log|M|,
//	G2 = [(1 − t)log(1 − t) + t]/ρ² + ½D²/(1 − D),
//
// λ² = δᵀP₊⁻¹δ, ρ² = max fᵀVf/μ_min, t = λρ < 1, e = λ√(max fᵀVf·μ_max)/(1 − t), D = ‖M − I‖_F + e, μ the eigenvalues of M. The first is
// small only where the mean is nearly stationary in the metric of the prior; the second is one of Newton's method on self-concordant
// functions. Where D ≥ 1 its last term is Σ max(g((1 − t)μ), g(μ/(1 − t))), g(x) = x − 1 − log x.
func (p *sparsePass) prove(x *sparseLook, q *weightState, a []float64, widest float64) float64 {
	m := len(q.mean)
	delta := make([]float64, m)
	floats.SubTo(delta, q.mean, x.slope)
	trace := 0.0
	for j := range m {
		trace += a[j*m+j]
	}
	bound := 0.5*floats.Dot(delta, delta) + math.Max(0, trace-(x.next.logDet-q.logDet))
	if !selfBounded(p.lik) {
		return bound
	}
	square := append([]float64(nil), delta...)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(x.next.l, m), dense.Vector(square))
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

// jitterGap returns a bound on what the jitter j costs a state of which G = F diag(−∂₂)Fᵀ and F∂₁ are given. Without it the prior covariance of
// the rows would be larger by
//
//	Δ = jFᵀ(LᵀL − jI)⁻¹F,
//
// a function apart from that of the weights. With it at its prior G0 of prove is larger by no more than tr(diag(−∂₂)Δ) + ½∂₁ᵀΔ∂₁. The bound is twice that, as
// the other bound of prove speaks of the weights alone.
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
	return 2 * u.jitter * bound
}

// jitterRoundings is a multiple of the rounding of a product of matrices that is more than any.
const jitterRoundings = 10

// sparseHalves bounds the halves of a natural step.
const sparseHalves = 12

// between makes dst the state with natural parameters (1 − t) times those of q and t times those of where the step leads, and reports
// whether there is one.
func between(dst, q, next *weightState, t float64) bool {
	m := len(q.mean)
	dst.average(t, next, q)
	dst.halt = next.halt
	if !dst.factor() {
		return false
	}
	for i, s := range [2]*weightState{next, q} {
		w := [2]float64{t, 1 - t}[i]
		if i == 0 {
			clear(dst.mean)
		}
		for r := range m {
			var sum float64
			for c, v := range s.mean {
				sum += s.p[max(r, c)*m+min(r, c)] * v
			}
			dst.mean[r] += w * sum
		}
	}
	dense.Potrs(dst.l, dst.mean)
	_, ok := dense.AllFinite(dst.mean)
	return ok
}

// priorWeights returns the state N(0, I) of m weights.
func priorWeights(m int) *weightState {
	s := &weightState{}
	s.resize(m)
	clear(s.p)
	clear(s.mean)
	for j := range m {
		s.p[j*m+j] = 1
	}
	s.factor()
	return s
}
