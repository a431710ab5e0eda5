package beam

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// Limits on text that is parsed together:
const (
	linesOfChunk = 512
	bytesOfChunk = 1 << 20  // ends a chunk before linesOfChunk
	longestLine  = 64 << 20 // bytes
)

// A parser turns text into rows. It returns copies of the rows up to the first error.
type parser struct {
	parse func(io.Reader) ([]pgsvi.Row, error)
	csv   bool // the first line may have names, and all lines have the same number of fields
}

// parser returns the parser for a text file, chosen by its name.
func (a *adding) parser(file string) parser {
	switch base := strings.TrimSuffix(path.Base(file), ".gz"); {
	case strings.HasSuffix(base, ".csv"):
		return parser{parse: parseCSV, csv: true}
	case a.Items == docItems:
		return parser{parse: parseLDAC}
	}
	return parser{parse: parseLIBSVM}
}

func parseLIBSVM(r io.Reader) (rows []pgsvi.Row, _ error) {
	for row, err := range data.ScanLIBSVM(r) {
		if err != nil {
			return rows, err
		}
		row.Ind, row.Val = slices.Clone(row.Ind), slices.Clone(row.Val)
		rows = append(rows, row)
	}
	return rows, nil
}

func parseCSV(r io.Reader) ([]pgsvi.Row, error) {
	x, y, err := data.ReadCSV(r)
	if err != nil {
		return nil, err
	}
	rows := make([]pgsvi.Row, len(y))
	for i := range rows {
		rows[i] = pgsvi.Row{Val: x.RawRowView(i), Y: y[i]}
	}
	return rows, nil
}

func parseLDAC(r io.Reader) ([]pgsvi.Row, error) {
	c, err := data.ReadLDAC(r, 0)
	if err != nil {
		return nil, err
	}
	rows := make([]pgsvi.Row, len(c.Docs))
	for i, d := range c.Docs {
		rows[i] = pgsvi.Row{Ind: append([]int{}, d.Words...), Val: d.Counts}
	}
	return rows, nil
}

// A textReader reads a text file a few lines at a time.
type textReader struct {
	in    *bufio.Reader
	parse parser
	add   *adding
	block blocks
	part  *part // counts skipped lines

	most  int    // lines per chunk
	line  int    // lines before the chunk
	begun bool   // a CSV line was read that is not blank, so no other line may have names
	model []byte // line to put before CSV lines: the line with names, or a line of numbers
	names bool   // model has names
	chunk []byte
	ends  []int // end of each line in chunk
}

// rows yields all rows.
func (t *textReader) rows(yield func(pgsvi.Row, error) bool) {
	for {
		end, err := t.next()
		var rows []pgsvi.Row
		if err == nil && len(t.ends) > 0 {
			rows, err = t.parseChunk()
		}
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
		if err != nil {
			yield(pgsvi.Row{}, err)
			return
		}
		if end {
			return
		}
		t.line += len(t.ends)
	}
}

// next reads the lines of the next chunk, and reports whether they are the last lines.
func (t *textReader) next() (end bool, err error) {
	t.chunk, t.ends = t.chunk[:0], t.ends[:0]
	for len(t.ends) < t.most && len(t.chunk) < bytesOfChunk {
		start := len(t.chunk)
		for {
			b, err := t.in.ReadSlice('\n')
			t.chunk = append(t.chunk, b...)
			if err == nil {
				break
			}
			if err == io.EOF {
				if len(t.chunk) > start {
					t.ends = append(t.ends, len(t.chunk))
				}
				return true, nil
			}
			if err != bufio.ErrBufferFull {
				return false, fmt.Errorf("line %d: %w", t.line+len(t.ends)+1, err)
			}
			if len(t.chunk)-start > longestLine {
				return false, fmt.Errorf("pgsvi: line %d has more than %d bytes: %w",
					t.line+len(t.ends)+1, longestLine, pgsvi.ErrMemory)
			}
		}
		t.ends = append(t.ends, len(t.chunk))
	}
	return false, nil
}

// parseChunk returns the rows of the chunk. If the chunk has an error, it parses each line
// separately.
func (t *textReader) parseChunk() ([]pgsvi.Row, error) {
	if !t.begun || t.model != nil {
		if rows, err := t.parseLines(0, len(t.ends), min(t.line, 1)); err == nil {
			return rows, nil
		}
	}
	var rows []pgsvi.Row
	for i := range t.ends {
		some, err := t.parseLines(i, i+1, t.line+i)
		if err == nil {
			rows = append(rows, some...)
			continue
		}
		f, ok := faultOf(t.block.number(0), named(t.block.Path, err))
		if !ok || t.part.Skipped >= t.add.Skip {
			return rows, err
		}
		t.begun = t.parse.csv
		t.part.Skipped++
		t.part.First = first(t.part.First, f)
	}
	return rows, nil
}

// parseLines parses lines from (inclusive) to to (exclusive) of the chunk. It puts the given number
// of empty lines before them, so that errors have the right line number. Lines without rows are not
// an error.
func (t *textReader) parseLines(from, to, before int) ([]pgsvi.Row, error) {
	start := 0
	if from > 0 {
		start = t.ends[from-1]
	}
	lines := t.chunk[start:t.ends[to-1]]
	model := t.model
	empty := before
	if model != nil && empty > 0 {
		empty--
	}
	rows, err := t.parse.parse(io.MultiReader(bytes.NewReader(model), &emptyLines{empty},
		bytes.NewReader(lines)))
	if errors.Is(err, pgsvi.ErrEmpty) {
		return nil, t.noRows(lines, before)
	}
	if err != nil {
		return nil, err
	}
	if model != nil && !t.names {
		rows = rows[1:]
	}
	if t.parse.csv && (model == nil || t.names) && len(rows) > 0 {
		t.model, t.names, t.begun = modelLine(rows[0]), false, true
	}
	return rows, nil
}

// noRows handles lines without rows, after the given number of lines. They are blank, or the first
// line of a CSV file with names. A later line with names is an error.
func (t *textReader) noRows(lines []byte, before int) error {
	lines = bytes.TrimSpace(bytes.TrimPrefix(lines, []byte("\ufeff")))
	if !t.parse.csv || t.model != nil || len(lines) == 0 {
		return nil
	}
	if t.begun {
		return fmt.Errorf("pgsvi: line %d has names, but only the first line of a file may have "+
			"names: %w", before+1, pgsvi.ErrNotFinite)
	}
	t.model, t.names, t.begun = append(bytes.Clone(lines), '\n'), true, true
	return nil
}

// modelLine returns a CSV line with as many fields as the row.
func modelLine(r pgsvi.Row) []byte {
	return append(bytes.Repeat([]byte("0,"), len(r.Val)), '0', '\n')
}

// emptyLines is a reader of the given number of empty lines.
type emptyLines struct{ left int }

func (e *emptyLines) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), e.left)
	for i := range n {
		b[i] = '\n'
	}
	e.left -= n
	return n, nil
}
