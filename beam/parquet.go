package beam

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/parquet-go/parquet-go"
	"github.com/pgsvi/pgsvi"
)

// parquetRows yields the rows of a local Parquet file. All columns are numbers, in the order of the
// file, and the last column is the response. The slices of a row are valid until the next row.
func parquetRows(path string) iter.Seq2[pgsvi.Row, error] {
	return func(yield func(pgsvi.Row, error) bool) {
		stopped := errors.New("stopped")
		err := scanParquet(path, func(row pgsvi.Row) error {
			if !yield(row, nil) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(pgsvi.Row{}, err)
		}
	}
}

// rowsOfParquet is the number of rows to read at once.
const rowsOfParquet = 256

// scanParquet calls do for each row until do returns an error.
func scanParquet(path string, do func(pgsvi.Row) error) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	f, err := parquet.OpenFile(in, info.Size())
	if err != nil {
		return fmt.Errorf("pgsvi: the Parquet file is damaged (%w): %w", err, pgsvi.ErrShape)
	}
	names := f.Schema().Columns()
	if len(names) < 2 {
		return fmt.Errorf("pgsvi: found %d columns; need at least one feature and the response: %w",
			len(names), pgsvi.ErrShape)
	}
	row := pgsvi.Row{Val: make([]float64, len(names)-1)}
	buf := make([]parquet.Row, rowsOfParquet)
	at := 0
	for _, g := range f.RowGroups() {
		rows := g.Rows()
		for err == nil {
			var n int
			n, err = rows.ReadRows(buf)
			if err != nil && err != io.EOF {
				err = fmt.Errorf("pgsvi: row %d (%w): %w", at+n, err, pgsvi.ErrShape)
			}
			for _, values := range buf[:n] {
				fail := parquetRow(&row, values, names)
				if fail == nil {
					fail = do(row)
				} else {
					fail = fmt.Errorf("pgsvi: row %d, %w", at, fail)
				}
				if fail != nil {
					return errors.Join(fail, rows.Close())
				}
				at++
			}
		}
		if err == io.EOF {
			err = nil
		}
		if err = errors.Join(err, rows.Close()); err != nil {
			return err
		}
	}
	return nil
}

// parquetRow converts the values of a row.
func parquetRow(row *pgsvi.Row, values parquet.Row, names [][]string) error {
	if len(values) != len(names) {
		return fmt.Errorf("%d values for %d columns: %w", len(values),
			len(names), pgsvi.ErrShape)
	}
	for _, v := range values {
		j := v.Column()
		var x float64
		switch {
		case v.IsNull():
			return fmt.Errorf("column %q: the value is missing: %w", names[j], pgsvi.ErrNotFinite)
		case v.Kind() == parquet.Double:
			x = v.Double()
		case v.Kind() == parquet.Float:
			x = float64(v.Float())
		case v.Kind() == parquet.Int64:
			x = float64(v.Int64())
		case v.Kind() == parquet.Int32:
			x = float64(v.Int32())
		case v.Kind() == parquet.Boolean:
			if v.Boolean() {
				x = 1
			}
		default:
			return fmt.Errorf("column %q: %v is not a number: %w", names[j], v.Kind(),
				pgsvi.ErrShape)
		}
		if j == len(names)-1 {
			row.Y = x
		} else {
			row.Val[j] = x
		}
	}
	return nil
}
