package data

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// ReadCSV reads comma-separated numbers. Each line has the D ≥ 1 features of an observation,
// followed by its response. ReadCSV returns the N×D features and the N responses, which the caller
// owns.
//
// If the first line has a name and no number, it is a header and is skipped. Blank lines, spaces
// around fields, quoted fields, CRLF line ends and a UTF-8 byte order mark are allowed. A file
// packed by gzip is unpacked.
//
// The errors name the line, the column and the problem. They wrap ErrNotFinite if a field is not a
// finite number, ErrShape if a line has fewer than two fields or not as many as the first line, or
// quotes do not match, ErrMemory if a line or the whole file does not fit in memory or gzip unpacks
// to more than 300 times its size, and ErrEmpty if the file has no rows. They wrap an error of r.
func ReadCSV(r io.Reader) (x *mat.Dense, y []float64, err error) {
	s, err := newScanner(r, Format{Separator: ',', Encoding: UTF8, Header: FirstLineData,
		unchecked: true})
	if err != nil {
		return nil, nil, err
	}
	width := len(s.names)
	var data []float64
	budget := memory.NewBudget("the CSV file", textTooLarge)
	for {
		rec, err := s.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		if width < 2 {
			return nil, nil, sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: line %d has a single field, %s; separate the features and the response by "+
					"commas", rec.line, csvQuote(rec.cells[0].s))
		}
		if rec.row == 0 && csvIsHeader(rec.cells) {
			continue
		}
		if err := budget.Keep(8 * width); err != nil {
			return nil, nil, sentinel.Wrap(pgsvi.ErrMemory, "pgsvi: line %d: %w", rec.line, err)
		}
		for j, c := range rec.cells {
			v, err := csvFloat(c.s)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, nil, sentinel.Wrap(pgsvi.ErrNotFinite,
					"pgsvi: line %d, column %d: %s is not a finite number", rec.line, j+1,
					csvQuote(c.s))
			}
			if j < width-1 {
				data = append(data, v)
			} else {
				y = append(y, v)
			}
		}
	}
	if len(y) == 0 {
		return nil, nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the CSV file has no rows")
	}
	return mat.NewDense(len(y), width-1, data), y, nil
}

// csvFloat parses a number. A number that is too large for a float64 becomes ±Inf.
func csvFloat(field string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil
	}
	return v, err
}

// csvQuote quotes a text for a message, or only its beginning if it is long.
func csvQuote(field string) string {
	if len(field) > 40 {
		return fmt.Sprintf("%.20q…", field)
	}
	return strconv.Quote(field)
}

// csvIsHeader reports whether the fields include a name and no number.
func csvIsHeader(fields []cell) bool {
	named := false
	for _, c := range fields {
		if _, err := csvFloat(c.s); err == nil {
			return false
		}
		named = named || c.s != ""
	}
	return named
}

// ReadIndex reads row numbers, counted from 0, one per line, in the order of the file. Blank lines,
// spaces, CRLF line ends and a UTF-8 byte order mark are allowed. The errors name the line and the
// problem. They wrap ErrParam if a line is not a row number, ErrEmpty if there are no row numbers,
// and ErrMemory if the numbers do not fit in memory. They wrap an error of r.
func ReadIndex(r io.Reader) ([]int, error) {
	var index []int
	budget := memory.NewBudget("the index", textTooLarge)
	sc := bufio.NewScanner(skipBOM(r))
	line := 0
	for sc.Scan() {
		line++
		text := strings.TrimSpace(sc.Text())
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, sentinel.Wrap(pgsvi.ErrParam,
				"pgsvi: line %d: %s is not a row number; row numbers count from 0", line,
				csvQuote(text))
		}
		if err := budget.Keep(8); err != nil {
			return nil, sentinel.Wrap(pgsvi.ErrMemory, "pgsvi: index, line %d: %w", line, err)
		}
		index = append(index, n)
	}
	if err := sc.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, sentinel.Wrap(pgsvi.ErrParam,
			"pgsvi: line %d has more than %d bytes; write one row number per line",
			line+1, bufio.MaxScanTokenSize)
	} else if err != nil {
		return nil, fmt.Errorf("pgsvi: index, line %d: %w", line+1, err)
	}
	if len(index) == 0 {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the index has no row numbers")
	}
	return index, nil
}

// SelectRows returns copies of the rows of x and the elements of y with the given indices, in that
// order. A row may occur more than once. A nil y stays nil. The error wraps ErrEmpty if index is
// empty, ErrShape if y is not nil and has another length than x has rows, and ErrParam if an index
// is not the number of a row.
func SelectRows(x *mat.Dense, y []float64, index []int) (*mat.Dense, []float64, error) {
	n, d := x.Dims()
	if y != nil && len(y) != n {
		return nil, nil, sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: %d responses for %d rows", len(y), n)
	}
	if len(index) == 0 {
		return nil, nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the index is empty; select a row")
	}
	for at, i := range index {
		if i < 0 || i >= n {
			return nil, nil, sentinel.Wrap(pgsvi.ErrParam,
				"pgsvi: index[%d] is %d; rows are numbered from 0 to %d", at, i, n-1)
		}
	}
	sx := mat.NewDense(len(index), d, nil)
	var sy []float64
	if y != nil {
		sy = make([]float64, len(index))
	}
	for at, i := range index {
		copy(sx.RawRowView(at), x.RawRowView(i))
		if y != nil {
			sy[at] = y[i]
		}
	}
	return sx, sy, nil
}
