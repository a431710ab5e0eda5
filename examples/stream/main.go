// My rows do not fit in memory: can I read each one once, and how far off is the answer?
//
// Data: rows of 30 features with labels, generated from known weights. With -file they are written
// to a binary file first, and then read through a memory mapping.
// The program fits a logistic regression in constant memory. Each time the number of rows has
// doubled, it prints the largest error in standard deviations, which should stay below 4.
package main

import (
	"errors"
	"flag"
	"fmt"
	"iter"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/stat"
)

const cols = 30

var (
	rows = flag.Int("rows", 2_000_000, "number of rows")
	file = flag.String("file", "", "binary `file` of rows, which is written if it does not exist")
	seed = flag.Uint64("seed", 1, "seed of the data")
)

// generated returns rows that follow the weights. Each range over it yields the same rows.
func generated(weights []float64) iter.Seq2[pgsvi.Row, error] {
	return func(yield func(pgsvi.Row, error) bool) {
		rng := rand.New(rand.NewPCG(*seed, 2))
		row := pgsvi.Row{Val: make([]float64, cols)} // reused for every row
		for range *rows {
			eta := 0.0
			for j, w := range weights {
				row.Val[j] = rng.NormFloat64()
				eta += w * row.Val[j]
			}
			row.Y = math.Copysign(1, 1/(1+math.Exp(-eta))-rng.Float64())
			if !yield(row, nil) {
				return
			}
		}
	}
}

func main() {
	flag.Parse()
	weights, rng := make([]float64, cols), rand.New(rand.NewPCG(*seed, 1))
	for j := range weights {
		weights[j] = 2 * rng.NormFloat64() / math.Sqrt(cols)
	}
	all := generated(weights)
	if *file != "" {
		if _, err := os.Stat(*file); err != nil {
			f, err := os.Create(*file)
			check(err)
			w := data.NewRowWriter(f, cols, nil)
			_, err = data.CopyRows(w, all)
			check(errors.Join(err, w.Close(), f.Close()))
			fmt.Println("wrote", *file)
		}
		f, err := data.OpenRows(*file)
		check(err)
		defer f.Close()
		all, *rows = f.All(), f.Len()
	}
	start, next := time.Now(), min(1000, *rows) // the row of the next report
	s, err := pgsvi.NewGLMStream(cols, pgsvi.BernoulliLogit{}, nil)
	check(err)
	fmt.Println("       rows   largest error in sd     mean sd   mean sd × √rows")
	for row, err := range all {
		check(err)
		check(s.Add(row))
		if s.Len() < next {
			continue
		}
		post, err := s.Posterior() // the stream can continue
		check(err)
		mean, sd, largest := post.Mean(nil), post.SD(nil), 0.0
		for j, w := range weights {
			largest = math.Max(largest, math.Abs(mean[j]-w)/sd[j])
		}
		average, root := stat.Mean(sd, nil), math.Sqrt(float64(s.Len()))
		fmt.Printf("%11d   %19.2f   %9.6f   %15.4f\n", s.Len(), largest, average, average*root)
		next = min(2*next, *rows)
	}
	fmt.Printf("\nrows=%d cols=%d seconds=%.2f\n", *rows, cols, time.Since(start).Seconds())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
