package graph

import (
	"context"
	"math"

	"gonum.org/v1/gonum/floats"
)

// This file finds starts from which a fit cannot move in some direction, because the model is
// symmetric there.

// Alike returns where the copies begin whose starts must change. mu is the start. They are
//
//   - copies of an alternative of a mixture or chain that has the same value in every row as an
//     earlier alternative,
//   - copies of both operands of a product whose means are all 0,
//   - blocks with the start and the gradient of an earlier block,
//   - if there are none of these, blocks of several copies that all have the same start and the
//     same gradient.
func (m *Model) Alike(mu []float64) ([]int, error) {
	found := map[int]bool{}
	for _, f := range m.Factors {
		alike(f, mu, found)
	}
	grad := make([]float64, m.params)
	if _, err := m.Sum(context.Background(), 1, grad, mu, nil); err != nil {
		return nil, err
	}
	blocks := m.Layout.Blocks
	for i, b := range blocks {
		still := len(found) == 0 && b.Copies > 1 && b.same(mu) && b.same(grad) &&
			floats.Norm(b.part(grad), 1) > 0
		for _, a := range blocks[:i] {
			still = still || a.Kind == b.Kind && a.Total == b.Total && a.Params == b.Params &&
				floats.Equal(a.part(mu), b.part(mu)) && floats.EqualApprox(a.part(grad),
				b.part(grad), 1e-12)
		}
		for c := 0; still && c < b.Copies; c++ {
			found[b.Start(c)] = true
		}
	}
	var starts []int
	for _, b := range blocks {
		for i := range b.Copies {
			if found[b.Start(i)] {
				starts = append(starts, b.Start(i))
			}
		}
	}
	return starts, nil
}

// same reports whether all copies of b have the same elements in x, up to rounding.
func (b *Block) same(x []float64) bool {
	x = b.part(x)
	for i := range x {
		k := i % b.Params // the element of the first copy
		if b.Stacked {
			k = i / b.Copies * b.Copies
		}
		if math.Abs(x[i]-x[k]) > 1e-10*(math.Abs(x[i])+math.Abs(x[k])) {
			return false
		}
	}
	return true
}

// part returns the elements of b in x, a vector like μ.
func (b *Block) part(x []float64) []float64 { return x[b.Off : b.Off+b.Total] }

func alike(f Factor, mu []float64, found map[int]bool) {
	parts := f.Parts()
	values := make([][]float64, len(parts))
	for k, p := range parts {
		alike(p, mu, found)
		values[k] = valuesOf(p, mu)
		for j := range k {
			if sameValues(values[j], values[k]) {
				separate(parts[j], p, found)
				break
			}
		}
	}
	terms, _ := f.Terms()
	for _, t := range terms {
		saddle(t, mu, found)
	}
}

// valuesOf returns the values of all rows.
func valuesOf(f Factor, mu []float64) []float64 {
	v := make([]float64, f.Rows())
	w := f.Work(min(Chunk, f.Rows()))
	each(f.Rows(), func(rows []int) bool {
		w.Value(v[rows[0]:], mu, rows)
		return true
	})
	return v
}

func sameValues(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i, x := range a {
		if x != b[i] {
			return false
		}
	}
	return true
}

// separate marks the copies that f touches and g does not.
func separate(g, f Factor, found map[int]bool) {
	other := map[int]bool{}
	touched(g, func(s int) { other[s] = true })
	touched(f, func(s int) {
		if !other[s] {
			found[s] = true
		}
	})
}

// touched calls see for the copies that f touches.
func touched(f Factor, see func(start int)) {
	for _, p := range f.Parts() {
		touched(p, see)
	}
	terms, _ := f.Terms()
	for _, t := range terms {
		for row := range t.Rows() {
			t.Touch(row, see)
		}
	}
}

// saddle marks the operands of each product in t if the means of both operands are 0 in all rows.
func saddle(t Term, mu []float64, found map[int]bool) {
	for _, o := range t.Operands() {
		saddle(o, mu, found)
	}
	switch x := t.(type) {
	case *inner:
		if x.a.zero(mu) && x.b.zero(mu) {
			for row := range x.rows {
				x.Touch(row, func(s int) { found[s] = true })
			}
		}
	case *pair:
		if x.product && zeroMean(x.a, mu) && zeroMean(x.b, mu) {
			for row := range x.rows {
				x.Touch(row, func(s int) { found[s] = true })
			}
		}
	}
}

// zero reports whether all means of all copies are 0.
func (v *vectors) zero(mu []float64) bool {
	for _, s := range v.start {
		for _, m := range mu[s : int(s)+v.block.Dim] {
			if m != 0 {
				return false
			}
		}
	}
	return true
}

func zeroMean(t Term, mu []float64) bool {
	zero := true
	m := Buffer(t, min(Chunk, t.Rows()))
	each(t.Rows(), func(rows []int) bool {
		t.Moments(m, mu, rows)
		for _, x := range m.Mean[:len(rows)] {
			zero = zero && x == 0
		}
		return zero
	})
	return zero
}
