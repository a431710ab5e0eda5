package rounds

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// ArrowState is a state q of a mixed model: the Gaussian with the natural parameters of the prior
// plus sites, whose sums XᵀΓX and h = Xᵀb it holds. The effects of a level have the prior N(0, LLᵀ),
// with an L for each factor in the order of gauss.NewArrowShape.
type ArrowState struct {
	L      [][]float64
	Sums   gauss.Sums
	HB, HG []float64 // h of the border and of the eliminated levels, about the prior mean

	By   *gauss.Arrow
	Mean gauss.ArrowMean // about the prior mean
	at   []float64       // the mean of the weights of the border

	model  *arrowModel
	square float64 // the square of the mean in the prior precision
}

// arrowModel is the part of a model that its states share.
type arrowModel struct {
	prior *gauss.Prior
	shape *gauss.ArrowShape
}

// newArrowModel returns the model with the given prior, which has blocks.
func newArrowModel(prior *gauss.Prior) *arrowModel {
	s := gauss.NewArrowShape(prior)
	s.SetFull()
	return &arrowModel{prior, s}
}

// factor computes the covariance and the mean under the prior of m with the L of q. It reports
// whether the precision is positive definite.
func (q *ArrowState) factor(h *parallel.Halt, m *arrowModel) bool {
	q.model = m
	q.By = &gauss.Arrow{ArrowShape: m.shape, L: q.L, Sums: q.Sums}
	if !q.By.Factor(h) {
		return false
	}
	q.square = q.By.Solve(&q.Mean, q.HB, q.HG, make([]float64, len(q.HG)))
	q.at = make([]float64, len(q.HB))
	for k, j := range m.shape.Border {
		q.at[k] = q.Mean.W[k] + m.prior.Mean[j]
	}
	return finite(q.at) && finite(q.Mean.U)
}

// state writes or reads q, without its factors.
func (q *ArrowState) state(c *save.Coder, g *Grouping) {
	d, rows, factors := g.Border(), g.Levels*g.Q, g.factors()
	if c.Reading() {
		*q = ArrowState{L: make([][]float64, len(factors))}
		if !c.Holds(rows, g.Q+d+1) || !c.Holds(d, 1) {
			return
		}
		q.Sums.A = make([]float64, d*d)
	}
	for k, f := range factors {
		c.Floats(f.Q*f.Q, &q.L[k])
		c.Check(len(q.L[k]) == f.Q*f.Q, "a state lacks an L")
	}
	c.Floats(d, &q.HB)
	c.Floats(rows, &q.HG)
	c.Floats(rows*g.Q, &q.Sums.D)
	c.Floats(rows*d, &q.Sums.B)
	c.Lower(d, q.Sums.A)
	c.Check(len(q.HB) == d && len(q.HG) == rows &&
		len(q.Sums.D) == rows*g.Q && len(q.Sums.B) == rows*d, "a state lacks sums")
}

// digest adds q to d.
func (q *ArrowState) digest(d *save.Digest) {
	n := len(q.HB)
	for _, l := range q.L {
		d.Floats(l)
	}
	for _, x := range [][]float64{q.HB, q.HG, q.Sums.D, q.Sums.B} {
		d.Floats(x)
	}
	for i := range n {
		d.Float(q.Sums.A[i*n : i*n+i+1]...)
	}
}

// divergence returns KL(q‖prior) and the sizes of the numbers that it consists of.
func (q *ArrowState) divergence() (kl, size float64) {
	trace := q.By.Trace(&q.Sums)
	return 0.5 * (q.square + q.By.LogDet - trace), q.square + math.Abs(q.By.LogDet) +
		math.Abs(trace)
}

// ArrowLook evaluates a state of a mixed model. It adds up what a Look adds up, for each level
// apart. Several goroutines may add rows at the same time.
type ArrowLook struct {
	At *ArrowState // nil if the look was read from another machine, or at first sites

	rowSums // E, its error, and the blocks of Xᵀ∂₁ and Xᵀdiag(max(0, −∂₂))X
	of      *Grouping

	tilts *tilted // nil if no derivatives in parameters are wanted

	once   sync.Once
	te, we []float64 // T_g = E_gP and R_g + T_gE_gᵀ of all levels, for crossed factors
}

// NewArrowLook returns a look at q before any row.
func NewArrowLook(q *ArrowState, g *Grouping) *ArrowLook {
	return &ArrowLook{At: q, of: g, rowSums: rowSums{sums: NewSums(g.Sums())}}
}

// tilt makes l also add up the derivatives in the parameters of the likelihood. The weights of the
// border come first, and then the effects of the eliminated levels.
func (l *ArrowLook) tilt(of []Tilt) { l.tilts = newTilted(of, l.of.Weights()) }

// prepare computes te and we, once.
func (l *ArrowLook) prepare() {
	l.once.Do(func() {
		c, g := l.At.By, l.of
		q, m, rows := g.Q, g.Border(), g.Levels*g.Q
		p := c.Inverse()
		l.te, l.we = make([]float64, rows*m), slices.Clone(c.R)
		fma.Gemm(fma.Run{}, 1, fma.Of(c.E, rows, m, m), fma.Of(p, m, m, m), fma.Of(l.te, rows, m, m))
		for i := range rows {
			for k := range q {
				j := i/q*q + k
				l.we[i*q+k] += floats.Dot(l.te[i*m:(i+1)*m], c.E[j*m:(j+1)*m])
			}
		}
	})
}

// crossed is marginals for crossed factors, whose columns are sparse. The variance of a row is
// xᵀPx − 2zᵀT_gx + zᵀ(R_g + T_gE_gᵀ)z.
func (l *ArrowLook) crossed(w *groupLane) {
	l.prepare()
	q, m := l.of.Q, l.of.Border()
	s, p := &w.site, l.At.By.Inverse()
	s.Resize(w.x.Rows)
	w.x.Mul(s.M, l.At.at, nil)
	for i := range s.V {
		ind, val := w.x.Row(i)
		s.V[i] = 0
		for k, x := range val {
			row := p[int(ind[k])*m:]
			for j, y := range val[:k] {
				s.V[i] += 2 * x * y * row[ind[j]]
			}
			s.V[i] += x * x * row[ind[k]]
		}
		g := int(w.level[i])
		if g < 0 {
			continue
		}
		z := w.z[i*q : (i+1)*q]
		for j, zj := range z {
			at := g*q + j
			s.M[i] += zj * l.At.Mean.U[at]
			s.V[i] += zj * floats.Dot(z, l.we[at*q:(at+1)*q])
			t := l.te[at*m : (at+1)*m]
			for k, x := range val {
				s.V[i] -= 2 * zj * x * t[ind[k]]
			}
		}
	}
}

// marginals stores the means and variances of the chunk in w at the state. With r the row minus what
// its level explains, r = x − E_gᵀz, the variance is zᵀR_gz + rᵀS⁻¹r.
func (l *ArrowLook) marginals(w *groupLane) {
	if len(l.of.Others) > 0 {
		l.crossed(w)
		return
	}
	q, d, c := l.of.Q, l.of.Common, l.At.By
	s := &w.site
	s.Resize(w.x.Rows)
	w.rows = append(w.rows[:0], w.x.Dense...)
	w.x.Mul(s.M, l.At.at, nil)
	clear(s.V)
	if d > 0 { // before the levels, which add to it
		for _, row := range w.order {
			i, g := int(row), int(w.level[row])
			for j, z := range w.z[i*q : (i+1)*q] {
				gauss.AddTimes(w.rows[i*d:(i+1)*d], -z, c.E[(g*q+j)*d:(g*q+j+1)*d])
			}
		}
		x := w.x
		x.Dense = w.rows
		x.Variances(s.V, c.Chol, nil, nil, &w.work)
	}
	for _, row := range w.order {
		i, g := int(row), int(w.level[row])
		z := w.z[i*q : (i+1)*q]
		for j, x := range z {
			s.M[i] += x * l.At.Mean.U[g*q+j]
			for k, y := range z {
				s.V[i] += x * y * c.R[(g*q+j)*q+k]
			}
		}
	}
}

// add adds the chunk in w; see Look.Add.
func (l *ArrowLook) add(w *groupLane, h *parallel.Halt, block uint64, t *term.Terms) error {
	s := &w.site
	w.work.Halt = h
	l.marginals(w)
	err := t.Sure(func() error { return t.Expect(s, nil, term.Crew{Workers: 1, Halt: h}) })
	if halted := h.Err(); halted != nil {
		return halted
	}
	if err != nil {
		l.lose(block, err.Error())
		return nil
	}
	if l.tilts != nil {
		sums := tilt(l.tilts.of, h, s, &w.tilted, l.of.Weights(), t, func(dst, u []float64) {
			w.addMulT(l.of, dst, u)
		})
		l.mu.Lock()
		l.tilts.add(sums)
		l.mu.Unlock()
	}
	value, clipped := 0.0, false
	for i, e := range s.E {
		value += e
		clipped = clipped || s.Tg[i] < 0
		s.Gamma[i] = max(0, s.Tg[i])
	}
	w.pack(l.of, s.Gamma, s.D1)
	w.packed[0], w.packed[1] = value, s.Err
	if ok := l.put(w, block, &l.sums); !clipped || !ok {
		return h.Err()
	}
	for i, g := range s.Tg {
		s.Gamma[i] -= g
		s.D1[i] = 0
	}
	w.pack(l.of, s.Gamma, s.D1)
	l.put(w, block, &l.clip)
	return h.Err()
}

// put adds the packed sums of w to the sums in to. It reports false if they are not finite.
func (l *ArrowLook) put(w *groupLane, block uint64, to **Sums) (ok bool) {
	if !w.finite() {
		l.lose(block, fmt.Sprintf("the sums of block %d overflow", block))
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if *to == nil {
		*to = NewSums(l.of.Sums())
	}
	w.addTo(l.of, *to)
	return true
}

// addStart adds the chunk in w at first sites: those that near gives, or the sites under N(0, 1) for
// each linear predictor.
func (l *ArrowLook) addStart(w *groupLane, h *parallel.Halt, block uint64, t *term.Terms,
	near Near) {
	s := &w.site
	s.Resize(w.x.Rows)
	s.D1 = dense.Resize(s.D1, w.x.Rows)
	clear(s.M)
	for i := range s.V {
		s.V[i] = 1
	}
	var err error
	if near == nil {
		err = t.Sure(func() error { return t.Expect(s, nil, term.Crew{Workers: 1, Halt: h}) })
	}
	if err != nil {
		l.lose(block, err.Error())
		return
	}
	for i := range s.M {
		if near == nil {
			s.Gamma[i] = max(0, s.Tg[i])
			continue
		}
		y, o, weight, _ := t.Term(i)
		eta, gamma := near(y)
		s.Gamma[i] = gamma * weight
		s.D1[i] = s.Gamma[i] * (eta - o)
	}
	w.pack(l.of, s.Gamma, s.D1)
	l.put(w, block, &l.sums)
}

// merge adds the sums of o.
func (l *ArrowLook) merge(o *ArrowLook) { l.rowSums.merge(&o.rowSums, l.of.Sums()) }

// state writes or reads the sums.
func (l *ArrowLook) state(c *save.Coder) {
	n := l.of.Sums()
	if c.Reading() {
		l.sums, l.clip = &Sums{}, nil
	}
	l.sums.State(c, n)
	clipped := l.clip != nil
	if c.Bool(&clipped); clipped && c.Err() == nil {
		if c.Reading() {
			l.clip = &Sums{}
		}
		l.clip.State(c, n)
	}
	c.Text(&l.lost)
	c.Uint64(&l.lostAt)
}

// StateAt writes or reads the state of l, with the prior under which it has factors.
func (l *ArrowLook) StateAt(c *save.Coder) {
	g := l.of
	if c.Reading() {
		l.At = &ArrowState{}
	}
	n, cols := g.Common, g.Columns()
	mean, prec := make([]float64, n), make([]float64, n)
	if !c.Reading() {
		p := l.At.model.prior
		for k, j := range cols[:n] {
			mean[k], prec[k] = p.Mean[j], p.Prec[j]
		}
	}
	c.Floats(n, &mean, &prec)
	l.At.state(c, g)
	c.Check(len(mean) == n && len(prec) == n && finite(mean) && finite(prec),
		"a state without a prior")
	for _, x := range l.At.L {
		c.Check(finite(x), "an L that is not finite")
	}
	for _, x := range prec {
		c.Check(x > 0, "a prior precision of %v", x)
	}
	if !c.Reading() || c.Err() != nil {
		return
	}
	p := gauss.UnitPrior(g.Weights())
	for k, j := range cols[:n] {
		p.Mean[j], p.Prec[j] = mean[k], prec[k]
	}
	for k, f := range g.factors() {
		p.SetBlock(gauss.Block{First: f.First, Levels: f.Levels, Q: f.Q, L: l.At.L[k]})
	}
	c.Check(l.At.factor(nil, newArrowModel(&p)), "a state has no positive definite precision")
}

// State returns the first sites as a state without factors, or nil if a row has no site.
func (f *GroupFirst) State() *ArrowState {
	l := f.Start
	if l.lost != "" {
		return nil
	}
	s := &ArrowState{}
	s.HB, s.HG, _, _ = l.of.blocks(l.sums, &s.Sums)
	return s
}

// Scaled returns a state whose sites have x times the precisions of the sites of q, at the same
// means. It has no factors.
func (q *ArrowState) Scaled(x float64) *ArrowState {
	s := &ArrowState{Sums: q.Sums.Clone(), HB: slices.Clone(q.HB), HG: slices.Clone(q.HG)}
	s.Sums.Scale(x)
	floats.Scale(x, s.HB)
	floats.Scale(x, s.HG)
	return s
}

// blocks stores the blocks of the given sums in s, hb and hg, and returns the first two numbers.
func (g *Grouping) blocks(all *Sums, s *gauss.Sums) (hb, hg []float64, value, err float64) {
	d, q := g.Border(), g.Q
	rows := g.Levels * q
	head := make([]float64, lookSums(d))
	all.valueAt(0, head)
	hb, hg = head[2:2+d:2+d], make([]float64, rows)
	s.A, s.B, s.D = make([]float64, d*d), make([]float64, rows*d), make([]float64, rows*q)
	at := 2 + d
	for i := range d {
		at += copy(s.A[i*d:i*d+i+1], head[at:])
	}
	own := make([]float64, g.each())
	for level := range g.Levels {
		all.valueAt(g.level(level), own)
		copy(hg[level*q:], own[:q])
		dg := s.D[level*q*q : (level+1)*q*q]
		for i := range q {
			for j := range i + 1 {
				x := own[q+triangle(i)+j]
				dg[i*q+j], dg[j*q+i] = x, x
			}
		}
		copy(s.B[level*q*d:], own[q+triangle(q):])
	}
	return hb, hg, head[0], head[1]
}
