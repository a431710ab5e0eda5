// How do I classify with a Gaussian process, and which steps reach the optimum first?
//
// Data: radar returns from the ionosphere, good (-1) or bad (+1), 351 rows of 34 features (V.
// Sigillito et al., Ionosphere, UCI machine learning repository, 1989). A fifth is held out.
// The program fits the classifier with exact block steps, with exact steps on all rows, and with
// PG-SVI as published (Khan et al., 2016). For each it prints the gap bound, the test score and
// the time.
// To use your own data, with labels -1 and +1 in the last column: -data FILE.csv
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
)

//go:embed ionosphere.csv
var ionosphere []byte

var (
	file = flag.String("data", "", "CSV `file` without a header, with the label in the last column")
	out  = flag.String("out", "pictures/gpclass.png", "picture to write")
	seed = flag.Uint64("seed", 1, "seed of the split and of the draws")
)

func main() {
	flag.Parse()
	ctx := context.Background()
	if *file != "" {
		text, err := os.ReadFile(*file)
		check(err)
		ionosphere = text
	}
	allX, allY, err := data.ReadCSV(bytes.NewReader(ionosphere))
	check(err)
	order := rand.New(rand.NewPCG(*seed, 1)).Perm(len(allY))
	test := len(order) / 5
	xTest, yTest, err := data.SelectRows(allX, allY, order[:test])
	check(err)
	x, y, err := data.SelectRows(allX, allY, order[test:])
	check(err)

	// The paper uses this scale and length scale. Learn them for your own data, as in example co2.
	kernel := pgsvi.SquaredExp{Scale: math.Exp(2.5), Length: math.Exp(1)}
	draws := pgsvi.ScoreFunction(500) // for PG-SVI only
	opt := &pgsvi.GPOptions{Jitter: 1e-2, Estimator: draws}
	gp, err := pgsvi.NewGP(x, y, kernel, pgsvi.BernoulliLogit{}, opt)
	check(err)
	small := &pgsvi.Solver{StepSize: pgsvi.ConstantStep(2 / float64(gp.Len())), BatchSize: 5,
		MaxPasses: 10, Src: rand.NewPCG(*seed, 0)}
	best, runs := math.Inf(-1), []plot.Run{}
	fmt.Printf("%d rows to train on, %d to test on\n\n", len(y), len(yTest))
	fmt.Println("steps    passes        ELBO      gap bound  test bits  errors  seconds  status")
	for _, m := range []struct {
		name   string
		solver *pgsvi.Solver
	}{
		{"block", nil}, // nothing to tune
		{"batch", &pgsvi.Solver{BatchSize: gp.Len()}},
		{"PG-SVI", small},
	} {
		post, res, err := gp.Fit(ctx, m.solver)
		check(err)
		var bits, errors float64
		for _, l := range post.At(xTest).LogProb(nil, yTest) {
			bits -= l / math.Ln2 / float64(test)
			if l < -math.Ln2 { // the true label has a probability below one half
				errors++
			}
		}
		fmt.Printf("%-7s %7.4g  %10.6f  %8.1e nats  %9.4f  %6.0f  %7.2f  %v\n", m.name, res.Passes,
			res.ELBO, res.GapBound, bits, errors, res.Elapsed.Seconds(), res.Status)
		best = max(best, res.ELBO)
		runs = append(runs, plot.Run{Name: m.name + " steps", Trace: res.Trace})
	}
	fmt.Println("\nwrote", *out)
	labels := plot.Labels{Title: "A Gaussian process classifier of radar returns"}
	check(plot.Save(*out, plot.Trace(labels, best, runs...), 0))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
