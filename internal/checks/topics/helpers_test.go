package topics

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// loadCorpus reads AP or NIPS.
func loadCorpus(t testing.TB, name string) *Corpus {
	t.Helper()
	dir := filepath.Join(testkit.SharedData(t), name)
	words := map[string]string{"ap": "vocab.txt", "nips": "vocab.nips.txt"}[name]
	c := new(Corpus)
	for _, f := range testkit.ReadLines(t, testkit.Open(t, filepath.Join(dir, words))) {
		c.Vocab = append(c.Vocab, f[0])
	}
	c.Terms = len(c.Vocab)
	if name == "ap" {
		for _, f := range testkit.ReadLines(t, testkit.Open(t, filepath.Join(dir, "ap.dat.gz"))) {
			count := make(map[int]float64)
			for _, p := range f[1:] {
				w, n, _ := strings.Cut(p, ":")
				count[int(testkit.Number(t, w))] += testkit.Number(t, n)
			}
			c.Docs = append(c.Docs, kit.SortedDoc(count))
		}
		return c
	}
	lines := testkit.ReadLines(t, testkit.Open(t, filepath.Join(dir, "docword.nips.txt.gz")))
	c.Docs = make([]Document, int(testkit.Number(t, lines[0][0])))
	for _, f := range lines[3:] {
		d := &c.Docs[int(testkit.Number(t, f[0]))-1]
		d.Words, d.Counts = append(d.Words, int(testkit.Number(t, f[1]))-1),
			append(d.Counts, testkit.Number(t, f[2]))
	}
	return c
}
