package pgsvi

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/mat"
)

// rowSource are the rows of a SparseGP that it goes through again and again: a sample of them in memory, in random
// order, and, unless those are all, where to get the rest.
type rowSource struct {
	n, cols           int
	all               iter.Seq2[Row, error] // nil where the sample is all
	x                 *mat.Dense            // the sample
	y, offset, weight []float64             // nil offset and weight mean 0 and 1
}

// Of rows that are gone through again and again so many are kept, and fewer where they take more numbers: to choose inducing
// inputs and hyper-parameters by, and to start from.
const (
	sampleRows    = 50_000
	sampleNumbers = 8_000_000
)

// rowRand returns the generator of what is drawn among rows, which begins at the same place every time.
func rowRand() *rand.Rand { return rand.New(rand.NewPCG(seed1, seed2)) }

// sampleOf returns the number of rows of so many columns that are kept.
func sampleOf(cols int) int { return max(1000, min(sampleRows, sampleNumbers/(cols+1))) }

// newRowSource goes through rows once: it counts and checks them and keeps a random sample, by a fixed seed, of which each row is as
// likely to be one (reservoir sampling; Vitter 1985). The rows of a sample are in random order.
func newRowSource(ctx context.Context, rows iter.Seq2[Row, error], cols int, lik Likelihood) (*rowSource, error) {
	if rows == nil {
		return nil, fmt.Errorf("pgsvi: nil rows: %w", ErrEmpty)
	}
	r := &rowSource{cols: cols, all: rows}
	most := sampleOf(cols)
	rng := rowRand()
	var x []float64
	plain := true
	for row, err := range rows {
		if err == nil && r.n%ctxEvery == 0 && ctx.Err() != nil {
			err = fmt.Errorf("pgsvi: canceled after %d rows: %w", r.n, context.Cause(ctx))
		}
		if err == nil {
			err = prefixed(checkRow(&row, cols, lik, r.n))
		}
		if err != nil {
			return nil, err
		}
		at := r.n
		if r.n++; at >= most {
			if at = rng.IntN(r.n); at >= most {
				continue
			}
		} else {
			x = append(x, make([]float64, cols)...)
			r.y, r.offset, r.weight = append(r.y, 0), append(r.offset, 0), append(r.weight, 0)
		}
		denseRow(x[at*cols:(at+1)*cols], &row)
		r.y[at], r.offset[at], r.weight[at] = row.Y, row.Offset, weightOf(&row)
		plain = plain && row.Offset == 0 && r.weight[at] == 1
	}
	if r.n == 0 {
		return nil, fmt.Errorf("pgsvi: no rows: %w", ErrEmpty)
	}
	if r.n <= most {
		r.all = nil
	}
	r.x = mat.NewDense(len(r.y), cols, x)
	if r.shuffle(rng); plain && r.all == nil {
		r.offset, r.weight = nil, nil
	}
	return r, nil
}

// shuffle puts the sample in random order.
func (r *rowSource) shuffle(rng *rand.Rand) {
	x := r.x.RawMatrix()
	rng.Shuffle(len(r.y), func(i, j int) {
		a, b := kernelRow(x, i), kernelRow(x, j)
		for d, v := range a {
			a[d], b[d] = b[d], v
		}
		for _, v := range [][]float64{r.y, r.offset, r.weight} {
			if v != nil {
				v[i], v[j] = v[j], v[i]
			}
		}
	})
}

// rowSourceOf returns the rows of terms at the rows of x, which it reads only.
func rowSourceOf(x *mat.Dense, t *siteTerms) *rowSource {
	n, cols := x.Dims()
	most := sampleOf(cols)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	rng := rowRand()
	rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	r := &rowSource{n: n, cols: cols, x: mat.NewDense(min(n, most), cols, nil)}
	if n > most {
		r.all = Rows(x, t.y)
	}
	for i, from := range order[:min(n, most)] {
		r.x.SetRow(i, x.RawRowView(from))
		r.y = append(r.y, t.y[from])
	}
	return r
}

// weightOf returns the weight of row.
func weightOf(row *Row) float64 {
	if row.Weight == 0 {
		return 1
	}
	return row.Weight
}

// denseRow stores the values of row in dst.
func denseRow(dst []float64, row *Row) {
	if row.Ind == nil {
		copy(dst, row.Val)
		return
	}
	clear(dst)
	for k, j := range row.Ind {
		dst[j] = row.Val[k]
	}
}

// terms returns the terms of the first n rows of the sample, without residual variances.
func (r *rowSource) terms(lik Likelihood, n int) *siteTerms {
	t := &siteTerms{lik: lik, y: r.y[:n]}
	if r.offset != nil {
		t.offset, t.weight = r.offset[:n], r.weight[:n]
	}
	return t
}

// sample returns the first n rows of the sample.
func (r *rowSource) sample(n int) *mat.Dense { return r.x.Slice(0, n, 0, r.cols).(*mat.Dense) }

// digest shows d the sample, under lik.
func (r *rowSource) digest(d *save.Digest, lik Likelihood) {
	d.Int(r.n, r.cols)
	r.terms(lik, len(r.y)).digest(d)
	for i := range r.y {
		d.Floats(r.x.RawRowView(i))
	}
}
