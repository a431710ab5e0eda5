package sparse

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// A pass reads rows in blocks of blockRows and computes the features of each block. Blocks go to
// lanes in turn, and each lane has sums of its own, so the result does not depend on the number
// of workers.
const (
	blockRows = 192
	lanes     = 8
)

// laneMatrices is the number of M×blockRows matrices of a lane: covariances, features, and their
// products.
const laneMatrices = 3

// tilePairs is about the number of covariances of a block that are computed at a time, so that
// their data stay in a second-level cache.
const tilePairs = gram.Rows * gram.Cols

// keptResiduals is the number of rows whose residual variances are kept from one pass to the next
// at the same inducing inputs and hyperparameters: 64 MB, which save every later pass one
// triangular solve with L.
const keptResiduals = 8_000_000

// Pass is a pass over rows at a state q(w) = N(m, P⁻¹) of the weights. It returns the exact ELBO
// there and the whole natural step,
//
//	P₊ = I + F diag(t)Fᵀ,   P₊(m₊ − m) = F∂₁ − m,   t = −∂₂.
//
// F = L⁻¹K(Z, X) holds the features, M×N, and ∂₁ and ∂₂ are the derivatives of the expectations in
// the mean (Khan and Lin, 2017). If that P₊ is not positive definite, t is
// max(0, −∂₂). For each row it computes the features in the
// metric of q, with P = RRᵀ,
//
//	G = R⁻¹F = (LR)⁻¹K(Z, X),   η = Gᵀ(Rᵀm),   v_n = ‖g_n‖²,
//	F diag(t)Fᵀ = R[G diag(t)Gᵀ]Rᵀ,   F∂₁ = R[G∂₁],
//
// by one triangular solve. Another solve, for ‖f_n‖², gives c_n; the first pass at z stores it.
type Pass struct {
	Rows    *Rows
	From    int // reads only that many rows from the start of the sample; 0 means all rows
	Z       *Inducing
	Lik     Likelihood
	Fit     Fit // fits a few rows, as a start
	Workers term.Crew
	// Times is the number of rows that each row of a sample represents; 0 means 1.
	Times float64

	// If glance is set, the metric is the metric of the prior, R = I and v = 0, and only some
	// blocks get a Gram matrix.
	glance bool
	every  int
	draw   *rand.Rand // chooses these blocks

	// each is called with every block, if it is set, by the worker of its lane.
	each func(i int, l *lane)

	prior  fma.Lower // L, of the rest
	metric fma.Lower // LR
	r, lr  []float64 // M×M, with zeros above the diagonals
	mean   []float64 // Rᵀm
	left   []float64 // c of the first leftIn rows, at the inducing inputs leftOf
	leftOf *Inducing // nil if left is not known
	leftIn int
	centre []float64
	noisy  bool
	blur   float64 // rounding error of the largest variance under the rest
	lanes  []lane
	busy   int // lanes with a block
	first  int // number of the next row
	loop   parallel.Loop
}

// lane holds a block and the sums over the earlier blocks of the lane.
type lane struct {
	x     []float64 // rows×D
	rows  int
	tile  gram.Tile
	terms term.Terms
	plain bool      // there are neither offsets nor weights
	curve bool      // the block has a Gram matrix
	k     []float64 // K(Z, x), M×rows, if Pass.each is set
	g     []float64 // G, M×rows
	site  term.Marginals
	c     []float64
	b     []float64 // bounds on the rounding errors of c
	w     []float64

	value, err float64
	// sums of Terms.Blurred
	blurred, pull float64
	curved        int       // rows of gram
	widest        float64   // the largest ‖g‖²
	certain       bool      // every derivative is accurate
	gram          []float64 // G diag(t)Gᵀ, lower triangle, with t = max(0, −∂₂)
	clipped       []float64 // G diag(t + ∂₂)Gᵀ
	slope         []float64 // G∂₁
	failed        error
}

// reset prepares for a pass.
func (p *Pass) reset(q *gauss.Gaussian) {
	m, d := p.Z.Rank(), p.Rows.Cols
	p.busy, p.first = 0, 0
	p.noisy = p.Z.Rest != nil && p.Z.Rest.Noisy()
	p.centre = dense.Resize(p.centre, d)
	clear(p.centre)
	if n := p.len(); p.leftOf != p.Z || p.leftIn != n {
		p.leftOf, p.leftIn, p.left = nil, n, dense.Resize(p.left, min(n, keptResiduals))
		p.blur = p.Z.blur(floats.Max(p.Z.RestVar(p.Rows.X)))
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
	if p.glance && !gaussian(p.Lik) {
		p.every = min(glanceEvery, max(1, p.len()/(glanceRows*m)))
	}
	dense.MulSquare(p.lr, p.Z.L, p.r, m)
	copy(p.mean, q.Mean)
	dense.Trmv(blas.Trans, dense.LowerTriangle(p.r, m), dense.Vector(p.mean))
	if first := p.Z.Wholes(); first == 0 {
		p.prior.Set(fma.Of(p.Z.L, m, m, m))
	} else if first < m {
		p.prior.Set(fma.Of(p.Z.L, m, m, m).Slice(first, first, m-first, m-first))
	}
	p.metric.Set(fma.Of(p.lr, m, m, m))
	for i := range m {
		floats.AddScaled(p.centre, 1/float64(m), p.Z.X.RawRowView(i))
	}
	if p.lanes == nil {
		p.lanes = make([]lane, lanes)
	}
	for i := range p.lanes {
		l := &p.lanes[i]
		l.x = dense.Resize(l.x, blockRows*d)
		for _, v := range []*[]float64{&l.gram, &l.clipped} {
			*v = dense.Resize(*v, m*m)
			clear(*v)
		}
		l.b = dense.Resize(l.b, blockRows)
		for i := range l.b {
			l.b[i] = p.blur
		}
		l.slope = dense.Resize(l.slope, m)
		clear(l.slope)
		l.value, l.err, l.blurred, l.pull, l.widest = 0, 0, 0, 0, 0
		l.rows, l.curved, l.failed = 0, 0, nil
		l.terms.Lik = p.Lik
		l.empty()
		l.certain = true
	}
}

// len returns the number of rows of a pass.
func (p *Pass) len() int {
	if p.From > 0 {
		return p.From
	}
	return p.Rows.N
}

// run reads the rows. The error names a row without an expectation, or is the error of the crew
// or of the source of the rows. It has no prefix.
func (p *Pass) run(q *gauss.Gaussian) error {
	p.reset(q)
	err := p.through()
	if err == nil {
		p.leftOf = p.Z
	}
	return err
}

// through is run once p is prepared.
func (p *Pass) through() error {
	r := p.Rows
	if p.From == 0 && r.All != nil {
		for row, err := range r.All {
			if err == nil {
				err = p.Workers.Halt.Err()
			}
			if err == nil && p.first+p.lanes[p.busy].rows >= r.N {
				err = fmt.Errorf("there are more than the %d rows of the first pass; every "+
					"pass must read the same rows: %w",
					r.N, sentinel.ErrShape)
			}
			if err != nil {
				return err
			}
			copy(p.lanes[p.busy].next(r.Cols), row.Val)
			if err := p.lanes[p.busy].took(p, row.Y, row.Offset, row.Weight); err != nil {
				return err
			}
		}
		if seen := p.first + p.lanes[p.busy%lanes].rows; seen != r.N {
			return fmt.Errorf("%d rows, and %d the first time; "+
				"the iterator must yield the same rows every time it is ranged over: %w",
				seen, r.N, sentinel.ErrShape)
		}
		return p.flush()
	}
	for i := range p.len() {
		copy(p.lanes[p.busy].next(r.Cols), r.X.RawRowView(i))
		offset, weight := 0.0, 1.0
		if r.Offset != nil {
			offset, weight = r.Offset[i], r.Weight[i]
		}
		if err := p.lanes[p.busy].took(p, r.Y[i], offset, weight); err != nil {
			return err
		}
	}
	return p.flush()
}

// next returns where the values of the next row go.
func (l *lane) next(d int) []float64 { return l.x[l.rows*d : (l.rows+1)*d] }

// took stores the rest of that row, and processes the blocks once every lane has one.
func (l *lane) took(p *Pass, y, offset, weight float64) error {
	if l.rows == 0 {
		l.terms.First = p.first
		l.curve = p.draw.IntN(p.every) == 0 || p.first == 0
	}
	l.terms.Y = append(l.terms.Y, y)
	l.terms.Offset = append(l.terms.Offset, offset)
	l.terms.Weight = append(l.terms.Weight, weight)
	l.plain = l.plain && offset == 0 && weight == 1
	if l.rows++; l.rows < blockRows {
		return nil
	}
	p.first += l.rows
	if p.busy++; p.busy < lanes {
		return nil
	}
	return p.flush()
}

// flush processes the blocks that are not empty.
func (p *Pass) flush() error {
	n := p.busy
	if n < lanes && p.lanes[n].rows > 0 {
		p.first += p.lanes[n].rows
		n++
	}
	p.loop.Halt = p.Workers.Halt
	p.loop.Run(n, 1, p.Workers.Workers, parallel.Func(func(_, i, _ int) { p.do(i) }))
	p.busy = 0
	if err := p.Workers.Halt.Err(); err != nil {
		return err
	}
	for i := range n {
		l := &p.lanes[i]
		if l.failed != nil {
			return l.failed
		}
		l.empty()
	}
	return nil
}

// empty discards the block.
func (l *lane) empty() {
	l.rows, l.plain = 0, true
	t := &l.terms
	t.Y, t.Offset, t.Weight = t.Y[:0], t.Offset[:0], t.Weight[:0]
}

// block returns the rows of the block.
func (l *lane) block(d int) blas64.General { return dense.General(l.x[:l.rows*d], l.rows, d) }

// tiles calls f for tiles of pairs of inducing values of part q, beginning at lo, and all rows of
// the block.
func (p *Pass) tiles(l *lane, f func(t *gram.Tile, q part, lo int)) {
	z, x, t := p.Z.X.RawMatrix(), l.block(p.Rows.Cols), &l.tile
	high := max(1, tilePairs/x.Rows)
	p.Z.parts(func(q part) {
		for i := q.lo; i < q.hi; i += high {
			t.X, t.Y, t.Centre = gram.Slice(z, i, min(i+high, q.hi)), x, p.centre
			f(t, q, i)
		}
	})
}

// do adds the block of lane i to the sums of the lane.
func (p *Pass) do(i int) {
	l := &p.lanes[i]
	n, m := l.rows, p.Z.Rank()
	defer parallel.At(nil, func(i int) string {
		return fmt.Sprintf("covariances of row %d", l.terms.First+i)
	})
	l.g = dense.Resize(l.g, m*n)
	l.c, l.w = dense.Resize(l.c, n), dense.Resize(l.w, n)
	k := l.g
	if p.each != nil {
		l.k = dense.Resize(l.k, m*n)
		k = l.k
	}
	p.tiles(l, func(t *gram.Tile, q part, lo int) { q.Kernel.Fill(k[lo*n:][:t.Len()], t) })
	s, g := &l.site, fma.Of(l.g, m, n, n)
	s.Resize(n)
	if known := p.known(l); !known && (!p.glance || p.Z.Wholes() > 0) {
		p.leave(l, k)
	}
	p.metric.Solve(g, fma.Of(k, m, n, n), s.V)
	if p.glance {
		if p.Z.Wholes() == 0 {
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
	p.Lik.Rule(&terms)
	l.failed = terms.Sure(func() error {
		return terms.Expect(s, nil, term.Crew{Workers: 1, Halt: p.Workers.Halt})
	})
	if l.failed != nil {
		return
	}
	p.repeat(s)
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

// times returns how many rows each row counts for.
func (p *Pass) times() float64 {
	if p.Times > 0 {
		return p.Times
	}
	return 1
}

// repeat multiplies the expectations in s, with their derivatives, by the number of rows that each
// row counts for.
func (p *Pass) repeat(s *term.Marginals) {
	w := p.times()
	if w == 1 {
		return
	}
	for _, v := range [][]float64{s.E, s.D1, s.Tg} {
		floats.Scale(w, v)
	}
	s.Err *= w
}

// kept returns the memory that keeps the residual variances of the block between passes, or nil if
// they are not kept.
func (p *Pass) kept(l *lane) []float64 {
	if first := l.terms.First; first+l.rows <= len(p.left) {
		return p.left[first : first+l.rows]
	}
	return nil
}

// known reports whether the residual variances of the block are known, and copies them to c if so.
func (p *Pass) known(l *lane) bool {
	kept := p.kept(l)
	if p.leftOf == nil || kept == nil {
		return false
	}
	copy(l.c, kept)
	return true
}

// leave sets c to the variances k minus what the features explain.
func (p *Pass) leave(l *lane, k []float64) {
	first, m, n := p.Z.Wholes(), p.Z.Rank(), l.rows
	switch {
	case first == m:
		clear(l.site.V)
	default:
		p.prior.Solve(fma.Matrix{}, fma.Of(k[first*n:], m-first, n, n), l.site.V)
	}
	p.residuals(l)
}

// residuals computes c, the residual variances, from the squares ‖f‖² of the features, which are in
// v.
func (p *Pass) residuals(l *lane) {
	x, k := l.block(p.Rows.Cols), p.Z.Rest
	if k == nil {
		clear(l.c)
	} else {
		for i, square := range l.site.V {
			at := gram.Row(x, i)
			self := k.Cov(at, at)
			if l.c[i] = math.Max(0, self-square); p.noisy {
				l.c[i] += k.Self(at) - self
			}
		}
	}
	copy(p.kept(l), l.c)
}

// sum adds up the sums of all lanes in the first lane, converts them from G to F, and returns that
// lane.
func (p *Pass) sum() *lane {
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

// Memory returns the bytes of passes over n rows of cols columns, with up to m inducing values.
// The sample in memory has kept rows.
func Memory(n, kept, cols, m int) float64 {
	return memory.Bytes(1, kept, cols+3) + memory.Bytes(1, min(n, keptResiduals), 1) +
		memory.Bytes(site.WeightMatrices+2*lanes, m, m) +
		memory.Bytes(laneMatrices*lanes, blockRows, m)
}
