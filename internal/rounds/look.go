package rounds

import (
	"fmt"
	"math"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Look evaluates a state q(w) = N(m, P⁻¹) of D weights. It adds up the expectations of the rows and
// their derivatives ∂₁ and ∂₂ in the mean of η = xᵀw:
//
//	Σ E[log p(y|η)],   Xᵀ∂₁,   Xᵀdiag(−∂₂)X.
//
// Several goroutines may add rows at the same time.
type Look struct {
	At *gauss.Gaussian // nil if the look was read from another machine

	rowSums // E, its error, Xᵀ∂₁, and the triangle of Xᵀdiag(max(0, −∂₂))X
	d       int
	widest  float64 // the largest xᵀVx
	certain bool    // every ∂₁ and ∂₂ is accurate and no −∂₂ is negative
	tilts   *tilted // nil if no derivatives in parameters are wanted
}

// triangle returns the number of elements of a lower triangle of d columns.
func triangle(d int) int { return d * (d + 1) / 2 }

// NewLook returns a look at q, which has d weights, before any row.
func NewLook(q *gauss.Gaussian, d int) *Look {
	return &Look{At: q, d: d, rowSums: rowSums{sums: NewSums(lookSums(d))}, certain: true}
}

// lookSums returns the length of Look.sums for d weights.
func lookSums(d int) int { return 2 + d + triangle(d) }

// Lane is the scratch memory of one goroutine that adds rows.
type Lane struct {
	site   term.Marginals
	work   design.Work
	gram   []float64 // D×D
	packed []float64
	tilted [2]term.Marginals // expectations with a parameter above and below its value
}

// chunkNumbers is about how many numbers are in a chunk, the rows that are added in float64. A chunk
// takes 8 MB, and a block of 8192 rows is one chunk up to 128 columns.
const (
	chunkNumbers = 1 << 20
	mostChunk    = 8192
	leastChunk   = 256
)

// Chunk returns the number of rows of cols columns that are added in float64.
func Chunk(cols int) int {
	n := chunkNumbers / max(1, cols) / leastChunk * leastChunk
	return min(max(n, leastChunk), mostChunk)
}

// Add adds the rows x of a block, with the terms t. Each goroutine passes a lane of its own. The error
// is the error of h. If a row has no expectation, the state has no ELBO, but Add returns no error.
func (l *Look) Add(lane *Lane, h *parallel.Halt, block uint64, x *design.Matrix,
	t *term.Terms) error {
	d, n := l.d, x.Rows
	s := &lane.site
	s.Resize(n)
	lane.work.Halt = h
	x.Mul(s.M, l.At.Mean, nil)
	l.At.Variances(s.V, x, nil, &lane.work)
	err := t.Sure(func() error { return t.Expect(s, nil, term.Crew{Workers: 1, Halt: h}) })
	if halted := h.Err(); halted != nil {
		return halted
	}
	if err != nil {
		l.lose(block, err.Error())
		return nil
	}
	value, widest, clipped := 0.0, 0.0, false
	for i, e := range s.E {
		value += e
		widest = max(widest, s.V[i])
		clipped = clipped || s.Tg[i] < 0
		s.Gamma[i] = max(0, s.Tg[i])
	}
	var tilts []float64
	if l.tilts != nil {
		tilts = lane.tilt(l.tilts.of, h, x, t)
	}
	lane.packed = dense.Resize(lane.packed, l.sums.Len())
	p := lane.packed
	p[0], p[1] = value, s.Err
	clear(p[2 : 2+d])
	x.AddMulT(p[2:2+d], s.D1, nil)
	lane.pack(p[2+d:], x, s.Gamma)
	var clip []float64
	if clipped {
		for i, g := range s.Tg {
			s.Gamma[i] -= g
		}
		clip = make([]float64, triangle(d))
		lane.pack(clip, x, s.Gamma)
	}
	if halted := h.Err(); halted != nil {
		return halted
	}
	_, finite := dense.AllFinite(p)
	if _, ok := dense.AllFinite(clip); !finite || !ok || math.IsNaN(widest) {
		l.lose(block, fmt.Sprintf("the sums of block %d overflow", block))
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sums.Add(p)
	if l.tilts != nil {
		l.tilts.add(tilts)
	}
	if clipped {
		if l.clip == nil {
			l.clip = NewSums(triangle(d))
		}
		l.clip.Add(clip)
	}
	l.widest, l.certain = max(l.widest, widest), l.certain && s.Certain
	return nil
}

// pack stores the lower triangle of Xᵀdiag(w)X in dst, row by row.
func (lane *Lane) pack(dst []float64, x *design.Matrix, w []float64) {
	d := x.Cols
	lane.gram = dense.Resize(lane.gram, d*d)
	clear(lane.gram)
	x.AddGram(lane.gram, w, nil, &lane.work)
	for i := range d {
		dst = dst[copy(dst, lane.gram[i*d:i*d+i+1]):]
	}
}

// merge adds the sums of o.
func (l *Look) merge(o *Look) {
	l.rowSums.merge(&o.rowSums, triangle(l.d))
	if l.tilts != nil && o.tilts != nil {
		l.tilts.sums.Merge(o.tilts.sums)
		l.tilts.lost = l.tilts.lost || o.tilts.lost
	}
	l.widest, l.certain = max(l.widest, o.widest), l.certain && o.certain
}

// rowSums holds sums over rows at a state.
type rowSums struct {
	mu     sync.Mutex
	sums   *Sums  // expectations and their derivatives, with max(0, −∂₂) as precisions
	clip   *Sums  // the same with max(0, ∂₂) alone; nil if no ∂₂ is positive
	lost   string // why a row has no expectation, for the least such block
	lostAt uint64 // the number of that block
}

// lose records that the state has no ELBO because of a row of the block.
func (s *rowSums) lose(block uint64, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(block, why)
}

func (s *rowSums) loseLocked(block uint64, why string) {
	if s.lost == "" || block < s.lostAt {
		s.lost, s.lostAt = why, block
	}
}

// merge adds the sums of o. A clip has the given number of sums.
func (s *rowSums) merge(o *rowSums, clip int) {
	s.sums.Merge(o.sums)
	if o.clip != nil {
		if s.clip == nil {
			s.clip = NewSums(clip)
		}
		s.clip.Merge(o.clip)
	}
	if o.lost != "" {
		s.loseLocked(o.lostAt, o.lost)
	}
}

// State writes or reads the sums of l, without l.At.
func (l *Look) State(c *save.Coder, d int) {
	if c.Reading() {
		l.d, l.sums, l.clip = d, &Sums{}, nil
	}
	l.sums.State(c, lookSums(d))
	clipped := l.clip != nil
	if c.Bool(&clipped); clipped {
		if c.Reading() {
			l.clip = &Sums{}
		}
		if c.Err() == nil {
			l.clip.State(c, triangle(d))
		}
	}
	if l.tilts != nil && c.Err() == nil {
		l.tilts.state(c, d)
	}
	c.Float(&l.widest)
	c.Bool(&l.certain)
	c.Text(&l.lost)
	c.Uint64(&l.lostAt)
}
