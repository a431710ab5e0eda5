package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/pgsvi/pgsvi/bench/paper"
	"gonum.org/v1/gonum/mat"
)

// A split is a data set with training and test rows.
type split struct {
	name        string
	x, xTest    mat.Matrix
	y, yTest    []float64
	train, test string // files with the same rows, for the scripts
	problem     *paper.Problem
}

// cols returns the number of features.
func (s *split) cols() int {
	_, d := s.x.Dims()
	return d
}

// halved returns a split whose first n rows are for training.
func halved(name string, x *mat.Dense, y []float64, train int) *split {
	n, d := x.Dims()
	return &split{name: name, x: x.Slice(0, train, 0, d), xTest: x.Slice(train, n, 0, d),
		y: y[:train], yTest: y[train:]}
}

// errNoFolder is the error if no folder of shared data sets was given.
var errNoFolder = errors.New("it needs PGSVI_DATA or -data")

// leftOut reports whether err means that a data set is missing, and prints a message the first
// time.
func (o *options) leftOut(name string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNoFolder) {
		return false
	}
	if !slices.Contains(o.absent, name) {
		o.absent = append(o.absent, name)
		fmt.Fprintf(o.stderr, "%s is left out: %v\n", name, err)
	}
	return true
}

// usps returns images of two digits.
func (o *options) usps(plus, minus int) (*paper.Problem, error) {
	if o.data == "" {
		return nil, errNoFolder
	}
	return paper.USPS(o.data, plus, minus)
}

// splits returns the data sets of the paper that are present.
func (o *options) splits() ([]*split, error) {
	var all []*split
	for _, set := range []struct {
		name string
		read func() (*paper.Problem, error)
	}{
		{"sonar", func() (*paper.Problem, error) { return paper.Sonar(o.testdata) }},
		{"ionosphere", func() (*paper.Problem, error) { return paper.Ionosphere(o.testdata) }},
		{"USPS", func() (*paper.Problem, error) { return o.usps(3, 5) }},
		{"USPS", func() (*paper.Problem, error) { return o.usps(2, 4) }},
	} {
		p, err := set.read()
		if o.leftOut(set.name, err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s := &split{name: p.Name, x: p.X, xTest: p.XTest, y: p.Y, yTest: p.YTest, problem: p}
		if err := o.write(s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// write writes the files of s.
func (o *options) write(s *split) error {
	s.train, s.test = filepath.Join(o.temp, s.name+".train"), filepath.Join(o.temp, s.name+".test")
	if err := writeRows(s.train, s.x, s.y); err != nil {
		return err
	}
	return writeRows(s.test, s.xTest, s.yTest)
}

// writeRows writes rows as little-endian float64, with the response last.
func writeRows(path string, x mat.Matrix, y []float64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	_, d := x.Dims()
	row := make([]float64, d+1)
	for i := range y {
		for j := range d {
			row[j] = x.At(i, j)
		}
		row[d] = y[i]
		if err := binary.Write(w, binary.LittleEndian, row); err != nil {
			f.Close()
			return err
		}
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// readFloats reads a file of little-endian float64.
func readFloats(path string, n int) ([]float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	v := make([]float64, n)
	if err := binary.Read(bufio.NewReader(f), binary.LittleEndian, v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}
