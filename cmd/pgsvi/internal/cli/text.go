package cli

import (
	"context"
	"io"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/internal/table"
)

// A Text writes text to W for people to read. It escapes characters that could control a terminal,
// because the names in a table may hold anything. Err holds the first error of W, so callers need
// not check each print.
type Text struct {
	W    io.Writer
	Raw  bool // write bytes unchanged, for data
	Err  error
	tail []byte // the beginning of an incomplete rune
	out  []byte
}

func (t *Text) Write(b []byte) (int, error) {
	if t.Raw {
		n, err := t.W.Write(b)
		t.keep(err)
		return n, err
	}
	n := len(b)
	if len(t.tail) > 0 {
		b = append(t.tail, b...)
	}
	end := len(b)
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if at := len(b) - back; utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				end = at
			}
			break
		}
	}
	if err := t.write(b[:end]); err != nil {
		return 0, err
	}
	t.tail = append([]byte(nil), b[end:]...)
	return n, nil
}

// Flush writes the bytes of an incomplete rune, if any, and returns the first error of W.
func (t *Text) Flush() error {
	rest := t.tail
	t.tail = nil
	t.write(rest)
	return t.Err
}

// write writes whole runes.
func (t *Text) write(b []byte) error {
	if t.out = table.AppendVisible(t.out[:0], b); len(t.out) == 0 {
		return nil
	}
	_, err := t.W.Write(t.out)
	t.keep(err)
	return err
}

func (t *Text) keep(err error) {
	if t.Err == nil {
		t.Err = err
	}
}

// untilBlock is the number of bytes that Until writes before it checks the context again.
const untilBlock = 1 << 20

type until struct {
	ctx context.Context
	w   io.Writer
}

// Until returns a writer to w whose Write returns the cause of ctx after ctx is done.
func Until(ctx context.Context, w io.Writer) io.Writer { return &until{ctx, w} }

func (u *until) Write(b []byte) (n int, err error) {
	for {
		if err := context.Cause(u.ctx); err != nil {
			return n, err
		}
		part := b[n:min(len(b), n+untilBlock)]
		k, err := u.w.Write(part)
		if n += k; err != nil || n == len(b) {
			return n, err
		}
	}
}
