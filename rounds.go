package pgsvi

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
)

// Rounds fits a model P to items R that lie on many machines (distributed, map-reduce). In a round
// each machine adds its items to a Shard. The shards are merged, in any order and tree, and Step
// finds what to look at next:
//
//	r, err := pgsvi.NewGLMRounds(cols, lik, opt)
//	for err == nil && !(it.GapBound <= 0.01) {
//		s := r.Shard()                    // to every machine, by MarshalBinary
//		err = s.Add(ctx, block, rows)     // there, for each of its blocks
//		err = all.Merge(s)                // on the way back
//		it, err = r.Step(all)
//	}
//	post, err := r.Posterior()
//
// The first round takes a random sample, to start from a fit of it, and counts the items. The
// later ones have the ELBO of a state. For GLMs and sparse GPs it is exact, with a proved GapBound
// if there are proofs for the likelihood; a fit takes three or four rounds. A CTM takes ten.
//
// Items come in blocks of some thousands, each with a number that stays the same in all rounds.
// The result depends on the blocks, and not on how they are dealt out or merged: it is the same
// to the last bit for one shard and for thousands. (Results of another GOARCH may differ in their
// last digits.) A round may be repeated: shards hold sums of their items and nothing else.
//
// The zero Rounds is ready for UnmarshalBinary alone. A Rounds is not safe for concurrent use.
type Rounds[R, P any] struct {
	engine roundsEngine[R, P]
}

// roundsEngine is what a model brings to a Rounds. Its errors do not have the name of the package.
type roundsEngine[R, P any] interface {
	shard() *Shard[R]
	step(p *rounds.Part) (Iteration, error)
	posterior() (P, error)
	state(c *save.State)
}

// Shard is what some blocks of items add up to in a round. It holds a few times as many numbers as
// the posterior, and in the first round a sample of at most 8192 items. A saved Shard has a
// version and a checksum.
//
// A Shard is not safe for concurrent use: to share blocks between goroutines, give each a Shard.
// The zero Shard is ready for UnmarshalBinary alone.
type Shard[R any] struct {
	part  *rounds.Part
	adder shardAdder[R] // nil of one that has travelled with items
}

// shardAdder adds items to a part.
type shardAdder[R any] interface {
	add(ctx context.Context, p *rounds.Part, block uint64, items iter.Seq2[R, error]) error
	// state writes or reads it, and the states that p is at.
	state(c *save.State, p *rounds.Part)
}

// Shard returns an empty shard of the round to come.
func (r *Rounds[R, P]) Shard() *Shard[R] { return r.engine.shard() }

// Step ends a round, given a shard with all blocks, and begins the next one. The first round
// returns an Iteration that is not evaluated. The others return the ELBO, Gap and GapBound of the
// best state so far (of a CTM: the last), which is that of Posterior; K and Passes count these
// rounds. Step keeps nothing of s.
//
// The error wraps
//   - ErrEmpty if s has no items;
//   - ErrParam if s is nil, is of another model or round, or does not have the blocks and items of
//     the first round, which the error names;
//   - ErrNotFinite or ErrNotPosDef if there is no next state.
//
// r is then as it was.
func (r *Rounds[R, P]) Step(s *Shard[R]) (Iteration, error) {
	if s == nil || s.part == nil {
		return Iteration{Evaluation: notEvaluated()},
			fmt.Errorf("pgsvi: Step without a shard: %w", ErrParam)
	}
	it, err := r.engine.step(s.part)
	return it, prefixed(err)
}

// Posterior returns the posterior at the state of the last Iteration. The error wraps ErrEmpty
// before the second round has ended.
func (r *Rounds[R, P]) Posterior() (P, error) {
	p, err := r.engine.posterior()
	return p, prefixed(err)
}

// Add adds the items of a block, in their order. The number of the block must be the same in all
// rounds, and no other block may have it. A block may be empty. Items are checked as by Stream.Add.
//
// The error is that of ctx or of items, or names block and item; see Stream.Add for what it wraps.
// It wraps ErrParam if the shard has the block already, or has travelled with items: such a shard
// can be merged with one from Rounds.Shard. After any error but these two the shard is of no
// further use.
func (s *Shard[R]) Add(ctx context.Context, block uint64, items iter.Seq2[R, error]) error {
	switch {
	case s.adder == nil:
		return fmt.Errorf(
			"pgsvi: a shard that was saved with items takes no more; merge it with one of "+
				"Rounds.Shard: %w", ErrParam)
	case items == nil:
		return fmt.Errorf("pgsvi: block %d: nil items: %w", block, ErrEmpty)
	}
	return prefixed(s.adder.add(ctx, s.part, block, items))
}

// Merge adds what o has, which it leaves as it is. The error wraps ErrParam if o is nil, of
// another model, likelihood, round or state, or has a block of s. It names the difference or the
// block, and s is then as it was.
func (s *Shard[R]) Merge(o *Shard[R]) error {
	if s.part == nil || o == nil || o.part == nil {
		return fmt.Errorf(
			"pgsvi: Merge of a shard that does not come from Rounds.Shard or UnmarshalBinary: %w",
			ErrParam)
	}
	return prefixed(s.part.Merge(o.part))
}

// Len returns the number of items of s.
func (s *Shard[R]) Len() int {
	if s.part == nil {
		return 0
	}
	return s.part.Items
}

// errNoRound is the error of a posterior that there is not yet.
var errNoRound = fmt.Errorf("there is no posterior before the second round has ended: %w", ErrEmpty)

// Of a run that goes through rows again and again:
const (
	streamGoal    = 1e-2 // nats, below which a further pass is not worth it
	mostRowPasses = 50
)

// shardFile and roundsFile are the files of a Shard and a Rounds.
var (
	shardFile  = save.Kind{Name: "Shard", Version: 1}
	roundsFile = save.Kind{Name: "Rounds", Version: 1}
)

// fileBytes returns a file with what state names.
func fileBytes(kind save.Kind, state func(*save.State)) ([]byte, error) {
	body, err := save.Marshal(state)
	if err != nil {
		return nil, prefixed(err)
	}
	var b bytes.Buffer
	err = kind.Write(&b, body)
	return b.Bytes(), err
}

// unfile reads it. The error wraps ErrFile.
func unfile(kind save.Kind, b []byte, state func(*save.State)) error {
	body, err := readBody(bytes.NewReader(b), kind)
	if err != nil {
		return err
	}
	if err := save.Unmarshal(body, state); err != nil {
		return &fileError{kind, err}
	}
	return nil
}

// MarshalBinary returns s. An empty shard has all that is needed to add items elsewhere; one with
// items has these alone. The error wraps ErrParam if the likelihood's type is not registered
// (Register), or if a block was not added to its end.
func (s *Shard[R]) MarshalBinary() ([]byte, error) {
	if s.part == nil {
		return nil, fmt.Errorf("pgsvi: a zero Shard has nothing to save: %w", ErrParam)
	}
	return fileBytes(shardFile, s.state)
}

// UnmarshalBinary makes s the shard that MarshalBinary has returned as b. The error wraps ErrFile
// if b is not a shard of such items, is damaged or of a newer release; s is then as it was.
func (s *Shard[R]) UnmarshalBinary(b []byte) error {
	t := &Shard[R]{part: &rounds.Part{}}
	if err := unfile(shardFile, b, t.state); err != nil {
		return err
	}
	*s = *t
	return nil
}

func (s *Shard[R]) state(c *save.State) {
	s.part.State(c)
	if c.Err() != nil || !s.part.Blocks.Empty() {
		return
	}
	if c.Reading() {
		s.adder = newShardAdder[R](s.part)
		if c.Check(s.adder != nil, "a shard of a %s is not one of %T", s.part.ID.Model,
			s); s.adder == nil {
			return
		}
	}
	if s.adder.state(c, s.part); c.Reading() {
		s.part.Room()
	}
}

// An addedItem is the type of an item that shards take.
type addedItem[R any] interface {
	// newAdder returns what adds items to a model of that name, nil if nothing does. The receiver
	// says the type alone.
	newAdder(model string) shardAdder[R]
}

// newShardAdder returns what adds items R to the model of p, nil if nothing does.
func newShardAdder[R any](p *rounds.Part) shardAdder[R] {
	var item R
	if of, ok := any(item).(addedItem[R]); ok {
		return of.newAdder(p.ID.Model)
	}
	return nil
}

// MarshalBinary returns r, to go on with it in another process (UnmarshalBinary). The error wraps
// ErrParam if the likelihood's type is not registered (Register).
func (r *Rounds[R, P]) MarshalBinary() ([]byte, error) {
	if r.engine == nil {
		return nil, fmt.Errorf("pgsvi: a zero Rounds has nothing to save: %w", ErrParam)
	}
	return fileBytes(roundsFile, r.engine.state)
}

// UnmarshalBinary makes r what MarshalBinary has returned as b: it goes on to the same bits. The
// error wraps ErrFile if b is not a Rounds of such a model, is damaged or of a newer release; r is
// then as it was.
func (r *Rounds[R, P]) UnmarshalBinary(b []byte) error {
	engine, ok := newRoundsEngine[R, P]()
	if !ok {
		return fmt.Errorf("pgsvi: there is no %T to read: %w", r, ErrParam)
	}
	if err := unfile(roundsFile, b, engine.state); err != nil {
		return err
	}
	r.engine = engine
	return nil
}

// A roundsPosterior is the type of a posterior that rounds fit.
type roundsPosterior[R, P any] interface {
	// newRounds returns an engine to be read. The receiver says the type alone.
	newRounds() roundsEngine[R, P]
}

// newRoundsEngine returns an engine of such items and posteriors, to be read.
func newRoundsEngine[R, P any]() (roundsEngine[R, P], bool) {
	var post P
	if of, ok := any(post).(roundsPosterior[R, P]); ok {
		return of.newRounds(), true
	}
	return nil, false
}
