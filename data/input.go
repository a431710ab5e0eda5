package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/memory"
)

// This file opens and reads input within limits. A hostile or broken file could make a reader use
// any amount of memory, so three limits apply. A line or record may use only a part of the memory.
// Text unpacked by gzip must be in proportion to its packed size. And a memory.Budget limits what
// is kept of a whole file.
const (
	// linePart is the reciprocal of the share of memory that a line may use. A CSV line of
	// one-digit numbers takes about 40 times its length.
	linePart = 64

	// Text seldom packs to less than a twentieth, and a table with one nonzero value in a thousand
	// columns packs to a two-hundredth. gzip reaches at most a thousandth, so a file near this
	// ratio is an attack.
	mostUnpacked = 300     // bytes of text per byte of gzip
	freeUnpacked = 1 << 20 // bytes of text up to which the ratio does not matter
)

// gunzip returns r buffered, and unpacked if it begins like a gzip file.
func gunzip(r io.Reader) (*bufio.Reader, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	if head, _ := br.Peek(2); string(head) != "\x1f\x8b" {
		return br, nil
	}
	u := &unpacker{packed: packedReader{Reader: br}}
	z, err := gzip.NewReader(&u.packed)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: unpacking gzip: %w", err)
	}
	z.Multistream(false)
	u.z = z
	return bufio.NewReaderSize(u, 1<<16), nil
}

// An unpacker reads the text of a gzip file within mostUnpacked. The file may have several members,
// and zeros after the last member, which tapes and block devices add.
type unpacker struct {
	z        *gzip.Reader
	packed   packedReader
	unpacked int64
	err      error // every later read returns it again
}

func (u *unpacker) Read(b []byte) (n int, err error) {
	if u.err == nil {
		n, u.err = u.read(b)
	}
	return n, u.err
}

func (u *unpacker) read(b []byte) (int, error) {
	n, err := u.z.Read(b)
	u.unpacked += int64(n)
	if u.unpacked > freeUnpacked+mostUnpacked*u.packed.n {
		return 0, fmt.Errorf("%d bytes of gzip unpack to more than %d times as much text; if "+
			"this is intended, unpack the file first: %w", u.packed.n, mostUnpacked,
			pgsvi.ErrMemory)
	}
	if err == io.EOF {
		err = u.nextMember()
	}
	return n, err
}

// nextMember starts the next member of the file. It returns io.EOF after the last member.
func (u *unpacker) nextMember() error {
	at := u.packed.n
	for {
		head, err := u.packed.Peek(2)
		if len(head) == 0 {
			return err
		}
		if string(head) == "\x1f\x8b" && u.packed.n == at {
			if err := u.z.Reset(&u.packed); err != nil {
				return fmt.Errorf("unpacking gzip from byte %d on: %w", at, err)
			}
			u.z.Multistream(false)
			return nil
		}
		if head[0] != 0 {
			return fmt.Errorf("unpacking gzip: the data from byte %d on are not gzip; remove them "+
				"(gzip -dc FILE | gzip > NEW): %w", u.packed.n, gzip.ErrHeader)
		}
		if _, err := u.packed.ReadByte(); err != nil {
			return err
		}
	}
}

// A packedReader counts the bytes read. It is an io.ByteReader, so package gzip does not read
// beyond the end of a member.
type packedReader struct {
	*bufio.Reader
	n int64
}

func (r *packedReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.n += int64(n)
	return n, err
}

func (r *packedReader) ReadByte() (byte, error) {
	b, err := r.Reader.ReadByte()
	if err == nil {
		r.n++
	}
	return b, err
}

// returns reads a text whose lines end in carriage returns, and replaces these by line feeds.
type returns struct{ r io.Reader }

func (r returns) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	for i := range n {
		if b[i] == '\r' {
			b[i] = '\n'
		}
	}
	return n, err
}

// A counter counts the bytes read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// skipBOM returns r without a leading UTF-8 byte order mark.
func skipBOM(r io.Reader) *bufio.Reader {
	br := bufio.NewReader(r)
	if head, _ := br.Peek(3); string(head) == "\ufeff" {
		br.Discard(3) // cannot fail, because the bytes are buffered
	}
	return br
}

// longestLine returns the largest number of bytes in a line or record.
func longestLine() int { return int(memory.Limit(0) / linePart) }

// tooLong returns the error of a longer line or record.
func tooLong(most int) error {
	return fmt.Errorf("a line or record is longer than %s: %w", memory.Size(float64(most)),
		pgsvi.ErrMemory)
}

// A recordReader limits the length of records. The caller sets n to 0 at the beginning of each
// record.
type recordReader struct {
	counter
	most int
}

func newRecordReader(r io.Reader) *recordReader {
	return &recordReader{counter{r: r}, longestLine()}
}

func (r *recordReader) Read(b []byte) (int, error) {
	if r.n > int64(r.most) {
		return 0, tooLong(r.most)
	}
	return r.counter.Read(b)
}

// textTooLarge is the advice for a file that does not fit in memory.
const textTooLarge = "read fewer rows, stream the rows from a file of a RowWriter, or raise the " +
	"limit (GOMEMLIMIT)"

// checkWidth returns an error if even the smallest model with this many columns, of features or
// terms, needs more memory than is available. A file may declare any width with a single number, so
// the width alone does not show that the file has this many columns.
func checkWidth(width int, what, instead string) error {
	return memory.Check(0, memory.Column*float64(width),
		fmt.Sprintf("a model of %d %s", width, what), instead)
}

// A context that is done ends a reader in one of two ways. A contextReader checks before each read,
// which suffices for files and bytes. A waitingReader also abandons a blocked read, because a read
// from a pipe or a terminal may take forever.

// canceled returns an error if ctx is done. It wraps ctx.Err() and the cause.
func canceled(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &canceledError{err, context.Cause(ctx)}
	}
	return nil
}

type canceledError struct{ err, cause error }

func (e *canceledError) Error() string { return "canceled: " + e.cause.Error() }

func (e *canceledError) Unwrap() []error { return []error{e.err, e.cause} }

// A contextReader reads r until the context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := canceled(c.ctx); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// A waitingReader reads r in the background. Each read uses a buffer of the waitingReader, because
// it may outlast the call.
type waitingReader struct {
	contextReader
	buf []byte
}

// waiting returns a reader of r that ends when the context is done.
func waiting(ctx context.Context, r io.Reader) io.Reader {
	if ctx.Done() == nil {
		return r
	}
	return &waitingReader{contextReader: contextReader{ctx, r}}
}

func (w *waitingReader) Read(b []byte) (int, error) {
	if err := canceled(w.ctx); err != nil {
		return 0, err
	}
	if w.buf == nil {
		w.buf = make([]byte, 1<<16)
	}
	buf := w.buf[:min(len(b), len(w.buf))]
	n, err := wait(w.ctx, func() (int, error) { return w.r.Read(buf) }, nil)
	return copy(b, buf[:n]), err
}

// wait returns the results of f, or an error as soon as the context is done. In that case it later
// calls late, unless late is nil, with the results of f.
func wait[T any](ctx context.Context, f func() (T, error), late func(T, error)) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() { v, err := f(); done <- result{v, err} }()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	if late != nil {
		go func() { r := <-done; late(r.v, r.err) }()
	}
	return v, canceled(ctx)
}

// openContext opens a file. Opening a pipe blocks until another process writes to it.
func openContext(ctx context.Context, path string) (*os.File, error) {
	return wait(ctx, func() (*os.File, error) { return os.Open(path) },
		func(f *os.File, err error) {
			if err == nil {
				f.Close()
			}
		})
}

// A recorder keeps the bytes that it reads.
type recorder struct {
	in     io.Reader
	raw    bytes.Buffer
	budget *memory.Budget
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if over := r.budget.Keep(n); over != nil {
		return 0, over
	}
	r.raw.Write(b[:n])
	return n, err
}
