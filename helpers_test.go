package pgsvi

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/save"
)

// shorter returns few under -short, and many otherwise.
func shorter[T any](many, few T) T {
	if testing.Short() {
		return few
	}
	return many
}

// smallCorpus has a document without words and a word without documents.
func smallCorpus() *Corpus {
	return &Corpus{Terms: 5, Docs: []Document{
		{Words: []int{0, 2}, Counts: []float64{3, 1}},
		{},
		{Words: []int{0, 1, 4}, Counts: []float64{2, 12, 1}},
	}}
}

// collectRows returns copies of the rows before an error, and the error.
func collectRows(rows iter.Seq2[Row, error]) (all []Row, err error) {
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

// sameRows reports whether rows are equal to the last bit, a nil Ind and an empty one being different.
func sameRows(a, b []Row) bool {
	bits := func(x []float64) (u []uint64) {
		for _, v := range x {
			u = append(u, math.Float64bits(v))
		}
		return u
	}
	return slices.EqualFunc(a, b, func(a, b Row) bool {
		return (a.Ind == nil) == (b.Ind == nil) && slices.Equal(a.Ind, b.Ind) && slices.Equal(bits(a.Val), bits(b.Val)) &&
			slices.Equal(bits([]float64{a.Y, a.Offset, a.Weight}), bits([]float64{b.Y, b.Offset, b.Weight}))
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

// sharedData returns the folder of PGSVI_DATA, or skips the test if it is not
// set. A file missing from it is a failure.
func sharedData(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("PGSVI_DATA")
	if dir == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	return dir
}

func open(t testing.TB, path string) io.Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if !strings.HasSuffix(path, ".gz") {
		return f
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// plusMinus is a label.
func plusMinus(positive bool) float64 {
	if positive {
		return 1
	}
	return -1
}

// inCoords returns o with λ in the coordinates c.
func inCoords(o Objective[*Gaussian], c Coordinates) Objective[*Gaussian] {
	o.Init = o.Init.In(c)
	return o
}

// qOf returns q(z|λ) at the state that a run of an Objective reached.
func qOf[Q Dist](res *Result) Q { return res.Stepper.(*objectiveStepper).dist().Clone().(Q) }

// elboOf evaluates a state by hand; a nil rng is one of a fixed seed.
func elboOf(st Stepper, rng *rand.Rand) (float64, error) {
	e, err := st.Evaluate(context.Background(), &Env{Rng: rng})
	return e.ELBO, err
}

// pgSVI returns the Solver of PG-SVI as published, for n data: the constant step
// size β = betaN/n and reshuffled mini-batches of the given size, for 10 passes.
func pgSVI(n int, betaN float64, batch int) *Solver {
	return &Solver{StepSize: ConstantStep(betaN / float64(n)), BatchSize: batch, MaxPasses: 10}
}

// algOf returns the algebra of a state by sites.
func algOf[A algebra](st State) A { return st.(*siteStepper).alg.(A) }

// overWeights returns a Stepper of g over its weights, whatever g would choose.
func overWeights(t testing.TB, g *GLM) *siteStepper {
	t.Helper()
	alg, err := newWeightAlgebra(&g.linearModel, crew{})
	if err != nil {
		t.Fatal(err)
	}
	return stepperOver(t, g, alg)
}

// overRows returns a Stepper of g over its linear predictors, whatever g would choose.
func overRows(t testing.TB, g *GLM) *siteStepper {
	t.Helper()
	alg, err := newDualAlgebra(&g.linearModel, g.gram(), crew{})
	if err != nil {
		t.Fatal(err)
	}
	return stepperOver(t, g, alg)
}

func stepperOver(t testing.TB, g *GLM, alg algebra) *siteStepper {
	t.Helper()
	s, err := newSiteStepper(g.terms, g.opt.Estimator, g.opt.MeanUpdate)
	if err != nil {
		t.Fatal(err)
	}
	s.alg, s.model = alg, &g.linearModel
	return s
}

// bodyOf returns the body of a file of that kind.
func bodyOf(t testing.TB, kind save.Kind, file string) string {
	t.Helper()
	body, err := kind.Read(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// fileOf returns a file of that kind.
func fileOf(t testing.TB, kind save.Kind, body string) string {
	t.Helper()
	var file strings.Builder
	if err := kind.Write(&file, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return file.String()
}

// changed returns a file with something else in its body.
func changed(t testing.TB, kind save.Kind, file, old, new string) string {
	t.Helper()
	body := bodyOf(t, kind, file)
	if !strings.Contains(body, old) {
		t.Fatalf("no %q in %.2000s", old, body)
	}
	return fileOf(t, kind, strings.Replace(body, old, new, 1))
}

// prefixedOnce reports whether an error has the name of the package once, where it begins.
func prefixedOnce(err error) bool {
	return strings.HasPrefix(err.Error(), "pgsvi: ") && strings.Count(err.Error(), "pgsvi: ") == 1
}

// fullDisk is a writer that has room for so many bytes.
type fullDisk int

var errFullDisk = errors.New("full")

func (w fullDisk) Write(b []byte) (int, error) {
	if len(b) > int(w) {
		return int(w), errFullDisk
	}
	return len(b), nil
}
