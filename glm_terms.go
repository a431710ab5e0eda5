package pgsvi

import "fmt"

// rowTerms is the likelihood of the rows of a data set as a Likelihood whose
// response is the number of the row:
//
//	w_n E[log p(y_n | o_n + η + ε_n)],   ε_n ~ N(0, c_n) independent of η.
//
// It lets what knows nothing of offsets and weights serve where there are some.
type rowTerms struct {
	lik    Likelihood
	y      []float64
	offset []float64 // o; nil means 0
	weight []float64 // w > 0; nil means 1
	extra  []float64 // c; nil means 0
	row    []int     // the caller's number of each row; nil means first + n
	first  int
}

func (t *rowTerms) at(n float64) (y, offset, weight, extra float64) {
	i := int(n)
	y, weight = t.y[i], 1
	if t.offset != nil {
		offset = t.offset[i]
	}
	if t.weight != nil {
		weight = t.weight[i]
	}
	if t.extra != nil {
		extra = t.extra[i]
	}
	return y, offset, weight, extra
}

// LogProb implements Likelihood. It knows nothing of ε.
func (t *rowTerms) LogProb(n, eta float64) float64 {
	y, o, w, _ := t.at(n)
	return w * t.lik.LogProb(y, o+eta)
}

// Expect implements Expecter.
func (t *rowTerms) Expect(n, m, v float64) Expectation {
	y, o, w, c := t.at(n)
	x := ExpectLogProb(t.lik, y, m+o, v+c)
	if w != 1 {
		x.Value, x.D1, x.D2, x.Err = w*x.Value, w*x.D1, w*x.D2, w*x.Err
	}
	return x
}

// describe names term n in an error.
func (t *rowTerms) describe(n float64) string {
	y, o, w, c := t.at(n)
	i := t.first + int(n)
	if t.row != nil {
		i = t.row[int(n)]
	}
	s := fmt.Sprintf("row %d, with response %v", i, y)
	if t.offset != nil {
		s += fmt.Sprintf(", offset %v", o)
	}
	if t.weight != nil {
		s += fmt.Sprintf(", weight %v", w)
	}
	if t.extra != nil {
		s += fmt.Sprintf(", residual variance %v (less with a higher rank)", c)
	}
	return s
}

// smoothTerms are terms whose likelihood is Differentiable.
type smoothTerms struct{ *rowTerms }

// Derivs implements Differentiable.
func (t smoothTerms) Derivs(n, eta float64) (d1, d2 float64) {
	y, o, w, _ := t.at(n)
	d1, d2 = t.lik.(Differentiable).Derivs(y, o+eta)
	return w * d1, w * d2
}

// likelihood returns t as the Likelihood that it is.
func (t *rowTerms) likelihood() Likelihood {
	if _, ok := t.lik.(Differentiable); ok {
		return smoothTerms{t}
	}
	return t
}
