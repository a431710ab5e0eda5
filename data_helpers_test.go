package pgsvi

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// split is a data set divided into training and test rows.
type split struct {
	x, xtest *mat.Dense
	y, ytest []float64
}

// loadUCI reads sonar or ionosphere from testdata.
func loadUCI(t testing.TB, name string) split {
	t.Helper()
	dir := filepath.Join("testdata", name)
	x, y := readCSV(t, open(t, filepath.Join(dir, name+".csv")))
	part := func(file string) (*mat.Dense, []float64) {
		return selectRows(x, y, readIndex(t, open(t, filepath.Join(dir, file))))
	}
	var s split
	s.x, s.y = part("train_index.txt")
	s.xtest, s.ytest = part("test_index.txt")
	return s
}

// loadUSPS reads two digits of USPS in the resampled order, the smaller as +1.
func loadUSPS(t testing.TB, small, large float64) split {
	t.Helper()
	dir := filepath.Join(sharedData(t), "usps")
	var rows [][]float64
	for _, name := range []string{"zip.train.gz", "zip.test.gz"} {
		sc := bufio.NewScanner(open(t, filepath.Join(dir, name)))
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var row []float64
			for _, f := range strings.Fields(sc.Text()) {
				v, err := strconv.ParseFloat(f, 64)
				if err != nil {
					t.Fatal(err)
				}
				row = append(row, v)
			}
			rows = append(rows, row)
		}
		if sc.Err() != nil {
			t.Fatal(sc.Err())
		}
	}
	order := readIndex(t, open(t, filepath.Join(dir, "standin_resampled_index.txt")))
	var train, test, ytrain, ytest []float64
	for i, r := range order {
		row := rows[r]
		y := 1.0
		switch row[0] {
		case small:
		case large:
			y = -1
		default:
			continue
		}
		if i < 4649 {
			train, ytrain = append(train, row[1:]...), append(ytrain, y)
		} else {
			test, ytest = append(test, row[1:]...), append(ytest, y)
		}
	}
	return split{
		x: mat.NewDense(len(ytrain), 256, train), y: ytrain,
		xtest: mat.NewDense(len(ytest), 256, test), ytest: ytest,
	}
}

// readTruth reads a reference table, without its header, as columns.
func readTruth(t testing.TB, name string) [][]float64 {
	t.Helper()
	r := csv.NewReader(open(t, filepath.Join(sharedData(t), "..", "truth", name)))
	records, err := r.ReadAll()
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

func readTruthJSON(t testing.TB, name string, v any) {
	t.Helper()
	if err := json.NewDecoder(open(t, filepath.Join(sharedData(t), "..", "truth", name))).Decode(v); err != nil {
		t.Fatal(err)
	}
}

// gpCase is a data set with the hyper-parameters and jitter of the paper.
type gpCase struct {
	name                      string
	logLength, logScale, jitt float64
	load                      func(t testing.TB) split
}

var gpCases = []gpCase{
	{"ionosphere", 1, 2.5, 1e-2, func(t testing.TB) split { return loadUCI(t, "ionosphere") }},
	{"sonar", -1, 6, 1e-4, func(t testing.TB) split { return loadUCI(t, "sonar") }},
	{"usps_3v5", 2.5, 5, 1e-4, func(t testing.TB) split { return loadUSPS(t, 3, 5) }},
	{"usps_2v4", 2.5, 5, 1e-4, func(t testing.TB) split { return loadUSPS(t, 2, 4) }},
}

func (c gpCase) model(t testing.TB, s split) *GP {
	t.Helper()
	gp, err := NewGP(s.x, s.y, SquaredExp{Scale: math.Exp(c.logScale), Length: math.Exp(c.logLength)}, BernoulliLogit{}, &GPOptions{Jitter: c.jitt})
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

// maxRel returns the largest difference of a and b relative to the largest element of b.
func maxRel(a, b []float64) float64 {
	var diff, size float64
	for i := range b {
		diff = math.Max(diff, math.Abs(a[i]-b[i]))
		size = math.Max(size, math.Abs(b[i]))
	}
	return diff / size
}
