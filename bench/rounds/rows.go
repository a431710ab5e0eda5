package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/pgsvi/pgsvi/internal/memory"
)

// rowSizes lists the numbers of rows and columns of the NewGLMRows fits. Memory use must increase
// in this order, because the peak of a process never falls.
var rowSizes = [][2]int{{100_000, 30}, {1_000_000, 30}, {3_000_000, 30}, {30_000_000, 30},
	{1_000_000, 50}}

var rowsHeader = []string{"rows", "columns", "passes", "gap_bound", "cpu_seconds", "peak_mb"}

// labels yields n rows of a logistic regression without storing them.
func labels(n, cols int) iter.Seq2[pgsvi.Row, error] {
	return func(yield func(pgsvi.Row, error) bool) {
		rng := rand.New(rand.NewPCG(2, 33))
		r := pgsvi.Row{Val: make([]float64, cols)}
		for range n {
			eta := 0.0
			for j := range r.Val {
				r.Val[j] = rng.NormFloat64()
				eta += 0.2 * math.Cos(float64(2*j)) * r.Val[j]
			}
			r.Y = 1
			if rng.Float64() > 1/(1+math.Exp(-eta)) {
				r.Y = -1
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// measureRows fits GLMs with NewGLMRows, and writes the file.
func measureRows(ctx context.Context, out string, quick bool, stderr io.Writer) error {
	records := [][]string{rowsHeader}
	for _, size := range rowSizes {
		n, d := size[0], size[1]
		if quick {
			n /= 20
		}
		start := cputime.Seconds()
		glm, err := pgsvi.NewGLMRows(ctx, labels(n, d), d, pgsvi.BernoulliLogit{}, nil)
		if err != nil {
			return err
		}
		_, res, err := glm.Fit(ctx, nil)
		if err != nil {
			return err
		}
		r := []string{strconv.Itoa(n), strconv.Itoa(d), strconv.FormatFloat(res.Passes, 'f', 0, 64),
			strconv.FormatFloat(res.GapBound, 'g', 2, 64),
			strconv.FormatFloat(cputime.Seconds()-start, 'f', 1, 64),
			strconv.FormatFloat(memory.Peak()/1e6, 'f', 0, 64)}
		fmt.Fprintln(stderr, r)
		records = append(records, r)
	}
	return writeRecords(out, records)
}

func writeRecords(out string, records [][]string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(f).WriteAll(records), f.Close())
}

// readRecords returns the lines of a file of writeRecords, without the header.
func readRecords(file string) ([][]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil || len(records) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s has no lines", file))
	}
	return records[1:], nil
}

// rowsTable returns the table of a file of measureRows.
func rowsTable(file string) (string, error) {
	records, err := readRecords(file)
	if err != nil {
		return "", err
	}
	return tables.Markdown([]string{"rows", "columns", "passes", "proved within", "CPU s",
		"peak MB"}, records), nil
}
