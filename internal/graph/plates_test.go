package graph

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// normals adds a block of one-dimensional Gaussians to l.
func normals(l *Layout, name string, copies int) *Block {
	b := &Block{Name: name, Copies: copies, Elements: 1, Params: 1, Total: 2 * copies, Dim: 1,
		Stacked: true}
	l.Add(b)
	return b
}

// weights adds a block of Dirichlet distributions with two parts to l.
func weights(l *Layout, name string, copies int) *Block {
	b := &Block{Name: name, Kind: Simplex, Copies: copies, Elements: 2, Params: 2,
		Total: 2 * copies}
	l.Add(b)
	return b
}

// observed returns a factor with a row per copy that is picked from each block.
func observed(rows int, picks map[*Block][]int) Factor {
	var terms []Term
	var names []string
	for b, copies := range picks {
		terms, names = append(terms, b.Pick(copies, []int{0})), append(names, b.Name)
	}
	return NewPlain("observed", rows, NormalKernel{}, terms, names, false)
}

// drawn returns random numbers below n.
func drawn(rng *rand.Rand, rows, n int) []int {
	x := make([]int, rows)
	for i := range x {
		x[i] = rng.IntN(n)
	}
	return x
}

func counted(n, step int) []int {
	x := make([]int, n)
	for i := range x {
		x[i] = i / step
	}
	return x
}

// TestPlates checks which blocks are plates, and the units of each model: every row is in one unit
// or in every batch, and rows that touch the same copy of a plate are together.
func TestPlates(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rows = 300
	for _, c := range []struct {
		name  string
		model func(l *Layout) []Factor
		local []string // the plates
		units int      // 0 means any number
	}{
		{"groups", func(l *Layout) []Factor {
			mu, theta := normals(l, "mu", 1), normals(l, "theta", 50)
			return []Factor{observed(50, map[*Block][]int{mu: {0}, theta: counted(50, 1)}),
				observed(rows, map[*Block][]int{theta: drawn(rng, rows, 50)})}
		}, []string{"theta"}, 50},
		{"nested", func(l *Layout) []Factor {
			school, mu := normals(l, "school", 20), normals(l, "mu", 1)
			class := normals(l, "class", 40)
			in := counted(rows, 1)
			for i := range in {
				in[i] %= 40
			}
			of := slices.Clone(in)
			for i := range of {
				of[i] /= 2
			}
			return []Factor{observed(rows, map[*Block][]int{mu: {0}, school: of, class: in})}
		}, []string{"school", "class"}, 20},
		{"crossed", func(l *Layout) []Factor {
			row, column := normals(l, "row", 60), normals(l, "column", 30)
			return []Factor{observed(rows, map[*Block][]int{row: counted(rows, 5),
				column: drawn(rng, rows, 30)})}
		}, []string{"row"}, 60},
		{"chain of copies", func(l *Layout) []Factor {
			x := normals(l, "x", rows+1)
			normals(l, "mu", 1)
			next := counted(rows, 1)
			for i := range next {
				next[i]++
			}
			return []Factor{NewPlain("move", rows, NormalKernel{}, []Term{
				x.Pick(counted(rows, 1), []int{0}), x.Pick(next, []int{0})},
				[]string{"a", "b"}, false)}
		}, nil, 0},
		{"few copies", func(l *Layout) []Factor {
			mu, theta := normals(l, "mu", 1), normals(l, "theta", leastCopies-1)
			return []Factor{observed(rows, map[*Block][]int{mu: {0},
				theta: drawn(rng, rows, leastCopies-1)})}
		}, nil, 0},
		{"a large group", func(l *Layout) []Factor {
			mu, theta := normals(l, "mu", 1), normals(l, "theta", 50)
			of := drawn(rng, rows, 50)
			clear(of[:rows/2])
			return []Factor{observed(rows, map[*Block][]int{mu: {0}, theta: of})}
		}, nil, 0},
		{"few rows", func(l *Layout) []Factor {
			w, alpha := normals(l, "w", 1), normals(l, "alpha", 20)
			return []Factor{observed(20, map[*Block][]int{w: {0}, alpha: counted(20, 1)}),
				observed(rows, map[*Block][]int{w: {0}})}
		}, nil, 0},
		{"one block", func(l *Layout) []Factor {
			return []Factor{observed(rows, map[*Block][]int{
				normals(l, "theta", 50): drawn(rng, rows, 50)})}
		}, nil, 0},
		{"many rows without a plate", func(l *Layout) []Factor {
			mu, theta := normals(l, "mu", 1), normals(l, "theta", 50)
			return []Factor{observed(rows, map[*Block][]int{mu: {0}}),
				observed(rows, map[*Block][]int{theta: drawn(rng, rows, 50)})}
		}, []string{"theta"}, 50 + rows},
		{"documents", func(l *Layout) []Factor {
			phi, theta := normals(l, "phi", 2), weights(l, "theta", 30)
			var of, k []int
			for _, d := range drawn(rng, rows, 30) {
				of, k = append(of, d, d), append(k, 0, 1)
			}
			parts := []Factor{observed(rows, map[*Block][]int{phi: {0}}),
				observed(rows, map[*Block][]int{phi: {1}})}
			return []Factor{NewMixture(theta.Pick(of, k), "theta", parts)}
		}, []string{"theta"}, 30},
		{"sequences", func(l *Layout) []Factor {
			start, move := weights(l, "start", 1), weights(l, "move", 2)
			mu, effect := normals(l, "mu", 2), normals(l, "effect", 30)
			var parts []Factor
			for k := range 2 {
				parts = append(parts, observed(rows,
					map[*Block][]int{mu: {k}, effect: counted(rows, 10)}))
			}
			return []Factor{NewChain(start.Pick([]int{0}, []int{0, 1}),
				move.Pick([]int{0, 0, 1, 1}, []int{0, 1, 0, 1}), []string{"start", "move"},
				slices.Repeat([]int{20}, 15), parts)}
		}, []string{"effect"}, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l Layout
			m := NewModel(&l, c.model(&l))
			m.Layout = &l
			p := NewPlates(m)
			if p == nil {
				if c.local != nil {
					t.Fatal("no plates")
				}
				return
			}
			var local []string
			for i, b := range l.Blocks {
				if !p.Global[i] {
					local = append(local, b.Name)
				}
			}
			if !slices.Equal(local, c.local) || c.units > 0 && p.Len() != c.units {
				t.Errorf("%d units of %v, want %d of %v", p.Len(), local, c.units, c.local)
			}
			checkUnits(t, p)
		})
	}
}

// checkUnits fails unless each row and each copy of a plate is in one unit, with all its rows.
func checkUnits(t *testing.T, p *Plates) {
	t.Helper()
	unit := map[int32]int{} // unit of each row
	owner := map[place]int{}
	for u := range p.Len() {
		for _, r := range p.rows[p.rowsOf[u]:p.rowsOf[u+1]] {
			if _, twice := unit[r]; twice {
				t.Errorf("row %d is in two units", r)
			}
			unit[r] = u
		}
		for _, c := range p.copies[p.copiesOf[u]:p.copiesOf[u+1]] {
			if _, twice := owner[c]; twice {
				t.Errorf("copy %v is in two units", c)
			}
			owner[c] = u
		}
	}
	touched, of := p.touched()
	for _, r := range p.common {
		if _, twice := unit[r]; twice {
			t.Errorf("row %d is in a unit and in every batch", r)
		}
		unit[r] = -1
	}
	n := len(of) - 1
	if len(unit) != n {
		t.Errorf("%d of %d rows have a unit", len(unit), n)
	}
	for r := range n {
		for _, c := range touched[of[r]:of[r+1]] {
			if u, ok := owner[c]; !p.Global[c.block] && (!ok || u != unit[int32(r)]) {
				t.Errorf("row %d is in unit %d, but its copy %v in unit %d", r, unit[int32(r)], c,
					u)
				return
			}
		}
	}
}
