package data

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

func seqOf(rows []pgsvi.Row) iter.Seq2[pgsvi.Row, error] {
	return func(yield func(pgsvi.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// rowBytes returns a file of the rows.
func rowBytes(t testing.TB, cols int, opts *RowOptions, rows []pgsvi.Row) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewRowWriter(&out, cols, opts)
	if n, err := CopyRows(w, seqOf(rows)); err != nil || n != len(rows) {
		t.Fatalf("%d rows, %v", n, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// openBytes opens a file with the given content.
func openBytes(t testing.TB, b []byte) (*RowFile, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenRows(path)
	if err == nil {
		t.Cleanup(func() { f.Close() })
	}
	return f, err
}

// randomRows returns rows of all kinds that a file with the options can store.
func randomRows(seed uint64, n, cols int, o RowOptions) []pgsvi.Row {
	rng := testRand(seed)
	rows := make([]pgsvi.Row, n)
	number := func() float64 {
		v := rng.NormFloat64() * math.Exp(10*rng.NormFloat64())
		if o.Float32 {
			v = float64(float32(v))
		}
		return v
	}
	for i := range rows {
		row := pgsvi.Row{Y: rng.NormFloat64()}
		if o.Offset && i%3 > 0 {
			row.Offset = rng.NormFloat64()
		}
		if o.Weight && i%4 > 0 {
			row.Weight = rng.Float64()
		}
		if o.Sparse {
			row.Ind, row.Val = []int{}, []float64{}
		}
		for j := range cols {
			switch v := number(); {
			case !o.Sparse:
				row.Val = append(row.Val, v)
			case i%2 == 0 && rng.IntN(3) == 0:
				row.Ind, row.Val = append(row.Ind, j), append(row.Val, v)
			case i%2 == 1 && rng.IntN(3) == 0:
				row.Ind, row.Val = append(row.Ind, j), append(row.Val, float64(1-i%5/4))
			}
		}
		rows[i] = row
	}
	return rows
}

func allRowOptions() (all []RowOptions) {
	for k := range 16 {
		all = append(all,
			RowOptions{Sparse: k&1 > 0, Float32: k&2 > 0, Offset: k&4 > 0, Weight: k&8 > 0})
	}
	return all
}

// someRowOptions returns all options, or with -short four that have each option on and off.
func someRowOptions() (some []RowOptions) {
	all := allRowOptions()
	for k := 0; k < len(all); k += testkit.Shorter(1, 5) {
		some = append(some, all[k])
	}
	return some
}

func TestRowFile(t *testing.T) {
	sizes := [][2]int{{0, 3}, {1, 0}, {1, 1}, {5, 300}, {3, rowBlock/8 + 1}, {1000, 90}, {40000, 2}}
	if testing.Short() { // the last is more than a block still
		sizes = append(sizes[:5], [2]int{400, 90})
	}
	for _, o := range someRowOptions() {
		for _, size := range sizes {
			n, cols := size[0], size[1]
			rows := randomRows(5, n, cols, o)
			f, err := openBytes(t, rowBytes(t, cols, &o, rows))
			if err != nil {
				t.Fatalf("%+v, %v: %v", o, size, err)
			}
			wantCols := cols
			if f.Len() != n || f.Cols() != wantCols || f.Options() != o {
				t.Errorf("%+v, %v: %d×%d, %+v", o, size, f.Len(), f.Cols(), f.Options())
			}
			for range 2 {
				got, err := collectRows(f.All())
				if err != nil || !sameRows(got, rows) {
					t.Errorf("%+v, %v: %d rows that differ, %v", o, size, len(got), err)
				}
			}
			row := pgsvi.Row{Ind: []int{1}, Val: make([]float64, 1), Offset: 7, Weight: 7}
			for _, i := range testRand(1).Perm(n)[:min(n, 500)] {
				err := f.RowAt(i, &row)
				if o.Sparse {
					if !errors.Is(err, pgsvi.ErrParam) {
						t.Errorf("RowAt of sparse rows: %v", err)
					}
				} else if err != nil || !sameRows([]pgsvi.Row{row}, rows[i:i+1]) {
					t.Fatalf("%+v, %v: RowAt(%d): %v", o, size, i, err)
				}
			}
			for _, i := range []int{-1, n} {
				if err := f.RowAt(i, &row); !errors.Is(err, pgsvi.ErrParam) {
					t.Errorf("RowAt(%d): %v", i, err)
				}
			}
		}
	}
}

// TestRowFileKinds writes sparse rows to a dense file and dense rows to a sparse file.
func TestRowFileKinds(t *testing.T) {
	dense := []pgsvi.Row{{Val: []float64{1, 0, 2}, Y: 1}, {Val: []float64{0, 0, 0}, Y: -1},
		{Val: []float64{0, 1, 1}, Y: 2}}
	sparse := []pgsvi.Row{{Ind: []int{0, 2}, Val: []float64{1, 2}, Y: 1},
		{Ind: []int{}, Val: []float64{}, Y: -1}, {Ind: []int{1, 2}, Val: []float64{1, 1}, Y: 2}}
	for _, rows := range [][]pgsvi.Row{dense, sparse} {
		for _, c := range []struct {
			opts *RowOptions
			cols int
			want []pgsvi.Row
		}{{nil, 3, dense}, {&RowOptions{Sparse: true}, 3, sparse},
			{&RowOptions{Sparse: true}, 0, sparse}} {
			f, err := openBytes(t, rowBytes(t, c.cols, c.opts, rows))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := collectRows(f.All()); err != nil || !sameRows(got, c.want) ||
				f.Cols() != 3 {
				t.Errorf("%d columns, %v, %v", f.Cols(), got, err)
			}
		}
	}
	// Bytes of a previous block in the buffer must not matter.
	f, err := openBytes(t,
		rowBytes(t, rowBlock/8-1, nil,
			[]pgsvi.Row{{Ind: []int{5}, Val: []float64{1}}, {Ind: []int{6}, Val: []float64{1}}}))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := collectRows(f.All()); err != nil || got[1].Val[5] != 0 || got[1].Val[6] != 1 {
		t.Errorf("%v", err)
	}
	// Explicit zeros are stored, and values are rounded to float32.
	kept := []pgsvi.Row{{Ind: []int{0, 4}, Val: []float64{0, math.Copysign(0, -1)}},
		{Ind: []int{2}, Val: []float64{0.1}, Y: 0.1}}
	f, err = openBytes(t, rowBytes(t, 5, &RowOptions{Sparse: true, Float32: true}, kept))
	if err != nil {
		t.Fatal(err)
	}
	kept[1].Val[0] = float64(float32(0.1))
	if got, err := collectRows(f.All()); err != nil || !sameRows(got, kept) {
		t.Errorf("%v, %v", got, err)
	}
	// A value of 1 takes one byte.
	ones := pgsvi.Row{Ind: make([]int, 100), Val: make([]float64, 100)}
	for k := range ones.Ind {
		ones.Ind[k], ones.Val[k] = 100*k, 1
	}
	if size := len(rowBytes(t, 0, &RowOptions{Sparse: true}, []pgsvi.Row{ones})); size > 8+2+100+
		rowHeader+rowBlockHeader+rowTrailer {
		t.Errorf("a row with 100 ones takes %d bytes", size)
	}
}

func TestRowWriterErrors(t *testing.T) {
	for _, c := range []struct {
		cols int
		opts RowOptions
		row  pgsvi.Row
		want error
		says string
	}{
		{3, RowOptions{}, pgsvi.Row{Val: []float64{1, 2}}, pgsvi.ErrShape,
			"dense row 1 has 2 values instead of 3"},
		{3, RowOptions{Sparse: true}, pgsvi.Row{Val: []float64{1, 2, 3, 4}}, pgsvi.ErrShape,
			"dense row 1 has 4 values instead of 3"},
		{3, RowOptions{}, pgsvi.Row{Ind: []int{1}, Val: []float64{1, 2}}, pgsvi.ErrShape,
			"row 1 has 1 columns but 2 values"},
		{3, RowOptions{}, pgsvi.Row{Ind: []int{1, 3}, Val: []float64{1, 2}}, pgsvi.ErrShape,
			"row 1 has column 3"},
		{3, RowOptions{}, pgsvi.Row{Ind: []int{1, 1}, Val: []float64{1, 2}}, pgsvi.ErrShape,
			"row 1 has column 1"},
		{3, RowOptions{Sparse: true}, pgsvi.Row{Ind: []int{2, 1}, Val: []float64{1, 2}},
			pgsvi.ErrShape, "row 1 has column 1"},
		{0, RowOptions{Sparse: true}, pgsvi.Row{Ind: []int{-1}, Val: []float64{1}}, pgsvi.ErrShape,
			"row 1 has column -1"},
		{0, RowOptions{Sparse: true}, pgsvi.Row{Ind: []int{math.MaxInt32}, Val: []float64{1}},
			pgsvi.ErrShape, "row 1 has column 2147483647"},
		{3, RowOptions{}, pgsvi.Row{Val: []float64{1, math.NaN(), 3}}, pgsvi.ErrNotFinite,
			"row 1, column 1 is NaN"},
		{3, RowOptions{}, pgsvi.Row{Ind: []int{2}, Val: []float64{math.Inf(1)}}, pgsvi.ErrNotFinite,
			"row 1, column 2 is +Inf"},
		{3, RowOptions{Float32: true}, pgsvi.Row{Ind: []int{2}, Val: []float64{1e39}},
			pgsvi.ErrNotFinite, "row 1, column 2 is 1e+39"},
		{3, RowOptions{}, pgsvi.Row{Ind: []int{}, Y: math.NaN()}, pgsvi.ErrNotFinite,
			"row 1 has response NaN"},
		{3, RowOptions{Offset: true}, pgsvi.Row{Ind: []int{}, Offset: math.Inf(1)},
			pgsvi.ErrNotFinite, "offset +Inf"},
		{3, RowOptions{Weight: true}, pgsvi.Row{Ind: []int{}, Weight: math.NaN()},
			pgsvi.ErrNotFinite, "weight NaN"},
		{3, RowOptions{Weight: true}, pgsvi.Row{Ind: []int{}, Weight: -1}, pgsvi.ErrParam,
			"row 1 has the weight -1"},
		{3, RowOptions{}, pgsvi.Row{Ind: []int{}, Weight: 2}, pgsvi.ErrParam,
			"row 1 has the weight 2"},
		{3, RowOptions{}, pgsvi.Row{Ind: []int{}, Offset: 2}, pgsvi.ErrParam,
			"row 1 has the offset 2"},
	} {
		good := pgsvi.Row{Ind: []int{0, 2}, Val: []float64{3, 4}, Y: 5, Weight: 1}
		var out bytes.Buffer
		w := NewRowWriter(&out, c.cols, &c.opts)
		if err := w.Write(good); err != nil {
			t.Fatal(err)
		}
		err := w.Write(c.row)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%+v: error %v, want %q", c.row, err, c.says)
		}
		if err := errors.Join(w.Write(good), w.Close()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), rowBytes(t, c.cols, &c.opts, []pgsvi.Row{good, good})) {
			t.Errorf("%+v: the error has left something in the file", c.row)
		}
		if err := w.Write(good); !errors.Is(err, os.ErrClosed) {
			t.Errorf("write after Close: %v", err)
		}
		if err := w.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Close after Close: %v", err)
		}
	}
	most := int64(math.MaxInt32)
	for _, cols := range []int{-1, int(most + 1)} {
		mustPanic(t, fmt.Sprint(cols, " columns"), func() { NewRowWriter(io.Discard, cols, nil) })
	}
	w := NewRowWriter(failingWriter{}, 1000, nil)
	var first error
	for first == nil {
		first = w.Write(pgsvi.Row{Val: make([]float64, 1000)})
	}
	if err := w.Write(pgsvi.Row{Val: make([]float64, 1000)}); !errors.Is(first, io.ErrClosedPipe) ||
		err != first || w.Close() != first {
		t.Errorf("failing writer: %v, then %v", first, err)
	}
	if err := NewRowWriter(failingWriter{}, 1, nil).Close(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing writer: %v", err)
	}
	n, err := CopyRows(NewRowWriter(io.Discard, 1, nil),
		ScanLIBSVM(strings.NewReader("1 1:1\n1 1:2\n1 1:x\n")))
	if n != 2 || !errors.Is(err, pgsvi.ErrNotFinite) {
		t.Errorf("copied %d, %v", n, err)
	}
	n, err = CopyRows(NewRowWriter(io.Discard, 1, nil),
		ScanLIBSVM(strings.NewReader("1 1:1\n1 2:2\n")))
	if n != 1 || !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("copied %d, %v", n, err)
	}
}

// resealed returns a copy with a valid checksum of the header and the trailer.
func resealed(b []byte, change func(b []byte)) []byte {
	b = slices.Clone(b)
	change(b)
	trailer := b[len(b)-rowTrailer:]
	binary.LittleEndian.PutUint32(trailer[24:], rowFileSum(b[:rowHeader], trailer))
	return b
}

// reblocked is like resealed, but also makes the checksum of the only block valid.
func reblocked(b []byte, change func(b []byte)) []byte {
	return resealed(b, func(b []byte) {
		change(b)
		block := b[rowHeader : len(b)-rowTrailer]
		binary.LittleEndian.PutUint32(block[12:], rowBlockSum(block))
	})
}

func TestOpenRowsErrors(t *testing.T) {
	for _, o := range someRowOptions() {
		good := rowBytes(t, 3, &o, randomRows(1, 6, 3, o))
		put64 := func(at int, v uint64) func([]byte) {
			return func(b []byte) { binary.LittleEndian.PutUint64(b[(len(b)+at)%len(b):], v) }
		}
		for name, c := range map[string]struct {
			b    []byte
			want error
			says string
		}{
			"empty": {nil, pgsvi.ErrParam, "not a row file"},
			"text": {[]byte(strings.Repeat("1,2,3\n", 100)), pgsvi.ErrParam,
				"not a row file"},
			"begins alike": {[]byte("pgsvirow"), pgsvi.ErrParam, "not a row file"},
			"version": {resealed(good, func(b []byte) { b[8] = 2 }), pgsvi.ErrParam,
				"has version 2, but this release reads version 1"},
			"flags": {resealed(good, func(b []byte) { b[12] |= 16 }), pgsvi.ErrParam,
				"unknown flags"},
			"header alone":     {good[:rowHeader], pgsvi.ErrShape, "truncated"},
			"without its end":  {good[:len(good)-1], pgsvi.ErrShape, "truncated"},
			"without its half": {good[:len(good)/2], pgsvi.ErrShape, "truncated"},
			"with more":        {append(slices.Clone(good), 0), pgsvi.ErrShape, "truncated"},
			"something within": {slices.Insert(slices.Clone(good), rowHeader+20, 1), pgsvi.ErrShape,
				"its trailer declares"},
			"without a part": {slices.Delete(slices.Clone(good), rowHeader+20, rowHeader+24),
				pgsvi.ErrShape, "its trailer declares"},
			"other rows": {put(good, -24, 5), pgsvi.ErrShape, "truncated"},
			"many rows":  {resealed(good, put64(-24, 1<<60)), pgsvi.ErrShape, "its trailer declares"},
			"most rows": {resealed(good, put64(-24, math.MaxUint64)), pgsvi.ErrShape,
				"its trailer declares"},
			"many columns": {resealed(good, put64(-32, 1<<40)), pgsvi.ErrShape, "its trailer declares"},
		} {
			f, err := openBytes(t, c.b)
			if f != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) ||
				!strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%+v, %s: error %v, want %q", o, name, err, c.says)
			}
		}
		// No single changed bit may go unnoticed, and no row of its block may be yielded.
		rng := testRand(4)
		for range testkit.Shorter(60, 20) {
			at := rng.IntN(8 * len(good))
			bad := slices.Clone(good)
			bad[at/8] ^= 1 << (at % 8)
			f, err := openBytes(t, bad)
			if err != nil {
				continue
			}
			if got, err := collectRows(f.All()); !errors.Is(err, pgsvi.ErrShape) || len(got) != 0 ||
				!strings.Contains(err.Error(), "row") {
				t.Fatalf("%+v: bit %d: %d rows, %v", o, at, len(got), err)
			}
			f.Close()
		}
	}
	if _, err := OpenRows(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "pgsvi: ") {
		t.Errorf("no file: %v", err)
	}
	if _, err := OpenRows(t.TempDir()); err == nil || !strings.HasPrefix(err.Error(), "pgsvi: ") {
		t.Errorf("a folder: %v", err)
	}
}

// put returns a copy with one byte changed.
func put(b []byte, at int, v byte) []byte {
	b = slices.Clone(b)
	b[(len(b)+at)%len(b)] = v
	return b
}

// TestRowFileNonsense checks that invalid files with valid checksums are errors.
func TestRowFileNonsense(t *testing.T) {
	sparse := RowOptions{Sparse: true}
	good := rowBytes(t, 10, &sparse,
		[]pgsvi.Row{{Ind: []int{1, 5}, Val: []float64{1, 1}}, {Ind: []int{2}, Val: []float64{3}}})
	const first = rowHeader + rowBlockHeader + 8 // the values of row 0
	for name, b := range map[string][]byte{
		"too many values": reblocked(good, func(b []byte) { b[first] = 0x7f }),
		"endless number": reblocked(good,
			func(b []byte) { copy(b[first:], bytes.Repeat([]byte{0xff}, 11)) }),
		"column out":        reblocked(good, func(b []byte) { b[first+2] = 8 }),
		"values missing":    reblocked(good, func(b []byte) { b[len(b)-rowTrailer-10]++ }),
		"bytes left":        reblocked(good, func(b []byte) { b[len(b)-rowTrailer-10] |= 1 }),
		"more rows":         resealed(good, func(b []byte) { b[len(b)-24]++ }),
		"fewer rows":        resealed(good, func(b []byte) { b[len(b)-24]-- }),
		"no rows":           resealed(good, func(b []byte) { b[len(b)-24] = 0 }),
		"block of no rows":  reblocked(good, func(b []byte) { b[rowHeader+8] = 0 }),
		"block of 3 rows":   reblocked(good, func(b []byte) { b[rowHeader+8] = 3 }),
		"block of 1 row":    reblocked(good, func(b []byte) { b[rowHeader+8] = 1 }),
		"block too long":    reblocked(good, func(b []byte) { b[rowHeader+7] = 0xff }),
		"block too long +1": reblocked(good, func(b []byte) { b[rowHeader]++ }),
	} {
		f, err := openBytes(t, b)
		if err != nil {
			t.Errorf("%s: not opened: %v", name, err)
			continue
		}
		if _, err := collectRows(f.All()); !errors.Is(err, pgsvi.ErrShape) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRowFileClosed(t *testing.T) {
	rows := randomRows(2, 2000, 50, RowOptions{})
	f, err := openBytes(t, rowBytes(t, 50, nil, rows))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var last error
	for _, err := range f.All() {
		if last = err; n == 0 {
			f.Close()
		}
		n++
	}
	if !errors.Is(last, os.ErrClosed) || n > 1000 {
		t.Errorf("closed while reading: %d rows, %v", n, last)
	}
	if got, err := collectRows(f.All()); len(got) > 0 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %d rows, %v", len(got), err)
	}
	if err := f.RowAt(0, &pgsvi.Row{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("RowAt after Close: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	// The file is replaced while it is open.
	f, err = openBytes(t, rowBytes(t, 50, nil, rows))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path, rowBytes(t, 50, nil, rows[1:]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := collectRows(f.All()); !errors.Is(err, pgsvi.ErrShape) ||
		!strings.Contains(err.Error(), "when it was opened") {
		t.Errorf("a changed file: %v", err)
	}
}

func TestRowFileConcurrent(t *testing.T) {
	for _, o := range []RowOptions{{}, {Sparse: true}} {
		rows := randomRows(8, 3000, 40, o)
		f, err := openBytes(t, rowBytes(t, 40, &o, rows))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				i := 0
				var at pgsvi.Row
				for row, err := range f.All() {
					if err != nil || !sameRows([]pgsvi.Row{row}, rows[i:i+1]) {
						t.Errorf("row %d: %v", i, err)
						return
					}
					if k := (i*(g+3) + g) % len(rows); !o.Sparse && i%7 == 0 {
						if err := f.RowAt(k, &at); err != nil ||
							!sameRows([]pgsvi.Row{at}, rows[k:k+1]) {
							t.Errorf("RowAt(%d): %v", k, err)
							return
						}
					}
					i++
				}
				if i != len(rows) {
					t.Errorf("%d rows, want %d", i, len(rows))
				}
			})
		}
		wg.Wait()
	}
}

func TestRowFileAllocs(t *testing.T) {
	for _, o := range allRowOptions() {
		allocs := func(n int) float64 {
			f, err := openBytes(t, rowBytes(t, 30, &o, randomRows(2, n, 30, o)))
			if err != nil {
				t.Fatal(err)
			}
			var row pgsvi.Row
			return testing.AllocsPerRun(3, func() {
				for i := range n {
					if !o.Sparse {
						f.RowAt(i%n, &row)
					}
				}
				for _, err := range f.All() {
					if err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		if few, many := allocs(200), allocs(2000); many > few+10 {
			t.Errorf("%+v: %v allocations for 200 rows, %v for 2000", o, few, many)
		}
	}
}

// residentFile returns the number of bytes of files that are resident in the process.
func residentFile(t testing.TB) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	total := 0
	for line := range strings.Lines(string(status)) {
		var kind string
		var kb int
		if n, _ := fmt.Sscanf(line, "Rss%s %d kB", &kind, &kb); n == 2 && kind != "Anon:" {
			total += kb << 10
		}
	}
	return total
}

// TestRowFileResident checks that a file is never resident as a whole, whatever the order of
// reading.
func TestRowFileResident(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("writes a file of 200 MB, and asks Linux")
	}
	const cols, n = 1000, 25000
	path := filepath.Join(t.TempDir(), "rows")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := NewRowWriter(file, cols, nil)
	row := pgsvi.Row{Val: make([]float64, cols)}
	for i := range n {
		row.Y = float64(i)
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := OpenRows(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const most = 70 << 20
	before := residentFile(t)
	i := 0
	for row, err := range f.All() {
		if err != nil || row.Y != float64(i) {
			t.Fatalf("row %d is that of %v, %v", i, row.Y, err)
		}
		if i++; i%500 == 0 {
			if now := residentFile(t) - before; now > most {
				t.Fatalf("%d MB are resident after row %d", now>>20, i)
			}
		}
	}
	rng := testRand(6)
	for k := range n {
		i := rng.IntN(n)
		if err := f.RowAt(i, &row); err != nil || row.Y != float64(i) {
			t.Fatalf("row %d is that of %v, %v", i, row.Y, err)
		}
		if k%500 == 0 {
			if now := residentFile(t) - before; now > most {
				t.Fatalf("%d MB are resident after %d rows in disorder", now>>20, k)
			}
		}
	}
}

// overwrite replaces the content of a file with b. Truncating the file first, as os.WriteFile does,
// makes some file systems wait for the disk.
func overwrite(t testing.TB, file *os.File, b []byte) {
	t.Helper()
	_, err := file.WriteAt(b, 0)
	if err == nil {
		err = file.Truncate(int64(len(b)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzOpenRows opens arbitrary bytes, also with valid checksums of the trailer and of a single
// block. It checks that nothing panics, and that the result has valid rows in memory proportional
// to the file.
func FuzzOpenRows(f *testing.F) {
	for _, o := range allRowOptions() {
		f.Add(rowBytes(f, 3, &o, randomRows(1, 4, 3, o)))
	}
	f.Add([]byte{})
	f.Add([]byte(rowMagic))
	path := filepath.Join(f.TempDir(), "rows")
	file, err := os.Create(path)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	f.Fuzz(func(t *testing.T, in []byte) {
		files := [][]byte{in}
		if len(in) >= rowHeader+rowBlockHeader+rowTrailer {
			files = append(files, resealed(in, func(b []byte) {
				copy(b, rowMagic)
				binary.LittleEndian.PutUint32(b[8:], rowVersion)
				trailer := b[len(b)-rowTrailer:]
				binary.LittleEndian.PutUint64(trailer[16:], uint64(len(b)))
				copy(trailer[28:], rowEnd)
				block := b[rowHeader : len(b)-rowTrailer]
				binary.LittleEndian.PutUint64(block, uint64(len(block)-rowBlockHeader))
				binary.LittleEndian.PutUint32(block[12:],
					crc32.Update(crc32.Checksum(block[:12], rowCRC), rowCRC,
						block[rowBlockHeader:]))
			}))
		}
		for _, b := range files {
			overwrite(t, file, b)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f, err := OpenRows(path)
			if err != nil {
				if !strings.HasPrefix(err.Error(), "pgsvi: ") {
					t.Fatalf("error %q without prefix", err)
				}
				continue
			}
			n := 0
			for row, err := range f.All() {
				if err != nil {
					if !errors.Is(err, pgsvi.ErrShape) {
						t.Fatal(err)
					}
					n = -1
					break
				}
				last := -1
				for _, j := range row.Ind {
					if j <= last || j >= f.Cols() {
						t.Fatalf("row %d has column %d after %d", n, j, last)
					}
					last = j
				}
				if (row.Ind == nil) == f.Options().Sparse ||
					row.Ind == nil && len(row.Val) != f.Cols() ||
					row.Ind != nil && len(row.Val) != len(row.Ind) {
					t.Fatalf("row %d has %d columns and %d values", n, len(row.Ind), len(row.Val))
				}
				n++
			}
			if n >= 0 && n != f.Len() {
				t.Fatalf("%d rows, want %d", n, f.Len())
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > uint64(64*len(b)+1<<20) {
				t.Fatalf("%d bytes allocated for a file of %d", got, len(b))
			}
			f.Close()
		}
	})
}

// FuzzRowFile checks that rows made from the input are read as they were written.
func FuzzRowFile(f *testing.F) {
	f.Add([]byte{3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 200}, uint8(5), uint8(7))
	f.Add([]byte{}, uint8(0), uint8(0))
	f.Add(bytes.Repeat([]byte{255, 1, 0}, 100), uint8(3), uint8(200))
	path := filepath.Join(f.TempDir(), "rows")
	file, err := os.Create(path)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	f.Fuzz(func(t *testing.T, in []byte, kind, cols uint8) {
		o := allRowOptions()[kind%16]
		next := func() float64 {
			if len(in) == 0 {
				return 0
			}
			v := float64(int8(in[0])) / 8
			in = in[1:]
			return v
		}
		var rows []pgsvi.Row
		for len(in) > 0 {
			row := pgsvi.Row{Y: next()}
			if o.Offset {
				row.Offset = next()
			}
			if o.Weight {
				row.Weight = math.Abs(next())
			}
			if o.Sparse {
				row.Ind = []int{}
				for j := int(8 * math.Abs(next())); j < int(cols); j += 1 +
					int(8*math.Abs(next())) {
					row.Ind, row.Val = append(row.Ind, j), append(row.Val, next())
				}
			} else {
				for range cols {
					row.Val = append(row.Val, next())
				}
			}
			rows = append(rows, row)
		}
		overwrite(t, file, rowBytes(t, int(cols), &o, rows))
		f, err := OpenRows(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got, err := collectRows(f.All()); err != nil || !sameRows(got, rows) {
			t.Fatalf("no round trip: %d rows of %d, %v", len(got), len(rows), err)
		}
	})
}

func benchRows(b *testing.B, o RowOptions) {
	const n, cols = 20000, 100
	rows := randomRows(3, n, cols, o)
	file := rowBytes(b, cols, &o, rows)
	f, err := openBytes(b, file)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(file)))
		b.ReportAllocs()
		for b.Loop() {
			for _, err := range f.All() {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(file)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := CopyRows(NewRowWriter(io.Discard, cols, &o), seqOf(rows)); err != nil {
				b.Fatal(err)
			}
		}
	})
	if o.Sparse {
		return
	}
	b.Run("at", func(b *testing.B) {
		b.SetBytes(o.stride(cols))
		var row pgsvi.Row
		i := 0
		for b.Loop() {
			if i += 7919; i >= n {
				i -= n
			}
			if err := f.RowAt(i, &row); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRowFileDense(b *testing.B)   { benchRows(b, RowOptions{}) }
func BenchmarkRowFileFloat32(b *testing.B) { benchRows(b, RowOptions{Float32: true}) }
func BenchmarkRowFileSparse(b *testing.B)  { benchRows(b, RowOptions{Sparse: true}) }

// TestRowFileGLM checks that a GLM of the rows of a file has the same bits as a GLM of the same
// rows in memory, dense or sparse.
func TestRowFileGLM(t *testing.T) {
	t.Parallel()
	rng := testRand(9)
	rows := make([]pgsvi.Row, 20_000)
	for i := range rows {
		rows[i] = pgsvi.Row{Val: []float64{rng.NormFloat64(), 0, float64(rng.IntN(2))},
			Y: float64(2*rng.IntN(2) - 1)}
	}
	var want []byte
	fit := func(what string, from iter.Seq2[pgsvi.Row, error]) {
		t.Helper()
		g, err := pgsvi.NewGLMRows(context.Background(), from, 3, pgsvi.BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := p.Save(&out); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = out.Bytes()
		} else if !bytes.Equal(want, out.Bytes()) {
			t.Errorf("%s: other bits than in memory", what)
		}
	}
	fit("memory", seqOf(rows))
	for _, sparse := range []bool{false, true} {
		f, err := openBytes(t, rowBytes(t, 3, &RowOptions{Sparse: sparse}, rows))
		if err != nil {
			t.Fatal(err)
		}
		fit(fmt.Sprintf("a file with Sparse %t", sparse), f.All())
	}
}

// TestRowFileRange checks that any range of rows agrees with All.
func TestRowFileRange(t *testing.T) {
	for _, o := range []RowOptions{{}, {Float32: true, Offset: true}, {Sparse: true}} {
		const n, cols = 3000, 60
		f, err := openBytes(t, rowBytes(t, cols, &o, randomRows(7, n, cols, o)))
		if err != nil {
			t.Fatal(err)
		}
		var want []float64
		for row, err := range f.All() {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, row.Y)
		}
		for _, r := range [][2]int{{0, 0}, {0, n}, {0, 1}, {n - 1, n}, {n, n}, {1000, 1001},
			{17, 2900}, {2048, n}} {
			var got []float64
			for row, err := range f.Range(r[0], r[1]) {
				if err != nil {
					t.Fatalf("%+v, rows %d to %d: %v", o, r[0], r[1], err)
				}
				got = append(got, row.Y)
			}
			if !slices.Equal(got, want[r[0]:r[1]]) {
				t.Errorf("%+v, rows %d to %d: %d rows, or others", o, r[0], r[1], len(got))
			}
		}
		for _, r := range [][2]int{{-1, 2}, {2, 1}, {0, n + 1}} {
			for _, err := range f.Range(r[0], r[1]) {
				if !errors.Is(err, pgsvi.ErrParam) {
					t.Errorf("rows %d to %d: error %v", r[0], r[1], err)
				}
			}
		}
	}
}
