package cli

import (
	"context"
	"io"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/internal/table"
)

// A Text writes text for people to W, and escapes what could control a terminal: the names in a
// table may hold anything. It keeps the first error of W, because nobody checks each print.
type Text struct {
	W    io.Writer
	Raw  bool // for data, which Text does not change
	Err  error
	tail []byte // the beginning of a rune
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

// Flush writes the rest of a text that ends within a rune, and returns the first error.
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

// untilBlock is how many bytes Until writes before it looks at the context again.
const untilBlock = 1 << 20

type until struct {
	ctx context.Context
	w   io.Writer
}

// Until returns a writer to w that fails with the cause when ctx is done.
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
