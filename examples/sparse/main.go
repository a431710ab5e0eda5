// I have a million rows: can a Gaussian process learn from them, including its hyperparameters?
//
// Data: generated labels of points in the unit square, from a known field of log odds.
// The program learns the hyperparameters with 200 inducing inputs. It prints them with the score
// on other rows, and draws the probabilities and a cut through the field.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

var (
	rows     = flag.Int("rows", 1_000_000, "number of rows to generate")
	inducing = flag.Int("inducing", 200, "number of inducing inputs")
	out      = flag.String("out", "pictures/sparse.png", "picture to write")
)

// A field is a sum of waves. It resembles a draw from a GP with scale 2 and length scale 0.1.
type field [][4]float64

func newField(rng *rand.Rand) field {
	f := make(field, 200)
	for i := range f {
		f[i] = [4]float64{10 * rng.NormFloat64(), 10 * rng.NormFloat64(),
			2 * math.Pi * rng.Float64(), 0.2 * rng.NormFloat64()}
	}
	return f
}

// at returns the log odds of the label +1 at a point.
func (f field) at(a, b float64) (sum float64) {
	for _, w := range f {
		sum += w[3] * math.Cos(w[0]*a+w[1]*b+w[2])
	}
	return sum
}

func main() {
	flag.Parse()
	ctx, rng := context.Background(), rand.New(rand.NewPCG(1, 7))
	truth, tests := newField(rng), 20_000
	x, y := mat.NewDense(*rows+tests, 2, nil), make([]float64, *rows+tests)
	for i := range y {
		a, b := rng.Float64(), rng.Float64()
		x.SetRow(i, []float64{a, b})
		y[i] = -1
		if rng.Float64() < 1/(1+math.Exp(-truth.at(a, b))) {
			y[i] = 1
		}
	}
	xTest, yTest := x.Slice(0, tests, 0, 2).(*mat.Dense), y[:tests]

	// The fit reads the rows in several passes, so they may be a file larger than memory: see
	// data.OpenRows. Learn chooses where to start because the fields of the kernel are zero.
	learnFrom := pgsvi.Rows(x.Slice(tests, len(y), 0, 2), y[tests:])
	gp, err := pgsvi.NewSparseGPRows(ctx, learnFrom, 2, pgsvi.SquaredExp{}, pgsvi.BernoulliLogit{},
		&pgsvi.SparseGPOptions{Rank: *inducing})
	check(err)
	_, post, learned, err := gp.Learn(ctx, nil, nil)
	check(err)
	fmt.Printf("%d rows\n%v\n", gp.Len(), learned)
	fmt.Printf("%.4f passes over the rows; %.6f nats per label on %d other rows\n", learned.Passes,
		-stat.Mean(post.At(xTest).LogProb(nil, yTest), nil), tests)

	line := floats.Span(make([]float64, 400), 0, 1)
	across := mat.NewDense(len(line), 2, nil)
	known := plot.Series{Name: "truth", X: line, Look: plot.Dashes}
	for i, a := range line {
		across.SetRow(i, []float64{a, 0.5})
		known.Y = append(known.Y, truth.at(a, 0.5))
	}
	shown := 400 // labels to draw
	labels := plot.Labels{Title: "Probabilities and 400 labels (generated data)",
		X: "first input", Y: "second input"}
	above := plot.Probabilities(labels, [2]string{"label −1", "label +1"},
		xTest.Slice(0, shown, 0, 2), yTest[:shown],
		func(grid *mat.Dense) []float64 { return post.At(grid).Prob(nil, +1) })
	below := plot.Bands(plot.Labels{Title: "A cut at 0.5", X: "first input", Y: "log odds"},
		plot.Latent("learned, 95%", line, post.At(across)), known)
	fmt.Println("wrote", *out)
	check(plot.Save(*out, plot.Stack(above, below), 22))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
