package bench

import (
	"bufio"
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// problem is a data set with the hyper-parameters of Khan et al. (2016).
type problem struct {
	name                  string
	scale, length, jitter float64
	x, xtest              *mat.Dense
	y                     []float64
}

func (p problem) model(b *testing.B) *pgsvi.GP {
	b.Helper()
	gp, err := pgsvi.NewGP(p.x, p.y, pgsvi.SquaredExp{Scale: p.scale, Length: p.length}, pgsvi.BernoulliLogit{})
	if err != nil {
		b.Fatal(err)
	}
	gp.Jitter = p.jitter
	return gp
}

// problems returns ionosphere (N = 280) and, where PGSVI_DATA is set, USPS 3 vs 5 (N = 767).
func problems(b *testing.B) []problem {
	b.Helper()
	ps := []problem{ionosphere(b)}
	if dir := os.Getenv("PGSVI_DATA"); dir != "" {
		ps = append(ps, usps(b, filepath.Join(dir, "usps"), "3", "5"))
	}
	return ps
}

func ionosphere(b *testing.B) problem {
	b.Helper()
	dir := filepath.Join("..", "testdata", "ionosphere")
	x, y, err := pgsvi.ReadCSV(open(b, filepath.Join(dir, "ionosphere.csv")))
	if err != nil {
		b.Fatal(err)
	}
	part := func(file string) (*mat.Dense, []float64) {
		index, err := pgsvi.ReadIndex(open(b, filepath.Join(dir, file)))
		if err != nil {
			b.Fatal(err)
		}
		xs, ys, err := pgsvi.SelectRows(x, y, index)
		if err != nil {
			b.Fatal(err)
		}
		return xs, ys
	}
	p := problem{name: "ionosphere", scale: math.Exp(2.5), length: math.E, jitter: 1e-2}
	p.x, p.y = part("train_index.txt")
	p.xtest, _ = part("test_index.txt")
	return p
}

func usps(b *testing.B, dir, plus, minus string) problem {
	b.Helper()
	var rows [][]string
	for _, name := range []string{"zip.train.gz", "zip.test.gz"} {
		z, err := gzip.NewReader(open(b, filepath.Join(dir, name)))
		if err != nil {
			b.Fatal(err)
		}
		sc := bufio.NewScanner(z)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			rows = append(rows, strings.Fields(sc.Text()))
		}
		if sc.Err() != nil {
			b.Fatal(sc.Err())
		}
	}
	order, err := pgsvi.ReadIndex(open(b, filepath.Join(dir, "standin_resampled_index.txt")))
	if err != nil {
		b.Fatal(err)
	}
	var train, test []float64
	p := problem{name: "usps3v5", scale: math.Exp(5), length: math.Exp(2.5), jitter: 1e-4}
	for i, r := range order {
		digit := strings.TrimSuffix(rows[r][0], ".0000")
		if digit != plus && digit != minus {
			continue
		}
		dst := &train
		if i >= 4649 {
			dst = &test
		} else if digit == plus {
			p.y = append(p.y, 1)
		} else {
			p.y = append(p.y, -1)
		}
		for _, f := range rows[r][1:] {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				b.Fatal(err)
			}
			*dst = append(*dst, v)
		}
	}
	p.x = mat.NewDense(len(p.y), 256, train)
	p.xtest = mat.NewDense(len(test)/256, 256, test)
	return p
}

func open(b *testing.B, path string) *os.File {
	b.Helper()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}
