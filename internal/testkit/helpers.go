package testkit

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/mat"
)

// Every package whose tests import this package has these flags.
var (
	// runLong makes slow tests run at full size, and enables the tests that are always slow.
	runLong = flag.Bool("long", false, "run tests at their full size, and those that are long at "+
		"any")

	seeds = flag.Int("seeds", 0, "number of random problems; 0 means some, and fewer under -short")
	from  = flag.Int("from", 0, "the first seed")
)

// Tests use little memory, so a larger heap saves garbage collections and a tenth of the time.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// IsLong reports whether tests run at their full size.
func IsLong() bool { return *runLong }

// Long skips a test that takes many seconds, unless the flag -long is set.
func Long(t *testing.T) {
	t.Helper()
	if !*runLong {
		t.Skip("takes many seconds; go test -long runs it")
	}
}

// NotShort skips a test that takes seconds if the flag -short is set.
func NotShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
}

// Longer returns many under -long and few otherwise.
func Longer[T any](many, few T) T {
	if *runLong {
		return many
	}
	return few
}

// Shorter returns few under -short and many otherwise.
func Shorter[T any](many, few T) T {
	if testing.Short() {
		return few
	}
	return many
}

// Few returns the first n cases under -short, and all cases otherwise.
func Few[T any](cases []T, n int) []T { return Shorter(cases, cases[:n]) }

// GivenSeeds returns the number of random problems set by -seeds, or 0 if the flag is missing.
func GivenSeeds() int { return *seeds }

// FirstSeed returns the seed of the first random problem.
func FirstSeed() uint64 { return uint64(*from) }

// Seeds returns the number of random problems for a test. The default is n, or an eighth of n
// under -short.
func Seeds(n int) uint64 {
	if testing.Short() {
		n /= 8
	}
	if *seeds > 0 {
		n = *seeds
	}
	return uint64(n)
}

// Rand returns a random generator for the given seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 11)) }

// NormalMatrix returns a matrix with independent entries from N(0, 1).
func NormalMatrix(rng *rand.Rand, rows, cols int) *mat.Dense {
	x := mat.NewDense(rows, cols, nil)
	for i := range rows {
		for j := range cols {
			x.Set(i, j, rng.NormFloat64())
		}
	}
	return x
}

// MaxRel returns the largest difference between a and b, relative to the largest element of b.
func MaxRel(a, b []float64) float64 {
	var diff, size float64
	for i := range b {
		diff = math.Max(diff, math.Abs(a[i]-b[i]))
		size = math.Max(size, math.Abs(b[i]))
	}
	return diff / size
}

// MustPanic fails the test if f does not panic.
func MustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

// PrefixedOnce reports whether the text of err contains the name of the library exactly once, at
// the beginning.
func PrefixedOnce(err error) bool {
	return strings.HasPrefix(err.Error(), "pgsvi: ") && strings.Count(err.Error(), "pgsvi: ") == 1
}

// SharedData returns the folder in PGSVI_DATA, or skips the test if the variable is not set. A
// test fails if the folder lacks a file.
func SharedData(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("PGSVI_DATA")
	if dir == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	return dir
}

// Open returns the contents of a file. It unpacks files whose names end in .gz.
func Open(t testing.TB, path string) io.Reader {
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

// ReadTruth returns the columns of a reference table, without the header.
func ReadTruth(t testing.TB, name string) [][]float64 {
	t.Helper()
	records, err := csv.NewReader(Open(t, filepath.Join(SharedData(t), "..", "truth",
		name))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	cols := make([][]float64, len(records[0]))
	for _, rec := range records[1:] {
		for j, f := range rec {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			cols[j] = append(cols[j], v)
		}
	}
	return cols
}

// ReadTruthJSON reads a reference file into v.
func ReadTruthJSON(t testing.TB, name string, v any) {
	t.Helper()
	r := Open(t, filepath.Join(SharedData(t), "..", "truth", name))
	if err := json.NewDecoder(r).Decode(v); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", name, err))
	}
}

// DeclaredLikelihoods parses the package in dir and returns the names of its exported types that
// have a method LogProb of two numbers.
func DeclaredLikelihoods(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || fn.Name.Name != "LogProb" ||
				fn.Type.Params.NumFields() != 2 {
				continue
			}
			if arg, ok := fn.Type.Params.List[0].Type.(*ast.Ident); !ok || arg.Name != "float64" {
				continue
			}
			recv := fn.Recv.List[0].Type
			if star, ok := recv.(*ast.StarExpr); ok {
				recv = star.X
			}
			if id, ok := recv.(*ast.Ident); ok && id.IsExported() {
				names = append(names, id.Name)
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("no likelihood in %s", dir)
	}
	return names
}

// AllFinite reports whether no element of x is NaN or infinite.
func AllFinite(x *mat.Dense) bool {
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	for _, v := range x.RawMatrix().Data {
		if !finite(v) {
			return false
		}
	}
	return true
}

// Reread saves p and returns the value that load reads from the file.
func Reread[P Saver](t *testing.T, p P, load func(io.Reader) (P,
	error)) P {
	t.Helper()
	var b bytes.Buffer
	if err := p.Save(&b); err != nil {
		t.Fatal(err)
	}
	q, err := load(&b)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// Kind returns the kind of a file with the given name, in the first version of its format.
func Kind(name string) save.Kind { return save.Kind{Name: name, Version: 1} }

// BodyOf returns the body of a file of the given kind.
func BodyOf(t testing.TB, kind save.Kind, file string) string {
	t.Helper()
	body, err := kind.Read(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// FileOf returns a file of the given kind with the given body.
func FileOf(t testing.TB, kind save.Kind, body string) string {
	t.Helper()
	var file strings.Builder
	if err := kind.Write(&file, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return file.String()
}

// Changed returns a copy of a file whose body has the text new instead of old.
func Changed(t testing.TB, kind save.Kind, file, old, new string) string {
	t.Helper()
	body := BodyOf(t, kind, file)
	if !strings.Contains(body, old) {
		t.Fatalf("no %q in %.2000s", old, body)
	}
	return FileOf(t, kind, strings.Replace(body, old, new, 1))
}

// PlusMinus returns the label 1 or −1.
func PlusMinus(positive bool) float64 {
	if positive {
		return 1
	}
	return -1
}

// UCI reads the training and test rows of sonar or ionosphere. The folder testdata of the module
// is below root.
func UCI(t testing.TB, root, name string) (x *mat.Dense, y []float64, xtest *mat.Dense,
	ytest []float64) {
	t.Helper()
	dir := filepath.Join(root, "testdata", name)
	all, labels := ReadCSV(t, Open(t, filepath.Join(dir, name+".csv")))
	part := func(file string) (*mat.Dense, []float64) {
		return SelectRows(all, labels, ReadIndex(t, Open(t, filepath.Join(dir, file))))
	}
	x, y = part("train_index.txt")
	xtest, ytest = part("test_index.txt")
	return x, y, xtest, ytest
}

// ReadCSV reads features from a CSV file, and responses from its last column.
func ReadCSV(t testing.TB, r io.Reader) (*mat.Dense, []float64) {
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
			x.Set(i, j, Number(t, r[j]))
		}
		y[i] = Number(t, r[d])
	}
	return x, y
}

// ReadIndex reads the first number of each line.
func ReadIndex(t testing.TB, r io.Reader) (index []int) {
	t.Helper()
	for _, f := range ReadLines(t, r) {
		index = append(index, int(Number(t, f[0])))
	}
	return index
}

// ReadLines returns the fields of each line that is not empty.
func ReadLines(t testing.TB, r io.Reader) (lines [][]string) {
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

// Number parses a number.
func Number(t testing.TB, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// SelectRows returns copies of the given rows of x and y.
func SelectRows(x mat.Matrix, y []float64, index []int) (*mat.Dense, []float64) {
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

// LeaveOut returns the data without row i.
func LeaveOut(x *mat.Dense, y []float64, i int) (*mat.Dense, []float64) {
	n, d := x.Dims()
	rest := mat.NewDense(n-1, d, nil)
	for r := range n - 1 {
		rest.SetRow(r, x.RawRowView(r+design.B2i(r >= i)))
	}
	return rest, slices.Delete(slices.Clone(y), i, i+1)
}

// RowOf returns row i of x as a matrix with a single row.
func RowOf(x *mat.Dense, i int) mat.Matrix {
	_, d := x.Dims()
	return x.Slice(i, i+1, 0, d)
}

// Influential returns twenty rows. Most of them have high influence, and the others spread over
// the rest.
func Influential(influence []float64) (rows []int) {
	order := make([]int, len(influence))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(influence[b], influence[a]) })
	for k := range 20 {
		rows = append(rows, order[k*k*(len(order)-1)/361])
	}
	return rows
}

// digits reads the rows of USPS once. Each row is a digit and 256 pixels.
var digits = sync.OnceValues(func() (rows [][]float64, err error) {
	for _, name := range []string{"zip.train.gz", "zip.test.gz"} {
		f, err := os.Open(filepath.Join(os.Getenv("PGSVI_DATA"), "usps", name))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		text, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(text)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var row []float64
			for _, field := range strings.Fields(lines.Text()) {
				v, err := strconv.ParseFloat(field, 64)
				if err != nil {
					return nil, err
				}
				row = append(row, v)
			}
			rows = append(rows, row)
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	return rows, nil
})

// USPS returns the training and test rows of two digits in the resampled order. The smaller digit
// has label +1.
func USPS(t testing.TB, small, large float64) (x *mat.Dense, y []float64, xtest *mat.Dense,
	ytest []float64) {
	t.Helper()
	index := filepath.Join(SharedData(t), "usps", "standin_resampled_index.txt")
	rows, err := digits()
	if err != nil {
		t.Fatal(err)
	}
	var train, test []float64
	for i, r := range ReadIndex(t, Open(t, index)) {
		digit, pixels := rows[r][0], rows[r][1:]
		switch label := PlusMinus(digit == small); {
		case digit != small && digit != large:
		case i < 4649:
			train, y = append(train, pixels...), append(y, label)
		default:
			test, ytest = append(test, pixels...), append(ytest, label)
		}
	}
	return mat.NewDense(len(y), 256, train), y, mat.NewDense(len(ytest), 256, test), ytest
}

// StructuredData returns n rows of d correlated features, a third of them zero, and labels.
func StructuredData(n, d int, seed uint64) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		common, eta := rng.NormFloat64(), rng.NormFloat64()
		for j := range d {
			if rng.IntN(3) > 0 {
				x.Set(i, j, 0.7*common+rng.NormFloat64())
			}
			eta += x.At(i, j) * math.Cos(float64(j))
		}
		y[i] = math.Copysign(1, eta)
	}
	return x, y
}

// Predictors returns Σ_j x_ij w_j for each row.
func Predictors(x mat.Matrix, w []float64) []float64 {
	n, d := x.Dims()
	eta := make([]float64, n)
	for i := range eta {
		for j := range d {
			eta[i] += x.At(i, j) * w[j]
		}
	}
	return eta
}

// A Saver can be saved to a file.
type Saver interface{ Save(w io.Writer) error }

// Again saves p and loads it. It fails the test if saving the result gives a different file.
func Again[P Saver](t testing.TB, name string, p P, load func(io.Reader) (P, error)) P {
	t.Helper()
	var file, second bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	q, err := load(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := q.Save(&second); err != nil || !bytes.Equal(file.Bytes(), second.Bytes()) {
		t.Errorf("%s: saved again it differs (%v)", name, err)
	}
	return q
}

// A Prediction has the methods that the prediction types of all models share.
type Prediction interface {
	Latent(mean, variance []float64) ([]float64, []float64)
	Moments(mean, variance []float64) ([]float64, []float64, error)
	LogProb(dst, y []float64) []float64
}

// Predictor is a posterior that predicts responses.
type Predictor[A Prediction] interface {
	Saver
	At(x mat.Matrix) A
}

// SamePredictions fails the test unless p, saved and loaded again, has exactly the same
// predictions.
func SamePredictions[A Prediction, P Predictor[A]](t *testing.T, name string, p P,
	load func(io.Reader) (P, error), x mat.Matrix, y []float64) {
	t.Helper()
	q := Again(t, name, p, load)
	says := func(p P) string {
		at := p.At(x)
		m, v := at.Latent(nil, nil)
		mean, variance, err := at.Moments(nil, nil)
		return fmt.Sprint(m, v, at.LogProb(nil, y), mean, variance, err)
	}
	if a, b := says(p), says(q); a != b {
		t.Errorf("%s: predicts %s, and loaded %s", name, a, b)
	}
}

// BenchLong skips a benchmark of a part of the library, unless the flag -long is set. The other
// benchmarks of the root fit whole models, and their table is for users.
func BenchLong(b *testing.B) {
	if !IsLong() {
		b.SkipNow()
	}
}

// Allocated returns the number of bytes that f allocates in total, which exceeds its peak.
// Allocations of other goroutines would count, so tests that use it do not run in parallel.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before) // counts every byte, unlike runtime/metrics
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Saved returns what the Save method of p writes.
func Saved(t testing.TB, p interface{ Save(w io.Writer) error }) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
