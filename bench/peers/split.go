package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pgsvi/pgsvi/bench/paper"
	"gonum.org/v1/gonum/mat"
)

// A split is a data set divided into rows to train and to test on.
type split struct {
	name        string
	x, xTest    mat.Matrix
	y, yTest    []float64
	train, test string // files of the same rows, for the scripts
	problem     *paper.Problem
}

// cols returns the number of features.
func (s *split) cols() int {
	_, d := s.x.Dims()
	return d
}

// splits returns the data sets of the paper, without USPS if there are no shared data.
func (o *options) splits(ctx context.Context) ([]*split, error) {
	var all []*split
	for _, set := range []struct {
		shared bool
		read   func() (*paper.Problem, error)
	}{
		{false, func() (*paper.Problem, error) { return paper.Sonar(o.testdata) }},
		{false, func() (*paper.Problem, error) { return paper.Ionosphere(o.testdata) }},
		{true, func() (*paper.Problem, error) { return paper.USPS(o.data, 3, 5) }},
		{true, func() (*paper.Problem, error) { return paper.USPS(o.data, 2, 4) }},
	} {
		if set.shared && o.shared(ctx) != nil {
			continue
		}
		p, err := set.read()
		if err != nil {
			return nil, err
		}
		s := &split{name: p.Name, x: p.X, xTest: p.XTest, y: p.Y, yTest: p.YTest, problem: p}
		if err := o.write(s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if err := o.shared(ctx); err != nil {
		fmt.Fprintf(o.stderr, "USPS is left out: %v\n", err)
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

// writeRows writes rows as little-endian float64, the response last.
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
