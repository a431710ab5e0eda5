package data

import (
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// smallCorpus has a document without words and a word without documents.
func smallCorpus() *pgsvi.Corpus {
	return &pgsvi.Corpus{Terms: 5, Docs: []pgsvi.Document{
		{Words: []int{0, 2}, Counts: []float64{3, 1}},
		{},
		{Words: []int{0, 1, 4}, Counts: []float64{2, 12, 1}},
	}}
}

// collectRows returns copies of the rows before an error, and the error.
func collectRows(rows iter.Seq2[pgsvi.Row, error]) (all []pgsvi.Row, err error) {
	for row, err := range rows {
		if err != nil {
			return all, err
		}
		row.Val = append([]float64{}, row.Val...)
		if row.Ind != nil {
			row.Ind = append([]int{}, row.Ind...)
		}
		all = append(all, row)
	}
	return all, nil
}

// sameRows reports whether rows are exactly equal. A nil Ind differs from an empty Ind.
func sameRows(a, b []pgsvi.Row) bool {
	bits := func(x []float64) (u []uint64) {
		for _, v := range x {
			u = append(u, math.Float64bits(v))
		}
		return u
	}
	return slices.EqualFunc(a, b, func(a, b pgsvi.Row) bool {
		return (a.Ind == nil) == (b.Ind == nil) && slices.Equal(a.Ind, b.Ind) &&
			slices.Equal(bits(a.Val), bits(b.Val)) &&
			slices.Equal(bits([]float64{a.Y, a.Offset, a.Weight}),
				bits([]float64{b.Y, b.Offset, b.Weight}))
	})
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func testRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 11)) }

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

// loadCorpus reads one of the shared corpora.
func loadCorpus(t testing.TB, name string) *pgsvi.Corpus {
	t.Helper()
	dir := filepath.Join(testkit.SharedData(t), name)
	file := func(name string) io.Reader {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	words := map[string]string{"ap": "vocab.txt", "nips": "vocab.nips.txt"}[name]
	vocab, err := ReadVocab(file(words))
	if err != nil {
		t.Fatal(err)
	}
	var c *pgsvi.Corpus
	if name == "ap" {
		c, err = ReadLDAC(file("ap.dat.gz"), len(vocab))
	} else {
		c, err = ReadUCI(file("docword.nips.txt.gz"))
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Vocab = vocab
	return c
}

// peopleEncoder returns an Encoder learned from three rows with a number, a category and two
// labels.
func peopleEncoder() *Encoder {
	t, err := Read(strings.NewReader("age,colour,y\n1,red,no\n2,blue,yes\n3,red,no\n"),
		"people.csv")
	if err != nil {
		panic(err)
	}
	e, err := t.Encoder(Outcome("y").Positive("yes"))
	if err != nil {
		panic(err)
	}
	return e
}

// encodeAll reads a table and encodes it with all suggested decisions.
func encodeAll(r io.Reader) (*Table, *Data, error) {
	t, err := Read(r, "t")
	if err != nil {
		return nil, nil, err
	}
	names := t.Columns()
	e, err := t.Encoder(t.Suggest(names[len(names)-1]).Columns()...)
	if err != nil {
		return t, nil, nil // the table has to change; Suggest reports it
	}
	d, err := e.Data(t)
	return t, d, err
}

// reloaded returns p after saving and loading it.
func reloaded(t *testing.T, p *Predictor) *Predictor {
	t.Helper()
	var file strings.Builder
	if err := p.Save(&file); err != nil {
		t.Fatal(err)
	}
	q, err := LoadPredictor(strings.NewReader(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	return q
}
