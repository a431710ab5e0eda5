package data

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// ScanLIBSVM returns the rows of a text in the format of LIBSVM and SVMlight, one per line, while
// it reads them:
//
//	label index:value index:value …   # comment
//
// Indices count from 1 and increase strictly; Row.Ind counts from 0. Values of zero are kept. Blank
// lines, lines that contain only a comment, "qid:" fields, CRLF line ends and a UTF-8 byte order
// mark are skipped, and a file packed by gzip is unpacked. ScanLIBSVM keeps only the longest line
// in memory, which may use up to a 64th of the memory limit; see ErrMemory.
//
// The sequence can be used once, and the slices of a row are valid until the next row. An error
// ends the sequence. It names the line and the problem. It wraps ErrNotFinite if a label or a value
// is not a finite number, ErrShape if another field is not index:value with a larger index than the
// field before it, up to math.MaxInt32, ErrEmpty if there are no rows, ErrMemory if a line is too
// long or gzip unpacks to more than 300 times its size, and ErrParam if the sequence is used again.
// It wraps an error of r.
func ScanLIBSVM(r io.Reader) iter.Seq2[pgsvi.Row, error] {
	used := false
	return func(yield func(pgsvi.Row, error) bool) {
		if used {
			yield(pgsvi.Row{}, sentinel.Wrap(pgsvi.ErrParam,
				"pgsvi: the LIBSVM rows were read before; scan the file again"))
			return
		}
		used = true
		s, err := newLIBSVMScanner(r, math.MaxInt32)
		for err == nil {
			if err = s.next(); err == nil && !yield(s.row, nil) {
				return
			}
		}
		if err != io.EOF {
			yield(pgsvi.Row{}, err)
		}
	}
}

// ReadLIBSVM reads rows like ScanLIBSVM, and returns a matrix and its responses, which the caller
// owns. The matrix has cols columns, or as many as the largest index if cols is 0. The errors are
// those of ScanLIBSVM. They also wrap ErrShape if an index exceeds cols, and ErrParam if cols is
// not from 0 to math.MaxInt32. They wrap ErrMemory if the rows do not fit in memory, or if cols is
// 0 and an index is so large that even the smallest model, which takes 120 bytes per column, would
// not fit.
func ReadLIBSVM(r io.Reader, cols int) (x *pgsvi.Sparse, y []float64, err error) {
	if cols < 0 || cols > math.MaxInt32 {
		return nil, nil, sentinel.Wrap(pgsvi.ErrParam, "pgsvi: LIBSVM: the number of columns is "+
			"%d; it must be 0 or positive, and below 2^31", cols)
	}
	most := cols
	if cols == 0 {
		most = math.MaxInt32
	}
	s, err := newLIBSVMScanner(r, most)
	if err != nil {
		return nil, nil, err
	}
	x = pgsvi.NewSparse(cols)
	budget := memory.NewBudget("the LIBSVM file", textTooLarge)
	for {
		if err = s.next(); err == nil {
			err = x.Append(s.row.Ind, s.row.Val)
		}
		if err == nil {
			err = s.keep(budget, len(s.row.Ind))
		}
		if err == nil && cols == 0 && len(s.row.Ind) > 0 {
			err = s.checkWidth(s.row.Ind[len(s.row.Ind)-1] + 1)
		}
		if err == io.EOF {
			return x, y, nil
		}
		if err != nil {
			return nil, nil, err
		}
		y = append(y, s.row.Y)
	}
}

// WriteLIBSVM writes the nonzero values of x, exactly, and the labels y in the format of LIBSVM. A
// nil y means labels of 0. Columns of zeros at the end are lost unless the reader is given the
// number of columns, but rows of zeros are kept. The error wraps ErrEmpty if x is nil or a nil
// pointer, and ErrShape if y is not nil and has another length than x has rows; in both cases
// nothing is written. It wraps ErrNotFinite and names row and column if a label or value is NaN or
// infinite. It wraps an error of w.
func WriteLIBSVM(w io.Writer, x mat.Matrix, y []float64) error {
	for _, err := range pgsvi.Rows(x, nil) {
		if err != nil {
			return err
		}
		break
	}
	if n, _ := x.Dims(); y != nil && len(y) != n {
		return sentinel.Wrap(pgsvi.ErrShape, "pgsvi: %d responses for %d rows", len(y), n)
	}
	bw := bufio.NewWriterSize(w, 1<<16)
	var text []byte
	i := 0
	for row := range pgsvi.Rows(x, y) {
		if math.IsNaN(row.Y) || math.IsInf(row.Y, 0) {
			return sentinel.Wrap(pgsvi.ErrNotFinite, "pgsvi: row %d has the response %v", i, row.Y)
		}
		if k, ok := dense.AllFinite(row.Val); !ok {
			return sentinel.Wrap(pgsvi.ErrNotFinite,
				"pgsvi: row %d, column %d is %v", i, dense.Index(row.Ind, k),
				row.Val[k])
		}
		text = strconv.AppendFloat(text[:0], row.Y, 'g', -1, 64)
		for k, v := range row.Val {
			if v != 0 {
				text = append(text, ' ')
				text = strconv.AppendInt(text, int64(dense.Index(row.Ind, k))+1, 10)
				text = append(text, ':')
				text = strconv.AppendFloat(text, v, 'g', -1, 64)
			}
		}
		if _, err := bw.Write(append(text, '\n')); err != nil {
			return fmt.Errorf("pgsvi: writing LIBSVM: %w", err)
		}
		i++
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("pgsvi: writing LIBSVM: %w", err)
	}
	return nil
}

type libsvmScanner struct {
	br       *bufio.Reader
	most     int    // largest index
	mostLine int    // largest number of bytes in a line
	line     int    // line of row, from 1
	long     []byte // a line longer than the buffer of br
	found    bool   // whether a row was read
	row      pgsvi.Row
}

func newLIBSVMScanner(r io.Reader, most int) (*libsvmScanner, error) {
	br, err := gunzip(r)
	if err != nil {
		return nil, err
	}
	// The slices are not nil, because a nil Ind means a dense row.
	return &libsvmScanner{br: skipBOM(br), most: most, mostLine: longestLine(),
		row: pgsvi.Row{Ind: []int{}, Val: []float64{}}}, nil
}

// next reads the next row. It returns io.EOF after the last row, if there was a row.
func (s *libsvmScanner) next() error {
	for {
		text, err := s.readLine()
		if err != nil && err != io.EOF {
			return fmt.Errorf("pgsvi: LIBSVM, line %d: %w", s.line, err)
		}
		text, _, _ = bytes.Cut(text, []byte{'#'})
		if label, rest := libsvmField(text); len(label) > 0 {
			s.found = true
			return s.parse(label, rest)
		}
		if err != nil && !s.found {
			return sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the LIBSVM file has no rows")
		}
		if err != nil {
			return err
		}
	}
}

// readLine returns the next line. At the end it returns io.EOF with the last line, which may be
// empty. It returns an error of the reader.
func (s *libsvmScanner) readLine() ([]byte, error) {
	s.line++
	text, err := s.br.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return text, err
	}
	s.long = s.long[:0]
	for err == bufio.ErrBufferFull {
		s.long = append(s.long, text...)
		if len(s.long) > s.mostLine {
			return nil, tooLong(s.mostLine)
		}
		text, err = s.br.ReadSlice('\n')
	}
	s.long = append(s.long, text...)
	return s.long, err
}

// keep takes the memory of a row with this number of values from the budget.
func (s *libsvmScanner) keep(budget *memory.Budget, values int) error {
	if err := budget.Keep(24 + 12*values); err != nil { // the size in a Sparse and its responses
		return sentinel.Wrap(pgsvi.ErrMemory, "pgsvi: line %d: %w", s.line, err)
	}
	return nil
}

// checkWidth is checkWidth for the largest index so far, if the caller did not set the number of
// columns.
func (s *libsvmScanner) checkWidth(width int) error {
	const instead = "renumber the features, or set the number of columns"
	if err := checkWidth(width, "columns", instead); err != nil {
		return fmt.Errorf("pgsvi: line %d: %w", s.line, err)
	}
	return nil
}

// parse sets the row to a label and the fields in text.
func (s *libsvmScanner) parse(label, text []byte) error {
	y, ok := libsvmFloat(label)
	if !ok {
		return sentinel.Wrap(pgsvi.ErrNotFinite,
			"pgsvi: line %d: the label %s is not a finite number", s.line,
			csvQuote(string(label)))
	}
	ind, val := s.row.Ind[:0], s.row.Val[:0]
	last := int64(0)
	for {
		var field []byte
		if field, text = libsvmField(text); len(field) == 0 {
			break
		}
		index, k := int64(0), 0
		for k < len(field) && '0' <= field[k] && field[k] <= '9' {
			if index <= math.MaxInt32/10 {
				index = 10*index + int64(field[k]-'0')
			} else {
				index = math.MaxInt64
			}
			k++
		}
		if k == 0 || k == len(field) || field[k] != ':' {
			if bytes.HasPrefix(field, []byte("qid:")) {
				continue
			}
			return sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: line %d: %s is not index:value", s.line,
				csvQuote(string(field)))
		}
		if index <= last || index > int64(s.most) {
			want := fmt.Sprintf("from 1 to %d", s.most)
			if index > 0 && index <= last {
				want = fmt.Sprintf("above the previous index, %d", last)
			}
			return sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: line %d: the index is %s; it must be %s", s.line,
				csvQuote(string(field[:k])), want)
		}
		last = index
		v, ok := libsvmFloat(field[k+1:])
		if !ok {
			return sentinel.Wrap(pgsvi.ErrNotFinite,
				"pgsvi: line %d, index %d: %s is not a finite number",
				s.line, index, csvQuote(string(field[k+1:])))
		}
		ind, val = append(ind, int(index-1)), append(val, v)
	}
	s.row = pgsvi.Row{Ind: ind, Val: val, Y: y}
	return nil
}

// libsvmField returns the first field of text, or an empty field, and the text after it.
func libsvmField(text []byte) (field, rest []byte) {
	start := 0
	for start < len(text) && libsvmSpace(text[start]) {
		start++
	}
	end := start
	for end < len(text) && !libsvmSpace(text[end]) {
		end++
	}
	return text[start:end], text[end:]
}

func libsvmSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// libsvmFloat parses a finite number. It has a fast path for single digits, which are most of the
// values in such files.
func libsvmFloat(field []byte) (float64, bool) {
	if len(field) == 1 && '0' <= field[0] && field[0] <= '9' {
		return float64(field[0] - '0'), true
	}
	v, err := csvFloat(string(field))
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}
