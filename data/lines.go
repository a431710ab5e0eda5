package data

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi"
)

// mostSkipLast is how many lines at the end of a table can be left out. They are held in memory.
const mostSkipLast = 1000

// checkLines returns an error if the lines to leave out make no sense.
func (f Format) checkLines() error {
	switch {
	case f.Skip < 0:
		return fmt.Errorf("pgsvi: Format.Skip is %d, want the number of lines above the names: %w",
			f.Skip, pgsvi.ErrParam)
	case f.SkipLast < -1 || f.SkipLast > mostSkipLast:
		return fmt.Errorf("pgsvi: Format.SkipLast is %d, want -1 or a number of lines up to %d: %w",
			f.SkipLast, mostSkipLast, pgsvi.ErrParam)
	case f.Comment != 0 && (f.Comment == f.Separator || !utf8.ValidRune(f.Comment) ||
		f.Comment == utf8.RuneError || strings.ContainsRune("\"\r\n", f.Comment)):
		return fmt.Errorf("pgsvi: Format.Comment is %q, want a sign that is neither a quote nor "+
			"the separator: %w", f.Comment, pgsvi.ErrParam)
	case f.JSON && f.Comment != 0:
		return fmt.Errorf("pgsvi: Format.Comment is %q, and JSON objects have no comments: %w",
			f.Comment, pgsvi.ErrParam)
	case f.JSON && f.SkipLast > 0:
		return fmt.Errorf("pgsvi: Format.SkipLast is %d, and can leave out no JSON objects: %w",
			f.SkipLast, pgsvi.ErrParam)
	}
	return nil
}

// Format returns the Format by which to read a table for p: the Format that the table of the fit
// was read by, without the separator and the encoding, which each file shows by itself, and without
// SkipLast, so that no row to predict is left out.
func (p *Predictor) Format() Format { return p.enc.newFormat() }

// newFormat is Predictor.Format.
func (e *Encoder) newFormat() Format {
	f := e.state.Asked
	f.JSON, f.Separator, f.Encoding, f.Mark, f.SkipLast = false, 0, "", false, 0
	return f
}

// skipLines discards the lines above a table.
func (s *scanner) skipLines() error {
	for s.skipped < s.format.Skip {
		_, err := s.text.ReadSlice('\n')
		for err == bufio.ErrBufferFull {
			_, err = s.text.ReadSlice('\n')
		}
		if err == io.EOF {
			return fmt.Errorf("pgsvi: the table has %s, and Format.Skip leaves out %d: %w",
				plural(s.skipped, "line"), s.format.Skip, pgsvi.ErrEmpty)
		}
		if err != nil {
			return fmt.Errorf("pgsvi: reading a table: %w", err)
		}
		s.skipped++
	}
	return nil
}

// isComment reports whether a line is a comment.
func (f Format) isComment(line []byte) bool {
	r, _ := utf8.DecodeRune(line)
	return f.Comment != 0 && r == f.Comment && len(line) > 0
}

// A heldRecord is a record that may be one of the last, which are left out.
type heldRecord struct {
	fields []string
	line   int
}

// readRecord returns the fields of the next record, and its line. It leaves out the last records.
func (s *scanner) readRecord() ([]string, int, error) {
	if s.format.SkipLast <= 0 {
		return s.readCSV()
	}
	for len(s.held) <= s.format.SkipLast {
		fields, line, err := s.readCSV()
		if err != nil {
			return nil, 0, err
		}
		for j := range fields {
			fields[j] = strings.Clone(fields[j])
		}
		s.held = append(s.held, heldRecord{slices.Clone(fields), line})
	}
	first := s.held[0]
	s.held = append(s.held[:0], s.held[1:]...)
	return first.fields, first.line, nil
}

// withoutComments returns the first lines of a table without those that are comments.
func (f Format) withoutComments(head []byte) []byte {
	if f.Comment == 0 {
		return head
	}
	var kept []byte
	for line := range bytes.Lines(head) {
		if !f.isComment(line) {
			kept = append(kept, line...)
		}
	}
	return kept
}
