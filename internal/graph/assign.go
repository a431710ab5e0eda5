package graph

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// This file finds a start for the classes of units that depend on each other, such as the nodes
// of a network. A step updates all units at once. From a poor start it puts all units into one
// class, because each unit reacts to classes that the other units are about to leave.

const (
	mostSweeps = 30
	// settled is the change of the probabilities below which the sweeps end.
	settled = 1e-3
	// mostLogOdds limits the natural parameters, because a step cannot leave a class whose
	// probability is 0.
	mostLogOdds = 10
)

// Assign replaces eta and mu, the natural and mean parameters of q, for each categorical block
// whose copies depend on each other. It updates one copy after another by its closed form, given
// all other blocks and copies (coordinate ascent). prior holds the natural parameters of the
// priors. Assign reports whether there is such a block.
func (m *Model) Assign(eta, mu, prior []float64) (any bool) {
	for _, b := range m.Layout.Blocks {
		if b.Kind != Indicator {
			continue
		}
		if rows, linked := m.linked(b); linked {
			m.assign(b, rows, eta, mu, prior)
			any = true
		}
	}
	return any
}

// linked returns the rows of each factor that touch each copy of b, copies first. It reports
// whether a row touches two copies.
func (m *Model) linked(b *Block) (rows [][][]int, linked bool) {
	rows = make([][][]int, b.Copies)
	for c := range rows {
		rows[c] = make([][]int, len(m.Factors))
	}
	for k, f := range m.Factors {
		eachTouched(f, func(row, start int) {
			if start < b.Off || start >= b.Off+b.Total {
				return
			}
			c := (start - b.Off) / b.Params
			if l := rows[c][k]; len(l) == 0 || l[len(l)-1] != row {
				rows[c][k] = append(l, row)
			}
		})
		last := map[int]int{} // row: copy
		for c := range rows {
			for _, row := range rows[c][k] {
				other, seen := last[row]
				linked = linked || seen && other != c
				last[row] = c
			}
		}
	}
	return rows, linked
}

// eachTouched calls see with the copies that each row of a Plain touches, in the order of the
// rows.
func eachTouched(f Factor, see func(row, start int)) {
	p, ok := f.(*Plain)
	if !ok {
		return // discrete variables are summed out
	}
	for row := range p.rows {
		for _, t := range p.terms {
			touch(t, row, func(start int) { see(row, start) })
		}
	}
}

// assign updates the copies of b in turn until they settle.
func (m *Model) assign(b *Block, rows [][][]int, eta, mu, prior []float64) {
	w, grad, out := newModelWork(m.Factors), make([]float64, m.params), make([]float64, b.Params+1)
	for range mostSweeps {
		most := 0.0
		for c := range b.Copies {
			clear(grad)
			for k := range m.Factors {
				for list := rows[c][k]; len(list) > 0; {
					n := min(Chunk, len(list))
					m.flush(w, k, grad, mu, list[:n], 1)
					list = list[n:]
				}
			}
			s := b.Start(c)
			out[b.Params] = 0 // z = 0
			for j := range b.Params {
				x := prior[s+j] + grad[s+j]
				out[j] = math.Max(-mostLogOdds, math.Min(x, mostLogOdds))
			}
			copy(eta[s:s+b.Params], out)
			total := floats.LogSumExp(out)
			for j := range b.Params {
				p := math.Exp(out[j] - total)
				most = math.Max(most, math.Abs(p-mu[s+j]))
				mu[s+j] = p
			}
		}
		if most < settled {
			return
		}
	}
}
