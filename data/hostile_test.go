package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// A reader reads a text to its end. text is a small file for it.
type reader struct {
	name, text string
	unpacks    bool // gzip
	read       func(r io.Reader) error
}

var readers = []reader{
	{"ReadCSV", "a,b,y\n1,2.5,3\n4,-5e-3,6\n7,8,9\n", false, func(r io.Reader) error {
		x, y, err := ReadCSV(r)
		if n := len(y); err == nil {
			if rows, cols := x.Dims(); rows != n || rows*cols == 0 {
				return fmt.Errorf("%d×%d numbers and %d responses", rows, cols, n)
			}
		}
		return err
	}},
	{"Read", "age,\"colour\",y\n1,red,no\n2,blue,yes\n3.5,\"green, dark\",no\n", true,
		func(r io.Reader) error {
			_, _, err := encodeAll(r)
			return err
		}},
	{"Read of JSON", "{\"age\": 1, \"c\": \"red\", \"y\": true}\n{\"age\": 2.5, \"c\": " +
		"\"bl\\u00fc\", \"y\": false}\n", true, func(r io.Reader) error {
		_, _, err := encodeAll(r)
		return err
	}},
	{"Encoder.Data", "age,colour,y\n1,red,no\n2,blue,yes\n9,red,no\n", true,
		func(r io.Reader) error {
			t, err := Read(r, "t")
			if err == nil {
				_, err = peopleEncoder().Data(t)
			}
			return err
		}},
	{"ReadLIBSVM", "+1 1:1 3:-2.5 # x\n-1\n3.5 qid:7 2:3e2 4:1\n", true, func(r io.Reader) error {
		x, y, err := ReadLIBSVM(r, 0)
		if err == nil && rowsOf(x) != len(y) {
			return fmt.Errorf("%d rows and %d responses", rowsOf(x), len(y))
		}
		return err
	}},
	{"ScanLIBSVM", "+1 1:1 3:-2.5\n-1\n3.5 2:3e2 4:1\n", true, func(r io.Reader) error {
		_, err := collectRows(ScanLIBSVM(r))
		return err
	}},
	{"ReadLDAC", "2 0:3 2:1\n0\n3 0:2 1:12 4:1\n", true,
		func(r io.Reader) error { return validCorpus(ReadLDAC(r, 0)) }},
	{"ReadUCI", "3\n5\n5\n1 1 3\n1 3 1\n3 1 2\n3 2 12\n3 5 1\n", true,
		func(r io.Reader) error { return validCorpus(ReadUCI(r)) }},
	{"ReadMatrixMarket",
		"%%MatrixMarket matrix coordinate integer general\n% c\n3 5 5\n1 1 3\n1 3 1\n3 1 2\n3 2 " +
			"12\n3 5 1\n", true, func(r io.Reader) error {
			return validCorpus(ReadMatrixMarket(r))
		}},
	{"ReadVocab", "alpha\nnew york\nété\nd\n", true, func(r io.Reader) error {
		_, err := ReadVocab(r)
		return err
	}},
	{"ReadIndex", "3\n0\n\n12\n7\n", false, func(r io.Reader) error {
		_, err := ReadIndex(r)
		return err
	}},
	{"CorpusBuilder", "Don't panic: the naïve café’s ﬁsh.\n", false, func(r io.Reader) error {
		text, err := io.ReadAll(r)
		var b CorpusBuilder
		b.Add("a", string(text))
		c, _ := b.Corpus()
		return errors.Join(err, c.Validate())
	}},
}

func validCorpus(c *pgsvi.Corpus, err error) error {
	if err == nil {
		if err := c.Validate(); err != nil {
			panic(err)
		}
	}
	return err
}

// allocated returns the total number of bytes that f allocates, which is more than f uses at any
// time. It would also count allocations of other tests, so tests that use it do not run in
// parallel.
func allocated(f func()) uint64 {
	bytes := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(bytes)
	before := bytes[0].Value.Uint64()
	f()
	metrics.Read(bytes)
	return bytes[0].Value.Uint64() - before
}

// TestReadHugeIndex checks that an index or size that would need vectors of gigabytes is an error
// that names the amount, unless the caller set this size.
func TestReadHugeIndex(t *testing.T) {
	libsvm := func(cols int) func(r io.Reader) error {
		return func(r io.Reader) error {
			_, _, err := ReadLIBSVM(r, cols)
			return err
		}
	}
	ldac := func(terms int) func(r io.Reader) error {
		return func(r io.Reader) error {
			_, err := ReadLDAC(r, terms)
			return err
		}
	}
	uci := func(r io.Reader) error { _, err := ReadUCI(r); return err }
	market := func(r io.Reader) error { _, err := ReadMatrixMarket(r); return err }
	for _, c := range []struct {
		in   string
		read func(io.Reader) error
		says string // or read without an error
	}{
		{"1 1:1 2147483646:1\n", libsvm(0), "line 1: a model of 2147483646 columns needs 258 GB"},
		{"0 1:1\n1 1:1 100000000:1\n", libsvm(0),
			"line 2: a model of 100000000 columns needs 12 GB"},
		{"1 1:1 2147483646:1\n", libsvm(math.MaxInt32), ""},
		{"1 1:1 50000000:1\n", libsvm(0), ""},
		{"1 2000000000:1\n", ldac(0), "line 1: a model of 2000000001 terms needs 240 GB"},
		{"1 2000000000:1\n", ldac(2000000001), ""},
		{"1\n2000000000\n1\n1 1 1\n", uci, "line 2: a model of 2000000000 terms needs 240 GB"},
		{"1\n2000000000\n1\n1 2000000000 1\n", uci, "line 2: a model of 2000000000 terms"},
		{"%%MatrixMarket matrix coordinate real general\n1 2000000000 1\n1 1 1\n", market,
			"line 2: a model of 2000000000 terms"},
		{"2000000000\n5\n2000000000\n1 1 1\n", uci, ""}, // the documents are not there
	} {
		var err error
		if n := allocated(func() { err = c.read(strings.NewReader(c.in)) }); n > 1<<20 {
			t.Errorf("%.40q: %d bytes allocated", c.in, n)
		}
		if c.says == "" {
			if errors.Is(err, pgsvi.ErrMemory) {
				t.Errorf("%.40q: %v", c.in, err)
			}
			continue
		}
		if !errors.Is(err, pgsvi.ErrMemory) || !strings.Contains(err.Error(), c.says) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") ||
			!strings.HasSuffix(err.Error(), pgsvi.ErrMemory.Error()) {
			t.Errorf("%.40q: %v, want %q", c.in, err, c.says)
		}
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 40))
	if err := libsvm(0)(strings.NewReader("1 2147483646:1\n")); err != nil {
		t.Errorf("with a limit of 1 TB: %v", err)
	}
}

// endless repeats a text forever.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.text[e.at%len(e.text)]
		e.at++
	}
	return len(b), nil
}

// TestReadEndless checks that an endless file, or an endless line, is read only up to the memory
// limit and then is an error that names the limit.
func TestReadEndless(t *testing.T) {
	limit := testkit.Longer(32, testkit.Shorter(12, 4)) << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(limit)))
	for _, r := range readers {
		line, repeated := r.text, "x"
		switch r.name {
		case "ScanLIBSVM":
			line = "" // one row at a time, as many as there are
		case "ReadUCI":
			line, r.text = "1 1 1\n", "9\n9\n9000000000000000000\n"
		case "ReadMatrixMarket":
			line, r.text = "1 1 1\n",
				"%%MatrixMarket matrix coordinate real general\n9 9 9000000000000000000\n"
		case "ReadVocab":
			line = "word\n"
		case "ReadCSV", "Read":
			line, repeated = "1,2,3\n", "1,2,"
		case "Encoder.Data":
			line = "1,red,no\n"
		case "Read of JSON":
			line = "{\"age\": 1}\n"
		case "CorpusBuilder":
			continue // takes strings
		}
		inputs := map[string]io.Reader{"line": &endless{text: repeated},
			"quoted": io.MultiReader(strings.NewReader(`"`), &endless{text: "a\n"})}
		if line != "" {
			inputs["file"] = io.MultiReader(strings.NewReader(r.text), &endless{text: line})
		}
		for what, in := range inputs {
			if what == "quoted" && testing.Short() {
				continue
			}
			var err error
			// in total, including what the slices used while they grew
			if n := allocated(func() { err = r.read(in) }); n > uint64(5*limit) {
				t.Errorf("%s, %s: %d MB allocated", r.name, what, n>>20)
			}
			if err == nil || !strings.HasPrefix(err.Error(), "pgsvi: ") ||
				what == "file" && !errors.Is(err, pgsvi.ErrMemory) ||
				what == "line" && r.name != "ReadIndex" && !errors.Is(err, pgsvi.ErrMemory) {
				t.Errorf("%s, %s: %v", r.name, what, err)
			}
		}
	}
}

// TestReadBomb checks that a small gzip file with a huge content is an error before the content is
// unpacked.
func TestReadBomb(t *testing.T) {
	rows := testkit.Longer(4000, testkit.Shorter(1500, 300))
	for _, r := range readers {
		if !r.unpacks {
			continue
		}
		for what, text := range map[string]string{"line": "1",
			"rows": r.text[strings.IndexByte(r.text, '\n')+1:], "words": "a\n"} {
			if what != "line" && r.name != "ReadLIBSVM" && testing.Short() {
				continue
			}
			part := zipped([]byte(strings.Repeat(text, 1<<20/len(text))))
			// 2 GB
			file := io.MultiReader(bytes.NewReader(zipped([]byte(r.text))),
				bytes.NewReader(bytes.Repeat(part, 2000)))
			var err error
			if n := allocated(func() { err = r.read(file) }); n > 256<<20 {
				t.Errorf("%s, %s: %d MB allocated", r.name, what, n>>20)
			}
			if err == nil || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%s, %s: %v", r.name, what, err)
			}
			if what == "line" && !errors.Is(err, pgsvi.ErrMemory) {
				t.Errorf("%s, %s: %v, want one of memory", r.name, what, err)
			}
		}
	}
	// A text that mostly repeats itself packs well and must still be read, with one nonzero in a
	// thousand.
	row := slices.Repeat([]string{"0"}, 1000)
	var text strings.Builder
	for i := range rows {
		row[i%999] = "1"
		text.WriteString(strings.Join(row, ",") + "\n")
		row[i%999] = "0"
	}
	packed := zipped([]byte(text.String()))
	if table, err := Read(bytes.NewReader(packed), "packed"); err != nil {
		t.Errorf("%d bytes packed to %d: %v", text.Len(), len(packed), err)
	} else if n := table.Len(); n != rows {
		t.Errorf("%d rows", n)
	}
}

// TestRowWriterMemory checks that a dense row with too many columns is an error that allocates
// nothing.
func TestRowWriterMemory(t *testing.T) {
	row := pgsvi.Row{Ind: []int{0, math.MaxInt32 - 1}, Val: []float64{1, 2}}
	for _, sparse := range []bool{false, true} {
		var file bytes.Buffer
		var err, closed error
		n := allocated(func() {
			w := NewRowWriter(&file, math.MaxInt32, &RowOptions{Sparse: sparse})
			err, closed = w.Write(row), w.Close()
		})
		if n > 1<<20 {
			t.Errorf("sparse %t: %d MB allocated", sparse, n>>20)
		}
		if refused := errors.Is(err, pgsvi.ErrMemory); refused == sparse ||
			refused && (!errors.Is(closed, pgsvi.ErrMemory) || file.Len() > 0) ||
			sparse && closed != nil {
			t.Errorf("sparse %t: %v, %v, %d bytes", sparse, err, closed, file.Len())
		}
	}
}

// TestReadWide checks that the time for a table with many columns is in proportion to its size.
func TestReadWide(t *testing.T) {
	seconds := func(cols int) float64 {
		var b strings.Builder
		for j := range cols {
			fmt.Fprintf(&b, "c%d,", j)
		}
		b.WriteString("y\n")
		for _, row := range []string{"1.5,", "2.5,"} {
			b.WriteString(strings.Repeat(row, cols) + row[:1] + "\n")
		}
		start := cputime.Seconds()
		table, err := Read(strings.NewReader(b.String()), "wide")
		var e *Encoder
		if err == nil {
			e, err = table.Encoder(Outcome("y").Positive("2"))
		}
		if err == nil {
			_, err = e.Data(table)
		}
		if err != nil || len(e.Features()) != cols {
			t.Errorf("%d columns: %v", cols, err)
		}
		return cputime.Seconds() - start
	}
	more := testkit.Shorter(50, 12)
	if few, many := seconds(1000), seconds(1000*more); many > float64(more*20)*few && many > 5 {
		t.Errorf("%.3f s for 1,000 columns and %.1f s for %d,000", few, many, more)
	}
}

// mutate returns a file that differs from a good file in a few places: bits, bytes, numbers, and
// parts that are missing, doubled or moved.
func mutate(rng *rand.Rand, good []byte) []byte {
	odd := []string{"-1", "0", "1e999", "nan", "-Inf", "2147483647", "2147483648",
		"9223372036854775807", "18446744073709551616", "1e18", "1000000000", "\x00", "\xff\xfe",
		"\"", ":", "::", ",", "\n", "\r", "#", "%", "\ufeff", "\x1f\x8b", "0x1p-1074", ".",
		"1_000", strings.Repeat("9", 400), strings.Repeat(" ", 100)}
	b := slices.Clone(good)
	for range 1 + rng.IntN(4) {
		at := rng.IntN(len(b) + 1)
		end := min(len(b), at+rng.IntN(12))
		switch rng.IntN(8) {
		case 0, 1:
			if at < len(b) {
				b[at] ^= 1 << rng.IntN(8)
			}
		case 2:
			if at < len(b) {
				b[at] = byte(rng.IntN(256))
			}
		case 3:
			b = slices.Delete(b, at, end)
		case 4:
			b = slices.Insert(b, at, slices.Clone(b[at:end])...)
		case 5:
			b = b[:at]
		case 6: // a number becomes an odd one
			lo, hi := at, at
			for lo > 0 && bytes.IndexByte([]byte("0123456789.-"), b[lo-1]) >= 0 {
				lo--
			}
			for hi < len(b) && bytes.IndexByte([]byte("0123456789.-"), b[hi]) >= 0 {
				hi++
			}
			b = slices.Replace(b, lo, hi, []byte(odd[rng.IntN(len(odd))])...)
		default:
			b = slices.Insert(b, at, []byte(odd[rng.IntN(len(odd))])...)
		}
		if len(b) == 0 {
			break
		}
	}
	return b
}

// TestReadMutated checks that files that differ from a good file in a few places, packed or not,
// are read or are an error, and use at most 64 MB and ten times their size.
func TestReadMutated(t *testing.T) {
	files := testkit.Longer(10000, testkit.Shorter(2500, 100))
	for i, r := range readers {
		rng := testRand(uint64(100 + i))
		if err := r.read(strings.NewReader(r.text)); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		refused := 0
		for k := range files {
			in := mutate(rng, []byte(r.text))
			switch {
			case r.unpacks && k%10 == 0:
				in = zipped(in)
			case r.unpacks && k%10 == 1:
				in = mutate(rng, zipped([]byte(r.text)))
			}
			var err error
			if n := allocated(func() { err = r.read(bytes.NewReader(in)) }); n > uint64(
				10*len(in)+64<<20) {
				t.Errorf("%s, %q: %d MB allocated", r.name, in, n>>20)
			}
			if err != nil {
				refused++
				if !strings.HasPrefix(err.Error(), "pgsvi: ") || len(err.Error()) > 1000 {
					t.Errorf("%s, %q: %v", r.name, in, err)
				}
			}
		}
		if refused < files/4 && r.name != "CorpusBuilder" && r.name != "ReadVocab" {
			t.Errorf("%s: %d of %d files refused", r.name, refused, files)
		}
	}
}

// TestRowFileFlips checks that no single changed bit of a row file goes unnoticed, and that none of
// 10,000 files (3,000 without -long) with changes in a few places is accepted. Each uses at most 64
// MB and ten times its size.
func TestRowFileFlips(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read := func(b []byte) (rows int, err error) {
		overwrite(t, file, b)
		f, err := OpenRows(path)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		all, err := collectRows(f.All())
		return len(all), err
	}
	options := allRowOptions()
	files := testkit.Longer(10000, 3000) / len(options)
	if testing.Short() {
		options = []RowOptions{{}, {Sparse: true, Float32: true, Weight: true}}
		files = 200
	}
	rng := testRand(77)
	for _, o := range options {
		good := rowBytes(t, 3, &o, randomRows(1, 6, 3, o))
		if _, err := read(good); err != nil {
			t.Fatal(err)
		}
		for at := range 8 * len(good) {
			bad := slices.Clone(good)
			bad[at/8] ^= 1 << (at % 8)
			if n, err := read(bad); err == nil || n > 0 ||
				!strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("%+v, bit %d: %d rows, %v", o, at, n, err)
			}
		}
		for range files {
			bad := mutate(rng, good)
			if bytes.Equal(bad, good) {
				continue
			}
			var err error
			if n := allocated(func() { _, err = read(bad) }); n > uint64(10*len(bad)+64<<20) {
				t.Errorf("%+v, %q: %d MB allocated", o, bad, n>>20)
			}
			if err == nil || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("%+v, %q: %v", o, bad, err)
			}
		}
	}
}
