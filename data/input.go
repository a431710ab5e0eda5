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

// What a file can make a reader hold is bounded in three ways. Long lines: no line or record may
// take more than a part of the memory that there is. Packed files: what gzip unpacks has to be in
// proportion. And the file as a whole: what is kept of it comes out of a memory.Budget.
const (
	// A line may have this part of the bytes that there are in memory. One of a CSV file with
	// numbers of one digit takes some 40 times as many.
	linePart = 64

	// Text seldom packs to less than a twentieth, and a table of one non-zero in a thousand columns
	// to a two-hundredth. The most that gzip can do is a thousandth: what comes near it is made to.
	mostUnpacked = 300     // bytes of text for a byte of gzip, once there are
	freeUnpacked = 1 << 20 // more bytes than these
)

// gunzip returns r buffered, and unpacked if it begins as gzip does.
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

// unpacker is the text of a gzip file, as long as it is in proportion to that. The file may have
// several members, and zeros after the last member, which tapes and block devices add.
type unpacker struct {
	z        *gzip.Reader
	packed   packedReader
	unpacked int64
	err      error // every further read returns it again
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
			"that is meant so, unpack it first: %w", u.packed.n, mostUnpacked, pgsvi.ErrMemory)
	}
	if err == io.EOF {
		err = u.nextMember()
	}
	return n, err
}

// nextMember begins the next member of the file. It returns io.EOF after the last one.
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
			return fmt.Errorf("unpacking gzip: from byte %d on there is something else; remove it "+
				"(gzip -dc FILE | gzip > NEW): %w", u.packed.n, gzip.ErrHeader)
		}
		if _, err := u.packed.ReadByte(); err != nil {
			return err
		}
	}
}

// packedReader counts the bytes read. Package gzip reads no more of an io.ByteReader than a member.
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

// returns is a text whose lines end in carriage returns alone, with line feeds instead.
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

// counter counts the bytes read.
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
		br.Discard(3) // cannot fail: the bytes are buffered
	}
	return br
}

// longestLine is how many bytes a line or record may have.
func longestLine() int { return int(memory.Limit(0) / linePart) }

// tooLong is the error of a line or record that has more.
func tooLong(most int) error {
	return fmt.Errorf("%s without the end of a line: %w", memory.Size(float64(most)),
		pgsvi.ErrMemory)
}

// recordReader is a reader of records that bounds the length of each: whoever reads one sets n to
// 0.
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

// textTooLarge is what to do about a file that memory does not hold.
const textTooLarge = "read fewer rows, write them to a RowWriter as they come and stream them, " +
	"or raise the limit (GOMEMLIMIT)"

// checkWidth returns an error if so many columns, of features or of terms, would take more memory
// than there is in the smallest of models. That they are in a file, where one number says so, is no
// sign that they are meant.
func checkWidth(width int, what, instead string) error {
	return memory.Check(0, memory.Column*float64(width),
		fmt.Sprintf("a model of %d %s", width, what), instead)
}

// A done context ends a reader in one of two ways. A contextReader checks before each read, which
// is enough for files and bytes. A waitingReader also abandons a read that blocks, because a read
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

// contextReader reads r until the context is done.
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

// waitingReader reads r in the background. Each read has a buffer that is not the caller's, because
// it may outlast the call.
type waitingReader struct {
	contextReader
	buf []byte
}

// waiting returns r, ended by the context.
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

// wait returns what f returns, or an error as soon as the context is done. Then late, unless it is
// nil, has what f returns in the end.
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

// openContext opens a file. Opening a pipe blocks until somebody writes to it.
func openContext(ctx context.Context, path string) (*os.File, error) {
	return wait(ctx, func() (*os.File, error) { return os.Open(path) },
		func(f *os.File, err error) {
			if err == nil {
				f.Close()
			}
		})
}

// recorder keeps the bytes that are read.
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
