package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// scanObject calls field for every field of a flat JSON object, in order. All texts share one copy
// of b.
func scanObject(b []byte, field func(name string, c cell) error) error {
	if !json.Valid(b) {
		var any any
		err := json.Unmarshal(b, &any)
		if bad := (*json.SyntaxError)(nil); errors.As(err, &bad) {
			return sentinel.Wrap(pgsvi.ErrShape, "byte %d: %w", bad.Offset, err)
		}
		return sentinel.Wrap(pgsvi.ErrShape, "the text is not JSON")
	}
	s := string(skipSpace(b))
	if s[0] != '{' {
		return sentinel.Wrap(pgsvi.ErrShape,
			"%s is not a JSON object", csvQuote(strings.TrimRight(s,
				" \t\r\n")))
	}
	for s = skipSpace(s[1:]); s[0] != '}'; s = skipSpace(s) {
		if s[0] == ',' {
			s = skipSpace(s[1:])
		}
		name, rest, err := jsonString(s)
		if err != nil {
			return err
		}
		s = skipSpace(skipSpace(rest)[1:]) // skip the colon
		c, rest, err := jsonValue(s)
		if err != nil {
			return fmt.Errorf("field %s: %w", csvQuote(name), err)
		}
		if err := field(name, c); err != nil {
			return err
		}
		s = rest
	}
	return nil
}

func skipSpace[T string | []byte](b T) T {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// jsonString reads a string at the beginning of valid JSON.
func jsonString(s string) (text, rest string, err error) {
	for i := 1; ; i++ {
		switch {
		case s[i] == '"':
			return s[1:i], s[i+1:], nil
		case s[i] == '\\' || s[i] >= 0x80:
			for s[i] != '"' {
				if s[i] == '\\' {
					i++
				}
				i++
			}
			var unescaped string
			err := json.Unmarshal([]byte(s[:i+1]), &unescaped)
			return unescaped, s[i+1:], err
		}
	}
}

// jsonValue reads a value at the beginning of valid JSON.
func jsonValue(s string) (c cell, rest string, err error) {
	switch s[0] {
	case '"':
		text, rest, err := jsonString(s)
		return cell{s: text}, rest, err
	case '{', '[':
		return c, "", sentinel.Wrap(pgsvi.ErrShape,
			"the value is an object or a list; use a number, a text, true, false or null")
	case 'n':
		return cell{kind: nullCell}, s[4:], nil
	case 't':
		return cell{kind: boolCell, s: "true", f: 1}, s[4:], nil
	case 'f':
		return cell{kind: boolCell, s: "false"}, s[5:], nil
	}
	n := 0
	for n < len(s) && (isDigit(s[n]) || strings.IndexByte("+-.eE", s[n]) >= 0) {
		n++
	}
	c = cell{kind: numberCell, s: s[:n]}
	if c.f, err = strconv.ParseFloat(c.s, 64); err != nil {
		err = sentinel.Wrap(pgsvi.ErrNotFinite, "%s is not a finite number", csvQuote(c.s))
	}
	return c, s[n:], err
}

// beginsJSONArray reports whether a text, without leading spaces, begins like a list of objects.
func beginsJSONArray(text []byte) bool {
	rest, ok := bytes.CutPrefix(text, []byte("["))
	return ok && bytes.HasPrefix(skipSpace(rest), []byte("{"))
}

// readElement returns the next object in a list of objects, or io.EOF after the last object. It
// sets the line of the record to the line where the object begins.
func (s *scanner) readElement() (object []byte, err error) {
	depth, quoted := 0, false
	for begun := false; ; {
		b, err := s.text.ReadByte()
		switch {
		case err == io.EOF && !begun:
			return nil, sentinel.Wrap(pgsvi.ErrShape,
				"line %d: the list of objects does not end", s.lines+1)
		case err == io.EOF:
			return object, nil // incomplete, so parsing it fails
		case err != nil:
			return nil, err
		case b == '\n':
			s.lines++
		}
		if !begun {
			switch b {
			case '{':
				begun, s.rec.line = true, s.lines+1
			case ']':
				return nil, s.endOfList()
			case ' ', '\t', '\r', '\n', ',', '[':
				continue
			default:
				return nil, sentinel.Wrap(pgsvi.ErrShape,
					"line %d: unexpected %q in a list of objects", s.lines+1, b)
			}
		}
		object = append(object, b)
		switch {
		case quoted && b == '\\':
			if b, err = s.text.ReadByte(); err == nil {
				object = append(object, b)
			}
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{':
			depth++
		case b == '}':
			if depth--; depth == 0 {
				return object, nil
			}
		}
	}
}

// endOfList returns io.EOF, or an error if text follows a list of objects.
func (s *scanner) endOfList() error {
	for {
		b, err := s.text.ReadByte()
		if err != nil {
			return err
		}
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(b)) {
			return sentinel.Wrap(pgsvi.ErrShape, "unexpected %q after the list of objects", b)
		}
	}
}

// nextJSON returns the record of the next nonblank line, or of the next object in a list. It adds
// new columns when they first occur.
func (s *scanner) nextJSON() (*record, error) {
	for {
		s.in.n = 0
		if s.array {
			object, err := s.readElement()
			if err == io.EOF {
				return nil, io.EOF
			}
			if err != nil {
				return nil, fmt.Errorf("pgsvi: %w", err)
			}
			return s.jsonRecord(object)
		}
		line, err := s.readLine()
		if err == io.EOF && len(line) == 0 {
			return nil, io.EOF
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("pgsvi: line %d: %w", s.rec.line+1, err)
		}
		s.rec.line++
		if len(skipSpace(line)) == 0 {
			continue
		}
		return s.jsonRecord(line)
	}
}

// jsonRecord returns the record of an object.
func (s *scanner) jsonRecord(object []byte) (*record, error) {
	for j := range s.rec.cells {
		s.rec.cells[j] = cell{kind: absentCell}
	}
	if err := scanObject(object, s.setField); err != nil {
		return nil, fmt.Errorf("pgsvi: line %d: %w", s.rec.line, err)
	}
	s.rec.row++
	return &s.rec, nil
}

// readLine returns the next line, whose length is limited by the recordReader.
func (s *scanner) readLine() (line []byte, err error) {
	for {
		part, err := s.text.ReadSlice('\n')
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

func (s *scanner) setField(name string, c cell) error {
	j, ok := s.place[name]
	if !ok {
		if len(name) == 0 {
			return sentinel.Wrap(pgsvi.ErrShape, "a field has no name")
		}
		j = len(s.names)
		name = strings.Clone(name)
		s.place[name] = j
		s.names = append(s.names, name)
		s.rec.cells = append(s.rec.cells, cell{kind: absentCell})
	}
	if s.rec.cells[j].kind != absentCell {
		return sentinel.Wrap(pgsvi.ErrShape, "field %s occurs twice", csvQuote(name))
	}
	if c.kind == textCell {
		if err := s.checkText(c.s, s.rec.line); err != nil {
			return err
		}
	}
	s.rec.cells[j] = c
	return nil
}
