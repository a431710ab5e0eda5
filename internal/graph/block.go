package graph

import (
	"fmt"
	"slices"
)

// Kind is the kind of family of a block. It determines the moments of the elements.
type Kind int

// The kinds of blocks, with the statistics in μ.
const (
	Normal    Kind = iota // (z, zzᵀ) or (z, z²)
	Gamma                 // (log z, z)
	Simplex               // log z_k: Dirichlet and Beta
	Indicator             // z = k for k = 1 … K−1: categorical
	Other                 // any statistics, which are the elements
)

// Block describes n independent copies of one family in μ.
type Block struct {
	Name     string
	Kind     Kind
	Copies   int
	Elements int // numbers per copy that terms can use
	Off      int // index in μ at which the first copy begins
	Params   int // distance between copies in μ
	Total    int // elements of μ of all copies
	Dim      int // dimension of a Gaussian
	Diagonal bool
	// Stacked is set if n Gaussians of one dimension are one diagonal Gaussian of n dimensions,
	// so that the n means come first.
	Stacked bool
}

// Start returns the index in μ at which copy i begins.
func (b *Block) Start(i int) int { return b.Off + i*b.Params }

// square returns the distance from the start of a copy of a Gaussian to E[z_k²].
func (b *Block) square(k int) int {
	switch {
	case b.Stacked:
		return b.Copies
	case b.Diagonal:
		return b.Dim + k
	}
	return b.Dim + k*(k+3)/2
}

// Pick returns the term of the given elements of the given copies, with one row for each pair.
// copies and elements have the same length, or one of them has length one.
func (b *Block) Pick(copies, elements []int) Term {
	n := max(len(copies), len(elements))
	l := leaf{block: b, start: make([]int32, n)}
	mean, square, log := b.moments()
	if mean {
		l.mean = make([]int32, n)
	}
	if square {
		l.square = make([]int32, n)
	}
	if log {
		l.log = make([]int32, n)
	}
	rest := false
	for i := range n {
		c, k := copies[min(i, len(copies)-1)], elements[min(i, len(elements)-1)]
		s := b.Start(c)
		l.start[i] = int32(s)
		switch b.Kind {
		case Normal:
			l.mean[i], l.square[i] = int32(s+k), int32(s+b.square(k))
		case Gamma:
			l.log[i], l.mean[i] = int32(s), int32(s+1)
		case Simplex:
			l.log[i] = int32(s + k)
		case Indicator:
			l.mean[i], l.square[i] = int32(s+k-1), int32(s+k-1)
			if k == 0 {
				l.mean[i], rest = -1, true
			}
		case Other:
			l.mean[i] = int32(s + k)
		}
	}
	if rest {
		return &indicator{l}
	}
	return &l
}

// moments reports which moments of the elements are known.
func (b *Block) moments() (mean, square, log bool) {
	switch b.Kind {
	case Normal, Indicator:
		return true, true, false
	case Gamma:
		return true, false, true
	case Simplex:
		return false, false, true
	}
	return true, false, false
}

// leaf is an element of a block in each row. mean, square and log hold where its moments are in
// μ; they are nil if the family does not know the moment.
type leaf struct {
	block                    *Block
	start, mean, square, log []int32
}

func (l *leaf) Rows() int { return len(l.start) }

func (l *leaf) Operands() []Term { return nil }

func (l *leaf) Touch(row int, see func(int)) { see(int(l.start[row])) }

func (l *leaf) Moments(m *Moments, mu []float64, rows []int) {
	gather(m.Mean, mu, l.mean, rows)
	gather(m.Square, mu, l.square, rows)
	gather(m.Log, mu, l.log, rows)
}

func (l *leaf) Pull(dst, _ []float64, rows []int, _, d *Moments) {
	scatter(dst, d.Mean, l.mean, rows)
	scatter(dst, d.Square, l.square, rows)
	scatter(dst, d.Log, l.log, rows)
}

// gather stores mu[at[r]] for each row r. A nil at stores nothing.
func gather(out, mu []float64, at []int32, rows []int) {
	if at == nil {
		return
	}
	out = out[:len(rows)]
	for i, r := range rows {
		out[i] = mu[at[r]]
	}
}

// scatter adds d to dst[at[r]] for each row r. A nil at adds nothing.
func scatter(dst, d []float64, at []int32, rows []int) {
	if at == nil {
		return
	}
	d = d[:len(rows)]
	for i, r := range rows {
		dst[at[r]] += d[i]
	}
}

// indicator is a leaf of a categorical block with rows for z = 0, whose probability is not in μ.
// mean is −1 in these rows.
type indicator struct{ leaf }

func (l *indicator) Moments(m *Moments, mu []float64, rows []int) {
	for i, r := range rows {
		p := 1.0
		if k := l.mean[r]; k >= 0 {
			p = mu[k]
		} else {
			for _, x := range l.others(mu, r) {
				p -= x
			}
		}
		m.Mean[i], m.Square[i] = p, p
	}
}

// others returns the elements of x for z = 1 … K−1 of the copy of row r.
func (l *indicator) others(x []float64, r int) []float64 {
	s := l.start[r]
	return x[s : int(s)+l.block.Params]
}

func (l *indicator) Pull(dst, _ []float64, rows []int, _, d *Moments) {
	for i, r := range rows {
		g := d.Mean[i] + d.Square[i]
		if k := l.mean[r]; k >= 0 {
			dst[k] += g
			continue
		}
		o := l.others(dst, r)
		for j := range o {
			o[j] -= g
		}
	}
}

// Layout places blocks in μ one after another.
type Layout struct {
	Blocks []*Block
	Params int
}

// Add appends b and sets its place in μ.
func (l *Layout) Add(b *Block) {
	b.Off = l.Params
	l.Params += b.Total
	l.Blocks = append(l.Blocks, b)
}

// At returns the block and the copy at element i of μ.
func (l *Layout) At(i int) (b *Block, copy int) {
	k, _ := slices.BinarySearchFunc(l.Blocks, i+1, func(b *Block, i int) int {
		return b.Off + b.Total - i
	})
	b = l.Blocks[k]
	return b, (i - b.Off) / b.Params % b.Copies
}

// Describe names the block and the copy at element i of μ.
func (l *Layout) Describe(i int) string {
	b, c := l.At(i)
	return fmt.Sprintf("block %s, copy %d", b.Name, c)
}
