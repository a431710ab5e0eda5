package sparse

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// Row is a row of data: its values, which are valid until the next row, and its weight.
type Row struct {
	Val               []float64
	Y, Offset, Weight float64
}

// Rows holds rows that are read several times: a sample in memory, in random order, and a source
// for the rest, unless the sample is complete.
type Rows struct {
	N, Cols           int
	All               iter.Seq2[Row, error] // nil if the sample has all rows
	X                 *mat.Dense            // the sample
	Y, Offset, Weight []float64             // nil Offset and Weight mean 0 and 1
}

// SampleRows is the number of rows that are kept in memory to choose inducing inputs and
// hyperparameters and to start from. It is smaller if the rows would take more than sampleNumbers
// numbers.
const (
	SampleRows    = 50_000
	sampleNumbers = 8_000_000
)

// ctxEvery is the number of rows between two checks of a context.
const ctxEvery = 16

// The seeds of random choices, which equal the library's default seeds.
const seed1, seed2 = 0x5eed, 0xe1b0

// rowRand returns a generator for random choices among rows. It starts at the same place every
// time.
func rowRand() *rand.Rand { return rand.New(rand.NewPCG(seed1, seed2)) }

// sampleOf returns the number of rows with the given number of columns that are kept.
func sampleOf(cols int) int { return max(1000, min(SampleRows, sampleNumbers/(cols+1))) }

// NewRows reads rows of the given number of columns once. It counts them and keeps a random
// sample with a fixed seed, in which each row is equally likely (reservoir sampling; Vitter,
// 1985). The sample is in random order. NewRows returns an error of rows unchanged, or the cause
// of ctx. It returns nil if there are no rows.
func NewRows(ctx context.Context, rows iter.Seq2[Row, error], cols int) (*Rows, error) {
	r := &Rows{Cols: cols, All: rows}
	most := sampleOf(cols)
	rng := rowRand()
	var x []float64
	plain := true
	for row, err := range rows {
		if err == nil && r.N%ctxEvery == 0 && ctx.Err() != nil {
			err = fmt.Errorf("canceled after %d rows: %w", r.N, context.Cause(ctx))
		}
		if err != nil {
			return nil, err
		}
		at := r.N
		if r.N++; at >= most {
			if at = rng.IntN(r.N); at >= most {
				continue
			}
		} else {
			x = append(x, make([]float64, cols)...)
			r.Y, r.Offset, r.Weight = append(r.Y, 0), append(r.Offset, 0), append(r.Weight, 0)
		}
		copy(x[at*cols:(at+1)*cols], row.Val)
		r.Y[at], r.Offset[at], r.Weight[at] = row.Y, row.Offset, row.Weight
		plain = plain && row.Offset == 0 && row.Weight == 1
	}
	if r.N == 0 {
		return nil, fmt.Errorf("no rows: %w", sentinel.ErrEmpty)
	}
	if r.N <= most {
		r.All = nil
	}
	r.X = mat.NewDense(len(r.Y), cols, x)
	if r.shuffle(rng); plain && r.All == nil {
		r.Offset, r.Weight = nil, nil
	}
	return r, nil
}

// shuffle puts the sample in random order.
func (r *Rows) shuffle(rng *rand.Rand) {
	x := r.X.RawMatrix()
	rng.Shuffle(len(r.Y), func(i, j int) {
		a, b := gram.Row(x, i), gram.Row(x, j)
		for d, v := range a {
			a[d], b[d] = b[d], v
		}
		for _, v := range [][]float64{r.Y, r.Offset, r.Weight} {
			if v != nil {
				v[i], v[j] = v[j], v[i]
			}
		}
	})
}

// RowsOf returns Rows with the rows of x and the terms t, which it does not change.
func RowsOf(x *mat.Dense, t *term.Terms) *Rows {
	n, cols := x.Dims()
	most := sampleOf(cols)
	order := rowRand().Perm(n)
	r := &Rows{N: n, Cols: cols, X: mat.NewDense(min(n, most), cols, nil)}
	if n > most {
		r.All = func(yield func(Row, error) bool) {
			for i := range n {
				if !yield(Row{x.RawRowView(i), t.Y[i], 0, 1}, nil) {
					return
				}
			}
		}
	}
	for i, from := range order[:min(n, most)] {
		r.X.SetRow(i, x.RawRowView(from))
		r.Y = append(r.Y, t.Y[from])
	}
	return r
}

// Terms returns the terms of the first n rows of the sample, without residual variances.
func (r *Rows) Terms(lik Likelihood, n int) *term.Terms {
	t := &term.Terms{Lik: lik, Y: r.Y[:n]}
	if r.Offset != nil {
		t.Offset, t.Weight = r.Offset[:n], r.Weight[:n]
	}
	return t
}

// Sample returns the first n rows of the sample.
func (r *Rows) Sample(n int) *mat.Dense { return r.X.Slice(0, n, 0, r.Cols).(*mat.Dense) }

// Digest adds the sample and its terms under lik to d.
func (r *Rows) Digest(d *save.Digest, lik Likelihood) {
	d.Int(r.N, r.Cols)
	r.Terms(lik, len(r.Y)).Digest(d)
	for i := range r.Y {
		d.Floats(r.X.RawRowView(i))
	}
}
