package pgsvi

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// These are short names for helpers that the tests of several packages share.
var (
	long          = testkit.Long
	notShort      = testkit.NotShort
	testRand      = testkit.Rand
	sharedData    = testkit.SharedData
	open          = testkit.Open
	plusMinus     = testkit.PlusMinus
	prefixedOnce  = testkit.PrefixedOnce
	readTruthJSON = testkit.ReadTruthJSON
	normalMatrix  = testkit.NormalMatrix
	number        = testkit.Number
	readCSV       = testkit.ReadCSV
	readLines     = testkit.ReadLines
	bodyOf        = testkit.BodyOf
	fileOf        = testkit.FileOf
	changed       = testkit.Changed
	normals       = testkit.Normals
	randomCov     = testkit.RandomCov
	checkClose    = testkit.CheckClose
	checkNear     = testkit.CheckNear
	numGrad       = testkit.NumGrad
)

// longer returns many with -long, and few otherwise.
func longer[T any](many, few T) T { return testkit.Longer(many, few) }

// must returns v; it panics on an error.
func must[T any](v T, err error) T { return testkit.Must(v, err) }

// shorter returns few with -short, and many otherwise.
func shorter[T any](many, few T) T { return testkit.Shorter(many, few) }

// few returns the first n cases with -short, and all of them otherwise.
func few[T any](cases []T, n int) []T { return testkit.Few(cases, n) }

// smallCorpus returns a corpus with a document without words and a word without documents.
func smallCorpus() *Corpus {
	return &Corpus{Terms: 5, Docs: []Document{
		{Words: []int{0, 2}, Counts: []float64{3, 1}},
		{},
		{Words: []int{0, 1, 4}, Counts: []float64{2, 12, 1}},
	}}
}

// elboOf evaluates the ELBO of a state. A nil rng means a fixed seed.
func elboOf(st Stepper, rng *rand.Rand) (float64, error) {
	e, err := st.Evaluate(context.Background(), &Env{Rng: rng})
	return e.ELBO, err
}

// algOf returns the site algebra of a state.
func algOf[A site.Algebra](st Stepper) A { return st.(engined).Algebra().(A) }

// engined is a Stepper that consists of sites.
type engined interface{ Algebra() site.Algebra }

// overWeights returns a Stepper of g over its weights, even if g would choose another
// representation.
func overWeights(t testing.TB, g *GLM) *siteStepper {
	t.Helper()
	alg, err := site.NewWeightAlgebra(&g.lin, term.Crew{})
	if err != nil {
		t.Fatal(err)
	}
	return stepperOver(t, g, alg)
}

func stepperOver(t testing.TB, g *GLM, alg site.Algebra) *siteStepper {
	t.Helper()
	s, err := newSiteStepper(g.lin.Terms, g.opt.Estimator, g.opt.Coordinates)
	if err != nil {
		t.Fatal(err)
	}
	s.alg, s.identify = alg, g.lin.Digest
	return s
}

// fullDisk is a writer with room for the given number of bytes.
type fullDisk int

var errFullDisk = errors.New("full")

func (w fullDisk) Write(b []byte) (int, error) {
	if len(b) > int(w) {
		return int(w), errFullDisk
	}
	return len(b), nil
}

// learnerAs returns a Learner as its concrete type.
func learnerAs[L, M, P any](l Learner[M, P], err error) (L, error) {
	as, _ := any(l).(L)
	return as, err
}

// split is a data set divided into training and test rows.
type split struct {
	x, xtest *mat.Dense
	y, ytest []float64
}

// loadUCI reads sonar or ionosphere from testdata.
func loadUCI(t testing.TB, name string) (s split) {
	t.Helper()
	s.x, s.y, s.xtest, s.ytest = testkit.UCI(t, ".", name)
	return s
}

// loadUSPS reads two digits of USPS in the resampled order, the smaller as +1.
func loadUSPS(t testing.TB, small, large float64) (s split) {
	t.Helper()
	s.x, s.y, s.xtest, s.ytest = testkit.USPS(t, small, large)
	return s
}

// The tests read their data with these functions of a few lines each. Package data reads such files
// for users, but it imports this package, so the tests cannot import it.

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
		d.Words, d.Counts = append(d.Words, int(number(t, f[1]))-1),
			append(d.Counts, number(t, f[2]))
	}
	return c
}

// testFacts returns the Facts of l.
func testFacts(l Likelihood) Facts {
	if f, ok := l.(Factual); ok {
		return f.Facts()
	}
	return Facts{}
}

func mustGLM(t testing.TB, x mat.Matrix, y []float64, lik Likelihood, opt GLMOptions) *GLM {
	t.Helper()
	g, err := NewGLM(x, y, lik, &opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
