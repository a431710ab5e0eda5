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

// mostSkipLast is the largest value of Format.SkipLast. The scanner holds this many lines in
// memory.
const mostSkipLast = 1000

// checkLines returns an error if the options about lines to ignore are not valid.
func (f Format) checkLines() error {
	switch {
	case f.Skip < 0:
		return fmt.Errorf("pgsvi: Format.Skip is %d; set the number of lines above the names: %w",
			f.Skip, pgsvi.ErrParam)
	case f.SkipLast < -1 || f.SkipLast > mostSkipLast:
		return fmt.Errorf("pgsvi: Format.SkipLast is %d; set -1 or a number of lines up to %d: %w",
			f.SkipLast, mostSkipLast, pgsvi.ErrParam)
	case f.Comment != 0 && (f.Comment == f.Separator || !utf8.ValidRune(f.Comment) ||
		f.Comment == utf8.RuneError || strings.ContainsRune("\"\r\n", f.Comment)):
		return fmt.Errorf("pgsvi: Format.Comment is %q; set a character other than a quote or the "+
			"separator: %w", f.Comment, pgsvi.ErrParam)
	case f.JSON && f.Comment != 0:
		return fmt.Errorf("pgsvi: Format.Comment is %q, but JSON has no comments; set it to 0: %w",
			f.Comment, pgsvi.ErrParam)
	case f.JSON && f.SkipLast > 0:
		return fmt.Errorf("pgsvi: Format.SkipLast is %d, but JSON does not support it; set it to "+
			"0: %w",
			f.SkipLast, pgsvi.ErrParam)
	}
	return nil
}

// Format returns the Format for reading a table to predict. It is the Format of the training table
// without the separator and the encoding, which are detected for each file, and without SkipLast,
// so that every row is predicted.
func (p *Predictor) Format() Format { return p.enc.newFormat() }

// newFormat implements Predictor.Format.
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
			return fmt.Errorf("pgsvi: the table has only %s, but Format.Skip is %d: %w",
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

// A heldRecord is a record that may be among the last records, which are ignored.
type heldRecord struct {
	fields []string
	line   int
}

// readRecord returns the fields of the next record and its line. It ignores the last SkipLast
// records.
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

// withoutComments returns the first lines of a table without comments.
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
