package graph

// This file divides the rows of a model into units for mini-batches. A plate is a block with a
// copy per group of rows, such as an effect per subject. A mini-batch with a part of the rows of a
// copy determines the copy badly, so all rows that touch a copy of a plate form a unit, which a
// batch takes whole. Blocks that are not plates are global. profile.go optimizes the copies of a
// unit.

import (
	"slices"
	"sort"
)

// Plates divides a model.
type Plates struct {
	Global []bool // whether a block is global
	model  *Model
	first  []int // rows of all factors before each factor, and all rows
	before []int // copies of all blocks before each block, and all copies
	// Unit u has the rows rows[rowsOf[u]:rowsOf[u+1]], counted over all factors, and the copies
	// copies[copiesOf[u]:copiesOf[u+1]] of plates.
	rowsOf, copiesOf []int32
	rows             []int32
	copies           []place
	common           []int32 // rows that belong to every batch
}

// place is a copy of a block.
type place struct{ block, copy int32 }

const (
	// leastCopies is the number of copies from which a block may be a plate.
	leastCopies = 16
	// leastTouched is the least part of all rows that the copies of a plate touch, as
	// 1/leastTouched.
	leastTouched = 8
	// leastUnits bounds the rows of a unit, which are at most a part 1/leastUnits of all rows.
	leastUnits = 8
	// mostCommon bounds the rows without a plate that belong to every batch: their number, or as
	// 1/commonPart their part of the units. If there are more, each is a unit.
	mostCommon, commonPart = 64, 100
)

// NewPlates returns the units of m, or nil if no block is a plate. A block is a plate if it has
// many copies and if no unit becomes large. At least one block is global.
func NewPlates(m *Model) *Plates {
	p := &Plates{model: m, first: []int{0}, before: []int{0},
		Global: make([]bool, len(m.Layout.Blocks))}
	for _, f := range m.Factors {
		p.first = append(p.first, p.first[len(p.first)-1]+f.Rows())
	}
	for _, b := range m.Layout.Blocks {
		p.before = append(p.before, p.before[len(p.before)-1]+b.Copies)
	}
	touched, of := p.touched()
	candidates := p.candidates(touched)
	n := p.first[len(m.Factors)]
	units := newUnions(n + p.before[len(p.Global)])
	for i := range p.Global {
		p.Global[i] = true
	}
	left := len(p.Global)
	for _, b := range candidates {
		with := units.clone()
		for row := range n {
			for _, c := range touched[of[row]:of[row+1]] {
				if int(c.block) == b {
					with.join(row, n+p.index(c))
				}
			}
		}
		if left > 1 && with.largest(n) <= n/leastUnits {
			units, p.Global[b] = with, false
			left--
		}
	}
	if left == len(p.Global) {
		return nil
	}
	p.collect(units, touched, of)
	return p
}

// index returns the number of copies before a copy.
func (p *Plates) index(c place) int { return p.before[c.block] + int(c.copy) }

// touched returns the copies that each row touches: row r has touched[of[r]:of[r+1]].
func (p *Plates) touched() (touched []place, of []int32) {
	number := map[*Block]int32{}
	for i, b := range p.model.Layout.Blocks {
		number[b] = int32(i)
	}
	for _, f := range p.model.Factors {
		for row := range f.Rows() {
			of = append(of, int32(len(touched)))
			lo := len(touched)
			touchFactor(f, row, func(start int) {
				b, c := p.model.Layout.At(start)
				x := place{number[b], int32(c)}
				if !slices.Contains(touched[lo:], x) {
					touched = append(touched, x)
				}
			})
		}
	}
	return touched, append(of, int32(len(touched)))
}

// touchFactor calls see with the index in μ at which each copy begins that a row depends on.
func touchFactor(f Factor, row int, see func(start int)) {
	terms, _ := f.Terms()
	if mix, ok := f.(*Mixture); ok {
		terms = nil
		k, r := len(mix.parts), row
		if mix.shared() {
			r = 0
		}
		for j := range k {
			mix.terms[0].Touch(r*k+j, see)
		}
	}
	chain, ok := f.(*Chain)
	if ok {
		for _, t := range terms {
			for r := range t.Rows() {
				t.Touch(r, see)
			}
		}
		terms = nil
	}
	for _, t := range terms {
		touch(t, row, see)
	}
	lo, hi := row, row+1
	if ok {
		lo, hi = chain.first[row], chain.first[row+1]
	}
	for _, part := range f.Parts() {
		for r := lo; r < hi; r++ {
			touchFactor(part, min(r, part.Rows()-1), see)
		}
	}
}

// candidates returns the blocks with enough copies that touch enough rows, in descending order of
// copies.
func (p *Plates) candidates(touched []place) (blocks []int) {
	rows := make([]int, len(p.Global))
	for _, c := range touched {
		rows[c.block]++
	}
	all := p.model.Layout.Blocks
	for i, b := range all {
		if b.Copies >= leastCopies && rows[i] >= p.first[len(p.first)-1]/leastTouched {
			blocks = append(blocks, i)
		}
	}
	sort.SliceStable(blocks, func(i, j int) bool {
		return all[blocks[i]].Copies > all[blocks[j]].Copies
	})
	return blocks
}

// collect stores the units in the order of their first rows.
func (p *Plates) collect(u *unions, touched []place, of []int32) {
	n := len(of) - 1
	number := make([]int32, len(u.parent)) // number of the unit at each root, from 1
	var alone []int32
	var size []int32
	unit := make([]int32, n)
	for row := range n {
		local := false
		for _, c := range touched[of[row]:of[row+1]] {
			local = local || !p.Global[c.block]
		}
		if !local {
			alone = append(alone, int32(row))
			continue
		}
		root := u.find(row)
		if number[root] == 0 {
			size = append(size, 0)
			number[root] = int32(len(size))
		}
		unit[row] = number[root]
		size[number[root]-1]++
	}
	if len(alone) <= max(mostCommon, len(size)/commonPart) {
		p.common = alone
	} else {
		for _, row := range alone {
			size = append(size, 1)
			unit[row] = int32(len(size))
		}
	}
	p.rowsOf, p.rows = fill(size, unit)
	p.collectCopies(len(size), unit, touched, of)
}

// fill returns the members of each unit in ascending order, where unit holds the number of the unit
// of each member, from 1, or 0.
func fill(size, unit []int32) (of, members []int32) {
	of = make([]int32, len(size)+1)
	for u, n := range size {
		of[u+1] = of[u] + n
	}
	members = make([]int32, of[len(size)])
	next := slices.Clone(of)
	for i, u := range unit {
		if u > 0 {
			members[next[u-1]] = int32(i)
			next[u-1]++
		}
	}
	return of, members
}

// collectCopies stores the copies of plates of each unit.
func (p *Plates) collectCopies(units int, unit []int32, touched []place, of []int32) {
	all := make([]place, 0, p.before[len(p.Global)])
	for i, b := range p.model.Layout.Blocks {
		for c := range b.Copies {
			all = append(all, place{int32(i), int32(c)})
		}
	}
	owner, size := make([]int32, len(all)), make([]int32, units)
	for row, u := range unit {
		for _, c := range touched[of[row]:of[row+1]] {
			if i := p.index(c); u > 0 && !p.Global[c.block] && owner[i] == 0 {
				owner[i] = u
				size[u-1]++
			}
		}
	}
	var members []int32
	p.copiesOf, members = fill(size, owner)
	for _, i := range members {
		p.copies = append(p.copies, all[i])
	}
}

// Len returns the number of units.
func (p *Plates) Len() int { return len(p.rowsOf) - 1 }

// unions is a partition of numbers (union–find).
type unions struct{ parent []int32 }

func newUnions(n int) *unions {
	u := &unions{make([]int32, n)}
	for i := range u.parent {
		u.parent[i] = int32(i)
	}
	return u
}

func (u *unions) clone() *unions { return &unions{slices.Clone(u.parent)} }

func (u *unions) find(i int) int {
	for u.parent[i] != int32(i) {
		u.parent[i] = u.parent[u.parent[i]]
		i = int(u.parent[i])
	}
	return i
}

// join puts the sets of i and j together under the smaller root.
func (u *unions) join(i, j int) {
	i, j = u.find(i), u.find(j)
	u.parent[max(i, j)] = int32(min(i, j))
}

// largest returns the number of elements below n in the largest set.
func (u *unions) largest(n int) int {
	size := make([]int, len(u.parent))
	most := 0
	for i := range n {
		r := u.find(i)
		size[r]++
		most = max(most, size[r])
	}
	return most
}
