package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"gonum.org/v1/gonum/mat"
)

// The sizes and the goal of the fits from a file and in memory.
const (
	memoryRows    = 1_000_000
	memoryColumns = 50
	memoryGoal    = 1e-6 // nats
)

var memoryHeader = []string{"fit", "neg_elbo", "gap_bound", "cpu_seconds", "sha256"}

// measureMemory fits the same rows from a file, from a matrix in passes, and in memory, and writes
// the results.
func measureMemory(ctx context.Context, out string, quick bool, stderr io.Writer) error {
	n, d := memoryRows, memoryColumns
	if quick {
		n /= 20
	}
	temp, err := os.CreateTemp("", "rows")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	w := data.NewRowWriter(temp, d, nil)
	x, y := mat.NewDense(n, d, nil), make([]float64, 0, n)
	for r, err := range labels(n, d) {
		if err != nil {
			return err
		}
		x.SetRow(len(y), r.Val)
		y = append(y, r.Y)
		if err := w.Write(r); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Close(), temp.Close()); err != nil {
		return err
	}
	f, err := data.OpenRows(temp.Name())
	if err != nil {
		return err
	}
	defer f.Close()
	passes := func(rows iter.Seq2[pgsvi.Row, error]) func() (*pgsvi.GLM, error) {
		return func() (*pgsvi.GLM, error) {
			return pgsvi.NewGLMRows(ctx, rows, d, pgsvi.BernoulliLogit{}, nil)
		}
	}
	records := [][]string{memoryHeader}
	for _, c := range []struct {
		name  string
		model func() (*pgsvi.GLM, error)
	}{
		{"`NewGLMRows`, a row file", passes(f.All())},
		{"`NewGLMRows`, a matrix", passes(pgsvi.Rows(x, y))},
		{"`NewGLM`", func() (*pgsvi.GLM, error) {
			return pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{
				Covariance: pgsvi.FullCovariance,
			})
		}},
	} {
		start := cputime.Seconds()
		g, err := c.model()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		p, res, err := g.Fit(ctx, &pgsvi.Solver{Goal: memoryGoal})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		seconds := cputime.Seconds() - start
		sum, err := checksum(p)
		if err != nil {
			return err
		}
		r := []string{c.name, strconv.FormatFloat(-res.ELBO, 'f', 7, 64),
			strconv.FormatFloat(res.GapBound, 'g', 2, 64), strconv.FormatFloat(seconds, 'f', 1, 64),
			sum}
		fmt.Fprintln(stderr, r)
		records = append(records, r)
	}
	return writeRecords(out, records)
}

// memoryTable returns the table of a file of measureMemory.
func memoryTable(file string) (string, error) {
	records, err := readRecords(file)
	if err != nil {
		return "", err
	}
	for _, r := range records {
		r[4] = "`" + r[4] + "`"
	}
	return tables.Markdown([]string{"fit", "−ELBO", "proved within", "CPU s", "posterior"},
		records), nil
}
