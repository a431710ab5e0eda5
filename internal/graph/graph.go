// Package graph computes the expected log density of a model that consists of blocks of unknowns
// and factors,
//
//	E_q[log p(y, z)] = Σ_i E_q[log f_i(y, z)],   q(z) = Π_b q_b(z_b),
//
// and its gradient with respect to the mean parameters μ of q. All blocks share one flat vector
// μ.
//
// A Term is a number per row, such as an element of a block or an inner product. It computes its
// moments from μ, and adds derivatives with respect to its moments to a gradient with respect to
// μ. A Factor is a function of the moments of its terms. Terms and factors work on chunks of
// rows, in arrays, so that no function is called per row. The root package declares the
// distributions and reports the errors.
//
//	block.go     where each copy and element of a block is in μ
//	term.go      known numbers, inner products, sums and products
//	factor.go    Factor; Gaussian, Gamma and custom factors
//	mixture.go   factors that sum over discrete variables
//	model.go     the sum over all factors and rows
//	check.go     checks of terms and factors when a model is built
//	alike.go     copies whose starts are alike and must be moved apart
//	assign.go    a start for the classes of units that depend on each other
//	draws.go     checks of a factor by differences and by draws
//	plates.go    units of rows for mini-batches
//	profile.go   the best copies of the units of a mini-batch
package graph

import "math"

// Moments holds the moments of a term in a chunk of rows: E[u], E[u²] and E[log u], or
// derivatives with respect to them. Moments that the term does not know are NaN.
type Moments struct {
	Mean, Square, Log []float64
	parts             []*Moments // moments of the operands of an expression
}

// Chunk is the largest number of rows that terms and factors handle at once.
const Chunk = 64

// Term is a number per row. A term of one row stands for every row of a factor.
type Term interface {
	// Rows returns the number of rows.
	Rows() int
	// Moments stores the moments of the given rows in m, which Buffer has made.
	Moments(m *Moments, mu []float64, rows []int)
	// Pull adds Σ d·∂m/∂μ over the given rows to dst. m holds their moments, and d holds
	// derivatives with respect to the moments. Pull may change d.
	Pull(dst, mu []float64, rows []int, m, d *Moments)
	// Touch calls see with the index in μ at which each copy begins that row depends on.
	Touch(row int, see func(start int))
	// Operands returns the operands of an expression, or nil.
	Operands() []Term
}

// Buffer returns Moments of t for n rows. Moments that t does not know are NaN and stay NaN.
func Buffer(t Term, n int) *Moments {
	m := &Moments{Mean: make([]float64, n), Square: make([]float64, n), Log: make([]float64, n)}
	for i := range n {
		m.Mean[i], m.Square[i], m.Log[i] = math.NaN(), math.NaN(), math.NaN()
	}
	for _, o := range t.Operands() {
		m.parts = append(m.parts, Buffer(o, n))
	}
	return m
}

// clear stores zeros in the first n rows.
func (m *Moments) clear(n int) {
	clear(m.Mean[:n])
	clear(m.Square[:n])
	clear(m.Log[:n])
}

// row0 is the list of rows of a term of one row.
var row0 = []int{0}

// load stores the moments of the given rows of a factor in m. It repeats a term of one row.
func load(t Term, m *Moments, mu []float64, rows []int) {
	if t.Rows() > 1 {
		t.Moments(m, mu, rows)
		return
	}
	t.Moments(m, mu, row0)
	for i := 1; i < len(rows); i++ {
		m.Mean[i], m.Square[i], m.Log[i] = m.Mean[0], m.Square[0], m.Log[0]
	}
}

// unload is Pull for the given rows of a factor. It adds up the derivatives of a term of one row.
func unload(t Term, dst, mu []float64, rows []int, m, d *Moments) {
	if t.Rows() > 1 {
		t.Pull(dst, mu, rows, m, d)
		return
	}
	for i := 1; i < len(rows); i++ {
		d.Mean[0] += d.Mean[i]
		d.Square[0] += d.Square[i]
		d.Log[0] += d.Log[i]
	}
	t.Pull(dst, mu, row0, m, d)
}

// touch is Touch for a row of a factor.
func touch(t Term, row int, see func(start int)) {
	if t.Rows() == 1 {
		row = 0
	}
	t.Touch(row, see)
}

// All calls see with the moments of each row of t.
func All(t Term, mu []float64, see func(mean, square, log float64)) {
	m := Buffer(t, min(Chunk, t.Rows()))
	each(t.Rows(), func(rows []int) bool {
		t.Moments(m, mu, rows)
		for i := range rows {
			see(m.Mean[i], m.Square[i], m.Log[i])
		}
		return true
	})
}
