package pgsvi

import (
	"context"
	"fmt"
	"io"
	"iter"
)

// Stream is the posterior P of items R that arrive one at a time, in any number and each seen
// once, in memory that does not grow with their number. GLMStream is that of rows, and CTMStream
// that of documents; NewGLMStream, GLMPosterior.Stream and NewCTMStream make one. All randomness is
// from a fixed seed. The posterior is the same to the last bit however the items are handed over,
// whenever it is asked for, and if the stream was saved and loaded on the way.
//
// The zero Stream is not usable. A Stream is not safe for concurrent use.
type Stream[R, P any] struct {
	engine streamEngine[R, P]
}

// streamEngine is what a model brings to a Stream. Its errors do not have the name of the package.
type streamEngine[R, P any] interface {
	// add copies r, and learns from it at once or later. Where ctx is done while it learns the error is the cause; r is
	// in the stream, which learns of it when it is next used.
	add(ctx context.Context, r R) error
	// removeAll takes items out.
	removeAll(ctx context.Context, items iter.Seq2[R, error]) error
	// posterior leaves the stream as it is.
	posterior(ctx context.Context) (P, error)
	// given is the number of items handed over, and len the number in the posterior.
	given() int
	len() int
	// save writes all that the posterior depends on, now and later.
	save(w io.Writer) error
}

// Len returns the number of items in the posterior: those added, but for any left out with an
// error, less those removed.
func (s *Stream[R, P]) Len() int { return s.engine.len() }

// Add adds an item, which it copies. The error names its number, counted from 0 in the order in
// which items were handed over, and wraps
//
//	ErrShape      if it does not have the columns of the stream, or a word outside its
//	              vocabulary, or columns or words that do not increase
//	ErrNotFinite  if a number is NaN or infinite
//	ErrLabel      if the response of a row is outside the support of the likelihood
//	ErrParam      if the weight of a row is negative, or a count of a document is not positive
//
// upon which the item is left out. Adding an item may complete a block, of which the stream then
// learns. An error of its step wraps ErrNotFinite or ErrNotPosDef and names the first row that had
// to be left out, or the documents, which are left out together.
func (s *Stream[R, P]) Add(item R) error { return prefixed(s.engine.add(context.Background(), item)) }

// AddAll adds items until there are no more. It returns the first error, that of ctx,
// of items or of Add; other items before it are in the posterior. A block of which the stream was
// learning when ctx was done is in the stream, and learnt of when that is next used: Len counts its items.
func (s *Stream[R, P]) AddAll(ctx context.Context, items iter.Seq2[R, error]) error {
	for item, err := range items {
		if err != nil {
			return err
		}
		if ctx.Err() == nil {
			err = s.engine.add(ctx, item)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("pgsvi: canceled after %d items of the stream: %w", s.engine.given(), context.Cause(ctx))
		}
		if err != nil {
			return prefixed(err)
		}
	}
	return nil
}

// RemoveAll takes rows out of the posterior that it has seen. What the rows
// contribute is taken from the posterior as it stands, all rows together: the
// inverse of adding them as one block. On error, that of ctx, of items, of a row as in Add, or one
// wrapping ErrNotPosDef because the posterior does not contain the rows, it is
// as it was, but for rows added before that now make up a block of their own.
//
// Documents cannot be removed: the error of a CTMStream wraps errors.ErrUnsupported.
func (s *Stream[R, P]) RemoveAll(ctx context.Context, items iter.Seq2[R, error]) error {
	return s.engine.removeAll(ctx, items)
}

// Posterior returns the posterior of all items so far; the stream goes on as if it had not
// been asked. The error is that of the step for the items since the last complete
// block; of a CTMStream it wraps ErrEmpty if no document had a word.
func (s *Stream[R, P]) Posterior() (P, error) {
	p, err := s.engine.posterior(context.Background())
	return p, prefixed(err)
}

// Save writes the stream, from which LoadGLMStream or LoadCTMStream makes one that goes on to
// the same bits: a line that names the kind of file, JSON, and a checksum. The error is that of w,
// or wraps ErrParam if the name of a weight is not UTF-8, or if the likelihood is of a type that
// Register was not told of, or that encoding/json does not write and read.
func (s *Stream[R, P]) Save(w io.Writer) error { return s.engine.save(w) }
