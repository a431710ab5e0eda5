// Command hyper learns the hyper-parameters of a Gaussian process and scores its predictions.
//
//	go run ./examples/hyper
//	go run ./examples/hyper -train train.csv -test test.csv -likelihood studentt -kernel matern52 -ard
//
// The files have no header, the response in the last column, and may be compressed (.gz). The last line is meant for programs.
package main

import (
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

func read(file string) (x *mat.Dense, y []float64) {
	f, err := os.Open(file)
	check(err)
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		r, err = gzip.NewReader(f)
		check(err)
	}
	x, y, err = data.ReadCSV(r)
	check(err)
	return x, y
}

// rows returns the rows of testdata whose numbers are in the named file.
func rows(name string) (*mat.Dense, []float64) {
	x, y := read("testdata/ionosphere/ionosphere.csv")
	f, err := os.Open("testdata/ionosphere/" + name)
	check(err)
	defer f.Close()
	index, err := data.ReadIndex(f)
	check(err)
	x, y, err = data.SelectRows(x, y, index)
	check(err)
	return x, y
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	train, test := flag.String("train", "", "training rows; ionosphere of testdata if empty"), flag.String("test", "", "test rows")
	likelihood, kernel := flag.String("likelihood", "logit", "logit, poisson, gaussian or studentt"), flag.String("kernel", "se", "se or matern52")
	ard, prior := flag.Bool("ard", false, "a length for every column"), flag.Bool("prior", true, "weak priors of the hyper-parameters")
	flag.Parse()
	load, trainFile, testFile := read, *train, *test
	if *train == "" {
		load, trainFile, testFile = rows, "train_index.txt", "test_index.txt"
	}
	x, y := load(trainFile)
	xt, yt := load(testFile)
	var lengths []float64
	if *ard {
		_, d := x.Dims()
		lengths = make([]float64, d) // zero: Learn chooses where to start
	}
	lik := map[string]pgsvi.Likelihood{"logit": pgsvi.BernoulliLogit{}, "poisson": pgsvi.Poisson{}, "gaussian": pgsvi.GaussianNoise{}, "studentt": pgsvi.StudentT{}}[*likelihood]
	k := map[string]pgsvi.Kernel{"se": pgsvi.SquaredExp{Lengths: lengths}, "matern52": pgsvi.Matern52{Lengths: lengths}}[*kernel]
	if lik == nil || k == nil {
		log.Fatalf("no likelihood %q with kernel %q", *likelihood, *kernel)
	}
	start := time.Now()
	gp, err := pgsvi.NewGP(x, y, k, lik, nil)
	check(err)
	_, post, learned, err := gp.Learn(context.Background(), nil, &pgsvi.LearnOptions{NoPrior: !*prior})
	check(err)
	var scale float64
	var logs []string
	for _, p := range learned.Params {
		fmt.Printf("%-24s %10.4g   log %7.4f ± %.3f\n", p.Name, p.Value, math.Log(p.Value), p.SD)
		if name := p.Name[strings.Index(p.Name, ".")+1:]; strings.HasPrefix(name, "Length") {
			logs = append(logs, fmt.Sprintf("%.6f", math.Log(p.Value)))
		} else if scale == 0 {
			scale = math.Log(p.Value)
		}
	}
	for _, w := range learned.Warnings {
		fmt.Println("warning:", w)
	}
	nats := 0.0
	for _, l := range post.At(xt).LogProb(nil, yt) {
		nats -= l / float64(len(yt))
	}
	fmt.Printf("neg_elbo=%.6f objective=%.6f log_scale=%.6f log_length=%s evaluations=%d cholesky=%.0f test_nats=%.6f seconds=%.2f\n",
		-learned.Fit.ELBO, learned.Objective, scale, strings.Join(logs, ","), learned.Evaluations, learned.Cholesky, nats, time.Since(start).Seconds())
}
