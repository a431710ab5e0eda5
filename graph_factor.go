package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/floats"
)

// Factor is a part of log p(y, z), as a function of moments of the terms that it touches: the sum
// over its rows of E_q[log f]. NormalFactor, GammaFactor, LikelihoodFactor, MixtureFactor and
// ChainFactor make one, and NewFactor one of your own.
type Factor struct {
	name  string
	rows  int
	terms []Term
	err   error

	affine bool // in the moments of each term
	conj   bool // the same, with a gradient, or convex
	own    bool // its functions are the caller's
	value  func(row int, m []Moments) float64
	grad   func(row int, d, m []Moments)
	// of a factor of other factors
	inner []Factor
	whole func(w *graphWork, dst, mu []float64, row int, weight float64) float64
}

// NewFactor returns a factor of your own. value returns E_q[log f] of a row, from the moments of
// the terms, and grad stores its derivatives by these in d, which is zero on entry. A nil grad means
// that value is affine in the moments of each term, as it is in a conjugate model; derivatives are
// then differences, and exact. A value that is convex in the moments of each term, such as a bound
// that is maximized over local variables, keeps the guarantee that steps over single blocks never
// lower the ELBO. Rows that a value of NaN is not meant for must not read unknown moments.
// CheckFactor tests the functions.
func NewFactor(name string, value func(row int, m []Moments) float64,
	grad func(row int, d, m []Moments), terms ...Term) Factor {
	f := Factor{name: name, terms: terms, rows: 1, value: value, grad: grad, affine: grad == nil,
		own: true}
	var errs []error
	for i := range terms {
		f.rows = max(f.rows, terms[i].rows)
		errs = append(errs, terms[i].err)
	}
	for _, t := range terms {
		if t.rows != f.rows && t.rows != 1 {
			errs = append(errs, fmt.Errorf("pgsvi: factor %s has %d rows, term %s has %d: %w", name,
				f.rows, t.name, t.rows, ErrShape))
		}
	}
	f.err = errors.Join(errs...)
	return f
}

func conjugateFactor(name string, value func(row int, m []Moments) float64,
	grad func(row int, d, m []Moments), terms ...Term) Factor {
	f := NewFactor(name, value, grad, terms...)
	f.conj, f.own = true, false
	return f
}

// row returns E[log f] of a row, and adds weight times its gradient to dst unless that is nil.
func (f *Factor) row(w *graphWork, dst, mu []float64, row int, weight float64) float64 {
	if f.whole != nil {
		return f.whole(w, dst, mu, row, weight)
	}
	k := len(f.terms)
	m := w.take(2 * k)
	defer w.drop(2 * k)
	m, d := m[:k], m[k:]
	for i := range f.terms {
		t := &f.terms[i]
		m[i] = t.at(mu, t.row(row))
	}
	v := f.value(row, m)
	if dst == nil {
		return v
	}
	if f.grad != nil {
		f.grad(row, d, m)
	} else {
		f.differences(row, d, m, v)
	}
	for i := range f.terms {
		t := &f.terms[i]
		x := Moments{weight * d[i].Mean, weight * d[i].Square, weight * d[i].Log}
		t.pull(dst, mu, t.row(row), x)
	}
	return v
}

// differences stores the derivatives of an affine value, v at m.
func (f *Factor) differences(row int, d, m []Moments, v float64) {
	for i := range m {
		at := m[i]
		of := func(p *float64) float64 {
			x := *p
			if math.IsNaN(x) {
				return 0
			}
			h := 1 + math.Abs(x)
			*p = x + h
			up := f.value(row, m)
			*p = x - h
			down := f.value(row, m)
			*p = x
			return (up - down) / (2 * h)
		}
		d[i] = Moments{of(&m[i].Mean), of(&m[i].Square), of(&m[i].Log)}
		m[i] = at
	}
}

// independent returns an error if two terms of a row, or two parts of one, touch one copy.
func (f *Factor) independent(g *Graph) error {
	for i := range f.inner {
		if err := f.inner[i].independent(g); err != nil {
			return err
		}
	}
	if f.whole != nil && f.inner != nil {
		return nil // the parts of a sum or maximum are not multiplied
	}
	seen := map[int]string{}
	for row := range f.rows {
		clear(seen)
		for i := range f.terms {
			t, err := &f.terms[i], error(nil)
			if t.g != nil && t.g != g {
				return fmt.Errorf("pgsvi: factor %s: term %s is of another Graph: %w", f.name, t.name,
					ErrParam)
			}
			t.touch(t.row(row), func(c int) {
				if other, ok := seen[c]; ok && err == nil {
					err = fmt.Errorf("pgsvi: factor %s, row %d: %s and %s are not independent "+
						"under q: %w", f.name, row, other, t.name, ErrParam)
				}
				seen[c] = t.name
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

const logTwoPi = 1.8378770664093454836

// NormalFactor is log N(x|mean, 1/precision) in each row. The terms must be independent.
func NormalFactor(x, mean, precision Term) Factor {
	return conjugateFactor("normal("+join(x, mean, precision)+")", func(_ int, m []Moments) float64 {
		return 0.5 * (m[2].Log - logTwoPi - m[2].Mean*square(m))
	}, func(_ int, d, m []Moments) {
		t := m[2].Mean
		d[0] = Moments{Mean: t * m[1].Mean, Square: -0.5 * t}
		d[1] = Moments{Mean: t * m[0].Mean, Square: -0.5 * t}
		d[2] = Moments{Mean: -0.5 * square(m), Log: 0.5}
	}, x, mean, precision)
}

// square is E[(x − m)²].
func square(m []Moments) float64 {
	return m[0].Square - 2*m[0].Mean*m[1].Mean + m[1].Square
}

func join(t ...Term) string {
	var s []string
	for i := range t {
		s = append(s, t[i].name)
	}
	return strings.Join(s, ", ")
}

// GammaFactor is log Gamma(x|shape, rate) in each row.
func GammaFactor(x Term, shape float64, rate Term) Factor {
	l, _ := math.Lgamma(shape)
	return conjugateFactor("gamma("+join(x, rate)+")", func(_ int, m []Moments) float64 {
		return shape*m[1].Log - l + (shape-1)*m[0].Log - m[1].Mean*m[0].Mean
	}, func(_ int, d, m []Moments) {
		d[0] = Moments{Log: shape - 1, Mean: -m[1].Mean}
		d[1] = Moments{Log: shape, Mean: -m[0].Mean}
	}, x, rate)
}

// LikelihoodFactor is log p(y|u) in each row, for a u that is Gaussian under q: an element of a
// Gaussian block, its Dot, or a sum of these. It need not be conjugate.
func LikelihoodFactor(y []float64, u Term, lik Likelihood) Factor {
	name := fmt.Sprintf("%T(%s)", lik, u.name)
	if u.err == nil && !u.normal {
		u = u.fail("it is not Gaussian under q, as %s needs: %w", name, ErrParam)
	}
	if err := checkLabels(lik, y); err != nil {
		u.err = errors.Join(u.err, err)
	}
	at := func(row int, m []Moments) Expectation {
		return ExpectLogProb(lik, y[row], m[1].Mean, max(0, m[1].Square-m[1].Mean*m[1].Mean))
	}
	f := NewFactor(name, func(row int, m []Moments) float64 { return at(row, m).Value },
		func(row int, d, m []Moments) {
			e := at(row, m)
			d[1] = Moments{Mean: e.D1 - e.D2*m[1].Mean, Square: 0.5 * e.D2}
		}, Known(y...), u)
	f.own = false
	return f
}

// MixtureFactor is log Σ_k π_k f_k in each row, with the weights a Dirichlet block and f_k the
// alternatives, maximized over the row's responsibilities: log Σ_k exp(E[log π_k] + E[log f_k]).
func MixtureFactor(weights Term, alternatives ...Factor) Factor {
	f := joinedFactor("mixture", alternatives, weights)
	k := len(alternatives)
	if f.err == nil && weights.rows != k {
		f.err = fmt.Errorf("pgsvi: MixtureFactor has %d weights, %d alternatives: %w", weights.rows, k,
			ErrShape)
	}
	f.whole = func(w *graphWork, dst, mu []float64, row int, weight float64) float64 {
		l := w.take(k)
		defer w.drop(k)
		most := math.Inf(-1)
		for i := range l {
			a := &f.inner[i]
			l[i].Log = weights.at(mu, i).Log + a.row(w, nil, mu, min(row, a.rows-1), 1)
			most = math.Max(most, l[i].Log)
		}
		sum := 0.0
		for i := range l {
			l[i].Mean = math.Exp(l[i].Log - most)
			sum += l[i].Mean
		}
		if dst != nil {
			for i := range l {
				r := weight * l[i].Mean / sum
				weights.pull(dst, mu, i, Moments{Log: r})
				if a := &f.inner[i]; r > 0 {
					a.row(w, dst, mu, min(row, a.rows-1), r)
				}
			}
		}
		return most + math.Log(sum)
	}
	return f
}

// joinedFactor is a factor of other factors.
func joinedFactor(name string, parts []Factor, terms ...Term) Factor {
	f := Factor{name: name, rows: 1, inner: parts, terms: terms}
	var errs []error
	for i := range parts {
		f.rows = max(f.rows, parts[i].rows)
		f.terms = append(f.terms, parts[i].terms...)
		f.own = f.own || parts[i].own
		errs = append(errs, parts[i].err)
	}
	for i := range parts {
		if r := parts[i].rows; r != f.rows && r != 1 {
			errs = append(errs, fmt.Errorf("pgsvi: factor %s has %d rows, part %d has %d: %w", name,
				f.rows, i, r, ErrShape))
		}
	}
	for i := range terms {
		errs = append(errs, terms[i].err)
	}
	f.err = errors.Join(errs...)
	return f
}

// ChainFactor is a hidden Markov model of one sequence: state k has the probability start_k at the
// first row, move_jk after state j, and the factor emit_k in each row. start is a Dirichlet block of
// K elements, and move one of K copies. The states are summed over (forward–backward algorithm).
func ChainFactor(start, move Term, emit ...Factor) Factor {
	f := joinedFactor("chain", emit, start, move)
	k, rows := len(emit), f.rows
	if f.err == nil && (start.rows != k || move.rows != k*k) {
		f.err = fmt.Errorf("pgsvi: ChainFactor has %d states, %d starts and %d moves: %w", k,
			start.rows, move.rows, ErrShape)
	}
	f.rows = 1
	f.whole = func(w *graphWork, dst, mu []float64, _ int, weight float64) float64 {
		l := w.take((rows + 2) * k) // Log: emission, Mean: forward, Square: backward
		defer w.drop((rows + 2) * k)
		at := func(t, s int) *Moments { return &l[t*k+s] }
		tmp := make([]float64, k)
		for t := range rows {
			for s := range k {
				e := &f.inner[s]
				b := e.row(w, nil, mu, min(t, e.rows-1), 1)
				a := start.at(mu, s).Log
				if t > 0 {
					for j := range k {
						tmp[j] = at(t-1, j).Mean + move.at(mu, j*k+s).Log
					}
					a = floats.LogSumExp(tmp)
				}
				at(t, s).Log, at(t, s).Mean = b, a+b
			}
		}
		for s := range k {
			tmp[s] = at(rows-1, s).Mean
		}
		total := floats.LogSumExp(tmp)
		if dst == nil {
			return total
		}
		for t := rows - 2; t >= 0; t-- {
			for s := range k {
				for j := range k {
					tmp[j] = move.at(mu, s*k+j).Log + at(t+1, j).Log + at(t+1, j).Square
				}
				at(t, s).Square = floats.LogSumExp(tmp)
			}
		}
		for t := range rows {
			for s := range k {
				p := weight * math.Exp(at(t, s).Mean+at(t, s).Square-total)
				e := &f.inner[s]
				e.row(w, dst, mu, min(t, e.rows-1), p)
				if t == 0 {
					start.pull(dst, mu, s, Moments{Log: p})
				}
				for j := 0; j < k && t+1 < rows; j++ {
					x := at(t, s).Mean + move.at(mu, s*k+j).Log + at(t+1, j).Log + at(t+1, j).Square
					move.pull(dst, mu, s*k+j, Moments{Log: weight * math.Exp(x-total)})
				}
			}
		}
		return total
	}
	return f
}

// CheckFactor tests f in each of its rows, at most 100 of them, and at each q of the Objective of
// its Graph: that its gradient agrees with differences, and that without a gradient its value is
// affine in the moments of each term. The error names row, term and moment, and wraps ErrParam.
func CheckFactor(f Factor, qs ...*Exp) error {
	if f.err != nil {
		return f.err
	}
	w := new(graphWork)
	var errs []error
	for _, q := range qs {
		mu := q.MeanParams(nil)
		step := max(1, f.rows/100)
		for row := 0; row < f.rows; row += step {
			if err := f.check(w, mu, row); err != nil {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

func (f *Factor) check(w *graphWork, mu []float64, row int) error {
	for i := range f.inner {
		if err := f.inner[i].check(w, mu, min(row, f.inner[i].rows-1)); err != nil {
			return err
		}
	}
	if f.whole != nil {
		return nil
	}
	k := len(f.terms)
	m, d := make([]Moments, k), make([]Moments, k)
	for i := range f.terms {
		m[i] = f.terms[i].at(mu, f.terms[i].row(row))
	}
	v := f.value(row, m)
	if math.IsNaN(v) {
		return fmt.Errorf("pgsvi: factor %s, row %d: the value is NaN at the moments %+v: %w", f.name,
			row, m, ErrParam)
	}
	if f.grad != nil {
		f.grad(row, d, m)
	} else {
		f.differences(row, d, m, v)
	}
	names := []string{"Mean", "Square", "Log"}
	for i := range m {
		if f.terms[i].g == nil {
			continue // known
		}
		for c, p := range []*float64{&m[i].Mean, &m[i].Square, &m[i].Log} {
			x := *p
			if math.IsNaN(x) {
				continue
			}
			got := []float64{d[i].Mean, d[i].Square, d[i].Log}[c]
			h := 1e-4 * (1e-2 + math.Abs(x))
			if f.affine {
				h = 0.3 * (1 + math.Abs(x))
			}
			val := func(t float64) float64 {
				*p = x + t*h
				defer func() { *p = x }()
				return f.value(row, m)
			}
			want := (8*(val(1)-val(-1)) - (val(2) - val(-2))) / (12 * h)
			bend := val(1) - 2*v + val(-1)
			tol := 1e-6*(1+math.Abs(want)) + 1e-11*math.Abs(v)/h
			if math.Abs(got-want) > tol {
				return fmt.Errorf("pgsvi: factor %s, row %d: the derivative by %s of %s is %v, by "+
					"differences %v: %w", f.name, row, names[c], f.terms[i].name, got, want, ErrParam)
			}
			if f.affine && math.Abs(bend) > 1e-9*(1+math.Abs(v)) {
				return fmt.Errorf("pgsvi: factor %s, row %d: the value is not affine in %s of %s; give "+
					"NewFactor a gradient: %w", f.name, row, names[c], f.terms[i].name, ErrParam)
			}
		}
	}
	return nil
}
