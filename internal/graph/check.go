package graph

import (
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Check returns the mistakes of the factors at μ, at most a few for each factor: dependent terms
// in a row, unknown moments, values or derivatives that are not finite, and panics.
func (m *Model) Check(mu []float64) (errs []error) {
	for _, f := range m.Factors {
		errs = append(errs, m.checkFactor(f, mu)...)
	}
	return errs
}

func (m *Model) checkFactor(f Factor, mu []float64) (errs []error) {
	rows := []int{0}
	defer func() {
		if r := recover(); r != nil {
			errs = append(errs, fmt.Errorf("factor %s, rows %d to %d: panic: %v: %w", f.Name(),
				rows[0],
				rows[len(rows)-1], parallel.Caught(r).Value, sentinel.ErrPanic))
		}
	}()
	if errs = checkTerms(f, mu); errs != nil {
		return errs
	}
	grad, out := make([]float64, m.params), make([]float64, Chunk)
	w, unit := f.Work(min(Chunk, f.Rows())), ones(Chunk)
	var err error
	each(f.Rows(), func(r []int) bool {
		rows = r
		w.Value(out, mu, rows)
		for i, r := range rows {
			if !finiteNumber(out[i]) {
				err = fmt.Errorf("factor %s, row %d: the value is %v%s: %w", f.Name(), r, out[i],
					missing(f, mu, r), sentinel.ErrNotFinite)
				return false
			}
		}
		w.Pull(grad, mu, rows, unit[:len(rows)])
		return true
	})
	if err != nil {
		return []error{err}
	}
	if i, ok := dense.AllFinite(grad); !ok {
		return []error{fmt.Errorf("factor %s: the derivative with respect to %s is %v: %w",
			f.Name(),
			m.Layout.Describe(i), grad[i], sentinel.ErrNotFinite)}
	}
	return nil
}

// checkTerms returns the mistakes in the terms of f and its parts.
func checkTerms(f Factor, mu []float64) (errs []error) {
	for _, p := range f.Parts() {
		errs = append(errs, checkTerms(p, mu)...)
	}
	terms, names := f.Terms()
	for i, t := range terms {
		if row := dependent(t); row >= 0 {
			errs = append(errs, fmt.Errorf("factor %s, row %d: the operands of %s depend on "+
				"the same "+
				"copy of a block; use Dot for sums of elements of one Gaussian: %w", f.Name(), row,
				names[i], sentinel.ErrParam))
		}
	}
	p, ok := f.(*Plain)
	if !ok || errs != nil {
		return errs
	}
	if err := p.unknown(mu); err != nil {
		return []error{err}
	}
	return p.dependentTerms(mu)
}

// dependent returns the first row in which two operands of t touch the same copy, or −1.
func dependent(t Term) int {
	o := t.Operands()
	for _, x := range o {
		if row := dependent(x); row >= 0 {
			return row
		}
	}
	if _, ok := t.(*inner); ok {
		o = []Term{t}
	}
	if o == nil {
		return -1
	}
	var seen []int
	for row := range t.Rows() {
		seen = seen[:0]
		twice := false
		t.Touch(row, func(start int) {
			for _, s := range seen {
				twice = twice || s == start
			}
			seen = append(seen, start)
		})
		if twice {
			return row
		}
	}
	return -1
}

// wanted is a Kernel that lists the moments that it uses of each term.
type wanted interface {
	want(term int) (mean, square, log bool)
}

func (NormalKernel) want(term int) (mean, square, log bool) { return true, term < 2, term == 2 }

func (k GammaKernel) want(term int) (mean, square, log bool) {
	return true, false, term == 1 || k.Shape != 1
}

func (k *ExpectKernel) want(int) (mean, square, log bool) { return true, true, false }

// momentNames are the moments in the order of Moments.
var momentNames = [...]string{"E[u]", "E[u²]", "E[log u]"}

// unknown returns an error if the kernel lists a moment that a term does not know in some row.
func (f *Plain) unknown(mu []float64) (err error) {
	k, ok := f.kernel.(wanted)
	if !ok {
		return nil
	}
	for i, t := range f.terms {
		m := Buffer(t, min(Chunk, t.Rows()))
		mean, square, log := k.want(i)
		each(t.Rows(), func(rows []int) bool {
			t.Moments(m, mu, rows)
			for c, x := range [...][]float64{m.Mean, m.Square, m.Log} {
				for j := range rows {
					if [...]bool{mean, square, log}[c] && !finiteNumber(x[j]) {
						err = fmt.Errorf("factor %s, row %d: %s of %s is %v%w", f.name, rows[j],
							momentNames[c], f.names[i], x[j], reason(t, c))
						return false
					}
				}
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// reason explains why moment c of t is not known.
func reason(t Term, c int) error {
	var b *Block
	switch l := t.(type) {
	case *known:
		if c == 2 {
			return fmt.Errorf("; the number must be positive: %w", sentinel.ErrParam)
		}
		return fmt.Errorf("; data must be finite, so leave out the rows of missing values: %w",
			sentinel.ErrNotFinite)
	case *leaf:
		b = l.block
	case *indicator:
		b = l.block
	default:
		return fmt.Errorf("; it does not follow from the moments of the operands: %w",
			sentinel.ErrParam)
	}
	return fmt.Errorf("; %s: %w", b.reason(), sentinel.ErrParam)
}

// reason lists the moments of the family of b.
func (b *Block) reason() string {
	mean, square, log := b.moments()
	s, sep := "the family of block "+b.Name+" knows only ", ""
	for c, ok := range [...]bool{mean, square, log} {
		if ok {
			s += sep + momentNames[c]
			sep = " and "
		}
	}
	if b.Kind == Normal {
		s += "; a precision or rate needs a Gamma block"
	}
	return s
}

func finiteNumber(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// each calls do for chunks of n rows, until it returns false.
func each(n int, do func(rows []int) bool) {
	rows := make([]int, 0, Chunk)
	for lo := 0; lo < n; lo += Chunk {
		rows = rows[:0]
		for r := lo; r < min(n, lo+Chunk); r++ {
			rows = append(rows, r)
		}
		if !do(rows) {
			return
		}
	}
}

// mostDependent is the largest number of rows whose dependent terms are tested.
const mostDependent = 200

// dependentTerms returns an error if two terms of a row touch the same copy, unless the factor is
// a sum of functions of one of them each. The expectation of a product would not be the product
// of the moments.
func (f *Plain) dependentTerms(mu []float64) []error {
	for a := range f.terms {
		for b := range a {
			if f.apart(a, b) {
				continue
			}
			tested := 0
			for row := 0; row < f.rows && tested < mostDependent; row++ {
				if !meet(f.terms[a], f.terms[b], row) {
					continue
				}
				tested++
				if !f.additive(mu, row, a, b) {
					return []error{fmt.Errorf("factor %s, row %d: %s and %s depend on the same "+
						"copy of "+
						"a block, but the factor is not a sum of a function of each: %w", f.name,
						row,
						f.names[b], f.names[a], sentinel.ErrParam)}
				}
			}
		}
	}
	return nil
}

// apart reports whether terms a and b have no block in common.
func (f *Plain) apart(a, b int) bool {
	in := map[*Block]bool{}
	Blocks(f.terms[a], func(x *Block) { in[x] = true })
	apart := true
	Blocks(f.terms[b], func(x *Block) { apart = apart && !in[x] })
	return apart
}

// Blocks calls see for each block that t depends on.
func Blocks(t Term, see func(b *Block)) {
	switch x := t.(type) {
	case *leaf:
		see(x.block)
	case *indicator:
		see(x.block)
	case *dot:
		see(x.block)
	case *inner:
		see(x.a.block)
		see(x.b.block)
	}
	for _, o := range t.Operands() {
		Blocks(o, see)
	}
}

// meet reports whether two terms touch the same copy in a row of a factor.
func meet(a, b Term, row int) bool {
	both := false
	touch(a, row, func(x int) {
		touch(b, row, func(y int) { both = both || x == y })
	})
	return both
}

// additive reports whether the mixed differences of the kernel with respect to moments of the
// terms a and b are 0 in a row.
func (f *Plain) additive(mu []float64, row, a, b int) bool {
	w := f.Work(1).(*plainWork)
	rows, out := []int{row}, []float64{0}
	w.Value(out, mu, rows)
	value := func() float64 {
		w.kernel.Density(out, rows, w.m)
		return out[0]
	}
	zero := value()
	move := func(p *float64) func() {
		x := *p
		*p += 0.1 * (0.1 + math.Abs(x))
		return func() { *p = x }
	}
	for _, p := range w.m[a].row0() {
		if math.IsNaN(*p) {
			continue
		}
		for _, q := range w.m[b].row0() {
			if math.IsNaN(*q) {
				continue
			}
			undo := move(p)
			left := value()
			undoBoth := move(q)
			both := value()
			undo()
			right := value()
			undoBoth()
			size := math.Abs(both) + math.Abs(left) + math.Abs(right) + math.Abs(zero)
			if math.Abs(both-left-right+zero) > 1e-10*size {
				return false
			}
		}
	}
	return true
}

// row0 returns pointers to the moments of the first row.
func (m *Moments) row0() [3]*float64 { return [3]*float64{&m.Mean[0], &m.Square[0], &m.Log[0]} }

// missing lists the moments that are not known in a row of a custom factor.
func missing(f Factor, mu []float64, row int) string {
	p, ok := f.(*Plain)
	if !ok {
		return ""
	}
	s, sep := "", "; it may use a moment that is NaN: "
	for i, t := range p.terms {
		m := Buffer(t, 1)
		load(t, m, mu, []int{row})
		for c, x := range m.row0() {
			if math.IsNaN(*x) {
				s += sep + momentNames[c] + " of " + p.names[i]
				sep = ", "
			}
		}
	}
	return s
}
