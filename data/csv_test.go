package data

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

func TestReadCSV(t *testing.T) {
	want := mat.NewDense(2, 2, []float64{1, -2.5, 3e2, 4})
	for name, in := range map[string]string{
		"plain":          "1,-2.5,1\n300,4,-1\n",
		"no newline":     "1,-2.5,1\n300,4,-1",
		"CRLF":           "1,-2.5,1\r\n300,4,-1\r\n",
		"header":         "a,b,y\n1,-2.5,1\n300,4,-1\n",
		"gap in header":  ",b,y\n1,-2.5,1\n300,4,-1\n",
		"byte order":     "\ufeff1,-2.5,1\n3e2,4,-1\n",
		"both":           "\ufeff\"a\",b,y\n1,-2.5,1\n3e2,4,-1\n",
		"blank lines":    "\n\n1,-2.5,1\n   \n\r\n3e2,4,-1\n\n",
		"blank, header":  "\na,b,y\n\n1,-2.5,1\n3e2,4,-1\n",
		"spaces":         " 1 ,\t-2.5, 1 \n 3e2 , 4 ,-1\t\n",
		"quoted":         "\"1\",\"-2.5\",1\n\"3e2\",4,-1\n",
		"signs and zero": "+1,-02.50,1.\n.3e3,4,-1e0\n",
	} {
		x, y, err := ReadCSV(strings.NewReader(in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !mat.Equal(x, want) || !slices.Equal(y, []float64{1, -1}) {
			t.Errorf("%s: x = %v, y = %v", name, mat.Formatted(x), y)
		}
	}
}

func TestReadCSVErrors(t *testing.T) {
	for _, c := range []struct {
		in   string
		want error
		says string
	}{
		{"", pgsvi.ErrEmpty, "has no rows"},
		{"\ufeff", pgsvi.ErrEmpty, "has no rows"},
		{"\n \n\r\n", pgsvi.ErrEmpty, "has no rows"},
		{"a,b,y\n", pgsvi.ErrEmpty, "has no rows"},
		{"1,2\n3,4,5\n", pgsvi.ErrShape, "line 2 has 3 fields, but the first line has 2"},
		{"a,b,y\n1,2\n", pgsvi.ErrShape, "line 2 has 2 fields, but the first line has 3"},
		{"1,2\n\n3\n", pgsvi.ErrShape, "line 3 has 1 field, but the first line has 2"},
		{"1\n2\n", pgsvi.ErrShape, "line 1 has a single field, \"1\""},
		{"1;2;3\n", pgsvi.ErrShape, "line 1 has a single field, \"1;2;3\""},
		{"1,2\n3,x\n", pgsvi.ErrNotFinite, "line 2, column 2: \"x\""},
		{"1,2\n,4\n", pgsvi.ErrNotFinite, "line 2, column 1: \"\""},
		{",,\n1,2,3\n", pgsvi.ErrNotFinite, "line 1, column 1: \"\""},
		{"1,2,label\n3,4,5\n", pgsvi.ErrNotFinite, "line 1, column 3: \"label\""},
		{"a,b\nc,d\n", pgsvi.ErrNotFinite, "line 2, column 1: \"c\""},
		{"1,2\nNaN,4\n", pgsvi.ErrNotFinite, "line 2, column 1: \"NaN\""},
		{"1,2\n3,-inf\n", pgsvi.ErrNotFinite, "line 2, column 2: \"-inf\""},
		{"1,2\n1e999,4\n", pgsvi.ErrNotFinite, "line 2, column 1: \"1e999\""},
		{"1,2\n3,4\n\n5," + strings.Repeat("q", 1000) + "\n", pgsvi.ErrNotFinite,
			"line 4, column 2: \"qqqq"},
		{"1,\"2\n3,4\n", pgsvi.ErrShape, "line 2"},
		{"1,2\n3,4\"5\n", csv.ErrBareQuote, "line 2"},
	} {
		x, y, err := ReadCSV(strings.NewReader(c.in))
		if x != nil || y != nil {
			t.Errorf("%.40q: data besides the error", c.in)
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") || len(err.Error()) > 200 {
			t.Errorf("%.40q: error %q, want %q that is %q", c.in, err, c.says, c.want)
		}
	}
	if _, _, err := ReadCSV(io.MultiReader(strings.NewReader("1,2\n3,"),
		iotest.ErrReader(io.ErrClosedPipe))); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing reader: %v", err)
	}
}

func TestReadIndex(t *testing.T) {
	for _, in := range []string{"3\n0\n12", "\ufeff3\r\n0\r\n12\r\n", "\n 3\n\n0 \n\t12\n\n"} {
		if got, err := ReadIndex(strings.NewReader(in)); err != nil ||
			!slices.Equal(got, []int{3, 0, 12}) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, c := range []struct {
		in   string
		want error
		says string
	}{
		{"", pgsvi.ErrEmpty, "has no row numbers"},
		{" \n\n", pgsvi.ErrEmpty, "has no row numbers"},
		{"1\n-2\n", pgsvi.ErrParam, "line 2: \"-2\""},
		{"1\n\n2.0\n", pgsvi.ErrParam, "line 3: \"2.0\""},
		{"1,2\n", pgsvi.ErrParam, "line 1: \"1,2\""},
		{"99999999999999999999\n", pgsvi.ErrParam, `line 1: "99999999999999999999" is not a row number`},
	} {
		got, err := ReadIndex(strings.NewReader(c.in))
		if got != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, error %q, want %q", c.in, got, err, c.says)
		}
	}
	if _, err := ReadIndex(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing reader: %v", err)
	}
}

func TestSelectRows(t *testing.T) {
	x, y := mat.NewDense(3, 2, []float64{1, 2, 3, 4, 5, 6}), []float64{-1, 0, 1}
	sx, sy, err := SelectRows(x, y, []int{2, 0, 2})
	if err != nil || !mat.Equal(sx, mat.NewDense(3, 2, []float64{5, 6, 1, 2, 5, 6})) ||
		!slices.Equal(sy, []float64{1, -1, 1}) {
		t.Errorf("got %v, %v, %v", sx, sy, err)
	}
	sx.Set(0, 0, 9)
	sy[0] = 9
	if x.At(2, 0) != 5 || y[2] != 1 {
		t.Error("the result shares memory with the data")
	}
	if sx, sy, err := SelectRows(x.Slice(1, 3, 1, 2).(*mat.Dense), nil, []int{1}); err != nil ||
		sy != nil || sx.At(0, 0) != 6 {
		t.Errorf("nil y, view: %v, %v, %v", sx, sy, err)
	}
	for _, c := range []struct {
		y     []float64
		index []int
		want  error
		says  string
	}{
		{y[:2], []int{0}, pgsvi.ErrShape, "2 responses for 3 rows"},
		{y, nil, pgsvi.ErrEmpty, "the index is empty"},
		{y, []int{0, 3}, pgsvi.ErrParam, "index[1] is 3; rows are numbered from 0 to 2"},
		{y, []int{-1}, pgsvi.ErrParam, "index[0] is -1"},
	} {
		if _, _, err := SelectRows(x, c.y, c.index); !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: error %v, want %q", c.index, err, c.says)
		}
	}
}

// FuzzReadCSV checks that accepted numbers are finite and rectangular, and are restored exactly
// after they are written.
func FuzzReadCSV(f *testing.F) {
	for _, s := range []string{"", "1,2\n3,4\n", "a,b,y\r\n1,-2.5,1\r\n", "\ufeff1,2\n",
		"1,\"2\"\n\n 3 ,0x1p-4", "nan,1\n1e999,2", "1,\"2", ",,\n", "1\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		x, y, err := ReadCSV(bytes.NewReader(in))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("error %q without prefix", err)
			}
			return
		}
		n, d := x.Dims()
		if n != len(y) || n == 0 || d == 0 {
			t.Fatalf("%d×%d features, %d responses", n, d, len(y))
		}
		var out bytes.Buffer
		for i := range n {
			for _, v := range append(slices.Clone(x.RawRowView(i)), y[i]) {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("row %d has %v", i, v)
				}
			}
			for _, v := range x.RawRowView(i) {
				fmt.Fprintf(&out, "%v,", v)
			}
			fmt.Fprintln(&out, y[i])
		}
		x2, y2, err := ReadCSV(&out)
		if err != nil || !mat.Equal(x, x2) || !slices.Equal(y, y2) {
			t.Fatalf("no round trip: %v", err)
		}
	})
}

// FuzzReadIndex checks that accepted lines are row numbers, and are restored after they are
// written.
func FuzzReadIndex(f *testing.F) {
	for _, s := range []string{"", "1\n2\n", "\ufeff0\r\n\r\n 7 \n", "-1\n", "1.5\n", "+3"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		index, err := ReadIndex(bytes.NewReader(in))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("error %q without prefix", err)
			}
			return
		}
		var out strings.Builder
		for _, i := range index {
			if i < 0 {
				t.Fatalf("row number %d", i)
			}
			out.WriteString(strconv.Itoa(i) + "\n")
		}
		if back, err := ReadIndex(strings.NewReader(out.String())); err != nil ||
			!slices.Equal(back, index) {
			t.Fatalf("no round trip: %v, %v", back, err)
		}
	})
}

func ExampleReadCSV() {
	x, y, err := ReadCSV(strings.NewReader("length,width,class\n5.1,3.5,1\n6.7,3.0,-1\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, d := x.Dims()
	fmt.Println(n, "rows,", d, "features, responses", y)

	_, _, err = ReadCSV(strings.NewReader("5.1,3.5,1\n6.7,?,-1\n"))
	fmt.Println(err)
	// Output:
	// 2 rows, 2 features, responses [1 -1]
	// pgsvi: line 2, column 2: "?" is not a finite number
}

// TestReadCSVGzip checks that a packed file is unpacked, and that a truncated file is an error.
func TestReadCSVGzip(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, "\ufeffa,y\r\n1,2\r\n3,4\r\n")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	file := bytes.Clone(packed.Bytes())
	x, y, err := ReadCSV(bytes.NewReader(file))
	if err != nil || x.At(1, 0) != 3 || y[1] != 4 {
		t.Errorf("%v %v %v", x, y, err)
	}
	if _, _, err := ReadCSV(bytes.NewReader(file[:len(file)-9])); !errors.Is(err,
		io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v", err)
	}
	if _, _, err := ReadCSV(bytes.NewReader(file[:5])); err == nil {
		t.Error("cut short in the header of gzip: no error")
	}
	// Zeros may follow the last member, as with gzip(1), but other bytes may not.
	packed.Reset()
	z.Reset(&packed)
	fmt.Fprint(z, "5,6\n")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	two := slices.Concat(file, packed.Bytes())
	zeros := make([]byte, 1<<17)
	for _, padding := range []int{1, 2, 511, 1 << 17} {
		padded := slices.Concat(two, zeros[:padding])
		for _, in := range []io.Reader{bytes.NewReader(padded),
			iotest.OneByteReader(bytes.NewReader(padded))} {
			x, _, err := ReadCSV(in)
			if err != nil || x.At(2, 0) != 5 {
				t.Errorf("%d zeros: %v", padding, err)
			}
		}
	}
	for _, rest := range []string{"x", "\x00\x00garbage", "\x00\x1f\x8b", "\x1f",
		"\x1f\x8bno header"} {
		_, _, err := ReadCSV(bytes.NewReader(slices.Concat(two, []byte(rest))))
		if err == nil || !strings.Contains(err.Error(), "gzip") ||
			!strings.Contains(err.Error(), "byte ") || !strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%q after gzip: %v", rest, err)
		}
	}
}
