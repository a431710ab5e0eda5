package beam

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"iter"

	"github.com/pgsvi/pgsvi"
)

// itemKind says what items of rounds are.
type itemKind string

const (
	rowItems itemKind = "rows"
	docItems itemKind = "documents"
)

// anyShard is a pgsvi.Shard of any items, which it takes as rows.
type anyShard interface {
	saver
	add(ctx context.Context, block uint64, rows iter.Seq2[pgsvi.Row, error]) error
	merge(o anyShard) error
}

// newShard returns one to be read.
func newShard(items itemKind) anyShard {
	if items == docItems {
		return &shardOf[pgsvi.Document]{new(pgsvi.Shard[pgsvi.Document]), document}
	}
	return &shardOf[pgsvi.Row]{new(pgsvi.Shard[pgsvi.Row]), same}
}

type shardOf[R any] struct {
	*pgsvi.Shard[R]
	item func(pgsvi.Row) R
}

func same(r pgsvi.Row) pgsvi.Row { return r }

// document returns a row as a document. A dense row has no words, which Shard.Add finds wrong.
func document(r pgsvi.Row) pgsvi.Document { return pgsvi.Document{Words: r.Ind, Counts: r.Val} }

func (s *shardOf[R]) add(ctx context.Context, block uint64,
	rows iter.Seq2[pgsvi.Row, error]) error {
	return s.Add(ctx, block, func(yield func(R, error) bool) {
		for row, err := range rows {
			if !yield(s.item(row), err) {
				return
			}
		}
	})
}

func (s *shardOf[R]) merge(o anyShard) error {
	other, ok := o.(*shardOf[R])
	if !ok {
		return fmt.Errorf("pgsvi: %T merged with %T: %w", s, o, pgsvi.ErrParam)
	}
	return s.Merge(other.Shard)
}

// part is what a shard has, as it travels. Mistakes in data are a part of it and no error of a
// worker: runners repeat a step that fails, and may not say why.
type part struct {
	Shard   []byte
	Skipped int
	First   *fault // of those skipped
	Fault   *fault // what ends the fit
}

// fault is an error that travels.
type fault struct {
	Block uint64 // that it was found in
	Text  string
	Is    int // its place in sentinels
}

// sentinels are the errors that data have.
var sentinels = []error{pgsvi.ErrShape, pgsvi.ErrEmpty, pgsvi.ErrLabel, pgsvi.ErrNotFinite,
	pgsvi.ErrNotPosDef, pgsvi.ErrParam, pgsvi.ErrMemory, pgsvi.ErrFile}

// faultOf returns err as one if it is of data.
func faultOf(block uint64, err error) (*fault, bool) {
	for i, s := range sentinels {
		if errors.Is(err, s) {
			return &fault{block, err.Error(), i}, true
		}
	}
	return nil, false
}

// first returns that of two faults, which may be nil, that is in the least block.
func first(a, b *fault) *fault {
	if a == nil || b != nil && b.Block < a.Block {
		return b
	}
	return a
}

// err returns f as an error again.
func (f *fault) err() error { return &faultError{f} }

type faultError struct{ *fault }

func (e *faultError) Error() string { return e.Text }

func (e *faultError) Unwrap() error {
	if e.Is < 0 || e.Is >= len(sentinels) {
		return pgsvi.ErrFile
	}
	return sentinels[e.Is]
}

// err returns what ends the fit.
func (p *part) err() error {
	if p.Fault == nil {
		return nil
	}
	return p.Fault.err()
}

// seal returns what v is as bytes, with a checksum.
func seal(v any) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, sha256.Size))
	if err := gob.NewEncoder(b).Encode(v); err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	sum := sha256.Sum256(b.Bytes()[sha256.Size:])
	copy(b.Bytes(), sum[:])
	return b.Bytes(), nil
}

// unseal reads it. The error, which wraps pgsvi.ErrFile, names what it is.
func unseal(b []byte, v any, what string) error {
	if len(b) < sha256.Size {
		return fmt.Errorf("pgsvi: %s is truncated: %w", what, pgsvi.ErrFile)
	}
	body := b[sha256.Size:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], b[:sha256.Size]) {
		return fmt.Errorf("pgsvi: %s is truncated or damaged: its checksum is wrong: %w", what,
			pgsvi.ErrFile)
	}
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(v); err != nil {
		return fmt.Errorf("pgsvi: %s is damaged (%v): %w", what, err, pgsvi.ErrFile)
	}
	return nil
}

// adding says how rows become parts.
type adding struct {
	Items itemKind
	Block int // rows
	Skip  int // most rows that are left out
}

// add returns what the blocks of b add to a state.
func (a *adding) add(ctx context.Context, state []byte, b blocks) (*part, error) {
	m := &merger{items: a.Items}
	if err := a.addTo(ctx, m, state, b); err != nil {
		return nil, err
	}
	return m.whole()
}

// addTo adds the blocks of b, at a state, to what has been added there.
func (a *adding) addTo(ctx context.Context, m *merger, state []byte, b blocks) error {
	if m.Fault != nil {
		return nil
	}
	if m.shard == nil {
		m.shard = newShard(a.Items)
		if err := m.shard.UnmarshalBinary(state); err != nil {
			return err
		}
	}
	at := b.number(0)
	err := a.read(ctx, b, &m.part, func(block int, rows iter.Seq2[pgsvi.Row, error]) error {
		at = b.number(block)
		return m.shard.add(ctx, at, rows)
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	if b.To != wholeFile { // else it has the name
		err = named(b.Path, err)
	}
	f, ok := faultOf(at, err)
	if !ok {
		return err
	}
	m.Fault = f
	return nil
}

// merger merges parts.
type merger struct {
	items itemKind
	shard anyShard
	part
}

// add adds a part that has travelled.
func (m *merger) add(b []byte) error {
	var p part
	if err := unseal(b, &p, "a part of a round"); err != nil {
		return err
	}
	return m.addPart(&p)
}

func (m *merger) addPart(p *part) error {
	m.Skipped += p.Skipped
	m.First, m.Fault = first(m.First, p.First), first(m.Fault, p.Fault)
	if p.Fault != nil {
		return nil
	}
	s := newShard(m.items)
	err := s.UnmarshalBinary(p.Shard)
	switch {
	case err != nil:
	case m.shard == nil:
		m.shard = s
	default:
		err = m.shard.merge(s)
	}
	if err == nil {
		return nil
	}
	f, ok := faultOf(0, err)
	if !ok {
		return err
	}
	m.Fault = first(m.Fault, f)
	return nil
}

// whole returns what was merged.
func (m *merger) whole() (*part, error) {
	if m.shard == nil || m.Fault != nil {
		return &m.part, nil
	}
	b, err := m.shard.MarshalBinary()
	m.Shard = b
	return &m.part, err
}
