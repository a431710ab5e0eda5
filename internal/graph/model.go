package graph

import (
	"context"
	"math"
	"sort"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// Model is a sum of factors. Its terms are the rows of the factors with more than one row.
// Factors of one row belong to every batch.
type Model struct {
	Layout  *Layout
	Factors []Factor
	first   []int // terms before each factor, and all terms
	params  int
	custom  bool
	pool    sync.Pool // *modelWork
}

// NewModel returns the sum of the factors over the blocks of layout. It copies both lists.
func NewModel(layout *Layout, factors []Factor) *Model {
	m := &Model{Factors: append([]Factor(nil), factors...), params: layout.Params}
	m.Layout = &Layout{append([]*Block(nil), layout.Blocks...), layout.Params}
	m.pool.New = func() any { return newModelWork(m.Factors) }
	n := 0
	for _, f := range m.Factors {
		m.first = append(m.first, n)
		m.custom = m.custom || f.Custom()
		if f.Rows() > 1 {
			n += f.Rows()
		}
	}
	m.first = append(m.first, n)
	return m
}

// Len returns the number of terms.
func (m *Model) Len() int { return m.first[len(m.Factors)] }

// Custom reports whether a factor calls functions of the caller.
func (m *Model) Custom() bool { return m.custom }

// Sum is a value and the sum of the absolute values of its terms.
type Sum struct{ Value, Size float64 }

// modelWork holds the buffers of one part of the terms.
type modelWork struct {
	work    []Work  // one per factor; nil before its first use
	pending [][]int // rows of each factor that wait for a full chunk
	out     [Chunk]float64
	weight  [Chunk]float64
	grad    []float64
	sum     Sum
}

func newModelWork(f []Factor) *modelWork {
	return &modelWork{work: make([]Work, len(f)), pending: make([][]int, len(f))}
}

// The terms are summed in at most mostParts parts of at least partTerms terms, for any number of
// workers. Each part needs memory for a gradient.
const (
	mostParts = 8
	partTerms = 2 * Chunk
)

// Sum returns Σ E[log f] over the terms of batch, times the number of all terms per term of the
// batch, plus the factors of one row. It adds the gradient to dst unless dst is nil. A nil batch
// means all terms. The result does not depend on the number of workers.
func (m *Model) Sum(ctx context.Context, workers int, dst, mu []float64, batch []int) (Sum, error) {
	terms := estimate.NewBatch(batch, m.Len())
	parts := max(1, min(mostParts, terms.N/partTerms))
	work := make([]*modelWork, parts)
	for p := range work {
		work[p] = m.pool.Get().(*modelWork)
		defer m.pool.Put(work[p])
	}
	err := parallel.Each(ctx, parts, workers, func(_, p int) error {
		w := work[p]
		g := dst
		if p > 0 && dst != nil {
			w.grad = dense.Resize(w.grad, len(dst))
			clear(w.grad)
			g = w.grad
		}
		m.part(w, g, mu, &terms, p*terms.N/parts, (p+1)*terms.N/parts)
		for k := p; k < len(m.Factors); k += parts {
			if m.Factors[k].Rows() == 1 {
				m.flush(w, k, g, mu, row0, 1)
			}
		}
		return nil
	})
	if err != nil {
		return Sum{math.NaN(), math.NaN()}, err
	}
	var s Sum
	for p, w := range work {
		s.Value += w.sum.Value
		s.Size += w.sum.Size
		if p > 0 && dst != nil {
			floats.Add(dst, w.grad)
		}
	}
	return s, nil
}

// part sums the terms lo … hi−1 of a batch, in chunks of rows of one factor.
func (m *Model) part(w *modelWork, dst, mu []float64, terms *estimate.Batch, lo, hi int) {
	w.sum = Sum{}
	for k := range w.pending {
		w.pending[k] = w.pending[k][:0]
	}
	k := 0
	for i := lo; i < hi; i++ {
		n := terms.Index(i)
		if n < m.first[k] || n >= m.first[k+1] {
			k = sort.SearchInts(m.first, n+1) - 1
		}
		w.pending[k] = append(w.pending[k], n-m.first[k])
		if len(w.pending[k]) == Chunk {
			m.flush(w, k, dst, mu, w.pending[k], terms.Scale)
			w.pending[k] = w.pending[k][:0]
		}
	}
	for k, rows := range w.pending {
		m.flush(w, k, dst, mu, rows, terms.Scale)
	}
}

// flush adds a chunk of rows of factor k to the sum and the gradient.
func (m *Model) flush(w *modelWork, k int, dst, mu []float64, rows []int, scale float64) {
	if len(rows) == 0 {
		return
	}
	f := m.Factors[k]
	if w.work[k] == nil {
		w.work[k] = f.Work(min(Chunk, f.Rows()))
	}
	n := 0
	defer parallel.At(&n, func(int) string { return "factor " + f.Name() })
	out := w.out[:len(rows)]
	w.work[k].Value(out, mu, rows)
	for _, v := range out {
		w.sum.Value += scale * v
		w.sum.Size += scale * math.Abs(v)
	}
	if dst == nil {
		return
	}
	for i := range rows {
		w.weight[i] = scale
	}
	w.work[k].Pull(dst, mu, rows, w.weight[:len(rows)])
}
