package pgsvi

import (
	"bufio"
	"encoding/csv"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// What the tests read, a few lines each: package data, which reads such files for
// users, imports this package and cannot be imported by its tests.

func number(t testing.TB, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func readLines(t testing.TB, r io.Reader) (lines [][]string) {
	t.Helper()
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) > 0 {
			lines = append(lines, f)
		}
	}
	if sc.Err() != nil {
		t.Fatal(sc.Err())
	}
	return lines
}

func readCSV(t testing.TB, r io.Reader) (*mat.Dense, []float64) {
	t.Helper()
	records, err := csv.NewReader(r).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := strconv.ParseFloat(records[0][0], 64); err != nil {
		records = records[1:]
	}
	d := len(records[0]) - 1
	x, y := mat.NewDense(len(records), d, nil), make([]float64, len(records))
	for i, r := range records {
		for j := range d {
			x.Set(i, j, number(t, r[j]))
		}
		y[i] = number(t, r[d])
	}
	return x, y
}

func readIndex(t testing.TB, r io.Reader) (index []int) {
	t.Helper()
	for _, f := range readLines(t, r) {
		index = append(index, int(number(t, f[0])))
	}
	return index
}

func selectRows(x mat.Matrix, y []float64, index []int) (*mat.Dense, []float64) {
	_, d := x.Dims()
	xs, ys := mat.NewDense(len(index), d, nil), make([]float64, len(index))
	for i, r := range index {
		for j := range d {
			xs.Set(i, j, x.At(r, j))
		}
		ys[i] = y[r]
	}
	return xs, ys
}

func readLIBSVM(t testing.TB, r io.Reader, cols int) (*Sparse, []float64) {
	t.Helper()
	x, y := NewSparse(cols), []float64{}
	for _, f := range readLines(t, r) {
		var ind []int
		var val []float64
		for _, p := range f[1:] {
			i, v, _ := strings.Cut(p, ":")
			ind, val = append(ind, int(number(t, i))-1), append(val, number(t, v))
		}
		if err := x.Append(ind, val); err != nil {
			t.Fatal(err)
		}
		y = append(y, number(t, f[0]))
	}
	return x, y
}

// loadCorpus reads AP or NIPS.
func loadCorpus(t testing.TB, name string) *Corpus {
	t.Helper()
	dir := filepath.Join(sharedData(t), name)
	words := map[string]string{"ap": "vocab.txt", "nips": "vocab.nips.txt"}[name]
	c := new(Corpus)
	for _, f := range readLines(t, open(t, filepath.Join(dir, words))) {
		c.Vocab = append(c.Vocab, f[0])
	}
	c.Terms = len(c.Vocab)
	if name == "ap" {
		for _, f := range readLines(t, open(t, filepath.Join(dir, "ap.dat.gz"))) {
			count := make(map[int]float64)
			for _, p := range f[1:] {
				w, n, _ := strings.Cut(p, ":")
				count[int(number(t, w))] += number(t, n)
			}
			c.Docs = append(c.Docs, sortedDoc(count))
		}
		return c
	}
	lines := readLines(t, open(t, filepath.Join(dir, "docword.nips.txt.gz")))
	c.Docs = make([]Document, int(number(t, lines[0][0])))
	for _, f := range lines[3:] {
		d := &c.Docs[int(number(t, f[0]))-1]
		d.Words, d.Counts = append(d.Words, int(number(t, f[1]))-1), append(d.Counts, number(t, f[2]))
	}
	return c
}
