package rounds

import (
	"cmp"
	"slices"

	"github.com/pgsvi/pgsvi/internal/save"
)

// Blocks is a set of block numbers. It stores runs of consecutive numbers, so it is small if the
// numbers are dense.
type Blocks struct{ runs []run }

// run is the set of numbers from lo to hi.
type run struct{ lo, hi uint64 }

// Clone returns a copy of b.
func (b *Blocks) Clone() Blocks { return Blocks{slices.Clone(b.runs)} }

// find returns the first run that does not end before id, and whether id is in it.
func (b *Blocks) find(id uint64) (int, bool) {
	i, _ := slices.BinarySearchFunc(b.runs, id,
		func(r run, id uint64) int { return cmp.Compare(r.hi, id) })
	return i, i < len(b.runs) && b.runs[i].lo <= id
}

// Add adds id. It reports false if b already contains id.
func (b *Blocks) Add(id uint64) bool {
	i, has := b.find(id)
	if has {
		return false
	}
	b.runs = slices.Insert(b.runs, i, run{id, id})
	if i+1 < len(b.runs) && b.runs[i+1].lo == id+1 {
		b.runs[i].hi = b.runs[i+1].hi
		b.runs = slices.Delete(b.runs, i+1, i+2)
	}
	if i > 0 && b.runs[i-1].hi+1 == id {
		b.runs[i-1].hi = b.runs[i].hi
		b.runs = slices.Delete(b.runs, i, i+1)
	}
	return true
}

// Empty reports whether b has no blocks.
func (b *Blocks) Empty() bool { return len(b.runs) == 0 }

// Shared returns the least block that is in both b and o.
func (b *Blocks) Shared(o *Blocks) (id uint64, ok bool) {
	for i, j := 0, 0; i < len(b.runs) && j < len(o.runs); {
		x, y := b.runs[i], o.runs[j]
		if lo := max(x.lo, y.lo); lo <= min(x.hi, y.hi) {
			return lo, true
		}
		if x.hi < y.hi {
			i++
		} else {
			j++
		}
	}
	return 0, false
}

// Merge adds the blocks of o. The two sets must not share a block.
func (b *Blocks) Merge(o *Blocks) {
	all := append(slices.Clone(b.runs), o.runs...)
	slices.SortFunc(all, func(x, y run) int { return cmp.Compare(x.lo, y.lo) })
	b.runs = b.runs[:0]
	for _, r := range all {
		if n := len(b.runs); n > 0 && b.runs[n-1].hi+1 == r.lo {
			b.runs[n-1].hi = r.hi
		} else {
			b.runs = append(b.runs, r)
		}
	}
}

// Missing returns the least block of o that is not in b.
func (b *Blocks) Missing(o *Blocks) (id uint64, ok bool) {
	for _, r := range o.runs {
		i, has := b.find(r.lo)
		if !has {
			return r.lo, true
		}
		if b.runs[i].hi < r.hi {
			return b.runs[i].hi + 1, true
		}
	}
	return 0, false
}

// State writes or reads b.
func (b *Blocks) State(c *save.Coder) {
	n := len(b.runs)
	c.Int(&n)
	if c.Reading() {
		b.runs = nil
	}
	for i := 0; i < n && c.Err() == nil; i++ {
		if c.Reading() {
			b.runs = append(b.runs, run{})
		}
		r := &b.runs[i]
		c.Uint64(&r.lo, &r.hi)
		c.Check(r.lo <= r.hi && (i == 0 || b.runs[i-1].hi < r.lo), "blocks from %d to %d", r.lo,
			r.hi)
	}
}
