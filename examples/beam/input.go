package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// input describes the data of a fit.
type input struct {
	rows     string // the row file, or the value of -data if -cols is given
	cols     int
	block    int           // rows per block
	size     int           // number of topics or inducing inputs
	test     *pgsvi.Corpus // documents to score the topics with
	inducing mat.Matrix
	kernel   pgsvi.Kernel
	temp     string // the folder that close deletes
}

func (in *input) close() { os.RemoveAll(in.temp) }

// Blocks have at most mostRows rows, and fewer if that would give less than leastBlocks blocks. The
// result depends on the blocks, so they must not depend on shards.
const mostRows, leastBlocks = 8192, 64

// open reads the data once. It converts text to a row file, because a worker can read any part of a
// row file.
func open(context.Context) (in *input, err error) {
	in = &input{size: *size, block: mostRows, rows: *path, cols: *cols}
	if in.size == 0 {
		in.size = map[string]int{"sparse": 100, "ctm": 10}[*model]
	}
	switch *model {
	case "glm", "sparse", "ctm":
	default:
		return nil, fmt.Errorf("-model %s is unknown; want glm, sparse or ctm", *model)
	}
	if *cols > 0 && *model != "sparse" {
		return in, nil
	}
	defer func() {
		if err != nil {
			in.close()
		}
	}()
	f, err := data.OpenRows(*path)
	if errors.Is(err, pgsvi.ErrParam) { // not a row file
		if err = in.convert(); err == nil {
			f, err = data.OpenRows(in.rows)
		} else {
			err = fmt.Errorf("%s: %w", *path, err)
		}
	}
	if err != nil {
		return in, err
	}
	defer f.Close()
	in.cols = max(f.Cols(), in.cols)
	in.block = max(1, min(mostRows, (f.Len()+leastBlocks-1)/leastBlocks))
	if *model == "sparse" {
		err = in.choose(f)
	}
	return in, err
}

// convert converts a text file to a row file.
func (in *input) convert() error {
	folder := *dir
	if folder == "" {
		var err error
		if folder, err = os.MkdirTemp("", "rows-*"); err != nil {
			return err
		}
		in.temp = folder
	} else if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	in.rows = filepath.Join(folder, "rows.bin")
	text, err := os.Open(*path)
	if err != nil {
		return err
	}
	defer text.Close()
	rows := data.ScanLIBSVM(text)
	if *model == "ctm" {
		c, err := data.ReadLDAC(text, *cols)
		if err != nil {
			return err
		}
		train, test := c.EvenOdd()
		in.test, in.cols = test, c.Terms
		rows = documents(train)
	}
	return data.WriteFile(in.rows, func(w io.Writer) error {
		out := data.NewRowWriter(w, in.cols, &data.RowOptions{Sparse: true})
		_, err := data.CopyRows(out, rows)
		return errors.Join(err, out.Close())
	})
}

// documents yields documents as rows.
func documents(c *pgsvi.Corpus) iter.Seq2[pgsvi.Row, error] {
	return func(yield func(pgsvi.Row, error) bool) {
		for _, d := range c.Docs {
			if !yield(pgsvi.Row{Ind: append([]int{}, d.Words...), Val: d.Counts}, nil) {
				return
			}
		}
	}
}

// choose sets the inducing inputs to evenly spaced rows, and the length scale of the kernel to
// their median distance. For a better choice, fit NewSparseGPRows to part of the rows first.
func (in *input) choose(f *data.RowFile) error {
	m := min(in.size, f.Len())
	x := mat.NewDense(m, in.cols, nil)
	for i := range m {
		at := i * f.Len() / m
		for row, err := range f.Range(at, at+1) {
			if err != nil {
				return err
			}
			for k, v := range row.Val {
				j := k
				if row.Ind != nil {
					j = row.Ind[k]
				}
				x.Set(i, j, v)
			}
		}
	}
	var all []float64
	for i := range m {
		for k := range i {
			d := 0.0
			for j := range in.cols {
				d = math.Hypot(d, x.At(i, j)-x.At(k, j))
			}
			all = append(all, d)
		}
	}
	slices.Sort(all)
	length := 1.0
	if n := len(all); n > 0 && all[n/2] > 0 {
		length = all[n/2]
	}
	in.inducing, in.kernel = x, pgsvi.SquaredExp{Scale: 1, Length: length}
	return nil
}
