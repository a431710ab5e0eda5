package rounds

import (
	"cmp"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Row is a row of a Sample. A nil Ind means that Val has a value for each column.
type Row struct {
	Ind               []int32
	Val               []float64
	Y, Offset, Weight float64
	key
}

// AddTo appends r to b.
func (r *Row) AddTo(b *term.Buffer) {
	var ind []int
	if r.Ind != nil {
		ind = make([]int, len(r.Ind))
		for k, j := range r.Ind {
			ind[k] = int(j)
		}
	}
	b.Add(ind, r.Val, r.Y, r.Offset, r.Weight, false)
}

// key is the block and the place of an item, with their hash.
type key struct{ hash, block, place uint64 }

func keyOf(block, place uint64) key { return key{Hash(block, place), block, place} }

// compare orders keys by hash.
func (a key) compare(b key) int {
	return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.block, b.block),
		cmp.Compare(a.place, b.place))
}

// Sample is a random sample of rows. It keeps the Most rows with the smallest hashes of their block
// and place, and for each column the Rare rows with the smallest hashes among the rows that are not 0
// there. The sample does not depend on which machine reads which row, and covers every column.
type Sample struct {
	Most int
	cols int
	rows []Row
	size int      // number of rows after the last cut
	edge uint64   // larger hashes are not in the sample
	rare []uint64 // except up to this one, for rows that are not 0 in the column
}

// Rare is the number of rows that a sample has for each column, if the data have that many.
const Rare = 8

// NewSample returns an empty sample of at most most rows, in addition to the rows of rare columns.
func NewSample(most, cols int) *Sample {
	s := &Sample{Most: most, cols: cols, edge: math.MaxUint64, rare: make([]uint64, cols)}
	for j := range s.rare {
		s.rare[j] = math.MaxUint64
	}
	return s
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014). It is one to one.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Hash returns a hash of the item at a place of a block, or of any two numbers.
func Hash(block, place uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15
	return mix(mix(block+golden) + (place+1)*golden)
}

// Wants reports whether the row at a place of a block may be in the sample. val holds its values in
// the columns ind, or in all columns if ind is nil.
func (s *Sample) Wants(block, place uint64, ind []int32, val []float64) bool {
	h := Hash(block, place)
	if h <= s.edge {
		return true
	}
	for k, v := range val {
		j := dense.Index(ind, k)
		if h <= s.rare[j] && v != 0 {
			return true
		}
	}
	return false
}

// Add adds the row at a place of a block. It keeps the slices of r.
func (s *Sample) Add(block, place uint64, r Row) {
	r.key = keyOf(block, place)
	if s.rows = append(s.rows, r); len(s.rows) >= 2*max(s.Most, s.size) {
		s.cut()
	}
}

// cut sorts the rows and drops the ones that are not in the sample.
func (s *Sample) cut() {
	slices.SortFunc(s.rows, func(a, b Row) int { return a.compare(b.key) })
	seen := make([]int, s.cols)
	kept := s.rows[:0]
	for i, r := range s.rows {
		keep := i < s.Most
		for k, v := range r.Val {
			j := k
			if r.Ind != nil {
				j = int(r.Ind[k])
			}
			if v == 0 || seen[j] == Rare {
				continue
			}
			keep = true
			if seen[j]++; seen[j] == Rare {
				s.rare[j] = r.hash
			}
		}
		if i == s.Most-1 {
			s.edge = r.hash
		}
		if keep {
			kept = append(kept, r)
		}
	}
	clear(s.rows[len(kept):])
	s.rows, s.size = kept, len(kept)
}

// Stands returns the number of rows that each row of the sample stands for: one over the probability
// that it is in the sample. n is the number of all rows, and count holds the number of rows that are
// not 0 in each column.
func (s *Sample) Stands(n int, count []float64) []float64 {
	rows := s.Rows()
	stands := make([]float64, len(rows))
	every := max(1, float64(n)/float64(s.Most))
	for i, r := range rows {
		stands[i] = every
		for k, v := range r.Val {
			j := k
			if r.Ind != nil {
				j = int(r.Ind[k])
			}
			if v != 0 {
				stands[i] = min(stands[i], max(1, count[j]/Rare))
			}
		}
	}
	return stands
}

// Rows returns the sample in the order of the hashes.
func (s *Sample) Rows() []Row {
	s.cut()
	return s.rows
}

// Merge adds the rows of o.
func (s *Sample) Merge(o *Sample) {
	s.rows = append(s.rows, o.rows...)
	s.cut()
}

// State writes s, or reads it into an empty sample.
func (s *Sample) State(c *save.Coder) {
	cols := s.cols
	rows := s.Rows()
	n := len(rows)
	c.Int(&n)
	c.Check(n <= s.Most+Rare*cols, "a sample of %d rows, of at most %d", n, s.Most)
	for i := 0; i < n && c.Err() == nil; i++ {
		if c.Reading() {
			s.rows = append(s.rows, Row{})
		} else {
			s.rows[i] = rows[i]
		}
		s.rows[i].state(c, cols)
		c.Check(i == 0 || s.rows[i-1].compare(s.rows[i].key) < 0,
			"row %d of a sample is not in order", i)
	}
	if c.Reading() {
		s.cut()
	}
}

func (r *Row) state(c *save.Coder, cols int) {
	c.Uint64(&r.block, &r.place)
	r.key = keyOf(r.block, r.place)
	c.Float(&r.Y, &r.Offset, &r.Weight)
	c.Check(r.Weight > 0, "a weight of a sample is %v", r.Weight)
	n, whole := len(r.Val), r.Ind == nil
	c.Int(&n)
	c.Bool(&whole)
	c.Check(n <= cols && (!whole || n == cols), "a row of a sample has %d values of %d columns", n,
		cols)
	c.Floats(n, &r.Val)
	if whole {
		return
	}
	if c.Reading() {
		r.Ind = make([]int32, n)
	}
	last := -1
	for k := range r.Ind {
		j := int(r.Ind[k])
		c.Int(&j)
		c.Check(j > last && j < cols, "a row of a sample has column %d after %d, of %d", j, last,
			cols)
		r.Ind[k], last = int32(j), j
	}
}
