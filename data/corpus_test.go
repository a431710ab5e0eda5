package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// A corpusFormat is a format with its reader and writer. Only readers that do not find the number
// of terms in the file use terms.
type corpusFormat struct {
	name  string
	read  func(r io.Reader, terms int) (*pgsvi.Corpus, error)
	write func(w io.Writer, c *pgsvi.Corpus) error
}

var corpusFormats = []corpusFormat{
	{"lda-c", ReadLDAC, WriteLDAC},
	{"UCI docword", func(r io.Reader, _ int) (*pgsvi.Corpus, error) { return ReadUCI(r) },
		WriteUCI},
	{"Matrix Market", func(r io.Reader, _ int) (*pgsvi.Corpus,
		error) {
		return ReadMatrixMarket(r)
	}, WriteMatrixMarket},
}

func TestCorpusCounts(t *testing.T) {
	c := smallCorpus()
	if n := c.Tokens(); n != 19 {
		t.Errorf("%v tokens, want 19", n)
	}
	if f := c.DocFreq(); !slices.Equal(f, []int{2, 1, 1, 0, 1}) {
		t.Errorf("document frequencies %v", f)
	}
	if f := c.TermFreq(); !slices.Equal(f, []float64{5, 12, 1, 0, 1}) {
		t.Errorf("term frequencies %v", f)
	}
	if w := c.Word(3); w != "3" {
		t.Errorf("word 3 of no vocabulary is %q", w)
	}
	c.Vocab = []string{"a", "b", "c", "d", "e"}
	if w := c.Word(3); w != "d" {
		t.Errorf("word 3 is %q", w)
	}
	next := 0
	for i, d := range c.Docs {
		if i != next || !reflect.DeepEqual(d, c.Docs[i]) {
			t.Errorf("document %d comes as %d: %v", next, i, d)
		}
		next++
	}
	if next != 3 {
		t.Errorf("%d documents", next)
	}
	for range c.Docs {
		break
	}
	s := c.Subset([]int{2, 0, 2})
	if s.Terms != 5 || len(s.Vocab) != 5 ||
		!reflect.DeepEqual(s.Docs, []pgsvi.Document{c.Docs[2], c.Docs[0], c.Docs[2]}) {
		t.Errorf("subset %v", s)
	}
	even, odd := c.EvenOdd()
	if !reflect.DeepEqual(even, c.Subset([]int{0, 2})) ||
		!reflect.DeepEqual(odd, c.Subset([]int{1})) {
		t.Errorf("even %v, odd %v", even, odd)
	}
	if even, odd := new(pgsvi.Corpus).EvenOdd(); len(even.Docs)+len(odd.Docs) != 0 ||
		new(pgsvi.Corpus).Validate() != nil {
		t.Error("halves of nothing")
	}
}

func TestCorpusValidate(t *testing.T) {
	for name, c := range map[string]struct {
		c    pgsvi.Corpus
		want error
		says string
	}{
		"terms": {pgsvi.Corpus{Terms: -1}, pgsvi.ErrShape, "-1 terms"},
		"vocab": {pgsvi.Corpus{Terms: 2, Vocab: []string{"a"}}, pgsvi.ErrShape, "1 names"},
		"lengths": {pgsvi.Corpus{Terms: 2, Docs: []pgsvi.Document{{}, {Words: []int{1}}}},
			pgsvi.ErrShape, "document 1"},
		"range": {pgsvi.Corpus{Terms: 2,
			Docs: []pgsvi.Document{{Words: []int{2}, Counts: []float64{1}}}}, pgsvi.ErrShape,
			"word 2"},
		"below": {pgsvi.Corpus{Terms: 2,
			Docs: []pgsvi.Document{{Words: []int{-1}, Counts: []float64{1}}}}, pgsvi.ErrShape,
			"word -1"},
		"twice": {pgsvi.Corpus{Terms: 2,
			Docs: []pgsvi.Document{{Words: []int{1, 1}, Counts: []float64{1, 1}}}}, pgsvi.ErrShape,
			"increase"},
		"NaN": {pgsvi.Corpus{Terms: 2,
			Docs: []pgsvi.Document{{Words: []int{1}, Counts: []float64{math.NaN()}}}},
			pgsvi.ErrNotFinite, "word 1"},
		"zero": {pgsvi.Corpus{Terms: 2,
			Docs: []pgsvi.Document{{Words: []int{1}, Counts: []float64{0}}}}, pgsvi.ErrParam,
			"count 0"},
	} {
		err := c.c.Validate()
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range corpusFormats {
			var out bytes.Buffer
			if err2 := f.write(&out, &c.c); err2 == nil || err2.Error() != err.Error() ||
				out.Len() > 0 {
				t.Errorf("%s: %s wrote %d bytes, %v", name, f.name, out.Len(), err2)
			}
		}
	}
}

// TestDocumentHalves checks the halves against the tokens of a document, written out one by one.
func TestDocumentHalves(t *testing.T) {
	first, second := pgsvi.Document{Words: []int{1, 4, 6, 7},
		Counts: []float64{3, 1, 2, 1}}.Halves()
	// 1 1 1 4 6 6 7
	want1 := pgsvi.Document{Words: []int{1, 6, 7}, Counts: []float64{2, 1, 1}}
	want2 := pgsvi.Document{Words: []int{1, 4, 6}, Counts: []float64{1, 1, 1}}
	if !reflect.DeepEqual(first, want1) || !reflect.DeepEqual(second, want2) {
		t.Errorf("halves %v and %v", first, second)
	}
	for seed := range 200 {
		var d pgsvi.Document
		for k := range seed % 7 {
			d.Words, d.Counts = append(d.Words, 3*k+1),
				append(d.Counts, float64((seed*31+k*17)%5+1))
		}
		var want [2]map[int]float64
		want[0], want[1] = map[int]float64{}, map[int]float64{}
		at := 0
		for k, w := range d.Words {
			for range int(d.Counts[k]) {
				want[at%2][w]++
				at++
			}
		}
		first, second := d.Halves()
		for i, h := range []pgsvi.Document{first, second} {
			c := pgsvi.Corpus{Docs: []pgsvi.Document{h}, Terms: 30}
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(h, bagDocument(want[i])) {
				t.Fatalf("half %d of %v is %v, want %v", i, d, h, want[i])
			}
		}
	}
	if first, second := (pgsvi.Document{Words: []int{0},
		Counts: []float64{1 << 53}}).Halves(); first.Counts[0] != 1<<52 ||
		second.Counts[0] != 1<<52 {
		t.Errorf("halves of many: %v, %v", first, second)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic at a fraction")
		}
	}()
	pgsvi.Document{Words: []int{0}, Counts: []float64{1.5}}.Halves()
}

func TestReadCorpus(t *testing.T) {
	const (
		lda = "2 0:3 2:1\n0\n3 0:2 1:12 4:1\n"
		uci = "3\n5\n5\n1 1 3\n1 3 1\n3 1 2\n3 2 12\n3 5 1\n"
		mm  = "%%MatrixMarket matrix coordinate integer general\n3 5 5\n1 1 3\n1 3 1\n3 1 2\n3 " +
			"2 12\n3 5 1\n"
	)
	for _, c := range []struct{ format, name, in string }{
		{"lda-c", "plain", lda},
		{"lda-c", "disorder", "2 2:1 0:3\n0\n3 4:1 0:2 1:12\n"},
		{"lda-c", "blank lines, spaces", "\n 2\t0:3  2:1 \n\n0\n3 0:2 1:12 4:1\n \n"},
		{"lda-c", "twice, zero", "4 0:1 2:1 0:2 3:0\n1 1:0\n4 0:0 0:2 1:12 4:1\n"},
		{"lda-c", "numbers", "02 00:3.0 2:1e0\n0\n3 0:2 1:1.2e1 4:+1\n"},
		{"UCI docword", "plain", uci},
		{"UCI docword", "disorder", "3\n5\n5\n3 5 1\n1 3 1\n3 2 12\n1 1 3\n3 1 2\n"},
		{"UCI docword", "twice, zero",
			"3\n5\n7\n1 1 1\n1 3 1\n3 1 2\n3 2 12\n3 5 1\n1 1 2\n2 2 0\n"},
		{"UCI docword", "blank lines, spaces",
			"\n 3 \n5\n\n5\n1 1\t3\n 1 3 1\n3 1 2 \n\n3 2 12\n3 5 1\n\n"},
		{"Matrix Market", "plain", mm},
		{"Matrix Market", "real",
			"%%MatrixMarket Matrix Coordinate REAL General\n% by hand\n%\n\n3 5 5\n1 1 3.0\n1 3 " +
				"1e0\n3 5 1\n%end\n3 1 2\n3 2 12.\n"},
	} {
		f := corpusFormats[slices.IndexFunc(corpusFormats,
			func(f corpusFormat) bool { return f.name == c.format })]
		for how, in := range map[string]string{
			"as it is":   c.in,
			"no newline": strings.TrimSuffix(c.in, "\n"),
			"CRLF":       strings.ReplaceAll(c.in, "\n", "\r\n"),
			"byte order": "\ufeff" + c.in,
			"gzip":       string(zipped([]byte(c.in))),
		} {
			for _, terms := range []int{0, 5} {
				got, err := f.read(iotest.OneByteReader(strings.NewReader(in)), terms)
				if err != nil {
					t.Errorf("%s, %s, %s: %v", c.format, c.name, how, err)
				} else if !reflect.DeepEqual(got, smallCorpus()) {
					t.Errorf("%s, %s, %s: %+v", c.format, c.name, how, got)
				}
			}
		}
	}
	if c, err := ReadLDAC(strings.NewReader(lda), 9); err != nil || c.Terms != 9 {
		t.Errorf("nine terms: %v, %v", c, err)
	}
	if c, err := ReadLDAC(strings.NewReader("0\n"), 0); err != nil || c.Terms != 0 ||
		len(c.Docs) != 1 {
		t.Errorf("no terms: %v, %v", c, err)
	}
	c, err := ReadMatrixMarket(
		strings.NewReader(
			"%%MatrixMarket matrix coordinate pattern general\n2 3 3\n2 3\n1 2\n2 1\n"))
	if want := []pgsvi.Document{{Words: []int{1}, Counts: []float64{1}},
		{Words: []int{0, 2}, Counts: []float64{1, 1}}}; err != nil ||
		!reflect.DeepEqual(c.Docs, want) {
		t.Errorf("pattern: %v, %v", c, err)
	}
	// Appending to a document must not change the next document.
	c, err = ReadUCI(strings.NewReader(uci))
	if err != nil {
		t.Fatal(err)
	}
	_ = append(c.Docs[0].Words, 4)
	_ = append(c.Docs[0].Counts, 4)
	if !reflect.DeepEqual(c, smallCorpus()) {
		t.Errorf("after appending: %v", c)
	}
}

func TestReadCorpusErrors(t *testing.T) {
	const mm = "%%MatrixMarket matrix coordinate integer general\n"
	for _, c := range []struct {
		format, in string
		want       error
		says       string
	}{
		{"lda-c", "", pgsvi.ErrEmpty, "has no documents"},
		{"lda-c", "\ufeff\n \r\n", pgsvi.ErrEmpty, "has no documents"},
		{"lda-c", "0\nx 1:1\n", pgsvi.ErrShape, `line 2: the number of words is "x"`},
		{"lda-c", "0\n-1\n", pgsvi.ErrShape, `line 2: the number of words is "-1"`},
		{"lda-c", "0\n\n1:1\n", pgsvi.ErrShape, `line 3: the number of words is "1:1"`},
		{"lda-c", "0\n2 1:1\n", pgsvi.ErrShape, "line 2: the number of words is 1, but the line begins with 2"},
		{"lda-c", "0\n1 1:1 2:1\n", pgsvi.ErrShape, "line 2: the number of words is 2, but the line begins with 1"},
		{"lda-c", "0\n1 1\n", pgsvi.ErrShape, `line 2: "1" is not word:count`},
		{"lda-c", "0\n1 a:1\n", pgsvi.ErrShape, `line 2: the word is "a"; it must be from 0 to 8`},
		{"lda-c", "0\n1 :1\n", pgsvi.ErrShape, `line 2: the word is ""`},
		{"lda-c", "0\n1 9:1\n", pgsvi.ErrShape, `line 2: the word is "9"`},
		{"lda-c", "0\n1 -1:1\n", pgsvi.ErrShape, `line 2: the word is "-1"`},
		{"lda-c", "0\n1 18446744073709551617:1\n", pgsvi.ErrShape,
			`line 2: the word is "18446744073709551617"`},
		{"lda-c", "0\n1 1:x\n", pgsvi.ErrNotFinite, `line 2: the count "x"`},
		{"lda-c", "0\n1 1:\n", pgsvi.ErrNotFinite, `line 2: the count ""`},
		{"lda-c", "0\n1 1:inf\n", pgsvi.ErrNotFinite, `line 2: the count "inf"`},
		{"lda-c", "0\n1 1:1e999\n", pgsvi.ErrNotFinite, `line 2: the count "1e999"`},
		{"lda-c", "0\n1 1:-2\n", pgsvi.ErrParam, `line 2: the count is "-2"`},
		{"lda-c", "0\n2 1:1e308 1:1e308\n", pgsvi.ErrNotFinite, "document 1 has word 1"},
		{"lda-c", "0\n1 " + strings.Repeat("q", 1000) + "\n", pgsvi.ErrShape,
			`line 2: "qqqq`},
		{"lda-c", "\x1f\x8bnot so, though long enough", gzip.ErrHeader, "gzip"},
		{"lda-c", string(zipped([]byte("1 1:1\n")))[:20], io.ErrUnexpectedEOF, "lda-c, line "},

		{"UCI docword", "\n\n", pgsvi.ErrEmpty, "has no documents"},
		{"UCI docword", "0\n3\n0\n", pgsvi.ErrEmpty, "has no documents"},
		{"UCI docword", "3\n", pgsvi.ErrShape, "the file ends before the number of terms"},
		{"UCI docword", "3\n5\n", pgsvi.ErrShape, "the file ends before the number of entries"},
		{"UCI docword", "3 5 5\n", pgsvi.ErrShape, `line 1: the number of documents is "3 5 5"`},
		{"UCI docword", "3\n-5\n5\n", pgsvi.ErrShape, `line 2: the number of terms is "-5"`},
		{"UCI docword", "3\n2147483648\n5\n", pgsvi.ErrShape,
			`line 2: the number of terms is "2147483648"`},
		{"UCI docword", "3\n5\nx\n", pgsvi.ErrShape, `line 3: the number of entries is "x"`},
		{"UCI docword", "3\n5\n1\n0 1 1\n", pgsvi.ErrShape,
			`line 4: the document is "0"; it must be from 1 to 3`},
		{"UCI docword", "3\n5\n1\n4 1 1\n", pgsvi.ErrShape,
			`line 4: the document is "4"; it must be from 1 to 3`},
		{"UCI docword", "3\n5\n1\n1 0 1\n", pgsvi.ErrShape,
			`line 4: the word is "0"; it must be from 1 to 5`},
		{"UCI docword", "3\n5\n1\n1 6 1\n", pgsvi.ErrShape,
			`line 4: the word is "6"; it must be from 1 to 5`},
		{"UCI docword", "3\n5\n1\n1 1\n", pgsvi.ErrShape, "line 4: the number of fields is 2 instead of 3"},
		{"UCI docword", "3\n5\n1\n1 1 1 1 1\n", pgsvi.ErrShape, "line 4: the number of fields is 5 instead of 3"},
		{"UCI docword", "3\n5\n1\n1 1 nan\n", pgsvi.ErrNotFinite, `line 4: the count "nan"`},
		{"UCI docword", "3\n5\n1\n1 1 -1\n", pgsvi.ErrParam, `line 4: the count is "-1"`},
		{"UCI docword", "3\n5\n2\n\n1 1 1\n", pgsvi.ErrShape,
			"the file ends after entry 1, but its header has 2"},
		{"UCI docword", "3\n5\n1\n1 1 1\n2 1 1\n", pgsvi.ErrShape,
			"line 5: the file has more entries than the 1"},
		{"UCI docword", "1000000000\n5\n1\n1 1 1\n", pgsvi.ErrShape,
			"the header has 1000000000 documents"},

		{"Matrix Market", "", pgsvi.ErrEmpty, "has no documents"},
		{"Matrix Market", "1 1 1\n", pgsvi.ErrShape,
			`line 1: the header is "1 1 1"; it must be %%MatrixMarket matrix`},
		{"Matrix Market", "%%MatrixMarket matrix array real general\n", pgsvi.ErrShape,
			"line 1: the header is"},
		{"Matrix Market", "%%MatrixMarket matrix coordinate complex general\n", pgsvi.ErrShape,
			"line 1: the header is"},
		{"Matrix Market", "%%MatrixMarket matrix coordinate real symmetric\n", pgsvi.ErrShape,
			"line 1: the header is"},
		{"Matrix Market", "%%MatrixMarket vector coordinate real general\n", pgsvi.ErrShape,
			"line 1: the header is"},
		{"Matrix Market", mm + "%\n", pgsvi.ErrShape, "the file ends before the numbers"},
		{"Matrix Market", mm + "%\n3 5\n", pgsvi.ErrShape,
			`line 3: the number of entries is ""`},
		{"Matrix Market", mm + "3 5 1 1\n", pgsvi.ErrShape, `line 2: unexpected "1" after`},
		{"Matrix Market", mm + "0 5 0\n", pgsvi.ErrEmpty, "has no documents"},
		{"Matrix Market", mm + "3 5 1\n%\n1 6 1\n", pgsvi.ErrShape, `line 4: the word is "6"`},
		{"Matrix Market", mm + "3 5 9999999999\n1 5 1\n", pgsvi.ErrShape,
			"the file ends after entry 1"},
		{"Matrix Market", strings.Replace(mm, "integer", "pattern", 1) + "3 5 1\n1 5 1\n",
			pgsvi.ErrShape, "line 3: the number of fields is 3 instead of 2"},
	} {
		f := corpusFormats[slices.IndexFunc(corpusFormats,
			func(f corpusFormat) bool { return f.name == c.format })]
		got, err := f.read(strings.NewReader(c.in), 9)
		if got != nil {
			t.Errorf("%s, %.40q: a corpus besides the error", c.format, c.in)
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") || len(err.Error()) > 200 {
			t.Errorf("%s, %.40q: error %q, want %q that is %q", c.format, c.in, err, c.says, c.want)
		}
	}
	for _, f := range corpusFormats {
		var out bytes.Buffer
		if err := f.write(&out, smallCorpus()); err != nil {
			t.Fatal(err)
		}
		part := out.Bytes()[:out.Len()-6]
		if _, err := f.read(
			io.MultiReader(bytes.NewReader(part), iotest.ErrReader(io.ErrClosedPipe)),
			0); !errors.Is(err, io.ErrClosedPipe) ||
			!strings.Contains(err.Error(), f.name+", line ") {
			t.Errorf("%s of a failing reader: %v", f.name, err)
		}
		if err := f.write(failingWriter{}, smallCorpus()); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s to a failing writer: %v", f.name, err)
		}
	}
	most := int64(math.MaxInt32)
	for _, terms := range []int{-1, int(most + 1)} {
		if _, err := ReadLDAC(strings.NewReader("0\n"), terms); !errors.Is(err, pgsvi.ErrParam) {
			t.Errorf("%d terms: %v", terms, err)
		}
	}
}

// TestReadCorpusMemory checks that the memory depends on the entries, whatever the header declares.
func TestReadCorpusMemory(t *testing.T) {
	for in, read := range map[string]func(io.Reader) (*pgsvi.Corpus, error){
		"2000000000\n2000000000\n9000000000000000000\n1 1 1\n": ReadUCI,
		"60000\n2000000000\n1\n60000 1 1\n":                    ReadUCI,
		"1000000000\n2000000000\n1\n999999999 1 1\n":           ReadUCI,
		"%%MatrixMarket matrix coordinate real general\n2000000000 2000000000 2000000000\n1 " +
			"2000000000 1\n": ReadMatrixMarket,
		"1 2000000000:1\n": func(r io.Reader) (*pgsvi.Corpus, error) { return ReadLDAC(r, 0) },
		"2147483647 1:1\n": func(r io.Reader) (*pgsvi.Corpus, error) { return ReadLDAC(r, 0) },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read(strings.NewReader(in))
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%.50q: %d bytes", in, n)
		}
	}
}

func TestWriteCorpus(t *testing.T) {
	c := smallCorpus()
	c.Docs[0].Counts[1] = 1234567 // not 1.234567e+06
	for name, want := range map[string]string{
		"lda-c":       "2 0:3 2:1234567\n0\n3 0:2 1:12 4:1\n",
		"UCI docword": "3\n5\n5\n1 1 3\n1 3 1234567\n3 1 2\n3 2 12\n3 5 1\n",
		"Matrix Market": "%%MatrixMarket matrix coordinate integer general\n3 5 5\n1 1 3\n1 3 " +
			"1234567\n3 1 2\n3 2 12\n3 5 1\n",
	} {
		f := corpusFormats[slices.IndexFunc(corpusFormats,
			func(f corpusFormat) bool { return f.name == name })]
		var out strings.Builder
		if err := f.write(&out, c); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
	// Any count must be restored exactly.
	c.Docs[0].Counts = []float64{0.1, 1e300}
	c.Docs[2].Counts = []float64{5e-324, 1 << 53, 1. / 3}
	for _, f := range corpusFormats {
		var out bytes.Buffer
		if err := f.write(&out, c); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "integer") {
			t.Errorf("%s: reals as integers", f.name)
		}
		if got, err := f.read(&out, c.Terms); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s: %+v, %v", f.name, got, err)
		}
	}
}

func TestVocab(t *testing.T) {
	want := []string{"alpha", "new york", "été", "d"}
	for name, in := range map[string]string{
		"plain": "alpha\nnew york\nété\nd\n",
		"space": "\ufeffalpha \r\n new york\r\nété\r\nd\r\n\r\n\n",
		"gzip":  string(zipped([]byte("alpha\nnew york\nété\nd"))),
	} {
		if got, err := ReadVocab(strings.NewReader(in)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	var out bytes.Buffer
	if err := WriteVocab(&out, want); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadVocab(&out); err != nil || !slices.Equal(got, want) {
		t.Errorf("round trip: %q, %v", got, err)
	}
	for in, want := range map[string]error{"": pgsvi.ErrEmpty, "\n \n": pgsvi.ErrEmpty,
		"a\n\nb\n": pgsvi.ErrShape, "\na\n": pgsvi.ErrShape} {
		if got, err := ReadVocab(strings.NewReader(in)); got != nil || !errors.Is(err, want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	if _, err := ReadVocab(strings.NewReader("a\nb\n\n\nc\n")); err == nil ||
		!strings.Contains(err.Error(), "line 3") {
		t.Errorf("blank line 3: %v", err)
	}
	if _, err := ReadVocab(io.MultiReader(strings.NewReader("a\nb"),
		iotest.ErrReader(io.ErrClosedPipe))); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing reader: %v", err)
	}
	for _, bad := range []string{"", " a", "a\t", "a\nb", "\ufeffa", "\x1f\x8ba", "\r"} {
		out.Reset()
		if err := WriteVocab(&out, []string{bad, "fine"}); !errors.Is(err, pgsvi.ErrParam) ||
			out.Len() > 0 {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := WriteVocab(failingWriter{}, want); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing writer: %v", err)
	}
}

// fuzzCorpus checks that an accepted corpus is valid, is in proportion to the input, and is
// restored exactly by every format.
func fuzzCorpus(f *testing.F, format int, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
		f.Add(zipped([]byte(s)))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := corpusFormats[format].read(bytes.NewReader(in), 0)
		if err != nil {
			if c != nil || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("%v, error %q", c, err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(in, []byte("\x1f\x8b")) && len(c.Docs) > 1<<16+16*len(in) {
			t.Fatalf("%d documents of %d bytes", len(c.Docs), len(in))
		}
		if len(c.Docs) > 1<<12 {
			return // for speed
		}
		if c.Terms == 0 || format == 0 && corpusEntries(c) == 0 {
			return // ReadLDAC, told 0, would look for the largest
		}
		for _, g := range corpusFormats {
			var out bytes.Buffer
			if err := g.write(&out, c); err != nil {
				t.Fatal(err)
			}
			if again, err := g.read(&out, c.Terms); err != nil || !reflect.DeepEqual(again, c) {
				t.Fatalf("%s: %v, error %v, want %v", g.name, again, err, c)
			}
		}
	})
}

func FuzzReadLDAC(f *testing.F) {
	fuzzCorpus(f, 0, "", "2 0:3 2:1\n0\n3 0:2 1:12 4:1\n", "2 5:1 5:2\n", "1 2147483646:1e300",
		"1 0:0x1p-2\r\n\n", "99 1:1", "1 1:nan", "1 1:-1")
}

func FuzzReadUCI(f *testing.F) {
	fuzzCorpus(f, 1, "", "3\n5\n5\n1 1 3\n1 3 1\n3 1 2\n3 2 12\n3 5 1\n",
		"2\n2\n2\n2 2 1\n1 1 .5\n", "1000000000\n1\n1\n1 1 1\n", "65000\n1\n1\n65000 1 1",
		"1\n1\n2\n1 1 1e308\n1 1 1e308\n")
}

func FuzzReadMatrixMarket(f *testing.F) {
	fuzzCorpus(f, 2, "",
		"%%MatrixMarket matrix coordinate integer general\n% c\n3 5 5\n1 1 3\n1 3 1\n3 1 2\n3 2 "+
			"12\n3 5 1\n", "%%MatrixMarket matrix coordinate pattern general\n2 2 2\n2 2\n1 1\n",
		"%%MatrixMarket matrix coordinate real general\n1000000000 1 1\n1 1 .5\n",
		"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 0\n")
}

func FuzzReadVocab(f *testing.F) {
	for _, s := range []string{"", "alpha\nnew york\nété\nd\n", "\ufeffa \r\n\n\n", "a\n\nb",
		"\u00a0\n", "\ufeff\ufeff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		vocab, err := ReadVocab(bytes.NewReader(in))
		if err != nil {
			if vocab != nil || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("%q, error %q", vocab, err)
			}
			return
		}
		var out bytes.Buffer
		if err := WriteVocab(&out, vocab); err != nil {
			if strings.HasPrefix(vocab[0], "\ufeff") || strings.HasPrefix(vocab[0], "\x1f\x8b") {
				return
			}
			t.Fatal(err)
		}
		if again, err := ReadVocab(&out); err != nil || !slices.Equal(again, vocab) {
			t.Fatalf("%q, error %v, want %q", again, err, vocab)
		}
	})
}

// unigramScore returns the mean negative log-probability of the second halves of the test
// documents. prob is the probability of a word, given its frequency among all tokens of the
// training documents and the number of terms.
func unigramScore(train, test *pgsvi.Corpus,
	prob func(freq, total, terms float64) float64) float64 {
	freq, total := train.TermFreq(), train.Tokens()
	var score, tokens float64
	for _, d := range test.Docs {
		_, second := d.Halves()
		for k, w := range second.Words {
			score -= second.Counts[k] * math.Log(prob(freq[w], total, float64(train.Terms)))
		}
		tokens += second.Tokens()
	}
	return score / tokens
}

// Two ways to give positive probability to words that the training documents lack.
func mixedUnigram(freq, total, terms float64) float64  { return 0.99*freq/total + 0.01/terms }
func addOneUnigram(freq, total, terms float64) float64 { return (freq + 1) / (total + terms) }

func TestSharedCorpora(t *testing.T) {
	for _, want := range []struct {
		name                 string
		docs, terms, entries int
		tokens               float64
		mixed, addOne        float64
	}{
		{"ap", 2246, 10473, 302031, 435838, 8.4776, 8.450},
		{"nips", 1500, 12419, 746316, 1932365, 7.9162, 7.914},
	} {
		c := loadCorpus(t, want.name)
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		if len(c.Docs) != want.docs || c.Terms != want.terms || len(c.Vocab) != want.terms ||
			corpusEntries(c) != want.entries || c.Tokens() != want.tokens {
			t.Errorf("%s: %d documents, %d terms, %d words, %d entries, %v tokens", want.name,
				len(c.Docs), c.Terms, len(c.Vocab), corpusEntries(c), c.Tokens())
		}
		even, odd := c.EvenOdd()
		mixed, addOne := unigramScore(even, odd, mixedUnigram),
			unigramScore(even, odd, addOneUnigram)
		if t.Logf("%s: the unigram scores %.5f, with one added %.5f", want.name, mixed,
			addOne); math.Abs(mixed-want.mixed) > 1e-4 || math.Abs(addOne-want.addOne) > 1e-3 {
			t.Errorf("%s: want %.4f and %.3f", want.name, want.mixed, want.addOne)
		}
		vocab := c.Vocab
		c.Vocab = nil
		for _, f := range corpusFormats {
			var out bytes.Buffer
			if err := f.write(&out, c); err != nil {
				t.Fatal(err)
			}
			if again, err := f.read(&out, c.Terms); err != nil || !reflect.DeepEqual(again, c) {
				t.Errorf("%s: no round trip through %s: %v", want.name, f.name, err)
			}
		}
		c.Vocab = vocab
	}
}

func BenchmarkReadCorpus(b *testing.B) {
	c := &pgsvi.Corpus{Terms: 20000}
	for i := range 2000 {
		var d pgsvi.Document
		for k := range 150 {
			d.Words, d.Counts = append(d.Words, 130*k+(i*k)%97),
				append(d.Counts, float64(1+(i*k)%11/9))
		}
		c.Docs = append(c.Docs, d)
	}
	for _, f := range corpusFormats {
		var out bytes.Buffer
		if err := f.write(&out, c); err != nil {
			b.Fatal(err)
		}
		b.Run(strings.ReplaceAll(f.name, " ", ""), func(b *testing.B) {
			b.SetBytes(int64(out.Len()))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.read(bytes.NewReader(out.Bytes()), 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, file := range map[string]string{"ap": "ap/ap.dat.gz",
		"nips": "nips/docword.nips.txt.gz"} {
		b.Run(name, func(b *testing.B) {
			text, err := io.ReadAll(testkit.Open(b, filepath.Join(testkit.SharedData(b), file)))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if name == "ap" {
					_, err = ReadLDAC(bytes.NewReader(text), 0)
				} else {
					_, err = ReadUCI(bytes.NewReader(text))
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadVocab(b *testing.B) {
	var text bytes.Buffer
	for i := range 20000 {
		fmt.Fprintf(&text, "word%d\n", i)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, err := ReadVocab(bytes.NewReader(text.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}
