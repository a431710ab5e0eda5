package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// zeros is an endless text without line ends.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// lines is an endless table that cancels a context after some reads.
type lines struct {
	left   int
	cancel func()
}

func (l *lines) Read(b []byte) (int, error) {
	if l.left--; l.left == 0 {
		l.cancel()
	}
	return copy(b, "1,2\n3,4\n"), nil
}

// TestReadContext checks that a canceled context ends the reading of a table between lines, inside
// a line and during a blocked read.
func TestReadContext(t *testing.T) {
	blocked, other := io.Pipe()
	defer other.Close()
	for name, in := range map[string]func(cancel func()) io.Reader{
		"before": func(cancel func()) io.Reader { cancel(); return strings.NewReader("x,y\n1,2\n") },
		"lines":  func(cancel func()) io.Reader { return &lines{1000, cancel} },
		"a line": func(cancel func()) io.Reader {
			return io.MultiReader(&lines{1, cancel}, zeros{})
		},
		"blocked": func(cancel func()) io.Reader { return io.MultiReader(&once{cancel}, blocked) },
	} {
		ctx, cancel := context.WithCancel(context.Background())
		if _, err := (Format{}).ReadContext(ctx, in(cancel), "in"); !errors.Is(err,
			context.Canceled) || !strings.Contains(err.Error(), "in: ") {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	gone := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	_, err := Format{}.ReadContext(ctx, strings.NewReader("x,y\n1,2\n"), "in")
	if !errors.Is(err, gone) || !errors.Is(err, context.Canceled) {
		t.Errorf("a cause: %v", err)
	}
}

// once is a reader that calls a function and then ends.
type once struct{ f func() }

func (o *once) Read([]byte) (int, error) { o.f(); return 0, io.EOF }

// TestReadUnending checks that an endless reader without line ends is an error.
func TestReadUnending(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	if _, err := Read(zeros{}, "zeros"); !errors.Is(err, pgsvi.ErrMemory) ||
		!strings.Contains(err.Error(), "a line or record is longer than") {
		t.Errorf("zeros: %v", err)
	}
	endless := io.MultiReader(strings.NewReader("x,y\n1,2\n1\n"), zeros{})
	if _, err := Read(endless, "short"); !errors.Is(err, pgsvi.ErrShape) ||
		!strings.Contains(err.Error(), "line 3") {
		t.Errorf("a bad line of a reader that never ends: %v", err)
	}
}

// TestTableContext checks that the context of a table ends later passes over the table.
func TestTableContext(t *testing.T) {
	var text strings.Builder
	text.WriteString("x,k,y\n")
	for i := range 50 {
		fmt.Fprintf(&text, "%v,%s,%v\n", 0.5+float64(i*i%17), string('a'+rune(i%3)),
			0.25+math.Sin(float64(i)))
	}
	path := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := func() *Predictor {
		_, p := mustFit(t, mustModel(t, tableOf(t, text.String()), "y ~ x + k"), nil)
		return p
	}()
	for _, from := range []func(context.Context) (*Table, error){
		func(ctx context.Context) (*Table, error) { return Format{}.ReadFileContext(ctx, path) },
		func(ctx context.Context) (*Table, error) {
			return Format{}.ReadContext(ctx, strings.NewReader(text.String()), "t.csv")
		},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		table, err := from(ctx)
		if err != nil {
			t.Fatal(err)
		}
		e, err := table.Encoder()
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for a, err := range p.Table(table, 0.9) {
			if rows++; rows == 3 {
				cancel()
			}
			if rows < 4 && err != nil || rows == 4 && (a != nil || !errors.Is(err,
				context.Canceled)) {
				t.Errorf("row %d: %v, %v", rows, a, err)
			}
		}
		if rows != 4 {
			t.Errorf("%d rows after the cancellation", rows)
		}
		for name, pass := range map[string]func() error{
			"Encoder":  func() error { _, err := table.Encoder(); return err },
			"Model":    func() error { _, err := table.Model("y ~ x"); return err },
			"Data":     func() error { _, err := e.Data(table); return err },
			"Score":    func() error { _, err := p.Score(table); return err },
			"WriteCSV": func() error { _, _, err := p.WriteCSV(io.Discard, table, 0.9); return err },
		} {
			if err := pass(); !errors.Is(err, context.Canceled) ||
				!strings.Contains(err.Error(), "t.csv") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestCorpusContext checks that a canceled context ends the reading of every kind of corpus.
func TestCorpusContext(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lines.txt": "cat dog\ndog cat\n", "docs.ldac": "1 0:1\n", "docs.mtx": "%%MatrixMarket",
		"docword.a.txt": "1\n1\n1\n1 1 1\n", "folder/a": "cat dog",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path,
			[]byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		path, _, _ = strings.Cut(path, "/a")
		if _, err := ReadCorpusContext(ctx, path, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
