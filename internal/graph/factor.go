package graph

import "math"

// Factor is a summand of log p(y, z) in each row.
type Factor interface {
	// Name returns the name for errors.
	Name() string
	// Rows returns the number of rows.
	Rows() int
	// Custom reports whether the factor calls functions of the caller.
	Custom() bool
	// Parts returns the factors that this factor sums over, or nil.
	Parts() []Factor
	// Terms returns the terms of this factor, without the terms of its parts, and their names.
	Terms() ([]Term, []string)
	// Work returns the buffers for chunks of at most n rows.
	Work(n int) Work
}

// Work computes a factor in chunks of at most Chunk rows. It holds buffers and is not safe for
// concurrent use.
type Work interface {
	// Value stores E[log f] of the given rows in out.
	Value(out, mu []float64, rows []int)
	// Pull adds Σ weight·∇_μ E[log f] over the given rows to dst. It follows a call of Value with
	// the same arguments mu and rows.
	Pull(dst, mu []float64, rows []int, weight []float64)
}

// Kernel is a function of the moments of terms.
type Kernel interface {
	// Density stores E[log f] of the given rows in out. m[i] holds the moments of term i.
	Density(out []float64, rows []int, m []*Moments)
	// Slopes stores the derivatives with respect to the moments of term i in d[i]. d is zero on
	// entry. out holds the values.
	Slopes(d []*Moments, rows []int, m []*Moments, out []float64)
}

// Plain is a factor with a Kernel.
type Plain struct {
	name   string
	rows   int
	terms  []Term
	names  []string
	kernel Kernel
	custom bool
}

// NewPlain returns the factor of the given terms, whose names are for errors. custom is
// Factor.Custom.
func NewPlain(name string, rows int, kernel Kernel, terms []Term, names []string,
	custom bool) *Plain {
	return &Plain{name, rows, terms, names, kernel, custom}
}

func (f *Plain) Name() string { return f.name }

func (f *Plain) Rows() int { return f.rows }

func (f *Plain) Custom() bool { return f.custom }

func (f *Plain) Parts() []Factor { return nil }

func (f *Plain) Terms() ([]Term, []string) { return f.terms, f.names }

// plainWork implements Work for a Plain.
type plainWork struct {
	*Plain
	m, d []*Moments
	out  []float64
}

func (f *Plain) Work(n int) Work {
	w := &plainWork{Plain: f, out: make([]float64, n)}
	for _, t := range f.terms {
		w.m, w.d = append(w.m, Buffer(t, n)), append(w.d, Buffer(t, n))
	}
	return w
}

func (w *plainWork) Value(out, mu []float64, rows []int) {
	for i, t := range w.terms {
		load(t, w.m[i], mu, rows)
	}
	w.kernel.Density(w.out[:len(rows)], rows, w.m)
	copy(out, w.out[:len(rows)])
}

func (w *plainWork) Pull(dst, mu []float64, rows []int, weight []float64) {
	n := len(rows)
	w.slopes(rows)
	for i, t := range w.terms {
		if IsKnown(t) {
			continue
		}
		d := w.d[i]
		for k, x := range weight[:n] {
			d.Mean[k] *= x
			d.Square[k] *= x
			d.Log[k] *= x
		}
		unload(t, dst, mu, rows, w.m[i], d)
	}
}

// slopes stores the derivatives of the last Value in w.d.
func (w *plainWork) slopes(rows []int) {
	for _, d := range w.d {
		d.clear(len(rows))
	}
	w.kernel.Slopes(w.d, rows, w.m, w.out[:len(rows)])
}

// NormalKernel is log N(x|m, 1/t) of the terms x, m and t.
type NormalKernel struct{}

const logTwoPi = 1.8378770664093454836

func (NormalKernel) Density(out []float64, _ []int, m []*Moments) {
	x, c, t := m[0], m[1], m[2]
	for i := range out {
		square := x.Square[i] - 2*x.Mean[i]*c.Mean[i] + c.Square[i]
		out[i] = 0.5 * (t.Log[i] - logTwoPi - t.Mean[i]*square)
	}
}

func (NormalKernel) Slopes(d []*Moments, _ []int, m []*Moments, out []float64) {
	x, c, t := m[0], m[1], m[2]
	for i := range out {
		s := t.Mean[i]
		d[0].Mean[i], d[0].Square[i] = s*c.Mean[i], -0.5*s
		d[1].Mean[i], d[1].Square[i] = s*x.Mean[i], -0.5*s
		d[2].Mean[i] = -0.5 * (x.Square[i] - 2*x.Mean[i]*c.Mean[i] + c.Square[i])
		d[2].Log[i] = 0.5
	}
}

// GammaKernel is log Gamma(x|Shape, r) of the terms x and r.
type GammaKernel struct{ Shape float64 }

func (k GammaKernel) Density(out []float64, _ []int, m []*Moments) {
	l, _ := math.Lgamma(k.Shape)
	x, r := m[0], m[1]
	for i := range out {
		out[i] = k.Shape*r.Log[i] - l + (k.Shape-1)*x.Log[i] - r.Mean[i]*x.Mean[i]
	}
}

func (k GammaKernel) Slopes(d []*Moments, _ []int, m []*Moments, out []float64) {
	x, r := m[0], m[1]
	for i := range out {
		d[0].Log[i], d[0].Mean[i] = k.Shape-1, -r.Mean[i]
		d[1].Log[i], d[1].Mean[i] = k.Shape, -x.Mean[i]
	}
}

// ExpectKernel is E[log p(y|u)] of the term u, which is Gaussian under q.
type ExpectKernel struct {
	Y []float64 // one for each row, or one for all
	// Expect returns the expectation for u ~ N(m, v) and its derivatives with respect to m and v.
	Expect func(y, m, v float64) (value, dm, dv float64)
}

func (k *ExpectKernel) at(rows []int, m []*Moments, i int) (value, dm, dv float64) {
	r := rows[i]
	if len(k.Y) == 1 {
		r = 0
	}
	c := m[0].Mean[i]
	return k.Expect(k.Y[r], c, math.Max(0, m[0].Square[i]-c*c))
}

func (k *ExpectKernel) Density(out []float64, rows []int, m []*Moments) {
	for i := range out {
		out[i], _, _ = k.at(rows, m, i)
	}
}

func (k *ExpectKernel) Slopes(d []*Moments, rows []int, m []*Moments, out []float64) {
	for i := range out {
		_, dm, dv := k.at(rows, m, i)
		d[0].Mean[i], d[0].Square[i] = dm-2*m[0].Mean[i]*dv, dv
	}
}

// Point has the fields of the moments of one term in one row.
type Point interface {
	~struct{ Mean, Square, Log float64 }
}

type point = struct{ Mean, Square, Log float64 }

// Custom is the Kernel of functions of one row. If Slope is nil, Of must be affine in the moments
// of each term, and derivatives are differences, which are then exact.
type Custom[P Point] struct {
	Of    func(row int, m []P) float64
	Slope func(row int, d, m []P)
	Fixed []bool // terms whose derivatives are not needed
}

// row stores the moments of row i of the chunk in p.
func (k *Custom[P]) row(p []P, m []*Moments, i int) {
	for j := range p {
		p[j] = P(point{m[j].Mean[i], m[j].Square[i], m[j].Log[i]})
	}
}

func (k *Custom[P]) Density(out []float64, rows []int, m []*Moments) {
	p := make([]P, len(m))
	for i, r := range rows {
		k.row(p, m, i)
		out[i] = k.Of(r, p)
	}
}

func (k *Custom[P]) Slopes(d []*Moments, rows []int, m []*Moments, out []float64) {
	p, g := make([]P, len(m)), make([]P, len(m))
	for i, r := range rows {
		k.row(p, m, i)
		clear(g)
		if k.Slope != nil {
			k.Slope(r, g, p)
		} else {
			k.differences(r, g, p, out[i])
		}
		for j := range g {
			x := point(g[j])
			d[j].Mean[i], d[j].Square[i], d[j].Log[i] = x.Mean, x.Square, x.Log
		}
	}
}

// differences stores the derivatives of an Of that is affine, with value at p, in g.
func (k *Custom[P]) differences(row int, g, p []P, value float64) {
	for j := range p {
		if k.Fixed[j] {
			continue
		}
		at := p[j]
		slope := func(x float64, change func(m *point, to float64)) float64 {
			if math.IsNaN(x) {
				return 0
			}
			h := 1 + math.Abs(x)
			m := point(at)
			change(&m, x+h)
			p[j] = P(m)
			return (k.Of(row, p) - value) / h
		}
		m := point(at)
		g[j] = P(point{
			slope(m.Mean, func(m *point, x float64) { m.Mean = x }),
			slope(m.Square, func(m *point, x float64) { m.Square = x }),
			slope(m.Log, func(m *point, x float64) { m.Log = x }),
		})
		p[j] = at
	}
}
