package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// zipped returns b packed by gzip.
func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func TestReadLIBSVM(t *testing.T) {
	want := mat.NewDense(3, 4, []float64{1, 0, -2.5, 0, 0, 0, 0, 0, 0, 300, 0, 1})
	const plain = "+1 1:1 3:-2.5\n-1\n3.5 2:3e2 4:1\n"
	for name, in := range map[string]string{
		"plain":      plain,
		"no newline": strings.TrimSuffix(plain, "\n"),
		"CRLF":       strings.ReplaceAll(plain, "\n", "\r\n"),
		"byte order": "\ufeff" + plain,
		"gzip":       string(zipped([]byte(plain))),
		"two of gzip": string(zipped([]byte("+1 1:1 3:-2.5\n"))) +
			string(zipped([]byte("-1\n3.5 2:3e2 4:1\n"))),
		"comments":      "# of old\n1 1:1 3:-2.5#6:7\n-1 # 4:5\n\n  # \n3.5 2:3e2 4:1 # end",
		"blank lines":   "\n\n1 1:1 3:-2.5\n \t\r\n-1\n3.5 2:3e2 4:1\n\n",
		"spaces":        " +1\t1:1  3:-2.5 \n -1 \n3.5 2:3e2 4:1\t\n",
		"queries":       "1 qid:3 1:1 3:-2.5\n-1 qid:4\n3.5 qid:x 2:3e2 4:1",
		"zeros":         "1 1:1 2:0 3:-2.5\n-1 1:0 4:-0\n3.5 2:3e2 4:1",
		"leading zeros": "01 01:01 3:-2.50\n-1.0\n+3.5 2:.3e3 4:1.",
	} {
		for _, cols := range []int{0, 4} {
			x, y, err := ReadLIBSVM(strings.NewReader(in), cols)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if !mat.Equal(x, want) || !slices.Equal(y, []float64{1, -1, 3.5}) {
				t.Errorf("%s: x = %v, y = %v", name, mat.Formatted(x), y)
			}
		}
	}
	if x, _, err := ReadLIBSVM(strings.NewReader(plain), 7); err != nil || cols(x) != 7 ||
		x.At(2, 1) != 300 || x.At(2, 6) != 0 {
		t.Errorf("seven columns: %v", err)
	}
	if x, y, err := ReadLIBSVM(strings.NewReader("1\n0\n"), 0); err != nil || rowsOf(x) != 2 ||
		cols(x) != 0 || len(y) != 2 {
		t.Errorf("rows without values: %v", err)
	}
	if x, _, err := ReadLIBSVM(strings.NewReader("1 2147483647:1\n"), math.MaxInt32); err != nil ||
		cols(x) != math.MaxInt32 {
		t.Errorf("the largest index: %v", err)
	}
}

func TestReadLIBSVMErrors(t *testing.T) {
	const shown = "line 2"
	for _, c := range []struct {
		in   string
		want error
		says string
	}{
		{"", pgsvi.ErrEmpty, "has no rows"},
		{"\ufeff", pgsvi.ErrEmpty, "has no rows"},
		{"\n # 1 1:1\n\r\n", pgsvi.ErrEmpty, "has no rows"},
		{"1\nx 1:1\n", pgsvi.ErrNotFinite, `line 2: the label "x"`},
		{"1\n1:1 2:1\n", pgsvi.ErrNotFinite, `line 2: the label "1:1"`},
		{"1\n1,2 2:1\n", pgsvi.ErrNotFinite, `line 2: the label "1,2"`},
		{"1\n\n nan 2:1\n", pgsvi.ErrNotFinite, `line 3: the label "nan"`},
		{"1\n-1 1:1 2:inf\n", pgsvi.ErrNotFinite, `line 2, index 2: "inf"`},
		{"1\n-1 1:1e999\n", pgsvi.ErrNotFinite, `line 2, index 1: "1e999"`},
		{"1\n-1 1:\n", pgsvi.ErrNotFinite, `line 2, index 1: ""`},
		{"1\n-1 1: 2:1\n", pgsvi.ErrNotFinite, `line 2, index 1: ""`},
		{"1\n-1 1:1:1\n", pgsvi.ErrNotFinite, `line 2, index 1: "1:1"`},
		{"1\n-1 1\n", pgsvi.ErrShape, `line 2: "1" is not index:value`},
		{"1\n-1 a:1\n", pgsvi.ErrShape, `line 2: "a:1" is not index:value`},
		{"1\n-1 -1:1\n", pgsvi.ErrShape, `line 2: "-1:1" is not index:value`},
		{"1\n-1 :1\n", pgsvi.ErrShape, `line 2: ":1" is not index:value`},
		{"1\n-1 1=1\n", pgsvi.ErrShape, `line 2: "1=1" is not index:value`},
		{"1\n-1 0:1\n", pgsvi.ErrShape, `line 2: the index is "0"; it must be from 1 to 9`},
		{"1\n-1 2:1 0:1\n", pgsvi.ErrShape, `line 2: the index is "0"; it must be from 1 to 9`},
		{"1\n-1 2:1 2:1\n", pgsvi.ErrShape,
			`line 2: the index is "2"; it must be above the previous index, 2`},
		{"1\n-1 3:1 2:1\n", pgsvi.ErrShape,
			`line 2: the index is "2"; it must be above the previous index, 3`},
		{"1\n-1 3:1 10:1\n", pgsvi.ErrShape, `line 2: the index is "10"; it must be from 1 to 9`},
		{"1\n-1 2147483648:1\n", pgsvi.ErrShape, `line 2: the index is "2147483648"`},
		{"1\n-1 18446744073709551617:1\n", pgsvi.ErrShape,
			`line 2: the index is "18446744073709551617"`},
		{"1\n-1 " + strings.Repeat("q", 1000) + "\n", pgsvi.ErrShape, `line 2: "qqqq`},
		{"\x1f\x8bnot so, though long enough", gzip.ErrHeader, "gzip"},
		{string(zipped([]byte("1 1:1\n")))[:20], io.ErrUnexpectedEOF, "line"},
	} {
		x, y, err := ReadLIBSVM(strings.NewReader(c.in), 9)
		if x != nil || y != nil {
			t.Errorf("%.40q: data besides the error", c.in)
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") || len(err.Error()) > 200 {
			t.Errorf("%.40q: error %q, want %q that is %q", c.in, err, c.says, c.want)
		}
		// The rows before the error are yielded, and nothing after it.
		if strings.Contains(c.says, shown) && !strings.Contains(c.says, "to 9") {
			if rows, err2 := collectRows(ScanLIBSVM(strings.NewReader(c.in))); len(rows) != 1 ||
				err2 == nil || err2.Error() != err.Error() && !strings.Contains(c.says, "index") {
				t.Errorf("%.40q: scan has %d rows, error %v", c.in, len(rows), err2)
			}
		}
	}
	if rows, err := collectRows(ScanLIBSVM(strings.NewReader("1 10:1\n1 2147483648:1\n"))); len(
		rows) != 1 || !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("scan of large indices: %d rows, %v", len(rows), err)
	}
	if _, _, err := ReadLIBSVM(io.MultiReader(strings.NewReader("1 1:1\n1 2"),
		iotest.ErrReader(io.ErrClosedPipe)), 0); !errors.Is(err, io.ErrClosedPipe) ||
		!strings.Contains(err.Error(), "line 2") {
		t.Errorf("failing reader: %v", err)
	}
	most := int64(math.MaxInt32)
	for _, cols := range []int{-1, int(most + 1)} {
		if _, _, err := ReadLIBSVM(strings.NewReader("1"), cols); !errors.Is(err, pgsvi.ErrParam) {
			t.Errorf("%d columns: %v", cols, err)
		}
	}
}

func TestScanLIBSVM(t *testing.T) {
	rows := ScanLIBSVM(strings.NewReader("1 1:1 3:0\n-1\n"))
	got, err := collectRows(rows)
	want := []pgsvi.Row{{Ind: []int{0, 2}, Val: []float64{1, 0}, Y: 1},
		{Ind: []int{}, Val: []float64{}, Y: -1}}
	if err != nil || !sameRows(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := collectRows(rows); len(got) != 0 || !errors.Is(err, pgsvi.ErrParam) {
		t.Errorf("again: %v, %v", got, err)
	}
	for range ScanLIBSVM(strings.NewReader("1\n2\n3\n")) {
		break // nothing more may be yielded, or range panics
	}

	// a line longer than any buffer, between other lines
	var long strings.Builder
	long.WriteString("1 1:1\n-1")
	const d = 200000
	for j := range d {
		long.WriteString(" " + strconv.Itoa(j+1) + ":" + strconv.Itoa(j+2))
	}
	long.WriteString("\n2 3:4\n5 1:" + strings.Repeat("0", 1<<17) + "6")
	got, err = collectRows(ScanLIBSVM(iotest.HalfReader(strings.NewReader(long.String()))))
	if err != nil || len(got) != 4 || len(got[1].Ind) != d || got[2].Y != 2 || got[2].Val[0] != 4 ||
		got[3].Y != 5 || got[3].Val[0] != 6 {
		t.Fatalf("long line: %d rows, %v", len(got), err)
	}
	for j := range d {
		if got[1].Ind[j] != j || got[1].Val[j] != float64(j+2) {
			t.Fatalf("long line: %d has %d:%v", j, got[1].Ind[j], got[1].Val[j])
		}
	}
}

func TestScanLIBSVMAllocs(t *testing.T) {
	allocs := func(rows int) float64 {
		in := strings.Repeat("+1 3:1 11:0.25 14:-1.5e-3 19:0.123456789012345 39:1\n", rows)
		return testing.AllocsPerRun(5, func() {
			for _, err := range ScanLIBSVM(strings.NewReader(in)) {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if few, many := allocs(10), allocs(1000); many > few {
		t.Errorf("%v allocations for 10 rows, %v for 1000", few, many)
	}
}

func TestWriteLIBSVM(t *testing.T) {
	x := mat.NewDense(3, 3, []float64{0, 1, 0.1, 0, 0, 0, math.MaxFloat64, -5e-324, 0})
	y := []float64{1, -1, 1. / 3}
	const want = "1 2:1 3:0.1\n-1\n0.3333333333333333 1:1.7976931348623157e+308 2:-5e-324\n"
	for _, m := range []mat.Matrix{x, pgsvi.SparseOf(x)} {
		var out strings.Builder
		if err := WriteLIBSVM(&out, m, y); err != nil || out.String() != want {
			t.Errorf("%T: %q, %v", m, out.String(), err)
		}
		if x2, y2, err := ReadLIBSVM(strings.NewReader(out.String()), 3); err != nil ||
			!mat.Equal(x2, x) || !slices.Equal(y2, y) {
			t.Errorf("%T: no round trip: %v", m, err)
		}
	}
	var out strings.Builder
	if err := WriteLIBSVM(&out, x, nil); err != nil || !strings.HasPrefix(out.String(), "0 2:1") {
		t.Errorf("nil y: %q, %v", out.String(), err)
	}
	out.Reset()
	if err := WriteLIBSVM(&out, (*mat.Dense)(nil), y); !errors.Is(err, pgsvi.ErrEmpty) ||
		out.Len() > 0 {
		t.Errorf("nil matrix: %v", err)
	}
	if err := WriteLIBSVM(&out, x, y[:2]); !errors.Is(err, pgsvi.ErrShape) || out.Len() > 0 {
		t.Errorf("short y: %v", err)
	}
	if err := WriteLIBSVM(&out, x, []float64{1, math.NaN(), 1}); !errors.Is(err,
		pgsvi.ErrNotFinite) || !strings.Contains(err.Error(), "row 1") {
		t.Errorf("label NaN: %v", err)
	}
	if err := WriteLIBSVM(&out, mat.NewDense(2, 2, []float64{0, 0, 0, math.Inf(1)}),
		nil); !errors.Is(err, pgsvi.ErrNotFinite) ||
		!strings.Contains(err.Error(), "row 1, column 1") {
		t.Errorf("value Inf: %v", err)
	}
	if err := WriteLIBSVM(failingWriter{}, x, y); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing writer: %v", err)
	}
}

// TestReadLIBSVMa9a compares the rows of Adult (a9a) with the fields of its lines.
func TestReadLIBSVMa9a(t *testing.T) {
	path := filepath.Join(testkit.SharedData(t), "a9a", "a9a.gz")
	text, err := io.ReadAll(testkit.Open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	x, y, err := ReadLIBSVM(bytes.NewReader(zipped(text)), 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if n, d := x.Dims(); n != 32561 || d != 123 || len(y) != n || len(lines) != n {
		t.Fatalf("%d×%d, %d responses, %d lines", n, d, len(y), len(lines))
	}
	nonzero := 0
	for i, line := range lines {
		fields := strings.Fields(line)
		nonzero += len(fields) - 1
		if want := map[string]float64{"+1": 1, "-1": -1}[fields[0]]; y[i] != want || want == 0 {
			t.Fatalf("line %d: response %v, want %s", i+1, y[i], fields[0])
		}
		for _, f := range fields[1:] {
			j, err := strconv.Atoi(strings.TrimSuffix(f, ":1"))
			if err != nil || x.At(i, j-1) != 1 {
				t.Fatalf("line %d: %s is not there", i+1, f)
			}
		}
	}
	if x.NNZ() != nonzero {
		t.Errorf("%d non-zeros, want %d", x.NNZ(), nonzero)
	}
}

// FuzzLIBSVM checks that the scanner and the reader agree, and that the rows that they accept are
// sorted and finite and are restored exactly after they are written.
func FuzzLIBSVM(f *testing.F) {
	for _, s := range []string{"", "+1 1:1 3:-2.5\n-1\n3.5 2:3e2 4:1\n",
		"\ufeff1 qid:3 1:0x1p-2 # x\r\n\n", "1 2:1 1:1", "1 0:1", "nan", "1 1:nan",
		"1 99999999999:1", "1 1:-0\n0 7:1_0", "0 66666660:0#",
		string(zipped([]byte("1 1:1\n")))} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rows, err := collectRows(ScanLIBSVM(bytes.NewReader(in)))
		x, y, err2 := ReadLIBSVM(bytes.NewReader(in), 0)
		if errors.Is(err2, pgsvi.ErrMemory) {
			return // of so many columns that rows alone have no trouble with
		}
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("scan says %v, read says %v", err, err2)
		}
		width := 0
		for i, row := range rows {
			if row.Ind == nil || len(row.Ind) != len(row.Val) || row.Offset != 0 ||
				row.Weight != 0 {
				t.Fatalf("row %d is %+v", i, row)
			}
			last := -1
			for k, j := range row.Ind {
				if j <= last || j >= math.MaxInt32 {
					t.Fatalf("row %d: column %d after %d", i, j, last)
				}
				last = j
				if err == nil && x.At(i, j) != row.Val[k] {
					t.Fatalf("row %d, column %d: scan has %v, read %v", i, j, row.Val[k],
						x.At(i, j))
				}
			}
			width = max(width, last+1)
			if _, ok := dense.AllFinite(append(row.Val, row.Y)); !ok {
				t.Fatalf("row %d is %+v", i, row)
			}
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("error %q without prefix", err)
			}
			return
		}
		if n, d := x.Dims(); n != len(rows) || d != width || n != len(y) || n == 0 {
			t.Fatalf("%d×%d, %d responses, want %d×%d", n, d, len(y), len(rows), width)
		}
		if narrow := width - 1; narrow > 0 {
			if _, _, err := ReadLIBSVM(bytes.NewReader(in), narrow); !errors.Is(err,
				pgsvi.ErrShape) {
				t.Fatalf("%d columns in %d: %v", width, narrow, err)
			}
		}
		if width > 1<<16 {
			return // too many elements to compare
		}
		var out bytes.Buffer
		if err := WriteLIBSVM(&out, x, y); err != nil {
			t.Fatal(err)
		}
		x2, y2, err := ReadLIBSVM(&out, width)
		if err != nil || !mat.Equal(x, x2) || x.NNZ() != x2.NNZ() || !slices.Equal(y, y2) ||
			width > 0 && cols(x) != cols(x2) {
			t.Fatalf("no round trip: %v", err)
		}
	})
}

// BenchmarkScanLIBSVM reads rows like the rows of Adult, where all values are 1, and other rows.
func BenchmarkScanLIBSVM(b *testing.B) {
	for name, line := range map[string]string{
		"ones":   "-1 3:1 11:1 14:1 19:1 39:1 42:1 55:1 64:1 67:1 73:1 75:1 76:1 80:1 83:1 \n",
		"values": "1 3:0.25 11:-1.7352 14:3e-05 19:0.123456789012345 39:12.5 423:0.077\n",
	} {
		b.Run(name, func(b *testing.B) {
			in := []byte(strings.Repeat(line, 20000))
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range ScanLIBSVM(bytes.NewReader(in)) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkReadLIBSVM(b *testing.B) {
	in := []byte(strings.Repeat(
		"-1 3:1 11:1 14:1 19:1 39:1 42:1 55:1 64:1 67:1 73:1 75:1 76:1 80:1 83:1 \n", 20000))
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if _, _, err := ReadLIBSVM(bytes.NewReader(in), 0); err != nil {
			b.Fatal(err)
		}
	}
}

func cols(x *pgsvi.Sparse) int {
	_, c := x.Dims()
	return c
}

func rowsOf(x *pgsvi.Sparse) int {
	r, _ := x.Dims()
	return r
}
