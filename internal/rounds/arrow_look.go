package rounds

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// ArrowState is a state q of a mixed model with one grouping factor: the Gaussian with the natural
// parameters of the prior plus sites, whose sums XᵀΓX and h = Xᵀb it holds. The effects of a level
// have the prior N(0, LLᵀ).
type ArrowState struct {
	L      []float64
	Sums   gauss.Sums
	HB, HG []float64 // h of the common columns and of the levels, about the prior mean

	By   *gauss.Arrow
	Mean gauss.ArrowMean // about the prior mean
	at   []float64       // the mean of the common weights

	model *arrowModel
}

// arrowModel is the part of a model that its states share.
type arrowModel struct {
	prior *gauss.Prior
	shape *gauss.ArrowShape
}

// newArrowModel returns the model with the given prior, which has one block.
func newArrowModel(prior *gauss.Prior) *arrowModel {
	s := gauss.NewArrowShape(prior)
	s.Pat = make([][]int32, s.Blocks[0].Levels)
	s.SetPtr()
	return &arrowModel{prior, s}
}

// factor computes the covariance and the mean under the prior of m with the L of q. It reports
// whether the precision is positive definite.
func (q *ArrowState) factor(h *parallel.Halt, m *arrowModel) bool {
	q.model = m
	q.By = &gauss.Arrow{ArrowShape: m.shape, L: [][]float64{q.L}, Sums: q.Sums}
	if !q.By.Factor(h) {
		return false
	}
	q.By.Solve(&q.Mean, q.HB, q.HG, make([]float64, len(q.HG)))
	q.at = make([]float64, len(q.HB))
	for k, j := range m.shape.Border {
		q.at[k] = q.Mean.W[k] + m.prior.Mean[j]
	}
	return finite(q.at) && finite(q.Mean.U)
}

// state writes or reads q, without its factors.
func (q *ArrowState) state(c *save.Coder, g *Grouping) {
	d, rows := g.Common, g.Levels*g.Q
	if c.Reading() {
		*q = ArrowState{}
		if !c.Holds(rows, g.Q+d+1) || !c.Holds(d, 1) {
			return
		}
		q.Sums.A = make([]float64, d*d)
	}
	c.Floats(g.Q*g.Q, &q.L)
	c.Floats(d, &q.HB)
	c.Floats(rows, &q.HG)
	c.Floats(rows*g.Q, &q.Sums.D)
	c.Floats(rows*d, &q.Sums.B)
	c.Lower(d, q.Sums.A)
	c.Check(len(q.L) == g.Q*g.Q && len(q.HB) == d && len(q.HG) == rows &&
		len(q.Sums.D) == rows*g.Q && len(q.Sums.B) == rows*d, "a state lacks sums")
}

// digest adds q to d.
func (q *ArrowState) digest(d *save.Digest) {
	n := len(q.HB)
	for _, x := range [][]float64{q.L, q.HB, q.HG, q.Sums.D, q.Sums.B} {
		d.Floats(x)
	}
	for i := range n {
		d.Float(q.Sums.A[i*n : i*n+i+1]...)
	}
}

// divergence returns KL(q‖prior) and the sizes of the numbers that it consists of.
func (q *ArrowState) divergence() (kl, size float64) {
	x := &q.Mean
	square := 0.0
	for i, p := range q.By.Prec {
		square += p * x.W[i] * x.W[i]
	}
	for _, v := range x.V {
		square += v * v
	}
	trace := q.By.Trace(&q.Sums)
	return 0.5 * (square + q.By.LogDet - trace), math.Abs(square) + math.Abs(q.By.LogDet) +
		math.Abs(trace)
}

// ArrowLook evaluates a state of a mixed model. It adds up what a Look adds up, for each level
// apart. Several goroutines may add rows at the same time.
type ArrowLook struct {
	At *ArrowState // nil if the look was read from another machine, or at first sites

	rowSums // E, its error, and the blocks of Xᵀ∂₁ and Xᵀdiag(max(0, −∂₂))X
	of      *Grouping
}

// NewArrowLook returns a look at q before any row.
func NewArrowLook(q *ArrowState, g *Grouping) *ArrowLook {
	return &ArrowLook{At: q, of: g, rowSums: rowSums{sums: NewSums(g.Sums())}}
}

// marginals stores the means and variances of the chunk in w at the state. With r the row minus what
// its level explains, r = x − E_gᵀz, the variance is zᵀR_gz + rᵀS⁻¹r.
func (l *ArrowLook) marginals(w *groupLane) {
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
	n := g.Common
	mean, prec := make([]float64, n), make([]float64, n)
	if !c.Reading() {
		p := l.At.model.prior
		for k := range n {
			mean[k], prec[k] = p.Mean[g.Column(k)], p.Prec[g.Column(k)]
		}
	}
	c.Floats(n, &mean, &prec)
	l.At.state(c, g)
	c.Check(len(mean) == n && len(prec) == n && finite(mean) && finite(prec) && finite(l.At.L),
		"a state without a prior")
	for _, x := range prec {
		c.Check(x > 0, "a prior precision of %v", x)
	}
	if !c.Reading() {
		return
	}
	p := gauss.UnitPrior(n + g.Levels*g.Q)
	for k := range n {
		p.Mean[g.Column(k)], p.Prec[g.Column(k)] = mean[k], prec[k]
	}
	p.SetBlock(gauss.Block{First: g.First, Levels: g.Levels, Q: g.Q, L: l.At.L})
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
	d, q := g.Common, g.Q
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
