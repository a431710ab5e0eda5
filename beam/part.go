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

// itemKind is the type of the items in a round.
type itemKind string

const (
	rowItems itemKind = "rows"
	docItems itemKind = "documents"
)

// anyShard is a pgsvi.Shard of rows or documents. It takes both as rows.
type anyShard interface {
	saver
	add(ctx context.Context, block uint64, rows iter.Seq2[pgsvi.Row, error]) error
	merge(o anyShard) error
}

// newShard returns an empty shard.
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

// document converts a row to a document. A dense row has no words, so Shard.Add returns an error
// for it.
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

// A part is the serialized content of a shard. Errors in the data are fields of the part and not
// errors of the worker, because runners repeat a step that fails, and may not report the reason.
type part struct {
	Shard   []byte
	Skipped int
	First   *fault // first skipped row
	Fault   *fault // ends the fit
}

// A fault is an error in serialized form.
type fault struct {
	Block uint64 // block that contains it
	Text  string
	Is    int // index in sentinels
}

// sentinels lists the errors that bad data cause.
var sentinels = []error{pgsvi.ErrShape, pgsvi.ErrEmpty, pgsvi.ErrLabel, pgsvi.ErrNotFinite,
	pgsvi.ErrNotPosDef, pgsvi.ErrParam, pgsvi.ErrMemory, pgsvi.ErrFile}

// faultOf converts err to a fault. It returns false if bad data did not cause err.
func faultOf(block uint64, err error) (*fault, bool) {
	for i, s := range sentinels {
		if errors.Is(err, s) {
			return &fault{block, err.Error(), i}, true
		}
	}
	return nil, false
}

// first returns the fault with the smaller block. Either may be nil.
func first(a, b *fault) *fault {
	if a == nil || b != nil && b.Block < a.Block {
		return b
	}
	return a
}

// err converts f back to an error.
func (f *fault) err() error { return &faultError{f} }

type faultError struct{ *fault }

func (e *faultError) Error() string { return e.Text }

func (e *faultError) Unwrap() error {
	if e.Is < 0 || e.Is >= len(sentinels) {
		return pgsvi.ErrFile
	}
	return sentinels[e.Is]
}

// err returns the error that ends the fit, or nil.
func (p *part) err() error {
	if p.Fault == nil {
		return nil
	}
	return p.Fault.err()
}

// seal encodes v with a checksum.
func seal(v any) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, sha256.Size))
	if err := gob.NewEncoder(b).Encode(v); err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	sum := sha256.Sum256(b.Bytes()[sha256.Size:])
	copy(b.Bytes(), sum[:])
	return b.Bytes(), nil
}

// unseal decodes the result of seal into v. Its error wraps pgsvi.ErrFile and begins with what.
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

// adding holds the options for turning rows into parts.
type adding struct {
	Items itemKind
	Block int // rows per block
	Skip  int // largest number of skipped rows
}

// add returns the sum over the blocks of b at the given state.
func (a *adding) add(ctx context.Context, state []byte, b blocks) (*part, error) {
	m := &merger{items: a.Items}
	if err := a.addTo(ctx, m, state, b); err != nil {
		return nil, err
	}
	return m.whole()
}

// addTo adds the blocks of b, at the given state, to m.
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
	if b.To != wholeFile { // otherwise the error already names the file
		err = named(b.Path, err)
	}
	f, ok := faultOf(at, err)
	if !ok {
		return err
	}
	m.Fault = f
	return nil
}

// A merger merges parts.
type merger struct {
	items itemKind
	shard anyShard
	part
}

// add merges a sealed part.
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

// whole returns the merged part.
func (m *merger) whole() (*part, error) {
	if m.shard == nil || m.Fault != nil {
		return &m.part, nil
	}
	b, err := m.shard.MarshalBinary()
	m.Shard = b
	return &m.part, err
}
