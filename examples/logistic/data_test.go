package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

func TestSigns(t *testing.T) {
	for _, c := range []struct {
		train, test, want []float64 // want is nil for an error
		positive          string
	}{
		{[]float64{-1, 1}, []float64{1, -1}, []float64{-1, 1, 1, -1}, "1"},
		{[]float64{1, 0}, []float64{1, 0}, []float64{1, -1, 1, -1}, "1"},
		{[]float64{1, 2}, nil, []float64{-1, 1}, "2"},
		{[]float64{1, 1}, nil, nil, ""},
		{[]float64{-1, 0, 1}, nil, nil, ""},
		{[]float64{-1, 1}, []float64{0, 1}, nil, ""},
	} {
		train, test := slices.Clone(c.train), slices.Clone(c.test)
		positive, err := signs(train, test)
		got := slices.Concat(train, test)
		if (err != nil) != (c.want == nil) || err == nil && (!slices.Equal(got, c.want) || positive != c.positive) {
			t.Errorf("labels %v and %v: %v, +1 is %s, error %v; want %v, %s", c.train, c.test, got, positive, err, c.want, c.positive)
		}
	}
}

func TestIsCSV(t *testing.T) {
	for file, want := range map[string]bool{
		"a.csv": true, "a.CSV": true, "dir.csv/a.csv.gz": true, "a.t.csv": true,
		"a9a": false, "a9a.gz": false, "a9a.t.gz": false, "a.libsvm": false, "a.svm.gz": false, "a.txt": false, "a.csv/b": false,
	} {
		if got := isCSV(file); got != want {
			t.Errorf("isCSV(%q) = %v", file, got)
		}
	}
}

// write writes a file, packed if its name says so.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if strings.HasSuffix(name, ".gz") {
		z := gzip.NewWriter(f)
		defer z.Close()
		fmt.Fprint(z, text)
	} else {
		fmt.Fprint(f, text)
	}
	return file
}

// TestLoadFiles: test data have the columns and labels of the training data,
// though they have fewer of them and in another order.
func TestLoadFiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		second float64 // of the columns of the test row
		source
	}{
		{"CSV", 1, source{train: write(t, "a.csv.gz", "a,c,y\n1,red,no\n2,blue,yes\n3,red,yes\n"), test: write(t, "b.csv", "y,a,c\nyes,5,blue\n")}},
		{"LIBSVM", 0, source{train: write(t, "a.gz", "0 1:1 2:1\n1 1:2\n1 1:3 2:1\n"), test: write(t, "b.txt", "1 1:5\n")}},
	} {
		train, test, err := c.load()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		rows, cols := train.x.Dims()
		testRows, testCols := test.x.Dims()
		if rows != 3 || testRows != 1 || cols != 2 || testCols != 2 || test.x.At(0, 0) != 5 || test.x.At(0, 1) != c.second {
			t.Errorf("%s: %d×%d and %d×%d", c.name, rows, cols, testRows, testCols)
		}
		if !slices.Equal(train.y, []float64{-1, 1, 1}) || !slices.Equal(test.y, []float64{1}) {
			t.Errorf("%s: labels %v and %v", c.name, train.y, test.y)
		}
	}
	for name, s := range map[string]source{
		"no file":     {train: "nowhere.csv"},
		"no labels":   {train: write(t, "a.csv", "a,y\n1,0\n2,1\n"), test: write(t, "b.csv", "a\n5\n")},
		"too few":     {train: write(t, "a.csv", "a,y\n1,0\n2,1\n")},
		"CSV as text": {train: write(t, "a.txt", "a,y\n1,0\n2,1\n")},
		"test column": {train: write(t, "a", "0 1:1\n1 1:2\n"), test: write(t, "b", "1 2:5\n")},
		"testdata":    {data: "mnist"},
	} {
		if _, _, err := s.load(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestSplit: what is held out is a fifth, and nothing is lost or there twice.
func TestSplit(t *testing.T) {
	for name, text := range map[string]string{"a.csv": "a,y\n", "a": ""} {
		for i := range 50 {
			if name == "a" {
				text += fmt.Sprintf("%d 1:%d\n", i%2, i+1)
			} else {
				text += fmt.Sprintf("%d,%d\n", i+1, i%2)
			}
		}
		s := source{train: write(t, name, text), seed: 7}
		train, test, err := s.load()
		if err != nil {
			t.Fatal(err)
		}
		var all []float64
		for _, d := range []data{train, test} {
			for i, y := range d.y {
				v := d.x.At(i, 0)
				if (int(v)%2 == 0) != (y > 0) {
					t.Errorf("%s: row %v has the label %v", name, v, y)
				}
				all = append(all, v)
			}
		}
		slices.Sort(all)
		if len(train.y) != 40 || len(test.y) != 10 || len(slices.Compact(all)) != 50 {
			t.Errorf("%s: %d and %d rows, %d of them different", name, len(train.y), len(test.y), len(slices.Compact(all)))
		}
	}
}

func TestScores(t *testing.T) {
	d := data{y: []float64{1, -1, -1}}
	if p := d.baseRate(); p != 0.375 {
		t.Errorf("base rate %v", p)
	}
	if s := d.scoreOf(0.25); math.Abs(s.nats+(math.Log(0.25)+2*math.Log(0.75))/3) > 1e-15 || math.Abs(s.error-1./3) > 1e-15 {
		t.Errorf("score %+v", s)
	}
}

func TestBins(t *testing.T) {
	bins := binned(5, []float64{0, 0.1, 0.5, 1}, []float64{-1, 1, 1, 1})
	if len(bins) != 5 || bins[0].rows != 2 || bins[0].ones != 1 || bins[2].rows != 1 || bins[4].rows != 1 || bins[4].predictions != 1 {
		t.Errorf("bins %+v", bins)
	}
	// 8 of 10: Wilson's interval, from the roots of (f − p)² = z²p(1−p)/n.
	if lo, hi := (bin{rows: 10, ones: 8}).interval(); math.Abs(lo-0.49016) > 1e-5 || math.Abs(hi-0.94331) > 1e-5 {
		t.Errorf("interval [%v, %v]", lo, hi)
	}
}

// TestA9A: the whole of the program, but for its output, on real sparse data.
func TestA9A(t *testing.T) {
	dir := os.Getenv("PGSVI_DATA")
	if dir == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	s := source{train: filepath.Join(dir, "a9a", "a9a.gz"), test: filepath.Join(dir, "a9a", "a9a.t.gz")}
	train, test, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	// By proof within 0.01 nats after two passes.
	if _, res, err := fit(context.Background(), train, &pgsvi.GLMOptions{PriorSD: 1}, 0.01); err != nil {
		t.Fatal(err)
	} else if gap := -res.ELBO - 10724.996145; res.Passes > 2 || res.GapBound > 0.01 || gap > res.GapBound {
		t.Errorf("%v passes, gap %.3g, proved %.3g", res.Passes, gap, res.GapBound)
	}
	post, res, err := fit(context.Background(), train, &pgsvi.GLMOptions{PriorSD: 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := test.score(post)
	if math.Abs(-res.ELBO-10724.99614) > 1e-4 || math.Abs(m.nats-0.324) > 1e-5 || math.Abs(m.error-0.150175) > 1e-6 {
		t.Errorf("-ELBO %.6f, %.6f nats, error %.6f", -res.ELBO, m.nats, m.error)
	}
	stream, err := fitStream(context.Background(), train, &pgsvi.GLMOptions{PriorSD: 1})
	if err != nil {
		t.Fatal(err)
	}
	if once := test.score(stream); math.Abs(once.nats-m.nats) > 0.001 {
		t.Errorf("one pass: %.6f nats, all passes: %.6f", once.nats, m.nats)
	}
}
