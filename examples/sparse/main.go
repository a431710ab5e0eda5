// Command sparse learns a Gaussian process from a million rows, hyper-parameters and all, through
// some hundreds of inducing inputs: by default a field in the plane that is made up, seen as labels
// only.
//
// Run it in the root of the repository; it draws sparse.png in the current directory:
//
//	go run ./examples/sparse
//	go run ./examples/sparse -train train.csv.gz -test test.csv.gz -likelihood gaussian -inducing 400
//
// Files have no header, the response in the last column, and may be compressed (.gz); training rows
// may also be a file by data.RowWriter (.rows), which is gone through again and again and may be
// larger than memory. The last line is meant for programs: neg_elbo is in nats, test_nats a test
// row, passes are over all rows, and peak_mb is the largest memory that was resident, the rows
// among it.
package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log"
	"math"
	"os"
	"os/signal"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/pgsvi/pgsvi/internal/memory"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// A problem is what to learn from, and to be tested on.
type problem struct {
	rows     iter.Seq2[pgsvi.Row, error] // gone through again and again
	cols     int
	xt       *mat.Dense
	yt       []float64
	lik      pgsvi.Likelihood
	inducing int
}

// learn learns p, says what it learned, and returns the posterior.
func learn(ctx context.Context, p *problem, w io.Writer) (*pgsvi.SparseGPPosterior, error) {
	used := cputime.Seconds()
	kernel := pgsvi.SquaredExp{} // zero: Learn chooses where to start
	gp, err := pgsvi.NewSparseGPRows(ctx, p.rows, p.cols, kernel, p.lik, &pgsvi.SparseGPOptions{Rank: p.inducing})
	if err != nil {
		return nil, err
	}
	steps := &pgsvi.Solver{Workers: 2, Recorder: pgsvi.RecorderFunc(func(it pgsvi.Iteration) {
		if !math.IsNaN(it.ELBO) { // better than those before
			fmt.Fprintf(w, "%3d hyper-parameters tried, ELBO %.1f of the rows so far\n", it.K, it.ELBO)
		}
	})}
	_, post, learned, err := gp.Learn(ctx, steps, nil)
	if err != nil {
		return nil, err
	}
	for _, q := range learned.Params {
		fmt.Fprintf(w, "%-20s %10.4g   θ ± %.3f\n", q.Name, q.Value, q.SD)
	}
	for _, s := range learned.Warnings {
		fmt.Fprintln(w, "warning:", s)
	}
	seconds := cputime.Seconds() - used
	test := -stat.Mean(post.At(p.xt).LogProb(nil, p.yt), nil)
	_, err = fmt.Fprintf(w, "rows=%d neg_elbo=%.4f test_nats=%.6f passes=%.2f cpu_seconds=%.2f peak_mb=%.0f\n",
		gp.Len(), learned.Objective+learned.LogPrior, test, learned.Passes, seconds, memory.Peak()/1e6)
	return post, err
}

//go:generate go run -C ../.. ./examples/sparse -out examples/sparse/sparse.png

func main() {
	log.SetFlags(0)
	log.SetPrefix("sparse: ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}
