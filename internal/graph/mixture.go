package graph

import (
	"math"
	"strings"

	"gonum.org/v1/gonum/floats"
)

// The factors of this file sum over discrete variables of each row. Their values are the maximum
// over the distribution of these variables under q, which is convex in the moments.

// ones returns n ones.
func ones(n int) []float64 {
	o := make([]float64, n)
	floats.AddConst(1, o)
	return o
}

// joined is a factor that sums over factors.
type joined struct {
	name  string
	rows  int
	parts []Factor
	terms []Term
	names []string
}

func (f *joined) Name() string { return f.name }

func (f *joined) Rows() int { return f.rows }

func (f *joined) Parts() []Factor { return f.parts }

func (f *joined) Terms() ([]Term, []string) { return f.terms, f.names }

func (f *joined) Custom() bool {
	for _, p := range f.parts {
		if p.Custom() {
			return true
		}
	}
	return false
}

// work returns Work of all parts.
func (f *joined) work(n int) []partWork {
	w := make([]partWork, len(f.parts))
	for k, p := range f.parts {
		w[k] = partWork{p.Work(n), p.Rows() == 1, make([]int, n)}
	}
	return w
}

// partWork is Work of a part, which may have one row for all rows of the factor.
type partWork struct {
	Work
	single bool
	zeros  []int
}

func (w *partWork) of(rows []int) []int {
	if w.single {
		return w.zeros[:len(rows)]
	}
	return rows
}

// Mixture is log Σ_k exp(E[log π_k] + E[log f_k]).
type Mixture struct{ joined }

// NewMixture returns the mixture of parts. weights has K rows, or K rows for each row of the
// parts.
func NewMixture(weights Term, name string, parts []Factor) *Mixture {
	f := &Mixture{joined{"mixture(" + name + ")", 1, parts, []Term{weights}, []string{name}}}
	for _, p := range parts {
		f.rows = max(f.rows, p.Rows())
	}
	if !f.shared() {
		f.rows = max(f.rows, weights.Rows()/len(parts))
	}
	return f
}

// shared reports whether all rows have the same weights.
func (f *Mixture) shared() bool { return f.terms[0].Rows() == len(f.parts) }

type mixtureWork struct {
	*Mixture
	parts  []partWork
	m, d   *Moments
	rows   []int     // rows of the weights
	share  []float64 // responsibilities, part by part
	weight []float64
}

func (f *Mixture) Work(n int) Work {
	k := len(f.parts)
	size := n * k
	if f.shared() {
		size = k
	}
	return &mixtureWork{Mixture: f, parts: f.work(n), m: Buffer(f.terms[0], size),
		d: Buffer(f.terms[0], size), rows: make([]int, 0, size), share: make([]float64, n*k),
		weight: make([]float64, n)}
}

// weightRows returns the rows of the weights for the given rows of the factor.
func (w *mixtureWork) weightRows(rows []int) []int {
	k := len(w.parts)
	w.rows = w.rows[:0]
	if w.shared() {
		rows = row0
	}
	for _, r := range rows {
		for j := range k {
			w.rows = append(w.rows, r*k+j)
		}
	}
	return w.rows
}

func (w *mixtureWork) Value(out, mu []float64, rows []int) {
	n, k := len(rows), len(w.parts)
	w.terms[0].Moments(w.m, mu, w.weightRows(rows))
	for j := range w.parts {
		p := &w.parts[j]
		l := w.share[j*n : (j+1)*n]
		p.Value(l, mu, p.of(rows))
		for i := range l {
			l[i] += w.m.Log[w.index(i, j)]
		}
	}
	l := make([]float64, k)
	for i := range n {
		for j := range l {
			l[j] = w.share[j*n+i]
		}
		out[i] = floats.LogSumExp(l)
		for j := range l {
			w.share[j*n+i] = math.Exp(l[j] - out[i])
		}
	}
}

// index returns the position in the moments of the weights of part j in row i of a chunk.
func (w *mixtureWork) index(i, j int) int {
	if w.shared() {
		return j
	}
	return i*len(w.parts) + j
}

func (w *mixtureWork) Pull(dst, mu []float64, rows []int, weight []float64) {
	n := len(rows)
	w.d.clear(len(w.rows))
	for j := range w.parts {
		share := w.share[j*n : (j+1)*n]
		for i, s := range share {
			share[i] = s * weight[i]
			w.d.Log[w.index(i, j)] += share[i]
		}
		p := &w.parts[j]
		p.Pull(dst, mu, p.of(rows), share)
	}
	w.terms[0].Pull(dst, mu, w.rows, w.m, w.d)
}

// Chain is a hidden Markov model: log Σ over all sequences of states.
type Chain struct {
	joined
	first []int // row of the parts at which each sequence begins, and their number
}

// NewChain returns the factor of sequences of the given lengths. start has K rows, move has K
// rows for each state, and parts are the factors of the K states.
func NewChain(start, move Term, names []string, lengths []int, parts []Factor) *Chain {
	name := "chain(" + strings.Join(names, ", ") + ")"
	f := &Chain{joined{name, len(lengths), parts, []Term{start, move}, names}, []int{0}}
	n := 0
	for _, l := range lengths {
		n += l
		f.first = append(f.first, n)
	}
	return f
}

type chainWork struct {
	*Chain
	parts       []partWork
	start, move *Moments
	ds, dm      *Moments
	rows        []int // 0 … K²−1
	at          []int // rows of a chunk
	sequences   []sequence
	tmp         []float64
	weight      []float64
}

// sequence holds E[log f_k] and the logarithms of the forward and backward sums of a sequence,
// state by state, and the logarithm of their total.
type sequence struct {
	emit, forward, backward []float64
	total                   float64
}

// probability returns the probability of a state at a time, at index l of the sums.
func (q *sequence) probability(l int) float64 {
	return math.Exp(q.forward[l] + q.backward[l] - q.total)
}

func (f *Chain) Work(int) Work {
	k := len(f.parts)
	w := &chainWork{Chain: f, parts: f.work(Chunk), tmp: make([]float64, k),
		weight: make([]float64, Chunk)}
	w.start, w.ds = Buffer(f.terms[0], k), Buffer(f.terms[0], k)
	w.move, w.dm = Buffer(f.terms[1], k*k), Buffer(f.terms[1], k*k)
	for i := range k * k {
		w.rows = append(w.rows, i)
	}
	return w
}

// chunks calls f for chunks of the rows of sequence s, with the time of the first row.
func (w *chainWork) chunks(s int, f func(time int, rows []int)) {
	for lo := w.first[s]; lo < w.first[s+1]; lo += Chunk {
		w.at = w.at[:0]
		for r := lo; r < min(lo+Chunk, w.first[s+1]); r++ {
			w.at = append(w.at, r)
		}
		f(lo-w.first[s], w.at)
	}
}

func (w *chainWork) Value(out, mu []float64, rows []int) {
	k := len(w.parts)
	w.terms[0].Moments(w.start, mu, w.rows[:k])
	w.terms[1].Moments(w.move, mu, w.rows)
	for len(w.sequences) < len(rows) {
		w.sequences = append(w.sequences, sequence{})
	}
	for i, s := range rows {
		q := &w.sequences[i]
		n := w.first[s+1] - w.first[s]
		for _, p := range []*[]float64{&q.emit, &q.forward, &q.backward} {
			if len(*p) < n*k {
				*p = make([]float64, n*k)
			}
		}
		w.chunks(s, func(time int, at []int) {
			for j := range w.parts {
				p := &w.parts[j]
				p.Value(w.weight, mu, p.of(at))
				for t := range at {
					q.emit[(time+t)*k+j] = w.weight[t]
				}
			}
		})
		w.forward(q, n)
		out[i] = q.total
	}
}

// forward computes the forward sums and their total over n times.
func (w *chainWork) forward(q *sequence, n int) {
	k := len(w.parts)
	for t := range n {
		for s := range k {
			a := w.start.Log[s]
			if t > 0 {
				for j := range k {
					w.tmp[j] = q.forward[(t-1)*k+j] + w.move.Log[j*k+s]
				}
				a = floats.LogSumExp(w.tmp)
			}
			q.forward[t*k+s] = a + q.emit[t*k+s]
		}
	}
	q.total = floats.LogSumExp(q.forward[(n-1)*k : n*k])
}

// backward computes the backward sums.
func (w *chainWork) backward(q *sequence, n int) {
	k := len(w.parts)
	clear(q.backward[(n-1)*k : n*k])
	for t := n - 2; t >= 0; t-- {
		for s := range k {
			for j := range k {
				w.tmp[j] = w.move.Log[s*k+j] + q.emit[(t+1)*k+j] + q.backward[(t+1)*k+j]
			}
			q.backward[t*k+s] = floats.LogSumExp(w.tmp)
		}
	}
}

func (w *chainWork) Pull(dst, mu []float64, rows []int, weight []float64) {
	k := len(w.parts)
	w.ds.clear(k)
	w.dm.clear(k * k)
	for i, s := range rows {
		q := &w.sequences[i]
		n := w.first[s+1] - w.first[s]
		w.backward(q, n)
		for j := range k {
			w.ds.Log[j] += weight[i] * q.probability(j)
		}
		for t := 1; t < n; t++ {
			for a := range k {
				for b := range k {
					p := q.forward[(t-1)*k+a] + w.move.Log[a*k+b] + q.emit[t*k+b] +
						q.backward[t*k+b]
					w.dm.Log[a*k+b] += weight[i] * math.Exp(p-q.total)
				}
			}
		}
		w.chunks(s, func(time int, at []int) { w.pullParts(dst, mu, q, time, at, weight[i]) })
	}
	w.terms[0].Pull(dst, mu, w.rows[:k], w.start, w.ds)
	w.terms[1].Pull(dst, mu, w.rows, w.move, w.dm)
}

// pullParts adds the gradients of the parts in a chunk of times, weighted by the probabilities of
// the states.
func (w *chainWork) pullParts(dst, mu []float64, q *sequence, time int, at []int, weight float64) {
	k := len(w.parts)
	for j := range w.parts {
		p := &w.parts[j]
		p.Value(w.weight, mu, p.of(at))
		for t := range at {
			w.weight[t] = weight * q.probability((time+t)*k+j)
		}
		p.Pull(dst, mu, p.of(at), w.weight)
	}
}

// Responsibilities returns the probabilities of the parts in each row of a mixture, or at each
// time of a chain, under the best distribution of the discrete variables. It returns nil for
// other factors.
func Responsibilities(f Factor, mu []float64) [][]float64 {
	var all [][]float64
	out := make([]float64, Chunk)
	switch f := f.(type) {
	case *Mixture:
		w := f.Work(Chunk).(*mixtureWork)
		each(f.rows, func(rows []int) bool {
			w.Value(out, mu, rows)
			for i := range rows {
				r := make([]float64, len(f.parts))
				for j := range r {
					r[j] = w.share[j*len(rows)+i]
				}
				all = append(all, r)
			}
			return true
		})
	case *Chain:
		w := f.Work(1).(*chainWork)
		for s := range f.rows {
			w.Value(out, mu, []int{s})
			q, k, n := &w.sequences[0], len(f.parts), f.first[s+1]-f.first[s]
			w.backward(q, n)
			for t := range n {
				r := make([]float64, k)
				for j := range r {
					r[j] = q.probability(t*k + j)
				}
				all = append(all, r)
			}
		}
	}
	return all
}
