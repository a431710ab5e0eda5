package rounds

import (
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// RowPass adds rows to a Part, block by block. It collects rows in chunks and adds several chunks at
// the same time.
type RowPass struct {
	Halt *parallel.Halt
	Lik  term.Likelihood
	Rule func(t *term.Terms) // sets the quadrature rule of the terms of a chunk
	// Features computes the features of a chunk of rows. Nil means the rows themselves.
	Features func(x *design.Matrix, t *term.Terms) (*design.Matrix, *term.Terms, error)
	Near     Near // first sites of a mixed model; nil means the sites under N(0, 1)

	Block uint64
	Place int // place of the next row in the block
	Seen  int // rows so far

	part  *Part
	chunk int // rows per chunk
	bufs  []rowChunk
	busy  int // number of full chunks
	loop  parallel.Loop
}

// rowChunk is a chunk of a block, with the scratch memory to add it.
type rowChunk struct {
	term.Buffer
	lane  Lane
	group groupLane
	block uint64
	place int // place of the first row in the block
	first int // number of the first row
	err   error
}

// NewRowPass returns a pass that adds rows of width values to p, for a model of dim weights.
func NewRowPass(p *Part, h *parallel.Halt, width, dim int, form term.Form, workers int) *RowPass {
	s := &RowPass{Halt: h, part: p, chunk: Chunk(max(width, dim)), bufs: make([]rowChunk, workers)}
	if g := p.Groups; g != nil {
		s.chunk = Chunk(g.each())
	}
	for i := range s.bufs {
		s.bufs[i].Form = form
		s.bufs[i].Reset(width)
	}
	return s
}

// Add adds a row to the block; see term.Buffer.Add. The error names the row that caused it, which may
// be an earlier one, or is the error of the Halt.
func (s *RowPass) Add(ind []int, val []float64, y, offset, weight float64, intercept bool) error {
	if s.Place%s.chunk == 0 {
		if s.busy == len(s.bufs) {
			if err := s.Flush(); err != nil {
				return err
			}
		}
		b := &s.bufs[s.busy]
		b.block, b.place, b.first = s.Block, s.Place, s.Seen
	}
	s.bufs[s.busy].Add(ind, val, y, offset, weight, intercept)
	s.Place++
	s.Seen++
	if s.Place%s.chunk == 0 {
		s.busy++
	}
	return nil
}

// Next begins the next block.
func (s *RowPass) Next() error {
	if s.Place%s.chunk != 0 {
		s.busy++
	}
	s.Block, s.Place = s.Block+1, 0
	return s.part.Begin(s.Block)
}

// Flush adds all rows that are still in chunks. It returns the same errors as Add.
func (s *RowPass) Flush() error {
	n := s.busy
	if n < len(s.bufs) && s.bufs[n].Rows() > 0 {
		n++
	}
	s.loop.Halt = s.Halt
	s.loop.Run(n, 1, n, parallel.Func(func(_, i, _ int) { s.do(&s.bufs[i]) }))
	s.busy = 0
	if err := s.Halt.Err(); err != nil {
		return err
	}
	for i := range s.bufs[:n] {
		b := &s.bufs[i]
		if b.err != nil {
			return b.err
		}
		s.part.Items += b.Rows()
		b.Reset(b.X.Cols)
	}
	return nil
}

// do adds one chunk to the part.
func (s *RowPass) do(b *rowChunk) {
	x, t := b.Design(), b.Terms(s.Lik, b.first)
	if s.part.Groups != nil {
		b.err = s.doGroups(b, x, t)
		return
	}
	if s.part.First != nil {
		s.part.First.Add(b.block, uint64(b.place), x, t)
	}
	if len(s.part.Looks) == 0 {
		return
	}
	if s.Features != nil {
		if x, t, b.err = s.Features(x, t); b.err != nil {
			return
		}
	}
	s.Rule(t)
	for _, l := range s.part.Looks {
		if b.err = l.Add(&b.lane, s.Halt, b.block, x, t); b.err != nil {
			return
		}
	}
}

// doGroups adds one chunk of rows of a mixed model to the part.
func (s *RowPass) doGroups(b *rowChunk, x *design.Matrix, t *term.Terms) error {
	w, p := &b.group, s.part
	if err := w.split(p.Groups, x, t); err != nil {
		return err
	}
	if f := p.First; f != nil {
		f.Add(b.block, uint64(b.place), &w.x, t)
		s.Rule(t)
		f.Group.add(w, s.Halt, b.block, t, s.Near)
		return nil
	}
	s.Rule(t)
	for _, l := range p.Arrows {
		if err := l.add(w, s.Halt, b.block, t); err != nil {
			return err
		}
	}
	return nil
}
