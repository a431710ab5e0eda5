package rounds

import (
	"fmt"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// Part is a partial sum of a round, with the set of blocks in it.
type Part struct {
	ID     ID
	Blocks Blocks
	Items  int
	Size   int // number of columns in the first round, and of weights later
	First  *First
	Looks  []*Look
	// Docs and Sums are for models that are not linear: the sample of the first round, and Size
	// sums in later rounds.
	Docs *Docs
	Sums *Sums
	// Groups is set for a mixed model, which has Arrows in place of Looks.
	Groups *Grouping
	Arrows []*ArrowLook

	broken string
}

// ID identifies the round of a part. Parts may only be merged if their IDs are equal.
type ID struct {
	Model  string // kind of model, for messages
	Shape  string // size of the model in words; may be empty
	Digest uint64 // digest of the model
	Round  int
	States uint64 // digest of the states of the round
}

// First holds the results of the first round, which has no state to evaluate: a sample of the rows
// and moments of the columns.
type First struct {
	mu      sync.Mutex
	cols    int
	Sample  *Sample
	columns *Sums // the sum of the weights, and five sums for each column: see Add
	// Group is set for a mixed model. The other fields then describe the common columns.
	Group *GroupFirst
}

// NewFirst returns a First without rows, for cols columns and a sample of at most sample rows.
func NewFirst(cols, sample int) *First {
	return &First{cols: cols, Sample: NewSample(sample, cols), columns: NewSums(1 + 5*cols)}
}

// Add adds the rows x of a block. place is the place of the first row in the block.
func (f *First) Add(block, place uint64, x *design.Matrix, t *term.Terms) {
	d, n := f.cols, float64(x.Rows)
	sums := make([]float64, 1+5*d)
	mean, sum, moment, square, seen := sums[1:1+d], sums[1+d:1+2*d], sums[1+2*d:1+3*d],
		sums[1+3*d:1+4*d], sums[1+4*d:]
	each := func(do func(i, j int, v float64)) {
		for i := range x.Rows {
			ind, val := x.Row(i)
			for k, v := range val {
				if ind != nil || v != 0 { // skip zeros, so dense rows are added as sparse ones
					do(i, dense.Index(ind, k), v)
				}
			}
		}
	}
	for i := range x.Rows {
		_, _, w, _ := t.Term(i)
		sums[0] += w
	}
	each(func(i, j int, v float64) {
		_, _, w, _ := t.Term(i)
		mean[j] += w * v
		sum[j] += v
		seen[j]++
	})
	each(func(_, j int, v float64) {
		c := v - sum[j]/n
		square[j] += c * c
	})
	for j, s := range sum {
		c := s / n
		square[j] += (n - seen[j]) * c * c
		moment[j] = s * c
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := dense.AllFinite(sums); ok { // columns that overflow have no units
		f.columns.Add(sums)
	}
	for i := range x.Rows {
		ind, val := x.Row(i)
		if at := place + uint64(i); f.Sample.Wants(block, at, ind, val) {
			y, o, w, _ := t.Term(i)
			f.Sample.Add(block, at, rowOf(x, i, Row{Y: y, Offset: o, Weight: w}))
		}
	}
}

// rowOf returns r with the values of row i of x. It drops zeros if more than a third are zero.
func rowOf(x *design.Matrix, i int, r Row) Row {
	ind, val := x.Row(i)
	n := 0
	for _, v := range val {
		if v != 0 {
			n++
		}
	}
	if 3*n >= 2*x.Cols {
		r.Val = make([]float64, x.Cols)
		x.Dense1(r.Val, i)
		return r
	}
	r.Ind, r.Val = make([]int32, 0, n), make([]float64, 0, n)
	for k, v := range val {
		j := int32(k)
		if x.Sparse != nil {
			j = ind[k]
		}
		if v != 0 {
			r.Ind, r.Val = append(r.Ind, j), append(r.Val, v)
		}
	}
	return r
}

// Columns holds moments of each column over all rows: the weighted mean, the variance, the number of
// values that are not 0, and the sum of squares.
type Columns struct{ Mean, Variance, Count, Square []float64 }

// unseenPart is the fraction of the sum of squares of a column that a sample may miss by chance.
const unseenPart = 0.1

// Narrow returns q with more precision for columns that the sample x under-represents: it adds the
// precision that the missing rows would have with unit curvature. stands holds how many rows each row
// of the sample stands for. Narrow returns nil if no column lacks rows.
func (c *Columns) Narrow(q *gauss.Gaussian, x *design.Matrix, stands []float64) *gauss.Gaussian {
	seen := make([]float64, len(c.Square))
	for i, w := range stands {
		ind, val := x.Row(i)
		for k, v := range val {
			j := dense.Index(ind, k)
			seen[j] += w * v * v
		}
	}
	s := &gauss.Gaussian{}
	s.CopyFrom(q)
	few := false
	for j, all := range c.Square {
		if more := all - seen[j]; more > unseenPart*all {
			s.P[j*len(seen)+j] += more
			few = true
		}
	}
	if !few || !s.Factor() {
		return nil
	}
	return s
}

// Columns returns the moments of the columns over n rows.
func (f *First) Columns(n int) *Columns {
	d := f.cols
	sums := make([]float64, 1+5*d)
	f.columns.Value(sums)
	means, variances, squares := make([]float64, d), make([]float64, d), make([]float64, d)
	for j := range d {
		squares[j] = sums[1+2*d+j] + sums[1+3*d+j]
		means[j] = sums[1+j] / sums[0]
		mean := sums[1+d+j] / float64(n)
		v := (sums[1+3*d+j] + (sums[1+2*d+j] - sums[1+d+j]*mean)) / float64(n)
		// a smaller variance is rounding error of a constant column
		if v > dense.Epsilon*mean*mean*16 {
			variances[j] = v
		}
	}
	return &Columns{means, variances, sums[1+4*d:], squares}
}

// Begin announces the items of a block. The error wraps sentinel.ErrParam if p already has the block
// or cannot hold another one.
func (p *Part) Begin(block uint64) error {
	if p.broken != "" {
		return p.whole()
	}
	if !p.Blocks.Add(block) {
		return fmt.Errorf("block %d is in the shard already: %w", block, sentinel.ErrParam)
	}
	if p.full(nil) {
		return fmt.Errorf("block %d is one too many for a shard; make larger blocks: %w", block,
			sentinel.ErrParam)
	}
	return nil
}

// full reports whether the sums of p could overflow if the sums of o were added. A nil o means one
// more block.
func (p *Part) full(o *Part) bool {
	if o == nil {
		o = &Part{Looks: slices.Repeat([]*Look{{}}, len(p.Looks)),
			Arrows: slices.Repeat([]*ArrowLook{{}}, len(p.Arrows)), First: &First{}}
	}
	for i, l := range p.Looks {
		if l.sums.Full(o.Looks[i].sums) {
			return true
		}
	}
	for i, l := range p.Arrows {
		if l.sums.Full(o.Arrows[i].sums) {
			return true
		}
	}
	if p.First != nil && p.First.Group != nil && p.First.Group.full(o.First.Group) {
		return true
	}
	return p.Sums != nil && p.Sums.Full(o.Sums)
}

// Break records that a block was added in part only. Later calls that use p return an error.
func (p *Part) Break(block uint64, why error) {
	if p.broken == "" {
		p.broken = fmt.Sprintf("block %d was not added to its end (%v)", block, why)
	}
}

// whole returns an error if a block of p was added in part only.
func (p *Part) whole() error {
	if p.broken == "" {
		return nil
	}
	return fmt.Errorf("a shard cannot be used: %s; begin it again: %w", p.broken, sentinel.ErrParam)
}

// Of returns an error unless p belongs to the model, the round and the states of id.
func (p *Part) Of(id ID) error {
	switch o := p.ID; {
	case o.Model != id.Model:
		return fmt.Errorf("a shard of a %s, not of a %s: %w", o.Model, id.Model, sentinel.ErrParam)
	case o.Shape != id.Shape:
		return fmt.Errorf("a shard of a %s of %s, not of %s: %w", o.Model, o.Shape, id.Shape,
			sentinel.ErrParam)
	case o.Digest != id.Digest && id.Shape != "":
		return fmt.Errorf("a shard of another %s: its options differ: %w", id.Model,
			sentinel.ErrParam)
	case o.Digest != id.Digest:
		return fmt.Errorf("a shard of another %s: its columns, likelihood or options differ: %w",
			id.Model, sentinel.ErrParam)
	case o.Round != id.Round:
		return fmt.Errorf("a shard of round %d, in round %d: %w", o.Round, id.Round,
			sentinel.ErrParam)
	case o.States != id.States:
		return fmt.Errorf("a shard of round %d at other states: %w", o.Round, sentinel.ErrParam)
	}
	return p.whole()
}

// Like returns an error unless p may be merged with o: both must belong to the same round and have
// sums of the same lengths.
func (p *Part) Like(o *Part) error {
	if err := p.Of(o.ID); err != nil {
		return err
	}
	if p.shape() != o.shape() {
		return fmt.Errorf("a shard of a %s with sums of other shapes: %w", p.ID.Model,
			sentinel.ErrParam)
	}
	return nil
}

// shape holds the sizes that two parts must share if their sums are to be merged.
type shape struct {
	size, looks, rows, docs, words, arrows int
	sums                                   bool
	groups                                 string
}

func (p *Part) shape() shape {
	s := shape{size: p.Size, looks: len(p.Looks), sums: p.Sums != nil, arrows: len(p.Arrows)}
	if p.Groups != nil {
		s.groups = fmt.Sprint(*p.Groups)
	}
	if p.First != nil {
		s.rows = p.First.Sample.Most
	}
	if p.Docs != nil {
		s.docs, s.words = p.Docs.Most, p.Docs.Words
	}
	return s
}

// Merge adds the contents of o, which it does not change. On error p is unchanged.
func (p *Part) Merge(o *Part) error {
	if p == o {
		return fmt.Errorf("a shard is merged with itself: %w", sentinel.ErrParam)
	}
	if err := p.whole(); err != nil {
		return err
	}
	if err := o.Like(p); err != nil {
		return err
	}
	if id, ok := p.Blocks.Shared(&o.Blocks); ok {
		return fmt.Errorf("block %d is in both shards: %w", id, sentinel.ErrParam)
	}
	if o.Blocks.Empty() {
		return nil
	}
	if p.full(o) {
		return fmt.Errorf("the shards have too many blocks; make larger ones: %w",
			sentinel.ErrParam)
	}
	p.Blocks.Merge(&o.Blocks)
	p.Items += o.Items
	for i, l := range p.Looks {
		l.merge(o.Looks[i])
	}
	for i, l := range p.Arrows {
		l.merge(o.Arrows[i])
	}
	if p.First != nil {
		p.First.Sample.Merge(o.First.Sample)
		p.First.columns.Merge(o.First.columns)
		if p.First.Group != nil {
			p.First.Group.merge(o.First.Group)
		}
	}
	if p.Docs != nil {
		p.Docs.Merge(o.Docs)
	}
	if p.Sums != nil {
		p.Sums.Merge(o.Sums)
	}
	return nil
}

const (
	mostLooks  = 3       // states that compete in one round
	mostSample = 1 << 20 // items of a sample
	mostSize   = 1 << 16 // weights of a linear model; the matrices of more do not fit in memory
	mostSums   = 1 << 30 // sums of other models
)

// State writes or reads p without its states. A part that was read without blocks has no sums until
// Room is called. State fails if a block was added in part only.
func (p *Part) State(c *save.Coder) {
	if err := p.whole(); err != nil {
		c.Fail(err)
		return
	}
	c.Text(&p.ID.Model)
	c.Text(&p.ID.Shape)
	c.Uint64(&p.ID.Digest, &p.ID.States)
	c.Int(&p.ID.Round, &p.Items, &p.Size)
	p.Blocks.State(c)
	first, docs, sums, n := p.First != nil, p.Docs != nil, p.Sums != nil, len(p.Looks)
	grouped, arrows := p.Groups != nil, len(p.Arrows)
	most, words := 1, 1
	switch {
	case first:
		most = p.First.Sample.Most
	case docs:
		most, words = p.Docs.Most, p.Docs.Words
	}
	c.Int(&most, &words)
	c.Bool(&first, &docs, &sums, &grouped)
	c.Int(&n, &arrows)
	c.Check(n <= mostLooks && arrows <= mostLooks && (arrows == 0 || grouped) && (p.Size <= mostSize || n == 0 && !first && p.Size <= mostSums),
		"%d states of %d weights", n, p.Size)
	if c.Reading() {
		*p = Part{ID: p.ID, Blocks: p.Blocks, Items: p.Items, Size: p.Size}
		if grouped {
			p.Groups = &Grouping{}
		}
		c.Check(most > 0 && most <= mostSample && words > 0, "a sample of %d items and %d words",
			most,
			words)
	}
	if p.Groups != nil { // nil after an error
		p.Groups.state(c)
	}
	if c.Err() != nil {
		return
	}
	if c.Reading() {
		if first {
			p.First = NewFirst(p.Size, most)
		}
		if first && grouped {
			c.Check(p.Size == p.Groups.Border(), "%d columns of %d", p.Size, p.Groups.Border())
			p.First.Group = emptyGroupFirst(p.Groups)
		}
		for range arrows {
			p.Arrows = append(p.Arrows, &ArrowLook{of: p.Groups, rowSums: rowSums{sums: &Sums{}}})
		}
		if docs {
			p.Docs = NewDocs(most, words, p.Size)
		}
		if sums {
			p.Sums = &Sums{}
		}
		for range n {
			p.Looks = append(p.Looks, &Look{d: p.Size, certain: true, rowSums: rowSums{sums: &Sums{}}})
		}
	}
	if p.Blocks.Empty() || c.Err() != nil {
		return
	}
	if first {
		p.First.Sample.State(c)
		p.First.columns.State(c, 1+5*p.Size)
		if grouped && c.Err() == nil {
			p.First.Group.state(c)
		}
	}
	if docs {
		p.Docs.State(c)
	}
	if sums {
		p.Sums.State(c, p.Size)
	}
	for _, l := range p.Looks {
		l.State(c, p.Size)
	}
	for _, l := range p.Arrows {
		if c.Err() == nil {
			l.state(c)
		}
	}
}

// Divide makes p the part of a mixed model. The first round must be set.
func (p *Part) Divide(g *Grouping) {
	p.Groups = g
	p.First.Group = newGroupFirst(g)
}

// Room allocates the sums of a part that was read without blocks.
func (p *Part) Room() {
	if !p.Blocks.Empty() {
		return
	}
	for _, l := range p.Looks {
		l.sums = NewSums(lookSums(l.d))
	}
	for _, l := range p.Arrows {
		l.sums = NewSums(l.of.Sums())
	}
	if p.First != nil && p.Groups != nil {
		p.First.Group = newGroupFirst(p.Groups)
	}
	if p.Sums != nil {
		p.Sums = NewSums(p.Size)
	}
}

// Ledger holds the number of the round, and the items and blocks of the first round. Later rounds must
// have the same ones.
type Ledger struct {
	Round  int
	Items  int
	Blocks Blocks
}

// Open ends the first round, which had the items and blocks of p.
func (l *Ledger) Open(p *Part) { l.Round, l.Items, l.Blocks = 1, p.Items, p.Blocks.Clone() }

// Accept returns an error unless p has the same items and blocks as the first round. The error wraps
// sentinel.ErrEmpty or sentinel.ErrParam.
func (l *Ledger) Accept(p *Part) error {
	if p.Items == 0 {
		return fmt.Errorf("a round without items: %w", sentinel.ErrEmpty)
	}
	if l.Round == 0 {
		return nil
	}
	if id, ok := p.Blocks.Missing(&l.Blocks); ok {
		return fmt.Errorf("block %d of the first round is missing in round %d: %w", id, l.Round,
			sentinel.ErrParam)
	}
	if id, ok := l.Blocks.Missing(&p.Blocks); ok {
		return fmt.Errorf("block %d in round %d was not in the first round: %w", id, l.Round,
			sentinel.ErrParam)
	}
	if p.Items != l.Items {
		return fmt.Errorf("%d items in round %d, and %d in the first round; "+
			"blocks must have the same items in all rounds: %w",
			p.Items, l.Round, l.Items, sentinel.ErrParam)
	}
	return nil
}

// State writes or reads l.
func (l *Ledger) State(c *save.Coder) {
	c.Int(&l.Round, &l.Items)
	l.Blocks.State(c)
}
