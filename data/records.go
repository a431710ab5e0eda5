package data

import (
	"bytes"
	"encoding/csv"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file splits the text of a CSV file into fields. Package encoding/csv defines the result. It
// copies each line and looks at each field several times, so the splitter finds the fields of
// common lines by itself: those without quotes, and those whose quotes enclose whole fields. It
// leaves all other lines, such as those with line feeds in quotes, to encoding/csv. A scanner calls
// the splitter for each record.

// A splitter reads the records of a CSV file. It reads the text in blocks, and each field is a
// substring of its block, so reading a record allocates nothing.
type splitter struct {
	in    *recordReader
	buf   []byte
	block string // text that was read but not yet taken
	err   error  // the error of in, which follows the block

	separator byte   // 0 if the separator is not ASCII; then encoding/csv reads all records
	comment   string // the beginning of a comment, or ""
	trim      bool   // spaces before a quote are ignored
	fields    []string
	lines     int // lines taken

	csv      *csv.Reader // reads through lineReader
	csvLines int         // lines taken by csv
}

// blockSize is the number of bytes that a splitter reads at once.
const blockSize = 1 << 16

func newSplitter(in *recordReader, f Format) *splitter {
	s := &splitter{in: in, trim: !unicode.IsSpace(f.Separator)}
	if f.Separator < utf8.RuneSelf {
		s.separator = byte(f.Separator)
	}
	if f.Comment != 0 {
		s.comment = string(f.Comment)
	}
	s.csv = csv.NewReader((*lineReader)(s))
	s.csv.Comma, s.csv.Comment = f.Separator, f.Comment
	s.csv.FieldsPerRecord = -1 // scanner.next checks them, for better messages
	s.csv.TrimLeadingSpace = s.trim
	s.csv.ReuseRecord = true
	return s
}

// read returns the fields of the next record, which are valid until the next call, and the number
// of its first line, counted from 1. It skips empty lines and comments. Fields may have spaces
// around them. A *csv.ParseError counts lines as read does.
func (s *splitter) read() (fields []string, line int, err error) {
	for {
		text, err := s.line()
		if err != nil {
			return nil, 0, err
		}
		row := strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
		if row == "" || s.comment != "" && strings.HasPrefix(row, s.comment) {
			s.take(len(text))
			continue
		}
		if !s.split(row) {
			return s.readCSV()
		}
		s.take(len(text))
		return s.fields, s.lines, nil
	}
}

// readCSV is like read but uses encoding/csv.
func (s *splitter) readCSV() ([]string, int, error) {
	before := s.lines - s.csvLines // lines that csv has not read
	fields, err := s.csv.Read()
	if bad, ok := err.(*csv.ParseError); ok {
		bad.Line += before
		bad.StartLine += before
	}
	if err != nil {
		return nil, 0, err
	}
	line, _ := s.csv.FieldPos(0)
	return fields, line + before, nil
}

// split stores the fields of a line. It returns false if encoding/csv has to read the line.
func (s *splitter) split(row string) bool {
	s.fields = s.fields[:0]
	if s.separator == 0 {
		return false
	}
	quotes := strings.IndexByte(row, '"') >= 0
	for {
		if quotes && s.trim {
			row = strings.TrimLeftFunc(row, unicode.IsSpace)
		}
		field, rest, more := row, "", false
		if quotes && strings.HasPrefix(row, `"`) {
			end := strings.IndexByte(row[1:], '"') + 1
			if end == 0 || end+1 < len(row) && row[end+1] != s.separator {
				return false // a quote inside the field, or a line feed
			}
			field = row[1:end]
			if more = end+1 < len(row); more {
				rest = row[end+2:]
			}
		} else {
			if i := strings.IndexByte(row, s.separator); i >= 0 {
				field, rest, more = row[:i], row[i+1:], true
			}
			if quotes && strings.IndexByte(field, '"') >= 0 {
				return false // encoding/csv reports the error
			}
		}
		s.fields = append(s.fields, field)
		if !more {
			return true
		}
		row = rest
	}
}

// line returns the next line with its line feed, but does not take it.
func (s *splitter) line() (string, error) {
	for {
		if i := strings.IndexByte(s.block, '\n'); i >= 0 {
			return s.block[:i+1], nil
		}
		if s.err == io.EOF && s.block != "" {
			return s.block, nil
		}
		if s.err != nil {
			return "", s.err
		}
		s.fill()
	}
}

// take consumes n bytes of the current line and reports whether the line ends there.
func (s *splitter) take(n int) (ended bool) {
	ended = s.block[n-1] == '\n' || n == len(s.block)
	s.block = s.block[n:]
	s.lines += b2i(ended)
	return ended
}

// mostEmpty is the number of consecutive empty reads after which fill gives up.
const mostEmpty = 100

// fill reads until the block holds at least one complete line.
func (s *splitter) fill() {
	s.buf = append(s.buf[:0], s.block...)
	for empty := 0; s.err == nil; {
		if cap(s.buf)-len(s.buf) < blockSize/2 {
			s.buf = append(make([]byte, 0, 2*cap(s.buf)+blockSize), s.buf...)
		}
		at := len(s.buf)
		n, err := s.in.Read(s.buf[at:cap(s.buf)])
		s.buf, s.err = s.buf[:at+n], err
		if bytes.IndexByte(s.buf[at:], '\n') >= 0 {
			break
		}
		if empty++; n > 0 {
			empty = 0
		} else if empty == mostEmpty && s.err == nil {
			s.err = io.ErrNoProgress
		}
	}
	s.block = string(s.buf)
}

// A lineReader is a splitter as the input of its csv.Reader. Read returns at most one line per
// call, so csv.Reader has no text left when a record ends.
type lineReader splitter

func (r *lineReader) Read(b []byte) (int, error) {
	s := (*splitter)(r)
	text, err := s.line()
	if err != nil {
		return 0, err
	}
	n := copy(b, text)
	s.csvLines += b2i(s.take(n))
	return n, nil
}
