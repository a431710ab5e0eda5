package data

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"golang.org/x/text/encoding/charmap"
	utf "golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Header selects whether the first line of a table holds the names of the columns.
type Header int

const (
	// FindHeader reads the first line as names if it has a text and no number, and as data if it
	// has no text. A first line with both is an error.
	FindHeader Header = iota
	// FirstLineNames reads the first line as names.
	FirstLineNames
	// FirstLineData reads the first line as data.
	FirstLineData
)

// The text encodings for Format.Encoding.
const (
	UTF8        = "UTF-8"
	Windows1252 = "Windows-1252"
	UTF16LE     = "UTF-16LE"
	UTF16BE     = "UTF-16BE"
)

// A Format describes how a table is written. The zero value detects everything. If the detection
// fails, set a field and use the reading methods of Format. Table.Format holds the detected format.
type Format struct {
	// JSON is true for a file of JSON objects, one per line, or a list of objects. A file that
	// begins with '{', or '[' and '{', is detected as JSON.
	JSON bool `json:"json,omitempty"`
	// Separator separates the fields. 0 detects ',', ';', '|' or a tab from the first lines.
	Separator rune `json:"separator,omitempty"`
	// NoQuotes reads quotes as ordinary characters, as in 6" pipes. Otherwise a field that begins
	// with a quote ends with a quote.
	NoQuotes bool `json:"no_quotes,omitempty"`
	// Decimal is the decimal sign, '.' or ','. 0 detects it from values that can be read in only
	// one way. It stays 0 if no value shows the sign or if the values contradict each other.
	Decimal rune `json:"decimal,omitempty"`
	// Header selects whether the first line holds names.
	Header Header `json:"header,omitempty"`
	// Encoding is UTF8, Windows1252, UTF16LE or UTF16BE. "" detects it from a byte order mark and
	// from the bytes that are valid.
	Encoding string `json:"encoding,omitempty"`
	// Ragged reads a table although lines have too few or too many fields. A Predictor then answers
	// the other rows and returns an error for each such line, but Table.Model and Table.Encoder
	// return an error. Without Ragged, such a line is an error of reading.
	Ragged bool `json:"ragged,omitempty"`
	// Skip is the number of lines above the table to ignore, such as a title, counting blank lines.
	// Without Skip such lines are an error.
	Skip int `json:"skip,omitempty"`
	// SkipLast is the number of lines at the end of the table to ignore, such as a total, not
	// counting blank lines. 0 ignores no line, and returns an error if the last line looks like a
	// total ("Total", "Sum", "Summe"). -1 reads such a line as a row.
	SkipLast int `json:"skip_last,omitempty"`
	// Comment is the first character of lines to ignore, such as '#'. 0 means that no line is a
	// comment.
	Comment rune `json:"comment,omitempty"`
	// Mark is true if the file began with a byte order mark. Readers ignore it.
	Mark bool `json:"mark,omitempty"`

	unchecked bool // accept any encoding, because only numbers matter
}

func (f Format) check() error {
	switch {
	case f.Separator != 0 && (strings.ContainsRune("\"\r\n", f.Separator) ||
		!utf8.ValidRune(f.Separator) || f.Separator == utf8.RuneError):
		return sentinel.Wrap(pgsvi.ErrParam, "pgsvi: Format.Separator is %q; set a character "+
			"other than a quote or a line break", f.Separator)
	case f.Decimal != 0 && f.Decimal != '.' && f.Decimal != ',':
		return sentinel.Wrap(pgsvi.ErrParam,
			"pgsvi: Format.Decimal is %q; set '.' or ','", f.Decimal)
	case f.Header < FindHeader || f.Header > FirstLineData:
		return sentinel.Wrap(pgsvi.ErrParam, "pgsvi: Format.Header is %d; set FindHeader, "+
			"FirstLineNames or FirstLineData", f.Header)
	case f.Encoding != "" && !slices.Contains([]string{UTF8, Windows1252, UTF16LE, UTF16BE},
		f.Encoding):
		return sentinel.Wrap(pgsvi.ErrParam,
			"pgsvi: Format.Encoding is %q; set %s, %s, %s or %s", f.Encoding,
			UTF8, Windows1252, UTF16LE, UTF16BE)
	}
	return f.checkLines()
}

// sniffed is the number of bytes of a file that are used to detect its format.
const sniffed = 64 << 10

// A cell is a value of a row.
type cell struct {
	s       string  // the text, or the text of the number
	f       float64 // the number, or the seconds of a date
	kind    cellKind
	decimal byte // decimal sign of a text; 0 means the sign of the column
}

type cellKind uint8

const (
	textCell cellKind = iota
	absentCell
	nullCell
	numberCell
	dateCell
	boolCell
	unreadCell    // a computed value of a text that is not a number; s is the error
	undefinedCell // a computed value that is not finite; s is the error
)

// A record is a row of a table.
type record struct {
	row, line int // row counts from 0, and line counts from 1
	cells     []cell
	fault     error // error of a line with the wrong number of fields; the cells are empty
}

// A scanner reads the records of a table.
type scanner struct {
	format  Format
	names   []string
	bare    []bool // columns without a name in the first line
	place   map[string]int
	rec     record
	text    *bufio.Reader
	in      *recordReader
	records *splitter
	pending []string // the first record, if it is data
	accents bool     // whether bytes above 127 occurred, as UTF-8
	skipped int      // lines above the records
	lines   int      // lines read without a splitter
	held    []heldRecord
	sniffed bool // whether the separator was detected
	array   bool // whether the JSON objects are elements of a list
}

// errNotUTF8 is the error of a file that may be Windows-1252.
var errNotUTF8 = errors.New("not UTF-8")

// settled turns errNotUTF8 into an error with advice, for input that will not be read again.
func settled(err error) error {
	if errors.Is(err, errNotUTF8) {
		return sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: the text is not UTF-8; set Format.Encoding (-format "+
				"encoding=…)")
	}
	return err
}

// newScanner starts to read a table. It reads up to the names of the columns.
func newScanner(r io.Reader, f Format) (*scanner, error) {
	br, err := gunzip(r)
	if err != nil {
		return nil, err
	}
	if err := checkForeign(br); err != nil {
		return nil, err
	}
	s := &scanner{format: f, place: map[string]int{}}
	if s.text, err = s.decode(br); err != nil {
		return nil, err
	}
	head, _ := s.text.Peek(sniffed)
	if bytes.IndexByte(head, '\r') >= 0 && bytes.IndexByte(head, '\n') < 0 {
		s.text = bufio.NewReaderSize(returns{s.text}, sniffed)
	}
	if err := s.skipLines(); err != nil {
		return nil, err
	}
	head, _ = s.text.Peek(sniffed)
	first := bytes.TrimLeft(head, " \t\r\n")
	if f.Separator == 0 && (bytes.HasPrefix(first, []byte("{")) || beginsJSONArray(first)) {
		s.format.JSON = true
	}
	if err := s.format.checkLines(); err != nil {
		return nil, err
	}
	s.in = newRecordReader(s.text)
	if s.format.JSON {
		s.format.Separator, s.rec.row, s.array = 0, -1, bytes.HasPrefix(first, []byte("["))
		s.rec.line, s.lines = s.skipped, s.skipped
		s.text = bufio.NewReaderSize(s.in, 1<<16)
		return s, nil
	}
	if rest, ok := bytes.CutPrefix(head, []byte("sep=")); ok && len(rest) > 1 {
		end := bytes.IndexByte(rest, '\n') // Excel reads and writes this line
		if line := strings.TrimRight(string(rest[:max(end, 0)]), "\r"); len(line) == 1 &&
			(f.Separator == 0 || f.Separator == rune(line[0])) {
			s.format.Separator = rune(line[0])
			s.text.Discard(len("sep=") + end + 1)
			s.skipped++
		}
	}
	if s.format.Separator == 0 {
		s.format.Separator = sniffSeparator(s.format.withoutComments(head))
		s.sniffed = true
	}
	head, _ = s.text.Peek(sniffed)
	if err := s.checkTitle(head); err != nil {
		return nil, err
	}
	if s.format.NoQuotes {
		s.text = bufio.NewReaderSize(s.in, 1<<16)
		s.lines = s.skipped
		return s, s.header()
	}
	s.records = newSplitter(s.in, s.format)
	return s, s.header()
}

// decode returns the text of a file as UTF-8, without a byte order mark.
func (s *scanner) decode(br *bufio.Reader) (*bufio.Reader, error) {
	head, _ := br.Peek(4096)
	f := &s.format
	mark := ""
	for _, m := range []struct{ mark, encoding string }{
		{"\ufeff", UTF8}, {"\xff\xfe", UTF16LE}, {"\xfe\xff", UTF16BE},
	} {
		if bytes.HasPrefix(head, []byte(m.mark)) && (f.Encoding == "" || f.Encoding == m.encoding) {
			f.Encoding, mark, f.Mark = m.encoding, m.mark, true
		}
	}
	br.Discard(len(mark))
	if f.Encoding == "" {
		f.Encoding = sniffEncoding(head)
	}
	switch f.Encoding {
	case Windows1252:
		r := transform.NewReader(br, charmap.Windows1252.NewDecoder())
		return bufio.NewReaderSize(r, sniffed), nil
	case UTF16LE, UTF16BE:
		order := utf.LittleEndian
		if f.Encoding == UTF16BE {
			order = utf.BigEndian
		}
		r := transform.NewReader(br, utf.UTF16(order, utf.IgnoreBOM).NewDecoder())
		return bufio.NewReaderSize(r, sniffed), nil
	}
	return bufio.NewReaderSize(br, sniffed), nil
}

// sniffEncoding detects UTF-16 from the zeros in every other byte. Otherwise it returns UTF8, and
// later checks find text that is not UTF-8.
func sniffEncoding(head []byte) string {
	var zeros [2]int
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}
	half := len(head) / 2
	switch {
	case half > 1 && zeros[1]*10 > half*7 && zeros[0]*10 < half:
		return UTF16LE
	case half > 1 && zeros[0]*10 > half*7 && zeros[1]*10 < half:
		return UTF16BE
	}
	return UTF8
}

// sniffSeparator returns the separator that gives most of the first lines the same number of fields
// as the first line, which must be more than 1.
func sniffSeparator(head []byte) rune {
	if len(head) == sniffed {
		head = head[:bytes.LastIndexByte(head, '\n')+1]
	}
	best, most := ',', 0.0
	// If several separators are equally good, use the first: the earlier a character is in this
	// list, the less likely it occurs in every line by accident.
	for _, c := range "\t;|," {
		cr := csv.NewReader(bytes.NewReader(head))
		cr.Comma, cr.FieldsPerRecord, cr.LazyQuotes, cr.ReuseRecord = c, -1, true, true
		width, same, all := 0, 0, 0
		for all < 200 {
			rec, err := cr.Read()
			if err != nil {
				break
			}
			if width == 0 {
				width = len(rec)
			}
			all++
			if len(rec) == width && !slices.ContainsFunc(rec, torn) {
				same++
			}
		}
		if share := float64(same) / float64(max(all, 1)); width > 1 && share > most {
			best, most = c, share
		}
	}
	return best
}

// torn reports whether a field begins or ends with a separator, which happens with the wrong
// separator.
func torn(field string) bool {
	field = strings.TrimSpace(field)
	return field != "" && (strings.IndexByte(";|,", field[0]) >= 0 ||
		strings.IndexByte(";|,", field[len(field)-1]) >= 0)
}

// header reads the first record and sets the names.
func (s *scanner) header() error {
	rec, line, err := s.readCSV()
	if err == io.EOF {
		return sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the table has no rows")
	}
	if err != nil {
		return err
	}
	if s.format.Header == FindHeader {
		isNames, err := isHeader(rec, line)
		if err == nil && isNames {
			err = checkTitle(rec, line)
		}
		if err != nil {
			return err
		}
		s.format.Header = FirstLineData
		if isNames {
			s.format.Header = FirstLineNames
		}
	}
	named := s.format.Header == FirstLineNames
	for j := range rec {
		name := "x" + strconv.Itoa(j+1)
		switch {
		case named && rec[j] != "":
			name = strings.Clone(rec[j])
		case !named && j == len(rec)-1:
			name = "y"
		}
		if _, twice := s.place[name]; twice {
			return sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: line %d: two columns are named %s; rename one of them",
				line, csvQuote(name))
		}
		s.place[name] = j
		s.names = append(s.names, name)
		s.bare = append(s.bare, named && rec[j] == "")
	}
	s.rec.cells = make([]cell, len(s.names))
	if !named {
		s.pending, s.rec.line = slices.Clone(rec), line
	}
	s.rec.row = -1
	return nil
}

// checkTitle returns an error if the line of names has a text only in the first of several fields,
// because the line is then a title.
func checkTitle(record []string, line int) error {
	if len(record) < 2 || slices.ContainsFunc(record[1:],
		func(name string) bool { return name != "" }) {
		return nil
	}
	return sentinel.Wrap(pgsvi.ErrShape, "pgsvi: line %d has only the name %s for %d columns; if "+
		"it is a title, set Format.Skip (-format skip=%d), otherwise name the other columns", line,
		csvQuote(record[0]), len(record), line)
}

// isHeader reports whether a first line holds the names of the columns.
func isHeader(record []string, line int) (bool, error) {
	var number, name string
	for _, field := range record {
		if isMissing(field) {
			continue
		}
		if c, _ := classify(field); c&(asPoint|asComma) != 0 && c&turned == 0 {
			number = field
		} else {
			name = field
		}
	}
	if number != "" && name != "" {
		return false, sentinel.Wrap(pgsvi.ErrParam,
			"pgsvi: line %d may be names or data, because it has the text %s and the number %s; "+
				"write a line of names above it, or set Format.Header (-format header=yes or "+
				"header=no)", line, csvQuote(name), csvQuote(number))
	}
	return name != "", nil
}

// isMissing reports whether a text means a missing value. "Na" does not, because it is sodium.
func isMissing(field string) bool {
	if len(field) > 5 {
		return false
	}
	switch field {
	case "", "NA", "N/A", "n/a", "#N/A", "<NA>", "?", ".", "-":
		return true
	}
	return len(field) == 3 && strings.EqualFold(field, "nan") || len(field) == 4 &&
		strings.EqualFold(field, "null")
}

// next returns the next record, which is valid until the next call, or io.EOF.
func (s *scanner) next() (*record, error) {
	if s.format.JSON {
		return s.nextJSON()
	}
	fields, line := s.pending, s.rec.line
	s.pending = nil
	if fields == nil {
		var err error
		if fields, line, err = s.readRecord(); err != nil {
			return nil, err
		}
	}
	s.rec.row++
	s.rec.line, s.rec.fault = line, nil
	if len(fields) != len(s.names) {
		clear(s.rec.cells)
		s.rec.fault = sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: line %d has %s, but the first line has %d", line,
			plural(len(fields), "field"), len(s.names))
		if !s.format.Ragged && !s.format.unchecked {
			return nil, sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: line %d has %s, but the first line has %d; set Format.SkipLast (-format "+
					"skip-last=1 or comment=#) to skip lines that are not rows, or set "+
					"Format.Ragged (-format ragged) to predict the other rows", line,
				plural(len(fields), "field"), len(s.names))
		}
		if !s.format.Ragged {
			return nil, s.rec.fault
		}
		return &s.rec, nil
	}
	for j, f := range fields {
		s.rec.cells[j] = cell{s: f}
	}
	return &s.rec, nil
}

// unread returns the error of a record that cannot be read. It returns io.EOF unchanged.
func (s *scanner) unread(err error) error {
	if err == io.EOF {
		return err
	}
	var bad *csv.ParseError
	if !errors.As(err, &bad) {
		return fmt.Errorf("pgsvi: reading a table: %w", err)
	}
	where := fmt.Sprintf("line %d", bad.Line+s.skipped)
	if bad.StartLine < bad.Line { // usually a quote that is never closed
		where += fmt.Sprintf(" of a record that begins in line %d", bad.StartLine+s.skipped)
	}
	return sentinel.Wrap(pgsvi.ErrShape, "pgsvi: %s, byte %d: %w; if quotes are part of the texts, "+
		"set Format.NoQuotes (-format no-quotes)", where, bad.Column, bad.Err)
}

// readCSV returns the trimmed fields of the next record that is not blank, and its line.
func (s *scanner) readCSV() ([]string, int, error) {
	for {
		s.in.n = 0
		rec, line, err := s.readFields()
		if err != nil {
			return nil, 0, s.unread(err)
		}
		for j, field := range rec {
			rec[j] = strings.TrimSpace(field)
			if err := s.checkText(rec[j], line); err != nil {
				return nil, 0, err
			}
		}
		if len(rec) > 1 || rec[0] != "" {
			return rec, line, nil
		}
	}
}

// readFields returns the fields of the next record and its line.
func (s *scanner) readFields() (rec []string, line int, err error) {
	if !s.format.NoQuotes {
		rec, line, err = s.records.read()
		return rec, line + s.skipped, err
	}
	text, err := s.readLine()
	s.lines++
	for err == nil && s.format.isComment(text) {
		text, err = s.readLine()
		s.lines++
	}
	if err == io.EOF && len(text) > 0 && !s.format.isComment(text) {
		err = nil
	}
	return strings.Split(string(text), string(s.format.Separator)), s.lines, err
}

// checkText returns an error if a text does not have the encoding of the file.
func (s *scanner) checkText(text string, line int) error {
	ascii := true
	for i := range len(text) {
		ascii = ascii && text[i] < utf8.RuneSelf
	}
	if ascii || s.format.unchecked {
		return nil
	}
	if s.format.Encoding != UTF8 {
		if strings.ContainsRune(text, utf8.RuneError) {
			return sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: line %d: %s is not valid %s; set Format.Encoding (-format encoding=…)",
				line, csvQuote(text), s.format.Encoding)
		}
		return nil
	}
	if utf8.ValidString(text) {
		s.accents = true
		return nil
	}
	if !s.accents && !s.format.Mark {
		return errNotUTF8
	}
	return sentinel.Wrap(pgsvi.ErrShape,
		"pgsvi: line %d: %s is not UTF-8, but earlier lines are; set Format.Encoding (-format "+
			"encoding=…), or fix the line", line, csvQuote(text))
}
